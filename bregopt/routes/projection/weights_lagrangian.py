"""Elementwise weights: ``||H o (X - X0)||_F^2`` with rows, by an interior point or an augmented Lagrangian.

Small problems start with the interior point of the route `path`, for which each weighted entry is a soft row,
all others with the augmented Lagrangian. Each takes over when the other makes no progress. The interior point
solves problems with a large fixed block in a tenth of the time; the augmented Lagrangian keeps more digits.

The loops are not :meth:`~bregopt.routes.progress.Monitor.follow`, because only some steps are certified, a
round counts all its Newton steps, and the methods share the best point and detect their own stalling.

Each round of the augmented Lagrangian is a semismooth Newton method (Qi and Sun 2010).
The unknown ``Y`` need not be psd. With a multiplier ``Z`` of ``Y psd``, multipliers ``y`` of the rows and a
penalty parameter ``sigma`` each round minimizes over the box

    f(Y) + ||P(Z - sigma Y)||^2 / (2 sigma) + the penalties of the rows,

where ``P`` is the psd part. The next ``Z`` is ``P(Z - sigma Y)``, which is psd, so every point has a bound.
Conjugate gradients solve Newton's equation ``(K + sigma P' + B' slope B) D = -gradient`` in the entries
inside the box; steps are clipped to the box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.certify.accuracy import near_answer
from bregopt.certify.restoration import restored
from bregopt.certify.weights import LARGEST_ORDER
from bregopt.clock import CutShort, checkpoint
from bregopt.linalg import conjugate_gradients
from bregopt.program import Answer, Program, Start, StopReason
from bregopt.records import cached_property, dataclass
from bregopt.routes.accuracy import NearnessRule
from bregopt.routes.derivatives.optimum import refined
from bregopt.routes.progress import Monitor, Progress, reason
from bregopt.routes.projection.dual_newton import ARMIJO
from bregopt.routes.projection.weights import Response, ScaledNearness, scaled_nearness, squares_as_rows

if TYPE_CHECKING:
    from bregopt.routes.projection.route import ProjectionTuning

# Limit on the Newton steps where the option `max_iter` gives none, and on those of the last phase.
_STEPS = 2_000
# Limit on the steps of each method before the other one takes over.
_INTERIOR_STEPS, _LAGRANGIAN_STEPS = 100, 80
# Residual of the optimality conditions at which Newton's method for them ends, and at which it has converged,
# where round-off prevents less.
_REFINED_RESIDUAL, _CONVERGED_RESIDUAL = 1e-13, 1e-9
# Tolerances of the interior point, relative to that of the answer. The second one is for distances of nearly
# zero: gaps are relative to them, and those of soft rows to the rows.
_INTERIOR_TOLS = 0.1, 1e-9
# First penalty parameter, for a mean weight of one, and its growth from round to round. With four or more,
# later rounds take many Newton steps (the weights in ``benchmarks/nearness.py``).
_FIRST_PENALTY, _PENALTY_GROWTH = 2.0, 2.5
# Norm of the gradient that ends a round, relative to the distance from the psd cone and the rows.
_ROUND_GRADIENT = 1.0
# Largest relative residual of Newton's equation, and limit on its conjugate gradient steps.
_CG_TOL, _CG_STEPS = 0.03, 200
# Largest length of a short step.
_SHORT_STEP = 0.3
# Largest number of unknowns for which the interior point takes over from the augmented Lagrangian: orders up
# to about 60, where it solves problems that the other does not.
_LARGEST_INTERIOR = 2_000
# Rounds of the augmented Lagrangian without a better certificate after which it has stalled.
_PATIENCE = 8
# Largest penalty parameter.
_LARGEST_PENALTY = 1e9
# Norm of a gradient that counts as zero, relative to the linear term: it is round-off. Below the multiple, a
# gradient that does not halve ends a round.
_ZERO_GRADIENT, _ROUND_OFF_GRADIENTS = 1e-13, 1e3
# Limit on the Newton steps of one round.
_ROUND_STEPS = 50
# Least step length of the augmented Lagrangian.
_SHORTEST_STEP = 1e-6
# Difference of the augmented Lagrangian, relative to its magnitude, that counts as round-off. The slope
# decides then.
_OBJECTIVE_NOISE = 1e-11
# Multiple of the identity added to Newton's equation, relative to the mean weight; a round ends if no step
# succeeds at the largest. Its factors after a full step and after a short one.
_FIRST_DAMPING, _LEAST_DAMPING, _LARGEST_DAMPING = 1e-3, 1e-6, 1.0
_DAMPING_DECREASE, _DAMPING_INCREASE = 0.1, 10.0

_Linear = Callable[[Array], Array]

_NO_VARIABLES = np.zeros(0)
_Phase = Callable[[ScaledNearness, int], StopReason | None]


@dataclass(frozen=True, eq=False)
class _Point:
    """A matrix, the eigenvalues and eigenvectors of ``Z - sigma Y``, the rows' terms and the value."""

    Y: Array
    theta: Array
    V: Array
    rows: Response
    value: float

    @cached_property
    def negative(self) -> int:
        """The number of eigenvalues that are not positive."""
        return int(np.searchsorted(self.theta, 0.0, side="right"))

    @cached_property
    def Z(self) -> Array:
        """The next multiplier, the psd part of ``Z - sigma Y``."""
        half = self.V[:, self.negative :] * np.sqrt(self.theta[self.negative :])
        return half @ half.T

    def psd_part(self, sigma: float) -> Array:
        """Return the psd part of ``Y - Z / sigma``."""
        half = self.V[:, : self.negative] * np.sqrt(-self.theta[: self.negative] / sigma)
        return half @ half.T

    def derivative(self, sigma: float, inverse: bool) -> _Linear:
        """Return ``sigma`` times the derivative of the psd part, or the inverse of that plus the identity.

        In the basis of eigenvectors it multiplies each entry: by one for two positive eigenvalues, by zero
        for two others, by ``a / (a + b)`` for ``a`` and ``-b``. Only the eigenvectors of the smaller group
        are needed.
        """
        k, n = self.negative, len(self.theta)
        positive, negative = slice(k, n), slice(0, k)
        few, many = (positive, negative) if n - k <= k else (negative, positive)
        F, M = np.ascontiguousarray(self.V[:, few]), np.ascontiguousarray(self.V[:, many])
        above, below = np.maximum(self.theta, 0.0), np.maximum(-self.theta, 0.0)
        share = (above[many, None] + above[few]) / np.maximum(
            (above + below)[many, None] + (above + below)[few], TINY
        )
        both = float(n - k <= k)

        def factor(share: Any) -> Any:
            return 1 / (1 + sigma * share) if inverse else sigma * share

        base, corner = factor(1 - both), factor(both)
        cross = factor(share) - base

        def product(D: Array) -> Array:
            half = D @ F
            L = F @ ((corner - base) / 2 * (F.T @ half)) + M @ (cross * (M.T @ half))
            moved = L @ F.T
            total: Array = moved + moved.T
            if base:
                total += base * D
            return total

        return product


class AugmentedLagrangian:
    """The rounds of the method, with the primal and the dual point after each.

    Parameters
    ----------
    scaled : ScaledNearness
    Y : array of shape (n, n)
        The first matrix, in the box.
    Z, y : array of shape (n, n), array of shape (m,)
        The first multipliers, scaled.
    limit : int
        Limit on Newton steps.

    Attributes
    ----------
    Y : array of shape (n, n)
        A psd matrix that satisfies the rows approximately.
    Z, y
        The multipliers.
    steps : int
        Newton steps so far.
    moved : float
        Distance of the last round's ``Y`` from the psd cone and the rows.
    """

    def __init__(self, scaled: ScaledNearness, Y: Array, Z: Array, y: Array, limit: int) -> None:
        self._scaled, self._limit = scaled, limit
        self.Z, self.y = Z, y
        self._sigma, self._damping = _FIRST_PENALTY, _FIRST_DAMPING
        self._Y = self.Y = Y
        self.steps, self.moved = 0, np.inf

    def round(self) -> None:
        """Minimize the augmented Lagrangian, and update the multipliers."""
        at, settled, at_round_off, least = self._point(self._Y), False, False, np.inf
        zero = _ZERO_GRADIENT * float(np.linalg.norm(self._scaled.L))
        for _ in range(_ROUND_STEPS):
            gradient = self._gradient(at)
            free = self._free(at, gradient)
            size = float(np.linalg.norm(free * gradient))
            self.moved = self._distance(at)
            settled = size <= max(_ROUND_GRADIENT * self.moved, zero)
            at_round_off = least <= _ROUND_OFF_GRADIENTS * zero and size > least / 2
            least = min(least, size)
            if settled or at_round_off or self.steps >= self._limit:
                break
            new, alpha = self._searched(at, gradient, self._direction(at, free, gradient))
            self.steps += 1
            if alpha == 0 and self._damping >= _LARGEST_DAMPING:
                break
            # Adapt the damping to the length of a step.
            factor = 1.0
            if alpha == 1:
                factor = _DAMPING_DECREASE
            elif alpha < _SHORT_STEP:
                factor = _DAMPING_INCREASE
            self._damping = min(max(self._damping * factor, _LEAST_DAMPING), _LARGEST_DAMPING)
            at = new
        self.Y = at.psd_part(self._sigma)
        self.Z, self.y, self._Y = at.Z, at.rows.y, at.Y
        if settled or at_round_off:
            self._sigma = min(self._sigma * _PENALTY_GROWTH, _LARGEST_PENALTY)

    def _point(self, Y: Array) -> _Point:
        scaled, sigma = self._scaled, self._sigma
        checkpoint(len(Y))
        theta, V = np.linalg.eigh(self.Z - sigma * Y)
        rows = scaled.rows.response(scaled.rows.apply(Y), self.y, sigma)
        positive = np.maximum(theta, 0.0)
        value = scaled.value(Y) + float(positive @ positive) / (2 * sigma) + rows.cost
        return _Point(Y, theta, V, rows, value)

    def _gradient(self, at: _Point) -> Array:
        scaled = self._scaled
        return scaled.gradient(at.Y) - at.Z - scaled.rows.adjoint(at.rows.y)

    def _free(self, at: _Point, gradient: Array) -> Array:
        """Return zero for each entry that the gradient keeps at a bound of the box, one for the others."""
        scaled = self._scaled
        active = ((at.Y <= scaled.lower) & (gradient >= 0)) | ((at.Y >= scaled.upper) & (gradient <= 0))
        return (~(active | scaled.fixed)).astype(float)

    def _distance(self, at: _Point) -> float:
        cone, rows = np.linalg.norm(at.Z - self.Z), np.linalg.norm(at.rows.y - self.y)
        return float(np.hypot(cone, rows)) / self._sigma

    def _searched(self, at: _Point, gradient: Array, D: Array) -> tuple[_Point, float]:
        """Return the first point along a clipped step with sufficient decrease, and its step length."""
        alpha, scaled = 1.0, self._scaled
        round_off = _OBJECTIVE_NOISE * (abs(at.value) + float(np.linalg.norm(scaled.L)))
        while alpha >= _SHORTEST_STEP:
            Y = scaled.clipped(at.Y + alpha * D)
            fall = float(np.vdot(gradient, Y - at.Y))
            if fall >= 0:
                break
            new = self._point(Y)
            if new.value <= at.value + ARMIJO * fall:
                return new, alpha
            near, slope = new.value <= at.value + round_off, 2 * ARMIJO - 1
            if near and float(np.vdot(self._gradient(new), Y - at.Y)) <= slope * fall:
                return new, alpha  # at round-off the slope decides (Hager and Zhang 2005)
            alpha *= 0.5
        return at, 0.0

    def _direction(self, at: _Point, free: Array, gradient: Array) -> Array:
        """Return Newton's step in the free entries by preconditioned conjugate gradients."""
        product, precondition = self._equation(at, free)
        R = -free * gradient
        tol = min(_CG_TOL, np.sqrt(float(np.linalg.norm(R))))
        return conjugate_gradients(product, R, precondition, tol, _CG_STEPS)[0]

    def _equation(self, at: _Point, free: Array) -> tuple[_Linear, _Linear]:
        """Return the product with the generalized Hessian in the free entries, and a preconditioner.

        The preconditioner is the inverse of the Hessian for equal weights in all entries.
        """
        rows, sigma = self._scaled.rows, self._sigma
        own = self._scaled.K + self._damping
        psd, mean = at.derivative(sigma, inverse=False), at.derivative(sigma, inverse=True)

        def product(D: Array) -> Array:
            return free * (own * D + psd(D) + rows.adjoint(at.rows.slope * rows.apply(D)))

        def precondition(R: Array) -> Array:
            return free * mean(R)

        return product, precondition


# Pays on: weights 0, 1 and 100, n = 25.
def weighted_frobenius(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a squared Frobenius problem with elementwise weights in one block."""
    return _Weighted(program, settings, progress).run(start)


@dataclass(frozen=True, eq=False)
class _Certified:
    """A point and its certificate."""

    X: Array
    y: Array
    S: Array
    certificate: Certificate

    @property
    def error(self) -> float:
        """The larger of gap and primal residual."""
        return max(self.certificate.gap, self.certificate.primal_residual)


class _Weighted:
    """The best point so far, and the methods in turn."""

    def __init__(self, program: Program, settings: Any, progress: Progress) -> None:
        self._program, self._settings, self._progress = program, settings, progress
        self._tuning: ProjectionTuning = settings.tuning
        self._monitor = Monitor(program, settings, progress)
        self._rule = NearnessRule(program, settings.tol, settings.asked_of_X)
        self._limit = settings.max_iter or _STEPS
        self._steps = 0
        self._best: _Certified | None = None
        self._refines = False  # whether more digits of the entries are asked for, and not yet found
        self._tried = False  # whether Newton's method for the optimality conditions was tried
        self._sizes = np.maximum(program.A.norms(), program.bounds.sizes)

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the best point."""
        try:
            stop = self._solved(start)
        except CutShort as cut:
            stop = reason(cut)
        best = self._best
        if best is None:
            return self._without(stop)
        y = self._monitor.farkas if stop is StopReason.INFEASIBLE else best.y
        return Answer((best.X,), _NO_VARIABLES, y, stop, self._steps, S=(best.S,))

    def _solved(self, start: Start | None) -> StopReason:
        """Return the reason why the last method stopped; each starts at the best point so far."""
        if start is not None and start.X and start.S is not None:
            (X,), (S,) = start.X, start.S
            stop = None if S is None else self._judge(np.asarray(X), self._program.bounds.clip(start.y), S)
            if stop is not None:
                return stop
        scaled = scaled_nearness(self._program)
        for run, steps in self._plan(scaled.unknowns or np.inf):
            met = self._is_met
            stop = run(scaled, min(self._steps + steps, self._limit))
            if stop is StopReason.CONVERGED and self._refines and not met and run == self._interior:
                continue  # with its multipliers, the augmented Lagrangian tells the entries more closely
            if stop is not None or met:
                return stop or StopReason.CONVERGED
        return StopReason.STALLED

    @property
    def _is_met(self) -> bool:
        return self._best is not None and self._best.certificate.meets(self._settings.tol)

    def _plan(self, unknowns: float) -> Iterator[tuple[_Phase, int]]:
        """Yield the methods in order, with their limits on steps, for the interior point's unknowns."""
        if unknowns <= self._tuning.first_interior_unknowns:
            yield self._interior, _INTERIOR_STEPS
        yield self._lagrangian, self._steps if self._is_met else _LAGRANGIAN_STEPS
        if unknowns <= _LARGEST_INTERIOR:
            yield self._interior, _INTERIOR_STEPS
        yield self._lagrangian, _STEPS

    def _interior(self, scaled: ScaledNearness, limit: int) -> StopReason | None:
        """Return the reason to stop, None if the answer of the interior point does not meet the tolerance."""
        from bregopt.routes.ipm.path_route import PathSettings, solve_on_path  # large problems do not wait

        posed, m = squares_as_rows(scaled), self._program.m
        for share in _INTERIOR_TOLS:
            settings = PathSettings(tol=share * self._settings.tol, max_iter=max(limit - self._steps, 1))
            answer = solve_on_path(posed, settings, None, Progress("weights as soft rows"))
            self._steps += answer.iterations
            if answer.stop is StopReason.INFEASIBLE:
                self._monitor.farkas = answer.y[:m]
                return answer.stop
            S = posed.blocks[0].C - posed.A.adjoint(answer.y)
            # The distance has a slope at fixed entries, too, which the multipliers of their rows contain.
            y, S = scaled.dual_point(*scaled.scaled_dual(answer.y[:m], S))
            stop = self._judge(answer.X[0], y, S)
            if stop is not None or self._is_met:
                return stop
        return None

    def _lagrangian(self, scaled: ScaledNearness, limit: int) -> StopReason | None:
        """Return the reason to stop, None if the augmented Lagrangian makes no more progress."""
        Z, y = self._multipliers(scaled)
        before, stalled, mark = self._steps, 0, np.inf
        Y = scaled.target if self._best is None else scaled.clipped(self._best.X / scaled.scale)
        method = AugmentedLagrangian(scaled, Y, Z, y, limit - before)
        while stalled < _PATIENCE and self._steps < limit:
            method.round()
            self._steps = before + method.steps
            stop = self._judge(method.Y * scaled.scale, *scaled.dual_point(method.Z, method.y))
            if stop is not None:
                return stop
            assert self._best is not None
            progressed = self._best.error <= self._tuning.progress_ratio * mark
            stalled, mark = (0, self._best.error) if progressed else (stalled + 1, mark)
        return None

    def _multipliers(self, scaled: ScaledNearness) -> tuple[Array, Array]:
        """Return the first multipliers: those of the best point so far, or zero."""
        if self._best is not None:
            return scaled.scaled_dual(self._best.y, self._best.S)
        return np.zeros((scaled.n,) * 2), np.zeros(len(scaled.rows.at))

    def _judge(self, X: Array, y: Array, S: Array) -> StopReason | None:
        """Certify a point, keep it if it is the best, and return the reason to stop, if any.

        A sum of squares is at least zero, which is the bound of no multipliers. Where the distance is nearly
        zero, the round-off of others gives a lower one.
        """
        point = self._certified(X, y, S)
        if point.certificate.dual < self._program.stated_constant and self._program.blocks[0].cost is None:
            point = min(point, self._certified(X, 0 * y, 0 * S), key=lambda own: own.error)
        if self._best is None or point.error < self._best.error:
            self._best = point
        stop = self._monitor.look(self._steps, point.certificate, point.y, lambda: self._ends(point))
        if stop is StopReason.STALLED:
            stop = None  # the methods themselves detect this
        return stop or (StopReason.MAX_ITER if self._steps >= self._limit else None)

    def _ends(self, at: _Certified) -> bool:
        """Whether the methods end at a point that meets the tolerance.

        The last steps for a small one are those of Newton's method for the optimality conditions, which
        doubles the digits with each. It is tried at the first such point and at the last.
        """
        ends = self._is_accurate(at)
        self._refines = not self._rule.is_reached
        if self._refines and len(at.X) <= LARGEST_ORDER and (ends or not self._tried):
            self._refines, self._tried = not self._is_refined(at), True
        return ends or not self._refines

    def _is_accurate(self, at: _Certified) -> bool:
        """Whether the entries of a point are certified to the accuracy that is asked, as far as that goes.

        Once gaps are round-off, the rule tells which of two points is nearer to the optimum.
        """
        near = near_answer(self._program, (at.X,), _NO_VARIABLES, at.y, (at.S,))
        if near is None:
            return True
        stops = self._rule.stops(near, at.certificate.primal, at.certificate.dual)
        if self._rule.is_nearest:
            self._best = at
        return stops

    def _is_refined(self, at: _Certified) -> bool:
        """Whether Newton's method for the optimality conditions converges from a point."""
        X, S, enough = (at.X,), (at.S,), _REFINED_RESIDUAL
        try:
            new = refined(self._program, X, _NO_VARIABLES, at.y, S, enough, least=True)
        except ValueError:  # the multipliers are not unique
            return False
        (point,) = new.points
        assert point.Z is not None
        refined_at = self._certified(point.X, self._program.bounds.clip(new.y), point.Z)
        self._steps += 1
        self._progress.record(self._steps, refined_at.certificate)
        if refined_at.certificate.meets(self._settings.tol):
            self._is_accurate(refined_at)
        return new.residual <= _CONVERGED_RESIDUAL

    def _certified(self, X: Array, y: Array, S: Array) -> _Certified:
        missed = self._program.bounds.missed(self._program.A.apply((X,)))
        if (missed <= np.sqrt(self._settings.tol) * self._sizes).all():
            near = restored(self._program, (X,), _NO_VARIABLES, y)
            X = X if near is None else near.X[0]
        certificate = certify(PrimalDualPoint(self._program, (X,), _NO_VARIABLES, y, S=(S,)))
        return _Certified(X, y, S, certificate)

    def _without(self, stop: StopReason) -> Answer:
        """Return the diagonal of ``X0``, and the proof that nothing is feasible, if there is one."""
        (block,) = self._program.blocks
        assert block.nearness is not None
        X = np.diag(np.maximum(np.asarray(block.nearness.X0).diagonal(), 0.0))
        return Answer((X,), _NO_VARIABLES, self._monitor.farkas, stop, self._steps)
