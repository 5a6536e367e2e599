"""Faces that equalities of integers imply together, proven in integers.

Relaxations of assignments and partitions often leave ``X`` no interior, although no single row shows it. If a
combination ``F = A*(w)`` of equalities is ``T S T'`` with definite ``S`` and ``b'w = 0``, then ``<F, X> = 0``
and ``X T = 0`` for every psd ``X`` that meets the rows (Borwein and Wolkowicz 1981). With ``w`` and ``T`` of
integers, and ``T`` the identity in some rows ``J``, all of this is exact in floating point: ``S`` is the part
``J`` of ``F``. The entries of ``X`` in ``J`` follow from the others,

    X = V M V',   M = X_KK,   V_K = I,   V_J = -T_K',

and the rows on the face have integer coefficients too. There some equalities are combinations of the others
(:mod:`bregopt.rigorous.implied_rows`).

Other numbers leave faces of coordinates, where `T` has columns of the identity alone: rows and columns of `X`
vanish. Their weights have many digits, and fractions decide all conditions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Penalty
from bregopt.records import replace
from bregopt.rigorous.ball import Ball, sparse_product
from bregopt.rigorous.data import Data, MatrixData
from bregopt.rigorous.implied_rows import are_integers, product_of_integers
from bregopt.rigorous.linear_algebra import exceeds, fractions_of, ldl, terms_of

__all__ = [
    "IntegerFace",
    "OnIntegerFace",
    "exposes",
    "on_integer_face",
]

_LARGEST_ORDER = 30  # of a definite matrix in fractions
_LEAST = Fraction(1, 2**300)  # eigenvalue of one


class IntegerFace(NamedTuple):
    """A combination of equalities that is psd and fixed to zero.

    Parameters
    ----------
    weight : array of shape (m,) or (q, m)
        ``w``, of integers; or sums of q doubles, for faces of coordinates.
    directions : tuple of arrays of shape (n_b, d_b)
        ``T`` of each block, of integers; the range of ``F``.
    """

    weight: Array
    directions: tuple[Array, ...]


def exposes(data: Data, face: IntegerFace) -> bool:
    """Whether ``X T = 0`` for every point of the problem, proven in integers or fractions."""
    parts = np.atleast_2d(face.weight)
    w, used = face.weight, (parts != 0).any(axis=0)
    hard = (data.lo == data.hi) & (data.kind == int(Penalty.HARD)) & (data.lo_rad == 0) & (data.hi_rad == 0)
    alone = np.diff(data.B.indptr) == 0
    if not (used.any() and (hard & alone)[used].all()):
        return False
    if w.ndim == 2:
        return _exposes_coordinates(data, parts, used, face.directions)
    if not are_integers(w):
        return False
    b = np.where(used, data.lo, 0.0)
    if not are_integers(b) or product_of_integers(b, w) != 0:
        return False
    return all(_is_range(block, w, T) for block, T in zip(data.matrices, face.directions, strict=True))


def _exposes_coordinates(data: Data, parts: Array, used: Mask, directions: tuple[Array, ...]) -> bool:
    """Whether ``A*(w)`` is definite in some coordinates of each block, else zero, and ``b'w = 0``."""
    w = {k: v for k, v in enumerate(fractions_of(parts)) if used[k]}
    if sum((v * Fraction(float(data.lo[k])) for k, v in w.items()), Fraction(0)):
        return False
    for block, T in zip(data.matrices, directions, strict=True):
        J = _identity_rows(T)
        if not _is_plain(block) or len(J) != T.shape[1] or np.count_nonzero(T) != len(J):
            return False
        place = {int(i): k for k, i in enumerate(J)}
        S = [[-_LEAST if i == j else Fraction(0) for j in range(len(J))] for i in range(len(J))]
        coefficients: dict[int, Fraction] = {}
        for k, p, a in terms_of(block.A[list(w)]):
            coefficients[p] = coefficients.get(p, Fraction(0)) + list(w.values())[k] * Fraction(a)
        for p, value in coefficients.items():
            i, j = place.get(int(block.i[p])), place.get(int(block.j[p]))
            if i is not None and j is not None:
                S[i][j] += value / 2
                S[j][i] += value / 2
            elif value:
                return False
        if len(J) > _LARGEST_ORDER or ldl(S) is None:
            return False
    return True


def _is_plain(block: MatrixData) -> bool:
    return block.anchor is None and block.cap is None and block.A_rad is None and block.null is None


def _is_range(block: MatrixData, w: Array, T: Array) -> bool:
    """Whether ``A*(w)`` of a block is ``T S T'`` with definite ``S``, in integers."""
    rows = np.flatnonzero(w)
    A = block.A[rows]
    J = _identity_rows(T)
    if not (_is_plain(block) and are_integers(A.data) and are_integers(T) and len(J) == T.shape[1]):
        return False
    coefficients = product_of_integers(A.T, w[rows])
    if coefficients is None:
        return False
    F = block.matrix(Ball.exact(2 * coefficients)).mid  # entries beside the diagonal may be halves
    S = F[np.ix_(J, J)]
    half = product_of_integers(T, S)
    whole = None if half is None else product_of_integers(half, T.T)
    if whole is None or (whole != F).any():
        return False
    return len(J) == 0 or exceeds(Ball.exact(S), np.finfo(float).tiny)


def _identity_rows(T: Array) -> IntArray:
    """Return a row of the identity for each column of `T`, in order; fewer where there are none."""
    units = np.flatnonzero((np.count_nonzero(T, axis=1) == 1) & (T.sum(axis=1) == 1))
    column = T[units].argmax(axis=1) if len(units) else units
    found, first = np.unique(column, return_index=True)
    chosen: IntArray = units[first]
    return chosen if len(found) == T.shape[1] else chosen[:0]


class OnIntegerFace(NamedTuple):
    """A problem on a face of integers.

    Parameters
    ----------
    data : Data
    bases : tuple of (array or None)
        ``V`` of each block whose matrix is on a smaller face.
    """

    data: Data
    bases: tuple[Array | None, ...]


def on_integer_face(data: Data, face: IntegerFace) -> OnIntegerFace | None:
    """Return the problem on a face, None where the rows are not proven to imply it."""
    if not exposes(data, face):
        return None
    blocks, bases = [], []
    for block, T in zip(data.matrices, face.directions, strict=True):
        on = _restricted(block, T) if T.shape[1] else (block, None)
        if on is None:
            return None
        blocks.append(on[0])
        bases.append(on[1])
    return OnIntegerFace(replace(data, matrices=tuple(blocks)), tuple(bases))


def _restricted(block: MatrixData, T: Array) -> tuple[MatrixData, Array] | None:
    """Return a block on the face ``X T = 0`` and its ``V``; None where numbers are no integers, or too large.

    ``X_ij = sum_ab V_ia V_jb M_ab``.
    """
    n, J = block.n, _identity_rows(T)
    K = np.setdiff1d(np.arange(n), J)
    q = len(K)
    V = np.zeros((n, q))
    V[K, np.arange(q)], V[J] = 1.0, -T[K].T
    left, right = sp.csr_array(V)[block.i], sp.csr_array(V)[block.j]
    # Each entry is a sum over the products of the two sparse vectors.
    one, other = np.diff(left.indptr), np.diff(right.indptr)
    count = one * other
    entry = np.repeat(np.arange(len(block.i)), count)
    place = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    a = left.indptr[entry] + place // other[entry]
    b = right.indptr[entry] + place % other[entry]
    first, second = left.indices[a], right.indices[b]
    at = np.minimum(first, second) * q + np.maximum(first, second)
    places, column = np.unique(at, return_inverse=True)
    E = sp.csr_array((left.data[a] * right.data[b], (entry, column)), (len(block.i), len(places)))
    E.sum_duplicates()
    C = sparse_product(sp.csr_array(E.T), None, block.C)
    if np.count_nonzero(T) == len(J):  # coordinates, which are neither added nor multiplied
        A, C = block.A @ E, Ball(E.T @ block.C.mid, E.T @ block.C.rad)
    else:
        A = product_of_integers(block.A, E) if are_integers(block.A.data) and block.A_rad is None else None
    if A is None:
        return None
    A.eliminate_zeros()
    A.sort_indices()
    i, j = np.divmod(places, q)
    return MatrixData(block.name, q, i, j, A, None, C, trace=block.trace), V
