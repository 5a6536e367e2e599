"""The solution of a problem whose optimum lies between a value and a bound that are computed directly."""

from __future__ import annotations

import time
from typing import Any

from bregopt.arrays import Array
from bregopt.program import StopReason
from bregopt.routes.solution import Solution, Status

__all__ = ["bracketed"]

_SMALLEST = 1e-2  # fraction of the scale: gaps of smaller values are relative to it


def bracketed(
    value: float,
    lower: float,
    scale: float,
    tol: float,
    X: Array,
    u: dict[str, float],
    duals: tuple[Any, ...],
    residual: float,
    iterations: int,
    solver: str,
    citation: str,
    begin: float,
) -> Solution:
    """Return the solution; it is optimal if the gap and the residual of its rows meet the tolerance.

    Parameters
    ----------
    value, lower : float
        The objective at ``X``, and a lower bound on the optimum.
    scale : float
        The scale of the objective.
    begin : float
        When the work began, of ``time.perf_counter``.
    """
    gap = max(value - lower, 0.0) / max(abs(value), _SMALLEST * scale)
    optimal = gap <= tol and residual <= tol
    return Solution(
        status=(Status.OPTIMAL if optimal else Status.OPTIMAL_INACCURATE).value,
        stop_reason=(StopReason.CONVERGED if optimal else StopReason.STALLED).value,
        value=value,
        X=X,
        u=u,
        duals=duals,
        dual_value=lower,
        gap=gap,
        primal_residual=residual,
        dual_residual=0.0,
        error=max(value - lower, 0.0),
        iterations=iterations,
        timings={"total": time.perf_counter() - begin},
        solver=solver,
        history={},
        citation=citation,
    )
