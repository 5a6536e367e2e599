"""Newton's system in the multipliers of the rows, and its solution, refined by the residuals of the step.

The Schur matrix loses the digits of its least eigenvalues, and so do the multipliers. The residuals of the
rows, and of the equations of the bordering variables, are evaluated at ``dX``, ``du`` and ``dy``, and
corrections reduce them (:func:`bregopt.routes.ipm.linear_solvers.Corrections`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import TINY, Array, IntArray
from bregopt.cache import cached_property
from bregopt.clock import checkpoint
from bregopt.linalg import dense, lean, symmetrize
from bregopt.program import LinearMap
from bregopt.routes.ipm.groups import GroupRows
from bregopt.routes.ipm.linear_solvers import Corrections, bordered, conjugate_gradients
from bregopt.routes.ipm.newton_point import RightHandSide, ScalingPoint, Solve, Step
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
        equations = _Equations(self._rows, self._B, self._Bt, scaling_point, bounded, metric)
        return _RowSolve(equations, solve, self._tuning, refined=self._direct)

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


class _Equations(NamedTuple):
    """The equations of a step.

    Parameters
    ----------
    rows : sequence of GroupRows
        The rows in each group of blocks.
    B, Bt : array or csr_array of shape (m, k) and (k, m)
    at : ScalingPoint
    bounded : int array
        The rows with finite bounds.
    metric : VariableMetric
        ``D_u``, and the variables that border the system.
    """

    rows: Sequence[GroupRows]
    B: Any
    Bt: Any
    at: ScalingPoint
    bounded: IntArray
    metric: VariableMetric

    def left_sides(self, dy: Array, du: Array, dX: Sequence[Array]) -> Array:
        """Return the left sides of the bounded rows, and of the equations of the bordering variables."""
        own, bordering = self.bounded, self.metric.bordering
        activity = self.B @ du if len(du) else np.zeros(len(dy))
        for rows, S in zip(self.rows, dX, strict=True):
            activity += rows.apply(S)
        left = activity[own] + self.at.D[own] * dy[own]
        if len(du) == 0:
            return left
        border = (self.Bt @ dy)[bordering] - self.metric.quotient(du[bordering])
        return np.concatenate([left, border])


class _RowSolve:
    """The solver of the system at one point for any right-hand side.

    Parameters
    ----------
    equations : _Equations
    solve : callable
        Returns the multipliers of the bounded rows and the bordering variables for their right-hand sides.
    tuning : InteriorPointTuning
    refined : bool
        Whether solutions are refined.
    """

    def __init__(
        self,
        equations: _Equations,
        solve: Callable[[Array, Array], tuple[Array, Array]],
        tuning: InteriorPointTuning,
        refined: bool,
    ) -> None:
        self._equations, self._solve, self._tuning, self._refined = equations, solve, tuning, refined
        self._corrections = Corrections(tuning)

    def __call__(self, rhs: RightHandSide) -> Step:
        """Return the step."""
        equations, (rows, B, _, at, bounded, metric) = self._equations, self._equations
        bordering = metric.bordering
        right, constant = rhs.r, np.zeros_like(rhs.q)
        if not bordering.all():
            constant = np.where(bordering, 0.0, rhs.r_u) - metric.product(rhs.q)
            right = right - B @ constant
        groups = tuple(zip(rhs.weights, at.X, at.K, rhs.R, strict=True))
        for own, group in zip(rows, groups, strict=True):
            right = right - own.apply_sum(*group)
        right, q = right[bounded], rhs.q[bordering] - metric.quotient(rhs.r_u[bordering])
        dy, du = self._variables(right, q, constant)
        adjoint = tuple(own.adjoint(dy) for own in rows)
        dX = [_matrix_step(*group, S) for group, S in zip(groups, adjoint, strict=True)]
        if not self._refined:
            return Step(tuple(dX), du, dy, adjoint)
        wanted = np.concatenate([rhs.r[bounded], q])
        residual = float(np.linalg.norm(wanted - equations.left_sides(dy, du, dX)))
        size = float(np.hypot(np.linalg.norm(right), np.linalg.norm(q)))
        least, largest = self._tuning.least_refined_residual, self._tuning.largest_refined_residual
        # A larger residual is no round-off: the equations contradict each other.
        if least * size < residual <= largest * size:
            responses = self._responses(dy)
            dX = [_matrix_step(*group) + T for group, T in zip(groups, responses, strict=True)]
            left = wanted - equations.left_sides(dy, du, dX)
            solution = [dy, du, *dX]
            dy, du, *dX = self._corrections.refined(left, solution, self._correction, least * size)
            adjoint = tuple(own.adjoint(dy) for own in rows)
        return Step(tuple(dX), du, dy, adjoint)

    def _variables(self, right: Array, q: Array, constant: Array) -> tuple[Array, Array]:
        """Return ``dy`` and ``du``; `constant` is the part of ``du`` that does not depend on ``dy``."""
        _, B, Bt, _, bounded, metric = self._equations
        dy, du = np.zeros(B.shape[0]), np.zeros_like(constant)
        dy[bounded], du[metric.bordering] = self._solve(right, q)
        if not metric.bordering.all():
            du += constant + metric.product(Bt @ dy)
        return dy, du

    def _correction(self, residual: Array) -> list[Array]:
        """Return the left sides of the step for these right-hand sides, and its ``dy``, ``du`` and ``dX``."""
        equations = self._equations
        right, q = np.split(residual, [len(equations.bounded)])
        dy, du = self._variables(right, q, np.zeros_like(equations.metric.d))
        dX = self._responses(dy)
        return [equations.left_sides(dy, du, dX), dy, du, *dX]

    def _responses(self, dy: Array) -> list[Array]:
        """Return ``T(A*(dy))`` of each group, with round-off relative to ``X``."""
        pairs = zip(self._products, self._equations.rows, strict=True)
        return [product(rows.adjoint(dy)) for product, rows in pairs]

    @cached_property
    def _products(self) -> list[_ScaledProduct]:
        at = self._equations.at
        return [_ScaledProduct(X, K, root) for X, K, root in zip(at.X, at.K, at.roots, strict=True)]


class _ScaledProduct:
    """``T(S) = sym(X S K)`` in the coordinates in which ``X`` is the identity.

    With ``X = L L'`` it is ``sym(K inv(L)' (L'S L) L')``. Its round-off is small relative to ``X`` in every
    direction. Near the boundary, that of ``K S X`` exceeds the least eigenvalues of ``X``, and then the step
    lengths fall to zero. On a proper face it is the plain product.
    """

    def __init__(self, X: Array, K: Array, root: Array) -> None:
        self._X, self._K = X, K
        self._scaled = root.shape == X.shape
        if self._scaled and X.ndim == 3:  # the roots of a stack are inverse factors
            self._L, self._half = np.linalg.inv(root), K @ np.swapaxes(root, 1, 2)
        elif self._scaled:
            self._L, self._half = root, lapack.dtrtrs(root, K, lower=1)[0].T

    def __call__(self, S: Any) -> Array:
        if not self._scaled:
            return symmetrize(self._K @ (S @ self._X))
        L, transposed = self._L, np.swapaxes(self._L, -1, -2)
        return symmetrize(self._half @ (transposed @ (S @ L)) @ transposed)


def _matrix_step(weight: float, X: Array, K: Array, R: Array | None, adjoint: Any = None) -> Array:
    """Return ``w K - X + sym(K (A*(dy) X + R))``; None stands for zero."""
    half = adjoint @ X if adjoint is not None else np.zeros_like(X)
    if R is not None:
        half += R
    dX: Array = K @ half
    dX -= X
    if weight:
        dX += weight * K
    return symmetrize(dX)
