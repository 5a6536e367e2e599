"""Kernels, correlations and constraint selection against formulas, brute force and pandas."""

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

import bregopt as bo

pytest.importorskip("sklearn")

from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel

from bregopt.learn import (
    KernelLearner,
    NearestCorrelation,
    idealized_bounds,
    pairs_from_labels,
    percentile_bounds,
    triplets_from_labels,
)

POINTS, LABEL = load_iris(return_X_y=True)
SOME = slice(None, None, 5)  # 30 points
CENTERED = POINTS - POINTS.mean(axis=0)


# ------ constraints


@examples(20)
@given(n=st.integers(2, 60), count=st.integers(1, 2000), seed=st.integers(0, 9))
def test_pairs_are_distinct_and_told_by_their_labels(n, count, seed):
    y = np.random.default_rng(seed).integers(3, size=n)
    similar, dissimilar = pairs_from_labels(y, count, seed)
    pairs = np.concatenate([similar, dissimilar])
    assert len(pairs) == min(count, n * (n - 1) // 2)
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert pairs.max(initial=0) < n
    assert (y[similar[:, 0]] == y[similar[:, 1]]).all()
    assert (y[dissimilar[:, 0]] != y[dissimilar[:, 1]]).all()


def test_pairs_follow_the_seed_and_all_are_drawn_alike():
    assert np.array_equal(pairs_from_labels(LABEL, 50, 1)[0], pairs_from_labels(LABEL, 50, 1)[0])
    assert not np.array_equal(pairs_from_labels(LABEL, 50, 1)[1], pairs_from_labels(LABEL, 50, 2)[1])
    drawn = np.zeros((5, 5))
    for seed in range(2000):
        similar, dissimilar = pairs_from_labels([0, 0, 1, 1, 1], 3, seed)
        np.add.at(drawn, tuple(np.concatenate([similar, dissimilar]).T), 1)
    assert np.allclose(drawn[np.triu_indices(5, 1)], 600, atol=90)


def test_pairs_of_many_points_are_counted_right():
    similar, dissimilar = pairs_from_labels(np.arange(2_000_000) % 2, 5000)
    pairs = np.concatenate([similar, dissimilar])
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert (pairs >= 0).all()
    assert pairs[:, 1].max() < 2_000_000
    assert len(similar) == pytest.approx(2500, abs=200)


def nearest_triplets(X, y, targets, impostors):
    found = []
    for i, x in enumerate(X):
        order = np.argsort(((X - x) ** 2).sum(axis=1), kind="stable")
        own = [j for j in order if y[j] == y[i] and j != i][:targets]
        other = [k for k in order if y[k] != y[i]][:impostors]
        found += [(i, j, k) for j in own for k in other]
    return {tuple(int(v) for v in triplet) for triplet in found}


@examples(10)
@given(seed=st.integers(0, 1000), targets=st.integers(1, 4), impostors=st.integers(1, 4))
def test_triplets_are_of_nearest_points(seed, targets, impostors):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20, 2)), rng.integers(3, size=20)
    y[:3] = 0, 0, 1
    triplets = triplets_from_labels(X, y, targets, impostors)
    assert {tuple(t) for t in triplets.tolist()} == nearest_triplets(X, y, targets, impostors)
    some = triplets_from_labels(X, y, targets, impostors, n_triplets=5)
    assert len(some) == min(5, len(triplets))
    assert {tuple(t) for t in some.tolist()} <= {tuple(t) for t in triplets.tolist()}


def test_idealized_bounds_are_shares_of_the_distances():
    upper, lower = idealized_bounds([[0.0], [1.0], [3.0]], [[0, 1]], [[0, 2], [1, 2]])
    assert np.allclose(upper, [0.75])
    assert np.allclose(lower, [11.25, 5.0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pairs_from_labels([1]), "n_samples = 1"),
        (lambda: pairs_from_labels([0.5, 1.2]), "Unknown label type"),
        (lambda: pairs_from_labels([0, 1], n_pairs=0), "n_pairs is 0; expected at least 1"),
        (lambda: triplets_from_labels(POINTS, np.zeros(150, int)), "y has 1 class"),
        (lambda: triplets_from_labels(POINTS[:2], [0, 1]), "no class of two points"),
        (lambda: triplets_from_labels(POINTS, LABEL[1:]), "149 labels for 150 points"),
        (lambda: triplets_from_labels([[0.0], [1.0], [1.0]], [0, 0, 1]), "points 1 and 2 are equal"),
        (lambda: percentile_bounds(np.zeros((9, 2))), "drop duplicates"),
        (lambda: percentile_bounds(POINTS[:1]), "minimum of 2"),
        (lambda: percentile_bounds(POINTS, (5, 101)), "percentiles"),
        (lambda: idealized_bounds([[0.0], [0.0]], [[0, 1]], []), "pair 0, 1 of equal points"),
        (lambda: idealized_bounds(POINTS, [[0, 1]], [], shrink=1.0), "shrink is 1"),
        (lambda: idealized_bounds(POINTS, [[0, 1, 2]], []), r"expected \(k, 2\)"),
    ],
)
def test_what_gives_no_constraints_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()


# ------ kernels


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
def test_the_map_makes_the_learned_kernel(divergence):
    learner = KernelLearner(0.5, divergence=divergence, tol=1e-8).fit(CENTERED[SOME], LABEL[SOME])
    mapped = learner.transform(CENTERED[SOME])
    assert np.allclose(mapped @ mapped.T, learner.solution_.X.dense(), atol=1e-8)
    near, far = pairs_from_labels(LABEL[SOME], "auto")
    K = bo.PSD(30)
    upper, lower = idealized_bounds(CENTERED[SOME], near, far)
    gamma = 0.5 if divergence == "logdet" else 0.5 * np.sum(CENTERED[SOME] ** 2) / 4  # four eigenvalues
    rows = [
        bo.soft(bo.sq_distance(K, *near.T) / upper <= 1, gamma),
        bo.soft(bo.sq_distance(K, *far.T) / lower >= 1, gamma),
    ]
    start = bo.LowRank(CENTERED[SOME])
    objective = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}[divergence](K, start)
    other = bo.Problem(bo.Minimize(objective), rows).solve(tol=1e-8)
    if divergence == "logdet":  # its penalties are scale invariant
        again = bo.learn_kernel(start, near, far, gamma=0.5, tol=1e-8)
        assert np.isclose(learner.solution_.value, again.value)
    assert np.isclose(learner.solution_.value, other.value)
    assert np.allclose(learner.solution_.X.dense(), other.X.dense(), atol=1e-2)


def test_new_points_come_by_the_formula_of_the_paper():
    """K(x, z) = k(x, z) + k_x' M k_z with M = inv(K0) (K - K0) inv(K0), where K0 has full rank."""
    old, new = CENTERED[::10], CENTERED[1:6]
    learner = KernelLearner(kernel="rbf", kernel_params={"gamma": 0.5}, n_components=15, tol=1e-9)
    learner.fit(old, LABEL[::10])
    K0, k = rbf_kernel(old, gamma=0.5), rbf_kernel(new, old, gamma=0.5)
    inverse = np.linalg.inv(K0)
    M = inverse @ (learner.solution_.X.dense() - K0) @ inverse
    expected = k @ inverse @ k.T + k @ M @ k.T  # Nyström's features: new points by what old ones span of them
    mapped = learner.transform(new)
    assert np.allclose(mapped @ mapped.T, expected, atol=1e-6)


def test_new_points_agree_with_the_metric_of_the_same_problem():
    """With a linear kernel a new point moves by A = B B', learned as a metric from the same rows."""
    points = CENTERED[SOME]
    near, far = pairs_from_labels(LABEL[SOME])
    upper, lower = idealized_bounds(points, near, far)
    A = bo.PSD(4)
    rows = [
        bo.soft(bo.quad_form(points[near[:, 0]] - points[near[:, 1]], A) <= upper),
        bo.soft(bo.quad_form(points[far[:, 0]] - points[far[:, 1]], A) >= lower),
    ]
    metric = bo.Problem(bo.Minimize(bo.logdet_div(A, np.eye(4))), rows).solve(tol=1e-9).X
    mapped = KernelLearner(tol=1e-9).fit(points, LABEL[SOME]).transform(POINTS)
    assert np.allclose(mapped @ mapped.T, POINTS @ metric @ POINTS.T, rtol=1e-4)


@pytest.mark.parametrize("divergence", ["logdet", "von_neumann"])
def test_units_do_not_matter_to_the_kernel(divergence):
    told = {"similar": [[0, 1]], "similarities": ([[2, 3]], None, 0.1), "comparisons": [[0, 4, 1]]}
    told["distances"] = ([[1, 3]], 0.1, None)
    units = dict(told, similarities=([[2, 3]], None, 10.0), distances=([[1, 3]], 10.0, None))
    learner = KernelLearner(0.5, divergence=divergence, tol=1e-9)
    small = learner.fit(CENTERED[::30], **told).transform(POINTS)
    large = learner.fit(10 * CENTERED[::30], **units).transform(10 * POINTS)
    assert np.allclose(large, 10 * small, rtol=1e-3, atol=1e-3)


def test_directions_without_points_stay():
    points = np.column_stack([CENTERED[SOME], np.zeros(30)])
    learner = KernelLearner().fit(points, LABEL[SOME])
    assert np.allclose(learner.transform([[0, 0, 0, 0, 2.0]]), [[0, 0, 0, 0, 2.0]])


def test_points_without_labels_are_learned_with():
    y = np.where(np.arange(30) % 2, LABEL[SOME], -1)
    learner = KernelLearner().fit(CENTERED[SOME], y)
    known = np.flatnonzero(y != -1)
    near, far = (known[pairs] for pairs in pairs_from_labels(y[known]))
    again = KernelLearner().fit(CENTERED[SOME], similar=near, dissimilar=far)
    assert learner.solution_.X.shape == (30, 30)
    assert np.allclose(learner.transform(POINTS), again.transform(POINTS))
    with pytest.raises(ValueError, match="y has 0 labels"):
        KernelLearner().fit(POINTS, np.full(150, -1))


def test_every_kind_of_knowledge_agrees_with_cvxpy():
    points = CENTERED[::30]
    told = {
        "similar": [[0, 1]],
        "dissimilar": [[0, 4]],
        "distances": ([[1, 2], [0, 3]], [0.1, 0.2], 40.0),
        "similarities": ([[2, 2], [1, 3]], -5.0, [2.0, 1.0]),
        "comparisons": [[0, 3, 1, 2], [1, 4, 0, 2]],
    }
    learner = KernelLearner(0.7, tol=1e-8).fit(points, **told)
    A = cp.Variable((4, 4), PSD=True)

    def inner(i, j):
        return points[i] @ A @ points[j]

    def square(i, j):
        return (points[i] - points[j]) @ A @ (points[i] - points[j])

    def old(i, j):
        return np.sum((points[i] - points[j]) ** 2)

    def bend(ratio, upper):  # the minimum of d(b, 1) over the b that the ratio allows
        b = cp.Variable()
        rows.append(ratio <= b if upper else ratio >= b)
        return b - cp.log(b) - 1

    rows = []
    paid = [bend(square(0, 1) / (0.75 * old(0, 1)), True), bend(square(0, 4) / (1.25 * old(0, 4)), False)]
    for (i, j), lo in zip([(1, 2), (0, 3)], [0.1, 0.2], strict=True):
        paid += [bend(square(i, j) / lo, False), bend(square(i, j) / 40.0, True)]
    norms = np.mean([points[k] @ points[k] for k in (2, 2, 1, 3)])
    for (i, j), hi in zip([(2, 2), (1, 3)], [2.0, 1.0], strict=True):
        paid += [cp.pos(-5.0 - inner(i, j)) / norms, cp.pos(inner(i, j) - hi) / norms]
    scale = np.mean([old(*pair) for pair in [(0, 3), (1, 4), (1, 2), (0, 2)]])
    paid += [cp.pos(square(0, 3) - square(1, 2)) / scale, cp.pos(square(1, 4) - square(0, 2)) / scale]
    problem = cp.Problem(cp.Minimize(cp.trace(A) - cp.log_det(A) - 4 + 0.7 * sum(paid)), rows)
    peers.ask(problem).agrees(learner.solution_.value, learner.solution_.error)


def test_triplets_are_comparisons_too():
    triplets = triplets_from_labels(CENTERED[SOME], LABEL[SOME])
    learner = KernelLearner(None).fit(CENTERED[SOME], comparisons=[[0, 12, 1]])
    mapped = learner.transform(CENTERED[SOME])
    assert np.sum((mapped[0] - mapped[12]) ** 2) <= np.sum((mapped[0] - mapped[1]) ** 2) * (1 + 1e-5)
    quadruplets = np.column_stack([triplets[:, :2], triplets[:, [0, 2]]])
    a, b = (KernelLearner().fit(CENTERED[SOME], comparisons=rows) for rows in (triplets, quadruplets))
    assert np.allclose(a.transform(POINTS), b.transform(POINTS))


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"distances": [[0, 1]]}, r"expected a tuple \(pairs, lower, upper\)"),
        ({"distances": ([[0, 1]], None, None)}, "no bound"),
        ({"distances": ([[0, 1]], None, -1.0)}, "above 0"),
        ({"distances": ([[0, 1]], [1.0, 2.0], None)}, "2 values for 1 pairs"),
        ({"distances": ([[0, 0]], 1.0, None)}, "with itself"),
        ({"comparisons": [[0, 1, 0]]}, "pairs point 0 with itself"),
        ({"comparisons": [[0, 1]]}, r"expected \(k, 3\) or \(k, 4\)"),
        ({"dissimilar": [[101, 142]]}, "of equal points"),
        ({}, "requires y to be passed.*comparisons="),
    ],
)
def test_bad_knowledge_is_named(told, text):
    with pytest.raises((ValueError, TypeError), match=text):
        KernelLearner().fit(POINTS, **told)


@pytest.mark.parametrize(
    ("learner", "text"),
    [
        (KernelLearner(divergence="frobenius"), "divergence is 'frobenius'"),
        (KernelLearner(shrink=2.0), "shrink"),
        (KernelLearner(gamma=0.0), "gamma"),
        (KernelLearner(kernel="rbf", n_components=0), "n_components is 0"),
        (KernelLearner(kernel="rbf", n_components=[5]), "n_components"),
    ],
)
def test_bad_parameters_of_the_kernel_are_named(learner, text):
    with pytest.raises((TypeError, ValueError), match=text):
        learner.fit(POINTS, LABEL)


# ------ correlations


def with_gaps(seed, share=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 8)) @ rng.normal(size=(8, 8))
    X[rng.random(X.shape) < share] = np.nan
    return X


def test_pairwise_complete_correlations_are_those_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(with_gaps(0), columns=list("abcdefgh"))
    estimator = NearestCorrelation().fit(frame)
    assert np.allclose(estimator.raw_correlation_, frame.corr(), atol=1e-12)
    assert np.linalg.eigvalsh(estimator.raw_correlation_)[0] < -1e-3
    for matrix in (estimator.correlation_, estimator.covariance_):
        assert list(matrix.index) == list(matrix.columns) == list("abcdefgh")
        assert np.linalg.eigvalsh(matrix)[0] > -1e-10
    assert np.allclose(np.diag(estimator.covariance_), frame.var(ddof=0))
    assert np.allclose(estimator.correlation_, bo.nearest_correlation(frame.corr().to_numpy()).X, atol=1e-5)


def test_counts_weigh_the_correlations():
    X = with_gaps(1, 0.4)
    seen = np.isfinite(X).astype(float)
    counts = seen.T @ seen
    plain, weighed = (NearestCorrelation(weights=w).fit(X) for w in (None, "counts"))

    def cost(estimator):
        return np.sum(counts * (estimator.correlation_ - estimator.raw_correlation_) ** 2)

    assert cost(weighed) < cost(plain) - 1e-3
    with pytest.raises(ValueError, match="'counts' for estimator='pairwise'"):
        NearestCorrelation(EmpiricalCovariance(), weights="counts").fit(POINTS)


def test_it_follows_covariance_estimators():
    fitted = NearestCorrelation(LedoitWolf(), min_eigenvalue=0.05).fit(POINTS)
    covariance = LedoitWolf().fit(POINTS).covariance_
    assert np.allclose(np.diag(fitted.covariance_), np.diag(covariance))
    assert np.linalg.eigvalsh(fitted.correlation_)[0] > 0.05 - 1e-8
    valid = NearestCorrelation(EmpiricalCovariance()).fit(POINTS)
    assert np.allclose(valid.covariance_, np.cov(POINTS.T, ddof=0), atol=1e-6)


def test_a_matrix_can_be_given():
    pandas = pytest.importorskip("pandas")
    A = np.array([[4.0, 2, 0], [2, 1, 1], [0, 1, 1]])
    frame = pandas.DataFrame(A, index=list("abc"), columns=list("abc"))
    fitted = NearestCorrelation("precomputed", tol=1e-8).fit(frame)
    assert np.allclose(fitted.correlation_.loc["a"], [1, 0.7607, 0.1573], atol=1e-4)
    assert np.isclose(fitted.covariance_.loc["a", "b"], 2 * 0.7607, atol=1e-3)


def test_features_without_common_samples_have_an_unknown_correlation():
    X = np.array([[1.0, np.nan, 2], [2.0, np.nan, 3], [4, 2, 1], [np.nan, 3, 4], [np.nan, 5, 9]])
    for weights in (None, "counts"):
        fitted = NearestCorrelation(weights=weights, min_eigenvalue=0.1).fit(X)
        assert np.isnan(fitted.raw_correlation_[0, 1])
        assert np.linalg.eigvalsh(fitted.correlation_)[0] > 0.1 - 1e-8
        assert fitted.converged_


def test_all_arguments_of_nearest_correlation_are_passed_on():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(with_gaps(3), columns=list("abcdefgh"))
    raw = frame.corr()
    fitted = NearestCorrelation(
        lower={("a", "b"): 0.3}, upper=0.6, fixed=[[2, 3]], min_eigenvalue=0.01, tol=1e-8
    )
    R = fitted.fit(frame).correlation_
    assert R.loc["a", "b"] >= 0.3 - 1e-6
    assert np.isclose(R.loc["c", "d"], raw.loc["c", "d"], atol=1e-6)
    assert (R.to_numpy()[np.triu_indices(8, 1)].max()) <= max(0.6, raw.loc["c", "d"]) + 1e-6
    assert "certified gap" in str(fitted.solution_.report())
    conditioned = NearestCorrelation(max_condition=20.0).fit(frame)
    assert np.linalg.cond(conditioned.correlation_) <= 20 * (1 + 1e-6)
    low = NearestCorrelation(max_rank=3, tol=1e-3).fit(frame).correlation_
    assert np.linalg.matrix_rank(low, tol=1e-6) == 3
    sectors = dict(zip("abcdefgh", "xxxyyyzz", strict=True))
    grouped = NearestCorrelation(groups=sectors).fit(frame).correlation_
    assert np.isclose(grouped.loc["a", "d"], grouped.loc["c", "f"])


@pytest.mark.parametrize(
    ("estimator", "X", "text"),
    [
        (NearestCorrelation(), [[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]], "A has no number off the diagonal"),
        (NearestCorrelation("precomputed"), [[1.0, 2.0, 3.0]], "square"),
        (NearestCorrelation("precomputed"), [[1.0, 0.0], [0.0, -1.0]], "feature 1 has variance -1"),
        (NearestCorrelation("precomputd"), [[1.0, 0.0], [0.0, 1.0]], "expected 'pairwise', 'precomputed'"),
        (NearestCorrelation(EmpiricalCovariance()), [[np.nan, 0.0], [0.0, 1.0]], "NaN"),
        (NearestCorrelation(), [[np.inf, 0.0], [0.0, 1.0]], "infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no correlation is known:bregopt.DataWarning")
def test_what_has_no_correlation_is_named(estimator, X, text):
    with pytest.raises(ValueError, match=text):
        estimator.fit(np.array(X))
