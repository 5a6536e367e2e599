"""Newton's method for a stack of LogDet problems with a prescribed diagonal, in the primal.

With ``R = inv(X0)`` it minimizes ``<R, X> - logdet X``, a self-concordant function, over the matrices with
that diagonal. A step has multipliers ``y`` with ``(X o X) y = diag(X R X) - diag(X)``. The step is ``X N``
with ``N = I - Z X`` and ``Z = R - Diag(y)``. After a full step the product of ``Z`` and the new ``X`` is
``I - N^2``, so ``y`` proves the new ``X`` optimal up to about half the sum of the squares of ``N^2``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.constants import NEGLIGIBLE_OBJECTIVE
from bregopt.clock import checkpoint
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.projection.stacked_answer import StackedAnswer, certified, joined, scaled

__all__ = ["logdet_newton_stack"]

_STEPS = 20  # limit on the steps; the single solve needs fewer where X0 is far from the diagonal
_FULL = 0.3  # Newton decrement up to which a full step converges quadratically
_SHARE = NEGLIGIBLE_OBJECTIVE  # least size of the objective in a gap, as the scale of the divergence is one


def logdet_newton_stack(stack: EntryStack, tol: float, limit: int) -> StackedAnswer:
    """Return the answers whose certificates meet `tol`; none if there are rows off the diagonal."""
    found: list[StackedAnswer] = []
    if len(stack.i) == 0:
        X = stack.divergence.X0
        return certified(stack, X, np.zeros(stack.lo.shape), np.arange(len(stack)), tol, 0)
    if not stack.alone:
        return joined(found, stack)
    X0: Any = stack.divergence.X0
    live, X, R = np.arange(len(stack)), scaled(stack, X0), np.linalg.inv(X0)
    for step in range(min(limit, _STEPS)):
        checkpoint()
        y, N = _multipliers(X, R)
        decrement, largest = _sizes(N)
        length = np.where(decrement <= _FULL, 1.0, 1 / (1 + largest))
        X = X + length[:, None, None] * (X @ N)
        X = (X + np.swapaxes(X, 1, 2)) / 2
        left = decrement < np.inf
        near = np.flatnonzero(decrement**4 / 2 <= _SHARE * tol)
        if len(near):
            answer = certified(stack[near], X[near], y[near], live[near], tol, step + 1)
            found.append(answer)
            left &= ~np.isin(live, answer.solved)
        live, stack, X, R = live[left], stack[left], X[left], R[left]
        if len(live) == 0:
            break
    return joined(found, stack)


def _sizes(N: Array) -> tuple[Array, Array]:
    """Return the Newton decrement, and a bound on the magnitude of the eigenvalues ``v`` of ``N``.

    The decrement is the 2-norm of the ``v``, which are real, and the bound their 8-norm. The step of length
    ``1 / (1 + max |v|)`` has the largest guaranteed decrease.
    """
    square = N @ N
    fourth = square @ square
    powers = square.trace(axis1=1, axis2=2), np.einsum("bij,bji->b", fourth, fourth)
    decrement, largest = (np.maximum(sum_of, 0.0) for sum_of in powers)
    return np.sqrt(decrement), largest**0.125


def _multipliers(X: Array, R: Array) -> tuple[Array, Array]:
    """Return ``y`` of shape (B, n) and ``N`` of shape (B, n, n); not finite where ``X o X`` is singular."""
    P = R @ X
    right = np.einsum("bij,bji->bi", X, P) - X.diagonal(axis1=1, axis2=2)
    y = np.linalg.solve(X * X, right[:, :, None])
    N = np.eye(X.shape[1]) - P + y * X
    return y[:, :, 0], N
