"""The symmetric matrices that are zero outside given entries, as vectors.

Conjugate gradients take few operations on these vectors beside the products ``M D M``, of which they need
the given entries only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["Face"]

_BLOCK = 2**16  # numbers that are gathered at once, so that they stay in the cache


class Face:
    """The space; a vector has its entries on and above the diagonal.

    Parameters
    ----------
    mask : array of bool, shape (n, n)
        Symmetric.
    tuning : LassoTuning
    """

    def __init__(self, mask: Array, tuning: LassoTuning) -> None:
        n = len(mask)
        rows, columns = np.divmod(np.flatnonzero(mask), n)
        upper = rows <= columns
        self._rows, self._columns = rows[upper], columns[upper]
        self._above, self._below = self._rows * n + self._columns, self._columns * n + self._rows
        self._twice = np.where(self._rows == self._columns, 1, 2).astype(np.float32)
        density = len(rows) / n**2
        self._sparse = n >= tuning.sparse_order and density < tuning.sparse_density
        self._few = self._sparse and density < tuning.gathered_density
        if self._sparse:  # the matrix is the sum of a half and its transpose
            starts = np.searchsorted(self._rows, np.arange(n + 1))
            half = np.zeros(len(self._rows), np.float32), self._columns, starts
            self._half, self._half_transposed = sp.csr_array(half, mask.shape), sp.csc_array(half, mask.shape)

    def part(self, M: Array) -> Any:
        """Return the vector of a symmetric matrix."""
        return M.ravel(order="K").take(self._above)

    def inner(self, a: Array, b: Array) -> float:
        """Return the inner product of two matrices."""
        return float(np.vdot(self._twice * a, b))

    def set(self, M: Array, d: Array) -> None:
        """Set the entries of a matrix to those of a vector."""
        flat = M.ravel(order="K")  # a view
        flat[self._above] = flat[self._below] = d

    def times(self, d: Array, M: Array) -> Any:
        """Return ``D M``."""
        if not self._sparse:
            D = np.zeros_like(M)
            self.set(D, d)
            return D @ M
        self._half.data = self._half_transposed.data = d * self._twice / 2
        product = self._half @ M
        product += self._half_transposed @ M
        return product

    def congruence(self, M: Array, d: Array) -> Any:
        """Return the vector of ``M D M`` for a symmetric `M`."""
        product = self.times(d, M)
        if not self._few:
            return self.part(M @ product)
        rows_of = np.ascontiguousarray(product.T)
        q, size = np.empty_like(d), max(_BLOCK // len(M), 1)
        for a in range(0, len(d), size):
            rows, columns = self._rows[a : a + size], self._columns[a : a + size]
            np.einsum("kn,kn->k", M.take(rows, axis=0), rows_of.take(columns, axis=0), out=q[a : a + size])
        return q
