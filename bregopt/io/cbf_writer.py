"""A linear problem written as a CBF file (``.cbf``, ``.cbf.gz``)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.files import path_of, replacing
from bregopt.io.text_files import check_linear
from bregopt.modeling.problem import Problem
from bregopt.program import Block, Program
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass, replace

__all__ = ["write_cbf"]


def write_cbf(problem: Problem, path: str | Path) -> None:
    """Write a problem with a linear objective to a file in the Conic Benchmark Format, version 1.

    The matrices are ``PSDVAR``. The scalars are the ordinary variables in their order, and those of
    second-order cones after them. ``CON`` holds the rows of the problem, the bounds of variables other than
    zero, and then the upper bounds of two-sided rows and variables. Parameters are replaced by their values.

    Parameters
    ----------
    problem : Problem
    path : str or Path
        Compressed with gzip if the name ends with ``.gz``. Numbers read back exactly.

    Raises
    ------
    ValueError
        If the problem has a divergence, a bound on eigenvalues or a soft row; the message names it.
    """
    path, program = path_of(path), problem.program()
    check_linear(program, "a CBF file")
    data = "\n".join([*_lines(program), ""]).encode("ascii")
    # No time of day, so that the same problem gives the same bytes.
    with replacing(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data)


def _lines(program: Program) -> Iterator[str]:
    """Yield the lines of the file."""
    sign = -1.0 if program.maximize else 1.0
    order, var = _scalars(program)
    rows = _rows(program)
    costs = [_matrix_cost(b, block, sign) for b, block in enumerate(program.blocks)]
    forms = [_matrix_rows(b, program, rows.at) for b in range(len(program.blocks))]
    yield from ("VER", "1", "", "OBJSENSE", "MAX" if program.maximize else "MIN")
    yield from ("", "PSDVAR", str(len(program.blocks)), *(str(block.n) for block in program.blocks))
    yield from _cones("VAR", var)
    yield from _cones("CON", rows.cones)
    yield from _section("OBJFCOORD", costs)
    yield from _section("OBJACOORD", [_nonzero(sign * program.c[order])])
    if program.offset:
        yield from ("", "OBJBCOORD", repr(sign * program.offset))
    yield from _section("FCOORD", forms)
    scalars = sp.coo_array(sp.csc_array(rows.B)[:, order].tocsr())
    yield from _section("ACOORD", [(*scalars.coords, scalars.data)])
    yield from _section("BCOORD", [_nonzero(rows.constant)])


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of CON: ``A(X)[at] + B x + constant``, each in a cone; rows without matrices come last."""

    at: IntArray
    B: Any
    constant: Array
    cones: list[tuple[str, int]]


def _scalars(program: Program) -> tuple[IntArray, list[tuple[str, int]]]:
    """Return the ordinary variables, those in second-order cones last, and the cones of all."""
    cones = program.cones
    outside = np.setdiff1d(np.arange(program.k), cones.index)
    lo, hi = program.u_lo[outside], program.u_hi[outside]
    kinds = np.where(lo == 0, np.where(hi == 0, "L=", "L+"), np.where(hi == 0, "L-", "F"))
    in_order = np.concatenate([outside, cones.index]).astype(np.intp)
    return in_order, [(kind, 1) for kind in kinds] + [("Q", size) for size in cones.dimensions.tolist()]


def _rows(program: Program) -> _Rows:
    """Return the rows of the program, and after them the bounds of variables other than zero."""
    lo = np.concatenate([program.bounds.lo, np.where(program.u_lo == 0, -np.inf, program.u_lo)])
    hi = np.concatenate([program.bounds.hi, np.where(program.u_hi == 0, np.inf, program.u_hi)])
    B = sp.vstack([program.B, sp.eye_array(program.k)], format="csr")
    own = np.arange(len(lo)) < program.m
    equal, below, above = lo == hi, np.isfinite(lo), np.isfinite(hi)
    first = np.flatnonzero(own | below | above)
    second = np.flatnonzero(below & above & ~equal)
    kinds = np.where(equal, "L=", np.where(below, "L+", np.where(above, "L-", "F")))[first]
    end = np.where(below, lo, np.where(above, hi, 0.0))[first]
    at = np.concatenate([first, second])
    return _Rows(
        at,
        sp.csr_array(B[at]),
        -np.concatenate([end, hi[second]]) + 0.0,
        [*((kind, 1) for kind in kinds), *(("L-", 1) for _ in second)],
    )


def _matrix_cost(b: int, block: Block, sign: float) -> tuple[Any, ...]:
    """Return the columns of a matrix variable in OBJFCOORD."""
    if block.cost is None:
        return ((),) * 4
    t = block.cost.coordinates()
    return _lower_triangle(b, SparseRows.of(1, block.n, replace(t, value=sign * t.value)))[1:]


def _matrix_rows(b: int, program: Program, at: IntArray) -> tuple[Any, ...]:
    """Return the columns of a matrix variable in FCOORD."""
    n, terms = program.blocks[b].n, program.A.terms_of(b)
    if not terms:
        return ((),) * 5
    parts = [(term.at, term.rows.coordinates()) for term in terms]
    columns = [(own[t.row], t.i, t.j, t.value) for own, t in parts]
    joined = Coordinates(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    stacked = program.m + program.k
    return _lower_triangle(b, SparseRows.of(stacked, n, joined).slice(at))


def _lower_triangle(b: int, rows: SparseRows) -> tuple[Any, ...]:
    """Return rows as columns: row, matrix, row and column of the matrix, value."""
    t = rows.terms
    return t.row, np.full(len(t.row), b), t.j, t.i, np.where(t.i == t.j, t.value, t.value / 2)


def _nonzero(values: Array) -> tuple[IntArray, Array]:
    at = np.flatnonzero(values)
    return at, values[at]


def _cones(keyword: str, cones: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield a section of cones; linear ones of one kind that follow each other are one."""
    runs: list[tuple[str, int]] = []
    for kind, group in groupby(cones, key=lambda cone: cone[0]):
        sizes = [size for _, size in group]
        runs += [(kind, size) for size in sizes] if kind == "Q" else [(kind, sum(sizes))]
    if runs:
        total = sum(size for _, size in runs)
        yield from ("", keyword, f"{total} {len(runs)}", *(f"{kind} {size}" for kind, size in runs))


def _section(keyword: str, parts: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield a section of entries, given by columns; nothing if there are none."""
    entries = [
        " ".join([*map(str, index), repr(value)])
        for part in parts
        for *index, value in zip(*(np.asarray(column).tolist() for column in part), strict=True)
    ]
    if entries:
        yield from ("", keyword, str(len(entries)), *entries)
