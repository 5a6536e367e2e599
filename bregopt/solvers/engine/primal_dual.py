"""The primal-dual Newton method that the routes share: all rows at once, in the HKM direction.

For ``min <C, X> - w logdet X`` under rows, with the ends of the rows on their central path at ``nu`` (see
:mod:`bregopt.solvers.engine.ends`), the method holds ``X``, ``Z`` and the ends' slacks and multipliers:

    A(X) at the ends' bounds and slacks,   Z = C - A*(y),   X Z = w I.

All are linearised (:mod:`bregopt.solvers.engine.systems`); the second holds from the start wherever ``C`` is
positive definite, and elsewhere its residual shrinks with every step. The weight ``w`` stays what it is: a
LogDet problem is one point of the central path, and only ``nu`` falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from bregopt.arrays import Array
from bregopt.program import Bounds, LinearMap
from bregopt.solvers.engine.ends import Ends
from bregopt.solvers.engine.systems import Newton, system_for

__all__ = ["Iterate", "PrimalDual"]

_TO_BOUNDARY = 0.95  # how far a step goes towards the boundary of the cone
_SHORTEST = 1e-12
_ROUND_OFF = 1e-11  # a dual residual that is taken for none
_CENTRINGS = 12
_WARM = 1e-4  # where ends are centred after a warm start, as a fraction of the weight
_LANCZOS_FROM = 150  # the order from which the smallest eigenvalue of a step is estimated


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point of the method.

    Parameters
    ----------
    X, Z : array of shape (n, n)
        Positive definite.
    X_root, Z_root : array of shape (n, n)
        Their lower Cholesky factors.
    y : array of shape (m,)
    ends : Ends
    activity : array of shape (m,)
    dual_residual : float
        How far ``Z`` is from ``C - A*(y)``, relative to its size.
    """

    X: Array
    Z: Array
    X_root: Array
    Z_root: Array
    y: Array
    ends: Ends
    activity: Array
    dual_residual: float


class PrimalDual:
    """Newton's method for one block.

    Parameters
    ----------
    C : array of shape (n, n)
    weight : float
        ``w``, above zero.
    A : LinearMap
    bounds : Bounds
    """

    def __init__(self, C: Array, weight: float, A: LinearMap, bounds: Bounds) -> None:
        self._C, self._weight, self._A, self._bounds = C, weight, A, bounds
        self._system = system_for(A, bool((bounds.hard & (bounds.lo == bounds.hi)).any()))

    def start(self, X: Array, y: Array | None) -> Iterate | None:
        """Return the first iterate at the positive definite `X`.

        The ends are centred at the largest ``nu`` that leaves ``C - A*(y)`` definite. Where none does, ``Z``
        is the one that belongs to `X`, and None is returned if there are multipliers to start from.
        """
        activity, nu = self._A.apply((X,)), self._weight * (1.0 if y is None else _WARM)
        ends = Ends.at(self._bounds, activity, nu, y)
        for _ in range(_CENTRINGS):
            shift = self._A.adjoint(ends.multipliers(self._A.m))
            if _root(self._C - (1.0 if y is not None else 2.0) * shift) is not None:
                return self._iterate(X, ends, self._C - shift)
            nu *= 0.1
            ends = Ends.at(self._bounds, activity, nu, y)
        if y is not None:
            return None
        ends = Ends.at(self._bounds, activity, self._weight, None)
        root = cholesky(X, lower=True)
        return self._iterate(X, ends, self._weight * cho_solve((root, True), np.eye(len(X))))

    def step(self, at: Iterate, nu: float) -> tuple[Iterate, float] | None:
        """Return the next iterate and the length of the step to it, None where no step is left."""
        m = self._A.m
        D_end, r_end = at.ends.linearised(at.activity, nu)
        if not (np.isfinite(D_end).all() and np.isfinite(r_end).all()):
            return None  # a multiplier has come to the end of its range
        D, r = at.ends.rows(m, D_end, r_end)
        inverse = cho_solve((at.Z_root, True), np.eye(len(at.Z)))
        residual = self._C - self._A.adjoint(at.y) - at.Z
        G = self._weight * inverse - at.X
        if at.dual_residual > _ROUND_OFF:
            half = at.X @ residual @ inverse
            G = G - (half + half.T) / 2
        dX, dy = self._system.solve(Newton(at.X, inverse, at.X_root, G, D, r))
        move = at.ends.move(self._A.apply((dX,)), dy, D_end, r_end, nu, m)
        dZ = residual - self._A.adjoint(at.ends.row_multipliers(move.p, m))
        alpha = min(
            1.0,
            _TO_BOUNDARY * at.ends.longest(move),
            _TO_BOUNDARY * _longest(at.X, at.X_root, dX),
            _TO_BOUNDARY * _longest(at.Z, at.Z_root, dZ),
        )
        while alpha > _SHORTEST:
            new = self._iterate(at.X + alpha * dX, at.ends.moved(move, alpha), at.Z + alpha * dZ)
            if new is not None:
                return new, alpha
            alpha *= 0.8
        return None

    def _iterate(self, X: Array, ends: Ends, Z: Array) -> Iterate | None:
        """Return an iterate, None where one of its matrices is not positive definite."""
        y = ends.multipliers(self._A.m)
        own = self._C - self._A.adjoint(y)
        miss = float(np.linalg.norm(own - Z)) / max(float(np.linalg.norm(Z)), np.finfo(float).tiny)
        if miss <= _ROUND_OFF:
            Z, miss = own, 0.0
        X_root, Z_root = _root(X), _root(Z)
        if X_root is None or Z_root is None:
            return None
        return Iterate(X, Z, X_root, Z_root, y, ends, self._A.apply((X,)), miss)


def _root(Z: Array) -> Array | None:
    """Return the lower Cholesky factor, None where `Z` is not positive definite."""
    try:
        root: Array = cholesky(Z, lower=True)
    except (LinAlgError, ValueError):
        return None
    return root


def _longest(X: Array, root: Array, step: Array) -> float:
    """Return about the largest ``alpha`` with ``X + alpha step`` psd, infinite where a full step is safe."""
    n = len(root)
    if _root(X + step / _TO_BOUNDARY) is not None:
        return math.inf
    if n < _LANCZOS_FROM:
        half = solve_triangular(root, step, lower=True)
        K = solve_triangular(root, half.T, lower=True)
        least = float(np.linalg.eigvalsh((K + K.T) / 2)[0])
    else:
        least = _least_eigenvalue(root, step)
    return math.inf if least >= 0 else -1 / least


def _least_eigenvalue(root: Array, step: Array) -> float:
    """Return a lower estimate of the smallest eigenvalue of ``inv(L) step inv(L)'`` by Lanczos."""

    def product(v: Array) -> Array:
        inner = solve_triangular(root, v, lower=True, trans="T")
        w: Array = solve_triangular(root, step @ inner, lower=True)
        return w

    n = len(root)
    operator = LinearOperator((n, n), matvec=product, dtype=float)
    start = np.random.default_rng(0).normal(size=n)
    try:
        found = eigsh(operator, k=1, which="SA", tol=1e-2, maxiter=20, v0=start, return_eigenvectors=False)
        least = float(found[0])
    except ArpackNoConvergence as error:
        least = float(error.eigenvalues[0]) if len(error.eigenvalues) else -1.0
    return least - 0.02 * abs(least)
