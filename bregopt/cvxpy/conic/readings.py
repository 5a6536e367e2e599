"""A conic program read directly or as its dual, in the parts of a :class:`~bregopt.program.Program`.

Read directly, the matrices are the blocks of ``s``. Variables that are entries of a block or second-order
cone, such as those of a psd variable, are eliminated: they are the pivots. Read as the dual, the matrices are
the blocks of ``z``, and each variable ``x`` has a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cvxpy.conic.form import Conic, others
from bregopt.linalg import csr_of
from bregopt.presolve.dual_form import without_round_off
from bregopt.presolve.svec import recognize
from bregopt.program import Block, Bounds, LinearMap, Nearness, Program, Term
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass

__all__ = ["Direct", "Dual", "Pivots", "blocks_of", "map_of", "pivots_of", "read_directly", "read_dual"]


class Elimination(NamedTuple):
    """What a direct reading takes from ``A`` and the cones alone.

    Parameters
    ----------
    D, P : int array
        The pivots' rows and variables.
    T : array
        The inverses of their entries.
    F, R : int array
        The other variables and rows.
    row, at, entry : array
        Row ``row[k]`` of ``R`` has ``entry[k]`` times the row ``at[k]`` of ``D`` substituted.
    per_entry : array
        The share of an entry of ``s`` in each pivot.
    substituted : csr_array or None
        The variables ``F`` in the rows ``D``; None where there are none.
    map : LinearMap
    B : csr_array
        Rows ``R`` of the matrices, and of ``x_F`` and the second-order cones.
    """

    D: IntArray
    P: IntArray
    T: Array
    F: IntArray
    R: IntArray
    row: IntArray
    at: IntArray
    entry: Array
    per_entry: Array
    substituted: Any
    map: LinearMap
    B: Any


@dataclass(frozen=True, eq=False)
class Direct:
    """(P) with the variables ``x_P = T (b_D - s_D - A_DF x_F)`` of the pivots eliminated.

    Parameters
    ----------
    conic : Conic
    program : Program
        Its ``u`` is ``x_F`` and then the ``s`` of the second-order cones; its rows are the rows ``R``.
    rows : Elimination
    """

    dual: ClassVar[bool] = False
    conic: Conic
    program: Program
    rows: Elimination

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer."""
        A, b, (D, P, T, F, *_) = self.conic.A, self.conic.b, self.rows
        x = np.zeros(A.shape[1])
        x[F] = u[: len(F)]
        s = np.concatenate([u[len(F) :], self.conic.triangles(S)])
        x[P] = T * ((b - A @ x)[D] - s[D - self.conic.linear])
        return x

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return ``z``: on the rows ``R`` from the multipliers, on the pivots' rows from ``A'z = -c``."""
        c = self.conic.c if priced else np.zeros(len(self.conic.c))
        z, rows = np.zeros(len(self.conic.b)), self.rows
        z[rows.R] = -self.program.bounds.clip(y)
        z[rows.D] = -rows.T * (c + self.conic.At @ z)[rows.P]
        return z


class Pivots(NamedTuple):
    """The rows, columns and values of the pivots."""

    rows: IntArray
    columns: IntArray
    entries: Array


def pivots_of(conic: Conic) -> Pivots:
    """Return rows of second-order cones and matrices, and for each a variable that is in no other of them.

    First come variables that are the only one in such a row, in that of a matrix if they are in several.
    Then, in rows without such a variable, come variables that occur in no other such row.
    """
    A, first_curved = conic.A, conic.A.indptr[conic.linear]
    column, entry = A.indices[first_curved:], A.data[first_curved:]
    start = A.indptr[conic.linear :] - first_curved
    count, columns = np.diff(start), A.shape[1]
    row = np.repeat(np.arange(len(count)), count)
    single = start[np.flatnonzero(count == 1)[::-1]]  # the rows of matrices come last
    single = single[_once_in_cone(conic, row, column)[single]]
    alone, first = np.unique(column[single], return_index=True)
    taken = np.zeros(columns, dtype=bool)
    taken[alone] = True
    open_row = np.bincount(row, weights=taken[column], minlength=len(count)) == 0
    once = np.bincount(column, minlength=columns) == 1
    own = np.flatnonzero(open_row[row] & once[column])
    _, at = np.unique(row[own], return_index=True)
    chosen = np.concatenate([single[first], own[at]])
    return Pivots(row[chosen] + conic.linear, column[chosen], entry[chosen])


def _once_in_cone(conic: Conic, row: IntArray, column: IntArray) -> Mask:
    """Whether each variable of the rows of cones occurs in the cone of that row once.

    One that occurs more often, such as ``t`` in ``t I``, is one of a matrix inequality in few variables.
    """
    sizes = [*conic.soc, *(n * (n + 1) // 2 for n in conic.orders)]
    cone = np.repeat(np.arange(len(sizes)), sizes)[row]
    _, pair, count = np.unique(cone * conic.A.shape[1] + column, return_inverse=True, return_counts=True)
    once: Mask = count[np.ravel(pair)] == 1
    return once


def read_directly(conic: Conic, pivots: Pivots, known: Direct | None = None) -> Direct:
    """Return the reading of (P); a `known` one of the same ``A`` leaves the numbers of ``b`` and ``c``."""
    b, c, rows = conic.b, conic.c, _elimination(conic, pivots) if known is None else known.rows
    D, P, T, F, R, *_ = rows
    right = b[R] - np.bincount(rows.row, rows.entry * b[D][rows.at], len(R))
    bounds = Bounds.of_hard_rows(np.where((R >= conic.zero) & (R < conic.linear), -np.inf, right), right)
    offset = float(c[P] @ (T * b[D])) + conic.stated_constant
    if known is not None and np.array_equal(c, known.conic.c):
        return Direct(conic, known.program.restated(bounds=bounds, offset=offset), rows)
    count, cost = sum(conic.soc), c[F]
    if rows.substituted is not None:
        cost = without_round_off(cost, rows.substituted.T, -T * c[P])
    price = np.zeros(count + len(conic.places.weight))
    price[D - conic.linear] = -rows.per_entry * c[P]
    k = len(F) + count
    program = Program(
        blocks=blocks_of(conic, price[count:]),
        A=rows.map,
        B=rows.B,
        bounds=bounds,
        c=np.concatenate([cost, price[:count]]),
        u_lo=np.full(k, -np.inf),
        u_hi=np.full(k, np.inf),
        offset=offset,
        cones=conic.cones(len(F)),
    )
    return Direct(conic, program, rows)


def _elimination(conic: Conic, pivots: Pivots) -> Elimination:
    """Return what the pivots eliminate, and the rows that are left."""
    A = conic.A
    D, P, T = pivots.rows, pivots.columns, 1 / pivots.entries
    R, F = others(D, A.shape[0]), others(P, A.shape[1])
    # The numbers of each row and column of A among R or D, and among F or P.
    of_row, of_column = np.empty(A.shape[0], dtype=np.intp), np.empty(A.shape[1], dtype=np.intp)
    of_row[R], of_row[D], of_column[F], of_column[P] = map(np.arange, map(len, (R, D, F, P)))
    eliminated, pivot = np.zeros(A.shape[0], dtype=bool), np.zeros(A.shape[1], dtype=bool)
    eliminated[D], pivot[P] = True, True
    row, column, value = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), A.indices, A.data
    # Through the pivots, a row of R has entries in s_D; one of a cone or matrix has its own element of s too.
    through = ~eliminated[row] & pivot[column]
    own, at = of_row[row[through]], of_column[column[through]]
    entry = value[through] * T[at]
    inner = np.flatnonzero(conic.linear <= R)
    rows = np.concatenate([own, inner])
    place = np.concatenate([D[at], R[inner]]) - conic.linear
    # Pivots of a matrix are its weights, so that their quotient is one: data near the boundary stay as given.
    count, weight = sum(conic.soc), np.concatenate([np.ones(sum(conic.soc)), conic.places.weight])
    per_entry = weight[D - conic.linear] / pivots.entries
    values = np.concatenate([-value[through] * per_entry[at], weight[R[inner] - conic.linear]])
    in_cone = place < count

    def of_variables(chosen: Mask, m: int) -> Any:
        """Return the chosen entries of A in the columns F."""
        own = chosen[row] & ~pivot[column]
        return csr_of(value[own], of_row[row[own]], of_column[column[own]], (m, len(F)))

    B, substituted = of_variables(~eliminated, len(R)), None
    if (eliminated[row] & ~pivot[column]).any():  # matrix inequalities: other variables are in the rows D too
        substituted = of_variables(eliminated, len(D))
        B = B - sp.csr_array((entry, (own, at)), (len(R), len(D))) @ substituted
    if count:
        in_s = sp.csr_array((values[in_cone], (rows[in_cone], place[in_cone])), (len(R), count))
        B = sp.hstack([B, in_s])
    A_map = map_of(conic, len(R), rows[~in_cone], place[~in_cone] - count, values[~in_cone])
    return Elimination(D, P, T, F, R, own, at, entry, per_entry, substituted, A_map, sp.csr_array(B))


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


def read_dual(conic: Conic, known: Dual | None = None) -> Dual:
    """Return the reading of (D); a `known` one of the same ``A`` leaves the numbers of ``b`` and ``c``."""
    A, linear, first_psd = conic.A, conic.linear, conic.first_psd
    weight, row = conic.places.weight, np.arange(first_psd)
    if known is None:
        psd = sp.coo_array(A[first_psd:])
        A_map = map_of(conic, A.shape[1], psd.col, psd.row, _per_entry(psd.data, weight[psd.row]))
        B = sp.csr_array(A[:first_psd].T)
    else:
        A_map, B = known.program.A, known.program.B
    program = Program(
        blocks=blocks_of(conic, _per_entry(conic.b[first_psd:], weight)),
        A=A_map,
        B=B,
        bounds=Bounds.of_hard_rows(-conic.c, -conic.c),
        c=conic.b[:first_psd],
        u_lo=np.where((row >= conic.zero) & (row < linear), 0.0, -np.inf),
        u_hi=np.full(first_psd, np.inf),
        cones=conic.cones(linear),
    )
    return Dual(conic, program)


def _per_entry(value: Array, weight: Array) -> Array:
    """Return what psd rows contribute to entries; the quotient undoes CVXPY's product with the weight."""
    contribution: Array = np.where(weight == 1.0, value, 2.0 * (value / weight))
    return contribution


def blocks_of(conic: Conic, cost: Array) -> tuple[Block, ...]:
    """Return the blocks, with the given prices of the entries of the psd rows, and with log-determinants.

    ``-w log det S`` is ``w`` times the divergence from the identity, apart from the trace and a constant.
    """
    weight = np.array(conic.log_dets or (0.0,) * len(conic.orders))
    block, i, j, _ = conic.places
    cost = cost - weight[block] * (i == j)
    used = np.flatnonzero(cost)
    rows = {b: family for b, _, family in _sparse(conic, np.zeros_like(used), used, cost[used])}
    near = [
        Nearness("logdet", np.eye(n), w) if w else None
        for n, w in zip(conic.orders, weight.tolist(), strict=True)
    ]
    return tuple(Block(f"block {b}", n, rows.get(b), near[b]) for b, n in enumerate(conic.orders))


def map_of(conic: Conic, m: int, row: IntArray, place: IntArray, value: Array) -> LinearMap:
    """Return the map whose row ``row[k]`` has ``value[k]`` times the entry of the psd row ``place[k]``."""
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
    block, i, j, _ = conic.places
    block, i, j = block[place], i[place], j[place]
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(len(conic.orders) + 1))
    for b, (n, span) in enumerate(zip(conic.orders, pairwise(ends.tolist()), strict=True)):
        own = order[slice(*span)]
        if len(own):
            at, local = np.unique(row[own], return_inverse=True)
            yield b, at, SparseRows.of(len(at), n, Coordinates(local, i[own], j[own], value[own]))
