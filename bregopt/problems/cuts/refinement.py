"""Local search by rounds of single moves (Fiduccia and Mattheyses 1982)."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

import numpy as np

from bregopt.arrays import IntArray
from bregopt.clock import remaining
from bregopt.problems.cuts.sign_graph import SignGraph

__all__ = ["refined"]

# A round stops after so many moves without a better partition, or this share of the vertices. Ten times as
# many find no better cuts of the graphs in benchmarks/large_cuts.py.
_PATIENCE_SMALL, _PATIENCE, _PATIENCE_SHARE = 20, 100, 0.02
# It stops earlier where the mean and the variance of the gains since then, at least so many, make a better
# partition unlikely (Osipov, Sanders 2010).
_FEWEST_GAINS = 10
_MOVES = 256  # between looks at the clock


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
