"""Weighted undirected graphs from networkx, scipy sparse matrices, dense matrices and edge arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bregopt.arrays import Array, IntArray, finite_array, symmetric_matrix
from bregopt.errors import require

__all__ = ["Graph", "read_graph"]


@dataclass(frozen=True, eq=False)
class Graph:
    """A weighted undirected graph.

    Parameters
    ----------
    adjacency : csr_array of shape (n, n)
        Symmetric, not negative, zero on the diagonal.
    nodes : list
        What the user calls the vertices; ``0 .. n-1`` where they have no names.
    """

    adjacency: Any
    nodes: list[Any]

    @property
    def n(self) -> int:
        """The number of vertices."""
        return int(self.adjacency.shape[0])

    @property
    def laplacian(self) -> Any:
        """The Laplacian ``diag(A e) - A``, sparse."""
        return sp.csr_array(sp.diags_array(np.asarray(self.adjacency.sum(axis=1)).ravel()) - self.adjacency)

    @property
    def components(self) -> int:
        """The number of connected components."""
        return int(connected_components(self.adjacency, directed=False)[0])

    def cut(self, side: IntArray) -> float:
        """Return the weight of the edges between the sides of a vector of signs."""
        return float(side @ (self.laplacian @ side)) / 4


def read_graph(graph: Any, weights: Any = None) -> Graph:
    """Return a graph from whatever holds one.

    Parameters
    ----------
    graph : networkx graph, sparse or dense array of shape (n, n), or edges
        Edges are an integer array of shape ``(m, 2)`` or a pair of index arrays; vertices are then
        ``0 .. largest index``, and parallel edges add up.
    weights : str or array of shape (m,), optional
        For networkx the name of the edge attribute (without it every edge weighs one); for edges their
        weights. Adjacency matrices carry their own.

    Raises
    ------
    TypeError, ValueError
        Directed graphs, loops, negative or non-finite weights, matrices that are not symmetric, fewer than
        two vertices.
    """
    if hasattr(graph, "adjacency") and hasattr(graph, "is_directed"):
        adjacency, nodes = _from_networkx(graph, weights)
    elif sp.issparse(graph) or _is_matrix(graph):
        if weights is not None:
            raise TypeError("weights: an adjacency matrix carries its own; expected None")
        adjacency, nodes = _from_matrix(graph), None
    else:
        adjacency, nodes = _from_edges(graph, weights), None
    adjacency.eliminate_zeros()
    n = adjacency.shape[0]
    if n < 2:
        raise ValueError(f"graph has {n} vertices; expected at least two")
    if adjacency.nnz and adjacency.data.min() < 0:
        raise ValueError(f"graph has the negative weight {adjacency.data.min():g}; expected none below 0")
    if adjacency.diagonal().any():
        loop = int(np.flatnonzero(adjacency.diagonal())[0])
        raise ValueError(f"graph has a loop at vertex {loop}; expected none (a loop is never cut)")
    return Graph(adjacency, list(range(n)) if nodes is None else nodes)


def _is_matrix(graph: Any) -> bool:
    if isinstance(graph, tuple):
        return False
    array = np.asarray(graph)
    square = array.ndim == 2 and array.shape[0] == array.shape[1]
    return square and not (len(array) == 2 and _two_edges(array))


def _two_edges(array: Any) -> bool:
    """Whether a 2 x 2 array holds two edges: integers that are no adjacency matrix."""
    return array.dtype.kind in "iu" and bool((array != array.T).any() or array.diagonal().any())


def _from_networkx(graph: Any, weights: Any) -> tuple[Any, list[Any]]:
    networkx = require("networkx", "graph")
    if graph.is_directed():
        raise TypeError("graph is directed; expected an undirected one, such as graph.to_undirected()")
    if weights is not None and not isinstance(weights, str):
        raise TypeError(f"weights is {type(weights).__name__}; expected the name of an edge attribute")
    if graph.number_of_nodes() == 0:
        raise ValueError("graph has 0 vertices; expected at least two")
    nodes = list(graph)
    adjacency = sp.csr_array(
        networkx.to_scipy_sparse_array(graph, nodelist=nodes, weight=weights, dtype=float)
    )
    finite_array(adjacency.data, "weights of graph")
    return adjacency, nodes


def _from_matrix(graph: Any) -> Any:
    if not sp.issparse(graph):
        return sp.csr_array(symmetric_matrix(graph, "graph"))
    adjacency = sp.csr_array(graph, dtype=float, copy=True)
    if adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"graph has shape {adjacency.shape}; expected a square adjacency matrix")
    finite_array(adjacency.data, "graph")
    skew = abs(adjacency - adjacency.T)
    if skew.nnz and skew.max() > 1e-10 * abs(adjacency).max():
        raise ValueError(f"graph is not symmetric: off by {skew.max():g}; expected an undirected graph")
    return adjacency


def _from_edges(graph: Any, weights: Any) -> Any:
    edges = np.asarray(graph).T if not isinstance(graph, tuple) else np.asarray(graph)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.shape[1] == 0:
        raise ValueError(
            f"graph has shape {np.shape(graph)}; expected edges of shape (m, 2) or two index arrays"
        )
    if edges.dtype.kind not in "iu":
        raise TypeError(f"edges have dtype {edges.dtype}; expected integers")
    if edges.min() < 0:
        raise ValueError(f"edges have the index {edges.min()}; expected none below 0")
    m, n = edges.shape[1], int(edges.max()) + 1
    weight: Array = np.ones(m) if weights is None else finite_array(weights, "weights", ndim=1)
    if len(weight) != m:
        raise ValueError(f"weights has length {len(weight)}; expected {m}, one for each edge")
    if (weight < 0).any():
        raise ValueError(f"weights has the negative weight {weight.min():g}; expected none below 0")
    i, j = edges
    half = sp.csr_array((weight, (i, j)), (n, n))
    if half.diagonal().any():
        raise ValueError(
            f"graph has a loop at vertex {int(np.flatnonzero(half.diagonal())[0])}; expected none"
        )
    return sp.csr_array(half + half.T)
