"""Small helpers of numerical linear algebra."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bregopt.arrays import EPS, Array

__all__ = ["dense", "inverse_of", "is_definite", "lean", "log_det", "root_of", "symmetrise"]

_FEW_COLUMNS = 4
_BLOCK = 128  # of rows and columns that are transposed at a time


def root_of(S: Array) -> Array | None:
    """Return the lower Cholesky factor, None where `S` is not positive definite."""
    if len(S) == 0:
        return S
    root, info = lapack.dpotrf(S.T, lower=1, clean=1)  # the transpose is in LAPACK's order
    return root if info == 0 and math.isfinite(root.trace()) else None


def log_det(root: Array) -> float:
    """Return ``logdet(L L')``."""
    return 2 * float(np.log(root.diagonal()).sum())


def inverse_of(root: Array) -> Array:
    """Return the inverse of ``L L'`` for a factor that :func:`root_of` returned."""
    lower, _ = lapack.dpotri(root, lower=1)  # its upper triangle is zero, as the root's
    if len(lower) <= _BLOCK:
        inverse = lower + lower.T
    else:
        inverse = symmetrise(lower)
        inverse *= 2
    inverse.ravel(order="K")[:: len(inverse) + 1] /= 2  # a view of the diagonal
    return inverse


def symmetrise(S: Array) -> Array:
    """Return ``(S + S') / 2``, in the place of `S`."""
    if len(S) <= _BLOCK:
        whole = S + S.T
        return np.multiply(whole, 0.5, out=S)
    # In blocks, as a transpose misses the cache from line to line.
    for a in range(0, len(S), _BLOCK):
        b = a + _BLOCK
        own = S[a:b, a:b]
        own[:] = (own + own.T) / 2
        if b < len(S):
            right, below = S[a:b, b:], S[b:, a:b]
            right += below.T
            right /= 2
            below[:] = right.T
    return S


def is_definite(S: Array) -> bool:
    """Whether the smallest eigenvalue of a symmetric matrix is more than round-off of the largest."""
    # Where a factorisation shows it, with room, eigenvalues are not asked for.
    room = len(S) * EPS * float(np.linalg.norm(S))
    if root_of(S - room * np.eye(len(S))) is not None:
        return True
    eigenvalues = np.linalg.eigvalsh(S)
    return bool(eigenvalues[0] > len(S) * EPS * eigenvalues[-1])


def dense(S: Any) -> Array:
    """Return an array from what may be a sparse one."""
    array: Array = S if isinstance(S, np.ndarray) else S.toarray()
    return array


def lean(B: Any) -> Any:
    """Return a sparse matrix to multiply with: dense where its columns are too few to be worth a format."""
    if B.shape[1] == 0:
        return np.zeros(B.shape)
    return B.toarray() if B.shape[1] <= _FEW_COLUMNS else sp.csr_array(B)
