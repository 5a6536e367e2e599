"""The search for a good partition in k parts: recursive bisection, and refinement of pairs of parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import IntArray
from bregopt.bars import items_bar
from bregopt.problems.cuts.multilevel import cycle
from bregopt.problems.cuts.sign_graph import SignGraph

__all__ = ["best_parts"]

_STARTS = 6  # rounds that divide all of the graph, by recursive bisection
_EDGES = 500_000  # edge ends in all rounds, for each pair of parts that a vertex is in
_MOST_ROUNDS = 66
_PATIENCE = 30  # rounds without a better partition
_SWEEPS = 10  # over all pairs of parts
_MERGED = (2, 3)  # parts that rounds divide anew, in turn


def best_parts(
    W: Any,
    sizes: list[int],
    rng: np.random.Generator,
    proven: Callable[[IntArray], bool],
    progress: bool = False,
) -> IntArray:
    """Return the number of its part for each vertex, in a partition with small weight between the parts.

    Each round divides some parts of the best partition anew, and refines what it gets.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        The weights of the edges, none below zero.
    sizes : list of int
    rng : numpy.random.Generator
    proven : function of a partition
        Whether none is better.
    progress : bool
        Show a bar of the rounds.
    """
    k = len(sizes)
    best = np.repeat(np.arange(k), sizes)
    rounds = min(max(_EDGES // max((k - 1) * W.nnz, 1), 1), _MOST_ROUNDS)
    failed = 0
    for number in items_bar(range(rounds), "rounds", progress):
        if proven(best) or failed >= _PATIENCE or (number and clock.remaining() <= 0):
            break
        merged = np.arange(k) if number < _STARTS else rng.permutation(k)[: _MERGED[number % len(_MERGED)]]
        part = _refined(W, _divided(W, best, merged, rng), rng)
        failed = 0 if _kept(W, part) > _kept(W, best) else failed + 1
        best = max(part, best, key=lambda found: _kept(W, found))  # another one of equal weight is welcome
    return _ordered(best, sizes)


def _divided(W: Any, part: IntArray, merged: IntArray, rng: np.random.Generator) -> IntArray:
    """Return a partition with other parts in place of some of them."""
    vertices = np.flatnonzero(np.isin(part, merged))
    sizes = np.bincount(part, minlength=merged.max() + 1)[merged]
    part = part.copy()
    part[vertices] = merged[_bisected(_inside(W, vertices), [int(size) for size in sizes], rng)]
    return part


def _bisected(W: Any, sizes: list[int], rng: np.random.Generator) -> IntArray:
    """Return a partition by bisections of bisections."""
    part = np.zeros(W.shape[0], dtype=np.intp)
    if len(sizes) == 1:
        return part
    half = len(sizes) // 2
    first = sum(sizes[:half])
    side = cycle(_signs(W, first, first), [], rng)
    for sign, own, offset in ((1, sizes[:half], 0), (-1, sizes[half:], half)):
        vertices = np.flatnonzero(side == sign)
        part[vertices] = offset + _bisected(_inside(W, vertices), own, rng)
    return part


def _refined(W: Any, part: IntArray, rng: np.random.Generator) -> IntArray:
    """Return a partition that cycles in pairs of its parts do not improve, or the last one in time."""
    part = part.copy()
    parts = range(part.max() + 1)
    changed = set(parts)
    for _ in range(_SWEEPS):
        before, changed = changed, set()
        for p, q in combinations(parts, 2):
            if clock.remaining() <= 0:
                return part
            if {p, q} & (before | changed) and _refine_pair(W, part, p, q, rng):
                changed |= {p, q}
        if not changed:
            break
    return part


def _refine_pair(W: Any, part: IntArray, p: int, q: int, rng: np.random.Generator) -> bool:
    """Improve two parts in place; return whether they changed. Their sizes may change places."""
    vertices = np.flatnonzero((part == p) | (part == q))
    side = np.where(part[vertices] == p, 1, -1)
    ends = sorted((int((side == 1).sum()), int((side == -1).sum())))
    least, most = ends if ends[1] - ends[0] == 1 else (int((side == 1).sum()),) * 2
    graph = _signs(_inside(W, vertices), least, most)
    better = cycle(graph, [side], rng)
    if graph.value(better) <= graph.value(side) + graph.round_off:
        return False
    part[vertices] = np.where(better == 1, p, q)
    return True


def _ordered(part: IntArray, sizes: list[int]) -> IntArray:
    """Return the partition with its parts renamed, so that they have the sizes in the order asked for."""
    found = np.bincount(part, minlength=len(sizes))
    name = np.empty(len(sizes), dtype=np.intp)
    name[np.argsort(found, kind="stable")] = np.argsort(sizes, kind="stable")
    return name[part]


def _kept(W: Any, part: IntArray) -> float:
    """Return twice the weight of the edges inside the parts."""
    edges = W.tocoo()
    return float(edges.data[part[edges.row] == part[edges.col]].sum())


def _signs(W: Any, least: int, most: int) -> SignGraph:
    return SignGraph(W, np.ones(W.shape[0], dtype=np.intp), least, most)


def _inside(W: Any, vertices: IntArray) -> Any:
    """Return the weights between some of the vertices."""
    return W[vertices][:, vertices]
