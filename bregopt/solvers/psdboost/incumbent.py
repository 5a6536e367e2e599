"""What a run holds: its best feasible point, its best bound, and what the two prove together."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array
from bregopt.program import Certificate, Faces, LowRank, TraceBound, certificate_inside, trace_bound
from bregopt.solvers.psdboost.oracle import Leading

__all__ = ["Incumbent", "trace_bound_on"]


class Incumbent:
    """The best point and multipliers so far of a program on its face.

    Parameters
    ----------
    faces : Faces
    bound : TraceBound
        Its multipliers are of the rows on the face.
    tol : float
        Points and multipliers that miss what they must meet by no more count as feasible.
    """

    def __init__(self, faces: Faces, bound: TraceBound, tol: float) -> None:
        self._program, self._bound, self._tol = faces.program, bound, tol
        face = faces.faces[0]
        self.X = LowRank(np.sqrt(bound.value / max(face.order, 1)) * face.basis)
        self.u = np.clip(np.zeros(self._program.k), self._program.u_lo, self._program.u_hi)
        self.y = np.zeros(self._program.m)
        self._activity = self._program.activity((self.X,), self.u)
        self.dual, self._primal, self._missed, self._left = -np.inf, np.inf, np.inf, np.inf

    @property
    def width(self) -> float:
        """Objective less bound, infinite where one of them is missing."""
        return self._primal - self.dual

    def offer_point(self, X: LowRank, u: Array) -> None:
        """Keep a point that misses the rows by less, or as little, and has the lower objective."""
        activity = self._program.activity((X,), u)
        certificate = certificate_inside(self._program, (X,), u, 0 * self.y, activity, 0.0)
        missed = max(certificate.primal_residual, self._tol)
        if (missed, certificate.primal) < (self._missed, self._primal):
            self.X, self.u, self._activity = X, u, activity
            self._missed, self._primal = missed, certificate.primal

    def offer_bound(self, y: Array, found: Leading) -> None:
        """Keep multipliers that leave less of free variables, or as little, and have the better bound.

        The rows that bound the trace take up the proven bound on the largest eigenvalue of ``A*(y) - C``,
        so that ``C - A*(y)`` is psd and Lagrange's bound is what the rows and the box add up to.
        """
        if self._bound.exact or found.bound > 0:
            y = y - found.bound * self._bound.multipliers
        certificate = certificate_inside(self._program, (self.X,), self.u, y, self._activity, 0.0)
        left = max(certificate.dual_residual, self._tol)
        if (-left, certificate.dual) > (-self._left, self.dual):
            self.dual, self.y, self._left = certificate.dual, y, left

    def certificate(self) -> Certificate:
        """Return what point and multipliers prove."""
        if not np.isfinite(self.dual):  # no multipliers yet: nothing is proven
            none = certificate_inside(self._program, (self.X,), self.u, self.y, self._activity, 1.0)
            return Certificate(none.primal, -np.inf, np.inf, none.primal_residual, 1.0, np.inf)
        return certificate_inside(self._program, (self.X,), self.u, self.y, self._activity, 0.0)


def trace_bound_on(faces: Faces) -> TraceBound:
    """Return the bound on the trace with the multipliers of the rows that are left on the face."""
    bound = trace_bound(faces.whole, 0)
    assert bound is not None
    return TraceBound(bound.value, bound.exact, bound.multipliers[faces.kept])
