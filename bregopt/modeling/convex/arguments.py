"""Checks of the arguments of atoms."""

from __future__ import annotations

from typing import Any

from bregopt.modeling.complex_expressions import ComplexExpression, HermitianPSD
from bregopt.modeling.convex.atom import is_symmetric
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.expressions import Expression, as_expression
from bregopt.modeling.stacking import bmat
from bregopt.modeling.variables import PSD
from bregopt.records import replace

__all__ = ["copies_of", "curved_argument", "euclidean_argument", "matrix_argument", "symmetric_argument"]


def curved_argument(x: Any, name: str) -> Any:
    """Return an operand as an affine expression or one with curvature; `name` is its name in messages.

    Raises
    ------
    TypeError, ValueError
        If it is no operand, or contains no variable.
    """
    if isinstance(x, CurvedExpression):
        return x if x.terms else x.affine
    e = as_expression(x, name)
    if e.is_constant:
        raise ValueError(f"{name} contains no variable; expected an expression with one")
    return e


def euclidean_argument(x: Any, name: str) -> Any:
    """Return an argument of a Euclidean norm; of a complex one the real and the imaginary parts."""
    if isinstance(x, ComplexExpression):
        x = replace(Expression.concatenated([x.real, x.imag]), label=x.label)
    return curved_argument(x, name)


def copies_of(F: Any) -> int:
    """Return how often each eigenvalue or singular value of a matrix occurs in its real form."""
    return 2 if isinstance(F, ComplexExpression) else 1


def matrix_argument(F: Any, name: str) -> Any:
    """Return a matrix variable as it is, or an affine expression of shape ``(p, q)``.

    Of a complex matrix it is the real form ``[Re F, -Im F; Im F, Re F]``, with all values twice.
    """
    if isinstance(F, HermitianPSD):
        F = F.block
    if isinstance(F, PSD):
        return F
    if isinstance(F, ComplexExpression) and len(F.shape) == 2:
        F = replace(bmat([[F.real, -F.imag], [F.imag, F.real]]), label=F.label)
    e = as_expression(F, name)
    if e.is_constant:
        raise ValueError(f"{name} contains no variable; expected an expression with one")
    if len(e.shape) != 2:
        raise ValueError(f"{name} has shape {e.shape}; expected a matrix")
    return e


def symmetric_argument(F: Any, name: str) -> Any:
    """Return a matrix variable as it is, or an affine expression that is a symmetric matrix."""
    e = matrix_argument(F, name)
    if isinstance(e, PSD):
        return e
    n = e.shape[0]
    if e.shape != (n, n):
        raise ValueError(f"{name} has shape {e.shape}; expected a square matrix")
    if n > 1 and not is_symmetric(e, at_zero=True):
        raise ValueError(
            f"{name}, {e.label}, is not symmetric; expected F with F[i, j] == F[j, i], as (F + F.T) / 2"
        )
    return e
