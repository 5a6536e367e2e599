"""Cycles through coarser and coarser graphs (Karypis and Kumar 1998; Walshaw 2004 for kept partitions).

A graph is contracted along a matching of heavy edges: ``s_i = sign_i z_c`` for the vertices ``i`` that a
coarse vertex ``c`` owns. So ``s = Pz`` for a sparse matrix ``P`` of signs, and ``s'Ws = z'(P'WP)z``. Ends of
edges with weights above zero get equal signs, others opposite ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray
from bregopt.clock import remaining
from bregopt.problems.cuts.refinement import refined
from bregopt.problems.cuts.sign_graph import SignGraph

__all__ = ["Contraction", "contracted", "cycle"]

_COARSEST = 30  # vertices of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
_SHRINKS = 0.95  # a contraction that leaves a larger share of the vertices is not worth its time
_STARTS, _STARTS_VERTICES = 12, 360  # most random partitions of the coarsest graph, and their vertices
_ROUNDS = 5  # of proposals; later rounds match few vertices
_TIES = 1e-3  # random factors of ratings, so that equal weights are matched in another way each time


def cycle(graph: SignGraph, kept: Sequence[IntArray], rng: np.random.Generator) -> IntArray:
    """Return a partition found by contraction, search on the coarse graph, and refinement on the way back.

    When time is up it contracts and refines no further.

    Parameters
    ----------
    graph : SignGraph
    kept : sequence of int arrays of shape (n,)
        The answer is at least as good as each of these partitions. Without any it begins with random ones.
    rng : numpy.random.Generator
    """
    most = max(int(_LARGEST * graph.total / _COARSEST), 2)
    if graph.n > _COARSEST and remaining() > 0:
        contraction = contracted(graph, kept, most, rng)
        if contraction.coarse.n <= _SHRINKS * graph.n:
            # A vertex that stands for its coarse vertex has sign 1 in it.
            below = [side[contraction.first] for side in kept]
            found = refined(graph, contraction.fine(cycle(contraction.coarse, below, rng)))
            return max(found, *kept, key=graph.rank) if kept else found
    if kept:
        return refined(graph, max(kept, key=graph.rank))
    starts = min(max(_STARTS_VERTICES // graph.n, 1), _STARTS)
    sides = (refined(graph, graph.split(rng.normal(size=graph.n))) for _ in range(starts))
    return max(sides, key=graph.rank)


@dataclass(frozen=True, eq=False)
class Contraction:
    """A coarse graph and its relation to the fine one.

    Parameters
    ----------
    coarse : SignGraph
    owner, sign : int arrays of shape (n,)
        The coarse vertex of each vertex, and its sign relative to it.
    first : int array of shape (coarse.n,)
        A vertex of each coarse vertex, with sign 1.
    """

    coarse: SignGraph
    owner: IntArray
    sign: IntArray
    first: IntArray

    def fine(self, side: IntArray) -> IntArray:
        """Return the partition of the fine graph that a partition of the coarse one stands for."""
        return side[self.owner] * self.sign


def contracted(
    graph: SignGraph, kept: Sequence[IntArray], most: int, rng: np.random.Generator
) -> Contraction:
    """Return the contraction of a random matching of heavy edges.

    Parameters
    ----------
    graph : SignGraph
    kept : sequence of int arrays of shape (n,)
        Partitions that the coarse graph is to have, too: only edges that suit all of them are contracted.
    most : int
        The largest size of a coarse vertex.
    rng : numpy.random.Generator
    """
    partner, sign = _matching(graph, kept, most, rng)
    vertices = np.arange(graph.n)
    first = np.flatnonzero(vertices <= partner)
    owner = np.empty(graph.n, dtype=np.intp)
    owner[first] = owner[partner[first]] = np.arange(len(first))
    P = sp.csr_array((sign.astype(float), (vertices, owner)), (graph.n, len(first)))
    W = sp.csr_array(P.T @ graph.W @ P)
    W.setdiag(0.0)
    W.eliminate_zeros()
    size = np.bincount(owner, graph.size, len(first)).astype(np.intp)
    return Contraction(SignGraph(W, size, graph.least, graph.most), owner, sign, first)


def _matching(
    graph: SignGraph, kept: Sequence[IntArray], most: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return the partner of each vertex, itself where it has none, and the sign of the second of each pair.

    In each round every free vertex proposes to the best free neighbor; two that propose to each other match.
    """
    edges = graph.edges
    i, j, w = edges.row, edges.col, edges.data
    suits = graph.size[i] + graph.size[j] <= most
    if not graph.free:  # vertices of opposite signs have no common size
        suits &= w > 0
    for side in kept:
        suits &= w * side[i] * side[j] > 0
    i, j, w = i[suits], j[suits], w[suits]
    # Heavy edges between small vertices are good ones to contract (Holtgrewe, Sanders, Schulz 2010).
    noise = rng.random(graph.n)
    rating = np.abs(w) / (graph.size[i] * graph.size[j]) * (1 + _TIES * ((noise[i] + noise[j]) % 1))
    vertices = np.arange(graph.n)
    partner, sign = vertices.copy(), np.ones(graph.n, dtype=np.intp)
    for _ in range(_ROUNDS):
        best = np.zeros(graph.n)
        np.maximum.at(best, i, rating)
        top = rating >= best[i]
        chosen, relation = vertices.copy(), np.ones(graph.n)
        chosen[i[top]], relation[i[top]] = j[top], w[top]
        matched = np.flatnonzero((chosen[chosen] == vertices) & (chosen != vertices))
        partner[matched] = chosen[matched]
        second = matched[matched > chosen[matched]]
        sign[second] = np.where(relation[second] > 0, 1, -1)
        still = (partner == vertices)[i] & (partner == vertices)[j]
        i, j, w, rating = i[still], j[still], w[still], rating[still]
    return partner, sign
