"""One-row Bregman projection: find the step length along a row at which its activity meets its target.

Along the row ``A`` the point moves by ``grad phi(X+) = grad phi(X) + alpha A`` (Kulis et al. 2009, eq. 7).
Its activity ``a(alpha) = <A, X+>`` increases with ``alpha``. A divergence gives it as a :class:`Line`, on a
scale on which it is nearly linear: then Newton's method needs few steps. It needs one step for a rank-one row
under LogDet, where ``1/a = 1/p - alpha`` is the closed form of eq. 19.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bregopt.arrays import Array

__all__ = [
    "IDENTITY",
    "LOG",
    "RECIPROCAL",
    "ActivityScale",
    "Line",
    "ProjectionPoint",
    "Target",
    "increasing_root",
    "line_root",
]


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


class Target(Protocol):
    """The target of an activity: a bound that a soft row relaxes as its multiplier changes."""

    @property
    def floor(self) -> float:
        """The multiplier below which the target is infinite."""
        ...

    @property
    def harmonic(self) -> bool:
        """Whether one over the target is affine in the multiplier."""
        ...

    def __call__(self, y: float) -> tuple[float, float]:
        """Return the target at the multiplier `y`, and its derivative, never positive."""
        ...


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
