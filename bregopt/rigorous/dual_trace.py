"""The problem in which slack matrices have a bounded trace: the optimum that finite multipliers reach.

Where the rows leave ``X`` no interior, multipliers may grow without end, and no feasible point may be near an
answer. With ``sum tr (C - A*(y)) <= R`` for the multipliers, the dual of

    minimize  <C, X> + R t   subject to   lo <= A(X) + B u <= hi,   X + t I psd,   t >= 0,

both sides have an interior. In ``W = X + t I`` it is a problem of the same form with the variable ``t``, of
cost ``R - tr C`` and column ``-A(I)``. Sums of diagonal entries are enclosed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.plotting import Axes, plot_trace_profile
from bregopt.program import Penalty, Program
from bregopt.records import dataclass, replace
from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data, data_of
from bregopt.rigorous.linear_algebra import terms_of
from bregopt.tables import table_lines

__all__ = ["TraceProfile", "with_bounded_slack"]


@dataclass(frozen=True)
class TraceProfile:
    """The optimum given that the traces of the slacks ``C - A*(y)`` sum to at most ``R``, for several ``R``.

    Where it drifts with ``R``, no finite multipliers prove the optimum of the problem itself.

    Attributes
    ----------
    traces : array of shape (k,)
        The bounds ``R``, ascending.
    lower, upper : array of shape (k,)
        Proven bounds of the optimum for each of them.
    """

    traces: Array
    lower: Array
    upper: Array

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the proven intervals by ``R``; returns the matplotlib axes."""
        return plot_trace_profile(self.traces, self.lower, self.upper, ax)

    def __repr__(self) -> str:
        rows = zip(self.traces.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        cells = [[f"{R:g}", f"{low:.10g}", f"{high:.10g}"] for R, low, high in rows]
        return "\n".join(table_lines(("trace of slacks", "lower", "upper"), cells, left=0))


def with_bounded_slack(program: Program, bound: float) -> tuple[Program, Data]:
    """Return the program in which the traces of the slack matrices sum to at most a bound, and its data.

    Raises
    ------
    ValueError
        If the objective is not linear, a row is soft, or eigenvalues have a cap.
    """
    if any(b.nearness is not None or b.cap is not None for b in program.blocks):
        raise ValueError("trace= bounds the slack C - A*(y) of linear objectives without caps on eigenvalues")
    if (program.bounds.kind != int(Penalty.HARD)).any():
        raise ValueError("trace= bounds the slack C - A*(y) of problems with hard rows; some are soft")
    given = data_of(program)
    if any(block.null is not None or block.A_rad is not None for block in given.matrices):
        raise ValueError("trace= needs rows that are stored as numbers; some are products of vectors")
    sums = [Fraction(0)] * program.m
    costs = Fraction(bound)
    for block in given.matrices:
        on = block.i == block.j
        for k, at, a in terms_of(block.A):
            if on[at]:
                sums[k] -= Fraction(a)
        costs -= sum(map(Fraction, block.C.mid[on].tolist()), Fraction(0))
    column, cost = _enclosed(sums), _enclosed([costs])
    rows = np.flatnonzero((column.mid != 0) | (column.rad != 0))
    wider = replace(
        program,
        B=sp.csr_array(sp.hstack([program.B, _column(column.mid, rows)])),
        c=np.append(program.c, cost.mid),
        u_lo=np.append(program.u_lo, 0.0),
        u_hi=np.append(program.u_hi, np.inf),
        columns=(),
        parameter_slopes=(),
    )
    data = data_of(wider)
    if column.rad.any():
        last, row = data.B.indices == program.k, np.repeat(np.arange(program.m), np.diff(data.B.indptr))
        radii = np.where(last, column.rad[row], 0.0)
        data = replace(data, B_rad=sp.csr_array((radii, data.B.indices, data.B.indptr), data.B.shape))
    return wider, replace(data, c=Ball(data.c.mid, np.append(np.zeros(program.k), cost.rad)))


def _column(values: Array, rows: IntArray) -> sp.csr_array:
    zero = np.zeros(len(rows), dtype=np.intp)
    return sp.csr_array((values[rows], (rows, zero)), (len(values), 1))


def _enclosed(numbers: Sequence[Fraction]) -> Ball:
    """Return the nearest doubles, with radii for those that are none."""
    mid = [float(number) for number in numbers]
    rad = [0.0 if Fraction(m) == x else math.ulp(m) for m, x in zip(mid, numbers, strict=True)]
    return Ball(np.array(mid), np.array(rad))
