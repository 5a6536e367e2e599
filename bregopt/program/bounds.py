"""What each row's activity must obey: two bounds, hard or soft, and the terms they add to the dual.

A hard row asks ``lo <= a <= hi`` of its activity ``a``. A soft row pays ``gamma * d(b, bound)`` for the
least bend ``b`` of the bound it breaks (Kulis et al. 2009, eq. 22, with ``b`` minimised out), with ``d``
one of the scalar divergences below, or ``gamma`` times the violation (the hinge).

The multiplier ``y`` of a row is positive where the lower bound acts and negative where the upper one does.
A row adds ``g(y) = min over a of penalty(a) + y a`` to the dual function, ``y * bound`` for a hard row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask

__all__ = ["Bounds", "Penalty", "Target", "bent"]


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
    response: Callable[[Array, Array], tuple[Array, Array]]  # the t of that a, and -dt/da


def _logdet(a: Array, b: Array) -> Array:
    ratio = a / b
    positive = ratio > 0
    if positive.all():
        return ratio - np.log(ratio) - 1
    return np.where(positive, ratio - np.log(np.where(positive, ratio, 1.0)) - 1, np.inf)


def _von_neumann(a: Array, b: Array) -> Array:
    ratio = a / b
    safe = np.where(ratio > 0, ratio, 1.0)
    return np.where(ratio >= 0, np.where(ratio > 0, a * np.log(safe), 0.0) - a + b, np.inf)


_SCALARS: dict[Penalty, _Scalar] = {
    Penalty.LOGDET: _Scalar(
        _logdet,
        lambda t, b: np.where(t * b > -1, np.log1p(np.maximum(t * b, -1 + 1e-16)), -np.inf),
        lambda a, b: (1 / a - 1 / b, 1 / a**2),
    ),
    Penalty.VON_NEUMANN: _Scalar(
        _von_neumann,
        lambda t, b: -b * np.expm1(np.minimum(-t, 700.0)),
        lambda a, b: (-np.log(a / b), 1 / a),
    ),
    Penalty.SQUARE: _Scalar(
        lambda a, b: (a - b) ** 2,
        lambda t, b: t * b - t**2 / 4,
        lambda a, b: (-2 * (a - b), np.full(len(a), 2.0)),
    ),
}


def bent(kind: IntArray, bound: Array, gamma: Array, y: Array) -> tuple[Array, Array]:
    """Return the bounds that the multipliers bend, and their derivatives in ``y``, which are never positive.

    A multiplier outside the domain of its penalty bends the bound to infinity.
    """
    value, slope = bound.copy(), np.zeros(len(bound))
    if not (kind > _HINGE).any():
        return value, slope
    k = np.flatnonzero(kind == Penalty.LOGDET)
    left = 1 + y[k] * bound[k] / gamma[k]
    value[k] = np.where(left > 0, bound[k] / np.where(left > 0, left, 1.0), np.inf)
    slope[k] = -(value[k] ** 2) / gamma[k]
    k = np.flatnonzero(kind == Penalty.VON_NEUMANN)
    value[k] *= np.exp(np.minimum(-y[k] / gamma[k], 700.0))
    slope[k] = -value[k] / gamma[k]
    k = np.flatnonzero(kind == Penalty.SQUARE)
    value[k] -= y[k] / (2 * gamma[k])
    slope[k] = -0.5 / gamma[k]
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
    def hard(self) -> Mask:
        """Mask of the rows that may not bend."""
        mask: Mask = self.kind == Penalty.HARD
        return mask

    @cached_property
    def equal(self) -> Mask:
        """Mask of the hard rows that ask for one value."""
        mask: Mask = self.hard & (self.lo == self.hi)
        return mask

    @cached_property
    def all_hard(self) -> bool:
        """Whether no row may bend."""
        return bool(self.hard.all())

    @cached_property
    def sizes(self) -> Array:
        """The larger magnitude of each row's finite bounds; zero where there is none."""
        lo, hi = (np.where(np.isfinite(end), np.abs(end), 0.0) for end in (self.lo, self.hi))
        return np.maximum(lo, hi)

    @cached_property
    def penalties(self) -> tuple[Penalty, ...]:
        """The smooth penalties that occur."""
        return tuple(kind for kind in _SCALARS if (self.kind == kind).any())

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
        return np.zeros(self.m) if self._all_soft else np.where(self.hard, self.violation(a), 0.0)

    def penalty(self, a: Array) -> Array:
        """Return what each row pays for its activity; hard rows pay nothing (see :meth:`missed`)."""
        if self.all_hard:
            return np.zeros(self.m)
        outside = self.violation(a)
        paid = np.zeros(self.m)
        if len(self._hinge):
            paid[self._hinge] = self.gamma[self._hinge] * outside[self._hinge]
        for kind, k, at, nearest in self._broken(a, outside):
            paid[k] = self.gamma[k] * _SCALARS[kind].value(at, nearest)
        return paid

    def conjugate(self, y: Array) -> Array:
        """Return each row's term ``g(y)`` of the dual function; ``-inf`` outside its domain."""
        if self._all_equal:
            return y * self.lo
        acting = np.where(y > 0, self.lo, self.hi)
        acting[y == 0] = 0.0
        term = y * acting
        for kind, mask in self._curved:
            k = np.flatnonzero(mask & np.isfinite(term))
            term[k] = self.gamma[k] * _SCALARS[kind].conjugate(y[k] / self.gamma[k], acting[k])
        lower, upper = self.dual_range()
        term[(y < lower) | (y > upper) | np.isinf(acting)] = -np.inf
        return term

    def response(self, a: Array) -> tuple[Array, Array]:
        """Return the multipliers with which soft rows answer an activity, and their stiffness ``-dy/da``.

        The derivatives of :meth:`penalty`, turned round; for rows whose penalty is smooth.
        """
        y, stiffness = np.zeros(self.m), np.zeros(self.m)
        for kind, k, at, nearest in self._broken(a, self.violation(a)):
            t, slope = _SCALARS[kind].response(at, nearest)
            y[k], stiffness[k] = self.gamma[k] * t, self.gamma[k] * slope
        return y, stiffness

    def dual_range(self) -> tuple[Array, Array]:
        """Return the closed range of each multiplier: its sign, and ``[-gamma, gamma]`` for a hinge."""
        return self._dual_range

    @cached_property
    def _dual_range(self) -> tuple[Array, Array]:
        reach = np.where(self.kind == Penalty.HINGE, self.gamma, np.inf)
        lower = np.where(np.isfinite(self.hi), -reach, 0.0)
        upper = np.where(np.isfinite(self.lo), reach, 0.0)
        return lower, upper

    def clip(self, y: Array) -> Array:
        """Return the nearest multipliers inside their range."""
        return np.clip(y, *self.dual_range())

    def target(self, k: int, upper: bool) -> Target:
        """Return what row `k` aims for at its upper or lower bound."""
        bound = self.hi[k] if upper else self.lo[k]
        return Target(Penalty(int(self.kind[k])), float(bound), float(self.gamma[k]))

    @cached_property
    def _all_soft(self) -> bool:
        return not self.hard.any()

    @cached_property
    def _all_equal(self) -> bool:
        return bool(self.equal.all())

    @cached_property
    def _hinge(self) -> IntArray:
        return np.flatnonzero(self.kind == Penalty.HINGE)

    @cached_property
    def _curved(self) -> tuple[tuple[Penalty, Mask], ...]:
        """The smooth penalties that occur, and the rows that pay them."""
        return tuple((kind, self.kind == kind) for kind in self.penalties)

    def _broken(self, a: Array, outside: Array) -> Iterator[tuple[Penalty, IntArray, Array, Array]]:
        """Yield the smooth penalties, the rows that pay for being `outside`, where, and what they broke."""
        for kind, mask in self._curved:
            k = np.flatnonzero(mask & (outside > 0))
            at, lo = a[k], self.lo[k]
            yield kind, k, at, np.where(at < lo, lo, self.hi[k])
