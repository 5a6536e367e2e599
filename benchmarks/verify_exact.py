"""Bounds in high precision of SDPLIB's smallest files, also given a trace of slacks."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import bregopt as bo

_FILES = (*(f"hinf{k}" for k in range(1, 16)), "control1", "truss1", "truss4")
_TRACES = (1e4, 1e8, 1e16)


def lines(quick: bool, data: Path | None) -> Iterator[str]:
    """Yield the lines of the table; values have the sign of the minimization, as in that of `sdplib`."""
    assert data is not None, "pass --data"
    traces = _TRACES[:1] if quick else _TRACES
    given = " | ".join(f"given R = {R:g}" for R in traces)
    yield f"| file | no assumption: lower | upper | s | {given} | largest width, ulps | largest s |"
    yield "|---|--:|--:|--:|" + "--:|" * (len(traces) + 2)
    for name in _FILES[:2] if quick else _FILES:
        path = data / "sdplib" / f"{name}.dat-s.gz"
        if not path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            solution = bo.read_sdpa(path).solve()
        whole, seconds = _timed(solution)
        proven = [_timed(solution, R) for R in traces]
        ulps = max((own.upper - own.lower) / math.ulp(own.lower) for own, _ in proven)
        values = " | ".join(_shown(-own.upper) for own, _ in proven)
        most = max(each for _, each in proven)
        bounds = f"{_shown(-whole.upper)} | {_shown(-whole.lower)}"
        yield f"| {name} | {bounds} | {seconds:.2f} | {values} | {ulps:.0f} | {most:.2f} |"


def _timed(solution: bo.Solution, trace: float | None = None) -> tuple[bo.Verification, float]:
    begin = time.process_time()
    found = solution.verify(exact=True, trace=trace)
    return found, time.process_time() - begin


def _shown(value: float) -> str:
    return f"{value:.14g}" if math.isfinite(value) else ""
