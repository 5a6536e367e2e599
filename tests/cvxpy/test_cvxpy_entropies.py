"""Entropies and exponential cones of CVXPY, read by ``method="bregopt"``: values and duals of Clarabel."""

import warnings

import cvxpy as cp
import numpy as np
import peers
import pytest
from samples import first

import bregopt.cvxpy  # noqa: F401
from bregopt.cvxpy import conic_solver
from bregopt.cvxpy.readings import read_conic
from bregopt.records import replace

OLD = tuple(map(int, cp.__version__.split(".")[:2])) < (1, 7)
RNG = np.random.default_rng(3)
D, M, Q = RNG.standard_normal((20, 4)), RNG.random((2, 4)), np.full(4, 0.25)


def numbers(u):
    """Yield problems in numbers alone."""
    yield cp.Problem(cp.Maximize(cp.sum(cp.entr(u))), [cp.sum(u) == 1, M @ u <= M @ Q - 0.02])
    yield cp.Problem(cp.Minimize(cp.sum(cp.kl_div(u, Q))), [cp.sum(u) == 1, M @ u == M @ Q + 0.02])
    shares = [cp.sum(u) == 1, u[0] == 0.4, u[2] <= 0.1]
    yield cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(u[:2], u[2:]))), shares)
    yield cp.Problem(cp.Minimize(cp.sum(cp.kl_div(u[:2], u[2:])) + u[1]), shares)
    yield cp.Problem(cp.Minimize(cp.sum(cp.logistic(D @ u)) + 0.3 * cp.norm1(u)), [])
    yield cp.Problem(cp.Minimize(2 * cp.log_sum_exp(D @ u)), [u <= 1, u >= -1])
    yield cp.Problem(cp.Maximize(cp.sum(u)), [cp.sum(cp.exp(u)) <= 3])
    yield cp.Problem(cp.Maximize(u[0] + u[1]), [cp.log_sum_exp(D @ u) <= 5, u >= -2])
    yield cp.Problem(cp.Minimize(cp.sum(u)), [cp.log(u) >= -1])
    cone = cp.constraints.ExpCone(u[0], u[1], u[2])
    yield cp.Problem(cp.Minimize(u[2]), [cone, u[0] >= 1, u[1] == 1.5, u[3] == 0])


@pytest.mark.parametrize("number", range(10))
def test_numbers(number):
    ours, theirs = (list(numbers(cp.Variable(4)))[number] for _ in range(2))
    theirs.solve(solver=cp.CLARABEL)
    ours.solve(method="bregopt", strict=True)
    assert ours.status == "optimal"
    assert ours.solver_stats.solver_name == "bregopt: entropy"
    assert ours.value == pytest.approx(theirs.value, rel=2e-6, abs=2e-6)
    for own, other in zip(ours.constraints, theirs.constraints, strict=True):
        for a, b in zip(np.atleast_1d(own.dual_value), np.atleast_1d(other.dual_value), strict=True):
            np.testing.assert_allclose(a, b, atol=3e-3)


def test_matrices():
    X, Y = cp.Variable((3, 3), PSD=True), cp.Variable((3, 3), PSD=True)
    rows = [cp.diag(X) == [0.5, 0.3, 0.2], cp.trace(Y) == 1, Y[0, 0] == 0.2]
    both = cp.Problem(cp.Minimize(cp.quantum_rel_entr(X, Y)), rows)
    both.solve(method="bregopt", strict=True)
    expected = 0.5 * np.log(0.5 / 0.2) + 0.5 * np.log(0.5 / 0.8)
    assert both.solution.opt_val == pytest.approx(expected, abs=1e-5)
    second = cp.Problem(cp.Minimize(cp.quantum_rel_entr(np.diag([0.7, 0.2, 0.1]), Y)), [cp.trace(Y) == 1])
    second.solve(method="bregopt", strict=True)
    np.testing.assert_allclose(Y.value, np.diag([0.7, 0.2, 0.1]), atol=1e-2)
    W, f = cp.Variable((4, 4), PSD=True), 0.9
    phi = np.eye(2).ravel() / np.sqrt(2)
    rows = [cp.trace(W) == 1, phi @ W @ phi == f]
    conditional = cp.Problem(cp.Maximize(cp.quantum_cond_entr(W, [2, 2], 0)), rows)
    conditional.solve(method="bregopt", strict=True)
    isotropic = -f * np.log(f) - (1 - f) * np.log((1 - f) / 3) - np.log(2)
    assert conditional.solution.opt_val == pytest.approx(isotropic, abs=1e-5)


@pytest.mark.parametrize("number", range(10))
def test_the_conic_solver(number):
    ours, theirs = (list(numbers(cp.Variable(4)))[number] for _ in range(2))
    theirs.solve(solver=cp.CLARABEL)
    ours.solve(solver="BREGOPT")
    assert ours.status == "optimal"
    assert ours.solver_stats.extra_stats["route"] == "entropy"
    assert ours.solver_stats.extra_stats["gap"] <= 1e-8
    assert ours.value == pytest.approx(theirs.value, rel=2e-6, abs=2e-6)
    for own, other in zip(ours.constraints, theirs.constraints, strict=True):
        for a, b in zip(np.atleast_1d(own.dual_value), np.atleast_1d(other.dual_value), strict=True):
            np.testing.assert_allclose(a, b, atol=3e-3)


def test_the_conic_solver_with_matrices_and_quadratic_objectives():
    """The stationarity of the objective: matrices, cones, a quadratic term and exponentials together."""
    u, X, A = cp.Variable(3), cp.Variable((3, 3), PSD=True), np.diag([1.0, 2, 3])
    own = cp.sum(cp.exp(u)) + cp.sum_squares(u - 1) + cp.trace(A @ X) + cp.norm2(u)
    problem = cp.Problem(cp.Minimize(own), [cp.diag(X) >= u, X[0, 1] >= 0.5, u >= 0.1])
    problem.solve(solver="BREGOPT")
    assert problem.solver_stats.extra_stats["route"] == "entropy"
    value, slopes = problem.value, problem.constraints[0].dual_value
    np.testing.assert_allclose(problem.constraints[2].dual_value >= -1e-7, True)
    rest = np.exp(u.value) + 2 * (u.value - 1) + u.value / np.linalg.norm(u.value) + slopes
    np.testing.assert_allclose(rest, problem.constraints[2].dual_value, atol=1e-4)
    problem.solve(solver=cp.CLARABEL)
    assert value == pytest.approx(problem.value, abs=1e-6)


def test_the_conic_solver_says_that_there_is_no_optimum():
    u = cp.Variable(2)
    none = cp.Problem(cp.Minimize(cp.sum(u)), [cp.sum(cp.exp(u)) <= 1, u >= 0])
    none.solve(solver="BREGOPT")
    assert none.status == "infeasible"
    rows = [-0.8 <= cp.sum(cp.entr(u)), cp.log(u[0] + 2.0) >= 2.3]  # near u[0] = 8 the entropy is -16
    none = cp.Problem(cp.Minimize(u[0] - u[1] - 0.3 * cp.sum(cp.log(u + 1))), rows)
    none.solve(solver="BREGOPT")
    assert none.status == "infeasible"
    unbounded = cp.Problem(cp.Minimize(u[0] + cp.sum(cp.exp(u))), [])
    unbounded.solve(solver="BREGOPT")
    assert unbounded.status == "unbounded"


def test_many_exponential_cones_go_to_other_solvers():
    u = cp.Variable(400)
    problem = cp.Problem(cp.Minimize(cp.sum(u)), [cp.exp(-u) <= 2])
    with pytest.warns(UserWarning, match="exponential cones"):
        problem.solve(method="bregopt")
    assert problem.value == pytest.approx(-400 * np.log(2), rel=1e-5)


def test_answers_that_miss_the_tolerance_are_left_to_another_solver(monkeypatch):
    def stalled(*arguments):
        return replace(solve_conic(*arguments), status="AlmostSolved")

    solve_conic = conic_solver.solve_conic
    monkeypatch.setattr(conic_solver, "solve_conic", stalled)
    u = cp.Variable(2)
    problem = cp.Problem(cp.Maximize(cp.sum(u)), [cp.sum(cp.exp(u)) <= 3])
    problem.solve(solver="BREGOPT")
    assert problem.solver_stats.extra_stats["route"] == "CLARABEL"
    assert "gap" in problem.solver_stats.extra_stats["reason"]
    assert problem.value == pytest.approx(2 * np.log(1.5), abs=1e-6)


def test_a_contradiction_of_logarithms_of_a_matrix():
    """The multipliers prove it: of all ``X`` the least Lagrangian, at ``X_kk = l / m``, is positive."""
    X = cp.Variable((3, 3), PSD=True)
    logs, trace = cp.sum(cp.log(cp.diag(X))) >= 5, cp.trace(X) <= 1
    problem = cp.Problem(cp.Minimize(cp.trace(X)), [logs, trace])
    problem.solve(solver="BREGOPT")
    assert problem.status == "infeasible"
    assert problem.solver_stats.extra_stats["route"] == "entropy"
    if OLD:
        pytest.skip(f"CVXPY {cp.__version__} keeps no duals of infeasible problems")
    price, cost = float(logs.dual_value), float(trace.dual_value)
    assert min(price, cost) > 0
    assert price * (5 - 3 * np.log(price / cost)) + cost * (3 * price / cost - 1) > 0.1 * (price + cost)


def beside_a_matrix(name, n=6):
    """Return a problem with exponentials of entries of a matrix, or beside one."""
    rng = np.random.default_rng(4)
    A, D, y = rng.normal(size=(n, n)), rng.normal(size=(3 * n, n)), rng.choice([-1.0, 1.0], 3 * n)
    A, X, Z = A + A.T, cp.Variable((n, n), PSD=True), cp.Variable((n + 1, n + 1), PSD=True)
    margins, corner = cp.multiply(y, D @ Z[:n, n]), Z[n, n] == 1
    costs = {
        "logistic": (cp.sum(cp.logistic(-margins)) + cp.trace(Z), [corner]),
        "log_sum_exp": (cp.log_sum_exp(cp.diag(X)) + cp.trace(A @ X) / n, [cp.trace(X) <= n]),
        "exp": (cp.sum(cp.exp(cp.diag(X))) + cp.trace(A @ X), []),
        "entr": (cp.trace(A @ X) / n - cp.sum(cp.entr(cp.diag(X))), [cp.trace(X) == 1]),
        "kl_div": (cp.sum(cp.kl_div(cp.diag(X), np.arange(1, n + 1))) + cp.trace(A @ X) / n, []),
        "log": (cp.trace(A @ A @ X) / n - cp.sum(cp.log(cp.diag(X))), [cp.trace(X) <= 5]),
        "bounded": (cp.trace(A @ X), [cp.log_sum_exp(cp.diag(X)) <= 2.5]),
        "sum": (cp.trace(A @ X), [cp.sum(cp.exp(cp.diag(X))) + 2 * cp.sum(cp.abs(X)) <= 40]),
        "loss": (cp.trace(Z) - margins[0], [corner, cp.sum(cp.logistic(-margins)) <= 3 * n]),
    }
    return cp.Problem(cp.Minimize(costs[name][0]), costs[name][1])


@pytest.mark.parametrize(
    "name", ["logistic", "log_sum_exp", "exp", "entr", "kl_div", "log", "bounded", "sum", "loss"]
)
def test_exponentials_of_a_matrix(name):
    """Value and multipliers are Clarabel's."""
    ours, theirs = beside_a_matrix(name), beside_a_matrix(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops near the optimum of some
        theirs.solve(solver=cp.CLARABEL)
    ours.solve(solver="BREGOPT")
    assert ours.status == "optimal"
    assert ours.solver_stats.extra_stats["route"] in ("entropy", "path")
    assert ours.solver_stats.extra_stats["gap"] <= 1e-8
    assert ours.value == pytest.approx(theirs.value, rel=2e-6, abs=2e-6)
    for own, other in zip(ours.constraints, theirs.constraints, strict=True):
        np.testing.assert_allclose(own.dual_value, other.dual_value, atol=3e-3)


@pytest.mark.parametrize(
    ("name", "terms", "variables"),
    [
        ("exp", [("exp", 6, True)], 0),
        ("logistic", [("log_sum_exp", 18, True)], 0),
        ("log_sum_exp", [("log_sum_exp", 1, True)], 0),
        ("bounded", [("log_sum_exp", 1, False)], 0),
        ("kl_div", [("rel_entr", 6, True)], 0),
        ("loss", [("log_sum_exp", 18, False)], 0),
    ],
)
def test_bounds_of_variables_are_terms(name, terms, variables):
    """The variables by which CVXPY states its atoms are gone."""
    data, _, _ = beside_a_matrix(name).get_problem_data("BREGOPT")
    (reading,) = read_conic(conic_solver._conic(data))
    program = reading.program
    found = [(term.function.name, term.function.count, term.rows is None) for term in program.terms]
    assert (found, program.k) == (terms, variables)


@pytest.mark.parametrize("most", [None, 9.0])
def test_bounds_with_constants_and_the_multipliers_of_their_cones(most):
    """The cones are the user's own: ``exp(X_kk) <= 2 t_k + 1``, with a price or in a row beside a matrix."""
    n = 4
    A = np.random.default_rng(4).normal(size=(n, n))

    def problem():
        X, t = cp.Variable((n, n), PSD=True), cp.Variable(n)
        cone = cp.ExpCone(cp.diag(X), np.ones(n), 2 * t + 1)
        cost, rows = cp.trace((A + A.T) @ X), [cone]
        if most is None:
            return cp.Problem(cp.Minimize(cost + 3 * cp.sum(t)), rows)
        return cp.Problem(cp.Minimize(cost), [*rows, cp.sum(t) + cp.trace(X) <= most])

    ours, theirs = problem(), problem()
    theirs.solve(solver=cp.CLARABEL)
    ours.solve(solver="BREGOPT")
    assert ours.solver_stats.extra_stats["route"] == "entropy"
    assert ours.value == pytest.approx(theirs.value, rel=1e-6)
    np.testing.assert_allclose(ours.variables()[1].value, theirs.variables()[1].value, atol=1e-3)
    for a, b in zip(ours.constraints[0].dual_value, theirs.constraints[0].dual_value, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-3)


@pytest.mark.parametrize("count", [0, 3])
def test_logarithms_in_the_objective_are_rows(count):
    """Shares of ``trace(X) + sum(u) <= 2`` are proportional to prices, and its multiplier is their sum."""
    n, prices = 4, np.arange(1.0, 5 + count)
    X, u = cp.Variable((n, n), PSD=True), cp.Variable(max(count, 1))
    shares = cp.hstack([cp.diag(X), u]) if count else cp.diag(X)
    budget = cp.trace(X) + cp.sum(u) <= 2 if count else cp.trace(X) <= 2
    problem = cp.Problem(cp.Maximize(prices @ cp.log(3 * shares + 0.1)), [budget, X[0, 1] == 0.05])
    problem.solve(solver="BREGOPT")
    assert (problem.status, problem.solver_stats.extra_stats["route"]) == ("optimal", "path")
    price = prices.sum() / (2 + len(prices) / 30)
    np.testing.assert_allclose(shares.value, prices / price - 1 / 30, atol=1e-6)
    assert budget.dual_value == pytest.approx(price, rel=1e-6)
    data, _, _ = problem.get_problem_data("BREGOPT")
    found = conic_solver.BREGOPT.solve_via_data(data, False, False, {})
    first, second, third = found.z[-3 * len(prices) :].reshape(-1, 3).T  # the dual exponential cone
    np.testing.assert_allclose(-first * np.exp(second / first), np.e * third, rtol=1e-9)
    np.testing.assert_allclose(data["A"].T @ found.z, -data["c"], atol=1e-7)


def test_logarithms_without_an_optimum():
    X = cp.Variable((3, 3), PSD=True)
    logs = cp.Maximize(cp.sum(cp.log(cp.diag(X))))
    for rows, status in (
        ([X[0, 1] == 1], "unbounded"),
        ([cp.trace(X) <= 1, X[0, 0] >= 2], "infeasible"),
        ([cp.trace(X) <= 1, X[0, 0] == 0], "infeasible"),  # the logarithm of zero
    ):
        problem = cp.Problem(logs, rows)
        problem.solve(solver="BREGOPT")
        assert problem.status == status
    problem = cp.Problem(cp.Maximize(logs.args[0] - cp.logistic(X[0, 1])), [cp.trace(X) == 3])
    problem.solve(solver="BREGOPT")  # a cone of another kind: all stay terms
    assert problem.solver_stats.extra_stats["route"] == "entropy"
    ours = problem.value
    assert ours == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-5)


def spectral(f, A):
    d, Q = np.linalg.eigh(A)
    return (Q * f(d)) @ Q.T


def tilted(n, seed):
    """Return ``S``, ``H`` and ``exp(log S - H / 2)`` of trace one, all of order `n`."""
    log_S, H = (M + M.T for M in np.random.default_rng(seed).normal(size=(2, n, n)))
    S, A = spectral(np.exp, log_S / 4), spectral(np.exp, log_S / 4 - H / 2)
    return S / np.trace(S), H, A / np.trace(A)


@pytest.mark.parametrize(("n", "seed"), first(2, [(2, 0), (3, 1), (2, 1), (3, 0), (4, 0)]))
def test_a_relative_entropy_by_quadrature_is_least_in_an_exponential_family(n, seed):
    """A state of a given mean that is nearest to ``S`` is a multiple of ``exp(log S - t H)``."""
    S, H, best = tilted(n, seed)
    A = cp.Variable((n, n), symmetric=True)
    rows = [A >> 0, cp.trace(A) == 1, cp.trace(H @ A) == np.vdot(H, best)]
    problem = cp.Problem(cp.Minimize(cp.quantum_rel_entr(A, S)), rows)
    problem.solve(solver="BREGOPT")
    assert problem.status == "optimal"
    assert problem.solver_stats.extra_stats["form"] == "dual"  # the primal form takes ten times as long
    least = float(np.vdot(best, spectral(np.log, best) - spectral(np.log, S)))
    assert problem.value == pytest.approx(least, abs=1e-6)
    np.testing.assert_allclose(A.value, best, atol=1e-4)


def test_linear_rows_that_contradict_each_other_beside_curved_rows_are_infeasible():
    X, x = cp.Variable((4, 4), PSD=True), cp.Variable(4)
    H = np.random.default_rng(451).normal(size=(4, 4))
    rows = [cp.trace(X) <= 3, cp.abs(x) <= 2, x[0] >= 5, cp.exp(x[0]) <= 2 + X[0, 0]]
    rows.append(cp.trace((H + H.T) @ X) == 0.2 * cp.sum(x))
    cost = cp.quad_form(x, np.eye(4) + H.T @ H) + 1.9 * cp.matrix_frac(x, X + 2 * np.eye(4))
    problem = cp.Problem(cp.Minimize(cost), rows)
    problem.solve(method="bregopt", tol=1e-8)
    assert problem.status == "infeasible"
    if OLD:
        pytest.skip(f"CVXPY {cp.__version__} keeps no duals of infeasible problems")
    least = [float(np.max(row.dual_value)) for row in rows[1:3]]  # x[0] >= 5 and x[0] <= 2 alone
    assert least[0] == pytest.approx(least[1], rel=1e-6)
    assert least[0] > 0


@pytest.mark.skipif(OLD, reason=f"CVXPY {cp.__version__} cannot evaluate the sum of all eigenvalues")
@pytest.mark.parametrize("constrained", [False, True])
def test_the_sum_of_all_eigenvalues_is_read_as_the_trace(constrained):
    """Its epigraph ``k s + tr Z`` has rays of matrices ``Z`` that grow with ``-s``."""
    X = cp.Variable((3, 3), PSD=True)
    whole, rows = cp.lambda_sum_largest(X, 3), [cp.log_det(X + np.eye(3)) >= 1]
    cost, more = (X[0, 0] + 0.1 * cp.trace(X), [whole <= 2]) if constrained else (whole, [])
    problem = cp.Problem(cp.Minimize(cost), rows + more)
    problem.solve(method="bregopt", tol=1e-8, strict=True)
    assert problem.status == "optimal"
    assert len(problem.solver_stats.extra_stats.X) <= 2  # the variable, and that of log_det
    if not constrained:
        assert problem.value == pytest.approx(3 * (np.exp(1 / 3) - 1), rel=1e-6)


def test_positive_numbers_that_sum_to_zero_meet_their_row_to_the_tolerance():
    """They are zero: their round-off is as large as they are."""
    X, x, t = cp.Variable((3, 3), NSD=True), cp.Variable(3, nonneg=True), cp.Variable()
    rows = [-cp.trace(X) <= 3, cp.abs(x) <= 2, cp.lambda_max(X) <= 2 + t, cp.normNuc(X) <= 3]
    rows += [cp.max(x) <= 1.5, cp.sum(x) == 0, t >= -1, t <= 3]
    problem = cp.Problem(cp.Maximize(1 - 1.0180531134532265 * cp.norm1(X) - 0.3 * t), rows)
    problem.solve(method="bregopt", tol=1e-8)
    assert problem.status == "optimal"
    assert problem.value == pytest.approx(1.3, rel=1e-8)


@pytest.mark.parametrize(("n", "seed"), first(2, [(2, 0), (3, 1), (2, 1), (3, 0), (4, 0)]))
def test_a_bound_on_a_relative_entropy_by_quadrature_meets_an_exponential_family(n, seed):
    """Of the states so near to ``S`` that of least ``<H, A>`` is a multiple of ``exp(log S - t H)``."""
    S, H, best = tilted(n, seed)
    most = float(np.vdot(best, spectral(np.log, best) - spectral(np.log, S)))
    A = cp.Variable((n, n), symmetric=True)
    bound = cp.quantum_rel_entr(A, S) <= most
    problem = cp.Problem(cp.Minimize(cp.trace(H @ A)), [A >> 0, cp.trace(A) == 1, bound])
    problem.solve(solver="BREGOPT")
    assert problem.status == "optimal"
    assert problem.solver_stats.extra_stats["form"] == "dual"  # the primal form ends inaccurate
    assert problem.value == pytest.approx(np.vdot(H, best), abs=1e-5)
    np.testing.assert_allclose(A.value, best, atol=1e-4)
    assert bound.dual_value == pytest.approx(2, rel=1e-3)


def test_an_entropy_of_an_entry_with_a_constant_stands_beside_one_of_the_matrix(rng):
    G = rng.normal(size=(4, 4))
    X = cp.Variable((4, 4), PSD=True)
    goal = -cp.von_neumann_entr(X) + cp.trace(G @ G.T @ X) + cp.sum(cp.kl_div(cp.diag(X)[:2] + 1, [0.5, 2.0]))
    problem = cp.Problem(cp.Minimize(goal), [X[0, 1] >= 0.2])
    peer = peers.ask(problem)
    problem.solve(method="bregopt", strict=True)
    assert problem.status == "optimal"
    peer.agrees(problem.value, problem.solver_stats.extra_stats.error)
