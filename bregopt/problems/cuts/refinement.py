"""Local search by rounds of single moves (Fiduccia and Mattheyses 1982)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from bregopt.arrays import IntArray
from bregopt.clock import remaining
from bregopt.problems.cuts.sign_graph import SignGraph

__all__ = ["refined"]

# A round stops after so many moves without a better partition, or this share of the vertices. Ten times as
# many find no better cuts of the graphs in benchmarks/large_cuts.py.
_PATIENCE_SMALL, _PATIENCE, _PATIENCE_SHARE = 20, 100, 0.02
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
        self._near, self._size = graph.near, graph.size.tolist()
        self._first = graph.first(side)
        self._slack = int(graph.size.max())
        self._side = side.tolist()
        # A quarter of the change of s'Ws by the move of each vertex.
        self._gain = (-side * (graph.W @ side)).tolist()
        self._free = [True] * graph.n
        # Free vertices of either side, the largest gain first; entries with an old gain are skipped.
        self._heaps: dict[int, list[tuple[float, int]]] = {1: [], -1: []}
        for v, (s, gain) in enumerate(zip(self._side, self._gain, strict=True)):
            self._heaps[s].append((-gain, v))
        for heap in self._heaps.values():
            heapify(heap)

    def moves(self) -> list[int]:
        """Return the moves up to the best partition; none if no partition is better than the first."""
        n = self._graph.n
        patience = max(min(_PATIENCE, _PATIENCE_SMALL + n // 4), int(_PATIENCE_SHARE * n))
        moves: list[int] = []
        kept, total, best = 0, 0.0, self._graph.round_off
        least = self._graph.excess(self._first)
        while len(moves) - kept <= patience:
            if len(moves) % _MOVES == 0 and remaining() <= 0:
                break
            v = self._next()
            if v is None:
                break
            total += self._gain[v]
            self._move(v)
            moves.append(v)
            excess = self._graph.excess(self._first)
            if excess < least or (excess == least and total > best):
                least, best, kept = excess, total + self._graph.round_off, len(moves)
        return moves[:kept]

    def _next(self) -> int | None:
        """Return the vertex with the largest gain whose move the sizes allow."""
        excess = self._graph.excess(self._first)
        allowed = max(self._slack, excess)
        may_lose = {1: self._first >= self._graph.least, -1: self._first <= self._graph.most}
        chosen, most = None, 0.0
        for s, heap in self._heaps.items():
            if not may_lose[s]:  # that side is too small already
                continue
            while heap and not (self._free[heap[0][1]] and -heap[0][0] == self._gain[heap[0][1]]):
                heappop(heap)
            if not heap:
                continue
            gain, v = -heap[0][0], heap[0][1]
            fits = self._graph.excess(self._first - s * self._size[v]) <= allowed
            if fits and (chosen is None or gain > most):
                chosen, most = v, gain
        return chosen

    def _move(self, v: int) -> None:
        """Move a vertex to the other side and fix it there."""
        side, gain, free, heaps = self._side, self._gain, self._free, self._heaps
        moved = side[v]
        free[v] = False
        for u, w in self._near[v]:
            if free[u]:
                gain[u] += w * moved * side[u]
                heappush(heaps[side[u]], (-gain[u], u))
        side[v] = -moved
        self._first -= moved * self._size[v]
