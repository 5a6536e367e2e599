"""Newton's method for LogDet nearness where every row is soft with a smooth penalty.

The objective ``sum <C, X> - mu logdet X + penalties of A(X)``, the sum over all blocks, is then a smooth
function of the matrices alone. The method keeps multipliers as well. It linearizes ``X (C - A*(y)) = mu I``
in each block and, row by row, the relation of activity and multiplier (:meth:`bregopt.program.Bounds.meet`).
In ``X`` alone an eigenvalue grows at most twofold in a step; with multipliers it can grow faster. Each of the
two moves as far as its own objective improves, the primal or the dual one. If the joint step makes little
progress, ``X`` moves alone, which always descends. It also moves alone if the system is not factorized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify import Certificate, Known
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.program.scale import newton_flops
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.logdet_newton import LogDeterminants, LogDetProblem, Matrices
from bregopt.routes.ipm.plan import Plan, RightHandSide, ScalingPoint
from bregopt.routes.ipm.row_system import system_for
from bregopt.routes.progress import Method

# Rounds of multipliers for its first iterate. A round costs a factorization.
_RESPONSE_ROUNDS = 4
# The same if a Newton step costs far more than a round. So 3,000 distances at order 300 take two steps.
_MORE_RESPONSE_ROUNDS = 10
# Operations of such a step.
_RESPONSE_FLOPS = 1e9
# Factor between trial fractions of a response.
_RESPONSE_DECREASE = 0.25
# Number of fractions of the response tried for the iterate from which ``X`` moves alone.
_RESPONSE_TRIALS = 8
# Ratio of the gaps after and before a joint step above which ``X`` moves alone. With far more rows than
# entries, or at high prices, joint steps make little progress (found on 100,000 pairs of MNIST).
_JOINT_GAP_RATIO = 0.7
# Step length at which a line search keeps the old point.
_LEAST_SEARCH_STEP = 1e-12

_NONE = np.zeros(0)


class _Point(Protocol):
    @property
    def cost(self) -> float: ...


P = TypeVar("P", bound=_Point)


class _Primal(NamedTuple):
    """Positive definite matrices, their factors and logdets, activities, sum of penalties and objective."""

    X: Matrices
    roots: Matrices
    log_dets: tuple[float, ...]
    activity: Array
    penalty: float
    cost: float


@dataclass(eq=False)
class _Dual:
    """Multipliers, the positive definite ``Z = C - A*(y)``, factors and logdets, and minus the objective.

    `rows_term` is the sum of the rows' terms in the latter.
    """

    y: Array
    Z: Matrices
    roots: Matrices
    log_dets: tuple[float, ...]
    rows_term: float
    cost: float

    @cached_property
    def K(self) -> Matrices:
        """The inverse of ``Z``."""
        return tuple(map(inverse_of, self.roots))


class SoftIterate(NamedTuple):
    """A primal and a dual point, and whether they move together or the matrices alone."""

    primal: _Primal
    dual: _Dual
    joint: bool

    @property
    def X(self) -> Matrices:
        return self.primal.X

    @property
    def X_root(self) -> Matrices:
        return self.primal.roots

    @property
    def activity(self) -> Array:
        return self.primal.activity

    @property
    def y(self) -> Array:
        return self.dual.y

    @property
    def Z_root(self) -> Matrices:
        """The lower Cholesky factors of ``C - A*(y)``."""
        return self.dual.roots


class SoftNewton(Method):
    """Newton's method in ``X`` and the multipliers.

    Parameters
    ----------
    problem : LogDetProblem
        It is :func:`smooth`.
    """

    def __init__(self, problem: LogDetProblem) -> None:
        self._problem, self._A, self._bounds = problem, problem.program.A, problem.program.bounds
        exact = np.zeros(problem.program.m, dtype=bool)
        self._plan = Plan.of(self._A, stacked=False)
        self._system = system_for(self._plan, problem.program, exact)
        self._sizes = [float(np.linalg.norm(C)) for C in problem.C]
        expensive = newton_flops(problem.program) > _RESPONSE_FLOPS
        self._rounds = _MORE_RESPONSE_ROUNDS if expensive else _RESPONSE_ROUNDS

    def starts(self) -> Iterator[SoftIterate]:
        """Yield the first iterate, with a fraction of the response to the unconstrained minimizer."""
        at = self._first_by_responses() if self._system.direct else self._first_by_fractions
        if at is not None and math.isfinite(at.dual.cost):
            yield at

    @cached_property
    def _unconstrained(self) -> Matrices:
        """The unconstrained minimizer, or ``X0`` if there is none."""
        X = self._problem.unconstrained
        return self._problem.X0 if X is None else X

    @cached_property
    def _without_multipliers(self) -> SoftIterate | None:
        """The iterate with zero multipliers; None if a penalty is infinite there."""
        primal = self._primal(self._unconstrained)
        return None if primal is None else SoftIterate(primal, self._no_multipliers(), self._system.direct)

    def _no_multipliers(self) -> _Dual:
        """Return zero multipliers, of infinite cost outside the domain of the dual function."""
        y, C = np.zeros(self._A.m), self._problem.C
        return self._dual(y, C) or _Dual(y, C, C, (0.0,) * len(C), 0.0, math.inf)

    def certificate(self, at: SoftIterate) -> Certificate:
        """Return the certificate of an iterate."""
        primal, dual = at.primal, at.dual
        log_det_of = LogDeterminants(primal.log_dets, dual.log_dets)
        sums = Known(penalties=primal.penalty, row_terms=dual.rows_term)
        return self._problem.certificate(at, log_det_of, **sums)

    def at(self, y: Array, X: Matrices = ()) -> SoftIterate | None:
        """Return the iterate at given multipliers and their primal point, or at `X` where that is better.

        It is None if there is none.
        """
        dual = self._dual(y, self._Z(y))
        at = None if dual is None else self._at_dual(dual)
        primal = self._primal(X) if X else None
        if primal is None or (at is not None and at.primal.cost <= primal.cost):
            return at
        return SoftIterate(
            primal, dual or self._no_multipliers(), joint=dual is not None and self._system.direct
        )

    def advance(self, at: SoftIterate) -> SoftIterate | None:
        """Return the iterate after a damped Newton step, None if neither objective improves."""
        new = self._joint_step(at) if at.joint else at
        if not new.joint:
            new = self._primal_step(new)
        return None if new.primal is at.primal and new.dual is at.dual else new

    def _joint_step(self, at: SoftIterate) -> SoftIterate:
        """Return the iterate after a joint step."""
        side = self._bounds.side(at.activity, at.y)
        r, D = self._bounds.meet(at.activity, at.y, side)
        rhs = RightHandSide(self._plan.spread(self._problem.mu), None, r, _NONE, _NONE)
        dX, dy, adjoint = self._step(at.primal, at.dual.K, D, rhs)
        dZ = tuple(-own for own in adjoint)
        round_off = self._round_off(at.X)
        primal = self._primal_search(at.primal, dX, round_off)
        dual, _ = self._line_search(
            at.dual, lambda alpha: self._dual_step(at.dual, alpha, dy, dZ, side), round_off
        )
        new = SoftIterate(primal, dual, True)
        if abs(self._gap(new)) <= _JOINT_GAP_RATIO * abs(self._gap(at)):
            return new
        start = self._first_by_fractions
        if start is not None and start.primal.cost < primal.cost:
            primal = start.primal
        return SoftIterate(primal, dual, joint=False)

    def _primal_step(self, at: SoftIterate) -> SoftIterate:
        """Return the iterate after a step of ``X`` alone.

        Its multipliers are the response to the new ``X`` if they are better; both then move together again.
        """
        y = self._bounds.response(at.activity)
        _, D = self._bounds.meet(at.activity, y, self._bounds.side(at.activity, y))
        # The step X - X Z X / mu is that of w = 2 mu, K = X / mu and R = -Z X.
        mus = self._problem.mu
        R = tuple(-(Z @ X) for Z, X in zip(self._Z(y), at.X, strict=True))
        rhs = RightHandSide(2 * self._plan.spread(mus), R, np.zeros(self._A.m), _NONE, _NONE)
        K = tuple(X / mu for X, mu in zip(at.X, mus, strict=True))
        dX, _, _ = self._step(at.primal, K, D, rhs)
        primal = self._primal_search(at.primal, dX, self._round_off(at.X))
        y = self._bounds.response(primal.activity)
        dual = self._dual(y, self._Z(y))
        if dual is None or dual.cost > at.dual.cost:
            return at._replace(primal=primal)
        return SoftIterate(primal, dual, self._system.direct)

    def _gap(self, at: SoftIterate) -> float:
        """Return the difference of the two objectives."""
        blocks = zip(at.X, self._problem.mu, strict=True)
        constant = sum(mu * len(X) * (1 - math.log(mu)) for X, mu in blocks)
        return at.primal.cost + at.dual.cost - constant

    def _step(
        self, at: _Primal, K: Matrices, D: Array, rhs: RightHandSide
    ) -> tuple[Matrices, Array, Matrices]:
        """Return ``dX``, ``dy`` and ``A*(dy)``."""
        plan = self._plan
        point = ScalingPoint(plan, plan.joined(at.X), at.roots, (), D, _NONE, K=plan.joined(K))
        step = self._system.factor(point)(rhs)
        return plan.matrices(step.X), step.y, plan.matrices(step.adjoint)

    def _primal_search(self, at: _Primal, dX: Matrices, round_off: float) -> _Primal:
        return self._line_search(at, lambda alpha: self._primal(_moved(at.X, alpha, dX)), round_off)[0]

    def _round_off(self, matrices: Matrices) -> float:
        """Return an estimate of the round-off in an objective near the given matrices."""
        blocks = zip(self._sizes, matrices, strict=True)
        return EPS * sum(size * float(np.linalg.norm(X)) for size, X in blocks)

    def _dual_step(self, dual: _Dual, alpha: float, dy: Array, dZ: Matrices, side: Array) -> _Dual | None:
        """Return the multipliers after a step; those that would change sides stop at zero."""
        full = dual.y + alpha * dy
        y, Z = self._bounds.stop(full, side), _moved(dual.Z, alpha, dZ)
        change = y - full
        if change.any():
            for b, Z_b in enumerate(Z):
                Z_b -= self._A.adjoint(change, b)
        return self._dual(y, Z)

    def _first_by_responses(self) -> SoftIterate | None:
        """Return the iterate after some rounds of moves towards the response to the last point."""
        X, dual, alpha = self._unconstrained, self._no_multipliers(), 1.0
        for _ in range(self._rounds):
            better, alpha = self._towards_response(dual, self._A.apply(X), alpha)
            if better is dual:
                break
            dual, X = better, self._response(better)
        return self._at_dual(dual) or (
            self._without_multipliers and self._without_multipliers._replace(dual=dual)
        )

    def _towards_response(self, dual: _Dual, activity: Array, alpha: float) -> tuple[_Dual, float]:
        """Return better multipliers on the segment to the response to an activity, and the step length.

        The penalty of a row far outside its bound is nearly linear in its activity, so its multiplier is
        nearly that of the solution.
        """
        dy = self._bounds.response(activity) - dual.y
        if not np.isfinite(dy).all():
            return dual, 0.0
        dZ = tuple(-adjoint for adjoint in self._adjoints(dy))
        decrease = _RESPONSE_DECREASE
        return self._line_search(
            dual, lambda s: self._dual(dual.y + s * dy, _moved(dual.Z, s, dZ)), 0.0, alpha, decrease
        )

    @cached_property
    def _first_by_fractions(self) -> SoftIterate | None:
        """The best point at a fraction of the response to the unconstrained minimizer."""
        at = self._without_multipliers
        if at is None:
            return None
        best, y = at, self._bounds.response(at.activity)
        adjoint = self._adjoints(y)
        for k in range(_RESPONSE_TRIALS):
            alpha = _RESPONSE_DECREASE**k
            dual = self._dual(alpha * y, _moved(self._problem.C, -alpha, adjoint))
            new = None if dual is None else self._at_dual(dual)
            if new is not None and new.primal.cost < best.primal.cost:
                best = new
            elif best is not at:
                break
        return best

    def _at_dual(self, dual: _Dual) -> SoftIterate | None:
        """Return the iterate at given multipliers and their primal point."""
        primal = self._primal(self._response(dual))
        return None if primal is None else SoftIterate(primal, dual, self._system.direct)

    def _response(self, dual: _Dual) -> Matrices:
        """Return the primal matrices of multipliers, ``mu inv(Z)``."""
        return tuple(mu * K for mu, K in zip(self._problem.mu, dual.K, strict=True))

    def _primal(self, X: Matrices) -> _Primal | None:
        """Return a primal point, None if it is not positive definite or a penalty is infinite."""
        checkpoint()
        roots = _roots(X)
        if roots is None:
            return None
        activity, log_dets = self._A.apply(X), tuple(map(log_det, roots))
        penalty = float(self._bounds.penalty(activity).sum())
        blocks = zip(self._problem.C, X, self._problem.mu, log_dets, strict=True)
        cost = sum(float(np.vdot(C, X_b)) - mu * logarithm for C, X_b, mu, logarithm in blocks) + penalty
        return _Primal(X, roots, log_dets, activity, penalty, cost) if math.isfinite(penalty) else None

    def _dual(self, y: Array, Z: Matrices) -> _Dual | None:
        """Return a dual point, None outside the domain of the dual function."""
        roots = _roots(Z)
        if roots is None:
            return None
        rows_term, log_dets = float(self._bounds.conjugate(y).sum()), tuple(map(log_det, roots))
        blocks = zip(self._problem.mu, log_dets, strict=True)
        cost = -rows_term - sum(mu * logarithm for mu, logarithm in blocks)
        return _Dual(y, Z, roots, log_dets, rows_term, cost) if math.isfinite(rows_term) else None

    def _adjoints(self, y: Array) -> Matrices:
        """Return ``A*(y)`` of each block."""
        return tuple(self._A.adjoint(y, b) for b in range(len(self._problem.C)))

    def _Z(self, y: Array) -> Matrices:
        return tuple(C - adjoint for C, adjoint in zip(self._problem.C, self._adjoints(y), strict=True))

    def _line_search(
        self,
        at: P,
        along: Callable[[float], P | None],
        round_off: float,
        alpha: float = 1.0,
        decrease: float = 0.5,
    ) -> tuple[P, float]:
        """Return the first point of a backtracking line search that is no worse, and its step length.

        If there is none, return the old point and zero. Costs that differ by at most `round_off` are equal.
        """
        while alpha > _LEAST_SEARCH_STEP:
            new = along(alpha)
            if new is not None and new.cost <= at.cost + round_off:
                return new, alpha
            alpha *= decrease
        return at, 0.0


def _moved(matrices: Matrices, alpha: float, step: Matrices) -> Matrices:
    """Return the matrices after a step, each a new array."""
    return tuple(S + alpha * dS for S, dS in zip(matrices, step, strict=True))


def _roots(matrices: Matrices) -> Matrices | None:
    """Return the lower Cholesky factors, None if a matrix is not positive definite."""
    roots = []
    for S in matrices:
        root = root_of(S)
        if root is None:
            return None
        roots.append(root)
    return tuple(roots)
