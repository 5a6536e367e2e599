"""Arrays of complex affine forms, and Hermitian matrix variables as real symmetric ones of twice the order.

A complex form is a real and an imaginary part, each an array of real ones. A Hermitian ``X`` is psd if and
only if the real matrix ``[Re X, -Im X; Im X, Re X]`` is. Both have the same eigenvalues, each twice in the
real one, so that traces and divergences are twice those of ``X``. All data of a problem have that form too.
So with any ``Y`` that is optimal for the real problem the mean of ``Y`` and ``J Y J'`` is optimal, with
``J = [0, -I; I, 0]``, and it has the form (Goemans, Williamson 2004, Approximation algorithms for MAX-3-CUT
and other problems via complex semidefinite programming, J. Comput. Syst. Sci. 68).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import (
    EPS,
    Array,
    ComplexArray,
    IntArray,
    complex_array,
    entry_indices,
    hermitian_matrix,
    symmetrized,
)
from bregopt.modeling.constraints import Constraint, compare
from bregopt.modeling.expressions import Expression, Operand, as_expression
from bregopt.program.rows import Coordinates, RankOnePairs, SparseRows
from bregopt.records import replace

__all__ = [
    "ComplexEquality",
    "ComplexExpression",
    "HermitianInequality",
    "HermitianPSD",
    "as_complex",
    "compressed",
    "embedded",
    "half_embedded",
    "hermitian_forms",
    "hermitian_from_parts",
    "hermitian_parts",
    "is_hermitian",
]

_ROUND_OFF = 8 * EPS  # relative to the largest number
_HERMITIAN_TOL = 1e-10  # the largest entry of ``F - F*`` that is round-off, relative to that of ``F``


class ComplexExpression(Operand):
    """An array of complex affine forms.

    It adds, subtracts and scales, with complex numbers too, and it may be equated. Complex numbers have no
    order, so that inequalities take the real or the imaginary part.

    Attributes
    ----------
    real, imag : Expression
        The two parts, of one shape.
    """

    __array_ufunc__: Any = None  # NumPy defers to the operators of this class
    absorbs_expressions = True  # sums of a real and a complex expression are made here

    def __init__(self, real: Expression, imag: Expression, label: str) -> None:
        self._real, self._imag = real, imag
        self.label = label

    @property
    def real(self) -> Expression:
        """The real part."""
        return self._real

    @property
    def imag(self) -> Expression:
        """The imaginary part."""
        return self._imag

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.real.shape

    @property
    def value(self) -> Any:
        """The number or array at the current values, None if a variable or parameter has none."""
        real, imag = self.real.value, self.imag.value
        if real is None or imag is None:
            return None
        return real + 1j * imag

    def conj(self) -> ComplexExpression:
        """Return the complex conjugate."""
        return ComplexExpression(self.real, -self.imag, f"conj({self.label})")

    @property
    def T(self) -> ComplexExpression:
        """The transpose."""
        turn = np.arange(self.real.size).reshape(self.shape).T
        return self._mapped(lambda part: part.taken(turn.ravel(), turn.shape, part.label), f"{self.label}.T")

    @property
    def H(self) -> ComplexExpression:
        """The conjugate transpose."""
        return self.T.conj()

    def expression(self) -> NoReturn:
        """Refuse a use as a real expression."""
        raise TypeError(
            f"{self.label} is complex where a real expression is expected: take .real or .imag of it"
        )

    def __add__(self, other: Any) -> ComplexExpression:
        b = as_complex(other)
        return ComplexExpression(self.real + b.real, self.imag + b.imag, _joined(self.label, "+", b.label))

    __radd__ = __add__

    def __sub__(self, other: Any) -> ComplexExpression:
        b = as_complex(other)
        return ComplexExpression(self.real - b.real, self.imag - b.imag, _joined(self.label, "-", b.label))

    def __rsub__(self, other: Any) -> ComplexExpression:
        return as_complex(other) - self

    def __neg__(self) -> Any:
        return ComplexExpression(-self.real, -self.imag, f"-{self.label}")

    def __pos__(self) -> Any:
        return self

    def __mul__(self, factor: Any) -> ComplexExpression:
        c = _numbers(factor, "factor")
        return self._product(lambda part, number: part * number, c, f"c {self.label}")

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        c = _numbers(divisor, "divisor")
        if (c == 0).any():
            raise ValueError(f"division of {self.label} by zero; expected a divisor without zeros")
        return self * (1 / c)

    def __matmul__(self, matrix: Any) -> Any:
        c = _numbers(matrix, "factor of @")
        return self._product(lambda part, number: part @ number, c, f"{self.label} @ A")

    def __rmatmul__(self, matrix: Any) -> Any:
        c = _numbers(matrix, "factor of @")
        return self._product(lambda part, number: part.__rmatmul__(number), c, f"A @ {self.label}")

    def __getitem__(self, key: Any) -> ComplexExpression:
        return self._mapped(lambda part: part[key], f"{self.label}[...]")

    def __eq__(self, other: Any) -> ComplexEquality:  # type: ignore[override]
        return ComplexEquality(self - other, f"{self.label} == {_text(other)}")

    __hash__ = object.__hash__

    def __le__(self, other: Any) -> NoReturn:
        raise TypeError(
            f"{self.label} <= ... compares complex numbers, which have no order; compare .real or .imag"
        )

    def __ge__(self, other: Any) -> NoReturn:
        raise TypeError(
            f"{self.label} >= ... compares complex numbers, which have no order; compare .real or .imag"
        )

    def __rshift__(self, other: Any) -> Any:
        return HermitianInequality(self - other, f"{self.label} >> {_text(other)}")

    def __lshift__(self, other: Any) -> Any:
        return HermitianInequality(other - self, f"{self.label} << {_text(other)}")

    def __rrshift__(self, other: Any) -> Any:
        return HermitianInequality(other - self, f"{_text(other)} >> {self.label}")

    def __rlshift__(self, other: Any) -> Any:
        return HermitianInequality(self - other, f"{_text(other)} << {self.label}")

    def __repr__(self) -> str:
        return f"ComplexExpression({self.label}, shape={self.shape})"

    def _mapped(self, function: Callable[[Expression], Expression], label: str) -> ComplexExpression:
        """Return the same real map of both parts."""
        return ComplexExpression(function(self.real), function(self.imag), label)

    def _product(
        self, times: Callable[[Expression, Array], Expression], c: ComplexArray, label: str
    ) -> ComplexExpression:
        """Return the product with numbers, given the product of real expressions with real numbers."""
        real, imag = times(self.real, c.real), times(self.imag, c.real)
        if c.imag.any():
            real, imag = real - times(self.imag, c.imag), imag + times(self.real, c.imag)
        return ComplexExpression(real, imag, label)


class ComplexEquality(Constraint):
    """``left == right`` for complex arrays, as real rows.

    They are the real parts and then the imaginary parts of ``left - right``; if that is a Hermitian matrix,
    those on and above its diagonal.

    Attributes
    ----------
    difference : ComplexExpression
        ``left - right``.
    dual_value : complex or array of the shape of the sides, or None
        The ``v`` of the Lagrangian ``f + Re <v, left - right>``, as in CVXPY.
    """

    may_be_soft = False

    def __init__(self, difference: ComplexExpression, label: str) -> None:
        self.difference, self._label = difference, label
        self._is_hermitian = is_hermitian(difference)
        parts = hermitian_parts(difference) if self._is_hermitian else [difference.real, difference.imag]
        body = Expression.concatenated(parts)
        rows = compare(replace(body, constant=_without_round_off(body.constant)), as_expression(0.0), "==")
        super().__init__(rows.body, rows.lower, rows.upper, "==")

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        return self._label

    def dual_from_multiplier(self, y: Array) -> Any:
        """Return the complex dual from the multipliers of the rows."""
        if self._is_hermitian:
            return hermitian_from_parts(-y, self.difference.shape[0])
        real, imag = np.split(-y, 2)
        dual = (real + 1j * imag).reshape(self.difference.shape)
        return dual if self.difference.shape else complex(dual)


class HermitianInequality(Constraint):
    """``F >> 0`` for a Hermitian matrix of complex affine forms: a psd matrix ``Z`` with rows ``F - Z == 0``.

    Attributes
    ----------
    F : ComplexExpression
        Of shape ``(n, n)``.
    dual_value : complex array of shape (n, n), or None
        The Hermitian psd ``S`` of the Lagrangian ``f - tr(S F)``.

    Raises
    ------
    ValueError
        If ``F`` is not square, or not Hermitian.
    """

    may_be_soft = False

    def __init__(self, F: ComplexExpression, label: str) -> None:
        from bregopt.modeling.variables import PSD  # which has the real forms of this module

        if not is_hermitian(F):
            raise ValueError(
                f"{label} is about a matrix of shape {F.shape} that is not Hermitian; "
                "if its Hermitian part is meant write (F + F.H) / 2"
            )
        self.F, self._label, self.n = F, label, F.shape[0]
        slack: Any = PSD(self.n, hermitian=True)
        slack.block.name = f"{slack.name}, the slack of {label}"
        slack.block.is_slack = True
        rows = compare(Expression.concatenated(hermitian_parts(F - slack)), as_expression(0.0), "==")
        super().__init__(rows.body, rows.lower, rows.upper, "==")

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        return self._label

    def dual_from_multiplier(self, y: Array) -> Any:
        """Return the Hermitian dual from the multipliers of the rows."""
        return hermitian_from_parts(y, self.n)


def is_hermitian(F: ComplexExpression) -> bool:
    """Whether an array is a Hermitian matrix for all values of its variables, up to round-off.

    An affine matrix that is Hermitian at a random point is Hermitian everywhere, with probability one.
    """
    if len(F.shape) != 2 or F.shape[0] != F.shape[1]:
        return False
    A = _at_a_random_point(F)
    return bool(np.abs(A - A.conj().T).max() <= _HERMITIAN_TOL * np.abs(A).max())


def hermitian_parts(F: ComplexExpression) -> list[Expression]:
    """Return the real parts of a Hermitian matrix from the diagonal on, and the imaginary parts above it."""
    n = F.shape[0]
    parts = [F[np.triu_indices(n)].real]
    return [*parts, F[np.triu_indices(n, 1)].imag] if n > 1 else parts


def hermitian_from_parts(y: Array, n: int) -> ComplexArray:
    """Return the Hermitian ``S`` with ``tr(S F) = y'f`` for the parts ``f`` of every Hermitian ``F``."""
    i, j = np.triu_indices(n)
    half = np.zeros((n, n), dtype=complex)
    half[i, j] = y[: len(i)] / 2
    half[np.triu_indices(n, 1)] += 0.5j * y[len(i) :]
    return half + half.conj().T


def as_complex(value: Any) -> ComplexExpression:
    """Return an operand or numbers as a complex expression."""
    if isinstance(value, ComplexExpression):
        return value
    if isinstance(value, Operand):
        e = value.expression()
        return ComplexExpression(e, as_expression(np.zeros(e.shape)), e.label)
    c = _numbers(value, "constant")
    return ComplexExpression(as_expression(c.real), as_expression(c.imag), "constant")


def _numbers(value: Any, name: str) -> ComplexArray:
    if isinstance(value, Operand):
        raise TypeError(f"{name} is an expression ({value!r}); expected numbers: products are not affine")
    return complex_array(value, name)


def _without_round_off(constant: Array) -> Array:
    """Return numbers with zeros for round-off, such as the imaginary parts of a diagonal."""
    return np.where(np.abs(constant) > _ROUND_OFF * np.abs(constant).max(initial=0.0), constant, 0.0)


def _at_a_random_point(F: ComplexExpression) -> ComplexArray:
    """Return the value of an array where all variables and parameters are random."""
    rng, values = np.random.default_rng(0), dict[Any, Array]()
    for part in (F.real, F.imag):
        for X in part.operands("psd"):
            G = rng.standard_normal(X.shape)
            values.setdefault(X, G + G.T)
        for u in (*part.operands("variables"), *part.operands("parameters")):
            values.setdefault(u, rng.standard_normal(u.size))
    return np.asarray(F.real.at(values)) + 1j * np.asarray(F.imag.at(values))


def _text(side: Any) -> str:
    """Return a side of a comparison in messages."""
    e = as_complex(side)
    if not (e.real.is_constant and e.imag.is_constant):
        return e.label
    first = e.real.constant[0] + 1j * e.imag.constant[0]
    same = (e.real.constant == first.real).all() and (e.imag.constant == first.imag).all()
    return "B" if not same else f"{first + 0.0:g}" if first.imag else f"{first.real:g}"


def _joined(first: str, sign: str, second: str) -> str:
    """Return the label of a sum, without constants."""
    if "constant" in (first, second):
        return second if first == "constant" else first
    return f"{first} {sign} {second}"


class HermitianPSD(ComplexExpression):
    """A Hermitian positive semidefinite matrix variable, made by ``bo.PSD(n, hermitian=True)``.

    Parameters
    ----------
    block : PSD
        Its real form, of order ``2 n``.

    Attributes
    ----------
    real, imag : Expression
        The real and the imaginary part, of shape ``(n, n)``; the imaginary part is antisymmetric.
    value : complex array of shape (n, n), or None
        Set by :meth:`bregopt.Problem.solve`. A value that you set must be finite, Hermitian and positive
        semidefinite; it is copied.
    """

    is_hermitian = True

    def __init__(self, block: Any) -> None:
        self.block = block
        self.n = block.n // 2
        self.name = self.label = block.name

    @property
    def shape(self) -> tuple[int, int]:
        """The shape ``(n, n)``."""
        return self.n, self.n

    @property
    def real(self) -> Expression:
        """The real part, symmetric."""
        return self[:, :].real

    @property
    def imag(self) -> Expression:
        """The imaginary part, antisymmetric."""
        return self[:, :].imag

    @property
    def H(self) -> HermitianPSD:
        """The conjugate transpose, which is the matrix itself."""
        return self

    @property
    def value(self) -> ComplexArray | None:
        """The current value, read-only, or None."""
        Y = self.block.value
        return None if Y is None else compressed(Y)

    @value.setter
    def value(self, value: Any) -> None:
        name = f"value of {self.name}"
        self.block.value = None if value is None else embedded(hermitian_matrix(value, name, self.n))

    def __getitem__(self, key: Any) -> ComplexExpression:
        """Return entries; `key` is any index that NumPy accepts for an array of shape ``(n, n)``."""
        i, j = entry_indices(key, self.n, self.name)
        shape, label = np.shape(i), f"{self.name}[{i}, {j}]" if np.ndim(i) == 0 else f"{self.name}[...]"
        i, j, n = np.ravel(i), np.ravel(j), self.n
        real = self._half_sum((i, j), (n + i, n + j), 1.0, shape, f"{label}.real")
        return ComplexExpression(
            real, self._half_sum((n + i, j), (i, n + j), -1.0, shape, f"{label}.imag"), label
        )

    def _half_sum(
        self,
        first: tuple[IntArray, IntArray],
        second: tuple[IntArray, IntArray],
        sign: float,
        shape: tuple[int, ...],
        label: str,
    ) -> Expression:
        """Return half of the sum of entries of the block and of `sign` times other entries."""
        m = len(first[0])
        row = np.tile(np.arange(m), 2)
        i, j = (np.concatenate(pair) for pair in zip(first, second, strict=True))
        terms = Coordinates(row, i, j, np.repeat([0.5, 0.5 * sign], m))
        rows = SparseRows.of(m, self.block.n, terms)
        return Expression(shape, np.zeros(m), {self.block: rows}, label=label)

    def __repr__(self) -> str:
        return f"PSD({self.n}, name={self.name!r}, hermitian=True)"


def half_embedded(A: Any, name: str, n: int) -> Any:
    """Return ``B`` with ``<B, Y> = tr(A X)`` for the real form ``Y`` of ``X``, after checks of `A`."""
    if not sp.issparse(A):
        return embedded(hermitian_matrix(A, name, n)) / 2
    if A.shape != (n, n):
        raise ValueError(f"{name} has shape {A.shape}; expected {n} x {n}")
    complex_array(sp.coo_array(A).data, name)
    return embedded(symmetrized(sp.csr_array(A, dtype=complex), name)) / 2


def hermitian_forms(Z: Any, X: HermitianPSD) -> Expression:
    """Return ``z*X z`` for each row ``z`` of `Z`, as :func:`bregopt.quad_form`."""
    given = complex_array(Z, "Z of quad_form", ndim=(1, 2))
    rows = np.atleast_2d(given)
    if rows.shape[1] != X.n:
        raise ValueError(f"Z of quad_form has shape {given.shape}; expected rows of length {X.n}")
    m = len(rows)
    if m == 0:
        raise ValueError("Z of quad_form has no rows; expected at least one")
    U, W = np.hstack([rows.real, rows.imag]), np.hstack([-rows.imag, rows.real])
    forms = RankOnePairs(U, W, np.full(m, 0.5))
    return Expression(given.shape[:-1], np.zeros(m), {X.block: forms}, label=f"quad_form(Z, {X.name})")


def embedded(A: Any) -> Any:
    """Return ``[Re A, -Im A; Im A, Re A]``, dense or sparse as `A`; symmetric where `A` is Hermitian."""
    if sp.issparse(A):
        return sp.csr_array(sp.block_array([[A.real, -A.imag], [A.imag, A.real]]))
    return np.block([[A.real, -A.imag], [A.imag, A.real]])


def compressed(Y: Any) -> ComplexArray:
    """Return ``A`` for the matrix ``[Re A, -Im A; Im A, Re A]`` that is nearest to `Y`."""
    n = len(Y) // 2
    A: ComplexArray = (Y[:n, :n] + Y[n:, n:] + 1j * (Y[n:, :n] - Y[:n, n:])) / 2
    return A
