"""Numbers that are written as the difference of two variables with lower bounds, each at a price.

Linear programs state ``p max(a, 0) + q max(-a, 0)`` as ``a = u - l`` with ``u, l >= 0`` and the costs ``p u``
and ``q l``: sums of absolute deviations, or worst cases over intervals of coefficients. Both variables are in
that equality alone. For a given ``a`` the best values have the cost ``(p - q) a / 2 + (p + q) |a| / 2``. The
first part is linear in the other terms of the row, the second one is a hinge on it. A multiplier ``y`` of the
hinge is ``y - (p - q) / 2`` in the equality. An interior-point method takes as many steps with the two
variables; alternating directions take half of theirs without.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, Block, Penalty, Program, Start, StopReason
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass, replace

__all__ = ["Differences", "Joined"]


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
        on_faces = None if answer.y_on_faces is None else self._multipliers(answer.y_on_faces, answer.stop)
        return replace(answer, u=u, y=self._multipliers(answer.y, answer.stop), y_on_faces=on_faces)

    def _multipliers(self, own: Array, stop: StopReason) -> Array:
        """Return multipliers of the equalities; a Farkas vector has no prices."""
        y = own.copy()
        if stop is not StopReason.INFEASIBLE:
            y[self.pairs.row] -= self.slope
        return y


# Pays on: the portfolio of the least worst case, n = 60.
class Differences:
    """Replace two priced variables of one equality, with opposite signs, by a linear cost and a hinge."""

    name: ClassVar[str] = "differences"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> Joined | None:
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
        kept, weights = np.flatnonzero(mask), np.zeros(program.m)
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
    own = np.flatnonzero(single & (np.diff(starts) == 1))
    row, weight = rows[starts[own]], values[starts[own]]
    of_row = np.full((2, program.m), -1)  # one variable of each sign
    for sign in (0, 1):
        chosen = np.flatnonzero(equal[row] & ((weight > 0) == bool(sign)))
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
