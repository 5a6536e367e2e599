"""Newton's method on the dual of LogDet nearness in the active rows, started from a nearby answer.

With ``X = mu inv(C - A*(y))`` in each block the optimality conditions are one piecewise smooth equation for
each row: its activity is at a bound, or its multiplier at an end of its range. The multiplier that would
reach the bound, the others fixed, determines which of the two holds. Then all rows move at once (a semismooth
Newton method: Hintermüller, Ito, Kunisch 2002). Near the answer the method takes two to four steps, each on
the few active rows; the central path needs as many steps from nearby as from afar. Far from the answer the
method may not converge, so its steps should be limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate
from bregopt.clock import checkpoint
from bregopt.linalg import inverse_of, root_of
from bregopt.program import LinearMap
from bregopt.routes.ipm.linear_solvers import DefiniteFactor
from bregopt.routes.ipm.logdet_problem import LogDetProblem, Matrices
from bregopt.routes.ipm.schur import Gram
from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.monitor import Method

__all__ = ["ActiveNewton", "DualPoint"]


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Multipliers, the resulting ``X`` and activity, and lower Cholesky factors of ``X`` and ``Z``."""

    X: Matrices
    X_root: Matrices
    Z_root: Matrices
    y: Array
    activity: Array


class ActiveNewton(Method):
    """Newton's method in the active rows.

    Parameters
    ----------
    problem : LogDetProblem
        With hard rows and hinges.
    tuning : InteriorPointTuning
    """

    doubles_digits = True

    def __init__(self, problem: LogDetProblem, tuning: InteriorPointTuning) -> None:
        self._tuning = tuning
        self._problem, self._A, self._bounds = problem, problem.program.A, problem.program.bounds

    def at(self, y: Array) -> DualPoint | None:
        """Return the point of given multipliers, None if ``C - A*(y)`` is not positive definite."""
        checkpoint()
        X, X_roots, Z_roots = [], [], []
        for b, (C, mu) in enumerate(zip(self._problem.C, self._problem.mu, strict=True)):
            Z_root = root_of(C - self._A.adjoint(y, b))
            if Z_root is None:
                return None
            X.append(mu * inverse_of(Z_root))
            X_root = root_of(X[-1])
            if X_root is None:
                return None
            X_roots.append(X_root)
            Z_roots.append(Z_root)
        return DualPoint(tuple(X), tuple(X_roots), tuple(Z_roots), y, self._A.apply(X))

    def certificate(self, at: DualPoint) -> Certificate:
        return self._problem.certificate(at)

    def advance(self, at: DualPoint) -> DualPoint | None:
        """Return the point after a step, None if the step length becomes too short."""
        step, alpha = self._step(at), 1.0
        while np.isfinite(step).all() and alpha > self._tuning.active_least_step:
            new = self.at(at.y + alpha * step)
            if new is not None:
                return new
            alpha *= 0.5
        return None

    def _step(self, at: DualPoint) -> Array:
        may_act = (at.y != 0) | self._bounds.equal | (self._bounds.violation(at.activity) > 0)
        rows = np.flatnonzero(may_act & (self._A.norms() > 0))
        bounds, y, activity = self._bounds.slice(rows), at.y[rows], at.activity[rows]
        H = self._hessian(self._A.slice(rows), at.X)
        # Multipliers that would bring each row to its bounds, the others fixed.
        to_lo, to_hi = (y + (bound - activity) / H.diagonal() for bound in (bounds.lo, bounds.hi))
        alone = np.where(to_lo > 0, to_lo, np.where(to_hi < 0, to_hi, 0.0))
        allowed = bounds.clip(alone)
        at_bound = np.flatnonzero(bounds.equal | ((alone != 0) & (allowed == alone)))
        change = allowed - y
        change[at_bound] = 0.0
        residual = np.where(to_lo > 0, bounds.lo, bounds.hi) - activity - H @ change
        change[at_bound] = DefiniteFactor(H[np.ix_(at_bound, at_bound)], self._tuning).solve(
            residual[at_bound]
        )
        step = np.zeros(len(at.y))
        step[rows] = change
        return step

    def _hessian(self, A: LinearMap, X: Matrices) -> Array:
        """Return minus the Hessian of the dual function, ``sum <A_k, X A_l X> / mu``."""
        H = [
            Gram(A, self._tuning, b).assemble(X_b, X_b) / mu
            for b, (X_b, mu) in enumerate(zip(X, self._problem.mu, strict=True))
        ]
        return reduce(np.add, H)
