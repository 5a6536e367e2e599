"""Newton's method on the dual, all rows at once, if the primal point is a function of a spectrum.

For multipliers ``y`` the point ``X(y)`` of each block minimizes ``<C - A*(y), X> + mu D(X, X0)``: an
exponential for von Neumann, a positive part for the squared Frobenius distance, an inverse for LogDet. The
divergence returns it as a spectrum. The dual function is
concave, with gradient ``b(y) - sum A(X)`` and Hessian ``-(sum H - b'(y))``, ``H v = A(X'[A*(v)])``, the sums
over the blocks, in the generalized sense where points may be singular (Qi and Sun 2006). Conjugate gradients
solve Newton's equation. Projection keeps the signs of multipliers. A multiplier that a step along its own
axis would take to an end of its range is set to that end (a primal-dual active set). Where conjugate
gradients do not solve Newton's equation, it is factorized; with equalities alone a barrier, whose weight
decreases, smooths the positive part.

One block's term of the dual function is ``min_X <C - A*(y), X> + mu D(X, X0)``. The dual function is the sum
of these terms and of the rows' terms. Rows that bound the diagonal, such as those of a correlation matrix,
give a start and a final scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, Mask
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.certify.accuracy import Near, has_closed_form, near_minimizers
from bregopt.clock import checkpoint
from bregopt.divergences import Divergence, ReciprocalSpectrum, Spectrum
from bregopt.divergences.spectrum import ExponentialSpectrum, PositiveSpectrum
from bregopt.linalg import FLAT, DefiniteFactor
from bregopt.program import Answer, Block, LinearMap, Penalty, Program, Start, StopReason
from bregopt.program.bounds import relaxed_bounds
from bregopt.program.program import divergence_of
from bregopt.program.stacks import simplex_shifts
from bregopt.records import dataclass, replace
from bregopt.routes.ipm.block_rows import (
    GivenDifferences,
    RowAction,
    RowCurvature,
    dual_hessian,
    has_gram,
    hessian_product,
)
from bregopt.routes.ipm.linear_solvers import conjugate_gradients
from bregopt.routes.progress import Method, Monitor, Progress

# Limit on the steps where the option `max_iter` gives none.
STEPS = 500
# Least change of the dual function in a line search, relative to the slope (Armijo), and the difference of
# the function, relative to its magnitude, that counts as round-off there.
ARMIJO, NOISE = 1e-4, 1e-13
# Least step length along Newton's direction, below which the direction is the scaled gradient, and along
# that, below which the method has stalled.
_SHORTEST_NEWTON_STEP, SHORTEST_STEP = 1e-3, 1e-12
# Fraction of the step to the boundary of the domain that is tried first.
_STEP_FRACTION = 0.9
# Limit on conjugate gradient steps for one Newton direction.
_CG_STEPS = 200
# Limit on increases of the divergence's weight in the search for a first point, and the factor of one. The
# exponential of von Neumann overflows at zero multipliers if the linear cost is large.
START_TRIALS, START_GROWTH = 8, 10.0
# Entries of the rows in the eigenvectors up to which Newton's equation is formed; with several matrices the
# multiplications for that, relative to the cubes of their orders: they take as long as one cut-off direction.
_LARGEST_FORMED, _LARGEST_WORK = 20_000_000, 4_000
# Steps after which a barrier helps; where the rows leave an interior 5 to 10 suffice.
_MANY_STEPS = 14
# First and least root of the barrier's weight, relative to the largest eigenvalue, the decrease of the weight
# from step to step, and the error of the rows, relative to that root, above which it stays.
_FIRST_BARRIER, _LEAST_BARRIER, _BARRIER_DECREASE, _NEAR_PATH = 1e-2, 1e-11, 0.1, 0.1
# Divisor of the weight from one first point to the next. The next starts at the last answer.
_START_DECREASE = 2.0
# Growth of ``X`` from which a LogDet term begins with a larger ``X0``. Up to it Newton's steps take less.
_FAR_LARGER = 1e4
# Tolerance of the answers at larger weights. They are starts only.
_START_TOL = 1e-3
# Limit on the Newton steps at each larger weight.
_START_STEPS = 50


class BlockDual:
    """The term of one block.

    Parameters
    ----------
    block : Block
        With a divergence that has a spectrum.
    A : LinearMap
        The rows in this block.
    """

    def __init__(self, block: Block, A: LinearMap) -> None:
        assert block.nearness is not None
        self.divergence: Divergence = divergence_of(block.nearness)
        self.mu, self.C = block.nearness.mu, block.C
        self._cap = {} if block.cap is None else {"cap": block.cap}
        self._A, self._action = A, RowAction(A)
        self._curvature = RowCurvature(A)

    def slack(self, y: Array) -> Array:
        """Return ``C - A*(y)``."""
        return self.C - self._A.adjoint(y)

    def spectrum(self, y: Array) -> Spectrum | None:
        """Return the minimizer at given multipliers, None outside the domain of the dual."""
        checkpoint(len(self.C))
        return self.divergence.spectrum(self.slack(y), self.mu, **self._cap)

    def unconstrained(self) -> Spectrum:
        """Return the minimizer of the divergence alone."""
        found = self.divergence.spectrum(0 * self.C, self.mu, **self._cap)
        assert found is not None
        return found

    def divergence_at(self, y: Array, term: float, X: Array) -> float:
        """Return ``D(X, X0)`` of the minimizer `X` at given multipliers, from the value of the `term`."""
        return (term - float(np.vdot(self.slack(y), X))) / self.mu

    def reach(self, spectrum: Spectrum, d: Array) -> float:
        """Return the largest step along `d` inside the domain of a LogDet term; infinite for other terms."""
        return (
            spectrum.reach(self._action.adjoint(d)) if isinstance(spectrum, ReciprocalSpectrum) else math.inf
        )

    def product(self, spectrum: Spectrum, v: Array) -> Array:
        """Return ``H v``."""
        return hessian_product(self._action, spectrum, v)

    def curvature(self, spectrum: Spectrum) -> Array:
        """Return the approximate diagonal of ``H``, bounded away from zero."""
        return self._curvature(spectrum)

    def gram(self, spectrum: Any) -> Array:
        """Return ``H`` as a matrix."""
        return dual_hessian(self._A, spectrum)


def block_duals(program: Program) -> list[BlockDual]:
    """Return the terms of all blocks."""
    return [BlockDual(block, program.A.of_block(b)) for b, block in enumerate(program.blocks)]


def exponential_rows(A: LinearMap, blocks: Sequence[BlockDual]) -> Mask:
    """Return the mask of the rows with an activity of one sign that is nearly exponential in the multipliers.

    They are definite, in blocks whose minimizer is an exponential.
    """
    if not any(block.divergence.exponential for block in blocks):
        return np.zeros(A.m, dtype=bool)
    mask: Mask = A.definite_signs != 0
    for term in A.terms:
        if not blocks[term.block].divergence.exponential:
            mask[term.place] = False
    return mask


@dataclass(frozen=True, eq=False)
class _Point:
    """Multipliers, their primal point and the value of the dual function; tuples have one item a block."""

    y: Array
    spectra: tuple[Spectrum, ...]
    X: tuple[Array, ...]
    activity: Array
    terms: tuple[float, ...]
    dual: float


def dual_newton(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a problem whose blocks have divergences with a spectrum.

    The answer is a feasible matrix near the minimizer, where there is one
    (:mod:`bregopt.certify.restoration`).

    Parameters
    ----------
    program : Program
        Such a term in each block, no ordinary variables.
    """
    return _DualNewton(program, settings, progress).run(start)


class _DualNewton(Method):
    doubles_digits = True

    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._blocks = block_duals(program)
        self._unit = sum(block.mu * block.divergence.unit for block in self._blocks)
        self._exponential = exponential_rows(program.A, self._blocks)
        bounds = program.bounds
        self._lower, self._upper = bounds.dual_range()
        self._free = (bounds.lo == bounds.hi) & (bounds.kind != Penalty.HINGE)
        one = len(self._blocks) == 1 and not program.capped
        quadratic = one and self._blocks[0].divergence.quadratic
        self._restores = has_closed_form(program)
        self._near: tuple[_Point, Near | None] | None = None  # of the last point
        self._shifts = not self._free.all()
        self._ill_conditioned = False
        self._quadratic = quadratic
        self._has_barrier = quadratic and bounds.all_hard and bool(self._free.all())
        self._barrier: float | None = None  # the weight, while it decreases
        self._steps = 0

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the last point."""
        first = self._first(start)
        if first is None:
            X = tuple(block.unconstrained().X for block in self._blocks)
            return Answer(X, np.zeros(0), np.zeros(self._program.m), StopReason.STALLED, 0)
        monitor = Monitor(self._program, self._settings, self._progress)
        limit = self._settings.max_iter or STEPS
        at, stop, step, _ = monitor.follow(self, first, limit)
        y = monitor.farkas if stop is StopReason.INFEASIBLE else at.y
        return Answer(self._on_rows(at), np.zeros(0), y, stop, step)

    def _first(self, start: Start | None) -> _Point | None:
        """Return the first point: of an earlier answer, of zero multipliers, or of larger weights.

        With a large linear cost a block may have no point at zero multipliers: the exponential overflows. At
        a sufficiently larger weight it has one; the answer for a larger weight is then the start for a
        smaller one.
        """
        if start is None and self._quadratic:
            begin = self._of_right_trace()
            if begin is not None:
                return begin
        zero = np.zeros(self._program.m)
        for y in [self._program.bounds.clip(start.y), zero] if start is not None else [zero]:
            at = self._point(y)
            if at is not None:
                return at if start is not None else self._from_above(at)
        without = [block.spectrum(zero) is None for block in self._blocks]
        mu = weights = np.array([block.mu for block in self._blocks])
        for _ in range(START_TRIALS):
            weights = np.where(without, weights * START_GROWTH, mu)
            if self._at_weights(weights)._point(zero) is not None:
                break
        y = zero
        while (weights > mu).any():
            y = self._at_weights(weights).run(Start((), np.zeros(0), y)).y
            weights = np.where(without, weights / _START_DECREASE, mu)
        return self._point(y)

    # Pays on: a large matrix beside another one, LogDet, n = 12.
    def _from_above(self, at: _Point) -> _Point:
        """Return a better first point if rows demand a far larger ``X`` than a LogDet term prefers.

        It is on the central path of that term: ``C + mu inv(X0)`` is kept while ``mu`` and ``X0`` decrease
        from far above. On the way the multipliers stay in the domain, which depends on neither.
        """
        y = at.y
        ratio = _demanded_growth(self._program, at.X, at.activity)
        if ratio < _FAR_LARGER:
            return at
        settings = replace(self._settings, tol=_START_TOL, tol_X=None, max_iter=_START_STEPS)
        while ratio > START_GROWTH:
            program = _enlarging(self._program, ratio)
            y = _DualNewton(program, settings, Progress("a larger X0")).run(Start((), np.zeros(0), y)).y
            ratio /= START_GROWTH
        return at if y is at.y else self._point(y) or at

    def _at_weights(self, mu: Array) -> _DualNewton:
        """Return the method for other weights of the divergences, to a low accuracy."""
        settings = replace(self._settings, tol=_START_TOL, tol_X=None, max_iter=_START_STEPS)
        return _DualNewton(_weighing(self._program, mu), settings, Progress("larger weights"))

    # Pays on: a correlation matrix with three bounded forms, n = 150.
    def _of_right_trace(self) -> _Point | None:
        """Return a point with the trace that the rows prescribe, None unless they fix the whole diagonal.

        Without the cone its matrix would have the prescribed diagonal. Along the multipliers of the identity
        the spectrum is shifted until its positive part has the prescribed trace.
        """
        (block,), (dual,), bounds = self._program.blocks, self._blocks, self._program.bounds
        row, index, weight = self._program.A.on_diagonal(0)
        if len(row) < block.n or len(np.unique(row)) < len(row) or not bounds.equal[row].all():
            return None
        first = np.unique(index, return_index=True)[1]
        row, weight = row[first], weight[first]
        prescribed = bounds.lo[row] / weight
        if len(row) < block.n or (prescribed < 0).any():
            return None
        assert block.nearness is not None
        slope = 2 * dual.mu / weight
        start = np.asarray(block.nearness.X0).diagonal() - block.C.diagonal() / (2 * dual.mu)
        y = np.zeros(self._program.m)
        y[row] = slope * (prescribed - start)
        spectrum = dual.spectrum(y)
        assert spectrum is not None
        (shift,) = simplex_shifts(spectrum.theta[None], prescribed.sum(keepdims=True)).tolist()
        y[row] -= slope * shift
        if not isinstance(spectrum, PositiveSpectrum):
            return self._point(y)
        return self._point_of(y, (spectrum.shifted(shift),))

    def _nearby(self, at: _Point) -> Near | None:
        """Return a feasible point near the minimizers; None where the rows are far from satisfied."""
        if self._near is None or self._near[0] is not at:
            missed = self._program.bounds.missed(at.activity)
            size = self._program.A.norms() * max(float(X.diagonal().max()) for X in at.X)
            most = np.sqrt(self._settings.tol) * np.maximum(size, self._program.bounds.sizes)
            close = self._restores and bool((missed <= most).all())
            near = near_minimizers(self._program, at.y, at.spectra) if close else None
            self._near = at, near
        return self._near[1]

    def _on_rows(self, at: _Point) -> tuple[Array, ...]:
        """Return the point's matrices, moved onto the rows where these are near."""
        near = self._nearby(at)
        return at.X if near is None else tuple(near.F)

    def nearby(self, program: Program, at: _Point) -> Near | None:
        return self._nearby(at)

    def certificate(self, at: _Point) -> Certificate:
        near = self._nearby(at)
        known = Known(matrix_terms=at.terms, cone_residual=0.0)
        if near is None:
            blocks = zip(self._blocks, at.terms, at.X, strict=True)
            known["divergences"] = tuple(block.divergence_at(at.y, term, X) for block, term, X in blocks)
        activity = known["activity"] = at.activity if near is None else near.restored.activity
        X = self._on_rows(at)
        found = certify(PrimalDualPoint(self._program, X, np.zeros(0), at.y, **known))
        missed = self._progress.missed(X, np.zeros(0), activity)
        return replace(found, primal_residual=max(found.primal_residual, missed))

    def _point(self, y: Array) -> _Point | None:
        """Return the point of given multipliers, None outside the domain of the dual."""
        spectra: list[Spectrum] = []
        for block in self._blocks:
            spectrum = block.spectrum(y)
            if spectrum is None:
                return None
            spectra.append(spectrum)
        return self._point_of(y, tuple(spectra))

    def _point_of(self, y: Array, spectra: tuple[Spectrum, ...]) -> _Point | None:
        of_rows = float(self._program.bounds.conjugate(y).sum())
        if not np.isfinite(of_rows):
            return None
        X, terms = tuple(spectrum.X for spectrum in spectra), tuple(spectrum.term for spectrum in spectra)
        return _Point(y, spectra, X, self._program.A.apply(X), terms, of_rows + sum(terms))

    def advance(self, at: _Point) -> _Point | None:
        """Return a point of larger dual value, None if there is none in floating point."""
        self._steps += 1
        if self._steps == _MANY_STEPS and not self._ill_conditioned and self._has_gram(at):
            self._ill_conditioned = self._begins_path(at)
        if self._barrier is not None:
            return self._near_path(at, self._barrier)
        gradient, slope, side = self._gradient(at)
        blocks = zip(self._blocks, at.spectra, strict=True)
        diagonal = reduce(np.add, (block.curvature(spectrum) for block, spectrum in blocks)) - slope
        lower = np.where(self._free | (side < 0), self._lower, np.maximum(self._lower, 0.0))
        upper = np.where(self._free | (side > 0), self._upper, np.minimum(self._upper, 0.0))
        lower, upper = np.where(side == 0, 0.0, lower), np.where(side == 0, 0.0, upper)
        target = np.clip(at.y + gradient / diagonal, lower, upper)
        at_end = ((target == lower) | (target == upper)) & ~self._free
        known = np.where(at_end, target - at.y, 0.0)
        for right, relaxation in self._equations(at, gradient, slope):
            d = self._direction(at, right, relaxation, diagonal, at_end, known)
            if self._barrier is not None:
                return self._near_path(at, self._barrier)
            new = self._searched(at, gradient, d, lower, upper, _SHORTEST_NEWTON_STEP)
            if new is not None:
                return new
        least = SHORTEST_STEP
        return self._searched(at, gradient, gradient / diagonal, lower, upper, least)

    # Pays on: nearly singular block, n = 30.
    def _begins_path(self, at: _Point) -> bool:
        """Set the first weight of the barrier; false where it has no path."""
        (first, *_) = at.spectra
        weight = (_FIRST_BARRIER * float(np.abs(first.theta).max())) ** 2
        if self._has_barrier and isinstance(first, PositiveSpectrum) and weight > TINY:
            self._barrier = weight
        return self._barrier is not None

    def settled(self, at: _Point) -> bool:
        return self._barrier is None

    def _near_path(self, at: _Point, weight: float) -> _Point | None:
        """Return the point after a step on the dual of the distance less ``2 mu weight log det X``.

        Where the rows nearly leave no interior, eigenvalues of ``X`` near zero change their signs from step
        to step of the other method. The barrier makes the dual smooth: the eigenvalues of the minimizer are
        ``(theta + r) / 2`` with ``r^2 = theta^2 + 4 weight``.
        """
        (block,), bounds, A = self._blocks, self._program.bounds, self._program.A
        least = max((_LEAST_BARRIER * float(np.abs(at.spectra[0].theta).max())) ** 2, TINY)
        norms = np.maximum(A.norms(), TINY)

        def slope(spectrum: Any) -> tuple[Array, Array]:
            theta, V = spectrum.theta, spectrum.V
            r = np.sqrt(theta**2 + 4 * weight)
            x = np.where(theta > 0, (theta + r) / 2, 2 * weight / (r + np.abs(theta)))
            return bounds.lo - A.apply(((V * x) @ V.T,)), r

        (spectrum,) = at.spectra
        gradient, r = slope(spectrum)
        while weight > least and float(np.linalg.norm(gradient / norms)) <= _NEAR_PATH * math.sqrt(weight):
            self._barrier = weight = max(_BARRIER_DECREASE * weight, least)
            gradient, r = slope(spectrum)
        theta = spectrum.theta
        differences = (1 + (theta[:, None] + theta) / (r[:, None] + r)) / (4 * block.mu)
        d = DefiniteFactor(block.gram(GivenDifferences(spectrum.V, differences))).solve(gradient)
        if weight <= least:
            self._barrier = None  # the last step
        alpha, rise = 1.0, float(gradient @ d)
        while alpha > _SHORTEST_NEWTON_STEP:
            new = self._point(at.y + alpha * d)
            if new is not None and float(slope(new.spectra[0])[0] @ d) >= -rise / 2:
                return new
            alpha *= 0.5
        self._barrier = None
        return self.advance(at)

    # Pays on: forms that are far smaller, von Neumann, n = 20.
    def _equations(self, at: _Point, gradient: Array, slope: Array) -> Iterator[tuple[Array, Array]]:
        """Yield right-hand sides and diagonals of Newton's equation, the most promising first.

        For exponentials the activities of definite rows are nearly exponential too. The equation ``log a =
        log b`` instead of ``a = b``, with the relaxed bound ``b``, makes Newton's steps longer where
        activities are far too small, and shorter where they are far too large.
        """
        a, b = at.activity, gradient + at.activity
        exponential = self._exponential & (a * b > 0) & (gradient != 0)
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
        relaxed, slope = relaxed_bounds(bounds.kind, np.where(used, nearest, 0.0), bounds.gamma, y)
        return np.where(used, relaxed - a, 0.0), np.where(used, slope, 0.0), np.where(self._free, 1.0, side)

    def _direction(
        self, at: _Point, gradient: Array, slope: Array, diagonal: Array, at_end: Mask, known: Array
    ) -> Array:
        """Return Newton's step, in which the multipliers in `at_end` move by `known`.

        The Hessian may be singular if multipliers of inequalities are not unique. A multiple of its diagonal,
        proportional to the gradient, limits the step to the magnitude of the multipliers (Levenberg and
        Marquardt). Soft rows, whose penalty has curvature, and rows on the diagonal alone need none.
        """
        d = known.copy()
        free = ~at_end
        right = gradient[free]
        if d.any():
            right = right - self._product(at, d)[free]
        full = np.zeros(len(d))

        size = float(np.linalg.norm(gradient[free] / diagonal[free]))
        unit = max(float(np.linalg.norm(at.y)), float(np.linalg.norm(at.activity / diagonal)), 1e-300)
        ridge = min(1.0, size / unit) * diagonal if self._shifts else 0.0
        shift = (np.where(slope < 0, 0.0, ridge) - slope)[free]

        if self._ill_conditioned:
            H = self._gram(at)[np.ix_(free, free)]
            H[np.diag_indices(len(H))] += shift
            d[free] = DefiniteFactor(H).solve(right)
            return d
        products, flat = 0, False

        def hessian(v: Array) -> Array:
            nonlocal products, flat
            products += 1
            full[free] = v
            product: Array = self._product(at, full)[free] + shift * v
            flat |= bool(v @ product <= FLAT * (v @ (diagonal[free] * v)))
            return product

        forcing = min(0.1, np.sqrt(size / unit))
        d[free] = conjugate_gradients(hessian, right, diagonal[free], forcing, _CG_STEPS)
        # An exponential has curvature along all rows: where it seems to have none, the diagonal is too large.
        misled = flat and all(isinstance(spectrum, ExponentialSpectrum) for spectrum in at.spectra)
        if (misled or products == _CG_STEPS) and self._has_gram(at):
            self._ill_conditioned = True
            if self._begins_path(at):
                return d
            return self._direction(at, gradient, slope, diagonal, at_end, known)
        return d

    # Pays on: nearly singular block and bounds, n = 45.
    def _has_gram(self, at: _Point) -> bool:
        """Whether Newton's equation can be factorized, as it is from the first one on that is not solved.

        Where equalities link all entries of matrices, exact steps are short, and one that is cut off costs a
        tenth.
        """
        orders, rows = self._program.A.orders, len(at.y)
        terms = rows * sum(n * (n + 1) // 2 for n in orders)
        fits = len(orders) == 1 or rows * terms <= _LARGEST_WORK * sum(n**3 for n in orders)
        return fits and terms <= _LARGEST_FORMED and all(map(has_gram, at.spectra))

    def _gram(self, at: _Point) -> Array:
        """Return ``sum H`` as a matrix."""
        blocks = zip(self._blocks, at.spectra, strict=True)
        return reduce(np.add, (block.gram(spectrum) for block, spectrum in blocks))

    def _product(self, at: _Point, v: Array) -> Array:
        """Return ``sum H v``."""
        blocks = zip(self._blocks, at.spectra, strict=True)
        return reduce(np.add, (block.product(spectrum, v) for block, spectrum in blocks))

    def _searched(
        self, at: _Point, gradient: Array, d: Array, lower: Array, upper: Array, least: float
    ) -> _Point | None:
        """Return the first point along the projected step with sufficient increase (Armijo).

        The first trial stays away from the end of the domain, near which the next steps would be short.
        """
        reach = min(
            block.reach(spectrum, d) for block, spectrum in zip(self._blocks, at.spectra, strict=True)
        )
        alpha = min(1.0, _STEP_FRACTION * reach)
        least *= alpha
        round_off = NOISE * (abs(at.dual) + self._unit)
        while alpha > least:
            y = np.clip(at.y + alpha * d, lower, upper)
            rise = float(gradient @ (y - at.y))
            new = self._point(y) if rise > 0 else None
            if new is not None and new.dual >= at.dual + ARMIJO * rise - round_off:
                return new
            alpha *= 0.5
        return None


def _weighing(program: Program, mu: Array) -> Program:
    """Return the program with other weights of its divergences, an array with one for each block."""
    blocks = []
    for block, weight in zip(program.blocks, mu.tolist(), strict=True):
        assert block.nearness is not None
        blocks.append(replace(block, nearness=replace(block.nearness, mu=weight)))
    return replace(program, blocks=tuple(blocks))


def _enlarging(program: Program, ratio: float) -> Program:
    """Return the program with ``mu`` and ``X0`` of its LogDet terms multiplied by `ratio`.

    The dual function of such a term has the same domain.
    """
    blocks = []
    for block in program.blocks:
        nearness = block.nearness
        assert nearness is not None
        if nearness.kind.barrier:
            nearness = replace(nearness, mu=ratio * nearness.mu, X0=ratio * np.asarray(nearness.X0))
        blocks.append(replace(block, nearness=nearness))
    return replace(program, blocks=tuple(blocks))


def _demanded_growth(program: Program, X: Sequence[Array], activity: Array) -> float:
    """Return the largest ratio of the size that a violated row demands of ``X`` to its least eigenvalue.

    Only rows in blocks with a LogDet term count; zero without one. Enlarged by the ratio, ``X`` is large
    enough for all rows, and Newton's method shrinks it in few steps.
    """
    bounds, largest = program.bounds, 0.0
    violated = bounds.violation(activity) > 0
    for term in program.A.terms:
        nearness = program.blocks[term.block].nearness
        if nearness is not None and nearness.kind.barrier:
            least = float(np.linalg.eigvalsh(X[term.block])[0])
            used = violated[term.at] & (term.norms > 0)
            demanded = bounds.sizes[term.at][used] / term.norms[used]
            largest = max(largest, float(demanded.max(initial=0.0)) / max(least, TINY))
    return min(largest, START_GROWTH**START_TRIALS)
