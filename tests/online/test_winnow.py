"""Winnow with noise, shifting subspaces, kernels and pairs, and its conversions to a batch classifier."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

pytest.importorskip("sklearn")

from scipy.optimize import minimize_scalar
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.model_selection import cross_val_score

from bregopt.online import (
    GeneralMatrixWinnow,
    KernelWinnow,
    MatrixWinnow,
    OnlineToBatch,
    PairWinnow,
    meg,
    winnow,
)
from bregopt.online.kernel_winnow import _W0

STREAMS = examples(75)
SEEDS = st.integers(0, 2**32 - 1)


def projection(rng, n, rank):
    Q = ortho_group.rvs(n, random_state=rng) if n > 1 else np.eye(1)
    return Q[:, :rank] @ Q[:, :rank].T


def instances_near(rng, P, count, vectors):
    """Return instances about half of which a projection labels without loss, and the labels nearest to it."""
    n = len(P)
    x = rng.normal(size=(count, n))
    kind = rng.integers(4, size=count)
    x[kind == 0] = x[kind == 0] @ P
    x[kind == 1] = x[kind == 1] @ (np.eye(n) - P)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9) / rng.uniform(0.7, 1, (count, 1))
    y = np.where(np.einsum("ti,ij,tj->t", x, P, x) > 0.25, 1.0, -1.0)
    if vectors:
        return x, y
    X = np.einsum("ti,tj->tij", x, x)
    return X + rng.uniform(0, 0.1, (count, 1, 1)) * (np.eye(n) - X), y  # eigenvalues stay below 1


def hinge(P, X, y):
    """The hinge loss of the best subspace, from its definition."""
    traces = [x @ P @ x if x.ndim == 1 else np.trace(P @ x) for x in X]
    return sum(max(0.5 - a, 0) if label > 0 else a for a, label in zip(traces, y, strict=True))


def holds(mistakes, bound):
    assert mistakes <= bound * (1 + 1e-9) + 1e-9


# --- Noise --------------------------------------------------------------------------------------------


@STREAMS
@given(SEEDS, st.integers(2, 7), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.1, 0.3]))
def test_the_bound_with_noise(seed, n, vectors, normalize, noise):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, n))
    P = projection(rng, n, rank)
    X, y = instances_near(rng, P, 80, vectors)
    y = y * np.where(rng.random(80) < noise, -1, 1)
    loss = hinge(P, X, y)
    assert winnow.hinge_loss(P, X, y) == pytest.approx(loss, abs=1e-9)
    for limit in (0.0, loss):
        learner = MatrixWinnow(rank, normalize=normalize, loss_limit=limit).fit(X, y)
        bound = learner.mistake_bound(loss=loss)
        assert math.isfinite(bound)
        holds(learner.mistakes_, bound)
        # The projection as a matrix has the same bound, and any other matrix has a bound, too.
        assert learner.mistake_bound(loss=loss, U=P) == pytest.approx(bound)
        U = P * rng.uniform(0.1, 1.5) + np.diag(rng.uniform(0, 0.2, n))
        holds(learner.mistakes_, learner.mistake_bound(loss=hinge(U, X, y), U=U))


@STREAMS
@given(SEEDS, st.integers(1, 4), st.integers(1, 4))
def test_the_bound_of_general_winnow_with_noise(seed, m, n):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, min(m, n) + 1))
    U, V = np.linalg.qr(rng.normal(size=(m, rank)))[0], np.linalg.qr(rng.normal(size=(n, rank)))[0]
    X, y = rng.normal(size=(60, m, n)), rng.choice([-1.0, 1.0], 60)
    X /= np.linalg.norm(X, 2, axis=(1, 2), keepdims=True)
    X = 0.5 * X + 0.5 * (y > 0)[:, None, None] * (U @ V.T)
    traces = np.tensordot(X, U @ V.T, axes=2)
    loss = np.maximum(np.where(y > 0, 0.5 - traces, traces), 0).sum()
    learner = GeneralMatrixWinnow(rank).fit(X, y)
    holds(learner.mistakes_, learner.mistake_bound(loss=loss))


@pytest.mark.parametrize("loss", [0.0, 0.3, 5.0, 1e6])
@pytest.mark.parametrize("charge", [0.0, 0.05, 0.3])
def test_the_rate_is_the_best(loss, charge):
    distance = 3.7
    best = winnow.best_rate(distance, loss, charge)

    def bound(eta):
        return (distance / eta + loss) * (1 + math.exp(eta)) / (0.5 - charge * math.exp(eta))

    top = math.log(0.5 / charge) - 1e-9 if charge else 2.0
    found = minimize_scalar(bound, bounds=(1e-6, top), method="bounded", options={"xatol": 1e-12})
    assert bound(best) <= found.fun * (1 + 1e-9)
    # It is the bound that the learner states.
    theta = winnow.threshold(best, charge)
    progress = distance + best * loss
    negative = (1 - math.exp(-best)) * theta - best * charge
    assert progress / negative == pytest.approx(bound(best), rel=1e-6)


def test_a_loss_limit_helps_against_noise():
    # For a loss H that is large, the bound approaches 4 H: the loss in units of the margin of 1/4.
    x = np.eye(10)[[0, 1]]
    bounds = [MatrixWinnow(loss_limit=limit).fit(x, [1, -1]).mistake_bound(loss=1e5) for limit in (0.0, 1e5)]
    assert bounds[0] > 9e5
    assert 4e5 < bounds[1] < 4.05e5


def test_defaults_are_those_of_theorem_2():
    learner = MatrixWinnow(rank=2).fit(np.eye(6), np.ones(6))
    assert (learner.eta_, learner.theta_, learner.w0_) == (winnow.ETA, winnow.threshold(winnow.ETA), 2 / 6)


# --- Shifting subspaces -------------------------------------------------------------------------------


@STREAMS
@given(SEEDS, st.integers(2, 7), st.booleans(), st.sampled_from([0.0, 0.2]), st.integers(1, 4))
def test_the_bound_for_shifting_subspaces(seed, n, vectors, noise, parts):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, n))
    floor = rng.uniform(0.001, 0.1) / (1 if vectors else n)
    learner, loss, shift, before = MatrixWinnow(rank, floor=floor), 0.0, 0.0, None
    for _ in range(parts):
        P = projection(rng, n, rank)
        X, y = instances_near(rng, P, 40, vectors)
        y = y * np.where(rng.random(40) < noise, -1, 1)
        loss += hinge(P, X, y)
        shift += 0 if before is None else np.abs(np.linalg.eigvalsh(P - before)).sum() / 2
        before = P
        learner.partial_fit(X, y)
    spectrum = np.linalg.eigvalsh(learner.W_)
    assert floor * (1 - 1e-9) <= spectrum[0] <= spectrum[-1] <= 1 + 1e-9 or learner.mistakes_ == 0
    bound = learner.mistake_bound(loss=loss, shift=shift)
    assert math.isfinite(bound)
    holds(learner.mistakes_, bound)


@pytest.mark.parametrize("floor", [0.0, 0.01])
def test_a_stream_is_learned_as_ten_lines_of_numpy_learn_it(floor):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(300, 6)), rng.choice([-1.0, 1.0], 300)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    learner = MatrixWinnow(2, floor=floor).fit(x, y)
    G, W, mistakes = math.log(learner.w0_) * np.eye(6), learner.w0_ * np.eye(6), 0
    for x_t, y_t in zip(x, y, strict=True):
        if (1 if x_t @ W @ x_t >= learner.theta_ else -1) != y_t:
            w, V = np.linalg.eigh(G + learner.eta_ * y_t * np.outer(x_t, x_t))
            w = np.clip(w, math.log(floor), 0) if floor else w
            G, W, mistakes = (V * w) @ V.T, (V * np.exp(w)) @ V.T, mistakes + 1
    np.testing.assert_allclose(learner.W_, W, atol=1e-9)
    assert learner.mistakes_ == mistakes > 50


def test_a_floor_helps_with_shifting_subspaces():
    rng = np.random.default_rng(2)
    fixed, tracking = MatrixWinnow(1), MatrixWinnow(1, floor=0.02)
    for k in range(40):  # e_k is the subspace for a while
        x = rng.normal(size=(200, 8))
        x[:, k % 8] *= rng.integers(2, size=200) * 3
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        square = x[:, k % 8] ** 2
        used = (square == 0) | (square >= 0.5)
        for learner in (fixed, tracking):
            learner.partial_fit(x[used], np.where(square[used] > 0, 1.0, -1.0))
    assert tracking.mistakes_ <= tracking.mistake_bound(shift=39)
    assert fixed.mistakes_ > 1.1 * tracking.mistakes_
    assert fixed.mistake_bound(shift=39) == math.inf


# --- Kernels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", [0.0, 0.02])
def test_the_linear_kernel_is_matrix_winnow(floor):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(200, 5)), rng.choice([-1.0, 1.0], 200)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    kernel = KernelWinnow(kernel="linear", w0=0.1, floor=floor).fit(x, y)
    plain = MatrixWinnow(eta=kernel.eta_, theta=kernel.theta_, w0=0.1, floor=floor).fit(x, y)
    assert kernel.mistakes_ == plain.mistakes_ > 50
    assert len(kernel.points_) == 5  # the span is the whole space
    np.testing.assert_allclose(kernel.decision_function(x), plain.decision_function(x), atol=1e-8)
    # The start outside of the span, before it is whole.
    few = KernelWinnow(kernel="linear", w0=0.1, floor=floor).fit(x[:3], -kernel.predict(x[:3]))
    plain = MatrixWinnow(eta=few.eta_, theta=few.theta_, w0=0.1, floor=floor).fit(
        x[:3], -kernel.predict(x[:3])
    )
    np.testing.assert_allclose(few.decision_function(x), plain.decision_function(x), atol=1e-10)


@pytest.mark.parametrize("kernel", ["rbf", "polynomial"])
def test_a_kernel_is_winnow_on_its_features(kernel):
    """Features from the root of the whole Gram matrix, which the learner never sees."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(120, 3)) / 4, rng.choice([-1.0, 1.0], 120)

    def cubic(A, B):
        return polynomial_kernel(A, B, degree=3) / 10

    gram = rbf_kernel(x, gamma=2.0) if kernel == "rbf" else cubic(x, x)
    w, V = np.linalg.eigh(gram)
    features = (V * np.sqrt(np.maximum(w, 0))) @ V.T
    learner = KernelWinnow(kernel="rbf" if kernel == "rbf" else cubic, gamma=2.0).fit(x, y)
    plain = MatrixWinnow(eta=learner.eta_, theta=learner.theta_, w0=learner.w0_).fit(features, y)
    assert learner.mistakes_ == plain.mistakes_ > 20
    assert len(learner.points_) <= learner.mistakes_
    np.testing.assert_allclose(learner.decision_function(x), plain.decision_function(features), atol=1e-5)


@STREAMS
@given(SEEDS, st.sampled_from([0.0, 0.02, 0.08]), st.sampled_from([0.0, 0.2]), st.booleans())
def test_the_bound_of_kernels_has_no_dimension(seed, floor, noise, moves):
    rng = np.random.default_rng(seed)
    n, rank = int(rng.integers(4, 60)), int(rng.integers(1, 4))
    learner, loss, shift, before = KernelWinnow(rank, kernel="linear", floor=floor), 0.0, 0.0, None
    for _ in range(3):
        P = projection(rng, n, rank) if before is None or moves else before
        X, y = instances_near(rng, P, 30, vectors=True)
        y = y * np.where(rng.random(30) < noise, -1, 1)
        loss += hinge(P, X, y)
        shift += 0 if before is None or not moves else np.abs(np.linalg.eigvalsh(P - before)).sum() / 2
        before = P
        learner.partial_fit(X, y)
    bound = learner.mistake_bound(loss=loss, shift=shift)
    assert math.isfinite(bound) == (shift == 0 or floor > 0)
    holds(learner.mistakes_, bound)


def test_the_start_of_kernels_is_the_best():
    def bound(w0):
        distance = winnow.divergence(1, np.ones(1), w0)
        eta = winnow.best_rate(distance, 0.0, w0)
        return winnow.mistake_bound(1, 1, eta, winnow.threshold(eta, w0), w0, False, outside=w0)

    assert bound(_W0) == pytest.approx(20.1, abs=0.01)
    assert all(bound(_W0) <= bound(w0) for w0 in np.linspace(0.01, 0.2, 50))


def test_nearly_dependent_features_stay_accurate():
    rng = np.random.default_rng(5)
    x = np.repeat(rng.normal(size=(20, 2)), 20, axis=0) + 1e-7 * rng.normal(size=(400, 2))
    learner = KernelWinnow().fit(x, rng.choice([-1.0, 1.0], 400))
    assert learner.mistakes_ > 100
    assert len(learner.points_) < 60
    W = learner.W_
    assert np.linalg.eigvalsh(W)[0] > 0
    assert np.isfinite(learner.decision_function(x)).all()


def test_a_point_without_features_changes_nothing():
    learner = KernelWinnow(kernel="linear").fit([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], [1, 1, 1])
    assert learner.mistakes_ == 3
    assert len(learner.points_) == 1


def test_a_kernel_that_is_not_semidefinite_is_refused():
    def indefinite(A, B):
        return 1 - 2 * (A - B.T) ** 2

    with pytest.raises(ValueError, match=r"not positive semidefinite: the squared distance of \[0.4\]"):
        KernelWinnow(kernel=indefinite, theta=10.0).fit([[0.0], [0.9], [0.4]], [1, 1, 1])


# --- Batch --------------------------------------------------------------------------------------------


def unit_stream(rng, n, count):
    x = rng.normal(size=(count, n)) * np.where(
        rng.random((count, 1)) < 0.5, np.arange(n) < 1, np.arange(n) > 0
    )
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.where(x[:, 0] != 0, 1.0, -1.0)


def test_a_random_hypothesis_errs_as_often_as_the_stream():
    # Over all orders of five examples, the last one being new, both sides are equal: no randomness is left.
    rng = np.random.default_rng(6)
    X, y = unit_stream(rng, 3, 5)
    y[2] *= -1
    errors, vote_errors, mistakes = [], [], []
    for order in itertools.permutations(range(5)):
        *first, last = order
        batch = OnlineToBatch(MatrixWinnow()).fit(X[first], y[first])
        wrong = [h.predict(X[[last]])[0] != y[last] for h in batch.hypotheses_]
        errors.append(wrong @ batch.survivals_ / batch.survivals_.sum())
        vote_errors.append(batch.predict(X[[last]])[0] != y[last])
        mistakes.append(MatrixWinnow().fit(X[list(order)], y[list(order)]).mistakes_)
    assert np.mean(errors) == pytest.approx(np.mean(mistakes) / 5)
    assert np.mean(vote_errors) <= 2 * np.mean(mistakes) / 5


@pytest.mark.parametrize("kind", ["vote", "random"])
def test_the_bounds_on_errors(kind):
    rng = np.random.default_rng(7)
    errors, excess = [], 0
    for seed in range(100):
        X, y = unit_stream(rng, 6, 150)
        batch = OnlineToBatch(MatrixWinnow(), kind, seed).fit(X, y)
        X, y = unit_stream(rng, 6, 300)
        errors.append(np.mean(batch.predict(X) != y))
        excess += errors[-1] > batch.error_bound(0.1)
    assert np.mean(errors) <= batch.expected_error_bound()
    assert excess <= 10
    assert batch.expected_error_bound(3.0) == pytest.approx((2 if kind == "vote" else 1) * 3 / 151)
    assert batch.survivals_.sum() == 151
    assert len(batch.hypotheses_) == batch.learner_.mistakes_ + 1


@pytest.mark.parametrize("learner", [MatrixWinnow(), KernelWinnow(), GeneralMatrixWinnow(), PairWinnow()])
def test_votes_are_those_of_the_hypotheses(learner):
    rng = np.random.default_rng(8)
    shape = {"GeneralMatrixWinnow": (40, 3, 3), "PairWinnow": (40, 2, 3)}.get(type(learner).__name__, (40, 3))
    X, y = rng.normal(size=shape) / 10, rng.choice([-1.0, 1.0], 40)
    batch = OnlineToBatch(learner).fit(X, y)
    votes = sum(c * h.predict(X) for h, c in zip(batch.hypotheses_, batch.survivals_, strict=True))
    np.testing.assert_array_equal(batch.predict(X), np.where(votes >= 0, 1, -1))
    np.testing.assert_allclose(batch.decision_function(X), votes / 41)
    last = clone(learner).fit(X, y)
    np.testing.assert_array_equal(batch.hypotheses_[-1].decision_function(X), last.decision_function(X))
    again = pickle.loads(pickle.dumps(batch))
    np.testing.assert_array_equal(again.predict(X), batch.predict(X))
    assert cross_val_score(batch, X, y, cv=3).shape == (3,)
    assert not hasattr(learner, "steps_")


# --- Pairs --------------------------------------------------------------------------------------------


def test_pairs_are_differences_of_at_most_the_radius():
    rng = np.random.default_rng(9)
    pairs, y = rng.normal(size=(100, 2, 4)), rng.choice([-1.0, 1.0], 100)
    learner = PairWinnow(rank=2, radius=2.0).fit(pairs, y)
    z = (pairs[:, 0] - pairs[:, 1]) / 2
    z = np.array([d / max(1.0, np.linalg.norm(d)) for d in z])
    plain = MatrixWinnow(rank=2).fit(z, -y)
    np.testing.assert_allclose(learner.W_, plain.W_, atol=1e-12)
    np.testing.assert_array_equal(learner.predict(pairs), -plain.predict(z))
    np.testing.assert_allclose(learner.decision_function(pairs), -plain.decision_function(z), atol=1e-12)
    assert learner.score(pairs, y) == np.mean(learner.predict(pairs) == y)


def test_pairs_of_classes_are_learned():
    rng = np.random.default_rng(10)
    centers = np.eye(8)[rng.integers(2, size=(3000, 2))] * 4  # the classes differ in two of eight directions
    pairs = centers + 0.3 * rng.normal(size=(3000, 2, 8))
    y = np.where((centers[:, 0] == centers[:, 1]).all(axis=1), 1.0, -1.0)
    learner = OnlineToBatch(PairWinnow(radius=4.0)).fit(pairs[:2000], y[:2000])
    assert learner.score(pairs[2000:], y[2000:]) > 0.97


# --- Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "X", "message"),
    [
        (MatrixWinnow(loss_limit=-1), [[1.0, 0.0]], "loss_limit is -1"),
        (MatrixWinnow(floor=1.0), [[1.0, 0.0]], "floor is 1; expected a number from 0 on"),
        (MatrixWinnow(floor=0.1, normalize=True), [[1.0, 0.0]], "floor is 0.1 with normalize"),
        (KernelWinnow(kernel="rbff"), [[1.0, 0.0]], "kernel is 'rbff'; did you mean 'rbf'"),
        (KernelWinnow(gamma=-1.0), [[1.0, 0.0]], "gamma is -1"),
        (KernelWinnow(kernel="linear"), [[1.0, 1.0]], r"X\[0\] has k\(x, x\) = 2; expected 0 to 1"),
        (KernelWinnow(kernel=lambda A, B: np.eye(3)), [[1.0, 1.0]], "the kernel's value has shape"),
        (KernelWinnow(w0=0.1, floor=0.2), [[1.0, 0.0]], "floor is 0.2; expected a number from 0 to w0 = 0.1"),
        (KernelWinnow(), np.ones((2, 2, 2)), "X has 3 dimensions"),
        (PairWinnow(), [[1.0, 0.0]], r"X has shape \(1, 2\); expected \(T, 2, d\)"),
        (PairWinnow(radius=0), np.ones((1, 2, 2)), "radius is 0"),
        (OnlineToBatch(MatrixWinnow(), "votes"), [[1.0, 0.0]], "hypothesis is 'votes'; did you mean 'vote'"),
        (OnlineToBatch("Winnow"), [[1.0, 0.0]], "learner is 'Winnow'"),
        (OnlineToBatch(MatrixWinnow()), [[1.0, 1.0]], r"X\[0\] has eigenvalues from 0 to 2"),
    ],
)
def test_bad_parameters_and_instances(learner, X, message):
    with pytest.raises((TypeError, ValueError), match=message):
        learner.fit(X, -np.ones(len(X)))
    assert not hasattr(learner, "classes_")


def test_bad_comparators():
    learner = MatrixWinnow(floor=0.01).fit(np.eye(3), [1, -1, -1])
    for arguments, message in [
        ({"loss": -1}, "loss is -1"),
        ({"shift": -1}, "shift is -1"),
        ({"U": np.eye(3), "rank": 1}, "U is given with rank or shift"),
        ({"U": 2 * np.eye(3)}, "U has the eigenvalue 2"),
        ({"U": np.eye(2)}, r"U has shape \(2, 2\)"),
        ({"rank": 0}, "rank is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            learner.mistake_bound(**arguments)
    batch = OnlineToBatch(learner).fit(np.eye(3), [1, -1, -1])
    with pytest.raises(ValueError, match="delta is 1"):
        batch.error_bound(1.0)
    # A target that is smaller has a hinge loss instead.
    assert learner.mistake_bound(U=np.diag([0.5, 0, 0]), loss=0) > 0
    assert MatrixWinnow(normalize=True).fit(np.eye(3), [1, -1, -1]).mistake_bound(shift=1) == math.inf
    state = meg.init(np.eye(2))
    assert winnow.update(state, np.ones(2) / 2, 1.0, 1.0, floor=0.5).W.max() <= 1 + 1e-12
