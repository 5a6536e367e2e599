"""Compilation of a declared problem to a :class:`~bregopt.program.Program`.

The structure (row families, their indices, the sparse matrix of the ordinary variables) is compiled once.
The parts that depend on parameters (bounds, weights) are filled in at each solve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.modeling.affine import Affine
from bregopt.modeling.compiled import AffineBounds, Compiled, slices
from bregopt.modeling.cone_rows import rows_of_cones
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.convex.atom import DivergenceTerm, leaves
from bregopt.modeling.convex.inequality import ConvexConstraint
from bregopt.modeling.convex.reduction import Reduction
from bregopt.modeling.largest_eigenvalue import EigenvalueBound
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.second_order import SecondOrderConstraint
from bregopt.modeling.variables import PSD, Parameter, Variable
from bregopt.program import Block, Bounds, LinearMap, Nearness, Program, Term
from bregopt.program.rows import Rows, concatenate_rows

__all__ = ["Compiled", "compile_problem"]

_NO_ROWS = Bounds(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp), np.zeros(0))
_SIDES = (("lower", -np.inf), ("upper", np.inf))


Declared = Constraint | ConvexConstraint | EigenvalueBound | SecondOrderConstraint


def compile_problem(objective: Minimize, declared: Sequence[Declared]) -> Compiled:
    """Return the compiled problem.

    Raises
    ------
    ValueError
        If there is no matrix variable, two divergences of one variable, or two variables of one name.
    """
    constraints = [c for c in declared if isinstance(c, Constraint)]
    caps = [c for c in declared if isinstance(c, EigenvalueBound)]
    cones = [c for c in declared if isinstance(c, SecondOrderConstraint)]
    reduction = Reduction()
    goal = reduction.objective(objective.expression if objective.sign > 0 else -objective.expression)
    shares = [(c, reduction.inequality(c)) for c in declared if isinstance(c, ConvexConstraint)]
    constraints += [row for row in reduction.rows if row.penalty is None]
    squares = [row for row in reduction.rows if row.penalty is not None]
    cones += reduction.cones
    bodies = [*(c.body for c in (*constraints, *squares)), *(c.body for c in cones)]
    expressions = [goal, *bodies]
    mentioned = [*(e.psd.keys() for e in expressions), [c.X for c in caps]]
    own = _leaves(objective, declared) if reduction.rows or reduction.cones else None
    matrices = _ordered([d.X for d in reduction.divergences], *mentioned)
    variables = _ordered(*(e.variables.keys() for e in expressions))
    matrices, variables = _own_first(matrices, own), _own_first(variables, own)
    if not matrices:
        raise ValueError("the problem has no bo.PSD variable; for problems without one use CVXPY itself")
    _check_names([*matrices, *variables])
    blocks = tuple(_block(X, goal, reduction.divergences, caps) for X in matrices)
    in_cones = rows_of_cones(variables, cones)
    constraints += [*in_cones.rows, *squares]
    all_variables = (*variables, *in_cones.variables)
    template = Program(
        blocks=blocks,
        A=_linear_map(matrices, constraints),
        B=_variable_map(all_variables, constraints),
        bounds=_NO_ROWS,
        c=_variable_cost(all_variables, goal),
        u_lo=np.concatenate([np.zeros(0), *(u.lower for u in all_variables)]),
        u_hi=np.concatenate([np.zeros(0), *(u.upper for u in all_variables)]),
        labels=tuple((c.label, c.size) for c in constraints),
        columns=tuple((u.name, u.size) for u in all_variables),
        maximize=objective.sign < 0,
        cones=in_cones.cones,
    )
    parameters = _parameters(goal, reduction, constraints)
    lower, upper = (_bounds_of_side(parameters, constraints, side, missing) for side, missing in _SIDES)
    parameter_slopes = tuple(_parameter_slopes(parameters, lower, upper))
    return Compiled(
        _only(matrices, own),
        _only(variables, own),
        parameters,
        tuple(constraints),
        tuple(cones),
        tuple(shares),
        goal,
        tuple(reduction.divergences),
        tuple(reduction.weights),
        lower,
        upper,
        parameter_slopes,
        template,
    )


def _leaves(objective: Minimize, declared: Sequence[Declared]) -> set[Any]:
    """Return all variables that the user mentions; the others are those of epigraphs."""
    found = set(leaves(objective.expression))
    for c in declared:
        found.update([c.X] if isinstance(c, EigenvalueBound) else leaves(c.body))
    return found


def _own_first(items: tuple[Any, ...], own: set[Any] | None) -> tuple[Any, ...]:
    return items if own is None else tuple(sorted(items, key=lambda item: item not in own))


def _only(items: tuple[Any, ...], own: set[Any] | None) -> tuple[Any, ...]:
    return items if own is None else tuple(item for item in items if item in own)


def _block(
    X: PSD, goal: Affine, divergences: Sequence[DivergenceTerm], caps: Sequence[EigenvalueBound]
) -> Block:
    terms = [d for d in divergences if d.X is X]
    if len(terms) > 1:
        raise ValueError(f"{X.name} has {len(terms)} divergences in the objective; expected at most one")
    nearness = Nearness(terms[0].divergence, terms[0].X0, parameters=terms[0].parameters) if terms else None
    cap = min((c.cap for c in caps if c.X is X), default=None)
    return Block(X.name, X.n, goal.psd.get(X), nearness, cap=cap)


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


def _columns(e: Affine, u: Variable) -> Any:
    return e.variables.get(u, sp.csr_array((e.size, u.size)))


def _variable_cost(variables: tuple[Variable, ...], goal: Affine) -> Array:
    parts = [_columns(goal, u).toarray().ravel() for u in variables]
    return np.concatenate([np.zeros(0), *parts])


def _parameters(
    goal: Affine, reduction: Reduction, constraints: Sequence[Constraint]
) -> tuple[Parameter, ...]:
    found: list[Iterable[Parameter]] = [goal.parameters.keys(), reduction.weights]
    found.append([d.parameter for d in reduction.divergences if d.parameter is not None])
    for c in constraints:
        found.extend(end.parameters.keys() for end in (c.lower, c.upper) if end is not None)
        if c.penalty is not None and isinstance(c.penalty.gamma, Parameter):
            found.append([c.penalty.gamma])
    return _ordered(*found)


def _bounds_of_side(
    parameters: tuple[Parameter, ...], constraints: Sequence[Constraint], side: str, missing: float
) -> AffineBounds:
    """Return the bounds of all rows on one side, "lower" or "upper"; `missing` where there is none."""
    columns = dict(zip(parameters, slices(parameters), strict=True))
    m = sum(c.size for c in constraints)
    constant = np.full(m, missing)
    terms: list[tuple[IntArray, IntArray, Array]] = []
    for c, rows in zip(constraints, slices(constraints), strict=True):
        end = getattr(c, side)
        if end is not None:
            constant[rows] = end.constant
            for p, slope in end.parameters.items():
                coo = slope.tocoo()
                terms.append((rows.start + coo.coords[0], columns[p].start + coo.coords[1], coo.data))
    if not terms:
        return AffineBounds(constant, None)
    row, at, value = (np.concatenate(part) for part in zip(*terms, strict=True))
    return AffineBounds(constant, sp.csr_array((value, (row, at)), (m, sum(p.size for p in parameters))))


def _parameter_slopes(
    parameters: tuple[Parameter, ...], lower: AffineBounds, upper: AffineBounds
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


def _ordered(*groups: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _check_names(named: list[Any]) -> None:
    names = sorted(item.name for item in named)
    for name, following in pairwise(names):
        if name == following:
            raise ValueError(f"two variables are called {name!r}; expected different names")
