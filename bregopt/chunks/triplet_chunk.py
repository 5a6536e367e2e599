"""One chunk of triplets, and the sums over it that the largest soft margin needs.

A triplet ``(i, j, k)`` has the matrix ``A = far far' - near near'``, with ``far = x_i - x_k`` and
``near = x_i - x_j``, and the margin ``<A, X>``. Both are products of ``far - near = x_j - x_k`` and
``far + near``, so no digits cancel where far and near are almost equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.chunks.sources import Source
from bregopt.threads import threads_for

__all__ = ["Levels", "Split", "TripletChunk", "factors", "levels_of", "split_of"]

_BLOCK = 2_000  # triplets or points whose vectors fit in a processor's cache
_MANY_POINTS = 3  # points for each index of a triplet, from which only those of the chunk are read


class Levels(NamedTuple):
    """How many margins are below each level, and their sum.

    Parameters
    ----------
    counts : int array of shape (L,)
    totals : array of shape (L,)
    """

    counts: IntArray
    totals: Array

    def plus(self, other: Levels) -> Levels:
        """Return the levels of the triplets of both."""
        return Levels(self.counts + other.counts, self.totals + other.totals)


class Split(NamedTuple):
    """The triplets below a level, summed, and a sample of those in a band around it.

    Parameters
    ----------
    number : int
        Of the triplets below the level.
    moment : array of shape (d, d)
        The sum of their matrices.
    triplets : int array of shape (k, 3)
        The sample.
    below : bool array of shape (k,)
        Which of the sample are below the level.
    """

    number: int
    moment: Array
    triplets: IntArray
    below: Mask

    def plus(self, other: Split) -> Split:
        """Return the sums over both, and both samples."""
        return Split(
            self.number + other.number,
            self.moment + other.moment,
            np.concatenate([self.triplets, other.triplets]),
            np.concatenate([self.below, other.below]),
        )


@dataclass(frozen=True, eq=False)
class TripletChunk:
    """Consecutive triplets of points, from number `start` on."""

    triplets: Source
    points: Source
    start: int

    def read(self) -> tuple[IntArray, Any]:
        """Return triplets, shape (m, 3), and the points that they index.

        Raises
        ------
        ValueError
            If a triplet has an index out of range, or a point twice.
        """
        T, points = np.array(self.triplets.read(), dtype=np.intp), self.points.read()
        self._check(((T >= 0) & (T < len(points))).all(axis=1), T, f"points 0 to {len(points) - 1}")
        different = (T[:, 0] != T[:, 1]) & (T[:, 0] != T[:, 2]) & (T[:, 1] != T[:, 2])
        self._check(different, T, "three different points")
        if len(points) > _MANY_POINTS * T.size:
            used, T = np.unique(T, return_inverse=True)
            points, T = points[used], T.reshape(-1, 3)
        return T, points

    def _check(self, good: Any, T: IntArray, expected: str) -> None:
        if not good.all():
            k = int(np.argmin(good))
            raise ValueError(f"triplet {self.start + k} is {T[k].tolist()}; expected {expected}")


def levels_of(chunk: TripletChunk, root: Array, levels: Array) -> Levels:
    """Return how many margins at the matrix ``root root'`` are below each level, and their sums.

    Parameters
    ----------
    chunk : TripletChunk
    root : array of shape (d, r)
    levels : array of shape (L,), ascending

    Raises
    ------
    ValueError
        If a triplet is bad.
    """
    with threads_for(1):
        margins = _margins(*chunk.read(), root)
    place = np.searchsorted(levels, margins, side="right")
    counts = np.bincount(place, minlength=len(levels) + 1)
    totals = np.bincount(place, margins, minlength=len(levels) + 1)
    return Levels(np.cumsum(counts[:-1]), np.cumsum(totals[:-1]))


def split_of(
    chunk: TripletChunk, root: Array, level: float, band: tuple[float, float], stride: int, seed: int
) -> Split:
    """Return the triplets below a level at ``root root'``, summed, and a sample of those in a band.

    The sample is every `stride`-th triplet of the band in the order of their margins, from a random one on.
    """
    with threads_for(1):
        T, points = chunk.read()
        margins = _margins(T, points, root)
        below = margins < level
        moment = sum(_moments(T[below], points), start=np.zeros((points.shape[1],) * 2))
    inside = np.flatnonzero((margins >= band[0]) & (margins < band[1]))
    ordered = inside[np.argsort(margins[inside], kind="stable")]
    first = int(np.random.default_rng([seed, chunk.start]).integers(stride))
    chosen = np.sort(ordered[first::stride])
    given = np.asarray(chunk.triplets.read()[chosen], dtype=np.intp)  # `T` may have other indices
    return Split(int(below.sum()), (moment + moment.T) / 2, given, below[chosen])


def factors(T: IntArray, points: Any) -> tuple[Array, Array]:
    """Return the rows ``far - near`` and ``far + near`` of triplets."""
    i, j, k = (np.asarray(points[T[:, column]], dtype=np.float64) for column in range(3))
    return j - k, (i - j) + (i - k)


def _margins(T: IntArray, points: Any, root: Array) -> Array:
    images = np.empty((len(points), root.shape[1]))
    origin = np.asarray(points[0], dtype=np.float64)  # points far from zero lose no digits
    for rows in _blocks(len(points)):
        images[rows] = (points[rows] - origin) @ root
    margins = np.empty(len(T))
    for rows in _blocks(len(T)):
        margins[rows] = np.einsum("ij,ij->i", *factors(T[rows], images))
    return margins


def _moments(T: IntArray, points: Any) -> Iterator[Array]:
    for rows in _blocks(len(T)):
        difference, total = factors(T[rows], points)
        yield difference.T @ total


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, _BLOCK):
        yield slice(start, start + _BLOCK)
