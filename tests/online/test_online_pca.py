"""On-line PCA: its update, its mixtures, its bounds on random streams, and its estimator."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

pytest.importorskip("sklearn")

from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks

import bregopt as bo
from bregopt.online import OnlinePCA, pca

STREAMS = examples(100)
SEEDS = st.integers(0, 2**32 - 1)


def plain(X, k, eta, share=0.0):
    """The update with the logarithm of W, and capping one element after the other."""
    n = X.shape[1]
    m, W, loss = n - k, np.eye(n) / n, 0.0
    for x in X:
        loss += m * x @ W @ x
        w, V = np.linalg.eigh(W)
        w, V = np.linalg.eigh((V * np.log(w)) @ V.T - eta * np.outer(x, x))
        w = np.exp(w - w[-1]) / np.exp(w - w[-1]).sum()
        fixed = np.zeros(n, dtype=bool)
        while (w > (1 + 1e-12) / m).any():
            fixed |= w >= 1 / m
            w[fixed] = 1 / m
            w[~fixed] *= (1 - fixed.sum() / m) / w[~fixed].sum()
        W = (1 - share) * (V * w) @ V.T + share * np.eye(n) / n
    return W, loss


def stream(rng, T, n, k, noise):
    """Vectors of at most unit length near a random subspace of dimension k."""
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    X = rng.normal(size=(T, n)) * np.r_[np.ones(k), np.full(n - k, noise)]
    return X @ Q.T / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12) * rng.uniform(size=(T, 1))


def best_loss(X, k):
    """The loss of batch PCA: the sum of the smallest eigenvalues."""
    return max(float(np.linalg.eigvalsh(X.T @ X)[: X.shape[1] - k].sum()), 0.0)


# --- the update -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "k", "share"), [(2, 1, 0.0), (5, 2, 0.0), (5, 4, 0.1), (12, 3, 0.01), (6, 1, 0.0)]
)
def test_update_is_the_plain_one(n, k, share):
    X = stream(np.random.default_rng(n), 60, n, k, 0.3)
    learner = OnlinePCA(k, eta=1.3, share=share).fit(X)
    W, loss = plain(X, k, 1.3, share)
    assert np.allclose(learner.W_, W, atol=1e-12)
    assert learner.loss_ == pytest.approx(loss, rel=1e-12)


@STREAMS
@given(SEEDS, st.integers(2, 8), st.floats(0.01, 30))
def test_capping_keeps_ratios_below_the_cap(seed, n, spread):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, n))
    theta = np.sort(spread * rng.normal(size=n))
    w = np.exp(pca.capped(theta, m))
    assert w.sum() == pytest.approx(1, rel=1e-12)
    assert (np.diff(w) >= -1e-15).all()
    assert w.max() <= 1 / m * (1 + 1e-12)
    # Optimality: log w - theta is one constant below the cap, and no larger at it.
    shift = np.log(w) - theta
    free = w < (1 - 1e-9) / m
    if free.any():
        assert np.ptp(shift[free]) <= 1e-9 * (1 + np.abs(theta).max())
        assert (shift[~free] <= shift[free].max() + 1e-9).all()


def test_capping_is_the_bregman_projection_of_the_language():
    rng = np.random.default_rng(1)
    n, m = 5, 3
    G = rng.normal(size=(n, n))
    theta, V = np.linalg.eigh(G + G.T)
    X = bo.PSD(n)
    divergence = bo.von_neumann_div(X, (V * np.exp(theta)) @ V.T)
    problem = bo.Problem(bo.Minimize(divergence), [bo.trace(X) == 1, bo.lambda_max(X) <= 1 / m])
    problem.solve(solver="bregman", tol=1e-10)
    assert np.allclose(X.value, (V * np.exp(pca.capped(theta, m))) @ V.T, atol=1e-6)


def test_logarithms_of_any_size_are_capped():
    theta = np.array([-5000.0, -3000.0, -10.0, 0.0, 2000.0])
    assert np.allclose(np.exp(pca.capped(theta, 2)), [0, 0, math.exp(-10) / 2, 0.5, 0.5], atol=1e-4)
    assert np.isfinite(pca.capped(theta, 4)).all()
    X = stream(np.random.default_rng(2), 300, 6, 2, 0.0)
    learner = OnlinePCA(2, eta=1e3).fit(X)
    assert np.isfinite(learner.W_).all()
    assert np.trace(learner.W_) == pytest.approx(1)


def test_rotated_streams_give_rotated_answers():
    rng = np.random.default_rng(3)
    X, (Q, _) = stream(rng, 80, 6, 2, 0.2), np.linalg.qr(rng.normal(size=(6, 6)))
    here, there = OnlinePCA(2).fit(X), OnlinePCA(2).fit(X @ Q)
    assert there.loss_ == pytest.approx(here.loss_, rel=1e-10)
    assert np.allclose(there.W_, Q.T @ here.W_ @ Q, atol=1e-10)


def test_scaled_streams_give_the_same_answers():
    X = stream(np.random.default_rng(4), 80, 5, 2, 0.2)
    usual, scaled = OnlinePCA(2).fit(X), OnlinePCA(2, radius=1e4).fit(1e4 * X)
    assert np.allclose(usual.W_, scaled.W_)
    assert scaled.loss_ == pytest.approx(1e8 * usual.loss_)
    assert scaled.loss_bound(1e8) == pytest.approx(1e8 * usual.loss_bound(1.0))


# --- mixtures ---------------------------------------------------------------------------------------


@STREAMS
@given(SEEDS, st.integers(2, 12), st.sampled_from(["usual", "extreme", "corner", "equal"]))
def test_corners_mix_to_the_weights(seed, n, kind):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, n))
    spread = {"usual": 1.0, "extreme": 300.0, "corner": 1e4, "equal": 0.0}[kind]
    w = np.exp(pca.capped(np.sort(spread * rng.normal(size=n)), m))
    probability, members = pca.corners(w, m)
    assert len(probability) <= n
    assert (probability >= 0).all()
    assert probability.sum() == pytest.approx(1)
    assert (members.sum(axis=1) == m).all()
    assert np.allclose(probability @ members / m, w, atol=1e-12)


def test_drawn_subspaces_have_the_expected_projection():
    X = stream(np.random.default_rng(5), 50, 5, 2, 0.5)
    learner = OnlinePCA(2).fit(X)
    draws = [learner.draw(seed) for seed in range(4000)]
    complement = np.eye(5) - np.mean([P.T @ P for P in draws], axis=0)
    assert np.allclose(complement, 3 * learner.W_, atol=0.04)
    assert np.allclose(draws[0] @ draws[0].T, np.eye(2))
    assert np.array_equal(learner.draw(7), learner.draw(7))


def test_drawn_losses_have_the_expected_mean():
    X = stream(np.random.default_rng(6), 100, 4, 2, 0.5)
    runs = [OnlinePCA(2, randomized=True, random_state=seed).fit(X) for seed in range(60)]
    drawn = np.array([run.drawn_loss_ for run in runs])
    assert abs(drawn.mean() - runs[0].loss_) <= 4 * drawn.std() / math.sqrt(len(drawn))
    again = OnlinePCA(2, randomized=True, random_state=3).fit(X)
    assert again.drawn_loss_ == runs[3].drawn_loss_
    assert OnlinePCA(2).fit(X).drawn_loss_ == 0


# --- bounds -----------------------------------------------------------------------------------------


@STREAMS
@given(
    SEEDS, st.integers(2, 7), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([None, 0.01, 0.3, 2.0, 20.0])
)
def test_bound(seed, n, noise, eta):
    rng = np.random.default_rng(seed)
    k, radius = int(rng.integers(1, n)), float(rng.uniform(0.1, 5))
    X = radius * stream(rng, 40, n, k, noise)
    best = best_loss(X, k)
    learner = OnlinePCA(k, eta=eta, radius=radius, loss_limit=None if eta else max(best, 1e-3)).fit(X)
    assert learner.loss_ <= learner.loss_bound(best) * (1 + 1e-9) + 1e-12
    assert learner.loss_ - best <= learner.regret_bound(best) + 1e-9


@STREAMS
@given(SEEDS, st.integers(2, 6), st.integers(0, 3), st.floats(1e-4, 0.5))
def test_bound_on_a_shifting_stream(seed, n, shifts, share):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, n))
    parts = [stream(rng, int(rng.integers(1, 25)), n, k, rng.choice([0.0, 0.2])) for _ in range(shifts + 1)]
    best = sum(best_loss(part, k) for part in parts)
    learner = OnlinePCA(k, eta=float(rng.uniform(0.05, 5)), share=share).fit(np.concatenate(parts))
    assert learner.loss_ <= learner.loss_bound(best, shifts) * (1 + 1e-9) + 1e-12


@given(st.integers(2, 30), st.floats(1e-3, 1e6))
def test_rate_gives_the_lemma(n, loss):
    for m in range(1, n):
        distance = pca.distance(n, m)
        bound = pca.loss_bound(distance, loss, pca.learning_rate(distance, loss))
        assert bound <= (loss + math.sqrt(2 * distance * loss) + distance) * (1 + 1e-9)
        assert distance <= n - m  # the dimension of the subspace, at most


def test_bound_is_of_the_drawn_dimension_and_knows_its_conditions():
    X = stream(np.random.default_rng(7), 30, 5, 2, 0.3)
    learner = OnlinePCA(2, eta=0.5).fit(X)
    expected = (0.5 * 2.0 + 3 * math.log(5 / 3)) / (1 - math.exp(-0.5))
    assert learner.loss_bound(2.0) == pytest.approx(expected)
    assert learner.loss_bound(2.0, shifts=1) == math.inf
    free = OnlinePCA(2, eta=0.5, radius=None).fit(X)
    with pytest.raises(ValueError, match="radius"):
        free.loss_bound(2.0)
    with pytest.raises(ValueError, match="shifts"):
        learner.loss_bound(2.0, shifts=-1)
    with pytest.raises(ValueError, match="loss"):
        learner.loss_bound(-1.0)


def test_subspace_of_batch_pca_is_found():
    X = stream(np.random.default_rng(8), 3000, 10, 3, 0.1)
    learner = OnlinePCA(3).fit(X)
    best = np.linalg.eigh(X.T @ X)[1][:, -3:]
    assert np.linalg.svd(learner.components_ @ best)[1].min() > 0.99
    points = learner.inverse_transform(learner.transform(X))
    assert ((X - points) ** 2).sum() <= 1.05 * best_loss(X, 3)


# --- the estimator ----------------------------------------------------------------------------------


@parametrize_with_checks([OnlinePCA(radius=None, eta=0.1), OnlinePCA(radius=None, eta=0.1, randomized=True)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_in_a_pipeline():
    X = 100 * np.random.default_rng(9).normal(size=(50, 4))
    assert make_pipeline(Normalizer(), OnlinePCA(2)).fit_transform(X).shape == (50, 2)


@pytest.mark.parametrize("randomized", [False, True])
def test_pickled_in_the_middle_of_a_stream(randomized):
    X = stream(np.random.default_rng(10), 60, 4, 1, 0.3)
    whole = OnlinePCA(horizon=60, randomized=randomized).fit(X)
    parts = pickle.loads(pickle.dumps(OnlinePCA(horizon=60, randomized=randomized).partial_fit(X[:25])))
    parts.partial_fit(X[25:])
    assert np.array_equal(whole.W_, parts.W_)
    assert (whole.loss_, whole.drawn_loss_, whole.steps_) == (parts.loss_, parts.drawn_loss_, parts.steps_)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_components": 4}, ValueError, "n_components is 4"),
        ({"n_components": 0}, ValueError, "n_components"),
        ({"n_components": 1.0}, TypeError, "n_components"),
        ({"eta": 0}, ValueError, "eta"),
        ({"eta": np.nan}, ValueError, "eta"),
        ({"radius": 0.01}, ValueError, "norm"),
        ({"radius": -1}, ValueError, "radius"),
        ({"radius": None}, ValueError, "eta and radius"),
        ({"loss_limit": 0}, ValueError, "loss_limit"),
        ({"horizon": 0}, ValueError, "horizon"),
        ({"horizon": 10**400}, ValueError, "horizon is above"),
        ({"share": 1.0}, ValueError, "share"),
        ({"share": -0.1}, ValueError, "share"),
        ({"random_state": "seed"}, ValueError, "seed"),
    ],
)
def test_bad_parameters_are_refused(parameters, error, message):
    X = stream(np.random.default_rng(11), 10, 4, 1, 0.3)
    learner = OnlinePCA(**parameters)
    with pytest.raises(error, match=message):
        learner.fit(X)
    assert not hasattr(learner, "steps_")


def test_bad_instances_change_nothing():
    X = stream(np.random.default_rng(12), 10, 4, 1, 0.3)
    learner, given_X = OnlinePCA().fit(X), X.copy()
    W = learner.W_
    long = np.vstack([X, [[2, 0, 0, 0]]])
    for bad in (long, X[:, :3], X * np.nan, X[0], X[:0]):
        with pytest.raises(ValueError):
            learner.partial_fit(bad)
    assert np.array_equal(learner.W_, W)
    assert learner.steps_ == 10
    assert np.array_equal(X, given_X)
    for method in ("transform", "inverse_transform", "draw"):
        with pytest.raises(NotFittedError):
            getattr(OnlinePCA(), method)(X)
    with pytest.raises(ValueError, match="coordinates"):
        learner.inverse_transform(X)
