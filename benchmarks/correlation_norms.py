"""Nearness in the largest entry and in the spectral norm, beside CVXPY with SCS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cvxpy as cp
from correlation_tools import Array, indefinite, paired, real_matrices

import bregopt as bo

HEAD = (
    "| matrix | norm | order | bregopt, s | solver | gap | SCS / bregopt | (SCS - bregopt) / bregopt |",
    "|---|---|--:|--:|---|--:|--:|--:|",
)
_LARGEST_OF_PEER = 50


def peer(A: Array, norm: str) -> cp.Problem:
    """Return CVXPY's problem."""
    X = cp.Variable(A.shape, PSD=True)
    distance = cp.sigma_max(X - A) if norm == "spectral" else cp.max(cp.abs(X - A))
    return cp.Problem(cp.Minimize(distance), [cp.diag(X) == 1])


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from HEAD
    matrices = [("random", indefinite(n)) for n in ((10,) if quick else (20, 50, 100, 200, 500))]
    matrices += [] if data is None else list(real_matrices(data))
    for name, A in matrices:
        for norm in ("spectral", "largest_entry"):
            yield _line(name, A, norm)


def _line(name: str, A: Array, norm: str) -> str:
    """Return the line of one problem."""
    n, sol = len(A), bo.nearest_correlation(A, norm)
    assert sol.status == "optimal"
    calls = [lambda: bo.nearest_correlation(A, norm)]
    found: list[float] = []
    if n <= _LARGEST_OF_PEER:
        calls.append(lambda: found.append(peer(A, norm).solve(solver="SCS", eps=1e-6)))
    ours, *others = paired(calls, 3)
    ratio = f"{others[0][1]:.1f}" if others else ""
    difference = f"{(found[0] - sol.value) / max(sol.value, 1e-12):.0e}" if others else ""
    return (
        f"| {name} | {norm} | {n} | {ours[0]:.2g} | {sol.solver} | {sol.gap:.0e} | {ratio} | {difference} |"
    )
