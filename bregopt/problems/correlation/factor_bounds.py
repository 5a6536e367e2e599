"""Lower bounds on the distance of a matrix from those with ``k`` factors, which no loadings can beat.

The distance is ``||off(B - M M')||_F^2`` for `M` of shape ``(n, k)`` with ``||m_i||^2 <= c_i``. Entries of
the diagonal do not count, which is why the best approximation of rank `k` alone proves nothing. Two bounds
prove something:

- For disjoint sets ``I`` and ``J`` the block of ``M M'`` has rank `k` at most. Its distance from ``B_IJ`` is
  at least the sum of the squared singular values of ``B_IJ`` from the ``k + 1``-st on (Eckart and Young). A
  large matrix is split in halves, these again. A small one is divided into 16 groups, the columns of a
  Hadamard matrix. Each of its 15 rows with both signs splits the groups into two sets. Two columns differ in
  exactly 8 rows, as they are orthogonal, so the sum over the 15 splits counts each pair of different groups 8
  times. An average over many splits of the whole keeps more than the one split and those of its halves.
- On ``[0, c]``, ``z^2 <= c z``. With ``Z = M M'`` the distance is therefore at least
  ``||off(B)||^2 + ||Z||^2 - 2 <off(B) + Diag(c) / 2, Z>``. Its minimum over psd ``Z`` of rank `k` is
  ``||off(B)||^2`` minus the sum of the `k` largest squared positive eigenvalues of ``off(B) + Diag(c) / 2``.

The distance of the nearest correlation matrix of any structure is a third bound, for an indefinite matrix.

Round-off of the eigenvalues is subtracted from the first two: those that LAPACK computes are exact for a
matrix whose distance is at most a modest multiple of the unit round-off times the order, relative to the
norm.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import hadamard

from bregopt import clock
from bregopt.arrays import EPS, Array, IntArray, Mask
from bregopt.clock import CutShort, checkpoint
from bregopt.errors import ConvergenceWarning
from bregopt.linalg import root_of
from bregopt.problems.correlation.descent import ROUND_OFF, distance, top_squares
from bregopt.problems.correlation.nearest import nearest_correlation

__all__ = ["bisection_bound", "eigenvalue_bound", "factor_bound"]

_WEAK = 0.8  # fraction of the distance below which the third bound is computed for any order
_CHEAP = 50  # order up to which it always is
_LEAST_WEIGHT = 1e-12  # least weight relative to the largest, for which it is

_LIKELY = 0.9  # fraction of the distance from which on the second bound, if possible, is mostly the best

_GROUPS = 16  # a power of two; 15 splits
_SMALL = 150  # order up to which a matrix is divided into groups


def factor_bound(B: Array, R: Array, w: Array, t: float, value: float) -> float:
    """Return the best of the bounds on ``||off(B - M M')||_F^2`` that there is time for.

    Parameters
    ----------
    B : array of shape (n, n)
        ``W^1/2 A W^1/2`` with a zero diagonal.
    R : array of shape (n, k)
        A local optimum.
    w : array of shape (n,)
        The diagonal of ``W``.
    t : float
        ``||m_i||^2 <= (1 - t) w_i``.
    value : float
        The distance of ``R R'``.
    """
    bound, c = 0.0, w * (1 - t)
    with clock.finishing(), contextlib.suppress(CutShort):
        if _largest_eigenvalue_bound(B, c, R) > _LIKELY * value:
            bound = eigenvalue_bound(B, R.shape[1], c, R, bound)
            checkpoint(len(B))
            bound = bisection_bound(B, R.shape[1], R=R, least=bound)
        else:
            bound = bisection_bound(B, R.shape[1])
            checkpoint(len(B))
            bound = eigenvalue_bound(B, R.shape[1], c, R, bound)
        if (bound < _WEAK * value or len(B) <= _CHEAP) and _indefinite(B, c):
            bound = max(bound, _convex_bound(B, w, t))
    return bound


def bisection_bound(B: Array, k: int, seed: int = 0, R: Array | None = None, least: float = 0.0) -> float:
    """Return the bound by blocks of rank `k`, zero where no block has more than `k` rows; or `least`.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric; the diagonal is not used.
    k : int
    seed : int
        Seed of the random order in which rows are divided: an order of the user's, such as one by time,
        would leave little in the blocks.
    R : array of shape (n, k), optional
        A local optimum. Each block of ``R R'`` has rank `k`, so that its distance is at least that of the
        best one; the sum of these distances tells early that the bound is not above `least`.
    least : float
    """
    order = np.random.default_rng(seed).permutation(len(B))
    bound, possible = 0.0, math.inf if R is None else distance(B, R)
    for weight, I, J in _blocks(order, k):  # noqa: E741
        checkpoint()
        block = B[I[:, None], J]
        tail = _tail(block, k)
        bound += weight * tail
        if R is not None:
            possible -= weight * (float(np.square(block - R[I] @ R[J].T).sum()) - tail)
            if possible <= least:
                break
    return max(bound, least)


def eigenvalue_bound(B: Array, k: int, c: Array, R: Array, least: float) -> float:
    """Return the bound by the eigenvalues of ``off(B) + Diag(c) / 2``; `least` if it is not above that.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    k : int
    c : array of shape (n,)
        The largest squared lengths of the rows.
    R : array of shape (n, k)
        A local optimum, which tells cheaply that the bound is low.
    least : float
    """
    if _largest_eigenvalue_bound(B, c, R) <= least:
        return least
    square = _square(B)
    shifted = B.copy()
    shifted[np.diag_indices(len(B))] = c / 2
    eigenvalues = np.asarray(np.linalg.eigvalsh(shifted), dtype=np.float64)
    size = len(B) * float(np.linalg.norm(shifted))
    return max(least, square * (1 - len(B) * EPS) - top_squares(eigenvalues, k, size))


def _largest_eigenvalue_bound(B: Array, c: Array, R: Array) -> float:
    """Return a number that the bound cannot exceed: Ritz values on the range of `R` are below eigenvalues."""
    Q = np.linalg.qr(R)[0]
    ritz = np.maximum(np.linalg.eigvalsh(Q.T @ (B @ Q + c[:, None] * Q / 2)), 0.0)
    return _square(B) - float(ritz @ ritz)


def _square(B: Array) -> float:
    return float(np.einsum("ij,ij->i", B, B).sum())  # by rows: less round-off


def _indefinite(B: Array, c: Array) -> bool:
    """Whether ``off(A) + (1 - t) I`` is indefinite, by Cholesky's factorization of it with weights."""
    shifted = B.copy()
    np.fill_diagonal(shifted, c)
    return root_of(shifted) is None


def _convex_bound(B: Array, w: Array, t: float) -> float:
    """Return the bound by the nearest correlation matrix with eigenvalues from `t` on."""
    if w.min() < _LEAST_WEIGHT * w.max():
        return 0.0
    s = np.sqrt(w)
    A = B / np.outer(s, s)
    np.fill_diagonal(A, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its bound is proven all the same
        nearest: Any = nearest_correlation(A, min_eigenvalue=t, weights=w / w.max())
    return float(nearest.dual_value) * w.max() ** 2


def _blocks(order: IntArray, k: int, whole: bool = True) -> Iterator[tuple[float, IntArray, IntArray]]:
    """Yield blocks of the rows and columns in `order`, and the weight of each in the bound.

    Pairs inside a group are few but for the `whole` matrix.
    """
    n = len(order)
    if n < 2 * k + 2:  # no split has more than k rows on both sides
        return
    if n > _SMALL:
        halves = order[::2], order[1::2]
        yield 2.0, *halves
        for half in halves:
            yield from _blocks(half, k, whole=False)
        return
    groups = np.arange(n) % _GROUPS
    for side in _splits():
        of_group = side[groups]
        yield 2 / (_GROUPS // 2), order[of_group], order[~of_group]
    for g in range(_GROUPS if whole else 0):
        yield from _blocks(order[g::_GROUPS], k, whole=False)


@cache
def _splits() -> Mask:
    """Return the side of each group in each split, shape ``(15, 16)``."""
    sides: Mask = hadamard(_GROUPS)[1:] < 0
    return sides


def _tail(block: Array, k: int) -> float:
    """Return a lower bound on the sum of the squared singular values of a block but for the `k` largest."""
    block = block if block.shape[0] <= block.shape[1] else block.T
    left = len(block) - k
    if left <= 0:
        return 0.0
    eigenvalues = np.linalg.eigvalsh(block @ block.T)
    error = ROUND_OFF * sum(block.shape) * float(np.vdot(block, block))
    return max(float(eigenvalues[:left].sum()) - left * error, 0.0)
