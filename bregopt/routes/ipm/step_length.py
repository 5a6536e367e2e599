"""The step length at which a matrix leaves the cone, by the cheapest method at its order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.linalg import dense
from bregopt.program import Face
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["dual_length", "length_to_boundary", "primal_length"]


def primal_length(
    X: Array, root: Array, step: Array, face: Face, tol: float, tuning: InteriorPointTuning
) -> float:
    """Return approximately the largest ``alpha`` with ``X + alpha step`` psd on the face.

    `root` is the Cholesky factor of ``X`` on the face.
    """
    if len(root) < tuning.lanczos_order:
        return _step_length(X, step, root, face, tol, tuning)
    L = np.asfortranarray(root)

    def operator(v: Array) -> tuple[Array, Array]:
        """Return ``inv(L) V' step V inv(L)' v``."""
        inner, _ = lapack.dtrtrs(L, v, lower=1, trans=1)
        w, _ = lapack.dtrtrs(L, face.project(step @ face.embed(inner)), lower=1)
        return w, w

    start = _random_vector(len(L))
    return length_to_boundary(_least_eigenvalue(operator, start, start, tuning))


def dual_length(
    Z: Array, root: Array, K: Array, step: Any, face: Face, tol: float, tuning: InteriorPointTuning
) -> float:
    """Return approximately the largest ``alpha`` with ``Z + alpha step`` psd on the face; ``K = inv(Z)``."""
    if len(root) < tuning.lanczos_order:
        return _step_length(Z, step, root, face, tol, tuning)

    def operator(v: Array) -> tuple[Array, Array]:
        """Return ``K step v``, self-adjoint in the inner product of ``Z``, and ``Z`` times that."""
        Sv = step @ v
        return K @ Sv, Sv

    start = _random_vector(len(Z))
    return length_to_boundary(_least_eigenvalue(operator, K @ start, start, tuning))


def _step_length(
    S: Array, step: Any, root: Array, face: Face, tol: float, tuning: InteriorPointTuning
) -> float:
    """Return approximately the largest ``alpha`` with ``S + alpha step`` psd on the face.

    `root` is the Cholesky factor of `S` on the face.
    """
    if len(root) >= tuning.trial_order:
        return _step_length_by_trials(face.compress(S), face.compress(dense(step)), tol, tuning)
    if len(root) == 0:
        return math.inf
    half, _ = lapack.dtrtrs(root, face.compress(dense(step)), lower=1)
    scaled, _ = lapack.dtrtrs(root, half.T, lower=1)
    return length_to_boundary(float(lapack.dsyevr(scaled, compute_v=0, range="I", il=1, iu=1)[0][0]))


def length_to_boundary(least: float) -> float:
    """Return the largest ``alpha`` with ``1 + alpha least >= 0``."""
    return math.inf if least >= 0 else -1 / least


def _step_length_by_trials(S: Array, step: Array, tol: float, tuning: InteriorPointTuning) -> float:
    """Return a step length at which the Cholesky factorization succeeds, the longest up to a relative `tol`.

    A failed trial gives a ``v`` with ``v'(S + alpha step)v < 0``, which bounds all step lengths by
    ``-v'Sv / v'step v``. The next trial is just below this bound.
    """
    trial = np.empty_like(S)
    alpha = full = 1 / tuning.least_step_fraction
    while alpha > tuning.least_step:
        np.multiply(step, alpha, out=trial)
        np.add(trial, S, out=trial)
        L, failed = lapack.dpotrf(trial.T, lower=1, clean=0, overwrite_a=1)
        if failed == 0:
            return math.inf if alpha == full else alpha
        v = np.ones(failed)  # in the coordinates of the leading minor that is not positive
        if failed > 1:
            v[:-1] = -lapack.dtrtrs(
                L[: failed - 1, : failed - 1], L[failed - 1, : failed - 1], lower=1, trans=1
            )[0]
        decrease = -float(v @ (step[:failed, :failed] @ v))
        bound = float(v @ (S[:failed, :failed] @ v)) / decrease if decrease > 0 else math.inf
        alpha = (1 - tol) * min(alpha, bound)
    return 0.0


def _random_vector(n: int) -> Array:
    v: Array = np.random.default_rng(0).normal(size=n)
    return v


def _least_eigenvalue(
    operator: Callable[[Array], tuple[Array, Array]], w: Array, dual_w: Array, tuning: InteriorPointTuning
) -> float:
    """Return a lower estimate of the smallest eigenvalue of an operator by Lanczos's method.

    The estimate is the Ritz value less its residual, as soon as that is a fraction of it (Toh 2002).

    Parameters
    ----------
    operator : callable
        Symmetric in some inner product. It returns the image of a vector, and the product of the image with
        the matrix of the inner product.
    w, dual_w : array of shape (n,)
        The starting vector, and its product with the matrix of the inner product.
    tuning : InteriorPointTuning
    """
    steps, tol = tuning.lanczos_steps, tuning.lanczos_tol
    basis = np.zeros((steps + 1, len(w)))
    dual = basis if dual_w is w else np.zeros_like(basis)
    alpha, beta = np.zeros(steps), np.zeros(steps)
    estimate = 0.0
    for k in range(steps):
        checkpoint()
        size = math.sqrt(max(float(w @ dual_w), 0.0))
        if k > 0:
            beta[k - 1] = size
        if k > 0 and (k % 2 == 0 or size == 0):  # Ritz values cost as much as a step
            ritz, vectors, _ = lapack.dstev(alpha[:k], beta[: k - 1])
            residual = size * abs(float(vectors[-1, 0]))
            estimate = float(ritz[0]) - residual
            if residual <= tol * max(abs(float(ritz[0])), tol) or size == 0:
                break
        basis[k], dual[k] = w / size, dual_w / size
        w, dual_w = operator(basis[k])
        alpha[k] = float(w @ dual[k])
        for _ in range(2):
            coefficients = dual[: k + 1] @ w
            w = w - coefficients @ basis[: k + 1]
            dual_w = w if dual is basis else dual_w - coefficients @ dual[: k + 1]
    return estimate
