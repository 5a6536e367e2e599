"""The intervals of the peers contain the optimum, and exclude a wrong point."""

import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
from cvxpy_problems import CASES
from samples import first

import bregopt as bo

OPTIMAL = [name for name, case in CASES.items() if case[1].startswith("optimal")]
A = np.array([[2.0, 1.0, 0.0], [1.0, -1.0, 0.5], [0.0, 0.5, 1.0]])


def smallest_eigenvalue():
    X = cp.Variable((3, 3), PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(A @ X)), [cp.trace(X) == 1]), X


def entropy():
    """Return a problem with an exponential and a second-order cone, whose optimum is 3 log 3."""
    x = cp.Variable(3)
    return cp.Problem(cp.Maximize(cp.sum(cp.entr(x)) * 3), [cp.sum(x) == 1, cp.norm(x) <= 1])


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_intervals_hold_known_optima(solver):
    matrix, _ = smallest_eigenvalue()
    for problem, optimum in ((matrix, np.linalg.eigvalsh(A)[0]), (entropy(), 3 * np.log(3))):
        answer = peers.ask(problem, solver)
        assert abs(answer.value - optimum) <= answer.error
        answer.agrees(optimum, 0.0)
        with pytest.raises(AssertionError, match="apart"):
            answer.agrees(optimum + 1e-3, 0.0)


@pytest.mark.parametrize("name", first(6, OPTIMAL))
def test_intervals_of_two_peers_overlap(name):
    make = CASES[name][0]
    other = peers.ask(make(), "SCS")
    peers.ask(make()).agrees(other.value, other.error)


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_a_wrong_point_is_far_from_its_bound(solver):
    problem, _ = smallest_eigenvalue()
    data, chain, _ = problem.get_problem_data(solver)
    found = chain.solve_via_data(problem, data)
    x, z = (found["x"], found["y"]) if solver == "SCS" else (np.array(found.x), np.array(found.z))
    lower = solver == "SCS"
    assert peers.conic_error(data, x, z, lower) < 1e-4
    for other in (np.roll(x, 1), x + 0.1, 0 * x):
        assert peers.conic_error(data, other, z, lower) > 0.05
    for other in (np.roll(z, 1), z + 0.1, 0 * z):
        assert peers.conic_error(data, x, other, lower) > 0.05


def test_our_point_is_put_into_the_peers_problem():
    problem, K = smallest_eigenvalue()
    X = bo.PSD(3)
    sol = bo.Problem(bo.Minimize(bo.inner(A, X)), [bo.trace(X) == 1]).solve(tol=1e-8)
    answer = peers.ask(problem)
    answer.confirms(sol, {K: sol.X})
    with pytest.raises(AssertionError, match="violates"):
        answer.confirms(sol, {K: 2 * sol.X})
    with pytest.raises(AssertionError):
        answer.confirms(sol, {K: np.eye(3) / 3})


def test_a_peer_that_fails_is_wide_or_warns_only_skips():
    problem, _ = smallest_eigenvalue()
    for options in ({"max_iter": 2}, {"no_such_option": 1}, {"wide": 0.0}):
        with pytest.raises(pytest.skip.Exception, match="CLARABEL"):
            peers.ask(problem, **options)
    x = cp.Variable()
    with pytest.raises(pytest.skip.Exception, match="infeasible"):
        peers.ask(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peers.ask(problem, tol_gap_abs=1e-16, tol_gap_rel=1e-16, tol_feas=1e-16)
    assert not caught
