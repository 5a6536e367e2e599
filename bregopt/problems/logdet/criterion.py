"""Criteria of designs as functions of the information matrix: D and A.

Both are ``-log det M`` or ``tr(K inv(M))``, with gradients ``-<M_i, S>`` in the weights. Then ``<M, S>`` over
its largest value for any design bounds the efficiency from below (Kiefer 1974).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array
from bregopt.linalg import root_of
from bregopt.problems.logdet.candidates import Candidates

__all__ = ["LocalModel", "congruent", "local_model"]


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
