"""The path of small programs, certified once: it answers what it proves, and leaves the rest."""

import cvxpy as cp
import numpy as np
import pytest

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, cost_of_round_off
from bregopt.clock import CutShort, Ending
from bregopt.errors import InfeasibleRowError
from bregopt.routes import driver
from bregopt.routes.ipm import central_path
from bregopt.routes.ipm.engine import Engine


def symmetric(rng, n):
    M = rng.normal(size=(n, n))
    return M + M.T


def mixed(rng):
    """Matrices of two orders and a variable in equalities and inequalities that nothing reduces."""
    X, Y, u = bo.PSD(3), bo.PSD(2), bo.Variable(lower=-1.0, upper=2.0)
    rows = [
        bo.inner(symmetric(rng, 3), X) + u >= 1.0,
        bo.inner(symmetric(rng, 3), X) - bo.inner(symmetric(rng, 2), Y) + 2 * u == 0.5,
        bo.inner(symmetric(rng, 2), Y) - 3 * u <= 1.0,
    ]
    return bo.Problem(bo.Minimize(bo.trace(X) + 2 * bo.trace(Y) + 0.3 * u), rows)


def only_directly(monkeypatch):
    def fail(*_):
        raise AssertionError("the path did not answer by itself")

    monkeypatch.setattr(driver, "_run", fail)


@pytest.mark.parametrize("seed", range(8))
def test_a_path_from_outside_answers_as_clarabel_does(seed, monkeypatch):
    problem = mixed(np.random.default_rng(seed))
    expected = problem.to_cvxpy()
    expected.solve(solver=cp.CLARABEL)
    only_directly(monkeypatch)
    solution = problem.solve(tol=1e-8)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(expected.value, rel=1e-6, abs=1e-6)
    bounds = solution.history["dual"]
    assert (bounds <= expected.value + 1e-6 * max(1.0, abs(expected.value))).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_program_that_reductions_make_little_is_answered_by_the_path_itself(seed, monkeypatch):
    # The largest eigenvalue of an affine matrix: a row for each of 171 entries, five in the dual.
    n, rng = 18, np.random.default_rng(seed)
    matrices = [symmetric(rng, n) for _ in range(5)]
    X, t, x = bo.PSD(n), bo.Variable(), bo.Variable(4)
    i, j = np.triu_indices(n)
    rows = [
        X[p, q] == (p == q) * t - matrices[0][p, q] - sum(x[k] * matrices[k + 1][p, q] for k in range(4))
        for p, q in zip(i, j, strict=True)
    ]
    only_directly(monkeypatch)
    solution = bo.Problem(bo.Minimize(t), rows).solve(tol=1e-8)
    assert solution.status == "optimal"
    y = cp.Variable(4)
    affine = matrices[0] + sum(y[k] * matrices[k + 1] for k in range(4))
    expected = cp.Problem(cp.Minimize(cp.lambda_max(affine))).solve(solver=cp.CLARABEL)
    assert solution.value == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_statuses_without_an_answer_are_those_of_the_whole_route():
    X = bo.PSD(3)
    C = np.diag([1.0, 2.0, -1.0])
    assert (
        bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.trace(X) <= 1.0, X[0, 0] >= 2.0]).solve().status
        == "infeasible"
    )
    assert bo.Problem(bo.Minimize(bo.inner(C, X)), [X[0, 0] == 1.0]).solve().status == "unbounded"
    contradiction = [X[0, 0] == 0.0, X[0, 1] == 1.0, bo.trace(X) <= 3.0]
    with pytest.raises(InfeasibleRowError):
        bo.Problem(bo.Minimize(bo.inner(C, X)), contradiction).solve()


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_the_end_of_an_interrupted_path_proves_no_more_than_its_multipliers(steps, monkeypatch):
    problem = mixed(np.random.default_rng(0))
    optimum, advance, left = problem.solve(tol=1e-8).value, Engine.advance, [steps]

    def cut_short(self, at):
        left[0] -= 1
        if left[0] < 0:
            raise CutShort(Ending.INTERRUPT)
        return advance(self, at)

    monkeypatch.setattr(Engine, "advance", cut_short)
    only_directly(monkeypatch)
    found, certified = [], central_path._certified

    def seen(engine, at, presolved, *more):
        found.append((presolved.whole, at, *certified(engine, at, presolved, *more)))
        return found[-1][2:]

    monkeypatch.setattr(central_path, "_certified", seen)
    with pytest.warns(bo.ConvergenceWarning):
        solution = problem.solve()
    program, at, answer, certificate = found[-1]
    alone = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    assert at.residual is not None or steps > 2
    assert certificate.dual == pytest.approx(alone.dual, rel=1e-9)
    assert certificate.dual_residual == pytest.approx(alone.dual_residual, rel=1e-6, abs=1e-12)
    assert certificate.dual <= optimum + 1e-6
    assert solution.status == "user_limit"


def test_an_optimum_that_is_not_attained_is_said_to_be_so():
    X = bo.PSD(2)
    solution = bo.Problem(bo.Minimize(X[0, 0]), [X[0, 1] == 1.0]).solve()
    assert abs(solution.value) <= 1e-3
    assert "attained" in solution.stop_reason


@pytest.mark.parametrize("seed", range(6))
def test_a_ray_is_returned_with_a_point_from_which_the_objective_falls(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    C, first, second = (symmetric(rng, 5) for _ in range(3))
    v = rng.normal(size=5)
    R = np.outer(v, v)
    first, second = (M - (v @ M @ v) / np.vdot(R, R) * R for M in (first, second))  # no row sees the ray R
    C -= (v @ C @ v + 5.0) / np.vdot(R, R) * R
    X = bo.PSD(5)
    rows = [bo.inner(M, X) == np.trace(M) for M in (first, second)]  # the identity meets them
    only_directly(monkeypatch)
    solution = bo.Problem(bo.Minimize(bo.inner(C, X)), rows).solve()
    assert solution.status == "unbounded"
    assert solution.value == -np.inf
    (D,) = solution._raw._ray
    D = D / np.linalg.norm(D)
    assert np.linalg.eigvalsh(D)[0] >= -1e-9
    assert abs(np.vdot(first, D)) + abs(np.vdot(second, D)) <= 1e-7
    assert np.vdot(C, D) < -1e-6


@pytest.mark.parametrize("seed", [0, 2, 4, 5])
def test_a_ray_without_a_point_is_left_to_the_whole_route(seed):
    # The objective falls along X_11, but no X has X_00 = 0 and X_01 = 1; only the limit of large ones has.
    rng = np.random.default_rng(seed)
    Q, M = np.linalg.qr(rng.normal(size=(4, 4)))[0], rng.normal(size=(3, 3))
    E, F, G, C = np.zeros((4, 4, 4))
    E[0, 0], F[0, 1], F[1, 0], C[1, 1] = 1.0, 0.5, 0.5, -1.0
    G[2:, 2:] = symmetric(rng, 2)
    A = [Q @ sum(m * own for m, own in zip(row, (E, F, G), strict=True)) @ Q.T for row in M]
    b = M @ (0.0, 1.0, np.trace(G))
    X = bo.PSD(4)
    rows = [bo.inner(own, X) == right for own, right in zip(A, b, strict=True)]
    with pytest.warns(bo.ConvergenceWarning):
        solution = bo.Problem(bo.Minimize(bo.inner(Q @ C @ Q.T, X)), rows).solve()
    assert solution.status == "infeasible_inaccurate"


def test_a_farkas_vector_is_returned_by_the_path_that_meets_it(monkeypatch):
    rng = np.random.default_rng(0)
    first, second, C = (symmetric(rng, 4) for _ in range(3))
    third = symmetric(rng, 4)
    third = third @ third + np.eye(4) - first - second  # the sum of all is definite
    X = bo.PSD(4)
    rows = [bo.inner(M, X) == b for M, b in ((first, 1.0), (second, 1.0), (third, -3.0))]
    only_directly(monkeypatch)
    solution = bo.Problem(bo.Minimize(bo.inner(C, X)), rows).solve()
    assert solution.status == "infeasible"
    y = solution._raw.duals
    assert y @ (1.0, 1.0, -3.0) > 0
    assert np.linalg.eigvalsh(y[0] * first + y[1] * second + y[2] * third)[-1] <= 1e-9 * np.abs(y).sum()


def pencil(rng, n, k):
    """A matrix inequality ``t I >= A_0 + sum u_i A_i``, which the path takes by its dual."""
    t, u = bo.Variable(), bo.Variable(k)
    A = symmetric(rng, n)
    M = sum((u[i] * symmetric(rng, n) for i in range(k)), -t * np.eye(n))
    return bo.Problem(bo.Minimize(t), [M << -A, u >= -1.0, u <= 1.0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tol", [1e-6, 1e-8])
def test_the_answer_of_a_reduced_program_is_that_of_the_given_one(seed, tol, monkeypatch):
    problem = pencil(np.random.default_rng(seed), 5, 3)
    expected = problem.to_cvxpy()
    expected.solve(solver=cp.CLARABEL)
    only_directly(monkeypatch)
    solution = problem.solve(tol=tol)
    program = problem.program()
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(expected.value, rel=max(1e-6, 10 * tol), abs=1e-6)
    alone = certify(PrimalDualPoint(program, *solution._raw._point))
    assert alone.meets(2 * tol)
    assert (solution.history["dual"] <= expected.value + 1e-6 * max(1.0, abs(expected.value))).all()


def test_a_matrix_inequality_that_no_variables_meet_is_infeasible():
    rng = np.random.default_rng(0)
    A, u = symmetric(rng, 4), bo.Variable(2)
    A -= np.trace(A) / 4 * np.eye(4)  # the identity excludes it
    B = symmetric(rng, 4)
    B -= np.trace(B) / 4 * np.eye(4)
    solution = bo.Problem(bo.Minimize(u[0]), [u[0] * A + u[1] * B >> np.eye(4)]).solve()
    assert solution.status == "infeasible"
    without_end = bo.Problem(bo.Minimize(bo.sum(u)), [u[0] * A @ A + u[1] * np.eye(4) << np.eye(4)]).solve()
    assert without_end.status == "unbounded"


def test_the_error_counts_round_off_of_the_slack_where_no_row_bounds_the_trace(monkeypatch):
    problem = mixed(np.random.default_rng(0))
    only_directly(monkeypatch)
    solution = problem.solve()
    program, (X, u, y) = problem.program(), solution._raw._point
    cost = cost_of_round_off(program, X, y)
    alone = certify(PrimalDualPoint(program, X, u, y))
    assert cost > 0
    assert solution.error >= abs(alone.primal - alone.dual) + cost
    assert solution.error == pytest.approx(alone.error + cost, rel=1e-6)
