"""Nearness in the largest entry and in the spectral norm: semidefinite programs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.errors import ConvergenceWarning, UnsupportedProblemError, is_one_of
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.modeling.variables import Variable
from bregopt.problems.correlation.explain import explained
from bregopt.problems.correlation.largest_entry import entry_rows, measured, splitting_route
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.rows import correlation_rows
from bregopt.problems.correlation.solve import solve_request
from bregopt.problems.correlation.spectral import of_smallest_eigenvalue
from bregopt.problems.objective import divergence_class
from bregopt.program import StopReason
from bregopt.program.lowrank import LowRank
from bregopt.routes.base import Settings
from bregopt.routes.driver import warn_unproven
from bregopt.routes.solution import Solution, Status

__all__ = ["solve_norm"]

_SMALL = 40  # largest order at which `path`, in less than a second, replaces a splitting that is slow
_TRIAL = 1_000  # iterations after which it is: 1 in 300 random problems of tests/test_largest_entry.py's kind


def solve_norm(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return a correlation matrix nearest to ``A`` in the largest entry or in the spectral norm.

    Raises
    ------
    TypeError, UnsupportedProblemError
        If an argument does not go with the norm.
    """
    _check(request)
    if request.divergence == "spectral":
        found = of_smallest_eigenvalue(request, options)
        if found is not None:
            return _shifted(found, request)
    if request.divergence == "largest_entry" and _splits(request, options):
        return _of_splitting(request, options)
    return _shifted(_problem(request).solve(**options), request)


def _problem(request: Request) -> Problem:
    """Return the semidefinite program."""
    Y, d = PSD(request.n, name="X"), Variable(nonneg=True, name="distance")
    declare = _spectral if request.divergence == "spectral" else entry_rows
    rows = [*correlation_rows(Y, replace(request, s=np.ones(request.n))), *declare(Y, d, request)]
    if request.condition is not None:
        rows += _condition(Y, request)
    return Problem(Minimize(d), rows)


def _splits(request: Request, options: Mapping[str, Any]) -> bool:
    """Whether the splitting takes the problem and its options, rather than `path`."""
    plain = is_one_of(options.get("solver", "auto"), ("auto",)) and request.condition is None
    known = {*Settings.__dataclass_fields__, "solver", "warm_start"}
    return plain and options.keys() <= known and bool(measured(request)[1].any())


def _of_splitting(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the answer of the splitting.

    If entries are fixed or have bounds it starts from the nearest matrix in the Frobenius norm, which exists
    or is proven not to exist. The splitting itself finds no such proof.
    """
    first = np.array(request.A)
    np.fill_diagonal(first, 1.0)
    if len(request.fixed.i) or len(request.bounded.i):
        nearest = _in_frobenius(request, options)
        if nearest.status == Status.INFEASIBLE:
            return nearest
        first = first if nearest.X is None else nearest.X
    first = first - request.t * np.eye(request.n)
    problem, own = _problem(request), {**options, "solver": splitting_route(request, first)}
    if request.n > _SMALL or options.get("max_iter") is not None:
        return _shifted(problem.solve(**own), request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = problem.solve(**{**own, "max_iter": _TRIAL})
    if found._stop is StopReason.MAX_ITER:
        found = problem.solve(**options)
    elif found.status != Status.OPTIMAL:
        warn_unproven(found, options.get("tol", Settings.tol))
    return _shifted(found, request)


def _in_frobenius(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the nearest matrix in the Frobenius norm without weights, or the proof that there is none."""
    kind, s = divergence_class("frobenius"), np.ones(request.n)
    plain = replace(request, divergence="frobenius", kind=kind, s=s, H=None, unknown=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not converge
        return solve_request(
            plain, {name: options[name] for name in ("time_limit", "tol") if name in options}
        )


def _shifted(solution: Solution, request: Request) -> Solution:
    """Return the solution in terms of ``X = Y + Diag(t)``."""
    if solution.X is None:
        return explained(solution, request)
    reason = (
        f"derivatives are known for divergences; the minimizer of {request.divergence} need not be unique"
    )
    return replace(solution, X=solution.X + request.t * np.eye(request.n), _restated=reason)


def _check(request: Request) -> None:
    """Refuse what does not go with a norm."""
    if isinstance(request.A, LowRank):
        raise TypeError("A is LowRank, whose range no norm keeps: pass A.dense()")
    if request.divergence == "spectral" and request.H is not None:
        found = "unknown entries" if request.unknown is not None else "weights of entries"
        raise UnsupportedProblemError(
            f"the spectral norm is of all entries at once and takes no {found}; use weights of rows, or "
            "divergence='largest_entry'"
        )


def _spectral(Y: PSD, d: Variable, request: Request) -> list[Any]:
    """Return ``-d I <= S (X - A) S <= d I``, divided by ``S`` on both sides."""
    A = np.asarray(request.A) - request.t * np.eye(request.n)
    W = np.diag(1 / request.s**2)
    return [(A + d * W >> Y).named("above"), (Y >> A - d * W).named("below")]


def _condition(Y: PSD, request: Request) -> list[Any]:
    """Return ``l I <= D X D <= kappa l I`` with a variable ``l``, divided by ``D`` on both sides."""
    least, n = Variable(nonneg=True, name="least eigenvalue"), request.n
    unit = np.eye(n) if request.scale is None else np.diag(request.scale**-2.0)
    X = Y + request.t * np.eye(n)
    assert request.condition is not None
    return [X >> least * unit, X << request.condition * least * unit]
