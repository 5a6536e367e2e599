"""Newton's method on the dual for von Neumann and its like, whose minimizers are exponentials."""

from __future__ import annotations

from typing import Any

from bregopt.program import Answer, Program, Start
from bregopt.routes.progress import Progress
from bregopt.routes.projection.dual_interior import dual_interior, has_more_rows_than_unknowns
from bregopt.routes.projection.dual_newton import dual_newton

__all__ = ["exponential_newton"]


def exponential_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program, with a barrier where multipliers may not be unique."""
    on_dual = dual_interior if has_more_rows_than_unknowns(program, settings.tuning) else dual_newton
    return on_dual(program, settings, start, progress)
