"""A proven lower bound on the eigenvalues of a large symmetric matrix, relative to a positive diagonal.

For ``D`` diagonal and positive, the bound is a ``t`` for which ``W - t D`` is psd. With the diagonal of ``W``
as ``D``, a few vertices of many edges do not weaken the bound of all others. One of three methods proves it:

- ``L D L'`` of the sparse part, bordered by the vectors, where the factor stays sparse. The signs of ``D``
  count the negative eigenvalues (Sylvester); the error of ``L D L'`` is bounded afterwards.
- A Chebyshev polynomial of the matrix applied to random vectors.
- Cholesky's factorization, up to an order of 5,000 (Rump 2006), where the polynomial would take longer.

Lanczos's method estimates eigenvalues from inside the spectrum; the polynomial bounds them from outside. Let
``N`` be symmetric, ``b > 0``, and ``x = 2 lambda / b - 1`` for an eigenvalue ``lambda`` with the unit
eigenvector ``v``. The polynomial ``T_k`` is at most one in absolute value on ``[-1, 1]``. Below zero it is
``cosh(k theta)`` in absolute value, ``lambda = -b (cosh(theta) - 1) / 2``. So the block
``T_k(2 N / b - I) G`` would be long if there were such an eigenvalue, unless ``v`` is nearly orthogonal to
every column of the Gaussian matrix ``G``:

    |v'g| cosh(k theta) <= |T_k g|,   and   max over the columns |v'g| >= t   but for a given probability.

The argument is that of Kuczynski and Wozniakowski (1992), with several vectors. The computed block also has
round-off: column ``j`` of the recurrence has an error of at most ``noise |x_j|``. An error grows like
``U_{k-1-j}``, the polynomial of second kind, so that

    t cosh(k theta) <= |x_k| + noise / sinh(theta) * sum_j |x_j| sinh((k - j) theta).

The smallest ``theta`` for which this fails to exclude the eigenvalue gives the bound. Eigenvalues above
``b`` are allowed: they lengthen the block and so weaken the bound.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array
from bregopt.clock import CutShort, affords, checkpoint, remaining
from bregopt.linalg import factorized
from bregopt.program.linear_map import SparsePlusLowRank
from bregopt.records import replace

# Probability that all random vectors are too near orthogonal to the eigenvector that they should show.
FAILURE = 1e-12
# Relative error of a sum of products, times its length.
ROUND_OFF = 4 * EPS
# Order up to which matrices are formed and all their eigenvalues are computed: 20 ms at most.
LARGEST_FORMED = 500
# Order up to which a sparse matrix may be formed for Cholesky's factorization: 200 MB.
LARGEST_DENSE = 5_000
# Entries of the profile after reordering, and their fraction of the n^2 entries, up to which a sparse matrix
# is factorized. The factor of a larger profile takes longer than a Cholesky factorization of the full matrix.
LARGEST_PROFILE, LARGEST_PROFILE_SHARE = 5e7, 0.1
# Number of vectors up to which they border the factorized matrix. Each costs a solve.
LARGEST_BORDER = 20
# First step below the estimate of an eigenvalue, as a fraction of the size of the matrix: for sparse and
# for dense factors, a little above the round-off of their proofs.
FIRST_STEP, FIRST_DENSE_STEP = 1e-13, 1e-10
# Factor of a step whose bound was not proven, and the number of steps.
STEP_GROWTH, PROOF_STEPS = 10.0, 12
# Steps up to this fraction of the size are not refined, and refinement stops at this ratio of a proven step
# to one that failed. A finer bound does not show in a gap of 1e-8.
FINE_STEP, FINE_RATIO = 1e-9, 1.5
# Factor of the weights of the border's vectors: it leaves room for the square of the border's error.
BORDER_WEIGHT = 0.9
# Largest error of the corner -I of the bordered matrix for which a factorization is accepted.
CORNER_ERROR = 0.01
# The weights of the border's vectors are reduced where that error is larger: to an error this factor below,
# and so many times.
WEIGHT_MARGIN, WEIGHT_TRIALS = 2.0, 2
# Steps of Lanczos's method for the estimate of the smallest eigenvalue.
LANCZOS_STEPS = 60
# Steps of Lanczos's method for the largest eigenvalue, and the factor of the estimate above which hardly any
# eigenvalue lies. One above costs accuracy, not rigor. The least value is a fraction of Gershgorin's bound.
TOP_STEPS, TOP_MARGIN, LEAST_TOP = 30, 1.1, 1e-3
# Random vectors of the Chebyshev polynomial: sparse products with eight cost three times those with one.
VECTORS = 8
# Degrees of the polynomial: the first at which its bound is computed, their growth, and the largest.
FIRST_DEGREE, DEGREE_GROWTH, LARGEST_DEGREE = 30, 1.3, 4_000
# The degree stops growing where the bound is this close to the estimate, relative to it, if the estimate is
# beyond this fraction of the bound asked for.
BOUND_DISTANCE, HOPELESS = 0.5, 0.8
# Fraction of the least inner product that may be round-off.
NOISE_SHARE = 0.1
# Multiplications in a Cholesky factorization in the time of one in a sparse product with a block.
DENSE_SPEED = 10.0
# Fraction of the time of a Cholesky factorization that is spent to see that it would fail, and least degree
# for that.
SKETCH, LEAST_DEGREE = 0.1, 100
# Fraction of the bound asked for that leaves room for the error of a factorization.
ENOUGH_MARGIN = 0.02
# Times the size of the sparse part: heavier vectors are left out of the polynomial, whose degree grows with
# the root of the largest eigenvalue.
HEAVY_VECTOR = 2.0
# Vectors, relative to the order, from which on they are part of a full matrix: their squares cost more.
MANY_VECTORS = 0.25
# Entry above which the polynomial's vectors are scaled down, far from overflow.
LARGEST_ENTRY = 1e100
# Times relative to the eigendecomposition of the same matrix: of two Cholesky factorizations, and of n^3
# multiplications in eight sparse factors.
DENSE_PROOF_TIME, SPARSE_PROOF_TIME = 0.25, 40.0
# Number of bounds that are cached: the certificate of an answer repeats the best proof of its route, which a
# hundred stages may follow.
CACHED_BOUNDS = 100
# P(|v'g| <= t) <= t sqrt(2 / pi) for one Gaussian vector.
_LEAST_PRODUCT = float(np.sqrt(np.pi / 2)) * FAILURE ** (1 / VECTORS)
_Proof = Callable[[float], float | None]


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


class Filtered(NamedTuple):
    """The result of a Chebyshev polynomial on a random block.

    Parameters
    ----------
    bound : float
        A lower bound on the smallest eigenvalue, at most zero.
    values : array of shape (VECTORS,)
        Ritz values on the block, ascending: estimates from above.
    """

    bound: float
    values: Array


def filtered(W: SparsePlusLowRank, enough: float = 0.0, degrees: int = LARGEST_DEGREE) -> Filtered:
    """Return a lower bound on the eigenvalues of `W`; it may fail, with a probability of at most ``FAILURE``.

    Parameters
    ----------
    W : SparsePlusLowRank
    enough : float
        The degree grows until the bound reaches this number, or is near the estimate of an
        eigenvalue that does not leave room for it.
    degrees : int
        Largest degree.
    """
    complement = Complement(W)
    found: Filtered | None = None
    b = complement.norm
    with contextlib.suppress(CutShort):
        b = max(TOP_MARGIN * highest(complement.light), LEAST_TOP * b)
    try:
        for angle, X in _growth(complement, b, degrees, digest(W)):
            below = -(np.cosh(angle) - 1) * b / 2 * (1 + ROUND_OFF) - ROUND_OFF * complement.norm
            below = complement.whole(below)
            if found is not None:
                below = max(below, found.bound)
            found = Filtered(below, _ritz_values(complement.light, X))
            least = float(found.values[0])
            near = below >= (1 + BOUND_DISTANCE) * least
            if below >= enough or (near and least < HOPELESS * enough):
                break
    except CutShort:
        if found is None:
            raise
    assert found is not None
    return found


def degree_for(complement: Complement, enough: float) -> float:
    """Return about the degree that proves `enough` if the matrix is psd."""
    if enough >= 0:
        return np.inf
    ratio = 2 * np.sqrt(complement.light.n) / _LEAST_PRODUCT
    return float(np.log(ratio) / np.arccosh(1 - 2 * enough / complement.norm))


def digest(W: SparsePlusLowRank) -> bytes:
    """Return a hash of the matrix."""
    found = hashlib.blake2b()
    for part in (W.S.indptr, W.S.indices, W.S.data, W.U, W.w):
        found.update(np.ascontiguousarray(part).data)
    return found.digest()


def _growth(at: Complement, b: float, degrees: int, seed: bytes) -> Iterator[tuple[float, Array]]:
    """Yield, for growing degrees, the angle ``theta`` of the bound, and the block.

    The random vectors depend on the matrix: one that was made from the vectors of an earlier proof meets
    new ones.
    """
    W = at.light
    M = sp.csr_array(W.S * (4 / b) - 2 * sp.eye_array(W.n))
    scaled = replace(W, S=M, w=W.w * (4 / b))
    terms = int(np.diff(M.indptr).max()) + len(W.w) + 8 + 4 * W.n * at.Q.shape[1]
    noise = EPS * terms * (4 * at.norm / b + 3)
    before = np.random.default_rng(list(seed)).normal(size=(W.n, VECTORS))
    before = at.project(before)
    now = at.project(scaled @ before) / 2
    lengths = np.zeros(degrees + 1)  # logarithms of the longest column
    lengths[0], lengths[1] = _longest(before), _longest(now)
    logarithm, check = 0.0, FIRST_DEGREE
    for degree in range(2, degrees + 1):
        try:
            checkpoint()
        except CutShort:
            yield _angle(lengths[:degree], noise), now
            raise
        new = at.project(scaled @ now)
        new -= before
        before, now = now, new
        length = _longest(now)
        lengths[degree] = length + logarithm
        if length > LARGEST_ENTRY:
            size = np.exp(length)
            before, now, logarithm = before / size, now / size, logarithm + length
        if degree == min(check, degrees):
            yield _angle(lengths[: degree + 1], noise), now
            check = int(DEGREE_GROWTH * check) + 1


def _longest(X: Array) -> float:
    """Return the logarithm of the length of the longest column."""
    return float(np.log(np.einsum("nk,nk->k", X, X).max() + EPS)) / 2


def _angle(lengths: Array, noise: float) -> float:
    """Return an angle that excludes all larger ones, from the logarithms of the blocks' lengths."""
    if not np.isfinite(lengths).all():  # polynomials that overflow, as of an interval too short
        return np.inf
    k = len(lengths) - 1
    product = np.log((1 - NOISE_SHARE) * _LEAST_PRODUCT)
    angle = max((lengths[k] - product + np.log(2)) / k, 1 / k)  # arccosh(r) <= log(2 r)
    longer = np.maximum(lengths[:-1], np.concatenate([lengths[:1], lengths[:-2]]))
    with np.errstate(over="ignore"):
        # sinh((k - j) theta) <= exp(-j theta) cosh(k theta)
        while (
            noise / np.sinh(angle) * np.exp(longer - angle * np.arange(k)).sum()
            > NOISE_SHARE * _LEAST_PRODUCT
        ):
            angle *= 1.1
    return float(angle)


def _ritz_values(W: SparsePlusLowRank, X: Array) -> Array:
    """Return the Ritz values on the range of a block, ascending."""
    V = np.linalg.qr(X)[0]
    return np.asarray(scipy.linalg.eigvalsh(V.T @ (W @ V)))


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
        heavy = (W.w * square > HEAVY_VECTOR * float(rows.max())) & (len(W.w) <= MANY_VECTORS * W.n)
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
        No larger ``t`` is needed. By default, the last bound of the same matrix will do that was not cut
        short; without one, the sharpest is sought.
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
    known = [cached for cached in _cached_bounds if cached.key == key]
    for cached in known:
        asked = cached.enough > -np.inf if enough is None else max(cached.bound, cached.enough) >= enough
        if asked:
            return cached.bound - error
    found = _computed(W, key, 0.0 if enough is None else enough)
    return max([found, *(cached.bound for cached in known)]) - error


def _computed(W: SparsePlusLowRank, key: bytes, enough: float) -> float:
    """Return the bound, and cache it; after the time limit, a weaker bound."""
    global _cached_bounds
    try:
        found = max(_by_proof(W, enough), W.ends()[0])
    except CutShort:
        return W.ends()[0]
    sought = enough if remaining() > 0 else -np.inf  # with more time, a sharper one
    _cached_bounds = (*_cached_bounds, _Cached(key, found, sought))[-CACHED_BOUNDS:]
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
    # Pays on: phase retrieval, n = 510.
    if len(W.w) > MANY_VECTORS * W.n:
        size = float(abs(W.S).sum(axis=1).max()) + float(np.abs(W.w) @ np.einsum("nq,nq->q", W.U, W.U))
        error, estimate = ROUND_OFF * (W.n + len(W.w)) * size, min(float(lowest(W, 1)[0][0]), 0.0)
        return -proven_bound(-W.dense(), -estimate, FIRST_DENSE_STEP * abs(estimate), PROOF_STEPS) - error
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
        if (found := _by_cholesky(H, estimate + step)) is not None:
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
