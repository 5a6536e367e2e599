"""Answers of the stacked methods, certified, with exactly the prescribed diagonal where possible."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify.stacks import StackedCertificate, certify_stack
from bregopt.program.entry_stack import EntryStack

__all__ = ["StackedAnswer", "certified", "joined", "scaled"]


@dataclass(frozen=True, eq=False)
class StackedAnswer:
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
    """

    solved: IntArray
    X: Array
    y: Array
    certificate: StackedCertificate
    iterations: IntArray


def scaled(stack: EntryStack, X: Array) -> Array:
    """Return ``D X D`` with the prescribed diagonal, exactly."""
    n = stack.n
    required = stack.lo[:, :n]
    d = np.sqrt(required / np.maximum(X.diagonal(axis1=1, axis2=2), TINY))
    X = d[:, :, None] * X * d[:, None, :]
    X[:, np.arange(n), np.arange(n)] = required
    return X


def certified(stack: EntryStack, X: Array, y: Array, live: IntArray, tol: float, step: int) -> StackedAnswer:
    """Return the answers that meet the tolerance, with the prescribed diagonal if they meet it so too."""
    exact = scaled(stack, X) if len(stack.i) else X
    certificate = certify_stack(stack, exact, y)
    met = certificate.meets(tol)
    first = StackedAnswer(live[met], exact[met], y[met], certificate[met], np.full(met.sum(), step))
    if met.all() or stack.alone:
        return first
    left = np.flatnonzero(~met)
    raw = certify_stack(stack[left], X[left], y[left])
    met = raw.meets(tol)
    left = left[met]
    second = StackedAnswer(live[left], X[left], y[left], raw[met], np.full(len(left), step))
    return joined([first, second], stack)


def joined(parts: list[StackedAnswer], stack: EntryStack) -> StackedAnswer:
    """Return the answers of several parts of a stack as one; without a part, none."""
    if not parts:
        none = np.zeros(0)
        certificate = StackedCertificate(none, none, none, none, none)
        n, index = stack.n, np.zeros(0, dtype=np.intp)
        return StackedAnswer(index, np.zeros((0, n, n)), np.zeros((0, stack.lo.shape[1])), certificate, index)
    names = [f.name for f in fields(StackedCertificate)]
    certificate = StackedCertificate(
        *(np.concatenate([getattr(part.certificate, name) for part in parts]) for name in names)
    )
    return StackedAnswer(
        np.concatenate([part.solved for part in parts]),
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        certificate,
        np.concatenate([part.iterations for part in parts]),
    )
