"""Descents on a factor ``R`` of the part ``R R'`` near a matrix; projected Newton for rows in balls.

The objective is ``||off(B - R R')||_F^2``, where ``off`` drops the diagonal. With ``q_i = ||r_i||^2`` it is
``||off(B)||^2 - 2 <R, off(B) R> + ||R'R||^2 - ||q||^2``: one product of ``off(B)`` and a thin matrix a step.
It is not convex: a bound on the global optimum gives an answer its status.

A row that is at its radius, with a multiplier, moves in the tangent plane of its sphere. On these planes the
Hessian of the Lagrangian of ``||off(B - R R')||_F^2`` is, with ``q_i = ||r_i||^2`` and multipliers ``mu``,

    H D = 4 (D R'R + R (D'R + R'D) - (off(B) + Diag(q)) D - 2 Diag(<r_i, d_i>) R) + Diag(mu) D.

Conjugate gradients solve ``H D = -G`` to a residual that decreases with the gradient (Dembo and Steihaug
1983). At an optimum the columns of ``R`` are, after a rotation, eigenvectors of ``off(B) + Diag(q)``, of the
largest eigenvalues ``g_i``. For a direction orthogonal to ``R``, column i of ``H D`` is then
``4 (g_i I - off(B) - Diag(q)) d_i``, and the preconditioner is the multiple of ``g_i``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackError, eigsh

from bregopt.arrays import EPS, TINY, Array, Mask
from bregopt.certify import Certificate, bracket
from bregopt.clock import CutShort, checkpoint
from bregopt.linalg import conjugate_gradients
from bregopt.program import StopReason
from bregopt.records import dataclass
from bregopt.routes.progress import reason

__all__ = [
    "ROUND_OFF",
    "Descent",
    "Objective",
    "descend_in_balls",
    "distance",
    "leading_part",
    "proven_certificate",
    "proven_fields",
    "top_squares",
]

_SLICE = 200_000  # entries of a slice of ``B - R R'``, which fits the cache
ROUND_OFF = 4 * EPS  # relative round-off of eigenvalues, for each row
_RESOLUTION = 1e-6  # of the squared norm of the data: values below are round-off of the bounds

_ROUND_OFF = 1e-14  # of values, relative to ``||off(B)||^2``
_DECREASE = 1e-4  # fraction of the decrease to first order that a step must attain
_CUT = 0.25  # factor of a step that does not decrease the objective enough
_NEWTON_TRIALS, _GRADIENT_TRIALS = 4, 16  # lengths of each step
_PRODUCTS = 100  # limit on the products with the Hessian in a step
_FORCING = 0.1  # largest relative residual of the equation
_LEAST = 0.01  # of the preconditioner's eigenvalues, relative to the largest
_NEAR = 1e-3  # share of a squared radius that a row may lack to count as at its radius, at most
_SMALL = 20  # order for each eigenvector up to which all take no longer than Lanczos's method
_ACCURATE = 1e-3  # relative residual of the eigenvectors


@dataclass(frozen=True, eq=False)
class Descent:
    """The best point of a descent.

    Parameters
    ----------
    R : array of shape (n, k)
    values : list of float
        The objectives of all steps.
    residual : float
        The norm of the projected gradient at the last point, relative to that of ``4 off(B)``.
    stop : StopReason
        Why it is the last; ``CONVERGED`` if the residual meets its tolerance.
    """

    R: Array
    values: list[float]
    residual: float
    stop: StopReason


class Objective:
    """``||off(B - R R')||_F^2`` and its gradient.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    """

    def __init__(self, B: Array) -> None:
        self.B = B
        self.square = float(np.vdot(B, B))

    def at(self, R: Array) -> tuple[float, Array, Array]:
        """Return the value, the gradient, and ``R'R``."""
        BR, gram = self.B @ R, R.T @ R
        q = np.einsum("ij,ij->i", R, R)
        value = self.square - 2 * float(np.vdot(R, BR)) + float(np.vdot(gram, gram)) - float(q @ q)
        return value, 4 * (R @ gram - BR - q[:, None] * R), gram


def distance(B: Array, R: Array) -> float:
    """Return ``||off(B - R R')||_F^2`` from the entries, so that no digits cancel."""
    n, total = len(B), 0.0
    step = max(1, _SLICE // n)
    for a in range(0, n, step):
        left = B[a : a + step] - R[a : a + step] @ R.T
        left[np.arange(len(left)), np.arange(a, a + len(left))] = 0.0
        total += float(np.vdot(left, left))
    return total


def proven_fields(
    descent: Descent, value: float, bound: float, unit: float, constant: float, tol: float
) -> dict[str, Any]:
    """Return the fields of a :class:`~bregopt.Solution` that say how good a feasible answer is.

    The status is that of every other answer: a local optimum is "optimal" where the bound proves it.

    Parameters
    ----------
    descent : Descent
        Its values are without the `constant`.
    value, bound : float
        The objective, and a proven bound on that of every feasible matrix.
    unit : float
        The squared norm of the data.
    constant : float
        The part of the objective that does not depend on the answer.
    tol : float
        The largest gap of a global optimum.
    """
    values = np.array(descent.values) + constant
    certificate = proven_certificate(value, bound, unit)
    stop = StopReason.LOCAL_OPTIMUM if descent.stop is StopReason.CONVERGED else descent.stop
    return {
        "status": certificate.status(tol, stop).value,
        "stop_reason": _reason(descent, value, bound, certificate.meets(tol)),
        **(certificate.fields | {"dual_value": bound}),
        "iterations": len(values) - 1,
        "history": {
            "iteration": np.arange(float(len(values))),
            "value": values,
            "gap": np.array([proven_certificate(v, bound, unit).gap for v in values.tolist()]),
        },
    }


def proven_certificate(value: float, bound: float, unit: float) -> Certificate:
    """Return the certificate of a value and a bound on all, whose round-off is a fraction of `unit`."""
    return bracket(value, min(bound, value), resolution=_RESOLUTION * unit)


def _reason(descent: Descent, value: float, bound: float, optimal: bool) -> str:
    """Return why the descent stopped, and what is proven."""
    if optimal:
        return StopReason.CONVERGED.value
    proven = f"no allowed matrix has a value below {bound:.6g}, {max(bound / value, 0.0):.1%} of this one"
    if descent.stop is StopReason.CONVERGED:
        return f"A local optimum (relative residual {descent.residual:.0e}). Proven: {proven}."
    return f"{descent.stop} Proven: {proven}."


def top_squares(eigenvalues: Array, k: int, size: float) -> float:
    """Return an upper bound on the sum of the `k` largest squared positive eigenvalues.

    Parameters
    ----------
    eigenvalues : array of shape (m,)
        As computed, ascending; all, or the largest.
    k : int
    size : float
        The norm of the matrix times its order.
    """
    top = np.maximum(eigenvalues[-k:] + ROUND_OFF * size, 0.0)
    return float(top @ top) * (1 + k * EPS)


def descend_in_balls(B: Array, R: Array, radius: Array, tol: float, max_iter: int) -> Descent:
    """Minimize ``||off(B - R R')||_F^2`` from `R` to a local optimum, with rows no longer than their radius.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    R : array of shape (n, k)
    radius : array of shape (n,)
    tol : float
        Largest relative residual.
    max_iter : int

    References
    ----------
    Bertsekas (1982), Projected Newton methods for optimization problems with simple constraints; Dembo,
    Steihaug (1983), Truncated-Newton algorithms for large-scale unconstrained optimization.
    """
    objective = Objective(B)
    size = 4 * max(np.sqrt(objective.square), TINY)
    at = _BallPoint(objective, _projected(_best_multiple(objective, R), radius), radius)
    values, stop = [at.value], StopReason.MAX_ITER
    unit = 1 / max(4 * float(np.linalg.norm(at.gram)), size / len(B), TINY)
    residual = _residual(at, unit) / size
    best = at
    try:
        while residual > tol and len(values) <= max_iter:
            checkpoint()
            newton = _newton_step(objective, at, residual), _NEWTON_TRIALS
            new = _stepped(objective, at, (newton, (-unit * at.gradient, _GRADIENT_TRIALS)))
            if new is None:
                stop = StopReason.STALLED
                break
            at = new
            values.append(at.value)
            if at.value < best.value:
                best = at
            residual = _residual(at, unit) / size
    except CutShort as cut:
        stop = reason(cut)
    return Descent(best.R, values, residual, StopReason.CONVERGED if residual <= tol else stop)


def _best_multiple(objective: Objective, R: Array) -> Array:
    """Return the multiple of `R` of smallest objective; `R` itself if that is zero, a stationary point."""
    if objective.square == 0:
        return 0 * R
    square = np.square(R.T @ R).sum() - np.square(np.square(R).sum(axis=1)).sum()
    share = float(np.vdot(R, objective.B @ R)) / max(float(square), TINY)
    return R * np.sqrt(share) if share > 0 else R


def _projected(R: Array, radius: Array) -> Array:
    """Return the nearest matrix whose rows are no longer than their radius."""
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    return R * (radius / np.maximum(length, radius))[:, None]


def _stepped(objective: Objective, at: _BallPoint, steps: Iterable[tuple[Array, int]]) -> _BallPoint | None:
    """Return the first point along projected steps that decreases enough, None if round-off prevents it.

    `steps` are directions, and how many lengths of each to try.
    """
    largest = at.value + _ROUND_OFF * objective.square
    for D, trials in steps:
        length = 1.0
        for _ in range(trials):
            new = _BallPoint(objective, _projected(at.R + length * D, at.radius), at.radius)
            slope = float(np.vdot(at.gradient, new.R - at.R))
            if slope < 0 and new.value <= largest + _DECREASE * slope:
                return new
            length *= _CUT
    return None


def _residual(at: _BallPoint, unit: float) -> float:
    """Return the norm of the projected gradient: of the change in a step, divided by the step."""
    changed = _projected(at.R - unit * at.gradient, at.radius) - at.R
    return float(np.linalg.norm(changed)) / unit


class _BallPoint:
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


def _newton_step(objective: Objective, at: _BallPoint, residual: float) -> Array:
    """Return an approximate solution of Newton's equation; a direction of descent.

    Parameters
    ----------
    objective : Objective
    at : _BallPoint
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

    inverse = 1 / np.maximum(g, max(_LEAST * float(g[-1]), TINY))
    forcing = min(_FORCING, np.sqrt(residual))
    D = _solved(hessian, lambda D: tangent(inverse * D), -tangent(at.gradient @ W) / 4, forcing)
    return np.asarray(D @ W.T)


def _solved(
    hessian: Callable[[Array], Array], inverse: Callable[[Array], Array], right: Array, forcing: float
) -> Array:
    """Return the iterate of conjugate gradients that meets the residual, or before a negative curvature."""
    D, flat = conjugate_gradients(hessian, right, inverse, forcing, _PRODUCTS)
    return D if flat is None or D.any() else flat


def leading_part(B: Array, k: int) -> Array:
    """Return the ``R`` of `k` columns with ``R R'`` nearest to `B`, approximately for a large matrix."""
    n = len(B)
    theta, U = np.zeros(0), B
    if n > _SMALL * k:
        start = np.random.default_rng(0).normal(size=n)
        with suppress(ArpackError):  # of a matrix that has few different eigenvalues
            theta, U = eigsh(B, k=k, which="LA", v0=start, tol=_ACCURATE)
    if not len(theta):
        theta, U = np.linalg.eigh(B)
    return np.asarray(U[:, -k:] * np.sqrt(np.maximum(theta[-k:], 0.0)))
