"""From the answer of a cut's relaxation to a partition: eigenvectors, random hyperplanes, local search.

Every cut here is asked for as a vector of signs ``s`` with large ``s'Ws``: ``W`` holds the weights of the
edges for a small cut, and their negatives for a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bregopt.arrays import Array, IntArray

__all__ = ["best_partition"]

_HYPERPLANES = 50
_LEADING = 3  # eigenvectors of X that are tried as directions too
_IMPROVED = 5  # of the roundings, the best ones


def best_partition(W: Array, X: Array, sizes: range | None, rng: np.random.Generator) -> IntArray:
    """Return the best of several roundings of the relaxation's answer, each improved by local search.

    Parameters
    ----------
    W : array of shape (n, n)
        Symmetric.
    X : array of shape (n, n)
        Positive semidefinite; near one where vertices belong together.
    sizes : range, optional
        The allowed numbers of vertices on the first side; any where none are given.
    rng : numpy.random.Generator

    Returns
    -------
    int array of shape (n,)
        The side of each vertex, 1 or -1.
    """
    eigenvalues, U = np.linalg.eigh(X)
    F = (U * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1]
    scores = np.column_stack([F[:, :_LEADING], F @ rng.normal(size=(len(F), _HYPERPLANES))])
    sides = np.unique([side for score in scores.T for side in _splits(score, sizes)], axis=0)
    gain = np.einsum("ki,ki->k", sides @ W, sides)
    best = sides[np.argsort(-gain, kind="stable")[:_IMPROVED]]
    step = _flipped if sizes is None else _swapped
    return max((_improved(W, side, step) for side in best), key=lambda side: float(side @ W @ side))


def _splits(score: Array, sizes: range | None) -> list[IntArray]:
    """Return the partition by sign, or those into high and low scores, of every allowed size."""
    if sizes is None:
        return [np.where(score >= 0, 1, -1)]
    rank = np.empty(len(score), dtype=np.intp)
    rank[np.argsort(score, kind="stable")] = np.arange(len(score))
    return [np.where(rank < size, 1, -1) for size in sizes]


def _improved(W: Array, side: IntArray, step: Callable[[Array, IntArray], IntArray]) -> IntArray:
    """Return a partition that no round of local search makes better."""
    while True:
        moved = step(W, side)
        if moved @ W @ moved <= (side @ W @ side) + 1e-12 * np.abs(W).sum():
            return side
        side = moved


def _swapped(W: Array, side: IntArray) -> IntArray:
    """Return the best partition on the way of one round of swaps (Kernighan and Lin 1970).

    Each swap takes from either side the vertex that gains most, or loses least, and leaves it where it
    goes; so a round climbs out of partitions that no single swap improves.
    """
    now, free = side.copy(), np.ones(len(side), dtype=bool)
    gain = -now * (W @ now)  # what moving one vertex adds to s'Ws, over four
    swaps, gains = [], []
    for _ in range(min((side == 1).sum(), (side == -1).sum())):
        a = int(np.argmax(np.where(free & (side == 1), gain, -np.inf)))
        together = gain - 2 * W[a]  # an edge from a stays in the cut if its other end moves too
        b = int(np.argmax(np.where(free & (side == -1), together, -np.inf)))
        swaps.append((a, b))
        gains.append(gain[a] + together[b])
        gain += 2 * now * (W[a] - W[b])
        now[[a, b]] = -now[[a, b]]
        free[[a, b]] = False
    return _until_best(side, swaps, gains)


def _flipped(W: Array, side: IntArray) -> IntArray:
    """Return the best partition on the way of one round of single moves (Fiduccia and Mattheyses 1982)."""
    now, free = side.copy(), np.ones(len(side), dtype=bool)
    gain = -now * (W @ now)
    moves, gains = [], []
    for _ in range(len(side)):
        a = int(np.argmax(np.where(free, gain, -np.inf)))
        moves.append((a,))
        gains.append(gain[a])
        gain += 2 * now * W[a] * now[a]
        gain[a] = -gain[a]
        now[a] = -now[a]
        free[a] = False
    return _until_best(side, moves, gains)


def _until_best(side: IntArray, moves: Sequence[tuple[int, ...]], gains: list[float]) -> IntArray:
    """Return the partition after the moves up to the best point on their way."""
    kept = int(np.argmax(np.cumsum(gains))) + 1 if gains else 0
    best = side.copy()
    for move in moves[:kept]:
        best[list(move)] = -side[list(move)]
    return best
