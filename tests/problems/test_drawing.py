"""Layouts and drawings of graphs in parts."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist

import bregopt as bo
from bregopt.problems.cuts.answer import layout

networkx = pytest.importorskip("networkx")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _closed():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


GRAPHS = {
    "path": networkx.path_graph(9),
    "two vertices": networkx.path_graph(2),
    "star": networkx.star_graph(700),
    "complete": networkx.complete_graph(8),
    "grid": networkx.grid_2d_graph(6, 7),
    "large grid": networkx.grid_2d_graph(30, 25),
    "no edges": networkx.empty_graph(12),
    "components": networkx.disjoint_union(networkx.cycle_graph(9), networkx.empty_graph(4)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_layouts_tell_vertices_apart(name):
    A = networkx.to_scipy_sparse_array(GRAPHS[name])
    places = layout(A)
    assert places.shape == (A.shape[0], 2)
    assert np.isfinite(places).all()
    assert pdist(places).min() > 1e-3
    np.testing.assert_array_equal(places, layout(A))


def test_layouts_of_grids_keep_neighbors_near():
    A = networkx.to_scipy_sparse_array(GRAPHS["large grid"])
    places = layout(A)
    i, j = sp.triu(A).nonzero()
    lengths = np.linalg.norm(places[i] - places[j], axis=1)
    assert np.median(lengths) < 0.1 * np.median(pdist(places))


def test_weights_do_not_move_vertices():
    A = networkx.to_scipy_sparse_array(GRAPHS["grid"])
    np.testing.assert_array_equal(layout(A), layout(-3.5 * A))


def test_a_small_graph_shows_its_names_and_its_bound():
    found = bo.partition(networkx.karate_club_graph(), 3, bound="triangles")
    ax = found.plot()
    assert {text.get_text() for text in ax.texts} == {str(v) for v in range(34)}
    assert ax.get_title().startswith("cut 21, proven at least 20.")
    assert "so optimal\n3 parts of " in ax.get_title()
    lines = [c for c in ax.collections if hasattr(c, "get_segments")]
    assert len(lines[-1].get_segments()) == 21  # the edges between parts are drawn by themselves
    assert sum(len(c.get_segments()) for c in lines) == 78


def test_positions_may_be_given():
    graph = GRAPHS["grid"]
    pos = {v: v for v in graph}
    found = bo.min_balanced_cut(graph, bound=False)
    for given in (pos, np.array(list(graph))):
        ax = found.plot(pos=given)
        shown = np.concatenate([c.get_offsets() for c in ax.collections if not hasattr(c, "get_segments")])
        assert {tuple(map(int, place)) for place in shown} == set(graph)
    with pytest.raises(ValueError, match=r"pos has no position of vertex \(0, 0\)"):
        found.plot(pos={})
    with pytest.raises(ValueError, match=r"pos has shape \(1, 2\); expected \(42, 2\)"):
        found.plot(pos=[[0, 1]])


def test_large_graphs_are_drawn_as_matrices():
    found = bo.max_cut(networkx.cycle_graph(6_500), bound=False)
    ax = found.plot()
    assert len(ax.images) == 1
    assert not ax.collections
    pos = np.random.default_rng(0).normal(size=(6_500, 2))
    assert not found.plot(pos=pos).images


def test_the_convergence_stays_reachable():
    from matplotlib import pyplot

    found = bo.max_cut(networkx.karate_club_graph())
    ax = pyplot.figure().subplots()
    assert found.plot(ax) is ax
    assert found.plot_convergence().get_yscale() == "log"


def test_many_parts_differ_in_markers():
    found = bo.partition(GRAPHS["grid"], 10, bound=False)
    ax = found.plot()
    points = [c for c in ax.collections if not hasattr(c, "get_segments")]
    looks = {(tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in points}
    assert len(looks) == 10
