"""Newton's linear system in the fewer unknowns: the multipliers of the rows or the entries of ``X``.

With ``T(S) = sym(X S K)`` in every block, for the primal-dual step ``K = inv(Z)``, the step solves

    dX = G + T(A*(dy)),     G = w K - X + sym(K R),
    A(dX) + B du + D dy = r,
    du + D_u dz = r_u,      B'dy + dz = q;

where ``dz`` is zero for a free variable, and ``D_u`` is diagonal but for second-order cones. In the rows the
system is ``(A T A* + D + B D_u B') dy = ...``, bordered by the columns of free variables, and sparse if each
block meets few of the rows (:mod:`bregopt.routes.ipm.many_blocks`). In the entries of one block, if
no ``D`` is zero, it is ``inv(T) dX + A*(inv(D) A(dX)) = ...``, in coordinates in which ``X`` is the identity
and ``K`` diagonal, so that ``T`` is an entrywise product (:mod:`bregopt.routes.ipm.entry_system`).

The system in the rows is solved here, refined by the residuals of the step. The Schur matrix loses the
digits of its least eigenvalues, and so do the multipliers. The residuals of the rows, and of the equations
of the bordering variables, are evaluated at ``dX``, ``du`` and ``dy``, and corrections reduce them
(:func:`bregopt.routes.ipm.linear_solvers.Corrections`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import dense, lean, symmetrize
from bregopt.program import LinearMap, Program
from bregopt.records import cached_property
from bregopt.routes.ipm.linear_solvers import (
    CG_STEPS,
    CG_TOL,
    Corrections,
    VariableMetric,
    bordered,
    conjugate_gradients,
)
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint, Solve, Step, System

# Term of a nearly free variable, relative to a row's diagonal entry, above which the variable borders the
# system. Its elimination would cancel digits.
_BORDER_RATIO = 1e4
# Residual of a step, relative to the right-hand side, above which it is refined.
_LEAST_RESIDUAL = 1e-13
# The same up to which it is refined. If no point meets the rows, the residual is larger, and corrections
# would only be large.
_LARGEST_RESIDUAL = 1e-4

_Solve = Callable[[Array, Array], tuple[Array, Array]]
# Number of rows up to which the system in the rows is formed if conjugate gradients could solve it. 6,000
# rows take 0.3 GB.
LARGEST_FORMED_ROWS = 6_000
# The same of the entries of ``X`` for the system in these.
FORMED_ENTRIES = 1_200
_NO_METRIC, _NO_COLUMNS = VariableMetric(np.zeros(0), np.zeros(0, dtype=bool)), np.zeros((0, 0))
# Entries of ``X`` up to which their system is formed if rows have ``D = 0``, which require that.
_LARGEST_BORDERED = 6_000
# Products with all rows that conjugate gradients take, to compare their cost with a factorization's.
_ITERATED_PRODUCTS = 100
# Number of rows from which a sparse system is looked for; a smaller dense one takes a few milliseconds.
_LEAST_SPARSE = 150
# Number of rows from which those of one variable are looked for, and their share of all from which they pay.
_LEAST_SINGLE, _MANY_SINGLE = 100, 1 / 3
# Number of rows from which pairs are looked for, the share of the rows from which pairs pay, and the relative
# distance of two sums of coefficients above which rows differ.
_LEAST_PAIRED, _PAYS, _SAME = 100, 0.5, 1e-13


class RowSystem:
    """The system in the multipliers of the rows.

    Parameters
    ----------
    plan : Plan
    B : csr_array of shape (m, k)
    direct : bool
        Whether the system is factorized with any number of rows; otherwise very many are left to conjugate
        gradients.
    """

    sparse = False

    def __init__(self, plan: Plan, B: Any, direct: bool = False) -> None:
        self.plan, self.B = plan, lean(B)
        self.Bt = sp.csr_array(self.B.T) if sp.issparse(self.B) else self.B.T
        self._direct = direct or plan.m <= LARGEST_FORMED_ROWS
        self.lost_digits = False  # whether a step needed corrections

    @property
    def direct(self) -> bool:
        return self._direct

    @cached_property
    def _pairs(self) -> PairedRows | None:
        return PairedRows.of(self.plan)

    @cached_property
    def _of_variables(self) -> RowsOfVariables | None:
        return None if self.sparse or not self._direct else RowsOfVariables.of(self.plan, self.B)

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        rows = self._of_variables
        return self._solver(scaling_point) if rows is None else rows.solver(scaling_point, self._solver)

    def _solver(self, scaling_point: ScalingPoint) -> Solve:
        bounded = np.isfinite(scaling_point.D).nonzero()[0]
        if self._direct:
            metric, solve = self._factorized(scaling_point, bounded)
        else:
            D_u = scaling_point.D_u
            metric = VariableMetric(D_u, ~np.isfinite(D_u))
            solve = self._iterative(scaling_point, bounded)
        return _RowSolve(self, scaling_point, bounded, metric, solve)

    def _factorized(self, at: ScalingPoint, bounded: IntArray) -> tuple[VariableMetric, _Solve]:
        """Return ``D_u`` with the variables that border the system, and the solver."""
        D_u, whole = at.D_u, len(bounded) == self.plan.m
        if whole and len(D_u) and np.isinf(D_u).all() and self._pairs is not None:
            solve = self._pairs.solver(at, dense(self.B))
            if solve is not None:
                return VariableMetric(D_u, np.ones(len(D_u), dtype=bool)), solve
        M = self.plan.schur(at.X_parts, at.K_parts, bounded, at.roots, at.Z_roots)
        checkpoint()
        M.flat[:: len(M) + 1] += at.D[bounded]
        metric, F, corner = _NO_METRIC, _NO_COLUMNS, None
        if len(D_u):
            B = self.B if whole else self.B[bounded]
            metric = VariableMetric.split(D_u, at.cones, at.p_u, B, M.diagonal(), _BORDER_RATIO)
            metric.add_gram(M, B)
            if metric.borders:
                F, corner = dense(B[:, metric.bordering]), metric.corner
        return metric, bordered(M, F, corner)

    def _iterative(self, at: ScalingPoint, bounded: IntArray) -> _Solve:
        """Return the solver by conjugate gradients, for blocks that are not stacked and have no variables."""
        plan, full = self.plan, np.zeros(self.plan.m)
        groups: tuple[tuple[Any, Array, Array], ...] = tuple(
            zip((group.rows for group in plan.groups), at.X_parts, at.K_parts, strict=True)
        )

        def operator(v: Array) -> Array:
            full[bounded] = v
            product: Array = at.D[bounded] * v
            for rows, X, K in groups:
                product += rows.apply_product(K.T, (rows.adjoint(full) @ X).T)[bounded]
            return product

        diagonal = _diagonal(plan.A, plan.matrices(at.X), plan.matrices(at.K))[bounded] + at.D[bounded]

        def solve(right: Array, q: Array) -> tuple[Array, Array]:
            found = conjugate_gradients(operator, right, diagonal, CG_TOL, CG_STEPS)
            return found, q

        return solve


def _diagonal(A: LinearMap, X: tuple[Array, ...], K: tuple[Array, ...]) -> Array:
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


# Pays on: copo14.
class _RowSolve:
    """The solver of the system at one point for any right-hand side.

    Parameters
    ----------
    system : RowSystem
    at : ScalingPoint
    bounded : int array
        The rows with finite bounds.
    metric : VariableMetric
        ``D_u``, and the variables that border the system.
    solve : callable
        Returns the multipliers of the bounded rows and the bordering variables for their right-hand sides.
    """

    def __init__(
        self,
        system: RowSystem,
        at: ScalingPoint,
        bounded: IntArray,
        metric: VariableMetric,
        solve: _Solve,
    ) -> None:
        self._plan, self._B, self._Bt, self._at = system.plan, system.B, system.Bt, at
        self._X, self._K = at.X_parts, at.K_parts
        self._own: Any = slice(None) if len(bounded) == system.plan.m else bounded
        self._count, self._D = len(bounded), at.D[bounded]
        self._metric, self._solve = metric, solve
        self._eliminates = len(at.D_u) > 0 and not metric.bordering.all()
        self._system, self._refines = system, system.direct
        self._corrections = Corrections()

    def __call__(self, rhs: RightHandSide) -> Step:
        """Return the step."""
        plan, at, metric, own = self._plan, self._at, self._metric, self._own
        weight, right, constant, q = rhs.weight, rhs.r, rhs.q, rhs.q
        if len(q):
            bordering = metric.bordering
            constant = np.zeros(len(q))
            if self._eliminates:
                constant = np.where(bordering, 0.0, rhs.r_u) - metric.product(q)
                right = right - self._B @ constant
            q = q[bordering] - metric.quotient(rhs.r_u[bordering])
        right = (right - plan.apply_sum(weight, at.X, at.K, rhs.R))[own]
        dy, du = self._variables(right, q, constant)
        adjoint = plan.adjoint(dy)
        dX = self._matrix_step(weight, rhs.R, adjoint)
        if not self._refines:
            return Step(dX, du, dy, adjoint)
        residual = np.concatenate([rhs.r[own], q]) if len(q) else rhs.r[own]
        residual = residual - self._left_sides(dy, du, dX)
        size = float(right @ right) + float(q @ q)
        least, largest = _LEAST_RESIDUAL, _LARGEST_RESIDUAL
        # A larger residual is no round-off: the equations contradict each other.
        if least**2 * size < float(residual @ residual) <= largest**2 * size:
            self._system.lost_digits = True
            m, k = len(dy), len(du)
            dX = self._matrix_step(weight, rhs.R, None) + self._responses(adjoint)
            wanted = np.concatenate([rhs.r[own], q]) - self._left_sides(dy, du, dX)
            solution = np.concatenate([dy, du, dX])
            enough = least * float(np.sqrt(size))
            solution = self._corrections.refined(wanted, solution, self._correction, enough)
            dy, du, dX = solution[:m], solution[m : m + k], solution[m + k :]
            adjoint = plan.adjoint(dy)
        return Step(dX, du, dy, adjoint)

    def _matrix_step(
        self, weight: float | Array, R: Sequence[Array | None] | None, adjoint: Array | None
    ) -> Array:
        """Return ``w K - X + sym(K (A*(dy) X + R))``; None stands for zero."""
        plan, at, products = self._plan, self._at, []
        S = None if adjoint is None else plan.views(adjoint)
        for g, group in enumerate(plan.groups):
            half = None if R is None else R[g]
            if S is not None:
                product = group.product(S[g], self._X[g])
                half = product if half is None else np.add(product, half, out=product)
            own = np.zeros(self._X[g].shape) if half is None else self._K[g] @ half
            products.append(own.ravel())
        dX: Array = products[0] if len(products) == 1 else np.concatenate(products)
        dX -= at.X
        if not isinstance(weight, float) or weight:
            dX += weight * at.K
        for own in plan.views(dX):
            symmetrize(own)
        return dX

    def _left_sides(self, dy: Array, du: Array, dX: Array) -> Array:
        """Return the left sides of the bounded rows, and of the equations of the bordering variables."""
        own, activity = self._own, self._plan.apply(dX)
        if len(du) == 0:
            return np.asarray(activity[own] + self._D * dy[own])
        activity = activity + self._B @ du
        bordering = self._metric.bordering
        border = (self._Bt @ dy)[bordering] - self._metric.quotient(du[bordering])
        return np.concatenate([activity[own] + self._D * dy[own], border])

    def _variables(self, right: Array, q: Array, constant: Array) -> tuple[Array, Array]:
        """Return ``dy`` and ``du``; `constant` is the part of ``du`` that does not depend on ``dy``."""
        solved, bordering = self._solve(right, q)
        if isinstance(self._own, slice):
            dy = solved
        else:
            dy = np.zeros(self._plan.m)
            dy[self._own] = solved
        if len(constant) == 0:
            return dy, constant
        du = np.zeros(len(constant))
        du[self._metric.bordering] = bordering
        if self._eliminates:
            du += constant + self._metric.product(self._Bt @ dy)
        return dy, du

    def _correction(self, residual: Array) -> tuple[Array, Array]:
        """Return the left sides of the step for these right-hand sides, and its ``dy``, ``du`` and ``dX``."""
        right, q = residual[: self._count], residual[self._count :]
        dy, du = self._variables(right, q, np.zeros(len(self._metric.d)))
        dX = self._responses(self._plan.adjoint(dy))
        return self._left_sides(dy, du, dX), np.concatenate([dy, du, dX])

    def _responses(self, adjoint: Array) -> Array:
        """Return ``T(A*(dy))``, with round-off relative to ``X``."""
        parts = zip(self._products, self._plan.views(adjoint), strict=True)
        responses = [product(S).ravel() for product, S in parts]
        return responses[0] if len(responses) == 1 else np.concatenate(responses)

    @cached_property
    def _products(self) -> list[_ScaledProduct]:
        parts = zip(self._X, self._K, self._at.roots, strict=True)
        return [_ScaledProduct(X, K, root) for X, K, root in parts]


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
            self._L, self._half = np.linalg.inv(root), K @ root.swapaxes(1, 2)
        elif self._scaled:
            self._L, self._half = root, lapack.dtrtrs(root, K, lower=1)[0].T

    def __call__(self, S: Any) -> Array:
        if not self._scaled:
            return symmetrize(self._K @ (S @ self._X))
        L, transposed = self._L, self._L.swapaxes(-1, -2)
        return symmetrize(self._half @ (transposed @ (S @ L)) @ transposed)


# Pays on: 300 triplets.
# Pays on: 100 matrices in a chain.
# Pays on: a linear program of 1,800 rows beside a small matrix.
def system_for(
    plan: Plan, program: Program, exact: Mask, direct: bool = False, formed: int = FORMED_ENTRIES
) -> System:
    """Return the sparse system where its factor is sparse, otherwise that with fewer unknowns.

    Parameters
    ----------
    plan : Plan
    program : Program
    exact : boolean array of shape (m,)
        Marks the rows with ``D = 0``, the hard equalities.
    direct : bool
        Whether the system is always factorized; otherwise very many rows are left to conjugate gradients.
    formed : int
        Number of entries of ``X`` up to which the system in them is formed all the same.
    """
    A, B, k, m = plan.A, program.B, program.k, plan.m
    in_rows = bool(plan.faces) or bool((program.u_lo == program.u_hi).any())  # the multipliers are unknowns
    # Where no variable is free, the rows of one matrix have none in their border. The sparse system has all,
    # and near the boundary of cones it loses digits.
    bordered_rows = len(A.orders) > 1 or bool(program.free.any())
    if direct and not in_rows and m >= _LEAST_SPARSE and bordered_rows:
        from bregopt.routes.ipm.many_blocks import SparseRowSystem  # only many rows wait

        sparse = SparseRowSystem.of(plan, B, program.cones)
        if sparse is not None:
            return sparse
    if in_rows or program.cones.count or len(A.orders) > 1:
        return RowSystem(plan, B, direct)
    (n,) = A.orders
    entries = n * (n + 1) // 2
    of_variables = RowsOfVariables.of(plan, B)
    m -= 0 if of_variables is None else len(of_variables)
    # Operations a row: the products of conjugate gradients on the left, a factorization on the right.
    iterated = not direct and k == 0 and not exact.any() and 2 * _ITERATED_PRODUCTS * n**2 < m**2 / 3
    if entries < m or iterated:
        from bregopt.routes.ipm.entry_system import EntrySystem, border_of  # only many rows wait

        border, free = border_of(program, exact), program.free
        unknowns = entries + np.count_nonzero(free) + np.count_nonzero(border)
        if iterated or (unknowns < m and (entries <= _LARGEST_BORDERED or not border.any())):
            return EntrySystem(plan, B, free, border, formed)
    return RowSystem(plan, B, direct)


# --- Rows of one variable ------------------------------------------------------------------------------


class RowsOfVariables:
    """Rows of one variable and no matrix, such as a squared deviation: they belong to its metric.

    Such a row says ``f du + D dy = r``, so ``dy = (r - f du) / D``. In the equations of the variable it adds
    ``f^2 / D`` to ``1 / D_u``, and takes ``f r / D`` from ``q``.

    Parameters
    ----------
    plan : Plan
    rows, column : int array
        The rows and their variables.
    entry : array
        The coefficients ``f``.
    """

    def __init__(self, plan: Plan, rows: IntArray, column: IntArray, entry: Array) -> None:
        self._plan, self._rows, self._column, self._entry = plan, rows, column, entry

    def __len__(self) -> int:
        return len(self._rows)

    # Pays on: the nearest distance matrix as a matrix inequality, n = 40.
    @classmethod
    def of(cls, plan: Plan, B: Any) -> RowsOfVariables | None:
        """Return these rows, None where they are few."""
        m = plan.m
        if not B.shape[1] or m < _LEAST_SINGLE:
            return None
        row, column = B.nonzero()
        single = (np.bincount(row, minlength=m) == 1) & (plan.A.norms() == 0)
        if np.count_nonzero(single) < _MANY_SINGLE * m:
            return None
        row, column = row[single[row]], column[single[row]]
        return cls(plan, row, column, np.ravel(B[row, column]))

    def solver(self, at: ScalingPoint, factor: Callable[[ScalingPoint], Solve]) -> Solve:
        """Return the solver of the system; `factor` returns that of the other rows.

        Rows without bounds, and equalities, are left as they are, and so are those of variables in cones.
        """
        in_cones = np.zeros(len(at.D_u), dtype=bool)
        in_cones[at.cones.index] = True
        own = np.isfinite(at.D[self._rows]) & (at.D[self._rows] > 0) & ~in_cones[self._column]
        rows, column, entry = self._rows[own], self._column[own], self._entry[own]
        weight, D_u, count = entry / at.D[rows], at.D_u, len(at.D_u)
        curvature = np.bincount(column, entry * weight, count)
        with np.errstate(divide="ignore"):
            joint = np.where(curvature > 0, 1 / (1 / D_u + curvature), D_u)
        share = np.divide(joint, D_u, out=np.ones(count), where=(curvature > 0) & (D_u > 0))
        D = at.D.copy()
        D[rows] = np.inf
        point = ScalingPoint(self._plan, at.X, at.roots, at.Z_roots, D, joint, at.cones, at.p_u, at.K)
        solve = factor(point)

        def solver(rhs: RightHandSide) -> Step:
            q = rhs.q - np.bincount(column, weight * rhs.r[rows], count)
            step = solve(RightHandSide(rhs.weight, rhs.R, rhs.r, share * rhs.r_u, q))
            dy = step.y.copy()
            dy[rows] = rhs.r[rows] / at.D[rows] - weight * step.u[column]
            return Step(step.X, step.u, dy, step.adjoint)

        return solver


# --- Pairs of rows --------------------------------------------------------------------------------------
#
# Rows that differ in their variables and bounds alone, such as ``a - t <= d`` and ``a + t >= d``, are one.
# Two equations of Newton's system, with signs such that their matrices are equal, are
# ``S_g w + D_i y_i + F_i u = b_i`` with ``w = y_1 + y_2`` and ``S_g`` the row of the Schur matrix. With
# ``kappa = 1 / (D_1 + D_2)``, their mean by the weights ``kappa D_2`` and ``kappa D_1``, and their
# difference, are
#
#     S_g w + (kappa D_1 D_2) w + F_g u = b_g,     y_1 = kappa D_2 w + kappa (b_1 - b_2 - (F_1 - F_2) u).
#
# So the unknowns are one ``w`` for each pair, and the equations of the variables, ``F'y = q``, become
#
#     F_g'w - kappa (F_1 - F_2)'(F_1 - F_2) u = q - kappa (F_1 - F_2)'(b_1 - b_2).


class PairedRows:
    """Pairs of rows with one matrix up to sign.

    Parameters
    ----------
    plan : Plan
    first, second : int array
        The rows of each pair, the first ones ascending; a row that is alone is in both.
    sign : array
        1 or -1 for each pair: the matrix of the second row is this times that of the first.
    """

    def __init__(self, plan: Plan, first: IntArray, second: IntArray, sign: Array) -> None:
        self._plan, self._first, self._second, self._sign = plan, first, second, sign
        self._alone = first == second

    # Pays on: distances within a largest deviation, n = 40.
    @classmethod
    def of(cls, plan: Plan) -> PairedRows | None:
        """Return the pairs of the rows of a plan, None where they are few."""
        if plan.m < _LEAST_PAIRED:
            return None
        rng, sums = np.random.default_rng(0), np.empty((2, plan.m))
        for own in sums:
            halves = [rng.uniform(1.0, 2.0, (n, n)) for n in plan.A.orders]
            own[:] = plan.apply(plan.joined([S + S.T for S in halves]))
        sign = np.where(sums[0] < 0, -1.0, 1.0)
        sums *= sign
        order = np.lexsort(sums[::-1])
        ascending = sums[:, order]
        same: Mask = np.all(np.abs(np.diff(ascending)) <= _SAME * np.abs(ascending[:, 1:]), axis=0)
        if 2 * np.count_nonzero(same) < _PAYS * plan.m or (same[1:] & same[:-1]).any():
            return None
        starts = np.concatenate([[True], ~same])
        ends = np.concatenate([~same, [True]])
        pairs = np.sort([order[starts], order[ends]], axis=0)
        first, second = pairs[:, np.argsort(pairs[0])]
        return cls(plan, first, second, sign[first] * sign[second])

    def solver(self, at: ScalingPoint, F: Array) -> Callable[[Array, Array], tuple[Array, Array]] | None:
        """Return the solver of the system, None where both rows of a pair have ``D = 0``.

        Parameters
        ----------
        at : ScalingPoint
            All rows have bounds, and all variables are free.
        F : array of shape (m, k)
            The columns of the variables.
        """
        first, second, sign, alone, D = self._first, self._second, self._sign, self._alone, at.D
        if not (alone | (D[first] + D[second] > 0)).all():
            return None
        S = self._plan.schur(at.X_parts, at.K_parts, first, at.roots, at.Z_roots)
        checkpoint()
        kappa = np.where(alone, 0.0, 1 / np.where(alone, 1.0, D[first] + D[second]))
        share = np.where(alone, 1.0, kappa * D[second])  # of the first row
        other = kappa * D[first]
        S.flat[:: len(S) + 1] += share * D[first]

        def means(v: Array) -> tuple[Array, Array]:
            """Return the means of pairs and their differences."""
            one, two = v[first].T, sign * v[second].T
            return (share * one + other * two).T, (one - two).T

        F_g, F_d = means(F)
        solve_pairs = bordered(S, F_g, F_d.T @ (kappa[:, None] * F_d))

        def solve(b: Array, q: Array) -> tuple[Array, Array]:
            b_g, b_d = means(b)
            w, u = solve_pairs(b_g, q - F_d.T @ (kappa * b_d))
            y, along = np.empty(len(b)), kappa * (b_d - F_d @ u)
            y[second] = sign * (other * w - along)
            y[first] = share * w + along
            return y, u

        return solve
