"""Newton's system in the multipliers of the rows, where each block meets few of them.

The Schur matrix is then sparse, as for clique submatrices (:mod:`bregopt.presolve.chordal`). Its pattern is
found once. Each step sums the values into it and factorizes it (SuperLU; Demmel, Eisenstat, Gilbert, Li and
Liu 1999).
With variables the system is the quasi-definite ``[[M, B], [B', -1 / D_u]]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError
from scipy.sparse.linalg import SuperLU, splu

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint
from bregopt.presolve.cliques import eliminate
from bregopt.program import LinearMap
from bregopt.routes.ipm.linear_solvers import DEFINITE_RESIDUAL, ZERO_DIAGONAL, VariableMetric
from bregopt.routes.ipm.plan import Plan, ScalingPoint
from bregopt.routes.ipm.row_system import RowSystem
from bregopt.routes.ipm.stack_rows import SchurValues

__all__ = ["SparseRowSystem", "fill_of", "sparse_fill"]

# Number of rows from which a sparse system is looked for; a smaller dense one takes a few milliseconds.
_LEAST_ROWS = 150
# Pairs of rows that meet one block, relative to all pairs, up to which the system may be sparse.
_SPARSE_SCHUR = 0.3
# Operations of the search for its fill, relative to the cubed number of rows. The search then takes a few
# percent of the time of a dense system.
_SEARCH_SHARE = 3e-4
# Nonzeros of its factor, relative to a dense one, up to which it is sparse.
_SPARSE_FACTOR = 0.3

# Diagonal entry, relative to the largest of its column, that is a pivot of a quasi-definite system. A smaller
# one keeps the factor sparser and loses more digits.
_PIVOT = 1e-2
# Limit on the refinements of a solution. They end earlier if the residual grows.
_REFINEMENTS = 3


class SparseRowSystem(RowSystem):
    """The system in the multipliers of the rows, with a sparse matrix.

    Parameters
    ----------
    plan : Plan
    B : csr_array of shape (m, k)
    """

    def __init__(self, plan: Plan, B: Any) -> None:
        super().__init__(plan, B, direct=True)
        self._formulas = [group.rows.formula for group in plan.groups]
        self._pattern = _Pattern(plan.m, self._formulas, B)

    @classmethod
    def of(cls, plan: Plan, B: Any) -> SparseRowSystem | None:
        """Return the system, None where the matrix or its factor is not sparse."""
        return cls(plan, B) if math.isfinite(sparse_fill(plan.A, B)) else None

    def gram(self, P: Array, rows: IntArray) -> Callable[[Array], Array]:
        parts = self.plan.views(P)
        matrix = self._matrix(parts, parts, np.zeros(self.plan.m), np.ones(self.B.shape[1]))
        return _SparseFactor(matrix[rows][:, rows], len(rows)).solve

    def _factorized(
        self, scaling_point: ScalingPoint, bounded: IntArray
    ) -> tuple[VariableMetric, Callable[[Array, Array], tuple[Array, Array]]]:
        X, K, D, D_u = scaling_point.X_parts, scaling_point.K_parts, scaling_point.D, scaling_point.D_u
        m, k, count = self.plan.m, len(D_u), len(bounded)
        matrix = self._matrix(X, K, np.where(np.isfinite(D), D, 0.0), 1 / D_u)
        if count < m:
            kept = np.concatenate([bounded, np.arange(m, m + k)])
            matrix = matrix[kept][:, kept]
        checkpoint()
        factor = _SparseFactor(matrix, count)

        def solve(b: Array, q: Array) -> tuple[Array, Array]:
            x = factor.solve(np.concatenate([b, q]))
            return x[:count], x[count:]

        return VariableMetric(D_u, np.ones(k, dtype=bool)), solve

    def _matrix(self, X: Sequence[Array], K: Sequence[Array], D: Array, E: Array) -> Any:
        """Return ``[[M + D, B], [B', -E]]`` in CSC form."""
        values = [formula.values(X_g, K_g) for formula, X_g, K_g in zip(self._formulas, X, K, strict=True)]
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


def sparse_fill(A: LinearMap, B: Any) -> float:
    """Return about the number of nonzeros in a factor, infinite where it or its matrix is not sparse."""
    m = A.m
    if len(A.orders) < 2 or m < _LEAST_ROWS or _pairs(A) > _SPARSE_SCHUR * m**2:
        return math.inf
    fill = fill_of(A, B, _SEARCH_SHARE * m**3)
    return fill if fill <= _SPARSE_FACTOR * m**2 / 2 else math.inf


def _pairs(A: LinearMap) -> float:
    """Return an upper bound on the pairs of rows that meet one block."""
    count = np.zeros(len(A.orders))
    for term in A.terms:
        count[term.block] += len(term.at)
    return float(count @ count)


def fill_of(A: LinearMap, B: Any, most: float) -> float:
    """Return about the number of nonzeros in a factor of ``[[M, B], [B', -E]]``.

    Rows that meet the same blocks and variables have the same pattern: each kind of row is eliminated at
    once.

    Parameters
    ----------
    A : LinearMap
    B : csr_array of shape (m, k)
    most : float
        Limit on the operations of the search.

    Returns
    -------
    float
        Infinite if the limit is reached.
    """
    kind, weight, incidence = _kinds(A, B)
    blocks, kinds = len(A.orders), len(weight)
    columns = sp.csc_array(incidence)
    neighbors: dict[int, set[int]] = {v: set() for v in range(kinds + B.shape[1])}
    for j, (start, end) in enumerate(pairwise(columns.indptr.tolist())):
        met = set(kind[columns.indices[start:end]].tolist())
        most -= len(met) ** 2
        if most < 0:
            return math.inf
        if j >= blocks:
            neighbors[kinds + j - blocks] |= met
        for v in met:
            neighbors[v] |= met - {v} if j < blocks else {kinds + j - blocks}
    order = eliminate(neighbors, most)
    if neighbors:
        return math.inf
    size = [*weight, *[1] * B.shape[1]]
    return float(sum(size[v] * ((size[v] + 1) / 2 + sum(size[u] for u in later)) for v, later in order))


def _kinds(A: LinearMap, B: Any) -> tuple[Any, list[int], Any]:
    """Return the kind of each row, the number of rows of each kind, and what each row meets."""
    at = np.concatenate([np.zeros(0, dtype=np.intp), *(term.at for term in A.terms)])
    block = np.repeat([term.block for term in A.terms], [len(term.at) for term in A.terms]).astype(np.intp)
    meets = sp.csr_array((np.ones(len(at)), (at, block)), (A.m, len(A.orders)))
    incidence = sp.csr_array(sp.hstack([meets, B], format="csr"))
    incidence.sort_indices()
    number: dict[bytes, int] = {}
    ends = incidence.indptr.tolist()
    kind = [
        number.setdefault(incidence.indices[start:end].tobytes(), len(number))
        for start, end in pairwise(ends)
    ]
    return np.array(kind), np.bincount(kind).tolist(), incidence


class _SparseFactor:
    """A factorized symmetric matrix, its diagonal increased slightly where rows are dependent.

    Parameters
    ----------
    S : csc_array of shape (n, n)
        Its leading block is positive semidefinite, its trailing block negative semidefinite.
    definite : int
        The order of the leading block.

    Raises
    ------
    LinAlgError
        If the matrix is not finite, or not factorized even after its diagonal is doubled.
    """

    def __init__(self, S: Any, definite: int) -> None:
        if not np.isfinite(S.data).all():
            raise LinAlgError("the matrix is not finite")
        self._S = S
        sizes = np.abs(S.diagonal())
        sizes = np.where(sizes > ZERO_DIAGONAL, sizes, 1.0) * np.repeat(
            [1.0, -1.0], [definite, S.shape[0] - definite]
        )
        pivoting = _PIVOT if definite < S.shape[0] else 0.0
        extra, factor = 0.0, None
        while factor is None:
            checkpoint()
            if extra > 1:
                raise LinAlgError("the matrix is out of the range of doubles")
            shifted = S + sp.diags_array(extra * sizes) if extra else S
            factor = _factor(shifted, pivoting)
            extra = max(10 * extra, 1e-14)
        self._factor = factor

    def solve(self, right: Array) -> Array:
        """Return the solution, refined while that reduces the residual."""
        if len(right) == 0:
            return right
        x = self._factor.solve(right)
        residual = right - self._S @ x
        size = float(residual @ residual)
        for _ in range(_REFINEMENTS):
            if size <= DEFINITE_RESIDUAL**2 * float(right @ right):
                break
            refined = x + self._factor.solve(residual)
            residual = right - self._S @ refined
            size, before = float(residual @ residual), size
            if not size < before:
                break
            x = refined
        return x


def _factor(S: Any, pivoting: float) -> SuperLU | None:
    """Return the factorization, None where the matrix is singular or, without pivoting, not definite."""
    try:
        factor = splu(
            sp.csc_array(S),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=pivoting,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return None
    return factor if pivoting or (factor.U.diagonal() > 0).all() else None
