"""General rows, stored as a stack of symmetric matrices."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows.base import Coordinates, RowFamily, eigen_factor
from bregopt.records import dataclass

__all__ = ["DenseRows"]


@dataclass(frozen=True, eq=False)
class DenseRows(RowFamily):
    """Rows given by a stack of symmetric matrices, shape ``(m, n, n)``."""

    few_terms: ClassVar[bool] = False

    stack: Array

    @property
    def m(self) -> int:
        return self.stack.shape[0]

    @property
    def n(self) -> int:
        return self.stack.shape[1]

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            return np.einsum("kir,ir->k", self.stack @ X.factor, X.factor)
        return self.stack.reshape(self.m, -1) @ X.ravel()

    def adjoint(self, y: Array) -> Array:
        return (y @ self.stack.reshape(self.m, -1)).reshape(self.n, self.n)

    def restrict(self, V: Array) -> DenseRows:
        restricted = V.T @ self.stack @ V
        return DenseRows((restricted + restricted.transpose(0, 2, 1)) / 2)

    def slice(self, rows: IntArray) -> DenseRows:
        return DenseRows(self.stack[rows])

    def scale(self, weight: Array) -> DenseRows:
        return DenseRows(weight[:, None, None] * self.stack)

    def norms(self) -> Array:
        return np.linalg.norm(self.stack.reshape(self.m, -1), axis=1)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.stack).reshape(self.m, -1) @ np.outer(s, s).ravel()

    def factor(self, k: int) -> tuple[Array, Array]:
        return eigen_factor(self.stack[k])

    def rank_one_terms(self) -> None:
        return None

    def coordinates(self) -> Coordinates:
        row, i, j = np.nonzero(self.stack)
        return Coordinates(row, i, j, self.stack[row, i, j])

    def count(self) -> int:
        return self.stack.size
