"""Arrays of affine expressions in matrix variables, ordinary variables and parameters.

An :class:`Expression` of shape ``s`` has ``prod(s)`` rows in C order. Each row is a linear functional of
every matrix variable (one row family for each), plus a row of a sparse matrix for every ordinary variable
and every parameter, plus a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, finite_array
from bregopt.program.rows import Rows, add_rows, combine_rows

if TYPE_CHECKING:
    from bregopt.modeling.constraints import Constraint
    from bregopt.modeling.variables import PSD, Parameter, Variable

__all__ = ["Expression", "Operand", "as_expression"]

_LONGEST_LABEL = 80
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
        return self.expression().mapped(matrix)

    def __matmul__(self, matrix: Any) -> Expression:
        return self.expression().mapped(matrix, left=False)

    def __le__(self, other: Any) -> Constraint:
        return _compare(self, other, "<=")

    def __ge__(self, other: Any) -> Constraint:
        return _compare(self, other, ">=")

    def __eq__(self, other: Any) -> Constraint:  # type: ignore[override]
        return _compare(self, other, "==")

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


@dataclass(frozen=True, eq=False)
class Expression(Operand):
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

    shape: tuple[int, ...]
    constant: Array
    psd: dict[PSD, Rows] = field(default_factory=dict)
    variables: dict[Variable, Any] = field(default_factory=dict)
    parameters: dict[Parameter, Any] = field(default_factory=dict)
    label: str = "affine expression"

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.constant)

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs; parameters may occur."""
        return not self.psd and not self.variables

    @property
    def value(self) -> Array | float | None:
        """The number or array at the current values, None if a variable or parameter has none."""
        total = self.constant.copy()
        for X, rows in self.psd.items():
            if X.value is None:
                return None
            total += rows.apply(X.value)
        linear: list[tuple[Any, Any]] = [*self.variables.items(), *self.parameters.items()]
        for operand, matrix in linear:
            if operand.value is None:
                return None
            total += matrix @ np.ravel(operand.value)
        return total.reshape(self.shape) if self.shape else float(total[0])

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
        return self._taken(np.ravel(numbers), np.shape(numbers), f"{self.label}[...]")

    def plus(self, other: Expression) -> Expression:
        """Return the sum, broadcast as NumPy does."""
        a, b = self.broadcast_with(other)
        return Expression(
            a.shape,
            a.constant + b.constant,
            _merged(a.psd, b.psd, add_rows),
            _merged(a.variables, b.variables, _add_csr),
            _merged(a.parameters, b.parameters, _add_csr),
            _sum_label(a, b),
        )

    def broadcast_with(self, other: Expression) -> tuple[Expression, Expression]:
        """Return both expressions in their common shape after broadcasting."""
        shape = self.shape if self.shape == other.shape else _broadcast_shape(self, other)
        return self._broadcast(shape), other._broadcast(shape)

    def times(self, factor: Any) -> Expression:
        """Return the product with numbers, broadcast as NumPy does."""
        factor = np.asarray(factor, dtype=float)
        shape = np.broadcast_shapes(self.shape, factor.shape)
        e = self._broadcast(shape)
        weight = np.broadcast_to(factor, shape).ravel().astype(float)
        return Expression(
            shape,
            e.constant * weight + 0.0,  # avoids negative zeros in messages
            {X: rows.scale(weight) for X, rows in e.psd.items()},
            {u: _times(weight, matrix) for u, matrix in e.variables.items()},
            {p: _times(weight, matrix) for p, matrix in e.parameters.items()},
            _scaled_label(e.label, factor),
        )

    def mapped(self, matrix: Any, left: bool = True) -> Expression:
        """Return ``matrix @ self``, or ``self @ matrix`` if not `left`, for a vector expression.

        The matrix may be sparse, or a vector.
        """
        if not sp.issparse(matrix):
            matrix = _numbers(matrix, "factor of @", ndim=(1, 2))
        mapping = matrix if left else matrix.T
        if len(self.shape) != 1 or mapping.shape[-1] != self.size:
            raise ValueError(_mismatch(self, matrix.shape, left))
        S = sp.csr_array(np.atleast_2d(mapping) if not sp.issparse(mapping) else mapping)
        finite_array(S.data, "factor of @")
        return self._combined(S, mapping.shape[:-1], f"A @ {self.label}" if left else f"{self.label} @ A")

    def summed(self) -> Expression:
        """Return the sum of all elements."""
        return self._combined(sp.csr_array(np.ones((1, self.size))), (), f"sum({self.label})")

    def constant_part(self) -> Expression:
        """Return the part without variables."""
        return Expression(self.shape, self.constant, parameters=self.parameters, label=self.label)

    def variable_part(self) -> Expression:
        """Return the part with variables."""
        return Expression(self.shape, np.zeros(self.size), self.psd, self.variables, label=self.label)

    def _combined(self, S: Any, shape: tuple[int, ...], label: str) -> Expression:
        return Expression(
            shape,
            S @ self.constant,
            {X: combine_rows(S, rows) for X, rows in self.psd.items()},
            {u: sp.csr_array(S @ matrix) for u, matrix in self.variables.items()},
            {p: sp.csr_array(S @ matrix) for p, matrix in self.parameters.items()},
            label,
        )

    def _taken(self, rows: IntArray, shape: tuple[int, ...], label: str) -> Expression:
        return Expression(
            shape,
            self.constant[rows],
            {X: family.slice(rows) for X, family in self.psd.items()},
            {u: matrix[rows] for u, matrix in self.variables.items()},
            {p: matrix[rows] for p, matrix in self.parameters.items()},
            label,
        )

    def _broadcast(self, shape: tuple[int, ...]) -> Expression:
        if shape == self.shape:
            return self
        if not self.shape and self.is_constant and not self.parameters:
            return Expression(shape, np.full(math.prod(shape), self.constant[0]), label=self.label)
        numbers = np.broadcast_to(np.arange(self.size).reshape(self.shape), shape).ravel()
        return self._taken(numbers, shape, self.label)

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


def _mismatch(e: Expression, shape: tuple[int, ...], left: bool) -> str:
    """Return the message on a product of mismatched shapes, with the operands in their written order."""
    first, second = (shape, e.shape) if left else (e.shape, shape)
    if len(e.shape) == 1:
        k = e.size
        expected = f"(.., {k}) and ({k},)" if left else f"({k},) and ({k}, ..)"
    else:
        expected = (
            f"a vector expression: take one row, {e.label}[i] @ v; for v'Xv there is bo.quad_form(v, X), for "
            "tr(AX) bo.inner(A, X)"
        )
    return f"@ of shapes {first} and {second}; expected {expected}"


def _refusal(function: str, name: str = "") -> str:
    """Return the message that a function of another package takes no expression, with alternatives."""
    own = f"use bo.{name}" if name in _ATOMS else "there are " + ", ".join(f"bo.{atom}" for atom in _ATOMS)
    return f"{function} takes no expression of bregopt; {own}"


def _absorbs(other: Any) -> bool:
    """Whether `other` is an objective, whose own operators then handle the expression."""
    return getattr(other, "absorbs_expressions", False)


def _compare(left: Any, right: Any, sense: str) -> Constraint:
    from bregopt.modeling.constraints import compare

    return compare(as_expression(left), as_expression(right), sense)


def _broadcast_shape(a: Expression, b: Expression) -> tuple[int, ...]:
    if not b.shape:
        return a.shape
    try:
        return np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(
            f"shapes of {a.label} {a.shape} and {b.label} {b.shape} do not go together"
        ) from None


def _merged(a: dict[Any, Any], b: dict[Any, Any], add: Callable[[Any, Any], Any]) -> dict[Any, Any]:
    merged = dict(a)
    for key, value in b.items():
        merged[key] = add(merged[key], value) if key in merged else value
    return merged


def _add_csr(a: Any, b: Any) -> Any:
    return sp.csr_array(a + b)


def _times(weight: Array, matrix: Any) -> Any:
    """Return ``diag(weight) @ matrix`` in CSR form."""
    product = sp.csr_array(matrix, copy=True)
    product.data *= np.repeat(weight, np.diff(product.indptr))
    return product


def _sum_label(a: Expression, b: Expression) -> str:
    """Return the label of a sum; it omits numbers and parameters beside variables, as bounds show them."""
    named = [e.label for e in (a, b) if not e.is_constant] or [e.label for e in (a, b) if e.parameters]
    if len(named) < 2:
        return named[0] if named else a.label
    first, second = named
    return _short(f"{first} - {second[1:]}" if second.startswith("-") else f"{first} + {second}")


def _scaled_label(label: str, factor: Array) -> str:
    if factor.ndim or factor == 1:
        return label
    several = " + " in label or " - " in label
    if factor == -1 and label.startswith("-") and not several:
        return label[1:]
    if several or label.startswith("-"):
        label = f"({label})"
    return _short(f"-{label}" if factor == -1 else f"{float(factor):g} {label}")


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else "affine expression"
