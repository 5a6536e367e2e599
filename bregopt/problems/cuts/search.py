"""The search for good partitions in two sides: a pool, and ways to make and combine its members.

Partitions are made by multilevel cycles (:mod:`.coarsening`), and by relaxed partitions, which have unit
vectors in place of signs (Burer, Monteiro, Zhang 2002). A cycle that keeps two partitions combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.clock import CutShort, checkpoint, remaining, threads_for
from bregopt.problems.cuts.coarsening import SignGraph, cycle, refined
from bregopt.problems.cuts.proof import principal
from bregopt.program import LowRank
from bregopt.program.lowrank import Matrix
from bregopt.routes.progress import items_bar

__all__ = ["Search", "ascended"]

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
