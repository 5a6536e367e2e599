"""The rows of a stack of blocks of equal order, as one linear map on arrays of shape ``(B, n, n)``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.routes.ipm.stack_schur import ProductSchur, StackSchur, TermSchur
from bregopt.routes.ipm.stack_terms import StackTerms
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["StackRows"]


class StackRows:
    """``A`` and ``A*`` of a stack, and its part of the Schur matrix.

    Parameters
    ----------
    terms : StackTerms
    tuning : InteriorPointTuning
    """

    def __init__(self, terms: StackTerms, tuning: InteriorPointTuning) -> None:
        self._terms, self._tuning = terms, tuning
        self._shape = terms.count, terms.n, terms.n

    @staticmethod
    def fits(terms: StackTerms, tuning: InteriorPointTuning) -> bool:
        """Whether the arrays of the cheaper formula of the Schur matrix fit the memory for stacks."""
        return _formula(terms, tuning).numbers(terms) <= tuning.stack_numbers

    @cached_property
    def _map(self) -> Any:
        """The rows as vectors in the entries of the stack, shape ``(m, B n^2)``."""
        t, n = self._terms, self._terms.n
        place = np.concatenate([(t.block * n + t.i) * n + t.j, (t.block * n + t.j) * n + t.i])
        half = np.concatenate([t.value, t.value]) / 2
        rows = sp.csr_array((half, (np.tile(t.row, 2), place)), (t.m, t.count * n**2))
        return rows.toarray() if rows.nnz > self._tuning.dense_stack * t.m * t.count * n**2 else rows

    @cached_property
    def _transposed(self) -> Any:
        return self._map.T if isinstance(self._map, np.ndarray) else sp.csr_array(self._map.T)

    @cached_property
    def formula(self) -> StackSchur:
        """The cheaper formula of the Schur matrix."""
        return _formula(self._terms, self._tuning)(self._terms, self._tuning)

    def adjoint(self, y: Array) -> Array:
        """Return ``A*(y)``, shape ``(B, n, n)``."""
        S: Array = (self._transposed @ y).reshape(self._shape)
        return S

    def apply(self, S: Array) -> Array:
        """Return ``A(sym(S))`` for any square matrices, shape ``(m,)``."""
        activity: Array = self._map @ S.ravel()
        return activity

    def apply_sum(self, weight: float, X: Array, K: Array, R: Array | None) -> Array:
        """Return ``A(weight K - X + sym(K R))``; `R` of None stands for zero."""
        total = weight * K - X if weight else -X
        return self.apply(total if R is None else total + K @ R)

    def apply_product(self, L: Array, R: Array) -> Array:
        """Return ``A(sym(L R'))``."""
        return self.apply(L @ np.swapaxes(R, 1, 2))

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return ``<A_k, sym(X A_l K)>``, summed over the blocks, for all rows or for some."""
        H = self.formula.assemble(X, K)
        return H if rows is None or len(rows) == len(H) else H[np.ix_(rows, rows)]

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        t = self._terms
        s = np.sqrt(np.maximum(np.einsum("bii->bi", X), 0.0))
        largest = np.zeros(t.m)
        if len(t.first):
            sums = np.add.reduceat(np.abs(t.value) * s[t.block, t.i] * s[t.block, t.j], t.first)
            np.maximum.at(largest, t.row[t.first], sums)
        return largest


def _formula(terms: StackTerms, tuning: InteriorPointTuning) -> type[TermSchur] | type[ProductSchur]:
    """Return the cheaper formula of the Schur matrix."""
    by_terms = TermSchur.cost(terms, tuning) <= ProductSchur.cost(terms, tuning)
    return TermSchur if by_terms else ProductSchur
