"""Objectives: divergences, sums of squares and affine terms, to minimize or maximize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from bregopt.arrays import Array, finite_array, hermitian_matrix, positive_number, symmetric_matrix
from bregopt.divergences import BUILT_IN, Divergence, divergence_named
from bregopt.linalg import is_definite
from bregopt.modeling.complex_expressions import ComplexExpression
from bregopt.modeling.expressions import Expression, Operand, as_expression
from bregopt.modeling.hermitian import HermitianPSD, embedded
from bregopt.modeling.labels import as_factor
from bregopt.modeling.naming import Formula
from bregopt.modeling.products import product
from bregopt.modeling.second_order import SecondOrderConstraint, squares_bounded, stacked
from bregopt.modeling.variables import PSD, Parameter
from bregopt.presolve.constants import RANK_TOL
from bregopt.presolve.range_space import with_complement
from bregopt.program import Nearness
from bregopt.program.anchor import divergence_of
from bregopt.program.lowrank import LowRank, Matrix

__all__ = [
    "DivergenceTerm",
    "Maximize",
    "Minimize",
    "ObjectiveExpression",
    "SquaresTerm",
    "bregman_div",
    "frobenius_div",
    "logdet_div",
    "sum_squares",
    "von_neumann_div",
]


_SQUARES_RULE = (
    "a sum of squares is convex, so it may be bounded from above only: expected bo.sum_squares(x) <= t with "
    "an affine t"
)


@dataclass(frozen=True, eq=False)
class DivergenceTerm:
    """``weight * D(X, X0)``, where the weight is a number times at most one scalar of parameters.

    `X0` and the `parameters` of the divergence may be a :class:`Parameter`; `current` then makes the term
    with their values. If the variable is Hermitian, ``X`` and ``X0`` are real forms, with `copies` of each
    eigenvalue.
    """

    divergence: str
    X: PSD
    X0: Matrix | Parameter
    weight: float = 1.0
    parameter: Expression | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    copies: int = 1
    current: Callable[[], ObjectiveExpression] | None = None

    @property
    def data(self) -> tuple[Parameter, ...]:
        """The parameters among ``X0`` and the parameters of the divergence."""
        return tuple(p for p in (self.X0, *self.parameters.values()) if isinstance(p, Parameter))

    def nearness(self, mu: float) -> Nearness:
        """Return the divergence with a weight, at the current values of parameters."""
        term = self if self.current is None else self.current().terms[0]
        assert not isinstance(term.X0, Parameter)
        return Nearness(term.divergence, term.X0, mu, term.parameters)

    @property
    def label(self) -> str:
        """The name of the term in messages."""
        factor = {1.0: "", -1.0: "-"}.get(self.weight, f"{self.weight:g} ")
        parameter = "" if self.parameter is None else f"{as_factor(self.parameter.label)} "
        further = "".join(f", {name}" for name in self.parameters)
        return f"{factor}{parameter}{self.divergence}_div({self.X.name}{further})"


@dataclass(frozen=True, eq=False)
class SquaresTerm:
    """``weight`` times the sum of squares of the elements of an affine expression."""

    argument: Expression
    weight: float = 1.0
    parameter: Expression | None = None

    @property
    def label(self) -> str:
        """The name of the term in messages."""
        factor = {1.0: "", -1.0: "-"}.get(self.weight, f"{self.weight:g} ")
        parameter = "" if self.parameter is None else f"{as_factor(self.parameter.label)} "
        return f"{factor}{parameter}sum_squares({self.argument.full_label})"


@dataclass(frozen=True, eq=False)
class ObjectiveExpression(Formula):
    """Divergences, sums of squares and a scalar affine expression; adds and scales as in CVXPY.

    Without divergences it may be bounded from above: ``bo.sum_squares(x) <= t``.
    """

    terms: tuple[DivergenceTerm, ...]
    affine: Expression
    squares: tuple[SquaresTerm, ...] = ()
    absorbs_expressions = True
    __array_ufunc__ = None

    def __add__(self, other: Any) -> ObjectiveExpression:
        other = as_objective(other)
        squares = self.squares + other.squares
        return ObjectiveExpression(self.terms + other.terms, self.affine.plus(other.affine), squares)

    __radd__ = __add__

    def __neg__(self) -> ObjectiveExpression:
        return self * -1.0

    def __sub__(self, other: Any) -> ObjectiveExpression:
        return self + (-as_objective(other))

    def __rsub__(self, other: Any) -> ObjectiveExpression:
        return (-self) + other

    def __mul__(self, factor: Any) -> ObjectiveExpression:
        if isinstance(factor, Operand):
            return self._weighed_by(factor.expression())
        number = float(finite_array(factor, "factor of an objective", ndim=0))
        terms = tuple(replace(t, weight=t.weight * number) for t in self.terms)
        squares = tuple(replace(t, weight=t.weight * number) for t in self.squares)
        return ObjectiveExpression(terms, self.affine.times(number), squares)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> ObjectiveExpression:
        number = float(finite_array(divisor, "divisor of an objective", ndim=0))
        if number == 0:
            raise ValueError("division of an objective by zero")
        return self * (1 / number)

    def _weighed_by(self, weight: Expression) -> ObjectiveExpression:
        """Return the product with a scalar of parameters, by the rules of DPP."""
        if not weight.is_constant or weight.shape:
            raise TypeError(
                f"{weight.label} * ({self!r}): expected a scalar number or parameter as the weight"
            )
        weighed = [t.parameter for t in self.terms] + [s.parameter for s in self.squares]
        if any(parameter is not None for parameter in weighed):
            raise TypeError(
                f"{weight.label} * ({self!r}) is a product of two parameters; by the rules of disciplined "
                "parametrized programming (DPP) one factor must be without: declare one bo.Parameter for the "
                "product of the two, and set its value"
            )
        return ObjectiveExpression(
            tuple(replace(t, parameter=weight) for t in self.terms),
            product(weight, self.affine),
            tuple(replace(t, parameter=weight) for t in self.squares),
        )

    def __le__(self, bound: Any) -> SecondOrderConstraint:
        self._check_convex(f"{self!r} <= ...")
        if isinstance(bound, ObjectiveExpression):
            raise TypeError(f"{self!r} <= {bound!r}: {_SQUARES_RULE}")
        if any(t.parameter is not None for t in self.squares):
            raise TypeError(
                f"{self!r} <= ...: a parameter may weigh a sum of squares in an objective only; "
                "multiply the bound by another bo.Parameter for its inverse"
            )
        weighted = [t.argument.times(np.sqrt(t.weight)) for t in self.squares]
        left = bound - self.affine if self.affine.constant.any() or not self.affine.is_constant else bound
        return squares_bounded(stacked(weighted), left, self.label)

    def __ge__(self, other: Any) -> SecondOrderConstraint:
        opposite = -self
        opposite._check_convex(f"{self!r} >= ...")
        return opposite <= -as_expression(other)

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError(f"{self!r} == ... is not convex; {_SQUARES_RULE}")

    __hash__ = object.__hash__

    def _check_convex(self, written: str) -> None:
        """Refuse a bound from above of anything but sums of squares with positive weights."""
        if self.terms or not self.squares:
            raise TypeError(f"{written} is no constraint: a divergence may be minimized only")
        if any(t.weight <= 0 for t in self.squares):
            raise TypeError(f"{written} is not convex; {_SQUARES_RULE}")

    @property
    def label(self) -> str:  # type: ignore[override]
        """The name of the expression in messages."""
        parts = [*(t.label for t in self.terms), *(s.label for s in self.squares)]
        if not self.affine.is_constant or self.affine.constant.any():
            parts.append(self.affine.full_label)
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def __repr__(self) -> str:
        return self.label

    @property
    def value(self) -> float | None:
        """The value at the current values of the variables, None if a variable has none."""
        total = self.affine.value
        for t in self.terms:
            if t.X.value is None or total is None:
                return None
            weight = t.weight / t.copies
            weight *= 1.0 if t.parameter is None else float(np.asarray(t.parameter.value))
            total = total + weight * divergence_of(t.nearness(1.0)).value(np.asarray(t.X.value))
        for square in self.squares:
            e = square.argument.value
            if e is None or total is None:
                return None
            weight = square.weight * (
                1.0 if square.parameter is None else float(np.asarray(square.parameter.value))
            )
            total = total + weight * float(np.sum(np.square(e)))
        return None if total is None else float(total)


class Minimize(Formula):
    """Minimize a convex objective.

    Parameters
    ----------
    expression : objective
        Divergences and sums of squares with positive weights, and a scalar affine expression.

    Raises
    ------
    TypeError, ValueError
        If the expression is not a scalar objective, or a divergence has a weight that makes it nonconvex.
    """

    sign = 1.0

    def __init__(self, expression: Any) -> None:
        self.expression = as_objective(expression)
        parts = [(f"{t.divergence} divergence of {t.X.name}", t.weight) for t in self.expression.terms]
        parts += [(s.label, s.weight) for s in self.expression.squares]
        for name, weight in parts:
            if weight * self.sign <= 0:
                raise ValueError(
                    f"{type(self).__name__}: {name} has weight {weight:g}; expected "
                    f"{'above' if self.sign > 0 else 'below'} 0 for a convex problem, as a divergence or "
                    "a sum of squares is convex"
                )

    @property
    def label(self) -> str:  # type: ignore[override]
        """The name of the expression in messages."""
        return self.expression.label

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"


class Maximize(Minimize):
    """Maximize a concave objective.

    Parameters
    ----------
    expression : objective
        Divergences and sums of squares with negative weights, and a scalar affine expression.

    Raises
    ------
    TypeError, ValueError
        If the expression is not a scalar objective, or a divergence has a weight that makes it nonconcave.
    """

    sign = -1.0


def as_objective(value: Any) -> ObjectiveExpression:
    """Return an expression or number as an objective."""
    if isinstance(value, ObjectiveExpression):
        return value
    if isinstance(value, Minimize):
        raise TypeError("an objective inside an objective; expected an expression")
    affine = as_expression(value)
    if affine.size != 1:
        raise ValueError(f"the objective {affine.label} has shape {affine.shape}; expected a scalar")
    return ObjectiveExpression((), replace(affine, shape=()))


def sum_squares(x: Any) -> ObjectiveExpression:
    """Return the sum of squares of all elements of an expression, for an objective or ``<= t``.

    The bound ``t`` may be a number or an affine expression.

    Parameters
    ----------
    x : Expression, matrix variable or variable
        Of any shape, real or complex.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If `x` is not affine or contains no variable.
    """
    if isinstance(x, ComplexExpression):
        x = stacked([x.real, x.imag])
    e = as_expression(x, "x of sum_squares")
    if e.is_constant:
        raise ValueError("x of sum_squares contains no variable")
    return ObjectiveExpression((), as_expression(0.0), (SquaresTerm(e),))


def logdet_div(
    X: PSD, X0: Any, complement: float | None = None, rank_tol: float = RANK_TOL
) -> ObjectiveExpression:
    """Return the LogDet divergence ``tr(X inv(X0)) - logdet(X inv(X0)) - n``.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric (Hermitian) positive definite, or LowRank
        With a :class:`~bregopt.LowRank` the range of ``X`` is restricted to that of ``X0``.
    complement : float, above 0, optional
        Use the dense matrix ``X0 + complement N`` instead, with ``N`` the projection on the null space of
        ``X0``. Then ``X0`` may be singular, and ``X`` may leave the range of ``X0`` at a cost.
    rank_tol : float
        With `complement`, eigenvalues below this fraction of the largest count as zero.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` is not symmetric, not of the order of ``X``, or dense and not positive definite, or if
        `complement` is not above 0.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), eq. 2 and Definition 4; §6.5 for `complement`.
    """
    return _divergence("logdet", X, X0, complement, rank_tol)


def von_neumann_div(
    X: PSD, X0: Any, complement: float | None = None, rank_tol: float = RANK_TOL
) -> ObjectiveExpression:
    """Return the von Neumann divergence ``tr(X log X - X log X0 - X + X0)``.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric (Hermitian) positive definite, or LowRank
    complement, rank_tol : float
        As for :func:`logdet_div`.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` is not symmetric, not of the order of ``X``, or dense and not positive definite, or if
        `complement` is not above 0.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), eq. 1 and Definition 4.
    """
    return _divergence("von_neumann", X, X0, complement, rank_tol)


def frobenius_div(X: PSD, X0: Any, weights: Any = None) -> ObjectiveExpression:
    """Return the squared Frobenius distance, the sum of squares of ``X - X0``, without a factor 1/2.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric, or Hermitian for such a variable
        It need not be positive semidefinite.
    weights : array_like of shape (n, n), symmetric, from 0, optional
        ``H`` for the weighted distance, the sum of squares of ``H o (X - X0)``. A weight of 0 marks an
        unknown entry: the one of ``X0`` is ignored.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` or `weights` is not symmetric or not of the order of ``X``, a weight is
        below 0, or all of them are 0.
    """
    parameters = {} if weights is None else {"weights": weights}
    return _divergence("frobenius", X, X0, None, RANK_TOL, parameters)


def bregman_div(
    X: PSD, X0: Any, divergence: str | type[Divergence], **parameters: Any
) -> ObjectiveExpression:
    """Return a registered divergence, such as one of your own.

    Parameters
    ----------
    X : PSD
    X0 : array_like of shape (n, n), symmetric, or LowRank
        The divergence decides whether it must be positive definite or may be low-rank.
    divergence : str or class
        The name of a divergence, or a class given to
        :func:`bregopt.divergences.register_divergence`.
    **parameters
        Parameters of the divergence.

    Returns
    -------
    objective
        Divergences and affine expressions can be added to it.

    Raises
    ------
    TypeError, ValueError
        If the divergence is unknown, ``X0`` is not symmetric or not of the order of ``X``, or the divergence
        does not accept ``X0`` or a parameter.
    """
    return _divergence(divergence_named(divergence).name, X, X0, None, RANK_TOL, parameters)


def _divergence(
    name: str,
    X: Any,
    X0: Any,
    complement: float | None,
    rank_tol: float,
    parameters: Mapping[str, Any] | None = None,
) -> ObjectiveExpression:
    atom, kind = f"{name}_div", divergence_named(name)
    copies = 1
    if isinstance(X, HermitianPSD):
        X0, parameters = _in_real_form(X, X0, atom, parameters)
        X, copies = X.block, 2
    X = _variable(X, atom)
    if any(isinstance(value, Operand) for value in (X0, *(parameters or {}).values())):
        return _divergence_at_parameters(name, X, X0, complement, rank_tol, parameters or {})
    start: Matrix
    if isinstance(X0, LowRank) and not kind.keeps_range:
        raise TypeError(f"X0 of {atom} is LowRank, whose range it does not keep: pass X0.dense()")
    if isinstance(X0, LowRank):
        if X0.shape[0] != X.n:
            raise ValueError(f"X0 of {atom} is {X0.shape[0]} x {X0.shape[0]}; expected {X.n} x {X.n}")
        start = X0
    else:
        start = symmetric_matrix(X0, f"X0 of {atom}", X.n)
    if complement is not None:
        eps = positive_number(complement, f"complement of {atom}")
        start = with_complement(start, eps, positive_number(rank_tol, f"rank_tol of {atom}"))
    if kind.definite_start and not isinstance(start, LowRank) and not is_definite(start):
        eigenvalues = np.linalg.eigvalsh(start)
        smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
        if smallest < -1e-10 * abs(largest):
            advice = "lift its eigenvalues first, for instance with bo.nearest_psd, or use bo.frobenius_div"
        else:
            advice = "pass bo.LowRank(factor) to work on its range space, or complement=eps to leave it"
        raise ValueError(
            f"X0 of {atom} is not positive definite: its smallest eigenvalue is {smallest:.3g} "
            f"(largest {largest:.3g}); {advice}"
        )
    parameters = parameters or {}
    if (parameters or kind not in BUILT_IN) and not isinstance(start, LowRank):
        start, parameters = kind.variant(**parameters).checked(start, **parameters)
    term = DivergenceTerm(name, X, start, parameters=parameters, copies=copies)
    return ObjectiveExpression((term,), as_expression(0.0))


def _in_real_form(
    X: HermitianPSD, X0: Any, atom: str, parameters: Mapping[str, Any] | None
) -> tuple[Array, Mapping[str, Any] | None]:
    """Return ``X0`` and the parameters of a divergence for the real form of a Hermitian variable."""
    if isinstance(X0, LowRank):
        raise TypeError(
            f"X0 of {atom} is LowRank, but {X.name} is Hermitian; pass X0.dense(), with complement=eps where "
            "it is singular"
        )
    if parameters and set(parameters) != {"weights"}:
        raise TypeError(f"{atom} has the parameters {sorted(parameters)}; a Hermitian {X.name} takes none")
    doubled = {
        name: np.tile(finite_array(value, name, 2), (2, 2)) for name, value in (parameters or {}).items()
    }
    return embedded(hermitian_matrix(X0, f"X0 of {atom}", X.n)), doubled


def _divergence_at_parameters(
    name: str, X: PSD, X0: Any, complement: float | None, rank_tol: float, parameters: Mapping[str, Any]
) -> ObjectiveExpression:
    """Return a divergence whose ``X0`` or parameters are a Parameter; their values are checked later."""
    for argument, value in (("X0", X0), *parameters.items()):
        if not isinstance(value, Operand):
            continue
        if not isinstance(value, Parameter) or value.shape != X.shape:
            found = f"has shape {value.shape}" if isinstance(value, Parameter) else f"is {value!r}"
            raise TypeError(
                f"{argument} of {name}_div {found}; expected numbers or a bo.Parameter of shape {X.shape}"
            )
    current = partial(_current_divergence, name, X, X0, complement, rank_tol, parameters)
    term = DivergenceTerm(name, X, X0, parameters=parameters, current=current)
    return ObjectiveExpression((term,), as_expression(0.0))


def _current_divergence(
    name: str, X: PSD, X0: Any, complement: float | None, rank_tol: float, parameters: Mapping[str, Any]
) -> ObjectiveExpression:
    values = {
        key: value.value if isinstance(value, Parameter) else value for key, value in parameters.items()
    }
    start = X0.value if isinstance(X0, Parameter) else X0
    return _divergence(name, X, start, complement, rank_tol, values)


def _variable(X: Any, atom: str) -> PSD:
    if not isinstance(X, PSD):
        raise TypeError(f"X of {atom} is {type(X).__name__}; expected a bo.PSD variable")
    return X
