"""Matrix generation (Shen et al. 2008, Algorithm 1), for the general problem with either master.

Each round solves the master over the directions so far. At its multipliers ``y`` the pricing oracle searches
for directions ``v`` with ``v'(A*(y) - C) v > 0``, which would decrease the objective. For any ``y`` the
oracle's bound on the largest eigenvalue gives a bound on the optimum; the best one is kept with its ``y``.
The priced multipliers may be between the best so far and the master's (dual smoothing, Wentges 1997). The
incumbent has the best feasible point, the best bound, and their certificate.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import TINY, Array, IntArray, positive_number
from bregopt.certify import (
    Certificate,
    Known,
    PrimalDualPoint,
    TraceBound,
    certify,
    objective_size,
    trace_bounds,
    with_trace_row,
)
from bregopt.clock import CutShort, checkpoint
from bregopt.errors import is_one_of
from bregopt.program import Answer, LowRank, Penalty, Program, Start, StopReason
from bregopt.records import dataclass, replace
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.ipm.central_path import follow_path
from bregopt.routes.ipm.path_route import PathSettings
from bregopt.routes.matrix_generation.master import LinearMaster, MatrixGenerationTuning, Outcome, State
from bregopt.routes.matrix_generation.oracle import Leading, Reward, leading
from bregopt.routes.matrix_generation.semidefinite_master import SemidefiniteMaster
from bregopt.routes.progress import Progress, reason
from bregopt.routes.working_set import most_act

__all__ = ["PSDBoost", "PSDBoostSettings", "balanced", "matrix_generation"]

# Limit on the number of rounds where the option `max_iter` gives none.
_DEFAULT_MAX_ITER = 5_000
# Rounds of the linear master without progress after which the method stalls. Its gap may stay for many
# rounds, as its multipliers jump between vertices.
_LINEAR_PATIENCE = 500
# Such rounds of the semidefinite master, whose multipliers are central.
_SEMIDEFINITE_PATIENCE = 8
# Ratio of successive gaps above which the next round of the semidefinite master adds twice as many
# eigenvectors.
_DOUBLING_RATIO = 0.5
# Reward of a direction above which it is added to the linear master, relative to the size of ``A*(y) - C``.
# Smaller rewards are round-off.
_LEAST_REWARD = 1e-11
# Largest loss in the proof of a bound, relative to the gap. A smaller one makes the Cholesky factorization
# that proves it fail more often.
_BOUND_LOSS = 0.02
# Tolerance of Lanczos's method, relative to that loss, and the largest, also used before there is a gap.
_LANCZOS_TOL_RATIO, _LARGEST_LANCZOS_TOL = 0.1, 1e-2
# Number of hinge rows from which the problem of a random sample of them is solved first. It gives the first
# point and working set.
_SAMPLING_ROWS = 2_000
# Number of hinge rows in the sample, relative to all.
_SAMPLE_FRACTION = 0.1
# Tolerance of the sample's problem.
_SAMPLE_TOL = 1e-2
# Size of the first working set, relative to the number of rows of the sample's problem.
_SAMPLE_WORKING_SET = 0.5
# Largest eigenvalue that counts as zero, relative to the trace.
_ZERO_EIGENVALUE = 1e-14
# Largest weight of smoothing. At one the master's multipliers would never be priced.
_LARGEST_SMOOTHING = 0.98


# Eigenvectors in a round of the semidefinite master from this number of rows: a master with many rows costs
# more with each direction.
_MANY_ROWS_CUTS, _MANY_ROWS = 8, 2_500
_MASTERS = ("auto", "lp", "psd")
# Largest gap and residual of an answer from which eigenvalues are dropped, relative to the tolerance.
# Below one, so that the certificate of the route still meets the tolerance after round-off.
_TRUNCATION_TOL = 0.9
# Limits below which eigenvalues are dropped from the answer, relative to the trace, tried in order.
_TRUNCATION_LIMITS = (0.001, 0.0001, 1e-05, 1e-06, 1e-07, 1e-08, 1e-10)
# Increase of the weight at a step, relative to its distance from one.
_SMOOTHING_INCREASE = 0.1


@dataclass(frozen=True, kw_only=True)
class PSDBoostSettings(base.Settings):
    """Options of the route `psdboost`.

    ``master="lp", cuts_per_round=1, smoothing=0`` is Algorithm 1 of Shen et al. as published.

    Parameters
    ----------
    master : {"auto", "lp", "psd"}
        The master problem over the directions so far: a linear or a small semidefinite program.
    cuts_per_round : int, optional
        Eigenvectors added in each round; by default 5 for the linear master, 16 for the semidefinite one, and
        8 if that has many rows. For the latter two it doubles after a round that leaves more than half of the
        gap.
    smoothing : float in [0, 1) or "auto"
        Weight of the best multipliers so far in the priced ones (Wentges), against the tailing-off of the
        linear master. The semidefinite master's multipliers are central and need no smoothing.
    trace_bound : float, optional
        An upper bound on the trace, if no rows give one. It becomes a row of the problem: the answer and its
        certificate are those of ``tr X <= trace_bound``.
    tuning : MatrixGenerationTuning
        Numerical constants of the method.
    """

    master: str = "auto"
    cuts_per_round: int | None = None
    smoothing: float | str = "auto"
    trace_bound: float | None = None
    tuning: MatrixGenerationTuning = MatrixGenerationTuning()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trace_bound is not None:
            positive_number(self.trace_bound, "trace_bound")
        if not isinstance(self.master, str):
            raise TypeError(f"master is {self.master!r}; expected one of {', '.join(map(repr, _MASTERS))}")
        if self.master not in _MASTERS:
            raise ValueError(f"master is {self.master!r}; expected one of {', '.join(map(repr, _MASTERS))}")
        if self.cuts_per_round is not None:
            if isinstance(self.cuts_per_round, bool) or not isinstance(self.cuts_per_round, int):
                raise TypeError(f"cuts_per_round is {self.cuts_per_round!r}; expected an integer")
            if self.cuts_per_round < 1:
                raise ValueError(f"cuts_per_round is {self.cuts_per_round}; expected at least 1")
        if is_one_of(self.smoothing, ("auto",)):
            return
        if isinstance(self.smoothing, bool) or not isinstance(self.smoothing, int | float):
            raise TypeError(f'smoothing is {self.smoothing!r}; expected a number or "auto"')
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; expected 0 <= smoothing < 1")

    def completed(self, program: Program) -> Program:
        """Return the program with the bound on the trace, if given, as its last row."""
        if self.trace_bound is None or len(program.blocks) != 1:
            return program
        return with_trace_row(program, 0, float(self.trace_bound))

    def cuts(self, master: str, rows: int) -> int:
        """Return the number of eigenvectors added in each round of a master with `rows` rows."""
        if self.cuts_per_round is not None:
            return self.cuts_per_round
        tuning = self.tuning
        if master == "lp":
            return tuning.linear_cuts
        return tuning.semidefinite_cuts if rows < _MANY_ROWS else _MANY_ROWS_CUTS


class PSDBoost:
    """Matrix generation with a linear or a semidefinite master, for one matrix of bounded trace."""

    name: ClassVar[str] = "psdboost"
    summary: ClassVar[str] = "linear objectives over a trace-bounded matrix and LP variables (margin SDPs)"
    citation: ClassVar[str] = (
        "Shen, Welsh, Wang (2008), PSDBoost: Matrix-Generation Linear Programming for Positive "
        "Semidefinite Matrices Learning, NIPS 21"
    )
    capabilities: ClassVar[Capabilities] = Capabilities(
        objectives=frozenset({"linear"}),
        blocks=1,
        penalties=frozenset({Penalty.HARD, Penalty.HINGE}),
        needs_trace_bound=True,
        matrices=4,
        reductions=("slacks", "faces"),
    )
    Settings: ClassVar[type[base.Settings]] = PSDBoostSettings

    def refusal(self, program: Program, settings: Any) -> str | None:
        return None

    def choice(self, program: Program, settings: Any) -> str:
        master, why = _master(settings)
        cuts = f"{settings.cuts(master, program.m)} eigenvectors a round"
        if master == "psd":
            return f"semidefinite master ({why}), {cuts}"
        smoothing = settings.smoothing if settings.smoothing == "auto" else f"{settings.smoothing:g}"
        return f"HiGHS master ({why}), {cuts}, smoothing {smoothing}"

    def solve(self, program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
        return matrix_generation(program, settings, _master(settings)[0], start, progress)


# Pays on: a matrix game, n = 24.
def _master(settings: Any) -> tuple[str, str]:
    """Return the name of the master, and the reason for it."""
    if settings.master != "auto":
        return settings.master, "as asked"
    if settings.smoothing != "auto":
        return "lp", "which smoothing is for"
    return "psd", "in few rounds"


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
        Its ``X`` is a ``LowRank``, except where the interior-point method took all rows.
    """
    (face,) = program.faces
    if face.order == 0:
        return _on_path(program, settings, start, progress)
    return _Generation(program, settings, master, progress).run(start)


def _on_path(program: Program, settings: Any, start: Start | None, progress: Progress) -> Answer:
    """Return the answer of the interior-point method on all rows."""
    return follow_path(program, PathSettings(tol=settings.tol, max_iter=settings.max_iter), start, progress)


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
        self._patience = _SEMIDEFINITE_PATIENCE if self._semidefinite else _LINEAR_PATIENCE
        self._gap, self._stalled_rounds = np.inf, 0

    def run(self, start: Start | None) -> Answer:
        """Return the answer; after an interrupt or at the time limit it is the best point and bound."""
        round_, limit = 0, self._settings.max_iter or _DEFAULT_MAX_ITER
        try:
            if self._begin(start):
                return _on_path(self._program, self._settings, None, self._progress)
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
        X = best.of_least_rank(_TRUNCATION_TOL * self._settings.tol)
        return Answer((X,), best.u, best.y, stop, round_)

    def _begin(self, start: Start | None) -> bool:
        """Add the master's first directions: from an earlier answer, a sample or uniform multipliers.

        The answer is whether directions will not do, as most rows of the sample act.
        """
        y = _uniform(self._program)
        if start is not None:
            y = self._program.bounds.clip(start.y)
            for X in start.X:
                self._master.add(_directions(np.asarray(X)))
        # Pays on: 3,000 comparisons, n = 20.
        elif self._semidefinite and (sample := _sampled(self._program, self._settings)) is not None:
            y_of_sample = self._solve_sample(sample)
            if self._settings.master == "auto" and most_act(self._program, sample, y_of_sample):
                return True
        found = self._leading(y, self._cuts)
        if start is not None:
            self._incumbent.offer_bound(y, found)
        self._master.add(found.vectors)
        return False

    def _solve_sample(self, sample: Program) -> Array:
        """Solve the problem of a sample of the rows roughly, for a first point and working set.

        Returns
        -------
        array of shape (m,)
            The multipliers of the sample.
        """
        loose = replace(self._settings, tol=max(_SAMPLE_TOL, self._settings.tol), verbose=False)
        first = _Generation(sample, loose, "psd", Progress("sample"))
        answer = first.run(None)
        checkpoint()
        if answer.stop is StopReason.CONVERGED:
            (X,) = answer.X
            assert isinstance(X, LowRank)
            self._incumbent.offer_point(X, answer.u)
            self._master.fix_rows(X, answer.u, int(_SAMPLE_WORKING_SET * sample.m))
            self._master.add(first._master.used)
        return answer.y

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
        if self._may_double and certificate.gap > _DOUBLING_RATIO * self._gap:
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
        pays = np.einsum("ik,ik->k", V, times(V)) > _LEAST_REWARD * size
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
        slack = _BOUND_LOSS * gap / self._bound.value if bounded else 0.0
        tol = _LARGEST_LANCZOS_TOL
        if np.isfinite(self._gap):
            tol = min(_LANCZOS_TOL_RATIO * _BOUND_LOSS * self._gap, tol)
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
    size = max(tuning.sample_rows, int(_SAMPLE_FRACTION * len(hinge)))
    if len(hinge) < _SAMPLING_ROWS or len(hinge) <= size:
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
            larger = self.weight + _SMOOTHING_INCREASE * (1 - self.weight)
            self.weight = min(larger, _LARGEST_SMOOTHING)


class Incumbent:
    """The best point and multipliers so far of a program on its face.

    Parameters
    ----------
    program : Program
    bound : TraceBound
    tol : float
        Largest residual of points and multipliers that count as feasible.
    tuning : MatrixGenerationTuning
    """

    def __init__(
        self, program: Program, bound: TraceBound, tol: float, tuning: MatrixGenerationTuning
    ) -> None:
        self._program, self._bound, self._tol, self._tuning = program, bound, tol, tuning
        (self._block,), (face,) = program.blocks, program.faces
        first = face.embed(np.eye(face.order, 1))
        self.dual, self._primal, self._residual, self._dual_residual = -np.inf, np.inf, np.inf, np.inf
        self.y = self._violations = np.zeros(self._program.m)
        self.offer_point(
            LowRank(np.sqrt(bound.value) * first),
            np.clip(np.zeros(self._program.k), self._program.u_lo, self._program.u_hi),
        )

    @property
    def width(self) -> float:
        """Objective minus bound, infinite if one of them is missing."""
        return self._primal - self.dual

    def offer_point(self, X: LowRank, u: Array) -> None:
        """Keep a point if it is better in the larger of residual and gap.

        Without a bound, it is better if its residual is smaller, or equal with a lower objective.
        """
        program = self._program
        point = PrimalDualPoint(program, (X,), u, np.zeros(program.m))
        residual, primal = max(point.primal_residual, self._tol), point.primal
        size = max(objective_size(program, self._primal, self.dual), TINY)
        merit = self._merit(residual, primal, point.violations, size)
        if merit < self._merit(self._residual, self._primal, self._violations, size):
            self.X, self.u, self._activity, self._violations = X, u, point.activity, point.violations
            self._residual, self._primal = residual, primal

    def _merit(self, residual: float, primal: float, violations: Array, size: float) -> tuple[float, float]:
        """Return the sort key of points, least first; `size` is the same for both points of a comparison.

        The gap counts the cost of violations, as the certificate does.
        """
        if not np.isfinite(self.dual):
            return residual, primal
        loss = float(np.abs(self.y) @ violations)
        return max(residual, (abs(primal - self.dual) + loss) / size), primal

    def offer_bound(self, y: Array, found: Leading) -> None:
        """Keep multipliers with a smaller dual residual, or an equal one and a better bound.

        The multipliers of the rows that bound the trace absorb the proven bound on the largest eigenvalue of
        ``A*(y) - C``. Then ``C - A*(y)`` is psd, and Lagrange's bound is the sum of the terms of rows and
        box.
        """
        if self._bound.exact or found.bound > 0:
            y = y - found.bound * self._bound.multipliers
        bound = PrimalDualPoint(self._program, (self.X,), self.u, y, smallest_eigenvalues=(0.0,)).bound
        dual, residual = bound.value - bound.cost, max(bound.residual, self._tol)
        if (-residual, dual) > (-self._dual_residual, self.dual):
            self.dual, self.y, self._dual_residual = dual, y, residual

    def certificate(self) -> Certificate:
        """Return the certificate of point and multipliers."""
        return self._certificate(self.X, self._activity)

    def of_least_rank(self, tol: float) -> LowRank:
        """Return the point with as few orthogonal columns as the certificate allows.

        The smallest eigenvalues are dropped while gap and residuals stay within `tol` or do not increase. If
        the trace is fixed, the others are scaled up to keep it.
        """
        Q, s, _ = np.linalg.svd(self.X.factor, full_matrices=False)
        present = self.certificate()
        tol = max(tol, present.gap, present.primal_residual)
        rank = max(int((s**2 > _ZERO_EIGENVALUE * float(s @ s)).sum()), 1)
        for limit in _TRUNCATION_LIMITS:
            fewer = max(int((s**2 > limit * float(s @ s)).sum()), 1)
            if fewer < rank:
                X = LowRank(Q[:, :fewer] * (s[:fewer] * self._growth(s, fewer)))
                certificate = self._certificate(X, self._program.activity((X,), self.u))
                if max(certificate.gap, certificate.primal_residual) <= tol:
                    return X
        return LowRank(Q[:, :rank] * s[:rank])

    def _growth(self, s: Array, rank: int) -> float:
        """Return the factor of the remaining columns that keeps a fixed trace."""
        trace = float(s[:rank] @ s[:rank])
        return float(np.sqrt(float(s @ s) / trace)) if self._bound.exact and trace > 0 else 1.0

    def _certificate(self, X: LowRank, activity: Array) -> Certificate:
        known = Known(activity=activity, smallest_eigenvalues=(0.0,))
        point = PrimalDualPoint(self._program, (X,), self.u, self.y, **known)
        if np.isfinite(self.dual):
            return certify(point)
        return Certificate(self._primal, -np.inf, np.inf, point.primal_residual, 1.0, np.inf)


def balanced(program: Program, y: Array, tuning: MatrixGenerationTuning) -> Array:
    """Return multipliers near `y` with zero dual residual for unbounded variables, so that a bound exists.

    ``c - B'y`` must be zero for a free variable, and of one sign for a variable with one bound. The residual
    is distributed over the rows by the distance of their multipliers from the ends of their ranges.
    """
    lower, upper = program.bounds.dual_range()
    for _ in range(tuning.balancing_steps if program.k else 0):
        reduced = program.c - program.B.T @ y
        residual = np.where(np.isinf(program.u_hi), np.minimum(reduced, 0.0), 0.0)
        residual += np.where(np.isinf(program.u_lo), np.maximum(reduced, 0.0), 0.0)
        columns = np.flatnonzero(residual)
        if len(columns) == 0:
            break
        own = np.maximum(np.abs(y), TINY)
        room = np.minimum(np.minimum(y - lower, upper - y), own)
        B = program.B[:, columns]
        move = np.linalg.lstsq((B.T @ sp.diags_array(room) @ B).toarray(), residual[columns], rcond=None)[0]
        y = np.clip(y + room * (B @ move), lower, upper)
    return y
