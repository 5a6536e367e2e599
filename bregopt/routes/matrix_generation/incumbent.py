"""What a run holds: its best feasible point, its best bound, and what the two prove together."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array
from bregopt.certify import (
    Certificate,
    TraceBound,
    bound_inside,
    certificate_inside,
    objective_size,
    primal_residual,
)
from bregopt.program import LowRank, Program
from bregopt.routes.matrix_generation.oracle import Leading

__all__ = ["Incumbent", "balanced"]

_NOTHING = 1e-14  # of the trace: an eigenvalue that is round-off
_SHARES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10)  # of the trace: eigenvalues that may do without
_CORRECTIONS = 3


class Incumbent:
    """The best point and multipliers so far of a program on its face.

    Parameters
    ----------
    program : Program
    bound : TraceBound
    tol : float
        Points and multipliers that miss what they must meet by no more count as feasible.
    """

    def __init__(self, program: Program, bound: TraceBound, tol: float) -> None:
        self._program, self._bound, self._tol = program, bound, tol
        first = program.faces[0].embed(np.eye(program.faces[0].order, 1))
        self.dual, self._primal, self._missed, self._left = -np.inf, np.inf, np.inf, np.inf
        self.y = np.zeros(self._program.m)
        self.offer_point(
            LowRank(np.sqrt(bound.value) * first),
            np.clip(np.zeros(self._program.k), self._program.u_lo, self._program.u_hi),
        )

    @property
    def width(self) -> float:
        """Objective less bound, infinite where one of them is missing."""
        return self._primal - self.dual

    def offer_point(self, X: LowRank, u: Array) -> None:
        """Keep a point that is nearer to an answer: by what it misses and by its gap, the larger of the two.

        Without a bound yet, one that misses the rows by less, or as little, and has the lower objective.
        """
        program = self._program
        activity = program.activity((X,), u)
        missed = max(primal_residual(program, (X,), u, activity), self._tol)
        terms = [program.blocks[0].cost_value(X), float(program.c @ u), program.offset]
        primal = sum(terms) + float(program.bounds.penalty(activity).sum())
        size = max(objective_size(self._program, self._primal, self.dual), TINY)
        if self._merit(missed, primal, size) < self._merit(self._missed, self._primal, size):
            self.X, self.u, self._activity = X, u, activity
            self._missed, self._primal = missed, primal

    def _merit(self, missed: float, primal: float, size: float) -> tuple[float, float]:
        """Return by what points are ordered, the best first; of one size, or worse ones could seem nearer."""
        if not np.isfinite(self.dual):
            return missed, primal
        return max(missed, abs(primal - self.dual) / size), primal

    def offer_bound(self, y: Array, found: Leading) -> None:
        """Keep multipliers that leave less of free variables, or as little, and have the better bound.

        The rows that bound the trace take up the proven bound on the largest eigenvalue of ``A*(y) - C``,
        so that ``C - A*(y)`` is psd and Lagrange's bound is what the rows and the box add up to.
        """
        if self._bound.exact or found.bound > 0:
            y = y - found.bound * self._bound.multipliers
        dual, miss, worth = bound_inside(self._program, self.u, y)
        left = max(miss, self._tol)
        if (-left, dual - worth) > (-self._left, self.dual):
            self.dual, self.y, self._left = dual - worth, y, left

    def certificate(self) -> Certificate:
        """Return what point and multipliers prove."""
        return self._certificate(self.X, self._activity)

    def of_least_rank(self, tol: float) -> LowRank:
        """Return the point with orthogonal columns, as few as the certificate can do with.

        The smallest eigenvalues go as long as gap and residuals stay within `tol`, or become no wider; the
        others make up for the trace where it is fixed.
        """
        Q, s, _ = np.linalg.svd(self.X.factor, full_matrices=False)
        held = self.certificate()
        tol = max(tol, held.gap, held.primal_residual)
        rank = max(int((s**2 > _NOTHING * float(s @ s)).sum()), 1)
        for share in _SHARES:
            fewer = max(int((s**2 > share * float(s @ s)).sum()), 1)
            if fewer < rank:
                X = LowRank(Q[:, :fewer] * (s[:fewer] * self._grown(s, fewer)))
                shorter = self._certificate(X, self._program.activity((X,), self.u))
                if max(shorter.gap, shorter.primal_residual) <= tol:
                    return X
        return LowRank(Q[:, :rank] * s[:rank])

    def _grown(self, s: Array, rank: int) -> float:
        """Return by what the columns grow that are left, to keep the trace."""
        left = float(s[:rank] @ s[:rank])
        return float(np.sqrt(float(s @ s) / left)) if self._bound.exact and left > 0 else 1.0

    def _certificate(self, X: LowRank, activity: Array) -> Certificate:
        if np.isfinite(self.dual):
            return certificate_inside(self._program, (X,), self.u, self.y, activity)
        residual = primal_residual(self._program, (X,), self.u, activity)  # no multipliers: nothing is proven
        return Certificate(self._primal, -np.inf, np.inf, residual, 1.0, np.inf)


def balanced(program: Program, y: Array) -> Array:
    """Return multipliers near `y` that leave nothing of variables without end, so that they bound something.

    ``c - B'y`` is to be zero where a variable is free, and of one sign where it has one end. What is missing
    is spread over the rows by the room that their multipliers have.
    """
    lower, upper = program.bounds.dual_range()
    for _ in range(_CORRECTIONS if program.k else 0):
        left = program.c - program.B.T @ y
        missing = np.where(np.isinf(program.u_hi), np.minimum(left, 0.0), 0.0)
        missing += np.where(np.isinf(program.u_lo), np.maximum(left, 0.0), 0.0)
        columns = np.flatnonzero(missing)
        if len(columns) == 0:
            break
        own = np.maximum(np.abs(y), TINY)
        room = np.minimum(np.minimum(y - lower, upper - y), own)
        B = program.B[:, columns]
        move = np.linalg.lstsq((B.T @ sp.diags_array(room) @ B).toarray(), missing[columns], rcond=None)[0]
        y = np.clip(y + room * (B @ move), lower, upper)
    return y
