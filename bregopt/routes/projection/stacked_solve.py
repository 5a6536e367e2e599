"""The methods for stacks of small nearness problems, by divergence."""

from __future__ import annotations

from typing import Any

from bregopt.arrays import Array
from bregopt.divergences.stacks import StackedLogDet
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.projection.stacked_answer import StackedAnswer, StackRule
from bregopt.routes.projection.stacked_logdet import logdet_newton_stack
from bregopt.routes.projection.stacked_working_set import newton_on_acting_rows

__all__ = ["solve_stack"]


def solve_stack(stack: EntryStack, settings: Any, start: Array | None) -> StackedAnswer:
    """Solve a stack of nearness problems with bounds on entries; some of them may stay unsolved."""
    limit = settings.max_iter or settings.tuning.newton_limit
    rule = StackRule(settings.tol, settings.asked_of_X)
    if isinstance(stack.divergence, StackedLogDet):
        return logdet_newton_stack(stack, rule, limit)
    return newton_on_acting_rows(stack, rule, settings.tuning, limit, start)
