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
from bregopt.routes.ipm.linear_solvers import bordered, conjugate_gradients
from bregopt.routes.ipm.newton_point import RightHandSide, ScalingPoint, Solve, Step
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.ipm.schur import Gram
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["RowSystem"]

_Solve = Callable[[Array, Array], tuple[Array, Array]]


class RowSystem:
    """The system in the multipliers of the rows."""

    def __init__(self, A: LinearMap, B: Any, tuning: InteriorPointTuning, direct: bool = False) -> None:
        self._A, self._B, self._tuning = A, lean(B), tuning
        self._Bt = sp.csr_array(B.T) if sp.issparse(self._B) else self._B.T
        blocks = range(len(A.orders))
        self._actions = [RowAction(A, tuning, b) for b in blocks]
        formed = direct or A.m <= tuning.largest_formed_rows
        self._grams = [Gram(A, tuning, b) for b in blocks] if formed else None

    @property
    def direct(self) -> bool:
        return self._grams is not None

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        D_u, bounded = scaling_point.D_u, np.flatnonzero(np.isfinite(scaling_point.D))
        if self._grams is None:
            bordering, solve = ~np.isfinite(D_u), self._iterative(scaling_point, bounded)
        else:
            bordering, solve = self._direct(scaling_point, bounded)
        eliminated = np.flatnonzero(~bordering)

        def step(rhs: RightHandSide) -> Step:
            right, constant = rhs.r, np.zeros_like(rhs.q)
            if len(eliminated):
                constant[eliminated] = rhs.r_u[eliminated] - D_u[eliminated] * rhs.q[eliminated]
                right = right - self._B @ constant
            blocks = tuple(zip(rhs.weights, scaling_point.X, scaling_point.K, rhs.R, strict=True))
            for action, block in zip(self._actions, blocks, strict=True):
                right = right - action.apply_sum(*block)
            dy, du = np.zeros(self._A.m), np.zeros_like(constant)
            dy[bounded], du[bordering] = solve(right[bounded], (rhs.q - rhs.r_u / D_u)[bordering])
            if len(eliminated):
                du[eliminated] = constant[eliminated] + D_u[eliminated] * (self._Bt @ dy)[eliminated]
            adjoint = tuple(action.adjoint(dy) for action in self._actions)
            dX = tuple(_matrix_step(*block, S) for block, S in zip(blocks, adjoint, strict=True))
            return Step(dX, du, dy, adjoint)

        return step

    def _direct(self, scaling_point: ScalingPoint, bounded: IntArray) -> tuple[Mask, _Solve]:
        """Return the mask of the variables that border the system, and its solver."""
        assert self._grams is not None
        D_u = scaling_point.D_u
        blocks = zip(self._grams, scaling_point.X, scaling_point.K, scaling_point.roots, strict=True)
        schur_matrices = (
            gram.assemble(X, K, bounded, _root_of_whole(root, X)) for gram, X, K, root in blocks
        )
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
        blocks = tuple(zip(self._actions, scaling_point.X, scaling_point.K, strict=True))

        def operator(v: Array) -> Array:
            full[bounded] = v
            product: Array = scaling_point.D[bounded] * v
            for action, X, K in blocks:
                product += action.apply_product(K.T, (action.adjoint(full) @ X).T)[bounded]
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


def _root_of_whole(root: Array, X: Array) -> Array | None:
    """Return the Cholesky factor, None if it is that of a proper face."""
    return root if len(root) == len(X) else None


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
