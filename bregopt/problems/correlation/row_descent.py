"""Spectral projected gradient for products ``R R'`` whose rows have a bounded or a given length.

The objective is ``||off(B - R R')||_F^2``, where ``off`` drops the diagonal. With ``q_i = ||r_i||^2`` it is
``||off(B)||^2 - 2 <R, off(B) R> + ||R'R||^2 - ||q||^2``: one product of ``off(B)`` and a thin matrix a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from bregopt.arrays import TINY, Array
from bregopt.clock import CutShort, checkpoint
from bregopt.program import StopReason
from bregopt.routes.progress import reason

__all__ = ["Descent", "Projection", "descend", "distance", "in_balls", "leading_rows", "on_spheres"]

Projection = Callable[[Array, Array], Array]

_MEMORY = 8  # values of which a step may not exceed the largest
_ROUND_OFF = 1e-14  # of values, relative to ``||off(B)||^2``
_DECREASE = 1e-4  # fraction of the decrease to first order that a step must attain
_SHORTEST, _LONGEST = 1e-10, 1e10  # steps, relative to the inverse of the first curvature
_CUT = 0.25  # factor of a step that does not decrease the objective enough
_SLICE = 200_000  # entries of a slice of ``B - R R'``, which fits the cache
_SPARE, _FEW, _PRODUCTS = 10, 4, 5  # columns beside those of a start, share of the order, products with ``B``


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


def in_balls(R: Array, radius: Array) -> Array:
    """Return the nearest matrix whose rows are no longer than their radius."""
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    return R * np.minimum(1.0, radius / np.maximum(length, TINY))[:, None]


def on_spheres(R: Array, radius: Array) -> Array:
    """Return the nearest matrix whose rows are as long as their radius; a row of zeros gets equal entries."""
    length = np.sqrt(np.einsum("ij,ij->i", R, R))[:, None]
    unit = np.where(length > 0, R / np.maximum(length, TINY), 1 / np.sqrt(R.shape[1]))
    return unit * radius[:, None]


def leading_rows(B: Array, k: int) -> Array:
    """Return ``U diag(max(w, 0))^(1/2)`` of the `k` largest eigenvalues ``w`` and their eigenvectors.

    A few among many are approximate: Ritz pairs of a subspace iteration on ``B + s I``, where the shift makes
    positive eigenvalues the larger ones.
    """
    n, width = len(B), 2 * k + _SPARE
    if width * _FEW > n:
        w, U = scipy.linalg.eigh(B, subset_by_index=(n - k, n - 1), check_finite=False)
        return np.asarray(U * np.sqrt(np.maximum(w, 0.0)))
    shift = float(np.linalg.norm(B)) / np.sqrt(n)
    Q = np.random.default_rng(0).normal(size=(n, width))
    for _ in range(_PRODUCTS):
        Q = np.linalg.qr(B @ Q + shift * Q)[0]
    w, V = np.linalg.eigh(Q.T @ (B @ Q))
    return np.asarray(Q @ (V[:, -k:] * np.sqrt(np.maximum(w[-k:], 0.0))))


def distance(B: Array, R: Array) -> float:
    """Return ``||off(B - R R')||_F^2`` from the entries, so that no digits cancel."""
    n, total = len(B), 0.0
    step = max(1, _SLICE // n)
    for a in range(0, n, step):
        left = B[a : a + step] - R[a : a + step] @ R.T
        left[np.arange(len(left)), np.arange(a, a + len(left))] = 0.0
        total += float(np.vdot(left, left))
    return total


@dataclass(frozen=True, eq=False)
class _Point:
    R: Array
    value: float
    gradient: Array
    curvature: float


class _Objective:
    """``||off(B - R R')||_F^2`` and its gradient; `B` has a zero diagonal."""

    def __init__(self, B: Array) -> None:
        self.B = B
        self.square = float(np.vdot(B, B))

    def at(self, R: Array) -> _Point:
        BR, gram = self.B @ R, R.T @ R
        q = np.einsum("ij,ij->i", R, R)
        value = self.square - 2 * float(np.vdot(R, BR)) + float(np.vdot(gram, gram)) - float(q @ q)
        return _Point(R, value, 4 * (R @ gram - BR - q[:, None] * R), 4 * float(np.linalg.norm(gram)))


def descend(B: Array, R: Array, radius: Array, project: Projection, tol: float, max_iter: int) -> Descent:
    """Minimize ``||off(B - R R')||_F^2`` from `R` to a local optimum.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    R : array of shape (n, k)
    radius : array of shape (n,)
    project : callable
        :func:`in_balls` or :func:`on_spheres`.
    tol : float
        Largest relative residual.
    max_iter : int

    References
    ----------
    Birgin, Martinez, Raydan (2000), Nonmonotone spectral projected gradient methods on convex sets; Borsdorf,
    Higham, Raydan (2010), Computing a nearest correlation matrix with factor structure.
    """
    objective = _Objective(B)
    now = best = objective.at(project(R, radius))
    values, size = [now.value], 4 * max(np.sqrt(objective.square), TINY)
    unit = 1 / max(now.curvature, size / len(B), TINY)
    step, stop = unit, StopReason.MAX_ITER
    residual = _residual(now, radius, project, unit) / size
    try:
        while residual > tol and len(values) <= max_iter:
            checkpoint()
            reference = max(values[-_MEMORY:]) + _ROUND_OFF * objective.square
            new = _stepped(objective, now, step, reference, radius, project, _SHORTEST * unit)
            if new is None:
                stop = StopReason.STALLED
                break
            step = _spectral_step(now, new, unit)
            now = new
            values.append(now.value)
            if now.value < best.value:
                best = now
            residual = _residual(now, radius, project, unit) / size
    except CutShort as cut:
        stop = reason(cut)
    return Descent(best.R, values, residual, StopReason.CONVERGED if residual <= tol else stop)


def _spectral_step(old: _Point, new: _Point, unit: float) -> float:
    """Return the step of Barzilai and Borwein: the inverse of the curvature along the last step."""
    moved = new.R - old.R
    curvature = float(np.vdot(moved, new.gradient - old.gradient))
    step = float(np.vdot(moved, moved)) / curvature if curvature > 0 else np.inf
    return float(min(max(step, _SHORTEST * unit), _LONGEST * unit))


def _stepped(
    objective: _Objective,
    now: _Point,
    step: float,
    reference: float,
    radius: Array,
    project: Projection,
    shortest: float,
) -> _Point | None:
    """Return the point of the longest step that decreases enough; None where round-off prevents it."""
    while step >= shortest:
        new = objective.at(project(now.R - step * now.gradient, radius))
        moved = new.R - now.R
        if new.value <= reference - _DECREASE * float(np.vdot(moved, moved)) / step:
            return new
        step *= _CUT
    return None


def _residual(point: _Point, radius: Array, project: Projection, unit: float) -> float:
    """Return the norm of the projected gradient: of the change in a step, divided by the step."""
    changed = project(point.R - unit * point.gradient, radius) - point.R
    return float(np.linalg.norm(changed)) / unit
