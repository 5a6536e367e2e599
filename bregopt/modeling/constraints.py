"""Constraints: an affine body between two bounds, hard or soft."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from bregopt.arrays import Array, finite_array
from bregopt.modeling.expressions import Expression, Operand, as_expression
from bregopt.modeling.variables import Parameter

__all__ = ["Constraint", "Softness", "between", "soft"]

PENALTIES = ("divergence", "hinge")


@dataclass(frozen=True, eq=False)
class Softness:
    """The weight and the kind of a soft constraint's penalty."""

    gamma: Array | Parameter
    penalty: str | None


class Constraint:
    """``lower <= body <= upper``, elementwise; built by comparisons, :func:`between` and :func:`soft`.

    Attributes
    ----------
    body : Expression
        The part with variables.
    lower, upper : Expression or None
        Constants and parameters, of the shape of the body; one object for an equality.
    dual_value : float or array of that shape, or None
        Set by :meth:`bregopt.Problem.solve`, with CVXPY's signs. For inequalities it is not negative. For
        ``left == right`` it is the ``v`` of the Lagrangian ``f + v (left - right)``, for two-sided
        constraints that of ``f + v (body - bound)``. If the problem is infeasible it is, as in CVXPY, this
        constraint's part of a Farkas vector: the multipliers of a combination of the rows that no
        ``X psd`` meets. None if the problem is unbounded.
    """

    def __init__(
        self,
        body: Expression,
        lower: Expression | None,
        upper: Expression | None,
        sense: str,
        softness: Softness | None = None,
        mirrored: bool = False,
    ) -> None:
        self.body, self.lower, self.upper, self.sense = body, lower, upper, sense
        self.softness = softness
        self.mirrored = mirrored  # whether the user wrote the bound on the left
        self.dual_value: Array | float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the body."""
        return self.body.shape

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.body.size

    @property
    def label(self) -> str:
        """The name of the constraint in messages."""
        if self.sense == "between":
            text = f"{_text(self.lower)} <= {self.body.label} <= {_text(self.upper)}"
        else:
            text = f"{self.body.label} {self.sense} {_text(self.lower if self.upper is None else self.upper)}"
        return text if self.softness is None else f"soft({text})"

    def dual_from_multiplier(self, y: Array) -> Array | float:
        """Return the dual in CVXPY's sign from the multipliers of the rows (positive at lower bounds)."""
        kept = self.sense == ">=" or (self.sense == "==" and self.mirrored)
        signed = (y if kept else -y) + 0.0  # no negative zeros
        return signed.reshape(self.shape) if self.shape else float(signed[0])

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a constraint has no truth value; for two bounds write bo.between(expr, lower, upper) "
            "instead of lower <= expr <= upper"
        )

    def __repr__(self) -> str:
        return f"Constraint({self.label}, rows={self.size})"


def compare(left: Expression, right: Expression, sense: str) -> Constraint:
    """Return the constraint ``left sense right``; a side without variables becomes the bound."""
    if left.is_constant and right.is_constant:
        raise ValueError("a constraint needs a variable on at least one side")
    mirrored = left.is_constant
    if mirrored:
        left, right = right, left
        sense = {"<=": ">=", ">=": "<=", "==": "=="}[sense]
    if right.is_constant and not left.parameters and not left.constant.any():
        body, bound = left.broadcast_with(right)  # already separated
    else:
        body = left.plus(-right)
        bound = -body.constant_part()
    lower = None if sense == "<=" else bound
    upper = None if sense == ">=" else bound
    return Constraint(body.variable_part(), lower, upper, sense, mirrored=mirrored)


def between(expression: Any, lower: Any, upper: Any) -> Constraint:
    """Return the two-sided constraint ``lower <= expression <= upper``.

    Parameters
    ----------
    expression : Expression
    lower, upper : float, array_like or Parameter
        Broadcast to the shape of the expression.

    Raises
    ------
    ValueError
        If a lower bound is above the upper one (with parameters: at the solve), or a bound has variables.
    """
    e = as_expression(expression)
    if e.is_constant:
        raise ValueError("expression of between has no variable")
    ends = []
    for name, end in (("lower", lower), ("upper", upper)):
        bound = as_expression(end)
        if not bound.is_constant:
            raise ValueError(f"{name} of between contains a variable; expected numbers or parameters")
        try:
            ends.append(bound._broadcast(e.shape))
        except ValueError:
            raise ValueError(f"{name} of between has shape {bound.shape}; expected {e.shape}") from None
    _check_order(e, *ends)
    lower, upper = (end.plus(-e.constant_part()) for end in ends)
    return Constraint(e.variable_part(), lower, upper, "between")


def soft(constraint: Constraint, gamma: Any = 1.0, penalty: str | None = None) -> Constraint:
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
        raise TypeError(f"soft takes a constraint; got {type(constraint).__name__}")
    if constraint.softness is not None:
        raise ValueError(f"{constraint.label} is soft already")
    if penalty is not None and penalty not in PENALTIES:
        raise ValueError(f"penalty of soft is {penalty!r}; expected one of {PENALTIES} or None")
    if isinstance(gamma, Parameter):
        if gamma.shape not in ((), constraint.shape):
            raise ValueError(f"gamma of soft has shape {gamma.shape}; expected () or {constraint.shape}")
        weight: Array | Parameter = gamma
    elif isinstance(gamma, Operand):
        raise TypeError("gamma of soft is an expression; expected numbers or a Parameter")
    else:
        weight = broadcast_gamma(finite_array(gamma, "gamma of soft"), constraint.shape)
    return Constraint(
        constraint.body,
        constraint.lower,
        constraint.upper,
        constraint.sense,
        Softness(weight, penalty),
        constraint.mirrored,
    )


def broadcast_gamma(gamma: Array, shape: tuple[int, ...]) -> Array:
    """Return the weights of all rows, after checking that they are positive."""
    if (gamma <= 0).any():
        raise ValueError(f"gamma of soft has the value {gamma.min():g}; expected numbers above 0")
    if gamma.ndim == 0:
        return np.full(math.prod(shape), float(gamma))
    try:
        return np.broadcast_to(gamma, shape).ravel().astype(float)
    except ValueError:
        raise ValueError(f"gamma of soft has shape {gamma.shape}; expected {shape}") from None


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


def _text(bound: Expression | None) -> str:
    if bound is None:
        return ""
    if bound.parameters:
        return "+".join(p.name for p in bound.parameters)
    first = bound.constant[0]
    return f"{first:g}" if (bound.constant == first).all() else "b"
