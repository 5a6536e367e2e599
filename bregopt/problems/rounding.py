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
    W = graph.adjacency.toarray()
    uncut = np.einsum("ki,ki->k", sides @ W, sides)
    order = np.argsort(-uncut, kind="stable")
    return min((_improved(graph, W, side) for side in sides[order[:_IMPROVED]]), key=graph.cut)


def _splits(score: Array, slack: int) -> list[IntArray]:
    """Return the partitions into high and low scores, of every allowed size."""
    n = len(score)
    rank = np.empty(n, dtype=np.intp)
    rank[np.argsort(score, kind="stable")] = np.arange(n)
    sizes = range(max((n - slack) // 2, 1), min((n + slack) // 2, n - 1) + 1)
    return [np.where(rank < size, 1, -1) for size in sizes]


def _improved(graph: Graph, W: Array, side: IntArray) -> IntArray:
    """Return a partition of the same sizes that no round of swaps makes better."""
    while True:
        swapped = _swapped(W, side)
        if graph.cut(swapped) >= graph.cut(side):
            return side
        side = swapped


def _swapped(W: Array, side: IntArray) -> IntArray:
    """Return the best partition on the way of one round of swaps (Kernighan and Lin 1970).

    Each swap takes from either side the vertex that gains most, or loses least, and leaves it where it
    goes; so a round climbs out of partitions that no single swap improves.
    """
    now, free = side.copy(), np.ones(len(side), dtype=bool)
    gain = -now * (W @ now)  # what moving one vertex takes off the cut
    swaps, gains = [], []
    for _ in range(min((side == 1).sum(), (side == -1).sum())):
        a = int(np.argmax(np.where(free & (side == 1), gain, -np.inf)))
        together = gain - 2 * W[a]  # an edge from a stays in the cut if its other end moves too
        b = int(np.argmax(np.where(free & (side == -1), together, -np.inf)))
        swaps.append((a, b))
        gains.append(gain[a] + together[b])
        gain += 2 * now * (W[a] - W[b])
        now[[a, b]] = -now[[a, b]]
        free[[a, b]] = False
    kept = int(np.argmax(np.cumsum(gains))) + 1
    best = side.copy()
    for a, b in swaps[:kept]:
        best[[a, b]] = -side[[a, b]]
    return best
