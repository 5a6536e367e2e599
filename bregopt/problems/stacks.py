"""Stacks of problems, in parts that any executor solves.

A part solves slices of problems that fit the cache by the stacked method, and the problems left one by one.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Self

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, Array, IntArray, Mask
from bregopt.clock import CutShort, Ending
from bregopt.divergences.stacks import STACKED
from bregopt.errors import ConvergenceWarning, SolverError
from bregopt.executors import check_executor
from bregopt.io.stacks import Group
from bregopt.problems.arguments import METHOD, PANEL, has_method, stack_answer, stack_settings
from bregopt.problems.solutions import ERROR, Record, Solutions, Warnings
from bregopt.program import StopReason
from bregopt.program.entry_stack import EntryStack
from bregopt.records import dataclass, replace
from bregopt.routes.options import check_options, time_limit
from bregopt.routes.progress import items_bar, reason
from bregopt.routes.registry import load
from bregopt.routes.solution import Solution, Status
from bregopt.threads import threads_for

__all__ = ["Part", "Slice", "StackedProblem", "solve_part", "solve_stack", "width_of"]

logger = logging.getLogger(__name__)

_CHAIN = 32  # matrices of a chain of warm starts
_POLL = 0.25  # seconds between two looks at the time limit and Ctrl-C
# Entries of the matrices of a slice. Its arrays of 400 KB stay in the cache (benchmarks/many_stacks.py).
_SLICE = 50_000
_ROUND_OFF = 1e-10  # asymmetry, as a fraction of the largest entry, up to which entries are averaged


@dataclass(frozen=True, eq=False)
class Slice:
    """Problems of one order, and the way back from their answers.

    Parameters
    ----------
    stack : EntryStack
    places : int array of shape (b,)
        Places of its problems in the slice. Those with bad arguments are left out.
    restored : callable
        Takes the indices of some problems, their matrices and their multipliers; returns the matrices and
        the duals of the user's problems.
    unit : array of shape (b,), optional
        The largest entry of each user's matrix of which the accuracy is a part; one by default.
    """

    stack: EntryStack
    places: IntArray
    restored: Callable[[IntArray, Array, Array], tuple[Array, Sequence[Any]]]
    unit: Array | None = None


@dataclass(frozen=True, eq=False)
class StackedProblem(ABC):
    """One problem for each matrix of a stack; it pickles, for other processes.

    Parameters
    ----------
    single : callable
        The function that solves one of them.
    matrices : MatrixStack
    divergence : str
    options : dict
        Of :meth:`bregopt.Problem.solve`.
    """

    single: Callable[..., Any]
    matrices: Any
    divergence: str
    options: Mapping[str, Any]

    def part(self, a: int, b: int) -> Self:
        """Return the problems in the positions from `a` to ``b - 1``."""
        return replace(self, matrices=self.matrices.part(a, b))

    @abstractmethod
    def slice(self, A: Array, positions: IntArray, notes: Warnings) -> Slice | None:
        """Return problems of one order and the same labels; None if there is no stacked method for them."""

    def remark(self, notes: Warnings) -> None:  # noqa: B027 -- most have none
        """Add warnings about the matrices themselves."""

    def finished(self, solution: Solution, k: int) -> Solution:
        """Return the answer to the problem in position `k` as its single solve would return it."""
        return solution

    @abstractmethod
    def alone(self, k: int, start: Solution | None) -> Solution:
        """Solve the problem in position `k`, from the answer to another one if there is a `start`."""


@dataclass(frozen=True, eq=False)
class Part:
    """The answers of a part, its warnings, and why it ended early."""

    record: Record
    notes: Warnings
    ending: Ending | None


def width_of(order: int) -> int:
    """Return the number of problems of a slice."""
    return max(1, _SLICE // max(order, 1) ** 2)


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
    problem.remark(notes)
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


def solve_part(problem: StackedProblem, seconds: float | None, chain: bool) -> Part:
    """Solve the problems of a part.

    Parameters
    ----------
    problem : StackedProblem
    seconds : float or None
        Limit on the time.
    chain : bool
        Start each problem from the answer to the one before.
    """
    record, notes = Record.empty(len(problem.matrices.keys)), Warnings()
    with clock.limited(seconds):
        try:
            if has_method(problem.divergence, problem.options):
                _solve_slices(problem, chain, record, notes)
            _solve_singly(problem, chain, record, notes)
        except CutShort as cut:
            return Part(record, notes, cut.ending)
    return Part(record, notes, None)


def _solve_slices(problem: StackedProblem, chain: bool, record: Record, notes: Warnings) -> None:
    """Solve the problems of orders for which the stacked method pays."""
    settings = stack_settings(problem.options)
    starts = _Starts(problem.matrices.order) if chain else None
    for group in problem.matrices.groups:
        n = group.values.shape[1]
        if not 0 < n <= STACKED[problem.divergence].largest_order:
            continue
        with threads_for(n):
            for own in _slices(group, chain):
                clock.checkpoint()
                begin = time.perf_counter()
                regular, A = _symmetric(group.values[own])
                at = group.positions[own][regular]
                part = problem.slice(A, at, notes) if len(at) else None
                if part is None:
                    continue
                chains = np.flatnonzero(regular)[part.places]
                start = None if starts is None else starts.of(chains, part.stack, group)
                answer = stack_answer(part.stack, settings, start)
                if answer is None or len(answer.solved) == 0:
                    continue
                if starts is not None:
                    starts.put(chains[answer.solved], part.stack, group, answer.y)
                X, duals = part.restored(answer.solved, answer.X, answer.y)
                if part.unit is not None:
                    answer = answer._replace(accuracy=answer.accuracy * part.unit[answer.solved])
                each = (time.perf_counter() - begin) / len(at)
                record.store(at[part.places[answer.solved]], answer, X, duals, each, settings.tol)


def _slices(group: Group, chain: bool) -> Iterator[IntArray]:
    """Yield places in the group: those next to each other, or one of each chain."""
    count, width = len(group.positions), width_of(group.values.shape[1])
    length = -(-count // width)
    for k in range(length):
        yield np.arange(k, count, length) if chain else np.arange(k * width, min(count, (k + 1) * width))


def _symmetric(A: Array) -> tuple[Mask, Array]:
    """Return the mask of finite and symmetric matrices of a usual magnitude, and these in a new array.

    The others are solved singly, which gives their errors and warnings.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(A).max(axis=(1, 2))
        skew = np.abs(A - np.swapaxes(A, 1, 2)).max(axis=(1, 2))
        regular = (largest <= LARGEST) & ((largest >= SMALLEST) | (largest == 0))
        regular &= skew <= _ROUND_OFF * largest
    own = A[regular]
    return regular, own if not skew[regular].any() else (own + np.swapaxes(own, 1, 2)) / 2


class _Starts:
    """The multipliers of the last answer of each chain, between all labels of the stack."""

    def __init__(self, order: int) -> None:
        self._order = order
        self._last: dict[int, Array] = {}

    def of(self, chains: IntArray, stack: EntryStack, group: Group) -> Array | None:
        """Return the multipliers from which chains continue, shape (b, m); None if there are none yet."""
        if not self._last:
            return None
        newest = next(reversed(self._last.values()))
        rows = self._rows(group, stack.n)
        i, j = rows[stack.i], rows[stack.j]
        return np.stack([self._last.get(k, newest)[i, j] for k in chains.tolist()])

    def put(self, chains: IntArray, stack: EntryStack, group: Group, y: Array) -> None:
        """Keep the multipliers of answers."""
        rows = self._rows(group, stack.n)
        i, j = rows[stack.i], rows[stack.j]
        for k, own in zip(chains.tolist(), y, strict=True):
            whole = np.zeros((self._order, self._order))
            whole[i, j] = whole[j, i] = own
            self._last[k] = whole

    def _rows(self, group: Group, n: int) -> IntArray:
        return np.arange(n) if group.rows is None else group.rows


def _solve_singly(problem: StackedProblem, chain: bool, record: Record, notes: Warnings) -> None:
    """Solve the problems that have no answer yet, one by one; record errors as values."""
    start: Solution | None = None
    for k in record.open:
        clock.checkpoint()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                solution = _alone(problem, k, start)
                record.put(k, solution)
                start = solution if chain and solution.status == Status.OPTIMAL else None
            except (TypeError, ValueError, SolverError) as error:
                record.status[k], record.errors[k] = ERROR, error
        for warning in caught:
            notes.add(k, str(warning.message), warning.category)


def _alone(problem: StackedProblem, k: int, start: Solution | None) -> Solution:
    """Return the answer to one problem, from a cold start where that of another problem does not fit."""
    if start is not None:
        with suppress(ValueError):
            return problem.alone(k, start)
    return problem.alone(k, None)
