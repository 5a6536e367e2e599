"""The largest soft margin over triplets in chunks.

    maximize  f(X, rho) = rho - C sum_k max(rho - <A_k, X>, 0)   over  X psd of trace one

Each round passes over the triplets twice. The first pass counts the margins below many levels, which gives
the best ``rho`` for ``X``. The second sums the matrices of the triplets below it, and takes those in a band
around it, or a sample of them. A model with these, in which all others are linear, fits in memory, and its
maximizer is the next ``X``. As the band gets narrower the sample becomes all of it. Multipliers of the model
are then multipliers of the problem, and bound its optimum:

    minimize  lambda_max(sum_k y_k A_k)   over  0 <= y_k <= C,  sum_k y_k = 1.

The function ``f`` is concave. Its model keeps the terms of some triplets, with weights. The sum of all terms
enters by its gradient at a center, from which those of the kept triplets are subtracted. So the gradient of
the model at the center is that of the problem, and only the differences of triplets that change sides are
sampled.

A triplet ``(i, j, k)`` has the matrix ``A = far far' - near near'``, with ``far = x_i - x_k`` and
``near = x_i - x_j``, and the margin ``<A, X>``. Both are products of ``far - near = x_j - x_k`` and
``far + near``, so no digits cancel where far and near are almost equal.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import field
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bregopt import clock
from bregopt.arrays import Array, IntArray, Mask, positive_number
from bregopt.certify import Certificate, bracket
from bregopt.certify.certificate import NEGLIGIBLE_OBJECTIVE
from bregopt.chunks.solve import Options
from bregopt.chunks.sources import Checkpoint
from bregopt.clock import CutShort, threads_for
from bregopt.errors import ConvergenceWarning, warn_caller
from bregopt.executors import Crew
from bregopt.program import (
    ENDED,
    Block,
    Bounds,
    LinearMap,
    LowRank,
    Penalty,
    Program,
    StopReason,
    Term,
    scale_of,
)
from bregopt.program.program import Start
from bregopt.program.rows import DenseRows, RankTwo, SparseRows
from bregopt.records import dataclass
from bregopt.routes.progress import Progress, reason
from bregopt.routes.registry import route
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    from bregopt.chunks.rows import TripletChunk, TripletChunks

_CACHED = 2_000  # triplets or points whose vectors fit in a processor's cache
_TRADE_OFF = 10.0  # the default C is this divided by the number of triplets, as for `soft_margin`
_SAMPLE_PER_COORDINATE, _LEAST_SAMPLE = 300, 5_000
_NUMBERS = 7  # of a checkpoint: passes, and the six of `Round`
_BLOCK = 10_000  # points that are checked at once
_CITATION = (
    "Shen, Welsh, Wang (2008), PSDBoost: Matrix-Generation Linear Programming for Positive Semidefinite "
    "Matrices Learning, NIPS 21"
)
_LEVELS = 2_048  # on each side of rho
_LEAST_LEVEL = 1e-12  # distance of the nearest one from rho, relative to the largest margin
# A round makes the gap about 30 times smaller, so a model's error may be a hundredth of the gap before it.
# That gap is about a thirtieth of the last gain.
_TOL_PER_GAIN = 3e-4
_LARGEST_TOL = 1e-3
_TOL_SHARE = 0.5  # least tolerance of a model, relative to that of the problem
_CONTRACTION = 0.15  # ratio of successive changes of the margins, before two are known
_BAND = 2.0  # half the width of a band, relative to the expected error of its margins
_NARROWEST, _WIDEST = 0.1, 1.0  # half the width, relative to the last change
_LEAST_BAND = 1_000  # triplets of a band at least, as a model with so few takes little time
_WIDENING = 4.0  # factor of the width after a model without a better maximizer
_GROWTH = 2  # of the sample then
_FAILURES = 5  # in a row, after which the method stalls
_CUTS = 4  # eigenvectors a round; with a start, more of them only make the master larger
EQUAL = 1e-9  # difference of two sums of multipliers that are equal up to round-off
_RANK_TOL = 1e-12  # eigenvalues of X below it, relative to the trace, are dropped


def solve(triplets: TripletChunks, C: Any, options: Options) -> Solution:
    """Return the answer of :meth:`bregopt.TripletChunks.solve`."""
    m = triplets.m
    price = _TRADE_OFF / m if C is None else positive_number(C, "C")
    if price * m < 1 - 1e-12:  # up to the round-off of a C given as 1 / m
        raise ValueError(
            f"C is {price:g} for {m} triplets; expected at least 1/{m} = {1 / m:.3g}: "
            "below that, rho and all xi grow together without end and the problem is unbounded"
        )
    points = triplets.points()
    d = points.shape[1]
    began = time.perf_counter()
    usual = max(_SAMPLE_PER_COORDINATE * d, _LEAST_SAMPLE)
    size = options.sample if isinstance(options.sample, int | np.integer) else usual
    largest = _largest_margin(points)
    sources = () if options.resume is None else triplets.sources()
    problem_name = f"soft margin, C = {price:g}"
    checkpoint = Checkpoint.of(options.resume, m, problem_name, np.eye(d) / d, sources, _NUMBERS)
    with (
        options.watched("triplet chunks", f"bregopt triplet chunks: {m} triplets, order {d}") as progress,
        closing(Crew(options.executor)) as crew,
        checkpoint.held(),
    ):
        chunks = tuple(triplets.chunks())
        problem = MarginProblem(chunks, points, price, size, largest, crew, options.seed)
        with clock.stoppable():
            best, stop = largest_margin(problem, options.tol, options.max_passes, checkpoint, progress)
        if stop not in ENDED:
            crew.compare_last()
    solution = _solution(problem, best, stop, options, time.perf_counter() - began)
    if solution.status != Status.OPTIMAL:
        warn_caller(
            f"triplet chunks: {solution.status}, certified gap {solution.gap:.1e} (tol {options.tol:g}). "
            f"{solution.stop_reason}",
            ConvergenceWarning,
        )
    return solution


def _largest_margin(points: Any) -> float:
    """Return a bound on the margins of all triplets, for any metric of trace one.

    Raises
    ------
    ValueError
        If a point is not finite, or all are equal.
    """
    radius = 0.0
    for start in range(0, len(points), _BLOCK):
        Z = np.asarray(points[start : start + _BLOCK], dtype=np.float64)
        finite = np.isfinite(Z).all(axis=1)
        if not finite.all():
            k = int(np.argmin(finite))
            raise ValueError(f"point {start + k} is {Z[k]}; expected finite coordinates")
        radius = max(radius, float(np.linalg.norm(Z - points[0], axis=1).max()))
    if radius == 0:
        raise ValueError(f"all {len(points)} points are equal; expected different ones")
    return 4 * radius**2  # no difference is longer than two radii


def _solution(
    problem: MarginProblem, best: Center | None, stop: StopReason, options: Options, seconds: float
) -> Solution:
    """Return an answer; without a center it is the multiple of the identity, of which nothing is known."""
    d = problem.points.shape[1]
    root = np.eye(d) / math.sqrt(d) if best is None else best.root
    value, level = (math.nan, math.nan) if best is None else (best.value, best.level)
    certificate = problem.certificate(best)
    values, bounds = np.array([*problem.rounds, (value, problem.bound)]).T
    gaps = np.array([bracket(*pair).gap for pair in zip(values.tolist(), bounds.tolist(), strict=True)])
    return Solution(
        status=certificate.status(options.tol, stop).value,
        stop_reason=options.sentence(stop),
        X=root @ root.T,
        u={"rho": level},
        duals=None,
        **certificate.fields,
        iterations=problem.passes,
        timings={"total": seconds},
        solver="triplet chunks",
        history={"iteration": np.arange(1.0, len(values) + 1), "value": values, "bound": bounds, "gap": gaps},
        citation=_CITATION,
    )


class Round(NamedTuple):
    """What a round leaves to the next one, beside its matrix. A solve that is resumed with it draws the same.

    Parameters
    ----------
    level : float
        The level around which the best one for the matrix was sought.
    width : float
        Half the width of the next band.
    change : float
        Of the margins in the last round, root mean square; nan before the first one.
    gain : float
        Of the objective in the last round, relative.
    growth : float
        Of the sample since the first round.
    models : float
        How many samples were drawn.
    """

    level: float = 0.0
    width: float = math.inf
    change: float = math.nan
    gain: float = math.inf
    growth: float = 1.0
    models: float = 0.0


class Center(NamedTuple):
    """A matrix with its best level, and the margins below each level.

    Parameters
    ----------
    root : array of shape (d, r)
        ``X = root root'``, of trace one.
    level, value : float
        ``rho`` and ``f(X, rho)``.
    levels : array of shape (L,)
    counts : int array of shape (L,)
    """

    root: Array
    level: float
    value: float
    levels: Array
    counts: IntArray


@dataclass(eq=False)
class MarginProblem:
    """The problem, with the value and the least bound of each round.

    Parameters
    ----------
    chunks : tuple of TripletChunk
    points : array of shape (n, d)
    C : float
    sample : int
        Largest number of triplets of a model, roughly.
    largest : float
        No margin is larger at any ``X``.
    crew : Crew
        Runs the chunks.
    seed : int
    """

    chunks: tuple[TripletChunk, ...]
    points: Array
    C: float
    sample: int
    largest: float
    crew: Crew
    seed: int
    passes: int = 0
    rounds: list[tuple[float, float]] = field(default_factory=list)
    bound: float = math.inf
    unit: float = 0.0  # the scale of the objective, known with the first model

    def first_root(self) -> Array:
        """Return a factor of the first matrix: the optimum if all multipliers are equal, ``I / d`` otherwise.

        They are equal at ``C = 1 / m``, where the model has no best level.
        """
        d, m = self.points.shape[1], sum(len(chunk.triplets) for chunk in self.chunks)
        if self.C * m > 1 + EQUAL:
            return np.eye(d) / math.sqrt(d)
        total = self._split(np.eye(d), math.inf, (math.inf, math.inf), 1, self.seed).moment / m
        eigenvalues, V = np.linalg.eigh(total)
        self.offer(float(eigenvalues[-1]))
        return V[:, -1:]

    def center(self, root: Array, level: float) -> Center:
        """Return the best of the levels around a given one, by one pass."""
        steps = self.largest * np.geomspace(_LEAST_LEVEL, 2.0, _LEVELS)
        levels = np.concatenate([level - steps[::-1], [level], level + steps])
        found = reduce(Levels.plus, self.crew.map(levels_of, self.chunks, root, levels))
        self.passes += 1
        values = levels - self.C * (levels * found.counts - found.totals)
        best = int(np.argmax(values))
        self.rounds.append((float(values[best]), self.bound))
        return Center(root, float(levels[best]), float(values[best]), levels, found.counts)

    def model(self, at: Center, last: Round) -> tuple[Model, Optimum, bool]:
        """Return the model with the triplets whose margins are within a width of the level, by one pass.

        With it come its start, and whether it has all of these triplets.
        """
        lo, hi = self._band(at, last.width)
        stride = max(1, math.ceil((at.counts[hi] - at.counts[lo]) / (last.growth * self.sample)))
        band = float(at.levels[lo]), float(at.levels[hi])
        split = self._split(at.root, at.level, band, stride, self.seed + int(last.models))
        if self.C * split.number >= 1:  # equal multipliers below the level
            self.offer(float(np.linalg.eigvalsh(split.moment)[-1]) / split.number)
        weight = self.C * stride
        rows = RankTwo(*factors(split.triplets, self.points), np.ones(len(split.triplets)))
        cost = self.C * split.moment - rows.adjoint(np.where(split.below, weight, 0.0))
        mass = self.C * split.number - weight * int(split.below.sum())
        model = Model(cost, mass, rows, weight)
        self.unit = self.unit or scale_of(model.program()).objective
        start = Optimum(at.root, at.level, np.where(split.below, model.weight, 0.0))
        return model, start, stride == 1

    @staticmethod
    def _band(at: Center, width: float) -> tuple[int, int]:
        """Return the levels between which margins are within `width` of the center's, and not too few."""
        place = np.searchsorted(at.levels, [at.level - width, at.level + width])
        last = len(at.levels) - 1
        lo, hi = max(int(place[0]) - 1, 0), min(int(place[1]) + 1, last)
        while at.counts[hi] - at.counts[lo] < _LEAST_BAND and hi - lo < last:
            lo, hi = max(lo - 1, 0), min(hi + 1, last)
        return lo, hi

    def _split(self, *shared: Any) -> Split:
        """Return the triplets split by a level, by one pass; see :func:`split_of`."""
        split = reduce(Split.plus, self.crew.map(split_of, self.chunks, *shared))
        self.passes += 1
        return split

    def offer(self, bound: float) -> None:
        """Keep a bound on the optimum if it is the least."""
        self.bound = min(self.bound, bound)

    def certificate(self, at: Center | None) -> Certificate:
        """Return the certificate of a center; its value is the level less the cost of the margins below."""
        if at is None:
            return bracket(math.nan, self.bound, primal_residual=math.inf)
        return bracket(at.value, self.bound, terms=max(abs(at.level), abs(at.level - at.value)))


def largest_margin(
    problem: MarginProblem, tol: float, max_passes: int, checkpoint: Checkpoint, progress: Progress
) -> tuple[Center | None, StopReason]:
    """Return the best matrix found, None if the time ended before there is one, and why it is the last."""
    best = None
    try:
        for best in _centers(problem, tol, checkpoint):
            certificate = problem.certificate(best)
            progress.record(problem.passes, certificate)
            if certificate.meets(tol):
                return best, StopReason.CONVERGED
            if problem.passes + 2 > max_passes:
                return best, StopReason.MAX_ITER
    except CutShort as cut:
        return best, reason(cut)
    return best, StopReason.STALLED


def _centers(problem: MarginProblem, tol: float, checkpoint: Checkpoint) -> Iterator[Center]:
    """Yield the best matrix after each round, until several rounds do not improve it.

    The band of a model is as wide as the margins at its center are expected to be wrong, by the changes of
    the last two models. Where a model has no better maximizer the band was too narrow, or the sample too
    small, and both grow.
    """
    d = problem.points.shape[1]
    root, last = problem.first_root(), Round()
    resumed = checkpoint.load()
    if resumed is not None:
        root, (passes, *numbers) = resumed.root, resumed.numbers
        last = Round._make(numbers)
        problem.passes += int(passes)
        problem.rounds.extend((value, math.inf) for value in resumed.values)
    best, failures = problem.center(root, last.level), 0
    yield best
    while failures < _FAILURES:
        model, start, exact = problem.model(best, last)
        last, new = last._replace(models=last.models + 1), None
        if model.bounded:
            model_tol = max(_TOL_SHARE * tol, min(_LARGEST_TOL, _TOL_PER_GAIN * last.gain))
            found = model.solve(model_tol, start if best.root.shape[1] < d else None)
            if exact:
                problem.offer(model.bound(found.multipliers))
            new = problem.center(found.root, found.level)
        if new is None or new.value <= best.value:
            last = last._replace(width=_WIDENING * last.width, gain=0.0, growth=_GROWTH * last.growth)
            failures += 1
        else:
            moved = model.margins(new.root) - new.level - (model.margins(best.root) - best.level)
            change = float(np.sqrt(np.mean(moved**2)))
            contraction = _CONTRACTION if math.isnan(last.change) else change / last.change
            width = change * min(max(_BAND * contraction, _NARROWEST), _WIDEST)
            gain = (new.value - best.value) / max(abs(new.value), NEGLIGIBLE_OBJECTIVE * problem.unit)
            last = Round(found.level, width, change, gain, last.growth, last.models)
            best, failures = new, 0
        values = [value for value, _ in problem.rounds]
        checkpoint.record(-best.value, best.root, values, (problem.passes, *last))
        yield best  # where it is none that is better, the bound may be


@dataclass(frozen=True, eq=False)
class Optimum:
    """A maximizer of a model.

    Parameters
    ----------
    root : array of shape (d, r)
        ``X = root root'``, of trace one.
    level : float
        ``rho``.
    multipliers : array of shape (k,)
        Of the kept triplets.
    """

    root: Array
    level: float
    multipliers: Array


@dataclass(frozen=True, eq=False)
class Model:
    """``(1 - mass) rho + <cost, X>`` less the terms of the kept triplets.

    Parameters
    ----------
    cost : array of shape (d, d)
    mass : float
        Sum of the multipliers of the linearized triplets.
    rows : RankTwo
        The kept triplets.
    weight : float
        The largest multiplier of a kept triplet.
    """

    cost: Array
    mass: float
    rows: RankTwo
    weight: float

    @property
    def bounded(self) -> bool:
        """Whether its objective is bounded, that is, whether multipliers may sum to one."""
        return self.mass < 1 <= (1 + EQUAL) * (self.mass + self.weight * self.rows.m)

    def solve(self, tol: float, start: Optimum | None) -> Optimum:
        """Return the maximizer by PSDBoost, up to a relative gap, from a start or from nothing."""
        method = route("psdboost")
        first = None
        if start is not None:
            first = Start((LowRank(start.root),), np.array([start.level]), np.append(start.multipliers, 0.0))
        settings = method.Settings(tol=tol, cuts_per_round=_CUTS)
        with threads_for(self.rows.n):
            answer = method.solve(self.program(), settings, first, Progress("model"))
            X = answer.X[0]
            eigenvalues, V = np.linalg.eigh(X.dense() if isinstance(X, LowRank) else X)
        kept = eigenvalues > _RANK_TOL * eigenvalues[-1]
        root = V[:, kept] * np.sqrt(eigenvalues[kept] / eigenvalues[kept].sum())  # of trace one
        return Optimum(root, float(answer.u[0]), np.clip(answer.y[:-1], 0.0, self.weight))

    def bound(self, multipliers: Array) -> float:
        """Return the upper bound on the problem's optimum that multipliers prove, if all weights are ``C``.

        Made to sum to one, they bound it by the largest eigenvalue of ``sum_k y_k A_k``.
        """
        y, total = multipliers, self.mass + float(multipliers.sum())
        slack = self.weight - y
        if total < 1 and slack.any():  # without slack round-off alone separates the sum from one
            y = y + slack * min(1.0, (1 - total) / float(slack.sum()))
            total = self.mass + float(y.sum())
        return float(np.linalg.eigvalsh(self.cost + self.rows.adjoint(y))[-1]) / total

    def margins(self, root: Array) -> Array:
        """Return the margins of the kept triplets."""
        return self.rows.apply(LowRank(root))

    def program(self) -> Program:
        """Return the model as a minimization, its triplets as hinge rows."""
        k, d = self.rows.m, self.rows.n
        terms = (Term(0, np.arange(k), self.rows), Term(0, np.array([k]), SparseRows.trace(d)))
        hinges = Bounds(
            np.zeros(k), np.full(k, np.inf), np.full(k, int(Penalty.HINGE)), np.full(k, self.weight)
        )
        return Program(
            blocks=(Block("X", d, DenseRows(-self.cost[None])),),
            A=LinearMap(k + 1, (d,), terms),
            B=sp.csr_array(np.append(-np.ones(k), 0.0)[:, None]),
            bounds=hinges.followed_by(Bounds.of_hard_rows(np.ones(1), np.ones(1))),
            c=np.array([self.mass - 1]),
            u_lo=np.array([-np.inf]),
            u_hi=np.array([np.inf]),
            labels=(("the kept triplets", k), ("the trace", 1)),
            columns=(("rho", 1),),
            maximize=True,
        )


class Levels(NamedTuple):
    """How many margins are below each level, and their sum.

    Parameters
    ----------
    counts : int array of shape (L,)
    totals : array of shape (L,)
    """

    counts: IntArray
    totals: Array

    def plus(self, other: Levels) -> Levels:
        """Return the levels of the triplets of both."""
        return Levels(self.counts + other.counts, self.totals + other.totals)


class Split(NamedTuple):
    """The triplets below a level, summed, and a sample of those in a band around it.

    Parameters
    ----------
    number : int
        Of the triplets below the level.
    moment : array of shape (d, d)
        The sum of their matrices.
    triplets : int array of shape (k, 3)
        The sample.
    below : bool array of shape (k,)
        Which of the sample are below the level.
    """

    number: int
    moment: Array
    triplets: IntArray
    below: Mask

    def plus(self, other: Split) -> Split:
        """Return the sums over both, and both samples."""
        return Split(
            self.number + other.number,
            self.moment + other.moment,
            np.concatenate([self.triplets, other.triplets]),
            np.concatenate([self.below, other.below]),
        )


def levels_of(chunk: TripletChunk, root: Array, levels: Array) -> Levels:
    """Return how many margins at the matrix ``root root'`` are below each level, and their sums.

    Parameters
    ----------
    chunk : TripletChunk
    root : array of shape (d, r)
    levels : array of shape (L,), ascending

    Raises
    ------
    ValueError
        If a triplet is bad.
    """
    with threads_for(1):
        margins = _margins(*chunk.read(), root)
    place = np.searchsorted(levels, margins, side="right")
    counts = np.bincount(place, minlength=len(levels) + 1)
    totals = np.bincount(place, margins, minlength=len(levels) + 1)
    return Levels(np.cumsum(counts[:-1]), np.cumsum(totals[:-1]))


def split_of(
    chunk: TripletChunk, root: Array, level: float, band: tuple[float, float], stride: int, seed: int
) -> Split:
    """Return the triplets below a level at ``root root'``, summed, and a sample of those in a band.

    The sample is every `stride`-th triplet of the band in the order of their margins, from a random one on.
    """
    with threads_for(1):
        T, points = chunk.read()
        margins = _margins(T, points, root)
        below = margins < level
        moment, own = np.zeros((points.shape[1],) * 2), T[below]
        for rows in _blocks(len(own)):
            difference, total = factors(own[rows], points)
            moment += difference.T @ total
    inside = np.flatnonzero((margins >= band[0]) & (margins < band[1]))
    ordered = inside[np.argsort(margins[inside], kind="stable")]
    first = int(np.random.default_rng([seed, chunk.start]).integers(stride))
    chosen = np.sort(ordered[first::stride])
    given = np.asarray(chunk.triplets.read()[chosen], dtype=np.intp)  # `T` may have other indices
    return Split(int(below.sum()), (moment + moment.T) / 2, given, below[chosen])


def factors(T: IntArray, points: Any) -> tuple[Array, Array]:
    """Return the rows ``far - near`` and ``far + near`` of triplets."""
    i, j, k = (np.asarray(points[T[:, column]], dtype=np.float64) for column in range(3))
    return j - k, (i - j) + (i - k)


def _margins(T: IntArray, points: Any, root: Array) -> Array:
    images = np.empty((len(points), root.shape[1]))
    origin = np.asarray(points[0], dtype=np.float64)  # points far from zero lose no digits
    for rows in _blocks(len(points)):
        images[rows] = (points[rows] - origin) @ root
    margins = np.empty(len(T))
    for rows in _blocks(len(T)):
        margins[rows] = np.einsum("ij,ij->i", *factors(T[rows], images))
    return margins


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, _CACHED):
        yield slice(start, start + _CACHED)
