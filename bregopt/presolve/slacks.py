"""A slack variable that prices the violation of one row is replaced by a hinge penalty of that row.

The cost ``c xi`` with ``xi >= 0`` in the row ``a + b xi >= lo`` only, ``b > 0``, is the hinge
``c / b max(lo - a, 0)``. A margin problem keeps only the margin as a variable, and its rows become soft.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, Penalty, Program, Start, StopReason

__all__ = ["Folded", "Slacks"]


@dataclass(frozen=True, eq=False)
class Folded(Reduced):
    """A program with hinges for its slack variables.

    Parameters
    ----------
    kept, slack, row : int array
        The remaining variables, the slack variables, and the rows of these.
    weight : array
        Coefficients of the slack variables in their rows.
    """

    kept: IntArray
    slack: IntArray
    row: IntArray
    weight: Array

    @property
    def summary(self) -> str:
        count = len(self.slack)
        return f"{count} slack variable{'s' if count > 1 else ''} folded into hinges"

    def shrink(self, start: Start) -> Start:
        return replace(start, u=start.u[self.kept])

    def restore(self, answer: Answer) -> Answer:
        least: Array | float
        u, activity = np.zeros(self.whole.k), self.program.activity(answer.X, answer.u)
        u[self.kept] = answer.u
        if answer.stop is StopReason.UNBOUNDED:  # a ray: the rows and the box without their bounds
            least, missed = 0.0, np.maximum(-np.sign(self.weight) * activity[self.row], 0.0)
        else:
            least, missed = self.whole.u_lo[self.slack], self.program.bounds.violation(activity)[self.row]
        u[self.slack] = least + missed / np.abs(self.weight)
        return replace(answer, u=u)


class Slacks:
    """Replace priced variables that relax the bound of one row by a hinge on that row."""

    name: ClassVar[str] = "slacks"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Folded | None:
        slack, row, weight = _slacks(program)
        if len(slack) == 0:
            return None
        kept = np.setdiff1d(np.arange(program.k), slack)
        bounds, least = program.bounds, program.u_lo[slack]
        kind, gamma, lo, hi = bounds.kind.copy(), bounds.gamma.copy(), bounds.lo.copy(), bounds.hi.copy()
        kind[row], gamma[row] = Penalty.HINGE, program.c[slack] / np.abs(weight)
        lo[row] -= weight * least
        hi[row] -= weight * least
        folded = replace(
            program,
            B=program.B[:, kept],
            bounds=replace(bounds, lo=lo, hi=hi, kind=kind, gamma=gamma),
            c=program.c[kept],
            u_lo=program.u_lo[kept],
            u_hi=program.u_hi[kept],
            cones=program.cones.renumbered(np.searchsorted(kept, np.arange(program.k))),
            offset=program.offset + float(program.c[slack] @ least),
        )
        return Folded(program, folded, kept, slack, row, weight)


def _slacks(program: Program) -> tuple[IntArray, IntArray, Array]:
    """Return slack variables, at most one for each row, with their rows and coefficients there."""
    priced = (program.c > 0) & np.isfinite(program.u_lo) & np.isinf(program.u_hi)
    if not priced.any():
        none = np.zeros(0, dtype=np.intp)
        return none, none, np.zeros(0)
    columns, bounds = program.B.tocsc(), program.bounds
    columns.eliminate_zeros()
    slack = np.flatnonzero((np.diff(columns.indptr) == 1) & priced)
    row, weight = columns.indices[columns.indptr[slack]], columns.data[columns.indptr[slack]]
    below, above = np.isfinite(bounds.lo[row]), np.isfinite(bounds.hi[row])
    relieves = np.where(weight > 0, below & ~above, above & ~below) & bounds.hard[row]
    slack, row, weight = slack[relieves], row[relieves].astype(np.intp), weight[relieves]
    row, first = np.unique(row, return_index=True)
    return slack[first], row, weight[first]
