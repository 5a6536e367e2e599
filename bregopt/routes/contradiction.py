"""Constraints that contradict each other: their parts, multipliers and table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.program import Declaration, Program
from bregopt.records import dataclass
from bregopt.tables import html_table, latex_table, table_lines

__all__ = ["Conflict", "Contradicting", "Part", "member", "parts_of", "weights", "with_largest"]

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
