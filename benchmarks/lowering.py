"""How long it takes to read a problem with many scalar distance constraints, against CVXPY's own compile.

    python benchmarks/lowering.py [--orders 50 200 500] [--constraints 1000]

Minimise ``<C, X>`` over psd matrices ``X`` of order ``n`` with ``X[i, i] + X[j, j] - 2 X[i, j] <= d`` written one by
one in a loop. Both sides get problems of their own, so that neither finds what the other has kept.
"""

from __future__ import annotations

import argparse
import time

import cvxpy as cp
import numpy as np

import bregopt as bo


def problem(n: int, m: int) -> cp.Problem:
    """Return the problem, freshly written."""
    rng = np.random.default_rng(n)
    X = cp.Variable((n, n), PSD=True)
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
    rows = [X[i, i] + X[j, j] - 2 * X[i, j] <= 1.0 for i, j in pairs]
    return cp.Problem(cp.Maximize(cp.trace(X)), [*rows, cp.sum(X) == 0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, nargs="+", default=[50, 200, 500])
    parser.add_argument("--constraints", type=int, default=1000)
    options = parser.parse_args()
    print(f"{options.constraints} scalar distance constraints, seconds")
    print(f"{'n':>5} {'bregopt':>9} {'CVXPY':>9} {'ratio':>7}")
    bo.from_cvxpy(problem(5, 3))  # imports are not what is measured
    for n in options.orders:
        ours = problem(n, options.constraints)
        start = time.perf_counter()
        bo.from_cvxpy(ours)
        read = time.perf_counter()
        written = problem(n, options.constraints)
        compiling = time.perf_counter()
        written.get_problem_data(cp.CLARABEL)
        compiled = time.perf_counter() - compiling
        print(f"{n:>5} {read - start:>9.3f} {compiled:>9.2f} {compiled / (read - start):>7.0f}", flush=True)


if __name__ == "__main__":
    main()
