"""Graphs on the rows of a matrix: pairs, masks, labels, networkx and igraph graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import rectangular
from bregopt.errors import did_you_mean
from bregopt.io.pandas_labels import Labels, aligned
from bregopt.problems.nearest_arguments import LABELS_SHOWN, Pairs, fixed_pairs

__all__ = ["read_edges"]


def read_edges(edges: Any, n: int, labels: Labels) -> Pairs:
    """Return the ends ``i < j`` of the edges, each edge once.

    Parameters
    ----------
    edges : networkx or igraph graph, symmetric mask of shape (n, n), or pairs of shape (k, 2)
        Vertices are integers from 0 to n - 1, or the labels of the matrix.
    n : int
    labels : pandas.Index or None

    Raises
    ------
    TypeError, ValueError
        If the edges are none of these, or the graph is directed or has other vertices.
    """
    if hasattr(edges, "is_directed"):
        return fixed_pairs(_of_graph(edges, n, labels), n, None, "edges")
    if sp.issparse(edges):
        edges = rectangular(edges, "edges") != 0
    return fixed_pairs(aligned(edges, labels, "edges"), n, labels, "edges", "S")


def _of_graph(graph: Any, n: int, labels: Labels) -> Any:
    """Return the edges of a graph as pairs of positions."""
    if graph.is_directed():
        raise TypeError(
            "edges is a directed graph; expected an undirected one, such as graph.to_undirected()"
        )
    if hasattr(graph, "get_edgelist"):
        names = graph.vs["name"] if "name" in graph.vs.attributes() else range(graph.vcount())
        pairs = [(names[a], names[b]) for a, b in graph.get_edgelist()]
    else:
        names, pairs = graph.nodes, list(graph.edges(data=False))
    place = {name: k for k, name in enumerate(range(n) if labels is None else labels)}
    unknown = next((name for name in names if name not in place), None)
    if unknown is not None:
        hint = did_you_mean(str(unknown), map(str, place), LABELS_SHOWN) if labels is not None else ""
        expected = f"integers from 0 to {n - 1}" if labels is None else "labels of the matrix"
        raise ValueError(f"edges has the vertex {unknown!r}{hint}; expected {expected}")
    return np.array([(place[pair[0]], place[pair[1]]) for pair in pairs], dtype=np.intp).reshape(-1, 2)
