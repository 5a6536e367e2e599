"""Positive semidefinite matrices by their factor, ``X = F F'``, and those on a face, ``X = V M V'``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.linalg import blas

from bregopt.arrays import Array, finite_array

__all__ = ["Face", "LowRank", "Matrix", "frobenius_norm"]


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


class Face:
    """The psd matrices of order `n` with the given directions in their null space, a face of the cone.

    ``X = V M V'``, where ``V`` is an orthonormal basis of the complement of the directions. ``V`` is not
    formed: it is the last columns of an orthogonal ``Q = I - Y T Y'`` (Schreiber and Van Loan 1989). So
    mapping a matrix to the face and back costs ``n^2`` times the number of directions.

    Parameters
    ----------
    directions : array of shape (n, q)
        Linearly independent; none, ``q = 0``, for the whole cone.
    """

    def __init__(self, directions: Array) -> None:
        n, q = directions.shape
        self.n, self.codimension = n, q
        if q == 0:
            return
        (packed, tau), _ = scipy.linalg.qr(directions, mode="raw")
        self._Y = np.tril(packed[:, :q], -1) + np.eye(n, q)
        self._Y[:, tau == 0] = 0.0  # no reflection
        tau = np.where(tau == 0, 1.0, tau)
        self._T = np.linalg.inv(np.triu(self._Y.T @ self._Y, 1) + np.diag(1 / tau))

    @classmethod
    def whole(cls, n: int) -> Face:
        """Return the whole cone."""
        return cls(np.zeros((n, 0)))

    @property
    def order(self) -> int:
        """The order of ``M``."""
        return self.n - self.codimension

    @property
    def basis(self) -> Array:
        """``V``, shape ``(n, order)``."""
        return self.embed(np.eye(self.order))

    def project(self, W: Array) -> Array:
        """Return ``V' W``."""
        if self.codimension == 0:
            return W
        turned = W - self._Y @ (self._T.T @ (self._Y.T @ W))
        return turned[self.codimension :]

    def embed(self, W: Array) -> Array:
        """Return ``V W``."""
        if self.codimension == 0:
            return W
        padded = np.concatenate([np.zeros((self.codimension, *W.shape[1:])), W])
        return padded - self._Y @ (self._T @ (self._Y.T @ padded))

    def compress(self, S: Array) -> Array:
        """Return ``V' S V`` for a symmetric matrix."""
        q = self.codimension
        if q == 0:
            return S
        Y, T = self._Y, self._T
        W = S @ Y @ T
        W -= Y @ (T.T @ (Y.T @ W)) / 2
        return _less_both(np.array(S[q:, q:]), W[q:], Y[q:])

    def lift(self, M: Array) -> Array:
        """Return ``V M V'``."""
        q = self.codimension
        if q == 0:
            return M
        Y, T = self._Y, self._T
        S = np.zeros((self.n, self.n))
        S[q:, q:] = M
        W = S @ Y @ T.T
        W -= Y @ (T @ (Y.T @ W)) / 2
        return _less_both(S, W, Y)


def _less_both(S: Array, W: Array, Y: Array) -> Array:
    """Return ``S - W Y' - Y W'``, overwriting the symmetric `S`."""
    if len(S) == 0:
        return S
    both, other = np.hstack([W, Y]), np.hstack([Y, W])
    less: Array = blas.dgemm(-1.0, both, other, 1.0, S.T, trans_b=1, overwrite_c=1)
    return less.T
