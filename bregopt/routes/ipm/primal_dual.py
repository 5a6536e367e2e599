"""The primal-dual Newton method that the routes share: all rows at once, in the HKM direction.

For ``min sum <C, X> - w logdet X + c'u`` under rows and a box, with the ends of rows and box on their central
path at ``nu`` (see :mod:`bregopt.routes.ipm.bound_state`), the method holds ``X``, ``Z``, ``u`` and the ends'
slacks and multipliers:

    A(X) + B u at the ends' bounds and slacks,   Z = C - A*(y),   z = c - B'y,   X Z = w I.

All are linearized (:mod:`bregopt.routes.ipm.systems`); the second and third hold from the start where
they can, and elsewhere their residuals shrink with every step. A LogDet problem keeps its weight ``w`` while
``nu`` falls; a semidefinite program is what both lead to when they fall together. A block may live on a face
of the cone (:mod:`bregopt.program.face`): ``X`` and ``inv(Z)`` are then held in the coordinates of the
rows, where these are sparse, and only decompositions see the face.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array
from bregopt.clock import checkpoint
from bregopt.linalg import dense, root_of
from bregopt.program import Bounds, Face, Penalty, Program
from bregopt.routes.ipm.bound_state import BoundState, FiniteBounds
from bregopt.routes.ipm.iterate import Direction, Iterate, Pair
from bregopt.routes.ipm.newton_point import RightHandSide, ScalingPoint, Solve
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.ipm.row_system import LARGEST_IN_ROWS, RowSystem
from bregopt.routes.ipm.step_length import TO_BOUNDARY, dual_length, primal_length
from bregopt.routes.ipm.systems import system_for

__all__ = ["PrimalDual", "Slope"]

_FURTHER = 0.99  # how far a step goes to the boundary, after a good predictor
_HEAVY = 20.0  # times the weight asked for, from which it is approached along the central path
_BOLD, _BOLD_FROM = 2.0, 130  # the least power of a predictor's share to leave, and from which order
_NOWHERE = 0.3  # times the square of a predictor's length: where second-order terms do harm
_LEAST_SHARE = 1e-3  # of the complementarity, that a step is to leave
_SHORTEST = 1e-7
_CUT = 0.95  # of a step that leaves the cone, as lengths are estimates; more each time
_NO_PATH = 1e100  # multipliers this large are on no path
_ROUND_OFF = 1e-11  # a dual residual that is taken for none
_TRIAL_TOL, _ROUGH_TOL = 0.04, 0.15  # relative; of a step, and of a predictor


@dataclass(frozen=True, eq=False)
class Slope:
    """Newton's system at an iterate, factorized; `D` of its ends, and `q`, what ``B'dy + dz`` is to be."""

    at: Iterate
    solve: Solve
    D: Array
    q: Array


class PrimalDual:
    """Newton's method for one problem.

    Parameters
    ----------
    program : Program
        Rows, box and ``c``; its blocks' objectives are not looked at.
    C : sequence of arrays of shape (n_b, n_b)
    faces : sequence of Face, optional
        The whole cone where none is given.
    direct : bool
        Whether the system is always factorized, at whatever size.
    """

    def __init__(
        self, program: Program, C: Sequence[Array], faces: Sequence[Face] | None = None, direct: bool = False
    ) -> None:
        self._A, self._c, self._C = program.A, program.c, tuple(C)
        self._program, self._Bt = program, program.Bt
        self._sides = FiniteBounds.of(_with_box(program))
        self._faces = tuple(faces) if faces is not None else tuple(Face.whole(n) for n in self._A.orders)
        exact = program.bounds.equal
        fixed = bool((program.u_lo == program.u_hi).any())
        on_face = any(face.codimension for face in self._faces)
        self._system = system_for(self._A, program.B, exact, fixed or on_face, direct)
        self._actions = [RowAction(self._A, b) for b in range(len(self._C))]

    def in_rows(self) -> PrimalDual | None:
        """Return the method with its system in the rows; None where it is so already or would be too large.

        The system in the entries of ``X`` divides by the slacks of the rows, which loses digits as these
        vanish.
        """
        if isinstance(self._system, RowSystem) or self._A.m > LARGEST_IN_ROWS:
            return None
        other = copy.copy(self)
        other._system = RowSystem(self._A, self._program.B, direct=True)
        return other

    def begin(
        self,
        X: Sequence[Array],
        u: Array,
        nu: float,
        y: Array | None = None,
        Z: Sequence[Array] | None = None,
    ) -> Iterate | None:
        """Return the iterate at some matrices, ends centered at `nu`; None where it is not inside the cone.

        Parameters
        ----------
        X : sequence of arrays
        u : array of shape (k,)
            Inside the box.
        nu : float
        y : array of shape (m,), optional
            Multipliers to be near.
        Z : sequence of arrays, optional
            ``C - A*(y)`` where none is given.
        """
        near = np.full(self._A.m + len(u), np.nan)
        if y is not None:
            near[: self._A.m] = y
        ends = BoundState.at(self._sides, np.concatenate([self._program.activity(X, u), u]), nu, near)
        return self._iterate(tuple(X), (None,) * len(X) if Z is None else tuple(Z), u, ends)

    def slope(self, at: Iterate) -> Slope | None:
        """Return Newton's system at an iterate, None where a multiplier has come to the end of its range.

        Or so near to it that the system leaves the range of doubles.
        """
        complementarity_diagonal, m = at.ends.complementarity_diagonal(), self._A.m
        if not np.isfinite(complementarity_diagonal).all():
            return None
        D = at.ends.stiffness_of_rows(complementarity_diagonal)
        X, K = tuple(p.X for p in at.pairs), tuple(p.K for p in at.pairs)
        try:
            solve = self._system.factor(ScalingPoint(X, K, at.pairs[0].X_root, D[:m], D[m:]))
        except np.linalg.LinAlgError:
            return None
        return Slope(at, solve, complementarity_diagonal, self._c - self._Bt @ at.y - at.z)

    def direction(
        self, slope: Slope, weight: float, nu: float, after: Direction | None = None
    ) -> Direction | None:
        """Return the step to the given `weight` and `nu`, None where it is not finite.

        With `after`, the step that a first one leads to, its second-order terms taken into account
        (Mehrotra).
        """
        checkpoint()
        at, m = slope.at, self._A.m
        target = at.ends.sides.slacks.target(nu, None if after is None else after.ends)
        pull = at.ends.pull(at.levels, target)
        r = at.ends.pull_of_rows(slope.D, pull)
        R = tuple(_rest(b, pair, after) for b, pair in enumerate(at.pairs))
        step = slope.solve(RightHandSide(weight, R, r[:m], r[m:], slope.q))
        multipliers = np.concatenate([step.y, slope.q - self._Bt @ step.y])
        if not (np.isfinite(multipliers).all() and np.isfinite(step.u).all()):
            return None
        ends = at.ends.move(multipliers, slope.D, pull, target)
        dZ = tuple(
            -own if pair.residual is None else pair.residual - own
            for pair, own in zip(at.pairs, step.adjoint, strict=True)
        )
        return Direction(step.X, dZ, step.u, ends)

    def lengths(self, at: Iterate, step: Direction, tol: float = _TRIAL_TOL) -> tuple[float, float]:
        """Return how far `step` can go, primal and dual, to the boundary; infinite where all is safe."""
        primal, dual = at.ends.longest(step.ends)
        X = [primal_length(p, dX, tol) for p, dX in zip(at.pairs, step.X, strict=True)]
        Z = [dual_length(p, dZ, tol) for p, dZ in zip(at.pairs, step.Z, strict=True)]
        return min(primal, *X), min(dual, *Z)

    def moved(self, at: Iterate, step: Direction, primal: float, dual: float) -> Iterate | None:
        """Return the iterate after a step, shortened until it is inside the cone; None where none is left."""
        cut = _CUT
        while max(primal, dual) > _SHORTEST:
            new = self._iterate(
                tuple(p.X + primal * dX for p, dX in zip(at.pairs, step.X, strict=True)),
                tuple(
                    None if p.residual is None else p.Z + dual * dense(dZ)
                    for p, dZ in zip(at.pairs, step.Z, strict=True)
                ),
                at.u + primal * step.u,
                at.ends.moved(step.ends, primal, dual),
            )
            if new is not None:
                return new
            primal, dual, cut = cut * primal, cut * dual, cut**2
        return None

    def advance(self, at: Iterate, weight: float) -> Iterate | None:
        """Return the iterate after a predictor and a corrector (Mehrotra 1992), None where no step is left.

        With the same factorized system the predictor goes for ``nu = 0``; how far it could go says how far
        the corrector is to go. Where ``X Z`` is still far heavier than ``weight I``, its weight falls too.

        Parameters
        ----------
        at : Iterate
        weight : float
            ``w``; zero for a semidefinite program.
        """
        # Iterates that run away may leave the range of doubles; a step that is not finite is none.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self._advance(at, weight)

    def _advance(self, at: Iterate, weight: float) -> Iterate | None:
        falls = at.weight > _HEAVY * weight
        slope = self.slope(at)
        step = None if slope is None else self.direction(slope, weight, 0.0)
        if slope is None or step is None:
            return None
        lengths = self.lengths(at, step, _ROUGH_TOL)
        primal, dual = (min(1.0, length) for length in lengths)
        now, order = at.complementarity(falls), at.order(falls)
        if order and now:
            share = min(1.0, max(at.after(step, primal, dual, falls) / now, 0.0))
            dear = sum(len(pair.X_root) for pair in at.pairs) >= _BOLD_FROM and not at.dual_miss
            share = max(share ** max(_BOLD if dear else 1.0, 3 * min(primal, dual) ** 2), _LEAST_SHARE)
            nu = share * now / order
            target = max(nu, weight) if falls else weight
            corrected = self._corrected(slope, target, nu, step, min(primal, dual))
            if corrected is None:
                return None
            step, lengths = corrected
        reach = TO_BOUNDARY + (_FURTHER - TO_BOUNDARY) * min(primal, dual)
        primal, dual = (min(1.0, reach * length) for length in lengths)
        return self.moved(at, step, primal, dual) if max(primal, dual) > _SHORTEST else None

    def _corrected(
        self, slope: Slope, weight: float, nu: float, predictor: Direction, reached: float
    ) -> tuple[Direction, tuple[float, float]] | None:
        """Return the step to `weight` and `nu` and how far it can go; None where it is not finite.

        With the second-order terms of the `predictor`, unless that leads nowhere: near an answer that is
        singular these may be nothing but round-off.
        """
        best = None
        for after in (predictor, None):
            step = self.direction(slope, weight, nu, after)
            if step is None:
                continue
            lengths = self.lengths(slope.at, step)
            if best is None or min(lengths) > min(best[1]):
                best = step, lengths
            if min(lengths) >= _NOWHERE * reached**2:
                break
        return best

    def _iterate(
        self, X: tuple[Array, ...], Z: tuple[Array | None, ...], u: Array, ends: BoundState
    ) -> Iterate | None:
        """Return an iterate, None where one of its matrices is not positive definite on its face.

        A ``Z`` of None is ``C - A*(y)``.
        """
        checkpoint()
        y, z = ends.multipliers[: self._A.m], ends.multipliers[self._A.m :]
        if not (np.abs(y) < _NO_PATH).all():
            return None
        pairs, worst = [], 0.0
        for b, (X_b, given, C, face) in enumerate(zip(X, Z, self._C, self._faces, strict=True)):
            Z_b, residual = C - self._actions[b].adjoint(y), None
            if given is not None:
                miss, size = float(np.linalg.norm(Z_b - given)), float(np.linalg.norm(given))
                if miss > _ROUND_OFF * size:
                    Z_b, residual = given, Z_b - given
                    worst = max(worst, miss)
            M = face.compress(X_b)
            X_root, Z_root = root_of(M), root_of(face.compress(Z_b))
            if X_root is None or Z_root is None:
                return None
            # Round-off would lead X off its face, step by step.
            pairs.append(Pair(face.lift(M), Z_b, X_root, Z_root, residual, face))
        activity = self._program.activity(tuple(pair.X for pair in pairs), u)
        return Iterate(tuple(pairs), u, z, y, activity, ends, worst)


def _with_box(program: Program) -> Bounds:
    """Return the bounds of the rows and, as if variables were rows after them, those of the variables."""
    bounds, k = program.bounds, program.k
    return Bounds(
        np.concatenate([bounds.lo, program.u_lo]),
        np.concatenate([bounds.hi, program.u_hi]),
        np.concatenate([bounds.kind, np.full(k, Penalty.HARD)]),
        np.concatenate([bounds.gamma, np.full(k, np.inf)]),
    )


def _rest(b: int, pair: Pair, after: Direction | None) -> Array | None:
    """Return ``R`` of :class:`RightHandSide`: the residual and the second-order terms of a first step."""
    R = None
    if pair.residual is not None:
        R = -(pair.residual @ pair.X)
    if after is not None:
        second = after.Z[b] @ after.X[b]
        R = -second if R is None else R - second
    return R
