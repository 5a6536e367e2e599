"""The search for a good cut: moves of single vertices, on coarser and coarser graphs.

A partition is a vector ``s`` of signs, and a good one has a large ``s'Ws`` (:class:`SignGraph`). Cycles go
through coarser graphs (Karypis and Kumar 1998; Walshaw 2004 for kept partitions): heavy edges are contracted
in clusters of mostly two or three: ``s_i = sign_i z_c`` for the vertices ``i`` that a coarse vertex ``c``
owns. So ``s = Pz`` for a sparse matrix ``P`` of signs, and ``s'Ws = z'(P'WP)z``. Ends of edges with weights
above zero get equal signs, others opposite ones. On each graph rounds of single moves improve the partition
(Fiduccia and Mattheyses 1982).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.clock import remaining
from bregopt.records import cached_property, dataclass

__all__ = ["SHRINKS", "Contraction", "SignGraph", "contracted", "cycle", "drifts_away", "refined", "room"]

_COARSEST = 30  # vertices of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
SHRINKS = 0.95  # a contraction that leaves a larger share of the vertices is not worth its time
_STARTS, _STARTS_VERTICES = 4, 120  # most random partitions of the coarsest graph, and their vertices
_ROUNDS = 5  # of proposals; later rounds match few vertices
_TIES = 1e-3  # random factors of ratings, so that equal weights are matched in another way each time
# A round stops after so many moves without a better partition. It stops earlier where the mean and the
# variance of the gains since then, at least so many, make a better one unlikely (Osipov, Sanders 2010).
_PATIENCE = 100
_FEWEST_GAINS = 10
_MOVES = 256  # between looks at the clock
# Sides of a coarse graph may miss their sizes by so many mean vertices, but by no larger share of the smaller
# side: exact sizes of heavy vertices would cost more edges than the finer graphs need to mend the sizes.
_ROOM, _ROOM_SHARE = 2.0, 0.25


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
        if contraction.coarse.n <= SHRINKS * graph.n:
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
    """Return the contraction of random clusters of heavy edges.

    Parameters
    ----------
    graph : SignGraph
    kept : sequence of int arrays of shape (n,)
        Partitions that the coarse graph is to have, too: only edges that suit all of them are contracted.
    most : int
        The largest size of a coarse vertex.
    rng : numpy.random.Generator
    """
    center, sign = _clusters(graph, kept, most, rng)
    first, owner = np.unique(center, return_inverse=True)
    i, j, w = graph.edges.row, graph.edges.col, graph.edges.data
    outside = np.flatnonzero(owner[i] != owner[j])
    i, j, w = i[outside], j[outside], w[outside] * (sign[i] * sign[j])[outside]
    W = sp.csr_array((w, (owner[i], owner[j])), (len(first), len(first)))  # parallel edges add up
    size = np.bincount(owner, graph.size, len(first)).astype(np.intp)
    return Contraction(SignGraph(W, size, graph.least, graph.most), owner, sign, first)


def _clusters(
    graph: SignGraph, kept: Sequence[IntArray], most: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return the first vertex of the cluster of each vertex, and its sign relative to that one.

    In each round every free vertex proposes to the best free neighbor; two that propose to each other match.
    In the end each vertex that is still free joins the pair of its best neighbor, as far as sizes allow.
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
    center, sign, free = vertices.copy(), np.ones(graph.n, dtype=np.intp), np.ones(graph.n, dtype=bool)

    def best(use: Mask) -> tuple[IntArray, IntArray]:
        """Return the best neighbor of each vertex by some edges, and the sign of their edge."""
        most = np.zeros(graph.n)
        np.maximum.at(most, i[use], rating[use])
        top = np.flatnonzero(use)[rating[use] >= most[i[use]]]
        chosen, relation = vertices.copy(), np.ones(graph.n, dtype=np.intp)
        chosen[i[top]], relation[i[top]] = j[top], np.where(w[top] > 0, 1, -1)
        return chosen, relation

    for _ in range(_ROUNDS):
        chosen, relation = best(free[i] & free[j])
        second = np.flatnonzero((chosen[chosen] == vertices) & (chosen < vertices))
        center[second], sign[second] = chosen[second], relation[second]
        free[second] = free[chosen[second]] = False
    chosen, relation = best(free[i] & ~free[j])
    joins = np.flatnonzero(chosen != vertices)
    joins = joins[np.argsort(center[chosen[joins]], kind="stable")]
    near = chosen[joins]
    pair, size = center[near], np.cumsum(graph.size[joins])
    before = np.append(0, size)[np.searchsorted(pair, pair)]  # of those that join other pairs
    fits = np.bincount(center, graph.size, graph.n)[pair] + size - before <= most
    joins, near = joins[fits], near[fits]
    center[joins], sign[joins] = center[near], relation[joins] * sign[near]
    return center, sign


def refined(graph: SignGraph, side: IntArray) -> IntArray:
    """Return a partition that no round improves, or the best one when time is up."""
    while remaining() > 0:
        moves = _moves(graph, side)
        if not moves:
            break
        side = side.copy()
        side[moves] *= -1
    return side


def _moves(graph: SignGraph, side: IntArray) -> list[int]:
    """Return the moves of one round up to its best partition; none if no partition is better than the first.

    Each move takes the free vertex with the largest gain, possibly negative, and fixes it. The first side may
    be too large or too small by one vertex, so that vertices can change places. The next move then takes one
    from the side that is too large.

    This loop is the slowest one of a search, so it calls no functions. A heap of either side holds the
    negative gains, at first of vertices with a neighbor on the other side. A vertex whose gain rises is
    pushed again, and one whose gain falls keeps its place until it comes to the top: `place` is where it
    stands.
    """
    n, sizes, (starts, ends, weights) = graph.n, graph.sizes, graph.lists
    lowest, highest, first = graph.lowest, graph.highest, graph.first(side)
    slack, own = int(graph.size.max()), side.tolist()
    negative = side * (graph.W @ side)  # a quarter of the change of s'Ws by each move, less than zero
    excess = least = graph.excess(first)
    used = np.flatnonzero(negative < graph.inner) if not excess else np.arange(n)
    order = used[np.argsort(negative[used], kind="stable")]
    heaps = {}
    for s in (1, -1):
        these = order[side[order] == s]
        heaps[s] = list(zip(negative[these].tolist(), these.tolist(), strict=True))  # ascending, so a heap
    loss, place, free = negative.tolist(), negative.tolist(), [True] * n
    moves: list[int] = []
    kept, total, best = 0, 0.0, -graph.round_off
    lost = squares = 0.0  # the loss since the best partition, and the sum of the squares of its gains
    while len(moves) - kept <= _PATIENCE and not drifts_away(len(moves) - kept, lost, squares):
        if len(moves) % _MOVES == 0 and remaining() <= 0:
            break
        chosen, allowed = -1, max(slack, excess)
        for s in (1, -1):
            if first < lowest if s == 1 else first > highest:  # that side is too small already
                continue
            heap = heaps[s]
            while heap:
                top, v = heap[0]
                if not free[v] or top != place[v]:
                    heappop(heap)
                elif loss[v] > top:
                    place[v] = loss[v]
                    heapreplace(heap, (loss[v], v))
                else:
                    after = first - s * sizes[v]
                    if (chosen < 0 or top < loss[chosen]) and lowest - allowed <= after <= highest + allowed:
                        chosen = v
                    break
        if chosen < 0:
            break
        s, fall = own[chosen], loss[chosen]
        total, lost, squares = total + fall, lost + fall, squares + fall * fall
        free[chosen] = False
        for at in range(starts[chosen], starts[chosen + 1]):
            u = ends[at]
            if free[u]:
                loss[u] -= weights[at] if own[u] == s else -weights[at]
                if loss[u] < place[u]:
                    place[u] = loss[u]
                    heappush(heaps[own[u]], (loss[u], u))
        first -= s * sizes[chosen]
        excess = max(first - highest, lowest - first, 0)
        moves.append(chosen)
        if excess < least or (excess == least and total < best):
            least, best, kept = excess, total - graph.round_off, len(moves)
            lost = squares = 0.0
    return moves[:kept]


def drifts_away(count: int, lost: float, squares: float) -> bool:
    """Whether `count` gains have a negative mean ``m`` and variance ``v`` with ``count m^2 > v``."""
    return lost > 0 and count >= _FEWEST_GAINS and (count + 1) * lost * lost > count * squares


def room(mean: float, smallest: int) -> int:
    """Return by how much parts of a graph may miss their sizes: finer graphs can mend so much.

    Parameters
    ----------
    mean : float
        The mean size of the vertices.
    smallest : int
        The size of the smallest part.
    """
    return min(int(_ROOM * (mean - 1)), int(_ROOM_SHARE * smallest))


@dataclass(frozen=True, eq=False)
class SignGraph:
    """A graph and the allowed sizes of its sides; a partition is a vector ``s`` of signs with large ``s'Ws``.

    ``W`` holds the weights of the edges for a small cut, and their negatives for a large cut.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Symmetric, zero on the diagonal.
    size : int array of shape (n,)
        The number of vertices of the user's graph that each vertex stands for.
    least, most : int
        Bounds on the size of the first side, that of sign 1.
    """

    W: Any
    size: IntArray
    least: int
    most: int

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self.size)

    @cached_property
    def total(self) -> int:
        """The size of all vertices."""
        return int(self.size.sum())

    @property
    def free(self) -> bool:
        """Whether the sides may have any sizes."""
        return self.least <= 0 and self.most >= self.total

    @property
    def symmetric(self) -> bool:
        """Whether the sides may change places."""
        return self.least + self.most == self.total

    @cached_property
    def edges(self) -> Any:
        """The entries of ``W`` with their rows and columns."""
        return self.W.tocoo()

    @cached_property
    def lowest(self) -> int:
        """The least size of the first side that finer graphs can mend; it is `least` if all sizes are 1."""
        return self.least - self._room

    @cached_property
    def highest(self) -> int:
        """The largest size of the first side that finer graphs can mend."""
        return self.most + self._room

    @property
    def _room(self) -> int:
        return room(self.total / self.n, max(min(self.least, self.total - self.most), 0))

    @cached_property
    def sizes(self) -> list[int]:
        """The sizes as Python's integers."""
        sizes: list[int] = self.size.tolist()
        return sizes

    @cached_property
    def lists(self) -> tuple[list[int], list[int], list[float]]:
        """Where the neighbors of each vertex begin, the neighbors, and twice the weights of their edges."""
        return self.W.indptr.tolist(), self.W.indices.tolist(), (2 * self.W.data).tolist()

    @cached_property
    def inner(self) -> Array:
        """The loss by a move without neighbors on the other side; infinite if weights are below zero."""
        if (self.W.data < 0).any():
            return np.full(self.n, np.inf)
        return (1 - 1e-12) * np.asarray(self.W.sum(axis=1)).ravel()

    @cached_property
    def round_off(self) -> float:
        """A difference of values that round-off may make."""
        return 1e-12 * float(np.abs(self.W.data).sum())

    def value(self, side: IntArray) -> float:
        """Return ``s'Ws``."""
        return float(side @ (self.W @ side))

    def first(self, side: IntArray) -> int:
        """Return the size of the first side."""
        return int(self.size[side == 1].sum())

    def excess(self, first: int) -> int:
        """Return by how much a first side of this size is too large or too small."""
        return max(first - self.highest, self.lowest - first, 0)

    def rank(self, side: IntArray) -> tuple[int, float]:
        """Return a key by which partitions are compared: allowed sizes first, then large values."""
        return -self.excess(self.first(side)), self.value(side)

    def split(self, score: Array) -> IntArray:
        """Return the best partition into high and low scores that has an allowed size.

        With free sizes it is that by the signs of the scores.
        """
        if self.free:
            return np.where(score >= 0, 1, -1)
        order = np.argsort(-score, kind="stable")
        place = np.empty(self.n, dtype=np.intp)
        place[order] = np.arange(self.n)
        # An edge is cut by the first sides that hold its end with the higher score, and not the other one.
        edges = self.edges
        begin, end = place[edges.row], place[edges.col]
        once = begin < end
        change = np.bincount(begin[once] + 1, edges.data[once], self.n + 1)
        change -= np.bincount(end[once] + 1, edges.data[once], self.n + 1)
        first = np.concatenate([[0], np.cumsum(self.size[order])])
        excess = np.maximum(np.maximum(first - self.highest, self.lowest - first), 0)
        cut = np.where(excess == excess.min(), np.cumsum(change), np.inf)
        return np.where(place < int(np.argmin(cut)), 1, -1)
