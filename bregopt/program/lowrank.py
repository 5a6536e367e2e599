"""A positive semidefinite matrix stored by its factor: ``X = F F'``, ``n x n`` only on request."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array

__all__ = ["LowRank", "Matrix", "frobenius_norm"]


class LowRank:
    """The positive semidefinite matrix ``F F'``, stored by its factor.

    Parameters
    ----------
    factor : array_like of shape (n, r)
        The factor ``F``; it is copied. Its columns need not be independent.

    Raises
    ------
    TypeError, ValueError
        If the factor is not a finite real matrix with at least one row and one column.
    """

    __slots__ = ("factor",)
    factor: Array

    def __init__(self, factor: ArrayLike) -> None:
        self.factor = finite_array(factor, "factor", ndim=2)
        if self.factor.size == 0:
            raise ValueError(
                f"factor has shape {self.factor.shape}; expected at least one row and one column"
            )
        self.factor.setflags(write=False)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape ``(n, n)`` of the matrix."""
        return self.factor.shape[0], self.factor.shape[0]

    @property
    def rank(self) -> int:
        """The number of columns of the factor: the rank when they are independent."""
        return self.factor.shape[1]

    def dense(self) -> Array:
        """Return the ``n x n`` array."""
        return self.factor @ self.factor.T

    def diag(self) -> Array:
        """Return the diagonal, shape ``(n,)``."""
        return np.einsum("ij,ij->i", self.factor, self.factor)

    def trace(self) -> float:
        """Return the trace."""
        return float(np.vdot(self.factor, self.factor))

    def diagonal(self) -> Array:
        """Return the diagonal, under the name of NumPy's method."""
        return self.diag()

    def eigenvalues(self) -> Array:
        """Return the ``min(n, r)`` largest eigenvalues, ascending; the others are zero."""
        eigenvalues: Array = np.square(np.linalg.svd(self.factor, compute_uv=False)[::-1])
        return eigenvalues

    def __getitem__(self, key: Any) -> Any:
        """Return ``dense()[key]``, computing only those entries."""
        n = self.factor.shape[0]
        order = np.arange(n)
        i = np.broadcast_to(order[:, None], (n, n))[key]
        j = np.broadcast_to(order, (n, n))[key]
        return np.einsum("...r,...r->...", self.factor[i], self.factor[j])[()]

    def __matmul__(self, other: Any) -> Array:
        """Return ``X @ other``, by way of the factor."""
        product: Array = self.factor @ (self.factor.T @ other)
        return product

    def __rmatmul__(self, other: Any) -> Array:
        """Return ``other @ X``, by way of the factor."""
        product: Array = (other @ self.factor) @ self.factor.T
        return product

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        dense = self.dense()
        return dense if dtype is None else dense.astype(dtype)

    def __repr__(self) -> str:
        return f"LowRank(n={self.factor.shape[0]}, rank={self.rank})"

    def __getstate__(self) -> Array:
        return self.factor

    def __setstate__(self, factor: Array) -> None:
        self.factor = factor
        self.factor.setflags(write=False)  # pickle does not keep it


Matrix = Array | LowRank


def frobenius_norm(X: Matrix) -> float:
    """Return the Frobenius norm."""
    return float(np.linalg.norm(X.factor.T @ X.factor if isinstance(X, LowRank) else X))
