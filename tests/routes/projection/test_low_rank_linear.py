"""Low rank costs time and memory linear in n: many equalities in few unknowns, cyclic sweeps, hard pairs."""

import tracemalloc

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.divergences import LogDet, LogDetPoint

DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


def correlation(n, r, rng):
    """Return a factor, and that of the one correlation matrix on its range where n > r (r + 1) / 2."""
    U = rng.normal(size=(n, r))
    U /= np.linalg.norm(U, axis=1)[:, None]
    return U @ (np.eye(r) + 0.3 * rng.normal(size=(r, r))), U


def value_on_range(name, V, X0, X):
    """Return the divergence of two matrices with the orthonormal basis `V` of their range."""
    M, M0 = V.T @ X @ V, V.T @ X0 @ V
    if name == "logdet":
        ratio = np.linalg.solve(M0, M)
        return np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(M)
    (a, P), (b, Q) = np.linalg.eigh(M), np.linalg.eigh(M0)
    logs = (P * np.log(a)) @ P.T - (Q * np.log(b)) @ Q.T
    return np.vdot(M, logs) - np.trace(M) + np.trace(M0)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_nearest_correlation_makes_no_array_of_order_n(name):
    n, rng = 20_000, np.random.default_rng(0)
    G, U = correlation(n, 5, rng)
    A = bo.LowRank(G)
    kept = np.array([[0, 1], [7, 3]])
    scaled = bo.LowRank(U)  # its entries may be kept, as it is a correlation matrix
    tracemalloc.start()
    sol = bo.nearest_correlation(A, name)
    same = bo.nearest_correlation(scaled, name, fixed=kept)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sol.status == same.status == "optimal"
    assert peak < 80e6  # one dense matrix takes 3.2e9
    np.testing.assert_allclose(
        sol.X[kept[:, 0], kept[:, 1]], (U[kept[:, 0]] * U[kept[:, 1]]).sum(1), atol=1e-5
    )


@pytest.mark.parametrize(("scale", "name"), turns([1e-6, 1.0, 1e6], DIVERGENCES))
@pytest.mark.parametrize(("n", "r"), [(300, 4), (60, 10), (50, 1), (6, 6)])
def test_the_only_point_on_the_range_is_found(name, n, r, scale, rng):
    G, U = correlation(n, r, rng)
    X = bo.PSD(n)
    start = bo.LowRank(np.sqrt(scale) * G)
    problem = bo.Problem(bo.Minimize(DIVERGENCES[name](X, start)), [bo.diag(X) == scale])
    sol = problem.solve(solver="bregman", tol=1e-8)
    assert sol.status == "optimal"
    if n > r:
        np.testing.assert_allclose(np.asarray(sol.X) / scale, U @ U.T, atol=1e-6)
        V = np.linalg.qr(U)[0]
        expected = value_on_range(name, V, G @ G.T, U @ U.T)
        assert sol.value == pytest.approx(expected * (scale if name == "von_neumann" else 1), rel=1e-6)
    np.testing.assert_allclose(sol.X.diagonal() / scale, 1, atol=1e-7)


@pytest.mark.parametrize("noise", [1e-14, 1e-10, 1e-8])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_rows_that_agree_within_the_tolerance(name, noise, rng):
    n = 120
    G, U = correlation(n, 4, rng)
    X = bo.PSD(n)
    rows = [bo.diag(X) == 1 + noise * rng.normal(size=n), X[[0, 1], [1, 2]] <= 1]
    sol = bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(G))), rows).solve(solver="bregman")
    assert sol.status == "optimal"
    np.testing.assert_allclose(np.asarray(sol.X), U @ U.T, atol=1e-5)


@pytest.mark.parametrize("error", [1e-4, 1e-2, None])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_rows_that_contradict_each_other_have_a_farkas_vector(name, error, rng):
    n, r = 200, 3
    G = correlation(n, r, rng)[0] if error else rng.normal(size=(n, r))
    right = 1 + (error or 0.0) * rng.normal(size=n)
    X = bo.PSD(n)
    problem = bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(G))), [bo.diag(X) == right])
    sol = problem.solve(solver="bregman")
    assert sol.status == "infeasible"
    y = -sol.duals[0]
    size = np.abs(y) @ (G**2).sum(1)
    assert y @ right > 0
    assert np.linalg.eigvalsh(G.T @ (y[:, None] * G))[-1] <= 1e-9 * size


@pytest.mark.parametrize("name", DIVERGENCES)
def test_condensed_rows_beside_others(name, rng):
    n = 150
    G, U = correlation(n, 4, rng)
    S, i, j = U @ U.T, np.arange(3), np.arange(3, 6)
    X = bo.PSD(n)
    objective = bo.Minimize(DIVERGENCES[name](X, bo.LowRank(G)))
    exact = [bo.diag(X) == 1, X[i, j] == S[i, j]]
    value = bo.Problem(objective, exact).solve(solver="bregman", tol=1e-8).value
    within = bo.Problem(objective, [*exact, X[i, j] <= S[i, j] + 0.1, X[i, j] >= S[i, j] - 0.1])
    assert within.solve(solver="bregman", tol=1e-8).value == pytest.approx(value, rel=1e-6)
    beyond = bo.Problem(objective, [bo.diag(X) == 1, X[i, j] <= S[i, j] - 0.1])
    assert beyond.solve(solver="bregman").status == "infeasible"
    soft = bo.Problem(objective, [bo.diag(X) == 1, bo.soft(bo.sq_distance(X, 0, 1) <= 1e-3, penalty="hinge")])
    paid = max(0.0, 2 - 2 * S[0, 1] - 1e-3)
    assert soft.solve(solver="bregman", tol=1e-8).value == pytest.approx(value + paid, rel=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_a_warm_start_of_condensed_rows(name, rng):
    G, _ = correlation(100, 3, rng)
    X = bo.PSD(100)
    problem = bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(G))), [bo.diag(X) == 1])
    first = problem.solve(solver="bregman", tol=1e-8)
    again = problem.solve(solver="bregman", tol=1e-8, warm_start=True)
    assert again.status == "optimal"
    assert again.iterations <= first.iterations
    assert again.value == pytest.approx(first.value, rel=1e-7)


def pairs(name, seed, slack, m=150):
    """Return hard bounds on distances in few unknowns, of which many are active at once; and their data."""
    rng, n, r = np.random.default_rng(seed), 60, 3
    G = rng.normal(size=(n, r))
    H = G @ (np.eye(r) + 0.3 * rng.normal(size=(r, r)))
    i = rng.integers(0, n, m)
    j = (i + rng.integers(1, n, m)) % n
    d, near = ((H[i] - H[j]) ** 2).sum(1), rng.random(m) < 0.5
    lo, hi = np.where(near, 0.1, 1 - slack) * d, np.where(near, 1 + slack, 10.0) * d
    lo[0] = hi[0] = d[0]
    X = bo.PSD(n)
    rows = [bo.between(bo.sq_distance(X, i, j), lo, hi)]
    return bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(G))), rows), (G, G[i] - G[j], lo, hi)


def dual_value(name, G, D, bound, y):
    """Return Lagrange's bound, with the rows ``d'X d`` on the range in its orthonormal basis."""
    V = np.linalg.qr(G)[0]
    S = (D @ V).T @ (y[:, None] * (D @ V))
    a, Q = np.linalg.eigh(V.T @ G @ G.T @ V)
    if name == "logdet":
        root = Q * np.sqrt(a)
        return y @ bound + np.linalg.slogdet(np.eye(len(a)) - root.T @ S @ root)[1]
    return y @ bound + a.sum() - np.exp(np.linalg.eigvalsh((Q * np.log(a)) @ Q.T + S)).sum()


@pytest.mark.parametrize(("slack", "seed", "name"), turns([0.0, 1e-3, 0.1], range(4), DIVERGENCES))
def test_more_hard_pairs_than_unknowns(name, seed, slack):
    problem, (G, _, lo, hi) = pairs(name, seed, slack)
    sol = problem.solve(solver="bregman")
    assert sol.status == "optimal"
    (term,) = problem.program().A.terms
    D = np.zeros((len(lo), len(G)))
    D[np.arange(len(lo)), term.rows.i], D[np.arange(len(lo)), term.rows.j] = 1, -1
    y = -sol.duals[0]
    bound = dual_value(name, G, D, np.where(y > 0, lo, np.where(y < 0, hi, 0.0)), y)
    a = np.einsum("kn,nr->kr", D, sol.X.factor)
    activity = (a**2).sum(1)
    reach = 1e-5 * activity.max()
    assert (activity >= lo - reach).all()
    assert (activity <= hi + reach).all()
    assert bound == pytest.approx(value_on_range(name, np.linalg.qr(G)[0], G @ G.T, sol.X.dense()), rel=1e-5)


def test_contradicting_hard_pairs_are_proven_infeasible():
    problem, _ = pairs("von_neumann", 0, -0.2)
    assert problem.solve(solver="bregman").status == "infeasible"


def numpy_cycles(V, lo, hi, cycles):
    """Algorithm 2 of Kulis et al. 2009 with corrections for both senses, from ``M = I``."""
    M, y = np.eye(V.shape[1]), np.zeros(len(V))
    for _ in range(cycles):
        for k, v in enumerate(V):
            x = M @ v
            p = v @ x
            for bound, sign in ((lo[k], 1.0), (hi[k], -1.0)):
                if np.isfinite(bound):
                    new = y[k] + 1 / p - 1 / bound
                    new = new if lo[k] == hi[k] else max(0.0, sign * new) * sign
                    alpha = new - y[k]
            M += alpha / (1 - alpha * p) * np.outer(x, x)
            y[k] = new
    return M


@pytest.mark.parametrize(("n", "r"), first(1, [(16, 3), (40, 4)]))
def test_cyclic_is_the_algorithm_of_the_paper(n, r, rng):
    V = rng.normal(size=(n, r))
    target = np.einsum("ki,ki->k", V, V) * rng.uniform(0.7, 1.4, n)
    kind = rng.integers(0, 3, n)
    kind[np.flatnonzero(kind == 2)[2:]] = 0
    lo = np.where(kind == 0, -np.inf, 0.6 * target)
    hi = np.where(kind == 1, np.inf, 1.6 * target)
    lo[kind == 2] = hi[kind == 2] = target[kind == 2]
    X = bo.PSD(n)
    at = [np.flatnonzero(kind == k) for k in range(3)]
    rows = [X[at[0], at[0]] <= hi[at[0]], X[at[1], at[1]] >= lo[at[1]], X[at[2], at[2]] == lo[at[2]]]
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(V))), rows)
    sol = problem.solve(solver="bregman", method="cyclic", tol=1e-9)
    assert sol.status == "optimal"
    np.testing.assert_allclose(np.asarray(sol.X), V @ numpy_cycles(V, lo, hi, 3000) @ V.T, atol=1e-6)


@pytest.mark.parametrize("d", [2.0, -0.5])
def test_the_line_of_a_rank_one_row(d, rng):
    L = rng.normal(size=(4, 4))
    point = LogDetPoint(LogDet(L @ L.T + np.eye(4)), 1.0)
    point.reset(np.zeros((4, 4)))
    u = rng.normal(size=(4, 1))
    line, x = point.line(u, np.array([d])), d * float(u[:, 0] @ point.X @ u[:, 0])
    assert line.reach == ((0.0, np.inf) if d > 0 else (-np.inf, 0.0))
    np.testing.assert_allclose(line.domain, (-np.inf, 1 / x) if d > 0 else (1 / x, np.inf))
    alpha = 0.3 / abs(x)
    moved = np.linalg.inv(np.linalg.inv(point.X) - alpha * d * u @ u.T)
    a = d * float(u[:, 0] @ moved @ u[:, 0])  # 1/a is affine in alpha
    np.testing.assert_allclose(line.evaluate(alpha), (-1 / a, 1.0) if d > 0 else (a, a**2))
    assert line.harmonic == (d > 0)
    point.move(line, alpha)
    np.testing.assert_allclose(point.X, moved)
