"""Vectors of affine forms in second-order cones."""

from __future__ import annotations

from bregopt.arrays import Array, IntArray
from bregopt.modeling.expressions import Expression
from bregopt.modeling.naming import Named

__all__ = ["SecondOrderConstraint", "stacked"]


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

    def __init__(self, body: Expression, dimensions: IntArray, label: str, of_bound: Array) -> None:
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


def stacked(parts: list[Expression]) -> Expression:
    """Return the elements of several expressions as one vector."""
    return Expression.concatenated(parts)
