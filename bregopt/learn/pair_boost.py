"""Pairs of points classified by DefiniteBoost, which learns a metric and its threshold together.

``W`` is positive semidefinite of trace one and order ``d + 1``. Its leading block ``A`` is the metric, and
its last diagonal entry ``s`` the threshold. The margin of a pair with the difference ``z``, ``|z| <= 1``, and
the label ``y`` is ``y (s - z'Az)``. It is at least ``m`` if ``tr W C <= 0``, with

    C = m I - y (e e' - z z'),   e the last unit vector.

These are the constraints of Tsuda et al. (2005), eq. 4.1 and §5.2, for similar and for dissimilar pairs. They
contradict each other on most data, so they are relaxed at a price:

    minimize  D(W, I/n) + gamma sum_k max(tr W C_k, 0),   n = d + 1,
    maximize  log n - log tr exp(-sum_k alpha_k C_k)      over 0 <= alpha_k <= gamma,

the second being the dual. DefiniteBoost (Algorithm 2) changes one ``alpha_k`` at a time, by the step that
minimizes an upper bound on the trace (Appendix E), here at most to the ends 0 and ``gamma``. The bound is
convex in the step, so a shorter one raises the dual, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.threads import threads_for

__all__ = ["Boosted", "boost"]


class Boosted(NamedTuple):
    """What DefiniteBoost found, with its certificate."""

    W: Array  # (n, n)
    alpha: Array  # (k,), the multipliers
    gap: float  # of the primal and the dual value, relative to the primal one
    iterations: int


def boost(Z: Array, y: Array, margin: float, gamma: float, tol: float, max_iter: int) -> Boosted:
    """Return the metric and the threshold of pairs.

    Parameters
    ----------
    Z : array of shape (k, d)
        Differences of pairs, at most of length one.
    y : array of shape (k,)
        1 for similar, -1 for dissimilar pairs.
    margin : float
        ``m``, above 0 and below 1.
    gamma : float
        The price.
    tol : float
        Relative gap at which to stop.
    max_iter : int
        Limit on steps.
    """
    d = Z.shape[1]
    n = d + 1
    lower, upper = _spectra((Z**2).sum(axis=1), y, margin)
    alpha, G, W, log_trace = np.zeros(len(Z)), np.zeros((n, n)), np.eye(n) / n, math.log(n)
    iterations = 0
    with threads_for(n):
        while True:
            violation = margin - y * (W[d, d] - ((Z @ W[:d, :d]) * Z).sum(axis=1))
            # D(W, I/n) is log n - log_trace + tr WG, and the dual value log n - log_trace.
            excess = float(np.vdot(W, G)) + gamma * float(np.maximum(violation, 0).sum())
            gap = excess / max(excess + math.log(n) - log_trace, np.finfo(float).tiny)
            step = np.log((1 - violation / lower) / (1 - violation / upper)) / (upper - lower)
            step = np.clip(alpha + step, 0, gamma) - alpha
            k = int(np.argmax(step * violation))
            if gap <= tol or iterations == max_iter or step[k] == 0:
                return Boosted(W, alpha, gap, iterations)
            alpha[k] += step[k]
            G[:d, :d] -= step[k] * y[k] * np.outer(Z[k], Z[k])
            G[d, d] += step[k] * y[k]
            G -= step[k] * margin * np.eye(n)
            eigenvalues, V = np.linalg.eigh(G)
            log_trace = float(eigenvalues[-1] + np.log(np.exp(eigenvalues - eigenvalues[-1]).sum()))
            W = (V * np.exp(eigenvalues - log_trace)) @ V.T
            iterations += 1


def _spectra(squares: Array, y: Array, margin: float) -> tuple[Array, Array]:
    """Return bounds on the eigenvalues of each ``C``: the lower ones below 0, the upper ones above."""
    lower = np.where(y > 0, margin - 1, np.minimum(margin - squares, -margin))
    upper = np.where(y > 0, margin + squares, margin + 1)
    return lower, upper
