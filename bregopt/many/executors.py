"""Executors: a serial one, the number of workers of any, and a new pool in place of a broken one."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

from bregopt.many.worker import Found, Unit, solve_task

__all__ = ["Crew", "Serial"]

_BREAKS = 3  # pools that break in a row, without an answer, before no other is started


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

    One process that dies breaks a pool for good, with all of its tasks.

    Attributes
    ----------
    workers : int
    """

    def __init__(self, executor: Executor) -> None:
        self.workers = max(1, _workers(executor))
        self._given = self._current = executor
        self._error: BrokenExecutor | None = None  # of the last pool, if no other follows
        self._owners: dict[Future[Found], Executor] = {}
        self._breaks = self._submitted = 0

    def submit(self, units: Sequence[Unit]) -> Future[Found]:
        """Return the future of a task; it fails where the units cannot be sent."""
        self._submitted += 1
        future: Future[Found] = Future()
        try:
            if self._error is not None:
                raise self._error
            payload = pickle.dumps(units, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            future.set_exception(error)
        else:
            try:
                future = self._current.submit(solve_task, payload, self._submitted)
            except BrokenExecutor as error:
                future.set_exception(error)
        self._owners[future] = self._current
        return future

    def result(self, future: Future[Found]) -> Found | Exception:
        """Return what a task that is done has found, or the error by which it was lost."""
        owner = self._owners.pop(future)
        error = CancelledError() if future.cancelled() else future.exception()
        if error is None:
            self._breaks = 0
            return future.result()
        if isinstance(error, BrokenExecutor) and owner is self._current:
            self._replace(error)
        return error if isinstance(error, Exception) else CancelledError(repr(error))

    def close(self) -> None:
        """Shut down a pool that was started here; the user's executor stays as it is."""
        if self._current is not self._given:
            self._current.shutdown(wait=False, cancel_futures=True)

    def _replace(self, error: BrokenExecutor) -> None:
        self.close()
        self._breaks += 1
        new = _renewed(self._current) if self._breaks < _BREAKS else None
        if new is None:
            self._error = error
        else:
            self._current = new


def _workers(executor: Any) -> int:
    """Return the number of workers, this machine's number of cores if the executor does not tell."""
    if isinstance(executor, Serial):
        return 1
    if hasattr(executor, "_client"):  # Dask
        return sum(executor._client.nthreads().values())
    known = getattr(executor, "num_workers", None) or getattr(executor, "_max_workers", None)
    return known if isinstance(known, int) else os.cpu_count() or 1


def _renewed(executor: Any) -> Executor | None:
    """Return a new process pool with the settings of a broken one of Python or loky; None for others."""
    pool: Any = next((cls for cls in type(executor).__mro__ if cls.__name__ == "ProcessPoolExecutor"), None)
    if pool is None:
        return None
    contexts = ("mp_context", "context")  # the names of Python and of loky
    context = {name: getattr(executor, f"_{name}") for name in contexts if hasattr(executor, f"_{name}")}
    hooks = {"initializer": executor._initializer, "initargs": executor._initargs}
    return pool(executor._max_workers, **hooks, **context)
