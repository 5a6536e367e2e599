"""Reductions of a graph that keep its largest cut: vertices of few neighbors, components, blocks.

Let ``v`` have at most three neighbors. Its best side depends on their sides alone, and so does what its edges
add to the cut. Up to a constant, that function of two or three signs is the cut of one edge, or of a
triangle. So ``v`` is left out, and edges between its neighbors take its place. Blocks, the maximal subgraphs
without a vertex whose removal separates them, share single vertices, so each is solved alone, and turned to
agree.

Weights are fractions: a proof of the whole graph follows from proofs of its pieces without round-off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray

_FEW = 3  # neighbors of a vertex that is left out

Neighbors = dict[int, dict[int, Fraction]]


class Piece(NamedTuple):
    """A graph that is solved by branch and bound.

    Parameters
    ----------
    vertices : int array of shape (n,)
        Its vertices, by their numbers in the whole graph.
    i, j : int arrays of shape (m,)
        The ends of its edges, as places in `vertices`, ``i < j``.
    weights : tuple of m fractions
    """

    vertices: IntArray
    i: IntArray
    j: IntArray
    weights: tuple[Fraction, ...]

    @property
    def n(self) -> int:
        """The number of vertices."""
        return len(self.vertices)

    def cut(self, side: IntArray) -> Fraction:
        """Return the exact weight of the edges between two sides, signs of shape (n,)."""
        ends = zip(self.weights, side[self.i].tolist(), side[self.j].tolist(), strict=True)
        return sum((w for w, a, b in ends if a != b), Fraction(0))


class Reduction(NamedTuple):
    """What is left of a graph, and the way back.

    Parameters
    ----------
    vertices : list of int
    eliminated : list of (vertex, dict from neighbor to weight)
        In the order in which they were left out.
    constant : Fraction
        What the vertices that were left out add to every largest cut.
    parts : list of Reduction or Piece
        Each shares at most one vertex with those before it.
    """

    vertices: list[int]
    eliminated: list[tuple[int, dict[int, Fraction]]]
    constant: Fraction
    parts: list[Reduction | Piece]

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, in the order of :meth:`lifted`."""
        return [own for part in self.parts for own in ([part] if isinstance(part, Piece) else part.pieces)]

    @property
    def total(self) -> Fraction:
        """The constant, with those of the parts."""
        return self.constant + sum(
            (part.total for part in self.parts if isinstance(part, Reduction)), Fraction(0)
        )

    @property
    def left_out(self) -> int:
        """The number of vertices that were left out, in all parts."""
        return len(self.eliminated) + sum(part.left_out for part in self.parts if isinstance(part, Reduction))

    def lifted(self, sides: Sequence[IntArray]) -> dict[int, int]:
        """Return the sign of each vertex, given those of the vertices of each piece."""
        return self._lifted(iter(sides))

    def _lifted(self, sides: Iterator[IntArray]) -> dict[int, int]:
        found: dict[int, int] = {}
        for part in self.parts:
            if isinstance(part, Piece):
                own = dict(zip(part.vertices.tolist(), next(sides).tolist(), strict=True))
            else:
                own = part._lifted(sides)
            turn = next((found[v] * own[v] for v in own if v in found), 1)
            found |= {v: turn * sign for v, sign in own.items()}
        for v in self.vertices:
            found.setdefault(v, 1)
        for v, near in reversed(self.eliminated):
            pull = sum((w * found[u] for u, w in near.items()), Fraction(0))
            found[v] = -1 if pull > 0 else 1
        return found


def reduced(n: int, i: IntArray, j: IntArray, weights: Array) -> Reduction:
    """Return the reduction of a graph with edges between `i` and `j`, whose weights are taken as exact."""
    near: Neighbors = {v: {} for v in range(n)}
    for a, b, w in zip(i.tolist(), j.tolist(), map(Fraction, weights.tolist()), strict=True):
        _join(near, a, b, w)
    return _reduced(near)


def _join(near: Neighbors, a: int, b: int, weight: Fraction) -> None:
    """Add a weight to an edge, which vanishes where it is zero then."""
    total = near[a].get(b, Fraction(0)) + weight
    if total:
        near[a][b] = near[b][a] = total
    else:
        near[a].pop(b, None)
        near[b].pop(a, None)


def _reduced(near: Neighbors) -> Reduction:
    vertices, eliminated, constant = list(near), [], Fraction(0)
    waiting = [v for v in near if len(near[v]) <= _FEW]
    while waiting:
        v = waiting.pop()
        if v not in near or len(near[v]) > _FEW:
            continue
        own = near.pop(v)
        for u in own:
            del near[u][v]
        eliminated.append((v, own))
        constant += _replaced(near, own)
        waiting += [u for u in own if len(near[u]) <= _FEW]
    blocks = list(_blocks(near))
    if len(blocks) == 1 and len(blocks[0]) == len(near):
        return Reduction(vertices, eliminated, constant, [_piece(near)])
    parts: list[Reduction | Piece] = [
        _reduced({v: {u: w for u, w in near[v].items() if u in block} for v in block}) for block in blocks
    ]
    return Reduction(vertices, eliminated, constant, parts)


def _replaced(near: Neighbors, own: dict[int, Fraction]) -> Fraction:
    """Add the edges that take the place of a vertex with these neighbors; return the constant."""
    ends, w = list(own), list(own.values())
    whole = sum(w, Fraction(0))
    alike = max(Fraction(0), whole)  # what its edges add where all neighbors are on one side
    if len(ends) == 2:
        _join(near, ends[0], ends[1], max(w) - alike)
    if len(ends) == 3:
        apart = [max(one, whole - one) - alike for one in w]  # where one neighbor is alone
        for k in range(3):
            a, b, other = ends[k], ends[k - 1], apart[k - 2]
            _join(near, a, b, (apart[k] + apart[k - 1] - other) / 2)
    return alike


def _blocks(near: Neighbors) -> Iterator[set[int]]:
    """Return the vertices of the blocks with an edge; each shares one vertex at most with those before it.

    By depth-first search (Hopcroft, Tarjan 1973), without recursion. Blocks are found leaves first.
    """
    found: list[set[int]] = []
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    for root in near:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack: list[tuple[int, int, Iterator[int]]] = [(root, -1, iter(near[root]))]
        edges: list[tuple[int, int]] = []
        while stack:
            v, parent, rest = stack[-1]
            u = next(rest, None)
            if u is None:
                stack.pop()
                if parent < 0:
                    continue
                low[parent] = min(low[parent], low[v])
                if low[v] >= number[parent]:
                    block: set[int] = set()
                    while True:
                        edge = edges.pop()
                        block.update(edge)
                        if edge == (parent, v):
                            break
                    found.append(block)
            elif u not in number:
                number[u] = low[u] = len(number)
                edges.append((v, u))
                stack.append((u, v, iter(near[u])))
            elif u != parent and number[u] < number[v]:
                low[v] = min(low[v], number[u])
                edges.append((v, u))
    return reversed(found)


def _piece(near: Neighbors) -> Piece:
    vertices = sorted(near)
    place = {v: k for k, v in enumerate(vertices)}
    edges = [(place[v], place[u], near[v][u]) for v in vertices for u in sorted(near[v]) if v < u]
    i, j = (np.array([edge[end] for edge in edges], dtype=np.intp) for end in (0, 1))
    return Piece(np.array(vertices, dtype=np.intp), i, j, tuple(edge[2] for edge in edges))
