"""Cuts of large graphs by X = R R': the answers of `path`, bounds at any multipliers, limits."""

import signal
import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first, turns

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify, lowest, smallest_eigenvalue
from bregopt.program import SparsePlusLowRank, sparse_plus_low_rank
from bregopt.routes.burer_monteiro.lagrangian import Tangent, lagrangian, read_surface
from bregopt.routes.burer_monteiro.trust_region import Blocks, _path


def graph_of(n, edges, weights):
    """Return an adjacency matrix; parallel edges add up, loops are dropped."""
    i, j = np.reshape(np.array(edges, dtype=int), (-1, 2)).T
    kept = i != j
    half = sp.csr_array((np.asarray(weights, dtype=float)[kept], (i[kept], j[kept])), (n, n))
    return sp.csr_array(half + half.T)


def random_graph(n, m, seed, signed=False):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=m) if signed else np.ones(m)
    return graph_of(n, rng.integers(0, n, (m, 2)), weights)


def grid(rows, columns):
    """Return a square mesh, whose Laplacian has many small eigenvalues."""
    path = [sp.diags_array([np.ones(k - 1)] * 2, offsets=[-1, 1], shape=(k, k)) for k in (rows, columns)]
    return sp.csr_array(sp.kronsum(path[1], path[0]))


def laplacian(graph):
    return sp.csr_array(sp.diags_array(np.asarray(graph.sum(axis=1)).ravel()) - graph)


def max_cut(graph):
    X = bo.PSD(graph.shape[0], name="X")
    return bo.Problem(bo.Maximize(bo.inner(laplacian(graph) / 4, X)), [bo.diag(X) == 1])


def balanced(graph, most=None):
    X = bo.PSD(graph.shape[0], name="X")
    size, least = bo.quad_form(np.ones(X.n), X), float(X.n % 2)
    balance = size == least if most is None else bo.between(size, least, most)
    return bo.Problem(bo.Minimize(bo.inner(laplacian(graph) / 4, X)), [bo.diag(X) == 1, balance])


def agree(problem, tol=1e-7, **options):
    """Solve by both routes; as a graph may have no edge, the tolerance is relative to its weights too."""
    low = problem.solve(solver="lowrank", tol=tol, **options)
    path = problem.solve(solver="path", tol=1e-8)
    cost = problem.program().blocks[0].cost
    size = 0.0 if cost is None else float(np.abs(cost.coordinates().value).sum())
    assert low.value == pytest.approx(path.value, abs=1e-5 * max(abs(path.value), 1e-3 * size, 1e-12))
    return low


class TestAgreement:
    @pytest.mark.parametrize(
        "problem",
        [
            lambda: max_cut(random_graph(80, 240, 0)),
            lambda: max_cut(random_graph(120, 360, 1, signed=True)),
            lambda: max_cut(grid(8, 9)),
            lambda: balanced(random_graph(100, 260, 2)),
            lambda: balanced(grid(9, 12)),
            lambda: balanced(grid(7, 9)),  # an odd number of vertices
            lambda: balanced(grid(8, 8), 100.0),
        ],
    )
    def test_with_path(self, problem):
        sol = agree(problem())
        assert sol.status == "optimal"
        assert isinstance(sol.X, bo.LowRank)

    def test_other_rows(self):
        rng = np.random.default_rng(0)
        X = bo.PSD(30)
        i, j = rng.permutation(30).reshape(2, 15)
        rows = [
            bo.diag(X) == rng.uniform(0.5, 2, 30),
            X[i[:5], j[:5]] <= 0.1,
            bo.quad_form(rng.normal(size=30), X) >= 20,
            bo.sq_distance(X, i[6], j[6]) == 1.0,
        ]
        assert agree(
            bo.Problem(bo.Minimize(bo.inner(laplacian(random_graph(30, 90, 3)), X)), rows)
        ).status == ("optimal")

    def test_vertices_that_must_stay_together(self):
        graph = random_graph(40, 120, 4)
        X = bo.PSD(40)
        together = bo.sq_distance(X, [0, 1], [20, 30]) == 0
        problem = bo.Problem(bo.Maximize(bo.inner(laplacian(graph) / 4, X)), [bo.diag(X) == 1, together])
        sol = agree(problem, tol=1e-6)
        assert sol.X[0, 20] == pytest.approx(1, abs=1e-6)

    def test_a_fixed_trace(self):
        X = bo.PSD(25)
        problem = bo.Problem(
            bo.Minimize(bo.inner(laplacian(grid(5, 5)), X)), [bo.trace(X) == 1, X[0, 1] <= 0.01]
        )
        agree(problem)

    @pytest.mark.parametrize("n", [9, 51, 101])
    def test_lovasz_theta_of_a_sparse_graph(self, n):
        cycle = graph_of(n, [(k, (k + 1) % n) for k in range(n)], np.ones(n))
        theta = n * np.cos(np.pi / n) / (1 + np.cos(np.pi / n))  # Lovász 1979
        assert bo.lovasz_theta(cycle, solver="lowrank").value == pytest.approx(theta, rel=1e-5)


@examples(12)
@given(
    st.integers(2, 15).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=3 * n),
            st.integers(0, 2**32 - 1),
            st.booleans(),
        )
    )
)
def test_any_graph(drawn):
    """Weighted, with negative weights, isolated vertices, components, parallel edges, odd and even orders."""
    n, edges, seed, signed = drawn
    weights = np.random.default_rng(seed).normal(size=len(edges))
    graph = graph_of(n, edges, weights if signed else np.abs(weights))
    sol = agree(max_cut(graph))
    assert sol.dual_value >= sol.value - 1e-9 * abs(sol.value) - 1e-12
    if not signed:
        agree(balanced(graph), tol=1e-6)


def test_one_edge_that_no_balanced_cut_needs():
    """The bound is zero; an earlier point proves more by round-off of the multiplier of the balance."""
    graph = graph_of(4, [(0, 2)], [0.34558419])
    solution = balanced(graph).solve(solver="lowrank", tol=1e-6)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(0, abs=1e-9)


def test_a_bound_as_good_as_the_cut():
    """At a cut itself the normals of the spheres and of the plane depend on each other."""
    solution = balanced(graph_of(4, [(0, 1), (0, 2)], [0.65, 0.17])).solve(solver="lowrank", tol=1e-6)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(0.17)


@pytest.mark.parametrize("make", [nx.cycle_graph, nx.path_graph, nx.complete_graph, nx.empty_graph])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_theta_of_small_graphs(make, n):
    theta = bo.lovasz_theta(make(n), solver="lowrank", tol=1e-6)
    cosine = np.cos(np.pi / n)
    odd_cycle = n * cosine / (1 + cosine) if n % 2 else n / 2
    exact = {
        nx.cycle_graph: odd_cycle if n > 2 else 1,
        nx.path_graph: (n + 1) // 2,
        nx.complete_graph: 1,
        nx.empty_graph: n,
    }
    assert theta.status == "optimal"
    assert theta.value == pytest.approx(exact[make], rel=1e-5)
    assert theta.dual_value >= exact[make] * (1 - 1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_smallest_orders(n):
    graph = graph_of(n, [(0, n - 1)], [1.0])
    assert max_cut(graph).solve(solver="lowrank").value == pytest.approx(float(n > 1))


SDPLIB = ("gpp100", *(f"gpp124-{k}" for k in range(1, 5)), "gpp250-1", "mcp100", "mcp250-1", "maxG11")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SDPLIB, *(f"mcp124-{k}" for k in range(1, 5))])
def test_sdplib(data, name):
    agree(bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz"), tol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["G1", "G11", "G14", "G43", "G51"])
@pytest.mark.parametrize(("make", "tol"), [(max_cut, 1e-5), (balanced, 2e-5)])  # G14 ends at 1.4e-5 there
def test_graphs_of_the_g_set(data, name, make, tol):
    table = np.loadtxt(data / "graphs" / f"{name}.txt.gz", skiprows=1, ndmin=2)
    edges = table[:, :2].astype(int) - 1
    agree(make(graph_of(int(edges.max()) + 1, edges, table[:, 2])), tol=tol)


def adversarial(kind, seed, n=150):
    """Return a slack matrix at which a bound on its smallest eigenvalue could go wrong."""
    rng = np.random.default_rng(seed)
    graph = sp.lil_array(random_graph(n, 400, seed))
    if kind == "hub":
        graph[0, 1:] = graph[1:, 0] = 1e6
    if kind == "islands":
        graph[: n // 2, n // 2 :] = graph[n // 2 :, : n // 2] = 0
        graph[0, n - 1] = graph[n - 1, 0] = 1e-9
    S = laplacian(sp.csr_array(graph))
    if kind == "signs":
        S = sp.csr_array(graph * sp.csr_array(np.sign(rng.normal(size=n))[:, None] @ np.ones((1, n))))
        S = sp.csr_array(S + S.T)
    if kind in ("hub", "saddle"):  # one local negative eigenvector
        S = S - sp.diags_array(np.where(np.arange(n) == n - 1, 3.0 * (kind == "saddle") + 1.0, 0.0))
    if kind == "isolated":
        S = S - sp.diags_array(np.where(np.arange(n) < 3, S.diagonal() + 1e-3, 0.0))
    if kind == "rank":  # -R R' of rank two beside the Laplacian
        return SparsePlusLowRank(sp.csr_array(S), rng.normal(size=(n, 2)), np.array([1e4, 0.5]))
    return SparsePlusLowRank(sp.csr_array(S), np.zeros((n, 0)), np.zeros(0))


class TestBound:
    @pytest.mark.parametrize(
        ("make", "size"),
        turns(
            [lambda: max_cut(random_graph(60, 200, 5)), lambda: balanced(grid(6, 8))],
            [1e-6, 1e-2, 1.0, 100.0],
        ),
    )
    def test_a_wrong_y_never_beats_the_optimum(self, make, size, monkeypatch):
        from bregopt.certify import slacks

        monkeypatch.setattr(slacks, "LARGEST_FORMED", 1)  # the branch of large orders
        problem = make()
        sol = problem.solve(solver="path", tol=1e-9)
        program, y = problem.program(), problem.solution._raw.duals
        X = bo.LowRank(np.linalg.cholesky(sol.X + 1e-9 * np.eye(len(sol.X))))
        optimum, rng = problem.objective.sign * sol.value, np.random.default_rng(0)
        for _ in range(20):
            wrong = y + size * rng.normal(size=len(y))
            found = certify(PrimalDualPoint(program, (X,), np.zeros(0), wrong))
            assert found.dual <= optimum + 1e-8 * abs(optimum)

    @pytest.mark.parametrize(
        ("way", "seed"), turns(["computed", "inertia", "cholesky", "polynomial"], range(3))
    )
    def test_smallest_eigenvalue_in_every_way(self, way, seed, monkeypatch):
        from bregopt.certify import eigenvalue_bound

        monkeypatch.setattr(eigenvalue_bound, "_cached_bounds", ())  # of the same matrices in another way
        if way != "computed":
            monkeypatch.setattr(eigenvalue_bound, "LARGEST_FORMED", 1)
        monkeypatch.setattr(eigenvalue_bound, "stays_sparse", lambda W: way == "inertia")
        monkeypatch.setattr(eigenvalue_bound, "LARGEST_DENSE", 1 if way == "polynomial" else 5000)
        rng = np.random.default_rng(seed)
        n = 200
        S = laplacian(random_graph(n, 500, seed)) + sp.diags_array(0.1 * rng.normal(size=n))
        for S_, U, w in (
            (S, rng.normal(size=(n, 2)), np.array([1.0, 0.01])),
            (S, np.zeros((n, 0)), np.zeros(0)),
            # A mesh less the share of its lowest eigenvector: singular but for the vector.
            (laplacian(grid(10, 20)) - 0.01 * sp.eye_array(n), np.ones((n, 1)), np.array([1e-2])),
        ):
            W = SparsePlusLowRank(sp.csr_array(S_), U, w)
            exact = np.linalg.eigvalsh(W.dense())
            found = smallest_eigenvalue(W)
            least = min(exact[0], 0.0)
            # The polynomial stops at one and a half times an eigenvalue that leaves no proof.
            sharp = 1.5 * least - 2e-3 * exact[-1] if way == "polynomial" else least - 1e-5 * exact[-1]
            assert sharp <= found <= exact[0] + 1e-12 * exact[-1]
            assert lowest(W, 1)[0][0] >= exact[0] - 1e-9 * exact[-1]

    def test_a_proof_without_time_is_no_weaker_than_an_earlier_one(self, monkeypatch):
        from bregopt import clock
        from bregopt.certify import eigenvalue_bound

        monkeypatch.setattr(eigenvalue_bound, "_cached_bounds", ())
        monkeypatch.setattr(eigenvalue_bound, "LARGEST_FORMED", 1)
        W, *others = (adversarial("signs", seed) for seed in range(8))
        exact, size = float(np.linalg.eigvalsh(W.dense())[0]), W.ends()[1]
        before = smallest_eigenvalue(W, enough=exact - 1e-3 * size)
        assert exact - 0.1 * size <= before <= exact
        for other in others:
            smallest_eigenvalue(other, enough=-size)
        with clock.limited(1e-9):
            for enough in (None, exact - 1e-3 * size, exact - 1e-9 * size):
                assert before <= smallest_eigenvalue(W, enough=enough) <= exact
        # With time, the sharpest bound is sought.
        assert smallest_eigenvalue(W, enough=exact - 1e-9 * size) >= before

    @pytest.mark.parametrize(("seed", "weight"), turns(range(5), [10.0, 1e3, 1e6]))
    def test_a_heavy_vector_costs_the_polynomial_little(self, weight, seed):
        from bregopt.certify import filtered

        n, rng = 300, np.random.default_rng(seed)
        S = laplacian(random_graph(n, 900, seed)) - sp.diags_array(rng.uniform(0, 0.5, n))
        W = SparsePlusLowRank(sp.csr_array(S), np.ones((n, 1)), np.array([weight]))
        exact, size = float(np.linalg.eigvalsh(W.dense())[0]), float(np.linalg.eigvalsh(S.toarray())[-1])
        found = filtered(W).bound
        assert 1.5 * min(exact, 0.0) - 0.002 * size <= found <= exact + 1e-12 * weight * n

    @pytest.mark.parametrize(
        ("seed", "weight", "apart"), turns(range(5), [10.0, 1e3, 1e6], [None, 1.0, 1e-6])
    )
    def test_the_complement_of_heavy_vectors_has_the_smallest_eigenvalue(self, weight, seed, apart):
        from bregopt.certify.eigenvalue_bound import Complement

        n, rng = 80, np.random.default_rng(seed)
        U = np.ones((n, 1))
        if apart is not None:
            U = np.hstack([U, U + apart * rng.normal(size=(n, 1))])
        S = laplacian(random_graph(n, 240, seed)) - sp.diags_array(rng.uniform(0, 0.5, n))
        w = np.full(U.shape[1], weight)
        least = np.linalg.eigvalsh(S.toarray() + (U * w) @ U.T)[0]
        # A shift makes W singular, where the complement loses nothing but the vectors' round-off.
        for shift, loss in ((least, 0.0), (least + 0.1, 0.1)):
            W = SparsePlusLowRank(sp.csr_array(S - shift * sp.eye_array(n)), U, w)
            complement = Complement(W)
            P = np.eye(n) - complement.Q @ complement.Q.T
            found = complement.whole(np.linalg.eigvalsh(P @ complement.light.dense() @ P)[0])
            exact, round_off = least - shift, 1e-13 * weight * n
            assert found <= exact + round_off
            if apart != 1e-6:  # nearly parallel vectors leave no large eigenvalue in their plane
                assert found >= exact - loss * 0.25 - round_off

    @pytest.mark.parametrize(
        ("way", "kind", "seed"),
        turns(
            ["inertia", "cholesky", "polynomial"],
            ["hub", "islands", "signs", "saddle", "rank", "isolated"],
            first(1, range(3)),
        ),
    )
    def test_relative_to_a_diagonal_no_bound_is_wrong(self, way, kind, seed, monkeypatch):
        from bregopt.certify import eigenvalue_bound, relative_diagonal

        monkeypatch.setattr(eigenvalue_bound, "LARGEST_FORMED", 1)
        monkeypatch.setattr(eigenvalue_bound, "stays_sparse", lambda W: way == "inertia")
        monkeypatch.setattr(eigenvalue_bound, "LARGEST_DENSE", 1 if way == "polynomial" else 5000)
        W = adversarial(kind, seed)
        for D in (None, relative_diagonal(W)):
            root = np.ones(W.n) if D is None else 1 / np.sqrt(D)
            N = W.dense() * root[:, None] * root
            spectrum = np.linalg.eigvalsh(N)
            noise = 1e-13 * max(spectrum[-1], -spectrum[0])
            for enough in (-1e-1, -1e-3, -1e-6, None):
                monkeypatch.setattr(eigenvalue_bound, "_cached_bounds", ())
                found = smallest_eigenvalue(W, D, None if enough is None else enough * spectrum[-1])
                assert found <= spectrum[0] + noise
                least = min(spectrum[0], 0.0 if enough is None else enough * spectrum[-1])
                assert found >= 12 * least - 2e-3 * spectrum[-1]

    @pytest.mark.parametrize("seed", first(1, range(4)))
    def test_the_probability_holds_for_vectors_of_any_eigenvalue(self, seed):
        """Every degree's bound is below the smallest eigenvalue, also far from convergence."""
        from bregopt.certify import filtered

        for kind in ("hub", "islands", "signs", "saddle", "rank"):
            W = adversarial(kind, seed)
            least = float(np.linalg.eigvalsh(W.dense())[0])
            size = float(np.linalg.norm(W.dense(), 2))
            for degrees in (2, 5, 30, 200):
                assert filtered(W, 0.0, degrees).bound <= min(least, 0.0) + 1e-13 * size

    def test_inertia_is_not_fooled_by_a_saddle(self):
        from bregopt.certify.eigenvalue_bound import by_inertia

        W = SparsePlusLowRank(
            sp.csr_array(laplacian(grid(20, 20)) - 0.1 * sp.eye_array(400)), np.ones((400, 1)), np.ones(1)
        )
        exact = np.linalg.eigvalsh(W.dense())[0]
        assert exact < 0
        assert by_inertia(W, exact + 1e-9) is None
        assert by_inertia(W, exact - 1e-6) == pytest.approx(exact - 1e-6, abs=1e-9)

    def test_thin_matrix(self):
        rng = np.random.default_rng(0)
        problem = balanced(random_graph(30, 80, 0))
        program, y, R = problem.program(), rng.normal(size=31), rng.normal(size=(30, 3))
        thin = sparse_plus_low_rank(program)[0]
        W, dense = thin.slack(y), program.blocks[0].C - program.A.adjoint(y)
        np.testing.assert_allclose(W.dense(), dense, atol=1e-12)
        np.testing.assert_allclose(W @ R, dense @ R, atol=1e-12)
        np.testing.assert_allclose(W.diagonal(), np.diag(dense), atol=1e-12)
        assert W.norm() == pytest.approx(np.linalg.norm(dense))
        assert W.ends()[0] <= np.linalg.eigvalsh(dense)[0] <= np.linalg.eigvalsh(dense)[-1] <= W.ends()[1]
        np.testing.assert_allclose(thin.rows.apply(R), program.A.apply((R @ R.T,)), atol=1e-12)
        kept = np.array([30, 2])
        np.testing.assert_allclose(
            thin.rows.slice(kept).apply(R), program.A.apply((R @ R.T,))[kept], atol=1e-12
        )

    def test_nothing_of_order_n_squared(self):
        import tracemalloc

        graph = grid(40, 50)
        problem = balanced(graph)
        tracemalloc.start()
        sol = problem.solve(tol=1e-3)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (sol.solver, sol.status) == ("lowrank", "optimal")
        assert peak < 8 * 2000**2 / 4


class TestSurface:
    def test_projection_and_retraction(self):
        program = balanced(random_graph(40, 90, 7)).program()
        surface = read_surface(program, sparse_plus_low_rank(program)[0], bo.tuning("lowrank"))
        rng = np.random.default_rng(0)
        R = surface.retract(rng.normal(size=(40, 5)))
        np.testing.assert_allclose((R**2).sum(axis=1), 1)
        np.testing.assert_allclose(R.sum(axis=0), 0, atol=1e-12)
        tangent, V = Tangent(surface, R), rng.normal(size=(40, 5))
        P = tangent.project(V)
        np.testing.assert_allclose((P * R).sum(axis=1), 0, atol=1e-12)
        np.testing.assert_allclose(P.sum(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(tangent.project(P), P, atol=1e-12)
        assert np.vdot(V - P, P) == pytest.approx(0, abs=1e-10)  # orthogonal

    def test_derivatives(self):
        program = balanced(random_graph(25, 60, 8), 30.0).program()
        thin = sparse_plus_low_rank(program)[0]
        L = lagrangian(program, thin, read_surface(program, thin, bo.tuning("lowrank")), None)
        rng = np.random.default_rng(1)
        at = L.retract(rng.normal(size=(25, 4)))
        V = at.tangent.project(rng.normal(size=(25, 4)))
        h = 1e-4
        up, down = L.retract(at.R + h * V), L.retract(at.R - h * V)
        assert (up.value - down.value) / (2 * h) == pytest.approx(2 * np.vdot(at.gradient, V), rel=1e-5)
        # The retraction is of second order on spheres.
        second = (up.value - 2 * at.value + down.value) / h**2
        assert second == pytest.approx(2 * np.vdot(L.hessian_product(at, V), V), rel=1e-4)


def theta_lagrangian(graph, columns, seed, level=None):
    """Return the Lagrangian of a theta number with random multipliers, its dense rows, and a point."""
    n, (i, j) = len(graph), np.array(graph.edges).T
    X = bo.PSD(n, name="X")
    rows = [bo.trace(X) == 1, X[i, j] == 0] if level is None else [bo.trace(X) == 1, X[i, j] <= level]
    program = bo.Problem(bo.Maximize(bo.quad_form(np.ones(n), X)), rows).program()
    thin = sparse_plus_low_rank(program)[0]
    rng = np.random.default_rng(seed)
    y = rng.normal(size=program.m) * n
    L = lagrangian(program, thin, read_surface(program, thin, bo.tuning("lowrank")), y)
    units = np.eye(len(L.y))
    return L, [L.rows.adjoint(unit).dense() for unit in units], L.retract(rng.normal(size=(n, columns)))


# A star has a vertex with more rows than R has columns.
@pytest.mark.parametrize("graph", [nx.star_graph(9), nx.gnm_random_graph(12, 30, seed=0)])
@pytest.mark.parametrize("level", [None, 0.0])
def test_blocks_are_those_of_the_hessian(graph, level):
    L, rows, at = theta_lagrangian(graph, 5, 1, level)
    V = np.random.default_rng(2).normal(size=at.R.shape)
    found, curvature = Blocks(L, at).solve(V), np.diag(at.curvature.dense())
    floor = bo.tuning("lowrank").preconditioner_floor * abs(curvature).max()
    for i in range(len(V)):
        B = max(curvature[i], floor) * np.eye(5)
        for rho, A in zip(at.penalties, rows, strict=True):
            B += 2 * rho * np.outer(A[i] @ at.R, A[i] @ at.R)
        np.testing.assert_allclose(found[i], np.linalg.solve(B, V[i]), rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_steps_are_points_of_the_model_of_increasing_length(seed):
    L, _, at = theta_lagrangian(nx.gnm_random_graph(30, 60, seed=seed), 6, seed)
    steps, _, count = _path(L, at, Blocks(L, at), 0.3, 1e-9)
    lengths = [step.length for step in steps]
    assert lengths == sorted(lengths)
    assert lengths[-1] <= 0.3 * (1 + 1e-9)
    assert len(steps) <= count
    for step in [*steps, steps[-1].halved()]:
        model = 2 * np.vdot(at.gradient, step.D) + np.vdot(step.D, L.hessian_product(at, step.D))
        assert step.predicted == pytest.approx(-model, rel=1e-8)
        assert step.predicted > 0


def test_sharpened_multipliers_are_those_of_least_squares():
    L, rows, at = theta_lagrangian(nx.gnm_random_graph(12, 8, seed=0), 5, 1)
    found = L.sharpened(at)
    columns = np.stack([at.tangent.project(A @ at.R).ravel() for A in rows], axis=1)
    change, *_ = np.linalg.lstsq(columns, at.gradient.ravel(), rcond=None)
    np.testing.assert_allclose(found.y, at.y + change, atol=1e-4 * abs(at.y).max())
    np.testing.assert_allclose(
        found.gradient, at.gradient - (columns @ change).reshape(at.R.shape), atol=1e-4
    )
    assert abs(found.slack.dense() - (L.cost.dense() - np.tensordot(found.y, rows, 1))).max() < 1e-8


def test_sharpened_multipliers_of_inequalities_keep_their_signs():
    L, _, at = theta_lagrangian(nx.gnm_random_graph(20, 60, seed=1), 5, 1, level=0.0)
    found = L.sharpened(at)
    assert (found.y * at.y >= 0).all()
    assert not found.y[at.penalties == 0].any()
    assert found.y[at.penalties > 0].any()


class TestRunning:
    def test_starts(self):
        problem = max_cut(random_graph(300, 900, 9))
        cold = problem.solve(solver="lowrank", tol=1e-5)
        assert problem.solve(solver="lowrank", tol=1e-5, warm_start=True).iterations < cold.iterations
        again = problem.solve(solver="lowrank", tol=1e-5, factor=cold.X)
        assert again.iterations < cold.iterations
        side = bo.max_cut(random_graph(300, 900, 9)).partition
        assert problem.solve(solver="lowrank", tol=1e-5, factor=side).status == "optimal"
        assert problem.solve(solver="path", warm_start=cold).status == "optimal"  # a LowRank for `path`

    def test_a_coarser_graph_is_a_start(self):
        fine, parent = grid(20, 20), (np.arange(20)[:, None] // 2 * 10 + np.arange(20) // 2).ravel()
        merge = sp.csr_array((np.ones(400), (parent, np.arange(400))), (100, 400))
        coarse = sp.csr_array(merge @ fine @ merge.T)
        coarse.setdiag(0)
        R = balanced(coarse).solve(solver="lowrank", tol=1e-4).X.factor
        sol = balanced(fine).solve(solver="lowrank", factor=R[parent])
        assert sol.status == "optimal"

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"rank": 0}, ValueError, "rank is 0"),
            ({"rank": 1.5}, TypeError, "rank is 1.5"),
            ({"factor": np.ones(3)}, ValueError, r"factor has shape \(3, 1\); expected 20 rows"),
            ({"factor": [np.nan] * 20}, ValueError, "factor has 20 NaN"),
        ],
    )
    def test_bad_options(self, options, error, message):
        with pytest.raises(error, match=message):
            max_cut(random_graph(20, 40, 0)).solve(solver="lowrank", **options)

    def test_refusals(self):
        X = bo.PSD(3)
        for rows, reason in (
            ([X[0, 0] <= 1], "bound diag"),
            ([bo.trace(X) == 1, bo.soft(X[0, 1] >= 2, gamma=1.0)], "hinge"),
        ):
            with pytest.raises(bo.UnsupportedProblemError, match=reason):
                bo.Problem(bo.Minimize(X[0, 0]), rows).solve(solver="lowrank")

    def test_limits_keep_the_best(self):
        problem = max_cut(random_graph(600, 2400, 10))
        best = problem.solve(solver="lowrank", tol=1e-6).value
        for options in ({"max_iter": 3}, {"time_limit": 1e-3}):
            with pytest.warns(bo.ConvergenceWarning):
                sol = problem.solve(solver="lowrank", **options)
            assert sol.status == "user_limit"
            assert sol.value <= best * (1 + 1e-6) <= sol.dual_value * (1 + 2e-6)

    @pytest.mark.parametrize(
        ("n", "limit"), first(2, [(300, 30), (300, 300), *((600, limit) for limit in (1, 30, 300, 1_000))])
    )
    def test_a_time_limit_keeps_the_bound(self, n, limit, ticking):
        edges = np.array(nx.gnm_random_graph(n, 5 * n, seed=0).edges).T
        X = bo.PSD(n)
        problem = bo.Problem(bo.Maximize(bo.sum(X)), [bo.trace(X) == 1, X[*edges] == 0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            sol = problem.solve(solver="lowrank", tol=1e-9, time_limit=limit)
        history = list(sol.history.get("dual", ()))
        assert sol.status == "user_limit"
        assert np.isfinite(sol.dual_value)
        # An independent set is below every bound.
        assert len(nx.maximal_independent_set(nx.Graph(edges.T.tolist()), seed=0)) <= sol.dual_value
        assert sol.dual_value <= min(history, default=np.inf) * (1 + 1e-9)

    def test_keyboard_interrupt_keeps_the_point(self, monkeypatch):
        from bregopt.routes.burer_monteiro import trust_region

        calls, original = [], trust_region._path

        def interrupted(*arguments):
            calls.append(0)
            if len(calls) > 4:
                signal.raise_signal(signal.SIGINT)
            return original(*arguments)

        monkeypatch.setattr(trust_region, "_path", interrupted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            sol = max_cut(random_graph(50, 150, 11)).solve(solver="lowrank")
        assert sol.stop_reason.startswith("Interrupted")
        assert sol.iterations == 4
        assert sol.dual_value >= sol.value

    def test_progress_and_history(self, capsys):
        sol = max_cut(random_graph(60, 150, 12)).solve(solver="lowrank", verbose=True)
        assert "bound" in capsys.readouterr().out
        assert set(sol.history) >= {"primal", "dual", "gap", "rank"}


class TestRouting:
    def test_by_size(self, capsys):
        assert max_cut(grid(20, 25)).solve().solver == "path"
        problem = max_cut(grid(21, 25))
        problem.explain()
        assert "-> lowrank        takes it: R of 12 columns" in capsys.readouterr().out
        assert problem.solve().solver == "lowrank"

    @pytest.mark.parametrize(("height", "width"), first(1, [(22, 26), (30, 40)]))
    def test_cuts_of_a_large_mesh(self, height, width):
        cut = bo.min_balanced_cut(grid(height, width), tol=1e-4)
        assert cut.solver == "lowrank"
        assert isinstance(cut.X, bo.LowRank)
        assert cut.bound <= cut.cut == height
        assert cut.partition.sum() == 0
        edges = 2 * height * width - height - width
        assert bo.max_cut(grid(height, width), tol=1e-4).cut == edges  # bipartite: all of them

    def test_from_sdpa_and_cvxpy(self, tmp_path):
        import cvxpy as cp

        problem = max_cut(random_graph(25, 60, 13))
        bo.write_sdpa(problem, tmp_path / "cut.dat-s")
        value = problem.solve(solver="lowrank").value
        assert bo.read_sdpa(tmp_path / "cut.dat-s").solve(solver="lowrank").value == pytest.approx(
            value, rel=1e-5
        )
        bo.write_sdpa(balanced(grid(4, 6)), tmp_path / "balanced.dat-s")
        listed = bo.read_sdpa(tmp_path / "balanced.dat-s").solve(solver="lowrank")
        assert listed.status == "optimal"  # e'Xe, listed term by term, is recognized as a square
        X = cp.Variable((25, 25), PSD=True)
        L = laplacian(random_graph(25, 60, 13)).toarray() / 4
        theirs = cp.Problem(cp.Maximize(cp.trace(L @ X)), [cp.diag(X) == 1])
        assert bo.from_cvxpy(theirs).solve(solver="lowrank").value == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5, 7])
def test_vertices_outside_every_answer(n):
    """Theta of a path with an odd number of vertices has one answer, zero on every second vertex."""
    sol = bo.lovasz_theta(np.eye(n, k=1) + np.eye(n, k=-1), solver="lowrank")
    assert sol.status == "optimal"
    assert sol.value == pytest.approx((n + 1) // 2, abs=1e-5)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_penalties_that_move_nothing_end():
    """The gradient of the row vanishes at the least entry, so that its penalty grew until it overflowed."""
    X = bo.PSD(2)
    problem = bo.Problem(bo.Minimize(X[0, 1]), [bo.diag(X) == 1, X[0, 1] >= -0.5])
    tuning = replace(bo.tuning("lowrank"), first_penalty=2.9, penalty_growth=1.3)
    assert problem.solve(solver="lowrank", tuning=tuning).dual_value <= -0.5 + 1e-6


class TestGeneralRows:
    """No sphere: the trace is bounded by rows, or by a definite cost."""

    @staticmethod
    def completion(n, rank, count, seed, units=1.0):
        """Return the least nuclear norm of an n x n matrix with given entries, and that of the matrix."""
        rng = np.random.default_rng(seed)
        A, B = rng.normal(size=(n, rank)), rng.normal(size=(n, rank))
        i, j = np.divmod(np.sort(rng.choice(n * n, count, replace=False)), n)
        X = bo.PSD(2 * n, name="X")
        values = units * np.einsum("kr,kr->k", A[i], B[j])
        norm = np.linalg.svd(np.linalg.qr(A)[1] @ np.linalg.qr(B)[1].T, compute_uv=False).sum()
        return bo.Problem(bo.Minimize(bo.trace(X) / 2), [X[i, n + j] == values]), units * norm

    @staticmethod
    def columns(sol):
        """Return how many columns of the factor are no round-off of the tolerance."""
        lengths = np.linalg.svd(sol.X.factor, compute_uv=False)
        return int((lengths > 0.05 * lengths[0]).sum())

    @pytest.mark.parametrize("units", [1e-6, 1.0, 1e6])
    def test_completion_finds_the_matrix(self, units):
        problem, norm = self.completion(40, 2, 900, 0, units)
        sol = problem.solve(solver="lowrank", tol=1e-6)
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(norm, rel=2e-6)
        assert sol.dual_value <= norm * (1 + 1e-9)
        assert self.columns(sol) == 2

    @pytest.mark.parametrize("n", first(1, [600, 2_500]))
    def test_a_large_completion_goes_here(self, n):
        problem, norm = self.completion(n, 3, 40 * n, 1)
        sol = problem.solve(tol=1e-4)
        assert (sol.status, sol.solver, self.columns(sol)) == ("optimal", "lowrank", 3)
        assert sol.dual_value <= norm * (1 + 1e-9)
        assert sol.value == pytest.approx(norm, rel=2e-4)

    @pytest.mark.parametrize(("square", "degree"), [(True, 5), (False, 5), (True, 20)])
    def test_squares_go_elsewhere(self, square, degree, capsys):
        """Few distances converge slowly here; entries of as many pairs do not, nor do many distances."""
        n, rng = 510, np.random.default_rng(5)
        i, j = np.triu_indices(n, 1)
        k = np.sort(rng.choice(len(i), degree * n, replace=False))
        x, X, unit = rng.normal(size=(n, 2)), bo.PSD(n, name="X"), sp.eye_array(n, format="csr")
        rows = X[i[k], j[k]] == np.sum(x[i[k]] * x[j[k]], axis=1)
        if square:
            rows = bo.quad_form(unit[i[k]] - unit[j[k]], X) == np.sum((x[i[k]] - x[j[k]]) ** 2, axis=1)
        bo.Problem(bo.Minimize(bo.trace(X)), [rows]).explain()
        assert ("-> lowrank" in capsys.readouterr().out) == (not square or degree == 20)

    def test_too_few_entries_for_the_matrix(self):
        agree(self.completion(30, 2, 200, 2)[0], tol=1e-6)

    @pytest.mark.parametrize("seed", first(2, range(6)))
    def test_bounds_on_trace_and_diagonal(self, seed):
        rng = np.random.default_rng(seed)
        C, X = rng.normal(size=(15, 15)), bo.PSD(15, name="X")
        bound = bo.diag(X) <= rng.uniform(1, 3, 15) if seed % 2 else bo.trace(X) <= 5
        agree(bo.Problem(bo.Maximize(bo.inner(C + C.T, X)), [bound, X[0, 1] >= 0.3]), tol=1e-6)

    @pytest.mark.parametrize("units", first(1, [1.0, 1e-6, 1e6]))
    def test_a_cost_of_condition_1e4(self, units):
        rng = np.random.default_rng(3)
        W, X = rng.normal(size=(20, 2)), bo.PSD(20, name="X")
        i, j = np.triu_indices(20, 1)
        k = rng.choice(len(i), 60, replace=False)
        rows = [X[i[k], j[k]] == units * (W @ W.T)[i[k], j[k]]]
        agree(bo.Problem(bo.Minimize(bo.inner(np.diag(np.logspace(-2, 2, 20)), X)), rows), tol=1e-6)

    def test_off_diagonal_cost_redundant_rows_and_planes(self):
        X = bo.PSD(12, name="X")
        C = sp.diags_array([np.full(12, 2.5), -np.ones(11), -np.ones(11)], offsets=[0, 1, -1])
        apart = np.eye(12)[3] - np.eye(12)[4]
        rows = [X[0, 1] == 2, 2 * X[0, 1] == 4, bo.quad_form(apart, X) <= 0, X[3, 6] >= 1]
        agree(bo.Problem(bo.Minimize(bo.inner(C, X) + 5), rows), tol=1e-6)

    def test_phase_retrieval(self):
        rng = np.random.default_rng(4)
        a, x, X = rng.normal(size=(150, 30)), rng.normal(size=30), bo.PSD(30, name="X")
        problem = bo.Problem(bo.Minimize(bo.trace(X)), [bo.quad_form(a, X) == (a @ x) ** 2])
        sol = problem.solve(solver="lowrank", tol=1e-6)
        assert sol.status == "optimal"
        assert np.asarray(sol.X) == pytest.approx(np.outer(x, x), abs=1e-4)

    def test_rows_that_hold_at_zero(self):
        X = bo.PSD(8, name="X")
        sol = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == 0, X[2, 3] <= 1]).solve(solver="lowrank")
        assert sol.status == "optimal"
        assert sol.value == pytest.approx(0, abs=1e-9)

    @pytest.mark.parametrize("n", [30, 510])
    @given(st.integers(0, 2**32 - 1))
    @examples(10)
    def test_no_multipliers_prove_more_than_the_optimum(self, n, seed):
        """The dual is min <C, X> over X_ij = b: its feasible multipliers are scaled by eigenvalues."""
        rng = np.random.default_rng(seed)
        d, b = rng.uniform(0.1, 10, n), rng.normal(size=n // 2)
        i = np.arange(0, n - n % 2, 2)
        X = bo.PSD(n, name="X")
        program = bo.Problem(bo.Minimize(bo.inner(sp.diags_array(d), X)), [X[i, i + 1] == b]).program()
        optimum = 2 * float(np.sqrt(d[i] * d[i + 1]) @ np.abs(b))  # of blocks [[s, b], [b, t]], s t = b^2
        best = 2 * np.sqrt(d[i] * d[i + 1]) * np.sign(b)
        R = bo.LowRank(np.ones((n, 1)))
        for size in (0.5, 1.0, 1.7):
            bound = PrimalDualPoint(program, (R,), np.zeros(0), size * best).bound
            assert bound.residual == 0
            assert bound.value == pytest.approx(min(size, 1.0) * optimum, rel=1e-6)
            y = size * best * rng.uniform(-1, 3, len(best))
            assert PrimalDualPoint(program, (R,), np.zeros(0), y).bound.value <= optimum * (1 + 1e-9)

    def test_an_eigenvalue_beside_many_vectors(self):
        rng = np.random.default_rng(5)
        U, w = rng.normal(size=(520, 900)), rng.normal(size=900)
        W = SparsePlusLowRank(sp.csr_array(sp.diags_array(rng.uniform(1, 2, 520))), U, w)
        least = np.linalg.eigvalsh(W.dense())[0]
        assert smallest_eigenvalue(W) <= least
        assert smallest_eigenvalue(W) == pytest.approx(least, rel=1e-7)
