"""From the answer of a cut's relaxation to a partition: random hyperplanes, then swaps."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.interop.graphs import Graph
from bregopt.program.lowrank import LowRank

__all__ = ["best_partition"]

_HYPERPLANES = 50
_LEADING = 3  # eigenvectors of X that are tried as directions too
_IMPROVED = 5  # of the roundings, the best ones


def best_partition(graph: Graph, X: LowRank, slack: int, rng: np.random.Generator) -> IntArray:
    """Return the best of several roundings of the relaxation's answer, each improved by swaps.

    Parameters
    ----------
    graph : Graph
    X : LowRank of shape (n, n)
        Its factor's rows are vectors, close for vertices that belong together.
    slack : int
        The largest allowed difference of the sizes of the sides, of the parity of ``n``.
    rng : numpy.random.Generator

    Returns
    -------
    int array of shape (n,)
        The side of each vertex, 1 or -1.
    """
    U, s, _ = np.linalg.svd(X.factor, full_matrices=False)
    random = X.factor @ rng.normal(size=(X.rank, _HYPERPLANES))
    scores = np.column_stack([(U * s)[:, :_LEADING], random])
    sides = np.unique([side for score in scores.T for side in _splits(score, slack)], axis=0)
    order = np.argsort([graph.cut(side) for side in sides], kind="stable")
    return min((_improved(graph, side) for side in sides[order[:_IMPROVED]]), key=graph.cut)


def _splits(score: Array, slack: int) -> list[IntArray]:
    """Return the partitions into high and low scores, of every allowed size."""
    n = len(score)
    rank = np.empty(n, dtype=np.intp)
    rank[np.argsort(score, kind="stable")] = np.arange(n)
    sizes = range((n - slack) // 2, (n + slack) // 2 + 1)
    return [np.where(rank < size, 1, -1) for size in sizes if 0 < size < n]


def _improved(graph: Graph, side: IntArray) -> IntArray:
    """Return a partition of the same sizes that no round of swaps makes better."""
    while True:
        swapped = _swapped(graph, side)
        if graph.cut(swapped) >= graph.cut(side):
            return side
        side = swapped


def _swapped(graph: Graph, side: IntArray) -> IntArray:
    """Return the best partition on the way of one round of swaps (Kernighan and Lin 1970).

    Each swap takes from either side the vertex that gains most, or loses least, and leaves it where it
    goes; so a round climbs out of partitions that no single swap improves.
    """
    now, free = side.copy(), np.ones(graph.n, dtype=bool)
    gain = -now * (graph.adjacency @ now)  # what moving one vertex takes off the cut
    swaps, gains = [], []
    for _ in range(min((side == 1).sum(), (side == -1).sum())):
        a = int(np.argmax(np.where(free & (side == 1), gain, -np.inf)))
        beside_a = graph.adjacency[[a]].toarray().ravel()
        together = gain - 2 * beside_a  # an edge from a stays in the cut if its other end moves too
        b = int(np.argmax(np.where(free & (side == -1), together, -np.inf)))
        beside_b = graph.adjacency[[b]].toarray().ravel()
        swaps.append((a, b))
        gains.append(gain[a] + together[b])
        gain += 2 * now * (beside_a - beside_b)
        now[[a, b]] = -now[[a, b]]
        free[[a, b]] = False
    kept = int(np.argmax(np.cumsum(gains))) + 1
    best = side.copy()
    for a, b in swaps[:kept]:
        best[[a, b]] = -side[[a, b]]
    return best
