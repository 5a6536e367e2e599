"""The bounds of rows and variables in Newton's method: slacks, multipliers, and their terms in the system.

Every finite bound has its own multiplier ``p``. The multiplier of a row is ``y = sum sign p``, with sign 1 at
a lower bound and -1 at an upper one. The equations of a bound ``b`` in the activity ``a`` are

    sign (a - b) = s,        s p = nu                  for a hard bound,
    sign (a - b) = s - t,    t (gamma - p) = nu        for a hinge, violated by ``t`` at the price gamma,
    a = b(y), the relaxed bound                        for a soft bound with a scalar divergence (Kulis et al.
                                                       2009, eq. 22-23),
    a - b = s,   s p = gamma                           for a logarithmic row, which pays -gamma log(a - b).

An equality is one bound without slack, whose ``p`` may have either sign. The relaxed bound of LogDet is an
unknown of its own, with ``b (gamma / b0 + sign p) = gamma``. All unknowns besides the multipliers thus have
one form: a slack, ``s``, ``t`` or ``b``, and its price ``c + k p``, whose product has a target.
Eliminating the slacks leaves one equation for each row, ``da + D dy = r`` with ``D >= 0``.

Where all rows are equalities there are no slacks, and no state but the multipliers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.divergences import SCALARS
from bregopt.program import Bounds, Penalty
from bregopt.program.bounds import relaxed_bounds
from bregopt.records import cached_property, dataclass

# Least first slack, relative to the larger of a bound and its activity.
_LEAST_SLACK = 0.1
# First activity, relative to the size of its terms, that counts as zero. A first slack relative to round-off
# would give a multiplier of 1e17.
_CANCELLATION = 1e-10
# Largest first slack of a bound whose multiplier is known, in the same unit.
_LARGEST_SLACK = 1e3
# Least distance of a hinge's known multiplier from its price, relative to the price.
_HINGE_DISTANCE = 1e-3

Subset = IntArray | slice

_LEAST_PRICE = 1e-12  # of a first p and gamma - p, relative to gamma: smaller differences have no digits

# Members of an enumeration are slow to look up and to compare with arrays.
_HINGE, _LOG = int(Penalty.HINGE), int(Penalty.LOG)


class BoundEquations(NamedTuple):
    """The right-hand sides ``r`` of each row and of each bound, and the targets of the slacks' products."""

    of_rows: Array
    of_bounds: Array
    target: Array


class BoundStep(NamedTuple):
    """A Newton step in the multipliers, the slacks and their prices."""

    p: Array
    s: Array
    price: Array


@dataclass(frozen=True, eq=False)
class Slacks:
    """Slacks and their finite bounds: of hard bounds, hinges, relaxed bounds, and logarithmic rows.

    Parameters
    ----------
    bound_index : int array
        The finite bound of each slack.
    price_slope, price_constant : array
        ``price_constant + price_slope p`` is the price.
    centered : int
        The number of leading slacks whose product with the price has the target ``nu``.
    fixed_targets : array
        The targets of the other products.
    """

    bound_index: IntArray
    price_slope: Array
    price_constant: Array
    centered: int
    fixed_targets: Array

    def target(self, nu: float, predictor: BoundStep | None) -> Array:
        """Return the targets of the products, less the second-order terms of a predictor."""
        target = np.empty(len(self.bound_index))
        target[: self.centered] = nu
        target[self.centered :] = self.fixed_targets
        if predictor is not None:
            target[: self.centered] -= predictor.s[: self.centered] * predictor.price[: self.centered]
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
    pattern : tuple of bytes
        Which bounds are finite and equal, and their kinds: on these alone the sets of indices depend.
    """

    m: int
    row: IntArray
    sign: Array
    bound: Array
    kind: IntArray
    gamma: Array
    free: Mask
    pattern: tuple[bytes, ...]

    @classmethod
    def of(cls, bounds: Bounds, known: FiniteBounds | None = None) -> FiniteBounds:
        """Return the finite ones of `bounds`, with the indices of `known` ones of the same pattern."""
        below, above, equal = np.isfinite(bounds.lo), np.isfinite(bounds.hi), bounds.lo == bounds.hi
        pattern = below.tobytes(), above.tobytes(), equal.tobytes(), bounds.kind.tobytes()
        if known is not None and known.pattern == pattern:
            return known._with_numbers(bounds)
        same = equal & (bounds.kind != _HINGE)
        lower, upper = below.nonzero()[0], (above & ~same).nonzero()[0]
        row = np.concatenate([lower, upper])
        sign = np.where(np.arange(len(row)) < len(lower), 1.0, -1.0)
        bound = np.concatenate([bounds.lo[lower], bounds.hi[upper]])
        return cls(bounds.m, row, sign, bound, bounds.kind[row], bounds.gamma[row], same[row], pattern)

    def _with_numbers(self, bounds: Bounds) -> FiniteBounds:
        """Return the same finite bounds with other numbers."""
        own = dict(vars(self))
        for name in ("slack_origin", *(() if bounds.all_hard else ("slacks",))):
            own.pop(name, None)
        lower = self.sign > 0
        own["bound"] = np.where(lower, bounds.lo[self.row], bounds.hi[self.row])
        own["gamma"] = bounds.gamma[self.row]
        other = object.__new__(FiniteBounds)
        vars(other).update(own)
        return other

    @cached_property
    def slacks(self) -> Slacks:
        """The slacks of the finite bounds."""
        slacked, hinge, harmonic, log = self.slacked, self.hinge, self.harmonic, self.log
        ratio = self.gamma[harmonic] / self.bound[harmonic]
        price_constant = [np.zeros(len(slacked)), self.gamma[hinge], ratio, np.zeros(len(log))]
        price_slope = [np.ones(len(slacked)), -np.ones(len(hinge)), self.sign[harmonic], np.ones(len(log))]
        bound_index = np.concatenate([slacked, hinge, harmonic, log])
        centered = len(slacked) + len(hinge)
        return Slacks(
            bound_index,
            np.concatenate(price_slope),
            np.concatenate(price_constant),
            centered,
            self.gamma[bound_index[centered:]],
        )

    @cached_property
    def slacked(self) -> IntArray:
        """The finite bounds with a slack whose product with the multiplier vanishes."""
        return (~self.free & (self.kind != _LOG)).nonzero()[0]

    @cached_property
    def log(self) -> IntArray:
        """The bounds of logarithmic rows."""
        return (self.kind == _LOG).nonzero()[0]

    @cached_property
    def hinge(self) -> IntArray:
        """The bounds that may be violated at a fixed price."""
        return (self.kind == _HINGE).nonzero()[0]

    @cached_property
    def _is_harmonic(self) -> Mask:
        """The mask of the bounds whose inverse, relaxed, is affine in the multiplier: those under LogDet."""
        if self.kind.max(initial=0) <= _HINGE:
            return np.zeros(len(self.kind), dtype=bool)
        return np.isin(self.kind, [kind for kind, scalar in SCALARS.items() if scalar.harmonic])

    @cached_property
    def harmonic(self) -> IntArray:
        """The bounds relaxed under LogDet."""
        return self._is_harmonic.nonzero()[0]

    @cached_property
    def relaxed(self) -> IntArray:
        """The bounds relaxed under another divergence, without a pair of slack and price."""
        own = (self.kind > _HINGE) & (self.kind != _LOG)
        return (own & ~self._is_harmonic).nonzero()[0]

    @cached_property
    def slack_origin(self) -> Array:
        """The point from which ``sign (a - slack_origin)`` is the slack: the bound, or zero under LogDet."""
        return np.where(self._is_harmonic, 0.0, self.bound)

    @cached_property
    def paired(self) -> IntArray:
        """The finite bounds that share their row with another."""
        return self._is_paired.nonzero()[0]

    @cached_property
    def unpaired(self) -> Subset:
        """The finite bounds that are alone in their row."""
        return slice(None) if len(self.paired) == 0 else (~self._is_paired).nonzero()[0]

    @cached_property
    def row_of_unpaired(self) -> Subset:
        """The rows of the bounds in :attr:`unpaired`."""
        row = self.row[self.unpaired]
        return slice(len(row)) if np.array_equal(row, np.arange(len(row))) else row

    @cached_property
    def one_each(self) -> bool:
        """Whether each row has exactly one finite bound, in order."""
        return np.array_equal(self.row, np.arange(self.m))

    @cached_property
    def exact(self) -> bool:
        """Whether each row is a hard equality, or has no finite bound."""
        return bool(np.logical_and.reduce(self.free)) and not np.logical_or.reduce(self.kind)

    @cached_property
    def no_slacks(self) -> Array:
        """``D`` of each row where all are :attr:`exact`."""
        D = np.full(self.m, np.inf)
        D[self.row] = 0.0
        return D

    @property
    def centered(self) -> int:
        """The number of slacks whose product with the price has the target ``nu``."""
        return 0 if self.exact else self.slacks.centered

    @cached_property
    def _is_paired(self) -> Mask:
        return (np.bincount(self.row, minlength=self.m) == 2)[self.row]

    def missing(self, activity: Array) -> Array:
        """Return ``b - a`` of each row where all are :attr:`exact`, zero without a finite bound."""
        if self.one_each:
            return np.asarray(self.bound - activity)
        r = np.zeros(self.m)
        r[self.row] = self.bound - activity[self.row]
        return r

    def row_sums(self, p: Array) -> Array:
        """Return the sums ``sum sign p`` over the finite bounds of each row, shape ``(m,)``."""
        signed: Array = self.sign * p
        return signed if self.one_each else np.bincount(self.row, signed, self.m).astype(float, copy=False)

    def slack_sums(self, term: Array) -> Array:
        """Return the sums of `term` over the slacks of each bound."""
        if len(self.hinge) or len(self.harmonic):  # their bounds have two slacks each
            return np.bincount(self.slacks.bound_index, term, len(self.row)).astype(float, copy=False)
        sums = np.zeros(len(self.row))
        sums[self.slacks.bound_index] = term
        return sums


class BoundState:
    """The multipliers and slacks of the finite bounds of all rows.

    Parameters
    ----------
    finite : FiniteBounds
    p : array
        The bounds' multipliers.
    s : array
        The slacks.

    Attributes
    ----------
    multipliers : array of shape (m,)
        ``y``.
    price : array
        The prices of the slacks.
    """

    def __init__(self, finite: FiniteBounds, p: Array, s: Array) -> None:
        self.finite, self.p, self.s, slacks = finite, p, s, finite.slacks
        self.multipliers = finite.row_sums(p)
        self.price: Array = slacks.price_constant + slacks.price_slope * p[slacks.bound_index]

    @classmethod
    def at(
        cls,
        finite: FiniteBounds,
        activity: Array,
        magnitude: Array,
        nu: float,
        y: Array,
    ) -> BoundState:
        """Return the state at a first activity, centered at `nu`, close to `y` (NaN where unknown).

        `magnitude` is the size of the terms of each activity, whose sum may be round-off.
        """
        row, bound, gamma, free, h = finite.row, finite.bound, finite.gamma, finite.free, finite.hinge
        size = np.abs(activity[row])
        size[size <= _CANCELLATION * magnitude[row]] = 0.0
        size = np.maximum(size, np.abs(bound))
        size[size == 0] = 1.0
        distance, known = finite.sign * (activity[row] - bound), ~np.isnan(y[row])
        multiplier = np.maximum(finite.sign * np.where(known, y[row], 0.0), 0.0)
        least = size.copy()
        active = multiplier > 0
        least[active] = np.minimum(nu / multiplier[active], _LARGEST_SLACK * size[active])
        unknown = np.maximum(np.abs(distance), _LEAST_SLACK * size)
        s = np.where(known, np.maximum(distance, least), unknown)
        p = np.where(free, np.where(known, y[row], 0.0), np.maximum(multiplier, nu / s))
        p[h] = np.minimum(p[h], (1 - _HINGE_DISTANCE) * gamma[h])
        idle = h[multiplier[h] == 0]
        p[idle], s[idle] = _central_hinges(distance[idle], gamma[idle], nu)
        violation = nu / (gamma[h] - p[h])
        # Under LogDet an upper bound cannot be relaxed at multipliers beyond gamma / b.
        limited = finite.harmonic[~free[finite.harmonic]]
        p[limited] = np.minimum(p[limited], 0.5 * gamma[limited] / bound[limited])
        log = finite.log
        p[log] = np.where(multiplier[log] > 0, multiplier[log], gamma[log] / s[log])
        return cls(finite, p, np.concatenate([s[finite.slacked], violation, bound[finite.harmonic], s[log]]))

    def complementarity(self) -> float:
        """Return ``sum s p + t (gamma - p)``, the contribution of the bounds to the duality gap."""
        k = self.finite.slacks.centered
        return float(self.s[:k] @ self.price[:k]) if k else 0.0

    @cached_property
    def _diagonal(self) -> Array:
        """``D >= 0`` of each bound in ``sign da + D dp = r``."""
        D = self.finite.slack_sums(self.s / self.price)
        if len(self.finite.relaxed):
            D[self.finite.relaxed] -= self._relaxed_bounds()[1]
        return D

    def row_diagonal(self) -> Array | None:
        """Return ``D`` of each row in ``da + D dy = r``; infinite for a row without finite bounds.

        It is None if a multiplier is at an end of its range, or so close that the system overflows.
        """
        finite, D = self.finite, self._diagonal
        if not math.isfinite(np.add.reduce(D)):
            return None
        if finite.one_each:
            return D.copy()
        total, paired = finite.no_slacks.copy(), finite.paired
        total[finite.row_of_unpaired] = D[finite.unpaired]
        if len(paired):
            weight = np.bincount(finite.row[paired], 1 / D[paired], finite.m)
            k = weight.nonzero()[0]
            total[k] = 1 / weight[k]
        return total

    def equations(self, activity: Array, nu: float, predictor: BoundStep | None) -> BoundEquations:
        """Return the right-hand sides at an activity, towards `nu` and with a predictor's second order."""
        finite, slack_origin = self.finite, self.finite.slack_origin
        if len(finite.relaxed):
            slack_origin = slack_origin.copy()
            slack_origin[finite.relaxed] = self._relaxed_bounds()[0]
        target = finite.slacks.target(nu, predictor)
        r = finite.slack_sums(finite.slacks.price_slope * target / self.price)
        r -= finite.sign * ((activity if finite.one_each else activity[finite.row]) - slack_origin)
        return BoundEquations(self._of_rows(r), r, target)

    def _of_rows(self, r: Array) -> Array:
        """Return ``r`` of each row in ``da + D dy = r`` from those of the bounds."""
        finite, paired, D = self.finite, self.finite.paired, self._diagonal
        if finite.one_each:
            return np.asarray(finite.sign * r)
        total = np.zeros(finite.m)
        total[finite.row_of_unpaired] = (finite.sign * r)[finite.unpaired]
        if len(paired):
            weight = np.bincount(finite.row[paired], 1 / D[paired], finite.m)
            rhs = np.bincount(finite.row[paired], finite.sign[paired] * r[paired] / D[paired], finite.m)
            k = weight.nonzero()[0]
            total[k] = rhs[k] / weight[k]
        return total

    def step(self, dy: Array, equations: BoundEquations) -> BoundStep:
        """Return the step of all bounds from that of the multipliers of the rows.

        The two bounds of a row share ``dy``; the sum of their equations, which does not contain ``da``,
        determines the rest.
        """
        row, sign, slacks, m = self.finite.row, self.finite.sign, self.finite.slacks, self.finite.m
        p = sign * (dy if self.finite.one_each else dy[row])
        _, r, target = equations
        paired, D = self.finite.paired, self._diagonal
        if len(paired):
            D_both = np.bincount(row, weights=D, minlength=m)[row]
            r_both = np.bincount(row, weights=r, minlength=m)[row]
            p[paired] = (r_both[paired] + (D_both - D)[paired] * p[paired]) / D_both[paired]
        price = slacks.price_slope * p[slacks.bound_index]
        return BoundStep(p, (target - self.s * (self.price + price)) / self.price, price)

    def step_lengths(self, step: BoundStep) -> tuple[float, float]:
        """Return the largest primal and dual step lengths that keep slacks and prices nonnegative."""
        primal = float(np.fmin.reduce(step.s / self.s, initial=0.0))
        dual = float(np.fmin.reduce(step.price / self.price, initial=0.0))
        return -1 / primal if primal < 0 else math.inf, -1 / dual if dual < 0 else math.inf

    def after_step(self, step: BoundStep, primal: float, dual: float) -> BoundState:
        """Return the state after a step of these lengths."""
        return BoundState(self.finite, self.p + dual * step.p, self.s + primal * step.s)

    def complementarity_after(self, step: BoundStep, primal: float, dual: float) -> float:
        """Return the complementarity after a step of these lengths."""
        k = self.finite.slacks.centered
        if not k:
            return 0.0
        s, price = self.s[:k] + primal * step.s[:k], self.price[:k] + dual * step.price[:k]
        return float(s @ price)

    def _relaxed_bounds(self) -> tuple[Array, Array]:
        """Return the relaxed bounds except LogDet's, and their derivatives in ``y``, at most zero."""
        finite, k = self.finite, self.finite.relaxed
        return relaxed_bounds(finite.kind[k], finite.bound[k], finite.gamma[k], finite.sign[k] * self.p[k])


def _central_hinges(distance: Array, gamma: Array, nu: float) -> tuple[Array, Array]:
    """Return ``p`` and ``s`` of hinges with ``s p = t (gamma - p) = nu`` and ``s - t`` the distance.

    Elsewhere ``s - t`` would be wrong by far more than the distance if `nu` is large beside the price.
    """
    size = np.abs(distance) * gamma
    smaller = 2 * nu * gamma / (size + 2 * nu + np.hypot(size, 2 * nu))  # of p and gamma - p
    smaller = np.maximum(smaller, _LEAST_PRICE * gamma)
    p = np.where(distance > 0, smaller, gamma - smaller)
    return p, nu / p
