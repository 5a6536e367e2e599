"""The classifier of pairs by DefiniteBoost: its problem, its certificate, and what its users expect."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from scipy.linalg import expm, logm

import bregopt as bo

pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score

from bregopt.learn import PairDefiniteBoost, pairs_from_labels
from bregopt.learn.pairs import boost


def labeled_pairs(load, count, seed=0):
    points, label = load(return_X_y=True)
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    near, far = pairs_from_labels(label, count, seed)
    order = np.random.default_rng(seed).permutation(len(near) + len(far))
    y = np.r_[np.ones(len(near)), -np.ones(len(far))]
    return points[np.concatenate([near, far])][order], y[order]


PAIRS, Y = labeled_pairs(load_iris, 300)


def rows_of(Z, y, margin):
    n = Z.shape[1] + 1
    last = np.zeros((n, n))
    last[-1, -1] = 1.0
    padded = np.c_[Z, np.zeros(len(Z))]
    return np.array(
        [margin * np.eye(n) - c * (last - np.outer(z, z)) for z, c in zip(padded, y, strict=True)]
    )


@examples(30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([0.1, 1.0, 30.0]))
def test_the_certificate_is_that_of_its_problem(seed, d, gamma):
    rng = np.random.default_rng(seed)
    Z, y = rng.normal(size=(30, d)), rng.choice([-1.0, 1.0], 30)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True) / rng.uniform(0, 1, (30, 1))
    margin = rng.uniform(0.01, 0.5)
    found = boost(Z, y, margin, gamma, 1e-3, 400)
    C = rows_of(Z, y, margin)
    n = d + 1
    primal = np.trace(found.W @ logm(found.W)).real + np.log(n)
    primal += gamma * np.maximum(np.tensordot(C, found.W, axes=2), 0).sum()
    dual = np.log(n) - np.log(np.trace(expm(-np.tensordot(found.alpha, C, axes=1))))
    assert 0 <= found.alpha.min()
    assert found.alpha.max() <= gamma
    assert np.trace(found.W) == pytest.approx(1)
    assert found.gap == pytest.approx((primal - dual) / primal, abs=1e-7)
    assert found.gap >= -1e-12


def test_it_solves_what_the_language_solves():
    d, margin, gamma = 4, 0.05, 0.3
    Z, y = (PAIRS[:60, 0] - PAIRS[:60, 1]) / 10, Y[:60]
    found = boost(Z, y, margin, gamma, 1e-5, 20_000)
    W, padded = bo.PSD(d + 1), np.c_[Z, np.zeros(60)]
    forms = W[d, d] - bo.quad_form(padded, W)
    rows = [
        bo.soft(forms[y > 0] >= margin, gamma, penalty="hinge"),
        bo.soft(forms[y < 0] <= -margin, gamma, penalty="hinge"),
        bo.trace(W) == 1,
    ]
    sol = bo.Problem(bo.Minimize(bo.von_neumann_div(W, np.eye(d + 1) / (d + 1))), rows).solve()
    assert found.gap <= 1e-5
    assert np.abs(found.W - np.asarray(sol.X)).max() < 1e-3


def test_steps_are_those_of_algorithm_2_while_multipliers_are_free():
    rng = np.random.default_rng(1)
    Z, y, margin = rng.normal(size=(12, 3)) / 4, rng.choice([-1.0, 1.0], 12), 0.3
    C, log_W = rows_of(Z, y, margin), -np.log(4) * np.eye(4)
    for steps in range(1, 5):  # each row by the formula (4.6), with the signs of its derivation
        W = expm(log_W) / np.trace(expm(log_W))
        r = np.tensordot(C, W, axes=2)
        w = np.linalg.eigvalsh(C)
        low, high = np.minimum(w[:, 0], -margin), w[:, -1]
        alpha = np.log((1 - r / low) / (1 - r / high)) / (high - low)
        k = np.argmax(np.where(r > 0, alpha * r, 0))
        log_W = log_W - alpha[k] * C[k]
        found = boost(Z, y, margin, 1e6, 1e-9, steps)
        np.testing.assert_allclose(found.W, expm(log_W) / np.trace(expm(log_W)), atol=1e-12)


def test_the_dual_increases_with_every_step():
    Z, y = (PAIRS[:, 0] - PAIRS[:, 1]) / 12, Y
    C, values = rows_of(Z, y, 0.1), []
    for steps in range(0, 100, 5):
        alpha = boost(Z, y, 0.1, 0.5, 1e-9, steps).alpha
        values.append(-np.log(np.trace(expm(-np.tensordot(alpha, C, axes=1)))))
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_it_is_better_than_the_best_threshold_on_euclidean_distances(load):
    pairs, y = labeled_pairs(load, 800)
    learner = PairDefiniteBoost().fit(pairs[:400], y[:400])
    distance = np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1)
    best = max(distance[:400], key=lambda t: np.mean((distance[:400] <= t) == (y[:400] > 0)))
    euclidean = np.mean((distance[400:] <= best) == (y[400:] > 0))
    assert learner.converged_
    assert learner.score(pairs[400:], y[400:]) > euclidean + 0.02


def test_it_is_a_classifier_of_pairs():
    learner = PairDefiniteBoost(0.3).fit(PAIRS, Y)
    assert is_classifier(learner)
    A = learner.get_mahalanobis_matrix()
    z = PAIRS[:, 0] - PAIRS[:, 1]
    squared = np.einsum("ki,ij,kj->k", z, A, z)
    np.testing.assert_allclose(learner.decision_function(PAIRS), 1 - squared)
    np.testing.assert_array_equal(learner.predict(PAIRS), np.where(squared <= 1, 1, -1))
    np.testing.assert_allclose(learner.pair_distance(PAIRS), np.sqrt(squared))
    points = learner.transform(PAIRS[:, 0]) - learner.transform(PAIRS[:, 1])
    np.testing.assert_allclose((points**2).sum(axis=1), squared)
    # Units of the data do not matter, only pairs with multipliers do, and their order does not.
    scaled = clone(learner).fit(1000 * PAIRS, Y)
    np.testing.assert_allclose(scaled.get_mahalanobis_matrix() * 1e6, A, rtol=1e-6)
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.predict(PAIRS), learner.predict(PAIRS))
    assert cross_val_score(learner, PAIRS, Y, cv=3).mean() > 0.8
    search = GridSearchCV(learner, {"margin": [0.1, 0.3]}, cv=2).fit(PAIRS, Y)
    assert search.best_estimator_.gap_ <= 1e-2


def test_scikit_learn_knows_that_its_input_is_pairs():
    tags = PairDefiniteBoost().__sklearn_tags__()
    assert tags.input_tags.three_d_array
    assert not tags.input_tags.two_d_array  # check_estimator tests estimators of two-dimensional input only


def test_a_fit_that_does_not_converge_warns():
    with pytest.warns(bo.ConvergenceWarning, match="stopped after 3 steps at a relative gap of"):
        learner = PairDefiniteBoost(max_iter=3).fit(PAIRS, Y)
    assert not learner.converged_
    assert learner.n_iter_ == 3


EQUAL = np.concatenate([PAIRS, PAIRS[:1, [0, 0]]])


@pytest.mark.parametrize(
    ("learner", "pairs", "y", "message"),
    [
        (PairDefiniteBoost(gamma=0), PAIRS, Y, "gamma is 0"),
        (PairDefiniteBoost(margin=-1), PAIRS, Y, "margin is -1"),
        (PairDefiniteBoost(margin=5), PAIRS, Y, "margin is 5; expected less than 5, with 4 features"),
        (PairDefiniteBoost(tol=0), PAIRS, Y, "tol is 0"),
        (PairDefiniteBoost(max_iter=0), PAIRS, Y, "max_iter is 0"),
        (PairDefiniteBoost(), PAIRS[:, 0], Y, r"pairs has shape \(300, 4\)"),
        (PairDefiniteBoost(), PAIRS, Y[:-1], "y has 299 labels for 300 pairs"),
        (PairDefiniteBoost(), PAIRS, 2 * Y, r"y\[0\] is"),
        (PairDefiniteBoost(), PAIRS, np.ones(300), "y has 1 class"),
        (PairDefiniteBoost(), EQUAL, np.r_[Y, -1], "the points of pair 300 are equal but dissimilar"),
        (PairDefiniteBoost(), np.where(PAIRS == PAIRS[7, 0, 0], np.nan, PAIRS), Y, "NaN"),
    ],
)
def test_bad_input_is_refused_by_name(learner, pairs, y, message):
    kept = pairs.copy()
    with pytest.raises((TypeError, ValueError), match=message):
        learner.fit(pairs, y)
    assert not hasattr(learner, "components_")
    np.testing.assert_array_equal(pairs, kept)
