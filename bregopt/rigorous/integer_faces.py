"""Faces that equalities of integers imply together, proven in integers.

Relaxations of assignments and partitions often leave ``X`` no interior, although no single row shows it. If a
combination ``F = A*(w)`` of equalities is ``T S T'`` with definite ``S`` and ``b'w = 0``, then ``<F, X> = 0``
and ``X T = 0`` for every psd ``X`` that meets the rows (Borwein and Wolkowicz 1981). With ``w`` and ``T`` of
integers, and ``T`` the identity in some rows ``J``, all of this is exact in floating point: ``S`` is the part
``J`` of ``F``. The entries of ``X`` in ``J`` follow from the others,

    X = V M V',   M = X_KK,   V_K = I,   V_J = -T_K',

and the rows on the face have integer coefficients too. There some equalities are combinations of the others.
Such combinations have small denominators, and are checked in integers as well.

Other numbers leave faces of coordinates, where `T` has columns of the identity alone: rows and columns of `X`
vanish. Their weights have many digits, and fractions decide all conditions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Penalty
from bregopt.records import replace
from bregopt.rigorous.ball import Ball, sparse_product
from bregopt.rigorous.data import Data, MatrixData
from bregopt.rigorous.linear_algebra import exceeds

__all__ = [
    "IntegerFace",
    "OnIntegerFace",
    "are_integers",
    "as_integers",
    "exposes",
    "implied_equalities",
    "on_integer_face",
]

_LARGEST = 2.0**53  # below it, sums of integers are exact
_LARGEST_DENOMINATOR = 10_000
_ROUNDED = 1e-5  # of a multiple, the distance from an integer that counts as round-off
_LARGEST_ORDER = 30  # of a definite matrix in fractions
_LEAST = Fraction(1, 2**300)  # eigenvalue of one
_DEPENDENT = 1e-9  # squared distance of a unit row from the span of others that counts as zero


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
    if not are_integers(b) or _product(b, w) != 0:
        return False
    return all(_is_range(block, w, T) for block, T in zip(data.matrices, face.directions, strict=True))


def _exposes_coordinates(data: Data, parts: Array, used: Mask, directions: tuple[Array, ...]) -> bool:
    """Whether ``A*(w)`` is definite in some coordinates of each block, else zero, and ``b'w = 0``."""
    from bregopt.rigorous.rational_proofs import integers, is_semidefinite  # it proves bounds on faces

    w = {int(k): sum(map(Fraction, parts[:, k].tolist()), Fraction(0)) for k in np.flatnonzero(used)}
    if sum((v * Fraction(float(data.lo[k])) for k, v in w.items()), Fraction(0)):
        return False
    for block, T in zip(data.matrices, directions, strict=True):
        J = _identity_rows(T)
        if not _is_plain(block) or len(J) != T.shape[1] or np.count_nonzero(T) != len(J):
            return False
        place = {int(i): k for k, i in enumerate(J)}
        S = [[-_LEAST if i == j else Fraction(0) for j in range(len(J))] for i in range(len(J))]
        coefficients: dict[int, Fraction] = {}
        A = block.A[list(w)].tocoo()
        for k, p, a in zip(A.row.tolist(), A.col.tolist(), A.data.tolist(), strict=True):
            coefficients[p] = coefficients.get(p, Fraction(0)) + list(w.values())[k] * Fraction(a)
        for p, value in coefficients.items():
            i, j = place.get(int(block.i[p])), place.get(int(block.j[p]))
            if i is not None and j is not None:
                S[i][j] += value / 2
                S[j][i] += value / 2
            elif value:
                return False
        if len(J) > _LARGEST_ORDER or not is_semidefinite(integers(S, 1)):
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
    coefficients = _product(A.T, w[rows])
    if coefficients is None:
        return False
    F = block.matrix(Ball.exact(2 * coefficients)).mid  # entries beside the diagonal may be halves
    S = F[np.ix_(J, J)]
    half = _product(T, S)
    whole = None if half is None else _product(half, T.T)
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
        Equalities that others imply there are idle.
    bases : tuple of (array or None)
        ``V`` of each block whose matrix is on a smaller face.
    relations : array of shape (d, m)
        Combinations of equalities that vanish there, of integers; each has one of the implied ones.
    """

    data: Data
    bases: tuple[Array | None, ...]
    relations: Array


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
    on_face = replace(data, matrices=tuple(blocks))
    implied, relations = implied_equalities(on_face)
    return OnIntegerFace(replace(on_face, implied=implied), tuple(bases), relations)


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
        A = _product(block.A, E) if are_integers(block.A.data) and block.A_rad is None else None
    if A is None:
        return None
    A.eliminate_zeros()
    A.sort_indices()
    i, j = np.divmod(places, q)
    return MatrixData(block.name, q, i, j, A, None, C, trace=block.trace), V


def implied_equalities(data: Data) -> tuple[Mask, Array]:
    """Return the mask of equalities that others are proven to imply, and the combinations that vanish."""
    mask = np.zeros(data.m, dtype=bool)
    equal = (data.lo == data.hi) & (data.kind == int(Penalty.HARD)) & (data.lo_rad == 0) & (data.hi_rad == 0)
    rows = np.flatnonzero(equal & (np.diff(data.B.indptr) == 0))
    b = data.lo[rows]
    if data.A_rad is not None or not are_integers(b):
        return mask, np.zeros((0, data.m))
    A = data.A[rows]
    kept, others, M = _independent(A, data.share)
    N, factor = as_integers(M)
    relations = np.zeros((len(others), len(rows)))
    relations[:, kept] = N
    relations[np.arange(len(others)), others] = -factor
    products = _product(sp.csr_array(relations), A), _product(relations, b)
    if products[0] is None or products[1] is None:
        return mask, np.zeros((0, data.m))
    vanish = (factor > 0) & (abs(products[0]).sum(axis=1) == 0) & (products[1] == 0)
    mask[rows[others[vanish]]] = True
    whole = np.zeros((int(vanish.sum()), data.m))
    whole[:, rows] = relations[vanish]
    return mask, whole


def _independent(A: Any, share: Array) -> tuple[IntArray, IntArray, Array]:
    """Return rows that are independent, the others, and these as combinations of them.

    Parameters
    ----------
    A : csr_array
        Coefficients of entries.
    share : array
        Of each entry (:attr:`MatrixData.share`).
    """
    gram = (A * share @ A.T).toarray() if sp.issparse(A) else (A * share) @ A.T
    size = np.sqrt(gram.diagonal())
    size[size == 0] = 1.0
    L, order, rank, _ = scipy.linalg.lapack.dpstrf(gram / np.outer(size, size), tol=_DEPENDENT, lower=1)
    kept, others = order[:rank] - 1, order[rank:] - 1
    L = np.tril(L[:, :rank])
    right = L[rank:].T
    M = scipy.linalg.solve_triangular(L[:rank], right, lower=True, trans=1).T if rank else right.T
    return kept, others, M * size[others][:, None] / size[kept]


def as_integers(M: Array) -> tuple[Array, Array]:
    """Return the least multiples of rows that are integers, and the factors; zero where there are none."""
    N, factor = np.zeros_like(M), np.zeros(len(M))
    left = np.arange(len(M))
    for q in range(1, _LARGEST_DENOMINATOR + 1):
        if len(left) == 0:
            break
        near = np.rint(q * M[left])
        whole = np.abs(q * M[left] - near).max(axis=1, initial=0.0) <= _ROUNDED
        N[left[whole]], factor[left[whole]] = near[whole], q
        left = left[~whole]
    return N, factor


def are_integers(x: Array) -> bool:
    """Whether all numbers are integers that floating point counts exactly."""
    return bool((x == np.rint(x)).all() and np.abs(x).max(initial=0.0) < _LARGEST)


def _product(P: Any, Q: Any) -> Any | None:
    """Return the product of integers, None where it might not be exact."""
    size = abs(P) @ abs(Q)
    largest = np.max(size.data if sp.issparse(size) else size, initial=0.0)
    return P @ Q if largest < _LARGEST else None
