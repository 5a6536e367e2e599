"""The first iterate of the central path: strictly feasible where the rows allow it, infeasible otherwise.

If a combination of equalities is the identity, ``A*(y) = I`` (a diagonal, a trace), a multiple of its
multipliers makes ``Z`` positive definite. The least-norm matrix that satisfies the equalities may itself be
positive definite. Otherwise ``X`` and ``Z`` start as multiples of the identity, and the residuals shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bregopt.arrays import Array, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import root_of
from bregopt.program import Face, Penalty, Program, Start, scale_of
from bregopt.routes.ipm.iterate import Iterate
from bregopt.routes.ipm.linear_solvers import DefiniteFactor
from bregopt.routes.ipm.primal_dual import PrimalDual
from bregopt.routes.ipm.schur import Gram
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["first_iterate", "warm_iterate"]


@dataclass(frozen=True, eq=False)
class _LeastNorm:
    """The least-norm ``X`` with ``A(X) = b`` on the faces, and ``y`` with ``A*(y) = I`` there, or None."""

    X: tuple[Array, ...] | None
    y: Array | None


def first_iterate(
    engine: PrimalDual,
    program: Program,
    costs: Sequence[Array],
    faces: Sequence[Face],
    tuning: InteriorPointTuning,
) -> Iterate:
    """Return a first iterate, near the central path at a large weight.

    Parameters
    ----------
    engine : PrimalDual
    program : Program
    costs : sequence of arrays of shape (n_b, n_b)
        The ``C`` of the engine.
    faces : sequence of Face
    tuning : InteriorPointTuning
    """
    inside = _interior_point(program, costs, faces, tuning)
    at = None if inside is None else engine.begin(inside.X, inside.u, inside.nu, inside.y)
    if at is not None:
        return at
    X = _least_norm(program, faces, tuning).X or _identity_multiples(program, faces, tuning)
    d = tuning.first_dual_scale * _dual_size(program, costs)
    Z = [d * np.eye(face.n) for face in faces]
    nu = _mean_eigenvalue(program, faces, X, tuning) * d
    at = engine.begin(X, _box_interior(program, tuning), nu, None, Z)
    if at is None:
        raise ArithmeticError("no first iterate is positive definite")
    return at


def warm_iterate(
    engine: PrimalDual,
    program: Program,
    costs: Sequence[Array],
    faces: Sequence[Face],
    start: Start,
    tuning: InteriorPointTuning,
) -> Iterate | None:
    """Return an iterate near an earlier answer, away from the boundary; None if there is none.

    If a strictly dual feasible point is known, the iterate is a convex combination with that point.
    """
    if len(start.X) != len(faces):
        return None
    inside = _interior_point(program, costs, faces, tuning)
    at = None if inside is None else _combined_start(engine, program, costs, faces, start, inside, tuning)
    return _shifted_start(engine, program, costs, faces, start, tuning) if at is None else at


def _combined_start(
    engine: PrimalDual,
    program: Program,
    costs: Sequence[Array],
    faces: Sequence[Face],
    start: Start,
    inside: _InteriorPoint,
    tuning: InteriorPointTuning,
) -> Iterate | None:
    """Return the convex combination of an earlier answer and an interior point; None outside the cone."""
    fraction = tuning.warm_distance
    X = tuple(
        _combination(np.asarray(X_b), own, fraction) for X_b, own in zip(start.X, inside.X, strict=True)
    )
    y = _combination(program.bounds.clip(start.y), inside.y, fraction)
    gap = sum(float(np.vdot(X_b, costs[b] - program.A.adjoint(y, b))) for b, X_b in enumerate(X))
    nu = gap / max(sum(face.order for face in faces), 1)
    return engine.begin(X, _combination(start.u, inside.u, fraction), nu, y) if nu > 0 else None


def _combination(a: Array, b: Array, fraction: float) -> Array:
    combination: Array = (1 - fraction) * a + fraction * b
    return combination


def _shifted_start(
    engine: PrimalDual,
    program: Program,
    costs: Sequence[Array],
    faces: Sequence[Face],
    start: Start,
    tuning: InteriorPointTuning,
) -> Iterate | None:
    """Return the iterate at an earlier answer with the eigenvalues of ``X`` and ``Z`` moved up."""
    X, Z, mean = [], [], 0.0
    y = program.bounds.clip(start.y)
    for b, (face, X_b) in enumerate(zip(faces, start.X, strict=True)):
        inside = face.compress(np.asarray(X_b))
        mean_X = float(np.trace(inside)) / max(face.order, 1)
        X.append(face.lift(_shifted(inside, tuning.warm_distance * mean_X)))
        own = face.compress(costs[b] - program.A.adjoint(y, b))
        size = float(np.linalg.norm(own)) / np.sqrt(max(face.order, 1))
        Z.append(face.lift(_shifted(own, tuning.warm_distance * size)))
        mean += float(np.vdot(X[b], Z[b])) / max(face.order, 1)
    u = np.clip(start.u, *_inner_box(program, tuning))
    return engine.begin(X, u, mean / len(faces), y, Z)


@dataclass(frozen=True, eq=False)
class _InteriorPoint:
    """A point with ``C - A*(y)`` positive definite, and the ``nu`` of the nearby point of the path."""

    X: tuple[Array, ...]
    u: Array
    y: Array
    nu: float


def _interior_point(
    program: Program, costs: Sequence[Array], faces: Sequence[Face], tuning: InteriorPointTuning
) -> _InteriorPoint | None:
    """Return an interior point; None if no combination of equalities is the identity."""
    least = _least_norm(program, faces, tuning)
    checkpoint()
    if least.y is None:
        return None
    X = least.X or _identity_multiples(program, faces, tuning)
    y = _feasible_multipliers(program, tuning)
    C = [face.compress(costs[b] - program.A.adjoint(y, b)) for b, face in enumerate(faces)]
    shift = max(_shift_to_psd(C_b) for C_b in C)
    size = max(float(np.linalg.norm(C_b)) / np.sqrt(max(len(C_b), 1)) for C_b in C)
    t = tuning.dual_shift * shift + (size if size > 0 else _dual_size(program, costs))
    nu = t * _mean_eigenvalue(program, faces, X, tuning)
    u = _central_variables(program, X, _box_interior(program, tuning), y, nu)
    return _InteriorPoint(X, u, y - t * least.y, nu)


def _identity_multiples(
    program: Program, faces: Sequence[Face], tuning: InteriorPointTuning
) -> tuple[Array, ...]:
    """Return multiples of the identity on the faces, far above the scale of the bounds."""
    size = _primal_size(program, tuning)
    return tuple(size * face.lift(np.eye(face.order)) for face in faces)


def _mean_eigenvalue(
    program: Program, faces: Sequence[Face], X: Sequence[Array], tuning: InteriorPointTuning
) -> float:
    order = sum(face.order for face in faces)
    return sum(float(np.trace(X_b)) for X_b in X) / order if order else _primal_size(program, tuning)


def _least_norm(program: Program, faces: Sequence[Face], tuning: InteriorPointTuning) -> _LeastNorm:
    bounds, A = program.bounds, program.A
    matrix_only = bounds.equal & program.alone
    equal = np.flatnonzero(matrix_only)
    if len(equal) == 0:
        return _LeastNorm(None, None)
    rows = A.slice(equal)
    P = [face.lift(np.eye(face.order)) for face in faces]
    H = sum(Gram(rows, tuning, b).assemble(P_b, P_b) for b, P_b in enumerate(P))
    factor = DefiniteFactor(np.asarray(H), tuning)
    y = np.zeros(A.m)
    y[equal] = factor.solve(rows.apply(P))
    w = factor.solve(bounds.lo[equal])
    X = [_projected(face, rows.adjoint(w, b)) for b, face in enumerate(faces)]
    inside = all(root_of(face.compress(X_b)) is not None for face, X_b in zip(faces, X, strict=True))
    error = max(
        float(np.abs(face.compress(A.adjoint(y, b)) - np.eye(face.order)).max(initial=0.0))
        for b, face in enumerate(faces)
    )
    return _LeastNorm(tuple(X) if inside else None, y if error <= tuning.identity_tol else None)


def _feasible_multipliers(program: Program, tuning: InteriorPointTuning) -> Array:
    """Return multipliers inside their ranges with ``B'y = c`` for free variables; zero if there are none.

    They have the least norm relative to the prices of their hinges.
    """
    bounds, free = program.bounds, _free(program)
    zero = np.zeros(program.m)
    hinge = np.flatnonzero(bounds.kind == Penalty.HINGE)
    if not free.any() or len(hinge) == 0:
        return zero
    B, gamma = program.B[hinge][:, free].toarray(), bounds.gamma[hinge]
    y = zero.copy()
    y[hinge] = gamma * np.linalg.lstsq((gamma[:, None] * B).T, program.c[free], rcond=None)[0]
    lower, upper = (bound[hinge] for bound in bounds.dual_range())
    distance = tuning.first_hinge_distance * gamma
    inside = (lower + distance <= y[hinge]) & (y[hinge] <= upper - distance) & (np.abs(y[hinge]) >= distance)
    feasible = np.allclose(program.B.T[free] @ y, program.c[free], rtol=1e-9, atol=0)
    return y if inside.all() and feasible else zero


def _central_variables(program: Program, X: Sequence[Array], u: Array, y: Array, nu: float) -> Array:
    """Return the variables, the free ones such that rows with multipliers are near the path.

    On the path a slack is ``nu / y`` and the violation of a hinge ``nu / (gamma - y)``.
    """
    k = np.flatnonzero(y)
    if len(k) == 0:
        return u
    bounds, free = program.bounds, _free(program)
    p, bound = np.abs(y[k]), np.where(y[k] > 0, bounds.lo[k], bounds.hi[k])
    center = bound + np.sign(y[k]) * nu * (1 / p - 1 / (bounds.gamma[k] - p))
    central = u.copy()
    central[free] = 0.0
    weight = p[:, None]
    residual = center - program.activity(X, central)[k]
    central[free] = np.linalg.lstsq(weight * program.B[k][:, free].toarray(), p * residual, rcond=None)[0]
    return central


def _free(program: Program) -> Mask:
    """Return the mask of the variables without bounds."""
    mask: Mask = np.isinf(program.u_lo) & np.isinf(program.u_hi)
    return mask


def _projected(face: Face, S: Array) -> Array:
    """Return ``V V' S V V'``."""
    return face.lift(face.compress(S))


def _shift_to_psd(C: Array) -> float:
    """Return a ``t >= 0`` with ``C + t I`` psd, by Gershgorin's discs."""
    return float((np.abs(C).sum(axis=1) - np.abs(C.diagonal()) - C.diagonal()).max(initial=0.0))


def _dual_size(program: Program, costs: Sequence[Array]) -> float:
    """Return the size of the costs, one if all are zero."""
    return max([float(np.linalg.norm(C)) for C in costs] + [scale_of(program).dual]) or 1.0


def _primal_size(program: Program, tuning: InteriorPointTuning) -> float:
    """Return the size of a first ``X``, and the distance of a first variable from its one bound."""
    return tuning.first_primal_scale * program.bound_scale


def _inner_box(program: Program, tuning: InteriorPointTuning) -> tuple[Array, Array]:
    """Return a smaller box inside the box of the variables."""
    width = np.minimum(program.u_hi - program.u_lo, _primal_size(program, tuning))
    distance = tuning.warm_distance * width
    return program.u_lo + distance, program.u_hi - distance


def _box_interior(program: Program, tuning: InteriorPointTuning) -> Array:
    """Return an interior point of the box: its middle, or a point far from its one bound."""
    size = _primal_size(program, tuning)
    lo, hi = program.u_lo, program.u_hi
    both, low, high = np.isfinite(lo) & np.isfinite(hi), np.isfinite(lo), np.isfinite(hi)
    middle = np.where(both, np.where(both, lo, 0.0) / 2 + np.where(both, hi, 0.0) / 2, 0.0)
    one_bound = np.where(
        low, np.where(low, lo, 0.0) + size, np.where(high, np.where(high, hi, 0.0) - size, 0.0)
    )
    return np.where(both, middle, one_bound)


def _shifted(S: Array, least_eigenvalue: float) -> Array:
    """Return ``S`` plus a multiple of the identity, with eigenvalues of at least `least_eigenvalue`."""
    least = float(np.linalg.eigvalsh(S).min(initial=0.0))
    return S + (max(-least, 0.0) + least_eigenvalue) * np.eye(len(S))
