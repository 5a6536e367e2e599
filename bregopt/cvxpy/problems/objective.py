"""The objective of a CVXPY problem as divergences, linear terms and soft rows."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.atom import Atom

from bregopt.arrays import Array, IntArray
from bregopt.cvxpy.problems.affine import Coefficients, ConvexTerm, Elements, is_affine, joined, rows_of
from bregopt.cvxpy.problems.convex_atoms import (
    AtomTerms,
    Curved,
    ElementPenalty,
    Entropy,
    Spectral,
    epigraph,
    read_convex_atom,
)
from bregopt.cvxpy.problems.variables import MatrixForm, VariableForm, expression_of
from bregopt.divergences import DIVERGENCES, SCALARS, Penalty
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.bounds import soft
from bregopt.modeling.constraints import Constraint, SoftPenalty
from bregopt.modeling.convex.elementwise import log
from bregopt.modeling.convex.entropies import kl_div
from bregopt.modeling.convex.expression import CurvedExpression, as_curved
from bregopt.modeling.expressions import Expression
from bregopt.modeling.objectives import (
    as_objective,
    bregman_div,
    frobenius_div,
)
from bregopt.modeling.variables import PSD
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass, replace

__all__ = ["Goal", "objective_of", "read_objective"]

_ZERO = 1e-14  # relative to the linear term, times the order: smaller remainders are round-off


@dataclass(frozen=True, eq=False)
class Goal:
    """The terms to be minimized: affine rows, terms of our atoms, spectral terms, penalties, a constant.

    The `constraints`, of CVXPY, belong to the epigraphs of other convex atoms.
    """

    affine: list[Coefficients]
    entropies: list[Entropy]
    curved: list[Curved]
    spectral: list[Spectral]
    penalties: list[ElementPenalty]
    constraints: list[Any]
    constant: float

    @property
    def variables(self) -> list[Any]:
        """The variables of penalties, of which some may be in no constraint."""
        return [variable for penalty in self.penalties for variable in penalty.expression.variables()]


def read_objective(objective: Any) -> Goal:
    """Return the terms of a CVXPY objective, negated for a maximization.

    Raises
    ------
    UnsupportedProblemError
        If it contains an unknown atom.
    """
    sign = -1.0 if isinstance(objective, cp.Maximize) else 1.0
    whole = Elements(np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp), np.array([sign]))
    found = rows_of(objective.args[0], whole, 1, convex=True)
    goal = Goal([found], [], [], [], [], [], 0.0)
    for term in found.convex_terms or []:
        read = _read(term)
        goal.constraints.extend(read.constraints)
        goal.entropies.extend(read.entropies)
        goal.curved.extend(read.curved)
        goal.spectral.extend(read.spectral)
        goal.penalties.extend(read.penalties)
        goal.affine.extend(rows_of(expression, elements, 1) for expression, elements in read.affine)
        goal = replace(goal, constant=goal.constant + read.constant)
    return goal


def _read(term: ConvexTerm) -> AtomTerms:
    """Return the terms of an atom that is not affine, by its epigraph if it is none of those that we know."""
    known = isinstance(term.atom, Atom) and all(map(is_affine, term.atom.args))
    try:
        if known:
            return read_convex_atom(term)
        expression, constraints = epigraph(term.atom)
    except UnsupportedProblemError as unknown:
        if not known:
            raise
        try:
            expression, constraints = epigraph(term.atom)
        except UnsupportedProblemError:
            raise unknown from None
    return AtomTerms(affine=[(expression, term.elements)], constraints=constraints)


def objective_of(
    goal: Goal, forms: dict[Any, VariableForm], spectral: list[tuple[Spectral, PSD, float]]
) -> tuple[CurvedExpression, list[Constraint]]:
    """Return our objective, to be minimized, and soft rows for the other penalties.

    Parameters
    ----------
    goal : Goal
    forms : dict from cvxpy.Variable to VariableForm
    spectral : list of tuple
        Each spectral term, our matrix, and the factor of the matrix in the term's argument.
    """
    affine = Expression((), np.array([goal.constant]))
    for rows in goal.affine:
        affine = affine.plus(replace(expression_of(rows, forms, "objective"), shape=()))
    squares, rest = _squares(goal.penalties, forms)
    terms: list[CurvedExpression] = []
    for term, X, factor in spectral:
        linear, affine = _linear(X, affine)
        terms.append(_spectral(term, X, factor, linear))
    for X, square in squares.items():
        terms.append(_distance(X, square))
    for entropy in goal.entropies:
        matrices = [_matrix(F, forms) for F in entropy.matrices]
        terms.append(entropy.weight * entropy.atom(*matrices))
    for curved in goal.curved:
        parts = [_elements(e, curved.at, forms) for e in curved.expressions]
        terms.append(_weighted(curved.atom(*parts), curved.weight))
    objective = as_objective(affine)
    for more in terms:
        objective = objective + more
    own = {DIVERGENCES[name].penalty for name in objective.divergences}
    penalties = []
    for penalty in rest:
        if penalty.kind is Penalty.LOG:
            body = _body(penalty, forms)
            if own == {Penalty.LOGDET} and not body.constant.any():
                objective = objective + _beside_soft_rows(penalty, body)
                penalties.append(replace(penalty, kind=Penalty.LOGDET, bound=penalty.bound + 1))
            else:
                objective = objective + _weighted(log(body), -penalty.weight)
        elif penalty.kind is Penalty.VON_NEUMANN and own != {penalty.kind}:
            objective = objective + _weighted(kl_div(_body(penalty, forms), penalty.bound), penalty.weight)
        else:
            penalties.append(penalty)
    return objective, [_soft(penalty, forms, objective) for penalty in penalties]


def _matrix(F: Any, forms: dict[Any, VariableForm]) -> Any:
    """Return an affine symmetric matrix of CVXPY's as ours, a constant one as numbers."""
    if F.is_constant():
        return np.asarray(F.value, dtype=float)
    n = F.shape[0]
    order = np.arange(n * n).reshape(n, n, order="F").ravel()  # ours are read by rows
    rows = rows_of(F, Elements(np.arange(n * n), order, np.ones(n * n)), n * n)
    body = expression_of(rows, forms, "entropy")
    return replace(body, shape=(n, n))


# --- Spectral terms -----------------------------------------------------------------------------------


def _linear(X: PSD, affine: Expression) -> tuple[Array, Expression]:
    """Return the coefficient matrix of ``X`` in an affine expression, and the expression without it."""
    if X not in affine.psd:
        return np.zeros((X.n, X.n)), affine
    W = affine.psd[X].adjoint(np.ones(1))
    return W, replace(affine, psd={Y: rows for Y, rows in affine.psd.items() if Y is not X})


def _spectral(term: Spectral, X: PSD, factor: float, W: Array) -> CurvedExpression:
    """Return ``weight s(factor X) + <W, X>`` as a divergence from a start that includes ``W``."""
    found = term.divergence.completed(term.weight, W, factor)
    nearness = found.mu * bregman_div(X, found.X0, term.divergence)
    return nearness + _remainder(found.left, X, W) + found.constant


def _remainder(left: Array, X: PSD, W: Array) -> CurvedExpression:
    """Return the linear term that the start does not include."""
    if np.abs(left).max() <= _ZERO * X.n * np.abs(W).max(initial=0.0):
        return as_objective(0.0)
    return as_objective(_inner(left, X))


def _inner(C: Array, X: PSD) -> Expression:
    i, j = np.nonzero(C)
    terms = Coordinates(np.zeros(len(i), dtype=np.intp), i, j, C[i, j])
    return Expression((), np.zeros(1), {X: SparseRows.of(1, X.n, terms)}, label=f"inner(C, {X.name})")


# --- Squares ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Square:
    """``sum_ij quadratic_ij X_ij^2 - 2 linear_ij X_ij`` and a constant, for pairs ``i <= j``."""

    quadratic: Array
    linear: Array
    constant: float = 0.0


def _squares(
    penalties: list[ElementPenalty], forms: dict[Any, VariableForm]
) -> tuple[dict[PSD, _Square], list[ElementPenalty]]:
    """Return the squares of single entries of matrices, added up by entry, and the other penalties."""
    squares: dict[PSD, _Square] = {}
    rest = []
    for penalty in penalties:
        X = _add_entries(penalty, forms, squares) if penalty.kind is Penalty.SQUARE else None
        if X is None:
            rest.append(penalty)
    return squares, rest


def _add_entries(
    penalty: ElementPenalty, forms: dict[Any, VariableForm], squares: dict[PSD, _Square]
) -> PSD | None:
    """Add squares of entries of one matrix and return the matrix; None if an element is no such entry."""
    m = len(penalty.at)
    rows = rows_of(penalty.expression, Elements(np.arange(m), penalty.at, np.ones(m)), m)
    if len(rows.variables) != 1 or rows.quadratics:
        return None
    (variable,) = rows.variables
    form = forms[variable]
    row, at, factor = joined(rows.elements[variable])
    if not isinstance(form, MatrixForm) or len(np.unique(row)) != len(row):
        return None
    n = form.psd.n
    i, j = np.minimum(at % n, at // n), np.maximum(at % n, at // n)
    slope, weight = factor * form.sign, penalty.weight[row]
    target = penalty.bound[row] - rows.constant[row] - slope * form.shift[i, j]
    square = squares.setdefault(form.psd, _Square(np.zeros((n, n)), np.zeros((n, n))))
    np.add.at(square.quadratic, (i, j), weight * slope**2)
    np.add.at(square.linear, (i, j), weight * slope * target)
    # Rows without an entry are constants.
    fixed = np.setdiff1d(np.arange(m), row)
    square.constant += float(weight @ target**2)
    square.constant += float(penalty.weight[fixed] @ (rows.constant - penalty.bound)[fixed] ** 2)
    return form.psd


def _distance(X: PSD, square: _Square) -> CurvedExpression:
    """Return a sum of squares of entries as a squared Frobenius distance, with weights if they differ."""
    upper = np.triu_indices(X.n)
    H2, b = square.quadratic[upper], square.linear[upper]
    target = np.zeros((X.n, X.n))
    nearest = np.divide(b, H2, out=np.zeros_like(b), where=H2 > 0)  # without a square: weight zero
    target[upper] = nearest
    target = target + np.triu(target, 1).T
    constant = square.constant - float(b @ nearest)
    weights = square.quadratic + np.triu(square.quadratic, 1).T
    weights[~np.eye(X.n, dtype=bool)] /= 2  # an entry and its mirror image share the weight of the pair
    mu = float(weights[0, 0])
    if not weights.any():
        raise UnsupportedProblemError(f"the squares of {X.name} in the objective are all times zero")
    if np.ptp(weights) <= _ZERO * mu * X.n:
        return mu * frobenius_div(X, target) + constant
    return frobenius_div(X, target, weights=np.sqrt(weights)) + constant


# --- Soft rows ----------------------------------------------------------------------------------------


def _elements(e: Any, at: IntArray, forms: dict[Any, VariableForm]) -> Expression:
    """Return some elements of an affine expression of CVXPY's as a vector of ours."""
    m = len(at)
    return expression_of(rows_of(e, Elements(np.arange(m), at, np.ones(m)), m), forms, "penalty")


def _body(penalty: ElementPenalty, forms: dict[Any, VariableForm]) -> Expression:
    """Return the elements that pay a penalty."""
    body = _elements(penalty.expression, penalty.at, forms)
    if body.is_constant:
        raise UnsupportedProblemError("the objective has a penalty of constants")
    return body


def _beside_soft_rows(penalty: ElementPenalty, body: Expression) -> Any:
    """Return the rest of ``-log a = d(a, 1) - a + 1`` with the LogDet divergence ``d`` of numbers."""
    return _weighted(body, -penalty.weight) + float(penalty.weight.sum())


def _weighted(e: Any, weight: Array) -> Any:
    """Return a weighted sum of the elements of an expression."""
    return as_curved(e).combined(sp.csr_array(weight[None]), ())


def _soft(penalty: ElementPenalty, forms: dict[Any, VariableForm], objective: CurvedExpression) -> Constraint:
    """Return a penalty as soft rows; refuse one that they cannot have."""
    own = {DIVERGENCES[name].penalty for name in objective.divergences}
    square = penalty.kind is Penalty.SQUARE and own != {penalty.kind}
    if not square and penalty.kind is not Penalty.HINGE and own != {penalty.kind}:
        beside = " or ".join(name for name, cls in DIVERGENCES.items() if cls.penalty is penalty.kind)
        raise UnsupportedProblemError(
            f"the objective has a {SCALARS[penalty.kind].atom} of other things than the entries of one psd "
            f"matrix, which only {beside} divergences of matrices can stand beside"
        )
    body = _body(penalty, forms)
    left, bound = body.variable_part(), penalty.bound - body.constant
    hinge = penalty.kind is Penalty.HINGE
    if not hinge and SCALARS[penalty.kind].of_ratios and body.constant.any():
        raise UnsupportedProblemError(
            f"the objective has a {SCALARS[penalty.kind].atom} of an affine expression with a constant"
        )
    row = left == bound if penalty.sense == "==" else left <= bound
    if square:
        return Constraint(left, row.lower, row.upper, "==", SoftPenalty(penalty.weight, "square"))
    return soft(row, gamma=penalty.weight, penalty="hinge" if hinge else "divergence")
