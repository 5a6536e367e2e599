"""The step of Newton's method for products ``R R'`` whose rows are in balls.

A row that is at its radius, with a multiplier, moves in the tangent plane of its sphere. On these planes the
Hessian of the Lagrangian of ``||off(B - R R')||_F^2`` is, with ``q_i = ||r_i||^2`` and multipliers ``mu``,

    H D = 4 (D R'R + R (D'R + R'D) - (off(B) + Diag(q)) D - 2 Diag(<r_i, d_i>) R) + Diag(mu) D.

Conjugate gradients solve ``H D = -G`` to a residual that decreases with the gradient (Dembo and Steihaug
1983). At an optimum the columns of ``R`` are, after a rotation, eigenvectors of ``off(B) + Diag(q)``, of the
largest eigenvalues ``g_i``. For a direction orthogonal to ``R``, column i of ``H D`` is then
``4 (g_i I - off(B) - Diag(q)) d_i``. Where the next eigenvalues are near ``g_i`` the equation is ill
conditioned. The preconditioner therefore inverts this part on approximate leading eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bregopt.arrays import TINY, Array, Mask
from bregopt.clock import checkpoint
from bregopt.problems.correlation.descent import Objective
from bregopt.problems.correlation.leading import Leading

__all__ = ["BallPoint", "newton_step"]

_PRODUCTS = 100  # limit on the products with the Hessian in a step
_FORCING = 0.1  # largest relative residual of the equation
_LEAST = 0.01  # of the preconditioner's eigenvalues, relative to the largest
_NEAR = 1e-3  # share of a squared radius that a row may lack to count as at its radius, at most


class BallPoint:
    """A factor with rows in balls, the objective there and its gradient."""

    def __init__(self, objective: Objective, R: Array, radius: Array) -> None:
        self.R, self.radius = R, radius
        self.value, self.gradient, self.gram = objective.at(R)
        self.q = np.einsum("ij,ij->i", R, R)

    def active(self, near: float) -> tuple[Mask, Array]:
        """Return the mask of rows that are at their radius and would leave the ball, and all multipliers."""
        inward = np.einsum("ij,ij->i", self.R, self.gradient)
        square = self.radius**2
        active = (self.q >= (1 - min(near, _NEAR)) * square) & (inward < 0)
        return active, np.where(active, -inward / square, 0.0)


def newton_step(objective: Objective, at: BallPoint, leading: Leading, residual: float) -> Array:
    """Return an approximate solution of Newton's equation; a direction of descent.

    Parameters
    ----------
    objective : Objective
    at : BallPoint
    leading : Leading
        Eigenvectors of ``off(B)``.
    residual : float
        The relative residual of the optimality conditions.
    """
    B = objective.B
    g, W = np.linalg.eigh(at.gram)
    R = at.R @ W  # its columns are orthogonal, and ``R'R = Diag(g)``
    active, multipliers = at.active(residual)
    some = bool(active.any())
    normal = np.where(active, 1 / np.maximum(at.q, TINY), 0.0)
    own = g + (multipliers / 4 - at.q)[:, None]

    def tangent(D: Array) -> Array:
        return D - (normal * np.einsum("ij,ij->i", R, D))[:, None] * R if some else D

    def hessian(D: Array) -> Array:
        """Return a quarter of the product."""
        cross = R.T @ D
        HD = own * D - B @ D
        HD += R @ (cross + cross.T)
        HD -= (2 * np.einsum("ij,ij->i", R, D))[:, None] * R
        return tangent(HD)

    inverse = _preconditioner(R, g, at.q, leading)
    forcing = min(_FORCING, np.sqrt(residual))
    D = _solved(hessian, lambda D: tangent(inverse(D)), -tangent(at.gradient @ W) / 4, forcing)
    return np.asarray(D @ W.T)


def _preconditioner(R: Array, g: Array, q: Array, leading: Leading) -> Callable[[Array], Array]:
    """Return an approximate inverse of a quarter of the Hessian, which is positive definite.

    Along a leading eigenvector ``u_j`` of ``off(B) + Diag(q)`` the quarter is ``g_i - theta_j`` outside the
    range of ``R``, and ``g_i + theta_j`` inside of it. Along all others it is about ``g_i``.
    """
    least = max(_LEAST * float(g[-1]), TINY)
    g = np.maximum(g, least)
    U, theta = leading.U, leading.theta + leading.squares @ q
    inside = np.square(U.T @ R / np.sqrt(g)).sum(axis=1)
    curvature = np.maximum(g - ((1 - 2 * np.minimum(inside, 1.0)) * theta)[:, None], least)
    outer, inner = 1 / g, 1 / curvature - 1 / g

    def inverse(D: Array) -> Array:
        return np.asarray(outer * D + U @ (inner * (U.T @ D)))

    return inverse


def _solved(
    hessian: Callable[[Array], Array], inverse: Callable[[Array], Array], right: Array, forcing: float
) -> Array:
    """Return the iterate of conjugate gradients that meets the residual, or before a negative curvature."""
    D, r = np.zeros_like(right), right.copy()
    z = p = inverse(r)
    rz = float(np.vdot(r, z))
    enough = forcing**2 * rz
    for step in range(_PRODUCTS):
        checkpoint()
        Hp = hessian(p)
        curvature = float(np.vdot(p, Hp))
        if curvature <= 0:
            return p if step == 0 else D
        alpha = rz / curvature
        D += alpha * p
        r -= alpha * Hp
        z = inverse(r)
        rz, old = float(np.vdot(r, z)), rz
        if rz <= enough:
            break
        p = z + (rz / old) * p
    return D
