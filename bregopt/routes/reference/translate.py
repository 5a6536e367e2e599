"""A :class:`~bregopt.program.Program` as a ``cvxpy.Problem`` with vectorized constraints, and the way back.

A soft row becomes a hard one whose relaxed bound ``b`` is a variable (Kulis et al. 2009, eq. 22). If the
bound has parameters, the relaxation is the variable. So every row has a constraint, and every constraint a
multiplier. CVXPY is imported on first use.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.divergences import SCALARS
from bregopt.errors import import_whole
from bregopt.program import Block, Bounds, LinearMap, ParameterSlope, Penalty, Program, SecondOrderCones
from bregopt.program.program import divergence_of
from bregopt.program.rows import placed_coordinates
from bregopt.records import dataclass

_COMPARE = {"==": operator.eq, ">=": operator.ge, "<=": operator.le}
# CVXPY's Lagrangian of a minimization has v'(a - b) for == and <= and v'(b - a) for >=; ours has y'(b - a).
_DUAL_SIGN = {"==": -1.0, ">=": 1.0, "<=": -1.0}


@dataclass(frozen=True, eq=False)
class _Side:
    """A constraint, its rows, and the sign that turns its dual value into their multipliers."""

    constraint: Any
    at: IntArray
    sign: float


@dataclass(frozen=True, eq=False)
class Translation:
    """A CVXPY problem, and the parts of our program in it.

    Parameters
    ----------
    problem : cvxpy.Problem
        A minimization, or the maximization of the negative objective.
    X : tuple of cvxpy.Variable
        The matrix of each block.
    u : tuple of cvxpy.Variable
        The ordinary variables.
    sides : tuple
        The constraints with their rows.
    m : int
        The number of rows.
    """

    problem: Any
    X: tuple[Any, ...]
    u: tuple[Any, ...]
    sides: tuple[_Side, ...]
    m: int

    def matrices(self) -> list[Array]:
        """Return the values of the matrices, symmetric; zero if the backend returned none."""
        values = [np.zeros(X.shape) if X.value is None else np.asarray(X.value) for X in self.X]
        return [(value + value.T) / 2 for value in values]

    def variables(self) -> Array:
        """Return the values of the ordinary variables, shape ``(k,)``; zero if the backend returned none."""
        values = [np.zeros(u.size) if u.value is None else u.value for u in self.u]
        return np.concatenate([np.zeros(0), *values])

    def multipliers(self) -> Array:
        """Return the multipliers of the rows of a minimization, positive at lower bounds, shape ``(m,)``."""
        y = np.zeros(self.m)
        for side in self.sides:
            if side.constraint.dual_value is not None:
                y[side.at] += side.sign * side.constraint.dual_value
        return y


def as_declared(program: Program) -> Translation:
    """Return a program as a CVXPY problem with the declared variables, constraints and parameters."""
    ends = np.cumsum([0, *(size for _, size in program.labels)])
    groups = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
    return _translated(program, groups, program.columns or _one_variable(program), program.parameter_slopes)


def joined(program: Program) -> Translation:
    """Return a program as a CVXPY problem with few constraints, the form that compiles fastest."""
    return _translated(program, [np.arange(program.m)], _one_variable(program), ())


def _one_variable(program: Program) -> tuple[tuple[str, int], ...]:
    return (("u", program.k),) if program.k else ()


def _translated(
    program: Program,
    groups: Sequence[IntArray],
    columns: Sequence[tuple[str, int]],
    slopes: Sequence[ParameterSlope],
) -> Translation:
    """Return a program with dense blocks as a CVXPY problem.

    Parameters
    ----------
    program : Program
    groups : sequence of index arrays
        The rows that share constraints: at most one ``==``, one ``>=`` and one ``<=`` for each penalty.
    columns : sequence of (str, int)
        Names and sizes of the ordinary variables.
    slopes : sequence of ParameterSlope
        The parts of the bounds that depend on parameters.
    """
    cp = import_whole("cvxpy")

    X = tuple(cp.Variable((block.n, block.n), PSD=True, name=block.name) for block in program.blocks)
    u = _variables(program, columns)
    maps = _coefficients(program.A)
    parameters = [(own, cp.Parameter(len(own.value), name=own.name, value=own.value)) for own in slopes]
    terms, sides = [cp.Constant(program.offset)], []
    for at in groups:
        for sense, rows, bound in _sides(program.bounds, at, slopes):
            end = _with_parameters(bound, rows, sense, parameters)
            target, costs = _relaxed(program.bounds, rows, bound, end)
            activity = _activity([M[rows] for M in maps], X, program.B[rows], u)
            sides.append(_Side(_COMPARE[sense](activity, target), rows, _DUAL_SIGN[sense]))
            terms += costs
    terms += [_objective(block, X_b) for block, X_b in zip(program.blocks, X, strict=True)]
    terms += [program.c[place] @ part for place, part in _placed(u) if program.c[place].any()]
    objective = functools.reduce(operator.add, terms)
    goal = cp.Maximize(-objective) if program.maximize else cp.Minimize(objective)
    whole = [*(side.constraint for side in sides), *_caps(program, X), *_second_order(program.cones, u)]
    problem = cp.Problem(goal, whole)
    return Translation(problem, X, u, tuple(sides), program.m)


def _variables(program: Program, columns: Sequence[tuple[str, int]]) -> tuple[Any, ...]:
    """Return the ordinary variables, each in its box."""
    cp = import_whole("cvxpy")

    ends = np.cumsum([0, *(size for _, size in columns)])
    variables = []
    for (name, size), start in zip(columns, ends, strict=False):
        box = [end[start : start + size] for end in (program.u_lo, program.u_hi)]
        options = {"bounds": box} if any(np.isfinite(end).any() for end in box) else {}
        variables.append(cp.Variable(size, name=name, **options))
    return tuple(variables)


def _placed(u: Sequence[Any]) -> Iterator[tuple[slice, Any]]:
    """Yield each variable with its slice of all elements."""
    start = 0
    for part in u:
        yield slice(start, start + part.size), part
        start += part.size


def _coefficients(A: LinearMap) -> list[Any]:
    """Return, for each block, the matrix of shape ``(m, n^2)`` that acts on ``vec(X)`` by columns."""
    maps = []
    for block, n in enumerate(A.orders):
        t = placed_coordinates((term.at, term.rows) for term in A.terms_of(block))
        maps.append(sp.csr_matrix((t.value, (t.row, t.i + n * t.j)), shape=(A.m, n * n)))
    return maps


def _activity(maps: Sequence[Any], X: Sequence[Any], B: Any, u: Sequence[Any]) -> Any:
    """Return ``A(X) + B u`` of some rows, without variables that do not occur in them."""
    cp = import_whole("cvxpy")

    acting = [(cp.Constant(M), cp.vec(X_b, order="F")) for M, X_b in zip(maps, X, strict=True)]
    slopes = [(sp.csr_matrix(B[:, place]), part) for place, part in _placed(u)]
    acting += [(cp.Constant(slope), part) for slope, part in slopes if slope.nnz]
    parts = [M @ v for M, v in acting]
    return functools.reduce(operator.add, parts)


def _sides(
    bounds: Bounds, at: IntArray, slopes: Sequence[ParameterSlope]
) -> Iterator[tuple[str, IntArray, Array]]:
    """Yield a comparison, its rows, which have one penalty, and their bounds."""
    lo, hi = bounds.lo[at], bounds.hi[at]
    equal = lo == hi
    for own in slopes:  # two bounds that are equal now may differ later
        equal &= np.asarray(abs(own.lower - own.upper)[at].sum(axis=1)).ravel() == 0
    of_sense = {"==": equal, ">=": np.isfinite(lo) & ~equal, "<=": np.isfinite(hi) & ~equal}
    for sense, chosen in of_sense.items():
        end = bounds.hi if sense == "<=" else bounds.lo
        for kind in Penalty:
            rows = at[chosen & (bounds.kind[at] == kind)]
            if len(rows):
                yield sense, rows, end[rows]


def _with_parameters(
    bound: Array, rows: IntArray, sense: str, parameters: Sequence[tuple[ParameterSlope, Any]]
) -> Any:
    """Return bounds of rows as expressions in the parameters."""
    end: Any = bound
    for own, p in parameters:
        slope = sp.csr_matrix((own.upper if sense == "<=" else own.lower)[rows])
        if slope.nnz:
            end = (end - slope @ own.value) + slope @ p
    return end


def _relaxed(bounds: Bounds, rows: IntArray, bound: Array, end: Any) -> tuple[Any, list[Any]]:
    """Return the right-hand side of rows of one penalty, and the cost of relaxing it.

    Parameters
    ----------
    bounds : Bounds
    rows : index array
    bound : array
        Of these rows.
    end : array or cvxpy.Expression
        The same with parameters; divergences of ratios do not support these.
    """
    cp = import_whole("cvxpy")

    kind, gamma = Penalty(int(bounds.kind[rows[0]])), bounds.gamma[rows]
    if kind is Penalty.HARD:
        return end, []
    if kind is Penalty.LOG:
        slack = cp.Variable(len(rows), name="slack")
        return end + slack, [-gamma @ cp.log(slack)]
    relaxed = cp.Variable(len(rows), name="relaxed_bound")
    hinge = kind is Penalty.HINGE
    if end is bound or (not hinge and SCALARS[kind].of_ratios):
        costs = cp.abs(relaxed - bound) if hinge else SCALARS[kind].cvxpy(cp, relaxed, bound)
        return relaxed, [gamma @ costs]
    relaxation = cp.Variable(
        len(rows), name="relaxation"
    )  # keeps parameters in the row and out of the penalty
    costs = cp.abs(relaxation) if hinge else SCALARS[kind].cvxpy(cp, relaxation, 0.0)
    return end + relaxation, [gamma @ costs]


def _caps(program: Program, X: Sequence[Any]) -> list[Any]:
    """Return the upper bounds on eigenvalues."""
    blocks = zip(program.blocks, X, strict=True)
    return [block.cap * np.eye(block.n) >> X_b for block, X_b in blocks if block.cap is not None]


def _second_order(cones: SecondOrderCones, u: Sequence[Any]) -> list[Any]:
    """Return a constraint for the second-order cones of each dimension."""
    cp = import_whole("cvxpy")

    if not cones.count:
        return []
    constraints, x = [], cp.hstack(u)
    for dimension in np.unique(cones.dimensions):
        first = cones.starts[cones.dimensions == dimension]
        at = cones.index[first[:, None] + np.arange(dimension)]
        if dimension == 1:
            constraints.append(x[at[:, 0]] >= 0)
        else:
            tails = cp.reshape(x[at[:, 1:].ravel()], (len(at), dimension - 1), order="C")
            constraints.append(cp.SOC(x[at[:, 0]], tails, axis=1))
    return constraints


def _objective(block: Block, X: Any) -> Any:
    cp = import_whole("cvxpy")

    linear, nearness = cp.vdot(block.C, X), block.nearness
    if nearness is None:
        return linear
    return linear + nearness.mu * divergence_of(nearness).cvxpy_expression(cp, X)
