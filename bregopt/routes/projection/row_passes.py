"""L-BFGS on the matrix of a nearness problem with many soft rows, which are rank one and definite.

One pass over the rows gives activities, gradient, second moments and multipliers, and so the certificate
(:mod:`bregopt.routes.quasi_newton`). It costs a small fraction of a Newton step where rows are many and the
order of the matrix is small. Heavy penalties take many passes, so the first point tells whether the method
begins at all. Where it stalls, or takes too many passes, Newton's method goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.linalg import is_definite, root_of
from bregopt.program import ENDED, Answer, Program, Start, StopReason
from bregopt.program.anchor import divergence_of
from bregopt.records import dataclass, replace
from bregopt.routes.monitor import Method, Monitor
from bregopt.routes.progress import Progress, reason
from bregopt.routes.projection.tuning import ProjectionTuning
from bregopt.routes.quasi_newton import curve_of, preconditioner, quasi_newton, relative_curvature
from bregopt.routes.reductions import Method as Solve

__all__ = ["after_row_passes"]

_FINAL = (StopReason.CONVERGED, *ENDED)
_CITATION = (
    "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10; "
    "Liu, Nocedal (1989), On the Limited Memory BFGS Method for Large Scale Optimization, Math. Program. 45"
)


def after_row_passes(newton: Solve) -> Solve:
    """Return a method that begins with passes over the rows, and ends with Newton's method if they stall."""

    def run(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        method = _RowPasses(program, settings.tuning, progress)
        first = method.first(start)
        if first is None or not method.is_near(first):
            return newton(program, settings, start, progress)
        monitor = Monitor(program, settings, progress)
        limit = min(settings.max_iter or settings.tuning.pass_limit, settings.tuning.pass_limit)
        at, stop, step, _ = monitor.follow(method, first, limit)
        answer = Answer((at.M,), np.zeros(0), at.y, stop, step, citation=_CITATION)
        if stop in _FINAL or step == settings.max_iter:
            return answer
        left = None if settings.max_iter is None else settings.max_iter - step
        # Newton's method on the dual has far to go from multipliers that are not near the solution's.
        begin = start if method.exponential else Start((at.M,), answer.u, at.y)
        try:
            more = newton(program, replace(settings, max_iter=left), begin, progress.after(step))
        except CutShort as cut:
            return replace(answer, stop=reason(cut))
        better = more
        if more.stop is not StopReason.CONVERGED and _error(program, answer) < _error(program, more):
            better = replace(answer, stop=more.stop)
        return replace(better, iterations=step + more.iterations)

    return run


def _error(program: Program, answer: Answer) -> float:
    found = certify(PrimalDualPoint(program, answer.X, answer.u, answer.y))
    return max(found.gap, found.primal_residual)


class _Multipliers(NamedTuple):
    """Multipliers, the rows' terms of the dual function, and the matrix's term."""

    y: Array
    rows_term: float
    matrix_term: float


@dataclass(frozen=True, eq=False)
class _Point:
    """A matrix, the results of a pass there, and the best multipliers so far.

    `value`, `gradient`, `curvature` and `weight` are those of the objective divided by the divergence's
    weight.
    """

    M: Array
    root: Array
    activity: Array
    divergence: float
    penalty: float
    value: float
    gradient: Array
    curvature: Array
    weight: float
    best: _Multipliers

    @property
    def y(self) -> Array:
        return self.best.y


class _RowPasses(Method):
    """The method, and its objective, of which :meth:`at` gives points."""

    tests_multipliers = False

    def __init__(self, program: Program, tuning: ProjectionTuning, progress: Progress) -> None:
        (block,) = program.blocks
        assert block.nearness is not None
        self.nearness = block.nearness
        self._program, self._tuning, self._progress = program, tuning, progress
        self._divergence, self._mu, self._C = divergence_of(block.nearness), block.nearness.mu, block.C
        self._signs = program.A.definite_signs
        self._best = _Multipliers(np.zeros(program.m), 0.0, -np.inf)
        self._steps: Iterator[_Point] = iter(())

    @property
    def exponential(self) -> bool:
        """Whether the divergence is von Neumann's."""
        return self._divergence.exponential

    def first(self, start: Start | None) -> _Point | None:
        """Return the point at the minimizer for multipliers of an earlier answer, or for none."""
        y = np.zeros(self._program.m) if start is None else self._program.bounds.clip(start.y)
        spectrum = self._divergence.spectrum(self._C - self._program.A.adjoint(y), self._mu)
        root = root_of(np.asarray(self.nearness.X0) if spectrum is None else spectrum.X)
        at = None if root is None else self.at(root, curvature=True)
        if at is not None:
            self._steps = quasi_newton(self, at)
        return at

    def is_near(self, at: _Point) -> bool:
        """Whether few passes are likely to be enough from a first point.

        Penalties may not be far more curved than the divergence, nor the first step be long.
        """
        tuning = self._tuning
        curvature, growth = tuning.pass_curvature, tuning.pass_growth
        if self.exponential:
            curvature, growth = tuning.pass_exponential_curvature, tuning.pass_exponential_growth
        if not relative_curvature(at, self.exponential) <= curvature:
            return False
        exponent = curve_of(self, at).exponent(-preconditioner(at, self.exponential)(at.gradient))
        finite = bool(np.isfinite(exponent).all())
        return finite and bool(np.abs(np.linalg.eigvalsh(exponent)).max() <= growth)

    def at(self, root: Array, curvature: bool) -> _Point | None:
        """Return the point at ``M = root root'`` after one pass."""
        checkpoint(len(root))
        M = root @ root.T
        if not np.isfinite(M).all() or not is_definite(M):
            return None
        A, bounds = self._program.A, self._program.bounds
        a = A.apply((M,))
        y, penalty = bounds.response(a), float(bounds.penalty(a).sum())
        if not np.isfinite(penalty) or not np.isfinite(y).all():
            return None
        _, D = bounds.meet(a, y, bounds.side(a, y))
        w = 1 / (self._mu * D)
        W = self._C - A.adjoint(y)
        divergence = self._divergence.value(M)
        self._look(
            _Multipliers(y, float(bounds.conjugate(y).sum()), self._divergence.dual_term(W, self._mu, M))
        )
        value = divergence + (float(np.vdot(self._C, M)) + penalty) / self._mu
        gradient = self._divergence.gradient(M) + W / self._mu
        H = A.adjoint(self._signs * w)
        return _Point(M, root, a, divergence, penalty, value, gradient, H, float(w.sum()), self._best)

    def _look(self, new: _Multipliers) -> None:
        if new.rows_term + new.matrix_term > self._best.rows_term + self._best.matrix_term:
            self._best = new

    def certificate(self, at: _Point) -> Certificate:
        """Return the certificate of a point and the best multipliers."""
        known = Known(
            activity=at.activity,
            divergences=(at.divergence,),
            penalties=at.penalty,
            row_terms=at.best.rows_term,
            matrix_terms=(at.best.matrix_term,),
            cone_residual=0.0,
        )
        found = certify(PrimalDualPoint(self._program, (at.M,), np.zeros(0), at.y, **known))
        missed = self._progress.missed((at.M,), np.zeros(0), at.activity)
        return replace(found, primal_residual=max(found.primal_residual, missed))

    def advance(self, at: _Point) -> _Point | None:
        """Return the point after a step, None if the objective no longer decreases."""
        return next(self._steps, None)
