"""Stacks of matrices against a loop over them: CPU time of each matrix, with one BLAS thread.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/many_stacks.py [--quick]

The loop over single solves and the stack take turns; a ratio is the median of the ratios of the turns. Every
answer of both is certified. The table of a full run goes to benchmarks/results/many_stacks.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bregopt as bo

Array = NDArray[np.float64]

HEAD = (
    "| divergence | order | looped | stacked | loop, ms | stack, ms | ratio | largest gap |",
    "|---|---|---|---|---|---|---|---|",
)
_RESULTS = Path(__file__).parent / "results" / "many_stacks.md"
_TURNS = 5
# Divergence, order, matrices of a turn of the loop and of the stack.
_CASES = (
    ("frobenius", 20, 60, 2_000),
    ("frobenius", 50, 40, 200),
    ("frobenius", 100, 20, 50),
    ("frobenius", 200, 8, 8),
    ("frobenius", 300, 4, 4),
    ("von_neumann", 20, 60, 2_000),
    ("von_neumann", 100, 20, 50),
    ("logdet", 20, 60, 2_000),
    ("logdet", 50, 40, 200),
    ("logdet", 100, 20, 50),
    ("logdet", 200, 8, 8),
)
_MANY, _ORDER = 100_000, 20  # matrices of the one large stack, and their order


def indefinite(count: int, n: int, seed: int = 0) -> Array:
    """Return random symmetric matrices with unit diagonal and entries from -1 to 1."""
    A = np.random.default_rng(seed).uniform(-1, 1, (count, n, n))
    A = (A + A.transpose(0, 2, 1)) / 2
    A[:, range(n), range(n)] = 1
    return A


def definite(count: int, n: int, seed: int = 0) -> Array:
    """Return random positive definite matrices with a diagonal near one."""
    F = np.random.default_rng(seed).normal(size=(count, n, 2 * n))
    return F @ F.transpose(0, 2, 1) / (2 * n)


def cpu(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and its result."""
    begin = time.process_time()
    result = run()
    return time.process_time() - begin, result


def compared(divergence: str, n: int, few: int, many: int) -> str:
    """Return the line of the table for one divergence and order."""
    make = indefinite if divergence == "frobenius" else definite
    loops, stacks, gap = [], [], 0.0
    for turn in range(_TURNS):
        A = make(many, n, seed=turn)
        seconds, singles = cpu(lambda A=A: [bo.nearest_correlation(M, divergence) for M in A[:few]])
        loops.append(seconds / few)
        seconds, together = cpu(lambda A=A: bo.nearest_correlation(A, divergence))
        stacks.append(seconds / many)
        gap = max(gap, together.gap.max())
        for k, one in enumerate(singles):
            assert abs(one.value - together.value[k]) <= one.error + together.error[k] + 1e-12 * one.value
    ratio = statistics.median(a / b for a, b in zip(loops, stacks, strict=True))
    loop, stack = (f"{1e3 * statistics.median(times):.3g}" for times in (loops, stacks))
    return f"| {divergence} | {n} | {few} | {many} | {loop} | {stack} | {ratio:.1f} | {gap:.0e} |"


def large(count: int) -> str:
    """Return a sentence on one stack of small matrices."""
    A = indefinite(count, _ORDER)
    seconds, together = cpu(lambda: bo.nearest_correlation(A))
    optimal = int((together.status == "optimal").sum())
    return (
        f"{count} matrices of order {_ORDER} in one stack: {seconds:.1f} CPU s, "
        f"{optimal} optimal, largest certified gap {together.gap.max():.0e}."
    )


def stacks(quick: bool = False) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from HEAD
    for divergence, n, few, many in _CASES[:1] if quick else _CASES:
        yield compared(divergence, n, few, 100 if quick else many)
    yield ""
    yield large(1_000 if quick else _MANY)


def main() -> None:
    """Print the table, and save that of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one order, few matrices; nothing is saved")
    quick, lines = parser.parse_args().quick, []
    for line in stacks(quick):
        print(line, flush=True)
        lines.append(f"{line}\n")
    if not quick:
        _RESULTS.write_text("".join(lines))


if __name__ == "__main__":
    warnings.simplefilter("error")
    main()
