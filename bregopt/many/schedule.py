"""Schedules problems in tasks: sizes of tasks, tasks that are lost, and Ctrl-C.

The first tasks hold one problem each, and show what a problem costs. Later tasks hold as many as take
``_SECONDS``, which is long against the overhead of a task (benchmarks/many.py), but at most a share of those
that are left, so that the workers end together (guided self-scheduling; Polychronopoulos and Kuck 1987).
"""

from __future__ import annotations

import math
import pickle
import statistics
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait

from bregopt import clock
from bregopt.executors import Crew, failed
from bregopt.many.worker import Found, Outcome, Unit, solve_task
from bregopt.routes.options import time_limit

__all__ = ["outcomes"]

_SECONDS = 0.2  # work of a task
_SHARE = 4  # tasks that each worker would still get if those left were of one size
_RECENT = 8  # tasks, of which the median is the cost of a problem
_QUEUE = 2  # tasks of each worker that are submitted and not done
_POLL = 0.25  # seconds between two looks at Ctrl-C
_GRACE = 1.0  # seconds that running tasks have after Ctrl-C
# No task may go on for this multiple of its problems' time limits, and seconds for a process to start: then
# code of others, which the limit does not reach, hangs.
_OVER, _STARTING = 2.0, 10.0

_Result = tuple[list[Unit], Found | Exception]


def outcomes(
    units: Sequence[Unit], executor: Executor | None, size: int | None
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
    """
    crew = Crew(executor)
    lost: list[Unit] = []
    try:
        for batch, result in _results(units, crew, _Sizes(size, crew.workers), _QUEUE * crew.workers):
            if isinstance(result, Found):
                yield from result.outcomes
            else:
                lost += batch
        crew.retry()
        for batch, result in _results(lost, crew, _Sizes(1, 1), 1):
            if isinstance(result, Found):
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
            for future in done:
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
