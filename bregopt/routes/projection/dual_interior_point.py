"""Divergences like von Neumann's: an interior point on the dual, for more hard rows than unknowns.

Their minimizers are exponentials, and other programs take :mod:`bregopt.routes.projection.dual_newton`. As
there, for multipliers ``y`` the point ``X(y)`` minimizes ``<C - A*(y), X> + mu D(X, X0)``. If more rows are
active than ``X`` has entries, their multipliers are not unique, and an active set changes from step to step
without end. Here each bound ``c`` of an inequality has a multiplier ``z_c > 0``, and ``y = E p`` of these and
the multipliers of equalities, all together ``p``. Newton's method maximizes

    dual(E p) + nu sum_c log z_c,     nu -> 0,

with the slacks ``s_c > 0`` of the bounds and ``s_c z_c = nu`` (Nocedal and Wright 2006, ch. 19). With one
column of ``F`` for each bound and equality, Newton's equation is

    F'F dp + D dp = r,     D = s / z for bounds, 0 for equalities,

and ``F`` has one row for each entry of ``X``. It is solved in ``x = F dp``, the fewer unknowns:

    (I + F inv(D) F') x - F_e dp_e = F inv(D) r,     F_e'x = r_e,     dp = (r - F'x) / D for bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError

from bregopt.arrays import Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.divergences.spectrum import ExponentialSpectrum
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.block_rows import hessian_factor
from bregopt.routes.ipm.linear_solvers import bordered
from bregopt.routes.progress import Method, Monitor, Progress
from bregopt.routes.projection.dual_newton import (
    ARMIJO,
    NOISE,
    SHORTEST_STEP,
    START_GROWTH,
    START_TRIALS,
    STEPS,
    dual_newton,
)

# Fraction of the step to the boundary that is taken, and length up to which a step is short.
_STEP_FRACTION, _SHORT_STEP = 0.99, 0.3
# Largest array of the interior point on the dual: two bounds a row, a number for each entry of ``X``.
_LARGEST_STORED = 20_000_000
# Factor of the barrier parameter after a step that was not short.
_DECREASE = 0.1


def on_dual(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a program, with a barrier where multipliers may not be unique."""
    method = _dual_interior if _has_more_rows_than_unknowns(program) else dual_newton
    return method(program, settings, start, progress)


# Pays on: 400 forms for 36 entries, von Neumann.
def _has_more_rows_than_unknowns(program: Program) -> bool:
    """Whether the rows are hard, some of them inequalities, and more than the entries of the one ``X``.

    With a bound on its eigenvalues ``X`` is no exponential.
    """
    nearness = program.blocks[0].nearness
    if len(program.blocks) > 1 or program.capped or nearness is None or not nearness.kind.exponential:
        return False
    ((n,), bounds) = program.A.orders, program.bounds
    entries = n * (n + 1) // 2
    fits = entries < program.m and 2 * entries * program.m <= _LARGEST_STORED
    return fits and bounds.all_hard and not bounds.equal.all()


def _dual_interior(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a problem in one block with a divergence whose minimizer is an exponential.

    Parameters
    ----------
    program : Program
        One block with such a term, hard rows, no ordinary variables.
    start : Start, optional
        Not used: multipliers near zero are far from the central path.
    """
    method = _DualInterior(program)
    monitor = Monitor(program, settings, progress)
    first = method.first()
    if first is None:
        X0 = np.asarray(method.nearness.X0)
        return Answer((X0,), np.zeros(0), np.zeros(program.m), StopReason.STALLED, 0)
    limit = settings.max_iter or STEPS
    at, stop, step, _ = monitor.follow(method, first, limit)
    y = monitor.farkas if stop is StopReason.INFEASIBLE else at.y
    return Answer((at.spectrum.X,), np.zeros(0), y, stop, step)


@dataclass(frozen=True, eq=False)
class _Point:
    """Multipliers ``p`` of the bounds and the equalities, their ``y``, the slacks, and ``X(y)``."""

    p: Array
    y: Array
    s: Array
    spectrum: ExponentialSpectrum
    activity: Array
    dual: float
    step: float = 1.0

    @property
    def z(self) -> Array:
        return self.p[: len(self.s)]


class _DualInterior(Method):
    def __init__(self, program: Program) -> None:
        (block,) = program.blocks
        assert block.nearness is not None
        self.program, self.nearness = program, block.nearness
        self._divergence, self._C = divergence_of(block.nearness), block.C
        bounds = program.bounds
        below = np.flatnonzero(np.isfinite(bounds.lo) & ~bounds.equal)
        above = np.flatnonzero(np.isfinite(bounds.hi) & ~bounds.equal)
        equal = np.flatnonzero(bounds.equal)
        self._row = np.concatenate([below, above, equal])
        self._sign = np.concatenate([np.ones(len(below)), -np.ones(len(above)), np.ones(len(equal))])
        self._bound = np.concatenate([bounds.lo[below], bounds.hi[above], bounds.lo[equal]])
        self._count = len(below) + len(above)

    @cached_property
    def _E(self) -> Any:
        at = (self._row, np.arange(len(self._row)))
        return sp.csr_array((self._sign, at), (self.program.m, len(self._row)))

    def first(self) -> _Point | None:
        """Return a point whose products of slack and multiplier are equal; smaller ones if it overflows."""
        at = self._point(np.zeros(len(self._row)), np.zeros(0))
        if at is None:
            return None
        excess = self._excess(at)[: self._count]
        s = np.maximum(np.abs(excess), 0.1 * np.abs(excess).mean())
        nu = self.nearness.mu * self._divergence.unit / self._count
        for _ in range(START_TRIALS):
            p = np.zeros(len(self._row))
            p[: self._count] = nu / s
            begin = self._point(p, s)
            if begin is not None:
                return begin
            nu /= START_GROWTH
        return None

    def certificate(self, at: _Point) -> Certificate:
        """Return the certificate of a point."""
        X, term = at.spectrum.X, at.spectrum.term
        W = self._C - self.program.A.adjoint(at.y)
        value = (term - float(np.vdot(W, X))) / self.nearness.mu
        known = Known(matrix_terms=(term,), cone_residual=0.0, divergences=(value,), activity=at.activity)
        return certify(PrimalDualPoint(self.program, (X,), np.zeros(0), at.y, **known))

    def advance(self, at: _Point) -> _Point | None:
        """Return a point of larger barrier function, None if there is none in floating point."""
        z = at.z
        nu = float(at.s @ z) / self._count
        nu *= _DECREASE if at.step > _SHORT_STEP else 1.0
        right = -self._excess(at)
        right[: self._count] += nu / z
        try:
            dp = self._direction(at, right)
        except LinAlgError:
            return None
        dz = dp[: self._count]
        ds = nu / z - at.s / z * dz - at.s
        alpha = min(1.0, _STEP_FRACTION * _to_boundary(z, dz))
        longest = _STEP_FRACTION * _to_boundary(at.s, ds)
        rise = float(right @ dp)
        round_off = NOISE * (abs(at.dual) + self.nearness.mu * self._divergence.unit)
        while alpha > SHORTEST_STEP:
            new = self._point(at.p + alpha * dp, at.s + min(alpha, longest) * ds, alpha)
            if new is not None:
                gained = new.dual - at.dual + nu * float(np.log(new.z / z).sum())
                if gained >= ARMIJO * alpha * rise - round_off:
                    return new
            alpha *= 0.5
        return None

    def _point(self, p: Array, s: Array, step: float = 1.0) -> _Point | None:
        """Return the point of given multipliers, None where the exponential overflows."""
        checkpoint(len(self._C))
        y = self._E @ p
        W = self._C - self.program.A.adjoint(y)
        spectrum: Any = self._divergence.spectrum(W, self.nearness.mu)
        if spectrum is None:
            return None
        dual = float((self._sign * p) @ self._bound) + spectrum.term
        return _Point(p, y, s, spectrum, self.program.A.apply((spectrum.X,)), dual, step)

    def _excess(self, at: _Point) -> Array:
        """Return how far each activity is inside its bound."""
        return self._sign * (at.activity[self._row] - self._bound)

    def _direction(self, at: _Point, right: Array) -> Array:
        """Return Newton's step, refined once."""
        F, count = self._columns(at), self._count
        D, E = np.zeros(len(right)), np.zeros(len(right))
        D[:count], E[:count] = at.s / at.z, at.z / at.s
        weighted = F * np.sqrt(E)
        K = np.eye(len(F)) + weighted @ weighted.T
        solve = bordered(K, F[:, count:])
        dp = np.zeros(len(right))
        for _ in range(2):
            r = right - F.T @ (F @ dp) - D * dp
            x, border = solve(F @ (E * r), r[count:])
            dp += E * (r - F.T @ x)
            dp[count:] -= border
        return dp

    def _columns(self, at: _Point) -> Array:
        """Return ``F``: the rows in the eigenvectors of ``X``, times roots of the divided differences."""
        return hessian_factor(self.program.A, at.spectrum).T[:, self._row] * self._sign


def _to_boundary(value: Array, step: Array) -> float:
    """Return the length at which the first positive value is zero."""
    falls = step < 0
    return float((value[falls] / -step[falls]).min(initial=np.inf))
