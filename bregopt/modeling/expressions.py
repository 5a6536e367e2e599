"""Expressions: arrays of affine forms with the operators of the language, and the base of all operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, finite_array
from bregopt.modeling.affine import Affine
from bregopt.modeling.constraints import Constraint, compare

__all__ = ["Expression", "Operand", "as_expression"]

_ATOMS = ("trace", "diag", "sum", "inner", "quad_form", "sq_distance")  # bregopt's atoms, for messages


class _NoNumber:
    """NumPy's element for an operand: any use of it by NumPy or CVXPY raises bregopt's error."""

    def __float__(self) -> NoReturn:
        raise TypeError(_refusal("a function of numpy or CVXPY"))


class Operand:
    """An object with affine arithmetic and comparisons."""

    # With this NumPy defers `array + operand` and `array <= operand` to this class. scipy.sparse defers too,
    # as the class has no length.
    __array_ufunc__ = None

    def expression(self) -> Expression:
        """Return this operand as an affine expression."""
        raise TypeError(f"{type(self).__name__} is not an affine expression")

    def __add__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else self.expression().plus(as_expression(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else self.expression().plus(-as_expression(other))

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else (-self.expression()).plus(as_expression(other))

    def __neg__(self) -> Expression:
        return self.expression().times(-1.0)

    def __pos__(self) -> Expression:
        return self.expression()

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else self.expression().times(_numbers(other, "factor"))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expression:
        divisor = _numbers(other, "divisor")
        if (divisor == 0).any():
            raise ValueError("division of an expression by zero")
        return self.expression().times(1 / divisor)

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise TypeError(_refusal(f"{function.__module__}.{function.__name__}", function.__name__))

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array(_NoNumber(), dtype=object)

    def __rmatmul__(self, matrix: Any) -> Expression:
        return self.expression().mapped(_factor(matrix))

    def __matmul__(self, matrix: Any) -> Any:
        if _absorbs(matrix):
            return NotImplemented
        return self.expression().mapped(_factor(matrix), left=False)

    def __le__(self, other: Any) -> Constraint:
        return NotImplemented if _absorbs(other) else _compare(self, other, "<=")

    def __ge__(self, other: Any) -> Constraint:
        return NotImplemented if _absorbs(other) else _compare(self, other, ">=")

    def __eq__(self, other: Any) -> Constraint:  # type: ignore[override]
        return NotImplemented if _absorbs(other) else _compare(self, other, "==")

    def __lt__(self, other: Any) -> Constraint:
        raise TypeError("strict inequalities are not closed sets: write <= instead of <")

    def __gt__(self, other: Any) -> Constraint:
        raise TypeError("strict inequalities are not closed sets: write >= instead of >")

    def __ne__(self, other: object) -> bool:
        raise TypeError("!= is not a convex constraint")

    __hash__ = object.__hash__

    def __iter__(self) -> Iterator[Expression]:
        """Iterate over the first axis, as NumPy and CVXPY do."""
        e = self.expression()
        if not e.shape:
            raise TypeError(f"{e.label} is a scalar: it has no elements to iterate over")
        return (e[k] for k in range(e.shape[0]))


@dataclass(frozen=True, eq=False, repr=False)
class Expression(Affine, Operand):
    """An array of affine expressions; built by atoms and arithmetic, not by hand.

    Parameters
    ----------
    shape : tuple of int
    psd : dict from PSD to Rows
    variables : dict from Variable to csr_array of shape (rows, variable size)
    parameters : dict from Parameter to csr_array of shape (rows, parameter size)
    constant : array of shape (rows,)
    label : str
        Its name in messages.
    """

    def expression(self) -> Expression:
        """Return this expression."""
        return self

    def __getitem__(self, key: Any) -> Expression:
        try:
            numbers = np.arange(self.size).reshape(self.shape)[key]
        except IndexError as error:
            raise ValueError(f"index of {self.label}, of shape {self.shape}: {error}") from None
        if np.size(numbers) == 0:
            raise ValueError(f"index of {self.label} is empty; expected at least one element")
        return self.taken(np.ravel(numbers), np.shape(numbers), f"{self.label}[...]")

    def __repr__(self) -> str:
        return f"Expression({self.label}, shape={self.shape})"


def as_expression(value: Any, name: str = "constant") -> Expression:
    """Return an operand or numbers as an expression; `name` is the name of the numbers in messages."""
    if isinstance(value, Operand):
        return value.expression()
    numbers = _numbers(value, name)
    if numbers.size == 0:
        raise ValueError(f"{name} has shape {numbers.shape}: it is empty; expected at least one number")
    return Expression(numbers.shape, numbers.ravel(), label="constant")


def _numbers(value: Any, name: str, ndim: tuple[int, ...] | None = None) -> Array:
    if isinstance(value, Operand):
        raise TypeError(
            f"{name} is an expression ({value!r}); expected numbers. Products of variables are not affine, "
            "and a Parameter may be added, or weigh a divergence or gamma, but not multiply a variable"
        )
    return finite_array(value, name, ndim)


def _factor(matrix: Any) -> Any:
    """Return a factor of ``@``: a sparse matrix as it is, numbers as an array."""
    return matrix if sp.issparse(matrix) else _numbers(matrix, "factor of @", ndim=(1, 2))


def _refusal(function: str, name: str = "") -> str:
    """Return the message that a function of another package takes no expression, with alternatives."""
    own = f"use bo.{name}" if name in _ATOMS else "there are " + ", ".join(f"bo.{atom}" for atom in _ATOMS)
    return f"{function} takes no expression of bregopt; {own}"


def _absorbs(other: Any) -> bool:
    """Whether `other` is an objective, whose own operators then handle the expression."""
    return getattr(other, "absorbs_expressions", False)


def _compare(left: Any, right: Any, sense: str) -> Constraint:
    return compare(as_expression(left), as_expression(right), sense)
