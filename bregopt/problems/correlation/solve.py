"""The nearest correlation matrix in a divergence by the language, and in groups.

With the diagonal matrix ``S`` of the roots of the weights and the bound ``t`` on the eigenvalues the variable
is ``Y = S (X - t I) S``, which is positive semidefinite if and only if ``X`` has no eigenvalue below ``t``.
LogDet and von Neumann start from the completion of largest determinant where entries are unknown.

With one correlation for each pair of groups the problem has the order of the groups.
Let the groups have ``m_g`` rows and the correlations ``R_gh``. ``X`` has the eigenvalues of the matrix ``M``,

    M_gh = sqrt(m_g m_h) R_gh,    M_gg = 1 + (m_g - 1) R_gg,

and ``1 - R_gg``, each ``m_g - 1`` times. A Bregman divergence from ``A`` is, up to a constant, that from the
block average of ``A`` (squared Frobenius), of its inverse (LogDet) or of its logarithm (von Neumann).
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
from bregopt.clock import threads_for
from bregopt.errors import ConvergenceWarning, UnsupportedProblemError
from bregopt.io.matrices import pair_labels
from bregopt.modeling.atoms import diag
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.expression import CurvedExpression, Minimize
from bregopt.modeling.expressions import between
from bregopt.modeling.objectives import frobenius_div, logdet_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.arguments import (
    BoundedEntries,
    check_definite,
    nearness,
)
from bregopt.problems.correlation.infeasibility import explained
from bregopt.problems.correlation.request import Groups, Request
from bregopt.program.rows.base import LowRank
from bregopt.records import replace
from bregopt.routes.base import Settings
from bregopt.routes.derivatives.stacks import Congruence
from bregopt.routes.solution import Solution

INFEASIBLE = ("infeasible", "infeasible_inaccurate")
_FINER = 0.01  # of the tolerance, for an answer whose diagonal can be made exact within it
_COMPLETION_TOL = 1e-9  # of the completion, which is data of the nearness problem
_DISTANCE = 1e-12  # of fixed entries of one pair of groups


def solve_request(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the nearest correlation matrix.

    Let ``S`` be the diagonal matrix of the roots of the weights. The variable is ``Y = S (X - Diag(t)) S``,
    which is positive semidefinite if and only if ``X`` has no eigenvalue below ``t``. With a bound on the
    condition number it is ``Y = S X S``, and ``t`` a bound on its eigenvalues.
    """
    given, request = request, with_completion(request)
    s, t = request.s, request.shift
    problem = declared(request)
    scaled = not isinstance(request.A, LowRank) and clock.remaining() < math.inf
    with clock.reserving(clock.seconds_for(request.n) if scaled else 0.0):  # for another certificate
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


def _moved_back(solution: Solution, request: Request) -> Solution:
    """Return the solution in terms of ``X``."""
    units = request.units
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
    return replace(solution, X=Y, **certificate.fields)


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


def solve_groups(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the nearest correlation matrix with one correlation for each pair of groups.

    Raises
    ------
    UnsupportedProblemError, ValueError
        If another argument does not go with groups, or fixed entries and bounds of a pair contradict.
    """
    groups = request.groups
    assert groups is not None
    if request.kind is None:
        raise UnsupportedProblemError(
            f"groups go with frobenius, logdet and von_neumann; found divergence={request.divergence!r}, "
            "which averages of blocks do not reduce"
        )
    if request.condition is not None:
        raise UnsupportedProblemError(
            "max_condition does not go with groups: it couples the eigenvalues within groups with those "
            "between them; use min_eigenvalue"
        )
    if isinstance(request.A, LowRank):
        raise TypeError("A is LowRank, whose range equal correlations leave: pass A.dense()")
    request = with_completion(request)
    solve = _squares if request.kind is not None and request.kind.quadratic else _invariant
    solution = explained(solve(request, groups, _blocks(request, groups), options), request)
    if solution.X is None:
        return solution
    # Y = M - t I, and the invariant form has a second block.
    M: Any = solution.X[0] if isinstance(solution.X, tuple) else solution.X
    sizes = groups.sizes
    R: Array = M / np.sqrt(np.outer(sizes, sizes))
    inner = (M.diagonal() + request.shift - 1) / np.maximum(sizes - 1, 1)
    np.fill_diagonal(R, np.where(sizes > 1, inner, 1.0))
    X = R[np.ix_(groups.at, groups.at)]
    np.fill_diagonal(X, 1.0)
    return replace(solution, X=X, _restated="derivatives with groups are not known; leave them out")


def _blocks(request: Request, groups: Groups) -> BoundedEntries:
    """Return the bounds on the correlations of groups; those of all entries of a pair hold for its one.

    Pairs of groups ``i <= j`` include those of one group.
    """
    k = len(groups.names)
    lo, hi = np.full((k, k), -np.inf), np.full((k, k), np.inf)
    for entries in (request.fixed, request.bounded):
        g, h = np.sort([groups.at[entries.i], groups.at[entries.j]], axis=0)
        np.maximum.at(lo, (g, h), entries.lo)
        np.minimum.at(hi, (g, h), entries.hi)
    crossed = np.argwhere(lo > hi + _DISTANCE)
    if len(crossed):
        g, h = (int(each) for each in crossed[0])
        raise ValueError(
            f"fixed entries and bounds of the groups {groups.names[g]!r} and {groups.names[h]!r} ask for a "
            f"correlation from {lo[g, h]:g} to {hi[g, h]:g}; expected one that all of them allow"
        )
    least = -(1 - request.floor) / np.maximum(groups.sizes - 1, 1)  # of a psd matrix, within a group
    low = np.flatnonzero(hi.diagonal() < least - _DISTANCE)
    if len(low):
        g = int(low[0])
        raise ValueError(
            f"fixed entries and upper ask for a correlation of at most {hi[g, g]:g} within the group "
            f"{groups.names[g]!r}; equal correlations of {groups.sizes[g]} rows are at least {least[g]:g}"
        )
    g, h = np.nonzero(np.isfinite(lo) | np.isfinite(hi))
    return BoundedEntries(g, h, np.minimum(lo, hi)[g, h], hi[g, h])


def _squares(request: Request, groups: Groups, pairs: BoundedEntries, options: Mapping[str, Any]) -> Solution:
    """Solve with the squared Frobenius distance: weighted squares of the entries of ``Y = M - t I``."""
    k, t, sizes = len(groups.names), request.floor, groups.sizes
    A = np.asarray(request.A)
    W = np.outer(request.s, request.s) ** 2 if request.H is None else request.H**2
    on_diagonal = float(W.diagonal() @ (1 - A.diagonal()) ** 2)
    W = W - np.diag(W.diagonal())
    weight, moment = groups.block_sums(W), groups.block_sums(W * A)
    mean = np.divide(moment, weight, out=np.zeros((k, k)), where=weight > 0)
    constant = float(np.vdot(W * A, A) - np.vdot(moment, mean)) + on_diagonal
    unit = np.sqrt(np.outer(sizes, sizes))
    target = mean * unit
    np.fill_diagonal(target, 1 + (sizes - 1) * mean.diagonal() - t)
    np.fill_diagonal(unit, np.maximum(sizes - 1, 1))
    Y = PSD(k, name="X")
    single = sizes == 1
    rows = [(diag(Y)[single] == 1 - t).named("diagonal")] if single.any() else []
    if not single.all():
        rows.append((diag(Y)[~single] <= sizes[~single] * (1 - t)).named("eigenvalues within groups"))
    if len(pairs.i):
        own = pairs.i == pairs.j
        entries = (Y[pairs.i, pairs.j] - np.where(own, 1 - t, 0.0)) / unit[pairs.i, pairs.j]
        rows.append(between(entries, pairs.lo, pairs.hi).named("groups"))
    H = np.sqrt(weight) / unit + np.diag(single.astype(float))  # those entries are fixed
    problem = Problem(Minimize(frobenius_div(Y, target, weights=H) + constant), rows)
    solution = problem.solve(**options)
    if solution.X is None:
        return solution
    diagonal = solution.X.diagonal()
    required = np.where(single, 1 - t, np.minimum(diagonal, sizes * (1 - t)))
    return with_diagonal(problem, solution, required, options.get("tol", Settings.tol))


def _invariant(
    request: Request, groups: Groups, pairs: BoundedEntries, options: Mapping[str, Any]
) -> Solution:
    """Solve with LogDet or von Neumann: a block ``M``, and one for the eigenvalues within groups."""
    sizes = groups.sizes
    M0, rest, constant = _average(request, groups)
    inside = np.repeat(np.arange(len(sizes)), sizes - 1)  # the group of each eigenvalue within groups
    Y = PSD(len(sizes), name="X")
    bounds = request.of_eigenvalues
    objective: CurvedExpression = nearness(request.divergence, Y, M0, "A", **bounds) + constant
    total: Any = diag(Y)
    if len(inside):
        Z = PSD(len(inside), name="within groups")
        objective = objective + nearness(request.divergence, Z, np.diag(rest[inside]), "A", **bounds)
        total = total + (inside == np.arange(len(sizes))[:, None]).astype(float) @ diag(Z)
    rows = [(total == sizes.astype(float)).named("diagonal")]
    if len(pairs.i):
        own = pairs.i == pairs.j
        unit = np.where(own, sizes[pairs.i] - 1, np.sqrt(sizes[pairs.i] * sizes[pairs.j]))
        entries = (Y[pairs.i, pairs.j] - np.where(own, 1.0, 0.0)) / unit
        rows.append(between(entries, pairs.lo, pairs.hi).named("groups"))
    return Problem(Minimize(objective), rows).solve(**options)


def _average(request: Request, groups: Groups) -> tuple[Array, Array, float]:
    """Return the average of ``A`` as its ``M`` and its eigenvalues within groups, and the constant."""
    A, sizes = np.asarray(request.A), groups.sizes
    check_definite(A, "A", request.divergence)
    eigenvalues, V = np.linalg.eigh(A)
    logarithm = request.kind is not None and request.kind.exponential
    mapped = np.log(eigenvalues) if logarithm else 1 / eigenvalues
    B = (V * mapped) @ V.T
    diagonal = np.bincount(groups.at, B.diagonal()) / sizes
    sums = groups.block_sums(B - np.diag(B.diagonal()))
    b, Q = np.linalg.eigh(sums / np.sqrt(np.outer(sizes, sizes)) + np.diag(diagonal))
    within = diagonal - sums.diagonal() / np.maximum(sizes * (sizes - 1), 1)
    m, rest = (np.exp(b), np.exp(within)) if logarithm else (1 / b, 1 / within)
    of_one = (lambda x: x) if logarithm else np.log
    average = of_one(m).sum() + (sizes - 1) @ of_one(rest)
    return (Q * m) @ Q.T, rest, float(of_one(eigenvalues).sum() - average)
