"""The matrix exponentiated gradient update for the square loss (Tsuda, Rätsch, Warmuth 2005, §3)."""

from __future__ import annotations

import math
from typing import NamedTuple

from bregopt.arrays import Array
from bregopt.online.entropy import add_instance, exponential, logarithm
from bregopt.online.instances import activities

__all__ = ["MEGState", "init", "learning_rate", "loss_bound", "predict", "update"]

_ROUND_OFF = 1e-12  # absolute round-off of eta r^2 / 2, which is one at the largest rate


class MEGState(NamedTuple):
    """The state between trials: ``W``, and ``G`` such that ``W`` is ``exp(G)`` or a multiple of it."""

    G: Array
    W: Array


def init(W1: Array) -> MEGState:
    """Return the state of a Hermitian positive definite matrix."""
    return MEGState(logarithm(W1), W1)


def predict(state: MEGState, X: Array) -> Array:
    """Return ``tr(W X_t)`` for instances of shape ``(T, n, n)``, or vectors, ``(T, n)``; shape ``(T,)``."""
    return activities(state.W, X)


def update(state: MEGState, x: Array, y: float, eta: float, normalize: bool = True) -> MEGState:
    """Learn from one instance, a Hermitian matrix or the vector ``x`` of ``x x'``.

    ``G += -2 eta (tr(W X) - y) X`` and ``W = exp(G) / tr exp(G)``: eq. 3.5 in the form of §3.2, which needs
    no logarithm of ``W``. Without `normalize`, ``W = exp(G)``, eq. 3.4.
    """
    error = float(predict(state, x[None])[0]) - y
    G = add_instance(state.G, -2 * eta * error, x)
    return MEGState(G, exponential(G, 1.0 if normalize else None))


def learning_rate(r: float, divergence: float, loss: float = 0.0) -> float:
    """Return the rate that minimizes the bound of Lemma 3.2.

    Parameters
    ----------
    r : float
        Bound on the range of the eigenvalues of the instances.
    divergence : float
        Bound on ``D(U, W1)`` of the comparator.
    loss : float
        Bound on its loss; zero if it fits exactly.
    """
    if loss == 0:
        return 2 / r**2
    if divergence == 0:  # of order one there is nothing to learn
        return 1 / r**2
    c = r * math.sqrt(2 * divergence / loss)
    return 2 * c / (r**2 * (2 + c))


def loss_bound(divergence: float, loss: float, eta: float, r: float) -> float:
    """Return the bound of Lemma 3.2, ``loss / (1 - eta r^2 / 2) + divergence / eta``, on the learner's loss.

    It is eq. 3.7 with ``c`` written in terms of ``eta = 2c / (r^2 (2 + c))``.

    Parameters
    ----------
    divergence, loss : float
        ``D(U, W1)`` of the comparator ``U`` of trace one, and its loss on the same trials.
    eta : float
        The learner's rate; for ``eta > 2 / r**2`` there is no bound, and infinity is returned.
    r : float
        Bound on the range of the eigenvalues of the instances.
    """
    slack = 1 - eta * r**2 / 2
    if slack < -_ROUND_OFF or (slack <= _ROUND_OFF and loss > 0):
        return math.inf
    return (loss / slack if loss else 0.0) + divergence / eta
