"""The search for cuts: contraction, refinement, cycles and roundings, against their identities."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from samples import examples, first

import bregopt as bo
from bregopt import clock
from bregopt.io.graphs import read_graph
from bregopt.problems.cuts.coarsening import SignGraph, contracted, cycle, refined
from bregopt.problems.cuts.partition import PartSearch, clustered
from bregopt.problems.cuts.search import Search, ascended, assigned, divided

KINDS = ("balanced", "free", "unequal", "loose")


def random_weights(rng, n, density=0.4, signed=False):
    W = np.triu((rng.random((n, n)) < density) * rng.integers(1, 6, (n, n)), 1).astype(float)
    if signed:
        W *= np.where(rng.random((n, n)) < 0.5, -1, 1)
    return W + W.T


def sign_graph(W, kind):
    n = len(W)
    least, most = {
        "balanced": (n // 2, (n + 1) // 2),
        "free": (0, n),
        "unequal": (n // 3, n // 3),
        "loose": (n // 3, n - n // 3),
    }[kind]
    return SignGraph(sp.csr_array(W), np.ones(n, dtype=np.intp), least, most)


def allowed_sides(graph):
    """Return all allowed partitions of a small graph, one in each row."""
    sides = np.array(list(itertools.product([1, -1], repeat=graph.n)))
    first = (sides == 1).sum(axis=1)
    return sides[(first >= graph.least) & (first <= graph.most)]


@examples(20)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 40), kind=st.sampled_from(KINDS), kept=st.integers(0, 2))
def test_a_contraction_keeps_values_and_partitions(seed, n, kind, kept):
    """``s'Ws = z'(P'WP)z + const`` for all ``s = Pz``, and the kept partitions are such."""
    rng = np.random.default_rng(seed)
    graph = sign_graph(random_weights(rng, n, signed=kind == "free"), kind)
    sides = [graph.split(rng.normal(size=n)) for _ in range(kept)]
    contraction = contracted(graph, sides, 4, rng)
    coarse = contraction.coarse
    z = rng.choice([-1, 1], (5, coarse.n))
    dropped = [graph.value(contraction.fine(side)) - coarse.value(side) for side in z]
    # The diagonal of P'WP is left out: it is the same for all signs.
    np.testing.assert_allclose(dropped, dropped[0], atol=1e-9)
    assert coarse.total == graph.total
    assert coarse.size.max() <= 4
    for side in sides:
        below = side[contraction.first]
        np.testing.assert_array_equal(contraction.fine(below), side)
        if kind != "free":
            assert coarse.first(below) == graph.first(side)


@examples(20)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 60), kind=st.sampled_from(KINDS))
def test_refinement_is_never_worse(seed, n, kind):
    rng = np.random.default_rng(seed)
    graph = sign_graph(random_weights(rng, n, 0.2, signed=kind == "free"), kind)
    side = graph.split(rng.normal(size=n))
    before = side.copy()
    better = refined(graph, side)
    np.testing.assert_array_equal(side, before)
    assert graph.excess(graph.first(better)) == 0
    assert graph.value(better) >= graph.value(side)
    assert graph.value(refined(graph, better)) == graph.value(better)


@examples(10)
@given(seed=st.integers(0, 10_000), n=st.integers(20, 120), kind=st.sampled_from(KINDS))
def test_a_cycle_loses_no_kept_partition(seed, n, kind):
    rng = np.random.default_rng(seed)
    graph = sign_graph(random_weights(rng, n, 0.1, signed=kind == "free"), kind)
    kept = [refined(graph, graph.split(rng.normal(size=n))) for _ in range(2)]
    found = cycle(graph, kept, rng)
    assert graph.excess(graph.first(found)) == 0
    assert graph.value(found) >= max(map(graph.value, kept))


@examples(10)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 9), kind=st.sampled_from(KINDS[1:]))
def test_split_is_the_best_prefix_of_the_scores(seed, n, kind):
    rng = np.random.default_rng(seed)
    graph = sign_graph(random_weights(rng, n), kind)
    score = rng.normal(size=n)
    found = graph.split(score)
    if kind == "free":
        np.testing.assert_array_equal(found, np.where(score >= 0, 1, -1))
        return
    order = np.argsort(-score)
    prefixes = [np.where(np.argsort(order) < k, 1, -1) for k in range(graph.least, graph.most + 1)]
    assert graph.value(found) == pytest.approx(max(map(graph.value, prefixes)))


@examples(12)
@given(
    seed=st.integers(0, 10_000), n=st.integers(3, 10), kind=st.sampled_from(KINDS), density=st.floats(0, 1)
)
def test_the_search_finds_the_optimum_of_small_graphs(seed, n, kind, density):
    rng = np.random.default_rng(seed)
    graph = sign_graph(random_weights(rng, n, density, signed=kind == "free"), kind)
    search = Search(graph, rng, lambda side: False, {})
    search.run()
    best = max(map(graph.value, allowed_sides(graph)))
    assert graph.value(search.best) == pytest.approx(best)


def test_a_pool_keeps_its_best_partition():
    rng = np.random.default_rng(0)
    graph = sign_graph(random_weights(rng, 30), "balanced")
    search = Search(graph, rng, lambda side: False, {})
    most = graph.value(search.best)
    for _ in range(100):
        side = graph.split(rng.normal(size=30))
        search.add(side)
        most = max(most, graph.value(side))
        assert graph.value(search.best) == most
    lopsided = np.ones(30, dtype=np.intp)
    search.add(lopsided)  # not allowed: it would have the largest value
    assert graph.first(search.best) == 15


def test_the_search_ends_when_its_partition_is_proven():
    graph = sign_graph(np.zeros((40, 40)), "balanced")
    asked = []

    def proven(side):
        asked.append(side)
        return True

    Search(graph, np.random.default_rng(0), proven, {}).run()
    assert len(asked) <= 2


@pytest.mark.parametrize("kind", ["balanced", "free"])
def test_ascent_gains(kind):
    rng = np.random.default_rng(3)
    W = sp.csr_array(np.abs(random_weights(rng, 60, 0.2)) * (-1 if kind == "free" else 1))
    graph = sign_graph(W.toarray(), kind)
    R = rng.normal(size=(60, 3))
    start = R.copy()
    found = ascended(graph, R, 50)
    np.testing.assert_array_equal(R, start)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    unit = R / np.linalg.norm(R, axis=1)[:, None]
    assert np.sum(found * (W @ found)) > np.sum(unit * (W @ unit))
    if kind == "balanced":
        assert np.linalg.norm(found.mean(axis=0)) < 0.05


@pytest.mark.parametrize("sizes", [[10, 10, 10], [5, 7, 18], [1, 1, 28], [8, 8, 7, 7]])
def test_parts_have_their_sizes(sizes):
    rng = np.random.default_rng(1)
    W = sp.csr_array(random_weights(rng, 30, 0.2))
    search = PartSearch(W, sizes, rng, lambda found: False, {})
    search.run()
    np.testing.assert_array_equal(np.bincount(search.best), sizes)
    before = inner_weight(W, search.best)
    search.round_matrix(np.eye(30))
    np.testing.assert_array_equal(np.bincount(search.best), sizes)
    assert inner_weight(W, search.best) >= before


@examples(30)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(1, 40), min_size=3, max_size=8),
    kind=st.sampled_from(["random", "empty", "star", "pairs"]),
    limit=st.sampled_from([None, 1e-9]),
)
def test_parts_found_at_once_have_their_sizes(seed, sizes, kind, limit):
    rng, n = np.random.default_rng(seed), sum(sizes)
    W = random_weights(rng, n, 4 / n) if kind == "random" else np.zeros((n, n))
    if kind == "star":
        W[0, 1:] = W[1:, 0] = 1e-6
    if kind == "pairs":
        W[np.arange(n - 1), np.arange(1, n)] = W[np.arange(1, n), np.arange(n - 1)] = np.arange(1, n) % 2
    W = sp.csr_array(np.abs(W))
    before = W.copy()
    with clock.limited(limit):
        found = divided(W, sizes, rng)
    np.testing.assert_array_equal(np.bincount(found), sizes)
    assert (W != before).nnz == 0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_parts_found_at_once_are_planted_ones(scale):
    """Each vertex has more edges in its part than in all others, so the planted parts have the least cut."""
    rng, sizes = np.random.default_rng(3), [52] * 5
    part = rng.permutation(np.repeat(np.arange(5), sizes))
    same = np.equal.outer(part, part)
    W = np.triu(np.where(same, rng.random((260, 260)) < 0.5, rng.random((260, 260)) < 0.02), 1) * scale
    W = sp.csr_array(W + W.T)
    assert inner_weight(W, divided(W, sizes, rng)) == pytest.approx(inner_weight(W, part), rel=1e-12)


def inner_weight(W, part):
    return W.toarray()[np.equal.outer(part, part)].sum()


@examples(20)
@given(
    seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6), ties=st.booleans()
)
def test_clusters_have_their_sizes(seed, sizes, ties):
    rng = np.random.default_rng(seed)
    score = (
        rng.integers(0, 2, (sum(sizes), len(sizes))) if ties else rng.normal(size=(sum(sizes), len(sizes)))
    )
    np.testing.assert_array_equal(np.bincount(assigned(score, sizes)), sizes)
    F = np.zeros((sum(sizes), 3)) if ties else rng.normal(size=(sum(sizes), 3))
    np.testing.assert_array_equal(np.bincount(clustered(F, sizes, rng)), sizes)


def test_vectors_of_a_partition_are_clustered_to_it():
    sizes = [3, 5, 2, 7]
    part = np.random.default_rng(0).permutation(np.repeat(np.arange(4), sizes))
    found = clustered(np.eye(4)[part], sizes, np.random.default_rng(1))
    np.testing.assert_array_equal(np.equal.outer(found, found), np.equal.outer(part, part))


@examples(10)
@given(seed=st.integers(0, 10_000), n=st.integers(40, 100), kind=st.sampled_from(KINDS))
def test_coarse_graphs_leave_room_that_the_graph_itself_does_not(seed, n, kind):
    rng = np.random.default_rng(seed)
    graph = sign_graph(random_weights(rng, n, 0.1, signed=kind == "free"), kind)
    coarse = contracted(graph, [], 8, rng).coarse
    assert (graph.lowest, graph.highest) == (graph.least, graph.most)
    assert coarse.lowest <= coarse.least <= coarse.most <= coarse.highest
    if kind != "free":
        assert 0 < coarse.lowest
        assert coarse.highest < n


def large_graph(n=3_000):
    rng = np.random.default_rng(2)
    edges = rng.integers(0, n, (2 * n, 2))
    return edges[edges[:, 0] != edges[:, 1]]


@pytest.mark.parametrize("solve", [bo.min_balanced_cut, bo.max_cut, lambda *a, **o: bo.partition(*a, 4, **o)])
@pytest.mark.parametrize("rounds", first(1, [3, None]))
def test_the_same_seed_finds_the_same_partition(rounds, solve):
    edges, options = large_graph(50), {"bound": False, "rounds": rounds}
    found, again = (solve(edges, seed=7, **options) for _ in range(2))
    assert found.assignments == again.assignments
    assert solve(edges, seed=None, **options).cut > 0
    rng = np.random.default_rng(7)
    assert solve(edges, seed=rng, **options).assignments == found.assignments


@examples(7)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 45),
    degree=st.floats(0, 6),
    imbalance=st.sampled_from([0.02, 0.1, 0.3, 0.9]),
    bound=st.sampled_from([False, "sdp"]),
    weighted=st.booleans(),
)
def test_room_for_unequal_sides_is_no_worse(seed, n, degree, imbalance, bound, weighted):
    rng = np.random.default_rng(seed)
    W = random_weights(rng, n, min(degree / n, 1)) * (np.pi if weighted else 1)
    equal = bo.min_balanced_cut(W, bound=bound, seed=seed)
    loose = bo.min_balanced_cut(W, imbalance=imbalance, bound=bound, seed=seed)
    assert loose.cut <= equal.cut * (1 + 1e-12)
    assert loose.bound <= loose.cut
    assert abs(loose.partition.sum()) <= max(imbalance * n, n % 2)


@pytest.mark.parametrize(("n", "seed"), first(1, [(205, 0), (260, 0), (260, 1)]))
def test_room_is_no_worse_where_the_relaxation_improves_the_cut(n, seed):
    """Beyond 200 vertices the search comes first, and roundings of either relaxation improve it."""
    edges = large_graph(n)
    equal = bo.min_balanced_cut(edges, seed=seed)
    assert bo.min_balanced_cut(edges, imbalance=0.02, seed=seed).cut <= equal.cut


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaled_weights_find_scaled_cuts(scale):
    rng = np.random.default_rng(4)
    W = random_weights(rng, 24, 0.3)
    plain, scaled = bo.min_balanced_cut(W, bound=False), bo.min_balanced_cut(scale * W, bound=False)
    assert scaled.cut == pytest.approx(scale * plain.cut)
    plain, scaled = bo.max_cut(W), bo.max_cut(scale * W)
    assert scaled.cut == pytest.approx(scale * plain.cut)
    assert scaled.bound >= scaled.cut
    assert scaled.bound == pytest.approx(scale * plain.bound, rel=0.05)


def test_a_relabeled_graph_has_the_same_cut():
    rng = np.random.default_rng(5)
    W = random_weights(rng, 20, 0.3)
    order = rng.permutation(20)
    for solve in (bo.min_balanced_cut, bo.max_cut):
        first, again = solve(W), solve(W[order][:, order])
        assert again.cut == first.cut


@pytest.mark.parametrize(("limit", "first"), [(None, "bound"), (60.0, "search")])
def test_the_first_bound_of_a_large_graph_comes_before_the_search(limit, first, monkeypatch):
    """Unless there is a time limit: then the search has its share of the time."""
    events, run = [], Search.run

    def searching(self, *args):
        events.append("search")
        run(self, *args)

    def watched(step):
        assert np.isfinite(step.bound)
        events.append("bound")

    monkeypatch.setattr(Search, "run", searching)
    W = random_weights(np.random.default_rng(1), 230, 0.02)
    found = bo.min_balanced_cut(W, callback=watched, time_limit=limit)
    assert events[0] == first
    assert events.count("search") == 1
    assert found.bound <= found.cut


def test_all_cuts_of_a_small_graph_are_compared():
    rng = np.random.default_rng(0)
    W = random_weights(rng, 12, 0.5)
    for found in (bo.max_cut(W), bo.min_balanced_cut(W, imbalance=0.5), bo.partition(W, 3)):
        assert found.optimal
        assert found.X is None
        assert found.bound == found.cut == found.value == found.dual_value
        assert "All partitions were compared" in repr(found)
    relaxed = bo.max_cut(W, bound="sdp")
    assert relaxed.X.shape == W.shape
    assert relaxed.cut == bo.max_cut(W).cut
    assert bo.max_cut(W, solver="path").X is not None


def test_without_a_bound_nothing_is_relaxed():
    found = bo.max_cut(random_weights(np.random.default_rng(0), 10), bound=False)
    assert found.X is None
    assert "bound=False" in found.stop_reason
    assert found.bound == read_graph(found.graph.adjacency).adjacency.sum() / 2


@examples(10)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 8), density=st.floats(0, 1), signed=st.booleans())
def test_triangles_bound_all_cuts(seed, n, density, signed):
    W = random_weights(np.random.default_rng(seed), n, density, signed)
    sides = np.array(list(itertools.product([1, -1], repeat=n)))
    cuts = (W.sum() - np.einsum("ki,ij,kj->k", sides, W, sides)) / 4
    found = bo.max_cut(W, bound="triangles")
    assert found.cut == pytest.approx(cuts.max())
    assert found.bound >= cuts.max() - 1e-9
    first = 1 + seed % (n - 1)
    least = cuts[(sides == 1).sum(axis=1) == first].min()
    if not signed:
        found = bo.min_balanced_cut(W, sizes=(first, n - first), bound="triangles")
        assert found.cut == pytest.approx(least)
        assert found.bound <= least + 1e-9
        assert [len(side) for side in found.sides] == [first, n - first]
