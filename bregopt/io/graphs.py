"""Weighted undirected graphs from networkx, igraph, sparse and dense matrices, and edges."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import (
    Array,
    IntArray,
    MatrixLike,
    finite_array,
    rectangular,
    symmetric_matrix,
    symmetrized,
)
from bregopt.errors import require
from bregopt.io.matrices import labels_of
from bregopt.records import dataclass

_DIRECTED = "graph is directed; expected an undirected one, such as graph.{}()"


class VerticesAndEdges(Protocol):
    """A graph of networkx or igraph, for type checkers without stubs of these packages."""

    def is_directed(self) -> bool:
        """Whether edges have a direction."""


GraphLike = VerticesAndEdges | MatrixLike | Sequence[tuple[Any, Any]]  # or edges


@dataclass(frozen=True, eq=False)
class Graph:
    """A weighted undirected graph.

    Parameters
    ----------
    adjacency : csr_array of shape (n, n)
        Symmetric, zero on the diagonal.
    nodes : list
        The user's names of the vertices: networkx's nodes, the attribute "name" of igraph's vertices, the
        labels of a DataFrame, the sorted names that occur in edges, or ``0 .. n-1``.
    loops : array of shape (n,) or (0,)
        The weight of the loops at each vertex; of length 0 where the graph has none. A matrix has them on its
        diagonal.
    """

    adjacency: Any
    nodes: list[Hashable]
    loops: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def n(self) -> int:
        """The number of vertices."""
        return int(self.adjacency.shape[0])

    @property
    def laplacian(self) -> Any:
        """The Laplacian ``diag(A e) - A``, sparse."""
        return sp.csr_array(sp.diags_array(np.asarray(self.adjacency.sum(axis=1)).ravel()) - self.adjacency)

    def cut(self, side: IntArray) -> float:
        """Return the weight of the edges between the two sides that the signs `side` give."""
        edges = self.adjacency.tocoo()
        return float(edges.data[side[edges.row] != side[edges.col]].sum()) / 2


def read_graph(graph: Any, weights: Any = None, signed: bool = False, loops: bool = True) -> Graph:
    """Return a graph from any of the supported forms.

    Parameters
    ----------
    graph : networkx or igraph graph, sparse or dense array or DataFrame of shape (n, n), or edges
        Edges are an array of shape ``(m, 2)`` or a pair of arrays, of integers from 0 on or of strings, or a
        list of pairs of tuples. The vertices are those that occur in an edge, and parallel edges add up.
    weights : str or array of shape (m,), optional
        For networkx and igraph the name of the edge attribute (by default every edge has weight one); for
        edges their weights. Adjacency matrices contain their weights.
    signed : bool
        Whether weights may be negative.
    loops : bool
        Whether the graph may have edges from a vertex to itself, which no partition cuts.

    Raises
    ------
    TypeError, ValueError
        If the graph is directed, has negative or non-finite weights, loops without `loops`, an asymmetric
        matrix, or fewer than two vertices.
    """
    if hasattr(graph, "adjacency") and hasattr(graph, "is_directed"):
        adjacency, nodes = _from_networkx(graph, weights)
    elif hasattr(graph, "get_edgelist") and hasattr(graph, "is_directed"):
        adjacency, nodes = _from_igraph(graph, weights)
    elif _between_tuples(graph):
        nodes, edges = _numbered(graph)
        adjacency, _ = _from_edges(edges, weights)
    elif sp.issparse(graph) or _is_matrix(graph):
        if weights is not None:
            raise TypeError("weights: an adjacency matrix carries its own; expected None")
        adjacency, nodes = _from_matrix(graph)
    else:
        adjacency, nodes = _from_edges(graph, weights)
    adjacency.eliminate_zeros()
    if len(nodes) < 2:
        raise ValueError(f"graph has {len(nodes)} vertices; expected at least two")
    if not signed and adjacency.nnz and adjacency.data.min() < 0:
        name = "graph" if weights is None or isinstance(weights, str) else "weights"
        raise ValueError(f"{name} has the negative weight {adjacency.data.min():g}; expected none below 0")
    own = adjacency.diagonal()
    if not own.any():
        return Graph(adjacency, nodes)
    if not loops:
        raise ValueError(f"graph has a loop at vertex {nodes[np.flatnonzero(own)[0]]!r}; expected none")
    other = sp.csr_array(adjacency - sp.diags_array(own))
    other.eliminate_zeros()
    return Graph(other, nodes, own)


def _between_tuples(graph: Any) -> bool:
    """Whether a list holds edges between vertices that are named by tuples, as in networkx's grids."""
    return (
        isinstance(graph, list)
        and bool(graph)
        and all(isinstance(edge, tuple | list) and len(edge) == 2 for edge in graph)
        and all(isinstance(end, tuple) for edge in graph for end in edge)
    )


def _numbered(edges: list[Any]) -> tuple[list[Any], IntArray]:
    """Return the sorted names that occur in edges, and the edges between their numbers.

    Names that cannot be compared keep the order in which they occur.
    """
    names = list(dict.fromkeys(end for edge in edges for end in edge))
    with suppress(TypeError):
        names.sort()
    number = {name: k for k, name in enumerate(names)}
    return names, np.array([[number[a], number[b]] for a, b in edges])


def _is_matrix(graph: Any) -> bool:
    if isinstance(graph, tuple):
        return False
    array = rectangular(graph, "graph")
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.dtype.kind in "UO":
        return False
    # Of 2 x 2 integers that are no adjacency matrix the rows are two edges.
    integers = len(array) == 2 and array.dtype.kind in "iu"
    return not (integers and ((array != array.T).any() or array.diagonal().any()))


def _from_networkx(graph: Any, weights: Any) -> tuple[Any, list[Any]]:
    networkx = require("networkx", "graph")
    if graph.is_directed():
        raise TypeError(_DIRECTED.format("to_undirected"))
    if weights is not None:
        _attribute(graph.edges(data=_attribute_name(weights)), weights)
    if graph.number_of_nodes() == 0:
        raise ValueError("graph has 0 vertices; expected at least two")
    nodes = list(graph)
    adjacency = networkx.to_scipy_sparse_array(graph, nodelist=nodes, weight=weights, dtype=float)
    return sp.csr_array(adjacency), nodes


def _from_igraph(graph: Any, weights: Any) -> tuple[Any, list[Any]]:
    if graph.is_directed():
        raise TypeError(_DIRECTED.format("as_undirected"))
    n = graph.vcount()
    names = list(graph.vs["name"]) if "name" in graph.vs.attributes() else list(range(n))
    edges = graph.get_edgelist()
    values = np.ones(len(edges))
    if weights is not None:
        known = _attribute_name(weights) in graph.es.attributes()
        column = graph.es[weights] if known else [None] * len(edges)
        named = ((names[a], names[b], value) for (a, b), value in zip(edges, column, strict=True))
        values = _attribute(named, weights)
    ends = np.array(edges, dtype=np.intp).reshape(len(edges), 2).T
    return _undirected(values, ends, n), names


def _attribute_name(weights: Any) -> str:
    if not isinstance(weights, str):
        raise TypeError(f"weights is {type(weights).__name__}; expected the name of an edge attribute")
    return weights


def _attribute(edges: Iterable[tuple[Any, Any, Any]], name: str) -> Array:
    """Return the values of an attribute; raise unless every edge has it, a finite number."""
    values = []
    for a, b, value in edges:
        if value is None:
            raise ValueError(f"weights is {name!r}, which the edge from {a!r} to {b!r} does not have")
        values.append(value)
    return finite_array(values, f"weights={name!r} of graph")


def _from_matrix(graph: Any) -> tuple[Any, list[Any]]:
    labels = labels_of(graph, "graph")
    if not sp.issparse(graph):
        adjacency = sp.csr_array(symmetric_matrix(graph, "graph"))
    elif graph.ndim != 2 or graph.shape[0] != graph.shape[1]:
        raise ValueError(f"graph has shape {graph.shape}; expected a square adjacency matrix")
    else:
        finite_array(graph.tocoo().data, "graph")
        adjacency = sp.csr_array(symmetrized(sp.csr_array(graph, dtype=float, copy=True), "graph"))
    return adjacency, list(range(adjacency.shape[0]) if labels is None else labels)


def _from_edges(graph: Any, weights: Any) -> tuple[Any, list[Any]]:
    edges = rectangular(graph, "graph")
    if edges.ndim == 0:
        raise TypeError(
            f"graph is {type(graph).__name__}; expected a networkx or igraph graph, an adjacency matrix or "
            "edges"
        )
    pair_of_arrays = isinstance(graph, tuple) and len(graph) == 2
    if not pair_of_arrays:
        edges = edges.T
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.shape[1] == 0:
        third = "; a third column goes to weights=" if edges.ndim == 2 and len(edges) == 3 else ""
        raise ValueError(
            f"graph has shape {np.shape(graph)}; expected edges of shape (m, 2) or two index arrays, or a "
            f"square adjacency matrix{third}"
        )
    if edges.dtype.kind not in "iu":
        if not all(isinstance(label, str) for label in np.asarray(graph, dtype=object).ravel()):
            raise TypeError(
                f"graph has edges of dtype {edges.dtype}; expected integers, or strings alone: for whole "
                "numbers graph.astype(int)"
            )
        edges = edges.astype(str)
    elif edges.min() < 0:
        raise ValueError(f"graph has an edge with index {edges.min()}; expected none below 0")
    m = edges.shape[1]
    if isinstance(weights, str):
        raise TypeError(f"weights is {weights!r}, and edges have no attributes; expected {m} numbers")
    weight: Array = np.ones(m) if weights is None else finite_array(weights, "weights", ndim=1)
    if len(weight) != m:
        raise ValueError(f"weights has length {len(weight)}; expected {m}, one for each edge")
    vertices, ends = np.unique(edges, return_inverse=True)
    n = len(vertices)
    return _undirected(weight, ends.reshape(2, m), n), vertices.tolist()


def _undirected(weight: Array, ends: IntArray, n: int) -> Any:
    """Return the adjacency matrix of weighted edges; parallel ones add up."""
    half = sp.csr_array((weight, tuple(ends)), (n, n))
    return sp.csr_array(half + half.T - sp.diags_array(half.diagonal()))
