"""Margin problems by bisection on their one variable (Tsuda et al. 2005, §4.6).

    minimize theta   subject to   <A_j, X> <= b_j + w_j theta,  w_j >= 0,   tr X = t.

A fixed theta gives a feasibility problem. Steps from the multiple of the identity end with a matrix that
allows a smaller theta, or with multipliers that prove a larger bound. Either halves the interval, and the
multipliers are the start of the next problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import certify, is_farkas
from bregopt.clock import CutShort
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.routes.definiteboost.boost import Boost
from bregopt.routes.definiteboost.nearness import due, iteration_bound
from bregopt.routes.definiteboost.rows import Trace, impossible
from bregopt.routes.progress import Progress, reason

__all__ = ["no_margin", "search"]


def no_margin(program: Program) -> str | None:
    """Return the reason why a linear problem is not a margin problem as above, None if it is one."""
    if program.blocks[0].cost is not None:
        return "of linear objectives it takes one ordinary variable, without a term in X"
    if program.k != 1 or program.c[0] == 0:
        return f"it takes one ordinary variable, the objective; the problem has {program.k}"
    if np.isfinite(program.u_lo).any() or np.isfinite(program.u_hi).any():
        return "it takes a variable without bounds"
    give = _give(program)
    bounds = program.bounds
    if ((give != 0) & (np.isfinite(bounds.lo) & np.isfinite(bounds.hi))).any():
        return "it takes no two-sided rows with the variable"
    tighter = np.where(np.isfinite(bounds.hi), give, -give) < 0
    if tighter.any():
        return f"{program.row_name(int(np.flatnonzero(tighter)[0]))} does not give way as the objective grows"
    return None if give.any() else "no row has the variable"


def _give(program: Program) -> Array:
    """Return the increase of each row's bounds as the objective increases by one."""
    give: Array = -np.asarray(program.B.todense()).ravel() / program.c[0]
    return give


@dataclass
class _Found:
    """The best point and the best multipliers so far."""

    X: Array
    u: Array
    y: Array
    value: float = math.inf
    bound: float = -math.inf


def search(program: Program, trace: Trace, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a margin problem by bisection between the best value and the best bound."""
    run = _Search(program, trace, settings, progress)
    if start is not None:
        y = program.bounds.clip(start.y)
        y[trace.row] = 0.0
        run.boost.reset(y)
        for X in start.X:
            run.keep(np.asarray(X))
    alone = impossible(program, run.boost, *run.bounds_at(run.high), settings.tuning)
    if alone is not None:
        return run.answer(StopReason.INFEASIBLE, alone)
    stop = run.look(run.high)
    try:
        while stop is None:
            run.low, run.high = max(run.low, run.found.bound), min(run.high, run.found.value)
            stop = run.ask((run.low + run.high) / 2)
    except CutShort as cut:
        stop = reason(cut)
    return run.answer(stop, np.where(run.give == 0, run.boost.y, 0.0))


class _Search:
    """The current matrix, and the remaining interval of the objective."""

    def __init__(self, program: Program, trace: Trace, settings: Any, progress: Progress) -> None:
        self.program, self.trace, self.settings, self.progress = program, trace, settings, progress
        n = program.blocks[0].n
        self.boost = Boost(
            program.A,
            np.zeros((n, n)),
            trace.value,
            settings.exact,
            settings.corrections,
            settings.tuning,
        )
        self.give = _give(program)
        self.found = _Found(self.boost.X, np.zeros(1), np.zeros(program.m))
        self.iteration = self.steps = 0
        self.low = self._needed(trace.value * self.boost.least, trace.value * self.boost.largest)
        self.high = self._needed(trace.value * self.boost.largest, trace.value * self.boost.least)

    def bounds_at(self, objective: float) -> tuple[Array, Array]:
        """Return the bounds of the rows on ``X`` at a value of the objective."""
        shift = self.give * objective
        return self.program.bounds.lo + shift, self.program.bounds.hi + shift

    def ask(self, objective: float) -> StopReason | None:
        """Step at a fixed objective until it is known to be, roughly, too large or too small."""
        lo, hi = self.bounds_at(objective)
        slack = (self.high - self.low) / 4
        tuning, step = self.settings.tuning, 0
        limit = self.settings.max_iter or tuning.default_max_iter
        while True:
            step += 1
            self.iteration += 1
            moves = self.boost.sweep(lo, hi) if self.settings.cyclic else self.boost.step(lo, hi)
            self.steps += moves
            out = self.iteration >= limit
            if not (due(step, tuning) or out or self.progress.stop()):
                continue
            stop = self.look(objective)
            if stop is not None or out:
                return stop or StopReason.MAX_ITER
            if self.found.value <= objective + slack or self.found.bound >= objective - slack:
                return None
            if moves == 0:
                return StopReason.STALLED

    def look(self, objective: float) -> StopReason | None:
        """Keep the better of point and multipliers, and record them; return the reason to stop, or None."""
        self.boost.reset(self.boost.y)
        self.keep(self.boost.X)
        found = self.found
        certificate = certify(self.program, (found.X,), found.u, found.y)
        lo, hi = self.bounds_at(objective)
        self.progress.record(
            self.iteration,
            certificate,
            steps=self.steps,
            violation=float(self.boost.violations(lo, hi).max(initial=0.0)),
            iteration_bound=iteration_bound(self.boost.farthest, self.settings.tol),
        )
        if certificate.meets(self.settings.tol):
            return StopReason.CONVERGED
        fixed = np.where(self.give == 0, self.boost.y, 0.0)
        if fixed.any() and is_farkas(self.program, self.trace.settle(self.program, fixed)):
            return StopReason.INFEASIBLE
        return self.progress.stop()

    def answer(self, stop: StopReason, farkas: Array) -> Answer:
        """Return the best point with the best multipliers, or with the proof of infeasibility."""
        infeasible = stop is StopReason.INFEASIBLE
        return Answer(
            (self.found.X,),
            self.found.u,
            self.trace.settle(self.program, farkas) if infeasible else self.found.y,
            stop,
            self.iteration,
            iteration_bound=iteration_bound(self.boost.farthest, self.settings.tol),
        )

    def keep(self, X: Array) -> None:
        """Keep the matrix if it allows a smaller objective, the multipliers if they prove a larger bound."""
        program, found = self.program, self.found
        activity = program.A.apply((X,))
        value = self._needed(activity, activity)
        u = np.array([value / program.c[0]])
        y, paid = found.y, -float(self.give @ self.boost.y)
        if paid > 0:
            y = self.trace.settle(program, self.boost.y / paid)
        certificate = certify(program, (X,), u, y)
        if certificate.primal_residual <= self.settings.tol and value < found.value:
            found.X, found.u, found.value = X, u, value
        if paid > 0 and certificate.dual - program.offset > found.bound:
            found.y, found.bound = y, certificate.dual - program.offset

    def _needed(self, upper: Array, lower: Array) -> float:
        """Return the least objective at which all rows with the variable hold.

        `upper` holds the activities of rows with an upper bound, `lower` those of the others.
        """
        bounds, has = self.program.bounds, self.give != 0
        above = np.where(np.isfinite(bounds.hi), upper - bounds.hi, bounds.lo - lower)
        return float((above[has] / np.abs(self.give[has])).max())
