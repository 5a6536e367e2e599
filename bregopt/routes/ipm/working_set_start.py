"""The first active set: which rows are inactive, violated and active, estimated from a sample of the rows.

A program with a random sample of the rows, whose prices are scaled up to those of all rows, has a solution
near that of the whole. Its matrices show on which side of its bound each row is. The rows nearest to their
bounds may be on either side; they form the working set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Penalty, Program, Start, StopReason
from bregopt.records import replace
from bregopt.routes.base import Method
from bregopt.routes.progress import Progress
from bregopt.routes.working_set import ActiveSet, can_be_inactive, sizes_at

__all__ = ["first_active_set"]

# Least tolerance of the problem with a sample of the rows, which only estimates the active set.
_SAMPLE_TOL = 1e-2


def first_active_set(
    method: Method, program: Program, settings: Any, count: int, start: Start | None
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
    """
    optional = np.flatnonzero(can_be_inactive(program.bounds) & ~_in_small_constraints(program, count))
    if start is not None and start.X:
        return _active_set_at(program, tuple(map(np.asarray, start.X)), start.u, optional, count)
    sample = np.random.default_rng(settings.seed).choice(optional, min(count, len(optional)), replace=False)
    rows = np.union1d(np.setdiff1d(np.arange(program.m), optional), sample)
    rough = replace(settings, verbose=False, tol=max(_SAMPLE_TOL, settings.tol))
    scale = len(optional) / len(sample) if len(sample) else 1.0  # small constraints leave nothing to sample
    answer = method(_sampled(program, rows, scale), rough, None, Progress("some rows"))
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):
        return ActiveSet.resting(program.bounds).joined(rows)
    return _active_set_at(program, answer.X, answer.u, optional, count)


def _in_small_constraints(program: Program, count: int) -> Mask:
    """Return the mask of the rows of declared constraints with at most `count` rows."""
    small = np.zeros(program.m, dtype=bool)
    start = 0
    for _, size in program.labels:
        small[start : start + size] = size <= count
        start += size
    return small


def _sampled(program: Program, rows: IntArray, scale: float) -> Program:
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


def _active_set_at(program: Program, X: Any, u: Array, optional: IntArray, count: int) -> ActiveSet:
    """Return the active set of the rows nearest to their bounds, at the best ``u`` for the matrices."""
    bounds, matrices = program.bounds, program.A.apply(X)
    u = _best_variables(program, matrices, u)
    activity = matrices + program.B @ u
    # Positive inside the bounds, negative outside.
    distance = np.minimum(activity - bounds.lo, bounds.hi - activity)
    lower = activity - bounds.lo < bounds.hi - activity
    violated = (distance < 0) & (bounds.kind == Penalty.HINGE)
    fixed = np.where(violated, np.where(lower, bounds.gamma, -bounds.gamma), 0.0)
    relative = np.abs(distance)[optional] / sizes_at(program, X, u)[optional]
    working = np.ones(program.m, dtype=bool)
    working[optional[np.argsort(relative)[count:]]] = False
    return ActiveSet(working, np.where(working, 0.0, fixed))


def _best_variables(program: Program, matrices: Array, u: Array) -> Array:
    """Return the variables; a single free one minimizes the hinges at these matrices.

    It is a weighted quantile: hinges become violated one after the other, until their prices exceed ``c``.
    """
    bounds, free = program.bounds, np.flatnonzero(program.free)
    if len(free) != 1:
        return u
    best = u.copy()
    best[free] = 0.0
    weight = program.B[:, free].toarray().ravel()
    k = np.flatnonzero((bounds.kind == Penalty.HINGE) & (weight != 0))
    activity = matrices + program.B @ best
    # A hinge has its kink at u = (bound - activity) / weight; the slope rises there by price times |weight|.
    kinks, slope_changes, slope = [], [], float(program.c[free[0]])
    for bound, side in ((bounds.lo[k], -1.0), (bounds.hi[k], 1.0)):
        finite = np.isfinite(bound)
        kinks.append(((bound - activity[k]) / weight[k])[finite])
        slope_changes.append((bounds.gamma[k] * np.abs(weight[k]))[finite])
        slope -= float(slope_changes[-1][side * weight[k][finite] < 0].sum())
    kink, slope_change = np.concatenate(kinks), np.concatenate(slope_changes)
    order = np.argsort(kink)
    position = int(np.searchsorted(slope + np.cumsum(slope_change[order]), 0.0))
    if slope >= 0 or position == len(order):
        return u
    best[free] = kink[order[position]]
    return best
