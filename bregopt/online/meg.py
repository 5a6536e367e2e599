"""The matrix exponentiated gradient update, explicit and implicit (Tsuda, Rätsch, Warmuth 2005, §3)."""

from __future__ import annotations

import math
from typing import NamedTuple

from bregopt.arrays import Array
from bregopt.online.entropy import add_instance, exponential, logarithm
from bregopt.online.instances import activities
from bregopt.online.losses import SQUARE, Loss, implicit_step

__all__ = [
    "MEGState",
    "implicit_update",
    "init",
    "learning_rate",
    "loss_bound",
    "move",
    "predict",
    "update",
]

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


def move(state: MEGState, x: Array, step: float, normalize: bool = True) -> MEGState:
    """Return the state of ``G - step X``: ``W`` is ``exp(G) / tr exp(G)``, without `normalize` ``exp(G)``."""
    G = add_instance(state.G, -step, x)
    return MEGState(G, exponential(G, 1.0 if normalize else None))


def update(
    state: MEGState, x: Array, y: float, eta: float, normalize: bool = True, loss: Loss = SQUARE
) -> MEGState:
    """Learn from one instance, a Hermitian matrix or the vector ``x`` of ``x x*``.

    ``G -= eta l'(tr(W X)) X`` and ``W = exp(G) / tr exp(G)``: eq. 3.5 in the form of §3.2, which needs no
    logarithm of ``W``. Without `normalize`, ``W = exp(G)``, eq. 3.4.
    """
    slope = loss.derivative(float(predict(state, x[None])[0]), y)
    return move(state, x, eta * slope, normalize)


def implicit_update(
    state: MEGState, x: Array, y: float, eta: float, normalize: bool = True, loss: Loss = SQUARE
) -> MEGState:
    """Learn from one instance with a subgradient at the new ``W``, eq. 3.3.

    It is the ``W`` that minimizes ``D(W, W_t) + eta l(tr(W X))``. The prediction decreases with the step, so
    an equation in one number defines it; each of its evaluations costs an eigendecomposition.
    """

    def predicted(step: float) -> float:
        return float(predict(move(state, x, step, normalize), x[None])[0])

    slope = loss.derivative(float(predict(state, x[None])[0]), y)
    return move(state, x, implicit_step(loss, y, eta, predicted, eta * slope), normalize)


def learning_rate(r: float, divergence: float, loss: float = 0.0, smoothness: float = 2.0) -> float:
    """Return the rate that minimizes the bound of Lemma 3.2, of explicit updates with a smooth loss.

    Parameters
    ----------
    r : float
        Bound on the range of the eigenvalues of the instances.
    divergence : float
        Bound on ``D(U, W1)`` of the comparator.
    loss : float
        Bound on its loss; zero if it fits exactly.
    smoothness : float
        A Lipschitz constant of the loss's derivative, 2 for the square loss.
    """
    r *= math.sqrt(smoothness / 2)
    if loss == 0:
        return 2 / r**2
    if divergence == 0:  # of order one there is nothing to learn
        return 1 / r**2
    c = r * math.sqrt(2 * divergence / loss)
    return 2 * c / (r**2 * (2 + c))


def loss_bound(divergence: float, loss: float, eta: float, r: float, smoothness: float = 2.0) -> float:
    """Return the bound of Lemma 3.2, ``loss / (1 - eta r^2 / 2) + divergence / eta``, on the learner's loss.

    It is eq. 3.7 with ``c`` written in terms of ``eta = 2c / (r^2 (2 + c))``. For a loss of another
    smoothness ``beta`` than that of the square, 2, it has ``beta r^2 / 2`` in place of ``r^2``.

    Parameters
    ----------
    divergence, loss : float
        ``D(U, W1)`` of the comparator ``U`` of trace one, and its loss on the same trials.
    eta : float
        The learner's rate; for ``eta > 4 / (beta r^2)`` there is no bound, and infinity is returned.
    r : float
        Bound on the range of the eigenvalues of the instances.
    smoothness : float
        A Lipschitz constant ``beta`` of the loss's derivative.
    """
    slack = 1 - eta * smoothness * r**2 / 4
    if slack < -_ROUND_OFF or (slack <= _ROUND_OFF and loss > 0):
        return math.inf
    return (loss / slack if loss else 0.0) + divergence / eta
