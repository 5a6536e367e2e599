"""General Matrix Winnow: rectangular instances with singular values in [0, 1] (Warmuth 2007, Algorithm 2).

It is the symmetric algorithm on the instances ``[[0, X'], [X, 0]]`` of order ``N = m + n``, which keep ``log
W`` of the form ``[[0, S'], [S, 0]]``. The algorithm needs only the singular values of the ``m x n`` matrix
``S``: the off-diagonal block of ``W`` is a multiple of ``sinh(S)``, and ``tr W`` is the same multiple of
``2 sum cosh(s_i) + |m - n|``.

The instances have eigenvalues in [-1, 1], so Theorem 2 of the symmetric case does not apply. With
``exp(a X) <= cosh(a) I + sinh(a) X`` in place of its Lemma 1, an update scaled to the trace ``tau`` reduces
the divergence to a target ``P = sum u_i v_i'`` of rank ``r`` with orthonormal ``u_i`` and ``v_i``
(``tr PX' >= 1/2`` or ``= 0``) by at least

    y = -1:  -r log(cosh eta - sinh(eta) theta / tau),
    y = +1:  eta/2 - r log(cosh eta + sinh(eta) theta / tau),

and it starts at ``r log(N/r)``. As in the symmetric case ``eta`` times the hinge loss is lost, which is
``max(1/2 - tr PX', 0)`` for the label 1, and ``max(tr PX', 0)`` for the label -1. The best parameters give a
bound that grows with ``r^2``; none is known without scaling.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["GeneralWinnowState", "best_rate", "init", "mistake_bound", "predict", "threshold", "update"]


class GeneralWinnowState(NamedTuple):
    """The sum ``S`` of the updates, and the parameter ``R`` that predicts, both of shape ``(m, n)``."""

    S: Array
    R: Array


def best_rate(rank: int) -> float:
    """Return the rate with the least bound: ``tanh eta = (1 + tanh(eta / 4r)) / 4r``."""
    eta = 0.0
    for _ in range(200):  # a contraction: its slope is at most 1/(4r)^2 / (1 - tanh^2)
        eta = math.atanh((1 + math.tanh(eta / (4 * rank))) / (4 * rank))
    return eta


def threshold(eta: float, rank: int, trace: float) -> float:
    """Return the threshold for which both kinds of mistakes make the same progress."""
    return trace * math.tanh(eta / (4 * rank)) / math.tanh(eta)


def init(m: int, n: int) -> GeneralWinnowState:
    """Return the initial state, a multiple of the identity of order ``m + n``: ``S = R = 0``."""
    return GeneralWinnowState(np.zeros((m, n)), np.zeros((m, n)))


def predict(state: GeneralWinnowState, X: Array, theta: float) -> Array:
    """Return 1 where ``tr(R X_t') >= theta``, else -1, for instances of shape ``(T, m, n)``."""
    return np.where(np.tensordot(X, state.R, axes=2) >= theta, 1.0, -1.0)


def update(
    state: GeneralWinnowState, X: Array, y: float, eta: float, w0: float, normalize: bool = True
) -> GeneralWinnowState:
    """Learn from a mistake: ``R = 2 w0 sinh(arcsinh(R / 2 w0) + eta y X)``, scaled to a constant ``tr W``.

    With ``w0 = 1/2`` and without `normalize` it is Algorithm 2 (whose printed update lacks the label).

    Raises
    ------
    OverflowError
        Without `normalize`, if the parameter is too large for numbers.
    """
    S = state.S + eta * y * X
    U, s, Vt = np.linalg.svd(S, full_matrices=False)
    top = float(s[0]) if normalize else 0.0
    if s[0] - top > 700:
        raise OverflowError(f"sinh({s[0]:g}) overflows; lower eta")
    sinh, cosh = (np.exp(s - top) - np.exp(-s - top)) / 2, (np.exp(s - top) + np.exp(-s - top)) / 2
    order, square = sum(S.shape), abs(S.shape[0] - S.shape[1])
    scale = order / (2 * float(cosh.sum()) + square * math.exp(-top)) if normalize else 1.0
    return GeneralWinnowState(S, (U * (2 * w0 * scale * sinh)) @ Vt)


def mistake_bound(order: int, rank: int, eta: float, theta: float, trace: float, loss: float = 0.0) -> float:
    """Return a bound on the mistakes of the scaled algorithm, for a target of some rank.

    Parameters
    ----------
    order : int
        ``m + n``.
    rank : int
    eta, theta : float
    trace : float
        The trace to which ``W`` is scaled.
    loss : float
        Total hinge loss of the target.
    """
    inside = math.cosh(eta) - math.sinh(eta) * theta / trace
    negative = -rank * math.log(inside) if inside > 0 else math.inf
    positive = eta / 2 - rank * math.log(math.cosh(eta) + math.sinh(eta) * theta / trace)
    progress = min(negative, positive)
    return (rank * math.log(order / rank) + eta * loss) / progress if progress > 0 else math.inf
