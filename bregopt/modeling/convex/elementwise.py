"""Elementwise atoms: absolute values, positive parts, squares, logarithms, the largest of several or all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.complex_expressions import ComplexForms, is_hermitian, vanishing_parts
from bregopt.modeling.constraints import SecondOrderConstraint
from bregopt.modeling.convex.atom import Atom, Row, distinct, sign_of
from bregopt.modeling.convex.expression import (
    CurvedExpression,
    Term,
    as_curved,
    complex_argument,
    curved,
    curved_argument,
)
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand

__all__ = ["abs", "log", "max", "maximum", "min", "minimum", "pos", "square"]


class Abs(Atom):
    """``|x|``."""

    name, sign, even, paid_as = "abs", 1, True, ("==", "hinge")

    def numbers(self, *values: Array) -> Any:
        return np.abs(values[0])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        (x,) = arguments
        return [x <= t, -x <= t]


class Modulus(Atom):
    """``|z|`` of a complex ``z``: the norm of its parts, or the absolute value of the only one."""

    name, sign = "abs", 1

    def __init__(self, z: ComplexForms) -> None:
        self.z = z
        super().__init__(z.real, z.imag, shape=z.shape)

    @property
    def label(self) -> str:
        """The atom and its argument in messages."""
        return f"abs({self.z.label})"

    def numbers(self, *values: Array) -> Any:
        return np.hypot(*values)

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        x, y, t = (e.taken(np.arange(e.size), (e.size,), e.label) for e in (*arguments, t))
        no_x, no_y = (part.ravel() for part in vanishing_parts(self.z))
        for part, kept in ((x, no_y), (y, no_x & ~no_y)):
            at = np.flatnonzero(kept)
            if len(at):
                yield from (part[at] <= t[at], -part[at] <= t[at])
        at = np.flatnonzero(~no_x & ~no_y)
        if len(at):
            by_element = np.arange(3 * len(at)).reshape(3, -1).T.ravel()
            vectors = Expression.concatenated([e[at] for e in (t, x, y)])
            body = vectors.taken(by_element, (3 * len(at),), self.label)
            yield SecondOrderConstraint(body, np.full(len(at), 3), self.label, np.zeros(3 * len(at)))


class Pos(Atom):
    """``max(x, 0)``."""

    name, sign, rises, paid_as = "pos", 1, True, ("<=", "hinge")

    def numbers(self, *values: Array) -> Any:
        return np.maximum(values[0], 0.0)

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return [arguments[0] <= t, t >= 0]


class Square(Atom):
    """``x^2``: ``(t + 1) / 2`` is the norm of ``((t - 1) / 2, x)``, or more."""

    name, sign, even, paid_as = "square", 1, True, ("==", "square")

    def numbers(self, *values: Array) -> Any:
        return np.square(values[0])

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        n, half = t.size, t.times(0.5)
        vectors = Expression.concatenated([half + 0.5, half - 0.5, arguments[0]])
        by_element = np.arange(3 * n).reshape(3, n).T.ravel()
        body = vectors.taken(by_element, (3 * n,), self.label)
        return [SecondOrderConstraint(body, np.full(n, 3), self.label, np.zeros(3 * n))]


class Log(Atom):
    """``log x``; in an objective it is a row that pays ``-gamma log x``."""

    name, convex, rises, paid_as = "log", False, True, (">=", "log")

    def numbers(self, *values: Array) -> Any:
        x = np.asarray(values[0], dtype=float)
        return np.log(x, out=np.full(x.shape, -np.inf), where=x > 0)

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        raise UnsupportedProblemError(
            f"{self.label} is in a constraint, or inside another function, which no route takes; expected it "
            "as a term of an objective that is maximized. A bound log(x) >= c is the row x >= exp(c)"
        )


class Maximum(Atom):
    """The largest of several expressions, elementwise."""

    name, rises = "maximum", True

    def numbers(self, *values: Array) -> Any:
        return reduce(np.maximum, values)

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return [x <= t for x in arguments]


class Minimum(Maximum):
    """The smallest of several expressions, elementwise."""

    name, convex = "minimum", False

    def numbers(self, *values: Array) -> Any:
        return reduce(np.minimum, values)

    def epigraph(self, t: Expression, *arguments: Expression) -> Iterable[Row]:
        return super().epigraph(-t, *(-x for x in arguments))


def abs(x: Operand) -> CurvedExpression:
    """Return the absolute value of each element of an expression; it is convex.

    Of a complex number it is a second-order cone of the real and the imaginary part.

    Parameters
    ----------
    x : expression
        Affine, also complex; or convex and known to be nonnegative, or concave and known to be nonpositive.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    z = complex_argument(x, "x of abs")
    if not isinstance(z, ComplexForms):
        return curved(Abs(z, shape=z.shape))
    if not is_hermitian(z) or z.shape == (1, 1):
        return curved(Modulus(z))
    n = z.shape[0]  # mirrored elements are one
    i, j = np.triu_indices(n)
    element = np.zeros((n, n), dtype=int)
    element[i, j] = element[j, i] = np.arange(len(i))
    S = sp.csr_array((np.ones(n * n), element.ravel(), np.arange(n * n + 1)), (n * n, len(i)))
    zero = Expression(z.shape, np.zeros(n * n), label="0")
    return CurvedExpression(zero, (Term(Modulus(z[i, j]), f"abs({z.label})", matrix=S),))


def pos(x: Operand) -> CurvedExpression:
    """Return the positive part ``max(x, 0)`` of each element of an expression; it is convex.

    Parameters
    ----------
    x : expression
        Affine or convex.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return _of_each(Pos, x)


def square(x: Operand) -> CurvedExpression:
    """Return the square of each element of an expression; it is convex.

    Parameters
    ----------
    x : expression
        As for :func:`abs`, but real; of a complex one it is ``bo.square(bo.abs(x))``.

    Returns
    -------
    CurvedExpression
        Of the shape of `x`.

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow `x`, or it contains no variable.
    """
    return _of_each(Square, x)


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
    return _of_each(Log, x)


def maximum(*expressions: ExpressionLike) -> CurvedExpression:
    """Return the largest of several expressions, elementwise; it is convex.

    Parameters
    ----------
    *expressions : expression or array_like
        Affine or convex; they broadcast as in NumPy. At least one contains a variable.

    Returns
    -------
    CurvedExpression

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow an expression, or shapes do not go together.
    """
    return _largest(Maximum, expressions)


def minimum(*expressions: ExpressionLike) -> CurvedExpression:
    """Return the smallest of several expressions, elementwise; it is concave.

    Parameters
    ----------
    *expressions : expression or array_like
        Affine or concave; otherwise as for :func:`maximum`.

    Returns
    -------
    CurvedExpression

    Raises
    ------
    TypeError, ValueError
        If the rules of convexity do not allow an expression, or shapes do not go together.
    """
    return _largest(Minimum, expressions)


def _of_each(kind: type[Atom], x: Operand) -> CurvedExpression:
    e = curved_argument(x, f"x of {kind.name}")
    return curved(kind(e, shape=e.shape))


def _largest(kind: type[Maximum], given: tuple[Any, ...]) -> CurvedExpression:
    if not given:
        raise ValueError(f"{kind.name} has no arguments; expected at least one expression")
    parts = [as_curved(e, f"argument {k} of {kind.name}") for k, e in enumerate(given)]
    if all(part.affine.is_constant and not part.terms for part in parts):
        raise ValueError(f"the arguments of {kind.name} contain no variable; expected one at least")
    whole = reduce(lambda a, b: a + b, parts)
    arguments = (part.broadcast_to(whole.shape) for part in parts)
    return curved(kind(*(a if a.terms else a.affine for a in arguments), shape=whole.shape))


class Max(Atom):
    """The largest element."""

    name, rises = "max", True

    @property
    def sign(self) -> int:  # type: ignore[override]
        """The sign of the elements."""
        return sign_of(self.arguments[0])

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
