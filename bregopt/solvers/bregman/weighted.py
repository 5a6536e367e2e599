"""Elementwise weights: ``||H o (X - X0)||_F^2`` by majorisation.

With ``c = max H^2`` the objective lies below its tangent at ``V`` plus ``c ||X - V||_F^2``, which is a plain
nearness problem from ``V - H^2 o (V - X0) / c``. Each step solves that one by Newton's method on its dual,
from the last multipliers, as precisely as the gap asks; ``V`` is extrapolated (Nesterov 1983), and that
begins again where it no longer helps (O'Donoghue and Candes 2015).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.clock import CutShort
from bregopt.program import Nearness, Program, certify
from bregopt.solvers.base import Answer, Settings, Start
from bregopt.solvers.bregman.dual_newton import dual_newton
from bregopt.solvers.bregman.watch import Watch
from bregopt.solvers.progress import Progress, reason
from bregopt.solvers.solution import StopReason

__all__ = ["STEPS", "weighted_frobenius"]

STEPS = 5_000  # the limit where the user gives none
_INNER_STEPS = 50
_FIRST_TOL = 1e-3  # of the plain problems, until the first certificate
_SHARPER, _FINEST = 0.2, 1e-12  # of the gap, what the multipliers of a plain problem may miss; and the least
_RESTS = 1e-14
_LONG_ENOUGH = 3  # steps that tell how fast the gap falls
_NO_VARIABLES = np.zeros(0)


def weighted_frobenius(
    program: Program, settings: Settings, start: Start | None, progress: Progress
) -> Answer:
    """Solve a squared Frobenius problem with elementwise weights in one block."""
    watch = Watch(program, settings, progress)
    method = _Majorisation(program, start)
    step, due, limit, tol = 0, 1, settings.max_iter or STEPS, _FIRST_TOL
    gaps: list[tuple[int, float]] = []
    stop: StopReason | None = None
    try:
        while stop is None:
            step += 1
            if not method.step(tol):
                return Answer((method.X,), _NO_VARIABLES, method.y, StopReason.INFEASIBLE, step)
            if step >= due or step >= limit or progress.stop():
                certificate = certify(program, (method.X,), _NO_VARIABLES, method.y)
                stop = watch.look(step, certificate, method.y)
                if stop is StopReason.STALLED and method.moved > _RESTS:
                    stop = None  # the multipliers rest, the matrix does not
                tol = min(tol, max(_SHARPER * certificate.gap, _FINEST))
                gaps.append((step, certificate.gap))
                due = step + min(_wait(gaps, settings.tol), 3 + step // 5)
                stop = stop or (StopReason.MAX_ITER if step >= limit else None)
    except CutShort as cut:
        stop = reason(cut)
    y = watch.farkas if stop is StopReason.INFEASIBLE else method.y
    return Answer((method.X,), _NO_VARIABLES, y, stop, step)


def _wait(gaps: list[tuple[int, float]], tol: float) -> int:
    """Return after how many steps the gap should meet `tol`, if it goes on to fall as it did."""
    step, gap = gaps[-1]
    before = [seen for seen in gaps if seen[0] <= step - _LONG_ENOUGH and seen[1] > gap > 0]
    if not before:
        return STEPS
    rate = np.log(before[-1][1] / gap) / (step - before[-1][0])
    return max(1, int(np.ceil(np.log(gap / tol) / rate)))


class _Majorisation:
    """The point, its extrapolation, and the multipliers of the last plain problem."""

    def __init__(self, program: Program, start: Start | None) -> None:
        nearness = program.blocks[0].nearness
        assert nearness is not None
        assert nearness.weights is not None
        self._program, self._X0, self._W = program, np.asarray(nearness.X0), nearness.weights**2
        self._c = float(self._W.max())
        self._mu = nearness.mu * self._c
        self.X = self._V = self._X0
        self.y = np.zeros(program.m) if start is None else program.bounds.clip(start.y)
        self.moved = np.inf
        self._t = 1.0

    def step(self, tol: float) -> bool:
        """Move to the answer of the plain problem at ``V``; False where that has none."""
        V, X = self._V, self.X
        answer = self._plain(V - self._W * (V - self._X0) / self._c, tol)
        self.X, self.y = answer.X[0], answer.y
        if answer.stop is StopReason.INFEASIBLE:
            return False
        if float(np.vdot(V - self.X, self.X - X)) > 0:
            self._t = 1.0
        following = (1 + np.sqrt(1 + 4 * self._t**2)) / 2
        self._V = self.X + (self._t - 1) / following * (self.X - X)
        self._t = following
        self.moved = float(np.linalg.norm(self.X - X) / max(float(np.linalg.norm(X)), TINY))
        return True

    def _plain(self, target: Array, tol: float) -> Answer:
        block = replace(self._program.blocks[0], nearness=Nearness("frobenius", target, self._mu))
        return dual_newton(
            replace(self._program, blocks=(block,)),
            Settings(tol=tol, max_iter=_INNER_STEPS),
            Start((), _NO_VARIABLES, self.y),
            Progress("majorant"),
            restore=False,  # its multipliers matter as much as its matrix
        )
