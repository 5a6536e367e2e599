"""Cuts of large graphs: rows that fix the diagonal of one large matrix, which is never formed.

A factor ``F`` whose rows are scaled to the lengths that the diagonal asks for is exactly feasible: ``X = D F
F' D`` with real numbers ``D``, and only the objective is enclosed. With a row ``z'X z = 0`` it is ``X = t P F
F' P + P diag(w) P``, where ``P = I - z z' / z'z``, and ``w`` follows from the diagonal: the equations ``t d_i
+ w_i (1 - 2 / s) + sum(w) / s^2 = a_i``, ``s = z'z``, have a closed solution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.program import Penalty
from bregopt.rigorous.ball import Ball, gamma, inflated, up
from bregopt.rigorous.data import Data, Side

__all__ = ["Corrected", "corrected", "factor_bound", "fixes_diagonal"]

_LEAST_SUPPORT = 3  # of z, for which its equations have a solution
_SPARE = 4.0  # of the share of the diagonal that the correction may fill, in distances from the rows
_NEWTON_STEPS = 8


def fixes_diagonal(data: Data) -> bool:
    """Whether the rows fix single diagonal entries of one matrix, each at most once, to positive numbers.

    One more row may be ``z'X z = 0``, if the diagonal is fixed where `z` is not zero.
    """
    if len(data.matrices) != 1 or data.k or (data.kind != int(Penalty.HARD)).any():
        return False
    block = data.matrices[0]
    if block.anchor is not None or block.cap is not None or block.A_rad is not None:
        return False
    A, null = block.A, block.null
    one = np.ones(data.m, dtype=bool)
    if null is not None:
        one[null.row] = False
    single = A.nnz == one.sum() and bool((np.diff(A.indptr)[one] == 1).all())
    if not single or (block.i[A.indices] != block.j[A.indices]).any():
        return False
    fixed = np.unique(block.i[A.indices])
    if null is not None and (np.count_nonzero(null.z) < _LEAST_SUPPORT or np.delete(null.z, fixed).any()):
        return False
    positive = (data.lo == data.hi) & (data.lo - data.lo_rad > 0)
    return len(fixed) == A.nnz and bool(positive[one].all() and (A.data > 0).all())


def factor_bound(data: Data, F: Array) -> Side:
    """Return the objective of the feasible matrix near ``F F'``, rounded upward.

    The data are those of :func:`fixes_diagonal`.
    """
    block = data.matrices[0]
    if block.null is not None:
        return _balanced_bound(data, F)
    r = F.shape[1]
    size = np.einsum("ij,ij->i", F, F)
    square = Ball(size, gamma(r + 2) * size)
    if (square.lo <= 0).any():
        return Side(math.inf, f"a row of the factor of {block.name} is zero: solve again with another seed")
    length, free = _asked(data)
    length.mid[free] = size[free]  # unscaled
    D = _root(length / square)
    D.mid[free], D.rad[free] = 1.0, 0.0
    i, j = block.i, block.j
    entry = _inner(F, i, j) * (D[i] * D[j])
    fixed = np.flatnonzero((i == j) & ~free[i])
    entry.mid[fixed], entry.rad[fixed] = length.mid[i[fixed]], length.rad[i[fixed]]  # as the rows say
    value = float(block.C.dot(entry).hi) + data.offset
    return Side(up(up(value)) if math.isfinite(value) else math.inf)


def _asked(data: Data) -> tuple[Ball, Mask]:
    """Return the diagonal that the rows ask for, one where they do not, and the mask of those entries."""
    block = data.matrices[0]
    row = np.repeat(np.arange(data.m), np.diff(block.A.indptr))
    asked = Ball(data.lo[row], data.lo_rad[row]) / block.A.data
    where = block.i[block.A.indices]
    length, free = Ball.exact(np.ones(block.n)), np.ones(block.n, dtype=bool)
    length.mid[where], length.rad[where], free[where] = asked.mid, asked.rad, False
    return length, free


class Corrected(NamedTuple):
    """A feasible matrix ``t G G' + P diag(w) P`` with ``G = P F``; see the module.

    Parameters
    ----------
    F : array of shape (n, r)
    t : float
    w : Ball of shape (n,)
        Proven nonnegative; zero where no row fixes the diagonal.
    q : float
        An upper bound on ``||F'z / s||``, the distance of each row of ``G`` from that of ``F``.
    """

    F: Array
    t: float
    w: Ball
    q: float


def corrected(data: Data, F: Array) -> Corrected | None:
    """Return a feasible matrix near ``F F'``, None where none is proven."""
    block = data.matrices[0]
    assert block.null is not None
    z, (asked, free) = block.null.z, _asked(data)
    s, on = float(np.count_nonzero(z)), z != 0
    F = _balanced(F, z, asked.mid, free)
    q = (Ball.exact(z[None]) @ F / s).frobenius()
    square = np.einsum("ij,ij->i", F, F)
    moved = inflated((2 * _lengths(F) + q) * q) * on  # of the inner product with itself
    d = Ball(square, inflated(gamma(F.shape[1] + 2) * square + moved + F.shape[1] * TINY))
    t = 1.0 - _SPARE * float(((asked - d).magnitude / asked.mid)[~free].max(initial=0.0))
    c = asked - d * t
    total = c[on].sum()
    own = (c[on] - total / (s * (s - 1))) / (Ball.exact(s - 2.0) / s)
    w = Ball(np.where(free, 0.0, c.mid), np.where(free, 0.0, c.rad))
    w.mid[on], w.rad[on] = own.mid, own.rad
    return Corrected(F, t, w, q) if t > 0 and (w.lo[~free] >= 0).all() else None


def _balanced_bound(data: Data, F: Array) -> Side:
    """Return the objective of the corrected matrix, rounded upward."""
    block, found = data.matrices[0], corrected(data, F)
    if found is None:
        return Side(math.inf, f"the factor of {block.name} is not near the rows: solve to a smaller tol")
    F, t, w, q = found
    length, i, j = _lengths(F), block.i, block.j
    inner = _inner(F, i, j)
    entry = Ball(inner.mid, inflated(inner.rad + (length[i] + length[j] + q) * q))
    # <C, P diag(w) P> is a sum of w_i v'C v with vectors of length at most one.
    size = block.sparse_matrix(block.C.magnitude).sum(axis=1).max(initial=0.0) * (1 + gamma(block.n))
    added = inflated(float(size) * float(w.sum().hi))
    value = float((block.C.dot(entry) * t + added + data.offset).hi)
    return Side(up(value) if math.isfinite(value) else math.inf)


def _lengths(F: Array) -> Array:
    """Return upper bounds on the lengths of the rows."""
    r = F.shape[1]
    found: Array = inflated(np.sqrt(np.einsum("ij,ij->i", F, F) + r * TINY) * (1 + gamma(r + 2)))
    return found


def _inner(F: Array, i: IntArray, j: IntArray) -> Ball:
    """Return inner products of rows."""
    r = F.shape[1]
    magnitude = np.einsum("kr,kr->k", np.abs(F[i]), np.abs(F[j]))
    return Ball(np.einsum("kr,kr->k", F[i], F[j]), inflated(gamma(r + 2) * magnitude + r * TINY))


def _balanced(F: Array, z: Array, asked: Array, free: Mask) -> Array:
    """Return a factor near `F` with rows of about the lengths asked for, and about ``F'z = 0``.

    Newton's method: ``f_i - z_i p``, scaled to its length, changes ``F'z`` by ``-(s I - sum f_i f_i' / a_i)
    p``.
    """
    root = np.where(free, 0.0, np.sqrt(asked))
    on, s = z != 0, float(np.count_nonzero(z))
    for _ in range(_NEWTON_STEPS):
        norms = np.linalg.norm(F, axis=1)
        F = F * np.where(free | (norms == 0), 1.0, root / np.where(norms == 0, 1.0, norms))[:, None]
        unit = F[on] / root[on, None]
        p = np.linalg.lstsq(s * np.eye(F.shape[1]) - unit.T @ unit, F.T @ z, rcond=None)[0]
        F = F - np.outer(z, p)
    return F


def _root(x: Ball) -> Ball:
    """Return the square root of positive numbers; NumPy's is correctly rounded."""
    lo, hi = np.nextafter(np.sqrt(np.maximum(x.lo, 0.0)), -np.inf), np.nextafter(np.sqrt(x.hi), np.inf)
    return Ball.between(lo, hi)
