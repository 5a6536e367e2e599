"""Scores, refined grids, standardized variables and stability selection, against peers and formulas."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import bregopt as bo

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from scipy.stats import multivariate_normal  # noqa: E402
from sklearn.covariance import EmpiricalCovariance, LedoitWolf  # noqa: E402
from sklearn.datasets import load_wine  # noqa: E402
from sklearn.model_selection import GridSearchCV, KFold  # noqa: E402

from bregopt.learn import (  # noqa: E402
    GraphicalLasso,
    GraphicalLassoCV,
    NearestCorrelation,
    StabilitySelection,
)

WINE = load_wine(as_frame=True).data
FOLDS = KFold(4, shuffle=True, random_state=0)


def gaps(share=0.3):
    return WINE.mask(np.random.default_rng(0).random(WINE.shape) < share)


class TestScore:
    @pytest.mark.parametrize("estimator", ["pairwise", LedoitWolf()])
    def test_of_complete_samples_it_is_that_of_scikit_learn(self, estimator):
        points = WINE.iloc[::2]
        learner = NearestCorrelation(estimator).fit(points)
        peer = (EmpiricalCovariance() if estimator == "pairwise" else LedoitWolf()).fit(points)
        assert learner.score(WINE) == pytest.approx(peer.score(WINE), rel=1e-9)

    def test_of_samples_with_gaps_it_is_that_of_what_they_have(self):
        learner = NearestCorrelation(min_eigenvalue=0.1).fit(gaps())
        C, mean = learner.covariance_.to_numpy(), learner.location_
        expected = []
        for sample in gaps().to_numpy()[:20]:
            seen = np.isfinite(sample)
            law = multivariate_normal(mean[seen], C[np.ix_(seen, seen)])
            expected.append(law.logpdf(sample[seen]))
        assert learner.score(gaps().iloc[:20]) == pytest.approx(np.mean(expected), rel=1e-9)

    def test_a_grid_search_chooses_the_floor(self):
        grid = {"min_eigenvalue": [0.0, 0.01, 0.2]}
        search = GridSearchCV(NearestCorrelation(weights="counts"), grid, cv=FOLDS, error_score="raise")
        search.fit(gaps(0.5))
        assert search.best_params_["min_eigenvalue"] == 0.2
        means = search.cv_results_["mean_test_score"]
        assert means[2] > means[1] > means[0]

    def test_of_a_matrix_it_is_expected(self):
        C = WINE.corr().to_numpy()
        peer = EmpiricalCovariance(assume_centered=True)
        peer.covariance_, peer.precision_, peer.location_ = C, np.linalg.inv(C), np.zeros(13)
        root = np.linalg.cholesky(C) * np.sqrt(13)
        learner = NearestCorrelation("precomputed").fit(C)
        assert learner.score(C) == pytest.approx(peer.score(root.T), rel=1e-9)


class TestGrid:
    def test_a_grid_goes_on_beyond_its_end(self):
        """The best weight is far below a hundredth of the largest one where most pairs are dependent."""
        rng = np.random.default_rng(0)
        points = rng.normal(size=(4000, 5)) @ rng.normal(size=(5, 5))
        learner = GraphicalLassoCV(4, cv=3, standardize=True).fit(points)
        assert len(learner.alphas_) > 4
        np.testing.assert_allclose(
            np.diff(np.log(learner.alphas_)), np.log(learner.alphas_[1] / learner.alphas_[0])
        )
        assert 0 < learner.alphas_.tolist().index(learner.alpha_) < len(learner.alphas_) - 1
        again = GraphicalLassoCV(learner.alphas_, cv=3, standardize=True).fit(points)
        for name, scores in learner.cv_results_.items():
            np.testing.assert_allclose(scores, again.cv_results_[name], rtol=1e-4, atol=1e-5, err_msg=name)

    def test_weights_of_the_user_are_left_alone(self):
        rng = np.random.default_rng(0)
        points = rng.normal(size=(4000, 5)) @ rng.normal(size=(5, 5))
        with pytest.warns(bo.DataWarning, match="is the smallest of the grid"):
            learner = GraphicalLassoCV([0.5, 0.1], cv=3, standardize=True).fit(points)
        assert learner.alphas_.tolist() == [0.5, 0.1]

    @pytest.mark.filterwarnings("ignore:the best alpha:bregopt.DataWarning")
    def test_random_folds_are_drawn_once(self):
        rng = np.random.default_rng(0)
        points = rng.normal(size=(4000, 5)) @ rng.normal(size=(5, 5))
        random = KFold(3, shuffle=True, random_state=np.random.RandomState(0))
        learner = GraphicalLassoCV(4, cv=random, standardize=True).fit(points)
        random = KFold(3, shuffle=True, random_state=np.random.RandomState(0))
        again = GraphicalLassoCV(learner.alphas_, cv=random, standardize=True).fit(points)
        np.testing.assert_allclose(
            learner.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"], rtol=1e-4
        )


class TestStandardized:
    def test_the_answer_is_in_the_units_of_the_data(self):
        S, deviation = WINE.cov(), WINE.std().to_numpy()
        sol = bo.graphical_lasso(S, 0.2, standardize=True, tol=1e-9)
        X, unit = sol.X.to_numpy(), np.outer(deviation, deviation)
        off = ~np.eye(13, dtype=bool)
        objective = np.vdot(S, X) - np.linalg.slogdet(X)[1] + 0.2 * np.abs(unit * X)[off].sum()
        assert sol.value == pytest.approx(objective, rel=1e-12)
        U = sol.duals[0]
        assert (np.abs(U) <= 0.2 * unit * (1 + 1e-12)).all()
        assert sol.dual_value == pytest.approx(np.linalg.slogdet(S + U)[1] + 13, rel=1e-12)
        assert sol.dual_value <= sol.value + 1e-12
        np.testing.assert_allclose(sol.covariance @ sol.X, np.eye(13), atol=1e-8)
        weights = 0.2 * unit
        np.fill_diagonal(weights, 0)
        peer = bo.graphical_lasso(S, 1.0, weights, tol=1e-9)
        np.testing.assert_allclose(X * unit, peer.X * unit, atol=1e-4)

    def test_units_change_nothing_but_the_units(self):
        scale = 10.0 ** np.arange(-6, 7)
        one = GraphicalLasso(0.1, standardize=True).fit(WINE)
        two = GraphicalLasso(0.1, standardize=True).fit(WINE * scale)
        np.testing.assert_allclose(
            two.precision_ * np.outer(scale, scale), one.precision_, rtol=1e-6, atol=1e-12
        )

    def test_a_constant_variable_is_named(self):
        S = WINE.cov()
        S["ash"] = 0.0
        S.loc["ash"] = 0.0
        with pytest.raises(ValueError, match="S has the variance 0 at ash; expected variances above 0"):
            bo.graphical_lasso(S, 0.1, standardize=True)

    def test_paths_and_starts_are_in_the_units_of_the_data(self):
        path = bo.graphical_lasso_path(WINE.cov(), 6, standardize=True, tol=1e-8)
        plain = bo.graphical_lasso_path(WINE.corr(), 6, tol=1e-8)
        np.testing.assert_allclose(path.alphas, plain.alphas)
        assert [s.n_edges for s in path] == [s.n_edges for s in plain]
        again = bo.graphical_lasso(
            WINE.cov(), path.alphas[-1], standardize=True, warm_start=path[-1], tol=1e-8
        )
        assert again.iterations <= 1


class TestPath:
    path = bo.graphical_lasso_path(WINE.corr(), 12)

    @pytest.mark.parametrize(("criterion", "gamma"), [("ebic", 0.5), ("bic", 0.0)])
    def test_the_best_answer_has_the_least_criterion(self, criterion, gamma):
        values = []
        for sol in self.path:
            X = sol.X.to_numpy()
            loss = np.vdot(WINE.corr(), X) - np.linalg.slogdet(X)[1]
            edges = np.count_nonzero(np.triu(X, 1))
            values.append(178 * loss + edges * (np.log(178) + 4 * gamma * np.log(13)))
        best = self.path.best(criterion, n_samples=178)
        assert best.alpha == self.path.alphas[np.argmin(values)]
        with pytest.raises(ValueError, match="criterion is 'aic'"):
            self.path.best("aic", n_samples=178)
        with pytest.raises(TypeError, match="ebic needs the number of the samples"):
            self.path.best()

    def test_plots_mark_the_choice_and_draw_the_graph(self):
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        from matplotlib import pyplot

        best = self.path.best(n_samples=178)
        ax = self.path.plot(n_samples=178)
        assert ax.lines[-1].get_xdata()[0] == best.alpha
        np.testing.assert_allclose(
            np.sort(ax.figure.axes[1].lines[0].get_ydata()), np.sort(self.path.ebic(178))
        )
        graph = best.plot()
        assert len(graph.collections[0].get_segments()) == best.n_edges
        assert {text.get_text() for text in graph.texts} == set(WINE.columns)
        pyplot.close("all")


def test_covariance_selection_has_its_covariance_and_graph():
    pairs = [("alcohol", "ash"), ("ash", "hue")]
    sol = bo.covariance_selection(WINE.corr(), pairs)
    np.testing.assert_allclose(sol.covariance, np.linalg.inv(sol.X), atol=1e-10)
    for a, b in pairs:
        assert sol.covariance.loc[a, b] == pytest.approx(WINE.corr().loc[a, b], abs=1e-6)
    assert sol.n_edges == 2
    networkx = pytest.importorskip("networkx")
    assert {frozenset(edge) for edge in sol.to_networkx().edges} == {frozenset(pair) for pair in pairs}
    assert isinstance(sol.to_networkx(), networkx.Graph)


class TestStability:
    def chain(self, n=600):
        rng = np.random.default_rng(3)
        points = rng.normal(size=(n, 8))
        for k in range(1, 8):
            points[:, k] = 0.6 * points[:, k - 1] + 0.8 * points[:, k]
        return points

    def test_the_true_edges_are_found_and_counted(self):
        found = StabilitySelection(0.25, n_pairs=10).fit(self.chain())
        assert sorted(found.edges_) == [(k, k + 1) for k in range(7)]
        assert found.counts_.max() <= 20
        assert (found.counts_ == found.counts_.T).all()
        kept = found.counts_ >= 18
        np.testing.assert_array_equal(np.argwhere(np.triu(kept)), sorted(found.edges_))
        assert found.expected_false_ == pytest.approx((np.triu(found.counts_).sum() / 20) ** 2 / (0.8 * 28))
        np.testing.assert_array_equal(found.precision_ != 0, kept | np.eye(8, dtype=bool))
        covariance = np.cov(self.chain().T, bias=True)
        np.testing.assert_allclose(found.covariance_[kept], covariance[kept], rtol=1e-4)

    def test_counts_are_those_of_the_halves(self):
        points = self.chain(80)
        found = StabilitySelection(0.3, n_pairs=2, random_state=5, standardize=False).fit(points)
        from bregopt.learn.pairs import generator

        rng, counts = generator(5), np.zeros((8, 8), dtype=int)
        for _ in range(2):
            order = rng.permutation(80)
            for half in (order[:40], order[40:]):
                counts += bo.graphical_lasso(np.cov(points[half].T, bias=True), 0.3).X != 0
        np.fill_diagonal(counts, 0)
        np.testing.assert_array_equal(found.counts_, counts)

    def test_executors_names_and_the_default_weight(self):
        with ThreadPoolExecutor(2) as pool:
            found = StabilitySelection(n_pairs=4).fit(WINE, executor=pool)
        serial = StabilitySelection(n_pairs=4).fit(WINE)
        pd.testing.assert_frame_equal(found.counts_, serial.counts_)
        assert found.edges_ == serial.edges_
        path = bo.graphical_lasso_path(WINE.cov(ddof=0), standardize=True, tol=1e-4)
        assert found.alpha_ == pytest.approx(path.best(n_samples=178).alpha)
        assert all(a in WINE and b in WINE for a, b in found.edges_)

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"threshold": 0.5}, ValueError, "threshold is 0.5"),
            ({"threshold": 1.1}, ValueError, "threshold is 1.1"),
            ({"n_pairs": 0}, ValueError, "n_pairs"),
            ({"alpha": -1.0}, ValueError, "alpha is -1"),
            ({"alpha": "x"}, TypeError, "alpha"),
        ],
    )
    def test_bad_arguments_are_named(self, arguments, error, text):
        with pytest.raises(error, match=text):
            StabilitySelection(**arguments).fit(WINE)
