"""Second-order cones: their algebra, the method's steps, programs of known solution, the language, proofs."""

import itertools
import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, turns

import bregopt as bo
import bregopt.cvxpy  # makes BREGOPT known to CVXPY
from bregopt.certify import PrimalDualPoint, certify, dimacs_errors, is_farkas, is_ray
from bregopt.cvxpy.reductions import coordinates_of
from bregopt.io.evaluate import evaluate
from bregopt.presolve import presolve
from bregopt.program import Block, Bounds, LinearMap, Program, SecondOrderCones, Term
from bregopt.program.rows import DenseRows
from bregopt.program.scale import scale_of
from bregopt.routes import routing
from bregopt.routes.base import Settings
from bregopt.routes.ipm.cones import SecondOrderState, SecondOrderStep
from bregopt.routes.ipm.linear_solvers import VariableMetric

SIZES = (3, 1, 4, 2, 2)
SEEDS = range(6)


def cones_of(sizes):
    return SecondOrderCones.of(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))


def inside(cones, rng, least=0.1):
    x = rng.normal(size=cones.size)
    return cones.raised(x, cones.outside(x) + rng.uniform(least, 1, cones.count))


def arrow(x):
    """Return the matrix of ``y -> x o y``; it is psd if and only if ``x`` is in the cone."""
    L = x[0] * np.eye(len(x))
    L[0], L[:, 0] = x, x
    return L


def parts(cones, x):
    return np.split(x, cones.starts[1:])


# --- The cones ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_eigenvalues_are_those_of_the_arrow_matrix(seed):
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    x = rng.normal(size=cones.size) * 10.0 ** rng.integers(-6, 6)
    size = np.abs(x).max()
    for value, own in zip(cones.least_eigenvalues(x), parts(cones, x), strict=True):
        assert value == pytest.approx(np.linalg.eigvalsh(arrow(own))[0], abs=1e-12 * size)
    for value, own in zip(cones.determinants(x), parts(cones, x), strict=True):
        assert value == pytest.approx(own[0] ** 2 - own[1:] @ own[1:], abs=1e-12 * size**2)


@pytest.mark.parametrize("seed", SEEDS)
def test_projection_is_optimal(seed):
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    x = 3 * rng.normal(size=cones.size)
    p = cones.projected(x)
    # Moreau: p in the cone, p - x in its dual, which is the same, and both orthogonal.
    assert cones.outside(p).max() <= 1e-12
    assert cones.outside(p - x).max() <= 1e-12
    np.testing.assert_allclose(cones.inner(p, p - x), 0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_inverse_is_that_of_the_jordan_product(seed):
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    x = inside(cones, rng)
    for own, inverse in zip(parts(cones, x), parts(cones, cones.inverse(x)), strict=True):
        np.testing.assert_allclose(arrow(own) @ inverse, np.eye(len(own))[0], atol=1e-10)


def test_tiny_vectors_have_norms():
    assert cones_of((3,)).tail_norms(np.array([0, 3e-200, 4e-200])) == pytest.approx(5e-200, rel=1e-12)


# --- Newton's method ----------------------------------------------------------------------------------


def metric_of(state):
    """Return ``W^2`` as a matrix."""
    d, p = state.metric()
    same = state.cones.owner[:, None] == state.cones.owner
    return np.diag(d) + same * np.outer(p, p)


@pytest.mark.parametrize("seed", SEEDS)
def test_scaling_maps_multipliers_to_variables(seed):
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    state = SecondOrderState(cones, inside(cones, rng), inside(cones, rng) * 10.0 ** rng.integers(-4, 4))
    metric = metric_of(state)
    np.testing.assert_allclose(metric @ state.z, state.x, rtol=1e-8, atol=1e-10)  # W^2 z = x
    assert np.linalg.eigvalsh(metric)[0] > 0
    d, p = state.metric()
    bordered = VariableMetric(d, np.ones(cones.size, dtype=bool), cones, p)
    np.testing.assert_allclose(bordered.corner @ metric, np.eye(cones.size), atol=1e-6)
    B = rng.normal(size=(4, cones.size))
    eliminated = VariableMetric(d, np.zeros(cones.size, dtype=bool), cones, p)
    for form in (B, sp.csr_array(B)):
        gram = np.zeros((4, 4))
        eliminated.add_gram(gram, form)
        np.testing.assert_allclose(gram, B @ metric @ B.T, rtol=1e-8)
    np.testing.assert_allclose(eliminated.product(B[0]), metric @ B[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_variables_that_exceed_the_rest_of_their_rows_border_the_system(form):
    """Of rows without a matrix, too: variables of one size leave each other their digits."""
    B, rows = np.array([[1.0, -1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 3.0]]), np.zeros(3)
    for d, expected in (([1.0, 3.0, 2.0], [0, 0, 0]), ([1e6, 3.0, 2.0], [1, 0, 0])):
        metric = VariableMetric.split(np.array(d), cones_of(()), None, form(B), rows, 1e4)
        np.testing.assert_array_equal(metric.bordering, expected)
    few = VariableMetric.split(np.full(3, 1e6), cones_of(()), None, form(np.vstack([B, B])), np.ones(6), 1e4)
    assert few.bordering.all()  # three variables leave no digits to six rows of matrices


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_solve_the_linearized_centrality(seed):
    """At a fixed metric the step to nu has the derivative of the central path."""
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    x, nu = inside(cones, rng), 0.7
    state = SecondOrderState.centered(cones, x, nu, None)
    for own, z in zip(parts(cones, x), parts(cones, state.z), strict=True):
        np.testing.assert_allclose(arrow(own) @ z, nu * np.eye(len(own))[0], atol=1e-10)
    dz = 1e-6 * rng.normal(size=cones.size)
    dx = state.right_hand_side(nu) - metric_of(state) @ dz
    new = SecondOrderState.centered(cones, x + dx, nu, None)
    np.testing.assert_allclose(new.z, state.z + dz, atol=1e-4 * np.abs(dz).max() + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_second_order_terms_are_products_of_the_predictor(seed):
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    state = SecondOrderState.centered(cones, inside(cones, rng), 1.0, None)
    predictor = SecondOrderStep(rng.normal(size=cones.size), rng.normal(size=cones.size))
    difference = state.right_hand_side(0.3) - state.right_hand_side(0.3, predictor)
    # At a centered point W maps l = e, and the terms are W (inv(W) dx o W dz), by cones.
    metric = metric_of(state)
    values, Q = np.linalg.eigh(metric)
    W, inverse = Q * np.sqrt(values) @ Q.T, Q / np.sqrt(values) @ Q.T
    a, b = inverse @ predictor.x, W @ predictor.z
    product = np.concatenate([arrow(p) @ q for p, q in zip(parts(cones, a), parts(cones, b), strict=True)])
    np.testing.assert_allclose(difference, W @ product, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_step_lengths_reach_the_boundary(seed):
    rng, cones = np.random.default_rng(seed), cones_of(SIZES)
    state = SecondOrderState(cones, inside(cones, rng), inside(cones, rng))
    step = SecondOrderStep(rng.normal(size=cones.size), inside(cones, rng))
    primal, dual = state.step_lengths(step)
    assert dual == np.inf
    assert cones.least_eigenvalues(state.x + primal * (1 - 1e-9) * step.x).min() >= 0
    if primal < np.inf:
        assert cones.least_eigenvalues(state.x + primal * (1 + 1e-6) * step.x).min() < 0
        assert state.after_step(step, 1.01 * primal, 0.0) is None
    assert state.after_step(step, 0.0, 1e3) is not None


# --- Programs of known solution -----------------------------------------------------------------------


def pair(cones, rng):
    """Return complementary vectors of the cones: inside and zero, zero and inside, or both on rays."""
    x, z = np.zeros(cones.size), np.zeros(cones.size)
    for start, d in zip(cones.starts, cones.dimensions, strict=True):
        v, own = rng.normal(size=d - 1), slice(start, start + d)
        v /= np.linalg.norm(v) or 1.0
        kind = rng.integers(3) if d > 1 else rng.integers(2)
        if kind < 2:
            (x, z)[kind][own] = rng.uniform(0.5, 2) * np.concatenate([[1.0], 0.5 * v])
        else:
            x[own] = rng.uniform(0.5, 2) * np.concatenate([[1.0], v])
            z[own] = rng.uniform(0.5, 2) * np.concatenate([[1.0], -v])
    return x, z


def known(seed, sizes=SIZES, n=5, m=9, free=2, rows=1.0, costs=1.0):
    """Return a program, an optimal point, and its value: complementary pairs in all cones."""
    rng, cones = np.random.default_rng(seed), cones_of(sizes)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    X = (Q[:, :2] * rng.uniform(0.5, 2, 2)) @ Q[:, :2].T
    Z = (Q[:, 2:] * rng.uniform(0.5, 2, n - 2)) @ Q[:, 2:].T
    x, z = pair(cones, rng)
    u, reduced = np.concatenate([x, rng.normal(size=free)]), np.concatenate([z, np.zeros(free)])
    A, B = rng.normal(size=(m, n, n)), rng.normal(size=(m, len(u)))
    A, y = rows * (A + A.transpose(0, 2, 1)), rng.normal(size=m) * costs / rows
    B, Z, reduced = rows * B, costs * Z, costs * reduced
    C, c = Z + np.einsum("k,kij->ij", y, A), reduced + B.T @ y
    b = np.einsum("kij,ij->k", A, X) + B @ u
    program = Program(
        blocks=(Block("X", n, DenseRows(C[None])),),
        A=LinearMap(m, (n,), (Term(0, np.arange(m), DenseRows(A)),)),
        B=sp.csr_array(B),
        bounds=Bounds(b, b, np.zeros(m, dtype=int), np.full(m, np.inf)),
        c=c,
        u_lo=np.full(len(u), -np.inf),
        u_hi=np.full(len(u), np.inf),
        cones=cones,
    )
    return program, X, u, y, float(np.vdot(C, X) + c @ u)


@pytest.mark.parametrize(("seed", "route"), turns(range(12), ["path", "cvxpy"]))
def test_complementary_pairs(seed, route):
    program, _, _, _, value = known(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)  # Clarabel stops before our tolerance
        found = routing.solve(program, route, tol=1e-7)
    assert found.status == "optimal" or route == "cvxpy"
    assert abs(found.value - value) <= found.error + 1e-9 * abs(value)


@pytest.mark.parametrize("rows", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("costs", [1e-6, 1.0, 1e6])
def test_scaled_data_have_the_same_status(rows, costs):
    program, _, _, _, value = known(3, rows=rows, costs=costs)
    found = routing.solve(program, "path", tol=1e-7)
    assert found.status == "optimal"
    assert abs(found.value - value) <= found.error + 1e-9 * abs(value)


@examples(12)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 7), min_size=1, max_size=12), st.integers(0, 3))
def test_random_cones(seed, sizes, free):
    m = max(4, min(12, sum(sizes) // 2 + 3))
    program, _, _, _, value = known(seed, tuple(sizes), m=m, free=min(free, m - 3))
    found = routing.solve(program, "path", tol=1e-6, warn=False)
    if found.status == "optimal":
        assert abs(found.value - value) <= 10 * found.error + 1e-8 * (1 + abs(value))
    else:
        assert found.status == "optimal_inaccurate"


def test_a_thousand_small_cones_and_one_long_cone():
    for sizes in ((3,) * 300, (400,)):
        program, _, _, _, value = known(1, sizes, m=40)
        found = routing.solve(program, "path", tol=1e-7)
        assert found.status == "optimal"
        assert abs(found.value - value) <= found.error + 1e-9 * abs(value)


def test_a_warm_start_ends_at_the_same_value():
    program, _, _, _, value = known(2)
    cold = routing.solve(program, "path", tol=1e-7)
    warm = routing.solve(program, "path", start=cold, tol=1e-7)
    assert warm.status == "optimal"
    assert warm.value == pytest.approx(value, rel=1e-6)


# --- Certificates -------------------------------------------------------------------------------------


def test_the_certificate_of_a_solution_is_tight_and_of_another_point_is_not():
    program, X, u, y, value = known(4)
    certificate = certify(PrimalDualPoint(program, (X,), u, y))
    assert certificate.meets(1e-10)
    assert certificate.dual == pytest.approx(value)
    outside = u.copy()
    outside[program.cones.axes[0]] -= 1.0
    assert certify(PrimalDualPoint(program, (X,), outside, y)).primal_residual > 1e-3
    assert certify(PrimalDualPoint(program, (X,), u, 1.1 * y)).dual_residual > 1e-3


@pytest.mark.parametrize("seed", SEEDS)
def test_multipliers_inside_the_dual_cone_bound_the_optimum(seed):
    program, X, u, y, value = known(seed)
    rng = np.random.default_rng(seed)
    certificate = certify(PrimalDualPoint(program, (X,), u, y + 1e-3 * rng.normal(size=len(y))))
    slack = certificate.dual_residual == 0
    assert certificate.dual <= value + 1e-9 if slack else certificate.dual_residual > 0


def test_dimacs_errors_count_cones():
    program, X, u, y, _ = known(5)
    assert np.abs(dimacs_errors(program, (X,), u, y)).max() <= 1e-12
    worse = u.copy()
    worse[program.cones.axes[0]] -= 2.0
    assert dimacs_errors(program, (X,), worse, y)[1] > 0.1
    assert dimacs_errors(program, (X,), u, 1.5 * y)[3] > 1e-3


def test_a_ray_and_a_farkas_vector_must_be_in_the_cone():
    x, t = bo.Variable(2, name="x"), bo.Variable(name="t")
    X = bo.PSD(2, name="X")
    program = bo.Problem(bo.Minimize(bo.trace(X) - t), [bo.norm2(x) <= t, bo.diag(X) == 1]).program()
    zero = (np.zeros((2, 2)),)
    names = [name for name, size in program.columns for _ in range(size)]
    along = np.array([1.0 if name == "t" else 0.0 for name in names])
    assert is_ray(program, zero, along)
    assert not is_ray(program, zero, along + np.array([1.5 if name == "x" else 0.0 for name in names]))
    infeasible = bo.Problem(bo.Minimize(bo.trace(X)), [bo.norm2(x) <= t, x[0] == 1, t == 0.5]).program()
    assert is_farkas(infeasible, np.array([1.0, -1.5]))
    assert not is_farkas(infeasible, np.array([1.5, -1.0]))


# --- The language -------------------------------------------------------------------------------------


def beside(n=2):
    """Return a matrix of a problem whose interest is elsewhere, and its constraint; it costs ``n``."""
    X = bo.PSD(n, name="X")
    return X, [bo.diag(X) >= 1]


POINT = np.array([3.0, -4.0, 12.0])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_projection_onto_a_ball(scale):
    X, _ = beside()
    x, t = bo.Variable(3), bo.Variable()
    p = scale * POINT
    rows = [bo.norm2(x - p) <= t, bo.norm2(x) <= scale, bo.diag(X) >= scale]
    nearest = bo.Problem(bo.Minimize(t + bo.trace(X)), rows)
    found = nearest.solve(tol=1e-8)
    assert (found.status, found.solver) == ("optimal", "path")
    assert found.value == pytest.approx(14 * scale, rel=1e-6)
    np.testing.assert_allclose(x.value, p / 13, atol=1e-4 * scale)
    assert nearest.constraints[1].dual_value == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_least_squares(scale):
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(8, 3)), scale * rng.normal(size=8)
    exact, (left,), *_ = np.linalg.lstsq(A, b, rcond=None)
    X, held = beside()
    x = bo.Variable(3)
    problem = bo.Problem(bo.Minimize(bo.sum_squares(A @ x - b) + scale**2 * bo.trace(X)), held)
    found = problem.solve(tol=1e-8)
    assert (found.status, found.solver) == ("optimal", "path")
    assert found.value == pytest.approx(left + 2 * scale**2, rel=1e-6)
    np.testing.assert_allclose(x.value, exact, atol=1e-3 * scale)
    opposite = bo.Problem(bo.Maximize(-bo.sum_squares(A @ x - b) - scale**2 * bo.trace(X)), held)
    assert opposite.solve(tol=1e-8).value == pytest.approx(-found.value, rel=1e-6)


def test_the_smallest_enclosing_ball():
    corners = np.array([[0.0, 0], [4, 0], [0, 3], [1, 1]])  # a right triangle: its hypotenuse is a diameter
    X, held = beside()
    c, r = bo.Variable(2), bo.Variable()
    problem = bo.Problem(bo.Minimize(r + bo.trace(X)), [*(bo.norm2(c - p) <= r for p in corners), *held])
    assert problem.solve(tol=1e-8).value == pytest.approx(4.5, rel=1e-7)
    np.testing.assert_allclose(c.value, [2, 1.5], atol=1e-3)
    duals = np.array([constraint.dual_value for constraint in problem.constraints[:4]])
    assert duals.sum() == pytest.approx(1, rel=1e-5)
    assert duals[3] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("bound", ["number", "parameter", "expression"])
def test_bounds_on_sums_of_squares(bound):
    X, held = beside()
    x, four = bo.Variable(3), bo.Parameter(value=4.0)
    own, held = {
        "number": (4.0, held),
        "parameter": (four, held),
        "expression": (4 * X[0, 0], [bo.diag(X) == 1]),
    }[bound]
    problem = bo.Problem(bo.Maximize(bo.sum(x) - bo.trace(X)), [bo.sum_squares(x) <= own, *held])
    assert problem.solve(tol=1e-8).value == pytest.approx(2 * np.sqrt(3) - 2, rel=1e-6)
    assert problem.constraints[0].dual_value == pytest.approx(np.sqrt(3) / 4, rel=1e-4)
    if bound == "parameter":
        four.value = 1.0
        assert problem.solve(tol=1e-8).value == pytest.approx(np.sqrt(3) - 2, rel=1e-6)


def test_norms_of_matrices_and_their_expressions():
    C = np.array([[2.0, 1], [1, -1]])
    X, t = bo.PSD(2, name="X"), bo.Variable()
    problem = bo.Problem(bo.Minimize(t), [bo.norm2(X - C) <= t, bo.trace(X) == 1])
    near = bo.Problem(bo.Minimize(bo.frobenius_div(X, C)), [bo.trace(X) == 1])
    assert problem.solve(tol=1e-8).value ** 2 == pytest.approx(near.solve(tol=1e-10).value, rel=1e-6)


@pytest.mark.parametrize("size", [1, 2])
def test_cones_of_dimension_one_and_two(size):
    X, held = beside()
    x, t = bo.Variable(size), bo.Variable()
    p = np.arange(1.0, size + 1)
    problem = bo.Problem(bo.Minimize(t + bo.trace(X)), [bo.norm2(x - p) <= t, bo.sum(x) == 0, *held])
    assert problem.solve(tol=1e-8).value == pytest.approx(p.sum() / np.sqrt(size) + 2, rel=1e-6)


def test_the_apex_is_optimal():
    X, held = beside()
    x, t = bo.Variable(3), bo.Variable()
    problem = bo.Problem(bo.Minimize(t + bo.trace(X)), [bo.norm2(x - POINT) <= t, *held])
    found = problem.solve(tol=1e-8)
    assert found.status == "optimal"
    assert t.value == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(x.value, POINT, atol=1e-5)


def test_a_zero_bound_fixes_the_expression():
    X, held = beside()
    x = bo.Variable(3)
    problem = bo.Problem(bo.Minimize(bo.sum(x) + bo.trace(X)), [bo.norm2(x - POINT) <= 0, *held])
    found = problem.solve(tol=1e-6, warm_start=False)
    assert found.value == pytest.approx(13, abs=1e-3)


@pytest.mark.parametrize(
    "rows",
    [
        lambda x, t: [bo.norm2(x) <= t, x[0] == 2, t <= 1],
        lambda x, t: [bo.norm2(x) <= 1, bo.norm2(x - POINT) <= 1],
        lambda x, t: [bo.sum_squares(x) <= t, t <= -1],
        lambda x, t: [bo.norm2(x - t) <= -1],
    ],
)
def test_infeasible_cones_are_proven(rows):
    X, held = beside()
    x, t = bo.Variable(3), bo.Variable()
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [*rows(x, t), *held])
    assert problem.solve("path").status == "infeasible"
    assert is_farkas(problem.program(), problem.solution._raw.duals)


def test_unbounded_cones_are_proven():
    X, held = beside()
    x, t = bo.Variable(3), bo.Variable()
    problem = bo.Problem(bo.Maximize(bo.sum(x) - t - bo.trace(X)), [bo.norm2(x) <= t, *held])
    assert problem.solve("path").status == "unbounded"
    assert problem.solve("cvxpy").status == "unbounded"


def test_almost_rays_are_none():
    """``||(a, b)|| <= t <= a`` means that ``b`` is zero; a vector almost in the cone has ``b = 6e-5``."""
    X, held = beside()
    y, t, b = bo.Variable(2), bo.Variable(), bo.Variable()
    rows = [bo.norm2(y) <= t, t - y[0] <= 0, b + 1 >= y[1], b >= y[1] - 1]
    problem = bo.Problem(bo.Minimize(b + bo.trace(X)), [*rows, *held])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        found = problem.solve("path")
    assert found.status not in ("unbounded", "infeasible")
    if found.status == "optimal":
        assert found.value == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("room", [1e-2, 1e-4, 1e-6])
def test_far_feasible_points_are_not_called_infeasible(room):
    """``||(x, 1)|| <= x + room`` holds from ``x = 1 / (2 room)`` on."""
    X, held = beside()
    s, t = bo.Variable(2), bo.Variable()
    rows = [bo.norm2(s) <= t, s[1] == 1, t - s[0] == room]
    problem = bo.Problem(bo.Minimize(bo.trace(X)), [*rows, *held])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        assert problem.solve("path").status != "infeasible"


def test_answers_agree_with_the_reference_and_name_only_the_users_variables():
    rng = np.random.default_rng(1)
    X, x, t = bo.PSD(4, name="X"), bo.Variable(3, name="x"), bo.Variable(name="t")
    A = rng.normal(size=(3, 3))
    problem = bo.Problem(
        bo.Minimize(2 * t + bo.trace(X) + 0.5 * bo.sum_squares(X[0] - 1)),
        [t >= bo.norm2(A @ x - X[0, 1:]), bo.sum_squares(x) <= X[1, 1] + t, bo.sum(x) >= 1],
    )
    ours, theirs = problem.solve("path", tol=1e-7), problem.solve("cvxpy", tol=1e-6)
    assert ours.status == theirs.status == "optimal"
    assert abs(ours.value - theirs.value) <= ours.error + theirs.error
    assert set(ours.u) == {"x", "t"}
    assert problem.variables == (t, x) or problem.variables == (x, t)
    back = problem.to_cvxpy()
    assert back.solve(solver="CLARABEL") == pytest.approx(ours.value, rel=1e-6)


@pytest.mark.parametrize("divergence", [bo.logdet_div, bo.von_neumann_div, bo.frobenius_div])
def test_beside_divergences(divergence):
    X0 = np.array([[2.0, 0.5], [0.5, 1.0]])
    X = bo.PSD(2, name="X")
    norm = bo.Problem(bo.Minimize(divergence(X, X0)), [bo.norm2(X[0] - 3) <= 1.5])
    found = norm.solve()
    route = "path" if divergence is bo.logdet_div else "entropy"
    assert (found.status, found.solver) == ("optimal", route)
    assert np.linalg.norm(X.value[0] - 3) == pytest.approx(1.5, abs=1e-4)
    squares = bo.Problem(bo.Minimize(divergence(X, X0) + 2 * bo.sum_squares(X[0] - 3)), [bo.trace(X) <= 4])
    ours, theirs = squares.solve("bregman"), squares.solve("cvxpy")
    assert ours.status == theirs.status == "optimal"
    assert abs(ours.value - theirs.value) <= ours.error + theirs.error


def test_norms_in_specifications():
    names = {"x": bo.Variable(2, name="x"), "t": bo.Variable(name="t")}
    assert (
        repr(evaluate("norm2(x - [1, 2]) <= t", names))
        == "SecondOrderConstraint(norm2(x + b) <= t, dimension=3)"
    )
    assert evaluate("sum_squares(x) <= 4", names).size == 3


ABOVE = "is convex, and a convex expression may be bounded from above only"


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (lambda x, t: bo.norm2(x) >= t, TypeError, ABOVE),
        (lambda x, t: t <= bo.norm2(x), TypeError, ABOVE),
        (lambda x, t: bo.norm2(x) == 1, TypeError, "only affine expressions may be equated"),
        (lambda x, t: bo.norm2(x) <= bo.norm2(x - 1), TypeError, ABOVE),
        (lambda x, t: bo.sum_squares(x) >= 1, TypeError, ABOVE),
        (lambda x, t: bo.sum_squares(x) == 1, TypeError, "only affine expressions may be equated"),
        (lambda x, t: -bo.sum_squares(x) <= 1, TypeError, "concave expression may be bounded from below"),
        (lambda x, t: bo.Maximize(bo.sum_squares(x)), TypeError, "convex expression may be minimized only"),
        (lambda x, t: bo.Minimize(-2 * bo.sum_squares(x)), TypeError, "concave expression may be maximized"),
        (lambda x, t: bo.frobenius_div(bo.PSD(2), np.eye(2)) <= 1, TypeError, "minimized only"),
        (lambda x, t: bo.norm2([1, 2]), ValueError, "contains no variable"),
        (lambda x, t: bo.sum_squares(5), ValueError, "contains no variable"),
        (lambda x, t: bo.norm2(x) <= "t", TypeError, "bound of norm2"),
        (lambda x, t: bo.norm2(x) <= np.nan, ValueError, "bound of norm2"),
        (lambda x, t: bo.soft(bo.norm2(x) <= t), TypeError, "soft takes a constraint"),
        (lambda x, t: bool(bo.norm2(x) <= t), TypeError, "truth value"),
    ],
)
def test_what_is_not_convex_is_refused_with_the_rule(write, error, message):
    x, t = bo.Variable(3), bo.Variable()
    with pytest.raises(error, match=message):
        write(x, t)


def test_routes_without_cones_say_so():
    X, held = beside()
    x = bo.Variable(2)
    problem = bo.Problem(bo.Minimize(bo.trace(X) + bo.sum(x)), [bo.norm2(x) <= 1, *held])
    with pytest.raises(bo.UnsupportedProblemError, match="second-order cones"):
        problem.solve("psdboost")
    with pytest.raises(ValueError, match="second-order cones"):
        bo.write_sdpa(problem, "never.dat-s")


def test_reductions_keep_cones():
    x, xi, t = bo.Variable(2, name="x"), bo.Variable(nonneg=True, name="xi"), bo.Variable(name="t")
    X, held = beside()
    rows = [bo.norm2(x) <= t, X[0, 1] + xi >= 2, t >= 1, x[0] >= 0.5, *held]
    problem = bo.Problem(bo.Minimize(bo.trace(X) + 3 * xi + t), rows)
    program = problem.program()
    presolved = presolve(program, ("boxes", "slacks"), Settings())
    assert presolved.program.k == program.k - 1  # xi is folded; bounds of variables in cones stay rows
    assert presolved.program.m == program.m
    inner = presolved.program
    kept = [name for name, size in program.columns for _ in range(size) if name != "xi"]
    assert [kept[j] for j in inner.cones.index] == ["t", "x", "x"]
    assert problem.solve(tol=1e-8).value == pytest.approx(5, rel=1e-6)


# --- CVXPY --------------------------------------------------------------------------------------------


def cvxpy_problems():
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(12, 9)), rng.normal(size=12)
    G = rng.normal(size=(9, 9))
    S = [(M + M.T) for M in rng.normal(size=(4, 5, 5))]
    F, x, X = cp.Variable((3, 3)), cp.Variable(3), cp.Variable((4, 4), PSD=True)
    v = cp.vec(F, order="F")
    pencil = S[0] + sum(x[i] * S[i + 1] for i in range(3))
    return {
        "nuclear": (cp.Minimize(cp.sum_squares(A @ v - b) + cp.normNuc(F)), []),
        "spectral": (cp.Minimize(cp.norm(A @ v - b) + cp.sigma_max(F)), [cp.norm(v) <= 2]),
        "form": (cp.Minimize(cp.quad_form(v, G @ G.T) + cp.lambda_max(pencil) - x[0]), [F[0] == x]),
        "ratio": (cp.Minimize(cp.quad_over_lin(X[0] - 1, X[1, 1] + 1) + cp.trace(X)), [X[1, 1] <= 2]),
        "rows": (cp.Minimize(cp.sum(cp.norm(X - 1, axis=1)) + cp.max(X)), [cp.trace(X) == 3]),
        "cones": (cp.Minimize(cp.trace(X)), [cp.SOC(X[0, :2], X[1:3, :2] - 1), cp.norm_inf(x) <= X[0, 1]]),
    }


@pytest.mark.parametrize("name", cvxpy_problems())
@pytest.mark.parametrize(
    "options", [{"method": "bregopt", "strict": True, "tol": 1e-7}, {"solver": "BREGOPT"}]
)
def test_both_hooks_agree_with_clarabel(name, options):
    problem = cp.Problem(*cvxpy_problems()[name])
    peer = peers.ask(cp.Problem(*cvxpy_problems()[name]))
    problem.solve(**options)
    assert problem.status == "optimal"
    extra = problem.solver_stats.extra_stats
    assert (extra["route"] if isinstance(extra, dict) else extra.solver) == "path"
    error = extra["error"] if isinstance(extra, dict) else extra.error
    peer.agrees(problem.value, error + 1e-7)


def inequalities(seed, rows=1.0, bounds=1.0, costs=1.0):
    """A matrix inequality, a cone and linear rows, with interiors on both sides, and scaled data."""
    rng = np.random.default_rng(seed)
    n, k, q, p = (int(rng.integers(2, 6)) for _ in range(4))
    F, x0 = rng.normal(size=(k, n, n)), rng.normal(size=k)
    F, B, Y = F + F.transpose(0, 2, 1), rng.normal(size=(n, n)), rng.normal(size=(n, n))
    F_0 = B @ B.T + 0.1 * np.eye(n) - np.tensordot(x0, F, 1)
    G, h, g, w = rng.normal(size=(q, k)), rng.normal(size=q), rng.normal(size=k), rng.normal(size=q)
    radius = np.linalg.norm(G @ x0 + h) - g @ x0 + rng.random()
    A = rng.normal(size=(p, k))
    b = A @ x0 + rng.random(p)
    c = np.tensordot(F, Y @ Y.T, 2) + (np.linalg.norm(w) + rng.random()) * g + G.T @ w - A.T @ rng.random(p)
    x, s = cp.Variable(k), rows * bounds
    matrix = s * F_0 + sum(x[i] * (rows * F[i]) for i in range(k))
    cone = cp.SOC((rows * g) @ x + s * radius, (rows * G) @ x + s * h)
    return cp.Problem(cp.Minimize((costs * c) @ x), [matrix >> 0, cone, (rows * A) @ x <= s * b])


@pytest.mark.parametrize(
    ("seeds", "options"),
    turns(
        [range(2), pytest.param(range(2, 10), marks=pytest.mark.slow)],
        [{"method": "bregopt", "solver": "path"}, {"solver": "BREGOPT"}],
    ),
)
def test_scaled_inequalities_have_the_same_answer(options, seeds):
    """With rows times 1e6 a fifth ended inaccurate: the scale of X depended on the units of variables."""
    for seed in seeds:
        plain = inequalities(seed)
        plain.solve(**options)
        assert plain.status == "optimal"
        for data, factor in itertools.product(["rows", "bounds", "costs"], [1e-6, 1e6]):
            scaled = inequalities(seed, **{data: factor})
            scaled.solve(**options)
            assert scaled.status == "optimal"
            expected = plain.value * (1.0 if data == "rows" else factor)
            size = max(abs(expected), 1e-2 * factor if data != "rows" else 1e-2)
            assert scaled.value == pytest.approx(expected, abs=1e-4 * size)


@pytest.mark.parametrize("seed", SEEDS)
def test_units_of_variables_do_not_change_the_scales(seed):
    program = bo.from_cvxpy(inequalities(seed)).program()
    units = 10.0 ** np.random.default_rng(seed).integers(-6, 7, size=program.k)
    units[program.cones.index] = 1.0
    other = replace(
        program,
        B=sp.csr_array(program.B @ sp.diags_array(units)),
        c=program.c * units,
        u_lo=program.u_lo / units,
        u_hi=program.u_hi / units,
    )
    assert scale_of(other).primal == pytest.approx(scale_of(program).primal, rel=1e-12)
    assert scale_of(other).dual == pytest.approx(scale_of(program).dual, rel=1e-12)
    np.testing.assert_allclose(other.row_units, program.row_units, rtol=1e-12)


def test_variables_that_are_entries_of_an_affine_matrix_are_no_free_variables():
    def make():
        A, U, V = (
            cp.Variable((2, 3)),
            cp.Variable((2, 2), symmetric=True),
            cp.Variable((3, 3), symmetric=True),
        )
        x, S = cp.Variable(2), cp.bmat([[2 * U - np.eye(2), A], [A.T, V]])
        rows = [S >> 0, A[0] == [1, 2, 3], cp.norm(A[1] - 1) <= x[0], U[0, 1] + x[1] == 0.5, V[0, 0] <= 4]
        return cp.Problem(cp.Minimize(cp.trace(U) + cp.trace(V) + cp.sum(x) + cp.square(x[1])), rows)

    ours, theirs = make(), make()
    ours.solve(method="bregopt", strict=True, tol=1e-9)
    theirs.solve(solver="CLARABEL")
    assert ours.value == pytest.approx(theirs.value, rel=1e-7)
    for mine, other in zip(ours.variables(), theirs.variables(), strict=True):
        np.testing.assert_allclose(mine.value, other.value, atol=1e-4)
    for c, other in zip(ours.constraints, theirs.constraints, strict=True):
        np.testing.assert_allclose(c.dual_value, other.dual_value, atol=1e-4)
    program = bo.from_cvxpy(make()).program()
    assert program.k == 6  # x, the norm, and the elements of its cone that are no variables


@pytest.mark.parametrize("axis", [0, 1])
def test_duals_of_cones_have_cvxpys_form(axis):
    def make():
        X, t = cp.Variable((3, 3), PSD=True), cp.Variable(2)
        tails = cp.hstack([X[:2].T, np.ones((3, 1))])[:, :2] if axis == 0 else X[:2]
        rows = [cp.SOC(t, tails, axis=axis), cp.norm(X[2] - 1) <= 0.5, X[0, 1] >= 1]
        return cp.Problem(cp.Minimize(cp.sum(t) + cp.trace(X)), rows)

    ours, theirs = make(), make()
    ours.solve(method="bregopt", strict=True, tol=1e-8)
    theirs.solve(solver="CLARABEL")
    for c, other in zip(ours.constraints, theirs.constraints, strict=True):
        for a, b in zip(parts_of_dual(c), parts_of_dual(other), strict=True):
            np.testing.assert_allclose(np.squeeze(a), np.squeeze(b), atol=1e-4)


def parts_of_dual(constraint):
    value = constraint.dual_value
    return value if isinstance(value, list) else [value]


# --- Coordinates of cones -----------------------------------------------------------------------------


def test_better_coordinates_keep_cones_and_inner_products(rng):
    slopes = rng.normal(size=(3, 4))  # of cones (1 + t, 1 - t, v, -v, w), (t - 1, t + 3, v) and (t, v, w)
    t, v, w = np.c_[slopes, [0.0, 40.0, 50.0]]
    one = np.r_[np.zeros(4), 1.0]
    rows = sp.csr_array(np.array([one + t, one - t, v, -v, w, t - one, t + 3 * one, v, t, v, w]))
    dimensions = np.array([5, 3, 3])
    found = coordinates_of(rows, dimensions)
    assert found.dimensions.tolist() == [4, 3, 3]
    given, new = cones_of(dimensions), cones_of(found.dimensions)
    changed = found.back @ rows
    # 1 + t and 1 - t become r + t / r and r - t / r with r > 1; the constant of t - 1 and t + 3 is negative.
    q, sums = (changed[[0]] + changed[[1]]).toarray()[0], (changed[[0]] - changed[[1]]).toarray()[0]
    np.testing.assert_allclose(q, q[-1] * one, atol=1e-12)
    assert q[-1] > 8
    np.testing.assert_allclose(sums[:-1] * q[-1], 4 * slopes[0], atol=1e-12)
    assert (changed[4:].toarray() == rows[5:].toarray()).all()
    for _ in range(20):
        x, z = rng.normal(size=5), rng.normal(size=new.size)
        x[-1] = 1.0
        s, own = rows @ x, changed @ x
        for a, b in zip(parts(given, s), parts(new, own), strict=True):
            assert np.isclose(a[0] ** 2 - a[1:] @ a[1:], b[0] ** 2 - b[1:] @ b[1:], rtol=1e-9)
            assert (a[0] > 0) == (b[0] > 0) or a[0] ** 2 < a[1:] @ a[1:]
        assert np.isclose(s @ (found.S @ z), own @ z, rtol=1e-9, atol=1e-9)
        z = new.raised(z, new.outside(z))
        assert (given.least_eigenvalues(found.S @ z) >= -1e-9).all()


@pytest.mark.parametrize(("how", "n"), turns(["language", "method", "solver"], [4, 60]))
def test_squares_below_a_variable_are_those_in_the_objective(n, how, rng):
    """``min t`` with ``||X - A||^2 <= t`` is a projection on unit diagonals; the dual of its row is one."""
    A = rng.uniform(-1, 1, (n, n))
    A = (A + A.T) / 2
    np.fill_diagonal(A, 1.0)
    known = bo.nearest_correlation(A, tol=1e-10)
    if how == "language":
        X, t = bo.PSD(n), bo.Variable()
        row = bo.sum_squares(X - A) <= t
        problem = bo.Problem(bo.Minimize(t), [bo.diag(X) == 1, row])
        problem.solve(tol=1e-8)
    else:
        X, t = cp.Variable((n, n), PSD=True), cp.Variable()
        row = cp.sum_squares(X - A) <= t
        problem = cp.Problem(cp.Minimize(t), [cp.diag(X) == 1, row])
        problem.solve(**({"method": "bregopt", "tol": 1e-8} if how == "method" else {"solver": "BREGOPT"}))
        assert problem.status == "optimal"
    square = float(np.sum((known.X - A) ** 2))
    assert np.isclose(float(t.value), square, rtol=1e-6)
    assert np.isclose(row.dual_value, 1.0, rtol=1e-5)
