"""The clock of a solve: whether its time is over, and whether the user has interrupted it.

Whatever takes long asks :func:`checkpoint` before each of its steps. Where the work is to end that raises
:class:`CutShort`, and the loop that holds an iterate catches it and returns the iterate. Python hands a
Ctrl-C over between any two of its instructions, as a KeyboardInterrupt; here it only moves the hands of the
clock, so that both kinds of end come at the same places, with everything whole.

A call of LAPACK cannot be ended from Python. A checkpoint before it says how long it will take, and ends the
work there if that is too long.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from types import FrameType

import numpy as np

from bregopt.threads import threads_for

__all__ = [
    "CutShort",
    "affords",
    "checkpoint",
    "finishing",
    "foreign",
    "interrupt",
    "interrupted",
    "limited",
    "remaining",
    "reserving",
    "seconds_for",
]

# What an answer's certificate may take beyond a limit, relative and in seconds: half of what is promised.
_SHARE, _LEAST = 0.05, 0.1
_GRACE = 0.25  # seconds for the same after a Ctrl-C: half of what is promised
_ORDER, _TRIALS = 200, 2  # of the eigendecompositions that tell how fast this machine is


class CutShort(Exception):  # noqa: N818
    """The work ended at a checkpoint: the time is over, or would be after the next step, or Ctrl-C came.

    Attributes
    ----------
    interrupted : bool
        Whether it was Ctrl-C.
    """

    def __init__(self, interrupted: bool) -> None:
        super().__init__("interrupted" if interrupted else "the time is over")
        self.interrupted = interrupted


class _Interruption:
    """When Ctrl-C came, in seconds of ``time.perf_counter``; infinite before."""

    at = math.inf
    foreign = False  # whether foreign code runs, which asks no checkpoint and holds nothing of ours

    def listen(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; a second one ends everything as Python does."""
        if self.at < math.inf:
            signal.default_int_handler(number, frame)
        self.at = time.perf_counter()
        if self.foreign:
            raise CutShort(True)


@dataclass(frozen=True)
class _Clock:
    """Times of ``time.perf_counter``.

    Parameters
    ----------
    deadline : float
    spare : float
        Seconds that a certificate may take beyond.
    grace : float
        Seconds in which work goes on after an interruption.
    interruption : _Interruption
    """

    deadline: float
    spare: float
    grace: float
    interruption: _Interruption

    def remaining(self) -> float:
        return min(self.deadline, self.interruption.at + self.grace) - time.perf_counter()


_current: ContextVar[_Clock | None] = ContextVar("bregopt_clock", default=None)


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Give the work inside so many seconds, and no more than the work that this is a part of has left.

    The outermost one takes over Ctrl-C, in the main thread and unless the program has its own handler.
    """
    outer = _current.get()
    deadline = math.inf if seconds is None else time.perf_counter() + seconds
    spare = math.inf if seconds is None else max(_SHARE * seconds, _LEAST)
    if outer is not None:
        inner = replace(outer, deadline=min(deadline, outer.deadline), spare=min(spare, outer.spare))
        with _set(inner):
            yield
        return
    interruption = _Interruption()
    with _listening(interruption), _set(_Clock(deadline, spare, 0.0, interruption)):
        yield


@contextmanager
def reserving(seconds: float) -> Iterator[None]:
    """End the work inside so much earlier that what follows it takes no more than the rest and the spare."""
    clock = _current.get()
    assert clock is not None
    with _set(replace(clock, deadline=clock.deadline - max(seconds - clock.spare, 0.0))):
        yield


@contextmanager
def finishing() -> Iterator[None]:
    """Let the work inside, a certificate of what is there, go on for a moment after the end."""
    clock = _current.get()
    assert clock is not None
    with _set(replace(clock, deadline=clock.deadline + clock.spare, grace=_GRACE)):
        yield


@contextmanager
def foreign() -> Iterator[None]:
    """Let Ctrl-C end the work inside wherever it is, by :class:`CutShort`: code that asks no checkpoint."""
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
    """Note a Ctrl-C that foreign code has kept to itself, and end the work."""
    clock = _current.get()
    if clock is not None:
        clock.interruption.at = time.perf_counter()
    raise CutShort(True)


@contextmanager
def _set(clock: _Clock) -> Iterator[None]:
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def _listening(interruption: _Interruption) -> Iterator[None]:
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interruption.listen)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def remaining() -> float:
    """Return the seconds left: infinite without a limit, zero or less where the work is to end."""
    clock = _current.get()
    return math.inf if clock is None else clock.remaining()


def interrupted() -> bool:
    """Whether Ctrl-C came."""
    clock = _current.get()
    return clock is not None and clock.interruption.at < math.inf


def checkpoint(order: int = 0, seconds: float = 0.0) -> None:
    """Raise :class:`CutShort` where the work is to end.

    Parameters
    ----------
    order : int
        Of a matrix that is decomposed next, in one call: it has to end in time too.
    seconds : float
        That the next step takes, whatever it is.
    """
    left = remaining()
    if left == math.inf:
        return
    if left <= seconds or (order and left < seconds_for(order)):
        raise CutShort(interrupted())


def affords(order: int, decompositions: float = 1.0) -> bool:
    """Whether there is time for so many eigendecompositions of a matrix of some order."""
    left = remaining()
    return left == math.inf or left >= seconds_for(order, decompositions)


def seconds_for(order: int, decompositions: float = 1.0) -> float:
    """Return about how long so many eigendecompositions of a matrix of some order take."""
    relative = order / _ORDER
    # Up to a few hundred the square of the order tells, beyond its cube (measured to an order of 2,000).
    return decompositions * _measured() * relative**2 * (5 + relative) / 6


@cache
def _measured() -> float:
    """Return the seconds of an eigendecomposition of a matrix of some order on this machine."""
    S = np.random.default_rng(0).normal(size=(_ORDER, _ORDER))
    times = []
    with threads_for(_ORDER):  # on a busy machine more threads tell how long they wait for each other
        for _ in range(_TRIALS):
            begin = time.perf_counter()
            np.linalg.eigh(S + S.T)
            times.append(time.perf_counter() - begin)
    return min(times)
