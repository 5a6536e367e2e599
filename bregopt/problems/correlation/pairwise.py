"""Pairwise-complete correlations of returns with gaps, and their weights."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, ArrayOrFrame, doubles, rectangular
from bregopt.io.pandas_labels import is_pandas

__all__ = ["PairwiseCorrelation", "pairwise_correlation"]

_CONSTANT = 1e-14  # variance relative to the mean square below which samples are constant


class PairwiseCorrelation(NamedTuple):
    """Correlations, and weights for :func:`bregopt.nearest_correlation`.

    Parameters
    ----------
    A : array or DataFrame of shape (n, n)
        Symmetric, with unit diagonal; NaN where two columns have too few dates in common, or one column too
        few dates.
    weights : array or DataFrame of shape (n, n)
        The roots of the numbers of common dates, relative to the largest; 0 where `A` is NaN.
    """

    A: ArrayOrFrame
    weights: ArrayOrFrame


def pairwise_correlation(returns: ArrayLike, min_samples: int = 2) -> PairwiseCorrelation:
    """Return pairwise-complete correlations of returns with gaps, weighted by numbers of samples.

    Each correlation uses the dates on which both columns have a return. Such a matrix need not be positive
    semidefinite; :func:`nearest_correlation` repairs it.

    Parameters
    ----------
    returns : array_like or DataFrame of shape (T, n)
        One row a date and one column an asset; NaN marks a gap.
    min_samples : int, at least 2
        Common dates below which a correlation is unknown.

    Returns
    -------
    PairwiseCorrelation
        A named tuple ``(A, weights)``. With these weights the objective of `nearest_correlation` is the sum
        of squared changes times numbers of samples.

    Raises
    ------
    TypeError, ValueError
        If the returns are no real numbers or infinite, or a column is constant on the dates that it shares
        with another.

    Examples
    --------
    >>> import numpy as np, bregopt as bo
    >>> returns = [[1, 2, np.nan], [2, 1, 1], [3, 4, 2], [4, np.nan, 1]]
    >>> A, weights = bo.pairwise_correlation(returns)
    >>> A.round(3).tolist()
    [[1.0, 0.655, 0.0], [0.655, 1.0, 1.0], [0.0, 1.0, 1.0]]
    >>> (4 * weights**2).round().astype(int).tolist()
    [[4, 3, 3], [3, 3, 2], [3, 2, 3]]
    >>> float(bo.nearest_correlation(A, weights=weights).X[1, 2].round(3))
    0.829
    """
    points = _points(returns)
    if isinstance(min_samples, bool) or not isinstance(min_samples, int | np.integer):
        raise TypeError(f"min_samples is {min_samples!r}; expected an integer of at least 2")
    if min_samples < 2:
        raise ValueError(f"min_samples is {min_samples}; expected at least 2")
    frame: Any = returns
    names = frame.columns if is_pandas(returns, "DataFrame") else range(points.shape[1])
    A, counts = _correlations(points, names, min(int(min_samples), len(points) + 1))
    weights = np.sqrt(np.where(np.isfinite(A), counts, 0.0) / max(counts.max(initial=0.0), 1.0))
    if not is_pandas(returns, "DataFrame"):
        return PairwiseCorrelation(A, weights)
    frame = importlib.import_module("pandas").DataFrame
    return PairwiseCorrelation(frame(A, names, names), frame(weights, names, names))


def _points(returns: Any) -> Array:
    """Return the returns as an array with NaN for gaps, never the user's own."""
    given = rectangular(returns, "returns")
    if given.dtype.kind not in "biuf":
        raise TypeError(f"returns has dtype {given.dtype}; expected real numbers, NaN for a gap")
    points: Array = doubles(given)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"returns has shape {points.shape}; expected (T, n), one column an asset")
    if np.isinf(points).any():
        t, k = (int(index) for index in np.argwhere(np.isinf(points))[0])
        raise ValueError(
            f"returns is infinite in row {t}, column {k}; expected finite numbers, NaN for a gap"
        )
    return points


def _correlations(points: Array, names: Any, least: int) -> tuple[Array, Array]:
    """Return the correlations, NaN where there are fewer than `least` common samples, and their numbers."""
    observed = np.isfinite(points)
    indicator = observed.astype(np.float64)
    counts = indicator.T @ indicator
    known = counts >= least
    size = np.maximum(counts, 1.0)
    own = np.maximum(counts.diagonal(), 1.0)
    centered = np.where(observed, points - np.where(observed, points, 0.0).sum(axis=0) / own, 0.0)
    largest = np.abs(centered).max(axis=0, initial=0.0)
    centered /= np.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    sums = centered.T @ indicator  # sums of the row's column over dates that also have the other one
    squares = (centered**2).T @ indicator
    covariance = (centered.T @ centered - sums * sums.T / size) / size
    variance = (squares - sums**2 / size) / size
    constant = known & (variance <= _CONSTANT * np.maximum(squares / size, 1e-300))
    if constant.any():
        a, b = (int(k) for k in np.argwhere(constant)[0])
        where = "" if a == b else f" on the dates of column {names[b]!r}"
        raise ValueError(
            f"column {names[a]!r} of returns is constant{where}; it has no correlations: drop it"
        )
    A = covariance / np.sqrt(np.where(known, variance * variance.T, 1.0))
    A = np.clip((A + A.T) / 2, -1.0, 1.0)
    np.fill_diagonal(A, 1.0)
    return np.where(known, A, np.nan), counts
