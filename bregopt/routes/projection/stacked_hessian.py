"""Hessians of the duals of a stack of problems: products, diagonals, and Newton's equation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import checkpoint
from bregopt.divergences.stacks import StackedDerivative
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["hessian_diagonal", "hessian_product", "stacked_conjugate_gradients"]


def hessian_product(stack: EntryStack, derivative: StackedDerivative, v: Array) -> Array:
    """Return the products with the negative Hessians of the dual functions, shape (B, m)."""
    P, V = derivative.P, derivative.V
    SV = v[:, :, None] * V if stack.alone else stack.adjoint(v) @ V
    R = V @ np.swapaxes((np.swapaxes(P, 1, 2) @ SV) * derivative.G, 1, 2)
    if stack.alone:
        product = 2 * np.einsum("bip,bip->bi", P, R)
    else:
        M = stack.apply(P @ np.swapaxes(R, 1, 2))
        product = M + (R @ np.swapaxes(P, 1, 2))[:, stack.i, stack.j]
    weight = np.where(stack.i == stack.j, 1.0, 0.5)
    return derivative.sign[:, None] * product + derivative.share[:, None] * weight * v


def hessian_diagonal(stack: EntryStack, derivative: StackedDerivative, tuning: ProjectionTuning) -> Array:
    """Return the approximate diagonals of these Hessians, bounded away from zero, shape (B, m)."""
    P, V = derivative.P**2, derivative.V**2
    half = P @ derivative.G
    if stack.alone:
        both = 2 * np.einsum("bin,bin->bi", half, V)
    else:
        full = half @ np.swapaxes(V, 1, 2)
        both = stack.apply(full) + full[:, stack.j, stack.i]
    weight = np.where(stack.i == stack.j, 1.0, 0.5)
    diagonal = weight * (derivative.sign[:, None] * both + derivative.share[:, None])
    least = tuning.least_curvature * np.abs(diagonal).max(axis=1, keepdims=True)
    return np.maximum(diagonal, np.maximum(least, TINY))


def stacked_conjugate_gradients(
    product: Callable[[Array], Array], right: Array, diagonal: Array, forcing: Array, limit: int
) -> Array:
    """Solve positive semidefinite systems, preconditioned by their diagonals, to relative residuals.

    A component whose right-hand side is zero because its multiplier is at an end stays zero.
    """
    free = right != 0
    x, r = np.zeros_like(right), right.copy()
    z = r / diagonal
    p = z
    rz = (r * z).sum(axis=1)
    enough = forcing**2 * rz
    for _ in range(limit):
        active = rz > enough
        if not active.any():
            break
        checkpoint()
        Hp = np.where(free, product(p), 0.0)
        curvature = (p * Hp).sum(axis=1)
        active &= curvature > 1e-14 * (p * p * diagonal).sum(axis=1)
        alpha = np.where(active, rz / np.where(active, curvature, 1.0), 0.0)[:, None]
        x += alpha * p
        r -= alpha * Hp
        z = r / diagonal
        new = (r * z).sum(axis=1)
        p = z + np.where(active, new / np.maximum(rz, TINY), 0.0)[:, None] * p
        rz = np.where(active, new, 0.0)
    return x
