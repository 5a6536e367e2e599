"""Shrinking to a target, beside the smallest generalized eigenvalue and bisection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from correlation_tools import Array, indefinite, paired
from scipy.linalg import cholesky, eigh

import bregopt as bo

HEAD = (
    "| order | target | bregopt, ms | eigenvalue, ms | bregopt / eigenvalue | bisection / bregopt | gap |",
    "|--:|---|--:|--:|--:|--:|--:|",
)


def targets(A: Array) -> dict[str, Array]:
    """Return the targets by name: equal correlations, and the identity with a block of `A`."""
    n = len(A)
    equal = np.full((n, n), 0.3) + 0.7 * np.eye(n)
    block = np.eye(n)
    block[: n // 5, : n // 5] = A[: n // 5, : n // 5]
    return {"identity": np.eye(n), "equal correlations": equal, "a fixed block": block}


def matrix(n: int) -> Array:
    """Return an indefinite matrix with a positive definite leading block."""
    A, k = indefinite(n), n // 5
    C = np.corrcoef(np.random.default_rng(1).normal(size=(k, 2 * k)))
    A[:k, :k] = np.triu(C, 1) + np.triu(C, 1).T + np.eye(k)
    return A


def bisection(A: Array, T: Array, tol: float = 1e-8) -> float:
    """Return `alpha` by Cholesky's factorizations (Higham, Strabic, Sego 2016, Algorithm 3.4)."""
    low, high = 0.0, 1.0
    while high - low > tol:
        middle = (low + high) / 2
        try:
            cholesky(A + middle * (T - A), overwrite_a=True, check_finite=False)
            high = middle
        except np.linalg.LinAlgError:
            low = middle
    return high


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from HEAD
    for n in (100,) if quick else (100, 500, 1000):
        A = matrix(n)
        mask = np.zeros((n, n), dtype=bool)
        mask[: n // 5, : n // 5] = True
        asked = {"identity": {}, "a fixed block": {"fixed": mask}}
        for name, T in targets(A).items():
            yield _line(name, A, T, asked.get(name, {"target": T}), 3 if quick else 11)


def _line(name: str, A: Array, T: Array, arguments: dict[str, Array], turns: int) -> str:
    """Return the line of one target."""
    n, sol = len(A), bo.shrink_correlation(A, **arguments)
    assert abs(bisection(A, T) - sol.value) < 1e-7
    calls = (
        lambda: bo.shrink_correlation(A, **arguments),
        lambda: eigh(A, T, subset_by_index=[0, 0]),
        lambda: bisection(A, T),
    )
    ours, eigenvalue, halving = paired(calls, turns)
    return (
        f"| {n} | {name} | {1e3 * ours[0]:.2g} | {1e3 * eigenvalue[0]:.2g} | {1 / eigenvalue[1]:.2f} "
        f"| {halving[1]:.1f} | {sol.gap:.0e} |"
    )
