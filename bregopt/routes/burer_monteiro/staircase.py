"""The rank is increased until the bound meets the value (Boumal, Voroninski, Bandeira 2016).

A minimizer ``R`` of given rank determines multipliers in closed form, ``W = C - A*(y)`` and ``W R = 0``. If
``W`` is psd, ``R R'`` is the solution. Otherwise an eigenvector of ``W`` with a negative eigenvalue is a
direction in which one more column decreases the value. Each stage certifies its multipliers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, Mask
from bregopt.certify import Certificate, certify, lowest, objective_size
from bregopt.clock import CutShort, checkpoint
from bregopt.linalg import turned
from bregopt.program import Answer, LowRank, Program, SparseLowRankProgram, Start, StopReason
from bregopt.routes.burer_monteiro.lagrangian import lagrangian
from bregopt.routes.burer_monteiro.start import first_factor
from bregopt.routes.burer_monteiro.surface import Surface
from bregopt.routes.burer_monteiro.trust_region import descend
from bregopt.routes.progress import Progress, reason

__all__ = ["Staircase", "first_columns"]

_MAX_ITER = 3_000  # steps, the limit where the user gives none
_FIRST_STAGE = 1e-3  # gradient norm of the first stage, relative to the value
_SHARPER = 0.1  # factor of this tolerance from stage to stage
_SHARPEST = 1e-13  # least tolerance of a stage
_OFF_ROWS = 1e-2  # least tolerance of a stage, relative to the primal residual
_SHARE = 0.3  # fraction of the tolerance that the last stages aim for
_DIRECTIONS, _GROWTH = 4, 0.5  # most columns added at a time: this number, or this fraction of the columns
_NEARLY = 0.1  # relative to the lowest eigenvalue: limit of the others that are added
_LANCZOS = 120  # Lanczos steps for these eigenvalues
_ABOVE_NOISE = 3.0  # relative to the remaining gradient: least eigenvalue that shows a saddle point
_RANK_TOL = 1e-5  # relative to the largest singular value: columns dropped before others are added
_SHORT = 0.2  # relative to the mean length: rows tried at zero if the gap is within the tolerance
_NARROW = 1e-4  # relative to the largest singular value: columns dropped after each stage
_FEW, _MANY = 12, 24  # columns of the first R
_LARGE = 5_000  # order up to which R starts with _FEW columns
_CUT_SHORT = (StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
# Stages without halving the gap after which the method stalls: for rows within the tolerance, and otherwise.
_STALL, _STALL_OFF_ROWS = 4, 12


class Staircase:
    """One run of the method.

    Parameters
    ----------
    program : Program
        One block, linear, the diagonal or the trace fixed.
    thin : SparseLowRankProgram
    surface : Surface
    settings : LowRankSettings
    start : Start, optional
    progress : Progress
    """

    def __init__(
        self,
        program: Program,
        thin: SparseLowRankProgram,
        surface: Surface,
        settings: Any,
        start: Start | None,
        progress: Progress,
    ) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._most = most_columns(program)
        self._rng = np.random.default_rng(settings.seed)
        self._L = lagrangian(program, thin, surface, None if start is None else start.y)
        columns = first_columns(program, settings)
        R = first_factor(program, surface, settings, start, columns, self._rng)
        checkpoint()
        self._at = self._L.retract(R)
        self._steps = 0
        self._best: tuple[float, Array] | None = None
        self._y, self._bound = np.zeros(program.m), -np.inf

    def run(self) -> Answer:
        try:
            stop = self._climb()
        except CutShort as cut:
            stop = reason(cut)
            if self._best is None:
                self._y = self._multipliers()
        # If the surface satisfies all rows the last point has the lowest value.
        R = self._at.R
        if self._best is not None and (stop not in _CUT_SHORT or len(self._L.y)):
            R = self._best[1]
        return Answer((LowRank(_narrowed(R, 0.0)),), np.zeros(0), self._y, stop, self._steps)

    def _multipliers(self) -> Array:
        """Return the multipliers of all rows at the current point."""
        loss = _SHARE * self._settings.tol * self._scale
        return self._L.multipliers(self._at, self._program.m, loss)

    def _climb(self) -> StopReason:
        """Run the stages."""
        tol, share = self._settings.tol, _FIRST_STAGE
        missed = np.full(len(self._L.y), np.inf)
        gaps: list[float] = []
        while True:
            cut_short = self._descend(share * self._scale / np.sqrt(self._L.surface.trace))
            certificate = self._certified()
            if certificate.meets(tol):
                return StopReason.CONVERGED
            if cut_short is not None:
                return cut_short
            gaps.append(max(certificate.gap, certificate.primal_residual))
            if self._grown():
                continue
            patience = _STALL if certificate.primal_residual <= tol else _STALL_OFF_ROWS
            if len(gaps) > patience and gaps[-1] > 0.5 * gaps[-1 - patience] and share <= _SHARE * tol:
                return StopReason.STALLED
            before, missed = missed, self._L.missed(self._at)
            self._L = self._L.updated(self._at, before, _SHARE * tol * self._scale)
            self._at = self._L.retract(_narrowed(self._at.R, _NARROW))
            reached = self._at.steepness * np.sqrt(self._L.surface.trace) / self._scale
            loosest = _OFF_ROWS * certificate.primal_residual
            share = max(min(share, reached) * _SHARPER, min(loosest, _FIRST_STAGE), _SHARPEST)

    @property
    def _scale(self) -> float:
        """The reference value of the gap."""
        return max(objective_size(self._program, self._at.value + self._program.offset), TINY)

    def _descend(self, tol: float) -> StopReason | None:
        """Minimize at the current rank; return the reason if it was cut short."""
        limit = self._settings.max_iter or _MAX_ITER
        for point in descend(self._L, self._at, tol):
            self._at = point
            self._steps += 1
            if self._steps >= limit:
                return StopReason.MAX_ITER
        return None

    def _certified(self) -> Certificate:
        """Return the certificate of the current point, and keep the best bound and matrix."""
        R, y, tol = self._at.R, self._multipliers(), self._settings.tol
        certificate = certify(self._program, (LowRank(R),), np.zeros(0), y)
        short = _short(R)
        if short.any() and certificate.gap <= tol < certificate.primal_residual:
            bare = self._L.retract(np.where(short[:, None], 0.0, R)).R
            cleared = certify(self._program, (LowRank(bare),), np.zeros(0), y)
            R, certificate = (bare, cleared) if cleared.meets(tol) else (R, certificate)
        self._progress.record(self._steps, certificate, rank=R.shape[1])
        # Round-off of large multipliers may put an earlier bound above the solution.
        if certificate.dual > self._bound or certificate.meets(tol):
            self._y, self._bound = y, certificate.dual
        error = max(certificate.gap, certificate.primal_residual)
        if self._best is None or error < self._best[0]:
            self._best = error, R
        return certificate

    def _grown(self) -> bool:
        """Whether the rank was increased along a direction of negative curvature."""
        L, at = self._L, self._at
        R = _narrowed(at.R, _RANK_TOL)
        more = max(_DIRECTIONS, int(_GROWTH * R.shape[1]))
        room = min(more, self._most - R.shape[1])
        if room <= 0:
            return False
        values, V = lowest(at.off_planes(L.surface), room, _LANCZOS)
        loss = -L.surface.trace * float(values[0])
        noise = _ABOVE_NOISE * np.sqrt(L.surface.trace) * at.steepness
        if loss <= max(noise, _SHARE * self._settings.tol * self._scale):
            return False
        V = V[:, values <= _NEARLY * values[0]]
        step = np.sqrt(L.surface.trace / V.shape[1])
        while step > 1e-6 * np.sqrt(L.surface.trace):
            new = L.retract(np.hstack([R, step * V]))
            if new.value < at.value:
                self._at = new
                return True
            step /= 2
        return False


def first_columns(program: Program, settings: Any) -> int:
    """Return the number of columns of the first ``R``, at most the number that can be needed."""
    columns = settings.rank or (_FEW if program.blocks[0].n <= _LARGE else _MANY)
    return int(min(columns, most_columns(program)))


def most_columns(program: Program) -> int:
    """Return one more than a rank that some solution does not exceed (Barvinok 1995, Pataki 1998)."""
    return min(int(np.sqrt(2 * program.m)) + 1, program.blocks[0].n)


def _short(R: Array) -> Mask:
    """Return the mask of the rows of a factor that may converge to zero, where Newton steps are slow.

    There the value is flat to fourth order, and rows of the program on these entries have their largest
    violations.
    """
    length = np.linalg.norm(R, axis=1)
    short: Mask = (length > 0) & (length < _SHORT * np.sqrt(np.mean(length**2)))
    return short


def _narrowed(R: Array, tol: float) -> Array:
    """Return `R` rotated to orthogonal columns, without those below `tol` relative to the largest."""
    columns = turned(R)
    length = np.linalg.norm(columns, axis=0)
    return columns[:, : max(int((length > tol * length[0]).sum()), 1)]
