"""The first active set: which rows are inactive, violated and active, estimated from a sample of the rows.

A program with a random sample of the rows, whose prices are scaled up to those of all rows, has a solution
near that of the whole. Its matrices show on which side of its bound each row is. The rows nearest to their
bounds may be on either side; they form the working set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.routes.progress import Progress
from bregopt.routes.working_set import ActiveSet, can_be_inactive, sizes_at

__all__ = ["first_active_set"]

_Method = Callable[[Program, Any, Start | None, Progress], Answer]


def first_active_set(
    method: _Method, program: Program, settings: Any, count: int, start: Start | None, progress: Progress
) -> ActiveSet:
    """Return a first active set of the rows, from an earlier answer or from that of a sample.

    Parameters
    ----------
    method : callable
        Solves a program.
    program : Program
    settings : Settings
        Its seed draws the sample; its tuning is an :class:`InteriorPointTuning`.
    count : int
        The number of rows that can be inactive in the sample, and in the working set. Constraints of at
        most `count` rows, such as a bound on the trace, are in both.
    start : Start, optional
    progress : Progress
        Its clock is kept.
    """
    rest = np.flatnonzero(can_be_inactive(program.bounds) & ~_of_few(program, count))
    if start is not None and start.X:
        return _active_set_at(program, tuple(map(np.asarray, start.X)), start.u, rest, count)
    drawn = np.random.default_rng(settings.seed).choice(rest, min(count, len(rest)), replace=False)
    rows = np.union1d(np.setdiff1d(np.arange(program.m), rest), drawn)
    loose = replace(settings, verbose=False, tol=max(settings.tuning.sample_tol, settings.tol))
    answer = method(_priced(program, rows, len(rest) / len(drawn)), loose, None, Progress("some rows"))
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):
        return ActiveSet.resting(program.bounds).joined(rows)
    return _active_set_at(program, answer.X, answer.u, rest, count)


def _of_few(program: Program, count: int) -> Mask:
    """Return the mask of the rows of declared constraints with at most `count` rows."""
    few = np.zeros(program.m, dtype=bool)
    start = 0
    for _, size in program.labels:
        few[start : start + size] = size <= count
        start += size
    return few


def _priced(program: Program, rows: IntArray, scale: float) -> Program:
    """Return the program of the given rows, with the prices of hinges multiplied by `scale`."""
    bounds = program.bounds.slice(rows)
    gamma = np.where(bounds.kind == Penalty.HINGE, scale * bounds.gamma, bounds.gamma)
    return replace(
        program,
        A=program.A.slice(rows),
        B=program.B[rows],
        bounds=replace(bounds, gamma=gamma),
        labels=(),
    )


def _active_set_at(program: Program, X: Any, u: Array, rest: IntArray, count: int) -> ActiveSet:
    """Return the active set of the rows nearest to their bounds, at the best ``u`` for the matrices."""
    bounds, matrices = program.bounds, program.A.apply(X)
    u = _best_variables(program, matrices, u)
    activity = matrices + program.B @ u
    # Positive inside the bounds, negative outside.
    room = np.minimum(activity - bounds.lo, bounds.hi - activity)
    lower = activity - bounds.lo < bounds.hi - activity
    given = (room < 0) & (bounds.kind == Penalty.HINGE)
    held = np.where(given, np.where(lower, bounds.gamma, -bounds.gamma), 0.0)
    near = np.abs(room)[rest] / sizes_at(program, X, u)[rest]
    working = np.ones(program.m, dtype=bool)
    working[rest[np.argsort(near)[count:]]] = False
    return ActiveSet(working, np.where(working, 0.0, held))


def _best_variables(program: Program, matrices: Array, u: Array) -> Array:
    """Return the variables; a single free one minimizes the hinges at these matrices.

    It is a weighted quantile: hinges become violated one after the other, until their prices exceed ``c``.
    """
    bounds, free = program.bounds, np.flatnonzero(np.isinf(program.u_lo) & np.isinf(program.u_hi))
    if len(free) != 1:
        return u
    best = u.copy()
    best[free] = 0.0
    weight = program.B[:, free].toarray().ravel()
    k = np.flatnonzero((bounds.kind == Penalty.HINGE) & (weight != 0))
    activity = matrices + program.B @ best
    # A hinge has its kink at u = (bound - activity) / weight; the slope rises there by price times |weight|.
    ends, rises, slope = [], [], float(program.c[free[0]])
    for bound, side in ((bounds.lo[k], -1.0), (bounds.hi[k], 1.0)):
        there = np.isfinite(bound)
        ends.append(((bound - activity[k]) / weight[k])[there])
        rises.append((bounds.gamma[k] * np.abs(weight[k]))[there])
        slope -= float(rises[-1][side * weight[k][there] < 0].sum())
    end, rise = np.concatenate(ends), np.concatenate(rises)
    order = np.argsort(end)
    place = int(np.searchsorted(slope + np.cumsum(rise[order]), 0.0))
    if slope >= 0 or place == len(order):
        return u
    best[free] = end[order[place]]
    return best
