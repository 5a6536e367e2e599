"""Penalties by variables of their own, against the problem as written: slacks, differences and norms."""

import cvxpy as cp
import numpy as np
import peers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.cvxpy import BREGOPT
from bregopt.cvxpy.conic_solver import ConicProblem
from bregopt.presolve import presolve
from bregopt.presolve.epigraphs import slacks
from bregopt.program import Answer, StopReason
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


# --- Norms ----------------------------------------------------------------------------------------------


def indefinite(n, seed=0):
    A = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    return A


def norms(A):
    """Return the least norm over correlation matrices in our language."""
    X = bo.PSD(len(A), name="X")
    return bo.Problem(bo.Minimize(bo.norm2(X - A)), [bo.diag(X) == 1])


def test_language_and_hooks_project():
    """All find the distance of the projection."""
    A = indefinite(12)
    expected = np.linalg.norm(bo.nearest_correlation(A).X - A)
    problem = norms(A)
    sol = problem.solve(tol=1e-9)
    Y = cp.Variable(A.shape, PSD=True)
    theirs = cp.Problem(cp.Minimize(cp.norm(Y - A, "fro")), [cp.diag(Y) == 1])
    for options in ({"method": "bregopt", "tol": 1e-9}, {"solver": BREGOPT, "tol": 1e-9}):
        theirs.solve(**options)
        assert theirs.status == "optimal"
        assert theirs.value == pytest.approx(expected, rel=1e-6)
        stats = theirs.solver_stats.extra_stats
        assert (stats["route"] if isinstance(stats, dict) else stats.solver) == "bregman"
    assert (sol.status, sol.solver) == ("optimal", "bregman")
    assert sol.dual_value <= expected + 1e-9
    assert sol.value >= expected - 1e-9
    assert "the square of the norm" in routing.explain(problem.program())


@pytest.mark.parametrize("weighted", [False, True])
def test_multipliers_are_those_of_the_norm(weighted):
    """Of ``3 ||H o (2 X - A)||``: the gradient minus ``A*(y)`` is psd and orthogonal to ``X``."""
    A, n = indefinite(7, 3), 7
    H = np.ones((n, n))
    if weighted:
        H = H + np.abs(indefinite(n, 4))
    Y = cp.Variable((n, n), PSD=True)
    rows = [cp.diag(Y) == 1, Y[0, 1] >= 0.9, cp.sum(Y) <= 5]
    problem = cp.Problem(cp.Minimize(3 * cp.norm(cp.multiply(H, 2 * Y - A), "fro")), rows)
    problem.solve(solver=BREGOPT, tol=1e-10)
    assert (problem.status, problem.solver_stats.extra_stats["route"]) == ("optimal", "bregman")
    X, (d, low, high) = Y.value, (np.asarray(row.dual_value) for row in rows)
    E = np.zeros((n, n))
    E[0, 1] = E[1, 0] = 0.5
    residual = H * (2 * X - A)
    Z = 6 * H * residual / np.linalg.norm(residual) + np.diag(d) - low * E + high * np.ones((n, n))
    assert min(low, high) > 0
    assert np.linalg.eigvalsh(Z)[0] > -1e-5
    assert abs(np.vdot(Z, X)) < 1e-5


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("read", [ConicProblem, bo.from_cvxpy])
def test_an_answer_to_the_square_proves_the_norm(read, weighted):
    """The certificate of the whole program knows nothing of the square."""
    A, n = indefinite(6, 5), 6
    H = 1 + np.abs(indefinite(n, 4)) * weighted
    Y = cp.Variable((n, n), PSD=True)
    norm = 2 * cp.norm(cp.multiply(H, Y - A), "fro") + 7
    program = read(cp.Problem(cp.Minimize(norm), [cp.diag(Y) == 1, Y[2, 3] == 0.5])).program()
    presolved = presolve(program, ("least norm",), Settings())
    assert len(presolved.steps) == 1
    sol = routing.solve(presolved.program, solver="bregman", tol=1e-10)
    square = Answer(sol.X, sol.u, sol.duals, StopReason.CONVERGED, 0, S=sol._S)
    answer = presolved.restore(square)
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    assert certificate.worst < 1e-8
    constant = program.offset  # CVXPY keeps that of its conic form
    assert certificate.primal == pytest.approx(constant + 2 * np.linalg.norm(H * (answer.X[0] - A)))


@pytest.mark.parametrize("off", [0.0, 1e-6])
def test_a_norm_of_nearly_zero_is_proven(off):
    """At a distance of zero a small gap of the square is no small gap of the norm."""
    A = (np.eye(6) + 0.1) / 1.1
    problem = norms(A + off * np.eye(6))
    sol = problem.solve(tol=1e-8)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(off * np.sqrt(6), abs=1e-8)


def test_contradictions_are_proven():
    A = indefinite(5)
    X = bo.PSD(5, name="X")
    problem = bo.Problem(bo.Minimize(bo.norm2(X - A)), [bo.diag(X) == 1, X[0, 1] >= 1.5])
    assert problem.solve().status == "infeasible"


def test_a_norm_of_few_entries_or_beside_costs_stays_a_cone():
    A = indefinite(6)
    X = bo.PSD(6, name="X")
    for objective in (bo.norm2(X[0] - A[0]), bo.norm2(X - A) + bo.trace(A @ X)):
        problem = bo.Problem(bo.Minimize(objective), [bo.diag(X) == 1])
        assert "the square of the norm" not in routing.explain(problem.program())
        assert problem.solve(tol=1e-8).status == "optimal"


def test_a_start_is_used():
    problem = norms(indefinite(10))
    first = problem.solve(tol=1e-9)
    again = problem.solve(tol=1e-9, warm_start=first)
    assert again.status == "optimal"
    assert again.value == pytest.approx(first.value, rel=1e-8)
