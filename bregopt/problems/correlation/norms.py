"""Nearness in the largest entry and in the spectral norm: semidefinite programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.modeling.variables import Variable
from bregopt.problems.correlation.explain import explained
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.rows import correlation_rows
from bregopt.problems.correlation.spectral import of_smallest_eigenvalue
from bregopt.program.lowrank import LowRank
from bregopt.routes.solution import Solution

__all__ = ["solve_norm"]


def solve_norm(request: Request, options: dict[str, Any]) -> Solution:
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
    n = request.n
    Y, d = PSD(n, name="X"), Variable(nonneg=True, name="distance")
    declare = _spectral if request.divergence == "spectral" else _largest_entry
    rows = [*correlation_rows(Y, replace(request, s=np.ones(n))), *declare(Y, d, request)]
    if request.condition is not None:
        rows += _condition(Y, request)
    return _shifted(Problem(Minimize(d), rows).solve(**options), request)


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


def _largest_entry(Y: PSD, d: Variable, request: Request) -> list[Any]:
    """Return ``H_ij |X_ij - A_ij| <= d`` for the entries that can move."""
    A = np.asarray(request.A)
    H = np.outer(request.s, request.s) if request.H is None else request.H
    free = np.triu(H > 0, 1)
    free[request.fixed.i, request.fixed.j] = False
    i, j = np.nonzero(free)
    on_diagonal = float(np.abs(H.diagonal() * (1 - A.diagonal())).max())
    if len(i) == 0:
        return [d == on_diagonal]
    rows: list[Any] = [d >= on_diagonal] if on_diagonal else []
    slack = (1 / H[i, j]) * d
    return [*rows, (Y[i, j] - slack <= A[i, j]).named("above"), (Y[i, j] + slack >= A[i, j]).named("below")]


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
