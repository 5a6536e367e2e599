"""The progress of a route: what is recorded of its steps, who watches them, and when they end.

:class:`Progress` has the history, the clock, the table that ``verbose=True`` prints, and progress bars. One
loop, :meth:`Monitor.follow`, runs every method with a certificate at each iterate, and records it. It ends at
a certificate that meets the tolerance, a proof of infeasibility or unboundedness, a stall, or a limit, and
returns the best iterate, or the last of a dual ascent.
"""

from __future__ import annotations

import copy
import logging
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.certify import Certificate
from bregopt.certify.accuracy import Near, near_optimum
from bregopt.clock import CutShort, Ending, checkpoint
from bregopt.errors import require
from bregopt.presolve import Presolved, Reduced
from bregopt.program import Answer, Program, StopReason
from bregopt.records import cached_property, dataclass
from bregopt.rigorous import contradicts, recedes
from bregopt.routes.accuracy import NearnessRule

if TYPE_CHECKING:
    from bregopt.routes.base import Settings

logger = logging.getLogger(__name__)
_COLUMNS = (
    ("iteration", "{:>9.0f}", 9),
    ("primal", "{:>15.8e}", 15),
    ("dual", "{:>15.8e}", 15),
    ("gap", "{:>9.1e}", 9),
    ("primal_residual", "{:>9.1e}", 9),
    ("seconds", "{:>9.3f}", 9),
)
_REASONS = {
    Ending.TIME: StopReason.TIME_LIMIT,
    Ending.INTERRUPT: StopReason.INTERRUPTED,
    Ending.REQUEST: StopReason.CALLBACK,
}
_FORM = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"
_TITLES = ("iteration", "primal", "bound", "gap", "residual", "seconds")
# Relative decrease of the multipliers of definite rows before a second test. It moves A*(y) away from the
# boundary of the cone by more than round-off.
_FARKAS_MARGIN = 1e-6
# Relative change of the objective that counts as none.
_STALL_CHANGE = 1e-8
# Steps without progress after which a method falls back to its slower form, and after which a method stops
# whose best iterate meets the whole tolerance.
_FALL_BACK_STEPS = 4
# Largest error of the best iterate at which a method falls back. Far from the solution a gap may stand still
# although the iterates move on, and no digits are lost yet: 3,000 comparisons in 20 dimensions take 15 s
# instead of 0.4 s in the slower form from the start.
_FALL_BACK_ERROR = 1e-2
# Ratio of the error to that of the best iterate above which a method is stopped.
_DIVERGENCE_RATIO = 1e3
# Error of the best iterate below which what is left is round-off: another ratio counts as progress, and a
# method that counts steps without progress waits for these only. Far from the solution progress may resume
# after many steps. At a ratio of 0.5 SDPLIB's hinf1 ends with half a digit less; at 0.9 its quadratic
# assignments take a tenth more steps and gain nothing.
_NEAR_ERROR, _NEAR_RATIO, _NEAR_STEPS = 1e-4, 0.8, 6


@dataclass(frozen=True)
class Step:
    """The state of a solve when its certificate was evaluated, in the user's sign of the objective.

    Parameters
    ----------
    iteration : int
        Cycles, rounds or steps so far.
    value, bound : float
        The objective at the iterate, and the bound that its multipliers prove. The value of a point that
        violates rows may be better than the optimum.
    gap, primal_residual, dual_residual : float
        As in :class:`bregopt.Solution`; the route stops where all are within the tolerance.
    seconds : float
        Since the start of the route.
    """

    iteration: int
    value: float
    bound: float
    gap: float
    primal_residual: float
    dual_residual: float
    seconds: float


Watcher = Callable[[Step], object]


class CallbackError(Exception):
    """Carries an exception of a callback through a route, whose handlers are for its own failures."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


def reason(cut: CutShort) -> StopReason:
    """Return the reason why work ended at a checkpoint."""
    return _REASONS[cut.ending]


class Progress:
    """Records certificates at each iteration.

    Parameters
    ----------
    title : str
        First line of the table.
    verbose : bool
    maximize : bool
        Whether values are reported for a maximization.
    watchers : sequence of callables
        Called at each record; one that returns True ends the work.
    """

    def __init__(
        self, title: str, verbose: bool = False, maximize: bool = False, watchers: Sequence[Watcher] = ()
    ) -> None:
        self._title, self._verbose, self._watchers = title, verbose, watchers
        self._sign = -1.0 if maximize else 1.0
        self._start = time.perf_counter()
        self._records: list[dict[str, float]] = []
        self._logs = logger.isEnabledFor(logging.DEBUG)
        self._outside: tuple[Presolved, Progress] | None = None
        self._of_dual = False
        self._before = 0

    def within(self, presolved: Presolved) -> Progress:
        """Return the progress for a reduced program; it writes to the same records."""
        inside = copy.copy(self)
        inside._outside = presolved, self
        inside._of_dual = self._of_dual != (presolved.program.maximize != presolved.whole.maximize)
        return inside

    def after(self, iterations: int) -> Progress:
        """Return the progress of a method that goes on after the given number of iterations of another."""
        later = copy.copy(self)
        later._before += iterations
        return later

    def of_another_program(self) -> Progress:
        """Return the progress for a program that is not reduced from this one, with the same records."""
        inside = copy.copy(self)
        inside._outside = None
        return inside

    def behind(self, kind: type[Reduced]) -> bool:
        """Whether a reduction of this kind was applied to the program at hand."""
        return self._outside is not None and any(isinstance(step, kind) for step in self._outside[0].steps)

    def contradicts(self, program: Program, y: Array) -> bool:
        """Whether multipliers that contradict a (reduced) program prove that the whole has no solution."""
        if self._outside is None:
            return contradicts(program, y)
        presolved, outer = self._outside
        if not presolved.steps:
            return outer.contradicts(program, y)
        answer = presolved.restore(Answer.without_point(program, y, StopReason.INFEASIBLE))
        if answer.stop is StopReason.UNBOUNDED:  # the reduced program is the dual
            return recedes(presolved.whole, answer.X, answer.u)
        return outer.contradicts(presolved.whole, answer.y)

    def missed(self, X: Sequence[Array], u: Array, activity: Array) -> float:
        """Return the residual of a point in the whole program that the reduced program does not show.

        Where the reduced program is solved to a fraction of the tolerance, it is that fraction of it.
        """
        if self._outside is None:
            return 0.0
        presolved, _ = self._outside
        return presolved.margin * presolved.missed(X, u, activity)

    def settles(self, answer: Callable[[], Answer], tol: float) -> bool:
        """Whether an answer that meets the tolerance in a (reduced) program does so in the whole, too."""
        if self._outside is None:
            return True
        presolved, outer = self._outside
        if presolved.rescales and not presolved.settles(answer(), tol):
            return False
        return outer.settles(lambda: presolved.restore(answer()), tol)

    @property
    def watched(self) -> bool:
        """Whether somebody sees each step as it is recorded."""
        return self._verbose or bool(self._watchers) or self._logs

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def stop(self) -> StopReason | None:
        """Return the reason to stop, None if there is time left and no interrupt."""
        if clock.remaining() > 0:
            return None
        return _REASONS[clock.ending()]

    def record(self, iteration: int, certificate: Certificate, **more: float) -> None:
        """Add one record: a certificate and further quantities, with the same names each time."""
        iteration += self._before
        if self._of_dual:
            certificate = certificate.of_dual
        values = {
            "iteration": float(iteration),
            "primal": self._sign * certificate.primal,
            "dual": self._sign * certificate.dual,
            "gap": certificate.gap,
            "primal_residual": certificate.primal_residual,
            "seconds": time.perf_counter() - self._start,
            **more,
        }
        if self._verbose and not self._records:
            self._print_heading(list(more))
        self._records.append(values)
        if self._verbose:
            cells = [form.format(values[name]) for name, form, _ in _COLUMNS]
            cells += [f"{value:>{max(len(name), 9)}.4g}" for name, value in more.items()]
            sys.stdout.write("  ".join(cells) + "\n")
        if self._logs:
            logger.debug(
                "%s: iteration %d, value %.8g, bound %.8g, gap %.1e, residual %.1e",
                *(self._title, iteration, values["primal"], values["dual"]),
                *(certificate.gap, certificate.primal_residual),
            )
        if self._watchers:
            self._tell(iteration, values, certificate.dual_residual)

    def _tell(self, iteration: int, values: Mapping[str, float], dual_residual: float) -> None:
        """Call the watchers; end the work if one of them asks for it."""
        step = Step(
            iteration=iteration,
            value=values["primal"],
            bound=values["dual"],
            gap=values["gap"],
            primal_residual=values["primal_residual"],
            dual_residual=dual_residual,
            seconds=values["seconds"],
        )
        for watcher in self._watchers:
            try:
                ends = bool(watcher(step))
            except Exception as error:
                raise CallbackError(error) from error
            if ends:
                clock.end()

    def history(self) -> dict[str, Array]:
        """Return one array for each recorded quantity."""
        columns: dict[str, list[float]] = {}
        for record in self._records:
            for name, value in record.items():
                columns.setdefault(name, []).append(value)
        return {name: np.array(values, dtype=float) for name, values in columns.items()}

    def _print_heading(self, more: list[str]) -> None:
        titles = [f"{title:>{width}}" for title, (_, _, width) in zip(_TITLES, _COLUMNS, strict=True)]
        titles += [f"{name:>{max(len(name), 9)}}" for name in more]
        line = "  ".join(titles)
        sys.stdout.write(f"{self._title}\n{line}\n{'-' * len(line)}\n")


Item = TypeVar("Item")


def items_bar(items: Iterable[Item], description: str, shown: bool) -> Iterator[Item]:
    """Yield the items; a bar counts them if it is `shown`."""
    yield from _tqdm()(items, desc=description) if shown else items


@contextmanager
def digits_bar(description: str, tol: float, shown: bool) -> Iterator[Callable[[Any], None] | None]:
    """Yield a function that takes the steps of a solve, None if the bar is not `shown`.

    The bar is full when the gap and the residuals are within the tolerance. Its length is in digits, that
    is, in the logarithm of the largest of them, from the first step on.
    """
    if not shown:
        yield None
        return
    with _tqdm()(total=1.0, desc=f"bregopt {description}", bar_format=_FORM) as bar:
        first = math.nan

        def step(state: Any) -> None:
            nonlocal first
            error = max(state.gap, state.primal_residual, state.dual_residual)
            bar.set_postfix_str(f"bound {state.bound:.6g}, gap {state.gap:.1e}")
            if not 0 < error < math.inf:
                return
            digits = -math.log10(error / tol)
            first = min(digits, -1.0) if math.isnan(first) else first
            share = min(1.0, max(0.0, 1 - digits / first))
            bar.update(max(share - bar.n, 0.0))

        yield step


def _tqdm() -> Any:
    return require("tqdm.auto", "progress").tqdm  # imported only where a bar is shown


# --- The monitor ----------------------------------------------------------------------------------------


class Method(ABC):
    """The interface of a method for the loop. A point has multipliers ``y``."""

    patience: int | None = None
    """Steps without progress after which the method stalls; None for a method that detects it itself."""
    tests_multipliers = True
    """Whether the multipliers are tested for a Farkas vector at each step. Otherwise `proof` does."""
    doubles_digits = False
    """Whether it is a Newton method, whose last steps double the digits of ``X``."""
    keeps_best = True
    """Whether the result is the best iterate. Otherwise it is the last, which a dual ascent bounds best."""

    @abstractmethod
    def certificate(self, at: Any) -> Certificate:
        """Return the certificate of a point."""

    @abstractmethod
    def advance(self, at: Any) -> Any | None:
        """Return the next point, None if there is none."""

    def columns(self, at: Any) -> dict[str, float]:
        """Return the quantities that are recorded beside the certificate."""
        return {}

    def settled(self, at: Any) -> bool:
        """Whether a point that meets the tolerance is an answer to the program before the reductions."""
        return True

    def nearby(self, program: Program, at: Any) -> Near | None:
        """Return a feasible point near the answer, for a Newton method."""
        return near_optimum(program, at.y)

    def proof(self, at: Any, before: Array, certificate: Certificate, step: int) -> Answer | None:
        """Return the proof that no solution exists, if the point leads to one; `before` is the last ``y``."""
        return None

    def diverges(self, at: Any) -> bool:
        """Whether a point far worse than the best may lead to such a proof."""
        return False

    def fall_back(self) -> bool:
        """Change to a slower form that keeps more digits; False if there is none."""
        return False


class _Error(NamedTuple):
    """The error of an iterate; errors are ordered by both numbers, the first one first.

    Parameters
    ----------
    worst : float
        The largest of the gap and the residuals, with a finite gap counted as at most 1. A gap near 1 says
        only that the value and its bound have different signs or sizes.
    distance : float
        Between the value and its bound.
    """

    worst: float
    distance: float

    @staticmethod
    def of(certificate: Certificate) -> _Error:
        gap = min(certificate.gap, 1.0) if math.isfinite(certificate.gap) else math.inf
        worst = max(gap, certificate.primal_residual, certificate.dual_residual)
        return _Error(worst, abs(certificate.primal - certificate.dual))

    def is_progress(self, last: _Error, ratio: float) -> bool:
        """Whether this error is smaller by a ratio than that of the last progress."""
        if self.worst == last.worst == 1.0:
            return self.distance <= ratio * last.distance
        return self.worst <= ratio * last.worst


class Followed(NamedTuple):
    """The result of the loop.

    Parameters
    ----------
    at : point
        The best point, the last, or the one that gives the proof.
    stop : StopReason
    step : int
        The number of the last step.
    proof : Answer, optional
        The proof that no solution exists, if the method has found one.
    """

    at: Any
    stop: StopReason
    step: int
    proof: Answer | None = None


class Monitor:
    """Checks the certificates of a method at each step.

    Parameters
    ----------
    program : Program
    settings : Settings
    progress : Progress
    share : float
        Fraction of the tolerance that certificates have to meet.

    Attributes
    ----------
    farkas : array of shape (m,)
        The Farkas vector that proves infeasibility, once :meth:`look` has returned that.
    """

    def __init__(self, program: Program, settings: Settings, progress: Progress, share: float = 1.0) -> None:
        self._program, self._tol, self._progress = program, share * settings.tol, progress
        self._asked, self._tuning = settings.tol, settings.tuning
        self._asked_of_X = settings.asked_of_X
        self._looks = 0
        self._nearest: Any = None  # of the points that meet the tolerance, that nearest to the optimum
        self._before = self._anchor = np.zeros(program.m)
        self._primal = np.inf
        self.farkas = np.zeros(program.m)

    @cached_property
    def _rule(self) -> NearnessRule:
        return NearnessRule(self._program, self._tol, self._asked_of_X)

    def look(
        self, step: int, certificate: Certificate, y: Array, ends: Callable[[], bool] | None = None
    ) -> StopReason | None:
        """Record a step and return the reason to stop, None if there is none.

        A certificate that meets the tolerance is one, where `ends` agrees.
        """
        self._progress.record(step, certificate)
        if certificate.meets(self._tol) and (ends is None or ends()):
            return StopReason.CONVERGED
        if certificate.is_at_round_off(self._asked):
            return StopReason.STALLED
        change, self._before = y - self._before, y.copy()
        drift = y - self._anchor
        self._looks += 1
        doubled = self._looks & (self._looks - 1) == 0
        if doubled:
            self._anchor = self._before
        suspected = certificate.primal_residual > (self._tol if doubled else self._tuning.farkas_residual)
        if step >= self._tuning.farkas_step and suspected and self._contradiction((change, drift, y)):
            return StopReason.INFEASIBLE
        # Multipliers may stay at zero for long while the matrix still moves.
        moved, self._primal = abs(certificate.primal - self._primal), certificate.primal
        still = step and not moved > _STALL_CHANGE * abs(certificate.primal)
        # A relative change of 1e-15 is round-off.
        if still and y.any() and np.abs(change).max() <= 1e-15 * np.abs(y).max():
            return StopReason.STALLED
        return self._progress.stop()

    def follow(self, method: Method, at: Any, limit: int, step: int = 0) -> Followed:
        """Run a method until it stops, possibly at a checkpoint inside a step.

        Parameters
        ----------
        method : Method
        at : point
            The first point.
        limit : int
            The number of the last step allowed.
        step : int
            The number of the first point, which counts earlier steps.
        """
        best, before, progressed = at, at.y, step
        self._nearest = None
        least = mark = _Error(np.inf, np.inf)
        try:
            while True:
                best = best if method.keeps_best else at
                certificate = method.certificate(at)
                error = _Error.of(certificate)
                ratio = _NEAR_RATIO if mark.worst <= _NEAR_ERROR else self._tuning.progress_ratio
                if error.is_progress(mark, ratio):
                    progressed, mark = step, error
                if error <= least:
                    best, least = at, error
                stop = self._judge(method, step, certificate, at)
                if stop is not None:  # an earlier point of less error need not be an answer before reductions
                    return self._ended(at if stop is StopReason.CONVERGED else best, stop, step)
                proof = method.proof(at, before, certificate, step)
                if proof is not None:
                    return Followed(at, proof.stop, step, proof)
                if step >= limit:
                    return self._ended(best, StopReason.MAX_ITER, step)
                checkpoint()
                # Multipliers outside a log-determinant's domain prove nothing, yet the point may be fine.
                far = _DIVERGENCE_RATIO * least.worst < error.worst < np.inf
                lost = far and not method.diverges(at)
                new = None if method.patience and lost else method.advance(at)
                waited = step - progressed
                slow = waited >= _FALL_BACK_STEPS and least.worst <= _FALL_BACK_ERROR  # perhaps by round-off
                if (new is None or slow) and method.fall_back():
                    new, progressed, waited = method.advance(best), step, 0
                if new is None or waited >= self._patience(method, least.worst):
                    return self._ended(best, StopReason.STALLED, step)
                before, at, step = at.y, new, step + 1
        except CutShort as cut:
            return self._ended(best, reason(cut), step)

    def _patience(self, method: Method, least: float) -> float:
        """Return the number of steps without progress at which a method stalls, from the least error."""
        patience = method.patience or np.inf
        if least <= self._asked:
            return min(patience, _FALL_BACK_STEPS)
        near = method.patience is not None and least <= _NEAR_ERROR
        return min(patience, _NEAR_STEPS) if near else patience

    def _judge(self, method: Method, step: int, certificate: Certificate, at: Any) -> StopReason | None:
        """Return the reason to stop at a point, None if there is none."""
        if method.tests_multipliers:
            return self.look(step, certificate, at.y, lambda: self._ends(method, at, certificate))
        self._progress.record(step, certificate, **method.columns(at))
        if certificate.meets(self._tol) and self._ends(method, at, certificate):
            return StopReason.CONVERGED
        return StopReason.STALLED if certificate.is_at_round_off(self._asked) else None

    def _ends(self, method: Method, at: Any, certificate: Certificate) -> bool:
        """Whether a method ends at a point that meets the tolerance."""
        if not method.settled(at):
            return False
        if not (method.doubles_digits and self._rule.applies):
            return True
        near = method.nearby(self._program, at)
        stops = self._rule.stops(near, certificate.primal, certificate.dual)
        if self._rule.is_nearest:
            self._nearest = at
        return stops

    def _ended(self, best: Any, stop: StopReason, step: int) -> Followed:
        """Return the result, with the point nearest to the optimum, or the `best` one by its certificate.

        Once gaps are round-off they do not tell which point is nearer. A method that stalls after it has met
        the tolerance has converged: ``X`` cannot be told more closely.
        """
        if self._nearest is None:
            return Followed(best, stop, step)
        return Followed(self._nearest, StopReason.CONVERGED if stop is StopReason.STALLED else stop, step)

    def _contradiction(self, candidates: Sequence[Array]) -> bool:
        """Whether one of the candidates, or a slight decrease of it, is a Farkas vector."""
        signs = self._program.A.definite_signs
        leaning = [c - _FARKAS_MARGIN * np.abs(c) * signs for c in candidates]
        for candidate in (*candidates, *leaning):
            if contradicts(self._program, candidate):
                self.farkas = candidate
                return True
        return False
