"""Translate a CVXPY problem, as it was written, to a bregopt problem, and the answer back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from bregopt.arrays import Array
from bregopt.cvxpy.problems.affine_reader import Elements, constant_value, rows_of
from bregopt.cvxpy.problems.convex_atoms import Spectral
from bregopt.cvxpy.problems.objective import Goal, objective_of, read_objective
from bregopt.cvxpy.problems.soft_rows import Bend, fold_bends
from bregopt.cvxpy.problems.variables import (
    Claim,
    Leaf,
    Matrix,
    box,
    check_variable,
    claim_of,
    expression_of,
    is_matrix,
    is_square,
    is_symmetric_array,
    is_symmetric_map,
    matrix,
    psd_part,
    square,
    vector,
)
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression
from bregopt.modeling.objectives import Maximize, Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD, Parameter
from bregopt.program.anchor import divergence_of
from bregopt.program.rows import Entries
from bregopt.routes.solution import Solution

__all__ = ["Lowered", "lower"]

_SENSES = {"Equality": "==", "Zero": "==", "Inequality": "<=", "NonPos": "<=", "NonNeg": ">="}
_CONSTANT_TOL = 1e-9  # largest violation of a constraint without variables that counts as holding
_IMPLIED_TOL = 1e-12  # relative to the largest entry: how far below zero an eigenvalue of a psd matrix may be


@dataclass(frozen=True, eq=False)
class _Cone:
    """A psd constraint that `psd` implies; its dual is that of `psd` over `scale`, or zero."""

    psd: PSD | None
    scale: float


@dataclass(frozen=True, eq=False)
class Lowered:
    """Our problem, and the maps from the parts of CVXPY's problem to its parts.

    Parameters
    ----------
    problem : Problem
    leaves : dict from cvxpy.Variable to Leaf
    rows : dict from constraint of CVXPY to constraint of ours
    symmetric : set
        Those of `rows` whose coefficients form a symmetric matrix: mirrored entries are one row.
    cones : dict from psd constraint of CVXPY to the psd matrix that implies it
    trivial : list
        Constraints without a variable that hold.
    bends : list of Bend
        Variables that soft rows have replaced.
    parameters : dict from cvxpy.Parameter to Parameter
        Parameters that are only added to rows: they may change.
    written : dict from cvxpy.Parameter to array
        The values of the others, which are substituted.
    """

    problem: Problem
    leaves: dict[Any, Leaf]
    rows: dict[Any, Constraint]
    symmetric: set[Any]
    cones: dict[Any, _Cone]
    trivial: list[Any]
    bends: list[Bend]
    parameters: dict[Any, Parameter]
    written: dict[Any, Array]

    def is_current(self) -> bool:
        """Whether the parameters whose values are substituted still have these values."""
        return all(np.array_equal(value, constant_value(p)) for p, value in self.written.items())

    def fill_in(self) -> None:
        """Give our parameters the current values of CVXPY's.

        Raises
        ------
        UnsupportedProblemError
            If a value is complex, NaN or infinite.
        ValueError
            If a parameter has no value.
        """
        for theirs, ours in self.parameters.items():
            value = constant_value(theirs)
            if not np.isfinite(value).all():
                raise UnsupportedProblemError(f"parameter {theirs.name()} has NaN or Inf among its numbers")
            ours.value = value

    def primal(self) -> dict[int, Array]:
        """Return the values of CVXPY's variables by their ids."""
        for bend in self.bends:
            bend.settle()
        return {variable.id: leaf.value() for variable, leaf in self.leaves.items()}

    def duals(self, solution: Solution) -> dict[int, Array]:
        """Return the duals of CVXPY's constraints by their ids, with CVXPY's signs."""
        if solution.duals is None:
            return {}
        slacks = self._slacks(solution) if self.cones else {}
        duals = {c.id: np.zeros(c.shape) for c in self.trivial}
        for c, ours in self.rows.items():
            duals[c.id] = np.reshape(np.asarray(ours.dual_value), c.shape, order="F")
            if c in self.symmetric and _is_symmetric_bound(c, ours):
                duals[c.id] = (duals[c.id] + duals[c.id].T) / 2
        for c, cone in self.cones.items():
            duals[c.id] = np.zeros(c.shape) if cone.psd is None else slacks[cone.psd] / cone.scale
        return duals

    def _slacks(self, solution: Solution) -> dict[PSD, Array]:
        """Return ``C + mu grad D(X) - A*(y)`` of each matrix: the multiplier of ``X psd``.

        It is zero for essentially smooth divergences, whose optimum is in the interior of the cone. For a
        Farkas vector ``y`` the objective is left out.
        """
        assert solution._raw is not None
        program, y = self.problem.program(), solution._raw.duals
        slacks = {}
        for b, (X, block) in enumerate(zip(self.problem.matrices, program.blocks, strict=True)):
            if solution._raw.X is None:
                slack = -program.A.adjoint(y, b)
            elif solution._raw._S is not None and solution._raw._S[b] is not None:
                slack = np.asarray(solution._raw._S[b])
            elif block.nearness is None:
                slack = block.C - program.A.adjoint(y, b)
            elif block.nearness.kind.essentially_smooth:
                slack = np.zeros((block.n, block.n))
            else:
                gradient = divergence_of(block.nearness).gradient(np.asarray(X.value))
                slack = block.C + block.nearness.mu * gradient - program.A.adjoint(y, b)
            slacks[X] = slack
        return slacks


def lower(problem: Any) -> Lowered:
    """Return our problem for a CVXPY problem, at the current values of its parameters.

    Parameters that are only added to rows become parameters of ours; the values of others are substituted.

    Parameters
    ----------
    problem : cvxpy.Problem

    Raises
    ------
    UnsupportedProblemError
        If a part of it is not supported; the message names it.
    ValueError
        If a parameter has no value.
    """
    _check_kinds(problem)
    goal = read_objective(problem.objective)
    claims: dict[Any, Claim | None] = {}
    for number, c in enumerate(problem.constraints):
        if _is_cone(c):
            with _named(number):
                claims[c] = claim_of(c.args[0])
    leaves = _leaves(problem, goal, [claim for claim in claims.values() if claim is not None])
    parameters, written = _parameters(problem), _written(problem)
    rows, symmetric, trivial = _rows(problem, leaves, parameters, written)
    cones, linked = _cones(claims, leaves)
    spectral, more = _arguments(goal.spectral, leaves)
    objective, paid = objective_of(goal, leaves, spectral)
    others = [*linked, *more, *_boxes(leaves)]
    rows, paid, objective, bends = fold_bends(rows, others, paid, objective)
    sense = Maximize(-objective) if isinstance(problem.objective, cp.Maximize) else Minimize(objective)
    constraints = [*rows.values(), *others, *paid]
    try:
        ours = Problem(sense, constraints)
    except ValueError as error:
        raise UnsupportedProblemError(str(error)) from None
    used = set(ours.parameters)
    lowered = Lowered(
        ours,
        leaves,
        rows,
        symmetric,
        cones,
        trivial,
        bends,
        {theirs: parameter for theirs, parameter in parameters.items() if parameter in used},
        {theirs: np.array(constant_value(theirs)) for theirs in written},
    )
    lowered.fill_in()
    return lowered


def _check_kinds(problem: Any) -> None:
    """Refuse unsupported kinds of variables and constraints, before anything is read."""
    for variable in problem.variables():
        check_variable(variable)
    for number, c in enumerate(problem.constraints):
        if not _is_cone(c) and type(c).__name__ not in _SENSES:
            order = f" over an array of {len(c.shape)} dimensions" if type(c).__name__ == "PSD" else ""
            raise UnsupportedProblemError(f"constraint {number} is of the kind {type(c).__name__}{order}")


def _is_cone(constraint: Any) -> bool:
    """Whether a constraint requires one matrix to be psd."""
    return type(constraint).__name__ == "PSD" and len(constraint.shape) == 2


def _leaves(problem: Any, goal: Goal, claims: list[Claim]) -> dict[Any, Leaf]:
    """Return our form of each variable: a psd matrix if an attribute, constraint or the objective says so."""
    arguments = [claim_of(term.matrix) for term in goal.spectral]
    held = {c.variable for c in arguments if c is not None and _plain(c)}
    names = _names(problem.variables())
    leaves: dict[Any, Leaf] = {}
    for variable, name in names.items():
        own = [c for c in claims if c.variable is variable]
        if not is_matrix(variable):
            split = bool(own) and is_square(variable)
            leaves[variable] = (
                square(variable, name, own[0].sign, own[0].shift) if split else vector(variable, name)
            )
        elif variable.attributes["NSD"]:
            leaves[variable] = matrix(variable, name, sign=-1.0)
        elif variable in held:
            leaves[variable] = matrix(variable, name)
        elif variable.attributes["PSD"]:
            above = [c for c in own if c.sign > 0 and _is_psd(c.shift)]
            leaves[variable] = matrix(variable, name, shift=above[0].shift if above else None)
        elif own:
            leaves[variable] = matrix(variable, name, own[0].sign, own[0].shift)
        else:
            leaves[variable] = vector(variable, name)
    return leaves


def _names(named: list[Any]) -> dict[Any, str]:
    """Return a name for each of CVXPY's variables or parameters; those of the same name get their id too."""
    count = Counter(each.name() for each in named)
    return {each: each.name() if count[each.name()] == 1 else f"{each.name()}#{each.id}" for each in named}


def _parameters(problem: Any) -> dict[Any, Parameter]:
    """Return our parameter for each of CVXPY's."""
    named = _names(problem.parameters()).items()
    return {theirs: Parameter(theirs.shape, name=name) for theirs, name in named}


def _written(problem: Any) -> set[Any]:
    """Return the parameters that occur outside the rows."""
    elsewhere = [problem.objective, *problem.variables(), *filter(_is_cone, problem.constraints)]
    return {parameter for part in elsewhere for parameter in part.parameters()}


def _rows(
    problem: Any, leaves: dict[Any, Leaf], parameters: dict[Any, Parameter], written: set[Any]
) -> tuple[dict[Any, Constraint], set[Any], list[Any]]:
    """Return the constraints that are rows, the symmetric ones among them, and those without variables.

    Parameters whose values are substituted in rows are added to `written`.
    """
    rows, symmetric, trivial = {}, set(), []
    for number, c in enumerate(problem.constraints):
        kind = type(c).__name__
        if _is_cone(c):
            continue
        with _named(number):
            found = rows_of(c.expr, parametric=True)
            if not found.variables:  # the values of parameters decide whether it holds
                found = rows_of(c.expr)
        written |= found.frozen
        body = expression_of(found, leaves, f"CVXPY's constraint {number}", parameters)
        if not body.is_constant:
            rows[c] = _compared(body, _SENSES[kind])
            if is_symmetric_map(found, c.shape):
                symmetric.add(c)
        elif _holds(body.constant, _SENSES[kind]):
            trivial.append(c)
        else:
            raise UnsupportedProblemError(f"constraint {number} has no variable and does not hold")
    return rows, symmetric, trivial


def _is_symmetric_bound(c: Any, row: Constraint) -> bool:
    """Whether the bounds of mirrored entries are equal; for feasible equations they are."""
    end = row.lower if row.upper is None else row.upper
    assert end is not None
    return row.sense == "==" or is_symmetric_array(np.ravel(np.asarray(end.value)), c.shape)


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Add the number of the constraint to an error."""
    try:
        yield
    except UnsupportedProblemError as error:
        raise UnsupportedProblemError(f"constraint {number}: {error}") from None


def _compared(body: Expression, sense: str) -> Constraint:
    """Return the constraint ``body sense 0`` for an expression that has variables."""
    bound = -body.constant_part()
    lower, upper = (bound if sense in sides else None for sides in (("==", ">="), ("==", "<=")))
    return Constraint(body.variable_part(), lower, upper, sense)


def _holds(value: Array, sense: str) -> bool:
    violation = np.abs(value) if sense == "==" else value if sense == "<=" else -value
    return bool((violation <= _CONSTANT_TOL).all())


def _cones(
    claims: dict[Any, Claim | None], leaves: dict[Any, Leaf]
) -> tuple[dict[Any, _Cone], list[Constraint]]:
    """Return the psd matrix that implies each psd constraint, and rows that equate it with CVXPY's matrix.

    Of several equivalent constraints the first gets the multiplier.
    """
    cones: dict[Any, _Cone] = {}
    linked: list[Constraint] = []
    given: set[PSD] = set()
    for number, (c, claim) in enumerate(claims.items()):
        leaf = None if claim is None else psd_part(leaves[claim.variable])
        if claim is not None and leaf is not None and _implied(claim, leaf):
            same = np.array_equal(claim.shift, leaf.shift) and leaf.psd not in given
            cones[c] = _Cone(leaf.psd if same else None, claim.scale)
            given.add(leaf.psd)
        else:
            block, row = _linked(c.args[0], leaves, f"S{number}")
            cones[c] = _Cone(block, 1.0)
            linked.append(row)
    return cones, linked


def _implied(claim: Claim, leaf: Matrix) -> bool:
    """Whether ``M`` psd implies the claim that ``sign (sign' (M + shift')) - shift`` is psd."""
    return claim.sign == leaf.sign and _is_psd(leaf.shift - claim.shift)


def _arguments(
    spectral: list[Spectral], leaves: dict[Any, Leaf]
) -> tuple[list[tuple[Spectral, PSD, float]], list[Constraint]]:
    """Return each spectral term, the psd matrix and factor of its argument, and rows that link them."""
    found, linked = [], []
    for number, term in enumerate(spectral):
        claim = claim_of(term.matrix)
        leaf = None if claim is None else leaves[claim.variable]
        if claim is not None and _plain(claim) and isinstance(leaf, Matrix) and leaf.sign > 0:
            found.append((term, leaf.psd, claim.scale))
        else:
            block, row = _linked(term.matrix, leaves, f"F{number}")
            found.append((term, block, 1.0))
            linked.append(row)
    return found, linked


def _linked(F: Any, leaves: dict[Any, Leaf], name: str) -> tuple[PSD, Constraint]:
    """Return a new psd matrix, and the rows that equate it with the symmetric part of an affine matrix."""
    n = F.shape[0]
    i, j = np.triu_indices(n)
    row = np.tile(np.arange(len(i)), 2)
    at = np.concatenate([i + n * j, j + n * i])
    rows = rows_of(F, Elements(row, at, np.full(len(row), 0.5)), len(i))
    body = expression_of(rows, leaves, f"entries of a psd matrix of order {n}")
    block = PSD(n, name=name)
    entries = Expression(
        (len(i),), np.zeros(len(i)), {block: Entries(n, i, j, -np.ones(len(i)))}, label=f"entries of {name}"
    )
    return block, _compared(body.plus(entries), "==")


def _boxes(leaves: dict[Any, Leaf]) -> list[Constraint]:
    """Return the bounds that attributes set on entries of matrices, and on only some elements of vectors."""
    constraints = []
    for variable, leaf in leaves.items():
        for end, sense in zip(box(variable), (">=", "<="), strict=True):
            at = np.flatnonzero(np.isfinite(end))
            if len(at) and (psd_part(leaf) is not None or len(at) < variable.size):
                elements = Elements(np.arange(len(at)), at, np.ones(len(at)))
                rows = rows_of(variable - end.reshape(variable.shape, order="F"), elements, len(at))
                body = expression_of(rows, {variable: leaf}, f"bounds of {variable.name()}")
                constraints.append(_compared(body, sense))
    return constraints


def _plain(claim: Claim) -> bool:
    return claim.sign > 0 and not claim.shift.any()


def _is_psd(S: Array) -> bool:
    return bool(np.linalg.eigvalsh(S)[0] >= -_IMPLIED_TOL * np.abs(S).max())
