"""The objective of a CVXPY problem as divergences, linear terms and soft rows.

CVXPY has no soft rows. There ``soft(a <= b, gamma)`` is a hard row ``a <= v`` with a variable ``v``, the
relaxed bound, and ``gamma d(v, b)`` in the objective (Kulis et al. 2009, eq. 22); or the row is
``a - v <= b``, and the penalty ``gamma d(v, 0)``. A variable is eliminated if each of its elements occurs in
one row and in one penalty, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.atom import Atom

from bregopt.arrays import Array, IntArray, Mask
from bregopt.cvxpy.problems.affine import ConvexTerm, Elements, elements_at, is_affine, joined, rows_of
from bregopt.cvxpy.problems.convex_atoms import ElementPenalty, Goal, Spectral, epigraph, read_convex_atom
from bregopt.cvxpy.problems.variables import MatrixForm, VariableForm, elements_of, expression_of
from bregopt.divergences import DIVERGENCES, SCALARS, Penalty
from bregopt.divergences.rows import Scalar
from bregopt.errors import UnsupportedProblemError
from bregopt.modeling.affine import Affine
from bregopt.modeling.constraints import Constraint, SecondOrderConstraint, SoftPenalty
from bregopt.modeling.convex.elementwise import log
from bregopt.modeling.convex.entropies import kl_div
from bregopt.modeling.convex.expression import CurvedExpression, as_curved, as_objective
from bregopt.modeling.expressions import Expression, soft
from bregopt.modeling.objectives import bregman_div, frobenius_div
from bregopt.modeling.variables import PSD, Variable
from bregopt.program.rows import Coordinates, SparseRows
from bregopt.records import dataclass, replace

_ZERO = 1e-14  # relative to the linear term, times the order: smaller remainders are round-off
_NO_COST = 1e-12  # relative to the smallest penalty weight: smaller linear costs are round-off of zero
_MIRRORED = {"<=": ">=", ">=": "<=", "==": "=="}


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
    goal = Goal(affine=[found])
    for term in found.convex_terms or []:
        goal.add(_read(term))
    return goal


def _read(term: ConvexTerm) -> Goal:
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
    return Goal(affine=[rows_of(expression, term.elements, 1)], constraints=constraints)


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
        parts = [elements_of(e, curved.at, forms, "penalty") for e in curved.expressions]
        terms.append(_weighted(curved.atom(*parts), curved.weight))
    objective = as_objective(affine)
    for more in terms:
        objective = objective + more
    own = {DIVERGENCES[name].penalty for name in objective.divergences}
    penalties = []
    for penalty in rest:
        if penalty.kind not in (Penalty.LOG, Penalty.VON_NEUMANN):
            penalties.append(penalty)
            continue
        body = _body(penalty, forms)
        plain = not body.constant.any()
        if penalty.kind is Penalty.VON_NEUMANN and plain and own == {penalty.kind}:
            penalties.append(penalty)
        elif penalty.kind is Penalty.VON_NEUMANN:
            objective = objective + _weighted(kl_div(body, penalty.bound), penalty.weight)
        elif plain and own == {Penalty.LOGDET}:  # -log a = d(a, 1) - a + 1
            objective = objective + _weighted(body, -penalty.weight) + float(penalty.weight.sum())
            penalties.append(replace(penalty, kind=Penalty.LOGDET, bound=penalty.bound + 1))
        else:
            objective = objective + _weighted(log(body), -penalty.weight)
    return objective, [_soft(penalty, forms, own) for penalty in penalties]


def _matrix(F: Any, forms: dict[Any, VariableForm]) -> Any:
    """Return an affine symmetric matrix of CVXPY's as ours, a constant one as numbers."""
    if F.is_constant():
        return np.asarray(F.value, dtype=float)
    n = F.shape[0]
    order = np.arange(n * n).reshape(n, n, order="F").ravel()  # ours are read by rows
    return replace(elements_of(F, order, forms, "entropy"), shape=(n, n))


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
    rows = rows_of(penalty.expression, elements_at(penalty.at), m)
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


def _body(penalty: ElementPenalty, forms: dict[Any, VariableForm]) -> Expression:
    """Return the elements that pay a penalty."""
    body = elements_of(penalty.expression, penalty.at, forms, "penalty")
    if body.is_constant:
        raise UnsupportedProblemError("the objective has a penalty of constants")
    return body


def _weighted(e: Any, weight: Array) -> Any:
    """Return a weighted sum of the elements of an expression."""
    return as_curved(e).combined(sp.csr_array(weight[None]), ())


def _soft(penalty: ElementPenalty, forms: dict[Any, VariableForm], own: set[Penalty | None]) -> Constraint:
    """Return a penalty as soft rows; `own` are the penalties of the divergences in the objective."""
    body = _body(penalty, forms)
    left, bound = body.variable_part(), penalty.bound - body.constant
    row = left == bound if penalty.sense == "==" else left <= bound
    if penalty.kind is Penalty.SQUARE and own != {penalty.kind}:
        return Constraint(left, row.lower, row.upper, "==", SoftPenalty(penalty.weight, "square"))
    return soft(row, gamma=penalty.weight, penalty="hinge" if penalty.kind is Penalty.HINGE else "divergence")


# --- Variables that only relax bounds -----------------------------------------------------------------------


class _Prices(NamedTuple):
    """The penalty of each element of a variable: ``weight`` times the distance or divergence from ``center``.

    The penalty is a distance (`hinge`) or the objective's own divergence. `up` and `down` tell whether it
    applies above and below the center.
    """

    center: Array
    weight: Array
    hinge: Mask
    up: Mask
    down: Mask


class _SoftRow(NamedTuple):
    """A soft row, the elements `at` of ``v`` that relaxed it, and its relaxed bounds ``offset + slope v``."""

    row: Constraint
    at: IntArray
    offset: Affine
    slope: Array


@dataclass(frozen=True, eq=False)
class RelaxedBound:
    """A variable that soft rows have replaced: it only relaxed the bounds of rows."""

    u: Variable
    soft_rows: tuple[_SoftRow, ...]

    def set_value(self) -> None:
        """Set the variable from the values of the others: no bound is relaxed more than necessary."""
        value = np.zeros(self.u.size)
        for row, at, offset, slope in self.soft_rows:
            bound, end = _numbers(row.body), _numbers(_end(row))
            if row.sense == "<=":
                bound = np.maximum(bound, end)
            elif row.sense == ">=":
                bound = np.minimum(bound, end)
            value[at] = (bound - _numbers(offset)) / slope
        self.u.value = value


def eliminate_relaxed_bounds(
    rows: dict[Any, Constraint],
    others: Sequence[Constraint | SecondOrderConstraint],
    paid: Sequence[Constraint],
    objective: CurvedExpression,
) -> tuple[dict[Any, Constraint], list[Constraint], CurvedExpression, list[RelaxedBound]]:
    """Return the rows, penalties and objective without variables that only relax bounds, and these variables.

    Parameters
    ----------
    rows : dict from constraint of CVXPY to constraint of ours
    others : sequence of Constraint and SecondOrderConstraint
        Constraints that cannot be made soft: their variables stay.
    paid : sequence of Constraint
        Soft rows on the terms of the objective.
    objective : CurvedExpression
    """
    rows, left, relaxed = dict(rows), list(paid), []
    divergences = objective.divergences
    penalty = DIVERGENCES[next(iter(divergences))].penalty if len(divergences) == 1 else None
    own = None if penalty is None else SCALARS[penalty]
    kept = {u for c in others for u in c.body.variables}
    for u in dict.fromkeys(u for c in paid for u in c.body.variables if u not in kept):
        prices = _prices(u, left, own)
        if prices is None or _cost(u, objective) > _NO_COST * float(prices.weight.min()):
            continue
        found = _soft_rows(u, rows, prices, own)
        if found is None:
            continue
        rows.update({c: part.row for c, part in found.items()})
        left = [c for c in left if u not in c.body.variables]
        objective = replace(objective, affine=objective.affine.without(u))
        relaxed.append(RelaxedBound(u, tuple(found.values())))
    return rows, left, objective, relaxed


def _prices(u: Variable, paid: Sequence[Constraint], own: Scalar | None) -> _Prices | None:
    """Return the penalties of the elements of a variable, None unless each has one, on it alone."""
    places, parts = [], []
    for price in paid:
        if u not in price.body.variables:
            continue
        single = _single(price.body.variables[u])
        assert price.penalty is not None
        own_form = not price.body.psd and len(price.body.variables) == 1
        if single is None or not own_form or price.penalty.kind == "square":
            return None
        at, slope = single
        hinge, both = price.penalty.kind == "hinge", price.sense == "=="
        degree = 1 if hinge or own is None else own.degree  # without a divergence all penalties are hinges
        weight = np.asarray(price.penalty.gamma) * np.abs(slope) ** degree
        ways = both | (slope > 0), both | (slope < 0)
        places.append(at)
        parts.append((_end(price).constant / slope, weight, np.full(len(at), hinge), *ways))
    at = np.concatenate(places)
    if not np.array_equal(np.bincount(at, minlength=u.size), np.ones(u.size)):
        return None
    order = np.argsort(at)
    return _Prices(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))


def _soft_rows(
    u: Variable, rows: dict[Any, Constraint], prices: _Prices, own: Scalar | None
) -> dict[Any, _SoftRow] | None:
    """Return soft rows in place of the rows with a variable, None unless all can be replaced."""
    found = {}
    for c, row in rows.items():
        if u in row.body.variables:
            soft_row = _soft_row(u, row, prices, own)
            if soft_row is None:
                return None
            found[c] = soft_row
    at = np.concatenate([np.zeros(0, dtype=np.intp), *(soft_row.at for soft_row in found.values())])
    return found if np.array_equal(np.bincount(at, minlength=u.size), np.ones(u.size)) else None


def _soft_row(u: Variable, row: Constraint, prices: _Prices, own: Scalar | None) -> _SoftRow | None:
    """Return a row whose bound is ``offset + slope v`` as a soft row, None if it cannot be one."""
    single, body = _single(row.body.variables[u]), row.body.without(u)
    if single is None or body.is_constant or row.penalty is not None:
        return None
    (at, slope), offset, sense, turned = (single[0], -single[1]), _end(row), row.sense, False
    if (slope < 0).all():
        body, offset, slope = body.times(-1.0), offset.times(-1.0), -slope
        sense, turned = _MIRRORED[sense], True
    penalty = _penalty_of(at, offset, slope, prices, own)
    if penalty is None or not _relaxes(u, at, prices, sense).all():
        return None
    end = offset.plus(Affine(body.shape, slope * prices.center[at]))
    lower, upper = (end if sense in sides else None for sides in (("==", ">="), ("==", "<=")))
    # A negated equation has a negated multiplier.
    soft = Constraint(body, lower, upper, sense, penalty, mirrored=turned and sense == "==")
    return _SoftRow(soft, at, offset, slope)


def _penalty_of(
    at: IntArray, offset: Affine, slope: Array, prices: _Prices, own: Scalar | None
) -> SoftPenalty | None:
    """Return the penalty of rows with bounds ``offset + slope v``, None if no single penalty expresses it."""
    hinge, weight = prices.hinge[at], prices.weight[at]
    if (slope <= 0).any() or hinge.any() != hinge.all():
        return None
    if hinge.all():
        return SoftPenalty(weight / slope, "hinge")
    assert own is not None
    shifted = bool(offset.parameters) or offset.constant.any()
    if own.of_ratios and (shifted or (prices.center[at] <= 0).any()):
        return None
    return SoftPenalty(weight / slope**own.degree, "divergence")


def _relaxes(u: Variable, at: IntArray, prices: _Prices, sense: str) -> Mask:
    """Return the mask of bounds that `u` relaxes without limit, at a cost, from a center that it may take."""
    lower, upper, center = u.lower[at], u.upper[at], prices.center[at]
    rise = prices.up[at] & np.isinf(upper) & (lower <= center)
    fall = prices.down[at] & np.isinf(lower) & (upper >= center)
    ways: dict[str, Mask] = {"<=": rise, ">=": fall, "==": rise & fall}
    return ways[sense]


def _single(matrix: Any) -> tuple[IntArray, Array] | None:
    """Return the columns and values of a CSR matrix with one nonzero in every row, None for others."""
    matrix = matrix.copy()
    matrix.eliminate_zeros()
    return (matrix.indices, matrix.data) if (np.diff(matrix.indptr) == 1).all() else None


def _end(row: Constraint) -> Affine:
    """Return the only bound of a row, or the value of an equation."""
    end = row.lower if row.upper is None else row.upper
    assert end is not None
    return end


def _numbers(expression: Affine) -> Array:
    return np.ravel(np.asarray(expression.value))


def _cost(u: Variable, objective: CurvedExpression) -> float:
    slopes = objective.affine.variables.get(u)
    return 0.0 if slopes is None else float(np.abs(slopes.data).max(initial=0.0))
