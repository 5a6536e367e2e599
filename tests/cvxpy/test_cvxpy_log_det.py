"""Log-determinants by ``solver="BREGOPT"``: CVXPY states them with logarithms, and routes get the term."""

import cvxpy as cp
import numpy as np
import pytest

from bregopt.cvxpy.conic_solver import _conic, conic_data
from bregopt.cvxpy.readings import read_conic


def samples(n, seed=0):
    return np.random.default_rng(seed).normal(size=(3 * n, n))


def read_first(problem):
    data, _ = conic_data(problem)
    return next(iter(read_conic(_conic(data)))).program


def test_an_inverse_covariance_and_its_multipliers_are_known():
    n = 5
    S = np.cov(samples(n).T)
    X = cp.Variable((n, n), symmetric=True)
    row = cp.trace(X) <= 2
    problem = cp.Problem(cp.Minimize(cp.trace(S @ X) - cp.log_det(X)))
    problem.solve(solver="BREGOPT")
    assert problem.status == "optimal"
    assert X.value == pytest.approx(np.linalg.inv(S), rel=1e-4)
    problem = cp.Problem(cp.Maximize(3 * cp.log_det(X)), [row])
    problem.solve(solver="BREGOPT")
    assert X.value == pytest.approx(0.4 * np.eye(n), abs=1e-5)
    assert problem.value == pytest.approx(15 * np.log(0.4), abs=1e-5)
    assert row.dual_value == pytest.approx(7.5, rel=1e-5)


def test_more_variables_than_an_exponential_program_may_have():
    """The program with logarithms of order 40 has 3,300 variables."""
    n = 40
    S = np.cov(samples(n).T) + np.eye(n)
    X = cp.Variable((n, n), PSD=True)
    problem = cp.Problem(cp.Minimize(cp.trace(S @ X) - cp.log_det(X)))
    problem.solve(solver="BREGOPT")
    assert problem.solver_stats.extra_stats["route"] != "CLARABEL"
    assert problem.value == pytest.approx(n + np.linalg.slogdet(S)[1], rel=1e-7)


def test_logarithms_that_are_no_cost_stay():
    n = 3
    X, t = cp.Variable((n, n), PSD=True), cp.Variable()
    bounded = cp.Problem(cp.Minimize(cp.trace(X)), [cp.log_det(X) >= n * np.log(2)])
    capped = cp.Problem(cp.Maximize(t), [cp.log_det(X) >= t, cp.trace(X) <= n])
    for problem, value in ((bounded, 2 * n), (capped, 0)):
        assert all(block.nearness is None for block in read_first(problem).blocks)
        problem.solve(solver="BREGOPT")
        assert problem.status == "optimal"
        assert problem.value == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(("factor", "recognized"), [(1.0, True), (2.0, False)])
def test_the_logarithms_of_another_matrix_are_no_log_determinant(factor, recognized):
    """With twice the corner ``16 d_1 d_2 <= det F``."""
    d, z, F = cp.Variable(2), cp.Variable(), cp.Variable((2, 2), symmetric=True)
    Z = cp.bmat([[d[0], z], [0, d[1]]])
    rows = [cp.bmat([[cp.diag(d), factor * Z], [factor * Z.T, F]]) >> 0, cp.trace(F) <= 4]
    problem = cp.Problem(cp.Maximize(cp.sum(cp.log(d))), rows)
    assert any(block.nearness is not None for block in read_first(problem).blocks) == recognized
    problem.solve(solver="BREGOPT")
    assert problem.value == pytest.approx(2 * np.log(2) - 4 * np.log(factor), abs=1e-5)


def test_statuses_of_problems_without_optimum():
    n = 3
    X = cp.Variable((n, n), symmetric=True)
    unbounded = cp.Problem(cp.Maximize(cp.log_det(X)), [X[0, 1] == 1])
    infeasible = cp.Problem(cp.Maximize(cp.log_det(X)), [cp.trace(X) == 1, X[0, 1] >= 2])
    for problem, status in ((unbounded, "unbounded"), (infeasible, "infeasible")):
        problem.solve(solver="BREGOPT")
        assert problem.status == status
