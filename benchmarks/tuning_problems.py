"""The problems of tuning.py: about ten for each route, each solved in 3 to 300 milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import large_cuts
import margins
import numpy as np
from nearness_problems import (
    ATOMS,
    correlation_problem,
    distance_problem,
    low_rank_problem,
    start_matrix,
    uniform_matrix,
)

import bregopt as bo

Array = Any


class Case(NamedTuple):
    """A problem with a name, and the options of its solve."""

    name: str
    make: Callable[[], bo.Problem]
    options: dict[str, Any]


def suites() -> dict[str, list[Case]]:
    """Return the cases of each route."""
    return {
        "path": _path(),
        "lagrangian": _lagrangian(),
        "bregman": _bregman(),
        "entropy": _entropy(),
        "psdboost": _psdboost(),
        "lowrank": _lowrank(),
        "definiteboost": _definiteboost(),
    }


# ------------------------------------------------------------------------------------------------------- path


def _path() -> list[Case]:
    sparse, dense = large_cuts.random_graph(150, 200), large_cuts.random_graph(80, 400)
    return [
        Case("max-cut, n = 150", lambda: large_cuts.max_cut(sparse), {}),
        Case("equipartition, n = 80", lambda: large_cuts.balanced(dense), {}),
        Case("theta, n = 40", partial(_theta, 40, 200), {}),
        Case("random, n = 25", partial(_random, 25, 60, 40), {}),
        Case("random, two blocks", partial(_random, 20, 60, 60, True), {"tol": 1e-8}),
        Case("triangles, n = 12", partial(_triangles, 12, 300), {}),
        Case("1,620 quadratic forms, n = 58", partial(_quadratic_forms, 58, 1_620), {}),
        Case("4,800 distances, n = 100", partial(_unfolding, 100, 4_800), {"tol": 1e-4}),
        Case("soft margin, D = 20", partial(_margin, 20, 150), {}),
        Case("degenerate, n = 20", partial(_degenerate, 20), {}),
        Case("infeasible, n = 30", partial(_infeasible, 30), {}),
        Case("unbounded, n = 20", partial(_unbounded, 20), {}),
    ]


def _theta(n: int, edges: int, nonnegative: bool = False) -> bo.Problem:
    i, j = large_cuts.random_graph(n, edges).nonzero()
    i, j = i[i < j], j[i < j]
    X = bo.PSD(n)
    rows = [bo.trace(X) == 1, X[i, j] == 0, *([X >= 0] if nonnegative else [])]
    return bo.Problem(bo.Maximize(bo.sum(X)), rows)


def _lagrangian() -> list[Case]:
    return [
        Case("theta, n = 40", partial(_theta, 40, 200), {}),
        Case("theta, n = 60", partial(_theta, 60, 700), {}),
        Case("theta, n = 100", partial(_theta, 100, 1_500), {}),
        Case("theta with X >= 0, n = 20", partial(_theta, 20, 60, True), {}),
        Case("max-cut, n = 40", lambda: large_cuts.max_cut(large_cuts.random_graph(40, 200)), {}),
        Case("random, n = 15", partial(_random, 15, 40, 20), {}),
    ]


def _symmetric(rng: np.random.Generator, *shape: int) -> Array:
    A = rng.normal(size=shape)
    return A + np.swapaxes(A, -1, -2)


def _random(n: int, m: int, loose: int, blocks: bool = False) -> bo.Problem:
    """Return a problem with primal and dual interior, `m` equations and `loose` inequalities."""
    rng = np.random.default_rng(n)
    A, y = _symmetric(rng, m + loose, n, n), rng.normal(size=m + loose)
    y[m:] = -np.abs(y[m:])
    C = start_matrix(n, rng) + np.einsum("k,kij->ij", y, A)
    at = np.einsum("kij,ij->k", A, start_matrix(n, rng))
    X = bo.PSD(n)
    objective, equal, below = bo.inner(C, X), bo.inner(A[:m], X), bo.inner(A[m:], X)
    if blocks:
        u, Y, price = bo.Variable(3, nonneg=True), bo.PSD(n // 2), 1 + np.abs(y[m:]).sum()
        objective = objective + price * (bo.sum(u) + bo.trace(Y))
        below = below - bo.sum(u) - Y[0, 1]
    room = rng.uniform(-0.1, 1, loose)
    return bo.Problem(bo.Minimize(objective), [equal == at[:m], below <= at[m:] + room])


def _triangles(n: int, m: int) -> bo.Problem:
    """Return a maximum cut with random triangle inequalities, most of them inactive."""
    rng = np.random.default_rng(n)
    i, j, k = np.array([rng.choice(n, 3, replace=False) for _ in range(m)]).T
    X = bo.PSD(n)
    L = large_cuts.laplacian(large_cuts.random_graph(n, 4 * n)) / 4
    return bo.Problem(bo.Maximize(bo.inner(L, X)), [bo.diag(X) == 1, X[i, j] + X[j, k] + X[i, k] >= -1])


def _quadratic_forms(n: int, m: int) -> bo.Problem:
    """Return a problem whose rows are enough for a working set, most of them inactive."""
    rng = np.random.default_rng(n)
    Z = rng.normal(size=(m, n)) / np.sqrt(n)
    X = bo.PSD(n)
    rows = [bo.trace(X) == 1, bo.quad_form(Z, X) <= 1.5 / n + rng.uniform(0, 0.1, m)]
    return bo.Problem(bo.Maximize(bo.inner(_symmetric(rng, n, n), X)), rows)


def _unfolding(n: int, m: int) -> bo.Problem:
    """Return a problem of maximum variance whose rows, random distances, are enough for a working set."""
    rng = np.random.default_rng(n)
    i, j = np.array([rng.choice(n, 2, replace=False) for _ in range(m)]).T
    points = rng.normal(size=(n, 3))
    most = ((points[i] - points[j]) ** 2).sum(axis=1) * rng.uniform(1, 3, m)
    X = bo.PSD(n)
    return bo.Problem(bo.Maximize(bo.trace(X)), [bo.sum(X) == 0, bo.sq_distance(X, i, j) <= most])


def _degenerate(n: int) -> bo.Problem:
    """Return a random problem on a face, with dependent rows and no strictly complementary solution."""
    rng = np.random.default_rng(n)
    Q, r = np.linalg.qr(rng.normal(size=(n, n)))[0], n // 4
    X0, Z = Q[:, :r] @ Q[:, :r].T, Q[:, r + 2 : -1] @ Q[:, r + 2 : -1].T
    A, y = _symmetric(rng, 2 * n, n, n), rng.normal(size=2 * n)
    A[0], A[1] = np.outer(Q[:, -1], Q[:, -1]), A[2:5].sum(axis=0)
    at = np.einsum("kij,ij->k", A, X0)
    at[0] = 0.0
    X = bo.PSD(n)
    C = Z + np.einsum("k,kij->ij", y, A)
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.inner(A, X) == at])


def _infeasible(n: int) -> bo.Problem:
    """Return a random problem with a combination of rows that no psd matrix meets."""
    rng = np.random.default_rng(n)
    A = _symmetric(rng, n, n, n)
    at = np.einsum("kij,ij->k", A, start_matrix(n, rng))
    A[0], at[0] = start_matrix(n, rng) - A[1:].sum(axis=0), -1.0 - at[1:].sum()
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.inner(start_matrix(n, rng), X)), [bo.inner(A, X) == at])


def _unbounded(n: int) -> bo.Problem:
    """Return a random problem with a ray along which the objective falls."""
    rng = np.random.default_rng(n)
    ray = start_matrix(n, rng)
    A = _symmetric(rng, n, n, n)
    A -= (np.einsum("kij,ij->k", A, ray) / np.vdot(ray, ray))[:, None, None] * ray
    at = np.einsum("kij,ij->k", A, start_matrix(n, rng))
    X = bo.PSD(n)
    C = _symmetric(rng, n, n)
    C -= (1 + np.vdot(C, ray)) / np.vdot(ray, ray) * ray
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.inner(A, X) == at])


# ---------------------------------------------------------------------------------------------------- bregman


def _bregman() -> list[Case]:
    rng = np.random.default_rng(0)
    corrupt, positive = uniform_matrix(100, rng), start_matrix(60, rng)
    return [
        Case("correlation, frobenius, n = 100", correlation_problem("frobenius", corrupt), {}),
        Case("correlation, von_neumann, n = 60", correlation_problem("von_neumann", positive), {}),
        Case("correlation, logdet, n = 60", correlation_problem("logdet", positive), {}),
        Case("fixed and bounded entries, frobenius", partial(_bounded, "frobenius", 50), {}),
        Case("fixed and bounded entries, logdet", partial(_bounded, "logdet", 30), {}),
        Case("weights from 0.1 to 1, n = 40", partial(_weighted, 40, 0.1, 1.0), {}),
        Case("weights 0 and 100, n = 25", partial(_weighted, 25, 0.0, 100.0), {}),
        Case("distances, logdet", distance_problem("logdet", 40, 60, soft=False), {}),
        Case("soft distances, logdet, low rank", low_rank_problem("logdet", 300, 20, 200), {}),
        Case("soft distances, von_neumann", distance_problem("von_neumann", 30, 60, soft=True), {}),
        Case("400 distances, frobenius", distance_problem("frobenius", 40, 400, soft=False), {}),
        Case("800 distances, logdet", distance_problem("logdet", 30, 800, soft=True), {}),
        Case("500 bounded entries, von_neumann", partial(_metric, "von_neumann", 25, 500), {}),
        Case("cyclic, von_neumann", distance_problem("von_neumann", 12, 20, soft=False), _CYCLIC),
        Case("cyclic, frobenius", distance_problem("frobenius", 16, 60, soft=False), _CYCLIC),
        Case("infeasible, logdet", partial(_contradiction, "logdet", 20), {}),
        Case("infeasible, frobenius", partial(_contradiction, "frobenius", 20), {}),
    ]


_CYCLIC = {"method": "cyclic"}


def _bounded(divergence: str, n: int) -> bo.Problem:
    rng = np.random.default_rng(n)
    X0, near = start_matrix(n, rng), np.corrcoef(rng.normal(size=(n, 2 * n)))
    i, j = np.triu_indices(n, 1)
    some = rng.permutation(len(i))[: 4 * n]
    fixed, free = some[:n], some[n:]
    X = bo.PSD(n)
    rows = [bo.diag(X) == 1, X[i[fixed], j[fixed]] == near[i[fixed], j[fixed]]]
    around = near[i[free], j[free]]
    rows += [bo.between(X[i[free], j[free]], around - 0.05, around + 0.05)]
    return bo.Problem(bo.Minimize(ATOMS[divergence](X, X0)), rows)


def _metric(divergence: str, n: int, m: int) -> bo.Problem:
    """Return the nearest matrix to the identity with bounds on random quadratic forms."""
    rng = np.random.default_rng(n)
    Z = rng.normal(size=(m, n)) / np.sqrt(n)
    near = np.einsum("kn,nm,km->k", Z, start_matrix(n, rng), Z)
    X = bo.PSD(n)
    rows = bo.between(bo.quad_form(Z, X), 0.9 * near, 1.5 * near)
    return bo.Problem(bo.Minimize(ATOMS[divergence](X, np.eye(n))), [rows])


def _weighted(n: int, least: float, most: float) -> bo.Problem:
    rng = np.random.default_rng(n)
    H = np.triu(rng.uniform(least, most, (n, n)) if least else rng.choice([least, 1.0, most], (n, n)), 1)
    X = bo.PSD(n)
    objective = bo.frobenius_div(X, uniform_matrix(n, rng), weights=H + H.T + np.eye(n))
    return bo.Problem(bo.Minimize(objective), [bo.diag(X) == 1])


def _contradiction(divergence: str, n: int) -> bo.Problem:
    rng = np.random.default_rng(n)
    X = bo.PSD(n)
    rows = [bo.diag(X) == 1, bo.quad_form(np.ones(n), X) <= n, X[np.arange(n - 1), np.arange(1, n)] >= 0.99]
    return bo.Problem(bo.Minimize(ATOMS[divergence](X, start_matrix(n, rng))), rows)


# --------------------------------------------------------------------------------------- psdboost and lowrank


def _psdboost() -> list[Case]:
    linear = {"master": "lp", "tol": 1e-4}
    return [
        Case("soft margin, D = 30", partial(_margin, 30, 100), {}),
        Case("soft margin, D = 50", partial(_margin, 50, 100), {"tol": 1e-4}),
        Case("soft margin, D = 12, linear master", partial(_margin, 12, 60), linear),
        Case("game, n = 24", partial(_game, 24, 30), {}),
        Case("game, n = 14, linear master", partial(_game, 14, 20), linear),
        Case("trace at most 10", partial(_trace_bounded, 30, 30), {}),
        Case("theta, n = 24", partial(_theta, 24, 60), {"tol": 1e-4}),
        Case("infeasible", partial(_none_of_trace_one, 30), {}),
    ]


def _margin(D: int, R: int) -> bo.Problem:
    data = margins.classes(D, max(R, 100), D, R, 6.0)
    X, rho = bo.PSD(D), bo.Variable()
    differences = bo.quad_form(data.far, X) - bo.quad_form(data.near, X)
    return bo.Problem(bo.Maximize(rho), [bo.soft(differences >= rho, gamma=10 / R), bo.trace(X) == 1])


def _game(n: int, m: int) -> bo.Problem:
    A = _symmetric(np.random.default_rng(n), m, n, n)
    X, t = bo.PSD(n), bo.Variable()
    return bo.Problem(bo.Maximize(t), [bo.inner(A, X) >= t, bo.trace(X) == 1])


def _trace_bounded(n: int, m: int) -> bo.Problem:
    rng = np.random.default_rng(n)
    C, A = _symmetric(rng, n, n), _symmetric(rng, m, n, n)
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) <= 10, bo.inner(A, X) <= 1])


def _none_of_trace_one(n: int) -> bo.Problem:
    rng = np.random.default_rng(n)
    A = np.array([start_matrix(n, rng) for _ in range(10)])
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(X[0, 0]), [bo.inner(A, X) <= 0.05, bo.trace(X) == 1])


def _lowrank() -> list[Case]:
    def cut(n: int, m: int) -> bo.Problem:
        return large_cuts.max_cut(large_cuts.random_graph(n, m))

    return [
        Case("max-cut, n = 300", partial(cut, 300, 600), {}),
        Case("max-cut, n = 600", partial(cut, 600, 780), {"tol": 1e-4}),
        Case("max-cut, n = 1,000", partial(cut, 1_000, 3_000), {"tol": 1e-3}),
        Case("max-cut, n = 2,000", partial(cut, 2_000, 2_000), {"tol": 1e-2}),
        Case(
            "balanced, n = 300", lambda: large_cuts.balanced(large_cuts.random_graph(300, 900)), {"tol": 1e-4}
        ),
        Case("signed, n = 300", partial(_signed, 300), {"tol": 1e-5}),
        Case("smallest eigenvalue, n = 400", partial(_eigenvalue, 400), {}),
        Case("max-cut with bounded entries", partial(_some_entries, 50), {"tol": 1e-3}),
    ]


def _signed(n: int) -> bo.Problem:
    graph = large_cuts.random_graph(n, 4 * n).tocoo()
    graph.data = np.sign((graph.row + graph.col) % 3 - 0.5)
    return large_cuts.max_cut(graph.tocsr())


def _eigenvalue(n: int) -> bo.Problem:
    X = bo.PSD(n)
    C = large_cuts.laplacian(large_cuts.random_graph(n, 3 * n))
    return bo.Problem(bo.Maximize(bo.inner(C, X)), [bo.trace(X) == 1])


def _some_entries(n: int) -> bo.Problem:
    graph = large_cuts.random_graph(n, 3 * n)
    X = bo.PSD(n)
    i, j = graph.nonzero()
    i, j = i[i < j][:20], j[i < j][:20]
    goal = bo.Maximize(bo.inner(large_cuts.laplacian(graph) / 4, X))
    return bo.Problem(goal, [bo.diag(X) == 1, X[i, j] >= -0.4])


# ---------------------------------------------------------------------------------------------- definiteboost


def _entropy() -> list[Case]:
    return [
        Case("key rate, two qubits", partial(_key_rate, 2), {}),
        Case("key rate, two parts of order 3", partial(_key_rate, 3), {}),
        Case("Gibbs state, n = 8", partial(_gibbs, 8), {"tol": 1e-9}),
        Case("logistic regression, 200 x 10", partial(_logistic, 200, 10), {}),
    ]


def _key_rate(d: int) -> bo.Problem:
    """BB84 at an error rate of 5 % in two bases, of parts of order `d`."""
    rho, identity = bo.PSD(d * d, hermitian=True), np.eye(d)
    fourier = np.exp(2j * np.pi * np.outer(range(d), range(d)) / d) / np.sqrt(d)
    agree = np.diag([float(i == j) for i in range(d) for j in range(d)])
    turn = np.kron(fourier, fourier.conj())
    turned = turn @ agree @ turn.conj().T
    rows = [bo.trace(rho) == 1, bo.inner(agree, rho) == 0.95, bo.inner(turned, rho) == 0.95]
    key = [np.kron(np.diag(e), identity) for e in identity]
    return bo.Problem(bo.Minimize(bo.key_rate(rho, pinching=key)), rows)


def _gibbs(n: int) -> bo.Problem:
    rho, H = bo.PSD(n), _symmetric(np.random.default_rng(n), n, n)
    return bo.Problem(bo.Minimize(bo.inner(H, rho) - bo.von_neumann_entr(rho)), [bo.trace(rho) == 1])


def _logistic(m: int, n: int) -> bo.Problem:
    rng, u = np.random.default_rng(m), bo.Variable(n)
    margins = rng.choice([-1.0, 1.0], (m, 1)) * rng.standard_normal((m, n))
    return bo.Problem(bo.Minimize(bo.sum(bo.logistic(margins @ u)) + bo.sum_squares(u)))


def _definiteboost() -> list[Case]:
    return [
        Case("distances, approximate steps", partial(_kernel, 12, 12), {}),
        Case("distances, exact steps", partial(_kernel, 12, 12), {"step": "exact"}),
        Case("distances, cyclic", partial(_kernel, 12, 12), {"order": "cyclic"}),
        Case("distances, n = 30", partial(_kernel, 30, 10), {"tol": 1e-4}),
        Case("margin, n = 6", partial(_theta_of_rows, 6, 10), {"tol": 5e-2}),
        Case("margin, n = 12, exact steps", partial(_theta_of_rows, 12, 6), {"tol": 5e-2, "step": "exact"}),
        Case("infeasible", partial(_too_near, 12), {}),
    ]


def _kernel(n: int, m: int) -> bo.Problem:
    rng = np.random.default_rng(n)
    X0 = start_matrix(n, rng)
    X0 /= np.trace(X0)
    i, j = np.triu_indices(n, 1)
    some = rng.permutation(len(i))[:m]
    i, j = i[some], j[some]
    X = bo.PSD(n)
    near = bo.sq_distance(X, i, j) <= 0.7 * (X0[i, i] + X0[j, j] - 2 * X0[i, j])
    return bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), [near, bo.trace(X) == 1])


def _theta_of_rows(n: int, m: int) -> bo.Problem:
    A = _symmetric(np.random.default_rng(n), m, n, n)
    A /= np.linalg.norm(A, 2, axis=(1, 2))[:, None, None]
    X, theta = bo.PSD(n), bo.Variable()
    return bo.Problem(bo.Minimize(theta), [bo.inner(A, X) <= theta, bo.trace(X) == 1])


def _too_near(n: int) -> bo.Problem:
    X = bo.PSD(n)
    rows = [bo.diag(X)[: n - 1] <= 0.5 / n, X[n - 1, n - 1] <= 0.4, bo.trace(X) == 1]
    return bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(n) / n)), rows)
