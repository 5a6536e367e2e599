"""The Schur matrix of sparse rows, by products of entries of ``P`` and ``Q`` (F3) or by ``P A_l Q`` (F1).

Rows with few entries take the first, rows with many the second; measured costs decide which rows these are.
With ``S`` the rows over distinct places and ``G`` the matrix of all pairs of places,

    G[(i,j), (p,q)] = (P_ip Q_jq + P_jp Q_iq + P_iq Q_jp + P_jq Q_ip) / 4,

the Schur matrix is ``S G S'``. As ``G`` is symmetric, its columns are formed in strips from the diagonal
down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import Array, IntArray, span
from bregopt.clock import checkpoint
from bregopt.linalg import dense, symmetrize
from bregopt.program.rows import Coordinates
from bregopt.records import cached_property, dataclass

# Rows are dense for the Schur matrix up to this many nanoseconds, and above this fraction of nonzeros.
_CHEAP, _FULL = 1e5, 0.3
# Fraction of nonzeros above which rows are multiplied as a dense matrix, near the ratio of `flop_cost` and
# `sparse_cost`.
_DENSE_FRACTION = 0.15
# Products for pairs of places that are kept at a time (0.8 MB). Larger arrays are new memory each time,
# whose pages cost more than the products.
_STRIP_PRODUCTS = 100_000
# Least number of columns of a strip of these. Products with sparse matrices of fewer columns are slow.
_LEAST_STRIP = 16
# Products that are computed at a time (256 kB, so that a few arrays stay in the cache).
_TILE_PRODUCTS = 32_000
# Entries up to which they are dense at any fraction, since calls with sparse matrices are slow.
_DENSE_ROWS_SIZE = 4_000
# Number of these products up to which they may have twice as many entries: products of sparse rows with fewer
# columns are slow.
_LEAST_AT_ONCE = 8
# Lines of ``A_l`` that are not zero, relative to its order, up to which only those are multiplied.
_SUPPORT_FRACTION = 0.7
# Approximate nanoseconds of one entry of the matrix of pairs of places. This and the next four costs are
# measured by ``benchmarks/schur.py``.
_PRODUCT_COST = 5.0
# Approximate nanoseconds of one multiplication in a product of a sparse matrix and a dense one.
_SPARSE_COST = 0.3
# Approximate nanoseconds of one multiplication in a product of dense matrices.
_FLOP_COST = 0.04
# Approximate nanoseconds of reading one entry of ``P A_l Q``.
_GATHER_COST = 0.6
# Approximate nanoseconds of the calls for one chunk of products ``P A_l Q``.
_CALL_COST = 3e4
# Entries of products ``P A_l Q`` in memory at a time (0.8 MB, near the size of a cache), or one product
# if that has more.
_CONGRUENCE_ENTRIES = 100_000


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Rows ``sum_p S[k, p] X[i_p, j_p]`` over distinct places with ``i_p <= j_p``.

    Parameters
    ----------
    at : array of shape (k,)
        Indices of the rows in the stack.
    i, j : arrays of shape (p,)
    S : csr_array of shape (k, p)
    """

    at: IntArray
    i: IntArray
    j: IntArray
    S: Any

    @classmethod
    def of(cls, t: Coordinates, m: int, n: int) -> PlacedRows | None:
        """Return the rows of order `n` of a stack of `m` that have these terms; None without terms."""
        if not len(t.row):
            return None
        places, column = _distinct(np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j), n * n)
        at, own = _distinct(t.row, m)
        S = sp.csr_array((t.value, (own, column)), shape=(len(at), len(places)))
        return cls(at, *np.divmod(places, n), S)

    @property
    def one_place_each(self) -> bool:
        """Whether each row reads one place, and each place is read by one row."""
        k, p = self.S.shape
        return bool(self.S.nnz == k == p) and len(np.unique(self.S.indices)) == k

    def of_stack(self, m: int) -> PlacedRows:
        """Return these rows among the `m` rows of the stack, of which the others are empty."""
        start = np.zeros(m + 1, dtype=self.S.indptr.dtype)
        start[self.at + 1] = np.diff(self.S.indptr)
        own = self.S.data, self.S.indices, np.cumsum(start, dtype=start.dtype)
        return PlacedRows(np.arange(m), self.i, self.j, sp.csr_array(own, shape=(m, len(self.i))))

    def reordered(self, rows: IntArray, places: IntArray) -> PlacedRows:
        """Return the rows and the places in other orders."""
        return PlacedRows(self.at[rows], self.i[places], self.j[places], self.S[rows][:, places])

    def after(self, k: int) -> PlacedRows:
        """Return the rows after the first `k`, on the places up to the last that they read."""
        if k == 0:
            return self
        S, rows = self.S, len(self.at) - k
        start, count = S.indptr[k], int(self._reach[k]) if rows else 0
        own = S.data[start:], S.indices[start:], S.indptr[k:] - start
        return PlacedRows(self.at[k:], self.i[:count], self.j[:count], sp.csr_array(own, shape=(rows, count)))

    @cached_property
    def _reach(self) -> IntArray:
        """The number of the first places that contain all those of the rows from each one on."""
        last = np.maximum.reduceat(self.S.indices, self.S.indptr[:-1])  # each row reads a place
        return np.maximum.accumulate(last[::-1])[::-1] + 1


def block_of(rows: IntArray | slice, columns: IntArray | slice) -> Any:
    """Return the index of a block of a matrix; slices, and indices that are consecutive, give a view."""
    r, c = (index if isinstance(index, slice) else span(index) for index in (rows, columns))
    return (r, c) if isinstance(r, slice) or isinstance(c, slice) else np.ix_(r, c)


def lean_rows(S: Any) -> Any:
    """Return a sparse matrix in its fastest form for products: dense if it is small or has many nonzeros."""
    size = S.shape[0] * S.shape[1]
    dense = size <= _DENSE_ROWS_SIZE or S.nnz > _DENSE_FRACTION * size
    return S.toarray() if dense else S


def _distinct(index: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return the distinct indices below `size`, ascending, and the place of each among them."""
    if len(index) < size / 8:
        distinct, place = np.unique(index, return_inverse=True)
        return distinct, place.ravel()
    found = np.zeros(size, dtype=bool)
    found[index] = True
    distinct = np.flatnonzero(found)
    place_of = np.empty(size, dtype=np.intp)
    place_of[distinct] = np.arange(len(distinct))
    return distinct, place_of[index]


@dataclass(frozen=True, eq=False)
class _Strip:
    """The columns ``a .. b-1`` of ``G``, from row ``a`` down.

    `later` holds the rows on the places from ``a``. `own` holds those rows that read a place of the strip, on
    its places; their indices are `rows`.
    """

    a: int
    b: int
    later: Any
    rows: IntArray | slice
    own: Any


class PlaceProducts:
    """The Schur matrix of rows over distinct places.

    Parameters
    ----------
    placed : PlacedRows
    m : int
        Number of rows of the stack.
    """

    def __init__(self, placed: PlacedRows, m: int) -> None:
        self._weights = None
        if placed.one_place_each:
            placed = placed.reordered(np.arange(len(placed.at)), placed.S.indices)
            self._weights = placed.S.data
        elif 2 * len(placed.at) >= m:
            placed = placed.of_stack(m)  # empty rows cost less than indices in the Schur matrix
        self._i, self._j, self._at, self.at = placed.i, placed.j, placed.at, span(placed.at)
        self._S = lean_rows(placed.S)
        self._diagonal = bool((placed.i == placed.j).all())
        self._strips = _strips(self._S)

    def add(self, H: Array, P: Array, Q: Array) -> None:
        """Add the Schur matrix of these rows to a matrix for the stack that is zero."""
        one = np.ascontiguousarray(P)
        P, Q = one, one if P is Q else np.ascontiguousarray(Q)
        if self._weights is not None:
            self._add_entries(H, P, Q, self._weights)
        elif isinstance(self.at, slice):
            self._add_rows(H[self.at, self.at], P, Q)
        else:
            own = np.zeros((len(self._at),) * 2)
            self._add_rows(own, P, Q)
            H[np.ix_(self._at, self._at)] = own

    def _add_rows(self, H: Array, P: Array, Q: Array) -> None:
        for strip in self._strips:
            checkpoint()
            G = self._products(P, Q, strip)
            G[strip.b - strip.a :] *= 2  # for their mirror images
            H[strip.rows] += strip.own @ (strip.later @ G).T
        symmetrize(H)

    def _add_entries(self, H: Array, P: Array, Q: Array, weights: Array) -> None:
        """Add the products of rows of one entry each, whose products ``G`` has in their order."""
        for strip in self._strips:
            checkpoint()
            a, b = strip.a, strip.b
            G = self._products(P, Q, strip)
            if not (weights == 1).all():
                G *= weights[a:, None]
                G *= weights[a:b]
            own, later = self._at[a:b], self._at[b:]
            H[block_of(self._at[a:], own)] = G
            H[block_of(own, later)] = G[b - a :].T

    def mixed(self, left: Array, right: Array) -> Array:
        """Return the products of these rows and rank-one terms, shape ``(rows, terms)``.

        `left` and `right` are ``U P`` and ``U Q``, with the vectors of the terms in the rows of ``U``.
        """
        i, j = self._i, self._j
        mixed = np.empty((self._S.shape[0], len(left)))
        width = max(1, _STRIP_PRODUCTS // len(i))
        for a in range(0, len(left), width):
            checkpoint()
            L, R = (np.ascontiguousarray(half[a : a + width].T) for half in (left, right))
            products = L.take(i, axis=0) * R.take(j, axis=0)
            if not self._diagonal:
                products += L.take(j, axis=0) * R.take(i, axis=0)
                products /= 2
            mixed[:, a : a + width] = self._S @ products
        return mixed

    def _products(self, P: Array, Q: Array, strip: _Strip) -> Array:
        """Return a strip of ``G``.

        Columns of ``P`` and ``Q`` are gathered first, so that products read contiguous rows, and in tiles
        that stay in the cache.
        """
        i, j, a, b = self._i, self._j, strip.a, strip.b
        P_i, P_j, Q_i, Q_j = (M.take(k[a:b], axis=1) for M in (P, Q) for k in (i, j))
        sums = [(P_i, i, Q_j, j), (P_i, j, Q_j, i), (P_j, i, Q_i, j), (P_j, j, Q_i, i)]
        if self._diagonal:  # the four products are equal
            del sums[1:]
        elif P is Q:  # the last two are the first two
            del sums[2:]
        P_i /= len(sums)
        P_j /= len(sums)
        G = np.empty((len(i) - a, b - a))
        height = max(1, _TILE_PRODUCTS // (b - a))
        for t in range(a, len(i), height):
            tile, rows = G[t - a : t - a + height], slice(t, t + height)
            for number, (left, r, right, s) in enumerate(sums):
                product = left.take(r[rows], axis=0)
                product *= right.take(s[rows], axis=0)
                if number:
                    tile += product
                else:
                    tile[:] = product
        return G


def _strips(S: Any) -> list[_Strip]:
    """Return strips of about ``_STRIP_PRODUCTS`` products, for rows as a dense or sparse matrix."""
    m, places = S.shape
    dense = isinstance(S, np.ndarray)
    columns: Any = S if dense else sp.csc_array(S)
    strips, a = [], 0
    while a < places:
        b = min(places, a + max(_LEAST_STRIP, _STRIP_PRODUCTS // max(m, places - a)))
        if dense:
            strips.append(_Strip(a, b, columns[:, a:], slice(None), columns[:, a:b]))
        else:
            own = sp.csr_array(columns[:, a:b])
            used = np.flatnonzero(np.diff(own.indptr))
            strips.append(_Strip(a, b, _columns_from(columns, a), span(used), own[used]))
        a = b
    return strips


def _columns_from(S: Any, a: int) -> Any:
    """Return the columns of a CSC matrix from `a` on, as a view."""
    start = S.indptr[a]
    own = S.data[start:], S.indices[start:], S.indptr[a:] - start
    return sp.csc_array(own, shape=(S.shape[0], S.shape[1] - a))


class DenseSchur:
    """The Schur matrix of a block ``tr(A_k X A_l K)`` from rows that are stored as dense matrices.

    Parameters
    ----------
    A : array of shape (m, n * n)
    n : int
    """

    def __init__(self, A: Array, n: int) -> None:
        self._A, self._n = A, n

    @classmethod
    def of(cls, A: Array, n: int) -> DenseSchur | None:
        """Return it for rows of a block, None where formulas for sparse ones cost less."""
        m = len(A)
        cost = _FLOP_COST * (2.0 * m * n**3 + float(m * n) ** 2)
        full = cost <= _CHEAP or np.count_nonzero(A) > _FULL * A.size
        return cls(np.ascontiguousarray(A), n) if full else None

    def __call__(self, X: Array, K: Array, rows: IntArray) -> Array:
        """Return the Schur matrix of some rows, in ascending order."""
        A, tall = self._of(rows)
        left, right = (tall @ X).reshape(A.shape), (tall @ K).reshape(-1, *X.shape).transpose(0, 2, 1)
        # Its two halves differ by round-off, of which their mean has less.
        return symmetrize(left @ right.reshape(A.shape).T)

    def gram(self, root: Array, Z_root: Array, rows: IntArray) -> Array:
        """Return it from the Cholesky factors of ``X = L L'`` and ``inv(K) = R R'``.

        It is the Gram matrix of the ``inv(R) A_k L``, in half of the operations: NumPy forms one triangle.
        """
        A, tall = self._of(rows)
        inverse, _ = lapack.dtrtri(Z_root, lower=1)
        G = (inverse @ (tall @ root).reshape(-1, *inverse.shape)).reshape(A.shape)
        return G @ G.T

    def _of(self, rows: IntArray) -> tuple[Array, Array]:
        """Return some rows, and all lines of their matrices."""
        A = self._A if len(rows) == len(self._A) else self._A[rows]
        return A, A.reshape(-1, self._n)


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Some rows, and those from the first of them on.

    Parameters
    ----------
    half : csr_array or array of shape (count * lines, n)
        The nonzero lines of each ``A_l / 2``, one row of the chunk after the other.
    support : array of shape (count, lines) or None
        Indices of these lines, padded with those of zero lines; None stands for all lines in order.
    from_here : PlacedRows
    S : csr_array or array
        The rows `from_here`, in their fastest form for products.
    count : int
        Number of rows of the chunk.
    columns, mirror : tuple
        Indices of the Schur matrix: its block of the rows `from_here` and the rows of the chunk, and the
        block of these and the later rows.
    """

    half: Any
    support: IntArray | None
    from_here: PlacedRows
    S: Any
    count: int
    columns: Any
    mirror: Any

    def between(self, P: Array, Q: Array) -> Array:
        """Return ``P A_l Q / 2`` for the rows of the chunk, shape ``(rows, n, n)``."""
        right = (self.half @ Q).reshape(self.count, -1, len(Q))
        left = P if self.support is None else P[self.support].transpose(0, 2, 1)
        return left @ right


class Congruences:
    """The products of the first rows with themselves, all later rows and all rank-one rows.

    Parameters
    ----------
    placed : PlacedRows
        Later rows read places up to an earlier one than the rows before them.
    many : int
        Number of the first rows.
    rank_one : sequence of tuple
        Of rank-one terms of different rows, their rows, the ``u`` as rows of a matrix, and their weights.
    n : int
        The order of the block.
    """

    def __init__(
        self, placed: PlacedRows, many: int, rank_one: Sequence[tuple[IntArray, Any, Array]], n: int
    ) -> None:
        self._rank_one, self._n = rank_one, n
        at_once = _products_at_once(n)
        whole = lean_rows(placed.S)
        self._chunks = [
            _chunk(placed.after(a), whole, min(at_once, many - a), n) for a in range(0, many, at_once)
        ]

    def add(self, H: Array, P: Array, Q: Array) -> None:
        """Add these products to the Schur matrix of the stack, which is zero in these rows and columns."""
        n = self._n
        for chunk in self._chunks:
            checkpoint()
            D = chunk.between(P, Q)
            i, j = chunk.from_here.i, chunk.from_here.j
            lines = D.reshape(chunk.count, n * n)
            entries = lines.take(i * n + j, axis=1)
            entries += lines.take(j * n + i, axis=1)
            columns = chunk.S @ entries.T
            H[chunk.columns] = columns
            H[chunk.mirror] = columns[chunk.count :].T
            own = chunk.from_here.at[: chunk.count]
            side_by_side = D.transpose(1, 0, 2).reshape(n, -1) if self._rank_one else D
            for at, U, weight in self._rank_one:
                for first in range(0, len(at), n):
                    some = slice(first, first + n)
                    u, places = U[some], at[some]
                    left = (u @ side_by_side).reshape(-1, chunk.count, n)
                    activity = 2 * weight[some, None] * (left @ dense(u)[:, :, None])[:, :, 0]
                    H[block_of(places, own)] += activity
                    H[block_of(own, places)] += activity.T


def _chunk(placed: PlacedRows, whole: Any, count: int, n: int) -> _Chunk:
    """Return the first `count` of rows as a chunk; they are the last rows and first places of `whole`."""
    from_here = whole[-len(placed.at) :, : len(placed.i)] if isinstance(whole, np.ndarray) else placed.S
    S = placed.S[:count].tocoo()
    row, i, j, quarter = S.row, placed.i[S.col], placed.j[S.col], S.data / 4
    row, i, j = np.concatenate([row, row]), np.concatenate([i, j]), np.concatenate([j, i])
    meets = np.zeros((count, n), dtype=bool)
    meets[row, i] = True
    lines, support = int(meets.sum(axis=1).max()), None
    if lines <= _SUPPORT_FRACTION * n:
        support = np.argsort(~meets, axis=1, kind="stable")[:, :lines]
        i = (np.cumsum(meets, axis=1) - 1)[row, i]
    else:
        lines = n
    half = sp.csr_array((np.tile(quarter, 2), (row * lines + i, j)), shape=(count * lines, n))
    rows = placed.at
    columns, mirror = block_of(rows, rows[:count]), block_of(rows[:count], rows[count:])
    return _Chunk(lean_rows(half), support, placed, from_here, count, columns, mirror)


# Pays on: theta of 400 edges, n = 100.
def split_by_cost(placed: PlacedRows, n: int) -> tuple[int, PlacedRows]:
    """Return the number of rows for products ``P A_l Q``, and the rows in an order with those first.

    In the order of falling numbers of entries, the Schur matrix costs least with some first rows by F1, which
    also gives their products with all later rows, and the rest by F3 (Fujisawa, Kojima and Nakata 1997,
    section 3). Later rows then read only places that are stored first.

    Parameters
    ----------
    placed : PlacedRows
    n : int
        The order of the block.
    """
    S = placed.S
    m, p = S.shape
    if _products_cost(m, p, S.nnz) <= _CALL_COST:
        return 0, placed
    entries = np.diff(S.indptr)
    row = np.repeat(np.arange(m), entries)
    order = np.argsort(-entries, kind="stable")
    number = np.empty(m, dtype=np.intp)
    number[order] = np.arange(m)
    last = np.zeros(p, dtype=np.intp)  # the last row, in this order, that reads a place
    np.maximum.at(last, S.indices, number[row])
    # Of the rows from the k-th on, for k = 0 .. m: their number, their places and their entries.
    rows = m - np.arange(m + 1)
    places = p - np.concatenate([[0], np.cumsum(np.bincount(last, minlength=m))])
    terms = S.nnz - np.concatenate([[0], np.cumsum(entries[order])])
    meets = np.zeros((m, n), dtype=bool)
    meets[row, placed.i[S.indices]] = meets[row, placed.j[S.indices]] = True
    support = meets.sum(axis=1)[order]
    cost = _CALL_COST / _products_at_once(n)
    cost = cost + _FLOP_COST * support * n**2
    cost += np.minimum(_FLOP_COST * support * n**2, _SPARSE_COST * 2 * entries[order] * n)
    cost += 2 * _GATHER_COST * places[:-1]
    cost += _times_rows(rows, places, terms)[:-1]
    before = np.concatenate([[0.0], np.cumsum(cost)])
    many = int(np.argmin(before + _products_cost(rows, places, terms)))
    if many == 0:
        return 0, placed
    first = np.concatenate([order[:many], np.sort(order[many:])])
    return many, placed.reordered(first, np.argsort(-np.minimum(last, many), kind="stable"))


def _products_at_once(n: int) -> int:
    """Return the number of products ``P A_l Q`` of order `n` in memory at a time."""
    entries = _CONGRUENCE_ENTRIES
    return max(1, entries // n**2, min(_LEAST_AT_ONCE, 2 * entries // n**2))


def _products_cost(rows: Any, places: Any, terms: Any) -> Any:
    """Return the cost of F3 in nanoseconds."""
    products = _PRODUCT_COST * places**2 / 2
    return products + (places / 2 + rows) * _times_rows(rows, places, terms)


def _times_rows(rows: Any, places: Any, terms: Any) -> Any:
    """Return the cost of applying rows to one matrix."""
    return np.minimum(_SPARSE_COST * terms, _FLOP_COST * rows * places)
