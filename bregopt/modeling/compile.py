"""Compilation of a declared problem to a :class:`~bregopt.program.Program`.

The structure (row families, their indices, the sparse matrix of the ordinary variables) is compiled once.
The parts that depend on parameters (bounds, weights) are filled in at each solve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.divergences import DIVERGENCES, SCALARS
from bregopt.modeling.constraints import Constraint, broadcast_gamma
from bregopt.modeling.expressions import Expression
from bregopt.modeling.objectives import DivergenceTerm, Minimize
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program import Block, Bounds, LinearMap, Nearness, ParameterSlope, Penalty, Program, Term
from bregopt.program.rows import Rows, concatenate_rows

__all__ = ["Compiled", "compile_problem"]

_NO_ROWS = Bounds(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp), np.zeros(0))


@dataclass(frozen=True, eq=False)
class _Ends:
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
    """A compiled problem: its variables in order, and a program without the values of parameters."""

    matrices: tuple[PSD, ...]
    variables: tuple[Variable, ...]
    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...]
    objective: Minimize
    lower: _Ends
    upper: _Ends
    shares: tuple[tuple[Parameter, Any, Any], ...]
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
            shares=tuple(
                ParameterSlope(p.name, np.ravel(np.asarray(p.value)), lower, upper)
                for p, lower, upper in self.shares
            ),
        )

    def variable_slices(self) -> list[tuple[Variable, slice]]:
        """Return each ordinary variable with its slice of ``u``."""
        return list(zip(self.variables, _slices(self.variables), strict=True))

    def constraint_slices(self) -> list[tuple[Constraint, slice]]:
        """Return each constraint with its slice of the rows."""
        return list(zip(self.constraints, _slices(self.constraints), strict=True))

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
            if c.softness is not None:
                kind[rows] = int(_penalty(number, c, own, lo[rows], hi[rows]))
                gamma[rows] = _gamma(c)
        return Bounds(lo, hi, kind, gamma)


def compile_problem(objective: Minimize, constraints: Sequence[Constraint]) -> Compiled:
    """Return the compiled problem.

    Raises
    ------
    ValueError
        If there is no matrix variable, two divergences of one variable, or two variables of one name.
    """
    expressions = [objective.expression.affine, *(c.body for c in constraints)]
    matrices = _ordered([t.X for t in objective.expression.terms], *(e.psd.keys() for e in expressions))
    variables = _ordered(*(e.variables.keys() for e in expressions))
    if not matrices:
        raise ValueError("the problem has no bo.PSD variable; for problems without one use CVXPY itself")
    _check_names([*matrices, *variables])
    blocks = tuple(_block(X, objective) for X in matrices)
    template = Program(
        blocks=blocks,
        A=_linear_map(matrices, constraints),
        B=_variable_map(variables, constraints),
        bounds=_NO_ROWS,
        c=_variable_cost(variables, objective),
        u_lo=np.concatenate([np.zeros(0), *(u.lower for u in variables)]),
        u_hi=np.concatenate([np.zeros(0), *(u.upper for u in variables)]),
        labels=tuple((c.label, c.size) for c in constraints),
        columns=tuple((u.name, u.size) for u in variables),
        maximize=objective.sign < 0,
    )
    parameters = _parameters(objective, constraints)
    lower, upper = (_ends(parameters, constraints, side, open_end) for side, open_end in _SIDES)
    shares = tuple(_shares(parameters, lower, upper))
    return Compiled(
        matrices, variables, parameters, tuple(constraints), objective, lower, upper, shares, template
    )


def _block(X: PSD, objective: Minimize) -> Block:
    terms = [t for t in objective.expression.terms if t.X is X]
    if len(terms) > 1:
        raise ValueError(f"{X.name} has {len(terms)} divergences in the objective; expected at most one")
    nearness = Nearness(terms[0].divergence, terms[0].X0, parameters=terms[0].parameters) if terms else None
    cost = objective.expression.affine.psd.get(X)
    if cost is not None and objective.sign < 0:
        cost = cost.scale(np.array([-1.0]))
    return Block(X.name, X.n, cost, nearness)


def _linear_map(matrices: tuple[PSD, ...], constraints: Sequence[Constraint]) -> LinearMap:
    """Return the linear map; families of one class and storage are joined into one, for speed.

    A sparse family enters without its zero rows.
    """
    number = {X: b for b, X in enumerate(matrices)}
    grouped: dict[tuple[Any, ...], list[tuple[IntArray, Rows]]] = {}
    start = 0
    for c in constraints:
        for X, rows in c.body.psd.items():
            factor = getattr(rows, "Z", getattr(rows, "U", None))
            key = (number[X], type(rows), sp.issparse(factor))
            at, rows = _mentioned(rows)
            if len(at):
                grouped.setdefault(key, []).append((start + at, rows))
        start += c.size
    terms = tuple(
        Term(
            key[0],
            np.concatenate([at for at, _ in placed]),
            concatenate_rows([rows for _, rows in placed]),
        )
        for key, placed in grouped.items()
    )
    return LinearMap(start, tuple(X.n for X in matrices), terms)


def _mentioned(rows: Rows) -> tuple[IntArray, Rows]:
    """Return the indices of the nonzero rows of a family, and these rows."""
    at = rows.nonzero()
    return at, rows if len(at) == rows.m else rows.slice(at)


def _variable_map(variables: tuple[Variable, ...], constraints: Sequence[Constraint]) -> Any:
    m = sum(c.size for c in constraints)
    k = sum(u.size for u in variables)
    if not constraints or not variables:
        return _nothing(m, k)
    rows = [sp.hstack([_columns(c.body, u) for u in variables], format="csr") for c in constraints]
    B = sp.csr_array(sp.vstack(rows, format="csr"))
    B.eliminate_zeros()
    return B


@lru_cache(maxsize=64)
def _nothing(m: int, k: int) -> Any:
    """Return a sparse matrix of zeros, cached: making one takes longer than the map of a small problem."""
    return sp.csr_array((m, k))


def _columns(e: Expression, u: Variable) -> Any:
    return e.variables.get(u, sp.csr_array((e.size, u.size)))


def _variable_cost(variables: tuple[Variable, ...], objective: Minimize) -> Array:
    affine = objective.expression.affine
    parts = [_columns(affine, u).toarray().ravel() for u in variables]
    cost: Array = objective.sign * np.concatenate([np.zeros(0), *parts])
    return cost


def _parameters(objective: Minimize, constraints: Sequence[Constraint]) -> tuple[Parameter, ...]:
    found: list[Iterable[Parameter]] = [objective.expression.affine.parameters.keys()]
    found.append([t.parameter for t in objective.expression.terms if t.parameter is not None])
    for c in constraints:
        found.extend(end.parameters.keys() for end in (c.lower, c.upper) if end is not None)
        if c.softness is not None and isinstance(c.softness.gamma, Parameter):
            found.append([c.softness.gamma])
    return _ordered(*found)


def _weight(term: DivergenceTerm, sign: float) -> float:
    weight = sign * term.weight
    if term.parameter is not None:
        weight *= float(np.asarray(term.parameter.value))
    if weight <= 0:
        name = term.parameter.name if term.parameter is not None else term.divergence
        raise ValueError(f"the {term.divergence} divergence has weight {weight:g} ({name}); expected above 0")
    return weight


_SIDES = (("lower", -np.inf), ("upper", np.inf))


def _ends(
    parameters: tuple[Parameter, ...], constraints: Sequence[Constraint], side: str, open_end: float
) -> _Ends:
    """Return the bounds of all rows on one side, "lower" or "upper"; `open_end` where there is none."""
    columns = dict(zip(parameters, _slices(parameters), strict=True))
    m = sum(c.size for c in constraints)
    constant = np.full(m, open_end)
    terms: list[tuple[IntArray, IntArray, Array]] = []
    for c, rows in zip(constraints, _slices(constraints), strict=True):
        end = getattr(c, side)
        if end is not None:
            constant[rows] = end.constant
            for p, slope in end.parameters.items():
                coo = slope.tocoo()
                terms.append((rows.start + coo.coords[0], columns[p].start + coo.coords[1], coo.data))
    if not terms:
        return _Ends(constant, None)
    row, at, value = (np.concatenate(part) for part in zip(*terms, strict=True))
    return _Ends(constant, sp.csr_array((value, (row, at)), (m, sum(p.size for p in parameters))))


def _shares(
    parameters: tuple[Parameter, ...], lower: _Ends, upper: _Ends
) -> Iterator[tuple[Parameter, Any, Any]]:
    """Yield each parameter that occurs in bounds, with its columns of their slopes."""
    start = 0
    for p in parameters:
        place = slice(start, start + p.size)
        start += p.size
        none = sp.csr_array((len(lower.constant), p.size))
        below, above = (none if end.slope is None else end.slope[:, place] for end in (lower, upper))
        if below.nnz or above.nnz:
            yield p, below, above


def _gamma(c: Constraint) -> Array:
    """Return the penalty weight of each row of a soft constraint."""
    assert c.softness is not None
    gamma = c.softness.gamma
    return broadcast_gamma(np.asarray(gamma.value), c.shape) if isinstance(gamma, Parameter) else gamma


def _penalty(number: int, c: Constraint, own: Penalty | None, lo: Array, hi: Array) -> Penalty:
    """Return the kind of penalty of a soft constraint."""
    assert c.softness is not None
    asked = c.softness.penalty
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


def _name(number: int, c: Constraint) -> str:
    """Return the name of a constraint in messages."""
    return f"constraint {number} ({c.label})"


def _own_penalty(objective: Minimize) -> Penalty | None:
    kinds = {t.divergence for t in objective.expression.terms}
    return DIVERGENCES[kinds.pop()].penalty if len(kinds) == 1 else None


def _slices(items: Sequence[Any]) -> list[slice]:
    """Return the slice of each item in the concatenation of all items."""
    ends = list(accumulate((item.size for item in items), initial=0))
    return [slice(start, end) for start, end in pairwise(ends)]


def _ordered(*groups: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _check_names(named: list[Any]) -> None:
    names = sorted(item.name for item in named)
    for name, following in pairwise(names):
        if name == following:
            raise ValueError(f"two variables are called {name!r}; expected different names")
