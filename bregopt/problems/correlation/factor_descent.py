"""Projected Newton's method for products ``R R'`` whose rows are in balls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import CutShort, checkpoint
from bregopt.problems.correlation.descent import Descent, Objective
from bregopt.problems.correlation.factor_newton import BallPoint, newton_step
from bregopt.problems.correlation.leading import Leading
from bregopt.program import StopReason
from bregopt.routes.progress import reason

__all__ = ["descend_in_balls"]

_ROUND_OFF = 1e-14  # of values, relative to ``||off(B)||^2``
_DECREASE = 1e-4  # fraction of the decrease to first order that a step must attain
_CUT = 0.25  # factor of a step that does not decrease the objective enough
_NEWTON_TRIALS, _GRADIENT_TRIALS = 4, 16  # lengths of each step


def descend_in_balls(
    B: Array, R: Array, radius: Array, leading: Leading, tol: float, max_iter: int
) -> Descent:
    """Minimize ``||off(B - R R')||_F^2`` from `R` to a local optimum, with rows no longer than their radius.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    R : array of shape (n, k)
    radius : array of shape (n,)
    leading : Leading
        Eigenvectors of `B`, for the preconditioner.
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
    at = BallPoint(objective, _projected(_best_multiple(objective, R), radius), radius)
    values, stop = [at.value], StopReason.MAX_ITER
    unit = 1 / max(4 * float(np.linalg.norm(at.gram)), size / len(B), TINY)
    residual = _residual(at, unit) / size
    best = at
    try:
        while residual > tol and len(values) <= max_iter:
            checkpoint()
            new = _stepped(objective, at, _directions(objective, at, leading, residual, unit))
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


def _directions(
    objective: Objective, at: BallPoint, leading: Leading, residual: float, unit: float
) -> Iterator[tuple[Array, int]]:
    """Yield Newton's step, then that of the projected gradient, and how many of their lengths to try."""
    yield newton_step(objective, at, leading, residual), _NEWTON_TRIALS
    yield -unit * at.gradient, _GRADIENT_TRIALS


def _stepped(
    objective: Objective, at: BallPoint, directions: Iterator[tuple[Array, int]]
) -> BallPoint | None:
    """Return the first point along projected steps that decreases enough, None if round-off prevents it."""
    largest = at.value + _ROUND_OFF * objective.square
    for D, trials in directions:
        length = 1.0
        for _ in range(trials):
            new = BallPoint(objective, _projected(at.R + length * D, at.radius), at.radius)
            slope = float(np.vdot(at.gradient, new.R - at.R))
            if slope < 0 and new.value <= largest + _DECREASE * slope:
                return new
            length *= _CUT
    return None


def _residual(at: BallPoint, unit: float) -> float:
    """Return the norm of the projected gradient: of the change in a step, divided by the step."""
    changed = _projected(at.R - unit * at.gradient, at.radius) - at.R
    return float(np.linalg.norm(changed)) / unit
