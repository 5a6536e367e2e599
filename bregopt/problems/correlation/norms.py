"""Nearness in the largest entry and in the spectral norm: semidefinite programs.

In the spectral norm mostly the smallest eigenvalue alone decides, by one smaller problem. Let ``v`` be a unit
eigenvector of the smallest eigenvalue ``-d < 0`` of ``A``. Then ``v'(X - A)v >= d`` for every psd ``X``, so
no distance is below ``d``. A matrix at this distance has ``Xv = 0``: it is ``Q M Q'`` with an orthonormal
basis ``Q`` of the complement of ``v``. Among these, the one nearest to ``A`` in the Frobenius norm is a
candidate. It is optimal if ``|Q'(X - A)Q| <= d``, which an eigendecomposition proves. It is on 8 of the 10
indefinite matrices of the tests' data folder, and on the random ones of the tests.

Optima that lie between a value and a bound that are computed directly are :func:`bracketed`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import bracket
from bregopt.errors import ConvergenceWarning, UnsupportedProblemError, is_one_of
from bregopt.modeling.objectives import Minimize, frobenius_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Variable
from bregopt.problems.arguments import divergence_class
from bregopt.problems.correlation.infeasibility import explained
from bregopt.problems.correlation.largest_entry import entry_rows, measured, splitting_route
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.solve import correlation_rows, solve_request
from bregopt.program import StopReason
from bregopt.program.lowrank import LowRank
from bregopt.records import field_names, replace
from bregopt.routes.base import Settings
from bregopt.routes.driver import warn_unproven
from bregopt.routes.solution import Solution, Status

__all__ = [
    "bracketed",
    "solve_norm",
]

_RESOLUTION = 1e-6  # fraction of the scale: the round-off of the bounds

_SMALL = 40  # largest order at which `path`, in less than a second, replaces a splitting that is slow
_TRIAL = 1_000  # iterations after which it is: 1 in 300 random problems (test_largest_entry.py)
_FINER = 1e-2  # tolerance of the candidate's problem, as a fraction of that of the answer
_FINEST = 1e-9
_CITATION = "Qi, Sun (2006), A Quadratically Convergent Newton Method, SIAM J. Matrix Anal. Appl. 28"


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

    `lower` is a bound on the optimum, `scale` that of the objective, and `begin` when the work began.
    """
    certificate = bracket(value, min(lower, value), resolution=_RESOLUTION * scale, primal_residual=residual)
    stop = StopReason.CONVERGED if certificate.meets(tol) else StopReason.STALLED
    return Solution(
        status=certificate.status(tol, stop).value,
        stop_reason=stop.value,
        X=X,
        u=u,
        duals=duals,
        **(certificate.fields | {"value": value, "dual_value": lower}),
        iterations=iterations,
        timings={"total": time.perf_counter() - begin},
        solver=solver,
        history={},
        citation=citation,
    )


def solve_norm(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return a correlation matrix nearest to ``A`` in the largest entry or in the spectral norm.

    Raises
    ------
    TypeError, UnsupportedProblemError
        If an argument does not go with the norm.
    """
    if isinstance(request.A, LowRank):
        raise TypeError("A is LowRank, whose range no norm keeps: pass A.dense()")
    if request.divergence == "spectral" and request.H is not None:
        which = "unknown entries" if request.unknown is not None else "weights of entries"
        raise UnsupportedProblemError(
            f"the spectral norm is of all entries at once and takes no {which}; use weights of rows, or "
            "divergence='largest_entry'"
        )
    if request.divergence == "spectral":
        found = _of_smallest_eigenvalue(request, options)
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
    known = {*field_names(Settings), "solver", "warm_start"}
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


class _Candidate(NamedTuple):
    """``Y = S (X - Diag(t)) S``, the largest violation of a row, and the steps of Newton's method."""

    Y: Array
    violation: float
    iterations: int


def _of_smallest_eigenvalue(request: Request, options: Mapping[str, Any]) -> Solution | None:
    """Return the answer if its distance is minus the smallest eigenvalue, None if this is not proven."""
    if not is_one_of(options.get("solver", "auto"), ("auto",)) or request.condition is not None:
        return None
    begin, tol, s = time.perf_counter(), options.get("tol", Settings.tol), request.s
    B = s[:, None] * (np.asarray(request.A) - request.t * np.eye(request.n)) * s
    eigenvalues, V = np.linalg.eigh(B)
    least = max(-float(eigenvalues[0]), 0.0)
    if least:
        candidate = _candidate(request, eigenvalues[1:], V[:, 1:], max(_FINER * tol, _FINEST))
    else:
        candidate = _scaled(request, B, 0)
    if candidate is None or candidate.violation > tol:
        return None
    distance = float(np.abs(np.linalg.eigvalsh(candidate.Y - B)).max())
    v = V[:, 0] * s if least else np.zeros(request.n)
    n, kept = request.n, [len(rows.i) for rows in (request.fixed, request.bounded) if len(rows.i)]
    solution = bracketed(
        value=distance,
        lower=least,
        scale=float(np.abs(eigenvalues).max()),
        tol=tol,
        X=candidate.Y / np.outer(s, s),
        u={"distance": distance},
        duals=(np.zeros(n), *map(np.zeros, kept), np.outer(v, v), np.zeros((n, n))),
        residual=candidate.violation,
        iterations=candidate.iterations,
        solver="bregman",
        citation=_CITATION,
        begin=begin,
    )
    return solution if solution.gap <= tol else None


def _candidate(request: Request, eigenvalues: Array, Q: Array, tol: float) -> _Candidate | None:
    """Return the matrix ``Q M Q'`` nearest to ``Q diag(eigenvalues) Q'`` that satisfies the rows."""
    if Q.shape[1] == 0:
        return None
    M = PSD(Q.shape[1], name="M")
    rows = correlation_rows(Q @ M @ Q.T, request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate need not converge
        found = Problem(Minimize(frobenius_div(M, np.diag(eigenvalues))), rows).solve(tol=tol)
    if found.status not in ("optimal", "optimal_inaccurate"):
        return None
    Y = Q @ found.X @ Q.T
    return _scaled(request, (Y + Y.T) / 2, found.iterations)


def _scaled(request: Request, Y: Array, iterations: int) -> _Candidate | None:
    """Return a matrix scaled to the diagonal of the rows; None if it has none."""
    if Y.diagonal().min() <= 0:
        return None
    size = np.sqrt(request.s**2 * (1 - request.t) / Y.diagonal())
    Y = Y * np.outer(size, size)
    np.fill_diagonal(Y, request.s**2 * (1 - request.t))
    violations = [0.0]
    for entries in (request.fixed, request.bounded):
        at = Y[entries.i, entries.j] / (request.s[entries.i] * request.s[entries.j])
        violations += [float(np.max(gap, initial=0.0)) for gap in (entries.lo - at, at - entries.hi)]
    return _Candidate(Y, max(violations), iterations)
