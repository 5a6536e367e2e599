"""The search for rows that expose a face: a combination of them is psd and fixed to zero.

Single rows are tried first, on one face after the other, then rows that imply null vectors together, pairs of
entries that fix two rows of ``X`` to be proportional, a compression of ``X`` that rows fix to a singular
matrix, and combinations of rows on the diagonal. The search is repeated on the face that is found (Borwein
and Wolkowicz 1981). :mod:`bregopt.presolve.faces` moves the program there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.linalg import added_up, columns_at, dense, root_of, rows_at
from bregopt.presolve.svec import Svec, smat, svec
from bregopt.program import Face, LowRank, Program, pays
from bregopt.program.rows import (
    Entries,
    Rows,
    SparseRows,
    dense_stack,
    placed_coordinates,
    upper_triangles,
)
from bregopt.records import dataclass

# Size of a matrix on a face that counts as zero, far below the data that users round to 1e-8.
FACE_NOISE = 1e-12
# Number of random vectors that show that a row is indefinite. It fails with probability zero; several keep
# round-off from hiding it.
_DEFINITE_PROBES = 10
# Part of the largest entry of a diagonal above which its entries are positive without doubt.
_SURELY_POSITIVE = 1e-6
# Factor of the bound in the linear program for a face. Its solver has an absolute tolerance of 1e-7.
_SHARPENED = 1e4
# Singular value of directions, relative to the largest, below which they are dependent.
_PARALLEL = 1e-8
# Entries of rows fixed to zero above which no null vectors are sought: they are orthogonalized.
_LARGEST_ZERO_ROWS = 30_000_000
# Weights of rows on the diagonal above which no linear program is solved for a face: it takes a second.
_LARGEST_LINEAR_PROGRAM = 1_000_000


@dataclass(frozen=True, eq=False)
class Exposure:
    """Rows whose combination ``F = sum weight A_k`` is psd on a face and fixed to zero.

    Parameters
    ----------
    block : int
    rows : int array
    weight : array
        Positive on ``<=`` rows, negative on ``>=`` rows.
    before : array of shape (n, q)
        The directions removed earlier.
    directions : array of shape (n, r)
        The range of ``F`` on the face, in the coordinates of ``X``.
    implied : int array, optional
        The rows that others imply on the new face, besides those that vanish there.
    """

    block: int
    rows: IntArray
    weight: Array
    before: Array
    directions: Array
    implied: IntArray | None = None


def exposures_of(program: Program) -> tuple[Exposure, ...]:
    """Return the exposures, one after the other, until no row exposes a smaller face.

    Only rows that depend on one matrix alone expose faces. A matrix with a divergence that is not restricted
    to faces is on none.
    """
    removed = [np.zeros((block.n, 0)) for block in program.blocks]
    exposures: list[Exposure] = []
    used = np.zeros(program.m, dtype=bool)
    near = [block.nearness for block in program.blocks]
    whole = {b for b, own in enumerate(near) if own is not None and not own.kind.offers("restricted")}
    alone = {t.block for t in program.A.terms if program.in_one_matrix[t.place].any()}
    searched = sorted(alone - whole)
    while searched:
        b = searched.pop()
        exposure = _exposure(program, b, removed[b], used)
        if exposure is not None:
            directions = np.column_stack([exposure.before, exposure.directions])
            if near[b] is not None and directions.shape[1] == program.blocks[b].n:
                continue  # no divergence is stated in matrices of order zero
            removed[b] = directions
            used[exposure.rows] = True
            exposures.append(exposure)
            searched.append(b)
    return tuple(exposures)


def _exposure(program: Program, b: int, before: Array, used: Mask) -> Exposure | None:
    """Return an exposure on one block's face without the directions `before`, None where there is none."""
    face = Face(before)
    if face.order == 0:
        return None
    rows, weight, ranges = [], [], []
    for k, sign, A in _pinned(program, b, face, used):
        norm = float(np.linalg.norm(A))
        own = _range_of(sign * face.compress(A), norm)
        if own is not None:
            rows.append(k)
            weight.append(sign / norm)
            ranges.append(own / max(float(np.linalg.norm(own)), TINY))
    if rows:
        left, s, _ = np.linalg.svd(np.column_stack(ranges), full_matrices=False)
        new = left[:, s > _PARALLEL * s.max()]
        return Exposure(b, np.array(rows), np.array(weight), before, face.embed(new))
    near = program.blocks[b].nearness
    # Newton's method for squares, and that for linear objectives, soon end at multipliers that diverge. Rows
    # without objective, or of a tangent, are those of entropies.
    entropic = program.tangent is not None or not pays(program)
    if near is not None:
        entropic = not near.kind.quadratic or program.k > 0
    null = _null_exposure(program, b, before, used) if entropic else None
    found = null or _fixed_compression(program, b, before, used)
    if found is not None or before.shape[1]:
        return found
    # Bounds of a linear program, as of a node of branch and bound, lose more by the multiple of F.
    curved = near is not None or entropic or program.k > 0 or not program.bounds.all_hard
    collinear = _collinear_exposure(program, b) if curved else None
    return collinear or _diagonal_exposure(program, b)


def _pinned(program: Program, b: int, face: Face, used: Mask) -> Iterator[tuple[int, float, Array]]:
    """Yield ``(k, sign, A_k)`` for hard rows ``<sign A_k, X> <= 0`` of one block whose matrix may be psd."""
    bounds = program.bounds
    alone = program.in_one_matrix & ~used
    for term in program.A.terms_of(b):
        for sign, end in ((1.0, bounds.hi), (-1.0, bounds.lo)):
            candidate = (alone[term.at] & (end[term.at] == 0)).nonzero()[0]
            if len(candidate) == 0:
                continue
            rows = term.rows.slice(candidate)
            for local in _may_be_psd(rows, sign, face).nonzero()[0]:
                checkpoint()
                unit = np.zeros(rows.m)
                unit[local] = 1.0
                yield int(term.at[candidate[local]]), sign, rows.adjoint(unit)


def _may_be_psd(rows: Rows, sign: float, face: Face) -> Mask:
    """Return which ``sign A_k`` may be psd and nonzero: by diagonals, or by random vectors on a face."""
    if face.codimension == 0:
        value, row = _diagonals(rows)
    else:
        V = face.embed(np.random.default_rng(0).normal(size=(face.order, _DEFINITE_PROBES)))
        value = np.concatenate([rows.apply(LowRank(v[:, None])) for v in V.T])
        row = np.tile(np.arange(rows.m), _DEFINITE_PROBES)
    least, largest = np.zeros((2, rows.m))
    np.minimum.at(least, row, sign * value)
    np.maximum.at(largest, row, sign * value)
    return (least >= 0) & (largest > 0)


def _diagonals(rows: Rows) -> tuple[Array, IntArray]:
    """Return the entries on the diagonals of the ``A_k`` that are not zero, and the row of each."""
    forms = None if rows.few_terms else rows.rank_one_terms()
    if forms is not None:
        diagonals = np.zeros((rows.m, rows.n))
        np.add.at(diagonals, forms.row, forms.weight[:, None] * dense(forms.U) ** 2)
        row, i = diagonals.nonzero()
        return diagonals[row, i], row
    t = rows.coordinates()
    own = t.i == t.j
    value, row, _ = added_up(t.value[own], t.row[own], t.i[own], rows.n)
    return value, row


def _range_of(A: Array, norm: float) -> Array | None:
    """Return a basis of the range of a psd matrix by pivoted Cholesky steps, None if it is not psd.

    It is zero up to the round-off of numbers as large as `norm`.
    """
    size = float(np.abs(A).max())
    if size <= FACE_NOISE * norm:
        return None
    tol = len(A) * FACE_NOISE * size
    packed, pivot, rank, _ = scipy.linalg.lapack.dpstrf(A, tol=tol, lower=1)
    L = np.zeros((len(A), rank))
    L[pivot - 1] = np.tril(packed)[:, :rank]
    return L if np.abs(A - L @ L.T).max() <= 10 * tol else None


# Pays on: von Neumann nearness with a null vector, n = 60.
def _null_exposure(program: Program, b: int, before: Array, used: Mask) -> Exposure | None:
    """Return the null vectors that rows fixed to zero imply together, as ``X v == 0`` does, if there are any.

    A random matrix that meets these rows has no other null vectors than those that all such matrices have.
    For an orthonormal basis ``N`` of these, ``F = N N'`` is orthogonal to all of them, so it is a combination
    of the rows.
    """
    face, bounds = Face(before), program.bounds
    n = face.order
    zero = program.in_one_matrix & bounds.equal & (bounds.lo == 0) & ~used
    terms = [term for term in program.A.terms_of(b) if not term.rows.single]
    own = [zero[term.at].nonzero()[0] for term in terms]
    count = sum(map(len, own))
    if not n <= count <= _LARGEST_ZERO_ROWS / n**2:
        return None
    at = np.concatenate([term.at[kept] for term, kept in zip(terms, own, strict=True)])
    parts = [term.rows.slice(kept) for term, kept in zip(terms, own, strict=True) if len(kept)]
    if face.codimension:
        parts = [rows.restrict(face.basis) for rows in parts]
    B: Any = np.hstack([upper_triangles(rows) for rows in parts]) / svec(np.ones((n, n)))[:, None]
    Q, R, _ = scipy.linalg.qr(B, mode="economic", pivoting=True)
    independent = np.abs(R.diagonal()) > _PARALLEL * abs(R[0, 0])
    Q = Q[:, : int(independent.sum())]
    random = np.random.default_rng(0).normal(size=(len(B), 2))
    first, second = Svec((n,), 0).points((random - Q @ (Q.T @ random)).T)[0][0]
    noise = n * FACE_NOISE * float(np.linalg.norm(random))
    eigenvalues, V = np.linalg.eigh(first)
    N = V[:, np.abs(eigenvalues) <= noise]
    if N.shape[1] == 0 or np.abs(second @ N).max() > noise:
        return None
    F = svec(N @ N.T)
    weight = np.linalg.lstsq(B, F, rcond=None)[0]
    if np.abs(B @ weight - F).max() > n * FACE_NOISE:
        return None
    return Exposure(b, at, weight, before, face.embed(N))


# Pays on: nearest correlation matrix, pairs fixed at one.
def _collinear_exposure(program: Program, b: int) -> Exposure | None:
    """Return the rows that fix ``X_ii X_jj = X_ij^2``: row i of ``X`` is then a multiple of row j.

    Each pair has ``F = z z'`` with ``z = e_i / X_ii^(1/2) - sign(X_ij) e_j / X_jj^(1/2)``. Where pairs
    connect several indices, the value on the diagonal of one implies all their rows.
    """
    equal = program.in_one_matrix & program.bounds.equal
    terms = [term for term in program.A.terms_of(b) if isinstance(term.rows, Entries | SparseRows)]
    t = placed_coordinates((term.at, term.rows) for term in terms if equal[term.at].any())
    at, i, j, weight = t.row, t.i, t.j, t.value
    fixed = (equal & (np.bincount(at, minlength=program.m) == 1))[at] & (weight != 0)
    at, i, j, weight = at[fixed], i[fixed], j[fixed], weight[fixed]
    value, on, n = program.bounds.lo[at] / weight, i == j, program.blocks[b].n
    root, place = np.zeros(n), np.zeros(n, dtype=np.intp)
    root[i[on]], place[i[on]] = np.sqrt(np.maximum(value[on], 0.0)), on.nonzero()[0]
    size = root[i] * root[j]
    pairs = (~on & (size > 0) & (np.abs(np.abs(value) - size) <= 4 * EPS * size)).nonzero()[0]
    if not len(pairs):
        return None
    from scipy.sparse.csgraph import connected_components  # slow to import, seldom needed

    i, j, sign, each = i[pairs], j[pairs], np.sign(value[pairs]), np.arange(len(pairs))
    Z = np.zeros((n, len(pairs)))
    Z[i, each], Z[j, each] = 1 / root[i], -sign / root[j]
    left, s, _ = np.linalg.svd(Z / np.linalg.norm(Z, axis=0), full_matrices=False)
    count, group = connected_components(sp.coo_array((each + 1.0, (i, j)), (n, n)), directed=False)
    directions = left[:, s > _PARALLEL]
    if directions.shape[1] != n - count:  # signs contradict each other
        return None
    _, first = np.unique(group, return_index=True)
    others = np.setdiff1d(np.concatenate([i, j]), first)
    w = np.bincount(place[i], 1 / root[i] ** 2, len(at)) + np.bincount(place[j], 1 / root[j] ** 2, len(at))
    w[pairs] = -2 * sign / size[pairs]
    used = w.nonzero()[0]
    implied = at[np.concatenate([pairs, place[others]])]
    return Exposure(b, at[used], w[used] / weight[used], np.zeros((n, 0)), directions, implied)


# Pays on: a relative entropy by quadrature, n = 2.
def _fixed_compression(program: Program, b: int, before: Array, used: Mask) -> Exposure | None:
    """Return the null vectors of a compression of ``X`` that rows fix, up to multiples of few matrices.

    Let ``R`` be an orthonormal basis of the space on which the matrices of the rows act. The rows, with
    variables or without, leave ``R'XR`` an affine space. If its matrices have null vectors ``N`` in common,
    ``R N N'R'`` is a combination of rows that is fixed to zero (Krislock and Wolkowicz 2010, for distances
    within a clique, where the space is a point).
    """
    face = Face(before)
    n = face.order
    equal = program.A.in_one_block & program.bounds.hard & program.bounds.equal & ~used
    given = np.concatenate([term.at[equal[term.at]] for term in program.A.terms_of(b)])
    equal[_with_own_variable(program, given)] = False
    terms = [term for term in program.A.terms_of(b) if equal[term.at].any()]
    own = [equal[term.at].nonzero()[0] for term in terms]
    count = sum(map(len, own))
    largest = int((math.sqrt(8 * count + 1) - 1) / 2)  # order of a matrix that so many rows may fix
    if largest < 2 or count > _LARGEST_ZERO_ROWS / n**2:
        return None
    parts = [term.rows.slice(kept) for term, kept in zip(terms, own, strict=True)]
    if face.codimension:
        parts = [rows.restrict(face.basis) for rows in parts]
    rng = np.random.default_rng(0)
    random = sum(rows.adjoint(rng.normal(size=rows.m)) for rows in parts)
    left, s, _ = np.linalg.svd(random @ rng.normal(size=(n, min(largest + 1, n))), full_matrices=False)
    R = left[:, s > _PARALLEL * s[0]]
    order = R.shape[1]
    if not 2 <= order <= largest:
        return None
    at = np.concatenate([term.at[kept] for term, kept in zip(terms, own, strict=True)])
    stack = np.concatenate([dense_stack(rows.restrict(R)) for rows in parts])
    B, right, of_variables = svec(stack), program.bounds.lo[at], coefficients(program, at)
    if of_variables.shape[1] >= len(at):  # no combination of rows is without variables, as a rule
        return None
    M = np.column_stack([B, of_variables])
    if _leaves_definite(M, right, order):
        return None
    P, s, Qt = np.linalg.svd(M, full_matrices=M.shape[0] < M.shape[1])
    rank = int((s > _PARALLEL * s[0]).sum())
    fixed = Qt[:rank].T @ (P.T[:rank] @ right / s[:rank])
    fixed /= float(np.linalg.norm(fixed)) or 1.0
    space = np.vstack([fixed, Qt[rank:]])[:, : B.shape[1]]
    _, size, Vt = np.linalg.svd(np.vstack([smat(S, order) for S in space]), full_matrices=False)
    zero = size <= n * FACE_NOISE * size[0]
    N, V = Vt[zero].T, Vt[~zero].T
    if not 0 < N.shape[1] < order:
        return None
    F = np.concatenate([svec(N @ N.T), np.zeros(of_variables.shape[1])])
    weight = P[:, :rank] @ (Qt[:rank] @ F / s[:rank])
    missed = np.append(weight @ right / (float(np.abs(weight) @ np.abs(right)) or 1.0), M.T @ weight - F)
    if np.abs(missed).max() > n * FACE_NOISE:
        return None
    on_face = np.column_stack([svec(V.T @ stack @ V), of_variables])
    _, triangle, pivot = scipy.linalg.qr(on_face.T, mode="economic", pivoting=True)
    left_over = np.abs(triangle.diagonal()) > _PARALLEL * abs(triangle[0, 0])
    implied = at[pivot[int(left_over.sum()) :]]
    return Exposure(b, at, weight, before, face.embed(R @ N), implied)


def _leaves_definite(M: Array, right: Array, order: int) -> bool:
    """Whether a random point on the rows has a matrix without null vectors, so that all have none in common.

    Matrix inequalities leave such points. This takes a tenth of the time of singular values.
    """
    root = root_of(M @ M.T) if len(M) <= M.shape[1] else None
    if root is None:  # the rows are dependent
        return False
    random = np.random.default_rng(0).normal(size=M.shape[1])
    point = random + M.T @ scipy.linalg.cho_solve((root, True), right - M @ random, check_finite=False)
    size = np.abs(np.linalg.eigvalsh(smat(point[: order * (order + 1) // 2], order)))
    pivots = root.diagonal()
    near = np.abs(M @ point - right).max() <= FACE_NOISE * size.max() * pivots.min() / pivots.max()
    return bool(near and size.min() > _SURELY_POSITIVE * size.max())


def _with_own_variable(program: Program, at: IntArray) -> IntArray:
    """Return the rows with a variable that no other one of the given rows has: it leaves them free."""
    if program.alone[at].all():
        return at[:0]
    B = rows_at(program.B, at)
    once = np.bincount(B.indices, minlength=program.k)[B.indices] == 1
    return at[np.bincount(np.arange(len(at)).repeat(np.diff(B.indptr)), once, len(at)) > 0]


def coefficients(program: Program, at: IntArray) -> Array:
    """Return the coefficients of the variables that occur in some rows, a column of norm one each."""
    if program.alone[at].all():
        return np.zeros((len(at), 0))
    rows = rows_at(program.B, at)
    B = dense(columns_at(rows, np.unique(rows.indices)))
    return B / np.linalg.norm(B, axis=0)


# Pays on: rows that fix diagonal entries to zero, n = 80.
def _diagonal_exposure(program: Program, b: int) -> Exposure | None:
    """Return the combination of rows on the diagonal that fixes the most entries to zero, if there is one.

    It solves the linear program ``max sum t`` subject to ``0 <= t <= 1``, ``t <= sum_k weight_k diag(A_k)``,
    ``weight'b <= 0``, with one weight for each bound of a row.
    """
    at, W = _diagonal_rows(program, b)
    if len(at) < 2 or (W != 0).sum(axis=1).max() < 2:
        return None
    lo, hi = program.bounds.lo[at], program.bounds.hi[at]
    if _has_positive_solution(W, lo, hi):
        return None
    from scipy.optimize import linprog  # slow to import, seldom needed

    up, down = np.isfinite(hi).nonzero()[0], np.isfinite(lo).nonzero()[0]
    ends, n = len(up) + len(down), W.shape[1]
    above = np.column_stack([-np.vstack([W[up], -W[down]]).T, np.eye(n)])
    bound = np.concatenate([hi[up], -lo[down]])
    size = float(np.abs(bound).max())
    asked = np.concatenate([_SHARPENED / (size or 1.0) * bound, np.zeros(n)])
    box = [(0, None)] * ends + [(0, 1)] * n
    cost = np.concatenate([np.zeros(ends), -np.ones(n)])
    answer = linprog(cost, A_ub=np.vstack([above, asked]), b_ub=np.zeros(n + 1), bounds=box)
    if answer.status != 0 or -answer.fun < 0.5:
        return None
    p = answer.x[:ends] * np.repeat([1.0, -1.0], [len(up), len(down)])
    if np.abs(p) @ bound > FACE_NOISE * (np.abs(p) @ np.abs(bound)):  # within the tolerance of the solver
        return None
    weight = np.bincount(np.concatenate([up, down]), p, len(at)).astype(float)
    fixed = (weight @ W > 0.5).nonzero()[0]
    return Exposure(b, at, weight, np.zeros((n, 0)), np.eye(n)[:, fixed])


# Pays on: largest entropy at an energy, order 4.
def _has_positive_solution(W: Array, lo: Array, hi: Array) -> bool:
    """Whether least squares find positive numbers that meet the rows, so that these fix none at zero."""
    sums, least = W.sum(axis=1), np.clip(0.0, lo, hi)
    mean = float(sums @ least) / (float(sums @ sums) or 1.0)
    target = np.clip(mean * sums, lo, hi)
    x = mean + np.linalg.lstsq(W, target - mean * sums, rcond=None)[0]
    missed = np.abs(W @ x - target) <= FACE_NOISE * (np.abs(W) @ np.abs(x))
    return bool(missed.all() and x.min() > _SURELY_POSITIVE * x.max())


def _diagonal_rows(program: Program, b: int) -> tuple[IntArray, Array]:
    """Return the rows that depend on the diagonal of one block only, and their weights there.

    None are returned if they are very many, or if each has one entry: those imply nothing together.
    """
    n, (row, i, w) = program.blocks[b].n, program.A.on_diagonal(b)
    own = program.in_one_matrix[row]
    if not own.all():
        row, i, w = row[own], i[own], w[own]
    count = np.bincount(row, minlength=program.m)
    at: IntArray = count.nonzero()[0]
    if len(at) == len(row) or len(at) * n > _LARGEST_LINEAR_PROGRAM:
        return at[:0], np.zeros((0, n))
    W = np.zeros((len(at), n))
    W[np.searchsorted(at, row), i] = w
    return at, W
