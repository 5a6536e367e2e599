"""Eigenvalues of a large symmetric matrix by its products with vectors: estimates, and a bound from below.

Lanczos's method estimates eigenvalues from inside the spectrum. A Chebyshev polynomial of the matrix on
random vectors bounds them from outside.

Let ``N`` be symmetric, ``b > 0``, and ``x = 2 lambda / b - 1`` for an eigenvalue ``lambda`` with the unit
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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, Array
from bregopt.certify.constants import (
    BOUND_DISTANCE,
    DEGREE_GROWTH,
    FAILURE,
    FIRST_DEGREE,
    HEAVY_VECTOR,
    HOPELESS,
    LANCZOS_STEPS,
    LARGEST_DEGREE,
    LARGEST_ENTRY,
    LEAST_TOP,
    NOISE_SHARE,
    ROUND_OFF,
    TOP_MARGIN,
    TOP_STEPS,
    VECTORS,
)
from bregopt.clock import CutShort, checkpoint
from bregopt.program.sparse_plus_low_rank import SparsePlusLowRank
from bregopt.records import replace

__all__ = ["Complement", "Filtered", "degree_for", "digest", "filtered", "highest", "lowest"]


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


# P(|v'g| <= t) <= t sqrt(2 / pi) for one Gaussian vector.
_LEAST_PRODUCT = float(np.sqrt(np.pi / 2)) * FAILURE ** (1 / VECTORS)


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
    projected: Array = V.T @ (W @ V)
    return np.asarray(scipy.linalg.eigvalsh(projected))


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
