"""The largest and the smallest element of an expression."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.convex.arguments import curved_argument
from bregopt.modeling.convex.atom import Atom, Row
from bregopt.modeling.convex.curvature import sign_of
from bregopt.modeling.convex.expression import CurvedExpression, curved
from bregopt.modeling.convex.symmetry import distinct
from bregopt.modeling.expressions import Expression, Operand

__all__ = ["max", "min"]


class Max(Atom):
    """The largest element."""

    name = "max"

    @property
    def sign(self) -> int:  # type: ignore[override]
        """The sign of the elements."""
        return sign_of(self.arguments[0])

    def monotonicity(self) -> tuple[int, ...]:
        return (1,)

    def numbers(self, *values: Array) -> Any:
        return float(np.max(values[0]))

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return [distinct(arguments[0])[0] <= t]


class Min(Max):
    """The smallest element."""

    name, convex = "min", False

    def numbers(self, *values: Array) -> Any:
        return float(np.min(values[0]))

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return [distinct(arguments[0])[0] >= t]


def max(x: Operand) -> CurvedExpression:
    """Return the largest element of an expression; it is convex.

    Parameters
    ----------
    x : expression
        Of any shape, affine or convex.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return curved(Max(curved_argument(x, "x of max")))


def min(x: Operand) -> CurvedExpression:
    """Return the smallest element of an expression; it is concave.

    Parameters
    ----------
    x : expression
        Of any shape, affine or concave.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return curved(Min(curved_argument(x, "x of min")))
