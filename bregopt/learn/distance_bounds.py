"""Bounds on squared distances for learners: percentiles of all distances, or a share of each pair's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from bregopt.arrays import Array, IntArray, RandomState, finite_array
from bregopt.learn.constraints import generator, index_rows, random_pairs

__all__ = ["idealized_bounds", "percentile_bounds", "sq_distances"]

_PAIRS_FOR_PERCENTILES = 100_000  # size of the sample; of fewer pairs all are used


def percentile_bounds(
    X: ArrayLike, percentiles: tuple[float, float] = (5, 95), random_state: RandomState = 0
) -> tuple[float, float]:
    """Return bounds for similar and dissimilar pairs: two percentiles of the squared distances of `X`.

    Parameters
    ----------
    X : array_like of shape (n, D)
    percentiles : pair of float, from 0 to 100
    random_state : int, Generator, RandomState or None
        Seed of the sample of 100,000 pairs that is used if there are more pairs.

    Returns
    -------
    upper, lower : float
        Bounds on squared distances, as learners take them.

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two points, the percentiles are bad, or so many points are equal that a bound
        is 0.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §7.2.

    Examples
    --------
    >>> from bregopt.learn import percentile_bounds
    >>> percentile_bounds([[0.0], [1.0], [3.0]], (0, 100))
    (1.0, 9.0)
    """
    points = check_array(X, dtype=np.float64, ensure_min_samples=2, input_name="X")
    ranks = finite_array(percentiles, "percentiles", ndim=1)
    if ranks.shape != (2,) or not 0 <= ranks[0] <= ranks[1] <= 100:
        raise ValueError(f"percentiles is {percentiles!r}; expected two numbers, 0 <= first <= second <= 100")
    pairs = random_pairs(len(points), _PAIRS_FOR_PERCENTILES, generator(random_state))
    upper, lower = (float(b) for b in np.percentile(sq_distances(points, pairs), ranks))
    if upper <= 0:
        raise ValueError(
            f"percentile {ranks[0]:g} of the squared distances is 0, as many points are equal: drop "
            "duplicates, or give bounds or larger percentiles"
        )
    return upper, lower


def idealized_bounds(
    X: ArrayLike, similar: ArrayLike, dissimilar: ArrayLike, shrink: float = 0.25
) -> tuple[Array, Array]:
    """Return bounds that decrease or increase the squared distance of each pair by a share of itself.

    Parameters
    ----------
    X : array_like of shape (n, D)
    similar, dissimilar : int array_like of shape (k, 2)
        Rows of `X`; one of the two may be empty.
    shrink : float, above 0 and below 1

    Returns
    -------
    upper, lower : arrays
        ``(1 - shrink) b`` for similar, ``(1 + shrink) b`` for dissimilar pairs of squared distance ``b``.

    Raises
    ------
    TypeError, ValueError
        If pairs or `shrink` are bad, or the points of a pair are equal, so that their distance is zero.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §7.1.
    """
    points = check_array(X, dtype=np.float64, input_name="X")
    step = float(finite_array(shrink, "shrink", ndim=0))
    if not 0 < step < 1:
        raise ValueError(f"shrink is {step:g}; expected a number above 0 and below 1")
    bounds = []
    for name, given, factor in (("similar", similar, 1 - step), ("dissimilar", dissimilar, 1 + step)):
        pairs = index_rows(given, name, len(points), 2)
        distance = sq_distances(points, pairs)
        if (distance == 0).any():
            i, j = pairs[np.flatnonzero(distance == 0)[0]]
            raise ValueError(f"{name} has the pair {i}, {j} of equal points: no metric moves them apart")
        bounds.append(factor * distance)
    return bounds[0], bounds[1]


def sq_distances(points: Array, pairs: IntArray) -> Array:
    """Return the squared Euclidean distances of pairs of rows."""
    difference = points[pairs[:, 0]] - points[pairs[:, 1]]
    return np.einsum("kd,kd->k", difference, difference)
