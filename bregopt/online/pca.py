"""On-line principal component analysis with capped eigenvalues (Warmuth and Kuzmin 2008).

A subspace of dimension ``k`` compresses an instance ``x`` to its projection, at the loss ``x'Rx`` with ``R``
the projection on the complement, of rank ``m = n - k``. The learner's ``W`` is a mixture of such ``R / m``: a
psd matrix of trace one below ``I / m``. Its expected loss is ``m x'Wx``. A trial moves it to the nearest such
matrix, in relative entropy ``D``, from ``exp(log W - eta x x')``. Let ``U = R / m`` and ``|x| <= 1``. Then

    D(U, W) - D(U, W+) >= (1 - exp(-eta)) x'Wx - eta x'Ux,

by ``tr exp(A + B) <= tr exp(A) exp(B)``, ``exp(-eta x x') <= I - (1 - exp(-eta)) x x'`` and the generalized
theorem of Pythagoras. The sum over all trials bounds the loss, as ``D(U, I/n) = log(n/m)``.

For a comparator that shifts, ``W`` is mixed with a ``share`` ``a`` of ``I/n`` after each trial (Herbster and
Warmuth 1998). The logarithm is operator monotone, so that this adds at most ``-log(1 - a)`` to ``D(U, W)``,
and makes it at most ``log(n/m) - log a`` for every other ``U``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, Mask
from bregopt.online.entropy import add_instance

__all__ = [
    "PCAState",
    "capped",
    "corners",
    "distance",
    "expected_loss",
    "init",
    "learning_rate",
    "loss_bound",
    "matrix",
    "update",
]

_ROUND_OFF = 1e-14  # probability that is left over by the decomposition into corners


class PCAState(NamedTuple):
    """The state between trials, ``log W = V diag(theta) V'`` with ascending ``theta``."""

    theta: Array
    V: Array


def init(n: int) -> PCAState:
    """Return the state of ``W = I/n``."""
    return PCAState(np.full(n, -math.log(n)), np.eye(n))


def matrix(state: PCAState) -> Array:
    """Return ``W``."""
    half = state.V * np.exp(state.theta / 2)
    W: Array = half @ half.T
    return W


def expected_loss(state: PCAState, X: Array, m: int) -> Array:
    """Return the expected loss ``m x'Wx`` on each instance, for `X` of shape ``(T, n)``; shape ``(T,)``."""
    losses: Array = m * ((X @ state.V) ** 2 @ np.exp(state.theta))
    return losses


def update(state: PCAState, x: Array, eta: float, m: int, share: float = 0.0) -> PCAState:
    """Learn from one instance of shape ``(n,)``, by one eigendecomposition."""
    n = len(x)
    theta, V = np.linalg.eigh(add_instance((state.V * state.theta) @ state.V.T, -eta, x))
    theta = capped(theta, m)
    if share:
        theta = np.logaddexp(theta + math.log1p(-share), math.log(share / n))
    return PCAState(theta, V)


def capped(theta: Array, m: int) -> Array:
    """Return the logarithm of the nearest ``w`` to ``exp(theta)`` with ``sum w = 1`` and ``w <= 1/m``.

    The largest elements become ``1/m``, and the others keep their ratios: as few are capped as leave no other
    one above ``1/m``. The logarithms never overflow.

    Parameters
    ----------
    theta : array of shape (n,), ascending
    m : int, below n
    """
    largest = theta[::-1]
    rest = np.logaddexp.accumulate(theta)[::-1]  # log of the sum of each element and the smaller ones
    shift = np.log1p(-np.arange(m) / m) - rest[:m]
    fits = largest[:m] + shift <= -math.log(m)
    fits[-1] = True  # a single cap's mass is left
    count = int(np.argmax(fits))
    kept = np.where(np.arange(len(theta)) < count, -math.log(m), largest + shift[count])
    return np.minimum(kept, -math.log(m))[::-1]


def corners(w: Array, m: int) -> tuple[Array, Mask]:
    """Return `w` as a mixture of at most ``n`` corners: vectors with `m` elements ``1/m``, the others zero.

    Each corner takes the largest elements of what is left, with the largest probability that leaves a
    nonnegative multiple of a capped vector (Warmuth and Kuzmin 2008, Algorithm 2).

    Parameters
    ----------
    w : array of shape (n,)
        Nonnegative, of sum one and at most ``1/m``.
    m : int

    Returns
    -------
    probability : array of shape (q,)
    members : bool array of shape (q, n)
        The nonzero elements of each corner.
    """
    n, left = len(w), w.copy()
    probability: list[float] = []
    members: list[Mask] = []
    while (total := 1.0 - math.fsum(probability)) > _ROUND_OFF and len(probability) < n:
        order = np.argsort(-left, kind="stable")
        inside, outside = left[order[:m]], left[order[m:]]
        p = min(m * float(inside[-1]), total - m * float(outside[0]))
        if p <= 0 or len(probability) == n - 1:
            p = total
        member = np.zeros(n, dtype=bool)
        member[order[:m]] = True
        left = np.maximum(left - p / m * member, 0.0)
        probability.append(p)
        members.append(member)
    return np.array(probability) / math.fsum(probability), np.array(members)


def distance(n: int, m: int, shifts: float = 0.0, share: float = 0.0, trials: int = 0) -> float:
    """Return the ``D`` of the bound: how far comparators are from the start, and from each other.

    It is ``m log(n/m)`` for one subspace and no share, and in general ``m`` times ``(shifts + 1) log(n/m) -
    shifts log(share) - trials log(1 - share)``; infinite for shifts without a share.

    Parameters
    ----------
    n, m : int
        Dimension of the instances, and of the complement of the subspace.
    shifts : float
        How often the subspace changes.
    share : float
        Weight of ``I/n`` after each trial.
    trials : int
        Number of trials.
    """
    if shifts and not share:
        return math.inf
    moves = shifts * math.log(1 / share) if shifts else 0.0
    return m * ((shifts + 1) * math.log(n / m) + moves - trials * math.log1p(-share))


def learning_rate(distance: float, loss: float) -> float:
    """Return a rate for comparators whose loss is at most `loss` above 0, on instances of norm at most one.

    It is ``log(1 + sqrt(2 D / loss))``, for which the bound is at most ``loss + sqrt(2 D loss) + D`` (Freund
    and Schapire 1997, Lemma 4).
    """
    return math.log1p(math.sqrt(2 * distance / loss))


def loss_bound(distance: float, loss: float, eta: float) -> float:
    """Return ``(eta loss + D) / (1 - exp(-eta))``, which bounds the loss on instances of norm at most one.

    Parameters
    ----------
    distance : float
        ``D``, of :func:`distance`.
    loss : float
        Of the comparators, on the same trials.
    eta : float
    """
    return (eta * loss + distance) / -math.expm1(-eta)
