"""Cyclic Bregman projection with dual corrections (Kulis et al. 2009, Algorithms 2 and 3).

The method maximizes the dual function in the multiplier of one row at a time. A violated row is projected
onto; other rows move back towards their bound, by at most the earlier projections (eq. 8). The loop is
independent of the divergence, which a :class:`~bregopt.divergences.ProjectionPoint` implements. It is not
:meth:`~bregopt.routes.monitor.Monitor.follow`, because only some cycles are certified, all update one point
in place, and the projections of an interrupted cycle count.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.divergences import Line, ProjectionPoint, line_root
from bregopt.program import Answer, Program, Start, StopReason, Target
from bregopt.program.anchor import divergence_of
from bregopt.records import dataclass
from bregopt.routes.monitor import Monitor
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["cyclic_projection", "new_multiplier"]

_NO_VARIABLES = np.zeros(0)
_SHARES = 2.0 ** np.arange(-50.0, 0.0, 2)  # of the way back into the domain of the dual
_ROWS_A_CHECKPOINT = 32  # a checkpoint costs half a projection in low rank


@dataclass(frozen=True)
class Row:
    """One row for the inner loop: factor, targets at its two bounds, limit on its multiplier.

    An equality has the target at its lower bound alone.
    """

    U: Array
    d: Array
    lower: Target | None
    upper: Target | None
    lo: float
    hi: float
    cap: float


def cyclic_projection(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a nearness problem in one block by cyclic projection.

    Parameters
    ----------
    program : Program
        One block with a divergence that has a point, no ordinary variables.
    """
    (block,) = program.blocks
    assert block.nearness is not None
    rows, mu = _rows(program), block.nearness.mu
    y = np.zeros(program.m)
    point = divergence_of(block.nearness).point(mu)
    if start is not None:
        y = program.bounds.clip(start.y)
    try:
        point.reset(block.C - program.A.adjoint(y))
    except LinAlgError:  # a start outside the domain of the dual
        y = np.zeros(program.m)
        point.reset(block.C)
    monitor = Monitor(program, settings, progress)
    tuning: ProjectionTuning = settings.tuning
    limit = settings.max_iter or tuning.cycle_limit
    cycle = 0
    y_inside, certificate = _certified(program, point, y, y)
    stop = monitor.look(cycle, certificate, y)
    try:
        while stop is None:
            cycle += 1
            sweep(point, rows, _acting(program, point, y), y, mu)
            if cycle >= limit or _due(cycle, tuning.certificate_divisor):
                # Rebuilding the point from the multipliers removes the round-off of the updates. Where X0 is
                # ill conditioned, round-off may move multipliers out of the domain; then the updates remain.
                with suppress(LinAlgError):
                    point.reset(block.C - program.A.adjoint(y))
                y_inside, certificate = _certified(program, point, y, y_inside)
                stop = monitor.look(cycle, certificate, y)
                stop = stop or (StopReason.MAX_ITER if cycle >= limit else None)
    except CutShort as cut:
        stop = reason(cut)
    if stop is StopReason.INFEASIBLE:
        y_inside = monitor.farkas
    return Answer((point.X,), _NO_VARIABLES, y_inside, stop, cycle)


def _certified(
    program: Program, point: ProjectionPoint, y: Array, y_inside: Array
) -> tuple[Array, Certificate]:
    """Return multipliers in the domain of the dual and their certificate.

    They are `y`, or near it on the segment to the earlier `y_inside`, as domains are convex.
    """
    for share in (0.0, *_SHARES):
        y_near = y + share * (y_inside - y)
        certificate = certify(PrimalDualPoint(program, (point.X,), _NO_VARIABLES, y_near))
        if math.isfinite(certificate.dual):
            return y_near, certificate
    return y_inside.copy(), certify(PrimalDualPoint(program, (point.X,), _NO_VARIABLES, y_inside))


def _acting(program: Program, point: ProjectionPoint, y: Array) -> IntArray:
    """Return the rows that a sweep visits: those with a multiplier, and those that the point violates.

    One product gives all activities, so a row without effect costs no projection. If a later projection of
    the sweep violates it, the next sweep visits it.
    """
    activity, bounds = program.A.apply((point.X,)), program.bounds
    return np.flatnonzero((y != 0) | (activity < bounds.lo) | (activity > bounds.hi))


def sweep(point: ProjectionPoint, rows: list[Row], visited: IntArray, y: Array, mu: float) -> None:
    """Project on the visited rows once, in order; `y` is updated in place."""
    for count, k in enumerate(visited.tolist()):
        if count % _ROWS_A_CHECKPOINT == 0:
            checkpoint()
        row, old = rows[k], float(y[k])
        line = point.line(row.U, row.d)
        new = new_multiplier(line, row, old, mu)
        if new != old:
            point.move(line, (new - old) / mu)
            y[k] = new


def new_multiplier(line: Line, row: Row, y: float, mu: float) -> float:
    """Return the multiplier of one row that maximizes the dual function, all others fixed."""
    if row.lo == row.hi:
        assert row.lower is not None
        return _capped(y + mu * line_root(line, row.lower, y, mu), row.cap, y)
    if y == 0.0 and row.lo <= line.activity <= row.hi:
        return 0.0
    if row.lower is not None and (y > 0 or line.activity < row.lo):
        new = y + mu * line_root(line, row.lower, y, mu)
        if new > 0:
            return _capped(new, row.cap, y)
    if row.upper is not None:
        new = y + mu * line_root(line, row.upper, y, mu)
        if new < 0:
            return _capped(new, row.cap, y)
    return 0.0


def _capped(new: float, cap: float, old: float) -> float:
    if abs(new) <= cap:
        return new if abs(new) < math.inf else old
    return old if cap == math.inf or math.isnan(new) else math.copysign(cap, new)


def _due(cycle: int, divisor: int) -> bool:
    """Whether to certify after this cycle: always at first, later after a fraction of the cycles so far."""
    return cycle % max(1, cycle // divisor) == 0


def _rows(program: Program) -> list[Row]:
    bounds = program.bounds
    least, largest = bounds.dual_range()
    ends = (bounds.lo.tolist(), bounds.hi.tolist(), np.maximum(largest, -least).tolist())
    return [
        Row(
            U,
            d,
            bounds.target(k, upper=False) if lo > -math.inf else None,
            bounds.target(k, upper=True) if lo < hi < math.inf else None,
            lo,
            hi,
            cap,
        )
        for k, ((U, d), lo, hi, cap) in enumerate(zip(program.A.factors(), *ends, strict=True))
    ]
