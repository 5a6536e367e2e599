"""Divergences against definitions, finite differences and the invariances of Kulis et al., Appendix A."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bregopt.divergences import (
    DIVERGENCES,
    Frobenius,
    LogDet,
    LogDetPoint,
    VonNeumann,
    VonNeumannPoint,
    WeightedFrobenius,
    line_root,
)
from bregopt.divergences.rows import Target, increasing_root
from bregopt.divergences.spectrum import exp_divided_differences
from bregopt.divergences.von_neumann import rank_one_spectrum
from bregopt.program import Penalty


def positive_definite(rng, n):
    G = rng.normal(size=(n, n))
    return G @ G.T / n + 0.3 * np.eye(n)


def log(X):
    w, Q = np.linalg.eigh(X)
    return (Q * np.log(w)) @ Q.T


def definition(name, X, X0):
    if name == "logdet":
        R = X @ np.linalg.inv(X0)
        return np.trace(R) - np.log(np.linalg.det(R)) - len(X)
    if name == "von_neumann":
        return np.trace(X @ log(X) - X @ log(X0) - X + X0)
    return np.sum((X - X0) ** 2)


@pytest.mark.parametrize("name", DIVERGENCES)
class TestDivergence:
    def test_value_is_the_definition(self, name, rng):
        X, X0 = positive_definite(rng, 5), positive_definite(rng, 5)
        assert DIVERGENCES[name](X0).value(X) == pytest.approx(definition(name, X, X0), rel=1e-12)
        assert DIVERGENCES[name](X0).value(X0) == pytest.approx(0, abs=1e-12)

    def test_gradient_by_finite_differences(self, name, rng):
        X, X0, E = (positive_definite(rng, 4) for _ in range(3))
        D, h = DIVERGENCES[name](X0), 1e-6
        slope = (D.value(X + h * E) - D.value(X - h * E)) / (2 * h)
        assert np.vdot(D.gradient(X), E) == pytest.approx(slope, rel=1e-7, abs=1e-7)

    def test_minimizer_and_dual_term(self, name, rng):
        X0, mu = positive_definite(rng, 4), 1.7
        W = 0.1 * (positive_definite(rng, 4) - np.eye(4))
        D = DIVERGENCES[name](X0)
        X = D.minimizer(W, mu)
        np.testing.assert_allclose(W + mu * D.gradient(X), 0, atol=1e-9)
        least = np.vdot(W, X) + mu * D.value(X)
        assert D.dual_term(W, mu, X) == pytest.approx(least, abs=1e-10)
        for _ in range(20):
            other = positive_definite(rng, 4)
            assert np.vdot(W, other) + mu * D.value(other) >= least - 1e-12

    def test_orthogonal_invariance(self, name, rng):  # Proposition 11
        X, X0 = positive_definite(rng, 5), positive_definite(rng, 5)
        Q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        D = DIVERGENCES[name]
        assert D(Q.T @ X0 @ Q).value(Q.T @ X @ Q) == pytest.approx(D(X0).value(X), rel=1e-10)


def test_logdet_congruence_and_scale_invariance(rng):  # Propositions 12 and 13
    X, X0, M = positive_definite(rng, 5), positive_definite(rng, 5), rng.normal(size=(5, 5))
    value = LogDet(X0).value(X)
    assert LogDet(M.T @ X0 @ M).value(M.T @ X @ M) == pytest.approx(value, rel=1e-8)
    assert LogDet(1e8 * X0).value(1e8 * X) == pytest.approx(value, rel=1e-12)
    w, Q = np.linalg.eigh(X0)
    half = (Q / np.sqrt(w)) @ Q.T
    assert VonNeumann(half @ X @ half).value(np.eye(5)) == pytest.approx(value, rel=1e-10)


def test_logdet_of_an_ill_conditioned_start():
    X0 = np.diag([1.0, 1e-12])
    assert LogDet(X0).value(2 * X0) == pytest.approx(2 * (2 - math.log(2) - 1), rel=1e-12)
    np.testing.assert_allclose(LogDet(X0).minimizer(np.diag([1.0, 1e12]), 1.0), X0 / 2, rtol=1e-12)


def test_outside_the_domain(rng):
    X0 = positive_definite(rng, 3)
    indefinite = np.diag([1.0, 1.0, -0.1])
    assert LogDet(X0).value(indefinite) == math.inf
    assert VonNeumann(X0).value(indefinite) == math.inf
    assert LogDet(X0).dual_term(-10 * np.linalg.inv(X0), 1.0, X0) == -math.inf
    assert LogDet(X0).minimizer(-10 * np.linalg.inv(X0), 1.0) is None
    assert VonNeumann(X0).minimizer(-1e5 * np.eye(3), 1.0) is None


def test_von_neumann_takes_singular_matrices(rng):
    X = np.diag([2.0, 0.0])
    assert VonNeumann(np.eye(2)).value(X) == pytest.approx(2 * np.log(2) - 2 + 2)


def test_weighted_frobenius_bound_is_valid_and_tight(rng):
    X0, H = positive_definite(rng, 4) - np.eye(4), rng.uniform(0.5, 2, size=(4, 4))
    H = (H + H.T) / 2
    weighted, W = WeightedFrobenius(X0, H), rng.normal(size=(4, 4))
    W = (W + W.T) / 2
    for _ in range(50):
        X = positive_definite(rng, 4)
        bound = weighted.dual_term(W, 0.7, positive_definite(rng, 4))
        assert np.vdot(W, X) + 0.7 * weighted.value(X) >= bound
    plain = Frobenius(X0)
    X = plain.minimizer(W, 0.7)
    assert WeightedFrobenius(X0, np.ones((4, 4))).dual_term(W, 0.7, X) == pytest.approx(
        plain.dual_term(W, 0.7, X)
    )


POINTS = {"logdet": (LogDet, LogDetPoint), "von_neumann": (VonNeumann, VonNeumannPoint)}


def rows_of_each_kind(rng, n):
    z, w = rng.normal(size=n), rng.normal(size=n)
    return {
        "rank one": (z[:, None], np.ones(1), 2.0),
        "negative": (z[:, None], -np.ones(1), -0.2),
        "rank two": (np.column_stack([z, w]), np.array([0.5, -0.5]), -0.3),
        "definite": (rng.normal(size=(n, 3)), np.array([0.5, 1.0, 2.0]), 4.0),
        "general": (rng.normal(size=(n, 3)), np.array([0.5, -1.0, 2.0]), 0.7),
    }


@pytest.mark.parametrize("kind", ["rank one", "negative", "rank two", "definite", "general"])
@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("mu", [1.0, 1e-3, 50.0])
def test_projection_meets_its_row_and_moves_along_it(name, kind, mu, rng):
    X0 = positive_definite(rng, 6)
    make, make_point = POINTS[name]
    divergence = make(X0)
    U, d, b = rows_of_each_kind(rng, 6)[kind]
    A = (U * d) @ U.T
    point = make_point(divergence, mu)
    point.reset(np.zeros((6, 6)))
    line = point.line(U, d)
    assert line.activity == pytest.approx(np.vdot(A, X0), rel=1e-10)
    alpha = line_root(line, Target(Penalty.HARD, b, math.inf), 0.0, mu)
    point.move(line, alpha)
    assert np.vdot(A, point.X) == pytest.approx(b, rel=1e-10)
    # grad phi(X+) = grad phi(X) + alpha A
    np.testing.assert_allclose(point.X, divergence.minimizer(-mu * alpha * A, mu), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("penalty", [Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE])
def test_projection_on_a_soft_row_balances(name, penalty, rng):
    make, make_point = POINTS[name]
    X0, z, mu, gamma, y0 = positive_definite(rng, 4), rng.normal(size=4), 0.8, 1.3, -0.05
    divergence = make(X0)
    point = make_point(divergence, mu)
    A = np.outer(z, z)
    point.reset(-y0 * A)
    line = point.line(z[:, None], np.ones(1))
    target = Target(penalty, 0.5, gamma)
    alpha = line_root(line, target, y0, mu)
    point.move(line, alpha)
    y = y0 + mu * alpha
    assert z @ point.X @ z == pytest.approx(target(y)[0], rel=1e-9)
    np.testing.assert_allclose(point.X, divergence.minimizer(-y * A, mu), rtol=1e-8)


def test_unreachable_targets():
    point = LogDetPoint(LogDet(np.eye(2)), 1.0)
    point.reset(np.zeros((2, 2)))
    line = point.line(np.array([[1.0], [0.0]]), np.ones(1))
    assert line_root(line, Target(Penalty.HARD, 0.0, math.inf), 0.0, 1.0) == -math.inf
    assert line_root(line, Target(Penalty.HARD, -1.0, math.inf), 0.0, 1.0) == -math.inf
    line = point.line(np.array([[1.0], [0.0]]), -np.ones(1))
    assert line_root(line, Target(Penalty.HARD, 1.0, math.inf), 0.0, 1.0) == math.inf


def test_many_projections_do_not_drift(rng):
    X0 = positive_definite(rng, 8)
    for make, make_point in POINTS.values():
        divergence = make(X0)
        point, W = make_point(divergence, 1.0), np.zeros((8, 8))
        point.reset(W)
        for _ in range(300):
            z = rng.normal(size=8)
            line = point.line(z[:, None], np.ones(1))
            target = line.activity * np.exp(rng.normal() / 10)
            alpha = line_root(line, Target(Penalty.HARD, target, math.inf), 0.0, 1.0)
            point.move(line, alpha)
            W -= alpha * np.outer(z, z)
        np.testing.assert_allclose(point.X, divergence.minimizer(W, 1.0), rtol=1e-6, atol=1e-9)


@given(st.integers(0, 10_000), st.integers(1, 12), st.floats(-30, 30), st.sampled_from([1e-6, 1.0, 1e4]))
def test_secular_equation_against_eigh(seed, r, alpha, size):
    rng = np.random.default_rng(seed)
    theta, w = np.sort(rng.normal(size=r)) * size, rng.normal(size=r)
    for k in range(r - 1):  # equal weights, zero weights, nearly zero weights
        if rng.random() < 0.2:
            theta[k + 1] = theta[k]
        w[k] *= rng.choice([1.0, 0.0, 1e-9])
    theta.sort()
    roots, weight = rank_one_spectrum(theta, w, alpha)
    exact, Q = np.linalg.eigh(np.diag(theta) + alpha * np.outer(w, w))
    top = max(exact[-1], roots.max(initial=-np.inf))
    scale = np.sum(w**2)
    for s in np.array([0.1, 1.0, 10.0]) / max(np.abs(exact).max(), 1e-300):
        ours = np.exp(s * (roots - top)) @ weight
        assert ours == pytest.approx(np.exp(s * (exact - top)) @ (w @ Q) ** 2, abs=1e-11 * scale)
    assert weight.sum() == pytest.approx(scale, rel=1e-9)


def test_divided_differences_of_close_arguments():
    theta = np.array([-2.0, -1e-9, 0.0, -1e-5, -700.0])
    F = exp_divided_differences(theta)
    assert F[1, 2] == pytest.approx(1.0, rel=1e-8)
    assert F[2, 3] == pytest.approx(-np.expm1(-1e-5) / 1e-5, rel=1e-12)
    assert F[0, 2] == pytest.approx((1 - np.exp(-2.0)) / 2, rel=1e-14)
    assert np.isfinite(F).all()
    np.testing.assert_allclose(np.diag(F), np.exp(theta))


@given(st.floats(-1e3, 1e3), st.floats(0.01, 100))
def test_increasing_root_from_anywhere(root, steep):
    def cubic(x):
        t = steep * (x - root)
        return t**3 + t, steep * (3 * t**2 + 1)

    assert increasing_root(cubic, -math.inf, math.inf) == pytest.approx(root, rel=1e-9, abs=1e-9)


def test_increasing_root_between_poles():
    def rational(x):  # the form of the LogDet objective on a line
        return 1 / (2 - x) - 1 / (x + 1) - 5, (2 - x) ** -2 + (x + 1) ** -2

    x = increasing_root(rational, -1.0, 2.0)
    assert rational(x)[0] == pytest.approx(0, abs=1e-9)
