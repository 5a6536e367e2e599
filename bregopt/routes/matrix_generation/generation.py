"""Matrix generation (Shen et al. 2008, Algorithm 1), for the general problem with either master.

Each round solves the master over the directions so far. At its multipliers ``y`` the pricing oracle searches
for directions ``v`` with ``v'(A*(y) - C) v > 0``, which would decrease the objective. For any ``y`` the
oracle's bound on the largest eigenvalue gives a bound on the optimum; the best one is kept with its ``y``.
The priced multipliers may be between the best so far and the master's (dual smoothing, Wentges 1997).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify import trace_bounds
from bregopt.clock import CutShort, checkpoint
from bregopt.program import Answer, LowRank, Penalty, Program, Start, StopReason
from bregopt.routes.base import Settings
from bregopt.routes.ipm.central_path import follow_path
from bregopt.routes.matrix_generation.incumbent import Incumbent, balanced
from bregopt.routes.matrix_generation.linear_master import LinearMaster
from bregopt.routes.matrix_generation.master import Outcome, State
from bregopt.routes.matrix_generation.oracle import Leading, Reward, leading
from bregopt.routes.matrix_generation.semidefinite_master import SemidefiniteMaster
from bregopt.routes.matrix_generation.tuning import MatrixGenerationTuning
from bregopt.routes.progress import Progress, reason

__all__ = ["matrix_generation"]


def matrix_generation(
    program: Program, settings: Any, master: str, start: Start | None, progress: Progress
) -> Answer:
    """Solve a linear problem over one matrix of bounded trace.

    Parameters
    ----------
    program : Program
        One block with a bound on its trace, linear objective, hard and hinge rows.
    settings : PSDBoostSettings
    master : str
        "lp" or "psd".
    start : Start, optional
    progress : Progress

    Returns
    -------
    Answer
        Its ``X`` is a ``LowRank``.
    """
    (face,) = program.faces
    if face.order == 0:
        interior = Settings(tol=settings.tol, max_iter=settings.max_iter, tuning=settings.tuning.interior)
        return follow_path(program, interior, start, progress)
    return _Generation(program, settings, master, progress).run(start)


class _Generation:
    """The state of one run: the master, the incumbent, and the weight of smoothing."""

    def __init__(self, program: Program, settings: Any, master: str, progress: Progress) -> None:
        self._program = program
        (self._face,) = program.faces
        self._settings, self._progress = settings, progress
        self._tuning: MatrixGenerationTuning = settings.tuning
        (bound,) = trace_bounds(program)
        assert bound is not None
        self._bound = bound
        self._incumbent = Incumbent(program, bound, settings.tol, self._tuning)
        self._semidefinite = master == "psd"
        self._cuts = settings.cuts(master, program.m)
        self._may_double = self._semidefinite and settings.cuts_per_round is None
        self._smoothing = _Smoothing(0.0 if self._semidefinite else settings.smoothing, self._tuning)
        self._master: Any
        if self._semidefinite:
            self._master = SemidefiniteMaster(program, self._bound, settings.tol, self._tuning)
        else:
            self._master = LinearMaster(self._program, self._bound.value, self._tuning)
        self._compresses = not settings.published
        self._patience = (
            self._tuning.semidefinite_patience if self._semidefinite else self._tuning.linear_patience
        )
        self._gap, self._stalled_rounds = np.inf, 0

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the best point and bound."""
        round_, limit = 0, self._settings.max_iter or self._tuning.default_max_iter
        try:
            self._begin(start)
            while round_ < limit:
                round_ += 1
                outcome = self._master.solve(self._gap)
                stop = self._advance(outcome, round_)
                if stop is StopReason.INFEASIBLE:
                    return Answer.without_point(self._program, outcome.y, stop, round_)
                if stop is StopReason.UNBOUNDED:
                    y = self._incumbent.y
                    return replace(Answer.without_point(self._program, y, stop, round_), u=outcome.u)
                if stop is not None:
                    return self._answer(stop, round_)
        except CutShort as cut:
            return self._answer(reason(cut), round_)
        return self._answer(StopReason.MAX_ITER, round_)

    def _answer(self, stop: StopReason, round_: int) -> Answer:
        best = self._incumbent
        X = best.of_least_rank(self._tuning.truncation_tol * self._settings.tol)
        return Answer((X,), best.u, best.y, stop, round_)

    def _begin(self, start: Start | None) -> None:
        """Add the master's first directions: from an earlier answer, a sample or uniform multipliers."""
        y = _uniform(self._program)
        if start is not None:
            y = self._program.bounds.clip(start.y)
            for X in start.X:
                self._master.add(_directions(np.asarray(X)))
        elif self._semidefinite and (sample := _sampled(self._program, self._settings)) is not None:
            self._solve_sample(sample)
        found = self._leading(y, self._cuts)
        if start is not None:
            self._incumbent.offer_bound(y, found)
        self._master.add(found.vectors)

    def _solve_sample(self, sample: Program) -> None:
        """Solve the problem of a sample of the rows roughly, for a first point and working set."""
        loose = replace(self._settings, tol=max(self._tuning.sample_tol, self._settings.tol), verbose=False)
        first = _Generation(sample, loose, "psd", Progress("sample"))
        answer = first.run(None)
        checkpoint()
        if answer.stop is StopReason.CONVERGED:
            (X,) = answer.X
            assert isinstance(X, LowRank)
            self._incumbent.offer_point(X, answer.u)
            self._master.fix_rows(X, answer.u, int(self._tuning.sample_working_set * sample.m))
            self._master.add(first._master.used)

    def _advance(self, outcome: Outcome, round_: int) -> StopReason | None:
        if outcome.state is State.INFEASIBLE:
            return self._repair(outcome)
        if outcome.state is State.UNBOUNDED:
            return StopReason.UNBOUNDED
        if outcome.state is State.CUT_SHORT:
            return self._progress.stop() or StopReason.TIME_LIMIT
        if outcome.state is State.FAILED:
            return StopReason.STALLED
        if outcome.state is State.AGAIN:
            return self._progress.stop()
        self._incumbent.offer_point(outcome.X, outcome.u)
        pays = self._price(replace(outcome, y=balanced(self._program, outcome.y, self._tuning)))
        certificate = self._incumbent.certificate()
        more = {"directions": self._master.directions.shape[1], "rows": self._master.rows}
        self._progress.record(round_, certificate, **more)
        progressed = certificate.gap < self._tuning.progress_ratio * self._gap
        self._stalled_rounds = 0 if progressed or outcome.joined else self._stalled_rounds + 1
        if self._may_double and certificate.gap > self._tuning.doubling_ratio * self._gap:
            self._cuts = min(2 * self._cuts, max(self._cuts, self._face.order // 4))
        self._gap = min(self._gap, certificate.gap)
        if certificate.meets(self._settings.tol):
            return StopReason.CONVERGED
        if (stop := self._progress.stop()) is not None:
            return stop
        if self._semidefinite and self._master.raise_price(outcome, self._incumbent.dual):
            return self._proven(outcome)
        return None if pays else StopReason.STALLED

    def _price(self, outcome: Outcome) -> bool:
        """Add directions of positive reward at the master's multipliers; False if there is no progress.

        Pricing is at smoothed multipliers first, whose bound is better and whose directions stay useful
        longer. If none of these has a positive reward at the master's own multipliers, pricing is at the
        latter.
        """
        if self._semidefinite:
            found = self._leading(outcome.y, self._cuts)
            self._incumbent.offer_bound(outcome.y, found)
            self._master.add(found.vectors)
            return self._stalled_rounds < self._patience
        best, own = self._incumbent.y, Reward(self._program, outcome.y)
        times = own.product()
        if self._compresses:
            self._master.compress(outcome.X)
            self._master.recall(
                lambda V: np.einsum("ik,ik->k", V, times(V)) - self._tuning.least_reward * own.size,
                self._cuts,
            )
        if self._smoothing.weight > 0 and np.isfinite(self._incumbent.dual):
            priced = self._smoothing.between(best, outcome.y)
            found = self._leading(priced, self._cuts)
            self._incumbent.offer_bound(priced, found)
            top = LowRank(np.sqrt(self._bound.value) * found.vectors[:, :1])
            self._smoothing.learn(self._program, top, outcome.u, priced, best, outcome.y)
            if self._add_paying(found.vectors, times, own.size):
                return True
        found = self._leading(outcome.y, self._cuts)
        self._incumbent.offer_bound(outcome.y, found)
        return self._add_paying(found.vectors, times, own.size)

    def _add_paying(self, V: Array, times: Any, size: float) -> bool:
        """Add the directions with a positive reward; False if there is none."""
        pays = np.einsum("ik,ik->k", V, times(V)) > self._tuning.least_reward * size
        if pays.any():
            self._master.add(V[:, pays])
        return bool(pays.any()) and self._stalled_rounds < self._patience

    def _repair(self, outcome: Outcome) -> StopReason | None:
        """Add directions that refute the master's proof of infeasibility (Farkas pricing)."""
        if self._progress.contradicts(self._program, outcome.y):
            return StopReason.INFEASIBLE
        reward = Reward(self._program, outcome.y, costs=False)
        found = leading(reward, self._face, self._cuts, 0.0, tuning=self._tuning)
        if not self._add_paying(found.vectors, reward.product(), reward.size):
            return StopReason.STALLED
        return self._progress.stop()

    def _proven(self, outcome: Outcome) -> StopReason | None:
        """Return INFEASIBLE if the multipliers are a Farkas vector, STALLED at the largest price."""
        if self._progress.contradicts(self._program, outcome.y):
            return StopReason.INFEASIBLE
        return StopReason.STALLED if self._master.price_is_largest else None

    def _leading(self, y: Array, count: int) -> Leading:
        """Return the oracle's result at given multipliers, as accurate as the gap requires."""
        gap, tuning, reward = self._incumbent.width, self._tuning, Reward(self._program, y)
        bounded = np.isfinite(gap) and self._bound.value > 0
        slack = tuning.bound_loss * gap / self._bound.value if bounded else 0.0
        tol = tuning.largest_lanczos_tol
        if np.isfinite(self._gap):
            tol = min(tuning.lanczos_tol_ratio * tuning.bound_loss * self._gap, tol)
        return leading(reward, self._face, count, slack, self._master.directions, tol, tuning=tuning)


def _uniform(program: Program) -> Array:
    """Return multipliers of equal weight for every row, with the sign of a finite bound."""
    norms = program.A.norms()
    side = np.where(np.isfinite(program.bounds.lo), 1.0, -1.0)
    weight = side / np.where(norms > 0, norms, 1.0)
    return program.bounds.clip(weight / max(program.m, 1))


def _directions(X: Array) -> Array:
    """Return the eigenvectors of a matrix with eigenvalues beyond round-off."""
    eigenvalues, V = np.linalg.eigh(X)
    return V[:, eigenvalues > 1e-9 * max(eigenvalues[-1], 1e-300)]


def _sampled(program: Program, settings: Any) -> Program | None:
    """Return the program with a sample of its hinge rows at a higher price, None if it has few."""
    bounds, tuning = program.bounds, settings.tuning
    hinge = np.flatnonzero((bounds.kind == Penalty.HINGE) & (bounds.lo < bounds.hi))
    size = max(tuning.sample_rows, int(tuning.sample_fraction * len(hinge)))
    if len(hinge) < tuning.sampling_rows or len(hinge) <= size:
        return None
    drawn = np.sort(np.random.default_rng(settings.seed).choice(hinge, size, replace=False))
    rows: IntArray = np.union1d(np.setdiff1d(np.arange(program.m), hinge), drawn)
    gamma = np.where(np.isin(rows, drawn), len(hinge) / size, 1.0) * bounds.gamma[rows]
    own = replace(bounds.slice(rows), gamma=gamma)
    return replace(program, A=program.A.slice(rows), B=program.B[rows], bounds=own, labels=())


class _Smoothing:
    """The weight of the best multipliers so far in the priced ones.

    The automatic rule is that of Pessoa, Sadykov, Uchoa and Vanderbeck (2018): if the bound increases from
    the priced multipliers towards the master's, the weight was too large.

    Parameters
    ----------
    weight : float in [0, 1) or "auto"
    tuning : MatrixGenerationTuning
    """

    def __init__(self, weight: float | str, tuning: MatrixGenerationTuning) -> None:
        self._automatic, self._tuning = isinstance(weight, str), tuning
        self.weight = tuning.first_smoothing if isinstance(weight, str) else float(weight)

    def between(self, best: Array, own: Array) -> Array:
        """Return the multipliers to price."""
        return self.weight * best + (1 - self.weight) * own

    def learn(self, program: Program, X: LowRank, u: Array, priced: Array, best: Array, own: Array) -> None:
        """Adapt the weight to the slope of the bound at the priced multipliers.

        Parameters
        ----------
        program : Program
        X : LowRank
            The best matrix for the priced multipliers.
        u : array of shape (k,)
        priced, best, own : array of shape (m,)
            Multipliers.
        """
        if not self._automatic:
            return
        bounds = program.bounds
        acting = np.where(priced > 0, bounds.lo, bounds.hi)
        acting = np.where(np.isfinite(acting), acting, np.where(np.isfinite(bounds.lo), bounds.lo, bounds.hi))
        rise = float((acting - program.activity((X,), u)) @ (own - best))
        if rise > 0:
            self.weight = max(self.weight - self._tuning.smoothing_decrease, 0.0)
        else:
            larger = self.weight + self._tuning.smoothing_increase * (1 - self.weight)
            self.weight = min(larger, self._tuning.largest_smoothing)
