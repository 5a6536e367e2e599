"""Newton's system in the multipliers of the rows, where each block meets few of them.

The Schur matrix is then sparse, as for clique submatrices (:mod:`bregopt.presolve.chordal`). Its pattern is
found once. Each step sums the values into it and factorizes it (SuperLU; Demmel, Eisenstat, Gilbert, Li and
Liu 1999).
With variables the system is the quasi-definite ``[[M, B], [B', -1 / D_u]]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint
from bregopt.program import LinearMap
from bregopt.routes.ipm.groups import GroupRows
from bregopt.routes.ipm.newton_point import ScalingPoint
from bregopt.routes.ipm.row_system import RowSystem
from bregopt.routes.ipm.sparse_fill import fill_of
from bregopt.routes.ipm.sparse_solver import SparseFactor
from bregopt.routes.ipm.stack_schur import SchurValues
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.ipm.variable_metric import VariableMetric

__all__ = ["SparseRowSystem"]


class SparseRowSystem(RowSystem):
    """The system in the multipliers of the rows, with a sparse matrix.

    Parameters
    ----------
    A : LinearMap
    rows : sequence of GroupRows
        The rows in each group of blocks.
    B : csr_array of shape (m, k)
    tuning : InteriorPointTuning
    """

    def __init__(
        self,
        A: LinearMap,
        rows: Sequence[GroupRows],
        B: Any,
        tuning: InteriorPointTuning,
    ) -> None:
        super().__init__(A, rows, B, tuning, direct=True)
        self._formulas = [group.formula for group in rows]
        self._pattern = _Pattern(A.m, self._formulas, B)

    @classmethod
    def of(
        cls, A: LinearMap, rows: Sequence[GroupRows], B: Any, tuning: InteriorPointTuning
    ) -> SparseRowSystem | None:
        """Return the system, None where the matrix or its factor is not sparse."""
        if A.m < tuning.sparse_rows or _pairs(A) > tuning.sparse_schur * A.m**2:
            return None
        fill = fill_of(A, B, tuning.sparse_search * A.m**3)
        return cls(A, rows, B, tuning) if fill <= tuning.sparse_factor * A.m**2 / 2 else None

    def gram(self, P: Sequence[Array], rows: IntArray) -> Callable[[Array], Array]:
        """Return the solver of these equations, without variables."""
        matrix = self._matrix(P, P, np.zeros(self._A.m), np.ones(self._B.shape[1]))
        return SparseFactor(matrix[rows][:, rows], len(rows), self._tuning).solve

    def _factorized(
        self, scaling_point: ScalingPoint, bounded: IntArray
    ) -> tuple[VariableMetric, Callable[[Array, Array], tuple[Array, Array]]]:
        X, K, D, D_u = scaling_point.X, scaling_point.K, scaling_point.D, scaling_point.D_u
        m, k, count = self._A.m, len(D_u), len(bounded)
        matrix = self._matrix(X, K, np.where(np.isfinite(D), D, 0.0), 1 / D_u)
        if count < m:
            kept = np.concatenate([bounded, np.arange(m, m + k)])
            matrix = matrix[kept][:, kept]
        checkpoint()
        factor = SparseFactor(matrix, count, self._tuning)

        def solve(b: Array, q: Array) -> tuple[Array, Array]:
            x = factor.solve(np.concatenate([b, q]))
            return x[:count], x[count:]

        return VariableMetric(D_u, np.ones(k, dtype=bool)), solve

    def _matrix(self, X: Sequence[Array], K: Sequence[Array], D: Array, E: Array) -> Any:
        """Return ``[[M + D, B], [B', -E]]`` in CSC form."""
        values = [formula.values(*pair) for formula, *pair in zip(self._formulas, X, K, strict=True)]
        return self._pattern.matrix(np.concatenate(values), D, E)


class _Pattern:
    """The pattern of ``[[M + D, B], [B', -E]]``, and the place of each value in it."""

    def __init__(self, m: int, formulas: Sequence[SchurValues], B: Any) -> None:
        entries = sp.coo_array(B)
        size = m + B.shape[1]
        first, second = np.divmod(np.concatenate([formula.target for formula in formulas]), m)
        diagonal = np.arange(size)
        column = np.concatenate([second, first, diagonal, entries.col + m, entries.row])
        row = np.concatenate([first, second, diagonal, entries.row, entries.col + m])
        places, place = np.unique(column * size + row, return_inverse=True)
        self._place, self._B = place.ravel().astype(np.intp), entries.data
        column, row = np.divmod(places, size)
        self._indices, self._indptr = row.astype(np.int32), np.searchsorted(column, np.arange(size + 1))
        self._size = size

    def matrix(self, values: Array, D: Array, E: Array) -> Any:
        """Return the matrix, from the values of the formulas."""
        data = np.concatenate([values, values, D, -E, self._B, self._B])
        summed = np.bincount(self._place, data, len(self._indices))
        return sp.csc_array((summed, self._indices, self._indptr), (self._size, self._size))


def _pairs(A: LinearMap) -> float:
    """Return an upper bound on the pairs of rows that meet one block."""
    count = np.zeros(len(A.orders))
    for term in A.terms:
        count[term.block] += len(term.at)
    return float(count @ count)
