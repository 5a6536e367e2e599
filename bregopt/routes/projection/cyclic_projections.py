"""Passes over the rows: cyclic projections, those of Hildreth and Dykstra, and L-BFGS.

Cyclic Bregman projection has dual corrections (Kulis et al. 2009, Algorithms 2 and 3). It maximizes the dual
function in the multiplier of one row at a time. A violated row is projected onto; other rows move back
towards their bound, by at most the earlier projections (eq. 8). The loop is independent of the divergence,
which a :class:`~bregopt.divergences.ProjectionPoint` implements. It is not
:meth:`~bregopt.routes.progress.Monitor.follow`, because only some cycles are certified, all update one point
in place, and the projections of an interrupted cycle count.

For the squared Frobenius distance: Hildreth on the rows, Dykstra with the psd cone.
The dual is maximized in two blocks: the multipliers of the rows for a fixed multiplier ``S`` of ``X psd``
(Hildreth's coordinate ascent), then ``S``, by one eigendecomposition. Rows with orthogonal matrices are
independent; they move together as arrays.

L-BFGS on the matrix takes many soft rows that are rank one and definite.
One pass over the rows gives activities, gradient, second moments and multipliers, and so the certificate
(:mod:`bregopt.routes.quasi_newton`). It costs a small fraction of a Newton step where rows are many and the
order of the matrix is small. Heavy penalties take many passes, so the first point tells whether the method
begins at all. Where it stalls, or takes too many passes, Newton's method goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, Known, PrimalDualPoint, certify
from bregopt.clock import CutShort, checkpoint
from bregopt.divergences import Line, ProjectionPoint, line_root, psd_part
from bregopt.divergences.rows import Target
from bregopt.linalg import is_definite, root_of
from bregopt.program import ENDED, Answer, Bounds, Penalty, Program, Start, StopReason
from bregopt.program.program import divergence_of
from bregopt.program.rows import placed_coordinates
from bregopt.records import dataclass, replace
from bregopt.rigorous import contradicts
from bregopt.routes.base import Method as Solve
from bregopt.routes.base import Tuning
from bregopt.routes.progress import Method, Monitor, Progress, reason
from bregopt.routes.quasi_newton import Point, curve_of, preconditioner, quasi_newton, relative_curvature

if TYPE_CHECKING:
    from bregopt.routes.projection.route import ProjectionTuning

# Limit on the cycles where the option `max_iter` gives none.
_CYCLES = 20_000
# The cyclic method certifies its point once more after the cycles so far, divided by this, at least after
# one. A certificate may cost more than a cycle.
_CERTIFICATE_DIVISOR = 10
# Limit on sweeps over the rows for one eigendecomposition, if the rows are not orthogonal.
_HILDRETH_SWEEPS = 20
# Largest change of a multiplier that ends the sweeps, relative to the first sweep.
_HILDRETH_DECREASE = 1e-3
# Rounds of Dykstra's method between two tests for a Farkas vector, which is the change of the multipliers
# over these rounds. Below `farkas_residual` none is tested.
_FARKAS_ROUNDS = 25

_NO_VARIABLES = np.zeros(0)
_SHARES = 2.0 ** np.arange(-50.0, 0.0, 2)  # of the way back into the domain of the dual
_ROWS_A_CHECKPOINT = 32  # a checkpoint costs half a projection in low rank

_FINAL = (StopReason.CONVERGED, *ENDED)
_CITATION = (
    "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10; "
    "Liu, Nocedal (1989), On the Limited Memory BFGS Method for Large Scale Optimization, Math. Program. 45"
)


@dataclass(frozen=True)
class Row:
    """One row for the inner loop: factor, targets at its two bounds, limit on its multiplier.

    An equality has the target at its lower bound alone.
    """

    U: Array
    d: Array
    lower: Target | None
    upper: Target | None
    lo: float
    hi: float
    cap: float


def cyclic_projection(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a nearness problem in one block by cyclic projection.

    Parameters
    ----------
    program : Program
        One block with a divergence that has a point, no ordinary variables.
    """
    (block,) = program.blocks
    assert block.nearness is not None
    rows, mu = _rows(program), block.nearness.mu
    y = np.zeros(program.m)
    point = divergence_of(block.nearness).point(mu)
    if start is not None:
        y = program.bounds.clip(start.y)
    try:
        point.reset(block.C - program.A.adjoint(y))
    except LinAlgError:  # a start outside the domain of the dual
        y = np.zeros(program.m)
        point.reset(block.C)
    monitor = Monitor(program, settings, progress)
    limit = settings.max_iter or _CYCLES
    cycle = 0
    y_inside, certificate = _certified(program, point, y, y)
    stop = monitor.look(cycle, certificate, y)
    try:
        while stop is None:
            cycle += 1
            sweep(point, rows, _acting(program, point, y), y, mu)
            if cycle >= limit or _due(cycle, _CERTIFICATE_DIVISOR):
                # Rebuilding the point from the multipliers removes the round-off of the updates. Where X0 is
                # ill conditioned, round-off may move multipliers out of the domain; then the updates remain.
                with suppress(LinAlgError):
                    point.reset(block.C - program.A.adjoint(y))
                y_inside, certificate = _certified(program, point, y, y_inside)
                stop = monitor.look(cycle, certificate, y)
                stop = stop or (StopReason.MAX_ITER if cycle >= limit else None)
    except CutShort as cut:
        stop = reason(cut)
    if stop is StopReason.INFEASIBLE:
        y_inside = monitor.farkas
    return Answer((point.X,), _NO_VARIABLES, y_inside, stop, cycle)


def _certified(
    program: Program, point: ProjectionPoint, y: Array, y_inside: Array
) -> tuple[Array, Certificate]:
    """Return multipliers in the domain of the dual and their certificate.

    They are `y`, or near it on the segment to the earlier `y_inside`, as domains are convex.
    """
    for share in (0.0, *_SHARES):
        y_near = y + share * (y_inside - y)
        certificate = certify(PrimalDualPoint(program, (point.X,), _NO_VARIABLES, y_near))
        if math.isfinite(certificate.dual):
            return y_near, certificate
    return y_inside.copy(), certify(PrimalDualPoint(program, (point.X,), _NO_VARIABLES, y_inside))


def _acting(program: Program, point: ProjectionPoint, y: Array) -> IntArray:
    """Return the rows that a sweep visits: those with a multiplier, and those that the point violates.

    One product gives all activities, so a row without effect costs no projection. If a later projection of
    the sweep violates it, the next sweep visits it.
    """
    activity, bounds = program.A.apply((point.X,)), program.bounds
    return np.flatnonzero((y != 0) | (activity < bounds.lo) | (activity > bounds.hi))


def sweep(point: ProjectionPoint, rows: list[Row], visited: IntArray, y: Array, mu: float) -> None:
    """Project on the visited rows once, in order; `y` is updated in place."""
    for count, k in enumerate(visited.tolist()):
        if count % _ROWS_A_CHECKPOINT == 0:
            checkpoint()
        row, old = rows[k], float(y[k])
        line = point.line(row.U, row.d)
        new = new_multiplier(line, row, old, mu)
        if new != old:
            point.move(line, (new - old) / mu)
            y[k] = new


def new_multiplier(line: Line, row: Row, y: float, mu: float) -> float:
    """Return the multiplier of one row that maximizes the dual function, all others fixed."""
    if row.lo == row.hi:
        assert row.lower is not None
        return _capped(y + mu * line_root(line, row.lower, y, mu), row.cap, y)
    if y == 0.0 and row.lo <= line.activity <= row.hi:
        return 0.0
    if row.lower is not None and (y > 0 or line.activity < row.lo):
        new = y + mu * line_root(line, row.lower, y, mu)
        if new > 0:
            return _capped(new, row.cap, y)
    if row.upper is not None:
        new = y + mu * line_root(line, row.upper, y, mu)
        if new < 0:
            return _capped(new, row.cap, y)
    return 0.0


def _capped(new: float, cap: float, old: float) -> float:
    if abs(new) <= cap:
        return new if abs(new) < math.inf else old
    return old if cap == math.inf or math.isnan(new) else math.copysign(cap, new)


def _due(cycle: int, divisor: int) -> bool:
    """Whether to certify after this cycle: always at first, later after a fraction of the cycles so far."""
    return cycle % max(1, cycle // divisor) == 0


def _rows(program: Program) -> list[Row]:
    bounds = program.bounds
    least, largest = bounds.dual_range()
    ends = (bounds.lo.tolist(), bounds.hi.tolist(), np.maximum(largest, -least).tolist())
    return [
        Row(
            U,
            d,
            bounds.target(k, upper=False) if lo > -math.inf else None,
            bounds.target(k, upper=True) if lo < hi < math.inf else None,
            lo,
            hi,
            cap,
        )
        for k, ((U, d), lo, hi, cap) in enumerate(zip(program.A.factors(), *ends, strict=True))
    ]


def dykstra_hildreth(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Solve a squared Frobenius problem in one block by cyclic projection.

    Parameters
    ----------
    program : Program
        One block with an unweighted Frobenius term, no ordinary variables.
    """
    limit = settings.max_iter or _CYCLES
    method = _Dykstra(program, settings.tuning, start, limit)
    found = Monitor(program, settings, progress).follow(method, method.first, limit)
    return found.proof or _answer(found.at, found.at.y, found.stop, found.step)


@dataclass(frozen=True, eq=False)
class _Point:
    """Multipliers, and the psd matrix that minimizes the Lagrangian."""

    y: Array
    X: Array


def _answer(at: _Point, y: Array, stop: StopReason, step: int) -> Answer:
    return Answer((at.X,), np.zeros(0), y, stop, step)


class _Dykstra(Method):
    """The rounds: the rows by Hildreth's method, then the cone."""

    tests_multipliers = False
    keeps_best = False

    def __init__(self, program: Program, tuning: Tuning, start: Start | None, limit: int) -> None:
        self._program, self._tuning, self._limit = program, tuning, limit
        (block,) = program.blocks
        assert block.nearness is not None
        self._mu = block.nearness.mu
        self._center = np.asarray(block.nearness.X0) - block.C / (2 * self._mu)
        self._rows = _RowAscent(program, self._mu)
        self.first = self._point(np.zeros(program.m) if start is None else program.bounds.clip(start.y))
        self._tested = self.first.y

    def _point(self, y: Array) -> _Point:
        return _Point(y, psd_part(self._center + self._program.A.adjoint(y) / (2 * self._mu)))

    def certificate(self, at: _Point) -> Certificate:
        return certify(PrimalDualPoint(self._program, (at.X,), np.zeros(0), at.y))

    def advance(self, at: _Point) -> _Point:
        checkpoint(len(at.X))
        return self._point(self._rows.ascend(at.y, at.X))

    def proof(self, at: _Point, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return the change of the multipliers over many rounds, if it is a Farkas vector."""
        if (step + 1) % _FARKAS_ROUNDS or step == self._limit:
            return None
        change, self._tested = at.y - self._tested, at.y
        suspected = certificate.primal_residual > self._tuning.farkas_residual
        if not (suspected and contradicts(self._program, change)):
            return None
        return _answer(at, change, StopReason.INFEASIBLE, step)


class _RowAscent:
    """Hildreth's method on the rows, in terms of their activities and Gram matrix."""

    def __init__(self, program: Program, mu: float) -> None:
        self._program, self._mu, self._bounds = program, mu, program.bounds
        self._gram = _gram(program)
        self._diagonal = np.asarray(self._gram.diagonal())
        self._groups = _orthogonal_groups(self._gram, np.flatnonzero(self._diagonal > 0))
        self._columns = [sp.csr_array(self._gram[:, group]) for group in self._groups]

    def ascend(self, y: Array, X: Array) -> Array:
        """Return better multipliers for a fixed multiplier of ``X psd``; `X` is their psd point."""
        y, activity = y.copy(), self._program.A.apply((X,))
        first = 0.0
        for number in range(_HILDRETH_SWEEPS if len(self._groups) > 1 else 1):
            largest = 0.0
            for group, columns in zip(self._groups, self._columns, strict=True):
                new = coordinate_maxima(
                    y[group], activity[group], self._diagonal[group], self._bounds.slice(group), self._mu
                )
                step = new - y[group]
                y[group] = new
                activity += columns @ (step / (2 * self._mu))
                largest = max(largest, float(np.abs(step).max(initial=0.0)))
            first = largest if number == 0 else first
            if largest <= _HILDRETH_DECREASE * first:
                break
        return y


def coordinate_maxima(y: Array, activity: Array, square: Array, bounds: Bounds, mu: float) -> Array:
    """Return the multipliers of orthogonal rows that maximize the dual function, all others fixed.

    Increasing a multiplier by ``2 mu alpha`` increases its activity by ``alpha square``; a squared penalty
    relaxes the bound by ``y / (2 gamma)``.
    """
    relaxation = np.where(bounds.kind == Penalty.SQUARE, 1 / bounds.gamma, 0.0)
    complementarity_diagonal = square + mu * relaxation
    lower, upper = bounds.dual_range()
    at_lo = y + 2 * mu * (bounds.lo - y * relaxation / 2 - activity) / complementarity_diagonal
    at_hi = y + 2 * mu * (bounds.hi - y * relaxation / 2 - activity) / complementarity_diagonal
    return np.clip(np.where(at_lo > 0, at_lo, np.where(at_hi < 0, at_hi, 0.0)), lower, upper)


def _gram(program: Program) -> Any:
    """Return the sparse matrix of the ``<A_k, A_l>``."""
    terms = placed_coordinates((term.at, term.rows) for term in program.A.terms)
    table = terms.on_entries(program.m, program.blocks[0].n)
    return sp.csr_array(table @ table.T)


def _orthogonal_groups(gram: Any, rows: IntArray) -> list[IntArray]:
    """Return the rows in groups of mutually orthogonal rows (greedy coloring)."""
    color = np.full(gram.shape[0], -1)
    for k in rows:
        checkpoint()
        span = slice(gram.indptr[k], gram.indptr[k + 1])
        neighbors = gram.indices[span][gram.data[span] != 0]
        taken = set(color[neighbors].tolist())
        color[k] = next(c for c in range(len(taken) + 1) if c not in taken)
    return [np.flatnonzero(color == c) for c in range(int(color.max(initial=-1)) + 1)]


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
class _PassPoint(Point):
    """A point of L-BFGS, and the best multipliers so far.

    Value, gradient, curvature and weight are those of the objective divided by the divergence's weight.
    """

    activity: Array
    divergence: float
    penalty: float
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
        self._steps: Iterator[_PassPoint] = iter(())

    @property
    def exponential(self) -> bool:
        """Whether the divergence is von Neumann's."""
        return self._divergence.exponential

    def first(self, start: Start | None) -> _PassPoint | None:
        """Return the point at the minimizer for multipliers of an earlier answer, or for none."""
        y = np.zeros(self._program.m) if start is None else self._program.bounds.clip(start.y)
        spectrum = self._divergence.spectrum(self._C - self._program.A.adjoint(y), self._mu)
        root = root_of(np.asarray(self.nearness.X0) if spectrum is None else spectrum.X)
        at = None if root is None else self.at(root, curvature=True)
        if at is not None:
            self._steps = quasi_newton(self, at)
        return at

    def is_near(self, at: _PassPoint) -> bool:
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

    def at(self, root: Array, curvature: bool) -> _PassPoint | None:
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
        own = (a, divergence, penalty, self._best)
        return _PassPoint(M, root, value, gradient, H, float(w.sum()), *own)

    def _look(self, new: _Multipliers) -> None:
        if new.rows_term + new.matrix_term > self._best.rows_term + self._best.matrix_term:
            self._best = new

    def certificate(self, at: _PassPoint) -> Certificate:
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

    def advance(self, at: _PassPoint) -> _PassPoint | None:
        """Return the point after a step, None if the objective no longer decreases."""
        return next(self._steps, None)
