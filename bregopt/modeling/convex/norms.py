"""Norms of vectors: Euclidean, absolute sum, largest absolute element."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.convex.arguments import curved_argument, euclidean_argument
from bregopt.modeling.convex.atom import Atom, Parts, Row, soft_rows
from bregopt.modeling.convex.curvature import sign_of
from bregopt.modeling.convex.expression import CurvedExpression, curved
from bregopt.modeling.convex.symmetry import distinct, svec
from bregopt.modeling.expressions import Expression, Operand
from bregopt.modeling.second_order import SecondOrderConstraint, stacked
from bregopt.modeling.variables import Variable

__all__ = ["norm1", "norm2", "norm_inf"]


class _Norm(Atom):
    """A norm that does not depend on the signs of the elements."""

    sign = 1

    def monotonicity(self) -> tuple[int, ...]:
        return (sign_of(self.arguments[0]),)


class Norm2(_Norm):
    """The Euclidean norm."""

    name = "norm2"

    def numbers(self, *values: Array) -> Any:
        return float(np.linalg.norm(values[0].ravel()))

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return [_cone(t, arguments[0], self.label, 0.0)]

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        x = atoms[0].arguments[0]
        if len(atoms) > 1 or not isinstance(x, Expression):
            return None
        return _cone(bound, x if factors[0] == 1 else x.times(factors[0]), label, 1.0)


class Norm1(_Norm):
    """The sum of absolute values."""

    name = "norm1"

    def numbers(self, *values: Array) -> Any:
        return float(np.abs(values[0]).sum())

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        x, count = distinct(arguments[0])
        s = Variable(x.size)
        return [x <= s, -x <= s, (s * count).summed() <= t]

    def paid(self, weights: Array, parameter: Expression | None, *arguments: Any) -> Parts | None:
        (x,) = arguments
        return Parts([soft_rows(x, "==", np.full(x.size, weights[0]), parameter, "hinge")])


class NormInf(_Norm):
    """The largest absolute value."""

    name = "norm_inf"

    def numbers(self, *values: Array) -> Any:
        return float(np.abs(values[0]).max())

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        x, _ = distinct(arguments[0])
        return [x <= t, -x <= t]


def norm2(x: Operand) -> CurvedExpression:
    """Return the Euclidean norm of all elements of an expression; it is convex.

    ``bo.norm2(x) <= t`` is one second-order cone. The norm of a matrix is its Frobenius norm.

    Parameters
    ----------
    x : expression
        Of any shape. Affine, also complex; or convex and known to be nonnegative, or concave and known to be
        nonpositive.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return curved(Norm2(euclidean_argument(x, "x of norm2")))


def norm1(x: Operand) -> CurvedExpression:
    """Return the sum of the absolute values of all elements of an expression; it is convex.

    Parameters
    ----------
    x : expression
        As for :func:`norm2`.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return curved(Norm1(curved_argument(x, "x of norm1")))


def norm_inf(x: Operand) -> CurvedExpression:
    """Return the largest absolute value of the elements of an expression; it is convex.

    Parameters
    ----------
    x : expression
        As for :func:`norm2`.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return curved(NormInf(curved_argument(x, "x of norm_inf")))


def _cone(t: Expression, x: Expression, label: str, rate: float) -> SecondOrderConstraint:
    body = stacked([t, svec(x)])
    of_bound = np.zeros(body.size)
    of_bound[0] = rate
    return SecondOrderConstraint(body, np.array([body.size]), label, of_bound)
