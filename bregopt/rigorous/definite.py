"""Proven eigenvalues, determinants and functions of symmetric matrices.

Every result holds for each symmetric matrix of the :class:`~bregopt.rigorous.ball.Ball` given.
"""

from __future__ import annotations

import math

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.linalg import factorized, root_of
from bregopt.rigorous.ball import UNIT, Ball, down, gamma, inflated, log, up

__all__ = [
    "cholesky_error",
    "eigenvalues",
    "exceeds",
    "least_eigenvalue",
    "log_det",
    "proven_shift",
    "triangular_inverse",
]

_TRIALS = 6
_SHARP = 20  # of the norm in round-offs: above the distance of a factorization, in Frobenius' norm
_GROWTH = 8.0  # of the distance from the estimate, from one trial to the next


def proven_shift(W: Array, t: float) -> float | None:
    """Return a proven lower bound on the eigenvalues of `W`, slightly below `t`; None where none is found.

    Forming the float matrix ``fl(W - t I)`` moves its diagonal by at most ``u``.
    """
    shifted = W.copy()
    diagonal = W.diagonal() - t
    shifted[np.diag_indices(len(W))] = diagonal
    error = cholesky_error(shifted)
    if error is None:
        return None
    found = t - inflated(error + UNIT * float(diagonal.max()))
    return found - UNIT * abs(found) - TINY


def cholesky_error(M: Array, overwrite: bool = False) -> float | None:
    """Return how far below zero an eigenvalue of `M` can be, None where Cholesky's factorization fails.

    If it ends, the float matrix has no eigenvalue below ``-gamma_(n+1) / (1 - gamma_(n+1))`` times its trace
    (Rump 2006, §2; Higham 2002, theorems 10.3 and 10.5, for every order of operations). Divisions may be
    products with reciprocals, as in BLAS's triangular solves: the index is larger by that rounding. The
    factor may `overwrite` the matrix.
    """
    n, diagonal = len(M), M.diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        return None
    size, largest = float(diagonal.sum()), float(diagonal.max())
    root, ended = factorized(M, overwrite)
    if not (ended and np.isfinite(root.diagonal()).all()):
        return None
    error = gamma(n + 4) * size * (1 + gamma(n + 1)) + n * (n + largest) * TINY  # TINY: underflow
    return float(inflated(error))


def exceeds(W: Ball, least: float) -> bool:
    """Whether no eigenvalue is below `least`, proven by one factorization, or by the diagonal alone."""
    n = len(W.mid)
    if n <= 1 or not (W.mid.any() or W.rad.any()):
        return least_eigenvalue(W) >= least
    spread = Ball(np.zeros_like(W.mid), W.rad).symmetric_norm()
    step = _step(W.mid)
    if not math.isfinite(spread + step):
        return False
    found = proven_shift(W.mid, least + 2 * spread + step)
    if found is not None and found - inflated(spread) - UNIT * abs(found) >= least:
        return True
    return _exceeds_sharply(W.mid, up(least + spread))


def _exceeds_sharply(W: Array, least: float) -> bool:
    """Whether ``W - s I``, for an ``s`` above `least`, is near some ``L L'``, whose product is enclosed.

    The distance is near one rounding of each entry. Before a factorization is known, its bound is larger by
    the order.
    """
    shift = up(least + _SHARP * UNIT * Ball.exact(W).frobenius())
    M = W.copy()
    M[np.diag_indices(len(W))] -= shift
    root = root_of(M)
    if root is None:
        return False
    distance = (Ball.exact(W) - Ball.exact(root) @ root.T - shift * np.eye(len(W))).frobenius()
    return down(shift - distance) >= least


def _step(W: Array) -> float:
    """Return a distance from an eigenvalue at which a factorization proves it, in spite of round-off."""
    n, size = len(W), float(np.abs(W).max())
    return 4 * inflated(gamma(n + 2) * (float(np.abs(W.diagonal()).sum()) + UNIT * size)) + TINY


def least_eigenvalue(W: Ball, at_least: float | None = None) -> float:
    """Return a proven lower bound on the eigenvalues, ``-inf`` where the radius is infinite.

    Parameters
    ----------
    W : Ball of shape (n, n)
        Symmetric.
    at_least : float, optional
        No larger bound is needed: a factorization at this shift replaces the eigenvalues if it ends.
    """
    n = len(W.mid)
    if n == 0:
        return math.inf
    occupied = (W.mid != 0).any(axis=0) | (W.rad != 0).any(axis=0)
    if not occupied.all():  # the others have the eigenvalue zero
        return min(0.0, least_eigenvalue(W[np.ix_(occupied, occupied)], at_least))
    spread = Ball(np.zeros_like(W.mid), W.rad).symmetric_norm()
    size = float(np.abs(W.mid).max())
    if not (math.isfinite(spread) and math.isfinite(size)):
        return -math.inf
    if n == 1:
        return float(W.lo[0, 0])
    step = _step(W.mid)
    if at_least is not None:
        found = proven_shift(W.mid, at_least + 2 * spread + step)
        if found is not None and found - inflated(spread) > at_least:
            return found - inflated(spread) - UNIT * abs(found)
    estimate = float(np.linalg.eigvalsh(W.mid)[0])
    step += gamma(n + 2) * n * abs(estimate)
    for _ in range(_TRIALS):
        found = proven_shift(W.mid, estimate - step)
        if found is not None:
            below = found - inflated(spread)
            return below - UNIT * abs(below)
        step *= _GROWTH
    rows = inflated(np.abs(W.mid).sum(axis=1) * (1 + gamma(n + 1)))  # Gershgorin's discs
    return -float(rows.max()) - inflated(spread)


def eigenvalues(W: Ball) -> Ball:
    """Return enclosures of the eigenvalues, in ascending order.

    Let ``Q`` be the computed eigenvectors, ``D`` the computed eigenvalues, and ``H`` the polar factor of
    ``Q``, orthogonal with ``||Q - H|| <= ||Q'Q - I|| = delta`` for ``delta < 1`` (Higham 2008, Functions of
    Matrices, lemma 8.17). Then ``W - H D H'`` has a norm of at most ``||W - Q D Q'|| + delta (2 + delta)
    ||D||``, and Weyl's inequality bounds each eigenvalue.
    """
    values, distance = decomposition(W)[1:]
    return Ball(values, np.full(len(values), distance))


def decomposition(W: Ball) -> tuple[Array, Array, float]:
    """Return ``Q``, ``d`` and a bound on ``||W - H diag(d) H'||``, ``H`` the orthogonal factor of ``Q``.

    ``H`` is as close to ``Q`` as :func:`orthogonality` says.
    """
    n = len(W.mid)
    if not np.isfinite(W.rad).all():
        return np.eye(n), np.zeros(n), math.inf
    d, Q = np.linalg.eigh(W.mid)
    delta = orthogonality(Q)
    if not delta < 0.5:
        return Q, d, math.inf
    residual = (W - (Ball.exact(Q) * d) @ Q.T).frobenius()
    size = float(np.abs(d).max(initial=0.0))
    return Q, d, inflated(residual + delta * (2 + delta) * size)


def orthogonality(Q: Array) -> float:
    """Return an upper bound on ``||Q'Q - I||``, which bounds the distance from an orthogonal matrix."""
    return (Ball.exact(Q.T) @ Q - np.eye(Q.shape[1])).frobenius()


def triangular_inverse(W: Array) -> Array | None:
    """Return an approximate inverse of the lower Cholesky factor, lower triangular; None without a factor."""
    from scipy.linalg import lapack

    root = root_of(W)
    if root is None:
        return None
    inverse, info = lapack.dtrtri(root, lower=1)
    found: Array = np.tril(inverse)
    return found if info == 0 and np.isfinite(found).all() and (found.diagonal() > 0).all() else None


def log_det(W: Ball) -> Ball:
    """Return the logarithm of the determinant; an infinite radius where no matrix is proven definite.

    For any lower triangular ``Y``, ``logdet W = logdet(I + F) - 2 sum_i log Y_ii`` with
    ``F = Y W Y' - I``, and ``|logdet(I + F) - tr F| <= ||F||_F^2 / (2 (1 - ||F||_F))`` (the series of the
    logarithm). ``Y`` is the inverse of the computed Cholesky factor.
    """
    nothing = Ball(np.asarray(0.0), np.asarray(math.inf))
    Y = triangular_inverse(W.mid) if np.isfinite(W.rad).all() else None
    if Y is None:
        return nothing
    return near_identity(whitened(Y, W)) - 2 * log(Ball.exact(Y.diagonal())).sum()


def whitened(Y: Array, W: Ball) -> Ball:
    """Return ``Y W Y' - I``."""
    return Ball.exact(Y) @ W @ Y.T - np.eye(len(Y))


def near_identity(F: Ball) -> Ball:
    """Return ``logdet(I + F)`` of symmetric ``F`` of Frobenius norm below one."""
    size = F.frobenius()
    if not size < 0.5:
        return Ball(np.asarray(0.0), np.asarray(math.inf))
    trace = F[np.diag_indices(len(F.mid))].sum()
    return Ball(trace.mid, np.asarray(inflated(trace.rad + size * size / (2 * (1 - size)))))
