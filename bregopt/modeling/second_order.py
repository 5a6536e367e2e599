"""Euclidean norms of affine expressions and their one constraint, an upper bound: a second-order cone."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.modeling.affine import Affine
from bregopt.modeling.expressions import Expression, Operand, as_expression
from bregopt.modeling.naming import Named

__all__ = ["EuclideanNorm", "SecondOrderConstraint", "norm2", "squares_bounded", "stacked"]

_RULE = "a norm is convex, so it may be bounded from above only: expected bo.norm2(x) <= t with an affine t"


def norm2(x: Any) -> EuclideanNorm:
    """Return the Euclidean norm of all elements of an expression, to be bounded: ``bo.norm2(x) <= t``.

    The bound may be a number, a parameter or an affine expression. To minimize a norm, minimize a variable
    that bounds it.

    Parameters
    ----------
    x : Expression, matrix variable or variable
        Of any shape; the norm of a matrix is its Frobenius norm.

    Raises
    ------
    TypeError, ValueError
        If `x` is not affine or contains no variable.
    """
    e = as_expression(x, "x of norm2")
    if e.is_constant:
        raise ValueError("x of norm2 contains no variable")
    return EuclideanNorm(e)


class SecondOrderConstraint(Named):
    """Vectors ``(t, v)`` of affine forms with ``||v|| <= t``.

    Attributes
    ----------
    body : Expression
        The vectors one after the other, each with its ``t`` first.
    dimensions : int array
        The length of each vector.
    dual_value : float or None
        Set by :meth:`bregopt.Problem.solve`: the decrease of the optimum for a unit more of the bound that
        the user wrote. If the problem is infeasible it is this constraint's part of a Farkas vector.
    multipliers : array of the shape of the body, or None
        Of each vector: ``z`` in the same cone, with ``z'(t, v) = 0`` at an optimum.
    """

    def __init__(self, body: Expression, dimensions: IntArray, label: str, of_bound: Array) -> None:
        self.body, self.dimensions, self.label = body, dimensions, label
        self._of_bound = of_bound  # d(body) / d(bound)
        self.dual_value: float | None = None
        self.multipliers: Array | None = None

    @property
    def size(self) -> int:
        """The number of elements of all vectors."""
        return self.body.size

    def set_multipliers(self, z: Array | None) -> None:
        """Set the multipliers of the vectors and of the bound."""
        self.multipliers = z
        self.dual_value = None if z is None else float(self._of_bound @ z)

    def __bool__(self) -> NoReturn:
        raise TypeError("a constraint has no truth value")

    def __repr__(self) -> str:
        return f"SecondOrderConstraint({self.title}, dimension={int(self.dimensions.sum())})"


class EuclideanNorm(Operand):
    """The Euclidean norm of an expression, for an upper bound."""

    absorbs_expressions = True
    __array_ufunc__ = None  # type: ignore[assignment] # NumPy leaves comparisons to this class

    def __init__(self, argument: Expression) -> None:
        self.argument = argument

    def __le__(self, bound: Any) -> SecondOrderConstraint:  # type: ignore[override]
        t = _scalar(bound, f"the bound of {self!r}")
        body = stacked([t, self.argument])
        return SecondOrderConstraint(body, np.array([body.size]), f"{self!r} <= {_text(t)}", _unit(body.size))

    def __ge__(self, other: Any) -> NoReturn:
        raise TypeError(f"{self!r} >= ... is not convex; {_RULE}")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError(f"{self!r} == ... is not convex; {_RULE}")

    __hash__ = None  # type: ignore[assignment]

    def expression(self) -> NoReturn:
        """Refuse any use as an affine expression."""
        raise TypeError(f"{self!r} is not affine; {_RULE}. To minimize it, minimize such a variable t")

    def __add__(self, other: Any) -> NoReturn:
        self.expression()

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__

    def __repr__(self) -> str:
        return f"norm2({self.argument.full_label})"


def squares_bounded(x: Expression, bound: Any, label: str) -> SecondOrderConstraint:
    """Return the constraint ``||x||^2 <= bound`` as a second-order cone.

    For a number from 0 it is a bound on the norm. For an expression ``t`` it is ``||x||^2 <= a^2 - b^2`` with
    ``a = (t + 1) / 2`` and ``b = (t - 1) / 2``.
    """
    t = _scalar(bound, f"the bound of {label}")
    text = f"{label} <= {_text(t)}"
    c = float(t.constant[0])
    if t.is_constant and not t.parameters and c >= 0:
        body = stacked([as_expression(np.sqrt(c)), x])
        rate = _unit(body.size) / (2 * np.sqrt(max(c, TINY)))
        return SecondOrderConstraint(body, np.array([body.size]), text, rate)
    half, one = t.times(0.5), as_expression(0.5)
    body = stacked([half.plus(one), half.plus(-one), x])
    of_bound = np.zeros(body.size)
    of_bound[:2] = 0.5
    return SecondOrderConstraint(body, np.array([body.size]), text, of_bound)


def stacked(parts: list[Expression]) -> Expression:
    """Return the elements of several expressions as one vector."""
    return Expression.concatenated(parts)


def _scalar(value: Any, name: str) -> Expression:
    if getattr(value, "absorbs_expressions", False):
        raise TypeError(f"{name} is {value!r}, which is not affine; {_RULE}")
    t = as_expression(value, name)
    if t.size != 1:
        raise ValueError(f"{name} has shape {t.shape}; expected a scalar")
    return t


def _unit(size: int) -> Array:
    unit = np.zeros(size)
    unit[0] = 1.0
    return unit


def _text(t: Affine) -> str:
    return t.label if not t.is_constant or t.parameters else f"{t.constant[0]:g}"
