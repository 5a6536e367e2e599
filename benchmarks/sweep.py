"""Many right-hand sides: one problem with a parameter, compared with a new problem for each side.

    OPENBLAS_NUM_THREADS=1 python benchmarks/sweep.py [--sides 100] [--order 100]

The problem is a semidefinite program with lower bounds on distances. It is written in CVXPY with rows one by
one, in CVXPY with one constraint for all rows, and in bregopt's language, there also as LogDet nearness. The
conic solver BREGOPT solves CVXPY's problems after CVXPY's compilation, and method="bregopt" without it. Each
right-hand side is solved twice: as a new problem with a cold start, and as the one problem with a parameter,
which starts from its last answer. Both must have the same values. The table of a full run goes to
benchmarks/results/sweep.md.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import bregopt as bo
from bregopt.cvxpy import BREGOPT

ROWS = 200
TOL = 1e-7
AGREE = 1e-5  # largest difference of two values, relative to the value


def instance(n: int, sides: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of points, shape (ROWS, 2), a cost matrix, and right-hand sides, shape (sides, ROWS)."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(n * (n - 1) // 2, ROWS, replace=False)
    pairs = np.column_stack(np.triu_indices(n, 1))[pairs]
    G = rng.normal(size=(n, n))
    drift = np.cumsum(rng.normal(scale=0.01, size=(sides, ROWS)), axis=0)
    return pairs, G @ G.T / n + np.eye(n), 1.0 + 0.2 * rng.random(ROWS) + drift


def scalar_rows(n: int, pairs: np.ndarray, C: np.ndarray, side: object) -> cp.Problem:
    """Return the SDP with lower bounds on distances, one constraint for each."""
    X = cp.Variable((n, n), PSD=True)
    rows = [X[i, i] + X[j, j] - 2 * X[i, j] >= side[k] for k, (i, j) in enumerate(pairs)]
    return cp.Problem(cp.Minimize(cp.trace(C @ X)), rows)


def vector_rows(n: int, pairs: np.ndarray, C: np.ndarray, side: object) -> cp.Problem:
    """Return the same SDP with one constraint."""
    X, (i, j) = cp.Variable((n, n), PSD=True), pairs.T
    d = cp.diag(X)
    return cp.Problem(cp.Minimize(cp.trace(C @ X)), [d[i] + d[j] - 2 * X[i, j] >= side])


def own_rows(n: int, pairs: np.ndarray, C: np.ndarray, side: object) -> bo.Problem:
    """Return the same SDP in bregopt's language."""
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.sq_distance(X, *pairs.T) >= side])


def own_nearness(n: int, pairs: np.ndarray, C: np.ndarray, side: object) -> bo.Problem:
    """Return the problem of the matrix nearest to ``inv(C)`` in LogDet, with the same rows."""
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.logdet_div(X, np.linalg.inv(C))), [bo.sq_distance(X, *pairs.T) >= side])


def fresh(make: Callable[[object], Any], options: dict[str, Any], sides: np.ndarray) -> Iterator[float]:
    """Yield the values of new problems."""
    for side in sides:
        problem = make(side)
        problem.solve(tol=TOL, **options)
        yield float(problem.value)


def swept(
    make: Callable[[object], Any], options: dict[str, Any], parameter: Any, sides: np.ndarray
) -> Iterator[float]:
    """Yield the values of one problem whose parameter changes, each solved from the last answer."""
    problem = make(parameter)
    for k, side in enumerate(sides):
        parameter.value = side
        problem.solve(tol=TOL, warm_start=k > 0, **options)
        yield float(problem.value)


def timed(values: Iterator[float]) -> tuple[np.ndarray, float]:
    """Return the values and the seconds that they took."""
    begin = time.perf_counter()
    return np.array(list(values)), time.perf_counter() - begin


def main() -> None:
    """Run the sweeps, print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, default=100)
    parser.add_argument("--order", type=int, default=100)
    options = parser.parse_args()
    pairs, C, sides = instance(options.order, options.sides)
    print(f"{options.sides} right-hand sides, {ROWS} rows, order {options.order}, tol {TOL:g}\n")
    lines = ["| written in | new problems, s | one problem, s | times faster | values apart |"]
    lines.append("|---|--:|--:|--:|--:|")
    print("\n".join(lines))
    solver, method = {"solver": BREGOPT}, {"method": "bregopt"}
    ways = (
        ("CVXPY, rows one by one, solver", scalar_rows, cp.Parameter, solver),
        ("CVXPY, rows one by one, method", scalar_rows, cp.Parameter, method),
        ("CVXPY, one constraint, solver", vector_rows, cp.Parameter, solver),
        ("CVXPY, one constraint, method", vector_rows, cp.Parameter, method),
        ("bregopt, linear", own_rows, bo.Parameter, {}),
        ("bregopt, LogDet", own_nearness, bo.Parameter, {}),
    )
    for title, build, parameter, solve_by in ways:

        def make(side: object, build: Callable[..., object] = build) -> object:
            return build(options.order, pairs, C, side)

        new, slow = timed(fresh(make, solve_by, sides))
        one, fast = timed(swept(make, solve_by, parameter(ROWS), sides))
        apart = float(np.max(np.abs(new - one) / (1 + np.abs(new))))
        lines.append(f"| {title} | {slow:.2f} | {fast:.2f} | {slow / fast:.1f} | {apart:.0e} |")
        print(lines[-1], flush=True)
        assert apart <= AGREE
    if vars(options) == vars(parser.parse_args([])):
        (Path(__file__).parent / "results" / "sweep.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
