"""The primal-dual Newton method that the routes share: all rows at once, in the HKM direction.

The problem is ``min sum <C, X> - w logdet X + c'u`` under rows, a box and second-order cones of variables,
with a weight ``w`` for each matrix. The finite bounds of rows and box, and the cones, are on their central
path at ``nu`` (:mod:`bregopt.routes.ipm.bound_state`, :mod:`bregopt.routes.ipm.second_order`). The iterate
consists of ``X``, ``Z``, ``u`` and the slacks and multipliers of the bounds, with

    A(X) + B u equal to bounds plus slacks,   Z = C - A*(y),   z = c - B'y,   X Z = w I.

All are linearized (:mod:`bregopt.routes.ipm.systems`). The second and third hold from the start where
possible; otherwise their residuals shrink with every step. A LogDet problem keeps its weight ``w`` while
``nu`` decreases. For a semidefinite program both decrease together.

Matrices are stored in groups (:mod:`bregopt.routes.ipm.groups`): the method sees one array for each block, or
for a stack of small blocks. A block may be restricted to a face of the cone (:mod:`bregopt.program.face`).
``X`` and ``inv(Z)`` are then stored in the coordinates of the rows, in which the rows are sparse, and only
decompositions use the face.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.clock import checkpoint
from bregopt.linalg import dense
from bregopt.program import Bounds, Face, Program
from bregopt.routes.ipm.bound_state import BoundState, FiniteBounds
from bregopt.routes.ipm.groups import groups_of, split
from bregopt.routes.ipm.iterate import Direction, Iterate, Pair
from bregopt.routes.ipm.linear_solvers import DefiniteFactor
from bregopt.routes.ipm.newton_point import RightHandSide, ScalingPoint, Solve
from bregopt.routes.ipm.row_system import RowSystem
from bregopt.routes.ipm.second_order import SecondOrderState, SecondOrderStep
from bregopt.routes.ipm.systems import system_for
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["Linearization", "PrimalDual"]


@dataclass(frozen=True, eq=False)
class Linearization:
    """Newton's system at an iterate, factorized, with `D` of the finite bounds and ``q = B'dy + dz``."""

    at: Iterate
    solve: Solve
    D: Array
    q: Array


class PrimalDual:
    """Newton's method for one problem.

    Parameters
    ----------
    program : Program
        Rows, box, second-order cones and ``c``; the objectives of its blocks are not used.
    C : sequence of arrays of shape (n_b, n_b)
    tuning : InteriorPointTuning
    faces : sequence of Face, optional
        The whole cone by default.
    direct : bool
        Whether the system is factorized at any size.
    weights : sequence of float, optional
        ``w`` of each block; zero by default, as for a semidefinite program.
    stacked : bool
        Whether small blocks of equal order and weight are stacked.

    Attributes
    ----------
    groups : tuple of Group
        The blocks as the method stores them, each a block or a stack of blocks.
    """

    def __init__(
        self,
        program: Program,
        C: Sequence[Array],
        tuning: InteriorPointTuning,
        faces: Sequence[Face] | None = None,
        direct: bool = False,
        weights: Sequence[float] | None = None,
        stacked: bool = True,
    ) -> None:
        self._tuning = tuning
        self._A, self._c = program.A, program.c
        self._program, self._Bt = program, program.Bt
        self._finite = FiniteBounds.of(_with_box(program))
        faces = tuple(Face.whole(n) for n in self._A.orders) if faces is None else faces
        self.groups = groups_of(self._A, C, faces, tuning, stacked, weights)
        self._weights = tuple(group.weight for group in self.groups)
        exact = program.bounds.equal
        fixed = bool((program.u_lo == program.u_hi).any())
        in_rows = fixed or bool(program.cones.count) or any(face.codimension for face in faces)
        rows = [group.rows for group in self.groups]
        self._system = system_for(self._A, rows, program.B, exact, tuning, in_rows, direct)

    @property
    def order(self) -> int:
        """The sum of the orders of all matrices on their faces."""
        return sum(group.cone.order for group in self.groups)

    def in_rows(self) -> PrimalDual | None:
        """Return the method with its system in the rows; None if it has that or it would be too large.

        The system in the entries of ``X`` divides by the slacks of the rows and loses digits as these vanish.
        """
        if isinstance(self._system, RowSystem) or self._A.m > self._tuning.largest_formed_rows:
            return None
        other = copy.copy(self)
        rows = [group.rows for group in self.groups]
        other._system = RowSystem(self._A, rows, self._program.B, self._tuning, direct=True)
        return other

    def gram(self, P: Sequence[Array], rows: IntArray) -> Callable[[Array], Array]:
        """Return the solver of ``<A_k, P A_l P> w = b`` for some rows, in ascending order."""
        own = self._system.gram(P, rows) if isinstance(self._system, RowSystem) else None
        if own is not None:
            return own
        H = sum(group.rows.schur(P_g, P_g, rows) for group, P_g in zip(self.groups, P, strict=True))
        return DefiniteFactor(np.asarray(H), self._tuning).solve

    def matrices(self, at: Iterate) -> tuple[Array, ...]:
        """Return the ``X`` of all blocks."""
        return split(self.groups, [pair.X for pair in at.pairs])

    def begin(
        self,
        X: Sequence[Array],
        u: Array,
        nu: float,
        y: Array | None = None,
        Z: Sequence[Array] | None = None,
    ) -> Iterate | None:
        """Return the iterate at given matrices, with bounds centered at `nu`; None outside the cone.

        Parameters
        ----------
        X : sequence of arrays
            One for each group.
        u : array of shape (k,)
            Inside the box and the second-order cones.
        nu : float
        y : array of shape (m,), optional
            Multipliers that those of the iterate are close to.
        Z : sequence of arrays, optional
            ``C - A*(y)`` by default.
        """
        y_near = np.full(self._A.m + len(u), np.nan)
        if y is not None:
            y_near[: self._A.m] = y
        bounded_values = np.concatenate([self.activity(X, u), u])
        magnitude = np.concatenate([self._sizes(X, u), np.abs(u)])
        bounds = BoundState.at(self._finite, bounded_values, magnitude, nu, y_near, self._tuning)
        cones = self._program.cones
        near = None if y is None else (self._c - self._Bt @ y)[cones.index]
        second_order = SecondOrderState.centered(cones, u[cones.index], nu, near)
        return self._iterate(tuple(X), (None,) * len(X) if Z is None else tuple(Z), u, bounds, second_order)

    def activity(self, X: Sequence[Array], u: Array) -> Array:
        """Return ``A(X) + B u``, with one array for each group."""
        if len(X) == 1 == len(self._A.orders):
            return self._program.activity(X, u)
        activity = u @ self._Bt if len(u) else np.zeros(self._A.m)
        for group, X_g in zip(self.groups, X, strict=True):
            activity = activity + group.rows.apply(X_g)
        return activity

    def magnitudes(self, X: Sequence[Array]) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        largest = [group.rows.magnitudes(X_g) for group, X_g in zip(self.groups, X, strict=True)]
        return np.maximum.reduce(largest)

    def traces(self, X: Sequence[Array]) -> Array:
        """Return the trace of each block."""
        traces = np.zeros(len(self._A.orders))
        for group, X_g in zip(self.groups, X, strict=True):
            traces[list(group.blocks)] = group.cone.traces(X_g)
        return traces

    def _sizes(self, X: Sequence[Array], u: Array) -> Array:
        """Return the largest activity of each row for these diagonals, or its bounds if larger; not zero."""
        size = self._program.absolute_B @ np.abs(u) + self.magnitudes(X) + TINY
        return np.maximum(size, self._program.bounds.sizes)

    def costs(self, X: Sequence[Array]) -> float:
        """Return ``<C, X>``, summed over all blocks."""
        return math.fsum(float(np.vdot(g.C, X_g)) for g, X_g in zip(self.groups, X, strict=True))

    def linearization(self, at: Iterate) -> Linearization | None:
        """Return Newton's system at an iterate.

        None if a multiplier is at an end of its range, or so close that the system overflows.
        """
        complementarity_diagonal, m = at.bounds.complementarity_diagonal(), self._A.m
        if not np.isfinite(complementarity_diagonal).all():
            return None
        D = at.bounds.row_diagonal(complementarity_diagonal)
        X, K, roots = zip(*((p.X, p.K, p.X_root) for p in at.pairs), strict=True)
        D_u = D[m:]
        cones = at.second_order.cones
        D_u[cones.index], p_u = at.second_order.metric()
        try:
            solve = self._system.factor(ScalingPoint(X, K, roots, D[:m], D_u, cones, p_u))
        except np.linalg.LinAlgError:
            return None
        return Linearization(at, solve, complementarity_diagonal, self._c - self._Bt @ at.y - at.z)

    def direction(
        self,
        linearization: Linearization,
        weights: tuple[float, ...],
        nu: float,
        predictor: Direction | None = None,
    ) -> Direction | None:
        """Return the step to the given `weights`, one for each group, and `nu`; None if it is not finite.

        With a `predictor` the step includes its second-order terms (Mehrotra).
        """
        checkpoint()
        at, m = linearization.at, self._A.m
        target = at.bounds.finite.slacks.target(nu, None if predictor is None else predictor.bounds)
        bound_rhs = at.bounds.right_hand_side(at.bounded_values, target)
        r = at.bounds.row_right_hand_side(linearization.D, bound_rhs)
        R = tuple(_matrix_rhs(g, pair, predictor) for g, pair in enumerate(at.pairs))
        r_u, in_cones = r[m:], at.second_order.cones.index
        r_u[in_cones] = at.second_order.right_hand_side(
            nu, None if predictor is None else predictor.second_order
        )
        step = linearization.solve(RightHandSide(weights, R, r[:m], r_u, linearization.q))
        multipliers = np.concatenate([step.y, linearization.q - self._Bt @ step.y])
        if not (np.isfinite(multipliers).all() and np.isfinite(step.u).all()):
            return None
        bounds = at.bounds.step(multipliers, linearization.D, bound_rhs, target)
        dZ = tuple(
            -adjoint_dy if pair.residual is None else pair.residual - adjoint_dy
            for pair, adjoint_dy in zip(at.pairs, step.adjoint, strict=True)
        )
        second_order = SecondOrderStep(step.u[in_cones], multipliers[m:][in_cones])
        return Direction(step.X, dZ, step.u, bounds, second_order)

    def step_lengths(self, at: Iterate, step: Direction, tol: float) -> tuple[float, float]:
        """Return the primal and dual step lengths to the boundary; infinite where nothing limits them."""
        of_bounds = at.bounds.step_lengths(step.bounds)
        of_cones = at.second_order.step_lengths(step.second_order)
        primal, dual = min(of_bounds[0], of_cones[0]), min(of_bounds[1], of_cones[1])
        pairs = zip(at.pairs, step.X, step.Z, strict=True)
        X, Z = zip(*(pair.step_lengths(dX, dZ, tol) for pair, dX, dZ in pairs), strict=True)
        return min(primal, *X), min(dual, *Z)

    def after_step(self, at: Iterate, step: Direction, primal: float, dual: float) -> Iterate | None:
        """Return the iterate after a step, shortened until it is in the cone; None if the step vanishes."""
        decrease = self._tuning.step_decrease
        while max(primal, dual) > self._tuning.least_step:
            new = self._iterate(
                tuple(p.X + primal * dX for p, dX in zip(at.pairs, step.X, strict=True)),
                tuple(
                    None if p.residual is None else p.Z + dual * dense(dZ)
                    for p, dZ in zip(at.pairs, step.Z, strict=True)
                ),
                at.u + primal * step.u,
                at.bounds.after_step(step.bounds, primal, dual),
                at.second_order.after_step(step.second_order, primal, dual),
            )
            if new is not None:
                return new
            primal, dual, decrease = decrease * primal, decrease * dual, decrease**2
        return None

    def advance(self, at: Iterate) -> Iterate | None:
        """Return the iterate after a predictor and a corrector (Mehrotra 1992), None if no step is left.

        Both use the same factorized system. The predictor aims at ``nu = 0``. Its step length determines
        the centering parameter of the corrector. While ``X Z`` of a group is far above ``w I``, its weight
        decreases too.
        """
        # Diverging iterates may overflow; a step that is not finite is rejected.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self._advance(at)

    def _advance(self, at: Iterate) -> Iterate | None:
        tuning, weights = self._tuning, self._weights
        decreasing = [b for b, w in enumerate(weights) if at.pairs[b].weight > tuning.weight_ratio * w]
        linearization = self.linearization(at)
        step = None if linearization is None else self.direction(linearization, weights, 0.0)
        if linearization is None or step is None:
            return None
        lengths = self.step_lengths(at, step, tuning.predictor_length_tol)
        primal, dual = (min(1.0, length) for length in lengths)
        now, order = at.complementarity(decreasing), at.order(decreasing)
        if order and now:
            centering = min(1.0, max(at.complementarity_after(step, primal, dual, decreasing) / now, 0.0))
            total_order = sum(pair.order for pair in at.pairs)
            expensive = total_order >= tuning.centering_exponent_order and not at.dual_residual
            least_exponent = tuning.centering_exponent if expensive else 1.0
            exponent = max(least_exponent, tuning.full_step_exponent * min(primal, dual) ** 2)
            centering = max(centering**exponent, tuning.least_centering)
            nu = centering * now / order
            targets = tuple(max(nu, w) if b in decreasing else w for b, w in enumerate(weights))
            corrected = self._corrected(linearization, targets, nu, step, min(primal, dual))
            if corrected is None:
                return None
            step, lengths = corrected
        least, most = tuning.least_step_fraction, tuning.largest_step_fraction
        fraction = least + (most - least) * min(primal, dual)
        primal, dual = (min(1.0, fraction * length) for length in lengths)
        return self.after_step(at, step, primal, dual) if max(primal, dual) > tuning.least_step else None

    def _corrected(
        self,
        linearization: Linearization,
        weights: tuple[float, ...],
        nu: float,
        predictor: Direction,
        predictor_length: float,
    ) -> tuple[Direction, tuple[float, float]] | None:
        """Return the step to `weights` and `nu` and its step lengths; None if it is not finite.

        The step has the second-order terms of the `predictor`, unless they make it too short: near a singular
        solution they may consist of round-off.
        """
        best = None
        for second_order in (predictor, None):
            step = self.direction(linearization, weights, nu, second_order)
            if step is None:
                continue
            lengths = self.step_lengths(linearization.at, step, self._tuning.step_length_tol)
            if best is None or min(lengths) > min(best[1]):
                best = step, lengths
            if min(lengths) >= self._tuning.corrector_ratio * predictor_length**2:
                break
        return best

    def _iterate(
        self,
        X: tuple[Array, ...],
        Z: tuple[Array | None, ...],
        u: Array,
        bounds: BoundState,
        second_order: SecondOrderState | None,
    ) -> Iterate | None:
        """Return an iterate, None if one of its matrices is not positive definite on its face.

        A ``Z`` of None stands for ``C - A*(y)``, a `second_order` of None for a point outside its cones.
        """
        checkpoint()
        if second_order is None:
            return None
        y, z = bounds.multipliers[: self._A.m], bounds.multipliers[self._A.m :].copy()
        z[second_order.cones.index] = second_order.z
        if not (np.abs(y) < self._tuning.largest_multiplier).all():
            return None
        pairs, largest_residual = [], 0.0
        for group, X_g, Z_given in zip(self.groups, X, Z, strict=True):
            Z_g: Array = group.Z(y)
            Z_root, residual = None, None
            if Z_given is not None:
                error, size = float(np.linalg.norm(Z_g - Z_given)), float(np.linalg.norm(Z_given))
                if error <= self._tuning.dual_round_off * size:
                    Z_root = group.cone.root(Z_g)
                # Without an interior of the dual, C - A*(y) is never definite, and the residual has to stay.
                if Z_root is None:
                    Z_g, residual = Z_given, Z_g - Z_given
                    largest_residual = max(largest_residual, error)
            X_root = group.cone.root(X_g)
            Z_root = group.cone.root(Z_g) if Z_root is None else Z_root
            if X_root is None or Z_root is None:
                return None
            # Round-off would move X off its face, step by step.
            pairs.append(Pair(group.cone.project(X_g), Z_g, X_root, Z_root, residual, group.cone))
        activity = self.activity([pair.X for pair in pairs], u)
        return Iterate(tuple(pairs), u, z, y, activity, bounds, second_order, largest_residual)


def _with_box(program: Program) -> Bounds:
    """Return the bounds of the rows, followed by those of the variables."""
    return program.bounds.followed_by(Bounds.of_hard_rows(program.u_lo, program.u_hi))


def _matrix_rhs(g: int, pair: Pair, predictor: Direction | None) -> Array | None:
    """Return ``R`` of a group: its residual and the second-order terms of a predictor; None for zero."""
    R = None
    if pair.residual is not None:
        R = -(pair.residual @ pair.X)
    if predictor is not None:
        second = predictor.Z[g] @ predictor.X[g]
        R = -second if R is None else R - second
    return R
