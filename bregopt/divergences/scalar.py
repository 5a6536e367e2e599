"""The penalties of soft rows: the divergences of matrices of order one.

A soft row pays ``gamma d(a, b)`` for the activity ``a`` at the bound ``b``. The attribute
:attr:`~bregopt.divergences.Divergence.penalty` of a divergence of matrices names its ``d``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["PENALTY_DEGREES", "SCALARS", "Penalty", "Scalar"]


class Penalty(IntEnum):
    """The penalty of a row for the activity ``a`` beyond the bound ``b``; hard rows have none."""

    HARD = 0
    HINGE = 1  # gamma * |a - b|
    LOGDET = 2  # gamma * (a/b - log(a/b) - 1)
    VON_NEUMANN = 3  # gamma * (a log(a/b) - a + b)
    SQUARE = 4  # gamma * (a - b)^2
    LOG = 5  # -gamma * log(a - b), at every activity above the lower bound; it is no divergence


class Scalar(NamedTuple):
    """A divergence ``d(a, b)`` of numbers, with ``t = y / gamma`` for the multiplier ``y`` of its row.

    Parameters
    ----------
    name : str
        The penalty's name in messages.
    atom : str
        The name of its CVXPY atom in messages.
    degree : int
        The ``p`` of ``d(r a, r b) = r^p d(a, b)``.
    of_ratios : bool
        Whether it is defined for positive bounds only.
    finite_at_zero : bool
        Whether ``d(0, b)`` is finite.
    harmonic : bool
        Whether one over the relaxed bound is affine in the multiplier.
    value : callable
        ``(a, b) -> d(a, b)``, of arrays like the next four.
    conjugate : callable
        ``(t, b) -> min over a of d(a, b) + t a``.
    response : callable
        ``(a, b) -> t``, the ``t`` for which ``a`` is that minimizer.
    relaxed_bound : callable
        ``(t, b) -> a``, that minimizer.
    slope : callable
        ``(a, a') -> -da/dt``, the geometric mean of the values at two minimizers.
    bound_slope : callable
        ``(a, b) -> da/db`` at a fixed ``t``, for the minimizer ``a``.
    floor : callable
        ``(bound, gamma) -> y``, the multiplier below which the relaxed bound is infinite.
    target : callable
        ``(bound, gamma, y) -> (relaxed bound, its derivative)``, of numbers.
    cvxpy : callable
        ``(cvxpy, a, b) -> d(a, b)`` elementwise, as an expression of CVXPY.
    """

    name: str
    atom: str
    degree: int
    of_ratios: bool
    finite_at_zero: bool
    harmonic: bool
    value: Callable[[Array, Array], Array]
    conjugate: Callable[[Array, Array], Array]
    response: Callable[[Array, Array], Array]
    relaxed_bound: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    bound_slope: Callable[[Array, Array], Array]
    floor: Callable[[float, float], float]
    target: Callable[[float, float, float], tuple[float, float]]
    cvxpy: Callable[[Any, Any, Any], Any]


def _ratio(a: Array, b: Array) -> Array:
    """Return ``a / b``; one where both are equal, also where both are zero."""
    return np.divide(a, b, out=np.ones_like(a), where=a != b)


def _logdet(a: Array, b: Array) -> Array:
    ratio = _ratio(a, b)
    positive = ratio > 0
    if positive.all():
        return ratio - np.log(ratio) - 1
    return np.where(positive, ratio - np.log(np.where(positive, ratio, 1.0)) - 1, np.inf)


def _logdet_conjugate(t: Array, b: Array) -> Array:
    product = t * b
    inside = product > -1
    if inside.all():
        return np.log1p(product)
    return np.where(inside, np.log1p(np.where(inside, product, 0.0)), -np.inf)


def _logdet_relaxed_bound(t: Array, b: Array) -> Array:
    left = 1 + t * b
    inside = left > 0
    return b / left if inside.all() else np.where(inside, b / np.where(inside, left, 1.0), np.inf)


def _logdet_target(b: float, gamma: float, y: float) -> tuple[float, float]:
    relaxed = b / (1 + y * b / gamma)
    return relaxed, -(relaxed**2) / gamma


def _logdet_cvxpy(cp: Any, a: Any, b: Any) -> Any:
    ratio = cp.multiply(1 / b, a)
    return ratio - cp.log(ratio) - 1


def _von_neumann(a: Array, b: Array) -> Array:
    ratio = _ratio(a, b)
    safe = np.where(ratio > 0, ratio, 1.0)
    return np.where(ratio >= 0, np.where(ratio > 0, a * np.log(safe), 0.0) - a + b, np.inf)


def _von_neumann_target(b: float, gamma: float, y: float) -> tuple[float, float]:
    relaxed = b * math.exp(min(-y / gamma, 700.0))
    return relaxed, -relaxed / gamma


SCALARS: dict[Penalty, Scalar] = {
    Penalty.LOGDET: Scalar(
        name="the LogDet penalty",
        atom="logarithm",
        degree=0,
        of_ratios=True,
        finite_at_zero=False,
        harmonic=True,
        value=_logdet,
        conjugate=_logdet_conjugate,
        response=lambda a, b: 1 / a - 1 / b,
        relaxed_bound=_logdet_relaxed_bound,
        slope=lambda a, b: a * b,
        bound_slope=lambda a, b: (a / b) ** 2,
        floor=lambda b, gamma: -gamma / b,
        target=_logdet_target,
        cvxpy=_logdet_cvxpy,
    ),
    Penalty.VON_NEUMANN: Scalar(
        name="the von Neumann penalty",
        atom="scalar entropy",
        degree=1,
        of_ratios=True,
        finite_at_zero=True,
        harmonic=False,
        value=_von_neumann,
        conjugate=lambda t, b: -b * np.expm1(np.minimum(-t, 700.0)),
        response=lambda a, b: -np.log(a / b),
        relaxed_bound=lambda t, b: b * np.exp(np.minimum(-t, 700.0)),
        slope=lambda a, b: np.sqrt(np.maximum(a * b, 0.0)),
        bound_slope=lambda a, b: a / b,
        floor=lambda b, gamma: -math.inf,
        target=_von_neumann_target,
        cvxpy=lambda cp, a, b: cp.kl_div(a, b),
    ),
    Penalty.SQUARE: Scalar(
        name="a squared penalty",
        atom="square",
        degree=2,
        of_ratios=False,
        finite_at_zero=True,
        harmonic=False,
        value=lambda a, b: (a - b) ** 2,
        conjugate=lambda t, b: t * b - t**2 / 4,
        response=lambda a, b: -2 * (a - b),
        relaxed_bound=lambda t, b: b - t / 2,
        slope=lambda a, b: np.full(len(a), 0.5),
        bound_slope=lambda a, b: np.ones(len(a)),
        floor=lambda b, gamma: -math.inf,
        target=lambda b, gamma, y: (b - y / (2 * gamma), -0.5 / gamma),
        cvxpy=lambda cp, a, b: cp.square(a - b),
    ),
}
# By the values of Penalty: dividing a row by r multiplies its gamma by r to this power, up to a constant.
PENALTY_DEGREES = np.array([0, 1, *(scalar.degree for scalar in SCALARS.values()), 0])
