"""Time to read a CVXPY problem with many scalar distance constraints, compared with CVXPY's own compilation.

    OPENBLAS_NUM_THREADS=1 python benchmarks/lowering.py [--orders 50 200 500] [--constraints 1000]

Maximize the trace of a centered psd matrix ``X`` of order ``n`` with ``X[i, i] + X[j, j] - 2 X[i, j] <= 1``
written one by one in a loop. bregopt and CVXPY get separate problems, so that they share no caches. The
table of a full run goes to benchmarks/results/lowering.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import cvxpy as cp
import numpy as np

import bregopt as bo


def problem(n: int, m: int) -> cp.Problem:
    """Return a new problem."""
    rng = np.random.default_rng(n)
    X = cp.Variable((n, n), PSD=True)
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
    rows = [X[i, i] + X[j, j] - 2 * X[i, j] <= 1.0 for i, j in pairs]
    return cp.Problem(cp.Maximize(cp.trace(X)), [*rows, cp.sum(X) == 0])


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, nargs="+", default=[50, 200, 500])
    parser.add_argument("--constraints", type=int, default=1000)
    options = parser.parse_args()
    lines = ["| n | bregopt, s | CVXPY, s | ratio |", "|--:|--:|--:|--:|"]
    print(f"{options.constraints} scalar distance constraints\n")
    print("\n".join(lines))
    bo.from_cvxpy(problem(5, 3))  # imports are not timed
    for n in options.orders:
        ours = problem(n, options.constraints)
        start = time.perf_counter()
        bo.from_cvxpy(ours)
        read = time.perf_counter()
        written = problem(n, options.constraints)
        compiling = time.perf_counter()
        written.get_problem_data(cp.CLARABEL)
        compiled = time.perf_counter() - compiling
        lines.append(f"| {n} | {read - start:.2f} | {compiled:.1f} | {compiled / (read - start):.0f} |")
        print(lines[-1], flush=True)
    if vars(options) == vars(parser.parse_args([])):
        (Path(__file__).parent / "results" / "lowering.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
