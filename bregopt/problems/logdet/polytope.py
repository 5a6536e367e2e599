"""Polytopes ``A x <= b``: a point inside, or the proof that there is none, or that volumes have no bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

from bregopt.arrays import EPS, Array
from bregopt.errors import SolverError

__all__ = ["Proof", "corners", "inner_point", "ray_of"]

_ZOOMS = 3  # linear programs around better and better points
_CLEAR = 1e-5  # radius of a ball inside that needs no closer look, relative to the size of the program
_FAR = 1e9  # longest slack of a program, in its unit
_NEAR = 10.0  # largest coordinate of a first program, in its unit
_TIGHT = 1e-6  # slack of a row that counts as active, relative to the longest
_EXACT = 1e-11  # relative violation of a proof by round-off
_FLAT = 1e-9  # relative thickness of a polytope without interior
_UNDECIDED = "no point inside A x <= b was found, and no proof that there is none: rescale the rows"


@dataclass(frozen=True, eq=False)
class Proof:
    """Multipliers ``y >= 0`` with ``A'y = 0`` and ``b'y <= 0``, zero if the polytope is flat."""

    farkas: Array
    flat: bool = False


def inner_point(A: Array, b: Array) -> Array | Proof:
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
    x, y = _center(rows, right)
    x = x / unit
    if (b - A @ x > EPS * A.shape[1] * (np.abs(b) + np.abs(A) @ np.abs(x)))[used].all():
        return x
    found = _without_interior(rows, right, y)
    farkas[used] = found.farkas / lengths[used]
    return Proof(farkas=farkas / farkas.sum(), flat=found.flat)


def _center(A: Array, b: Array) -> tuple[Array, Array]:
    """Return the center of a large ball inside, and the multipliers, of rows with length one."""
    m, d = A.shape
    x, y = np.zeros(d), np.zeros(m)
    unit = (float(np.abs(b).max(initial=0.0)) or 1.0) if (b <= 0).any() else float(b.min(initial=1.0))
    rows, cost = np.column_stack([A, np.ones(m)]), np.append(np.zeros(d), -1.0)
    for _ in range(_ZOOMS):
        slack = np.minimum((b - A @ x) / unit, _FAR)
        for reach in (
            _NEAR,
            np.inf,
        ):  # a point of an unbounded polytope may be so far that its slacks are lost
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


def ray_of(A: Array) -> Array | None:
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


def corners(A: Array, b: Array, inside: Array) -> Array:
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
