"""Newton's system in the multipliers of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray
from bregopt.clock import checkpoint
from bregopt.linalg import dense, lean
from bregopt.program import LinearMap
from bregopt.routes.ipm.groups import GroupRows
from bregopt.routes.ipm.linear_solvers import bordered, conjugate_gradients
from bregopt.routes.ipm.newton_point import ScalingPoint, Solve
from bregopt.routes.ipm.row_solve import Equations, RowSolve
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.ipm.variable_metric import VariableMetric

__all__ = ["RowSystem"]

_Solve = Callable[[Array, Array], tuple[Array, Array]]


class RowSystem:
    """The system in the multipliers of the rows.

    Parameters
    ----------
    A : LinearMap
    rows : sequence of GroupRows
        The rows in each group of blocks.
    B : csr_array of shape (m, k)
    tuning : InteriorPointTuning
    direct : bool
        Whether the system is factorized with any number of rows; otherwise very many are left to conjugate
        gradients.
    """

    def __init__(
        self,
        A: LinearMap,
        rows: Sequence[GroupRows],
        B: Any,
        tuning: InteriorPointTuning,
        direct: bool = False,
    ) -> None:
        self._A, self._rows, self._B, self._tuning = A, rows, lean(B), tuning
        self._Bt = sp.csr_array(B.T) if sp.issparse(self._B) else self._B.T
        self._direct = direct or A.m <= tuning.largest_formed_rows

    @property
    def direct(self) -> bool:
        return self._direct

    def gram(self, P: Sequence[Array], rows: IntArray) -> Callable[[Array], Array] | None:
        """Return the solver of ``<A_k, P A_l P> w = b`` for some rows, None where the matrix is dense."""
        return None

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        bounded = np.flatnonzero(np.isfinite(scaling_point.D))
        if self._direct:
            metric, solve = self._factorized(scaling_point, bounded)
        else:
            D_u = scaling_point.D_u
            metric = VariableMetric(D_u, ~np.isfinite(D_u))
            solve = self._iterative(scaling_point, bounded)
        equations = Equations(self._rows, self._B, self._Bt, scaling_point, bounded, metric)
        return RowSolve(equations, solve, self._tuning, refined=self._direct)

    def _factorized(self, scaling_point: ScalingPoint, bounded: IntArray) -> tuple[VariableMetric, _Solve]:
        """Return ``D_u`` with the variables that border the system, and the solver."""
        D_u = scaling_point.D_u
        groups = zip(self._rows, scaling_point.X, scaling_point.K, scaling_point.roots, strict=True)
        schur_matrices = (rows.schur(X, K, bounded, root) for rows, X, K, root in groups)
        M = next(schur_matrices)
        for other in schur_matrices:
            M += other
        checkpoint()
        np.einsum("ii->i", M)[:] += scaling_point.D[bounded]
        if len(D_u) == 0:
            none = VariableMetric(D_u, np.zeros(0, dtype=bool))
            return none, bordered(M, np.zeros((len(M), 0)), self._tuning)
        B = self._B if len(bounded) == self._A.m else self._B[bounded]
        cones, p_u, ratio = scaling_point.cones, scaling_point.p_u, self._tuning.border_ratio
        metric = VariableMetric.split(D_u, cones, p_u, B, M.diagonal(), ratio)
        M += metric.gram(B)
        return metric, bordered(M, dense(B[:, metric.bordering]), self._tuning, metric.corner)

    def _iterative(self, scaling_point: ScalingPoint, bounded: IntArray) -> _Solve:
        """Return the solver by conjugate gradients, for blocks that are not stacked and have no variables."""
        full = np.zeros(self._A.m)
        groups = tuple(zip(self._rows, scaling_point.X, scaling_point.K, strict=True))

        def operator(v: Array) -> Array:
            full[bounded] = v
            product: Array = scaling_point.D[bounded] * v
            for rows, X, K in groups:
                product += rows.apply_product(K.T, (rows.adjoint(full) @ X).T)[bounded]
            return product

        diagonal = _diagonal(self._A, scaling_point.X, scaling_point.K)[bounded] + scaling_point.D[bounded]
        tuning = self._tuning

        def solve(right: Array, q: Array) -> tuple[Array, Array]:
            tol, steps = tuning.cg_tol, tuning.cg_steps
            return conjugate_gradients(operator, right, diagonal, tol, steps, tuning), q

        return solve


def _diagonal(A: LinearMap, X: Sequence[Array], K: Sequence[Array]) -> Array:
    """Return the diagonal of ``A T A*``, exact for rows of rank one and approximate for others."""
    diagonal = np.zeros(A.m)
    for term in A.terms:
        X_b, K_b, rank_one = X[term.block], K[term.block], term.rows.rank_one_terms()
        if rank_one is None:
            mean = float(np.trace(X_b) * np.trace(K_b)) / len(X_b) ** 2
            diagonal[term.at] += term.norms**2 * mean
            continue
        part = rank_one.weight**2 * _quadratic_forms(rank_one.U, X_b) * _quadratic_forms(rank_one.U, K_b)
        diagonal[term.at] += np.bincount(rank_one.row, weights=part, minlength=term.rows.m)
    return np.maximum(diagonal, TINY)


def _quadratic_forms(U: Any, P: Array) -> Array:
    """Return ``u'P u`` for each row of `U`."""
    half = U @ P
    forms = U.multiply(half).sum(axis=1) if sp.issparse(U) else np.einsum("ri,ri->r", U, half)
    return np.asarray(forms).ravel()
