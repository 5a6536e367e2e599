"""Comparisons of expressions with curvature."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import Array, SparseMatrix
from bregopt.modeling.convex.curvature import check_bounded, text_of
from bregopt.modeling.naming import Named

if TYPE_CHECKING:
    from bregopt.modeling.convex.expression import CurvedExpression

__all__ = ["ConvexConstraint", "bounded"]


class ConvexConstraint(Named):
    """``body <= 0`` for a convex expression, elementwise; built by ``<=`` and ``>=``.

    Attributes
    ----------
    body : CurvedExpression
        The lesser side minus the greater one.
    dual_value : float or array of the shape of the body, or None
        Set by :meth:`bregopt.Problem.solve`, with CVXPY's sign: the decrease of the optimum for a unit more
        of the greater side, never negative. If the problem is infeasible it is this constraint's part of a
        Farkas vector.
    """

    def __init__(self, body: CurvedExpression, label: str) -> None:
        self.body, self.label = body, label
        self.dual_value: Array | float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the body."""
        shape: tuple[int, ...] = self.body.shape
        return shape

    @property
    def size(self) -> int:
        """The number of inequalities."""
        return int(self.body.size)

    def set_dual(self, parts: Iterable[tuple[SparseMatrix, Array]] | None) -> None:
        """Set the dual from the multipliers of rows and cones and their derivatives in the greater side."""
        if parts is None:
            self.dual_value = None
            return
        total = np.maximum(sum((slope.T @ y for slope, y in parts), np.zeros(self.size)), 0.0)
        self.dual_value = total.reshape(self.shape) if self.shape else float(total[0])

    def __repr__(self) -> str:
        return f"ConvexConstraint({self.title}, rows={self.size})"


def bounded(left: Any, right: Any, sense: str) -> Any:
    """Return the constraint ``left sense right`` of expressions that may have curvature.

    A bound on a norm or on a sum of squares is a second-order cone, and one on the largest eigenvalue of a
    matrix variable belongs to the variable.

    Raises
    ------
    TypeError
        If it is not convex; the message names the rule.
    """
    check_bounded(left, right, sense)
    if not left.terms and not right.terms:
        a, b = left.affine, right.affine
        return a <= b if sense == "<=" else a >= b
    label = f"{text_of(left)} {sense} {text_of(right)}"
    lesser, greater = (left, right) if sense == "<=" else (right, left)
    own = None if greater.terms else _own_constraint(lesser, greater.affine, label)
    return ConvexConstraint(lesser - greater, label) if own is None else own


def _own_constraint(e: Any, bound: Any, label: str) -> Any:
    """Return the constraint that a class of atoms has for its bounds, None if it has none."""
    kinds = {type(term.atom) for term in e.terms}
    plain = all(t.matrix is None and t.parameter is None for t in e.terms)
    if len(kinds) > 1 or not plain or e.size > 1 or bound.size > 1:
        return None
    if not e.affine.is_constant or e.affine.parameters or e.affine.constant.any():
        bound = bound.plus(e.affine.times(-1.0))
    factors, atoms = [t.factor for t in e.terms], [t.atom for t in e.terms]
    return kinds.pop().bound(factors, atoms, bound, label)
