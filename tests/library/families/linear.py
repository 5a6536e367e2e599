"""Semidefinite programs with linear objectives: complementary pairs, cuts of graphs, games and margins.

A complementary pair ``X``, ``Z`` with ``X Z = 0`` gives value and multipliers of a program, and one
eigenvalue gives the maximum cut of a transitive graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

import bregopt as bo
from families.case import Case, Data, of_norm_one, pair, regular_size, sym


def complementary(rng: np.random.Generator, kind: str) -> tuple[Data, float, float]:
    """Return a semidefinite program from a complementary pair, its value and its unit."""
    n = int(rng.integers(4, 11))
    rank = int(rng.integers(1, n))
    conditioning = 10 ** rng.uniform(0, 6) if kind == "conditioning" else 10.0
    X, Z = pair(rng, n, rank, conditioning)
    A = of_norm_one(rng, regular_size(rng, n, rank), n)
    y = rng.normal(size=len(A))
    scale_C, scale_b = 1.0, 1.0
    if kind == "scales":
        scale_C, scale_b = 10.0 ** rng.integers(-6, 7, size=2)
    b = np.einsum("kij,ij->k", A, X)
    if kind == "zero":
        y -= (b @ y) / (b @ b) * b
    B = c = loose = None
    if kind == "variables":
        B = rng.normal(size=(len(A), max(1, len(A) // 4)))
        u, c = rng.normal(size=B.shape[1]), B.T @ y
        b = b + B @ u
    if kind == "inequalities":
        loose = rng.random(len(A)) < 0.5
        idle = loose & (rng.random(len(A)) < 0.4)
        y = np.where(idle, 0.0, np.where(loose, np.abs(y), y))
        b = b - np.where(idle, rng.random(len(A)), 0.0)
    C = Z + np.einsum("k,kij->ij", y, A)
    if kind == "rows":
        size = 10 ** rng.uniform(-3, 3, size=len(A))
        A, b = size[:, None, None] * A, size * b
    if kind == "redundant":
        T = rng.normal(size=(2, len(A)))
        A, b = np.concatenate([A, np.einsum("kl,lij->kij", T, A)]), np.concatenate([b, T @ b])
    value = float(np.vdot(C, X)) + (0.0 if c is None else float(c @ u))
    unit = scale_b * scale_C * float(np.linalg.norm(C) * np.linalg.norm(X))
    data = Data(scale_C * C, A, scale_b * b, B, None if c is None else scale_C * c, loose, X)
    return data, scale_b * scale_C * (0.0 if kind == "zero" else value), unit


def complementary_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield random complementary pairs: plain, scaled, badly conditioned, with rows of many sizes."""
    for kind in ("plain", "scales", "conditioning", "rows", "inequalities", "redundant"):
        for k in range(count):
            data, value, unit = complementary(rng, kind)
            yield Case("complementary", f"{kind} {k}", data.problem, value, unit)
    for k in range(count):
        data, value, unit = complementary(rng, "zero")
        yield Case("zero", f"value {k}", data.problem, value, unit)
    for k in range(count):
        data, value, unit = complementary(rng, "variables")
        yield Case("variables", f"free {k}", data.problem, value, unit)


def feasibility_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield problems without an objective, with an interior."""
    for k in range(count):
        n = int(rng.integers(3, 9))
        A = of_norm_one(rng, int(rng.integers(1, n * (n + 1) // 2)), n)
        G = rng.normal(size=(n, n))
        b = np.einsum("kij,ij->k", A, G @ G.T / n + 0.1 * np.eye(n)) * 10.0 ** rng.integers(-6, 7)
        yield Case("feasibility", f"{k}", Data(np.zeros((n, n)), A, b).problem, 0.0, 1e-9)


def circulant(n: int, steps: Sequence[int]) -> np.ndarray:
    """Return the adjacency matrix of a circulant graph."""
    W = np.zeros((n, n))
    for step in steps:
        W[np.arange(n), (np.arange(n) + step) % n] = 1.0
    return np.maximum(W, W.T)


def cut_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield cuts of transitive graphs, known by an eigenvalue, and of bipartite ones, which cut all edges."""

    def problem(W: np.ndarray, balanced: bool) -> Callable[[], bo.Problem]:
        def make() -> bo.Problem:
            X = bo.PSD(len(W))
            L = (np.diag(W.sum(axis=1)) - W) / 4
            rows = [bo.diag(X) == 1] + ([bo.sum(X) == 0] if balanced else [])
            goal = bo.Minimize(bo.inner(L, X)) if balanced else bo.Maximize(bo.inner(L, X))
            return bo.Problem(goal, rows)

        return make

    for k in range(count):
        n = int(rng.integers(4, 16))
        weight = 10.0 ** rng.integers(-6, 7)
        steps = rng.choice(np.arange(1, n // 2 + 1), size=int(rng.integers(1, n // 2 + 1)), replace=False)
        W = weight * circulant(n, steps)
        eigenvalues = np.linalg.eigvalsh(np.diag(W.sum(axis=1)) - W)
        unit = float(W.sum()) / 2
        yield Case("cut", f"largest {k}", problem(W, False), n / 4 * eigenvalues[-1], unit)
        yield Case("cut", f"balanced {k}", problem(W, True), n / 4 * eigenvalues[1], unit)
        side = rng.random(n) < 0.5
        V = np.where(side[:, None] != side, rng.random((n, n)) * (rng.random((n, n)) < 0.6), 0.0)
        V = weight * (V + V.T)
        total = float(V.sum()) / 2
        if total > 0:
            yield Case("cut", f"bipartite {k}", problem(V, False), total, total)


def game(rng: np.random.Generator, value: float, price: float) -> tuple[np.ndarray, float]:
    """Return rows ``A_i`` for which ``max min_i <A_i, X>`` over trace one has this value, and the optimum.

    Rows whose multiplier is the full `price` are violated, which lowers the optimum of the soft margin. With
    an infinite price no row is violated.
    """
    n = int(rng.integers(2, 9))
    X, Z = pair(rng, n, int(rng.integers(1, n)))
    X /= np.trace(X)
    most = int(1 / price) if np.isfinite(price) else 0
    missing = int(rng.integers(0, most)) if most else 0
    rest = 1 - missing * price if missing else 1.0
    active = missing + int(2 * rest / price + rng.integers(2, 12))
    m = active + int(rng.integers(0, 10))
    A = sym(rng.normal(size=(m, n, n)))
    w = np.zeros(m)
    w[:missing] = price
    share = rng.random(active - missing) + 1.0
    w[missing:active] = share * rest / share.sum()
    goal = np.full(m, value)
    goal[:missing] -= rng.random(missing)
    goal[active:] += rng.random(m - active)
    A += (goal - np.einsum("kij,ij->k", A, X))[:, None, None] * np.eye(n)
    optimum = float(w @ goal)
    # The last active row makes the weighted sum complementary to X.
    k = active - 1
    rest = np.einsum("k,kij->ij", w, A) - w[k] * A[k]
    A[k] = (optimum * np.eye(n) - Z - rest) / w[k]
    return A, optimum


def game_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield matrix games ``max t`` with ``<A_i, X> >= t``, some of value zero, and soft margins."""

    def problem(A: np.ndarray, scale: float, price: float) -> Callable[[], bo.Problem]:
        def make() -> bo.Problem:
            X, t = bo.PSD(A.shape[1]), bo.Variable()
            rows = bo.inner(scale * A, X) - t >= 0
            rows = rows if np.isinf(price) else bo.soft(rows, gamma=price, penalty="hinge")
            return bo.Problem(bo.Maximize(t), [rows, bo.trace(X) == 1])

        return make

    for k in range(2 * count):
        scale = 10.0 ** rng.integers(-6, 7)
        A, value = game(rng, 0.0 if k % 2 else rng.normal(), np.inf)
        unit = scale * float(np.linalg.norm(A, axis=(1, 2)).max())
        yield Case("game", f"{k}", problem(A, scale, np.inf), scale * value, unit)
        price = rng.uniform(0.15, 0.45)
        A, value = game(rng, rng.normal(), price)
        unit = scale * float(np.linalg.norm(A, axis=(1, 2)).max())
        yield Case("margin", f"{k}", problem(A, scale, price), scale * value, unit)
