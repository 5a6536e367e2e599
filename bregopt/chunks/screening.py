"""One pass that finds rows to keep: the hard ones that are broken the most, hinges near their bounds."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.chunks.chunk import Chunk
from bregopt.chunks.sums import Sums, block_sums
from bregopt.errors import InfeasibleRowError
from bregopt.program import Penalty
from bregopt.threads import threads_for

__all__ = ["KeptRows", "Screened", "screened"]


class KeptRows(NamedTuple):
    """Rows ``z' M z >= 1`` or ``<= 1`` in memory, hard ones and soft ones with a hinge.

    Parameters
    ----------
    number : int array of shape (k,)
        In all rows of the problem.
    Z : array of shape (k, r)
        Vectors over the square roots of their bounds, in the coordinates of ``M``.
    sense : array of shape (k,)
        1 for lower bounds, -1 for upper ones.
    gamma : array of shape (k,)
        Weights of the hinge for relative violations, ``inf`` for hard rows.
    violation : array of shape (k,)
        At the matrix of the pass that found the row, relative to the bound; negative where the row is met.
        For a hinge minus its magnitude.
    """

    number: IntArray
    Z: Array
    sense: Array
    gamma: Array
    violation: Array

    @classmethod
    def none(cls, r: int) -> KeptRows:
        """Return no rows of order `r`."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, r)), np.zeros(0), np.zeros(0), np.zeros(0))

    @property
    def hard(self) -> Mask:
        """Mask of the hard rows."""
        hard: Mask = np.isposinf(self.gamma)
        return hard

    def take(self, which: Any) -> KeptRows:
        """Return the rows of a mask or of indices."""
        return KeptRows(*(array[which] for array in self))

    def with_new(self, other: KeptRows) -> KeptRows:
        """Return these rows, and after them those of `other` that are not among them."""
        new = other.take(~np.isin(other.number, self.number))
        return KeptRows(*(np.concatenate(pair) for pair in zip(self, new, strict=True)))

    def violations(self, root: Array) -> Array:
        """Return the relative violations at ``root root'``, negative where a row is met."""
        R = self.Z @ root
        violations: Array = self.sense * (1 - np.einsum("ki,ki->k", R, R))
        return violations


class Screened(NamedTuple):
    """The sums over the soft rows, the rows to keep, and the largest violation of a hard row."""

    sums: Sums
    rows: KeptRows
    worst: float

    def plus(self, other: Screened, most: int) -> Screened:
        """Return the same of the rows of both, with at most `most` rows to keep."""
        rows = KeptRows(*(np.concatenate(pair) for pair in zip(self.rows, other.rows, strict=True)))
        return Screened(self.sums.plus(other.sums), _worst(rows, most), max(self.worst, other.worst))


def screened(
    chunk: Chunk, root: Array, penalty: Penalty, scaling: Array, most: int, least: float
) -> Screened:
    """Return what one pass over a chunk finds at the matrix ``root root'``, in one BLAS thread.

    Parameters
    ----------
    chunk : Chunk
    root : array of shape (d, r)
    penalty : Penalty
        Of the soft rows.
    scaling : array of shape (d, r)
        ``T``, which takes vectors to the coordinates of ``M``.
    most : int
        The largest number of rows to keep.
    least : float
        The least relative violation of hard rows to keep.

    Raises
    ------
    InfeasibleRowError
        If the vector of a row with a lower bound is zero.
    ValueError
        If a row is bad.
    """
    with threads_for(1):
        found = (_of_block(block, root, penalty, scaling, most, least) for block in chunk.blocks())
        return reduce(lambda a, b: a.plus(b, most), found)


def _of_block(block: Chunk, root: Array, penalty: Penalty, T: Array, most: int, least: float) -> Screened:
    bounds = block.bounds(penalty)
    hinge = penalty is Penalty.HINGE
    if bounds.all_soft and not hinge:
        return Screened(block_sums(block, root, penalty, True), KeptRows.none(T.shape[1]), 0.0)
    zero = np.zeros((len(root), len(root)))
    sums = Sums(0.0, 0.0, zero, zero, 0.0) if bounds.all_hard else block_sums(block, root, penalty, True)
    Z, hard = block.vectors(), bounds.hard
    R = Z @ root
    a = np.einsum("ij,ij->i", R, R)
    block.check(np.isfinite(a), a, "the value", "finite vectors")
    lower, zero_vector = np.isfinite(bounds.lo), ~Z.any(axis=1)
    _refuse_zero_vectors(block, hard & lower & zero_vector, bounds.lo)
    bound = np.where(lower, bounds.lo, bounds.hi)
    sense = np.where(lower, 1.0, -1.0)
    above = sense * (1 - a / bound)
    violation = np.where(hard, above, -np.abs(above) if hinge else -np.inf)
    # A hinge of a zero vector is the same at all matrices: it stays in the sums.
    k = np.flatnonzero((violation > least) | (hinge & ~hard & ~zero_vector))
    if len(k) > most:
        k = k[np.argpartition(-violation[k], most)[:most]]
    scaled = (Z[k] @ T) / np.sqrt(bound[k])[:, None]
    rows = KeptRows(block.numbers[0] + k, scaled, sense[k], bounds.gamma[k] * bound[k], violation[k])
    return Screened(sums, rows, max(0.0, float(violation.max())))


def _refuse_zero_vectors(block: Chunk, zero: Any, lo: Array) -> None:
    if zero.any():
        k = int(np.argmax(zero))
        raise InfeasibleRowError(
            f"row {block.numbers[k]} is hard and asks for at least {lo[k]:g}, but its vector is zero, so no "
            "matrix meets it: drop the row, or give it a finite gamma and penalty='hinge'",
            block.numbers[k],
        )


def _worst(rows: KeptRows, most: int) -> KeptRows:
    """Return the rows of largest violation, those of smaller numbers where several are equal."""
    return (
        rows
        if len(rows.number) <= most
        else rows.take(np.sort(np.argsort(-rows.violation, kind="stable")[:most]))
    )
