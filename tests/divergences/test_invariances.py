"""Answers transform with the data, as in Kulis et al. 2009, Appendix A, tested through solve()."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bregopt as bo

ATOMS = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}
TOL = 1e-9


def instance(seed, n):
    """Return ``X0`` and rows ``z'X z <= b``, ``<A, X> = t`` that hold at a matrix near it."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(n, n))
    X0 = G @ G.T / n + 0.5 * np.eye(n)
    F = X0 + 0.1 * np.diag(rng.random(n))
    Z = rng.normal(size=(n, n))
    A = rng.normal(size=(n, n))
    A = A + A.T
    return X0, Z, 0.9 * np.einsum("kn,nm,km->k", Z, F, Z), A, float(np.vdot(A, F))


def solved(divergence, X0, Z, b, A, t, mu=1.0):
    X = bo.PSD(len(X0))
    rows = [bo.quad_form(Z, X) <= b, bo.soft(bo.inner(A, X) == t, gamma=mu, penalty="hinge")]
    return bo.Problem(bo.Minimize(mu * ATOMS[divergence](X, X0)), rows).solve(solver="bregman", tol=TOL)


def close(a, b, rel=1e-5):
    np.testing.assert_allclose(a, b, atol=rel * np.abs(b).max())


@pytest.mark.parametrize("divergence", ATOMS)
@given(seed=st.integers(0, 1000), n=st.integers(2, 5))
def test_orthogonal_transformations(divergence, seed, n):  # Proposition 11
    X0, Z, b, A, t = instance(seed, n)
    Q, _ = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(n, n)))
    plain = solved(divergence, X0, Z, b, A, t)
    R = Q @ X0 @ Q.T
    turned = solved(divergence, (R + R.T) / 2, Z @ Q.T, b, Q @ A @ Q.T, t)
    assert turned.value == pytest.approx(plain.value, abs=1e-7)
    close(turned.X, Q @ plain.X @ Q.T)
    close(turned.duals[0], plain.duals[0], 1e-4)


@given(seed=st.integers(0, 1000), n=st.integers(2, 5))
def test_logdet_congruences(seed, n):  # Proposition 12: X -> M'X M for every invertible M
    X0, Z, b, A, t = instance(seed, n)
    M = np.eye(n) + 0.4 * np.random.default_rng(seed + 2).normal(size=(n, n)) / np.sqrt(n)
    if np.linalg.cond(M) > 20:
        return
    inverse = np.linalg.inv(M)
    plain = solved("logdet", X0, Z, b, A, t)
    moved_X0, moved_A = M.T @ X0 @ M, inverse @ A @ inverse.T
    moved = solved("logdet", (moved_X0 + moved_X0.T) / 2, Z @ inverse.T, b, (moved_A + moved_A.T) / 2, t)
    assert moved.value == pytest.approx(plain.value, abs=1e-7)
    close(moved.X, M.T @ plain.X @ M)


@pytest.mark.parametrize(("divergence", "power"), [("logdet", 0), ("von_neumann", 1), ("frobenius", 2)])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_scaling(divergence, power, scale):  # Proposition 13; von Neumann of one degree, Frobenius of two
    X0, Z, b, A, t = instance(7, 4)
    plain = solved(divergence, X0, Z, b, A, t)
    unit = scale**power
    # The hinge on <A, X> = t has degree one: its weight is scaled by the remaining degree.
    X = bo.PSD(4)
    rows = [
        bo.quad_form(Z, X) <= scale * b,
        bo.soft(bo.inner(A, X) == scale * t, gamma=unit / scale, penalty="hinge"),
    ]
    scaled = bo.Problem(bo.Minimize(ATOMS[divergence](X, scale * X0)), rows).solve(solver="bregman", tol=TOL)
    assert scaled.status == "optimal"
    assert scaled.value == pytest.approx(unit * plain.value, rel=1e-6)
    close(scaled.X, scale * plain.X)


@pytest.mark.parametrize("divergence", ATOMS)
@pytest.mark.parametrize("mu", [1e-6, 1e6])
def test_weight_of_the_whole_objective(divergence, mu):
    plain = solved(divergence, *instance(11, 4))
    weighted = solved(divergence, *instance(11, 4), mu=mu)
    assert weighted.value == pytest.approx(mu * plain.value, rel=1e-6)
    close(weighted.X, plain.X)


@pytest.mark.parametrize("divergence", ATOMS)
def test_permuted_doubled_and_redundant_rows(divergence):
    X0, Z, b, A, t = instance(13, 4)
    plain = solved(divergence, X0, Z, b, A, t)
    order = np.random.default_rng(0).permutation(4)
    doubled = np.concatenate([order, order[:2]])
    factor = np.concatenate([np.ones(4), [2.0, 0.5]])  # the same row at another scale
    Z2 = np.vstack([np.sqrt(factor)[:, None] * Z[doubled], Z[:1]])
    b2 = np.concatenate([factor * b[doubled], [10 * b[0]]])  # and an inactive one
    again = solved(divergence, X0, Z2, b2, A, t)
    assert again.value == pytest.approx(plain.value, abs=1e-6)
    close(again.X, plain.X, 1e-4)


@pytest.mark.parametrize("divergence", ATOMS)
def test_a_start_that_meets_every_row_is_the_answer(divergence):
    X0, Z, _, A, _ = instance(17, 5)
    sol = solved(divergence, X0, Z, np.einsum("kn,nm,km->k", Z, X0, Z) + 1.0, A, float(np.vdot(A, X0)))
    assert sol.value == pytest.approx(0, abs=1e-12)
    close(sol.X, X0, 1e-12)
    assert not sol.duals[0].any()
