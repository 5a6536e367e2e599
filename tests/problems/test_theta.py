"""Theta numbers between independent sets and covers by cliques, by enumeration and by known values."""

import itertools

import numpy as np
import pytest
from samples import first, turns

import bregopt as bo
from bregopt.io.graphs import read_graph
from bregopt.problems.cuts import theta
from bregopt.problems.cuts.theta import WithoutDominated

networkx = pytest.importorskip("networkx")


def random_graph(seed, n=8, density=0.5):
    return networkx.gnp_random_graph(n, density, seed=seed)


def heaviest_set(graph, w):
    """The largest weight of an independent set, by enumeration."""
    sets = itertools.product([0, 1], repeat=len(graph))
    return max(
        sum(a * b for a, b in zip(x, w, strict=True))
        for x in sets
        if not any(x[i] and x[j] for i, j in graph.edges)
    )


def fewest_cliques(graph):
    """The clique cover number: the chromatic number of the complement, by enumeration."""
    other, n = networkx.complement(graph), len(graph)
    for k in range(1, n + 1):
        for colors in itertools.product(range(k), repeat=n - 1):
            color = (0, *colors)
            if all(color[i] != color[j] for i, j in other.edges):
                return k
    raise AssertionError


@pytest.mark.parametrize("seed", range(6))
def test_all_theta_numbers_are_between_sets_and_covers(seed):
    graph = random_graph(seed, 7, [0.3, 0.5, 0.7][seed % 3])
    found = [bo.lovasz_theta(graph, plus=plus) for plus in (True, False, "szegedy")]
    values = [sol.value for sol in found]
    assert heaviest_set(graph, np.ones(7)) <= found[0].dual_value * (1 + 1e-9)
    assert all(a <= b * (1 + 1e-6) for a, b in itertools.pairwise(values))
    assert values[2] <= fewest_cliques(graph) * (1 + 1e-9)
    for sol in found:
        chosen = sol.independent_set
        assert not graph.subgraph(chosen).edges
        assert len(chosen) <= sol.value
        assert sorted(v for own in sol.cliques for v in own) == list(graph)
        assert all(graph.has_edge(*pair) for own in sol.cliques for pair in itertools.combinations(own, 2))
        assert sol.dual_value <= len(sol.cliques)


# Schrijver's and Szegedy's numbers of a graph and its complement multiply to n for graphs whose automorphisms
# move every vertex to every other one (Szegedy 1994).
@pytest.mark.parametrize("graph", [networkx.cycle_graph(7), networkx.petersen_graph()])
def test_products_of_complements(graph):
    other = networkx.complement(graph)
    plain = bo.lovasz_theta(graph).value * bo.lovasz_theta(other).value
    mixed = bo.lovasz_theta(graph, plus="schrijver").value * bo.lovasz_theta(other, plus="szegedy").value
    assert plain == pytest.approx(len(graph), rel=1e-5)
    assert mixed == pytest.approx(len(graph), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_copies_of_vertices(seed):
    graph, w = random_graph(seed, 6), np.random.default_rng(seed).integers(0, 4, 6)
    w[0] = 2
    copies = [(v, k) for v in graph for k in range(w[v])]
    several = networkx.Graph()
    several.add_nodes_from(copies)
    several.add_edges_from((a, b) for a, b in itertools.combinations(copies, 2) if graph.has_edge(a[0], b[0]))
    found = bo.lovasz_theta(graph, w)
    assert found.value == pytest.approx(bo.lovasz_theta(several).value, rel=1e-5)
    assert heaviest_set(graph, w) <= found.dual_value * (1 + 1e-9)
    assert bo.lovasz_theta(graph, dict(enumerate(1e6 * w))).value == pytest.approx(
        1e6 * found.value, rel=1e-5
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_dense_graph_has_the_value_of_the_dual_and_a_feasible_matrix(weighted):
    # Of its complement no vertex has all neighbors of another one, so that none is left out.
    graph = networkx.complement(networkx.random_regular_graph(3, 20, seed=1))
    rng = np.random.default_rng(0)
    q = np.sqrt(rng.uniform(1, 3, 20)) if weighted else np.ones(20)
    near = read_graph(graph).adjacency != 0
    i, j = np.nonzero(np.triu(near.toarray()))
    a, b = np.nonzero(np.triu(near.toarray() == 0, 1))
    Z, t = bo.PSD(20), bo.Variable()
    rows = [bo.diag(Z) == t - q**2, Z[a, b] == -q[a] * q[b]]
    dual = bo.Problem(bo.Minimize(t), rows).solve(tol=1e-8)
    found = bo.lovasz_theta(graph, q**2, tol=1e-8)
    assert found.status == "optimal"
    assert found.value == pytest.approx(dual.value, rel=1e-6)
    assert dual.dual_value <= found.dual_value * (1 + 1e-9)
    assert np.linalg.eigvalsh(found.X)[0] >= -1e-12
    assert np.trace(found.X) == pytest.approx(1)
    assert np.abs(found.X[i, j]).max() <= 1e-8
    assert q @ found.X @ q == pytest.approx(found.value)
    own, _ = slack_of(graph, q**2, False, found)
    assert np.linalg.eigvalsh(own)[0] >= -1e-8 * found.value


def test_a_dense_graph_with_many_other_pairs():
    graph = networkx.complete_multipartite_graph(*[22] * 4)
    graph.remove_edges_from([(0, 30), (1, 50)])  # 22 cliques cover it still
    found = bo.lovasz_theta(graph)
    assert found.value <= 22 * (1 + 1e-6)
    assert found.dual_value == pytest.approx(22, rel=1e-5)


def slack_of(graph, w, plus, sol):
    """The matrix Z of the multipliers, and whether its entries have the signs of Schrijver or Szegedy."""
    q, M = np.sqrt(w), np.zeros((len(w), len(w)))
    near = networkx.to_numpy_array(graph) > 0
    t, *rest = sol.duals
    pairs = [np.nonzero(np.triu(near, 1)), np.nonzero(np.triu(~near, 1))]
    assert len(rest) == (2 if plus == "schrijver" else 1)
    for (i, j), own, sign in zip(pairs, rest, (1, -1), strict=False):
        M[i, j] = M[j, i] = sign * own / 2
    least = {"szegedy": M[near], "schrijver": -M[~near]}.get(plus, np.zeros(1)).min()
    return t * np.eye(len(w)) + M - np.outer(q, q), least


@pytest.mark.parametrize(
    ("plus", "weighted", "kind"), turns([False, "schrijver", "szegedy"], [False, True], ["random", "points"])
)
def test_vertices_that_others_dominate_are_left_out_of_the_same_problem(kind, weighted, plus, monkeypatch):
    graph, rng = random_graph(3, 24, 0.15), np.random.default_rng(1)
    if kind == "points":
        graph = networkx.random_geometric_graph(45, 0.2, seed=1)
    n = len(graph)
    w = rng.uniform(0, 3, n) if weighted else np.ones(n)
    w[5] = 0 if weighted else 1
    near = read_graph(graph).adjacency
    small = WithoutDominated(near, w)
    assert 1 < len(small.q) < n
    found = bo.lovasz_theta(graph, w, plus=plus)
    whole = theta._by_edges(near, np.sqrt(w), plus, {})
    assert found.value <= whole.dual_value * (1 + 1e-9)
    assert whole.value <= found.dual_value * (1 + 1e-9)
    assert found.value == pytest.approx(whole.value, rel=1e-5)
    X, q = np.asarray(found.X), np.sqrt(w)
    assert np.linalg.eigvalsh(X)[0] >= -1e-12
    assert np.trace(X) == pytest.approx(1)
    assert q @ X @ q == pytest.approx(found.value)
    assert max(X[i, j] if plus == "szegedy" else abs(X[i, j]) for i, j in graph.edges) <= 1e-6
    Z, least = slack_of(graph, w, plus, found)
    assert float(found.duals[0]) == pytest.approx(whole.value, rel=1e-5)
    assert np.linalg.eigvalsh(Z)[0] >= -1e-5 * whole.value
    assert least >= -1e-9


def test_a_vertex_stays_that_has_a_neighbor_of_its_own_or_is_heavier():
    graph = networkx.cycle_graph(5)  # nobody dominates anybody
    assert not WithoutDominated(read_graph(graph).adjacency, np.ones(5)).changed
    graph.add_edge(0, 2)  # 1 dominates 0 and 2, and the others are a path
    near = read_graph(graph).adjacency
    assert len(WithoutDominated(near, np.ones(5)).q) == 1
    assert not WithoutDominated(near, np.array([2.0, 1, 2, 1, 1])).changed
    assert bo.lovasz_theta(graph, [2, 1, 2, 1, 1]).value == pytest.approx(3)


def test_a_light_vertex_does_not_stand_for_its_heavier_neighbor():
    graph = networkx.cycle_graph(5)
    graph.add_edge(0, 5)
    found = bo.lovasz_theta(graph, [1, 1, 1, 1, 1, 0.1])
    assert found.dual_value >= 5**0.5  # of the cycle alone
    assert found.value >= 5**0.5 * (1 - 1e-6)


def test_theta_of_a_tree_is_the_size_of_its_largest_independent_set():
    tree = networkx.barabasi_albert_graph(1_600, 1, seed=2)
    found = bo.lovasz_theta(tree)
    matching = networkx.max_weight_matching(tree, maxcardinality=True)
    assert found.value == pytest.approx(1_600 - len(matching), rel=1e-12)  # Konig: a tree is bipartite
    assert found.dual_value == pytest.approx(found.value, rel=1e-12)
    assert isinstance(found.X, bo.LowRank)


@pytest.mark.parametrize("steps", [1, 20, 1_000])
def test_a_factor_is_tried_first_on_large_sparse_graphs(steps, monkeypatch, recwarn):
    graph = np.triu(np.random.default_rng(3).random((30, 30)) < 0.35, 1)
    graph = (graph | graph.T).astype(float)
    other = bo.lovasz_theta(graph, tol=1e-3)
    monkeypatch.setattr(theta, "_LOW_RANK_ORDERS", (5, 50))
    monkeypatch.setattr(theta, "_LOW_RANK_DEGREES", (1, 20))
    monkeypatch.setattr(theta, "_LOW_RANK_STEPS", steps)
    sol = bo.lovasz_theta(graph, tol=1e-3)
    assert sol.solver == ("lowrank" if steps > 1 else other.solver)
    assert sol.status == "optimal"
    assert sol.stop_reason == other.stop_reason
    assert max(sol.value, other.value) <= min(sol.dual_value, other.dual_value)
    X = np.asarray(sol.X)
    assert abs(X[graph > 0]).max() <= max(sol.primal_residual, 1e-8)  # the residual is that of this X
    assert not [w for w in recwarn if issubclass(w.category, bo.ConvergenceWarning)]


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_an_answer_that_is_cut_off_is_as_good_as_sets_and_covers():
    graph = random_graph(2, 120, 0.1)
    found = bo.lovasz_theta(graph, time_limit=1e-3)
    assert found.status == "user_limit"
    assert found.value >= len(found.independent_set) > 20
    assert found.value <= found.dual_value <= len(found.cliques) < 80
    X = np.asarray(found.X)
    assert np.ones(120) @ X @ np.ones(120) == pytest.approx(found.value)
    assert not any(X[i, j] for i, j in graph.edges)
    assert "an independent set of" in repr(found)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("weighted", [False, True])
def test_an_answer_between_two_steps_has_a_feasible_matrix(weighted):
    graph, rng = random_graph(0, 80, 0.2), np.random.default_rng(0)
    w = rng.uniform(1, 3, 80) if weighted else np.ones(80)
    exact = bo.lovasz_theta(graph, w)
    found = bo.lovasz_theta(graph, w, solver="lowrank", max_iter=40)
    assert found.status == "user_limit"
    assert found.primal_residual == 0
    X = np.asarray(found.X)
    assert np.linalg.eigvalsh(X)[0] >= -1e-15
    assert np.trace(X) == pytest.approx(1)
    assert not any(X[i, j] for i, j in graph.edges)
    assert np.sqrt(w) @ X @ np.sqrt(w) == pytest.approx(found.value)
    assert 0.8 * exact.value <= found.value <= exact.dual_value <= found.dual_value * (1 + 1e-6)
    assert found.value > 1.005 * w[found.independent_set].sum()  # the set alone is not as good


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize("n", first(1, [150, 300]))
def test_a_matrix_without_its_edges_is_shifted_where_it_lost_them(n):
    graph = networkx.watts_strogatz_graph(n, 10, 0.1, seed=2)
    i, j = np.array(graph.edges).T
    near, q = read_graph(graph).adjacency, np.ones(n)
    cut_off = theta._by_edges(near, q, False, {"solver": "lowrank", "max_iter": 30, "tol": 1e-6})
    found = theta._feasible(cut_off, near, q, 1e-6)
    Z = np.array(cut_off.X @ np.eye(n))
    Z[i, j] = Z[j, i] = 0
    Z += (1e-12 - np.linalg.eigvalsh(Z)[0]) * np.eye(n)
    root = np.sqrt(np.diag(Z))
    equally = np.linalg.eigvalsh(Z / np.outer(root, root))[-1]
    exact = bo.lovasz_theta(graph, tol=1e-6).value
    assert exact - found.value < 0.8 * (exact - equally)
    X = np.asarray(found.X)
    assert np.linalg.eigvalsh(X)[0] >= -1e-15
    assert not X[i, j].any()
    assert np.trace(X) == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_a_factor_with_orthogonal_rows_is_as_good_as_its_multipliers(monkeypatch):
    graph = networkx.gnm_random_graph(200, 1_000, seed=4)
    near, q = read_graph(graph).adjacency, np.ones(200)
    cut_off = theta._by_edges(near, q, False, {"solver": "lowrank", "max_iter": 25, "tol": 1e-6})
    found = theta._feasible(cut_off, near, q, 1e-6)
    t, edges = found.duals
    M = np.zeros((200, 200))
    i, j = np.nonzero(np.triu(networkx.to_numpy_array(graph), 1))
    M[i, j] = M[j, i] = edges / 2
    lowest = np.linalg.eigvalsh(M - np.ones((200, 200)))[0]
    assert t == pytest.approx(-lowest, rel=1e-10)
    assert found.dual_value == pytest.approx(t, rel=1e-10)
    exact = bo.lovasz_theta(graph, tol=1e-6)
    assert found.value <= exact.dual_value
    assert exact.value <= found.dual_value <= cut_off.dual_value
    assert not found.X[i, j].any()
    monkeypatch.setattr(theta, "_orthogonal", lambda R, near: R)
    plain = theta._feasible(cut_off, near, q, 1e-6)
    assert exact.value - found.value < 0.5 * (exact.value - plain.value)


@pytest.mark.parametrize("seed", range(2))
def test_steps_to_orthogonal_rows_converge(seed):
    graph = networkx.connected_watts_strogatz_graph(60, 6, 0.2, seed=seed)
    near, (i, j) = read_graph(graph).adjacency, np.array(graph.edges).T
    R = np.random.default_rng(seed).normal(size=(60, 20))
    missed = []
    for _ in range(6):
        missed.append(np.linalg.norm(np.sum(R[i] * R[j], axis=1)))
        R = theta._orthogonal(R, near)
    assert missed[-1] < 1e-6 * missed[0]


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_the_end_of_the_time_in_the_rounds_of_a_factor_keeps_the_answer(monkeypatch):
    graph = random_graph(2, 120, 0.1)
    monkeypatch.setattr(theta, "_LOW_RANK_ORDERS", (5, 500))
    monkeypatch.setattr(theta, "_LOW_RANK_DEGREES", (1, 20))
    found = bo.lovasz_theta(graph, tol=1e-9, time_limit=0.05)
    exact = bo.lovasz_theta(graph, tol=1e-6, solver="path")
    assert found.status == "user_limit"
    assert len(found.independent_set) <= found.value <= exact.dual_value
    assert exact.value <= found.dual_value


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
@pytest.mark.parametrize(("count", "gap"), [(1, np.inf), (2, 1e-2)])
def test_a_callback_ends_the_rounds_of_a_factor(count, gap, monkeypatch):
    graph = random_graph(2, 40, 0.3)
    monkeypatch.setattr(theta, "_LOW_RANK_ORDERS", (5, 50))
    monkeypatch.setattr(theta, "_LOW_RANK_DEGREES", (1, 20))
    monkeypatch.setattr(theta, "_LOW_RANK_GAP", gap)
    seen = []
    found = bo.lovasz_theta(graph, tol=1e-6, callback=lambda step: seen.append(step) or len(seen) == count)
    assert len(seen) == count
    assert found.status == "user_limit"
    assert found.value <= found.dual_value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"plus": "szegedi"}, "plus is 'szegedi'"),
        ({"weights": [1, 2]}, r"weights has shape \(2,\)"),
        ({"weights": [1, -1, 1]}, "none below 0"),
        ({"weights": [0, 0, 0]}, "one above"),
        ({"weights": {0: 1, 1: 1}}, "no number for vertex 2"),
        ({"weights": [1, np.nan, 1]}, "weights"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bo.lovasz_theta([(0, 1), (1, 2)], **arguments)
