"""Rows in one variable only, which become its box: answers, duals and proofs are those of the rows."""

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bregopt as bo
import bregopt.cvxpy  # registers the method
from bregopt.certify import is_farkas
from bregopt.presolve.boxes import Boxes


def test_which_rows_are_boxes():
    X, u = bo.PSD(2), bo.Variable(6, lower=0.0, name="u")
    p = bo.Parameter(value=4.0)
    rows = [
        bo.trace(X) + bo.sum(u) <= 9,
        u[:2] >= [-1, 1],  # the first is weaker than the box
        -2 * u[1] >= -p,
        bo.between(3 * u[2], 3, 6),
        u[3] == 1,  # an equation stays a row
        u[4] - u[3] <= 1,
        bo.soft(u[4] <= 1),
        u[5] <= 2,
        u[5] >= 3,  # contradicts the other row: both stay
    ]
    boxed = Boxes().apply(bo.Problem(bo.Minimize(bo.trace(X)), rows).program(), None)
    assert boxed.kept.tolist() == [0, 5, 6, 7, 8, 9]
    np.testing.assert_array_equal(boxed.program.u_lo, [0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(boxed.program.u_hi, [np.inf, 2, 2, np.inf, np.inf, np.inf])
    assert boxed.below.tolist() == [-1, 2, 4, -1, -1, -1]
    assert boxed.above.tolist() == [-1, 3, 4, -1, -1, -1]
    # Messages count constraints as they were declared.
    assert boxed.program.row_name(1).startswith("constraint 4")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["path", "psdboost"]), st.booleans())
def test_duals_of_the_rows_come_back(seed, solver, maximize):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 3))
    A, c = A + A.T, rng.normal(size=4)
    X, u = bo.PSD(3), bo.Variable(4, name="u")
    scale = rng.choice([-2.0, 0.5, 1.0], 4)
    rows = [
        bo.trace(X) == 1,
        X[0, 0] + u[0] - u[1] <= 2,
        bo.between(u, -1, 1.5),
        scale * u >= -np.abs(scale),
        u[1] <= 0.5,
        2 * u[2] <= 1,
    ]
    objective = bo.inner(A, X) + c @ u
    problem = bo.Problem(bo.Maximize(-objective) if maximize else bo.Minimize(objective), rows)
    sol = problem.solve(solver, tol=1e-8)
    assert sol.status == "optimal"
    assert sol.dual_residual <= 1e-8
    K, v = cp.Variable((3, 3), PSD=True), cp.Variable(4)
    theirs = [
        cp.trace(K) == 1,
        K[0, 0] + v[0] - v[1] <= 2,
        v >= -1,
        v <= 1.5,
        cp.multiply(scale, v) >= -np.abs(scale),
        v[1] <= 0.5,
        2 * v[2] <= 1,
    ]
    reference = cp.Problem(cp.Minimize(cp.vdot(A, K) + c @ v), theirs)
    peers.ask(reference).agrees(-sol.value if maximize else sol.value, sol.error)
    # Rows may share the multiplier of a bound: their multipliers add up to the prices c of the variables.
    prices = sol.duals[2] * np.ones(4) - scale * sol.duals[3] + sol.duals[1] * np.array([1, -1, 0, 0])
    prices[1] += sol.duals[4]
    prices[2] += 2 * sol.duals[5]
    np.testing.assert_allclose(prices, -c, atol=1e-6)
    # Inequalities have a multiplier only if they are active, with the sign of a price.
    assert all((np.asarray(dual) >= 0).all() for dual in (sol.duals[1], *sol.duals[3:]))
    missing = [2 - sol.X[0, 0] - sol.u["u"][0] + sol.u["u"][1], np.abs(scale) + scale * sol.u["u"]]
    missing += [0.5 - sol.u["u"][1], 1 - 2 * sol.u["u"][2]]
    for dual, slack in zip((sol.duals[1], *sol.duals[3:]), missing, strict=True):
        np.testing.assert_allclose(np.asarray(dual) * slack, 0, atol=1e-5)


@pytest.mark.parametrize("solver", ["path", "cvxpy"])
def test_contradictions_are_proven_with_all_rows(solver):
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [bo.trace(X) + bo.sum(u) <= 1, u >= 1]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
    sol = problem.solve(solver) if solver == "path" else peers.reference(problem)
    assert sol.status == "infeasible"
    assert is_farkas(problem.program(), sol._raw.duals)
    np.testing.assert_allclose(sol.duals[1] / sol.duals[0], 1, atol=1e-6)
    crossed = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) + bo.sum(u) == 1, u[0] >= 1, u[0] <= 0])
    found = crossed.solve(solver) if solver == "path" else peers.reference(crossed)
    assert found.status == "infeasible"


def test_rays_know_the_box():
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [bo.trace(X) - bo.sum(u) <= 1, u[0] <= 1, u >= 0]
    sol = bo.Problem(bo.Maximize(bo.trace(X)), rows).solve()
    assert sol.status == "unbounded"


def test_a_warm_start_has_the_rows_as_written():
    X, u, p = bo.PSD(3), bo.Variable(2), bo.Parameter(2, value=[0.2, 0.3])
    rows = [bo.diag(X) + u[0] - u[1] == 1, u >= p, bo.sum(u) <= 4]
    problem = bo.Problem(bo.Minimize(bo.sum(X) + u @ [2, 1]), rows)
    first = problem.solve()
    p.value = [0.25, 0.3]
    again = problem.solve(warm_start=True)
    assert again.status == "optimal"
    assert again.value - first.value == pytest.approx(0.05 * first.duals[1][0], rel=1e-2)


def nearness(divergence, rng):
    """Return a nearness problem with slack variables whose signs are written as rows."""
    G = rng.normal(size=(4, 4))
    X, xi = bo.PSD(4), bo.Variable(3)
    i, j = [0, 0, 1], [1, 2, 3]
    rows = [bo.sq_distance(X, i, j) <= 0.5 + xi, xi >= 0, bo.trace(X) == 4]
    return bo.Problem(bo.Minimize(divergence(X, G @ G.T / 4 + np.eye(4)) + 0.3 * bo.sum(xi)), rows)


@pytest.mark.parametrize("divergence", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
def test_slacks_of_nearness_problems_are_folded(divergence, rng):
    problem = nearness(divergence, rng)
    sol = problem.solve(tol=1e-8)
    assert (sol.solver, sol.status) == ("bregman", "optimal")
    values, duals = sol.value, sol.duals
    (xi,) = sol.u.values()
    distance = bo.sq_distance(problem.matrices[0], [0, 0, 1], [1, 2, 3]).value
    np.testing.assert_allclose(xi, np.maximum(distance - 0.5, 0), atol=1e-6)
    np.testing.assert_allclose(duals[0] + duals[1], 0.3, atol=1e-8)
    if divergence is not bo.von_neumann_div:  # the reference takes minutes for it
        peer = peers.ask(problem)
        peer.agrees(values, sol.error)
        peer.near(duals[0], peer.duals[0], atol=1e-4)


def test_what_is_no_slack_is_named():
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [X[0, 0] + u[0] >= 1, X[1, 1] + u[0] + u[1] >= 2, u >= 0]
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2)) + bo.sum(u)), rows)
    with pytest.raises(bo.UnsupportedProblemError, match=r"slacks only \(the problem has 1 other"):
        problem.solve("bregman")


def test_cvxpys_slacks_are_folded():
    X, xi = cp.Variable((3, 3), PSD=True), cp.Variable(2)
    A = np.diag([1.0, 2.0, 3.0])
    rows = [X[0, 1] >= 0.9 - xi[0], X[0, 2] >= 0.5 - xi[1], xi >= 0, cp.diag(X) == 1]
    problem = cp.Problem(cp.Minimize(cp.trace(A @ X) - cp.log_det(X) + 2 * cp.sum(xi)), rows)
    peer = peers.ask(problem)
    problem.solve(method="bregopt", strict=True, tol=1e-8)
    assert problem.solver_stats.solver_name == "bregopt: bregman"
    peer.agrees(problem.value, problem.solver_stats.extra_stats.error)
    for c, dual in zip(rows, peer.duals, strict=True):
        peer.near(c.dual_value, dual, atol=1e-4)
