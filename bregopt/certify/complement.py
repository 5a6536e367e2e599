"""A large matrix on the orthogonal complement of its heavy vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.constants import HEAVY_VECTOR, ROUND_OFF
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank

__all__ = ["Complement"]


class Complement:
    """The Schur complement of ``W - s I`` on the heavy vectors, which would widen the spectrum.

    With an orthonormal basis ``Q`` of the heavy vectors, ``P = I - QQ'`` and ``A = Q'WQ``, it is
    ``P (W - WQ inv(A - s I) Q'W) P``. The shift ``s`` is zero where ``A`` is positive definite.

    Parameters
    ----------
    W : SparsePlusLowRank

    Attributes
    ----------
    light : SparsePlusLowRank
        The Schur complement before it is projected: `W` without its heavy vectors, less the coupling.
    norm : float
        A bound on the norm of `light`, and of the matrix of its absolute entries.
    Q : array of shape (n, q)
    """

    def __init__(self, W: SparsePlusLowRank) -> None:
        square = np.einsum("nq,nq->q", W.U, W.U)
        rows = np.asarray(abs(W.S).sum(axis=1)).ravel()
        heavy = W.w * square > HEAVY_VECTOR * float(rows.max())
        self.light = replace(W, U=W.U[:, ~heavy], w=W.w[~heavy])
        self.norm = float(rows.max()) + float(np.abs(self.light.w) @ square[~heavy])
        self.Q = np.linalg.qr(W.U[:, heavy])[0]
        self._shift, self._error = np.inf, 0.0
        if heavy.any():
            error = ROUND_OFF * W.n * (self.norm + float(W.w[heavy] @ square[heavy]))
            self._eliminate(W, max(float(rows.max()), error), error)

    def _eliminate(self, W: SparsePlusLowRank, least: float, error: float) -> None:
        """Subtract the coupling, for a shift at which the eigenvalues of ``A - s I`` are at least `least`.

        `error` bounds the round-off of products with the heavy vectors.
        """
        WQ = W @ self.Q
        A = self.Q.T @ WQ
        across = WQ - self.Q @ A
        values, V = np.linalg.eigh((A + A.T) / 2)
        values -= error
        self._shift = min(0.0, float(values[0]) - least)
        values -= self._shift
        coupling = across @ (V / np.sqrt(values))
        size = float(np.einsum("nq,nq->", coupling, coupling))
        # |C + E|^2 <= |C|^2 + 2 |C| |E| + |E|^2 for the error E of the coupling.
        off = error / np.sqrt(values[0])
        self._error = float((2 * np.sqrt(size) + off) * off)
        self.norm += size
        light = self.light
        self.light = replace(
            light, U=np.hstack([light.U, coupling]), w=np.concatenate([light.w, -np.ones(coupling.shape[1])])
        )

    def whole(self, below: float) -> float:
        """Return a lower bound on the eigenvalues of ``W`` from one for the Schur complement.

        For ``t <= s``, ``W - t I`` is psd if the Schur complement less ``t I`` is: its coupling decreases
        with ``t``.
        """
        return min(below - self._error, self._shift)

    def project(self, V: Array) -> Array:
        """Remove the components along the heavy vectors, in place."""
        if self.Q.shape[1]:
            V -= self.Q @ (self.Q.T @ V)
        return V

    def dense(self) -> Array:
        """Return the projected Schur complement as an array, with round-off of a multiple of `norm`."""
        L, Q = self.light.dense(), self.Q
        if Q.shape[1]:
            LQ = L @ Q
            LQ -= Q @ (Q.T @ LQ) / 2
            L -= Q @ LQ.T
            L -= LQ @ Q.T
        return L
