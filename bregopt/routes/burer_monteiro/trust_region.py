"""The minimization of the Lagrangian at a given rank.

A Riemannian trust-region method takes each step by truncated conjugate gradients (Absil et al. 2007). To a
tolerance of 1e-6 it takes as long as the faster of two alternatives: sweeps over the rows of ``R``, one color
of the graph at a time, and a limited-memory quasi-Newton method. Beyond 1e-6 these slow down; it does not.

Half of the Hessian has a block for each row ``r_i`` of ``R``,

    B_i = s_i I + 2 sum over active rows k of  rho_k u_ki u_ki',    u_ki = (A_k R)_i,

with the diagonal entry ``s_i`` of the curvature. Penalties make the blocks far from multiples of the
identity. So they precondition the conjugate gradients. Woodbury's formula inverts them. Theta of random
graphs and small worlds takes a third to a sixth of the products that a diagonal takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.clock import checkpoint
from bregopt.routes.burer_monteiro.lagrangian import Lagrangian, Point

# Radius at which a stage ends, relative to the norm of ``R``.
_LEAST_RADIUS = 1e-10
# Residual that ends a step's conjugate gradients, relative to the first one.
_CG_RESIDUAL = 0.1
# Norm of the predicted gradient, relative to the one at which the stage ends, that needs no further product.
_ENOUGH = 0.5
# Distance from the planes, relative to the norm of ``R``, beyond which a step is refused. The retraction
# has failed then.
_PLANE_DISTANCE = 1e-12
# Number of shorter steps that are kept in case the whole step is refused.
_KEPT = 2
# Products with the Hessian after which the blocks are computed again. That takes as long as three products.
_STALE = 5


class _Step(NamedTuple):
    """A step with the terms of the model, ``curvature - 2 slope`` in all, and its length."""

    D: Array
    slope: float
    curvature: float
    length: float

    @property
    def predicted(self) -> float:
        """The decrease of the model."""
        return 2 * self.slope - self.curvature

    def halved(self) -> _Step:
        """Return half of the step."""
        return _Step(self.D / 2, self.slope / 2, self.curvature / 4, self.length / 2)


def descend(L: Lagrangian, at: Point, tol: float) -> Iterator[Point]:
    """Yield the points of the method until the gradient norm is `tol`, or only round-off is left."""
    tuning, largest = L.surface.tuning, float(np.sqrt(L.surface.trace))
    radius, products, blocks = tuning.first_radius * largest, 0, Blocks(L, at)
    while at.gradient_norm > tol and radius > _LEAST_RADIUS * largest:
        largest = max(largest, float(np.linalg.norm(at.R)))
        if products > _STALE:
            products, blocks = 0, Blocks(L, at)
        steps, at_boundary, count = _path(L, at, blocks, radius, tol)
        products += count
        noise, longest = at.round_off, steps[-1].length
        # A shorter step takes no further product.
        while True:
            step = steps.pop()
            new = L.retract(at.R + step.D)
            if step.predicted <= noise and new.gradient_norm > at.gradient_norm / 2:
                return
            ratio = (at.value - new.value + noise) / (step.predicted + noise)
            if L.surface.plane_distance(new.R) > _PLANE_DISTANCE:
                ratio = 0.0
            if ratio > tuning.accepted_ratio or step.length < _LEAST_RADIUS * largest:
                break
            if not steps:
                steps.append(step.halved())
        if ratio < tuning.shrink_ratio:
            radius = step.length / 2
        elif step.length < longest:
            radius = step.length
        elif ratio > tuning.grow_ratio and at_boundary:
            radius = min(2 * radius, largest)
        if ratio > tuning.accepted_ratio:
            at = new
        yield at


def _path(
    L: Lagrangian, at: Point, blocks: Blocks, radius: float, tol: float
) -> tuple[list[_Step], bool, int]:
    """Return minimizers of the model in regions of increasing radii (Steihaug 1983), and of `radius` at last.

    The conjugate gradient iterates grow in the norm of the preconditioner, and the regions are balls in it.
    So an iterate is the approximate minimizer of the region at whose boundary it is. The others are whether
    the last one is at the boundary, and the number of products.
    """
    tuning = L.surface.tuning
    unit, square_radius = blocks.unit, radius**2 * blocks.unit
    D, r = np.zeros_like(at.R), at.gradient.copy()  # r is the gradient of the model at D
    z = at.tangent.project(blocks.solve(r))
    rz = float(np.vdot(r, z))
    first, d = rz, -z
    DD, Dd, dd = 0.0, 0.0, rz
    relative = at.gradient_norm / (blocks.largest * np.sqrt(L.surface.trace))
    ratio = max(min(_CG_RESIDUAL, relative**tuning.cg_exponent), _ENOUGH * tol / at.gradient_norm)
    target = first * min(ratio, _CG_RESIDUAL) ** 2
    steps: list[_Step] = []
    at_boundary, count = False, 0

    def reached() -> _Step:
        slope = -float(np.vdot(at.gradient, D))
        return _Step(D.copy(), slope, float(np.vdot(r, D)) + slope, float(np.sqrt(DD / unit)))

    while count < tuning.hessian_products:
        checkpoint()
        count += 1
        Hd = L.hessian_product(at, d)
        curvature = float(np.vdot(d, Hd))
        length = rz / curvature if curvature > 0 else np.inf
        at_boundary = curvature <= 0 or DD + length * (2 * Dd + length * dd) >= square_radius
        if at_boundary:
            length = (-Dd + np.sqrt(Dd**2 + dd * (square_radius - DD))) / dd
        D += np.multiply(d, length, out=z)
        r += np.multiply(Hd, length, out=Hd)
        DD += length * (2 * Dd + length * dd)
        if at_boundary:
            break
        z = at.tangent.project(blocks.solve(r))
        rz, before = float(np.vdot(r, z)), rz
        if rz <= target:
            break
        if not steps or DD >= 4 * unit * steps[-1].length ** 2:
            steps = [*steps[1 - _KEPT :], reached()]
        d *= rz / before
        d -= z
        Dd = (rz / before) * (Dd + length * dd)
        dd = rz + (rz / before) ** 2 * dd
    return [*steps, reached()], at_boundary, count


class Blocks:
    """The inverse of the Hessian's blocks on the diagonal.

    Rows of full vectors have no part in them.

    Parameters
    ----------
    L : Lagrangian
    at : Point

    Attributes
    ----------
    unit, largest : float
        The median and the maximum of the entries ``s_i``.
    """

    def __init__(self, L: Lagrangian, at: Point) -> None:
        shift = at.slack.diagonal()[:, None] - at.sphere_multipliers
        floor = L.surface.tuning.preconditioner_floor * float(np.abs(shift).max()) + TINY
        self._shift = np.maximum(shift, floor)
        self.unit, self.largest = float(np.median(self._shift)), float(self._shift.max())
        self._parts: list[tuple[IntArray, Array]] = []
        if not at.penalties.any():
            return
        P, row, start = L.rows.vertex_terms
        U = (P @ at.R) * np.sqrt(2 * at.penalties[row])[:, None]
        counts = np.diff(start)
        for count in np.unique(counts[counts > 0]).tolist():
            own = np.flatnonzero(counts == count)
            V = U[start[own][:, None] + np.arange(count)]
            if count > V.shape[2]:
                V = np.linalg.qr(V, mode="r")  # of the same products V'V
            # (s I + V'V)^-1 = (I - W'W) / s,  W = L^-1 V,  L L' = s I + V V'
            K = V @ V.transpose(0, 2, 1) + self._shift[own, :, None] * np.eye(V.shape[1])
            self._parts.append((own, np.linalg.inv(np.linalg.cholesky(K)) @ V))

    def solve(self, V: Array) -> Array:
        """Return the inverse blocks times the rows of ``V``."""
        product = V.copy()
        for own, W in self._parts:
            part = V[own][:, :, None]
            product[own] -= (W.transpose(0, 2, 1) @ (W @ part))[:, :, 0]
        product /= self._shift
        return product
