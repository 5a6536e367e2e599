"""Sparse inverse covariance problems declared in the language; joint and latent-variable forms."""

import numpy as np
import pytest
from test_graphical_lasso import covariance

import bregopt as bo

N = 8
UPPER = np.triu_indices(N, 1)


def declared(S, penalty, rows=()):
    X = bo.PSD(len(S), name="X")
    likelihood = bo.logdet_div(X, np.eye(len(S))) + bo.inner(S - np.eye(len(S)), X)  # <S, X> - logdet X - n
    return X, bo.Problem(bo.Minimize(likelihood if penalty is None else likelihood + penalty(X)), list(rows))


def test_the_one_norm_is_the_graphical_lasso(capsys):
    S = covariance(N, 12)
    _, problem = declared(S, lambda X: 0.1 * bo.norm1(X))
    sol = problem.solve(tol=1e-9)
    expected = bo.graphical_lasso(S, 0.1, penalize_diagonal=True, tol=1e-10)
    assert sol.status == "optimal"
    assert sol.solver == "bregman"
    assert sol.value == pytest.approx(expected.value - N, abs=1e-7)
    np.testing.assert_allclose(sol.X, expected.X, atol=1e-4)
    np.testing.assert_array_equal(sol.X == 0, expected.X == 0)
    problem.explain()
    assert "for sparse inverse covariances" in capsys.readouterr().out


def test_soft_and_hard_rows_give_their_multipliers():
    S, gamma = covariance(N, 12), 0.2
    X = bo.PSD(N, name="X")
    bent = bo.soft(X[UPPER] == 0, gamma, penalty="hinge").named("bent")
    likelihood = 3 * bo.logdet_div(X, np.diag(np.arange(1.0, N + 1))) + bo.inner(S, X)
    problem = bo.Problem(bo.Minimize(likelihood), [bent])
    sol = problem.solve(tol=1e-10)
    inverse = np.linalg.inv(sol.X)
    G = 3 * (np.diag(1 / np.arange(1.0, N + 1)) - inverse) + S  # gradient of the smooth part
    np.testing.assert_allclose(G.diagonal(), 0, atol=1e-4)
    np.testing.assert_allclose(2 * G[UPPER], -bent.dual_value, atol=1e-3)
    assert (np.abs(bent.dual_value) <= gamma).all()
    active = sol.X[UPPER] != 0
    assert 0 < active.sum() < len(active)
    np.testing.assert_allclose(bent.dual_value[active], gamma * np.sign(sol.X[UPPER][active]), atol=1e-4)
    ours = problem.solve("cvxpy")
    assert sol.value == pytest.approx(ours.value, abs=1e-4)


def test_covariance_selection_by_hard_zeros():
    S = covariance(N, 20)
    mask = np.zeros((N, N), dtype=bool)
    mask[np.arange(N - 1), np.arange(1, N)] = True
    zeros = np.nonzero(np.triu(~mask, 1))
    X, problem = declared(S, None, [])
    problem = bo.Problem(problem.objective, [X[zeros] == 0])
    sol = problem.solve(tol=1e-10)
    assert sol.status == "optimal"
    assert (sol.X[zeros] == 0).all()
    np.testing.assert_allclose(np.linalg.inv(sol.X)[mask], S[mask], atol=1e-5)
    expected = bo.graphical_lasso(S, 0.0, pattern=np.argwhere(mask), tol=1e-10)
    np.testing.assert_allclose(sol.X, expected.X, atol=1e-4)


@pytest.mark.parametrize(
    "rows",
    [
        lambda X: [X[0, 1] == 0, X[0, 1] == 0],  # twice
        lambda X: [X[0, 1] == 0, X[0, 2] >= 0.1],
        lambda X: [bo.soft(X[0, 1] == 0, 0.1, penalty="hinge"), bo.trace(X) <= 9],
    ],
)
def test_other_rows_take_the_general_method(rows, capsys):
    X, problem = declared(covariance(4, 20), None)
    problem = bo.Problem(problem.objective, rows(X))
    assert problem.solve().status == "optimal"
    problem.explain()
    assert "sparse inverse" not in capsys.readouterr().out


def test_an_unbounded_likelihood_is_proven_so():
    S = covariance(6, 20)
    S[:, 5] = S[:, 4]
    S[5] = S[4]
    X = bo.PSD(6)
    likelihood = bo.logdet_div(X, np.eye(6)) + bo.inner(S - np.eye(6), X)
    problem = bo.Problem(bo.Minimize(likelihood), [bo.soft(X[0, 1] == 0, 0.1, penalty="hinge")])
    sol = problem.solve()
    assert sol.status == "unbounded"
    assert sol.ray.X[4, 5] == pytest.approx(-sol.ray.X[4, 4])  # the difference of the two equal variables


def test_a_warm_start_and_limits_of_a_declared_problem():
    S = covariance(40, 30)
    _, problem = declared(S, lambda X: 0.02 * bo.norm1(X))
    sol = problem.solve(tol=1e-8)
    again = problem.solve(tol=1e-8, warm_start=True)
    assert again.iterations <= sol.iterations
    assert again.value == pytest.approx(sol.value, rel=1e-7)
    with pytest.warns(bo.ConvergenceWarning):
        short = problem.solve(tol=1e-8, max_iter=1)
    assert short.status == "user_limit"
    assert short.dual_value <= sol.value <= short.value


def test_a_latent_variable_form_by_cvxpy():
    """Sparse minus low rank (Chandrasekaran, Parrilo, Willsky 2012): the language declares it."""
    S, alpha, tau = covariance(5, 20), 0.1, 0.3
    R, L = bo.PSD(5, name="R"), bo.PSD(5, name="L")  # R = sparse - L
    likelihood = bo.logdet_div(R, np.eye(5)) + bo.inner(S - np.eye(5), R)
    objective = likelihood + alpha * bo.norm1(R + L) + tau * bo.trace(L)
    sol = bo.Problem(bo.Minimize(objective)).solve("cvxpy", tol=1e-5)
    assert sol.status == "optimal"
    R, L = sol.X
    U, inverse = np.linalg.inv(R) - S, np.linalg.inv(R)
    assert (np.abs(U) <= alpha + 1e-3).all()  # the gradient in the sparse part
    assert np.linalg.eigvalsh(tau * np.eye(5) + S + U - inverse + U)[0] >= -1e-3
