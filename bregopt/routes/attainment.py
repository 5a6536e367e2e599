"""Answers to problems whose optimum, or dual optimum, is approached without being attained.

There ``X`` or the multipliers grow without end. An answer says so, with the sizes that it reached.

Iterates may also diverge along a ray along which only logarithms make the objective fall: a direction that
changes neither rows nor linear terms is one if a log-determinant or a logarithm grows along it. They fall too
slowly to show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify, divergence_factor
from bregopt.certify.constants import DIVERGENT
from bregopt.clock import CutShort
from bregopt.program import Answer, Block, LowRank, Matrix, Penalty, Program, StopReason
from bregopt.program.program import divergence_of
from bregopt.program.rows import DenseRows
from bregopt.program.scale import scale_of
from bregopt.records import replace
from bregopt.rigorous import recedes

if TYPE_CHECKING:
    from bregopt.presolve.revealed_faces import Recession

__all__ = ["with_attainment"]

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
Direction = tuple[tuple[Array, ...], Array]


def with_attainment(
    program: Program, answer: Answer, certificate: Certificate, tol: float
) -> tuple[Answer, Certificate]:
    """Return the answer with a sentence on what diverges, and better multipliers if a direction is found.

    An answer that meets the tolerance gets the sentence only if that direction exists up to round-off.
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
    if divergence_factor(PrimalDualPoint(program, answer.X, answer.u, answer.y)) > 1:
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
    from bregopt.presolve.revealed_faces import recession  # only answers that diverge wait

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


def _logarithmic_ray(program: Program, X: Sequence[Matrix]) -> Direction | None:
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


def _of_matrices(program: Program, X: Sequence[Matrix]) -> Direction | None:
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


def _of_variables(program: Program) -> Direction | None:
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
