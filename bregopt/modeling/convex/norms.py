"""Norms of vectors: Euclidean, absolute sum, largest absolute element; sums of squares, and their ratios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.modeling.complex_expressions import ComplexForms
from bregopt.modeling.constraints import SecondOrderConstraint
from bregopt.modeling.convex.atom import Atom, Row, distinct, sign_of, svec
from bregopt.modeling.convex.elementwise import abs as modulus
from bregopt.modeling.convex.elementwise import max as largest
from bregopt.modeling.convex.expression import (
    CurvedExpression,
    complex_argument,
    curved,
    euclidean_argument,
)
from bregopt.modeling.expressions import Expression, Operand, as_expression
from bregopt.modeling.variables import Variable
from bregopt.program.bounds import boost_factor

__all__ = ["norm1", "norm2", "norm_inf", "quad_over_lin", "sum_squares"]


class Norm2(Atom):
    """The Euclidean norm."""

    name, sign, even = "norm2", 1, True

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


class Norm1(Atom):
    """The sum of absolute values."""

    name, sign, even, paid_as = "norm1", 1, True, ("==", "hinge")

    def numbers(self, *values: Array) -> Any:
        return float(np.abs(values[0]).sum())

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        x, count = distinct(arguments[0])
        s = Variable(x.size)
        return [x <= s, -x <= s, (s * count).summed() <= t]


class NormInf(Atom):
    """The largest absolute value."""

    name, sign, even = "norm_inf", 1, True

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

    That of a complex expression is the sum of its :func:`abs`.

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
    z = complex_argument(x, "x of norm1")
    return modulus(z).summed() if isinstance(z, ComplexForms) else curved(Norm1(z))


def norm_inf(x: Operand) -> CurvedExpression:
    """Return the largest absolute value of the elements of an expression; it is convex.

    That of a complex expression is the largest of its :func:`abs`.

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
    z = complex_argument(x, "x of norm_inf")
    return largest(modulus(z)) if isinstance(z, ComplexForms) else curved(NormInf(z))


def _cone(t: Expression, x: Expression, label: str, rate: float) -> SecondOrderConstraint:
    body = Expression.concatenated([t, svec(x)])
    of_bound = np.zeros(body.size)
    of_bound[0] = rate
    return SecondOrderConstraint(body, np.array([body.size]), label, of_bound)


class SumSquares(Atom):
    """The sum of squares of all elements."""

    name, sign, even, paid_as = "sum_squares", 1, True, ("==", "square")

    def numbers(self, *values: Array) -> Any:
        return float(np.sum(np.square(values[0])))

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return [_ratio(arguments[0], as_expression(1.0), t, self.label)]

    @staticmethod
    def bound(factors: Sequence[float], atoms: Sequence[Any], bound: Expression, label: str) -> Any:
        """Return ``||x||^2 <= bound`` as a second-order cone; a number from 0 bounds the norm."""
        if not all(isinstance(atom.arguments[0], Expression) for atom in atoms):
            return None
        parts = [svec(a.arguments[0]).times(np.sqrt(w)) for w, a in zip(factors, atoms, strict=True)]
        x = Expression.concatenated(parts)
        c = float(bound.constant[0])
        if bound.is_constant and not bound.parameters and c >= 0:
            body = Expression.concatenated([as_expression(np.sqrt(c)), x])
            of_bound = np.zeros(body.size)
            of_bound[0] = 1 / (2 * np.sqrt(max(c, TINY)))
            return SecondOrderConstraint(body, np.array([body.size]), label, of_bound)
        return _ratio(x, as_expression(1.0), bound, label)


class QuadOverLin(Atom):
    """The sum of squares of ``x``, over ``y > 0``."""

    name, sign = "quad_over_lin", 1

    def monotonicity(self) -> tuple[int, ...]:
        return sign_of(self.arguments[0]), -1

    def numbers(self, *values: Array) -> Any:
        x, y = values
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.sum(np.square(x)) / y) if y > 0 else np.inf

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        x, y = arguments
        return [_ratio(x, y, t, self.label)]


def sum_squares(x: Operand) -> CurvedExpression:
    """Return the sum of squares of all elements of an expression; it is convex.

    ``bo.sum_squares(x) <= t`` is one second-order cone, and in an objective each element is a soft row.

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
    return curved(SumSquares(euclidean_argument(x, "x of sum_squares")))


def quad_over_lin(x: Operand, y: Operand) -> CurvedExpression:
    """Return the sum of squares of all elements of `x`, over the scalar ``y > 0``; it is convex.

    Parameters
    ----------
    x : expression
        Of any shape, as for :func:`sum_squares`.
    y : expression or float
        A scalar, affine or concave; the constraint that it is nonnegative is implied.

    Returns
    -------
    CurvedExpression
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x` or `y`, or `y` is no scalar or a number up to 0.
    """
    x = euclidean_argument(x, "x of quad_over_lin")
    if not isinstance(y, CurvedExpression):
        y = as_expression(y, "y of quad_over_lin")
    if y.size != 1:
        raise ValueError(f"y of quad_over_lin has shape {y.shape}; expected a scalar")
    if isinstance(y, Expression) and y.is_constant and not y.parameters:
        c = float(y.constant[0])
        if c <= 0:
            raise ValueError(f"y of quad_over_lin is {c:g}; expected a number above 0")
        return curved(SumSquares(x)) / c
    return curved(QuadOverLin(x, y))


def _ratio(x: Expression, y: Expression, t: Expression, label: str) -> SecondOrderConstraint:
    """Return ``||x||^2 <= t y`` with ``t`` and ``y`` from 0: ``(t + y) / 2`` bounds ``((t - y) / 2, x)``.

    For a constant ``y`` a boost makes both factors, ``t / f`` and ``f y``, about as large.
    """
    x, f = svec(x), 1.0
    if y.is_constant and not y.parameters and x.constant.any():
        f = float(boost_factor(y.constant[0], np.linalg.norm(x.constant), x.size))
    half, own = t.times(0.5 / f), y.times(0.5 * f)
    body = Expression.concatenated([half.plus(own), half.plus(own.times(-1.0)), x])
    of_bound = np.zeros(body.size)
    of_bound[:2] = 0.5 / f
    return SecondOrderConstraint(body, np.array([body.size]), label, of_bound)
