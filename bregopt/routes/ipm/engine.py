"""The primal-dual Newton method that the routes share: all rows at once, in the HKM direction.

The problem is ``min sum <C, X> - w logdet X + c'u`` under rows, a box and second-order cones of variables,
with a weight ``w`` for each matrix. The finite bounds of rows and box, and the cones, are on their central
path at ``nu`` (:mod:`bregopt.routes.ipm.bound_state`, :mod:`bregopt.routes.ipm.cones`). The iterate
consists of ``X``, ``Z``, ``u`` and the slacks and multipliers of the bounds, with

    A(X) + B u equal to bounds plus slacks,   Z = C - A*(y),   z = c - B'y,   X Z = w I.

All are linearized (:mod:`bregopt.routes.ipm.row_system`). The second and third hold from the start where
possible; otherwise their residuals shrink with every step. A LogDet problem keeps its weight ``w`` while
``nu`` decreases. For a semidefinite program both decrease together.

``X`` and ``Z`` are one flat vector each, of which the matrices are views (:mod:`bregopt.routes.ipm.plan`).
A block may be restricted to a face of the cone (:class:`bregopt.program.Face`). ``X`` and ``inv(Z)`` are then
stored in the coordinates of the rows, in which the rows are sparse, and only decompositions use the face.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import checkpoint
from bregopt.program import Bounds, Face, Program
from bregopt.records import cached_property
from bregopt.routes.ipm.bound_state import BoundState, BoundStep, FiniteBounds
from bregopt.routes.ipm.cones import (
    LEAST_STEP,
    LEAST_STEP_FRACTION,
    NO_STEP,
    SecondOrderState,
    SecondOrderStep,
)
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint, Solve, System
from bregopt.routes.ipm.row_system import FORMED_ENTRIES, LARGEST_FORMED_ROWS, RowSystem, system_for
from bregopt.routes.ipm.scaled_systems import MANY, SOME, ScaledRows

# Factor that shortens a step out of the cone, squared at each further trial. Step lengths are estimates, so
# most such steps are only slightly too long.
_STEP_DECREASE = 0.95
# Relative tolerance of the step length of a corrector. A smaller one takes more Cholesky factorizations, a
# larger one shortens the step.
_CORRECTOR_TOL = 0.04
# Relative tolerance of that of a predictor, which only determines the centering parameter.
_PREDICTOR_TOL = 0.15
# Least exponent of the centering parameter once C - A*(y) = Z holds, from this sum of the matrices' orders or
# where there are more hinges; otherwise it is 1. A larger one takes fewer, less central steps.
_CENTERING_EXPONENT, _EXPENSIVE_ORDER = 2.0, 130
# Step length of a corrector, relative to the square of the predictor's, below which the step is also tried
# without second-order terms, and the length below which it always is with hinges beside a log-determinant.
# Near a singular solution these terms may be round-off; those of a short predictor lead away from a fixed
# weight.
_CORRECTOR_RATIO, _SHORT_CORRECTOR = 0.3, 0.1
# Ratio of the mean eigenvalue of ``X Z`` to the weight of LogDet above which it decreases along the central
# path; below, only the slacks' products decrease. An ill-conditioned start begins far above it.
_WEIGHT_RATIO = 20.0
# Multiplier beyond which an iterate is not on a central path.
_LARGEST_MULTIPLIER = 1e100
# Norm of ``C - A*(y) - Z``, relative to ``Z``, that counts as zero.
_DUAL_ROUND_OFF = 1e-11
# The same after a full predictor step; below one, as the next iterate has to be positive definite.
_LARGEST_STEP_FRACTION = 0.99
# Least centering parameter. At zero the step would aim at the boundary itself.
_LEAST_CENTERING = 1e-3
# Exponent of the centering parameter after a full predictor step; smaller with the square of a shorter
# step's length.
_FULL_STEP_EXPONENT = 3.0


class Iterate(NamedTuple):
    """A point of the method.

    Parameters
    ----------
    X, Z : array of shape (size,)
        Flat vectors of matrices in the interior of the cone.
    X_parts, Z_parts : list of array
        Their views for each group.
    X_roots, Z_roots : sequence of arrays
        Their roots for each group, in the sense of its cone.
    residual : array of shape (size,), optional
        ``C - A*(y) - Z``; None for zero.
    exact : sequence of bool
        Marks the groups without residual.
    u, z : array of shape (k,)
        Variables, and the multipliers of their box and of their second-order cones.
    y, activity : array of shape (m,)
    multipliers : array
        Of the bounds of the rows and, after them, of the box.
    bounds : BoundState or None
        Their state, None where all are equalities: then there are no slacks.
    second_order : SecondOrderState
        Of the variables in second-order cones.
    dual_residual : float
        The norm of the residual, largest over the groups; zero if it is round-off.
    """

    X: Array
    Z: Array
    X_parts: list[Array]
    Z_parts: list[Array]
    X_roots: Sequence[Array]
    Z_roots: Sequence[Array]
    residual: Array | None
    exact: Sequence[bool]
    u: Array
    z: Array
    y: Array
    activity: Array
    multipliers: Array
    bounds: BoundState | None
    second_order: SecondOrderState
    dual_residual: float


class Direction(NamedTuple):
    """A Newton step; `X` and `Z` are flat, with views for each group. `bounds` is None without slacks.

    `rows` is the right-hand side of the rows.
    """

    X: Array
    Z: Array
    X_parts: list[Array]
    Z_parts: list[Array]
    u: Array
    multipliers: Array
    bounds: BoundStep | None
    second_order: SecondOrderStep
    rows: Array


class Engine:
    """Newton's method for one problem.

    Parameters
    ----------
    program : Program
        Rows, box, second-order cones and ``c``; the objectives of its blocks are not used.
    C : sequence of arrays of shape (n_b, n_b)
    faces : sequence of Face, optional
        The whole cone by default.
    direct : bool
        Whether the system is factorized at any size.
    weights : sequence of float, optional
        ``w`` of each block; zero by default, as for a semidefinite program.
    stacked : bool
        Whether small blocks of equal order and weight are stacked.
    formed : int
        Number of entries of ``X`` up to which a system in them is formed.

    Attributes
    ----------
    plan : Plan
    cost : array of shape (plan.size,)
        The cost matrices, flat.
    weights : tuple of float
        ``w`` of each group.
    """

    def __init__(
        self,
        program: Program,
        C: Sequence[Array],
        faces: Sequence[Face] | None = None,
        direct: bool = False,
        weights: Sequence[float] | None = None,
        stacked: bool = True,
        formed: int = FORMED_ENTRIES,
    ) -> None:
        self._program, self._m = program, program.m
        self.plan = Plan.of(program.A, faces, weights, stacked)
        self.cost = self.plan.joined(C)
        self._finite = self.plan.finite = FiniteBounds.of(_with_box(program), self.plan.finite)
        self._of_variables = self._finite.centered + program.cones.count
        many = self.plan.order >= _EXPENSIVE_ORDER or len(self._finite.hinge) > self.plan.order
        self._least_exponent = _CENTERING_EXPONENT if many else 1.0
        self._equal = self._finite.row if self._finite.exact else slice(0)  # rows without slacks
        self.weights, self._weighted = self.plan.weights, any(self.plan.weights)
        self._weight = self.plan.spread(self.weights) if self._weighted else 0.0
        self._may_scale = True  # the rows once a step has lost digits
        self._system: System = ScaledRows.of(self.plan, program) or system_for(
            self.plan, program, program.bounds.equal, direct, formed
        )

    @property
    def is_sparse(self) -> bool:
        """Whether the system is sparse, as the Gram matrix of rows is then."""
        return isinstance(self._system, RowSystem) and self._system.sparse

    @property
    def is_scaled(self) -> bool:
        """Whether the system is that in scaled coordinates, whose rows are independent."""
        return isinstance(self._system, ScaledRows)

    @cached_property
    def largest_cost(self) -> float:
        """The largest norm of a cost matrix of a block."""
        squares = [np.add.reduce(C * C, axis=(-2, -1)) for C in self.plan.views(self.cost)]
        return math.sqrt(max(float(np.max(own)) for own in squares))

    def with_more_digits(self) -> Engine | None:
        """Return the method with a system that keeps more digits; None if it has that or it is too large.

        The system in the entries of ``X`` divides by the slacks of the rows and loses digits as these vanish.
        """
        if self.is_scaled:
            return None
        system: System | None = ScaledRows.of(self.plan, self._program, MANY)
        if system is None and not isinstance(self._system, RowSystem) and self._m <= LARGEST_FORMED_ROWS:
            system = RowSystem(self.plan, self._program.B, direct=True)
        if system is None:
            return None
        other = copy.copy(self)
        other._system = system
        return other

    def begin(
        self, X: Array, u: Array, nu: float, y: Array | None = None, Z: Array | None = None
    ) -> Iterate | None:
        """Return the iterate at given matrices, with bounds centered at `nu`; None outside the cone.

        Parameters
        ----------
        X : array of shape (size,)
        u : array of shape (k,)
            Inside the box and the second-order cones.
        nu : float
        y : array of shape (m,), optional
            Multipliers that those of the iterate are close to.
        Z : array of shape (size,), optional
            ``C - A*(y)`` by default.
        """
        program, cones = self._program, self._program.cones
        near = None if y is None or not cones.count else (program.c - program.Bt @ y)[cones.index]
        second_order = SecondOrderState.centered(cones, u[cones.index], nu, near)
        exact = (Z is None,) * len(self.plan.groups)
        return self._iterate(X.copy(), Z, exact, u, *self._first_bounds(X, u, nu, y), second_order)

    def _first_bounds(
        self, X: Array, u: Array, nu: float, y: Array | None
    ) -> tuple[Array, BoundState | None]:
        """Return multipliers close to `y`, and the state of the bounds, centered at `nu`."""
        if self._finite.exact:
            multipliers = np.zeros(self._finite.m)
            if y is not None:
                multipliers[: self._m] = np.where(self._finite.no_slacks[: self._m] > 0, 0.0, y)
            return multipliers, None
        y_near = np.full(self._m + len(u), np.nan)
        if y is not None:
            y_near[: self._m] = y
        bounded_values = np.concatenate([self.activity(X, u), u])
        magnitude = np.concatenate([self.sizes(X, u), np.abs(u)])
        state = BoundState.at(self._finite, bounded_values, magnitude, nu, y_near)
        return state.multipliers, state

    def activity(self, X: Array, u: Array) -> Array:
        """Return ``A(X) + B u``."""
        activity = self.plan.apply(X)
        return activity + u @ self._program.Bt if len(u) else activity

    def sizes(self, X: Array, u: Array) -> Array:
        """Return the largest activity of each row for these diagonals, or its bounds if larger; not zero."""
        size = self._program.absolute_B @ np.abs(u) + self.plan.magnitudes(X) + TINY
        return np.maximum(size, self._program.bounds.sizes)

    def solver(self, at: Iterate) -> Solve | None:
        """Return the solver of Newton's system at an iterate, None where it overflows."""
        D, m = self._finite.no_slacks.copy() if at.bounds is None else at.bounds.row_diagonal(), self._m
        if D is None:
            return None
        if self._may_scale and self._system.lost_digits:
            self._may_scale = False
            if isinstance(self._system, RowSystem):
                self._system = ScaledRows.of(self.plan, self._program, SOME) or self._system
            else:
                other = self.with_more_digits()
                self._system = self._system if other is None else other._system
        D_u, p_u, cones = D[m:], None, at.second_order.cones
        if cones.count:
            D_u[cones.index], p_u = at.second_order.metric()
        point = ScalingPoint(self.plan, at.X, at.X_roots, at.Z_roots, D[:m], D_u, cones, p_u)
        try:
            return self._system.factor(point)
        except np.linalg.LinAlgError:
            return None

    def direction(
        self,
        at: Iterate,
        solve: Solve,
        weight: float | Array,
        nu: float,
        predictor: Direction | None = None,
    ) -> Direction | None:
        """Return the step to the given `weight` and `nu`; None if it is not finite.

        With a `predictor` the step includes its second-order terms (Mehrotra).
        """
        program, m, values, q = self._program, self._m, at.activity, at.u
        if len(q):
            values = np.concatenate([at.activity, at.u])
            q = program.c - program.Bt @ at.y - at.z  # B'dy + dz
        if at.bounds is None:
            equations = None
            r = self._finite.missing(values) if predictor is None else predictor.rows
        else:
            equations = at.bounds.equations(values, nu, None if predictor is None else predictor.bounds)
            r = equations.of_rows
        r_u, in_cones = r[m:], at.second_order.cones.index
        if len(in_cones):
            r_u[in_cones] = at.second_order.right_hand_side(
                nu, None if predictor is None else predictor.second_order
            )
        R = None if at.residual is None and predictor is None else self._matrix_rhs(at, predictor)
        step = solve(RightHandSide(weight, R, r[:m], r_u, q))
        multipliers = np.concatenate([step.y, q - program.Bt @ step.y]) if len(q) else step.y
        if not math.isfinite(np.add.reduce(multipliers) + np.add.reduce(step.u)):
            return None
        bounds = None
        if at.bounds is not None and equations is not None:
            bounds = at.bounds.step(multipliers, equations)
        dZ = -step.adjoint if at.residual is None else at.residual - step.adjoint
        second_order = NO_STEP
        if len(in_cones):
            second_order = SecondOrderStep(step.u[in_cones], multipliers[m:][in_cones])
        parts = self.plan.views(step.X), self.plan.views(dZ)
        return Direction(step.X, dZ, *parts, step.u, multipliers, bounds, second_order, r)

    def _matrix_rhs(self, at: Iterate, predictor: Direction | None) -> list[Array | None]:
        """Return ``R`` of each group: its residual and a predictor's second-order terms; None for zero."""
        R: list[Array | None] = [None] * len(at.exact)
        if at.residual is not None:
            parts = zip(self.plan.views(at.residual), at.X_parts, at.exact, strict=True)
            R = [None if exact else -(residual @ X) for residual, X, exact in parts]
        if predictor is None:
            return R
        dX, dZ = predictor.X_parts, predictor.Z_parts
        for g, group in enumerate(self.plan.groups):
            # Without a residual dZ has the entries of the rows.
            second = group.product(dZ[g], dX[g]) if at.exact[g] else dZ[g] @ dX[g]
            own = R[g]
            R[g] = -second if own is None else own - second
        return R

    def step_lengths(self, at: Iterate, step: Direction, tol: float) -> tuple[float, float]:
        """Return the primal and dual step lengths to the boundary; infinite where nothing limits them."""
        primal = dual = math.inf
        if at.bounds is not None and step.bounds is not None:
            primal, dual = at.bounds.step_lengths(step.bounds)
        if at.second_order.cones.count:
            of_cones = at.second_order.step_lengths(step.second_order)
            primal, dual = min(primal, of_cones[0]), min(dual, of_cones[1])
        for g, group in enumerate(self.plan.groups):
            points, roots = (at.X_parts[g], at.Z_parts[g]), (at.X_roots[g], at.Z_roots[g])
            own = group.cone.lengths(points, roots, (step.X_parts[g], step.Z_parts[g]), tol)
            primal, dual = min(primal, own[0]), min(dual, own[1])
        return primal, dual

    def after_step(self, at: Iterate, step: Direction, primal: float, dual: float) -> Iterate | None:
        """Return the iterate after a step, shortened until it is in the cone; None if the step vanishes."""
        decrease = _STEP_DECREASE
        while max(primal, dual) > LEAST_STEP:
            if at.bounds is None or step.bounds is None:
                multipliers, bounds = at.multipliers.copy(), None
                multipliers[self._equal] += dual * step.multipliers[self._equal]
            else:
                bounds = at.bounds.after_step(step.bounds, primal, dual)
                multipliers = bounds.multipliers
            in_cones: SecondOrderState | None = at.second_order
            if at.second_order.cones.count:
                in_cones = at.second_order.after_step(step.second_order, primal, dual)
            Z = None if at.residual is None else at.Z + dual * step.Z
            X, u = at.X + primal * step.X, at.u + primal * step.u
            new = self._iterate(X, Z, at.exact, u, multipliers, bounds, in_cones)
            if new is not None:
                return new
            primal, dual, decrease = decrease * primal, decrease * dual, decrease**2
        return None

    def advance(self, at: Iterate) -> Iterate | None:
        """Return the iterate after a predictor and a corrector (Mehrotra 1992), None if no step is left.

        Both use the same factorized system. The predictor aims at ``nu = 0``. Its step length determines
        the centering parameter of the corrector. While ``X Z`` of a group is far above ``w I``, its weight
        decreases too. Diverging iterates may overflow; a step that is not finite is rejected.
        """
        falling = self._falling(at) if self._weighted else range(len(self.plan.groups))
        solve = self.solver(at)
        step = None if solve is None else self.direction(at, solve, self._weight, 0.0)
        if solve is None or step is None:
            return None
        lengths = self.step_lengths(at, step, _PREDICTOR_TOL)
        primal, dual = min(1.0, lengths[0]), min(1.0, lengths[1])
        now = self.complementarity(at, falling)
        order = self.products(falling) if self._weighted else self.plan.order + self._of_variables
        if order and now:
            after = self._complementarity_after(at, step, primal, dual, falling)
            centering = min(1.0, max(after / now, 0.0))
            least_exponent = 1.0 if at.dual_residual else self._least_exponent
            exponent = max(least_exponent, _FULL_STEP_EXPONENT * min(primal, dual) ** 2)
            nu = max(centering**exponent, _LEAST_CENTERING) * now / order
            target: float | Array = nu
            if self._weighted:
                own = enumerate(self.weights)
                target = self.plan.spread([max(nu, w) if g in falling else w for g, w in own])
            corrected = self._corrected(at, solve, target, nu, step, min(primal, dual))
            if corrected is None:
                return None
            step, lengths = corrected
        least, most = LEAST_STEP_FRACTION, _LARGEST_STEP_FRACTION
        fraction = least + (most - least) * min(primal, dual)
        primal, dual = min(1.0, fraction * lengths[0]), min(1.0, fraction * lengths[1])
        return self.after_step(at, step, primal, dual) if max(primal, dual) > LEAST_STEP else None

    def _corrected(
        self,
        at: Iterate,
        solve: Solve,
        weight: float | Array,
        nu: float,
        predictor: Direction,
        predictor_length: float,
    ) -> tuple[Direction, tuple[float, float]] | None:
        """Return the step to `weight` and `nu` and its step lengths; None if it is not finite.

        The step has the second-order terms of the `predictor`, unless they make it too short: near a singular
        solution they may consist of round-off.
        """
        best, least = None, _CORRECTOR_RATIO * predictor_length**2
        if self._weighted and len(self._finite.hinge):
            least = max(least, _SHORT_CORRECTOR)
        for second_order in (predictor, None):
            step = self.direction(at, solve, weight, nu, second_order)
            if step is None:
                continue
            lengths = self.step_lengths(at, step, _CORRECTOR_TOL)
            if best is None or min(lengths) > min(best[1]):
                best = step, lengths
            if min(lengths) >= least:
                break
        return best

    def _falling(self, at: Iterate) -> Sequence[int]:
        """Return the groups whose ``X Z`` is far above ``w I``."""
        ratio, groups = _WEIGHT_RATIO, self.plan.groups
        far = [float(at.X[own.part] @ at.Z[own.part]) > ratio * own.weight * own.cone.order for own in groups]
        return [g for g in range(len(groups)) if far[g]]

    def products(self, groups: Sequence[int]) -> int:
        """Return the number of terms in the complementarity of rows, variables and some groups."""
        own = self.plan.groups
        of_groups = self.plan.order if len(groups) == len(own) else sum(own[g].cone.order for g in groups)
        return of_groups + self._of_variables

    def complementarity(self, at: Iterate, groups: Sequence[int]) -> float:
        """Return the complementarity of rows and variables, plus ``<X, Z>`` of some groups."""
        X, Z = self._in(groups, at.X, at.Z) if self._weighted else (at.X, at.Z)
        total = float(X @ Z)
        if at.bounds is not None:
            total += at.bounds.complementarity()
        if at.second_order.cones.count:
            total += at.second_order.complementarity()
        return total

    def _complementarity_after(
        self, at: Iterate, step: Direction, primal: float, dual: float, groups: Sequence[int]
    ) -> float:
        """Return the complementarity after a step of these lengths."""
        total, own = 0.0, (at.X, at.Z, step.X, step.Z)
        if at.bounds is not None and step.bounds is not None:
            total += at.bounds.complementarity_after(step.bounds, primal, dual)
        if at.second_order.cones.count:
            total += at.second_order.complementarity_after(step.second_order, primal, dual)
        X, Z, dX, dZ = self._in(groups, *own) if self._weighted else own
        # One product of the new points would lose digits.
        total += float(X @ Z) + primal * float(dX @ Z)
        total += dual * float(X @ dZ)
        return total + dual * primal * float(dX @ dZ)

    def _in(self, groups: Sequence[int], *vectors: Array) -> Sequence[Array]:
        """Return the parts of flat vectors in some groups."""
        own = self.plan.groups
        if len(groups) == len(own):
            return vectors
        return [np.concatenate([v[:0], *(v[own[g].part] for g in groups)]) for v in vectors]

    def _iterate(
        self,
        X: Array,
        Z: Array | None,
        exact: Sequence[bool],
        u: Array,
        multipliers: Array,
        bounds: BoundState | None,
        second_order: SecondOrderState | None,
    ) -> Iterate | None:
        """Return an iterate, None if one of its matrices is not positive definite on its face.

        `X` may be changed. A ``Z`` of None stands for ``C - A*(y)``, as its part in the groups marked `exact`
        does, and a `second_order` of None for a point outside its cones.
        """
        checkpoint()
        if second_order is None:
            return None
        y, z = multipliers, u
        if len(u):
            y, z = y[: self._m], y[self._m :].copy()
            z[second_order.cones.index] = second_order.z
        if not np.maximum.reduce(np.abs(y), initial=0.0) < _LARGEST_MULTIPLIER:
            return None
        X_parts = self.plan.views(X)
        X_roots = self.plan.roots(X_parts)
        if X_roots is None:
            return None
        slack, residual, largest = self.cost - self.plan.adjoint(y), None, 0.0
        Z_parts = self.plan.views(slack if Z is None else Z)
        if Z is None:
            Z, Z_roots = slack, self.plan.roots(Z_parts)
        else:
            Z_roots, residual, exact, largest = self._dual(slack, Z, exact)
        if Z_roots is None:
            return None
        if self.plan.faces:
            self.plan.projected(X)  # round-off would move it off its face, step by step
        activity = self.plan.apply(X)
        if len(u):
            activity += u @ self._program.Bt
        return Iterate(
            *(X, Z, X_parts, Z_parts, X_roots, Z_roots, residual, exact, u, z, y),
            *(activity, multipliers, bounds, second_order, largest),
        )

    def _dual(
        self, slack: Array, Z: Array, exact: Sequence[bool]
    ) -> tuple[list[Array] | None, Array | None, Sequence[bool], float]:
        """Return the roots of ``Z``, its residual, the groups without one, and the residual's largest norm.

        `slack` is ``C - A*(y)``, and takes the place of ``Z`` in the groups without residual. A residual that
        is round-off is dropped, unless the slack is not definite: without an interior of the dual it never
        is, and the residual has to stay. The roots are None if one of the matrices is not definite.
        """
        found, marks, largest, residual = [], [], 0.0, slack - Z
        for group, is_exact in zip(self.plan.groups, exact, strict=True):
            own, given, error = group.of(slack), group.of(Z), 0.0
            root = None
            if not is_exact:
                error = _norm(residual[group.part])
            if is_exact or error <= _DUAL_ROUND_OFF * _norm(Z[group.part]):
                root = group.cone.root(own)
            dropped = is_exact or root is not None
            if not dropped:
                root = group.cone.root(given)
                largest = max(largest, error)
            if root is None:
                return None, None, exact, largest
            if dropped:
                given[...] = own
                group.of(residual)[...] = 0.0
            found.append(root)
            marks.append(dropped)
        return found, None if all(marks) else residual, marks, largest


def _norm(v: Array) -> float:
    """Return the norm of a vector; NumPy's own function takes three times as long for a short one."""
    return math.sqrt(v @ v)


def _with_box(program: Program) -> Bounds:
    """Return the bounds of the rows, followed by those of the variables."""
    if not program.k:
        return program.bounds
    return program.bounds.followed_by(Bounds.of_hard_rows(program.u_lo, program.u_hi))
