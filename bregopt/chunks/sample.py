"""Steps from a sample's own problem, with the gradient of all rows (DANE, Shamir, Srebro, Zhang 2014).

The sample is random and stratified. It is in memory, and in its own chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from bregopt.arrays import Array
from bregopt.chunks.chunk import Chunk
from bregopt.chunks.objective import ExecutorPasses, FasterPasses, Objective, Passes, Point
from bregopt.chunks.sources import source
from bregopt.executors import Crew
from bregopt.program import Penalty
from bregopt.records import replace
from bregopt.routes.quasi_newton import curve_of, descent_along, line_search, quasi_newton

__all__ = ["drawn", "minimized", "passes_of_sample", "sample_objective", "sampled_newton"]

_ACCURACY = 1e-2  # gap of the sample's problem relative to that of the whole
_FIRST_GAP, _LEAST_GAP = 1e-4, 1e-11
_STEPS = 300  # of the sample's problem
_SLOW = 0.5  # factor of the error of a pass: L-BFGS on all rows takes no more than 20 passes to 1e-6 at that
_log = logging.getLogger(__name__)
_CHUNK = 20_000  # rows of a chunk of the sample, whatever the executor, so that digits do not depend on it


def sample_objective(objective: Objective, whole: ExecutorPasses, share: float, seed: int) -> Objective:
    """Return the objective of a random share of each chunk, with weights that sum to those of all rows."""
    samples = list(whole.map(drawn, share, seed, objective.penalty))
    rows = passes_of_sample(whole.crew, whole.chunks, samples)
    return replace(objective, rows=rows, passes=[], record=None)


def sampled_newton(objective: Objective, sample: Objective, point: Point) -> Iterator[Point]:
    """Yield better points until the objective no longer decreases, or too slowly.

    Each minimizes the sample's objective plus a linear cost, with which both gradients agree at the last one.
    Where the sample does not represent the rows, the line search over all rows rejects its steps.
    """
    while True:
        error, passes = point.value - objective.best_bound, len(objective.passes)
        at = sample.at(point.root, curvature=False)
        assert at is not None  # as the whole has a point there
        cost = point.penalty_gradient - at.penalty_gradient
        gap = min(_ACCURACY * objective.gap(point.value), _FIRST_GAP)
        root = minimized(sample.with_cost(cost), point.root, gap)
        curve = curve_of(objective, point)
        new = line_search(objective, point, curve, curve.exponent_to(root), curvature=False)
        if new is None:  # the curve to the minimizer may begin upwards; the segment never does
            exponent = descent_along(curve, root @ root.T - point.M)
            new = line_search(objective, point, curve, exponent, curvature=False)
        if new is None:
            return
        point = new
        yield point
        rate = _SLOW ** (len(objective.passes) - passes)
        left = point.value - objective.best_bound
        if not np.isfinite(left) or left > rate * error:
            _log.info("the sample represents the rows badly, so all rows give the curvature from here on")
            return


def minimized(objective: Objective, root: Array, gap: float = _FIRST_GAP) -> Array:
    """Return the factor of a minimizer up to a certified gap, from the start ``root root'``."""
    point = objective.at(root, curvature=True)
    assert point is not None
    for better in islice(quasi_newton(objective, point), _STEPS):
        point = better
        if objective.gap(point.value) <= max(gap, _LEAST_GAP):
            break
    return point.root


def drawn(chunk: Chunk, share: float, seed: int, penalty: Penalty) -> Chunk:
    """Return a random share of the rows of each sense, in memory, whose weights sum to those of the chunk.

    Rows are drawn with probabilities proportional to their weights, so that a few heavy rows are not missed.
    At least one row of each sense is drawn.

    Raises
    ------
    ValueError
        If a row is bad.
    """
    bounds = chunk.bounds(penalty)
    rng = np.random.default_rng([seed, chunk.numbers[0]])
    lower = np.isfinite(bounds.lo)
    weights = np.zeros(len(lower))
    for sense in (lower, ~lower):
        if sense.any():
            weights[sense] = _drawn_weights(bounds.gamma[sense], share, rng)
    chosen = np.flatnonzero(weights)
    rows = chunk.take(chosen)
    Z = rows.vectors()
    sizes = np.abs(Z).sum(axis=1)
    rows.check(np.isfinite(sizes), sizes, "the vector", "finite coordinates")
    rows.check(
        (sizes > 0) | ~lower[chosen], sizes, "the value", "one above 0: its vector is zero, so drop the row"
    )
    bound = np.where(lower, bounds.lo, bounds.hi)[chosen]
    columns = map(source, (bound, np.where(lower[chosen], 1, -1), weights[chosen]))
    return Chunk(source(Z.copy()), None, rows.numbers, *columns)


def _drawn_weights(gamma: Array, share: float, rng: np.random.Generator) -> Array:
    """Return the weights of a systematic sample of rows in random order, zero for the others."""
    order = rng.permutation(len(gamma))
    total = np.cumsum(gamma[order])
    count = min(len(gamma), max(1, round(share * len(gamma))))
    marks = (rng.random() + np.arange(count)) * (total[-1] / count)
    hits = np.minimum(np.searchsorted(total, marks, side="right"), len(gamma) - 1)
    weights = np.zeros(len(gamma))
    np.add.at(weights, order[hits], total[-1] / count)
    return weights


def passes_of_sample(crew: Crew, whole: Sequence[Chunk], samples: Sequence[Chunk]) -> Passes:
    """Return passes over the samples of all chunks: in this process, or by workers where that is faster.

    Threads use the sample in memory. Other workers read its rows from the files of the whole, so a task
    sends their numbers instead of their vectors. Without files the sample stays in this process.
    """
    sample = _joined(samples)
    starts = range(0, len(sample.rows), _CHUNK)
    parts = tuple(sample.part(start, min(start + _CHUNK, len(sample.rows))) for start in starts)
    here = ExecutorPasses(Crew(None), parts)
    if crew.workers == 1 or len(parts) == 1:
        return here
    if not crew.shares_memory:
        files = _in_files(parts, whole)
        if files is None:
            return here
        parts = files
    return FasterPasses((here, ExecutorPasses(crew, parts)))


def _in_files(parts: tuple[Chunk, ...], whole: Sequence[Chunk]) -> tuple[Chunk, ...] | None:
    """Return chunks of a sample whose vectors are read from the files of the whole, None without files."""
    rows, points = whole[0].rows, whole[0].points
    one_file = rows.path is not None and all(chunk.rows.path == rows.path for chunk in whole)
    if not one_file or (points is not None and points.path is None):
        return None
    return tuple(replace(part, rows=rows.of_file(part.numbers), points=points) for part in parts)


def _joined(samples: Sequence[Chunk]) -> Chunk:
    """Return the rows of chunks in memory as one chunk."""
    rows, bound, sense, gamma = (
        source(np.concatenate([getattr(sample, name).read() for sample in samples]))
        for name in ("rows", "bound", "sense", "gamma")
    )
    return Chunk(rows, None, np.concatenate([sample.numbers for sample in samples]), bound, sense, gamma)
