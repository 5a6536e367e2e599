"""Many problems: the overhead of a task in each executor, and the speed-up of two workers.

    python benchmarks/many.py executors [--count 200] [--order 50] [--rounds 3]

Each executor runs in a process of its own; those that are not installed are left out. The overhead is the
time from ``submit`` to the result of a task with one problem, less the time in the worker: the median of
``TASKS``, one at a time. The driver's CPU is that of the same call in this process. The speed-up compares
``bo.solve_many`` of all problems with one and with two workers that are warm, in turns; a time is the least
of the rounds. The last column says whether all digits of all answers are those of the serial run. The table
goes to benchmarks/results/many_executors.md.
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
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
TASKS = 100
EXECUTORS = ("serial", "threads", "process pool", "loky", "MPI", "Dask")
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
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
            from bregopt.many.executors import Serial

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

            cluster = LocalCluster(workers, threads_per_worker=1, dashboard_address=None)
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
    from bregopt.many.worker import Item, solve_task

    payload = pickle.dumps([[Item(0, problem, (), None, {})]])
    spent = []
    for k in range(TASKS):
        begin, cpu = time.perf_counter(), time.process_time()
        inside = found.submit(solve_task, payload, k).result().seconds
        spent.append((time.perf_counter() - begin - inside, time.process_time() - cpu))
    return np.median(spent, axis=0).tolist()


def child(kind, workers, order, count):
    """Measure one executor in this process, and print the numbers."""
    import bregopt as bo

    warnings.simplefilter("ignore")
    given = problems(order, count)
    with executor(kind, workers) as found:
        bo.solve_many(given[: 8 * workers], found, progress=False, chunk=1)  # workers import and warm up
        begin = time.perf_counter()
        answers = bo.solve_many(given, found, progress=False)
        seconds = time.perf_counter() - begin
        one = overhead(found, given[0])
    print(json.dumps([seconds, *one, digits(answers)]), flush=True)


def measured(kind, workers, options):
    """Return the numbers of an executor from a process of its own, None if it is not installed."""
    own = ["--child", kind, "--workers", workers, "--order", options.order, "--count", options.count]
    command = [sys.executable, __file__, "executors", *own]
    if kind == "MPI":
        if shutil.which("mpiexec") is None:
            return None
        command = ["mpiexec", "-n", workers + 1, sys.executable, "-m", "mpi4py.futures", *command[1:]]
    environment = {**os.environ, **MPI, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode and "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def line(kind, runs, serial):
    """Return a line of the table; in this process the driver's CPU is not apart from that of the work."""
    best = {workers: min(run[0] for run in of) for workers, of in runs.items()}
    first = [run for of in runs.values() for run in of]
    task, cpu = (1e3 * statistics.median(run[k] for run in first) for k in (1, 2))
    same = "yes" if {run[3] for run in first} == {serial} else "no"
    two = f"{best[2]:.2f} | {best[1] / best[2]:.2f}" if 2 in best else "|"
    own = f"{task:.2f} |" if kind in ("serial", "threads") else f"{task:.2f} | {cpu:.2f}"
    return f"| {kind} | {own} | {best[1]:.2f} | {two} | {same} |"


def executors(options):
    """Return the lines of the table of executors."""
    load = os.getloadavg()[0]
    lines = [
        f"{options.count} nearest correlation matrices of order {options.order}; {os.cpu_count()} cores, "
        f"shared with other processes (load {load:.0f}); the least of {options.rounds} rounds",
        "",
        "| executor | overhead of a task, ms | driver's CPU, ms | 1 worker, s | 2 workers, s | speed-up "
        "| same digits |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    serial = None
    for kind in EXECUTORS:
        counts = (1,) if kind == "serial" else (1, 2)
        runs = {workers: [] for workers in counts}
        for _ in range(options.rounds):
            for workers in counts:
                runs[workers].append(measured(kind, workers, options))
                if runs[workers][-1] is None:
                    break
            if None in runs[counts[0]]:
                break
        if None in runs[counts[0]]:
            continue
        serial = serial or runs[1][0][3]
        lines.append(line(kind, runs, serial))
    return lines


PARTS = {"executors": executors}


def main():
    """Measure a part, print and save its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--count", type=int, default=200, help="number of problems")
    parser.add_argument("--order", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.workers, options.order, options.count)
        return
    text = "\n".join(PARTS[options.part](options))
    print(text)
    (RESULTS / f"many_{options.part}.md").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
