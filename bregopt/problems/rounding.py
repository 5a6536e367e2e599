"""From the answer of a cut's relaxation to a partition: eigenvectors, random hyperplanes, local search.

Every cut here is asked for as a vector of signs ``s`` with large ``s'Ws``: ``W`` holds the weights of the
edges for a small cut, and their negatives for a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.clock import CutShort, affords, checkpoint, remaining
from bregopt.linalg import turned
from bregopt.program import LowRank
from bregopt.program.lowrank import Matrix
from bregopt.threads import threads_for

__all__ = ["best_partition"]

_HYPERPLANES = 50
_LEADING = 3  # eigenvectors of X that are tried as directions too
_IMPROVED = 5  # of the roundings, the best ones
_PATIENCE, _PATIENCE_SHARE = 200, 0.02  # moves without a better partition, or this share of the vertices


def best_partition(W: Any, X: Matrix, sizes: range | None, rng: np.random.Generator) -> IntArray:
    """Return the best of several roundings of the relaxation's answer, each improved by local search.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Symmetric, zero on the diagonal.
    X : array of shape (n, n) or LowRank
        Positive semidefinite; near one where vertices belong together.
    sizes : range, optional
        The allowed numbers of vertices on the first side; any where none are given.
    rng : numpy.random.Generator

    Returns
    -------
    int array of shape (n,)
        The side of each vertex, 1 or -1.
    """
    with threads_for(X.shape[0]):
        F = _principal(X)
        normals = rng.normal(size=(F.shape[1], _HYPERPLANES)).T
        normals = np.concatenate([np.eye(F.shape[1])[:_LEADING], normals])
        found = (_split(W, F @ normal, sizes) for normal in _in_time(normals))
        sides = {np.packbits(side > 0).tobytes(): side for side in found}
    gain = {key: float(side @ (W @ side)) for key, side in sides.items()}
    best = [sides[key] for key in sorted(sides, key=lambda key: (-gain[key], key))[:_IMPROVED]]
    rounds = [_swapped] if sizes is not None else []
    if sizes is None or len(sizes) > 1:
        rounds.append(partial(_flipped, sizes=sizes))
    improved = (_improved(W, side, rounds) for side in _in_time(best))
    return max(improved, key=lambda side: float(side @ (W @ side)))


def _in_time(rows: Sequence[Any] | Array) -> Iterator[Any]:
    """Yield some rows, the first one always and the others while there is time."""
    yield rows[0]
    for row in rows[1:]:
        if remaining() <= 0:
            return
        yield row


def _principal(X: Matrix) -> Array:
    """Return ``F`` with ``X = F F'`` and orthogonal columns, the longest first.

    Where there is no time to decompose ``X``, its own columns: hyperplanes of another distribution.
    """
    if isinstance(X, LowRank):
        return turned(X.factor)
    if not affords(len(X)):
        return X
    eigenvalues, U = np.linalg.eigh(X)
    return np.asarray((U * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1])


def _split(W: Any, score: Array, sizes: range | None) -> IntArray:
    """Return the partition by sign, or into high and low scores, of the best among the allowed sizes."""
    if sizes is None:
        return np.where(score >= 0, 1, -1)
    rank = np.empty(len(score), dtype=np.intp)
    rank[np.argsort(score, kind="stable")] = np.arange(len(score))
    # An edge is cut by the sizes above the lower of its ranks, up to the higher.
    edges = W.tocoo()
    low, high = rank[edges.row], rank[edges.col]
    once = low < high
    change = np.bincount(low[once] + 1, edges.data[once], len(score) + 1)
    change -= np.bincount(high[once] + 1, edges.data[once], len(score) + 1)
    cut = np.cumsum(change)
    return np.where(rank < sizes[int(np.argmin(cut[sizes.start : sizes.stop]))], 1, -1)


def _improved(W: Any, side: IntArray, rounds: Sequence[Callable[[Any, IntArray], IntArray]]) -> IntArray:
    """Return a partition that no round of local search, of any of the kinds, makes better in time."""
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
    """Return the best partition on the way of one round of swaps (Kernighan and Lin 1970).

    Each swap takes from either side the vertex that gains most, or loses least, and leaves it where it
    goes; so a round climbs out of partitions that no single swap improves.
    """
    now, gain = side.copy(), -side * (W @ side)  # what moving one vertex adds to s'Ws, over four
    # The gains of the vertices of either side that are free; the others' are out of reach.
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
    """Return the best partition on the way of one round of single moves (Fiduccia and Mattheyses 1982).

    Each takes the vertex that gains most, or loses least, of a side that may lose it.
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
    """Move the free vertex of a group that gains most to the other side, for good; return it and its gain."""
    a = int(np.argmax(reach[group]))
    gained = float(reach[group][a])
    reach[group][a] = -np.inf
    span = slice(W.indptr[a], W.indptr[a + 1])
    near = W.indices[span]
    # An edge from a stays in the cut if its other end moves too.
    change = 2 * W.data[span] * now[near] * now[a]
    for gain in reach.values():
        gain[near] += change
    now[a] = -now[a]
    return a, gained


class _Gains:
    """What the moves of a round gain together: when that was most, and whether it is long ago."""

    def __init__(self, n: int) -> None:
        self._total, self._most, self._count = 0.0, 0.0, 0
        self._patience = max(_PATIENCE, int(_PATIENCE_SHARE * n))
        self.best = 0

    def add(self, gain: float) -> bool:
        """Add a move; return whether the round has gone on for long enough."""
        self._total += gain
        self._count += 1
        if self._total > self._most:
            self._most, self.best = self._total, self._count
        return self._count - self.best > self._patience


def _until_best(side: IntArray, moves: Sequence[tuple[int, ...]], kept: int) -> IntArray:
    """Return the partition after the first moves."""
    best = side.copy()
    for move in moves[:kept]:
        best[list(move)] = -side[list(move)]
    return best
