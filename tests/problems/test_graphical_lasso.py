"""The graphical lasso against optimality conditions, closed forms, CVXPY and scikit-learn; bad input."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo
from bregopt.routes.graphical_lasso import solve as lasso_solve

pandas = pytest.importorskip("pandas")


def covariance(n, samples, seed=0):
    """Return a sample covariance with variances near one, singular for few samples."""
    rng = np.random.default_rng(seed)
    mixing = (
        np.eye(n) + 0.4 * np.diag(np.ones(n - 1), 1) + 0.3 * np.diag(np.ones(n - 2), 2)
        if n > 2
        else np.eye(n)
    )
    return np.cov(rng.normal(size=(samples, n)) @ mixing, rowvar=False, bias=True).reshape(n, n)


def check_optimal(S, penalty, sol, tol=1e-3):
    """Check the subgradient conditions: ``inv(X) - S`` is in the box, and at its end where X is not zero."""
    assert sol.status == "optimal"
    X = np.asarray(sol.X)
    assert np.linalg.eigvalsh(X)[0] > 0
    np.testing.assert_array_equal(X, X.T)
    U, scale = np.linalg.inv(X) - S, np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    assert (np.abs(U) <= penalty + tol * scale).all()
    free = X != 0
    np.testing.assert_allclose((U / scale)[free], penalty[free] * np.sign(X[free]) / scale[free], atol=tol)
    (dual,) = sol.duals
    assert (np.abs(dual) <= penalty).all()
    assert np.linalg.slogdet(S + dual)[1] + len(S) == pytest.approx(sol.dual_value, rel=1e-12, abs=1e-9)
    paid = np.where(free, np.where(free, penalty, 0) * np.abs(X), 0).sum()
    value = (S * X).sum() - np.linalg.slogdet(X)[1] + paid
    assert value == pytest.approx(sol.value, rel=1e-12, abs=1e-9)
    assert sol.dual_value <= value + 1e-12 * abs(value)


def off_diagonal(n, alpha):
    return alpha * (1 - np.eye(n))


@pytest.mark.parametrize("n", [1, 2, 3, 20, 60])
@pytest.mark.parametrize("diagonal", [False, True])
def test_optimality_conditions(n, diagonal):
    S = covariance(n, 2 * n + 2)
    sol = bo.graphical_lasso(S, 0.1, penalize_diagonal=diagonal, tol=1e-9)
    check_optimal(S, np.full((n, n), 0.1) if diagonal else off_diagonal(n, 0.1), sol)


def test_a_large_problem_in_single_precision_and_singular_data():
    S = covariance(170, 60)
    sol = bo.graphical_lasso(S, 0.2, tol=1e-9)
    check_optimal(S, off_diagonal(170, 0.2), sol)


def test_weights_zeros_and_patterns():
    S, rng = covariance(12, 30), np.random.default_rng(1)
    W = rng.uniform(0, 2, size=(12, 12))
    W = W + W.T
    W[0, 5] = W[5, 0] = np.inf
    W[2, 3] = W[3, 2] = 0
    sol = bo.graphical_lasso(S, 0.1, weights=W, tol=1e-9)
    penalty = 0.1 * W * (1 - np.eye(12)) if np.isfinite(W).all() else np.where(np.eye(12) > 0, 0, 0.1 * W)
    check_optimal(S, penalty, sol)
    assert sol.X[0, 5] == 0 != sol.X[2, 3]
    pairs = [[0, 1], [3, 2], [4, 7]]
    mask = np.zeros((12, 12), dtype=bool)
    for i, j in pairs:
        mask[i, j] = mask[j, i] = True
    one, two = (bo.graphical_lasso(S, 0.0, pattern=p, tol=1e-10) for p in (pairs, mask))
    np.testing.assert_array_equal(one.X, two.X)
    inverse = np.linalg.inv(one.X)  # covariance selection: the moments of the edges are those of S
    np.testing.assert_allclose(inverse[mask], S[mask], atol=1e-7)
    assert (one.X[~mask & ~np.eye(12, dtype=bool)] == 0).all()
    nothing = bo.graphical_lasso(S, 0.0, pattern=np.zeros((12, 12), dtype=bool))
    np.testing.assert_allclose(nothing.X, np.diag(1 / S.diagonal()))


def test_closed_forms():
    S = covariance(8, 40)
    np.testing.assert_allclose(bo.graphical_lasso(S, 0).X, np.linalg.inv(S), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(bo.graphical_lasso(S, 1e3).X, np.diag(1 / S.diagonal()))
    pair = bo.graphical_lasso([[2.0, -0.9], [-0.9, 1.0]], 0.4)
    np.testing.assert_allclose(np.linalg.inv(pair.X), [[2.0, -0.5], [-0.5, 1.0]], atol=1e-9)


def test_duplicates_of_a_variable():
    S = covariance(5, 40)
    twice = np.block([[S, S[:, :2]], [S[:2], S[:2, :2]]])
    sol = bo.graphical_lasso(twice, 0.05, tol=1e-9)
    check_optimal(twice, off_diagonal(7, 0.05), sol)
    unbounded = bo.graphical_lasso(twice, 0)
    assert unbounded.status == "unbounded"
    assert unbounded.X is None
    assert unbounded.value == -np.inf
    assert "raise alpha" in unbounded.stop_reason
    R = unbounded.ray.X
    assert abs((twice * R).sum()) <= 1e-12 * np.trace(R)


@pytest.mark.parametrize("S", [np.diag([1.0, -1.0]), np.diag([1.0, 0.0]), [[1.0, 2.0], [2.0, 1.0]], [[0.0]]])
def test_an_indefinite_matrix_is_unbounded_or_saved_by_the_penalty(S):
    S = np.array(S)
    assert bo.graphical_lasso(S, 0).status == "unbounded"
    saved = bo.graphical_lasso(S, 1.5, penalize_diagonal=True, tol=1e-9)
    check_optimal(S + 0.0, np.full(S.shape, 1.5), saved) if (S.diagonal() > 0).all() else None
    assert saved.status == "optimal"


def test_an_indefinite_matrix_with_too_small_a_penalty_is_unbounded():
    S = covariance(10, 40)
    S[0, 1] = S[1, 0] = 3.0
    sol = bo.graphical_lasso(S, 0.3)
    assert sol.status == "unbounded"
    R = sol.ray.X
    assert np.linalg.eigvalsh(R)[0] >= -1e-9
    assert (S * R).sum() + 0.3 * (np.abs(R).sum() - np.trace(R)) <= 0


def test_components_are_separate_problems():
    A, B = covariance(6, 20, seed=1), covariance(4, 20, seed=2)
    S = np.zeros((11, 11))
    S[:6, :6], S[6:10, 6:10], S[10, 10] = A, B, 2.0
    order = np.random.default_rng(0).permutation(11)
    sol = bo.graphical_lasso(S[np.ix_(order, order)], 0.05, tol=1e-10)
    back = np.argsort(order)
    X = sol.X[np.ix_(back, back)]
    np.testing.assert_allclose(X[:6, :6], bo.graphical_lasso(A, 0.05, tol=1e-10).X, atol=1e-4)
    assert X[10, 10] == pytest.approx(0.5)
    assert [len(part) for part in sol.components] == [6, 4, 1]
    assert sorted(k for part in sol.components for k in part) == list(range(11))


@examples(7)
@given(st.integers(0, 10**6), st.floats(-6, 6), st.floats(0.01, 0.5))
def test_invariance_to_scale_and_order(seed, exponent, alpha):
    S, rng, t = covariance(9, 15, seed), np.random.default_rng(seed), 10.0**exponent
    one = bo.graphical_lasso(S, alpha, tol=1e-8)
    scaled = bo.graphical_lasso(t * S, t * alpha, tol=1e-8)
    np.testing.assert_allclose(t * scaled.X, one.X, atol=5e-3)
    order = rng.permutation(9)
    moved = bo.graphical_lasso(S[np.ix_(order, order)], alpha, tol=1e-8)
    assert moved.value == pytest.approx(one.value, abs=1e-6 * 9)
    np.testing.assert_allclose(moved.X, one.X[np.ix_(order, order)], atol=5e-3)


def test_units_of_variables_enter_by_weights():
    S, d = covariance(9, 30), 10.0 ** np.arange(-4, 5)
    units = np.outer(d, d)
    one = bo.graphical_lasso(S, 0.1, tol=1e-9)
    other = bo.graphical_lasso(S * units, 0.1, weights=units, tol=1e-9)
    np.testing.assert_allclose(other.X * units, one.X, atol=1e-3)


@pytest.mark.parametrize("diagonal", [False, True])
def test_agreement_with_cvxpy(diagonal):
    cp = pytest.importorskip("cvxpy")
    S = covariance(7, 12)
    X = cp.Variable((7, 7), PSD=True)
    weight = np.full((7, 7), 0.15) if diagonal else off_diagonal(7, 0.15)
    reference = cp.Problem(
        cp.Minimize(cp.trace(S @ X) - cp.log_det(X) + cp.sum(cp.multiply(weight, cp.abs(X))))
    )
    reference.solve(solver="CLARABEL")
    sol = bo.graphical_lasso(S, 0.15, penalize_diagonal=diagonal, tol=1e-9)
    assert sol.value == pytest.approx(reference.value, abs=1e-5)
    np.testing.assert_allclose(sol.X, X.value, atol=1e-3)


def test_agreement_with_scikit_learn():
    covariances = pytest.importorskip("sklearn.covariance")
    S = covariance(15, 40)
    W, X = covariances.graphical_lasso(S, 0.1, tol=1e-9, enet_tol=1e-9, max_iter=500)
    sol = bo.graphical_lasso(S, 0.1, tol=1e-10)
    np.testing.assert_allclose(sol.X, X, atol=1e-4)
    np.testing.assert_allclose(sol.covariance, W, atol=1e-4)


def test_labels_graph_and_pickle():
    networkx = pytest.importorskip("networkx")
    names = list("abcdef")
    S = pandas.DataFrame(covariance(6, 30), names, names)
    sol = bo.graphical_lasso(S, 0.1, pattern=[["a", "b"], ["b", "c"], ["e", "f"]])
    assert list(sol.X.columns) == list(sol.covariance.index) == names
    assert {label for part in sol.components for label in part} == set(names)
    graph = sol.to_networkx()
    assert isinstance(graph, networkx.Graph)
    assert graph.number_of_edges() == sol.n_edges <= 3
    for i, j, edge in graph.edges(data=True):
        assert edge["precision"] == sol.X.loc[i, j]
        assert edge["weight"] == pytest.approx(-sol.X.loc[i, j] / np.sqrt(sol.X.loc[i, i] * sol.X.loc[j, j]))
    again = pickle.loads(pickle.dumps(sol))
    np.testing.assert_array_equal(again.X, sol.X)
    assert again.n_edges == sol.n_edges
    plain = bo.graphical_lasso(S.to_numpy(), 0.1)
    assert set(plain.to_networkx().nodes) == set(range(6))
    assert not plain.X.flags.writeable


def test_a_path_is_its_single_answers():
    S = covariance(20, 40)
    path = bo.graphical_lasso_path(S, [0.05, 0.4, 0.1], tol=1e-9)
    assert list(path.alphas) == [0.05, 0.4, 0.1] == [sol.alpha for sol in path]
    for alpha, sol in zip(path.alphas, path, strict=True):
        check_optimal(S, off_diagonal(20, alpha), sol)
        np.testing.assert_allclose(sol.X, bo.graphical_lasso(S, alpha, tol=1e-9).X, atol=1e-3)
    N, n = 40, 20
    expected = [
        N * ((S * sol.X).sum() - np.linalg.slogdet(sol.X)[1]) + sol.n_edges * (np.log(N) + 2 * np.log(n))
        for sol in path
    ]
    np.testing.assert_allclose(path.ebic(N), expected)
    frame = path.to_frame()
    assert list(frame["edges"]) == [sol.n_edges for sol in path]
    assert len(path[:2]) == 2
    auto = bo.graphical_lasso_path(S, 4)
    assert auto[0].n_edges == 0 < auto[1].n_edges
    assert "4 answers, 4 optimal" in repr(auto)


def test_plot_of_a_path():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = bo.graphical_lasso_path(covariance(5, 20), 6).plot()
    assert axes.get_xlabel() == "alpha"
    matplotlib.pyplot.close("all")


def test_warm_starts_limits_and_callbacks(monkeypatch):
    S = covariance(60, 70)
    sol = bo.graphical_lasso(S, 0.05, tol=1e-9)
    warm = bo.graphical_lasso(S, 0.05, tol=1e-9, warm_start=sol)
    assert warm.status == "optimal"
    assert warm.iterations <= sol.iterations
    np.testing.assert_allclose(
        bo.graphical_lasso(S, 0.1, warm_start=sol.X).value, bo.graphical_lasso(S, 0.1).value, rtol=1e-5
    )
    steps = []
    monkeypatch.setattr(lasso_solve, "_STEP_FACTOR", 10.0)  # more steps
    with pytest.warns(bo.ConvergenceWarning):
        ended = bo.graphical_lasso(
            S,
            0.05,
            tol=1e-12,
            callback=lambda step: steps.append(step) or len(steps) == 2,
        )
    assert ended.status == "user_limit"
    assert ended.iterations == len(steps) == 2
    noise = 1e-13 * abs(sol.value)
    assert ended.dual_value - noise <= sol.value <= ended.value + noise + sol.error
    with pytest.warns(bo.ConvergenceWarning):
        short = bo.graphical_lasso(S, 0.05, tol=1e-12, max_iter=1)
    assert short.status == "user_limit"
    with pytest.warns(bo.ConvergenceWarning):
        late = bo.graphical_lasso(S, 0.01, tol=1e-14, time_limit=1e-4)
    assert late.dual_value <= late.value
    with pytest.raises(ZeroDivisionError):
        bo.graphical_lasso(S, 0.05, callback=lambda step: 1 / 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"S": [[1.0, 0.5], [0.2, 1.0]]}, ValueError, "S is not symmetric"),
        ({"S": [[1.0, np.nan], [np.nan, 1.0]]}, ValueError, "S has 2 NaN"),
        ({"S": np.ones((2, 3))}, ValueError, r"S has shape \(2, 3\)"),
        ({"S": np.eye(2) * 1j}, TypeError, "complex"),
        ({"alpha": -0.1}, ValueError, r"alpha is -0\.1; expected a number from 0"),
        ({"alpha": np.nan}, ValueError, "alpha"),
        ({"alpha": [0.1, 0.2]}, TypeError, "graphical_lasso_path"),
        ({"weights": -np.ones((2, 2))}, ValueError, "weights has the value -1"),
        ({"weights": np.ones((3, 3))}, ValueError, r"weights has shape \(3, 3\)"),
        ({"weights": [[1.0, np.inf], [1.0, 1.0]]}, ValueError, "weights is not symmetric"),
        (
            {"weights": np.full((2, 2), np.inf), "penalize_diagonal": True},
            ValueError,
            "infinite on the diagonal",
        ),
        ({"weights": [["a", "b"], ["b", "a"]]}, TypeError, "weights has dtype"),
        ({"pattern": [[0, 2]]}, ValueError, "pattern has index 2"),
        ({"pattern": [[0.5, 1.0]]}, TypeError, "pattern has dtype"),
        ({"penalize_diagonal": "yes"}, TypeError, "penalize_diagonal is 'yes'"),
        ({"warm_start": np.eye(3)}, ValueError, r"warm_start has shape \(3, 3\)"),
        ({"tolerance": 1e-3}, TypeError, "no option 'tolerance'"),
        ({"tol": 0}, ValueError, "tol is 0"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        bo.graphical_lasso(**{"S": np.eye(2), "alpha": 0.1, **arguments})


def test_bad_labels_and_paths_are_refused():
    S = pandas.DataFrame(np.eye(2), list("ab"), list("ab"))
    with pytest.raises(ValueError, match="index and columns differ"):
        bo.graphical_lasso(pandas.DataFrame(np.eye(2), list("ab"), list("ba")), 0.1)
    with pytest.raises(ValueError, match="other labels"):
        bo.graphical_lasso(S, 0.1, weights=pandas.DataFrame(np.eye(2), list("cd"), list("cd")))
    with pytest.raises(ValueError, match="'c', which is no label of S"):
        bo.graphical_lasso(S, 0.1, pattern=[["a", "c"]])
    with pytest.raises(ValueError, match="alphas is empty"):
        bo.graphical_lasso_path(S, [])
    with pytest.raises(ValueError, match="alphas has the value -1"):
        bo.graphical_lasso_path(S, [1, -1])
    with pytest.raises(ValueError, match="alphas has no range"):
        bo.graphical_lasso_path(S, 3)
    with pytest.raises(TypeError, match="n_samples"):
        bo.graphical_lasso_path(S, [0.1]).ebic(2.5)


def test_input_is_not_changed_and_nothing_warns():
    S = covariance(30, 20)
    kept, W = S.copy(), np.ones((30, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for alpha in (1e-3, 0.1, 10.0):
            assert bo.graphical_lasso(S, alpha, weights=W, tol=1e-7).status == "optimal"
    np.testing.assert_array_equal(S, kept)
    assert (W == 1).all()


class TestJointGraphs:
    """Two populations with one penalty, declared in the language; optimality conditions."""

    @pytest.fixture
    def populations(self):
        rng, n = np.random.default_rng(0), 6
        K = 2 * np.eye(n) + 0.6 * (np.eye(n, k=1) + np.eye(n, k=-1))
        other = K.copy()
        other[0, 1] = other[1, 0] = 0.0
        return [np.cov(rng.multivariate_normal(np.zeros(n), np.linalg.inv(P), 60).T) for P in (K, other)]

    @staticmethod
    def declared(populations):
        S1, S2 = populations
        X, Y = bo.PSD(len(S1), name="X"), bo.PSD(len(S2), name="Y")
        return X, Y, bo.inner(S1, X) - bo.log_det(X) + bo.inner(S2, Y) - bo.log_det(Y)

    def test_group_penalty(self, populations):
        weight = 0.2
        X, Y, likelihood = self.declared(populations)
        i, j = np.triu_indices(X.n, 1)
        groups = [bo.norm2(bo.hstack([X[a, b], Y[a, b]])) for a, b in zip(i, j, strict=True)]
        sol = bo.Problem(bo.Minimize(likelihood + weight * sum(groups))).solve(tol=1e-9)
        assert sol.status == "optimal"
        slope = [2 * (S - np.linalg.inv(A))[i, j] for S, A in zip(populations, sol.X, strict=True)]
        pair = np.array([A[i, j] for A in sol.X])
        size = np.linalg.norm(pair, axis=0)
        assert np.linalg.norm(slope, axis=0).max() <= weight * (1 + 1e-3)
        assert 0 < (size < 1e-4).sum() < len(size)
        used = size > 1e-3
        np.testing.assert_allclose(
            np.array(slope)[:, used], -weight * (pair / size)[:, used], atol=1e-3 * weight
        )

    def test_fused_penalty(self, populations):
        X, Y, likelihood = self.declared(populations)
        apart = 0.5
        penalty = 0.1 * (bo.norm1(X) + bo.norm1(Y)) + apart * bo.norm1(X - Y)
        sol = bo.Problem(bo.Minimize(likelihood + penalty)).solve(tol=1e-8)
        assert sol.status == "optimal"
        # A penalty on the difference this large makes both equal: the lasso of the mean covariance.
        mean = bo.graphical_lasso(sum(populations) / 2, 0.1, penalize_diagonal=True, tol=1e-9)
        for A in sol.X:
            np.testing.assert_allclose(A, mean.X, atol=1e-3)


def test_sparse_weights():
    S, weights = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])
    found = bo.graphical_lasso(S, 0.1, weights=sp.csr_array(weights))
    np.testing.assert_array_equal(found.X, bo.graphical_lasso(S, 0.1, weights=weights).X)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda S: bo.graphical_lasso(S, [0.1, [0.2, 0.3]]), "alpha is ragged"),
        (lambda S: bo.graphical_lasso_path(S, [0.1, [0.2, 0.3]]), "alphas is ragged"),
        (lambda S: bo.graphical_lasso_path(S, 10**18), "alphas=1000000000000000000"),
        (lambda S: bo.graphical_lasso_path(S, 10**400), "alphas is above"),
        (lambda S: bo.graphical_lasso(S, 0.1, weights=[[1], [1, 2]]), "weights is ragged"),
        (lambda S: bo.covariance_selection(S, sp.coo_array((10**7, 10**7))), "edges, sparse, of shape"),
    ],
)
def test_bad_numbers_are_named(call, match):
    with pytest.raises((ValueError, TypeError), match=match):
        call(np.array([[1.0, 0.6], [0.6, 1.0]]))
