"""Many problems on any executor of ``concurrent.futures``.

They are solved in tasks. The first tasks hold one problem each, and show what a problem costs. Later tasks
hold as many as take ``_SECONDS``, which is long against the overhead of a task (benchmarks/many.py), but at
most a share of those that are left, so that the workers end together (guided self-scheduling;
Polychronopoulos and Kuck 1987).
"""

from __future__ import annotations

import copy
import math
import os
import pickle
import re
import statistics
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import closing
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array, is_one_of
from bregopt.clock import threads_for
from bregopt.errors import ConvergenceWarning, did_you_mean, warn_caller
from bregopt.executors import Crew, check_executor, failed
from bregopt.io.answers import Answers, fingerprint, folder_of
from bregopt.io.spec import problem_of_file
from bregopt.modeling.complex_variables import ComplexOperand
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import Parameter
from bregopt.program import StopReason
from bregopt.records import dataclass
from bregopt.routes.progress import items_bar
from bregopt.routes.registry import SeededOptions, SolverLike, check_options, time_limit
from bregopt.routes.solution import Solution, Status

_CHAIN = 32  # problems of a chain
_FINAL = (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
_SECONDS = 0.2  # work of a task
_SHARE = 4  # tasks that each worker would still get if those left were of one size
_RECENT = 8  # tasks, of which the median is the cost of a problem
_QUEUE = 2  # tasks of each worker that are submitted and not done
_POLL = 0.25  # seconds between two looks at Ctrl-C
_GRACE = 1.0  # seconds that running tasks have after Ctrl-C
# No task may go on for this multiple of its problems' time limits, and seconds for a process to start: then
# code of others, which the limit does not reach, hangs.
_OVER, _STARTING = 2.0, 10.0

ProblemLike = (
    Problem | str | PathLike[str] | tuple[Problem | str | PathLike[str], Mapping[Parameter, ArrayLike]]
)
Outcome = Solution | Exception
_GENERATED = re.compile(
    r"[A-Za-z]\d+"
)  # names that bregopt gives to variables, by the number of those before
_SHOWN_ONLY = ("verbose",)  # options that no answer depends on


@dataclass(frozen=True, eq=False)
class Item:
    """One problem, and how to solve it.

    Parameters
    ----------
    index : int
        Its place among all problems.
    problem : Problem or Path
        The path is that of a spec, or of an SDPA or CBF file.
    values : tuple of array
        One for each parameter of the problem; None where it has no value.
    solver : str, solver class or None
        None means the spec's route, or "auto".
    options : dict
        Of the route.
    """

    index: int
    problem: Problem | Path
    values: tuple[Array | None, ...]
    solver: Any
    options: Mapping[str, Any]


Unit = Sequence[Item]  # problems of which each starts from the answer to the one before


@dataclass(frozen=True, eq=False)
class Found:
    """The outcome of each problem of a task, with its index, and the seconds that all took."""

    outcomes: list[tuple[int, Outcome]]
    seconds: float


@overload
def solve_many(
    problems: Iterable[ProblemLike],
    executor: Executor | None = ...,
    progress: bool = ...,
    chunk: int | None = ...,
    *,
    warm_start: Literal[False, "chain"] = ...,
    resume: str | PathLike[str] | None = ...,
    iterate: Literal[False] = ...,
    solver: SolverLike | None = ...,
    **options: Unpack[SeededOptions],
) -> list[Outcome]: ...


@overload
def solve_many(
    problems: Iterable[ProblemLike],
    executor: Executor | None = ...,
    progress: bool = ...,
    chunk: int | None = ...,
    *,
    warm_start: Literal[False, "chain"] = ...,
    resume: str | PathLike[str] | None = ...,
    iterate: Literal[True],
    solver: SolverLike | None = ...,
    **options: Unpack[SeededOptions],
) -> Iterator[tuple[int, Outcome]]: ...


def solve_many(
    problems: Iterable[ProblemLike],
    executor: Executor | None = None,
    progress: bool = True,
    chunk: int | None = None,
    *,
    warm_start: Literal[False, "chain"] = False,
    resume: str | PathLike[str] | None = None,
    iterate: bool = False,
    solver: SolverLike | None = None,
    **options: Unpack[SeededOptions],
) -> list[Outcome] | Iterator[tuple[int, Outcome]]:
    """Solve many problems, on any executor of ``concurrent.futures``.

    The answers do not depend on the executor and the sizes of its tasks, bit for bit, unless a time limit
    ends a solve. The problems do not change; the answers are in the solutions only.

    Parameters
    ----------
    problems : iterable
        Each is a :class:`Problem`, the path of a spec, SDPA or CBF file, or a pair of a problem and a dict
        from its parameters, or their names, to values. A problem of many pairs is sent once for each task.
    executor : concurrent.futures.Executor, optional
        A pool of threads or processes, loky, ``mpi4py.futures.MPIPoolExecutor`` or Dask's
        ``client.get_executor()``. It is not shut down. None solves in this thread.
    progress : bool
        Show a bar of the problems, if tqdm is installed.
    chunk : int, optional
        Number of problems in a task; by default as many as take 0.2 s, by the measured cost of a problem.
        With ``warm_start="chain"`` it is the number of problems in a chain, 32 by default.
    warm_start : False or "chain"
        "chain" starts each problem from the answer to the one before, for data that change little from one
        to the next. Every `chunk` problems a new chain begins, with a cold start.
    resume : path, optional
        A folder, made if it is not there. The answers of each task are written to it when the task ends, and
        a later call solves the rest only, also after the process was killed. Exceptions are not kept: their
        problems are tried again.
    iterate : bool
        Yield pairs ``(k, answer)`` as tasks end, first those in the folder, instead of returning a list.
    solver : str or solver class, optional
        As in :meth:`Problem.solve`. None means the solver of a spec, and "auto" for problems.
    **options
        As in :meth:`Problem.solve`, such as ``tol``; they replace those of specs. ``time_limit`` is for each
        problem.

    Returns
    -------
    list of Solution or Exception, or an iterator of pairs
        In the order of the problems. Where a problem could not be solved, the exception takes the place of
        the solution: bad data, a route that failed, a worker that died twice, or
        ``concurrent.futures.CancelledError`` after Ctrl-C. An iterator has one pair for each problem.

    Raises
    ------
    TypeError, ValueError
        If an element of `problems` is of another kind, a parameter is not one of its problem, an argument
        or option is bad, or `resume` is the folder of other problems or options.

    Warns
    -----
    ConvergenceWarning
        Once, if the certificates of some answers do not meet the tolerance.

    Notes
    -----
    If a worker dies, the problems of its task are solved once more, one at a time. A broken process pool is
    replaced by a new one. BLAS has one thread in each worker. The first Ctrl-C or SIGTERM ends the work, and
    the answers that are there are returned.

    Examples
    --------
    >>> import bregopt as bo
    >>> X, p = bo.PSD(2), bo.Parameter()
    >>> prob = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == p])
    >>> [round(sol.value, 4) for sol in bo.solve_many([(prob, {p: v}) for v in (1, 2)], progress=False)]
    [2.0, 4.0]
    """
    for name, value in (("progress", progress), ("iterate", iterate)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}; expected True or False")
    batch = Batch(problems, executor, chunk, warm_start, resume, solver, options)
    shown = progress and find_spec("tqdm") is not None
    if iterate:
        return batch.pairs(shown)
    with clock.limited(None, batch=True):
        answers = dict(batch.pairs(shown))
    return [answers[k] for k in range(len(answers))]


class Batch:
    """The problems of :func:`solve_many`, of which some are solved already; the arguments are its own.

    Attributes
    ----------
    stored : dict from int to Solution
        The answers in the folder, until they are yielded.
    """

    def __init__(
        self,
        problems: Iterable[ProblemLike],
        executor: Executor | None,
        chunk: int | None,
        warm_start: Literal[False, "chain"],
        resume: str | PathLike[str] | None,
        solver: SolverLike | None,
        options: Mapping[str, Any],
    ) -> None:
        _check(executor, chunk, warm_start)
        check_options("auto" if solver is None else solver, options)
        self._items = items = _items(problems, solver, options)
        length = (chunk or _CHAIN) if warm_start else 1
        self._units: list[Unit] = [items[k : k + length] for k in range(0, len(items), length)]
        self._executor, self._size = executor, 1 if warm_start else chunk
        self._copies: dict[int, Problem] = {}  # of problems, for their fingerprints
        settings = {"solver": solver, "chain": length * bool(warm_start), **options}
        own = {name: value for name, value in settings.items() if name not in _SHOWN_ONLY}
        self._folder = folder_of(resume, "bo.solve_many", own)
        self.stored = {} if self._folder is None else self._read(self._folder)

    def pairs(self, shown: bool) -> Iterator[tuple[int, Outcome]]:
        """Yield the index and the outcome of each problem; a bar counts them if it is `shown`."""
        left = [unit for unit in self._units if any(item.index not in self.stored for item in unit)]
        for unit in left:  # the answers of a chain depend on those before
            for item in unit:
                self.stored.pop(item.index, None)
        short: dict[int, str] = {}  # statuses of answers that do not meet the tolerance
        open_, bar = dict.fromkeys(range(len(self._items))), items_bar(self._items, "problems", shown)
        ending = outcomes(left, self._executor, self._size, self._store)
        # The loop of the user is outside of the limit: there Ctrl-C is as usual.
        limit = clock.limited(None, batch=True)
        with Answers.held(self._folder), closing(ending):
            while open_:
                if self.stored:
                    k = next(iter(self.stored))
                    one: tuple[int, Outcome] | None = (k, self.stored.pop(k))
                else:
                    with limit:
                        one = next(ending, None)
                if one is None:  # Ctrl-C
                    break
                del open_[one[0]]
                next(bar, None)
                if isinstance(one[1], Solution) and one[1].status not in _FINAL:
                    short[one[0]] = one[1].status
                yield one
        next(bar, None)  # it closes
        yield from ((k, CancelledError("interrupted before it was solved")) for k in open_)
        _warn(short, len(self._items))

    def _read(self, folder: Answers) -> dict[int, Solution]:
        """Return the answers in a folder."""
        stored: dict[int, Solution] = {}
        for position in folder.positions():
            for k, known, answer in folder.load(position):
                if k >= len(self._items) or self._fingerprint(self._items[k]) != known:
                    raise ValueError(
                        f"resume is {folder.path}, the folder of other problems: it has an answer to another "
                        f"one than problems[{k}]; give a new folder, or the problems of the earlier call"
                    )
                stored[k] = answer
        return stored

    def _store(self, found: list[tuple[int, Outcome]]) -> None:
        """Write the answers of a task; errors, and answers that were interrupted, are found again."""
        kept = [
            (k, self._fingerprint(self._items[k]), answer)
            for k, answer in found
            if isinstance(answer, Solution) and StopReason.INTERRUPTED.value not in answer.stop_reason
        ]
        if self._folder is not None and kept:
            self._folder.store(kept[0][0], kept)

    def _fingerprint(self, item: Item) -> str | None:
        """Return the fingerprint of the numbers of a problem, None where it has errors."""
        try:
            if isinstance(item.problem, Path):
                spec = problem_of_file(item.problem, {})
                return fingerprint(_numbers_of(spec.problem), spec.solver, spec.options)
            copied = self._copies.get(id(item.problem))
            if copied is None:
                copied = self._copies[id(item.problem)] = pickle.loads(pickle.dumps(item.problem))
            _set_values(copied, item)
            return fingerprint(_numbers_of(copied))
        except Exception:  # it is the problem's outcome, too
            return None


def _numbers_of(problem: Problem) -> tuple[Any, ...]:
    """Return what the answer to a problem depends on: its program, generated rows, and names of the user."""
    program = problem.program()
    named = (*problem.matrices, *problem.variables)
    names = [None if _GENERATED.fullmatch(each.name) else each.name for each in named]
    rules = [
        (getattr(c, "name", None), getattr(c, "axes", None), getattr(c, "separate", None))
        for c in problem.constraints
    ]
    blocks = [(block.n, block.cost, block.nearness, block.cap) for block in program.blocks]
    data = (program.A, program.B, program.c, program.u_lo, program.u_hi, program.cones, program.bounds)
    return (blocks, data, program.offset, program.maximize, names, rules)


def _check(executor: Any, chunk: Any, warm_start: Any) -> None:
    check_executor(executor)
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int)):
        raise TypeError(f"chunk is {chunk!r}; expected a positive integer, or None")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; expected a positive integer")
    if warm_start is not False and not is_one_of(warm_start, ("chain",)):
        raise ValueError(f'warm_start is {warm_start!r}; expected False or "chain"')


def _items(problems: Any, solver: Any, options: Mapping[str, Any]) -> list[Item]:
    single = isinstance(problems, Problem | str | os.PathLike | Mapping) or sp.issparse(problems)
    single |= isinstance(problems, np.ndarray) and problems.ndim == 0
    if single or not isinstance(problems, Iterable):
        raise TypeError(f"problems is {problems!r}; expected a list of problems, paths or pairs")
    pairs = [_problem_and_values(given, f"problems[{k}]") for k, given in enumerate(problems)]
    # One copy of each problem, so that it is one object in the pickle of a task.
    sent = {id(problem): _unsolved(problem) for problem, _ in pairs}
    return [Item(k, sent[id(problem)], values, solver, options) for k, (problem, values) in enumerate(pairs)]


def _problem_and_values(given: Any, name: str) -> tuple[Problem | Path, tuple[Array | None, ...]]:
    if isinstance(given, str | Path):
        return Path(given).absolute(), ()
    problem, values = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(problem, Problem) or not isinstance(values, Mapping):
        if hasattr(given, "shape"):  # an array or a frame, not printed whole
            raise TypeError(
                f"{name} is {type(given).__name__} of shape {given.shape}; expected a bo.Problem. For "
                "nearest correlation matrices pass all matrices to bo.nearest_correlation at once"
            )
        raise TypeError(
            f"{name} is {given!r}; expected a bo.Problem, the path of a spec, or a pair "
            "(problem, {parameter: value})"
        )
    own = {_key(p, problem, name): value for p, value in values.items()}
    return problem, tuple(own.get(p, p.value) for p in problem.parameters)


def _key(key: Any, problem: Problem, name: str) -> Any:
    """Return the parameter of a problem that a key means: the object itself, or its name."""
    for p in problem.parameters:
        if key is p or (isinstance(key, str) and key == p.name):
            return p
    if isinstance(key, Parameter | ComplexOperand):
        raise ValueError(f"{name} has a value for {key.name}, a parameter of another problem")
    hint = did_you_mean(str(key), [p.name for p in problem.parameters])
    raise ValueError(f"{name} has a value for {key!r}, which is no parameter of its problem{hint}")


def _unsolved(problem: Problem | Path) -> Problem | Path:
    """Return a problem without its last answer, which workers do not need."""
    twin = copy.copy(problem)
    if isinstance(twin, Problem):
        twin.solution = twin._raw = None
    return twin


def _warn(short: Mapping[int, str], count: int) -> None:
    """Warn of answers that do not meet the tolerance."""
    if short:
        warn_caller(
            f"{len(short)} of {count} answers do not meet the tolerance, the first for "
            f"problems[{min(short)}]; see their status and stop_reason",
            ConvergenceWarning,
        )


_Result = tuple[list[Unit], Found | Exception]


def outcomes(
    units: Sequence[Unit],
    executor: Executor | None,
    size: int | None,
    store: Callable[[list[tuple[int, Outcome]]], None],
) -> Generator[tuple[int, Outcome], None, None]:
    """Yield the index and the outcome of each problem, in the order in which tasks end.

    The units of a lost task are submitted once more, one at a time: thus only the unit that ends its worker
    fails. After Ctrl-C the problems that still wait have no outcome.

    Parameters
    ----------
    units : sequence of Unit
    executor : Executor or None
    size : int or None
        Number of units in a task; None measures their cost.
    store : callable
        Takes the outcomes of each task when it ends.
    """
    crew = Crew(executor)
    lost: list[Unit] = []
    try:
        queue = 1 if executor is None else _QUEUE * crew.workers
        for batch, result in _results(units, crew, _Sizes(size, crew.workers), queue):
            if isinstance(result, Found):
                store(result.outcomes)
                yield from result.outcomes
            else:
                lost += batch
        crew.retry()
        for batch, result in _results(lost, crew, _Sizes(1, 1), 1):
            if isinstance(result, Found):
                store(result.outcomes)
                yield from result.outcomes
            else:
                yield from ((item.index, result) for unit in batch for item in unit)
    finally:
        crew.close()


class _Sizes:
    """The number of units in the next task."""

    def __init__(self, fixed: int | None, workers: int) -> None:
        self._fixed, self._workers = fixed, workers
        self._costs: deque[float] = deque(maxlen=_RECENT)  # seconds of a unit

    def record(self, seconds: float, units: int) -> None:
        self._costs.append(seconds / units)

    def next(self, left: int) -> int:
        if self._fixed is not None:
            return self._fixed
        if not self._costs:
            return 1
        even = -(-left // (_SHARE * self._workers))
        return max(1, min(even, round(_SECONDS / statistics.median_low(self._costs))))


def _results(units: Sequence[Unit], crew: Crew, sizes: _Sizes, queue: int) -> Iterator[_Result]:
    """Yield each task that ends, with what it found or the error by which it was lost."""
    waiting = deque(units)
    pending: dict[Future[Found], list[Unit]] = {}
    moved, hangs = time.monotonic(), False
    try:
        while (waiting or pending) and clock.remaining() > 0:
            while waiting and len(pending) < queue:
                size = min(sizes.next(len(waiting)), len(waiting))
                batch = [waiting.popleft() for _ in range(size)]
                pending[_submitted(crew, batch)] = batch
            done, _ = wait(pending, _POLL, FIRST_COMPLETED)
            if done:
                moved = time.monotonic()
            else:
                crew.watch()
                if time.monotonic() - moved > _patience(pending.values()):
                    hangs, moved = True, time.monotonic()
                    crew.end()
                    done, _ = wait(pending, _POLL, ALL_COMPLETED)
                    for future in pending.keys() - done:  # on threads, which go on
                        yield pending.pop(future), _late()
            for future in [own for own in pending if own in done]:
                batch, result = pending.pop(future), _found(crew, future)
                if hangs and isinstance(result, BrokenExecutor):
                    result = _late()
                if isinstance(result, Found):
                    sizes.record(result.seconds, len(batch))
                yield batch, result
    finally:
        for future in pending:
            future.cancel()
    done, _ = wait(pending, _GRACE, ALL_COMPLETED)
    yield from ((pending[future], _found(crew, future)) for future in done if not future.cancelled())


def _patience(batches: Iterable[Sequence[Unit]]) -> float:
    """Return the seconds that no task may exceed; infinite without time limits."""
    limits = [[time_limit(item.options) for unit in batch for item in unit] for batch in batches]
    sums = [math.inf if None in own else math.fsum(filter(None, own)) for own in limits]
    return _OVER * max(sums, default=math.inf) + _STARTING


def _late() -> TimeoutError:
    return TimeoutError(
        "the task did not end within twice its time_limit, which a route of another package may not look at; "
        "its process was ended, and a thread goes on"
    )


def _submitted(crew: Crew, units: Sequence[Unit]) -> Future[Found]:
    """Return the future of a task; it has failed already where the units cannot be pickled."""
    try:
        payload = pickle.dumps(units, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return failed(error)
    return crew.submit(solve_task, payload)


def _found(crew: Crew, future: Future[Found]) -> Found | Exception:
    """Return what a task that is done has found, or the error by which it was lost."""
    try:
        found: Found = crew.result(future)
    except Exception as error:
        return error
    return found


def solve_task(payload: bytes) -> Found:
    """Solve the problems of a task.

    BLAS has one thread, so the digits of an answer are the same in every process and thread.

    Parameters
    ----------
    payload : bytes
        A pickled list of units. Parameters are set in this copy of the problems, not in the user's.
    """
    begin = time.perf_counter()
    with clock.limited(None), threads_for(0):
        found = [outcome for unit in pickle.loads(payload) for outcome in _solve_unit(unit)]
    return Found(found, time.perf_counter() - begin)


def _solve_unit(unit: Unit) -> list[tuple[int, Outcome]]:
    found: list[tuple[int, Outcome]] = []
    start: Solution | None = None
    for item in unit:
        outcome = _outcome(item, start)
        start = outcome._raw if isinstance(outcome, Solution) else None
        found.append((item.index, outcome))
    return found


def _outcome(item: Item, start: Solution | None) -> Outcome:
    if clock.remaining() <= 0:  # Ctrl-C, as there is no limit
        return CancelledError("interrupted before this problem was solved")
    try:
        return _solution(item, start)
    except Exception as error:
        return error


def _solution(item: Item, start: Solution | None) -> Solution:
    if isinstance(item.problem, Path):
        spec = problem_of_file(item.problem, {})
        problem, solver = spec.problem, spec.solver
        options: Mapping[str, Any] = {**spec.options, **item.options}
    else:
        problem, solver, options = item.problem, "auto", item.options
    if problem is item.problem:
        _set_values(problem, item)
    return problem._solve(item.solver or solver, start, False, options)


def _set_values(problem: Problem, item: Item) -> None:
    """Give the parameters of a copy of the item's problem their values."""
    for p, value in zip(problem.parameters, item.values, strict=True):
        if value is None:
            raise ValueError(f"parameter {p.name} has no value; set .value, or give one beside the problem")
        p.value = value
