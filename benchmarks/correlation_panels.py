"""Panels of drifting correlations: warm starts beside cold ones, and beside a loop over single solves."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from correlation_tools import Array, paired

import bregopt as bo

_TITLES = (
    "dates", "order", "bounds", "warm, ms a date", "500 dates, s", "cold / warm", "loop / warm",
    "statsmodels / warm", "steps cold", "steps warm", "largest gap",
)  # fmt: skip
# Dates, order, bounds, and the dates of the loop and of statsmodels' alternating projections.
_FULL = ((500, 120, None, 20, 1), (500, 120, 0.9, 20, 0), (500, 120, 0.5, 20, 0), (500, 50, 0.9, 50, 0))
_QUICK = ((12, 15, None, 4, 1), (12, 15, 0.5, 4, 0))
_FLOOR = 1e-3
_WINDOW, _FACTORS = 250, 5


def drifting(dates: int, n: int, seed: int = 0) -> Array:
    """Return the pairwise-complete correlations of windows of 250 days that move by one day.

    Returns have five factors and Student's t with 5 degrees of freedom. Up to 30 % of the returns of an asset
    are missing, and 3 suspensions of 12 days.
    """
    rng = np.random.default_rng(seed)
    days = _WINDOW + dates
    F = rng.normal(size=(n, _FACTORS)) * np.r_[1.0, [0.5] * (_FACTORS - 1)]
    returns = rng.standard_t(5, (days, _FACTORS)) @ F.T + 1.2 * rng.standard_t(5, (days, n))
    missing = rng.random((days, n)) < 0.3 * rng.random(n)
    for k in np.repeat(np.arange(n), 3):
        begin = rng.integers(days - 12)
        missing[begin : begin + 12, k] = True
    returns[missing] = np.nan
    return np.stack([bo.pairwise_correlation(returns[t : t + _WINDOW]).A for t in range(dates)])


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| " + " | ".join(_TITLES) + " |"
    yield "|" + "---|" * len(_TITLES)
    for dates, n, bound, looped, peer in _QUICK if quick else _FULL:
        yield "| " + " | ".join(_row(dates, n, bound, looped, peer, 1 if quick else 3)) + " |"


def _row(dates: int, n: int, bound: float | None, looped: int, peer: int, turns: int) -> list[str]:
    A = drifting(dates, n)
    rows: dict[str, Any] = {"min_eigenvalue": _FLOOR}
    if bound is not None:
        rows |= {"lower": -bound, "upper": bound}
    warm, cold = (bo.nearest_correlation(A, warm_start=start, **rows) for start in ("chain", False))
    (seconds, _), (_, ratio) = paired(
        [
            lambda: bo.nearest_correlation(A, warm_start="chain", **rows),
            lambda: bo.nearest_correlation(A, **rows),
        ],
        turns,
    )

    def loop() -> None:
        for own in A[:looped]:
            bo.nearest_correlation(own, **rows)

    each = seconds / dates
    loop_ratio = paired([loop], turns)[0][0] / looped / each
    theirs = _statsmodels(A[:peer]) if peer else None
    return [
        f"{dates}", f"{n}", "floor" if bound is None else f"floor, ±{bound:g}", f"{1e3 * each:.1f}",
        f"{500 * each:.1f}", f"{ratio:.2f}", f"{loop_ratio:.1f}",
        "" if theirs is None else f"{paired([theirs], 1)[0][0] / peer / each:.0f}",
        f"{cold.iterations.mean():.1f}", f"{warm.iterations.mean():.1f}", f"{warm.gap.max():.0e}",
    ]  # fmt: skip


def _statsmodels(A: Array) -> Callable[[], None] | None:
    """Return a loop over its `corr_nearest`, of Higham's kind; it has neither bounds nor a certificate."""
    if importlib.util.find_spec("statsmodels") is None:
        return None
    tools = importlib.import_module("statsmodels.stats.correlation_tools")

    def loop() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it did not converge
            for own in A:
                tools.corr_nearest(own, threshold=_FLOOR, n_fact=100)

    return loop
