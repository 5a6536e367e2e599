"""Time to declare and compile a problem with many rows given by arrays, compared with CVXPY's.

    OPENBLAS_NUM_THREADS=1 python benchmarks/compiling.py [--order 100] [--rows 10000]

Minimize the trace of a psd matrix ``X`` subject to rows of one kind. "Again" is a new value of the parameter,
after which both languages fill in numbers only. CVXPY compiles for Clarabel. The table of a full run goes to
benchmarks/results/compiling.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import bregopt as bo


def constraints(order: int, m: int) -> dict[str, Callable[[Any, Any, Any, Any], list[Any]]]:
    """Return functions of a language, ``X``, a variable of length `m` and a parameter of length `m`."""
    rng = np.random.default_rng(order)
    i = rng.integers(0, order, m)
    j = (i + rng.integers(1, order, m)) % order
    b, A = rng.uniform(1, 2, m), rng.normal(size=(m, min(20, m)))

    def distances(language: Any, X: Any) -> Any:
        return bo.sq_distance(X, i, j) if language is bo else X[i, i] + X[j, j] - 2 * X[i, j]

    return {
        "entries, `X[i, j] <= b`": lambda language, X, u, p: [X[i, j] <= b],
        "distances": lambda language, X, u, p: [distances(language, X) <= b],
        "distances between two bounds": lambda language, X, u, p: (
            [bo.between(distances(bo, X), -b, b)]
            if language is bo
            else [distances(cp, X) >= -b, distances(cp, X) <= b]
        ),
        "distances with slacks, `d - u <= b`": lambda language, X, u, p: [distances(language, X) - u <= b],
        "ordinary variables, `A @ u <= b`": lambda language, X, u, p: [A @ u[:20] <= b],
        "bounds by a parameter, `X[i, j] <= p`": lambda language, X, u, p: [X[i, j] <= p],
        "products with a parameter": lambda language, X, u, p: [
            (p * X[i, j] if language is bo else cp.multiply(p, X[i, j])) <= b
        ],
    }


def ours(rows: Callable[..., list[Any]], n: int, m: int) -> tuple[float, float]:
    """Return our seconds to declare and compile, and again with another value of the parameter."""
    start = time.perf_counter()
    X, u, p = bo.PSD(n), bo.Variable(m, nonneg=True), bo.Parameter(m, value=np.ones(m))
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows(bo, X, u, p))
    problem.program()
    compiled = time.perf_counter()
    p.value = np.full(m, 2.0)
    changed = time.perf_counter()
    problem.program()
    return compiled - start, time.perf_counter() - changed


def theirs(rows: Callable[..., list[Any]], n: int, m: int) -> tuple[float, float]:
    """Return CVXPY's seconds to declare and compile, and again with another value of the parameter."""
    start = time.perf_counter()
    X, u, p = cp.Variable((n, n), PSD=True), cp.Variable(m, nonneg=True), cp.Parameter(m, value=np.ones(m))
    problem = cp.Problem(cp.Minimize(cp.trace(X)), rows(cp, X, u, p))
    problem.get_problem_data(cp.CLARABEL)
    compiled = time.perf_counter()
    p.value = np.full(m, 2.0)
    changed = time.perf_counter()
    problem.get_problem_data(cp.CLARABEL)
    return compiled - start, time.perf_counter() - changed


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    lines = ["| rows | bregopt, ms | again | CVXPY, ms | again |", "|---|--:|--:|--:|--:|"]
    print(f"{options.rows} rows over a matrix of order {options.order}\n")
    print("\n".join(lines))
    for name, rows in constraints(options.order, options.rows).items():
        times = [
            1e3 * np.min([measure(rows, options.order, options.rows) for _ in range(3)], axis=0)
            for measure in (ours, theirs)
        ]
        lines.append(f"| {name} | {' | '.join(f'{ms:.1f}' for ms in np.concatenate(times))} |")
        print(lines[-1], flush=True)
    if vars(options) == vars(parser.parse_args([])):
        (Path(__file__).parent / "results" / "compiling.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
