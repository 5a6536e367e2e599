"""Ordinary variables that need no row or no column of Newton's system: boxes and slacks.

A row that bounds a single variable, such as ``u >= 0``, becomes its box, where a method handles it at less
cost. The multipliers of such rows follow from the reduced costs ``c - B'y``.

A slack variable is in one row only. One that prices the violation of the row becomes a hinge penalty: the
cost ``c xi`` with ``xi >= 0`` in the row ``a + b xi >= lo``, ``b > 0``, is ``c / b max(lo - a, 0)``. A margin
problem keeps only the margin as a variable, and its rows become soft. One without cost and bounds meets its
row, whatever the others are, so that the row is not needed. Variables that occur in such rows alone are idle:
along them the set of optima has no end, and there would be no central path.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import is_farkas
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.records import dataclass, replace

__all__ = ["Boxed", "Boxes", "Folded", "Slacks"]


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
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces, costs)
        return replace(answer, y=self._multipliers(answer.y, costs), y_on_faces=on_faces)

    def _multipliers(self, own: Array, costs: Array) -> Array:
        """Return multipliers of all rows; the reduced costs give those of the box."""
        y = np.zeros(self.whole.m)
        y[self.kept] = self.program.bounds.clip(own)
        reduced = costs - self.program.B.T @ y[self.kept]
        for row, left in ((self.below, np.maximum(reduced, 0.0)), (self.above, np.minimum(reduced, 0.0))):
            at = np.flatnonzero(row >= 0)
            y[row[at]] += left[at] / _only_entries(self.whole, row[at])[1]
        return y


# Pays on: 300 triplets.
class Boxes:
    """Move hard inequalities in a single variable to its box.

    The box stays as it is where the bounds cross by no more than round-off.
    """

    name: ClassVar[str] = "boxes"
    universal: ClassVar[bool] = True

    def apply(self, program: Program, tolerances: Tolerances) -> Boxed | None:
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
            program,
            A=program.A.slice(kept),
            B=program.B[kept],
            bounds=program.bounds.slice(kept),
            u_lo=np.where(crossed, program.u_lo, u_lo),
            u_hi=np.where(crossed, program.u_hi, -u_hi),
            labels=program.labels_of(kept),
        )
        return Boxed(program, smaller, kept, below, above, farkas)


def _bounding(program: Program) -> IntArray:
    """Return the indices of the hard inequalities in one variable, which is in no cone, and no matrix."""
    bounds = program.bounds
    if program.k == 0:
        return np.zeros(0, dtype=np.intp)
    rows = np.flatnonzero(bounds.hard & (bounds.lo < bounds.hi) & (np.diff(program.B.indptr) == 1))
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
    for j in np.flatnonzero(crossed):
        y = np.zeros(program.m)
        for row, sign in ((below[j], 1.0), (above[j], -1.0)):
            if row >= 0:
                y[row] += sign / _only_entries(program, row)[1]
        if is_farkas(program, y):
            return y
    return None


@dataclass(frozen=True, eq=False)
class Folded(Reduced):
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
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces)
        return replace(answer, u=u, y=self._multipliers(answer.y), y_on_faces=on_faces)

    def _multipliers(self, own: Array) -> Array:
        """Return multipliers of all rows."""
        y = np.zeros(self.whole.m)
        y[self.left] = own
        return y


# Pays on: 300 triplets.
# Pays on: a row of two idle variables.
class Slacks:
    """Replace priced variables of one row by a hinge on it; leave out the row of a free one."""

    name: ClassVar[str] = "slacks"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Folded | None:
        slack, row, weight = _slacks(program)
        if len(slack) == 0:
            return None
        bounds, priced = program.bounds, program.c[slack] > 0
        kind, gamma, lo, hi = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
        of, least, cost = row[priced], program.u_lo[slack[priced]], program.c[slack[priced]]
        kind[of], gamma[of] = Penalty.HINGE, cost / np.abs(weight[priced])
        lo[of] -= weight[priced] * least
        hi[of] -= weight[priced] * least
        left, kept = np.arange(program.m), np.setdiff1d(np.arange(program.k), slack)
        smaller = replace(program, bounds=replace(bounds, lo=lo, hi=hi, kind=kind, gamma=gamma))
        if not priced.all():
            left = np.setdiff1d(left, row[~priced])
            smaller = replace(
                smaller,
                A=program.A.slice(left),
                B=program.B[left],
                bounds=smaller.bounds.slice(left),
                labels=program.labels_of(left),
            )
            used = np.bincount(smaller.B.indices[smaller.B.data != 0], minlength=program.k) > 0
            kept = kept[(used | (program.c != 0) | program.in_cones)[kept]]
        folded = replace(smaller.of_variables(kept), offset=program.offset + float(cost @ least))
        return Folded(program, folded, kept, slack, row, weight, left)


def _slacks(program: Program) -> tuple[IntArray, IntArray, Array]:
    """Return slack variables, at most one for each row, with their rows and coefficients there."""
    priced = (program.c > 0) & np.isfinite(program.u_lo) & np.isinf(program.u_hi)
    possible = priced | (program.free & (program.c == 0))
    if not possible.any():
        none = np.zeros(0, dtype=np.intp)
        return none, none, np.zeros(0)
    (starts, rows, values), bounds = program.by_columns, program.bounds
    slack = np.flatnonzero((np.diff(starts) == 1) & possible)
    row, weight = rows[starts[slack]], values[starts[slack]]
    below, above = np.isfinite(bounds.lo[row]), np.isfinite(bounds.hi[row])
    relieves = np.where(weight > 0, below & ~above, above & ~below) | ~priced[slack]
    relieves &= bounds.hard[row] & (below | above)
    slack, row, weight = slack[relieves], row[relieves], weight[relieves]
    row, first = np.unique(row, return_index=True)
    return slack[first], row, weight[first]
