"""Lanczos's method, which estimates eigenvalues of a large symmetric matrix from inside its spectrum."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from bregopt.arrays import Array
from bregopt.certify.constants import LANCZOS_STEPS, ROUND_OFF, TOP_STEPS
from bregopt.clock import checkpoint
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank

__all__ = ["highest", "lowest"]


def lowest(W: SparsePlusLowRank, count: int, steps: int = LANCZOS_STEPS) -> tuple[Array, Array]:
    """Return the lowest Ritz values and vectors of Lanczos's method: estimates from above.

    Parameters
    ----------
    W : SparsePlusLowRank
    count, steps : int

    Returns
    -------
    values : array of shape (count,), ascending
    vectors : array of shape (n, count)
        Of unit length.
    """
    Q, alpha, beta = _krylov(W, steps)
    values, S = scipy.linalg.eigh_tridiagonal(alpha, beta)
    return values[:count], Q @ S[:, :count]


def highest(W: SparsePlusLowRank) -> float:
    """Return the highest Ritz value: an estimate of the largest eigenvalue from below."""
    _, alpha, beta = _krylov(W, TOP_STEPS)
    return float(scipy.linalg.eigvalsh_tridiagonal(alpha, beta)[-1])


def _krylov(W: SparsePlusLowRank, steps: int) -> tuple[Array, Array, Array]:
    """Return an orthonormal basis of a Krylov space, and the diagonals of the tridiagonal matrix there."""
    n = W.n
    steps = min(steps, n)
    Q, alpha, beta = np.zeros((n, steps), order="F"), np.zeros(steps), np.zeros(steps)
    q = np.random.default_rng(0).normal(size=n)
    Q[:, 0] = q / np.linalg.norm(q)
    reached = steps
    for k in range(steps):
        checkpoint()
        v = W @ Q[:, k]
        alpha[k] = v @ Q[:, k]
        for _ in range(2):  # full reorthogonalization, twice
            v -= Q[:, : k + 1] @ (Q[:, : k + 1].T @ v)
        beta[k] = np.linalg.norm(v)
        if k + 1 == steps or beta[k] <= ROUND_OFF * n * np.abs(alpha[: k + 1]).max():
            reached = k + 1
            break
        Q[:, k + 1] = v / beta[k]
    return Q[:, :reached], alpha[:reached], beta[: reached - 1]
