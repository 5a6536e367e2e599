"""CVXPY problems with complex numbers, in real numbers: CVXPY's own reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cvxpy.reductions.complex2real.complex2real import Complex2Real

from bregopt.errors import UnsupportedProblemError

__all__ = ["RealForm"]


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
