"""The augmented Lagrangian of the rows that the surface does not satisfy by itself.

On the surface the rows of ``R``, or all of it, are on spheres, or ``R`` is any matrix, and it is orthogonal
to a few vectors: a row ``<z z', X> <= 0``, such as ``e'Xe == 0``, has no interior point. It means
``z'R = 0``, which is linear.

As a function of ``R``, with the activity ``a = A(R R')``, the Lagrangian is

    L(R) = <C, R R'> + sum over rows of  rho / 2 dist(a - y / rho, [lo, hi])^2.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas
from scipy.sparse.linalg import LinearOperator, minres

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.certify import TraceBound, definite_cost, highest, lowest, trace_bound
from bregopt.clock import CutShort
from bregopt.program import Program, SparseLowRankProgram, SparseLowRankRows, SparsePlusLowRank
from bregopt.records import cached_property, dataclass, replace
from bregopt.routes.base import Tuning

# Ratio of successive residuals of a row above which its penalty grows.
_PENALTY_RESIDUAL = 0.25
# Eigenvalue assigned to the planes, relative to the largest of the rest. Larger ones cost digits of the rest.
_PLANE_EIGENVALUE = 1e3
# Least singular value of ``R`` in the multipliers of planes, relative to the largest. These multipliers grow
# with its inverse square.
_PLANE_SINGULAR_VALUE = 1e-4
# Accuracy of the search for the best multipliers of dependent planes and spheres, relative to its range. Each
# trial costs an eigenvalue.
_MULTIPLIER_SEARCH_TOL = 1e-6
# Largest number of rows ``<z z', X> <= 0`` that are treated as planes. The dense vectors of planes take part
# in each product.
_PLANES = 16
# Residual and limit of the products in the search for multipliers that make the gradient small. Of theta of a
# small world of 1,000 vertices they lose a third to a tenth of what those of the point lose.
_LEAST_SQUARES_TOL, _LEAST_SQUARES_PRODUCTS = 1e-6, 10
# Limit on the steps of a retraction.
_RETRACTION_STEPS = 100
# Eigenvalues of the Gram matrix of the planes' tangent normals, at most one, that count as zero. The normals
# of planes and spheres are then linearly dependent.
_NORMALS_RANK_TOL = 1e-10
# Distance from the planes at which a retraction ends, relative to the norm of ``R``.
_RETRACTION_TOL = 1e-14


@dataclass(frozen=True, kw_only=True)
class BurerMonteiroTuning(Tuning):
    """Constants of the low-rank method, besides those of every method.

    Parameters
    ----------
    first_rank : int
        Columns of the first ``R``. Each column costs time in each product; with fewer columns more stages
        end at saddle points. For maximum cuts of order 5,000, 12 to 24 take the same time.
    first_stage_tol : float
        Norm of the gradient at which the first stage ends, relative to the value over the norm of ``R``.
    stage_tol_decrease : float
        Largest factor of this tolerance from stage to stage.
    first_penalty : float
        First penalties of rows, relative to the mean norm of the cost's rows.
    penalty_growth : float
        Growth factor of a penalty.
    first_radius : float
        First radius of the trust region, relative to the norm of ``R``.
    hessian_products : int
        Limit on the products with the Hessian in one step.
    cg_exponent : float
        Power of the relative gradient that ends them if it is smaller. One makes the convergence quadratic.
    accepted_ratio : float
        Ratio of actual and predicted decrease above which a step is accepted, and not shortened.
    shrink_ratio : float
        The same ratio below which the radius shrinks to half of the step.
    grow_ratio : float
        The same ratio above which the radius doubles, after a step to the boundary of the region.
    preconditioner_floor : float
        Least entry of the curvature's diagonal in the preconditioner, relative to the largest.
    """

    first_rank: int = 12
    first_stage_tol: float = 1e-2
    stage_tol_decrease: float = 0.1
    first_penalty: float = 10.0
    penalty_growth: float = 4.0
    first_radius: float = 0.125
    hessian_products: int = 300
    cg_exponent: float = 1.0
    accepted_ratio: float = 0.05
    shrink_ratio: float = 0.25
    grow_ratio: float = 0.75
    preconditioner_floor: float = 1e-3


@dataclass(frozen=True, eq=False)
class Point:
    """``R`` and the Lagrangian with its derivatives there.

    Parameters
    ----------
    R : array of shape (n, k)
    cost : float
        ``<C, R R'>``.
    value : float
        The Lagrangian.
    y : array of shape (m,)
        The updated multipliers of the rows.
    slack : SparsePlusLowRank
        ``C - A*(y)`` without the rows of the surface.
    sphere_multipliers : array of shape (n, 1) or (1, 1)
    plane_multipliers : array of shape (q, k)
    gradient : array of shape (n, k)
        Half of the Riemannian gradient.
    penalties : array of shape (m,)
        The penalties of the active rows, zero for the others.
    tangent : Tangent
    """

    R: Array
    cost: float
    value: float
    y: Array
    slack: SparsePlusLowRank
    sphere_multipliers: Array
    plane_multipliers: Array
    gradient: Array
    penalties: Array
    tangent: Tangent

    @cached_property
    def gradient_norm(self) -> float:
        """The norm of the gradient."""
        return float(np.linalg.norm(self.gradient))

    @cached_property
    def round_off(self) -> float:
        """A bound on the round-off in the value."""
        return EPS * max(map(abs, self.slack.ends())) * float(np.vdot(self.R, self.R))

    @cached_property
    def curvature(self) -> SparsePlusLowRank:
        """``C - A*(y)`` with the rows of the spheres; psd along the planes at the solution."""
        diagonal = np.broadcast_to(self.sphere_multipliers[:, 0], (self.slack.n,))
        return replace(self.slack, S=sp.csr_array(self.slack.S - sp.diags_array(diagonal)))

    def off_planes(self, surface: Surface) -> SparsePlusLowRank:
        """Return the curvature with large eigenvalues along the planes, so that the lowest lie off them."""
        W, Q = self.curvature, surface.Q
        level = _PLANE_EIGENVALUE * max(map(abs, W.ends()))
        return replace(W, U=np.hstack([W.U, Q]), w=np.concatenate([W.w, np.full(Q.shape[1], level)]))


@dataclass(frozen=True, eq=False)
class Lagrangian:
    """The function of ``R``.

    Parameters
    ----------
    cost : SparsePlusLowRank
    surface : Surface
    rows : SparseLowRankRows
        The rows other than those of the surface.
    at : int array of shape (m,)
        Their indices in the program.
    lo, hi : array of shape (m,)
        Their bounds.
    y, rho : array of shape (m,)
        Their multipliers and penalties.
    """

    cost: SparsePlusLowRank
    surface: Surface
    rows: SparseLowRankRows
    at: IntArray
    lo: Array
    hi: Array
    y: Array
    rho: Array

    def at_point(self, R: Array) -> Point:
        """Return the Lagrangian at a point of the surface."""
        a = self.rows.apply(R)
        shifted = a - self.y / self.rho
        residual = shifted - np.clip(shifted, self.lo, self.hi)
        y = -self.rho * residual
        slack = self.cost - self.rows.adjoint(y) if len(y) else self.cost
        G = slack @ R
        tangent = Tangent(self.surface, R)
        spheres, planes, gradient = tangent.split(G)
        # <C, R R'> is <G, R> plus the rows' terms y'a.
        cost = float(np.vdot(G, R)) + float(y @ a)
        value = cost + float(self.rho @ residual**2) / 2
        penalties = np.where(residual != 0, self.rho, 0.0)
        return Point(R, cost, value, y, slack, spheres, planes, gradient, penalties, tangent)

    def hessian_product(self, at: Point, V: Array) -> Array:
        """Return half of the Riemannian Hessian at a point times a tangent matrix."""
        H = at.curvature @ V
        if at.penalties.any():
            change = 2 * at.penalties * self.rows.apply(at.R, V)
            H += self.rows.adjoint(change) @ at.R
        return at.tangent.project(H)

    def retract(self, R: Array) -> Point:
        """Return the Lagrangian at a nearby point of the surface."""
        return self.at_point(self.surface.retract(R))

    def residuals(self, at: Point) -> Array:
        """Return the distance of each row from its bounds, or from its active bound."""
        return np.abs(at.y - self.y) / self.rho

    def updated(self, at: Point, before: Array, feasible: bool, tol: float) -> Lagrangian:
        """Return the Lagrangian with the multipliers of a minimizer.

        The penalty of a row grows if its residual decreased too little from `before`, and costs more than
        `tol`. Without spheres it also grows as long as some row is missed. On spheres the products of
        conjugate gradients would double: theta of small worlds of 2,000 vertices takes 127 s with it, and 68
        without.
        """
        residuals, tuning = self.residuals(at), self.surface.tuning
        costly = np.maximum(np.abs(at.y), np.abs(self.y)) * residuals > tol
        if not (feasible or len(self.surface.square)):
            costly[:] = True
        slow = costly & (residuals > _PENALTY_RESIDUAL * before)
        return replace(self, y=at.y, rho=np.where(slow, tuning.penalty_growth * self.rho, self.rho))

    def sharpened(self, at: Point) -> Point:
        """Return the point with multipliers of the rows that make its gradient small.

        Early in their iteration they are nearly those of least squares, and not yet far from those of the
        point where these are not unique.
        """
        rows = self.rows
        P, row, _ = rows.vertex_terms
        size = rows.weight**2 * np.einsum("qn,qn->q", rows.Z, rows.Z)
        forms = np.bincount(rows.at, size * np.sum((rows.Z @ at.R) ** 2, axis=1), rows.m)
        square = np.bincount(row, np.sum((P @ at.R) ** 2, axis=1), rows.m) + forms
        free = at.penalties * square > EPS * max(map(abs, at.slack.ends()))
        if not free.any():
            return at
        scale = np.zeros(len(square))
        scale[free] = 1 / np.sqrt(square[free])

        def product(d: Array) -> Array:
            moved = at.tangent.project(rows.adjoint(scale * d) @ at.R)
            return scale * rows.apply(at.R, moved)

        system = LinearOperator((rows.m, rows.m), matvec=product, dtype=float)
        right = scale * rows.apply(at.R, at.gradient)
        d, _ = minres(system, right, rtol=_LEAST_SQUARES_TOL, maxiter=_LEAST_SQUARES_PRODUCTS)
        y = at.y + scale * d
        y = np.where((self.lo < self.hi) & (y * at.y < 0), 0.0, y)
        slack = self.cost - rows.adjoint(y)
        spheres, planes, gradient = at.tangent.split(slack @ at.R)
        return replace(
            at, y=y, slack=slack, sphere_multipliers=spheres, plane_multipliers=planes, gradient=gradient
        )

    def multipliers(self, at: Point, m: int, loss: float) -> Array:
        """Return the multipliers of all `m` rows of the program.

        The multipliers of the planes can be arbitrarily large. If planes and spheres oppose each other, the
        optimal ones are not attained: the smallest eigenvalue tends to zero as they grow. The loss in the
        bound is at most `loss`.
        """
        at = self._best(at)
        y = np.zeros(m)
        y[self.at] = at.y
        y[self.surface.rows] = at.sphere_multipliers[:, 0] / self.surface.weight
        if len(self.surface.planes):
            _, s, Vh = np.linalg.svd(at.R, full_matrices=False)
            size = np.linalg.norm(at.plane_multipliers @ Vh.T, axis=0)
            size /= np.maximum(s, _PLANE_SINGULAR_VALUE * s[0])
            W = at.curvature
            across = W @ self.surface.Q
            across -= self.surface.Q @ (self.surface.Q.T @ across)
            weight = self.surface.trace * max(float(size @ size), float(np.vdot(across, across))) / loss
            level = max(map(abs, W.ends()))
            y[self.surface.planes] = -self.surface.unit_multipliers * max(weight, level)
        return y

    def _best(self, at: Point) -> Point:
        """Return the point with the multipliers of planes and spheres that give the best bound.

        They are not unique if the normals of planes and spheres are linearly dependent.
        """
        try:
            for B in at.tangent.dependent:
                at = self._along(at, B)
        except CutShort:
            pass  # the first multipliers are valid too
        return at

    def _along(self, at: Point, B: Array) -> Point:
        """Return the best of the points whose multipliers differ by ``B`` on the planes."""
        from scipy.optimize import minimize_scalar  # slow to import, rarely needed

        spheres = self.surface.sphere_coefficients(self.surface.Q @ B, at.R)

        def moved(t: float) -> Point:
            return replace(
                at,
                sphere_multipliers=at.sphere_multipliers - t * spheres,
                plane_multipliers=at.plane_multipliers + t * B,
            )

        def negative_bound(t: float) -> float:
            (eigenvalue,), _ = lowest(moved(t).off_planes(self.surface), 1)
            return -float(eigenvalue)

        limit = 2 * max(map(abs, at.curvature.ends())) / float(np.abs(spheres).max())
        options = {"xatol": _MULTIPLIER_SEARCH_TOL * limit}
        best = minimize_scalar(negative_bound, bounds=(-limit, limit), method="bounded", options=options)
        return moved(float(best.x)) if best.fun < negative_bound(0.0) else at


def lagrangian(
    program: Program, sparse: SparseLowRankProgram, surface: Surface, y: Array | None
) -> Lagrangian:
    """Return the Lagrangian of a program in one block, with the multipliers of an earlier answer."""
    others = np.ones(program.m, dtype=bool)
    others[surface.rows] = others[surface.planes] = False
    at = np.flatnonzero(others)
    rows, cost, bounds = sparse.rows.slice(at), sparse.cost, program.bounds.slice(at)
    if not (surface.units == 1).all():
        rows, cost = rows.scaled(surface.units), cost.scaled(surface.units)
    vectors = np.abs(cost.w) @ np.einsum("nq,nq->q", cost.U, cost.U)
    level = (float(abs(cost.S).sum()) / cost.n + float(vectors)) or 1.0
    size, curvature = _sizes_and_curvatures(rows, surface, bounds.lo, bounds.hi)
    if y is None:
        # Squares whose bounds are far smaller than their random value start as if they were fixed to zero.
        sign = np.zeros(rows.m)
        sign[rows.at] = np.sign(rows.weight)
        small = np.where(sign > 0, bounds.hi, -bounds.lo) < size * surface.trace / cost.n
        first = bounds.clip(np.where(small, -sign * level / size, 0.0))
    else:
        first = y[at]
    penalties = surface.tuning.first_penalty * level / curvature
    return Lagrangian(cost, surface, rows, at, bounds.lo, bounds.hi, first, penalties)


def _sizes_and_curvatures(
    rows: SparseLowRankRows, surface: Surface, lo: Array, hi: Array
) -> tuple[Array, Array]:
    """Return the norms of the rows, and estimates of the squared norms of ``2 A_k R`` at their bounds."""
    t, length = rows.terms, np.einsum("qn,qn->q", rows.Z, rows.Z)
    square = np.bincount(t.row, np.where(t.i == t.j, t.value**2, t.value**2 / 2), rows.m).astype(float)
    size = np.maximum(np.sqrt(square + np.bincount(rows.at, (rows.weight * length) ** 2, rows.m)), TINY)
    # A row of R has the squared length of its sphere, or its share of the trace.
    share = surface.square.max() if len(surface.square) > 1 else surface.trace / rows.n
    curvature = 4 * size**2 * float(share)
    ends = (np.where(np.isfinite(end), np.abs(end), 0.0) for end in (lo, hi))
    bound = np.maximum(*ends)[rows.at]
    # Of many rows those with far smaller bounds have no larger penalty.
    bound = np.where(bound > 0, np.maximum(bound, bound.mean() if len(bound) else 0.0), 0.0)
    curvature[rows.at] = np.where(bound > 0, 4 * size[rows.at] * bound, curvature[rows.at])
    return size, curvature


@dataclass(frozen=True, eq=False)
class Surface:
    """The matrices ``R`` with rows of given lengths, of one total length, or of any, and with ``Q'R = 0``.

    Parameters
    ----------
    units : array of shape (n,)
        Of the rows: ``X = diag(units) R R' diag(units)``. They scale the diagonal of a definite cost to one.
    trace : float
        The trace of ``R R'``, or about that of a solution where no length is given.
    square : array of shape (n,), (1,) or (0,)
        Squared lengths of the rows, or of the whole matrix.
    rows : int array of the same shape
        The rows of the program that fix them.
    weight : array of the same shape
        The factors of the squared lengths in these rows.
    Q : array of shape (n, q)
        Orthonormal.
    planes : int array
        The rows of the program that fix ``Q'R`` to zero.
    unit_multipliers : array of the same shape
        The least multipliers for which the sum of these rows is at least ``Q Q'``.
    tuning : BurerMonteiroTuning
    """

    units: Array
    trace: float
    square: Array
    rows: IntArray
    weight: Array
    Q: Array
    planes: IntArray
    unit_multipliers: Array
    tuning: BurerMonteiroTuning

    def sphere_coefficients(self, V: Array, R: Array) -> Array:
        """Return the column ``s`` for which ``V - s R`` is tangent to the spheres, or a single number."""
        if not len(self.square):
            return np.zeros((1, 1))
        dots: Array = np.einsum("nk,nk->n", V, R)
        if len(self.square) == 1:
            dots = dots.sum(keepdims=True)
        return (dots / self.square)[:, None]

    def retract(self, R: Array) -> Array:
        """Return a nearby point of the surface, by Newton's method if there are planes.

        Far from the planes, where Newton's method may fail, it projects onto planes and spheres in turn.
        """
        R = self._on_spheres(R)
        distance = self.plane_distance(R)
        for _ in range(_RETRACTION_STEPS):
            if distance <= _RETRACTION_TOL:
                break
            across = self.Q.T @ R
            new = self._on_spheres(R - self.Q @ Tangent(self, R).solve(across))
            if self.plane_distance(new) > distance / 2:
                new = self._on_spheres(R - self.Q @ across)
            R, distance = new, self.plane_distance(new)
        return R

    def plane_distance(self, R: Array) -> float:
        """Return the distance of `R` from the planes, relative to its norm."""
        return float(np.linalg.norm(self.Q.T @ R)) / np.sqrt(self.trace)

    def _on_spheres(self, R: Array) -> Array:
        """Return the nearest point of the spheres; a zero row becomes one with a single entry."""
        if not len(self.square):
            return R
        if len(self.square) == 1:
            whole = R if R.any() else np.ones_like(R)
            return whole * np.sqrt(self.square / np.vdot(whole, whole))
        length = np.linalg.norm(R, axis=1)
        if not length.all():
            R = R.copy()
            R[length == 0, 0] = length[length == 0] = 1.0
        return R * (np.sqrt(self.square) / length)[:, None]


class Tangent:
    """The tangent space at a point.

    Parameters
    ----------
    surface : Surface
    R : array of shape (n, k)
    """

    def __init__(self, surface: Surface, R: Array) -> None:
        self._surface, self._R = surface, R
        self._inverse: Array | None = None
        self._normals: Array | None = None
        Q, n, size = surface.Q, len(R), surface.Q.shape[1] * R.shape[1]
        if size and len(surface.square) == n:
            # A normal of the planes has a component along the normals of the spheres.
            T = (Q[:, :, None] * (R / np.sqrt(surface.square)[:, None])[:, None, :]).reshape(n, size)
            self._normals = np.eye(size) - T.T @ T
            self._inverse = np.asarray(np.linalg.pinv(self._normals, _NORMALS_RANK_TOL, hermitian=True))

    def solve(self, across: Array) -> Array:
        """Return ``B`` for which ``Q'`` times the tangent part of ``Q B`` is `across`; shape ``(q, k)``."""
        return across if self._inverse is None else (self._inverse @ across.ravel()).reshape(across.shape)

    @property
    def dependent(self) -> list[Array]:
        """The ``B`` with ``Q B`` also normal to the spheres, as when all rows of ``R`` are parallel."""
        if self._normals is None:
            return []
        values, vectors = np.linalg.eigh(self._normals)
        shape = self._surface.Q.shape[1], self._R.shape[1]
        null = np.abs(values) <= _NORMALS_RANK_TOL
        return [b.reshape(shape) for b in vectors.T[null]]

    def split(self, V: Array) -> tuple[Array, Array, Array]:
        """Return ``s``, ``B`` and the tangent ``V - Q B - s R``."""
        surface, R = self._surface, self._R
        Q, s = surface.Q, surface.sphere_coefficients(V, R)
        if Q.shape[1] == 0:
            return s, np.zeros((0, R.shape[1])), V - s * R
        B = self.solve(Q.T @ V - (s * Q).T @ R)
        s = s - surface.sphere_coefficients(Q, R @ B.T)  # the rows of Q B and R have the products Q (R B')'
        tangent = np.multiply(s, R, order="C")
        np.subtract(V, tangent, out=tangent)
        for q, b in zip(Q.T, B, strict=True):
            # In place; Q @ B takes ten times as long.
            tangent = blas.dger(-1.0, b, q, a=tangent.T, overwrite_a=1).T
        return s, B, tangent

    def project(self, V: Array) -> Array:
        """Return the tangent part."""
        return self.split(V)[2]


def read_surface(
    program: Program, sparse: SparseLowRankProgram, tuning: BurerMonteiroTuning
) -> Surface | None:
    """Return the surface of a program in one block; None where ``X`` may be arbitrarily large.

    A diagonal or a trace that is positive and fixed gives spheres. Otherwise ``R`` is any matrix, and the
    rows must bound its trace, or the cost be positive definite.
    """
    bound, cost = trace_bound(program, 0), definite_cost(program)
    rows, weight, square = np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)
    units, trace = np.ones(sparse.cost.n), 0.0
    if bound is not None:
        trace = bound.value
    elif cost is not None:
        units = 1 / np.sqrt(cost.diagonal)
        trace = _value_of_bounds(program, sparse.rows.scaled(units)) or 1.0
    if bound is not None and bound.exact:
        rows = np.flatnonzero(bound.multipliers)
        square = np.array([bound.value])
        if len(rows) > 1:
            rows = rows[np.argsort(_entries(program, bound)[rows])]
            square = program.bounds.hi[rows] * bound.multipliers[rows]
        weight = 1 / bound.multipliers[rows]
    if not (trace > 0 and (square > 0).all()):
        return None
    planes = _planes(program, sparse.rows, units, _PLANES)
    return Surface(units, trace, square, rows, weight, *planes, tuning)


def _value_of_bounds(program: Program, rows: SparseLowRankRows) -> float:
    """Return the bound on ``min tr X`` by multipliers in proportion to the bounds of the rows."""
    y = program.bounds.clip(np.clip(0.0, program.bounds.lo, program.bounds.hi))
    value = float(program.bounds.conjugate(y).sum())
    return value / highest(rows.adjoint(y)) if value > 0 else 0.0


def _entries(program: Program, bound: TraceBound) -> IntArray:
    """Return the diagonal entry that each row fixes, -1 for other rows."""
    entry = np.full(program.m, -1)
    for term in program.A.terms:
        own = np.flatnonzero(bound.multipliers[term.at])
        if len(own):
            t = term.rows.slice(own).coordinates()
            entry[term.at[own[t.row]]] = t.i
    return entry


def _planes(
    program: Program, rows: SparseLowRankRows, units: Array, count: int
) -> tuple[Array, IntArray, Array]:
    """Return a basis, the rows and the unit multipliers of at most `count` planes that rows prescribe."""
    own = np.flatnonzero(_fixed_to_zero(program, rows.at, rows.weight))
    vectors, at, weight = [rows.Z[own]], [rows.at[own]], [rows.weight[own]]
    for term in program.A.terms:
        if term.rows.rank == 1:
            fixed = _fixed_to_zero(program, term.at, term.rows.definite_signs())
            own = np.flatnonzero(fixed & ~np.isin(term.at, rows.at))[:count]
            terms = term.rows.slice(own).rank_one_terms()
            assert terms is not None
            vectors.append(terms.U if isinstance(terms.U, np.ndarray) else terms.U.toarray())
            at.append(term.at[own])
            weight.append(terms.weight)
    Z, rows_at, size = np.vstack(vectors) * units, np.concatenate(at), np.concatenate(weight)
    length = np.linalg.norm(Z, axis=1)
    kept = np.flatnonzero(length)[:count]
    Z = Z[kept] / length[kept, None]
    U, s, _ = np.linalg.svd(Z.T, full_matrices=False)
    independent = s > 1e-8
    unit_multipliers = 1 / (size[kept] * length[kept] ** 2)
    if independent.any():
        unit_multipliers /= s[independent].min() ** 2
    return U[:, independent], rows_at[kept], unit_multipliers


def _fixed_to_zero(program: Program, at: IntArray, weight: Array) -> Mask:
    """Return the mask of the rows ``weight <z z', X>`` that fix the square to zero."""
    lo, hi = program.bounds.lo[at], program.bounds.hi[at]
    return ((weight > 0) & (hi == 0)) | ((weight < 0) & (lo == 0))
