"""The ellipsoid of largest volume in a polytope (Zhang and Gao 2003)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import expm1, sqrt
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import qr

from bregopt import clock
from bregopt.arrays import EPS, SMALLEST, Array, Mask, check_columns, check_magnitude, finite_array, scattered
from bregopt.errors import SolverError
from bregopt.io.pandas_labels import is_pandas
from bregopt.problems.logdet.ellipsoid import Ellipsoid, labeled, log_ellipsoid_volume
from bregopt.problems.logdet.maximum_volume import largest_inscribed
from bregopt.problems.logdet.polytope import Proof, corners, inner_point, ray_of
from bregopt.problems.logdet.proven import verdict
from bregopt.routes.base import Settings
from bregopt.routes.solution import Status
from bregopt.threads import threads_for

__all__ = ["max_volume_inscribed_ellipsoid"]

_ROUNDS = 2  # after the first one, in better coordinates


def max_volume_inscribed_ellipsoid(
    A: ArrayLike, b: ArrayLike, *, tol: float = Settings.tol, time_limit: float | None = None
) -> Ellipsoid:
    """Return the ellipsoid of largest volume in the polytope ``A x <= b``.

    Parameters
    ----------
    A : array_like or DataFrame of shape (m, d)
    b : array_like or Series of shape (m,)
    tol : float
        Largest `gap` of an "optimal" answer.
    time_limit : float, optional
        In seconds.

    Returns
    -------
    Ellipsoid
        It is inside: ``sqrt(a_i' shape a_i) + a_i' center <= b_i`` for each row. `center` and `shape` have
        the labels of a DataFrame's columns, `weights` and `contact` those of its rows. A polytope that is
        empty or flat is "infeasible" with the proof `farkas`, one without a largest ellipsoid is "unbounded"
        with the proof `ray`.

    Raises
    ------
    TypeError, ValueError
        If the input is bad.
    SolverError
        If neither a point inside nor a proof is found.

    Warns
    -----
    ConvergenceWarning
        If the gap is above `tol`.

    References
    ----------
    Zhang, Gao (2003), On numerical solution of the maximum volume ellipsoid problem, SIAM J. Optim. 14.
    Khachiyan, Todd (1993), On the complexity of approximating the maximal inscribed ellipsoid for a polytope,
    Math. Programming 61.

    Examples
    --------
    >>> import bregopt as bo
    >>> found = bo.max_volume_inscribed_ellipsoid([[1, 0], [0, 1], [-1, -1]], [1, 1, 1])
    >>> found.center.round(6).tolist()
    [0.0, 0.0]
    """
    settings = Settings(tol=tol, time_limit=time_limit)
    rows, right = finite_array(A, "A", ndim=2), finite_array(b, "b", ndim=1)
    m = len(rows)
    if 0 in rows.shape:
        raise ValueError(f"A has shape {rows.shape}; expected at least one row and one column")
    if right.shape != (m,):
        raise ValueError(f"b has shape {right.shape}; expected {(m,)}, one bound for each row of A")
    check_columns(rows, "A")
    check_magnitude(right, "b", SMALLEST)
    frame, series = cast(Any, A), cast(Any, b)
    if is_pandas(A, "DataFrame") and is_pandas(b, "Series") and not frame.index.equals(series.index):
        raise ValueError("b is a Series with other labels; expected those of the rows of A")
    with clock.limited(settings.time_limit), threads_for(m):
        return _solved(A, rows, right, settings.tol)


def _solved(data: Any, A: Array, b: Array, tol: float) -> Ellipsoid:
    """Return the ellipsoid, or the proof that there is none."""
    at = inner_point(A, b)
    if isinstance(at, Proof):
        reason = "The polytope is flat: it has no interior." if at.flat else "The polytope is empty."
        return _none(len(b), Status.INFEASIBLE, f"{reason} The proof is in farkas.", farkas=at.farkas)
    sides = np.flatnonzero(A.any(axis=1))
    rows, right = A[sides], b[sides]
    back, ray = _coordinates(rows / (right - rows @ at)[:, None])
    if ray is not None:
        reason = "The polytope has ellipsoids of any volume along ray."
        return _none(len(b), Status.UNBOUNDED, reason, ray=ray / np.abs(ray).max())
    best = _largest(rows, right, at, back, tol)
    for _ in range(_ROUNDS):
        if best.gap <= tol or clock.remaining() <= 0:
            break
        # Coordinates in which the best ellipsoid is a ball lose fewer digits.
        again = _largest(rows, right, best.center, best.root, tol)
        best = min(best, replace(again, steps=best.steps + again.steps), key=lambda found: found.gap)
    return Ellipsoid(
        **verdict(best.gap, tol, "max_volume_inscribed_ellipsoid"),
        **labeled(data, best.center, best.root, scattered(sides, best.weights, len(b)), sides[best.contact]),
        log_volume=best.volume,
        log_volume_bound=max(best.bound, best.volume),
        iterations=best.steps,
        _root=best.root,
        _inside=True,
        _drawn=corners(rows, right, best.center) if len(at) == 2 else None,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """An ellipsoid in the coordinates of the user; `volume` and `bound` are logarithms."""

    center: Array
    root: Array
    volume: float
    bound: float
    weights: Array
    contact: Mask
    steps: int

    @property
    def gap(self) -> float:
        return max(expm1(min(self.bound - self.volume, 700.0)), 0.0)


def _largest(A: Array, b: Array, at: Array, back: Array, tol: float) -> _Found:
    """Return the ellipsoid found in the coordinates ``x = at + back @ y``."""
    d = len(at)
    near = A / (b - A @ at)[:, None]  # the polytope is near @ (x - at) <= 1
    best = largest_inscribed(near @ back, min(tol, 0.1) / 2)
    center = at + back @ best.x
    root = _triangular(back @ np.linalg.cholesky(best.S))
    root *= _room(A, b, center, root)
    round_off = 4 * (d + 1) * EPS * (1 + d * float((np.abs(back) @ np.abs(np.linalg.inv(back))).max()))
    # The unit ball has the root I, whose determinant is one.
    bound = best.bound + log_ellipsoid_volume(np.eye(d)) + float(np.linalg.slogdet(back)[1]) + d * round_off
    return _Found(center, root, log_ellipsoid_volume(root), bound, best.weights, best.touching, best.steps)


def _coordinates(near: Array) -> tuple[Array, Array | None]:
    """Return ``back`` such that the columns of ``near @ back`` are orthogonal, and a ray if there is one."""
    m, d = near.shape
    unit = np.abs(near).max(axis=0, initial=0.0)
    if not unit.all():
        return np.eye(d), np.where(unit == 0, 1.0, 0.0)
    rows = near / unit
    _, spread, directions = np.linalg.svd(_square(rows / np.linalg.norm(rows, axis=1)[:, None]))
    if spread[-1] <= 4 * d * EPS * spread[0]:
        return np.eye(d), directions[-1] / unit
    R = _square(rows) / sqrt(m)
    if np.linalg.cond(R) >= 1 / (4 * d * EPS):
        raise SolverError("the polytope is too long for its width: pass coordinates along its sides")
    back = np.linalg.inv(R) / unit[:, None]
    ray = ray_of(near @ back)
    return back, None if ray is None else back @ ray


def _square(rows: Array) -> Array:
    """Return a matrix ``R`` of shape ``(d, d)`` with ``R'R = rows'rows``."""
    m, d = rows.shape
    R = np.zeros((d, d))
    R[:m] = qr(rows, mode="r")[0][:d]
    return R


def _triangular(half: Array) -> Array:
    """Return the lower triangular root of ``half @ half.T``."""
    T = np.asarray(qr(half.T, mode="r")[0].T)
    return T * np.where(T.diagonal() < 0, -1.0, 1.0)


def _room(A: Array, b: Array, center: Array, T: Array) -> float:
    """Return the largest factor of a root with which its ellipsoid is inside, less the round-off of rows."""
    d = len(center)
    terms = np.count_nonzero(A, axis=1) + 1  # whose rounded sum is within half an EPS each
    slack = b - A @ center - terms * EPS / 2 * (np.abs(b) + np.abs(A) @ np.abs(center))
    reach = np.linalg.norm(A @ T, axis=1) + d * EPS * np.linalg.norm(np.abs(A) @ np.abs(T), axis=1)
    factor = float((slack / reach).min()) * (1 - 4 * EPS)
    if factor <= 0:
        raise SolverError(
            "the polytope is thinner than the round-off of b: move the origin into it, A (x + p) <= b - A p"
        )
    return factor


def _none(m: int, status: Status, reason: str, ray: Any = None, farkas: Any = None) -> Ellipsoid:
    """Return the answer without an ellipsoid."""
    volume = -np.inf if status is Status.INFEASIBLE else np.inf
    return Ellipsoid(
        status=status.value,
        stop_reason=reason,
        gap=0.0,
        iterations=0,
        center=None,
        shape=None,
        log_volume=volume,
        log_volume_bound=volume,
        weights=np.zeros(m),
        contact=np.zeros(0, dtype=np.intp),
        ray=ray,
        farkas=farkas,
    )
