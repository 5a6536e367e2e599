"""Nearness in the spectral norm where the smallest eigenvalue alone decides it, by one smaller problem.

Let ``v`` be a unit eigenvector of the smallest eigenvalue ``-d < 0`` of ``A``. Then ``v'(X - A)v >= d`` for
every psd ``X``, so no distance is below ``d``. A matrix at this distance has ``Xv = 0``: it is ``Q M Q'``
with an orthonormal basis ``Q`` of the complement of ``v``. Among these, the one nearest to ``A`` in the
Frobenius norm is a candidate. It is optimal if ``|Q'(X - A)Q| <= d``, which an eigendecomposition proves. It
is on 8 of the 10 indefinite matrices of the tests' data folder, and on the random ones of the tests.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import is_one_of
from bregopt.modeling.objectives import Minimize, frobenius_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.psd import PSD
from bregopt.problems.correlation.bracketed import bracketed
from bregopt.problems.correlation.request import Request
from bregopt.problems.correlation.rows import correlation_rows
from bregopt.routes.base import Settings
from bregopt.routes.solution import Solution

__all__ = ["of_smallest_eigenvalue"]

_FINER = 1e-2  # tolerance of the candidate's problem, as a fraction of that of the answer
_FINEST = 1e-9
_CITATION = "Qi, Sun (2006), A Quadratically Convergent Newton Method, SIAM J. Matrix Anal. Appl. 28"


class _Candidate(NamedTuple):
    """``Y = S (X - Diag(t)) S``, the largest violation of a row, and the steps of Newton's method."""

    Y: Array
    violation: float
    iterations: int


def of_smallest_eigenvalue(request: Request, options: Mapping[str, Any]) -> Solution | None:
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
