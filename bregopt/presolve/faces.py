"""Facial reduction: the rows leave ``X`` no interior, so it moves to a face (Borwein and Wolkowicz 1981).

A row, or a combination of rows, ``<F, X> <= 0`` with psd ``F`` implies ``X F = 0``. Then ``X`` is on the face
``X = V M V'``, with ``V`` an orthonormal basis of the null space of ``F``. The search for such ``F`` is
repeated on the face. The multipliers of the rows on the face give those of all rows: adding a large enough
multiple of ``F`` makes ``C - A*(y)`` psd everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.linalg

from bregopt.arrays import Array, IntArray, Mask, scattered
from bregopt.certify.proofs import is_farkas
from bregopt.certify.trace_bound import inherit_trace_bounds
from bregopt.errors import InfeasibleRowError
from bregopt.presolve.constants import FACE_NOISE, MULTIPLE_MARGIN, SLACK_NOISE, VANISHING_PROBES, ZERO_BOUND
from bregopt.presolve.exposures import Exposure, exposures_of
from bregopt.presolve.reduction import Reduced, Tolerances
from bregopt.program import Answer, Face, LowRank, Program, Start
from bregopt.rigorous.refutation import proves_infeasible

__all__ = ["Faces", "OnFaces", "on_faces"]


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
        idle = np.setdiff1d(np.arange(self.whole.m), self.kept)
        noise = (ZERO_BOUND * self.whole.bound_scale * self.whole.A.norms())[idle]
        wrong = idle[(bounds.lo[idle] > noise) | (bounds.hi[idle] < -noise)]
        for k in wrong:
            y = scattered(np.array([k]), np.array([1.0 if bounds.lo[k] > 0 else -1.0]), self.whole.m)
            y = self._lifted(y, costs=False)
            if is_farkas(self.whole, y):
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
        y = self._lifted(on_faces, costs=True)
        return replace(answer, y=y, y_on_faces=on_faces)

    def _lifted(self, y: Array, costs: bool, noise: float = SLACK_NOISE) -> Array:
        for exposure in reversed(self.exposures):
            weight = scattered(exposure.rows, exposure.weight, self.whole.m)
            y = y - self._multiple(exposure, weight, y, costs, noise) * weight
        return y

    def _multiple(self, exposure: Exposure, weight: Array, y: Array, costs: bool, noise: float) -> float:
        """Return ``t`` with ``Z + t F`` psd on the face before the exposure, by a Schur complement.

        ``Z``, with the costs or without, is psd on the smaller face, ``F`` is definite on the directions that
        the exposure removes.
        """
        b, A = exposure.block, self.whole.A
        before = Face(exposure.before)
        F, Z = before.compress(A.adjoint(weight, b)), before.compress(-A.adjoint(y, b))
        if costs:
            Z = Z + before.compress(self.whole.blocks[b].C)
        R, _ = np.linalg.qr(before.project(exposure.directions))
        after = Face(R)
        corner = after.project(Z @ R)
        S, size = R.T @ Z @ R, float(np.linalg.norm(Z))
        if np.linalg.norm(corner) > FACE_NOISE * size:
            # At an answer Z is nearly singular on the face: an exactly psd matrix would need a huge multiple.
            slack = noise * size if costs else 0.0
            on_face = after.compress(Z) + slack * np.eye(after.order)
            try:
                S = S - corner.T @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(on_face), corner)
            except np.linalg.LinAlgError:
                return 0.0  # the multipliers prove nothing on the face either
        own = _symmetric(R.T @ F @ R)
        needed = float(scipy.linalg.eigh(-_symmetric(S), own, eigvals_only=True)[-1])
        scale = float(np.linalg.norm(S)) / float(np.linalg.norm(own))
        return max(needed + MULTIPLE_MARGIN * (abs(needed) + scale), 0.0)


class Faces:
    """Restrict matrices to the faces of the cone that the rows imply."""

    name: ClassVar[str] = "faces"
    universal: ClassVar[bool] = False

    def apply(self, program: Program, tolerances: Tolerances) -> OnFaces | None:
        exposures = exposures_of(program)
        if not exposures:
            return None
        kept = np.flatnonzero(~_vanishing(program, _faces(program, exposures)))
        return on_faces(program, exposures, kept)


def on_faces(program: Program, exposures: tuple[Exposure, ...], kept: IntArray) -> OnFaces:
    """Return the program on the faces that are left after the exposures, with the rows `kept`."""
    faces = _faces(program, exposures)
    left = replace(
        program,
        blocks=tuple(replace(b, face=face) for b, face in zip(program.blocks, faces, strict=True)),
        A=program.A.slice(kept),
        B=program.B[kept],
        bounds=program.bounds.slice(kept),
        labels=(),
    )
    inherit_trace_bounds(left, program, kept)
    return OnFaces(program, left, kept, exposures)


def _faces(program: Program, exposures: Sequence[Exposure]) -> list[Face]:
    faces = [Face.whole(block.n) for block in program.blocks]
    for e in exposures:
        faces[e.block] = Face(np.column_stack([e.before, e.directions]))
    return faces


def _vanishing(program: Program, faces: Sequence[Face]) -> Mask:
    """Return the mask of hard rows that are zero on the faces, tested on random matrices there."""
    rng = np.random.default_rng(0)
    X = [
        LowRank(face.embed(rng.normal(size=(face.order, VANISHING_PROBES)))) if face.order else None
        for face in faces
    ]
    activity, size = np.zeros(program.m), np.zeros(program.m)
    for term in program.A.terms:
        X_b = X[term.block]
        if X_b is not None:
            activity[term.at] += term.rows.apply(X_b)
            size[term.at] += term.norms * X_b.trace()
    alone = program.bounds.hard & program.alone
    mask: Mask = alone & (np.abs(activity) <= FACE_NOISE * size)
    return mask


def _symmetric(S: Array) -> Array:
    symmetric: Array = (S + S.T) / 2
    return symmetric
