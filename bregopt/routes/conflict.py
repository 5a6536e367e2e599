"""Constraints that contradict each other: a table of them, and irreducible ones by a deletion filter.

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
from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify import with_trace_multipliers
from bregopt.clock import CutShort
from bregopt.display import html_table, latex_table, table_lines
from bregopt.errors import InfeasibleRowError
from bregopt.presolve import presolve
from bregopt.program import Block, Bounds, Declaration, Program
from bregopt.program.rows import SparseRows
from bregopt.records import dataclass, replace
from bregopt.rigorous import proves_infeasible
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.progress import items_bar
from bregopt.routes.registry import time_limit

_SHARES = (1e-2, 1e-4, 1e-6, 1e-9, 0.0)  # of the largest weight: smaller multipliers may be round-off
_TITLES = ("constraint", "inequality", "at this row", "multiplier")
_SHOWN = 3  # constraints named in a reason to stop


@dataclass(frozen=True, eq=False)
class Part:
    """What a conflict keeps or leaves out as one: a row, or a constraint that holds or fails as a whole."""

    declaration: Declaration
    row: int | None  # within the constraint
    rows: IntArray  # of the program
    cones: IntArray

    @property
    def block(self) -> int | None:
        """The matrix whose eigenvalues the constraint bounds."""
        return self.declaration.block


@dataclass(frozen=True)
class Contradicting:
    """One inequality of a conflict.

    Parameters
    ----------
    constraint : int
        The number of the constraint in ``problem.constraints``.
    name : str or None
        Its name.
    label : str
        The constraint as text.
    index : tuple or None
        The row in it, by its labels if the bound was a pandas object; None for a single row, and for a
        constraint that holds or fails as a whole.
    sense : {"<=", ">="} or None
        The side of the row that contradicts; None for a constraint that holds or fails as a whole.
    bound : float or None
        The number on that side.
    multiplier : float
        The weight of this inequality in the contradiction, relative to the largest.
    """

    constraint: int
    name: str | None
    label: str
    index: tuple[Any, ...] | None
    sense: str | None
    bound: float | None
    multiplier: float

    @property
    def title(self) -> str:
        """The name or number of the constraint, and the index of the row."""
        name = f"constraint {self.constraint}" if self.name is None else self.name
        if self.index is None:
            return name
        parts = [part for label in self.index for part in (label if isinstance(label, tuple) else (label,))]
        return f"{name}[{', '.join(map(str, parts))}]"

    @property
    def side(self) -> str:
        """The side and the number of a row among several, such as ">= 0.5"; empty for others."""
        return "" if self.index is None else f"{self.sense} {self.bound:g}"


@dataclass(frozen=True)
class Conflict:
    """Constraints that contradict each other; without one of them the others can be met.

    It iterates over its inequalities, and ``len`` is their number. ``X psd`` and the bounds of ordinary
    variables always hold, and belong to no conflict.

    Parameters
    ----------
    rows : tuple of Contradicting
    irreducible : bool
        Whether each smaller set is shown to have a solution, to the tolerance. It is False if the time was
        over before, or a smaller set was not decided.
    """

    rows: tuple[Contradicting, ...]
    irreducible: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Contradicting]:
        return iter(self.rows)

    @property
    def verdict(self) -> str:
        """What is proven, in a sentence."""
        if len(self) == 1:
            return "this inequality contradicts X psd by itself"
        proven = f"these {len(self)} inequalities contradict each other"
        if not self.irreducible:
            return f"{proven}; a part of them may do so already"
        return f"{proven}; without one of them, the others can be met"

    def __str__(self) -> str:
        return "\n".join([*table_lines(_TITLES, self._cells, left=3), self.verdict])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(_TITLES, self._cells, left=3, caption=self.verdict)

    def _repr_latex_(self) -> str:
        return f"$$\n{latex_table(_TITLES, self._cells, left=3)}\n$$\n{self.verdict}"

    @property
    def _cells(self) -> list[tuple[str, ...]]:
        return [(row.title, row.label, row.side, f"{row.multiplier:.3g}") for row in self.rows]


def parts_of(program: Program, declarations: Sequence[Declaration]) -> list[Part]:
    """Return the parts of a program that may be left out: its hard rows, and whole constraints."""
    hard, none = program.bounds.required, np.zeros(0, dtype=np.intp)
    parts = []
    for d in declarations:
        if d.shape is None:
            parts.append(Part(d, None, d.rows, d.cones))
        else:
            parts += [Part(d, k, d.rows[[k]], none) for k in np.flatnonzero(hard[d.rows]).tolist()]
    return parts


def weights(program: Program, parts: Sequence[Part], y: Array) -> Array:
    """Return the size of the multipliers of each part, times that of its rows; zero for other constraints."""
    of_rows = np.abs(y) * program.row_sizes
    cones = program.cones
    of_cones = np.sqrt(cones.inner(z := (program.B.T @ y)[cones.index], z))
    return np.array(
        [max(of_rows[part.rows].max(initial=0.0), of_cones[part.cones].max(initial=0.0)) for part in parts]
    )


def member(program: Program, part: Part, y: Array) -> Contradicting:
    """Return a part of a conflict with its multiplier."""
    d, bounds = part.declaration, program.bounds
    known: dict[str, Any] = {"constraint": d.number, "name": d.name, "label": d.label}
    if part.block is not None:
        multiplier = float(np.maximum(np.linalg.eigvalsh(program.A.adjoint(y, part.block)), 0.0).sum())
        return Contradicting(**known, index=None, sense=None, bound=None, multiplier=multiplier)
    if part.row is None:
        z = (program.B.T @ y)[program.cones.index][np.isin(program.cones.owner, part.cones)]
        multiplier = float(np.abs(np.concatenate([y[part.rows], z])).max(initial=0.0))
        return Contradicting(**known, index=None, sense=None, bound=None, multiplier=multiplier)
    (k,) = part.rows
    low = bool(y[k] > 0)
    return Contradicting(
        **known,
        index=d.index(part.row),
        sense=">=" if low else "<=",
        bound=float(bounds.lo[k] if low else bounds.hi[k]),
        multiplier=abs(float(y[k])),
    )


def with_largest(reason: str, program: Program, declarations: Sequence[Declaration], y: Array) -> str:
    """Return the reason why a problem is infeasible, with the constraints of the largest multipliers."""
    parts = [part for part in parts_of(program, declarations) if part.row is None or y[part.rows[0]] != 0]
    weight = weights(program, parts, y)
    digits = np.round(
        weight / max(weight.max(initial=0.0), TINY), 6
    )  # those equal but for round-off keep order
    order = [k for k in np.argsort(-digits, kind="stable") if weight[k] > 0]
    if not order:
        return reason
    rows = [member(program, parts[k], y) for k in order[:_SHOWN]]
    largest = max(row.multiplier for row in rows)
    named = ", ".join(
        f"{row.title} ({row.label}{row.side and f', here {row.side}'}) {row.multiplier / largest:.2g}"
        for row in rows
    )
    more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
    return f"{reason} Relative multipliers: {named}{more}. sol.conflict() finds an irreducible set."


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

    # Pays on: 21 correlations of at most -0.2.
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
    program = presolve(program, ("range space",), Settings()).program
    blocks = tuple(
        Block(block.name, block.n, cost=SparseRows.trace(block.n), face=block.face, cap=block.cap)
        for block in program.blocks
    )
    c = np.zeros(program.k)
    return replace(program, blocks=blocks, c=c, offset=0.0, maximize=False, labels=(), parameter_slopes=())


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
