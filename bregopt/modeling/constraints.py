"""Constraints: an affine body between two bounds, hard or soft, and vectors in second-order cones."""

from __future__ import annotations

from typing import Any

from bregopt.arrays import Array, IntArray
from bregopt.modeling.affine import Affine
from bregopt.modeling.naming import Named
from bregopt.records import dataclass

__all__ = ["Constraint", "SecondOrderConstraint", "SoftPenalty", "compare"]


@dataclass(frozen=True, eq=False)
class SoftPenalty:
    """The weight and the kind of a soft constraint's penalty."""

    gamma: Any  # array of one weight per row, or an Affine of parameters
    kind: str | None  # "divergence", "hinge", "square" or "log"; None for the default of the objective


class Constraint(Named):
    """``lower <= body <= upper``, elementwise; built by comparisons, :func:`between` and :func:`soft`.

    Attributes
    ----------
    body : Expression
        The part with variables.
    lower, upper : Expression or None
        Constants and parameters, of the shape of the body; one object for an equality.
    name : str or None
        The name given by :meth:`named`.
    dual_value : float or array of that shape, or None
        Set by :meth:`bregopt.Problem.solve`, with CVXPY's signs. For inequalities it is not negative. For
        ``left == right`` it is the ``v`` of the Lagrangian ``f + v (left - right)``, for two-sided
        constraints that of ``f + v (body - bound)``. If the problem is infeasible it is, as in CVXPY, this
        constraint's part of a Farkas vector: the multipliers of a combination of the rows that no
        ``X psd`` meets. None if the problem is unbounded.
    """

    may_be_soft = True

    def __init__(
        self,
        body: Affine,
        lower: Affine | None,
        upper: Affine | None,
        sense: str,
        penalty: SoftPenalty | None = None,
        mirrored: bool = False,
    ) -> None:
        self.body, self.lower, self.upper, self.sense = body, lower, upper, sense
        self.penalty = penalty
        self.mirrored = mirrored  # whether the user wrote the bound on the left
        self.dual_value: Array | float | None = None
        self.axes: tuple[Any, ...] | None = None  # labels of the rows, one pandas index for each axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the body."""
        return self.body.shape

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.body.size

    @property
    def label(self) -> str:  # type: ignore[override]
        """The constraint as text."""
        if self.source_text is not None:
            return self.source_text
        if self.penalty is not None and self.penalty.kind == "log":
            bound = _text(self.lower)
            shift = f" + {bound[1:]}" if bound.startswith("-") else f" - {bound}"
            return f"log({self.body.label}{'' if bound in ('0', '-0') else shift})"
        if self.sense == "between":
            text = f"{_text(self.lower)} <= {self.body.label} <= {_text(self.upper)}"
        else:
            text = f"{self.body.label} {self.sense} {_text(self.lower if self.upper is None else self.upper)}"
        return text if self.penalty is None else f"soft({text})"

    def dual_from_multiplier(self, y: Array) -> Array | float:
        """Return the dual in CVXPY's sign from the multipliers of the rows (positive at lower bounds)."""
        kept = self.sense == ">=" or (self.sense == "==" and self.mirrored)
        signed = (y if kept else -y) + 0.0  # no negative zeros
        return signed.reshape(self.shape) if self.shape else float(signed[0])

    def __repr__(self) -> str:
        return f"Constraint({self.title}, rows={self.size})"


def compare(left: Affine, right: Affine, sense: str) -> Constraint:
    """Return the constraint ``left sense right``; a side without variables becomes the bound."""
    if left.is_constant and right.is_constant:
        raise ValueError(
            f"{left.label} {sense} {right.label} has no variable; expected one on at least one side"
        )
    mirrored = left.is_constant
    if mirrored:
        left, right = right, left
        sense = {"<=": ">=", ">=": "<=", "==": "=="}[sense]
    if right.is_constant and not left.parameters and not left.constant.any():
        body, bound = left.broadcast_with(right)  # already separated
    else:
        body = left.plus(right.times(-1.0))
        bound = body.constant_part().times(-1.0)
    lower = None if sense == "<=" else bound
    upper = None if sense == ">=" else bound
    return Constraint(body.variable_part(), lower, upper, sense, mirrored=mirrored)


def _text(bound: Affine | None) -> str:
    if bound is None:
        return ""
    if bound.parameters:
        return "+".join(p.name for p in bound.parameters)
    first = bound.constant[0]
    return f"{first:g}" if (bound.constant == first).all() else "b"


class SecondOrderConstraint(Named):
    """Vectors ``(t, v)`` of affine forms with ``||v|| <= t``.

    Attributes
    ----------
    body : Expression
        The vectors one after the other, each with its ``t`` first.
    dimensions : int array
        The length of each vector.
    dual_value : float or None
        Set by :meth:`bregopt.Problem.solve`: the decrease of the optimum for a unit more of the bound that
        the user wrote. If the problem is infeasible it is this constraint's part of a Farkas vector.
    multipliers : array of the shape of the body, or None
        Of each vector: ``z`` in the same cone, with ``z'(t, v) = 0`` at an optimum.
    """

    def __init__(self, body: Affine, dimensions: IntArray, label: str, of_bound: Array) -> None:
        self.body, self.dimensions, self.label = body, dimensions, label
        self._of_bound = of_bound  # d(body) / d(bound)
        self.dual_value: float | None = None
        self.multipliers: Array | None = None

    @property
    def size(self) -> int:
        """The number of elements of all vectors."""
        return self.body.size

    def set_multipliers(self, z: Array | None) -> None:
        """Set the multipliers of the vectors and of the bound."""
        self.multipliers = z
        self.dual_value = None if z is None else float(self._of_bound @ z)

    def __repr__(self) -> str:
        return f"SecondOrderConstraint({self.title}, dimension={int(self.dimensions.sum())})"
