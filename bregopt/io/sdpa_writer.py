"""A linear problem written as an SDPA sparse file (``.dat-s``, ``.dat-s.gz``).

:mod:`bregopt.io.sdpa_reader` says which pair of problems such a file states; this module writes (D).
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.files import path_of, replacing
from bregopt.io.linear import check_linear
from bregopt.io.sdpa_reader import SdpaEntries
from bregopt.modeling.problem import Problem
from bregopt.program import Program
from bregopt.program.rows import Coordinates, SparseRows

__all__ = ["write_sdpa"]


def write_sdpa(problem: Problem, path: str | Path) -> None:
    """Write a problem with a linear objective to a file in SDPA's sparse format.

    The file has the form (D), ``maximize <F_0, Y>`` with equalities only. A minimization is written with the
    negative of its objective. Each matrix is a block; then each ordinary variable is a diagonal block. One
    more diagonal block holds the negative parts of variables that may be negative, slacks of inequalities,
    and the number one if the objective has a constant. The rows of the problem come first, then bounds of
    variables other than zero, equations between the two slacks of two-sided rows, and the equation of the
    number one. Parameters are replaced by their values.

    Parameters
    ----------
    problem : Problem
    path : str or Path
        Compressed with gzip if the name ends with ``.gz``. Numbers read back exactly.

    Raises
    ------
    ValueError
        If the problem has a divergence, a bound on eigenvalues, a soft row, or no row at all; the message
        names it.
    """
    path, program = path_of(path), problem.program()
    if program.cones.count:
        raise ValueError(
            f"the problem has {program.cones.count} second-order cones; an SDPA file takes psd matrices and "
            "rows only. Write norm2(x) <= t as the psd matrix [[t I, x], [x', t]], or use bo.write_cbf"
        )
    check_linear(program, "an SDPA file")
    B, c, cost = _standard_form(program)
    if len(c) == 0:
        raise ValueError("the problem has no constraint; an SDPA file needs at least one row")
    sizes = [u.size for u in problem.variables]
    sizes += [len(cost) - sum(sizes)] if len(cost) > sum(sizes) else []
    parts = [_matrix_entries(program, b) for b in range(len(program.blocks))]
    parts.append(_vector_entries(B, cost, sizes, first=len(program.blocks)))
    text = _text([block.n for block in program.blocks] + [-size for size in sizes], c, _joined(parts))
    data = text.encode("ascii")
    # No time of day, so that the same problem gives the same bytes.
    with replacing(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data)


def _standard_form(program: Program) -> tuple[Any, Array, Array]:
    """Return ``B``, ``c`` and ``cost`` of the form ``A(X) + B v = c``, ``v >= 0`` of rows, bounds and `u`.

    ``v`` is `u`, or its positive part; then the negative parts, slacks of rows, second slacks of two-sided
    rows, and the number one if the objective has a constant.
    """
    free = program.u_lo < 0
    floor = np.where(program.u_lo == 0, -np.inf, program.u_lo)  # a lower bound of zero is v >= 0
    boxed = np.isfinite(floor) | np.isfinite(program.u_hi)
    B = sp.vstack([program.B, sp.eye_array(program.k, format="csr")[boxed]], format="csr")
    lo = np.concatenate([program.bounds.lo, floor[boxed]])
    hi = np.concatenate([program.bounds.hi, program.u_hi[boxed]])
    # Activity - s = lo, or activity + s = hi if there is no lower bound; for two-sided rows s + t = hi - lo.
    loose, below = np.flatnonzero(lo < hi), np.isfinite(lo)
    slack = _picked(loose, len(lo), np.where(below[loose], -1.0, 1.0))
    both = np.flatnonzero(below[loose] & np.isfinite(hi[loose]))
    tie = _picked(both, len(loose), np.ones(len(both))).T
    one = sp.eye_array(int(program.offset != 0))
    grid = [
        [B, -B[:, free], slack, None, None],
        [None, None, tie, sp.eye_array(len(both)), None],
        [None, None, None, None, one],
    ]
    width = (hi - lo)[loose[both]]
    right = np.concatenate([np.where(below, lo, hi), width, np.ones(one.shape[0])])
    unpriced = np.zeros(len(loose) + len(both))
    cost = np.concatenate([program.c, -program.c[free], unpriced, np.full(one.shape[0], program.offset)])
    return sp.block_array(grid, format="coo"), right, cost


def _picked(rows: IntArray, m: int, value: Array) -> Any:
    """Return the matrix with `m` rows and one value in each column, in the given row."""
    return sp.csr_array((value, (rows, np.arange(len(rows)))), (m, len(rows)))


def _matrix_entries(program: Program, b: int) -> SdpaEntries:
    """Return the entries of one matrix block; its ``F_0`` is the negative of its cost."""
    block = program.blocks[b]
    placed = [(term.at + 1, term.rows) for term in program.A.terms_of(b)]
    if block.cost is not None:
        placed.append((np.zeros(1, dtype=np.intp), block.cost.scale(np.array([-1.0]))))
    terms = [(at, rows.coordinates()) for at, rows in placed]
    columns = [(at[t.row], t.i, t.j, t.value) for at, t in terms]
    row, i, j, value = (np.concatenate(column) for column in zip(*columns, strict=True))
    t = SparseRows.of(1 + program.m, block.n, Coordinates(row, i, j, value)).terms
    return SdpaEntries(t.row, np.full(len(t.row), b), t.i, t.j, np.where(t.i == t.j, t.value, t.value / 2))


def _vector_entries(B: Any, cost: Array, sizes: Sequence[int], first: int) -> SdpaEntries:
    """Return the entries of the diagonal blocks, numbered from `first` on."""
    ends = np.cumsum([0, *sizes])
    column = np.concatenate([np.arange(len(cost)), B.col])
    row = np.concatenate([np.zeros(len(cost), dtype=np.intp), B.row + 1])
    block = np.searchsorted(ends, column, side="right") - 1
    i = column - ends[block]
    return SdpaEntries(row, first + block, i, i, np.concatenate([-cost, B.data]))


def _joined(parts: Sequence[SdpaEntries]) -> SdpaEntries:
    """Return the nonzero entries, sorted by matrix, block and place."""
    e = SdpaEntries(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(SdpaEntries)))
    order = np.lexsort((e.j, e.i, e.block, e.row))
    return e.take(order[e.value[order] != 0])


def _text(sizes: Sequence[int], c: Array, e: SdpaEntries) -> str:
    columns = (e.row, e.block + 1, e.i + 1, e.j + 1, e.value)
    lines = zip(*(column.tolist() for column in columns), strict=True)
    entries = [f"{row} {block} {i} {j} {value!r}" for row, block, i, j, value in lines]
    head = [str(len(c)), str(len(sizes)), " ".join(map(str, sizes)), " ".join(map(repr, (c + 0.0).tolist()))]
    return "\n".join([*head, *entries, ""])
