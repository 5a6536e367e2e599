"""Calls that stand for the lines of the tables in benchmarks/results: 0.1 to 10 seconds each.

``compare.py --tables`` compares two versions by them. They use what every version has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import large_cuts
import numpy as np
from nearness_problems import (
    correlation_problem,
    distance_problem,
    low_rank_problem,
    start_matrix,
    uniform_matrix,
)

import bregopt as bo

Call = tuple[str, Callable[[], Any]]


def of_tables(data: Path) -> Iterator[Call]:
    """Yield the name of a call and a function without arguments.

    Parameters
    ----------
    data : Path
        The data folder; SDPLIB's instances are left out without it.
    """
    yield from _nearness()
    yield from _cuts()
    yield from _margins()
    for name in ("control4", "truss4", "theta2", "mcp250-1", "gpp124-1", "arch0"):
        path = data / "sdplib" / f"{name}.dat-s.gz"
        if path.exists():
            yield f"SDPLIB {name}", bo.read_sdpa(path).solve


def _nearness() -> Iterator[Call]:
    rng = np.random.default_rng(0)
    for divergence, n in (("logdet", 500), ("von_neumann", 300)):
        yield (
            f"correlation, {divergence}, n = {n}",
            _solve(correlation_problem(divergence, start_matrix(n, rng))),
        )
    yield (
        "correlation, frobenius, n = 500",
        _solve(correlation_problem("frobenius", uniform_matrix(500, rng))),
    )
    fixed = np.arange(0, 98, 2), np.arange(1, 99, 2), np.full(49, 0.1)
    yield (
        "correlation, fixed entries, n = 200",
        _solve(correlation_problem("frobenius", uniform_matrix(200, rng), fixed)),
    )
    A, H = uniform_matrix(60, rng), rng.uniform(0.1, 10, (60, 60))
    yield "correlation, weights, n = 60", lambda: bo.nearest_correlation(A, weights=(H + H.T) / 2)
    for divergence in ("logdet", "von_neumann"):
        for soft in (False, True):
            name = f"distances, {divergence}, n = 200, 300 {'soft' if soft else 'hard'}"
            yield name, _solve(distance_problem(divergence, 200, 300, soft))
    yield "low rank, logdet, n = 2,000, r = 20", _solve(low_rank_problem("logdet", 2_000, 20, 2_000))


def _cuts() -> Iterator[Call]:
    graph = large_cuts.random_graph(250, 1_000)
    yield "max cut, n = 250, path", lambda: large_cuts.max_cut(graph).solve("path")
    yield "equipartition, n = 250, path", lambda: large_cuts.balanced(graph).solve("path")
    large = large_cuts.random_graph(2_000, 8_000)
    yield "max cut, n = 2,000, lowrank", lambda: large_cuts.max_cut(large).solve("lowrank", tol=1e-5)


def _margins() -> Iterator[Call]:
    rng = np.random.default_rng(0)
    for dimension, count in ((20, 3_000), (50, 1_000)):
        near = rng.normal(size=(count, dimension))
        far = near + 0.5 * rng.normal(size=near.shape) + 0.3
        name = f"{count:,} comparisons in {dimension} dimensions"
        yield name, lambda far=far, near=near: bo.soft_margin((far, near))


def _solve(make: Callable[[], bo.Problem]) -> Callable[[], Any]:
    return lambda: make().solve()
