"""The search for good partitions: a pool in two sides, and moves between several parts.

Partitions in two sides are made by multilevel cycles (:mod:`.coarsening`), and by relaxed partitions, which
have unit vectors in place of signs (Burer, Monteiro, Zhang 2002). A cycle that keeps two partitions combines
them.

For several parts the graph is contracted as for two, until each part has a few vertices. There parts grow
from random vertices. On each graph rounds of single moves improve them (Karypis and Kumar 1998): a vertex of
a part ``p`` with edges of weight ``c_q`` to each part ``q`` moves where the loss ``c_p - c_q`` is least,
possibly to a part that is then too large; the next vertex leaves that part. Such a chain of moves may lose a
mean weight more to end in a part that is too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.clock import CutShort, checkpoint, remaining, threads_for
from bregopt.problems.cuts.coarsening import (
    SHRINKS,
    SignGraph,
    contracted,
    cycle,
    drifts_away,
    refined,
    room,
)
from bregopt.problems.cuts.proof import principal
from bregopt.program import LowRank
from bregopt.program.rows.base import Matrix
from bregopt.records import cached_property, dataclass
from bregopt.routes.progress import items_bar

_CYCLES = 8  # multilevel cycles at first
_EDGES = 600_000  # edge ends in all rounds: about two seconds; on meshes twice as many
_MOST_ROUNDS = 30
_PATIENCE, _PATIENCE_SHARE = 20, 0.02  # rounds without a better partition, and relative to the vertices
_RANK = 3  # length of the vectors of relaxed partitions; 2 and 6 end at smaller values
_AFRESH, _AFRESH_MESH = 4, 2  # one round in so many begins at random
_STEPS_AFRESH, _STEPS = 200, 60
_HYPERPLANES, _REFINED = 10, 3  # roundings of a relaxed partition, and the number of the best to refine
_HYPERPLANES_SDP, _REFINED_SDP = 50, 8  # the same for the answer of the semidefinite program
_LEADING = 3  # leading eigenvectors that are rounded, too
_POOL = 8  # partitions that are kept
_DAMPING = 0.5  # weight of the last step; without it the vertices of bipartite graphs change places for ever

# Of several parts:
_COARSEST = 8  # vertices for each part of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
_PART_STARTS = 2  # random parts of the coarsest graph
_PART_ROUNDS = 2  # of moves on each graph
_MOVES_WITHOUT_GAIN = 60  # moves of a round without better parts
_NEAR_TOP = 8  # vertices of a part that is too large that are asked for a move to one that is too small


class Search:
    """A pool of good and different partitions.

    Parameters
    ----------
    graph : SignGraph
        Each vertex has size 1.
    rng : numpy.random.Generator
    proven : function of a partition
        Whether none is better.
    options : dict
        ``progress`` shows a bar for each loop; `rounds` is their number, 0 for a single cycle.
    """

    def __init__(
        self,
        graph: SignGraph,
        rng: np.random.Generator,
        proven: Callable[[IntArray], bool],
        options: Mapping[str, Any],
    ) -> None:
        self._graph, self._rng, self._proven = graph, rng, proven
        self._progress, self._rounds = bool(options.get("progress")), options.get("rounds")
        self._sides: list[IntArray] = []
        self._values: list[float] = []
        self._by_cycles = self._by_ascents = -np.inf  # the best values of both ways to begin
        if self._rounds != 0:
            self.add(refined(graph, self._first))

    @property
    def best(self) -> IntArray:
        """The best partition so far."""
        return self._sides[int(np.argmax(self._values))] if self._sides else self._first

    @property
    def _first(self) -> IntArray:
        """The best partition in the order of the vertices."""
        return self._graph.split(np.linspace(1.0, -1.0, self._graph.n))

    def add(self, side: IntArray) -> None:
        """Add a partition to the pool; a full pool drops the most similar of those that are no better."""
        value = self._graph.value(side)
        overlaps = [self._overlap(side, other) for other in self._sides]
        if self._graph.n in overlaps or self._graph.excess(self._graph.first(side)):
            return
        if len(self._sides) < _POOL:
            self._sides.append(side)
            self._values.append(value)
            return
        no_better = [k for k, other in enumerate(self._values) if other <= value]
        if no_better:
            k = max(no_better, key=overlaps.__getitem__)
            self._sides[k], self._values[k] = side, value

    def refine(self, sides: Iterable[IntArray]) -> None:
        """Add partitions after moves that improve them."""
        for side in sides:
            self.add(refined(self._graph, side))

    def run(self, cycles: bool = True) -> None:
        """Search until the work is done, the best partition is proven, or time is up.

        Parameters
        ----------
        cycles : bool
            Whether multilevel cycles come first; a pool of good partitions needs none, and half the patience.
        """
        rounds = self._rounds
        if rounds == 0:
            for _ in items_bar(range(1), "cycles", self._progress):
                self.add(cycle(self._graph, (), self._rng, fast=True))
            return
        if rounds is None:
            rounds = min(max(_EDGES // max(self._graph.W.nnz, 1), 1), _MOST_ROUNDS)
        self._each("cycles", range(min(_CYCLES, rounds) * cycles), lambda k: self.add(self._cycle()))
        self._by_cycles = max(self._values)
        patience = min(_PATIENCE, 1 + _PATIENCE_SHARE * self._graph.n) / (1 if cycles else 2)
        self._each("rounds", range(rounds), self._round, patience)
        if self._mesh:
            self._each("rounds", range(rounds), self._round, patience)

    def round_matrix(self, X: Matrix | None, combine: bool = True) -> None:
        """Add roundings of the answer to the semidefinite program, and what they combine to.

        A route that was cut short may have none, or a factor of zeros. Before a run none are combined.
        """
        if X is None or (isinstance(X, LowRank) and not X.factor.any()) or self._proven(self.best):
            return
        with threads_for(X.shape[0]):
            F = principal(X)
            normals = self._rng.normal(size=(F.shape[1], _HYPERPLANES_SDP)).T
            normals = np.concatenate([np.eye(F.shape[1])[:_LEADING], normals])
            best = self._roundings(F, normals, _REFINED_SDP)
        use = self._combine_new if combine else self.add
        self._each("roundings", best, lambda side: use(refined(self._graph, side)))

    def _each(
        self, name: str, items: Iterable[Any], step: Callable[[Any], None], patience: float = np.inf
    ) -> None:
        """Take the steps until time is up, the best partition is proven, or some steps gained nothing."""
        last, best = 0, -np.inf
        try:
            for k, item in enumerate(items_bar(items, name, self._progress)):
                if self._proven(self.best):
                    return
                checkpoint()
                step(item)
                if max(self._values) > best:
                    last, best = k, max(self._values)
                if k - last >= patience:
                    return
        except CutShort:
            return

    def _round(self, k: int) -> None:
        """Make a partition, afresh or from one of the pool, and combine it with another one."""
        if k % (_AFRESH_MESH if self._mesh else _AFRESH):
            self._combine(self._ascent(self.best if self._rng.random() < 0.5 else self._any(), _STEPS))
        elif self._mesh:
            self._combine(self._cycle())
        else:
            side = self._ascent(np.zeros(self._graph.n), _STEPS_AFRESH)
            self._by_ascents = max(self._by_ascents, self._graph.value(side))
            self._combine(side)

    @property
    def _mesh(self) -> bool:
        """Whether cycles find better partitions than ascents, as they do on meshes."""
        return -np.inf < self._by_ascents < self._by_cycles

    def _ascent(self, start: Array | IntArray, steps: int) -> IntArray:
        """Return the best rounding of unit vectors that begin at `start` plus noise."""
        R = self._rng.normal(size=(self._graph.n, _RANK))
        R[:, 0] += start
        R = ascended(self._graph, R, steps)
        sides = self._roundings(R, self._rng.normal(size=(_HYPERPLANES, _RANK)), _REFINED)
        return max((refined(self._graph, side) for side in sides), key=self._graph.value)

    def _roundings(self, F: Array, normals: Array, kept: int) -> list[IntArray]:
        """Return the best partitions by hyperplanes with the given normals, at least by the first one."""
        found: dict[bytes, IntArray] = {}
        for normal in normals:
            if found and remaining() <= 0:
                break
            side = self._graph.split(F @ normal)
            found[np.packbits(side > 0).tobytes()] = side
        return sorted(found.values(), key=self._graph.value, reverse=True)[:kept]

    def _combine(self, side: IntArray) -> None:
        """Add a partition, and what a cycle finds that keeps both it and one of the pool."""
        other = self._any()
        if self._graph.symmetric and side @ other < 0:
            other = -other
        self.add(side)
        self.add(self._cycle(side, other))

    def _combine_new(self, side: IntArray) -> None:
        """Combine a partition that is not in the pool, where many roundings of a small graph end."""
        if all(self._overlap(side, other) < self._graph.n for other in self._sides):
            self._combine(side)

    def _cycle(self, *kept: IntArray) -> IntArray:
        return cycle(self._graph, kept, self._rng)

    def _any(self) -> IntArray:
        return self._sides[self._rng.integers(len(self._sides))] if self._sides else self._first

    def _overlap(self, side: IntArray, other: IntArray) -> int:
        same = int(side @ other)
        return abs(same) if self._graph.symmetric else same


def ascended(graph: SignGraph, R: Array, steps: int) -> Array:
    """Return unit vectors, the rows of ``R``, with a larger ``tr R'WR``.

    Each step moves every row toward the best one for the others. The length of the sum of all rows is kept
    at that of a partition with allowed sizes.

    Parameters
    ----------
    graph : SignGraph
        Each vertex has size 1.
    R : array of shape (n, rank)
        The start.
    steps : int
    """
    R = _unit(R)
    for _ in range(steps):
        checkpoint()
        R = _centered(graph, _unit(_DAMPING * R + _unit(graph.W @ R)))
    return R


def _unit(R: Array) -> Array:
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    length[length == 0] = 1.0
    return R / length[:, None]


def _centered(graph: SignGraph, R: Array) -> Array:
    """Return unit rows whose mean has nearly a length that the sizes of the sides allow."""
    if graph.free:
        return R
    ends = [2 * first / graph.n - 1 for first in (graph.least, graph.most)]
    smallest = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
    largest = max(map(abs, ends))
    mean = R.mean(axis=0)
    length = float(np.linalg.norm(mean))
    if length == 0:
        return R
    return _unit(R + (min(max(length, smallest), largest) / length - 1.0) * mean)


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
    return max((_refined(graph, _grown(graph, rng)) for _ in range(_PART_STARTS)), key=graph.inside)


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
    for _ in range(_PART_ROUNDS):
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
    while len(moves) - kept <= _MOVES_WITHOUT_GAIN and not drifts_away(len(moves) - kept, lost, squares):
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
