"""Nearest correlation matrices of bounded condition, in units of one eigendecomposition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from correlation_tools import indefinite, paired

import bregopt as bo

HEAD = (
    "| divergence | order | kappa | eigh | steps | gap | condition / kappa - 1 |",
    "|---|--:|--:|--:|--:|--:|--:|",
)
_CASES = (("frobenius", 100), ("frobenius", 1000), ("von_neumann", 10), ("logdet", 10))


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from HEAD
    for n in (100,) if quick else (100, 200, 500):
        for divergence, kappa in _CASES:
            yield _line(divergence, n, kappa, 3 if quick else 7)


def _line(divergence: str, n: int, kappa: int, turns: int) -> str:
    """Return the line of one problem."""
    A = indefinite(n)
    if divergence != "frobenius":
        A = bo.nearest_correlation(A, min_eigenvalue=0.01).X

    def solve() -> bo.Solution:
        return bo.nearest_correlation(A, divergence, max_condition=kappa, tol=1e-8)

    sol = solve()
    assert sol.status == "optimal"
    _, ours = paired([lambda: np.linalg.eigh(A), solve], turns)
    excess = np.linalg.cond(sol.X) / kappa - 1
    return (
        f"| {divergence} | {n} | {kappa} | {ours[1]:.0f} | {sol.iterations} | {sol.gap:.0e} | {excess:.0e} |"
    )
