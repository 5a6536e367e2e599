"""Many soft rows: `bo.RowChunks` against `bo.Problem` in memory, and over files with two workers.

    OPENBLAS_NUM_THREADS=1 python benchmarks/many.py rows [--data FOLDER] [--base FOLDER]
        [--rows 1000000 10000000] [--ranks 50 100]

The first table is one problem of 100,000 pairs of 60,000 points in 100 dimensions: MNIST as on the page of
the papers if `--data` is the folder of its files, clustered normal points otherwise. `--base` is a checkout
of another commit, whose `bo.Problem` is measured, too. The second table is of files of pairs, with a sample
of a tenth of the rows, at most 200,000, and a pool of two processes.

Every run has a process of its own. Seconds are of the processor; those of workers have their start and the
draw of the sample in them. Those of a warm worker are of a pass alone, and the speed-up compares passes of
one and of two warm workers in turns. The memory of a worker counts the mapped files. By default the rows
are 10^6 and the rank 50, which takes two minutes. The tables go to benchmarks/results/many_rows.md.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.lib.format import open_memmap

RESULTS = Path(__file__).parent / "results"
PAPERS = Path(__file__).parents[1] / "examples" / "papers"
CLASSES, POINTS, PAIRS, RANK = 20, 60_000, 100_000, 100
TOTAL = 1_000  # gamma times the number of rows, as on the page of the papers
SAMPLE, BLOCK = 200_000, 100_000
TURNS = 3
NAMES = ("pairs", "bound", "sense")


def clustered(rank, rng):
    """Return normal points of falling variance about the centers of their classes, and the classes."""
    label = rng.integers(0, CLASSES, POINTS)
    centers = rng.normal(size=(CLASSES, rank))[label]
    return rng.normal(size=(POINTS, rank)) * np.linspace(2, 0.2, rank) + centers, label


def images(data):
    """Return the first components of MNIST's training images, and their digits."""
    sys.path.insert(0, str(PAPERS))
    from common import mnist
    from mnist import components, deskewed

    train, digit = mnist(data, "train")
    return components(deskewed(train), deskewed(train[:1]))[0], digit


def blocks_of_pairs(points, label, count, rng):
    """Yield pairs, bounds and senses; half of the pairs are within a class, and are to be near."""
    order, at = np.argsort(label, kind="stable"), np.sort(label)
    percentiles = None
    for start in range(0, count, BLOCK):
        i, j = rng.integers(0, len(points), (2, min(BLOCK, count - start)))
        own = label[i[::2]]
        first, last = np.searchsorted(at, own), np.searchsorted(at, own, side="right")
        j[::2] = order[rng.integers(first, last)]
        j[i == j] = (i[i == j] + 1) % len(points)
        if percentiles is None:
            percentiles = np.percentile(np.sum((points[i] - points[j]) ** 2, axis=1), [5, 95])
        alike = label[i] == label[j]
        yield np.stack([i, j], axis=1), np.where(alike, *percentiles), np.where(alike, -1, 1)


def write(folder, rank, count):
    """Write the files of a problem."""
    rng = np.random.default_rng(0)
    points, label = clustered(rank, rng)
    np.save(folder / "points.npy", points)
    shapes = (((count, 2), np.int32), ((count,), float), ((count,), np.int8))
    files = [
        open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
        for name, (shape, dtype) in zip(NAMES, shapes, strict=True)
    ]
    for k, block in enumerate(blocks_of_pairs(points, label, count, rng)):
        for file, values in zip(files, block, strict=True):
            file[k * BLOCK : k * BLOCK + len(values)] = values


def spent(who):
    """Return the CPU seconds and the peak memory in MB of this process or of its children."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def over_files(folder):
    """Return the numbers of a solve over files with two workers."""
    begin = spent(resource.RUSAGE_SELF)[0]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        sol, m = solved(folder, pool)
    driver = spent(resource.RUSAGE_SELF)[0] - begin
    seconds, memory = spent(resource.RUSAGE_CHILDREN)
    return sol.iterations, sol.gap, seconds, 1e6 * seconds / m / sol.iterations, memory, driver


def solved(folder, pool):
    """Return the solution of the problem of the files, and its number of rows."""
    import bregopt as bo

    paths = [str(folder / f"{name}.npy") for name in NAMES]
    m, rank = len(np.load(paths[0], mmap_mode="r")), np.load(folder / "points.npy", mmap_mode="r").shape[1]
    rows = bo.RowChunks(*paths, TOTAL / m, points=folder / "points.npy")
    return rows.solve(np.eye(rank), executor=pool, sample=min(SAMPLE, m // 10)), m


class Spans(Executor):
    """An executor that times the spans in which tasks are under way; a pass is a span of many tasks."""

    def __init__(self, executor, workers):
        self._executor, self._max_workers = executor, workers
        self._lock, self._waiting, self._tasks, self._begin = Lock(), 0, 0, 0.0
        self.spans = []

    def submit(self, fn, /, *arguments):
        """Submit a task."""
        with self._lock:
            if not self._waiting:
                self._tasks, self._begin = 0, time.perf_counter()
            self._waiting, self._tasks = self._waiting + 1, self._tasks + 1
        future = self._executor.submit(fn, *arguments)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _):
        with self._lock:
            self._waiting -= 1
            if not self._waiting:
                self.spans.append((self._tasks, time.perf_counter() - self._begin))

    def passes(self):
        """Return the seconds of each pass, and forget them."""
        most = max(tasks for tasks, _ in self.spans)
        found = [seconds for tasks, seconds in self.spans if tasks == most]
        self.spans.clear()
        return found


def of_passes(folder):
    """Return the microseconds of a row in a pass of one worker, and the speed-up by a second one.

    Both pools are warm and take turns.
    """
    spawn, ratios, seconds = get_context("spawn"), [], []
    with ProcessPoolExecutor(1, spawn) as one, ProcessPoolExecutor(2, spawn) as two:
        pools = [Spans(one, 1), Spans(two, 2)]
        for turn in range(TURNS + 1):
            found = []
            for pool in pools:
                _, m = solved(folder, pool)
                found.append(statistics.median(pool.passes()))
            if turn:  # workers start and import in the first
                ratios.append(found[0] / found[1])
                seconds.append(found[0])
    return 1e6 * statistics.median(seconds) / m, statistics.median(ratios)


def in_memory(data, method, tol):
    """Return the numbers of a solve of pairs in memory."""
    import bregopt as bo

    rng = np.random.default_rng(0)
    points, label = clustered(RANK, rng) if data is None else images(data)
    ((pairs, bound, sense),) = blocks_of_pairs(points, label, PAIRS, rng)
    gamma, start = TOTAL / PAIRS, bo.LowRank(points)
    begin = time.process_time()
    if method == "RowChunks":
        sol = bo.RowChunks(pairs, bound, sense, gamma).solve(start, tol=tol)
    else:
        X, near = bo.PSD(len(points), name="X"), sense < 0
        d = bo.sq_distance(X, *pairs.T)
        rows = [bo.soft(d[near] <= bound[near], gamma), bo.soft(d[~near] >= bound[~near], gamma)]
        options = {"method": "newton"} if method == "Newton" else {}
        sol = bo.Problem(bo.Minimize(bo.logdet_div(X, start)), rows).solve(tol=tol, **options)
    seconds = time.process_time() - begin
    return sol.iterations, sol.gap, sol.value, seconds, spent(resource.RUSAGE_SELF)[1]


def measured(call, *, base=None):
    """Return the numbers of a call of this script in a process of its own, with another package if given."""
    root = Path(__file__).parents[1] if base is None else base
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--child", json.dumps(call)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def child(call):
    """Print the numbers of a call."""
    warnings.simplefilter("ignore")
    kind, first, *rest = call
    path = None if first is None else Path(first)
    of_files = {"files": over_files, "passes": of_passes}
    print(json.dumps(of_files[kind](path) if kind in of_files else in_memory(path, *rest)), flush=True)


def memory_table(options):
    """Return the lines of the table of pairs in memory."""
    data, base = (None if of is None else str(of.resolve()) for of in (options.data, options.base))
    kind = "clustered points" if data is None else "MNIST"
    cases = [
        ("`bo.RowChunks`", "RowChunks", None),
        ("`bo.Problem`", "Problem", None),
        ('`bo.Problem`, `method="newton"`', "Newton", None),
    ]
    if base is not None:
        cases.append((f"`bo.Problem`, {options.base.name}", "Problem", options.base.resolve()))
    lines = [
        f"{PAIRS:,} pairs of {POINTS:,} points in {RANK} dimensions, {kind}, in memory, one process",
        "",
        "| method | tol | passes or steps | gap | value | CPU, s | peak memory, MB |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, method, root in cases:
        for tol in (1e-6, 1e-9):
            steps, gap, value, seconds, memory = measured(["memory", data, method, tol], base=root)
            cells = f"{steps} | {gap:.0e} | {value:.8g} | {seconds:.1f} | {memory:.0f}"
            lines.append(f"| {name} | {tol:.0e} | {cells} |")
    return lines


def files_table(options):
    """Return the lines of the table of files."""
    lines = [
        f"Pairs of {POINTS:,} clustered points in files, 2 workers, tol 1e-6, "
        f"{os.cpu_count()} cores shared with other processes (load {os.getloadavg()[0]:.0f})",
        "",
        "| rows | r | passes | gap | CPU of workers, s | us a row and pass | the same, 1 warm worker "
        "| speed-up of a pass by a second one | peak memory of a worker, MB "
        "| driver, with the sample's problem, s |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for count in options.rows:
        for rank in options.ranks:
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder), rank, count)
                passes, gap, seconds, each, memory, driver = measured(["files", folder])
                alone, ratio = measured(["passes", folder])
            cells = f"{passes} | {gap:.0e} | {seconds:.1f} | {each:.2f} | {alone:.2f} | {ratio:.2f}"
            cells += f" | {memory:.0f} | {driver:.1f}"
            lines.append(f"| {count:,} | {rank} | {cells} |")
    return lines


def main(arguments=None):
    """Measure, print and save the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--ranks", type=int, nargs="*", default=[50])
    parser.add_argument("--data", type=Path, help="folder with the files of MNIST")
    parser.add_argument("--base", type=Path, help="a checkout of another commit")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        child(options.child)
        return
    text = "\n".join([*memory_table(options), "", *files_table(options)])
    print(text)
    (RESULTS / "many_rows.md").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
