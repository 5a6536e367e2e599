"""Symmetric Matrix Winnow: labels by closeness to a hidden subspace (Warmuth 2007, Algorithm 1).

A mistake moves ``log W`` by ``eta y X``. With ``D`` the von Neumann divergence and any positive definite
``V``, the inequalities of Golden and Thompson and of Lemma 1 give the progress (§5)

    D(V, W) - D(V, W') >= eta y tr VX - (exp(eta y) - 1) tr WX.

A target ``U`` with ``0 <= U <= I``, such as a projection, has the hinge loss ``max(1/2 - tr UX, 0)`` for the
label 1, and ``tr UX`` for the label -1. Let ``V = (1 - d) U + d I``, with ``d`` the `outside` of
:func:`mistake_bound`, and ``tr X <= c``. Then ``tr UX <= tr VX <= tr UX + d c``, and the progress is at least

    y = -1:  (1 - exp(-eta)) theta - eta d c,   less eta times the hinge loss,
    y = +1:  eta/2 - (exp(eta) - 1) theta,      less eta times the hinge loss.

With ``g`` the smaller one and ``H`` the total hinge loss, the sum over the ``M`` mistakes is ``g M - eta H``,
at most ``D(V, W1)``. Theorem 2 is ``H = 0`` and ``d = 0``.

*Shifting targets.* With a `floor`, the eigenvalues of ``W`` are kept in ``[floor, 1]``. This is the Bregman
projection on a convex set that contains ``V`` if ``floor <= d``, so no progress is lost. All eigenvalues of
``-log W`` are then in ``[0, log(1/floor)]``. If the target changes to ``U'`` with the same eigenvalues, the
divergence changes by ``tr (V' - V)(-log W)``, at most ``(1 - d) log(1/floor)`` times half the trace norm of
``U' - U``. The sum ``S`` of these halves, times that factor, is added to ``D(V, W1)``.

*A constant trace.* An update scaled to the trace ``tau`` reduces ``D(U, W)``, with ``r = tr U``, by at least

    y = -1:  -r log(1 - (1 - exp(-eta)) theta / tau),
    y = +1:  eta/2 - r log(1 + (exp(eta) - 1) theta / tau),

less the hinge loss as above, which for ``tau = r`` is at least as much as without scaling.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import kl_div, lambertw, xlogy

from bregopt.arrays import Array
from bregopt.online.entropy import add_instance, exponential
from bregopt.online.instances import activities, hermitian
from bregopt.online.meg import MEGState

__all__ = [
    "ETA",
    "best_rate",
    "divergence",
    "hinge_loss",
    "init",
    "mistake_bound",
    "predict",
    "threshold",
    "update",
]

# Where eta / (2 + 2 exp(eta)) is largest: 1.28.
ETA = float(1 + lambertw(math.exp(-1)).real)


def threshold(eta: float, charge: float = 0.0) -> float:
    """Return the threshold for which both kinds of mistakes make the same progress; 0.19 at ``ETA``.

    `charge` is ``d c`` of the module's derivation.
    """
    return eta * (1 + 2 * charge) / (2 * (math.exp(eta) - math.exp(-eta)))


def best_rate(distance: float, loss: float, charge: float = 0.0) -> float:
    """Return the rate with the least bound, for the threshold that :func:`threshold` gives it.

    The bound is ``(distance / eta + loss) (1 + exp(eta)) / (1/2 - charge exp(eta))``. Where no rate has the
    least bound, or none has a bound, ``ETA`` is returned.
    """
    if distance <= 0 or charge >= 0.5 or (loss == 0 and charge == 0):
        return ETA

    def slope(eta: float) -> float:  # eta times the derivative of the bound's logarithm; it increases
        grown = math.exp(eta)
        growth = grown / (1 + grown) + charge * grown / (0.5 - charge * grown)
        return eta * growth - 1 / (1 + eta * loss / distance)

    largest = math.log(0.5 / charge) * (1 - 1e-9) if charge > 0 else 2.0
    return float(brentq(slope, 0.0, min(largest, 2.0), xtol=1e-300, maxiter=2000))


def init(n: int, w0: float) -> MEGState:
    """Return the initial state ``w0 I``."""
    return MEGState(math.log(w0) * np.eye(n), w0 * np.eye(n))


def predict(state: MEGState, X: Array, theta: float) -> Array:
    """Return 1 where ``tr(W X_t) >= theta``, else -1, for matrices ``(T, n, n)`` or vectors ``(T, n)``."""
    return np.where(activities(state.W, X) >= theta, 1.0, -1.0)


def update(
    state: MEGState, x: Array, y: float, eta: float, trace: float | None = None, floor: float = 0.0
) -> MEGState:
    """Learn from a mistake: ``W = exp(log W + eta y X)``, eq. 1.

    It is scaled to a trace if one is given. With a floor above 0 its eigenvalues are kept in ``[floor, 1]``.
    """
    G = add_instance(state.G, eta * y, x)
    if floor == 0:
        return MEGState(G, exponential(G, trace))
    logarithms, V = np.linalg.eigh(G)
    logarithms = np.clip(logarithms, math.log(floor), 0.0)
    G, W = (hermitian((V * eigenvalues) @ V.conj().T) for eigenvalues in (logarithms, np.exp(logarithms)))
    return MEGState(G, W)


def hinge_loss(U: Array, X: Array, y: Array) -> float:
    """Return the total hinge loss of a target on instances and labels.

    It is the sum of ``max(1/2 - tr(U X_t), 0)`` over the labels 1, and of ``tr(U X_t)`` over the labels -1.
    """
    traces = activities(U, X)
    return float(np.maximum(np.where(y > 0, 0.5 - traces, traces), 0.0).sum())


def divergence(n: int, u: Array, w0: float, outside: float = 0.0) -> float:
    """Return ``D((1 - outside) U + outside I, w0 I)``, with `u` the eigenvalues of ``U`` except for zeros."""
    inside = (1 - outside) * u + outside
    return float(kl_div(inside, w0).sum()) + (n - len(u)) * float(kl_div(outside, w0))


def mistake_bound(
    n: int,
    rank: int | Array,
    eta: float,
    theta: float,
    w0: float,
    normalize: bool,
    *,
    loss: float = 0.0,
    shift: float = 0.0,
    floor: float = 0.0,
    outside: float | None = None,
    trace: float = 1.0,
) -> float:
    """Return a bound on the mistakes, or infinity if the parameters prove none; the module derives it.

    With the parameters of Theorem 2 and without loss it is ``7.18 r log(n/r)``.

    Parameters
    ----------
    n : int
    rank : int or array
        The rank of a projection, or the eigenvalues of another target, except for zeros.
    eta, theta, w0 : float
    normalize : bool
        Whether ``W`` is scaled to the trace ``n w0``; then `shift`, `floor` and `outside` are zero.
    loss : float
        Total hinge loss of the targets.
    shift : float
        Sum of half the trace norms of the changes of the target.
    floor : float
        Least eigenvalue of ``W``; zero for no floor and no cap.
    outside : float, optional
        ``d``, at least `floor`, which is the default.
    trace : float
        Bound ``c`` on the traces of the instances.
    """
    u = rank if isinstance(rank, np.ndarray) else np.ones(rank)
    if normalize:
        size, tau = float(u.sum()), n * w0
        distance = float(xlogy(u, u).sum() - xlogy(size, size / n))
        inside = 1 - (1 - math.exp(-eta)) * theta / tau
        negative = -size * math.log(inside) if inside > 0 else math.inf
        positive = eta / 2 - size * math.log1p((math.exp(eta) - 1) * theta / tau)
    else:
        d = floor if outside is None else outside
        distance = divergence(n, u, w0, d)
        distance += (1 - d) * shift * math.log(1 / floor) if floor > 0 else 0.0
        negative = (1 - math.exp(-eta)) * theta - eta * d * trace
        positive = eta / 2 - (math.exp(eta) - 1) * theta
    progress = min(negative, positive)
    if progress <= 0 or (shift > 0 and floor == 0):
        return math.inf
    return (distance + eta * loss) / progress
