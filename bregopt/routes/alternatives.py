"""The programs of the alternative: their answers are proofs that a program has none.

Where the least sum of violations of the rows is positive, its multipliers are a Farkas vector. Where the
steepest direction in which no row changes for the worse lowers the objective, it is a ray. Where the largest
least eigenvalue of ``X`` is not positive, no log-determinant is finite. These programs have solutions, at the
scale of one, however far the iterates of the program itself move. A method that ended far from any solution
solves them by itself (:func:`with_proof`, :func:`with_interior`).

Where the optimum, or the dual optimum, is approached without being attained, ``X`` or the multipliers grow
without end. An answer says so, with the sizes that it reached. A psd ``D`` with ``A(D) + B d = 0`` and
``<C, D> + c'd = 0`` changes neither rows nor objective, so the set of optima is unbounded, or the optimum is
not attained. For all multipliers ``<Z, D> = 0``, hence ``Z D = 0`` wherever ``Z = C - A*(y)`` is psd: no
``Z`` is definite. A matrix that grows without bound shows such a ``D`` to a few digits. It is a psd
combination of a basis of the directions that change nothing, as exposing vectors are of rows
(:mod:`bregopt.presolve.revealed_faces`). Iterates may also diverge along a ray along which only logarithms
make the objective fall: a direction that changes neither rows nor linear terms is one if a log-determinant or
a logarithm grows along it. They fall too slowly to show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.certify.point import DIVERGENT
from bregopt.clock import CutShort
from bregopt.errors import InfeasibleRowError
from bregopt.linalg import without_noise
from bregopt.presolve.recession import Recession, recession
from bregopt.program import (
    Answer,
    Block,
    Bounds,
    LinearMap,
    LowRank,
    Matrix,
    Penalty,
    Program,
    StopReason,
    Term,
)
from bregopt.program.program import divergence_of
from bregopt.program.rows import DenseRows, SparseRows
from bregopt.program.scale import scale_of
from bregopt.records import replace
from bregopt.rigorous import proves_infeasible, proves_unbounded, recedes
from bregopt.routes.base import Method
from bregopt.routes.progress import Progress
from bregopt.routes.working_set import ActiveSet

_Direction = tuple[tuple[Array, ...], Array]

_RECEDES = (
    "X grows along a direction, of rank {rank}, that changes neither rows nor objective: no C - A*(y) is "
    "definite, and the optimum may be approached without being attained. X has norm {norm:.1e}."
)
_LARGE = (
    "X has norm {norm:.1e}, {times:.0e} times what the bounds of the rows state, as where an optimum "
    "is approached without being attained."
)
_PRICED = (
    "The multipliers reach {times:.0e} times the size of the costs, as where the rows leave X no interior "
    "and the dual optimum is not attained."
)
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
    spread = with_margin(hard.of(program), list(map(_mean_eigenvalue, program.blocks)), -np.inf, 1.0)
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


def with_margin(program: Program, sizes: Sequence[float], least: float, largest: float) -> Program:
    """Return the program of the largest ``t``, from `least` to `largest`, with ``X - t s I`` psd.

    Its matrices are ``X - t s I``, and ``t`` is the last variable. Arguments of logarithms are ``t`` times
    the size of their row above zero. If the maximum is not positive, the multipliers give a combination
    ``A*(y)``, negative semidefinite and not zero, that no definite ``X`` meets.

    Parameters
    ----------
    program : Program
        Its objective is left out, and all of its rows are required.
    sizes : sequence of float
        ``s`` of each matrix.
    least, largest : float
    """
    shifts = program.A.apply([s * np.eye(n) for s, n in zip(sizes, program.A.orders, strict=True)])
    shifts = shifts - np.where(program.bounds.kind == Penalty.LOG, program.row_sizes, 0.0)
    return replace(
        _without_objective(program),
        B=sp.csr_array(sp.hstack([program.B, sp.csr_array(shifts[:, None])])),
        bounds=Bounds.of_hard_rows(program.bounds.lo, program.bounds.hi),
        c=np.append(np.zeros(program.k), -1.0),
        u_lo=np.append(program.u_lo, least),
        u_hi=np.append(program.u_hi, largest),
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
    traces = [Term(b, np.array([program.m + b]), SparseRows.trace(n)) for b, n in enumerate(program.A.orders)]
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


# --- Optima that are not attained --------------------------------------------------------------------


def with_attainment(
    program: Program, answer: Answer, certificate: Certificate, tol: float, diverges: bool
) -> tuple[Answer, Certificate]:
    """Return the answer with a sentence on what diverges, and better multipliers if a direction is found.

    It is of use where the point `diverges`, or the certificate does not meet the tolerance. An answer that
    meets it gets the sentence only if that direction exists up to round-off.
    """
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):
        return answer, certificate
    if not certificate.meets(tol):
        ray = _logarithmic_ray(program, answer.X)
        if ray is not None:
            return replace(answer, X=ray[0], u=ray[1], stop=StopReason.UNBOUNDED), certificate
    if program.curved or any(isinstance(X, LowRank) for X in answer.X):
        return answer, certificate
    sentences, unexplained = [], not answer.detail and not certificate.meets(tol)
    if diverges:
        norm = float(np.sqrt(sum(np.linalg.norm(X) ** 2 for X in answer.X)))
        found = _found(program, answer.X)
        if found is not None:
            answer, certificate = _with_multipliers(answer, certificate, found)
            sentences.append(_RECEDES.format(rank=found.rank, norm=norm))
        elif unexplained:
            sentences.append(_LARGE.format(norm=norm, times=norm / scale_of(program).primal))
    if unexplained:
        largest = float((np.abs(answer.y) * program.A.norms()).max(initial=0.0))
        costs = scale_of(program).dual
        if largest > DIVERGENT * costs > 0:
            sentences.append(_PRICED.format(times=largest / costs))
    if not sentences:
        return answer, certificate
    return replace(answer, detail=" ".join([answer.detail, *sentences]).strip()), certificate


def _found(program: Program, X: Sequence[Any]) -> Recession | None:
    if not program.blocks:
        return None
    try:
        return recession(program, X)
    except CutShort:
        return None


def _with_multipliers(
    answer: Answer, certificate: Certificate, found: Recession
) -> tuple[Answer, Certificate]:
    """Return the answer with the nearest multipliers that may have a psd ``Z``, if they prove more.

    They replace others with a higher bound, too. These have a ``Z`` that is not psd, and times a trace of
    1e9 an eigenvalue that is lost in round-off is a cost.
    """
    y = found.multipliers(answer.y)
    proven = certify(PrimalDualPoint(found.program, answer.X, answer.u, y))
    valid = proven.dual < certificate.dual and proven.dual_residual <= certificate.dual_residual
    if not (valid or proven.worst < certificate.worst):
        return answer, certificate
    return replace(answer, y=y, y_on_faces=None), proven


# Pays on: log det with one entry bounded.
def _logarithmic_ray(program: Program, X: Sequence[Matrix]) -> _Direction | None:
    """Return a ray of a program with logarithms, near large matrices, None where none is found.

    Parameters
    ----------
    program : Program
    X : sequence of arrays of shape (n_b, n_b)
        The point that a route ended at.
    """
    barriers = [b.nearness is not None and b.nearness.kind.barrier for b in program.blocks]
    log = program.bounds.kind == Penalty.LOG
    others = any(d is not None and not own for d, own in zip(program.divergences, barriers, strict=True))
    if program.capped or others or not (any(barriers) or log.any()):
        return None
    for found in (_of_matrices(program, X), _of_variables(program)):
        if found is not None and recedes(program, *found):
            return found
    return None


def _of_matrices(program: Program, X: Sequence[Matrix]) -> _Direction | None:
    """Return a direction that changes neither rows nor linear terms."""
    linear = replace(program, blocks=tuple(map(_linear, program.blocks)))
    found = _found(linear, [np.asarray(X_b) for X_b in X])
    return None if found is None else found.direction


def _linear(block: Block) -> Block:
    """Return the block with its linear terms alone, that of its LogDet term included."""
    if block.nearness is None:
        return block
    R: Any = divergence_of(block.nearness).recession()
    return replace(block, cost=DenseRows((block.C + block.nearness.mu * R)[None]), nearness=None)


def _of_variables(program: Program) -> _Direction | None:
    """Return the direction of variables alone along which arguments of logarithms grow most."""
    log = program.bounds.kind == Penalty.LOG
    if not program.k or not log.any():
        return None
    from scipy.optimize import linprog  # slow to import, seldom needed

    bounds, in_cone = program.bounds, np.zeros(program.k, dtype=bool)
    in_cone[program.cones.index] = True
    upward, downward = np.isfinite(bounds.lo), np.isfinite(bounds.hi)
    hard = np.concatenate([-program.B[upward].toarray(), program.B[downward].toarray(), program.c[None]])
    lower = np.where(np.isfinite(program.u_lo) | in_cone, 0.0, -1.0)
    upper = np.where(np.isfinite(program.u_hi) | in_cone, 0.0, 1.0)
    growth = np.asarray(program.B[log].sum(axis=0)).ravel()
    found = linprog(-growth, hard, np.zeros(len(hard)), bounds=np.column_stack([lower, upper]))
    if found.status != 0:
        return None
    return tuple(np.zeros((block.n, block.n)) for block in program.blocks), found.x
