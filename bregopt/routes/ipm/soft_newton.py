"""Newton's method for LogDet nearness where every row is soft with a smooth penalty.

The objective ``<C, X> - mu logdet X + sum penalty(A(X))`` is then a smooth function of ``X`` alone. The
method keeps multipliers as well. It linearizes ``X (C - A*(y)) = mu I`` and, row by row, the relation of
activity and multiplier (:meth:`bregopt.program.Bounds.meet`). In ``X`` alone an eigenvalue grows at most
twofold in a step; with multipliers it can grow faster. Each of the two moves as far as its own objective
improves, the primal or the dual one. If the joint step makes little progress, ``X`` moves alone, which always
descends. It also moves alone if the system is not factorized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify import Certificate, Known
from bregopt.clock import checkpoint
from bregopt.divergences import PENALTY_DEGREES
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.program import Bounds, Penalty
from bregopt.routes.ipm import RightHandSide, ScalingPoint, Step, system_for
from bregopt.routes.ipm.logdet_problem import LogDeterminants, LogDetProblem
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.monitor import Method
from bregopt.routes.working_set import newton_flops

__all__ = ["SoftIterate", "SoftNewton", "smooth"]

_NONE = np.zeros(0)


def smooth(bounds: Bounds, mu: float, tuning: InteriorPointTuning) -> bool:
    """Whether all rows are soft with smooth penalties, none so stiff that its multiplier is round-off."""
    power = PENALTY_DEGREES[bounds.kind]
    soft = bounds.kind > int(Penalty.HINGE)
    largest = tuning.soft_largest_price * mu
    return bool((soft & (bounds.gamma * bounds.sizes**power <= largest)).all())


class _Point(Protocol):
    @property
    def cost(self) -> float: ...


P = TypeVar("P", bound=_Point)


class _Primal(NamedTuple):
    """A positive definite matrix, its factor, logdet, activities, sum of penalties and objective."""

    X: Array
    root: Array
    log_det: float
    activity: Array
    penalty: float
    cost: float


@dataclass(eq=False)
class _Dual:
    """Multipliers, the positive definite ``Z = C - A*(y)``, its factor and logdet, and minus the objective.

    `rows_term` is the sum of the rows' terms in the latter.
    """

    y: Array
    Z: Array
    root: Array
    log_det: float
    rows_term: float
    cost: float

    @cached_property
    def K(self) -> Array:
        """The inverse of ``Z``."""
        return inverse_of(self.root)


class SoftIterate(NamedTuple):
    """A primal and a dual point, and whether they move together or ``X`` alone."""

    primal: _Primal
    dual: _Dual
    joint: bool

    @property
    def X(self) -> Array:
        return self.primal.X

    @property
    def X_root(self) -> Array:
        return self.primal.root

    @property
    def activity(self) -> Array:
        return self.primal.activity

    @property
    def y(self) -> Array:
        return self.dual.y

    @property
    def Z_root(self) -> Array:
        """The lower Cholesky factor of ``C - A*(y)``."""
        return self.dual.root


class SoftNewton(Method):
    """Newton's method in ``X`` and the multipliers.

    Parameters
    ----------
    problem : LogDetProblem
        It is :func:`smooth`.
    tuning : InteriorPointTuning
    """

    def __init__(self, problem: LogDetProblem, tuning: InteriorPointTuning) -> None:
        self._tuning = tuning
        self._problem, self._A, self._bounds = problem, problem.program.A, problem.program.bounds
        exact = np.zeros(problem.program.m, dtype=bool)
        self._system = system_for(self._A, problem.program.B, exact, tuning)
        self._size = float(np.linalg.norm(problem.C))
        expensive = newton_flops(problem.program) > tuning.response_flops
        self._rounds = tuning.more_response_rounds if expensive else tuning.response_rounds

    def starts(self) -> Iterator[SoftIterate]:
        """Yield the first iterate, with a fraction of the response to the unconstrained minimizer."""
        at = self._first_by_responses() if self._system.direct else self._first_by_fractions
        if at is not None and math.isfinite(at.dual.cost):
            yield at

    @cached_property
    def _unconstrained(self) -> Array:
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
        return self._dual(y, C) or _Dual(y, C, C, 0.0, 0.0, math.inf)

    def certificate(self, at: SoftIterate) -> Certificate:
        """Return the certificate of an iterate."""
        primal, dual = at.primal, at.dual
        log_det_of = LogDeterminants(primal.log_det, dual.log_det)
        sums = Known(penalties=primal.penalty, row_terms=dual.rows_term)
        return self._problem.certificate(at, log_det_of, **sums)

    def at(self, y: Array) -> SoftIterate | None:
        """Return the iterate at the primal point of given multipliers, None if there is none."""
        dual = self._dual(y, self._Z(y))
        return None if dual is None else self._at_dual(dual)

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
        step = self._step(at.primal, at.dual.K, D, RightHandSide(self._problem.mu, (None,), r, _NONE, _NONE))
        (adjoint,) = step.adjoint
        dy, dZ = step.y, -adjoint
        round_off = self._round_off(at.X)
        primal = self._primal_search(at.primal, step, round_off)
        dual, _ = self._line_search(
            at.dual, lambda alpha: self._dual_step(at.dual, alpha * dy, alpha * dZ, side), round_off
        )
        new = SoftIterate(primal, dual, True)
        if abs(self._gap(new)) <= self._tuning.joint_gap_ratio * abs(self._gap(at)):
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
        rhs = RightHandSide(2 * self._problem.mu, (-(self._Z(y) @ at.X),), np.zeros(self._A.m), _NONE, _NONE)
        step = self._step(at.primal, at.X / self._problem.mu, D, rhs)
        primal = self._primal_search(at.primal, step, self._round_off(at.X))
        y = self._bounds.response(primal.activity)
        dual = self._dual(y, self._Z(y))
        if dual is None or dual.cost > at.dual.cost:
            return at._replace(primal=primal)
        return SoftIterate(primal, dual, self._system.direct)

    def _gap(self, at: SoftIterate) -> float:
        """Return the difference of the two objectives."""
        mu, n = self._problem.mu, len(at.X)
        return at.primal.cost + at.dual.cost - mu * n * (1 - math.log(mu))

    def _step(self, at: _Primal, K: Array, D: Array, rhs: RightHandSide) -> Step:
        return self._system.factor(ScalingPoint((at.X,), (K,), (at.root,), D, _NONE))(rhs)

    def _primal_search(self, at: _Primal, step: Step, round_off: float) -> _Primal:
        (dX,) = step.X
        return self._line_search(at, lambda alpha: self._primal(at.X + alpha * dX), round_off)[0]

    def _round_off(self, X: Array) -> float:
        """Return an estimate of the round-off in an objective near `X`."""
        return EPS * self._size * float(np.linalg.norm(X))

    def _dual_step(self, dual: _Dual, dy: Array, dZ: Array, side: Array) -> _Dual | None:
        """Return the multipliers after a step; those that would change sides stop at zero."""
        full = dual.y + dy
        y, Z = self._bounds.stop(full, side), dual.Z + dZ
        change = y - full
        if change.any():
            Z -= self._A.adjoint(change)
        return self._dual(y, Z)

    def _first_by_responses(self) -> SoftIterate | None:
        """Return the iterate after some rounds of moves towards the response to the last point."""
        X, dual, alpha = self._unconstrained, self._no_multipliers(), 1.0
        for _ in range(self._rounds):
            better, alpha = self._towards_response(dual, self._A.apply((X,)), alpha)
            if better is dual:
                break
            dual, X = better, self._problem.mu * better.K
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
        dZ = -self._A.adjoint(dy)
        decrease = self._tuning.response_decrease
        return self._line_search(
            dual, lambda s: self._dual(dual.y + s * dy, dual.Z + s * dZ), 0.0, alpha, decrease
        )

    @cached_property
    def _first_by_fractions(self) -> SoftIterate | None:
        """The best point at a fraction of the response to the unconstrained minimizer."""
        at = self._without_multipliers
        if at is None:
            return None
        best, y = at, self._bounds.response(at.activity)
        adjoint = self._A.adjoint(y)
        for k in range(self._tuning.response_trials):
            alpha = self._tuning.response_decrease**k
            dual = self._dual(alpha * y, self._problem.C - alpha * adjoint)
            new = None if dual is None else self._at_dual(dual)
            if new is not None and new.primal.cost < best.primal.cost:
                best = new
            elif best is not at:
                break
        return best

    def _at_dual(self, dual: _Dual) -> SoftIterate | None:
        """Return the iterate at given multipliers and their primal point."""
        primal = self._primal(self._problem.mu * dual.K)
        return None if primal is None else SoftIterate(primal, dual, self._system.direct)

    def _primal(self, X: Array) -> _Primal | None:
        """Return a primal point, None if it is not positive definite or a penalty is infinite."""
        checkpoint()
        root = root_of(X)
        if root is None:
            return None
        activity, logarithm = self._A.apply((X,)), log_det(root)
        penalty = float(self._bounds.penalty(activity).sum())
        cost = float(np.vdot(self._problem.C, X)) - self._problem.mu * logarithm + penalty
        return _Primal(X, root, logarithm, activity, penalty, cost) if math.isfinite(penalty) else None

    def _dual(self, y: Array, Z: Array) -> _Dual | None:
        """Return a dual point, None outside the domain of the dual function."""
        root = root_of(Z)
        if root is None:
            return None
        rows_term, logarithm = float(self._bounds.conjugate(y).sum()), log_det(root)
        cost = -rows_term - self._problem.mu * logarithm
        return _Dual(y, Z, root, logarithm, rows_term, cost) if math.isfinite(rows_term) else None

    def _Z(self, y: Array) -> Array:
        Z: Array = self._problem.C - self._A.adjoint(y)
        return Z

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
        while alpha > self._tuning.least_search_step:
            new = along(alpha)
            if new is not None and new.cost <= at.cost + round_off:
                return new, alpha
            alpha *= decrease
        return at, 0.0
