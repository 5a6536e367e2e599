"""Two bounds and soft bounds: the functions that make constraints beside comparisons."""

from __future__ import annotations

import math

import numpy as np

from bregopt.arrays import Array, finite_array
from bregopt.errors import is_one_of
from bregopt.modeling.constraints import Constraint, SoftPenalty
from bregopt.modeling.expressions import Expression, ExpressionLike, Operand, as_expression
from bregopt.modeling.naming import axes_of

__all__ = ["between", "broadcast_gamma", "soft"]

PENALTIES = ("divergence", "hinge")


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
