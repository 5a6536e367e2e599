"""Rows that bound one variable and nothing else are its box, and cost a method less there.

``u >= 0`` written as a constraint is a row like any other; in the box it needs no place in Newton's system,
and a slack variable is seen for what it is (:mod:`bregopt.presolve.slacks`). The multipliers of such rows
are what the variables' reduced costs ``c - B'y`` leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.certify import is_farkas
from bregopt.program import Answer, Program, Start, StopReason

__all__ = ["Boxed", "box_rows"]


@dataclass(frozen=True, eq=False)
class Boxed:
    """A program with bounds of single variables in the box.

    Parameters
    ----------
    whole, program : Program
        As given, and with fewer rows.
    kept : int array
        The rows that are left.
    below, above : int array of shape (k,)
        The row that gives a variable its lower or its upper bound; -1 where the box was as tight before.
    contradiction : array of shape (m,), optional
        A Farkas vector, where such rows leave a variable no room.
    """

    whole: Program
    program: Program
    kept: IntArray
    below: IntArray
    above: IntArray
    contradiction: Array | None = None

    def shrink(self, start: Start | None) -> Start | None:
        """Return an earlier answer to the whole program as one to the smaller."""
        return None if start is None else replace(start, y=start.y[self.kept])

    def restore(self, answer: Answer) -> Answer:
        """Return the answer with multipliers of all rows."""
        if len(self.kept) == self.whole.m:
            return answer
        costs = 0 * self.whole.c if answer.stop is StopReason.INFEASIBLE else self.whole.c
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces, costs)
        return replace(answer, y=self._multipliers(answer.y, costs), y_on_faces=on_faces)

    def _multipliers(self, own: Array, costs: Array) -> Array:
        y = np.zeros(self.whole.m)
        y[self.kept] = self.program.bounds.clip(own)
        reduced = costs - self.program.B.T @ y[self.kept]
        for row, left in ((self.below, np.maximum(reduced, 0.0)), (self.above, np.minimum(reduced, 0.0))):
            at = np.flatnonzero(row >= 0)
            y[row[at]] += left[at] / _only_entries(self.whole, row[at])[1]
        return y


def box_rows(program: Program) -> Boxed:
    """Return the program with hard inequalities in one variable alone taken for its box.

    Variables that they leave no room, by no more than round-off, stay as they are.
    """
    rows = _bounding(program)
    if len(rows) == 0:
        none = np.full(program.k, -1)
        return Boxed(program, program, np.arange(program.m), none, none)
    column, weight = _only_entries(program, rows)
    ends = np.sort([program.bounds.lo[rows] / weight, program.bounds.hi[rows] / weight], axis=0)
    u_lo, below = _tightest(program.u_lo, column, ends[0], rows)
    u_hi, above = _tightest(-program.u_hi, column, -ends[1], rows)
    crossed = u_lo > -u_hi
    contradiction = _contradiction(program, crossed, below, above)
    below[crossed] = above[crossed] = -1
    kept = np.setdiff1d(np.arange(program.m), rows[~crossed[column]])
    if len(kept) == program.m:
        return Boxed(program, program, kept, below, above, contradiction)
    smaller = replace(
        program,
        A=program.A.slice(kept),
        B=program.B[kept],
        bounds=program.bounds.slice(kept),
        u_lo=np.where(crossed, program.u_lo, u_lo),
        u_hi=np.where(crossed, program.u_hi, -u_hi),
        labels=_labels(program, kept),
    )
    return Boxed(program, smaller, kept, below, above, contradiction)


def _bounding(program: Program) -> IntArray:
    """Return the hard inequalities in one variable and no matrix."""
    bounds = program.bounds
    if program.k == 0:
        return np.zeros(0, dtype=np.intp)
    rows = np.flatnonzero(bounds.hard & (bounds.lo < bounds.hi) & (np.diff(program.B.indptr) == 1))
    return rows[(program.A.slice(rows).norms() == 0) & (_only_entries(program, rows)[1] != 0)]


def _only_entries(program: Program, rows: IntArray) -> tuple[IntArray, Array]:
    """Return the variables of rows with one entry, and their weights."""
    at = program.B.indptr[rows]
    return program.B.indices[at], program.B.data[at]


def _tightest(own: Array, column: IntArray, ends: Array, rows: IntArray) -> tuple[Array, IntArray]:
    """Return the largest of each variable's own lower bound and those of rows, and the rows that are it."""
    tightest, giver = own.copy(), np.full(len(own), -1)
    np.maximum.at(tightest, column, ends)
    gives = (ends == tightest[column]) & (ends > own[column])
    giver[column[gives]] = rows[gives]
    return tightest, giver


def _contradiction(program: Program, crossed: Mask, below: IntArray, above: IntArray) -> Array | None:
    """Return the multipliers that add two bounds of one variable up to a contradiction, if some do."""
    for j in np.flatnonzero(crossed):
        y = np.zeros(program.m)
        for row, sign in ((below[j], 1.0), (above[j], -1.0)):
            if row >= 0:
                y[row] += sign / _only_entries(program, row)[1]
        if is_farkas(program, y):
            return y
    return None


def _labels(program: Program, kept: IntArray) -> tuple[tuple[str, int], ...]:
    """Return the labels of the constraints with the numbers of their rows that are left."""
    ends = np.cumsum([0, *(size for _, size in program.labels)])
    left = np.diff(np.searchsorted(kept, ends))
    return tuple((label, int(size)) for (label, _), size in zip(program.labels, left, strict=True))
