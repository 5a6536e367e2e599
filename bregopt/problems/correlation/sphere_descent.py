"""Quasi-Newton descent for products ``R R'`` whose rows have given lengths."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import CutShort, checkpoint
from bregopt.problems.correlation.descent import Descent, Objective
from bregopt.program import StopReason
from bregopt.routes.progress import reason

__all__ = ["descend_on_spheres"]

_PAIRS = 10  # of vectors in L-BFGS
_FLAT = 1e-15  # decrease relative to the unit of the objective at which it ends


class _OnSpheres:
    """The objective as a function of any rows ``V``, where ``R`` has their directions."""

    def __init__(self, B: Array, radius: Array, columns: int) -> None:
        self.objective, self.radius, self.shape = Objective(B), radius, (len(B), columns)
        self.R, self.values, self.residual = np.zeros(self.shape), [np.inf], np.inf
        self.unit = self.objective.square + float(np.sum(radius**4))

    def __call__(self, v: Array) -> tuple[float, Array]:
        """Return the scaled value and gradient; store the best point."""
        if len(self.values) > 1:  # there is a point to return
            checkpoint()
        V = v.reshape(self.shape)
        scale = (self.radius / np.maximum(np.sqrt(np.einsum("ij,ij->i", V, V)), TINY))[:, None]
        R = V * scale
        value, gradient, _ = self.objective.at(R)
        outward = np.einsum("ij,ij->i", gradient, R) / self.radius**2
        gradient -= outward[:, None] * R
        if value < min(self.values):
            self.R, self.residual = R, float(np.linalg.norm(gradient)) / (4 * np.sqrt(self.unit))
        self.values.append(value)
        return value / self.unit, (gradient * scale).ravel() / self.unit


def descend_on_spheres(B: Array, R: Array, radius: Array, tol: float, max_iter: int) -> Descent:
    """Minimize ``||off(B - R R')||_F^2`` from `R` to a local optimum, with rows as long as their radius.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    R : array of shape (n, r)
        A row of zeros gets equal entries first.
    radius : array of shape (n,)
    tol : float
        Largest relative residual of a local optimum; the descent ends at round-off.
    max_iter : int
    """
    from scipy.optimize import minimize  # slow to import

    function, stop = _OnSpheres(B, radius, R.shape[1]), StopReason.STALLED
    start = np.where(np.einsum("ij,ij->i", R, R)[:, None] > 0, R, 1.0)
    limits = {"maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": _PAIRS, "ftol": _FLAT, "gtol": 0.0}
    try:
        found = minimize(function, start.ravel(), jac=True, method="L-BFGS-B", options=limits)
        stop = StopReason.MAX_ITER if found.nit >= max_iter else stop
    except CutShort as cut:
        stop = reason(cut)
    residual = function.residual
    return Descent(
        function.R, function.values[1:], residual, StopReason.CONVERGED if residual <= tol else stop
    )
