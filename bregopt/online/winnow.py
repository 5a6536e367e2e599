"""Symmetric Matrix Winnow: labels by closeness to a hidden subspace (Warmuth 2007, Algorithm 1).

With ``D`` the von Neumann divergence and ``P`` the projection of rank ``r`` that gives the labels
(``tr PX >= 1/2`` or ``= 0``), an update after a mistake reduces ``D(P, W)`` by at least

    y = -1:  (1 - exp(-eta)) theta,
    y = +1:  eta/2 - (exp(eta) - 1) theta,

The start is ``D(P, W1)``, which is ``r log(n/r)`` for ``W1 = (r/n) I``. An update scaled to a trace ``tau``
reduces ``D(P, W)`` by at least

    y = -1:  -r log(1 - (1 - exp(-eta)) theta / tau),
    y = +1:  eta/2 - r log(1 + (exp(eta) - 1) theta / tau),

which is at least as much for ``tau = r``.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import lambertw

from bregopt.arrays import Array
from bregopt.online.entropy import add_instance, exponential
from bregopt.online.instances import activities
from bregopt.online.meg import MEGState

__all__ = ["ETA", "init", "mistake_bound", "predict", "threshold", "update"]

# Where eta / (2 + 2 exp(eta)) is largest: 1.28.
ETA = float(1 + lambertw(math.exp(-1)).real)


def threshold(eta: float) -> float:
    """Return the threshold for which both kinds of mistakes make the same progress; 0.19 at ``ETA``."""
    return eta / (2 * (math.exp(eta) - math.exp(-eta)))


def init(n: int, w0: float) -> MEGState:
    """Return the initial state ``w0 I``."""
    return MEGState(math.log(w0) * np.eye(n), w0 * np.eye(n))


def predict(state: MEGState, X: Array, theta: float) -> Array:
    """Return 1 where ``tr(W X_t) >= theta``, else -1, for matrices ``(T, n, n)`` or vectors ``(T, n)``."""
    return np.where(activities(state.W, X) >= theta, 1.0, -1.0)


def update(state: MEGState, x: Array, y: float, eta: float, trace: float | None = None) -> MEGState:
    """Learn from a mistake: ``W = exp(log W + eta y X)``, eq. 1, scaled to a trace if one is given."""
    G = add_instance(state.G, eta * y, x)
    return MEGState(G, exponential(G, trace))


def mistake_bound(n: int, rank: int, eta: float, theta: float, w0: float, normalize: bool) -> float:
    """Return a bound on the mistakes on a stream that a projection of this rank labels, or infinity.

    It is Theorem 2 for any parameters, infinite if they prove no bound. With the parameters of the theorem it
    is ``7.18 r log(n/r)``.
    """
    if normalize:
        distance, tau = rank * math.log(n / rank), n * w0
        inside = 1 - (1 - math.exp(-eta)) * theta / tau
        negative = -rank * math.log(inside) if inside > 0 else math.inf
        positive = eta / 2 - rank * math.log1p((math.exp(eta) - 1) * theta / tau)
    else:
        distance = n * w0 - rank - rank * math.log(w0)
        negative, positive = (1 - math.exp(-eta)) * theta, eta / 2 - (math.exp(eta) - 1) * theta
    progress = min(negative, positive)
    return distance / progress if progress > 0 else math.inf
