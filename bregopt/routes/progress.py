"""Progress of a route: its history, its clock, the table that ``verbose=True`` prints, and progress bars."""

from __future__ import annotations

import copy
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from bregopt import clock
from bregopt.arrays import Array
from bregopt.certify import Certificate
from bregopt.clock import CutShort, Ending
from bregopt.errors import require
from bregopt.presolve import Presolved, Reduced
from bregopt.program import Answer, Program, StopReason
from bregopt.records import dataclass
from bregopt.rigorous import contradicts, recedes

__all__ = ["CallbackError", "Progress", "Step", "Watcher", "digits_bar", "items_bar", "reason"]

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
        self._records: dict[str, list[float]] = {}
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
        for name, value in values.items():
            self._records.setdefault(name, []).append(float(value))
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
        return {name: np.array(values) for name, values in self._records.items()}

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
