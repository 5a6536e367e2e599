"""Stacks with many bounded entries: Newton's method on those that act.

Bounds of all entries are as many rows as the matrix has entries, and few of them act. The method runs on the
fixed entries and on the bounds that the start or the target violates. Bounds that its answer violates join
them, until none does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bregopt.arrays import Array, Mask
from bregopt.certify.stacks import row_residual
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.projection.stacked_answer import StackedAnswer, StackRule, joined
from bregopt.routes.projection.stacked_newton import spectral_newton
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["newton_on_acting_rows"]

_ROUNDS = 12  # limit on the rounds; the problems of panels take 1 to 4

_NEAR = 0.03  # distance from a bound, relative to the diagonal, within which it may act in the next answer


def newton_on_acting_rows(
    stack: EntryStack, rule: StackRule, tuning: ProjectionTuning, limit: int, start: Array | None
) -> StackedAnswer:
    """Return the answers that meet the rule.

    Parameters
    ----------
    stack : EntryStack
    rule : StackRule
    tuning : ProjectionTuning
    limit : int
        On the steps of each round.
    start : array of shape (B, m) or None
        Multipliers.
    """
    bounded = int((stack.lo < stack.hi).any(axis=0).sum())
    if bounded <= max(tuning.working_set_rows, tuning.working_set_ratio * stack.n):
        return spectral_newton(stack, rule, tuning, limit, start)
    used = (stack.lo == stack.hi).any(axis=0)
    used |= _reached(stack, stack.divergence.X0)
    if start is not None:
        used |= (start != 0).any(axis=0)
    live, y, found = np.arange(len(stack)), start, list[StackedAnswer]()
    steps = np.zeros(len(stack), dtype=np.intp)
    for _ in range(_ROUNDS):
        own = stack[live]
        answer = spectral_newton(
            own.of_rows(used), rule, tuning, limit, None if y is None else y[live][:, used]
        )
        live = live[answer.solved]  # the others stay unsolved
        steps[live] += answer.iterations
        y = np.zeros(stack.lo.shape) if y is None else y
        y[np.ix_(live, used)] = answer.y
        own = stack[live]
        residual, _missed = row_residual(own, answer.X.diagonal(axis1=1, axis2=2), own.apply(answer.X))
        holds = residual <= rule.tol
        # The multipliers of all other rows are zero, so the gap is that of all rows.
        certificate = answer.certificate[holds]
        worst = np.maximum(certificate.primal_residual, residual[holds])
        at = live[holds]
        certificate = replace(certificate, primal_residual=worst)
        accuracy = answer.accuracy[holds]
        found.append(StackedAnswer(at, answer.X[holds], y[at], certificate, steps[at], accuracy))
        live = live[~holds]
        if len(live) == 0:
            break
        used |= _reached(own[~holds], answer.X[~holds])
    return joined(found, stack)


def _reached(stack: EntryStack, X: Array) -> Mask:
    """Return the mask of the rows that are violated, or nearly so, in one of the problems."""
    a, near = stack.apply(X), _NEAR * stack.divergence.X0.diagonal(axis1=1, axis2=2).mean(axis=1)[:, None]
    return np.any((a < stack.lo + near) | (a > stack.hi - near), axis=0)
