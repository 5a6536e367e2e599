"""Ellipsoids as answers: around points, or inside a polytope."""

from __future__ import annotations

from math import exp, lgamma, log, pi
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from bregopt.arrays import Array, ArrayOrFrame, ArrayOrSeries, IntArray, Mask, finite_array
from bregopt.cache import cached_property
from bregopt.io.pandas_labels import is_pandas, pandas_module
from bregopt.plotting import Axes
from bregopt.problems.logdet.answer import ProvenAnswer, draw_ellipse
from bregopt.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Ellipsoid", "labeled", "log_ellipsoid_volume", "squared_distances"]


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

    def plot(self, dims: tuple[int, int] = (0, 1), ax: Axes | None = None) -> Axes:
        """Draw the ellipsoid with its points or polytope; its shadow if there are more than two dimensions.

        Parameters
        ----------
        dims : two ints
            The coordinates, if there are more than two.
        ax : matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        matplotlib axes
        """
        outline, pair = self.boundary(dims), list(dims)
        center = np.asarray(self.center)[pair]
        named: Any = self.center
        names = [named.index[k] for k in pair] if hasattr(named, "index") else None
        if self._inside:
            corners = self._drawn if len(self._root) == 2 else None
            return draw_ellipse(outline, center, None, None, corners, names, ax)
        points = self._drawn[:, pair]
        touching = points[np.asarray(self.weights) > 0]
        return draw_ellipse(outline, center, points, touching, None, names, ax)

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
    shape = root @ root.T
    if not is_pandas(data, "DataFrame"):
        return {"center": center, "shape": shape, "weights": weights, "contact": contact}
    pandas, rows, columns = pandas_module(), data.index, data.columns
    return {
        "center": pandas.Series(center, index=columns),
        "shape": pandas.DataFrame(shape, index=columns, columns=columns),
        "weights": pandas.Series(weights, index=rows),
        "contact": rows[contact],
    }
