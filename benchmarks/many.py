"""Many problems: the overhead of a task in each executor, and the speed-up of two workers.

    python benchmarks/many.py executors [--count 60] [--order 100] [--rounds 7]
    python benchmarks/many.py chains [--count 64] [--order 60]
    python benchmarks/many.py rows [options of many_rows.py]

Each executor runs in a process of its own; those that are not installed are left out. The overhead is the
time from ``submit`` to the result of a task with one problem, less the time in the worker: the median of
``TASKS``, one at a time. The driver's CPU is that of the same call in this process. The speed-up compares
``bo.solve_many`` of all problems with one and with two workers, both warm and in turns: the median of the
ratios of a round, as other processes slow down both alike. The first line of the table does the same with
loops of Python, which shows what a busy machine leaves. The CPU is that of all workers. MPI's pool has all
processes that ``mpiexec`` starts, so it has no ratio. The last column says whether all digits of all answers
are those of the serial run.

Chains compare ``warm_start="chain"`` with cold starts for data that drift, in one process and CPU seconds.

The tables go to benchmarks/results, many_executors.md and many_chains.md.
"""

import argparse
import hashlib
import json
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

import many_rows
import numpy as np

RESULTS = Path(__file__).parent / "results"
TASKS = 100
EXECUTORS = ("serial", "threads", "process pool", "loky", "MPI", "Dask")
# Open MPI 4 and 5 start more processes than there are cores, also as root.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def problems(order, count):
    """Return nearest correlation problems of random matrices."""
    import bregopt as bo

    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        A = rng.uniform(-1, 1, (order, order))
        A = (A + A.T) / 2
        np.fill_diagonal(A, 1.0)
        X = bo.PSD(order, name="X")
        found.append(bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1]))
    return found


@contextmanager
def executor(kind, workers):
    """Yield an executor with a number of workers."""
    with ExitStack() as stack:
        if kind == "serial":
            from bregopt.executors import Serial

            yield Serial()
        elif kind == "threads":
            from concurrent.futures import ThreadPoolExecutor

            yield stack.enter_context(ThreadPoolExecutor(workers))
        elif kind == "process pool":
            from concurrent.futures import ProcessPoolExecutor

            yield stack.enter_context(ProcessPoolExecutor(workers, get_context("spawn")))
        elif kind == "loky":
            from loky import ProcessPoolExecutor

            yield stack.enter_context(ProcessPoolExecutor(workers))
        elif kind == "Dask":
            from distributed import Client, LocalCluster

            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            yield stack.enter_context(Client(stack.enter_context(cluster))).get_executor()
        else:
            from mpi4py.futures import MPIPoolExecutor

            yield stack.enter_context(MPIPoolExecutor(workers))


def digits(answers):
    """Return a hash of all digits of all answers."""
    parts = [(a.status, a.value, a.dual_value, a.gap, a.X.tobytes(), a.duals[0].tobytes()) for a in answers]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def overhead(found, problem):
    """Return the medians of a task's overhead and of the driver's CPU, in seconds."""
    from bregopt.executors import Crew
    from bregopt.many import Item, solve_task

    payload = pickle.dumps([[Item(0, problem, (), None, {})]])
    crew, spent = Crew(found), []
    for _ in range(TASKS):
        begin, cpu = time.perf_counter(), time.process_time()
        inside = crew.result(crew.submit(solve_task, payload)).seconds
        spent.append((time.perf_counter() - begin - inside, time.process_time() - cpu))
    return np.median(spent, axis=0).tolist()


class Metered(Executor):
    """An executor of which each task returns its CPU seconds, too."""

    def __init__(self, executor, workers):
        self._executor, self._max_workers, self.futures = executor, workers, []

    def submit(self, fn, /, *arguments):
        """Submit a task."""
        self.futures.append(self._executor.submit(metered, fn, *arguments))
        return self.futures[-1]

    def cpu(self):
        """Return the CPU seconds of all tasks since the last call."""
        total = sum(vars(future.result())["cpu"] for future in self.futures)
        self.futures.clear()
        return total


def metered(fn, *arguments):
    """Return what a task has found, with its CPU seconds."""
    begin = time.thread_time()
    found = fn(*arguments)
    vars(found)["cpu"] = time.thread_time() - begin
    return found


def timed(pool, given):
    """Return the seconds of a call, the CPU seconds of its workers, and a hash of its answers."""
    import bregopt as bo

    begin = time.perf_counter()
    answers = bo.solve_many(given, pool, progress=False)
    return time.perf_counter() - begin, pool.cpu(), digits(answers)


def child(kind, options):
    """Measure one executor in this process, and print the overheads, the times of rounds, and a hash."""
    warnings.simplefilter("ignore")
    given = problems(options.order, options.count)
    counts = {"serial": (1,), "MPI": (2,)}.get(kind, (1, 2))
    with ExitStack() as stack:
        pools = [Metered(stack.enter_context(executor(kind, workers)), workers) for workers in counts]
        for pool in pools:
            timed(pool, given)  # workers import and warm up
        rounds = [[timed(pool, given) for pool in pools] for _ in range(options.rounds)]
        one = overhead(pools[0], given[0])
    hashes = sorted({hash for of in rounds for *_, hash in of})
    print(json.dumps([*one, [[times for *times, _ in of] for of in rounds], hashes]), flush=True)


def loops(n):
    """Compute without data."""
    return sum(k * k for k in range(n))


def yardstick(options):
    """Return the ratio of one worker's time and that of two, for loops of Python in a process pool."""
    ratios = []
    with executor("process pool", 1) as one, executor("process pool", 2) as two:
        for _ in range(options.rounds + 1):
            spent = []
            for pool in (one, two):
                begin = time.perf_counter()
                list(pool.map(loops, [500_000] * 16))
                spent.append(time.perf_counter() - begin)
            ratios.append(spent[0] / spent[1])
    return statistics.median(ratios[1:])  # the first includes the start


def measured(kind, options):
    """Return the numbers of an executor from a process of its own, None if it is not installed."""
    sizes = ["--order", options.order, "--count", options.count, "--rounds", options.rounds]
    command = [sys.executable, __file__, "executors", "--child", kind, *sizes]
    if kind == "MPI":
        if shutil.which("mpiexec") is None:
            return None
        command = ["mpiexec", "-n", 3, sys.executable, "-m", "mpi4py.futures", *command[1:]]
    environment = {**os.environ, **MPI, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def line(kind, task, driver, rounds, same):
    """Return a line of the table; in this process the driver's CPU is not apart from that of the work."""
    own = "" if kind in ("serial", "threads") else f"{1e3 * driver:.1f}"
    wall, cpu = np.median(rounds, axis=0).T
    ratio = [f"{statistics.median(one[0] / two[0] for one, two in rounds):.2f}"] if len(wall) == 2 else [""]
    pairs = [[f"{value:.2f}" for value in values] for values in (cpu, wall)]
    if len(wall) == 1:
        pairs = [["", *pair] if kind == "MPI" else [*pair, ""] for pair in pairs]
    cells = " | ".join([*pairs[0], *pairs[1], *ratio])
    return f"| {kind} | {1e3 * task:.1f} | {own} | {cells} | {'yes' if same else 'no'} |"


def executors(options):
    """Return the lines of the table of executors."""
    load = os.getloadavg()[0]
    allowed = yardstick(options)
    found = {kind: measured(kind, options) for kind in EXECUTORS}
    serial = found["serial"][3]
    return [
        f"{options.count} nearest correlation matrices of order {options.order}; {os.cpu_count()} cores, "
        f"shared with other processes (load {load:.0f} to {os.getloadavg()[0]:.0f}); medians of "
        f"{options.rounds} rounds",
        "",
        "| executor | overhead of a task, ms | driver's CPU, ms | CPU of 1 worker, s | of 2 | 1 worker, s "
        "| 2 workers, s | speed-up | same digits |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
        f"| loops of Python | | | | | | | {allowed:.2f} | |",
        *(line(kind, *of[:3], of[3] == serial) for kind, of in found.items() if of is not None),
    ]


def drifting(kind, drift, order, count):
    """Return problems whose data take normal steps of the size `drift` in each entry."""
    import bregopt as bo

    rng = np.random.default_rng(0)
    A = rng.uniform(-1, 1, (order, order))
    B = np.corrcoef(rng.normal(size=(order, 2 * order)))
    i, j = (of[:: order // 4] for of in np.triu_indices(order, 1))
    found = []
    for _ in range(count):
        step = drift * rng.normal(size=(order, order))
        A, B = A + (step + step.T) / 2, B + (step + step.T) / 20
        for M in (A, B):
            np.fill_diagonal(M, 1.0)
        X = bo.PSD(order, name="X")
        rows = [bo.diag(X) == 1]
        if kind == "maximum cut":
            objective = bo.Maximize(bo.inner((A + A.T) / 2, X))
        elif kind == "LogDet, bounds":
            objective = bo.Minimize(bo.logdet_div(X, (B + B.T) / 2))
            rows.append(X[i, j] >= B[i, j] + 0.01)
        else:
            objective = bo.Minimize(bo.frobenius_div(X, (A + A.T) / 2))
            rows += [X[i, j] >= 0.1] if kind == "Frobenius, bounds" else []
        found.append(bo.Problem(objective, rows))
    return found


def chains(options):
    """Return the lines of the table of chains."""
    import bregopt as bo

    lines = [
        f"{options.count} problems of order {options.order} in chains of 32, one process, means of a problem",
        "",
        "| problem | drift | cold: CPU ms | iterations | chain: CPU ms | iterations | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in ("Frobenius", "Frobenius, bounds", "LogDet, bounds", "maximum cut"):
        for drift in (1e-2, 1e-4):
            given = drifting(kind, drift, options.order, options.count)
            bo.solve_many(given[:2], progress=False)
            spent = []
            for start in (False, "chain"):
                begin = time.process_time()
                answers = bo.solve_many(given, progress=False, warm_start=start)
                cpu = 1e3 * (time.process_time() - begin) / len(given)
                spent.append((cpu, statistics.mean(a.iterations for a in answers)))
            cells = " | ".join(f"{cpu:.1f} | {steps:.1f}" for cpu, steps in spent)
            lines.append(f"| {kind} | {drift:.0e} | {cells} | {spent[0][0] / spent[1][0]:.1f} |")
    return lines


PARTS = {"executors": (executors, 60, 100), "chains": (chains, 64, 60)}


def main():
    """Measure a part, print and save its table."""
    if sys.argv[1:2] == ["rows"]:
        many_rows.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--count", type=int, help="number of problems")
    parser.add_argument("--order", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options)
        return
    part, count, order = PARTS[options.part]
    options.count, options.order = options.count or count, options.order or order
    text = "\n".join(part(options))
    print(text)
    (RESULTS / f"many_{options.part}.md").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
