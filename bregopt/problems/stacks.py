"""Nearest matrices of a stack, in parts that any executor solves."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from importlib.util import find_spec
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.bars import items_bar
from bregopt.clock import CutShort, Ending
from bregopt.errors import ConvergenceWarning
from bregopt.executors import check_executor
from bregopt.problems.arguments import METHOD, PANEL
from bregopt.problems.solutions import ERROR, Solutions
from bregopt.problems.stack_part import Part, StackedProblem, solve_part, width_of
from bregopt.problems.stack_record import Record, Warnings
from bregopt.program import StopReason
from bregopt.records import dataclass, replace
from bregopt.routes.options import check_options, time_limit
from bregopt.routes.progress import reason
from bregopt.routes.registry import load
from bregopt.routes.solution import Status
from bregopt.threads import threads_for

__all__ = ["solve_stack"]

logger = logging.getLogger(__name__)

_CHAIN = 32  # matrices of a chain of warm starts
_POLL = 0.25  # seconds between two looks at the time limit and Ctrl-C


@dataclass(frozen=True, eq=False)
class _Panel:
    """How a stack is solved: the executor, whether a bar is shown, and whether starts are warm."""

    executor: Executor | None
    progress: bool
    chain: bool


def solve_stack(problem: StackedProblem) -> Solutions:
    """Return the answers to a stack of problems.

    Its parts of some slices, each with its own chains, do not depend on the executor, and neither do the
    answers.

    Raises
    ------
    TypeError, ValueError
        If an option, or an argument that all problems share, is bad.
    """
    begin = time.perf_counter()
    panel = _panel(problem.options)
    problem = replace(problem, options=_of_solve(problem.options))
    matrices = problem.matrices
    record, notes, stop = Record.empty(len(matrices.keys)), Warnings(), StopReason.STALLED
    ending: Ending | None = None
    with clock.limited(time_limit(problem.options)):
        for a, part in _parts(problem, panel):
            record.place(part.record, a)
            notes.include(part.notes, a)
            ending = part.ending or ending
        if record.open:
            stop = reason(CutShort(ending or clock.ending()))
    for k in record.open:
        record.status[k] = Status.USER_LIMIT.value
        notes.add(k, f"it has no answer. {stop.value}", ConvergenceWarning)
    solutions = _solutions(problem, record, notes, stop, time.perf_counter() - begin)
    _log(solutions)
    notes.give(matrices.keys, solutions.errors)
    return solutions


def _log(solutions: Solutions) -> None:
    """Log the matrices with an error, and how the stack ended."""
    for key, error in solutions.errors.items():
        logger.warning("matrix %r has an error: %s: %s", key, type(error).__name__, error)
    if logger.isEnabledFor(logging.INFO):
        seconds = solutions.timings["total"]
        logger.info("stack of %d matrices: %s after %.3g s", len(solutions), solutions.statuses, seconds)


def _panel(options: Mapping[str, Any]) -> _Panel:
    """Return the options of a stack, checked."""
    executor, warm = options.get("executor"), options.get("warm_start", False)
    progress = options.get("progress", False)
    check_executor(executor)
    if not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; expected True or False")
    chained = isinstance(warm, str) and warm == "chain"
    if warm is not False and not chained:
        raise ValueError(f'warm_start is {warm!r}; expected False or "chain" for a stack of matrices')
    return _Panel(executor, progress and find_spec("tqdm") is not None, chained)


def _of_solve(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the solves, checked."""
    own = {name: value for name, value in options.items() if name not in PANEL}
    check_options(own.get("solver", "auto"), {name: own[name] for name in own if name != "solver"})
    return own


def _parts(problem: StackedProblem, panel: _Panel) -> Iterator[tuple[int, Part]]:
    """Yield the parts with their first positions as they are solved, until the time is over."""
    count, length = len(problem.matrices.keys), _CHAIN * width_of(problem.matrices.order)
    starts = range(0, count, length)
    solved = _serially if panel.executor is None else _on_executor
    bar = items_bar(range(count), "matrices", panel.progress)
    for a, part in solved(problem, starts, length, panel):
        yield a, part
        for _ in part.record.X:
            next(bar, None)
        if part.ending is not None:
            break
    next(bar, None)  # it closes


def _serially(
    problem: StackedProblem, starts: range, length: int, panel: _Panel
) -> Iterator[tuple[int, Part]]:
    for a in starts:
        if clock.remaining() <= 0:
            return
        yield a, solve_part(_part(problem, a, length), None, panel.chain)


def _part(problem: StackedProblem, a: int, length: int) -> StackedProblem:
    count = len(problem.matrices.keys)
    return problem if length >= count else problem.part(a, min(count, a + length))


def _on_executor(
    problem: StackedProblem, starts: range, length: int, panel: _Panel
) -> Iterator[tuple[int, Part]]:
    """Yield the parts in the order in which they end; problems of a lost part have its error."""
    assert panel.executor is not None
    left = clock.remaining()
    seconds = None if left == math.inf else left
    pending: dict[Future[Part], tuple[int, int]] = {}
    for a in starts:
        own = _part(problem, a, length)
        future = panel.executor.submit(_work, own, seconds, panel.chain)
        pending[future] = a, len(own.matrices.keys)
    try:
        while pending and clock.remaining() > 0:
            done, _ = wait(pending, _POLL, FIRST_COMPLETED)
            for future in done:
                a, count = pending.pop(future)
                error = future.exception()
                yield a, future.result() if error is None else _lost(count, error)
    finally:
        for future in pending:
            future.cancel()


def _work(problem: StackedProblem, seconds: float | None, chain: bool) -> Part:
    """Solve a part in a worker: BLAS has one thread, so that its digits are the same everywhere."""
    with threads_for(0):
        return solve_part(problem, seconds, chain)


def _lost(count: int, error: BaseException) -> Part:
    """Return the part of which a worker died, or which could not be sent."""
    record = Record.empty(count)
    known = error if isinstance(error, Exception) else RuntimeError(repr(error))
    for k in range(count):
        record.status[k], record.errors[k] = ERROR, known
    return Part(record, Warnings(), None)


def _solutions(
    problem: StackedProblem, record: Record, notes: Warnings, stop: StopReason, seconds: float
) -> Solutions:
    matrices = problem.matrices
    X = matrices.collected(record.X)
    if isinstance(X, np.ndarray):  # one copy of the matrices is enough
        whole = X.shape[1:]
        record.X[:] = [
            X[k] if isinstance(own, np.ndarray) and own.shape == whole else own
            for k, own in enumerate(record.X)
        ]
    return Solutions(
        keys=matrices.keys,
        X=X,
        status=record.status.astype(str),
        **record.numbers,
        iterations=record.iterations,
        errors={matrices.keys[k]: error for k, error in sorted(record.errors.items())},
        warnings=notes.messages(matrices.keys),
        timings={"total": seconds},
        _problem=problem,
        _matrices=record.X,
        _duals=record.duals,
        _single=record.single,
        _stop=stop.value,
        _citation=load(METHOD).citation,
    )
