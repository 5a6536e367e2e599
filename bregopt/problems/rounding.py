"""Rounding of the relaxation of a cut to a partition: eigenvectors, random hyperplanes, local search.

A partition is a vector of signs ``s`` with large ``s'Ws``: ``W`` holds the weights of the edges for a small
cut, and their negatives for a large cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.bars import items_bar
from bregopt.clock import CutShort, affords, checkpoint, remaining
from bregopt.linalg import turned
from bregopt.program import LowRank
from bregopt.program.lowrank import Matrix
from bregopt.threads import threads_for

__all__ = ["best_partition"]

_HYPERPLANES = 50  # number of random hyperplanes
_LEADING = 3  # number of leading eigenvectors of X that are rounded too
_IMPROVED = 5  # number of the best roundings that local search improves
# A round of local search stops after so many moves without a better partition, or this share of the vertices.
_PATIENCE, _PATIENCE_SHARE = 200, 0.02


def best_partition(
    W: Any, X: Matrix, sizes: range | None, rng: np.random.Generator, progress: bool = False
) -> IntArray:
    """Return the best of several roundings of the relaxation's answer, each improved by local search.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Symmetric, zero on the diagonal.
    X : array of shape (n, n) or LowRank
        Positive semidefinite; entries near one join two vertices.
    sizes : range, optional
        The allowed numbers of vertices on the first side; any number by default.
    rng : numpy.random.Generator
    progress : bool
        Show a bar for each of the two loops.

    Returns
    -------
    int array of shape (n,)
        The side of each vertex, 1 or -1.
    """
    with threads_for(X.shape[0]):
        F = _principal(X)
        normals = rng.normal(size=(F.shape[1], _HYPERPLANES)).T
        normals = np.concatenate([np.eye(F.shape[1])[:_LEADING], normals])
        found = (
            _split(W, F @ normal, sizes) for normal in _in_time(items_bar(normals, "roundings", progress))
        )
        sides = {np.packbits(side > 0).tobytes(): side for side in found}
    gain = {key: float(side @ (W @ side)) for key, side in sides.items()}
    best = [sides[key] for key in sorted(sides, key=lambda key: (-gain[key], key))[:_IMPROVED]]
    rounds = [_swapped] if sizes is not None else []
    if sizes is None or len(sizes) > 1:
        rounds.append(partial(_flipped, sizes=sizes))
    improved = (_improved(W, side, rounds) for side in _in_time(items_bar(best, "local searches", progress)))
    return max(improved, key=lambda side: float(side @ (W @ side)))


def _in_time(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield the first row, and the others while there is time."""
    for k, row in enumerate(rows):
        if k and remaining() <= 0:
            return
        yield row


def _principal(X: Matrix) -> Array:
    """Return ``F`` with ``X = F F'`` and orthogonal columns, the longest first.

    If there is no time for the eigendecomposition, ``F`` is ``X`` itself: the hyperplanes then have another
    distribution.
    """
    if isinstance(X, LowRank):
        return turned(X.factor)
    if not affords(len(X)):
        return X
    eigenvalues, U = np.linalg.eigh(X)
    return np.asarray((U * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1])


def _split(W: Any, score: Array, sizes: range | None) -> IntArray:
    """Return the partition by sign, or the best partition into low and high scores with an allowed size."""
    if sizes is None:
        return np.where(score >= 0, 1, -1)
    rank = np.empty(len(score), dtype=np.intp)
    rank[np.argsort(score, kind="stable")] = np.arange(len(score))
    # An edge is cut by the sizes from its lower rank plus one up to its higher rank.
    edges = W.tocoo()
    low, high = rank[edges.row], rank[edges.col]
    once = low < high
    change = np.bincount(low[once] + 1, edges.data[once], len(score) + 1)
    change -= np.bincount(high[once] + 1, edges.data[once], len(score) + 1)
    cut = np.cumsum(change)
    return np.where(rank < sizes[int(np.argmin(cut[sizes.start : sizes.stop]))], 1, -1)


def _improved(W: Any, side: IntArray, rounds: Sequence[Callable[[Any, IntArray], IntArray]]) -> IntArray:
    """Return a partition that no kind of round improves, or the best one when time is up."""
    round_off = 1e-12 * float(np.abs(W.data).sum())
    failed = 0
    while failed < len(rounds):
        for search in rounds:
            try:
                moved = search(W, side)
            except CutShort:
                return side
            better = moved @ (W @ moved) > (side @ (W @ side)) + round_off
            side, failed = (moved, 0) if better else (side, failed + 1)
    return side


def _swapped(W: Any, side: IntArray) -> IntArray:
    """Return the best partition found during one round of swaps (Kernighan and Lin 1970).

    Each swap exchanges the vertices with the largest gain, possibly negative, of the two sides and then fixes
    them. So a round can leave partitions that no single swap improves.
    """
    now, gain = side.copy(), -side * (W @ side)  # a quarter of the change of s'Ws by moving each vertex
    # The gains of the free vertices of either side; fixed vertices have gain -inf.
    reach = {sign: np.where(side == sign, gain, -np.inf) for sign in (1, -1)}
    swaps, gains = [], _Gains(len(side))
    for _ in range(min((side == 1).sum(), (side == -1).sum())):
        checkpoint()
        a, gained = _moved(W, now, reach, 1)
        b, more = _moved(W, now, reach, -1)
        swaps.append((a, b))
        if gains.add(gained + more):
            break
    return _until_best(side, swaps, gains.best)


def _flipped(W: Any, side: IntArray, sizes: range | None = None) -> IntArray:
    """Return the best partition found during one round of single moves (Fiduccia and Mattheyses 1982).

    Each move takes the vertex with the largest gain, possibly negative, from a side that may become smaller.
    """
    now, gain = side.copy(), -side * (W @ side)
    reach = {sign: np.where(side == sign, gain, -np.inf) for sign in (1, -1)}
    first, moves, gains = int((side == 1).sum()), [], _Gains(len(side))
    for _ in range(len(side)):
        checkpoint()
        most = {sign: reach[sign].max() for sign in (1, -1) if sizes is None or first - sign in sizes}
        sign = max(most, key=lambda sign: most[sign], default=0)
        if sign == 0 or most[sign] == -np.inf:
            break
        a, gained = _moved(W, now, reach, sign)
        first -= sign
        moves.append((a,))
        if gains.add(gained):
            break
    return _until_best(side, moves, gains.best)


def _moved(W: Any, now: IntArray, reach: dict[int, Array], group: int) -> tuple[int, float]:
    """Move the free vertex of a group with the largest gain and fix it; return the vertex and its gain."""
    a = int(np.argmax(reach[group]))
    gained = float(reach[group][a])
    reach[group][a] = -np.inf
    span = slice(W.indptr[a], W.indptr[a + 1])
    near = W.indices[span]
    # The gain of a neighbor changes by twice the weight times the product of the two old signs.
    change = 2 * W.data[span] * now[near] * now[a]
    for gain in reach.values():
        gain[near] += change
    now[a] = -now[a]
    return a, gained


class _Gains:
    """The total gain of the moves of a round, its maximum, and the moves since the maximum."""

    def __init__(self, n: int) -> None:
        self._total, self._most, self._count = 0.0, 0.0, 0
        self._patience = max(_PATIENCE, int(_PATIENCE_SHARE * n))
        self.best = 0

    def add(self, gain: float) -> bool:
        """Add a move; return whether the maximum is more moves ago than the patience."""
        self._total += gain
        self._count += 1
        if self._total > self._most:
            self._most, self.best = self._total, self._count
        return self._count - self.best > self._patience


def _until_best(side: IntArray, moves: Sequence[tuple[int, ...]], kept: int) -> IntArray:
    """Return the partition after the first `kept` moves."""
    best = side.copy()
    for move in moves[:kept]:
        best[list(move)] = -side[list(move)]
    return best
