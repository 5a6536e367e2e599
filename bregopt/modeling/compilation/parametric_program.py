"""A compiled problem, and its program at the current values of the parameters.

The places of the coefficients that depend on parameters are compiled once; at each solve one sparse product
gives the numbers. As a node of branch and bound, a problem has some rows and variables fixed to values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, rectangular
from bregopt.divergences import DIVERGENCES, SCALARS
from bregopt.linalg import lean
from bregopt.modeling.affine import Affine, Named
from bregopt.modeling.complex_expressions import HermitianInequality
from bregopt.modeling.constraints import Constraint, MatrixInequality, SecondOrderConstraint
from bregopt.modeling.convex.atom import DivergenceTerm, Row
from bregopt.modeling.convex.eigenvalues import EigenvalueBound
from bregopt.modeling.convex.expression import ConvexConstraint
from bregopt.modeling.expressions import Expression, broadcast_gamma
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program import (
    Block,
    Bounds,
    Declaration,
    Nearness,
    ParameterSlope,
    Penalty,
    Program,
    Term,
)
from bregopt.program.convex_terms import ConvexTerm
from bregopt.program.rows import Coordinates, Rows, SparseRows
from bregopt.records import PickledWithoutCache, cached_property, dataclass, replace

_NO_INDEX = np.zeros(0, dtype=np.intp)
_WEIGHTED = {"square": "a sum of squares", "log": "a logarithm"}  # terms of the objective that are soft rows
Share = tuple[Row, Any]  # a row or cone, and the derivative of its multipliers' part in a bound


# --- Numbers that are affine in parameters ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AffineNumbers(PickledWithoutCache):
    """The numbers ``constant + slope @ values`` at the values of all parameters; without slope constants."""

    constant: Array
    slope: Any

    def at(self, values: Array) -> Array:
        """Return the numbers at the concatenated values of all parameters."""
        numbers: Array = self.constant if self.slope is None else self.constant + self._products @ values
        return numbers

    @cached_property
    def _products(self) -> Any:
        """The slope in its fastest form for products."""
        return lean(self.slope)


@dataclass(frozen=True, eq=False)
class ParametricMatrix:
    """A sparse matrix with elements affine in parameters at `places`, sorted, and zeros elsewhere."""

    shape: tuple[int, int]
    places: IntArray
    numbers: AffineNumbers

    def at(self, values: Array) -> Any:
        """Return the matrix at the values of all parameters, in CSR form without zeros."""
        numbers = self.numbers.at(values)
        kept = np.flatnonzero(numbers)
        return sp.csr_array((numbers[kept], np.divmod(self.places[kept], self.shape[1])), self.shape)


@dataclass(frozen=True, eq=False)
class ParametricParts:
    """The coefficients of a program that depend on parameters.

    Parameters
    ----------
    rows, costs : dict from int to ParametricMatrix
        Of the matrix variables, by the number of the block; a column for each entry.
    B, c : ParametricMatrix or None
        Of the ordinary variables; None where no coefficient depends on a parameter.
    """

    rows: dict[int, ParametricMatrix] = field(default_factory=dict)
    costs: dict[int, ParametricMatrix] = field(default_factory=dict)
    B: ParametricMatrix | None = None
    c: ParametricMatrix | None = None

    @classmethod
    def of(
        cls,
        number: Mapping[PSD, int],
        variables: Sequence[Variable],
        parameters: Sequence[Parameter],
        placed: Sequence[tuple[Constraint, slice]],
        goal: Affine,
    ) -> ParametricParts:
        """Return the parts of rows and of an objective, with the `number` of the block of each matrix."""
        bodies = [(place.start, c.body) for c, place in placed if c.body.products]
        if not goal.products and not bodies:
            return cls()
        m, k = sum(c.size for c, _ in placed), sum(u.size for u in variables)
        columns = {u: place.start for u, place in sliced(variables)}
        elements = dict(sliced(parameters))
        rows, costs = {}, {}
        for X, b in number.items():
            own = [(start, e) for start, e in bodies if X in multiplied_matrices(e)]
            if own:
                rows[b] = _parametric_matrix(own, {X: 0}, (m, X.n**2), elements)
            if X in multiplied_matrices(goal):
                costs[b] = _parametric_matrix([(0, goal)], {X: 0}, (1, X.n**2), elements)
        B, c = (
            _parametric_matrix(part, columns, (size, k), elements) if _multiplies_variables(part) else None
            for part, size in (([(place.start, c.body) for c, place in placed], m), ([(0, goal)], 1))
        )
        return cls(rows, costs, B, c)

    def terms(self, orders: Sequence[int], values: Array) -> Iterator[Term]:
        """Yield the nonzero rows of each matrix variable at the values of all parameters."""
        for b, matrix in self.rows.items():
            table = matrix.at(values)
            at = np.flatnonzero(np.diff(table.indptr))
            if len(at):
                yield Term(b, at, sparse_rows(table[at], orders[b]))


def multiplied_matrices(e: Affine) -> set[Any]:
    """Return the matrix variables that parameters multiply."""
    return {X for product in e.products for X in product.factor.psd}


def _multiplies_variables(bodies: Iterable[tuple[int, Affine]]) -> bool:
    return any(product.factor.variables for _, e in bodies for product in e.products)


def _parametric_matrix(
    bodies: Iterable[tuple[int, Affine]],
    columns: Mapping[Any, int],
    shape: tuple[int, int],
    elements: Mapping[Any, slice],
) -> ParametricMatrix:
    """Return the coefficients of operands in the rows of arrays.

    Parameters
    ----------
    bodies : iterable of (int, Affine)
        Each with its first row.
    columns : mapping from PSD or Variable
        The operands, each with the first of its columns. A matrix has a column for each entry.
    shape : (int, int)
    elements : mapping from Parameter
        The places of each parameter in the values of all parameters.
    """
    count = sum(place.stop - place.start for place in elements.values())
    places, values, of = [np.zeros(0, dtype=np.intp)], [np.zeros(0)], [np.zeros(0, dtype=np.intp)]
    for start, body in bodies:
        identity = sp.csr_array(sp.eye_array(body.size, format="csr"))
        parts: list[tuple[Any, IntArray, Affine]] = [(identity, np.full(body.size, -1), body)]
        parts += [(p.weights, elements[p.parameter].start + p.at, p.factor) for p in body.products]
        for weights, at, factor in parts:
            for operand, column in columns.items():
                table = _table(factor, operand)
                if table is not None:
                    row, own, value, term = _weighed(weights, table)
                    places.append((start + row) * shape[1] + column + own)
                    values.append(value)
                    of.append(at[term])
    unique, where = np.unique(np.concatenate(places), return_inverse=True)
    value, element = np.concatenate(values), np.concatenate(of)
    fixed = element < 0
    constant = np.bincount(where[fixed], value[fixed], len(unique)).astype(float)
    slope = sp.csr_array((value[~fixed], (where[~fixed], element[~fixed])), (len(unique), count))
    return ParametricMatrix(shape, unique, AffineNumbers(constant, slope))


def sparse_rows(table: Any, n: int) -> SparseRows:
    """Return the rows of a CSR matrix with a column for each entry of a matrix of order `n`."""
    row = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    i, j = np.divmod(table.indices.astype(np.intp), n)
    return SparseRows(table.shape[0], n, Coordinates(row, i, j, table.data))


def _table(e: Affine, operand: Any) -> Any:
    """Return the coefficients of an operand as a CSR matrix, None where it does not occur."""
    rows: Rows | None = e.psd.get(operand)
    if rows is None:
        return e.variables.get(operand)
    t = rows.coordinates()
    column = np.minimum(t.i, t.j) * rows.n + np.maximum(t.i, t.j)
    return sp.csr_array((t.value, (t.row, column)), (rows.m, rows.n**2))


def _weighed(weights: Any, table: Any) -> tuple[IntArray, IntArray, Array, IntArray]:
    """Return the products of nonzeros ``weights[l, t] table[t, k]``: ``l``, ``k``, their values and ``t``."""
    count = np.diff(table.indptr)[weights.indices]
    each = np.repeat(np.arange(weights.nnz), count)
    at = np.arange(len(each)) + np.repeat(table.indptr[weights.indices] - np.cumsum(count) + count, count)
    row = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))[each]
    value = weights.data[each] * table.data[at]
    return row, table.indices[at].astype(np.intp), value, weights.indices[each].astype(np.intp)


# --- The compiled problem -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TermTemplate:
    """A convex term without the values of parameters: the constants of its arguments, and a scalar weight."""

    term: ConvexTerm
    constant: Expression
    parameter: Expression | None

    def at_values(self) -> ConvexTerm:
        """Return the term at the current values of parameters."""
        b = np.ravel(np.asarray(self.constant.value, dtype=float))
        weight = self.term.weight
        if self.parameter is not None:
            weight = weight * float(np.asarray(self.parameter.value))
        return replace(self.term, b=b, weight=weight)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled problem: its variables in order, and a program without the values of parameters.

    The matrices of the program are `matrices` and, after them, those of epigraphs and of matrix inequalities.
    Its variables are `variables` and, after them, those of epigraphs and of second-order cones. Its rows are
    those of the constraints: the declared ones, those of epigraphs, inequalities and cones, and soft rows for
    terms of the objective.

    Parameters
    ----------
    constraint_slices : tuple
        Each constraint with its slice of the rows.
    inequalities : tuple
        Matrix inequalities with the numbers of their blocks.
    shares : tuple
        For each inequality of convex expressions, its rows and cones with the derivatives in its bound.
    goal : Expression
        The affine part of the minimized objective.
    constant : Expression
        The constant that the user added to it.
    divergences : tuple of DivergenceTerm
        Its other part, with weights above 0.
    weights : tuple of Expression
        Scalars of parameters that weigh convex terms: their values must not be negative.
    terms : tuple of TermTemplate
        Convex functions of the objective and of rows.
    is_hard : bool
        Whether no row is soft.
    """

    matrices: tuple[PSD, ...]
    variables: tuple[Variable, ...]
    parameters: tuple[Parameter, ...]
    constraint_slices: tuple[tuple[Constraint, slice], ...]
    cones: tuple[SecondOrderConstraint, ...]
    inequalities: tuple[tuple[MatrixInequality, int], ...]
    caps: tuple[EigenvalueBound, ...]
    shares: tuple[tuple[ConvexConstraint, Sequence[Share]], ...]
    goal: Expression
    constant: Expression
    divergences: tuple[DivergenceTerm, ...]
    weights: tuple[Expression, ...]
    terms: tuple[TermTemplate, ...]
    lower: AffineNumbers
    upper: AffineNumbers
    parameter_slopes: tuple[tuple[Parameter, Any, Any], ...]
    parts: ParametricParts
    template: Program
    is_hard: bool
    _anchors: dict[int, tuple[Nearness, Sequence[Any]]] = field(default_factory=dict)  # the last ones
    _blocks: dict[int, Block] = field(default_factory=dict)  # the last ones
    _last: dict[str, Program] = field(default_factory=dict, init=False)

    @property
    def is_complex(self) -> bool:
        """Whether a variable, a parameter or a matrix inequality is complex."""
        operands: list[Any] = [*self.matrices, *self.variables, *self.parameters]
        hermitian = any(isinstance(c, HermitianInequality) for c, _ in self.constraint_slices)
        return hermitian or any(operand.whole is not operand for operand in operands)

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
        values = np.concatenate([np.zeros(0), *[np.asarray(p.value).ravel() for p in self.parameters]])
        for weight in self.weights:
            if float(np.asarray(weight.value)) < 0:
                raise ValueError(f"{weight.label} is {weight.value}, a weight of a term; expected from 0 up")
        blocks, A = self.template.blocks, self.template.A  # those without parameters
        if self.parts.rows:
            A = replace(A, terms=(*A.terms, *self.parts.terms(A.orders, values)))
        if self.caps or self.divergences or self.parts.costs:
            blocks = tuple([self._block(b, values) for b in range(len(blocks))])
        program = self._last.get("program", self.template).restated(
            blocks=blocks,
            A=A,
            B=self.template.B if self.parts.B is None else self.parts.B.at(values),
            c=self.template.c if self.parts.c is None else self.parts.c.at(values).toarray()[0],
            bounds=self._bounds(values),
            offset=_number(self.goal),
            constant=_number(self.constant),
            parameter_slopes=tuple(
                [
                    ParameterSlope(p.name, np.asarray(p.value).ravel(), lower, upper)
                    for p, lower, upper in self.parameter_slopes
                ]
            ),
            terms=tuple([term for own in self.terms if (term := own.at_values()).weight.any()]),
        )
        self._last["program"] = program
        return program

    def proof_data(self, program: Program) -> tuple[Program, Any, tuple[str, ...]]:
        """Return a program, its data for proofs, and the names of the parameters that have intervals.

        With intervals it is the program at the current values of the parameters, else the given one.
        """
        from bregopt.modeling.compilation.derivatives import interval_data, uncertain

        names = uncertain(self)
        own = self.program() if names else program
        return own, interval_data(self, own), names

    def named(self, X: Any, u: Array) -> tuple[Any, dict[str, Any]]:
        """Return the matrices of a point as users have them, and its variables by name."""
        values = {v.name: v.of_elements(u[place]) for v, place in self.variable_slices}
        own = tuple(M.of_block(part) for M, part in zip(self.matrices, X, strict=False))
        return own[0] if len(own) == 1 else own, values

    @cached_property
    def variable_slices(self) -> list[tuple[Variable, slice]]:
        """Each ordinary variable with its slice of ``u``."""
        return sliced(self.variables)

    @cached_property
    def cone_slices(self) -> list[tuple[SecondOrderConstraint, slice]]:
        """Each second-order constraint with its slice of all variables in cones."""
        return sliced(self.cones)

    def set_convex_duals(self, y: Array | None, z: Array | None) -> None:
        """Set the duals of inequalities of convex expressions, after those of matrix inequalities.

        Parameters
        ----------
        y, z : array or None
            Multipliers of all rows, and of all variables in cones; None if there are none.
        """
        if y is None or z is None or not self.shares:
            for c, _ in self.shares:
                c.set_dual(None)
            return
        multipliers: dict[Any, Array] = {c: y[place] for c, place in self.constraint_slices}
        multipliers |= {c: z[place] for c, place in self.cone_slices}
        multipliers |= {c: np.ravel(np.asarray(c.dual_value)) for c, _ in self.inequalities}
        for c, shares in self.shares:
            c.set_dual([(slope, multipliers[row]) for row, slope in shares])

    def chain(self) -> Any:
        """Return how the data of the program depend on the parameters, for derivatives."""
        from bregopt.modeling.compilation.derivatives import (
            ParameterChain,  # only those who differentiate wait
        )

        return ParameterChain(self, dict(sliced(self.parameters)))

    def declarations(self, declared: Sequence[Named]) -> tuple[Declaration, ...]:
        """Return each declared constraint with its part of the program."""
        rows: dict[Named, list[IntArray]] = {}
        for c, place in self.constraint_slices:
            rows.setdefault(c.declared, []).append(np.arange(place.start, place.stop))
        ends = np.cumsum([0, *(len(cone.dimensions) for cone in self.cones)])
        cones: dict[Named, list[IntArray]] = {}
        for k, cone in enumerate(self.cones):
            cones.setdefault(cone.declared, []).append(np.arange(ends[k], ends[k + 1]))
        blocks = {X: b for b, X in enumerate(self.matrices)}
        return tuple(
            Declaration(
                number=number,
                label=c.label,
                name=c.name,
                shape=c.shape if isinstance(c, Constraint) else None,
                rows=np.concatenate([_NO_INDEX, *rows.get(c, ())]),
                cones=np.concatenate([_NO_INDEX, *cones.get(c, ())]),
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
        for c in self.caps:
            if c.X.name == block.name and (block.cap is None or c.value < block.cap):
                block = replace(block, cap=c.value)
        for near in self.divergences:
            if near.X.name == block.name:
                block = replace(block, nearness=self._nearness(b, near))
        last = self._blocks.setdefault(b, block)
        if (last.cost, last.nearness, last.cap) != (block.cost, block.nearness, block.cap):
            self._blocks[b] = block
        return self._blocks[b]  # the same object while nothing changes, with all that it has computed

    def _nearness(self, b: int, term: DivergenceTerm) -> Nearness:
        """Return the divergence of a block, the same object while its parameters keep their values."""
        mu, values = _weight(term), [p.value for p in term.data]
        known, known_values = self._anchors.get(b, (None, ()))
        if known is None or any(map(operator.is_not, known_values, values)):
            known = term.nearness(mu)
        elif known.mu != mu:
            known = replace(known, mu=mu)
        self._anchors[b] = known, values
        return known

    def _bounds(self, values: Array) -> Bounds:
        lo = self.lower.at(values)
        hi = lo.copy() if self.upper is self.lower else self.upper.at(values)
        crossed = (lo > hi).nonzero()[0]
        hard = self.template.bounds
        if self.is_hard and not len(crossed):
            return Bounds(lo, hi, hard.kind, hard.gamma)
        kind, gamma = hard.kind.copy(), hard.gamma.copy()
        own = _own_penalty(self.divergences)
        for number, (c, rows) in enumerate(self.constraint_slices):
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


def _number(e: Expression) -> float:
    """Return the constant part of a scalar at the current values of its parameters."""
    return float(np.asarray(e.constant_part().value)) if e.parameters else float(e.constant[0])


def sliced(items: Sequence[Any]) -> list[tuple[Any, slice]]:
    """Return each item with its slice in the concatenation of all items."""
    found, end = [], 0
    for item in items:
        start, end = end, end + item.size
        found.append((item, slice(start, end)))
    return found


def _weight(term: DivergenceTerm) -> float:
    weight = term.weight / term.copies
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
    if not isinstance(gamma, Affine):
        return gamma
    of = _WEIGHTED.get(c.penalty.kind or "")
    name = f"the weight {gamma.label} of {of}" if of else "gamma of soft"
    return broadcast_gamma(np.asarray(gamma.value), c.shape, name)


def _penalty(number: int, c: Constraint, own: Penalty | None, lo: Array, hi: Array) -> Penalty:
    """Return the kind of penalty of a soft constraint."""
    assert c.penalty is not None
    asked = c.penalty.kind
    if asked == "square":
        return Penalty.SQUARE
    if asked == "log":
        return Penalty.LOG
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


def _own_penalty(divergences: Sequence[DivergenceTerm]) -> Penalty | None:
    kinds = {t.divergence for t in divergences}
    return DIVERGENCES[kinds.pop()].penalty if len(kinds) == 1 else None


def _name(number: int, c: Constraint) -> str:
    """Return the name of a constraint in messages."""
    return f"constraint {number} ({c.title})"


def fixed(compiled: Compiled, program: Program, fixings: Mapping[Any, Any]) -> Program:
    """Return the program with fixed rows and variables; see :meth:`bregopt.Problem.bound`."""
    if not isinstance(fixings, Mapping):
        raise TypeError(f"fixings is {type(fixings).__name__}; expected a dict from constraints or variables")
    constraints = dict(compiled.constraint_slices)
    named: dict[Any, Any] = {c.name: c for c in constraints if c.name is not None}
    variables = {u: place for u, place in compiled.variable_slices if u.whole is u}
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
                f"fixings names {key!r}; expected a constraint of rows or a real variable of the problem"
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
