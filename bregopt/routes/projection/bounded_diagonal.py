"""Rows that bound the diagonal, such as those of a correlation matrix: start and final scaling."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.program import Program
from bregopt.records import dataclass

__all__ = ["BoundedDiagonal", "bounded_diagonal", "simplex_shift"]


@dataclass(frozen=True, eq=False)
class BoundedDiagonal:
    """Hard rows ``lo <= X[i, i] <= hi``, divided by their weights.

    Parameters
    ----------
    at, index : int array of shape (k,)
        The rows, and their diagonal entries ``i``.
    weight, lo, hi : array of shape (k,)
    complete : bool
        Whether every diagonal entry is fixed.
    alone : bool
        Whether there are no other rows.
    """

    at: IntArray
    index: IntArray
    weight: Array
    lo: Array
    hi: Array
    complete: bool
    alone: bool

    def scaled(self, X: Array, most: float) -> Array:
        """Return ``D X D`` within the bounds; `X` itself if the relative change would exceed `most`."""
        diagonal = X.diagonal()[self.index]
        clipped = np.clip(diagonal, self.lo, self.hi)
        if (np.abs(clipped - diagonal) > most * diagonal).any():
            return X
        d = np.ones(len(X))
        d[self.index] = np.sqrt(clipped / np.maximum(diagonal, TINY))
        scaled: Array = d[:, None] * X * d
        scaled[self.index, self.index] = clipped  # exactly
        return scaled


def bounded_diagonal(program: Program) -> BoundedDiagonal | None:
    """Return the rows on the diagonal of a program in one block; None if they are not simple."""
    bounds, (block,) = program.bounds, program.blocks
    rows, index, weight = np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0)
    for term in program.A.terms:
        if term.rows.single:
            t = term.rows.coordinates()
            diagonal = t.i == t.j
            rows, index = np.append(rows, term.at[diagonal]), np.append(index, t.i[diagonal])
            weight = np.append(weight, t.value[diagonal])
    simple = bounds.hard[rows].all() and (weight > 0).all() and (bounds.hi[rows] >= 0).all()
    if len(rows) == 0 or not simple or len(np.unique(index)) < len(index):
        return None
    lo, hi = np.maximum(bounds.lo[rows] / weight, 0.0), bounds.hi[rows] / weight
    complete = len(rows) == block.n and bool((lo == hi).all())
    return BoundedDiagonal(rows, index, weight, lo, hi, complete, alone=len(rows) == program.m)


def simplex_shift(theta: Array, total: float) -> float:
    """Return the ``s`` for which the positive parts of ``theta - s`` sum to `total`.

    This is the projection onto a simplex, from sorted numbers.

    Parameters
    ----------
    theta : array of shape (n,), ascending
    total : float
        Nonnegative.
    """
    falling = theta[::-1]
    excess = np.cumsum(falling) - total
    count = np.arange(1, len(theta) + 1)
    k = max(int(np.sum(count * falling > excess)), 1)
    return float(excess[k - 1] / k)
