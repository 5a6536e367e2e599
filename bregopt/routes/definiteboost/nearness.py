"""The von Neumann problem with fixed trace: steps on rows until the certificate meets the tolerance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import CutShort
from bregopt.divergences import VonNeumann
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.program.anchor import divergence_of
from bregopt.routes.definiteboost.boost import Boost, Trace, impossible
from bregopt.routes.definiteboost.tuning import DefiniteBoostTuning
from bregopt.routes.progress import Progress, reason

__all__ = ["certifies_after", "iteration_bound", "project"]

_NO_VARIABLES = np.zeros(0)


def iteration_bound(largest_divergence: float, violation: float) -> float:
    """Return a bound on the steps on rows violated by more than `violation`, for a feasible problem.

    Corollary 4.2. Each such step increases the dual by at least ``2 violation**2`` (unless it stops at a zero
    multiplier), and the dual is at most `largest_divergence`. Violations are relative to the range of the
    eigenvalues of the row, which is ``2 lambda`` in the paper.
    """
    return math.inf if violation == 0 else largest_divergence / (2 * violation**2)


def certifies_after(step: int, tuning: DefiniteBoostTuning) -> bool:
    """Whether to certify after this step: always at first, later at intervals that grow with the step."""
    return step % max(1, step // tuning.certified_steps) == 0


def project(program: Program, trace: Trace, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a problem with a von Neumann term, hard rows and a fixed trace (Tsuda et al. 2005, eq. 4.1)."""
    run = _Projection(program, trace, settings, progress)
    farkas = impossible(program, run.boost, program.bounds.lo, program.bounds.hi, settings.tuning)
    if farkas is not None:
        return run.answer(StopReason.INFEASIBLE, 0, farkas)
    if start is not None:
        y = program.bounds.clip(start.y) / run.mu
        y[trace.row] = 0.0
        run.boost.reset(y)
    limit, iteration = settings.max_iter or settings.tuning.default_max_iter, 0
    stop = run.look(0)
    try:
        while stop is None:
            iteration += 1
            run.advance()
            if certifies_after(iteration, settings.tuning) or iteration >= limit or progress.stop():
                stop = run.look(iteration)
                stop = stop or (StopReason.MAX_ITER if iteration >= limit else None)
    except CutShort as cut:
        stop = reason(cut)
    return run.answer(stop, iteration, run.boost.y)


class _Projection:
    """The current matrix, and the records of the run."""

    def __init__(self, program: Program, trace: Trace, settings: Any, progress: Progress) -> None:
        (block,) = program.blocks
        assert block.nearness is not None
        divergence = divergence_of(block.nearness)
        assert isinstance(divergence, VonNeumann)
        self.program, self.trace, self.settings, self.progress = program, trace, settings, progress
        self.block, self.mu, self.trace_X0 = block, block.nearness.mu, divergence.trace
        exponent = divergence.log_X0 - block.C / self.mu
        self.boost = Boost(
            program.A, exponent, trace.value, settings.exact, settings.corrections, settings.tuning
        )
        self.first_dual = self.certificate().dual
        self.steps, self.least_violation = 0, math.inf

    def advance(self) -> None:
        """Do one iteration: a step on the most promising row, or one on each row."""
        lo, hi = self.program.bounds.lo, self.program.bounds.hi
        self.steps += self.boost.sweep(lo, hi) if self.settings.cyclic else self.boost.step(lo, hi)

    def look(self, iteration: int) -> StopReason | None:
        """Record the current state; return the reason to stop, None if there is none."""
        boost, bounds = self.boost, self.program.bounds
        boost.reset(boost.y)  # removes the round-off of the steps
        certificate = self.certificate()
        violation = float(boost.violations(bounds.lo, bounds.hi).max(initial=0.0))
        self.least_violation = min(self.least_violation, violation)
        self.progress.record(
            iteration,
            certificate,
            steps=self.steps,
            violation=violation,
            iteration_bound=iteration_bound(boost.largest_divergence, self.least_violation),
        )
        tol = self.settings.tol
        if certificate.meets(tol):
            return StopReason.CONVERGED
        # A dual above every divergence proves the rows infeasible. The step bound guarantees this increase.
        increase = (certificate.dual - self.first_dual) / (self.mu * boost.trace)
        if violation > tol and increase > boost.largest_divergence:
            return StopReason.INFEASIBLE
        if not self.settings.corrections and violation <= tol:
            return StopReason.CONVERGED  # no row is left to step on
        return self.progress.stop()

    def certificate(self) -> Certificate:
        """Return the certificate of the matrix and its multipliers, from known values."""
        boost, program = self.boost, self.program
        y, activity = self.multipliers(), program.A.apply((boost.X,))
        constant = self.trace_X0 - boost.trace
        # log X - log X0 = (A*(y) - C) / mu
        divergence = (float(y @ activity) - self.block.cost_value(boost.X)) / self.mu + constant
        known = Known(activity=activity, divergences=(divergence,), cone_residual=0.0)
        known["matrix_terms"] = (self.mu * constant,)
        return certify(PrimalDualPoint(program, (boost.X,), np.zeros(0), y, **known))

    def multipliers(self) -> Array:
        """Return the multipliers of all rows; that of the trace follows from the level of ``log X``."""
        y = self.mu * self.boost.y
        y[self.trace.row] = self.mu * self.boost.level / self.trace.weight
        return y

    def answer(self, stop: StopReason, iteration: int, y: Array) -> Answer:
        """Return the matrix with its multipliers, or with the proof `y` of infeasibility."""
        infeasible = stop is StopReason.INFEASIBLE
        return Answer(
            (self.boost.X,),
            _NO_VARIABLES,
            self.trace.with_trace_multiplier(self.program, y) if infeasible else self.multipliers(),
            stop,
            iteration,
            iteration_bound=iteration_bound(self.boost.largest_divergence, self.settings.tol),
        )
