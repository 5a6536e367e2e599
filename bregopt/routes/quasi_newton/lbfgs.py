"""L-BFGS for positive definite matrices, on curves that stay in the cone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.routes.quasi_newton.curves import Curve, Exponential, Geodesic
from bregopt.routes.quasi_newton.objective import Objective, P
from bregopt.routes.quasi_newton.preconditioner import preconditioner

__all__ = ["curve_of", "descent_along", "line_search", "quasi_newton"]

_PAIRS = 20  # steps that are remembered, r^2 numbers each
_DECREASE = 1e-4  # Armijo's constant
_LARGEST_POWER = 1.0  # of e, by which a step multiplies an eigenvalue; 2.0 takes 1.5 times the passes
_LEAST_STEP = 1e-8
_ROUND_OFF = 16 * EPS  # of the objective, relative


class _Pair(NamedTuple):
    """A step and the change of the gradient along it."""

    s: Array
    y: Array
    curvature: float


def quasi_newton(objective: Objective[P], point: P) -> Iterator[P]:
    """Yield better points until the objective no longer decreases.

    Parameters
    ----------
    objective : Objective
    point : Point
        The start.
    """
    pairs: deque[_Pair] = deque(maxlen=_PAIRS)
    while True:
        step = -_two_loop(point.gradient, pairs, preconditioner(point, objective.exponential))
        curve = curve_of(objective, point)
        exponent = descent_along(curve, step)
        new = line_search(objective, point, curve, exponent, curvature=True)
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


def curve_of(objective: Objective[P], at: P) -> Curve:
    """Return the curves on which the divergence's gradient changes most evenly."""
    return Exponential(at.root) if objective.exponential else Geodesic(at.root)


def line_search(objective: Objective[P], at: P, curve: Curve, exponent: Array, curvature: bool) -> P | None:
    """Return the first point of a backtracking line search with a sufficient decrease, None without one.

    Parameters
    ----------
    objective : Objective
    at : Point
    curve : Curve
    exponent : array of shape (r, r)
    curvature : bool
        Whether the new point has the sums of curvature.
    """
    slope, t = curve.slope(at.gradient, exponent), 1.0
    if not slope < 0:
        return None
    round_off = _ROUND_OFF * abs(at.value)
    while t > _LEAST_STEP:
        new = objective.at(curve.at(exponent, t), curvature)
        if new is not None and new.value <= at.value + _DECREASE * t * slope + round_off:
            return new
        t *= 0.5 if new is None else _fraction(new.value - at.value, t * slope)
    return None


def descent_along(curve: Curve, step: Array) -> Array:
    """Return the exponent of a step, scaled such that its eigenvalues are at most `_LARGEST_POWER`."""
    exponent = curve.exponent(step)
    if not np.isfinite(exponent).all() or not exponent.any():
        return np.zeros_like(step)
    scaled: Array = exponent * min(1.0, _LARGEST_POWER / float(np.abs(np.linalg.eigvalsh(exponent)).max()))
    return scaled


def _fraction(change: float, expected: float) -> float:
    """Return the minimizer of the parabola through the values and the slope, from 0.1 to 0.5."""
    return min(0.5, max(0.1, -expected / (2 * (change - expected)))) if math.isfinite(change) else 0.1


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
