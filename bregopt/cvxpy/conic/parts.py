"""Conic data as the parts of a :class:`~bregopt.program.Program`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.conic.form import Conic
from bregopt.presolve.row_recognition import recognize
from bregopt.program import Block, LinearMap, Term
from bregopt.program.rows import Coordinates, SparseRows

__all__ = ["blocks_of", "map_of"]


def blocks_of(conic: Conic, cost: Array) -> tuple[Block, ...]:
    """Return the blocks, with the given prices of the psd rows."""
    used = np.flatnonzero(cost)
    rows = {b: family for b, _, family in _sparse(conic, np.zeros_like(used), used, cost[used])}
    return tuple(Block(f"block {b}", n, rows.get(b)) for b, n in enumerate(conic.orders))


def map_of(conic: Conic, m: int, row: IntArray, place: IntArray, value: Array) -> LinearMap:
    """Return the map whose row ``row[k]`` has ``value[k]`` times the psd row number ``place[k]``."""
    terms = [
        Term(b, at[local], family)
        for b, at, rows in _sparse(conic, row, place, value)
        for local, family in recognize(rows)
    ]
    return LinearMap(m, conic.orders, tuple(terms))


def _sparse(
    conic: Conic, row: IntArray, place: IntArray, value: Array
) -> Iterator[tuple[int, IntArray, SparseRows]]:
    """Yield each block that has entries, the numbers of its rows, and these rows as a family."""
    block, i, j, weight = conic.places
    block, i, j, value = block[place], i[place], j[place], value * weight[place]
    order = np.argsort(block, kind="stable")
    ends = np.searchsorted(block[order], np.arange(len(conic.orders) + 1))
    for b, (n, span) in enumerate(zip(conic.orders, pairwise(ends.tolist()), strict=True)):
        own = order[slice(*span)]
        if len(own):
            at, local = np.unique(row[own], return_inverse=True)
            yield b, at, SparseRows.of(len(at), n, Coordinates(local, i[own], j[own], value[own]))
