"""The primal-dual method of Zhang and Gao (2003) for the largest ellipsoid in ``{x: A x <= 1}``.

With ``S = inv(A'YA)`` and ``h_i = norm(S^(1/2) a_i)`` the optimality conditions are ``A'(Yh) = 0``,
``A x + h + z = 1`` and ``y z = 0`` with ``y, z >= 0``; the ellipsoid has center ``x`` and shape ``S``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array, Mask
from bregopt.clock import remaining
from bregopt.linalg import inverse_of, log_det, root_of

__all__ = ["Inscribed", "largest_inscribed"]

_MAX_STEPS = 100  # 10 to 25 are usual
_PATIENCE = 10  # steps without a smaller gap that end the method
_TO_BOUNDARY = 0.95  # fraction of the way to the boundary, at least
_CENTERING = 0.1  # largest factor of the complementarity in a step, and smallest one without a good step


@dataclass(frozen=True, eq=False)
class Inscribed:
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


def largest_inscribed(A: Array, tol: float) -> Inscribed:
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
    best: Inscribed | None = None
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


def _proven(A: Array, x: Array, S: Array, y: Array, h: Array, steps: int) -> Inscribed:
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
        return Inscribed(x, S * factor**2, y * h**2 / d, v > 0, value, np.inf, steps)
    W = (A @ lower) / h[:, None]
    sign, logarithm = np.linalg.slogdet((W.T * v) @ A)
    left = lower.T @ (A.T @ v)  # round-off; the polytope is in 2 d times the ellipsoid
    spread = float(v.sum()) + abs(float(x @ (A.T @ v))) + 2 * d * float(np.linalg.norm(left))
    bound = d * log(spread / d) - float(logarithm) if sign > 0 else np.inf
    weights = v * h / (v @ h)
    touching = weights > room - factor * h  # one of the two is small near the optimum
    return Inscribed(x, S * max(factor, 0.0) ** 2, weights, touching, value, bound, steps)


def _root(A: Array, y: Array) -> Array:
    root = root_of((A.T * y) @ A)
    assert root is not None
    return root


def _length(v: Array, dv: Array) -> float:
    """Return the largest step that keeps `v` nonnegative."""
    falling = dv < 0
    return float((v[falling] / -dv[falling]).min(initial=np.inf))
