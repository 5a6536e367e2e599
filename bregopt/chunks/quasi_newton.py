"""L-BFGS for positive definite matrices, preconditioned by second moments of the rows.

For Gaussian vectors ``z`` of second moment ``S``, ``E <A, zz'> zz' = 2 S A S + tr(A S) S``. With ``k`` the
sum of the rows' second derivatives, the Hessian is then near ``A -> N A N + k (2 S A S + tr(A S) S)``, where
``N A N`` is the divergence's part. One generalized eigendecomposition of ``S`` and ``N`` inverts it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.chunks.objective import Objective, Point

__all__ = ["LARGEST_POWER", "in_frame", "line_search", "preconditioner", "quasi_newton"]

_PAIRS = 20  # steps that are remembered, r^2 numbers each
_DECREASE = 1e-4  # Armijo's constant
LARGEST_POWER = 2.0  # of e, by which a step of quasi_newton multiplies an eigenvalue
_LEAST_STEP = 1e-8
_ROUND_OFF = 16 * EPS  # of the objective, relative


class _Pair(NamedTuple):
    """A step and the change of the gradient along it."""

    s: Array
    y: Array
    curvature: float


def quasi_newton(objective: Objective, point: Point) -> Iterator[Point]:
    """Yield better points until the objective no longer decreases.

    Parameters
    ----------
    objective : Objective
    point : Point
        The start.
    """
    pairs: deque[_Pair] = deque(maxlen=_PAIRS)
    while True:
        step = -_two_loop(point.gradient, pairs, preconditioner(objective, point))
        new = line_search(objective, point, in_frame(point.root, step), LARGEST_POWER, curvature=True)
        if new is None:
            if not pairs:
                return
            pairs.clear()  # pairs from far away may mislead: go on with the preconditioner alone
            continue
        s, y = new.M - point.M, new.gradient - point.gradient
        product = float(np.vdot(s, y))
        if product > 0:
            pairs.append(_Pair(s, y, product))
        point = new
        yield point


def line_search(
    objective: Objective, at: Point, exponent: Array, largest_power: float, curvature: bool
) -> Point | None:
    """Return the first point of a backtracking line search with a sufficient decrease, None without one.

    The curve is ``root expm(t exponent) root'``. It never leaves the cone, and eigenvalues grow as fast as
    they shrink; along a segment they would grow at most twofold in a Newton step of LogDet.

    Parameters
    ----------
    objective : Objective
    at : Point
    exponent : array of shape (r, r)
        Symmetric.
    largest_power : float
        Limit on the magnitude of its eigenvalues.
    curvature : bool
        Whether the new point has the sums of curvature.
    """
    if not np.isfinite(exponent).all():
        return None
    powers, Q = np.linalg.eigh((exponent + exponent.T) / 2)
    frame = at.root @ Q
    slopes = np.einsum("ij,ij->j", frame, at.gradient @ frame)
    if not powers.any():
        return None
    limited = np.clip(powers, -largest_power, largest_power)
    if not slopes @ limited < 0:
        limited = powers * min(1.0, largest_power / float(np.abs(powers).max()))
    slope, t = float(slopes @ limited), 1.0
    if not slope < 0:
        return None
    round_off = _ROUND_OFF * abs(at.value)
    while t > _LEAST_STEP:
        new = objective.at(frame * np.exp(t * limited / 2), curvature)
        if new is not None and new.value <= at.value + _DECREASE * t * slope + round_off:
            return new
        t *= 0.5 if new is None else _fraction(new.value - at.value, t * slope)
    return None


def in_frame(root: Array, S: Array) -> Array:
    """Return ``inv(root) S inv(root)'`` for a symmetric `S`."""
    half = np.linalg.solve(root, S)
    framed: Array = np.linalg.solve(root, half.T)
    return framed


def _fraction(change: float, expected: float) -> float:
    """Return the minimizer of the parabola through the values and the slope, from 0.1 to 0.5."""
    return min(0.5, max(0.1, -expected / (2 * (change - expected)))) if math.isfinite(change) else 0.1


def preconditioner(objective: Objective, at: Point) -> Callable[[Array], Array]:
    """Return the inverse of the approximate Hessian at a point."""
    root = _quarter_root(at.M) if objective.divergence.exponential else at.root
    d, Q = np.linalg.eigh(root.T @ at.curvature @ root)
    T = root @ Q  # T' N T = I and T' (k S) T = diag(d)
    d = np.maximum(d, 0.0)
    k = at.weight or 1.0
    spread = 1 + 2 * np.outer(d, d) / k
    along = d / spread.diagonal()
    correction = along / math.sqrt(k + float(d @ along))

    def solve(G: Array) -> Array:
        R = T.T @ G @ T
        B = R / spread
        B[np.diag_indices(len(d))] -= correction * float(correction @ R.diagonal())
        step: Array = T @ B @ T.T
        return step

    return solve


def _quarter_root(M: Array) -> Array:
    """Return the fourth root of `M`: von Neumann's Hessian is near ``M^(-1/2) A M^(-1/2)``.

    It is that up to the ratio of the geometric to the logarithmic mean of two eigenvalues.
    """
    eigenvalues, Q = np.linalg.eigh(M)
    root: Array = (Q * np.sqrt(np.sqrt(np.maximum(eigenvalues, 0.0)))) @ Q.T
    return root


def _two_loop(gradient: Array, pairs: deque[_Pair], precondition: Callable[[Array], Array]) -> Array:
    """Return the L-BFGS inverse Hessian times a gradient (Nocedal and Wright, Algorithm 7.4)."""
    q, alphas = gradient.copy(), []
    for s, y, curvature in reversed(pairs):
        alphas.append(float(np.vdot(s, q)) / curvature)
        q -= alphas[-1] * y
    step = precondition(q)
    for (s, y, curvature), alpha in zip(pairs, reversed(alphas), strict=True):
        step += (alpha - float(np.vdot(y, step)) / curvature) * s
    symmetric: Array = (step + step.T) / 2
    return symmetric
