"""A bound on the trace of a block that its rows imply; with one, any multipliers give a rigorous bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, scattered
from bregopt.program.bounds import Bounds
from bregopt.program.linear_map import LinearMap, Term
from bregopt.program.program import Program
from bregopt.program.rows import Coordinates, Rows, SparseRows

__all__ = [
    "TraceBound",
    "diagonal_bounds",
    "inherit_trace_bounds",
    "trace_bound",
    "trace_bounds",
    "with_trace_row",
]

_found: WeakKeyDictionary[Program, tuple[TraceBound | None, ...]] = WeakKeyDictionary()
_diagonals: WeakKeyDictionary[Program, tuple[Array, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class TraceBound:
    """``tr X <= value``, or ``tr X = value`` where `exact`.

    Parameters
    ----------
    value : float
    exact : bool
    multipliers : array of shape (m,)
        Of the rows that imply it: ``t >= 0`` with ``t'hi = value`` and ``A*(t) - I`` psd, zero if `exact`.
    """

    value: float
    exact: bool
    multipliers: Array

    def least(self, smallest_eigenvalue: float) -> float:
        """Return the least ``<W, X>`` over these psd ``X``, from the smallest eigenvalue of ``W``."""
        return self.value * (smallest_eigenvalue if self.exact else min(0.0, smallest_eigenvalue))


def inherit_trace_bounds(program: Program, whole: Program, kept: IntArray) -> None:
    """Give a program of some rows the trace bounds of the whole; the other rows are zero on its matrices."""
    _found[program] = tuple(
        None if bound is None else replace(bound, multipliers=bound.multipliers[kept])
        for bound in trace_bounds(whole)
    )


def with_trace_row(program: Program, block: int, value: float) -> Program:
    """Return the program with a last row ``tr X <= value`` on one block."""
    n = program.blocks[block].n
    diagonal = Coordinates(np.zeros(n, dtype=np.intp), np.arange(n), np.arange(n), np.ones(n))
    row = Term(block, np.array([program.m]), SparseRows(1, n, diagonal))
    return replace(
        program,
        A=LinearMap(program.m + 1, program.A.orders, (*program.A.terms, row)),
        B=sp.vstack([program.B, sp.csr_array((1, program.k))], format="csr"),
        bounds=program.bounds.followed_by(Bounds.of_hard_rows(np.array([-np.inf]), np.array([value]))),
        labels=(*program.labels, (f"the bound on the trace of {program.blocks[block].name}", 1)),
    )


def trace_bound(program: Program, block: int) -> TraceBound | None:
    """Return the best trace bound that hard rows on the diagonal of one block imply, or None.

    It follows from a row ``sum_i w_i X_ii <= b`` with all ``w_i > 0`` or from bounds on every ``X_ii``.
    """
    n = program.blocks[block].n
    if not any(program.in_one_matrix[term.at].any() for term in program.A.terms_of(block)):
        return None
    W, at = _diagonal_rows(program, block)
    upper = program.bounds.hi[at]
    equal = program.bounds.lo[at] == upper
    support = np.diff(W.indptr)
    best: TraceBound | None = None
    for full in np.flatnonzero(support == n):
        w = W[[full]].data
        level = bool(equal[full] and w.max() - w.min() <= 1e-14 * w.max())
        t = scattered(at[[full]], 1 / w.min(), program.m)
        best = _tighter(best, TraceBound(float(upper[full] / w.min()), level, t))
    single = np.flatnonzero(support == 1)
    i, w = W.indices[W.indptr[single]], W.data[W.indptr[single]]
    # The tightest row on each entry, the first of equal ones.
    order = np.lexsort((single, upper[single] / w, i))
    found, first = np.unique(i[order], return_index=True)
    if len(found) == n:
        tightest = order[first]
        row = single[tightest]
        value = float((upper[row] / w[tightest]).sum())
        t = scattered(at[row], 1 / w[tightest], program.m)
        best = _tighter(best, TraceBound(value, bool(equal[row].all()), t))
    return best


def diagonal_bounds(program: Program) -> tuple[Array, ...]:
    """Return :func:`_diagonal_bound` of every block; computed once for each program."""
    if program not in _diagonals:
        _diagonals[program] = tuple(_diagonal_bound(program, b) for b in range(len(program.blocks)))
    return _diagonals[program]


def _diagonal_bound(program: Program, block: int) -> Array:
    """Return upper bounds on each ``X_ii``, each from one hard row on the diagonal; infinite without one.

    A row ``sum_i w_i X_ii <= b`` with all ``w_i`` positive bounds each of its entries by ``b / w_i``.
    """
    largest = np.full(program.blocks[block].n, np.inf)
    W, at = _diagonal_rows(program, block)
    row = np.repeat(np.arange(len(at)), np.diff(W.indptr))
    np.minimum.at(largest, W.indices, program.bounds.hi[at][row] / W.data)
    return largest


def _tighter(a: TraceBound | None, b: TraceBound) -> TraceBound:
    if a is None or b.value < a.value or (b.value == a.value and b.exact):
        return b
    return a


def _diagonal_rows(program: Program, block: int) -> tuple[Any, IntArray]:
    """Return the weights of hard rows ``sum w_i X_ii <= b``, sparse ``(rows, n)``, and their indices."""
    n = program.blocks[block].n
    hi = program.bounds.hi
    candidate = program.in_one_matrix & np.isfinite(hi) & (hi >= 0)
    weights, places = [sp.csr_array((0, n))], [np.zeros(0, dtype=np.intp)]
    for term in program.A.terms_of(block):
        if term.rows.few_terms and candidate[term.at].any():
            chosen = _diagonal_only(term.rows, candidate[term.at])
            places.append(term.at[chosen])
            weights.append(_weights(term.rows.slice(chosen)))
    return sp.vstack(weights, format="csr"), np.concatenate(places)


def _diagonal_only(rows: Rows, candidate: Mask) -> IntArray:
    t = rows.coordinates()
    spoiled = np.zeros(rows.m, dtype=bool)
    spoiled[t.row[(t.i != t.j) | (t.value <= 0)]] = True
    return np.flatnonzero(candidate & ~spoiled)


def _weights(rows: Rows) -> Any:
    t = rows.coordinates()
    return sp.csr_array((t.value, (t.row, t.i)), (rows.m, rows.n))


def trace_bounds(program: Program) -> tuple[TraceBound | None, ...]:
    """Return :func:`trace_bound` of every block; computed once for each program."""
    if program not in _found:
        _found[program] = tuple(trace_bound(program, b) for b in range(len(program.blocks)))
    return _found[program]
