"""The rows of one block for Newton's method: applied to unformed products, with sparse adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, span
from bregopt.cache import cached_property
from bregopt.program import LinearMap
from bregopt.routes.ipm.schur import Gram
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["BlockSchur", "RowAction"]

_NONE = np.zeros(0, dtype=np.intp)


class RowAction:
    """``A`` and ``A*`` of one block.

    Parameters
    ----------
    A : LinearMap
    tuning : InteriorPointTuning
    block : int
    """

    def __init__(self, A: LinearMap, tuning: InteriorPointTuning, block: int = 0) -> None:
        self._A, self._block, self._n, self._tuning = A, block, A.orders[block], tuning
        self._parts = A.terms_of(block)
        count = sum(term.rows.count() for term in self._parts)
        self.by_term = count <= tuning.sparse_fraction * self._n**2
        if self.by_term:
            terms = [(term.at, term.rows.coordinates()) for term in self._parts]
            self._row = np.concatenate([_NONE, *(at[t.row] for at, t in terms)])
            self._i = np.concatenate([_NONE, *(t.i for _, t in terms)])
            self._j = np.concatenate([_NONE, *(t.j for _, t in terms)])
            self._value = np.concatenate([np.zeros(0), *(t.value for _, t in terms)])
            self._many_terms = len(self._row) > tuning.terms_per_order * self._n
        self._sparse = self.by_term and self._n >= tuning.sparse_order
        if self._sparse:
            self._adjoint_map = self._store_pattern()

    def _store_pattern(self) -> Any:
        """Return the linear map from ``y`` to the entries of ``A*(y)``, and store their pattern."""
        n = self._n
        position = np.concatenate([self._i * n + self._j, self._j * n + self._i])
        entries, entry = np.unique(position, return_inverse=True)
        i, j = np.divmod(entries, n)
        self._indices, self._indptr = j, np.searchsorted(i, np.arange(n + 1))
        half = np.concatenate([self._value, self._value]) / 2
        return sp.csr_array((half, (entry.ravel(), np.tile(self._row, 2))), (len(entries), self._A.m))

    def adjoint(self, y: Array) -> Any:
        """Return ``A*(y)``, sparse if the rows are sparse and the order is large."""
        if not self._sparse:
            return self._A.adjoint(y, self._block)
        return sp.csr_array((self._adjoint_map @ y, self._indices, self._indptr), (self._n, self._n))

    def apply(self, S: Array) -> Array:
        """Return ``A(S)`` for a symmetric matrix, shape ``(m,)``."""
        if len(self._A.orders) == 1:
            return self._A.apply((S,))
        activity = np.zeros(self._A.m)
        for term in self._parts:
            activity[term.place] += term.rows.apply(S)
        return activity

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return the Schur matrix ``<A_k, sym(X A_l K)>`` of all rows, or of some in ascending order.

        `root` is the Cholesky factor of ``X``, possibly on a face.
        """
        whole = root is not None and len(root) == self._n
        return self._gram.assemble(X, K, rows, root if whole else None)

    @cached_property
    def formula(self) -> BlockSchur:
        """The Schur matrix of the rows that meet the block."""
        return BlockSchur(self._A, self._tuning, self._block)

    @cached_property
    def _gram(self) -> Gram:
        return Gram(self._A, self._tuning, self._block)

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` over the terms of each row, with ``s^2 = diag(X)``."""
        largest, s = np.zeros(self._A.m), np.sqrt(np.maximum(X.diagonal(), 0.0))
        for term in self._parts:
            largest[term.place] = np.maximum(largest[term.place], term.rows.magnitude(s))
        return largest

    def apply_sum(self, weight: float, X: Array, K: Array, R: Array | None) -> Array:
        """Return ``A(weight K - X + sym(K R))``; `R` of None stands for zero."""
        if self.by_term:
            total = -self.apply(X)
            if weight:
                total += weight * self.apply(K)
            return total if R is None else total + self.apply_product(K.T, R.T)  # K is its own transpose
        if R is None:
            return self.apply(weight * K - X) if weight else -self.apply(X)
        half = K @ R
        half -= X
        half += weight * K
        return self.apply((half + half.T) / 2)

    def apply_product(self, L: Array, R: Array) -> Array:
        """Return ``A(sym(L R'))``, shape ``(m,)``."""
        if not self.by_term:
            full = L @ R.T
            return self.apply((full + full.T) / 2)
        i, j = self._term_indices
        if self._many_terms:
            full = L @ R.T
            entry = (full[i, j] + full[j, i]) / 2
        else:
            if not isinstance(i, slice):
                L, R = np.ascontiguousarray(L), np.ascontiguousarray(R)
            entry = np.einsum("kp,kp->k", L[i], R[j])
            if i is not j:
                entry = (entry + np.einsum("kp,kp->k", R[i], L[j])) / 2
        return np.bincount(self._row, weights=self._value * entry, minlength=self._A.m).astype(float)

    @cached_property
    def _term_indices(self) -> tuple[IntArray | slice, IntArray | slice]:
        """The row and column indices of the terms; one object for both if all are on the diagonal."""
        i = span(self._i)
        return (i, i) if np.array_equal(self._i, self._j) else (i, span(self._j))


class BlockSchur:
    """The Schur matrix of one block that meets few rows, as numbers at places.

    Parameters
    ----------
    A : LinearMap
    tuning : InteriorPointTuning
    block : int

    Attributes
    ----------
    target : int array
        Places ``k * m + l``.
    """

    def __init__(self, A: LinearMap, tuning: InteriorPointTuning, block: int) -> None:
        met = np.unique(np.concatenate([_NONE, *(term.at for term in A.terms_of(block))]))
        self._gram = Gram(A.slice(met).of_block(block), tuning)
        self.target: IntArray = np.add.outer(met * A.m, met).ravel()

    def values(self, X: Array, K: Array) -> Array:
        """Return numbers at these places: the Schur matrix is their sum plus its transpose."""
        if len(self.target) == 0:
            return np.zeros(0)
        halves: Array = self._gram.assemble(X, K).ravel() / 2
        return halves
