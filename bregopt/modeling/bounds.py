"""The functions that make constraints beside comparisons: two bounds, soft bounds, and generated rows.

Of constraints with too many rows to write down, a function yields those that a point violates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, finite_array
from bregopt.errors import is_one_of
from bregopt.modeling.affine import Named, axes_of
from bregopt.modeling.constraints import Constraint, SoftPenalty
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand, as_expression
from bregopt.program import Matrix

__all__ = ["CutRows", "between", "broadcast_gamma", "cut_rows", "soft", "some_rows"]

PENALTIES = ("divergence", "hinge")
# It takes the matrix of the answer, or a tuple of several, and returns constraints.
Separator = Callable[..., Constraint | Iterable[Constraint] | None]


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


class CutRows(Named):
    """Rows that are generated while the problem is solved; built by :func:`cut_rows`.

    Attributes
    ----------
    separate : callable
        The function that yields violated rows.
    constraints : tuple of Constraint
        The rows of the last solve; the others that the function knows hold without them.
    name : str or None
        The name given by :meth:`named`.
    dual_value : tuple of float or array
        The duals of `constraints`, as :attr:`bregopt.Constraint.dual_value`.
    """

    axes = None

    def __init__(self, separate: Separator) -> None:
        self.separate = separate
        self.constraints: tuple[Constraint, ...] = ()

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        return f"cut_rows({getattr(self.separate, '__name__', type(self.separate).__name__)})"

    @property
    def size(self) -> int:
        """The number of rows of the last solve."""
        return sum(c.size for c in self.constraints)

    @property
    def dual_value(self) -> tuple[Any, ...] | None:
        """The duals of the rows of the last solve, None without any."""
        values = tuple(c.dual_value for c in self.constraints)
        return None if any(value is None for value in values) else values

    def violated(self, X: Matrix | tuple[Matrix, ...]) -> tuple[Constraint, ...]:
        """Return the constraints that the function yields at a point.

        Raises
        ------
        TypeError
            If it yields anything but hard constraints with affine rows.
        """
        return tuple(self._checked(self.separate(X)))

    def _checked(self, found: Any) -> Iterable[Constraint]:
        if found is None:
            return
        if isinstance(found, Constraint):
            if found.penalty is not None:
                raise TypeError(f"{self.title} yields {found.title}; expected hard rows, not soft ones")
            yield found
            return
        array = isinstance(found, str | bytes | np.ndarray | Operand) or sp.issparse(found)
        if array or not isinstance(found, Iterable):
            raise TypeError(
                f"{self.title} yields {found!r}; expected comparisons of affine expressions, a list of "
                "those, or None where no row is violated"
            )
        for c in found:
            if c is None:
                raise TypeError(f"{self.title} yields None in a list; expected comparisons of expressions")
            yield from self._checked(c)

    def __repr__(self) -> str:
        return f"CutRows({self.title}, rows={self.size})"


def cut_rows(separate: Separator) -> CutRows:
    """Return a constraint whose rows a function yields, as far as they are needed.

    A solve then goes in rounds. Each one solves the problem with the rows so far, from the last answer, and
    passes its answer to the function. Rows that the function yields are added; rows that no longer matter
    are dropped. The rounds end when the answer meets all rows that the function yields, to the tolerance of
    the solve. The bound of each round is a bound of the whole problem.

    Parameters
    ----------
    separate : callable
        ``separate(X)`` takes the matrix of the answer (a tuple of several) and returns constraints that it
        violates, such as ``X_variable[i, j] >= 0`` with index arrays, or a list of those, or None. `value` of
        the variables is set, too. The rows must hold for all solutions that are wanted, and must have the
        variables of the problem only. Rows that are not violated are left out.

    Returns
    -------
    CutRows
        Its `constraints` are the rows of the last solve, with their duals.

    Raises
    ------
    TypeError
        If `separate` is not callable.

    Examples
    --------
    >>> import numpy as np
    >>> import bregopt as bo
    >>> A = np.array([[2.0, -1, 1], [-1, 2, 1], [1, 1, 2]])
    >>> X = bo.PSD(3)
    >>> def below_zero(value):
    ...     i, j = np.nonzero(np.triu(value < 0, 1))
    ...     return X[i, j] >= 0 if len(i) else None
    >>> prob = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.cut_rows(below_zero)])
    >>> round(prob.solve().value, 4)
    2.0
    """
    if not callable(separate):
        raise TypeError(f"separate of cut_rows is {separate!r}; expected a function of the matrix")
    return CutRows(separate)


def some_rows(c: Constraint, kept: Mask | IntArray) -> Constraint:
    """Return a constraint with some of the rows of another one, in one dimension unless all are kept."""
    rows = np.arange(c.size)[kept]
    if len(rows) == c.size:
        return c
    shape = (len(rows),)
    lower, upper = (None if end is None else end.taken(rows, shape, end.label) for end in (c.lower, c.upper))
    part = Constraint(c.body.taken(rows, shape, c.body.label), lower, upper, c.sense, mirrored=c.mirrored)
    part.name = c.name
    if c.axes is not None and len(c.axes) == 1:
        part.axes = (c.axes[0][rows],)
    return part
