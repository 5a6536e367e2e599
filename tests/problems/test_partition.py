"""``bo.partition`` against enumeration, its rows against all partitions, and what users see of it."""

import itertools
import pickle
import signal
import threading
import time

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first
from test_cuts_search import large_graph

import bregopt as bo
from bregopt import clock
from bregopt.io.graphs import read_graph
from bregopt.problems.cuts.partition import PartSearch
from bregopt.problems.cuts.proof import Proof
from bregopt.problems.cuts.triangles import Rows, tightened


def random_graph(rng, n, density, weighted):
    W = np.triu(rng.random((n, n)) < density, 1) * (rng.integers(1, 6, (n, n)) if weighted else 1.0)
    return W + W.T


def all_parts(sizes):
    """Return all partitions into parts of these sizes, one in each row."""
    grown = [((), tuple(sizes))]
    for _ in range(sum(sizes)):
        grown = [
            ((*part, p), (*left[:p], left[p] - 1, *left[p + 1 :]))
            for part, left in grown
            for p in range(len(sizes))
            if left[p]
        ]
    return np.array([part for part, _ in grown])


def cuts_of(W, parts):
    i, j = np.triu_indices(len(W), 1)
    return (parts[:, i] != parts[:, j]) @ W[i, j]


GIVEN_SIZES = [(3, 3, 3), (1, 2, 5), (2, 2, 2, 2), (4, 5), (1, 1, 1, 4), (7, 1), (1, 1), (1, 1, 1), (3, 4, 2)]


@examples(7)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.sampled_from(GIVEN_SIZES),
    density=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    weighted=st.booleans(),
    bound=st.sampled_from(["sdp", "triangles", False]),
)
def test_cut_and_bound_of_any_small_graph(seed, sizes, density, weighted, bound):
    W = random_graph(np.random.default_rng(seed), sum(sizes), density, weighted)
    found = bo.partition(W, len(sizes), sizes, bound=bound)
    least = cuts_of(W, all_parts(sizes)).min()
    assert found.cut == pytest.approx(least)
    assert found.bound <= least + 1e-9
    assert tuple(map(len, found.parts)) == tuple(sizes)
    np.testing.assert_array_equal(np.bincount(found.labels), sizes)
    assert found.cut == pytest.approx(cuts_of(W, found.labels[None])[0])
    if found.optimal:
        assert found.cut == pytest.approx(least)


@pytest.mark.parametrize(("n", "k"), [(6, 2), (6, 3), (7, 3), (6, 4), (5, 5), (6, np.inf)])
def test_generated_rows_hold_for_all_partitions(n, k):
    """A partition of any sizes has its matrix inside all rows that a wrong matrix violates."""
    rng = np.random.default_rng(n)
    wrong = rng.uniform(-1, 1, (n, n))
    np.fill_diagonal(wrong, 1.0)
    wrong = (wrong + wrong.T) / 2
    rows = Rows.violated(wrong, k)
    T, constants = rows.matrix(n), rows.constants(k)
    assert len(constants) > 5
    assert (T @ wrong.ravel() + constants < 0).all()
    parts = np.array(list(itertools.product(range(min(k, n)), repeat=n)))
    for part in parts[rng.permutation(len(parts))[:100]]:
        value = np.where(np.equal.outer(part, part), 1.0, -1 / (k - 1))
        assert (T @ value.ravel() + constants >= -1e-9).all()


@pytest.mark.parametrize(("n", "k", "sizes"), [(14, 3, (4, 5, 5)), (12, 4, (3, 3, 3, 3)), (13, 3, (1, 5, 7))])
def test_generated_rows_reach_the_relaxation_with_all_rows(n, k, sizes):
    W = random_graph(np.random.default_rng(n), n, 0.5, weighted=True)
    V = np.eye(n) if len(set(sizes)) > 1 else np.linalg.svd(np.ones((1, n)))[2][1:].T
    M = cp.Variable((V.shape[1], V.shape[1]), PSD=True)
    X = V @ M @ V.T
    spread = (k * sum(m**2 for m in sizes) - n**2) / (k - 1)
    i, j, m = np.array(list(itertools.permutations(range(n), 3))).T
    rows = [cp.diag(X) == 1, X >= -1 / (k - 1), X[i, j] + X[i, m] - X[j, m] <= 1]
    rows += [cp.sum(X) == spread] if spread else []
    whole = peers.ask(cp.Problem(cp.Minimize((k - 1) / (2 * k) * cp.sum(cp.multiply(W, 1 - X))), rows))
    proof, sized = Proof(read_graph(W, None), largest=False), (spread, spread)
    part = np.repeat(np.arange(k), sizes)
    with clock.limited(None):
        tightened(read_graph(W, None), k, sized, proof, lambda: part, {"max_iter": 40})
    least = proof.settled(part, None).bound
    assert least <= whole.value + 1e-6 * W.sum()
    assert least >= whole.value - 5e-3 * W.sum()


@pytest.mark.parametrize(("k", "cut"), first(2, [(2, 10), (4, 27), (3, 21)]))
def test_karate_club_is_proven(k, cut):
    networkx = pytest.importorskip("networkx")
    found = bo.partition(networkx.karate_club_graph(), k, bound="triangles")
    assert found.cut == cut
    assert found.optimal
    assert cut - 1 < found.bound <= cut
    assert "so optimal" in repr(found)


@pytest.mark.parametrize(("sizes", "k"), [((4, 4, 4), 3), ((2, 4, 6), 3), ((3, 3, 3, 3), 4)])
def test_bound_is_that_of_the_relaxation(sizes, k):
    n = sum(sizes)
    W = random_graph(np.random.default_rng(k), n, 0.6, weighted=True)
    L = np.diag(W.sum(1)) - W
    spread = (k * sum(m**2 for m in sizes) - n**2) / (k - 1)
    # Equal sizes put X on the complement of e, where the relaxation has an interior.
    V = np.eye(n) if spread else np.linalg.svd(np.ones((1, n)))[2][1:].T
    M = cp.Variable((V.shape[1], V.shape[1]), PSD=True)
    X = V @ M @ V.T
    rows = [cp.diag(X) == 1] + ([cp.sum(X) == spread] if spread else [])
    relaxation = cp.Problem(cp.Minimize((k - 1) / (2 * k) * cp.trace(V.T @ L @ V @ M)), rows)
    found = bo.partition(W, k, sizes, tol=1e-6)
    if not found.optimal:  # the relaxation then ran to its end
        peers.ask(relaxation).agrees(found.dual_value, found.error)


def test_two_parts_are_the_sides_of_a_balanced_cut():
    W = random_graph(np.random.default_rng(8), 20, 0.3, weighted=True)
    assert bo.partition(W, 2).cut == bo.min_balanced_cut(W).cut
    assert bo.partition(W, 2, (5, 15)).cut == bo.min_balanced_cut(W, sizes=(5, 15)).cut


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaled_weights_scale_cut_and_bound(scale):
    W = random_graph(np.random.default_rng(9), 12, 0.5, weighted=True)
    plain, scaled = bo.partition(W, 3), bo.partition(scale * W, 3)
    assert scaled.cut == pytest.approx(scale * plain.cut)
    assert scaled.bound == pytest.approx(scale * plain.bound, rel=0.05)
    assert scaled.bound <= scaled.cut


def test_names_come_back():
    networkx = pytest.importorskip("networkx")
    grid = networkx.grid_2d_graph(4, 4)
    for graph in (grid, list(grid.edges)):
        found = bo.partition(graph, 4)
        assert found.cut == 8
        assert set(found.assignments) == set(grid)
        assert all(found.assignments[v] == p for p, part in enumerate(found.parts) for v in part)
    shuffled = bo.partition([(30, 10), (10, 20), (20, 30), (7, 8), (8, 9), (9, 7), (7, 30)], 2)
    assert sorted(map(sorted, shuffled.parts)) == [[7, 8, 9], [10, 20, 30]]
    assert shuffled.graph.nodes == [7, 8, 9, 10, 20, 30]
    assert read_graph([((0, "a"), ("b", 0)), (("b", 0), (1,))]).nodes == [(0, "a"), ("b", 0), (1,)]


class Igraph:
    """Igraph's interface, as far as graphs are read through it."""

    class Sequence(dict):
        def attributes(self):
            return list(self)

    def __init__(self, n, edges, names=None, weights=None, directed=False):
        self._n, self._edges, self._directed = n, edges, directed
        self.vs = self.Sequence({} if names is None else {"name": names})
        self.es = self.Sequence({} if weights is None else {"weight": weights})

    def vcount(self):
        return self._n

    def is_directed(self):
        return self._directed

    def get_edgelist(self):
        return self._edges


def test_graphs_of_igraph():
    edges = [(0, 1), (1, 2), (2, 3)]
    graph = Igraph(5, edges, list("abcde"), [3.0, 1.0, 2.0])
    found = bo.partition(graph, 2, (2, 3), weights="weight")
    assert found.cut == 1
    assert set(found.assignments) == set("abcde")
    assert bo.max_cut(Igraph(4, edges)).cut == 3
    assert read_graph(Igraph(3, [])).n == 3
    with pytest.raises(ValueError, match="weights is 'w', which the edge from 'a' to 'b' does not have"):
        bo.partition(graph, 2, weights="w")
    with pytest.raises(TypeError, match=r"expected an undirected one, such as graph\.as_undirected"):
        bo.partition(Igraph(4, edges, directed=True), 2)


def test_a_true_graph_of_igraph():
    igraph = pytest.importorskip("igraph")
    ring = igraph.Graph.Ring(6)
    assert bo.partition(ring, 3).cut == 3


TRIANGLE = np.ones((3, 3)) - np.eye(3)


@pytest.mark.parametrize(
    ("graph", "options", "error", "message"),
    [
        (TRIANGLE, {"k": 4}, ValueError, "k is 4; expected 2 to 3, the number of vertices"),
        (TRIANGLE, {"k": 1}, ValueError, "k is 1; expected 2 to 3"),
        (TRIANGLE, {"k": 2.0}, TypeError, r"k is 2\.0; expected an integer"),
        (TRIANGLE, {"k": True}, TypeError, "k is True; expected an integer"),
        (
            TRIANGLE,
            {"k": 2, "sizes": (2, 2)},
            ValueError,
            "with sum 4; expected sizes of at least 1 with sum 3",
        ),
        (TRIANGLE, {"k": 2, "sizes": (3, 0)}, ValueError, "expected sizes of at least 1"),
        (TRIANGLE, {"k": 2, "sizes": (1, 1, 1)}, ValueError, "expected 2 integers"),
        (TRIANGLE, {"k": 2, "sizes": (1.5, 1.5)}, ValueError, "expected 2 integers"),
        (
            TRIANGLE,
            {"k": 2, "bound": "lp"},
            ValueError,
            "bound is 'lp'; expected 'auto', 'sdp', 'triangles' or False",
        ),
        (TRIANGLE, {"k": 2, "bound": True}, ValueError, "bound is True"),
        (TRIANGLE, {"k": 2, "bound": np.ones(2)}, ValueError, r"bound is array\(\[1\., 1\.\]\)"),
        (TRIANGLE, {"k": 2, "sizes": [[1], [1, 2]]}, ValueError, "sizes is ragged"),
        (np.zeros((501, 501)), {"k": 2, "bound": "triangles"}, ValueError, "at most 500: use 'sdp'"),
        (-TRIANGLE, {"k": 2}, ValueError, "graph has the negative weight -1"),
        (TRIANGLE * np.nan, {"k": 2}, ValueError, "graph has"),
        (np.zeros((1, 1)), {"k": 2}, ValueError, "at least two"),
        ([(0, 1), (1, 2)], {"k": 2, "weights": [1.0, np.nan]}, ValueError, "weights has 1 NaN"),
        ([(0, 1), (1, 2)], {"k": 2, "weights": "weight"}, TypeError, "edges have no attributes; expected 2"),
        ([(0, 1), (1, 2)], {"k": 2, "seed": -1}, ValueError, "seed is -1"),
        ([(0, 1), (1, 2)], {"k": 2, "imbalance": 0.1}, TypeError, "partition has no option 'imbalance'"),
    ],
)
def test_bad_input_is_named(graph, options, error, message):
    with pytest.raises(error, match=message):
        bo.partition(graph, **options)


def test_sizes_of_two_sides_are_checked():
    with pytest.raises(TypeError, match="sizes and imbalance are given; expected one of them"):
        bo.min_balanced_cut(TRIANGLE, imbalance=0.5, sizes=(1, 2))
    with pytest.raises(ValueError, match="with sum 4; expected sizes of at least 1 with sum 3"):
        bo.min_balanced_cut(TRIANGLE, sizes=(2, 2))


def test_extreme_graphs():
    assert bo.partition(np.zeros((5, 5)), 3).cut == 0
    complete = bo.partition(np.ones((6, 6)) - np.eye(6), 6)
    assert complete.cut == pytest.approx(complete.bound) == 15
    assert complete.optimal
    assert bo.partition([("a", "b")], 2).cut == 1
    assert bo.partition(sp.block_diag([sp.coo_array(TRIANGLE)] * 3, format="csr"), 3).cut == 0


@pytest.mark.parametrize("n", [2, 3])
def test_as_many_parts_as_vertices(n):
    W = np.ones((n, n)) - np.eye(n)
    found = bo.partition(W, n)
    assert found.cut == pytest.approx(found.bound) == n * (n - 1) / 2
    assert sorted(found.labels) == list(range(n))


@pytest.mark.parametrize("bound", ["sdp", "triangles", False])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_one_vertex_apart_from_a_star(bound, weight):
    """The center alone cuts all edges, a leaf alone one of them."""
    star = np.zeros((7, 7))
    star[0, 1:] = star[1:, 0] = weight
    found = bo.partition(star, 2, (1, 6), bound=bound)
    assert found.cut == weight
    assert len(found.parts[0]) == 1
    assert found.bound <= weight + 1e-9


def test_edges_that_occur_twice_weigh_twice():
    once = bo.partition([(0, 1), (1, 2), (2, 3)], 2)
    twice = bo.partition([(0, 1), (1, 2), (2, 3)] * 2, 2)
    assert (once.cut, twice.cut) == (1, 2)


def test_names_of_different_types():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph([("a", 1), (1, (2, 3)), ("a", (2, 3)), ("c", 4.5), (4.5, "b"), ("c", "b")])
    found = bo.partition(graph, 2)
    assert found.cut == 0
    assert {frozenset(part) for part in found.parts} == {
        frozenset({"a", 1, (2, 3)}),
        frozenset({"c", 4.5, "b"}),
    }


def test_parts_of_a_planted_graph_by_the_relaxation_alone():
    """Roundings of the answer find what a search that is stopped at once does not."""
    rng = np.random.default_rng(0)
    part = rng.permutation(np.repeat(np.arange(3), (8, 10, 12)))
    W = np.where(np.equal.outer(part, part), 1.0, 0.0) * (1 - np.eye(30))
    X = np.where(np.equal.outer(part, part), 1.0, -0.5)
    search = PartSearch(sp.csr_array(W), [8, 10, 12], rng, lambda found: False, {})
    search.round_matrix(X)
    np.testing.assert_array_equal(np.equal.outer(search.best, search.best), np.equal.outer(part, part))
    np.testing.assert_array_equal(np.bincount(search.best), [8, 10, 12])


def test_partitions_pickle():
    found = bo.partition(TRIANGLE, 3)
    again = pickle.loads(pickle.dumps(found))
    assert (again.cut, again.bound, again.parts) == (found.cut, found.bound, found.parts)


@pytest.mark.parametrize("bound", ["sdp", False])
def test_the_time_limit_covers_search_and_bound(bound):
    edges = large_graph()
    start = time.thread_time()  # other processes of the machine do not count
    found = bo.partition(edges, 4, bound=bound, time_limit=1.0, tol=1e-2) if not bound else None
    if found is None:
        with pytest.warns(bo.ConvergenceWarning):
            found = bo.partition(edges, 4, time_limit=1.0, tol=1e-9)
    assert time.thread_time() - start < 1.5
    assert found.bound <= found.cut < len(edges)


def test_an_interrupt_returns_the_best_partition():
    timer = threading.Timer(0.7, signal.raise_signal, [signal.SIGINT])
    timer.start()
    start = time.thread_time()
    with pytest.warns(bo.ConvergenceWarning):
        found = bo.partition(large_graph(20_000), 4, tol=1e-9)
    assert time.thread_time() - start < 2.5
    assert 0 <= found.bound <= found.cut
    assert [len(part) for part in found.parts] == list(np.bincount(found.labels))


@pytest.mark.parametrize("rounds", first(1, [3, None]))
def test_progress_is_shown(monkeypatch, rounds):
    shown = []

    def bar(items, desc):
        shown.append(desc)
        return items

    monkeypatch.setattr("bregopt.routes.progress._tqdm", lambda: bar)
    edges = large_graph(60)
    bo.min_balanced_cut(edges, progress=True, bound=False, rounds=rounds)
    bo.partition(edges, 3, progress=True, bound=False, rounds=rounds)
    assert shown[0] == "cycles"
    assert len(shown) >= 3
    assert set(shown[1:]) == {"rounds"}


def test_one_cycle_finds_planted_parts():
    """``rounds=0``: complete parts with one edge between neighbors are the best ones, by connectivity."""
    size, k = 20, 4
    W = np.kron(np.eye(k), np.ones((size, size)) - np.eye(size))
    for p in range(k):
        a, b = p * size, (p + 1) % k * size + 1
        W[a, b] = W[b, a] = 1.0
    places = np.random.default_rng(0).permutation(len(W))
    found = bo.partition(W[np.ix_(places, places)], k, bound=False, rounds=0)
    planted = places // size
    assert all(len(set(planted[part])) == 1 for part in found.parts)
    assert found.cut == k
    halves = bo.min_balanced_cut(W[np.ix_(places, places)], bound=False, rounds=0)
    assert halves.cut == 2  # a cycle of four parts, cut twice
    assert bo.communities(W, bound=False, rounds=0).communities == tuple(
        list(range(p * size, (p + 1) * size)) for p in range(k)
    )


@pytest.mark.parametrize("solve", [bo.max_cut, bo.min_balanced_cut, bo.communities])
def test_numbers_of_rounds_are_checked(solve):
    with pytest.raises(ValueError, match="rounds is -1; expected at least 0"):
        solve(np.ones((4, 4)) - np.eye(4), rounds=-1)
    for bad in (1.5, True, "many"):
        with pytest.raises(TypeError, match=r"rounds is .*; expected an integer"):
            solve(np.ones((4, 4)) - np.eye(4), rounds=bad)


def test_rounds_are_those_asked_for(monkeypatch):
    shown = {}
    monkeypatch.setattr(
        "bregopt.routes.progress._tqdm", lambda: lambda items, desc: shown.setdefault(desc, items)
    )
    for rounds in (0, 2):
        shown.clear()
        bo.min_balanced_cut(large_graph(60), progress=True, bound=False, rounds=rounds)
        assert [len(shown.get(name, ())) for name in ("cycles", "rounds")] == [max(rounds, 1), rounds]
