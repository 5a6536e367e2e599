"""Proven bounds of nearness problems, margins and cuts: their width beside the error of the answer."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from nearness_problems import ATOMS, correlation_problem, distance_problem, start_matrix

import bregopt as bo

TITLES = (
    *("problem", "n", "tol", "solve", "verify", "further solves"),
    *("error", "width", "width / error", "relative width"),
)
_DEGREE = 8  # mean degree of the random graphs
_FEATURES, _TRADE_OFF = 3, 10.0  # of a margin: the rank of the true matrix, C times the number of comparisons


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| {' | '.join(TITLES)} |"
    yield "|---|" + "--:|" * (len(TITLES) - 1)
    found = []
    for name, n, tol, problem in _problems(quick):
        line, ratio = measured(name, n, tol, problem)
        found.append(ratio)
        yield line
    within = sum(ratio <= 10 for ratio in found)
    both = sum(map(math.isfinite, found))
    yield ""
    yield (
        f"Of {len(found)} problems, both bounds: {both}; width at most ten times the error: {within}. "
        "CPU seconds; one BLAS thread."
    )


def measured(name: str, n: int, tol: float, problem: bo.Problem) -> tuple[str, float]:
    """Return the line of a problem, and the width relative to the error of the answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        begin = time.process_time()
        sol = problem.solve(tol=tol)
        solve = time.process_time() - begin
        begin = time.process_time()
        found = sol.verify()
        verify = time.process_time() - begin
    ratio = found.width / sol.error if sol.error > 0 else math.inf
    line = (
        f"| {name} | {n:,} | {tol:.0e} | {solve:.3g} | {verify:.2g} | {found.solves} | {sol.error:.1e} | "
        f"{found.width:.1e} | {ratio:.2g} | {found.relative_width:.1e} |"
    )
    return line, ratio


def _problems(quick: bool) -> Iterator[tuple[str, int, float, bo.Problem]]:
    for divergence in ATOMS:
        for n in (10, 100) if quick else (10, 100, 300, 1_000):
            X0 = start_matrix(n, np.random.default_rng(n))
            yield f"{divergence}, unit diagonal", n, 1e-6, correlation_problem(divergence, X0)()
        for n in (10,) if quick else (10, 100, 300):
            yield f"{divergence}, distances", n, 1e-6, distance_problem(divergence, n, 2 * n, False)()
    for n in (10,) if quick else (10, 30, 100):
        yield "margin", n, 1e-6, _margin(n, 10 * n)
    for n, tol in ((500, 1e-6),) if quick else ((500, 1e-6), (5_000, 1e-4), (20_000, 1e-3)):
        yield "max-cut", n, tol, _cut(n, balanced=False)
        yield "balanced cut", n, tol, _cut(n, balanced=True)


def _margin(n: int, m: int) -> bo.Problem:
    """Return the margin SDP of `m` random comparisons of distances, most of which a true matrix explains."""
    rng = np.random.default_rng(n)
    near, far = rng.normal(size=(2, m, n))
    true = rng.normal(size=(n, _FEATURES))
    swap = np.linalg.norm(near @ true, axis=1) > np.linalg.norm(far @ true, axis=1)
    near[swap], far[swap] = far[swap], near[swap]
    X, rho, slack = bo.PSD(n), bo.Variable(), bo.Variable(m, nonneg=True)
    rows = [bo.quad_form(far, X) - bo.quad_form(near, X) + slack >= rho, bo.trace(X) == 1]
    return bo.Problem(bo.Maximize(rho - _TRADE_OFF / m * bo.sum(slack)), rows)


def _cut(n: int, balanced: bool) -> bo.Problem:
    """Return the relaxation of a cut of a random graph."""
    rng = np.random.default_rng(n)
    i, j = rng.integers(0, n, (2, _DEGREE * n // 2))
    A: Any = sp.csr_array((np.ones(len(i)) * (i != j), (i, j)), (n, n))
    A = sp.csr_array(A + A.T)
    laplacian = sp.csr_array(sp.diags_array(A.sum(axis=1)) - A)
    X = bo.PSD(n)
    cut = bo.inner(laplacian / 4, X)
    if balanced:
        return bo.Problem(bo.Minimize(cut), [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) == 0])
    return bo.Problem(bo.Maximize(cut), [bo.diag(X) == 1])
