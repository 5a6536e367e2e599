"""The interior-point method for LogDet problems, with constants of its own."""

from __future__ import annotations

from typing import Any

from bregopt.program import Answer, Program, Start
from bregopt.routes import base
from bregopt.routes.ipm.logdet_newton import logdet_newton
from bregopt.routes.progress import Progress

__all__ = ["logdet_interior"]


def logdet_interior(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program whose divergences are LogDet."""
    own = base.Settings(
        tol=settings.tol,
        tol_X=settings.tol_X,
        max_iter=settings.max_iter,
        tuning=settings.tuning.interior,
    )
    return logdet_newton(program, own, start, progress)
