"""The programs of the alternative: their answers are proofs that a program has none.

Where the least sum of violations of the rows is positive, its multipliers are a Farkas vector. Where the
steepest direction in which no row changes for the worse lowers the objective, it is a ray. Where the largest
least eigenvalue of ``X`` is not positive, no log-determinant is finite. These programs have solutions, at the
scale of one, however far the iterates of the program itself move. A method that ended far from any solution
solves them by itself (:func:`with_proof`, :func:`with_interior`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.certify import PrimalDualPoint, certify
from bregopt.clock import CutShort
from bregopt.errors import InfeasibleRowError
from bregopt.program import Answer, Block, Bounds, LinearMap, Penalty, Program, StopReason, Term
from bregopt.program.program import divergence_of
from bregopt.program.rows import Coordinates, DenseRows, SparseRows
from bregopt.records import replace
from bregopt.rigorous import proves_infeasible, proves_unbounded, recedes
from bregopt.routes.base import Method
from bregopt.routes.progress import Progress
from bregopt.routes.working_set import ActiveSet

__all__ = ["elastic", "largest_trace", "recession_box", "steepest_ray", "with_proof", "without_noise"]

# Error of an answer from which a proof that there is none is sought, and the tolerance of that search.
_FAR, _TOL_OF_ALTERNATIVE = 1e-2, 1e-8
# Parts of such a proof, relative to the largest, up to which they are tried as zero, one after the other.
_NOISE = (1e-14, 1e-10, 1e-7)


def with_proof(program: Program, answer: Answer, method: Method, settings: Any, progress: Progress) -> Answer:
    """Return an answer, or the proof that there is none where its method ended far from any solution.

    A ray is returned only if a point exists from which the objective falls along it; otherwise the proof that
    no point does, or the nearest one.
    """
    unproven = answer.stop is StopReason.UNBOUNDED and not proves_unbounded(program, answer.X, answer.u)
    if unproven or _is_far(program, answer, settings):
        answer = _alternative(program, answer, method, settings, progress)
    if answer.stop is not StopReason.UNBOUNDED:
        return answer
    hard = ActiveSet(program.bounds.required, np.zeros(program.m))
    feasibility = _without_objective(hard.of(program))
    found = method(feasibility, settings, None, progress.of_another_program())
    if _is_far(feasibility, found, settings):
        found = _alternative(feasibility, found, method, settings, progress.of_another_program())
    if found.stop is StopReason.CONVERGED:
        return answer
    return replace(hard.restored(found), iterations=answer.iterations + found.iterations)


# Pays on: log det of matrices with a null vector.
def with_interior(
    program: Program, answer: Answer, method: Method, settings: Any, progress: Progress
) -> Answer:
    """Return an answer, or the proof that no log-determinant is finite where a method has not converged.

    Parameters
    ----------
    program : Program
        The answer to a program without logarithms is returned as it is.
    answer : Answer
    method : Method
        For linear programs.
    settings : Settings
        Of that method.
    progress : Progress
    """
    ended = answer.stop is StopReason.STALLED or (
        answer.stop is StopReason.MAX_ITER and not settings.max_iter
    )
    logarithms = bool((program.bounds.kind == Penalty.LOG).any()) or any(map(_is_barrier, program.blocks))
    if not ended or program.capped or not logarithms:
        return answer
    settings = replace(settings, tol=min(settings.tol, _TOL_OF_ALTERNATIVE))
    hard = ActiveSet(program.bounds.required, np.zeros(program.m))
    spread = largest_least_eigenvalue(hard.of(program))
    try:
        found = method(spread, settings, None, progress.of_another_program())
    except (CutShort, InfeasibleRowError):
        return answer
    if found.stop is not StopReason.INFEASIBLE and not found.u[-1] <= settings.tol:
        return answer
    for part in _NOISE:
        y = hard.multipliers(without_noise(found.y, found.y * spread.row_sizes, part))
        if proves_infeasible(program, y):
            return Answer.without_point(program, y, StopReason.INFEASIBLE, answer.iterations)
    return answer


def _is_far(program: Program, answer: Answer, settings: Any) -> bool:
    """Whether a method has ended far from any solution of a linear program, without a limit of the user's."""
    ended = answer.stop is StopReason.STALLED or (
        answer.stop is StopReason.MAX_ITER and not settings.max_iter
    )
    linear = not program.curved and program.bounds.kinds <= {Penalty.HARD, Penalty.HINGE}
    if not (ended and linear):
        return False
    return not certify(PrimalDualPoint(program, answer.X, answer.u, answer.y)).worst <= _FAR


# Pays on: directions that touch a Lorentz cone.
def _alternative(
    program: Program, stalled: Answer, method: Method, settings: Any, progress: Progress
) -> Answer:
    """Return the proof that no solution exists, from a program of the alternative, or the given answer."""
    settings = replace(settings, tol=min(settings.tol, _TOL_OF_ALTERNATIVE))
    try:
        found = method(elastic(program), settings, None, progress.of_another_program())
        for part in _NOISE:
            y = without_noise(found.y, found.y * program.row_sizes, part)
            if progress.contradicts(program, y):
                return Answer.without_point(program, y, StopReason.INFEASIBLE, stalled.iterations)
        found = method(steepest_ray(program), settings, None, progress.of_another_program())
    except (CutShort, InfeasibleRowError):
        return stalled
    largest = max(float(np.abs(part).max(initial=0.0)) for part in (*found.X, found.u))
    for part in _NOISE:
        X = tuple(
            S if np.abs(S).max(initial=0.0) > part * largest else 0 * S for S in map(np.asarray, found.X)
        )
        u = np.where(np.abs(found.u) > part * largest, found.u, 0.0)
        if recedes(program, X, u):
            zero = np.zeros(program.m)
            return Answer(X, u, zero, StopReason.UNBOUNDED, stalled.iterations)
    return stalled


def largest_least_eigenvalue(program: Program) -> Program:
    """Return the program that maximizes ``t``, up to one, with ``X - t s I`` psd in blocks with LogDet.

    ``s`` is the mean eigenvalue of ``X0``, and ``t`` is the last variable. Arguments of logarithms are ``t``
    times the size of their row above zero. If the maximum is not positive, the multipliers give a combination
    ``A*(y)``, negative semidefinite and not zero, that no definite ``X`` meets.
    """
    shifts = program.A.apply([_mean_eigenvalue(block) * np.eye(block.n) for block in program.blocks])
    shifts = shifts - np.where(program.bounds.kind == Penalty.LOG, program.row_sizes, 0.0)
    return replace(
        _without_objective(program),
        B=sp.csr_array(sp.hstack([program.B, sp.csr_array(shifts[:, None])])),
        bounds=Bounds.of_hard_rows(program.bounds.lo, program.bounds.hi),
        c=np.append(np.zeros(program.k), -1.0),
        u_lo=np.append(program.u_lo, -np.inf),
        u_hi=np.append(program.u_hi, 1.0),
    )


def _is_barrier(block: Block) -> bool:
    return block.nearness is not None and block.nearness.kind.barrier


def _mean_eigenvalue(block: Block) -> float:
    """Return that of ``X0`` if the block has a log-determinant, otherwise zero."""
    near = block.nearness
    return 0.0 if near is None or not near.kind.barrier else float(np.trace(near.X0)) / block.n


def _without_objective(program: Program) -> Program:
    return replace(
        program,
        blocks=tuple(replace(block, cost=None, nearness=None) for block in program.blocks),
        c=np.zeros(program.k),
        offset=0.0,
    )


def elastic(program: Program) -> Program:
    """Return the program that minimizes the violations of the hard rows, relative to the rows' norms.

    If the minimum is positive, its multipliers are a Farkas vector.
    """
    bounds = program.bounds
    norms = program.row_sizes
    return replace(
        _without_objective(program),
        bounds=Bounds(
            np.where(bounds.required, bounds.lo, -np.inf),
            np.where(bounds.required, bounds.hi, np.inf),
            np.full(program.m, int(Penalty.HINGE)),
            1 / np.where(norms > 0, norms, 1.0),
        ),
    )


def steepest_ray(program: Program) -> Program:
    """Return the program for the steepest ray, with trace and entries of directions at most one.

    A direction satisfies every homogeneous row; it may violate hinges at their price. If the minimum is
    negative, it is a ray. One row for each block, at the end, bounds its trace: by zero if a divergence
    outgrows every linear term. LogDet does not: it adds its recession, ``mu inv(X0)``, to the cost. A row
    after them bounds the axes of second-order cones.
    """
    bounds, count = program.bounds, len(program.blocks) + (program.cones.count > 0)
    traces = [_trace(program.m + b, b, n) for b, n in enumerate(program.A.orders)]
    last = np.full(program.cones.count, count - 1)
    axes = sp.csr_array((np.ones(len(last)), (last, program.cones.axes)), (count, program.k))
    hinge = bounds.kind == Penalty.HINGE
    u_lo, u_hi = recession_box(program)
    largest = np.ones(count)
    largest[: len(program.blocks)] = list(map(largest_trace, program.blocks))
    return replace(
        program,
        blocks=tuple(map(_cost_of_direction, program.blocks)),
        A=LinearMap(program.m + count, program.A.orders, (*program.A.terms, *traces)),
        B=sp.csr_array(sp.vstack([program.B, axes])),
        bounds=Bounds(
            np.append(np.where(np.isfinite(bounds.lo), 0.0, -np.inf), np.full(count, -np.inf)),
            np.concatenate([np.where(np.isfinite(bounds.hi), 0.0, np.inf), largest]),
            np.append(np.where(hinge, Penalty.HINGE, Penalty.HARD), np.full(count, Penalty.HARD)),
            np.append(np.where(hinge, bounds.gamma, np.inf), np.full(count, np.inf)),
        ),
        u_lo=u_lo,
        u_hi=u_hi,
        offset=0.0,
    )


def _cost_of_direction(block: Block) -> Block:
    cost = block.C
    R = _recession(block)
    if R is not None and block.nearness is not None:
        cost = cost + block.nearness.mu * R
    return replace(block, cost=DenseRows((cost + cost.T)[None] / 2), nearness=None, cap=None)


def _recession(block: Block) -> Array | None:
    return None if block.nearness is None else divergence_of(block.nearness).recession()


def largest_trace(block: Block) -> float:
    """Return the largest trace of a direction: zero for a cap, or a divergence that outgrows linear terms."""
    unbounded = block.nearness is None or _recession(block) is not None
    return 1.0 if unbounded and block.cap is None else 0.0


def recession_box(program: Program) -> tuple[Array, Array]:
    """Return the box of directions of ``u``: zero towards a finite bound, one towards an infinite one.

    Variables in second-order cones have none.
    """
    free = np.where(program.in_cones, np.inf, 1.0)
    return np.where(np.isfinite(program.u_lo), 0.0, -free), np.where(np.isfinite(program.u_hi), 0.0, free)


def _trace(row: int, block: int, n: int) -> Term:
    each = np.arange(n)
    rows = SparseRows(1, n, Coordinates(np.zeros(n, dtype=np.intp), each, each, np.ones(n)))
    return Term(block, np.array([row]), rows)


def without_noise(y: Array, sizes: Array, part: float) -> Array:
    """Return `y` with zero where its size is a small part of the largest."""
    sizes = np.abs(sizes)
    return np.where(sizes > part * sizes.max(initial=0.0), y, 0.0)
