"""Linear matrix inequalities of Hermitian expressions: a matrix variable, with rows that equate the two."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.complex_expressions import ComplexExpression
from bregopt.modeling.constraints import Constraint, compare
from bregopt.modeling.expressions import as_expression
from bregopt.modeling.second_order import stacked
from bregopt.modeling.variables import PSD

__all__ = ["HermitianInequality"]

_HERMITIAN_TOL = 1e-10  # the largest coefficient of ``F - F*``, relative to that of ``F``


class HermitianInequality(Constraint):
    """``F >> 0`` for a Hermitian matrix of complex affine forms: a psd matrix ``Z`` with rows ``F - Z == 0``.

    Attributes
    ----------
    dual_value : complex array of shape (n, n), or None
        The Hermitian psd ``S`` of the Lagrangian ``f - tr(S F)``.

    Raises
    ------
    ValueError
        If ``F`` is not square, or not Hermitian.
    """

    may_be_soft = False

    def __init__(self, F: ComplexExpression, label: str) -> None:
        _check_hermitian(F, label)
        n = F.shape[0]
        self._label, self.n = label, n
        slack: Any = PSD(n, f"slack of {label}", hermitian=True)
        slack.block.is_slack = True
        upper, strict = np.triu_indices(n), np.triu_indices(n, 1)
        parts = [F[upper].real - slack[upper].real]
        if n > 1:
            parts.append(F[strict].imag - slack[strict].imag)
        rows = compare(stacked(parts), as_expression(0.0), "==")
        super().__init__(rows.body, rows.lower, rows.upper, "==")

    @property
    def label(self) -> str:
        """The name of the constraint in messages."""
        return self._label

    def dual_from_multiplier(self, y: Array) -> Any:
        """Return the Hermitian dual from the multipliers of the rows."""
        upper, strict = np.triu_indices(self.n), np.triu_indices(self.n, 1)
        half = np.zeros((self.n, self.n), dtype=complex)
        half[upper] = y[: len(upper[0])] / 2
        half[strict] += 0.5j * y[len(upper[0]) :]
        return half + half.conj().T


def _check_hermitian(F: ComplexExpression, label: str) -> None:
    if len(F.shape) != 2 or F.shape[0] != F.shape[1]:
        raise ValueError(f"{label}: the left side has shape {F.shape}; expected a square matrix")
    difference, size = F - F.H, max(_size(F.real), _size(F.imag))
    if max(_size(difference.real), _size(difference.imag)) > _HERMITIAN_TOL * size:
        raise ValueError(
            f"{label}: the left side is not Hermitian; write (F + F.H) / 2 if that part is meant"
        )


def _size(e: Any) -> float:
    """Return the largest norm of a row and the largest constant."""
    of_rows = [float(np.max(rows.norms(), initial=0.0)) for rows in e.psd.values()]
    others = [*e.variables.values(), *e.parameters.values()]
    return max([float(np.abs(e.constant).max()), *of_rows, *(float(abs(m).max()) for m in others if m.nnz)])
