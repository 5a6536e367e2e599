"""Boxes, fixed, equal, defined and dominated variables and parallel rows: answers are those as written."""

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, turns

import bregopt as bo
import bregopt.cvxpy  # registers the method
from bregopt.certify import is_farkas
from bregopt.cvxpy import BREGOPT
from bregopt.presolve import presolve
from bregopt.presolve.epigraphs import (
    absolute_values,
    differences,
    opposite_rows,
    slacks,
)
from bregopt.presolve.svec import parallel_rows
from bregopt.presolve.variables import (
    boxes,
    defined_variables,
    dominated_variables,
    equal_variables,
    fixed_variables,
    independent_columns,
)
from bregopt.program import Start
from bregopt.records import replace
from bregopt.routes.base import Settings


@pytest.mark.parametrize(
    "reduction",
    [
        *(absolute_values, boxes, defined_variables, differences, dominated_variables, equal_variables),
        *(fixed_variables, independent_columns, opposite_rows, slacks),
    ],
)
def test_reductions_of_variables_do_not_apply_without_one(reduction):
    """So the registry need not enter their modules."""
    X = bo.PSD(3)
    rows = [bo.trace(X) == 2, X[0, 1] >= 0, X[0, 1] <= 0.5, 2 * X[0, 1] <= 1, X[0, 1] == X[1, 2]]
    program = bo.Problem(bo.Minimize(bo.inner(np.eye(3) + 1, X)), rows).program()
    assert program.k == 0
    assert reduction(program, None) is None


# --- Boxes ----------------------------------------------------------------------------------------------


def test_which_rows_are_boxes():
    X, u = bo.PSD(2), bo.Variable(6, lower=0.0, name="u")
    p = bo.Parameter(value=4.0)
    rows = [
        bo.trace(X) + bo.sum(u) <= 9,
        u[:2] >= [-1, 1],  # the first is weaker than the box
        -2 * u[1] >= -p,
        bo.between(3 * u[2], 3, 6),
        u[3] == 1,  # an equation stays a row
        u[4] - u[3] <= 1,
        bo.soft(u[4] <= 1),
        u[5] <= 2,
        u[5] >= 3,  # contradicts the other row: both stay
    ]
    boxed = boxes(bo.Problem(bo.Minimize(bo.trace(X)), rows).program(), None)
    assert boxed.kept.tolist() == [0, 5, 6, 7, 8, 9]
    np.testing.assert_array_equal(boxed.program.u_lo, [0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(boxed.program.u_hi, [np.inf, 2, 2, np.inf, np.inf, np.inf])
    assert boxed.below.tolist() == [-1, 2, 4, -1, -1, -1]
    assert boxed.above.tolist() == [-1, 3, 4, -1, -1, -1]
    # Messages count constraints as they were declared.
    assert boxed.program.row_name(1).startswith("constraint 4")


@examples(12)
@given(st.integers(0, 10**6), st.sampled_from(["path", "psdboost"]), st.booleans())
def test_duals_of_the_rows_come_back(seed, solver, maximize):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 3))
    A, c = A + A.T, rng.normal(size=4)
    X, u = bo.PSD(3), bo.Variable(4, name="u")
    scale = rng.choice([-2.0, 0.5, 1.0], 4)
    rows = [
        bo.trace(X) == 1,
        X[0, 0] + u[0] - u[1] <= 2,
        bo.between(u, -1, 1.5),
        scale * u >= -np.abs(scale),
        u[1] <= 0.5,
        2 * u[2] <= 1,
    ]
    objective = bo.inner(A, X) + c @ u
    problem = bo.Problem(bo.Maximize(-objective) if maximize else bo.Minimize(objective), rows)
    sol = problem.solve(solver, tol=1e-8)
    assert sol.status == "optimal"
    assert sol.dual_residual <= 1e-8
    K, v = cp.Variable((3, 3), PSD=True), cp.Variable(4)
    theirs = [
        cp.trace(K) == 1,
        K[0, 0] + v[0] - v[1] <= 2,
        v >= -1,
        v <= 1.5,
        cp.multiply(scale, v) >= -np.abs(scale),
        v[1] <= 0.5,
        2 * v[2] <= 1,
    ]
    reference = cp.Problem(cp.Minimize(cp.vdot(A, K) + c @ v), theirs)
    peers.ask(reference).agrees(-sol.value if maximize else sol.value, sol.error)
    # Rows may share the multiplier of a bound: their multipliers add up to the prices c of the variables.
    prices = sol.duals[2] * np.ones(4) - scale * sol.duals[3] + sol.duals[1] * np.array([1, -1, 0, 0])
    prices[1] += sol.duals[4]
    prices[2] += 2 * sol.duals[5]
    np.testing.assert_allclose(prices, -c, atol=1e-6)
    # Inequalities have a multiplier only if they are active, with the sign of a price.
    assert all((np.asarray(dual) >= 0).all() for dual in (sol.duals[1], *sol.duals[3:]))
    missing = [2 - sol.X[0, 0] - sol.u["u"][0] + sol.u["u"][1], np.abs(scale) + scale * sol.u["u"]]
    missing += [0.5 - sol.u["u"][1], 1 - 2 * sol.u["u"][2]]
    for dual, slack in zip((sol.duals[1], *sol.duals[3:]), missing, strict=True):
        np.testing.assert_allclose(np.asarray(dual) * slack, 0, atol=1e-5)


@pytest.mark.parametrize("solver", ["path", "cvxpy"])
def test_contradictions_are_proven_with_all_rows(solver):
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [bo.trace(X) + bo.sum(u) <= 1, u >= 1]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
    sol = problem.solve(solver) if solver == "path" else peers.reference(problem)
    assert sol.status == "infeasible"
    assert is_farkas(problem.program(), sol._raw.duals)
    np.testing.assert_allclose(sol.duals[1] / sol.duals[0], 1, atol=1e-6)
    crossed = bo.Problem(bo.Minimize(bo.trace(X)), [bo.trace(X) + bo.sum(u) == 1, u[0] >= 1, u[0] <= 0])
    found = crossed.solve(solver) if solver == "path" else peers.reference(crossed)
    assert found.status == "infeasible"


def test_rays_know_the_box():
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [bo.trace(X) - bo.sum(u) <= 1, u[0] <= 1, u >= 0]
    sol = bo.Problem(bo.Maximize(bo.trace(X)), rows).solve()
    assert sol.status == "unbounded"


def test_a_warm_start_has_the_rows_as_written():
    X, u, p = bo.PSD(3), bo.Variable(2), bo.Parameter(2, value=[0.2, 0.3])
    rows = [bo.diag(X) + u[0] - u[1] == 1, u >= p, bo.sum(u) <= 4]
    problem = bo.Problem(bo.Minimize(bo.sum(X) + u @ [2, 1]), rows)
    first = problem.solve()
    p.value = [0.25, 0.3]
    again = problem.solve(warm_start=True)
    assert again.status == "optimal"
    assert again.value - first.value == pytest.approx(0.05 * first.duals[1][0], rel=1e-2)


def nearness(divergence, rng):
    """Return a nearness problem with slack variables whose signs are written as rows."""
    G = rng.normal(size=(4, 4))
    X, xi = bo.PSD(4), bo.Variable(3)
    i, j = [0, 0, 1], [1, 2, 3]
    rows = [bo.sq_distance(X, i, j) <= 0.5 + xi, xi >= 0, bo.trace(X) == 4]
    return bo.Problem(bo.Minimize(divergence(X, G @ G.T / 4 + np.eye(4)) + 0.3 * bo.sum(xi)), rows)


@pytest.mark.parametrize("divergence", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
def test_slacks_of_nearness_problems_are_folded(divergence, rng):
    problem = nearness(divergence, rng)
    sol = problem.solve(tol=1e-8)
    assert (sol.solver, sol.status) == ("bregman", "optimal")
    values, duals = sol.value, sol.duals
    (xi,) = sol.u.values()
    distance = bo.sq_distance(problem.matrices[0], [0, 0, 1], [1, 2, 3]).value
    np.testing.assert_allclose(xi, np.maximum(distance - 0.5, 0), atol=1e-6)
    np.testing.assert_allclose(duals[0] + duals[1], 0.3, atol=1e-8)
    if divergence is not bo.von_neumann_div:  # the reference takes minutes for it
        peer = peers.ask(problem)
        peer.agrees(values, sol.error)
        peer.near(duals[0], peer.duals[0], atol=1e-4)


def test_what_is_no_slack_is_named():
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [X[0, 0] + u[0] >= 1, X[1, 1] + u[0] + u[1] >= 2, u >= 0]
    problem = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2)) + bo.sum(u)), rows)
    with pytest.raises(bo.UnsupportedProblemError, match=r"slacks only \(the problem has 1 other"):
        problem.solve("bregman")


def test_cvxpys_slacks_are_folded():
    X, xi = cp.Variable((3, 3), PSD=True), cp.Variable(2)
    A = np.diag([1.0, 2.0, 3.0])
    rows = [X[0, 1] >= 0.9 - xi[0], X[0, 2] >= 0.5 - xi[1], xi >= 0, cp.diag(X) == 1]
    problem = cp.Problem(cp.Minimize(cp.trace(A @ X) - cp.log_det(X) + 2 * cp.sum(xi)), rows)
    peer = peers.ask(problem)
    problem.solve(method="bregopt", strict=True, tol=1e-8)
    assert problem.solver_stats.solver_name == "bregopt: bregman"
    peer.agrees(problem.value, problem.solver_stats.extra_stats.error)
    for c, dual in zip(rows, peer.duals, strict=True):
        peer.near(c.dual_value, dual, atol=1e-4)


# --- Epigraphs and rows that say the same ---------------------------------------------------------------


NAMES = ("boxes", "epigraphs", "absolute values", "parallel rows")


def symmetric(n, rng):
    A = rng.normal(size=(n, n))
    return (A + A.T) / 2


def reduced(problem):
    return presolve(problem.program(), NAMES, Settings())


def deviations(n, seed, shared):
    """Return the nearest psd matrix in the largest deviation, or one within given deviations."""
    rng = np.random.default_rng(seed)
    S, C = symmetric(n, rng), symmetric(n, rng)
    X, u = bo.PSD(n), bo.Variable((n, n))
    if shared:
        t = bo.Variable()
        rows = [X - S <= u, S - X <= u, u <= t]
        return bo.Problem(bo.Minimize(t), rows), X, S
    size = rng.uniform(2.0, 4.0, (n, n))
    rows = [X - S <= u, S - X <= u, u <= size + size.T]
    return bo.Problem(bo.Minimize(bo.inner(C, X)), rows), X, S


@pytest.mark.parametrize(("seed", "shared"), turns(range(4), [True, False]))
def test_deviations(seed, shared):
    n = 4
    problem, _, S = deviations(n, seed, shared)
    small = reduced(problem).program
    assert (small.m, small.k) == ((2 * n * (n + 1) // 2, 1) if shared else (n * (n + 1) // 2, 0))
    sol = problem.solve(solver="path", tol=1e-8)
    plain = problem.solve(solver="cvxpy", backend="CLARABEL")
    assert sol.status == plain.status == "optimal"
    assert abs(sol.value - plain.value) <= sol.error + plain.error
    if shared:
        assert sol.value == pytest.approx(np.abs(sol.X - S).max(), rel=1e-6)
    assert problem.solve(solver="path", tol=1e-8).verify().width <= 1e-5 * (1 + abs(sol.value))


def test_only_dominated_variables_are_substituted():
    X, u = bo.PSD(2), bo.Variable(9, name="u")
    rows = [
        *(X[0, 0] <= u[0], u[0] <= u[8]),  # substituted
        *(X[0, 0] <= u[1], u[1] <= u[8] + 1, u[1] <= 7 * u[8]),  # two rows bound it
        *(X[0, 1] <= u[2], u[2] + X[1, 1] <= 4),  # the row that bounds it has a matrix
        *(X[0, 0] <= u[3], u[3] <= 5),  # at the end of its box
        *(X[0, 0] <= u[4], u[4] == u[8]),  # an equality
        *(X[0, 0] <= u[5], u[5] <= u[8]),  # it has a cost
        *(X[1, 1] >= u[6], u[6] >= 1),  # at the lower end of its box
        *(X[1, 1] <= u[7], u[7] <= u[0] - u[1] + u[2] + u[8]),  # too many terms in the row that bounds it
        bo.trace(X) >= 1,
    ]
    problem = bo.Problem(bo.Minimize(u[8] + 0.1 * u[5] + X[0, 1]), rows)
    program = presolve(problem.program(), ("boxes",), Settings()).program
    found = dominated_variables(program, None)
    assert sorted(found.J.tolist()) == [0, 3, 6]
    sol, plain = problem.solve(solver="path"), problem.solve(solver="cvxpy", backend="CLARABEL")
    assert abs(sol.value - plain.value) <= sol.error + plain.error


def test_stored_zeros_are_no_coefficients():
    """A program keeps the zeros that it stores, and no rule counts them."""
    X, u = bo.PSD(2), bo.Variable(2)
    rows = [X[0, 1] <= u[0], -X[0, 1] <= u[0], X[0, 1] <= u[1], u[1] <= 2, bo.trace(X) == 1]
    problem = bo.Problem(bo.Minimize(u[0] + X[0, 1]), rows)
    program = presolve(problem.program(), ("boxes",), Settings()).program
    B = program.B.tocoo()
    row, column = np.r_[B.row, [2, 3]], np.r_[B.col, [0, 1]]
    stored = sp.csr_array((np.r_[B.data, [0.0, 0.0]], (row, column)), B.shape)
    given = replace(program, B=stored)
    before = [part.copy() for part in (stored.data, stored.indices, stored.indptr)]
    assert absolute_values(given, None).variable.tolist() == [0]
    assert dominated_variables(given, None).J.tolist() == [1]
    for part, kept in zip((stored.data, stored.indices, stored.indptr), before, strict=True):
        np.testing.assert_array_equal(part, kept)


def test_parallel_rows_are_one(rng):
    n = 3
    C = symmetric(n, rng)
    X, u = bo.PSD(n), bo.Variable()
    rows = [
        bo.trace(X) == 2,
        *(X[0, 1] <= 0.5, X[1, 0] >= -0.4, -X[0, 1] <= 0.3, X[0, 1] + 0 * u <= 0.2),
        *(X[0, 2] + u >= 0.1, -u - X[2, 0] <= -0.2),
        *(bo.soft(X[1, 2] == 0.1, gamma=g, penalty="hinge") for g in (0.1, 0.2)),
        bo.soft(X[1, 2] == 0.2, gamma=0.1, penalty="hinge"),
        *(u >= -1, u <= 1),
    ]
    problem = bo.Problem(bo.Minimize(bo.inner(C, X) + 0.1 * u), rows)
    program = presolve(problem.program(), ("boxes",), Settings()).program
    merged = parallel_rows(program, None)
    assert merged.program.m == program.m - 5
    sol, plain = problem.solve(solver="path", tol=1e-8), problem.solve(solver="cvxpy", backend="CLARABEL")
    assert abs(sol.value - plain.value) <= sol.error + plain.error
    y = np.linspace(-1, 1, program.m)
    start = merged.shrink(Start((), np.zeros(program.k), y, None))
    np.testing.assert_allclose(program.A.adjoint(y), merged.program.A.adjoint(start.y), atol=1e-15)


def test_parallel_rows_of_dense_matrices_are_one(rng):
    X, A, z = bo.PSD(6), symmetric(6, rng), rng.normal(size=6)
    rows = [bo.inner(A, X) <= 3, bo.inner(-A, X) >= -2, bo.quad_form(z, X) <= 1, bo.quad_form(z, X) >= 0.5]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), rows)
    merged = parallel_rows(problem.program(), None)
    assert merged.program.m == 2
    assert sorted(merged.program.bounds.hi.tolist()) == [1, 2]
    assert problem.solve(solver="path").value == pytest.approx(0.5 / (z @ z))


def test_rows_that_contradict_each_other_stay():
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] <= 1, X[1, 0] >= 2, X[0, 0] <= 1, X[0, 0] <= 2])
    assert parallel_rows(problem.program(), None).program.m == 3
    assert problem.solve(solver="path").status == "infeasible"


@pytest.mark.parametrize(
    ("way", "name"), turns(["method", "solver"], ["within", "largest", "sum", "infeasible", "unbounded"])
)
def test_deviations_in_cvxpy(name, way, rng):
    n = 5
    S, X = symmetric(n, rng), cp.Variable((n, n), PSD=True)
    C = symmetric(n, rng)
    objective, rows = {
        "within": (cp.trace(C @ X), [cp.abs(X - S) <= 2]),
        "largest": (cp.max(cp.abs(X - S)), []),
        "sum": (cp.trace(C @ X) + 0.3 * cp.sum(cp.abs(X - S)), [cp.trace(X) <= 3]),
        "infeasible": (cp.trace(C @ X), [cp.abs(X + 3 * np.eye(n)) <= 1]),
        "unbounded": (-cp.trace(X) + 0.3 * cp.sum(cp.abs(X - S)), []),
    }[name]
    problem = cp.Problem(cp.Minimize(objective), rows)
    if way == "method":
        problem.solve(method="bregopt", tol=1e-8)
    else:
        problem.solve(solver=BREGOPT)
    if name in ("infeasible", "unbounded"):
        assert problem.status == name
        return
    assert problem.status == "optimal"
    peers.ask(problem).agrees(problem.value, 1e-7 * (1 + abs(problem.value)))


def distances(G):
    d = np.diag(G)
    return d[:, None] + d[None] - 2 * G


@pytest.mark.parametrize(("way", "norm"), turns(["method", "solver", "language"], ["fro", "max"]))
def test_nearest_distance_matrix(norm, way):
    """Translations of the points change no distance: without centering no dual point is in the interior."""
    n, rng = 12, np.random.default_rng(3)
    x = rng.normal(size=(n, 3))
    D = distances(x @ x.T) * rng.uniform(0.7, 1.3, (n, n))
    D = (D + D.T) / 2
    G, o = cp.Variable((n, n), PSD=True), np.ones((n, 1))
    d = cp.reshape(cp.diag(G), (n, 1), order="F")
    off = d @ o.T + o @ d.T - 2 * G - D
    problem = cp.Problem(cp.Minimize(cp.norm(off, "fro") if norm == "fro" else cp.max(cp.abs(off))))
    if way == "language":
        sol = bo.from_cvxpy(problem).solve(solver="path", tol=1e-7)
        status, value, X = sol.status, sol.value, sol.X
    else:
        problem.solve(**({"method": "bregopt", "tol": 1e-7} if way == "method" else {"solver": BREGOPT}))
        status, value, X = problem.status, problem.value, G.value
    assert status == "optimal"
    own = np.abs(distances(X) - D)
    assert value == pytest.approx(np.linalg.norm(own) if norm == "fro" else own.max(), rel=1e-5)
    peers.ask(problem).agrees(value, 2e-6 * value)


def test_null_spaces_of_rows_and_cost(rng):
    n = 5
    V = np.linalg.qr(rng.normal(size=(n, n)))[0][:, :3]
    rows = [V @ symmetric(3, rng) @ V.T for _ in range(4)]
    X = bo.PSD(n)
    constraints = [bo.inner(A, X) == float(np.sum(A * (V @ V.T))) for A in rows]
    inside, outside = V @ V.T, np.eye(n)
    for C, order in ((inside, 3), (outside, 5)):
        program = bo.Problem(bo.Minimize(bo.inner(C, X)), constraints).program()
        found = presolve(program, ("faces",), Settings()).program
        assert [face.order for face in found.faces] == [order]
    sol = bo.Problem(bo.Minimize(bo.inner(inside, X)), constraints).solve(solver="path", tol=1e-8)
    assert sol.status == "optimal"
    assert np.abs(sol.X - inside @ sol.X @ inside).max() <= 1e-9


def test_which_variables_are_fixed():
    X, u = bo.PSD(2), bo.Variable(6, lower=-1.0, name="u")
    rows = [
        bo.trace(X) + bo.sum(u[:2]) <= 9,
        2 * u[0] == 3,
        u[1] == -2,  # outside its box: the row stays, and contradicts it
        u[2] == 1,
        u[2] == 1,  # twice: both stay
        u[3] - u[4] == 1,
        bo.soft(u[4] == 1),
        u[5] == 4,
    ]
    program = bo.Problem(bo.Minimize(bo.trace(X) + 5 * u[0]), rows).program()
    reduced = fixed_variables(program, None)
    assert reduced.J.tolist() == [0, 5]
    np.testing.assert_array_equal(reduced.first, [1.5, 4])
    assert reduced.program.k == 4
    assert reduced.program.m == program.m - 2
    assert reduced.program.bounds.hi[0] == 7.5
    assert reduced.program.offset == 7.5
    assert reduced.program.stated_constant == program.stated_constant
    # The divergence of a bound is no function of the difference from it.
    priced = [bo.soft(X[0, 0] + u[0] <= 3), u[0] == 1]
    program = bo.Problem(bo.Minimize(bo.logdet_div(X, np.eye(2))), priced).program()
    assert fixed_variables(program, None) is None


@examples(10)
@given(st.integers(0, 10**6), st.sampled_from(["path", "lagrangian"]), st.sampled_from([1e-6, 1.0, 1e6]))
def test_fixed_variables_and_their_duals_come_back(seed, solver, unit):
    rng = np.random.default_rng(seed)
    n, A = 4, rng.normal(size=(4, 4))
    M, known = rng.normal(size=(n, n)) * unit, rng.random((n, n)) < 0.6
    known[0, 0] = True
    i, j = np.nonzero(known)
    X, F = bo.PSD(2 * n, name="X"), bo.Variable((n, n), name="F")
    rows = [X[:n, n:] == F, F[i, j] == M[i, j], bo.trace(X) <= 1e3 * unit]
    sol = bo.Problem(bo.Minimize(bo.trace(X) / 2 + bo.inner(0.1 * A * known, F)), rows).solve(solver)
    assert sol.status == "optimal"
    np.testing.assert_array_equal(sol.u["F"][i, j], M[i, j])
    # The same without F: only its known entries are rows, and their duals differ by F's costs.
    own = bo.Problem(bo.Minimize(bo.trace(X) / 2), [X[i, n + j] == M[i, j], rows[2]]).solve(solver)
    added = 0.1 * float((A * M)[known].sum())
    assert sol.value - added == pytest.approx(own.value, rel=1e-5)
    np.testing.assert_allclose(sol.duals[1] - sol.duals[0][i, j], -0.1 * A[i, j], atol=1e-9)


def test_which_variables_are_equal():
    X, u, v = bo.PSD(2), bo.Variable(10, lower=0.0), bo.Variable(3)
    rows = [
        u[0] == u[1],  # one of them is left
        u[2] == 2 * u[3],  # u[2] grows with the other coefficient
        2 * u[4] - 3 == 2 * u[5],  # u[4] is above its bound where u[5] is
        u[6] + 0.5 * u[7] == 1,  # the box of neither implies that of the other
        v[0] == -2 * u[8],  # a free one may grow, but not without limit
        1e-4 * v[1] == -u[8],
        u[9] == X[0, 0],  # a matrix
        v[2] - u[9] <= 0,  # an inequality
        3 * u[1] == 3 * u[0],  # nothing is left of it
        u[0] + v[2] == X[0, 1],
        u[1] + v[2] == X[0, 1],
    ]
    program = bo.Problem(bo.Minimize(bo.trace(X) + u @ np.arange(1.0, 11.0)), rows).program()
    found = equal_variables(program, None)
    assert (found.J.tolist(), found.row.tolist()) == ([0, 3, 4, 10], [0, 1, 2, 4])
    assert found.left.tolist() == [3, 5, 6, 7, 9, 10]
    merged = parallel_rows(found.program, None)
    assert merged.left.tolist() == [0, 1, 2, 3, 4]


def test_the_logarithm_of_a_difference_of_equal_variables_is_infinite():
    X, u = bo.PSD(2), bo.Variable(2, lower=0.0)
    rows = [u[0] == u[1], bo.trace(X) + u[0] == 1]
    problem = bo.Problem(bo.Minimize(bo.trace(X) - bo.log(u[0] - u[1])), rows)
    assert equal_variables(problem.program(), None) is None
    assert problem.solve().status == "infeasible"


@pytest.mark.parametrize(
    "way", [{"method": "bregopt", "tol": 1e-8}, {"solver": BREGOPT}], ids=["method", "solver"]
)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_mirrored_variables_and_their_duals_come_back(way, unit, rng):
    """``A + t J = P + N`` with ``P`` psd and ``N`` nonnegative and symmetric, or of one triangle."""
    n = 4
    A = (symmetric(n, rng) + np.eye(n)) * unit
    P, t, N = cp.Variable((n, n), PSD=True), cp.Variable(), cp.Variable((n, n), nonneg=True)
    mirrored = cp.Problem(cp.Minimize(t), [A + t == P + N, N == N.T])
    mirrored.solve(**way)
    assert mirrored.status == "optimal"
    least, Q = cp.Variable(), cp.Variable((n, n), PSD=True)
    one = cp.Problem(cp.Minimize(least), [A / unit + least - Q >= 0])
    assert mirrored.value / unit == pytest.approx(one.solve(cp.CLARABEL), abs=2e-6)
    Y, Z = mirrored.constraints[0].dual_value, mirrored.constraints[1].dual_value
    assert Y.sum() == pytest.approx(-1, abs=1e-7)  # the derivative in t
    assert np.linalg.eigvalsh(-(Y + Y.T)).min() >= -1e-7
    slack = Z - Z.T - Y
    assert slack.min() >= -1e-7
    assert abs((slack * N.value).sum()) <= 1e-5 * unit
    assert abs((Y * P.value).sum()) <= 1e-5 * unit


def test_which_variables_are_defined():
    X, u, v = bo.PSD(2), bo.Variable(7), bo.Variable(2, lower=0.0)
    rows = [
        u[0] == 2 * X[0, 1],  # a matrix
        u[1] == 0.5 * v[0] - v[1] + 3,  # substituted
        u[2] == 3 * v[0],  # a larger coefficient
        u[3] + u[4] == 1,  # two free variables
        u[5] + 0.1 * v[0] + 0.1 * v[1] + 0.1 * u[0] == 1,  # too many terms
        u[6] - v[1] <= 1,  # an inequality
        u[1] == v[0],  # another definition
    ]
    cost = bo.trace(X) + u @ np.arange(1.0, 8.0)
    program = bo.Problem(bo.Minimize(cost), rows).program()
    found = defined_variables(program, None)
    assert (found.J.tolist(), found.row.tolist()) == ([1], [1])
    assert defined_variables(found.program, None) is None


@pytest.mark.parametrize(
    ("divergence", "found"), [(bo.frobenius_div, True), (bo.logdet_div, False), (bo.von_neumann_div, False)]
)
def test_variables_in_penalties_of_ratios_are_not_defined(divergence, found):
    X, u, v = bo.PSD(2), bo.Variable(), bo.Variable(lower=0.0)
    rows = [u == 0.5 * v + 3, bo.soft(u + X[0, 0] <= 3, 1.0)]
    program = bo.Problem(bo.Minimize(divergence(X, np.eye(2))), rows).program()
    assert (defined_variables(program, None) is not None) == found


@pytest.mark.parametrize(("solver", "unit"), turns(["path", "lagrangian"], [1e-6, 1.0, 1e6]))
def test_defined_variables_and_their_duals_come_back(solver, unit, rng):
    """The same program, with the definition written in place of the variables, has the same duals."""
    n = 4
    A, C, X, v, w = symmetric(n, rng), symmetric(n, rng), bo.PSD(n), bo.Variable(3), bo.Variable(3, name="w")
    expression = (0.5 * v + rng.normal(size=3)) * unit

    def posed(w, *more):
        least = w[1] + w[2] >= -unit
        rows = [bo.inner(A, X) + w[0] / unit == 1, bo.trace(X) + v[1] <= 3, least, v <= 2, v >= -2]
        cost = bo.inner(C, X) + bo.sum(w) * (0.2 / unit) - 0.3 * v[2]
        return bo.Problem(bo.Minimize(cost), [*rows, *more])

    problem, own = posed(w, w == expression), posed(expression).solve(solver=solver, tol=1e-8)
    found = defined_variables(presolve(problem.program(), ("boxes",), Settings()).program, None)
    if unit > 1:  # the coefficient of the definition is the smallest of its row
        assert found is None
    else:
        assert len(found.J) == 3
    sol = problem.solve(solver=solver, tol=1e-8)
    assert sol.status == own.status == "optimal"
    assert max(sol.primal_residual, sol.dual_residual) <= 1e-8  # of all rows and variables
    assert abs(sol.value - own.value) <= sol.error + own.error
    for k in range(2):
        np.testing.assert_allclose(sol.duals[k], own.duals[k], atol=1e-5)


def test_round_off_of_a_definition_is_no_cost():
    """The costs of both variables cancel but for round-off, along which the objective would fall."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, u, v, y = bo.PSD(2), bo.Variable(2), rng.normal(size=2), rng.normal()
        rows = [v @ u == 1.0, u[int(abs(v[0]) > abs(v[1]))] >= -5]
        problem = bo.Problem(bo.Minimize(bo.trace(X) + y * (v @ u)), rows)
        assert problem.solve(solver="path").value == pytest.approx(y)
