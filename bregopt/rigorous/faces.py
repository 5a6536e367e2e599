"""Faces of the cone that rows leave, and equalities that others imply, proven without rounding.

A row ``z'X z <= 0`` of short numbers leaves a face, as in relaxations of balanced cuts: ``X`` psd and
``z'X z <= 0`` imply ``X z = 0``. For ``z`` whose last entry beside zeros, ``z_l``, is 1 or -1, ``l`` is
eliminated without rounding: ``X_al = -z_l sum_b z_b X_ab``, ``X_ll = sum_ab z_a z_b X_ab``. In other words,
``X = H M H'``, where ``H`` has unit vectors as rows, and at ``l`` the row ``-z_l z_b``.

Relaxations of assignments and partitions often leave ``X`` no interior, although no single row shows it. If a
combination ``F = A*(w)`` of equalities is ``T S T'`` with definite ``S`` and ``b'w = 0``, then ``<F, X> = 0``
and ``X T = 0`` for every psd ``X`` that meets the rows (Borwein and Wolkowicz 1981). With ``w`` and ``T`` of
integers, and ``T`` the identity in some rows ``J``, all of this is exact in floating point: ``S`` is the part
``J`` of ``F``. The entries of ``X`` in ``J`` follow from the others,

    X = V M V',   M = X_KK,   V_K = I,   V_J = -T_K',

and the rows on the face have integer coefficients too. Other numbers leave faces of coordinates, where `T`
has columns of the identity alone: rows and columns of `X` vanish. Their weights have many digits, and
fractions decide all conditions.

On faces some equalities are combinations of others. A row that is stated twice, or that is the sum of others,
makes equations singular, although it asks for nothing. A pivoted Cholesky factorization finds the rows that
depend on others up to round-off, and their coefficients. Integers near these prove the combinations of rows
of integers; elimination in fractions decides about others. Ends of rows count, too: doubles may hide a
contradiction, such as ``0.1 x = 1`` beside ``0.30000000000000004 x = 3``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.program import Penalty
from bregopt.records import kept, replace
from bregopt.rigorous.ball import Ball, sparse_product
from bregopt.rigorous.data import LARGEST_LISTED, Data, MatrixData, Null, Terms, assembled, is_short
from bregopt.rigorous.linear_algebra import Vector, eliminated, exceeds, fractions_of, is_psd, terms_of

_LARGEST_ORDER = 30  # of a definite matrix in fractions
_LEAST = Fraction(1, 2**300)  # eigenvalue of one
_LARGEST_RELATED = 5_000  # equalities of which those are sought that others imply
_LARGEST = 2.0**53  # below it, sums of integers are exact
_DENOMINATORS = (0, 50, 500, 10_000)  # ends of those that are tried at once: most are small
_ROUNDED = 1e-5  # of a multiple, the distance from an integer that counts as round-off
_FEW = 20  # entries of a row, those farthest from integers, that are tried with all denominators at once
_DEPENDENT = 1e-9  # squared distance of a unit row from the span of others that counts as zero
_NEAR = 1e-13  # the same for rows that are refused where they are not proven to depend on others
_ZERO = 1e-9  # coefficient of a unit row that counts as zero
_LARGEST_ELIMINATION = 100_000  # terms of a row times the square of the others


# --- Faces of single rows -----------------------------------------------------------------------------


class RowFace(NamedTuple):
    """What a row leaves of a block: ``X z = 0``, as the row times `sign` says ``z'X z <= 0`` or more."""

    block: int
    row: int
    sign: int
    z: Array


def on_faces(data: Data) -> tuple[Data, tuple[Array | None, ...], list[RowFace]]:
    """Return the problem with each linear block on the face of its first such row, ``H`` of each, and faces.

    The row itself has no bounds there. Where there is none, the block stays, and its ``H`` is None.
    """
    blocks: list[MatrixData] = []
    bases: list[Array | None] = []
    rows: list[int] = []
    faces: list[RowFace] = []
    zero = _zero_rows(data)
    for b, block in enumerate(data.matrices):
        whole = True
        found = block.null
        for k in _candidates(data, zero, b) if found is None else ():
            null = _null(block, k)
            if null is not None:
                found, whole = Null(k, null[0]), null[1]
                break
        smaller = None if found is None else _without_index(block, found.row if whole else -1, found.z)
        if found is None or smaller is None:
            blocks.append(block)
            bases.append(None)
            continue
        if whole:
            rows.append(found.row)
        faces.append(RowFace(b, found.row, _sign(block, found.row), found.z))
        blocks.append(smaller)
        bases.append(_basis(found.z))
    if not faces:
        return data, tuple(bases), faces
    lo, hi = data.lo.copy(), data.hi.copy()
    lo[rows], hi[rows] = -np.inf, np.inf
    return replace(data, matrices=tuple(blocks), lo=lo, hi=hi), tuple(bases), faces


def _sign(block: MatrixData, row: int) -> int:
    """Return the sign of the coefficients of a row on the diagonal; a row that is not listed is ``z'X z``."""
    at = block.A.indptr[row]
    return -1 if at < block.A.indptr[row + 1] and block.A.data[at] < 0 else 1


def _candidates(data: Data, zero: Mask, b: int) -> IntArray:
    """Return those of the rows `zero` that may be ``z'X z <= 0`` of a block, if it is linear."""
    block = data.matrices[b]
    if block.anchor is not None or block.cap is not None or block.n < 2:
        return np.zeros(0, dtype=np.intp)
    rows = np.flatnonzero(zero & (np.diff(block.A.indptr) > 0))
    first = block.A.indptr[rows]  # of z z' it is on the diagonal
    at = block.A.indices[first]
    end = np.where(block.A.data[first] > 0, data.hi[rows], data.lo[rows])
    return rows[(block.i[at] == block.j[at]) & (end == 0)]


def _zero_rows(data: Data) -> Mask:
    """Return the mask of the hard rows of one block and no variables with a bound that is exactly zero."""
    zero = (data.lo <= 0) & (data.hi >= 0) & ((data.lo == 0) | (data.hi == 0))
    zero &= (data.lo_rad == 0) & (data.hi_rad == 0)
    zero &= (data.kind == int(Penalty.HARD)) & (np.diff(data.B.indptr) == 0)
    if zero.any():
        zero &= np.sum([np.diff(block.A.indptr) > 0 for block in data.matrices], axis=0) == 1
    return zero


def _null(block: MatrixData, k: int) -> tuple[Array, bool] | None:
    """Return ``z`` with ``X z = 0`` from a row, and whether the row is ``z'X z``; None for other rows.

    The row is a multiple of ``z'X z`` with exact coefficients, or has entries of one sign on the diagonal
    alone, one of which is left out at a time. The last entry of ``z`` that is not zero is one.
    """
    at = slice(block.A.indptr[k], block.A.indptr[k + 1])
    value, column = block.A.data[at], block.A.indices[at]
    if block.A_rad is not None and block.A_rad.data[at].any():
        return None
    i, j, value = block.i[column], block.j[column], value * block.share[column]
    support = np.unique(np.concatenate([i, j]))
    s, z = len(support), np.zeros(block.n)
    if (i == j).all() and (value * value[0] > 0).all():
        z[i[0]] = 1.0
        return z, s == 1
    first = i == support[0]
    if len(value) != s * (s + 1) // 2 or not value[0] or first.sum() != s:
        return None
    z[j[first]] = value[first] / value[0]
    products = value[0] * z[i] * z[j]
    unit = z / z[support[-1]] if z[support[-1]] else z
    short = is_short(np.concatenate([value[:1], z, unit])).all()  # so that all products are exact
    if not short or (products != value).any() or (unit * z[support[-1]] != z).any():
        return None
    return (unit, True) if unit[support[-1]] == 1 else None


def _basis(z: Array) -> Array:
    last = int(np.flatnonzero(z)[-1])
    H = np.delete(np.eye(len(z)), last, axis=1)
    H[last] = -z[last] * np.delete(z, last)
    return H


def _without_index(block: MatrixData, k: int, z: Array) -> MatrixData | None:
    """Return a block without row `k` and the last index of `z`, None where it has too many terms."""
    n, m = block.n, block.A.shape[0]
    terms = _without(block, k)
    last = int(np.flatnonzero(z)[-1])
    i, j = np.divmod(terms.place, n)
    others = np.delete(np.flatnonzero(z), -1)
    one, both = (i == last) != (j == last), (i == last) & (j == last)
    s = len(others)
    if one.sum() * s + both.sum() * s * s > LARGEST_LISTED:
        return None
    a, b = np.triu_indices(s)
    # X_al is a sum over b, and X_ll one over all pairs, of which those beside the diagonal count twice.
    pairs = np.where(a == b, 1.0, 2.0) * z[others[a]] * z[others[b]]
    stay = ~(one | both)
    along = np.where(i == last, j, i)[one]
    parts = [
        (terms.row[stay], i[stay], j[stay], terms.value[stay], terms.rad[stay]),
        _outer(terms, one, np.repeat(along, s), np.tile(others, one.sum()), -z[last] * z[others]),
        _outer(terms, both, np.tile(others[a], both.sum()), np.tile(others[b], both.sum()), pairs),
    ]
    row, i, j, value, rad = (np.concatenate(part) for part in zip(*parts, strict=True))
    i, j = (index - (index > last) for index in (np.minimum(i, j), np.maximum(i, j)))
    return assembled(block.name, n - 1, m, Terms(row, i * (n - 1) + j, value, rad))


def _without(block: MatrixData, k: int) -> Terms:
    """Return the terms of a block and its cost, without those of row `k`."""
    A, m = block.A, block.A.shape[0]
    row = np.repeat(np.arange(m), np.diff(A.indptr))
    rad = np.zeros(A.nnz) if block.A_rad is None else block.A_rad.data
    kept, costs = row != k, np.flatnonzero(block.C.magnitude)
    place = block.i * block.n + block.j
    return Terms(
        np.concatenate([row[kept], np.full(len(costs), m)]),
        np.concatenate([place[A.indices[kept]], place[costs]]),
        np.concatenate([A.data[kept], block.C.mid[costs]]),
        np.concatenate([rad[kept], block.C.rad[costs]]),
    )


def _outer(terms: Terms, chosen: Mask, i: IntArray, j: IntArray, factor: Array) -> tuple[Any, ...]:
    """Return the chosen terms times each of some factors of 1 or 2, at the given entries."""
    value = np.outer(terms.value[chosen], factor).ravel()
    rad = np.outer(terms.rad[chosen], np.abs(factor)).ravel()
    return np.repeat(terms.row[chosen], len(factor)), i, j, value, rad


# --- Faces of combinations of rows --------------------------------------------------------------------


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
        if len(J) > _LARGEST_ORDER or not is_psd(S):
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


# --- Equalities that others imply ---------------------------------------------------------------------


class Relations(NamedTuple):
    """Rows that depend on others.

    Parameters
    ----------
    implied : int array of shape (d,)
        Rows that are proven to vanish where the others do.
    combinations : array of shape (d, m)
        Of rows, that vanish with their ends; each has one implied row. The coefficients are rounded.
    unproven : int array
        Rows that depend on others up to round-off, of which no such combination is found.
    """

    implied: IntArray
    combinations: Array
    unproven: IntArray


@kept
def relations(data: Data) -> Relations:
    """Return the hard equalities without radii that others imply."""
    exact = (data.lo == data.hi) & (data.kind == int(Penalty.HARD)) & (data.lo_rad == 0)
    for part in (data.A_rad, data.B_rad):
        if part is not None:
            exact[np.repeat(np.arange(data.m), np.diff(part.indptr))[part.data != 0]] = False
    for block in data.matrices:
        if block.null is not None:
            exact[block.null.row] = False
    rows = np.flatnonzero(exact)
    if len(rows) > _LARGEST_RELATED:
        rows = rows[:0]
    table = sp.csr_array(sp.hstack([data.A, data.B])) if data.k else data.A
    found = relations_of(table[rows], data.lo[rows], np.sqrt(np.append(data.share, np.ones(data.k))))
    whole = np.zeros((len(found.implied), data.m))
    whole[:, rows] = found.combinations
    return Relations(rows[found.implied], whole, rows[found.unproven])


@kept
def implied_rows(data: Data) -> Mask:
    """Return the mask of the equalities that are proven to follow from others."""
    mask = np.zeros(data.m, dtype=bool)
    mask[relations(data).implied] = True
    return mask


def relations_of(rows: Any, b: Array, unit: Array) -> Relations:
    """Return the rows that others imply, with their right sides.

    Parameters
    ----------
    rows : csr_array of shape (m, p)
    b : array of shape (m,)
    unit : array of shape (p,)
        Weights of columns, in whose norm distances are measured.
    """
    if not len(b):  # LAPACK takes no empty matrices
        return Relations(np.zeros(0, dtype=np.intp), np.zeros((0, 0)), np.zeros(0, dtype=np.intp))
    weighted = rows * unit
    size = np.asarray(abs(weighted).max(axis=1).toarray() if rows.shape[1] else np.zeros(len(b))).ravel()
    size[size == 0] = 1.0
    weighted = sp.csr_array(sp.diags_array(1 / size) @ weighted)
    gram = (weighted @ weighted.T).toarray()
    norm = np.sqrt(np.maximum(gram.diagonal(), 1.0))  # that of a row of zeros is zero
    size *= norm
    L, order, rank, _ = scipy.linalg.lapack.dpstrf(gram / np.outer(norm, norm), tol=_DEPENDENT, lower=1)
    kept, others = order[:rank] - 1, order[rank:] - 1
    L = np.tril(L[:, :rank])
    right = L[rank:].T
    M = scipy.linalg.solve_triangular(L[:rank], right, lower=True, trans=1).T if rank else right.T
    distance = gram.diagonal()[others] / norm[others] ** 2 - (L[rank:] ** 2).sum(axis=1)
    found = np.zeros((len(others), len(b)))
    N, factor = as_integers(M * size[others][:, None] / size[kept])
    found[:, kept] = N
    found[np.arange(len(others)), others] = -factor
    whole = sp.csr_array(sp.hstack([rows, sp.csr_array(b[:, None])]))
    product = product_of_integers(sp.csr_array(found), whole) if are_integers(whole.data) else None
    if product is None:
        proven = np.zeros(len(others), dtype=bool)
    else:
        proven = (factor > 0) & (abs(product).sum(axis=1) == 0)
    for d in np.flatnonzero(~proven):
        used = np.abs(M[d]) > _ZERO
        found[d, kept] = np.where(used, M[d], 0.0) * size[others[d]] / size[kept]
        found[d, others[d]] = -1.0
        proven[d] = _is_combination(whole, kept[used].tolist(), int(others[d]))
    return Relations(others[proven], found[proven], others[~proven & (distance <= _NEAR)])


def _is_combination(rows: Any, kept: list[int], last: int) -> bool:
    """Whether the last row is a combination of some others, by elimination in fractions."""
    if len(kept) ** 2 * int(np.diff(rows.indptr)[[*kept, last]].max()) > _LARGEST_ELIMINATION:
        return False
    table = rows[[*kept, last]]
    vectors: list[Vector] = [{} for _ in range(table.shape[0])]
    for k, p, a in terms_of(table):
        vectors[k][p] = Fraction(a)
    return len(eliminated(vectors)) == len(eliminated(vectors[:-1]))


def as_integers(M: Array) -> tuple[Array, Array]:
    """Return the least multiples of rows that are integers, and the factors; zero where there are none."""
    N, factor = np.zeros_like(M), np.zeros(len(M))
    far = np.abs(M - np.rint(M))
    for k, row in enumerate(M):
        own = row[np.argsort(far[k])[-_FEW:]] if far[k].max(initial=0.0) > _ROUNDED else row[:0]
        q = next((q for q in _denominators(own) if _miss(q * row) <= _ROUNDED), 0)
        N[k], factor[k] = np.rint(q * row), q
    return N, factor


def _denominators(own: Array) -> Iterator[int]:
    """Yield the factors of some numbers that make them integers, the least first."""
    for below, last in pairwise(_DENOMINATORS):
        every = np.arange(below + 1, last + 1)
        yield from every[_miss(every[:, None] * own) <= _ROUNDED].tolist()


def _miss(M: Array) -> Any:
    """Return the largest distance of a row from integers."""
    return np.abs(M - np.rint(M)).max(axis=-1, initial=0.0)


def are_integers(x: Array) -> bool:
    """Whether all numbers are integers that floating point counts exactly."""
    return bool((x == np.rint(x)).all() and np.abs(x).max(initial=0.0) < _LARGEST)


def product_of_integers(P: Any, Q: Any) -> Any | None:
    """Return the product of integers, None where it might not be exact."""
    size = abs(P) @ abs(Q)
    largest = np.max(size.data if sp.issparse(size) else size, initial=0.0)
    return P @ Q if largest < _LARGEST else None
