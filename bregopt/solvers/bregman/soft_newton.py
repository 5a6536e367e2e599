"""Newton's method for LogDet nearness where every row is soft with a smooth penalty.

The objective ``<C, X> - mu logdet X + sum penalty(A(X))`` is then a smooth function of ``X`` alone, and the
multipliers are the slopes of the penalties. The system is that of :mod:`bregopt.solvers.engine.systems` for
``K = X``, with ``mu`` on the side of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from bregopt.arrays import Array
from bregopt.linalg import log_det, root_of
from bregopt.program import Bounds, Certificate, Penalty
from bregopt.solvers.bregman.frame import Frame
from bregopt.solvers.engine import Pull, Scene, system_for

__all__ = ["SoftIterate", "SoftNewton", "smooth"]

_STIFF = 1e6  # price of a bend of a bound by its own size, over the weight of the divergence
_ARMIJO = 1e-4
_SHORTEST = 1e-12
_SHARES = 8  # of the first multipliers, each a quarter of the one before, that are tried
_NO_VARIABLES = np.zeros(0)


def smooth(bounds: Bounds, mu: float) -> bool:
    """Whether all rows are soft with smooth penalties, none so stiff that its multiplier is round-off."""
    power = np.array([0, 0, 0, 1, 2])[bounds.kind]
    soft = bounds.kind > int(Penalty.HINGE)
    return bool((soft & (bounds.gamma * bounds.sizes**power <= _STIFF * mu)).all())


class SoftIterate:
    """A point, and the multipliers that its penalties answer.

    Parameters
    ----------
    frame : Frame
    X, X_root : array of shape (n, n)
        Positive definite, and its lower Cholesky factor.
    """

    def __init__(self, frame: Frame, X: Array, X_root: Array) -> None:
        self._frame, self.X, self.X_root = frame, X, X_root
        self.activity = frame.program.A.apply((X,))

    @cached_property
    def paid(self) -> float:
        """The sum of the penalties, which may be infinite."""
        return float(self._frame.program.bounds.penalty(self.activity).sum())

    @cached_property
    def value(self) -> float:
        """The objective."""
        return float(np.vdot(self._frame.C, self.X)) - self._frame.mu * log_det(self.X_root) + self.paid

    @property
    def y(self) -> Array:
        """The multipliers, shape ``(m,)``."""
        return self._answer[0]

    @property
    def stiffness(self) -> Array:
        """How fast the multipliers fall with the activities, shape ``(m,)``."""
        return self._answer[1]

    @cached_property
    def Z(self) -> Array:
        """``C - A*(y)``."""
        Z: Array = self._frame.C - self._frame.program.A.adjoint(self.y)
        return Z

    @cached_property
    def Z_root(self) -> Array | None:
        """The lower Cholesky factor of ``Z``, None where the multipliers prove nothing."""
        return root_of(self.Z)

    @cached_property
    def _answer(self) -> tuple[Array, Array]:
        return self._frame.program.bounds.response(self.activity)


class SoftNewton:
    """Newton's method in ``X``.

    Parameters
    ----------
    frame : Frame
        Of a problem that is :func:`smooth`.
    """

    def __init__(self, frame: Frame) -> None:
        self._frame, self._A = frame, frame.program.A
        self._system = system_for(self._A, frame.program.B, np.zeros(frame.program.m, dtype=bool))

    def starts(self) -> Iterator[SoftIterate]:
        """Yield the first iterate."""
        X = self._frame.resting
        first = (None if X is None else self._iterate(X)) or self._iterate(self._frame.X0)
        if first is not None:
            yield self._answered(first)

    def certificate(self, at: SoftIterate) -> Certificate:
        """Return what an iterate proves."""
        return self._frame.certificate(at, at.paid)

    def at(self, y: Array) -> SoftIterate | None:
        """Return the iterate at the point of some multipliers, None where there is none."""
        return self._iterate(self._frame.point(self._A.adjoint(y)))

    def next(self, at: SoftIterate) -> SoftIterate | None:
        """Return the iterate after a damped Newton step, None where the objective falls no further."""
        mu, X, m = self._frame.mu, at.X, self._A.m
        D = np.divide(mu, at.stiffness, out=np.full(m, np.inf), where=at.stiffness > 0)
        # The primal Newton step X - X Z X / mu is that of w = 2 and R = -Z X / mu.
        solve = self._system.factor(Scene((X,), (X,), at.X_root, D, _NO_VARIABLES))
        step = solve(Pull(2.0, (-(at.Z @ X) / mu,), np.zeros(m), _NO_VARIABLES, _NO_VARIABLES))
        dX = step.X[0]
        # <Z, dX> - mu tr(inv(X) dX), with inv(X) dX = I - Z X / mu + A*(dy) X.
        slope = float(np.vdot(at.Z, dX + X)) - mu * (len(X) + float(step.y @ at.activity))
        alpha = 1.0
        while alpha > _SHORTEST:
            new = self._iterate(X + alpha * dX)
            if new is not None and new.value <= at.value + _ARMIJO * alpha * slope + 1e-14 * abs(at.value):
                return new
            alpha *= 0.5
        return None

    def _answered(self, at: SoftIterate) -> SoftIterate:
        """Return the best point of a share of the multipliers that an iterate is answered with.

        What a row far outside its bound pays is nearly linear in its activity, and its multiplier nearly
        what it is at the end; where many rows are, Newton's method alone would come nearer by halves.
        """
        best, adjoint = at, self._A.adjoint(at.y)
        for k in range(_SHARES if at.y.any() else 0):
            new = self._iterate(self._frame.point(0.25**k * adjoint))
            if new is not None and new.value < best.value:
                best = new
            elif best is not at:
                break
        return best

    def _iterate(self, X: Array | None) -> SoftIterate | None:
        """Return the iterate at a point, None where it is not positive definite or a penalty is infinite."""
        if X is None:
            return None
        X = (X + X.T) / 2
        root = root_of(X)
        if root is None:
            return None
        new = SoftIterate(self._frame, X, root)
        return new if math.isfinite(new.value) else None
