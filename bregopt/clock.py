"""The time and the threads of a call: its limit, Ctrl-C or SIGTERM, the end that a callback asks for; BLAS.

Long computations call :func:`checkpoint` before each of their steps. When the time is over it raises
:class:`CutShort`. The loop that holds an iterate catches this and returns the iterate. Python raises a
KeyboardInterrupt between any two of its instructions. Here Ctrl-C only sets the end of the time, so a solve
stops at checkpoints only, with consistent data. Batches take SIGTERM, which schedulers send before they kill,
as Ctrl-C. Single solves do not: a program should end by it, and pools end their workers by it.

A call of LAPACK cannot be stopped from Python. A checkpoint before it estimates its time, and ends the work
if that is too long.

Small matrices get one BLAS thread. OpenBLAS starts a thread for each core unless an environment variable sets
another number. On matrices of some tens of rows the threads mostly wait for each other, and far longer on a
busy machine.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from itertools import product
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

# Time of an answer's certificate beyond a limit, as a fraction of the limit and in seconds, whichever is
# larger: half of the excess that is promised.
_SHARE, _LEAST = 0.05, 0.1
_GRACE = 0.25  # seconds of the certificate after Ctrl-C: half of the time that is promised
_ORDER, _TRIALS = 200, 2  # order and number of the eigendecompositions that measure this machine's speed
# Where other processes share two cores, two threads take 7 to 160 times the CPU of one at orders 50 to 300
# (benchmarks/threads.py --orders), and more than 10 times at 400. On idle cores the gain is not measured.
SMALL = 500
_OPENBLAS = tuple(product(("", "scipy_"), ("", "64_", "_64")))  # parts of the names of its functions


class Ending(StrEnum):
    """Why work is to end before it is done."""

    TIME = "the time is over"
    INTERRUPT = "interrupted"
    REQUEST = "stopped on request"


class CutShort(Exception):  # noqa: N818
    """The work ended at a checkpoint: the time is over, the next step would exceed it, or it was stopped.

    Attributes
    ----------
    ending : Ending
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending


class _Interruption:
    """The time of Ctrl-C, in seconds of ``time.perf_counter``; infinite before."""

    at = math.inf
    foreign = False  # whether external code runs, which has no checkpoints and none of bregopt's data

    def listen(self, number: int, frame: FrameType | None) -> None:
        """Store the time of the first signal; a second one raises KeyboardInterrupt."""
        if self.at < math.inf:
            signal.default_int_handler(number, frame)
        self.at = time.perf_counter()
        if self.foreign:
            raise CutShort(Ending.INTERRUPT)


class _Request:
    """Whether a callback asked for the end."""

    made = False


class _Clock(NamedTuple):
    """Times of ``time.perf_counter``.

    Parameters
    ----------
    deadline : float
    spare : float
        Seconds that a certificate may take beyond the deadline.
    grace : float
        Seconds for which work continues after an interruption.
    interruption : _Interruption
    request : _Request
        It ends the work inside :func:`stoppable`, but not what follows.
    """

    deadline: float
    spare: float
    grace: float
    interruption: _Interruption
    request: _Request


_current: ContextVar[_Clock | None] = ContextVar("bregopt_clock", default=None)
_DEFAULTS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class _Within:
    """The context in which a clock is the current one; a generator as context takes three times the calls."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._token = _current.set(self._clock)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)


class _Outermost(_Within):
    """The context of the outermost limit, which listens to signals in the main thread without a handler."""

    def __init__(self, clock: _Clock, signals: tuple[int, ...]) -> None:
        self._clock, self._signals = clock, signals

    def __enter__(self) -> None:
        super().__enter__()
        main = threading.current_thread() is threading.main_thread()
        self._heard = [n for n in self._signals if main and signal.getsignal(n) is _DEFAULTS[n]]
        for number in self._heard:
            signal.signal(number, self._clock.interruption.listen)

    def __exit__(self, *error: object) -> None:
        for number in self._heard:
            signal.signal(number, _DEFAULTS[number])
        super().__exit__(*error)


def limited(seconds: float | None, *, batch: bool = False) -> AbstractContextManager[None]:
    """Limit the work inside to a number of seconds, and to the time left of an enclosing limit.

    The outermost limit handles Ctrl-C, in the main thread and unless the program has its own handler. That of
    a `batch` handles SIGTERM likewise. The context may be entered again: an interruption stays.
    """
    outer = _current.get()
    if outer is not None and seconds is None:
        return _UNLIMITED
    deadline = math.inf if seconds is None else time.perf_counter() + seconds
    spare = math.inf if seconds is None else max(_SHARE * seconds, _LEAST)
    if outer is None:
        signals = (signal.SIGINT, signal.SIGTERM) if batch else (signal.SIGINT,)
        return _Outermost(_Clock(deadline, spare, 0.0, _Interruption(), _Request()), signals)
    return _Within(outer._replace(deadline=min(deadline, outer.deadline), spare=min(spare, outer.spare)))


_UNLIMITED: AbstractContextManager[None] = nullcontext()


def stoppable() -> AbstractContextManager[None]:
    """Let :func:`end` end the work inside."""
    return _Within(_clock()._replace(request=_Request()))


def end() -> None:
    """End the work inside the innermost :func:`stoppable` at the next checkpoint."""
    _clock().request.made = True


def reserving(seconds: float) -> AbstractContextManager[None]:
    """End the work inside early enough to leave `seconds`, the spare time included, for what follows."""
    clock = _clock()
    return _Within(clock._replace(deadline=clock.deadline - max(seconds - clock.spare, 0.0)))


def finishing() -> AbstractContextManager[None]:
    """Let the work inside, the certificate of an answer, take the spare time after the end."""
    clock = _clock()
    return _Within(clock._replace(deadline=clock.deadline + clock.spare, grace=_GRACE))


def _clock() -> _Clock:
    clock = _current.get()
    assert clock is not None
    return clock


@contextmanager
def foreign() -> Iterator[None]:
    """Let Ctrl-C raise :class:`CutShort` anywhere in the work inside: external code has no checkpoints."""
    clock = _current.get()
    if clock is None:
        yield
        return
    checkpoint()
    clock.interruption.foreign = True
    try:
        yield
    finally:
        clock.interruption.foreign = False


def interrupt() -> None:
    """End the work for a Ctrl-C that external code caught itself."""
    clock = _current.get()
    if clock is not None:
        clock.interruption.at = time.perf_counter()
    raise CutShort(Ending.INTERRUPT)


def remaining() -> float:
    """Return the seconds left: infinite without a limit, zero or less if the work is to end."""
    clock = _current.get()
    if clock is None:
        return math.inf
    if clock.request.made:
        return 0.0
    return min(clock.deadline, clock.interruption.at + clock.grace) - time.perf_counter()


def ending() -> Ending:
    """Return the reason why the work is to end, where it is."""
    clock = _current.get()
    if clock is not None and clock.request.made:
        return Ending.REQUEST
    return Ending.INTERRUPT if clock is not None and clock.interruption.at < math.inf else Ending.TIME


def checkpoint(order: int = 0, seconds: float = 0.0) -> None:
    """Raise :class:`CutShort` if the work is to end.

    Parameters
    ----------
    order : int
        Order of a matrix that is decomposed next, in one call, which must end in time too.
    seconds : float
        Time of the next step.
    """
    clock = _current.get()
    if clock is None or (clock.deadline == clock.interruption.at == math.inf and not clock.request.made):
        return
    left = remaining()
    if left <= seconds or (order and left < seconds_for(order)):
        raise CutShort(ending())


def affords(order: int, decompositions: float = 1.0) -> bool:
    """Whether there is time for a number of eigendecompositions of a matrix of the given order."""
    left = remaining()
    return left == math.inf or left >= seconds_for(order, decompositions)


def seconds_for(order: int, decompositions: float = 1.0) -> float:
    """Return the estimated seconds of a number of eigendecompositions of a matrix of the given order."""
    relative = order / _ORDER
    # Quadratic in the order up to a few hundred, cubic beyond (measured up to an order of 2,000).
    return decompositions * _measured() * relative**2 * (5 + relative) / 6


@cache
def _measured() -> float:
    """Return the seconds of an eigendecomposition of order ``_ORDER`` on this machine."""
    S = np.random.default_rng(0).normal(size=(_ORDER, _ORDER))
    times = []
    with threads_for(_ORDER):  # on a busy machine several threads would mostly measure waiting
        for _ in range(_TRIALS):
            begin = time.perf_counter()
            np.linalg.eigh(S + S.T)
            times.append(time.perf_counter() - begin)
    return min(times)


# --- Threads of BLAS ------------------------------------------------------------------------------------


def threads_for(order: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread in a block with small matrices; do nothing for larger ones.

    Blocks may be nested, and may overlap in several threads of Python. The number of BLAS threads belongs to
    the process, except with OpenMP: the first small block to begin sets it to one, and the last one to end
    restores it. A small block has one BLAS thread throughout, so its digits do not depend on other blocks. A
    large block has one thread too while small blocks run elsewhere.

    Parameters
    ----------
    order : int
        The largest order of the matrices.
    """
    if order > SMALL:
        return nullcontext()
    shared, per_thread = _libraries()
    return shared if per_thread is None else _both(shared, per_thread)


@contextmanager
def _both(shared: _Shared, per_thread: ThreadpoolController) -> Iterator[None]:
    with per_thread.limit(limits=1), shared:
        yield


class _Shared:
    """Libraries with one number of threads for the process, and a count of the blocks that limit it to one.

    threadpoolctl 3.8 lets only one thread of Python set the number of OpenBLAS and ignores all others. This
    fails if the last block to end is not in the thread of the first one to begin. The libraries' own
    functions have no such restriction.
    """

    def __init__(self, controllers: list[Any]) -> None:
        self._libraries = [(_function(library, "get"), _function(library, "set")) for library in controllers]
        self._lock, self._blocks = Lock(), 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        """Count a block; the first one stores the numbers and sets them to one."""
        with self._lock:
            if self._blocks == 0:
                self._before = [get() for get, _ in self._libraries]
                for _, put in self._libraries:
                    put(1)
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        """Discount a block; the last one restores the numbers."""
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                for (_, put), number in zip(self._libraries, self._before, strict=True):
                    put(number)


def _function(library: Any, does: str) -> Callable[..., Any]:
    """Return the function that gets or sets the number of threads of a library from any thread of Python."""
    if library.internal_api != "openblas":
        return library.get_num_threads if does == "get" else library.set_num_threads
    names = (f"{prefix}openblas_{does}_num_threads{suffix}" for prefix, suffix in _OPENBLAS)
    return next(getattr(library.dynlib, name) for name in names if hasattr(library.dynlib, name))


@cache
def _libraries() -> tuple[_Shared, ThreadpoolController | None]:
    """Return the BLAS libraries with a number for the process, and those with one for each thread of Python.

    NumPy and SciPy may each have their own BLAS. Importing bregopt loads both. They are looked up once, as
    this takes longer than a small problem.
    """
    from threadpoolctl import ThreadpoolController  # which takes as long as ten modules of ours

    blas = ThreadpoolController().select(user_api="blas")
    per_thread = blas.select(threading_layer="openmp").select(internal_api="openblas")
    own = {library.filepath for library in per_thread.lib_controllers}
    shared = _Shared([library for library in blas.lib_controllers if library.filepath not in own])
    return shared, per_thread if own else None
