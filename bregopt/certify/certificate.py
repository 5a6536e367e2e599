"""Certificates of ``X``, ``u`` and the multipliers ``y``, recomputed from the data alone.

For any multipliers in their range, Lagrange's bound lies below the optimum (:mod:`bregopt.certify.point`),
and for any ``X``, ``u`` that satisfy the hard rows the objective lies above it. Their difference is the
certified gap. No value that a solver reports enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bregopt.certify.constants import NEGLIGIBLE_OBJECTIVE, ROUND_OFF_OF_TERMS
from bregopt.certify.point import PrimalDualPoint
from bregopt.program.program import Program
from bregopt.program.scale import scale_of

__all__ = ["Certificate", "certify", "objective_size"]


@dataclass(frozen=True)
class Certificate:
    """The bounds and residuals that an answer proves.

    Parameters
    ----------
    primal : float
        Objective at ``X``, ``u``.
    dual : float
        Lower bound on the optimum; ``-inf`` if the multipliers prove nothing. Where `dual_residual` is not
        zero, it is the bound of the multipliers minus the cost of the residual at points up to four times as
        large as ``X``, ``u``.
    gap : float
        `error` relative to the largest of ``|primal|``, ``|dual|`` (constants of the objective apart) and a
        hundredth of the objective's scale.
    primal_residual : float
        Largest violation of a hard row, of the box of ``u``, of a second-order cone, of ``X psd`` and of
        ``X <= c I``, the last relative to ``c``. The violation of a row is
        relative to the largest magnitude of the row over psd matrices with the diagonal of ``X``, but to no
        more than the larger of its bound and its norm times the scale of ``X``. The residual is multiplied up
        where ``X`` or ``u`` is more than 1000 times larger than that scale and nothing bounds the trace.
    dual_residual : float
        Distance of ``C - A*(y)`` from psd (blocks with linear objective and no bound on the trace) and of
        ``c - B'y`` from zero (free variables) or from the second-order cone of its variables, relative to the
        scale of the costs.
    error : float
        First-order bound on the distance of `primal` from the optimum, in units of the objective:
        ``|primal - dual|`` plus the cost of the violations, of rows at their multipliers.

    See Also
    --------
    bregopt.program.scale.Scale : the scales, which are computed from the data alone.
    """

    primal: float
    dual: float
    gap: float
    primal_residual: float
    dual_residual: float
    error: float

    @property
    def worst(self) -> float:
        """The largest of gap and residuals."""
        return max(self.gap, self.primal_residual, self.dual_residual)

    def meets(self, tol: float) -> bool:
        """Whether gap and residuals are all at most `tol`."""
        # Written such that a NaN does not meet any tolerance.
        return self.gap <= tol and self.primal_residual <= tol and self.dual_residual <= tol

    @property
    def of_dual(self) -> Certificate:
        """The certificate of the dual, whose objective is the negative of its minimization's."""
        return Certificate(
            -self.dual, -self.primal, self.gap, self.dual_residual, self.primal_residual, self.error
        )


def certify(point: PrimalDualPoint) -> Certificate:
    """Return the certificate of a primal and a dual point.

    Parameters
    ----------
    point : PrimalDualPoint

    Returns
    -------
    Certificate
    """
    primal, bound = point.primal, point.bound
    dual = bound.value - bound.cost
    loss = float(np.abs(point.y) @ point.violations)
    loss += point.cap_violation.cost + point.second_order_loss
    error = abs(primal - dual) + loss
    size = objective_size(point.program, primal, dual)
    if primal < dual <= primal + ROUND_OFF_OF_TERMS * scale_of(point.program).objective:
        dual = primal  # the bound of a feasible point is above it by round-off only
    if not math.isfinite(error):
        error = gap = math.inf
    else:
        gap = 0.0 if error == 0 else error / size if size > 0 else math.inf
    return Certificate(primal, dual, gap, point.primal_residual, bound.residual, error)


def objective_size(program: Program, *values: float) -> float:
    """Return the magnitude that a gap between objective values is relative to.

    It is the largest finite value, constants apart, but at least a hundredth of the objective's scale.
    """
    sizes = [abs(value - program.offset) for value in values if math.isfinite(value)]
    return max([*sizes, NEGLIGIBLE_OBJECTIVE * scale_of(program).objective])
