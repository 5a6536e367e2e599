"""The Schur matrix of rows with few entries, by products of entries of ``P`` and ``Q`` (F3).

With ``S`` the rows over distinct places and ``G`` the matrix of all pairs of places,

    G[(i,j), (p,q)] = (P_ip Q_jq + P_jp Q_iq + P_iq Q_jp + P_jq Q_ip) / 4,

the Schur matrix is ``S G S'``. As ``G`` is symmetric, its columns are formed in strips from the diagonal
down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, span
from bregopt.clock import checkpoint
from bregopt.linalg import symmetrize
from bregopt.program.rows import Coordinates
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["PlaceProducts", "PlacedRows", "block_of", "lean_rows"]

# Fraction of nonzeros above which rows are multiplied as a dense matrix, near the ratio of `flop_cost` and
# `sparse_cost`.
_DENSE_FRACTION = 0.15


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
    def of(cls, families: list[tuple[IntArray, Coordinates]], m: int, n: int) -> PlacedRows | None:
        """Return the rows of families of order `n` at indices of a stack of `m`; None without entries."""
        if not sum(len(t.row) for _, t in families):
            return None
        row = np.concatenate([at[t.row] for at, t in families])
        i, j, value = (np.concatenate([getattr(t, f) for _, t in families]) for f in ("i", "j", "value"))
        places, column = _distinct(np.minimum(i, j) * n + np.maximum(i, j), n * n)
        at, own = _distinct(row, m)
        S = sp.csr_array((value, (own, column)), shape=(len(at), len(places)))
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


def lean_rows(S: Any, tuning: InteriorPointTuning) -> Any:
    """Return a sparse matrix in its fastest form for products: dense if it is small or has many nonzeros."""
    size = S.shape[0] * S.shape[1]
    dense = size <= tuning.dense_rows_size or S.nnz > _DENSE_FRACTION * size
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
    tuning : InteriorPointTuning
    """

    def __init__(self, placed: PlacedRows, m: int, tuning: InteriorPointTuning) -> None:
        self._tuning = tuning
        self._weights = None
        if placed.one_place_each:
            placed = placed.reordered(np.arange(len(placed.at)), placed.S.indices)
            self._weights = placed.S.data
        elif 2 * len(placed.at) >= m:
            placed = placed.of_stack(m)  # empty rows cost less than indices in the Schur matrix
        self._i, self._j, self._at, self.at = placed.i, placed.j, placed.at, span(placed.at)
        self._S = lean_rows(placed.S, tuning)
        self._diagonal = bool((placed.i == placed.j).all())
        self._strips = _strips(self._S, tuning)

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
        width = max(1, self._tuning.strip_products // len(i))
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
        height = max(1, self._tuning.tile_products // (b - a))
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


def _strips(S: Any, tuning: InteriorPointTuning) -> list[_Strip]:
    """Return strips of about ``tuning.strip_products`` products, for rows as a dense or sparse matrix."""
    m, places = S.shape
    dense = isinstance(S, np.ndarray)
    columns: Any = S if dense else sp.csc_array(S)
    strips, a = [], 0
    while a < places:
        b = min(places, a + max(tuning.least_strip, tuning.strip_products // max(m, places - a)))
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
