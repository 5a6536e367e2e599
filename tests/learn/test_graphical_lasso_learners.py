"""The estimators of sparse inverse covariances against scikit-learn's."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import covariance
from sklearn.utils.estimator_checks import parametrize_with_checks

import bregopt as bo
from bregopt.learn import GraphicalLasso, GraphicalLassoCV

pandas = pytest.importorskip("pandas")


def samples(n=60, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ (np.eye(d) + 0.6 * np.diag(np.ones(d - 1), 1)) + 3.0


@pytest.mark.filterwarnings("ignore:the best alpha")
@parametrize_with_checks([GraphicalLasso(alpha=0.3), GraphicalLassoCV(alphas=3, cv=2)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_the_estimator_is_scikit_learns():
    points = samples()
    ours, theirs = (
        GraphicalLasso(0.2, tol=1e-9).fit(points),
        covariance.GraphicalLasso(0.2, tol=1e-6, enet_tol=1e-9).fit(points),
    )
    np.testing.assert_allclose(ours.precision_, theirs.precision_, atol=1e-4)
    np.testing.assert_allclose(ours.covariance_, theirs.covariance_, atol=1e-4)
    np.testing.assert_allclose(ours.location_, theirs.location_)
    other = samples(seed=1)
    assert ours.score(other) == pytest.approx(theirs.score(other), abs=1e-3)
    np.testing.assert_allclose(ours.mahalanobis(other), theirs.mahalanobis(other), atol=1e-2)
    assert ours.error_norm(np.eye(6)) == pytest.approx(theirs.error_norm(np.eye(6)), abs=1e-3)
    assert ours.converged_
    assert ours.gap_ <= 1e-9


def test_labels_and_precomputed():
    networkx = pytest.importorskip("networkx")
    frame = pandas.DataFrame(samples(), columns=list("abcdef"))
    learner = GraphicalLasso(0.2, pattern=[["a", "b"], ["c", "d"]]).fit(frame)
    assert list(learner.precision_.columns) == list("abcdef")
    assert list(learner.feature_names_in_) == list("abcdef")
    graph = learner.to_networkx()
    assert isinstance(graph, networkx.Graph)
    assert set(graph.edges) <= {("a", "b"), ("c", "d")}
    assert learner.error_norm(np.eye(6)) > 0
    assert np.isfinite(learner.score(frame))
    S = np.cov(frame.to_numpy(), rowvar=False, bias=True)
    given = GraphicalLasso(0.2, covariance="precomputed").fit(S)
    np.testing.assert_allclose(
        given.precision_, GraphicalLasso(0.2).fit(frame.to_numpy()).precision_, atol=1e-9
    )
    with pytest.raises(ValueError, match="covariance is 'corr'"):
        GraphicalLasso(covariance="corr").fit(S)
    with pytest.raises(ValueError, match="unbounded"):
        GraphicalLasso(alpha=0.0).fit(np.repeat(samples(), 2, axis=1))


def test_cross_validation_selects_as_scikit_learns():
    points, alphas = samples(80, 8), np.geomspace(1, 0.01, 9)
    ours = GraphicalLassoCV(alphas, cv=4, tol=1e-8).fit(points)
    theirs = covariance.GraphicalLassoCV(alphas=list(alphas), cv=4, max_iter=500, tol=1e-3).fit(points)
    assert ours.alpha_ == pytest.approx(theirs.alpha_)
    order = np.argsort(-theirs.cv_results_["alphas"])
    kept = np.isin(np.round(theirs.cv_results_["alphas"][order], 9), np.round(alphas, 9))
    expected = theirs.cv_results_["mean_test_score"][order][kept]
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], expected, atol=1e-2)
    np.testing.assert_allclose(ours.precision_, theirs.precision_, atol=2e-2)
    split = np.array([ours.cv_results_[f"split{k}_test_score"] for k in range(4)])
    np.testing.assert_allclose(split.mean(axis=0), ours.cv_results_["mean_test_score"])
    with ThreadPoolExecutor(2) as pool:
        parallel = GraphicalLassoCV(alphas, cv=4, tol=1e-8).fit(points, executor=pool)
    np.testing.assert_array_equal(parallel.precision_, ours.precision_)


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("criterion", ["bic", "ebic"])
def test_criteria_select_from_the_path(criterion):
    points = samples(200, 6)
    learner = GraphicalLassoCV(12, criterion=criterion).fit(points)
    S = np.cov(points, rowvar=False, bias=True)
    path = bo.graphical_lasso_path(S, 12)
    criteria = path.ebic(200, 0.0 if criterion == "bic" else 0.5)
    assert learner.alpha_ == pytest.approx(path.alphas[criteria.argmin()])
    np.testing.assert_allclose(learner.cv_results_["mean_test_score"], -criteria, rtol=1e-6)
    assert list(learner.alphas_) == sorted(learner.alphas_, reverse=True)


@pytest.mark.filterwarnings("ignore:the best alpha")
@pytest.mark.parametrize("asked", [{}, {"weights": 2 - np.eye(6)}, {"pattern": [(0, 1), (2, 5)]}])
def test_a_number_of_weights_asks_for_the_range_of_the_path(asked):
    points = samples()
    path = bo.graphical_lasso_path(np.cov(points, rowvar=False, bias=True), 5, **asked)
    learner = GraphicalLassoCV(5, cv=2, **asked).fit(points)
    np.testing.assert_allclose(learner.alphas_, path.alphas, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_plots_and_bad_parameters():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    points = samples()
    learner = GraphicalLassoCV(4, cv=2).fit(points)
    assert learner.plot().get_ylabel() == "log-likelihood"
    assert learner.plot_path(points).get_ylabel() == "partial correlation"
    assert GraphicalLassoCV(4, criterion="bic").fit(points).plot().get_ylabel() == "minus BIC"
    matplotlib.pyplot.close("all")
    for parameters, message in (
        ({"criterion": "aic"}, "criterion is 'aic'"),
        ({"criterion": np.eye(2)}, "criterion is array"),
        ({"alphas": 0}, "alphas is 0"),
        ({"alphas": [0.1, [0.2, 0.3]]}, "alphas is ragged"),
        ({"alphas": [-1.0]}, "alphas has the value -1"),
        ({"criterion": "ebic", "ebic_gamma": 2}, "gamma is 2"),
        ({"weights": 2.0}, "weights has 0 dimensions"),
        ({"weights": np.ones((2, 2))}, "weights has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphicalLassoCV(**parameters).fit(points)
    with pytest.raises(ValueError, match="X has variances of at most 0; expected 1e-70"):
        GraphicalLassoCV().fit(np.ones((8, 3)))
    for parameters, message in (
        ({"assume_centered": np.eye(2)}, "assume_centered is array"),
        ({"standardize": np.eye(2)}, "standardize is array"),
        ({"alphas": 0.2}, "alphas is 0.2; expected an integer, the number of weights, or a list"),
        ({"alphas": 0.2, "criterion": "bic"}, "alphas is 0.2; expected an integer, the number of weights"),
    ):
        with pytest.raises(TypeError, match=message):
            GraphicalLassoCV(**parameters).fit(points)
    with pytest.raises(TypeError, match="executor is 2; expected a concurrent"):
        GraphicalLassoCV(4).fit(points, executor=2)


@pytest.mark.parametrize("criterion", ["cv", "bic"])
def test_the_ends_of_the_grid_warn(criterion):
    points = np.random.default_rng(0).normal(size=(30, 6))
    points[:, 1::2] += points[:, ::2]
    best = GraphicalLassoCV(np.geomspace(1, 1e-4, 9), criterion=criterion).fit(points).alpha_
    with pytest.warns(bo.DataWarning, match=r"is the smallest of the grid.* pass alphas that reach"):
        GraphicalLassoCV([1.0, 1.1 * best], criterion=criterion).fit(points)
    with pytest.warns(bo.DataWarning, match=r"is the largest of the grid.* pass alphas that reach"):
        GraphicalLassoCV([best / 10, best / 100], criterion=criterion).fit(points)
    GraphicalLassoCV([best], criterion=criterion).fit(points)  # one weight is no choice
    # Larger weights than that of a diagonal answer give the same answer.
    independent = np.random.default_rng(0).normal(size=(60, 4))
    assert GraphicalLassoCV([0.5, 0.1, 0.02], criterion=criterion).fit(independent).alpha_ == 0.5


@pytest.mark.parametrize("criterion", ["cv", "bic"])
def test_raw_units_warn_once_at_the_line_of_the_call(criterion):
    raw = samples() * [1, 1, 1, 1, 1, 1e3]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GraphicalLassoCV([10.0, 1.0, 0.1], criterion=criterion).fit(raw)
    own = [w for w in caught if "standard deviations" in str(w.message)]
    assert len(own) == 1
    assert own[0].category is bo.DataWarning
    assert own[0].filename == __file__
    assert "Pass standardize=True, or correlations" in str(own[0].message)


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_folds_of_the_user():
    X = np.random.default_rng(0).normal(size=(12, 3))
    rows = np.arange(12)
    pairs = [(rows[::2], rows[1::2]), (rows[1::2], rows[::2])]
    masks = [(rows % 2 == 0, rows % 2 == 1), (rows % 2 == 1, rows % 2 == 0)]
    one, two = (GraphicalLassoCV([0.5, 0.1], cv=folds).fit(X) for folds in (pairs, masks))
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    for folds in ([[0.5, 1.5], [2, 3]], [(rows, [99])], [(rows, [])]):
        with pytest.raises((TypeError, ValueError), match="fold"):
            GraphicalLassoCV([0.5, 0.1], cv=folds).fit(X)
