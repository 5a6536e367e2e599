"""Methods for all rows at once, run on a working set of the rows, as few of many inequalities are active.

A row that can be inactive has multiplier zero where it holds strictly; a violated hinge has its price as
multiplier. A method therefore runs on a *working set* of rows. The others are fixed at one of these two
multipliers, which turns them into constants and linear terms. All activities are then computed in one
product, the rows on the wrong side of their bounds join the working set, and the method runs again. Each
fixed term is at most the true one. So a bound for the working set is a bound for the whole program, and a
Farkas vector for the working set is one for the whole. Only a ray may violate a fixed row, which then joins.

The first working set comes from a random sample of the rows, whose prices are scaled up to those of all rows:
the sample has a solution near that of the whole, and its matrices show on which side of its bound each row
is. The rows nearest to their bounds may be on either side; they form the working set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify import Certificate, PrimalDualPoint, certify
from bregopt.clock import CutShort
from bregopt.presolve import with_multipliers
from bregopt.program import LIMITS, Answer, Bounds, Penalty, Program, Start, StopReason
from bregopt.program.rows import DenseRows
from bregopt.program.scale import entries_of, newton_flops, price_range
from bregopt.records import dataclass, replace
from bregopt.rigorous import recedes
from bregopt.routes.base import Method, Tuning
from bregopt.routes.progress import Progress, reason

# Largest violation of a fixed row at the end, relative to its size, as a fraction of the tolerance.
_ROW_VIOLATION = 0.1
# Fraction of the tolerance that the certificate of all rows has to meet.
_CERTIFICATE_SHARE = 0.5
# Tolerance of the next round, relative to the gap of the last.
_TOL_DECREASE = 0.02
# Least tolerance of a round, relative to the tolerance asked for.
_LEAST_TOL = 1e-3
# Largest gap at which rows leave the working set. Before that multipliers are too inaccurate.
_LEAVING_GAP = 0.1
# Steps that a round takes, about, and the share of the operations on all rows from which all are taken at
# once: where most rows are active, as bounds on all entries of a matrix may be, rounds only repeat the work.
_STEPS, _MOST_WORK = 20, 0.5
# Rows, relative to the entries, beyond which all are never taken at once: they need memory, and each costs
# little.
_MOST_ROWS = 2
# Share of a sample's rows whose multipliers act, those above a fraction of the largest, from which all rows
# are taken. Triplets of overlapping classes had .93 to 1, those of distinct ones .34 to .63.
_MOST_ACT, _ACTING = 0.8, 1e-3
# Hinge rows, also relative to the order of the matrix, from which `psdboost` takes all at once: 5,000
# comparisons in 200 dimensions take half of the time. Decompositions of a large order are slow, and 5,000 in
# 900 dimensions need few directions.
_MANY_HINGES, _HINGES_PER_ORDER = 2_000, 10
# Least tolerance of the problem with a sample of the rows, which only estimates the active set.
_SAMPLE_TOL = 1e-2
# Distance of a multiplier from an end of its range below which its row leaves the working set, relative to
# the price of its hinge or, for a hard row, to the largest multiplier.
_LEAVING_DISTANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class WorkingSetTuning(Tuning):
    """Constants of the working set, besides those of every method.

    Parameters
    ----------
    joining_share : float
        Fraction of the violated rows that joins the working set at once, the most violated first.
    joining_growth : float
        Least number of rows that join at once, relative to the working set; at least the order of ``X``.
    first_tol : float
        Tolerance of the first rounds.
    rounds : int
        Limit on the number of rounds.
    """

    joining_share: float = 0.1
    joining_growth: float = 0.5
    first_tol: float = 1e-2
    rounds: int = 60


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """The working set, and the multipliers at which the other rows are fixed.

    Parameters
    ----------
    working : boolean array of shape (m,)
    fixed : array of shape (m,)
        Multipliers of the fixed rows: zero, or plus or minus the price of a hinge.
    """

    working: Mask
    fixed: Array

    @classmethod
    def resting(cls, bounds: Bounds, y: Array | None = None) -> ActiveSet:
        """Return the active set with every row inactive that can be, except rows with a multiplier in `y`."""
        working = ~bounds.can_be_inactive
        if y is not None:
            working |= bounds.clip(y) != 0
        return cls(working, np.zeros(bounds.m))

    def joined(self, rows: IntArray) -> ActiveSet:
        """Return the active set with more rows in the working set."""
        working = self.working.copy()
        working[rows] = True
        return replace(self, working=working)

    def multipliers(self, own: Array) -> Array:
        """Return the multipliers of all rows from those of the working set."""
        y = np.where(self.working, 0.0, self.fixed)
        y[self.working] = own
        return y

    def restored(self, answer: Answer) -> Answer:
        """Return the answer to all rows from that to the working set."""
        return with_multipliers(answer, self.multipliers, inner=None)

    def of(self, program: Program) -> Program:
        """Return the program in the working set, with the fixed rows in its linear terms."""
        rows = np.flatnonzero(self.working)
        fixed = np.where(self.working, 0.0, self.fixed)
        own = program.of_rows(rows)
        if not fixed.any():
            return own
        blocks = tuple(
            replace(block, cost=DenseRows((block.C - program.A.adjoint(fixed, b))[None]))
            for b, block in enumerate(program.blocks)
        )
        offset = program.offset + float(program.bounds.conjugate(fixed).sum())
        return replace(own, blocks=blocks, c=program.c - program.B.T @ fixed, offset=offset)

    def out_of_place(self, program: Program, activity: Array) -> Array:
        """Return the distance of each fixed row from its bound on the wrong side, zero for other rows."""
        bounds = program.bounds
        out = bounds.violation(activity)
        up, down = self.fixed > 0, self.fixed < 0
        out[up] = np.maximum(activity[up] - bounds.lo[up], 0.0)
        out[down] = np.maximum(bounds.hi[down] - activity[down], 0.0)
        return np.where(self.working, 0.0, out)

    def opposing(self, program: Program, activity: Array) -> Array:
        """Return the rate at which fixed rows increase the objective along a ray, infinite for hard rows.

        Parameters
        ----------
        program : Program
        activity : array of shape (m,)
            ``A(X) + B u`` of the ray.
        """
        bounds = program.bounds
        broken = np.where(np.isfinite(bounds.lo), -activity, 0.0)
        broken = np.maximum(broken, np.where(np.isfinite(bounds.hi), activity, 0.0))
        along = np.where(self.fixed == 0, broken, np.sign(self.fixed) * activity)
        along = np.where(self.working, 0.0, np.maximum(along, 0.0))
        used = along > 0
        along[used] *= bounds.gamma[used]
        return along

    def paying(self, program: Program) -> ActiveSet:
        """Return the active set with enough more rows that ``B'y = c`` is possible for each variable.

        Otherwise a free variable would give a ray of the working set.
        """
        active_set = self
        lower, upper = program.bounds.dual_range()
        columns = program.B.tocsc()
        for j in np.flatnonzero(program.free):
            fixed, working = active_set.fixed, active_set.working
            ends = (np.where(working, end, fixed) for end in (lower, upper))
            least, largest = price_range(program, *ends)
            short = max(program.c[j] - largest[j], least[j] - program.c[j])
            if short < 0:
                continue
            own = slice(columns.indptr[j], columns.indptr[j + 1])
            rows, weight = columns.indices[own], columns.data[own]
            up = program.c[j] >= largest[j]
            end = np.where((weight > 0) == up, upper[rows], lower[rows])
            gain = np.where(working[rows], 0.0, np.abs(weight) * np.abs(end - fixed[rows]))
            order = np.argsort(-gain, kind="stable")
            enough = int(np.searchsorted(np.cumsum(gain[order]), 2 * short)) + 1
            active_set = active_set.joined(rows[order[:enough]])
        return active_set


# Pays on: 1,600 triplets of overlapping classes, n = 64.
def most_act(program: Program, sampled: Program, y: Array) -> bool:
    """Whether most rows of a sample act, so that most of all rows do: rounds would only repeat the work."""
    size = np.abs(y[sampled.bounds.can_be_inactive])
    acting = np.count_nonzero(size > _ACTING * size.max(initial=0.0))
    return program.m <= _MOST_ROWS * entries_of(program) and bool(acting > _MOST_ACT * len(size))


# Pays on: 2,500 triplets of overlapping classes, n = 128.
def has_many_hinges(program: Program) -> bool:
    """Whether there are many hinge rows, also for the orders of the matrices."""
    bounds = program.bounds
    hinges = np.count_nonzero((bounds.kind == Penalty.HINGE) & (bounds.lo < bounds.hi))
    orders = sum(block.n for block in program.blocks)
    return bool(hinges >= max(_MANY_HINGES, _HINGES_PER_ORDER * orders))


def sizes_at(program: Program, X: Sequence[Array], u: Array) -> Array:
    """Return the largest activity of each row for these diagonals, or its bounds if larger; never zero."""
    size = np.abs(program.B) @ np.abs(u) + TINY
    for term in program.A.terms:
        size[term.at] += term.rows.magnitude(np.sqrt(np.maximum(X[term.block].diagonal(), 0.0)))
    return np.maximum(size, program.bounds.sizes)


def on_working_set(
    method: Method,
    program: Program,
    settings: Any,
    active_set: ActiveSet,
    start: Start | None,
    progress: Progress,
    loose: bool = False,
) -> Answer:
    """Solve a program by a method that is applied to a working set of the rows.

    Parameters
    ----------
    method : callable
        Solves a program; :func:`~bregopt.routes.ipm.logdet_newton.logdet_newton` for one.
    program : Program
    settings : Settings
    active_set : ActiveSet
        The first one.
    start : Start or None
        The start of the first round; later rounds start from the last answer.
    progress : Progress
    loose : bool
        Whether the first rounds have a larger tolerance, and rounds also start from matrices.
    """
    return _Rounds(method, program, settings, progress, loose).run(active_set, start)


class _Rounds:
    """The rounds on one program, and the best answer so far."""

    def __init__(
        self, method: Method, program: Program, settings: Any, progress: Progress, loose: bool
    ) -> None:
        self._method, self._program, self._settings, self._progress = method, program, settings, progress
        self._loose, self._tuning = loose, settings.tuning
        self._tol = max(self._tuning.first_tol, settings.tol) if loose else settings.tol
        self._optional = program.bounds.can_be_inactive
        self._left = np.zeros(program.m, dtype=bool)  # a row leaves at most once
        self._best: tuple[float, Answer] | None = None
        self._steps, self._work = 0, 0.0

    def run(self, active_set: ActiveSet, start: Start | None) -> Answer:
        try:
            stop = self._run(active_set, start)
        except CutShort as cut:
            if self._best is None:
                raise
            stop = reason(cut)
        if isinstance(stop, Answer):
            return replace(stop, iterations=self._steps)
        assert self._best is not None
        return replace(self._best[1], stop=stop, iterations=self._steps)

    def _run(self, active_set: ActiveSet, start: Start | None) -> Answer | StopReason:
        """Return a proof, or the reason to stop at the best answer."""
        program, asked = self._program, self._settings.tol
        for _ in range(self._tuning.rounds):
            if self._loose:
                active_set = active_set.paying(program)
                if self._costs_as_much(active_set):
                    start = start if active_set.working.all() else None
                    active_set = active_set.joined(np.arange(program.m))
                    self._tol = min(self._tol, _CERTIFICATE_SHARE * asked)
            own = self._solve(active_set, start)
            self._steps += own.iterations
            if own.stop is StopReason.INFEASIBLE:
                return ActiveSet(active_set.working, np.zeros(program.m)).restored(own)
            answer = active_set.restored(own)
            if own.stop is StopReason.UNBOUNDED:
                joining = self._against(active_set, own)
                if recedes(program, own.X, own.u) or len(joining) == 0:
                    return answer
                active_set, start = active_set.joined(joining), None
                continue
            certificate = self._look(answer, active_set)
            if certificate.meets(_CERTIFICATE_SHARE * asked):
                return StopReason.CONVERGED
            if own.stop in LIMITS:
                return own.stop
            joining = self._joining(active_set, answer)
            if len(joining) == 0 and own.stop is StopReason.STALLED:
                joining = self._nearest(active_set, answer)
            if len(joining) == 0 and not self._may_sharpen(own.stop):
                return own.stop
            self._sharpen(certificate, len(joining) == 0)
            active_set = self._without_clear(active_set, answer.y, certificate).joined(joining)
            start = Start(tuple(answer.X) if self._loose else (), answer.u, answer.y)
        return StopReason.STALLED

    def _costs_as_much(self, active_set: ActiveSet) -> bool:
        """Whether the rounds so far and the next one take about as many operations as one on all rows."""
        if not self._steps or self._program.m > _MOST_ROWS * entries_of(self._program):
            return False
        whole = _STEPS * newton_flops(self._program)
        next_one = _STEPS * newton_flops(active_set.of(self._program))
        return self._work + next_one > _MOST_WORK * whole

    def _solve(self, active_set: ActiveSet, start: Start | None) -> Answer:
        limit = self._settings.max_iter
        left = None if limit is None else max(limit - self._steps, 1)
        settings = replace(self._settings, verbose=False, tol=self._tol, max_iter=left)
        if start is not None:
            start = replace(start, y=start.y[active_set.working])
        program = active_set.of(self._program)
        answer = self._method(program, settings, start, Progress("working set"))
        self._work += answer.iterations * newton_flops(program)
        program.reductions.clear()  # they hold the program: a cycle would wait for the garbage collector
        return answer

    def _look(self, answer: Answer, active_set: ActiveSet) -> Certificate:
        """Return the best certificate of the answer combined with the best so far, and keep the best."""
        program = self._program
        candidates = [answer]
        if self._best is not None:
            best = self._best[1]
            candidates += [replace(answer, y=best.y), replace(best, y=answer.y)]
        certificates = [certify(PrimalDualPoint(program, a.X, a.u, a.y)) for a in candidates]
        errors = [max(c.gap, c.primal_residual, c.dual_residual) for c in certificates]
        k = int(np.argmin(errors))
        if self._best is None or errors[k] < self._best[0]:
            self._best = errors[k], candidates[k]
        self._progress.record(self._steps, certificates[k], rows=float(active_set.working.sum()))
        return certificates[k]

    def _joining(self, active_set: ActiveSet, answer: Answer) -> IntArray:
        """Return the rows farthest on the wrong side of their bounds."""
        activity = self._program.activity(answer.X, answer.u)
        out = np.where(self._optional, active_set.out_of_place(self._program, activity), 0.0)
        out /= sizes_at(self._program, answer.X, answer.u)
        count = int((out > _ROW_VIOLATION * self._settings.tol).sum())
        order = max(block.n for block in self._program.blocks)
        least = max(order, self._tuning.joining_growth * active_set.working.sum()) if self._loose else order
        return np.argsort(-out)[: int(min(count, max(least, self._tuning.joining_share * count)))]

    def _against(self, active_set: ActiveSet, ray: Answer) -> IntArray:
        """Return the rows that oppose a ray most, enough that they outweigh its decrease of the objective."""
        program = self._program
        opposing = active_set.opposing(program, program.activity(ray.X, ray.u))
        order = np.argsort(-opposing)[: int((opposing > 0).sum())]
        own = active_set.of(program)
        falls = float(own.c @ ray.u) + sum(b.cost_value(X) for b, X in zip(own.blocks, ray.X, strict=True))
        enough = np.searchsorted(np.cumsum(opposing[order]), 2 * abs(falls)) + 1
        order_of_X = max((block.n for block in program.blocks), default=0)
        return order[: max(int(enough), int(active_set.working.sum()), order_of_X)]

    def _nearest(self, active_set: ActiveSet, answer: Answer) -> IntArray:
        """Return as many more rows as the working set has, those nearest to their bounds."""
        bounds, activity = self._program.bounds, self._program.activity(answer.X, answer.u)
        room = np.minimum(np.abs(activity - bounds.lo), np.abs(bounds.hi - activity))
        room[active_set.working] = np.inf
        count = min(int(active_set.working.sum()), int((~active_set.working).sum())) if self._loose else 0
        return np.argsort(room)[:count]

    def _may_sharpen(self, stop: StopReason) -> bool:
        """Whether a smaller tolerance with the same rows may improve the answer."""
        return self._loose and stop is StopReason.CONVERGED and self._tol > _LEAST_TOL * self._settings.tol

    def _sharpen(self, certificate: Certificate, settled: bool) -> None:
        """Decrease the tolerance of the next round."""
        enough = _CERTIFICATE_SHARE * self._settings.tol
        if settled and self._tol <= enough:  # the gap of the whole program has a smaller reference value
            self._tol *= _TOL_DECREASE
        else:
            self._tol = float(np.clip(0.0 if settled else _TOL_DECREASE * certificate.gap, enough, self._tol))

    def _without_clear(self, active_set: ActiveSet, y: Array, certificate: Certificate) -> ActiveSet:
        """Return the active set without rows clearly at one end of their range; each leaves at most once."""
        if not self._loose or certificate.gap > _LEAVING_GAP:
            return active_set
        bounds = self._program.bounds
        price = np.where(np.isfinite(bounds.gamma), bounds.gamma, np.abs(y).max(initial=0.0))
        full = (bounds.kind == Penalty.HINGE) & (np.abs(y) > (1 - _LEAVING_DISTANCE) * price)
        clear = (
            active_set.working
            & self._optional
            & ~self._left
            & (full | (np.abs(y) < _LEAVING_DISTANCE * price))
        )
        self._left |= clear
        fixed = np.where(full, np.copysign(bounds.gamma, y), 0.0)
        return ActiveSet(active_set.working & ~clear, np.where(clear, fixed, active_set.fixed))


# --- The first working set ----------------------------------------------------------------------------


def first_active_set(
    method: Method, program: Program, settings: Any, count: int, start: Start | None
) -> ActiveSet:
    """Return a first active set of the rows, from an earlier answer or from that of a sample.

    Parameters
    ----------
    method : callable
        Solves a program.
    program : Program
    settings : Settings
        Its seed draws the sample; its tuning is a :class:`WorkingSetTuning`.
    count : int
        The number of rows that can be inactive in the sample, and in the working set. Constraints of at
        most `count` rows, such as a bound on the trace, are in both.
    start : Start, optional
    """
    optional = np.flatnonzero(program.bounds.can_be_inactive & ~_in_small_constraints(program, count))
    if start is not None and start.X:
        return _active_set_at(program, tuple(map(np.asarray, start.X)), start.u, optional, count)
    sample = np.random.default_rng(settings.seed).choice(optional, min(count, len(optional)), replace=False)
    rows = np.union1d(np.setdiff1d(np.arange(program.m), optional), sample)
    rough = replace(settings, verbose=False, tol=max(_SAMPLE_TOL, settings.tol))
    scale = len(optional) / len(sample) if len(sample) else 1.0  # small constraints leave nothing to sample
    sampled = _sampled(program, rows, scale)
    answer = method(sampled, rough, None, Progress("some rows"))
    resting = ActiveSet.resting(program.bounds)
    if answer.stop in (StopReason.INFEASIBLE, StopReason.UNBOUNDED):
        # Where part of the rows leaves a ray that all rows exclude, rounds would only double the part.
        endless = answer.stop is StopReason.UNBOUNDED and not recedes(program, answer.X, answer.u)
        needed = endless and program.m <= _MOST_ROWS * entries_of(program)
        return resting.joined(np.arange(program.m) if needed else rows)
    if most_act(program, sampled, answer.y):
        return resting.joined(np.arange(program.m))
    return _active_set_at(program, answer.X, answer.u, optional, count)


def _in_small_constraints(program: Program, count: int) -> Mask:
    """Return the mask of the rows of declared constraints with at most `count` rows."""
    small = np.zeros(program.m, dtype=bool)
    start = 0
    for _, size in program.labels:
        small[start : start + size] = size <= count
        start += size
    return small


def _sampled(program: Program, rows: IntArray, scale: float) -> Program:
    """Return the program of the given rows, with the prices of hinges multiplied by `scale`."""
    sample = program.of_rows(rows)
    bounds = sample.bounds
    gamma = np.where(bounds.kind == Penalty.HINGE, scale * bounds.gamma, bounds.gamma)
    return replace(sample, bounds=replace(bounds, gamma=gamma))


def _active_set_at(program: Program, X: Any, u: Array, optional: IntArray, count: int) -> ActiveSet:
    """Return the active set of the rows nearest to their bounds, at the best ``u`` for the matrices."""
    bounds, matrices = program.bounds, program.A.apply(X)
    u = _best_variables(program, matrices, u)
    activity = matrices + program.B @ u
    # Positive inside the bounds, negative outside.
    distance = np.minimum(activity - bounds.lo, bounds.hi - activity)
    lower = activity - bounds.lo < bounds.hi - activity
    violated = (distance < 0) & (bounds.kind == Penalty.HINGE)
    fixed = np.where(violated, np.where(lower, bounds.gamma, -bounds.gamma), 0.0)
    relative = np.abs(distance)[optional] / sizes_at(program, X, u)[optional]
    working = np.ones(program.m, dtype=bool)
    working[optional[np.argsort(relative)[count:]]] = False
    return ActiveSet(working, np.where(working, 0.0, fixed))


def _best_variables(program: Program, matrices: Array, u: Array) -> Array:
    """Return the variables; a single free one minimizes the hinges at these matrices.

    It is a weighted quantile: hinges become violated one after the other, until their prices exceed ``c``.
    """
    bounds, free = program.bounds, np.flatnonzero(program.free)
    if len(free) != 1:
        return u
    best = u.copy()
    best[free] = 0.0
    weight = program.B[:, free].toarray().ravel()
    k = np.flatnonzero((bounds.kind == Penalty.HINGE) & (weight != 0))
    activity = matrices + program.B @ best
    # A hinge has its kink at u = (bound - activity) / weight; the slope rises there by price times |weight|.
    kinks, slope_changes, slope = [], [], float(program.c[free[0]])
    for bound, side in ((bounds.lo[k], -1.0), (bounds.hi[k], 1.0)):
        finite = np.isfinite(bound)
        kinks.append(((bound - activity[k]) / weight[k])[finite])
        slope_changes.append((bounds.gamma[k] * np.abs(weight[k]))[finite])
        slope -= float(slope_changes[-1][side * weight[k][finite] < 0].sum())
    kink, slope_change = np.concatenate(kinks), np.concatenate(slope_changes)
    order = np.argsort(kink)
    position = int(np.searchsorted(slope + np.cumsum(slope_change[order]), 0.0))
    if slope >= 0 or position == len(order):
        return u
    best[free] = kink[order[position]]
    return best
