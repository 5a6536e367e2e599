"""Stacks of problems, in parts that any executor solves, and that a folder keeps.

A part solves slices of problems that fit the cache by the stacked method, and the problems left one by one.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import closing, suppress
from importlib.util import find_spec
from itertools import islice
from typing import Any, Self

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, Array, IntArray, Mask
from bregopt.clock import CutShort, Ending, threads_for
from bregopt.errors import ConvergenceWarning, SolverError
from bregopt.executors import Crew, check_executor
from bregopt.io.answers import Answers, fingerprint, folder_of
from bregopt.io.stacks import Group
from bregopt.problems.solutions import ERROR, Record, Solutions, Warnings
from bregopt.program import StopReason
from bregopt.program.stacks import STACKED, EntryStack
from bregopt.records import dataclass, replace
from bregopt.routes.progress import items_bar, reason
from bregopt.routes.registry import (
    PANEL,
    STACKS,
    check_options,
    load,
    stack_answer,
    stack_settings,
    takes_stacks,
    time_limit,
)
from bregopt.routes.solution import Solution, Status

logger = logging.getLogger(__name__)

_CHAIN = 32  # matrices of a chain of warm starts
# Entries of the matrices of a slice. Its arrays of 400 KB stay in the cache (benchmarks/many_stacks.py).
_SLICE = 50_000
_OF_RUNS = ("time_limit", "verbose")  # options that no answer of a part depends on
_QUEUE = 4  # parts of each worker that are submitted and not done
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

    def settings(self) -> dict[str, Any]:
        """Return what the answers depend on, besides the matrices."""
        own = {name: value for name, value in self.options.items() if name not in _OF_RUNS}
        return {"divergence": self.divergence, **own}

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
    """The answers of a part, its warnings, and why it ended early.

    `in_file` is the mask of those whose matrices are in the folder's file, None if there are no such.
    """

    record: Record
    notes: Warnings
    ending: Ending | None
    in_file: Mask | None = None

    @property
    def is_final(self) -> bool:
        """Whether another run finds the same: it ended, and its errors are those of data."""
        of_data = (TypeError, ValueError, SolverError)
        return self.ending is None and all(
            isinstance(error, of_data) for error in self.record.errors.values()
        )


def width_of(order: int) -> int:
    """Return the number of problems of a slice."""
    return max(1, _SLICE // max(order, 1) ** 2)


@dataclass(frozen=True, eq=False)
class _Panel:
    """How a stack is solved: the executor, whether a bar is shown or starts are warm, and the folder."""

    executor: Executor | None
    progress: bool
    chain: bool
    folder: Answers | None


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
    given = problem.options
    own = {name: value for name, value in given.items() if name not in PANEL}
    check_options(own.get("solver", "auto"), {name: own[name] for name in own if name != "solver"})
    problem = replace(problem, options=own)
    panel = _panel(given, problem)
    matrices = problem.matrices
    count = len(matrices.keys)
    record, notes, stop = Record.empty(count), Warnings(), StopReason.STALLED
    in_file, reached = np.zeros((2, count), dtype=bool)
    ending: Ending | None = None
    with clock.limited(time_limit(problem.options), batch=True), Answers.held(panel.folder):
        for a, part in _parts(problem, panel):
            record.place(part.record, a)
            notes.include(part.notes, a)
            ending = part.ending or ending
            if part.in_file is not None:
                in_file[a : a + len(part.in_file)] = part.in_file
            reached[a : a + len(part.record.X)] = True
        if record.open:
            stop = reason(CutShort(ending or clock.ending()))
    for k in record.open:
        record.status[k] = Status.USER_LIMIT.value
        notes.add(k, f"it has no answer. {stop.value}", ConvergenceWarning)
    problem.remark(notes)
    X = _matrices(matrices, record, in_file, reached, panel.folder)
    solutions = _solutions(problem, X, record, notes, stop, time.perf_counter() - begin)
    for key, error in solutions.errors.items():
        logger.warning("matrix %r has an error: %s: %s", key, type(error).__name__, error)
    if logger.isEnabledFor(logging.INFO):
        seconds = solutions.timings["total"]
        logger.info("stack of %d matrices: %s after %.3g s", len(solutions), solutions.statuses, seconds)
    notes.give(matrices.keys, solutions.errors)
    return solutions


def _panel(options: Mapping[str, Any], problem: StackedProblem) -> _Panel:
    """Return the options of a stack, checked; `problem` has its other options only."""
    executor, warm = options.get("executor"), options.get("warm_start", False)
    progress = options.get("progress", False)
    check_executor(executor)
    if not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; expected True or False")
    chained = isinstance(warm, str) and warm == "chain"
    if warm is not False and not chained:
        raise ValueError(f'warm_start is {warm!r}; expected False or "chain" for a stack of matrices')
    settings = {**problem.settings(), "warm_start": warm}
    folder = folder_of(options.get("resume"), f"bo.{problem.single.__name__}", settings)
    return _Panel(executor, progress and find_spec("tqdm") is not None, chained, folder)


def _parts(problem: StackedProblem, panel: _Panel) -> Iterator[tuple[int, Part]]:
    """Yield the parts with their first positions as they are read or solved, until the time is over."""
    count, length = len(problem.matrices.keys), _CHAIN * width_of(problem.matrices.order)
    starts = range(0, count, length)
    bar = items_bar(range(count), "matrices", panel.progress)
    for a, part in _found(problem, starts, length, panel):
        yield a, part
        for _ in part.record.X:
            next(bar, None)
        if part.ending is not None:
            break
    next(bar, None)  # it closes


def _found(problem: StackedProblem, starts: range, length: int, panel: _Panel) -> Iterator[tuple[int, Part]]:
    """Yield the parts in the folder, and then those that are solved, which it keeps."""
    left, folder = [], panel.folder
    for a in starts:
        stored = None if folder is None else _stored(folder, problem, _part(problem, a, length), a)
        if stored is None:
            left.append(a)
        else:
            yield a, stored
    solved = _serially if panel.executor is None else _on_executor
    for a, part in solved(problem, left, length, panel):
        yield a, part if folder is None else _kept(folder, problem, _part(problem, a, length), a, part)


def _stored(folder: Answers, problem: StackedProblem, own: StackedProblem, a: int) -> Part | None:
    """Return a part in the folder; None if it is not there, is shorter, or had errors in other data.

    Raises
    ------
    ValueError
        If it is of other matrices.
    """
    found = folder.load(a)
    if found is None:
        return None
    data, file, part = found
    if data == _fingerprint(own):
        if file is not None:
            folder.check_matrices(a, problem.matrices.rows_in_file(a, a + len(part.record.X)), file)
        return part
    count = len(own.matrices.keys)
    if len(part.record.X) < count or part.record.errors:
        return None
    first, last = (problem.matrices.keys[k] for k in (a, a + count - 1))
    raise ValueError(
        f"resume is {folder.path}, which has the answers to other matrices than those from {first!r} to "
        f"{last!r}; give a new folder, or the matrices of the earlier call"
    )


def _kept(folder: Answers, problem: StackedProblem, own: StackedProblem, a: int, part: Part) -> Part:
    """Write a part to the folder, and return it, without its matrices where they are in the file."""
    matrices, file = problem.matrices, None
    rows = matrices.rows_in_file(a, a + len(part.record.X))
    if rows is not None:
        X = np.asarray(own.matrices.collected(part.record.X))
        file = fingerprint(X)
        folder.write_matrices(rows.start, X, matrices.rows_in_file(0, len(matrices.keys)).stop)
        in_file = np.array([isinstance(own, np.ndarray) for own in part.record.X])
        left = [None if there else own for there, own in zip(in_file, part.record.X, strict=True)]
        part = replace(part, record=replace(part.record, X=left), in_file=in_file)
    if part.is_final:
        folder.store(a, (_fingerprint(own), file, part))
    return part


def _fingerprint(problem: StackedProblem) -> str:
    """Return the fingerprint of the matrices of a part."""
    matrices = problem.matrices
    keys = [repr(key) for key in matrices.keys]
    labels = {id(own): own for own in map(matrices.labels, range(len(keys))) if own is not None}
    return fingerprint(keys, list(labels.values()), [(own.positions, own.values) for own in matrices.groups])


def _matrices(matrices: Any, record: Record, in_file: Mask, reached: Mask, folder: Answers | None) -> Any:
    """Return the answers in the form of the data, those in the file of a folder as a memory map.

    Matrices without an answer are NaN there, too.
    """
    if folder is None or not in_file.any():
        return matrices.collected(record.X)
    X, count = folder.matrices(), len(in_file)
    for a in range(0, count, width_of(matrices.order)):
        if not reached[a]:
            rows = matrices.rows_in_file(a, min(count, a + width_of(matrices.order)))
            none = np.full((rows.stop - rows.start, *X.shape[1:]), np.nan)
            folder.write_matrices(rows.start, none, len(X))
    whole = np.asarray(X)
    for k in np.flatnonzero(in_file).tolist():
        record.X[k] = matrices.of_answers(whole, k)
    return matrices.mapped(X)


def _serially(
    problem: StackedProblem, starts: Sequence[int], length: int, panel: _Panel
) -> Iterator[tuple[int, Part]]:
    for a in starts:
        if clock.remaining() <= 0:
            return
        yield a, solve_part(_part(problem, a, length), None, panel.chain)


def _part(problem: StackedProblem, a: int, length: int) -> StackedProblem:
    count = len(problem.matrices.keys)
    return problem if length >= count else problem.part(a, min(count, a + length))


def _on_executor(
    problem: StackedProblem, starts: Sequence[int], length: int, panel: _Panel
) -> Iterator[tuple[int, Part]]:
    """Yield the parts in their order; those that are lost with a worker are solved once more, one at a time.

    The problems of a part that is lost again have its error.
    """
    left = clock.remaining()
    seconds = None if left == math.inf else left
    with closing(Crew(panel.executor)) as crew:
        lost: list[int] = []
        for again, positions in ((False, starts), (True, lost)):
            waiting, pending = iter(positions), deque[tuple[int, Future[Part]]]()
            if again:
                crew.retry()
            try:
                while True:
                    for a in islice(waiting, (1 if again else _QUEUE * crew.workers) - len(pending)):
                        own = _part(problem, a, length)
                        pending.append((a, crew.submit(_work, own, seconds, panel.chain)))
                    if not pending:
                        break
                    a, future = pending.popleft()
                    try:
                        yield a, crew.result(future)
                    except CutShort:
                        return
                    except BrokenExecutor as error:
                        if again:
                            yield a, _lost(len(_part(problem, a, length).matrices.keys), error)
                        else:
                            lost.append(a)
                    except Exception as error:
                        yield a, _lost(len(_part(problem, a, length).matrices.keys), error)
            finally:
                for _, future in pending:
                    future.cancel()


def _work(problem: StackedProblem, seconds: float | None, chain: bool) -> Part:
    """Solve a part in a worker: BLAS has one thread, so that its digits are the same everywhere."""
    with threads_for(0):
        return solve_part(problem, seconds, chain)


def _lost(count: int, error: Exception) -> Part:
    """Return the part of which a worker died, or which could not be sent."""
    record = Record.empty(count)
    for k in range(count):
        record.status[k], record.errors[k] = ERROR, error
    return Part(record, Warnings(), None)


def _solutions(
    problem: StackedProblem, X: Any, record: Record, notes: Warnings, stop: StopReason, seconds: float
) -> Solutions:
    matrices = problem.matrices
    if type(X) is np.ndarray:  # one copy of the matrices is enough
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
        _citation=load(STACKS).citation,
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
            if takes_stacks(problem.divergence, problem.options):
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
        count, n = group.values.shape[:2]
        if not 0 < n <= STACKED[problem.divergence].largest_order:
            continue
        width = width_of(n)
        length = -(-count // width)
        with threads_for(n):
            for k in range(length):  # matrices next to each other, or one of each chain
                last = min(count, (k + 1) * width)
                own = np.arange(k, count, length) if chain else np.arange(k * width, last)
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
                solution = None
                if start is not None:  # of another problem, it may not fit
                    with suppress(ValueError):
                        solution = problem.alone(k, start)
                solution = problem.alone(k, None) if solution is None else solution
                record.put(k, solution)
                start = solution if chain and solution.status == Status.OPTIMAL else None
            except (TypeError, ValueError, SolverError, OSError, ImportError) as error:
                record.status[k], record.errors[k] = ERROR, error
        for warning in caught:
            notes.add(k, str(warning.message), warning.category)
