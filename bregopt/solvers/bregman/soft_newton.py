"""Newton's method for LogDet nearness where every row is soft with a smooth penalty.

The objective ``<C, X> - mu logdet X + sum penalty(A(X))`` is then a smooth function of ``X`` alone. Yet the
method holds multipliers beside ``X``, and linearises ``X (C - A*(y)) = mu I`` and, row by row, what joins
activities and multipliers (:meth:`bregopt.program.Bounds.meet`). In ``X`` alone an eigenvalue grows at most
twofold in a step; the two together take it where it belongs. Each goes as far as its own objective improves,
the primal one or the dual one. Where the two are far apart they may hinder one another, and then ``X`` goes
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.linalg import inverse_of, log_det, root_of
from bregopt.program import Bounds, Certificate, Penalty
from bregopt.solvers.bregman.frame import Frame
from bregopt.solvers.engine import Pull, Scene, Step, system_for

__all__ = ["SoftIterate", "SoftNewton", "smooth"]

_STIFF = 1e6  # price of a bend of a bound by its own size, over the weight of the divergence
_ROUNDS, _CUT = 5, 0.4  # of answers to the first points, and by how much less of an answer is tried
_SHORT, _SHORTEST = 0.2, 1e-12  # shares of a step: below the first X is moved alone
_NONE = np.zeros(0)


def smooth(bounds: Bounds, mu: float) -> bool:
    """Whether all rows are soft with smooth penalties, none so stiff that its multiplier is round-off."""
    power = np.array([0, 0, 0, 1, 2])[bounds.kind]
    soft = bounds.kind > int(Penalty.HINGE)
    return bool((soft & (bounds.gamma * bounds.sizes**power <= _STIFF * mu)).all())


class _Point(Protocol):
    @property
    def cost(self) -> float: ...


P = TypeVar("P", bound=_Point)


@dataclass(frozen=True, eq=False)
class _Primal:
    """A positive definite matrix, its factor and activities, the sum of the penalties and the objective."""

    X: Array
    root: Array
    activity: Array
    paid: float
    cost: float


@dataclass(frozen=True, eq=False)
class _Dual:
    """Multipliers, the positive definite ``Z = C - A*(y)``, its factor, and minus the dual objective.

    `rows_term` is what the rows add to the latter.
    """

    y: Array
    Z: Array
    root: Array
    rows_term: float
    cost: float

    @cached_property
    def K(self) -> Array:
        """The inverse of ``Z``."""
        return inverse_of(self.root)


@dataclass(frozen=True, eq=False)
class SoftIterate:
    """A primal and a dual point."""

    primal: _Primal
    dual: _Dual

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


class SoftNewton:
    """Newton's method in ``X`` and the multipliers.

    Parameters
    ----------
    frame : Frame
        Of a problem that is :func:`smooth`.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame, self._A, self._bounds = frame, frame.program.A, frame.program.bounds
        self._system = system_for(self._A, frame.program.B, np.zeros(frame.program.m, dtype=bool))

    def starts(self) -> Iterator[SoftIterate]:
        """Yield the first iterate: multipliers answer where no row acts, then where these lead, and so on."""
        C, X, y = self._frame.C, self._frame.resting, np.zeros(self._A.m)
        X = first = self._frame.X0 if X is None else X
        dual, share = self._dual(y, C) or _Dual(y, C, C, 0.0, math.inf), 1.0
        for _ in range(_ROUNDS):
            answer, share = self._answered(self._A.apply((X,)), dual, share)
            if answer is dual:
                break
            X, dual = self._frame.mu * answer.K, answer
        primal = self._primal(X) or self._primal(first)
        if primal is not None and math.isfinite(dual.cost):
            yield SoftIterate(primal, dual)

    def certificate(self, at: SoftIterate) -> Certificate:
        """Return what an iterate proves."""
        return self._frame.certificate(at, at.primal.paid, at.dual.rows_term)

    def at(self, y: Array) -> SoftIterate | None:
        """Return the iterate at the point of some multipliers, None where there is none."""
        dual = self._dual(y, self._Z(y))
        primal = None if dual is None else self._primal(self._frame.mu * dual.K)
        return None if dual is None or primal is None else SoftIterate(primal, dual)

    def next(self, at: SoftIterate) -> SoftIterate | None:
        """Return the iterate after a damped Newton step, None where no objective improves any more."""
        side = self._bounds.side(at.activity, at.y)
        r, D = self._bounds.meet(at.activity, at.y, side)
        step = self._step(at.primal, at.dual.K, D, Pull(self._frame.mu, (None,), r, _NONE, _NONE))
        dy, dZ = step.y, -step.adjoint[0]
        primal, share = self._along(at.primal, step)
        dual, _ = _better(at.dual, lambda share: self._moved(at.dual, share * dy, share * dZ, side))
        if share < _SHORT:
            primal, dual = self._alone(at.primal, primal, dual)
        return None if primal is at.primal and dual is at.dual else SoftIterate(primal, dual)

    def _alone(self, at: _Primal, primal: _Primal, dual: _Dual) -> tuple[_Primal, _Dual]:
        """Return the better of a primal point and that of a Newton step in ``X`` alone, with multipliers.

        The latter's are those that answer it, where they are better than the ones given.
        """
        y = self._bounds.response(at.activity)
        _, D = self._bounds.meet(at.activity, y, self._bounds.side(at.activity, y))
        # The step X - X Z X / mu is that of w = 2 mu, K = X / mu and R = -Z X.
        pull = Pull(2 * self._frame.mu, (-(self._Z(y) @ at.X),), np.zeros(self._A.m), _NONE, _NONE)
        new, _ = self._along(at, self._step(at, at.X / self._frame.mu, D, pull))
        if new.cost >= primal.cost:
            return primal, dual
        y = self._bounds.response(new.activity)
        answer = self._dual(y, self._Z(y))
        return new, dual if answer is None or answer.cost > dual.cost else answer

    def _step(self, at: _Primal, K: Array, D: Array, pull: Pull) -> Step:
        return self._system.factor(Scene((at.X,), (K,), at.root, D, _NONE))(pull)

    def _along(self, at: _Primal, step: Step) -> tuple[_Primal, float]:
        return _better(at, lambda share: self._primal(at.X + share * step.X[0]))

    def _moved(self, dual: _Dual, dy: Array, dZ: Array, side: Array) -> _Dual | None:
        """Return multipliers after a step, those that would change sides stopped at zero."""
        whole = dual.y + dy
        y, Z = self._bounds.stop(whole, side), dual.Z + dZ
        stopped = y - whole
        if stopped.any():
            Z -= self._A.adjoint(stopped)
        return self._dual(y, Z)

    def _answered(self, activity: Array, dual: _Dual, share: float) -> tuple[_Dual, float]:
        """Return better multipliers on the way to those that answer a point, and the share of the way.

        What a row far outside its bound pays is nearly linear in its activity, and its multiplier nearly
        what it is at the end. The share is about that of the answer before, `share`.
        """
        with np.errstate(divide="ignore", invalid="ignore"):  # no multiplier answers an infinite penalty
            dy = self._bounds.response(activity) - dual.y
        if not np.isfinite(dy).all():
            return dual, share
        dZ = -self._A.adjoint(dy)
        first = min(1.0, share / _CUT)
        return _better(dual, lambda share: self._dual(dual.y + share * dy, dual.Z + share * dZ), first, _CUT)

    def _primal(self, X: Array) -> _Primal | None:
        """Return a point, None where it is not positive definite or a penalty is infinite."""
        root = root_of(X)
        if root is None:
            return None
        activity = self._A.apply((X,))
        paid = float(self._bounds.penalty(activity).sum())
        own = float(np.vdot(self._frame.C, X)) - self._frame.mu * log_det(root)
        return _Primal(X, root, activity, paid, own + paid) if math.isfinite(paid) else None

    def _dual(self, y: Array, Z: Array) -> _Dual | None:
        """Return multipliers and their ``C - A*(y)``, None outside the domain of the dual function."""
        root = root_of(Z)
        if root is None:
            return None
        rows_term = float(self._bounds.conjugate(y).sum())
        cost = -rows_term - self._frame.mu * log_det(root)
        return _Dual(y, Z, root, rows_term, cost) if math.isfinite(rows_term) else None

    def _Z(self, y: Array) -> Array:
        Z: Array = self._frame.C - self._A.adjoint(y)
        return Z


def _better(
    at: P, along: Callable[[float], P | None], share: float = 1.0, cut: float = 0.5
) -> tuple[P, float]:
    """Return the first better point on the way back from a share of a step, and its share.

    Where none is, the old point and zero.
    """
    while share > _SHORTEST:
        new = along(share)
        if new is not None and new.cost <= at.cost + EPS * abs(at.cost):
            return new, share
        share *= cut
    return at, 0.0
