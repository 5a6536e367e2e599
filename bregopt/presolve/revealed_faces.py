"""Faces that multipliers and iterates reveal, where no single row or diagonal shows them.

**Diverging multipliers.** If the equalities leave ``X`` no interior, a combination ``F = A*(w)`` of them is
psd and nonzero with ``b'w = 0`` (Borwein and Wolkowicz 1981). The multipliers of an interior-point method
then grow along such a ``w``, and an answer that does not meet its tolerance shows it to a few digits.

Newton's methods find it to round-off. With ``U`` the range of ``F`` and ``V`` its null space, the first
method makes ``V'FV`` zero, which fixes the rank of ``F``. In some directions it converges only linearly: a
row ``Q`` that vanishes on the face, ``V'QV = 0``, turns ``U`` if a multiple ``t`` of it is added to ``F``,
but changes ``V'FV`` only to the second order in ``t``. The second method turns ``U`` until all rows vanish on
the face that nearly do. Their parts on the face depend on ``U`` to the first order.

**Early iterates.** Where equalities leave ``X`` no interior, the iterates soon show the null space ``W`` that
all ``X`` share: its eigenvalues fall with the residual of the rows, the others stay. Relaxations of
assignments and partitions have rows of integers, and then ``W`` is the range of a matrix ``T`` of small
integers:

1. The largest ratio of successive eigenvalues gives the dimension of ``W``. At an optimum of low rank the
   largest ratio is that of the solution, so the search is early.
2. ``T = W inv(W_J)`` for independent rows ``J``, rounded. The index of the largest diagonal entry, which
   makes a quadratic form homogeneous, is not one of them: otherwise ``T`` has fractions.
3. ``F = T S T'`` is a combination ``A*(w)`` of the equalities with ``b'w = 0``: linear equations in ``S``, of
   few unknowns. Of the solutions, that nearest to the projector on ``W`` is the most definite one.
4. ``w`` has a small denominator. The face is accepted if integers prove it
   (:mod:`bregopt.rigorous.faces`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask
from bregopt.clock import checkpoint
from bregopt.presolve import REVEALED
from bregopt.presolve.exposures import Exposure
from bregopt.presolve.faces import OnRevealedFaces, on_faces
from bregopt.presolve.svec import svec
from bregopt.program import Face, Penalty, Program
from bregopt.records import dataclass
from bregopt.rigorous.data import Data, data_of
from bregopt.rigorous.faces import IntegerFace, as_integers, on_integer_face, relations

__all__ = ["Equalities", "ExposingVector", "OnIntegerFace", "integer_basis", "integer_face", "revealed_faces"]

# Entries of the dense matrices of all equalities above which none is sought: the search takes a second.
_LARGEST_EXPOSING = 1_000_000
# Ratio of successive eigenvalues that may separate the range of F from its null space, and how many are
# tried.
_EXPOSING_GAP, _EXPOSING_RANKS = 1.5, 3
# Steps of the first Newton method. The error falls to about its square, in some directions to half of it.
_EXPOSING_PASSES = 6
# Least damping there, relative to the largest eigenvalue of the Gram matrix of the rows: above its round-off.
_EXPOSING_DAMPING = 1e-13
# V'FV and b'w after these, for w of norm one, above which there is no exposing vector nearby.
_EXPOSING_FAR = 1e-3
# Steps of the second one, which squares its error.
_TURNS = 10
# Least number of vanishing combinations that it uses: usually each gives more equations than there are
# unknowns. On small faces of large matrices it takes more, to have four times as many.
_TURN_COMBINATIONS = 5
# Entry of the combinations that vanish below which no step gains a digit.
_TURNED = 1e-14
# Singular values of their equations that count as zero: directions in which U does not change.
_TURN_RANK = 1e-5
# Size of combinations that vanish on the face, relative to the root of V'FV, until U is exact.
_TURN_NOISE = 30.0
# Entry of a combination that vanishes on the face, and of F outside its range relative to its least
# eigenvalue there, that counts as round-off.
_EXPOSING_NOISE = 1e-12
# Least positive eigenvalue of F, for w of norm one.
_LEAST_EXPOSED = 1e-4
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


# --- Diverging multipliers ------------------------------------------------------------------------------


def revealed_faces(program: Program, y: Array) -> OnRevealedFaces | None:
    """Return the program on the faces that multipliers reveal, None where they reveal none.

    Only equalities without variables are combined. The search is repeated on each face. What is found is
    cached with the program, whose faces do not depend on `y`.

    Parameters
    ----------
    program : Program
        With a divergence that is not restricted to faces it reveals none.
    y : array of shape (m,)
    """
    cached: OnRevealedFaces | None = program.reductions.get(REVEALED)
    if cached is not None:
        return cached
    rows = np.flatnonzero(program.bounds.equal & program.alone & (program.A.norms() > 0))
    large = len(rows) * sum(n**2 for n in program.A.orders) > _LARGEST_EXPOSING
    near = [block.nearness for block in program.blocks if block.nearness is not None]
    if large or not all(own.kind.offers("restricted") for own in near) or not np.isfinite(y).all():
        return None
    removed = [np.zeros((n, 0)) for n in program.A.orders]
    exposures: list[Exposure] = []
    relations: list[Array] = []
    implied, miss, w = np.zeros(0, dtype=np.intp), 0.0, -y[rows]
    while len(rows) and w.any():
        faces = [Face(directions) for directions in removed]
        found, sizes = _on_given_faces(program, rows, faces, w)
        if found is None:
            break
        for b, U in enumerate(found.U):
            if U.shape[1]:
                directions = faces[b].embed(U)
                exposures.append(Exposure(b, rows, found.w / sizes, removed[b], directions))
                removed[b] = np.column_stack([removed[b], directions])
        vanishing = np.zeros((program.m, len(found.implied)))
        vanishing[rows] = found.relations / sizes[:, None] * sizes[found.implied]
        relations.append(vanishing)
        miss = np.inf if miss else found.miss
        w = w - vanishing[rows] @ w[found.implied]
        implied = np.append(implied, rows[found.implied])
        rows, w = np.delete(rows, found.implied), np.delete(w, found.implied)
    if not exposures:
        return None
    kept = np.setdiff1d(np.arange(program.m), implied)
    reduced = on_faces(program, tuple(exposures), kept)
    revealed = OnRevealedFaces(
        program, reduced.program, kept, reduced.exposures, np.column_stack(relations), miss
    )
    program.reductions[REVEALED] = revealed
    return revealed


def _on_given_faces(
    program: Program, rows: IntArray, faces: Sequence[Face], w: Array
) -> tuple[ExposingVector | None, Array]:
    """Return the exposing vector of equalities on faces, and the norms that they have there."""
    A, units = program.A.slice(rows), np.eye(len(rows))
    stacks = [np.array([face.compress(A.adjoint(e, b)) for e in units]) for b, face in enumerate(faces)]
    sizes: Array = np.sqrt(sum((stack**2).sum(axis=(1, 2)) for stack in stacks))
    sizes[sizes == 0] = 1.0  # of rows that vanish on the faces
    scaled = [stack / sizes[:, None, None] for stack in stacks]
    return Equalities(scaled, program.bounds.lo[rows] / sizes).exposing(w * sizes), sizes


@dataclass(frozen=True, eq=False)
class ExposingVector:
    """A psd ``F = A*(w)`` with ``b'w = 0``, up to round-off.

    Parameters
    ----------
    w : array of shape (e,)
        Weights of the equalities, of norm one for equalities of norm one.
    U : tuple of arrays of shape (n_b, r_b)
        The range of ``F`` in each block.
    implied : int array
        Equalities that follow from the others on the face.
    relations : array of shape (e, d)
        A basis of the combinations that vanish on the face; the identity in the implied equalities.
    miss : float
        ``b'w`` and the entries of ``F`` outside its range, relative to its least eigenvalue there.
    """

    w: Array
    U: tuple[Array, ...]
    implied: IntArray
    relations: Array
    miss: float


class _Split(NamedTuple):
    """Bases of range and null space of ``F`` in each block, and its eigenvalues in the range."""

    U: list[Array]
    values: list[Array]
    V: list[Array]


class Equalities:
    """Equalities of norm one.

    Parameters
    ----------
    stacks : sequence of arrays of shape (e, n_b, n_b)
        Their matrices.
    b : array of shape (e,)
        Right-hand sides.
    """

    def __init__(self, stacks: list[Array], b: Array) -> None:
        self._stacks, self._b = stacks, b / max(float(np.abs(b).max(initial=0.0)), TINY)

    def exposing(self, w: Array) -> ExposingVector | None:
        """Return the exposing vector near `w`, None where none is found.

        The ranks of ``F`` that are tried are those before the largest relative gaps of its eigenvalues.
        """
        w = w / np.linalg.norm(w)
        values = np.sort(np.concatenate([np.linalg.eigvalsh(F) for F in self._combined(w)]))[::-1]
        if values[0] <= _LEAST_EXPOSED:
            return None
        values = np.maximum(values, _LEAST_EXPOSED * values[0])
        ratio = values[:-1] / values[1:]
        likely = np.argsort(-ratio)[:_EXPOSING_RANKS]
        for rank in np.sort(likely[ratio[likely] > _EXPOSING_GAP])[::-1] + 1:
            checkpoint()
            found = self._of_rank(w, int(rank))
            if found is not None:
                return found
        return None

    def _of_rank(self, w: Array, rank: int) -> ExposingVector | None:
        nearest, least = w, np.inf
        for _ in range(_EXPOSING_PASSES):
            split = self._split(w, rank)
            K = self._on_face(split)
            miss = float(np.linalg.norm(w @ K))
            if miss >= least:
                break
            nearest, least = w, miss
            if miss <= _TURNED:  # round-off of the equalities, of which a step would take the half
                break
            w = _nearer(w, K, miss)
            size = float(np.linalg.norm(w))
            if size < 0.5:  # not nearby
                return None
            w = w / size
        w, best = nearest, np.inf
        split = self._split(w, rank)
        if min(float(values.min(initial=np.inf)) for values in split.values) < _LEAST_EXPOSED:
            return None
        for _ in range(_TURNS):
            K = self._on_face(split)
            miss = float(np.linalg.norm(w @ K))
            N, others = _vanishing(K, miss)
            if miss > _EXPOSING_FAR or N.shape[1] == 0:
                break
            left = float(np.abs(N.T @ K).max())
            if left < best:
                best, found = left, (N @ (N.T @ w), N)
            if best <= _EXPOSING_NOISE and (left > best or best <= _TURNED):
                break
            w = N @ (N.T @ w + self._turn(split, N, K, others))
            w /= max(float(np.linalg.norm(w)), TINY)
            split = self._split(w, rank)
        return self._checked(found[0], rank, found[1]) if best <= _EXPOSING_NOISE else None

    def _combined(self, w: Array) -> list[Array]:
        return [(w @ A.reshape(len(w), A.shape[1] ** 2)).reshape(A.shape[1:]) for A in self._stacks]

    def _split(self, w: Array, rank: int) -> _Split:
        decomposed = [np.linalg.eigh(F) for F in self._combined(w)]
        least = np.sort(np.concatenate([values for values, _ in decomposed]))[-rank]
        U = [Q[:, values >= least] for values, Q in decomposed]
        V = [Q[:, values < least] for values, Q in decomposed]
        return _Split(U, [values[values >= least] for values, _ in decomposed], V)

    def _on_face(self, split: _Split) -> Array:
        """Return the equalities on the face as vectors with their right-hand sides, ``(e, width + 1)``."""
        parts = [svec(V.T @ A @ V) for A, V in zip(self._stacks, split.V, strict=True)]
        return np.column_stack([*parts, self._b])

    def _turn(self, split: _Split, N: Array, K: Array, others: Array) -> Array:
        """Return ``t`` such that the combinations ``N`` vanish on the face of ``F + sum_j t_j Q_j``.

        ``Q_j`` is the combination ``N_j``. The null space becomes ``V - U D'``, with
        ``D = sum_j t_j V'Q_jU W^-1`` and ``W`` the eigenvalues of ``F``. There ``V'QV`` becomes
        ``V'QV - V'QU D' - D U'QV``, up to multiples of the other equalities. Each ``Q`` gives many
        equations, so that few random ``Q`` suffice.
        """
        d = N.shape[1]
        count = min(d, max(_TURN_COMBINATIONS, 4 * d // K.shape[1]))
        mix = np.eye(d) if count == d else np.random.default_rng(0).normal(size=(d, count))
        moved = [np.zeros((count, d, 1))]  # right-hand sides do not turn
        for A, U, values, V in zip(reversed(self._stacks), *map(reversed, split), strict=True):
            corners = np.tensordot(N.T, V.T @ (A @ U), 1)
            D = corners / np.where(values > 0, values, 1.0)
            half = np.einsum("car,jbr->cjab", np.tensordot(mix.T, corners, 1), D, optimize=True)
            moved.insert(0, svec(half + half.swapaxes(2, 3)))
        S, left = np.concatenate(moved, axis=2), mix.T @ (N.T @ K)
        S -= (S @ others) @ others.T
        left = left - (left @ others) @ others.T
        t: Array = np.linalg.lstsq(S.transpose(0, 2, 1).reshape(-1, d), left.ravel(), rcond=_TURN_RANK)[0]
        return t

    def _checked(self, w: Array, rank: int, N: Array) -> ExposingVector | None:
        """Return the exposing vector if ``F`` is psd with ``b'w = 0`` up to round-off, None otherwise."""
        w = w / np.linalg.norm(w)
        split = self._split(w, rank)
        least = min(float(values.min()) for values in split.values if len(values))
        rest = [V.T @ F @ V for V, F in zip(split.V, self._combined(w), strict=True)]
        outside = max(float(np.linalg.norm(R)) for R in rest)
        if least < _LEAST_EXPOSED or outside + abs(float(self._b @ w)) > _EXPOSING_NOISE * least:
            return None
        d = N.shape[1]
        implied = scipy.linalg.qr(N.T, mode="r", pivoting=True)[1][:d]
        relations = np.linalg.solve(N[implied].T, N.T).T
        miss = (outside + abs(float(self._b @ w)) + EPS) / least
        return ExposingVector(w, tuple(split.U), implied, relations, miss)


def _nearer(w: Array, K: Array, miss: float) -> Array:
    """Return the ``w`` nearby with smaller ``K'w``: a damped step of Newton's method."""
    if not K.any():  # nothing is left of the equalities on the face
        return w
    squares, P = np.linalg.eigh(K @ K.T)
    damping = max(miss**2, _EXPOSING_DAMPING * float(squares[-1]))
    nearer: Array = P @ (damping / (np.maximum(squares, 0.0) + damping) * (P.T @ w))
    return nearer


def _vanishing(K: Array, miss: float) -> tuple[Array, Array]:
    """Return the combinations of equalities that nearly vanish, and the directions in which others do not.

    They are orthonormal, of shapes ``(e, d)`` and ``(width + 1, e - d)``: singular vectors on the two sides
    of a threshold. Where ``V'FV`` misses zero by `miss`, the error of ``U`` is about the root of that. The
    Gram matrix of the equalities takes half the time of their singular values, and loses digits of the
    vectors that a step of refinement restores.
    """
    squares, P = np.linalg.eigh(K @ K.T)
    d = int((squares <= _TURN_NOISE**2 * max(miss, _TURNED)).sum())
    N, rest = P[:, :d], P[:, d:]
    N = np.linalg.qr(N - rest @ ((rest.T @ (K @ (K.T @ N))) / squares[d:, None]))[0]
    return N, np.linalg.qr(K.T @ rest)[0]


# --- Faces of integers ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OnIntegerFace(OnRevealedFaces):
    """A program on a face of integers, without the rows that others imply there.

    Parameters
    ----------
    face : IntegerFace
    """

    face: IntegerFace
    lifting_slacks = (1e-10,)  # the bound is that on the face
    margin = 0.1  # violations of implied rows are sums of many


def integer_face(
    program: Program, X: Sequence[Array], optimum: bool = False, sparse: bool = False
) -> OnIntegerFace | None:
    """Return the program on the face of integers that an iterate shows, None where it shows none.

    An `optimum` of low rank has a larger null space, and several gaps: each is tried, and of its null space
    the part that rows imply. A method for `sparse` rows keeps those that others imply on the face.
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
    """Return the inequalities that do not vanish on the face, and equalities that imply the others there.

    None is returned where a row that is left out contradicts the others: all rows together prove that.
    """
    lo, hi = data.lo, data.hi
    vanishing, equal = np.diff(on.A.indptr) == 0, lo == hi
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
