"""The terms of an information matrix: one positive semidefinite matrix for each candidate of a design."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array, IntArray

__all__ = ["Candidates"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Matrices ``M_i`` of order ``n``.

    Parameters
    ----------
    X : array of shape (m, n) or (m, n, n)
        Rows ``x_i`` with ``M_i = x_i x_i'``, or the symmetric matrices themselves.
    """

    X: Array

    def __len__(self) -> int:
        return len(self.X)

    @property
    def n(self) -> int:
        """The order of the matrices."""
        return self.X.shape[1]

    @property
    def are_rows(self) -> bool:
        """Whether each matrix has rank one and is given by its row."""
        return self.X.ndim == 2

    def __getitem__(self, index: IntArray) -> Candidates:
        return Candidates(self.X[index])

    def information(self, u: Array) -> Array:
        """Return ``sum_i u_i M_i``."""
        M: Array = (self.X.T * u) @ self.X if self.are_rows else np.tensordot(u, self.X, 1)
        return M

    def whitened(self, L: Array) -> Candidates:
        """Return the matrices ``inv(L) M_i inv(L)'`` for a lower triangular ``L``."""
        if self.are_rows:
            return Candidates(lapack.dtrtrs(L, self.X.T, lower=1)[0].T)
        m, n, _ = self.X.shape
        half = lapack.dtrtrs(L, self.X.transpose(1, 0, 2).reshape(n, m * n), lower=1)[0].reshape(n, m, n)
        return Candidates(
            lapack.dtrtrs(L, half.transpose(2, 1, 0).reshape(n, m * n), lower=1)[0]
            .reshape(n, m, n)
            .transpose(1, 0, 2)
        )

    def rotated(self, Q: Array) -> Candidates:
        """Return the matrices ``Q'M_i Q``."""
        return Candidates(self.X @ Q if self.are_rows else Q.T @ self.X @ Q)

    def traces(self) -> Array:
        """Return the trace of each matrix."""
        return np.einsum("ij,ij->i", self.X, self.X) if self.are_rows else np.einsum("ijj->i", self.X)

    def inner(self, S: Array) -> Array:
        """Return ``<M_i, S>``."""
        if self.are_rows:
            return np.einsum("ij,ij->i", self.X @ S, self.X)
        return np.asarray(self.X.reshape(len(self), -1) @ S.ravel())

    def svec(self) -> Array:
        """Return the upper triangles, times the root of two off the diagonal, ``(m, n (n + 1) / 2)``."""
        i, j = np.triu_indices(self.n)
        upper = self.X[:, i] * self.X[:, j] if self.are_rows else self.X[:, i, j]
        upper *= np.where(i == j, 1.0, np.sqrt(2.0))
        return upper
