"""A compiled problem, and its program at the current values of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.divergences import DIVERGENCES, SCALARS
from bregopt.modeling.affine import Affine
from bregopt.modeling.bounds import broadcast_gamma
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.largest_eigenvalue import EigenvalueBound
from bregopt.modeling.matrix_inequalities import MatrixInequality
from bregopt.modeling.naming import Named
from bregopt.modeling.objectives import DivergenceTerm, Minimize
from bregopt.modeling.parametric import AffineNumbers, ParametricParts, sparse_rows
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program import (
    Block,
    Bounds,
    Declaration,
    LinearMap,
    Nearness,
    ParameterSlope,
    Penalty,
    Program,
)

__all__ = ["Compiled", "slices"]

_NO_INDEX = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled problem: its variables in order, and a program without the values of parameters.

    The variables of the program are `variables` and, after them, those of second-order cones; its matrices
    are `matrices` and, after them, those of matrix inequalities. Its rows are `constraints`: the declared
    ones, those of the inequalities and cones, and a soft row for each square in the objective.
    """

    matrices: tuple[PSD, ...]
    variables: tuple[Variable, ...]
    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...]
    cones: tuple[SecondOrderConstraint, ...]
    inequalities: tuple[tuple[MatrixInequality, int], ...]  # with the numbers of their blocks
    caps: tuple[EigenvalueBound, ...]
    objective: Minimize
    lower: AffineNumbers
    upper: AffineNumbers
    parameter_slopes: tuple[tuple[Parameter, Any, Any], ...]
    parts: ParametricParts
    template: Program
    _anchors: dict[int, tuple[Nearness, tuple[Any, ...]]] = field(default_factory=dict)  # the last ones

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
        for inequality, _ in self.inequalities:
            if inequality.body.parameters or inequality.body.products:
                inequality.check_symmetric({p: np.asarray(p.value) for p in self.parameters})
        values = np.concatenate([np.zeros(0), *(np.ravel(np.asarray(p.value)) for p in self.parameters)])
        offset = self.objective.expression.affine.constant_part().value
        return replace(
            self.template,
            blocks=tuple(self._block(b, values) for b in range(len(self.template.blocks))),
            A=self._linear_map(values),
            B=self.template.B if self.parts.B is None else self.parts.B.at(values),
            c=self.template.c if self.parts.c is None else self.parts.c.at(values).toarray()[0],
            bounds=self._bounds(values),
            offset=self.objective.sign * float(np.asarray(offset)),
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

    def _linear_map(self, values: Array) -> LinearMap:
        """Return the linear map; terms without parameters are those of the template."""
        A = self.template.A
        return replace(A, terms=(*A.terms, *self.parts.terms(A.orders, values))) if self.parts.rows else A

    def declarations(self, declared: Sequence[Named]) -> tuple[Declaration, ...]:
        """Return each declared constraint with its part of the program."""
        rows: dict[Named, list[IntArray]] = {}
        for c, place in self.constraint_slices():
            rows.setdefault(c.declared, []).append(np.arange(place.start, place.stop))
        ends = np.cumsum([0, *(len(cone.dimensions) for cone in self.cones)])
        cones: dict[Named, IntArray] = {c: np.arange(ends[k], ends[k + 1]) for k, c in enumerate(self.cones)}
        blocks = {X: b for b, X in enumerate(self.matrices)}
        return tuple(
            Declaration(
                number=number,
                label=c.label,
                name=c.name,
                shape=c.shape if isinstance(c, Constraint) else None,
                rows=np.concatenate([_NO_INDEX, *rows.get(c, ())]),
                cones=cones.get(c, _NO_INDEX),
                block=blocks[c.X] if isinstance(c, EigenvalueBound) else None,
                axes=c.axes if isinstance(c, Constraint) else None,
            )
            for number, c in enumerate(declared)
        )

    def _block(self, b: int, values: Array) -> Block:
        block = self.template.blocks[b]  # without the parts that depend on parameters
        if b in self.parts.costs:
            table = self.parts.costs[b].at(values)
            block = replace(block, cost=sparse_rows(table, block.n) if table.nnz else None)
        caps = [c.value for c in self.caps if c.X.name == block.name]
        cap = min(caps, default=None)
        near = [self._nearness(b, t) for t in self.objective.expression.terms if t.X.name == block.name]
        return replace(block, cap=cap, nearness=near[0] if near else None) if caps or near else block

    def _nearness(self, b: int, term: DivergenceTerm) -> Nearness:
        """Return the divergence of a block, the same object while its parameters keep their values."""
        mu, values = _weight(term, self.objective.sign), tuple(p.value for p in term.data)
        known, known_values = self._anchors.get(b, (None, ()))
        same = known is not None and all(old is new for old, new in zip(known_values, values, strict=True))
        if known is None or not same:
            known = term.nearness(mu)
        elif known.mu != mu:
            known = replace(known, mu=mu)
        self._anchors[b] = known, values
        return known

    def _bounds(self, values: Array) -> Bounds:
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
        name = term.parameter.label if term.parameter is not None else term.divergence
        raise ValueError(f"the {term.divergence} divergence has weight {weight:g} ({name}); expected above 0")
    return weight


def _gamma(c: Constraint) -> Array:
    """Return the penalty weight of each row of a soft constraint."""
    assert c.penalty is not None
    gamma = c.penalty.gamma
    return broadcast_gamma(np.asarray(gamma.value), c.shape) if isinstance(gamma, Affine) else gamma


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
    return f"constraint {number} ({c.title})"
