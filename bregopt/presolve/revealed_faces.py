"""Faces that diverging multipliers reveal: by combinations of rows that no single row or diagonal shows.

If the equalities leave ``X`` no interior, a combination ``F = A*(w)`` of them is psd and nonzero with
``b'w = 0`` (Borwein and Wolkowicz 1981). The multipliers of an interior-point method then grow along such a
``w``, and an answer that does not meet its tolerance shows it to a few digits
(:mod:`bregopt.presolve.exposing_vectors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, PrimalDualPoint, certify, dimacs_errors
from bregopt.certify.certificate import objective_size
from bregopt.presolve.constants import LARGEST_EXPOSING, LIFTING_SLACKS, TURN_RANK
from bregopt.presolve.exposing_vectors import Equalities, ExposingVector
from bregopt.presolve.faces import Exposure, OnFaces, on_faces
from bregopt.program import Answer, Face, Matrix, Program, StopReason
from bregopt.program.scale import scale_of

__all__ = ["OnRevealedFaces", "revealed_faces", "shortfall"]

_KEY = "revealed faces"  # among the cached reductions


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

    def restore(self, answer: Answer) -> Answer:
        """Return the answer with the multipliers of least ``V'ZU``, lifted to all rows."""
        if answer.stop is StopReason.INFEASIBLE:
            return super().restore(answer)
        y = np.zeros(self.whole.m)
        y[self.kept] = answer.y
        unit = self.relations / np.linalg.norm(self.relations * self.whole.A.norms()[:, None], axis=0)
        P, s, Q = np.linalg.svd(self._corners(unit.T), full_matrices=False)
        turning = s > TURN_RANK  # the corner of F is zero, up to round-off
        y += unit @ (Q[turning].T @ (P[:, turning].T @ self._corner(y) / s[turning]))
        lifted = [self._lifted(y, costs=True, noise=noise) for noise in LIFTING_SLACKS]
        least = int(np.argmin([shortfall(self.whole, replace(answer, y=each)) for each in lifted]))
        return replace(answer, y=lifted[least], y_on_faces=y)

    def certificate(self, X: Sequence[Matrix], u: Array, y: Array) -> Certificate:
        """Return the certificate on the faces, with an error for the round-off of the exposures.

        Psd matrices that meet the rows may leave the faces by ``miss``: ``tr U'XU <= miss max(rho, tr X)``,
        with rho the scale of ``X``. Then ``<Z, X>`` is at least ``-2 ||V'ZU|| sqrt(tr X tr U'XU)``.
        """
        proven = certify(PrimalDualPoint(self.whole, X, u, y, faces=self.program.faces))
        trace = sum(float(X_b.trace()) for X_b in X)
        outside = np.sqrt(self.miss * max(scale_of(self.whole).primal, trace) * trace)
        loss = 2 * float(np.linalg.norm(self._corner(y))) * float(outside)
        size = objective_size(self.whole, proven.primal, proven.dual)
        return replace(
            proven, dual=proven.dual - loss, error=proven.error + loss, gap=proven.gap + loss / size
        )

    def _corner(self, y: Array) -> Array:
        """Return ``V'ZU`` of all blocks, as a vector."""
        costs = [V.T @ (block.C @ U) for block, (V, U) in zip(self.whole.blocks, self._bases, strict=True)]
        flat: Array = np.concatenate([C.ravel() for C in costs]) - self._corners(y[None])[:, 0]
        return flat

    def _corners(self, combinations: Array) -> Array:
        """Return ``V'A*(y)U`` of several ``y``, as columns."""
        A = self.whole.A
        columns = [
            np.concatenate([(V.T @ (A.adjoint(y, b) @ U)).ravel() for b, (V, U) in enumerate(self._bases)])
            for y in combinations
        ]
        return np.array(columns).T

    @property
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
    if not program.bounds.all_hard:
        return worst
    return worst * float(np.abs(dimacs_errors(program, answer.X, answer.u, answer.y)).max())


def revealed_faces(program: Program, y: Array) -> OnRevealedFaces | None:
    """Return the program on the faces that multipliers reveal, None where they reveal none.

    Only equalities without variables are combined. The search is repeated on each face. What is found is
    cached with the program, whose faces do not depend on `y`.

    Parameters
    ----------
    program : Program
        With a divergence it reveals none.
    y : array of shape (m,)
    """
    cached: OnRevealedFaces | None = program.reductions.get(_KEY)
    if cached is not None:
        return cached
    rows = np.flatnonzero(program.bounds.equal & program.alone & (program.A.norms() > 0))
    large = len(rows) * sum(n**2 for n in program.A.orders) > LARGEST_EXPOSING
    if large or any(program.divergences) or not np.isfinite(y).all():
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
    program.reductions[_KEY] = revealed
    return revealed


def _exposing(
    program: Program, rows: IntArray, faces: Sequence[Face], w: Array
) -> tuple[ExposingVector | None, Array]:
    """Return the exposing vector of equalities on faces, and the norms that they have there."""
    A, units = program.A.slice(rows), np.eye(len(rows))
    stacks = [np.array([face.compress(A.adjoint(e, b)) for e in units]) for b, face in enumerate(faces)]
    sizes: Array = np.sqrt(sum((stack**2).sum(axis=(1, 2)) for stack in stacks))
    scaled = [stack / sizes[:, None, None] for stack in stacks]
    return Equalities(scaled, program.bounds.lo[rows] / sizes).exposing(w * sizes), sizes
