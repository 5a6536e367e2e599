"""Elementwise weights: ``||H o (X - X0)||_F^2`` with rows, by the rounds of an augmented Lagrangian.

The loop is not :meth:`~bregopt.routes.monitor.Monitor.follow`: a round counts all its Newton steps, and ends
without progress where the method is at round-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.certify.accuracy import NearnessRule, near_answer
from bregopt.clock import CutShort
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.routes.monitor import Monitor
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.bounded_diagonal import bounded_diagonal
from bregopt.routes.projection.scaled_nearness import ScaledNearness, scaled_nearness
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.projection.weighted_lagrangian import AugmentedLagrangian

__all__ = ["weighted_frobenius"]

_NO_VARIABLES = np.zeros(0)


def weighted_frobenius(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a squared Frobenius problem with elementwise weights in one block."""
    return _Weighted(program, settings, progress).run(start)


@dataclass(frozen=True, eq=False)
class _Certified:
    """A point and its certificate."""

    X: Array
    y: Array
    S: Array
    certificate: Certificate

    @property
    def error(self) -> float:
        """The larger of gap and primal residual."""
        return max(self.certificate.gap, self.certificate.primal_residual)


class _Weighted:
    """The rounds of the method, and the best point so far."""

    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        self._program, self._settings = program, settings
        self._tuning: ProjectionTuning = settings.tuning
        self._monitor = Monitor(program, settings, progress)
        self._rule = NearnessRule(program, settings.tol, settings.asked_of_X)
        self._limit = settings.max_iter or self._tuning.weighted_limit
        self._steps = self._enough = 0
        self._best: _Certified | None = None
        self._diagonal = bounded_diagonal(program)

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the best point."""
        try:
            stop = self._solved(start)
        except CutShort as cut:
            stop = reason(cut)
        best = self._best
        if best is None:
            return self._without(stop)
        y = self._monitor.farkas if stop is StopReason.INFEASIBLE else best.y
        return Answer((best.X,), _NO_VARIABLES, y, stop, self._steps, S=(best.S,))

    def _solved(self, start: Start | None) -> StopReason:
        """Return the reason why the method stopped."""
        if start is not None and start.X and start.S is not None:
            (X,), (S,) = start.X, start.S
            stop = None if S is None else self._judge(np.asarray(X), self._program.bounds.clip(start.y), S)
            if stop is not None:
                return stop
        scaled = scaled_nearness(self._program, self._tuning)
        Z, y = self._multipliers(scaled)
        stalled, mark = 0, np.inf
        method = AugmentedLagrangian(scaled, Z, y, self._limit, self._tuning)
        while stalled < self._tuning.lagrangian_patience:
            method.round()
            self._steps = method.steps
            stop = self._judge(method.Y * scaled.scale, *scaled.dual_point(method.Z, method.y))
            if stop is not None:
                return stop
            assert self._best is not None
            progressed = self._best.error <= self._tuning.progress_ratio * mark
            stalled, mark = (0, self._best.error) if progressed else (stalled + 1, mark)
        return StopReason.STALLED

    def _multipliers(self, scaled: ScaledNearness) -> tuple[Array, Array]:
        """Return the first multipliers: those of an earlier answer, or zero."""
        if self._best is not None:
            return scaled.scaled_dual(self._best.y, self._best.S)
        return np.zeros((scaled.n,) * 2), np.zeros(len(scaled.rows.at))

    def _judge(self, X: Array, y: Array, S: Array) -> StopReason | None:
        """Certify a point, keep it if it is the best, and return the reason to stop, if any."""
        point = self._certified(X, y, S)
        if self._best is None or point.error < self._best.error:
            self._best = point
        stop = self._monitor.look(self._steps, point.certificate, point.y, lambda: self._is_accurate(point))
        if stop is StopReason.STALLED:
            stop = None  # the rounds themselves show this
        return stop or (StopReason.MAX_ITER if self._steps >= self._limit else None)

    def _is_accurate(self, at: _Certified) -> bool:
        """Whether the entries of a point are certified to the accuracy that is asked, as far as that goes.

        Once gaps are round-off, the rule tells which of two points is nearer to the optimum. It takes no more
        steps than the tolerance took: where fixed entries leave little interior, rounds become long.
        """
        near = near_answer(self._program, (at.X,), _NO_VARIABLES, at.y, (at.S,))
        self._enough = self._enough or 2 * self._steps + 1
        if near is None or self._steps >= self._enough:
            return True
        stops = self._rule.stops(near, at.certificate.primal, at.certificate.dual)
        if self._rule.is_nearest:
            self._best = at
        return stops

    def _certified(self, X: Array, y: Array, S: Array) -> _Certified:
        if self._diagonal is not None:
            X = self._diagonal.scaled(X, np.sqrt(self._settings.tol))
        certificate = certify(PrimalDualPoint(self._program, (X,), _NO_VARIABLES, y, S=(S,)))
        return _Certified(X, y, S, certificate)

    def _without(self, stop: StopReason) -> Answer:
        """Return the diagonal of ``X0``, if nothing is certified yet."""
        (block,) = self._program.blocks
        assert block.nearness is not None
        X = np.diag(np.maximum(np.asarray(block.nearness.X0).diagonal(), 0.0))
        return Answer((X,), _NO_VARIABLES, np.zeros(self._program.m), stop, self._steps)
