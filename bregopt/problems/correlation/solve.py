"""The nearest correlation matrix to one matrix, by the modeling language.

LogDet and von Neumann start from the completion of largest determinant where entries are unknown.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import EPS, Array, Mask
from bregopt.certify import PrimalDualPoint, certify
from bregopt.errors import ConvergenceWarning
from bregopt.io.pandas_labels import pair_labels
from bregopt.modeling.atoms import diag
from bregopt.modeling.bounds import between
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.objectives import Minimize, frobenius_div, logdet_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.correlation.explain import explained
from bregopt.problems.correlation.request import Request
from bregopt.problems.objective import nearness
from bregopt.program.lowrank import LowRank
from bregopt.records import replace
from bregopt.routes.accuracy import Units
from bregopt.routes.base import Settings
from bregopt.routes.derivatives.restated import Congruence
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = [
    "INFEASIBLE",
    "correlation_rows",
    "declared",
    "solve_request",
    "units_of",
    "with_completion",
    "with_diagonal",
]

INFEASIBLE = ("infeasible", "infeasible_inaccurate")
_FINER = 0.01  # of the tolerance, for an answer whose diagonal can be made exact within it
_COMPLETION_TOL = 1e-9  # of the completion, which is data of the nearness problem


def solve_request(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the nearest correlation matrix.

    Let ``S`` be the diagonal matrix of the roots of the weights. The variable is ``Y = S (X - Diag(t)) S``,
    which is positive semidefinite if and only if ``X`` has no eigenvalue below ``t``. With a bound on the
    condition number it is ``Y = S X S``, and ``t`` a bound on its eigenvalues.
    """
    given, request = request, with_completion(request)
    s, t = request.s, request.shift
    problem = declared(request)
    with clock.reserving(_seconds_to_scale(request)):
        solution = explained(problem.solve(**options), request)
    if solution.status in INFEASIBLE:
        return solution
    required = s**2 * (1 - t)
    tol = options.get("tol", Settings.tol)
    answer = with_diagonal(problem, solution, required, tol, **request.of_eigenvalues)
    if answer.status == "optimal" and not _has_diagonal(answer, required):
        # Rows at their bounds left the scaling no room; a finer answer needs less of it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its tolerance is not the one asked for
            finer = problem.solve(**{**options, "tol": _FINER * tol, "warm_start": solution})
        finer = with_diagonal(problem, finer, required, tol, **request.of_eigenvalues)
        if finer.status == "optimal" and _has_diagonal(finer, required):
            answer = finer
    solution = answer
    restated: Congruence | str = Congruence(s, request.n, request.fixed.i, request.fixed.j)
    if request is not given:
        restated = "derivatives with unknown entries are known for frobenius; complete A first"
    return replace(_moved_back(solution, request), _restated=restated)


def declared(request: Request) -> Problem:
    """Return the problem in terms of ``Y``."""
    Y = PSD(request.n, name="X")
    return Problem(Minimize(_distance(Y, request)), correlation_rows(Y, request))


def _has_diagonal(solution: Solution, required: Array) -> bool:
    """Whether the diagonal is exact, or that of a factor, which is not scaled."""
    return isinstance(solution.X, LowRank) or bool((solution.X.diagonal() == required).all())


def with_completion(request: Request) -> Request:
    """Return the request with unknown entries completed, where the divergence needs all entries."""
    if request.unknown is None or request.kind is None or request.kind.quadratic:
        return request
    return replace(request, A=_completed(np.asarray(request.A), request.unknown), unknown=None)


def _distance(Y: PSD, request: Request) -> CurvedExpression:
    """Return the objective in terms of ``Y``."""
    A, s = request.A, request.s
    if isinstance(A, LowRank):
        return nearness(request.divergence, Y, A, "A")
    moved = s[:, None] * (A - request.shift * np.eye(request.n)) * s
    if request.of_eigenvalues:
        return nearness(request.divergence, Y, moved, "A", **request.of_eigenvalues)
    if request.kind is not None and request.kind.quadratic:
        return frobenius_div(Y, moved, weights=request.H)
    return nearness(request.divergence, Y, moved, "A")


def units_of(request: Request) -> Units | None:
    """Return the units of ``X``; None where it is the variable ``Y`` itself."""
    s, t = request.s, np.broadcast_to(request.shift, request.n)
    return None if not t.any() and (s == 1).all() else Units(s, t)


def _moved_back(solution: Solution, request: Request) -> Solution:
    """Return the solution in terms of ``X``."""
    units = units_of(request)
    if solution.X is None or units is None:
        return solution
    s, t = units.s, units.t
    Y, fixed = solution.X, request.fixed
    X = Y / np.outer(s, s) + np.diag(t)
    exact = Y.diagonal() == s**2 * (1 - t)
    np.fill_diagonal(X, np.where(exact, 1.0, X.diagonal()))  # exact entries stay exact
    i, j, round_off = fixed.i, fixed.j, 4 * EPS
    X[i, j] = X[j, i] = np.where(np.abs(X[i, j] - fixed.lo) <= round_off, fixed.lo, X[i, j])
    return replace(solution, X=X, _units=units)


def _seconds_to_scale(request: Request) -> float:
    """Return the approximate time of the certificate of a scaled answer, in seconds."""
    nothing = isinstance(request.A, LowRank) or clock.remaining() == math.inf
    return 0.0 if nothing else clock.seconds_for(request.n)


def with_diagonal(
    problem: Problem,
    solution: Solution,
    required: Array,
    tol: float,
    condition: float = math.inf,
    floor: float = 0.0,
) -> Solution:
    """Return the answer scaled to exactly the required diagonal, with the certificate of the scaled answer.

    An optimal answer is not scaled if the scaled one would not meet the tolerance.
    """
    if solution.X is None or isinstance(solution.X, LowRank):  # scaling would leave the range of X0
        return solution
    diagonal = solution.X.diagonal()
    if (diagonal == required).all() or (diagonal <= 0).any():  # exact already, or stopped too early
        return solution
    size = np.sqrt(required / diagonal)
    Y = solution.X * np.outer(size, size)
    if condition < math.inf or floor:
        Y = _conditioned(Y, required, condition, floor)
    np.fill_diagonal(Y, required)
    raw = solution._raw
    assert raw is not None
    with threads_for(len(Y)):
        certificate = certify(PrimalDualPoint(problem.program(), (Y,), *raw._point[1:], S=raw._S))
    if solution.status == "optimal" and not certificate.meets(tol):
        return solution
    return replace(
        solution,
        X=Y,
        value=certificate.primal,
        dual_value=certificate.dual,
        gap=certificate.gap,
        primal_residual=certificate.primal_residual,
        dual_residual=certificate.dual_residual,
        error=certificate.error,
    )


def _conditioned(Y: Array, diagonal: Array, condition: float, floor: float) -> Array:
    """Return `Y` mixed with its diagonal such that the bounds on its eigenvalues hold.

    The scaling of its diagonal may have moved eigenvalues beyond them, by as much as the residual.
    """
    eigenvalues = np.linalg.eigvalsh(Y)
    least, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    lacks = [(floor - least, float(diagonal.min()) - floor)]
    if condition < math.inf:
        lacks.append((largest - condition * least, float(condition * diagonal.min() - diagonal.max())))
    share = max((lack / (lack + room) for lack, room in lacks if lack > 0 and room > 0), default=0.0)
    return (1 - share) * Y + share * np.diag(diagonal)


def _completed(A: Array, unknown: Mask) -> Array:
    """Return the positive definite matrix of largest determinant with the known entries of `A`.

    Its inverse is zero at the unknown entries (Grone, Johnson, Sa, Wolkowicz 1984, Positive definite
    completions of partial Hermitian matrices). It exists if and only if there is a positive definite
    completion.

    Raises
    ------
    ValueError
        If there is none.
    """
    d = A.diagonal()
    if (d <= 0).any():
        raise ValueError(f"A has {d.min():g} on the diagonal; expected numbers above 0")
    s = np.sqrt(d)
    C = A / np.outer(s, s)
    X = PSD(len(A), name="X")
    i, j = np.nonzero(np.triu(~unknown, 1))
    rows: list[Any] = [diag(X) == 1]
    if len(i):
        rows.append(X[i, j] == C[i, j])
    if (np.abs(C[i, j]) < 1).all():
        solution = Problem(Minimize(logdet_div(X, np.eye(len(A)))), rows).solve(tol=_COMPLETION_TOL)
        if solution.status == "optimal":
            full: Array = np.where(unknown, solution.X, C) * np.outer(s, s)
            return full
    raise ValueError(
        "the known entries of A have no positive definite completion, which LogDet and von Neumann start "
        "from: repair A first, with divergence='frobenius', missing='unknown' and min_eigenvalue"
    )


def correlation_rows(Y: Any, request: Request) -> list[Constraint]:
    """Return the named rows on the entries of ``D X D`` in terms of ``Y = S (X - Diag(t)) S``."""
    t, fixed, bounded = request.shift, request.fixed, request.bounded
    unit = np.ones(request.n) if request.scale is None else request.scale
    s = request.s / unit
    rows = [(diag(Y) / s**2 == unit**2 * (1 - t)).named("diagonal")]
    if len(fixed.i):
        entries = Y[fixed.i, fixed.j] / (s[fixed.i] * s[fixed.j])
        rows.append((entries == fixed.lo * unit[fixed.i] * unit[fixed.j]).named("fixed"))
    if len(bounded.i):
        entries = Y[bounded.i, bounded.j] / (s[bounded.i] * s[bounded.j])
        largest = unit[bounded.i] * unit[bounded.j]
        rows.append(between(entries, bounded.lo * largest, bounded.hi * largest).named("bounds"))
    if request.labels is not None:
        pairs = {"fixed": fixed, "bounds": bounded}
        for row in rows:
            own = pairs.get(row.name or "")
            row.axes = (request.labels if own is None else pair_labels(request.labels, own.i, own.j),)
    return rows
