"""Slacks and absolute values that linear and conic programs state by variables of their own.

Without these variables the objective has a hinge, and Newton's system fewer unknowns:

- A *slack* that prices the violation of its row is a hinge: the cost ``c xi`` with ``xi >= 0`` in the row
  ``a + b xi >= lo``, ``b > 0``, is ``c / b max(lo - a, 0)``. A margin problem keeps only the margin as a
  variable. A slack without cost and bounds meets its row, whatever the others are, so that the row is not
  needed. Variables that occur in such rows alone are idle: along them the set of optima has no end, and there
  would be no central path.
- An *absolute value* has a price and two rows, ``u >= a - b`` and ``u >= d - a``. It is a hinge on the row
  ``a``, which pays outside of an interval.
- A *difference* states ``p max(a, 0) + q max(-a, 0)`` as ``a = u - l`` with ``u, l >= 0`` and the costs
  ``p u`` and ``q l``: worst cases over intervals of coefficients. For a given ``a`` the best values have the
  cost ``(p - q) a / 2 + (p + q) |a| / 2``. The first part is linear in the other terms of the row, the second
  one is a hinge on it. A multiplier ``y`` of the hinge is ``y - (p - q) / 2`` in the equality.
- *Opposite rows* ``u >= b + a`` and ``u >= d - a`` bound a variable that other rows share, as in the norm
  ``sum_ij u_ij <= t``. Their slacks ``l, r >= 0`` replace it: ``u = (l + r + b + d) / 2`` leaves the one
  equality ``a = (r - l + d - b) / 2``.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, scattered
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.svec import coefficients, comparable
from bregopt.presolve.variables import in_ratios
from bregopt.program import Answer, Block, Penalty, Program, Start, StopReason
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass, replace

# --- Slacks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WithoutSlacks(Reduced):
    """A program without its slack variables, and without idle ones, which are as near to zero as possible.

    Parameters
    ----------
    kept, slack, row : int array
        The remaining variables, the slack variables, and the rows of these.
    weight : array
        Coefficients of the slack variables in their rows.
    left : int array
        The remaining rows.
    """

    rescales: ClassVar[bool] = True  # programs with hinges have no DIMACS errors
    kept: IntArray
    slack: IntArray
    row: IntArray
    weight: Array
    left: IntArray

    @property
    def summary(self) -> str:
        count = len(self.slack)
        return f"{count} slack variable{'s' if count > 1 else ''} folded into rows"

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept], y=start.y[self.left])

    def restore(self, answer: Answer) -> Answer:
        whole, slack, row = self.whole, self.slack, self.row
        ends, least = (whole.bounds.lo[row], whole.bounds.hi[row]), whole.u_lo[slack]
        u = np.clip(0.0, whole.u_lo, whole.u_hi)
        if answer.stop is StopReason.UNBOUNDED:  # a ray: the rows and the box without their bounds
            lo, hi, least = (np.where(np.isfinite(end), 0.0, end) for end in (*ends, least))
            ends, u = (lo, hi), 0 * u
        u[self.kept], u[slack] = answer.u, np.where(np.isfinite(least), least, 0.0)
        activity = whole.activity(answer.X, u)[row]
        u[slack] = np.maximum(u[slack] + (np.clip(activity, *ends) - activity) / self.weight, least)
        return with_multipliers(answer, lambda own: scattered(self.left, own, whole.m), u=u)


# Pays on: 300 triplets.
# Pays on: 100 forms whose values nothing needs, n = 40.
def slacks(program: Program, tolerances: Tolerances) -> WithoutSlacks | None:
    """Replace priced variables of one row by a hinge on it; leave out the row of a free one."""
    slack, row, weight = _slacks(program)
    if len(slack) == 0:
        return None
    bounds, priced = program.bounds, program.c[slack] > 0
    kind, gamma, lo, hi = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
    of, least, cost = row[priced], program.u_lo[slack[priced]], program.c[slack[priced]]
    kind[of], gamma[of] = Penalty.HINGE, cost / np.abs(weight[priced])
    lo[of] -= weight[priced] * least
    hi[of] -= weight[priced] * least
    left, others = np.arange(program.m), np.ones(program.k, dtype=bool)
    others[slack] = False
    kept = others.nonzero()[0]
    smaller = replace(program, bounds=replace(bounds, lo=lo, hi=hi, kind=kind, gamma=gamma))
    if not priced.all():
        left = np.setdiff1d(left, row[~priced])
        smaller = smaller.of_rows(left)
        used = np.bincount(smaller.B.indices[smaller.B.data != 0], minlength=program.k) > 0
        kept = kept[(used | (program.c != 0) | program.in_cones)[kept]]
    folded = replace(smaller.of_variables(kept), offset=program.offset + float(cost @ least))
    return WithoutSlacks(program, folded, kept, slack, row, weight, left)


def _slacks(program: Program) -> tuple[IntArray, IntArray, Array]:
    """Return slack variables, at most one for each row, with their rows and coefficients there."""
    priced = (program.c > 0) & np.isfinite(program.u_lo) & np.isinf(program.u_hi)
    possible = priced | (program.free & (program.c == 0))
    if not possible.any():
        none = np.zeros(0, dtype=np.intp)
        return none, none, np.zeros(0)
    (starts, rows, values), bounds = program.by_columns, program.bounds
    slack = ((np.diff(starts) == 1) & possible).nonzero()[0]
    row, weight = rows[starts[slack]], values[starts[slack]]
    below, above = np.isfinite(bounds.lo[row]), np.isfinite(bounds.hi[row])
    relieves = np.where(weight > 0, below & ~above, above & ~below) | ~priced[slack]
    relieves &= bounds.hard[row] & (below | above)
    slack, row, weight = slack[relieves], row[relieves], weight[relieves]
    row, first = np.unique(row, return_index=True)
    return slack[first], row, weight[first]


# --- Absolute values ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Folded(Reduced):
    """A program with hinges for its absolute values.

    Parameters
    ----------
    kept, left : int array
        The remaining variables and rows.
    variable : int array
        The absolute values.
    rows : int array of shape (2, count)
        Their rows: the first one is left, as a hinge.
    scale : array of shape (2, count)
        The absolute coefficients of the variables in these rows.
    least : array of shape (count,)
        The values of the variables inside of the hinges' intervals.
    exact : boolean array
        Marks those without an interval, whose two rows pay the whole price.
    """

    kept: IntArray
    left: IntArray
    variable: IntArray
    rows: IntArray
    scale: Array
    least: Array
    exact: Mask

    @property
    def summary(self) -> str:
        count = len(self.variable)
        return f"{count} absolute value{'s' if count > 1 else ''} folded into hinges"

    def shrink(self, start: Start) -> Start:
        y = start.y.copy()
        y[self.rows[0]] += self._signs * start.y[self.rows[1]] * self.scale[1] / self.scale[0]
        return replace(start, u=start.u[self.kept], y=y[self.left])

    def restore(self, answer: Answer) -> Answer:
        place = np.searchsorted(self.left, self.rows[0])
        activity = self.program.activity(answer.X, answer.u)[place]
        bounds, least = self.program.bounds, self.least
        if answer.stop is StopReason.UNBOUNDED:
            missed, least = np.abs(activity), 0 * least
        else:
            missed = np.maximum(np.maximum(bounds.lo[place] - activity, activity - bounds.hi[place]), 0.0)
        u = np.zeros(self.whole.k)
        u[self.kept], u[self.variable] = answer.u, least + missed / self.scale[0]
        costs = 0.0 if answer.stop is StopReason.INFEASIBLE else 1.0
        return with_multipliers(answer, lambda own: self._multipliers(own, costs), u=u)

    @property
    def _signs(self) -> Array:
        """1 where the two rows have the same coefficients but for the variable, -1 where opposite ones."""
        rises = np.isfinite(self.whole.bounds.lo[self.rows])
        return np.where(rises[0] == rises[1], -1.0, 1.0)

    def _multipliers(self, own: Array, costs: float) -> Array:
        """Return multipliers of all rows: the two of an absolute value share its price."""
        y = scattered(self.left, own, self.whole.m)
        rises = np.where(np.isfinite(self.whole.bounds.lo[self.rows]), 1.0, -1.0)
        price = costs * self.whole.c[self.variable]
        net = np.clip(rises[0] * y[self.rows[0]] * self.scale[0], -price, price)
        shares = np.maximum(net, 0.0), np.maximum(-net, 0.0)
        shares = tuple(
            np.where(self.exact, (price + sign * net) / 2, share)
            for sign, share in zip((1, -1), shares, strict=True)
        )
        for k in (0, 1):
            y[self.rows[k]] = rises[k] * shares[k] / self.scale[k]
        return y


# Pays on: sparse component, n = 24.
def absolute_values(program: Program, tolerances: Tolerances) -> Folded | None:
    """Replace priced variables with two opposite rows by a hinge on one of them."""
    priced = (program.c > 0) & ~program.in_cones & np.isinf(program.u_hi)
    if not priced.any() or not comparable(program):
        return None
    starts, row, coefficient = program.by_columns
    variable = (priced & (np.diff(starts) == 2)).nonzero()[0]
    if not len(variable):
        return None
    start, bounds = starts[variable], program.bounds
    rows = np.array([row[start], row[start + 1]])
    value = np.array([coefficient[start], coefficient[start + 1]])
    below, above = np.isfinite(bounds.lo[rows]), np.isfinite(bounds.hi[rows])
    relaxes = bounds.hard[rows] & (below ^ above) & ((value > 0) == below)
    good = relaxes.all(axis=0)
    # Each row belongs to one of these variables alone.
    used = np.bincount(rows[:, good].ravel(), minlength=program.m)
    good &= (used[rows] == 1).all(axis=0)
    variable, rows, scale = variable[good], rows[:, good], np.abs(value[:, good])
    if not len(variable):
        return None
    opposite = _opposite(program, variable, rows, scale)
    variable, rows, scale = variable[opposite], rows[:, opposite], scale[:, opposite]
    return _folded(program, variable, rows, scale) if len(variable) else None


def _folded(program: Program, variable: IntArray, rows: IntArray, scale: Array) -> Folded:
    bounds, rises = program.bounds, np.isfinite(program.bounds.lo[rows])
    # In units of the variable u, and with the sign of a rising first row: u >= lo - a and u >= a - hi.
    ends = np.where(rises, bounds.lo[rows], -bounds.hi[rows]) / scale
    lo, hi = ends[0], -ends[1]
    half, box = (lo - hi) / 2, program.u_lo[variable]
    exact = ~(box > half)
    least = np.where(exact, half, box)
    middle = (lo + hi) / 2
    lo, hi = np.where(exact, middle, lo - box), np.where(exact, middle, hi + box)
    first, sign = rows[0], np.where(rises[0], 1.0, -1.0) * scale[0]
    ends = np.sort([sign * lo, sign * hi], axis=0)
    kind, gamma, below, above = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
    kind[first], gamma[first] = Penalty.HINGE, program.c[variable] / scale[0]
    below[first], above[first] = ends
    mask = np.ones(program.k, dtype=bool)
    mask[variable] = False
    kept, left = mask.nonzero()[0], np.setdiff1d(np.arange(program.m), rows[1])
    folded = replace(
        program.of_variables(kept),
        bounds=type(bounds)(below, above, kind, gamma),
        offset=program.offset + float(program.c[variable] @ least),
        constant=program.stated_constant,
    ).of_rows(left)
    return Folded(program, folded, kept, left, variable, rows, scale, least, exact)


def _opposite(program: Program, variable: IntArray, rows: IntArray, scale: Array) -> Mask:
    """Whether the two rows of each variable have opposite coefficients but for it, in its units."""
    table, rises = coefficients(program), np.isfinite(program.bounds.lo[rows])
    sign, count = np.where(rises, 1.0, -1.0) / scale, len(variable)
    parts = [sp.diags_array(sign[k]) @ table[rows[k]] for k in (0, 1)]
    place = np.arange(count), table.shape[1] - program.k + variable
    alone = (1 / scale * scale).sum(axis=0)  # rounded as in both parts
    own = sp.csr_array((alone, place), (count, table.shape[1]))
    return np.asarray(abs(parts[0] + parts[1] - own).sum(axis=1)).ravel() == 0


# --- Differences ----------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Equalities with two variables of their own, of opposite signs there.

    Parameters
    ----------
    row : int array of shape (count,)
    variable : int array of shape (2, count)
        First that with the negative sign, which is ``u``.
    size : array of shape (2, count)
        The absolute values of their coefficients.
    """

    row: IntArray
    variable: IntArray
    size: Array


@dataclass(frozen=True, eq=False)
class Joined(Reduced):
    """A program without the two variables of each difference.

    Parameters
    ----------
    pairs : Pairs
    slope : array of shape (count,)
        The part of their costs that is linear in the row.
    kept : int array
        The remaining variables.
    """

    pairs: Pairs
    slope: Array
    kept: IntArray

    @property
    def summary(self) -> str:
        count = len(self.pairs.row)
        return f"{count} difference{'s' if count > 1 else ''} of two variables folded into hinges"

    def shrink(self, start: Start) -> Start:
        y = start.y.copy()
        y[self.pairs.row] += self.slope
        return replace(start, u=start.u[self.kept], y=y)

    def restore(self, answer: Answer) -> Answer:
        whole, (row, variable, size) = self.whole, self.pairs
        ray = answer.stop is StopReason.UNBOUNDED
        u, right = np.zeros(whole.k), whole.bounds.lo[row] * (not ray)
        u[self.kept] = answer.u
        u[variable] = whole.u_lo[variable] * (not ray)
        missed = right - whole.activity(answer.X, u)[row]
        u[variable] += np.maximum([-missed, missed], 0.0) / size
        priced = answer.stop is not StopReason.INFEASIBLE  # a Farkas vector has no prices
        slope = scattered(row, self.slope * priced, whole.m)
        return with_multipliers(answer, lambda own: own - slope, u=u)


# Pays on: the portfolio of the least worst case, n = 60.
def differences(program: Program, tolerances: Tolerances) -> Joined | None:
    """Replace two priced variables of one equality, with opposite signs, by a linear cost and a hinge."""
    pairs = _pairs(program)
    if pairs is None:
        return None
    row, variable, size = pairs
    bounds, (p, q) = program.bounds, program.c[variable] / size
    kind, gamma, lo, hi = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
    kind[row], gamma[row] = Penalty.HINGE, (p + q) / 2
    least = program.u_lo[variable]
    right = bounds.lo[row] + size[0] * least[0] - size[1] * least[1]
    lo[row] = hi[row] = right
    mask = np.ones(program.k, dtype=bool)
    mask[variable] = False
    kept, weights = mask.nonzero()[0], np.zeros(program.m)
    weights[row] = (p - q) / 2
    constant = float((program.c[variable] * least).sum() - weights[row] @ right)
    joined = replace(
        program.of_variables(kept),
        blocks=tuple(_with_cost(program, b, weights) for b in range(len(program.blocks))),
        bounds=replace(bounds, lo=lo, hi=hi, kind=kind, gamma=gamma),
        c=(program.c + program.Bt @ weights)[kept],
        offset=program.offset + constant,
        constant=program.stated_constant,
    )
    return Joined(program, joined, pairs, weights[row], kept)


def _pairs(program: Program) -> Pairs | None:
    """Return the equalities with two variables of their own and a positive price of both; None for none."""
    single = np.isfinite(program.u_lo) & np.isinf(program.u_hi) & ~program.in_cones
    equal = program.bounds.equal & program.bounds.hard
    if np.count_nonzero(single) < 2 or not equal.any():
        return None
    starts, rows, values = program.by_columns
    own = (single & (np.diff(starts) == 1)).nonzero()[0]
    row, weight = rows[starts[own]], values[starts[own]]
    of_row = np.full((2, program.m), -1)  # one variable of each sign
    for sign in (0, 1):
        chosen = (equal[row] & ((weight > 0) == bool(sign))).nonzero()[0]
        of_row[sign, row[chosen]] = chosen
    found = np.flatnonzero((of_row >= 0).all(axis=0))
    place = of_row[:, found]
    size = np.abs(weight[place])
    priced = (program.c[own[place]] / size).sum(axis=0) > 0
    if not priced.any():
        return None
    return Pairs(found[priced], own[place][:, priced], size[:, priced])


def _with_cost(program: Program, b: int, weights: Array) -> Block:
    """Return a block with the cost of its weighted rows added."""
    block, parts = program.blocks[b], []
    for term in program.A.terms_of(b):
        if weights[term.at].any():
            t = term.rows.coordinates()
            parts.append((t.i, t.j, t.value * weights[term.at[t.row]]))
    if not parts:
        return block
    if block.cost is not None:
        t = block.cost.coordinates()
        parts.append((t.i, t.j, t.value))
    i, j, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    cost = SparseRows.of(1, block.n, Coordinates(np.zeros(len(i), dtype=np.intp), i, j, value))
    return replace(block, cost=cost)


# --- Opposite rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class InSlacks(Reduced):
    """A program with the slacks of opposite rows in place of the variables that these bound.

    Parameters
    ----------
    kept, left : int array
        The remaining variables and rows. The slacks of the first rows follow these variables, then those of
        the second ones.
    variable : int array
        The variables that the slacks replace.
    rows : int array of shape (2, count)
        Their rows: the first one is left, as an equality.
    scale : array of shape (2, count)
        The absolute coefficients of the variables in these rows.
    ends : array of shape (2, count)
        The bounds of these rows, in the units of the variables.
    """

    rescales: ClassVar[bool] = True  # the costs of a variable are shared, and a bound is that of two rows
    kept: IntArray
    left: IntArray
    variable: IntArray
    rows: IntArray
    scale: Array
    ends: Array

    @property
    def summary(self) -> str:
        count = len(self.variable)
        return f"{count} pair{'s' if count > 1 else ''} of opposite rows in one equality"

    def shrink(self, start: Start) -> Start:
        whole, first, second = self.whole, self.rows[0], self.rows[1]
        slacks = self._sign * whole.activity(start.X, start.u)[self.rows] / self.scale - self.ends
        u, y = np.concatenate([start.u[self.kept], *np.maximum(slacks, 0.0)]), start.y.copy()
        y[first] -= self._sign.prod(axis=0) * y[second] * self.scale[1] / self.scale[0]
        return replace(start, u=u, y=y[self.left])

    def restore(self, answer: Answer) -> Answer:
        u, ray = np.zeros(self.whole.k), answer.stop is StopReason.UNBOUNDED
        slacks = answer.u[len(self.kept) :].reshape(2, -1)
        u[self.kept], u[self.variable] = answer.u[: len(self.kept)], slacks.mean(axis=0)
        u[self.variable] += 0.0 if ray else self.ends.mean(axis=0)
        costs = 0.0 if answer.stop is StopReason.INFEASIBLE else 1.0
        return with_multipliers(answer, lambda own: self._multipliers(own, costs), u=u)

    @property
    def _sign(self) -> Array:
        """1 for the rows with a lower bound, -1 for those with an upper one."""
        return np.where(np.isfinite(self.whole.bounds.lo[self.rows]), 1.0, -1.0)

    def _multipliers(self, own: Array, costs: float) -> Array:
        """Return multipliers of all rows: those of a pair add up to what the others leave of the cost."""
        y, first, second = scattered(self.left, own, self.whole.m), self.rows[0], self.rows[1]
        difference = self._sign[0] * self.scale[0] * y[first]
        others = (costs * self.whole.c - self.whole.Bt @ y)[self.variable] + difference
        total = np.maximum(others, 0.0)
        difference = np.clip(difference, -total, total)
        y[first], y[second] = self._sign / self.scale * [total + difference, total - difference] / 2
        return y


# Pays on: sparse component within a norm, n = 40.
def opposite_rows(program: Program, tolerances: Tolerances) -> InSlacks | None:
    """Replace a variable that two opposite rows bound, and others share, by the slacks of these rows."""
    bounds, B = program.bounds, program.B
    row = np.arange(program.m).repeat(np.diff(B.indptr))
    below, above = np.isfinite(bounds.lo)[row], np.isfinite(bounds.hi)[row]
    relaxes = bounds.hard[row] & (below ^ above) & (B.data != 0) & ((B.data > 0) == below)
    twice = np.bincount(B.indices[relaxes], minlength=program.k) == 2
    variable = (twice & ~program.in_cones & np.isinf(program.u_hi)).nonzero()[0]
    if not len(variable) or not comparable(program):
        return None
    variable = variable[~in_ratios(program)[variable]]
    of_these = (relaxes & np.isin(B.indices, variable)).nonzero()[0]
    at = of_these[np.argsort(B.indices[of_these], kind="stable")].reshape(-1, 2).T
    rows, scale = row[at], np.abs(B.data[at])
    ends = np.where(below[at], bounds.lo[rows], -bounds.hi[rows]) / scale
    # Each row belongs to one of these variables alone, whose lower bound the two rows imply.
    good = (np.bincount(rows.ravel())[rows] == 1).all(axis=0) & (program.u_lo[variable] <= ends.mean(axis=0))
    good[good] = _opposite(program, variable[good], rows[:, good], scale[:, good])
    if not good.any():
        return None
    return _in_slacks(program, variable[good], rows[:, good], scale[:, good], ends[:, good])


def _in_slacks(program: Program, variable: IntArray, rows: IntArray, scale: Array, ends: Array) -> InSlacks:
    bounds, middle, count = program.bounds, ends.mean(axis=0), len(variable)
    first, second = rows[0], rows[1]
    kept, left = np.setdiff1d(np.arange(program.k), variable), np.setdiff1d(np.arange(program.m), second)
    sign = np.where(np.isfinite(bounds.lo[rows]), 1.0, -1.0) * scale
    place = np.tile(np.arange(count), 2)
    B = program.B[:, variable] - sp.csr_array((sign.ravel(), (rows.ravel(), place)), (program.m, count))
    moved, half = B @ middle, sign[0] / 2
    lo, hi = bounds.lo - moved, bounds.hi - moved
    lo[first] = hi[first] = half * (ends[0] - ends[1]) - moved[first]
    own = sp.csr_array((half, (first, np.arange(count))), (program.m, count))
    shared, zero, smaller = B / 2, np.zeros(2 * count), program.of_variables(kept)
    smaller = replace(
        smaller,
        B=sp.csr_array(sp.hstack([smaller.B, shared - own, shared + own], format="csr")),
        bounds=replace(bounds, lo=lo, hi=hi),
        c=np.concatenate([smaller.c, *[program.c[variable] / 2] * 2]),
        u_lo=np.concatenate([smaller.u_lo, zero]),
        u_hi=np.concatenate([smaller.u_hi, zero + np.inf]),
        offset=program.offset + float(program.c[variable] @ middle),
        constant=program.stated_constant,
    ).of_rows(left)
    return InSlacks(program, smaller, kept, left, variable, rows, scale, ends)
