"""Ellipsoids around points: ours beside Wolfe and Atwood's method with away steps, and CVXPY.

Both stop at a proven relative gap of 1e-6 of the same kind: no design has a determinant above
``(1 + 1e-6)^n`` times that of the weights, for points in ``n - 1`` dimensions. Peaks of sharing a machine
fall on both, as calls take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.linalg import blas

import bregopt as bo

TOL = 1e-6
SIZES = ((1_000, 2), (20_000, 10), (5_000, 20))
SMALL = (100, 3)
_TURNS = 5
_AFRESH = 5_000  # steps after which the inverse is computed anew
_HEAD = (
    "| points | m | d | ours, ms | Wolfe-Atwood / ours | its steps | CVXPY, Clarabel / ours | contact |",
    "|---|---|---|---|---|---|---|---|",
)


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table."""
    yield from _HEAD
    for m, d in [SMALL] if quick else [SMALL, *SIZES]:
        for name, make in KINDS.items():
            yield compared(name, make(m, d), quick or m <= SMALL[0])
    if data is not None:
        for name, points in real_points():
            yield compared(name, points, False)


def compared(name: str, points: Any, with_cvxpy: bool) -> str:
    """Return the line of a set of points."""
    m, d = points.shape
    steps = 0

    def peer() -> None:
        nonlocal steps
        _, steps = wolfe_atwood(points, TOL)

    # Our gap is that of the volume, half of d times theirs.
    calls: list[Callable[[], Any]] = [lambda: bo.min_volume_ellipsoid(points, tol=TOL), peer]
    if with_cvxpy:
        calls.append(lambda: by_cvxpy(points))
    seconds = np.array([[_cpu(call) for call in calls] for _ in range(_TURNS)])
    found = bo.min_volume_ellipsoid(points, tol=TOL)
    assert found.status == "optimal"
    assert found.contains(points).all()
    ratios = np.median(seconds / seconds[:, :1], axis=0)
    cvxpy = f"{ratios[2]:.0f}" if with_cvxpy else "-"
    ours = 1e3 * np.median(seconds[:, 0])
    return f"| {name} | {m} | {d} | {ours:.1f} | {ratios[1]:.1f} | {steps} | {cvxpy} | {len(found.contact)} |"


def _cpu(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def normal(m: int, d: int) -> Any:
    """Return points of a normal distribution."""
    return np.random.default_rng(1).normal(size=(m, d))


def cube(m: int, d: int) -> Any:
    """Return points in a cube."""
    return np.random.default_rng(2).uniform(-1, 1, size=(m, d))


def shell(m: int, d: int) -> Any:
    """Return points near a sphere, nearly all of which look like contact points for long."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(m, d))
    return X / np.linalg.norm(X, axis=1)[:, None] * (1 + 0.01 * rng.normal(size=(m, 1)))


KINDS = {"normal": normal, "cube": cube, "shell": shell}


def real_points() -> Iterator[tuple[str, Any]]:
    """Yield measurements that scikit-learn has."""
    from sklearn import datasets

    yield "iris", datasets.load_iris().data
    yield "wine", datasets.load_wine().data
    yield "breast cancer, 10 means", datasets.load_breast_cancer().data[:, :10]


def wolfe_atwood(points: Any, tol: float) -> tuple[Any, int]:
    """Return the weights and the steps of Wolfe and Atwood's method with away steps.

    As in Todd and Yildirim (2007), On Khachiyan's algorithm for the computation of minimum-volume enclosing
    ellipsoids, from the start of Kumar and Yildirim (2005).
    """
    m, d = points.shape
    n = d + 1
    V = np.asfortranarray(np.column_stack([points - points.mean(axis=0), np.ones(m)]).T)
    u = _start(points)
    inverse = np.linalg.inv((V * u) @ V.T)
    g = np.einsum("ij,ij->j", V, inverse @ V)
    step = 0
    while True:
        toward = int(g.argmax())
        support = np.flatnonzero(u)
        away = int(support[g[support].argmin()])
        gain, loss = g[toward] / n - 1, 1 - g[away] / n
        if max(gain, loss) <= tol:
            return u, step
        k = toward if gain >= loss else away
        t = (g[k] / n - 1) / (g[k] - 1) if g[k] > 1 else -np.inf
        last = -u[k] / (1 - u[k])
        dropped = t <= last
        t = max(t, last)
        step += 1
        w = inverse @ V[:, k]
        factor = t / (1 - t + t * g[k])
        products = blas.dgemv(1.0, V, w, trans=1)
        g -= factor * products**2
        g /= 1 - t
        inverse = (inverse - factor * np.outer(w, w)) / (1 - t)
        u *= 1 - t
        u[k] = 0.0 if dropped else u[k] + t
        if step % _AFRESH == 0:
            inverse = np.linalg.inv((V * u) @ V.T)
            g = np.einsum("ij,ij->j", V, inverse @ V)


def _start(points: Any) -> Any:
    """Return equal weights of the extremes along orthogonal directions."""
    m, d = points.shape
    rng, basis, chosen = np.random.default_rng(0), np.zeros((d, 0)), []
    for _ in range(d):
        direction = rng.normal(size=d)
        direction -= basis @ (basis.T @ direction)
        heights = points @ direction
        chosen += [int(heights.argmax()), int(heights.argmin())]
        edge = points[chosen[-2]] - points[chosen[-1]]
        edge -= basis @ (basis.T @ edge)
        basis = np.column_stack([basis, edge / np.linalg.norm(edge)])
    u = np.zeros(m)
    u[chosen] = 1 / len(set(chosen))
    return u


def by_cvxpy(points: Any) -> None:
    """Solve by Clarabel through CVXPY, at its default tolerance of 1e-8."""
    d = points.shape[1]
    A, b = cp.Variable((d, d), PSD=True), cp.Variable((1, d))
    rows = [cp.norm(points @ A + b, axis=1) <= 1]
    cp.Problem(cp.Maximize(cp.log_det(A)), rows).solve(solver="CLARABEL")
