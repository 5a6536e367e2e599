"""The first iterate of the central path: strictly feasible where the rows allow it, infeasible otherwise.

If a combination of equalities is the identity, ``A*(y) = I`` (a diagonal, a trace), a multiple of its
multipliers makes ``Z`` positive definite. The least-norm matrix that satisfies the equalities may itself be
positive definite. Otherwise ``X`` and ``Z`` start as multiples of the identity, and the residuals shrink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint
from bregopt.linalg import DefiniteFactor, rows_at
from bregopt.program import Penalty, Program, Start, scale_of
from bregopt.routes.ipm.engine import Engine, Iterate
from bregopt.routes.ipm.plan import Plan

# Gap and residuals at which an iterate is kept for proofs, which need a point inside the cones.
INNER_ERROR = 1e-2
# Limit on the steps along the central path if ``max_iter`` is None.
STEPS = 100
# Least eigenvalue of a first ``X`` that meets the equalities, relative to the mean. Where the rows leave
# ``X`` no interior, the matrix of least norm is singular but for round-off.
_LEAST_EIGENVALUE = 1e-6
# Largest entrywise difference between ``A*(y)`` and the identity.
_IDENTITY_TOL = 1e-9
# Relative error of ``B'y = c`` at first multipliers of hinges.
_FREE_RESIDUAL = 1e-9
# Factor on the shift by Gershgorin's bound that makes the first ``Z`` positive definite.
_DUAL_SHIFT = 1.1
# Distance of a hinge's first multiplier from the ends of its range, relative to its price.
_HINGE_DISTANCE = 1e-2
# Largest mean of the hinges' first slacks, relative to the terms of their rows. Far from the bounds the first
# steps halve the slacks, and are a fifth of all.
_HINGE_SLACK = 0.1
# Distance of a warm start from the boundary, relative to the mean eigenvalue, the width of a box, or as the
# weight of a known interior point.
_WARM_DISTANCE = 0.05
# Size of a first ``X``, or distance of a first variable from its bound, relative to the scale of the
# bounds.
_FIRST_PRIMAL_SCALE = 10.0
# Size of a first ``Z``, relative to that of the costs.
_FIRST_DUAL_SCALE = 10.0


def first_iterate(engine: Engine, program: Program, larger: float = 1.0) -> Iterate:
    """Return a first iterate, near the central path at a large weight.

    Parameters
    ----------
    engine : PrimalDual
        Its matrices are one flat vector, and so are all matrices here.
    program : Program
    larger : float
        Factor on the first ``Z`` where that is a multiple of the identity.
    """
    X, y = _least_norm(engine, program)
    inside = _interior_point(engine, program, X, y)
    at = None if inside is None else engine.begin(inside.X, inside.u, inside.nu, inside.y)
    if at is not None:
        return at
    X = _primal_size(program) * engine.plan.identity if X is None else X
    mean, weight = _mean_eigenvalue(engine, program, X), _largest_weight(engine, program)
    d = larger * _FIRST_DUAL_SCALE * _dual_size(engine, program)
    # The path begins no lower than a weight, unless the rows ask for an X that is zero beside it.
    d = max(d, min(weight / mean, d / np.finfo(float).eps))
    Z = d * engine.plan.whole_identity
    nu = mean * d
    at = engine.begin(X, _interior_variables(program, mean), nu, None, Z)
    if at is None:
        raise ArithmeticError("no first iterate is positive definite")
    return at


def strict_iterate(engine: Engine, program: Program, start: Start | None = None) -> Iterate | None:
    """Return an iterate inside both cones, near `start` if it is given; None if no such point is known.

    There is a point inside both cones that meets all equalities. Then primal and dual have interiors, and
    both optima are attained (Slater).
    """
    X, y = _least_norm(engine, program)
    inside = None if X is None else _interior_point(engine, program, X, y)
    if inside is None:
        return None
    if start is not None and len(start.X) == len(program.blocks):
        return _combined_start(engine, program, start, inside)
    return engine.begin(inside.X, inside.u, inside.nu, inside.y)


def warm_iterate(engine: Engine, program: Program, start: Start) -> Iterate | None:
    """Return an iterate near an earlier answer, away from the boundary; None if there is none.

    If a strictly dual feasible point is known, the iterate is a convex combination with that point.
    """
    if len(start.X) != len(program.blocks):
        return None
    inside = _interior_point(engine, program, *_least_norm(engine, program))
    at = None if inside is None else _combined_start(engine, program, start, inside)
    return _shifted_start(engine, program, start) if at is None else at


def _combined_start(engine: Engine, program: Program, start: Start, inside: _InteriorPoint) -> Iterate | None:
    """Return the convex combination of an earlier answer and an interior point; None outside the cone."""
    fraction = _WARM_DISTANCE
    X = _combination(engine.plan.joined(start.X), inside.X, fraction)
    y = _combination(program.bounds.clip(start.y), inside.y, fraction)
    nu = float(X @ (engine.cost - engine.plan.adjoint(y))) / max(engine.plan.order, 1)
    return engine.begin(X, _combination(start.u, inside.u, fraction), nu, y) if nu > 0 else None


def _combination(a: Array, b: Array, fraction: float) -> Array:
    return (1 - fraction) * a + fraction * b


def _shifted_start(engine: Engine, program: Program, start: Start) -> Iterate | None:
    """Return the iterate at an earlier answer with the eigenvalues of ``X`` and ``Z`` moved up."""
    y, mean = program.bounds.clip(start.y), 0.0
    plan = engine.plan
    X, Z = plan.projected(plan.joined(start.X).copy()), plan.projected(engine.cost - plan.adjoint(y))
    for group in plan.groups:
        cone, X_g, Z_g, identity = group.cone, group.of(X), group.of(Z), group.of(plan.identity)
        inside, own = cone.compressed(X_g), cone.compressed(Z_g)
        order = max(inside.shape[1], 1)
        mean_X = inside.trace(axis1=1, axis2=2) / order
        size = np.linalg.norm(own, axis=(1, 2)) / np.sqrt(order)
        for of, matrices, least in ((X_g, inside, mean_X), (Z_g, own, size)):
            shift = _WARM_DISTANCE * least - _negative_part(matrices)
            of += group.each(shift) * identity
        mean += float(np.vdot(X_g, Z_g)) / order / len(program.blocks)
    u = _inside_cones(program, np.clip(start.u, *_inner_box(program)))
    return engine.begin(X, u, mean, y, Z)


class _InteriorPoint(NamedTuple):
    """A point with ``C - A*(y)`` positive definite, and the ``nu`` of the nearby point of the path."""

    X: Array
    u: Array
    y: Array
    nu: float


def _interior_point(
    engine: Engine, program: Program, X: Array | None, unit: Array | None
) -> _InteriorPoint | None:
    """Return an interior point; None if no combination of equalities is the identity.

    `X` and `unit` are those of :func:`_least_norm`.
    """
    checkpoint()
    if unit is None:
        return None
    plan, y, shift, size = engine.plan, _feasible_multipliers(program), 0.0, 0.0
    X = _primal_size(program) * plan.identity if X is None else X
    slack = engine.cost - plan.adjoint(y)
    for group in plan.groups:
        C = group.cone.compressed(group.of(slack))
        diagonal, squares = C.diagonal(axis1=1, axis2=2), np.add.reduce(C * C, axis=(1, 2))
        beyond = np.add.reduce(np.abs(C), axis=2) - np.abs(diagonal) - diagonal  # Gershgorin's discs
        shift = max(shift, float(np.maximum.reduce(beyond, axis=None, initial=0.0)))
        size = max(size, math.sqrt(np.maximum.reduce(squares, initial=0.0) / max(C.shape[1], 1)))
    mean = _mean_eigenvalue(engine, program, X)
    t = _DUAL_SHIFT * shift + (size if size > 0 else _dual_size(engine, program))
    t = max(t, _largest_weight(engine, program) / mean)
    nu, u = t * mean, _interior_variables(program, mean)
    if y.any():
        nu = min(nu, _HINGE_SLACK * float(np.abs(y) @ engine.sizes(X, 0 * u)) / np.count_nonzero(y))
        u = _central_variables(engine, program, X, u, y, nu)
    return _InteriorPoint(X, u, y - t * unit, nu)


def _mean_eigenvalue(engine: Engine, program: Program, X: Array) -> float:
    plan = engine.plan
    return float(plan.identity @ X) / plan.order if plan.order else _primal_size(program)


def _least_norm(engine: Engine, program: Program) -> tuple[Array | None, Array | None]:
    """Return the least-norm ``X`` with ``A(X) = b`` on the faces, and ``y`` with ``A*(y) = I`` there.

    None stands for an ``X`` that is not positive definite, and where there is no such ``y``.
    """
    bounds, plan = program.bounds, engine.plan
    equal = (bounds.equal & program.alone).nonzero()[0]
    if len(equal) == 0:
        return None, None
    key = equal.tobytes()
    if key not in plan.grams:
        plan.grams[key] = _gram(engine, equal)
    solve, unit = plan.grams[key]
    w = np.zeros(program.m)
    w[equal] = solve(bounds.lo[equal])
    X = plan.projected(plan.adjoint(w))
    for group in plan.groups:
        # Smaller eigenvalues than this fraction of their mean may be round-off.
        own = group.of(X)
        mean = own.trace(axis1=-2, axis2=-1) * (math.prod(group.shape[:-2]) / max(group.cone.order, 1))
        least = group.each(_LEAST_EIGENVALUE * mean) * group.of(plan.identity)
        if group.cone.root(own - least) is None:
            return None, unit
    return X, unit


def _gram(engine: Engine, equal: IntArray) -> tuple[Callable[[Array], Array], Array | None]:
    """Return the solver for the Gram matrix of equalities, and their ``y`` with ``A*(y) = I``, or None."""
    plan, identity, y = engine.plan, engine.plan.identity, np.zeros(engine.plan.m)
    solve = _solver_of_gram(plan, equal, engine.is_sparse)
    y[equal] = solve(plan.apply(identity)[equal])
    error = np.abs(plan.projected(plan.adjoint(y)) - identity)
    return solve, y if np.maximum.reduce(error, initial=0.0) <= _IDENTITY_TOL else None


def _solver_of_gram(plan: Plan, rows: IntArray, sparse: bool) -> Callable[[Array], Array]:
    """Return the solver for the Gram matrix of some rows, on their faces; it may be `sparse`."""
    squares: Array | None = None
    listed = None if plan.faces else plan.listed
    if isinstance(listed, np.ndarray):
        own = listed[rows]
        return DefiniteFactor(own @ own.T).solve
    if listed is not None:
        own = rows_at(listed, rows)
        meeting = np.bincount(own.indices, minlength=1)  # the rows that have a coefficient on each entry
        if meeting.max() <= 1:
            squares = (own * own).sum(axis=1)
        elif sparse and np.diff(own.indptr).all():
            from bregopt.routes.ipm.many_blocks import SparseFactor  # a sparse system has loaded it

            return SparseFactor(sp.csc_array(own @ own.T), len(rows)).solve
        elif meeting @ meeting <= len(rows) ** 2:
            return DefiniteFactor((own @ own.T).toarray()).solve
    elif not plan.faces and (A := plan.A.slice(rows)).disjoint:
        squares = A.norms() ** 2
    if squares is None:
        return DefiniteFactor(plan.gram(plan.identity, rows)).solve
    return partial(np.multiply, np.divide(1.0, squares, out=0 * squares, where=squares > 0))


def _feasible_multipliers(program: Program) -> Array:
    """Return multipliers inside their ranges with ``B'y = c`` for free variables; zero if there are none.

    They have the least norm relative to the prices of their hinges.
    """
    bounds, zero = program.bounds, np.zeros(program.m)
    if not program.k or bounds.all_hard:
        return zero
    hinge, free = (bounds.kind == int(Penalty.HINGE)).nonzero()[0], program.free.nonzero()[0]
    if not (len(hinge) and len(free)):
        return zero
    F, c, gamma = program.columns_of(free), program.c[free], bounds.gamma[hinge]
    y = zero.copy()
    y[hinge] = gamma * np.linalg.lstsq((gamma[:, None] * F[hinge]).T, c, rcond=None)[0]
    lower, upper = bounds.dual_range()
    distance = _HINGE_DISTANCE * gamma
    within = (lower[hinge] + distance <= y[hinge]) & (y[hinge] <= upper[hinge] - distance)
    inside = (within & (np.abs(y[hinge]) >= distance)).all()
    return y if inside and (np.abs(F.T @ y - c) <= _FREE_RESIDUAL * np.abs(c)).all() else zero


def _central_variables(engine: Engine, program: Program, X: Array, u: Array, y: Array, nu: float) -> Array:
    """Return the variables, the free ones such that rows with multipliers are near the path.

    On the path a slack is ``nu / y`` and the violation of a hinge ``nu / (gamma - y)``.
    """
    k = y.nonzero()[0]
    bounds, free = program.bounds, program.free.nonzero()[0]
    p, bound = np.abs(y[k]), np.where(y[k] > 0, bounds.lo[k], bounds.hi[k])
    center = bound + np.sign(y[k]) * nu * (1 / p - 1 / (bounds.gamma[k] - p))
    central = u.copy()
    central[free] = 0.0
    residual = center - engine.activity(X, central)[k]
    F = program.columns_of(free)[k]
    central[free] = np.linalg.lstsq(p[:, None] * F, p * residual, rcond=None)[0]
    return central


def _dual_size(engine: Engine, program: Program) -> float:
    """Return the size of the costs, one if all are zero."""
    return max(engine.largest_cost, scale_of(program).dual) or 1.0


def _largest_weight(engine: Engine, program: Program) -> float:
    """Return the largest weight of a log-determinant or logarithm; the path begins no lower."""
    if program.bounds.all_hard:
        return max(engine.weights)
    logarithms = program.bounds.gamma[program.bounds.kind == Penalty.LOG]
    return max(*engine.weights, float(logarithms.max(initial=0.0)))


def _primal_size(program: Program) -> float:
    """Return the size of a first ``X``, and the distance of a first variable from its one bound."""
    return _FIRST_PRIMAL_SCALE * program.bound_scale


def _inner_box(program: Program) -> tuple[Array, Array]:
    """Return a smaller box inside the box of the variables."""
    width = np.minimum(program.u_hi - program.u_lo, _primal_size(program))
    distance = _WARM_DISTANCE * width
    return program.u_lo + distance, program.u_hi - distance


def _inside_cones(program: Program, u: Array) -> Array:
    """Return the variables with the least eigenvalues of the vectors in cones moved up."""
    cones, inside = program.cones, u.copy()
    x = u[cones.index]
    size = np.maximum(np.abs(x[cones.starts]), cones.tail_norms(x))
    size = np.where(size > 0, size, _interior_variables(program, math.inf)[cones.axes])
    least = _WARM_DISTANCE * size
    inside[cones.index] = cones.raised(x, np.maximum(least - cones.least_eigenvalues(x), 0.0))
    return inside


def _interior_variables(program: Program, mean: float) -> Array:
    """Return variables inside the box, in its middle or far from its one bound, and on the axes of cones.

    They are no farther from their bounds than a first ``X`` of this mean eigenvalue: variables that are far
    larger come with multipliers that are far too small, and then the path diverges.
    """
    if not program.k:
        return np.zeros(0)
    # The variables of one row share its scale. If each had all of it, ``X`` would come near the boundary
    # before the rows hold: sparse components within a norm took 38 and 53 steps, and take 18 and 25.
    row = np.diff(program.B.indptr).repeat(np.diff(program.B.indptr))
    shared = np.ones(program.k)
    np.maximum.at(shared, program.B.indices, row)
    largest = _FIRST_PRIMAL_SCALE * mean
    size = np.minimum(_primal_size(program) / shared, largest)
    lo, hi = program.u_lo, program.u_hi
    both, low, high = np.isfinite(lo) & np.isfinite(hi), np.isfinite(lo), np.isfinite(hi)
    middle = np.where(both, np.where(both, lo, 0.0) / 2 + np.where(both, hi, 0.0) / 2, 0.0)
    one_bound = np.where(
        low, np.where(low, lo, 0.0) + size, np.where(high, np.where(high, hi, 0.0) - size, 0.0)
    )
    inside = np.where(both, middle, one_bound)
    column = program.column_sizes[program.cones.axes]
    inside[program.cones.axes] = min(_primal_size(program), largest) / np.where(column > 0, column, 1.0)
    return inside


def _negative_part(S: Array) -> Array:
    """Return the least eigenvalue of each matrix of a stack, zero for a positive one."""
    return np.minimum(np.linalg.eigvalsh(S)[:, 0], 0.0) if S.shape[1] else np.zeros(len(S))
