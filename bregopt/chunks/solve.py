"""The loop over passes: options, checkpoints, and the answer. The matrix is dense, or low rank on a range.

With a sample of the rows, which is random and stratified and stays in memory, steps come from its own problem
with the gradient of all rows (DANE, Shamir, Srebro, Zhang 2014).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bregopt import clock
from bregopt.arrays import Array, is_one_of, positive_number, symmetric_matrix
from bregopt.certify import bracket
from bregopt.chunks.chunk import (
    Chunk,
    ExecutorPasses,
    FasterPasses,
    Objective,
    Passes,
    Point,
    release_buffers,
)
from bregopt.chunks.sources import Checkpoint, source
from bregopt.chunks.working_set import Contradiction, Iterate, given_rows, rounds
from bregopt.clock import CutShort
from bregopt.divergences import DIVERGENCES, Divergence, divergence_named
from bregopt.errors import ConvergenceWarning, warn_caller
from bregopt.executors import Crew
from bregopt.linalg import is_definite, root_of
from bregopt.presolve.coordinates import RANK_TOL
from bregopt.program import ENDED, LowRank, Matrix, Nearness, Penalty, StopReason
from bregopt.records import dataclass, replace
from bregopt.rigorous import proves_infeasible
from bregopt.routes.base import Settings
from bregopt.routes.progress import CallbackError, Progress, Watcher, digits_bar, reason
from bregopt.routes.quasi_newton import curve_of, descent_along, line_search, quasi_newton
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    from bregopt.chunks.rows import RowChunks

_SHOWN = 10  # rows that a message names
_ACCURACY = 1e-2  # gap of the sample's problem relative to that of the whole
_FIRST_GAP, _LEAST_GAP = 1e-4, 1e-11
_STEPS = 300  # of the sample's problem; where they do not solve it, penalties are heavy, and it is left
# From this many rows on a sample is drawn unless the user says otherwise: a twentieth of the rows, at most
# so many, if it has so many rows for each entry of the matrix.
_MANY, _PART, _MOST, _PER_ENTRY = 200_000, 20, 200_000, 4
_SLOW = 0.5  # factor of the error of a pass: L-BFGS on all rows takes no more than 20 passes to 1e-6 at that
_log = logging.getLogger(__name__)
_CHUNK = 20_000  # rows of a chunk of the sample, whatever the executor, so that digits do not depend on it
_CITATION = (
    "Kulis, Sustik, Dhillon (2009), Low-Rank Kernel Learning with Bregman Matrix Divergences, JMLR 10; "
    "Liu, Nocedal (1989), On the Limited Memory BFGS Method for Large Scale Optimization, Math. Program. 45"
)


@dataclass(frozen=True, eq=False)
class Options:
    """The options of :meth:`bregopt.RowChunks.solve` and :meth:`bregopt.TripletChunks.solve`, checked."""

    executor: Executor | None
    sample: int | Literal["auto"] | None
    seed: int
    tol: float
    max_passes: int
    resume: Any
    time_limit: float | None = None
    verbose: bool = False
    progress: bool = False
    callback: Watcher | None = None

    def __post_init__(self) -> None:
        if self.executor is not None and not isinstance(self.executor, Executor):
            found = type(self.executor).__name__
            raise TypeError(f"executor is a {found}; expected a concurrent.futures.Executor")
        for name in ("sample", "seed", "max_passes"):
            value, least = getattr(self, name), int(name != "seed")
            if name == "sample" and (value is None or is_one_of(value, ("auto",))):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                others = ", 'auto' or None" if name == "sample" else ""
                raise TypeError(f"{name} is {value!r}; expected an integer{others}")
            if value < least:
                raise ValueError(f"{name} is {value}; expected at least {least}")
        positive_number(self.tol, "tol")
        Settings(
            time_limit=self.time_limit,
            verbose=self.verbose,
            progress=self.progress,
            callback=self.callback,
        )

    def sentence(self, stop: StopReason) -> str:
        """Return the reason to stop as a sentence, with the limit."""
        if stop is StopReason.MAX_ITER:
            return f"max_passes ({self.max_passes}) was reached; raise it or loosen tol."
        return stop.value

    @contextmanager
    def watched(self, name: str, title: str) -> Iterator[Progress]:
        """Yield what watches a solve, within its time limit; an error of the callback leaves as it was."""
        with (
            clock.limited(self.time_limit, batch=True),
            digits_bar(name, self.tol, self.progress) as bar,
        ):
            watchers = [watcher for watcher in (self.callback, bar) if watcher is not None]
            try:
                yield Progress(title, self.verbose, False, watchers)
            except CallbackError as failed:
                raise failed.error from failed.error.__cause__


def solve(rows: RowChunks, X0: Any, divergence: str, options: Options) -> Solution:
    """Return the answer of :meth:`bregopt.RowChunks.solve`."""
    began = time.perf_counter()
    kind = divergence_class(divergence)
    space = _space_of(X0, rows.dimension, kind)
    anchored: Any = kind
    assert kind.penalty is not None
    chunks = tuple(rows.chunks(space.factor))
    zero = np.zeros_like(space.M0)
    penalty = Penalty.HINGE if rows.hinge else kind.penalty
    sources = () if options.resume is None else rows.sources(space.factor)
    checkpoint = Checkpoint.of(options.resume, rows.m, kind.name, space.M0, sources)
    hard = rows.first_hard_row()
    smooth = hard is None and not rows.hinge
    if is_one_of(options.sample, ("auto",)):
        size, r = min(rows.m // _PART, _MOST), len(space.M0)
        enough = smooth and rows.m >= _MANY and size >= _PER_ENTRY * r * (r + 1) // 2
        options = replace(options, sample=size if enough else None)
    if not smooth and options.sample is not None:
        why = "the penalty is the hinge" if hard is None else f"row {hard} is hard"
        raise ValueError(f"sample is {options.sample}, and {why}; expected None with such rows")
    run: Any = _run if smooth else _run_by_rounds
    first = root_of(space.M0)
    assert first is not None
    title = f"bregopt row chunks: {rows.m} rows, order {len(space.M0)}"
    with (
        options.watched("row chunks", title) as progress,
        closing(Crew(options.executor)) as crew,
        checkpoint.held(),
    ):
        whole = ExecutorPasses(crew, chunks)
        objective = Objective(anchored(space.M0), space.M0, penalty, whole, space.T, zero)
        try:
            with clock.stoppable():
                point, stop = run(objective, whole, options, checkpoint, first, progress)
            if stop not in ENDED:
                crew.compare_last()
            solution = _solution(objective, space, point, first, stop, options, time.perf_counter() - began)
        except Contradiction as found:
            nearness = None if space.factor is None else Nearness(kind.name, X0)
            proven = any(
                proves_infeasible(given, found.multipliers / given.bounds.sizes)
                for given in given_rows(chunks, found.numbers, nearness)
            )
            solution = _infeasible(objective, found, proven, time.perf_counter() - began)
        finally:
            release_buffers()
    if solution.status not in (Status.OPTIMAL, Status.INFEASIBLE):
        warn_caller(
            f"row chunks: {solution.status}, certified gap {solution.gap:.1e}, primal residual "
            f"{solution.primal_residual:.1e} (tol {options.tol:g}). {solution.stop_reason}",
            ConvergenceWarning,
        )
    return solution


def _run(
    objective: Objective,
    whole: ExecutorPasses,
    options: Options,
    checkpoint: Checkpoint,
    first: Array,
    progress: Progress,
) -> tuple[Point | None, StopReason]:
    """Return the last point, None if the time ended before there is one, and why it is the last."""
    resumed = checkpoint.load()

    def record(value: float, root: Array, values: list[float]) -> None:
        checkpoint.record(value, root, values)
        progress.record(len(values), objective.certificate(value, objective.best_bound))

    objective = replace(objective, record=record)
    root, sample, point = first, None, None
    try:
        if isinstance(options.sample, int | np.integer) and options.sample < checkpoint.m:
            sample = sample_objective(objective, whole, options.sample / checkpoint.m, options.seed)
        if resumed is not None:
            root = resumed.root
            objective.passes.extend((value, -np.inf) for value in resumed.values)
        elif sample is not None:
            root, solved = minimized(sample, root)
            sample = sample if solved else None
        point = objective.at(root, curvature=sample is None)
        if point is None:
            raise ValueError(
                f"resume is {checkpoint.path}, which was changed: its matrix is not definite; delete it"
            )
        steps = _steps(objective, sample, point, first)
        while objective.gap(point.value) > options.tol:
            if len(objective.passes) >= options.max_passes:
                return point, StopReason.MAX_ITER
            better = next(steps, None)
            if better is None:
                return point, StopReason.STALLED
            point = better
    except CutShort as cut:
        return point, reason(cut)
    return point, StopReason.CONVERGED


def _steps(objective: Objective, sample: Objective | None, point: Point, first: Array) -> Iterator[Point]:
    """Yield better points: by the sample as long as it gains, then by all rows, from the better start."""
    last = point
    if sample is not None:
        for last in sampled_newton(objective, sample, point):
            yield last
        starts = (objective.at(root, curvature=True) for root in (last.root, first))
        last = min((start for start in starts if start is not None), key=lambda start: start.value)
    yield from quasi_newton(objective, last)


def _run_by_rounds(
    objective: Objective,
    whole: ExecutorPasses,
    options: Options,
    checkpoint: Checkpoint,
    root: Array,
    progress: Progress,
) -> tuple[Iterate | None, StopReason]:
    """Return the best iterate of a problem with hard rows or hinges, and why no better one follows.

    It is None if the time ended before there is one.
    """
    resumed = checkpoint.load()
    if resumed is not None:
        root = resumed.root
        objective.passes.extend((value, -np.inf) for value in resumed.values)
    best: Iterate | None = None
    try:
        for point in rounds(objective, root, options.tol, resumed is not None):
            checkpoint.record(point.distance, point.root, objective.values)
            if best is None or point.distance <= best.distance:
                best = point
            certificate = objective.certificate(point.value, point.bound, point.loss, point.violation)
            progress.record(len(objective.passes), certificate)
            if best.distance <= options.tol:
                return best, StopReason.CONVERGED
            if len(objective.passes) >= options.max_passes:
                return best, StopReason.MAX_ITER
    except CutShort as cut:
        return best, reason(cut)
    return best, StopReason.STALLED


def _infeasible(objective: Objective, found: Contradiction, proven: bool, seconds: float) -> Solution:
    """Return the answer that hard rows contradict each other, or that no matrix was found for them."""
    status = Status.INFEASIBLE if proven else Status.INFEASIBLE_INACCURATE
    shown = ", ".join(map(str, found.numbers[:_SHOWN])) + (", ..." if len(found.numbers) > _SHOWN else "")
    said = f"{len(found.numbers)} hard rows contradict each other: {shown}." if proven else ""
    return replace(
        found.solution,
        status=status.value,
        stop_reason=f"{found.solution.stop_reason} {said}".strip(),
        X=None,
        duals=None,
        iterations=len(objective.passes),
        timings={"total": seconds},
        solver="row chunks",
        history=_history(objective),
        citation=_CITATION,
        _program=None,
        _S=None,
    )


def _history(objective: Objective) -> dict[str, Array]:
    """Return value, best bound and their gap after each pass."""
    values, bounds = np.array(objective.passes).reshape(-1, 2).T
    best = np.maximum.accumulate(bounds)
    gaps = np.array([objective.relative_gap(*pair) for pair in zip(values, best, strict=True)])
    return {"iteration": np.arange(1.0, len(values) + 1), "value": values, "bound": best, "gap": gaps}


def _solution(
    objective: Objective,
    space: Space,
    point: Point | Iterate | None,
    first: Array,
    stop: StopReason,
    options: Options,
    seconds: float,
) -> Solution:
    """Return an answer; without a point it is the start, of which nothing is known."""
    if point is None:
        certificate = bracket(np.nan, -np.inf, primal_residual=np.inf)
    else:
        loss, violation = (point.loss, point.violation) if isinstance(point, Iterate) else (0.0, 0.0)
        certificate = objective.certificate(point.value, objective.best_bound, loss, violation)
    return Solution(
        status=certificate.status(options.tol, stop).value,
        stop_reason=options.sentence(stop),
        X=space.lift(first if point is None else point.root),
        u={},
        duals=None,
        **certificate.fields,
        iterations=len(objective.passes),
        timings={"total": seconds},
        solver="row chunks",
        history=_history(objective),
        citation=_CITATION,
    )


@dataclass(frozen=True, eq=False)
class Space:
    """Rows are ``z' T M T' z``, and the answer is ``T M T'``, or ``F T M T' F'`` for a factor `F`.

    Parameters
    ----------
    T : array of shape (d, r)
    M0 : array of shape (r, r)
    factor : array of shape (n, d) or None
    """

    T: Array
    M0: Array
    factor: Array | None = None

    def lift(self, root: Array) -> Matrix:
        """Return the answer for ``M = root root'``."""
        outer = self.T @ root
        return outer @ outer.T if self.factor is None else LowRank(self.factor @ outer)


def _space_of(X0: Any, dimension: int | None, kind: type[Divergence]) -> Space:
    """Return the space of ``X0`` for vectors of a dimension, None for pairs of the rows of its factor.

    Raises
    ------
    TypeError, ValueError
        If ``X0`` is not positive definite, or its order is not that of the rows.
    """
    if isinstance(X0, LowRank) and dimension is None:
        # F = U diag(s) W'. Points are F W where congruences keep the divergence, and U = F W / s otherwise.
        _, s, Wt = np.linalg.svd(np.linalg.qr(X0.factor, mode="r"))
        if s[0] == 0:
            raise ValueError("X0 is zero: a LowRank start needs a factor that is not zero")
        r = int(np.sum(s > RANK_TOL * s[0]))
        W, s = Wt[:r].T, s[:r]
        if kind.congruence_invariant:
            return Space(W, np.eye(r), X0.factor)
        return Space(W / s, np.diag(s**2), X0.factor)
    if dimension is None:
        raise TypeError("X0 is a dense matrix and the rows are pairs without points; give RowChunks(points=)")
    start = symmetric_matrix(np.asarray(X0) if isinstance(X0, LowRank) else X0, "X0")
    if len(start) != dimension:
        raise ValueError(
            f"X0 is {len(start)} x {len(start)} and the rows have {dimension} coordinates; "
            "expected the same number"
        )
    if not is_definite(start):
        raise ValueError("X0 is not positive definite; expected that for rows in chunks")
    return Space(np.eye(len(start)), start)


def divergence_class(name: str) -> type[Divergence]:
    """Return the divergence of a name; refuse one that leaves the cone or has no penalty of numbers."""
    kind = divergence_named(name)
    if not kind.keeps_range or kind.penalty is None:
        usable = [repr(n) for n, k in DIVERGENCES.items() if k.keeps_range and k.penalty is not None]
        raise ValueError(f"divergence is {name!r}; for rows in chunks expected {' or '.join(usable)}")
    return kind


# --- Samples ----------------------------------------------------------------------------------------


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
        root, solved = minimized(sample.with_cost(cost), point.root, gap)
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
        if not solved or not np.isfinite(left) or left > rate * error:
            _log.info("the sample represents the rows badly, so all rows give the curvature from here on")
            return


def minimized(objective: Objective, root: Array, gap: float = _FIRST_GAP) -> tuple[Array, bool]:
    """Return the factor of the best matrix, and whether it is a minimizer up to a certified gap.

    The start is ``root root'``.
    """
    point = objective.at(root, curvature=True)
    assert point is not None
    for better in islice(quasi_newton(objective, point), _STEPS):
        point = better
        if objective.gap(point.value) <= max(gap, _LEAST_GAP):
            return point.root, True
    return point.root, objective.gap(point.value) <= max(gap, _LEAST_GAP)


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
    rows, bound, sense, gamma = (
        source(np.concatenate([getattr(sample, name).read() for sample in samples]))
        for name in ("rows", "bound", "sense", "gamma")
    )
    sample = Chunk(rows, None, np.concatenate([sample.numbers for sample in samples]), bound, sense, gamma)
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
