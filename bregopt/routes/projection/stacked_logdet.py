"""Newton's method for a stack of LogDet problems with a prescribed diagonal, in the primal.

With ``R = inv(X0)`` it minimizes ``<R, X> - logdet X``, a self-concordant function, over the matrices with
that diagonal. A step has multipliers ``y`` with ``(X o X) y = diag(X R X) - diag(X)``. The step is ``X N``
with ``N = I - Z X`` and ``Z = R - Diag(y)``. After a full step the product of ``Z`` and the new ``X`` is
``I - N^2``, so ``y`` proves the new ``X`` optimal up to about half the sum of the squares of ``N^2``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bregopt.arrays import EPS, Array
from bregopt.certify.constants import NEGLIGIBLE_OBJECTIVE
from bregopt.clock import checkpoint
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.projection.stacked_answer import (
    Near,
    OnRows,
    StackedAnswer,
    StackRule,
    certified,
    joined,
    on_rows,
)

__all__ = ["logdet_newton_stack"]

_STEPS = 20  # limit on the steps; the single solve needs fewer where X0 is far from the diagonal
_FULL = 0.3  # Newton decrement up to which a full step converges quadratically
_SHARE = NEGLIGIBLE_OBJECTIVE  # least size of the objective in a gap, as the scale of the divergence is one


def logdet_newton_stack(stack: EntryStack, rule: StackRule, limit: int) -> StackedAnswer:
    """Return the answers that meet the rule; none if there are rows off the diagonal."""
    found: list[StackedAnswer] = []
    if len(stack.i) == 0:
        X = stack.divergence.X0
        own = OnRows(np.ones(X.shape[:2]), X, stack.lo, np.ones(len(X), dtype=bool))
        exact, last = Near(np.zeros(len(X)), np.zeros(len(X))), np.full(len(X), np.inf)
        return certified(stack, own, np.zeros(stack.lo.shape), np.arange(len(X)), rule, 0, exact, last)
    if not stack.alone:
        return joined(found, stack)
    X0: Any = stack.divergence.X0
    live, X, R = np.arange(len(stack)), on_rows(stack, X0, stack.lo).X, np.linalg.inv(X0)
    last = np.full(len(stack), np.inf)
    for step in range(min(limit, _STEPS)):
        checkpoint()
        y, N = _multipliers(X, R)
        decrement, largest = _sizes(N)
        length = np.where(decrement <= _FULL, 1.0, 1 / (1 + largest))
        X = X + length[:, None, None] * (X @ N)
        X = (X + np.swapaxes(X, 1, 2)) / 2
        left = decrement < np.inf
        near = np.flatnonzero(decrement**4 / 2 <= _SHARE * rule.tol)
        if len(near):
            problems, own = stack[near], on_rows(stack[near], X[near], y[near])
            distance = _near(X[near], R[near], decrement[near])
            answer = certified(problems, own, y[near], live[near], rule, step + 1, distance, last)
            found.append(answer)
            left &= ~np.isin(live, answer.solved)
        live, stack, X, R = live[left], stack[left], X[left], R[left]
        if len(live) == 0:
            break
    return joined(found, stack)


def _near(X: Array, R: Array, decrement: Array) -> Near:
    """Return how far the optimum is after a full step, and by round-off.

    With ``E = N^2``, ``|E|_F = e``, the divergence of ``X`` from ``inv(Z)`` is at most ``e^2 / 2 / (1 - e)``.
    """
    e = decrement**2
    excess = np.where(e < 0.5, e**2 / 2 / np.maximum(1 - e, 0.5), np.inf)
    norms = np.linalg.norm(X, axis=(1, 2)) * np.linalg.norm(R, axis=(1, 2))
    rho = excess + np.sqrt(2 * excess) + EPS * norms  # above the inverse of t - log(1 + t)
    return Near(excess, np.where(rho < 0.5, rho / np.maximum(1 - rho, 0.5), np.inf))


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
