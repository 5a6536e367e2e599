"""Faces that diverging multipliers reveal, where no single row or diagonal shows them.

If the equalities leave ``X`` no interior, a combination ``F = A*(w)`` of them is psd and nonzero with
``b'w = 0`` (Borwein and Wolkowicz 1981). The multipliers of an interior-point method then grow along such a
``w``, and an answer that does not meet its tolerance shows it to a few digits.

Newton's methods find it to round-off. With ``U`` the range of ``F`` and ``V`` its null space, the first
method makes ``V'FV`` zero, which fixes the rank of ``F``. In some directions it converges only linearly: a
row ``Q`` that vanishes on the face, ``V'QV = 0``, turns ``U`` if a multiple ``t`` of it is added to ``F``,
but changes ``V'FV`` only to the second order in ``t``. The second method turns ``U`` until all rows vanish on
the face that nearly do. Their parts on the face depend on ``U`` to the first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from bregopt.arrays import EPS, TINY, Array, IntArray
from bregopt.clock import checkpoint
from bregopt.presolve import REVEALED
from bregopt.presolve.exposures import Exposure
from bregopt.presolve.faces import OnRevealedFaces, on_faces
from bregopt.presolve.svec import svec
from bregopt.program import Face, Program
from bregopt.records import dataclass

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
        return np.linalg.lstsq(S.transpose(0, 2, 1).reshape(-1, d), left.ravel(), rcond=_TURN_RANK)[0]

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
    return P @ (damping / (np.maximum(squares, 0.0) + damping) * (P.T @ w))


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
