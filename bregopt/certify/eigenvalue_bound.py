"""A proven lower bound on the eigenvalues of a large symmetric matrix, relative to a positive diagonal.

For ``D`` diagonal and positive, the bound is a ``t`` for which ``W - t D`` is psd. With the diagonal of ``W``
as ``D``, a few vertices of many edges do not weaken the bound of all others. One of three methods proves it:

- ``L D L'`` of the sparse part, bordered by the vectors, where the factor stays sparse. The signs of ``D``
  count the negative eigenvalues (Sylvester); the error of ``L D L'`` is bounded afterwards.
- A Chebyshev polynomial of the matrix applied to random vectors (:mod:`bregopt.certify.krylov`).
- Cholesky's factorization, up to an order of 5,000 (Rump 2006), where the polynomial would take longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array
from bregopt.certify.constants import (
    BORDER_WEIGHT,
    CACHED_BOUNDS,
    CORNER_ERROR,
    DENSE_PROOF_TIME,
    DENSE_SPEED,
    ENOUGH_MARGIN,
    FINE_RATIO,
    FINE_STEP,
    FIRST_DENSE_STEP,
    FIRST_STEP,
    LARGEST_BORDER,
    LARGEST_DEGREE,
    LARGEST_DENSE,
    LARGEST_FORMED,
    LARGEST_PROFILE,
    LARGEST_PROFILE_SHARE,
    LEAST_DEGREE,
    LEAST_SCALE,
    PROOF_STEPS,
    ROUND_OFF,
    SKETCH,
    SPARSE_PROOF_TIME,
    STEP_GROWTH,
    VECTORS,
    WEIGHT_MARGIN,
    WEIGHT_TRIALS,
)
from bregopt.certify.krylov import Complement, degree_for, digest, filtered, lowest
from bregopt.clock import CutShort, affords, checkpoint, remaining
from bregopt.linalg import factorized
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank
from bregopt.records import replace

__all__ = ["by_inertia", "proven_bound", "relative_diagonal", "smallest_eigenvalue", "stays_sparse"]

_Proof = Callable[[float], float | None]


class _Cached(NamedTuple):
    key: bytes
    bound: float
    enough: float


_cached_bounds: tuple[_Cached, ...] = ()


def smallest_eigenvalue(W: SparsePlusLowRank, D: Array | None = None, enough: float | None = None) -> float:
    """Return ``t`` for which ``W - t diag(D)`` is psd: the largest or, where it is positive, near zero.

    Up to an order of 500 the largest ``t`` is computed. Above, ``t`` is proven, by the polynomial with a
    probability of at most 1e-12 to fail over its random vectors. If the time limit leaves no time for a
    factor, the proof is that by the polynomial; after the time limit, that by Gershgorin's discs.

    Parameters
    ----------
    W : SparsePlusLowRank
    D : array of shape (n,), optional
        Positive; ones by default.
    enough : float, optional
        No larger ``t`` is needed. By default, the last bound of the same matrix will do; without one, the
        sharpest is sought.
    """
    if D is not None:
        W = W.scaled(1 / np.sqrt(D))
    if W.n <= LARGEST_FORMED:
        return float(np.linalg.eigvalsh(W.dense())[0])
    size = max(map(abs, W.ends()))
    if size == 0:
        return 0.0
    error = 0.0 if D is None else ROUND_OFF * size
    key = digest(W)
    for cached in _cached_bounds:
        if cached.key == key and (enough is None or cached.bound >= enough or cached.enough >= enough):
            return cached.bound - error
    return _computed(W, key, 0.0 if enough is None else enough) - error


def relative_diagonal(W: SparsePlusLowRank) -> Array:
    """Return the diagonal of the sparse part, or a fraction of its mean where it is smaller."""
    D: Array = W.S.diagonal()
    mean = float(np.abs(D).mean())
    return np.maximum(D, LEAST_SCALE * mean) if mean > 0 else np.ones(W.n)


def _computed(W: SparsePlusLowRank, key: bytes, enough: float) -> float:
    """Return the bound, and cache it; after the time limit, a weaker bound."""
    global _cached_bounds
    try:
        found = max(_by_proof(W, enough), W.ends()[0])
    except CutShort:
        return W.ends()[0]
    if remaining() > 0:
        _cached_bounds = (*_cached_bounds, _Cached(key, found, enough))[-CACHED_BOUNDS:]
    return found


def _by_proof(W: SparsePlusLowRank, enough: float) -> float:
    """Return the bound by the first of the three proofs that applies."""
    if stays_sparse(W):
        estimate = min(float(lowest(W, 1)[0][0]), 0.0)
        bound = _proven(lambda t: by_inertia(W, t), estimate, float(abs(W.S).sum(axis=1).max()), enough)
        if bound is not None:
            return bound
    if W.n > LARGEST_DENSE or not affords(W.n, DENSE_PROOF_TIME):
        return filtered(W, enough).bound
    complement = Complement(W)
    # The degree at which the polynomial takes as long as a Cholesky factorization.
    degrees = W.n**3 / (3 * DENSE_SPEED * VECTORS * (W.S.nnz + W.n * (1 + len(W.w))))
    strong = degree_for(complement, enough) <= degrees
    found = filtered(
        W, enough, int(np.clip(degrees if strong else SKETCH * degrees, LEAST_DEGREE, LARGEST_DEGREE))
    )
    if found.bound >= enough or (enough < 0 and (strong or found.values[0] < enough)):
        return found.bound
    H = -complement.dense()
    error = ROUND_OFF * W.n * complement.norm if complement.Q.shape[1] else 0.0
    lost = enough - complement.whole(enough - error)
    if enough + lost < 0 and (bound := _by_cholesky(H, -enough - lost)) is not None:
        return complement.whole(-bound - error)
    estimate = min(float(found.values[0]), float(lowest(W, 1)[0][0]), 0.0)
    bound = proven_bound(H, -estimate, FIRST_DENSE_STEP * complement.norm, PROOF_STEPS)
    return complement.whole(-bound - error)


def _proven(proof: _Proof, estimate: float, size: float, enough: float) -> float | None:
    """Return a proven bound: the step below the estimate grows until it is proven, then is refined."""
    step, asked = FIRST_STEP * size, None
    if enough < 0:
        asked = proof(enough * (1 - ENOUGH_MARGIN))
        if asked is None:
            estimate, step = min(estimate, enough), max(step, -enough)
        elif asked >= enough:
            return asked
    found = None
    for _ in range(PROOF_STEPS):
        if remaining() <= 0:
            return None
        found = proof(estimate - step)
        if found is not None:
            break
        step *= STEP_GROWTH
    wider = STEP_GROWTH
    while found is not None and step > FINE_STEP * size and wider > FINE_RATIO and remaining() > 0:
        wider = np.sqrt(wider)
        better = proof(estimate - step / wider)
        if better is not None:
            found, step = better, step / wider
    return found if asked is None or (found is not None and found > asked) else asked


def proven_bound(H: Array, estimate: float, slack: float, trials: int = 4) -> float:
    """Return an upper bound on the largest eigenvalue: `estimate` plus `slack`, or more if that is too low.

    A Cholesky factorization of ``t I - H`` that succeeds proves ``t`` up to round-off. For that a multiple of
    the unit round-off times ``n + 2`` times the trace is added (Rump 2006).
    """
    n = len(H)
    step = max(slack, ROUND_OFF * n * abs(estimate), TINY)
    for _ in range(trials):
        t = estimate + step
        found = _by_cholesky(H, t)
        if found is not None:
            return found
        step *= STEP_GROWTH
    checkpoint(n)
    return float(scipy.linalg.eigvalsh(H)[-1]) + ROUND_OFF * float(np.linalg.norm(H))


def _by_cholesky(H: Array, t: float) -> float | None:
    """Return the bound that a Cholesky factorization of ``t I - H`` proves, None where it fails."""
    n = len(H)
    shifted = -H
    shifted[np.diag_indices(n)] += t
    size = float(np.abs(shifted.diagonal()).sum())
    return t + ROUND_OFF * (n + 2) * size if factorized(shifted)[1] else None


def stays_sparse(W: SparsePlusLowRank) -> bool:
    """Whether the sparse part has a small profile, few vectors border it, and a factorization is in time.

    The profile of a mesh is small. The factorization is one call, which cannot be interrupted.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # loads slowly

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
    from scipy.sparse.linalg import splu  # loads slowly

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
