"""Linear side constraints on the matrix of Winnow, met by Bregman projections (Warmuth 2007, §5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bregopt.errors import SolverError
from bregopt.modeling.atoms import trace
from bregopt.modeling.objectives import Minimize, von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.online import meg

__all__ = ["functions", "projected"]

_TOL = 1e-10  # tolerance of the projections

# Each function takes the matrix variable and returns a constraint or a list of them.
Declarations = Callable[[PSD], object] | Sequence[Callable[[PSD], object]]


def functions(constraints: Any) -> list[Callable[[PSD], Any]]:
    """Return side constraints as a list of functions of a matrix variable."""
    given = [constraints] if callable(constraints) else constraints
    if isinstance(given, str) or not hasattr(given, "__iter__") or not all(callable(f) for f in given):
        raise TypeError(f"constraints is {constraints!r}; expected functions of the matrix variable")
    return list(given)


def projected(state: meg.MEGState, given: list[Callable[[PSD], Any]], kept: float | None) -> meg.MEGState:
    """Return the Bregman projection on the side constraints, and on the trace `kept` if it is given.

    Raises
    ------
    SolverError
        If there is no projection.
    """
    W = PSD(len(state.W), name="W")
    rows = [f(W) for f in given] + ([] if kept is None else [trace(W) == kept])
    sol = Problem(Minimize(von_neumann_div(W, state.W)), rows).solve(solver="bregman", tol=_TOL)
    if sol.status != "optimal":
        raise SolverError(f"no projection on the side constraints: {sol.status}. {sol.stop_reason}")
    return meg.init(sol.X)
