"""Rows that are single entries ``w X[i, j]``, or squared distances ``w (X[i, i] + X[j, j] - 2 X[i, j])``."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows.base import Coordinates, RankOneTerms, RowFamily, symmetric_scatter
from bregopt.program.rows.low_rank import RankOne, RankTwo
from bregopt.records import dataclass, replace

__all__ = ["Distances", "Entries"]


@dataclass(frozen=True, eq=False)
class _Places(RowFamily):
    """Rows that places ``i``, ``j`` and a weight each determine; three arrays of length `m`."""

    few_terms: ClassVar[bool] = True

    n: int
    i: IntArray
    j: IntArray
    weight: Array

    @property
    def m(self) -> int:
        return len(self.i)

    def slice(self, rows: IntArray) -> Self:
        return replace(self, i=self.i[rows], j=self.j[rows], weight=self.weight[rows])

    def scale(self, weight: Array) -> Self:
        return replace(self, weight=self.weight * weight)


@dataclass(frozen=True, eq=False)
class Entries(_Places):
    """Rows ``w X[i, j]``, that is ``A = w (e_i e_j' + e_j e_i') / 2``."""

    rank: ClassVar[int | None] = 2
    single: ClassVar[bool] = True

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
        return self.weight.nonzero()[0]

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.where(self.i == self.j, np.sign(self.weight), 0.0)


@dataclass(frozen=True, eq=False)
class Distances(_Places):
    """Rows with ``A = w (e_i - e_j)(e_i - e_j)'``, ``i != j``."""

    rank: ClassVar[int | None] = 1

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            difference = X.factor[self.i] - X.factor[self.j]
            return self.weight * np.einsum("kr,kr->k", difference, difference)
        diagonal = X.diagonal()
        return self.weight * (diagonal[self.i] + diagonal[self.j] - 2 * X[self.i, self.j])

    def adjoint(self, y: Array) -> Array:
        terms = self.coordinates()
        return symmetric_scatter(self.n, terms.i, terms.j, terms.value * y[terms.row])

    def restrict(self, V: Array) -> RankOne:
        return RankOne(V[self.i] - V[self.j], self.weight)

    def norms(self) -> Array:
        return 2 * np.abs(self.weight)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * (s[self.i] + s[self.j]) ** 2

    def factor(self, k: int) -> tuple[Array, Array]:
        z = np.zeros((self.n, 1))
        z[self.i[k]] = 1.0
        z[self.j[k]] = -1.0
        return z, self.weight[k : k + 1]

    def rank_one_terms(self) -> RankOneTerms:
        row = np.arange(self.m)
        at, index = np.concatenate([row, row]), np.concatenate([self.i, self.j])
        value = np.concatenate([np.ones(self.m), -np.ones(self.m)])
        return RankOneTerms(sp.csr_array((value, (at, index)), (self.m, self.n)), row, self.weight)

    def coordinates(self) -> Coordinates:
        row = np.tile(np.arange(self.m), 3)
        i = np.concatenate([self.i, self.j, self.i])
        j = np.concatenate([self.i, self.j, self.j])
        return Coordinates(row, i, j, np.concatenate([self.weight, self.weight, -2 * self.weight]))

    def count(self) -> int:
        return 3 * self.m

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.sign(self.weight)
