"""L-BFGS for positive definite matrices, on curves that stay in the cone; one pass over the rows a step.

The preconditioner is the inverse of an approximate Hessian, from second moments of the rows. For Gaussian
vectors ``z`` of second moment ``S``, ``E <A, zz'> zz' = 2 S A S + tr(A S) S``. With ``k`` the sum of the
rows' second derivatives, the Hessian is then near ``A -> K(A) + k (2 S A S + tr(A S) S)``, with ``K`` the
divergence's part: ``inv(M) A inv(M)`` for LogDet. One generalized eigendecomposition inverts that. For von
Neumann, ``K`` is near ``M^(-1/2) A M^(-1/2)``, which preconditions conjugate gradients. It is that up to
ratios of geometric to logarithmic means of eigenvalues: with it alone, L-BFGS stalls at wide spectra.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.linalg import conjugate_gradients, symmetrize
from bregopt.records import dataclass

_PAIRS = 20  # steps that are remembered, r^2 numbers each
_DECREASE = 1e-4  # Armijo's constant
_LARGEST_POWER = 1.0  # of e, by which a step multiplies an eigenvalue; 2.0 takes 1.5 times the passes
_LEAST_STEP = 1e-8
_ROUND_OFF = 16 * EPS  # of the objective, relative
_RESIDUAL, _STEPS = 1e-2, 30  # of conjugate gradients, of order r^3 each

Operator = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Point:
    """A positive definite matrix and the results of a pass over the rows there.

    Parameters
    ----------
    M, root : array of shape (r, r)
        ``M = root root'``.
    value : float
        The objective.
    gradient : array of shape (r, r)
    curvature : array of shape (r, r)
        The sum of ``w_k z_k z_k'`` over rows ``z_k'M z_k``, with the second derivatives ``w_k`` of their
        penalties. It is used where the pass was asked for it.
    weight : float
        The sum of ``w_k``.
    """

    M: Array
    root: Array
    value: float
    gradient: Array
    curvature: Array
    weight: float


P = TypeVar("P", bound=Point)
P_co = TypeVar("P_co", bound=Point, covariant=True)


class Objective(Protocol[P_co]):
    """A divergence, plus a linear cost and the penalties of rows.

    Attributes
    ----------
    exponential : bool
        Whether the divergence is von Neumann's, and otherwise LogDet.
    """

    @property
    def exponential(self) -> bool: ...

    def at(self, root: Array, curvature: bool) -> P_co | None:
        """Return the point at ``M = root root'``, None where `M` is singular in floating point.

        `curvature` tells whether it has the sums of second derivatives.
        """
        ...


class _Pair(NamedTuple):
    """A step and the change of the gradient along it."""

    s: Array
    y: Array
    curvature: float


def quasi_newton(objective: Objective[P], point: P) -> Iterator[P]:
    """Yield better points until the objective no longer decreases.

    Parameters
    ----------
    objective : Objective
    point : Point
        The start.
    """
    pairs: deque[_Pair] = deque(maxlen=_PAIRS)
    while True:
        step = -_two_loop(point.gradient, pairs, preconditioner(point, objective.exponential))
        curve = curve_of(objective, point)
        exponent = descent_along(curve, step)
        new = line_search(objective, point, curve, exponent, curvature=True)
        if new is None:
            if not pairs:
                return
            pairs.clear()  # pairs from far away may mislead: go on with the preconditioner alone
            continue
        s, y = new.M - point.M, new.gradient - point.gradient
        product = float(np.vdot(s, y))
        if product > 0:
            pairs.append(_Pair(s, y, product))
        point = new
        yield point


def curve_of(objective: Objective[P], at: P) -> _Curve:
    """Return the curves on which the divergence's gradient changes most evenly."""
    return _Exponential(at.root) if objective.exponential else _Geodesic(at.root)


def line_search(objective: Objective[P], at: P, curve: _Curve, exponent: Array, curvature: bool) -> P | None:
    """Return the first point of a backtracking line search with a sufficient decrease, None without one.

    Parameters
    ----------
    objective : Objective
    at : Point
    curve : _Curve
    exponent : array of shape (r, r)
    curvature : bool
        Whether the new point has the sums of curvature.
    """
    slope, t = curve.slope(at.gradient, exponent), 1.0
    if not slope < 0:
        return None
    round_off = _ROUND_OFF * abs(at.value)
    while t > _LEAST_STEP:
        new = objective.at(curve.at(exponent, t), curvature)
        if new is not None and new.value <= at.value + _DECREASE * t * slope + round_off:
            return new
        t *= 0.5 if new is None else _fraction(new.value - at.value, t * slope)
    return None


def descent_along(curve: _Curve, step: Array) -> Array:
    """Return the exponent of a step, scaled such that its eigenvalues are at most `_LARGEST_POWER`."""
    exponent = curve.exponent(step)
    if not np.isfinite(exponent).all() or not exponent.any():
        return np.zeros_like(step)
    return exponent * min(1.0, _LARGEST_POWER / float(np.abs(np.linalg.eigvalsh(exponent)).max()))


def _fraction(change: float, expected: float) -> float:
    """Return the minimizer of the parabola through the values and the slope, from 0.1 to 0.5."""
    return min(0.5, max(0.1, -expected / (2 * (change - expected)))) if math.isfinite(change) else 0.1


def _two_loop(gradient: Array, pairs: deque[_Pair], precondition: Callable[[Array], Array]) -> Array:
    """Return the L-BFGS inverse Hessian times a gradient (Nocedal and Wright, Algorithm 7.4)."""
    q, alphas = gradient.copy(), []
    for s, y, curvature in reversed(pairs):
        alphas.append(float(np.vdot(s, q)) / curvature)
        q -= alphas[-1] * y
    step = precondition(q)
    for (s, y, curvature), alpha in zip(pairs, reversed(alphas), strict=True):
        step += (alpha - float(np.vdot(y, step)) / curvature) * s
    return symmetrize(step)


class _Geodesic:
    """``R expm(t E) R'``: eigenvalues grow as fast as they shrink.

    Along a segment they would grow at most twofold in a Newton step of LogDet.
    """

    def __init__(self, root: Array) -> None:
        self._root = root

    def exponent(self, step: Array) -> Array:
        """Return the symmetric exponent of the curve with a given tangent at the point."""
        half = np.linalg.solve(self._root, step)
        return symmetrize(np.linalg.solve(self._root, half.T))

    def exponent_to(self, root: Array) -> Array:
        """Return the exponent of the curve that reaches ``root root'`` at ``t = 1``."""
        U, s, _ = np.linalg.svd(np.linalg.solve(self._root, root))
        return symmetrize((U * (2 * np.log(s))) @ U.T)

    def slope(self, gradient: Array, exponent: Array) -> float:
        """Return the derivative of a function with the given gradient along a curve."""
        return float(np.vdot(self._root.T @ gradient @ self._root, exponent))

    def at(self, exponent: Array, t: float) -> Array:
        """Return a factor of the matrix at `t`."""
        powers, Q = np.linalg.eigh(exponent)
        return (self._root @ Q) * np.exp(t * powers / 2)


class _Exponential:
    """``expm(log M + t E)``, in the eigenvectors of ``M``: the lines of von Neumann's gradient.

    Attributes
    ----------
    U : array of shape (r, r)
        Eigenvectors of ``M``.
    logs : array of shape (r,)
        Logarithms of its eigenvalues.
    means : array of shape (r, r)
        Logarithmic means of pairs of eigenvalues, the derivative of ``expm``.
    """

    def __init__(self, root: Array) -> None:
        self.U, s, _ = np.linalg.svd(root)
        self.logs = 2 * np.log(s)
        half = (self.logs[:, None] - self.logs) / 2
        ratio = np.divide(np.sinh(half), half, out=np.ones_like(half), where=np.abs(half) > 1e-6)
        self.means = np.outer(s, s) * ratio

    def exponent(self, step: Array) -> Array:
        return symmetrize((self.U.T @ step @ self.U) / self.means)

    def exponent_to(self, root: Array) -> Array:
        U, s, _ = np.linalg.svd(self.U.T @ root)
        return symmetrize((U * (2 * np.log(s))) @ U.T - np.diag(self.logs))

    def slope(self, gradient: Array, exponent: Array) -> float:
        return float(np.vdot((self.U.T @ gradient @ self.U) * self.means, exponent))

    def at(self, exponent: Array, t: float) -> Array:
        logs, Q = np.linalg.eigh(np.diag(self.logs) + t * exponent)
        return (self.U @ Q) * np.exp(logs / 2)


_Curve = _Geodesic | _Exponential


def relative_curvature(at: Point, exponential: bool) -> float:
    """Return the largest eigenvalue of ``2 k S A S`` relative to ``N A N``, in the notation of the module."""
    root = _fourth_root(_Exponential(at.root)) if exponential else at.root
    d = np.linalg.eigvalsh(root.T @ at.curvature @ root)
    return 2 * float(d[-1]) ** 2 / (at.weight or 1.0)


def preconditioner(at: Point, exponential: bool) -> Operator:
    """Return the inverse of the approximate Hessian: von Neumann's if `exponential`, LogDet's otherwise."""
    if not exponential:
        return _two_term_inverse(at, at.root)
    curve = _Exponential(at.root)
    U, means, H, k = curve.U, curve.means, at.curvature, at.weight or 1.0

    def hessian(A: Array) -> Array:
        own = U @ ((U.T @ A @ U) / means) @ U.T
        return own + (2 * H @ A @ H + np.vdot(H, A) * H) / k

    near = _two_term_inverse(at, _fourth_root(curve))
    return lambda G: conjugate_gradients(hessian, G, near, _RESIDUAL, _STEPS)[0]


def _fourth_root(curve: _Exponential) -> Array:
    """Return ``R`` with ``(R R')^2 = M``."""
    return curve.U * np.exp(curve.logs / 4)


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
        return T @ B @ T.T

    return solve
