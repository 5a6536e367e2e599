"""Newton's method for LogDet nearness where every row is soft with a smooth penalty.

The objective ``<C, X> - mu logdet X + sum penalty(A(X))`` is then a smooth function of ``X`` alone. Yet the
method holds multipliers beside ``X``, and linearizes ``X (C - A*(y)) = mu I`` and, row by row, what joins
activities and multipliers (:meth:`bregopt.program.Bounds.meet`). In ``X`` alone an eigenvalue grows at most
twofold in a step; the two together take it where it belongs. Each goes as far as its own objective improves,
the primal one or the dual one. Where the two hinder one another ``X`` goes alone, which always descends; and
so it does where the system is not factorized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify import Certificate
from bregopt.clock import checkpoint
from bregopt.divergences import PENALTY_DEGREES
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.program import Bounds, Penalty
from bregopt.routes.ipm import RightHandSide, ScalingPoint, Step, system_for
from bregopt.routes.ipm.logdet_problem import Known, LogDetProblem
from bregopt.routes.monitor import Method
from bregopt.routes.working_set import newton_flops

__all__ = ["SoftIterate", "SoftNewton", "smooth"]

_STIFF = 1e6  # price of a bend of a bound by its own size, over the weight of the divergence
_ROUNDS, _MORE_ROUNDS = 4, 10  # of answers to the first points; more where a step costs far more than these
_DEAR = 1e9  # operations in such a step
_CUT, _SHARES = 0.25, 8  # by how much less of an answer is tried, and how often; by a quarter for X alone
_LEFT = 0.7  # of the gap after a step of both, beyond which X goes alone
_SHORTEST = 1e-12  # share of a step
_NONE = np.zeros(0)


def smooth(bounds: Bounds, mu: float) -> bool:
    """Whether all rows are soft with smooth penalties, none so stiff that its multiplier is round-off."""
    power = PENALTY_DEGREES[bounds.kind]
    soft = bounds.kind > int(Penalty.HINGE)
    return bool((soft & (bounds.gamma * bounds.sizes**power <= _STIFF * mu)).all())


class _Point(Protocol):
    @property
    def cost(self) -> float: ...


P = TypeVar("P", bound=_Point)


class _Primal(NamedTuple):
    """A positive definite matrix, its factor, logdet and activities, what rows pay, and the objective."""

    X: Array
    root: Array
    log_det: float
    activity: Array
    paid: float
    cost: float


@dataclass(eq=False)
class _Dual:
    """Multipliers, the positive definite ``Z = C - A*(y)``, its factor and logdet, and minus the objective.

    `rows_term` is what the rows add to the latter.
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
    """A primal and a dual point, and whether they go on together, or ``X`` alone."""

    primal: _Primal
    dual: _Dual
    together: bool

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
        Of a problem that is :func:`smooth`.
    """

    def __init__(self, problem: LogDetProblem) -> None:
        self._problem, self._A, self._bounds = problem, problem.program.A, problem.program.bounds
        self._system = system_for(self._A, problem.program.B, np.zeros(problem.program.m, dtype=bool))
        self._size = float(np.linalg.norm(problem.C))
        self._rounds = _MORE_ROUNDS if newton_flops(problem.program) > _DEAR else _ROUNDS

    def starts(self) -> Iterator[SoftIterate]:
        """Yield the first iterate: a share of the multipliers that answer where no row acts."""
        at = self._answered() if self._system.direct else self._answered_alone
        if at is not None and math.isfinite(at.dual.cost):
            yield at

    @cached_property
    def _X_at_rest(self) -> Array:
        """The point where no row acts, or ``X0`` where there is none."""
        X = self._problem.unconstrained
        return self._problem.X0 if X is None else X

    @cached_property
    def _resting(self) -> SoftIterate | None:
        """Where no row acts; None where a penalty is infinite there."""
        primal = self._primal(self._X_at_rest)
        return None if primal is None else SoftIterate(primal, self._no_multipliers(), self._system.direct)

    def _no_multipliers(self) -> _Dual:
        """Return multipliers of zero, of infinite cost where these are outside the dual function's domain."""
        y, C = np.zeros(self._A.m), self._problem.C
        return self._dual(y, C) or _Dual(y, C, C, 0.0, 0.0, math.inf)

    def certificate(self, at: SoftIterate) -> Certificate:
        """Return what an iterate proves."""
        primal, dual = at.primal, at.dual
        return self._problem.certificate(at, Known(primal.log_det, dual.log_det, primal.paid, dual.rows_term))

    def at(self, y: Array) -> SoftIterate | None:
        """Return the iterate at the point of some multipliers, None where there is none."""
        dual = self._dual(y, self._Z(y))
        return None if dual is None else self._joined(dual)

    def advance(self, at: SoftIterate) -> SoftIterate | None:
        """Return the iterate after a damped Newton step, None where no objective improves any more."""
        new = self._together(at) if at.together else at
        if not new.together:
            new = self._alone(new)
        return None if new.primal is at.primal and new.dual is at.dual else new

    def _together(self, at: SoftIterate) -> SoftIterate:
        """Return the iterate after a step of both."""
        side = self._bounds.side(at.activity, at.y)
        r, D = self._bounds.meet(at.activity, at.y, side)
        step = self._step(at.primal, at.dual.K, D, RightHandSide(self._problem.mu, (None,), r, _NONE, _NONE))
        dy, dZ = step.y, -step.adjoint[0]
        noise = self._noise(at.X)
        primal = self._along(at.primal, step, noise)
        dual, _ = _better(at.dual, lambda share: self._moved(at.dual, share * dy, share * dZ, side), noise)
        new = SoftIterate(primal, dual, True)
        if abs(self._gap(new)) <= _LEFT * abs(self._gap(at)):
            return new
        near = self._answered_alone
        if near is not None and near.primal.cost < primal.cost:
            primal = near.primal
        return SoftIterate(primal, dual, together=False)

    def _alone(self, at: SoftIterate) -> SoftIterate:
        """Return the iterate after a step of ``X`` alone.

        And with the multipliers that answer this, if they are better; then both go on together.
        """
        y = self._bounds.response(at.activity)
        _, D = self._bounds.meet(at.activity, y, self._bounds.side(at.activity, y))
        # The step X - X Z X / mu is that of w = 2 mu, K = X / mu and R = -Z X.
        rhs = RightHandSide(2 * self._problem.mu, (-(self._Z(y) @ at.X),), np.zeros(self._A.m), _NONE, _NONE)
        step = self._step(at.primal, at.X / self._problem.mu, D, rhs)
        primal = self._along(at.primal, step, self._noise(at.X))
        y = self._bounds.response(primal.activity)
        answer = self._dual(y, self._Z(y))
        if answer is None or answer.cost > at.dual.cost:
            return at._replace(primal=primal)
        return SoftIterate(primal, answer, self._system.direct)

    def _gap(self, at: SoftIterate) -> float:
        """Return the difference of the two objectives."""
        mu, n = self._problem.mu, len(at.X)
        return at.primal.cost + at.dual.cost - mu * n * (1 - math.log(mu))

    def _step(self, at: _Primal, K: Array, D: Array, rhs: RightHandSide) -> Step:
        return self._system.factor(ScalingPoint((at.X,), (K,), at.root, D, _NONE))(rhs)

    def _along(self, at: _Primal, step: Step, noise: float) -> _Primal:
        return _better(at, lambda share: self._primal(at.X + share * step.X[0]), noise)[0]

    def _noise(self, X: Array) -> float:
        """Return how much round-off there may be in an objective near `X`."""
        return EPS * self._size * float(np.linalg.norm(X))

    def _moved(self, dual: _Dual, dy: Array, dZ: Array, side: Array) -> _Dual | None:
        """Return multipliers after a step, those that would change sides stopped at zero."""
        whole = dual.y + dy
        y, Z = self._bounds.stop(whole, side), dual.Z + dZ
        stopped = y - whole
        if stopped.any():
            Z -= self._A.adjoint(stopped)
        return self._dual(y, Z)

    def _answered(self) -> SoftIterate | None:
        """Return multipliers that answer where no row acts, as far as that is better, then on from there."""
        X, dual, share = self._X_at_rest, self._no_multipliers(), 1.0
        for _ in range(self._rounds):
            answer, share = self._nearer(dual, self._A.apply((X,)), share)
            if answer is dual:
                break
            dual, X = answer, self._problem.mu * answer.K
        return self._joined(dual) or (self._resting and self._resting._replace(dual=dual))

    def _nearer(self, dual: _Dual, activity: Array, share: float) -> tuple[_Dual, float]:
        """Return better multipliers on the way to those that answer an activity, and the share of the way.

        What a row far outside its bound pays is nearly linear in its activity, and its multiplier nearly
        what it is at the end.
        """
        dy = self._bounds.response(activity) - dual.y
        if not np.isfinite(dy).all():
            return dual, 0.0
        dZ = -self._A.adjoint(dy)
        return _better(dual, lambda s: self._dual(dual.y + s * dy, dual.Z + s * dZ), 0.0, share, _CUT)

    @cached_property
    def _answered_alone(self) -> SoftIterate | None:
        """The best point of a share of the multipliers that answer where no row acts."""
        at = self._resting
        if at is None:
            return None
        best, y = at, self._bounds.response(at.activity)
        adjoint = self._A.adjoint(y)
        for k in range(_SHARES):
            share = 0.25**k
            dual = self._dual(share * y, self._problem.C - share * adjoint)
            new = None if dual is None else self._joined(dual)
            if new is not None and new.primal.cost < best.primal.cost:
                best = new
            elif best is not at:
                break
        return best

    def _joined(self, dual: _Dual) -> SoftIterate | None:
        """Return multipliers and their point."""
        primal = self._primal(self._problem.mu * dual.K)
        return None if primal is None else SoftIterate(primal, dual, self._system.direct)

    def _primal(self, X: Array) -> _Primal | None:
        """Return a point, None where it is not positive definite or a penalty is infinite."""
        checkpoint()
        root = root_of(X)
        if root is None:
            return None
        activity, logarithm = self._A.apply((X,)), log_det(root)
        paid = float(self._bounds.penalty(activity).sum())
        cost = float(np.vdot(self._problem.C, X)) - self._problem.mu * logarithm + paid
        return _Primal(X, root, logarithm, activity, paid, cost) if math.isfinite(paid) else None

    def _dual(self, y: Array, Z: Array) -> _Dual | None:
        """Return multipliers and their ``C - A*(y)``, None outside the domain of the dual function."""
        root = root_of(Z)
        if root is None:
            return None
        rows_term, logarithm = float(self._bounds.conjugate(y).sum()), log_det(root)
        cost = -rows_term - self._problem.mu * logarithm
        return _Dual(y, Z, root, logarithm, rows_term, cost) if math.isfinite(rows_term) else None

    def _Z(self, y: Array) -> Array:
        Z: Array = self._problem.C - self._A.adjoint(y)
        return Z


def _better(
    at: P, along: Callable[[float], P | None], noise: float, share: float = 1.0, cut: float = 0.5
) -> tuple[P, float]:
    """Return the first point that is no worse, on the way back from a share of a step, and its share.

    Where none is, the old point and zero. A cost that differs by no more than noise is the same.
    """
    while share > _SHORTEST:
        new = along(share)
        if new is not None and new.cost <= at.cost + noise:
            return new, share
        share *= cut
    return at, 0.0
