"""The rows of one block for Newton's method: applied to unformed products, with sparse adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, span
from bregopt.program import LinearMap
from bregopt.records import cached_property
from bregopt.routes.ipm.schur import Gram
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["BlockSchur", "RowAction"]

# Terms per order above which a full matrix product costs less than one inner product a term.
_TERMS_PER_ORDER = 20

_NONE = np.zeros(0, dtype=np.intp)


class RowAction:
    """``A`` and ``A*`` of one block.

    Parameters
    ----------
    A : LinearMap
    tuning : InteriorPointTuning
    block : int

    Attributes
    ----------
    by_term : bool
        Whether the rows have so few terms that they are evaluated term by term.
    by_entry : bool
        Whether they have so few that products are not formed for them.
    sparse : bool
        Whether ``A*(y)`` is a sparse matrix.
    """

    def __init__(self, A: LinearMap, tuning: InteriorPointTuning, block: int = 0) -> None:
        self._A, self._block, self._n, self._tuning = A, block, A.orders[block], tuning
        self._parts = A.terms_of(block)
        count = sum(term.rows.count() for term in self._parts)
        self.by_term = count <= tuning.sparse_fraction * self._n**2
        self.by_entry = self.by_term and count <= _TERMS_PER_ORDER * self._n
        self.sparse = self.by_term and self._n >= tuning.sparse_order

    @cached_property
    def _terms(self) -> tuple[IntArray, IntArray, IntArray, Array]:
        """Row, indices ``i`` and ``j``, and value of each term."""
        terms = [(term.at, term.rows.coordinates()) for term in self._parts]
        row = np.concatenate([_NONE, *(at[t.row] for at, t in terms)])
        i = np.concatenate([_NONE, *(t.i for _, t in terms)])
        j = np.concatenate([_NONE, *(t.j for _, t in terms)])
        return row, i, j, np.concatenate([np.zeros(0), *(t.value for _, t in terms)])

    @cached_property
    def _pattern(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """The entries of ``A*(y)``, the entry of each term and of its mirror image, and CSR's indices."""
        _, i, j, _ = self._terms
        entries, entry = np.unique(np.concatenate([i * self._n + j, j * self._n + i]), return_inverse=True)
        line, column = np.divmod(entries, self._n)
        return entries, entry.ravel(), column, np.searchsorted(line, np.arange(self._n + 1))

    @cached_property
    def _adjoint_map(self) -> Any:
        """The linear map from ``y`` to the entries of ``A*(y)``."""
        (row, _, _, value), (entries, entry, _, _) = self._terms, self._pattern
        half = np.concatenate([value, value]) / 2
        return sp.csr_array((half, (entry, np.tile(row, 2))), (len(entries), self._A.m))

    def adjoint(self, y: Array) -> Any:
        """Return ``A*(y)``, sparse if the rows are sparse and the order is large."""
        if not self.sparse:
            return self._A.adjoint(y, self._block)
        _, _, column, start = self._pattern
        return sp.csr_array((self._adjoint_map @ y, column, start), (self._n, self._n))

    def in_pattern(self, S: Array) -> Any:
        """Return an ``A*(y)``, given with its zeros, as a sparse matrix."""
        entries, _, column, start = self._pattern
        return sp.csr_array((S.ravel()[entries], column, start), (self._n, self._n))

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

    @property
    def hadamard(self) -> bool:
        """Whether the Schur matrix is an entrywise product of matrices of its order."""
        return self._gram.hadamard

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

    def apply_product(self, L: Array, R: Array) -> Array:
        """Return ``A(sym(L R'))``, shape ``(m,)``."""
        if not self.by_term:
            full = L @ R.T
            return self.apply((full + full.T) / 2)
        i, j = self._term_indices
        row, _, _, value = self._terms
        if not self.by_entry:
            full = L @ R.T
            entry = (full[i, j] + full[j, i]) / 2
        else:
            if not isinstance(i, slice):
                L, R = np.ascontiguousarray(L), np.ascontiguousarray(R)
            entry = np.einsum("kp,kp->k", L[i], R[j])
            if i is not j:
                entry = (entry + np.einsum("kp,kp->k", R[i], L[j])) / 2
        return np.bincount(row, weights=value * entry, minlength=self._A.m).astype(float)

    @cached_property
    def _term_indices(self) -> tuple[IntArray | slice, IntArray | slice]:
        """The row and column indices of the terms; one object for both if all are on the diagonal."""
        _, row, column, _ = self._terms
        i = span(row)
        return (i, i) if np.array_equal(row, column) else (i, span(column))


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
