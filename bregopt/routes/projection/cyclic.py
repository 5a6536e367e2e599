"""Cyclic Bregman projection with dual corrections (Kulis et al. 2009, Algorithms 2 and 3).

The method maximizes the dual function in the multiplier of one row at a time. A violated row is projected
onto; other rows move back towards their bound, by at most the earlier projections (eq. 8). The loop is
independent of the divergence, which a :class:`~bregopt.divergences.Point` implements. It is not
:meth:`~bregopt.routes.monitor.Monitor.follow`, because only some cycles are certified, all update one point
in place, and the projections of an interrupted cycle count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError

from bregopt.arrays import Array
from bregopt.certify import PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.divergences import Line, Point, line_root
from bregopt.program import Answer, Program, Start, StopReason, Target
from bregopt.program.anchor import divergence_of
from bregopt.routes.monitor import Monitor
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["cyclic_projection", "new_multiplier"]

_NO_VARIABLES = np.zeros(0)


@dataclass(frozen=True)
class Row:
    """One row for the inner loop: factor, targets at its two bounds, limit on its multiplier."""

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
    stop = monitor.look(cycle, certify(PrimalDualPoint(program, (point.X,), _NO_VARIABLES, y)), y)
    try:
        while stop is None:
            cycle += 1
            sweep(point, rows, y, mu)
            if cycle >= limit or _due(cycle, tuning.certificate_divisor):
                # Rebuilding the point from the multipliers removes the round-off of the updates.
                point.reset(block.C - program.A.adjoint(y))
                stop = monitor.look(cycle, certify(PrimalDualPoint(program, (point.X,), _NO_VARIABLES, y)), y)
                stop = stop or (StopReason.MAX_ITER if cycle >= limit else None)
    except CutShort as cut:
        stop = reason(cut)
    if stop is StopReason.INFEASIBLE:
        y = monitor.farkas
    return Answer((point.X,), _NO_VARIABLES, y, stop, cycle)


def sweep(point: Point, rows: list[Row], y: Array, mu: float) -> None:
    """Project on every row once, in order; `y` is updated in place."""
    for k, row in enumerate(rows):
        checkpoint()
        if len(row.d):
            line = point.line(row.U, row.d)
            old = float(y[k])
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
    capped = min(max(new, -cap), cap)
    return capped if math.isfinite(capped) else old


def _due(cycle: int, divisor: int) -> bool:
    """Whether to certify after this cycle: always at first, later after a fraction of the cycles so far."""
    return cycle % max(1, cycle // divisor) == 0


def _rows(program: Program) -> list[Row]:
    bounds = program.bounds
    least, largest = bounds.dual_range()
    caps = np.maximum(largest, -least)
    return [
        Row(
            U,
            d,
            bounds.target(k, upper=False) if np.isfinite(bounds.lo[k]) else None,
            bounds.target(k, upper=True) if np.isfinite(bounds.hi[k]) else None,
            float(bounds.lo[k]),
            float(bounds.hi[k]),
            float(caps[k]),
        )
        for k, (U, d) in enumerate(program.A.factors())
    ]
