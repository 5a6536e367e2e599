"""The method for one connected part: descent, and splitting where the descent is slow.

A step of descent ends where the estimate of its gap has fallen by a factor, and is certified then.

Splitting is the alternating direction method of multipliers, for rough answers. Each iteration takes one
eigendecomposition, whatever the condition of the problem, where the quadratic model of Newton's method takes
many products. The scaled multiplier is in the box by construction, so it is a dual point (Boyd, Parikh, Chu,
Peleato, Eckstein 2011, Distributed Optimization and Statistical Learning via the Alternating Direction Method
of Multipliers, sections 3.4.1, 3.4.3, 6.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.certify.graphical_lasso import LassoData, clipped
from bregopt.clock import CutShort, checkpoint
from bregopt.linalg import root_of
from bregopt.program import StopReason
from bregopt.routes.graphical_lasso.descent import Descent
from bregopt.routes.graphical_lasso.point import LassoPoint, symmetric
from bregopt.routes.graphical_lasso.tuning import LassoTuning
from bregopt.routes.progress import reason

__all__ = ["Watch", "solve_part"]

Watch = Callable[[LassoPoint], StopReason | None]


def solve_part(
    data: LassoData, at: LassoPoint, target: float, limit: int, tuning: LassoTuning, watch: Watch
) -> tuple[LassoPoint, StopReason]:
    """Reduce the distance of value and bound to at most `target`.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    at : LassoPoint
    target : float
    limit : int
        Largest number of steps.
    tuning : LassoTuning
    watch : callable
        Called after each step; a reason ends the work.

    Returns
    -------
    (LassoPoint, StopReason)
        UNBOUNDED if ``X`` is a direction along which the objective falls without end.
    """
    method, idle = _Methods(data, target, tuning, at), 0
    try:
        for _ in range(limit):
            if at.error <= target:
                return at, StopReason.CONVERGED
            checkpoint(data.n)
            before = at.error
            at = method.step(at)
            if data.linear_part(at.X) <= 0:
                return at, StopReason.UNBOUNDED
            idle = 0 if at.error < before else idle + 1
            stop = StopReason.STALLED if idle > tuning.idle_steps else watch(at)
            if stop is not None:
                return at, stop
    except CutShort as cut:
        return at, reason(cut)
    return at, StopReason.CONVERGED if at.error <= target else StopReason.MAX_ITER


class _Methods:
    """Descent in single precision as long as that is enough, descent in double precision, and splitting."""

    def __init__(self, data: LassoData, target: float, tuning: LassoTuning, at: LassoPoint) -> None:
        self._data, self._target, self._tuning = data, target, tuning
        self._least_single = math.inf  # gap from which single precision is enough
        if data.n >= tuning.single_order:
            self._least_single = tuning.single_gap * max(abs(at.value), data.n)
        self._descent: Descent | None = None
        self._splitting, self._handover = _Splitting(data, tuning), math.inf
        self._splits, self._factor = False, tuning.handover_factor
        self._trust = 1.0  # in the estimate of the gap

    def step(self, at: LassoPoint) -> LassoPoint:
        """Return the point after one step, certified."""
        if at.error > self._handover:
            if not self._splits:
                self._splitting.start(at, self._handover >= self._least_single)
                self._splits, self._descent = True, None
            return self._splitting.advance(at)
        self._splits = False
        tuning, before = self._tuning, min(at.error, self._data.n)
        goal = max(self._target, before / tuning.step_factor)
        single = before > self._least_single
        if single:
            goal = max(goal, self._least_single)
        if self._descent is None or self._descent.single > single:
            self._descent = Descent(self._data, at, tuning, single)
        descent = self._descent
        reached, idle = self._descended(descent, self._trust * goal)
        at = descent.proven(self._data, at)
        if reached and at.error > goal:
            self._trust /= 2
        if descent.stuck and single:
            self._least_single, self._descent = math.inf, None
        elif idle and at.error > self._target:
            self._handover = max(self._target, min(before, at.error) / self._factor)
            self._factor *= tuning.handover_factor
        return at

    def _descended(self, descent: Descent, goal: float) -> tuple[bool, bool]:
        """Return whether rounds reached the goal, and whether they ended as the estimate fell no more."""
        best, idle = math.inf, 0
        for _ in range(self._tuning.rounds):
            if descent.round(goal) or descent.stuck:
                return not descent.stuck, False
            estimate = descent.estimate
            idle = 0 if estimate <= self._tuning.idle_ratio * best else idle + 1
            best = min(best, estimate) if idle else estimate
            if idle >= self._tuning.idle_rounds:
                return False, True
        return False, False


class _Splitting:
    """The method; it keeps the weight ``rho`` of its quadratic term from run to run.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    tuning : LassoTuning
    """

    def __init__(self, data: LassoData, tuning: LassoTuning) -> None:
        self._data, self._tuning = data, tuning
        self._rho = 1.0

    def start(self, at: LassoPoint, single: bool) -> None:
        """Begin at a point, in single or in double precision."""
        kind: Any = np.float32 if single else np.float64
        self._number = kind
        self._S, self._penalty = self._data.S.astype(kind), self._data.penalty.astype(kind)
        self._Z, self._V = at.X.astype(kind), (at.U / self._rho).astype(kind)
        if np.count_nonzero(at.X) == self._data.n:  # the multipliers of a diagonal matrix lead astray
            self._V = np.zeros_like(self._Z)

    def advance(self, at: LassoPoint) -> LassoPoint:
        """Return the point after some iterations: the better of old and new, primal and dual apart."""
        for _ in range(self._tuning.splitting_steps):
            self._iterate()
        data = self._data
        U = data.clip(symmetric(self._number(self._rho) * self._V))
        bound = data.bound(U)
        if bound > at.bound:
            at = replace(at, U=U, bound=bound)
        X = symmetric(self._Z)
        root = root_of(X)
        value = math.inf if root is None else data.value(X, root)
        return at if root is None or value >= at.value else replace(at, X=X, value=value)

    def _iterate(self) -> None:
        rho, before, ratio = self._number(self._rho), self._Z, self._tuning.balance
        eigenvalues, Q = np.linalg.eigh(before - self._V - self._S / rho)
        positive = (eigenvalues + np.sqrt(eigenvalues**2 + 4 / rho)) / 2
        T = (Q * positive) @ Q.T
        relax = self._number(self._tuning.relaxation)
        A, reach = relax * T + (1 - relax) * before + self._V, self._penalty / rho
        self._V = clipped(A, reach)
        self._Z = A - self._V
        primal = _norm(T - self._Z) / max(_norm(T), _norm(self._Z))
        multiplier = _norm(self._V)
        dual = _norm(self._Z - before) / multiplier if multiplier else math.inf
        if primal > ratio * dual:
            self._rho *= 2
            self._V = self._V / 2
        elif dual > ratio * primal:
            self._rho /= 2
            self._V = self._V * 2


def _norm(M: Any) -> float:
    return float(np.linalg.norm(M))
