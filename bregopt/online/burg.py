"""The Burg gradient for positive weights and the square loss (Jain, Kulis, Dhillon 2007, §2).

The rates and the bound differ from the paper's. With ``e = w'x - y`` and ``z = 2 eta e w x``, entry by entry,
an update reduces the divergence to any ``u > 0`` by

    D(u, w) - D(u, w+) = sum log(1 + z) - 2 eta e u'x >= 2 eta e (w'x - u'x) - 4 eta^2 e^2 sum (w x)^2,

since ``log(1 + z) >= z - z^2`` for ``z >= -1/2``. (The ``z - z^2 / 2`` of the paper's Lemma 1 is too large
for ``z < 0``.) With ``4 eta sum (w x)^2 <= 1`` and ``2 e f <= s e^2 + f^2 / s``, where ``f = u'x - y``,

    (1 - s) eta e^2 <= eta f^2 / s + D(u, w) - D(u, w+)    for every s between 0 and 1.

The sum over all trials bounds the loss for any rates. So a rate may increase again after a trial with a small
one; in the paper rates only decrease.
"""

from __future__ import annotations

import math

import numpy as np

from bregopt.arrays import Array

__all__ = ["divergence", "init", "largest_rate", "loss_bound", "predict", "update"]


def init(n: int) -> Array:
    """Return the initial weights, ``1/n`` each."""
    return np.full(n, 1 / n)


def predict(w: Array, X: Array) -> Array:
    """Return ``w'x_t`` for instances of shape ``(T, n)``; shape ``(T,)``."""
    predictions: Array = X @ w
    return predictions


def largest_rate(w: Array, x: Array, y: float) -> float:
    """Return the largest rate for which ``w`` stays positive (``z >= -1/2``) and the bound holds."""
    share = w * x
    fall = float((-(share.sum() - y) * share).max())
    square = float(share @ share)
    return min(1 / (4 * square) if square else math.inf, 1 / (4 * fall) if fall > 0 else math.inf)


def update(w: Array, x: Array, y: float, eta: float) -> Array:
    """Learn from one instance: ``1/w+ = 1/w + 2 eta (w'x - y) x``, Algorithm 1.

    Raises
    ------
    ValueError
        If a weight would not stay positive; this does not happen up to :func:`largest_rate`.
    """
    growth = 1 + 2 * eta * float(w @ x - y) * w * x
    if growth.min() <= 0:
        raise ValueError(f"eta is {eta:g}, with which a weight would not stay positive")
    moved: Array = w / growth
    return moved


def divergence(u: Array, w: Array) -> float:
    """Return ``sum u/w - log(u/w) - 1``, the relative Burg entropy; infinite where a `u` is zero."""
    ratio = u / w
    if ratio.min() <= 0:
        return math.inf
    return float((ratio - np.log(ratio) - 1).sum())


def loss_bound(divergence: float, loss: float, smallest: float, largest: float) -> float:
    """Return a bound on the learner's loss, in terms of a comparator's; for vectors and matrices.

    It is the sum of the inequality above over all trials, divided by the smallest rate, with the best ``s``.

    Parameters
    ----------
    divergence, loss : float
        ``D(u, w1)`` of the comparator, and its loss on the same trials.
    smallest, largest : float
        The smallest and the largest rate of the trials.
    """
    progress, share = divergence / smallest, largest / smallest * loss
    if share == 0 or not math.isfinite(progress):
        return progress
    s = math.sqrt(share) / (math.sqrt(share) + math.sqrt(share + progress))
    return (share / s + progress) / (1 - s)
