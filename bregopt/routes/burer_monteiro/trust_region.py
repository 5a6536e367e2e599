"""The Riemannian trust-region method: each step by truncated conjugate gradients (Absil et al. 2007).

To a tolerance of 1e-6 it takes as long as the faster of two alternatives: sweeps over the rows of ``R``, one
color of the graph at a time, and a limited-memory quasi-Newton method. Beyond 1e-6 these slow down; it does
not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import checkpoint
from bregopt.routes.burer_monteiro.lagrangian import Lagrangian, Point

__all__ = ["descend"]


class _Step(NamedTuple):
    D: Array
    predicted: float
    at_boundary: bool


def descend(L: Lagrangian, at: Point, tol: float) -> Iterator[Point]:
    """Yield the points of the method until the gradient norm is `tol`, or only round-off is left."""
    tuning = L.surface.tuning
    largest = np.sqrt(L.surface.trace)
    radius = tuning.first_radius * largest
    while at.gradient_norm > tol and radius > tuning.least_radius * largest:
        step = _step(L, at, radius)
        new = L.retract(at.R + step.D)
        noise = at.round_off
        if step.predicted <= noise and new.gradient_norm > at.gradient_norm / 2:
            return
        ratio = (at.value - new.value + noise) / (step.predicted + noise)
        if L.surface.plane_distance(new.R) > tuning.plane_distance:
            ratio = 0.0
        if ratio < tuning.shrink_ratio:
            radius /= 4
        elif ratio > tuning.grow_ratio and step.at_boundary:
            radius = min(2 * radius, largest)
        if ratio > tuning.accepted_ratio:
            at = new
        yield at


def _step(L: Lagrangian, at: Point, radius: float) -> _Step:
    """Return an approximate minimizer of the quadratic model in the trust region (Steihaug 1983)."""
    tuning = L.surface.tuning
    shift = at.slack.diagonal()[:, None] - at.sphere_multipliers
    M = np.maximum(shift, tuning.preconditioner_floor * float(np.abs(shift).max()) + TINY)
    # The region is a ball in the preconditioner's norm, in which the conjugate gradient iterates grow.
    square_radius = radius**2 * float(np.median(M))
    D, HD, r = np.zeros_like(at.R), np.zeros_like(at.R), at.gradient.copy()
    z = at.tangent.project(r / M)
    rz = float(np.vdot(r, z))
    first, d = rz, -z
    DD, Dd, dd = 0.0, 0.0, rz
    relative = first / float(M.max()) / L.surface.trace
    target = first * min(tuning.cg_residual, relative ** (tuning.cg_exponent / 2)) ** 2
    at_boundary = False
    for _ in range(tuning.hessian_products):
        checkpoint()
        Hd = L.hessian_product(at, d)
        curvature = float(np.vdot(d, Hd))
        length = rz / curvature if curvature > 0 else np.inf
        if curvature <= 0 or DD + length * (2 * Dd + length * dd) >= square_radius:
            length = (-Dd + np.sqrt(Dd**2 + dd * (square_radius - DD))) / dd
            at_boundary = True
        D += length * d
        HD += length * Hd
        if at_boundary:
            break
        r += length * Hd
        DD += length * (2 * Dd + length * dd)
        z = at.tangent.project(r / M)
        rz, before = float(np.vdot(r, z)), rz
        if rz <= target:
            break
        d = -z + (rz / before) * d
        Dd = (rz / before) * (Dd + length * dd)
        dd = rz + (rz / before) ** 2 * dd
    predicted = -2 * float(np.vdot(at.gradient, D)) - float(np.vdot(D, HD))
    return _Step(D, predicted, at_boundary)
