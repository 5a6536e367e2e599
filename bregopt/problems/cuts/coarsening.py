"""The search for a good cut: moves of single vertices, on coarser and coarser graphs.

A partition is a vector ``s`` of signs, and a good one has a large ``s'Ws`` (:class:`SignGraph`). Cycles go
through coarser graphs (Karypis and Kumar 1998; Walshaw 2004 for kept partitions): heavy edges are contracted
in clusters of mostly two or three: ``s_i = sign_i z_c`` for the vertices ``i`` that a coarse vertex ``c``
owns. So ``s = Pz`` for a sparse matrix ``P`` of signs, and ``s'Ws = z'(P'WP)z``. Ends of edges with weights
above zero get equal signs, others opposite ones. On each graph rounds of single moves improve the partition
(Fiduccia and Mattheyses 1982).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.clock import remaining, threads_for
from bregopt.records import cached_property, dataclass

_COARSEST, _COARSEST_FAST = 30, 60  # vertices of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
SHRINKS = 0.95  # a contraction that leaves a larger share of the vertices is not worth its time
_STARTS = 4  # partitions of the coarsest graph to refine, one by an eigenvector and others at random
_EIGENVECTORS = 300  # most vertices of a coarsest graph that has an eigenvector
_ROUNDS, _FEW = 5, 600  # rounds that match many edges at once, while more than so many are left
_TIES = 1e-3  # random factors of ratings, so that equal weights are matched in another way each time
# A round stops after so many moves without a better partition. It stops earlier where the mean and the
# variance of the gains since then, at least so many, make a better one unlikely (Osipov, Sanders 2010).
_PATIENCE = 100
_FEWEST_GAINS = 10
_MOVES = 256  # between looks at the clock
# Sides of a coarse graph may miss their sizes by so many mean vertices, but by no larger share of the smaller
# side: exact sizes of heavy vertices would cost more edges than the finer graphs need to mend the sizes.
_ROOM, _ROOM_SHARE = 2.0, 0.25


def cycle(
    graph: SignGraph, kept: Sequence[IntArray], rng: np.random.Generator, fast: bool = False
) -> IntArray:
    """Return a partition found by contraction, search on the coarse graph, and refinement on the way back.

    When time is up it contracts and refines no further.

    Parameters
    ----------
    graph : SignGraph
    kept : sequence of int arrays of shape (n,)
        The answer is at least as good as each of these partitions. Without any it begins with an eigenvector.
    rng : numpy.random.Generator
    fast : bool
        Whether fewer contractions and one start do, in two thirds of the time.
    """
    coarsest = _COARSEST_FAST if fast else _COARSEST
    if graph.n > coarsest and remaining() > 0:
        most = max(int(_LARGEST * graph.total / coarsest), 2)
        contraction = contracted(graph, kept, most, rng)
        if contraction.coarse.n <= SHRINKS * graph.n:
            # A vertex that stands for its coarse vertex has sign 1 in it.
            below = [side[contraction.first] for side in kept]
            found = refined(graph, contraction.fine(cycle(contraction.coarse, below, rng, fast)))
            return max(found, *kept, key=graph.rank) if kept else found
    if kept:
        return refined(graph, max(kept, key=graph.rank))
    scores = [_leading(graph, rng), *(rng.normal(size=graph.n) for _ in range(0 if fast else _STARTS - 1))]
    return max((refined(graph, graph.split(score)) for score in scores), key=graph.rank)


def _leading(graph: SignGraph, rng: np.random.Generator) -> Array:
    """Return the leading eigenvector of ``W - diag(We) - t zz'``, where ``z`` are the sizes of the vertices.

    Its last term, with a large ``t``, makes sides of equal sizes. A graph that is large, as contraction ends
    early on stars, has random scores.
    """
    if graph.n > _EIGENVECTORS:
        return rng.normal(size=graph.n)
    A = graph.W.toarray()
    A[np.diag_indices(graph.n)] -= A.sum(axis=1)
    if not graph.free:
        A -= np.abs(A).sum() / float(graph.size @ graph.size) * np.outer(graph.size, graph.size)
    with threads_for(graph.n):
        leading: Array = np.linalg.eigh(A)[1][:, -1]
    return leading


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
    own = center == np.arange(graph.n)
    first, owner = np.flatnonzero(own), (np.cumsum(own) - 1)[center]
    i, j, w = graph.edges
    outside = np.flatnonzero(owner[i] != owner[j])
    i, j, w = i[outside], j[outside], w[outside] * (sign[i] * sign[j])[outside]
    W = sp.csr_array((w, (owner[i], owner[j])), (len(first), len(first)))  # parallel edges add up
    size = np.bincount(owner, graph.size, len(first)).astype(np.intp)
    return Contraction(SignGraph(W, size, graph.least, graph.most), owner, sign, first)


def _clusters(
    graph: SignGraph, kept: Sequence[IntArray], most: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return the first vertex of the cluster of each vertex, and its sign relative to that one.

    The edges match their ends if both are free, heavy edges first. Then each vertex that is still free joins
    a pair by its heaviest edge that sizes allow.
    """
    (i, j, w), size = graph.edges, graph.size
    once = i < j
    i, j, w = i[once], j[once], w[once]
    suits = size[i] + size[j] <= most
    if not graph.free:  # vertices of opposite signs have no common size
        suits &= w > 0
    for side in kept:
        suits &= w * side[i] * side[j] > 0
    i, j, w = i[suits], j[suits], w[suits]
    # Heavy edges between small vertices are good ones to contract (Holtgrewe, Sanders, Schulz 2010).
    rating = np.abs(w) / (size[i] * size[j]) * (1 + _TIES * rng.random(len(w)))
    relation = np.where(w > 0, 1, -1)
    center, sign, free = np.arange(graph.n), np.ones(graph.n, dtype=np.intp), np.ones(graph.n, dtype=bool)
    left = np.arange(len(w))
    for _ in range(_ROUNDS):  # an edge that is the heaviest one at both its ends is a match in any case
        if len(left) <= _FEW:
            break
        heaviest = np.zeros(graph.n)
        for ends in (i[left], j[left]):
            np.maximum.at(heaviest, ends, rating[left])
        top = left[(rating[left] >= heaviest[i[left]]) & (rating[left] >= heaviest[j[left]])]
        center[j[top]], sign[j[top]] = i[top], relation[top]
        free[i[top]] = free[j[top]] = False
        left = left[free[i[left]] & free[j[left]]]

    def heavy_first(edges: IntArray) -> Iterable[tuple[int, int, int]]:
        edges = edges[np.argsort(-rating[edges])]
        return zip(i[edges].tolist(), j[edges].tolist(), relation[edges].tolist(), strict=True)

    first, signs, alone = center.tolist(), sign.tolist(), free.tolist()
    for u, v, s in heavy_first(left):
        if alone[u] and alone[v]:
            first[v], signs[v] = u, s
            alone[u] = alone[v] = False
    free = np.array(alone)
    full = np.bincount(first, size, graph.n).tolist()
    for u, v, s in heavy_first(np.flatnonzero(free[i] != free[j])):
        new, near = (u, v) if alone[u] else (v, u)
        pair = first[near]
        if alone[new] and full[pair] + full[new] <= most:
            first[new], signs[new] = pair, signs[near] * s
            full[pair] += full[new]
            alone[new] = False
    return np.array(first), np.array(signs)


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
    n, sizes, near = graph.n, graph.sizes, graph.near
    lowest, highest, first = graph.lowest, graph.highest, graph.first(side)
    slack, own = max(sizes), side.tolist()
    negative = side * (graph.W @ side)  # a quarter of the change of s'Ws by each move, less than zero
    excess = least = graph.excess(first)
    used = np.flatnonzero(negative < graph.inner) if not excess else np.arange(n)
    order = used[np.argsort(negative[used], kind="stable")]
    heaps = {}
    for s in (1, -1):
        these = order[side[order] == s]
        heaps[s] = list(zip(negative[these].tolist(), these.tolist(), strict=True))  # ascending, so a heap
    loss, free = negative.tolist(), [True] * n
    place = loss.copy()
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
        if chosen not in near:
            graph.look_up(chosen)
        for u, w in zip(*near[chosen], strict=True):
            if free[u]:
                changed = loss[u] - w if own[u] == s else loss[u] + w
                loss[u] = changed
                if changed < place[u]:
                    place[u] = changed
                    heappush(heaps[own[u]], (changed, u))
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
    def edges(self) -> tuple[IntArray, IntArray, Array]:
        """The rows, columns and values of the entries of ``W``."""
        return np.repeat(np.arange(self.n), np.diff(self.W.indptr)), self.W.indices, self.W.data

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
    def near(self) -> dict[int, tuple[list[int], list[float]]]:
        """The neighbors of the vertices looked up so far, and twice the weights of their edges."""
        return {}

    def look_up(self, v: int) -> None:
        """Enter a vertex in :attr:`near`; few vertices of a large graph move."""
        edges = slice(self.W.indptr[v], self.W.indptr[v + 1])
        self.near[v] = self.W.indices[edges].tolist(), (2 * self.W.data[edges]).tolist()

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
        return (self.total + int(self.size @ side)) // 2

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
        i, j, w = self.edges
        begin, end = place[i], place[j]
        once = begin < end
        change = np.bincount(begin[once] + 1, w[once], self.n + 1)
        change -= np.bincount(end[once] + 1, w[once], self.n + 1)
        first = np.concatenate([[0], np.cumsum(self.size[order])])
        excess = np.maximum(np.maximum(first - self.highest, self.lowest - first), 0)
        cut = np.where(excess == excess.min(), np.cumsum(change), np.inf)
        return np.where(place < int(np.argmin(cut)), 1, -1)
