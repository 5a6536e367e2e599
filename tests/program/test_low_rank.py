"""Low rank: the answers of full rank on the range, no n x n matrix, and explicit rank decisions."""

import tracemalloc
import warnings

import numpy as np
import pytest

import bregopt as bo

DIVERGENCES = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}


def rows(X, G, rng, soft):
    n = len(G)
    i, j = rng.permutation(n)[:10].reshape(2, 5)
    d = ((G[i] - G[j]) ** 2).sum(1)
    Z = rng.normal(size=(2, n))
    distances = bo.sq_distance(X, i, j) <= 0.8 * d
    return [
        bo.soft(distances, gamma=2.0) if soft else distances,
        X[i[0], j[1]] >= (G @ G.T)[i[0], j[1]] + 0.1,
        bo.quad_form(Z, X) <= 1.1 * np.einsum("kn,nr,mr,km->k", Z, G, G, Z),
        bo.trace(X) <= 1.05 * (G**2).sum(),
        bo.sq_distance(X, i[0], j[0]) <= bo.sq_distance(X, i[1], j[1]),
    ]


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_equals_full_rank_restricted_to_the_range(name, soft, rng):
    n, r = 25, 4
    V, _ = np.linalg.qr(rng.normal(size=(n, r)))
    s = np.array([3.0, 2.0, 1.0, 0.5])
    G = (V * np.sqrt(s)) @ np.linalg.qr(rng.normal(size=(r, r)))[0]
    X = bo.PSD(n)
    seed = rng.integers(1 << 30)
    low = bo.Problem(
        bo.Minimize(DIVERGENCES[name](X, bo.LowRank(G))), rows(X, G, np.random.default_rng(seed), soft)
    ).solve(solver="bregman", tol=1e-9)
    assert isinstance(low.X, bo.LowRank)

    # The same rows, written as dense matrices V'A V, over an r x r variable of full rank.
    M = bo.PSD(r)
    declared = bo.Problem(bo.Minimize(bo.trace(X)), rows(X, G, np.random.default_rng(seed), soft))
    program = declared.program()
    stack = [V.T @ program.A.adjoint(np.eye(program.m)[k]) @ V for k in range(program.m)]
    body = bo.inner(stack, M)
    bounds = program.bounds
    constraints = []
    start = 0
    for c in declared.constraints:
        part = slice(start, start + c.size)
        row = (body[part] <= bounds.hi[part]) if c.sense == "<=" else (body[part] >= bounds.lo[part])
        constraints.append(bo.soft(row, gamma=2.0) if c.penalty is not None else row)
        start += c.size
    full = bo.Problem(bo.Minimize(DIVERGENCES[name](M, V.T @ G @ G.T @ V)), constraints).solve(
        solver="bregman", tol=1e-9
    )
    assert low.status == full.status == "optimal"
    assert low.value == pytest.approx(full.value, rel=1e-7)
    np.testing.assert_allclose(np.asarray(low.X), V @ full.X @ V.T, atol=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_factor_may_have_dependent_columns(name, rng):
    G = rng.normal(size=(12, 3))
    doubled = np.hstack([G, G @ rng.normal(size=(3, 2))])
    X = bo.PSD(12)
    sol = bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(doubled))), [bo.trace(X) == 10.0]).solve()
    assert sol.rank == sol.X.rank == 3
    assert sol.status == "optimal"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_scaling_the_data_scales_the_answer(name, scale, rng):
    G = rng.normal(size=(15, 3))
    i, j = np.arange(6), np.arange(6) + 6
    d = ((G[i] - G[j]) ** 2).sum(1)
    X = bo.PSD(15)

    def solve(t):
        start = bo.LowRank(np.sqrt(t) * G)
        return bo.Problem(
            bo.Minimize(DIVERGENCES[name](X, start)), [bo.sq_distance(X, i, j) <= 0.7 * t * d]
        ).solve(solver="bregman", tol=1e-8)

    one, scaled = solve(1.0), solve(scale)
    assert scaled.status == "optimal"
    np.testing.assert_allclose(np.asarray(scaled.X) / scale, np.asarray(one.X), atol=1e-6)
    assert scaled.value == pytest.approx(one.value * (scale if name == "von_neumann" else 1), rel=1e-6)


def test_answers_of_a_low_rank_matrix(rng):
    F = rng.normal(size=(7, 2))
    K, dense = bo.LowRank(F), F @ F.T
    np.testing.assert_allclose(np.asarray(K), dense)
    np.testing.assert_allclose(K.dense(), dense)
    np.testing.assert_allclose(K.diag(), np.diag(dense))
    assert K.trace() == pytest.approx(np.trace(dense))
    assert K.shape == (7, 7)
    v = rng.normal(size=7)
    np.testing.assert_allclose(K @ v, dense @ v)
    np.testing.assert_allclose(v @ K, v @ dense)
    for key in [(0, 1), (slice(2), slice(None)), ([0, 1], [2, 3]), 3, (-1, -1)]:
        np.testing.assert_allclose(K[key], dense[key])
    F[0] = np.nan  # a copy was taken
    assert np.isfinite(K.factor).all()


def test_large_problem_stays_small():
    """n = 50,000, r = 20, 2,000 distance rows in under 400 MB; the dense matrix alone would take 20 GB."""
    n, r, m = 50_000, 20, 2_000
    rng = np.random.default_rng(0)
    G = rng.normal(size=(n, r))
    i, j = rng.integers(0, n // 2, m), rng.integers(n // 2, n, m)
    d = ((G[i] - G[j]) ** 2).sum(1)
    tracemalloc.start()
    X = bo.PSD(n)
    problem = bo.Problem(
        bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), [bo.soft(bo.sq_distance(X, i, j) <= 0.8 * d, gamma=0.1)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        sol = problem.solve(solver="bregman", tol=1e-3, max_iter=20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400e6
    assert isinstance(sol.X, bo.LowRank)
    assert sol.X.factor.shape == (n, r)
    assert sol.gap < 0.1


def test_what_is_decided_about_the_rank_is_said(capsys, caplog):
    rng = np.random.default_rng(0)
    G = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 4))
    for scale in (1e-8, 1.0, 1e8):
        X = bo.PSD(9, name="K")
        problem = bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(scale * G))), [bo.trace(X) >= scale**2])
        problem.explain()
        assert "K keeps the range of X0: rank 2 of 4 columns (rank_tol 1e-10)" in capsys.readouterr().out
        with caplog.at_level("INFO", logger="bregopt"):
            assert problem.solve(verbose=True).rank == 2
        assert "rank 2 of 4 columns" in caplog.text
        assert "K 9 x 9 of rank 2" in capsys.readouterr().out
        problem.explain(rank_tol=1e-20)
        assert "rank 4 of 4 columns (rank_tol 1e-20)" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["newton", "cyclic"])
@pytest.mark.parametrize("z", [[0, 0, 0, 1], [1, 1, -1, 0]])
def test_soft_rows_that_vanish_on_the_range(method, z):
    G = np.array([[1.0, 0], [0, 1], [1, 1], [0, 0]])
    X = bo.PSD(4)
    row = bo.quad_form(np.array(z, dtype=float), X) >= 0.5
    for atom, penalty in (
        (bo.logdet_div, "hinge"),
        (bo.von_neumann_div, "hinge"),
        (bo.von_neumann_div, None),
    ):
        rows = [bo.soft(row, gamma=1.0, **({"penalty": penalty} if penalty else {})), X[0, 0] == 2]
        sol = bo.Problem(bo.Minimize(atom(X, bo.LowRank(G))), rows).solve(method=method)
        without = bo.Problem(bo.Minimize(atom(X, bo.LowRank(G))), rows[1:]).solve(method=method)
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(
            without.value + 0.5, rel=1e-5
        )  # both penalties have this value at zero
    with pytest.raises(bo.InfeasibleRowError, match="always 0"):
        bo.Problem(bo.Minimize(bo.logdet_div(X, bo.LowRank(G))), [bo.soft(row, gamma=1.0)]).solve(
            method=method
        )
