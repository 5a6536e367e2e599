"""Cycles through coarser and coarser graphs (Karypis and Kumar 1998; Walshaw 2004 for kept partitions)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bregopt.arrays import IntArray
from bregopt.clock import remaining
from bregopt.problems.cuts.coarsening import contracted
from bregopt.problems.cuts.refinement import refined
from bregopt.problems.cuts.sign_graph import SignGraph

__all__ = ["cycle"]

_COARSEST = 30  # vertices of a graph that is not contracted further
_LARGEST = 1.5  # size of a coarse vertex relative to the mean of the coarsest graph
_SHRINKS = 0.95  # a contraction that leaves a larger share of the vertices is not worth its time
_STARTS, _STARTS_VERTICES = 12, 360  # most random partitions of the coarsest graph, and their vertices


def cycle(graph: SignGraph, kept: Sequence[IntArray], rng: np.random.Generator) -> IntArray:
    """Return a partition found by contraction, search on the coarse graph, and refinement on the way back.

    When time is up it contracts and refines no further.

    Parameters
    ----------
    graph : SignGraph
    kept : sequence of int arrays of shape (n,)
        The answer is at least as good as each of these partitions. Without any it begins with random ones.
    rng : numpy.random.Generator
    """
    most = max(int(_LARGEST * graph.total / _COARSEST), 2)
    if graph.n > _COARSEST and remaining() > 0:
        contraction = contracted(graph, kept, most, rng)
        if contraction.coarse.n <= _SHRINKS * graph.n:
            # A vertex that stands for its coarse vertex has sign 1 in it.
            below = [side[contraction.first] for side in kept]
            found = refined(graph, contraction.fine(cycle(contraction.coarse, below, rng)))
            return max(found, *kept, key=graph.rank) if kept else found
    if kept:
        return refined(graph, max(kept, key=graph.rank))
    starts = min(max(_STARTS_VERTICES // graph.n, 1), _STARTS)
    sides = (refined(graph, graph.split(rng.normal(size=graph.n))) for _ in range(starts))
    return max(sides, key=graph.rank)
