"""Facial reduction: the rows leave ``X`` no interior, so it moves to a face (Borwein and Wolkowicz 1981).

A row, or a combination of rows, ``<F, X> <= 0`` with psd ``F`` implies ``X F = 0``. Then ``X`` is on the face
``X = V M V'``, with ``V`` an orthonormal basis of the null space of ``F``. Such ``F`` are found by
:mod:`bregopt.presolve.exposures`, and where no single row or diagonal shows them, by the multipliers of an
answer that stalled (:mod:`bregopt.presolve.revealed_faces`). The multipliers of the rows on the face give
those of all rows: adding a large enough multiple of ``F`` makes ``C - A*(y)`` psd everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array, IntArray, Mask, scattered
from bregopt.certify import Certificate, PrimalDualPoint, certify, dimacs_errors
from bregopt.certify.certificate import objective_size
from bregopt.certify.proofs import is_farkas
from bregopt.certify.slacks import inherit_trace_bounds
from bregopt.clock import checkpoint
from bregopt.errors import InfeasibleRowError
from bregopt.linalg import lean, null_space, rows_at, symmetrize
from bregopt.presolve import Reduced, Tolerances
from bregopt.presolve.exposures import FACE_NOISE, Exposure, coefficients, exposures_of
from bregopt.presolve.svec import Svec, sparse_svec, svec
from bregopt.program import Answer, Face, LinearMap, LowRank, Matrix, Program, Start, StopReason, Term
from bregopt.program.program import divergence_of
from bregopt.program.scale import scale_of
from bregopt.records import cached_property, dataclass, replace
from bregopt.rigorous import proves_infeasible

if TYPE_CHECKING:
    from bregopt.presolve.integer_faces import OnIntegerFace

# Number of random vectors that show that a row does not vanish on a face.
_VANISHING_PROBES = 3
# Bound of a row, relative to its norm times the bounds' largest trace, that counts as zero.
_ZERO_BOUND = 1e-14
# Negative eigenvalue of C - A*(y) that is tolerated.
_SLACK_NOISE = 1e-10
# The same, relative to the size of A*(y), for Farkas vectors. A larger one needs a smaller multiple of F.
_FARKAS_NOISES = (0.0, 1e-10, 1e-8, 1e-6)
# Margin of the multiple of F that makes C - A*(y) psd outside the face.
_MULTIPLE_MARGIN = 1e-3
# Order of a matrix up to which the null space that its rows have in common is looked for.
_LARGEST_NULL_SPACE = 500
# Alternating projections in search of a point on the rows, corrections of one, and the multiple of the
# diagonal that dependent rows need in their Gram matrix.
_PROJECTIONS, _CORRECTIONS, _RIDGE = 12, 3, 1e-12
# Residual of rows relative to the bounds, and least eigenvalues relative to the largest, that are round-off;
# least eigenvalue of a definite matrix; and that of the points between, relative to the first one.
_ON_ROWS, _PSD, _SINGULAR, _DEPTH = 1e-9, 1e-12, 1e-8, 0.1
# Rows of integers, and terms of them, above which no face is sought that they imply together.
_LARGEST_INTEGER_ROWS, _MOST_TERMS = 5_000, 1_000_000
# Singular values of their equations that count as zero: directions in which U does not change.
_TURN_RANK = 1e-5
# Entries of the rows of exposures above which their multipliers are not turned: it takes a second.
_LARGEST_TURNED = 1_000_000


@dataclass(frozen=True, eq=False)
class OnFaces(Reduced):
    """A program whose matrices are on faces of the cone, without the rows that these imply.

    Parameters
    ----------
    kept : int array
        The remaining rows.
    exposures : tuple of Exposure
        In the order in which they were found.
    """

    kept: IntArray
    exposures: tuple[Exposure, ...]

    @property
    def summary(self) -> str:
        parts = [
            f"{block.name} is on a face of order {face.order} of {face.n}"
            for block, face in zip(self.whole.blocks, self.program.faces, strict=True)
            if face.codimension
        ]
        dropped = self.whole.m - len(self.kept)
        return ", ".join(parts) + (f"; {dropped} row{'s' if dropped > 1 else ''} implied" if dropped else "")

    def contradiction(self) -> Array | None:
        """Return the Farkas vector of a row that vanishes on the faces but may not be zero, if there is one.

        Where no such vector exists, it is one on the faces alone. These are exact for simple rows; otherwise
        the vector proves nothing, and the status says so.

        Raises
        ------
        InfeasibleRowError
            If the faces are exact, so that the row is proven impossible without a Farkas vector.
        """
        bounds = self.whole.bounds
        implied = [e.implied for e in self.exposures if e.implied is not None]
        idle = np.setdiff1d(np.arange(self.whole.m), np.concatenate([self.kept, *implied]))
        noise = (_ZERO_BOUND * self.whole.bound_scale * self.whole.A.norms())[idle]
        wrong = idle[(bounds.lo[idle] > noise) | (bounds.hi[idle] < -noise)]
        for k in wrong:
            y = scattered(np.array([k]), np.array([1.0 if bounds.lo[k] > 0 else -1.0]), self.whole.m)
            y = self._lifted(y, costs=False, noise=0.0)
            if is_farkas(self.whole, y, conclusive=False):
                return y
        if len(wrong) == 0:
            return None
        k = int(wrong[0])
        y = scattered(wrong[:1], np.array([1.0 if bounds.lo[k] > 0 else -1.0]), self.whole.m)
        if not proves_infeasible(self.whole, y):
            return y
        asked = f"{bounds.lo[k]:g}" if bounds.lo[k] > 0 else f"{bounds.hi[k]:g}"
        raise InfeasibleRowError(
            f"{self.whole.row_name(k)} asks for {asked}, but it is 0 for every X that meets the rows which "
            "fix a part of X to zero: no X can meet it. Make it soft with bo.soft(...) or change the bound"
        )

    def shrink(self, start: Start) -> Start:
        return replace(start, y=start.y[self.kept])

    def restore(self, answer: Answer) -> Answer:
        """Return the answer with multipliers of all rows, and with those that are valid on the faces only."""
        on_faces = scattered(self.kept, answer.y, self.whole.m)
        if answer.stop is StopReason.INFEASIBLE:
            lifted = (self._lifted(on_faces, costs=False, noise=noise) for noise in _FARKAS_NOISES)
            # A plain test suffices here: who stops at the vector proves it, which may take seconds.
            proven = (y for y in lifted if is_farkas(self.whole, y, conclusive=False))
            return replace(answer, y=next(proven, on_faces))
        y = self._lifted(self._turned_by_blocks(on_faces), costs=True, X=answer.X)
        return replace(answer, y=y, y_on_faces=on_faces)

    def _turned_by_blocks(self, y: Array) -> Array:
        """Return multipliers with the same ``V'ZV`` whose lifting needs small multiples of the ``F``.

        With bases ``V`` of a face and ``U`` of what is removed, ``Z + t F`` is psd if ``t U'FU + U'ZU`` is at
        least ``U'ZV (V'ZV)^-1 V'ZU``, whose trace is least.
        """
        y = y.copy()
        for b, at, combinations, corners in self._vanishing_combinations:
            (V, U), Z = self._bases[b], self.whole.blocks[b].C - self.whole.A.adjoint(y, b)
            values, Q = np.linalg.eigh(V.T @ Z @ V)
            noise = _SLACK_NOISE * float(np.linalg.norm(Z)) + TINY
            root = Q.T / np.sqrt(np.maximum(values, 0.0) + noise)[:, None]
            left = (root @ corners).reshape(len(corners), -1).T
            right = (root @ (V.T @ Z @ U)).ravel()
            y[at] += combinations @ np.linalg.lstsq(left, right, rcond=None)[0]
        return y

    @cached_property
    def _vanishing_combinations(self) -> list[tuple[int, IntArray, Array, Array]]:
        """Rows of each block on a face, combinations ``w`` that vanish there, and their ``V'A*(w)U``.

        The rows are those of the exposures. A divergence has a finite slope outside its face.
        """
        found = []
        for b in {e.block for e in self.exposures if not any(self.whole.divergences)}:
            own, (V, U) = [e.rows for e in self.exposures if e.block == b], self._bases[b]
            at = np.unique(np.concatenate(own))
            if not V.size or len(at) * len(V) ** 2 > _LARGEST_TURNED:
                continue
            rows, units = self.whole.A.slice(at), np.diag(1 / self.whole.A.norms()[at])
            stack = np.array([rows.adjoint(e, b) for e in units])
            vanishing = [svec(V.T @ stack @ V), units @ coefficients(self.whole, at)]
            N = null_space(np.hstack(vanishing).T, FACE_NOISE * len(V)).T
            corners = V.T @ stack @ U
            W, s, _ = np.linalg.svd(N.T @ corners.reshape(len(at), -1), full_matrices=False)
            N = N @ W[:, s > _TURN_RANK]  # without F, whose corner is zero
            if N.shape[1]:
                found.append((b, at, units @ N, np.tensordot(N.T, corners, 1)))
        return found

    @cached_property
    def _bases(self) -> list[tuple[Array, Array]]:
        """``V`` and ``U`` of each block: bases of its face and of the directions that exposures remove."""
        bases = [(face.basis, np.zeros((face.n, 0))) for face in self.program.faces]
        for e in self.exposures:
            V, _ = bases[e.block]
            bases[e.block] = V, np.column_stack([e.before, e.directions])
        return bases

    def _lifted(
        self, y: Array, costs: bool, noise: float = _SLACK_NOISE, X: Sequence[Array] | None = None
    ) -> Array:
        for k in reversed(range(len(self.exposures))):
            exposure, weight = self.exposures[k], self._weights[k]
            near = self.whole.blocks[exposure.block].nearness is not None
            if X is not None and near:
                y = y - self._multiple_of_divergence(exposure, weight, y, X[exposure.block]) * weight
            else:
                y = y - self._multiple(k, y, costs, noise) * weight
        return y

    @cached_property
    def _weights(self) -> list[Array]:
        """The combination of all rows that is ``F``, of each exposure."""
        return [scattered(own.rows, own.weight, self.whole.m) for own in self.exposures]

    @cached_property
    def _removals(self) -> list[tuple[Face, Array, Face, Array]]:
        """The face before each exposure, the directions it removes, the face after it, ``F`` on them."""
        found = []
        for exposure, weight in zip(self.exposures, self._weights, strict=True):
            before = Face(exposure.before)
            R, _ = np.linalg.qr(before.project(exposure.directions))
            F = before.compress(self.whole.A.adjoint(weight, exposure.block))
            found.append((before, R, Face(R), symmetrize(R.T @ F @ R)))
        return found

    def _multiple_of_divergence(self, exposure: Exposure, weight: Array, y: Array, X: Array) -> float:
        """Return ``t`` for a block with a divergence: the bound increases with ``t`` without end.

        With ``Z = C + mu grad D(0) - A*(y)``, the bound is short by at most
        ``||X|| ||Z_12||^2 / (t ||F_22||)``. The bound of squares is a difference of terms of size
        ``(t ||F||)^2``, and in that of an entropy ``t F`` is an exponent: their round-off is as large at this
        ``t``.
        """
        b, nearness = exposure.block, self.whole.blocks[exposure.block].nearness
        assert nearness is not None
        A, R, before = self.whole.A, exposure.directions, Face(exposure.before)
        slope = nearness.mu * divergence_of(nearness).gradient(np.zeros_like(X))
        F, Z = A.adjoint(weight, b), self.whole.blocks[b].C + slope - A.adjoint(y, b)
        own, size = float(np.linalg.eigvalsh(R.T @ F @ R)[0]), float(np.linalg.norm(F))
        corner = before.project(Z @ R) - before.project(R) @ (R.T @ Z @ R)
        short = float(np.linalg.norm(X, 2)) * float(np.linalg.norm(corner)) ** 2 / own
        if nearness.kind.exponential:
            balanced = math.sqrt(short / (EPS * size * max(float(np.trace(X)), TINY)))
        else:
            balanced = (2 * nearness.mu * short / (EPS * size**2)) ** (1 / 3)
        needed = -float(np.linalg.eigvalsh(R.T @ Z @ R)[0]) / own
        return max((1 + _MULTIPLE_MARGIN) * needed, balanced)

    def _multiple(self, k: int, y: Array, costs: bool, noise: float) -> float:
        """Return ``t`` with ``Z + t F`` psd on the face before exposure `k`, by a Schur complement.

        ``Z``, with the costs or without, is psd on the smaller face, ``F`` is definite on the directions that
        the exposure removes.
        """
        b, (before, R, after, own) = self.exposures[k].block, self._removals[k]
        Z = before.compress(-self.whole.A.adjoint(y, b))
        if costs:
            Z = Z + before.compress(self.whole.blocks[b].C)
        corner = after.project(Z @ R)
        S, size = R.T @ Z @ R, float(np.linalg.norm(Z))
        if np.linalg.norm(corner) > FACE_NOISE * size:
            # At an answer Z is nearly singular on the face: an exactly psd matrix would need a huge multiple.
            # It may have a negative eigenvalue that bounds on the trace of X make up for.
            on_face = after.compress(Z)
            short = 0.0 if noise == 0 else max(-float(np.linalg.eigvalsh(on_face)[0]), 0.0)
            on_face = on_face + (noise * size + (1 + _MULTIPLE_MARGIN) * short) * np.eye(after.order)
            try:
                S = S - corner.T @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(on_face), corner)
            except np.linalg.LinAlgError:
                return 0.0  # the multipliers prove nothing on the face either
        needed = float(scipy.linalg.eigh(-symmetrize(S), own, eigvals_only=True)[-1])
        scale = float(np.linalg.norm(S)) / float(np.linalg.norm(own))
        return max(needed + _MULTIPLE_MARGIN * (abs(needed) + scale), 0.0)


@dataclass(frozen=True, eq=False)
class InFaceCoordinates(Reduced):
    """A program in the ``M`` of ``X = V M V'``."""

    def shrink(self, start: Start) -> Start:
        return replace(start, X=(), S=None)

    def restore(self, answer: Answer) -> Answer:
        if answer.stop is StopReason.INFEASIBLE:
            return Answer.without_point(self.whole, answer.y, answer.stop, answer.iterations)
        X = tuple(
            _lifted_from(face, M) if face.codimension else M
            for M, face in zip(answer.X, self.whole.faces, strict=True)
        )
        return replace(answer, X=X)


def _lifted_from(face: Face, M: Matrix) -> Array:
    return face.lift(np.asarray(M)) if face.order else np.zeros((face.n, face.n))


# Pays on: Frobenius nearness with zeros on the diagonal, n = 20.
def face_coordinates(program: Program, tolerances: Tolerances) -> InFaceCoordinates | None:
    """Restate matrices on their faces: projections take the whole cone."""
    reduced = program
    for b, face in enumerate(program.faces):
        nearness = program.blocks[b].nearness
        if not face.codimension:
            continue
        own, constant = (None, 0.0) if nearness is None else nearness.on_face(face)
        V = face.basis if face.order else np.zeros((face.n, 1))  # no method takes matrices of order zero
        restricted = reduced.restrict(b, V, None if own is None else np.asarray(own.X0))
        reduced = replace(restricted, offset=restricted.offset + constant)
    return None if reduced is program else InFaceCoordinates(program, reduced)


# Pays on: equipartition, n = 80.
def faces(program: Program, tolerances: Tolerances) -> OnFaces | None:
    """Restrict matrices to the faces of the cone that the rows imply."""
    implied = implied_faces(program)
    if implied is not None:
        return implied
    faces = _without_null_spaces(program)
    return None if faces is None else on_faces(program, (), np.arange(program.m), faces)


def implied_faces(program: Program) -> OnFaces | None:
    """Return the program on the faces that its rows imply, None where they imply none."""
    own, bounds = program.in_one_matrix, program.bounds
    # One row alone, which is not zero, such as a trace, fixes no part of X at zero.
    some = own.sum() > 1 or (own & ((bounds.lo == 0) | (bounds.hi == 0))).any()
    exposures = exposures_of(program) if some else ()
    if not exposures:
        return None
    left_out = _vanishing(program, _faces(program, exposures))
    for exposure in exposures:
        if exposure.implied is not None:
            left_out[exposure.implied] = True
    kept = (~left_out).nonzero()[0]
    return on_faces(program, exposures, kept)


def on_faces(
    program: Program, exposures: tuple[Exposure, ...], kept: IntArray, faces: list[Face] | None = None
) -> OnFaces:
    """Return the program on the faces that are left after the exposures, or others, with the rows `kept`."""
    faces = _faces(program, exposures) if faces is None else faces
    blocks = tuple(replace(b, face=face) for b, face in zip(program.blocks, faces, strict=True))
    left = replace(program.of_rows(kept), blocks=blocks)
    inherit_trace_bounds(left, program, kept)
    return OnFaces(program, left, kept, exposures)


# Pays on: embedding of distances, n = 20.
def _without_null_spaces(program: Program) -> list[Face] | None:
    """Return the faces without the common null spaces of the rows and costs, None if all are zero.

    In these directions ``X`` may take any value, so it may be zero there: the Gram matrix of points that only
    distances are known of is centered. Where it is not, no ``C - A*(y)`` is definite, and no dual point is in
    the interior of the cone.
    """
    plain = tuple(b.nearness is None and b.cap is None and b.face is None for b in program.blocks)
    known: dict[int, Array] | None = program.A.plans.get((null_spaces, plain))
    if known is None:
        known = program.A.plans[null_spaces, plain] = null_spaces(program.A, np.flatnonzero(plain).tolist())
    if not known:
        return None
    faces = [Face.whole(block.n) for block in program.blocks]
    for b, N in known.items():
        C = program.blocks[b].C
        if np.abs(C @ N).max() <= FACE_NOISE * np.abs(C).max(initial=0.0):
            faces[b] = Face(N)
    return faces if any(face.codimension for face in faces) else None


def null_spaces(A: LinearMap, blocks: list[int]) -> dict[int, Array]:
    """Return orthonormal bases of the null spaces that all rows have in common, of the blocks with any.

    What vanishes in two random combinations of the rows vanishes in all of them.
    """
    (first, second), found = np.random.default_rng(0).normal(size=(2, A.m)), {}
    blocks = [b for b in blocks if 1 < A.orders[b] <= _LARGEST_NULL_SPACE and A.terms_of(b)]
    for n in {A.orders[b] for b in blocks}:
        own = [b for b in blocks if A.orders[b] == n]
        stack = np.array([symmetrize(A.adjoint(first, b)) for b in own])
        size = np.abs(np.linalg.eigvalsh(stack))
        noise = FACE_NOISE * n * size.max(axis=1)
        for k in (size.min(axis=1) <= noise).nonzero()[0].tolist():
            d, Q = np.linalg.eigh(stack[k])
            N = Q[:, np.abs(d) <= noise[k]]
            again = symmetrize(A.adjoint(second, own[k])) @ N
            if 0 < N.shape[1] < n and np.abs(again).max() <= noise[k]:
                found[own[k]] = N
    return found


def _faces(program: Program, exposures: Sequence[Exposure]) -> list[Face]:
    faces = [Face.whole(block.n) for block in program.blocks]
    for e in exposures:
        faces[e.block] = Face(np.column_stack([e.before, e.directions]))
    return faces


def _vanishing(program: Program, faces: Sequence[Face]) -> Mask:
    """Return the mask of hard rows that are zero on the faces, tested on random matrices there."""
    rng = np.random.default_rng(0)
    X = [
        LowRank(face.embed(rng.normal(size=(face.order, _VANISHING_PROBES)))) if face.order else None
        for face in faces
    ]
    activity, size = np.zeros(program.m), np.zeros(program.m)
    for term in program.A.terms:
        X_b = X[term.block]
        if X_b is not None:
            activity[term.at] += term.rows.apply(X_b)
            size[term.at] += term.norms * X_b.trace()
    alone = program.bounds.hard & program.alone
    return alone & (np.abs(activity) <= FACE_NOISE * size)


# --- Faces that a singular point shows --------------------------------------------------------------------


# Pays on: a quadratic assignment of size 7.
def integer_faces(program: Program, sparse: bool = False) -> OnIntegerFace | None:
    """Restrict matrices to a face of integers; rows that others imply there are left out unless `sparse`.

    It is the smallest face of a point on the equalities, far from the boundary otherwise.
    """
    X = singular_point(program) if has_rows_of_integers(program) else None
    if X is None:
        return None
    from bregopt.presolve.integer_faces import integer_face  # few programs wait for exact arithmetic

    return integer_face(program, X, sparse=sparse)


# Pays on: a quadratic assignment on a grid of nine.
def sparse_integer_faces(program: Program, tolerances: Tolerances) -> OnFaces | None:
    """Restrict matrices to a face of integers, with all rows, for methods that need them sparse."""
    return integer_faces(program, sparse=True)


def has_rows_of_integers(program: Program) -> bool:
    """Whether a linear program has equalities, and integers alone as coefficients, in one or two matrices."""
    if program.k or not 0 < np.count_nonzero(program.bounds.equal) <= _LARGEST_INTEGER_ROWS:
        return False
    if len(program.blocks) > 2 or any(
        b.nearness is not None or b.cap is not None or b.face is not None for b in program.blocks
    ):
        return False
    known: bool | None = program.A.plans.get(has_rows_of_integers)
    if known is None:
        known = program.A.plans[has_rows_of_integers] = all(map(_of_integers, program.A.terms))
    return known


def _of_integers(term: Term) -> bool:
    if term.count > _MOST_TERMS:
        return False
    value = term.rows.coordinates().value
    return bool((value == np.rint(value)).all())


def singular_point(program: Program) -> list[Array] | None:
    """Return psd matrices that meet the equalities, None if some are definite or none are found."""
    equal = program.bounds.equal
    identity = np.concatenate([svec(np.eye(n)) for n in program.A.orders])
    A = lean(rows_at(sparse_svec(program.A), equal.nonzero()[0]))
    At, level, b = A.T, A @ identity, program.bounds.lo[equal]
    alpha = abs(float(level @ b)) / (float(level @ level) or 1.0) or 1.0
    if np.abs(alpha * level - b).max() <= _ON_ROWS * np.abs(b).max(initial=0.0):
        return None
    from scipy.sparse.linalg import splu  # few programs wait

    gram = sp.csc_array(A @ At)
    factor = splu(gram + _RIDGE * sp.diags_array(gram.diagonal() + TINY, format="csc"))
    space, x = Svec(program.A.orders, 0), alpha * identity
    for _ in range(_PROJECTIONS):
        checkpoint(max(program.A.orders))
        for _ in range(_CORRECTIONS):
            x = x - At @ factor.solve(A @ x - b)
        X = [stack[0] for stack in space.points(x[None])[0]]
        eigen = [np.linalg.eigh(M) for M in X]
        if np.abs(A @ x - b).max() > _ON_ROWS * max(np.abs(b).max(initial=0.0), alpha):
            return None
        if all(d[0] >= -_PSD * d[-1] for d, _ in eigen):
            above = [np.where(d > _SINGULAR * d[-1], d, 0.0) for d, _ in eigen]
            if all(d.all() for d in above):
                return None
            return [(Q * d) @ Q.T for d, (_, Q) in zip(above, eigen, strict=True)]
        x = np.concatenate([svec((Q * np.maximum(d, _DEPTH * alpha)) @ Q.T) for d, Q in eigen])
    return None


# --- Faces up to round-off ------------------------------------------------------------------------------


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
        if not self.relations.shape[1]:
            return y
        corners, turns = self._turns
        y += turns @ (corners @ np.concatenate([corner.ravel() for corner in self._corner(y, X)]))
        return y

    @cached_property
    def _turns(self) -> tuple[Array, Array]:
        """Orthonormal ``V'A*(w)U`` of combinations of relations, as rows, and these ``w``, as columns."""
        unit = self.relations / np.linalg.norm(self.relations * self.whole.A.norms()[:, None], axis=0)
        corners = self._corners(unit.T)
        wide = corners.shape[0] <= corners.shape[1]
        C = corners if wide else corners.T
        squares, W = np.linalg.eigh(C @ C.T)
        turning = squares > _TURN_RANK**2  # the corner of F is zero, up to round-off
        s, W = np.sqrt(squares[turning]), W[:, turning]
        P, Q = (W, C.T @ W / s) if wide else (C.T @ W / s, W)
        return P.T, unit @ (Q / s)

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


def shortfall(program: Program, answer: Answer) -> float:
    """Return the largest of gap and residuals, times the largest DIMACS error where that is defined.

    Where multipliers diverge, each of the two alone may be small by chance.
    """
    worst = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y)).worst
    if not program.bounds.all_hard or any(program.divergences):
        return worst
    return worst * float(np.abs(dimacs_errors(program, answer.X, answer.u, answer.y)).max())
