"""Simulate rows in chunks on 1 to 1,024 cores from constants that are measured on one.

    python benchmarks/many_simulation.py [--rows 1000000] [--order 100] [--sample 200000] [--quick]

Measured in this process, in CPU seconds: a row and pass over memory-mapped files; a pass over the sample;
all else, which is dense algebra; the addition of two results. The number of passes and the bytes of a result
are counted. The overhead of a task and the driver's CPU for it are those of results/many_executors.md.

The model of a pass over m rows by w cores, with one task for each core, is the sum of

    work       m c / w, with c the seconds of a row
    reading    what reading the rows takes beyond that
    tasks      w times the driver's seconds of a task, plus the latency of one
    results    w matrices down and w results up the driver's network, and w additions

and that of the sample's problem is its dense algebra plus its passes, in the driver or in one task for each
of its chunks, whichever is faster. Rates of networks and disks are assumed, see `ASSUMED`. Cores are taken as
equally fast, none fails, and the points fit in the memory of each machine.
The table goes to benchmarks/results/many_simulation.md.
"""

import argparse
import pickle
import re
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
ASSUMED = {
    "cores of a machine": 32,
    "network of the driver, GB/s": 1.0,
    "disk of a machine, GB/s": 2.0,
    "shared file system, GB/s": 10.0,
}
GB, CORES = 1e9, (1, 16, 64, 256, 1024)
POINTS, ROWS = 60_000, 10**9
PAIR = 8 + 8 + 1  # bytes of two int32 numbers, a bound and a sense
ENGINES = ("MPI", "Dask")
PARTS = ("work", "reading", "tasks", "results", "sample")


@dataclass
class Constants:
    """CPU seconds, numbers of passes, and the bytes of a result."""

    row: float  # of a row and pass
    order: int
    passes: float  # over all rows
    inner: int  # passes over the sample
    inner_seconds: float  # of one of them
    dense: float  # outside of passes
    parts: int  # chunks of the sample
    result: int
    add: float


def written(folder, m, r):
    """Write points of ten classes, pairs of them, bounds and senses; return the rows."""
    import bregopt as bo

    rng = np.random.default_rng(0)
    label = rng.integers(0, 10, POINTS)
    points = rng.normal(size=(POINTS, r)) + rng.normal(size=(10, r))[label]
    i, step = rng.integers(0, POINTS, m), rng.integers(1, POINTS, m)
    pairs = np.stack([i, (i + step) % POINTS], axis=1).astype(np.int32)
    alike = label[pairs[:, 0]] == label[pairs[:, 1]]
    near, far = 1.0 * r, 4.5 * r  # nine in ten rows are beyond their bounds
    columns = {"bound": np.where(alike, near, far), "sense": np.where(alike, -1, 1).astype(np.int8)}
    for name, array in {"points": points, "pairs": pairs, **columns}.items():
        np.save(folder / f"{name}.npy", array)
    paths = [folder / f"{name}.npy" for name in ("pairs", "bound", "sense")]
    return bo.RowChunks(*paths, 1e4 / m, points=folder / "points.npy")


@contextmanager
def timed(place, name, spent, kind):
    """Add the CPU seconds of each call of a function of a module or class to a list by their kind."""
    function = getattr(place, name)

    def wrapped(*arguments, **options):
        begin = time.process_time()
        found = function(*arguments, **options)
        found = list(found) if hasattr(found, "__next__") else found
        spent.setdefault(kind(*arguments), []).append(time.process_time() - begin)
        return found

    setattr(place, name, wrapped)
    try:
        yield
    finally:
        setattr(place, name, function)


def measure(m, r, sample):
    """Return the constants of this machine."""
    from bregopt.chunks import solve as samples
    from bregopt.chunks.chunk import ExecutorPasses, sums_of

    def kind(passes, function, *_):
        rows = sum(len(chunk.rows) for chunk in passes.chunks)
        return "drawing" if function is not sums_of else "whole" if rows == m else "sample"

    spent = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        rows = written(Path(name), m, r)
        stack.enter_context(timed(ExecutorPasses, "map", spent, kind))
        begin = time.process_time()
        sol = rows.solve(np.eye(r), sample=sample)
        seconds = time.process_time() - begin
        print(f"{sol.status}, gap {sol.gap:.0e}, {seconds:.1f} CPU s", flush=True)
    G = np.ones((r, r))
    begin = time.process_time()
    for _ in range(1_000):
        G + G
    return Constants(
        row=statistics.median(spent["whole"]) / m,
        order=r,
        passes=len(spent["whole"]),
        inner=len(spent["sample"]),
        inner_seconds=statistics.mean(spent["sample"]),
        dense=seconds - sum(map(sum, spent.values())),
        parts=-(-sample // samples._CHUNK),
        result=len(pickle.dumps(G)),
        add=(time.process_time() - begin) / 1_000,
    )


def task_costs():
    """Return the latency of a task and the driver's CPU for it, by engine, in seconds."""
    text = (RESULTS / "many_executors.md").read_text()
    found = re.findall(r"^\| ([\w ]+) \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE)
    return {name: (float(latency) / 1e3, float(cpu) / 1e3) for name, latency, cpu in found}


def simulated(constants, engine, cores, row_bytes):
    """Return the seconds of a solve of `ROWS` rows by part."""
    latency, cpu = task_costs()[engine]
    machines = -(-cores // ASSUMED["cores of a machine"])
    bandwidth = min(machines * ASSUMED["disk of a machine, GB/s"], ASSUMED["shared file system, GB/s"])
    reading = ROWS * row_bytes / (bandwidth * GB)
    work = ROWS * constants.row / cores
    sent = cores * 2 * constants.result / (ASSUMED["network of the driver, GB/s"] * GB)
    inner = min(
        constants.inner_seconds,
        constants.parts * latency + constants.inner_seconds / min(cores, constants.parts),
    )
    K = constants.passes
    return {
        "work": K * work,
        "reading": K * max(reading - work, 0.0),
        "tasks": K * (cores * cpu + latency),
        "results": K * (sent + cores * constants.add),
        "sample": constants.dense + constants.inner * inner,
    }


def table(constants):
    """Return the lines of the table."""
    lines = [
        f"| rows | engine | cores | {', s | '.join(PARTS)}, s | all, s | efficiency | first limit |",
        "|---|---|" + "--:|" * 8 + "---|",
    ]
    for kind, row_bytes in (("pairs", PAIR), ("vectors", 4 * constants.order + 9)):
        for engine in ENGINES:
            for cores in CORES:
                parts = simulated(constants, engine, cores, row_bytes)
                total, work = sum(parts.values()), parts.pop("work")
                cells = " | ".join(f"{seconds:.0f}" for seconds in [work, *parts.values(), total])
                lines.append(
                    f"| {kind} | {engine} | {cores} | {cells} | {work / total:.2f} "
                    f"| {max(parts, key=parts.get)} |"
                )
    return lines


def main():
    """Measure, simulate, print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the solve that is measured")
    parser.add_argument("--order", type=int, default=100)
    parser.add_argument("--sample", type=int, default=200_000)
    parser.add_argument("--quick", action="store_true", help="small, and not saved")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.order, options.sample = 20_000, 10, 4_000
    constants = measure(options.rows, options.order, options.sample)
    one = (
        f"Measured with {options.rows} pairs of {POINTS} points, order {options.order}, a sample of "
        f"{options.sample}: {1e6 * constants.row:.2f} us a row and pass, {constants.passes} passes; the "
        f"sample's problem: {constants.inner} passes of {constants.inner_seconds:.3f} s, and "
        f"{constants.dense:.1f} s of dense algebra; {constants.result / 1e3:.0f} KB a result, "
        f"{1e6 * constants.add:.0f} us to add one. "
        f"Assumed: {', '.join(f'{name} {value:g}' for name, value in ASSUMED.items())}."
    )
    text = "\n".join([one, "", *table(constants)])
    print(text)
    if not options.quick:
        (RESULTS / "many_simulation.md").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
