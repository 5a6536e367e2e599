"""What the tables of the correlation chapter share: paired times, random and real matrices."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Call = Callable[[], Any]


def paired(calls: Sequence[Call], turns: int = 5) -> list[tuple[float, float]]:
    """Return the median CPU seconds of each call, and the median of its ratios to the first one.

    The calls take turns, so that a busy machine slows all of them.
    """
    seconds = [[_cpu(call) for call in calls] for _ in range(turns)]
    ratios = [[each / row[0] for each in row] for row in seconds]
    return [
        (statistics.median(times), statistics.median(own))
        for times, own in zip(zip(*seconds, strict=True), zip(*ratios, strict=True), strict=True)
    ]


def _cpu(call: Call) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def indefinite(n: int, seed: int = 0) -> Array:
    """Return a random symmetric matrix with unit diagonal and entries from -1 to 1."""
    A = np.random.default_rng(seed).uniform(-1, 1, (n, n))
    A = np.triu(A, 1)
    return A + A.T + np.eye(n)


def real_matrices(data: Path) -> Iterator[tuple[str, Array]]:
    """Yield the names of the real matrices in the folder `nearcorr` of the data, and the matrices."""
    for path in sorted((data / "nearcorr").glob("*.csv")):
        if not path.stem.endswith("_pattern"):
            A = np.loadtxt(path, delimiter=",")
            yield path.stem, (A + A.T) / 2
