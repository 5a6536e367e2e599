"""Problems without a solution on which the path stalls: proofs come from programs of the alternative."""

import cvxpy as cp
import numpy as np
import pytest
from samples import first

import bregopt as bo
import bregopt.cvxpy
from bregopt.certify import is_farkas, is_ray
from bregopt.routes import routing
from bregopt.routes.alternatives import elastic, steepest_ray
from bregopt.routes.ipm.central_path import _Scores
from bregopt.routes.ipm.engine import Engine


def solved(program):
    return routing.solve(program, "path", tol=1e-8)


def rounded(rng, n):
    M = rng.normal(size=(n, n))
    return np.round(M + M.T, 1)


def touching(seed):
    """Rays and contradictions of this problem lie on the boundary of a Lorentz cone."""
    rng = np.random.default_rng(seed)
    X, x = cp.Variable((5, 5), PSD=True), cp.Variable(2)
    moved = sum(x[i] * rounded(rng, 3) for i in range(2)) + rounded(rng, 3) + 3 * np.eye(3)
    rows = [cp.sum_squares(x) <= 0.3 + X[0, 1], moved >> 0, cp.abs(X[0, 0] - 1) <= 1 + x[0]]
    cost = cp.trace(rounded(rng, 5) @ X) + np.round(rng.normal(size=2), 1) @ x
    return cp.Problem(cp.Minimize(cost), rows)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("seed", first(2, range(24)))
def test_statuses_are_those_of_clarabel(seed):
    problem = touching(seed)
    problem.solve(solver="CLARABEL")
    status, value = problem.status, problem.value
    for options in ({"method": "bregopt"}, {"solver": "BREGOPT"}):
        problem.solve(**options)
        if status == "unbounded" and problem.status == "infeasible":  # Clarabel looks for a ray alone
            slacks, rows = zip(*map(relaxed, problem.constraints), strict=True)
            assert cp.Problem(cp.Minimize(sum(slacks)), rows).solve(solver="CLARABEL") > 1e-3
            continue
        assert problem.status == status
        if status == "optimal":
            assert problem.value == pytest.approx(value, rel=1e-4, abs=1e-4)


def relaxed(row):
    """Return a slack of at least zero and the row that it relaxes."""
    slack = cp.Variable(nonneg=True)
    if isinstance(row, cp.constraints.PSD):
        return slack, row.args[0] + slack * np.eye(row.args[0].shape[0]) >> 0
    return slack, row.args[0] <= row.args[1] + slack


def infeasible():
    X, x = bo.PSD(3), bo.Variable(2)
    return bo.Problem(
        bo.Minimize(bo.trace(X)),
        [bo.norm2(x) <= X[0, 0], bo.trace(X) <= 1, x[0] + x[1] >= 2, X[0, 1] + x[0] <= 4],
    )


def test_the_multipliers_of_the_least_violation_are_a_farkas_vector():
    program = infeasible().program()
    found = solved(elastic(program))
    assert found.value > 0.1
    assert is_farkas(program, found.duals, 1e-9)


@pytest.mark.parametrize(("right", "least"), [(-1.0, 0.0), (-1.0, -0.5), (1.0, 2.0)])
def test_no_contradiction_is_passed_over(right, least):
    """Where its box does not hold zero, the box of a variable demands something."""
    X, x = bo.PSD(2), bo.Variable(1, lower=least, upper=3.0)
    program = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) + x == right]).program()
    y, engine = np.array([-1.0]), Engine(program, [np.eye(2)], direct=True)
    assert is_farkas(program, y)
    scores = _Scores(program, engine)
    assert not scores.exclude_contradiction(y)
    assert scores.exclude_contradiction(-y)


def test_the_least_violation_of_a_feasible_program_is_zero(rng):
    X = bo.PSD(4)
    program = bo.Problem(bo.Minimize(bo.trace(X)), [bo.diag(X) == 1, X[0, 1] >= 0.5]).program()
    assert solved(elastic(program)).value == pytest.approx(0, abs=1e-6)


def test_the_steepest_direction_is_a_ray():
    X, x = bo.PSD(3), bo.Variable(2)
    problem = bo.Problem(
        bo.Minimize(bo.trace(X) - 3 * X[0, 1] + x[0]), [bo.norm2(x) <= 5 + X[2, 2], X[0, 2] == 0]
    )
    program = problem.program()
    found = solved(steepest_ray(program))
    assert found.value < -0.1
    assert is_ray(program, found.X, found.u, 1e-9)
    bounded = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] >= 1]).program()
    assert solved(steepest_ray(bounded)).value == pytest.approx(0, abs=1e-6)
