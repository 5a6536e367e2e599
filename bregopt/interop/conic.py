"""Conic programs with psd cones as a :class:`~bregopt.program.Program`.

They are read from either side of the pair

    minimise  c'x   subject to  A x + s = b,  s in K        (P)
    minimise  b'z   subject to  A'z = -c,     z in K*       (D)

with ``K`` the zero cone, the nonnegative numbers and psd matrices, in this order; a psd matrix is given by
its upper triangle, column by column, entries off the diagonal times the square root of two.

Read directly, the matrices are the blocks of ``s``, and variables that are entries of a block, as those of a
psd variable are, drop out. Read as the dual, they are the blocks of ``z``, and there is a row for each
variable: the way for linear matrix inequalities. :func:`read_conic` takes the one with fewer rows and free
variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.interop.cones import triangle
from bregopt.interop.families import recognise
from bregopt.program import Block, Bounds, LinearMap, Penalty, Program, Term
from bregopt.program.rows import Coordinates, SparseRows

__all__ = ["Conic", "Reading", "read_conic"]

_NOT_MUCH = 4  # times as many rows and free variables
_PSD_TOL = 1e-14  # of a matrix's norm: by how much one that counts as psd may miss it


class Places(NamedTuple):
    """Psd rows: each holds ``weight * S[i, j]`` of a block."""

    block: IntArray
    i: IntArray
    j: IntArray
    weight: Array


@dataclass(frozen=True, eq=False)
class Conic:
    """The data of (P).

    Parameters
    ----------
    A : csr_array of shape (m, k)
    b : array of shape (m,)
    c : array of shape (k,)
    zero, nonneg : int
        Rows of the zero cone and of the nonnegative numbers, which come first.
    orders : tuple of int
        Of the psd matrices.
    """

    A: Any
    b: Array
    c: Array
    zero: int
    nonneg: int
    orders: tuple[int, ...]

    @property
    def linear(self) -> int:
        """How many rows are not of a psd matrix."""
        return self.zero + self.nonneg

    @property
    def spans(self) -> list[slice]:
        """The rows of each psd matrix."""
        ends = np.cumsum([self.linear, *(n * (n + 1) // 2 for n in self.orders)])
        return [slice(*pair) for pair in pairwise(ends.tolist())]

    @cached_property
    def places(self) -> Places:
        """Where each psd row stands."""
        triangles = [triangle(n) for n in self.orders]
        i, j, weight = (np.concatenate(part) for part in zip(*triangles, strict=True))
        block = np.repeat(np.arange(len(self.orders)), [len(part.i) for part in triangles])
        return Places(block, i, j, weight)

    def matrices(self, triangles: Array) -> list[Array]:
        """Return the symmetric matrices of the psd rows."""
        block, i, j, weight = self.places
        S = [np.zeros((n, n)) for n in self.orders]
        for b, S_b in enumerate(S):
            own = block == b
            S_b[i[own], j[own]] = S_b[j[own], i[own]] = (triangles / weight)[own]
        return S

    def triangles(self, S: Sequence[Array]) -> Array:
        """Return the psd rows of matrices."""
        block, i, j, weight = self.places
        values = np.zeros(len(block))
        for b, S_b in enumerate(S):
            own = block == b
            values[own] = weight[own] * S_b[i[own], j[own]]
        return values


class Reading(Protocol):
    """A conic program as a :class:`Program`, and the way back from its answers.

    Where (D) was read, an unbounded program means that (P) is infeasible, and the other way round.
    """

    @property
    def program(self) -> Program:
        """What solvers receive."""
        ...

    @property
    def dual(self) -> bool:
        """Whether (D) was read."""
        ...

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        """Return the ``x`` of an answer, shape ``(k,)``."""
        ...

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return the ``z`` of an answer, shape ``(m,)``.

        If (P) is infeasible it is a Farkas vector, ``A'z = 0`` and ``b'z < 0``: of the multipliers `y`, with
        nothing `priced`, or, where (D) was read, of the ray `S`, `u`.
        """
        ...


def read_conic(conic: Conic) -> Iterator[Reading]:
    """Yield a conic program, with at least one psd matrix, as a :class:`Program`: the smaller reading first.

    The other one follows where it is not much larger: it may have an interior where the first has none.
    """
    kept = _needed_rows(conic) & _needed_matrices(conic)
    needed = _with_rows(conic, kept)
    pivots = _pivots(needed)
    (m, k), gone = needed.A.shape, len(pivots.rows)
    boxes = np.count_nonzero(np.diff(needed.A.indptr)[needed.zero : needed.linear] == 1)
    ways: list[tuple[int, Callable[[], Reading]]] = [
        (m - boxes + k - 2 * gone, lambda: _direct(needed, pivots)),
        (k + needed.zero, lambda: _Dual(needed, _dual_program(needed))),
    ]
    ways.sort(key=itemgetter(0))
    for size, read in ways:
        if size <= _NOT_MUCH * ways[0][0]:
            yield _Padded(read(), kept)


# --- What others imply ------------------------------------------------------------------------------


def _needed_rows(conic: Conic) -> Mask:
    """Return which rows are left without those, not of a matrix, that a parallel one implies.

    CVXPY bounds both of two entries that are one, and a solution with the same row twice has no interior.
    """
    A, kept = conic.A[: conic.linear], np.ones(len(conic.b), dtype=bool)
    used = np.flatnonzero(np.diff(A.indptr))
    if len(used) == 0:
        return kept
    size = A.data[A.indptr[used]]  # parallel rows are the same where the first entry is one
    scaled = sp.csr_array(sp.diags_array(1 / size) @ A[used])
    _, first, group = np.unique(scaled @ _numbers(A.shape[1]), return_index=True, return_inverse=True)
    same = np.diff((scaled - scaled[first[group]]).tocsr().indptr) == 0
    used, size, group, end = used[same], size[same], group[same], (conic.b[used] / size)[same]
    # Ends of a row in common: equal to `end`, at most, or at least.
    kind = np.where(used < conic.zero, 0, np.where(size > 0, 1, 2))
    lowest, highest = np.full((2, len(first)), np.inf)
    for ends, sign in ((lowest, 1.0), (highest, -1.0)):
        np.minimum.at(ends, group[kind == 0], sign * end[kind == 0])
    tightest = np.where(kind == 2, -end, end)
    order = np.lexsort((tightest, kind, group))
    before = np.r_[-1, order[:-1]]
    follows = (group[order] == group[before]) & (kind[order] == kind[before]) & (np.arange(len(order)) > 0)
    implied = np.zeros(len(order), dtype=bool)
    implied[order] = follows & ((kind[order] > 0) | (end[order] == end[before]))
    equal = np.isfinite(lowest[group])
    implied |= equal & (kind == 1) & (-highest[group] <= end)
    implied |= equal & (kind == 2) & (lowest[group] >= end)
    kept[used[implied]] = False
    return kept


def _numbers(k: int) -> Array:
    """Return numbers with which rows are told apart."""
    return np.random.default_rng(0).uniform(1.0, 2.0, k)


def _needed_matrices(conic: Conic) -> Mask:
    """Return which rows are left without matrices ``B - A(x)`` that another one, less a psd matrix, implies.

    A psd variable that is asked to be psd once more, as it is or beyond some multiple of the identity.
    """
    kept = np.ones(len(conic.b), dtype=bool)
    alike: dict[tuple[Any, ...], list[int]] = {}
    S = conic.matrices(conic.b[conic.linear :])
    for b, span in enumerate(conic.spans):
        A = conic.A[span]
        others = alike.setdefault((A.data.tobytes(), A.indices.tobytes(), A.indptr.tobytes()), [])
        if any(_psd(S[b] - S[other]) for other in others):
            kept[span] = False
            continue
        for other in [other for other in others if _psd(S[other] - S[b])]:
            kept[conic.spans[other]] = False
            others.remove(other)
        others.append(b)
    return kept


def _psd(S: Array) -> bool:
    return bool(np.linalg.eigvalsh(S)[0] >= -_PSD_TOL * np.linalg.norm(S))


def _with_rows(conic: Conic, kept: Mask) -> Conic:
    return Conic(
        A=conic.A[np.flatnonzero(kept)],
        b=conic.b[kept],
        c=conic.c,
        zero=int(kept[: conic.zero].sum()),
        nonneg=int(kept[conic.zero : conic.linear].sum()),
        orders=tuple(n for n, span in zip(conic.orders, conic.spans, strict=True) if kept[span.start]),
    )


class _Padded:
    """A reading of the rows that are needed; the others have no part in ``z``."""

    def __init__(self, reading: Reading, kept: Mask) -> None:
        self.program, self.dual, self.x = reading.program, reading.dual, reading.x
        self._reading, self._kept = reading, kept

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        z = np.zeros(len(self._kept))
        z[self._kept] = self._reading.z(S, u, y, priced)
        return z


# --- (P) --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Direct:
    """(P) with the variables ``x_P = T (b_D - s_D - A_DF x_F)`` of the pivots eliminated.

    Parameters
    ----------
    conic : Conic
    program : Program
        Its ``u`` are the ``x_F``, and its rows the rows ``R``.
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
        A, b, linear = self.conic.A, self.conic.b, self.conic.linear
        x = np.zeros(A.shape[1])
        x[self.F] = u
        x[self.P] = self.T * ((b - A @ x)[self.D] - self.conic.triangles(S)[self.D - linear])
        return x

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        """Return ``z`` from the multipliers of the rows; ``A'z = -c`` gives what is not one of these."""
        A, c = self.conic.A, self.conic.c if priced else np.zeros(len(self.conic.c))
        z = np.zeros(A.shape[0])
        z[self.R] = -self.program.bounds.clip(y)
        z[self.D] = -self.T * (c + A.T @ z)[self.P]
        return z


class _Pivots(NamedTuple):
    """Rows, columns and entries."""

    rows: IntArray
    columns: IntArray
    entries: Array


def _pivots(conic: Conic) -> _Pivots:
    """Return psd rows and a variable for each that occurs in no other of these rows.

    First variables that alone are an entry of a matrix, then, in rows without these, such that occur in no
    other psd row.
    """
    psd = conic.A[conic.linear :]
    count = np.diff(psd.indptr)
    single = psd.indptr[np.flatnonzero(count == 1)]
    alone, first = np.unique(psd.indices[single], return_index=True)
    taken = np.zeros(psd.shape[1], dtype=bool)
    taken[alone] = True
    row = np.repeat(np.arange(psd.shape[0]), count)
    open_row = np.bincount(row, weights=taken[psd.indices], minlength=psd.shape[0]) == 0
    once = np.bincount(psd.indices, minlength=psd.shape[1]) == 1
    own = np.flatnonzero(open_row[row] & once[psd.indices])
    _, at = np.unique(row[own], return_index=True)
    chosen = np.concatenate([single[first], own[at]])
    return _Pivots(row[chosen] + conic.linear, psd.indices[chosen], psd.data[chosen])


def _direct(conic: Conic, pivots: _Pivots) -> _Direct:
    A, b, c = conic.A, conic.b, conic.c
    D, P, T = pivots.rows, pivots.columns, 1 / pivots.entries
    R, F = _others(D, A.shape[0]), _others(P, A.shape[1])
    through = sp.csr_array(A[R][:, P] @ sp.diags_array(T))
    # Of a row, its entries in s_D, and one in s of its own where it is of a matrix.
    inner = np.flatnonzero(conic.linear <= R)
    s = sp.coo_array(-through)
    row = np.concatenate([s.row, inner])
    place = np.concatenate([D[s.col], R[inner]]) - conic.linear
    value = np.concatenate([s.data, np.ones(len(inner))])
    bound = b[R] - through @ b[D]
    program = Program(
        blocks=_blocks(conic, D - conic.linear, -T * c[P]),
        A=_map(conic, len(R), row, place, value),
        B=sp.csr_array(A[R][:, F] - through @ A[D][:, F]),
        bounds=_bounds(np.where((R >= conic.zero) & (R < conic.linear), -np.inf, bound), bound),
        c=c[F] - A[D][:, F].T @ (T * c[P]),
        u_lo=np.full(len(F), -np.inf),
        u_hi=np.full(len(F), np.inf),
        offset=float(c[P] @ (T * b[D])),
    )
    return _Direct(conic, program, D, P, T, F, R)


def _others(chosen: IntArray, count: int) -> IntArray:
    """Return the numbers below `count` that are not chosen."""
    left = np.ones(count, dtype=bool)
    left[chosen] = False
    return np.flatnonzero(left)


# --- (D) --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Dual:
    """(D): its rows are the variables ``x``, its ``u`` the ``z`` outside the matrices."""

    dual: ClassVar[bool] = True
    conic: Conic
    program: Program

    def x(self, S: Sequence[Array], u: Array, y: Array) -> Array:
        return y

    def z(self, S: Sequence[Array], u: Array, y: Array, priced: bool = True) -> Array:
        return np.concatenate([u, self.conic.triangles(S)])


def _dual_program(conic: Conic) -> Program:
    A, linear = conic.A, conic.linear
    psd = sp.coo_array(A[linear:])
    return Program(
        blocks=_blocks(conic, np.arange(psd.shape[0]), conic.b[linear:]),
        A=_map(conic, A.shape[1], psd.col, psd.row, psd.data),
        B=sp.csr_array(A[:linear].T),
        bounds=_bounds(-conic.c, -conic.c),
        c=conic.b[:linear],
        u_lo=np.where(np.arange(linear) < conic.zero, -np.inf, 0.0),
        u_hi=np.full(linear, np.inf),
    )


# --- Both -------------------------------------------------------------------------------------------


def _blocks(conic: Conic, place: IntArray, price: Array) -> tuple[Block, ...]:
    """Return the blocks, with the given prices of the given psd rows."""
    cost = np.zeros(len(conic.places.block))
    cost[place] = price
    used = np.flatnonzero(cost)
    rows = {b: family for b, _, family in _sparse(conic, np.zeros_like(used), used, cost[used])}
    return tuple(Block(f"block {b}", n, rows.get(b)) for b, n in enumerate(conic.orders))


def _map(conic: Conic, m: int, row: IntArray, place: IntArray, value: Array) -> LinearMap:
    """Return the map whose row ``row[k]`` has ``value[k]`` times the psd row number ``place[k]``."""
    terms = [
        Term(b, at[local], family)
        for b, at, rows in _sparse(conic, row, place, value)
        for local, family in recognise(rows)
    ]
    return LinearMap(m, conic.orders, tuple(terms))


def _sparse(
    conic: Conic, row: IntArray, place: IntArray, value: Array
) -> Iterator[tuple[int, IntArray, SparseRows]]:
    """Yield each block with entries, which rows these are in, and the rows."""
    block, i, j, weight = conic.places
    block, i, j, value = block[place], i[place], j[place], value * weight[place]
    for b, n in enumerate(conic.orders):
        own = np.flatnonzero(block == b)
        if len(own):
            at, local = np.unique(row[own], return_inverse=True)
            yield b, at, SparseRows.of(len(at), n, Coordinates(local, i[own], j[own], value[own]))


def _bounds(lo: Array, hi: Array) -> Bounds:
    m = len(lo)
    return Bounds(lo, hi, np.full(m, int(Penalty.HARD)), np.full(m, np.inf))
