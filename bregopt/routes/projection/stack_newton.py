"""Newton's method on the duals of a stack of problems, each step in a few calls for the whole stack.

The method is that of :mod:`bregopt.routes.projection.dual_newton` for rows on single entries. A problem
leaves the stack when it meets the rule, or when it stalls. Stalled problems have no answer here: the caller
solves them one by one, where infeasibility is proven.

Small Hessians are formed, and the answers go on to round-off, which costs a step. Of others conjugate
gradients take products, and the answers end at the accuracy asked for.

Bounds of all entries are as many rows as the matrix has entries, and few of them act. Then the method runs
on the fixed entries and on the bounds that the start or the target violates. Bounds that its answer violates
join them, until none does.

LogDet with a prescribed diagonal alone has Newton's method in the primal.
With ``R = inv(X0)`` it minimizes ``<R, X> - logdet X``, a self-concordant function, over the matrices with
that diagonal. A step has multipliers ``y`` with ``(X o X) y = diag(X R X) - diag(X)``. The step is ``X N``
with ``N = I - Z X`` and ``Z = R - Diag(y)``. After a full step the product of ``Z`` and the new ``X`` is
``I - N^2``, so ``y`` proves the new ``X`` optimal up to about half the sum of the squares of ``N^2``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.certify import Certificate
from bregopt.certify.certificate import NEGLIGIBLE_OBJECTIVE
from bregopt.certify.stacks import (
    Certified,
    Near,
    OnRows,
    StackedAnswer,
    StackedCertificate,
    StackRule,
    certified,
    joined,
    near_minimizers,
    on_rows,
    relative_gap,
    row_residual,
    stacked_conjugate_gradients,
)
from bregopt.clock import checkpoint
from bregopt.program.stacks import (
    EntryStack,
    StackedDerivative,
    StackedLogDet,
    diagonal_of,
    inner,
    solutions_of,
    spectra_of,
)

_LIMIT = 500  # of the steps where the option `max_iter` gives none
_ARMIJO, _NOISE = 1e-4, 1e-13  # least rise in a line search relative to the slope, and its round-off
_SHORTEST_NEWTON_STEP, _SHORTEST_STEP = 1e-3, 1e-12  # along Newton's direction; along the scaled gradient
_CG_STEPS = 200  # limit for one Newton direction
_LEAST_CURVATURE = 1e-8  # of a row, relative to the largest: a singular point may have none
_WORKING_SET_ROWS = 5_000  # with bounds, in all matrices; more take rounds
_LOGDET_STEPS = 20  # limit on the steps; the single solve needs fewer where X0 is far from the diagonal
_FULL = 0.3  # Newton decrement up to which a full step converges quadratically
_SHARE = NEGLIGIBLE_OBJECTIVE  # least size of the objective in a gap, as the scale of the divergence is one

_ROUNDS = 12  # limit on the rounds; the problems of panels take 1 to 4
_NEAR = 0.03  # distance from a bound, relative to the diagonal, within which it may act in the next answer
# Limit on the steps. Feasible problems take 3 to 10; the single solve proves that others have no answer.
_STEPS = 20
_TESTED = (2, 4, 8)  # steps at which infeasible problems leave the stack
# Multiplications, of at most `_TOGETHER` problems, up to which Hessians are formed: one problem of order 32.
_FORMED, _TOGETHER = 2**20, 8
_ENOUGH = 1e-13  # relative error of the rows at which such a method ends
_RIDGE = 1e-12  # of a formed Hessian, relative to its diagonal, as it may be singular


def logdet_newton_stack(
    stack: EntryStack, rule: StackRule, limit: int, watched: list[Any] | None = None
) -> StackedAnswer:
    """Return the answers that meet the rule; none if there are rows off the diagonal."""
    found: list[StackedAnswer] = []
    if len(stack.i) == 0:
        X = stack.divergence.X0
        own = OnRows(np.ones(X.shape[:2]), X, stack.lo, np.ones(len(X), dtype=bool))
        exact, last = Near(np.zeros(len(X)), np.zeros(len(X))), np.full(len(X), np.inf)
        return certified(stack, own, np.zeros(stack.lo.shape), np.arange(len(X)), rule, 0, exact, last).found
    if not stack.alone:
        return joined(found, stack)
    X0: Any = stack.divergence.X0
    live, X, R = np.arange(len(stack)), on_rows(stack, X0, stack.lo).X, stack.divergence.inverse
    last = np.full(len(stack), np.inf)
    for step in range(min(limit, _LOGDET_STEPS)):
        checkpoint()
        y, N = _multipliers(X, R)
        if watched is not None and step == 0:  # a certificate costs more than a step
            watched.append((X, y))
        decrement, length = _decrements(N)
        X = X + length[:, None, None] * (X @ N)
        X = (X + X.transpose(0, 2, 1)) / 2
        left, ready = decrement < np.inf, decrement**4 <= 2 * _SHARE * rule.tol
        if ready.any():
            which = slice(None) if ready.all() else np.flatnonzero(ready)
            problems, own = stack[which], on_rows(stack[which], X[which], y[which])
            distance = _near(X[which], R[which], decrement[which])
            answer = certified(problems, own, y[which], live[which], rule, step + 1, distance, last[which])
            last[which], left[which] = answer.last, ~answer.ends
            found.append(answer.found)
        if not left.all():
            live, stack, X, R, last = live[left], stack[left], X[left], R[left], last[left]
        if len(live) == 0:
            break
    return joined(found, stack)


def _near(X: Array, R: Array, decrement: Array) -> Near:
    """Return how far the optimum is after a full step, and by round-off.

    With ``E = N^2``, ``|E|_F = e``, the divergence of ``X`` from ``inv(Z)`` is at most ``e^2 / 2 / (1 - e)``.
    """
    e = decrement**2
    excess = np.where(e < 0.5, e**2 / 2 / np.maximum(1 - e, 0.5), np.inf)
    norms = np.sqrt(inner(X, X) * inner(R, R))
    rho = excess + np.sqrt(2 * excess) + EPS * norms  # above the inverse of t - log(1 + t)
    return Near(excess, np.where(rho < 0.5, rho / np.maximum(1 - rho, 0.5), np.inf))


def _decrements(N: Array) -> tuple[Array, Array]:
    """Return the Newton decrements and the lengths of the steps, by the eigenvalues ``v`` of ``N``.

    The decrement is the 2-norm of the ``v``, which are real. Where it is not small, the step has the length
    ``1 / (1 + b)`` of the largest guaranteed decrease, with their 8-norm ``b``, a bound on their magnitudes.
    """
    decrement = np.sqrt(np.maximum(inner(N, N.transpose(0, 2, 1)), 0.0))
    length = np.ones(len(N))
    large = ~(decrement <= _FULL)
    if large.any():
        fourth = N @ N
        fourth = fourth @ fourth
        bound = np.maximum(inner(fourth, fourth.transpose(0, 2, 1)), 0.0) ** 0.125
        length = np.where(large, 1 / (1 + bound), length)
    return decrement, length


def _multipliers(X: Array, R: Array) -> tuple[Array, Array]:
    """Return ``y`` of shape (B, n) and ``N`` of shape (B, n, n)."""
    P = R @ X
    right = np.add.reduce(X * P, axis=1) - diagonal_of(X)
    y = solutions_of(X * X, right)
    N = y[:, :, None] * X - P
    diagonal_of(N)[:] += 1
    return y, N


def solve_stack(
    stack: EntryStack, settings: Any, start: Array | None = None, watched: list[Any] | None = None
) -> StackedAnswer:
    """Solve a stack of nearness problems with bounds on entries; some of them may stay unsolved.

    Parameters
    ----------
    stack : EntryStack
    settings : BregmanSettings
    start : array of shape (B, m), optional
        Multipliers. LogDet's method has no use for them.
    watched : list, optional
        It takes the points of the only problem, on all rows, for :func:`certificates_at`.
    """
    limit = settings.max_iter or _LIMIT
    rule = StackRule(settings.tol, settings.asked_of_X)
    if isinstance(stack.divergence, StackedLogDet):
        return logdet_newton_stack(stack, rule, limit, watched)
    return _newton_on_acting_rows(stack, rule, limit, start, watched)


def point_at(stack: EntryStack, at: Any) -> tuple[Array, Array]:
    """Return the matrix on its rows and the multipliers of a point that was watched, shape (1, ...)."""
    if isinstance(at, _Points):
        X = _matrices(at.V, stack.divergence.eigenvalues(at.theta))
        return on_rows(stack, X, at.y).X, at.y
    X, y = at
    return on_rows(stack, X, y).X, y


def certificates_at(stack: EntryStack, watched: Sequence[Any], mu: float, offset: float) -> list[Certificate]:
    """Return the numbers of the points that were watched, at once: objective, bound and errors of rows.

    The objective is times `mu` plus `offset`. The points are minimizers of the Lagrangian, and the numbers
    count no round-off.
    """
    if not watched:
        return []
    divergence, residual = stack.divergence, np.zeros(len(watched))
    parts: list[Any] = list(zip(*watched, strict=True))
    if isinstance(stack.divergence, StackedLogDet):
        X, y = map(np.concatenate, parts)
        dual = np.add.reduce(stack.lo * y, axis=1) + divergence.dual_term(stack.adjoint(y))
        primal = divergence.value(X)
        loss = np.abs(primal - dual)
    else:
        points = _Points(*parts)
        y, a, theta = map(np.concatenate, (points.y, points.activity, points.theta))
        terms = stack.conjugate(y)
        dual = np.add.reduce(terms, axis=1) + divergence.term(theta)
        lack = np.add.reduce(y * a - terms, axis=1)
        missed = np.maximum(np.maximum(stack.lo - a, a - stack.hi), 0.0)
        primal, loss = dual + lack, np.abs(lack) + np.add.reduce(np.abs(y) * missed, axis=1)
        residual = np.maximum.reduce(missed / stack.units, axis=1, initial=0.0)
    gap = relative_gap(stack, primal, dual, loss)
    found = StackedCertificate(primal, dual, gap, residual, loss)
    return [found.of(k, mu, offset) for k in range(len(watched))]


# Pays on: 20 correlation matrices within bounds, n = 60.
def _newton_on_acting_rows(
    stack: EntryStack,
    rule: StackRule,
    limit: int,
    start: Array | None,
    watched: list[Any] | None,
) -> StackedAnswer:
    """Return the answers that meet the rule.

    Parameters
    ----------
    stack : EntryStack
    rule : StackRule
    limit : int
        On the steps of each round.
    start : array of shape (B, m) or None
        Multipliers.
    """
    bounded = 0 if stack.fixed else int((stack.lo < stack.hi).any(axis=0).sum())
    if len(stack) * bounded <= _WORKING_SET_ROWS:
        return _spectral_newton(stack, rule, limit, start, watched)
    used = (stack.lo == stack.hi).any(axis=0)
    used |= _reached(stack, stack.divergence.X0)
    if start is not None:
        used |= (start != 0).any(axis=0)
    live, y, found = np.arange(len(stack)), start, list[StackedAnswer]()
    steps = np.zeros(len(stack), dtype=np.intp)
    for _ in range(_ROUNDS):
        own = stack[live]
        answer = _spectral_newton(own.of_rows(used), rule, limit, None if y is None else y[live][:, used])
        live = live[answer.solved]  # the others stay unsolved
        steps[live] += answer.iterations
        y = np.zeros(stack.lo.shape) if y is None else y
        y[np.ix_(live, used)] = answer.y
        own = stack[live]
        residual, _ = row_residual(own, diagonal_of(answer.X), own.apply(answer.X), y[live])
        holds = residual <= rule.tol
        at, done = live[holds], answer.some(holds)
        # The multipliers of all other rows are zero, so the gap is that of all rows.
        worst = np.maximum(done.certificate.primal_residual, residual[holds])
        certificate = done.certificate._replace(primal_residual=worst)
        found.append(done._replace(solved=at, y=y[at], certificate=certificate, iterations=steps[at]))
        live = live[~holds]
        if len(live) == 0:
            break
        used |= _reached(own[~holds], answer.X[~holds])
    return joined(found, stack)


def _reached(stack: EntryStack, X: Array) -> Mask:
    """Return the mask of the rows that are violated, or nearly so, in one of the problems."""
    a, near = stack.apply(X), _NEAR * stack.divergence.X0.diagonal(axis1=1, axis2=2).mean(axis=1)[:, None]
    return np.any((a < stack.lo + near) | (a > stack.hi - near), axis=0)


class _Points(NamedTuple):
    """Multipliers, and what follows from them.

    Parameters
    ----------
    y : array of shape (B, m)
    theta, V : array of shape (B, n) and (B, n, n)
        The spectra of their matrices.
    activity, gradient : array of shape (B, m)
        The entries of these, and the gradient on the present side of each bound.
    missed : array of shape (B,)
        The largest error of a row, relative to the size of its entry.
    lower, upper : array of shape (B, m), or None
        The range of the multipliers on that side; None where all are free.
    """

    y: Array
    theta: Array
    V: Array
    activity: Array
    gradient: Array
    missed: Array
    lower: Array | None
    upper: Array | None

    def of(self, which: IntArray | Mask | slice) -> _Points:
        """Return some of the points."""
        own: Any = [None if part is None else part[which] for part in self]
        return _Points(*own)


def _spectral_newton(
    stack: EntryStack,
    rule: StackRule,
    limit: int,
    start: Array | None = None,
    watched: list[Any] | None = None,
) -> StackedAnswer:
    """Return the answers that meet the rule after at most `limit` steps, from `start` or cold."""
    at = _cold_start(stack) if start is None else _points(stack, stack.clip(start))
    count, found = len(stack), list[StackedAnswer]()
    live, left = np.arange(count), stack.divergence.term(at.theta) > -np.inf
    before, last = at.missed, np.inf + np.zeros(count)
    formed = (len(stack.i) * stack.n) ** 2 * min(count, _TOGETHER) <= _FORMED
    close = math.sqrt(rule.tol)
    for step in range(min(limit, _STEPS) + 1):
        if False in left:
            live, stack, at, before, last = live[left], stack[left], at.of(left), before[left], last[left]
        if len(live) == 0:
            break
        if watched is not None:
            watched.append(at)
        ready, left = at.missed <= close, at.missed < np.inf
        if formed and step:
            ready &= (at.missed <= _ENOUGH) | (at.missed > before / 2)
        before = at.missed
        if True in ready:
            which = np.flatnonzero(ready) if False in ready else slice(None)
            answer = _answered(stack[which], at.of(which), live[which], rule, step, last[which])
            last[which], left[which] = answer.last, ~answer.ends
            found.append(answer.found)
        if step in _TESTED and not stack.alone and False in ready:
            left &= ~_contradicts(stack, at.y)
        if step == limit or True not in left or len(stack.i) == 0:
            break
        checkpoint(stack.n)
        at, moved, solved = _advanced(stack, at, formed)
        if False in moved:
            before = np.where(moved, before, 0.0)  # a point near the answer that does not move is one
            left &= moved | ready
        left &= solved | (at.missed <= before / 2)
    return joined(found, stack)


def _answered(
    stack: EntryStack, at: _Points, live: IntArray, rule: StackRule, step: int, last: Array
) -> Certified:
    """Return the answers among points near the rows."""
    X = _matrices(at.V, stack.divergence.eigenvalues(at.theta))
    own = on_rows(stack, X, at.y)
    near = near_minimizers(stack, own, X, at.y, at.theta, at.V)
    return certified(stack, own, at.y, live, rule, step, near, last, at.theta)


def _cold_start(stack: EntryStack) -> _Points:
    """Return points of multipliers of the diagonal that depend on the targets alone, zero for other rows."""
    y = np.zeros(stack.lo.shape)
    if len(stack.i) == 0:
        return _points(stack, y)
    y[:, : stack.n], *spectra = stack.divergence.start(stack.lo[:, : stack.n])
    return _points(stack, y, spectra)


def _contradicts(stack: EntryStack, y: Array) -> Mask:
    """Return the mask of problems that have no feasible point, as their multipliers prove.

    The activity ``y'A(X)`` of feasible ``X`` is at least ``g(y)``, and at most the trace times the largest
    eigenvalue of ``A*(y)``.
    """
    largest = np.maximum(np.linalg.eigvalsh(stack.adjoint(y))[:, -1], 0.0)
    return stack.conjugate(y).sum(axis=1) > 1.01 * largest * stack.lo[:, : stack.n].sum(axis=1)


def _points(stack: EntryStack, y: Array, spectra: Any = None) -> _Points:
    """Return the points of given multipliers."""
    divergence = stack.divergence
    if spectra is None:
        spectra = spectra_of(stack.plus(divergence.origin, divergence.rate * y))
    theta, V = spectra
    x = divergence.eigenvalues(theta)
    a = ((V * V) @ x[:, :, None])[:, :, 0] if stack.alone else stack.apply(_matrices(V, x))
    gradient, lower, upper = (stack.lo - a, None, None) if stack.fixed else _gradient(stack, y, a)
    missed = np.maximum.reduce(np.abs(gradient) / stack.units, axis=1, initial=0.0)
    return _Points(y, theta, V, a, gradient, missed, lower, upper)


def _gradient(stack: EntryStack, y: Array, a: Array) -> tuple[Array, Array, Array]:
    """Return the gradient, and the range of the multipliers on the present side of each bound."""
    free = stack.lo == stack.hi
    side = np.where(y != 0, np.sign(y), np.where(a < stack.lo, 1.0, np.where(a > stack.hi, -1.0, 0.0)))
    nearest = np.where(free | (side > 0), stack.lo, stack.hi)
    used = free | (side != 0)
    gradient = np.where(used, np.where(used, nearest, 0.0) - a, 0.0)
    lower = np.where(free | (side < 0), -np.inf, 0.0)
    upper = np.where(free | (side > 0), np.inf, 0.0)
    return gradient, lower, upper


def _dual(stack: EntryStack, at: _Points) -> Array:
    """Return the values of the dual functions, ``-inf`` outside of their domains."""
    return np.add.reduce(stack.conjugate(at.y), axis=1) + stack.divergence.term(at.theta)


def _matrices(V: Array, x: Array) -> Array:
    """Return ``V diag(x) V'``, exactly symmetric."""
    half = V * np.sqrt(x)[:, None, :]
    X = half @ half.transpose(0, 2, 1)
    return (X + X.transpose(0, 2, 1)) / 2


def _advanced(stack: EntryStack, at: _Points, formed: bool) -> tuple[_Points, Mask, Mask]:
    """Return the points after a step, and the masks of those that moved and whose step is Newton's.

    Where all rows are fixed, a step that halves the error needs no search.
    """
    d, diagonal, solved = _direction(stack, at, formed)
    if stack.fixed:
        new = _points(stack, at.y + d)
        halved = new.missed <= at.missed / 2
        if False not in halved:
            return new, halved, solved
    new, moved = _searched(stack, at, d, _SHORTEST_NEWTON_STEP)
    if False in moved:
        left = np.flatnonzero(~moved)
        step = (at.gradient / diagonal)[left]
        rose, moved[left] = _searched(stack[left], at.of(left), step, _SHORTEST_STEP)
        _replace(new, left, rose)
    return new, moved, solved


def _direction(stack: EntryStack, at: _Points, formed: bool) -> tuple[Array, Array, Mask]:
    """Return Newton's directions, the diagonals of the Hessians, and the mask of the systems that are solved.

    Conjugate gradients do not solve systems of large condition; the method for one program factorizes these.
    """
    solved = at.missed < np.inf  # which each point is here
    derivative = stack.divergence.derivative(at.theta, at.V)
    if formed:
        H = _hessian(stack, derivative)
        of_H = diagonal_of(H)
        diagonal = _away_from_zero(of_H)

        def product(v: Array) -> Array:
            return (H @ v[:, :, None])[:, :, 0]

    else:
        diagonal = _away_from_zero(_hessian_diagonal(stack, derivative))

        def product(v: Array) -> Array:
            # Products with the negative Hessians of the dual functions, shape (B, m).
            P, V = derivative.P, derivative.V
            inside = P.transpose(0, 2, 1) @ stack.times(v, V)
            R = V @ np.swapaxes(inside * derivative.G, 1, 2)
            weight = 1.0 if stack.alone else np.where(stack.i == stack.j, 1.0, 0.5)
            return derivative.sign * stack.entries_of(P, R) + derivative.share * weight * v

    if formed and stack.alone:
        of_H += _RIDGE * diagonal
        return solutions_of(H, stack.divergence.residual(at.activity, stack.lo)), diagonal, solved
    right = at.gradient.copy()
    right[:, : stack.n] = stack.divergence.residual(at.activity[:, : stack.n], stack.lo[:, : stack.n])
    known, at_end = np.zeros_like(right), np.zeros(right.shape, dtype=bool)
    if at.lower is not None:
        target = np.clip(at.y + at.gradient / diagonal, at.lower, at.upper)
        at_end = ((target == at.lower) | (target == at.upper)) & (stack.lo < stack.hi)
        known = np.where(at_end, target - at.y, 0.0)
        right = np.where(at_end, 0.0, right - product(known))
    size = np.linalg.norm(np.where(at_end, 0.0, at.gradient / diagonal), axis=1)
    unit = np.maximum(np.linalg.norm(at.y, axis=1), np.linalg.norm(at.activity / diagonal, axis=1))
    distance = size / np.maximum(unit, TINY)
    # Inequalities may have several multipliers; the shift limits the step, as for one matrix.
    shift: Any = 0.0 if stack.alone else np.minimum(1.0, distance)[:, None] * diagonal
    if formed:
        H = np.where(at_end[:, :, None] | at_end[:, None, :], 0.0, H)
        diagonal_of(H)[:] += np.where(at_end, 1.0, shift + _RIDGE * diagonal)
        return known + solutions_of(H, right), diagonal, solved
    forcing = np.minimum(0.1, np.sqrt(distance))
    step, left = stacked_conjugate_gradients(
        lambda v: product(v) + shift * v, right, diagonal, forcing, _CG_STEPS
    )
    return known + step, diagonal, ~left


def _searched(stack: EntryStack, at: _Points, d: Array, least: float) -> tuple[_Points, Mask]:
    """Return the first points of sufficient increase (Armijo) along projected steps, and the mask of these.

    The others stay.
    """
    before = _dual(stack, at)
    floor = before - _NOISE * (np.abs(before) + stack.divergence.unit)

    def tried(left: Any, alpha: float) -> tuple[_Points, Mask]:
        own = at.of(left)
        y = own.y + alpha * d[left]
        if own.lower is not None:
            y = np.clip(y, own.lower, own.upper)
        rise = np.add.reduce(own.gradient * (y - own.y), axis=1)
        problems = stack[left]
        new = _points(problems, y)
        enough = floor[left] + _ARMIJO * rise
        return new, (rise > 0) & (_dual(problems, new) >= enough)

    found, moved = tried(slice(None), 1.0)
    alpha = 0.5
    while alpha > least and not moved.all():
        left = np.flatnonzero(~moved)
        new, taken = tried(left, alpha)
        _replace(found, left[taken], new.of(taken))
        moved[left[taken]] = True
        alpha /= 2
    left = np.flatnonzero(~moved)
    _replace(found, left, at.of(left))
    return found, moved


def _replace(points: _Points, which: IntArray, new: _Points) -> None:
    """Overwrite some of the points."""
    for own, value in zip(points, new, strict=True):
        if own is not None:
            own[which] = value


def _hessian(stack: EntryStack, derivative: StackedDerivative) -> Array:
    """Return the negative Hessians of the dual functions, shape (B, m, m) (Qi and Sun 2006).

    They are ``share I + 2 sign M M'`` with a row ``P'A_kV o sqrt(G)`` of ``M`` for each row of the problem.
    """
    P, V, i, j = derivative.P, derivative.V, stack.i, stack.j
    if stack.alone:
        M = P[:, :, :, None] * V[:, :, None, :]
    else:
        M = (P[:, i, :, None] * V[:, j, None, :] + P[:, j, :, None] * V[:, i, None, :]) / 2
    M *= np.sqrt(2 * derivative.G)[:, None]
    M = M.reshape(len(V), len(i), -1)
    H = M @ M.transpose(0, 2, 1)
    if derivative.share:
        H *= derivative.sign
        diagonal_of(H)[:] += derivative.share * (1.0 if stack.alone else np.where(i == j, 1.0, 0.5))
    return H


def _hessian_diagonal(stack: EntryStack, derivative: StackedDerivative) -> Array:
    """Return the approximate diagonals of these Hessians, shape (B, m)."""
    both = stack.entries_of(derivative.P**2 @ derivative.G, derivative.V**2)
    weight = np.where(stack.i == stack.j, 1.0, 0.5)
    return weight * (derivative.sign * both + derivative.share)


def _away_from_zero(diagonal: Array) -> Array:
    """Return diagonals that precondition: a singular point may have no curvature along a row."""
    least = _LEAST_CURVATURE * np.maximum.reduce(diagonal, axis=1, keepdims=True, initial=TINY)
    return np.maximum(diagonal, np.maximum(least, TINY))
