"""A conic program read directly or as its dual, in the parts of a :class:`~bregopt.program.Program`.

Read directly, the matrices are the blocks of ``s``. Variables that are entries of a block or second-order
cone, such as those of a psd variable, are eliminated: they are the pivots. Read as the dual, the matrices are
the blocks of ``z``, and each variable ``x`` has a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.conic.form import Conic, others
from bregopt.presolve.dual_form import without_round_off
from bregopt.presolve.svec import recognize
from bregopt.program import Block, Bounds, LinearMap, Program, Term
from bregopt.program.rows import Coordinates, SparseRows

__all__ = ["Direct", "Dual", "Pivots", "pivots_of", "read_directly", "read_dual"]


@dataclass(frozen=True, eq=False)
class Direct:
    """(P) with the variables ``x_P = T (b_D - s_D - A_DF x_F)`` of the pivots eliminated.

    Parameters
    ----------
    conic : Conic
    program : Program
        Its ``u`` is ``x_F`` and then the ``s`` of the second-order cones; its rows are the rows ``R``.
    D, P : int array
        The pivots' rows and variables.
    T : array
        The inverses of their entries.
    F, R : int array
        The other variables and rows.
    """

    dual: ClassVar[bool] = False
    conic: Conic
    program: Program
    D: IntArray
    P: IntArray
    T: Array
    F: IntArray
    R: IntArray

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        A, b, free = self.conic.A, self.conic.b, len(self.F)
        x = np.zeros(A.shape[1])
        x[self.F] = u[:free]
        s = np.concatenate([u[free:], self.conic.triangles(S)])
        x[self.P] = self.T * ((b - A @ x)[self.D] - s[self.D - self.conic.linear])
        return x

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return ``z``: on the rows ``R`` from the multipliers, on the pivots' rows from ``A'z = -c``."""
        A, c = self.conic.A, self.conic.c if priced else np.zeros(len(self.conic.c))
        z = np.zeros(A.shape[0])
        z[self.R] = -self.program.bounds.clip(y)
        z[self.D] = -self.T * (c + A.T @ z)[self.P]
        return z


class Pivots(NamedTuple):
    """The rows, columns and values of the pivots."""

    rows: IntArray
    columns: IntArray
    entries: Array


def pivots_of(conic: Conic) -> Pivots:
    """Return rows of second-order cones and matrices, and for each a variable that is in no other of them.

    First come variables that are the only one in such a row. Then, in rows without such a variable, come
    variables that occur in no other such row.
    """
    curved = conic.A[conic.linear :]
    count = np.diff(curved.indptr)
    single = curved.indptr[np.flatnonzero(count == 1)]
    alone, first = np.unique(curved.indices[single], return_index=True)
    taken = np.zeros(curved.shape[1], dtype=bool)
    taken[alone] = True
    row = np.repeat(np.arange(curved.shape[0]), count)
    open_row = np.bincount(row, weights=taken[curved.indices], minlength=curved.shape[0]) == 0
    once = np.bincount(curved.indices, minlength=curved.shape[1]) == 1
    own = np.flatnonzero(open_row[row] & once[curved.indices])
    _, at = np.unique(row[own], return_index=True)
    chosen = np.concatenate([single[first], own[at]])
    return Pivots(row[chosen] + conic.linear, curved.indices[chosen], curved.data[chosen])


def read_directly(conic: Conic, pivots: Pivots) -> Direct:
    """Return the reading of (P)."""
    A, b, c = conic.A, conic.b, conic.c
    D, P, T = pivots.rows, pivots.columns, 1 / pivots.entries
    R, F = others(D, A.shape[0]), others(P, A.shape[1])
    through = sp.csr_array(A[R][:, P] @ sp.diags_array(T))
    # A row has entries in s_D; a row of a cone or matrix has one more, in its own element of s.
    inner = np.flatnonzero(conic.linear <= R)
    entries = sp.coo_array(-through)
    row = np.concatenate([entries.row, inner])
    place = np.concatenate([D[entries.col], R[inner]]) - conic.linear
    value = np.concatenate([entries.data, np.ones(len(inner))])
    count, in_cone = sum(conic.soc), place < sum(conic.soc)
    of_cones = sp.csr_array((value[in_cone], (row[in_cone], place[in_cone])), (len(R), count))
    of_matrices = row[~in_cone], place[~in_cone] - count, value[~in_cone]
    price = np.zeros(count + len(conic.places.block))
    price[D - conic.linear] = -T * c[P]
    bound = b[R] - through @ b[D]
    k = len(F) + count
    program = Program(
        blocks=_blocks_of(conic, price[count:]),
        A=_map_of(conic, len(R), *of_matrices),
        B=sp.csr_array(sp.hstack([A[R][:, F] - through @ A[D][:, F], of_cones])),
        bounds=Bounds.of_hard_rows(np.where((R >= conic.zero) & (R < conic.linear), -np.inf, bound), bound),
        c=np.concatenate([without_round_off(c[F], A[D][:, F].T, -T * c[P]), price[:count]]),
        u_lo=np.full(k, -np.inf),
        u_hi=np.full(k, np.inf),
        offset=float(c[P] @ (T * b[D])),
        cones=conic.cones(len(F)),
    )
    return Direct(conic, program, D, P, T, F, R)


@dataclass(frozen=True, eq=False)
class Dual:
    """(D): its rows belong to the variables ``x``; its ``u`` is the part of ``z`` outside the matrices."""

    dual: ClassVar[bool] = True
    conic: Conic
    program: Program

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        return y

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, or of a ray."""
        return np.concatenate([u, self.conic.triangles(S)])


def read_dual(conic: Conic) -> Dual:
    """Return the reading of (D)."""
    A, linear, first_psd = conic.A, conic.linear, conic.first_psd
    psd = sp.coo_array(A[first_psd:])
    row = np.arange(first_psd)
    program = Program(
        blocks=_blocks_of(conic, conic.b[first_psd:]),
        A=_map_of(conic, A.shape[1], psd.col, psd.row, psd.data),
        B=sp.csr_array(A[:first_psd].T),
        bounds=Bounds.of_hard_rows(-conic.c, -conic.c),
        c=conic.b[:first_psd],
        u_lo=np.where((row >= conic.zero) & (row < linear), 0.0, -np.inf),
        u_hi=np.full(first_psd, np.inf),
        cones=conic.cones(linear),
    )
    return Dual(conic, program)


def _blocks_of(conic: Conic, cost: Array) -> tuple[Block, ...]:
    """Return the blocks, with the given prices of the psd rows."""
    used = np.flatnonzero(cost)
    rows = {b: family for b, _, family in _sparse(conic, np.zeros_like(used), used, cost[used])}
    return tuple(Block(f"block {b}", n, rows.get(b)) for b, n in enumerate(conic.orders))


def _map_of(conic: Conic, m: int, row: IntArray, place: IntArray, value: Array) -> LinearMap:
    """Return the map whose row ``row[k]`` has ``value[k]`` times the psd row number ``place[k]``."""
    terms = [
        Term(b, at[local], family)
        for b, at, rows in _sparse(conic, row, place, value)
        for local, family in recognize(rows)
    ]
    return LinearMap(m, conic.orders, tuple(terms))


def _sparse(
    conic: Conic, row: IntArray, place: IntArray, value: Array
) -> Iterator[tuple[int, IntArray, SparseRows]]:
    """Yield each block that has entries, the numbers of its rows, and these rows as a family."""
    block, i, j, weight = conic.places
    block, i, j, value = block[place], i[place], j[place], value * weight[place]
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(len(conic.orders) + 1))
    for b, (n, span) in enumerate(zip(conic.orders, pairwise(ends.tolist()), strict=True)):
        own = order[slice(*span)]
        if len(own):
            at, local = np.unique(row[own], return_inverse=True)
            yield b, at, SparseRows.of(len(at), n, Coordinates(local, i[own], j[own], value[own]))
