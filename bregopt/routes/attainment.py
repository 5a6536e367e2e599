"""Answers to problems whose optimum, or dual optimum, is approached without being attained.

There ``X`` or the multipliers grow without end. An answer says so, with the sizes that it reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bregopt.certify import Certificate, PrimalDualPoint, certify, divergence_factor
from bregopt.certify.constants import DIVERGENT
from bregopt.clock import CutShort
from bregopt.program import Answer, LowRank, Program, StopReason
from bregopt.program.scale import scale_of

if TYPE_CHECKING:
    from bregopt.presolve.recession import Recession

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


def with_attainment(
    program: Program, answer: Answer, certificate: Certificate, tol: float
) -> tuple[Answer, Certificate]:
    """Return the answer with a sentence on what diverges, and better multipliers if a direction is found.

    An answer that meets the tolerance gets the sentence only if that direction exists up to round-off.
    """
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):
        return answer, certificate
    if not certificate.meets(tol):
        from bregopt.routes.logarithmic_rays import logarithmic_ray  # only answers that fail wait

        ray = logarithmic_ray(program, answer.X)
        if ray is not None:
            return replace(answer, X=ray[0], u=ray[1], stop=StopReason.UNBOUNDED), certificate
    if not _is_linear(program, answer):
        return answer, certificate
    sentences, unexplained = [], not answer.detail and not certificate.meets(tol)
    if divergence_factor(PrimalDualPoint(program, answer.X, answer.u, answer.y)) > 1:
        norm = float(np.sqrt(sum(np.linalg.norm(X) ** 2 for X in answer.X)))
        found = _found(program, answer)
        if found is not None:
            answer, certificate = _with_multipliers(answer, certificate, found)
            sentences.append(_RECEDES.format(rank=found.rank, norm=norm))
        elif unexplained:
            sentences.append(_LARGE.format(norm=norm, times=norm / scale_of(program).primal))
    largest = float((np.abs(answer.y) * program.A.norms()).max(initial=0.0))
    if unexplained and largest > DIVERGENT * scale_of(program).dual > 0:
        sentences.append(_PRICED.format(times=largest / scale_of(program).dual))
    return replace(answer, detail=" ".join([answer.detail, *sentences]).strip()), certificate


def _is_linear(program: Program, answer: Answer) -> bool:
    """Whether the objective is linear in matrices that are arrays, without caps."""
    linear = not program.capped and not any(program.divergences)
    return linear and not any(isinstance(X, LowRank) for X in answer.X)


def _found(program: Program, answer: Answer) -> Recession | None:
    from bregopt.presolve.recession import recession  # only answers that diverge wait

    try:
        return recession(program, answer.X)
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
