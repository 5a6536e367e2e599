"""Rows that are products ``weight u'X w``: entries in a range space, and differences of quadratic forms."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.program.lowrank import Matrix
from bregopt.program.rows.base import Coordinates, Products, RankOneTerms, RowFamily
from bregopt.program.rows.rank_one import (
    dense_row,
    outer_coordinates,
    outer_count,
    paired,
    products,
    row_dots,
)
from bregopt.records import dataclass, replace

__all__ = ["RankTwo"]


@dataclass(frozen=True, eq=False)
class RankTwo(RowFamily):
    """Rows with ``A = weight (u w' + w u') / 2``; `U` and `W` are dense or CSR of shape ``(m, n)``.

    A comparison ``z1'X z1 - z2'X z2`` is such a product, with ``u = z1 - z2`` and ``w = z1 + z2``.
    """

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

    def apply(self, X: Matrix) -> Array:
        return self.weight * paired(self.U, self.W, X)

    def adjoint(self, y: Array) -> Array:
        return products(self.U, self.W, self.weight * y)

    def restrict(self, V: Array) -> RankTwo:
        return RankTwo(self.U @ V, self.W @ V, self.weight)

    def slice(self, rows: IntArray) -> RankTwo:
        return RankTwo(self.U[rows], self.W[rows], self.weight[rows])

    def scale(self, weight: Array) -> RankTwo:
        return replace(self, weight=self.weight * weight)

    def norms(self) -> Array:
        uu, ww, uw = row_dots(self.U, self.U), row_dots(self.W, self.W), row_dots(self.U, self.W)
        return np.abs(self.weight) * np.sqrt((uu * ww + uw**2) / 2)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * (abs(self.U) @ s) * (abs(self.W) @ s)

    def factor(self, k: int) -> tuple[Array, Array]:
        u, w = dense_row(self.U, k), dense_row(self.W, k)
        length = np.linalg.norm(u), np.linalg.norm(w)
        if min(length) == 0.0:
            return np.zeros((self.n, 0)), np.zeros(0)
        # Scaled to one length, u + w and u - w are the two eigenvectors of u w' + w u'.
        u, w = u / length[0], w / length[1]
        U = np.column_stack([u + w, u - w])
        keep = np.linalg.norm(U, axis=0) > 1e-12
        d = self.weight[k] * length[0] * length[1] / 4 * np.array([1.0, -1.0])
        return U[:, keep], d[keep]

    def rank_one_terms(self) -> RankOneTerms:
        # u w' + w u' = ((u + w)(u + w)' - (u - w)(u - w)') / 2
        stack = [self.U + self.W, self.U - self.W]
        U = sp.vstack(stack, format="csr") if sp.issparse(self.U) else np.vstack(stack)
        return RankOneTerms(U, np.tile(np.arange(self.m), 2), np.concatenate([self.weight, -self.weight]) / 4)

    def coordinates(self) -> Coordinates:
        return outer_coordinates(self.U, self.W, self.weight)

    def count(self) -> int:
        return outer_count(self.U, self.W)

    def products(self) -> Products:
        return Products(self.U, self.W, self.weight)
