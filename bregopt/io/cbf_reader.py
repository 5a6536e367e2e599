"""CBF files (``.cbf``, ``.cbf.gz``): a conic problem read as a problem of the language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.files import path_of
from bregopt.io.cbf_format import LINEAR, SECOND_ORDER, Cbf, Entries
from bregopt.io.cbf_parser import parsed
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import Variable
from bregopt.program import rows
from bregopt.program.rows import Coordinates, SparseRows

__all__ = ["read_cbf"]

Cones = Sequence[tuple[str, int]]


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
    cbf = parsed(path)
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
                yield _second_order(self._affine(_picks(at, self._k), f"x[{_text(place)}]"), kind, cones)

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
        for number, n in enumerate(self._cbf.psdcon):
            S, (i, j) = PSD(n, name=f"S{number}"), np.tril_indices(n)
            own, given = H.index["con"] == number, D.index["con"] == number
            slope = sp.csr_array(
                (-H.value[own], (_in_triangle(H, own), H.index["var"][own])), (len(i), self._k)
            )
            constant = np.bincount(_in_triangle(D, given), -D.value[given], len(i)).astype(float)
            own_rows = {S: rows.Entries(n, i, j, np.ones(len(i)))}
            yield self._affine(slope, f"S{number} - PSDCON {number}", constant, own_rows) == 0.0

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


def _picks(at: IntArray, k: int) -> Any:
    return sp.csr_array((np.ones(len(at)), (np.arange(len(at)), at)), (len(at), k))


def _text(place: slice) -> str:
    return f"{place.start}:{place.stop}" if place.stop - place.start > 1 else str(place.start)
