"""General rows with few terms: ``sum_t value_t X[i_t, j_t]``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows.base import Coordinates, DenseRows, RowFamily, eigen_factor, symmetric_scatter
from bregopt.records import PickledWithoutCache, cached_property, dataclass, replace

__all__ = ["SparseRows"]

_MANY_TERMS = 2_000  # below, the calls of a sparse product cost more than the terms
_MANY_ENTRIES = 0.05  # terms, relative to the entries, above which a product of low rank is formed


@dataclass(frozen=True, eq=False)
class SparseRows(PickledWithoutCache, RowFamily):
    """Rows given by their terms, sorted by row; four arrays of one length."""

    few_terms: ClassVar[bool] = True

    m: int
    n: int
    terms: Coordinates

    @classmethod
    def of(cls, m: int, n: int, terms: Coordinates) -> SparseRows:
        """Return the rows, with the terms of each entry summed and zeros dropped."""
        i, j = np.minimum(terms.i, terms.j), np.maximum(terms.i, terms.j)
        # One 64-bit key for (row, i, j), which does not overflow while m n^2 is below 2^63.
        key = (terms.row * n + i) * n + j
        order = key.argsort(kind="stable")
        key, value = key[order], terms.value[order].astype(float, copy=False)
        first = np.ones(len(key), dtype=bool)
        np.not_equal(key[1:], key[:-1], out=first[1:])
        if not first.all():
            start = first.nonzero()[0]
            order, value = order[start], np.add.reduceat(value, start)
        kept = value != 0
        if not kept.all():
            order, value = order[kept], value[kept]
        return cls(m, n, Coordinates(terms.row[order], i[order], j[order], value))

    def apply(self, X: Matrix) -> Array:
        t = self.terms
        if isinstance(X, LowRank) and len(t.row) > _MANY_ENTRIES * self.n**2:
            X = X.dense()
        if isinstance(X, LowRank):
            entry = np.einsum("kr,kr->k", X.factor[t.i], X.factor[t.j])
        elif len(t.row) <= _MANY_TERMS:
            entry = X[t.i, t.j]
        else:
            activity: Array = self._table @ X.ravel(order="K")  # a symmetric matrix in either order
            return activity
        return np.bincount(t.row, weights=t.value * entry, minlength=self.m).astype(float)

    def adjoint(self, y: Array) -> Array:
        t, n = self.terms, self.n
        if not self._many_terms:
            return symmetric_scatter(n, t.i, t.j, t.value * y[t.row])
        half = (self._table_transposed @ y).reshape(n, n)
        return (half + half.T) / 2

    @property
    def _many_terms(self) -> bool:
        """Whether products with a table cost less than a look at each term."""
        return len(self.terms.row) > max(_MANY_TERMS, self.n**2)

    @cached_property
    def _table(self) -> Any:
        """The rows as a CSR matrix over all entries of ``X``."""
        t = self.terms
        ends = np.searchsorted(t.row, np.arange(self.m + 1))
        return sp.csr_array((t.value, t.i * self.n + t.j, ends), shape=(self.m, self.n**2))

    @cached_property
    def _absolute_table(self) -> Any:
        return abs(self._table)

    @cached_property
    def _table_transposed(self) -> Any:
        return self._table.T

    def restrict(self, V: Array) -> DenseRows:
        t, r = self.terms, V.shape[1]
        stack = np.empty((self.m, r, r))
        ends = np.searchsorted(t.row, np.arange(self.m + 1))
        for k in range(self.m):
            span = slice(ends[k], ends[k + 1])
            half = V[t.i[span]].T @ (t.value[span, None] * V[t.j[span]])
            stack[k] = (half + half.T) / 2
        return DenseRows(stack)

    def slice(self, rows: IntArray) -> SparseRows:
        t = self.terms
        ends = np.searchsorted(t.row, np.arange(self.m + 1))
        count = ends[rows + 1] - ends[rows]
        new = np.repeat(np.arange(len(rows)), count)
        old = np.arange(len(new)) + np.repeat(ends[rows] - np.cumsum(count) + count, count)
        return SparseRows(len(rows), self.n, Coordinates(new, t.i[old], t.j[old], t.value[old]))

    def scale(self, weight: Array) -> SparseRows:
        t = self.terms
        return replace(self, terms=replace(t, value=t.value * weight[t.row]))

    def norms(self) -> Array:
        t = self.terms
        square = np.where(t.i == t.j, t.value**2, t.value**2 / 2)
        return np.sqrt(np.bincount(t.row, weights=square, minlength=self.m))

    def magnitude(self, s: Array) -> Array:
        t = self.terms
        if self._many_terms:
            magnitude: Array = self._absolute_table @ np.outer(s, s).ravel()
            return magnitude
        part = np.abs(t.value) * s[t.i] * s[t.j]
        return np.bincount(t.row, weights=part, minlength=self.m).astype(float)

    def factor(self, k: int) -> tuple[Array, Array]:
        t = self.terms
        span = slice(*np.searchsorted(t.row, [k, k + 1]))
        support, local = np.unique(np.concatenate([t.i[span], t.j[span]]), return_inverse=True)
        i, j = np.split(local.ravel(), 2)
        small, d = eigen_factor(symmetric_scatter(len(support), i, j, t.value[span]))
        U = np.zeros((self.n, len(d)))
        U[support] = small
        return U, d

    def rank_one_terms(self) -> None:
        return None

    def coordinates(self) -> Coordinates:
        return self.terms

    def count(self) -> int:
        return len(self.terms.row)

    def nonzero(self) -> IntArray:
        return np.unique(self.terms.row)
