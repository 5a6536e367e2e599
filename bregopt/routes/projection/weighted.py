"""Elementwise weights: ``||H o (X - X0)||_F^2`` with rows, by an interior point or an augmented Lagrangian.

Small problems with hard rows start with the direct interior point, all others with the augmented Lagrangian.
Each takes over when the other makes no progress. The interior point solves problems with a large fixed block
in a tenth of the time; the augmented Lagrangian keeps more digits.

The loops are not :meth:`~bregopt.routes.monitor.Monitor.follow`, because only some steps are certified, a
round counts all its Newton steps, and the methods share the best point and detect their own stalling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.certify.accuracy import NearnessRule, near_answer
from bregopt.clock import CutShort
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.program.scale import scale_of
from bregopt.records import dataclass
from bregopt.routes.monitor import Monitor
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.bounded_diagonal import bounded_diagonal
from bregopt.routes.projection.scaled_nearness import ScaledNearness, scaled_nearness
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.projection.weighted_interior import InteriorPoint, interior_unknowns
from bregopt.routes.projection.weighted_lagrangian import AugmentedLagrangian

__all__ = ["weighted_frobenius"]

_NO_VARIABLES = np.zeros(0)
_Phase = Callable[[ScaledNearness, int], StopReason | None]


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
    """The best point so far, and the methods in turn."""

    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._tuning: ProjectionTuning = settings.tuning
        self._monitor = Monitor(program, settings, progress)
        self._rule = NearnessRule(program, settings.tol, settings.asked_of_X)
        self._limit = settings.max_iter or self._tuning.weighted_limit
        self._steps = 0
        self._best: _Certified | None = None
        self._refines = False  # whether more digits of the entries are asked for than the best point has
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
        """Return the reason why the last method stopped; each starts at the best point so far."""
        if start is not None and start.X and start.S is not None:
            (X,), (S,) = start.X, start.S
            stop = None if S is None else self._judge(np.asarray(X), self._program.bounds.clip(start.y), S)
            if stop is not None:
                return stop
        scaled = scaled_nearness(self._program, self._tuning)
        for run, steps in self._plan(interior_unknowns(scaled)):
            met = self._is_met
            stop = run(scaled, min(self._steps + steps, self._limit))
            if stop is StopReason.CONVERGED and self._refines and not met:
                continue  # with the multipliers of this method, another tells the entries more closely
            if stop is not None or met:
                return stop or StopReason.CONVERGED
        return StopReason.STALLED

    @property
    def _is_met(self) -> bool:
        return self._best is not None and self._best.certificate.meets(self._settings.tol)

    def _plan(self, unknowns: float) -> Iterator[tuple[_Phase, int]]:
        """Yield the methods in order, with their limits on steps, for the interior point's unknowns."""
        tuning = self._tuning
        if unknowns <= tuning.first_interior_unknowns:
            yield self._interior, tuning.interior_steps
        yield self._lagrangian, self._steps if self._is_met else tuning.lagrangian_steps
        if unknowns <= tuning.largest_interior_unknowns:
            yield self._interior, tuning.interior_steps
        yield self._lagrangian, tuning.weighted_limit

    def _interior(self, scaled: ScaledNearness, limit: int) -> StopReason | None:
        """Return the reason to stop, None if the interior point makes no more progress."""
        method, tuning = InteriorPoint(scaled, self._tuning), self._tuning
        scale, moves = scale_of(self._program).objective, True
        while moves and self._steps < limit:
            moves = method.step()
            self._steps += moves
            size = scale + scaled.value_scale * abs(scaled.value(method.Y))
            small = tuning.certified_complementarity * self._settings.tol * size
            far = method.complementarity * scaled.value_scale > small
            if moves and far and self._steps % tuning.certificate_steps:
                continue
            stop = self._judge(method.psd_point() * scaled.scale, *scaled.dual_point(method.Z, method.y))
            if stop is not None:
                return stop
        return None

    def _lagrangian(self, scaled: ScaledNearness, limit: int) -> StopReason | None:
        """Return the reason to stop, None if the augmented Lagrangian makes no more progress."""
        Z, y = self._multipliers(scaled)
        before, stalled, mark = self._steps, 0, np.inf
        method = AugmentedLagrangian(scaled, Z, y, limit - before, self._tuning)
        while stalled < self._tuning.lagrangian_patience and self._steps < limit:
            method.round()
            self._steps = before + method.steps
            stop = self._judge(method.Y * scaled.scale, *scaled.dual_point(method.Z, method.y))
            if stop is not None:
                return stop
            assert self._best is not None
            progressed = self._best.error <= self._tuning.progress_ratio * mark
            stalled, mark = (0, self._best.error) if progressed else (stalled + 1, mark)
        return None

    def _multipliers(self, scaled: ScaledNearness) -> tuple[Array, Array]:
        """Return the first multipliers: those of the best point so far, or zero."""
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
            stop = None  # the methods themselves detect this
        return stop or (StopReason.MAX_ITER if self._steps >= self._limit else None)

    def _is_accurate(self, at: _Certified) -> bool:
        """Whether the entries of a point are certified to the accuracy that is asked, as far as that goes.

        Once gaps are round-off, the rule tells which of two points is nearer to the optimum.
        """
        near = near_answer(self._program, (at.X,), _NO_VARIABLES, at.y, (at.S,))
        if near is None or near.square is None:  # entries without weight: the excess is a difference
            return True
        stops = self._rule.stops(near, at.certificate.primal, at.certificate.dual)
        self._refines = not self._rule.is_reached
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
