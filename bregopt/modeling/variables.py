"""Variables: psd matrices, symmetric or Hermitian, and ordinary ones; and parameters."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import (
    Array,
    ComplexArray,
    IntArray,
    check_memory,
    entry_indices,
    finite_array,
    symmetric_matrix,
)
from bregopt.modeling.complex_variables import ComplexOperand, HermitianPSD, compressed, embedded
from bregopt.modeling.expressions import Expression, Operand
from bregopt.program.rows import Entries
from bregopt.program.rows.base import LowRank, Matrix
from bregopt.records import cached_property, replace

_ORDER = 16  # bytes that a declaration takes for each row of a matrix: indices
# Bytes that a declaration takes for each element: two bounds, a column and a coefficient.
_ELEMENT = 100
VALUE_TOL = 1e-8  # tolerance of a given value: times the largest entry for the cone, max(1, |u|) for the box
_LARGEST_SIZE = 2**31 - 1  # its square, the number of entries, fits a 64-bit integer
_LEGIBLE = 10**30  # messages give larger integers by their number of bits
_counter = itertools.count()


class PSD(Operand):
    """A symmetric positive semidefinite matrix variable, or a Hermitian one.

    Parameters
    ----------
    n : int
        Its order.
    name : str, optional
        Its name in messages and answers.
    hermitian : bool
        Whether it is complex Hermitian. Its parts are ``X.real`` and ``X.imag``, and its value is complex.

    Attributes
    ----------
    value : array of shape (n, n), LowRank or None
        Set by :meth:`bregopt.Problem.solve`. A value that you set must be finite, symmetric (Hermitian) and
        positive semidefinite; it is copied.

    Raises
    ------
    TypeError, ValueError
        If `n` is not a positive integer, `name` is not a string, `hermitian` is not a bool, or a value set is
        not such a matrix.
    """

    is_hermitian = False
    is_slack = False  # of a matrix inequality, which has no place in answers

    def __new__(cls, *args: Any, hermitian: bool = False, **named: Any) -> Any:
        """Return the variable; a Hermitian one has a class of its own."""
        if not isinstance(hermitian, bool):
            raise TypeError(f"hermitian is {hermitian!r}; expected True or False")
        if not hermitian:
            return super().__new__(cls)
        return _RealForm(*args, **named).whole

    def __init__(self, n: int, name: str | None = None, *, hermitian: bool = False) -> None:
        self.n = _checked_size(n, "n")
        self.name = _checked_name(name, "X")
        check_memory(_ORDER * self.n, f"n = {self.n} of {self.name}")
        self._value: Array | LowRank | None = None

    @property
    def value(self) -> Array | LowRank | None:
        """The current value, read-only, or None."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = None if value is None else self._checked(value)

    @property
    def whole(self) -> Any:
        """The variable that the user declared: this one, or the Hermitian one whose real form it is."""
        return self

    @property
    def block(self) -> PSD:
        """The real matrix in the program: this one."""
        return self

    def of_block(self, value: Matrix) -> Matrix | ComplexArray:
        """Return the matrix of the declared variable that belongs to one of the program."""
        return value

    def set_answer(self, value: Matrix | None) -> Matrix | ComplexArray | None:
        """Set the value without a check or a copy; return that of the declared variable."""
        self._value = value
        return value

    def _checked(self, value: Any) -> Array | LowRank:
        name = f"value of {self.name}"
        if isinstance(value, LowRank):
            if value.shape != self.shape:
                raise ValueError(f"{name} has shape {value.shape}; expected {self.n} x {self.n}")
            return value
        matrix = symmetric_matrix(value, name, self.n)
        least = float(np.linalg.eigvalsh(matrix)[0])
        if least < -VALUE_TOL * np.abs(matrix).max():
            raise ValueError(
                f"{name} has the eigenvalue {least:.3g}; expected a positive semidefinite matrix"
            )
        matrix.setflags(write=False)
        return matrix

    @property
    def shape(self) -> tuple[int, int]:
        """The shape ``(n, n)``."""
        return self.n, self.n

    @property
    def T(self) -> PSD:
        """The transpose, which is the matrix itself."""
        return self

    def __getitem__(self, key: Any) -> Expression:
        """Return entries; `key` is any index that NumPy accepts for an array of shape ``(n, n)``."""
        i, j = entry_indices(key, self.n, self.name)
        shape = np.shape(i)
        entries = Entries(self.n, np.ravel(i), np.ravel(j), np.ones(np.size(i)))
        label = f"{self.name}[{int(i)}, {int(j)}]" if shape == () else f"{self.name}[...]"
        return Expression(shape, np.zeros(np.size(i)), {self: entries}, label=label)

    def expression(self) -> Expression:
        """Return all entries, shape ``(n, n)``."""
        return replace(self[:, :], label=self.name)

    def __repr__(self) -> str:
        return f"PSD({self.n}, name={self.name!r})"


class _RealForm(PSD):
    """The real matrix of order ``2 n`` of a Hermitian one of order `n`."""

    def __init__(self, n: int, name: str | None = None) -> None:
        super().__init__(n, name)
        self.n = 2 * self.n
        self._whole: Any = None

    @property
    def whole(self) -> Any:
        """The Hermitian matrix."""
        if self._whole is None:
            self._whole = HermitianPSD(self)
        return self._whole

    def of_block(self, value: Any) -> ComplexArray:
        """Return the Hermitian matrix of the nearest real form."""
        return compressed(np.asarray(value))

    def set_answer(self, value: Array | LowRank | None) -> ComplexArray | None:
        """Set the value to the nearest real form; return it as a complex matrix."""
        X = None if value is None else self.of_block(value)
        self._value = None if X is None else embedded(X)
        return X


class Variable(Operand):
    """An ordinary scalar, vector or array variable, or a symmetric or Hermitian matrix.

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
    complex, hermitian : bool
        Whether it is complex, or a complex Hermitian matrix. Its parts are ``z.real`` and ``z.imag``; it
        takes no bounds.

    Attributes
    ----------
    value : float, array of that shape, or None
        Set by :meth:`bregopt.Problem.solve`. A value that you set must be finite and within the bounds; it is
        copied.

    Raises
    ------
    TypeError, ValueError
        If the shape, the name, `nonneg`, `symmetric`, `complex` or `hermitian` is invalid, bounds are not
        numbers or of a complex variable, a lower bound is above the upper one, or a value set has another
        shape, is out of bounds, or is not symmetric.
    """

    _whole: Any = None  # the complex variable whose parts it holds

    def __new__(cls, shape: Any = (), *, complex: bool = False, hermitian: bool = False, **named: Any) -> Any:
        """Return the variable; a complex one has a class of its own."""
        parts = _shape_of_parts(shape, complex, hermitian)
        if parts is None:
            return super().__new__(cls)
        for key in named:
            if key != "name" and named[key] is not None and named[key] is not False:
                raise TypeError(
                    f"{key} is given for a complex variable; expected rows of its .real and .imag, or "
                    "hermitian=True alone"
                )
        own = cls(parts, name=named.get("name"))
        own._whole = ComplexOperand(own, hermitian)
        return own._whole

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        *,
        name: str | None = None,
        nonneg: bool = False,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        symmetric: bool = False,
        complex: bool = False,
        hermitian: bool = False,
    ) -> None:
        self.shape = _checked_shape(shape)
        self.name = _checked_name(name, "u")
        self.symmetric = self._is_square(symmetric)
        check_memory(_ELEMENT * math.prod(self.shape), f"shape {self.shape} of {self.name}")
        if not isinstance(nonneg, bool):
            raise TypeError(f"nonneg of {self.name} is {nonneg!r}; expected True or False")
        if nonneg and lower is not None:
            raise ValueError(f"{self.name}: give nonneg=True or lower=, not both")
        self.lower = self._bound(0.0 if nonneg else lower, "lower", -np.inf)
        self.upper = self._bound(upper, "upper", np.inf)
        crossed = (self.lower > self.upper).nonzero()[0]
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
        array = _checked_value(symmetric_matrix(value, name) if self.symmetric else value, name, self.shape)
        found = self._elements_of(array)
        slack = VALUE_TOL * np.maximum(1.0, np.abs(found))
        outside = ((found < self.lower - slack) | (found > self.upper + slack)).nonzero()[0]
        if len(outside):
            k = int(outside[0])
            expected = f"{self.lower[k]:g} to {self.upper[k]:g}"
            raise ValueError(f"value of {self.name} is {found[k]:g} at {k}; expected {expected}")
        return array if self.shape else float(array)

    @property
    def whole(self) -> Any:
        """The variable that the user declared: this one, or the complex one whose parts it holds."""
        return self if self._whole is None else self._whole

    def of_elements(self, elements: Array) -> Array | ComplexArray | complex:
        """Return the value of the declared variable with the given elements, shape ``(size,)``."""
        value: Any = self.with_elements(elements)
        found: Array | ComplexArray | complex = value if self.whole is self else self.whole.of_parts(value)
        return found

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
            return elements.item(0)
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
        eye = _unit_rows(self.size)
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

    It may be added to expressions and bounds, multiply expressions without parameters, and be the weight of a
    divergence or of a soft row (``gamma``), or its ``X0``.

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
    complex, hermitian : bool
        Whether it is complex, or a complex Hermitian matrix. Its parts are ``p.real`` and ``p.imag``; it
        takes no interval.

    Attributes
    ----------
    value : array of that shape, or None
        A value that you set must be finite, in its interval, and Hermitian where that is declared; it is
        copied.

    Raises
    ------
    TypeError, ValueError
        If the shape or the name is invalid, a value set is not finite numbers of that shape, or not real
        ones, one of `lo` and `hi` is missing, or they do not hold the value.
    """

    _whole: Any = None  # the complex parameter whose parts it holds

    def __new__(cls, shape: Any = (), *, complex: bool = False, hermitian: bool = False, **named: Any) -> Any:
        """Return the parameter; a complex one has a class of its own."""
        parts = _shape_of_parts(shape, complex, hermitian)
        if parts is None:
            return super().__new__(cls)
        for end in ("lo", "hi"):
            if named.pop(end, None) is not None:
                raise TypeError(
                    f"{end} is given for a complex parameter; expected intervals of real parameters alone"
                )
        value = named.pop("value", None)
        own = cls(parts, **named)
        own._whole = ComplexOperand(own, hermitian)
        if value is not None:
            own._whole.value = value
        return own._whole

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        *,
        value: ArrayLike | None = None,
        name: str | None = None,
        lo: ArrayLike | None = None,
        hi: ArrayLike | None = None,
        complex: bool = False,
        hermitian: bool = False,
    ) -> None:
        self.shape = _checked_shape(shape)
        self.name = _checked_name(name, "p")
        check_memory(_ELEMENT * math.prod(self.shape), f"shape {self.shape} of {self.name}")
        self._value: Array | None = None
        if (lo is None) != (hi is None):
            raise ValueError(f"parameter {self.name} has one of lo and hi; expected both or none")
        self.lo, self.hi = (
            None if end is None else _checked_value(end, f"{which} of parameter {self.name}", self.shape)
            for end, which in ((lo, "lo"), (hi, "hi"))
        )
        if self.lo is not None and self.hi is not None:
            if (self.lo > self.hi).any():
                raise ValueError(f"parameter {self.name} has lo above hi; expected lo <= hi")
            value = self.lo / 2 + self.hi / 2 if value is None else value
        if value is not None:
            self.value = value

    @property
    def whole(self) -> Any:
        """The parameter that the user declared: this one, or the complex one whose parts it holds."""
        return self if self._whole is None else self._whole

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
        checked = _checked_value(value, f"value of parameter {self.name}", self.shape)
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
        eye = _unit_rows(self.size)
        return Expression(self.shape, np.zeros(self.size), parameters={self: eye}, label=self.name)

    def __repr__(self) -> str:
        return f"Parameter({self.shape}, name={self.name!r})"


def _unit_rows(n: int) -> Any:
    """Return the identity in CSR form; SciPy's function takes three times as long for few rows."""
    return sp.csr_array((np.ones(n), np.arange(n), np.arange(n + 1)), (n, n))


def _shape_of_parts(shape: Any, is_complex: Any, is_hermitian: Any) -> tuple[int, ...] | None:
    """Return the shape of the real operand that holds the parts of a complex one, None for a real one."""
    for name, given in (("complex", is_complex), ("hermitian", is_hermitian)):
        if not isinstance(given, bool):
            raise TypeError(f"{name} is {given!r}; expected True or False")
    if not is_complex and not is_hermitian:
        return None
    sizes = _checked_shape(shape)
    if is_hermitian and (len(sizes) != 2 or sizes[0] != sizes[1]):
        raise ValueError(f"hermitian is True for shape {sizes}; expected a square matrix")
    return sizes if is_hermitian else (2, *sizes)


def _checked_name(name: Any, prefix: str) -> str:
    """Return the given name, or a generated one that is used once."""
    if name is None:
        return f"{prefix}{next(_counter)}"
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; expected a string")
    if not name:
        raise ValueError("name is empty; expected at least one character, or None")
    return name


def _checked_value(value: Any, name: str, shape: tuple[int, ...]) -> Array:
    """Return a value as a finite array of the given shape, read-only so that it stays valid."""
    array = finite_array(value, name)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    array.setflags(write=False)
    return array


def _checked_size(n: Any, name: str) -> int:
    """Return a size as a positive integer."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"{name} is {n!r}; expected a positive integer")
    if n < 1:
        raise ValueError(f"{name} is {n}; expected a positive integer")
    if n > _LARGEST_SIZE:
        digits = n if n < _LEGIBLE else f"a number of {int(n).bit_length()} bits"
        raise ValueError(f"{name} is {digits}; expected at most {_LARGEST_SIZE}")
    return int(n)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of positive integers."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    return tuple(_checked_size(n, "shape") for n in sizes)
