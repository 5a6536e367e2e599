"""Nearness in the largest entry, beside the interior-point method, CVXPY and its own duals."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import ask
from samples import examples, first
from scipy.optimize import minimize_scalar

import bregopt as bo
from bregopt.problems.correlation.norms import Entries, distance_of


def indefinite(n, rng, size=1.0):
    A = np.triu(rng.uniform(-size, size, (n, n)), 1)
    return A + A.T + np.eye(n)


def is_correlation(X, least=0.0):
    return np.array_equal(X, X.T) and (X.diagonal() == 1).all() and np.linalg.eigvalsh(X)[0] >= least - 1e-9


def arguments(n, rng):
    """Yield the names of cases and their arguments."""
    H = rng.uniform(0, 2, (n, n))
    mask = np.zeros((n, n), dtype=bool)
    mask[:4, :4] = True
    yield "plain", {}
    yield "floor", {"min_eigenvalue": 0.2}
    yield "weights of rows", {"weights": rng.uniform(0.2, 3, n)}
    yield "weights of entries", {"weights": np.where(H + H.T > 0.8, H + H.T, 0)}
    yield "fixed", {"fixed": mask}
    yield "bounds", {"lower": -0.5, "upper": 0.4}
    yield "a bound that forces the distance", {"upper": 0.1}
    yield "bounds of pairs", {"lower": {(0, 9): 0.2}, "upper": {(1, 9): -0.3}}
    yield "all", {"fixed": mask, "upper": 0.5, "min_eigenvalue": 0.01, "weights": rng.uniform(0.2, 3, n)}


CASES = [name for name, _ in arguments(10, np.random.default_rng(0))]


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_interior_point_method(case, rng):
    A = indefinite(14, rng)
    A[:4, :4] = 0.3 * A[:4, :4] + 0.7 * np.eye(4)
    options = dict(arguments(14, rng))[case]
    sol = bo.nearest_correlation(A, "largest_entry", **options)
    path = bo.nearest_correlation(A, "largest_entry", solver="path", **options)
    assert sol.solver == "splitting"
    assert path.solver == "path"
    assert sol.status == path.status == "optimal"
    assert abs(sol.value - path.value) <= sol.error + path.error
    assert is_correlation(sol.X, options.get("min_eigenvalue", 0.0))
    assert [np.shape(dual) for dual in sol.duals] == [np.shape(dual) for dual in path.duals]


@pytest.mark.parametrize(("n", "seed"), first(1, [(30, 6), (40, 24), (50, 13)]))
def test_a_splitting_that_does_not_end_is_left(n, seed):
    B = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    A = (B + B.T) / 2
    np.fill_diagonal(A, 1.0)
    sol = bo.nearest_correlation(A, "largest_entry")
    assert sol.status == "optimal"
    assert sol.solver in ("path", "lagrangian")
    assert np.allclose(sol.X.diagonal(), 1, rtol=0, atol=1e-6)
    assert np.linalg.eigvalsh(sol.X)[0] >= -1e-6
    assert np.isclose(np.abs(sol.X - A).max(), sol.value)


@pytest.mark.parametrize("seed", first(4, range(12)))
def test_agrees_with_cvxpy(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    A, H, X = indefinite(n, rng), rng.uniform(0.2, 2, (n, n)), cp.Variable((n, n), PSD=True)
    np.fill_diagonal(A, rng.uniform(0.95, 1.05, n))
    H = H + H.T
    lower, floor = -rng.uniform(0.3, 1), rng.uniform(0, 0.3)
    sol = bo.nearest_correlation(A, "largest_entry", weights=H, lower=lower, min_eigenvalue=floor)
    rows = [cp.diag(X) == 1, cp.upper_tri(X) >= lower, X >> floor * np.eye(n)]
    assert sol.status == "optimal"
    ask(cp.Problem(cp.Minimize(cp.max(cp.abs(cp.multiply(H, X - A)))), rows)).agrees(sol.value, sol.error)


@pytest.mark.parametrize("missing", [False, True])
def test_covariances(missing, rng):
    s = rng.uniform(0.3, 3, 12)
    S = indefinite(12, rng) * np.outer(s, s)
    if missing:
        S[0, 1:3] = S[1:3, 0] = np.nan
    options = {"min_eigenvalue": 0.01, "missing": "unknown" if missing else "error", "upper": 0.2}
    sol, path = (
        bo.nearest_covariance(S, "largest_entry", solver=name, **options) for name in ("auto", "path")
    )
    assert sol.status == path.status == "optimal"
    assert abs(sol.value - path.value) <= sol.error + path.error
    np.testing.assert_allclose(sol.X.diagonal(), s**2, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 30, 100])
def test_the_duals_prove_the_distance(n, rng):
    A = indefinite(n, rng)
    sol = bo.nearest_correlation(A, "largest_entry")
    assert sol.status == "optimal"
    assert is_correlation(sol.X)
    assert sol.value == pytest.approx(np.abs(sol.X - A).max(), abs=1e-12)
    diagonal, above, below = sol.duals
    assert min(above.min(), below.min()) >= 0
    assert above.sum() + below.sum() <= 1 + 1e-12
    S = np.zeros((n, n))
    S[np.triu_indices(n, 1)] = (above - below) / 2
    S += S.T + np.diag(diagonal)
    bound = -float((S * A).sum()) + n * min(float(np.linalg.eigvalsh(S)[0]), 0.0)
    assert sol.value - bound <= 1e-6 * max(sol.value, 1e-2)


@examples(5)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 16))
def test_permutations_and_signs(seed, n):
    rng = np.random.default_rng(seed)
    A, p, d = indefinite(n, rng), rng.permutation(n), rng.choice([-1.0, 1.0], n)
    first, *others = (
        bo.nearest_correlation(M, "largest_entry") for M in (A, A[np.ix_(p, p)], A * np.outer(d, d))
    )
    assert first.status == "optimal"
    for other in others:
        assert abs(first.value - other.value) <= first.error + other.error


@examples(50)
@given(seed=st.integers(0, 2**32 - 1), p=st.integers(1, 20))
def test_the_distance_of_a_step_minimizes(seed, p):
    rng = np.random.default_rng(seed)
    a, r = rng.normal(size=(2, p))
    k = rng.uniform(0.2, 2, p) * (rng.random(p) < 0.8)
    lo, hi = np.where(rng.random((2, p)) < 0.5, np.inf, rng.uniform(-0.2, 1, (2, p)))
    lo, hi = np.minimum(a - lo, a + hi), a + hi
    forced = np.maximum(lo - a, a - hi)[k > 0] / k[k > 0]
    entries = Entries(np.arange(p), np.arange(p), a, k, lo, hi, forced.max(initial=0.0), np.ones(1))
    price = rng.uniform(0.01, 3)

    def cost(d):
        return price * d + float(np.square(r - np.clip(r, *entries.ends(d))).sum()) / 2

    d = distance_of(entries, r, price, rng.uniform(0, 2))
    best = minimize_scalar(cost, bounds=(entries.least, entries.least + 20), options={"xatol": 1e-12})
    assert d >= entries.least
    assert cost(d) <= min(best.fun, cost(entries.least)) + 1e-9


def test_warm_starts_take_fewer_iterations(rng):
    A = indefinite(40, rng)
    cold = bo.nearest_correlation(A, "largest_entry")
    warm = bo.nearest_correlation(A, "largest_entry", warm_start=cold)
    assert warm.status == "optimal"
    assert abs(cold.value - warm.value) <= cold.error + warm.error
    assert warm.iterations < cold.iterations


def test_a_correlation_matrix_has_distance_zero(rng):
    A = np.corrcoef(rng.normal(size=(60, 100)))
    sol = bo.nearest_correlation(A, "largest_entry")
    assert sol.status == "optimal"
    assert sol.value <= 1e-12


def test_options_end_the_work_with_a_feasible_answer(rng):
    A, steps = indefinite(40, rng), []
    with pytest.warns(bo.ConvergenceWarning):
        few = bo.nearest_correlation(A, "largest_entry", max_iter=20, callback=steps.append)
    assert few.status == "user_limit"
    assert few.iterations == 20
    assert len(steps) == 2
    with pytest.warns(bo.ConvergenceWarning):
        late = bo.nearest_correlation(indefinite(300, rng), "largest_entry", time_limit=0.3)
    assert late.status == "user_limit"
    for sol in (few, late):
        assert is_correlation(sol.X)
        assert sol.dual_value <= sol.value


def test_infeasible_requests_are_proven(rng):
    A = indefinite(30, rng)
    A[0, 1] = A[1, 0] = A[0, 2] = A[2, 0] = 0.9
    A[1, 2] = A[2, 1] = -0.9
    sol = bo.nearest_correlation(A, "largest_entry", fixed=[[0, 1], [0, 2], [1, 2]])
    assert sol.status == "infeasible"
    assert "fixed keeps all entries of 0, 1, 2" in sol.stop_reason


def test_other_routes_and_options_still_work(rng):
    A = indefinite(8, rng)
    assert bo.nearest_correlation(A, "largest_entry", max_condition=20).solver == "path"
    with pytest.raises(TypeError, match="has no option 'steps'"):
        bo.nearest_correlation(A, "largest_entry", steps=3)
    with pytest.raises(ValueError, match="tol is 2"):
        bo.nearest_correlation(A, "largest_entry", tol=2)


@pytest.mark.parametrize("largest", first(1, [30, 1_000]))
def test_real_matrices(data, largest):
    for path in sorted((data / "nearcorr").glob("*.csv")):
        A = np.loadtxt(path, delimiter=",")
        if path.stem.endswith("_pattern") or len(A) > largest:
            continue
        A = (A + A.T) / 2
        several = ({}, {"min_eigenvalue": 1e-3}, {"weights": np.linspace(1, 2, len(A))})
        for options in several if len(A) <= 25 else ({},):
            sol = bo.nearest_correlation(A, "largest_entry", **options)
            assert sol.status == "optimal", path.stem
            assert is_correlation(sol.X, options.get("min_eigenvalue", 0.0)), path.stem


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 500])
def test_large_orders(n, rng):
    A = indefinite(n, rng)
    sol = bo.nearest_correlation(A, "largest_entry")
    assert sol.status == "optimal"
    assert is_correlation(sol.X)
