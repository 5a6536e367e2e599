"""The certificates of :func:`bregopt.certify.certify` for a stack of problems, all in one call.

They are a function of the problems, their matrices and multipliers, and of nothing else. Of the general
certificate there remain: rows on single entries, a diagonal that is fixed, and one block with a divergence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.certify.certificate import Certificate
from bregopt.certify.constants import CONE_NOISE, ROUND_OFF_OF_TERMS, ROW_NOISE
from bregopt.divergences.stacks import inner
from bregopt.linalg import diagonal_of
from bregopt.program.answer import StopReason
from bregopt.program.entry_stack import EntryStack

__all__ = ["StackedCertificate", "certify_stack", "relative_gap", "row_residual"]


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

    def of(self, k: int) -> Certificate:
        """Return the certificate of one problem."""
        primal, dual, gap, residual, error = (float(own[k]) for own in self)
        return Certificate(primal, dual, gap, residual, 0.0, error)

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
    if not missed.any():
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
