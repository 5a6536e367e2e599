"""What a divergence does to one row: the penalty of a soft row, and the projection onto a row.

A soft row pays ``gamma d(a, b)`` for the activity ``a`` at the bound ``b``, with the divergence ``d`` of
matrices of order one. The attribute :attr:`~bregopt.divergences.Divergence.penalty` of a divergence of
matrices names its ``d``.

A projection finds the step length along a row at which its activity meets its target. Along the row ``A`` the
point moves by ``grad phi(X+) = grad phi(X) + alpha A`` (Kulis et al. 2009, eq. 7). Its activity
``a(alpha) = <A, X+>`` increases with ``alpha``. A divergence gives it as a :class:`Line`, on a scale on which
it is nearly linear: then Newton's method needs few steps. It needs one step for a rank-one row under LogDet,
where ``1/a = 1/p - alpha`` is the closed form of eq. 19.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.records import dataclass


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


# --- Projections --------------------------------------------------------------------------------------------


class ActivityScale(NamedTuple):
    """An increasing function ``psi`` and its derivative, on which two activities are compared."""

    psi: Callable[[float], float]
    slope: Callable[[float], float]
    floor: float  # round-off of psi is relative to its value, but at least to this


IDENTITY = ActivityScale(lambda a: a, lambda a: 1.0, 0.0)
LOG = ActivityScale(math.log, lambda a: 1 / a, 1.0)
RECIPROCAL = ActivityScale(lambda a: -1 / a, lambda a: a**-2, 0.0)
_ROUND_OFF = 4e-16


class Line(Protocol):
    """The activity of one row as the point moves along it."""

    @property
    def activity(self) -> float:
        """The activity at ``alpha = 0``."""
        ...

    @property
    def domain(self) -> tuple[float, float]:
        """Open interval of the ``alpha`` at which the moved point exists."""
        ...

    @property
    def scale(self) -> ActivityScale:
        """The scale of :meth:`evaluate`; the identity unless all activities are positive."""
        ...

    @property
    def reach(self) -> tuple[float, float]:
        """Open interval of the activities that some ``alpha`` in the domain attains."""
        ...

    @property
    def harmonic(self) -> bool:
        """Whether ``1/a`` is affine in ``alpha``, and :attr:`scale` the reciprocal."""
        ...

    def evaluate(self, alpha: float) -> tuple[float, float]:
        """Return ``psi(a(alpha))`` and its derivative in ``alpha``."""
        ...


class ProjectionPoint(Protocol):
    """A matrix that projections update in place."""

    @property
    def X(self) -> Array:
        """The matrix, shape ``(n, n)``."""
        ...

    def reset(self, W: Array) -> None:
        """Set ``X`` to the minimizer of ``<W, X> + mu D(X, X0)``."""
        ...

    def line(self, U: Array, d: Array) -> Line:
        """Return the line of the row ``U diag(d) U'``."""
        ...

    def move(self, line: Line, alpha: float) -> None:
        """Move along a line that this point returned at its current ``X``."""
        ...


@dataclass(frozen=True)
class Target:
    """The activity that one row must have at the multiplier ``y``: a bound, which a soft row relaxes."""

    kind: Penalty
    bound: float
    gamma: float

    @property
    def floor(self) -> float:
        """The multiplier below which the relaxed bound is infinite."""
        return -math.inf if self.kind <= Penalty.HINGE else SCALARS[self.kind].floor(self.bound, self.gamma)

    @property
    def harmonic(self) -> bool:
        """Whether one over the relaxed bound is affine in the multiplier."""
        return self.kind <= Penalty.HINGE or SCALARS[self.kind].harmonic

    def __call__(self, y: float) -> tuple[float, float]:
        """Return the bound ``b(y)`` and its derivative, never positive, for `y` above :attr:`floor`."""
        if self.kind <= Penalty.HINGE:
            return self.bound, 0.0
        return SCALARS[self.kind].target(self.bound, self.gamma, y)


def line_root(line: Line, target: Target, y: float, mu: float) -> float:
    """Return ``alpha`` with ``a(alpha) = target(y + mu alpha)``; ``-inf`` or ``inf`` where there is none.

    Parameters
    ----------
    line : Line
    target : Target
    y : float
        The row's current multiplier.
    mu : float
        Weight of the divergence: ``alpha`` moves the multiplier by ``mu alpha``.
    """
    lowest, highest = line.reach
    rigid, _ = target(max(0.0, target.floor))
    if rigid <= lowest:
        return -math.inf
    if rigid >= highest:
        return math.inf
    if line.harmonic and target.harmonic:
        b, db = target(y)
        return (1 / line.activity - 1 / b) / (1 - mu * db / b**2)
    psi, slope, floor = line.scale

    def excess(alpha: float) -> tuple[float, float]:
        a, da = line.evaluate(alpha)
        b, db = target(y + mu * alpha)
        if b <= lowest:  # a square penalty can relax a bound beyond all activities: return to smaller alpha
            return math.inf, math.inf
        difference = a - psi(b)
        settled = abs(difference) <= _ROUND_OFF * max(abs(a), floor)
        return 0.0 if settled else difference, da - slope(b) * mu * db

    start, stop = line.domain
    start = max(start, (target.floor - y) / mu)
    return increasing_root(excess, start, stop)


def increasing_root(g: Callable[[float], tuple[float, float]], start: float, stop: float) -> float:
    """Return the root of an increasing function on an open interval that contains zero.

    Newton's method starts from zero and stays inside the current bracket. A step that leaves the bracket is
    replaced by a bisection, or by a step four times the last one where the bracket is unbounded.

    Parameters
    ----------
    g : callable
        ``x -> (value, derivative)``.
    start, stop : float
        Ends of the interval, where ``g`` tends to ``-inf`` and ``inf`` or to values of opposite sign.
    """
    x, leap = 0.0, 0.0
    for _ in range(200):
        value, derivative = g(x)
        if value == 0.0:
            break
        if value > 0:
            stop = x
        else:
            start = x
        step = -value / derivative if 0 < derivative < math.inf else math.copysign(math.inf, -value)
        leap = max(4 * leap, abs(step)) if math.isfinite(step) else 4 * leap + 1.0
        candidate = x + step
        if not start < candidate < stop:
            end = stop if step > 0 else start
            candidate = (x + end) / 2 if math.isfinite(end) else x + math.copysign(leap, step)
        if abs(candidate - x) <= _ROUND_OFF * abs(candidate):
            return candidate
        x = candidate
    return x
