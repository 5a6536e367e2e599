"""Bounds on the round-off of a divergence, which its value and its dual term share.

LAPACK's eigendecomposition is exact for a matrix that differs from ``X0`` by some units in the last place of
``||X0||``, and Cholesky's factorization for one that differs by as many of ``sqrt(x_ii x_jj)`` (Higham 2002,
Accuracy and Stability of Numerical Algorithms, §10.1). The divergence from that matrix is evaluated, and a
logarithm or an inverse of an ill-conditioned ``X0`` differs by its condition number times as much. So no
distance between value and bound shows this error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bregopt.arrays import EPS, TINY, Array

__all__ = [
    "LEAST_LOGARITHM",
    "ROOT_UNITS",
    "UNITS",
    "error_of_inverse",
    "error_of_log_det",
    "error_of_slope",
    "error_of_square",
]

# The backward errors of an eigendecomposition, relative to the norm, and of Cholesky's factorization,
# relative to the diagonal. The largest of random matrices are 5 EPS and 0.9 EPS.
UNITS, ROOT_UNITS = 8 * EPS, 4 * EPS
# Minus the logarithm of the least eigenvalue that a matrix of norm one shows in doubles.
LEAST_LOGARITHM = -math.log(EPS)


def error_of_square(X: Array, X0: Array) -> float:
    """Return the largest error of the computed ``||X - X0||_F^2`` for entries with round-off."""
    round_off = EPS * float(np.linalg.norm(X) + np.linalg.norm(X0))
    return round_off * (float(np.linalg.norm(X - X0)) + round_off)


def error_of_slope(x0: Array, Q: Array, slope: Callable[[Array], Array]) -> Array:
    """Return ``M`` with ``|<X, F - phi'(X0)>| <= <X, M>`` for psd ``X`` and the computed ``F = phi'(X0)``.

    The bound holds for operator monotone ``phi'``, as those of the logarithm, minus the inverse, and the
    identity: ``X0 - e I <= Y <= X0 + e I`` implies ``phi'(X0 - e I) <= phi'(Y) <= phi'(X0 + e I)``.

    Parameters
    ----------
    x0 : array of shape (..., n)
        The eigenvalues of ``X0``.
    Q : array of shape (..., n, n)
        Its eigenvectors.
    slope : callable
        ``phi'``, applied to arrays.

    Returns
    -------
    array of shape (..., n, n)
        With entries that are not finite if nothing is known of ``phi'(X0)``.
    """
    reach = UNITS * np.abs(x0).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        own = slope(x0)
        above, below = slope(x0 + reach) - own, own - slope(np.maximum(x0 - reach, np.minimum(x0, 0.0)))
        most = np.maximum(above, below) + UNITS * np.abs(own).max(axis=-1, keepdims=True)
        error: Array = (Q * most[..., None, :]) @ np.swapaxes(Q, -1, -2)
    return error


def error_of_inverse(inverse: Array, diagonal: Array) -> Array:
    """Return ``M`` with ``|<X, Y - inv(X0)>| <= <X, M>`` for psd ``X`` and the computed inverse ``Y``.

    Parameters
    ----------
    inverse : array of shape (..., n, n)
    diagonal : array of shape (..., n)
        That of ``X0``.
    """
    error: Array = ROOT_UNITS * _growth(inverse, diagonal) * ((inverse * diagonal[..., None, :]) @ inverse)
    return error


def error_of_log_det(inverse: Array, diagonal: Array) -> Array:
    """Return the largest error of the computed ``logdet X`` for ``X`` with this inverse and diagonal."""
    trace = np.add.reduce(diagonal * inverse.diagonal(axis1=-2, axis2=-1), axis=-1)
    error: Array = ROOT_UNITS * _growth(inverse, diagonal)[..., 0, 0] * trace
    return error


def _growth(inverse: Array, diagonal: Array) -> Array:
    """Return ``1 / (1 - t)``, which bounds all orders by the first; infinite where nothing is known.

    With ``D^2`` the diagonal, ``t`` is the norm of ``D inv(X) D`` times the backward error relative to ``D``.
    """
    root = np.sqrt(diagonal)
    scaled = inverse * root[..., :, None] * root[..., None, :]
    room = 1 - ROOT_UNITS * np.sqrt(np.add.reduce(scaled * scaled, axis=(-2, -1), keepdims=True))
    growth: Array = np.where(room > 0, 1 / np.maximum(room, TINY), np.inf)
    return growth
