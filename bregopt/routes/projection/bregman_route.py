"""The route `bregman`: nearness problems by Bregman projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bregopt.arrays import Array
from bregopt.divergences.stacks import StackedLogDet
from bregopt.errors import did_you_mean
from bregopt.presolve import presolve, reductions
from bregopt.program import ENDED, Answer, Program, Start, StopReason
from bregopt.program.entry_stack import EntryStack
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.graphical_lasso import as_lasso
from bregopt.routes.progress import Progress
from bregopt.routes.projection.algorithms import (
    DEMPSTER,
    KULIS,
    METHODS,
    WHITENING,
    algorithm_of,
    kinds_of,
    method_of,
)
from bregopt.routes.projection.cold_newton import LARGEST_COLD, Proven, proven_from_cold
from bregopt.routes.projection.pattern_newton import fixed_entries, pattern_newton
from bregopt.routes.projection.proximal import proximal, with_proximal_terms
from bregopt.routes.projection.refusals import reduced, refusal
from bregopt.routes.projection.row_passes import after_row_passes, suits_row_passes
from bregopt.routes.projection.stacked_answer import StackedAnswer
from bregopt.routes.projection.stacked_logdet import logdet_newton_stack
from bregopt.routes.projection.stacked_working_set import newton_on_acting_rows
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.working_set import ActiveSet, can_be_inactive, on_working_set

__all__ = ["Bregman", "BregmanSettings"]

_FINAL = (StopReason.CONVERGED, StopReason.UNBOUNDED, StopReason.MAX_ITER, *ENDED)


@dataclass(frozen=True, kw_only=True)
class BregmanSettings(base.Settings):
    """Options of the route `bregman`.

    Parameters
    ----------
    method : {"auto", "newton", "cyclic"}
        "newton" moves all rows at once, "cyclic" projects on one row of one matrix at a time. "auto" uses
        "cyclic" for LogDet with a single row, where one projection gives the solution, and "newton"
        otherwise. Where soft rows with smooth penalties are many and the matrix small, "auto" begins with
        L-BFGS, whose iterations are passes over the rows.
    tuning : ProjectionTuning
        Numerical constants of the method.
    """

    method: str = "auto"
    tuning: ProjectionTuning = ProjectionTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}{did_you_mean(str(self.method), METHODS)}")


class Bregman:
    """Bregman projection of matrices, each with its divergence: LogDet, von Neumann, Frobenius or yours."""

    name: ClassVar[str] = "bregman"
    summary: ClassVar[str] = "nearness in LogDet, von Neumann or Frobenius divergence; full or low rank"
    citation: ClassVar[str] = KULIS
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear", "barrier", "spectrum", "point", "weights"}),
        caps=True,
        matrices=8,
        reductions=("slacks",),
    )
    Settings: ClassVar[type[base.Settings]] = BregmanSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        return refusal(program, settings)

    def choice(self, program: Program, settings: Any) -> str:
        proximal_steps = None in program.divergences
        program = reduced(with_proximal_terms(program), settings)
        method = method_of(program, settings)
        if _weighted(program):
            return "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
        if method == "newton" and as_lasso(program) is not None:
            return "method 'newton', for sparse inverse covariances"
        single = settings.method == "auto" and method == "cyclic" and program.m == 1
        on_some = method == "newton" and _many_inactive(program, settings.tuning)
        why = ", for one row alone" if single else ", on a working set of rows" if on_some else ""
        passes = (
            ["L-BFGS over the rows first, unless penalties are heavy"]
            if _begins_with_passes(program, settings)
            else []
        )
        white = presolve(program, reductions(WHITENING), settings).summaries if method == "newton" else []
        steps = ["proximal steps for matrices without a divergence"] if proximal_steps else []
        return "; ".join([f"method {method!r}{why}", *passes, *steps, *white])

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        method = proximal(_solve) if None in program.divergences else _solve
        return method(program, settings, start, progress)

    def solve_stack(self, stack: EntryStack, settings: Any, start: Array | None = None) -> StackedAnswer:
        """Solve a stack of nearness problems with bounds on entries; some of them may stay unsolved.

        `start` has multipliers of all rows, shape (B, m). LogDet's method has no use for them.
        """
        limit = settings.max_iter or settings.tuning.newton_limit
        if isinstance(stack.divergence, StackedLogDet):
            return logdet_newton_stack(stack, settings.tol, limit)
        return newton_on_acting_rows(stack, settings.tol, settings.tuning, limit, start)

    def nearest_correlations(self, A: Array, settings: Any) -> Proven | None:
        """Return the nearest correlation matrices in the Frobenius norm to those of a stack, to round-off.

        None if the order is not small, or not all of the answers are proven.
        """
        return None if A.shape[1] > LARGEST_COLD else proven_from_cold(A, settings.tol, settings.max_iter)


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables."""
    special = _special(program, settings, start, progress)
    if special is not None:
        return special
    method = method_of(program, settings)
    found = algorithm_of(kinds_of(program), len(program.blocks) > 1, method)
    assert found is not None
    run = found.run
    if _begins_with_passes(program, settings):
        answer = after_row_passes(run)(program, settings, start, progress)
    elif method == "newton" and not _weighted(program) and _many_inactive(program, settings.tuning):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = ActiveSet.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=answer.citation or found.citation)


def _begins_with_passes(program: Program, settings: Any) -> bool:
    return settings.method == "auto" and suits_row_passes(program, settings.tuning)


def _special(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of a method for fixed entries or a graphical lasso, None where none fits or ends."""
    if settings.method == "cyclic":
        return None
    fixed = None if start is not None else fixed_entries(program, settings.tuning)
    answer = None if fixed is None else pattern_newton(fixed, settings, progress)
    if answer is not None:
        return replace(answer, citation=DEMPSTER)
    lasso = as_lasso(program) if method_of(program, settings) == "newton" else None
    if lasso is None:
        return None
    answer = lasso.solve(settings.tol, settings.max_iter, settings.tuning.lasso, start, progress)
    return answer if answer.stop in _FINAL else None


def _weighted(program: Program) -> bool:
    return any(kind.weights for kind in kinds_of(program))


def _many_inactive(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether so many rows can be inactive that a method runs on a working set.

    On the dual, mutually orthogonal rows do not slow each other down, however many they are.
    """
    inactive = can_be_inactive(program.bounds)
    if not all(kind.barrier for kind in kinds_of(program)):
        for term in program.A.terms:
            if term.rows.single:
                inactive[term.at] = False
    order = sum(block.n for block in program.blocks)
    return int(inactive.sum()) > max(tuning.working_set_rows, tuning.working_set_ratio * order)
