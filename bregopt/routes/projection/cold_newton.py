"""Newton's method on the dual for small nearest correlation matrices, to nearly all digits.

For small orders the Hessian is formed in less time than conjugate gradients take, and a step costs no more
than the certificate of a point. So the method goes on to round-off from a cold start, one certificate at its
end proves the answers, and these are ready for derivatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.stacks import StackedCertificate, certify_stack
from bregopt.divergences.stacks import STACKED, simplex_shifts
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.derivatives.stacked import StackedCorrelations
from bregopt.routes.projection.algorithms import QI_SUN
from bregopt.routes.projection.stacked_answer import scaled

if TYPE_CHECKING:
    from bregopt.routes.derivatives.derivative import Products

__all__ = ["LARGEST_COLD", "Proven", "correlation_stack", "proven_from_cold", "refined"]

LARGEST_COLD = 60  # order up to which it takes less time
_DIVERGENCE = "frobenius"
_STEPS = 12
_ENOUGH = 1e-13  # the error of the diagonal at which it ends


class Proven(NamedTuple):
    """Answers whose certificates all meet the tolerance.

    Parameters
    ----------
    at : StackedCorrelations
    X : array of shape (b, n, n)
        With a diagonal of exactly one.
    y : array of shape (b, n)
        Multipliers of the rows.
    certificate : StackedCertificate
    steps : int
    """

    at: StackedCorrelations
    X: Array
    y: Array
    certificate: StackedCertificate
    steps: int

    @property
    def citation(self) -> str:
        """The reference of the method."""
        return QI_SUN

    @property
    def products(self) -> Products:
        """Products with the derivative of the answer of a stack of one."""
        from bregopt.routes.derivatives.derivative import Products  # only those who differentiate wait

        return Products(self.at)


def correlation_stack(divergence: str, A: Array) -> EntryStack:
    """Return the problems of the nearest correlation matrices, for an array `A` of shape (b, n, n)."""
    k, one = np.arange(A.shape[1]), np.ones(A.shape[:2])
    return EntryStack(STACKED[divergence](A), k, k, one, one)


def proven_from_cold(A: Array, tol: float, max_iter: int | None) -> Proven | None:
    """Return the nearest matrices in the Frobenius norm, None if not all of them are proven.

    Parameters
    ----------
    A : array of shape (b, n, n)
        Symmetric, of a usual magnitude.
    tol : float
    max_iter : int or None
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # far from an answer
        return _proven(A, tol, min(_STEPS, max_iter or _STEPS))


def _proven(A: Array, tol: float, limit: int) -> Proven | None:
    stack = correlation_stack(_DIVERGENCE, A)
    unshifted = StackedCorrelations(_DIVERGENCE, A, 1 - A.diagonal(axis1=1, axis2=2))
    trace = np.full(len(A), float(A.shape[1]))
    at, steps = refined(unshifted.shifted(-simplex_shifts(unshifted.theta, trace)), limit)
    X, y = scaled(stack, at.X), 2 * at.v
    certificate = certify_stack(stack, X, y)
    return Proven(at, X, y, certificate, steps) if certificate.meets(tol).all() else None


def refined(at: StackedCorrelations, steps: int) -> tuple[StackedCorrelations, int]:
    """Return the matrices after Newton's method and its steps; it ends where the error does not fall."""
    missed = float(np.abs(at.missed).max(initial=0.0))
    for step in range(steps):
        if missed <= _ENOUGH:
            return at, step
        try:
            new = at.refined()
        except np.linalg.LinAlgError:  # a singular Hessian
            return at, step
        left = float(np.abs(new.missed).max(initial=0.0))
        if not left < missed:
            return at, step
        at, missed = new, left
    return at, steps
