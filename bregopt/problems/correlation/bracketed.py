"""The solution of a problem whose optimum lies between a value and a bound that are computed directly."""

from __future__ import annotations

import time
from typing import Any

from bregopt.arrays import Array
from bregopt.certify import bracket
from bregopt.program import StopReason
from bregopt.routes.solution import Solution

__all__ = ["bracketed"]

_RESOLUTION = 1e-6  # fraction of the scale: the round-off of the bounds


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
    certificate = bracket(value, min(lower, value), resolution=_RESOLUTION * scale, primal_residual=residual)
    stop = StopReason.CONVERGED if certificate.meets(tol) else StopReason.STALLED
    return Solution(
        status=certificate.status(tol, stop).value,
        stop_reason=stop.value,
        value=value,
        X=X,
        u=u,
        duals=duals,
        dual_value=lower,
        gap=certificate.gap,
        primal_residual=residual,
        dual_residual=0.0,
        error=certificate.error,
        iterations=iterations,
        timings={"total": time.perf_counter() - begin},
        solver=solver,
        history={},
        citation=citation,
    )
