"""Low rank: nearest correlation up to n = 1,000,000, cyclic projection beside a NumPy loop, hard pairs.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/low_rank.py [--orders 4000 10000]
        [--cyclic 2000] [--pairs 3000]

Each line of the first table is a process of its own, so that its peak memory is its own too. Seconds are
those of one run, from the factor to the certified answer. Feasible factors are those of correlation matrices
in other coordinates of their range; random ones have no correlation matrix on their range. The tables of a
full run go to benchmarks/results/low_rank.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bregopt as bo

Array = NDArray[np.float64]

_ORDERS, _CYCLIC, _PAIRS = [4_000, 10_000, 100_000, 1_000_000], 2_000, 3_000
_RANK = 10
_TURNS = 9  # of the loop and the method, of which the medians count
_DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


def correlation_factor(n: int, rng: np.random.Generator) -> Array:
    """Return ``U M`` for unit rows ``U``: the correlation matrix ``U U'`` has the same range."""
    U = rng.normal(size=(n, _RANK))
    U /= np.linalg.norm(U, axis=1)[:, None]
    factor: Array = U @ (np.eye(_RANK) + 0.3 * rng.normal(size=(_RANK, _RANK)))
    return factor


def pairs_problem(divergence: str, m: int, slack: float) -> bo.Problem:
    """Return hard upper and lower bounds on `m` distances that another matrix on the range meets."""
    rng, n = np.random.default_rng(0), 1_000
    G = rng.normal(size=(n, _RANK))
    H = G @ (np.eye(_RANK) + 0.3 * rng.normal(size=(_RANK, _RANK)))
    i = rng.integers(0, n, m)
    j = (i + rng.integers(1, n, m)) % n
    d, near = ((H[i] - H[j]) ** 2).sum(axis=1), rng.random(m) < 0.5
    X = bo.PSD(n, name="X")
    rows = [
        bo.sq_distance(X, i[near], j[near]) <= (1 + slack) * d[near],
        bo.sq_distance(X, i[~near], j[~near]) >= (1 - slack) * d[~near],
    ]
    return bo.Problem(bo.Minimize(_DIVERGENCES[divergence](X, bo.LowRank(G))), rows)


def numpy_loop(V: Array, b: Array, cycles: int) -> Array:
    """Return ``M`` after cycles of Algorithm 2 of Kulis et al. 2009 from the identity, rows ``v'M v = b``."""
    M, rows, right = np.eye(V.shape[1]), list(V), b.tolist()
    for _ in range(cycles):
        for v, target in zip(rows, right, strict=True):
            Mv = M @ v
            p = v @ Mv
            alpha = 1 / p - 1 / target
            M += alpha / (1 - alpha * p) * np.outer(Mv, Mv)
    return M


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def _nearest(n: int, divergence: str, feasible: bool) -> str:
    """Return the line of one nearest correlation matrix; called in a process of its own."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    A = bo.LowRank(correlation_factor(n, rng) if feasible else rng.normal(size=(n, _RANK)))
    bo.nearest_correlation(bo.LowRank(A.factor[:100]), divergence)  # imports
    seconds, sol = _timed(lambda: bo.nearest_correlation(A, divergence))
    status = Path("/proc/self/status")
    memory = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0] if status.exists() else None
    cells = [
        f"{divergence}, {'feasible' if feasible else 'random'}",
        f"{n:,}",
        f"{seconds:.2f}",
        "" if memory is None else f"{int(memory) / 1e6:.2f}",
        sol.status,
        f"{sol.gap:.0e}" if feasible else "",
        f"{sol.iterations}",
    ]
    return f"| {' | '.join(cells)} |"


def nearest(orders: list[int]) -> list[str]:
    """Return the table of nearest correlation matrices of growing order."""
    lines = ["| factor | n | seconds | GB | status | gap | steps |", "|---|---|---|---|---|---|---|"]
    for divergence in _DIVERGENCES:
        for feasible in (True, False):
            for n in orders:
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                    lines.append(pool.submit(_nearest, n, divergence, feasible).result())
    return lines


def cyclic(n: int) -> list[str]:
    """Return the table of cyclic projection, with its certificates, beside the loop with as many cycles."""
    G = correlation_factor(n, np.random.default_rng(0))

    def ours() -> bo.Solution:
        X = bo.PSD(n, name="X")
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), [bo.diag(X) == 1])
        return problem.solve(solver="bregman", method="cyclic")

    own, loop, sol = [], [], ours()
    for _ in range(_TURNS):
        own.append(_timed(ours)[0])
        loop.append(_timed(lambda: numpy_loop(G, np.ones(n), sol.iterations))[0])
    ratio = statistics.median(a / b for a, b in zip(own, loop, strict=True))
    seconds = f"{statistics.median(own):.3f} | {statistics.median(loop):.3f} | {ratio:.2f}"
    return [
        "| rows | cycles | gap | bregopt cyclic, certified, s | NumPy loop of Algorithm 2, s | ratio |",
        "|---|---|---|---|---|---|",
        f"| unit diagonal, n = {n:,} | {sol.iterations} | {sol.gap:.0e} | {seconds} |",
    ]


def pairs(m: int) -> list[str]:
    """Return the table of hard pairs."""
    titles = ["hard pairs", "slack", "seconds", "status", "gap", "residual", "steps"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for divergence in _DIVERGENCES:
        for slack in (0.0, 1e-4, 1e-2, 0.1):
            problem = pairs_problem(divergence, m, slack)
            seconds, sol = _timed(lambda problem=problem: problem.solve(solver="bregman"))
            cells = [f"{divergence}, m = {m:,}", f"{slack:g}", f"{seconds:.2f}", sol.status]
            cells += [f"{sol.gap:.0e}", f"{sol.primal_residual:.0e}", f"{sol.iterations}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the tables; save those of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", nargs="+", type=int, default=_ORDERS)
    parser.add_argument("--cyclic", type=int, default=_CYCLIC, help="order for the cyclic method")
    parser.add_argument("--pairs", type=int, default=_PAIRS, help="number of hard pairs")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore")
    tables = [nearest(options.orders), cyclic(options.cyclic), pairs(options.pairs)]
    text = "\n\n".join("\n".join(lines) for lines in tables) + "\n"
    print(text)
    if (options.orders, options.cyclic, options.pairs) == (_ORDERS, _CYCLIC, _PAIRS):
        (Path(__file__).parent / "results" / "low_rank.md").write_text(text)


if __name__ == "__main__":
    main()
