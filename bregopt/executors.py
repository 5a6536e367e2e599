"""Tasks on the executors of ``concurrent.futures``: what lost workers had, and what strange ones return.

Results of the executors of Python, loky, Dask and MPI are taken as they are. Of other classes, one result of
each pass is computed here, too, and all of the last pass.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

from bregopt.clock import checkpoint
from bregopt.errors import SolverError

# Pools that break in a row, without an answer, before no other is started; and where a task is one problem.
_BREAKS, _BREAKS_ALONE = 3, 10
_POLL = 0.5  # seconds between two looks at the processes of a pool
_KNOWN = ("bregopt", "concurrent", "distributed", "joblib", "loky", "mpi4py")  # packages of executors
_EQUAL = 1e-9  # relative difference of two results, of machines of two kinds
_AHEAD, _EACH = 64, 4  # tasks of `Crew.map` that are submitted and not done: at least, and for each worker
# Of the process pools of Python and of loky; each is an attribute of the same name with an underscore.
_SETTINGS = ("mp_context", "context", "initializer", "initargs", "max_tasks_per_child", "timeout", "env")


def check_executor(value: Any) -> None:
    """Raise unless the argument ``executor`` is one, or None."""
    if value is not None and not isinstance(value, Executor):
        raise TypeError(f"executor is {value!r}; expected a concurrent.futures.Executor, or None")


class Serial(Executor):
    """Runs each task at once, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the finished future of a call."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Crew:
    """The workers of an executor; a process pool that breaks is replaced by one with the same settings.

    One process that dies breaks a pool of Python or loky for good, with all of its tasks. Dask runs the tasks
    of a worker that dies elsewhere. An MPI process that dies ends the whole job.

    Parameters
    ----------
    executor : Executor or None
        None is a serial one.
    """

    def __init__(self, executor: Executor | None) -> None:
        self._given = self._current = executor or Serial()
        self._error: BrokenExecutor | None = None  # of the last pool, if no other follows
        self._owners: dict[Future[Any], Executor] = {}
        self._breaks = self._submitted = 0
        self._most_breaks = _BREAKS
        self._is_known = type(self._given).__module__.partition(".")[0] in _KNOWN
        self._last: tuple[Callable[..., Any], tuple[Any, ...], list[tuple[Any, Any]]] | None = None
        self._dead: set[int] = set()  # processes at the last look

    @property
    def workers(self) -> int:
        """The number of workers, at least one; Dask may change it at any time."""
        return max(1, _workers(self._current))

    @property
    def shares_memory(self) -> bool:
        """Whether the workers have the memory of this process, so that arguments are not copied."""
        return isinstance(self._current, Serial | ThreadPoolExecutor)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Return the future of a call, for :meth:`result`.

        Raises
        ------
        RuntimeError
            If the executor was shut down.
        """
        self._submitted += 1
        try:
            if self._error is not None:
                raise self._error
            future = self._current.submit(_call, self._submitted, function, *arguments)
        except BrokenExecutor as error:
            future = failed(error)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise RuntimeError(
                f"executor is a {type(self._given).__name__} that was shut down ({error}); expected one that "
                "runs: call this inside its with block, or make a new one"
            ) from error
        if not isinstance(future, Future):
            kind = type(self._given).__name__
            raise TypeError(f"executor is a {kind} whose submit returns {future!r}; expected a Future")
        self._owners[future] = self._current
        return future

    def result(self, future: Future[Any]) -> Any:
        """Wait for the result of a call.

        Raises
        ------
        CutShort
            At the end of a time limit that is set here.
        Exception
            That of the call, or the one by which it was lost.
        """
        owner = self._owners.pop(future, None)
        while True:
            try:
                error = future.exception(_POLL)
                break
            except TimeoutError:
                self.watch()
                checkpoint()
            except CancelledError:
                raise CancelledError("the executor cancelled a task; was it shut down meanwhile?") from None
        if error is None:
            self._breaks = 0
            return future.result()
        if _is_lost(error):
            raise BrokenExecutor("the scheduler lost a task with its worker") from error
        if isinstance(error, BrokenExecutor) and owner is self._current:
            self._replace(error)
        raise error if isinstance(error, Exception) else CancelledError(repr(error))

    def map(self, function: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Iterator[Any]:
        """Yield the results of a function of each item and of shared arguments, in the order of the items.

        Tasks that are lost with a worker run again, on the pool that replaces the broken one.

        Raises
        ------
        RuntimeError
            If the executor was shut down.
        BrokenExecutor
            If several pools in a row break without a result, or no other can be started.
        SolverError
            If an executor of an unknown class returns another result than this process.
        """
        if self._is_known:
            return self._mapped(function, items, *shared)
        return self._compared(function, tuple(items), shared)

    def _compared(
        self,
        function: Callable[..., Any],
        items: tuple[Any, ...],
        shared: tuple[Any, ...],
    ) -> Iterator[Any]:
        """Yield the results of an executor of an unknown class; the first and a random one are compared."""
        pairs: list[tuple[Any, Any]] = []
        self._last = function, shared, pairs
        for item, result in zip(items, self._mapped(function, items, *shared), strict=True):
            if not pairs:
                self._compare(function, item, shared, result)
            elif type(result) is not type(pairs[0][1]):
                raise self._lied(f"a {type(result).__name__} in place of a {type(pairs[0][1]).__name__}")
            pairs.append((item, result))
            yield result
        if len(pairs) > 1:
            item, result = random.SystemRandom().choice(pairs)
            self._compare(function, item, shared, result)

    def compare_last(self) -> None:
        """Compute the whole last pass of an executor of an unknown class here, and compare the results.

        Raises
        ------
        SolverError
            If a result differs.
        """
        if self._last is not None:
            function, shared, pairs = self._last
            for item, result in pairs:
                self._compare(function, item, shared, result)

    def _compare(self, function: Callable[..., Any], item: Any, shared: tuple[Any, ...], result: Any) -> None:
        if not _agree(result, function(item, *shared)):
            raise self._lied("another result than this process")

    def _lied(self, what: str) -> SolverError:
        kind = type(self._given).__name__
        return SolverError(f"executor is a {kind} that returned {what}; expected the results of its tasks")

    def _mapped(self, function: Callable[..., Any], items: Iterable[Any], *shared: Any) -> Iterator[Any]:
        waiting, pending = iter(items), deque[tuple[Any, Future[Any]]]()
        ahead = 1 if isinstance(self._current, Serial) else max(_AHEAD, _EACH * self.workers)
        is_alone = False
        try:
            while True:
                checkpoint()
                new = islice(waiting, ahead - len(pending))
                pending.extend((item, self.submit(function, item, *shared)) for item in new)
                if not pending:
                    return
                try:
                    result = self.result(pending[0][1])
                except BrokenExecutor:
                    if self._error is not None:
                        raise
                    # Whose task broke the pool is unknown. The first runs alone, so that another that always
                    # ends its worker cannot take the result of this one with it.
                    item = pending[0][0]
                    self._owners.pop(pending[0][1], None)
                    pending[0] = item, self.submit(function, item, *shared)
                    is_alone = True
                    continue
                pending.popleft()
                if is_alone:
                    is_alone = False
                    for k, (item, future) in enumerate(pending):
                        if not _succeeded(future):
                            self._owners.pop(future, None)
                            pending[k] = item, self.submit(function, item, *shared)
                yield result
        finally:
            for _, future in pending:
                future.cancel()
                self._owners.pop(future, None)

    def watch(self) -> None:
        """Break a process pool that waits in vain; to be called now and then while no task ends.

        A process that dies while it sends a result leaves a part of it, and Python's pool waits for the rest
        for ever. A pool that can notice a death breaks before the second look.
        """
        dead = _dead(self._current)
        if dead & self._dead:
            _end(self._current)
        self._dead = dead

    def end(self) -> None:
        """End the processes of a pool whose tasks do not end, so that these fail; threads cannot be ended."""
        if getattr(self._current, "_processes", None):
            _end(self._current)

    def retry(self) -> None:
        """Count the pools that break anew, and allow more: from now on each task is one problem."""
        self._breaks, self._most_breaks = 0, _BREAKS_ALONE
        if self._error is not None and (new := _renewed(self._current)) is not None:
            self._current, self._error = new, None

    def close(self) -> None:
        """Shut down a pool that was started here; the user's executor stays as it is."""
        if self._current is not self._given:
            self._current.shutdown(wait=False)  # loky's has no other argument in common with Python's

    def _replace(self, error: BrokenExecutor) -> None:
        self.close()
        self._breaks += 1
        many = self._breaks >= self._most_breaks
        new = None if many else _renewed(self._current)
        if new is not None:
            self._current = new
            return
        self._error = error
        kind = type(self._given).__name__
        error.add_note(
            f"bregopt starts no other executor in place of this {kind}: "
            + (f"{self._breaks} broke in a row" if many else "it knows process pools only")
            + ". Does a task end its worker, or need more memory than there is?"
        )


def failed(error: Exception) -> Future[Any]:
    """Return a future that has failed."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _is_lost(error: BaseException) -> bool:
    """Whether Dask reports a task that it runs again, as its worker died while the result was on the way.

    Dask's future then has the error of unpacking an outcome that is neither a result nor an exception.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    inside = trace is not None and trace.tb_frame.f_code.co_name == "_cascade_future"
    return inside and isinstance(error, ValueError) and "to unpack" in str(error)


def _call(number: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a worker; Dask would take two tasks with equal arguments, and no number, for one."""
    return function(*arguments)


def _agree(found: Any, own: Any) -> bool:
    """Whether two results are equal up to the rounding of two kinds of machines."""
    if type(found) is not type(own):
        return False
    if isinstance(own, tuple | list):
        return len(found) == len(own) and all(map(_agree, found, own))
    if isinstance(own, np.ndarray | np.generic | float) and np.asarray(own).dtype.kind in "fc":
        if np.shape(found) != np.shape(own):
            return False
        finite = np.abs(np.asarray(own)[np.isfinite(own)])
        room = _EQUAL * float(finite.max(initial=0.0))
        return np.allclose(found, own, rtol=_EQUAL, atol=min(room, 1e300), equal_nan=True)
    if isinstance(own, np.ndarray):
        return np.array_equal(found, own)
    if hasattr(own, "__dict__"):
        return vars(found).keys() == vars(own).keys() and all(
            _agree(part, vars(own)[name]) for name, part in vars(found).items()
        )
    return bool(found == own)


def _succeeded(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _workers(executor: Any) -> int:
    """Return the number of workers, this machine's number of cores if the executor does not tell."""
    if isinstance(executor, Serial):
        return 1
    if hasattr(executor, "_client"):  # Dask
        return sum(executor._client.nthreads().values())
    known = getattr(executor, "num_workers", None) or getattr(executor, "_max_workers", None)
    return known if isinstance(known, int) else os.cpu_count() or 1


def _dead(executor: Any) -> set[int]:
    """Return the processes of a pool that ended with an error."""
    processes = getattr(executor, "_processes", None) or {}
    return {pid for pid, process in list(processes.items()) if process.exitcode not in (None, 0)}


def _end(executor: Any) -> None:
    """End all processes of a pool and what waits for their results: the pool then breaks with an error."""
    for process in list(executor._processes.values()):
        process.kill()
    if executor._result_queue is not None:  # as it is after a shutdown
        executor._result_queue._writer.close()


def _renewed(executor: Any) -> Executor | None:
    """Return a new process pool with the settings of a broken one of Python or loky; None for others."""
    pool: Any = next((cls for cls in type(executor).__mro__ if cls.__name__ == "ProcessPoolExecutor"), None)
    if pool is None:
        return None
    settings = {name: getattr(executor, f"_{name}") for name in _SETTINGS if hasattr(executor, f"_{name}")}
    return pool(executor._max_workers, **settings)
