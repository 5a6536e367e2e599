"""The rows and variables that act at an answer, and how far the answer is from a change of these.

A hard row with a multiplier acts as an equality; without one it has no effect. A soft row acts by its relaxed
bound, and a hinge that is paid has a fixed multiplier. Near an answer at which every row is in exactly one of
these states (strict complementarity) the states do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.divergences import SCALARS
from bregopt.program import Bounds, Penalty, Program
from bregopt.program.bounds import relaxed_bounds

__all__ = ["ActiveRows", "Units", "active_rows", "free_variables"]

_HINGE, _LOG = int(Penalty.HINGE), int(Penalty.LOG)


class Units(NamedTuple):
    """Magnitudes that activities and multipliers are compared in, of shape ``(m,)``; those of variables.

    Parameters
    ----------
    activity, multiplier : array of shape (m,)
    variable, cost : array of shape (k,)
        Of ordinary variables and their reduced costs.
    """

    activity: Array
    multiplier: Array
    variable: Array
    cost: Array

    @classmethod
    def of(cls, program: Program, size: float, price: float) -> Units:
        """Return the units of a program whose matrices have a size, and whose multipliers a price."""
        rows = np.maximum(program.row_units, TINY)
        columns = np.maximum(program.column_sizes, TINY)
        return cls(rows * size, price / rows, size / columns, price * columns)


@dataclass(frozen=True, eq=False)
class ActiveRows:
    """The state of each row.

    Parameters
    ----------
    bounds : Bounds
    side : array of shape (m,)
        1 where the lower bound acts, -1 for the upper one, 0 for rows that do not act.
    paid : mask of shape (m,)
        Hinges outside of their bounds: their multiplier is `side` times ``gamma``.
    """

    bounds: Bounds
    side: Array
    paid: Mask

    @property
    def free(self) -> IntArray:
        """The rows whose multipliers are unknowns."""
        return np.flatnonzero((self.side != 0) & ~self.paid)

    @property
    def fixed_multipliers(self) -> Array:
        """The multipliers of the other rows: those of hinges that are paid, otherwise zero."""
        return np.where(self.paid, self.side * np.where(self.paid, self.bounds.gamma, 0.0), 0.0)

    def same_as(self, other: ActiveRows) -> bool:
        """Whether all rows have the same states."""
        return np.array_equal(self.side, other.side) and np.array_equal(self.paid, other.paid)

    @property
    def acting(self) -> Array:
        """The bound that acts on each row; zero where none does."""
        bounds = self.bounds
        return np.where(self.side > 0, bounds.lo, np.where(self.side < 0, bounds.hi, 0.0))

    def target(self, y: Array) -> tuple[Array, Array]:
        """Return the activity that each row must have, and minus its derivative in the multiplier."""
        value, slope = relaxed_bounds(self.bounds.kind, self.acting, self.bounds.gamma, y)
        return value, -slope

    def bound_slope(self, y: Array) -> Array:
        """Return the derivative of the target in the bound that acts."""
        bound, slope = self.acting, np.where(self.side != 0, 1.0, 0.0)
        value, _ = self.target(y)
        for kind in self.bounds.penalties:
            rows = np.flatnonzero((self.bounds.kind == int(kind)) & (self.side != 0))
            slope[rows] = SCALARS[kind].bound_slope(value[rows], bound[rows])
        return slope

    def weight_slope(self, y: Array) -> Array:
        """Return the derivative of the target in the weight of the penalty."""
        _, decrease = self.target(y)
        return np.where(decrease > 0, decrease * y / self.bounds.gamma, 0.0)

    def margins(self, a: Array, y: Array, units: Units) -> tuple[float, float]:
        """Return the smallest multiplier of a row that acts, and the smallest slack of one that does not.

        Negative for rows that are in a wrong state; infinite where no row is an inequality. A paid hinge
        counts by its violation, another one also by its distance from being paid.
        """
        bounds, side = self.bounds, self.side
        if bounds.equal.all():
            return np.inf, np.inf
        size = y * side / units.multiplier
        inequality = (side != 0) & ~self.paid & ((bounds.lo < bounds.hi) & (bounds.kind <= _HINGE))
        violation = (self.acting - a) * side / units.activity
        curved = (side != 0) & (bounds.lo < bounds.hi) & (bounds.kind > _HINGE) & (bounds.kind != _LOG)
        hinge = (bounds.kind == _HINGE) & (side != 0) & ~self.paid
        multipliers = [size[inequality], violation[curved]]
        multipliers.append((bounds.gamma[hinge] - np.abs(y[hinge])) / units.multiplier[hinge])
        slack = np.minimum(a - bounds.lo, bounds.hi - a) / units.activity
        slacks = [slack[side == 0], violation[self.paid]]
        least, shortest = (float(np.concatenate(part).min(initial=np.inf)) for part in (multipliers, slacks))
        return least, shortest


def active_rows(bounds: Bounds, a: Array, y: Array, units: Units) -> ActiveRows:
    """Return the state of each row at given activities and multipliers.

    Of slack and multiplier, each in its unit, the larger one decides.
    """
    if bounds.equal.all():
        return ActiveRows(bounds, np.ones(bounds.m), np.zeros(bounds.m, dtype=bool))
    t = y / units.multiplier
    below, above = (a - bounds.lo) / units.activity, (bounds.hi - a) / units.activity
    side = np.where(t > below, 1.0, np.where(-t > above, -1.0, 0.0))
    equal = bounds.lo == bounds.hi
    hinge = bounds.kind == _HINGE
    side = np.where(equal & (side == 0), 1.0, side)
    outside = np.where(side > 0, -below, -above)
    room = (np.where(hinge, bounds.gamma, 0.0) - np.abs(y)) / units.multiplier
    paid = hinge & (side != 0) & (outside > room)
    side = np.where(equal & ~paid & (bounds.kind <= _HINGE), 1.0, side)
    always = (equal & (bounds.kind > _HINGE)) | (bounds.kind == _LOG)
    side = np.where(always, 1.0, side)
    return ActiveRows(bounds, side, paid)


def free_variables(program: Program, u: Array, reduced: Array, units: Units) -> tuple[IntArray, float]:
    """Return the variables strictly inside their box, and the margin of this choice.

    Parameters
    ----------
    program : Program
    u, reduced : array of shape (k,)
        The variables and their reduced costs.
    units : Units

    Returns
    -------
    int array
    float
        The least of the distances from the box and of the reduced costs of the others, relative.
    """
    if program.k == 0:
        return np.zeros(0, dtype=np.intp), np.inf
    room = np.minimum(u - program.u_lo, program.u_hi - u) / units.variable
    price = np.abs(reduced) / units.cost
    fixed = program.u_lo == program.u_hi
    inside = (room > price) & ~fixed
    margin = float(np.where(inside, room, np.where(fixed, np.inf, price)).min(initial=np.inf))
    return np.flatnonzero(inside), margin
