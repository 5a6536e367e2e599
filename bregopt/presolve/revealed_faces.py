"""Faces that diverging multipliers reveal, and directions along which an answer recedes.

If the equalities leave ``X`` no interior, a combination ``F = A*(w)`` of them is psd and nonzero with
``b'w = 0`` (Borwein and Wolkowicz 1981). No single row or diagonal need show it. The multipliers of an
interior-point method then grow along such a ``w``, and an answer that does not meet its tolerance shows it to
a few digits.

In turn a psd ``D`` with ``A(D) + B d = 0`` and ``<C, D> + c'd = 0`` changes neither rows nor objective, so
the set of optima is unbounded, or the optimum is approached without being attained. For all multipliers
``<Z, D> = 0``, hence ``Z D = 0`` wherever ``Z = C - A*(y)`` is psd: no ``Z`` is definite. A matrix that grows
without bound shows such a ``D`` to a few digits. It is a psd combination of a basis of the directions that
change nothing, as exposing vectors are of rows.

Newton's methods find both to round-off. With ``U`` the range of ``F`` and ``V`` its null space, the first
method makes ``V'FV`` zero, which fixes the rank of ``F``. In some directions it converges only linearly: a
row ``Q`` that vanishes on the face, ``V'QV = 0``, turns ``U`` if a multiple ``t`` of it is added to ``F``,
but changes ``V'FV`` only to the second order in ``t``. The second method turns ``U`` until all rows vanish on
the face that nearly do. Their parts on the face depend on ``U`` to the first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg

from bregopt.arrays import EPS, TINY, Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify, dimacs_errors
from bregopt.certify.certificate import objective_size
from bregopt.clock import checkpoint
from bregopt.presolve.exposures import Exposure
from bregopt.presolve.faces import OnFaces, on_faces
from bregopt.presolve.reduction import REVEALED
from bregopt.presolve.svec import Svec, svec, svec_rows
from bregopt.program import Answer, Face, Matrix, Program, StopReason
from bregopt.program.program import divergence_of
from bregopt.program.scale import scale_of
from bregopt.records import cached_property, dataclass, replace

__all__ = [
    "REVEALED",
    "Equalities",
    "ExposingVector",
    "OnRevealedFaces",
    "Recession",
    "recession",
    "revealed_faces",
    "shortfall",
]

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
# Singular values of rows, of norm one, that count as zero.
_RECEDING_RANK = 1e-11
# Entries of the dense matrices of all directions above which none is sought: the search takes a tenth of a
# second, as even good answers are searched that are large.
_LARGEST_RECEDING = 200_000


@dataclass(frozen=True, eq=False)
class OnRevealedFaces(OnFaces):
    """A program on faces that equalities imply up to round-off.

    Parameters
    ----------
    relations : array of shape (m, d)
        A basis of the combinations of rows that vanish on the faces.
    miss : float
        Distance of the exposures from psd matrices that are fixed to zero, relative to their least positive
        eigenvalue; infinite for a face of a face, where round-off grows once more.
    """

    relations: Array
    miss: float

    lifting_slacks: ClassVar[tuple[float, ...]] = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6)
    """Slacks that are tried for the multiples of revealed F, relative to the size of ``C - A*(y)``. A smaller
    slack needs larger multiples, which multiply the residuals of the rows and the round-off of F."""

    def restore(self, answer: Answer) -> Answer:
        """Return the answer with the multipliers of least ``V'ZU``, lifted to all rows."""
        if answer.stop is StopReason.INFEASIBLE:
            return super().restore(answer)
        y = self._turned(answer.y, answer.X)
        lifted = [self._lifted(y, True, noise, answer.X) for noise in self.lifting_slacks]
        if len(lifted) == 1:
            return replace(answer, y=lifted[0], y_on_faces=y)
        least = int(np.argmin([shortfall(self.whole, replace(answer, y=each)) for each in lifted]))
        return replace(answer, y=lifted[least], y_on_faces=y)

    def _turned(self, on_faces: Array, X: Sequence[Matrix]) -> Array:
        """Return multipliers of all rows with the same ``V'ZV`` and the least ``V'ZU``."""
        y = np.zeros(self.whole.m)
        y[self.kept] = on_faces
        corners, turns = self._turns
        y += turns @ (corners @ np.concatenate([corner.ravel() for corner in self._corner(y, X)]))
        return y

    @cached_property
    def _turns(self) -> tuple[Array, Array]:
        """Orthonormal ``V'A*(w)U`` of combinations of relations, as rows, and these ``w``, as columns."""
        unit = self.relations / np.linalg.norm(self.relations * self.whole.A.norms()[:, None], axis=0)
        P, s, Q = np.linalg.svd(self._corners(unit.T), full_matrices=False)
        turning = s > _TURN_RANK  # the corner of F is zero, up to round-off
        return P[:, turning].T, unit @ (Q[turning].T / s[turning])

    def certificate(self, X: Sequence[Matrix], u: Array, y: Array) -> Certificate:
        """Return the certificate on the faces, with an error for the round-off of the exposures.

        Psd matrices that meet the rows may leave the faces by ``miss``: ``tr U'XU <= miss max(rho, tr X)``,
        with rho the scale of ``X``. The singular values of ``V'XU`` add up to at most ``sqrt(tr X tr U'XU)``.
        So ``<Z, X>`` is at least ``-2 ||V'ZU|| sqrt(tr X tr U'XU)``, with the largest singular value of
        ``V'ZU`` as its norm.
        """
        proven = certify(PrimalDualPoint(self.whole, X, u, y, faces=self.program.faces))
        trace = sum(float(X_b.trace()) for X_b in X)
        outside = np.sqrt(self.miss * max(scale_of(self.whole).primal, trace) * trace)
        norms = [float(np.linalg.norm(corner, 2)) for corner in self._corner(y, X) if corner.size]
        loss = 2 * max(norms, default=0.0) * float(outside)
        size = objective_size(self.whole, proven.primal, proven.dual)
        return replace(
            proven, dual=proven.dual - loss, error=proven.error + loss, gap=proven.gap + loss / size
        )

    def _corner(self, y: Array, X: Sequence[Matrix]) -> list[Array]:
        """Return ``V'ZU`` of each block; the slope of a divergence is that at ``X``."""
        corners = []
        for b, (block, X_b, (V, U)) in enumerate(zip(self.whole.blocks, X, self._bases, strict=True)):
            slope, nearness = block.C, block.nearness
            if nearness is not None:
                slope = slope + nearness.mu * divergence_of(nearness).gradient(np.asarray(X_b))
            corners.append(V.T @ ((slope - self.whole.A.adjoint(y, b)) @ U))
        return corners

    def _corners(self, combinations: Array) -> Array:
        """Return ``V'A*(y)U`` of several ``y``, as columns."""
        A = self.whole.A
        columns = [
            np.concatenate([(V.T @ (A.adjoint(y, b) @ U)).ravel() for b, (V, U) in enumerate(self._bases)])
            for y in combinations
        ]
        return np.array(columns).T

    @cached_property
    def _bases(self) -> list[tuple[Array, Array]]:
        """``V`` and ``U`` of each block: bases of its face and of the directions that exposures remove."""
        bases = [(face.basis, np.zeros((face.n, 0))) for face in self.program.faces]
        for e in self.exposures:
            V, _ = bases[e.block]
            bases[e.block] = V, np.column_stack([e.before, e.directions])
        return bases


def shortfall(program: Program, answer: Answer) -> float:
    """Return the largest of gap and residuals, times the largest DIMACS error where that is defined.

    Where multipliers diverge, each of the two alone may be small by chance.
    """
    worst = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y)).worst
    if not program.bounds.all_hard or any(program.divergences):
        return worst
    return worst * float(np.abs(dimacs_errors(program, answer.X, answer.u, answer.y)).max())


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
        found, sizes = _exposing(program, rows, faces, w)
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


def _exposing(
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
class Recession:
    """The range of a direction ``D`` that changes neither rows nor objective.

    Parameters
    ----------
    program : Program
    U : tuple of arrays of shape (n_b, r_b)
        Orthonormal bases of the range of ``D`` in each block.
    vector : array
        ``D`` and ``d`` as one vector.
    """

    program: Program
    U: tuple[Array, ...]
    vector: Array

    @property
    def direction(self) -> tuple[tuple[Array, ...], Array]:
        """``D``, without parts outside its range, and ``d``."""
        stacks, u = Svec.of(self.program).points(self.vector[None])
        D = [U @ (U.T @ stack[0] @ U) @ U.T for stack, U in zip(stacks, self.U, strict=True)]
        return tuple((D_b + D_b.T) / 2 for D_b in D), u[0]

    @property
    def rank(self) -> int:
        """The rank of ``D``."""
        return sum(U.shape[1] for U in self.U)

    def multipliers(self, y: Array) -> Array:
        """Return the nearest multipliers, of rows of norm one, with ``Z U = 0`` and free variables priced.

        Only these may have a psd ``Z``.
        """
        program = self.program
        used = program.row_sizes > 0  # a row without coefficients has no price
        units = (np.eye(program.m) / np.where(used, program.row_sizes, 1.0)[:, None])[used]
        costs = [(block.C @ U).ravel() for block, U in zip(program.blocks, self.U, strict=True)]
        right = np.concatenate([*costs, program.c[program.free]])
        equations = np.array([self._on_range(unit) for unit in units]).T
        left = right - self._on_range(y)
        nearest: Array = y + np.linalg.lstsq(equations, left, rcond=_RECEDING_RANK)[0] @ units
        return nearest

    def _on_range(self, y: Array) -> Array:
        """Return ``A*(y) U`` and ``B'y`` of the free variables, as a vector."""
        program = self.program
        parts = [(program.A.adjoint(y, b) @ U).ravel() for b, U in enumerate(self.U)]
        return np.concatenate([*parts, (program.Bt @ y)[program.free]])


def recession(program: Program, X: Sequence[Array]) -> Recession | None:
    """Return the direction, near large matrices, that changes neither rows nor objective, None without one.

    Only free variables change with it, and no slack of a row does.

    Parameters
    ----------
    program : Program
        With linear objective.
    X : sequence of arrays of shape (n_b, n_b)
    """
    vectors = Svec.of(program)
    matrices = vectors.width - program.k
    entries = vectors.width * sum(n**2 for n in vectors.orders)
    if entries > _LARGEST_RECEDING or not all(np.isfinite(X_b).all() for X_b in X):
        return None
    kept = np.concatenate([np.ones(matrices, dtype=bool), program.free])
    costs = vectors.vectors([block.C[None] for block in program.blocks], program.c[None])
    fixed = np.concatenate([svec_rows(program, np.arange(program.m)), costs])[:, kept]
    sizes = np.linalg.norm(fixed, axis=1)
    unchanged = _null_space(fixed[sizes > 0] / sizes[sizes > 0, None])
    directions = _row_space(unchanged[:, :matrices])
    w = directions @ np.concatenate([svec(X_b) for X_b in X])
    if not w.any():
        return None
    stacks, _ = Svec(vectors.orders, 0).points(directions)
    found = Equalities(stacks, np.zeros(len(directions))).exposing(w)
    return (
        None
        if found is None
        else Recession(program, found.U, _whole(program, unchanged, directions, found.w))
    )


def _whole(program: Program, unchanged: Array, directions: Array, w: Array) -> Array:
    """Return ``D``, a combination of directions of matrices, and a ``d`` as one vector."""
    matrices = directions.shape[1]
    weights = np.linalg.lstsq(unchanged[:, :matrices].T, w @ directions, rcond=None)[0]
    kept = np.concatenate([np.ones(matrices, dtype=bool), program.free])
    whole: Array = np.zeros(len(kept))
    whole[kept] = weights @ unchanged
    return whole


def _null_space(M: Array) -> Array:
    """Return an orthonormal basis of the null space, its rows."""
    _, s, Q = np.linalg.svd(M)
    basis: Array = Q[int((s > _RECEDING_RANK * s.max(initial=0.0)).sum()) :]
    return basis


def _row_space(M: Array) -> Array:
    """Return an orthonormal basis of the row space, its rows."""
    _, s, Q = np.linalg.svd(M, full_matrices=False)
    basis: Array = Q[s > _RECEDING_RANK]
    return basis


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
        w = nearest
        if min(float(values.min(initial=np.inf)) for values in self._split(w, rank).values) < _LEAST_EXPOSED:
            return None
        best = np.inf
        for _ in range(_TURNS):
            split = self._split(w, rank)
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
        return self._checked(found[0], rank, found[1]) if best <= _EXPOSING_NOISE else None

    def _combined(self, w: Array) -> list[Array]:
        return [np.tensordot(w, A, 1) for A in self._stacks]

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
