"""Variables that symmetry makes equal, against the problem as written."""

import cvxpy as cp
import numpy as np
import pytest
from test_epigraphs import symmetric, within_a_norm

import bregopt as bo
from bregopt.cvxpy.problems.lower import from_cvxpy
from bregopt.presolve.interchange import interchangeable_variables


@pytest.mark.parametrize("price", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_mirrored_deviations_are_interchangeable(seed, price):
    n = 4
    problem, S = within_a_norm(seed, 12.0, price)
    found = interchangeable_variables(problem.program(), None)
    assert found.program.k == n * (n + 1) // 2
    sol = problem.solve(solver="path", tol=1e-8)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == plain.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8  # of all rows and variables
    assert (sol.u["u"] >= np.abs(sol.X - S) - 1e-8).all()
    again = problem.solve(solver="path", tol=1e-8, warm_start=sol)
    assert again.status == "optimal"
    assert abs(again.value - sol.value) <= sol.error + again.error


@pytest.mark.parametrize("solver", ["path", "lagrangian"])
def test_interchangeable_variables_beside_squares(solver):
    """Equal rows are not merged there, and share their multipliers all the same."""
    n, rng = 5, np.random.default_rng(0)
    S, X, u = symmetric(n, rng), bo.PSD(n), bo.Variable((n, n), name="u")
    rows = [X <= u, -X <= u, bo.sum(u) <= n]
    problem = bo.Problem(bo.Minimize(bo.sum_squares(X - S)), rows)
    found = interchangeable_variables(problem.program(), None)
    assert found.program.k == n * (n + 1) // 2
    y = rng.normal(size=found.program.m)
    shared = found._shared(y)
    assert shared @ found.sign == pytest.approx(y @ found.sign)
    upper = shared[: 2 * n * n].reshape(2, n, n)
    np.testing.assert_array_equal(upper, upper.swapaxes(1, 2))
    sol = problem.solve(solver=solver, tol=1e-7)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error


def test_equal_rows_of_other_variables_keep_their_multipliers():
    """Of three variables with equal rows two are interchangeable, and the third has another cost."""
    X, u = bo.PSD(2), bo.Variable(3, lower=-1)
    rows = [X[0, 1] <= u[0], X[0, 1] <= u[1], X[0, 1] <= u[2], bo.sum(u) >= 1, bo.diag(X) == 1]
    problem = bo.Problem(bo.Minimize(u[0] + u[1] + 3 * u[2] - 4 * X[0, 1]), rows)
    found = interchangeable_variables(problem.program(), None)
    shared = found._shared(np.arange(1.0, 1 + found.program.m))
    np.testing.assert_array_equal(shared[:3], [1.5, 1.5, 3.0])
    sol = problem.solve(solver="path", tol=1e-8)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error


def test_contradictions_of_interchangeable_variables():
    """The Farkas vector is one of all rows: the sum of deviations is at least that on the diagonal."""
    problem, S = within_a_norm(0, 0.1)
    least = 2 - np.trace(S)
    assert least > 0.1
    sol = problem.solve(solver="path")
    assert sol.status == "infeasible"


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (None, 1),
        ("cost", 2),
        ("box", 2),
        ("shared row", 2),
        ("bound of an own row", 2),
        ("own row", 2),
        ("price", 2),
    ],
)
def test_what_makes_variables_interchangeable(change, left):
    X, u = bo.PSD(2), bo.Variable(2, lower=[0.0, 1.0 if change == "box" else 0.0])
    second = X[0, 1] * (2.0 if change == "own row" else 1.0)
    over = [X[0, 1] <= u[0], second <= u[1] + (0.5 if change == "bound of an own row" else 0.0)]
    soft = [bo.soft(row, 1.0 + (change == "price") * k, "hinge") for k, row in enumerate(over)]
    shared = u[0] + (3.0 if change == "shared row" else 1.0) * u[1] >= 1
    cost = u[0] + (2.0 if change == "cost" else 1.0) * u[1]
    for rows in (over, soft) if change in (None, "price") else (over,):
        problem = bo.Problem(bo.Minimize(cost - X[0, 1]), [*rows, shared, bo.diag(X) == 1])
        found = interchangeable_variables(problem.program(), None)
        same = 1 if change == "price" and rows is over else left
        assert (problem.program() if found is None else found.program).k == same


# --- Vectors in second-order cones ------------------------------------------------------------------------


def powers(n=4, seed=0):
    """Return the least sum of powers of deviations, whose cones hang on them by chains of rows."""
    S, X = symmetric(n, np.random.default_rng(seed)), cp.Variable((n, n), PSD=True)
    return cp.Problem(cp.Minimize(cp.sum(cp.power(cp.abs(X - S), 1.5))), [cp.trace(X) == 1])


def lengths(n=4, seed=0):
    """Return a matrix near another one in the norms of its rows, and with mirrored elements in one vector."""
    rng = np.random.default_rng(seed)
    S, C, X, V = symmetric(n, rng), symmetric(n, rng), bo.PSD(n), bo.Variable((n, n), name="V")
    rows = [X - V == S, bo.trace(X) == 1, bo.norm2(V) <= 1.2 * np.linalg.norm(S)]
    return bo.Problem(bo.Minimize(bo.inner(C, X)), rows)


def test_mirrored_vectors_are_interchangeable():
    n, problem = 4, powers()
    found = interchangeable_variables(from_cvxpy(problem).program(), None)
    whole, left = found.whole.cones, found.program.cones
    assert left.count * 2 * n == whole.count * (n + 1)
    sol = from_cvxpy(problem).solve(solver="path", tol=1e-8)
    assert sol.status == "optimal"
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8
    assert problem.solve(solver="CLARABEL") == pytest.approx(sol.value, abs=1e-6 + sol.error)


@pytest.mark.parametrize("solver", ["path", "lagrangian"])
def test_a_vector_has_equal_elements_once(solver):
    n, problem = 4, lengths()
    found = interchangeable_variables(problem.program(), None)
    assert found.whole.cones.dimensions.tolist() == [1 + n**2]
    assert found.program.cones.dimensions.tolist() == [1 + n * (n + 1) // 2]
    sol = problem.solve(solver=solver, tol=1e-8)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8
    again = problem.solve(solver=solver, tol=1e-8, warm_start=sol)
    assert again.status == "optimal"


@pytest.mark.parametrize("kind", ["powers", "lengths"])
@pytest.mark.parametrize("seed", range(3))
def test_points_and_multipliers_of_colors_are_those_of_all(kind, seed):
    """Means of feasible points are feasible; multipliers leave all variables of a color the same slack."""
    program = from_cvxpy(powers(seed=seed)).program() if kind == "powers" else lengths(seed=seed).program()
    found, rng = interchangeable_variables(program, None), np.random.default_rng(seed)
    small = found.program
    w, y = rng.normal(size=small.k), rng.normal(size=program.m)
    X = [symmetric(n, rng) for n in program.A.orders]
    u = w[found.of] / found.scale
    np.testing.assert_allclose(program.activity(X, u), small.activity(X, w), atol=1e-12)
    assert program.c @ u == pytest.approx(small.c @ w)
    least = [own.cones.least_eigenvalues(v[own.cones.index]) for own, v in ((program, u), (small, w))]
    np.testing.assert_allclose(sorted(set(least[0].round(9))), sorted(set(least[1].round(9))))
    shared = found._shared(y)
    slack, of_colors = program.B.T @ shared, small.B.T @ shared
    np.testing.assert_allclose(small.B.T @ y, of_colors, atol=1e-12)
    mean = np.bincount(found.of, slack) / np.bincount(found.of)
    np.testing.assert_allclose(slack, mean[found.of], atol=1e-12)


def test_vectors_of_other_lengths_stay_apart():
    """Both have one element that costs the same, and one vector has another one beside it."""
    X, a, b = bo.PSD(2), bo.Variable(2, name="a"), bo.Variable(3, name="b")
    rows = [bo.norm2(a) <= 1, bo.norm2(b) <= 1, bo.trace(X) == 1]
    problem = bo.Problem(bo.Minimize(a[0] + b[0] + X[0, 1]), rows)
    sol = problem.solve(solver="path", tol=1e-8)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(-2.5, abs=1e-7)
    found = interchangeable_variables(problem.program(), None)
    assert found is None or {len(set(found.of[own])) for own in np.split(found.whole.cones.index, [3])} == {3}
