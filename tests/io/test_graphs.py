"""Graphs in every form, and the balanced cut against enumeration of all partitions."""

import itertools
import pickle
from dataclasses import replace

import cvxpy as cp
import numpy as np
import peers
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first

import bregopt as bo
from bregopt.io.graphs import read_graph


def random_graph(n, seed, density=0.5, weighted=False):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((n, n)) < density, 1) * (rng.integers(1, 6, (n, n)) if weighted else 1.0)
    return W + W.T


def least_cut(W, slack):
    """Return the least weight of a cut whose sides differ by at most `slack`, by enumeration."""
    n, L = len(W), np.diag(W.sum(1)) - W
    best = np.inf
    for rest in itertools.product((1, -1), repeat=n - 1):
        side = np.array((1, *rest))
        if abs(side.sum()) <= slack and abs(side.sum()) < n:
            best = min(best, side @ L @ side / 4)
    return best


def named(name):
    n = 8
    k = np.arange(n)
    W = np.zeros((n, n))
    if name == "path":
        W[k[:-1], k[1:]] = 1
    elif name == "cycle":
        W[k, (k + 1) % n] = 1
    elif name == "star":
        W[0, 1:] = 1
    elif name == "complete":
        W[np.triu_indices(n, 1)] = 1
    elif name == "two cliques":
        W[:4, :4] = W[4:, 4:] = np.triu(np.ones((4, 4)), 1)
    elif name == "isolated":
        W[0, 1] = W[1, 2] = W[0, 2] = 1
    return np.maximum(W, W.T)


CASES = [
    *(pytest.param(random_graph(n, n), 0.0, id=f"random-{n}") for n in (2, 3, 4, 7, 9, 10)),
    *(pytest.param(random_graph(n, n, weighted=True), 0.0, id=f"weighted-{n}") for n in (6, 9)),
    *(pytest.param(random_graph(8, 5), s, id=f"imbalance-{s}") for s in (0.25, 0.5)),
    *(pytest.param(named(k), 0.0, id=k) for k in
      ("path", "cycle", "star", "complete", "two cliques", "isolated", "no edges")),
]  # fmt: skip


@pytest.mark.parametrize(("W", "imbalance"), CASES)
def test_bound_and_cut_enclose_the_least_cut(W, imbalance):
    n = len(W)
    slack = max(int(imbalance * n), n % 2)
    found = bo.min_balanced_cut(W, imbalance=imbalance)
    best = least_cut(W, slack)
    assert found.bound <= best + 1e-9
    assert found.cut >= best - 1e-9
    assert found.cut == pytest.approx(best)  # graphs this small are rounded to the optimum
    assert abs(found.partition.sum()) <= slack
    assert set(np.unique(found.partition)) <= {-1, 1}
    L = np.diag(W.sum(1)) - W
    assert found.cut == pytest.approx(found.partition @ L @ found.partition / 4)
    assert sorted(found.sides[0] + found.sides[1]) == list(range(n))


@examples(20)
@given(
    n=st.integers(2, 9),
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.0, 0.15, 0.3, 0.6, 1.0]),
    weighted=st.booleans(),
    imbalance=st.sampled_from([0.0, 0.0, 0.25, 0.5]),
)
def test_any_small_graph(n, seed, density, weighted, imbalance):
    # A warning would be an error: disconnected graphs and optima of zero converge too.
    W = random_graph(n, seed, density, weighted)
    found = bo.min_balanced_cut(W, imbalance=imbalance)
    best = least_cut(W, max(int(imbalance * n), n % 2))
    assert found.bound <= best + 1e-9
    assert found.bound <= found.cut
    assert found.cut == pytest.approx(best)
    assert found.status == "optimal"


@pytest.mark.parametrize(("n", "seed"), first(1, [(40, 0), *((80, seed) for seed in range(6))]))
def test_more_room_is_no_worse(n, seed):
    """This is no theorem, but the purpose of the search after the rounding; without single moves it fails."""
    W = random_graph(n, seed, density=8 / n)
    found = [bo.min_balanced_cut(W, imbalance=imbalance) for imbalance in (0.0, 0.05, 0.1, 0.2, 0.4)]
    cuts = [cut.cut for cut in found]
    assert cuts == sorted(cuts, reverse=True)
    for cut, share in zip(found, (0, 0.05, 0.1, 0.2, 0.4), strict=True):
        assert abs(cut.partition.sum()) <= share * n


@pytest.mark.parametrize(("W", "imbalance"), [CASES[4].values, CASES[6].values, CASES[8].values])
def test_bound_is_that_of_the_relaxation(W, imbalance):
    n = len(W)
    slack = max(int(imbalance * n), n % 2)
    X = cp.Variable((n, n), PSD=True)
    L = np.diag(W.sum(1)) - W
    rows = [cp.diag(X) == 1, cp.sum(X) <= slack**2, cp.sum(X) >= n % 2]
    relaxation = cp.Problem(cp.Minimize(cp.trace(L @ X) / 4), rows)
    found = bo.min_balanced_cut(W, imbalance=imbalance, bound="sdp")
    assert found.status == "optimal"
    peers.ask(relaxation).agrees(found.dual_value, found.error)
    np.testing.assert_allclose(np.diag(found.X), 1, atol=1e-6)


def test_karate_club():
    networkx = pytest.importorskip("networkx")
    club = networkx.karate_club_graph()
    found = bo.min_balanced_cut(club)
    L = networkx.laplacian_matrix(club, weight=None).toarray()
    V = np.linalg.svd(np.ones((1, 34)))[2][1:].T  # e'Xe = 0 puts X on the complement of e
    M = cp.Variable((33, 33), PSD=True)
    relaxation = cp.Problem(cp.Minimize(cp.trace(V.T @ L @ V @ M)), [cp.diag(V @ M @ V.T) == 1])
    assert found.cut == 10
    assert found.optimal  # the bound is above nine
    peers.ask(relaxation).agrees(4 * found.bound, 4 * found.error)
    assert found.partition.sum() == 0


def most_cut(W):
    """Return the largest weight of a cut, by enumeration."""
    signs = np.array(list(itertools.product([1], *[[1, -1]] * (len(W) - 1))))
    return float(((W.sum() - np.einsum("ki,ij,kj->k", signs, W, signs)) / 4).max())


@examples(15)
@given(
    n=st.integers(2, 9),
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    signed=st.booleans(),
)
def test_largest_cut_of_any_small_graph(n, seed, density, signed):
    W = random_graph(n, seed, density, weighted=True)
    if signed:
        flip = np.triu(np.random.default_rng(seed).random((n, n)) < 0.5, 1)
        W = np.where(flip | flip.T, -W, W)
    found = bo.max_cut(W)
    assert found.status == "optimal"
    assert found.cut == pytest.approx(most_cut(W))
    assert found.bound >= found.cut
    L = np.diag(W.sum(1)) - W
    assert found.cut == pytest.approx(found.partition @ L @ found.partition / 4)


@pytest.mark.parametrize(
    ("graph", "theta"),
    [
        ("cycle_graph(5)", 5**0.5),
        ("petersen_graph()", 4.0),
        ("complete_graph(4)", 1.0),
        ("empty_graph(3)", 3.0),
    ],
)
def test_theta_of_known_graphs(graph, theta):
    networkx = pytest.importorskip("networkx")
    name, arguments = graph.rstrip(")").split("(")
    found = bo.lovasz_theta(getattr(networkx, name)(*map(int, arguments.split(",") if arguments else [])))
    assert found.status == "optimal"
    assert found.value == pytest.approx(theta, rel=1e-5)
    assert found.dual_value >= theta - 1e-9 * theta


def test_every_form_of_a_graph_is_the_same_graph():
    W = random_graph(7, 1)
    i, j = np.nonzero(np.triu(W))
    forms = [
        W,
        sp.csr_array(W),
        sp.coo_matrix(W),
        W.tolist(),
        np.column_stack([i, j]),
        (i, j),
        (list(i), list(j)),
        tuple(zip(i.tolist(), j.tolist(), strict=True)),
    ]
    cuts = {bo.min_balanced_cut(form).cut for form in forms}
    assert len(cuts) == 1
    for form in forms:
        np.testing.assert_array_equal(read_graph(form).adjacency.toarray(), W)


def test_weights_of_edges_add_up():
    graph = read_graph([[0, 1], [1, 2], [1, 0]], weights=[1.0, 2.0, 3.0])
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 4, 0], [4, 0, 2], [0, 2, 0]])


@pytest.mark.parametrize(
    "names",
    [
        [1, 2, 3, 4, 5],
        [0, 3, 7, 8, 1_000_000_000],
        ["ann", "bob", "cy", "dee", "eve"],
        np.array([1, 2, 3, 4, 5], dtype=np.uint8),
        np.array(["ann", "bob", "cy", "dee", "eve"], dtype=object),
    ],
)
def test_vertices_of_edges_are_those_that_occur(names):
    path = [(0, 1), (1, 2), (2, 3), (3, 4)]
    edges = [(names[i], names[j]) for i, j in path]
    for form in (
        edges,
        np.array(edges),
        tuple(np.array(edges).T),
        tuple(map(list, zip(*edges, strict=True))),
    ):
        graph = read_graph(form, weights=[1.0, 2.0, 3.0, 4.0])
        assert graph.nodes == list(names)
        expected = np.zeros((5, 5))
        expected[[0, 1, 2, 3], [1, 2, 3, 4]] = [1, 2, 3, 4]
        np.testing.assert_array_equal(graph.adjacency.toarray(), expected + expected.T)
    found = bo.min_balanced_cut(edges)
    assert found.cut == 1
    assert sorted(found.sides[0] + found.sides[1]) == sorted(names)
    # The order of the partition is that of the sorted names.
    assert [name for name, side in zip(names, found.partition, strict=True) if side == 1] == found.sides[0]


def test_two_edges_of_strings_are_no_matrix():
    assert read_graph([("a", "b"), ("b", "c")]).nodes == ["a", "b", "c"]


def test_two_edges_are_not_a_matrix_of_two_vertices():
    assert read_graph([[0, 1], [1, 2]]).n == 3
    assert read_graph([[0.0, 1.0], [1.0, 0.0]]).n == 2


def test_names_of_networkx_are_kept():
    networkx = pytest.importorskip("networkx")
    G = networkx.Graph()
    G.add_edge("anna", "ben", weight=3)
    G.add_edge("cleo", "dora", weight=3)
    G.add_edge("ben", "cleo", weight=1)
    found = bo.min_balanced_cut(G, weights="weight")
    assert sorted(map(sorted, found.sides)) == [["anna", "ben"], ["cleo", "dora"]]
    assert found.cut == 1
    assert read_graph(G).adjacency.sum() == 6  # without weights= every edge weighs one


def test_the_seed_decides():
    W = random_graph(30, 3, 0.2)
    first, again = (bo.min_balanced_cut(W, seed=5, tol=5e-2) for _ in range(2))
    np.testing.assert_array_equal(first.partition, again.partition)


@pytest.mark.parametrize("seed", [np.random.default_rng, np.random.SeedSequence, np.int64])
def test_seeds_of_numpy(seed):
    W = random_graph(40, 3, 0.2)
    first, again = (bo.max_cut(W, seed=seed(5), solver="lowrank", tol=5e-2) for _ in range(2))
    np.testing.assert_array_equal(first.partition, again.partition)
    np.testing.assert_array_equal(first.X, again.X)


def test_a_generator_goes_on():
    rng, other = (np.random.default_rng(5) for _ in range(2))
    bo.max_cut(random_graph(10, 3), bound=False, seed=rng)
    assert rng.random() != other.random()


def test_scaled_weights_scale_cut_and_bound():
    W = random_graph(8, 6)
    plain = bo.min_balanced_cut(W)
    for scale in (1e-6, 1e6):
        scaled = bo.min_balanced_cut(scale * W)
        assert scaled.cut == pytest.approx(scale * plain.cut)
        assert scaled.bound == pytest.approx(scale * plain.bound, rel=1e-2)


@pytest.mark.parametrize("limit", [{"max_iter": 3}, {"max_iter": 1}, {"time_limit": 1e-9}])
def test_out_of_time_warns_and_the_bound_holds(limit):
    W = random_graph(10, 2, density=0.6, weighted=True)
    with pytest.warns(bo.ConvergenceWarning, match="user_limit") as caught:
        found = bo.min_balanced_cut(W, **limit, bound="sdp", tol=1e-6)
    assert caught[0].filename == __file__
    assert found.status == "user_limit"
    assert next(iter(limit)) in found.stop_reason
    assert found.bound <= least_cut(W, 0) <= found.cut
    assert found.partition.sum() == 0


def test_a_cut_pickles():
    found = bo.min_balanced_cut(named("cycle"))
    again = pickle.loads(pickle.dumps(found))
    assert (again.cut, again.bound, again.sides) == (found.cut, found.bound, found.sides)


def test_large_graphs_are_split_well():
    # Planted halves: 40 vertices each, dense within and sparse between.
    rng = np.random.default_rng(7)
    planted = np.repeat([1, -1], 40)[rng.permutation(80)]
    chance = np.where(np.equal.outer(planted, planted), 0.4, 0.05)
    W = np.triu(rng.random((80, 80)) < chance, 1).astype(float)
    found = bo.min_balanced_cut(W + W.T)
    assert abs(found.partition @ planted) == 80


def test_graphs_are_never_modified():
    W = random_graph(6, 2)
    sparse = sp.csr_array(W)
    edges, weights = np.argwhere(np.triu(W)), np.ones(int(W.sum()) // 2)
    arrays = [W, sparse.data, sparse.indices, sparse.indptr, edges, weights]
    copies = [a.copy() for a in arrays]
    for array in arrays:
        array.setflags(write=False)
    bo.min_balanced_cut(W)
    bo.min_balanced_cut(sparse)
    bo.min_balanced_cut(edges, weights)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_repr_says_what_was_proven():
    found = bo.min_balanced_cut(named("two cliques"), bound="sdp")
    assert repr(found).startswith("cut of weight 0 into 4 and 4 vertices, proven at least 0, so optimal")
    assert "proven at most 4" in repr(bo.max_cut([(0, 1), (1, 2), (2, 3), (3, 0)]))
    _, seconds, heading, *_ = repr(found).splitlines()
    assert seconds.startswith("  total time ")
    assert heading.startswith("relaxation: optimal")
    assert found.timings["call"] >= found.timings["total"]


@pytest.mark.parametrize(
    ("solve", "bound", "text"),
    [
        (bo.min_balanced_cut, 3.0, "proven at least 3, so at most 33.4% above the best"),
        (bo.max_cut, 5.0, "proven at most 5, so at most 20% below the best"),
        (bo.min_balanced_cut, 1.5, "proven at least 1.5"),
        (bo.min_balanced_cut, 0.0, "proven at least 0"),
        (bo.min_balanced_cut, -1.0, "proven at least -1"),
    ],
)
def test_the_distance_from_the_best_is_rounded_up(solve, bound, text):
    cut = solve([(0, 1), (1, 2), (2, 3), (3, 0)])
    first, *_ = repr(replace(cut, cut=4.0, bound=bound, optimal=False)).splitlines()
    assert first.endswith(text)


def test_a_relaxation_that_proved_nothing_says_so():
    graph = random_graph(300, 0)
    with pytest.warns(bo.ConvergenceWarning, match="ended the relaxation before it proved a bound"):
        found = bo.min_balanced_cut(graph, time_limit=1e-3)
    assert found.bound < 1e-6
    assert "or pass bound=False" in found.stop_reason


def test_partition_names_sizes_in_place_of_imbalance():
    with pytest.raises(TypeError, match="partition has no option 'imbalance': give sizes="):
        bo.partition([(0, 1), (1, 2), (2, 3)], 2, imbalance=0.1)


@pytest.mark.parametrize(
    ("graph", "options", "error", "message"),
    [
        (np.array([[0.0, 1], [2, 0]]), {}, ValueError, "graph"),
        (np.array([[0.0, np.nan], [np.nan, 0]]), {}, ValueError, "graph"),
        (np.array([[0.0, -1, 0], [-1, 0, 0], [0, 0, 0]]), {}, ValueError, "negative weight"),
        (np.zeros((1, 1)), {}, ValueError, "at least two"),
        (sp.csr_array(np.triu(np.ones((3, 3)), 1)), {}, ValueError, "not symmetric"),
        (sp.csr_array(np.ones((2, 3))), {}, ValueError, "square"),
        (np.ones((4, 3)), {}, ValueError, "shape"),
        ([[0.5, 1], [1, 2], [0, 2]], {}, TypeError, "graph has edges of dtype"),
        ([[0, -1], [1, 2], [0, 2]], {}, ValueError, "index -1"),
        ([[0, 1, 2.5], [1, 2, 1.0]], {}, ValueError, r"shape \(2, 3\).*third column goes to weights="),
        (
            [("a", 1), ("b", 2), ("c", 3)],
            {},
            TypeError,
            "edges of dtype .*expected integers, or strings alone",
        ),
        ([[0.0, 1], [1, 2], [0, 2]], {}, TypeError, r"edges of dtype float64; .*graph.astype\(int\)"),
        ([[0, 1], [1, 2], [0, 2]], {"weights": [1.0]}, ValueError, "weights has length 1"),
        ([[0, 1], [1, 2], [0, 2]], {"weights": [1.0, -1.0, 1.0]}, ValueError, "weights"),
        (np.ones((3, 3)) - np.eye(3), {"weights": [1.0]}, TypeError, "weights"),
        (np.ones((3, 3)) - np.eye(3), {"imbalance": 1.0}, ValueError, "imbalance"),
        (np.ones((3, 3)) - np.eye(3), {"imbalance": -0.1}, ValueError, "imbalance"),
        (np.ones((3, 3)) - np.eye(3), {"tolerance": 0.1}, TypeError, "tolerance"),
        (np.ones((3, 3)) - np.eye(3), {"imbalance": None}, TypeError, "imbalance"),
        (np.ones((3, 3)) - np.eye(3), {"seed": -1}, ValueError, "seed is -1"),
        (np.ones((3, 3)) - np.eye(3), {"seed": "a"}, TypeError, "seed is 'a'"),
        (np.ones((3, 3)) - np.eye(3), {"seed": 1.5}, TypeError, "seed is 1.5; expected an integer"),
        (np.ones((3, 3)) - np.eye(3), {"tol": "a"}, TypeError, "tol is 'a'"),
        (np.ones((3, 3)) - np.eye(3), {"tol": -0.5}, ValueError, "tol is -0.5"),
        (np.ones((3, 3)) - np.eye(3), {"max_iter": 0}, ValueError, "max_iter is 0"),
        (np.ones((3, 3)) - np.eye(3), {"time_limit": -1}, ValueError, "time_limit is -1"),
        (np.ones((3, 3)) - np.eye(3), {"verbose": "no"}, TypeError, "verbose is 'no'"),
        ("karate", {}, TypeError, "graph is str"),
        (None, {}, TypeError, "graph is NoneType"),
        (5, {}, TypeError, "graph is int"),
        ([], {}, ValueError, r"graph has shape \(0,\)"),
        ([[0, 1], [1]], {}, ValueError, "graph is ragged"),
        (([0, 1], [1]), {}, ValueError, "graph is ragged"),
        (sp.csr_array([[0, 1j], [-1j, 0]]), {}, TypeError, "graph is complex"),
        (sp.coo_array(np.ones(3)), {}, ValueError, "graph has shape"),
        (sp.csr_array([[0, np.nan], [np.nan, 0]]), {}, ValueError, "graph has 2 NaN"),
    ],
)
def test_bad_input_is_named(graph, options, error, message):
    with pytest.raises(error, match=message):
        bo.min_balanced_cut(graph, **options)


def test_directed_graphs_are_refused():
    networkx = pytest.importorskip("networkx")
    with pytest.raises(TypeError, match="directed"):
        bo.min_balanced_cut(networkx.DiGraph([(0, 1)]))
    with pytest.raises(TypeError, match="edge attribute"):
        bo.min_balanced_cut(networkx.path_graph(3), weights=[1.0, 2.0])


def test_edge_attributes_are_looked_at():
    networkx = pytest.importorskip("networkx")
    with pytest.raises(ValueError, match="weights is 'wieght', which the edge from 0 to 1 does not have"):
        bo.min_balanced_cut(networkx.karate_club_graph(), weights="wieght")
    for value, error in (("heavy", TypeError), (np.nan, ValueError)):
        graph = networkx.Graph([(0, 1, {"weight": value}), (1, 2, {"weight": value})])
        with pytest.raises(error, match="weights='weight' of graph"):
            bo.min_balanced_cut(graph, weights="weight")
    with pytest.raises(ValueError, match="loop at vertex 'a'"):
        bo.lovasz_theta(networkx.Graph([("a", "a"), ("a", "b")]))
    with pytest.raises(ValueError, match="0 vertices"):
        bo.min_balanced_cut(networkx.Graph())
    assert bo.min_balanced_cut(networkx.MultiGraph([(0, 1), (0, 1)])).cut == 2


def test_loops_are_left_out_with_a_note():
    networkx = pytest.importorskip("networkx")
    named = networkx.Graph([("a", "a"), ("a", "b"), ("b", "c"), ("c", "c")])
    named.add_edge("a", "a", weight=3.0)
    W = networkx.to_numpy_array(named)
    forms = [named, [("a", "a"), ("a", "b"), ("b", "c"), ("c", "c")], W, sp.csr_array(W)]
    for graph, loops in zip(forms, ([1, 0, 1], [1, 0, 1], [3, 0, 1], [3, 0, 1]), strict=True):
        parsed = read_graph(graph)
        assert parsed.loops.tolist() == loops
        assert not parsed.adjacency.diagonal().any()
        for found in (bo.max_cut(graph), bo.min_balanced_cut(graph), bo.partition(graph, 3)):
            assert "loops at 2 vertices ignored" in repr(found)
    assert bo.max_cut(named, weights=None).cut == bo.max_cut([("a", "b"), ("b", "c")]).cut == 2
    assert "ignored" not in repr(bo.max_cut([("a", "b"), ("b", "c")]))


def test_options_reach_the_route():
    found = bo.max_cut(named("cycle"), solver="path", tol=1e-4)
    assert found.solver == "path"
    with pytest.raises(TypeError, match="no option 'smoothing'"):
        bo.min_balanced_cut(named("cycle"), solver="path", smoothing=0.5)
