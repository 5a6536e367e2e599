"""Newton's method on the duals of a stack of problems, each step in a few calls for the whole stack.

The method is that of :mod:`bregopt.routes.projection.dual_newton` for rows on single entries. A problem
leaves the stack when it meets the rule, or when it stalls. Stalled problems have no answer here: the caller
solves them one by one, where infeasibility is proven.

Bounds of all entries are as many rows as the matrix has entries, and few of them act. Then the method runs
on the fixed entries and on the bounds that the start or the target violates. Bounds that its answer violates
join them, until none does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify.stacks import relative_gap, row_residual
from bregopt.clock import checkpoint
from bregopt.divergences.stacks import StackedDerivative, StackedLogDet
from bregopt.program.entry_stack import EntryStack
from bregopt.records import dataclass, field_names, replace
from bregopt.routes.projection.stacked_answer import (
    Near,
    OnRows,
    StackedAnswer,
    StackRule,
    certified,
    joined,
    near_minimizers,
    on_rows,
    stacked_conjugate_gradients,
)
from bregopt.routes.projection.stacked_logdet import logdet_newton_stack
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["solve_stack"]

_ROUNDS = 12  # limit on the rounds; the problems of panels take 1 to 4
_NEAR = 0.03  # distance from a bound, relative to the diagonal, within which it may act in the next answer
# Limit on the steps. Feasible problems take 3 to 10; the single solve proves that others have no answer.
_STEPS = 20
_TESTED = (2, 4, 8)  # steps at which infeasible problems leave the stack


def solve_stack(stack: EntryStack, settings: Any, start: Array | None) -> StackedAnswer:
    """Solve a stack of nearness problems with bounds on entries; some of them may stay unsolved."""
    limit = settings.max_iter or settings.tuning.newton_limit
    rule = StackRule(settings.tol, settings.asked_of_X)
    if isinstance(stack.divergence, StackedLogDet):
        return logdet_newton_stack(stack, rule, limit)
    return _newton_on_acting_rows(stack, rule, settings.tuning, limit, start)


def _newton_on_acting_rows(
    stack: EntryStack, rule: StackRule, tuning: ProjectionTuning, limit: int, start: Array | None
) -> StackedAnswer:
    """Return the answers that meet the rule.

    Parameters
    ----------
    stack : EntryStack
    rule : StackRule
    tuning : ProjectionTuning
    limit : int
        On the steps of each round.
    start : array of shape (B, m) or None
        Multipliers.
    """
    bounded = int((stack.lo < stack.hi).any(axis=0).sum())
    if bounded <= max(tuning.working_set_rows, tuning.working_set_ratio * stack.n):
        return _spectral_newton(stack, rule, tuning, limit, start)
    used = (stack.lo == stack.hi).any(axis=0)
    used |= _reached(stack, stack.divergence.X0)
    if start is not None:
        used |= (start != 0).any(axis=0)
    live, y, found = np.arange(len(stack)), start, list[StackedAnswer]()
    steps = np.zeros(len(stack), dtype=np.intp)
    for _ in range(_ROUNDS):
        own = stack[live]
        answer = _spectral_newton(
            own.of_rows(used), rule, tuning, limit, None if y is None else y[live][:, used]
        )
        live = live[answer.solved]  # the others stay unsolved
        steps[live] += answer.iterations
        y = np.zeros(stack.lo.shape) if y is None else y
        y[np.ix_(live, used)] = answer.y
        own = stack[live]
        residual, _missed = row_residual(own, answer.X.diagonal(axis1=1, axis2=2), own.apply(answer.X))
        holds = residual <= rule.tol
        # The multipliers of all other rows are zero, so the gap is that of all rows.
        certificate = answer.certificate[holds]
        worst = np.maximum(certificate.primal_residual, residual[holds])
        at = live[holds]
        certificate = replace(certificate, primal_residual=worst)
        accuracy = answer.accuracy[holds]
        found.append(StackedAnswer(at, answer.X[holds], y[at], certificate, steps[at], accuracy))
        live = live[~holds]
        if len(live) == 0:
            break
        used |= _reached(own[~holds], answer.X[~holds])
    return joined(found, stack)


def _reached(stack: EntryStack, X: Array) -> Mask:
    """Return the mask of the rows that are violated, or nearly so, in one of the problems."""
    a, near = stack.apply(X), _NEAR * stack.divergence.X0.diagonal(axis1=1, axis2=2).mean(axis=1)[:, None]
    return np.any((a < stack.lo + near) | (a > stack.hi - near), axis=0)


@dataclass(frozen=True, eq=False)
class _Points:
    """Multipliers, the spectra of their matrices, and the values of the dual functions."""

    y: Array
    theta: Array
    V: Array
    activity: Array
    dual: Array

    def __getitem__(self, which: IntArray | Mask) -> _Points:
        return _Points(*(getattr(self, name)[which] for name in field_names(_Points)))

    def replaced(self, which: IntArray, new: _Points) -> None:
        """Overwrite some of the points."""
        for name in field_names(_Points):
            getattr(self, name)[which] = getattr(new, name)


def _spectral_newton(
    stack: EntryStack, rule: StackRule, tuning: ProjectionTuning, limit: int, start: Array | None = None
) -> StackedAnswer:
    """Return the answers that meet the rule after at most `limit` steps, from `start` or cold."""
    limit = min(limit, _STEPS)
    live = np.arange(len(stack))
    at = _points(stack, _cold_start(stack) if start is None else stack.clip(start))
    live, stack, at = _kept(np.isfinite(at.dual), live, stack, at)
    found: list[StackedAnswer] = []
    last = np.full(len(stack.lo) if len(live) == 0 else live.max() + 1, np.inf)
    for step in range(limit + 1):
        done, own, near = _near(stack, at, rule.tol)
        if len(done):
            answer = certified(stack[done], own, at.y[done], live[done], rule, step, near, last)
            found.append(answer)
            live, stack, at = _kept(~np.isin(live, answer.solved), live, stack, at)
        if step in _TESTED and not stack.alone:
            live, stack, at = _kept(~_contradicts(stack, at.y), live, stack, at)
        if len(live) == 0 or step == limit:
            break
        checkpoint()
        moved = _advanced(stack, at, tuning)
        live, stack, at = _kept(moved, live, stack, at)
    return joined(found, stack)


def _cold_start(stack: EntryStack) -> Array:
    """Return multipliers of the diagonal that depend on the targets alone, zero for other rows."""
    y = np.zeros(stack.lo.shape)
    if len(stack.i):
        y[:, : stack.n] = stack.divergence.start(stack.lo[:, : stack.n])
    return y


def _contradicts(stack: EntryStack, y: Array) -> Mask:
    """Return the mask of problems that have no feasible point, as their multipliers prove.

    The activity ``y'A(X)`` of feasible ``X`` is at least ``g(y)``, and at most the trace times the largest
    eigenvalue of ``A*(y)``.
    """
    largest = np.maximum(np.linalg.eigvalsh(stack.adjoint(y))[:, -1], 0.0)
    contradicts: Mask = stack.conjugate(y).sum(axis=1) > 1.01 * largest * stack.lo[:, : stack.n].sum(axis=1)
    return contradicts


def _kept(
    which: Mask, live: IntArray, stack: EntryStack, at: _Points
) -> tuple[IntArray, EntryStack, _Points]:
    return (live, stack, at) if which.all() else (live[which], stack[which], at[which])


def _points(stack: EntryStack, y: Array) -> _Points:
    """Return the points of given multipliers; the dual value is ``-inf`` outside the domain."""
    divergence = stack.divergence
    theta, V = divergence.spectrum(stack.adjoint(y))
    x = divergence.eigenvalues(theta)
    activity = ((V * V) @ x[:, :, None])[:, :, 0] if stack.alone else stack.apply(_matrices(V, x))
    dual = stack.conjugate(y).sum(axis=1) + divergence.term(theta)
    return _Points(y, theta, V, activity, dual)


def _matrices(V: Array, x: Array) -> Array:
    """Return ``V diag(x) V'``, exactly symmetric."""
    half = V * np.sqrt(x)[:, None, :]
    X = half @ np.swapaxes(half, 1, 2)
    return (X + np.swapaxes(X, 1, 2)) / 2


def _near(stack: EntryStack, at: _Points, tol: float) -> tuple[IntArray, OnRows, Near]:
    """Return the indices of points that seem to meet the tolerance, their matrices, and their distances."""
    residual, _missed = row_residual(stack, at.activity[:, : stack.n], at.activity)
    within = np.flatnonzero(residual <= np.sqrt(tol))
    points, problems = at[within], stack[within]
    X = _matrices(points.V, stack.divergence.eigenvalues(points.theta))
    own = on_rows(problems, X, points.y)
    near = near_minimizers(problems, own, X, points.y, points.theta, points.V)
    primal = points.dual + near.excess
    meets = own.met & (relative_gap(problems, primal, points.dual, near.excess) <= tol)
    return within[meets], own.of(meets), Near(near.excess[meets], near.largest[meets])


def _advanced(stack: EntryStack, at: _Points, tuning: ProjectionTuning) -> Mask:
    """Move each point along Newton's direction, in place; return the mask of those that rose."""
    derivative = stack.divergence.derivative(at.theta, at.V)
    diagonal = _hessian_diagonal(stack, derivative, tuning)
    gradient, lower, upper = _gradient(stack, at)
    target = np.clip(at.y + gradient / diagonal, lower, upper)
    at_end = ((target == lower) | (target == upper)) & (stack.lo < stack.hi)
    d = np.where(at_end, target - at.y, 0.0)
    right = gradient.copy()
    right[:, : stack.n] = stack.divergence.residual(at.activity[:, : stack.n], stack.lo[:, : stack.n])
    right = right - _hessian_product(stack, derivative, d) if d.any() else right
    size = np.linalg.norm(np.where(at_end, 0.0, gradient / diagonal), axis=1)
    unit = np.maximum(np.linalg.norm(at.y, axis=1), np.linalg.norm(at.activity / diagonal, axis=1))
    distance = size / np.maximum(unit, TINY)
    forcing = np.minimum(0.1, np.sqrt(distance))
    # Inequalities may have several multipliers; the shift limits the step, as for one matrix.
    shift = 0.0 if stack.alone else np.minimum(1.0, distance)[:, None] * diagonal
    d += stacked_conjugate_gradients(
        lambda v: _hessian_product(stack, derivative, v) + shift * v,
        np.where(at_end, 0.0, right),
        diagonal,
        forcing,
        tuning.cg_steps,
    )
    moved = _searched(stack, at, gradient, d, (lower, upper), tuning.shortest_newton_step, tuning)
    if not moved.all():
        left = np.flatnonzero(~moved)
        own, step = at[left], (gradient / diagonal)[left]
        ends = lower[left], upper[left]
        least = tuning.shortest_gradient_step
        rose = _searched(stack[left], own, gradient[left], step, ends, least, tuning)
        at.replaced(left, own)
        moved[left] = rose
    return moved


def _gradient(stack: EntryStack, at: _Points) -> tuple[Array, Array, Array]:
    """Return the gradient, and the range of the multipliers on the present side of each bound."""
    y, a, free = at.y, at.activity, stack.lo == stack.hi
    side = np.where(y != 0, np.sign(y), np.where(a < stack.lo, 1.0, np.where(a > stack.hi, -1.0, 0.0)))
    nearest = np.where(free | (side > 0), stack.lo, stack.hi)
    used = free | (side != 0)
    gradient = np.where(used, np.where(used, nearest, 0.0) - a, 0.0)
    lower = np.where(free | (side < 0), -np.inf, 0.0)
    upper = np.where(free | (side > 0), np.inf, 0.0)
    return gradient, lower, upper


def _searched(
    stack: EntryStack,
    at: _Points,
    gradient: Array,
    d: Array,
    ends: tuple[Array, Array],
    least: float,
    tuning: ProjectionTuning,
) -> Mask:
    """Move points along their projected steps to the first of sufficient increase (Armijo), in place."""
    moved = np.zeros(len(stack), dtype=bool)
    noise = tuning.newton_noise * (np.abs(at.dual) + stack.divergence.unit)
    left, alpha = np.arange(len(stack)), 1.0
    while len(left) and alpha > least:
        y = np.clip(at.y[left] + alpha * d[left], ends[0][left], ends[1][left])
        rise = (gradient[left] * (y - at.y[left])).sum(axis=1)
        new = _points(stack if len(left) == len(stack) else stack[left], y)
        enough = at.dual[left] + tuning.armijo_fraction * rise - noise[left]
        taken = (rise > 0) & (new.dual >= enough)
        at.replaced(left[taken], new[taken])
        moved[left[taken]] = True
        left, alpha = left[~taken], alpha / 2
    return moved


def _hessian_product(stack: EntryStack, derivative: StackedDerivative, v: Array) -> Array:
    """Return the products with the negative Hessians of the dual functions, shape (B, m)."""
    P, V = derivative.P, derivative.V
    SV = v[:, :, None] * V if stack.alone else stack.adjoint(v) @ V
    R = V @ np.swapaxes((np.swapaxes(P, 1, 2) @ SV) * derivative.G, 1, 2)
    if stack.alone:
        product = 2 * np.einsum("bip,bip->bi", P, R)
    else:
        M = stack.apply(P @ np.swapaxes(R, 1, 2))
        product = M + (R @ np.swapaxes(P, 1, 2))[:, stack.i, stack.j]
    weight = np.where(stack.i == stack.j, 1.0, 0.5)
    return derivative.sign[:, None] * product + derivative.share[:, None] * weight * v


def _hessian_diagonal(stack: EntryStack, derivative: StackedDerivative, tuning: ProjectionTuning) -> Array:
    """Return the approximate diagonals of these Hessians, bounded away from zero, shape (B, m)."""
    P, V = derivative.P**2, derivative.V**2
    half = P @ derivative.G
    if stack.alone:
        both = 2 * np.einsum("bin,bin->bi", half, V)
    else:
        full = half @ np.swapaxes(V, 1, 2)
        both = stack.apply(full) + full[:, stack.j, stack.i]
    weight = np.where(stack.i == stack.j, 1.0, 0.5)
    diagonal = weight * (derivative.sign[:, None] * both + derivative.share[:, None])
    least = tuning.least_curvature * np.abs(diagonal).max(axis=1, keepdims=True)
    return np.maximum(diagonal, np.maximum(least, TINY))
