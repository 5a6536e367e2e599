"""The ellipsoid of smallest volume around points, by its dual: a D-optimal design (Titterington 1975)."""

from __future__ import annotations

from math import expm1, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack, qr

from bregopt import clock
from bregopt.arrays import EPS, Array, check_columns, finite_array
from bregopt.io.pandas_labels import is_pandas
from bregopt.linalg import root_of
from bregopt.problems.logdet.answer import verdict
from bregopt.problems.logdet.candidates import Candidates, WeightBounds
from bregopt.problems.logdet.ellipsoid import (
    Ellipsoid,
    labeled,
    log_ellipsoid_volume,
    squared_distances,
)
from bregopt.problems.logdet.interior_point import Model, optimal_weights
from bregopt.routes.base import Settings
from bregopt.threads import threads_for

__all__ = ["min_volume_ellipsoid"]

_ROUND_OFF = 8 * EPS  # of coordinates, relative to the largest one: a smaller spread is none
_ORIGIN = {True: "points.mean(axis=0)", False: "center"}


def min_volume_ellipsoid(
    points: ArrayLike,
    center: ArrayLike | None = None,
    *,
    tol: float = Settings.tol,
    time_limit: float | None = None,
) -> Ellipsoid:
    """Return the ellipsoid of smallest volume that contains all points: the Löwner-John ellipsoid.

    Parameters
    ----------
    points : array_like or DataFrame of shape (m, d)
        Not all in one hyperplane.
    center : array_like of shape (d,), optional
        The center of the ellipsoid; by default the best one.
    tol : float
        Largest `gap` of an "optimal" answer.
    time_limit : float, optional
        In seconds.

    Returns
    -------
    Ellipsoid
        ``contains(points)`` is true for every point: the ellipsoid is scaled by the largest distance, and by
        the round-off that distances may have. `center` and `shape` have the labels of a DataFrame's columns,
        `weights` and `contact` those of its rows.

    Raises
    ------
    TypeError, ValueError
        If the input is bad, or the points lie in a hyperplane; the message has their dimension.

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`.

    Notes
    -----
    Weights ``u`` prove that no smaller ellipsoid exists: its volume is at least that of the ellipsoid with
    their mean and ``d`` times their covariance. The method takes interior-point steps in the weights of few
    points, adds those outside, and discards points that touch no optimal ellipsoid.

    References
    ----------
    Sun, Freund (2004), Computation of minimum-volume covering ellipsoids, Operations Research 52. Harman,
    Pronzato (2007), Improvements on removing nonoptimal support points in D-optimum design algorithms,
    Statistics and Probability Letters 77. John (1948), Extremum problems with inequalities.

    Examples
    --------
    >>> import bregopt as bo
    >>> found = bo.min_volume_ellipsoid([[0, 0], [1, 0], [0, 1], [1, 1]])
    >>> found.center.round(6).tolist(), found.shape.round(6).tolist()
    ([0.5, 0.5], [[0.5, 0.0], [0.0, 0.5]])
    """
    settings = Settings(tol=tol, time_limit=time_limit)
    X = finite_array(points, "points", ndim=2)
    if 0 in X.shape:
        raise ValueError(f"points has shape {X.shape}; expected at least one row and one column")
    fixed = None if center is None else _center(center, points, X.shape[1])
    with clock.limited(settings.time_limit), threads_for(X.shape[1]):
        u, c, T, bound, steps = _enclosing(X, fixed, settings.tol)
        volume = log_ellipsoid_volume(T)
        fields = verdict(max(expm1(volume - bound), 0.0), settings.tol, "min_volume_ellipsoid")
    return Ellipsoid(
        **fields,
        **labeled(points, c, T, u, np.flatnonzero(u)),
        log_volume=volume,
        log_volume_bound=min(bound, volume),
        iterations=steps,
        _root=T,
        _drawn=X,
    )


def _enclosing(X: Array, fixed: Array | None, tol: float) -> tuple[Array, Array, Array, float, int]:
    """Return weights, center, root of the shape, the bound on the logarithm of the volume, and the steps."""
    origin = X.mean(axis=0) if fixed is None else fixed
    Y, root = _whitened(X, origin, fixed is None)
    m, d = Y.shape
    rows = Y if fixed is not None else np.column_stack([Y, np.ones(m)])
    model = Model(Candidates(rows), WeightBounds.simplex(m))
    # The gap of the volume is n / 2 times that of the efficiency, for rows of length n.
    found = optimal_weights(model, np.full(m, 1 / m), min(tol / rows.shape[1], 0.1))
    mean = np.zeros(d) if fixed is not None else found.u @ Y
    spread = root_of((Y - mean).T * found.u @ (Y - mean))
    assert spread is not None
    c = origin if fixed is not None else origin + root @ mean
    T = root @ spread
    round_off = 4 * (d + 1) * EPS * (1 + d * float((np.abs(np.linalg.inv(T)) @ np.abs(T)).max()))
    bound = log_ellipsoid_volume(sqrt(d) * T) - d * round_off
    T *= sqrt(float(squared_distances(X, c, T).max()) * (1 + round_off))
    return found.u, c, T, bound, found.steps


def _whitened(X: Array, origin: Array, free: bool) -> tuple[Array, Array]:
    """Return ``Y`` with ``X = origin + Y root'`` and ``Y'Y / m = I``, and the lower triangular root.

    Raises
    ------
    ValueError
        If the points lie in a subspace, up to the round-off of their coordinates.
    """
    m, d = X.shape
    centered = X - origin
    check_columns(centered, f"points - {_ORIGIN[free]}")
    unit = np.abs(centered).max(axis=0)
    unit[unit == 0] = 1.0
    centered /= unit
    R = np.zeros((d, d))
    R[:m] = qr(centered, mode="r")[0][:d] / sqrt(m)
    _, spread, directions = np.linalg.svd(R)
    noise = _ROUND_OFF * (np.abs(directions) @ (1 + np.abs(X).max(axis=0) / unit))
    rank = int((spread > noise).sum())
    if rank < d:
        kind = "an affine subspace" if free else "a subspace through the center"
        raise ValueError(
            f"points has {m} rows in dimension {d}, which lie in {kind} of dimension {rank}; expected {d}: "
            f"pass their coordinates in it, (points - origin) @ V.T with origin = {_ORIGIN[free]} and "
            f"V = np.linalg.svd(points - origin, full_matrices=False)[2][:{rank}]"
        )
    R *= np.where(R.diagonal() < 0, -1.0, 1.0)[:, None]
    return np.ascontiguousarray(lapack.dtrtrs(R.T, centered.T, lower=1)[0].T), unit[:, None] * R.T


def _center(center: Any, points: Any, d: int) -> Array:
    """Return a given center, whose labels are those of the columns."""
    if (
        is_pandas(center, "Series")
        and is_pandas(points, "DataFrame")
        and not center.index.equals(points.columns)
    ):
        raise ValueError("center is a Series with other labels; expected those of the columns of points")
    fixed = finite_array(center, "center", ndim=1)
    if fixed.shape != (d,):
        raise ValueError(f"center has shape {fixed.shape}; expected {(d,)}, one coordinate for each column")
    return fixed
