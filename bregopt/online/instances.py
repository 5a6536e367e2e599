"""Checks of users' examples before a learner changes: instances, labels, comparators."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpstrf

from bregopt.arrays import EPS, Array, finite_array, rectangular
from bregopt.threads import threads_for

__all__ = [
    "activities",
    "differences",
    "factors",
    "hermitian",
    "instances",
    "labels",
    "positive_definite",
    "signs",
    "spectrum_ends",
    "total_loss",
    "vectors",
]

_ROUND_OFF = 1e-10  # round-off of users' eigenvalues, relative to the largest


def _finite_stack(value: Any, name: str, ndim: tuple[int, ...], expected: str) -> Array:
    """Return a new non-empty array of finite real or complex numbers; the messages name it.

    Raises
    ------
    TypeError, ValueError
        If there are no entries, anything but numbers, NaN or Inf, or a number of dimensions not in `ndim`.
    """
    raw = rectangular(value, name)
    if raw.dtype.kind == "c":
        array: Any = finite_array(raw.real, name) + 1j * finite_array(raw.imag, name)
    else:
        array = finite_array(raw, name)
    if array.ndim not in ndim:
        raise ValueError(f"{name} has shape {array.shape}; expected {expected}")
    if array.size == 0:
        raise ValueError(f"{name} is empty, of shape {array.shape}; expected {expected}")
    return array


def hermitian(X: Array) -> Array:
    """Return the Hermitian part of a matrix or of each of a stack; for real matrices the symmetric part."""
    part: Array = (X + X.conj().swapaxes(-1, -2)) / 2
    return part


def instances(value: Any, order: int | None) -> Array:
    """Return instances as vectors ``x`` for ``x x'``, shape ``(T, n)``, or Hermitian matrices, ``(T, n, n)``.

    Only the Hermitian part of a matrix is kept: the rest has inner product zero with a Hermitian ``W``.
    """
    expected = "(T, n) for vectors or (T, n, n) for matrices"
    X = _finite_stack(value, "X", (2, 3), expected)
    if X.ndim == 3 and X.shape[1] != X.shape[2]:
        raise ValueError(f"X has shape {X.shape}; expected {expected}")
    _same_order(X.shape[1], order)
    return X if X.ndim == 2 else hermitian(X)


def _same_order(found: int, order: int | None) -> None:
    if order is not None and found != order:
        raise ValueError(f"X has instances of order {found}; expected {order}, as before")


def vectors(value: Any, order: int | None) -> Array:
    """Return real vectors, shape ``(T, n)``."""
    X = finite_array(value, "X", ndim=2)
    if X.size == 0:
        raise ValueError(f"X is empty, of shape {X.shape}; expected (T, n)")
    _same_order(X.shape[1], order)
    return X


def differences(value: Any) -> Array:
    """Return the differences of pairs of points, given in shape ``(T, 2, d)``."""
    pairs = finite_array(value, "X")
    if pairs.ndim != 3 or pairs.shape[1] != 2:
        raise ValueError(f"X has shape {pairs.shape}; expected (T, 2, d), pairs of points")
    return pairs[:, 0] - pairs[:, 1]


def factors(value: Any, order: int | None) -> Array:
    """Return instances ``X = Z Z'`` as the vectors ``Z``, shape ``(T, n)``, or factors, ``(T, n, k)``.

    Matrices, shape ``(T, n, n)``, are factored in ``O(n^2 k)`` each, with ``k`` the largest rank.

    Raises
    ------
    TypeError, ValueError
        If the shape is wrong, an entry is NaN or Inf, or a matrix is not positive semidefinite.
    """
    expected = "(T, n) for vectors, (T, n, k) with k < n for factors, or (T, n, n) for matrices"
    X = finite_array(value, "X")
    if X.ndim not in (2, 3) or (X.ndim == 3 and X.shape[2] > X.shape[1]):
        raise ValueError(f"X has shape {X.shape}; expected {expected}")
    if X.size == 0:
        raise ValueError(f"X is empty, of shape {X.shape}; expected {expected}")
    _same_order(X.shape[1], order)
    return _factored(X) if X.ndim == 3 and X.shape[1] == X.shape[2] else X


def _factored(X: Array) -> Array:
    """Return `Z` of shape ``(T, n, k)`` with ``X_t = Z_t Z_t'``, by Cholesky's factorization with pivots."""
    n = X.shape[1]
    Z, largest = np.zeros_like(X), 1
    for t, matrix in enumerate(X):
        lower, pivots, rank, _ = dpstrf(matrix, tol=n * EPS * np.abs(matrix).max(), lower=1)
        Z[t, pivots - 1, :rank] = np.tril(lower)[:, :rank]
        largest = max(largest, rank)
    Z = Z[:, :, :largest].copy()
    missed = np.abs(X - Z @ Z.swapaxes(1, 2)).max(axis=(1, 2)) > _ROUND_OFF * np.abs(X).max(axis=(1, 2))
    if missed.any():
        t = int(np.flatnonzero(missed)[0])
        raise ValueError(
            f"X[{t}] is not symmetric positive semidefinite; expected such a matrix, or a factor Z of Z Z' "
            "with fewer columns than rows"
        )
    return Z


def labels(value: Any, count: int) -> Array:
    """Return `count` checked real labels, one for each instance."""
    y = finite_array(value, "y", ndim=1)
    if len(y) != count:
        raise ValueError(f"y has {len(y)} labels for {count} instances; expected one for each")
    return y


def signs(value: Any, count: int) -> Array:
    """Return `count` checked labels, each 1 or -1, one for each instance."""
    y = labels(value, count)
    other = np.flatnonzero(np.abs(y) != 1)
    if len(other):
        raise ValueError(f"y[{other[0]}] is {y[other[0]]:g}; expected 1 or -1")
    return y


def activities(W: Array, X: Array) -> Array:
    """Return ``tr(W X_t)`` for a Hermitian ``W`` and each instance, shape ``(T,)``."""
    if X.ndim == 2:
        forms: Array = (X.conj() * (X @ W.T)).sum(axis=1).real
        return forms
    traces: Array = (X.reshape(len(X), -1) @ W.conj().ravel()).real
    return traces


def spectrum_ends(X: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest eigenvalue of each instance, two arrays of shape ``(T,)``."""
    if X.ndim == 2:
        square: Array = (np.abs(X) ** 2).sum(axis=1)
        return (square if X.shape[1] == 1 else np.zeros(len(X))), square
    with threads_for(X.shape[1]):
        eigenvalues = np.linalg.eigvalsh(X).astype(np.float64)
    return eigenvalues[:, 0], eigenvalues[:, -1]


def positive_definite(value: Any, name: str, n: int, singular: bool = False) -> Array:
    """Return a Hermitian positive definite matrix of order `n`, or one that may be `singular`.

    Raises
    ------
    TypeError, ValueError
        If the shape is wrong, an entry is NaN or Inf, the matrix is not Hermitian, or an eigenvalue is not
        positive.
    """
    W = _finite_stack(value, name, (2,), f"({n}, {n})")
    if W.shape != (n, n):
        raise ValueError(f"{name} has shape {W.shape}; expected ({n}, {n})")
    if np.abs(W - W.conj().T).max() > _ROUND_OFF * np.abs(W).max():
        raise ValueError(f"{name} is not symmetric (Hermitian); expected a symmetric matrix")
    eigenvalues = np.linalg.eigvalsh(hermitian(W))
    least = -_ROUND_OFF * abs(eigenvalues[-1]) if singular else 0.0
    if eigenvalues[0] < least or (eigenvalues[0] == 0 and not singular):
        kind = "semidefinite" if singular else "definite"
        raise ValueError(f"{name} has the eigenvalue {eigenvalues[0]:g}; expected a positive {kind} matrix")
    return hermitian(W)


def total_loss(value: Any, name: str) -> float:
    """Return a total loss that the user states, after checking that it is a number from 0 on."""
    loss = float(finite_array(value, name, ndim=0))
    if loss < 0:
        raise ValueError(f"{name} is {loss:g}; expected a number that is not negative")
    return loss
