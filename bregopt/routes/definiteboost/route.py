"""The route `definiteboost`: one row at a time, with a bound on the number of steps.

Margin problems are solved by bisection on their one variable (Tsuda et al. 2005, §4.6):

    minimize theta   subject to   <A_j, X> <= b_j + w_j theta,  w_j >= 0,   tr X = t.

A fixed theta gives a feasibility problem. Steps from the multiple of the identity end with a matrix that
allows a smaller theta, or with multipliers that prove a larger bound. Either halves the interval, and the
multipliers are the start of the next problem.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array, is_one_of
from bregopt.certify import PrimalDualPoint, certify
from bregopt.clock import CutShort
from bregopt.errors import did_you_mean
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.records import dataclass
from bregopt.rigorous import contradicts
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.definiteboost.boost import (
    Boost,
    DefiniteBoostTuning,
    Trace,
    certifies_after,
    impossible,
    iteration_bound,
    no_trace,
    project,
    trace_row,
)
from bregopt.routes.progress import Progress, reason

_STEPS = ("approximate", "exact")
_ORDERS = ("most_violated", "cyclic")


@dataclass(frozen=True, kw_only=True)
class DefiniteBoostSettings(base.Settings):
    """Options of the route `definiteboost`.

    ``corrections=False`` is Algorithm 2 of Tsuda et al. as published. It finds a feasible matrix, which is
    the nearest one only if no step went too far.

    Parameters
    ----------
    step : {"approximate", "exact"}
        A step by the formula (4.6), or onto the row (4.3).
    order : {"most_violated", "cyclic"}
        The order of rows. An iteration is one step, or one cycle over all rows.
    corrections : bool
        Whether steps also go back on satisfied rows with a nonzero multiplier.
    tuning : DefiniteBoostTuning
        Numerical constants of the method.
    """

    step: str = "approximate"
    order: str = "most_violated"
    corrections: bool = True
    tuning: DefiniteBoostTuning = DefiniteBoostTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("step", _STEPS), ("order", _ORDERS)):
            value = getattr(self, name)
            if not is_one_of(value, known):
                raise ValueError(f"{name} is {value!r}{did_you_mean(str(value), known)}")
        if not isinstance(self.corrections, bool):
            raise TypeError(f"corrections is {self.corrections!r}; expected True or False")

    @property
    def exact(self) -> bool:
        """Whether steps go exactly onto their row."""
        return self.step == "exact"

    @property
    def cyclic(self) -> bool:
        """Whether rows are processed in order."""
        return self.order == "cyclic"


class DefiniteBoost:
    """AdaBoost for matrices: steps on rows for a von Neumann objective, or one margin, at a fixed trace."""

    name: ClassVar[str] = "definiteboost"
    summary: ClassVar[str] = "von Neumann nearness or a margin at a fixed trace, in a bounded number of steps"
    citation: ClassVar[str] = (
        "Tsuda, Rätsch, Warmuth (2005), Matrix Exponentiated Gradient Updates for On-line Learning and "
        "Bregman Projection, JMLR 6"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"exponential", "linear"}), blocks=1, penalties=frozenset(), matrices=8
    )
    Settings: ClassVar[type[base.Settings]] = DefiniteBoostSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        if not program.blocks:
            return "the problem has no matrix variable"
        (block,) = program.blocks
        # The objective first: no row for the trace would mend it.
        if block.nearness is None:
            reason, least = no_margin(program), settings.tuning.least_margin_tol
        else:
            reason, least = None, 0.0
            if program.k:
                reason = "it does not take ordinary variables with a divergence"
        if reason is None and trace_row(program, settings.tuning) is None:
            reason = no_trace(program, settings.tuning)
        if reason is None and settings.tol < least:
            reason = f"its search over the margin is for tol={least:g} or more, not {settings.tol:g}"
        return reason

    def choice(self, program: Program, settings: Any) -> str:
        row = "row after row" if settings.cyclic else "on the most violated row"
        back = "with corrections" if settings.corrections else "as published"
        return f"{settings.step} steps {row}, {back}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        trace = trace_row(program, settings.tuning)
        assert trace is not None
        (block,) = program.blocks
        run = search if block.nearness is None else project
        return run(program, trace, settings, start, progress)


def no_margin(program: Program) -> str | None:
    """Return the reason why a linear problem is not a margin problem as above, None if it is one."""
    (block,) = program.blocks
    if block.cost is not None:
        return "of linear objectives it takes one ordinary variable, without a term in X"
    if program.k != 1 or program.c[0] == 0:
        return f"it takes one ordinary variable, the objective; the problem has {program.k}"
    if np.isfinite(program.u_lo).any() or np.isfinite(program.u_hi).any():
        return "it takes a variable without bounds"
    slope = _bound_slopes(program)
    bounds = program.bounds
    if ((slope != 0) & (np.isfinite(bounds.lo) & np.isfinite(bounds.hi))).any():
        return "it takes no two-sided rows with the variable"
    against = np.where(np.isfinite(bounds.hi), slope, -slope) < 0
    if against.any():
        return f"{program.row_name(int(np.flatnonzero(against)[0]))} does not give way as the objective grows"
    return None if slope.any() else "no row has the variable"


def _bound_slopes(program: Program) -> Array:
    """Return the increase of each row's bounds as the objective increases by one."""
    return -np.asarray(program.B.todense()).ravel() / program.c[0]


@dataclass
class _Incumbent:
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
            run.offer(np.asarray(X))
    farkas = impossible(program, run.boost, *run.bounds_at(run.high), settings.tuning)
    if farkas is not None:
        return run.answer(StopReason.INFEASIBLE, farkas)
    stop = run.look(run.high)
    try:
        while stop is None:
            run.low, run.high = max(run.low, run.best.bound), min(run.high, run.best.value)
            stop = run.bisect((run.low + run.high) / 2)
    except CutShort as cut:
        stop = reason(cut)
    return run.answer(stop, np.where(run.slope == 0, run.boost.y, 0.0))


class _Search:
    """The current matrix, and the remaining interval of the objective."""

    def __init__(self, program: Program, trace: Trace, settings: Any, progress: Progress) -> None:
        self.program, self.trace, self.settings, self.progress = program, trace, settings, progress
        (block,) = program.blocks
        self.boost = Boost(
            program.A,
            np.zeros((block.n, block.n)),
            trace.value,
            settings.exact,
            settings.corrections,
            settings.tuning,
        )
        self.slope = _bound_slopes(program)
        self.best = _Incumbent(self.boost.X, np.zeros(1), np.zeros(program.m))
        self.iteration = self.steps = 0
        self.low = self._least_objective(trace.value * self.boost.least, trace.value * self.boost.largest)
        self.high = self._least_objective(trace.value * self.boost.largest, trace.value * self.boost.least)

    def bounds_at(self, objective: float) -> tuple[Array, Array]:
        """Return the bounds of the rows on ``X`` at a value of the objective."""
        shift = self.slope * objective
        return self.program.bounds.lo + shift, self.program.bounds.hi + shift

    def bisect(self, objective: float) -> StopReason | None:
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
            if not (certifies_after(step, tuning) or out or self.progress.stop()):
                continue
            stop = self.look(objective)
            if stop is not None or out:
                return stop or StopReason.MAX_ITER
            if self.best.value <= objective + slack or self.best.bound >= objective - slack:
                return None
            if moves == 0:
                return StopReason.STALLED

    def look(self, objective: float) -> StopReason | None:
        """Offer and record the point and the multipliers; return the reason to stop, None without one."""
        self.boost.reset(self.boost.y)
        self.offer(self.boost.X)
        best = self.best
        certificate = certify(PrimalDualPoint(self.program, (best.X,), best.u, best.y))
        lo, hi = self.bounds_at(objective)
        self.progress.record(
            self.iteration,
            certificate,
            steps=self.steps,
            violation=float(self.boost.violations(lo, hi).max(initial=0.0)),
            iteration_bound=iteration_bound(self.boost.largest_divergence, self.settings.tol),
        )
        if certificate.meets(self.settings.tol):
            return StopReason.CONVERGED
        fixed = np.where(self.slope == 0, self.boost.y, 0.0)
        if fixed.any() and contradicts(self.program, self.trace.with_trace_multiplier(self.program, fixed)):
            return StopReason.INFEASIBLE
        return self.progress.stop()

    def answer(self, stop: StopReason, farkas: Array) -> Answer:
        """Return the best point with the best multipliers, or with the proof of infeasibility."""
        infeasible = stop is StopReason.INFEASIBLE
        return Answer(
            (self.best.X,),
            self.best.u,
            self.trace.with_trace_multiplier(self.program, farkas) if infeasible else self.best.y,
            stop,
            self.iteration,
            iteration_bound=iteration_bound(self.boost.largest_divergence, self.settings.tol),
        )

    def offer(self, X: Array) -> None:
        """Keep the matrix if it allows a smaller objective, the multipliers if they prove a larger bound."""
        program, best = self.program, self.best
        activity = program.A.apply((X,))
        value = self._least_objective(activity, activity)
        u = np.array([value / program.c[0]])
        y, weight = best.y, -float(self.slope @ self.boost.y)
        if weight > 0:
            y = self.trace.with_trace_multiplier(program, self.boost.y / weight)
        certificate = certify(PrimalDualPoint(program, (X,), u, y))
        if certificate.primal_residual <= self.settings.tol and value < best.value:
            best.X, best.u, best.value = X, u, value
        if weight > 0 and certificate.dual - program.offset > best.bound:
            best.y, best.bound = y, certificate.dual - program.offset

    def _least_objective(self, upper: Array, lower: Array) -> float:
        """Return the least objective at which all rows with the variable hold.

        `upper` holds the activities of rows with an upper bound, `lower` those of the others.
        """
        bounds, has = self.program.bounds, self.slope != 0
        above = np.where(np.isfinite(bounds.hi), upper - bounds.hi, bounds.lo - lower)
        return float((above[has] / np.abs(self.slope[has])).max())
