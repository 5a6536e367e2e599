"""Rows as a sparse matrix over the distinct places of ``X`` that they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray, span
from bregopt.cache import cached_property
from bregopt.program.rows import Coordinates
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["PlacedRows", "block_of", "lean_rows"]


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
    dense = size <= tuning.dense_rows_size or S.nnz > tuning.dense_rows_fraction * size
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
