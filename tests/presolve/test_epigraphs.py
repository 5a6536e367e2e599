"""Slacks and absolute values, against the problem as written."""

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.presolve import presolve
from bregopt.presolve.epigraphs import absolute_values, opposite_rows, slacks
from bregopt.program import Answer, Start, StopReason
from bregopt.rigorous import proves_infeasible, recedes
from bregopt.routes import routing
from bregopt.routes.base import Settings

# --- Slacks ---------------------------------------------------------------------------------------------


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


@examples(7)
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
    folded = slacks(problem.program(), None)
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
    assert problem.program().k - slacks(problem.program(), None).program.k == 3
    peers.ask(problem).agrees(sol.value, sol.error)


def test_a_ray_beside_an_idle_variable():
    X, s, t = bo.PSD(2), bo.Variable(nonneg=True, name="s"), bo.Variable(name="t")
    problem = bo.Problem(bo.Minimize(X[0, 1]), [X[0, 0] + s - t == 3, X[0, 0] + X[1, 1] <= 2 * X[0, 1] + 9])
    assert problem.solve(solver="path").status == "optimal"
    free = bo.Problem(bo.Minimize(X[0, 1]), [X[0, 0] + s - t == 3])
    sol = free.solve(solver="path")
    assert sol.status == "unbounded"


# --- Differences ----------------------------------------------------------------------------------------


NAMES = ("boxes", "differences")


def deviations(n, rng, p=3.0, q=1.0, least=0.0):
    """Return a problem with the costs ``p u + q l`` of ``X_ij - A_ij = 2 u - l / 2`` for pairs ``i <= j``."""
    A = rng.normal(size=(n, n))
    C = rng.normal(size=(n, 2 * n))
    i, j = np.triu_indices(n)
    X, u, low = cp.Variable((n, n), PSD=True), cp.Variable(len(i)), cp.Variable(len(i))
    rows = [X[i, j] - A[i, j] == 2 * u - low / 2, u >= least, low >= least, cp.trace(X) <= n]
    return cp.Problem(cp.Minimize(p * cp.sum(u) + q * cp.sum(low) + cp.trace(C @ C.T @ X) / n + 4), rows)


def joined(problem):
    program = bo.from_cvxpy(problem).program()
    presolved = presolve(program, NAMES, Settings())
    return program, presolved


@pytest.mark.parametrize("least", [0.0, -0.5, 0.3])
@pytest.mark.parametrize(("p", "q"), [(3.0, 1.0), (1.0, 1.0), (2.0, -0.4)])
def test_an_answer_without_the_variables_is_one_with_them(p, q, least):
    """The certificate of the whole program knows nothing of the hinges."""
    program, presolved = joined(deviations(5, np.random.default_rng(0), p, q, least))
    assert presolved.program.k == 0
    assert np.count_nonzero(~presolved.program.bounds.hard) == 15
    sol = routing.solve(presolved.program, solver="path", tol=1e-10)
    found = Answer(sol.X, sol.u, sol.duals, StopReason.CONVERGED, 0)
    answer = presolved.restore(found)
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    assert certificate.worst < 1e-8
    assert certificate.primal == pytest.approx(sol.value, rel=1e-9)


def test_the_least_deviations_of_a_diagonal_are_known():
    """``X_ii = max(a_i, 0)`` deviates by the negative ``a_i`` alone."""
    a, n = np.array([1.0, -2.0, 0.5, -0.25]), 4
    X, u, low = cp.Variable((n, n), PSD=True), cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    problem = cp.Problem(cp.Minimize(3 * cp.sum(u) + 5 * cp.sum(low)), [cp.diag(X) - a == u - low])
    sol = bo.from_cvxpy(problem).solve("lagrangian", tol=1e-8)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(3 * 2.25, rel=1e-7)


def test_proofs_are_those_of_the_whole_program():
    X, u, low = cp.Variable((2, 2), PSD=True), cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    contradiction = cp.Problem(
        cp.Minimize(u + low), [X[0, 0] - 1 == u - low, X[1, 1] == 1, cp.trace(X) <= 0.5]
    )
    program, presolved = joined(contradiction)
    found = routing.solve(presolved.program, solver="path")
    assert found.status == "infeasible"
    y = presolved.restore(Answer.without_point(presolved.program, found.duals, StopReason.INFEASIBLE)).y
    assert proves_infeasible(program, y)
    fall = cp.Problem(cp.Minimize(u - low / 2), [-X[0, 0] == u - low, X[1, 1] == 1])
    program, presolved = joined(fall)
    assert presolved.program.k == 0
    ray = Answer((np.diag([1.0, 0.0]),), np.zeros(0), np.zeros(2), StopReason.UNBOUNDED, 0)
    ray = presolved.restore(ray)
    assert recedes(program, ray.X, ray.u)


def test_a_difference_that_pays_for_itself_stays():
    """At a negative price of both, they grow without end."""
    assert joined(deviations(3, np.random.default_rng(1), 1.0, -1.0))[1].program.k > 0


def test_a_start_is_mapped():
    program, _ = joined(deviations(6, np.random.default_rng(2)))
    sol = routing.solve(program, solver="lagrangian", tol=1e-8)
    assert sol.status == "optimal"
    again = routing.solve(program, solver="lagrangian", start=sol, tol=1e-8)
    assert again.status == "optimal"
    assert again.value == pytest.approx(sol.value, rel=1e-7)


# --- Absolute values ------------------------------------------------------------------------------------

_FOLDED = ("boxes", "epigraphs", "absolute values", "parallel rows")


def symmetric(n, rng):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def reduced(problem):
    return presolve(problem.program(), _FOLDED, Settings())


@pytest.mark.parametrize(("least", "seed"), turns([None, 0.0, 0.5, -0.3], range(3)))
def test_absolute_values(seed, least):
    n, rng = 4, np.random.default_rng(seed)
    S, C, price = symmetric(n, rng), symmetric(n, rng), rng.uniform(0.1, 1.0)
    X, u = bo.PSD(n), bo.Variable((n, n), name="u")
    rows = [2 * (X - S) <= u, X - S - 0.1 >= -0.5 * u, bo.trace(X) <= 3]
    rows += [] if least is None else [u >= least]
    problem = bo.Problem(bo.Minimize(bo.inner(C, X) + price * bo.sum(u)), rows)
    assert reduced(problem).program.k == 0
    sol = problem.solve(solver="path", tol=1e-8)
    assert sol.status == "optimal"
    wanted = np.maximum(2 * (sol.X - S), 2 * (S - sol.X + 0.1))
    np.testing.assert_allclose(sol.u["u"], np.maximum(wanted, -np.inf if least is None else least), atol=1e-6)
    assert sol.dual_residual <= 1e-8  # of the problem as written: c - B'y is zero, or is the price of a box
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert abs(sol.value - plain.value) <= sol.error + plain.error


def test_opposite_rows_alone_are_folded():
    X, u = bo.PSD(2), bo.Variable(5)
    rows = [
        *(X[0, 1] <= u[0], -X[0, 1] <= u[0]),  # folded
        *(X[0, 1] <= u[1], -2 * X[0, 1] <= u[1]),  # not opposite
        *(X[0, 1] <= u[2], -X[0, 1] <= u[2], X[0, 0] <= u[2]),  # three rows
        *(X[0, 1] <= u[3], X[0, 1] - 1 <= u[3]),  # the same side
        *(X[0, 1] <= u[4], -X[0, 1] <= u[4], u[4] <= 1),  # a box
        bo.trace(X) == 1,
    ]
    program = bo.Problem(bo.Minimize(bo.sum(u) + 3 * X[0, 1]), rows).program()
    program = presolve(program, ("boxes",), Settings()).program
    assert absolute_values(program, None).variable.tolist() == [0]


# --- Interchangeable variables and opposite rows ---------------------------------------------------------


def within_a_norm(seed, most, price=0.0, n=4):
    """Return a matrix near another one in the sum of deviations, mirrored ones apart."""
    rng = np.random.default_rng(seed)
    S, C = symmetric(n, rng), symmetric(n, rng)
    X, u = bo.PSD(n), bo.Variable((n, n), name="u")
    rows = [X - S <= u, S - X <= u, bo.sum(u) <= most, bo.trace(X) == 2]
    return bo.Problem(bo.Minimize(bo.inner(C, X) + price * bo.sum(u)), rows), S


def test_which_opposite_rows_are_one():
    X, u, v = bo.PSD(2), bo.Variable(8), bo.Variable()
    rows = [
        *(X[0, 1] <= u[0], -X[0, 1] <= u[0]),  # one equality
        *(X[0, 1] - 1 <= 49 * u[1], -2 * X[0, 1] <= 98 * u[1]),  # the same in other units
        *(X[0, 1] + v <= u[2], -X[0, 1] - v <= u[2]),  # with another variable in both
        *(X[0, 1] <= u[3], -2 * X[0, 1] <= u[3]),  # not opposite
        *(X[0, 1] <= u[4], -X[0, 1] <= u[4], X[0, 0] <= u[4]),  # three rows
        *(X[0, 1] <= u[5], X[0, 1] - 1 <= u[5]),  # the same side
        *(X[0, 1] <= u[6], -X[0, 1] <= u[6], u[6] <= 1),  # bounded above
        *(X[0, 1] <= u[7], -X[0, 1] <= u[7], u[7] >= 0.5),  # a lower bound that the rows do not imply
        bo.sum(u) <= 9,
        bo.trace(X) == 1,
    ]
    program = presolve(bo.Problem(bo.Minimize(3 * X[0, 1]), rows).program(), ("boxes",), Settings()).program
    found = opposite_rows(program, None)
    assert found.variable.tolist() == [0, 1, 2]
    assert (found.program.m, found.program.k) == (program.m - 3, program.k + 3)


@pytest.mark.parametrize(
    ("solver", "least", "price", "seed"),
    turns(["path", "lagrangian"], [None, 0.0, -0.3], [0.0, 0.3], first(1, range(2))),
)
def test_opposite_rows_and_their_duals_come_back(seed, price, least, solver):
    n, rng = 4, np.random.default_rng(seed)
    S, C, W = symmetric(n, rng), symmetric(n, rng), 1 + np.abs(symmetric(n, rng))
    X, u = bo.PSD(n), bo.Variable((n, n), name="u")
    rows = [2 * (X - S) <= u, X - S - 0.1 >= -0.5 * u, bo.inner(W, u) <= 60, bo.trace(X) == 2]
    rows += [] if least is None else [u >= least]
    problem = bo.Problem(bo.Minimize(bo.inner(C, X) + price * bo.sum(u)), rows)
    found = opposite_rows(presolve(problem.program(), ("boxes",), Settings()).program, None)
    assert len(found.variable) == n * n
    sol = problem.solve(solver=solver, tol=1e-8)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8  # of all rows and variables
    assert (sol.u["u"] >= np.maximum(2 * (sol.X - S), 2 * (S - sol.X + 0.1)) - 1e-7).all()
    again = problem.solve(solver=solver, tol=1e-8, warm_start=sol)
    assert again.status == "optimal"
    assert abs(again.value - sol.value) <= sol.error + again.error
    proof = problem.solve(solver="path", tol=1e-8).verify()
    assert proof.width <= 1e-5 * (1 + abs(sol.value))


@pytest.mark.parametrize(("solver", "seed"), turns(["path", "lagrangian"], range(3)))
def test_the_larger_one_of_two_sums_of_absolute_values(seed, solver):
    """Two rows bound the larger sum, as others do each absolute value; they are not opposite."""
    rng = np.random.default_rng(seed)
    X, u, t, a, C = bo.PSD(4), bo.Variable(4, name="u"), bo.Variable(), rng.normal(size=4), symmetric(4, rng)
    rows = [X[0] - a <= u, a - X[0] <= u + 0.5, u[0] + 2 * u[1] + u[2] <= t, 0.5 * u[2] + u[3] <= t]
    problem = bo.Problem(bo.Minimize(t + bo.inner(C, X)), [*rows, bo.trace(X) <= 3])
    assert opposite_rows(problem.program(), None).variable.tolist() == [1, 2, 3, 4]  # after t
    sol = problem.solve(solver=solver, tol=1e-8)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == plain.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8  # of all rows and variables


@pytest.mark.parametrize(
    ("divergence", "found"), [(bo.frobenius_div, True), (bo.logdet_div, False), (bo.von_neumann_div, False)]
)
def test_variables_in_penalties_of_ratios_stay(divergence, found):
    """Such a penalty is another one once a constant has moved to its bound."""
    X, u, v = bo.PSD(2), bo.Variable(), bo.Variable(lower=0.0)
    rows = [X[0, 1] - 1 <= u, -X[0, 1] <= u, v + X[1, 1] == 2, bo.soft(u + X[0, 0] <= 3, 1.0)]
    program = bo.Problem(bo.Minimize(divergence(X, np.eye(2))), rows).program()
    assert (opposite_rows(program, None) is not None) == found


def test_proofs_of_opposite_rows_are_those_of_the_whole_program():
    n, X, u = 3, bo.PSD(3), bo.Variable((3, 3))
    within = [X - 2 <= u, 2 - X <= u]
    program = bo.Problem(bo.Minimize(-X[0, 1]), [*within, bo.sum(u) <= 1, bo.trace(X) <= 1]).program()
    found = routing.solve(program, solver="path")
    assert found.status == "infeasible"
    assert proves_infeasible(program, found.duals)
    falls = bo.Problem(bo.Minimize(bo.inner(-np.eye(n), X)), [*within, u[0, 1] + u[1, 2] <= 5])
    assert falls.solve(solver="path").status == "unbounded"
    found = opposite_rows(falls.program(), None)
    along = np.zeros(
        (2, n * n)
    )  # the last entry of the matrix grows, and so does the slack of its lower bound
    along[1, -1] = 2.0
    ray = Answer(
        (np.diag([0.0, 0.0, 1.0]),), along.ravel(), np.zeros(found.program.m), StopReason.UNBOUNDED, 0
    )
    restored = found.restore(ray)
    np.testing.assert_array_equal(restored.u.reshape(n, n), np.diag([0.0, 0.0, 1.0]))
    assert recedes(falls.program(), restored.X, restored.u)


@pytest.mark.parametrize("solver", ["path", "lagrangian"])
def test_a_start_of_opposite_rows_is_mapped(solver):
    """The point and the multipliers of an answer are those of its own start."""
    program = within_a_norm(0, 12.0)[0].program()
    sol = routing.solve(program, solver=solver, tol=1e-9)
    found = opposite_rows(presolve(program, ("boxes",), Settings()).program, None)
    whole = Answer(sol.X, sol.u, sol.duals, StopReason.CONVERGED, 0)
    start = found.shrink(Start(whole.X, whole.u, whole.y))
    again = found.restore(Answer(start.X, start.u, start.y, StopReason.CONVERGED, 0))
    np.testing.assert_allclose(again.u, sol.u, atol=1e-7)
    np.testing.assert_allclose(again.y, sol.duals, atol=1e-7)
