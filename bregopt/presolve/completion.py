"""Positive semidefinite completion of a matrix that is given on the cliques of a clique tree.

A partial matrix with a chordal pattern and psd clique submatrices has a psd completion (Grone, Johnson, Sa,
Wolkowicz 1984), and one whose rank is that of the clique submatrix of largest rank (Dancis 1992).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_triangular

from bregopt.arrays import Array
from bregopt.linalg import root_of
from bregopt.presolve.cliques import CliqueTree
from bregopt.presolve.constants import COMPLETION_NOISE

__all__ = ["completion"]


def completion(tree: CliqueTree, X: Sequence[Array]) -> Array:
    """Return a factor ``R`` of a psd matrix ``R R'`` with given clique submatrices.

    From the root to the leaves: let a clique have the separator ``S`` and the other vertices ``N``, and let
    ``L`` be the Cholesky factor of its submatrix, ``S`` first. Then ``R_S = L_SS U`` with orthonormal rows of
    ``U``, and ``R_N = L_NS U + L_NN Q'``, where the columns of ``Q`` are orthonormal and ``U Q = 0``.

    Parameters
    ----------
    tree : CliqueTree
    X : sequence of arrays
        One psd matrix for each clique, on its vertices. Where two of them differ by round-off, the parent's
        entries count.

    Returns
    -------
    array of shape (n, tree.width)
        Rows of zeros for vertices in no clique.
    """
    R = np.zeros((tree.n, tree.width))
    if not any(X_c.any() for X_c in X):
        return R
    for L, S, N in zip(_roots(_agreeing(tree, X)), tree.separators, tree.residuals, strict=True):
        s = len(S)
        U = solve_triangular(L[:s, :s], R[S], lower=True, check_finite=False) if s else R[S]
        # QR makes the rows of U orthonormal up to signs, and continues them, as further columns are zero.
        Q, signs = np.linalg.qr(np.hstack([U.T, np.zeros((tree.width, len(N)))]))
        Q[:, :s] *= np.where(signs.diagonal()[:s] < 0, -1.0, 1.0)
        R[N] = L[s:] @ Q.T
    return R


def _agreeing(tree: CliqueTree, X: Sequence[Array]) -> list[Array]:
    """Return the matrices with the parents' entries where these overlap, separators first."""
    agreeing: list[Array] = []
    order = [np.concatenate(pair) for pair in zip(tree.separators, tree.residuals, strict=True)]
    for c, (vertices, S) in enumerate(zip(tree.vertices, tree.separators, strict=True)):
        place = np.searchsorted(vertices, order[c])
        own = X[c][np.ix_(place, place)]
        if len(S):
            above = order[tree.parent[c]]
            sort = np.argsort(above)
            at = sort[np.searchsorted(above, S, sorter=sort)]
            own[: len(S), : len(S)] = agreeing[tree.parent[c]][np.ix_(at, at)]
        agreeing.append(own)
    return agreeing


def _roots(X: Sequence[Array]) -> list[Array]:
    """Return Cholesky factors, after a multiple of the identity that makes all matrices definite.

    Where round-off makes one of them indefinite, its nearest psd matrix would not agree with the others.
    """
    roots = [root_of(X_c) for X_c in X]
    least = [float(np.linalg.eigvalsh(X_c)[0]) for X_c, root in zip(X, roots, strict=True) if root is None]
    noise = COMPLETION_NOISE * max(float(X_c.diagonal().max()) for X_c in X) if least else 0.0
    shift = 2 * max(-min(least, default=0.0), 0.0) + noise
    while any(root is None for root in roots):
        if not math.isfinite(shift):
            raise np.linalg.LinAlgError("a clique submatrix is not finite")
        roots = [root_of(X_c + shift * np.eye(len(X_c))) for X_c in X]
        shift *= 10
    return [root for root in roots if root is not None]
