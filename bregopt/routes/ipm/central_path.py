"""Mehrotra's predictor and corrector on the central path of a semidefinite program, with log-determinants.

At each step the same factorized system gives a predictor, towards ``mu = 0``, and a corrector, towards
``sigma mu``. The step length of the predictor determines ``sigma``; the corrector includes its second-order
terms (HKM direction; Helmberg, Rendl, Vanderbei, Wolkowicz 1996; Todd, Toh, Tütüncü 1998). Each point of the
path solves a LogDet nearness problem at ``mu`` (Kulis et al. 2009, §6.4). A matrix with a LogDet term of its
own keeps ``X Z = w I`` at the weight ``w`` of that term, while ``mu`` vanishes for the others.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import EPS, TINY, Array
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify, trace_bounds
from bregopt.certify.certificate import NEGLIGIBLE_OBJECTIVE, ROUND_OFF_OF_TERMS
from bregopt.certify.point import (
    DIVERGENT,
    LARGEST_U,
    LARGEST_X,
    ROW_NOISE,
    box_minimum,
    divergence_factor,
    relative_to_costs,
)
from bregopt.certify.proofs import MENDED
from bregopt.clock import CutShort
from bregopt.errors import InfeasibleRowError
from bregopt.linalg import DefiniteFactor, symmetrize, without_noise
from bregopt.presolve import UNIVERSAL, Presolved, presolve
from bregopt.presolve.faces import integer_faces
from bregopt.program import Answer, Block, LowRank, Penalty, Program, Start, StopReason, pays, scale_of
from bregopt.program.program import divergence_of
from bregopt.program.scale import DimacsSizes, dimacs_sizes
from bregopt.records import replace
from bregopt.rigorous import recedes
from bregopt.routes.alternatives import with_attainment
from bregopt.routes.ipm.engine import Engine, Iterate
from bregopt.routes.ipm.scaled_systems import scaled_work
from bregopt.routes.ipm.start import INNER_ERROR, STEPS, first_iterate, strict_iterate, warm_iterate
from bregopt.routes.progress import Followed, Method, Monitor, Progress, reason

if TYPE_CHECKING:
    from bregopt.presolve.integer_faces import OnIntegerFace

logger = logging.getLogger(__name__)

# Scale of the bounds, relative to a primal iterate, below which that iterate diverges and is tested for a
# ray.
_PRIMAL_DIVERGENCE = 1e-3
# Growth of an iterate after which a ray is sought again: 8 of 20 steps of hinf9 sought one.
_FAR_LARGER = 4.0
# Size of the costs, relative to the multipliers times the row sizes, below which the multipliers diverge and
# are tested for a Farkas vector. At a smaller ratio the method may stall before it finds the proof.
_DUAL_DIVERGENCE = 0.1
# Trace of a block of a ray, relative to the largest, below which the block is set to zero.
_LEAST_TRACE = 1e-9
# Multiplier times row size of a Farkas vector, relative to the largest, below which the multiplier is set to
# zero.
_LEAST_MULTIPLIER = 1e-12

# First steps after one of which the path may begin again, the fraction of both residuals that such a step
# leaves, that of the rows' first residual which is left, and the factor on the first Z. A Z that is far too
# small grows by short steps.
_FIRST_STEPS, _LEFT, _FAR, _LARGER_START = 5, 0.9, 1e-3, 1e3

# Coordinates times the square of the number of rows up to which the path is tried at once, and up to which
# reductions may make a program so little: rows that define the entries of a matrix are many.
_LITTLE, _REDUCIBLE = 2e6, 1e10
# Steps without progress after which that path ends, and the number of its points that a certificate judges.
_PATIENCE, _TRIALS = 6, 5

_NO_SIZES = DimacsSizes(math.inf, math.inf)  # of a program without DIMACS errors
_NEGLIGIBLE = 1e-9  # a relative violation whose exact size does not matter
# Step after which a face of integers is sought if the rows are not met yet: they may leave no interior.
_FACE_STEP = 3


def follow_path(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a semidefinite program, each matrix on its face.

    Parameters
    ----------
    program : Program
        Without divergences but LogDet's.
    settings : Settings
        Its tuning is an :class:`~bregopt.routes.ipm.path_route.InteriorPointTuning`.
    start : Start, optional
    progress : Progress
    """
    C, weights = zip(*map(_with_barrier, program.blocks), strict=True)
    engine = Engine(program, C, program.faces, direct=True, weights=weights)
    at = None if start is None else warm_iterate(engine, program, start)
    if at is None:
        at = first_iterate(engine, program)
    method = _CentralPath(engine, at, program, settings, progress)
    found = method.followed(at)
    if method.face is not None:
        return _on_face(method.face, settings, progress, found.step)
    return found.proof or method.answer(found)


def _on_face(face: OnIntegerFace, settings: Any, progress: Progress, steps: int) -> Answer:
    """Return the answer of the path on a face that was found after some steps."""
    presolved = Presolved(face.whole, (face,))
    left = settings.max_iter and max(settings.max_iter - steps, 1)
    inside = replace(settings, tol=presolved.margin * settings.tol, max_iter=left)
    answer = follow_path(face.program, inside, None, progress.within(presolved).after(steps))
    return replace(presolved.restore(answer), iterations=steps + answer.iterations)


class _CentralPath(Method):
    tests_multipliers = False
    face: OnIntegerFace | None = None  # on which the path goes on

    def __init__(
        self, engine: Engine, first: Iterate, program: Program, settings: Any, progress: Progress
    ) -> None:
        self._engine, self._plan, self._program, self._first = engine, engine.plan, program, first
        self._settings, self._progress = settings, progress
        self.patience = settings.tuning.stall_steps
        self._has_no_objective = not pays(program)
        self._vanishing = [g for g, group in enumerate(self._plan.groups) if not group.weight]
        self._products = max(engine.products(self._vanishing), 1)
        self._inner: Answer | None = None
        self._advances, self._restarted, self._tested = 0, False, 0.0
        self.scores = _Scores(program, engine) if _is_linear(program) else None

    def followed(self, at: Iterate) -> Followed:
        """Return the result of the loop."""
        settings = self._settings
        monitor = Monitor(self._program, settings, self._progress, settings.tuning.path_share)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of iterates that diverge
            return monitor.follow(self, at, settings.max_iter or STEPS)

    def certificate(self, at: Iterate) -> Certificate:
        """Return the numbers of the iterate at hand, or its certificate where they do not suffice."""
        y, traces = 0 * at.y if self._has_no_objective else at.y, self._plan.traces(at.X)
        if not self._has_no_objective and self._may_lose_sign(at, traces):
            known = Known(activity=at.activity, traces=traces, cone_residual=0.0)
            return certify(PrimalDualPoint(self._program, self._plan.matrices(at.X), at.u, y, **known))
        feasible = at.residual is None or self._has_no_objective or self._dual_feasible(at.Z + at.residual)
        least = 0.0 if feasible else -at.dual_residual
        found = None if self.scores is None else self.scores.of(at, y, least)
        if found is None:
            found = self._whole_certificate(at, y, least)
        if self._inner is None and found.meets(INNER_ERROR):
            self._inner = Answer(self._plan.matrices(at.X), at.u, y, StopReason.CONVERGED, 0)
        return found

    def _whole_certificate(self, at: Iterate, y: Array, least: float) -> Certificate:
        """Return the certificate; `least` is a bound on the eigenvalues of ``C - A*(y)``."""
        plan, X = self._plan, self._plan.matrices(at.X)
        smallest = tuple(0.0 if block.nearness else least for block in self._program.blocks)
        known = Known(activity=at.activity, cone_residual=0.0, smallest_eigenvalues=smallest)
        if len(plan.groups) < len(X):  # one pass over the groups instead of one over the blocks
            known |= Known(magnitudes=plan.magnitudes(at.X), traces=plan.traces(at.X))
        return certify(PrimalDualPoint(self._program, X, at.u, y, **known))

    def advance(self, at: Iterate) -> Iterate | None:
        if self.face is not None:
            return None
        new, self._advances = self._engine.advance(at), self._advances + 1
        first = self._advances <= _FIRST_STEPS and at.dual_residual > 0
        if first and new is not None and self._begins_again(at, new):
            self._advances, self._restarted = _FIRST_STEPS, True
            new = first_iterate(self._engine, self._program, _LARGER_START)
        return new

    # Pays on: control5.
    def _begins_again(self, at: Iterate, new: Iterate) -> bool:
        """Whether a first step hardly moves, although its multipliers do not contradict the rows."""
        if self.scores is None or not _hardly_moves(self._program, self._first, at, new):
            return False
        return self.scores.exclude_contradiction(new.y)

    def fall_back(self) -> bool:
        other = None if self.face is not None else self._engine.with_more_digits()
        self._engine = other or self._engine
        return other is not None

    def columns(self, at: Iterate) -> dict[str, float]:
        mu = self._engine.complementarity(at, self._vanishing) / self._products
        return {"mu": mu, "order": self._plan.order}

    def settled(self, at: Iterate) -> bool:
        found = Followed(at, StopReason.CONVERGED, 0)
        return self._progress.settles(lambda: self.answer(found), self._settings.tol)

    # Pays on: hinf7.
    def _may_lose_sign(self, at: Iterate, traces: Array) -> bool:
        """Whether round-off in eigenvalues of ``C - A*(y)`` may cost more than the tolerance.

        Those of a face are no eigenvalues of the program's own matrices.
        """
        if self._engine.plan.faces:
            return False
        noise = EPS * float(np.abs(at.y) @ self._program.row_sizes)
        cost = LARGEST_X * noise * float(np.maximum.reduce(traces))
        value = float(self._engine.cost @ at.X) + float(self._program.c @ at.u)
        return cost > self._settings.tol * abs(value)

    def answer(self, found: Followed) -> Answer:
        """Return the answer at the best point of the path."""
        at = found.at
        y = 0 * at.y if self._has_no_objective else at.y
        return Answer(self._plan.matrices(at.X), at.u, y, found.stop, found.step, inner=self._inner)

    def diverges(self, at: Iterate) -> bool:
        prices = _prices_diverge(self._engine, at, self._program)
        return self._restarted or prices or self._primal_diverges(at)

    def proof(self, at: Iterate, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return a Farkas vector or a ray if the iterates diverge along one; look for a face of integers."""
        if step == _FACE_STEP and certificate.primal_residual > _NEGLIGIBLE:
            self.face = integer_faces(self._program)
        found = None
        if certificate.primal_residual > self._settings.tol:
            found = self.contradiction(at, before, step)
        return self.ray(at, certificate, step) if found is None else found

    def contradiction(self, at: Iterate, before: Array, step: int) -> Answer | None:
        """Return a Farkas vector along which the multipliers diverge; None if there is none."""
        program = self._program
        if not _prices_diverge(self._engine, at, program):
            return None
        # A Farkas vector does not depend on the costs, which cancel in the difference of two iterates.
        for direction in (at.y, at.y - before):
            y = without_noise(direction, direction * program.row_sizes, _LEAST_MULTIPLIER)
            if self.scores is not None and self.scores.exclude_contradiction(y):
                continue
            if self._progress.contradicts(program, y):
                return Answer.without_point(program, y, StopReason.INFEASIBLE, step)
        return None

    def ray(self, at: Iterate, certificate: Certificate, step: int) -> Answer | None:
        """Return a ray along which the matrices diverge; None if there is none."""
        decreases = certificate.primal < self._program.offset
        no_bound = certificate.dual_residual > self._settings.tol or certificate.dual == -np.inf
        # A ray is sought again once the iterate is far larger.
        if (
            no_bound
            and decreases
            and self._primal_diverges(at)
            and self._largest(at) > _FAR_LARGER * self._tested
        ):
            self._tested = self._largest(at)
            X, u = self._ray(at)
            if all(np.isfinite(part).all() for part in (*X, u)) and recedes(self._program, X, u):
                return Answer(X, u, np.zeros(self._program.m), StopReason.UNBOUNDED, step)
        return None

    def _primal_diverges(self, at: Iterate) -> bool:
        """Whether ``X`` or ``u`` is far larger than the bounds of the rows."""
        return self._program.bound_scale < _PRIMAL_DIVERGENCE * self._largest(at)

    def _largest(self, at: Iterate) -> float:
        """Return the size of ``X`` and ``u``."""
        variables = np.abs(at.u) * self._program.column_sizes
        return max(float(variables.max(initial=0.0)), float(self._plan.traces(at.X).max()))

    def _ray(self, at: Iterate) -> tuple[tuple[Array, ...], Array]:
        """Return the direction of the iterate, corrected where it violates the rows of a ray.

        The correction is the least in the metric of the iterate. Matrices stay psd while it is small.
        """
        B, bounds, plan = self._program.B, self._program.bounds, self._plan
        traces = plan.traces(at.X)
        largest = max(float(np.abs(at.u).max(initial=0.0)), float(traces.max()))
        least, X = _LEAST_TRACE * largest, at.X.copy()
        for group in plan.groups:
            own = group.of(X)
            own *= group.each(traces[list(group.blocks)] > least)
        u = np.where(np.abs(at.u) > least, at.u, 0.0)
        activity = self._engine.activity(X, u)
        violation = np.where(np.isfinite(bounds.hi), np.maximum(activity, 0.0), 0.0)
        violation += np.where(np.isfinite(bounds.lo), np.minimum(activity, 0.0), 0.0)
        H = plan.gram(X, np.arange(plan.m))
        if len(u):
            H += (B @ sp.diags_array(u**2) @ B.T).toarray()
        w = DefiniteFactor(H).solve(violation)
        adjoint = plan.adjoint(w)
        for group in plan.groups:
            own = group.of(X)
            own -= symmetrize(own @ group.product(group.of(adjoint), own))
        return plan.matrices(X), u - u**2 * (self._program.Bt @ w)

    def _dual_feasible(self, slack: Array) -> bool:
        """Whether ``C - A*(y)`` is positive definite, where ``Z`` differs from it."""
        return self._plan.roots(self._plan.views(slack)) is not None


# Pays on: 100 matrices of order 5.
class _Scores:
    """The numbers of a certificate for a linear objective, hard rows and hinges, from an iterate's at hand.

    They follow the rules of :mod:`bregopt.certify`, with all that does not change computed once.
    """

    def __init__(self, program: Program, engine: Engine) -> None:
        self._program, self._engine, self._plan = program, engine, engine.plan
        bounds, scale, self._traces = program.bounds, scale_of(program), trace_bounds(program)
        self._sizes, self._scale = dimacs_sizes(program) or _NO_SIZES, scale
        self._hinges = (~bounds.hard).nonzero()[0]
        self._prices = bounds.gamma[self._hinges]
        self._unbounded = [b for b, bound in enumerate(self._traces) if bound is None]
        self._lo, self._hi = bounds.finite_ends
        unit = program.row_units * scale.primal
        self._noise, self._round_off = ROW_NOISE * unit, 4 * EPS * unit
        self._reach, self._stated = np.maximum(bounds.sizes, self._noise), np.maximum(bounds.sizes, unit)
        self._unit = np.maximum(np.minimum(self._reach, self._stated), TINY)
        # Bounds on traces and faces supply what the rows alone do not, and no proof needs hinges.
        self._supplied = bool(engine.plan.faces) or any(self._traces) or program.capped or not bounds.all_hard
        self._constant = program.stated_constant

    def of(self, at: Iterate, y: Array, least: float) -> Certificate | None:
        """Return them, None where they are not known up to factors that matter.

        `least` is a lower bound on the eigenvalues of ``C - A*(y)``.
        """
        program, sizes = self._program, self._sizes
        traces = self._plan.traces(at.X) if least < 0 or self._unbounded else np.zeros(0)
        primal = float(self._engine.cost @ at.X) + program.offset
        dual = float(np.maximum(y, 0.0) @ self._lo + np.minimum(y, 0.0) @ self._hi) + program.offset
        cost = miss = 0.0
        if least < 0:
            for bound, trace in zip(self._traces, traces, strict=True):
                if bound is not None:
                    dual += bound.least(least)
                else:
                    cost -= LARGEST_X * least * float(trace)
            if self._unbounded:
                miss = max(relative_to_costs(program, -least, y), -least / sizes.costs)
        missed = program.bounds.violation(at.activity)
        if len(self._hinges):
            if np.logical_or.reduce(np.abs(y[self._hinges]) > self._prices):
                return None
            primal += float(self._prices @ missed[self._hinges])
            missed[self._hinges] = 0.0
        largest = max(traces[self._unbounded].tolist(), default=0.0)
        if len(at.u):
            if np.logical_or.reduce((at.u < program.u_lo) | (at.u > program.u_hi)):
                return None
            primal += float(program.c @ at.u)
            of_box, beyond, left, far = box_minimum(program, at.u, y)
            dual, cost = dual + of_box, cost + LARGEST_U * left
            miss = max(miss, beyond, far / sizes.costs)
            largest = max(largest, float(np.maximum.reduce(np.abs(at.u) * program.column_sizes)))
        residual = float(np.maximum.reduce(missed / self._unit, initial=0.0))  # the exact one, or larger
        if residual > _NEGLIGIBLE:
            residual = self._residual(missed, at)
        loss, factor = float(np.abs(y) @ missed), largest / (DIVERGENT * self._scale.primal)
        if factor > 1:
            residual *= factor
            terms = self._plan.magnitudes(at.X) + program.absolute_B @ np.abs(at.u)
            loss += EPS * float(np.abs(y) @ terms)
        residual = max(residual, math.sqrt(float(missed @ missed)) / sizes.bounds)
        dual -= cost
        constant = self._constant
        size = max(self._scale.resolution, abs(primal - constant), abs(dual - constant))
        if not NEGLIGIBLE_OBJECTIVE * self._scale.objective <= size < math.inf:
            return None
        distance, gap = abs(primal - dual), 0.0
        if distance + loss:
            gap = (distance + loss) / size if size else math.inf
            gap = max(gap, distance / (1 + abs(primal) + abs(dual)))
        if primal < dual <= primal + ROUND_OFF_OF_TERMS * self._scale.objective:
            dual = primal
        elif primal < dual:
            primal += loss
        return Certificate(primal, dual, gap, residual, miss, distance + loss, size=size)

    def exclude_contradiction(self, y: Array) -> bool:
        """Whether `y` is clearly no Farkas vector, by the demand of the rows or the diagonal of ``A*(y)``."""
        program = self._program
        if self._supplied:
            return False
        y = program.bounds.clip(y)
        # A box with zero inside adds nothing to what the rows demand.
        zero_inside = not np.logical_or.reduce((program.u_lo > 0) | (program.u_hi < 0))
        if zero_inside and not np.maximum(y, 0.0) @ self._lo + np.minimum(y, 0.0) @ self._hi > 0:
            return True
        largest = float(self._plan.diagonals(self._plan.adjoint(y)).max(initial=0.0))
        return largest > MENDED * float(np.abs(y) @ program.A.norms())

    def _residual(self, missed: Array, at: Iterate) -> float:
        """Return the largest relative violation of a row, zero for those of small rows by round-off."""
        reach = np.maximum(self._reach, self._plan.magnitudes(at.X))
        if len(at.u):
            reach = np.maximum(reach, self._program.absolute_B @ np.abs(at.u))
        relative = missed / np.maximum(np.minimum(reach, self._stated), TINY)
        relative[(reach <= self._noise) & (missed <= self._round_off)] = 0.0
        return float(np.maximum.reduce(relative, initial=0.0))


# --- Small programs -------------------------------------------------------------------------------------


# Pays on: 50 right-hand sides of a program of order 8.
def follow_path_directly(
    names: Sequence[str], program: Program, settings: Any, start: Start | None, progress: Progress
) -> tuple[Answer, Certificate] | None:
    """Return the answer to a small program, and its certificate; None where it is not proven.

    A path that begins inside both cones and meets all rows needs no reductions: both optima are attained.
    Other paths are those of the program after the reductions of the given names, of whole matrices. What a
    route has for programs that are hard to prove takes longer than such a path.
    """
    if not program.m or not _is_little(program, _REDUCIBLE):
        return None
    try:
        if not program.k and np.logical_and.reduce(program.bounds.equal) and scaled_work(program) <= _LITTLE:
            engine = Engine(program, [block.C for block in program.blocks], direct=True)
            at = strict_iterate(engine, program, start) if engine.is_scaled else None
            if at is not None:
                return _followed_directly(engine, at, True, Presolved(program, ()), settings, progress)
        presolved = presolve(program, (*UNIVERSAL, *names), settings)
        reduced = presolved.program
        # A path may end by the number of its steps before a proof.
        if settings.max_iter is not None or presolved.farkas is not None or not _is_little(reduced, _LITTLE):
            return None
        if presolved.steps:
            if any(face.codimension for face in reduced.faces):
                return None
            start, progress = None if start is None else presolved.shrink(start), progress.within(presolved)
        engine = Engine(reduced, [block.C for block in reduced.blocks], direct=True)
        at = None if start is None else warm_iterate(engine, reduced, start)
        at = first_iterate(engine, reduced) if at is None else at
    except (CutShort, InfeasibleRowError):  # a reduction names the row without a solution
        return None
    found = _followed_directly(engine, at, False, presolved, settings, progress)
    for summary in presolved.summaries if found is not None and logger.isEnabledFor(logging.INFO) else ():
        logger.info("path: after %s", summary)
    return found


def _is_little(program: Program, most: float) -> bool:
    """Whether a program is linear in matrices and variables outside cones, and takes at most that work.

    Variables in cones may be distances, which another route takes.
    """
    linear = not program.terms and not program.cones.count and _is_linear(program)
    return bool(program.blocks) and linear and scaled_work(program) <= most and pays(program)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def _followed_directly(
    engine: Engine, at: Iterate, inside: bool, presolved: Presolved, settings: Any, progress: Progress
) -> tuple[Answer, Certificate] | None:
    """Return the end of a path, and its certificate; None where it stalls or diverges without a proof.

    Both optima are attained where the path begins `inside` both cones and meets the rows.
    """
    program, whole = presolved.program, presolved.whole
    plan, scale, tuning, tol = engine.plan, scale_of(program), settings.tuning, settings.tol
    enough = tuning.path_share * presolved.margin * tol
    method = None if inside else _CentralPath(engine, at, program, settings, progress)
    scores = _Scores(program, engine) if method is None else method.scores
    assert scores is not None  # the objective is linear
    inner, stop, before = None, StopReason.MAX_ITER, at.y
    step, trials, progressed, error, miss = 0, 0, 0, math.inf, math.inf
    left = math.inf  # of the rows' residual
    while True:
        seen = scores.of(at, at.y, -at.dual_residual)
        if seen is None:
            seen = certify(PrimalDualPoint(program, plan.matrices(at.X), at.u, at.y))
        progress.record(step, seen, mu=float(at.X @ at.Z) / plan.order, order=plan.order)
        if inner is None and seen.gap <= INNER_ERROR:
            inner = Answer(plan.matrices(at.X), at.u, at.y, StopReason.CONVERGED, 0)
        if seen.gap <= enough and seen.meets(enough):
            answer, certificate = _certified(engine, at, presolved, StopReason.CONVERGED, step, inner)
            if certificate.meets(tol):
                if inside or divergence_factor(PrimalDualPoint(whole, answer.X, answer.u, answer.y)) <= 1:
                    return answer, certificate
                return with_attainment(whole, answer, certificate, tol, True)
            trials += 1
        if step >= (settings.max_iter or STEPS):
            break
        ratio = tuning.progress_ratio
        if seen.error < ratio * error or at.dual_residual < ratio * miss:
            progressed, error, miss = step, min(error, seen.error), at.dual_residual
        falls, left = seen.primal_residual <= left / 2, seen.primal_residual
        try:
            proof = None
            if method is not None and seen.primal_residual <= enough:  # a ray needs a point that it begins at
                proof = method.ray(at, seen, step)
            elif method is not None and not falls:
                proof = method.contradiction(at, before, step)
            if proof is not None:
                found = presolved.restore(proof)
                # A Farkas vector of the dual is a ray from a point that is not known.
                known = found.stop is StopReason.INFEASIBLE or found.stop is proof.stop
                return (found, seen) if known else None
            late = not inside and step == _FACE_STEP and seen.primal_residual > _NEGLIGIBLE
            if late and integer_faces(program) is not None:
                return None
            if not math.sqrt(at.X @ at.X) <= DIVERGENT**2 * scale.primal:
                return None
            new = engine.advance(at) if method is None else method.advance(at)
        except CutShort as cut:
            stop = reason(cut)
            break
        if new is None or trials == _TRIALS or step - progressed >= _PATIENCE:
            return None
        before, at, step = at.y, new, step + 1
    if stop is StopReason.MAX_ITER and settings.max_iter is None:
        return None
    return _certified(engine, at, presolved, stop, step, inner)


def _is_linear(program: Program) -> bool:
    """Whether the objective is linear, and all rows are hard or hinges."""
    bounds = program.bounds
    return not program.curved and (bounds.all_hard or int(bounds.kind.max()) <= int(Penalty.HINGE))


def _prices_diverge(engine: Engine, at: Iterate, program: Program) -> bool:
    """Whether ``y`` is far larger than the costs, which ``A*(y)`` and ``B'y`` should be close to."""
    costs = max(engine.largest_cost, math.sqrt(program.c @ program.c)) + at.dual_residual
    return costs < _DUAL_DIVERGENCE * float(np.abs(at.y) @ program.row_sizes)


def _hardly_moves(program: Program, first: Iterate, at: Iterate, new: Iterate) -> bool:
    """Whether a step from an infeasible iterate leaves most of both residuals."""
    if not new.dual_residual > _LEFT * at.dual_residual:
        return False
    of_first, missed, left = (
        float(np.linalg.norm(program.bounds.violation(point.activity))) for point in (first, at, new)
    )
    return left > max(_LEFT * missed, _FAR * of_first)


def _certified(
    engine: Engine, at: Iterate, presolved: Presolved, stop: StopReason, step: int, inner: Answer | None
) -> tuple[Answer, Certificate]:
    """Return an iterate as an answer to the whole program, and its certificate."""
    plan, X = engine.plan, engine.plan.matrices(at.X)
    for X_b in X:
        symmetrize(X_b)
    answer = Answer(X, at.u, at.y, stop, step, inner=inner)
    if presolved.steps:
        answer = presolved.restore(answer)
        plain = tuple([M if isinstance(M, LowRank) else (M + M.T) / 2 for M in answer.X])
        answer = replace(answer, X=plain)
        return answer, certify(PrimalDualPoint(presolved.whole, plain, answer.u, answer.y, S=answer.S))
    slacks = plan.matrices(at.Z if at.residual is None else at.Z + at.residual)
    costs, traces = float(engine.cost @ at.X), plan.traces(at.X)
    known = Known(activity=at.activity, costs=costs, traces=traces, cone_residual=0.0, slacks=slacks)
    return answer, certify(PrimalDualPoint(presolved.whole, X, at.u, at.y, **known))


def _with_barrier(block: Block) -> tuple[Array, float]:
    """Return ``C`` and ``w`` of the terms ``<C, X> - w logdet X`` of a block, constants apart."""
    if block.nearness is None:
        return block.C, 0.0
    divergence: Any = divergence_of(block.nearness)
    return block.C + block.nearness.mu * divergence.inverse, block.nearness.mu
