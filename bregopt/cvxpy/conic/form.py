"""The data of a conic program with second-order and psd cones, as CVXPY lays it out for Clarabel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.cache import cached_property
from bregopt.cvxpy.cones import triangle
from bregopt.program import SecondOrderCones
from bregopt.records import dataclass

__all__ = ["Conic", "Places", "others"]


class Places(NamedTuple):
    """The entry of each psd row, which is ``weight * S[i, j]`` of a block."""

    block: IntArray
    i: IntArray
    j: IntArray
    weight: Array


@dataclass(frozen=True, eq=False)
class Conic:
    """The data of ``minimize c'x subject to A x + s = b``.

    Parameters
    ----------
    A : csr_array of shape (m, k)
    b : array of shape (m,)
    c : array of shape (k,)
    zero, nonneg : int
        Numbers of rows of the zero cone and of the nonnegative numbers, which come first.
    soc : tuple of int
        Dimensions of the second-order cones, whose rows come next.
    orders : tuple of int
        Orders of the psd matrices.
    """

    A: Any
    b: Array
    c: Array
    zero: int
    nonneg: int
    soc: tuple[int, ...]
    orders: tuple[int, ...]

    @property
    def linear(self) -> int:
        """The number of rows of the zero cone and of the nonnegative numbers."""
        return self.zero + self.nonneg

    @property
    def first_psd(self) -> int:
        """The number of rows that are not of a psd matrix."""
        return self.linear + sum(self.soc)

    def cones(self, first: int) -> SecondOrderCones:
        """Return the second-order cones, if their rows are the variables from the number `first` on."""
        ends = np.cumsum([first, *self.soc])
        return SecondOrderCones.of([np.arange(*pair) for pair in pairwise(ends.tolist())])

    @cached_property
    def spans(self) -> list[slice]:
        """The rows of each psd matrix."""
        ends = np.cumsum([self.first_psd, *(n * (n + 1) // 2 for n in self.orders)])
        return [slice(*pair) for pair in pairwise(ends.tolist())]

    @cached_property
    def places(self) -> Places:
        """The block, entry and weight of each psd row."""
        of_order = {n: triangle(n) for n in set(self.orders)}
        triangles = [of_order[n] for n in self.orders]
        i, j, weight = (np.concatenate(part) for part in zip(*triangles, strict=True))
        block = np.repeat(np.arange(len(self.orders)), [len(part.i) for part in triangles])
        return Places(block, i, j, weight)

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray]:
        """The number of each psd row's entry, and of its mirror image, among the entries of all matrices."""
        block, i, j, _ = self.places
        orders = np.array(self.orders)
        n, first = orders[block], (np.cumsum(orders**2) - orders**2)[block]
        return first + i * n + j, first + j * n + i

    def matrices(self, triangles: Array) -> list[Array]:
        """Return the symmetric matrices whose psd rows are given."""
        ends = np.cumsum([n * n for n in self.orders])
        flat = np.zeros(ends[-1])
        at, mirrored = self._entries
        flat[at] = flat[mirrored] = triangles / self.places.weight
        return [part.reshape(n, n) for part, n in zip(np.split(flat, ends[:-1]), self.orders, strict=True)]

    def triangles(self, S: Sequence[Array]) -> Array:
        """Return the psd rows of matrices."""
        at, _ = self._entries
        rows: Array = self.places.weight * np.concatenate([np.ravel(S_b) for S_b in S])[at]
        return rows


def others(chosen: IntArray, count: int) -> IntArray:
    """Return the numbers below `count` that are not chosen."""
    left = np.ones(count, dtype=bool)
    left[chosen] = False
    return np.flatnonzero(left)
