"""Newton's methods on the rows that act, where there are many inequalities and few of them do.

A row that may rest has no multiplier where it holds. So the method runs on a working set, all rows are looked
at in one product, those that are broken join, and it runs again from the multipliers found. What the working
set proves, the whole program proves: the multipliers of the other rows are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Bounds, Penalty, Program, certify
from bregopt.program.rows import Entries
from bregopt.solvers.base import Answer, Start
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import StopReason

__all__ = ["many_may_rest", "on_working_set"]

_MANY = 300  # rows that may rest, from which a working set pays
_BROKEN = 0.1  # of the tolerance: what rows may be broken by in the end
_JOIN = 0.1  # of the broken rows join at once, the worst first, and as many as the order at least
_ROUNDS = 50

_Method = Callable[[Program, Any, Start | None, Progress], Answer]


def many_may_rest(program: Program) -> bool:
    """Whether so many rows may rest that a method had better see those that act.

    On the dual, rows that are orthogonal to each other do not hold each other up, however many they are.
    """
    rest = _may_rest(program.bounds)
    if program.divergences[0] != "logdet":
        for term in program.A.terms:
            if isinstance(term.rows, Entries):
                rest[term.at] = False
    return int(rest.sum()) > max(_MANY, 3 * program.blocks[0].n)


def on_working_set(
    method: _Method, program: Program, settings: Any, start: Start | None, progress: Progress
) -> Answer:
    """Solve a nearness problem by a method that is given the rows that act.

    Parameters
    ----------
    method : callable
        Solves a program; :func:`~bregopt.solvers.bregman.logdet_newton.logdet_newton` for one.
    program : Program
        One block, no ordinary variables.
    """
    rest = _may_rest(program.bounds)
    y = np.zeros(program.m) if start is None else program.bounds.clip(start.y)
    working = ~rest | (y != 0)
    steps = 0
    answer = _on(method, program, settings, np.flatnonzero(working), y, start is not None, progress)
    for _ in range(_ROUNDS):
        steps += answer.iterations
        y = answer.y
        progress.record(steps, certify(program, answer.X, answer.u, y), rows=float(working.sum()))
        broken = np.where(rest & ~working, _broken(program, answer.X[0]), 0.0)
        if answer.stop is not StopReason.CONVERGED or broken.max() <= _BROKEN * settings.tol:
            break
        joining = min((broken > 0).sum(), max(program.blocks[0].n, _JOIN * (broken > 0).sum()))
        working[np.argsort(-broken)[: int(joining)]] = True
        answer = _on(method, program, settings, np.flatnonzero(working), y, True, progress)
    return replace(answer, iterations=steps)


def _on(
    method: _Method, program: Program, settings: Any, rows: IntArray, y: Array, warm: bool, progress: Progress
) -> Answer:
    """Return the answer on some rows, its multipliers those of all."""
    own = replace(
        program, A=program.A.slice(rows), B=program.B[rows], bounds=program.bounds.slice(rows), labels=()
    )
    start = Start((), np.zeros(0), y[rows]) if warm else None
    silent = Progress("working set", time_limit=progress.remaining())
    answer = method(own, replace(settings, verbose=False), start, silent)
    whole = np.zeros(program.m)
    whole[rows] = answer.y
    return replace(answer, y=whole)


def _may_rest(bounds: Bounds) -> Mask:
    """Return which rows may have no multiplier: those with room between their bounds.

    Rows with a smooth penalty are left to the methods, to which they cost little.
    """
    mask: Mask = (bounds.lo < bounds.hi) & (bounds.kind <= Penalty.HINGE)
    return mask


def _broken(program: Program, X: Array) -> Array:
    """Return how far each row is broken, relative to its own size."""
    activity = program.A.apply((X,))
    size = np.maximum(np.abs(activity), np.finfo(float).tiny)
    for end in (program.bounds.lo, program.bounds.hi):
        size = np.maximum(size, np.where(np.isfinite(end), np.abs(end), 0.0))
    return program.bounds.violation(activity) / size
