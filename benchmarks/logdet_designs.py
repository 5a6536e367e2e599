"""Optimal designs: ours beside the multiplicative algorithm, CVXPY, and each criterion beside the others.

All stop at a proven efficiency of 1 - 1e-6, or at the limit of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import bregopt as bo

TOL = 1e-6
_TURNS = 3
_LIMIT = 5.0  # seconds of the multiplicative algorithm
_HEAD = (
    "| model | candidates | parameters | D, ms | multiplicative / D | CVXPY, Clarabel / D | A, ms | E, ms "
    "| D with bounds, ms |",
    "|---|---|---|---|---|---|---|---|---|",
)


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from _HEAD
    yield compared("quadratic, 2 factors", quadratic(2, 11))
    if quick:
        return
    yield compared("quadratic, 3 factors", quadratic(3, 11))
    yield compared("quadratic, 4 factors", quadratic(4, 9))
    yield compared("normal rows", np.random.default_rng(0).normal(size=(2_000, 10)))


def compared(name: str, X: Any) -> str:
    """Return the line of a set of candidates."""
    m, n = X.shape
    calls: list[Callable[[], Any]] = [
        lambda: bo.d_optimal(X, tol=TOL),
        lambda: multiplicative(X, TOL),
        lambda: by_cvxpy(X),
        lambda: bo.a_optimal(X, tol=TOL),
        lambda: bo.e_optimal(X, tol=TOL),
        lambda: bo.d_optimal(X, upper=2 / n / (n + 1), tol=TOL),
    ]
    if m > 3_000:
        calls[2] = lambda: None
    seconds, found = np.empty((_TURNS, len(calls))), [None] * len(calls)
    for turn in range(_TURNS):
        for k, call in enumerate(calls):
            begin = time.process_time()
            found[k] = call()
            seconds[turn, k] = time.process_time() - begin
    for k in (0, 3, 4, 5):
        assert found[k].status == "optimal", (name, k, found[k])
    ratios = np.median(seconds / seconds[:, :1], axis=0)
    ms = 1e3 * np.median(seconds, axis=0)
    slow = f"{ratios[1]:.1f}" if found[1] else f"over {ratios[1]:.0f}"
    cvxpy = "-" if m > 3_000 else f"{ratios[2]:.0f}" if found[2] else "failed"
    return (
        f"| {name} | {m} | {n} | {ms[0]:.1f} | {slow} | {cvxpy} | {ms[3]:.1f} | {ms[4]:.1f} | {ms[5]:.1f} |"
    )


def quadratic(factors: int, levels: int) -> Any:
    """Return the rows of a full quadratic model on a grid."""
    grid = np.array(list(product(np.linspace(-1, 1, levels), repeat=factors)))
    pairs = list(combinations_with_replacement(range(factors), 2))
    return np.column_stack([np.ones(len(grid)), grid, *(grid[:, i] * grid[:, j] for i, j in pairs)])


def multiplicative(X: Any, tol: float) -> bool:
    """Run Silvey, Titterington and Torsney's algorithm (1978); return whether it ended in time."""
    m, n = X.shape
    w = np.full(m, 1 / m)
    begin = time.process_time()
    while time.process_time() - begin < _LIMIT:
        for _ in range(20):
            root = np.linalg.cholesky((X.T * w) @ X)
            white = np.linalg.solve(root, X.T)
            g = np.einsum("ij,ij->j", white, white)
            if g.max() <= n * (1 + tol):
                return True
            w *= g / n
    return False


def by_cvxpy(X: Any) -> bool:
    """Solve by Clarabel through CVXPY, at its default tolerance of 1e-8; return whether it ended."""
    w = cp.Variable(len(X), nonneg=True)
    M = X.T @ cp.diag(w) @ X if len(X) < 200 else cp.reshape(_outer(X) @ w, (X.shape[1],) * 2, order="C")
    try:
        cp.Problem(cp.Maximize(cp.log_det((M + M.T) / 2)), [cp.sum(w) == 1]).solve(solver="CLARABEL")
    except cp.error.SolverError:
        return False
    return True


def _outer(X: Any) -> Any:
    """Return the outer products of all rows as columns."""
    return (X[:, :, None] * X[:, None, :]).reshape(len(X), -1).T
