"""Expressions: arrays of affine forms with the operators of the language, their bounds, and soft bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, is_one_of
from bregopt.modeling.affine import (
    Affine,
    as_factor,
    axes_of,
    check_shapes,
    matrix_product,
    multiplied,
    product,
)
from bregopt.modeling.constraints import Constraint, MatrixInequality, SoftPenalty, compare, matrix_inequality
from bregopt.records import dataclass, replace

PENALTIES = ("divergence", "hinge")
# Functions of other packages, by name, that have an equivalent here, for messages.
_OWN = {
    **{
        name: f"bo.{name}"
        for name in ("trace", "diag", "sum", "inner", "quad_form", "sq_distance", "vstack", "hstack", "bmat")
    },
    **{
        "block": "bo.bmat",
        "concatenate": "bo.hstack or bo.vstack",
        "stack": "bo.vstack",
        "sum_entries": "bo.sum",
    },
    **{"dot": "the operator @", "matmul": "the operator @", "multiply": "the operator *"},
    **{"transpose": "its attribute T", "add": "the operator +", "subtract": "the operator -"},
    **{"einsum": "the operator @ and bo.inner", "vdot": "bo.inner", "ravel": "e[i, j] with index arrays"},
    **{"mean": "bo.sum and the operator /"},
    **{
        name: f"bo.{name}" for name in ("abs", "maximum", "minimum", "max", "min", "square", "log", "log_det")
    },
    **{"absolute": "bo.abs", "amax": "bo.max", "amin": "bo.min", "slogdet": "bo.log_det"},
    **{"norm": "bo.norm1, bo.norm2, bo.norm_inf, bo.sigma_max or bo.norm_nuc"},
    **{"eigvalsh": "bo.lambda_max and bo.lambda_min"},
    **{"real": "bo.real", "imag": "bo.imag", "conj": "bo.conj", "conjugate": "bo.conj"},
}
_ATOMS = [own for name, own in _OWN.items() if own == f"bo.{name}"]
# The operator of the right operand for each function that NumPy calls for an operator of an array.
_REFLECTED = {
    **{"add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "matmul": "__rmatmul__"},
    **{"less_equal": "__ge__", "greater_equal": "__le__", "equal": "__eq__"},
    **{"less": "__gt__", "greater": "__lt__", "not_equal": "__ne__"},
    **{"right_shift": "__rrshift__", "left_shift": "__rlshift__", "true_divide": "__rtruediv__"},
    **{"divide": "__rtruediv__"},
}


class _NoNumber:
    """NumPy's element for an operand: any use of it by NumPy, SciPy or CVXPY raises bregopt's error."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(_refusal("a function of numpy, scipy or CVXPY"))

    __float__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __rtruediv__ = __pow__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    exp = log = sqrt = conjugate = _refuse  # NumPy's functions of objects call these


def _promoted(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operator of operands that is one of complex expressions where the other side is complex."""

    @wraps(operation)
    def promoted(self: Any, other: Any) -> Any:
        if self.is_complex or not holds_complex(other):
            return operation(self, other)
        from bregopt.modeling.complex_expressions import as_complex  # which has this class as its base

        return getattr(as_complex(self), operation.__name__)(other)

    return promoted


class Operand:
    """An object with affine arithmetic and comparisons."""

    is_complex = False
    __pandas_priority__ = 5000  # above the classes of pandas, which then defer `series <= operand`

    # scipy.sparse defers `matrix @ operand` to this class, as it has no length.
    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **_: Any) -> Any:
        """Evaluate ``array + operand``, ``array <= operand``, ...; refuse all other functions of NumPy."""
        reflected = _REFLECTED.get(function.__name__)
        if reflected and method == "__call__" and len(inputs) == 2 and not isinstance(inputs[0], Operand):
            plain = not (_absorbs(self) or self.is_complex or holds_complex(inputs[0]))
            if plain and reflected != "__rmatmul__":
                _pair(*inputs)  # here they still stand as the user wrote them
            return getattr(self, reflected)(inputs[0])
        raise TypeError(_refusal(f"numpy.{function.__name__}", function.__name__))

    def expression(self) -> Expression:
        """Return this operand as an affine expression."""
        raise TypeError(f"{type(self).__name__} is not an affine expression")

    @_promoted
    def __add__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else _sum(self, other)

    @_promoted
    def __radd__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else _sum(other, self)

    @_promoted
    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else _difference(self, other)

    @_promoted
    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else _difference(other, self)

    def __neg__(self) -> Expression:
        return self.expression().times(-1.0)

    def __pos__(self) -> Expression:
        return self.expression()

    @_promoted
    def __mul__(self, other: Any) -> Any:
        if _absorbs(other):
            return NotImplemented
        if isinstance(other, Operand):
            return product(*_pair(self, other))
        return _multiple(self, _numbers(other, "factor"))

    __rmul__ = __mul__

    @_promoted
    def __truediv__(self, other: Any) -> Expression:
        if isinstance(other, Operand):
            raise TypeError(
                f"{self!r} / {other!r}: the divisor is an expression; expected numbers. For a parameter, "
                "declare another bo.Parameter for its inverse, and multiply by it (DPP)"
            )
        divisor = _numbers(other, "divisor")
        if (divisor == 0).any():
            raise ValueError(
                f"division of {self.expression().label} by zero; expected a divisor without zeros"
            )
        return _multiple(self, 1 / divisor)

    def __rtruediv__(self, other: Any) -> NoReturn:
        raise TypeError(f"{other!r} / {self!r}: the divisor is an expression; expected numbers")

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.expression().T

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        raise TypeError(_refusal(f"{function.__module__}.{function.__name__}", function.__name__))

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array(_NoNumber(), dtype=object)

    @_promoted
    def __rmatmul__(self, matrix: Any) -> Expression:
        return multiplied(self.expression(), _factor(matrix))

    @_promoted
    def __matmul__(self, other: Any) -> Any:
        if _absorbs(other):
            return NotImplemented
        if isinstance(other, Operand):
            return matrix_product(self.expression(), other.expression())
        return multiplied(self.expression(), _factor(other), left=False)

    @_promoted
    def __le__(self, other: Any) -> Constraint:
        return NotImplemented if _absorbs(other) else _compare(self, other, "<=")

    @_promoted
    def __ge__(self, other: Any) -> Constraint:
        return NotImplemented if _absorbs(other) else _compare(self, other, ">=")

    @_promoted
    def __eq__(self, other: Any) -> Any:
        return NotImplemented if _absorbs(other) else _compare(self, other, "==")

    @_promoted
    def __rshift__(self, other: Any) -> MatrixInequality:
        return _inequality(self, other, ">>")

    @_promoted
    def __lshift__(self, other: Any) -> MatrixInequality:
        return _inequality(self, other, "<<")

    @_promoted
    def __rrshift__(self, other: Any) -> MatrixInequality:
        return _inequality(other, self, ">>")

    @_promoted
    def __rlshift__(self, other: Any) -> MatrixInequality:
        return _inequality(other, self, "<<")

    def __lt__(self, other: Any) -> Constraint:
        raise TypeError("strict inequalities are not closed sets: write <= instead of <")

    def __gt__(self, other: Any) -> Constraint:
        raise TypeError("strict inequalities are not closed sets: write >= instead of >")

    def __ne__(self, other: object) -> bool:
        raise TypeError("!= is not a convex constraint; expected ==, <= or >=")

    def __pow__(self, power: Any) -> NoReturn:
        label = self.expression().label
        raise TypeError(f"{label} ** {power!r} is not affine; for squares write bo.square({label})")

    def __abs__(self) -> NoReturn:
        raise TypeError(f"abs takes no expression of bregopt; write bo.abs({self.expression().label})")

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
        return self.taken(np.ravel(numbers), np.shape(numbers), indexed_label(self.label, key))

    def __repr__(self) -> str:
        return f"Expression({self.label}, shape={self.shape})"


ExpressionLike = Operand | ArrayLike


def as_expression(value: Any, name: str = "constant") -> Expression:
    """Return an operand or numbers as an expression; `name` is the name of the numbers in messages."""
    if isinstance(value, Operand):
        return value.expression()
    if holds_complex(value):
        from bregopt.modeling.complex_expressions import as_complex

        e = as_complex(value, name).expression()  # which refuses an imaginary part
        return replace(e, label="constant")
    numbers = finite_array(value, name)
    check_not_empty(numbers, name)
    return Expression(numbers.shape, numbers.ravel(), label="constant")


def _numbers(value: Any, name: str, ndim: tuple[int, ...] | None = None) -> Array:
    if isinstance(value, Operand):
        raise TypeError(f"{name} is an expression ({value!r}); expected numbers")
    return finite_array(value, name, ndim)


def holds_complex(value: Any) -> bool:
    """Whether a value is a complex expression, or numbers of a complex type."""
    if isinstance(value, Operand):
        return value.is_complex
    if isinstance(value, list | tuple):
        return any(map(holds_complex, value))
    dtypes = getattr(value, "dtypes", None)  # of a DataFrame, one for each column
    if dtypes is not None:
        return any(dtype.kind == "c" for dtype in np.ravel(dtypes))
    dtype = getattr(value, "dtype", None)
    return isinstance(value, complex) if dtype is None else bool(dtype.kind == "c")


def check_not_empty(numbers: Any, name: str) -> None:
    """Refuse an array, dense or sparse, without entries."""
    if 0 in numbers.shape:
        raise ValueError(f"{name} has shape {numbers.shape}: it is empty; expected at least one number")


def _factor(matrix: Any) -> Any:
    """Return a factor of ``@``: a sparse matrix as it is, numbers as an array."""
    factor = matrix if sp.issparse(matrix) else _numbers(matrix, "factor of @", ndim=(1, 2))
    check_not_empty(factor, "factor of @")
    return factor


def _refusal(function: str, name: str = "") -> str:
    """Return the message that a function of another package takes no expression, with alternatives."""
    own = f"use {_OWN[name]}" if name in _OWN else f"there are {', '.join(_ATOMS)}"
    return f"{function} takes no expression of bregopt; {own}"


def indexed_label(label: str, key: Any) -> str:
    """Return the label of elements; only single indices are shown."""
    integers = key if isinstance(key, tuple) else (key,)
    if all(isinstance(k, int | np.integer) for k in integers):
        return f"{as_factor(label)}[{', '.join(str(k) for k in integers)}]"
    return label if label.endswith("[...]") else f"{as_factor(label)}[...]"


def _absorbs(other: Any) -> bool:
    """Whether `other` is an objective, whose own operators then handle the expression."""
    return getattr(other, "absorbs_expressions", False)


def _pair(left: Any, right: Any, name: str = "constant") -> tuple[Expression, Expression]:
    """Return both sides of an operator as expressions whose shapes go together."""
    first, second = as_expression(left, name), as_expression(right, name)
    check_shapes(first, second)
    return first, second


def _multiple(operand: Operand, factor: Array) -> Expression:
    e = _pair(operand, factor)[0] if factor.ndim else operand.expression()
    return e.times(factor)


def _sum(left: Any, right: Any) -> Expression:
    first, second = _pair(left, right)
    return first.plus(second)


def _difference(left: Any, right: Any) -> Expression:
    first, second = _pair(left, right)
    return first.plus(second.times(-1.0))


def _compare(left: Any, right: Any, sense: str) -> Constraint:
    constraint = compare(*_pair(left, right), sense)
    constraint.axes = axes_of(right, constraint.body.shape)
    return constraint


def _inequality(left: Any, right: Any, sign: str) -> MatrixInequality:
    first, second = _pair(left, right)
    label = f"{_named(left)} {sign} {_named(right)}"
    return matrix_inequality(*((first, second) if sign == ">>" else (second, first)), label)


def _named(side: Any) -> str:
    """Return the text of one side of a comparison."""
    if isinstance(side, Operand):
        return side.expression().label
    return f"{side:g}" if np.ndim(side) == 0 and not sp.issparse(side) else "B"


# --- Constraints beside comparisons: two bounds, and soft bounds --------------------------------------------


def between(expression: ExpressionLike, lower: ExpressionLike, upper: ExpressionLike) -> Constraint:
    """Return the two-sided constraint ``lower <= expression <= upper``.

    Parameters
    ----------
    expression : Expression
    lower, upper : float, array_like or Parameter
        Broadcast to the shape of the expression.

    Returns
    -------
    Constraint

    Raises
    ------
    TypeError, ValueError
        If a lower bound is above the upper one (with parameters: at the solve), a bound has variables, or the
        expression has none.
    """
    e = as_expression(expression)
    if e.is_constant:
        raise ValueError(
            f"expression of between is {e.label}, without a variable; expected one with a variable"
        )
    ends = []
    for name, end in (("lower", lower), ("upper", upper)):
        bound = as_expression(end)
        if not bound.is_constant:
            raise ValueError(f"{name} of between contains a variable; expected numbers or parameters")
        try:
            ends.append(bound.broadcast_to(e.shape))
        except ValueError:
            raise ValueError(f"{name} of between has shape {bound.shape}; expected {e.shape}") from None
    _check_order(e, *ends)
    below, above = (end.plus(-e.constant_part()) for end in ends)
    constraint = Constraint(e.variable_part(), below, above, "between")
    constraint.axes = axes_of(lower, e.shape) or axes_of(upper, e.shape)
    return constraint


def _check_order(e: Expression, lower: Expression, upper: Expression) -> None:
    """Refuse bounds that cross; bounds with parameters are checked at the solve."""
    crossed = np.flatnonzero(lower.constant > upper.constant)
    if len(crossed) and not lower.parameters and not upper.parameters:
        k = int(crossed[0])
        row = f", row {k}" if e.size > 1 else ""
        raise ValueError(
            f"between of {e.label}{row}: lower is {lower.constant[k]:g} but upper is {upper.constant[k]:g}; "
            "expected lower <= upper"
        )


def soft(constraint: Constraint, gamma: ExpressionLike = 1.0, penalty: str | None = None) -> Constraint:
    """Return the constraint as a soft one, which may be violated at a price (Kulis et al. 2009, eq. 22).

    Parameters
    ----------
    constraint : Constraint
    gamma : float, array_like of the constraint's shape, or Parameter; above 0
        Weight of the penalty; a larger weight gives smaller violations.
    penalty : {None, "divergence", "hinge"}
        "divergence" pays ``gamma`` times the divergence of the relaxed bound from the bound, in the scalar
        form of the objective's divergence. "hinge" pays ``gamma`` times the violation. None takes
        "divergence" if the objective has one and "hinge" if it is linear.

    Returns
    -------
    Constraint
        A new constraint; the given one stays hard.

    Raises
    ------
    TypeError, ValueError
        If `gamma` is not above 0, `penalty` is unknown, or the constraint is soft already.
    """
    if not isinstance(constraint, Constraint):
        raise TypeError(
            f"soft takes a constraint; got {type(constraint).__name__}. Expected a comparison of affine "
            "expressions; a bound on lambda_max is always hard"
        )
    if not constraint.may_be_soft:
        raise TypeError(f"soft takes no complex rows; got {constraint.label}. Soften rows of .real and .imag")
    if constraint.penalty is not None:
        raise ValueError(f"{constraint.label} is soft already; expected a hard constraint")
    if penalty is not None and not is_one_of(penalty, PENALTIES):
        raise ValueError(f"penalty of soft is {penalty!r}; expected one of {PENALTIES} or None")
    weight: Array | Expression
    if isinstance(gamma, Operand):
        weight = gamma.expression()
        if not weight.is_constant:
            raise TypeError(
                f"gamma of soft is {weight.label}, with variables; expected numbers or a Parameter"
            )
        if weight.shape not in ((), constraint.shape):
            raise ValueError(f"gamma of soft has shape {weight.shape}; expected () or {constraint.shape}")
    else:
        weight = broadcast_gamma(finite_array(gamma, "gamma of soft"), constraint.shape)
    bent = Constraint(
        constraint.body,
        constraint.lower,
        constraint.upper,
        constraint.sense,
        SoftPenalty(weight, penalty),
        constraint.mirrored,
    )
    bent.name, bent.axes = constraint.name, constraint.axes
    return bent


def broadcast_gamma(gamma: Array, shape: tuple[int, ...], name: str = "gamma of soft") -> Array:
    """Return the weights of all rows, after checking that they are positive."""
    if (gamma <= 0).any():
        raise ValueError(f"{name} has the value {gamma.min():g}; expected numbers above 0")
    if gamma.ndim == 0:
        return np.full(math.prod(shape), float(gamma))
    try:
        return np.broadcast_to(gamma, shape).ravel().astype(float)
    except ValueError:
        raise ValueError(f"{name} has shape {gamma.shape}; expected {shape}") from None
