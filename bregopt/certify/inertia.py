"""A lower bound on the eigenvalues of a sparse matrix by ``L D L'``, bordered by a few vectors.

The signs of ``D`` count the negative eigenvalues (Sylvester). The error of ``L D L'`` is bounded afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from bregopt.arrays import EPS, Array
from bregopt.certify.constants import (
    BORDER_WEIGHT,
    CORNER_ERROR,
    LARGEST_BORDER,
    LARGEST_PROFILE,
    LARGEST_PROFILE_SHARE,
    ROUND_OFF,
    SPARSE_PROOF_TIME,
    WEIGHT_MARGIN,
    WEIGHT_TRIALS,
)
from bregopt.clock import affords
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank
from bregopt.records import replace

__all__ = ["by_inertia", "stays_sparse"]


def stays_sparse(W: SparsePlusLowRank) -> bool:
    """Whether the sparse part has a small profile, few vectors border it, and a factorization is in time.

    The profile of a mesh is small. The factorization is one call, which cannot be interrupted.
    """
    if len(W.w) > LARGEST_BORDER or (W.w < 0).any():
        return False
    order = reverse_cuthill_mckee(W.S, symmetric_mode=True)
    place = np.empty(W.n, dtype=np.intp)
    place[order] = np.arange(W.n)
    coo = W.S.tocoo()
    first = np.arange(W.n)
    np.minimum.at(first, place[coo.row], place[coo.col])
    width = (np.arange(W.n) - first).astype(float)
    narrow = float(width.sum()) <= min(LARGEST_PROFILE, LARGEST_PROFILE_SHARE * W.n**2)
    return narrow and affords(W.n, SPARSE_PROOF_TIME * float(width @ width) / W.n**3)


def by_inertia(W: SparsePlusLowRank, t: float, trials: int = WEIGHT_TRIALS) -> float | None:
    """Return the bound that ``L D L' ~ W - t I`` proves, None where it does not show the matrix psd.

    The vectors, scaled to weight one, become a border with the corner ``-I``: the bordered matrix has a
    negative eigenvalue for each of them, and no other if ``W - t I`` is psd. Their weights are a tenth
    smaller there, so that errors of the border enter by their square.
    """
    n, q = W.n, len(W.w)
    K = sp.csc_array(W.S - t * sp.eye_array(n))
    if q:
        border = W.U * np.sqrt(BORDER_WEIGHT * W.w)
        K = sp.csc_array(sp.block_array([[K, border], [border.T, -np.eye(q)]]))
    try:
        lu = splu(K, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True, "Equil": False})
    except RuntimeError:  # exactly singular
        return None
    d = lu.U.diagonal()
    if (lu.perm_r != lu.perm_c).any() or (d == 0).any() or (d < 0).sum() != q:
        return None
    inside, across, corner = _factor_errors(K, lu, n)
    if not corner < CORNER_ERROR:  # it grows with the weights; smaller ones make a smaller matrix
        if not (np.isfinite(corner) and trials):
            return None
        smaller = replace(W, w=W.w * CORNER_ERROR / (WEIGHT_MARGIN * corner))
        return by_inertia(smaller, t, trials - 1)
    spare = (1 - corner) / BORDER_WEIGHT - 1  # (b - e)^2 <= (1 + spare) b^2 + (1 + 1 / spare) e^2
    return t - inside - (1 + 1 / spare) * across**2 / (1 - corner)


def _factor_errors(K: Any, lu: Any, n: int) -> tuple[float, float, float]:
    """Return bounds on the norm of ``K - L D L'``: of its first `n` rows and columns, the border, the corner.

    They follow from the computed factors ``L U ~ K`` (Higham 2002, §9.3) and the difference ``U - D L'``.
    """
    size, U = len(lu.perm_c), abs(lu.U)
    L = abs(lu.L)
    skew = abs(lu.U - sp.diags_array(lu.U.diagonal()) @ lu.L.T)
    gamma = (int(np.diff(L.tocsr().indptr).max()) + 4) * EPS * (1 + 1e-9)

    def rows_of(columns: Any) -> Array:
        one = np.zeros(size)
        one[lu.perm_c[columns]] = 1.0
        rows: Array = (L @ (gamma * (U @ one) + skew @ one))[lu.perm_c]
        return rows + ROUND_OFF * (abs(K)[:, columns].sum(axis=1))

    inside = float(rows_of(slice(0, n))[:n].max())
    if size == n:
        return inside, 0.0, 0.0
    border = [rows_of(slice(k, k + 1)) for k in range(n, size)]
    across = float(np.sqrt(sum(float(rows[:n] @ rows[:n]) for rows in border)))
    return inside, across, float(sum(rows[n:].sum() for rows in border))
