"""The ellipsoid of largest volume in a polytope, by the primal-dual method of Zhang and Gao (2003).

For ``{x: A x <= 1}``, with ``S = inv(A'YA)`` and ``h_i = norm(S^(1/2) a_i)``, the optimality conditions are
``A'(Yh) = 0``, ``A x + h + z = 1`` and ``y z = 0`` with ``y, z >= 0``; the ellipsoid has center ``x`` and
shape ``S``. Linear programs find a point inside ``A x <= b`` first, or the proof that there is none, or that
volumes have no bound.
"""

from __future__ import annotations

from math import expm1, log, sqrt
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack, qr
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from bregopt import clock
from bregopt.arrays import EPS, SMALLEST, Array, Mask, check_columns, check_magnitude, finite_array, scattered
from bregopt.clock import remaining, threads_for
from bregopt.errors import SolverError
from bregopt.io.matrices import is_pandas
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.problems.logdet.answer import verdict
from bregopt.problems.logdet.loewner_ellipsoid import Ellipsoid, labeled, log_ellipsoid_volume
from bregopt.records import dataclass, replace
from bregopt.routes.base import Settings
from bregopt.routes.solution import Status

_ROUNDS = 2  # after the first one, in better coordinates
_MAX_STEPS = 100  # of one round; 10 to 25 are usual
_PATIENCE = 10  # steps without a smaller gap that end the method
_TO_BOUNDARY = 0.95  # fraction of the way to the boundary, at least
_CENTERING = 0.1  # largest factor of the complementarity in a step, and smallest one without a good step
_ZOOMS = 3  # linear programs around better and better points
_CLEAR = 1e-5  # radius of a ball inside that needs no closer look, relative to the size of the program
_FAR = 1e9  # longest slack of a program, in its unit
_NEAR = 10.0  # largest coordinate of a first program, in its unit
_TIGHT = 1e-6  # slack of a row that counts as active, relative to the longest
_EXACT = 1e-11  # relative violation of a proof by round-off
_FLAT = 1e-9  # relative thickness of a polytope without interior
_UNDECIDED = "no point inside A x <= b was found, and no proof that there is none: rescale the rows"


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
    at = _inner_point(A, b)
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
        _drawn=_corners(rows, right, best.center) if len(at) == 2 else None,
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
    best = _largest_inscribed(near @ back, min(tol, 0.1) / 2)
    center = at + back @ best.x
    root = np.asarray(qr((back @ np.linalg.cholesky(best.S)).T, mode="r")[0].T)
    root *= np.where(root.diagonal() < 0, -1.0, 1.0)  # lower triangular
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
    ray = _ray_of(near @ back)
    return back, None if ray is None else back @ ray


def _square(rows: Array) -> Array:
    """Return a matrix ``R`` of shape ``(d, d)`` with ``R'R = rows'rows``."""
    m, d = rows.shape
    R = np.zeros((d, d))
    R[:m] = qr(rows, mode="r")[0][:d]
    return R


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


@dataclass(frozen=True, eq=False)
class _Inscribed:
    """An ellipsoid and multipliers, and what they prove about ``log det`` of the root of the shape.

    Parameters
    ----------
    x : array of shape (d,)
    S : array of shape (d, d)
        Shape of an ellipsoid inside.
    weights : array of shape (m,)
        Of John's theorem: the normals ``S^(1/2) a_i / h_i`` have the mean zero, and the covariance ``I / d``.
    touching : bool array of shape (m,)
    value, bound : float
        The logarithm of the determinant of the root of ``S``, and a bound on that of any ellipsoid inside.
    steps : int
    """

    x: Array
    S: Array
    weights: Array
    touching: Mask
    value: float
    bound: float
    steps: int


def _largest_inscribed(A: Array, tol: float) -> _Inscribed:
    """Return an ellipsoid in ``{x: A x <= 1}`` whose bound is within `tol` of its value, or the best one.

    Parameters
    ----------
    A : array of shape (m, d)
        The polytope is bounded.
    tol : float
    """
    m, d = A.shape
    x = np.zeros(d)
    leverage = np.einsum("ij,ij->i", A @ inverse_of(_root(A, np.ones(m))), A)
    y = np.full(m, 4.0 * float(leverage.max()))  # then h is at most 1/2
    S = inverse_of(_root(A, y))
    h = np.sqrt(np.einsum("ij,ij->i", A @ S, A))
    z = 1.0 - h
    best: _Inscribed | None = None
    since = 0
    for step in range(_MAX_STEPS + 1):
        found = _proven(A, x, S, y, h, step)
        if best is None or found.bound - found.value < best.bound - best.value:
            best, since = found, step
        if found.bound - found.value <= tol or step - since > _PATIENCE or remaining() <= 0:
            break
        moved = _direction(A, x, S, y, h, z)
        if moved is None:
            break
        dx, dy, dz = moved
        a = min(1.0, max(_TO_BOUNDARY, 1 - float(y @ z) / m) * min(_length(y, dy), _length(z, dz)))
        x, y, z = x + a * dx, y + a * dy, z + a * dz
        S = inverse_of(_root(A, y))
        h = np.sqrt(np.einsum("ij,ij->i", A @ S, A))
    assert best is not None
    return best


def _direction(
    A: Array, x: Array, S: Array, y: Array, h: Array, z: Array
) -> tuple[Array, Array, Array] | None:
    """Return Newton's direction toward a point of the central path."""
    m = len(y)
    mu = float(y @ z) / m
    dual = A.T @ (y * h)
    missing = 1.0 - A @ x - h - z
    target = min(_CENTERING, mu) * mu
    # dh = -N dy with N = inv(2 Diag(h)) G o G, and (N + Diag(z / y)) dy = A dx - right.
    Q = A @ S @ A.T
    Q *= Q
    right = missing - target / y + z
    K = Q.copy()
    K.ravel()[:: m + 1] += 2 * h * z / y
    root, info = lapack.dpotrf(K.T, lower=1, clean=0, overwrite_a=1)
    if info:
        return None
    solved = lapack.dpotrs(root, 2 * h[:, None] * np.column_stack([A, right]), lower=1)[0]
    # A'(h - y N) dy = -dual
    through = h[:, None] * solved - (y / (2 * h))[:, None] * (Q @ solved)
    AT = A.T @ through
    dx = np.linalg.solve(AT[:, :-1], AT[:, -1] - dual)
    dy = solved[:, :-1] @ dx - solved[:, -1]
    dz = target / y - z - z / y * dy
    return dx, dy, dz


def _proven(A: Array, x: Array, S: Array, y: Array, h: Array, steps: int) -> _Inscribed:
    """Return the largest ellipsoid of this form inside, and the bound by weak duality.

    For multipliers ``v >= 0`` with ``A'v = 0`` and unit vectors ``w_i`` no ellipsoid has a larger determinant
    than ``(sum(v) / d)^d / det(sum_i v_i w_i a_i')``.
    """
    d = A.shape[1]
    lower = root_of(S)
    assert lower is not None
    room = 1.0 - A @ x
    factor = float((room / h).min())
    value = -np.inf if factor <= 0 else d * log(factor) + log_det(lower) / 2
    v = y * h
    v = v - v * (A @ np.linalg.solve((A.T * v) @ A, A.T @ v))
    if (v < 0).any():
        return _Inscribed(x, S * factor**2, y * h**2 / d, v > 0, value, np.inf, steps)
    W = (A @ lower) / h[:, None]
    sign, logarithm = np.linalg.slogdet((W.T * v) @ A)
    left = lower.T @ (A.T @ v)  # round-off; the polytope is in 2 d times the ellipsoid
    spread = float(v.sum()) + abs(float(x @ (A.T @ v))) + 2 * d * float(np.linalg.norm(left))
    bound = d * log(spread / d) - float(logarithm) if sign > 0 else np.inf
    weights = v * h / (v @ h)
    touching = weights > room - factor * h  # one of the two is small near the optimum
    return _Inscribed(x, S * max(factor, 0.0) ** 2, weights, touching, value, bound, steps)


def _root(A: Array, y: Array) -> Array:
    root = root_of((A.T * y) @ A)
    assert root is not None
    return root


def _length(v: Array, dv: Array) -> float:
    """Return the largest step that keeps `v` nonnegative."""
    falling = dv < 0
    return float((v[falling] / -dv[falling]).min(initial=np.inf))


@dataclass(frozen=True, eq=False)
class Proof:
    """Multipliers ``y >= 0`` with ``A'y = 0`` and ``b'y <= 0``, zero if the polytope is flat."""

    farkas: Array
    flat: bool = False


def _inner_point(A: Array, b: Array) -> Array | Proof:
    """Return a point inside, or multipliers which prove that there is none.

    Parameters
    ----------
    A : array of shape (m, d)
    b : array of shape (m,)

    Raises
    ------
    SolverError
        If neither is found.
    """
    farkas = np.zeros(len(b))
    unit = np.abs(A).max(axis=0)
    unit[unit == 0] = 1.0
    lengths = np.linalg.norm(A / unit, axis=1)
    used = np.flatnonzero(lengths)
    empty = np.flatnonzero((lengths == 0) & (b < 0))
    if len(empty):
        farkas[empty[0]] = 1.0
        return Proof(farkas=farkas)
    rows, right = A[used] / unit / lengths[used, None], b[used] / lengths[used]
    x, y = _center_of_ball(rows, right)
    x = x / unit
    if (b - A @ x > EPS * A.shape[1] * (np.abs(b) + np.abs(A) @ np.abs(x)))[used].all():
        return x
    found = _without_interior(rows, right, y)
    farkas[used] = found.farkas / lengths[used]
    return Proof(farkas=farkas / farkas.sum(), flat=found.flat)


def _center_of_ball(A: Array, b: Array) -> tuple[Array, Array]:
    """Return the center of a large ball inside, and the multipliers, of rows with length one."""
    m, d = A.shape
    x, y = np.zeros(d), np.zeros(m)
    unit = (float(np.abs(b).max(initial=0.0)) or 1.0) if (b <= 0).any() else float(b.min(initial=1.0))
    rows, cost = np.column_stack([A, np.ones(m)]), np.append(np.zeros(d), -1.0)
    for _ in range(_ZOOMS):
        slack = np.minimum((b - A @ x) / unit, _FAR)
        for reach in (_NEAR, np.inf):  # a far point of an unbounded polytope loses its slacks
            ends = [(-reach, reach)] * d + [(None, 1.0)]
            found = linprog(cost, rows, slack, bounds=ends, method="highs")
            if found.x is None:
                raise SolverError(f"HiGHS found no center of the polytope: {found.message}")
            if found.x[d] > _CLEAR:
                break
        x = x + unit * found.x[:d]
        radius, y = float(found.x[d]), -np.asarray(found.ineqlin.marginals)
        if abs(radius) > _CLEAR:
            break
        unit *= 10 * max(abs(radius), _TIGHT)  # the tolerance of the program hides the sign: look closer
    return x, y


def _without_interior(A: Array, b: Array, y: Array) -> Proof:
    """Return the proof that a polytope has no interior: ``y >= 0``, ``A'y = 0`` and ``b'y <= 0``.

    Parameters
    ----------
    A : array of shape (m, d)
        Rows of length one.
    b : array of shape (m,)
    y : array of shape (m,)
        Such multipliers, up to the tolerance of a linear program.

    Raises
    ------
    SolverError
        If they prove nothing.
    """
    if not y.any():
        raise SolverError(_UNDECIDED)
    used = y > _TIGHT * y.max()
    kept = y[used] - A[used] @ np.linalg.lstsq(A[used].T @ A[used], A[used].T @ y[used], rcond=None)[0]
    exact = np.zeros(len(y))
    exact[used] = kept / np.abs(kept).sum()
    size = float(np.abs(b) @ exact)
    value = float(b @ exact)
    if (kept < 0).any() or np.abs(A.T @ exact).max() > _EXACT or value > _FLAT * size:
        raise SolverError(_UNDECIDED)
    return Proof(farkas=exact, flat=value >= -_EXACT * size)


def _ray_of(A: Array) -> Array | None:
    """Return a direction ``w`` with ``A w <= 0``, None if ``A x <= 1`` is bounded.

    Parameters
    ----------
    A : array of shape (m, d)
        With ``A'A / m`` the identity.
    """
    m, d = A.shape
    found = linprog(A.sum(axis=0), A, np.zeros(m), bounds=[(-1.0, 1.0)] * d, method="highs")
    if found.x is None or found.fun > -_TIGHT:
        return None
    w = np.asarray(found.x)
    active = A @ w > -_TIGHT
    w = w - np.linalg.pinv(A[active]) @ (A[active] @ w)
    round_off = _EXACT * np.linalg.norm(A, axis=1) * np.linalg.norm(w)
    return w if (A @ w <= round_off).all() and (A @ w).min() < -_TIGHT / m else None


def _corners(A: Array, b: Array, inside: Array) -> Array:
    """Return the corners of a polygon in order, shape ``(s, 2)``.

    Parameters
    ----------
    A : array of shape (m, 2)
    b : array of shape (m,)
    inside : array of shape (2,)
    """
    polar = A / (b - A @ inside)[:, None]  # a corner is a side of the hull of these points
    hull = ConvexHull(polar)
    points = hull.equations[:, :2] / -hull.equations[:, 2:]
    return inside + points[np.argsort(np.arctan2(points[:, 1], points[:, 0]))]
