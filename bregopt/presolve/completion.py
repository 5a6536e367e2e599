"""Positive semidefinite completion of a matrix that is given on the cliques of a clique tree.

A partial matrix with a chordal pattern and psd clique submatrices has a psd completion (Grone, Johnson, Sa,
Wolkowicz 1984), and one whose rank is that of the clique submatrix of largest rank (Dancis 1992).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve

from bregopt.arrays import Array
from bregopt.linalg import root_of
from bregopt.presolve.cliques import CliqueTree
from bregopt.presolve.constants import COMPLETION_RANK

__all__ = ["completion"]


def completion(tree: CliqueTree, X: Sequence[Array]) -> Array:
    """Return a factor ``R`` of a psd matrix ``R R'`` with given clique submatrices.

    From the root to the leaves: let a clique have the separator ``S`` and the other vertices ``N``. With
    ``W = X_NS inv(X_SS)`` and ``L L' = X_NN - W X_SN``, its rows are ``R_N = W R_S + L Q'``, where the
    columns of ``Q`` are orthonormal and ``R_S Q = 0``. The result is psd in any case.

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
    agreed: list[Array] = []
    for c, (vertices, S, N) in enumerate(zip(tree.vertices, tree.separators, tree.residuals, strict=True)):
        X_c = np.array(X[c])
        agreed.append(X_c)
        if len(S) == 0:
            R[N, : len(N)] = _root(X_c)
            continue
        s, e = np.searchsorted(vertices, S), np.searchsorted(vertices, N)
        above = np.searchsorted(tree.vertices[tree.parent[c]], S)
        # A difference of 1e-11 here, times the square of a large W, would be an error of 1e-6.
        X_c[np.ix_(s, s)] = X_ss = agreed[tree.parent[c]][np.ix_(above, above)]
        X_sn = X_c[np.ix_(s, e)]
        W = _solved(X_ss, X_sn).T
        L = _root(X_c[np.ix_(e, e)] - W @ X_sn)
        # QR continues the columns of R_S' to orthonormal ones, as further columns are zero.
        Q = np.linalg.qr(np.hstack([R[S].T, np.zeros((tree.width, len(N)))]))[0][:, len(S) :]
        R[N] = W @ R[S] + L @ Q.T
    return R


def _solved(X: Array, right: Array) -> Array:
    """Return the solution of ``X w = right`` for a psd matrix; the least one where it is singular."""
    root = root_of(X)
    if root is not None:
        solution: Array = cho_solve((root, True), right, check_finite=False)
        return solution
    d, V = np.linalg.eigh(X)
    large = d > COMPLETION_RANK * max(float(d[-1]), 0.0)
    pseudo: Array = (V[:, large] / d[large]) @ (V[:, large].T @ right)
    return pseudo


def _root(X: Array) -> Array:
    """Return a square root of the nearest psd matrix."""
    root = root_of(X)
    if root is not None:
        return root
    d, V = np.linalg.eigh((X + X.T) / 2)
    return V * np.sqrt(np.maximum(d, 0.0))
