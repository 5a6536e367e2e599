"""Correlation matrices with one correlation for each pair of groups, by a problem of the order of the groups.

Let the groups have ``m_g`` rows and the correlations ``R_gh``. ``X`` has the eigenvalues of the matrix ``M``,

    M_gh = sqrt(m_g m_h) R_gh,    M_gg = 1 + (m_g - 1) R_gg,

and ``1 - R_gg``, each ``m_g - 1`` times. A Bregman divergence from ``A`` is, up to a constant, that from the
block average of ``A`` (squared Frobenius), of its inverse (LogDet) or of its logarithm (von Neumann).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.atoms import diag
from bregopt.modeling.bounds import between
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.objectives import Minimize, frobenius_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.correlation.explain import explained
from bregopt.problems.correlation.groups import Groups
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.solve import with_completion, with_diagonal
from bregopt.problems.objective import check_definite, nearness
from bregopt.program.lowrank import LowRank
from bregopt.records import dataclass, replace
from bregopt.routes.base import Settings
from bregopt.routes.solution import Solution

__all__ = ["solve_groups"]

_DISTANCE = 1e-12  # of fixed entries of one pair of groups


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Fixed and bounded correlations of pairs of groups ``g <= h``."""

    g: IntArray
    h: IntArray
    lo: Array
    hi: Array


def solve_groups(request: Request, options: Mapping[str, Any]) -> Solution:
    """Return the nearest correlation matrix with one correlation for each pair of groups.

    Raises
    ------
    UnsupportedProblemError, ValueError
        If another argument does not go with groups, or fixed entries and bounds of a pair contradict.
    """
    groups = request.groups
    assert groups is not None
    _check(request)
    request = with_completion(request)
    solve = _squares if request.kind is not None and request.kind.quadratic else _invariant
    solution = explained(solve(request, groups, _blocks(request, groups), options), request)
    if solution.X is None:
        return solution
    R = _correlations(solution.X, request, groups)
    X = R[np.ix_(groups.at, groups.at)]
    np.fill_diagonal(X, 1.0)
    return replace(solution, X=X, _restated="derivatives with groups are not known; leave them out")


def _check(request: Request) -> None:
    """Refuse what does not go with groups."""
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


def _blocks(request: Request, groups: Groups) -> _Blocks:
    """Return the bounds on the correlations of groups; those of all entries of a pair hold for its one."""
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
    return _Blocks(g, h, np.minimum(lo, hi)[g, h], hi[g, h])


def _correlations(Y: Any, request: Request, groups: Groups) -> Array:
    """Return ``R`` from ``Y = M - t I``, and from the blocks of ``X`` of the invariant form."""
    M = Y[0] if isinstance(Y, tuple) else Y
    sizes = groups.sizes
    t = request.shift
    R: Array = M / np.sqrt(np.outer(sizes, sizes))
    inner = (M.diagonal() + t - 1) / np.maximum(sizes - 1, 1)
    np.fill_diagonal(R, np.where(sizes > 1, inner, 1.0))
    return R


def _squares(request: Request, groups: Groups, blocks: _Blocks, options: Mapping[str, Any]) -> Solution:
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
    if len(blocks.g):
        own = blocks.g == blocks.h
        entries = (Y[blocks.g, blocks.h] - np.where(own, 1 - t, 0.0)) / unit[blocks.g, blocks.h]
        rows.append(between(entries, blocks.lo, blocks.hi).named("groups"))
    H = np.sqrt(weight) / unit + np.diag(single.astype(float))  # those entries are fixed
    problem = Problem(Minimize(frobenius_div(Y, target, weights=H) + constant), rows)
    solution = problem.solve(**options)
    if solution.X is None:
        return solution
    diagonal = solution.X.diagonal()
    required = np.where(single, 1 - t, np.minimum(diagonal, sizes * (1 - t)))
    return with_diagonal(problem, solution, required, options.get("tol", Settings.tol))


def _invariant(request: Request, groups: Groups, blocks: _Blocks, options: Mapping[str, Any]) -> Solution:
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
    if len(blocks.g):
        own = blocks.g == blocks.h
        unit = np.where(own, sizes[blocks.g] - 1, np.sqrt(sizes[blocks.g] * sizes[blocks.h]))
        entries = (Y[blocks.g, blocks.h] - np.where(own, 1.0, 0.0)) / unit
        rows.append(between(entries, blocks.lo, blocks.hi).named("groups"))
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
