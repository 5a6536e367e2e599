"""Linear matrix inequalities of Hermitian expressions: a matrix variable, with rows that equate the two."""

from __future__ import annotations

from typing import Any

from bregopt.arrays import Array
from bregopt.modeling.complex_expressions import (
    ComplexExpression,
    hermitian_from_parts,
    hermitian_parts,
    is_hermitian,
)
from bregopt.modeling.constraints import Constraint, compare
from bregopt.modeling.expressions import Expression, as_expression
from bregopt.modeling.variables import PSD

__all__ = ["HermitianInequality"]


class HermitianInequality(Constraint):
    """``F >> 0`` for a Hermitian matrix of complex affine forms: a psd matrix ``Z`` with rows ``F - Z == 0``.

    Attributes
    ----------
    F : ComplexExpression
        Of shape ``(n, n)``.
    dual_value : complex array of shape (n, n), or None
        The Hermitian psd ``S`` of the Lagrangian ``f - tr(S F)``.

    Raises
    ------
    ValueError
        If ``F`` is not square, or not Hermitian.
    """

    may_be_soft = False

    def __init__(self, F: ComplexExpression, label: str) -> None:
        if not is_hermitian(F):
            raise ValueError(
                f"{label} is about a matrix of shape {F.shape} that is not Hermitian; "
                "if its Hermitian part is meant write (F + F.H) / 2"
            )
        self.F, self._label, self.n = F, label, F.shape[0]
        slack: Any = PSD(self.n, hermitian=True)
        slack.block.name = f"{slack.name}, the slack of {label}"
        slack.block.is_slack = True
        rows = compare(Expression.concatenated(hermitian_parts(F - slack)), as_expression(0.0), "==")
        super().__init__(rows.body, rows.lower, rows.upper, "==")

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        return self._label

    def dual_from_multiplier(self, y: Array) -> Any:
        """Return the Hermitian dual from the multipliers of the rows."""
        return hermitian_from_parts(y, self.n)
