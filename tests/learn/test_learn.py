"""The metric learners against CVXPY, a loop of projections and closed forms; their interface."""

import pickle
import subprocess
import sys
import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bregopt.learn import (
    KernelLearner,
    LogDetMetricLearner,
    NearestCorrelation,
    PairDefiniteBoost,
    SoftMarginMetricLearner,
    VonNeumannMetricLearner,
    pairs_from_labels,
    percentile_bounds,
)
from bregopt.learn.base import map_of

ESTIMATORS = [
    LogDetMetricLearner(),
    VonNeumannMetricLearner(),
    SoftMarginMetricLearner(),
    KernelLearner(),
    NearestCorrelation(),
]
VARIANTS = [LogDetMetricLearner(prior="covariance"), KernelLearner(kernel="rbf", divergence="von_neumann")]
METRICS = [LogDetMetricLearner, VonNeumannMetricLearner, SoftMarginMetricLearner]
POINTS, LABEL = load_iris(return_X_y=True)


@pytest.mark.filterwarnings("ignore:bregman. optimal_inaccurate:bregopt.ConvergenceWarning")  # condition 1e15
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:bregman. optimal_inaccurate:bregopt.ConvergenceWarning")
@parametrize_with_checks(VARIANTS)
def test_scikit_learns_own_checks_of_other_parameters(estimator, check):
    check(estimator)


def test_without_scikit_learn_it_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None\nimport bregopt.learn"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'bregopt[learn]'" in found.stderr


def logdet_objective(A, A0, activity, bounds, gamma):
    """Return D(A, A0) + gamma sum_r d(b_r, b0_r), minimized over the relaxed bounds."""
    M = np.linalg.solve(A0, A)
    bent = [a / b - np.log(a / b) - 1 for a, b in zip(activity, bounds, strict=True)]
    return np.trace(M) - np.linalg.slogdet(M)[1] - len(A) + gamma * sum(bent)


def itml(A0, Z, lo, hi, gamma, cycles):
    """Return the metric after many cycles of projections with slack: closed forms of Kulis et al., §6.2.1.

    It is independent of the package: one row at a time, with a multiplier and a relaxed bound for each.
    """
    A, lam, b = A0.copy(), np.zeros(len(Z)), np.where(np.isfinite(hi), hi, lo)
    side = np.where(np.isfinite(hi), 1.0, -1.0)
    for _ in range(cycles):
        for r, z in enumerate(Z):
            p = z @ A @ z
            alpha = min(lam[r], side[r] * gamma / (gamma + 1) * (1 / p - 1 / b[r]))
            lam[r] -= alpha
            beta = side[r] * alpha / (1 - side[r] * alpha * p)
            b[r] = gamma * b[r] / (gamma + side[r] * alpha * b[r])
            Az = A @ z
            A += beta * np.outer(Az, Az)
    return A


def test_the_logdet_learner_is_a_converged_itml():
    learner = LogDetMetricLearner(gamma=0.5, n_pairs=15, tol=1e-11).fit(POINTS, LABEL)
    near, far = pairs_from_labels(LABEL, 15)
    u, l = learner.bounds_  # noqa: E741
    Z = np.concatenate([POINTS[near[:, 0]] - POINTS[near[:, 1]], POINTS[far[:, 0]] - POINTS[far[:, 1]]])
    hi = np.r_[np.full(len(near), u), np.full(len(far), np.inf)]
    lo = np.r_[np.full(len(near), -np.inf), np.full(len(far), l)]
    A = itml(np.eye(4), Z, lo, hi, 0.5, 3000)
    assert np.allclose(learner.get_mahalanobis_matrix(), A, rtol=1e-5, atol=1e-7)
    p = np.einsum("ri,ij,rj->r", Z, A, Z)
    wrong = (p > hi) | (p < lo)
    value = logdet_objective(A, np.eye(4), p[wrong], np.where(np.isfinite(hi), hi, lo)[wrong], 0.5)
    assert np.isclose(learner.solution_.value, value, rtol=1e-6)


@pytest.mark.parametrize("prior", ["identity", "covariance", np.diag([1.0, 2, 3, 4])])
def test_the_von_neumann_learner_agrees_with_cvxpy(prior):
    learner = VonNeumannMetricLearner(0.3, prior=prior, n_pairs=40, tol=1e-8).fit(POINTS, LABEL)
    A0 = {"identity": np.eye(4), "covariance": np.linalg.inv(np.cov(POINTS.T))}.get(
        prior if isinstance(prior, str) else "", prior
    )
    near, far = pairs_from_labels(LABEL, 40)
    u, l = learner.bounds_  # noqa: E741
    A = bo.PSD(4)
    rows = []
    for pairs, b, sense in ((near, u, 1), (far, l, -1)):
        forms = bo.quad_form(POINTS[pairs[:, 0]] - POINTS[pairs[:, 1]], A)
        rows.append(bo.soft(forms <= b if sense > 0 else forms >= b, 0.3 * np.trace(A0) / 4 / b))
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(A, (A0 + A0.T) / 2)), rows)
    assert learner.converged_
    peers.ask(problem, wide=1e-4).agrees(learner.solution_.value, learner.solution_.error)


def test_the_margin_learner_solves_equation_3():
    learner = SoftMarginMetricLearner(tol=1e-8).fit(POINTS[::3], LABEL[::3])
    i, j, k = learner.triplets_.T
    far, near = POINTS[::3][i] - POINTS[::3][k], POINTS[::3][i] - POINTS[::3][j]
    X, rho, xi = cp.Variable((4, 4), PSD=True), cp.Variable(), cp.Variable(len(i), nonneg=True)
    squares = cp.sum(cp.multiply(far @ X, far), axis=1) - cp.sum(cp.multiply(near @ X, near), axis=1)
    problem = cp.Problem(cp.Maximize(rho - 10 / len(i) * cp.sum(xi)), [squares >= rho - xi, cp.trace(X) == 1])
    peers.ask(problem).agrees(learner.solution_.value, learner.solution_.error)
    assert np.isclose(np.trace(learner.get_mahalanobis_matrix()), 1)
    assert learner.transform(POINTS).shape == (150, learner.solution_.rank)


def test_the_price_of_a_slack_has_a_least_value():
    with pytest.raises(ValueError, match=r"expected at least 1/150.*unbounded"):
        SoftMarginMetricLearner(C=1e-4).fit(POINTS[:-1], LABEL[:-1], triplets=[[0, 1, 60]] * 150)


@pytest.mark.parametrize("cls", METRICS)
def test_transformed_points_have_the_learned_distances(cls):
    learner = cls().fit(POINTS, LABEL)
    A = learner.get_mahalanobis_matrix()
    assert np.allclose(A, np.asarray(learner.solution_.X), atol=1e-8 * np.abs(A).max())
    pairs = np.stack([POINTS[:20], POINTS[100:120]], axis=1)
    difference = pairs[:, 0] - pairs[:, 1]
    distance = np.sqrt(np.einsum("ki,ij,kj->k", difference, A, difference))
    mapped = learner.transform(POINTS)
    assert np.allclose(np.linalg.norm(mapped[:20] - mapped[100:120], axis=1), distance)
    assert np.allclose(learner.pair_distance(pairs), distance)
    assert np.array_equal(learner.score_pairs(pairs), -learner.pair_distance(pairs))
    with pytest.raises(ValueError, match=r"expected \(k, 2, 4\)"):
        learner.pair_distance(pairs[:, :, :3])


@pytest.mark.parametrize("cls", METRICS)
def test_estimators_pickle_clone_and_search(cls):
    pipeline = make_pipeline(StandardScaler(), cls(), KNeighborsClassifier(4))
    name = cls.__name__.lower()
    price = "C" if cls is SoftMarginMetricLearner else "gamma"
    search = GridSearchCV(pipeline, {f"{name}__{price}": [0.5, 2.0]}, cv=2).fit(POINTS, LABEL)
    learner = search.best_estimator_[1]
    again = pickle.loads(pickle.dumps(learner))
    assert np.array_equal(again.transform(POINTS), learner.transform(POINTS))
    refit = clone(learner).fit(StandardScaler().fit_transform(POINTS), LABEL)
    assert np.array_equal(refit.components_, learner.components_)


@pytest.mark.parametrize("cls", METRICS)
def test_data_frames_name_the_features(cls):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(POINTS, columns=list("abcd"))
    learner = cls().set_output(transform="pandas").fit(frame, LABEL)
    assert list(learner.feature_names_in_) == list("abcd")
    assert list(learner.transform(frame).columns) == list(learner.get_feature_names_out())
    assert np.array_equal(learner.components_, cls().fit(POINTS, LABEL).components_)


def test_an_array_after_a_data_frame_names_no_features():
    pandas = pytest.importorskip("pandas")
    pairs = {"similar": [[0, 1]], "dissimilar": [[0, 100]]}
    learner = LogDetMetricLearner(upper=1.0, lower=5.0)
    learner.fit(pandas.DataFrame(POINTS, columns=list("abcd")), **pairs)
    assert list(learner.feature_names_in_) == list("abcd")
    learner.fit(POINTS[:, :3], **pairs)
    assert learner.n_features_in_ == 3
    assert not hasattr(learner, "feature_names_in_")


def test_components_of_the_logdet_learner_are_triangular():
    learner = LogDetMetricLearner().fit(POINTS, LABEL)
    root = np.linalg.cholesky(np.asarray(learner.solution_.X))
    assert np.allclose(learner.components_, root.T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_singular_metric_has_a_map(rank):
    factor = np.random.default_rng(rank).normal(size=(3, rank))
    A = factor @ factor.T
    L = map_of(A)
    assert np.allclose(L.T @ L, A, atol=1e-7 * np.abs(A).max())


def test_pairs_may_be_given_instead_of_labels():
    near, far = pairs_from_labels(LABEL, 50)
    by_pairs = LogDetMetricLearner(upper=1.0, lower=5.0).fit(POINTS, similar=near, dissimilar=far)
    by_labels = LogDetMetricLearner(upper=1.0, lower=5.0, n_pairs=50).fit(POINTS, LABEL)
    assert np.array_equal(by_pairs.components_, by_labels.components_)
    each = np.full(len(near), 1.0)
    each = LogDetMetricLearner(upper=each, lower=5.0).fit(POINTS, similar=near, dissimilar=far)
    assert np.array_equal(each.components_, by_labels.components_)


def test_all_pairs_can_be_asked_for():
    learner = LogDetMetricLearner(n_pairs="all").fit(POINTS, LABEL)
    assert sum(learner.n_pairs_) == 150 * 149 // 2
    assert learner.converged_


@pytest.mark.parametrize("cls", [LogDetMetricLearner, SoftMarginMetricLearner])
def test_features_in_unlike_units_are_warned_of(cls):
    wine, label = load_wine(return_X_y=True, as_frame=True)
    with pytest.warns(bo.DataWarning, match=rf"\(hue|nonflav.*\(proline\), of which a few .* {cls.__name__}"):
        cls().fit(wine, label)
    if cls is LogDetMetricLearner:
        cls(prior="covariance").fit(wine, label)  # which has no units


def test_kernels_and_pairs_of_unlike_units_are_warned_of():
    wine, label = load_wine(return_X_y=True)
    near, far = pairs_from_labels(label, 20)
    pairs, y = wine[np.concatenate([near, far])], np.repeat([1, -1], [len(near), len(far)])
    with pytest.warns(bo.DataWarning, match="for KernelLearner"):
        KernelLearner(kernel="rbf", kernel_params={"gamma": 1e-5}, n_pairs=20).fit(wine, label)
    KernelLearner(n_pairs=20).fit(wine, label)  # its columns may be the root of a kernel
    with pytest.warns(bo.DataWarning, match="for PairDefiniteBoost"):
        PairDefiniteBoost(tol=0.5).fit(pairs, y)


def test_rare_pixels_and_principal_components_have_one_unit():
    points, label = load_digits(return_X_y=True)
    points, label = points[:150], label[:150]
    deviation = points.std(axis=0)
    assert deviation.max() > 50 * deviation[deviation > 0].min()
    LogDetMetricLearner().fit(points, label)
    scores = PCA(60).fit_transform(points)
    assert np.ptp(scores, axis=0).max() > 1e3 * np.ptp(scores, axis=0).min()
    LogDetMetricLearner().fit(scores, label)


@pytest.mark.filterwarnings("ignore:features have ranges:bregopt.DataWarning")  # they are learned, here
def test_learned_metrics_help():
    points, label = load_wine(return_X_y=True)
    plain = cross_val_score(KNeighborsClassifier(4), points, label, cv=2).mean()
    for learner in (LogDetMetricLearner(0.1), VonNeumannMetricLearner(0.1)):
        pipeline = make_pipeline(learner, KNeighborsClassifier(4))
        assert cross_val_score(pipeline, points, label, cv=2).mean() > plain + 0.05


@examples(4)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 100))
@pytest.mark.parametrize(
    ("cls", "prior"), turns([LogDetMetricLearner, VonNeumannMetricLearner], ["identity", "covariance"])
)
def test_units_of_the_data_do_not_matter(cls, prior, scale, seed):
    rng = np.random.default_rng(seed)
    points, label = rng.normal(size=(20, 3)), rng.integers(2, size=20)
    label[:2] = 0, 1
    a, b = (cls(prior=prior, tol=1e-8).fit(s * points, label).get_mahalanobis_matrix() for s in (1.0, scale))
    b = b * (scale**2 if prior == "covariance" else 1.0)
    assert np.allclose(a, b, atol=1e-3 * np.abs(a).max())  # the objective agrees to 1e-8


@examples(7)
@given(seed=st.integers(0, 100))
def test_the_logdet_learner_with_the_covariance_does_not_see_linear_maps(seed):
    rng = np.random.default_rng(seed)
    points, T = rng.normal(size=(30, 3)), rng.normal(size=(3, 3)) + 3 * np.eye(3)
    label = np.arange(30) % 2
    learner = LogDetMetricLearner(prior="covariance", tol=1e-8)
    near = clone(learner).fit(points, label).transform(points)
    mapped = clone(learner).fit(points @ T, label).transform(points @ T)
    gram, other = ((p[:5] - p[5:10]) @ (p[:5] - p[5:10]).T for p in (near, mapped))
    assert np.allclose(gram, other, rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore:features have ranges:bregopt.DataWarning")
def test_a_fit_that_did_not_converge_says_so():
    points, label = load_breast_cancer(return_X_y=True)
    with pytest.warns(bo.ConvergenceWarning) as caught:
        learner = LogDetMetricLearner(max_iter=1).fit(points, label)
    assert not learner.converged_
    assert learner.gap_ > 1e-6
    assert learner.n_iter_ == 1
    assert caught[0].filename == __file__


def test_hard_pairs_that_contradict_are_refused():
    with pytest.raises(ValueError, match="Give gamma"):
        LogDetMetricLearner(None, upper=1e-3, lower=50.0, n_pairs=400).fit(POINTS, LABEL)


@pytest.mark.parametrize(
    ("learner", "data", "text"),
    [
        (LogDetMetricLearner(gamma=-1.0), {}, "gamma"),
        (LogDetMetricLearner(prior="identiy"), {}, "did you mean 'identity'"),
        (LogDetMetricLearner(prior=np.eye(3)), {}, "prior is 3 x 3; expected 4 x 4"),
        (LogDetMetricLearner(prior=-np.eye(4)), {}, "prior has the eigenvalue -1"),
        (LogDetMetricLearner(upper=-1.0), {}, "upper has the value -1"),
        (LogDetMetricLearner(percentiles=(95, 5)), {}, "percentiles"),
        (LogDetMetricLearner(n_pairs="some"), {}, "n_pairs"),
        (LogDetMetricLearner(upper=[1.0, 2.0]), {}, "upper has 2 values"),
        (LogDetMetricLearner(upper=5.0, lower=1.0), {}, "upper is 5 but lower is 1; expected upper <= lower"),
        (VonNeumannMetricLearner(upper=1e3), {}, "upper is 1000 but lower is .*; expected upper <= lower"),
        (LogDetMetricLearner(upper="far"), {}, "upper has dtype"),
        (LogDetMetricLearner(), {"y": np.zeros(150)}, "y has 1 class"),
        (VonNeumannMetricLearner(), {"y": ["a"] * 150}, "y has 1 class, 'a'"),
        (KernelLearner(), {"y": np.r_[np.zeros(50), np.full(100, -1)]}, "y has 1 class"),
        (
            LogDetMetricLearner(),
            {"y": None, "similar": [[0, 1], [2, 3]]},
            "no dissimilar pair.*give dissimilar=",
        ),
        (LogDetMetricLearner(), {"y": None, "dissimilar": [[0, 60]]}, "no similar pair.*give similar="),
        (LogDetMetricLearner(n_pairs=1), {}, "no (dis)?similar pair.*larger n_pairs"),
        (
            KernelLearner(),
            {"y": None, "distances": ([[0, 1], [2, 3]], [1.0, 4.0], [2.0, 3.0])},
            "distances has the lower bound 4 above the upper one 3 at pair 1",
        ),
        (LogDetMetricLearner(), {"y": None}, "requires y to be passed.*similar="),
        (LogDetMetricLearner(), {"y": None, "similar": [[0, 0]]}, "pairs point 0 with itself"),
        (LogDetMetricLearner(), {"y": None, "similar": [[0, 150]]}, "expected 0 to 149"),
        (LogDetMetricLearner(), {"y": None, "dissimilar": [[101, 142]]}, "101 and 142 are equal"),
        (LogDetMetricLearner(solver_options=5), {}, "solver_options is 5; expected a dict"),
        (NearestCorrelation(5), {}, "estimator is 5; expected 'pairwise'"),
        (SoftMarginMetricLearner(), {"y": None}, "requires y to be passed.*triplets="),
        (SoftMarginMetricLearner(), {"y": np.zeros(150)}, "1 class"),
        (SoftMarginMetricLearner(n_targets=0), {}, "n_targets"),
    ],
)
def test_bad_input_is_named(learner, data, text):
    with pytest.raises((ValueError, TypeError), match=text):
        learner.fit(POINTS, **({"y": LABEL} | data))


@pytest.mark.parametrize("cls", [*METRICS, KernelLearner, NearestCorrelation])
def test_unknown_arguments_are_told_by_the_name_of_the_class(cls):
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\.__init__\(\) got .* 'gama'"):
        cls(gama=1.0)
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\.fit\(\) got .* 'pairs'"):
        cls().fit(POINTS, pairs=[[0, 1]])
    with pytest.raises(ValueError, match=rf"Invalid parameter 'gama' for estimator {cls.__name__}"):
        cls().set_params(gama=1.0)


class _Derived(LogDetMetricLearner):
    """A class derived by a user, with its own initializer."""

    def __init__(self, gamma=0.5):
        super().__init__(gamma)


def test_learners_may_be_derived():
    theirs, ours = _Derived().fit(POINTS, LABEL), LogDetMetricLearner(0.5).fit(POINTS, LABEL)
    assert np.array_equal(theirs.components_, ours.components_)
    assert list(_Derived().get_params()) == ["gamma"]


@pytest.mark.parametrize("learner", [LogDetMetricLearner(), KernelLearner(kernel="rbf", n_components=20)])
def test_a_generator_of_numpy_draws(learner):
    first, again = (
        clone(learner).set_params(random_state=np.random.default_rng(7)).fit(POINTS, LABEL) for _ in range(2)
    )
    assert np.array_equal(first.transform(POINTS), again.transform(POINTS))
    other = clone(learner).set_params(random_state=np.random.default_rng(8)).fit(POINTS, LABEL)
    assert not np.array_equal(first.transform(POINTS), other.transform(POINTS))


def test_packages_that_need_scikit_learn_are_names_of_bregopt():
    assert set(dir(bo)) == {*bo.__all__, "learn", "online", "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'lern'"):
        bo.lern


def test_a_covariance_without_inverse_is_no_prior():
    points = np.column_stack([POINTS, POINTS[:, 0]])
    with pytest.raises(ValueError, match="rank is 4 for 5 features"):
        LogDetMetricLearner(prior="covariance").fit(points, LABEL)


def test_options_reach_the_solver():
    learner = LogDetMetricLearner(n_pairs=20, solver_options={"method": "cyclic"}, tol=1e-3).fit(
        POINTS, LABEL
    )
    assert learner.converged_
    with pytest.raises(TypeError, match="methods"):
        LogDetMetricLearner(solver_options={"methods": "cyclic"}).fit(POINTS, LABEL)


@pytest.mark.parametrize(("n", "most"), first(1, [(4_000, 90_000), (8_000, 250_000)]))
def test_no_table_of_all_points_is_made(n, most):
    """Fit 4,000 points in little more memory than theirs; a table of all pairs would take 128 MB."""
    code = (
        f"n = {n}\n"
        "import numpy as np, resource, warnings\n"
        "from bregopt.learn import *\n"
        "rng = np.random.default_rng(0)\n"
        "y = rng.integers(3, size=n); X = rng.normal(size=(n, 8)) + y[:, None]\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for e in (LogDetMetricLearner(), VonNeumannMetricLearner(), KernelLearner(),\n"
        "          KernelLearner(kernel='rbf', n_components=20), SoftMarginMetricLearner(n_triplets=500)):\n"
        "    e.fit(X, y).transform(X)\n"
        "NearestCorrelation().fit(X)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < most  # kB


def test_bounds_are_squared_distances():
    u, l = percentile_bounds(POINTS)  # noqa: E741
    distance = [np.sum((a - b) ** 2) for k, a in enumerate(POINTS) for b in POINTS[:k]]
    assert np.allclose((u, l), np.percentile(distance, [5, 95]))
    assert LogDetMetricLearner().fit(POINTS, LABEL).bounds_ == (u, l)


def test_fits_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogDetMetricLearner().fit(POINTS, LABEL)


@pytest.mark.parametrize("learner", [LogDetMetricLearner(), KernelLearner()])
def test_the_plot_shows_points_before_and_after_the_map(learner):
    pytest.importorskip("matplotlib").use("agg")
    learner.fit(POINTS, LABEL)
    for ax, points in zip(learner.plot(POINTS, LABEL), (POINTS, learner.transform(POINTS)), strict=True):
        assert len(ax.collections) == 3
        drawn = np.concatenate([np.asarray(group.get_offsets()) for group in ax.collections])
        # The two directions of largest variance: the sum of squares is that of two singular values.
        largest = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[:2]
        np.testing.assert_allclose((drawn**2).sum(), (largest**2).sum(), rtol=1e-9)
    (alone,) = learner.plot(POINTS)[0].collections
    assert len(alone.get_offsets()) == len(POINTS)
    with pytest.raises(ValueError, match="a class for each point"):
        learner.plot(POINTS, LABEL[:-1])
