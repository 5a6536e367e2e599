"""Matrices with factor structure: ours beside statsmodels, and the share of the value that is proven."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from correlation_tools import Array, indefinite, paired, real_matrices

import bregopt as bo

_HEAD = (
    "| matrix | order | factors | ours, ms | statsmodels / ours | value / statsmodels | bound / value |",
    "|---|---|---|---|---|---|---|",
)
_ORDERS, _FACTORS = (100, 300, 1000), (3, 6)
_TURNS = {100: 5, 300: 3, 1000: 1}
_DAYS = 250


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from _HEAD
    for name, make in (("factors and noise", noisy), ("returns", returns), ("random entries", entries)):
        for n in _ORDERS[: 1 if quick else None]:
            for k in _FACTORS:
                yield compared(name, make(n, k, seed=n), k, _TURNS[n])
    for name, A in [] if data is None else real_matrices(data):
        for k in (1, 3):
            if k < len(A):
                yield compared(name, A, k, 3)


def compared(name: str, A: Array, k: int, turns: int) -> str:
    """Return the line of a matrix."""
    model = bo.factor_correlation(A, k)
    calls = [lambda: bo.factor_correlation(A, k)]
    try:
        from statsmodels.stats.correlation_tools import corr_nearest_factor
    except ImportError:
        (seconds, _), ratio, relative = paired(calls, turns)[0], "-", "-"
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that it has not converged
            try:
                theirs = corr_nearest_factor(A, k).corr.to_matrix()
            except np.linalg.LinAlgError:  # a descent that diverged
                (seconds, _), ratio, relative = paired(calls, turns)[0], "failed", "-"
            else:
                times = paired([*calls, lambda: _theirs(corr_nearest_factor, A, k)], turns)
                seconds, ratio = times[0][0], f"{times[1][1]:.0f}"
                relative = f"{model.value / np.linalg.norm(theirs - A) ** 2:.8f}"
    share = 1.0 if model.status == "optimal" else model.dual_value / model.value
    return f"| {name} | {len(A)} | {k} | {1e3 * seconds:.1f} | {ratio} | {relative} | {share:.3f} |"


def _theirs(solve: Any, A: Array, k: int) -> None:
    with contextlib.suppress(np.linalg.LinAlgError):
        solve(A, k)


def noisy(n: int, k: int, seed: int) -> Array:
    """Return a matrix with `k` factors and noise on its entries."""
    rng = np.random.default_rng(seed)
    L = rng.normal(size=(n, k))
    L *= np.sqrt(rng.uniform(0.3, 0.9, n) / (L**2).sum(axis=1))[:, None]
    noise = 0.1 * rng.normal(size=(n, n))
    A = L @ L.T + (noise + noise.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def returns(n: int, k: int, seed: int) -> Array:
    """Return sample correlations of a year of returns with a market factor and weaker ones."""
    rng = np.random.default_rng(seed)
    L = 0.3 * rng.normal(size=(n, k))
    L[:, 0] = rng.uniform(0.3, 0.8, n)
    A: Array = np.corrcoef(rng.normal(size=(_DAYS, k)) @ L.T + rng.normal(size=(_DAYS, n)), rowvar=False)
    return (A + A.T) / 2


def entries(n: int, k: int, seed: int) -> Array:
    """Return a matrix with independent entries."""
    return indefinite(n, seed)
