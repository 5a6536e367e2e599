"""Eigenvalues of symmetric matrices: the largest, the smallest, and the sum of the largest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array, positive_number
from bregopt.modeling.convex.arguments import copies_of, symmetric_argument
from bregopt.modeling.convex.atom import Atom, Row
from bregopt.modeling.convex.expression import CurvedExpression, curved
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.largest_eigenvalue import EigenvalueBound
from bregopt.modeling.matrix_inequalities import MatrixInequality
from bregopt.modeling.psd import PSD
from bregopt.modeling.variables import Variable

__all__ = ["lambda_max", "lambda_min", "lambda_sum_largest"]


class LambdaMax(Atom):
    """The largest eigenvalue: ``t I - F`` is psd."""

    name = "lambda_max"

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.eigvalsh(values[0])[-1])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        return [MatrixInequality(t.times(np.eye(F.shape[0])) - F, self.label)]

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        X = atoms[0].arguments[0]
        taken = bound.is_constant and (bound.parameters or bound.constant[0] > 0)
        if len(atoms) > 1 or not isinstance(X, PSD) or not taken:
            return None
        if bound.parameters:
            return EigenvalueBound(X, bound.times(1 / factors[0]))
        cap = float(bound.constant[0]) / factors[0]
        return EigenvalueBound(X, positive_number(cap, f"the bound of lambda_max({X.name})"))


class LambdaMin(LambdaMax):
    """The smallest eigenvalue: ``F - t I`` is psd."""

    name, convex = "lambda_min", False

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.eigvalsh(values[0])[0])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return super().epigraph(-t, -arguments[0])

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        return None


class LambdaSumLargest(Atom):
    """The sum of the `k` largest eigenvalues: ``k s + tr Z <= t`` with ``Z`` and ``Z + s I - F`` psd.

    In a real form there are `copies` of each eigenvalue.

    References
    ----------
    Alizadeh (1995), Interior point methods in semidefinite programming with applications to combinatorial
    optimization, SIAM J. Optim. 5, section 4.
    """

    name = "lambda_sum_largest"

    def __init__(self, F: Any, k: int, copies: int = 1) -> None:
        self.k, self.copies = k, copies
        super().__init__(F)

    @property
    def label(self) -> str:
        """The atom and its arguments in messages."""
        return f"{super().label[:-1]}, {self.k})"

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.eigvalsh(values[0])[-self.copies * self.k :].sum()) / self.copies

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (F,) = arguments
        Z, s = PSD(F.shape[0]), Variable()
        trace = Z[np.arange(Z.n), np.arange(Z.n)].summed()
        excess = MatrixInequality(Z + s * np.eye(Z.n) - F, self.label)
        return [excess, self.k * s + trace / self.copies <= t]


def lambda_max(F: Operand) -> CurvedExpression:
    """Return the largest eigenvalue of a symmetric matrix; it is convex.

    ``bo.lambda_max(X) <= c``, with a matrix variable as a whole and a number ``c`` above 0, belongs to the
    variable: it is ``X <= c I`` and no row.

    Parameters
    ----------
    F : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, not square, not symmetric, or contains no variable.
    """
    return curved(LambdaMax(symmetric_argument(F, "F of lambda_max")))


def lambda_min(F: Operand) -> CurvedExpression:
    """Return the smallest eigenvalue of a symmetric matrix; it is concave.

    Parameters
    ----------
    F : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, not square, not symmetric, or contains no variable.
    """
    return curved(LambdaMin(symmetric_argument(F, "F of lambda_min")))


def lambda_sum_largest(F: Operand, k: int) -> CurvedExpression:
    """Return the sum of the `k` largest eigenvalues of a symmetric matrix; it is convex.

    Parameters
    ----------
    F : PSD, or affine expression of shape (n, n)
        Symmetric or Hermitian.
    k : int
        From 1 to `n`; for `n` it is the trace, which is affine.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If `F` is not affine, not square, not symmetric, or contains no variable, or `k` is no such integer.
    """
    copies = copies_of(F)
    argument = symmetric_argument(F, "F of lambda_sum_largest")
    n = argument.shape[0] // copies
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k of lambda_sum_largest is {k!r}; expected an integer from 1 to {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k of lambda_sum_largest is {k}; expected an integer from 1 to {n}")
    if k == n:
        return as_trace(argument) / copies
    return curved(LambdaMax(argument) if k == 1 else LambdaSumLargest(argument, int(k), copies))


def as_trace(F: Any) -> CurvedExpression:
    """Return the trace of a symmetric matrix in the place of an atom that is equal to it."""
    own = np.arange(F.shape[0])
    return CurvedExpression(F[own, own].summed())
