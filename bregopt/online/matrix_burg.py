"""The Burg gradient for positive definite matrices and rank-one instances (Jain, Kulis, Dhillon 2007, §3).

The analysis for vectors (:mod:`bregopt.online.burg`) applies, with the LogDet divergence and ``z'Wz`` in
place of ``w x``:

    D(U, W) - D(U, W+) = log(1 + beta p) - beta z'Uz,    beta = 2 eta (p - y),  p = z'Wz.

``W`` is stored as ``F F'``, so that it is positive definite by construction. An update is one product with
``I - gamma v v'``: Sherman and Morrison's formula for the factor, in ``O(n^2)``. If ``W`` must stay below
``c I``, the matrix ``inv(inv(W) - I/c) = H H'`` is stored in the same way: it limits the growth of ``W``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array

__all__ = ["MatrixBurgState", "divergence", "init", "largest_rate", "predict", "update"]


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
    """Return ``z'Wz`` for instances ``z z'``, the vectors in the rows of `Z`; shape ``(T,)``."""
    forms: Array = ((Z @ state.F) ** 2).sum(axis=1)
    return forms


def largest_rate(state: MatrixBurgState, z: Array, y: float) -> float:
    """Return the largest rate for which the bound holds and ``W`` stays definite and below its ceiling.

    It is at most half of the limit of the ceiling, as in Algorithm 2: ``inv(W+) - I/c``, which is
    ``inv(H H') + beta z z'``, is positive definite if and only if ``beta z'HH'z > -1``.
    """
    p = float(predict(state, z[None])[0])
    if p == 0:
        return math.inf
    v = z @ (state.F if state.H is None else state.H)
    return min(1 / (4 * p**2), 1 / (4 * (y - p) * float(v @ v)) if p < y else math.inf)


def update(state: MatrixBurgState, z: Array, y: float, eta: float) -> MatrixBurgState:
    """Learn from one instance: ``inv(W+) = inv(W) + 2 eta (z'Wz - y) z z'``, Algorithm 2.

    Raises
    ------
    ValueError
        If the matrix would not stay positive definite, or below its ceiling; this does not happen up to
        :func:`largest_rate`.
    """
    beta = 2 * eta * (float(predict(state, z[None])[0]) - y)
    H = None if state.H is None else _moved(state.H, z, beta, eta)
    return MatrixBurgState(_moved(state.F, z, beta, eta), H)


def _moved(F: Array, z: Array, beta: float, eta: float) -> Array:
    """Return ``F+`` with ``inv(F+ F+') = inv(F F') + beta z z'``."""
    v = z @ F
    growth = 1 + beta * float(v @ v)
    if growth <= 0:
        raise ValueError(f"eta is {eta:g}, with which the matrix would not stay in its domain")
    root = math.sqrt(growth)
    moved: Array = F - np.outer(beta / (root * (1 + root)) * (F @ v), v)
    return moved


def divergence(U: Array, W: Array) -> float:
    """Return ``tr(U inv(W)) - log det(U inv(W)) - n``; infinite if `U` is singular."""
    ratio = np.linalg.solve(W, U)
    sign, logdet = np.linalg.slogdet(ratio)
    return float(np.trace(ratio)) - float(logdet) - len(W) if sign > 0 else math.inf
