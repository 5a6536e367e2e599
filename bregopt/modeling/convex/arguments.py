"""Checks of the arguments of atoms."""

from __future__ import annotations

from typing import Any

from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.convex.symmetry import is_symmetric
from bregopt.modeling.expressions import as_expression
from bregopt.modeling.variables import PSD

__all__ = ["curved_argument", "matrix_argument", "symmetric_argument"]


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


def matrix_argument(F: Any, name: str) -> Any:
    """Return a matrix variable as it is, or an affine expression of shape ``(p, q)``."""
    if isinstance(F, PSD):
        return F
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
