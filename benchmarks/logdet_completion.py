"""Completions of largest determinant: whole calls beside one Cholesky factorization and CVXPY."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import cvxpy as cp
import numpy as np
from correlation_tools import Array, paired

import bregopt as bo

_ORDERS = (50, 100, 200, 500, 1000)
_TOL = 1e-6
_TITLES = ("n", "edges", "completion (s)", "Cholesky times", "selection (s)", "steps", "gap", "CVXPY (s)")
_PEER_ORDER = 50  # largest order of the peer's problems, which take it minutes beyond


def instance(n: int, chords: int, seed: int = 0) -> tuple[Array, Array]:
    """Return a covariance of 3 n samples, and a spanning tree with chords; without any it is chordal."""
    rng = np.random.default_rng(seed)
    edges = {(int(rng.integers(k)), k) for k in range(1, n)}
    while len(edges) < n - 1 + chords:
        i, j = sorted(map(int, rng.choice(n, 2, replace=False)))
        edges.add((i, j))
    A = rng.normal(size=(3 * n, n)) + 0.5 * rng.normal(size=(3 * n, 1))
    return A.T @ A / len(A), np.array(sorted(edges))


def peer(S: Array, edges: Array) -> float:
    """Return the seconds of CVXPY with Clarabel."""
    X = cp.Variable(S.shape, PSD=True)
    i, j = edges.T
    problem = cp.Problem(cp.Maximize(cp.log_det(X)), [cp.diag(X) == S.diagonal(), X[i, j] == S[i, j]])
    begin = time.process_time()
    problem.solve(solver="CLARABEL")
    return time.process_time() - begin


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    warnings.simplefilter("ignore")
    yield f"| {' | '.join(_TITLES)} |"
    yield f"|{'---|' * len(_TITLES)}"
    for n in _ORDERS[: 2 if quick else None]:
        for chords in (0, n):
            S, edges = instance(n, chords)
            (factor, _), (completed, times), (selected, _) = paired(
                [
                    lambda S=S: [np.linalg.cholesky(S) for _ in range(20)],
                    lambda S=S, edges=edges: bo.max_det_completion(S, edges, tol=_TOL),
                    lambda S=S, edges=edges: bo.covariance_selection(S, edges, tol=_TOL),
                ]
            )
            sol = bo.max_det_completion(S, edges, tol=_TOL)
            theirs = f"{peer(S, edges):.2g}" if n <= _PEER_ORDER and not quick else ""
            yield (
                f"| {n} | {len(edges)} | {completed:.2g} | {20 * times:.0f} | {selected:.2g} "
                f"| {sol.iterations} | {sol.gap:.0e} | {theirs} |"
            )
            del factor
