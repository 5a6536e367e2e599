"""Newton's method for LogDet nearness, all rows at once.

Where every row is soft with a smooth penalty the objective is a smooth function of ``X`` alone, and Newton's
method minimises it; otherwise, or where that takes too long, the primal-dual engine runs at the problem's own
weight. From an earlier answer Newton's method in the rows that act is tried first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from bregopt.arrays import Array
from bregopt.divergences import LogDet
from bregopt.program import (
    Certificate,
    Face,
    Penalty,
    Program,
    certificate_of,
    certify,
    is_ray,
    primal_residual,
)
from bregopt.program.certificate import divergence_of
from bregopt.program.rows import Entries
from bregopt.solvers.base import Answer, Settings, Start
from bregopt.solvers.bregman.active_newton import ActiveNewton, DualPoint
from bregopt.solvers.bregman.watch import Watch
from bregopt.solvers.engine import (
    Iterate,
    PrimalDual,
    Pull,
    Scene,
    first_iterate,
    root_of,
    system_for,
)
from bregopt.solvers.progress import Progress
from bregopt.solvers.solution import StopReason

__all__ = ["STEPS", "logdet_newton"]

STEPS = 200  # the limit where the user gives none
_WELL_CONDITIONED = 1e6  # beyond it rows give up their own structure for the coordinates of X0
_STIFF = 1e6  # price of a bend of a bound by its own size, over the weight of the divergence
_ARMIJO = 1e-4
_CENTRINGS = 12
_SOFT_STEPS = 40  # of Newton's method on X, which creeps where prices are far above the divergence
_WARM_STEPS = 12  # that an earlier answer is given to lead on
_FINAL = (StopReason.CONVERGED, StopReason.INFEASIBLE, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)
_NO_VARIABLES = np.zeros(0)


def logdet_newton(program: Program, settings: Settings, start: Start | None, progress: Progress) -> Answer:
    """Solve a LogDet nearness problem in one block.

    Parameters
    ----------
    program : Program
        One block with a LogDet term, no ordinary variables.
    """
    frame = _Frame(program)
    y, X = np.zeros(program.m), frame.resting
    if X is not None:  # perhaps no row acts
        activity = frame.program.A.apply((X,))
        if primal_residual(frame.program, (X,), _NO_VARIABLES, activity) <= settings.tol:
            certificate = certify(frame.program, (X,), _NO_VARIABLES, y)
            if certificate.meets(settings.tol):
                progress.record(0, certificate)
                return Answer((frame.lift(X),), _NO_VARIABLES, y, StopReason.CONVERGED, 0)
    elif is_ray(frame.program, (frame.steepest(),), _NO_VARIABLES):
        return Answer((frame.lift(frame.steepest()),), _NO_VARIABLES, y, StopReason.UNBOUNDED, 0)
    methods: list[Any] = [_SoftNewton(frame), _RowNewton(frame)] if _smooth(frame) else [_RowNewton(frame)]
    watch, limit, steps = Watch(program, settings, progress), settings.max_iter or STEPS, 0
    if start is not None:
        at, stop, steps = _warm(methods[0], frame, start, watch, min(limit, _WARM_STEPS))
        if stop in _FINAL or steps >= limit:
            return _answer(frame, watch, at, stop, steps)
    answer = Answer((frame.lift(frame.X0),), _NO_VARIABLES, y, StopReason.STALLED, steps)
    for method in methods:
        for first in method.starts():
            most = limit if method is methods[-1] else min(limit, steps + _SOFT_STEPS)
            at, stop, steps = watch.follow(first, method.next, frame.certificate, most, steps)
            answer = _answer(frame, watch, at, stop, steps)
            if stop in _FINAL or steps >= limit:
                return answer
    return answer


def _warm(method: Any, frame: _Frame, start: Start, watch: Watch, limit: int) -> tuple[Any, StopReason, int]:
    """Return where an earlier answer's multipliers lead, why no further, and the steps."""
    y = frame.program.bounds.clip(start.y)
    if isinstance(method, _RowNewton):
        if frame.program.bounds.penalties:
            return None, StopReason.STALLED, 0
        method = ActiveNewton(frame.program, frame.C, frame.mu)
    first = method.at(y)
    if first is None:
        return None, StopReason.STALLED, 0
    return watch.follow(first, method.next, frame.certificate, limit)


def _answer(frame: _Frame, watch: Watch, at: Any, stop: StopReason, steps: int) -> Answer:
    y = watch.farkas if stop is StopReason.INFEASIBLE else at.y
    return Answer((frame.lift(at.X),), _NO_VARIABLES, y, stop, steps)


def _smooth(frame: _Frame) -> bool:
    """Whether all rows are soft with smooth penalties, none so stiff that its multiplier is round-off."""
    bounds = frame.program.bounds
    smooth = np.isin(bounds.kind, (Penalty.LOGDET, Penalty.VON_NEUMANN, Penalty.SQUARE))
    power = np.select([bounds.kind == Penalty.VON_NEUMANN, bounds.kind == Penalty.SQUARE], [1, 2], 0)
    return bool((smooth & (bounds.gamma * bounds.sizes**power <= _STIFF * frame.mu)).all())


class _Frame:
    """The problem in coordinates that suit it: its own, or those in which an ill-conditioned ``X0`` is I.

    In the latter the divergence is ``tr X - logdet X - n``, and the conditioning costs no precision.
    """

    def __init__(self, program: Program) -> None:
        nearness = program.blocks[0].nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        assert isinstance(divergence, LogDet)
        self._L: Array | None = None
        self._given = program
        if _condition(divergence.L) > _WELL_CONDITIONED:
            self._L = divergence.L
            program = program.restrict(0, self._L, np.eye(len(self._L)))
            nearness = program.blocks[0].nearness
            assert nearness is not None
            divergence = LogDet(np.eye(len(self._L)))
        self.program, self.mu, self.X0 = program, nearness.mu, np.asarray(nearness.X0)
        self.divergence = divergence
        self.C: Array = program.blocks[0].C + self.mu * divergence.inverse
        self._log_det = 2 * float(np.log(divergence.L.diagonal()).sum())

    @property
    def ill_conditioned(self) -> bool:
        """Whether the coordinates are those of ``X0``."""
        return self._L is not None

    def point(self, y: Array) -> Array | None:
        """Return the point that belongs to some multipliers, None where there is none."""
        return self.divergence.minimiser(self.program.blocks[0].C - self.program.A.adjoint(y), self.mu)

    @cached_property
    def resting(self) -> Array | None:
        """The point where no row acts, None where there is none."""
        free = self.program.blocks[0].cost is None
        return self.X0.copy() if free else self.point(np.zeros(self.program.m))

    def steepest(self) -> Array:
        """Return the direction of trace one along which the objective grows least."""
        v = np.linalg.eigh(self.C)[1][:, :1]
        direction: Array = v @ v.T
        return direction

    def certificate(self, at: _Iterate | _SoftIterate | DualPoint) -> Certificate:
        """Return what an iterate proves, from the factors that it holds."""
        n = len(at.X)
        own = float(np.vdot(self.divergence.inverse, at.X)) - n
        divergence = own - log_det(at.X_root) + self._log_det
        term = -np.inf
        if at.Z_root is not None:
            term = self.mu * (log_det(at.Z_root) + self._log_det - n * np.log(self.mu))
        found = certificate_of(self.program, at.X, at.y, at.activity, divergence, term)
        if not self.ill_conditioned:
            return found
        # What is small beside a row in these coordinates need not be so in the given ones.
        given = primal_residual(self._given, (self.lift(at.X),), _NO_VARIABLES, at.activity)
        return replace(found, primal_residual=max(found.primal_residual, given))

    def lift(self, M: Array) -> Array:
        """Return a matrix in the coordinates of the problem as it was given."""
        return M if self._L is None else self._L @ M @ self._L.T


@dataclass(frozen=True, eq=False)
class _SoftIterate:
    """A point, the multipliers its penalties answer, and ``Z_root``, None where those prove nothing."""

    X: Array
    Z: Array
    X_root: Array
    Z_root: Array | None
    y: Array
    activity: Array


class _RowNewton:
    """The primal-dual engine, at a fixed weight and for ``nu`` to zero."""

    def __init__(self, frame: _Frame) -> None:
        self._frame = frame
        self._engine = PrimalDual(frame.program, [frame.C])

    def starts(self) -> Iterator[_Iterate]:
        """Yield the first iterate: where no row acts; then, should that lead nowhere, from far above."""
        program, near = self._frame.program, None
        if not self._frame.ill_conditioned:
            near = self._near()
        if near is not None:
            yield near
        # Along the central path of <C, X>, from far above the weight.
        whole = Face.whole(len(self._frame.C))
        yield _Iterate(first_iterate(self._engine, program, [self._frame.C], [whole]))

    def _near(self) -> _Iterate | None:
        bounds, X = self._frame.program.bounds, self._frame.resting
        X = self._frame.X0 if X is None else X
        if (bounds.lo != bounds.hi).any():  # inequalities are approached from well inside the cone
            X = (X + np.trace(X) / len(X) * np.eye(len(X))) / 2
        return self._centred(_on_diagonal(self._frame.program, X))

    def next(self, at: _Iterate) -> _Iterate | None:
        """Return the iterate after a step, None where none is left."""
        new = self._engine.advance(at.own, self._frame.mu)
        return None if new is None else _Iterate(new)

    def _centred(self, X: Array) -> _Iterate | None:
        """Return an iterate at `X`, its ends centred at the largest ``nu`` with ``C - A*(y)`` well inside.

        Where none is, ``Z`` is the one that belongs to `X`.
        """
        nu = mu = self._frame.mu
        for _ in range(_CENTRINGS):
            at = self._engine.begin([X], _NO_VARIABLES, nu)
            if at is not None and _inside(at.pairs[0].Z, self._frame.C):
                return _Iterate(at)
            nu *= 0.1
        root = root_of(X)
        if root is None:
            return None
        Z = mu * cho_solve((root, True), np.eye(len(X)))
        at = self._engine.begin([X], _NO_VARIABLES, mu, None, [Z])
        return None if at is None else _Iterate(at)


@dataclass(frozen=True, eq=False)
class _Iterate:
    """An iterate of the engine, its one block at hand."""

    own: Iterate

    @property
    def X(self) -> Array:
        return self.own.pairs[0].X

    @property
    def X_root(self) -> Array:
        return self.own.pairs[0].X_root

    @property
    def Z_root(self) -> Array | None:
        """Of ``C - A*(y)``, None where ``Z`` is not yet that."""
        return None if self.own.dual_residual else self.own.pairs[0].Z_root

    @property
    def y(self) -> Array:
        return self.own.y

    @property
    def activity(self) -> Array:
        return self.own.activity


def _inside(Z: Array, C: Array) -> bool:
    """Whether twice the way from `C` to `Z` leaves the cone no earlier."""
    return root_of(2 * Z - C) is not None


def _on_diagonal(program: Program, X: Array) -> Array:
    """Return `X` with rows and columns scaled to the diagonal that the equalities ask, as far as they do."""
    wanted = X.diagonal().copy()
    bounds = program.bounds
    for term in program.A.terms:
        if isinstance(term.rows, Entries):
            k = (term.rows.i == term.rows.j) & (bounds.lo == bounds.hi)[term.at]
            wanted[term.rows.i[k]] = bounds.lo[term.at][k] / term.rows.weight[k]
    if (wanted <= 0).any():
        return X
    scale = np.sqrt(wanted / X.diagonal())
    scaled: Array = scale[:, None] * X * scale
    return scaled


class _SoftNewton:
    """Newton's method on ``<C, X> - mu logdet X + sum penalty(A(X))``; multipliers follow from ``X``."""

    def __init__(self, frame: _Frame) -> None:
        self._frame, self._A, self._bounds = frame, frame.program.A, frame.program.bounds
        self._system = system_for(self._A, frame.program.B, np.zeros(frame.program.m, dtype=bool))

    def starts(self) -> Iterator[_SoftIterate]:
        """Yield the iterate where no row acts."""
        X = self._frame.resting
        first = (None if X is None else self._iterate(X)) or self._iterate(self._frame.X0)
        if first is not None:
            yield first

    def at(self, y: Array) -> _SoftIterate | None:
        """Return the iterate at the point of some multipliers, None where there is none."""
        X = self._frame.point(y)
        return None if X is None else self._iterate(X)

    def next(self, at: _SoftIterate) -> _SoftIterate | None:
        """Return the iterate after a damped Newton step, None where the objective falls no further."""
        mu = self._frame.mu
        _, stiffness = self._bounds.response(at.activity)
        D = np.divide(1.0, stiffness, out=np.full(self._A.m, np.inf), where=stiffness > 0)
        # With K = X / mu the primal Newton step X - X Z X / mu is the G of w = 2 mu and L = -X Z.
        scene = Scene((at.X,), (at.X / mu,), at.X_root, D, _NO_VARIABLES)
        pull = Pull(2 * mu, (-(at.X @ at.Z),), np.zeros(self._A.m), _NO_VARIABLES, _NO_VARIABLES)
        dX = self._system.factor(scene)(pull).X[0]
        inverse_gradient = np.linalg.solve(at.X_root, np.linalg.solve(at.X_root, dX).T)
        slope = float(np.vdot(at.Z, dX)) - mu * float(np.trace(inverse_gradient))
        value, alpha = self._value(at), 1.0
        while alpha > 1e-12:
            new = self._iterate(at.X + alpha * dX)
            if new is not None and self._value(new) <= value + _ARMIJO * alpha * slope + 1e-14 * abs(value):
                return new
            alpha *= 0.5
        return None

    def _value(self, at: _SoftIterate) -> float:
        smooth = float(np.vdot(self._frame.C, at.X)) - self._frame.mu * log_det(at.X_root)
        return smooth + float(self._bounds.penalty(at.activity).sum())

    def _iterate(self, X: Array) -> _SoftIterate | None:
        X = (X + X.T) / 2
        root = root_of(X)
        if root is None:
            return None
        activity = self._A.apply((X,))
        if not np.isfinite(self._bounds.penalty(activity)).all():
            return None
        y, _ = self._bounds.response(activity)
        Z = self._frame.C - self._A.adjoint(y)
        return _SoftIterate(X, Z, root, root_of(Z), y, activity)


def log_det(root: Array) -> float:
    """Return ``logdet(L L')``."""
    return 2 * float(np.log(root.diagonal()).sum())


def _condition(L: Array) -> float:
    """Return a lower bound on the condition number of ``L L'``."""
    diagonal = L.diagonal()
    return float((diagonal.max() / diagonal.min()) ** 2)
