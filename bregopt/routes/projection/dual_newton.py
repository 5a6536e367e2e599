"""Newton's method on the dual, all rows at once, if the primal point is a function of a spectrum.

For multipliers ``y`` the point ``X(y)`` minimizes ``<C - A*(y), X> + mu D(X, X0)``: an exponential for von
Neumann, a positive part for the squared Frobenius distance. The divergence returns it as a spectrum. The dual
function is concave, with gradient ``b(y) - A(X)`` and Hessian ``-(H - b'(y))``, ``H v = A(X'[A*(v)])``, in
the generalized sense where points may be singular (Qi and Sun 2006). Conjugate gradients solve Newton's
equation. Projection keeps the signs of multipliers. A multiplier that a step along its own axis would take to
an end of its range is set to that end (a primal-dual active set).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import checkpoint
from bregopt.divergences import Spectrum
from bregopt.program import Answer, Penalty, Program, Start, StopReason
from bregopt.program.anchor import divergence_of
from bregopt.program.bounds import bent
from bregopt.program.rows import Rows
from bregopt.routes.ipm import RowAction, conjugate_gradients
from bregopt.routes.monitor import Method, Monitor
from bregopt.routes.progress import Progress
from bregopt.routes.projection.bounded_diagonal import BoundedDiagonal, bounded_diagonal, simplex_shift
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["dual_newton"]


@dataclass(frozen=True, eq=False)
class _Point:
    """Multipliers, their primal point and the value of the dual function."""

    y: Array
    spectrum: Spectrum
    X: Array
    activity: Array
    term: float
    dual: float


def dual_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a problem in one block with a divergence that has a spectrum.

    A squared Frobenius problem with rows on the diagonal alone may end with a matrix scaled to satisfy them.
    This saves a step, and the multipliers have half the digits.

    Parameters
    ----------
    program : Program
        One block with such a term, no ordinary variables.
    """
    return _DualNewton(program, settings, progress, restore=True).run(start)


class _DualNewton(Method):
    def __init__(self, program: Program, settings: Any, progress: Progress, restore: bool = False) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._tuning: ProjectionTuning = settings.tuning
        (block,) = program.blocks
        nearness = block.nearness
        assert nearness is not None
        divergence = divergence_of(nearness)
        self._divergence, self._mu, self._C = divergence, nearness.mu, block.C
        self._cap = {} if block.cap is None else {"cap": block.cap}
        self._X0 = np.asarray(nearness.X0)
        self._hessian = _Hessian(program, self._tuning)
        self._definite = np.zeros(program.m, dtype=bool)
        if divergence.exponential:
            for term in program.A.terms:
                self._definite[term.at] = term.rows.definite_signs() != 0
        bounds = program.bounds
        self._lower, self._upper = bounds.dual_range()
        self._free = (bounds.lo == bounds.hi) & (bounds.kind != Penalty.HINGE)
        self._diagonal = bounded_diagonal(program) if divergence.quadratic and block.cap is None else None
        self._restores = restore and self._diagonal is not None and self._diagonal.alone

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the last point."""
        first = self._first(start)
        if first is None:
            unconstrained = self._divergence.spectrum(0 * self._C, self._mu, **self._cap)
            assert unconstrained is not None
            return Answer((unconstrained.X,), np.zeros(0), np.zeros(self._program.m), StopReason.STALLED, 0)
        monitor = Monitor(self._program, self._settings, self._progress)
        limit = self._settings.max_iter or self._tuning.newton_limit
        at, stop, step, _ = monitor.follow(self, first, limit)
        y = monitor.farkas if stop is StopReason.INFEASIBLE else at.y
        return Answer((self._on_rows(at),), np.zeros(0), y, stop, step)

    def _first(self, start: Start | None) -> _Point | None:
        """Return the first point: of an earlier answer, of zero multipliers, or of a larger weight.

        With a large linear cost the exponential overflows at zero multipliers. At a sufficiently larger
        weight it does not; the answer for a larger weight is then the start for a smaller one.
        """
        if start is None and self._diagonal is not None and self._diagonal.complete:
            return self._of_right_trace(self._diagonal)
        zero = np.zeros(self._program.m)
        for y in [self._program.bounds.clip(start.y), zero] if start is not None else [zero]:
            at = self._point(y)
            if at is not None:
                return at
        weight, tuning = self._mu, self._tuning
        for _ in range(tuning.start_trials):
            weight *= tuning.start_growth
            if self._at_weight(weight)._point(zero) is not None:
                break
        y = zero
        while weight > self._mu:
            y = self._at_weight(weight).run(Start((), np.zeros(0), y)).y
            weight /= tuning.start_decrease
        return self._point(y)

    def _at_weight(self, mu: float) -> _DualNewton:
        """Return the method for another weight of the divergence, to a low accuracy."""
        tuning = self._tuning
        settings = replace(self._settings, tol=tuning.start_tol, max_iter=tuning.start_steps)
        return _DualNewton(_weighing(self._program, mu), settings, Progress("a larger weight"))

    def _of_right_trace(self, diagonal: BoundedDiagonal) -> _Point | None:
        """Return a point with the trace that the rows prescribe, if they fix the whole diagonal.

        Without the cone its matrix would have the prescribed diagonal. Along the multipliers of the identity
        the spectrum is shifted until its positive part has the prescribed trace.
        """
        slope = 2 * self._mu / diagonal.weight
        checkpoint(len(self._C))
        start = self._X0.diagonal() - self._C.diagonal() / (2 * self._mu)
        y = np.zeros(self._program.m)
        y[diagonal.at] = slope * (diagonal.lo - start[diagonal.index])
        spectrum = self._divergence.spectrum(self._C - self._program.A.adjoint(y), self._mu)
        assert spectrum is not None
        shift = simplex_shift(spectrum.theta, float(diagonal.lo.sum()))
        y[diagonal.at] -= slope * shift
        shifted: Any = replace(spectrum, theta=spectrum.theta - shift)  # type: ignore[type-var]
        return self._point_of(y, shifted)

    def _on_rows(self, at: _Point) -> Array:
        """Return the point's matrix, scaled to satisfy the rows if these are on the diagonal alone.

        The matrix and its dual are complementary, so ``D X D`` changes the gap to second order in ``D - I``:
        it proves now what the next step would. A point far from its rows is not scaled.
        """
        if not self._restores:
            return at.X
        assert self._diagonal is not None
        return self._diagonal.scaled(at.X, np.sqrt(self._settings.tol))

    def certificate(self, at: _Point) -> Certificate:
        known = Known(matrix_terms=(at.term,), cone_residual=0.0)
        if not self._restores:
            W = self._C - self._program.A.adjoint(at.y)
            known["divergences"] = ((at.term - float(np.vdot(W, at.X))) / self._mu,)
            known["activity"] = at.activity
        return certify(PrimalDualPoint(self._program, (self._on_rows(at),), np.zeros(0), at.y, **known))

    def _point(self, y: Array) -> _Point | None:
        """Return the point of given multipliers, None outside the domain of the dual."""
        checkpoint(len(self._C))
        spectrum = self._divergence.spectrum(self._C - self._program.A.adjoint(y), self._mu, **self._cap)
        return None if spectrum is None else self._point_of(y, spectrum)

    def _point_of(self, y: Array, spectrum: Spectrum) -> _Point | None:
        of_rows = float(self._program.bounds.conjugate(y).sum())
        if not np.isfinite(of_rows):
            return None
        X, term = spectrum.X, spectrum.term
        return _Point(y, spectrum, X, self._program.A.apply((X,)), term, of_rows + term)

    def advance(self, at: _Point) -> _Point | None:
        """Return a point of larger dual value, None if there is none in floating point."""
        gradient, slope, side = self._gradient(at)
        diagonal = self._hessian.curvature(at.spectrum) - slope
        lower = np.where(self._free | (side < 0), self._lower, np.maximum(self._lower, 0.0))
        upper = np.where(self._free | (side > 0), self._upper, np.minimum(self._upper, 0.0))
        lower, upper = np.where(side == 0, 0.0, lower), np.where(side == 0, 0.0, upper)
        target = np.clip(at.y + gradient / diagonal, lower, upper)
        at_end = ((target == lower) | (target == upper)) & ~self._free
        known = np.where(at_end, target - at.y, 0.0)
        for right, relaxation in self._equations(at, gradient, slope):
            d = self._direction(at, right, relaxation, diagonal, at_end, known)
            new = self._searched(at, gradient, d, lower, upper, self._tuning.shortest_newton_step)
            if new is not None:
                return new
        least = self._tuning.shortest_gradient_step
        return self._searched(at, gradient, gradient / diagonal, lower, upper, least)

    def _equations(self, at: _Point, gradient: Array, slope: Array) -> Iterator[tuple[Array, Array]]:
        """Yield right-hand sides and diagonals of Newton's equation, the most promising first.

        For an exponential the activities of definite rows are nearly exponential too. The equation ``log a =
        log b`` instead of ``a = b``, with the relaxed bound ``b``, makes Newton's steps longer where
        activities are far too small, and shorter where they are far too large.
        """
        a, b = at.activity, gradient + at.activity
        exponential = self._definite & (a * b > 0) & (gradient != 0)
        if exponential.any():
            ratio = np.divide(b, a, out=np.ones_like(a), where=exponential)
            yield np.where(exponential, a * np.log(ratio), gradient), slope / ratio
        yield gradient, slope

    def _gradient(self, at: _Point) -> tuple[Array, Array, Array]:
        """Return the gradient, the slope of the relaxed bounds, and the ascent side of each multiplier."""
        bounds, y, a = self._program.bounds, at.y, at.activity
        side = np.where(y != 0, np.sign(y), np.where(a < bounds.lo, 1.0, np.where(a > bounds.hi, -1.0, 0.0)))
        nearest = np.where(self._free | (side > 0), bounds.lo, bounds.hi)
        used = self._free | (side != 0)
        relaxed, slope = bent(bounds.kind, np.where(used, nearest, 0.0), bounds.gamma, y)
        return np.where(used, relaxed - a, 0.0), np.where(used, slope, 0.0), np.where(self._free, 1.0, side)

    def _direction(
        self, at: _Point, gradient: Array, slope: Array, diagonal: Array, at_end: Mask, known: Array
    ) -> Array:
        """Return Newton's step, in which the multipliers in `at_end` move by `known`."""
        d, tuning = known.copy(), self._tuning
        free = ~at_end
        right = gradient[free]
        if d.any():
            right = right - self._hessian.product(at.spectrum, d)[free]
        full = np.zeros(len(d))

        def hessian(v: Array) -> Array:
            full[free] = v
            product: Array = self._hessian.product(at.spectrum, full)[free] - slope[free] * v
            return product

        size = float(np.linalg.norm(gradient[free] / diagonal[free]))
        unit = max(float(np.linalg.norm(at.y)), float(np.linalg.norm(at.activity / diagonal)), 1e-300)
        d[free] = conjugate_gradients(
            hessian,
            right,
            diagonal[free],
            min(0.1, np.sqrt(size / unit)),
            tuning.cg_steps,
            tuning.interior,
        )
        return d

    def _searched(
        self, at: _Point, gradient: Array, d: Array, lower: Array, upper: Array, least: float
    ) -> _Point | None:
        """Return the first point along the projected step with sufficient increase (Armijo)."""
        alpha, tuning = 1.0, self._tuning
        round_off = tuning.newton_noise * (abs(at.dual) + self._mu * self._divergence.unit)
        while alpha > least:
            y = np.clip(at.y + alpha * d, lower, upper)
            rise = float(gradient @ (y - at.y))
            new = self._point(y) if rise > 0 else None
            if new is not None and new.dual >= at.dual + tuning.armijo_fraction * rise - round_off:
                return new
            alpha *= 0.5
        return None


def _weighing(program: Program, mu: float) -> Program:
    """Return the program with another weight of its divergence."""
    (block,) = program.blocks
    assert block.nearness is not None
    return replace(program, blocks=(replace(block, nearness=replace(block.nearness, mu=mu)),))


class _Hessian:
    """The Hessian of the matrix part of the dual, ``H v = A(X'[A*(v)])``, and its approximate diagonal."""

    def __init__(self, program: Program, tuning: ProjectionTuning) -> None:
        (block,) = program.blocks
        self._action, self._tuning = RowAction(program.A, tuning.interior), tuning
        self._squares = program.A.norms() ** 2
        self._terms = [_TermCurvature(term.at, term.rows, block.n, tuning) for term in program.A.terms]

    def product(self, spectrum: Spectrum, v: Array) -> Array:
        """Return ``H v``."""
        S = self._action.adjoint(v)
        moved = spectrum.derivative(S)
        activity = self._action.apply_product(moved.L, moved.R)
        if moved.share:
            activity += moved.share * self._action.apply(S.toarray() if sp.issparse(S) else S)
        return activity

    def curvature(self, spectrum: Spectrum) -> Array:
        """Return the approximate diagonal of ``H``, bounded away from zero."""
        diagonal = np.zeros(len(self._squares))
        of_entries: Array | None = None
        for term in self._terms:
            if term.rank_one is not None:
                p = term.rank_one
                part = p.weight**2 * spectrum.curvature(p.U @ spectrum.V)
                diagonal[term.at] += np.bincount(p.row, weights=part, minlength=term.rows.m)
            else:
                of_entries = spectrum.entry_curvature() if of_entries is None else of_entries
                t = term.entries or term.rows.coordinates()
                part = t.value**2 * of_entries[t.i, t.j] * np.where(t.i == t.j, 1.0, 0.5)
                diagonal[term.at] += np.bincount(t.row, weights=part, minlength=term.rows.m)
        least = self._tuning.least_curvature * spectrum.softness * self._squares
        return np.maximum(diagonal, np.where(least > 0, least, TINY))


class _TermCurvature:
    """One term of the rows in the form that gives the curvature at the lower cost.

    `entries` are its coordinates if each row has few; `rank_one` are its rank-one terms if they cost less
    than all entries together.
    """

    def __init__(self, at: IntArray, rows: Rows, n: int, tuning: ProjectionTuning) -> None:
        self.at, self.rows = at, rows
        self.entries = rows.coordinates() if rows.few_terms else None
        few = (rows.rank is not None and not rows.few_terms) or rows.m <= tuning.rank_one_ratio * n
        self.rank_one = rows.rank_one_terms() if few else None
