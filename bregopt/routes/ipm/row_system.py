"""Newton's system in the multipliers of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import dense, lean, symmetrize
from bregopt.program import LinearMap
from bregopt.routes.ipm.groups import GroupRows
from bregopt.routes.ipm.linear_solvers import bordered, conjugate_gradients
from bregopt.routes.ipm.newton_point import RightHandSide, ScalingPoint, Solve, Step
from bregopt.routes.ipm.tuning import InteriorPointTuning

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
        Whether the system is factorized with any number of rows.
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

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        D_u, bounded = scaling_point.D_u, np.flatnonzero(np.isfinite(scaling_point.D))
        if self._direct:
            bordering, solve = self._factorized(scaling_point, bounded)
        else:
            bordering, solve = ~np.isfinite(D_u), self._iterative(scaling_point, bounded)
        eliminated = np.flatnonzero(~bordering)

        def step(rhs: RightHandSide) -> Step:
            right, constant = rhs.r, np.zeros_like(rhs.q)
            if len(eliminated):
                constant[eliminated] = rhs.r_u[eliminated] - D_u[eliminated] * rhs.q[eliminated]
                right = right - self._B @ constant
            groups = tuple(zip(rhs.weights, scaling_point.X, scaling_point.K, rhs.R, strict=True))
            for rows, group in zip(self._rows, groups, strict=True):
                right = right - rows.apply_sum(*group)
            dy, du = np.zeros(self._A.m), np.zeros_like(constant)
            dy[bounded], du[bordering] = solve(right[bounded], (rhs.q - rhs.r_u / D_u)[bordering])
            if len(eliminated):
                du[eliminated] = constant[eliminated] + D_u[eliminated] * (self._Bt @ dy)[eliminated]
            adjoint = tuple(rows.adjoint(dy) for rows in self._rows)
            dX = tuple(_matrix_step(*group, S) for group, S in zip(groups, adjoint, strict=True))
            return Step(dX, du, dy, adjoint)

        return step

    def _factorized(self, scaling_point: ScalingPoint, bounded: IntArray) -> tuple[Mask, _Solve]:
        """Return the mask of the variables that border the system, and its solver."""
        D_u = scaling_point.D_u
        groups = zip(self._rows, scaling_point.X, scaling_point.K, scaling_point.roots, strict=True)
        schur_matrices = (rows.schur(X, K, bounded, root) for rows, X, K, root in groups)
        M = next(schur_matrices)
        for other in schur_matrices:
            M += other
        checkpoint()
        np.einsum("ii->i", M)[:] += scaling_point.D[bounded]
        if len(D_u) == 0:
            return np.zeros(0, dtype=bool), bordered(M, np.zeros((len(M), 0)), self._tuning)
        B = self._B[bounded]
        bordering = _bordering_variables(B, M.diagonal(), D_u, self._tuning.border_ratio)
        if not bordering.all():
            columns = B[:, ~bordering]
            M += dense((columns * D_u[~bordering]) @ columns.T)
        return bordering, bordered(M, dense(B[:, bordering]), self._tuning, 1 / D_u[bordering])

    def _iterative(self, scaling_point: ScalingPoint, bounded: IntArray) -> _Solve:
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


def _matrix_step(weight: float, X: Array, K: Array, R: Array | None, adjoint: Any) -> Array:
    """Return ``w K - X + sym(K (A*(dy) X + R))``."""
    half = adjoint @ X
    if R is not None:
        half += R
    dX = K @ half
    dX -= X
    if weight:
        dX += weight * K
    return symmetrize(dX)


def _bordering_variables(B: Any, diagonal: Array, D_u: Array, ratio: float) -> Mask:
    """Return the mask of the variables that border the system: free ones, and those nearly free.

    Eliminating such a variable would cancel the digits of the rows that share it. Its term is more than
    `ratio` times the `diagonal` entry of at least two rows.
    """
    bordering: Mask = np.isinf(D_u)
    if bordering.all():
        return bordering
    count = np.bincount(B.indices, minlength=len(D_u)) if sp.issparse(B) else np.count_nonzero(B, axis=0)
    for j in np.flatnonzero((count > 1) & ~bordering):
        term = D_u[j] * dense(B[:, [j]])[:, 0] ** 2
        bordering[j] = np.sum(term > ratio * diagonal) > 1
    return bordering


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
