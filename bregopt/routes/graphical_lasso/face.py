"""The symmetric matrices that are zero outside given entries.

The model takes few operations on these matrices beside the products ``M D M``, of which it needs the given
entries only. Where these are few, a matrix is the vector of its entries on and above the diagonal, and the
products are sparse. Where they are many, or the order is small, it is a matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, Mask
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["DenseFace", "Face", "SparseFace", "face_of"]

_BLOCK = 2**16  # numbers that are gathered at once, so that they stay in the cache


def face_of(mask: Mask, kind: Any, tuning: LassoTuning) -> Face:
    """Return the space of matrices that are zero outside a symmetric mask, with numbers of type `kind`."""
    n = len(mask)
    if n >= tuning.sparse_order:
        density = np.count_nonzero(mask) / n**2
        if density < tuning.sparse_density:
            return SparseFace(mask, kind, bool(density < tuning.gathered_density))
    return DenseFace(mask, kind)


class DenseFace:
    """The space; an element of it is a matrix.

    Parameters
    ----------
    mask : array of bool, shape (n, n)
        Symmetric.
    kind : dtype
    """

    def __init__(self, mask: Mask, kind: Any) -> None:
        self._mask = mask.astype(kind)

    def part(self, M: Array) -> Any:
        """Return the element that has the given entries of a symmetric matrix."""
        return M * self._mask

    def inner(self, a: Array, b: Array) -> float:
        """Return the inner product of two matrices."""
        return float(np.vdot(a, b))

    def matrix(self, d: Array) -> Any:
        """Return an element as a matrix, symmetric in spite of round-off."""
        half = np.triu(d, 1)
        M: Any = half + half.T
        np.fill_diagonal(M, d.diagonal())
        return M

    def congruence(self, M: Array, d: Array) -> Any:
        """Return the element that has the given entries of ``M D M``, for a symmetric `M`."""
        product = M @ (d @ M)
        product *= self._mask
        return product


class SparseFace:
    """The space; an element of it is the vector of the entries on and above the diagonal.

    Parameters
    ----------
    mask : array of bool, shape (n, n)
        Symmetric.
    kind : dtype
    gathered : bool
        Whether the entries of ``M D M`` are computed one by one.
    """

    def __init__(self, mask: Mask, kind: Any, gathered: bool) -> None:
        n = len(mask)
        entries = np.flatnonzero(mask)
        rows, columns = np.divmod(entries, n)
        upper = rows <= columns
        self._rows, self._columns = rows[upper], columns[upper]
        self._above, self._below = entries[upper], self._columns * n + self._rows
        self._twice = np.where(self._rows == self._columns, kind(1), kind(2))
        self._gathered = gathered
        number = np.empty(n * n, np.intp)
        number[self._above] = number[self._below] = np.arange(len(self._rows))
        self._number = number.take(entries)  # of each entry of the matrix, among those of the vector
        starts = np.searchsorted(rows, np.arange(n + 1))
        self._matrix = sp.csr_array((np.zeros(len(rows), kind), columns, starts), mask.shape)

    def part(self, M: Array) -> Any:
        """Return the element that has the given entries of a symmetric matrix."""
        return M.ravel(order="K").take(self._above)

    def inner(self, a: Array, b: Array) -> float:
        """Return the inner product of two matrices."""
        return float(np.vdot(self._twice * a, b))

    def matrix(self, d: Array) -> Any:
        """Return an element as a matrix."""
        M = np.zeros(self._matrix.shape, d.dtype)
        flat = M.ravel()  # a view
        flat[self._above] = flat[self._below] = d
        return M

    def congruence(self, M: Array, d: Array) -> Any:
        """Return the element that has the given entries of ``M D M``, for a symmetric `M`."""
        self._matrix.data = d.take(self._number)
        product = self._matrix @ M
        if not self._gathered:
            return self.part(M @ product)
        rows_of = np.ascontiguousarray(product.T)
        q, size = np.empty(len(d), M.dtype), max(_BLOCK // len(M), 1)
        for a in range(0, len(d), size):
            rows, columns = self._rows[a : a + size], self._columns[a : a + size]
            np.einsum("kn,kn->k", M.take(rows, axis=0), rows_of.take(columns, axis=0), out=q[a : a + size])
        return q


Face = DenseFace | SparseFace
