"""Two priced variables of one equality, with opposite signs, become a linear cost and a hinge."""

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify
from bregopt.presolve import presolve, reductions
from bregopt.program import Answer, StopReason
from bregopt.rigorous import proves_infeasible, recedes
from bregopt.routes import routing
from bregopt.routes.base import Settings

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
    presolved = presolve(program, reductions(NAMES), Settings())
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
