"""Variables that Newton's system does not need, and rows of a single one.

Modeling languages write ``X[i, j] == a``, ``u >= 0`` and ``|a| <= t`` with a variable or a row for each:

- A row that bounds a single variable, such as ``u >= 0``, becomes its *box*, where a method handles it at
  less cost. The multipliers of such rows follow from the reduced costs ``c - B'y``.
- A *fixed* variable has an equation of its own: the known entries of a matrix that is to be completed. It
  becomes a constant. One that an equation *defines* by two others becomes their combination, and of two
  *equal* ones, such as mirrored entries of a symmetric matrix, one is left.
- A *dominated* variable has no cost, and increasing it (or decreasing) relaxes all of its rows but one, which
  is its largest value. It takes that value: with ``a <= u``, ``-a <= u`` and ``u <= t`` it is ``u = t``.
- The column of a *dependent* variable, which is free, is a combination of those of others. Newton's system is
  singular with it.

A bound on the entries of a matrix of order 40 is 1,600 variables and 4,800 rows of CVXPY, and 820 rows here
(Andersen, Andersen 1995, Presolving in linear programming, section 3: dominated and duplicate rows).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array, IntArray, Mask, scattered
from bregopt.certify import is_farkas
from bregopt.linalg import added_up, csr_of, rows_at
from bregopt.presolve import Reduced, Tolerances, with_multipliers
from bregopt.presolve.equalities import DEPENDENT, LARGEST_QR, clearly_independent, combinations
from bregopt.presolve.svec import (
    ENTRY_NOISE,
    without_round_off,
)
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.records import dataclass, replace

_MOST_TERMS = 3  # of a row that bounds a dominated variable: it takes the place of one in every other row
# Multiple of another variable, up to which a free one is replaced by it.
_GROWTH = 1e3
_Entries = tuple[Array, IntArray, IntArray]  # of a sparse matrix: values, rows and columns
_RATIOS = frozenset({Penalty.LOGDET, Penalty.VON_NEUMANN})  # penalties of the ratio ``a / b``


# --- Boxes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Boxed(Reduced):
    """A program with the bounds on single variables in the box.

    Parameters
    ----------
    kept : int array
        The remaining rows.
    below, above : int array of shape (k,)
        The row that gives a variable its lower or its upper bound; -1 where the box was as tight before.
    farkas : array of shape (m,), optional
        A Farkas vector, where the bounds on a variable contradict each other.
    """

    kept: IntArray
    below: IntArray
    above: IntArray
    farkas: Array | None = None

    @property
    def summary(self) -> str:
        count = self.whole.m - len(self.kept)
        return f"{count} row{'s' if count > 1 else ''} in the box of the variables" if count else ""

    def contradiction(self) -> Array | None:
        return self.farkas

    def shrink(self, start: Start) -> Start:
        return replace(start, y=start.y[self.kept])

    def restore(self, answer: Answer) -> Answer:
        costs = 0 * self.whole.c if answer.stop is StopReason.INFEASIBLE else self.whole.c
        return with_multipliers(answer, lambda own: self._multipliers(own, costs))

    def _multipliers(self, own: Array, costs: Array) -> Array:
        """Return multipliers of all rows; the reduced costs give those of the box."""
        y = scattered(self.kept, self.program.bounds.clip(own), self.whole.m)
        reduced = costs - self.program.Bt @ y[self.kept]
        for row, left in ((self.below, np.maximum(reduced, 0.0)), (self.above, np.minimum(reduced, 0.0))):
            at = (row >= 0).nonzero()[0]
            y[row[at]] += left[at] / _only_entries(self.whole, row[at])[1]
        return y


# Pays on: 300 triplets.
def boxes(program: Program, tolerances: Tolerances) -> Boxed | None:
    """Move hard inequalities in a single variable to its box.

    The box stays as it is where the bounds cross by no more than round-off.
    """
    rows = _bounding(program)
    if len(rows) == 0:
        return None
    column, weight = _only_entries(program, rows)
    ends = np.sort([program.bounds.lo[rows] / weight, program.bounds.hi[rows] / weight], axis=0)
    u_lo, below = _tightest(program.u_lo, column, ends[0], rows)
    u_hi, above = _tightest(-program.u_hi, column, -ends[1], rows)
    crossed = u_lo > -u_hi
    farkas = _contradiction(program, crossed, below, above)
    below[crossed] = above[crossed] = -1
    kept = np.setdiff1d(np.arange(program.m), rows[~crossed[column]])
    if farkas is None and len(kept) == program.m:
        return None
    smaller = replace(
        program.of_rows(kept),
        u_lo=np.where(crossed, program.u_lo, u_lo),
        u_hi=np.where(crossed, program.u_hi, -u_hi),
    )
    return Boxed(program, smaller, kept, below, above, farkas)


def _bounding(program: Program) -> IntArray:
    """Return the indices of the hard inequalities in one variable, which is in no cone, and no matrix."""
    bounds = program.bounds
    if program.k == 0:
        return np.zeros(0, dtype=np.intp)
    rows = (bounds.hard & (bounds.lo < bounds.hi) & (np.diff(program.B.indptr) == 1)).nonzero()[0]
    if not len(rows):
        return rows
    column, weight = _only_entries(program, rows)
    return rows[(program.A.norms()[rows] == 0) & (weight != 0) & ~program.in_cones[column]]


def _only_entries(program: Program, rows: IntArray) -> tuple[IntArray, Array]:
    """Return the variables of rows with one entry, and their weights."""
    at = program.B.indptr[rows]
    return program.B.indices[at], program.B.data[at]


def _tightest(own: Array, column: IntArray, ends: Array, rows: IntArray) -> tuple[Array, IntArray]:
    """Return each variable's largest lower bound, and the row that gives it; -1 for the variable's own."""
    tightest, giver = own.copy(), np.full(len(own), -1)
    np.maximum.at(tightest, column, ends)
    gives = (ends == tightest[column]) & (ends > own[column])
    giver[column[gives]] = rows[gives]
    return tightest, giver


def _contradiction(program: Program, crossed: Mask, below: IntArray, above: IntArray) -> Array | None:
    """Return a Farkas vector that combines two bounds of one variable, None where there is none."""
    for j in crossed.nonzero()[0]:
        y = np.zeros(program.m)
        for row, sign in ((below[j], 1.0), (above[j], -1.0)):
            if row >= 0:
                y[row] += sign / _only_entries(program, row)[1]
        if is_farkas(program, y):
            return y
    return None


# --- Fixed and dominated variables ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Substituted(Reduced):
    """A program without its fixed, equal, defined or dominated variables, ``u_J = first + slope u_kept``.

    Parameters
    ----------
    J, kept : int array
        The fixed or dominated variables, and the others.
    first : array of shape (len(J),)
    slope : csr_array of shape (len(J), len(kept))
    row : int array of shape (len(J),)
        The row that fixes or bounds each; -1 where its box does.
    entry : array
        The coefficients of the variables in these rows, where they have one.
    left : int array
        The remaining rows.
    """

    J: IntArray
    kept: IntArray
    first: Array
    slope: Any
    row: IntArray
    entry: Array
    left: IntArray

    repeats: ClassVar[bool] = True  # of chains of equalities each pass takes some

    @property
    def summary(self) -> str:
        count = len(self.J)
        return f"{count} variable{'s' if count > 1 else ''} given by rows or at bounds of epigraphs"

    def contradiction(self) -> Array | None:
        """Return a Farkas vector where a row has nothing left and may not be zero."""
        own, bounds = self.program, self.program.bounds
        empty = (own.A.norms() == 0) & (np.diff(own.B.indptr) == 0) & bounds.hard
        for k in (empty & ((bounds.lo > 0) | (bounds.hi < 0))).nonzero()[0]:
            y = np.zeros(own.m)
            y[k] = 1.0 if bounds.lo[k] > 0 else -1.0
            y = self._multipliers(y, 0 * self.whole.c)
            if is_farkas(self.whole, y):
                return y
        return None

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept], y=start.y[self.left])

    def restore(self, answer: Answer) -> Answer:
        u = np.zeros(self.whole.k)
        u[self.kept] = answer.u
        u[self.J] = self.slope @ answer.u + (0.0 if answer.stop is StopReason.UNBOUNDED else self.first)
        costs = self.whole.c if answer.stop is not StopReason.INFEASIBLE else 0 * self.whole.c
        return with_multipliers(answer, lambda own: self._multipliers(own, costs), u=u)

    def _multipliers(self, own: Array, costs: Array) -> Array:
        """Return multipliers of all rows; those of the variables' own rows leave them no reduced cost."""
        y, bounded = scattered(self.left, own, self.whole.m), self.row >= 0
        J, row = self.J[bounded], self.row[bounded]
        y[row] = (costs - self.whole.Bt @ y)[J] / self.entry
        return y


# Pays on: completion of 24 x 24 within bounds.
def fixed_variables(program: Program, tolerances: Tolerances) -> Substituted | None:
    """Substitute the variables that equations in no other variable and no matrix fix within their boxes."""
    bounds = program.bounds
    if program.terms:
        return None
    row = (bounds.equal & bounds.hard & (np.diff(program.B.indptr) == 1)).nonzero()[0]
    row = row[program.A.norms()[row] == 0]
    if not len(row):
        return None
    column, weight = _only_entries(program, row)
    value = bounds.lo[row] / np.where(weight == 0, 1.0, weight)
    once = np.bincount(column, minlength=program.k)[column] == 1
    inside = (program.u_lo[column] <= value) & (value <= program.u_hi[column])
    taken = once & inside & (weight != 0) & ~in_ratios(program)[column] & ~program.in_cones[column]
    return _substituted(program, list(zip(column[taken].tolist(), row[taken].tolist(), strict=True)))


# Pays on: embedding of distances, n = 20.
def dominated_variables(program: Program, tolerances: Tolerances) -> Substituted | None:
    """Give variables without cost, which relax all rows but one, the largest value that this one allows."""
    free = (program.c == 0) & ~program.in_cones
    if not free.any():
        return None
    (starts, row, value), bounds = program.by_columns, program.bounds
    column = np.arange(program.k).repeat(np.diff(starts))
    below, above = np.isfinite(bounds.lo)[row], np.isfinite(bounds.hi)[row]
    one_sided = bounds.hard[row] & (below ^ above)
    # Whether an increase of the variable relaxes the row, and a decrease.
    up, down = one_sided & ((value > 0) == below), one_sided & ((value > 0) == above)
    several = np.bincount(column, minlength=program.k) > 1
    relaxed = np.bincount(column, up, program.k), np.bincount(column, down, program.k)
    found = []
    for relaxes, number, end, other in (
        (up, relaxed[0], program.u_hi, program.u_lo),
        (down, relaxed[1], program.u_lo, program.u_hi),
    ):
        blocked = np.bincount(column, minlength=program.k) - number
        boxed = free & (number > 0) & (blocked == 0) & np.isfinite(end)
        found += [(int(j), -1) for j in boxed.nonzero()[0]]
        single = free & several & (number > 0) & (blocked == 1) & np.isinf(end) & np.isinf(other)
        if single.any():
            k = (single[column] & ~relaxes & one_sided).nonzero()[0]
            found += list(zip(column[k].tolist(), row[k].tolist(), strict=True))
    return _substituted(program, found)


def in_ratios(program: Program, kinds: frozenset[Penalty] = _RATIOS) -> Mask:
    """Return the mask of the variables in rows whose penalty is a function of the ratio ``a / b``.

    No constant of such a row moves from its activity to its bound, and it keeps its variables.
    """
    if not program.bounds.kinds & kinds:
        return np.zeros(program.k, dtype=bool)
    rows = np.isin(program.bounds.kind, [int(kind) for kind in kinds])
    return np.asarray(abs(program.B[rows]).sum(axis=0)).ravel() > 0


# Pays on: a matrix that equals its transpose, n = 24.
def equal_variables(program: Program, tolerances: Tolerances) -> Substituted | None:
    """Substitute variables that an equality of two terms, and no matrix, gives by another one.

    The box of the other one implies theirs. A variable with a box does not grow, its coefficient is the
    larger one. Of two free variables one goes only if they are equal: others, as in the worst cases of
    optimization methods, keep Newton's system farther from singular.
    """
    B, bounds = program.B, program.bounds
    row = (bounds.equal & bounds.hard & (np.diff(B.indptr) == 2)).nonzero()[0]
    if not len(row):
        return None
    row = row[program.A.norms()[row] == 0]
    at = B.indptr[row] + np.array([[0], [1]])
    good = (B.data[at] != 0).all(axis=0)
    row, at = row[good], at[:, good]
    first = np.unique(np.sort(B.indices[at], axis=0), axis=1, return_index=True)[1]  # one row of each pair
    row, at = row[first], at[:, first]
    column, value = B.indices[at], B.data[at]
    other, of_other = column[::-1], value[::-1]
    given = [(bounds.lo[row] - of_other * end[other]) / value for end in (program.u_lo, program.u_hi)]
    least, most = np.sort(given, axis=0)
    implied = (program.u_lo[column] <= least) & (most <= program.u_hi[column])
    implied &= (value == -of_other) & (bounds.lo[row] == 0) | ~program.free[column].all(axis=0)
    kept = program.in_cones | in_ratios(program, _RATIOS | {Penalty.LOG})  # the log of zero is infinite
    growth = np.where(program.free[column], _GROWTH, 1.0)
    implied &= ~kept[column] & (growth * np.abs(value) >= np.abs(of_other))
    left = np.where(implied[0], column[0], column[1])[implied.any(axis=0)]
    return _substituted(program, list(zip(left.tolist(), row[implied.any(axis=0)].tolist(), strict=True)))


# Pays on: a general matrix within a norm, n = 12.
def defined_variables(program: Program, tolerances: Tolerances) -> Substituted | None:
    """Substitute free variables that an equality of few terms, and no matrix, gives by others with bounds.

    No other coefficient of the row is larger, so that none grows.
    """
    if not program.free.any():
        return None
    B, bounds, terms = program.B, program.bounds, np.diff(program.B.indptr)
    defining = bounds.equal & bounds.hard & (terms <= _MOST_TERMS) & (program.A.norms() == 0)
    if not defining.any():
        return None
    row, size, largest = np.arange(program.m).repeat(terms), np.abs(B.data), np.zeros(program.m)
    np.maximum.at(largest, row, size)
    free = (program.free & ~in_ratios(program))[B.indices] & (size > 0)
    defining &= np.bincount(row[free], minlength=program.m) == 1
    at = (free & defining[row] & (size == largest[row])).nonzero()[0]
    at = at[np.unique(B.indices[at], return_index=True)[1]]  # one row of each variable
    return _substituted(program, list(zip(B.indices[at].tolist(), row[at].tolist(), strict=True)))


def _substituted(program: Program, found: list[tuple[int, int]]) -> Substituted | None:
    """Return the program without variables that are given with their bounding rows, None where none is left.

    A bounding row has few terms, no matrix, and no other variable of these. Hard rows that are then without
    coefficients, and that zero meets, go.
    """
    if not found:
        return None
    J, row = np.array(sorted({j: (j, r) for j, r in reversed(found)}.values()), dtype=np.intp).T
    B, by_row, norms = program.B, row >= 0, program.A.norms()
    of_row, column, value = np.arange(program.m).repeat(np.diff(B.indptr)), B.indices, B.data
    good = ~by_row | ((norms[row] == 0) & (np.diff(B.indptr)[row] <= _MOST_TERMS))
    chosen = np.zeros(program.k)
    chosen[J[good]] = 1.0
    good &= ~by_row | (np.bincount(of_row, chosen[column] * (value != 0), program.m) == 1)[row]
    J, row, by_row = J[good], row[good], by_row[good]
    if not len(J):
        return None
    # The number of each variable among J or the others, and of each row among those of J or the others.
    place, number = np.full(program.k, -1), np.full(program.m, -1)
    place[J], number[row[by_row]] = np.arange(len(J)), by_row.nonzero()[0]
    kept, left = (place < 0).nonzero()[0], (number < 0).nonzero()[0]
    in_J, bounding = place[column] >= 0, number[of_row] >= 0
    entry = np.bincount(number[of_row[in_J & bounding]], value[in_J & bounding], len(J))
    bounds, first = program.bounds, np.zeros(len(J))
    end = np.where(np.isfinite(bounds.lo), bounds.lo, bounds.hi)
    first[by_row] = end[row[by_row]] / entry[by_row]
    first[~by_row] = _finite_end(program, J[~by_row])
    place[kept], number[left] = np.arange(len(kept)), np.arange(len(left))
    of_row, of_column = number[of_row], place[column]
    defining, own, others = (
        (value[mask], of_row[mask], of_column[mask])
        for mask in (bounding & ~in_J, in_J & ~bounding, ~(in_J | bounding))
    )
    slope = csr_of(-defining[0] / entry[defining[1]], *defining[1:], (len(J), len(kept)))
    moved = np.bincount(own[1], own[0] * first[own[2]], len(left))
    B = _with_product(others, own, slope, len(left))
    lo, hi = bounds.lo[left] - moved, bounds.hi[left] - moved
    used = (np.diff(B.indptr) > 0) | (norms[left] > 0) | (lo > 0) | (hi < 0) | ~bounds.hard[left]
    left, some = left[used], used.nonzero()[0]
    smaller = replace(
        program.of_variables(kept),
        A=program.A.slice(left),
        B=rows_at(B, some),
        bounds=replace(bounds.slice(left), lo=lo[some], hi=hi[some]),
        labels=program.labels_of(left),
    )
    if program.c[J].any():
        cost, c = float(program.c[J] @ first), without_round_off(smaller.c, slope, program.c[J])
        smaller = replace(smaller, c=c, offset=program.offset + cost, constant=program.stated_constant)
    return Substituted(program, smaller, J, kept, first, slope, row, entry[by_row], left)


def _with_product(B: _Entries, D: _Entries, F: Any, m: int) -> Any:
    """Return ``B + D F`` as a CSR matrix of `m` rows, without elements that are round-off."""
    value, row, column = D
    count = np.diff(F.indptr)[column]
    ends = count.cumsum()
    at = np.arange(count.sum()) + (F.indptr[column] - ends + count).repeat(count)
    value = np.concatenate([B[0], value.repeat(count) * F.data[at]])
    row, column = np.concatenate([B[1], row.repeat(count)]), np.concatenate([B[2], F.indices[at]])
    both, row, column = added_up(np.array([value, np.abs(value)]).T, row, column, F.shape[1])
    real = np.abs(both[:, 0]) > ENTRY_NOISE * both[:, 1]
    return csr_of(both[real, 0], row[real], column[real], (m, F.shape[1]))


def _finite_end(program: Program, J: IntArray) -> Array:
    """Return the end of the box that each variable goes to, which relaxes all of its rows."""
    starts, row, value = program.by_columns
    first = starts[J]  # of all rows of a variable, which it relaxes in the same direction
    rises = (value[first] > 0) == np.isfinite(program.bounds.lo[row[first]])
    return np.where(rises, program.u_hi[J], program.u_lo[J])


# --- Dependent variables --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WithoutColumns(Reduced):
    """A program without free variables whose columns are combinations of others; these are zero.

    Parameters
    ----------
    kept, others : int array
        The variables of `program`, and those without.
    T : array of shape (kept, others)
        With ``B_others = B_kept T``.
    """

    kept: IntArray
    others: IntArray
    T: Array

    @property
    def summary(self) -> str:
        return f"{len(self.others)} free variables that others can replace are zero"

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept] + self.T @ start.u[self.others])

    def restore(self, answer: Answer) -> Answer:
        u = np.zeros(self.whole.k)
        u[self.kept] = answer.u
        return replace(answer, u=u)


# Pays on: one row with two free variables.
def independent_columns(program: Program, tolerances: Tolerances) -> WithoutColumns | None:
    """Leave out free variables whose columns are combinations of those of others.

    Newton's system is singular with them, and along the combination the variables grow beyond bounds.
    """
    if not program.m or program.A.plans.get(independent_columns) is program.B:
        return None
    free = program.free.nonzero()[0]
    if len(free) == 0 or len(free) ** 2 * program.m > LARGEST_QR:
        return None
    vectors = program.columns_of(free).T
    sizes = np.linalg.norm(vectors, axis=1)
    sizes[sizes == 0] = 1.0
    vectors /= sizes[:, None]
    if clearly_independent(vectors):
        program.A.plans[independent_columns] = program.B
        return None
    own, others, T = combinations(vectors)
    if len(others) == 0:
        return None
    T *= sizes[others] / sizes[own, None]
    own, others = free[own], free[others]
    c = program.c
    if (np.abs(c[others] - c[own] @ T) > DEPENDENT * (np.abs(c[others]) + np.abs(c[own]) @ np.abs(T))).any():
        return None  # along the combination the objective has no bound
    kept = np.setdiff1d(np.arange(program.k), others)
    whole = np.zeros((len(kept), len(others)))
    whole[np.searchsorted(kept, own)] = T
    return WithoutColumns(program, program.of_variables(kept), kept, others, whole)
