"""The Burg gradient for positive definite matrices (Jain, Kulis, Dhillon 2007, §3).

Instances are ``X = Z Z'`` of any rank ``k``, which the paper leaves open (§6). The analysis for vectors
(:mod:`bregopt.online.burg`) applies, with the LogDet divergence and the eigenvalues ``m`` of ``Z'WZ`` in
place of ``w x``:

    D(U, W) - D(U, W+) = sum log(1 + b m) - b tr(UX),    b = eta l'(p),  p = tr(WX) = sum m.

``W`` is stored as ``F F'``, so that it is positive definite by construction. An update is one product with
``I - V diag(c) V'``, the inverse square root of ``I + b F'XF``, in ``O(n^2 k)``. If ``W`` must stay below
``c I``, the matrix ``inv(inv(W) - I/c) = H H'`` is stored in the same way: it limits the growth of ``W``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.online.burg import Trial, rate_limit
from bregopt.online.losses import SQUARE, Loss

__all__ = ["MatrixBurgState", "divergence", "init", "largest_rate", "move", "predict", "trial", "update"]


class MatrixBurgState(NamedTuple):
    """Factors of ``W = F F'`` and of ``inv(inv(W) - I/c) = H H'``; H is None if there is no ceiling ``c``."""

    F: Array
    H: Array | None

    @property
    def W(self) -> Array:
        """The matrix ``F F'``."""
        W: Array = self.F @ self.F.T
        return W


def init(W1: Array, ceiling: float | None = 1.0) -> MatrixBurgState:
    """Return the state of a symmetric positive definite matrix below ``ceiling I``."""
    w, V = np.linalg.eigh(W1)
    F = V * np.sqrt(w)
    if ceiling is None:
        return MatrixBurgState(F, None)
    if w[-1] >= ceiling:
        raise ValueError(f"W1 has the eigenvalue {w[-1]:g}; expected less than ceiling = {ceiling:g}")
    return MatrixBurgState(F, V * np.sqrt(w / (1 - w / ceiling)))


def predict(state: MatrixBurgState, Z: Array) -> Array:
    """Return ``tr(W X_t)`` for ``X_t = Z_t Z_t'``, the `Z` of shape ``(T, n)`` or ``(T, n, k)``."""
    if Z.ndim == 2:
        forms: Array = ((Z @ state.F) ** 2).sum(axis=1)
        return forms
    traces: Array = ((Z.swapaxes(1, 2) @ state.F) ** 2).sum(axis=(1, 2))
    return traces


def trial(state: MatrixBurgState, Z: Array) -> Trial:
    """Return one instance ``Z Z'``, ``Z`` of shape ``(n,)`` or ``(n, k)``, in the current state."""
    factors = tuple(_eigen(F, Z) for F in state if F is not None)
    shares = factors[0][1]
    # With a ceiling the last factor is H's, with the larger eigenvalues but for round-off.
    if Z.ndim == 1:
        return Trial(shares, shares**2, shares, max(shares, factors[-1][1]), shares, factors)
    lowest, highest = float(shares[0]), max(float(shares[-1]), float(factors[-1][1][-1]))
    return Trial(float(shares.sum()), float(shares @ shares), lowest, highest, shares, factors)


def _eigen(F: Array, Z: Array) -> tuple[Array, Any]:
    """Return ``V`` and ``m`` with ``F'ZZ'F = V V'`` and ``V'V = diag(m)``; ``m`` is a number for a vector."""
    V = Z.T @ F
    if V.ndim == 1:
        return V, float(V @ V)
    m, Q = np.linalg.eigh(V @ V.T)
    return V.T @ Q, np.maximum(m, 0.0)


def move(state: MatrixBurgState, seen: Trial, step: float) -> MatrixBurgState:
    """Return the state of ``W+`` with ``inv(W+) = inv(W) + step Z Z'``."""
    H = None if state.H is None else _moved(state.H, *seen.factors[1], step)
    return MatrixBurgState(_moved(state.F, *seen.factors[0], step), H)


def _moved(F: Array, V: Array, m: Any, step: float) -> Array:
    """Return ``F (I + step V V')^(-1/2)``, where ``V'V = diag(m)``."""
    root = (1 + step * m) ** 0.5
    left = F @ V * (step / (root * (1 + root)))
    moved: Array = F - (np.multiply.outer(left, V) if V.ndim == 1 else left @ V.T)
    return moved


def largest_rate(state: MatrixBurgState, Z: Array, y: float, loss: Loss = SQUARE) -> float:
    """Return the largest rate for which the bound holds and ``W`` stays definite and below its ceiling.

    It is at most half of the limit of the ceiling, as in Algorithm 2: ``inv(W+) - I/c``, which is
    ``inv(H H') + b Z Z'``, is positive definite if and only if the eigenvalues of ``b Z'HH'Z`` are above -1.
    """
    seen = trial(state, Z)
    return rate_limit(seen, loss.derivative(seen.prediction, y), loss.smoothness)


def update(state: MatrixBurgState, Z: Array, y: float, eta: float, loss: Loss = SQUARE) -> MatrixBurgState:
    """Learn from one instance: ``inv(W+) = inv(W) + eta l'(tr(WX)) X``, Algorithm 2.

    Raises
    ------
    ValueError
        If the matrix would not stay positive definite, or below its ceiling; this does not happen up to
        :func:`largest_rate`.
    """
    seen = trial(state, Z)
    step = eta * loss.derivative(seen.prediction, y)
    if min(step * seen.lowest, step * seen.highest) <= -1:
        raise ValueError(f"eta is {eta:g}, with which the matrix would not stay in its domain")
    return move(state, seen, step)


def divergence(U: Array, W: Array) -> float:
    """Return ``tr(U inv(W)) - log det(U inv(W)) - n``; infinite if `U` is singular."""
    ratio = np.linalg.solve(W, U)
    sign, logdet = np.linalg.slogdet(ratio)
    return float(np.trace(ratio)) - float(logdet) - len(W) if sign > 0 else math.inf
