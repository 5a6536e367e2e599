"""Passes over chunks of rows, on an executor or in this process, whichever is faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bregopt.chunks.chunk import Chunk
from bregopt.executors import Crew

__all__ = ["ExecutorPasses", "FasterPasses", "Passes"]

_TRIALS = 2  # passes of each kind that are timed


class Passes(Protocol):
    """Passes over rows."""

    def map(self, function: Callable[..., Any], *shared: Any) -> Iterable[Any]:
        """Return the results of a function of each chunk and of shared arguments, in the order of the chunks.

        Sums in that order have the same digits on every executor.
        """
        ...


@dataclass(frozen=True, eq=False)
class ExecutorPasses:
    """Passes over chunks by the workers of an executor."""

    crew: Crew
    chunks: tuple[Chunk, ...]

    def map(self, function: Callable[..., Any], *shared: Any) -> Iterator[Any]:
        """Yield the results of a function of each chunk."""
        return self.crew.map(function, self.chunks, *shared)


class FasterPasses:
    """The faster of several kinds of passes over the same rows; the first passes time each kind in turns."""

    def __init__(self, kinds: tuple[Passes, ...]) -> None:
        self._kinds = kinds
        self._seconds: list[list[float]] = [[] for _ in kinds]

    def map(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """Return the results of a function of each chunk."""
        counts = [len(spent) for spent in self._seconds]
        if min(counts) == _TRIALS:
            return list(
                self._kinds[int(np.argmin([min(spent) for spent in self._seconds]))].map(function, *shared)
            )
        kind = int(np.argmin(counts))
        begin = time.perf_counter()
        found = list(self._kinds[kind].map(function, *shared))
        self._seconds[kind].append(time.perf_counter() - begin)
        return found
