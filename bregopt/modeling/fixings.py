"""A program with some rows and ordinary variables fixed to values, as a node of branch and bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, rectangular
from bregopt.modeling.compiled import Compiled
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.variables import Variable
from bregopt.program import Penalty, Program

__all__ = ["fixed"]


def fixed(compiled: Compiled, program: Program, fixings: Mapping[Any, Any]) -> Program:
    """Return the program with fixed rows and variables; see :meth:`bregopt.Problem.bound`."""
    if not isinstance(fixings, Mapping):
        raise TypeError(f"fixings is {type(fixings).__name__}; expected a dict from constraints or variables")
    constraints = dict(compiled.constraint_slices())
    named: dict[Any, Any] = {c.name: c for c in constraints if c.name is not None}
    variables = dict(compiled.variable_slices())
    named |= {u.name: u for u in variables}
    lo, hi = program.bounds.lo.copy(), program.bounds.hi.copy()
    u_lo, u_hi = program.u_lo.copy(), program.u_hi.copy()
    for key, given in fixings.items():
        item = named.get(key, key) if isinstance(key, str) else key
        if isinstance(item, Constraint) and item in constraints:
            place = constraints[item]
            if (program.bounds.kind[place] != int(Penalty.HARD)).any():
                raise ValueError(f"{item.label} is soft; expected a hard constraint to fix")
            _fix(item.label, item.shape, given, lo[place], hi[place])
        elif isinstance(item, Variable) and item in variables:
            place = variables[item]
            if np.isin(program.cones.index, np.arange(place.start, place.stop)).any():
                raise ValueError(f"variable {item.name} is in a second-order cone; fix an expression of it")
            _fix(item.name, item.shape, given, u_lo[place], u_hi[place])
        else:
            raise ValueError(
                f"fixings names {key!r}; expected a constraint of rows or a variable of the problem"
            )
    return replace(program, bounds=replace(program.bounds, lo=lo, hi=hi), u_lo=u_lo, u_hi=u_hi)


def _fix(name: str, shape: tuple[int, ...], given: Any, lo: Array, hi: Array) -> None:
    """Set both ends of the elements that are given; NaN leaves an element as it is."""
    raw = rectangular(given, f"the fixing of {name}")
    if raw.dtype.kind not in "biuf":
        raise TypeError(f"the fixing of {name} has dtype {raw.dtype}; expected real numbers")
    if raw.shape != shape:
        raise ValueError(
            f"the fixing of {name} has shape {raw.shape}; expected {shape}, NaN where it is free"
        )
    value = np.ravel(raw.astype(float))
    known = ~np.isnan(value)
    outside = known & ~((value >= lo) & (value <= hi))
    if outside.any():
        k = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"the fixing of {name} has the value {value[k]:g} in place {k}; expected {lo[k]:g} to {hi[k]:g}"
        )
    lo[known] = hi[known] = value[known]
