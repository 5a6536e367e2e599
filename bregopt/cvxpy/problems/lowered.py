"""A CVXPY problem as a problem of bregopt: values of parameters go in, answer and duals come back.

A problem with complex numbers becomes one in real numbers by CVXPY's own reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cvxpy.reductions.complex2real.complex2real import Complex2Real

from bregopt.arrays import Array
from bregopt.cvxpy.problems.coefficients import constant_value
from bregopt.cvxpy.problems.psd_claims import is_symmetric_array
from bregopt.cvxpy.problems.soft_rows import RelaxedBound
from bregopt.cvxpy.problems.variables import VariableForm
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.matrix_inequalities import multiplier_of_cone
from bregopt.modeling.problem import Problem
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import PSD, Parameter
from bregopt.records import dataclass
from bregopt.routes.solution import Solution

__all__ = ["ImpliedCone", "Lowered", "RealForm"]


@dataclass(frozen=True, eq=False)
class ImpliedCone:
    """A psd constraint that `psd` implies; its dual is that of `psd` over `scale`, or zero."""

    psd: PSD | None
    scale: float


@dataclass(frozen=True, eq=False)
class Lowered:
    """Our problem, and the maps from the parts of CVXPY's problem to its parts.

    Parameters
    ----------
    problem : Problem
    forms : dict from cvxpy.Variable to VariableForm
    rows : dict from constraint of CVXPY to constraint of ours
    symmetric : set
        Those of `rows` whose coefficients form a symmetric matrix: mirrored entries are one row.
    cones : dict from psd constraint of CVXPY to the psd matrix that implies it
    second_orders : dict from SOC constraint of CVXPY to constraint of ours
    given : dict
        The user's constraint for each of CVXPY's whose convex atoms were replaced by their epigraphs.
    trivial : list
        Constraints without a variable that hold.
    relaxed : list of RelaxedBound
        Variables that soft rows have replaced.
    parameters : dict from cvxpy.Parameter to Parameter
        Parameters that are only added to rows: they may change.
    written : dict from cvxpy.Parameter to array
        The values of the others, which are substituted.
    real_form : RealForm or None
        The problem in real numbers that was read for a complex one.
    """

    problem: Problem
    forms: dict[Any, VariableForm]
    rows: dict[Any, Constraint]
    symmetric: set[Any]
    cones: dict[Any, ImpliedCone]
    second_orders: dict[Any, SecondOrderConstraint]
    given: dict[Any, Any]
    trivial: list[Any]
    relaxed: list[RelaxedBound]
    parameters: dict[Any, Parameter]
    written: dict[Any, Array]
    real_form: RealForm | None

    def is_current(self) -> bool:
        """Whether the parameters whose values are substituted still have these values."""
        return all(np.array_equal(value, constant_value(p)) for p, value in self.written.items())

    def fill_in(self) -> None:
        """Give our parameters the current values of CVXPY's.

        Raises
        ------
        UnsupportedProblemError
            If a value is complex, NaN or infinite.
        ValueError
            If a parameter has no value.
        """
        for theirs, ours in self.parameters.items():
            value = constant_value(theirs)
            if not np.isfinite(value).all():
                raise UnsupportedProblemError(f"parameter {theirs.name()} has NaN or Inf among its numbers")
            ours.value = value

    def primal(self) -> dict[int, Array]:
        """Return the values of CVXPY's variables by their ids."""
        for bound in self.relaxed:
            bound.set_value()
        return {variable.id: form.value() for variable, form in self.forms.items()}

    def duals(self, solution: Solution) -> dict[int, Array]:
        """Return the duals of CVXPY's constraints by their ids, with CVXPY's signs."""
        if solution.duals is None:
            return {}
        slacks = self._slacks(solution) if self.cones else {}
        duals = {c.id: np.zeros(c.shape) for c in self.trivial}
        for c, ours in self.rows.items():
            duals[c.id] = np.reshape(np.asarray(ours.dual_value), c.shape, order="F")
            if c in self.symmetric and _is_symmetric_bound(c, ours):
                duals[c.id] = (duals[c.id] + duals[c.id].T) / 2
        for c, cone in self.cones.items():
            duals[c.id] = np.zeros(c.shape) if cone.psd is None else slacks[cone.psd] / cone.scale
        for c, second_order in self.second_orders.items():
            assert second_order.multipliers is not None
            duals[c.id] = second_order.multipliers
        duals |= {theirs.id: duals[c.id].reshape(theirs.shape) for c, theirs in self.given.items()}
        return duals

    def _slacks(self, solution: Solution) -> dict[PSD, Array]:
        """Return the multiplier of ``X psd`` of each matrix."""
        raw = solution._raw
        assert raw is not None
        program, slacks = self.problem.program(), {}
        for b, X in enumerate(self.problem.matrices):
            value, S = (None if part is None else part[b] for part in (raw.X, raw._S))
            slacks[X.block] = multiplier_of_cone(program, b, value, raw._point[2], S)
        return slacks


def _is_symmetric_bound(c: Any, row: Constraint) -> bool:
    """Whether the bounds of mirrored entries are equal; for feasible equations they are."""
    end = row.lower if row.upper is None else row.upper
    assert end is not None
    return row.sense == "==" or is_symmetric_array(np.ravel(np.asarray(end.value)), c.shape)


@dataclass(frozen=True, eq=False)
class RealForm:
    """A problem in the real and imaginary parts of another one's variables.

    Parameters
    ----------
    problem : cvxpy.Problem
    reduction : Complex2Real
    inverse_data : cvxpy.InverseData
    """

    problem: Any
    reduction: Any
    inverse_data: Any

    @classmethod
    def of(cls, problem: Any) -> RealForm | None:
        """Return the real form of a problem, None if it has no complex number.

        Raises
        ------
        UnsupportedProblemError
            If it has a complex parameter.
        """
        leaves = (*problem.variables(), *problem.parameters(), *problem.constants())
        if not any(leaf.is_complex() for leaf in leaves):
            return None
        for parameter in problem.parameters():
            if parameter.is_complex():
                raise UnsupportedProblemError(f"parameter {parameter.name()} is complex")
        reduction = Complex2Real()
        real, inverse_data = reduction.apply(problem)
        return cls(real, reduction, inverse_data)

    def inverted(self, solution: Any) -> Any:
        """Return an answer to the real form as one to the given problem."""
        return self.reduction.invert(solution, self.inverse_data)
