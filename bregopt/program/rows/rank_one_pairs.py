"""Rows that are sums of two quadratic forms: ``weight (u'X u + w'X w)``, the real form of ``z*X z``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program.lowrank import Matrix
from bregopt.program.rows.base import Coordinates, RankOneTerms, RowFamily, eigen_factor
from bregopt.program.rows.rank_one import (
    RankOne,
    dense_row,
    outer_coordinates,
    outer_count,
    paired,
    products,
    row_dots,
)
from bregopt.records import dataclass, replace

__all__ = ["RankOnePairs"]


@dataclass(frozen=True, eq=False)
class RankOnePairs(RowFamily):
    """Rows with ``A = weight (u u' + w w')``; `U` and `W` are dense or CSR of shape ``(m, n)``."""

    rank: ClassVar[int | None] = 2
    few_terms: ClassVar[bool] = False

    U: Any
    W: Any
    weight: Array

    @property
    def m(self) -> int:
        return int(self.U.shape[0])

    @property
    def n(self) -> int:
        return int(self.U.shape[1])

    @property
    def parts(self) -> tuple[RankOne, RankOne]:
        """The families of the two forms."""
        return RankOne(self.U, self.weight), RankOne(self.W, self.weight)

    def apply(self, X: Matrix) -> Array:
        return self.weight * (paired(self.U, self.U, X) + paired(self.W, self.W, X))

    def adjoint(self, y: Array) -> Array:
        weight = self.weight * y
        return products(self.U, self.U, weight) + products(self.W, self.W, weight)

    def restrict(self, V: Array) -> RankOnePairs:
        return replace(self, U=self.U @ V, W=self.W @ V)

    def slice(self, rows: IntArray) -> RankOnePairs:
        return RankOnePairs(self.U[rows], self.W[rows], self.weight[rows])

    def scale(self, weight: Array) -> RankOnePairs:
        return replace(self, weight=self.weight * weight)

    def norms(self) -> Array:
        uu, ww, uw = row_dots(self.U, self.U), row_dots(self.W, self.W), row_dots(self.U, self.W)
        return np.abs(self.weight) * np.sqrt(uu**2 + ww**2 + 2 * uw**2)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * ((abs(self.U) @ s) ** 2 + (abs(self.W) @ s) ** 2)

    def factor(self, k: int) -> tuple[Array, Array]:
        basis, R = np.linalg.qr(np.column_stack([dense_row(self.U, k), dense_row(self.W, k)]))
        small, d = eigen_factor(self.weight[k] * R @ R.T)
        return basis @ small, d

    def rank_one_terms(self) -> RankOneTerms:
        stack = [self.U, self.W]
        U = sp.vstack(stack, format="csr") if sp.issparse(self.U) else np.vstack(stack)
        return RankOneTerms(U, np.tile(np.arange(self.m), 2), np.tile(self.weight, 2))

    def coordinates(self) -> Coordinates:
        parts = (outer_coordinates(factor, factor, self.weight) for factor in (self.U, self.W))
        first, second = ((t.row, t.i, t.j, t.value) for t in parts)
        return Coordinates(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))

    def count(self) -> int:
        return outer_count(self.U, self.U) + outer_count(self.W, self.W)

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.sign(self.weight)
