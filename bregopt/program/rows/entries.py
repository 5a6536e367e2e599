"""Rows that are single entries: ``w X[i, j]``."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows.base import Coordinates, RankOneTerms, RowFamily, symmetric_scatter
from bregopt.program.rows.rank_one import RankOne
from bregopt.program.rows.rank_two import RankTwo
from bregopt.records import dataclass, replace

__all__ = ["Entries"]


@dataclass(frozen=True, eq=False)
class Entries(RowFamily):
    """Rows ``w X[i, j]``, that is ``A = w (e_i e_j' + e_j e_i') / 2``; three arrays of length `m`."""

    rank: ClassVar[int | None] = 2
    single: ClassVar[bool] = True
    few_terms: ClassVar[bool] = True

    n: int
    i: IntArray
    j: IntArray
    weight: Array

    @property
    def m(self) -> int:
        return len(self.i)

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            return self.weight * np.einsum("kr,kr->k", X.factor[self.i], X.factor[self.j])
        return self.weight * X[self.i, self.j]

    def adjoint(self, y: Array) -> Array:
        return symmetric_scatter(self.n, self.i, self.j, self.weight * y)

    def restrict(self, V: Array) -> RankOne | RankTwo:
        if np.array_equal(self.i, self.j):
            return RankOne(V[self.i], self.weight)
        return RankTwo(V[self.i], V[self.j], self.weight)

    def slice(self, rows: IntArray) -> Entries:
        return replace(self, i=self.i[rows], j=self.j[rows], weight=self.weight[rows])

    def scale(self, weight: Array) -> Entries:
        return replace(self, weight=self.weight * weight)

    def norms(self) -> Array:
        return np.abs(self.weight) * np.where(self.i == self.j, 1.0, np.sqrt(0.5))

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * s[self.i] * s[self.j]

    def factor(self, k: int) -> tuple[Array, Array]:
        i, j, w = self.i[k], self.j[k], self.weight[k]
        if i == j:
            U = np.zeros((self.n, 1))
            U[i] = 1.0
            return U, np.array([w])
        U = np.zeros((self.n, 2))
        U[i] = 1.0
        U[j] = 1.0, -1.0
        return U, np.array([w / 4, -w / 4])

    def rank_one_terms(self) -> RankOneTerms:
        # e_i e_j' + e_j e_i' = ((e_i + e_j)(e_i + e_j)' - (e_i - e_j)(e_i - e_j)') / 2; one term if i = j
        diagonal, off = np.flatnonzero(self.i == self.j), np.flatnonzero(self.i != self.j)
        one, two = len(diagonal), len(off)
        ends = np.column_stack([self.i[off], self.j[off]]).ravel()
        value = np.concatenate([np.ones(one + 2 * two), np.tile([1.0, -1.0], two)])
        start = np.concatenate([np.arange(one), one + 2 * np.arange(2 * two + 1)])
        U = sp.csr_array(
            (value, np.concatenate([self.i[diagonal], ends, ends]), start), (one + 2 * two, self.n)
        )
        weight = np.concatenate([self.weight[diagonal], self.weight[off] / 4, -self.weight[off] / 4])
        return RankOneTerms(U, np.concatenate([diagonal, off, off]), weight)

    def coordinates(self) -> Coordinates:
        return Coordinates(np.arange(self.m), self.i, self.j, self.weight)

    def count(self) -> int:
        return self.m

    def nonzero(self) -> IntArray:
        return np.flatnonzero(self.weight)

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.where(self.i == self.j, np.sign(self.weight), 0.0)
