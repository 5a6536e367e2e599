"""From a program to a certified answer: reductions, route, certificate and status."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.certify import (
    NEAR,
    Certificate,
    PrimalDualPoint,
    Status,
    certify,
    check_families,
    cost_of_round_off,
    divergence_factor,
)
from bregopt.certify.point import ROW_NOISE
from bregopt.certify.restoration import on_rows
from bregopt.clock import CutShort
from bregopt.errors import ConvergenceWarning, SolverError, warn_caller
from bregopt.presolve import REVEALED, UNIVERSAL, Presolved, certificate_on_faces, presolve, summaries
from bregopt.program import (
    ENDED,
    Answer,
    Block,
    LowRank,
    Matrix,
    Program,
    Start,
    StopReason,
    pays,
    stored_terms,
)
from bregopt.program.convex_terms import tangent_inside, with_constant_terms, with_log_dets
from bregopt.program.scale import scale_of
from bregopt.records import replace
from bregopt.rigorous import proves_infeasible, proves_unbounded
from bregopt.routes.alternatives import with_attainment
from bregopt.routes.base import Settings, Solver, behind
from bregopt.routes.progress import Progress, Watcher, digits_bar, reason
from bregopt.routes.registry import Guard, answer_of, guard
from bregopt.routes.solution import Solution

_ON_FACES = "Its multipliers prove it where the rows hold X; of all rows none as good were found."
_NO_INTERIOR = (
    "Combinations of rows leave no interior, up to round-off: {}. The dual optimum may not be attained, and "
    "small changes of the data may change the value by much more."
)
_AT_ROUND_OFF = "in doubles the objective is known to {:.1e}, and tol asks for {:.1e}."

logger = logging.getLogger(__name__)

# Reductions before the certificate: low-rank blocks are dense after them, and constants that are variables
# with an equality of their own, such as x_0 == 1, count in the scale.
_RESTATING = ("range space", "fixed variables")
_TO_CERTIFY = 1.0  # time for the certificate of a block, in eigendecompositions (an upper estimate)
_SPARSE = 0.1  # of a block's entries: matrices with fewer terms are not formed
_FIRST_ORDER = 1e-6  # the largest dual residual, and a hundredth of the gap, up to which an error is claimed
_ON_ROWS = 10  # violations in units of round-off up to which an answer is moved to its rows
_LARGEST_PROJECTED = 1_000_000  # entries of rows of variables above which these are not moved
_NEARLY_ZERO = 1e-6  # largest matrix, relative to its scale, in place of which zero is tried
_SMALL = 2_000  # largest order at which a first matrix is formed


def run(
    solver: Solver, program: Program, settings: Settings, start: Solution | None, warn: bool = True
) -> Solution:
    """Solve a program by one route and return the certified answer, in the program's terms."""
    with clock.limited(settings.time_limit), digits_bar(solver.name, settings.tol, settings.progress) as bar:
        watchers = [watcher for watcher in (settings.callback, bar) if watcher is not None]
        kept = guard(solver, program)
        with kept(solver, program):
            solution = _run(solver, program, settings, start, watchers, kept)
    if warn:
        warn_unproven(solution, settings.tol)
    return solution


def run_directly(
    solver: Any, program: Program, settings: Settings, start: Solution | None, warn: bool = True
) -> Solution | None:
    """Return the answer of a route of ours that certifies it by itself; None where it does not take one.

    Nobody watches its steps.
    """
    begin = time.perf_counter()
    progress = Progress(solver.name, maximize=program.maximize)
    first = start and _started(start, Presolved(program, ()), program.m)
    found = solver.solve_directly(program, settings, first, progress)
    if found is None:
        return None
    answer, certificate = found
    if answer.stop is not StopReason.CONVERGED:
        answer = _plain(program, answer)
    certificate = _within_first_order(program, answer, certificate, settings.tol)
    status = _judged(program, answer, certificate, settings.tol)
    if status in (Status.INFEASIBLE_INACCURATE, Status.UNBOUNDED_INACCURATE):
        return None
    seconds = time.perf_counter() - begin
    timings = {"setup": 0.0, "solve": seconds, "certify": 0.0, "total": seconds}
    solution = _solution(solver, program, answer, certificate, status, timings, progress)
    if warn:
        warn_unproven(solution, settings.tol)
    return solution


def _run(
    solver: Solver,
    program: Program,
    settings: Settings,
    start: Solution | None,
    watchers: Sequence[Watcher],
    kept: Guard,
) -> Solution:
    begin = time.perf_counter()
    given, program = program, settings.completed(program)
    check_families(program)
    restated = presolve(program, _RESTATING, settings)
    if logger.isEnabledFor(logging.INFO):
        for summary in reductions_of(type(solver), given, settings):
            logger.info("%s: after %s", solver.name, summary)
    progress = Progress(_title(solver, restated), settings.verbose, program.maximize, watchers)
    first = _started(start, restated, given.m)
    ready = time.perf_counter()
    reserved = clock.reserving(_seconds_to_certify(restated.program))
    with reserved, clock.stoppable(), kept(solver, restated.program):
        answer = _solved(solver, restated.program, settings, first, progress)
    answer = _plain(restated.program, answer)
    posed = program
    if program.terms:  # another program certifies the answer from here on
        if answer.stop is StopReason.INFEASIBLE:
            program = replace(program, terms=tuple(t for t in program.terms if t.rows is not None))
        ray = answer.stop is StopReason.UNBOUNDED
        given = program = with_constant_terms(program) if ray else _tangent(program, answer)
        restated = Presolved(program, ())
    solved = time.perf_counter()
    with clock.finishing(), kept(solver, restated.program, answer):
        answer, certificate = _certified(restated.program, answer, settings)
        point = PrimalDualPoint(restated.program, answer.X, answer.u, answer.y)
        diverges = divergence_factor(point) > 1
        if diverges or not certificate.meets(settings.tol):
            answer, certificate = with_attainment(
                restated.program, answer, certificate, settings.tol, diverges
            )
    certificate = _within_first_order(restated.program, answer, certificate, settings.tol)
    if certificate.is_at_round_off(settings.tol):
        answer = replace(answer, detail=_round_off(restated.program, answer, certificate, settings.tol))
    whole = restated.restore(answer)
    status = _judged(restated.whole, whole, certificate, settings.tol)
    if status is Status.INFEASIBLE_INACCURATE and posed.terms:
        proven = _succeeds(proves_infeasible, with_log_dets(posed), whole.y[: posed.m])
        status = Status.INFEASIBLE if proven else status
    answer = whole if given is program else replace(whole, y=whole.y[: given.m])
    program.reductions.clear()  # the solution holds the program, and would hold them too
    done = time.perf_counter()
    timings = {
        "setup": ready - begin,
        "solve": solved - ready,
        "certify": done - solved,
        "total": done - begin,
    }
    solution = _solution(solver, given, answer, certificate, status, timings, progress)
    log_answer(solution)
    return solution


def _tangent(program: Program, answer: Answer) -> Program:
    """Return the program with the tangents at an answer, or at the nearest point inside their domain."""
    found = tangent_inside(program, answer.X, answer.u)
    if found is None:
        raise SolverError("the answer is outside the domain of an entropy or logarithm of the problem")
    revealed = program.reductions.get(REVEALED)  # of the rows, which both have
    if revealed is not None:
        found.reductions[REVEALED] = replace(revealed, whole=found)
    return found


def log_answer(solution: Solution) -> None:
    """Log the numbers of an answer."""
    logger.info(
        "%s: %s after %d iterations and %.3g s, value %.8g, gap %.1e, residuals %.1e and %.1e",
        *(solution.solver, solution.status, solution.iterations, solution.timings["total"], solution.value),
        *(solution.gap, solution.primal_residual, solution.dual_residual),
    )


def _solved(
    solver: Solver, program: Program, settings: Settings, start: Start | None, progress: Progress
) -> Answer:
    """Return the answer of a route, or the first point if the route was cut short before it had one."""
    try:
        for block in program.blocks:  # every route starts with a decomposition of X0
            clock.checkpoint(0 if block.nearness is None else block.n)
        method = behind(_names(solver), partial(answer_of, solver))
        return method(program, settings, start, progress)
    except CutShort as cut:
        X = tuple(map(_first, program.blocks)) if start is None or not start.X else start.X
        u = np.clip(np.zeros(program.k), program.u_lo, program.u_hi) if start is None else start.u
        return Answer(X, u, np.zeros(program.m) if start is None else start.y, reason(cut), 0)


def _names(solver: Solver | type[Solver]) -> list[str]:
    """Return the names of a route's reductions: the universal ones, then those in its capabilities."""
    return [*(name for name in UNIVERSAL if name not in _RESTATING), *solver.capabilities.reductions]


def reductions_of(solver: type[Solver], program: Program, settings: Settings) -> list[str]:
    """Return summaries of the reductions that a program undergoes before a route gets it."""
    return summaries(program, [*_RESTATING, *_names(solver)], settings)


def _first(block: Block) -> Matrix:
    """Return a psd matrix of a block at no cost: ``X0``, or its diagonal if ``X0`` may be indefinite.

    For a linear objective it is the identity, or zero if the identity is too large to be formed.
    """
    if block.nearness is None:
        return LowRank(np.zeros((block.n, 1))) if block.n > _SMALL else np.eye(block.n)
    X0 = np.asarray(block.nearness.X0)
    return X0 if block.nearness.kind.definite_start else np.diag(np.maximum(X0.diagonal(), 0.0))


def _seconds_to_certify(program: Program, X: Sequence[Matrix] = ()) -> float:
    """Return an estimate of the time for the certificate in seconds: its blocks' decompositions.

    Large blocks with few terms, or of low rank, are not decomposed; their proofs respect the time limit by
    themselves.
    """
    if clock.remaining() == math.inf:
        return 0.0
    terms = [0.0 if block.cost is None else float(stored_terms(block.cost)) for block in program.blocks]
    for term in program.A.terms:
        terms[term.block] += stored_terms(term.rows)
    few = [isinstance(X_b, LowRank) for X_b in X] or [False] * len(terms)
    return sum(
        clock.seconds_for(block.n, _TO_CERTIFY)
        for block, count, low_rank in zip(program.blocks, terms, few, strict=True)
        if block.nearness is not None or (count > _SPARSE * block.n**2 and not low_rank)
    )


def _plain(program: Program, answer: Answer) -> Answer:
    """Return the answer with symmetric matrices of our own classes.

    The multipliers of a contradiction are in their range, and those of a zero objective are zero.
    """
    X, y = tuple(LowRank(M.factor) if isinstance(M, LowRank) else (M + M.T) / 2 for M in answer.X), answer.y
    if answer.stop is StopReason.INFEASIBLE:
        y = program.bounds.clip_required(y)
    elif not pays(program):
        y = 0 * y
    return replace(answer, X=X, y=y)


def _certified(program: Program, answer: Answer, settings: Settings) -> tuple[Answer, Certificate]:
    """Return the answer and its certificate, on the implied faces if that for all rows fails.

    If the dual is not attained, no multipliers of all rows may be as good as those on the faces. If the time
    is over and a certificate takes long, the certificate proves nothing.
    """
    tol = settings.tol
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):  # whose proof is judged apart
        return answer, _unproven(program, answer)
    if clock.remaining() < (needed := _seconds_to_certify(program, answer.X)) and needed:
        return answer, _unproven(program, answer)
    # A factorization alone seldom proves the answer of a route that was cut short.
    sharp = answer.stop in ENDED
    certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y, sharp=sharp, S=answer.S))
    if certificate.meets(tol):
        return answer, certificate
    if tol < certificate.primal_residual <= NEAR:
        answer, certificate = _on_rows(program, answer, certificate)
    if not sharp and any(block.nearness is None for block in program.blocks):
        certificate = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y, S=answer.S))
    if not certificate.meets(tol):
        answer, certificate = _at_zero(program, answer, certificate, tol)
    if answer.y_on_faces is None or certificate.meets(tol):
        return answer, certificate
    from bregopt.presolve.revealed_faces import revealed_faces  # only answers that stall wait

    try:
        proven = certificate_on_faces(program, answer)
        if proven.meets(tol):
            # Multipliers of all rows bound a square nearly as well; a linear objective they need not bound.
            y = answer.y if program.curved else answer.y_on_faces
            return replace(answer, y=y, detail=_ON_FACES), proven
        revealed = revealed_faces(program, answer.y)
    except CutShort:
        return answer, certificate
    if revealed is None:
        return answer, certificate
    for y in (answer.y, answer.y_on_faces):
        proven = revealed.certificate(answer.X, answer.u, y)
        if proven.meets(tol):
            # On an exact face a multiple of F costs nothing, and makes C - A*(y) nearly psd.
            y = answer.y if revealed.miss == 0 else y
            return replace(answer, y=y, detail=_ON_FACES), proven
    return replace(answer, detail=_NO_INTERIOR.format(revealed.summary)), certificate


# Pays on: a centered matrix of least trace.
def _at_zero(
    program: Program, answer: Answer, certificate: Certificate, tol: float
) -> tuple[Answer, Certificate]:
    """Return the point zero where it meets the rows and its certificate the tolerance, else the answer.

    Iterates converge to a solution of zero at a rate: relative to them, their round-off does not decrease.
    """
    small = _NEARLY_ZERO * scale_of(program).primal
    near = all(float(np.linalg.norm(np.asarray(M.diagonal()))) <= small for M in answer.X)
    inside = near and (program.u_lo <= 0).all() and (program.u_hi >= 0).all()
    if not inside or program.bounds.violation(np.zeros(program.m)).any():
        return answer, certificate
    zero = tuple(
        LowRank(np.zeros((block.n, 1))) if isinstance(M, LowRank) else np.zeros((block.n, block.n))
        for block, M in zip(program.blocks, answer.X, strict=True)
    )
    found = certify(PrimalDualPoint(program, zero, np.zeros(program.k), answer.y))
    if not found.meets(tol):
        return answer, certificate
    return replace(answer, X=zero, u=np.zeros(program.k), S=None), found


# Pays on: qap5.
def _on_rows(program: Program, answer: Answer, certificate: Certificate) -> tuple[Answer, Certificate]:
    """Return the answer after the least change that puts it on its rows, if that is nearer to feasible.

    An entry that is nearly zero has the round-off of a matrix that a method moves along a face. That is much
    beside a row of such entries.
    """
    if not answer.X or program.curved or any(isinstance(X, LowRank) for X in answer.X):
        return answer, certificate
    missed = PrimalDualPoint(program, answer.X, answer.u, answer.y).violations
    if (missed > _ON_ROWS * ROW_NOISE * scale_of(program).primal * program.row_units).any():
        return answer, certificate
    u = _on_rows_of_variables(program, answer.u)
    moved = replace(answer, X=on_rows(program, answer.X, u), u=u)
    found = certify(PrimalDualPoint(program, moved.X, moved.u, moved.y, S=moved.S))
    better = found.primal_residual < certificate.primal_residual
    return (moved, found) if better else (answer, certificate)


def _on_rows_of_variables(program: Program, u: Array) -> Array:
    """Return the nearest variables on the equalities that depend on no matrix."""
    alone = np.flatnonzero(program.bounds.equal & program.bounds.hard & (program.A.norms() == 0))
    if not program.k or len(alone) * program.k > _LARGEST_PROJECTED:
        return u
    B = program.B[alone].toarray()
    return u - np.linalg.lstsq(B, B @ u - program.bounds.lo[alone], rcond=None)[0]


def _within_first_order(
    program: Program, answer: Answer, certificate: Certificate, tol: float
) -> Certificate:
    """Return the certificate with an error that counts round-off of ``C - A*(y)``, if an error is known.

    Gap and error are of first order in the residuals, so they mean nothing at a point that is far from the
    rows or cones. The same holds for the bound of multipliers that are far from the dual cone. Where a dual
    residual, or the gap of a divergence that is known up to round-off, is not small, the optimum may be far
    from the points at which their cost was counted.
    """
    near = max(tol, NEAR)
    if max(certificate.primal_residual, certificate.dual_residual) > near:
        dual = certificate.dual if certificate.dual_residual <= near else -math.inf
        return replace(certificate, dual=dual, gap=math.inf, error=math.inf)
    small = max(tol, _FIRST_ORDER)
    blurred = certificate.evaluation_error > 0 or certificate.dual_residual > 0
    if certificate.dual_residual > small or (blurred and certificate.gap > 100 * small):
        return replace(certificate, error=math.inf)
    y = answer.y if answer.detail != _ON_FACES or answer.y_on_faces is None else answer.y_on_faces
    cost = cost_of_round_off(program, answer.X, y)
    return replace(certificate, error=certificate.error + cost) if cost else certificate


def _unproven(program: Program, answer: Answer) -> Certificate:
    """Return the certificate that proves nothing, with the value of a linear objective."""
    primal = math.nan
    if all(block.nearness is None for block in program.blocks):
        primal = sum(block.cost_value(X) for block, X in zip(program.blocks, answer.X, strict=True))
        primal += float(program.c @ answer.u) + program.offset
        primal += float(program.bounds.penalty(program.activity(answer.X, answer.u)).sum())
    return Certificate(primal, -math.inf, math.inf, math.inf, math.inf, math.inf)


def _started(start: Solution | None, presolved: Presolved, m: int) -> Start | None:
    """Return an earlier answer to `m` rows as a start; matrices are kept only if the orders agree."""
    if start is None or start.X is None or start.duals is None:
        return None
    program = presolved.whole
    if len(start.duals) != m or len(start.u) != program.k:
        raise ValueError(
            f"warm_start has {len(start.duals)} rows and {len(start.u)} variables; "
            f"expected {m} and {program.k}"
        )
    fits = len(start.X) == len(program.blocks) and all(
        X.shape[0] == block.n and not (isinstance(X, LowRank) and block.nearness is not None)
        for X, block in zip(start.X, program.blocks, strict=True)
    )
    _, u, y = start._point
    y = np.pad(y, (0, program.m - m))
    return presolved.shrink(Start(tuple(start.X) if fits else (), u, y, start._S if fits else None))


def _judged(program: Program, answer: Answer, certificate: Certificate, tol: float) -> Status:
    """Return the status of an answer to the given program; the route's claim never improves it.

    That there is no optimum is said without "inaccurate" only where it is proven with no tolerance.
    """
    if answer.stop is StopReason.INFEASIBLE:
        proven = _succeeds(proves_infeasible, program, answer.y)
        return Status.INFEASIBLE if proven else Status.INFEASIBLE_INACCURATE
    if answer.stop is StopReason.UNBOUNDED:
        proven = _succeeds(proves_unbounded, program, answer.X, answer.u)
        return Status.UNBOUNDED if proven else Status.UNBOUNDED_INACCURATE
    return certificate.status(tol, answer.stop)


def _succeeds(proof: Callable[..., bool], *claim: Any) -> bool:
    """Whether a claim is proven in the time that is left."""
    try:
        with clock.finishing():
            return proof(*claim)
    except CutShort:
        return False


def _round_off(program: Program, answer: Answer, certificate: Certificate, tol: float) -> str:
    """Return the sentence that says to which error the objective is known, and which matrix is the reason."""
    conditions = [
        (float(np.linalg.cond(np.asarray(matrix))), f"{name}{block.name} has condition")
        for block, X in zip(program.blocks, answer.X, strict=True)
        if block.nearness is not None and block.nearness.kind.definite_start
        for name, matrix in (("X0 of ", block.nearness.X0), ("", X))
    ]
    condition, reason = max(conditions, default=(math.nan, ""))
    known = _AT_ROUND_OFF.format(certificate.evaluation_error, tol * certificate.size)
    return f"{reason} {condition:.1e}: {known}" if reason else known.capitalize()


def _solution(
    solver: Solver,
    program: Program,
    answer: Answer,
    certificate: Certificate,
    status: Status,
    timings: dict[str, float],
    progress: Progress,
) -> Solution:
    has_point = status.has_point
    infeasible = status in (Status.INFEASIBLE, Status.INFEASIBLE_INACCURATE)
    value = certificate.primal if has_point else np.inf if infeasible else -np.inf
    claimed = StopReason.INACCURATE if answer.stop is StopReason.CONVERGED else answer.stop
    reason = StopReason.CONVERGED if status is Status.OPTIMAL else claimed
    return Solution(
        status=str(status),
        stop_reason=f"{reason} {answer.detail}".strip(),
        value=float(value),
        X=tuple(answer.X) if has_point else None,
        u=answer.u,
        duals=answer.y if has_point or infeasible else None,
        dual_value=certificate.dual if has_point else float(value),
        gap=certificate.gap if has_point else np.nan,
        primal_residual=certificate.primal_residual if has_point else np.nan,
        dual_residual=certificate.dual_residual if has_point else np.nan,
        error=certificate.error if has_point else np.nan,
        iterations=answer.iterations,
        timings=timings,
        solver=solver.name,
        history=progress.history(),
        citation=answer.citation or solver.citation,
        iteration_bound=answer.iteration_bound,
        _stop=reason,
        _program=program,
        _S=answer.S,
        _inner=answer.inner if has_point else None,
        _y_on_faces=answer.y_on_faces if has_point else None,
        _ray=None if has_point or infeasible else tuple(answer.X),
    )


def _title(solver: Solver, presolved: Presolved) -> str:
    whole, own = presolved.whole, presolved.program.blocks
    orders = ", ".join(
        f"{block.name} {block.n} x {block.n}" + (f" of rank {mine.n}" if mine.n < block.n else "")
        for block, mine in zip(whole.blocks, own, strict=True)
    )
    return f"bregopt {solver.name}: {orders}; {whole.m} rows, {whole.k} variables"


def warn_unproven(solution: Solution, tol: float) -> None:
    """Warn if the certificate of an answer does not meet the tolerance."""
    if solution.status in (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED):
        return
    warn_caller(
        f"{solution.solver}: {solution.status}, certified gap {solution.gap:.1e}, primal residual "
        f"{solution.primal_residual:.1e}, dual residual {solution.dual_residual:.1e} "
        f"(tol {tol:.1e}). {solution.stop_reason}",
        ConvergenceWarning,
    )
