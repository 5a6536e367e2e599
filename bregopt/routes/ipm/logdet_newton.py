"""Newton's method for LogDet nearness, all rows at once.

If every row is soft with a smooth penalty, only ``X`` and the multipliers are unknown, and Newton's method in
both ends in a few steps. Otherwise, or if that takes too many steps, the primal-dual engine runs at the
problem's own weight. From an earlier answer Newton's method in the active rows is tried first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, PrimalDualPoint, certify, is_ray
from bregopt.linalg import inverse_of, root_of
from bregopt.program import Answer, Face, Program, Start, StopReason
from bregopt.routes.ipm import Iterate, PrimalDual, first_iterate
from bregopt.routes.ipm.active_newton import ActiveNewton
from bregopt.routes.ipm.iterate import Pair
from bregopt.routes.ipm.logdet_problem import LogDetProblem
from bregopt.routes.ipm.soft_newton import SoftNewton, smooth
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.monitor import Followed, Method, Monitor
from bregopt.routes.progress import Progress

__all__ = ["logdet_newton"]

_FINAL = (StopReason.CONVERGED, StopReason.INFEASIBLE, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
_NO_VARIABLES = np.zeros(0)


def logdet_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a LogDet nearness problem in one block.

    Parameters
    ----------
    program : Program
        One block with a LogDet term, no ordinary variables.
    settings : Settings
        Its tuning is an :class:`InteriorPointTuning`.
    start : Start, optional
    progress : Progress
    """
    tuning: InteriorPointTuning = settings.tuning
    problem = LogDetProblem(program, progress)
    methods: list[Any] = [_RowNewton(problem, tuning)]
    if smooth(problem.program.bounds, problem.mu, tuning):
        methods.insert(0, SoftNewton(problem, tuning))
    elif problem.unconstrained is not None:
        inactive = _inactive(problem, problem.unconstrained, settings, progress)
        if inactive is not None:
            return inactive
    if problem.unconstrained is None and is_ray(problem.program, (problem.steepest(),), _NO_VARIABLES):
        ray = problem.steepest()
        return Answer((ray,), _NO_VARIABLES, np.zeros(program.m), StopReason.UNBOUNDED, 0)
    monitor, limit, steps = Monitor(program, settings, progress), settings.max_iter or tuning.logdet_steps, 0
    if start is not None:
        warm = _warm(methods[0], problem, start, monitor, limit, tuning)
        if warm is not None:
            steps = warm.step
            if warm.stop in _FINAL or steps >= limit:
                return _answer(monitor, warm)
    best: Answer | None = None
    least = np.inf
    for method in methods:
        for first in method.starts():
            last = limit if method is methods[-1] else min(limit, steps + tuning.soft_steps)
            found = monitor.follow(method, first, last, steps)
            answer, steps = _answer(monitor, found), found.step
            if found.stop in _FINAL:
                return answer
            certificate = method.certificate(found.at)
            error = max(certificate.gap, certificate.primal_residual)
            if best is None or error <= least:
                best, least = answer, error
            if steps >= limit:
                return replace(best, iterations=steps)
    if best is None:
        best = Answer((problem.X0,), _NO_VARIABLES, np.zeros(program.m), StopReason.STALLED, steps)
    return replace(best, iterations=steps)


def _inactive(problem: LogDetProblem, X: Array, settings: Any, progress: Progress) -> Answer | None:
    """Return the unconstrained minimizer if it is the solution."""
    y = np.zeros(problem.program.m)
    point = PrimalDualPoint(problem.program, (X,), _NO_VARIABLES, y)
    if point.primal_residual > settings.tol:
        return None
    certificate = certify(point)
    if not certificate.meets(settings.tol):
        return None
    progress.record(0, certificate)
    return Answer((X,), _NO_VARIABLES, y, StopReason.CONVERGED, 0)


def _warm(
    method: Any,
    problem: LogDetProblem,
    start: Start,
    monitor: Monitor,
    limit: int,
    tuning: InteriorPointTuning,
) -> Followed | None:
    """Return the run from an earlier answer's multipliers, None if they give no first iterate."""
    y = problem.program.bounds.clip(start.y)
    if isinstance(method, _RowNewton):
        if problem.program.bounds.penalties:
            return None
        method = ActiveNewton(problem, tuning)
    first = method.at(y)
    return None if first is None else monitor.follow(method, first, min(limit, tuning.warm_steps))


def _answer(monitor: Monitor, found: Followed) -> Answer:
    y = monitor.farkas if found.stop is StopReason.INFEASIBLE else found.at.y
    return Answer((found.at.X,), _NO_VARIABLES, y, found.stop, found.step)


class _RowNewton(Method):
    """The primal-dual engine at a fixed weight, with ``nu`` decreasing to zero."""

    def __init__(self, problem: LogDetProblem, tuning: InteriorPointTuning) -> None:
        self._problem, self._tuning = problem, tuning

    @cached_property
    def _engine(self) -> PrimalDual:
        return PrimalDual(self._problem.program, [self._problem.C], self._tuning)

    def starts(self) -> Iterator[_Iterate]:
        """Yield a first iterate at the unconstrained minimizer, then one far above the weight."""
        program = self._problem.program
        first = None if self._problem.whitened else self._near_minimizer()
        if first is not None:
            yield first
        # On the central path of <C, X>, far above the weight.
        whole = Face.whole(len(self._problem.C))
        yield _Iterate(first_iterate(self._engine, program, [self._problem.C], [whole], self._tuning))

    def _near_minimizer(self) -> _Iterate | None:
        bounds, X = self._problem.program.bounds, self._problem.unconstrained
        X = self._problem.X0 if X is None else X
        if (bounds.lo != bounds.hi).any():  # inequalities start well inside the cone
            X = (X + np.trace(X) / len(X) * np.eye(len(X))) / 2
        return self._centered(_scaled_to_diagonal(self._problem.program, X))

    def certificate(self, at: _Iterate) -> Certificate:
        """Return the certificate of an iterate."""
        return self._problem.certificate(at)

    def advance(self, at: _Iterate) -> _Iterate | None:
        """Return the iterate after a step, None if no step is left."""
        new = self._engine.advance(at.iterate, self._problem.mu)
        return None if new is None else _Iterate(new)

    def _centered(self, X: Array) -> _Iterate | None:
        """Return an iterate at `X`, centered at the largest ``nu`` with ``C - A*(y)`` well inside the cone.

        If there is none, ``Z = mu inv(X)``.
        """
        nu = mu = self._problem.mu
        for _ in range(self._tuning.centering_trials):
            at = self._engine.begin([X], _NO_VARIABLES, nu)
            if at is not None and _well_inside(_Iterate(at).pair.Z, self._problem.C):
                return _Iterate(at)
            nu *= 0.1
        root = root_of(X)
        if root is None:
            return None
        at = self._engine.begin([X], _NO_VARIABLES, mu, None, [mu * inverse_of(root)])
        return None if at is None else _Iterate(at)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """An iterate of the engine, with the fields of its one block."""

    iterate: Iterate

    @property
    def pair(self) -> Pair:
        (pair,) = self.iterate.pairs
        return pair

    @property
    def X(self) -> Array:
        return self.pair.X

    @property
    def X_root(self) -> Array:
        return self.pair.X_root

    @property
    def Z_root(self) -> Array | None:
        """The factor of ``C - A*(y)``, None while ``Z`` differs from it."""
        return None if self.iterate.dual_residual else self.pair.Z_root

    @property
    def y(self) -> Array:
        return self.iterate.y

    @property
    def activity(self) -> Array:
        return self.iterate.activity


def _well_inside(Z: Array, C: Array) -> bool:
    """Whether twice the step from `C` to `Z` is still in the cone."""
    return root_of(2 * Z - C) is not None


def _scaled_to_diagonal(program: Program, X: Array) -> Array:
    """Return `X` with rows and columns scaled to the diagonal entries that equalities prescribe."""
    prescribed = X.diagonal().copy()
    bounds = program.bounds
    for term in program.A.terms:
        if term.rows.single:
            t = term.rows.coordinates()
            k = (t.i == t.j) & (bounds.lo == bounds.hi)[term.at]
            prescribed[t.i[k]] = bounds.lo[term.at][k] / t.value[k]
    if (prescribed <= 0).any():
        return X
    scale = np.sqrt(prescribed / X.diagonal())
    scaled: Array = scale[:, None] * X * scale
    return scaled
