"""Ellipsoids as answers, around points or inside a polytope, and the one of smallest volume around points.

It follows from its dual, a D-optimal design (Titterington 1975).
"""

from __future__ import annotations

from math import exp, expm1, lgamma, log, pi, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack, qr

from bregopt import clock
from bregopt.arrays import (
    EPS,
    Array,
    ArrayOrFrame,
    ArrayOrSeries,
    IntArray,
    Mask,
    check_columns,
    finite_array,
)
from bregopt.clock import threads_for
from bregopt.display import Axes
from bregopt.io.matrices import framed, is_pandas
from bregopt.linalg import root_of
from bregopt.problems.logdet.answer import ProvenAnswer, draw_ellipse, verdict
from bregopt.problems.logdet.candidates import Candidates, WeightBounds
from bregopt.problems.logdet.interior_point import Model, optimal_weights
from bregopt.records import cached_property, dataclass
from bregopt.routes.base import Settings

if TYPE_CHECKING:
    import pandas as pd

_ROUND_OFF = 8 * EPS  # of coordinates, relative to the largest one: a smaller spread is none
_ORIGIN = {True: "points.mean(axis=0)", False: "center"}


@dataclass(frozen=True, eq=False, repr=False)
class Ellipsoid(ProvenAnswer):
    """The ellipsoid ``(x - center)' inv(shape) (x - center) <= 1`` and a proof that its volume is extreme.

    An infeasible or unbounded problem has no ellipsoid: `center` and `shape` are None, and `ray` or `farkas`
    is the proof.

    Attributes
    ----------
    center : array or Series of shape (d,)
    shape : array or DataFrame of shape (d, d)
        Positive definite; its eigenvectors are the directions of the axes, and the roots of its eigenvalues
        their lengths.
    log_volume, log_volume_bound : float
        The logarithm of the volume, and the proven bound on that of every ellipsoid around the points, or
        inside the polytope.
    gap : float
        The volume is within a factor of ``1 + gap`` of the extreme one.
    weights : array or Series of shape (m,)
        Of the points, or of the sides of the polytope: the multipliers of John's theorem, with sum one. Those
        of points are a D-optimal design.
    contact : int array or Index
        The points, or the sides, with positive weight. The ellipsoid touches them.
    iterations : int
        Newton steps.
    ray : array of shape (d,) or None
        A direction of an unbounded polytope: ``A @ ray <= 0``.
    farkas : array of shape (m,) or None
        Multipliers ``y >= 0`` with ``A' y = 0`` and ``b' y <= 0``: the polytope is empty, or flat.
    """

    title: ClassVar[str] = "ellipsoid"

    center: ArrayOrSeries | None
    shape: ArrayOrFrame | None
    log_volume: float
    log_volume_bound: float
    weights: ArrayOrSeries
    contact: IntArray | pd.Index[Any]
    ray: Array | None = None
    farkas: Array | None = None
    _root: Any = None  # lower triangular, with shape = root @ root.T
    _inside: bool = False  # whether the ellipsoid is inside a polytope
    _drawn: Any = None  # for plots: the points, or the corners of a polygon in order

    @property
    def volume(self) -> float:
        """The volume; it overflows to infinity, and underflows to zero, in many dimensions."""
        return exp(self.log_volume) if self.log_volume < 709 else np.inf

    @cached_property
    def axes(self) -> Array:
        """The semi-axes as rows, the longest first, shape ``(d, d)``."""
        self._check_exists()
        U, lengths, _ = np.linalg.svd(self._root)
        return np.asarray((U * lengths).T)

    def distances(self, points: ArrayLike) -> Array:
        """Return ``(x - center)' inv(shape) (x - center)`` of each row of `points`, at most one inside.

        Parameters
        ----------
        points : array_like of shape (k, d) or (d,)

        Returns
        -------
        array of shape (k,)
        """
        self._check_exists()
        rows = np.atleast_2d(finite_array(points, "points", ndim=(1, 2)))
        if rows.shape[1] != len(self._root):
            raise ValueError(f"points has {rows.shape[1]} columns; expected {len(self._root)}")
        return squared_distances(rows, np.asarray(self.center), self._root)

    def contains(self, points: ArrayLike) -> Mask:
        """Whether each row of `points` is in the ellipsoid, its boundary included, shape ``(k,)``."""
        return self.distances(points) <= 1.0

    def boundary(self, dims: tuple[int, int] = (0, 1), count: int = 200) -> Array:
        """Return points on the boundary of the shadow of the ellipsoid in two coordinates, ``(count, 2)``."""
        self._check_exists()
        pair = list(dims)
        half = self._root[pair]  # the shadow has the shape half @ half.T
        t = np.linspace(0, 2 * pi, count)
        circle = np.column_stack([np.cos(t), np.sin(t)])
        return np.asarray(np.asarray(self.center)[pair] + circle @ np.linalg.cholesky(half @ half.T).T)

    def plot(
        self, dims: tuple[int, int] = (0, 1), ax: Axes | None = None, *, projected: bool = False
    ) -> Axes:
        """Draw the ellipsoid with its points or polytope; its shadow if there are more than two dimensions.

        Parameters
        ----------
        dims : two ints
            The coordinates, if there are more than two. Points are then drawn in the direction of these, at
            their distance in all: those that the ellipsoid touches are on its outline.
        projected : bool
            Draw the projections of the points instead. Many are inside the shadow, also of those that the
            ellipsoid touches.
        ax : matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        matplotlib axes
        """
        outline, pair = self.boundary(dims), list(dims)
        center, whole = np.asarray(self.center)[pair], len(self._root) == 2
        named: Any = self.center
        names = [named.index[k] if hasattr(named, "index") else f"coordinate {k}" for k in pair]
        title, points, touching = f"{len(self.contact)} of {len(self.weights)} ", None, None
        if self._inside:
            title += "sides touch" + ("" if whole else f"; shadow in {names[0]}, {names[1]}")
        else:
            points, title = self._drawn[:, pair], title + "points touch"
            if not whole:
                shown = "projection on" if projected else "distances in all, directions in"
                title += f"\n{shown} {names[0]}, {names[1]}"
            if not (whole or projected):
                half = self._root[pair]
                near = squared_distances(points, center, np.linalg.cholesky(half @ half.T))
                near = np.maximum(near, np.finfo(float).tiny)
                stretch = np.sqrt(self.distances(self._drawn) / near)
                points = center + (points - center) * stretch[:, None]
            touching = points[np.asarray(self.weights) > 0]
        corners = self._drawn if self._inside and whole else None
        ax = draw_ellipse(outline, center, points, touching, corners, names, ax)
        ax.set_title(title, fontsize=10)
        return ax

    def _check_exists(self) -> None:
        if self.center is None:
            raise ValueError(f"the problem is {self.status} and has no ellipsoid: {self.stop_reason}")

    def _facts(self) -> dict[str, str]:
        if self.center is None:
            return {}
        lengths = np.linalg.norm(self.axes, axis=1)
        return {
            "volume": f"{self.volume:.8g}   within a factor of 1 + {self.gap:.1e}, proven",
            "semi-axes": f"{lengths[0]:.6g} to {lengths[-1]:.6g} in dimension {len(lengths)}",
            "contact": f"{len(self.contact)} of {len(self.weights)}",
            "effort": f"{self.iterations} steps",
        }


def squared_distances(points: Array, center: Array, root: Array) -> Array:
    """Return the squared norms of ``inv(root) (x - center)`` for a lower triangular root, shape ``(m,)``."""
    white = lapack.dtrtrs(root, (points - center).T, lower=1)[0]
    return np.einsum("ij,ij->j", white, white)


def log_ellipsoid_volume(root: Array) -> float:
    """Return the logarithm of the volume of ``{root y: |y| <= 1}`` for a triangular root."""
    d = len(root)
    return d / 2 * log(pi) - lgamma(d / 2 + 1) + float(np.log(root.diagonal()).sum())


def labeled(data: Any, center: Array, root: Array, weights: Array, contact: IntArray) -> dict[str, Any]:
    """Return the fields of center, shape, weights and contact, as pandas objects if the data are a DataFrame.

    Parameters
    ----------
    data
        The points or the rows of the polytope, as the user gave them.
    center : array of shape (d,)
    root : array of shape (d, d)
    weights : array of shape (m,)
    contact : int array of shape (k,)
    """
    rows, columns = (data.index, data.columns) if is_pandas(data, "DataFrame") else (None, None)
    return {
        "center": framed(center, columns),
        "shape": framed(root @ root.T, columns, columns),
        "weights": framed(weights, rows),
        "contact": contact if rows is None else rows[contact],
    }


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
    named = is_pandas(center, "Series") and is_pandas(points, "DataFrame")
    if named and not center.index.equals(points.columns):
        raise ValueError("center is a Series with other labels; expected those of the columns of points")
    fixed = finite_array(center, "center", ndim=1)
    if fixed.shape != (d,):
        raise ValueError(f"center has shape {fixed.shape}; expected {(d,)}, one coordinate for each column")
    return fixed
