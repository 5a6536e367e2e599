"""The terms of an information matrix, and the criteria of designs as functions of it: D and A.

There is one positive semidefinite matrix for each candidate of a design. Both criteria are ``-log det M`` or
``tr(K inv(M))``, with gradients ``-<M_i, S>`` in the weights. Then ``<M, S>`` over its largest value for any
design bounds the efficiency from below (Kiefer 1974).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array, IntArray
from bregopt.linalg import root_of

__all__ = ["Candidates", "LocalModel", "congruent", "local_model"]


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


@dataclass(frozen=True, eq=False)
class LocalModel:
    """A criterion to second order in the weights.

    Parameters
    ----------
    own : float
        ``<M, S>``: ``n`` for D, ``tr(K inv(M))`` for A.
    given : float
        ``<M0, S>`` of the part of ``M`` that no weight changes.
    g : array of shape (m,)
        ``<M_i, S>``, the sensitivities: minus the gradient.
    white : Candidates
        ``inv(L) M_i inv(L)'`` for ``M = L L'``.
    R : array of shape (n, n) or None
        ``inv(L) K inv(L)'`` for A.
    """

    own: float
    given: float
    g: Array
    white: Candidates
    R: Array | None

    def hessian(self) -> Array:
        """Return the Hessian, shape ``(m, m)``, of candidates that are rows."""
        W = self.white.X
        G = W @ W.T
        return G * G if self.R is None else 2 * G * (W @ self.R @ W.T)

    def hessian_factor(self) -> Array:
        """Return ``F`` with the Hessian ``F F'``, shape ``(m, n (n + 1) / 2)``."""
        if self.R is None:
            return self.white.svec()
        eigenvalues, Q = np.linalg.eigh(self.R)
        i, j = np.triu_indices(len(eigenvalues))
        return self.white.rotated(Q).svec() * np.sqrt(np.maximum(eigenvalues[i] + eigenvalues[j], 0.0))


def local_model(candidates: Candidates, M: Array, K: Array | None, M0: Array | None) -> LocalModel | None:
    """Return the model at an information matrix, None where that is not positive definite.

    Parameters
    ----------
    candidates : Candidates
    M : array of shape (n, n)
    K : array of shape (n, n) or None
        Positive definite for ``tr(K inv(M))``; None for ``-log det M``.
    M0 : array of shape (n, n) or None
        The part of ``M`` that no weight changes.
    """
    L = root_of(M)
    if L is None:
        return None
    white = candidates.whitened(L)
    fixed = np.zeros(M.shape) if M0 is None else congruent(L, M0)
    if K is None:
        return LocalModel(float(len(M)), float(fixed.trace()), white.traces(), white, None)
    R = congruent(L, K)
    return LocalModel(float(R.trace()), float(np.vdot(fixed, R)), white.inner(R), white, R)


def congruent(L: Array, S: Array) -> Array:
    """Return ``inv(L) S inv(L)'``, exactly symmetric."""
    half = lapack.dtrtrs(L, S, lower=1)[0]
    whole: Array = lapack.dtrtrs(L, half.T, lower=1)[0]
    return (whole + whole.T) / 2
