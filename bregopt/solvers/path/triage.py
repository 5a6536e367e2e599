"""Which rows rest, which have given way and which act: a first guess, from some of the rows.

A program with a part of its rows, drawn by lot, and with the prices of all, has an answer near that of the
whole. With its matrices held, what is left is a linear program in the free variables: its multipliers say on
which side of its bound each row is; the rows nearest to theirs may be on either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.program import Bounds, Penalty, Program
from bregopt.solvers.base import Answer, Start
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import StopReason
from bregopt.solvers.working_set import Split, may_rest, sizes_at

__all__ = ["first_split"]

_TOL = 1e-2

_Method = Callable[[Program, Any, Start | None, Progress], Answer]


def first_split(method: _Method, program: Program, settings: Any, count: int, progress: Progress) -> Split:
    """Return a first split of the rows.

    Parameters
    ----------
    method : callable
        Solves a program.
    program : Program
    settings : Settings
        Its seed draws the rows.
    count : int
        Of rows that may rest: so many are drawn, and so many work.
    progress : Progress
        Its clock is kept.
    """
    rest = np.flatnonzero(may_rest(program.bounds))
    drawn = np.random.default_rng(settings.seed).choice(rest, min(count, len(rest)), replace=False)
    rows = np.union1d(np.setdiff1d(np.arange(program.m), rest), drawn)
    silent = Progress("some rows", time_limit=progress.remaining())
    loose = replace(settings, verbose=False, tol=max(_TOL, settings.tol))
    answer = method(_priced(program, rows, len(rest) / len(drawn)), loose, None, silent)
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):
        return Split.resting(program.bounds).joined(drawn)
    return _split_at(program, answer.X, answer.u, rest, count)


def _priced(program: Program, rows: IntArray, scale: float) -> Program:
    """Return the program of some rows, their hinges at `scale` times the price."""
    bounds = program.bounds.slice(rows)
    gamma = np.where(bounds.kind == Penalty.HINGE, scale * bounds.gamma, bounds.gamma)
    return replace(
        program,
        A=program.A.slice(rows),
        B=program.B[rows],
        bounds=replace(bounds, gamma=gamma),
        labels=(),
    )


def _split_at(program: Program, X: Any, u: Array, rest: IntArray, count: int) -> Split:
    """Return the split where the rows nearest to their bounds work, at the best ``u`` for the matrices."""
    bounds, matrices = program.bounds, program.A.apply(X)
    u = _best_variables(program, matrices, u)
    activity = matrices + program.B @ u
    # Above zero inside the bounds, below outside.
    room = np.minimum(activity - bounds.lo, bounds.hi - activity)
    lower = activity - bounds.lo < bounds.hi - activity
    given = (room < 0) & (bounds.kind == Penalty.HINGE)
    held = np.where(given, np.where(lower, bounds.gamma, -bounds.gamma), 0.0)
    near = np.abs(room)[rest] / sizes_at(program, X, u)[rest]
    split = Split.resting(bounds)
    return Split(split.working, np.where(split.working, 0.0, held)).joined(rest[np.argsort(near)[:count]])


def _best_variables(program: Program, matrices: Array, u: Array) -> Array:
    """Return the variables, those without bounds the best for hinges of one side, whose multipliers price them.

    By linear programming: ``max q'(bound - activity)`` over ``0 <= q <= gamma`` with ``B'q = c``.
    """
    bounds: Bounds = program.bounds
    free = np.isinf(program.u_lo) & np.isinf(program.u_hi)
    k = np.flatnonzero((bounds.kind == Penalty.HINGE) & (np.isinf(bounds.lo) != np.isinf(bounds.hi)))
    if not free.any() or len(k) == 0:
        return u
    from scipy.optimize import linprog  # slow to import

    side = np.where(np.isfinite(bounds.lo[k]), 1.0, -1.0)
    held = np.where(free, 0.0, u)
    missing = np.where(side > 0, bounds.lo[k], bounds.hi[k]) - (matrices + program.B @ held)[k]
    B = program.B[k][:, free]
    box = np.column_stack([np.zeros(len(k)), bounds.gamma[k]])
    found = linprog(-side * missing, A_eq=(B.T * side), b_eq=program.c[free], bounds=box, method="highs")
    if found.status != 0:
        return u
    best = held.copy()
    best[free] = -found.eqlin.marginals
    return best
