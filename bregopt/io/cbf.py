"""CBF files (``.cbf``, ``.cbf.gz``): a conic problem read as one of the language, and a problem written.

Such a file states, with matrix variables ``X_j``, scalars ``x_j`` and cones ``K``,

    minimize or maximize   sum_j <F_j, X_j> + a'x + b
    subject to             sum_j <F_ij, X_j> + a_i'x + b_i  in  K,    for the rows i of CON
                           sum_j x_j H_ij + D_i  psd,                 for the matrices i of PSDCON
                           X_j  psd,   x  in  K.

Its text is parsed and checked first: every error names its line. Friberg (2016), CBLIB 2014: a benchmark
library for conic mixed-integer and continuous optimization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import LARGEST, Array, IntArray, check_memory
from bregopt.errors import did_you_mean
from bregopt.files import Lines, number, path_of, read_latin, write_ascii
from bregopt.io.sdpa import check_linear
from bregopt.modeling.constraints import Constraint, SecondOrderConstraint
from bregopt.modeling.convex.expression import Maximize, Minimize
from bregopt.modeling.expressions import Expression
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.program import Program, rows
from bregopt.program.rows import Coordinates, SparseRows, placed_coordinates
from bregopt.records import dataclass, replace

Cones = Sequence[tuple[str, int]]
SUFFIXES = (".cbf", ".cbf.gz")
# The bounds of one row or scalar in a linear cone.
LINEAR: dict[str, tuple[float, float]] = {
    "F": (-np.inf, np.inf),
    "L+": (0.0, np.inf),
    "L-": (-np.inf, 0.0),
    "L=": (0.0, 0.0),
}
SECOND_ORDER = ("Q", "QR")  # ||v|| <= t of (t, v), and ||v||^2 <= 2 s t with s, t >= 0 of (s, t, v)
# The numbers of a line in the sections of entries. `con` counts rows of CON or matrices of PSDCON, `psd` and
# `var` matrix variables and scalars, and `row` and `column` those of a symmetric matrix.
COLUMNS: dict[str, tuple[str, ...]] = {
    "OBJFCOORD": ("psd", "row", "column", "value"),
    "OBJACOORD": ("var", "value"),
    "FCOORD": ("con", "psd", "row", "column", "value"),
    "ACOORD": ("con", "var", "value"),
    "BCOORD": ("con", "value"),
    "HCOORD": ("con", "var", "row", "column", "value"),
    "DCOORD": ("con", "row", "column", "value"),
}
_VERSIONS = (1, 2, 3, 4)  # a later version has more cones, which are refused by name
_LARGEST_COUNT, _LARGEST_ORDER = 2**53, 2**31 - 1
# Bytes for each row and scalar (bounds, a column and its numbers), for each entry of a matrix constraint, and
# for each row of a matrix variable, whose entries are not read.
_ROW, _ENTRY, _ORDER = 100, 100, 16
_OTHERS = {
    "INT": "integer variables, which are not convex",
    "CHANGE": "a second instance in one file",
    "POWCONES": "power cones",
    "POW*CONES": "dual power cones",
}


def read_cbf(path: str | Path) -> Problem:
    """Read a problem from a file in the Conic Benchmark Format, of version 1 to 4.

    Linear cones (``F``, ``L+``, ``L-``, ``L=``), quadratic cones (``Q``, ``QR``) and psd matrices are read.
    The matrix variables are called ``X0``, ``X1``, ... after their numbers in the file. A variable ``x7`` is
    the vector of the scalars from that number on whose bounds are alike. A matrix constraint ``i`` is a
    matrix variable ``S{i}`` with equalities. Rows in neighboring cones of one kind are one constraint.

    Parameters
    ----------
    path : str or Path
        Read through gzip if the name ends with ``.gz``; ``"-"`` for the standard input.

    Returns
    -------
    Problem

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is of another kind, has integer variables, other cones or no matrix, or does not fit in
        memory; the message names the line, its content and the expected content.

    References
    ----------
    Friberg (2016), CBLIB 2014: a benchmark library for conic mixed-integer and continuous optimization.
    """
    path = path_of(path)
    lines = ["" if line.startswith("#") else line.strip() for line in read_latin(path).rstrip().split("\n")]
    if not any(lines):
        raise ValueError(f"{path} is empty; expected a problem in the Conic Benchmark Format")
    cbf = _Parser(Lines(path, lines)).cbf()
    if not cbf.psdvar and not cbf.psdcon:
        raise ValueError(f"{path} has no matrix; expected PSDVAR or PSDCON. For others use CVXPY itself")
    return _Reader(cbf).problem()


class _Reader:
    """Makes variables, the objective and constraints from the sections of a file."""

    def __init__(self, cbf: Cbf) -> None:
        self._cbf = cbf
        self._matrices = [PSD(n, name=f"X{j}") for j, n in enumerate(cbf.psdvar)]
        self._scalars = list(_scalars(cbf.var))
        self._k = sum(size for _, size in cbf.var)

    def problem(self) -> Problem:
        """Return the problem; it contains every variable, even one without entries."""
        sense = Maximize if self._cbf.maximize else Minimize
        return Problem(sense(self._objective()), [*self._in_cones(), *self._rows(), *self._matrix_rows()])

    def _objective(self) -> Expression:
        matrices, scalars = self._cbf.of("OBJFCOORD"), self._cbf.of("OBJACOORD")
        first = np.zeros(len(matrices.value), dtype=np.intp)
        place = np.zeros_like(scalars.index["var"]), scalars.index["var"]
        costs = sp.csc_array((scalars.value, place), (1, self._k))
        psd: dict[Any, Any] = {X: _inner(1, X.n, first, matrices, j) for j, X in enumerate(self._matrices)}
        variables = {u: sp.csr_array(costs[:, span]) for u, span in self._scalars}
        constant = np.array([self._cbf.constant])
        return Expression((), constant, psd, variables, label="the objective of the file")

    def _in_cones(self) -> Iterator[SecondOrderConstraint]:
        """Yield the scalars in second-order cones."""
        for kind, cones, place in _runs(self._cbf.var):
            if kind in SECOND_ORDER:
                at = np.arange(place.start, place.stop)
                picks = sp.csr_array((np.ones(len(at)), (np.arange(len(at)), at)), (len(at), self._k))
                yield _second_order(self._affine(picks, f"x[{_text(place)}]"), kind, cones)

    def _rows(self) -> Iterator[Constraint | SecondOrderConstraint]:
        """Yield the rows of CON; those in free cones are none."""
        m = sum(size for _, size in self._cbf.con)
        F, A, b = (self._cbf.of(section) for section in ("FCOORD", "ACOORD", "BCOORD"))
        constant = np.bincount(b.index["con"], b.value, m).astype(float)
        matrix = sp.csr_array((A.value, (A.index["con"], A.index["var"])), (m, self._k))
        psd = {X: _inner(m, X.n, F.index["con"], F, j) for j, X in enumerate(self._matrices)}
        psd = {X: inner for X, inner in psd.items() if inner.count()}
        body = self._affine(matrix, "CON", constant, psd)
        for kind, cones, place in _runs(self._cbf.con):
            at = np.arange(place.start, place.stop)
            part = body.taken(at, (len(at),), f"CON[{_text(place)}]")
            if kind in SECOND_ORDER:
                yield _second_order(part, kind, cones)
            elif kind != "F":
                yield {"L+": part.__ge__, "L-": part.__le__, "L=": part.__eq__}[kind](0.0)

    def _matrix_rows(self) -> Iterator[Constraint]:
        """Yield the equalities of each matrix constraint with a psd matrix, on and below the diagonal."""
        H, D = self._cbf.of("HCOORD"), self._cbf.of("DCOORD")
        for k, n in enumerate(self._cbf.psdcon):
            S, (i, j) = PSD(n, name=f"S{k}"), np.tril_indices(n)
            own, given = H.index["con"] == k, D.index["con"] == k
            slope = sp.csr_array(
                (-H.value[own], (_in_triangle(H, own), H.index["var"][own])), (len(i), self._k)
            )
            constant = np.bincount(_in_triangle(D, given), -D.value[given], len(i)).astype(float)
            own_rows = {S: rows.Entries(n, i, j, np.ones(len(i)))}
            yield self._affine(slope, f"S{k} - PSDCON {k}", constant, own_rows) == 0.0

    def _affine(
        self, matrix: Any, label: str, constant: Array | None = None, psd: dict[Any, Any] | None = None
    ) -> Expression:
        """Return rows ``<F, X> + matrix x + constant``."""
        m, by_column = matrix.shape[0], sp.csc_array(matrix)
        parts = {u: sp.csr_array(by_column[:, place]) for u, place in self._scalars}
        found = {u: part for u, part in parts.items() if part.nnz}
        return Expression((m,), np.zeros(m) if constant is None else constant, psd or {}, found, label=label)


def _scalars(cones: Cones) -> Iterator[tuple[Variable, slice]]:
    """Yield a variable for each run of scalars with the same bounds, with its place among all."""
    start = 0
    for bounds, group in groupby(cones, key=lambda cone: LINEAR.get(cone[0], LINEAR["F"])):
        size = sum(own for _, own in group)
        if size:
            lower, upper = (end if np.isfinite(end) else None for end in bounds)
            yield Variable(size, name=f"x{start}", lower=lower, upper=upper), slice(start, start + size)
        start += size


def _runs(cones: Cones) -> Iterator[tuple[str, list[int], slice]]:
    """Yield the kind, the sizes and the place of cones of one kind that follow each other."""
    start = 0
    for kind, group in groupby(cones, key=lambda cone: cone[0]):
        sizes = [size for _, size in group]
        if sum(sizes):
            yield kind, sizes, slice(start, start + sum(sizes))
        start += sum(sizes)


def _second_order(body: Expression, kind: str, sizes: list[int]) -> SecondOrderConstraint:
    """Return vectors, one after the other, as vectors ``(t, v)`` with ``||v|| <= t``.

    A rotated one, ``||v||^2 <= 2 s t``, is ``(s + t, s - t, sqrt(2) v) / sqrt(2)``.
    """
    starts = np.cumsum([0, *sizes[:-1]])
    if kind == "QR":
        turned = sp.lil_array(sp.eye_array(body.size))
        half = np.sqrt(0.5)
        turned[starts, starts] = turned[starts, starts + 1] = turned[starts + 1, starts] = half
        turned[starts + 1, starts + 1] = -half
        body = sp.csr_array(turned) @ body
    axes = np.zeros(body.size)
    axes[starts] = 1.0
    return SecondOrderConstraint(body, np.array(sizes), f"{body.label} in {kind}", axes)


def _inner(m: int, n: int, row: IntArray, entries: Entries, j: int) -> SparseRows:
    """Return the rows ``<F, X_j>`` of the entries of one triangle."""
    own = entries.index["psd"] == j
    a, b, value = (part[own] for part in (entries.index["row"], entries.index["column"], entries.value))
    return SparseRows.of(m, n, Coordinates(row[own], a, b, np.where(a == b, value, 2 * value)))


def _in_triangle(entries: Entries, own: Any) -> IntArray:
    """Return the numbers of places in the lower triangle, row by row."""
    ends = entries.index["row"][own], entries.index["column"][own]
    i, j = np.maximum(*ends), np.minimum(*ends)
    places: IntArray = i * (i + 1) // 2 + j
    return places


def _text(place: slice) -> str:
    return f"{place.start}:{place.stop}" if place.stop - place.start > 1 else str(place.start)


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one section: a row of `index` for each of its columns but the last, and the values."""

    index: dict[str, np.ndarray]
    value: Array


@dataclass(eq=False)
class Cbf:
    """The content of a file.

    Parameters
    ----------
    maximize : bool
    psdvar, psdcon : list of int
        The orders of matrix variables and of matrix constraints.
    var, con : list of (str, int)
        The cones of the scalars and of the rows, each with its size.
    constant : float
        Of the objective.
    entries : dict from str to Entries
        The other sections, by their keywords.
    """

    maximize: bool = False
    psdvar: list[int] = field(default_factory=list)
    psdcon: list[int] = field(default_factory=list)
    var: list[tuple[str, int]] = field(default_factory=list)
    con: list[tuple[str, int]] = field(default_factory=list)
    constant: float = 0.0
    entries: dict[str, Entries] = field(default_factory=dict)

    def of(self, section: str) -> Entries:
        """Return the entries of a section, none if the file does not have it."""
        none = {name: np.zeros(0, dtype=np.intp) for name in COLUMNS[section][:-1]}
        return self.entries.get(section) or Entries(none, np.zeros(0))


class _Parser:
    """Reads the sections of a file one after the other."""

    def __init__(self, source: Lines) -> None:
        self._source = source
        self._written = source.written(0)  # the indices of lines with content
        self._at = 0  # the next of these
        self._cbf = Cbf()
        self._lines: dict[str, list[int]] = {}  # of the entries of each section

    def cbf(self) -> Cbf:
        """Return the content of the file."""
        sections: dict[str, Callable[[str], None]] = {
            "VER": self._version,
            "OBJSENSE": self._sense,
            "PSDVAR": self._orders,
            "PSDCON": self._orders,
            "VAR": self._cones,
            "CON": self._cones,
            "OBJBCOORD": self._constant,
            **dict.fromkeys(COLUMNS, self._coordinates),
            **dict.fromkeys(_OTHERS, self._refused),
        }
        read: dict[str, int] = {}
        while self._at < len(self._written):
            line, keyword = self._next("a keyword")
            if keyword not in sections:
                raise self._source.error(line, repr(keyword), f"a keyword{did_you_mean(keyword, sections)}")
            if keyword in read:
                raise self._source.error(line, f"{keyword} as on line {read[keyword] + 1}", "it once")
            if not read and keyword != "VER":
                raise self._source.error(line, f"{keyword!r}", "VER first")
            read[keyword] = line
            sections[keyword](keyword)
        for keyword in COLUMNS:
            if keyword in self._lines:
                self._check_entries(keyword)
        return self._cbf

    def _next(self, expected: str) -> tuple[int, str]:
        """Return the index of the next line with content, and the line."""
        if self._at == len(self._written):
            raise self._source.error(self._written[-1], "the file ends here", f"{expected} after it")
        line = self._written[self._at]
        self._at += 1
        return line, self._source.lines[line]

    def _integers(
        self, names: tuple[str, ...], least: int = 0, most: int = _LARGEST_COUNT
    ) -> tuple[int, tuple[int, ...]]:
        """Return the index of the next line, and its integers, one for each name."""
        expected = " and ".join(names)
        line, text = self._next(expected)
        try:
            found = [number(word) for word in text.split()]
        except ValueError:
            raise self._source.error(line, repr(text), expected) from None
        if len(found) != len(names) or not all(x.is_integer() for x in found):
            raise self._source.error(line, repr(text), expected)
        for x in found:
            if not least <= x <= most:
                raise self._source.error(line, f"{x:.0f}", f"{expected}, {least} to {most}")
        return line, tuple(int(x) for x in found)

    def _version(self, _: str) -> None:
        line, (version,) = self._integers(("the version",))
        if version not in _VERSIONS:
            raise self._source.error(line, f"version {version}", f"1 to {_VERSIONS[-1]}")

    def _sense(self, _: str) -> None:
        line, word = self._next("MIN or MAX")
        if word not in ("MIN", "MAX"):
            raise self._source.error(line, repr(word), "MIN or MAX")
        self._cbf.maximize = word == "MAX"

    def _orders(self, keyword: str) -> None:
        line, (count,) = self._integers((f"the number of matrices of {keyword}",))
        self._check_count(line, count)
        orders: list[int] = []
        for _ in range(count):
            name = (f"the order of a matrix of {keyword}",)
            line, (order,) = self._integers(name, least=1, most=_LARGEST_ORDER)
            needed = _ENTRY * order**2 if keyword == "PSDCON" else _ORDER * order
            self._check_memory(line, needed, f"a matrix of {keyword} of order {order}")
            orders.append(order)
        setattr(self._cbf, keyword.lower(), orders)

    def _cones(self, keyword: str) -> None:
        line, (size, count) = self._integers((f"the size of {keyword}", "the number of its cones"))
        self._check_count(line, count)
        self._check_memory(line, _ROW * size, f"the {size} elements of {keyword}")
        cones = [self._cone(keyword) for _ in range(count)]
        total = sum(own for _, own in cones)
        if total != size:
            found = f"{keyword} has the size {size}, but its cones {total}"
            raise self._source.error(line, found, "the same number")
        setattr(self._cbf, keyword.lower(), cones)

    def _cone(self, keyword: str) -> tuple[str, int]:
        line, text = self._next(f"a cone of {keyword} and its size")
        words = text.split()
        known = (*LINEAR, *SECOND_ORDER)
        if len(words) != 2 or not words[1].isdecimal():
            raise self._source.error(line, repr(text), f"a cone of {keyword} and its size")
        if words[0] not in known:
            raise self._source.error(line, f"the cone {words[0]}", f"one of {', '.join(known)}")
        least = {"Q": 1, "QR": 2}.get(words[0], 0)
        if int(words[1]) < least:
            raise self._source.error(line, f"a cone {words[0]} of size {words[1]}", f"at least {least}")
        return words[0], int(words[1])

    def _constant(self, _: str) -> None:
        line, text = self._next("the constant of the objective")
        (value,) = self._source.table([line], ("the constant of the objective",))[0]
        if not abs(value) <= LARGEST:
            raise self._source.error(line, text, f"a finite number, of magnitude {LARGEST:g} at most")
        self._cbf.constant = float(value)

    def _refused(self, keyword: str) -> None:
        line = self._written[self._at - 1]
        if keyword == "INT" and self._integers(("the number of integer variables",))[1] == (0,):
            return
        raise self._source.error(line, f"{keyword}: {_OTHERS[keyword]}", "a convex problem without them")

    def _coordinates(self, keyword: str) -> None:
        line, (count,) = self._integers((f"the number of entries of {keyword}",))
        self._check_count(line, count)
        which = self._written[self._at : self._at + count]
        self._at += count
        columns = COLUMNS[keyword]
        table = self._source.table(which, columns) if count else np.zeros((0, len(columns)))
        self._refuse(
            which, ~(np.abs(table) <= LARGEST).all(axis=1), "numbers that are not finite or too large"
        )
        self._refuse(which, (table[:, :-1] % 1 != 0).any(axis=1), "an index that is no integer")
        index = {name: table[:, k].astype(np.intp) for k, name in enumerate(columns[:-1])}
        self._cbf.entries[keyword] = Entries(index, table[:, -1])
        self._lines[keyword] = which

    def _check_count(self, line: int, count: int) -> None:
        left = len(self._written) - self._at
        if count > left:
            raise self._source.error(line, f"{count} lines, but {left} follow in the file", "as many lines")

    def _check_memory(self, line: int, needed: float, name: str) -> None:
        check_memory(needed, f"{self._source.path}, line {line + 1}: {name}")

    def _refuse(self, which: list[int], bad: Any, found: str, expected: str = "an entry without") -> None:
        """Raise an error for the first entry that is bad."""
        if np.any(bad):
            line = which[int(np.argmax(bad))]
            text = self._source.lines[line]
            raise self._source.error(line, f"{text!r} has {found}", f"{expected}")

    def _check_entries(self, keyword: str) -> None:
        """Refuse indices that do not exist, and places that are given twice."""
        which, index = self._lines[keyword], self._cbf.entries[keyword].index
        limits = self._limits(keyword)
        for name, limit in limits.items():
            bad = (index[name] < 0) | (index[name] >= limit)
            most = np.broadcast_to(limit, bad.shape)[bad][:1]
            expected = f"0 to {int(most[0]) - 1}" if len(most) and most[0] > 0 else "none"
            found = f"{name} {index[name][bad][0]}" if len(most) else ""
            self._refuse(which, bad, found, expected)
        places = np.array([part for name, part in index.items() if name not in ("row", "column")])
        if "row" in index:
            ends = np.sort([index["row"], index["column"]], axis=0)  # a place and its mirror image are one
            places = np.concatenate([places, ends])
        order = np.lexsort((np.array(which, dtype=np.intp), *places))
        twice = np.zeros(len(which), dtype=bool)
        twice[order[1:]] = (places[:, order[1:]] == places[:, order[:-1]]).all(axis=0)
        self._refuse(which, twice, "a place that a line before it has", "each entry once, in one triangle")

    def _limits(self, keyword: str) -> dict[str, Any]:
        """Return the numbers of what each index of a section counts."""
        cbf, index = self._cbf, self._cbf.entries[keyword].index
        matrices = cbf.psdcon if keyword in ("HCOORD", "DCOORD") else cbf.psdvar
        rows = len(cbf.psdcon) if keyword in ("HCOORD", "DCOORD") else sum(size for _, size in cbf.con)
        limits: dict[str, Any] = {
            "con": rows,
            "psd": len(cbf.psdvar),
            "var": sum(size for _, size in cbf.var),
        }
        found = {name: limits[name] for name in index if name in limits}
        if "row" in index and len(index["row"]):
            owner = index["psd" if "psd" in index else "con"]
            orders = np.array([*matrices, 0])[np.clip(owner, 0, len(matrices))]
            found |= {"row": orders, "column": orders}
        return found


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
    write_ascii(path, "\n".join([*_lines(program), ""]))


def _lines(program: Program) -> Iterator[str]:
    """Yield the lines of the file."""
    sign = -1.0 if program.maximize else 1.0
    cones = program.cones
    outside = np.setdiff1d(np.arange(program.k), cones.index)
    lo, hi = program.u_lo[outside], program.u_hi[outside]
    kinds = np.where(lo == 0, np.where(hi == 0, "L=", "L+"), np.where(hi == 0, "L-", "F"))
    order = np.concatenate([outside, cones.index]).astype(np.intp)  # those in cones are last
    var = [(kind, 1) for kind in kinds] + [("Q", size) for size in cones.dimensions.tolist()]
    rows = _rows(program)
    costs = []
    for b, block in enumerate(program.blocks):
        if block.cost is not None:
            t = block.cost.coordinates()
            signed = SparseRows.of(1, block.n, replace(t, value=sign * t.value))
            costs.append(_lower_triangle(b, signed)[1:])
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


def _matrix_rows(b: int, program: Program, at: IntArray) -> tuple[Any, ...]:
    """Return the columns of a matrix variable in FCOORD."""
    n, terms = program.blocks[b].n, program.A.terms_of(b)
    if not terms:
        return ((),) * 5
    joined = placed_coordinates((term.at, term.rows) for term in terms)
    return _lower_triangle(b, SparseRows.of(program.m + program.k, n, joined).slice(at))


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
