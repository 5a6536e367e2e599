"""Slack variables, eliminated into rows by the route `path`, against the problem as written."""

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bregopt as bo
from bregopt.presolve.boxes import Slacks


def margin_problem(seed, R=12, D=3, price=0.3, scale=1.0):
    """Return the soft-margin problem in our DSL, with slack variables, and in CVXPY."""
    rng = np.random.default_rng(seed)
    far, near = rng.normal(size=(R, D)) + np.eye(D)[0], rng.normal(size=(R, D))
    X, rho, xi = bo.PSD(D), bo.Variable(name="rho"), bo.Variable(R, nonneg=True, name="xi")
    margins = bo.quad_form(far, X) - bo.quad_form(near, X)
    rows = [margins >= rho - scale * xi, bo.trace(X) == 1]
    ours = bo.Problem(bo.Maximize(rho - price * bo.sum(xi)), rows)
    K, r, x = cp.Variable((D, D), PSD=True), cp.Variable(), cp.Variable(R, nonneg=True)
    theirs = cp.hstack([f @ K @ f - g @ K @ g for f, g in zip(far, near, strict=True)])
    constraints = [theirs >= r - scale * x, cp.trace(K) == 1]
    return ours, cp.Problem(cp.Maximize(r - price * cp.sum(x)), constraints)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    price=st.sampled_from([0.1, 0.3, 2.0]),
    scale=st.sampled_from([0.5, 1.0, 3.0]),
)
def test_margins_of_either_writing_agree(seed, price, scale):
    ours, theirs = margin_problem(seed, price=price * scale, scale=scale)
    sol = ours.solve(solver="path", tol=1e-7)
    assert sol.status == "optimal"
    peers.ask(theirs).agrees(sol.value, sol.error)
    assert sol.primal_residual <= 1e-8
    assert (sol.u["xi"] >= 0).all()


def test_only_slack_variables_are_folded():
    X, u = bo.PSD(2), bo.Variable(7, nonneg=True, name="u")
    rows = [
        X[0, 0] - u[0] <= 1,  # eliminated: relaxes the upper bound
        X[1, 1] + u[1] <= 1,  # the wrong sign
        bo.between(X[0, 1] + u[2], 0, 1),  # a bound on the other side
        X[0, 0] + 2 * u[3] >= 3,  # eliminated
        X[0, 0] + u[4] == 2,  # an equality
        X[0, 0] + u[5] >= 1,  # also in the next row
        X[1, 1] + u[5] >= 1,
        X[1, 1] + X[0, 0] + u[6] >= 4,  # no price, but a bound
        bo.trace(X) <= 5,
    ]
    cost = np.array([1.0, 1, 1, 1, 1, 1, 0])
    problem = bo.Problem(bo.Minimize(X[0, 1] + cost @ u), rows)
    folded = Slacks().apply(problem.program(), None)
    assert folded.slack.tolist() == [0, 3]
    assert folded.program.k == 5
    sol = problem.solve(solver="path")
    assert sol.status == "optimal"
    peers.ask(problem).agrees(sol.value, sol.error)


def test_warm_start_and_duals_are_those_of_the_whole():
    ours, theirs = margin_problem(3)
    first = ours.solve(solver="path", tol=1e-7)
    again = ours.solve(solver="path", tol=1e-7, warm_start=True)
    assert again.value == pytest.approx(first.value, abs=1e-6)
    peer = peers.ask(theirs)
    peer.near(first.duals[0], peer.duals[0], atol=1e-4)
    assert first.u["xi"].shape == (12,)


@pytest.mark.parametrize("bound", [0.0, 5.0])
@pytest.mark.parametrize("sense", [1, -1])
def test_a_ray_beside_a_slack(bound, sense):
    """The rows of a ray have no bounds, so the slack variable of a ray does not pay for one."""
    X, t, xi = bo.PSD(2), bo.Variable(name="t"), bo.Variable(lower=1.0, name="xi")
    row = X[0, 0] + xi >= bound if sense > 0 else X[0, 0] - xi <= -bound
    problem = bo.Problem(bo.Minimize(bo.trace(X) + 10 * xi - t), [row])
    assert problem.solve(solver="path").status == "unbounded"


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_variables_that_matter_to_nothing_stay_near_zero(scale):
    """Along them the set of optima has no end, and interior points would grow beyond bounds."""
    rng = np.random.default_rng(0)
    X, s, t, w = bo.PSD(3), bo.Variable(nonneg=True, name="s"), bo.Variable(name="t"), bo.Variable(name="w")
    A = rng.normal(size=(3, 3, 3))
    A += A.transpose(0, 2, 1)
    idle = [s + 2 * t == 1, bo.inner(A[0], X) + w <= -1]
    rows = [bo.diag(X) == 1, *idle]
    problem = bo.Problem(bo.Minimize(scale * (bo.inner(A[1], X) + bo.norm_nuc(X - A[2]))), rows)
    alone = bo.Problem(problem.objective, rows[:1])
    sol = problem.solve(solver="path", tol=1e-8)
    assert sol.status == "optimal"
    assert sol.u["s"] == 0
    assert sol.u["t"] == pytest.approx(0.5)
    assert np.vdot(A[0], sol.X) + sol.u["w"] <= -1 + 1e-8
    assert sol.value == pytest.approx(alone.solve(solver="path", tol=1e-8).value, rel=1e-7)
    assert problem.program().k - Slacks().apply(problem.program(), None).program.k == 3
    peers.ask(problem).agrees(sol.value, sol.error)


def test_a_ray_beside_an_idle_variable():
    X, s, t = bo.PSD(2), bo.Variable(nonneg=True, name="s"), bo.Variable(name="t")
    problem = bo.Problem(bo.Minimize(X[0, 1]), [X[0, 0] + s - t == 3, X[0, 0] + X[1, 1] <= 2 * X[0, 1] + 9])
    assert problem.solve(solver="path").status == "optimal"
    free = bo.Problem(bo.Minimize(X[0, 1]), [X[0, 0] + s - t == 3])
    sol = free.solve(solver="path")
    assert sol.status == "unbounded"
