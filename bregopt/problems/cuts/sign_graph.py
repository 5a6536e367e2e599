"""Graphs whose partitions are vectors of signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property

__all__ = ["SignGraph"]

# Sides of a coarse graph may miss their sizes by so many mean vertices, but by no larger share of the smaller
# side: exact sizes of heavy vertices would cost more edges than the finer graphs need to mend the sizes.
_ROOM, _ROOM_SHARE = 2.0, 0.25


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

    def near(self, v: int) -> list[tuple[int, float]]:
        """Return the neighbors of a vertex, and twice the weights of their edges."""
        found = self._near.get(v)
        if found is None:
            begin, end = self._starts[v], self._starts[v + 1]
            ends, weights = self.W.indices[begin:end], self.W.data[begin:end]
            found = self._near[v] = list(zip(ends.tolist(), (2 * weights).tolist(), strict=True))
        return found

    @cached_property
    def _near(self) -> dict[int, list[tuple[int, float]]]:
        return {}

    @cached_property
    def _starts(self) -> list[int]:
        starts: list[int] = self.W.indptr.tolist()
        return starts

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
