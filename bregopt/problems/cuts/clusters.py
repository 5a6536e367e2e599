"""Partitions of given sizes from the vectors of a relaxation: k-means with capacities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bregopt.arrays import Array, IntArray

__all__ = ["assigned", "clustered"]

_STEPS = 5  # of k-means


def clustered(F: Array, sizes: Sequence[int], rng: np.random.Generator) -> IntArray:
    """Return the part of each vertex, with similar vectors in one part.

    Parameters
    ----------
    F : array of shape (n, rank)
        The vectors of the vertices.
    sizes : sequence of int
    rng : numpy.random.Generator
        It draws the vertices whose vectors are the first centers.
    """
    seeds = _seeds(F, len(sizes), rng)
    wanted = np.bincount((F @ seeds.T).argmax(axis=1), minlength=len(sizes))
    centers = np.empty_like(seeds)
    centers[np.argsort(sizes)] = seeds[np.argsort(wanted)]  # the largest part where most vertices are near
    for _ in range(_STEPS):
        part = assigned(F @ centers.T, sizes)
        centers = np.stack([F[part == p].mean(axis=0) for p in range(len(sizes))])
        length = np.linalg.norm(centers, axis=1)
        centers /= np.where(length > 0, length, 1.0)[:, None]
    return assigned(F @ centers.T, sizes)


def assigned(score: Array, sizes: Sequence[int]) -> IntArray:
    """Return the part of each vertex, with large scores and parts of the given sizes.

    In each round the vertices ask for their best part that has room. A part with too little room takes those
    that would lose most in their next best part.

    Parameters
    ----------
    score : array of shape (n, k)
        The score of each vertex in each part.
    sizes : sequence of k ints
        Their sum is ``n``.
    """
    part = np.full(len(score), -1, dtype=np.intp)
    room = np.array(sizes)
    while room.any():
        left, roomy = np.flatnonzero(part < 0), np.flatnonzero(room)
        own = score[np.ix_(left, roomy)]
        wanted = roomy[own.argmax(axis=1)]
        ranked = np.sort(own, axis=1)
        loss = ranked[:, -1] - ranked[:, -2] if len(roomy) > 1 else ranked[:, -1]
        for p in roomy:
            asking = np.flatnonzero(wanted == p)
            taken = left[asking[np.argsort(-loss[asking], kind="stable")[: room[p]]]]
            part[taken] = p
            room[p] -= len(taken)
    return part


def _seeds(F: Array, k: int, rng: np.random.Generator) -> Array:
    """Return the vectors of k vertices, mostly far from each other.

    The probability of each is proportional to its squared distance from those before it, as in k-means++
    (Arthur and Vassilvitskii 2007).
    """
    chosen = [int(rng.integers(len(F)))]
    distance = np.full(len(F), np.inf)
    for _ in range(k - 1):
        distance = np.minimum(distance, ((F - F[chosen[-1]]) ** 2).sum(axis=1))
        total = distance.sum()
        chosen.append(int(rng.choice(len(F), p=distance / total if total > 0 else None)))
    return F[chosen]
