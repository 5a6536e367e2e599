"""A compiled problem, and its program at the current values of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences import DIVERGENCES, SCALARS
from bregopt.modeling.bounds import broadcast_gamma
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.objectives import DivergenceTerm, Minimize
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program import Block, Bounds, ParameterSlope, Penalty, Program

__all__ = ["AffineBounds", "Compiled", "slices"]


@dataclass(frozen=True, eq=False)
class AffineBounds:
    """The lower or upper bounds of all rows: constants, infinite where there is no bound, plus parameters.

    `slope` maps the values of all parameters to their part of the bounds; None without parameters.
    """

    constant: Array
    slope: Any

    def at(self, values: Array) -> Array:
        """Return the bounds at the concatenated values of all parameters."""
        ends: Array = self.constant if self.slope is None else self.constant + self.slope @ values
        return ends


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled problem: its variables in order, and a program without the values of parameters.

    The variables of the program are `variables` and, after them, those of second-order cones. Its rows are
    `constraints`: the declared ones, those of the cones, and a soft row for each square in the objective.
    """

    matrices: tuple[PSD, ...]
    variables: tuple[Variable, ...]
    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...]
    cones: tuple[SecondOrderConstraint, ...]
    objective: Minimize
    lower: AffineBounds
    upper: AffineBounds
    parameter_slopes: tuple[tuple[Parameter, Any, Any], ...]
    template: Program

    def program(self) -> Program:
        """Return the program at the current values of the parameters.

        Raises
        ------
        ValueError
            If a parameter has no value, bounds cross, or a weight is not positive.
        """
        for p in self.parameters:
            if p.value is None:
                raise ValueError(f"parameter {p.name} has no value; set .value before solving")
        sign = self.objective.sign
        affine = self.objective.expression.affine
        offset = affine.constant_part().value
        blocks = tuple(self._with_nearness(block) for block in self.template.blocks)
        return replace(
            self.template,
            blocks=blocks,
            bounds=self._bounds(),
            offset=sign * float(np.asarray(offset)),
            parameter_slopes=tuple(
                ParameterSlope(p.name, np.ravel(np.asarray(p.value)), lower, upper)
                for p, lower, upper in self.parameter_slopes
            ),
        )

    def variable_slices(self) -> list[tuple[Variable, slice]]:
        """Return each ordinary variable with its slice of ``u``."""
        return list(zip(self.variables, slices(self.variables), strict=True))

    def cone_slices(self) -> list[tuple[SecondOrderConstraint, slice]]:
        """Return each second-order constraint with its slice of all variables in cones."""
        return list(zip(self.cones, slices(self.cones), strict=True))

    def constraint_slices(self) -> list[tuple[Constraint, slice]]:
        """Return each constraint with its slice of the rows."""
        return list(zip(self.constraints, slices(self.constraints), strict=True))

    def _with_nearness(self, block: Block) -> Block:
        for t in self.objective.expression.terms:
            if t.X.name == block.name and block.nearness is not None:
                mu = _weight(t, self.objective.sign)
                # With the same weight the nearness object stays the same, so X0 is not factorized again.
                same = mu == block.nearness.mu
                return block if same else replace(block, nearness=replace(block.nearness, mu=mu))
        return block

    def _bounds(self) -> Bounds:
        values = np.concatenate([np.zeros(0), *(np.ravel(np.asarray(p.value)) for p in self.parameters)])
        lo, hi = self.lower.at(values), self.upper.at(values)
        kind, gamma = np.full(len(lo), int(Penalty.HARD)), np.full(len(lo), np.inf)
        own = _own_penalty(self.objective)
        crossed = np.flatnonzero(lo > hi)
        for number, (c, rows) in enumerate(self.constraint_slices()):
            if len(crossed) and crossed[0] < rows.stop:
                k = int(crossed[0])
                raise ValueError(
                    f"{_name(number, c)}, row {k - rows.start}: lower bound {lo[k]:g} is above upper bound "
                    f"{hi[k]:g}; expected lower <= upper"
                )
            if c.penalty is not None:
                kind[rows] = int(_penalty(number, c, own, lo[rows], hi[rows]))
                gamma[rows] = _gamma(c)
        return Bounds(lo, hi, kind, gamma)


def slices(items: Sequence[Any]) -> list[slice]:
    """Return the slice of each item in the concatenation of all items."""
    ends = list(accumulate((item.size for item in items), initial=0))
    return [slice(start, end) for start, end in pairwise(ends)]


def _weight(term: DivergenceTerm, sign: float) -> float:
    weight = sign * term.weight / term.copies
    if term.parameter is not None:
        weight *= float(np.asarray(term.parameter.value))
    if weight <= 0:
        name = term.parameter.name if term.parameter is not None else term.divergence
        raise ValueError(f"the {term.divergence} divergence has weight {weight:g} ({name}); expected above 0")
    return weight


def _gamma(c: Constraint) -> Array:
    """Return the penalty weight of each row of a soft constraint."""
    assert c.penalty is not None
    gamma = c.penalty.gamma
    return broadcast_gamma(np.asarray(gamma.value), c.shape) if isinstance(gamma, Parameter) else gamma


def _penalty(number: int, c: Constraint, own: Penalty | None, lo: Array, hi: Array) -> Penalty:
    """Return the kind of penalty of a soft constraint."""
    assert c.penalty is not None
    asked = c.penalty.kind
    if asked == "square":
        return Penalty.SQUARE
    if asked == "hinge" or (asked is None and own is None):
        return Penalty.HINGE
    if own is None:
        raise ValueError(
            f'{_name(number, c)}: penalty="divergence" needs an objective with one kind of divergence; '
            'use penalty="hinge"'
        )
    if SCALARS[own].of_ratios:
        for end in (end for given, end in ((c.lower, lo), (c.upper, hi)) if given is not None):
            wrong = end <= 0
            if wrong.any():
                raise ValueError(
                    f"{_name(number, c)} has the bound {end[wrong].min():g}, but the soft penalty that goes "
                    'with this divergence is defined for bounds above 0 only; use penalty="hinge"'
                )
    return own


def _own_penalty(objective: Minimize) -> Penalty | None:
    kinds = {t.divergence for t in objective.expression.terms}
    return DIVERGENCES[kinds.pop()].penalty if len(kinds) == 1 else None


def _name(number: int, c: Constraint) -> str:
    """Return the name of a constraint in messages."""
    return f"constraint {number} ({c.label})"
