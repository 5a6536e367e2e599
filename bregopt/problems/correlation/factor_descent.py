"""Spectral projected gradient for products ``R R'`` whose rows are in balls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import CutShort, checkpoint
from bregopt.problems.correlation.descent import Descent, Objective
from bregopt.program import StopReason
from bregopt.routes.progress import reason

__all__ = ["descend_in_balls"]

_MEMORY = 8  # values of which a step may not exceed the largest
_ROUND_OFF = 1e-14  # of values, relative to ``||off(B)||^2``
_DECREASE = 1e-4  # fraction of the decrease to first order that a step must attain
_SHORTEST, _LONGEST = 1e-10, 1e10  # steps, relative to the inverse of the first curvature
_CUT = 0.25  # factor of a step that does not decrease the objective enough


@dataclass(frozen=True, eq=False)
class _Point:
    R: Array
    value: float
    gradient: Array

    @classmethod
    def of(cls, objective: Objective, R: Array) -> _Point:
        return cls(R, *objective.at(R)[:2])


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
    Birgin, Martinez, Raydan (2000), Nonmonotone spectral projected gradient methods on convex sets; Borsdorf,
    Higham, Raydan (2010), Computing a nearest correlation matrix with factor structure.
    """
    objective = Objective(B)
    size = 4 * max(np.sqrt(objective.square), TINY)
    now = best = _Point.of(objective, _projected(R, radius))
    values = [now.value]
    unit = 1 / max(4 * float(np.linalg.norm(now.R.T @ now.R)), size / len(B), TINY)
    step, stop = unit, StopReason.MAX_ITER
    residual = _residual(now, radius, unit) / size
    try:
        while residual > tol and len(values) <= max_iter:
            checkpoint()
            reference = max(values[-_MEMORY:]) + _ROUND_OFF * objective.square
            found = _stepped(objective, now, step, reference, radius, _SHORTEST * unit)
            if found is None:
                stop = StopReason.STALLED
                break
            new, moved, step = found
            # The residual for a longer step is smaller, so only a short move per step can meet `tol`.
            near = np.linalg.norm(moved) <= tol * size * max(step, unit)
            step = _spectral_step(moved, new.gradient - now.gradient, unit)
            now = new
            values.append(now.value)
            if now.value < best.value:
                best = now
            residual = _residual(now, radius, unit) / size if near else np.inf
    except CutShort as cut:
        stop = reason(cut)
    residual = min(residual, _residual(now, radius, unit) / size)
    return Descent(best.R, values, residual, StopReason.CONVERGED if residual <= tol else stop)


def _projected(R: Array, radius: Array) -> Array:
    """Return the nearest matrix whose rows are no longer than their radius."""
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    return R * (radius / np.maximum(length, radius))[:, None]


def _spectral_step(moved: Array, turned: Array, unit: float) -> float:
    """Return the step of Barzilai and Borwein: the inverse of the curvature along the last step."""
    curvature = float(np.vdot(moved, turned))
    step = float(np.vdot(moved, moved)) / curvature if curvature > 0 else np.inf
    return float(min(max(step, _SHORTEST * unit), _LONGEST * unit))


def _stepped(
    objective: Objective, now: _Point, step: float, reference: float, radius: Array, shortest: float
) -> tuple[_Point, Array, float] | None:
    """Return the point of the longest step that decreases enough, its distance, and the step.

    None where round-off prevents a decrease.
    """
    while step >= shortest:
        new = _Point.of(objective, _projected(now.R - step * now.gradient, radius))
        moved = new.R - now.R
        if new.value <= reference - _DECREASE * float(np.vdot(moved, moved)) / step:
            return new, moved, step
        step *= _CUT
    return None


def _residual(point: _Point, radius: Array, unit: float) -> float:
    """Return the norm of the projected gradient: of the change in a step, divided by the step."""
    changed = _projected(point.R - unit * point.gradient, radius) - point.R
    return float(np.linalg.norm(changed)) / unit
