"""Certificates and accuracies of a stack of problems, and answers on their rows, all in a few calls.

Certificates are a function of the problems, their matrices and multipliers, and of nothing else. Of the
general certificate (:func:`bregopt.certify.certify`) there remain: rows on single entries, a diagonal that is
fixed, and one block with a divergence. So it is for feasible matrices (:mod:`bregopt.certify.restoration`)
and the distance of entries from the optimum (:mod:`bregopt.certify.accuracy`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.certify.certificate import ROUND_OFF_OF_TERMS, Certificate
from bregopt.certify.point import CONE_NOISE, ROW_NOISE
from bregopt.clock import checkpoint
from bregopt.divergences.spectrum import exp_divided_differences
from bregopt.program.program import StopReason
from bregopt.program.stacks import EntryStack, diagonal_of, inner

_STEPS = 6  # to the rows
_CG_STEPS, _CG_RATIO = 60, 1e-3
_ROUND_OFF = 16 * EPS


class StackedCertificate(NamedTuple):
    """The fields of :class:`Certificate`, each an array of shape ``(B,)``; the dual residual is zero."""

    primal: Array
    dual: Array
    gap: Array
    primal_residual: Array
    error: Array

    def meets(self, tol: float) -> Mask:
        """Whether gap and residual are at most `tol`; a NaN meets nothing."""
        return (self.gap <= tol) & (self.primal_residual <= tol)

    def of(self, k: int, mu: float = 1.0, offset: float = 0.0) -> Certificate:
        """Return the certificate of one problem, whose objective is times `mu` plus `offset`."""
        primal, dual, gap, residual, error = map(float, map(itemgetter(k), self))
        return Certificate(mu * primal + offset, mu * dual + offset, gap, residual, 0.0, mu * error)

    def statuses(self, tol: float) -> list[str]:
        """Return the status of each answer."""
        stop = StopReason.INACCURATE
        return [self.of(k).status(tol, stop).value for k in range(len(self.primal))]

    def some(self, which: IntArray | Mask) -> StackedCertificate:
        """Return the certificates of some of the problems."""
        return StackedCertificate(*(own[which] for own in self))


def certify_stack(stack: EntryStack, X: Array, y: Array, theta: Array | None = None) -> StackedCertificate:
    """Return the certificate of each problem.

    Parameters
    ----------
    stack : EntryStack
    X : array of shape (B, n, n)
        Symmetric.
    y : array of shape (B, m)
        Multipliers, positive at lower bounds; clipped to their range.
    theta : array of shape (B, n), optional
        The eigenvalues at multipliers in their range, where they are at hand and a congruence by a diagonal
        has made `X` of the psd minimizers. Otherwise they are computed.

    Returns
    -------
    StackedCertificate
    """
    divergence, y = stack.divergence, stack.clip(y) if theta is None else y
    primal = divergence.value(X)
    dual = np.add.reduce(stack.conjugate(y), axis=1) + divergence.dual_term(stack.adjoint(y), theta)
    round_off = ROUND_OFF_OF_TERMS * divergence.unit
    dual = np.where(dual <= primal + round_off, np.minimum(dual, primal), dual)
    residual, loss = row_residual(stack, diagonal_of(X), stack.apply(X), y)
    congruent = theta is not None and (stack.alone or len(stack.i) == 0)
    if divergence.quadratic and not congruent:  # the others are infinite outside the cone
        residual = np.maximum(residual, _cone_residual(stack, X))
    error = np.abs(primal - dual) + divergence.evaluation_error(X, primal) + loss
    return StackedCertificate(primal, dual, relative_gap(stack, primal, dual, error), residual, error)


def relative_gap(stack: EntryStack, primal: Array, dual: Array, error: Array) -> Array:
    """Return each error relative to the magnitude of the objective."""
    size = np.maximum(np.abs(primal), np.abs(dual))
    size = np.maximum(size, stack.divergence.resolution * stack.divergence.unit + TINY)
    return np.where(error < np.inf, error / size, np.inf)


def row_residual(stack: EntryStack, diagonal: Array, activity: Array, y: Array) -> tuple[Array, Array]:
    """Return the largest relative violation of a row in each problem, and the cost of all of them at `y`."""
    missed = np.maximum(np.maximum(stack.lo - activity, activity - stack.hi), 0.0)
    if not np.logical_or.reduce(missed, axis=None):
        return np.zeros(len(missed)), np.zeros(len(missed))
    norms = np.where(stack.i == stack.j, 1.0, np.sqrt(0.5))
    lo, hi = (np.where(np.isfinite(end), np.abs(end), 0.0) for end in (stack.lo, stack.hi))
    sizes = np.maximum(lo, hi)
    X0 = stack.divergence.X0
    rho = np.maximum((sizes / norms).max(axis=1, initial=0.0), np.sqrt(inner(X0, X0)))[:, None]
    root = np.sqrt(np.maximum(diagonal, 0.0))
    floor = ROW_NOISE * norms * rho
    reach = np.maximum(np.maximum(sizes, floor), root[:, stack.i] * root[:, stack.j])
    round_off = (reach <= floor) & (missed <= 4 * EPS * norms * rho)
    stated = np.maximum(sizes, norms * rho)
    relative = np.where(round_off, 0.0, missed) / np.maximum(np.minimum(reach, stated), TINY)
    residual: Array = relative.max(axis=1, initial=0.0)
    return residual, np.add.reduce(np.abs(y) * missed, axis=1)


def _cone_residual(stack: EntryStack, X: Array) -> Array:
    """Return the relative distance of each matrix from the cone."""
    n = X.shape[1]
    average = X.trace(axis1=1, axis2=2) / n
    noisy = X + (CONE_NOISE * np.abs(average))[:, None, None] * np.eye(n)
    try:
        np.linalg.cholesky(noisy)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(noisy)[:, 0]
        return np.maximum(-smallest, 0.0) / np.maximum(average, TINY)
    return np.zeros(len(X))


class StackRule(NamedTuple):
    """When a problem leaves the stack: as :class:`~bregopt.routes.accuracy.NearnessRule` for one.

    Parameters
    ----------
    tol, tol_X : float
    """

    tol: float
    tol_X: float

    def distance(self, stack: EntryStack, certificate: StackedCertificate, near: Near) -> Array:
        """Return how far answers are from what is asked for: one or less is near enough, shape (B,).

        They end where they are near enough, or where a step does not halve the distance.
        """
        size = np.maximum(np.abs(certificate.primal), np.abs(certificate.dual))
        excess = near.excess / np.maximum(self.tol * size, TINY)
        known = near.excess <= ROUND_OFF_OF_TERMS * stack.divergence.unit
        return np.maximum(near.largest / self.tol_X, np.where(known, 0.0, excess))


class StackedAnswer(NamedTuple):
    """The answers of the problems that are solved.

    Parameters
    ----------
    solved : int array of shape (k,)
        Their indices in the stack.
    X : array of shape (k, n, n)
    y : array of shape (k, m)
        Multipliers, positive at lower bounds.
    certificate : StackedCertificate
        Each meets the tolerance.
    iterations : int array of shape (k,)
    accuracy : array of shape (k,)
        Bounds on the distances of entries from the optimum, relative to ``sqrt(X_ii X_jj)`` where the
        diagonal is fixed, else to the largest entry; infinite where nothing is known.
    """

    solved: IntArray
    X: Array
    y: Array
    certificate: StackedCertificate
    iterations: IntArray
    accuracy: Array

    def some(self, which: IntArray | Mask) -> StackedAnswer:
        """Return some of the answers."""
        parts = {name: own[which] for name, own in self._asdict().items() if name != "certificate"}
        return StackedAnswer(certificate=self.certificate.some(which), **parts)


class OnRows(NamedTuple):
    """Matrices ``T X T'`` on the rows, up to round-off.

    Parameters
    ----------
    T : array of shape (B, n, n), or (B, n) where diagonal
    X : array of shape (B, n, n)
    activity : array of shape (B, m)
    met : boolean array of shape (B,)
        Where the rows are met.
    """

    T: Array
    X: Array
    activity: Array
    met: Mask


class Near(NamedTuple):
    """How far the optimum is from matrices on the rows.

    Parameters
    ----------
    excess : array of shape (B,)
        Bounds on the differences of the objectives and the dual values.
    largest : array of shape (B,)
        As the `accuracy` of answers.
    """

    excess: Array
    largest: Array


def _scaled(stack: EntryStack, X: Array) -> OnRows:
    d = np.sqrt(stack.lo / np.maximum(diagonal_of(X), TINY))
    X = X * (d[:, :, None] * d[:, None, :])  # which is symmetric to the last bit
    diagonal_of(X)[:] = stack.lo
    return OnRows(d, X, stack.lo, np.logical_and.reduce(np.isfinite(d), axis=1))


def on_rows(stack: EntryStack, X: Array, y: Array) -> OnRows:
    """Return the matrices moved onto their rows by congruences.

    Parameters
    ----------
    stack : EntryStack
    X : array of shape (B, n, n)
        Psd.
    y : array of shape (B, m)
    """
    if stack.alone:
        return _scaled(stack, X)
    n, diagonal = stack.n, stack.i == stack.j
    T, first = np.broadcast_to(np.eye(n), X.shape).copy(), X
    held = np.zeros(stack.lo.shape, dtype=bool)
    mean = np.maximum(X.trace(axis1=1, axis2=2) / n, TINY)[:, None]
    response = np.where(diagonal, 1.0, 0.5) * (0.5 if stack.divergence.quadratic else mean)
    met = np.zeros(len(X), dtype=bool)
    exact = a = stack.apply(X)
    for _ in range(_STEPS):
        a = stack.apply(X)
        slack = np.where(y > 0, a - stack.lo, stack.hi - a)
        held |= (
            (stack.lo == stack.hi)
            | (a < stack.lo)
            | (a > stack.hi)
            | ((y != 0) & (slack <= np.abs(y) * response))
        )
        upper = (a > stack.hi) | ((a >= stack.lo) & (y < 0))
        end = np.where(upper, stack.hi, stack.lo)
        exact = np.where(held & np.isfinite(end), end, a)
        residual = exact - a
        size = X.diagonal(axis1=1, axis2=2).max(axis=1)[:, None]
        met = (np.abs(residual) <= _ROUND_OFF * n * size).all(axis=1)
        if met.all():
            break
        x = X.diagonal(axis1=1, axis2=2)
        jacobi = np.where(diagonal, 1.0, 0.5) * (x[:, stack.i] + x[:, stack.j])
        residual[met] = 0.0
        t, left = stacked_conjugate_gradients(
            partial(_moved, stack, X),
            residual,
            np.maximum(jacobi, TINY),
            np.full(len(X), _CG_RATIO),
            _CG_STEPS,
        )
        if left.all():
            break
        T = T + stack.times(t, T)
        M = T @ first @ T.transpose(0, 2, 1)
        X = (M + M.transpose(0, 2, 1)) / 2
    X = X.copy()
    for i, j in ((stack.i, stack.j), (stack.j, stack.i)):
        X[:, i, j] = np.where(held, exact, a)
    return OnRows(T, X, exact, met)


def _moved(stack: EntryStack, X: Array, v: Array) -> Array:
    half = stack.times(v, X)
    return stack.apply(half) + half[:, stack.j, stack.i]


def near_minimizers(stack: EntryStack, own: OnRows, X: Array, y: Array, theta: Array, V: Array) -> Near:
    """Return how far the optimum is, from the minimizers `X` of the Lagrangian by their spectra."""
    change = own.X - X
    square = inner(change, change)
    rows = _row_terms(stack, own.activity, y)
    round_off = stack.n * EPS * np.maximum.reduce(np.abs(theta), axis=1)
    if stack.divergence.quadratic:
        T = own.T[:, :, None] * V if own.T.ndim == 2 else own.T @ V
        G = V.transpose(0, 2, 1) @ T
        least, most = np.maximum(-theta, 0.0), np.maximum(theta, 0.0)
        others = 2 * inner(G * G, least[:, :, None] * most[:, None, :]) + rows
        radius = frobenius_radius(np.sqrt(square), others) + round_off
        return Near(square + others, _relative(stack, own.X, radius))
    E = V.transpose(0, 2, 1) @ change @ V
    mean = np.maximum(exp_divided_differences(theta), TINY)
    half = np.exp(theta / 2)
    relative = E / np.maximum(half[:, :, None] * half[:, None, :], TINY)
    share = np.sqrt(inner(relative, relative))
    local = (E * E / mean).sum(axis=(1, 2)) / 2 / np.maximum(1 - share, 0.5)
    excess = np.where(share <= 0.5, local, np.inf) + rows
    top = np.exp(theta[:, -1]) + np.sqrt(square)
    top += excess + np.sqrt(excess**2 + 2 * excess * top)
    return Near(excess, _relative(stack, own.X, np.sqrt(2 * excess * top) + round_off * top))


def frobenius_radius(distance: Any, excess: Any) -> Any:
    """Return a bound on ``|F - X*|`` from ``|F - X*|^2 + |X* - X_y|^2 <= distance^2 + excess``.

    Parameters
    ----------
    distance : float or array
        ``|F - X_y|``.
    excess : float or array
        ``f(F) - d(y) - mu distance^2``, divided by ``mu``.
    """
    return distance / 2 + np.sqrt(distance**2 / 4 + excess / 2)


def _row_terms(stack: EntryStack, activity: Array, y: Array) -> Array:
    """Return the rows' part of the difference between objective and bound; a diagonal alone is exact."""
    if stack.alone:
        return np.zeros(len(y))
    end = np.where(y > 0, stack.lo, stack.hi)
    terms = y * np.where(y == 0, 0.0, activity - np.where(y == 0, 0.0, end))
    return np.maximum(terms, 0.0).sum(axis=1)


def _relative(stack: EntryStack, X: Array, radius: Array) -> Array:
    """Return bounds on entries off the diagonal, relative, from one on the Frobenius norm."""
    diagonal = X.diagonal(axis1=1, axis2=2).copy()
    diagonal.sort(axis=1)
    if len(stack.i) == 0:
        return radius / np.maximum(diagonal[:, -1], TINY)
    if stack.n == 1:
        return np.zeros(len(X))
    return radius / np.sqrt(np.maximum(2 * diagonal[:, 0] * diagonal[:, 1], TINY))


class Certified(NamedTuple):
    """Points that were certified.

    Parameters
    ----------
    found : StackedAnswer
        Those that end and meet the tolerance.
    ends : boolean array of shape (B,)
        Their mask.
    last : array of shape (B,)
        The distances from what the rule asks for.
    """

    found: StackedAnswer
    ends: Mask
    last: Array


def certified(
    stack: EntryStack,
    own: OnRows,
    y: Array,
    live: IntArray,
    rule: StackRule,
    step: int,
    near: Near,
    last: Array,
    theta: Array | None = None,
) -> Certified:
    """Return the answers that meet the tolerance, and end by the rule.

    Parameters
    ----------
    live : int array of shape (B,)
        The indices of the problems.
    last : array of shape (B,)
        Their distances from what the rule asks for, at the last certificate.
    theta : array of shape (B, n), optional
        The eigenvalues at the multipliers, where the matrices are congruent to the minimizers.
    """
    ahead = near.largest / rule.tol_X
    if np.logical_and.reduce((ahead > 1) & (ahead <= last / 2)):  # all take another step in any case
        none = np.zeros(len(live), dtype=bool)
        return Certified(joined([], stack), none, ahead)
    certificate = certify_stack(stack, own.X, y, theta)
    met = certificate.meets(rule.tol) & own.met
    distance = rule.distance(stack, certificate, near)
    ends = met & ~((distance > 1) & (distance <= last / 2))
    last = np.where(met, distance, last)
    found = StackedAnswer(live, own.X, y, certificate, 0 * live + step, near.largest)
    return Certified(found if np.logical_and.reduce(ends) else found.some(ends), ends, last)


def joined(parts: list[StackedAnswer], stack: EntryStack) -> StackedAnswer:
    """Return the answers of several parts of a stack as one; without a part, none."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0)
        certificate = StackedCertificate(none, none, none, none, none)
        n, index = stack.n, np.zeros(0, dtype=np.intp)
        nothing = np.zeros((0, n, n)), np.zeros((0, stack.lo.shape[1]))
        return StackedAnswer(index, *nothing, certificate, index, none)
    certificates = zip(*(part.certificate for part in parts), strict=True)
    names = [name for name in StackedAnswer._fields if name != "certificate"]
    own = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return StackedAnswer(certificate=StackedCertificate(*map(np.concatenate, certificates)), **own)


def stacked_conjugate_gradients(
    product: Callable[[Array], Array], right: Array, diagonal: Array, forcing: Array, limit: int
) -> tuple[Array, Mask]:
    """Solve positive semidefinite systems, preconditioned by their diagonals, to relative residuals.

    A component whose right-hand side is zero because its multiplier is at an end stays zero. The mask marks
    the systems that are not solved after so many products.
    """
    free = right != 0
    x, r = np.zeros_like(right), right.copy()
    z = r / diagonal
    p = z
    rz = (r * z).sum(axis=1)
    enough = forcing**2 * rz
    for _ in range(limit):
        active = rz > enough
        if not active.any():
            break
        checkpoint()
        Hp = np.where(free, product(p), 0.0)
        curvature = (p * Hp).sum(axis=1)
        active &= curvature > 1e-14 * (p * p * diagonal).sum(axis=1)
        alpha = np.where(active, rz / np.where(active, curvature, 1.0), 0.0)[:, None]
        x += alpha * p
        r -= alpha * Hp
        z = r / diagonal
        new = (r * z).sum(axis=1)
        p = z + np.where(active, new / np.maximum(rz, TINY), 0.0)[:, None] * p
        rz = np.where(active, new, 0.0)
    return x, rz > enough
