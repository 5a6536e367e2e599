"""Graphs whose partitions are vectors of signs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray

__all__ = ["SignGraph"]


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
    def near(self) -> list[list[tuple[int, float]]]:
        """The neighbors of each vertex, and twice the weights of their edges."""
        edges = list(zip(self.W.indices.tolist(), (2 * self.W.data).tolist(), strict=True))
        starts = self.W.indptr.tolist()
        return [edges[a:b] for a, b in pairwise(starts)]

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
        return max(first - self.most, self.least - first, 0)

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
        excess = np.maximum(np.maximum(first - self.most, self.least - first), 0)
        cut = np.where(excess == excess.min(), np.cumsum(change), np.inf)
        return np.where(place < int(np.argmin(cut)), 1, -1)
