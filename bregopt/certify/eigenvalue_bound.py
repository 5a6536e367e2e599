"""A proven lower bound on the eigenvalues of a large symmetric matrix.

Lanczos's method only ever finds an upper estimate of the smallest eigenvalue, however small its residual,
and on meshes it misses the smallest one for many steps. The bound starts from that estimate. One of three
methods proves it:

- ``L D L'`` of the sparse part, bordered by the vectors, where the factor stays sparse. The signs of ``D``
  count the negative eigenvalues (Sylvester). The error of ``L D L'`` is bounded afterwards.
- Cholesky's factorization, up to an order of 5,000 (Rump 2006).
- Beyond that order, a Chebyshev polynomial of the matrix applied to one random vector. The vector would grow
  if an eigenvalue were below the bound, unless it is orthogonal to its eigenvector up to 1e-12. The argument
  is that of Kuczynski and Wozniakowski (1992).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from bregopt.arrays import EPS, TINY, Array
from bregopt.certify.constants import (
    BORDER_WEIGHT,
    BOUND_DISTANCE,
    CACHED_BOUNDS,
    CORNER_ERROR,
    DEGREES,
    DENSE_PROOF_TIME,
    FINE_RATIO,
    FINE_STEP,
    FIRST_DENSE_STEP,
    FIRST_STEP,
    HEAVY_VECTOR,
    LANCZOS_STEPS,
    LARGEST_BORDER,
    LARGEST_DENSE,
    LARGEST_ENTRY,
    LARGEST_FORMED,
    LARGEST_PROFILE,
    LARGEST_PROFILE_SHARE,
    ORTHOGONAL,
    PROOF_STEPS,
    ROUND_OFF,
    SPARSE_PROOF_TIME,
    STEP_GROWTH,
)
from bregopt.clock import CutShort, affords, checkpoint, remaining
from bregopt.linalg import factorized
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank

__all__ = ["lowest", "proven_bound", "smallest_eigenvalue"]

_Proof = Callable[[float], float | None]
_cached_bounds: tuple[tuple[bytes, float], ...] = ()


def smallest_eigenvalue(W: SparsePlusLowRank) -> float:
    """Return a lower bound on the smallest eigenvalue, near it or, where it is positive, near zero.

    Up to an order of 500 the eigenvalue is computed. Above, the bound is proven. Beyond 5,000, without a
    sparse factor, the proof fails with a probability of at most 1e-12 over its random vector. If the time
    limit leaves no time for a factor, the proof is that of larger orders. After the time limit, the bound is
    that of Gershgorin's discs.
    """
    if W.n <= LARGEST_FORMED:
        return float(np.linalg.eigvalsh(W.dense())[0])
    size = max(map(abs, W.ends()))
    if size == 0:
        return 0.0
    key = _digest(W)
    found = dict(_cached_bounds).get(key)
    return _computed(W, size, key) if found is None else found


def _computed(W: SparsePlusLowRank, size: float, key: bytes) -> float:
    """Return the bound of a matrix of the given size, and cache it; after the time limit, a weaker bound."""
    global _cached_bounds
    try:
        found = _by_proof(W, size)
    except CutShort:
        return W.ends()[0]
    if remaining() > 0:
        _cached_bounds = (*_cached_bounds, (key, found))[-CACHED_BOUNDS:]
    return found


def _digest(W: SparsePlusLowRank) -> bytes:
    """Return a hash of the matrix."""
    digest = hashlib.blake2b()
    for part in (W.S.indptr, W.S.indices, W.S.data, W.U, W.w):
        digest.update(np.ascontiguousarray(part).data)
    return digest.digest()


def _by_proof(W: SparsePlusLowRank, size: float) -> float:
    """Return the bound of a matrix of the given size, by the first of the three proofs that applies."""
    estimate = min(float(lowest(W, 1)[0][0]), 0.0)
    found = None
    if _stays_sparse(W):
        found = _proven(lambda t: _by_inertia(W, t), estimate, size)
    if found is None and W.n <= LARGEST_DENSE and affords(W.n, DENSE_PROOF_TIME):
        H = -W.dense()
        return -proven_bound(H, -estimate, FIRST_DENSE_STEP * size, PROOF_STEPS)
    return _by_polynomial(W, estimate) if found is None else found


def _proven(proof: _Proof, estimate: float, size: float) -> float | None:
    """Return a proven bound: the step below the estimate grows until it is proven, then is refined."""
    step, found = FIRST_STEP * size, None
    for _ in range(PROOF_STEPS):
        found = proof(estimate - step)
        if found is not None:
            break
        step *= STEP_GROWTH
    wider = STEP_GROWTH
    while found is not None and step > FINE_STEP * size and wider > FINE_RATIO:
        wider = np.sqrt(wider)
        better = proof(estimate - step / wider)
        if better is not None:
            found, step = better, step / wider
    return found


def proven_bound(H: Array, estimate: float, slack: float, trials: int = 4) -> float:
    """Return an upper bound on the largest eigenvalue: `estimate` plus `slack`, or more if that is too low.

    A Cholesky factorization of ``t I - H`` that succeeds proves ``t`` up to round-off. For that a multiple of
    the unit round-off times ``n + 2`` times the trace is added (Rump 2006).
    """
    n = len(H)
    step = max(slack, ROUND_OFF * n * abs(estimate), TINY)
    for _ in range(trials):
        t = estimate + step
        shifted = -H
        shifted[np.diag_indices(n)] += t
        size = float(np.abs(shifted.diagonal()).sum())
        if factorized(shifted)[1]:
            return t + ROUND_OFF * (n + 2) * size
        step *= STEP_GROWTH
    checkpoint(n)
    return float(scipy.linalg.eigvalsh(H)[-1]) + ROUND_OFF * float(np.linalg.norm(H))


def _stays_sparse(W: SparsePlusLowRank) -> bool:
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


def _by_inertia(W: SparsePlusLowRank, t: float) -> float | None:
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
    if not corner < CORNER_ERROR:
        return None
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


def _by_polynomial(W: SparsePlusLowRank, a: float) -> float:
    """Return a bound by a Chebyshev polynomial of `W` on a random vector; it may fail (``ORTHOGONAL``).

    Eigenvalues in ``[a, b]``, with ``b`` above all, are mapped to ``x`` in ``[-1, 1]``. For an eigenvalue
    below ``a``, ``|T_k(x)| = cosh(k arccosh |x|)``, and ``T_k g`` is at least as long as that times the
    component of ``g`` along its eigenvector. Heavy vectors would make ``b`` large: the polynomial is applied
    on their orthogonal complement.
    """
    size = max(map(abs, replace(W, U=W.U[:, :0], w=W.w[:0]).ends()))
    heavy = W.w * np.einsum("nq,nq->q", W.U, W.U) > HEAVY_VECTOR * size
    Q = np.linalg.qr(W.U[:, heavy])[0]
    light = replace(W, U=W.U[:, ~heavy], w=W.w[~heavy])
    b = light.ends()[1]
    if b <= a:
        return W.ends()[0]
    below = -np.inf
    try:
        for degree, logarithm in _growth(light, Q, a, b):
            # arccosh(r) <= log(2 r)
            angle = max(logarithm - np.log(ORTHOGONAL * np.sqrt(np.pi / 2)) + np.log(2), 0.0) / degree
            below = a - (np.cosh(angle) - 1) * (b - a) / 2
            if a - below <= BOUND_DISTANCE * abs(a):
                break
    except CutShort:
        if below == -np.inf:
            raise
    return _with_directions(W, Q, below) if heavy.any() else below


def _growth(W: SparsePlusLowRank, Q: Array, a: float, b: float) -> Iterator[tuple[int, float]]:
    """Yield degrees ``k`` and ``log ||T_k g||`` for a random vector ``g`` orthogonal to `Q`."""
    scale, center = 2 / (b - a), (b + a) / (b - a)

    def moved(v: Array) -> Array:
        v = scale * (W @ v) - center * v
        return v - Q @ (Q.T @ v)

    g = np.random.default_rng(0).normal(size=(W.n, 1))
    before = g - Q @ (Q.T @ g)
    now, logarithm = moved(before), 0.0
    for degree in range(2, DEGREES[-1] + 1):
        checkpoint()
        before, now = now, 2 * moved(now) - before
        size = float(np.abs(now).max())
        if size > LARGEST_ENTRY:
            before, now, logarithm = before / size, now / size, logarithm + np.log(size)
        if degree in DEGREES:
            yield degree, logarithm + np.log(np.linalg.norm(now))


def _with_directions(W: SparsePlusLowRank, Q: Array, below: float) -> float:
    """Return a lower bound on the eigenvalues of `W` from one for ``P W P``, ``P = I - QQ'``.

    ``W - t I`` is psd for ``t = below - d`` if its Schur complement is: if ``least - t >= |P W Q|^2 / d``,
    where ``least`` is the least eigenvalue of ``Q'WQ``.
    """
    WQ = W @ Q
    inside = Q.T @ WQ
    apart = float(np.linalg.eigvalsh((inside + inside.T) / 2)[0]) - below
    across = float(np.linalg.norm(WQ - Q @ inside))
    return below - (np.hypot(apart, 2 * across) - apart) / 2


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
    n = W.n
    steps = min(steps, n)
    Q, alpha, beta = np.zeros((n, steps)), np.zeros(steps), np.zeros(steps)
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
    values, S = scipy.linalg.eigh_tridiagonal(alpha[:reached], beta[: reached - 1])
    return values[:count], Q[:, :reached] @ S[:, :count]
