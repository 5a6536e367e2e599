"""The best point and the best multipliers of a run, with their certificate."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, TraceBound, certify, objective_size
from bregopt.program import LowRank, Program
from bregopt.routes.matrix_generation.master import MatrixGenerationTuning
from bregopt.routes.matrix_generation.oracle import Leading

__all__ = ["Incumbent", "balanced"]

# Largest eigenvalue that counts as zero, relative to the trace.
_ZERO_EIGENVALUE = 1e-14
# Limits below which eigenvalues are dropped from the answer, relative to the trace, tried in order.
_TRUNCATION_LIMITS = (0.001, 0.0001, 1e-05, 1e-06, 1e-07, 1e-08, 1e-10)


class Incumbent:
    """The best point and multipliers so far of a program on its face.

    Parameters
    ----------
    program : Program
    bound : TraceBound
    tol : float
        Largest residual of points and multipliers that count as feasible.
    tuning : MatrixGenerationTuning
    """

    def __init__(
        self, program: Program, bound: TraceBound, tol: float, tuning: MatrixGenerationTuning
    ) -> None:
        self._program, self._bound, self._tol, self._tuning = program, bound, tol, tuning
        (self._block,), (face,) = program.blocks, program.faces
        first = face.embed(np.eye(face.order, 1))
        self.dual, self._primal, self._residual, self._dual_residual = -np.inf, np.inf, np.inf, np.inf
        self.y = self._violations = np.zeros(self._program.m)
        self.offer_point(
            LowRank(np.sqrt(bound.value) * first),
            np.clip(np.zeros(self._program.k), self._program.u_lo, self._program.u_hi),
        )

    @property
    def width(self) -> float:
        """Objective minus bound, infinite if one of them is missing."""
        return self._primal - self.dual

    def offer_point(self, X: LowRank, u: Array) -> None:
        """Keep a point if it is better in the larger of residual and gap.

        Without a bound, it is better if its residual is smaller, or equal with a lower objective.
        """
        program = self._program
        point = PrimalDualPoint(program, (X,), u, np.zeros(program.m))
        residual, primal = max(point.primal_residual, self._tol), point.primal
        size = max(objective_size(program, self._primal, self.dual), TINY)
        merit = self._merit(residual, primal, point.violations, size)
        if merit < self._merit(self._residual, self._primal, self._violations, size):
            self.X, self.u, self._activity, self._violations = X, u, point.activity, point.violations
            self._residual, self._primal = residual, primal

    def _merit(self, residual: float, primal: float, violations: Array, size: float) -> tuple[float, float]:
        """Return the sort key of points, least first; `size` is the same for both points of a comparison.

        The gap counts the cost of violations, as the certificate does.
        """
        if not np.isfinite(self.dual):
            return residual, primal
        loss = float(np.abs(self.y) @ violations)
        return max(residual, (abs(primal - self.dual) + loss) / size), primal

    def offer_bound(self, y: Array, found: Leading) -> None:
        """Keep multipliers with a smaller dual residual, or an equal one and a better bound.

        The multipliers of the rows that bound the trace absorb the proven bound on the largest eigenvalue of
        ``A*(y) - C``. Then ``C - A*(y)`` is psd, and Lagrange's bound is the sum of the terms of rows and
        box.
        """
        if self._bound.exact or found.bound > 0:
            y = y - found.bound * self._bound.multipliers
        bound = PrimalDualPoint(self._program, (self.X,), self.u, y, smallest_eigenvalues=(0.0,)).bound
        dual, residual = bound.value - bound.cost, max(bound.residual, self._tol)
        if (-residual, dual) > (-self._dual_residual, self.dual):
            self.dual, self.y, self._dual_residual = dual, y, residual

    def certificate(self) -> Certificate:
        """Return the certificate of point and multipliers."""
        return self._certificate(self.X, self._activity)

    def of_least_rank(self, tol: float) -> LowRank:
        """Return the point with as few orthogonal columns as the certificate allows.

        The smallest eigenvalues are dropped while gap and residuals stay within `tol` or do not increase. If
        the trace is fixed, the others are scaled up to keep it.
        """
        Q, s, _ = np.linalg.svd(self.X.factor, full_matrices=False)
        present = self.certificate()
        tol = max(tol, present.gap, present.primal_residual)
        rank = max(int((s**2 > _ZERO_EIGENVALUE * float(s @ s)).sum()), 1)
        for limit in _TRUNCATION_LIMITS:
            fewer = max(int((s**2 > limit * float(s @ s)).sum()), 1)
            if fewer < rank:
                X = LowRank(Q[:, :fewer] * (s[:fewer] * self._growth(s, fewer)))
                certificate = self._certificate(X, self._program.activity((X,), self.u))
                if max(certificate.gap, certificate.primal_residual) <= tol:
                    return X
        return LowRank(Q[:, :rank] * s[:rank])

    def _growth(self, s: Array, rank: int) -> float:
        """Return the factor of the remaining columns that keeps a fixed trace."""
        trace = float(s[:rank] @ s[:rank])
        return float(np.sqrt(float(s @ s) / trace)) if self._bound.exact and trace > 0 else 1.0

    def _certificate(self, X: LowRank, activity: Array) -> Certificate:
        known = Known(activity=activity, smallest_eigenvalues=(0.0,))
        point = PrimalDualPoint(self._program, (X,), self.u, self.y, **known)
        if np.isfinite(self.dual):
            return certify(point)
        return Certificate(self._primal, -np.inf, np.inf, point.primal_residual, 1.0, np.inf)


def balanced(program: Program, y: Array, tuning: MatrixGenerationTuning) -> Array:
    """Return multipliers near `y` with zero dual residual for unbounded variables, so that a bound exists.

    ``c - B'y`` must be zero for a free variable, and of one sign for a variable with one bound. The residual
    is distributed over the rows by the distance of their multipliers from the ends of their ranges.
    """
    lower, upper = program.bounds.dual_range()
    for _ in range(tuning.balancing_steps if program.k else 0):
        reduced = program.c - program.B.T @ y
        residual = np.where(np.isinf(program.u_hi), np.minimum(reduced, 0.0), 0.0)
        residual += np.where(np.isinf(program.u_lo), np.maximum(reduced, 0.0), 0.0)
        columns = np.flatnonzero(residual)
        if len(columns) == 0:
            break
        own = np.maximum(np.abs(y), TINY)
        room = np.minimum(np.minimum(y - lower, upper - y), own)
        B = program.B[:, columns]
        move = np.linalg.lstsq((B.T @ sp.diags_array(room) @ B).toarray(), residual[columns], rcond=None)[0]
        y = np.clip(y + room * (B @ move), lower, upper)
    return y
