"""The answer of a program as the answer of the problem: signs, shapes and names of the user."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.modeling.compilation.parametric_program import Compiled
from bregopt.modeling.constraints import multiplier_of_cone
from bregopt.records import replace
from bregopt.routes.solution import Ray, Solution

__all__ = ["translated"]


def translated(raw: Solution, compiled: Compiled, constraints: Sequence[Any], sign: float) -> Solution:
    """Return the answer with the user's signs and names, and set the values of variables and duals.

    Parameters
    ----------
    raw : Solution
        Of the program, which is a minimization.
    compiled : Compiled
    constraints : sequence of constraints
        As the user declared them.
    sign : float
        1 for a minimization, -1 for a maximization.

    Returns
    -------
    Solution
    """
    found = raw.X is not None
    own, u = _set_variables(raw, compiled)
    y, z = raw._point[2], _multipliers_of_cones(raw)
    _set_duals(raw, compiled, y, z)
    declarations = None if found else compiled.declarations(constraints)
    stop_reason = raw.stop_reason
    if raw.status == "infeasible" and declarations is not None and raw._program is not None:
        from bregopt.routes.conflict import with_largest

        stop_reason = with_largest(stop_reason, raw._program, declarations, y)
    return replace(
        raw,
        stop_reason=stop_reason,
        value=sign * raw.value,
        dual_value=sign * raw.dual_value,
        X=_one_or_all(own),
        u=u,
        duals=tuple(c.dual_value for c in constraints) if raw.duals is not None else None,
        duals_by_name={c.name: _with_labels(c) for c in constraints if c.name is not None},
        _raw=raw,
        ray=None if raw._ray is None else Ray(*compiled.named(raw._ray, raw._point[1])),
        _declarations=declarations,
        _compiled=compiled,
    )


def _set_variables(raw: Solution, compiled: Compiled) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Set the values of all variables; return those of the matrices, if any, and of the others by name."""
    found, blocks, elements = raw.X is not None, compiled.matrices, raw._point[1]
    given = raw.X[: len(blocks)] if found else [None] * len(blocks)
    # The arrays are read-only, as the answer and the next warm start share them.
    answers = tuple(X.set_answer(value) for X, value in zip(blocks, given, strict=True))
    values: dict[str, Any] = {}
    for u, place in compiled.variable_slices:
        u._value = u.with_elements(elements[place]) if found else None
        values[u.name] = u.whole.value
    return answers if found else None, values


def _set_duals(raw: Solution, compiled: Compiled, y: Array | None, z: Array | None) -> None:
    """Set the duals of all constraints by the multipliers of rows and cones."""
    for c, place in compiled.constraint_slices:
        c.dual_value = None if y is None else c.dual_from_multiplier(y[place])
    for cone, place in compiled.cone_slices:
        cone.set_multipliers(None if z is None else z[place])
    for inequality, b in compiled.inequalities:
        inequality.dual_value = None
        if y is not None and raw._program is not None:
            X, S = (None if part is None else part[b] for part in (raw.X, raw._S))
            inequality.dual_value = multiplier_of_cone(raw._program, b, X, y, S)
    compiled.set_convex_duals(y, z)


def _multipliers_of_cones(raw: Solution) -> Array | None:
    """Return the reduced costs of the variables in cones; for a Farkas vector those of zero costs."""
    if raw.duals is None:
        return None
    assert raw._program is not None
    program = raw._program
    if not program.cones.count:
        return np.zeros(0)
    costs = program.c if raw.X is not None else np.zeros(program.k)
    reduced: Array = (costs - program.B.T @ raw.duals)[program.cones.index]
    return reduced


def _with_labels(c: Any) -> Any:
    """Return the dual of a constraint, with the labels of the data that it was declared with."""
    axes = getattr(c, "axes", None)
    if axes is None or c.dual_value is None:
        return c.dual_value
    pandas = importlib.import_module("pandas")
    return (pandas.Series if len(axes) == 1 else pandas.DataFrame)(np.array(c.dual_value), *axes)


def _one_or_all(X: Any) -> Any:
    """Return the matrix, a tuple of several, or None."""
    return X if X is None else X[0] if len(X) == 1 else tuple(X)
