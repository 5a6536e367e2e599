"""The face of a block: the psd matrices that vanish on given directions.

``X = V M V'``, where ``V`` is an orthonormal basis of the complement of the directions. ``V`` is not formed:
it is the last columns of an orthogonal ``Q = I - Y T Y'`` (Schreiber and Van Loan 1989). So mapping a matrix
to the face and back costs ``n^2`` times the number of directions.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from bregopt.arrays import Array

__all__ = ["Face"]


class Face:
    """The psd matrices of order `n` with the given directions in their null space.

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
