"""When a method is done: its certificate is good enough, the rows contradict each other, or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, is_farkas
from bregopt.clock import CutShort
from bregopt.presolve.range_space import definite_sign
from bregopt.program import Program, StopReason
from bregopt.routes.base import Settings
from bregopt.routes.progress import Progress, reason

__all__ = ["Watch"]

Point = TypeVar("Point", bound=Any)

_FEASIBLE = 1e-3  # rows that are met to this much are suspected of a contradiction only now and then
_LEAN = 1e-6  # by which multipliers of definite rows are lowered, for a sum that is surely negative
_STILL = 1e-8  # of the objective: a change that is none
_FIRST_SUSPICION = 3  # steps before which multipliers say little


class Watch:
    """Looks at the certificates of a method as they come in.

    Parameters
    ----------
    program : Program
    settings : Settings
    progress : Progress

    Attributes
    ----------
    farkas : array of shape (m,)
        What proves that the rows contradict each other, once :meth:`look` has said so.
    """

    def __init__(self, program: Program, settings: Settings, progress: Progress) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._signs = np.zeros(program.m)
        for term in program.A.terms:
            self._signs[term.at] = definite_sign(term.rows)
        self._looks = 0
        self._before = self._anchor = np.zeros(program.m)
        self._primal = np.inf
        self.farkas = np.zeros(program.m)

    def look(self, step: int, certificate: Certificate, y: Array) -> StopReason | None:
        """Return why to stop after a step, None where there is no reason."""
        self._progress.record(step, certificate)
        if certificate.meets(self._settings.tol):
            return StopReason.CONVERGED
        change, self._before = y - self._before, y.copy()
        drift = y - self._anchor
        self._looks += 1
        doubled = self._looks & (self._looks - 1) == 0
        if doubled:
            self._anchor = self._before
        suspected = certificate.primal_residual > (self._settings.tol if doubled else _FEASIBLE)
        if step >= _FIRST_SUSPICION and suspected and self._contradiction((change, drift, y)):
            return StopReason.INFEASIBLE
        # Multipliers may rest, at zero for long, while the matrix still moves.
        moved, self._primal = abs(certificate.primal - self._primal), certificate.primal
        still = step and not moved > _STILL * abs(certificate.primal)
        if still and y.any() and np.abs(change).max() <= 1e-15 * np.abs(y).max():
            return StopReason.STALLED
        return self._progress.stop()

    def follow(
        self,
        at: Point,
        advance: Callable[[Point], Point | None],
        certificate: Callable[[Point], Certificate],
        limit: int,
        step: int = 0,
    ) -> tuple[Point, StopReason, int]:
        """Return the last point of a method, why it stopped, and its number; so at a checkpoint inside.

        Parameters
        ----------
        at : point
            The first; its ``y`` are the multipliers.
        advance, certificate : callable
            Return the next point, None where there is none, and what a point proves.
        limit : int
            The largest number of a step.
        step : int
            The number of the first point, of the steps before it.
        """
        stop = self.look(step, certificate(at), at.y)
        try:
            while stop is None:
                new = advance(at)
                if new is None:
                    return at, StopReason.STALLED, step
                at, step = new, step + 1
                stop = self.look(step, certificate(at), at.y)
                stop = stop or (StopReason.MAX_ITER if step >= limit else None)
        except CutShort as cut:
            stop = reason(cut)
        return at, stop, step

    def _contradiction(self, candidates: Sequence[Array]) -> bool:
        """Whether the multipliers run away along a Farkas vector."""
        leaning = [c - _LEAN * np.abs(c) * self._signs for c in candidates]
        for candidate in (*candidates, *leaning):
            if is_farkas(self._program, candidate):
                self.farkas = candidate
                return True
        return False
