"""Losses of the online learners, implicit updates, instances of any rank, and the bounds of each."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, turns
from scipy.linalg import expm, logm

pytest.importorskip("sklearn")

from sklearn.base import clone

from bregopt.online import (
    MEG,
    BurgGradient,
    Loss,
    MatrixBurgGradient,
    OnlineLogDetMetric,
    burg,
    huber,
    matrix_burg,
    meg,
)
from bregopt.online.losses import LOSSES, SQUARE, find_loss, implicit_step
from bregopt.online.meg import relative_entropy

N = 4
QUANTILE = Loss(lambda p, y: max(0.9 * (y - p), 0.1 * (p - y)), lambda p, y: 0.1 if p > y else -0.9)
LOGISTIC = Loss(  # of the labels' own sign; smooth, with the constant y^2 / 4
    lambda p, y: float(np.logaddexp(0, -y * p)), lambda p, y: -y / (1 + math.exp(y * p)), smoothness=1 / 4
)
ALL = {**LOSSES, "huber 0.1": huber(0.1), "quantile": QUANTILE, "logistic": LOGISTIC}
STREAMS = examples(50)
SEEDS = st.integers(0, 2**32 - 1)
UPDATES = st.sampled_from(["explicit", "implicit"])


def density(rng, n=N, imaginary=0.0, rank=None):
    G = rng.normal(size=(n, rank or n)) + imaginary * 1j * rng.normal(size=(n, rank or n))
    W = G @ G.conj().T
    W = W if imaginary else W.real
    return W / np.trace(W).real


def hermitian(rng, n=N, imaginary=0.0):
    A = rng.normal(size=(n, n)) + imaginary * 1j * rng.normal(size=(n, n))
    A = (A + A.conj().T) / 2
    return A if imaginary else A.real


def subgradients(loss, p, y, h=1e-7):
    """Return the derivatives just below and above a prediction."""
    return loss.derivative(p - h, y) - 1e-6, loss.derivative(p + h, y) + 1e-6


def label(name, rng):
    return float(rng.choice([-1.0, 1.0])) if name in ("hinge", "logistic") else float(rng.normal())


# --- Losses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_derivative_inverse_and_constants_of_losses(name):
    loss, rng, h = ALL[name], np.random.default_rng(0), 1e-6
    for _ in range(300):
        y = label(name, rng)
        p, q = 2 * rng.normal(size=2)
        value, g = loss.value(p, y), loss.derivative(p, y)
        low, high = (loss.value(p + s * h, y) for s in (-1, 1))
        assert value >= 0
        assert (value - low) / h - 1e-5 <= g <= (high - value) / h + 1e-5
        assert loss.value(q, y) >= value + g * (q - p) - 1e-12  # convex
        assert abs(loss.derivative(q, y) - g) <= loss.smoothness * abs(p - q) + 1e-12
        if loss.inverse is not None and abs(g) > 1e-6:
            inside = 0.7 * g
            low, high = subgradients(loss, loss.inverse(inside, y), y)
            assert low <= inside <= high
    predictions, labels = rng.normal(size=9), np.sign(rng.normal(size=9))
    total = sum(loss.value(p, y) for p, y in zip(predictions, labels, strict=True))
    assert loss.total(predictions, labels) == pytest.approx(total)


def test_huber_is_the_square_and_its_tangent():
    loss = huber(0.5)
    assert [loss.value(e, 0) for e in (0.3, -0.5, 0.5, 2)] == [0.3**2, 0.25, 0.25, 0.5 * (4 - 0.5)]
    assert [loss.derivative(e, 0) for e in (0.3, -2, 2)] == [0.6, -1, 1]


# --- Explicit and implicit updates against what defines them ------------------------------------------


@pytest.mark.parametrize(
    ("kind", "imaginary", "normalize", "name"), turns(["vector", "matrix"], [0.0, 1.0], [True, False], ALL)
)
def test_meg_updates(kind, imaginary, normalize, name):
    loss = ALL[name]
    rng = np.random.default_rng(1)
    for eta in (0.1, 1.0, 3.0):
        W = density(rng, imaginary=imaginary)
        x = rng.normal(size=N) + (1j * rng.normal(size=N) if imaginary else 0)
        x = x if kind == "vector" else hermitian(rng, imaginary=imaginary)
        X = np.outer(x, x.conj()) if x.ndim == 1 else x
        y, state, p = label(name, rng), meg.init(W), np.trace(W @ X).real
        explicit = expm(logm(W) - eta * loss.derivative(p, y) * X)
        explicit /= np.trace(explicit).real if normalize else 1
        got = meg.update(state, x, y, eta, normalize, loss).W
        np.testing.assert_allclose(got, explicit, atol=1e-9 * np.abs(explicit).max())

        moved = meg.implicit_update(state, x, y, eta, normalize, loss)
        step = -np.vdot(X, moved.G - state.G).real / np.vdot(X, X).real
        expected = expm(logm(W) - step * X)
        expected /= np.trace(expected).real if normalize else 1
        np.testing.assert_allclose(moved.W, expected, atol=1e-9 * np.abs(expected).max())
        low, high = subgradients(loss, np.trace(moved.W @ X).real, y)
        assert low <= step / eta <= high


@pytest.mark.parametrize("name", ALL)
def test_implicit_meg_minimizes_divergence_and_loss(name):
    loss, rng, eta = ALL[name], np.random.default_rng(2), 0.8

    def objective(V, W, X, y):
        return np.trace(V @ (logm(V) - logm(W))).real + eta * loss.value(np.trace(V @ X).real, y)

    for _ in range(5):
        W, X, y = density(rng, imaginary=1.0), hermitian(rng, imaginary=1.0), label(name, rng)
        best = meg.implicit_update(meg.init(W), X, y, eta, loss=loss).W
        least = objective(best, W, X, y)
        for size in (0.01, 0.1, 0.5):
            other = (1 - size) * best + size * density(rng, imaginary=1.0)
            assert objective(other, W, X, y) >= least - 1e-12


@pytest.mark.parametrize("name", ALL)
def test_implicit_burg(name):
    loss, rng = ALL[name], np.random.default_rng(3)
    for eta in (0.01, 0.3, 10.0):
        w, x, y = rng.uniform(0.1, 1, N), rng.normal(size=N), label(name, rng)
        seen = burg.trial(w, x)
        step, rate = burg.implicit(seen, y, eta, loss)
        moved = burg.move(w, seen, step)
        np.testing.assert_allclose(1 / moved, 1 / w + step * x, rtol=1e-10)
        low, high = subgradients(loss, moved @ x, y)
        assert 0 < rate <= eta
        assert rate == eta or (step * w * x).min() == pytest.approx(-0.5)
        assert low <= step / rate <= high

        W, Z = density(rng), rng.normal(size=(N, 2))
        state = matrix_burg.init(W, 1.0)
        seen = matrix_burg.trial(state, Z)
        step, rate = burg.implicit(seen, y, eta, loss)
        moved = matrix_burg.move(state, seen, step).W
        np.testing.assert_allclose(np.linalg.inv(moved), np.linalg.inv(W) + step * Z @ Z.T, rtol=1e-8)
        low, high = subgradients(loss, np.trace(moved @ Z @ Z.T), y)
        assert low <= step / rate <= high
        assert np.linalg.eigvalsh(moved)[-1] < 1


@pytest.mark.parametrize("name", ["square", "huber", "absolute", "hinge"])
def test_steps_with_and_without_the_inverse_agree(name):
    loss, rng = LOSSES[name], np.random.default_rng(4)
    without = Loss(loss.value, loss.derivative)
    calls = []
    for _ in range(50):
        y, eta, p, slope = label(name, rng), rng.uniform(0.1, 10), 3 * rng.normal(), rng.uniform(0.1, 3)

        def predict(step, p=p, slope=slope):
            calls.append(step)
            return p - math.sinh(slope * step)

        farthest = eta * loss.derivative(p, y)
        steps = [implicit_step(choice, y, eta, predict, farthest) for choice in (loss, without)]
        assert steps[0] == pytest.approx(steps[1], abs=1e-10 * (1 + abs(farthest)))
    assert len(calls) < 50 * 75


# --- Streams against literal transcriptions -----------------------------------------------------------


@pytest.mark.parametrize("name", ["huber 0.1", "absolute", "hinge", "quantile"])
def test_learners_on_a_stream(name):
    loss, rng, T = ALL[name], np.random.default_rng(5), 30
    X = np.array([hermitian(rng, imaginary=1.0) for _ in range(T)])
    y = np.array([label(name, rng) for _ in range(T)])
    learner = MEG(eta=0.2, r=None, loss=loss).fit(X, y)
    W, total = np.eye(N) / N, 0.0
    for X_t, y_t in zip(X, y, strict=True):
        p = np.trace(W @ X_t).real
        total += loss.value(p, y_t)
        W = expm(logm(W) - 0.2 * loss.derivative(p, y_t) * X_t)
        W = (W + W.conj().T) / (2 * np.trace(W).real)
    np.testing.assert_allclose(learner.W_, W, atol=1e-10)
    assert learner.loss_ == pytest.approx(total)

    x = rng.uniform(0, 1, (T, N))
    learner, w = BurgGradient(eta=0.1, loss=loss).fit(x, y), np.full(N, 1 / N)
    for x_t, y_t in zip(x, y, strict=True):
        g, share = loss.derivative(w @ x_t, y_t), w * x_t
        fall = max(-(g * share).min(), 1e-9)
        smooth = 1 / (2 * loss.smoothness * (share @ share)) if loss.smoothness < math.inf else 0.1
        eta = min(0.1, 1 / (2 * fall), smooth)
        w = 1 / (1 / w + eta * g * x_t)
    np.testing.assert_allclose(learner.w_, w, rtol=1e-10)


@pytest.mark.parametrize("rates", ["adaptive", "decreasing"])
@pytest.mark.parametrize("rank", [1, 2, N])
def test_matrix_burg_with_instances_of_any_rank(rank, rates):
    rng, T = np.random.default_rng(6), 40
    Z = rng.normal(size=(T, N, rank)) / 2
    X = Z @ Z.swapaxes(1, 2)
    y = np.einsum("tij,ji->t", X, 0.9 * density(rng)) * rng.uniform(0.5, 1.5, T)
    learner = MatrixBurgGradient(eta=0.5, rates=rates).fit(X if rank == N else Z, y)
    W, inside, rate = np.eye(N) / N, np.eye(N), 0.5
    for X_t, y_t in zip(X, y, strict=True):
        p, eta = np.trace(W @ X_t), rate
        if rates == "adaptive":
            eta = min(0.5, 1 / (4 * np.trace(W @ X_t @ W @ X_t)))
        if p < y_t:  # half of the limit for inv(W) - I
            outside = np.linalg.inv(np.linalg.inv(W) - inside) @ X_t
            eta = min(eta, 1 / (4 * (y_t - p) * np.linalg.eigvals(outside).real.max()))
        rate = eta
        W = np.linalg.inv(np.linalg.inv(W) + 2 * eta * (p - y_t) * X_t)
        assert np.linalg.eigvalsh(W)[-1] < 1
    np.testing.assert_allclose(learner.W_, W, atol=1e-9)
    assert learner.rates_[1] <= 0.5
    np.testing.assert_allclose(learner.predict(X), np.einsum("tij,ji->t", X, W), atol=1e-9)


def test_forms_of_instances_agree():
    rng = np.random.default_rng(7)
    z = rng.normal(size=(30, N))
    y = rng.uniform(0, 1, 30)
    forms = [z, z[:, :, None], z[:, :, None] * z[:, None, :]]
    vectors, factors, matrices = (MatrixBurgGradient().fit(X, y) for X in forms)
    np.testing.assert_allclose(factors.W_, vectors.W_, rtol=1e-12)
    np.testing.assert_allclose(matrices.W_, vectors.W_, rtol=1e-10)
    # Zero matrices, and ranks that differ.
    X = [np.zeros((N, N)), np.diag([1.0, 0, 0, 2]), np.ones((N, N)), np.eye(N)]
    learner = MatrixBurgGradient(ceiling=None).fit(X, [0.3, 0.2, 0.9, 0.1])
    assert learner.loss_ > 0.09
    assert np.linalg.eigvalsh(learner.W_)[0] > 0


def test_metric_takes_losses_and_implicit_updates():
    rng = np.random.default_rng(11)
    pairs, y = rng.normal(size=(40, 2, 3)), rng.uniform(0, 2, 40)
    settings = {"eta": 0.3, "loss": huber(0.1), "update": "implicit", "rates": "decreasing"}
    metric = OnlineLogDetMetric(**settings).fit(pairs, y)
    plain = MatrixBurgGradient(ceiling=None, W1=np.eye(3), **settings).fit(pairs[:, 0] - pairs[:, 1], y)
    np.testing.assert_array_equal(metric.W_, plain.W_)
    assert metric.loss_ == plain.loss_ > 0


def test_meg_is_invariant_under_unitary_rotations():
    rng = np.random.default_rng(12)
    Q = np.linalg.qr(rng.normal(size=(N, N)) + 1j * rng.normal(size=(N, N)))[0]
    x = rng.normal(size=(40, N)) / N
    y, W1 = rng.uniform(0, 1, 40), density(rng)
    for update in ("explicit", "implicit"):
        real = MEG(r=4.0, W1=W1, update=update).fit(x, y)
        rotated = MEG(r=4.0, W1=Q @ W1 @ Q.conj().T, update=update).fit(x @ Q.T, y)
        np.testing.assert_allclose(rotated.W_, Q @ real.W_ @ Q.conj().T, atol=1e-10)
        assert rotated.eta_ == pytest.approx(real.eta_)
        U = density(rng)
        bound = rotated.loss_bound(Q @ U @ Q.conj().T, 1.0)
        assert bound == pytest.approx(real.loss_bound(U, 1.0))
        real.partial_fit(1j * x, y)  # complex instances after real ones; i x stands for the same matrix
        np.testing.assert_allclose(rotated.partial_fit(x @ Q.T, y).W_, Q @ real.W_ @ Q.conj().T, atol=1e-9)
    with pytest.raises(ValueError, match=r"X\[0\] has eigenvalues of range 2; expected at most r = 1"):
        MEG().fit([[[0, 1j], [-1j, 0]]], [1.0])


def test_diagonal_matrices_are_the_vector_learner():
    rng = np.random.default_rng(8)
    x, y = rng.uniform(0, 1, (50, N)), rng.uniform(0, 1, 50)
    for update in ("explicit", "implicit"):
        matrix = MatrixBurgGradient(0.3, None, update=update).fit(np.array([np.diag(a) for a in x]), y)
        vector = BurgGradient(0.3, update=update).fit(x, y)
        np.testing.assert_allclose(matrix.W_, np.diag(vector.w_), atol=1e-10)
        assert matrix.loss_ == pytest.approx(vector.loss_)


# --- Bounds -------------------------------------------------------------------------------------------


def labeled(name, rng, fitted, noise):
    """Return labels for fitted predictions, with errors; for losses of signs, their signs with flips."""
    y = fitted + noise * rng.standard_t(2, size=len(fitted))
    return np.where(y > np.median(fitted), 1.0, -1.0) if name in ("hinge", "logistic") else y


def holds(learner, comparator, predictions, y):
    bound = learner.loss_bound(comparator, learner.loss_function_.total(predictions, y))
    assert learner.loss_ <= bound * (1 + 1e-9) + 1e-9
    return bound


def check_one_trial(loss, update, eta, curvature, progress, p, u, y):
    """Assert the inequalities of `bregopt.online.learner` for one update."""
    g, lp, lu = loss.derivative(p, y), loss.value(p, y), loss.value(u, y)
    assert eta * (lp - lu) <= progress + (eta * g) ** 2 * curvature + 1e-9
    if loss.smoothness < math.inf:
        q = 2 * loss.smoothness * eta * curvature
        if update == "implicit":
            assert eta * lp / (1 + q) <= eta * lu + progress + 1e-9
        elif q < 1:
            assert eta * lp <= eta * lu / (1 - q) + progress + 1e-9


@STREAMS
@given(SEEDS, st.sampled_from(list(ALL)), UPDATES)
def test_one_trial(seed, name, update):
    loss, rng = ALL[name], np.random.default_rng(seed)
    n, eta, y = int(rng.integers(1, 4)), 10 ** rng.uniform(-2, 1), label(name, rng)

    W, U, X = density(rng, n), density(rng, n), hermitian(rng, n)
    step = meg.implicit_update if update == "implicit" else meg.update
    moved, w = step(meg.init(W), X, y, eta, loss=loss), np.linalg.eigvalsh(X)
    progress = relative_entropy(U, W) - np.vdot(U, logm(U) - moved.G).real - logsumexp(moved.G)
    p, u = np.vdot(W, X), np.vdot(U, X)
    check_one_trial(loss, update, eta, (w[-1] - w[0]) ** 2 / 8, progress, p, u, y)

    w, v, x = rng.uniform(0.01, 1, n), rng.uniform(0.01, 1, n), rng.normal(size=n)
    seen = burg.trial(w, x)
    if update == "implicit":
        moved, eta = burg.implicit(seen, y, eta, loss)
    else:
        eta = min(eta, burg.rate_limit(seen, loss.derivative(seen.prediction, y)))
        moved = eta * loss.derivative(seen.prediction, y)
    progress = burg.divergence(v, w) - burg.divergence(v, burg.move(w, seen, moved))
    check_one_trial(loss, update, eta, seen.square, progress, seen.prediction, v @ x, y)


def logsumexp(G):
    w = np.linalg.eigvalsh(G)
    return w[-1] + math.log(np.exp(w - w[-1]).sum())


@STREAMS
@given(
    SEEDS, st.sampled_from(list(ALL)), UPDATES, st.sampled_from([0.0, 0.3, 2.0]), st.booleans(), st.booleans()
)
def test_bounds_of_meg(seed, name, update, noise, vectors, shifting):
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(1, 6)), 40
    r, imaginary = rng.uniform(0.3, 3), float(rng.integers(2))
    if vectors:
        x = rng.normal(size=(T, n)) + imaginary * 1j * rng.normal(size=(T, n))
        x *= np.sqrt(r) / np.linalg.norm(x, axis=1, keepdims=True)
        X = np.einsum("ti,tj->tij", x, x.conj())
    else:
        X = np.array([hermitian(rng, n, imaginary) for _ in range(T)])
        w = np.linalg.eigvalsh(X)
        X *= (0.999 * r / np.maximum(w[:, -1] - w[:, 0], 1e-3))[:, None, None] if n > 1 else 1.0
        x = X
    U, V = density(rng, n, imaginary), density(rng, n, imaginary, rank=1)
    fitted = np.einsum("ij,tji->t", U, X).real
    truth = np.where(np.arange(T) < T // 2, fitted, np.einsum("ij,tji->t", V, X).real)
    y = labeled(name, rng, truth if shifting else fitted, noise)
    eta = rng.choice([0.1, 0.9, 5.0]) * 2 / r**2
    learner = MEG(eta=eta, r=r, loss=ALL[name], update=update).fit(x, y)
    bound = holds(learner, U, fitted, y)
    smooth = learner.loss_function_.smoothness
    assert math.isfinite(bound) == (update == "implicit" or smooth == math.inf or eta * smooth * r**2 < 4)


@STREAMS
@given(
    SEEDS, st.sampled_from(list(ALL)), UPDATES, st.sampled_from([0.0, 0.3, 2.0]), st.booleans(), st.booleans()
)
def test_bounds_of_burg(seed, name, update, noise, decreasing, shifting):
    rng = np.random.default_rng(seed)
    n, T, eta = int(rng.integers(1, 6)), 40, 10 ** rng.uniform(-2, 1)
    rates, loss = "decreasing" if decreasing else "adaptive", ALL[name]
    u, v = rng.uniform(0.01, 2, (2, n))
    X = rng.normal(size=(T, n)) * rng.uniform(0.1, 2)
    fitted = X @ u
    truth = np.where(np.arange(T) < T // 2, fitted, X @ v) if shifting else fitted
    y = labeled(name, rng, truth, noise)
    learner = BurgGradient(eta, loss=loss, update=update, rates=rates).fit(X, y)
    assert learner.w_.min() > 0
    assert math.isfinite(holds(learner, u, fitted, y))

    Z = rng.normal(size=(T, n, int(rng.integers(1, n + 1)))) * rng.uniform(0.1, 1)
    X = Z @ Z.swapaxes(1, 2)
    U = 2 * density(rng, n)
    fitted = np.einsum("ij,tji->t", U, X)
    y = labeled(name, rng, fitted, noise)
    ceiling = rng.choice([None, 1.0, 2.5])
    learner = MatrixBurgGradient(eta, ceiling, loss=loss, update=update, rates=rates)
    learner.fit(X if Z.shape[2] == n else Z, y)
    w = np.linalg.eigvalsh(learner.W_)
    assert w[0] > 0
    assert ceiling is None or w[-1] < ceiling
    holds(learner, U, fitted, y)


def test_implicit_updates_have_a_bound_at_rates_where_explicit_ones_have_none():
    U, X = np.diag([0.9, 0.1]), np.diag([1.0, 0.0])
    explicit = MEG(eta=50.0).fit([X] * 200, np.full(200, 0.9))
    implicit = MEG(eta=50.0, update="implicit").fit([X] * 200, np.full(200, 0.9))
    assert explicit.loss_ > 10 * implicit.loss_bound(U)
    assert explicit.loss_bound(U) == math.inf
    assert implicit.loss_ <= implicit.loss_bound(U) < 1


def test_robust_losses_ignore_outliers():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(3000, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    U = np.diag([0.7, 0.2, 0.1])
    y = np.einsum("ti,ij,tj->t", x, U, x) + 10 * (rng.random(3000) < 0.05)
    far = {
        name: np.abs(MEG(eta=0.05, loss=loss).fit(x, y).W_ - U).max()
        for name, loss in [("square", "square"), ("huber", huber(0.1)), ("absolute", "absolute")]
    }
    assert max(far["huber"], far["absolute"]) < 0.3 * far["square"]


def test_default_rate_is_the_best_for_its_smoothness():
    for smoothness in (0.25, 2.0, 8.0):
        best = meg.learning_rate(1.5, 2.0, 0.7, smoothness)
        bounds = [meg.loss_bound(2.0, 0.7, best * s, 1.5, smoothness) for s in (0.95, 1, 1.05)]
        assert min(bounds) == bounds[1]
    x = [[1.0, 0.0]]
    assert MEG(loss=huber(0.1)).fit(x, [1.0]).eta_ == MEG().fit(x, [1.0]).eta_ == 2.0
    assert MEG(loss=LOGISTIC).fit(x, [1.0]).eta_ == pytest.approx(16.0)


# --- What a user may rely on --------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [MEG, BurgGradient, MatrixBurgGradient])
@pytest.mark.parametrize("loss", [*LOSSES, huber(0.3)])
def test_goes_on_identically_after_pickling(cls, loss):
    rng = np.random.default_rng(10)
    x, y = rng.uniform(-0.5, 0.5, (40, 3)), rng.choice([-1.0, 1.0], 40)
    learner = cls(eta=0.3, loss=loss, update="implicit")
    whole = clone(learner).fit(x, y)
    half = pickle.loads(pickle.dumps(clone(learner).partial_fit(x[:20], y[:20]))).partial_fit(x[20:], y[20:])
    assert half.loss_ == whole.loss_
    np.testing.assert_array_equal(half.predict(x), whole.predict(x))


@pytest.mark.parametrize(
    ("learner", "X", "y", "message"),
    [
        (MEG(loss="cubic"), [[1.0, 0]], [1.0], "loss is 'cubic'; expected one of square, huber"),
        (BurgGradient(loss=abs), [[1.0, 0]], [1.0], "loss is <built-in function abs>; expected a name, or"),
        (MEG(update="lazy"), [[1.0, 0]], [1.0], "update is 'lazy'; expected 'explicit' or"),
        (MatrixBurgGradient(rates="constant"), [[1.0, 0]], [1.0], "rates is 'constant'; expected"),
        (MEG(eta=1.0, loss="hinge"), [[1.0, 0]], [0.5], r"y\[0\] is 0.5; expected 1 or -1"),
        (MEG(loss="absolute"), [[1.0, 0]], [1.0], "eta is None; expected a learning rate, as the loss"),
        (MatrixBurgGradient(), [np.diag([1.0, -1])], [1.0], r"X\[0\] is not symmetric positive semidefinite"),
        (MatrixBurgGradient(), [np.eye(2), [[1, 1], [0, 1]]], [1.0, 1], r"X\[1\] is not symmetric positive"),
        (MatrixBurgGradient(), np.ones((1, 2, 3)), [1.0], r"X has shape \(1, 2, 3\); expected \(T, n\) for"),
        (MatrixBurgGradient(), np.ones((1, 2, 0)), [1.0], r"X is empty, of shape \(1, 2, 0\)"),
        (OnlineLogDetMetric(loss=3), np.ones((1, 2, 3)), [1.0], "loss is 3; expected a name"),
    ],
)
def test_bad_parameters_and_instances(learner, X, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        learner.partial_fit(X, y)
    assert not hasattr(learner, "steps_")


def test_a_loss_that_is_not_one_stops_the_trial():
    broken = Loss(lambda p, y: p - y, lambda p, y: 1.0)
    learner = MEG(eta=0.1, loss=broken).partial_fit([[1.0, 0.0]], [0.0])
    before = pickle.dumps(learner.state_)
    with pytest.raises(ValueError, match="loss has the value -"):
        learner.partial_fit([[1.0, 0.0]], [3.0])
    assert learner.steps_ == 1
    assert pickle.dumps(learner.state_) == before
    with pytest.raises(ValueError, match="threshold is 0"):
        huber(0)
    with pytest.raises(TypeError, match="derivative is 1; expected a function of two numbers"):
        Loss(abs, 1)
    with pytest.raises(ValueError, match="smoothness is 0; expected a number above 0"):
        Loss(abs, abs, smoothness=0)


def test_names():
    assert find_loss("square") is SQUARE
    assert find_loss(QUANTILE) is QUANTILE
