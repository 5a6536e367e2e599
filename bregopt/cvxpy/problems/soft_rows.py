"""Soft rows recognized in CVXPY problems: a row with a relaxed bound, and a penalty of the relaxation.

CVXPY has no soft rows. There ``soft(a <= b, gamma)`` is a hard row ``a <= v`` with a variable ``v``, the
relaxed bound, and ``gamma d(v, b)`` in the objective (Kulis et al. 2009, eq. 22); or the row is
``a - v <= b``, and the penalty ``gamma d(v, 0)``. A variable is eliminated if each of its elements occurs in
one row and in one penalty, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray, Mask
from bregopt.divergences import DIVERGENCES, SCALARS
from bregopt.divergences.scalar import Scalar
from bregopt.modeling.affine import Affine
from bregopt.modeling.constraints import Constraint, SecondOrderConstraint, SoftPenalty
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.variables import Variable
from bregopt.records import dataclass, replace

__all__ = ["RelaxedBound", "eliminate_relaxed_bounds"]

_NO_COST = 1e-12  # relative to the smallest penalty weight: smaller linear costs are round-off of zero
_MIRRORED = {"<=": ">=", ">=": "<=", "==": "=="}


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
