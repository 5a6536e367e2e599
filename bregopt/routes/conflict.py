"""Conflicts: irreducible sets of constraints that contradict each other, by a deletion filter.

The filter (Chinneck and Dravnieks, 1991) leaves out one constraint after the other and keeps out those
without which the rest is still infeasible. Each contradiction is proven by a Farkas vector, and the
constraints outside its support are left out with it.

Chinneck, Dravnieks (1991), Locating minimal infeasible constraint sets in linear programs, ORSA J. Computing
3; for the role of Farkas vectors: Gleeson, Ryan (1990), Identifying minimally infeasible subsystems of
inequalities, ibid. 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, IntArray
from bregopt.certify import with_trace_multipliers
from bregopt.clock import CutShort
from bregopt.errors import InfeasibleRowError
from bregopt.presolve import presolve, reductions
from bregopt.program import Block, Bounds, Declaration, Program
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import replace
from bregopt.rigorous import proves_infeasible
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.contradiction import Conflict, Part, member, parts_of, weights
from bregopt.routes.options import time_limit
from bregopt.routes.progress import items_bar

__all__ = ["find_conflict"]

_SHARES = (1e-2, 1e-4, 1e-6, 1e-9, 0.0)  # of the largest weight: smaller multipliers may be round-off


def find_conflict(
    program: Program, declarations: Sequence[Declaration], y: Array, solver: Any, options: Mapping[str, Any]
) -> Conflict:
    """Return an irreducible set of constraints that contradict each other.

    Parameters
    ----------
    program : Program
        An infeasible one.
    declarations : sequence of Declaration
        Its constraints.
    y : array of shape (m,)
        A Farkas vector, or a candidate for one.
    solver, options
        Of the solves, as for :meth:`bregopt.Problem.solve`.

    Raises
    ------
    ValueError
        If no contradiction is proven.
    """
    feasibility = _feasibility(program)
    everything = parts_of(feasibility, declarations)
    search = _Filter(feasibility, solver, {**options, "time_limit": None, "progress": False})
    with clock.limited(time_limit(options)):
        if not proves_infeasible(feasibility, y):
            proven = search.contradiction(everything)
            if proven is None:
                raise ValueError(
                    "no contradiction is proven, so there is no conflict to reduce; bound the traces of the "
                    "matrices, which sharpens proofs, or solve to a smaller tol"
                )
            y = proven
        else:
            y = with_trace_multipliers(feasibility, y)
        kept, y, irreducible = search.run(everything, y, bool(options.get("progress")))
    largest = float(np.abs(y).max(initial=0.0))
    rows = tuple(member(program, part, y / largest if largest > 0 else y) for part in kept)
    return Conflict(rows, irreducible)


class _Filter:
    """The deletion filter: parts that may be left out, and the proofs that the rest is infeasible."""

    def __init__(self, program: Program, solver: Any, options: Mapping[str, Any]) -> None:
        self.program, self.solver, self.options = program, solver, options
        self.decided = True  # whether each part that is kept was shown to be needed

    def run(self, parts: Sequence[Part], y: Array, progress: bool) -> tuple[list[Part], Array, bool]:
        """Return the parts of a conflict, its Farkas vector, and whether the set is proven irreducible."""
        kept, needed = self._support(parts, y), set[Part]()
        try:
            for _ in items_bar(itertools.count(), "solves", progress):
                part = self._least(kept, needed, y)
                if part is None:
                    break
                clock.checkpoint()
                others = [other for other in kept if other is not part]
                proven = self.contradiction(others)
                if proven is None:
                    needed.add(part)
                else:
                    kept, y = self._support(others, proven), proven
        except CutShort:
            return kept, y, False
        return kept, y, self.decided

    def contradiction(self, parts: Sequence[Part]) -> Array | None:
        """Return a Farkas vector of the rows of some parts, None if none is found."""
        rows, small, y = _rows(parts), _restricted(self.program, parts), np.zeros(self.program.m)
        try:
            solution = routing.solve(small, self.solver, warn=False, **self.options)
        except InfeasibleRowError as error:
            y[rows] = _of_one_row(small, error.row)
            self.decided &= bool(y.any())
            return y if y.any() else None
        if solution.status == "infeasible":
            assert solution.duals is not None
            y[rows] = solution.duals
            y[rows] = with_trace_multipliers(small, y[rows])
            return y
        self.decided &= solution.X is not None and solution.primal_residual <= Settings().tol
        return None

    def _support(self, parts: Sequence[Part], y: Array) -> list[Part]:
        """Return the parts whose multipliers alone are a Farkas vector: few, if small ones are round-off."""
        weight = weights(self.program, parts, y)
        for share in _SHARES:
            kept = [p for p, w in zip(parts, weight, strict=True) if w > share * weight.max(initial=0.0)]
            if kept and proves_infeasible(_restricted(self.program, kept), y[_rows(kept)]):
                return kept
        return list(parts)

    def _least(self, kept: Sequence[Part], needed: set[Part], y: Array) -> Part | None:
        """Return the part of least weight that is not known to be needed, None if all are."""
        weight = weights(self.program, kept, y)
        open_parts = [(w, k) for k, (p, w) in enumerate(zip(kept, weight, strict=True)) if p not in needed]
        return kept[min(open_parts)[1]] if open_parts else None


def _of_one_row(program: Program, row: int | None) -> Array:
    """Return a Farkas vector that uses one row alone, zero if there is none."""
    for sign in () if row is None else (1.0, -1.0):
        y = np.where(np.arange(program.m) == row, sign, 0.0)
        if proves_infeasible(program, y):
            return with_trace_multipliers(program, y)
    return np.zeros(program.m)


def _feasibility(program: Program) -> Program:
    """Return the problem of least trace under the same rows, on the range spaces of low-rank ``X0``."""
    program = presolve(program, reductions(("range space",)), Settings()).program
    blocks = tuple(
        Block(block.name, block.n, cost=_trace(block.n), face=block.face, cap=block.cap)
        for block in program.blocks
    )
    c = np.zeros(program.k)
    return replace(program, blocks=blocks, c=c, offset=0.0, maximize=False, labels=(), parameter_slopes=())


def _trace(n: int) -> SparseRows:
    order = np.arange(n)
    return SparseRows(1, n, Coordinates(np.zeros(n, dtype=np.intp), order, order, np.ones(n)))


def _rows(parts: Sequence[Part]) -> IntArray:
    """Return the rows of some parts, in the order of the program."""
    return np.sort(np.concatenate([np.zeros(0, dtype=np.intp), *(part.rows for part in parts)]))


def _restricted(program: Program, parts: Sequence[Part]) -> Program:
    """Return the program with these parts only, and without variables that occur in none of them."""
    rows = _rows(parts)
    cones = np.concatenate([np.zeros(0, dtype=np.intp), *(part.cones for part in parts)])
    capped = {part.block for part in parts}
    blocks = tuple(
        replace(block, cap=block.cap if b in capped else None) for b, block in enumerate(program.blocks)
    )
    members = list(_members(program, cones))
    B = program.B[rows]
    occurs = np.zeros(program.k, dtype=bool)
    occurs[B.indices] = True
    occurs[np.concatenate([np.zeros(0, dtype=np.intp), *members])] = True
    number = np.cumsum(occurs) - 1
    bounds = program.bounds
    return replace(
        program,
        blocks=blocks,
        A=program.A.slice(rows),
        B=B[:, np.flatnonzero(occurs)],
        bounds=Bounds.of_hard_rows(bounds.lo[rows], bounds.hi[rows]),
        c=program.c[occurs],
        u_lo=program.u_lo[occurs],
        u_hi=program.u_hi[occurs],
        columns=(),
        cones=type(program.cones).of([number[group] for group in members]),
    )


def _members(program: Program, cones: IntArray) -> Iterator[IntArray]:
    """Yield the variables of each of these second-order cones."""
    for k in cones:
        start = program.cones.starts[k]
        yield program.cones.index[start : start + program.cones.dimensions[k]]
