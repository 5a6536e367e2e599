"""Programs as linear matrix inequalities: rows that define a matrix entry by entry are substituted.

A block is *defined* if each of its entries has a hard equality of its own, the pivot row, in which no other
defined entry occurs. With ``v`` the ordinary variables and the entries of the other blocks, the program is

    minimize    c'v + offset + penalties of soft rows
    subject to  F_0 + F v psd in every block,   lo <= K v <= hi,   u_lo <= u <= u_hi.

Matrices are vectors of their entries on and above the diagonal (:mod:`bregopt.presolve.svec`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cache import cached_property
from bregopt.presolve.constants import ENTRY_NOISE, LARGEST_LISTED
from bregopt.presolve.svec import Svec, sparse_svec
from bregopt.program import Bounds, Penalty, Program

__all__ = ["MatrixInequalities", "matrix_inequalities", "without_round_off"]

_PENALTIES = {Penalty.HARD, Penalty.HINGE}


@dataclass(frozen=True, eq=False)
class MatrixInequalities:
    """A program as linear matrix inequalities in ``v``, of length `p`.

    Parameters
    ----------
    whole : Program
    rows : csr_array of shape (m, q)
        The rows of `whole` in the `q` entries of all blocks, as vectors.
    pivot : int array of shape (q,)
        The pivot row of each defined entry; -1 for the other entries.
    F_0 : array of shape (q,)
    F : csr_array of shape (q, p)
    kept : int array
        The rows of `whole` that are left.
    K : csr_array of shape (len(kept), p)
    bounds : Bounds
        Of the rows that are left.
    c : array of shape (p,)
    offset : float
    """

    whole: Program
    rows: Any
    pivot: IntArray
    F_0: Array
    F: Any
    kept: IntArray
    K: Any
    bounds: Bounds
    c: Array
    offset: float

    @cached_property
    def prices(self) -> Array:
        """The costs of the entries in `whole`, shape ``(q,)``."""
        return entry_prices(self.whole)

    @property
    def others(self) -> IntArray:
        """The entries that are not defined, which are the last elements of ``v``."""
        return np.flatnonzero(self.pivot < 0)

    def matrices(self, x: Array) -> tuple[Array, ...]:
        """Return the matrices with the given entries, shape ``(q,)``."""
        stacks, _ = Svec(self.whole.A.orders, 0).points(x[None])
        return tuple(S[0] for S in stacks)

    def entries(self, matrices: Any) -> Array:
        """Return the entries of the matrices, shape ``(q,)``."""
        stacks = [np.asarray(S)[None] for S in matrices]
        entries: Array = Svec(self.whole.A.orders, 0).vectors(stacks, np.zeros((1, 0)))[0]
        return entries

    def multipliers(self, Z: Array, y: Array, prices: Array) -> Array:
        """Return multipliers of all rows with the slack ``prices - A*(y) = Z`` on the defined entries.

        Parameters
        ----------
        Z : array of shape (q,)
        y : array of shape (len(kept),)
            Of the rows that are left.
        prices : array of shape (q,)
        """
        all_rows, defined = np.zeros(self.whole.m), np.flatnonzero(self.pivot >= 0)
        all_rows[self.kept] = y
        at = self.pivot[defined]
        left = (prices - Z - self.rows.T @ all_rows)[defined]
        all_rows[at] = left / _values(self.rows, at, defined)
        return all_rows


def entry_prices(program: Program) -> Array:
    """Return the costs of the entries of all blocks as vectors."""
    q = Svec(program.A.orders, 0)
    return q.vectors([block.C[None] for block in program.blocks], np.zeros((1, 0)))[0]


def matrix_inequalities(program: Program, largest: float = np.inf) -> MatrixInequalities | None:
    """Return a program as linear matrix inequalities in at most `largest` elements of ``v``.

    None if no block is defined by rows, or if there are more elements.
    """
    if not _may_have_defined_blocks(program):
        return None
    rows = sparse_svec(program.A)
    pivot = _pivots(program, rows)
    defined, others = np.flatnonzero(pivot >= 0), np.flatnonzero(pivot < 0)
    if len(defined) == 0 or program.k + len(others) > largest:
        return None
    at = pivot[defined]
    inverse = 1 / _values(rows, at, defined)
    v = sp.csr_array(sp.hstack([program.B, rows[:, others]], format="csr"))
    F_D, F_0 = sp.csr_array(sp.diags_array(-inverse) @ v[at]), np.zeros(len(pivot))
    F_0[defined] = inverse * program.bounds.lo[at]
    left = np.ones(program.m, dtype=bool)
    left[at] = False
    kept = np.flatnonzero(left)
    K, moved, noise = _substituted(v[kept], rows[kept][:, defined], F_D, F_0[defined])
    bounds = program.bounds.slice(kept)
    bounds = replace(bounds, lo=bounds.lo - moved, hi=bounds.hi - moved)
    used = np.diff(K.indptr) > 0
    if not _met_by_zero(bounds.slice(np.flatnonzero(~used)), noise[~used]):
        return None
    prices = entry_prices(program)
    return MatrixInequalities(
        program,
        rows,
        pivot,
        F_0,
        _stacked(F_D, defined, others, program.k),
        kept[used],
        K[np.flatnonzero(used)],
        bounds.slice(np.flatnonzero(used)),
        without_round_off(np.concatenate([program.c, prices[others]]), F_D.T, prices[defined]),
        program.offset + float(prices[defined] @ F_0[defined]),
    )


def _may_have_defined_blocks(program: Program) -> bool:
    """Whether the objective is linear and there are enough equalities to define a matrix."""
    if program.k == 0 and len(program.blocks) == 1:
        return False
    if any(b.nearness is not None or b.cap is not None or b.face is not None for b in program.blocks):
        return False
    least = min((n * (n + 1) // 2 for n in program.A.orders if n > 1), default=program.m + 1)
    if program.m < least or int(program.bounds.equal.sum()) < least:
        return False
    listed = sum(term.rows.count() for term in program.A.terms)
    listed += sum(n * (n + 1) // 2 for n in program.A.orders)
    if not program.bounds.kinds <= _PENALTIES or listed > LARGEST_LISTED:
        return False
    n = np.array(program.A.orders)
    return bool(((n > 1) & (_single_entries(program) >= n * (n + 1) // 2)).any())


def _single_entries(program: Program) -> IntArray:
    """Return the number of hard equalities that hold one entry of each block."""
    count = np.zeros(len(program.blocks), dtype=np.intp)
    for term in program.A.terms:
        terms = np.bincount(term.rows.coordinates().row, minlength=term.rows.m)
        count[term.block] += np.count_nonzero((terms == 1) & program.bounds.equal[term.at])
    return count


def _pivots(program: Program, rows: Any) -> IntArray:
    """Return the pivot row of each entry of the defined blocks, -1 for other entries.

    Blocks that occur in few rows come first, such as matrices that only name an affine expression.
    """
    widths = [n * (n + 1) // 2 for n in program.A.orders]
    starts = np.concatenate([[0], np.cumsum(widths)])
    first = _first_single_rows(rows, np.repeat(np.arange(len(widths)), widths), program.bounds.equal)
    columns, pivot = sp.csc_array(rows), np.full(rows.shape[1], -1)
    is_pivot, touched = np.zeros((2, program.m), dtype=bool)
    occurrences = np.diff(columns.indptr[starts]) / widths
    for b in np.argsort(occurrences, kind="stable"):
        own = slice(starts[b], starts[b + 1])
        read = columns.indices[columns.indptr[starts[b]] : columns.indptr[starts[b + 1]]]
        if (first[own] < 0).any() or is_pivot[read].any() or touched[first[own]].any():
            continue
        pivot[own] = first[own]
        is_pivot[first[own]] = touched[read] = True
    return pivot


def _first_single_rows(rows: Any, block: IntArray, equal: Mask) -> IntArray:
    """Return for each entry a hard equality without other entries of its block, -1 where there is none.

    Of several, it is the one with the fewest entries.
    """
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    _, pair, count = np.unique(
        row * (block.max() + 1) + block[rows.indices], return_inverse=True, return_counts=True
    )
    single = np.flatnonzero((count[np.ravel(pair)] == 1) & equal[row])
    order = single[np.argsort(np.diff(rows.indptr)[row[single]], kind="stable")[::-1]]
    first = np.full(rows.shape[1], -1)
    first[rows.indices[order]] = row[order]
    return first


def _values(rows: Any, row: IntArray, entry: IntArray) -> Array:
    """Return the given elements of a sparse matrix."""
    return np.asarray(rows[row, entry]).ravel()


def _substituted(v: Any, D: Any, F_D: Any, F_0: Array) -> tuple[Any, Array, Array]:
    """Return rows with the defined entries substituted, the constants that result, and their round-off.

    Elements that cancel up to round-off become zero.
    """
    if D.nnz == 0:
        return v, np.zeros(v.shape[0]), np.zeros(v.shape[0])
    K, size = sp.csr_array(v + D @ F_D), sp.csr_array(abs(v) + abs(D) @ abs(F_D))
    K = sp.csr_array(K.multiply(abs(K) > ENTRY_NOISE * size))
    K.eliminate_zeros()
    return K, D @ F_0, ENTRY_NOISE * (abs(D) @ np.abs(F_0))


def without_round_off(c: Array, A: Any, price: Array) -> Array:
    """Return ``c + A price``, zero where that is round-off: a cost of round-off seems to fall without end."""
    total = c + A @ price
    return np.where(np.abs(total) > ENTRY_NOISE * (np.abs(c) + abs(A) @ np.abs(price)), total, 0.0)


def _met_by_zero(bounds: Bounds, noise: Array) -> bool:
    """Whether rows without variables hold, up to round-off, at no penalty."""
    return bool((bounds.violation(np.zeros(bounds.m)) <= noise + ENTRY_NOISE * bounds.sizes).all())


def _stacked(F_D: Any, defined: IntArray, others: IntArray, k: int) -> Any:
    """Return ``F``: the rows `F_D` of defined entries, and the other entries as elements of ``v``."""
    D = sp.coo_array(F_D)
    row = np.concatenate([defined[D.coords[0]], others])
    column = np.concatenate([D.coords[1], k + np.arange(len(others))])
    value = np.concatenate([D.data, np.ones(len(others))])
    return sp.csr_array((value, (row, column)), (len(defined) + len(others), k + len(others)))
