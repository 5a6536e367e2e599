"""The terms of all rows in a stack of blocks of equal order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.program import LinearMap

__all__ = ["StackTerms"]


@dataclass(frozen=True, eq=False)
class StackTerms:
    """The terms of all rows in a stack: row ``row[k]`` has ``value[k] * X[block[k], i[k], j[k]]``.

    Parameters
    ----------
    m, count, n : int
        Number of rows, of blocks, and the order of the blocks.
    row, block, i, j : int arrays
        Sorted by block, then by row; ``i <= j``.
    value : array
    """

    m: int
    count: int
    n: int
    row: IntArray
    block: IntArray
    i: IntArray
    j: IntArray
    value: Array

    @classmethod
    def of(cls, A: LinearMap, blocks: Sequence[int]) -> StackTerms:
        """Return the terms in some blocks of equal order."""
        found = [
            (b, term.at, term.rows.coordinates()) for b, own in enumerate(blocks) for term in A.terms_of(own)
        ]
        none = np.zeros(0, dtype=np.intp)
        row = np.concatenate([none, *(at[t.row] for _, at, t in found)])
        block = np.concatenate([none, *(np.full(len(t.row), b) for b, _, t in found)])
        i = np.concatenate([none, *(np.minimum(t.i, t.j) for _, _, t in found)])
        j = np.concatenate([none, *(np.maximum(t.i, t.j) for _, _, t in found)])
        value = np.concatenate([np.zeros(0), *(t.value for _, _, t in found)])
        k = np.lexsort((row, block))
        return cls(A.m, len(blocks), A.orders[blocks[0]], row[k], block[k], i[k], j[k], value[k])

    @cached_property
    def first(self) -> IntArray:
        """The first term of each row in each block that it meets."""
        return np.flatnonzero(np.diff(self.block * self.m + self.row, prepend=-1))

    @cached_property
    def rows_per_block(self) -> IntArray:
        """The number of rows that meet each block."""
        return np.bincount(self.block[self.first], minlength=self.count)

    @cached_property
    def terms_per_block(self) -> IntArray:
        """The number of terms in each block."""
        return np.bincount(self.block, minlength=self.count)

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """The distinct entries ``i * n + j`` of all terms, and the number of each term's entry among them."""
        places, place = np.unique(self.i * self.n + self.j, return_inverse=True)
        return places, place.ravel()
