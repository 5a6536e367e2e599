"""Rows that are squared distances: ``w (X[i, i] + X[j, j] - 2 X[i, j])``."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows.base import Coordinates, RankOneTerms, RowFamily, symmetric_scatter
from bregopt.program.rows.rank_one import RankOne
from bregopt.records import dataclass, replace

__all__ = ["Distances"]


@dataclass(frozen=True, eq=False)
class Distances(RowFamily):
    """Rows with ``A = w (e_i - e_j)(e_i - e_j)'``, ``i != j``; three arrays of length `m`."""

    rank: ClassVar[int | None] = 1
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
            difference = X.factor[self.i] - X.factor[self.j]
            return self.weight * np.einsum("kr,kr->k", difference, difference)
        diagonal = X.diagonal()
        return self.weight * (diagonal[self.i] + diagonal[self.j] - 2 * X[self.i, self.j])

    def adjoint(self, y: Array) -> Array:
        terms = self.coordinates()
        return symmetric_scatter(self.n, terms.i, terms.j, terms.value * y[terms.row])

    def restrict(self, V: Array) -> RankOne:
        return RankOne(V[self.i] - V[self.j], self.weight)

    def slice(self, rows: IntArray) -> Distances:
        return replace(self, i=self.i[rows], j=self.j[rows], weight=self.weight[rows])

    def scale(self, weight: Array) -> Distances:
        return replace(self, weight=self.weight * weight)

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
