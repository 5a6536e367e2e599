"""Relaxed partitions: unit vectors in place of signs (Burer, Monteiro, Zhang 2002)."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.problems.cuts.sign_graph import SignGraph

__all__ = ["ascended"]

_DAMPING = 0.5  # weight of the last step; without it the vertices of bipartite graphs change places for ever


def ascended(graph: SignGraph, R: Array, steps: int) -> Array:
    """Return unit vectors, the rows of ``R``, with a larger ``tr R'WR``.

    Each step moves every row toward the best one for the others. The length of the sum of all rows is kept
    at that of a partition with allowed sizes.

    Parameters
    ----------
    graph : SignGraph
        Each vertex has size 1.
    R : array of shape (n, rank)
        The start.
    steps : int
    """
    R = _unit(R)
    for _ in range(steps):
        checkpoint()
        R = _balanced(graph, _unit(_DAMPING * R + _unit(graph.W @ R)))
    return R


def _unit(R: Array) -> Array:
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    length[length == 0] = 1.0
    return R / length[:, None]


def _balanced(graph: SignGraph, R: Array) -> Array:
    """Return unit rows whose mean has nearly a length that the sizes of the sides allow."""
    if graph.free:
        return R
    smallest, largest = _lengths(graph)
    mean = R.mean(axis=0)
    length = float(np.linalg.norm(mean))
    if length == 0:
        return R
    return _unit(R + (min(max(length, smallest), largest) / length - 1.0) * mean)


def _lengths(graph: SignGraph) -> tuple[float, float]:
    """Return bounds on the length of the mean of the signs of a partition."""
    ends = [2 * first / graph.n - 1 for first in (graph.least, graph.most)]
    smallest = 0.0 if ends[0] <= 0 <= ends[1] else min(map(abs, ends))
    return smallest, max(map(abs, ends))
