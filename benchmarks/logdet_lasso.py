"""Sparse inverse covariances: bregopt, scikit-learn and gglasso, to a gap that is computed apart.

    OPENBLAS_NUM_THREADS=1 python benchmarks/logdet.py lasso [--data FOLDER] [--quick]

The time is that of the processor, in seconds, for the loosest tolerance of each package, of those on a grid,
whose answer has a relative gap of at most 1e-4 or 1e-7, in parentheses divided by ours; "-" if none has after
20 s of trials. The gap is that of the best dual point known, of each package: those that follow from its
covariance, and from the inverse of its answer, before and after a step of ascent. `FOLDER` has spambase.data
and MNIST's test images. gglasso is left out if it is not installed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.covariance import GraphicalLassoCV as TheirCV
from sklearn.covariance import graphical_lasso as by_coordinates
from sklearn.covariance._graph_lasso import graphical_lasso_path as their_path
from sklearn.datasets import load_breast_cancer, load_digits, make_sparse_spd_matrix

import bregopt as bo
from bregopt.learn import GraphicalLassoCV

GAPS, LIMIT, PIXELS = (1e-4, 1e-7), 20.0, 488
GRID = 10.0 ** np.arange(-1, -10, -0.5)
REPEATED = 0.1  # seconds of repetitions, at least three: a time of a millisecond varies by half
HEAD = (
    "| problem | order | alpha | gap | bregopt, s | scikit-learn, s | gglasso, s |",
    "|---|--:|--:|--:|--:|--:|--:|",
)


def correlations(points: Any) -> Any:
    """Return the correlations of the columns that are not constant."""
    return np.corrcoef(points[:, points.std(axis=0) > 0], rowvar=False)


def drawn(n: int, samples: int, seed: int = 0) -> Any:
    """Return standardized samples with a sparse inverse covariance."""
    sparsity = 1 - min(0.5, 3 / n)
    P = make_sparse_spd_matrix(
        n_dim=n, alpha=sparsity, smallest_coef=0.3, largest_coef=0.8, random_state=seed
    )
    C = np.linalg.inv(P)
    scale = np.sqrt(C.diagonal())
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(samples, n)) @ np.linalg.cholesky(C / np.outer(scale, scale)).T
    return (points - points.mean(axis=0)) / points.std(axis=0)


def sampled(n: int, samples: int, seed: int = 0) -> Any:
    """Return the correlations of such samples."""
    return correlations(drawn(n, samples, seed))


def chained(n: int, samples: int) -> Any:
    """Return the correlations of samples whose variables depend on two neighbors each."""
    P = 1.25 * np.eye(n) - 0.5 * (np.eye(n, k=1) + np.eye(n, k=-1))
    root = np.linalg.cholesky(np.linalg.inv(P))
    return correlations(np.random.default_rng(0).normal(size=(samples, n)) @ root.T)


def problems(data: Path | None, quick: bool) -> Iterator[tuple[str, Any, float]]:
    """Yield names, matrices and weights of the penalty."""
    for n, alpha in ((50, 0.12), (100, 0.1), (200, 0.1), (500, 0.08), (1000, 0.06)):
        if n <= 100 or not quick:
            yield "few samples, 2 n", sampled(n, 2 * n), alpha
            yield "samples, 1000 and 2 n", sampled(n, 1000 + 2 * n), alpha
            yield "chain, samples 2 n", chained(n, 2 * n), alpha
    cancer = correlations(load_breast_cancer().data)
    yield "breast cancer", cancer, 0.2
    yield "breast cancer", cancer, 0.05
    yield "digits", correlations(load_digits().data), 0.05
    if data is not None:
        yield "spambase", correlations(np.loadtxt(data / "spambase.data", delimiter=",")[:, :57]), 0.01
        if not quick:
            raw = gzip.decompress((data / "t10k-images-idx3-ubyte.gz").read_bytes())[16:]
            images = np.frombuffer(raw, np.uint8).reshape(-1, 784).astype(float)
            often = np.argsort(-(images > 0).mean(axis=0), kind="stable")[:PIXELS]
            yield "MNIST", correlations(images[:, np.sort(often)]), 0.2


def ours(S: Any, alpha: float, tol: float) -> tuple[Any, Any]:
    """Return our answer and its covariance, the dual point."""
    answer = bo.graphical_lasso(S, alpha, tol=tol)
    return answer.X, S + answer.duals[0]


def scikit_learn(S: Any, alpha: float, tol: float) -> tuple[Any, Any]:
    """Return the answer of scikit-learn, whose tolerance is absolute, and its covariance."""
    W, X = by_coordinates(S, alpha, tol=tol * len(S), enet_tol=min(1e-4, tol), max_iter=1000)
    return X, W


def gglasso(S: Any, alpha: float, tol: float) -> tuple[Any, Any]:
    """Return the answer of gglasso, which splits into components first, and its inverse."""
    from gglasso.solver.single_admm_solver import block_SGL

    with contextlib.redirect_stdout(io.StringIO()):
        start = np.eye(len(S))
        X = block_SGL(S, alpha, Omega_0=start, tol=0.01 * tol, rtol=0.1 * tol, max_iter=20000)["Theta"]
    return X, np.linalg.inv(X)


def log_det(M: Any) -> float:
    """Return ``logdet M``, ``-inf`` unless `M` is positive definite."""
    try:
        return 2 * float(np.log(np.linalg.cholesky(M).diagonal()).sum())
    except np.linalg.LinAlgError:
        return -np.inf


def gap(S: Any, alpha: float, X: Any, covariance: Any) -> float:
    """Return the relative gap of an answer, with the best of some dual points."""
    n, X = len(S), (X + X.T) / 2
    reach = alpha * (1 - np.eye(n))
    value = (S * X).sum() - log_det(X) + (reach * np.abs(X)).sum()
    if not np.isfinite(value):
        return np.inf
    W, d = np.linalg.inv(X), 1 / X.diagonal()
    points = (covariance, W, W + X * np.outer(d, d))
    bound = n + max(log_det(S + np.clip((M + M.T) / 2 - S, -reach, reach)) for M in points)
    return (value - bound) / max(abs(value), abs(bound), 0.01 * n) if np.isfinite(bound) else np.inf


def seconds(solve: Callable[..., Any], S: Any, alpha: float, goal: float) -> float | None:
    """Return the time of the loosest tolerance that reaches a gap."""
    spent = 0.0
    for tol in [goal] if solve is ours else GRID:
        times = []
        while len(times) < 3 or (sum(times) < REPEATED and len(times) < 30):
            begin = time.process_time()
            try:
                answer = solve(S, alpha, float(tol))
            except (ArithmeticError, ValueError, np.linalg.LinAlgError):
                break
            times.append(time.process_time() - begin)
            if gap(S, alpha, *answer) > goal:
                break
        else:
            return min(times)
        spent += sum(times)
        if spent > LIMIT:
            break
    return None


def beside(own: float | None, other: float | None) -> str:
    """Return the time of a peer with its ratio to ours."""
    return "-" if own is None or other is None else f"{other:.2g} ({other / own:.1f})"


def other_lines() -> Iterator[str]:
    """Yield the times of a path and of cross-validation."""
    yield from (
        "",
        "| task | bregopt, s | scikit-learn, s | ratio | alpha, bregopt and scikit-learn |",
        "|---|--:|--:|--:|---|",
    )
    points = drawn(300, 600)
    alphas = np.geomspace(0.5, 0.08, 20)
    begin = time.process_time()
    bo.graphical_lasso_path(correlations(points), alphas, tol=1e-4)
    own = time.process_time() - begin
    begin = time.process_time()
    their_path(points, list(alphas), tol=1e-4 * 300, max_iter=500)
    theirs = time.process_time() - begin
    yield f"| path of 20, n = 300 | {own:.2f} | {theirs:.2f} | {theirs / own:.1f} | |"
    points = drawn(100, 200)
    alphas = np.geomspace(0.6, 0.05, 10)
    begin = time.process_time()
    mine = GraphicalLassoCV(alphas, cv=5, tol=1e-4).fit(points)
    own = time.process_time() - begin
    begin = time.process_time()
    other = TheirCV(alphas=list(alphas), cv=5).fit(points)
    theirs = time.process_time() - begin
    chosen = f"{mine.alpha_:.3g} and {other.alpha_:.3g}"
    yield f"| CV, n = 100, 5 folds of 10 | {own:.2f} | {theirs:.2f} | {theirs / own:.1f} | {chosen} |"


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the tables."""
    warnings.simplefilter("ignore")
    peers: list[Callable[..., Any]] = [scikit_learn]
    if find_spec("gglasso") is not None:
        peers.append(gglasso)
    yield from HEAD
    for name, S, alpha in problems(data, quick):
        for goal in GAPS:
            own = seconds(ours, S, alpha, goal)
            cells = ["-" if own is None else f"{own:.2g}"]
            cells += [beside(own, seconds(solve, S, alpha, goal)) for solve in peers]
            cells += ["-"] * (3 - len(cells))
            yield f"| {name} | {len(S)} | {alpha:g} | {goal:.0e} | {' | '.join(cells)} |"
    yield from other_lines()
