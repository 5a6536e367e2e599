"""Cost of BLAS threads on small problems: the default number of threads, compared with one.

    python benchmarks/threads.py [--rounds 5] [--orders]

A round runs all cases in a process with no environment variable set, then in one with
``OPENBLAS_NUM_THREADS=1``. A time is the median over the calls of a round, then over the rounds. ``--orders``
compares all threads with one on nearness and a cut at growing orders; ``bregopt.clock.SMALL`` follows from
it. The tables go to benchmarks/results, threads.md and threads_orders.md.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS = 0.5  # duration of the calls of a case in a round, at least three calls
ORDERS = (50, 100, 200, 300, 400, 500, 700, 1000)
DATES = 500  # number of days of a correlation matrix that is repaired every day


def rng():
    """Return a generator with the same seed for every case."""
    return np.random.default_rng(0)


def broken(n):
    """Return an invalid correlation matrix, with a few negative eigenvalues."""
    noise = rng().normal(size=(n, n)) / 10
    A = np.corrcoef(rng().normal(size=(n, 2 * n))) + (noise + noise.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def covariance(n):
    """Return the covariance of random data."""
    return np.cov(rng().normal(size=(n, 2 * n)))


def graph(n):
    """Return the Laplacian, over four, of a random graph with ten neighbors a vertex on average."""
    W = np.triu(rng().random((n, n)) < 10 / n, 1)
    W = (W | W.T).astype(float)
    return (np.diag(W.sum(axis=1)) - W) / 4


def nearness(n, divergence):
    """Return a call that finds the nearest correlation matrix."""
    import bregopt as bo

    A = broken(n) if divergence == "frobenius" else covariance(n)
    return lambda: bo.nearest_correlation(A, divergence)


def cut(n):
    """Return a call that bounds the largest cut of a graph."""
    import bregopt as bo

    L = graph(n)

    def solve():
        X = bo.PSD(n)
        return bo.Problem(bo.Maximize(bo.inner(L, X)), [bo.diag(X) == 1]).solve(solver="path")

    return solve


def by_cvxpy(n, **how):
    """Return a call that solves the same problem through CVXPY."""
    import cvxpy as cp

    import bregopt.cvxpy

    how = how or {"solver": bregopt.cvxpy.BREGOPT}
    L, X = graph(n), cp.Variable((n, n), PSD=True)

    def solve():
        return cp.Problem(cp.Maximize(cp.trace(L @ X)), [cp.diag(X) == 1]).solve(**how)

    return solve


def ready_made():
    """Yield the name of a case and a function without arguments."""
    import networkx
    from sklearn.datasets import load_wine

    import bregopt as bo
    from bregopt import learn, online

    for n in (30, 120):
        for divergence in ("frobenius", "logdet", "von_neumann"):
            yield f"nearest_correlation, {divergence}, n = {n}", nearness(n, divergence)
    A = broken(60)
    yield (
        "nearest_correlation, min_eigenvalue, n = 60",
        lambda: bo.nearest_correlation(A, min_eigenvalue=0.01),
    )
    yield "nearest_correlation, fixed, n = 60", lambda: bo.nearest_correlation(A, fixed=[[0, 1], [2, 3]])
    yield "nearest_psd, n = 60", lambda: bo.nearest_psd(A, lambda X: bo.trace(X) == 60)
    points, label = load_wine(return_X_y=True)
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    pairs = rng().choice(178, size=(100, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = label[pairs[:, 0]] == label[pairs[:, 1]]
    yield (
        "learn_kernel, rank 13, n = 178",
        lambda: bo.learn_kernel(bo.LowRank(points), pairs[same], pairs[~same], gamma=1.0),
    )
    K = np.exp(-np.square(points[:80, None] - points[None, :80]).sum(axis=2) / 26)
    few = rng().permutation(80)[:40].reshape(20, 2)
    yield "learn_kernel, n = 80", lambda: bo.learn_kernel(K, few[:10], few[10:], gamma=1.0)
    far, near = points[pairs[~same][:, 0]] - points[pairs[~same][:, 1]], points[pairs[same]]
    count = min(len(far), len(near))
    near = (near[:, 0] - near[:, 1])[:count]
    yield f"soft_margin, {count} comparisons", lambda: bo.soft_margin((far[:count], near))
    club = networkx.karate_club_graph()
    yield "min_balanced_cut, karate club", lambda: bo.min_balanced_cut(club)
    yield "max_cut, karate club", lambda: bo.max_cut(club)
    yield "lovasz_theta, karate club", lambda: bo.lovasz_theta(club)
    random = networkx.gnp_random_graph(100, 0.1, seed=0)
    yield "max_cut, n = 100", lambda: bo.max_cut(random)
    yield "path, a cut, n = 20", cut(20)
    yield "solver=BREGOPT, a cut, n = 20", by_cvxpy(20)
    yield 'method="bregopt", a cut, n = 20', by_cvxpy(20, method="bregopt")
    metrics = (learn.LogDetMetricLearner(), learn.VonNeumannMetricLearner(), learn.SoftMarginMetricLearner())
    for learner in (*metrics, learn.KernelLearner()):
        yield f"{type(learner).__name__}, wine", partial(learner.fit, points, label)
    yield "NearestCorrelation, wine", lambda: learn.NearestCorrelation().fit(points)
    x = rng().normal(size=(200, 50))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x[:, :25] ** 2).sum(axis=1)
    yield "MEG, 200 trials, n = 50", lambda: online.MEG().fit(x, y)
    yield "MatrixBurgGradient, 200 trials, n = 50", lambda: online.MatrixBurgGradient().fit(x, y)
    yield "MatrixWinnow, 200 trials, n = 50", lambda: online.MatrixWinnow().fit(x, np.where(y > 0.5, 1, -1))
    z = rng().normal(size=(100, 30, 20))
    z /= np.linalg.norm(z, 2, axis=(1, 2))[:, None, None]
    sign = np.where(z[:, 0, 0] > 0, 1, -1)
    yield "GeneralMatrixWinnow, 100 trials, 30 x 20", lambda: online.GeneralMatrixWinnow().fit(z, sign)


def by_order():
    """Yield cases that keep all threads, whatever their order."""
    from bregopt import clock

    clock.SMALL = 0
    for n in ORDERS:
        for divergence in ("frobenius", "logdet"):
            yield f"{divergence} | {n}", nearness(n, divergence)
        yield f"cut | {n}", cut(n)


def clock():
    """Return the wall seconds and the CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([time.perf_counter(), used.ru_utime + used.ru_stime])


def measured(call):
    """Return the median wall and CPU seconds of a call, after one that does not count."""
    call()
    spent, begin = [], clock()
    while len(spent) < 3 or (clock() - begin)[0] < SECONDS:
        before = clock()
        call()
        spent.append(clock() - before)
    # CPU time comes in ticks of up to 4 ms: its mean over many short calls is more accurate than a median.
    mean = (clock() - begin) / len(spent)
    return [float(np.median(spent, axis=0)[0]), float(mean[1])]


def child(orders):
    """Measure all cases in this process, and print a line for each."""
    warnings.simplefilter("ignore")
    for name, call in by_order() if orders else ready_made():
        print(json.dumps([name, *measured(call)]), flush=True)
    if not orders:
        call, begin = nearness(120, "frobenius"), clock()
        for _ in range(DATES):
            call()
        print(json.dumps([f"{DATES} dates of a 120 x 120 matrix", *(clock() - begin)]), flush=True)


def asked(orders, one):
    """Return the times of all cases, measured in a new process."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, __file__, "--child", *(["--orders"] if orders else [])]
    environment |= {"OPENBLAS_NUM_THREADS": "1"} if one else {}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return {name: times for name, *times in map(json.loads, done.stdout.splitlines())}


def shown(seconds):
    """Return seconds as milliseconds."""
    return f"{1e3 * seconds:.1f}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def main():
    """Measure both numbers of threads, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--orders", action="store_true", help="at which order threads begin to pay")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.orders)
        return
    rounds = [[asked(options.orders, one) for one in (False, True)] for _ in range(options.rounds)]
    key = "problem | n" if options.orders else "call"
    every = "all threads" if options.orders else "no variable set"
    lines = [f"{os.cpu_count()} cores, milliseconds, medians of {options.rounds} rounds", ""]
    lines.append(f"| {key} | {every}: wall | CPU | one thread: wall | CPU | ratio: wall | CPU |")
    lines.append("|---|" + "--:|" * (7 if options.orders else 6))
    for name in rounds[0][0]:
        free, one = (
            [statistics.median(each[k][name][part] for each in rounds) for part in (0, 1)] for k in (0, 1)
        )
        cells = [*map(shown, [*free, *one]), *(f"{a / b:.2f}" for a, b in zip(free, one, strict=True))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    print("\n".join(lines))
    name = "threads_orders.md" if options.orders else "threads.md"
    (Path(__file__).parent / "results" / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
