"""The inverse of an approximate Hessian, from second moments of the rows.

For Gaussian vectors ``z`` of second moment ``S``, ``E <A, zz'> zz' = 2 S A S + tr(A S) S``. With ``k`` the
sum of the rows' second derivatives, the Hessian is then near ``A -> K(A) + k (2 S A S + tr(A S) S)``, with
``K`` the divergence's part: ``inv(M) A inv(M)`` for LogDet. One generalized eigendecomposition inverts that.
For von Neumann, ``K`` is near ``M^(-1/2) A M^(-1/2)``, which preconditions conjugate gradients. It is that up
to ratios of geometric to logarithmic means of eigenvalues: with it alone, L-BFGS stalls at wide spectra.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bregopt.arrays import Array
from bregopt.routes.quasi_newton.curves import Exponential
from bregopt.routes.quasi_newton.objective import Point

__all__ = ["preconditioner", "relative_curvature"]

_ACCURACY, _STEPS = 1e-4, 30  # of conjugate gradients, of order r^3 each: relative square of the error

Operator = Callable[[Array], Array]


def relative_curvature(at: Point, exponential: bool) -> float:
    """Return the largest eigenvalue of ``2 k S A S`` relative to ``N A N``, in the notation of the module."""
    root = _fourth_root(Exponential(at.root)) if exponential else at.root
    d = np.linalg.eigvalsh(root.T @ at.curvature @ root)
    return 2 * float(d[-1]) ** 2 / (at.weight or 1.0)


def preconditioner(at: Point, exponential: bool) -> Operator:
    """Return the inverse of the approximate Hessian: von Neumann's if `exponential`, LogDet's otherwise."""
    if not exponential:
        return _two_term_inverse(at, at.root)
    curve = Exponential(at.root)
    U, means, H, k = curve.U, curve.means, at.curvature, at.weight or 1.0

    def hessian(A: Array) -> Array:
        own = U @ ((U.T @ A @ U) / means) @ U.T
        total: Array = own + (2 * H @ A @ H + np.vdot(H, A) * H) / k
        return total

    near = _two_term_inverse(at, _fourth_root(curve))
    return lambda G: _conjugate_gradients(hessian, near, G)


def _fourth_root(curve: Exponential) -> Array:
    """Return ``R`` with ``(R R')^2 = M``."""
    root: Array = curve.U * np.exp(curve.logs / 4)
    return root


def _two_term_inverse(at: Point, root: Array) -> Operator:
    """Return the inverse of ``A -> N A N + k (2 S A S + tr(A S) S)`` for ``N = inv(root root')``."""
    d, Q = np.linalg.eigh(root.T @ at.curvature @ root)
    T = root @ Q  # T' N T = I and T' (k S) T = diag(d)
    d = np.maximum(d, 0.0)
    k = at.weight or 1.0
    spread = 1 + 2 * np.outer(d, d) / k
    along = d / spread.diagonal()
    correction = along / math.sqrt(k + float(d @ along))  # Sherman and Morrison, for the trace

    def solve(G: Array) -> Array:
        R = T.T @ G @ T
        B = R / spread
        B[np.diag_indices(len(d))] -= correction * float(correction @ R.diagonal())
        step: Array = T @ B @ T.T
        return step

    return solve


def _conjugate_gradients(operator: Operator, near: Operator, G: Array) -> Array:
    """Return the preconditioned conjugate gradient approximation of the inverse operator at `G`."""
    A = near(G)
    r = G - operator(A)
    p = near(r)
    square, limit = float(np.vdot(r, p)), _ACCURACY * float(np.vdot(G, A))
    for _ in range(_STEPS):
        if not square > limit:
            break
        image = operator(p)
        alpha = square / float(np.vdot(p, image))
        A, r = A + alpha * p, r - alpha * image
        z = near(r)
        square, last = float(np.vdot(r, z)), square
        p = z + (square / last) * p
    return A
