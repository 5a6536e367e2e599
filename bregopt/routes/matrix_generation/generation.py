"""Matrix generation (Shen et al. 2008, Algorithm 1), for the general problem with either master.

Each round solves the master over the directions so far. At its multipliers ``y`` the pricing oracle searches
for directions ``v`` with ``v'(A*(y) - C) v > 0``, which would decrease the objective. For any ``y`` the
oracle's bound on the largest eigenvalue gives a bound on the optimum; the best one is kept with its ``y``.
The priced multipliers may be between the best so far and the master's (dual smoothing, Wentges 1997). The
incumbent has the best feasible point, the best bound, and their certificate. Many hinges for the order of the
matrix are taken at once by the primal-dual hybrid gradient method.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array, is_one_of, positive_number
from bregopt.certify import PrimalDualPoint, certify, trace_bounds, with_trace_row
from bregopt.clock import CutShort
from bregopt.program import LIMITS, Answer, LowRank, Penalty, Program, Start, StopReason
from bregopt.records import dataclass, replace
from bregopt.routes import base
from bregopt.routes.base import Capabilities
from bregopt.routes.ipm.central_path import follow_path
from bregopt.routes.ipm.path_route import PathSettings
from bregopt.routes.matrix_generation.hybrid_gradient import HybridGradient
from bregopt.routes.matrix_generation.master import (
    LinearMaster,
    Outcome,
    SemidefiniteMaster,
    State,
)
from bregopt.routes.matrix_generation.oracle import (
    Incumbent,
    Leading,
    MatrixGenerationTuning,
    Reward,
    balanced,
    leading,
)
from bregopt.routes.progress import Progress, reason
from bregopt.routes.working_set import has_many_hinges

# Limit on the number of rounds where the option `max_iter` gives none.
_DEFAULT_MAX_ITER = 5_000
# Rounds of the linear master without progress after which the method stalls. Its gap may stay for many
# rounds, as its multipliers jump between vertices.
_LINEAR_PATIENCE = 500
# Such rounds of the semidefinite master, whose multipliers are central.
_SEMIDEFINITE_PATIENCE = 8
# Certificates of the hybrid gradient method without progress after which it stalls.
_GRADIENT_PATIENCE = 30
# Ratio of errors that counts as progress of the hybrid gradient method.
_PROGRESS = 0.8
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
# Largest weight of smoothing. At one the master's multipliers would never be priced.
_LARGEST_SMOOTHING = 0.98


# Eigenvectors in a round of the semidefinite master from this number of rows: a master with many rows costs
# more with each direction.
_MANY_ROWS_CUTS, _MANY_ROWS = 8, 2_500
_MASTERS = ("auto", "lp", "psd")
# Largest gap and residual of an answer from which eigenvalues are dropped, relative to the tolerance.
# Below one, so that the certificate of the route still meets the tolerance after round-off.
_TRUNCATION_TOL = 0.9
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
        Its ``X`` is a ``LowRank``, except where the interior-point method was needed.
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
            if self._semidefinite and self._settings.master == "auto" and has_many_hinges(self._program):
                return self._on_all_rows(start)
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

    def _on_all_rows(self, start: Start | None) -> Answer:
        """Return the answer of the hybrid gradient method, or of the interior point where it stalls."""
        program, settings = self._program, self._settings
        n, trace = program.blocks[0].n, self._bound.value
        if self._face.order < n or not trace > 0:
            return _on_path(program, settings, start, self._progress)
        X, y = LowRank(np.eye(n) * np.sqrt(trace / n)), _uniform(program)
        if start is not None and start.X:
            X, y = _low_rank(np.asarray(start.X[0])), program.bounds.clip(start.y)
        method = HybridGradient(program, self._bound, X, balanced(program, y, self._tuning))
        mark, progressed, limit = np.inf, 0, settings.max_iter or _DEFAULT_MAX_ITER
        for step in range(1, limit + 1):
            method.step()
            self._incumbent.offer_point(method.X, method.u)
            y = balanced(program, program.bounds.clip(method.y), self._tuning)
            self._incumbent.offer_bound(y, self._leading(y, 1))
            certificate = self._incumbent.certificate()
            self._progress.record(step, certificate, rank=method.X.factor.shape[1])
            if certificate.meets(settings.tol) and (found := self._settled(step)) is not None:
                return found
            if (stop := self._progress.stop()) is not None:
                return self._answer(stop, step)
            if certificate.worst <= _PROGRESS * mark:
                mark, progressed = certificate.worst, step
            elif step - progressed >= _GRADIENT_PATIENCE:
                return self._better(_on_path(program, settings, None, self._progress), step)
        return self._answer(StopReason.MAX_ITER, limit)

    def _better(self, found: Answer, step: int) -> Answer:
        """Return an answer of the path, or the best point so far where a limit ended the path before it."""
        own = self._answer(found.stop, step + found.iterations)
        if found.stop in LIMITS and self._worst(own) < self._worst(found):
            return own
        return replace(found, iterations=own.iterations)

    def _worst(self, answer: Answer) -> float:
        """Return the largest of an answer's gap and residuals."""
        return certify(PrimalDualPoint(self._program, answer.X, answer.u, answer.y)).worst

    def _settled(self, round_: int) -> Answer | None:
        """Return the answer, None if it misses the tolerance before the reductions."""
        found = self._answer(StopReason.CONVERGED, round_)
        return found if self._progress.settles(lambda: found, self._settings.tol) else None

    def _answer(self, stop: StopReason, round_: int) -> Answer:
        best = self._incumbent
        X = best.of_least_rank(_TRUNCATION_TOL * self._settings.tol)
        return Answer((X,), best.u, best.y, stop, round_)

    def _begin(self, start: Start | None) -> None:
        """Add the master's first directions: from an earlier answer, or from uniform multipliers."""
        y = _uniform(self._program)
        if start is not None:
            y = self._program.bounds.clip(start.y)
            for X in start.X:
                self._master.add(_directions(np.asarray(X)))
        found = self._leading(y, self._cuts)
        if start is not None:
            self._incumbent.offer_bound(y, found)
        self._master.add(found.vectors)

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
        if certificate.meets(self._settings.tol) and self._settled(round_) is not None:
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


def _low_rank(X: Array) -> LowRank:
    """Return a matrix as a product of its eigenvectors."""
    V = _directions(X)
    return LowRank(V * np.sqrt(np.einsum("ik,ik->k", V, X @ V)))


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
