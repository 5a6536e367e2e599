"""Matrices without a divergence beside others with one, by proximal steps, against closed forms and CVXPY."""

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo

DIVERGENCES = {"von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}


def definite(n, rng):
    G = rng.normal(size=(n, n))
    return G @ G.T / n + np.eye(n) / 2


def isotropic(d, F):
    """Return the state of order ``d^2`` with fidelity ``F`` to a maximally entangled one, else uniform."""
    phi = np.eye(d).ravel() / np.sqrt(d)
    P = np.outer(phi, phi)
    return F * P + (1 - F) * (np.eye(d * d) - P) / (d * d - 1)


@pytest.mark.parametrize(("name", "d"), turns(DIVERGENCES, [2, 4, 8]))
def test_nearest_state_with_a_psd_partial_transpose(name, d):
    """From an isotropic state it is the isotropic one of fidelity 1/d."""
    F, n = 0.8, d * d
    X = bo.PSD(n, hermitian=True)
    ppt = bo.partial_transpose(X, (d, d), 1) >> 0
    prob = bo.Problem(bo.Minimize(DIVERGENCES[name](X, isotropic(d, F))), [bo.trace(X) == 1, ppt])
    sol = prob.solve("bregman", tol=1e-8)
    distance = (1 / d - F) ** 2 + (F - 1 / d) ** 2 / (n - 1)
    relative_entropy = np.log(1 / (d * F)) / d + (1 - 1 / d) * np.log((1 - 1 / d) / (1 - F))
    assert sol.status == "optimal"
    assert np.isclose(sol.value, distance if name == "frobenius" else relative_entropy, atol=1e-7)
    assert np.allclose(sol.X, isotropic(d, 1 / d), atol=1e-5)
    assert np.linalg.eigvalsh(ppt.dual_value)[0] > -1e-7


@pytest.mark.parametrize(("name", "seed"), turns(DIVERGENCES, range(4)))
def test_linked_matrices(name, seed):
    """``Z`` pays a linear cost, and its entries bound those of ``X``."""
    rng = np.random.default_rng(seed)
    n = 4
    X, Z = bo.PSD(n, name="X"), bo.PSD(n, name="Z")
    i, j = np.triu_indices(n)
    rows = [
        X[0, 1] - Z[0, 1] == 0.1,
        bo.trace(X) + bo.trace(Z) >= 3,
        X[i, j] + Z[i, j] <= 2,
        Z[0, 2] <= X[1, 2],
    ]
    objective = bo.Minimize(2 * DIVERGENCES[name](X, definite(n, rng)) + bo.inner(definite(n, rng), Z))
    prob = bo.Problem(objective, rows)
    sol, other = prob.solve(tol=1e-8), prob.solve(solver="cvxpy")
    assert (sol.status, sol.solver) == ("optimal", "bregman")
    assert np.isclose(sol.value, other.value, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "norm", "n"), turns(DIVERGENCES, [bo.norm_nuc, bo.sigma_max], first(2, [4, 8, 12]))
)
def test_nearness_within_a_norm(n, norm, name):
    """The matrices of the norm have no costs, so that the divergence is the measure of their slacks."""
    rng = np.random.default_rng(n)
    X0, center, X = definite(n, rng), definite(n, rng), bo.PSD(n)
    within = norm(X - center)
    singular = np.linalg.svd(X0 - center, compute_uv=False)
    size = 0.9 * (singular.sum() if norm is bo.norm_nuc else singular[0])
    prob = bo.Problem(bo.Minimize(DIVERGENCES[name](X, X0)), [within <= size])
    sol = prob.solve()
    assert (sol.status, sol.solver) == ("optimal", "bregman")
    assert within.value == pytest.approx(size, rel=1e-5)  # X0 is outside
    if n == 4 or name == "frobenius":
        other = prob.solve(solver="cvxpy", backend="CLARABEL")
        assert abs(sol.value - other.value) <= sol.error + other.error + 1e-6 * abs(other.value)


@pytest.mark.parametrize(("d", "solver"), [(2, "path"), (4, "lagrangian"), (8, "auto")])
@pytest.mark.parametrize("units", [1e-6, 1.0, 1e6])
def test_squared_distances_beside_matrices_are_soft_rows(d, solver, units, capsys):
    """The route is one for linear objectives, and the certificate that of the distance."""
    X = bo.PSD(d * d)
    ppt = bo.partial_transpose(X, (d, d), 1) >> 0
    X0 = units * isotropic(d, 0.8)
    prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, X0)), [bo.trace(X) == units, ppt])
    prob.explain()
    assert ("squared distances as soft rows" in capsys.readouterr().out) == (d == 8)
    sol = prob.solve(solver)
    assert sol.status == "optimal"
    assert sol.solver in ("path", "lagrangian")
    assert np.allclose(sol.X, units * isotropic(d, 1 / d), atol=1e-4 * units)
    again = prob.solve(solver, warm_start=True)
    assert again.status == "optimal"
    assert abs(again.value - sol.value) <= again.error + sol.error


@pytest.mark.parametrize("d", [2, 4, 8])
def test_an_accuracy_of_the_entries_is_left_to_proximal_steps(d):
    X = bo.PSD(d * d)
    ppt = bo.partial_transpose(X, (d, d), 1) >> 0
    prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, isotropic(d, 0.8))), [bo.trace(X) == 1, ppt])
    sol = prob.solve(tol_X=1e-8)
    assert (sol.status, sol.solver) == ("optimal", "bregman")
    assert np.abs(sol.X - isotropic(d, 1 / d)).max() <= min(sol.accuracy.largest + 1e-15, 1e-8)


@pytest.mark.parametrize("n", first(1, [30, 40, 50, 64]))
def test_nearest_correlation_matrix_above_another(n):
    """The equalities of both matrices are so many that factorizations of Newton's equation took minutes."""
    A, X = np.random.default_rng(3).normal(size=(n, n)), bo.PSD(n)
    above = X >> 0.1 * np.ones((n, n))
    prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, (A + A.T) / 2)), [bo.diag(X) == 1, above])
    sol, other = prob.solve("bregman", time_limit=60), prob.solve("lagrangian")
    assert sol.status == other.status == "optimal"
    assert abs(sol.value - other.value) <= sol.error + other.error
    assert np.allclose(sol.X, other.X, atol=1e-3)


@pytest.mark.parametrize("solver", ["path", "auto"])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_infeasible_rows_are_proven(name, solver):
    if (name, solver) == ("von_neumann", "path"):
        pytest.skip("path takes squares alone")
    X, Z = bo.PSD(3, name="X"), bo.PSD(3, name="Z")
    rows = [X[0, 0] + Z[0, 0] == 0.5, Z[0, 1] == 2, Z[1, 1] <= 1]
    sol = bo.Problem(bo.Minimize(DIVERGENCES[name](X, np.eye(3))), rows).solve(solver)
    assert sol.status == "infeasible"


def test_logdet_and_cyclic_projections_do_not_take_them():
    X, Z = bo.PSD(3, name="X"), bo.PSD(3, name="Z")
    rows = [X[0, 0] + Z[0, 0] == 0.5]
    barrier = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(3)) + bo.trace(Z)), rows)
    with pytest.raises(
        bo.UnsupportedProblemError, match=r"a linear objective \(of Z\) but beside von Neumann"
    ):
        barrier.solve("bregman")
    cyclic = bo.Problem(bo.Minimize(bo.frobenius_div(X, np.eye(3))), [*rows, Z[1, 1] == 1])
    with pytest.raises(bo.UnsupportedProblemError, match="method 'newton'"):
        cyclic.solve("bregman", method="cyclic")


def test_a_limit_on_steps_and_a_warm_start():
    d = 3
    X = bo.PSD(d * d, hermitian=True)
    ppt = bo.partial_transpose(X, (d, d), 1) >> 0
    rng = np.random.default_rng(0)
    X0 = 0.7 * isotropic(d, 0.9) + 0.3 * definite(d * d, rng) / 9
    prob = bo.Problem(bo.Minimize(bo.von_neumann_div(X, X0)), [bo.trace(X) == 1, ppt])
    with pytest.warns(bo.ConvergenceWarning):
        short = prob.solve(tol=1e-9, max_iter=1)
    assert short.status in ("optimal_inaccurate", "user_limit")
    full = prob.solve(tol=1e-9)
    again = prob.solve(tol=1e-9, warm_start=True)
    assert again.iterations <= full.iterations
    assert np.isclose(again.value, full.value, rtol=1e-8)
