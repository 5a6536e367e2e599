"""The logarithm, elementwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.convex.arguments import curved_argument
from bregopt.modeling.convex.atom import Atom, Parts, Row, soft_rows
from bregopt.modeling.convex.expression import CurvedExpression, curved
from bregopt.modeling.expressions import Expression, Operand

__all__ = ["log"]


class Log(Atom):
    """``log x``; in an objective it is a row that pays ``-gamma log x``."""

    name, convex = "log", False

    def monotonicity(self) -> tuple[int, ...]:
        return (1,)

    def numbers(self, *values: Array) -> Any:
        x = np.asarray(values[0], dtype=float)
        return np.log(x, out=np.full(x.shape, -np.inf), where=x > 0)

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        raise UnsupportedProblemError(
            f"{self.label} is in a constraint, or inside another function, which no route takes; expected it "
            "as a term of an objective that is maximized. A bound log(x) >= c is the row x >= exp(c)"
        )

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        return Parts([soft_rows(arguments[0], ">=", -weights, parameter, "log")])


def log(x: Operand) -> CurvedExpression:
    """Return the natural logarithm of each element of an expression; it is concave.

    It is minus infinity where an element is not above 0. It may be maximized, with weights that are numbers
    from 0 or parameters above 0, and stands in no constraint.

    Parameters
    ----------
    x : expression
        Affine or concave.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    e = curved_argument(x, "x of log")
    return curved(Log(e, shape=e.shape))
