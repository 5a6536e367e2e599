"""Matrices of a given rank: ours beside alternating projections on ranks and unit diagonals."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from correlation_factors import noisy, returns
from correlation_tools import Array, indefinite, real_matrices

import bregopt as bo

_HEAD = (
    "| matrix | order | rank | CPU s | status | certified gap | alternating, CPU s | its value / ours |",
    "|---|---|---|---|---|---|---|---|",
)
_ROUNDS, _TOL = 500, 1e-9  # of the alternating projections, and their relative change at the end


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from _HEAD
    for name, make in _FAMILIES.items():
        for n in (50, 100) if quick else (50, 100, 200, 500):
            yield compared(name, make(n), n // 10)
    for name, A in [] if data is None else real_matrices(data):
        for r in sorted({1, 3, max(1, len(A) // 10)}):
            if r < len(A):
                yield compared(name, A, r)


def compared(name: str, A: Array, r: int) -> str:
    """Return the line of a matrix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        begin = time.process_time()
        sol = bo.nearest_correlation(A, max_rank=r)
        ours = time.process_time() - begin
    begin = time.process_time()
    value = float(np.linalg.norm(alternating(A, r) - A) ** 2)
    theirs = time.process_time() - begin
    ratio = "-" if sol.value < 1e-9 * np.vdot(A, A) else f"{value / sol.value:.6f}"
    return f"| {name} | {len(A)} | {r} | {ours:.2f} | {sol.status} | {sol.gap:.0e} | {theirs:.2f} | {ratio} |"


def alternating(A: Array, r: int) -> Array:
    """Return the limit of alternating projections on the matrices of rank `r` and those of unit diagonal.

    The last step scales the diagonal to one.
    """
    X = A.copy()
    for _ in range(_ROUNDS):
        w, U = np.linalg.eigh(X)
        top = (U[:, -r:] * np.maximum(w[-r:], 0)) @ U[:, -r:].T
        new = top.copy()
        np.fill_diagonal(new, 1.0)
        done = np.linalg.norm(new - X) <= _TOL * np.linalg.norm(X)
        X = new
        if done:
            break
    s = np.sqrt(np.maximum(top.diagonal(), 1e-300))
    return top / np.outer(s, s)


def decaying(n: int) -> Array:
    """Return correlations that decay with the distance of the indices."""
    return 0.9 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def smooth(n: int) -> Array:
    """Return correlations of a smooth curve at random places."""
    x = np.sort(np.random.default_rng(0).uniform(0, 3, n))
    return np.exp(-(np.subtract.outer(x, x) ** 2))


def forward_rates(n: int) -> Array:
    """Return correlations of forward rates with a limit for distant maturities."""
    return (1 + decaying(n)) / 2


_FAMILIES = {
    "decaying": decaying,
    "smooth": smooth,
    "forward rates": forward_rates,
    "factors and noise": lambda n: noisy(n, 3, seed=n),
    "returns": lambda n: returns(n, 3, seed=n),
    "random entries": lambda n: indefinite(n, seed=n),
}
