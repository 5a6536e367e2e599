"""Newton's method for LogDet nearness: the shared engine at the problem's own weight.

In coordinates in which ``X0`` is the identity the divergence is ``tr X - logdet X - n``, so that an
ill-conditioned ``X0`` costs no precision; where ``X0`` is well conditioned the rows keep their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences import LogDet
from bregopt.program import Certificate, Program, certificate_of, certify
from bregopt.program.certificate import divergence_of
from bregopt.solvers.base import Answer, Settings, Start
from bregopt.solvers.bregman.watch import Watch
from bregopt.solvers.engine import Iterate, PrimalDual
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import StopReason

__all__ = ["STEPS", "logdet_newton"]

STEPS = 200  # the limit where the user gives none
_WELL_CONDITIONED = 1e6


def logdet_newton(program: Program, settings: Settings, start: Start | None, progress: Progress) -> Answer:
    """Solve a LogDet nearness problem in one block.

    Parameters
    ----------
    program : Program
        One block with a LogDet term, no ordinary variables.
    """
    return _LogDetNewton(program, settings, progress).run(start)


class _LogDetNewton:
    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        nearness = program.blocks[0].nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        assert isinstance(divergence, LogDet)
        self._L: Array | None = None
        if _condition(divergence.L) > _WELL_CONDITIONED:
            self._L = divergence.L
            program = program.restrict(0, self._L, np.eye(len(self._L)))
            nearness = program.blocks[0].nearness
            assert nearness is not None
            divergence = LogDet(np.eye(len(self._L)))
        self._program, self._settings, self._progress = program, settings, progress
        self._mu, self._X0 = nearness.mu, np.asarray(nearness.X0)
        self._divergence, self._log_det = divergence, 2 * float(np.log(divergence.L.diagonal()).sum())
        C = program.blocks[0].C + self._mu * divergence.inverse
        self._engine = PrimalDual(C, self._mu, program.A, program.bounds)

    def run(self, start: Start | None) -> Answer:
        """Return the answer; interrupted or out of time, the last iterate."""
        y = np.zeros(self._program.m)
        watch = Watch(self._program, self._settings, self._progress)
        X = self._dual_point(y)
        if X is not None and self._is_answer(X, y):
            return Answer((self._lifted(X),), np.zeros(0), y, StopReason.CONVERGED, 0)
        at = self._first(start, X)
        if at is None:
            return Answer((self._lifted(self._X0),), np.zeros(0), y, StopReason.STALLED, 0)
        step, alpha, limit = 0, 0.0, self._settings.max_iter or STEPS
        stop = watch.look(step, self._certificate(at), at.y)
        try:
            while stop is None:
                moved = self._engine.step(at, self._next_nu(at, alpha))
                if moved is None:
                    stop = StopReason.STALLED
                    break
                (at, alpha), step = moved, step + 1
                stop = watch.look(step, self._certificate(at), at.y)
                stop = stop or (StopReason.MAX_ITER if step >= limit else None)
        except KeyboardInterrupt:
            stop = StopReason.INTERRUPTED
        y = watch.farkas if stop is StopReason.INFEASIBLE else at.y
        return Answer((self._lifted(at.X),), np.zeros(0), y, stop, step)

    def _is_answer(self, X: Array, y: Array) -> bool:
        certificate = certify(self._program, (X,), np.zeros(0), y)
        if not certificate.meets(self._settings.tol):
            return False
        self._progress.record(0, certificate)
        return True

    def _dual_point(self, y: Array) -> Array | None:
        """Return the point that belongs to some multipliers, None where there is none."""
        return self._divergence.minimiser(self._program.blocks[0].C - self._program.A.adjoint(y), self._mu)

    def _first(self, start: Start | None, X: Array | None) -> Iterate | None:
        """Return the first iterate: at an earlier answer's multipliers, or where no row acts."""
        if start is not None:
            y = self._program.bounds.clip(start.y)
            near = self._dual_point(y)
            at = None if near is None else self._engine.start(near, y)
            if at is not None:
                return at
        return self._engine.start(self._X0 if X is None else X, None)

    def _next_nu(self, at: Iterate, alpha: float) -> float:
        """Return the next central-path parameter: a fraction of where the ends are now."""
        if at.ends.products == 0:
            return 0.0
        share = 0.5 if alpha < 0.3 else max(0.01, (1 - alpha) ** 2, 0.1 if alpha < 0.9 else 0.0)
        return share * at.ends.complementarity() / at.ends.products

    def _certificate(self, at: Iterate) -> Certificate:
        mu, n = self._mu, len(at.X)
        log_det_X = 2 * float(np.log(at.X_root.diagonal()).sum())
        log_det_Z = 2 * float(np.log(at.Z_root.diagonal()).sum())
        divergence = float(np.vdot(self._divergence.inverse, at.X)) - log_det_X + self._log_det - n
        term = mu * (log_det_Z + self._log_det - n * np.log(mu))
        return certificate_of(self._program, at.X, at.y, at.activity, divergence, term)

    def _lifted(self, M: Array) -> Array:
        return M if self._L is None else self._L @ M @ self._L.T


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)
