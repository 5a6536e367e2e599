"""Ordinary variables and parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import Array, IntArray, finite_array, symmetric_matrix
from bregopt.cache import cached_property
from bregopt.memory import check_memory
from bregopt.modeling.declared import VALUE_TOL, checked_name, checked_shape, checked_value
from bregopt.modeling.expressions import Expression, Operand

__all__ = ["Parameter", "Variable"]

# Bytes that a declaration takes for each element: two bounds, a column and a coefficient.
_ELEMENT = 100


class Variable(Operand):
    """An ordinary scalar, vector or array variable, or a symmetric matrix.

    Parameters
    ----------
    shape : int or tuple of int, optional
        The default is a scalar.
    name : str, optional
        Its name in messages and answers.
    nonneg : bool
        Short for ``lower=0``.
    lower, upper : float or array_like of that shape, optional
        The bounds of the variable.
    symmetric : bool
        Whether a matrix variable is symmetric; it need not be positive semidefinite. Its elements are the
        entries on and above the diagonal.

    Attributes
    ----------
    value : float, array of that shape, or None
        Set by :meth:`bregopt.Problem.solve`. A value that you set must be finite and within the bounds; it is
        copied.

    Raises
    ------
    TypeError, ValueError
        If the shape, the name, `nonneg` or `symmetric` is invalid, bounds are not numbers, a lower bound is
        above the upper one, or a value set has another shape, is out of bounds, or is not symmetric.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        *,
        name: str | None = None,
        nonneg: bool = False,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        symmetric: bool = False,
    ) -> None:
        self.shape = checked_shape(shape)
        self.name = checked_name(name, "u")
        self.symmetric = self._is_square(symmetric)
        check_memory(_ELEMENT * math.prod(self.shape), f"shape {self.shape} of {self.name}")
        if not isinstance(nonneg, bool):
            raise TypeError(f"nonneg of {self.name} is {nonneg!r}; expected True or False")
        if nonneg and lower is not None:
            raise ValueError(f"{self.name}: give nonneg=True or lower=, not both")
        self.lower = self._bound(0.0 if nonneg else lower, "lower", -np.inf)
        self.upper = self._bound(upper, "upper", np.inf)
        crossed = np.flatnonzero(self.lower > self.upper)
        if len(crossed):
            k = int(crossed[0])
            raise ValueError(
                f"{self.name}: lower is {self.lower[k]:g} but upper is {self.upper[k]:g} at {k}; "
                "expected lower <= upper"
            )
        self._value: Array | float | None = None

    @property
    def value(self) -> Array | float | None:
        """The current value, read-only, or None."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = None if value is None else self._checked(value)

    def _checked(self, value: Any) -> Array | float:
        name = f"value of {self.name}"
        array = checked_value(symmetric_matrix(value, name) if self.symmetric else value, name, self.shape)
        found = self._elements_of(array)
        slack = VALUE_TOL * np.maximum(1.0, np.abs(found))
        outside = np.flatnonzero((found < self.lower - slack) | (found > self.upper + slack))
        if len(outside):
            k = int(outside[0])
            expected = f"{self.lower[k]:g} to {self.upper[k]:g}"
            raise ValueError(f"value of {self.name} is {found[k]:g} at {k}; expected {expected}")
        return array if self.shape else float(array)

    @property
    def size(self) -> int:
        """The number of elements; of a symmetric matrix those on and above the diagonal."""
        count = int(np.prod(self.shape, dtype=int))
        return count if not self.symmetric else (count + self.shape[0]) // 2

    @property
    def elements(self) -> Array | None:
        """The elements of the value, row by row, shape ``(size,)``, or None."""
        return None if self._value is None else self._elements_of(np.asarray(self._value))

    def with_elements(self, elements: Array) -> Array | float:
        """Return the value with the given elements, shape ``(size,)``."""
        if self.shape == ():
            return float(elements[0])
        return elements[self._element_of if self.symmetric else slice(None)].reshape(self.shape)

    def _elements_of(self, array: Array) -> Array:
        return array[np.triu_indices(self.shape[0])] if self.symmetric else array.ravel()

    @property
    def _element_of(self) -> IntArray:
        """The element that each entry of a symmetric matrix is, row by row."""
        n = self.shape[0]
        i, j = np.indices(self.shape).reshape(2, -1)
        i, j = np.minimum(i, j), np.maximum(i, j)
        element: IntArray = i * n - i * (i + 1) // 2 + j
        return element

    def __getitem__(self, key: Any) -> Expression:
        return self.expression()[key]

    def expression(self) -> Expression:
        """Return this operand as an affine expression."""
        return self._expression

    @cached_property
    def _expression(self) -> Expression:
        eye = sp.csr_array(sp.eye_array(self.size))
        entries = eye[self._element_of] if self.symmetric else eye
        count = math.prod(self.shape)
        return Expression(self.shape, np.zeros(count), variables={self: entries}, label=self.name)

    def _is_square(self, symmetric: Any) -> bool:
        if not isinstance(symmetric, bool):
            raise TypeError(f"symmetric of {self.name} is {symmetric!r}; expected True or False")
        if symmetric and (len(self.shape) != 2 or self.shape[0] != self.shape[1]):
            raise ValueError(f"{self.name} is symmetric and has shape {self.shape}; expected a square matrix")
        return symmetric

    def _bound(self, value: Any, name: str, default: float) -> Array:
        if value is None:
            return np.full(self.size, default)
        array = finite_array(value, f"{name} of {self.name}")
        if self.symmetric and array.ndim:
            array = symmetric_matrix(array, f"{name} of {self.name}")
        try:
            return self._elements_of(np.broadcast_to(array, self.shape)).copy()
        except ValueError:
            raise ValueError(
                f"{name} of {self.name} has shape {array.shape}; expected {self.shape}"
            ) from None

    def __repr__(self) -> str:
        symmetric = ", symmetric=True" if self.symmetric else ""
        return f"Variable({self.shape}, name={self.name!r}{symmetric})"


class Parameter(Operand):
    """A number or array whose value may change between solves without a new compilation.

    It may be added to expressions and bounds, and be the weight of a divergence or of a soft row (``gamma``).

    Parameters
    ----------
    shape : int or tuple of int, optional
        The default is a scalar.
    value : float or array_like of that shape, optional
    name : str, optional
        Its name in messages.
    lo, hi : float or array_like of that shape, optional
        An interval of each element that holds the true value. Solves use `value`, which is the middle unless
        given; :meth:`bregopt.Solution.verify` proves bounds for every value in the intervals.

    Attributes
    ----------
    value : array of that shape, or None
        A value that you set must be finite and in its interval; it is copied.

    Raises
    ------
    TypeError, ValueError
        If the shape or the name is invalid, a value set is not finite real numbers of that shape, one of `lo`
        and `hi` is missing, or they do not hold the value.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        *,
        value: ArrayLike | None = None,
        name: str | None = None,
        lo: ArrayLike | None = None,
        hi: ArrayLike | None = None,
    ) -> None:
        self.shape = checked_shape(shape)
        self.name = checked_name(name, "p")
        check_memory(_ELEMENT * math.prod(self.shape), f"shape {self.shape} of {self.name}")
        self._value: Array | None = None
        if (lo is None) != (hi is None):
            raise ValueError(f"parameter {self.name} has one of lo and hi; expected both or none")
        self.lo, self.hi = (
            None if end is None else checked_value(end, f"{which} of parameter {self.name}", self.shape)
            for end, which in ((lo, "lo"), (hi, "hi"))
        )
        if self.lo is not None and self.hi is not None:
            if (self.lo > self.hi).any():
                raise ValueError(f"parameter {self.name} has lo above hi; expected lo <= hi")
            value = self.lo / 2 + self.hi / 2 if value is None else value
        if value is not None:
            self.value = value

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def value(self) -> Array | None:
        """The current value, an array of the parameter's shape, or None."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        checked = checked_value(value, f"value of parameter {self.name}", self.shape)
        outside = False if self.lo is None or self.hi is None else (checked < self.lo) | (checked > self.hi)
        if np.any(outside):
            raise ValueError(
                f"value of parameter {self.name} is outside lo and hi; expected lo <= value <= hi"
            )
        self._value = checked

    @property
    def radius(self) -> Array:
        """The largest distance of a value in the interval from the current one; zero without an interval."""
        if self.lo is None or self.hi is None or self._value is None:
            return np.zeros(self.shape)
        distance = np.maximum(self.hi - self._value, self._value - self.lo)
        return np.where(distance > 0, np.nextafter(distance, np.inf), 0.0)

    @property
    def elements(self) -> Array | None:
        """The elements of the value, row by row, shape ``(size,)``, or None."""
        return None if self._value is None else self._value.ravel()

    def __getitem__(self, key: Any) -> Expression:
        return self.expression()[key]

    def __mul__(self, other: Any) -> Any:
        if getattr(other, "absorbs_expressions", False):
            return other * self
        return super().__mul__(other)

    __rmul__ = __mul__

    def expression(self) -> Expression:
        """Return this operand as an affine expression."""
        return self._expression

    @cached_property
    def _expression(self) -> Expression:
        eye = sp.csr_array(sp.eye_array(self.size))
        return Expression(self.shape, np.zeros(self.size), parameters={self: eye}, label=self.name)

    def __repr__(self) -> str:
        return f"Parameter({self.shape}, name={self.name!r})"
