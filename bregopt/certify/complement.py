"""A large matrix on the orthogonal complement of its heavy vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.constants import HEAVY_VECTOR, ROUND_OFF
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank

__all__ = ["Complement"]


class Complement:
    """The matrix ``P W P``, ``P = I - QQ'``, without the heavy vectors, which would widen the spectrum.

    Parameters
    ----------
    W : SparsePlusLowRank

    Attributes
    ----------
    light : SparsePlusLowRank
        The matrix without its heavy vectors.
    norm : float
        A bound on the norm of `light`, and of the matrix of its absolute entries.
    Q : array of shape (n, q)
        An orthonormal basis of the heavy vectors.
    """

    def __init__(self, W: SparsePlusLowRank) -> None:
        square = np.einsum("nq,nq->q", W.U, W.U)
        rows = np.asarray(abs(W.S).sum(axis=1)).ravel()
        heavy = W.w * square > HEAVY_VECTOR * float(rows.max())
        self.light = replace(W, U=W.U[:, ~heavy], w=W.w[~heavy])
        self.norm = float(rows.max()) + float(np.abs(self.light.w) @ square[~heavy])
        self.Q = np.linalg.qr(W.U[:, heavy])[0]
        if heavy.any():
            WQ = W @ self.Q
            inside = self.Q.T @ WQ
            error = ROUND_OFF * W.n * (self.norm + float(W.w[heavy] @ square[heavy]))
            self._least = float(np.linalg.eigvalsh((inside + inside.T) / 2)[0]) - error
            self._across = float(np.linalg.norm(WQ - self.Q @ inside)) + error

    def whole(self, below: float) -> float:
        """Return a lower bound on the eigenvalues of ``W`` from one for ``P W P``.

        ``W - t I`` is psd for ``t = below - d`` if its Schur complement is: if
        ``least - t >= |P W Q|^2 / d``, where ``least`` is the least eigenvalue of ``Q'WQ``.
        """
        if self.Q.shape[1] == 0 or not np.isfinite(below):
            return below
        apart = self._least - below
        return below - (np.hypot(apart, 2 * self._across) - apart) / 2

    def project(self, V: Array) -> Array:
        """Remove the components along the heavy vectors, in place."""
        if self.Q.shape[1]:
            V -= self.Q @ (self.Q.T @ V)
        return V

    def dense(self) -> Array:
        """Return ``P W P`` as an array, with round-off of a multiple of `norm`."""
        L, Q = self.light.dense(), self.Q
        if Q.shape[1]:
            LQ = L @ Q
            LQ -= Q @ (Q.T @ LQ) / 2
            L -= Q @ LQ.T
            L -= LQ @ Q.T
        return L
