"""The search for several parts at once: moves of single vertices, on coarser and coarser graphs.

The graph is contracted as for two sides (:mod:`.coarsening`), until each part has a few vertices. There parts
grow from random vertices. On each graph rounds of single moves improve them (Karypis and Kumar 1998): a
vertex of a part ``p`` with edges of weight ``c_q`` to each part ``q`` moves where the loss ``c_p - c_q`` is
least, possibly to a part that is then too large; the next vertex leaves that part. Such a chain of moves may
lose a mean weight more to end in a part that is too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.clock import remaining
from bregopt.problems.cuts.coarsening import SHRINKS, SignGraph, contracted, drifts_away, room
from bregopt.records import cached_property, dataclass

__all__ = ["assigned", "divided"]

_COARSEST = 8  # vertices for each part of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
_STARTS = 2  # random parts of the coarsest graph
_ROUNDS = 2  # of moves on each graph
_PATIENCE = 60  # moves of a round without better parts
_NEAR_TOP = 8  # vertices of a part that is too large that are asked for a move to one that is too small


def divided(W: Any, sizes: Sequence[int], rng: np.random.Generator) -> IntArray:
    """Return the number of its part for each vertex, with little weight between the parts.

    When time is up it contracts and refines no further.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        The weights of the edges, none below zero.
    sizes : sequence of k ints
        The number of vertices of each part. A table of ``n k`` weights is formed.
    rng : numpy.random.Generator
    """
    graph = _PartGraph(W, np.ones(W.shape[0], dtype=np.intp), tuple(sizes))
    part = _cycle(graph, rng)
    if graph.excess(part):
        kept = np.eye(len(sizes))[part] * (2 * float(W.sum()) or 1.0)
        part = _refined(graph, assigned(graph.table(part) + kept, sizes))
    return part


def _cycle(graph: _PartGraph, rng: np.random.Generator) -> IntArray:
    """Return parts found by contraction, search on the coarse graph, and refinement on the way back."""
    if graph.n > _COARSEST * graph.k and remaining() > 0:
        most = max(int(_LARGEST * graph.total / (_COARSEST * graph.k)), 2)
        contraction = contracted(SignGraph(graph.W, graph.size, 1, 1), [], most, rng)
        coarse = contraction.coarse
        if coarse.n <= SHRINKS * graph.n:
            found = _cycle(_PartGraph(coarse.W, coarse.size, graph.sizes), rng)
            return _refined(graph, found[contraction.owner])
    return max((_refined(graph, _grown(graph, rng)) for _ in range(_STARTS)), key=graph.inside)


def _grown(graph: _PartGraph, rng: np.random.Generator) -> IntArray:
    """Return parts that take, one after the other, the free vertex with the largest weight to them."""
    if remaining() <= 0:
        middle = np.cumsum(graph.size) - graph.size / 2
        return np.searchsorted(np.cumsum(graph.sizes)[:-1], middle)
    sizes, (starts, ends, weights) = graph.size.tolist(), graph.lists
    part = [-1] * graph.n
    order = iter(rng.permutation(graph.n).tolist())
    for p, left in enumerate(graph.sizes[:-1]):
        weight: dict[int, float] = {}
        heap: list[tuple[float, int]] = []
        while left > 0:
            while heap and (part[heap[0][1]] >= 0 or -heap[0][0] != weight[heap[0][1]]):
                heappop(heap)
            v = heap[0][1] if heap else next((v for v in order if part[v] < 0), -1)
            if v < 0 or sizes[v] > 2 * left:
                break
            part[v] = p
            left -= sizes[v]
            for at in range(starts[v], starts[v + 1]):
                u = ends[at]
                weight[u] = weight.get(u, 0.0) + weights[at]
                heappush(heap, (-weight[u], u))
    grown = np.array(part)
    return np.where(grown < 0, graph.k - 1, grown)


def _refined(graph: _PartGraph, part: IntArray) -> IntArray:
    """Return parts after rounds of moves."""
    for _ in range(_ROUNDS):
        moves = _moves(graph, part) if remaining() > 0 else []
        if not moves:
            break
        part = part.copy()
        for v, q in moves:
            part[v] = q
    return part


def _moves(graph: _PartGraph, part: IntArray) -> list[tuple[int, int]]:
    """Return the moves of one round up to its best parts; none if no parts are better than the first.

    A move is a vertex and its new part. It takes the free vertex with the least loss, possibly negative, and
    fixes it. As in :func:`.coarsening.refined` the loop calls few functions, the heap of each part holds the
    losses of its vertices that have edges to others, and `place` is where a vertex stands in it.
    """
    k, sizes, (starts, ends, weights) = graph.k, graph.size.tolist(), graph.lists
    upper, lower = [m + graph.room for m in graph.sizes], [m - graph.room for m in graph.sizes]
    full = np.bincount(part, graph.size, k).astype(np.intp).tolist()
    table, rows = graph.table(part), np.arange(graph.n)
    own = table[rows, part]
    table[rows, part] = -np.inf
    most = table.max(axis=1)
    table[rows, part] = own
    first = own - most
    over = [p for p in range(k) if full[p] > upper[p]]
    used = np.flatnonzero((most > 0) | np.isin(part, over) if over else most > 0)
    used = used[np.argsort(first[used], kind="stable")]
    heaps: list[list[tuple[float, int]]] = [[] for _ in range(k)]
    for p, v, least in zip(part[used].tolist(), used.tolist(), first[used].tolist(), strict=True):
        heaps[p].append((least, v))  # ascending, so a heap
    loss, place, best, where = first.tolist(), first.tolist(), most.tolist(), part.tolist()
    free, stale = [True] * graph.n, [False] * graph.n  # stale: the largest weight to another part fell
    near: dict[int, list[float]] = {}  # the weights to each part of vertices whose neighbors moved
    moves: list[tuple[int, int]] = []
    mean = sum(weights) / max(len(weights), 1)
    kept, total, least_total = 0, 0.0, -graph.round_off
    lost = squares = 0.0  # the loss since the best parts, and the sum of its squares
    excess = least_excess = graph.excess(part)
    while len(moves) - kept <= _PATIENCE and not drifts_away(len(moves) - kept, lost, squares):
        chosen = -1
        for p in over or range(k):
            heap = heaps[p] if full[p] >= lower[p] else ()
            while heap:
                top, v = heap[0]
                if not free[v] or top != place[v]:
                    heappop(heap)
                    continue
                if stale[v]:
                    to = near[v]
                    best[v] = max(to[:p] + to[p + 1 :])
                    loss[v], stale[v] = to[p] - best[v], False
                if loss[v] > top:
                    place[v] = loss[v]
                    heapreplace(heap, (loss[v], v))
                else:
                    if chosen < 0 or top < loss[chosen]:
                        chosen = v
                    break
        if chosen < 0:
            break
        p, to = where[chosen], near.get(chosen) or table[chosen].tolist()
        inside, to[p] = to[p], -math.inf
        q = to.index(max(to))
        to[p] = inside
        if full[q] > upper[q]:
            q = max((r for r in range(k) if r != p and full[r] <= upper[r]), key=to.__getitem__, default=p)
            if q == p:
                break
        under = [r for r in range(k) if full[r] < lower[r]] if over else []
        if under and q not in under:
            accepted = to[p] - to[q] + mean
            for _, v in heaps[p][:_NEAR_TOP]:
                if free[v]:
                    ways = near.get(v) or table[v].tolist()
                    for r in under:
                        if ways[p] - ways[r] < accepted:
                            accepted, chosen, q, to = ways[p] - ways[r], v, r, ways
        fall = to[p] - to[q]
        total, lost, squares = total + fall, lost + fall, squares + fall * fall
        free[chosen], where[chosen] = False, q
        edges = slice(starts[chosen], starts[chosen + 1])
        for u, w in zip(ends[edges], weights[edges], strict=True):
            if free[u]:
                if u not in near:
                    near[u] = table[u].tolist()
                r, to = where[u], near[u]
                before = to[p]
                to[p] -= w
                to[q] += w
                if r != p and before == best[u]:
                    stale[u] = True
                if r != q and to[q] > best[u]:
                    best[u] = to[q]
                loss[u] = to[r] - best[u]
                if loss[u] < place[u]:
                    place[u] = loss[u]
                    heappush(heaps[r], (loss[u], u))
        for r, change in ((p, -sizes[chosen]), (q, sizes[chosen])):
            excess -= max(full[r] - upper[r], lower[r] - full[r], 0)
            full[r] += change
            excess += max(full[r] - upper[r], lower[r] - full[r], 0)
        over = [r for r in {p, q, *over} if full[r] > upper[r]]
        moves.append((chosen, q))
        if excess < least_excess or (excess == least_excess and total < least_total):
            least_excess, least_total, kept = excess, total - graph.round_off, len(moves)
            lost = squares = 0.0
    return moves[:kept]


@dataclass(frozen=True, eq=False)
class _PartGraph:
    """A graph and the sizes of its parts.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        The weights of the edges, none below zero.
    size : int array of shape (n,)
        The number of vertices of the user's graph that each vertex stands for.
    sizes : tuple of k ints
        Those of the parts.
    """

    W: Any
    size: IntArray
    sizes: tuple[int, ...]

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self.size)

    @property
    def k(self) -> int:
        """The number of parts."""
        return len(self.sizes)

    @cached_property
    def total(self) -> int:
        """The size of all vertices."""
        return int(self.size.sum())

    @cached_property
    def room(self) -> int:
        """By how much parts may miss their sizes."""
        return room(self.total / self.n, min(self.sizes))

    @cached_property
    def lists(self) -> tuple[list[int], list[int], list[float]]:
        """Where the neighbors of each vertex begin, the neighbors, and the weights of their edges."""
        return self.W.indptr.tolist(), self.W.indices.tolist(), self.W.data.tolist()

    @cached_property
    def round_off(self) -> float:
        """A difference of weights that round-off may make."""
        return 1e-12 * float(self.W.data.sum())

    def table(self, part: IntArray) -> Array:
        """Return the weight of the edges of each vertex to each part, of shape (n, k)."""
        return np.asarray(self.W @ np.eye(self.k)[part])

    def inside(self, part: IntArray) -> tuple[int, float]:
        """Return a key by which parts are compared: allowed sizes first, then large weights inside."""
        return -self.excess(part), float(self.table(part)[np.arange(self.n), part].sum())

    def excess(self, part: IntArray) -> int:
        """Return by how much parts are too large or too small."""
        missed = np.abs(np.bincount(part, self.size, self.k) - np.array(self.sizes))
        return int(np.maximum(missed - self.room, 0).sum())


def assigned(score: Array, sizes: Sequence[int]) -> IntArray:
    """Return the part of each vertex, with large scores and parts of the given sizes.

    In each round the vertices ask for their best part that has room. A part with too little room takes those
    that would lose most in their next best part.

    Parameters
    ----------
    score : array of shape (n, k)
        The score of each vertex in each part.
    sizes : sequence of k ints
        Their sum is ``n``.
    """
    part = np.full(len(score), -1, dtype=np.intp)
    room = np.array(sizes)
    while room.any():
        left, roomy = np.flatnonzero(part < 0), np.flatnonzero(room)
        own = score[np.ix_(left, roomy)]
        wanted = roomy[own.argmax(axis=1)]
        ranked = np.sort(own, axis=1)
        loss = ranked[:, -1] - ranked[:, -2] if len(roomy) > 1 else ranked[:, -1]
        for p in roomy:
            asking = np.flatnonzero(wanted == p)
            taken = left[asking[np.argsort(-loss[asking], kind="stable")[: room[p]]]]
            part[taken] = p
            room[p] -= len(taken)
    return part
