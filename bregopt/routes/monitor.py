"""The termination monitor: certificate, proof of infeasibility or unboundedness, stalling, and time.

One loop, :meth:`Monitor.follow`, runs every method with a certificate at each iterate, and records it. It
returns the best iterate, or the last of a dual ascent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate
from bregopt.certify.accuracy import Near, NearnessRule, near_optimum
from bregopt.clock import CutShort, checkpoint
from bregopt.program import Answer, Program, StopReason
from bregopt.rigorous import contradicts
from bregopt.routes.base import Settings
from bregopt.routes.progress import Progress, reason

__all__ = ["Followed", "Method", "Monitor"]

# Relative decrease of the multipliers of definite rows before a second test. It moves A*(y) away from the
# boundary of the cone by more than round-off.
_FARKAS_MARGIN = 1e-6
# Relative change of the objective that counts as none.
_STALL_CHANGE = 1e-8
# Steps without progress after which a method falls back to its slower form, and after which a method stops
# whose best iterate meets the whole tolerance.
_FALL_BACK_STEPS = 4
# Largest error of the best iterate at which a method falls back. Far from the solution a gap may stand still
# although the iterates move on, and no digits are lost yet: 3,000 comparisons in 20 dimensions take 15 s
# instead of 0.4 s in the slower form from the start.
_FALL_BACK_ERROR = 1e-2
# Ratio of the error to that of the best iterate above which a method is stopped.
_DIVERGENCE_RATIO = 1e3
# Error of the best iterate below which what is left is round-off: another ratio counts as progress, and a
# method that counts steps without progress waits for these only. Far from the solution progress may resume
# after many steps. At a ratio of 0.5 SDPLIB's hinf1 ends with half a digit less; at 0.9 its quadratic
# assignments take a tenth more steps and gain nothing.
_NEAR_ERROR, _NEAR_RATIO, _NEAR_STEPS = 1e-4, 0.8, 6


class Method(ABC):
    """The interface of a method for the loop. A point has multipliers ``y``."""

    patience: int | None = None
    """Steps without progress after which the method stalls; None for a method that detects it itself."""
    tests_multipliers = True
    """Whether the multipliers are tested for a Farkas vector at each step. Otherwise `proof` does."""
    doubles_digits = False
    """Whether it is a Newton method, whose last steps double the digits of ``X``."""
    keeps_best = True
    """Whether the result is the best iterate. Otherwise it is the last, which a dual ascent bounds best."""

    @abstractmethod
    def certificate(self, at: Any) -> Certificate:
        """Return the certificate of a point."""

    @abstractmethod
    def advance(self, at: Any) -> Any | None:
        """Return the next point, None if there is none."""

    def columns(self, at: Any) -> dict[str, float]:
        """Return the quantities that are recorded beside the certificate."""
        return {}

    def settled(self, at: Any) -> bool:
        """Whether a point that meets the tolerance is an answer to the program before the reductions."""
        return True

    def nearby(self, program: Program, at: Any) -> Near | None:
        """Return a feasible point near the answer, for a Newton method."""
        return near_optimum(program, at.y)

    def proof(self, at: Any, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return the proof that no solution exists, if the point leads to one; `before` is the last ``y``."""
        return None

    def diverges(self, at: Any) -> bool:
        """Whether a point far worse than the best may lead to such a proof."""
        return False

    def fall_back(self) -> bool:
        """Change to a slower form that keeps more digits; False if there is none."""
        return False


class _Error(NamedTuple):
    """The error of an iterate; errors are ordered by both numbers, the first one first.

    Parameters
    ----------
    worst : float
        The largest of the gap and the residuals, with a finite gap counted as at most 1. A gap near 1 says
        only that the value and its bound have different signs or sizes.
    distance : float
        Between the value and its bound.
    """

    worst: float
    distance: float

    @staticmethod
    def of(certificate: Certificate) -> _Error:
        gap = min(certificate.gap, 1.0) if math.isfinite(certificate.gap) else math.inf
        worst = max(gap, certificate.primal_residual, certificate.dual_residual)
        return _Error(worst, abs(certificate.primal - certificate.dual))

    def is_progress(self, last: _Error, ratio: float) -> bool:
        """Whether this error is smaller by a ratio than that of the last progress."""
        if self.worst == last.worst == 1.0:
            return self.distance <= ratio * last.distance
        return self.worst <= ratio * last.worst


class Followed(NamedTuple):
    """The result of the loop.

    Parameters
    ----------
    at : point
        The best point, the last, or the one that gives the proof.
    stop : StopReason
    step : int
        The number of the last step.
    proof : Answer, optional
        The proof that no solution exists, if the method has found one.
    """

    at: Any
    stop: StopReason
    step: int
    proof: Answer | None = None


class Monitor:
    """Checks the certificates of a method at each step.

    Parameters
    ----------
    program : Program
    settings : Settings
    progress : Progress
    share : float
        Fraction of the tolerance that certificates have to meet.

    Attributes
    ----------
    farkas : array of shape (m,)
        The Farkas vector that proves infeasibility, once :meth:`look` has returned that.
    """

    def __init__(self, program: Program, settings: Settings, progress: Progress, share: float = 1.0) -> None:
        self._program, self._tol, self._progress = program, share * settings.tol, progress
        self._asked, self._tuning = settings.tol, settings.tuning
        self._rule = NearnessRule(program, self._tol, settings.asked_of_X)
        self._looks = 0
        self._nearest: Any = None  # of the points that meet the tolerance, that nearest to the optimum
        self._before = self._anchor = np.zeros(program.m)
        self._primal = np.inf
        self.farkas = np.zeros(program.m)

    def look(
        self, step: int, certificate: Certificate, y: Array, ends: Callable[[], bool] | None = None
    ) -> StopReason | None:
        """Record a step and return the reason to stop, None if there is none.

        A certificate that meets the tolerance is one, where `ends` agrees.
        """
        self._progress.record(step, certificate)
        if certificate.meets(self._tol) and (ends is None or ends()):
            return StopReason.CONVERGED
        if certificate.is_at_round_off(self._asked):
            return StopReason.STALLED
        change, self._before = y - self._before, y.copy()
        drift = y - self._anchor
        self._looks += 1
        doubled = self._looks & (self._looks - 1) == 0
        if doubled:
            self._anchor = self._before
        suspected = certificate.primal_residual > (self._tol if doubled else self._tuning.farkas_residual)
        if step >= self._tuning.farkas_step and suspected and self._contradiction((change, drift, y)):
            return StopReason.INFEASIBLE
        # Multipliers may stay at zero for long while the matrix still moves.
        moved, self._primal = abs(certificate.primal - self._primal), certificate.primal
        still = step and not moved > _STALL_CHANGE * abs(certificate.primal)
        # A relative change of 1e-15 is round-off.
        if still and y.any() and np.abs(change).max() <= 1e-15 * np.abs(y).max():
            return StopReason.STALLED
        return self._progress.stop()

    def follow(self, method: Method, at: Any, limit: int, step: int = 0) -> Followed:
        """Run a method until it stops, possibly at a checkpoint inside a step.

        Parameters
        ----------
        method : Method
        at : point
            The first point.
        limit : int
            The number of the last step allowed.
        step : int
            The number of the first point, which counts earlier steps.
        """
        best, before, progressed = at, at.y, step
        self._nearest = None
        least = mark = _Error(np.inf, np.inf)
        try:
            while True:
                best = best if method.keeps_best else at
                certificate = method.certificate(at)
                error = _Error.of(certificate)
                ratio = _NEAR_RATIO if mark.worst <= _NEAR_ERROR else self._tuning.progress_ratio
                if error.is_progress(mark, ratio):
                    progressed, mark = step, error
                if error <= least:
                    best, least = at, error
                stop = self._judge(method, step, certificate, at)
                if stop is not None:
                    return self._ended(best, stop, step)
                proof = method.proof(at, before, certificate, step)
                if proof is not None:
                    return Followed(at, proof.stop, step, proof)
                if step >= limit:
                    return self._ended(best, StopReason.MAX_ITER, step)
                checkpoint()
                # Multipliers outside a log-determinant's domain prove nothing, yet the point may be fine.
                far = _DIVERGENCE_RATIO * least.worst < error.worst < np.inf
                lost = far and not method.diverges(at)
                new = None if method.patience and lost else method.advance(at)
                waited = step - progressed
                slow = waited >= _FALL_BACK_STEPS and least.worst <= _FALL_BACK_ERROR  # perhaps by round-off
                if (new is None or slow) and method.fall_back():
                    new, progressed, waited = method.advance(best), step, 0
                if new is None or waited >= self._patience(method, least.worst):
                    return self._ended(best, StopReason.STALLED, step)
                before, at, step = at.y, new, step + 1
        except CutShort as cut:
            return self._ended(best, reason(cut), step)

    def _patience(self, method: Method, least: float) -> float:
        """Return the number of steps without progress at which a method stalls, from the least error."""
        patience = method.patience or np.inf
        if least <= self._asked:
            return min(patience, _FALL_BACK_STEPS)
        near = method.patience is not None and least <= _NEAR_ERROR
        return min(patience, _NEAR_STEPS) if near else patience

    def _judge(self, method: Method, step: int, certificate: Certificate, at: Any) -> StopReason | None:
        """Return the reason to stop at a point, None if there is none."""
        if method.tests_multipliers:
            return self.look(step, certificate, at.y, lambda: self._ends(method, at, certificate))
        self._progress.record(step, certificate, **method.columns(at))
        if certificate.meets(self._tol) and self._ends(method, at, certificate):
            return StopReason.CONVERGED
        return StopReason.STALLED if certificate.is_at_round_off(self._asked) else None

    def _ends(self, method: Method, at: Any, certificate: Certificate) -> bool:
        """Whether a method ends at a point that meets the tolerance."""
        if not method.settled(at):
            return False
        if not (method.doubles_digits and self._rule.applies):
            return True
        near = method.nearby(self._program, at)
        stops = self._rule.stops(near, certificate.primal, certificate.dual)
        if self._rule.is_nearest:
            self._nearest = at
        return stops

    def _ended(self, best: Any, stop: StopReason, step: int) -> Followed:
        """Return the result, with the point nearest to the optimum, or the `best` one by its certificate.

        Once gaps are round-off they do not tell which point is nearer. A method that stalls after it has met
        the tolerance has converged: ``X`` cannot be told more closely.
        """
        if self._nearest is None:
            return Followed(best, stop, step)
        return Followed(self._nearest, StopReason.CONVERGED if stop is StopReason.STALLED else stop, step)

    def _contradiction(self, candidates: Sequence[Array]) -> bool:
        """Whether one of the candidates, or a slight decrease of it, is a Farkas vector."""
        signs = self._program.A.definite_signs
        leaning = [c - _FARKAS_MARGIN * np.abs(c) * signs for c in candidates]
        for candidate in (*candidates, *leaning):
            if contradicts(self._program, candidate):
                self.farkas = candidate
                return True
        return False
