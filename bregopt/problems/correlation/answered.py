"""The answer to a request for a nearest correlation matrix: by which method, and what works if it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bregopt.io.pandas_labels import labeled
from bregopt.problems.correlation.answer import Asked, CorrelationSolution, reportable
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.solve import INFEASIBLE, solve_request
from bregopt.problems.correlation.suggest import Suggestion, check_suggestible, obstacle, suggestion
from bregopt.records import replace
from bregopt.routes.solution import Solution, Status

__all__ = ["answered"]


def answered(
    request: Request, given: Mapping[str, Any], options: Mapping[str, Any], solve: Callable[..., Any]
) -> CorrelationSolution:
    """Return the answer to a request.

    Parameters
    ----------
    request : Request
    given : mapping
        The arguments of the user.
    options : mapping
        Options of the solver.
    solve : callable
        :func:`bregopt.nearest_correlation`.
    """
    suggest = given["suggest"]
    if suggest:
        check_suggestible(request)
    solution = labeled(_solver(request)(request, options), request.labels)
    unmet = suggest and solution.status != Status.OPTIMAL
    suggested = suggestion(request, given, solve) if unmet else None
    if suggested is not None or not (suggest or obstacle(request)):
        solution = _with_hint(solution, suggested)
    return reportable(solution, Asked.of(request), suggested)


def _solver(request: Request) -> Callable[[Request, Mapping[str, Any]], Solution]:
    """Return the function that solves the problem; its module is imported when a problem needs it."""
    if request.rank is not None:
        from bregopt.problems.correlation.rank import solve_rank

        return solve_rank
    if request.groups is not None:
        from bregopt.problems.correlation.equal_groups import solve_groups

        return solve_groups
    if request.kind is None:
        from bregopt.problems.correlation.norms import solve_norm

        return solve_norm
    return solve_request


def _with_hint(solution: Solution, suggested: Suggestion | None) -> Solution:
    """Return the answer; the reason why it is infeasible tells where the nearest request that works is."""
    if solution.status not in INFEASIBLE:
        return solution
    hint = "suggest=True finds" if suggested is None else "sol.suggestion is"
    return replace(solution, stop_reason=f"{solution.stop_reason} {hint} the nearest request that works.")
