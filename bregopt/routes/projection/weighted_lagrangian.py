"""Augmented Lagrangian for weighted nearness, each round by a semismooth Newton method (Qi and Sun 2010).

The unknown ``Y`` need not be psd. With a multiplier ``Z`` of ``Y psd``, multipliers ``y`` of the rows and a
penalty parameter ``sigma`` each round minimizes over the box

    f(Y) + ||P(Z - sigma Y)||^2 / (2 sigma) + the penalties of the rows,

where ``P`` is the psd part. The next ``Z`` is ``P(Z - sigma Y)``, which is psd, so every point has a bound.
Conjugate gradients solve Newton's equation ``(K + sigma P' + B' slope B) D = -gradient`` in the entries
inside the box; steps are clipped to the box.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.cache import cached_property
from bregopt.clock import checkpoint
from bregopt.records import dataclass
from bregopt.routes.projection.scaled_nearness import Response, ScaledNearness
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["AugmentedLagrangian"]

_Linear = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class _Point:
    """A matrix, the eigenvalues and eigenvectors of ``Z - sigma Y``, the rows' terms and the value."""

    Y: Array
    theta: Array
    V: Array
    rows: Response
    value: float

    @cached_property
    def negative(self) -> int:
        """The number of eigenvalues that are not positive."""
        return int(np.searchsorted(self.theta, 0.0, side="right"))

    @cached_property
    def Z(self) -> Array:
        """The next multiplier, the psd part of ``Z - sigma Y``."""
        half = self.V[:, self.negative :] * np.sqrt(self.theta[self.negative :])
        Z: Array = half @ half.T
        return Z

    def psd_part(self, sigma: float) -> Array:
        """Return the psd part of ``Y - Z / sigma``."""
        half = self.V[:, : self.negative] * np.sqrt(-self.theta[: self.negative] / sigma)
        Y: Array = half @ half.T
        return Y

    def derivative(self, sigma: float, inverse: bool) -> _Linear:
        """Return ``sigma`` times the derivative of the psd part, or the inverse of that plus the identity.

        In the basis of eigenvectors it multiplies each entry: by one for two positive eigenvalues, by zero
        for two others, by ``a / (a + b)`` for ``a`` and ``-b``. Only the eigenvectors of the smaller group
        are needed.
        """
        k, n = self.negative, len(self.theta)
        positive, negative = slice(k, n), slice(0, k)
        few, many = (positive, negative) if n - k <= k else (negative, positive)
        F, M = np.ascontiguousarray(self.V[:, few]), np.ascontiguousarray(self.V[:, many])
        above, below = np.maximum(self.theta, 0.0), np.maximum(-self.theta, 0.0)
        share = (above[many, None] + above[few]) / np.maximum(
            (above + below)[many, None] + (above + below)[few], TINY
        )
        both = float(n - k <= k)

        def factor(share: Any) -> Any:
            return 1 / (1 + sigma * share) if inverse else sigma * share

        base, corner = factor(1 - both), factor(both)
        cross = factor(share) - base

        def product(D: Array) -> Array:
            half = D @ F
            L = F @ ((corner - base) / 2 * (F.T @ half)) + M @ (cross * (M.T @ half))
            moved = L @ F.T
            total: Array = moved + moved.T
            if base:
                total += base * D
            return total

        return product


class AugmentedLagrangian:
    """The rounds of the method, with the primal and the dual point after each.

    Parameters
    ----------
    scaled : ScaledNearness
    Z, y : array of shape (n, n), array of shape (m,)
        The first multipliers, scaled.
    limit : int
        Limit on Newton steps.
    tuning : ProjectionTuning

    Attributes
    ----------
    Y : array of shape (n, n)
        A psd matrix that satisfies the rows approximately.
    Z, y
        The multipliers.
    steps : int
        Newton steps so far.
    moved : float
        Distance of the last round's ``Y`` from the psd cone and the rows.
    """

    def __init__(
        self, scaled: ScaledNearness, Z: Array, y: Array, limit: int, tuning: ProjectionTuning
    ) -> None:
        self._scaled, self._limit, self._tuning = scaled, limit, tuning
        self.Z, self.y = Z, y
        self._sigma, self._damping = tuning.first_penalty, tuning.first_damping
        self._Y = self.Y = scaled.target
        self.steps, self.moved = 0, np.inf

    def round(self) -> None:
        """Minimize the augmented Lagrangian, and update the multipliers."""
        at, settled, at_round_off, least = self._point(self._Y), False, False, np.inf
        tuning = self._tuning
        zero = tuning.zero_gradient * float(np.linalg.norm(self._scaled.L))
        for _ in range(tuning.round_steps):
            gradient = self._gradient(at)
            free = self._free(at, gradient)
            size = float(np.linalg.norm(free * gradient))
            self.moved = self._distance(at)
            settled = size <= max(tuning.round_gradient * self.moved, zero)
            at_round_off = least <= tuning.round_off_gradients * zero and size > least / 2
            least = min(least, size)
            if settled or at_round_off or self.steps >= self._limit:
                break
            new, alpha = self._searched(at, gradient, self._direction(at, free, gradient))
            self.steps += 1
            if alpha == 0 and self._damping >= tuning.largest_damping:
                break
            self._adapt(alpha)
            at = new
        self.Y = at.psd_part(self._sigma)
        self.Z, self.y, self._Y = at.Z, at.rows.y, at.Y
        if settled or at_round_off:
            self._sigma = min(self._sigma * tuning.penalty_growth, tuning.largest_penalty)

    def _adapt(self, alpha: float) -> None:
        """Adapt the damping to the length of a step."""
        tuning, factor = self._tuning, 1.0
        if alpha == 1:
            factor = tuning.damping_decrease
        elif alpha < tuning.short_step:
            factor = tuning.damping_increase
        self._damping = min(max(self._damping * factor, tuning.least_damping), tuning.largest_damping)

    def _point(self, Y: Array) -> _Point:
        scaled, sigma = self._scaled, self._sigma
        checkpoint(len(Y))
        theta, V = np.linalg.eigh(self.Z - sigma * Y)
        rows = scaled.rows.response(scaled.rows.apply(Y), self.y, sigma)
        positive = np.maximum(theta, 0.0)
        value = scaled.value(Y) + float(positive @ positive) / (2 * sigma) + rows.cost
        return _Point(Y, theta, V, rows, value)

    def _gradient(self, at: _Point) -> Array:
        scaled = self._scaled
        gradient: Array = scaled.gradient(at.Y) - at.Z - scaled.rows.adjoint(at.rows.y)
        return gradient

    def _free(self, at: _Point, gradient: Array) -> Array:
        """Return zero for each entry that the gradient keeps at a bound of the box, one for the others."""
        scaled = self._scaled
        active = ((at.Y <= scaled.lower) & (gradient >= 0)) | ((at.Y >= scaled.upper) & (gradient <= 0))
        return (~(active | scaled.fixed)).astype(float)

    def _distance(self, at: _Point) -> float:
        cone, rows = np.linalg.norm(at.Z - self.Z), np.linalg.norm(at.rows.y - self.y)
        return float(np.hypot(cone, rows)) / self._sigma

    def _searched(self, at: _Point, gradient: Array, D: Array) -> tuple[_Point, float]:
        """Return the first point along a clipped step with sufficient decrease, and its step length."""
        alpha, scaled, tuning = 1.0, self._scaled, self._tuning
        round_off = tuning.objective_noise * (abs(at.value) + float(np.linalg.norm(scaled.L)))
        while alpha >= tuning.shortest_lagrangian_step:
            Y = np.clip(at.Y + alpha * D, scaled.lower, scaled.upper)
            fall = float(np.vdot(gradient, Y - at.Y))
            if fall >= 0:
                break
            new = self._point(Y)
            if new.value <= at.value + tuning.armijo_fraction * fall:
                return new, alpha
            near, slope = new.value <= at.value + round_off, 2 * tuning.armijo_fraction - 1
            if near and float(np.vdot(self._gradient(new), Y - at.Y)) <= slope * fall:
                return new, alpha  # at round-off the slope decides (Hager and Zhang 2005)
            alpha *= 0.5
        return at, 0.0

    def _direction(self, at: _Point, free: Array, gradient: Array) -> Array:
        """Return Newton's step in the free entries by preconditioned conjugate gradients."""
        product, precondition = self._equation(at, free)
        R = -free * gradient
        tol = min(self._tuning.cg_tol, np.sqrt(float(np.linalg.norm(R))))
        D = np.zeros_like(gradient)
        S = precondition(R)
        P, rs = S, float(np.vdot(R, S))
        enough = tol**2 * rs
        for _ in range(self._tuning.cg_steps):
            checkpoint()
            HP = product(P)
            curvature = float(np.vdot(P, HP))
            if not curvature > 0:
                break
            alpha = rs / curvature
            D = D + alpha * P
            R = R - alpha * HP
            S = precondition(R)
            rs, old = float(np.vdot(R, S)), rs
            if rs <= enough:
                break
            P = S + (rs / old) * P
        return D

    def _equation(self, at: _Point, free: Array) -> tuple[_Linear, _Linear]:
        """Return the product with the generalized Hessian in the free entries, and a preconditioner.

        The preconditioner is the inverse of the Hessian for equal weights in all entries.
        """
        rows, sigma = self._scaled.rows, self._sigma
        own = self._scaled.K + self._damping
        psd, mean = at.derivative(sigma, inverse=False), at.derivative(sigma, inverse=True)

        def product(D: Array) -> Array:
            return free * (own * D + psd(D) + rows.adjoint(at.rows.slope * rows.apply(D)))

        def precondition(R: Array) -> Array:
            return free * mean(R)

        return product, precondition
