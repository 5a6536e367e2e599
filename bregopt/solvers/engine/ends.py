"""The bounds of the rows as Newton's method sees them: slacks, multipliers, and what they add to the system.

Every finite bound of a row is an *end* with a multiplier ``p`` of its own; the row's is ``y = sum sign p``,
with sign 1 at a lower bound and -1 at an upper one. An end asks ``sign (a - b) = s`` of the activity ``a``,

    s p = nu                       a hard bound,
    t (gamma - p) = nu             a hinge, whose bound may give way by ``t`` at the price gamma,
    b = b(y), its bend             a soft bound with a scalar divergence (Kulis et al. 2009, eq. 22-23),

and an equality has one end without slack, whose ``p`` may have either sign. With ``s``, ``t`` and the bends
eliminated, all of it becomes one equation for each row, ``da + D dy = r`` with ``D >= 0``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Bounds, Penalty
from bregopt.program.bounds import bent

__all__ = ["Ends", "Move", "Sides", "Target"]

Subset = IntArray | slice


@dataclass(frozen=True, eq=False)
class Move:
    """A Newton step of all ends."""

    p: Array
    s: Array
    t: Array
    b: Array


@dataclass(frozen=True, eq=False)
class Target:
    """What the products ``s p`` and ``t (gamma - p)`` of all ends should be after a step."""

    s: Array
    t: Array


@dataclass(frozen=True, eq=False)
class Sides:
    """The finite bounds of all rows, which stay what they are; arrays of one length.

    Parameters
    ----------
    m : int
        The number of rows.
    row : int array
        The row that an end belongs to.
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
    def of(cls, bounds: Bounds) -> Sides:
        """Return the sides of some bounds."""
        same = (bounds.lo == bounds.hi) & (bounds.kind != Penalty.HINGE)
        lower = np.flatnonzero(np.isfinite(bounds.lo))
        upper = np.flatnonzero(np.isfinite(bounds.hi) & ~same)
        row = np.concatenate([lower, upper])
        sign = np.concatenate([np.ones(len(lower)), -np.ones(len(upper))])
        bound = np.concatenate([bounds.lo[lower], bounds.hi[upper]])
        return cls(bounds.m, row, sign, bound, bounds.kind[row], bounds.gamma[row], same[row])

    @cached_property
    def held(self) -> Subset:
        """The ends with a slack."""
        return _subset(~self.free)

    @cached_property
    def hinge(self) -> Subset:
        """The bounds that give way at a fixed price."""
        return _subset(self.kind == Penalty.HINGE)

    @cached_property
    def logdet(self) -> IntArray:
        """The bounds that bend as LogDet asks."""
        return np.flatnonzero(self.kind == Penalty.LOGDET)

    @cached_property
    def products(self) -> int:
        """How many ends have a slack, and how many a give."""
        return int(np.sum(~self.free)) + int(np.sum(self.kind == Penalty.HINGE))

    @cached_property
    def smooth(self) -> bool:
        """Whether any bound bends smoothly."""
        return bool((self.kind > Penalty.HINGE).any())

    @cached_property
    def two(self) -> IntArray:
        """The ends that share their row with another."""
        return np.flatnonzero(self._shared)

    @cached_property
    def one(self) -> Subset:
        """The ends that do not."""
        return _subset(~self._shared)

    @cached_property
    def row_of_one(self) -> Subset:
        """The rows of these."""
        row = self.row[self.one]
        return slice(None) if np.array_equal(row, np.arange(self.m)) else row

    @cached_property
    def _shared(self) -> Mask:
        shared: Mask = (np.bincount(self.row, minlength=self.m) == 2)[self.row]
        return shared

    def sums(self, p: Array) -> Array:
        """Return the sums ``sum sign p`` over the ends of each row, shape ``(m,)``."""
        return np.bincount(self.row, weights=self.sign * p, minlength=self.m).astype(float)


@dataclass(frozen=True, eq=False)
class Ends:
    """Where the ends of all rows are.

    Parameters
    ----------
    sides : Sides
    p, s, t, b : array
        Multiplier, slack, give of a hinge, and bend of a LogDet bound.
    """

    sides: Sides
    p: Array
    s: Array
    t: Array
    b: Array

    @classmethod
    def at(cls, sides: Sides, activity: Array, nu: float, y: Array | None = None) -> Ends:
        """Return the ends at a first activity, centred at `nu`; equalities at `y`."""
        row, bound, gamma, free, h = sides.row, sides.bound, sides.gamma, sides.free, sides.hinge
        size = np.maximum(np.abs(activity[row]), np.abs(bound))
        size[size == 0] = 1.0
        if y is None:
            s = np.maximum(np.abs(activity[row] - bound), 0.1 * size)
            p = np.where(free, 0.0, nu / s)
        else:
            own = np.maximum(sides.sign * y[row], 0.0)
            least = np.minimum(nu / np.maximum(own, 1e-300), np.where(own > 0, 1e3, 1.0) * size)
            s = np.maximum(sides.sign * (activity[row] - bound), least)
            p = np.where(free, y[row], np.maximum(own, nu / s))
        p[h] = np.minimum(p[h], gamma[h] / 2 if y is None else (1 - 1e-3) * gamma[h])
        t = np.zeros(len(row))
        t[h] = nu / (gamma[h] - p[h])
        # An upper bound that bends as LogDet asks has no bend at multipliers beyond gamma / b.
        bends = sides.logdet[~free[sides.logdet]]
        p[bends] = np.minimum(p[bends], 0.5 * gamma[bends] / bound[bends])
        return cls(sides, p, s, t, bound.copy())

    @cached_property
    def multipliers(self) -> Array:
        """``y``, shape ``(m,)``."""
        return self.sides.sums(self.p)

    @property
    def products(self) -> int:
        """The number of terms in the complementarity."""
        return self.sides.products

    def complementarity(self) -> float:
        """Return ``sum s p + t (gamma - p)``, by which the rows widen the gap."""
        k, h = self.sides.held, self.sides.hinge
        return float(self.s[k] @ self.p[k]) + float(self.t[h] @ (self.sides.gamma[h] - self.p[h]))

    def target(self, nu: float, after: Move | None = None) -> Target:
        """Return what the products should be: `nu`, less what a first step changes to second order."""
        if after is None:
            return Target(np.full(len(self.p), nu), np.full(len(self.p), nu))
        return Target(nu - after.s * after.p, nu + after.t * after.p)

    def stiffness(self) -> Array:
        """Return ``D`` of each end in ``sign da + D dp = r``, never negative."""
        D = -self._bend()[1]
        k, h = self.sides.held, self.sides.hinge
        with np.errstate(divide="ignore", invalid="ignore"):  # the engine stops where a range ends
            D[k] += self.s[k] / self.p[k]
            D[h] += self.t[h] / (self.sides.gamma[h] - self.p[h])
        return D

    def pull(self, activity: Array, target: Target) -> Array:
        """Return ``r`` of each end in ``sign da + D dp = r``."""
        r = -self.sides.sign * (activity[self.sides.row] - self._bend()[0])
        k, h = self.sides.held, self.sides.hinge
        with np.errstate(divide="ignore", invalid="ignore"):
            r[k] += target.s[k] / self.p[k]
            r[h] -= target.t[h] / (self.sides.gamma[h] - self.p[h])
        return r

    def of_rows(self, D: Array, r: Array) -> tuple[Array, Array]:
        """Return ``D`` and ``r`` of each row in ``da + D dy = r``; an infinite ``D`` where nothing asks."""
        row, sign, m = self.sides.row, self.sides.sign, self.sides.m
        one, two, alone = self.sides.one, self.sides.two, self.sides.row_of_one
        total, right = np.full(m, np.inf), np.zeros(m)
        total[alone], right[alone] = D[one], sign[one] * r[one]
        if len(two):
            weight = np.bincount(row[two], weights=1 / D[two], minlength=m)
            pull = np.bincount(row[two], weights=sign[two] * r[two] / D[two], minlength=m)
            k = np.flatnonzero(weight)
            total[k], right[k] = 1 / weight[k], pull[k] / weight[k]
        return total, right

    def move(self, dy: Array, D: Array, r: Array, target: Target) -> Move:
        """Return the step of all ends from that of the multipliers.

        Two ends of a row share ``dy``; what they do beyond that follows from the sum of their equations,
        from which ``da`` is gone.
        """
        row, sign, gamma, m = self.sides.row, self.sides.sign, self.sides.gamma, self.sides.m
        p = sign * dy[row]
        two = self.sides.two
        if len(two):
            D_both = np.bincount(row, weights=D, minlength=m)[row]
            r_both = np.bincount(row, weights=r, minlength=m)[row]
            p[two] = (r_both[two] + (D_both - D)[two] * p[two]) / D_both[two]
        s, t, b = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        k, h = self.sides.held, self.sides.hinge
        s[k] = (target.s[k] - self.s[k] * (self.p[k] + p[k])) / self.p[k]
        left = gamma[h] - self.p[h]
        t[h] = (target.t[h] - left * self.t[h] + self.t[h] * p[h]) / left
        if len(self.sides.logdet):
            k, zeta = self.sides.logdet, self._dual_bend()
            b[k] = gamma[k] / zeta - self.b[k] - self.b[k] / zeta * sign[k] * p[k]
        return Move(p, s, t, b)

    def longest(self, move: Move) -> tuple[float, float]:
        """Return the largest steps, primal and dual, at which nothing is negative that may not be."""
        k, h, bends = self.sides.held, self.sides.hinge, self.sides.logdet
        primal, dual = _longest(self.s[k], move.s[k]), _longest(self.p[k], move.p[k])
        primal = min(primal, _longest(self.t[h], move.t[h]))
        dual = min(dual, _longest(self.sides.gamma[h] - self.p[h], -move.p[h]))
        if len(bends):
            primal = min(primal, _longest(self.b[bends], move.b[bends]))
            dual = min(dual, _longest(self._dual_bend(), self.sides.sign[bends] * move.p[bends]))
        return primal, dual

    def moved(self, move: Move, primal: float, dual: float) -> Ends:
        """Return the ends after a step of these lengths."""
        return replace(
            self,
            p=self.p + dual * move.p,
            s=self.s + primal * move.s,
            t=self.t + primal * move.t,
            b=self.b + primal * move.b,
        )

    def _dual_bend(self) -> Array:
        """Return the dual slacks ``gamma / bound + sign p`` of the LogDet bounds."""
        k = self.sides.logdet
        return self.sides.gamma[k] / self.sides.bound[k] + self.sides.sign[k] * self.p[k]

    def _bend(self) -> tuple[Array, Array]:
        """Return the bends that the multipliers ask for, and their derivatives in ``y``, never positive."""
        sides = self.sides
        if not sides.smooth:
            return sides.bound, np.zeros(len(self.p))
        bend, slope = bent(sides.kind, sides.bound, sides.gamma, sides.sign * self.p)
        if len(sides.logdet):  # the primal-dual form, in which the bend is an unknown of its own
            slope[sides.logdet] = -self.b[sides.logdet] / self._dual_bend()
        return bend, slope


def _longest(value: Array, step: Array) -> float:
    """Return the largest ``alpha`` with ``value + alpha step >= 0``, for values above zero."""
    if len(value) == 0:
        return np.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fall = float(np.fmin.reduce(step / value))
    return -1 / fall if fall < 0 else np.inf


def _subset(mask: Mask) -> Subset:
    """Return what selects the marked ends: a view, where that is all of them."""
    return slice(None) if mask.all() else np.flatnonzero(mask)
