"""Triplets in chunks: time, passes, memory and certified gap of ``bo.TripletChunks``.

    OPENBLAS_NUM_THREADS=1 python benchmarks/many_triplets.py FOLDER [--counts 1e5 1e6 1e7] [--in-memory 1e5]

The points are 60,000 in 100 dimensions, of ten classes with different variances of the coordinates; a triplet
has two random points of one class and one of another. They are npy files in the folder, which are memory
mapped. Each solve runs in a process of its own with one BLAS thread. Those up to `--in-memory` triplets are
solved by ``bo.soft_margin``, too, and the table says whether the intervals between value and bound overlap.

The table goes to benchmarks/results, many_triplets.md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
POINTS, DIMENSION, CLASSES = 60_000, 100, 10
HEADINGS = ("triplets", "method", "passes", "CPU s", "time, s", "memory, GB", "gap", "value", "overlap")


def write(folder, count):
    """Write the points and the triplets, unless they are there."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, CLASSES, POINTS)
    spread = np.linspace(3.0, 0.3, DIMENSION)
    points = rng.normal(size=(POINTS, DIMENSION)) * spread + rng.normal(size=(CLASSES, DIMENSION))[label]
    np.save(folder / "points.npy", points / np.sqrt((points**2).sum(axis=1).mean()))
    path = folder / f"triplets_{count}.npy"
    if path.exists():
        return
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    first = np.cumsum(sizes) - sizes
    place = np.empty(POINTS, dtype=int)
    place[order] = np.arange(POINTS)
    triplets = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(count, 3))
    for start in range(0, count, 1_000_000):
        size = min(1_000_000, count - start)
        i, k = rng.integers(0, POINTS, (2, size))
        own = label[i]
        j = order[first[own] + (place[i] - first[own] + rng.integers(1, sizes[own])) % sizes[own]]
        while (same := label[k] == own).any():
            k[same] = rng.integers(0, POINTS, same.sum())
        triplets[start : start + size] = np.stack([i, j, k], axis=1)


def measured(folder, count, method, tol):
    """Solve in this process and return the facts of a line."""
    import bregopt as bo

    triplets, points = folder / f"triplets_{count}.npy", folder / "points.npy"
    began, used = time.perf_counter(), time.process_time()
    if method == "chunks":
        sol = bo.TripletChunks(triplets, points).solve(tol=tol)
    else:
        P, (i, j, k) = np.load(points), np.load(triplets).T
        sol = bo.soft_margin((P[i] - P[k], P[i] - P[j]), tol=tol)
    return {
        "triplets": count,
        "method": method,
        "passes": sol.iterations if method == "chunks" else "",
        "CPU s": time.process_time() - used,
        "time, s": time.perf_counter() - began,
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "gap": sol.gap,
        "value": sol.value,
        "bound": sol.dual_value,
    }


def table(lines):
    """Return the lines as a Markdown table."""
    text = [f"| {' | '.join(HEADINGS)} |", f"|--:|---|{'--:|' * 6}---|"]
    for line in lines:
        same = [other for other in lines if other["triplets"] == line["triplets"]]
        least = min(other["bound"] for other in same)
        overlap = "" if len(same) == 1 else "yes" if max(o["value"] for o in same) <= least else "no"
        cells = [f"{line['triplets']:.0e}", line["method"], str(line["passes"])]
        cells += [f"{line[name]:.3g}" for name in ("CPU s", "time, s", "memory, GB")]
        cells += [f"{line['gap']:.0e}", f"{line['value']:.9f}", overlap]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text)


def main():
    """Solve each problem in a process of its own and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--counts", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--in-memory", type=float, default=1e5)
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = [int(count) for count in options.counts]
    if options.one:
        print(json.dumps(measured(options.folder, counts[0], options.one, options.tol)))
        return
    lines = []
    for count in counts:
        write(options.folder, count)
        for method in ("chunks", "in memory") if count <= options.in_memory else ("chunks",):
            command = [sys.executable, __file__, str(options.folder), "--counts", str(count)]
            command += ["--one", method, "--tol", str(options.tol)]
            lines.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
            print(table(lines), flush=True)
    (RESULTS / "many_triplets.md").write_text(f"{table(lines)}\n")


if __name__ == "__main__":
    main()
