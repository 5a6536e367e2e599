"""Methods for all rows at once, on the rows that act: where many may rest, few of them do.

A row that may rest has no multiplier where it holds, and a hinge that has given way has its price for one. So
a method runs on a *working set* of rows; the others are held at one of the two, which makes constants and
linear terms of them. Then all rows are looked at in one product, those that are not where they are held join,
and the method runs again. Every term so replaced is at most the true one: what the working set proves, the
whole program proves, and multipliers that show it to be infeasible show the whole to be so. Only a ray may
lead where a row that is held would stop it; such rows join too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array, IntArray, Mask
from bregopt.certify import Certificate, certify, is_ray
from bregopt.clock import CutShort
from bregopt.program import Answer, Bounds, Penalty, Program, Start, StopReason
from bregopt.program.rows import DenseRows
from bregopt.routes.progress import Progress, reason

__all__ = ["ActiveSet", "can_be_inactive", "newton_flops", "on_working_set", "sizes_at"]

_BROKEN = 0.1  # of the tolerance: what rows may be out of place by in the end
_ENOUGH = 0.5  # of the tolerance, that a certificate is to meet
_JOIN = 0.1  # of the rows out of place join at once, the worst first,
_GROWTH = 0.5  # and as many as this share of the working set, or the order, at least
_LOOSE = 1e-2  # the tolerance of the first rounds
_SHARPER = 0.02  # times the gap of the last round: the tolerance of the next
_SHARPEST = 1e-3  # of the tolerance: the least that a round is asked for
_SETTLED = 0.1  # the gap from which rows leave the working set
_CLEAR = 1e-3  # of its price: how near a hinge's multiplier is to an end when its row leaves
_ROUNDS = 60
_CUT_SHORT = (StopReason.MAX_ITER, StopReason.TIME_LIMIT, StopReason.INTERRUPTED)

_Method = Callable[[Program, Any, Start | None, Progress], Answer]


@dataclass(frozen=True, eq=False)
class ActiveSet:
    """Which rows work, and where the others are held.

    Parameters
    ----------
    working : boolean array of shape (m,)
    held : array of shape (m,)
        Multipliers of the rows that do not work: zero, or plus or minus the price of a hinge.
    """

    working: Mask
    held: Array

    @classmethod
    def resting(cls, bounds: Bounds, y: Array | None = None) -> ActiveSet:
        """Return the active set in which all rows rest that may, but those with a multiplier in `y`."""
        working = ~can_be_inactive(bounds)
        if y is not None:
            working |= bounds.clip(y) != 0
        return cls(working, np.zeros(bounds.m))

    def joined(self, rows: IntArray) -> ActiveSet:
        """Return the active set with more rows working."""
        working = self.working.copy()
        working[rows] = True
        return replace(self, working=working)

    def multipliers(self, own: Array) -> Array:
        """Return multipliers of all rows from those of the rows that work."""
        y = np.where(self.working, 0.0, self.held)
        y[self.working] = own
        return y

    def of(self, program: Program) -> Program:
        """Return the program in the rows that work, what the others are held at in its linear terms."""
        rows = np.flatnonzero(self.working)
        held = np.where(self.working, 0.0, self.held)
        own = replace(
            program, A=program.A.slice(rows), B=program.B[rows], bounds=program.bounds.slice(rows), labels=()
        )
        if not held.any():
            return own
        blocks = tuple(
            replace(block, cost=DenseRows((block.C - program.A.adjoint(held, b))[None]))
            for b, block in enumerate(program.blocks)
        )
        offset = program.offset + float(program.bounds.conjugate(held).sum())
        return replace(own, blocks=blocks, c=program.c - program.B.T @ held, offset=offset)

    def out_of_place(self, program: Program, activity: Array) -> Array:
        """Return how far each row is on the side of its bound on which it is not held."""
        bounds = program.bounds
        out = bounds.violation(activity)
        up, down = self.held > 0, self.held < 0
        out[up] = np.maximum(activity[up] - bounds.lo[up], 0.0)
        out[down] = np.maximum(bounds.hi[down] - activity[down], 0.0)
        return np.where(self.working, 0.0, out)

    def opposing(self, program: Program, activity: Array) -> Array:
        """Return what held rows would add to the rate of the objective along a ray, infinite where hard.

        Parameters
        ----------
        program : Program
        activity : array of shape (m,)
            ``A(X) + B u`` of the ray.
        """
        bounds = program.bounds
        broken = np.where(np.isfinite(bounds.lo), -activity, 0.0)
        broken = np.maximum(broken, np.where(np.isfinite(bounds.hi), activity, 0.0))
        along = np.where(self.held == 0, broken, np.sign(self.held) * activity)
        along = np.where(self.working, 0.0, np.maximum(along, 0.0))
        used = along > 0
        along[used] *= bounds.gamma[used]
        return along

    def reach(self, program: Program) -> tuple[Array, Array]:
        """Return the least and the largest ``B'y`` that the multipliers of the rows that work allow."""
        lower, upper = program.bounds.dual_range()
        lower = np.where(self.working, lower, self.held)
        upper = np.where(self.working, upper, self.held)
        rows = np.repeat(np.arange(program.m), np.diff(program.B.indptr))
        ends = np.sort([program.B.data * lower[rows], program.B.data * upper[rows]], axis=0)
        least, largest = (
            np.bincount(program.B.indices, weights=end, minlength=program.k).astype(float) for end in ends
        )
        return least, largest

    def paying(self, program: Program) -> ActiveSet:
        """Return the active set with so many more rows that ``B'y = c`` may hold, variable by variable.

        Without them a free variable would lead the rows that work along a ray.
        """
        active_set = self
        lower, upper = program.bounds.dual_range()
        columns = program.B.tocsc()
        for j in np.flatnonzero(np.isinf(program.u_lo) & np.isinf(program.u_hi)):
            least, largest = active_set.reach(program)
            short = max(program.c[j] - largest[j], least[j] - program.c[j])
            if short < 0:
                continue
            own = slice(columns.indptr[j], columns.indptr[j + 1])
            rows, weight = columns.indices[own], columns.data[own]
            up = program.c[j] >= largest[j]
            end = np.where((weight > 0) == up, upper[rows], lower[rows])
            gain = np.where(
                active_set.working[rows], 0.0, np.abs(weight) * np.abs(end - active_set.held[rows])
            )
            order = np.argsort(-gain, kind="stable")
            enough = int(np.searchsorted(np.cumsum(gain[order]), 2 * short)) + 1
            active_set = active_set.joined(rows[order[:enough]])
        return active_set


def can_be_inactive(bounds: Bounds) -> Mask:
    """Return which rows may have no multiplier: those with room between their bounds.

    Rows with a smooth penalty are left to the methods, to which they cost little.
    """
    mask: Mask = (bounds.lo < bounds.hi) & (bounds.kind <= Penalty.HINGE)
    return mask


def newton_flops(program: Program) -> float:
    """Return about how many operations a Newton step on all rows takes, in the rows or in the entries."""
    entries = sum(block.n * (block.n + 1) // 2 for block in program.blocks)
    return float(program.m) * min(program.m, entries) ** 2


def sizes_at(program: Program, X: Sequence[Array], u: Array) -> Array:
    """Return the most that each row could be on matrices of these diagonals, or its bounds; never zero."""
    size = np.abs(program.B) @ np.abs(u) + TINY
    for term in program.A.terms:
        size[term.at] += term.rows.magnitude(np.sqrt(np.maximum(X[term.block].diagonal(), 0.0)))
    return np.maximum(size, program.bounds.sizes)


def on_working_set(
    method: _Method,
    program: Program,
    settings: Any,
    active_set: ActiveSet,
    start: Start | None,
    progress: Progress,
    loose: bool = False,
) -> Answer:
    """Solve a program by a method that is given the rows that act.

    Parameters
    ----------
    method : callable
        Solves a program; :func:`~bregopt.routes.ipm.logdet_newton.logdet_newton` for one.
    program : Program
    settings : Settings
    active_set : ActiveSet
        The first one.
    start : Start or None
        What the first round starts from; every round starts from the last where there is one.
    progress : Progress
    loose : bool
        Whether the first rounds may be less exact than asked, and rounds start from matrices too.
    """
    return _Rounds(method, program, settings, progress, loose).run(active_set, start)


class _Rounds:
    """The rounds on one program, and the best answer so far."""

    def __init__(
        self, method: _Method, program: Program, settings: Any, progress: Progress, loose: bool
    ) -> None:
        self._method, self._program, self._settings, self._progress = method, program, settings, progress
        self._loose = loose
        self._tol = max(_LOOSE, settings.tol) if loose else settings.tol
        self._rest = can_be_inactive(program.bounds)
        self._left = np.zeros(program.m, dtype=bool)  # rows leave once
        self._best: tuple[float, Answer] | None = None
        self._steps = 0

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
        """Return a proof, or why the best answer is the last."""
        program, asked = self._program, self._settings.tol
        for _ in range(_ROUNDS):
            active_set = active_set.paying(program) if self._loose else active_set
            own = self._solve(active_set, start)
            self._steps += own.iterations
            if own.stop is StopReason.INFEASIBLE:
                return replace(own, y=ActiveSet(active_set.working, np.zeros(program.m)).multipliers(own.y))
            answer = replace(own, y=active_set.multipliers(own.y))
            if own.stop is StopReason.UNBOUNDED:
                joining = self._against(active_set, own)
                if is_ray(program, own.X, own.u) or len(joining) == 0:
                    return answer
                active_set, start = active_set.joined(joining), None
                continue
            certificate = self._look(answer, active_set)
            if certificate.meets(_ENOUGH * asked):
                return StopReason.CONVERGED
            if own.stop in _CUT_SHORT:
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

    def _solve(self, active_set: ActiveSet, start: Start | None) -> Answer:
        limit = self._settings.max_iter
        left = None if limit is None else max(limit - self._steps, 1)
        settings = replace(self._settings, verbose=False, tol=self._tol, max_iter=left)
        if start is not None:
            start = replace(start, y=start.y[active_set.working])
        program = active_set.of(self._program)
        answer = self._method(program, settings, start, Progress("working set"))
        program.reductions.clear()  # they hold the program: a cycle would wait for the garbage collector
        return answer

    def _look(self, answer: Answer, active_set: ActiveSet) -> Certificate:
        """Return the certificate of an answer with the best of what there is, and keep these."""
        program = self._program
        candidates = [answer]
        if self._best is not None:
            best = self._best[1]
            candidates += [replace(answer, y=best.y), replace(best, y=answer.y)]
        certificates = [certify(program, a.X, a.u, a.y) for a in candidates]
        errors = [max(c.gap, c.primal_residual, c.dual_residual) for c in certificates]
        k = int(np.argmin(errors))
        if self._best is None or errors[k] < self._best[0]:
            self._best = errors[k], candidates[k]
        self._progress.record(self._steps, certificates[k], rows=float(active_set.working.sum()))
        return certificates[k]

    def _joining(self, active_set: ActiveSet, answer: Answer) -> IntArray:
        """Return the rows that are most out of place."""
        activity = self._program.activity(answer.X, answer.u)
        out = np.where(self._rest, active_set.out_of_place(self._program, activity), 0.0)
        out /= sizes_at(self._program, answer.X, answer.u)
        count = int((out > _BROKEN * self._settings.tol).sum())
        order = max(block.n for block in self._program.blocks)
        least = max(order, _GROWTH * active_set.working.sum()) if self._loose else order
        joining: IntArray = np.argsort(-out)[: int(min(count, max(least, _JOIN * count)))]
        return joining

    def _against(self, active_set: ActiveSet, ray: Answer) -> IntArray:
        """Return rows that stop a ray: those that oppose it most, until it would rise as fast as it falls."""
        program = self._program
        opposing = active_set.opposing(program, program.activity(ray.X, ray.u))
        order = np.argsort(-opposing)[: int((opposing > 0).sum())]
        own = active_set.of(program)
        falls = float(own.c @ ray.u) + sum(b.cost_value(X) for b, X in zip(own.blocks, ray.X, strict=True))
        enough = np.searchsorted(np.cumsum(opposing[order]), 2 * abs(falls)) + 1
        joining: IntArray = order[: max(int(enough), int(active_set.working.sum()))]
        return joining

    def _nearest(self, active_set: ActiveSet, answer: Answer) -> IntArray:
        """Return as many rows again as work, those nearest to their bounds."""
        bounds, activity = self._program.bounds, self._program.activity(answer.X, answer.u)
        room = np.minimum(np.abs(activity - bounds.lo), np.abs(bounds.hi - activity))
        room[active_set.working] = np.inf
        count = min(int(active_set.working.sum()), int((~active_set.working).sum())) if self._loose else 0
        nearest: IntArray = np.argsort(room)[:count]
        return nearest

    def _may_sharpen(self, stop: StopReason) -> bool:
        """Whether the same rows may lead to more."""
        return self._loose and stop is StopReason.CONVERGED and self._tol > _SHARPEST * self._settings.tol

    def _sharpen(self, certificate: Certificate, settled: bool) -> None:
        """Ask for more in the next round."""
        enough = _ENOUGH * self._settings.tol
        if settled and self._tol <= enough:  # the gap of the whole is relative to something smaller
            self._tol *= _SHARPER
        else:
            self._tol = float(np.clip(0.0 if settled else _SHARPER * certificate.gap, enough, self._tol))

    def _without_clear(self, active_set: ActiveSet, y: Array, certificate: Certificate) -> ActiveSet:
        """Return the active set without the rows that are clearly at one end of their range, each once."""
        if not self._loose or certificate.gap > _SETTLED:
            return active_set
        bounds = self._program.bounds
        price = np.where(np.isfinite(bounds.gamma), bounds.gamma, np.abs(y).max(initial=0.0))
        full = (bounds.kind == Penalty.HINGE) & (np.abs(y) > (1 - _CLEAR) * price)
        clear = active_set.working & self._rest & ~self._left & (full | (np.abs(y) < _CLEAR * price))
        self._left |= clear
        held = np.where(full, np.copysign(bounds.gamma, y), 0.0)
        return ActiveSet(active_set.working & ~clear, np.where(clear, held, active_set.held))
