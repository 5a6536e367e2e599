"""The parts of Newton's method for the graphical lasso, against dense formulas and optimality conditions."""

import numpy as np
import pytest
from samples import turns
from scipy.sparse.csgraph import connected_components

import bregopt as bo
from bregopt.routes.graphical_lasso import descent, solve
from bregopt.routes.graphical_lasso.descent import DenseFace, NewtonModel, SparseFace, face_of
from bregopt.routes.graphical_lasso.problem import LassoData, ascended
from bregopt.routes.graphical_lasso.solve import connected_parts, neighborhood_estimate


def correlations(n, samples, seed=0):
    points = np.random.default_rng(seed).normal(size=(samples, n))
    points[:, 1:] += 0.7 * points[:, :-1]
    return np.corrcoef(points, rowvar=False)


def symmetric(rng, n, density=1.0):
    M = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < density))
    return M + np.triu(M, 1).T


def set_sweeps(monkeypatch, sweeps, settled, steps=2):
    """Set the constants of the start by regressions."""
    for name, value in (("_SWEEPS", sweeps), ("_SETTLED", settled), ("_SWEEP_STEPS", steps)):
        monkeypatch.setattr(solve, name, value)


@pytest.mark.parametrize("n", [3, 30, 400])
def test_both_kinds_of_faces_are_the_dense_formulas(n):
    rng = np.random.default_rng(n)
    mask = symmetric(rng, n, 0.1) != 0
    np.fill_diagonal(mask, True)
    A, B, M = (symmetric(rng, n).astype(np.float32) for _ in range(3))
    for face in (DenseFace(mask, np.float32), SparseFace(mask, np.float32)):
        a, b = face.part(A), face.part(B)
        np.testing.assert_array_equal(face.matrix(a), A * mask)
        assert face.inner(a, b) == pytest.approx((A * B * mask).sum(), rel=1e-3, abs=1e-2)
        product = face.matrix(face.congruence(M, a))
        np.testing.assert_array_equal(product, product.T)
        np.testing.assert_allclose(product, (M @ (A * mask) @ M) * mask, atol=1e-4 * n)


def test_a_face_with_few_entries_is_sparse():
    few = np.eye(200, dtype=bool)
    assert isinstance(face_of(few, np.float64), SparseFace)
    assert isinstance(face_of(~few, np.float64), DenseFace)
    assert isinstance(face_of(few[:20, :20], np.float64), DenseFace)


@pytest.mark.parametrize(("n", "density"), [(12, 1.0), (90, 0.05)])
def test_the_model_is_minimized(n, density, monkeypatch):
    rng = np.random.default_rng(0)
    W = correlations(n, 3 * n)
    X = np.linalg.inv(W)
    mask = symmetric(rng, n, density) != 0
    np.fill_diagonal(mask, True)
    face = face_of(mask, np.float64)
    G, P = symmetric(rng, n), np.full((n, n), 0.4)
    x = face.part(np.eye(n))
    monkeypatch.setattr(descent, "_MODEL_PRODUCTS", 10_000)
    model = NewtonModel(face, X, W, x, face.part(G), face.part(P), None)
    model.minimize(1e-9)
    Y = face.matrix(model.y)
    slope = (G + W @ (Y - np.eye(n)) @ W) * mask  # of the quadratic part
    used = Y != 0
    tol = 1e-6 * np.abs(slope).max()
    np.testing.assert_allclose(slope[used], -0.4 * np.sign(Y[used]), atol=tol)
    assert (np.abs(slope) <= 0.4 + tol).all()


@pytest.mark.parametrize("sweeps", [1, 2, 3])
def test_the_estimate_is_the_regressions_of_each_variable_on_the_others(sweeps, monkeypatch):
    linear_model = pytest.importorskip("sklearn.linear_model")
    S, n, alpha = correlations(15, 60), 15, 0.1
    data = LassoData(S, alpha * (1 - np.eye(n)))
    set_sweeps(monkeypatch, sweeps, settled=1e-9, steps=300)
    X = neighborhood_estimate(data)
    W = np.sign(S) * np.maximum(np.abs(S) - alpha, 0)
    for _ in range(sweeps):
        np.fill_diagonal(W, 1)
        root = np.linalg.cholesky(W).T
        rows, columns = np.zeros((n, n)), np.zeros((n, n))
        for j in range(n):
            others = np.arange(n) != j
            lasso = linear_model.Lasso(alpha / n, fit_intercept=False, tol=1e-12, max_iter=10**5)
            b = lasso.fit(root[:, others], np.linalg.solve(root.T, S[:, j])).coef_
            columns[others, j] = W[np.ix_(others, others)] @ b
            rows[j, j] = 1 / (1 - b @ columns[others, j])
            rows[j, others] = -b * rows[j, j]
        W = (columns + columns.T) / 2
    np.testing.assert_allclose(X, (rows + rows.T) / 2, atol=1e-6)


def test_the_regressions_converge_to_the_solution(monkeypatch):
    S, n, alpha = correlations(15, 60), 15, 0.1
    data = LassoData(S, alpha * (1 - np.eye(n)))
    set_sweeps(monkeypatch, 200, settled=1e-12)
    X = neighborhood_estimate(data)
    np.testing.assert_allclose(X, bo.graphical_lasso(S, alpha, tol=1e-12).X, atol=1e-5)


@pytest.mark.parametrize(("n", "seed"), turns([40, 120], range(3)))
def test_hard_problems_are_solved(n, seed):
    """Few samples of few factors with little noise, and a small penalty: ill conditioned and singular."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n // 2, 3)) @ rng.normal(size=(3, n)) + 0.3 * rng.normal(size=(n // 2, n))
    S = np.corrcoef(points, rowvar=False)
    sol = bo.graphical_lasso(S, 0.02, tol=1e-8)
    assert sol.status == "optimal"
    X, reach, U = np.asarray(sol.X), 0.02 * (1 - np.eye(n)), sol.duals[0]
    assert (np.abs(U) <= reach).all()
    value = (S * X).sum() - np.linalg.slogdet(X)[1] + (reach * np.abs(X)).sum()
    bound = np.linalg.slogdet(S + U)[1] + n
    assert abs(value - bound) <= 1.1e-8 * max(abs(value), 1e-2 * n)


@pytest.mark.parametrize("seed", range(20))
def test_random_problems_are_proven_without_warnings(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    S = np.cov(rng.normal(size=(int(rng.integers(3, 3 * n + 3)), n)) @ rng.normal(size=(n, n)), rowvar=False)
    if seed % 4 == 0:  # mostly indefinite
        S[0, -1] = S[-1, 0] = 2 * S.max()
    weights = rng.uniform(0, 2, size=(n, n))
    weights += weights.T
    alpha = 10 ** rng.uniform(-3, -1) * np.abs(S).max()
    sol = bo.graphical_lasso(S, alpha, weights=weights, tol=1e-7)
    penalty = alpha * weights * (1 - np.eye(n))
    if sol.status == "unbounded":
        R = sol.ray.X
        assert np.linalg.eigvalsh(R)[0] >= -1e-9 * np.trace(R)
        assert (S * R).sum() + (penalty * np.abs(R)).sum() <= 1e-9 * np.abs(S * R).sum()
        return
    assert sol.status == "optimal"
    X, U = sol.X, sol.duals[0]
    value = (S * X).sum() - np.linalg.slogdet(X)[1] + (penalty * np.abs(X)).sum()
    bound = np.linalg.slogdet(S + U)[1] + n
    assert (np.abs(U) <= penalty).all()
    assert abs(value - bound) <= 1.1e-7 * max(abs(value), abs(bound), 1e-2 * n)


def test_the_gap_of_the_ascended_inverse_is_of_second_order():
    S, n, alpha = correlations(20, 60), 20, 0.1
    data = LassoData(S, alpha * (1 - np.eye(n)))
    X = bo.graphical_lasso(S, alpha, tol=1e-12).X
    error = symmetric(np.random.default_rng(0), n) * (X != 0)
    gaps = []
    for size in (1e-3, 1e-4):
        near = X + size * error
        gradient = S - np.linalg.inv(near)
        value = data.value(near, np.linalg.cholesky(near))
        clipped, ascent = (data.bound(data.clip(U)) for U in (-gradient, ascended(near, gradient)))
        assert value >= ascent > clipped
        gaps.append((value - clipped, value - ascent))
    assert gaps[0][0] < 20 * gaps[1][0]
    assert gaps[0][1] > 80 * gaps[1][1]


def test_components_are_those_of_the_graph():
    rng = np.random.default_rng(0)
    for n in rng.integers(1, 40, 100):
        edges = np.triu(rng.random((n, n)) < 1.5 / n, 1)
        edges |= edges.T
        parts = connected_parts(LassoData(edges + np.eye(n), 0.5 * (1 - np.eye(n))))
        count, label = connected_components(edges, directed=False)
        assert len(parts) == count
        assert sorted(np.concatenate(parts)) == list(range(n))
        assert all(len(set(label[part])) == 1 for part in parts)
        assert [len(part) for part in parts] == sorted(map(len, parts), reverse=True)
