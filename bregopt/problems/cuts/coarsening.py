"""The search for a good cut: moves of single vertices, on coarser and coarser graphs.

A partition is a vector ``s`` of signs, and a good one has a large ``s'Ws`` (:class:`SignGraph`). Cycles go
through coarser graphs (Karypis and Kumar 1998; Walshaw 2004 for kept partitions): a graph is contracted along
a matching of heavy edges: ``s_i = sign_i z_c`` for the vertices ``i`` that a coarse vertex ``c`` owns. So
``s = Pz`` for a sparse matrix ``P`` of signs, and ``s'Ws = z'(P'WP)z``. Ends of edges with weights above zero
get equal signs, others opposite ones. On each graph rounds of single moves improve the partition (Fiduccia
and Mattheyses 1982).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.clock import remaining
from bregopt.records import cached_property, dataclass

__all__ = ["Contraction", "SignGraph", "contracted", "cycle", "refined"]

_COARSEST = 30  # vertices of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
_SHRINKS = 0.95  # a contraction that leaves a larger share of the vertices is not worth its time
_STARTS, _STARTS_VERTICES = 4, 120  # most random partitions of the coarsest graph, and their vertices
_ROUNDS = 5  # of proposals; later rounds match few vertices
_TIES = 1e-3  # random factors of ratings, so that equal weights are matched in another way each time
# A round stops after so many moves without a better partition, or this share of the vertices. Ten times as
# many find no better cuts of the graphs in benchmarks/large_cuts.py.
_PATIENCE_SMALL, _PATIENCE, _PATIENCE_SHARE = 20, 100, 0.02
# It stops earlier where the mean and the variance of the gains since then, at least so many, make a better
# partition unlikely (Osipov, Sanders 2010).
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


def refined(graph: SignGraph, side: IntArray) -> IntArray:
    """Return a partition that no round improves, or the best one when time is up."""
    while remaining() > 0:
        moves = _Round(graph, side).moves()
        if not moves:
            break
        side = side.copy()
        side[moves] *= -1
    return side


class _Round:
    """One round: each move takes the free vertex with the largest gain, possibly negative, and fixes it.

    The first side may be too large or too small by one vertex, so that vertices can change places. The next
    move then takes one from the side that is too large.
    """

    def __init__(self, graph: SignGraph, side: IntArray) -> None:
        self._graph = graph
        self._first, self._lowest, self._highest = graph.first(side), graph.lowest, graph.highest
        self._slack = int(graph.size.max())
        # A quarter of the change of s'Ws by the move of each vertex.
        gain = -side * (graph.W @ side)
        self._side, self._gain = side.tolist(), gain.tolist()
        self._free = [True] * graph.n
        # The vertices of either side in two lists: by their first gain, the largest last, and a heap of those
        # whose gain has changed. A vertex keeps its place when its gain falls, until it comes to the top.
        order = np.argsort(gain, kind="stable")
        self._queues = {s: order[side[order] == s].tolist() for s in (1, -1)}
        self._heaps: dict[int, list[tuple[float, int]]] = {1: [], -1: []}
        self._initial, self._place = gain.tolist(), gain.tolist()

    def moves(self) -> list[int]:
        """Return the moves up to the best partition; none if no partition is better than the first."""
        n = self._graph.n
        patience = max(min(_PATIENCE, _PATIENCE_SMALL + n // 4), int(_PATIENCE_SHARE * n))
        moves: list[int] = []
        kept, total, best = 0, 0.0, self._graph.round_off
        lost = squares = 0.0  # the loss since the best partition, and the sum of the squares of its gains
        least = self._excess(self._first)
        while len(moves) - kept <= patience and not _drifts_away(len(moves) - kept, lost, squares):
            if len(moves) % _MOVES == 0 and remaining() <= 0:
                break
            v = self._next()
            if v is None:
                break
            gain = self._gain[v]
            total, lost, squares = total + gain, lost - gain, squares + gain * gain
            self._move(v)
            moves.append(v)
            excess = self._excess(self._first)
            if excess < least or (excess == least and total > best):
                least, best, kept = excess, total + self._graph.round_off, len(moves)
                lost = squares = 0.0
        return moves[:kept]

    def _next(self) -> int | None:
        """Return the vertex with the largest gain whose move the sizes allow."""
        first, sizes = self._first, self._graph.sizes
        allowed = max(self._slack, self._excess(first))
        chosen, most = None, 0.0
        for s in (1, -1):
            if first < self._lowest if s == 1 else first > self._highest:  # that side is too small already
                continue
            v = self._top(s)
            if v is None or (chosen is not None and self._gain[v] <= most):
                continue
            if self._excess(first - s * sizes[v]) <= allowed:
                chosen, most = v, self._gain[v]
        return chosen

    def _excess(self, first: int) -> int:
        """Return ``SignGraph.excess``: this loop is the slowest one of a search."""
        if first > self._highest:
            return first - self._highest
        return self._lowest - first if first < self._lowest else 0

    def _top(self, s: int) -> int | None:
        """Return the free vertex of one side with the largest gain."""
        queued, heaped = self._first_in_queue(s), self._first_in_heap(s)
        if queued is None or heaped is None:
            return heaped if queued is None else queued
        return queued if self._gain[queued] > self._gain[heaped] else heaped

    def _first_in_queue(self, s: int) -> int | None:
        queue, gain, free, initial = self._queues[s], self._gain, self._free, self._initial
        while queue:
            v = queue[-1]
            if free[v]:
                if gain[v] == initial[v]:
                    return v
                if gain[v] < initial[v]:
                    self._place[v] = gain[v]
                    heappush(self._heaps[s], (-gain[v], v))
            queue.pop()
        return None

    def _first_in_heap(self, s: int) -> int | None:
        heap, gain, free, place = self._heaps[s], self._gain, self._free, self._place
        while heap:
            most, v = heap[0]
            if not free[v] or -most != place[v]:
                heappop(heap)
            elif gain[v] < place[v]:
                place[v] = gain[v]
                heapreplace(heap, (-gain[v], v))
            else:
                return v
        return None

    def _move(self, v: int) -> None:
        """Move a vertex to the other side and fix it there."""
        side, gain, free, place, heaps = self._side, self._gain, self._free, self._place, self._heaps
        moved = side[v]
        free[v] = False
        for u, w in self._graph.near(v):
            if free[u]:
                gain[u] += w if side[u] == moved else -w
                if gain[u] > place[u]:
                    place[u] = gain[u]
                    heappush(heaps[side[u]], (-gain[u], u))
        side[v] = -moved
        self._first -= moved * self._graph.sizes[v]


def _drifts_away(count: int, lost: float, squares: float) -> bool:
    """Whether `count` gains have a negative mean ``m`` and variance ``v`` with ``count m^2 > v``."""
    return lost > 0 and count >= _FEWEST_GAINS and (count + 1) * lost * lost > count * squares


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
        smaller = max(min(self.least, self.total - self.most), 0)
        return min(int(_ROOM * (self.total / self.n - 1)), int(_ROOM_SHARE * smaller))

    @cached_property
    def sizes(self) -> list[int]:
        """The sizes as Python's integers."""
        sizes: list[int] = self.size.tolist()
        return sizes

    def near(self, v: int) -> Iterable[tuple[int, float]]:
        """Return the neighbors of a vertex, and twice the weights of their edges."""
        starts, ends, weights = self._lists
        begin, end = starts[v], starts[v + 1]
        return zip(ends[begin:end], weights[begin:end], strict=True)

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[float]]:
        """``W`` as Python's numbers, which loops read in a third of the time."""
        return self.W.indptr.tolist(), self.W.indices.tolist(), (2 * self.W.data).tolist()

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
