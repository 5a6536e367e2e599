"""Presolve for methods: the one place where programs are reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bregopt.presolve import presolve, reductions
from bregopt.program import Answer, Program, Start
from bregopt.records import replace
from bregopt.routes.progress import Progress

__all__ = ["Method", "behind"]

Method = Callable[[Program, Any, Start | None, Progress], Answer]


def behind(names: Sequence[str], method: Method) -> Method:
    """Return a method for original programs from one for reduced programs.

    Parameters
    ----------
    names : sequence of str
        Names of the reductions.
    method : callable
        Solves a program.
    """

    def run(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        presolved = presolve(program, reductions(names), settings)
        infeasible = presolved.infeasible()
        if infeasible is not None:
            return infeasible
        begin = None if start is None else presolved.shrink(start)
        margin = presolved.margin
        inside = settings if margin == 1 else replace(settings, tol=margin * settings.tol)
        answer = method(presolved.program, inside, begin, progress.within(presolved))
        return presolved.restore(answer)

    return run
