"""``bo.communities`` against enumeration, networkx's modularity and search, and what users see of it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from samples import first

import bregopt as bo
from bregopt.io.graphs import read_graph
from bregopt.problems.cuts import communities as communities_module
from bregopt.program import LowRank
from bregopt.program.rows import Sum, algebra

networkx = pytest.importorskip("networkx")


def random_graph(rng, n, kind):
    """Return a symmetric matrix of weights, with a loop or none."""
    values = rng.integers(1, 6, (n, n)) * (1.0 if kind == "integers" else rng.random((n, n)))
    W = np.triu(values * (rng.random((n, n)) < 0.5), 1)
    W[0, 1] = 1.0
    W = W + W.T
    W[2, 2] = rng.integers(0, 3)
    return W


def exact_modularity(W, labels, resolution=1):
    """Return the modularity by its definition, in fractions; a loop counts twice in its degree."""
    A = [[Fraction(float(w)) for w in row] for row in W + np.diag(np.diag(W))]
    d = [sum(row) for row in A]
    total = sum(d)
    pairs = itertools.product(range(len(W)), repeat=2)
    gamma = Fraction(resolution)
    return sum(A[i][j] / total - gamma * d[i] * d[j] / total**2 for i, j in pairs if labels[i] == labels[j])


def all_labels(n):
    """Yield all partitions: each vertex has the number of an earlier part or the next one."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*labels, new] for labels in found for new in range(max(labels) + 2)]
    return found


@pytest.mark.parametrize(
    ("kind", "resolution"),
    first(2, [("integers", 1.0), ("reals", 1.75), ("reals", 0.5)]),
    ids=["1", "1.75", "0.5"],
)
@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_no_partition_is_better_than_the_bound(kind, resolution):
    W = random_graph(np.random.default_rng(int(4 * resolution)), 6, kind)
    best = max(exact_modularity(W, labels, resolution) for labels in all_labels(6))
    for bound in ("auto", "triangles", "sdp", False):
        found = bo.communities(W, resolution, bound=bound)
        truth = exact_modularity(W, found.labels, resolution)
        assert found.modularity == pytest.approx(float(truth), abs=1e-14)
        assert found.modularity == pytest.approx(float(best), abs=1e-14)
        assert Fraction(found.bound) >= best
        assert found.optimal == bool(bound)
        if bound in ("triangles", "sdp"):
            assert found.dual_value >= float(best) - 1e-6
            assert found.value == pytest.approx(found.dual_value, abs=2e-3)


def test_a_bound_beyond_all_pairs_is_that_of_the_pairs(monkeypatch):
    """Large graphs have their relaxation in sparse matrices and a vector, with loops on the diagonal."""
    W = random_graph(np.random.default_rng(3), 30, "reals")
    plain = bo.communities(W, 1.25, bound="sdp", tol=1e-7)
    monkeypatch.setattr("bregopt.problems.cuts.communities.LARGEST_ORDER", 20)
    large = bo.communities(W, 1.25, bound="sdp", tol=1e-7)
    assert large.bound == pytest.approx(plain.bound, abs=1e-6)
    assert large.labels.tolist() == plain.labels.tolist()
    assert large.bound >= large.modularity
    assert not large.optimal


@pytest.mark.parametrize(
    ("graph", "weight"),
    [
        (networkx.karate_club_graph(), None),
        (networkx.les_miserables_graph(), "weight"),
        (networkx.florentine_families_graph(), None),
        (networkx.planted_partition_graph(6, 30, 0.3, 0.05, seed=2), None),
    ],
    ids=["club", "novel", "families", "planted"],
)
def test_networkx_finds_none_better(graph, weight):
    found = bo.communities(graph, weights=weight, bound=False)
    assert found.modularity == pytest.approx(
        networkx.community.modularity(graph, found.communities, weight=weight), abs=1e-12
    )
    peers = [networkx.community.louvain_communities(graph, weight=weight, seed=seed) for seed in range(5)]
    peers.append(networkx.community.greedy_modularity_communities(graph, weight=weight))
    for peer in peers:
        assert found.modularity >= networkx.community.modularity(graph, peer, weight=weight) - 1e-12
    assert {name: found.assignments[name] for part in found.communities for name in part} == found.assignments
    sizes = [len(part) for part in found.communities]
    assert sizes == sorted(sizes, reverse=True)


def test_the_club_is_proven():
    """Its best modularity is known (Agarwal and Kempe 2008, table 1)."""
    found = bo.communities(networkx.karate_club_graph())
    assert found.optimal
    assert round(found.modularity, 4) == 0.4198
    assert [len(part) for part in found.communities] == [12, 11, 6, 5]
    assert "of 4 communities" in repr(found)
    assert "so optimal" in repr(found)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(scale):
    W = random_graph(np.random.default_rng(5), 25, "reals")
    plain, scaled = bo.communities(W, bound="sdp"), bo.communities(scale * W, bound="sdp")
    assert scaled.labels.tolist() == plain.labels.tolist()
    assert scaled.modularity == pytest.approx(plain.modularity)
    assert scaled.bound == pytest.approx(plain.bound, rel=1e-5)


def test_loops_count():
    """A heavy loop makes its vertex a community; networkx counts loops the same way."""
    graph = networkx.complete_graph(4)
    graph.add_edge(0, 0, weight=20)
    found = bo.communities(graph, weights=None)
    weighted = networkx.Graph(graph)
    networkx.set_edge_attributes(
        weighted, {e: weighted.edges[e].get("weight", 1) for e in weighted.edges}, "w"
    )
    heavy = bo.communities(weighted, weights="w")
    assert [0] in heavy.communities
    assert heavy.modularity == pytest.approx(
        networkx.community.modularity(weighted, heavy.communities, weight="w")
    )
    assert found.modularity != heavy.modularity


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (np.zeros((3, 3)), {}, "graph has no edges"),
        (np.ones((3, 3)), {"resolution": 0}, "resolution is 0; expected a number above 0"),
        (np.ones((3, 3)), {"resolution": np.nan}, "resolution"),
        (np.ones((3, 3)), {"bound": "lp"}, "bound is 'lp'"),
        (-np.ones((3, 3)), {}, "graph has the negative weight -1"),
        (sp.csr_array((501, 501)) + sp.eye_array(501), {"bound": "triangles"}, "at most 500"),
    ],
)
def test_bad_input_is_named(graph, options, message):
    with pytest.raises(ValueError, match=message):
        bo.communities(graph, **options)
    with pytest.raises(TypeError, match="option"):
        bo.communities(np.ones((3, 3)), resolutions=2)


@pytest.mark.filterwarnings("ignore::bregopt.ConvergenceWarning")
def test_a_time_limit_and_an_edge():
    assert bo.communities([("a", "b")]).communities == (["a", "b"],)
    two = bo.communities(sp.block_diag([sp.coo_array(np.ones((3, 3)) - np.eye(3))] * 2))
    assert [len(part) for part in two.communities] == [3, 3]
    graph = networkx.planted_partition_graph(10, 60, 0.2, 0.02, seed=1)
    found = bo.communities(graph, time_limit=0.5)
    assert found.timings["call"] < 5
    assert found.bound >= found.modularity > 0.3
    # However little time there is, the answer is not one community.
    assert bo.communities(graph, time_limit=1e-6).modularity > 0.3


@pytest.mark.parametrize(("n", "summed"), first(1, [(500, 400), (2_500, 2_000)]))
def test_the_relaxation_of_a_large_graph_needs_no_matrix_of_all_pairs(monkeypatch, n, summed):
    monkeypatch.setattr(algebra, "_LARGEST_SUMMED", summed)
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, n, (2, 4 * n))
    W = sp.coo_array((np.ones(4 * n), (i, j)), (n, n))
    graph = sp.csr_array(W + W.T)
    graph.setdiag(0)
    model = communities_module._Modularity(read_graph(graph), 1.5)
    problem, _ = model.relaxation()
    cost = problem.program().blocks[0].cost
    assert isinstance(cost, Sum)
    C = model.terms() - np.diag(1.5 * (model.degree / model.total) ** 2)  # which leaves out the diagonal
    assert cost.norms()[0] == pytest.approx(np.linalg.norm(C))
    np.testing.assert_allclose(cost.adjoint(np.ones(1)), -C, atol=1e-15)
    F = rng.normal(size=(n, 2))
    assert cost.apply(LowRank(F))[0] == pytest.approx(-np.sum(C * (F @ F.T)))
    assert cost.scale(np.array([-2.0])).entries(i[:50], j[:50]) == pytest.approx(2 * C[i[:50], j[:50]])
    assert cost.count() == len(cost.coordinates().row)
