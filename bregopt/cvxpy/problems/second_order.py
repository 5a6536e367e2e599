"""Second-order cones of a CVXPY problem as constraints of our language."""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import IntArray
from bregopt.cvxpy.problems.affine_reader import joint_rows
from bregopt.cvxpy.problems.coefficients import Elements
from bregopt.cvxpy.problems.variables import VariableForm, expression_of
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import Parameter

__all__ = ["second_order"]


def second_order(
    c: Any, forms: dict[Any, VariableForm], parameters: dict[Any, Parameter], written: set[Any]
) -> SecondOrderConstraint:
    """Return a constraint ``cvxpy.SOC``, which may hold several cones of equal dimension.

    Parameters
    ----------
    c : cvxpy.SOC
        Its arguments are affine.
    forms : dict from cvxpy.Variable to VariableForm
    parameters : dict from cvxpy.Parameter to Parameter
    written : set of cvxpy.Parameter
        Parameters whose values are substituted are added.

    Raises
    ------
    UnsupportedProblemError
        If it has no variable.
    """
    t, X = c.args
    order = _vectors(t.size, X.shape, c.axis)
    row = np.argsort(order.ravel())
    own = (Elements(part, np.arange(len(part)), np.ones(len(part))) for part in np.split(row, [t.size]))
    found = joint_rows([*zip(c.args, own, strict=True)], order.size, parametric=True)
    written |= found.frozen
    body = expression_of(found, forms, "second-order cone", parameters)
    if body.is_constant:
        raise UnsupportedProblemError("it has no variable")
    dimensions = np.full(t.size, order.shape[1])
    return SecondOrderConstraint(body, dimensions, body.label, np.zeros(order.size))


def _vectors(count: int, shape: tuple[int, ...], axis: int) -> IntArray:
    """Return, for each cone, the numbers of ``t`` and of the elements of ``X``, which follow by columns."""
    tails = count + np.arange(int(np.prod(shape, dtype=int))).reshape(shape, order="F")
    if len(shape) < 2:
        tails = tails.reshape(1, -1)
    elif axis == 0:
        tails = tails.T
    return np.column_stack([np.arange(count), tails])
