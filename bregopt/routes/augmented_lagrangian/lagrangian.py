"""The augmented Lagrangian of the dual: alternating directions first, then semismooth Newton steps.

At a point ``x = (X, v)`` and the penalty ``s``, multipliers ``y`` have the point ``x(y)``, the nearest one to
``x - s (c - A*(y))`` in the cones, with prices ``s`` times those of soft rows. Both methods move ``x`` to it.

Alternating directions (Wen, Goldfarb, Yin 2010) take ``y = M^-1 ((b - A(x)) / s + A(c - z))`` with the last
slack ``z``, one eigendecomposition a step. Each step maps ``(x, s z)`` to the next pair, and every few steps
Anderson's extrapolation of the last ones is tried. The method of multipliers (Zhao, Sun, Toh 2010) minimizes

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
from bregopt.program import SecondOrderCones
from bregopt.records import dataclass
from bregopt.routes.augmented_lagrangian.standard_form import Point, StandardForm
from bregopt.routes.ipm.block_rows import hessian_product
from bregopt.routes.ipm.linear_solvers import conjugate_gradients

__all__ = ["AugmentedLagrangian", "Iterate", "VectorProjection"]

# Length of the steps of alternating directions, below the golden ratio.
_OVERSTEP = 1.618
# Steps between two changes of the penalty in alternating directions, the ratio of the residuals from which it
# changes, and the factor.
_BALANCE_STEPS, _BALANCE_RATIO, _BALANCE_FACTOR = 10, 1.5, 1.6
# Steps that an extrapolation uses, steps between two of them, and the multiple of the identity in its
# equation, relative to the trace.
_MEMORY, _EXTRAPOLATE_STEPS, _EXTRAPOLATION_RIDGE = 10, 5, 1e-10
# Newton steps for one point, products for one point and in one step, and those that cost a decomposition.
_NEWTON_STEPS, _POINT_PRODUCTS, _CG_STEPS, _PRODUCTS = 40, 2_000, 500, 4
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


class VectorProjection:
    """The derivative of the projection of a vector ``w`` on bounds and second-order cones.

    At ``w = (t, p)`` outside a cone and its polar, with ``kappa = t / |p|`` and ``omega = p / |p|``, it is

        [1, omega'; omega, (1 + kappa) I - kappa omega omega'] / 2.

    Parameters
    ----------
    inside : array of shape (len(v),)
        1 where ``v`` moves with ``w``, 0 at a bound.
    cones : SecondOrderCones
    w : array of shape (cones.size,)
        The elements in cones.

    Attributes
    ----------
    diagonal : array of shape (len(v),)
        The derivative, in cones without the part of ``omega``.
    """

    def __init__(self, inside: Array, cones: SecondOrderCones, w: Array) -> None:
        self.diagonal, self._cones = inside, cones
        if not cones.count:
            return
        axis, norms = w[cones.starts], cones.tail_norms(w)
        outside = np.abs(axis) < norms
        unit = np.where(outside, norms, 1.0)
        self._kappa = np.where(outside, axis / unit, 0.0)
        self._omega = np.where(outside, 1 / unit, 0.0)[cones.owner] * w
        self._omega[cones.starts] = 0.0
        self.diagonal[cones.index] = np.where(outside, (1 + self._kappa) / 2, axis > 0)[cones.owner]

    def __call__(self, d: Array) -> Array:
        """Return the product of the derivative with a direction."""
        moved, cones = self.diagonal * d, self._cones
        if cones.count:
            own = d[cones.index]
            axis, along = own[cones.starts], cones.inner(self._omega, own)
            moved[cones.index] += self._omega * ((axis - self._kappa * along) / 2)[cones.owner]
            moved[cones.axes] += (along - self._kappa * axis) / 2
        return moved


@dataclass(frozen=True, eq=False)
class Iterate:
    """The point ``x(y)`` of multipliers, with what derivatives need.

    Parameters
    ----------
    y : array of shape (m,)
    w : Point
        ``x(y)`` is the nearest point to it in the cones, but for prices.
    spectra : tuple of PositiveSpectrum
    projection : VectorProjection
        Of ``w`` on bounds and second-order cones.
    x : Point
    gradient : array of shape (m,)
        ``A(x) - b``.
    phi : float
    """

    y: Array
    w: Point
    spectra: tuple[PositiveSpectrum, ...]
    projection: VectorProjection
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
        self._steps = _Steps()

    @property
    def work(self) -> float:
        """The work so far, in eigendecompositions."""
        return self.decompositions + self.products / _PRODUCTS

    def begin(self) -> None:
        """Return to the penalty of alternating directions, from the last point."""
        self._x, self.penalty, self._steps = self.at.x, self._balanced, _Steps()

    # Pays on: k-means of 40 points.
    def alternate(self, steps: int) -> None:
        """Take steps of alternating directions."""
        primal_is_larger = dual_is_larger = 0
        start = self._state()
        for step in range(1, steps + 1):
            self._step()
            end = self._state()
            start = self._steps.next(start, end)
            if start is not end:
                self._continue_at(start)
            ratio = self.primal / max(self.dual, TINY)
            primal_is_larger += ratio > _BALANCE_RATIO
            dual_is_larger += ratio < 1 / _BALANCE_RATIO
            if step % _BALANCE_STEPS == 0:
                before = self.penalty
                if primal_is_larger > 0.7 * _BALANCE_STEPS:
                    self._set_penalty(self.penalty / _BALANCE_FACTOR)
                elif dual_is_larger > 0.7 * _BALANCE_STEPS:
                    self._set_penalty(self.penalty * _BALANCE_FACTOR)
                if self.penalty != before:
                    self._steps, start = _Steps(), self._state()
                primal_is_larger = dual_is_larger = 0
        self._balanced = self.penalty

    def _step(self) -> None:
        """Take one step of alternating directions."""
        form, x, z, s = self._form, self._x, self._z, self.penalty
        X = tuple(C - Z - X_b / s for C, Z, X_b in zip(form.C, z.X, x.X, strict=True))
        right = form.b / s + form.activity(Point(X, form.c - z.v - x.v / s))
        self.at = self.point(form.gram_solve(right))
        self._z = self._slack()
        self._measure()
        self._x = self._x.moved(self.at.x, _OVERSTEP)

    def _state(self) -> Array:
        """Return ``(x, s z)`` as one vector."""
        x, z = self._x, self._z
        return np.concatenate(
            [*map(np.ravel, x.X), x.v, *(self.penalty * Z.ravel() for Z in z.X), self.penalty * z.v]
        )

    def _continue_at(self, state: Array) -> None:
        """Continue alternating directions at ``(x, s z)``."""
        points = []
        for half in state.reshape(2, -1):
            X, rest = [], half
            for n in self._form.orders:
                X.append(rest[: n * n].reshape(n, n))
                rest = rest[n * n :]
            points.append((X, rest))
        (X, v), (Z, z) = points
        self._x, self._z = (
            Point(tuple(X), v),
            Point(tuple(part / self.penalty for part in Z), z / self.penalty),
        )

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
            if self.products - before > _POINT_PRODUCTS or not self._newton():
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
        x, w, s = self.at.x, self.at.w, self.penalty
        X = tuple((own - before) / s for own, before in zip(x.X, w.X, strict=True))
        return Point(X, (x.v - w.v) / s)

    def point(self, y: Array) -> Iterate:
        """Return ``x(y)`` at the last point ``x`` of the primal."""
        form, s = self._form, self.penalty
        spectra, W, X, envelope = [], [], [], 0.0
        for b, X_b in enumerate(self._x.X):
            checkpoint(len(X_b))
            face = form.faces[b]
            W.append(X_b + s * (form.actions[b].image(y) - form.C[b]))
            theta, V = np.linalg.eigh(face.compress(W[b]))
            spectrum = PositiveSpectrum(theta, face.embed(V), 0.5, 0.0)
            spectra.append(spectrum)
            X.append(spectrum.X)
            positive = theta[spectrum.negative :]
            envelope += float(positive @ positive) - float(np.vdot(X_b, X_b))
            self.decompositions += 1
        w = self._x.v + s * (form.columns.adjoint(y) - form.c)
        v = np.clip(w, form.lo, form.hi)
        far, share = w - v, 1 / (1 + 2 * s * form.weight)
        outside = np.maximum(np.abs(far) - s * form.price, 0.0) * share
        v += np.copysign(outside, far)
        in_cones, out = form.cones.index, outside > 0
        v[in_cones] = form.cones.projected(w[in_cones])
        paid = float(outside[out] @ (form.price + form.weight * outside)[out])
        envelope += float(v @ (2 * w - v)) - float(self._x.v @ self._x.v)
        inside = np.where(out, share, far == 0) * ~form.fixed
        projection, x = VectorProjection(inside, form.cones, w[in_cones]), Point(tuple(X), v)
        phi = envelope / (2 * s) - paid - float(form.b @ y)
        gradient = form.activity(x) - form.b
        return Iterate(y, Point(tuple(W), w), tuple(spectra), projection, x, gradient, phi)

    def hessian(self, at: Iterate, d: Array) -> Array:
        """Return the product of the Hessian of phi with `d`."""
        form = self._form
        product = form.columns.activity(at.projection(form.columns.adjoint(d)))
        for action, spectrum in zip(form.actions, at.spectra, strict=True):
            product = product + hessian_product(action, spectrum, d)
        self.products += 1
        return self.penalty * product

    def _newton(self) -> bool:
        """Take a Newton step; false where it makes no progress."""
        form, at, s = self._form, self.at, self.penalty
        size = float(np.linalg.norm(at.gradient))
        ridge = s * min(_RIDGE, _RIDGE_SHARE * size)
        diagonal = form.columns.curvature(at.projection.diagonal) + ridge / s
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


class _Steps:
    """The last steps of a fixed-point iteration, and Anderson's extrapolation of them (type II; 1965).

    An extrapolated point is kept where the step from it is no longer than the last one before it.
    """

    def __init__(self) -> None:
        self._starts: list[Array] = []
        self._ends: list[Array] = []
        self._count = 0
        self._tried: tuple[Array, float] | None = None

    def next(self, start: Array, end: Array) -> Array:
        """Return where to continue after the step from `start` to `end`: at `end`, or where it is better."""
        step = end - start
        length = float(np.linalg.norm(step))
        if self._tried is not None:
            before, least = self._tried
            self._tried = None
            if length > least:
                self._starts, self._ends = [], []
                return before
        self._count += 1
        self._starts = [*self._starts[-_MEMORY:], start]
        self._ends = [*self._ends[-_MEMORY:], end]
        if self._count % _EXTRAPOLATE_STEPS or len(self._ends) < 3:
            return end
        moves = np.diff(self._ends, axis=0)
        changes = moves - np.diff(self._starts, axis=0)
        gram = changes @ changes.T
        gram[np.diag_indices(len(gram))] += _EXTRAPOLATION_RIDGE * np.trace(gram) + TINY
        self._tried = end, length
        new: Array = end - np.linalg.solve(gram, changes @ step) @ moves
        return new
