"""Norms that are squared distances, against the problem as written."""

import cvxpy as cp
import numpy as np
import pytest
from samples import turns

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.cvxpy import BREGOPT
from bregopt.cvxpy.conic_solver import ConicProblem
from bregopt.presolve import presolve
from bregopt.program import Answer, StopReason
from bregopt.routes import routing
from bregopt.routes.base import Settings


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


# --- Squared distances beside variables -----------------------------------------------------------------


def within_a_norm(n, seed=0):
    """Return the search for the nearest psd matrix within a sum of absolute entries."""
    A, X = 3 * indefinite(n, seed), cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Minimize(cp.sum_squares(X - A)), [cp.norm1(X) <= n]), A


@pytest.mark.parametrize(("solver", "seed"), turns(["path", "lagrangian", "entropy"], range(3)))
def test_routes_agree_on_squares_beside_variables(solver, seed):
    """Both bounds hold, and by strong convexity the gap bounds the distance to the minimizer."""
    problem, A = within_a_norm(7, seed)
    sol = bo.from_cvxpy(problem).solve(solver=solver, tol=1e-8)
    assert sol.status == "optimal"
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8
    problem.solve(solver=cp.CLARABEL)
    X = problem.variables()[0].value
    assert sol.dual_value <= problem.value * (1 + 1e-6)
    assert sol.value == pytest.approx(np.sum((sol.X - A) ** 2), rel=1e-7)
    np.testing.assert_allclose(sol.X, X, atol=2e-3)


@pytest.mark.parametrize(("n", "solvers"), [(8, {"entropy"}), (26, {"path", "lagrangian"})])
def test_many_variables_beside_squares_are_for_soft_rows(n, solvers):
    problem, _ = within_a_norm(n)
    sol = bo.from_cvxpy(problem).solve()
    assert (sol.status, sol.solver in solvers) == ("optimal", True)
    problem.solve(solver=cp.CLARABEL)
    assert sol.value == pytest.approx(problem.value, rel=2e-6)
    assert sol.dual_value <= problem.value * (1 + 1e-6)
