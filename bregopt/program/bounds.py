"""What each row's activity must obey: two bounds, hard or soft, and the terms they add to the dual.

A hard row asks ``lo <= a <= hi`` of its activity ``a``. A soft row pays ``gamma * d(b, bound)`` for the
least bend ``b`` of the bound it breaks (Kulis et al. 2009, eq. 22, with ``b`` minimized out), with ``d``
one of the scalar divergences below, or ``gamma`` times the violation (the hinge).

The multiplier ``y`` of a row is positive where the lower bound acts and negative where the upper one does.
A row adds ``g(y) = min over a of penalty(a) + y a`` to the dual function, ``y * bound`` for a hard row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask, span

__all__ = ["Bounds", "Penalty", "Target", "bent"]

Subset = IntArray | slice


class Penalty(IntEnum):
    """How a row may bend."""

    HARD = 0
    HINGE = 1  # gamma * |a - b|
    LOGDET = 2  # gamma * (a/b - log(a/b) - 1)
    VON_NEUMANN = 3  # gamma * (a log(a/b) - a + b)
    SQUARE = 4  # gamma * (a - b)^2


_HINGE = int(Penalty.HINGE)  # members of an enumeration are slow to look up and to compare with arrays


class _Scalar(NamedTuple):
    """One penalty in the activity ``a`` at the bound ``b``, with ``t = y / gamma``; all over gamma."""

    value: Callable[[Array, Array], Array]
    conjugate: Callable[[Array, Array], Array]  # min over a of value(a, b) + t a
    response: Callable[[Array, Array], Array]  # the t of that a
    bend: Callable[[Array, Array], Array]  # the a of t
    give: Callable[[Array, Array], Array]  # -da/dt between the a of t and another one: its geometric mean


def _ratio(a: Array, b: Array) -> Array:
    """Return ``a / b``, one where the two are the same, be it zero."""
    return np.divide(a, b, out=np.ones_like(a), where=a != b)


def _logdet(a: Array, b: Array) -> Array:
    ratio = _ratio(a, b)
    positive = ratio > 0
    if positive.all():
        return ratio - np.log(ratio) - 1
    return np.where(positive, ratio - np.log(np.where(positive, ratio, 1.0)) - 1, np.inf)


def _logdet_conjugate(t: Array, b: Array) -> Array:
    bend = t * b
    inside = bend > -1
    if inside.all():
        return np.log1p(bend)
    return np.where(inside, np.log1p(np.where(inside, bend, 0.0)), -np.inf)


def _logdet_bend(t: Array, b: Array) -> Array:
    left = 1 + t * b
    inside = left > 0
    return b / left if inside.all() else np.where(inside, b / np.where(inside, left, 1.0), np.inf)


def _von_neumann(a: Array, b: Array) -> Array:
    ratio = _ratio(a, b)
    safe = np.where(ratio > 0, ratio, 1.0)
    return np.where(ratio >= 0, np.where(ratio > 0, a * np.log(safe), 0.0) - a + b, np.inf)


_SCALARS: dict[Penalty, _Scalar] = {
    Penalty.LOGDET: _Scalar(
        _logdet,
        _logdet_conjugate,
        lambda a, b: 1 / a - 1 / b,
        _logdet_bend,
        lambda a, b: a * b,
    ),
    Penalty.VON_NEUMANN: _Scalar(
        _von_neumann,
        lambda t, b: -b * np.expm1(np.minimum(-t, 700.0)),
        lambda a, b: -np.log(a / b),
        lambda t, b: b * np.exp(np.minimum(-t, 700.0)),
        lambda a, b: np.sqrt(np.maximum(a * b, 0.0)),
    ),
    Penalty.SQUARE: _Scalar(
        lambda a, b: (a - b) ** 2,
        lambda t, b: t * b - t**2 / 4,
        lambda a, b: -2 * (a - b),
        lambda t, b: b - t / 2,
        lambda a, b: np.full(len(a), 0.5),
    ),
}


def bent(kind: IntArray, bound: Array, gamma: Array, y: Array) -> tuple[Array, Array]:
    """Return the bounds that the multipliers bend, and their derivatives in ``y``, which are never positive.

    A multiplier outside the domain of its penalty bends the bound to infinity.
    """
    value, slope = bound.copy(), np.zeros(len(bound))
    if not (kind > _HINGE).any():
        return value, slope
    for penalty, scalar in _SCALARS.items():
        k = np.flatnonzero(kind == penalty)
        value[k] = scalar.bend(y[k] / gamma[k], bound[k])
        slope[k] = -scalar.give(value[k], value[k]) / gamma[k]
    return value, slope


@dataclass(frozen=True)
class Target:
    """The value that one row's activity must meet when it moves to the multiplier ``y`` (a scalar kernel)."""

    kind: Penalty
    bound: float
    gamma: float

    @property
    def floor(self) -> float:
        """The multiplier below which the bent bound has run away to infinity."""
        return -self.gamma / self.bound if self.kind == Penalty.LOGDET else -math.inf

    @property
    def harmonic(self) -> bool:
        """Whether one over the bent bound is affine in the multiplier."""
        return self.kind <= Penalty.LOGDET

    def __call__(self, y: float) -> tuple[float, float]:
        """Return the bent bound ``b(y)`` and its derivative, for `y` above :attr:`floor`."""
        b, gamma = self.bound, self.gamma
        if self.kind <= Penalty.HINGE:
            return b, 0.0
        if self.kind == Penalty.LOGDET:
            bent = b / (1 + y * b / gamma)
            return bent, -(bent**2) / gamma
        if self.kind == Penalty.VON_NEUMANN:
            bent = b * math.exp(min(-y / gamma, 700.0))
            return bent, -bent / gamma
        return b - y / (2 * gamma), -0.5 / gamma


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds and penalties of `m` rows, four arrays of one length.

    Parameters
    ----------
    lo, hi : array of shape (m,)
        ``-inf`` and ``inf`` where there is none.
    kind : array of shape (m,), values of :class:`Penalty`
    gamma : array of shape (m,)
        Weight of the penalty, ``inf`` for hard rows.
    """

    lo: Array
    hi: Array
    kind: IntArray
    gamma: Array

    @property
    def m(self) -> int:
        """The number of rows."""
        return len(self.lo)

    @cached_property
    def kinds(self) -> frozenset[Penalty]:
        """The ways to bend that occur, :attr:`Penalty.HARD` among them."""
        return frozenset(Penalty(int(kind)) for kind in np.flatnonzero(np.bincount(self.kind)))

    @cached_property
    def hard(self) -> Mask:
        """Mask of the rows that may not bend."""
        mask: Mask = self.kind == int(Penalty.HARD)
        return mask

    @cached_property
    def equal(self) -> Mask:
        """Mask of the hard rows that ask for one value."""
        mask: Mask = self.hard & (self.lo == self.hi)
        return mask

    @cached_property
    def all_hard(self) -> bool:
        """Whether no row may bend."""
        return self.kinds <= {Penalty.HARD}

    @cached_property
    def all_soft(self) -> bool:
        """Whether every row may."""
        return Penalty.HARD not in self.kinds

    @cached_property
    def sizes(self) -> Array:
        """The larger magnitude of each row's finite bounds; zero where there is none."""
        lo, hi = (np.where(np.isfinite(end), np.abs(end), 0.0) for end in (self.lo, self.hi))
        return np.maximum(lo, hi)

    @cached_property
    def penalties(self) -> tuple[Penalty, ...]:
        """The smooth penalties that occur."""
        return tuple(kind for kind in _SCALARS if kind in self.kinds)

    def slice(self, rows: IntArray) -> Bounds:
        """Return the bounds of the given rows."""
        return replace(self, lo=self.lo[rows], hi=self.hi[rows], kind=self.kind[rows], gamma=self.gamma[rows])

    def violation(self, a: Array) -> Array:
        """Return how far each activity is outside its bounds, bending not counted as allowed."""
        return np.maximum(np.maximum(self.lo - a, a - self.hi), 0.0)

    def missed(self, a: Array) -> Array:
        """Return how far each hard row's activity is outside its bounds; zero for rows that bend."""
        if self.all_hard:
            return self.violation(a)
        return np.zeros(self.m) if self.all_soft else np.where(self.hard, self.violation(a), 0.0)

    def penalty(self, a: Array) -> Array:
        """Return what each row pays for its activity; hard rows pay nothing (see :meth:`missed`)."""
        if self.all_hard:
            return np.zeros(self.m)
        paid = np.zeros(self.m)
        nearest = np.minimum(np.maximum(a, self.lo), self.hi)
        if len(self._hinge):
            k = self._hinge
            paid[k] = self.gamma[k] * np.abs(a[k] - nearest[k])
        for kind, rows in self._curved:
            paid[rows] = self.gamma[rows] * _SCALARS[kind].value(a[rows], nearest[rows])
        return paid

    def conjugate(self, y: Array) -> Array:
        """Return each row's term ``g(y)`` of the dual function; ``-inf`` outside its domain."""
        if self._all_equal:
            return y * self.lo
        acting = np.where(y > 0, self.lo, self.hi)
        acting[y == 0] = 0.0
        term = y * acting  # -inf where there is no such bound
        if len(self._hinge):
            k = self._hinge
            term[k[np.abs(y[k]) > self.gamma[k]]] = -np.inf
        for kind, rows in self._curved:
            gamma = self.gamma[rows]
            term[rows] = gamma * _SCALARS[kind].conjugate(y[rows] / gamma, acting[rows])
        return term

    def response(self, a: Array) -> Array:
        """Return the multipliers with which soft rows answer an activity; for rows whose penalty is smooth.

        The derivative of :meth:`penalty`, turned round.
        """
        y = np.zeros(self.m)
        nearest = np.minimum(np.maximum(a, self.lo), self.hi)
        for kind, rows in self._curved:
            at, bound = a[rows], nearest[rows]
            with np.errstate(divide="ignore", invalid="ignore"):  # nothing answers an infinite penalty
                t = _SCALARS[kind].response(at, bound)
            y[rows] = self.gamma[rows] * np.where(at == bound, 0.0, t)
        return y

    def side(self, a: Array, y: Array) -> Array:
        """Return 1 for rows whose lower bound acts, -1 for the upper one, 0 for rows at rest.

        The sign of the multiplier, or, where that is zero, of what the activity breaks.
        """
        return np.where(y, np.sign(y), np.where(a < self.lo, 1.0, 0.0) - (a > self.hi))

    def meet(self, a: Array, y: Array, side: Array) -> tuple[Array, Array]:
        """Return ``r`` and ``D`` of ``da + D dy = r``, with which soft rows come to ``a = b(y)``, their bend.

        Between the derivative of that equation and that of its inverse, ``y = y(a)``, ``D`` is the geometric
        mean, so that neither has to be near the other: for LogDet the equation is ``a (gamma / b0 + y) =
        gamma`` then. Infinite for rows at rest. For rows whose penalty is smooth.
        """
        up, down = side > 0, side < 0
        bound = np.where(up, self.lo, np.where(down, self.hi, a))
        outside = np.where(up, np.minimum(a, bound), np.where(down, np.maximum(a, bound), a))
        r, D = np.empty(self.m), np.empty(self.m)
        for kind, rows in self._curved:
            gamma = self.gamma[rows]
            bend = _SCALARS[kind].bend(y[rows] / gamma, bound[rows])
            r[rows], D[rows] = bend - a[rows], _SCALARS[kind].give(outside[rows], bend) / gamma
        resting = side == 0
        r[resting], D[resting] = 0.0, np.inf
        return r, D

    def stop(self, y: Array, side: Array) -> Array:
        """Return multipliers, zero where they have left their side; equalities have none."""
        return np.where((y * side < 0) & (self.lo < self.hi), 0.0, y)

    def dual_range(self) -> tuple[Array, Array]:
        """Return the closed range of each multiplier: its sign, and ``[-gamma, gamma]`` for a hinge."""
        return self._dual_range

    @cached_property
    def _dual_range(self) -> tuple[Array, Array]:
        reach = np.where(self.kind == _HINGE, self.gamma, np.inf)
        lower = np.where(np.isfinite(self.hi), -reach, 0.0)
        upper = np.where(np.isfinite(self.lo), reach, 0.0)
        return lower, upper

    def clip(self, y: Array) -> Array:
        """Return the nearest multipliers inside their range."""
        lower, upper = self.dual_range()
        return np.minimum(np.maximum(y, lower), upper)

    def target(self, k: int, upper: bool) -> Target:
        """Return what row `k` aims for at its upper or lower bound."""
        bound = self.hi[k] if upper else self.lo[k]
        return Target(Penalty(int(self.kind[k])), float(bound), float(self.gamma[k]))

    @cached_property
    def _all_equal(self) -> bool:
        return self.all_hard and bool(self.equal.all())

    @cached_property
    def _hinge(self) -> IntArray:
        return np.flatnonzero(self.kind == _HINGE)

    @cached_property
    def _curved(self) -> tuple[tuple[Penalty, Subset], ...]:
        """The smooth penalties that occur, and the rows that pay them, a view where these are all."""
        if len(self.kinds) == 1:
            return tuple((kind, slice(0, self.m)) for kind in self.penalties)
        return tuple((kind, span(np.flatnonzero(self.kind == int(kind)))) for kind in self.penalties)
