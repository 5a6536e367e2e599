"""The data of a program as plain arrays with radii: all that a proof may know of a problem.

    minimize    sum over blocks <C, X> + mu D(X, X0)   +   c'u   +   offset   +   penalties of soft rows
    subject to  lo <= A(X) + B u <= hi,   0 <= X (<= cap I),   u_lo <= u <= u_hi,   u_K in Q

A number of the program is exact as it stands in floating point. Rows that are stored as products of vectors
have radii for the rounding of these products, and interval data have their own. Where a proof needs it, rows
and costs are listed term by term.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask, scattered
from bregopt.program import LowRank, Penalty, Program
from bregopt.program.bounds import SecondOrderCones
from bregopt.program.rows import (
    Coordinates,
    DenseRows,
    Distances,
    Entries,
    RankOne,
    RankTwo,
    Rows,
    SparseRows,
)
from bregopt.program.rows.low_rank import dense_row
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous.ball import UNIT, Ball, inflated, sparse_product

LARGEST_DENSE = 5000  # the largest order of a matrix whose products are formed
LARGEST_LISTED = 60_000_000  # terms of the rows of a problem that are listed
EXACT = (DenseRows, Distances, Entries, SparseRows)  # families whose coefficients are stored as numbers
_PRODUCT = 8 * UNIT  # relative error of a product of three factors, and of a doubled one


@dataclass(frozen=True, eq=False)
class Anchor:
    """The divergence ``mu D(X, X0)`` of a block; `weights` for elementwise ones.

    With a `factor` ``X0`` is ``F F'``, of low rank, and the field `X0` is empty
    (:mod:`bregopt.rigorous.reduction`).
    """

    divergence: str
    X0: Ball
    mu: float
    weights: Array | None = None
    factor: Array | None = None


class Null(NamedTuple):
    """A hard row ``z'X z = 0`` of its block alone, so that ``X z = 0``.

    Parameters
    ----------
    row : int
    z : array of shape (n,)
        Of entries 0, 1 and -1.
    """

    row: int
    z: Array


@dataclass(frozen=True, eq=False)
class MatrixData:
    """One matrix variable: the coefficients of the entries that occur.

    Parameters
    ----------
    name : str
    n : int
        Order of ``X``.
    i, j : int array of shape (p,)
        The entries ``X_ij``, ``i <= j``, that occur.
    A : csr_array of shape (m, p)
        Coefficients of the rows, with sorted indices; those beside the diagonal count both ``X_ij`` and
        ``X_ji``.
    A_rad : csr_array of shape (m, p) or None
        Radii of the coefficients, at the same places; None for exact ones.
    C : Ball of shape (p,)
        Coefficients of the objective.
    cap : float or None
        Upper bound on the eigenvalues.
    anchor : Anchor or None
    trace : float
        An upper bound on the trace that rows implied before a reduction.
    null : Null or None
        A row that `A` does not list.
    """

    name: str
    n: int
    i: IntArray
    j: IntArray
    A: Any
    A_rad: Any
    C: Ball
    cap: float | None = None
    anchor: Anchor | None = None
    trace: float = math.inf
    null: Null | None = None

    @cached_property
    def share(self) -> Array:
        """1 on the diagonal, 1/2 beside it: the share of a coefficient in each of its two entries."""
        return np.where(self.i == self.j, 1.0, 0.5)

    def entries(self, X: Any) -> Array:
        """Return the entries of a matrix that occur."""
        if isinstance(X, LowRank):
            return np.asarray(X[self.i, self.j]) if len(self.i) else np.zeros(0)
        found: Array = np.asarray(X)[self.i, self.j]
        return found

    def matrix(self, coefficients: Ball) -> Ball:
        """Return the symmetric matrix of coefficients; halving them is exact."""
        mid, rad = np.zeros((self.n, self.n)), np.zeros((self.n, self.n))
        for whole, part in ((mid, coefficients.mid), (rad, coefficients.rad)):
            whole[self.i, self.j] = part * self.share
            whole[self.j, self.i] = part * self.share
        return Ball(mid, rad)

    def sparse_matrix(self, coefficients: Array) -> sp.csr_array:
        """Return the sparse symmetric matrix of coefficients."""
        i, j, half = self.i, self.j, coefficients * self.share
        off = i != j
        places = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
        return sp.csr_array((np.concatenate([half, half[off]]), places), (self.n, self.n))


@dataclass(frozen=True, eq=False)
class Data:
    """A problem; see the docstring of the module.

    Parameters
    ----------
    matrices : tuple of MatrixData
    B, B_rad : csr_array of shape (m, k); `B_rad` may be None
    c : Ball of shape (k,)
    u_lo, u_hi : array of shape (k,)
    cones : SecondOrderCones
    lo, hi : array of shape (m,)
    lo_rad, hi_rad : array of shape (m,)
        Radii of the bounds; equal for equalities, whose ends are one number.
    kind : int array of shape (m,)
        Values of :class:`bregopt.program.Penalty`.
    weight : array of shape (m,)
        Of the penalties.
    offset : float
    maximize : bool
        Whether the user maximizes the negative of the objective.
    systems : dict
        The last equations that were factorized (:mod:`bregopt.rigorous.upper`).
    activities : dict
        The activities at the points of proofs.
    """

    matrices: tuple[MatrixData, ...]
    B: Any
    B_rad: Any
    c: Ball
    u_lo: Array
    u_hi: Array
    cones: SecondOrderCones
    lo: Array
    hi: Array
    lo_rad: Array
    hi_rad: Array
    kind: IntArray
    weight: Array
    offset: float = 0.0
    maximize: bool = False
    systems: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    activities: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary, init=False, repr=False)

    @property
    def m(self) -> int:
        """The number of rows."""
        return len(self.lo)

    @property
    def k(self) -> int:
        """The number of ordinary variables."""
        return len(self.u_lo)

    @cached_property
    def A(self) -> Any:
        """The coefficients of all blocks side by side, a CSR array."""
        return _side_by_side([block.A for block in self.matrices], self.m)

    @cached_property
    def A_rad(self) -> Any:
        """Their radii, None where all are zero."""
        if all(block.A_rad is None for block in self.matrices):
            return None
        parts = [sp.csr_array(b.A.shape) if b.A_rad is None else b.A_rad for b in self.matrices]
        return _side_by_side(parts, self.m)

    @cached_property
    def At(self) -> Any:
        """The transpose of `A` in CSR form."""
        return _transposed(self.A)

    @cached_property
    def At_rad(self) -> Any:
        """The transpose of `A_rad`, None where it is None."""
        return None if self.A_rad is None else _transposed(self.A_rad)

    @cached_property
    def share(self) -> Array:
        """The shares of the coefficients of all blocks (:attr:`MatrixData.share`)."""
        return np.concatenate([np.zeros(0), *(block.share for block in self.matrices)])

    def by_block(self, entries: Any) -> list[Any]:
        """Return the parts of an array or a ball with one number for each entry of all blocks."""
        ends = np.cumsum([0, *(len(block.i) for block in self.matrices)])
        return [entries[a:b] for a, b in pairwise(ends)]

    def slacks(self, y: Ball) -> list[Ball]:
        """Return the coefficients of ``C - A*(y)`` of each block."""
        products = self.by_block(sparse_product(self.At, self.At_rad, y))
        return [block.C - product for block, product in zip(self.matrices, products, strict=True)]

    @cached_property
    def Bt(self) -> Any:
        """The transpose of `B` in CSR form."""
        return _transposed(self.B)

    @cached_property
    def Bt_rad(self) -> Any:
        """The transpose of `B_rad`, None where it is None."""
        return None if self.B_rad is None else _transposed(self.B_rad)

    @cached_property
    def in_cone(self) -> Mask:
        """Mask of the variables in second-order cones."""
        mask = np.zeros(self.k, dtype=bool)
        mask[self.cones.index] = True
        return mask

    @cached_property
    def required(self) -> Mask:
        """Mask of the rows whose bounds hold wherever the objective is finite: hard and logarithmic ones."""
        mask: Mask = (self.kind == int(Penalty.HARD)) | (self.kind == int(Penalty.LOG))
        return mask

    @cached_property
    def kinds(self) -> frozenset[Penalty]:
        """The kinds of the rows."""
        return frozenset(map(Penalty, np.unique(self.kind).tolist()))

    @cached_property
    def idle(self) -> Mask:
        """Mask of the rows that ask for nothing: without coefficients, such as ``0 = 0``."""
        mask: Mask = (self.lo + self.lo_rad <= 0) & (self.hi - self.hi_rad >= 0)
        for part in (self.A, self.A_rad, self.B, self.B_rad):
            if part is not None:
                mask[np.repeat(np.arange(self.m), np.diff(part.indptr))[part.data != 0]] = False
        for block in self.matrices:
            if block.null is not None:
                mask[block.null.row] &= bool(np.isinf(self.lo[block.null.row]))
        return mask

    @cached_property
    def free(self) -> Mask:
        """Mask of the variables that neither a box nor a cone bounds."""
        mask: Mask = np.isinf(self.u_lo) & np.isinf(self.u_hi) & ~self.in_cone
        return mask

    def reduced(self, y: Ball) -> Ball:
        """Return the reduced costs ``c - B'y``."""
        return self.c - sparse_product(self.Bt, self.Bt_rad, y) if self.k else self.c

    def activity(self, X: Sequence[Any], u: Array) -> Ball:
        """Return ``A(X) + B u``; matrices are float arrays or :class:`LowRank`."""
        entries = [_entries_of(block, X_b) for block, X_b in zip(self.matrices, X, strict=True)]
        total = sparse_product(self.A, self.A_rad, Ball.joined([Ball.exact(np.zeros(0)), *entries]))
        return total + sparse_product(self.B, self.B_rad, Ball.exact(u)) if self.k else total


def _entries_of(block: MatrixData, X: Any) -> Ball:
    """Return the entries of a matrix that occur, with the rounding of a product ``F F'``."""
    x = block.entries(X)
    if not isinstance(X, LowRank):
        return Ball.exact(x)
    F = X.factor
    size = np.einsum("ij,ij->i", F, F)
    terms = F.shape[1]
    reach = np.sqrt(size[block.i] * size[block.j])
    return Ball(x, inflated((terms + 4) * 2 * UNIT * reach) + terms * TINY)


def _csr_of(row: IntArray, column: IntArray, value: Array, shape: tuple[int, int]) -> Any:
    """Return the array of entries sorted by rows and columns."""
    indptr = np.searchsorted(row, np.arange(shape[0] + 1))
    return sp.csr_array((value, column, indptr), shape)


def _side_by_side(parts: Sequence[Any], m: int) -> Any:
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.hstack(parts)) if parts else sp.csr_array((m, 0))


def _transposed(A: Any) -> Any:
    """Return the transpose in CSR form, with explicit zeros."""
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    order = np.argsort(A.indices, kind="stable")
    return _csr_of(A.indices[order], row[order], A.data[order], (A.shape[1], A.shape[0]))


class Spread(NamedTuple):
    """Radii of the coefficients of a matrix, in `row` (that after the last is the cost) at ``i n + j``."""

    row: IntArray
    place: IntArray
    rad: Array


class Terms(NamedTuple):
    """Coefficients of a matrix with radii, in `row` (that after the last is the cost) at ``i n + j``.

    It is ``i <= j``, and those beside the diagonal count both ``X_ij`` and ``X_ji``.
    """

    row: IntArray
    place: IntArray
    value: Array
    rad: Array


def data_of(program: Program, spreads: Sequence[Spread | None] | None = None) -> Data:
    """Return the data of a program, with radii of the coefficients of each block besides those of rounding.

    Raises
    ------
    ValueError
        If its rows have too many terms to be listed, or a block is on a face.
    """
    nulls = [None] * len(program.blocks) if spreads else _nulls(program)
    rows = {null.row for null in nulls if null is not None}
    count = sum(_without(term.rows, term.at, rows)[0].count() for term in program.A.terms)
    if count > LARGEST_LISTED:
        raise ValueError(f"the rows have {count:.2g} terms; proofs list at most {LARGEST_LISTED:.2g}")
    bounds, B = program.bounds, sp.csr_array(program.B, copy=True)
    B.sum_duplicates()
    none = np.zeros(program.m)
    return Data(
        matrices=tuple(
            _matrix(program, b, None if spreads is None else spreads[b], null) for b, null in enumerate(nulls)
        ),
        B=B,
        B_rad=None,
        c=Ball.exact(program.c),
        u_lo=program.u_lo,
        u_hi=program.u_hi,
        cones=program.cones,
        lo=bounds.lo,
        hi=bounds.hi,
        lo_rad=none,
        hi_rad=none,
        kind=bounds.kind,
        weight=bounds.gamma,
        offset=program.offset,
        maximize=program.maximize,
    )


def _nulls(program: Program) -> list[Null | None]:
    """Return the row ``z'X z = 0`` of signs of each linear block, None where there is none, or several."""
    bounds = program.bounds
    found: list[list[Null]] = [[] for _ in program.blocks]
    zero = (bounds.lo == 0) & (bounds.hi == 0) & (bounds.kind == int(Penalty.HARD))
    if zero.any():
        times = np.zeros(program.m, dtype=np.intp)
        for term in program.A.terms:
            np.add.at(times, term.at, 1)
        zero &= (times == 1) & (np.diff(sp.csr_array(program.B).indptr) == 0)
    for term in program.A.terms:
        block = program.blocks[term.block]
        if isinstance(term.rows, RankOne) and block.nearness is None and block.cap is None:
            for k in np.flatnonzero(zero[term.at]):
                z = dense_row(term.rows.Z, int(k))
                signs = ((z == 0) | (np.abs(z) == np.abs(z).max())).all() and np.count_nonzero(z) > 1
                if signs and term.rows.weight[k]:
                    found[term.block].append(Null(int(term.at[k]), np.sign(z)))
    return [rows[0] if len(rows) == 1 else None for rows in found]


def _without(rows: Rows, at: IntArray, left_out: Collection[int]) -> tuple[Rows, IntArray]:
    """Return a family and the places of its rows, without the rows at some places."""
    at = np.asarray(at)
    kept = np.flatnonzero(~np.isin(at, list(left_out)))
    return (rows, at) if len(kept) == len(at) else (rows.slice(kept), at[kept])


def _matrix(program: Program, b: int, spread: Spread | None, null: Null | None) -> MatrixData:
    block, n = program.blocks[b], program.blocks[b].n
    if block.face is not None:
        raise ValueError(f"{block.name} is on a face; expected a program before its reductions")
    left_out = () if null is None else (null.row,)
    parts = [_without(term.rows, term.at, left_out) for term in program.A.terms_of(b)]
    if block.cost is not None:
        parts.append((block.cost, np.array([program.m])))
    listed = [_listed(family, np.asarray(at), n) for family, at in parts]
    if spread is not None:
        i, j = np.divmod(spread.place, n)
        place = np.minimum(i, j) * n + np.maximum(i, j)
        listed.append(Terms(spread.row, place, np.zeros(len(i)), spread.rad))
    none = Terms(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0))
    terms = Terms(*map(np.concatenate, zip(none, *listed, strict=True)))
    return replace(assembled(block.name, n, program.m, terms, block.cap, _anchor(block.nearness)), null=null)


def _listed(rows: Rows, at: IntArray, n: int) -> Terms:
    """Return the terms of a family whose rows have the places `at`."""
    if isinstance(rows, RankOne | RankTwo):
        U, W, weight = (getattr(rows.products(), name) for name in ("U", "W", "weight"))
        if not (sp.issparse(U) or sp.issparse(W)):
            return _listed_dense(rows, weight[:, None] * U, W, at, n)
    t = rows.coordinates()
    return Terms(at[t.row], np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j), t.value, _radii(rows, t))


# Pays on: 60 dense forms, proven, n = 40.
def _listed_dense(rows: Rows, U: Array, W: Array, at: IntArray, n: int) -> Terms:
    """Return the terms of the rows ``u_k' X w_k`` for dense vectors, those of ``X_ij`` and ``X_ji`` added."""
    i, j = np.triu_indices(n)
    one, two = U[:, i] * W[:, j], np.where(i == j, 0.0, U[:, j] * W[:, i])
    row, pair = np.nonzero((one != 0) | (two != 0))
    one, two, i, j = one[row, pair], two[row, pair], i[pair], j[pair]
    total, lost = _of_two(one, two)
    rad = _radii(rows, Coordinates(row, i, j, one)) + _radii(rows, Coordinates(row, j, i, two))
    return Terms(at[row], i * n + j, total, inflated(rad + lost + 4 * UNIT * rad))


def _of_two(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the sums of two numbers, and the sizes of their errors, which are exact (Knuth)."""
    total = a + b
    part = total - a
    return total, np.abs((a - (total - part)) + (b - part))


def assembled(
    name: str, n: int, m: int, terms: Terms, cap: float | None = None, anchor: Anchor | None = None
) -> MatrixData:
    """Return a block of order `n` in `m` rows; terms of one place are added, and the rounding is counted."""
    present, column = _numbered(terms.place, n * n)
    row, column, value, rad = _added(terms.row, column, terms.value, terms.rad, len(present))
    ends = np.searchsorted(row, [m])[0]
    A = _csr_of(row[:ends], column[:ends], value[:ends], (m, len(present)))
    A_rad = _csr_of(row[:ends], column[:ends], rad[:ends], A.shape) if rad[:ends].any() else None
    i, j = np.divmod(present, n)
    C = Ball(*(scattered(column[ends:], part[ends:], len(present)) for part in (value, rad)))
    return MatrixData(name, n, i, j, A, A_rad, C, cap, anchor)


def _added(
    row: IntArray, column: IntArray, value: Array, rad: Array, columns: int
) -> tuple[IntArray, IntArray, Array, Array]:
    """Return the terms sorted by row and column, those of one place added, with radii for the rounding."""
    keys = row * columns + column
    if (keys[1:] <= keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, value, rad = keys[order], value[order], rad[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] > keys[:-1]])[: len(keys)])
    if len(first) == len(keys):
        return (*(np.divmod(keys, columns) if columns else (row, column)), value, rad)
    count = np.diff(np.append(first, len(keys)))
    total, spread, size = (np.add.reduceat(part, first) for part in (value, rad, np.abs(value)))
    a, b = value[first], value[np.minimum(first + 1, len(keys) - 1)]
    # Sums of numbers of 17 bits whose exponents differ by at most 30 are exact.
    exponent = np.where(value != 0, np.frexp(value)[1], 0)
    most, least = np.maximum.reduceat(exponent, first), np.minimum.reduceat(exponent, first)
    exact = np.logical_and.reduceat(is_short(value), first) & (most - least <= 30) & (count < 32)
    rounding = np.where(
        (count == 1) | exact, 0.0, np.where(count == 2, _of_two(a, b)[1], 2 * count * UNIT * size)
    )
    spread = inflated(spread + np.where(count > 1, rounding + 2 * count * UNIT * spread, 0.0))
    kept = (total != 0) | (spread != 0)
    row, column = np.divmod(keys[first[kept]], columns)
    return row, column, total[kept], spread[kept]


def _numbered(place: IntArray, places: int) -> tuple[IntArray, IntArray]:
    """Return the places that occur, in ascending order, and the index of each place among them."""
    if places > len(place):
        return np.unique(place, return_inverse=True)
    occurs = np.zeros(places, dtype=bool)
    occurs[place] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[place]


def _radii(rows: Rows, terms: Coordinates) -> Array:
    """Return the radii of products of numbers; products of numbers of few bits are exact."""
    if isinstance(rows, EXACT):
        return np.zeros(len(terms.value))
    rad = _PRODUCT * np.abs(terms.value) + TINY
    products = rows.products()
    if products is not None:
        exact = is_short(products.weight)
        for factor in (products.U, products.W):
            own = sp.csr_array(factor)
            exact[np.repeat(np.arange(len(exact)), np.diff(own.indptr))[~is_short(own.data)]] = False
        rad[exact[terms.row]] = 0.0
    return rad


def is_short(x: Array) -> Mask:
    """Return the mask of numbers of at most 17 bits, whose products of three are exact."""
    leading = np.ldexp(np.frexp(x)[0], 17)
    mask: Mask = (leading == np.rint(leading)) & (np.abs(np.frexp(x)[1]) < 300)
    return mask


def _anchor(nearness: Any) -> Anchor | None:
    if nearness is None:
        return None
    known = set(nearness.parameters) <= {"weights"}
    name = nearness.divergence if known else nearness.kind.phrase()
    if isinstance(nearness.X0, LowRank):
        return Anchor(name, Ball.exact(np.zeros((0, 0))), nearness.mu, factor=nearness.X0.factor)
    return Anchor(name, Ball.exact(nearness.X0), nearness.mu, nearness.parameters.get("weights"))


@dataclass(frozen=True)
class Side:
    """One bound and how far it is proven.

    Parameters
    ----------
    value : float
        ``-inf`` (a lower bound) or ``inf`` (an upper one) where nothing is proven.
    reason : str
        Why nothing is proven, and the next step; empty where it is.
    """

    value: float
    reason: str = ""
