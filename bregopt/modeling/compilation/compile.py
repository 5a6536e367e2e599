"""Compilation of a declared problem to a :class:`~bregopt.program.Program`.

Expressions with curvature are reduced to affine expressions, rows, cones and divergences: each atom becomes a
new variable ``t`` and its epigraph. A term of the objective with a form of its own, such as a sum of squares,
needs neither.

The structure (row families, their indices, the sparse matrix of the ordinary variables) is compiled once.
The parts that depend on parameters (bounds, weights) are filled in at each solve.

Second-order constraints become cones of ordinary variables. An element of a constraint's vectors that is a
free variable is in the cone itself. Any other element is equated with a new variable, by a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.linalg import csr_of
from bregopt.modeling.affine import Affine, random_values
from bregopt.modeling.compilation.parametric_program import (
    AffineNumbers,
    Compiled,
    ParametricParts,
    Share,
    TermTemplate,
    multiplied_matrices,
    sliced,
)
from bregopt.modeling.constraints import (
    Constraint,
    MatrixInequality,
    SecondOrderConstraint,
)
from bregopt.modeling.convex.atom import Atom, ConvexPart, DivergenceTerm, Row, leaves, replaced
from bregopt.modeling.convex.eigenvalues import EigenvalueBound, LogDet, started_from_cost
from bregopt.modeling.convex.expression import ConvexConstraint, CurvedExpression, Minimize
from bregopt.modeling.expressions import Expression
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program import NO_CONES, Block, Bounds, LinearMap, Program, SecondOrderCones, Term
from bregopt.program.convex_terms import ConvexTerm
from bregopt.program.matrix_entropies import on_ranges
from bregopt.program.rows import Entries, Rows, storage
from bregopt.records import Text, dataclass, replace

_SAMPLES = 3  # random values of an argument, in all of which a direction vanishes only if it always does
Declared = Constraint | ConvexConstraint | EigenvalueBound | MatrixInequality | SecondOrderConstraint
Placed = Sequence[tuple[Constraint, slice]]  # constraints with their rows
Numbers = dict[PSD, int]  # of the blocks of matrices, in their order
_KINDS = (Constraint, EigenvalueBound, SecondOrderConstraint, MatrixInequality, ConvexConstraint)


# --- The reduction of curvature -----------------------------------------------------------------------------


@dataclass(eq=False)
class Reduction:
    """What a problem needs besides its affine expressions.

    Attributes
    ----------
    rows : list of Constraint
    cones : list of SecondOrderConstraint
    divergences : list of DivergenceTerm
        Of the minimized objective, with weights above 0.
    inequalities : list of MatrixInequality
    terms : list of ConvexPart
        Convex functions of the minimized objective.
    weights : list of Expression
        Scalars of parameters that weigh convex terms: their values must not be negative.
    """

    rows: list[Constraint] = field(default_factory=list)
    cones: list[SecondOrderConstraint] = field(default_factory=list)
    divergences: list[DivergenceTerm] = field(default_factory=list)
    inequalities: list[MatrixInequality] = field(default_factory=list)
    terms: list[ConvexPart] = field(default_factory=list)
    weights: list[Expression] = field(default_factory=list)
    _epigraphs: dict[Atom, Expression] = field(default_factory=dict)
    _source: ConvexConstraint | None = None  # the inequality that is reduced at the moment

    def objective(self, e: CurvedExpression) -> Expression:
        """Return the affine part of a convex objective to be minimized; the other parts are kept here."""
        total, terms, determinants = e.affine, e.terms, list[DivergenceTerm]()
        if len(terms) > 1:  # divergences first: a matrix has one of them
            terms = tuple(sorted(terms, key=lambda term: not term.atom.objective_only))
        for term in terms:
            taken = {d.X for d in self.divergences}
            arguments = [a.expression() if a in taken else a for a in self._arguments(term.atom)]
            weights = term.factor * (np.ones(1) if term.matrix is None else term.matrix.toarray().ravel())
            if not weights.any():  # an array of factors is zero here
                continue
            parts = term.atom.paid(weights, term.parameter, *arguments)
            if parts is None:
                total = total.plus(self._term(term, ()))
                continue
            self._add(parts.rows)
            self.divergences += parts.divergences
            self.terms += parts.terms
            self.weights += [part.parameter for part in parts.terms if part.parameter is not None]
            total = total if parts.affine is None else total.plus(parts.affine)
            determinants += parts.divergences if isinstance(term.atom, LogDet) else ()
        for near in determinants:
            started, total = started_from_cost(near, total)
            self.divergences[self.divergences.index(near)] = started
        return total

    def inequality(self, c: ConvexConstraint) -> list[Share]:
        """Add rows for an inequality, and return them with the derivatives of its bound."""
        self._source = c
        shares = self._without_variable(c)
        if shares is None:
            row = self.affine(c.body) <= 0
            assert isinstance(row, Constraint)
            self._add([row])
            shares = [(row, sp.csr_array(-sp.eye_array(c.size)))]
        self._source = None
        return shares

    def affine(self, e: Any) -> Expression:
        """Return an expression with the variables of epigraphs in place of atoms."""
        if not isinstance(e, CurvedExpression):
            expression: Expression = e.expression()
            return expression
        total = e.affine
        for term in e.terms:
            total = total.plus(self._term(term, e.shape))
        return total

    def _term(self, term: Any, shape: tuple[int, ...]) -> Expression:
        if term.parameter is not None:
            self.weights.append(term.parameter)
        t: Expression = term.of(self._epigraph(term.atom))
        return t.taken(np.arange(t.size), shape, t.label)

    def _arguments(self, atom: Atom) -> list[Any]:
        """Return the arguments of an atom, affine; matrix variables stay as they are."""
        return [a if isinstance(a, PSD) else self.affine(a) for a in atom.arguments]

    def _epigraph(self, atom: Atom) -> Expression:
        if atom not in self._epigraphs:
            t = Variable(atom.shape).expression()
            self._epigraphs[atom] = t
            self._add(atom.epigraph(t, *(a.expression() for a in self._arguments(atom))))
        return self._epigraphs[atom]

    def _add(self, rows: Any) -> None:
        for row in rows:
            row.source = self._source
            if isinstance(row, MatrixInequality):
                self.inequalities.append(row)
            else:
                (self.cones if isinstance(row, SecondOrderConstraint) else self.rows).append(row)

    def _without_variable(self, c: ConvexConstraint) -> list[Share] | None:
        """Bound a single atom by its bound itself, with no new variable; None where this cannot be.

        The rows are those for a variable, which is then replaced by the bound.
        """
        (term, *others) = c.body.terms
        if others or term.matrix is not None or term.parameter is not None:
            return None
        bound = c.body.affine.times(-1 / term.factor)
        t = Variable(term.atom.shape)
        arguments = [a.expression() for a in self._arguments(term.atom)]
        rows = list(term.atom.epigraph(t.expression(), *arguments))
        own = [_bounded(row, t, bound) for row in rows]
        if any(row.body.is_constant and getattr(row, "convex_part", None) is None for row in own):
            return None
        self._add(own)
        slopes = [row.body.variables.get(t) for row in rows]
        return [(row, s / term.factor) for row, s in zip(own, slopes, strict=True) if s is not None]


def _bounded(row: Row, t: Variable, bound: Expression) -> Any:
    """Return rows or cones with a bound in place of a variable."""
    body: Any = replaced(row.body, t, bound)
    if isinstance(row, MatrixInequality):
        return MatrixInequality(body, row.label)
    if isinstance(row, SecondOrderConstraint):
        return SecondOrderConstraint(body, row.dimensions, row.label, np.zeros(body.size))
    moved = body.constant_part()
    lower, upper = (end if end is None else end.plus(moved.times(-1.0)) for end in (row.lower, row.upper))
    if row.sense == "==":
        upper = lower
    own = Constraint(body.variable_part(), lower, upper, row.sense)
    own.convex_part = row.convex_part
    return own


# --- The compilation ----------------------------------------------------------------------------------------


def compile_problem(objective: Minimize, declared: Sequence[Declared]) -> Compiled:
    """Return the compiled problem.

    Raises
    ------
    ValueError
        If there is no psd matrix, two divergences of one variable, or two variables of one name.
    """
    by_kind: dict[Any, list[Any]] = {kind: [] for kind in _KINDS}
    for c in declared:
        for kind, alike in by_kind.items():
            if isinstance(c, kind):
                alike.append(c)
    constraints, caps, cones, inequalities, convex = by_kind.values()
    reduction, shares = Reduction(), []
    penalties: list[Constraint] = []
    goal = reduction.objective(objective.expression if objective.sign > 0 else -objective.expression)
    for c in convex:
        shares.append((c, reduction.inequality(c)))
    for row in reduction.rows:
        (constraints if row.penalty is None else penalties).append(row)
    cones += reduction.cones
    inequalities += reduction.inequalities
    rows = [*constraints, *penalties, *cones, *inequalities]
    parts = [*reduction.terms]
    for row in rows:
        part = getattr(row, "convex_part", None)
        if part is not None:
            parts.append(part)
    matrices, variables, parameters = _mentioned(goal, reduction, rows, parts, caps)
    reduced = bool(reduction.rows or reduction.cones or reduction.inequalities)
    for X in matrices:
        reduced = reduced or X.is_slack
    own_matrices, own_variables = matrices, variables
    if reduced:
        own = _leaves(objective, declared)
        own_matrices = tuple(X for X in matrices if X in own)
        own_variables = tuple(u for u in variables if u in own)
        matrices = (*own_matrices, *(X for X in matrices if X not in own))
        variables = (*own_variables, *(u for u in variables if u not in own))
    new_matrices, rows_of_matrices, matrix_of = _rows_of_inequalities(inequalities)
    matrices = (*matrices, *new_matrices)
    if not matrices and not parts:
        raise ValueError(
            "the problem has no bo.PSD variable and no matrix inequality; for problems without one use CVXPY "
            "itself"
        )
    _check_names(matrices, variables)
    constraints, lowest = _without_domains(constraints, variables)
    in_cones, new_variables, rows_of_cones = _rows_of_cones(variables, lowest, cones)
    constraints += [*rows_of_matrices, *rows_of_cones, *penalties]
    variables = (*variables, *new_variables)
    placed = tuple(sliced(constraints))
    m = placed[-1][1].stop if placed else 0
    lower = upper = _bounds_of_side(parameters, placed, m, "lower", -np.inf)
    labels, is_hard, number = [], True, dict(zip(matrices, range(len(matrices)), strict=True))
    for c, place in placed:
        labels.append((Text(partial(getattr, c.declared, "title")), place.stop - place.start))
        is_hard = is_hard and c.penalty is None
        if upper is lower and not (c.lower is c.upper is not None):
            upper = _bounds_of_side(parameters, placed, m, "upper", np.inf)
    template = Program(
        blocks=tuple([Block(X.name, X.n, goal.psd.get(X)) for X in matrices]),
        A=_linear_map(number, placed, m),
        B=_variable_map(variables, placed, m),
        bounds=Bounds.of_hard_rows(lower.constant, upper.constant),
        c=_variable_cost(variables, goal),
        u_lo=np.concatenate([np.zeros(0), *lowest, *[u.lower for u in new_variables]]),
        u_hi=np.concatenate([np.zeros(0), *[u.upper for u in variables]]),
        labels=tuple(labels),
        columns=tuple([(u.name, u.size) for u in variables]),
        maximize=objective.sign < 0,
        cones=in_cones,
    )
    constant = objective.expression.affine.constant_part()
    return Compiled(
        own_matrices,
        own_variables,
        parameters,
        placed,
        tuple(cones),
        tuple(zip(inequalities, map(number.__getitem__, matrix_of), strict=True)),
        tuple(caps),
        tuple(shares),
        goal,
        constant if objective.sign > 0 else constant.times(-1.0),
        tuple(reduction.divergences),
        tuple(reduction.weights),
        tuple(_terms(reduction, number, variables, placed)) if parts else (),
        lower,
        upper,
        tuple(_parameter_slopes(parameters, lower, upper)) if parameters else (),
        ParametricParts.of(number, variables, parameters, placed, goal) if parameters else ParametricParts(),
        template,
        is_hard,
    )


def _mentioned(
    goal: Affine,
    reduction: Reduction,
    rows: Sequence[Any],
    parts: Sequence[ConvexPart],
    caps: Sequence[EigenvalueBound],
) -> tuple[tuple[PSD, ...], tuple[Variable, ...], tuple[Parameter, ...]]:
    """Return all matrices, variables and parameters, each once and in the order in which they occur."""
    matrices: dict[Any, Any] = {}
    variables: dict[Any, Any] = {}
    parameters: dict[Any, Any] = {}
    found: list[Any] = [goal, *reduction.weights]
    for near in reduction.divergences:
        if near.X in matrices:
            count = sum(other.X is near.X for other in reduction.divergences)
            raise ValueError(f"{near.X.name} has {count} divergences in the objective; expected at most one")
        matrices[near.X] = None
        found.append(near.parameter)
        parameters |= dict.fromkeys(near.data)
    for row in rows:
        found.append(row.body)
        if isinstance(row, Constraint):
            found += row.lower, row.upper, row.penalty and row.penalty.gamma
    for part in parts:
        found.append(part.arguments)
    for cap in caps:
        found.append(cap.cap)
    for e in found:
        if isinstance(e, Affine):
            matrices |= e.psd
            variables |= e.variables
            parameters |= e.parameters
            for product in e.products:
                matrices |= product.factor.psd
                variables |= product.factor.variables
                parameters[product.parameter] = None
    for cap in caps:
        matrices[cap.X] = None
    return tuple(matrices), tuple(variables), tuple(parameters)


def _terms(
    reduction: Reduction, number: Numbers, variables: tuple[Variable, ...], placed: Placed
) -> Iterator[TermTemplate]:
    """Yield the convex functions with their arguments as linear maps."""
    in_rows = [(c.convex_part, rows) for c, rows in placed if c.convex_part is not None]
    for part, rows in [*((part, None) for part in reduction.terms), *in_rows]:
        if part.arguments.products:
            raise TypeError(
                f"{part.arguments.label} has a parameter times a variable inside {part.function.name}; "
                "expected affine arguments whose parameters stand alone"
            )
        function, arguments = part.function, part.arguments
        reduced = on_ranges(function, partial(_samples, arguments))
        if reduced is not None:
            function, arguments = (
                reduced[0],
                arguments.combined(reduced[1], (reduced[0].size,), arguments.label),
            )
        own = [(Constraint(arguments, None, None, "=="), slice(0, arguments.size))]
        A, B = _linear_map(number, own, arguments.size), _variable_map(variables, own, arguments.size)
        term = ConvexTerm(
            function,
            A,
            B,
            np.zeros(function.size),
            part.weight,
            None if rows is None else np.arange(rows.start, rows.stop),
        )
        yield TermTemplate(term, arguments.constant_part(), part.parameter)


# Pays on: maximum entropy of 5,000 numbers.
def _without_domains(
    constraints: Sequence[Constraint], variables: Sequence[Variable]
) -> tuple[list[Constraint], list[Array]]:
    """Return the rows without those of domains that are bounds of single variables, and all lower bounds."""
    rows, lowest = [], {u: u.lower for u in variables}
    for c in constraints:
        (u, matrix), *others = (*c.body.variables.items(), (None, None))
        single = c.is_domain and not c.body.psd and not c.body.products and len(others) == 1
        bare = single and c.lower is not None and not c.lower.parameters and not c.lower.constant.any()
        if bare and (np.diff(matrix.indptr) == 1).all() and (matrix.data > 0).all():
            bound = lowest[u].copy()
            bound[matrix.indices] = np.maximum(bound[matrix.indices], 0.0)
            if (bound <= u.upper).all():
                lowest[u] = bound
                continue
        rows.append(c)
    return rows, list(lowest.values())


def _samples(e: Affine) -> Array:
    """Return an affine expression at several random values of its variables, parameters and constant."""
    shares = np.random.default_rng(0).standard_normal(_SAMPLES)
    return np.array(
        [np.ravel(e.at(random_values(e, seed=k + 1))) + (s - 1) * e.constant for k, s in enumerate(shares)]
    )


def _leaves(objective: Minimize, declared: Sequence[Declared]) -> set[Any]:
    """Return all variables that the user mentions; the others are those of epigraphs and inequalities."""
    found = set(leaves(objective.expression))
    for c in declared:
        found.update([c.X] if isinstance(c, EigenvalueBound) else leaves(c.body))
    return {item for item in found if not (isinstance(item, PSD) and item.is_slack)}


def _linear_map(number: Numbers, placed: Placed, m: int) -> LinearMap:
    """Return the linear map; families of one class and storage are joined into one, for speed.

    A sparse family enters without its zero rows.
    """
    grouped: dict[tuple[Any, ...], list[tuple[IntArray, Rows]]] = {}
    for c, place in placed:
        parametric = multiplied_matrices(c.body) if c.body.products else ()
        for X, rows in c.body.psd.items():
            if X in parametric:
                continue
            at = rows.nonzero()
            if len(at):
                key = (number[X], type(rows), storage(rows))
                own = rows if len(at) == rows.m else rows.slice(at)
                grouped.setdefault(key, []).append((place.start + at, own))
    terms = []
    for (block, *_), families in grouped.items():
        at, rows = families[0]
        if len(families) > 1:
            at = np.concatenate([at for at, _ in families])
            rows = rows.followed_by([own for _, own in families[1:]])
        terms.append(Term(block, at, rows))
    return LinearMap(m, tuple([X.n for X in number]), tuple(terms))


def _variable_map(variables: tuple[Variable, ...], placed: Placed, m: int) -> Any:
    """Return the coefficients of the ordinary variables in all rows."""
    if not variables:
        return _nothing(m, 0)
    columns = dict(sliced(variables))
    k = columns[variables[-1]].stop
    entries = [
        (
            np.repeat(np.arange(rows.start, rows.stop), np.diff(matrix.indptr)),
            columns[u].start + matrix.indices,
            matrix.data,
        )
        for c, rows in placed
        for u, matrix in c.body.variables.items()
    ]
    if not entries:
        return _nothing(m, k)
    row, column, value = map(np.concatenate, zip(*entries, strict=True))
    kept = value.nonzero()[0]
    return csr_of(value[kept], row[kept], column[kept], (m, k))


@lru_cache(maxsize=64)
def _nothing(m: int, k: int) -> Any:
    """Return a sparse matrix of zeros, cached: making one takes longer than the map of a small problem."""
    return sp.csr_array((m, k))


def _variable_cost(variables: tuple[Variable, ...], goal: Affine) -> Array:
    given = goal.variables
    if not variables:
        return np.zeros(0)
    parts = [given[u].toarray().ravel() if u in given else np.zeros(u.size) for u in variables]
    return np.concatenate(parts)


def _bounds_of_side(
    parameters: tuple[Parameter, ...], placed: Placed, m: int, side: str, missing: float
) -> AffineNumbers:
    """Return the bounds of all rows on one side, "lower" or "upper"; `missing` where there is none."""
    columns = dict(sliced(parameters))
    constant = np.empty(m)
    constant[:] = missing
    terms: list[tuple[IntArray, IntArray, Array]] = []
    for c, rows in placed:
        end = getattr(c, side)
        if end is not None:
            constant[rows] = end.constant
            for p, slope in end.parameters.items():
                coo = slope.tocoo()
                terms.append((rows.start + coo.coords[0], columns[p].start + coo.coords[1], coo.data))
    if not terms:
        return AffineNumbers(constant, None)
    row, at, value = (np.concatenate(part) for part in zip(*terms, strict=True))
    return AffineNumbers(constant, sp.csr_array((value, (row, at)), (m, sum(p.size for p in parameters))))


def _parameter_slopes(
    parameters: tuple[Parameter, ...], lower: AffineNumbers, upper: AffineNumbers
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


def _check_names(*groups: Iterable[Any]) -> None:
    names = set()
    for item in chain(*groups):
        if item.name in names:
            raise ValueError(f"two variables are called {item.name!r}; expected different names")
        names.add(item.name)


def _rows_of_inequalities(
    inequalities: Sequence[MatrixInequality],
) -> tuple[list[PSD], list[Constraint], list[PSD]]:
    """Return new matrices, the rows that equate them with inequalities, and the matrix of each inequality."""
    matrices, rows, of = [], [], []
    for number, inequality in enumerate(inequalities):
        Z, n = inequality.own, inequality.n
        if Z is None:
            Z = PSD(n, name=f"slack {number} of {inequality.label}")
            i, j = np.triu_indices(n)
            matrices.append(Z)
            rows.append(_equated(inequality, i * n + j, {Z: Entries(n, i, j, -np.ones(len(i)))}, {}))
        of.append(Z)
    return matrices, rows, of


def _rows_of_cones(
    given: Sequence[Variable], lowest: Sequence[Array], constraints: Sequence[SecondOrderConstraint]
) -> tuple[SecondOrderCones, list[Variable], list[Constraint]]:
    """Return cones of the `given` variables and of new ones after them, the new ones, and their rows."""
    if not constraints:
        return NO_CONES, [], []
    ends = np.cumsum([0, *(u.size for u in given)])
    first = dict(zip(given, ends.tolist(), strict=False))
    unbounded = (np.isinf(lower) & np.isinf(u.upper) for u, lower in zip(given, lowest, strict=True))
    free = np.concatenate([np.zeros(0), *unbounded]).astype(bool)
    index, variables, rows, count = [], [], [], int(ends[-1])
    for number, constraint in enumerate(constraints):
        members = _own_variables(constraint.body, first, free)
        free[members[members >= 0]] = False
        left = np.flatnonzero(members < 0)
        if len(left):
            variables.append(Variable(len(left), name=f"cone {number} of {constraint.label}"))
            minus = sp.csr_array((-np.ones(len(left)), np.arange(len(left)), np.arange(len(left) + 1)))
            rows.append(_equated(constraint, left, {}, {variables[-1]: minus}))
            members[left] = count + np.arange(len(left))
            count += len(left)
        index.append(members)
    dimensions = np.concatenate([constraint.dimensions for constraint in constraints])
    return SecondOrderCones(np.concatenate(index), dimensions), variables, rows


def _own_variables(body: Affine, first: dict[Variable, int], free: Mask) -> IntArray:
    """Return the number of the free variable that each element is, -1 for other elements."""
    members = np.full(body.size, -1)
    plain = body.constant == 0
    for rows in body.psd.values():
        plain[rows.nonzero()] = False
    for slope in (*body.parameters.values(), *(product.weights for product in body.products)):
        plain &= np.diff(slope.indptr) == 0
    count = sum(
        (np.diff(matrix.indptr) for matrix in body.variables.values()), np.zeros(body.size, dtype=int)
    )
    for u, matrix in body.variables.items():
        row, number = np.repeat(np.arange(body.size), np.diff(matrix.indptr)), first[u] + matrix.indices
        single = plain[row] & (count[row] == 1) & (matrix.data == 1) & free[number]
        members[row[single]] = number[single]
    _, at = np.unique(members, return_index=True)
    once = np.zeros(body.size, dtype=bool)
    once[at] = True  # of equal elements the first one is the variable
    return np.where(once, members, -1)


def _equated(
    source: MatrixInequality | SecondOrderConstraint, which: IntArray, psd: Any, variables: Any
) -> Constraint:
    """Return the rows that add new operands to some elements of a body, with the sum zero."""
    part = source.body.taken(which, (len(which),), source.label)
    bound, own = part.constant_part().times(-1.0), part.variable_part()
    body = replace(own, psd=own.psd | psd, variables=own.variables | variables)
    rows = Constraint(body, bound, bound, "==")
    rows.source = source
    return rows
