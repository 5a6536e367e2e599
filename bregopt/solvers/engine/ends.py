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

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Bounds, Penalty

__all__ = ["Ends", "Move", "Target"]


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
class Ends:
    """The ends of all rows; arrays of one length.

    Parameters
    ----------
    row : int array
        The row that an end belongs to.
    sign : array
        1 at a lower bound, -1 at an upper bound; 1 at an equality.
    bound, kind, gamma : array
        Of the row, see :class:`~bregopt.program.Bounds`.
    free : boolean array
        Marks equalities.
    p, s, t, b : array
        Multiplier, slack, give of a hinge, and bend of a LogDet bound.
    """

    row: IntArray
    sign: Array
    bound: Array
    kind: IntArray
    gamma: Array
    free: Mask
    p: Array
    s: Array
    t: Array
    b: Array

    @classmethod
    def at(cls, bounds: Bounds, activity: Array, nu: float, y: Array | None = None) -> Ends:
        """Return the ends of all finite bounds at a first activity, centred at `nu`; equalities at `y`."""
        same = (bounds.lo == bounds.hi) & (bounds.kind != Penalty.HINGE)
        lower = np.flatnonzero(np.isfinite(bounds.lo))
        upper = np.flatnonzero(np.isfinite(bounds.hi) & ~same)
        row = np.concatenate([lower, upper])
        sign = np.concatenate([np.ones(len(lower)), -np.ones(len(upper))])
        bound = np.concatenate([bounds.lo[lower], bounds.hi[upper]])
        kind, gamma, free = bounds.kind[row], bounds.gamma[row], same[row]
        size = np.maximum(np.abs(activity[row]), np.abs(bound))
        size[size == 0] = 1.0
        if y is None:
            s = np.maximum(np.abs(activity[row] - bound), 0.1 * size)
            p = np.where(free, 0.0, nu / s)
        else:
            own = np.maximum(sign * y[row], 0.0)
            s = np.maximum(sign * (activity[row] - bound), np.minimum(nu / np.maximum(own, 1e-300), size))
            p = np.where(free, y[row], np.maximum(own, nu / s))
        hinge = kind == Penalty.HINGE
        p[hinge] = np.minimum(p[hinge], gamma[hinge] / 2 if y is None else (1 - 1e-3) * gamma[hinge])
        t = np.zeros(len(row))
        t[hinge] = nu / (gamma[hinge] - p[hinge])
        # An upper bound that bends as LogDet asks has no bend at multipliers beyond gamma / b.
        bends = (kind == Penalty.LOGDET) & ~free
        p[bends] = np.minimum(p[bends], 0.5 * gamma[bends] / bound[bends])
        return cls(row, sign, bound, kind, gamma, free, p, s, t, bound.copy())

    @property
    def hinge(self) -> Mask:
        """Marks the bounds that give way at a fixed price."""
        mask: Mask = self.kind == Penalty.HINGE
        return mask

    @property
    def dual_bend(self) -> Array:
        """The dual slack ``gamma / bound + sign p`` of the bend of a LogDet bound; one for other ends."""
        slack = np.ones(len(self.row))
        k = self.kind == Penalty.LOGDET
        slack[k] = self.gamma[k] / self.bound[k] + self.sign[k] * self.p[k]
        return slack

    def multipliers(self, m: int) -> Array:
        """Return ``y``, shape ``(m,)``."""
        return self.row_multipliers(self.p, m)

    def row_multipliers(self, p: Array, m: int) -> Array:
        """Return the sums ``sum sign p`` over the ends of each row, shape ``(m,)``."""
        return np.bincount(self.row, weights=self.sign * p, minlength=m).astype(float)

    def complementarity(self) -> float:
        """Return ``sum s p + t (gamma - p)``, by which the rows widen the gap."""
        h = self.hinge
        slack = float(self.s[~self.free] @ self.p[~self.free])
        return slack + float(self.t[h] @ (self.gamma[h] - self.p[h]))

    @property
    def products(self) -> int:
        """The number of terms in the complementarity."""
        return int((~self.free).sum() + self.hinge.sum())

    def target(self, nu: float, after: Move | None = None) -> Target:
        """Return what the products should be: `nu`, less what a first step changes to second order."""
        if after is None:
            return Target(np.full(len(self.row), nu), np.full(len(self.row), nu))
        return Target(nu - after.s * after.p, nu + after.t * after.p)

    def stiffness(self) -> Array:
        """Return ``D`` of each end in ``sign da + D dp = r``, never negative."""
        _, slope = self._bend()
        D = -slope
        held, h = ~self.free, self.hinge
        with np.errstate(divide="ignore", invalid="ignore"):  # the engine stops where a range ends
            D[held] += self.s[held] / self.p[held]
            D[h] += self.t[h] / (self.gamma[h] - self.p[h])
        return D

    def pull(self, activity: Array, target: Target) -> Array:
        """Return ``r`` of each end in ``sign da + D dp = r``."""
        bend, _ = self._bend()
        r = -self.sign * (activity[self.row] - bend)
        held, h = ~self.free, self.hinge
        with np.errstate(divide="ignore", invalid="ignore"):
            r[held] += target.s[held] / self.p[held]
            r[h] -= target.t[h] / (self.gamma[h] - self.p[h])
        return r

    def of_rows(self, m: int, D: Array, r: Array) -> tuple[Array, Array]:
        """Return ``D`` and ``r`` of each row in ``da + D dy = r``; an infinite ``D`` where nothing asks."""
        alone = np.bincount(self.row, minlength=m) == 1
        total = np.full(m, np.inf)
        right = np.zeros(m)
        one = alone[self.row]
        total[self.row[one]], right[self.row[one]] = D[one], (self.sign * r)[one]
        two = ~one
        if two.any():
            weight = np.bincount(self.row[two], weights=1 / D[two], minlength=m)
            pull = np.bincount(
                self.row[two], weights=(self.sign * r / np.where(two, D, 1.0))[two], minlength=m
            )
            k = np.flatnonzero(weight)
            total[k], right[k] = 1 / weight[k], pull[k] / weight[k]
        return total, right

    def move(self, dy: Array, D: Array, r: Array, target: Target) -> Move:
        """Return the step of all ends from that of the multipliers.

        Two ends of a row share ``dy``; what they do beyond that follows from the sum of their equations,
        from which ``da`` is gone.
        """
        m = len(dy)
        p = self.sign * dy[self.row]
        two = (np.bincount(self.row, minlength=m) == 2)[self.row]
        if two.any():
            D_both = np.bincount(self.row, weights=D, minlength=m)[self.row]
            r_both = np.bincount(self.row, weights=r, minlength=m)[self.row]
            p[two] = (r_both[two] + (D_both - D)[two] * p[two]) / D_both[two]
        s, t, b = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        k = ~self.free
        s[k] = (target.s[k] - self.s[k] * (self.p[k] + p[k])) / self.p[k]
        h = self.hinge
        left = self.gamma[h] - self.p[h]
        t[h] = (target.t[h] - left * self.t[h] + self.t[h] * p[h]) / left
        k = self.kind == Penalty.LOGDET
        zeta = self.dual_bend[k]
        b[k] = self.gamma[k] / zeta - self.b[k] - self.b[k] / zeta * self.sign[k] * p[k]
        return Move(p, s, t, b)

    def longest(self, move: Move) -> tuple[float, float]:
        """Return the largest steps, primal and dual, at which nothing is negative that may not be."""
        held, h, k = ~self.free, self.hinge, self.kind == Penalty.LOGDET
        primal = min(
            _longest(self.s[held], move.s[held]),
            _longest(self.t[h], move.t[h]),
            _longest(self.b[k], move.b[k]),
        )
        dual = min(
            _longest(self.p[held], move.p[held]),
            _longest(self.gamma[h] - self.p[h], -move.p[h]),
            _longest(self.dual_bend[k], self.sign[k] * move.p[k]),
        )
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

    def _bend(self) -> tuple[Array, Array]:
        """Return the bends that the multipliers ask for, and their derivative in ``y``, never positive."""
        bend, slope = self.bound.copy(), np.zeros(len(self.row))
        y = self.sign * self.p
        k = self.kind == Penalty.LOGDET
        zeta = self.dual_bend[k]
        bend[k], slope[k] = self.gamma[k] / zeta, -self.b[k] / zeta
        k = self.kind == Penalty.VON_NEUMANN
        bend[k] = self.bound[k] * np.exp(np.minimum(-y[k] / self.gamma[k], 700.0))
        slope[k] = -bend[k] / self.gamma[k]
        k = self.kind == Penalty.SQUARE
        bend[k] -= y[k] / (2 * self.gamma[k])
        slope[k] = -0.5 / self.gamma[k]
        return bend, slope


def _longest(value: Array, step: Array) -> float:
    """Return the largest ``alpha`` with ``value + alpha step >= 0``."""
    down = step < 0
    return float(np.min(-value[down] / step[down], initial=np.inf))
