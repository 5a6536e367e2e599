"""Arrays of complex affine forms, each a real and an imaginary part, and constraints of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import (
    Array,
    ComplexArray,
    Mask,
    complex_array,
    scattered,
)
from bregopt.modeling.affine import as_factor, random_values, sum_label
from bregopt.modeling.constraints import Constraint, compare, matrix_inequality
from bregopt.modeling.expressions import (
    Expression,
    ExpressionLike,
    Operand,
    as_expression,
    check_not_empty,
    holds_complex,
    indexed_label,
)
from bregopt.records import replace

_ROUND_OFF = 1e-13  # a part of a complex number that is round-off, relative to its absolute value
_HERMITIAN_TOL = 1e-10  # the largest entry of ``F - F*`` that is round-off, relative to that of ``F``


class ComplexForms(Operand):
    """An array of complex affine forms: an expression, a variable or a parameter.

    It adds, subtracts and multiplies as real expressions do, with complex numbers too, and it may be equated.
    Complex numbers have no order, so that inequalities take the real or the imaginary part, or the absolute
    value. An expression whose imaginary part is zero for all values of its variables, such as the trace of a
    product of Hermitian matrices, may stand wherever a real one is expected.

    Attributes
    ----------
    real, imag : Expression
        The two parts, of one shape.
    """

    is_complex = True

    label: str
    _parts: tuple[Expression, ...]

    @property
    def real(self) -> Expression:
        """The real part."""
        return self._parts[0]

    @property
    def imag(self) -> Expression:
        """The imaginary part."""
        return self._parts[1]

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
        return self._mapped(
            lambda part: part.taken(turn.ravel(), turn.shape, part.label), f"{as_factor(self.label)}.T"
        )

    @property
    def H(self) -> Any:
        """The conjugate transpose."""
        return relabeled(self.T.conj(), f"{as_factor(self.label)}.H")

    def expression(self) -> Expression:
        """Return the real part of an expression without an imaginary one; refuse others."""
        zero = vanishing_parts(self)[1]
        if zero.all():
            return replace(self.real, label=self.label)
        place = f" of its element {np.argwhere(~zero)[0].tolist()}" if self.shape else ""
        raise TypeError(
            f"{self.label} is complex where a real expression is expected: the imaginary part{place} is not "
            "zero. Take .real, .imag or bo.abs of it"
        )

    def __add__(self, other: Any) -> Any:
        if _is_curved(other):
            return NotImplemented
        b = as_complex(other)
        return ComplexExpression(self.real + b.real, self.imag + b.imag, _joined(self.label, "+", b.label))

    def __radd__(self, other: Any) -> Any:
        return as_complex(other) + self

    def __sub__(self, other: Any) -> Any:
        if _is_curved(other):
            return NotImplemented
        b = as_complex(other)
        return ComplexExpression(self.real - b.real, self.imag - b.imag, _joined(self.label, "-", b.label))

    def __rsub__(self, other: Any) -> Any:
        return as_complex(other) - self

    def __neg__(self) -> Any:
        return ComplexExpression(-self.real, -self.imag, f"-{as_factor(self.label)}")

    def __pos__(self) -> Any:
        return self

    def __mul__(self, factor: Any) -> Any:
        if _is_curved(factor):
            return NotImplemented
        own = as_factor(self.label)
        if isinstance(factor, Operand):
            label = f"{own} * {as_factor(as_complex(factor).label)}"
        else:
            number = _text(factor) if np.ndim(factor) == 0 else "A *"
            label = f"({number}) {own}" if "+" in number[1:] or "-" in number[1:] else f"{number} {own}"
        return _product(operator.mul, _factor(self), _factor(factor), label)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Any:
        if isinstance(divisor, Operand):
            return super().__truediv__(divisor)  # which refuses it
        c = complex_array(divisor, "divisor")
        if (c == 0).any():
            raise ValueError(f"division of {self.label} by zero; expected a divisor without zeros")
        return self * (1 / c)

    def __matmul__(self, other: Any) -> Any:
        return _matrix_product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _matrix_product(other, self)

    def __getitem__(self, key: Any) -> ComplexExpression:
        return self._mapped(lambda part: part[key], indexed_label(self.label, key))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the first axis, as NumPy and CVXPY do."""
        if not self.shape:
            raise TypeError(f"{self.label} is a scalar: it has no elements to iterate over")
        return (self[k] for k in range(self.shape[0]))

    def __eq__(self, other: Any) -> Any:
        if _is_curved(other):
            return NotImplemented
        b = as_complex(other)
        if _is_real(self) and _is_real(b):
            return self.expression() == b.expression()
        return ComplexEquality(self - b, f"{self.label} == {_text(other)}")

    __hash__ = object.__hash__

    def __le__(self, other: Any) -> Any:
        left, right = _real_sides(self, other, "<=")
        return left <= right

    def __ge__(self, other: Any) -> Any:
        left, right = _real_sides(self, other, ">=")
        return left >= right

    def __rshift__(self, other: Any) -> Any:
        return _inequality(self, other, ">>")

    def __lshift__(self, other: Any) -> Any:
        return _inequality(self, other, "<<")

    def __rrshift__(self, other: Any) -> Any:
        return _inequality(other, self, ">>")

    def __rlshift__(self, other: Any) -> Any:
        return _inequality(other, self, "<<")

    def __pow__(self, power: Any) -> NoReturn:
        raise TypeError(
            f"{self.label} ** {power!r} is not affine; for squares of absolute values write "
            f"bo.square(bo.abs({self.label}))"
        )

    def __abs__(self) -> NoReturn:
        raise TypeError(f"abs takes no expression of bregopt; write bo.abs({self.label})")

    def _mapped(self, function: Callable[[Expression], Expression], label: str) -> ComplexExpression:
        """Return the same real map of both parts."""
        return ComplexExpression(function(self.real), function(self.imag), label)


class ComplexExpression(ComplexForms):
    """An array of complex affine forms that arithmetic has made.

    Variables and parameters are of other classes, as Python would call the comparison of the right side first
    if that had a class derived from the one of the left side.

    Parameters
    ----------
    real, imag : Expression
        The two parts, of one shape.
    label : str
        Its name in messages.
    """

    def __init__(self, real: Expression, imag: Expression, label: str) -> None:
        self._parts = tuple(
            part
            if part.is_constant and not part.parameters
            else replace(part, label=f"{as_factor(label)}.{kind}")
            for part, kind in ((real, "real"), (imag, "imag"))
        )
        self.label = label

    def __repr__(self) -> str:
        return f"ComplexExpression({self.label}, shape={self.shape})"


def real(x: ExpressionLike) -> Expression:
    """Return the real part of an expression; that of a real one is the expression itself.

    Parameters
    ----------
    x : expression or array_like
        Affine, real or complex.

    Returns
    -------
    Expression
        Of the shape of `x`.
    """
    return as_complex(x, "x of real").real


def imag(x: ExpressionLike) -> Expression:
    """Return the imaginary part of an expression; that of a real one is zero.

    Parameters
    ----------
    x : expression or array_like
        Affine, real or complex.

    Returns
    -------
    Expression
        Of the shape of `x`.
    """
    return as_complex(x, "x of imag").imag


def conj(x: ExpressionLike) -> ComplexForms | Expression:
    """Return the complex conjugate of an expression; that of a real one is the expression itself.

    Parameters
    ----------
    x : expression or array_like
        Affine, real or complex.

    Returns
    -------
    ComplexExpression or Expression
        Of the shape of `x`.
    """
    return as_complex(x, "x of conj").conj() if holds_complex(x) else as_expression(x, "x of conj")


class ComplexEquality(Constraint):
    """``left == right`` for complex arrays, as real rows.

    They are the real parts and then the imaginary parts of ``left - right``; if that is a Hermitian matrix,
    those on and above its diagonal. Parts that are zero for all values of the variables are left out.

    Attributes
    ----------
    difference : ComplexExpression
        ``left - right``.
    dual_value : complex or array of the shape of the sides, or None
        The ``v`` of the Lagrangian ``f + Re <v, left - right>``, as in CVXPY.
    """

    may_be_soft = False

    def __init__(self, difference: ComplexForms, label: str) -> None:
        self.difference, self._label = difference, label
        self._is_hermitian = is_hermitian(difference)
        masks = [~part for part in vanishing_parts(difference)]
        if self._is_hermitian:
            upper = np.triu_indices(difference.shape[0])
            difference, masks = difference[upper], [mask[upper] for mask in masks]
        kept = np.flatnonzero(np.concatenate([mask.ravel() for mask in masks]))
        self._kept = kept if len(kept) else np.arange(2 * difference.real.size)
        parts = Expression.concatenated([difference.real, difference.imag])
        body = parts.taken(self._kept, (len(self._kept),), label)
        rows = compare(body, as_expression(0.0), "==")
        super().__init__(rows.body, rows.lower, rows.upper, "==")

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        return self._label

    def dual_from_multiplier(self, y: Array) -> Any:
        """Return the complex dual from the multipliers of the rows."""
        shape = self.difference.shape
        count = (shape[0] + 1) * shape[0] // 2 if self._is_hermitian else self.difference.real.size
        parts = scattered(self._kept, -y, 2 * count)
        dual = parts[:count] + 1j * parts[count:]
        if self._is_hermitian:
            half = np.zeros(shape, dtype=complex)
            half[np.triu_indices(shape[0])] = dual / 2
            return half + half.conj().T
        return dual.reshape(shape) if shape else complex(dual[0])


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

    def __init__(self, F: ComplexForms, label: str) -> None:
        from bregopt.modeling.variables import PSD  # which has the real forms of this module

        if not is_hermitian(F):
            raise ValueError(
                f"{label} is about a matrix of shape {F.shape} that is not Hermitian{_unlike_entries(F)}; if "
                "its Hermitian part is meant write (F + F.H) / 2. A variable or parameter may be declared "
                "with hermitian=True"
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


def is_hermitian(F: ComplexForms) -> bool:
    """Whether an array is a Hermitian matrix for all values of its variables, up to round-off."""
    if len(F.shape) != 2 or F.shape[0] != F.shape[1]:
        return False
    A = _at_a_random_point(F)
    return bool(np.abs(A - A.conj().T).max() <= _HERMITIAN_TOL * np.abs(A).max())


def hermitian_parts(F: ComplexForms) -> list[Expression]:
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


def as_complex(value: Any, name: str = "constant") -> ComplexForms:
    """Return an operand or numbers as a complex expression; `name` is that of the numbers in messages."""
    if isinstance(value, ComplexForms):
        return value
    if isinstance(value, Operand):
        e = value.expression()
        return ComplexExpression(e, as_expression(np.zeros(e.shape)), e.label)
    c = complex_array(value, name)
    check_not_empty(c, name)
    return ComplexExpression(as_expression(c.real), as_expression(c.imag), name)


def relabeled(e: Any, label: str) -> Any:
    """Return a real or complex expression with another label."""
    if isinstance(e, ComplexForms):
        return ComplexExpression(e.real, e.imag, label)
    return replace(e, label=label)


def vanishing_parts(F: ComplexForms) -> tuple[Mask, Mask]:
    """Return where the real and where the imaginary part is zero for all values, up to round-off.

    Returns
    -------
    real, imag : bool arrays of the shape of `F`
    """
    A = np.asarray(_at_a_random_point(F))
    limit = _ROUND_OFF * np.abs(A)
    return np.abs(A.real) <= limit, np.abs(A.imag) <= limit


def _is_real(F: ComplexForms) -> bool:
    return bool(vanishing_parts(F)[1].all())


def _is_curved(value: Any) -> bool:
    """Whether a value is an expression with curvature, whose own operators then take the other side."""
    return getattr(value, "absorbs_expressions", False)


def _factor(value: Any, name: str = "factor", ndim: tuple[int, ...] | None = None) -> list[Any]:
    """Return the real and the imaginary part of a factor, None for one of them that is zero."""
    parts: list[Any]
    if isinstance(value, Operand):
        e = as_complex(value)
        parts = [e.real, e.imag]
        zero = [_is_zero(part) for part in parts]
    else:
        if sp.issparse(value) and ndim is not None:  # only products of matrices take sparse ones
            complex_array(sp.coo_array(value).data, name)
        else:
            value = complex_array(value, name, ndim)
        check_not_empty(value, name)
        parts = [value.real, value.imag]
        zero = [not (sp.coo_array(part).data if sp.issparse(part) else part).any() for part in parts]
    return parts if all(zero) else [None if none else part for part, none in zip(parts, zero, strict=True)]


def _is_zero(e: Expression) -> bool:
    return e.is_constant and not e.parameters and not e.constant.any()


def _product(
    times: Callable[[Any, Any], Expression], left: list[Any], right: list[Any], label: str
) -> ComplexExpression:
    """Return the product of factors in parts, given that of real ones."""
    (a, b), (c, d) = left, right
    ac, bd, ad, bc = (
        None if x is None or y is None else times(x, y) for x, y in ((a, c), (b, d), (a, d), (b, c))
    )
    real = ac if bd is None else -bd if ac is None else ac - bd
    imag = ad if bc is None else bc if ad is None else ad + bc
    found: Any = imag if real is None else real
    zero = as_expression(np.zeros(found.shape))
    return ComplexExpression(zero if real is None else real, zero if imag is None else imag, label)


def _matrix_product(left: Any, right: Any) -> Any:
    if _is_curved(left) or _is_curved(right):
        return NotImplemented
    first, second = (_factor(side, "factor of @", ndim=(1, 2)) for side in (left, right))
    sides = (as_factor(as_complex(e).label) if isinstance(e, Operand) else "A" for e in (left, right))
    return _product(operator.matmul, first, second, " @ ".join(sides))


def _real_sides(left: Any, right: Any, sense: str) -> tuple[Any, Any]:
    """Return both sides of an inequality as real ones; refuse one with an imaginary part."""
    for side in (left, right):
        if not _is_curved(side) and not _is_real(as_complex(side)):
            raise TypeError(
                f"{_text(left)} {sense} {_text(right)} compares complex numbers, which have no order: the "
                f"imaginary part of {_text(side)} is not zero. Compare .real, .imag or bo.abs of it"
            )
    first, second = (side if _is_curved(side) else as_complex(side).expression() for side in (left, right))
    return first, second


def _inequality(left: Any, right: Any, sign: str) -> Any:
    """Return the constraint ``left >> right`` or ``left << right``."""
    label = f"{_text(left)} {sign} {_text(right)}"
    sides = [as_complex(side) for side in (left, right)]
    for side in sides:
        if side.shape == () and not (_is_zero(side.real) and _is_zero(side.imag)):
            raise ValueError(
                f"{label}: {_text(side)} is a scalar; expected a square matrix or 0. For a multiple of the "
                "identity write t * np.eye(n); scalars are compared by >= and <="
            )
    F = sides[0] - sides[1] if sign == ">>" else sides[1] - sides[0]
    if _is_real(F):
        return matrix_inequality(F.expression(), as_expression(0.0), label)
    return HermitianInequality(F, label)


def _at_a_random_point(F: ComplexForms) -> ComplexArray:
    """Return the value of an array where all variables and parameters are random."""
    values = random_values(F.real, F.imag)
    return np.asarray(F.real.at(values)) + 1j * np.asarray(F.imag.at(values))


def _unlike_entries(F: ComplexForms) -> str:
    """Return a clause on two entries that are no conjugates."""
    if len(F.shape) != 2 or F.shape[0] != F.shape[1]:
        return ""
    A = _at_a_random_point(F)
    i, j = np.unravel_index(int(np.abs(A - A.conj().T).argmax()), A.shape)
    if i == j:
        return f": its entry [{i}, {i}] has an imaginary part"
    return f": its entries [{i}, {j}] and [{j}, {i}] are no conjugates"


def _text(side: Any) -> str:
    """Return a side of a comparison in messages."""
    if _is_curved(side):
        return str(side.label)
    e = as_complex(side)
    if not (e.real.is_constant and e.imag.is_constant) or e.real.parameters or e.imag.parameters:
        return e.label
    first = e.real.constant[0] + 1j * e.imag.constant[0]
    same = (e.real.constant == first.real).all() and (e.imag.constant == first.imag).all()
    if not same:
        return "B"
    return f"{first.real:g}" if not first.imag else f"{first:g}" if first.real else f"{first.imag:g}j"


def _joined(first: str, sign: str, second: str) -> str:
    """Return the label of a sum, without constants."""
    if second == "constant":
        return first
    if first == "constant":
        return second if sign == "+" else f"-{as_factor(second)}"
    return sum_label(first, second if sign == "+" else f"-{as_factor(second)}")
