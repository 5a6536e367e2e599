"""Statements of the papers that are about no one method of bregopt, and the page that lists all of them."""

import ast
import dataclasses
import math
import re
from pathlib import Path

import mutations
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from scipy.linalg import expm

import bregopt as bo
from bregopt.divergences import DIVERGENCES

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "trust" / "theorems.md"
STATEMENTS = {
    "Tsuda": ["Lemma 2.1", "Lemma 2.2", "Lemma 3.1", "Lemma 3.2", "Theorem 4.1", "Corollary 4.2"],
    "Kulis": [
        *("Lemma 1", "Corollary 2", "Lemma 3", "Lemma 5", "Theorem 6", "Theorem 7", "Lemma 8", "Lemma 9"),
        *("Lemma 10", "Proposition 11", "Proposition 12", "Proposition 13"),
    ],
    "Warmuth": ["Theorem 1", "Lemma 1", "Lemma 2", "Theorem 2"],
    "Shen": ["Lemma 3.3", "Theorem 3.4"],
    "Jain": ["Lemma 1", "Theorem 1", "Lemma 2", "Lemma 3", "Theorem 2"],
}
SEEDS = st.integers(0, 2**32 - 1)
DRAWS = examples(50)


def symmetric(rng, n):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def positive_definite(rng, n):
    A = rng.normal(size=(n, n))
    return A @ A.T / n + 0.1 * np.eye(n)


def density(rng, n):
    W = positive_definite(rng, n)
    return W / np.trace(W)


def between_zero_and_one(rng, n):
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (Q * rng.choice([0, 1, rng.uniform()], n)) @ Q.T


def orthonormal(rng, n, r):
    return np.linalg.qr(rng.normal(size=(n, r)))[0]


def of_rank(rng, W):
    """Return a positive semidefinite matrix whose range is that of `W`."""
    return W @ positive_definite(rng, W.shape[1]) @ W.T


def least_eigenvalue(A):
    return np.linalg.eigvalsh(A)[0]


def relative_entropy(U, W):
    (u, P), (w, Q) = np.linalg.eigh(U), np.linalg.eigh(W)
    return float(u @ np.log(u) - u @ (P.T @ Q) ** 2 @ np.log(w) - u.sum() + w.sum())


# --- Inequalities between matrices --------------------------------------------------------------------


@DRAWS
@given(SEEDS, st.integers(1, 6), st.floats(-5, 5), st.floats(-5, 5))
def test_jensen_for_the_matrix_exponential(seed, n, a, b):
    A = between_zero_and_one(np.random.default_rng(seed), n)
    rest = np.eye(n) - A
    above = math.exp(a) * A + math.exp(b) * rest
    assert least_eigenvalue(above - expm(a * A + b * rest)) >= -1e-10 * np.linalg.norm(above)
    line = np.eye(n) - (1 - math.exp(a)) * A  # b = 0, as in Warmuth
    assert least_eigenvalue(line - expm(a * A)) >= -1e-10 * np.linalg.norm(line)


def test_jensen_needs_eigenvalues_of_at_most_one():
    A = np.diag([1.5, 0.5])
    assert least_eigenvalue(np.eye(2) - (1 - math.e) * A - expm(A)) < -0.5


@DRAWS
@given(SEEDS, st.integers(2, 6), st.booleans(), st.integers(-5, 5))
def test_a_larger_matrix_has_a_larger_product(seed, n, apart, shift):
    # If C - B is zero on the range of A, the products are equal; the shift gives them either sign.
    rng = np.random.default_rng(seed)
    Q, r = orthonormal(rng, n, n), int(rng.integers(1, n))
    A = of_rank(rng, Q[:, :r])
    B = symmetric(rng, n) + shift * np.eye(n)
    C = B + of_rank(rng, Q[:, r:] if apart else orthonormal(rng, n, n - 1))
    assert np.vdot(A, B) <= np.vdot(A, C) + 1e-12 * n


@DRAWS
@given(SEEDS, st.integers(1, 6))
def test_golden_and_thompson(seed, n):
    rng = np.random.default_rng(seed)
    A, B = symmetric(rng, n), symmetric(rng, n)
    assert np.trace(expm(A + B)) <= np.trace(expm(A) @ expm(B)) * (1 + 1e-12)


# --- One trial of a learner ---------------------------------------------------------------------------


@DRAWS
@given(SEEDS, st.integers(2, 5), st.floats(0.01, 100), st.floats(0, 2))
def test_progress_of_meg_in_one_trial(seed, n, b, noise):
    online = pytest.importorskip("bregopt.online")
    rng = np.random.default_rng(seed)
    X, U = rng.normal(size=(3, n, n)), density(rng, n)
    w = np.linalg.eigvalsh((X + X.transpose(0, 2, 1)) / 2)
    r = float((w[:, -1] - w[:, 0]).max())
    eta = 2 * b / (2 + r**2 * b)
    y = np.einsum("ij,tji->t", U, X) + noise * rng.normal(size=3)
    learner = online.MEG(r=r * (1 + 1e-9), eta=eta).fit(X[:2], y[:2])
    before, told = learner.W_.copy(), learner.predict(X[2:])[0]
    after = learner.partial_fit(X[2:], y[2:]).W_
    progress = relative_entropy(U, before) - relative_entropy(U, after)
    fitted = np.vdot(U, X[2].T)
    assert eta * (y[2] - told) ** 2 - b * (y[2] - fitted) ** 2 <= progress + 1e-8


RATIOS = st.floats(0.05, 20)
PART = 0.02  # of the way from the first matrix to a vertex: the gap of the attained bounds has its square


def first_trial_of_meg(seed, ratio, size):
    """Return a rate, an instance, a label and a comparator with which one trial attains Lemma 3.1.

    The inequality of Golden and Thompson is an equality, as all matrices commute. Hoeffding's is one up to
    the square of the step, as half of the weight is at either end of the eigenvalues. With
    ``ratio = r^2 b / 2`` the rest is one for the label at which the step ends at the comparator.
    """
    rng = np.random.default_rng(seed)
    Q = orthonormal(rng, 2, 2)
    ends = np.diag([0.5, -0.5])
    X = size * Q @ (ends + rng.normal() * np.eye(2)) @ Q.T
    U = np.eye(2) / 2 + PART * Q @ ends @ Q.T
    told, fitted = np.trace(X) / 2, float(np.vdot(U, X))
    y = told + (fitted - told) * (1 + ratio) / ratio
    b = 2 * ratio / size**2
    return b, 2 * b / (2 + size**2 * b), X, y, U


@DRAWS
@given(SEEDS, RATIOS, st.floats(0.1, 10))
def test_progress_of_meg_is_attained(seed, ratio, size):
    online = pytest.importorskip("bregopt.online")
    b, eta, X, y, U = first_trial_of_meg(seed, ratio, size)
    learner = online.MEG(r=size * (1 + 1e-9), eta=eta).fit(X[None], [y])
    told, fitted = np.trace(X) / 2, np.vdot(U, X)
    progress = relative_entropy(U, np.eye(2) / 2) - relative_entropy(U, learner.W_)
    promised = eta * (y - told) ** 2 - b * (y - fitted) ** 2
    assert promised <= progress * (1 + 1e-7)
    assert promised >= 0.99 * progress


@DRAWS
@given(SEEDS, RATIOS, st.floats(0.1, 10))
def test_loss_bound_of_meg_is_attained(seed, ratio, size):
    online = pytest.importorskip("bregopt.online")
    _, eta, X, y, U = first_trial_of_meg(seed, ratio, size)
    fitted = float(np.vdot(U, X))  # in a second trial the learner, now at the comparator, loses nothing
    learner = online.MEG(r=size * (1 + 1e-9), eta=eta).fit(np.array([X, X]), [y, fitted])
    bound = learner.loss_bound(U, (y - fitted) ** 2)
    assert learner.loss_ <= bound * (1 + 1e-7)
    assert learner.loss_ >= 0.99 * bound


@DRAWS
@given(SEEDS, st.integers(1, 5), st.booleans(), st.sampled_from([1.5, 2.0, 3.0]), st.floats(0.01, 1))
def test_burg_bounds_are_nearly_attained(seed, n, matrix, factor, s):
    # Equal shares, and a label so far above the prediction that the rate is at a limit: log(1 + z) is least
    # beside z - z^2 at z = -1/2. Of what the derivation gives away, less than half of the loss is left.
    online = pytest.importorskip("bregopt.online")
    x = np.full(n, np.random.default_rng(seed).uniform(0.1, 3))
    if matrix:
        x[1:] = 0
    told = float(x @ x if matrix else x.sum()) / n
    y, away = factor * told, (factor - 1) * told
    shares = np.array([told]) if matrix else x / n
    rate = min(1 / (4 * shares @ shares), 1 / (4 * away * shares.max()))
    for off in (s, min(2 * s, 0.999)):  # the comparator's error, relative to the learner's
        fitted = y - off * away
        learner = online.MatrixBurgGradient(1e9, None) if matrix else online.BurgGradient(1e9)
        learner.fit(x[None], [y])
        U = np.diag(np.where(x > 0, fitted / told, 1.0)) / n
        W, W1 = (learner.W_ if matrix else np.diag(learner.w_)), np.eye(n) / n
        progress = DIVERGENCES["logdet"](W1).value(U) - DIVERGENCES["logdet"](W).value(U)
        loss, best = away**2, (y - fitted) ** 2
        assert (1 - s) * rate * loss <= rate * best / s + progress + 1e-9 * rate * loss
        assert learner.loss_ <= learner.loss_bound(U if matrix else np.diag(U), best) * (1 + 1e-9)
    if factor == 2:
        U = np.diag(np.where(x > 0, 2.0, 1.0)) / n  # it fits the label
        assert learner.loss_ >= 0.8 * learner.loss_bound(U if matrix else np.diag(U), 0.0)


@DRAWS
@given(SEEDS, st.integers(1, 5), st.floats(0.01, 30), st.floats(0, 2), st.floats(0.05, 0.95), st.booleans())
def test_progress_of_the_burg_gradients_in_one_trial(seed, n, eta, noise, s, matrix):
    # The inequality that replaces Lemmas 1 and 3, for every s between 0 and 1: see docs/learning/online.md.
    online = pytest.importorskip("bregopt.online")
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, n)) * rng.uniform(0.1, 2)
    learner = online.MatrixBurgGradient(eta) if matrix else online.BurgGradient(eta)
    U = positive_definite(rng, n) if matrix else np.diag(rng.uniform(0.01, 2, n))
    fitted = np.einsum("ti,ij,tj->t", x, U, x) if matrix else x @ np.diag(U)
    y = fitted + noise * rng.normal(size=3)

    def state():
        return learner.W_ if matrix else np.diag(learner.w_)

    learner.fit(x[:2], y[:2])
    before, told = state(), float(learner.predict(x[2:])[0])
    learner.partial_fit(x[2:], y[2:])
    moved = np.linalg.inv(state()) - np.linalg.inv(before)
    X = np.outer(x[2], x[2]) if matrix else np.diag(x[2])
    rate = np.vdot(moved, X) / (2 * (told - y[2]) * np.vdot(X, X))
    divergence = DIVERGENCES["logdet"]
    progress = divergence(before).value(U) - divergence(state()).value(U)
    loss, best = (told - y[2]) ** 2, (fitted[2] - y[2]) ** 2
    assert (1 - s) * rate * loss <= rate * best / s + progress + 1e-6 * (1 + abs(progress))


# --- Divergences and low rank -------------------------------------------------------------------------


def by_eigenvectors(X, Y, scalar, rank=None):
    """Return ``sum_ij (v_i'u_j)^2 scalar(i, lambda_i, j, theta_j)`` over the largest `rank` eigenvalues."""
    (x, V), (y, U) = np.linalg.eigh(X), np.linalg.eigh(Y)
    x, V, y, U = (part[..., ::-1][..., :rank] for part in (x, V, y, U))
    pairs = [[scalar(i, a, j, b) for j, b in enumerate(y)] for i, a in enumerate(x)]
    return float(np.sum((V.T @ U) ** 2 * pairs))


SCALAR = {
    "frobenius": lambda i, a, j, b: (a - b) ** 2,
    "logdet": lambda i, a, j, b: a / b - math.log(a / b) - 1,
    "von_neumann": lambda i, a, j, b: (a * math.log(a / b) if a > 1e-12 else 0) - a + b,
}


def test_spectral_divergence_by_eigenvectors(rng):
    # phi(X) = sum_i c_i lambda_i^3: another function of each eigenvalue, by its order.
    n, h, c = 4, 1e-6, np.array([4.0, 3.0, 2.0, 1.0])
    X, Y = positive_definite(rng, n), positive_definite(rng, n)

    def phi(Z):
        return float(c @ np.linalg.eigvalsh(Z)[::-1] ** 3)

    slope = (phi(Y + h * (X - Y)) - phi(Y - h * (X - Y))) / (2 * h)

    def scalar(i, a, j, b):
        return c[i] * a**3 - c[j] * b**3 - (a - b) * 3 * c[j] * b**2

    assert by_eigenvectors(X, Y, scalar) == pytest.approx(phi(X) - phi(Y) - slope, rel=1e-6)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergences_by_eigenvectors(name, rng):
    X, Y = positive_definite(rng, 5), positive_definite(rng, 5)
    assert DIVERGENCES[name](Y).value(X) == pytest.approx(by_eigenvectors(X, Y, SCALAR[name]))


@pytest.mark.parametrize("name", ["logdet", "von_neumann"])
def test_divergence_on_the_range_does_not_depend_on_its_basis(name, rng):
    W, (Q, _) = orthonormal(rng, 8, 3), np.linalg.qr(rng.normal(size=(3, 3)))
    X, Y = of_rank(rng, W), of_rank(rng, W)
    np.testing.assert_allclose(W @ W.T @ Y @ W @ W.T, Y, atol=1e-14)
    values = [DIVERGENCES[name](B.T @ Y @ B).value(B.T @ X @ B) for B in (W, W @ Q)]
    assert values[0] == pytest.approx(values[1])
    assert values[0] == pytest.approx(by_eigenvectors(X, Y, SCALAR[name], rank=3))
    A = symmetric(rng, 8)
    assert np.vdot(W.T @ X @ W, W.T @ A @ W) == pytest.approx(np.vdot(X, A))


@pytest.mark.parametrize(
    ("name", "divergence"), [("logdet", bo.logdet_div), ("von_neumann", bo.von_neumann_div)]
)
def test_optimum_of_low_rank_by_eigenvectors(name, divergence, rng):
    G, K = rng.normal(size=(9, 3)), bo.PSD(9)
    distance = ((G[0] - G[1]) ** 2).sum()
    rows = [bo.sq_distance(K, 0, 1) <= distance / 2, bo.trace(K) == (G**2).sum()]
    sol = bo.Problem(bo.Minimize(divergence(K, bo.LowRank(G))), rows).solve(tol=1e-9)
    assert sol.value == pytest.approx(
        by_eigenvectors(np.asarray(sol.X), G @ G.T, SCALAR[name], rank=3), rel=1e-6
    )


def test_von_neumann_divergence_of_a_smaller_range(rng):
    W = orthonormal(rng, 8, 4)
    X, Y = of_rank(rng, W[:, :2]), of_rank(rng, W)
    smaller = by_eigenvectors(W.T @ X @ W, W.T @ Y @ W, SCALAR["von_neumann"])
    assert DIVERGENCES["von_neumann"](W.T @ Y @ W).value(W.T @ X @ W) == pytest.approx(smaller)
    # Theorem 6 needs eigenvectors of the zeros of X in the range of Y; others change the sum of the theta_j.
    (x, V), (y, U) = np.linalg.eigh(X), np.linalg.eigh(Y)
    kept = [
        (v @ u) ** 2 * (a * math.log(a / b) - a)
        for a, v in zip(x[-2:], V.T[-2:], strict=True)
        for b, u in zip(y[-4:], U.T[-4:], strict=True)
    ]
    assert smaller == pytest.approx(sum(kept) + np.trace(Y))
    assert abs(by_eigenvectors(X, Y, SCALAR["von_neumann"], rank=4) - smaller) > 0.1


@pytest.mark.parametrize("share", [0.3, 2.0])
def test_logdet_projection_keeps_the_range(share, rng):
    G, K = rng.normal(size=(9, 3)), bo.PSD(9)
    X, z = G @ G.T, np.eye(9)[0] - np.eye(9)[1]
    p = z @ X @ z
    row = bo.sq_distance(K, 0, 1) == share * p
    sol = bo.Problem(bo.Minimize(bo.logdet_div(K, bo.LowRank(G))), [row]).solve(tol=1e-10)
    answer = np.asarray(sol.X)
    beta = (share - 1) / p
    np.testing.assert_allclose(answer, X + beta * np.outer(X @ z, X @ z), atol=1e-7)
    w = np.linalg.eigvalsh(answer)
    assert w[-3] > 1e-3
    assert np.abs(w[:-3]).max() < 1e-12
    W, alpha = np.linalg.qr(G)[0], (1 - 1 / share) / p
    inside = W @ np.linalg.inv(np.linalg.inv(W.T @ X @ W) - alpha * np.outer(W.T @ z, W.T @ z)) @ W.T
    outside = np.linalg.pinv(np.linalg.pinv(X) - alpha * np.outer(W @ W.T @ z, W @ W.T @ z), rcond=1e-10)
    np.testing.assert_allclose(inside, answer, atol=1e-7)
    np.testing.assert_allclose(outside, answer, atol=1e-7)


# --- Extreme points -----------------------------------------------------------------------------------


@DRAWS
@given(SEEDS, st.integers(2, 6), st.booleans())
def test_extreme_points_of_trace_one(seed, n, diagonal):
    # Of psd matrices those of rank one; of diagonal ones, which are the simplex, the unit vectors.
    rng = np.random.default_rng(seed)
    Z = np.diag(rng.dirichlet(np.ones(n))) if diagonal else density(rng, n)
    w, V = np.linalg.eigh(Z)
    np.testing.assert_allclose(sum(t * np.outer(v, v) for t, v in zip(w, V.T, strict=True)), Z, atol=1e-12)
    assert w.min() > 0
    assert w.sum() == pytest.approx(1)
    # No matrix of rank two or more is extreme: it is halfway between two others of the set.
    step = min(w[-1], w[-2]) * (np.outer(V[:, -1], V[:, -1]) - np.outer(V[:, -2], V[:, -2]))
    for side in (Z + step, Z - step):
        assert least_eigenvalue(side) >= -1e-12
        assert np.trace(side) == pytest.approx(1)
    assert np.abs(step).max() > 1e-9
    # One of rank one is: u'Zu is one there, and less at every other.
    u = np.eye(n)[0] if diagonal else V[:, 0]
    assert u @ Z @ u < 1 - 1e-12 or np.allclose(Z, np.outer(u, u))


# --- The page -----------------------------------------------------------------------------------------


def page_rows():
    """Return, by the first author, the rows of the page's tables: the name of a statement, and its test."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    tables = {
        part.split()[0].strip(","): re.findall(r"^\| ([A-Z]\w+ [\d.]+) \|.*\| (.*) \|$", part, re.M)
        for part in parts
    }
    return {author: dict(rows) for author, rows in tables.items() if author in STATEMENTS}


def test_page_has_every_statement():
    assert {author: list(rows) for author, rows in page_rows().items()} == STATEMENTS
    for rows in page_rows().values():
        assert all("::test_" in test or test.startswith("none: ") for test in rows.values())


def test_every_test_of_the_page_exists():
    named = set(re.findall(r"`(test_\w+\.py)::([\w:]+)`", PAGE.read_text()))
    assert len(named) > 20
    for file, name in named:
        body = ast.parse(next(TESTS.rglob(file)).read_text()).body
        for part in name.split("::"):
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{file} has no {name}"
            body = found[0].body


def test_every_statement_is_made_false():
    assert {mutation.statement for mutation in mutations.MUTATIONS} == mutations.statements()
    page, root = PAGE.read_text(), TESTS.parent
    for mutation in mutations.MUTATIONS:
        assert f"`{mutation.test}`" in page
        assert (root / mutation.file).read_text().count(mutation.old) == 1, mutation
        assert f"{mutation.change}" in page, "python docs/pages.py --made-by tests/library/mutations.py"


@pytest.mark.slow
def test_a_mutation_is_caught_and_a_harmless_change_is_not():
    false = next(m for m in mutations.MUTATIONS if m.change == "tr AC times .9")
    harmless = dataclasses.replace(false, new=f"{false.old}  # the same")
    assert mutations.run([false, harmless]) == {false: True, harmless: False}
    assert mutations.table({false: True, harmless: False}).endswith("| 1 of 2 |")


@pytest.mark.slow  # each starts pytest
@pytest.mark.parametrize("mutation", mutations.MUTATIONS[::8], ids=lambda m: f"{m.statement}: {m.change}")
def test_some_mutations_are_caught(mutation):
    assert mutations.run([mutation]) == {mutation: True}
