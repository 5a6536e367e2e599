"""Online learners: updates against their definitions, and the interface."""

import math
import pickle

import numpy as np
import peers
import pytest
from samples import first, turns
from scipy.linalg import block_diag, expm, logm
from scipy.optimize import root

import bregopt as bo

pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import cross_val_score

from bregopt.online import (
    MEG,
    BurgGradient,
    GeneralMatrixWinnow,
    KernelWinnow,
    MatrixBurgGradient,
    MatrixWinnow,
    OnlineLogDetMetric,
    PairWinnow,
    burg,
    general_winnow,
    gradient,
    matrix_burg,
    meg,
    winnow,
)

N = 3


def random_density(rng, n=N):
    G = rng.normal(size=(n, n))
    W = G @ G.T + 0.1 * np.eye(n)
    return W / np.trace(W)


def unit_rows(rng, count, n=N):
    x = rng.normal(size=(count, n))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def log(W):
    w, V = np.linalg.eigh(W)
    return (V * np.log(w)) @ V.T


def stationary(gradient_of, W0, trace=None):
    """Solve ``gradient_of(W) = multiple of I`` (zero without a trace) numerically for a symmetric matrix."""
    n = len(W0)
    i, j = np.triu_indices(n)

    def unpack(v):
        W = np.zeros((n, n))
        W[i, j] = v[: len(i)]
        return W + np.triu(W, 1).T

    def residual(v):
        free = [] if trace is None else [np.trace(unpack(v)) - trace]
        level = 0.0 if trace is None else v[-1]
        return np.concatenate([(gradient_of(unpack(v)) + level * np.eye(n))[i, j], free])

    v = np.concatenate([W0[i, j], [] if trace is None else [0.0]])
    for _ in range(50):  # Newton's method with central differences, inside the cone
        h = 1e-5 * np.linalg.eigvalsh(unpack(v))[0]
        J = np.array([(residual(v + h * e) - residual(v - h * e)) / (2 * h) for e in np.eye(len(v))]).T
        step = np.linalg.solve(J, -residual(v))
        while np.linalg.eigvalsh(unpack(v + step))[0] <= 0:
            step = step / 2
        v = v + step
    assert np.abs(residual(v)).max() < 1e-11
    return unpack(v)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


# --- Each update is the argmin of divergence plus linearized loss -------------------------------------


@pytest.mark.parametrize(("normalize", "seed"), turns([True, False], range(3)))
def test_meg_is_the_argmin(normalize, seed):
    rng = np.random.default_rng(seed)
    W, X, y, eta = random_density(rng), rng.normal(size=(N, N)), 0.7, 0.3
    sym = (X + X.T) / 2
    slope = 2 * eta * (np.trace(W @ X) - y) * sym
    expected = stationary(lambda V: log(V) - log(W) + slope, W, 1.0 if normalize else None)
    close(meg.update(meg.init(W), sym, y, eta, normalize).W, expected)


@pytest.mark.parametrize("seed", range(3))
def test_burg_is_the_argmin(seed):
    rng = np.random.default_rng(seed)
    w, x = rng.uniform(0.1, 1, N), rng.normal(size=N)
    y = w @ x + 0.3
    eta = burg.largest_rate(w, x, y)
    found = root(lambda v: 1 / w - 1 / v + 2 * eta * (w @ x - y) * x, w, tol=1e-15)
    close(burg.update(w, x, y, eta), found.x)


@pytest.mark.parametrize("ceiling", [1.0, None])
@pytest.mark.parametrize("seed", range(3))
def test_matrix_burg_is_the_argmin(ceiling, seed):
    rng = np.random.default_rng(seed)
    W, z = random_density(rng), rng.normal(size=N)
    state = matrix_burg.init(W, ceiling)
    y = z @ W @ z + (0.2 if seed else -0.2)
    eta = matrix_burg.largest_rate(state, z, y)
    slope = 2 * eta * (z @ W @ z - y) * np.outer(z, z)
    inverse = np.linalg.inv(W)
    expected = stationary(lambda V: inverse - np.linalg.inv(V) + slope, W)
    close(matrix_burg.update(state, z, y, eta).W, expected)


@pytest.mark.parametrize("y", [1.0, -1.0])
@pytest.mark.parametrize("trace", [None, 1.5])
def test_winnow_is_the_argmin(y, trace):
    rng = np.random.default_rng(5)
    W = random_density(rng) * 1.5
    x = unit_rows(rng, 1)[0]
    expected = stationary(lambda V: log(V) - log(W) - winnow.ETA * y * np.outer(x, x), W, trace)
    close(winnow.update(meg.init(W), x, y, winnow.ETA, trace).W, expected)


@pytest.mark.parametrize("normalize", [True, False])
def test_general_winnow_is_the_symmetric_one_on_embedded_instances(normalize):
    rng = np.random.default_rng(6)
    m, n, w0, eta = 3, 2, 0.2, 0.4
    state, W = general_winnow.init(m, n), w0 * np.eye(m + n)
    for y in (1.0, -1.0, 1.0, 1.0):
        X = rng.normal(size=(m, n)) / 4
        embedded = np.block([[np.zeros((n, n)), X.T], [X, np.zeros((m, m))]])
        W = stationary(
            lambda V, W=W, E=embedded, y=y: log(V) - log(W) - eta * y * E, W, w0 * 5 if normalize else None
        )
        state = general_winnow.update(state, X, y, eta, w0, normalize)
        close(state.R, 2 * W[n:, :n])
        Y = rng.normal(size=(m, n))
        embedded = np.block([[np.zeros((n, n)), Y.T], [Y, np.zeros((m, m))]])
        assert np.vdot(W, embedded) == pytest.approx(np.vdot(state.R, Y), abs=1e-9)


def test_general_winnow_is_algorithm_2():
    def spectral(f, A):
        U, s, Vt = np.linalg.svd(A, full_matrices=False)
        return (U * f(s)) @ Vt

    rng = np.random.default_rng(7)
    state, R = general_winnow.init(4, 3), np.zeros((4, 3))
    for t in range(30):
        X, y = rng.normal(size=(4, 3)) / 5, (-1.0) ** t
        R = spectral(np.sinh, spectral(np.arcsinh, R) + 0.5 * y * X)
        state = general_winnow.update(state, X, y, 0.5, w0=0.5, normalize=False)
    close(state.R, R)


# --- Whole streams against slow, literal transcriptions -----------------------------------------------


@pytest.mark.parametrize("kind", ["vectors", "matrices", "not symmetric", "Hermitian", "complex vectors"])
def test_meg_on_a_stream(kind):
    rng = np.random.default_rng(8)
    T = 40
    if "vectors" in kind:
        x = rng.normal(size=(T, N)) + (1j * rng.normal(size=(T, N)) if kind.startswith("complex") else 0)
        given, X = x, np.einsum("ti,tj->tij", x, x.conj())
    else:
        given = rng.normal(size=(T, N, N)) + (1j * rng.normal(size=(T, N, N)) if kind == "Hermitian" else 0)
        if kind != "not symmetric":
            given = (given + given.conj().transpose(0, 2, 1)) / 2
        X = given
    y = rng.normal(size=T)
    learner = MEG(eta=0.02, r=None).fit(given, y)
    W, loss = np.eye(N) / N, 0.0
    for X_t, y_t in zip(X, y, strict=True):
        error = np.trace(W @ (X_t + X_t.conj().T) / 2).real - y_t
        loss += error**2
        W = expm(logm(W) - 2 * 0.02 * error * (X_t + X_t.conj().T) / 2)
        W = (W + W.conj().T) / (2 * np.trace(W).real)
    close(learner.W_, W)
    assert learner.loss_ == pytest.approx(loss, abs=1e-10)
    assert learner.predict(given[:5]) == pytest.approx(
        [np.trace(W @ (A + A.conj().T) / 2).real for A in X[:5]]
    )


def test_matrix_burg_on_a_stream():
    rng = np.random.default_rng(9)
    U, z = random_density(rng) * 0.9, unit_rows(rng, 60)
    y = np.einsum("ti,ij,tj->t", z, U, z) + 0.1 * rng.normal(size=60)
    learner = MatrixBurgGradient(eta=1.0).fit(z, y)
    W = np.eye(N) / N
    for z_t, y_t in zip(z, y, strict=True):
        p = z_t @ W @ z_t
        eta = min(1.0, 1 / (4 * p**2))
        if p < y_t:  # the rule of Algorithm 2, as it is printed
            grown = np.eye(N) + np.linalg.inv(np.linalg.inv(W) - np.eye(N))
            eta = min(eta, 0.5 / (2 * (y_t - p) * np.trace(grown @ W @ np.outer(z_t, z_t))))
        W = np.linalg.inv(np.linalg.inv(W) + 2 * eta * (p - y_t) * np.outer(z_t, z_t))
        assert 0 < np.linalg.eigvalsh(W)[0] <= np.linalg.eigvalsh(W)[-1] < 1
    close(learner.W_, W)


@pytest.mark.parametrize("normalize", [False, True])
def test_winnow_on_a_stream(normalize):
    rng = np.random.default_rng(10)
    x, y = unit_rows(rng, 80), rng.choice([-1.0, 1.0], 80)
    learner = MatrixWinnow(rank=1, normalize=normalize).fit(x, y)
    W, mistakes = np.eye(N) / N, 0
    for x_t, y_t in zip(x, y, strict=True):
        if (1 if x_t @ W @ x_t >= learner.theta_ else -1) != y_t:
            mistakes += 1
            W = expm(logm(W) + learner.eta_ * y_t * np.outer(x_t, x_t))
            W = W / np.trace(W) if normalize else W
    np.testing.assert_allclose(learner.W_, W, rtol=1e-9)
    assert learner.mistakes_ == mistakes > 10


def test_metric_learns_from_differences_of_pairs():
    rng = np.random.default_rng(11)
    A, pairs = random_density(rng), rng.normal(size=(50, 2, N))
    z = pairs[:, 0] - pairs[:, 1]
    y = np.einsum("ti,ij,tj->t", z, A, z)
    metric = OnlineLogDetMetric(eta=0.1).fit(pairs, y)
    plain = MatrixBurgGradient(eta=0.1, ceiling=None, W1=np.eye(N)).fit(z, y)
    np.testing.assert_array_equal(metric.W_, plain.W_)
    points = metric.transform(pairs.reshape(-1, N)).reshape(pairs.shape)
    close(((points[:, 0] - points[:, 1]) ** 2).sum(axis=1), metric.predict(pairs))
    many = rng.normal(size=(3000, 2, N))
    z = many[:, 0] - many[:, 1]
    metric.partial_fit(many, np.einsum("ti,ij,tj->t", z, A, z))
    assert np.abs(metric.W_ - A).max() < 1e-3


# --- Diagonal cases -----------------------------------------------------------------------------------


def test_diagonal_meg_is_the_exponentiated_gradient():
    rng = np.random.default_rng(12)
    x, y, w = rng.normal(size=(50, N)), rng.normal(size=50), np.full(N, 1 / N)
    learner = MEG(eta=0.1, r=None).fit(np.array([np.diag(x_t) for x_t in x]), y)
    for x_t, y_t in zip(x, y, strict=True):
        w = gradient.exponentiated_gradient(w, x_t, y_t, 0.1)
    close(learner.W_, np.diag(w))


def test_matrix_burg_on_coordinates_is_burg():
    rng = np.random.default_rng(13)
    i, size = rng.integers(N, size=60), rng.uniform(0.2, 1, 60)
    y = rng.uniform(0, 1, 60)
    matrix = MatrixBurgGradient(ceiling=None).fit(np.sqrt(size)[:, None] * np.eye(N)[i], y)
    vector = BurgGradient().fit(size[:, None] * np.eye(N)[i], y)
    close(matrix.W_, np.diag(vector.w_))
    assert matrix.loss_ == pytest.approx(vector.loss_, abs=1e-10)


def test_diagonal_matrix_winnow_is_winnow():
    rng = np.random.default_rng(14)
    n, eta, theta = 6, winnow.ETA, winnow.threshold(winnow.ETA)
    bits = rng.integers(2, size=(100, n)).astype(float)
    y = np.where(bits[:, 1] + bits[:, 4] > 0, 1.0, -1.0)
    learner = MatrixWinnow(rank=2).fit(np.array([np.diag(b) for b in bits]), y)
    w = np.full(n, 2 / n)  # Littlestone's algorithm: literals of mistaken instances times or over exp(eta)
    for b, label in zip(bits, y, strict=True):
        if (w @ b >= theta) != (label > 0):
            w = w * np.exp(eta * label) ** b
    close(learner.W_, np.diag(w))


def test_comparisons_are_their_definitions():
    rng = np.random.default_rng(15)
    w, x, y, eta = rng.uniform(0.1, 1, N), rng.normal(size=N), 0.4, 0.2
    slope = 2 * eta * (w @ x - y) * x
    close(gradient.gradient_descent(w, x, y, eta), w - slope)
    found = root(
        lambda v: np.append(np.log(v[:N] / w) + slope + v[N], v[:N].sum() - w.sum()), np.append(w, 0)
    )
    np.testing.assert_allclose(gradient.exponentiated_gradient(w, x, y, eta), found.x[:N], atol=1e-9)


# --- Theorem 2's numbers ------------------------------------------------------------------------------


def test_parameters_of_winnow():
    grid = np.linspace(0.5, 3, 100_001)
    assert grid[np.argmax(grid / (2 + 2 * np.exp(grid)))] == pytest.approx(winnow.ETA, abs=1e-4)
    assert round(winnow.ETA, 2) == 1.28
    assert round(winnow.threshold(winnow.ETA), 2) == 0.19
    bound = winnow.mistake_bound(50, 3, winnow.ETA, winnow.threshold(winnow.ETA), 3 / 50, False)
    assert bound == pytest.approx(7.18 * 3 * math.log(50 / 3), rel=1e-3)
    # Scaling can only help, at the trace of the target.
    assert winnow.mistake_bound(50, 3, winnow.ETA, winnow.threshold(winnow.ETA), 3 / 50, True) <= bound


@pytest.mark.parametrize("rank", [1, 2, 7])
def test_parameters_of_general_winnow_are_the_best(rank):
    best = general_winnow.best_rate(rank)

    def bound(eta, shift=1.0):
        theta = shift * general_winnow.threshold(eta, rank, rank)
        return general_winnow.mistake_bound(40, rank, eta, theta, rank)

    assert all(bound(best) <= bound(best * s, shift) for s in (0.9, 1, 1.1) for shift in (0.98, 1, 1.02))
    assert bound(best) < 40 * rank**2 * math.log(40 / rank)


def test_learning_rate_of_meg_is_the_best():
    for r, divergence, loss in [(1.0, 2.0, 0.5), (2.0, 0.3, 4.0)]:
        best = meg.learning_rate(r, divergence, loss)
        bounds = [meg.loss_bound(divergence, loss, best * s, r) for s in (0.95, 1, 1.05)]
        assert bounds[1] == min(bounds)
        assert bounds[1] == pytest.approx(loss + r * math.sqrt(2 * loss * divergence) + r**2 * divergence / 2)
    assert meg.loss_bound(2.0, 0.0, meg.learning_rate(1.0, 2.0), 1.0) == 1.0  # r^2 D / 2
    assert meg.loss_bound(2.0, 0.0, 2.1, 1.0) == math.inf


# --- Side constraints ---------------------------------------------------------------------------------


def only_diagonal(W):
    i, j = np.triu_indices(W.n, 1)
    return W[i, j] == 0


def test_side_constraints_hold_and_are_projections():
    rng = np.random.default_rng(16)
    x, y = unit_rows(rng, 30), rng.choice([-1.0, 1.0], 30)
    learner = MatrixWinnow(rank=1, constraints=only_diagonal).fit(x, y)
    assert learner.mistakes_ > 3
    assert np.abs(learner.W_ - np.diag(np.diag(learner.W_))).max() < 1e-8
    # The projection of a diagonal log W + eta y xx' on diagonal matrices, by CVXPY.
    state = meg.init(learner.W_)
    moved = winnow.update(state, x[0], 1.0, learner.eta_)
    learner._step(x[0], -float(learner.predict(x[:1])[0]))
    V = bo.PSD(N)
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(V, moved.W)), [only_diagonal(V)])
    if learner.predict(x[:1])[0] > 0:
        reference = peers.reference(problem, warm_start=False)
        assert np.abs(reference.X - learner.W_).max() < 1e-3
    kept = MatrixWinnow(rank=1, normalize=True, constraints=[only_diagonal]).fit(x, y)
    assert np.trace(kept.W_) == pytest.approx(1.0, abs=1e-9)
    assert kept.mistake_bound(rank=2) == math.inf


# --- What a user may rely on --------------------------------------------------------------------------


def examples(name, count=60, seed=20):
    rng = np.random.default_rng(seed)
    if name == "GeneralMatrixWinnow":
        X = rng.normal(size=(count, 4, N))
        return X / np.linalg.norm(X, 2, axis=(1, 2), keepdims=True), rng.choice([-1.0, 1.0], count)
    if name in ("OnlineLogDetMetric", "PairWinnow"):
        x = rng.normal(size=(count, 2, N))
    else:
        x = unit_rows(rng, count)
    return x, rng.choice([-1.0, 1.0], count) if "Winnow" in name else rng.uniform(0, 1, count)


LEARNERS = {
    cls.__name__: cls
    for cls in (
        MEG,
        BurgGradient,
        MatrixBurgGradient,
        OnlineLogDetMetric,
        MatrixWinnow,
        GeneralMatrixWinnow,
        KernelWinnow,
        PairWinnow,
    )
}


def learned(learner):
    return [np.asarray(part) for part in vars(learner)["state_"] if part is not None]


@pytest.mark.parametrize("name", LEARNERS)
class TestLearner:
    def test_is_public_and_lazy(self, name):
        assert name in bo.online.__all__
        assert getattr(bo.online, name) is LEARNERS[name]

    def test_goes_on_identically_after_pickling(self, name):
        X, y = examples(name)
        whole = LEARNERS[name]().fit(X, y)
        half = pickle.loads(pickle.dumps(LEARNERS[name]().partial_fit(X[:30], y[:30])))
        half.partial_fit(X[30:], y[30:])
        for a, b in zip(learned(whole), learned(half), strict=True):
            np.testing.assert_array_equal(a, b)
        assert whole.steps_ == half.steps_ == 60

    def test_follows_scikit_learn(self, name):
        X, y = examples(name)
        learner = LEARNERS[name]()
        assert is_classifier(learner) != is_regressor(learner)
        assert clone(learner).get_params() == learner.get_params()
        assert cross_val_score(learner, X, y, cv=3).shape == (3,)
        again = learner.fit(X, y).fit(X, y)
        assert again.steps_ == 60
        assert np.isfinite(learner.score(X, y))

    @pytest.mark.parametrize("bad", ["NaN", "label", "shape", "count", "text", "empty"])
    def test_bad_input_raises_by_name_before_anything_changes(self, name, bad):
        X, y = examples(name)
        learner = LEARNERS[name]().partial_fit(X, y)
        before = pickle.dumps(learner)
        X, y = X.copy(), y.copy()
        if bad == "NaN":
            X[40].flat[0] = np.nan
        elif bad == "label":
            y[40] = 0.5 if "Winnow" in name else np.inf
        elif bad == "shape":
            X = np.concatenate([X, X], axis=-1) / 2
        elif bad == "count":
            y = y[:-1]
        elif bad == "text":
            X = X.astype(str)
        else:
            X, y = X[:0], y[:0]
        with pytest.raises((TypeError, ValueError), match=r"^y" if bad in ("label", "count") else r"^X"):
            learner.partial_fit(X, y)
        with pytest.raises((TypeError, ValueError)):
            learner.fit(X, y) if bad != "shape" else learner.predict(X)
        assert pickle.dumps(learner) == before

    def test_input_is_not_modified(self, name):
        X, y = examples(name)
        kept = X.copy(), y.copy()
        LEARNERS[name]().fit(X, y).predict(X)
        np.testing.assert_array_equal(X, kept[0])
        np.testing.assert_array_equal(y, kept[1])


@pytest.mark.parametrize(
    ("learner", "X", "message"),
    [
        (MatrixWinnow(), [np.diag([1.2, 0.0])], r"X\[0\] has eigenvalues from 0 to 1.2"),
        (MatrixWinnow(), [np.eye(2), np.diag([0.5, -0.1])], r"X\[1\] has eigenvalues from -0.1"),
        (MatrixWinnow(), [[1.0, 1.0]], r"X\[0\] has eigenvalues from 0 to 2"),
        (GeneralMatrixWinnow(), [np.ones((2, 3))], r"X\[0\] has the singular value 2.4"),
        (MEG(), [np.diag([1.0, -1.0])], r"X\[0\] has eigenvalues of range 2; expected at most r = 1"),
        (MEG(), np.ones((2, 3, 4)), r"X has shape \(2, 3, 4\)"),
        (MEG(eta=-1), [[1.0, 0.0]], "eta is -1"),
        (MEG(r=None), [[1.0, 0.0]], "eta and r are both None"),
        (MEG(loss_limit=-1), [[1.0, 0.0]], "loss_limit is -1"),
        (MEG(W1=np.eye(2)), [[1.0, 0.0]], "W1 has trace 2"),
        (MEG(W1=np.diag([1.0, 0.0])), [[1.0, 0.0]], "W1 has the eigenvalue 0"),
        (MEG(W1=[[0.5, 0.3], [0.1, 0.5]]), [[1.0, 0.0]], "W1 is not symmetric"),
        (BurgGradient(w1=[1.0, -1.0]), [[1.0, 0.0]], "w1 is"),
        (
            MatrixBurgGradient(W1=2 * np.eye(2)),
            [[1.0, 0.0]],
            "W1 has the eigenvalue 2; expected less than ceiling",
        ),
        (MatrixBurgGradient(ceiling=0), [[1.0, 0.0]], "ceiling is 0"),
        (OnlineLogDetMetric(), [[1.0, 0.0]], r"X has shape \(1, 2\); expected \(T, 2, d\)"),
        (MatrixWinnow(rank=0), [[1.0, 0.0]], "rank is 0"),
        (MatrixWinnow(rank=3), [[1.0, 0.0]], "rank is 3; expected at most 2"),
        (MatrixWinnow(w0=0), [[1.0, 0.0]], "w0 is 0"),
        (MatrixWinnow(theta=np.nan), [[1.0, 0.0]], "theta has 1 NaN"),
        (MatrixWinnow(constraints="X"), [[1.0, 0.0]], "constraints is 'X'"),
        (GeneralMatrixWinnow(rank=1.5), [np.eye(2)], "rank is 1.5"),
        (GeneralMatrixWinnow(normalize=np.eye(2)), [np.eye(2)], "normalize is array"),
        (BurgGradient(rates=np.eye(2)), [[1.0, 0.0]], "rates is array"),
        (BurgGradient(update=["explicit"]), [[1.0, 0.0]], r"update is \['explicit'\]"),
        (KernelWinnow(kernel=np.eye(2)), [[1.0, 0.0]], "kernel is array"),
    ],
)
def test_bad_parameters_and_instances(learner, X, message):
    with pytest.raises((TypeError, ValueError), match=message):
        learner.partial_fit(X, np.ones(len(X)))
    assert not hasattr(learner, "steps_")
    assert not hasattr(learner, "state_")


def test_bad_comparators():
    x, y = examples("MEG")
    learner = MEG().fit(x, y)
    for U, message in [
        (np.eye(N), "U has trace 3"),
        (np.diag([1.5, -0.5, 0]), "U has the eigenvalue -0.5"),
        (np.eye(2) / 2, r"U has shape \(2, 2\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            learner.loss_bound(U)
    with pytest.raises(ValueError, match="loss is -1"):
        learner.loss_bound(np.eye(N) / N, loss=-1)
    with pytest.raises(ValueError, match="needs normalize=True"):
        MEG(normalize=False).fit(x, y).loss_bound(np.eye(N) / N)
    assert BurgGradient().fit(x, y).loss_bound([0.0, 1, 1]) == math.inf
    with pytest.raises(ValueError, match="u is"):
        BurgGradient().fit(x, y).loss_bound([-1.0, 1, 1])


def test_a_rate_that_is_too_large_is_refused_by_the_pure_updates():
    with pytest.raises(ValueError, match="eta is 10"):
        burg.update(np.ones(1), np.ones(1), 2.0, 10.0)
    with pytest.raises(ValueError, match="eta is 10"):
        matrix_burg.update(matrix_burg.init(np.eye(1), None), np.ones(1), 2.0, 10.0)
    with pytest.raises(OverflowError, match="lower eta"):
        meg.update(meg.init(np.eye(1)), np.ones(1), 1e6, 1.0, normalize=False)
    with pytest.raises(OverflowError, match="lower eta"):
        general_winnow.update(general_winnow.init(1, 1), np.ones((1, 1)), 1.0, 1e4, 1.0, normalize=False)


# --- Long streams -------------------------------------------------------------------------------------


def long_stream(count, n, seed=30):
    rng = np.random.default_rng(seed)
    U = random_density(rng, n)
    z = unit_rows(rng, count, n)
    return U, z, np.einsum("ti,ij,tj->t", z, U, z) * (1 + 0.3 * rng.normal(size=count))


LONG = [2_000, pytest.param(100_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("steps", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_factors_do_not_drift(steps):
    n = 50
    _, z, y = long_stream(steps, n)
    state, inverse = matrix_burg.init(np.eye(n) / n), n * np.eye(n)
    for z_t, y_t in zip(z, y, strict=True):
        eta = min(1e3, matrix_burg.largest_rate(state, z_t, y_t))
        inverse += np.multiply.outer(2 * eta * (((z_t @ state.F) ** 2).sum() - y_t) * z_t, z_t)
        state = matrix_burg.update(state, z_t, y_t, eta)
    w = np.linalg.eigvalsh(state.W)
    assert 0 < w[0] <= w[-1] < 1
    assert np.abs(state.W @ inverse - np.eye(n)).max() < 1e-9
    assert np.abs((state.H @ state.H.T) @ (inverse - np.eye(n)) - np.eye(n)).max() < 1e-9


@pytest.mark.parametrize("steps", first(1, [20_000, 100_000]))
def test_vector_burg_stays_positive_over_many_steps(steps):
    rng = np.random.default_rng(31)
    w, u = burg.init(50), rng.uniform(0, 1, 50)
    for x in rng.normal(size=(steps, 50)):
        y = float(u @ x) + 0.5 * x[0]
        w = burg.update(w, x, y, min(1.0, burg.largest_rate(w, x, y)))
    assert np.isfinite(w).all()
    assert w.min() > 0


def stays_definite(learner, X, y):
    learner.partial_fit(X, y)
    w = np.linalg.eigvalsh(learner.W_)
    assert np.isfinite(learner.W_).all()
    assert np.isfinite(learner.state_.G).all()
    assert w[0] >= -1e-15 * w[-1]
    return learner


@pytest.mark.parametrize("count", LONG)
def test_meg_stays_definite(count):
    _, z, y = long_stream(count, 50)
    learner = stays_definite(MEG(), z, y)
    assert np.trace(learner.W_) == pytest.approx(1.0)


@pytest.mark.parametrize(("count", "normalize"), turns(LONG, [False, True]))
def test_winnow_stays_definite_on_labels_that_nothing_fits(count, normalize):
    _, z, _ = long_stream(count, 50)
    labels = np.random.default_rng(32).choice([-1.0, 1.0], count)
    learner = stays_definite(MatrixWinnow(rank=5, normalize=normalize), z, labels)
    assert learner.mistakes_ > count / 10


@pytest.mark.parametrize("count", LONG)
def test_general_winnow_stays_finite(count):
    rng = np.random.default_rng(33)
    learner = GeneralMatrixWinnow(rank=2)
    for _ in range(count // 1000):
        X = rng.normal(size=(1000, 50, 40))
        X /= np.linalg.norm(X, axis=(1, 2), keepdims=True)
        learner.partial_fit(X, rng.choice([-1.0, 1.0], 1000))
    assert np.isfinite(learner.R_).all()
    assert learner.mistakes_ > count / 10
    embedded = block_diag(np.zeros((40, 40)), np.zeros((50, 50)))
    embedded[40:, :40] = learner.state_.S
    assert np.isfinite(np.linalg.eigvalsh(embedded + embedded.T)).all()
