"""The bounds of rows and variables in Newton's method: slacks, multipliers, and their terms in the system.

Every finite bound, called an *end*, has its own multiplier ``p``. The multiplier of a row is
``y = sum sign p``, with sign 1 at a lower bound and -1 at an upper one. The equations of an end in the
activity ``a`` are

    sign (a - b) = s,        s p = nu                  for a hard bound,
    sign (a - b) = s - t,    t (gamma - p) = nu        for a hinge, violated by ``t`` at the price gamma,
    a = b(y), the relaxed bound                        for a soft bound with a scalar divergence (Kulis et al.
                                                       2009, eq. 22-23).

An equality has one end without slack, whose ``p`` may have either sign. The relaxed bound of LogDet is an
unknown of its own, with ``b (gamma / b0 + sign p) = gamma``. All unknowns besides the multipliers thus have
one form: a slack, ``s``, ``t`` or ``b``, and its price ``c + side p``, whose product has a target.
Eliminating the slacks leaves one equation for each row, ``da + D dy = r`` with ``D >= 0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Bounds, Penalty
from bregopt.program.bounds import bent
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["BoundState", "FiniteBounds", "Move"]

Subset = IntArray | slice


@dataclass(frozen=True, eq=False)
class Move:
    """A Newton step in the multipliers, the slacks and their prices."""

    p: Array
    s: Array
    price: Array


@dataclass(frozen=True, eq=False)
class Slacks:
    """Slacks and their finite bounds: first of hard bounds, then of hinges, then relaxed bounds.

    Parameters
    ----------
    end : int array
    side, constant : array
        ``constant + side p`` is the price.
    centered : int
        The number of leading slacks whose product with the price has the target ``nu``.
    last : array
        The targets of the other products.
    """

    end: IntArray
    side: Array
    constant: Array
    centered: int
    last: Array

    def target(self, nu: float, after: Move | None = None) -> Array:
        """Return the targets of the products, less the second-order terms of a predictor."""
        target = np.empty(len(self.end))
        target[: self.centered] = nu
        target[self.centered :] = self.last
        if after is not None:
            target[: self.centered] -= after.s[: self.centered] * after.price[: self.centered]
        return target


@dataclass(frozen=True, eq=False)
class FiniteBounds:
    """The finite bounds of all rows, constant during the iteration; arrays of equal length.

    Parameters
    ----------
    m : int
        The number of rows.
    row : int array
        The row of each bound.
    sign : array
        1 at a lower bound, -1 at an upper bound; 1 at an equality.
    bound, kind, gamma : array
        Of the row, see :class:`~bregopt.program.Bounds`.
    free : boolean array
        Marks equalities.
    """

    m: int
    row: IntArray
    sign: Array
    bound: Array
    kind: IntArray
    gamma: Array
    free: Mask

    @classmethod
    def of(cls, bounds: Bounds) -> FiniteBounds:
        """Return the finite ones of `bounds`."""
        same = (bounds.lo == bounds.hi) & (bounds.kind != Penalty.HINGE)
        lower = np.flatnonzero(np.isfinite(bounds.lo))
        upper = np.flatnonzero(np.isfinite(bounds.hi) & ~same)
        row = np.concatenate([lower, upper])
        sign = np.concatenate([np.ones(len(lower)), -np.ones(len(upper))])
        bound = np.concatenate([bounds.lo[lower], bounds.hi[upper]])
        return cls(bounds.m, row, sign, bound, bounds.kind[row], bounds.gamma[row], same[row])

    @cached_property
    def slacks(self) -> Slacks:
        """The slacks of the finite bounds."""
        held, hinge, logdet = self.held, self.hinge, self.logdet
        constant = [np.zeros(len(held)), self.gamma[hinge], self.gamma[logdet] / self.bound[logdet]]
        side = [np.ones(len(held)), -np.ones(len(hinge)), self.sign[logdet]]
        end = np.concatenate([held, hinge, logdet])
        centered = len(held) + len(hinge)
        return Slacks(end, np.concatenate(side), np.concatenate(constant), centered, self.gamma[logdet])

    @cached_property
    def held(self) -> IntArray:
        """The finite bounds with a slack."""
        return np.flatnonzero(~self.free)

    @cached_property
    def hinge(self) -> IntArray:
        """The bounds that may be violated at a fixed price."""
        return np.flatnonzero(self.kind == Penalty.HINGE)

    @cached_property
    def logdet(self) -> IntArray:
        """The bounds relaxed under LogDet."""
        return np.flatnonzero(self.kind == Penalty.LOGDET)

    @cached_property
    def curved(self) -> IntArray:
        """The bounds relaxed under another divergence, without a pair of slack and price."""
        return np.flatnonzero((self.kind > Penalty.HINGE) & (self.kind != Penalty.LOGDET))

    @cached_property
    def anchor(self) -> Array:
        """The point from which ``sign (a - anchor)`` is the slack: the bound, or zero under LogDet."""
        return np.where(self.kind == Penalty.LOGDET, 0.0, self.bound)

    @cached_property
    def two(self) -> IntArray:
        """The finite bounds that share their row with another."""
        return np.flatnonzero(self._shared)

    @cached_property
    def one(self) -> Subset:
        """The finite bounds that are alone in their row."""
        return slice(None) if len(self.two) == 0 else np.flatnonzero(~self._shared)

    @cached_property
    def row_of_one(self) -> Subset:
        """The rows of the bounds in :attr:`one`."""
        row = self.row[self.one]
        return slice(len(row)) if np.array_equal(row, np.arange(len(row))) else row

    @cached_property
    def _shared(self) -> Mask:
        shared: Mask = (np.bincount(self.row, minlength=self.m) == 2)[self.row]
        return shared

    def sums(self, p: Array) -> Array:
        """Return the sums ``sum sign p`` over the finite bounds of each row, shape ``(m,)``."""
        return np.bincount(self.row, self.sign * p, self.m).astype(float, copy=False)

    def of_slacks(self, term: Array) -> Array:
        """Return the sums of `term` over the slacks of each bound."""
        return np.bincount(self.slacks.end, term, len(self.row)).astype(float, copy=False)


@dataclass(frozen=True, eq=False)
class BoundState:
    """The multipliers and slacks of the finite bounds of all rows.

    Parameters
    ----------
    sides : FiniteBounds
    p : array
        The bounds' multipliers.
    s : array
        The slacks.
    """

    sides: FiniteBounds
    p: Array
    s: Array

    @classmethod
    def at(
        cls, sides: FiniteBounds, activity: Array, nu: float, y: Array, tuning: InteriorPointTuning
    ) -> BoundState:
        """Return the state at a first activity, centered at `nu`, close to `y` (NaN where unknown)."""
        row, bound, gamma, free, h = sides.row, sides.bound, sides.gamma, sides.free, sides.hinge
        size = np.maximum(np.abs(activity[row]), np.abs(bound))
        size[size == 0] = 1.0
        away, known = sides.sign * (activity[row] - bound), ~np.isnan(y[row])
        own = np.maximum(sides.sign * np.where(known, y[row], 0.0), 0.0)
        least = size.copy()
        acts = own > 0
        least[acts] = np.minimum(nu / own[acts], tuning.largest_first_slack * size[acts])
        unknown = np.maximum(np.abs(away), tuning.least_first_slack * size)
        s = np.where(known, np.maximum(away, least), unknown)
        p = np.where(free, np.where(known, y[row], 0.0), np.maximum(own, nu / s))
        p[h] = np.minimum(p[h], np.where(known[h], 1 - 1e-3, 0.5) * gamma[h])
        give = nu / (gamma[h] - p[h])
        # Under LogDet an upper bound cannot be relaxed at multipliers beyond gamma / b.
        bends = sides.logdet[~free[sides.logdet]]
        p[bends] = np.minimum(p[bends], 0.5 * gamma[bends] / bound[bends])
        return cls(sides, p, np.concatenate([s[sides.held], give, bound[sides.logdet]]))

    @cached_property
    def multipliers(self) -> Array:
        """``y``, shape ``(m,)``."""
        return self.sides.sums(self.p)

    @cached_property
    def price(self) -> Array:
        """The prices of the slacks."""
        slacks = self.sides.slacks
        price: Array = slacks.constant + slacks.side * self.p[slacks.end]
        return price

    @property
    def products(self) -> int:
        """The number of terms in the complementarity."""
        return self.sides.slacks.centered

    def complementarity(self) -> float:
        """Return ``sum s p + t (gamma - p)``, the contribution of the bounds to the duality gap."""
        k = self.sides.slacks.centered
        return float(self.s[:k] @ self.price[:k])

    def complementarity_diagonal(self) -> Array:
        """Return ``D >= 0`` of each bound in ``sign da + D dp = r``."""
        D = self.sides.of_slacks(self.s / self.price)
        if len(self.sides.curved):
            D[self.sides.curved] -= self._bend()[1]
        return D

    def pull(self, activity: Array, target: Array) -> Array:
        """Return ``r`` of each bound in ``sign da + D dp = r``, for the `target` of the products."""
        sides, anchor = self.sides, self.sides.anchor
        if len(sides.curved):
            anchor = anchor.copy()
            anchor[sides.curved] = self._bend()[0]
        r = sides.of_slacks(sides.slacks.side * target / self.price)
        r -= sides.sign * (activity[sides.row] - anchor)
        return r

    def stiffness_of_rows(self, D: Array) -> Array:
        """Return ``D`` of each row in ``da + D dy = r``; infinite for a row without finite bounds."""
        sides, two = self.sides, self.sides.two
        total = np.full(sides.m, np.inf)
        total[sides.row_of_one] = D[sides.one]
        if len(two):
            weight = np.bincount(sides.row[two], 1 / D[two], sides.m)
            k = np.flatnonzero(weight)
            total[k] = 1 / weight[k]
        return total

    def pull_of_rows(self, D: Array, r: Array) -> Array:
        """Return ``r`` of each row in ``da + D dy = r``."""
        sides, two = self.sides, self.sides.two
        total = np.zeros(sides.m)
        total[sides.row_of_one] = (sides.sign * r)[sides.one]
        if len(two):
            weight = np.bincount(sides.row[two], 1 / D[two], sides.m)
            pull = np.bincount(sides.row[two], sides.sign[two] * r[two] / D[two], sides.m)
            k = np.flatnonzero(weight)
            total[k] = pull[k] / weight[k]
        return total

    def move(self, dy: Array, D: Array, r: Array, target: Array) -> Move:
        """Return the step of all bounds from that of the multipliers of the rows.

        The two bounds of a row share ``dy``; the sum of their equations, which does not contain ``da``,
        determines the rest.
        """
        row, sign, slacks, m = self.sides.row, self.sides.sign, self.sides.slacks, self.sides.m
        p = sign * dy[row]
        two = self.sides.two
        if len(two):
            D_both = np.bincount(row, weights=D, minlength=m)[row]
            r_both = np.bincount(row, weights=r, minlength=m)[row]
            p[two] = (r_both[two] + (D_both - D)[two] * p[two]) / D_both[two]
        price = slacks.side * p[slacks.end]
        return Move(p, (target - self.s * (self.price + price)) / self.price, price)

    def longest(self, move: Move) -> tuple[float, float]:
        """Return the largest primal and dual step lengths that keep slacks and prices nonnegative."""
        return _longest(self.s, move.s), _longest(self.price, move.price)

    def moved(self, move: Move, primal: float, dual: float) -> BoundState:
        """Return the state after a step of these lengths."""
        return BoundState(self.sides, self.p + dual * move.p, self.s + primal * move.s)

    def after(self, move: Move, primal: float, dual: float) -> float:
        """Return the complementarity after a step of these lengths."""
        k = self.sides.slacks.centered
        s, price = self.s[:k] + primal * move.s[:k], self.price[:k] + dual * move.price[:k]
        return float(s @ price)

    def _bend(self) -> tuple[Array, Array]:
        """Return the relaxed bounds of the curved ends, and their derivatives in ``y``, at most zero."""
        sides, k = self.sides, self.sides.curved
        return bent(sides.kind[k], sides.bound[k], sides.gamma[k], sides.sign[k] * self.p[k])


def _longest(value: Array, step: Array) -> float:
    """Return the largest ``alpha`` with ``value + alpha step >= 0``, for positive values."""
    if len(value) == 0:
        return np.inf
    fall = float(np.fmin.reduce(step / value))
    return -1 / fall if fall < 0 else np.inf
