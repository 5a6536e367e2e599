"""The augmented Lagrangian of the dual: alternating directions first, then semismooth Newton steps.

At a point ``x = (X, v)`` and the penalty ``s``, multipliers ``y`` have the point ``x(y)``, the nearest one to
``x - s (c - A*(y))`` in the cones, with prices ``s`` times those of hinges. Both methods move ``x`` to it.

Alternating directions (Wen, Goldfarb, Yin 2010) take ``y = M^-1 ((b - A(x)) / s + A(c - z))`` with the last
slack ``z``, one eigendecomposition a step. The method of multipliers (Zhao, Sun, Toh 2010) minimizes

    phi(y) = -b'y + (|w|^2 - |x|^2 - |w - x(y)|^2) / (2 s) - prices,   w = x - s (c - A*(y)),

whose gradient is ``A(x(y)) - b``, by Newton's method. Its Hessian, ``s A P' A*`` with the generalized
derivative ``P'`` of the projection, is never formed: conjugate gradients multiply with it.
"""

from __future__ import annotations

import math

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import checkpoint
from bregopt.divergences.spectrum import PositiveSpectrum
from bregopt.records import dataclass
from bregopt.routes.augmented_lagrangian.standard_form import Point, StandardForm
from bregopt.routes.dual_hessian import hessian_product
from bregopt.routes.ipm.linear_solvers import conjugate_gradients

__all__ = ["AugmentedLagrangian", "Iterate"]

# Length of the steps of alternating directions, below the golden ratio.
_OVERSTEP = 1.618
# Steps between two changes of the penalty in alternating directions, the ratio of the residuals from which it
# changes, and the factor.
_BALANCE_STEPS, _BALANCE_RATIO, _BALANCE_FACTOR = 10, 1.5, 1.6
# Newton steps for one point, and conjugate gradients for one step.
_NEWTON_STEPS, _CG_STEPS = 40, 500
# Change of phi along a step, relative to the slope (Armijo), its round-off, and the shortest step.
_ARMIJO, _NOISE, _SHORTEST = 1e-4, 1e-13, 1e-5
# Residual of conjugate gradients, at most, and the ridge of Newton's equation, at most and relative to the
# gradient.
_FORCING, _RIDGE, _RIDGE_SHARE = 0.1, 1e-3, 0.1
# Share of the dual residual at which Newton's method ends, and its loosest tolerance.
_INNER_SHARE, _LOOSEST = 0.2, 1e-2
# Conjugate gradient steps for one point above which the penalty decreases.
_MANY_CG = 600
# Least and largest penalty.
_LEAST_PENALTY, _LARGEST_PENALTY = 1e-6, 1e8


@dataclass(frozen=True, eq=False)
class Iterate:
    """The point ``x(y)`` of multipliers, with what derivatives need.

    Parameters
    ----------
    y : array of shape (m,)
    spectra : tuple of PositiveSpectrum
    inside : array of shape (len(v),)
        1 where ``v`` moves with ``w``, 0 at a bound.
    x : Point
    gradient : array of shape (m,)
        ``A(x) - b``.
    phi : float
    """

    y: Array
    spectra: tuple[PositiveSpectrum, ...]
    inside: Array
    x: Point
    gradient: Array
    phi: float


class AugmentedLagrangian:
    """One run of both methods.

    Parameters
    ----------
    form : StandardForm
    x : Point
    y : array of shape (m,)

    Attributes
    ----------
    at : Iterate
        The last point ``x(y)``, always in the cones.
    primal, dual : float
        Its relative residuals: of the equations, and of ``A*(y) + z = c`` at the slack of ``x``.
    penalty : float
    decompositions, products : int
        Eigendecompositions and products with the Hessian so far.
    """

    def __init__(self, form: StandardForm, x: Point, y: Array) -> None:
        self._form, self._x = form, x
        self.penalty = self._balanced = 1.0
        self.decompositions = self.products = 0
        self.at = self.point(y)
        self._measure()
        self._z = self._slack()

    def begin(self) -> None:
        """Return to the penalty of alternating directions, from the last point."""
        self._x, self.penalty = self.at.x, self._balanced

    def alternate(self, steps: int) -> None:
        """Take steps of alternating directions."""
        form = self._form
        primal_is_larger = dual_is_larger = 0
        for step in range(1, steps + 1):
            z = self._z
            right = (form.b - form.activity(self._x)) / self.penalty
            right += form.activity(
                Point(tuple(C - Z for C, Z in zip(form.C, z.X, strict=True)), form.c - z.v)
            )
            self.at = self.point(form.gram_solve(right))
            self._z = self._slack()
            self._measure()
            self._x = self._x.moved(self.at.x, _OVERSTEP)
            ratio = self.primal / max(self.dual, TINY)
            primal_is_larger += ratio > _BALANCE_RATIO
            dual_is_larger += ratio < 1 / _BALANCE_RATIO
            if step % _BALANCE_STEPS == 0:
                if primal_is_larger > 0.7 * _BALANCE_STEPS:
                    self._set_penalty(self.penalty / _BALANCE_FACTOR)
                elif dual_is_larger > 0.7 * _BALANCE_STEPS:
                    self._set_penalty(self.penalty * _BALANCE_FACTOR)
                primal_is_larger = dual_is_larger = 0

        self._balanced = self.penalty

    def multiply(self, tol: float) -> bool:
        """Take one step of the method of multipliers; whether Newton's method reached its tolerance.

        Parameters
        ----------
        tol : float
            Residual of the equations below which Newton's method need not go.
        """
        self._x = self.at.x
        self.at = self.point(self.at.y)
        before = self.products
        reached = False
        for _ in range(_NEWTON_STEPS):
            self._measure()
            if self.primal <= max(min(_INNER_SHARE * self.dual, _LOOSEST), tol):
                reached = True
                break
            if not self._newton():
                break
        self._measure()
        self._z = self._slack()
        if self.products - before > _MANY_CG or not reached:
            self._set_penalty(self.penalty / 2)
        elif self.dual > self.primal:
            self._set_penalty(self.penalty * (4 if self.dual > 10 * self.primal else 2))
        return reached

    def _set_penalty(self, penalty: float) -> None:
        self.penalty = min(max(penalty, _LEAST_PENALTY), _LARGEST_PENALTY)

    def _measure(self) -> None:
        """Set the residuals of the last point."""
        self.primal = float(np.linalg.norm(self.at.gradient)) / self._form.b_size
        self.dual = self._x.distance(self.at.x) / self.penalty / 2  # the costs have norm one

    def _slack(self) -> Point:
        """Return the slack ``z = (x(y) - w) / s`` of the last point."""
        X = []
        for spectrum in self.at.spectra:
            V = spectrum.V[:, : spectrum.negative]
            X.append((V * (-spectrum.theta[: spectrum.negative] / self.penalty)) @ V.T)
        form = self._form
        return Point(tuple(X), form.c - form.Et @ self.at.y + (self.at.x.v - self._x.v) / self.penalty)

    def point(self, y: Array) -> Iterate:
        """Return ``x(y)`` at the last point ``x`` of the primal."""
        form, s = self._form, self.penalty
        spectra, X, envelope = [], [], 0.0
        for b, X_b in enumerate(self._x.X):
            checkpoint(len(X_b))
            theta, V = np.linalg.eigh(X_b + s * (form.A.adjoint(y, b) - form.C[b]))
            spectrum = PositiveSpectrum(theta, V, 0.5, 0.0)
            spectra.append(spectrum)
            X.append(spectrum.X)
            positive = theta[spectrum.negative :]
            envelope += float(positive @ positive) - float(np.vdot(X_b, X_b))
            self.decompositions += 1
        w = self._x.v + s * (form.Et @ y - form.c)
        v = np.clip(w, form.lo, form.hi)
        reach = s * form.price
        v = np.where(w > v + reach, w - reach, np.where(w < v - reach, w + reach, v))
        outside = np.abs(v - np.clip(v, form.lo, form.hi))
        paid = float((outside[outside > 0] * form.price[outside > 0]).sum())
        envelope += float(v @ (2 * w - v)) - float(self._x.v @ self._x.v)
        inside = ((v == w) | (outside > 0)) & ~form.fixed
        x = Point(tuple(X), v)
        phi = envelope / (2 * s) - paid - float(form.b @ y)
        return Iterate(y, tuple(spectra), inside.astype(float), x, form.activity(x) - form.b, phi)

    def hessian(self, at: Iterate, d: Array) -> Array:
        """Return the product of the Hessian of phi with `d`."""
        form = self._form
        product: Array = form.E @ (at.inside * (form.Et @ d))
        for action, spectrum in zip(form.actions, at.spectra, strict=True):
            product = product + hessian_product(action, spectrum, d)
        self.products += 1
        return self.penalty * product

    def _newton(self) -> bool:
        """Take a Newton step; false where it makes no progress."""
        form, at, s = self._form, self.at, self.penalty
        size = float(np.linalg.norm(at.gradient))
        ridge = s * min(_RIDGE, _RIDGE_SHARE * size)
        diagonal = form.E_squared @ at.inside + ridge / s
        for curvature, spectrum in zip(form.curvatures, at.spectra, strict=True):
            diagonal = diagonal + curvature(spectrum)

        def operator(d: Array) -> Array:
            return self.hessian(at, d) + ridge * d

        forcing = min(_FORCING, math.sqrt(size))
        d = conjugate_gradients(operator, -at.gradient, s * diagonal, forcing, _CG_STEPS)
        slope = float(at.gradient @ d)
        if not slope < 0:
            return False
        alpha, noise = 1.0, _NOISE * (abs(at.phi) + 1)
        while alpha > _SHORTEST:
            new = self.point(at.y + alpha * d)
            if new.phi <= at.phi + _ARMIJO * alpha * slope + noise:
                self.at = new
                return alpha * abs(slope) > noise or float(np.linalg.norm(new.gradient)) < 0.9 * size
            alpha *= 0.5
        return False
