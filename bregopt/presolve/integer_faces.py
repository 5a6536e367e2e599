"""Faces of integers, which points on the rows show where no single row or diagonal does.

Relaxations of assignments and partitions have rows of integers that leave ``X`` no interior. Then the null
space ``W`` that all ``X`` share is the range of a matrix ``T`` of small integers:

1. A multiple of the identity is projected on the equalities and the psd matrices by turns, which soon meets
   both. The null space of this point is ``W``, as it is far from the boundary otherwise.
2. ``T = W inv(W_J)`` for independent rows ``J``, rounded. The index of the largest diagonal entry, which
   makes a quadratic form homogeneous, is not one of them: otherwise ``T`` has fractions.
3. ``F = T S T'`` is a combination ``A*(w)`` of the equalities with ``b'w = 0``: linear equations in ``S``, of
   few unknowns. Of the solutions, that nearest to the projector on ``W`` is the most definite one.
4. ``w`` has a small denominator. The face is accepted if integers prove it
   (:mod:`bregopt.rigorous.faces`).

An optimum shows its face, too, with more gaps between eigenvalues (:mod:`bregopt.routes.verification`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.presolve import REVEALED
from bregopt.presolve.exposures import Exposure
from bregopt.presolve.faces import OnRevealedFaces, on_faces
from bregopt.program import Penalty, Program
from bregopt.records import dataclass
from bregopt.rigorous.data import Data, data_of
from bregopt.rigorous.faces import IntegerFace, as_integers, on_integer_face, relations

# Least ratio of successive eigenvalues that may separate the null space.
_LEAST_RATIO = 10.0
# Eigenvalues, relative to the largest, that are round-off.
_ZERO = 1e-13
# Distance of T from integers at which it is not rounded, and at which no other rows are tried.
_FAR, _ROUNDED = 0.35, 1e-6
# Dimensions of S above which it is not sought: the search costs less than a step.
_LARGEST_UNKNOWNS = 600
# Eigenvalues of the equations of S, relative to the coefficients of S, that count as zero.
_NULL = 1e-10
# Entries of all rows on the face up to which those that others imply there are left out even where equalities
# are independent: steps near the optimum then meet the rows to round-off.
_LARGEST_RESTRICTED = 2_000_000
# Residual of a row, relative to the largest bound, that is round-off.
_MISSED = 1e-8
# Square of what a row of norm one adds to those before it, below which they imply it; rows of one product.
_DEPENDENT_SQUARE, _TOGETHER = 1e-12, 64
# Eigenvalues of F, relative to the largest, above which they count.
_RANGE = 1e-9


@dataclass(frozen=True, eq=False)
class OnIntegerFace(OnRevealedFaces):
    """A program on a face of integers, without the rows that others imply there.

    Parameters
    ----------
    face : IntegerFace
    """

    face: IntegerFace
    lifting_slacks = (1e-10,)  # the bound is that on the face

    @property
    def margin(self) -> float:
        return 1.0 if len(self.kept) == self.whole.m else 0.1  # violations of implied rows are sums of many

    def contradiction(self) -> None:
        """Return None: the rows that are left imply the others."""


def integer_face(
    program: Program, X: Sequence[Array], optimum: bool = False, sparse: bool = False
) -> OnIntegerFace | None:
    """Return the program on the face of integers that a point shows, None where it shows none.

    An `optimum` of low rank has a larger null space, and several gaps: each is tried, and of its null space
    the part that rows imply. With `sparse`, all rows are kept.
    """
    directions = tuple(_integer_null_space(np.asarray(X_b)) for X_b in X)
    found = _on_face_of(program, directions, optimum, sparse)
    for d in range(len(X[0]) - 2, 0, -1) if optimum and len(X) == 1 else ():
        if found is None:
            found = _on_face_of(program, (_integer_null_space(np.asarray(X[0]), d),), optimum)
    return found


def _on_face_of(
    program: Program, directions: tuple[Array, ...], optimum: bool, sparse: bool = False
) -> OnIntegerFace | None:
    unknowns = sum(T.shape[1] * (T.shape[1] + 1) // 2 for T in directions)
    if not 0 < unknowns <= _LARGEST_UNKNOWNS:
        return None
    data = data_of(program)
    face, dependent = _exposing_integers(data, directions)
    face = _of_its_range(data, face) if optimum and face is not None else face
    on = None if face is None else on_integer_face(data, face)
    if face is None or on is None:
        return None
    directions = face.directions
    kept = np.arange(program.m)
    rows = np.flatnonzero(face.weight)
    exposures = tuple(
        Exposure(b, rows, face.weight[rows], np.zeros((len(T), 0)), np.linalg.qr(T)[0])
        for b, T in enumerate(directions)
        if T.shape[1]
    )
    on_face = on_faces(program, exposures, kept)
    entries = program.m * sum(face.order**2 for face in on_face.program.faces)
    few = dependent or not program.bounds.equal.all() or entries <= _LARGEST_RESTRICTED
    if few and not sparse:
        determining = _determining(data, on.data)
        if determining is None:
            return None
        kept = determining
        on_face = on_faces(program, exposures, kept)
    combinations = relations(on.data).combinations
    free = (np.diff(on.data.B.indptr) == 0) & program.bounds.equal
    combinations = combinations[~combinations[:, ~free].any(axis=1)]
    found = OnIntegerFace(program, on_face.program, kept, exposures, combinations.T, 0.0, face)
    program.reductions[REVEALED] = found
    return found


def _integer_null_space(X: Array, dimension: int = 0) -> Array:
    """Return ``T`` of a matrix; without columns where there is no gap in its eigenvalues, or no integers."""
    n = len(X)
    none = np.zeros((n, 0))
    if n < 3:
        return none
    values, Q = np.linalg.eigh(X)
    ratio = values[1:] / np.maximum(values[:-1], max(EPS * values[-1], TINY))
    zero = int((values <= _ZERO * values[-1]).sum())  # of an answer on the face
    d = dimension or zero or int(np.argmax(ratio)) + 1
    if d >= n - 1 or ratio[d - 1] < _LEAST_RATIO:
        return none
    return integer_basis(Q[:, :d], int(np.argmax(X.diagonal())))


def integer_basis(W: Array, apart: int) -> Array:
    """Return ``T`` with the range of `W`, whose identity is not in the row `apart`; no columns for none.

    The rows of the identity are the best conditioned ones, or the first ones where these give integers: the
    sums of a table's rows and columns are halves of some entries, but integers of its first row and column.
    """
    n, d = W.shape
    others = np.delete(np.arange(n), apart)
    own = W[others]
    nearest, least = np.zeros((n, 0)), _FAR
    for J in (scipy.linalg.qr(own.T, mode="r", pivoting=True)[1][:d], _pivots(own @ own.T).nonzero()[0]):
        if len(J) == d and least > _ROUNDED:
            T = np.linalg.solve(own[np.sort(J)].T, W.T).T
            far = float(np.abs(T - np.rint(T)).max(initial=0.0))
            if far <= least:
                nearest, least = np.rint(T), far
    return nearest


def _of_its_range(data: Data, face: IntegerFace) -> IntegerFace:
    """Return the face with the range of ``F`` itself: an optimum shows directions that no rows ask for."""
    found = []
    for block, T in zip(data.matrices, face.directions, strict=True):
        F = block.sparse_matrix(block.A.T @ face.weight).toarray()
        values, Q = np.linalg.eigh(F)
        d = int((values > _RANGE * np.abs(values).max(initial=0.0)).sum())
        if T.shape[1] == 0 or d == 0 or d == T.shape[1]:
            found.append(T if d else T[:, :0])
        else:
            found.append(integer_basis(Q[:, len(Q) - d :], int(np.argmin(F.diagonal()))))
    return IntegerFace(face.weight, tuple(found))


def _determining(data: Data, on: Data) -> IntArray | None:
    """Return the rows that do not vanish on the face, less equalities that others imply there.

    Soft rows stay, as each has its own penalty. None is returned where a row that is left out contradicts
    the others: all rows together prove that.
    """
    lo, hi, hard = data.lo, data.hi, data.kind == int(Penalty.HARD)
    vanishing, equal = hard & (np.diff(on.A.indptr) == 0), hard & (lo == hi)
    rows = np.flatnonzero(equal & ~vanishing)
    few, x = _independent(on.A[rows].toarray(), np.diff(data.A.indptr)[rows], lo[rows])
    missed = np.abs(on.A[rows] @ x - lo[rows])
    if (missed > _MISSED * np.abs(lo[rows]).max(initial=0.0)).any():
        return None
    if (vanishing & ((lo > 0) | (hi < 0))).any():
        return None
    return np.union1d(rows[few], np.flatnonzero(~equal & ~vanishing))


def _independent_rows(A: sp.csr_array) -> IntArray:
    """Return rows of which none is implied by others. Each row of one entry removes it from the others."""
    terms = np.diff(A.indptr)
    alone = np.flatnonzero(terms == 1)
    fixed, first = np.unique(A.indices[A.indptr[alone]], return_index=True)
    others = np.flatnonzero(terms > 1)
    left = sp.csc_array(A[others])[:, np.setdiff1d(np.arange(A.shape[1]), fixed)].toarray()
    own, _ = _independent(left, terms[others], np.zeros(len(others)))
    return np.concatenate([alone[first], others[own]])


def _independent(rows: Array, terms: IntArray, right: Array) -> tuple[IntArray, Array]:
    """Return rows of which none is implied by others, and the least point that has their right-hand sides.

    Those of few terms come first: weights are then integers.
    """
    order, sizes = np.argsort(terms, kind="stable"), np.linalg.norm(rows, axis=1)
    order = order[sizes[order] > 0]
    unit = 1 / np.where(sizes > 0, sizes, 1.0)
    whole = np.zeros((min(rows.shape), rows.shape[1]))
    rank, x, kept = 0, np.zeros(rows.shape[1]), []
    for first in range(0, len(order), _TOGETHER):
        own = order[first : first + _TOGETHER]
        V = rows[own] * unit[own, None]
        left, basis = right[own] * unit[own] - V @ x, whole[:rank]
        for _ in range(2):
            V = V - (V @ basis.T) @ basis
        new = _pivots(V @ V.T)
        if new.any():
            Q, R = np.linalg.qr(V[new].T)
            x = x + Q @ scipy.linalg.solve_triangular(R, left[new], trans=1)
            whole[rank : rank + Q.shape[1]] = Q.T
            rank += Q.shape[1]
            kept.append(own[new])
    return np.concatenate([np.zeros(0, dtype=np.intp), *kept]), x


def _pivots(G: Array) -> Mask:
    """Return the mask of the rows of a Gram matrix that those before them do not imply."""
    L, rank, new = np.zeros(G.shape), 0, np.zeros(len(G), dtype=bool)
    for k in range(len(G)):
        column = G[k:, k] - L[k:, :rank] @ L[k, :rank]
        if column[0] > _DEPENDENT_SQUARE:
            L[k:, rank] = column / np.sqrt(column[0])
            rank, new[k] = rank + 1, True
    return new


def _exposing_integers(data: Data, directions: Sequence[Array]) -> tuple[IntegerFace | None, bool]:
    """Return a combination of the rows that is ``T S T'``, in integers, and whether equalities are dependent.

    ``S`` is nearest to the projectors, or the identity where the weights are then integers.
    """
    equal = (data.lo == data.hi) & (data.kind == int(Penalty.HARD)) & (np.diff(data.B.indptr) == 0)
    rows = np.flatnonzero(equal)
    if not len(rows):
        return None, False
    A, share, b = data.A[rows], data.share, data.lo[rows]
    pairs = [np.triu_indices(T.shape[1]) for T in directions]
    # The coordinates of S have an orthonormal basis of symmetric matrices.
    unit = [np.where(i == j, 0.5, np.sqrt(0.5)) for i, j in pairs]  # times t_i t_j' + t_j t_i'
    products = [
        (T[block.i][:, i] * T[block.j][:, j] + T[block.i][:, j] * T[block.j][:, i]) * u
        for block, T, (i, j), u in zip(data.matrices, directions, pairs, unit, strict=True)
    ]
    activity = A @ scipy.linalg.block_diag(*products)
    gram = (A * share @ A.T).toarray()
    root, info = scipy.linalg.lapack.dpotrf(gram, lower=1)
    dependent = info != 0 or bool((root.diagonal() ** 2 <= _DEPENDENT_SQUARE * gram.diagonal()).any())
    if dependent:
        own = _independent_rows(sp.csr_array(A * np.sqrt(share)))
        rows, A, b, activity = rows[own], A[own], b[own], activity[own]
        root = scipy.linalg.cholesky((A * share @ A.T).toarray(), lower=True)
    weights = scipy.linalg.cho_solve((root, True), activity)
    sizes = [
        2 * u[:, None] * u * (G[np.ix_(i, i)] * G[np.ix_(j, j)] + G[np.ix_(i, j)] * G[np.ix_(j, i)])
        for G, (i, j), u in zip((T.T @ T for T in directions), pairs, unit, strict=True)
    ]
    right = (b @ weights) / max(float(np.linalg.norm(b)), EPS)
    whole = scipy.linalg.block_diag(*sizes)
    values, Q = np.linalg.eigh(whole - activity.T @ weights + np.outer(right, right))
    N = Q[:, values <= _NULL * float(np.abs(whole).max())]  # where all vanish, their largest is round-off
    projector = [
        np.linalg.inv(T.T @ T)[pair] * (2 * u) for T, pair, u in zip(directions, pairs, unit, strict=True)
    ]
    identity = [(i == j).astype(float) for i, j in pairs]
    for S in (projector, identity):
        w, factor = as_integers((weights @ (N @ (N.T @ np.concatenate(S))))[None])
        if factor[0] and w.any():
            break
    weight = np.zeros(data.m)
    weight[rows] = w[0]
    return IntegerFace(weight, tuple(directions)) if factor[0] and w.any() else None, dependent
