"""Many rows: derivatives, known theta numbers, feasible answers, statuses, and when the route is chosen."""

import itertools
import tracemalloc

import cvxpy as cp
import networkx as nx
import numpy as np
import peers
import pytest
import scipy.sparse.linalg
from samples import first

import bregopt as bo
from bregopt.presolve import presolve
from bregopt.program import Face
from bregopt.records import replace
from bregopt.rigorous import faces
from bregopt.routes import routing
from bregopt.routes.augmented_lagrangian import route, standard_form
from bregopt.routes.augmented_lagrangian.alternating_directions import _Steps
from bregopt.routes.augmented_lagrangian.standard_form import StandardForm
from bregopt.routes.base import Settings
from bregopt.routes.ipm import path_route


def theta(graph, *more):
    n = len(graph)
    i, j = np.array(graph.edges).T
    X = bo.PSD(n, name="X")
    rows = [bo.trace(X) == 1, X[i, j] == 0, *(row(X) for row in more)]
    return bo.Problem(bo.Maximize(bo.quad_form(np.ones(n), X)), rows)


def random_problem(seed, rows=8, unit=1.0):
    """Return a problem with two matrices, variables, rows of each kind, squares, and for odd seeds cones."""
    rng = np.random.default_rng(seed)

    def symmetric(n):
        A = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.5)
        return A + A.T

    X, Y = bo.PSD(int(rng.integers(2, 6)), name="X"), bo.PSD(int(rng.integers(2, 6)), name="Y")
    u = bo.Variable(3, name="u")
    roots = [rng.normal(size=(M.shape[0], int(rng.integers(1, M.shape[0] + 1)))) for M in (X, Y)]
    inside, u0 = [R @ R.T for R in roots], np.array([rng.normal(), rng.random(), rng.random()])
    constraints = [bo.trace(M) <= 1.5 * unit * np.trace(M0) for M, M0 in zip((X, Y), inside, strict=True)]
    constraints += [u[1] >= 0, u[2] <= 2 * unit, u >= -9 * unit, u <= 9 * unit]
    if seed % 2:
        constraints += [
            bo.norm2(u - unit * u0) <= unit,
            bo.norm2(X[0] - unit * inside[0][0]) <= unit * rng.random(),
        ]
    for k in range(rows):
        A, B, b = symmetric(X.shape[0]), symmetric(Y.shape[0]), rng.normal(size=3)
        row = bo.inner(A, X) + bo.inner(B, Y) + b @ u
        at = unit * (np.vdot(A, inside[0]) + np.vdot(B, inside[1]) + b @ u0)
        slack = unit * rng.random()
        own = ([row == at], [row <= at + slack], [row >= at - slack], [row <= at + slack, row >= at - slack])
        constraints += own[k % 4]
    cost = bo.inner(symmetric(X.shape[0]), X) + bo.inner(symmetric(Y.shape[0]), Y) + rng.normal(size=3) @ u
    off = bo.hstack([bo.inner(symmetric(X.shape[0]), X) - unit, bo.inner(symmetric(Y.shape[0]), Y) + u[0]])
    cost += bo.sum_squares(off) / unit
    return bo.Problem(bo.Minimize(cost), constraints)


def test_extrapolation_finds_the_fixed_point_of_an_affine_map():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    M, fixed = basis @ np.diag([0.999, 0.99, -0.9, 0.5]) @ basis.T, rng.normal(size=4)
    steps, start = _Steps(4), np.zeros(4)
    for _ in range(20):
        start = steps.next(start, fixed + M @ (start - fixed))
    np.testing.assert_allclose(start, fixed, atol=1e-6)  # 20 steps alone leave 0.98 of the error


def test_extrapolations_that_are_worse_are_taken_back():
    steps, points = _Steps(1), [np.array([0.0])]
    for k in range(4):  # steps of length one, half, a third ...
        points.append(points[-1] + 1 / (k + 1))
        assert steps.next(points[-2], points[-1]) is points[-1]
    far = steps.next(points[-1], points[-1] + 0.2)
    assert far > points[-1] + 0.2
    np.testing.assert_array_equal(steps.next(far, far + 9), points[-1] + 0.2)


def test_equal_steps_are_not_extrapolated_far():
    """Their changes are round-off, whose combinations could be any point."""
    rng, move = np.random.default_rng(0), np.array([1.0, -2.0, 0.5])
    steps, start = _Steps(3), np.zeros(3)
    for _ in range(20):
        end = start + move * (1 + 1e-15 * rng.normal(size=3))
        start = steps.next(start, end)
        assert np.linalg.norm(start - end) <= 1e3 * np.linalg.norm(move)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_point_on_trial_is_not_kept_when_the_penalty_changes(monkeypatch, seed):
    """The worst-case risk of a portfolio took 900 steps, and then `path`, after a trial that failed."""
    monkeypatch.setattr(route, "_PATH_FLOPS", 0.0)  # no other route answers
    n, rng = 60, np.random.default_rng(seed)
    F, w, X = rng.normal(size=(n, n)), rng.dirichlet(np.ones(n)), bo.PSD(n)
    S = F @ F.T / n
    size = 0.1 * np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    sol = bo.Problem(bo.Maximize(bo.quad_form(w, X)), [X - S <= size, S - X <= size]).solve(tol=1e-6)
    assert (sol.status, sol.solver) == ("optimal", "lagrangian")
    assert sol.iterations <= 60
    largest = w @ (S + size) @ w  # the largest entries are a psd matrix
    assert sol.value == pytest.approx(largest, rel=2e-6)
    assert sol.dual_value >= largest * (1 - 1e-12)


@pytest.mark.parametrize("on_faces", [False, True], ids=["cone", "face"])
@pytest.mark.parametrize("seed", range(4))
def test_nearest_points_have_no_nearer_one(seed, on_faces):
    """Obtuse angles (Kolmogorov), with the subgradients of prices."""
    rng = np.random.default_rng(seed)
    program = random_problem(seed).program()
    if on_faces:
        faces = (Face(rng.normal(size=(block.n, 1))) for block in program.blocks)
        blocks = tuple(replace(b, face=face) for b, face in zip(program.blocks, faces, strict=True))
        program = replace(program, blocks=blocks)
    form = StandardForm(program)
    form.price *= rng.random(len(form.price)) + 0.1  # infinite where the bounds are hard
    form.price[form.price == 0] = 0.5
    w, s = rng.normal(size=len(form.c)), 0.7

    def paid(x):
        v = x[form.entries :]
        far = np.maximum(np.maximum(form.lo - v, v - form.hi), 0.0)
        soft = np.isfinite(form.price)
        return s * float(far[soft] @ (form.price + form.weight * far)[soft])

    x = form.nearest(w, s)
    at = np.sum((x - w) ** 2) / 2 + paid(x)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):  # other points in the cones
            other = form.nearest(x + size * rng.normal(size=len(w)), 1e-12)
            assert np.sum((other - w) ** 2) / 2 + paid(other) >= at - 1e-12 * (1 + at)
    np.testing.assert_allclose(form.nearest(x, 1e-12), x, atol=1e-12)


# Theta of the complement of a graph whose automorphisms move each vertex to each other one is n / theta.
@pytest.mark.parametrize(
    ("graph", "value"),
    [
        (nx.cycle_graph(5), np.sqrt(5)),
        (nx.cycle_graph(31), 31 * np.cos(np.pi / 31) / (1 + np.cos(np.pi / 31))),
        (nx.complement(nx.cycle_graph(31)), (1 + np.cos(np.pi / 31)) / np.cos(np.pi / 31)),
        (nx.petersen_graph(), 4.0),
        (nx.convert_node_labels_to_integers(nx.complement(nx.line_graph(nx.complete_graph(7)))), 6.0),
    ],
    ids=["pentagon", "cycle", "complement", "Petersen", "Kneser"],
)
def test_theta_has_its_closed_form(graph, value):
    sol = theta(graph).solve(solver="lagrangian", tol=1e-7)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(value, rel=2e-7)
    assert sol.dual_value >= value * (1 - 1e-12)
    i, j = np.array(graph.edges).T
    assert np.linalg.eigvalsh(sol.X)[0] >= -1e-12
    assert np.abs(sol.X[i, j]).max() <= 1e-7 / len(graph)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_all_kinds_of_rows_and_variables_agree_with_the_reference(seed, unit):
    sol = random_problem(seed, unit=unit).solve(solver="lagrangian")
    assert sol.status == "optimal"
    reference = peers.reference(random_problem(seed), within=1e-5)
    assert sol.value / unit == pytest.approx(reference.value, rel=2e-5, abs=2e-5)


def test_nonnegative_matrices_have_schrijvers_theta():
    graph = nx.gnp_random_graph(15, 0.4, seed=1)
    sol, other = (theta(graph, lambda X: X >= 0).solve(solver=name) for name in ("lagrangian", "path"))
    assert sol.status == other.status == "optimal"
    assert max(sol.value, other.value) <= min(sol.dual_value, other.dual_value) + 1e-7
    assert sol.value < theta(graph).solve(solver="path").value - 1e-4
    assert sol.X.min() >= -1e-8


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(2))
def test_bounds_on_entries_are_priced_by_their_rows(seed, unit):
    """Bounds from both sides, as multiples of a mirrored entry, two on one entry, and beside sums."""
    n, rng = 10, np.random.default_rng(seed)
    X, C, (i, j) = bo.PSD(n, name="X"), rng.normal(size=(n, n)), np.triu_indices(n, 1)
    rows = [bo.diag(X) == unit, X[i[:20], j[:20]] >= -0.1 * unit, -3 * X[j[10:30], i[10:30]] >= -0.6 * unit]
    rows += [bo.abs(2 * X[i[30:], j[30:]] - 0.1 * unit) <= 0.5 * unit, X[0, 1] - X[2, 3] <= 0.1 * unit]
    rows += [X[0] @ np.ones(n) >= 0.5 * unit]
    problem = bo.Problem(bo.Maximize(bo.inner(C + C.T, X)), rows)
    sol = problem.solve(solver="lagrangian", tol=1e-6)
    reference = peers.reference(problem, within=1e-5).value
    assert sol.status == "optimal"
    assert sol.value <= reference + 2e-5 * abs(reference)
    assert sol.dual_value >= reference - 2e-5 * abs(reference)
    assert sol.dual_value - sol.value <= 1.1e-6 * abs(reference)
    acting = np.abs(sol.X[i, j] / unit + 0.1) < 1e-5
    assert acting[:20].any()
    assert (np.abs(sol.X[i, j] / unit - 0.2) < 1e-5)[10:30].any()


def test_rows_of_sums_and_bounds_on_entries_take_memory_of_their_terms():
    n = 120
    X = bo.PSD(n, name="X")
    rows = [X @ np.ones(n) == 1, bo.trace(X) == 5, X >= 0]
    program = bo.Problem(bo.Minimize(bo.inner(np.diag(np.arange(n) * 1.0), X)), rows).program()
    tracemalloc.start()
    try:
        reduced = presolve(program, ("parallel rows", "faces"), Settings()).program
        StandardForm(reduced)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reduced.m == n + 1 + n * (n + 1) // 2
    assert peak < 8 * n**3 / 2  # one dense table of the sums


def form_of_ones(X):
    return bo.quad_form(np.ones(X.shape[0]), X)


def assignment(flow, distance, total=bo.sum):
    """Return the relaxation of Povh and Rendl (2009) of a quadratic assignment, and the least cost."""
    n = len(flow)
    Y = bo.PSD(n * n, name="Y")
    blocks = [[Y[i * n : (i + 1) * n, j * n : (j + 1) * n] for j in range(n)] for i in range(n)]
    rows = [sum(blocks[i][i] for i in range(n)) == np.eye(n), total(Y) == n * n, Y >= 0]
    rows += [bo.trace(blocks[i][j]) == float(i == j) for i in range(n) for j in range(i + 1)]
    orders = itertools.permutations(range(n)) if n < 7 else []
    least = min((np.sum(flow * distance[np.ix_(p, p)]) for p in orders), default=np.inf)
    return bo.Problem(bo.Minimize(bo.inner(np.kron(flow, distance), Y)), rows), least


def flows(n, rng):
    upper = np.triu(rng.integers(0, 6, (n, n)), 1)
    return upper + upper.T


def taxicab(at):
    return np.abs(at[:, None] - at[None]).sum(axis=2)


@pytest.mark.parametrize("seed", range(3))
def test_quadratic_assignments_end_where_rows_keep_the_matrix_singular(monkeypatch, seed):
    """Most of the diagonal vanishes at a permutation, and with it the size of rows."""
    monkeypatch.setattr(route, "_PATH_FLOPS", 0.0)  # no other route answers
    rng = np.random.default_rng(seed)
    problem, least = assignment(flows(5, rng), taxicab(rng.integers(0, 6, (5, 2))))
    sol = problem.solve(solver="lagrangian", tol=1e-6)
    assert sol.status == "optimal"
    assert sol.value <= least * (1 + 2e-6)
    assert problem.solve(solver="path", tol=1e-6).value == pytest.approx(sol.value, rel=3e-6)


@pytest.mark.parametrize(("n", "total"), [(4, bo.sum), (6, form_of_ones), (9, bo.sum)])
def test_quadratic_assignments_are_on_the_face_of_their_tables(n, total):
    """Rows and columns of a table with equal sums are (n - 1)^2 + 1 dimensions (Zhao and others, 1998)."""
    rng = np.random.default_rng(n)
    problem, _ = assignment(flows(n, rng), taxicab(rng.integers(0, 6, (n, 2))), total)
    reductions = route.Lagrangian.capabilities.reductions
    before = presolve(problem.program(), set(reductions) - {"sparse integer faces"}, Settings()).program
    (face,) = presolve(before, ("sparse integer faces",), Settings()).steps
    assert face.program.m == before.m
    entries = n**2 * (n - 1)  # that are zero, besides n + n sums of diagonals and the sum of all
    assert np.count_nonzero(before.bounds.equal) == entries + 2 * n + 1
    assert [own.order for own in face.program.faces] == [(n - 1) ** 2 + 1]
    shared = face.program.faces[0].basis.reshape(n, n, -1)
    assert np.ptp(shared.sum(axis=0), axis=0).max() <= 1e-12
    assert np.ptp(shared.sum(axis=1), axis=0).max() <= 1e-12


@pytest.mark.parametrize(("seed", "unit"), first(2, [(2, 1e-5), (2, 1e5), (2, 1.0), (3, 1e-5)]))
def test_quadratic_assignments_beyond_their_relaxation_end_on_the_face(monkeypatch, seed, unit):
    """On a grid of two by three the least permutation costs more than the relaxation."""
    monkeypatch.setattr(route, "_PATH_FLOPS", 0.0)  # no other route answers
    at = np.array(list(itertools.product(range(2), range(3))))
    problem, least = assignment(unit * flows(6, np.random.default_rng(seed)), taxicab(at))
    sol = problem.solve(solver="lagrangian", tol=1e-6)
    assert sol.status == "optimal"
    other = problem.solve(solver="path", tol=1e-5)
    assert other.value == pytest.approx(sol.value, rel=1e-5)
    assert sol.bound <= other.value * (1 + 1e-5)
    assert sol.value < 0.999 * least


def test_faces_of_very_many_rows_are_used_without_their_relations(monkeypatch):
    monkeypatch.setattr(faces, "_LARGEST_RELATED", 0)
    monkeypatch.setattr(route, "_PATH_FLOPS", 0.0)  # no other route answers
    at = np.array(list(itertools.product(range(2), range(3))))
    problem, least = assignment(flows(6, np.random.default_rng(2)), taxicab(at))
    sol = problem.solve(solver="lagrangian", tol=1e-4)
    assert sol.status == "optimal"
    assert 75.74 < sol.bound <= sol.value < 75.76 < least  # 303 / 4


def test_contradictions_and_rays_are_proven():
    X, u = bo.PSD(4, name="X"), bo.Variable(2, name="u")
    cost = bo.Minimize(X[0, 1] + u[0])
    apart = bo.Problem(cost, [bo.trace(X) == 1, X[0, 1] >= 0.3, X[0, 0] <= 0.2, X[1, 1] <= 0.3, u >= 0])
    assert apart.solve(solver="lagrangian").status == "infeasible"
    falling = bo.Problem(cost, [bo.trace(X) == 1, u[0] + u[1] == X[1, 1], u[1] >= 0])
    assert falling.solve(solver="lagrangian").status == "unbounded"


@pytest.mark.parametrize("seed", range(3))
def test_cuts_in_halves_are_solved_on_their_face(seed):
    A = nx.to_numpy_array(nx.gnp_random_graph(20, 0.3, seed=seed))
    X = bo.PSD(20, name="X")
    cut = bo.Problem(bo.Minimize(bo.inner(np.diag(A.sum(0)) - A, X) / 4), [bo.diag(X) == 1, bo.sum(X) == 0])
    sol, other = cut.solve(solver="lagrangian", tol=1e-7), cut.solve(solver="path", tol=1e-7)
    assert sol.status == other.status == "optimal"
    assert max(sol.dual_value, other.dual_value) <= min(sol.value, other.value) + 1e-6
    assert np.abs(sol.X @ np.ones(20)).max() <= 1e-12


def test_distances_know_no_origin():
    """The face of centered matrices has the optimum of the cone in which the last point is the origin."""
    n, rng = 12, np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    D = np.sum((x[:, None] - x[None]) ** 2, axis=2) * (1 + 0.2 * rng.random((n, n)))
    t = bo.Variable()

    def near(X, order):
        (i, j), d = np.triu_indices(order, 1), bo.diag(X)
        return bo.abs(d[i] + d[j] - 2 * X[i, j] - D[i, j]) <= t

    G, M = bo.PSD(n, name="G"), bo.PSD(n - 1, name="M")
    problem = bo.Problem(bo.Minimize(t), [near(G, n)])
    other = bo.Problem(bo.Minimize(t), [near(M, n - 1), bo.abs(bo.diag(M) - D[:-1, -1]) <= t])
    sol, at_origin = problem.solve(solver="lagrangian"), other.solve(solver="path")
    assert sol.status == at_origin.status == "optimal"
    assert max(sol.dual_value, at_origin.dual_value) <= min(sol.value, at_origin.value) + 1e-9
    assert np.abs(sol.X @ np.ones(n)).max() <= 1e-9


def test_the_route_is_chosen_by_the_work_on_the_rows():
    chosen = {
        p: routing.choose(theta(nx.gnp_random_graph(200, p, seed=0)).program(), "auto", {}).name
        for p in (0.02, 0.5)
    }
    assert chosen == {0.02: "path", 0.5: "lagrangian"}


@pytest.mark.parametrize(("n", "chosen"), [(28, "path"), (40, "lagrangian")])
def test_the_route_does_not_depend_on_how_single_variables_are_bounded(n, chosen):
    """The portfolio of the least worst-case variance, with bounds as rows or as boxes."""
    A, w = np.random.default_rng(n).normal(size=(n, 2 * n)), cp.Variable((n, 1))
    U, L = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    rows = [cp.bmat([[U - L, w], [w.T, np.eye(1)]]) >> 0, U >= 0, L >= 0, cp.sum(w) == 1, w >= 0]
    risk = cp.sum(cp.multiply(1.1 * A @ A.T, U)) - cp.sum(cp.multiply(0.9 * A @ A.T, L))
    program = bo.from_cvxpy(cp.Problem(cp.Minimize(risk), rows)).program()
    boxed = presolve(program, ("boxes",), Settings()).program
    assert boxed.m < program.m - n * n
    assert [routing.choose(form, "auto", {}).name for form in (program, boxed)] == 2 * [chosen]


def test_dense_rows_of_variables_stay_with_path():
    """A matrix inequality in its entries, with rows that hold few or all of them, as phase retrieval has."""
    (i, j), rng = np.triu_indices(60), np.random.default_rng(0)
    X, x = bo.PSD(60, name="X"), bo.Variable(len(i), name="x")
    chosen = []
    for rows in (np.eye(240, len(i)), rng.normal(size=(240, len(i)))):
        definite = np.where(i == j, 2.0, 1.0)
        constraints = [X[i, j] == x, x >= -1, rows @ x == rows @ definite]
        problem = bo.Problem(bo.Minimize(bo.trace(X)), constraints)
        chosen.append(routing.choose(problem.program(), "auto", {}).name)
    assert chosen == ["lagrangian", "path"]


@pytest.mark.parametrize("seed", range(3))
def test_the_gram_matrix_is_inverted_beside_variables_of_all_rows(seed):
    rng = np.random.default_rng(seed)
    n = 7
    X, t, u = bo.PSD(n), bo.Variable(), bo.Variable(4)
    A, B, i = rng.normal(size=(n, n)), rng.normal(size=(n * n, 4)), rng.integers(0, n, (2, 30))
    rows = [X - A <= t, A - X <= t + B.reshape(n, n, 4)[:, :, 0] * u[0], X[i[0], i[1]] == bo.sum(u)]
    form = StandardForm(bo.Problem(bo.Minimize(t + bo.sum(u)), [*rows, u >= 0]).program())
    assert (np.diff(form.matrix.tocsc().indptr) > 0.1 * form.m).any()

    def gram(y):
        return form.activity(form.adjoint(y))

    right = gram(rng.normal(size=form.m))  # rows of one entry may be stated twice
    np.testing.assert_allclose(gram(form.gram_solve(right)), right, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n", [6, 20])
def test_hinges_at_one_number_pay_on_both_sides(n):
    rng = np.random.default_rng(n)
    F, X = rng.normal(size=(2 * n, n)), bo.PSD(n)
    covariance = F.T @ F / (2 * n)
    sparse = bo.Problem(bo.Maximize(bo.inner(covariance, X) - 0.5 * bo.norm1(X)), [bo.trace(X) == 1])
    sol = sparse.solve(solver="lagrangian", tol=1e-7)
    assert sol.status == "optimal"
    assert sol.value == pytest.approx(peers.reference(sparse, within=1e-6).value, rel=1e-5)
    assert sol.value == pytest.approx(np.vdot(covariance, sol.X) - 0.5 * np.abs(sol.X).sum(), rel=1e-6)


def test_an_entry_bounded_everywhere_goes_to_the_route_that_solves_it_at_once():
    rng = np.random.default_rng(2)
    n = 60
    F, w, X = rng.normal(size=(n, n)), rng.dirichlet(np.ones(n)), bo.PSD(n)
    S = F @ F.T / n
    size = 0.1 * np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    sol = bo.Problem(bo.Maximize(bo.quad_form(w, X)), [X - S <= size, S - X <= size]).solve(tol=1e-8)
    assert (sol.solver, sol.status) == ("lagrangian", "optimal")
    assert sol.value == pytest.approx(w @ (S + size) @ w, rel=1e-8)  # S + size is psd, and the largest


@pytest.mark.parametrize("n", [20, 50])
def test_answers_are_feasible_so_that_their_value_is_proven_at_once(n):
    rng = np.random.default_rng(n)
    W, C, X = rng.normal(size=(n, n // 2)), rng.normal(size=(n, n)), bo.PSD(n)
    A = W @ W.T / n  # singular, so that few points within its intervals are psd
    near = [X - A <= 0.1, A - X <= 0.1]
    sol = bo.Problem(bo.Minimize(bo.inner(C @ C.T, X)), near).solve(solver="lagrangian", tol=1e-7)
    assert sol.status == "optimal"
    assert np.abs(sol.X - A).max() <= 0.1
    assert np.linalg.eigvalsh(sol.X)[0] > 0
    proof = sol.verify()
    assert proof.solves == 0
    assert proof.relative_width <= 1e-7


@pytest.mark.parametrize("n", [6, 60])
def test_squares_of_all_distances_have_their_optimality_conditions(n):
    rng = np.random.default_rng(n)
    D, (i, j), G = 9 * rng.random((n, n)), np.triu_indices(n, 1), bo.PSD(n, name="G")
    d = bo.diag(G)
    problem = bo.Problem(
        bo.Minimize(bo.sum_squares(d[i] + d[j] - 2 * G[i, j] - D[i, j])), [G @ np.ones(n) == 0]
    )
    assert n == 6 or routing.choose(problem.program(), "auto", {}).name == "lagrangian"
    sol = problem.solve(solver="lagrangian", tol=1e-9)
    assert sol.status == "optimal"
    X, W = sol.X, np.zeros((n, n))
    W[i, j] = 2 * (X.diagonal()[i] + X.diagonal()[j] - 2 * X[i, j] - D[i, j])
    W += W.T
    slope = np.diag(W.sum(axis=1)) - W  # of the objective, on the centered matrices
    assert abs(np.vdot(slope, X)) <= 1e-6 * sol.value
    assert np.linalg.eigvalsh(slope)[0] >= -1e-3 * np.abs(slope).max()


def test_huber_losses_of_all_entries_go_to_the_route():
    rng = np.random.default_rng(5)
    n = 40
    A, X = 3 * rng.normal(size=(n, n)), cp.Variable((n, n), PSD=True)
    A = A + A.T
    problem = cp.Problem(cp.Minimize(cp.sum(cp.huber(X - A))), [cp.diag(X) == 1])
    problem.solve(method="bregopt", tol=1e-7)
    sol = problem.solver_stats.extra_stats
    assert (sol.solver, sol.status) == ("lagrangian", "optimal")
    distance = np.abs(X.value - A)
    loss = np.where(distance <= 1, distance**2, 2 * distance - 1).sum()
    assert problem.value == pytest.approx(loss, rel=1e-6)


def test_the_dual_form_of_few_rows_stays_with_path():
    rng = np.random.default_rng(3)
    n = 60
    F, x, t = rng.normal(size=(6, n, n)), bo.Variable(5), bo.Variable()
    pencil = F[0] + F[0].T
    for k in range(5):
        pencil = pencil + x[k] * (F[k + 1] + F[k + 1].T)
    sol = bo.Problem(bo.Minimize(t), [t * np.eye(n) - pencil >> 0]).solve()
    assert (sol.solver, sol.status) == ("path", "optimal")


@pytest.mark.parametrize(("n", "unit"), [(8, 1.0), (30, 1.0), (30, 1e-6), (30, 1e6)])
def test_the_norm_of_a_deviation_has_the_projection_of_its_square(n, unit):
    rng = np.random.default_rng(n)
    A = rng.uniform(-1, 1, (n, n))
    A = unit * (A + A.T) / 2
    X, near = bo.PSD(n), bo.PSD(n)
    sol = bo.Problem(bo.Minimize(bo.norm2(X - A)), [bo.diag(X) == unit]).solve(solver="lagrangian", tol=1e-8)
    square = bo.Problem(bo.Minimize(bo.frobenius_div(near, A)), [bo.diag(near) == unit]).solve(tol=1e-10)
    assert (sol.solver, sol.status) == ("lagrangian", "optimal")
    assert sol.value == pytest.approx(np.linalg.norm(square.X - A), rel=3e-8)
    np.testing.assert_allclose(sol.X, square.X, atol=1e-3 * unit)


def test_cones_with_bounds_of_their_own_are_refused():
    X, u = bo.PSD(3), bo.Variable(3)
    ball = bo.Problem(bo.Minimize(bo.trace(X) + u[0]), [bo.norm2(u[1:]) <= u[0], X[0, 1] == 1]).program()
    assert routing.takes(ball, "lagrangian", {})
    assert not routing.takes(replace(ball, u_hi=np.full(ball.k, 5.0)), "lagrangian", {})


def test_where_the_method_stalls_the_path_answers():
    X = bo.PSD(2, name="X")
    sol = bo.Problem(bo.Minimize(X[0, 0]), [2 * X[0, 1] == 2]).solve(solver="lagrangian")
    assert sol.status == "optimal"  # of value zero, which no X attains
    assert abs(sol.value) < 1e-6


def test_where_the_path_would_have_been_faster_it_answers(monkeypatch):
    asked = []

    def on_path(*arguments):
        asked.append(arguments)
        return path_route.solve_on_path(*arguments)

    monkeypatch.setattr(route, "solve_on_path", on_path)
    graph, value = nx.cycle_graph(31), 31 * np.cos(np.pi / 31) / (1 + np.cos(np.pi / 31))
    first = theta(graph).solve(solver="lagrangian", tol=1e-9)
    assert not asked
    monkeypatch.setattr(route, "_PATH_STEPS", 0)  # a path that takes no time
    second = theta(graph).solve(solver="lagrangian", tol=1e-9)
    assert len(asked) == 1
    assert first.status == second.status == "optimal"
    assert second.value == pytest.approx(value, rel=2e-9)


def test_linked_inequalities_need_no_factorization(monkeypatch):
    n, rng = 10, np.random.default_rng(2)
    i, j, k = np.array([rng.choice(n, 3, replace=False) for _ in range(120)]).T
    W, X = rng.normal(size=(n, n)), bo.PSD(n, name="X")
    triangles = X[i, j] + X[j, k] - X[i, k] <= 1
    problem = bo.Problem(bo.Minimize(bo.inner(W + W.T, X)), [bo.diag(X) == 1, triangles])
    monkeypatch.setattr(standard_form, "_LARGEST_FILL", 1_000)
    monkeypatch.setattr(scipy.sparse.linalg, "splu", None)
    sol, reference = problem.solve(solver="lagrangian", tol=1e-6), problem.solve(solver="path", tol=1e-8)
    assert sol.status == reference.status == "optimal"
    assert abs(sol.value - reference.value) <= sol.error + reference.error


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_more_iterations_never_lose_the_best_point():
    problem = theta(nx.gnp_random_graph(40, 0.3, seed=2))
    gaps = []
    for steps in (1, 3, 5):
        sol = problem.solve(solver="lagrangian", max_iter=steps, tol=1e-12)
        gaps.append(max(sol.gap, sol.primal_residual))
        assert sol.status == "user_limit"
    assert gaps[0] >= gaps[1] >= gaps[2]


def test_a_warm_start_ends_at_once():
    problem = theta(nx.gnp_random_graph(40, 0.3, seed=3))
    first = problem.solve(solver="lagrangian")
    again = problem.solve(solver="lagrangian", warm_start=True)
    assert again.status == "optimal"
    assert again.iterations < first.iterations


@pytest.mark.parametrize("tol", [1e-3, 1e-4, 1e-5])
def test_rows_that_are_stated_twice_count_twice_in_the_residual(tol):
    # A relaxation of three parts, whose bounds are stated for (i, j) and for (j, i).
    n = 30
    weights = nx.to_numpy_array(nx.gnp_random_graph(n, 0.3, seed=1))
    X = bo.PSD(n)
    problem = bo.Problem(bo.Minimize(bo.inner(weights, X)), [bo.diag(X) == 1, X >= -0.5])
    sol = problem.solve("lagrangian", tol=tol)
    missed = np.concatenate([np.diag(sol.X) - 1, np.minimum(sol.X + 0.5, 0).ravel()])
    assert sol.status == "optimal"
    assert np.linalg.norm(missed) <= tol * (1 + np.linalg.norm(np.r_[np.ones(n), np.full(n * n, 0.5)]))
