"""How the route `bregman` solves a program: which method it takes, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bregopt.presolve import presolve, reductions
from bregopt.program import ENDED, Answer, Penalty, Program, Start, StopReason
from bregopt.records import replace
from bregopt.routes.progress import Progress
from bregopt.routes.projection.algorithms import (
    DEMPSTER,
    WHITENING,
    algorithm_of,
    kind_of,
    kinds_of,
    method_of,
    with_proximal_terms,
)
from bregopt.routes.projection.refusals import reduced
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.working_set import ActiveSet, can_be_inactive, on_working_set

if TYPE_CHECKING:
    from bregopt.routes.graphical_lasso.recognition import LassoProgram

__all__ = ["choice", "solve"]

_FINAL = (StopReason.CONVERGED, StopReason.UNBOUNDED, StopReason.MAX_ITER, *ENDED)


def choice(program: Program, settings: Any) -> str:
    """Return the method for a program and why, a phrase for ``explain``."""
    proximal_steps = None in program.divergences
    program = reduced(with_proximal_terms(program), settings)
    method = method_of(program, settings)
    if _weighted(program):
        return "elementwise weights, by an augmented Lagrangian or, where small, an interior point"
    if method == "newton" and _lasso(program) is not None:
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


def solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program without ordinary variables. Methods for some programs are imported when one comes."""
    if None not in program.divergences:
        return _solve(program, settings, start, progress)
    from bregopt.routes.projection.proximal import proximal

    return proximal(_solve)(program, settings, start, progress)


def _solve(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program whose matrices all have a divergence."""
    special = _by_entries(program, settings, start, progress)
    if special is not None:
        return special
    method = method_of(program, settings)
    found = algorithm_of(kinds_of(program), len(program.blocks) > 1, method)
    assert found is not None
    run = found.run
    if _begins_with_passes(program, settings):
        from bregopt.routes.projection.row_passes import after_row_passes

        answer = after_row_passes(run)(program, settings, start, progress)
    elif method == "newton" and not _weighted(program) and _many_inactive(program, settings.tuning):
        begin = None if start is None else Start((), start.u, program.bounds.clip(start.y))
        first = ActiveSet.resting(program.bounds, None if begin is None else begin.y)
        answer = on_working_set(run, program, settings, first, begin, progress)
    else:
        answer = run(program, settings, start, progress)
    return replace(answer, citation=answer.citation or found.citation)


def _by_entries(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer | None:
    """Return the answer of a method for LogDet with rows on entries, None where none fits or ends."""
    if settings.method == "cyclic" or not _is_logdet_of_entries(program):
        return None
    from bregopt.routes.projection.pattern_newton import fixed_entries, pattern_newton

    fixed = None if start is not None else fixed_entries(program, settings.tuning)
    answer = None if fixed is None else pattern_newton(fixed, settings, progress)
    if answer is not None:
        return replace(answer, citation=DEMPSTER)
    lasso = _lasso(program) if method_of(program, settings) == "newton" else None
    if lasso is None:
        return None
    answer = lasso.solve(settings.tol, settings.max_iter, settings.tuning.lasso, start, progress)
    return answer if answer.stop in _FINAL else None


def _lasso(program: Program) -> LassoProgram | None:
    """Return the program as a sparse inverse covariance problem, None if it is not one."""
    if not _is_logdet_of_entries(program):
        return None
    from bregopt.routes.graphical_lasso.recognition import as_lasso

    return as_lasso(program)


def _is_logdet_of_entries(program: Program) -> bool:
    """Whether there is one matrix, its divergence has a barrier, and each row is on one of its entries."""
    barrier = len(program.blocks) == 1 and kind_of(program.blocks[0]).barrier
    return barrier and all(term.rows.single for term in program.A.terms)


def _begins_with_passes(program: Program, settings: Any) -> bool:
    return settings.method == "auto" and _suits_row_passes(program, settings.tuning)


def _suits_row_passes(program: Program, tuning: ProjectionTuning) -> bool:
    """Whether a pass over the rows takes far less time than a Newton step: many soft rows, a small order."""
    if len(program.blocks) > 1 or program.k:
        return False
    (block,) = program.blocks
    nearness, n = block.nearness, block.n
    if program.m < max(tuning.pass_rows, tuning.pass_ratio * n) or nearness is None or block.cap is not None:
        return False
    exponential, barrier = nearness.kind.exponential, nearness.kind.barrier and n >= tuning.pass_order
    return (
        (exponential or barrier)
        and not nearness.parameters
        and bool((program.bounds.kind > int(Penalty.HINGE)).all())
        and all(term.rows.rank == 1 for term in program.A.terms)
        and bool(program.A.definite_signs.all())
    )


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
