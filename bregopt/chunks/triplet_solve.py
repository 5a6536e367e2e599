"""The answer to the problem of :class:`bregopt.TripletChunks`: its scale, its price, its status."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from bregopt.arrays import positive_number
from bregopt.certify import bracket
from bregopt.chunks.checkpoint import Checkpoint
from bregopt.chunks.largest_margin import Center, MarginProblem, largest_margin
from bregopt.chunks.solve import Options
from bregopt.errors import ConvergenceWarning, warn_caller
from bregopt.executors import Crew
from bregopt.program import StopReason
from bregopt.routes.solution import Solution, Status

if TYPE_CHECKING:
    from bregopt.chunks.triplets import TripletChunks

__all__ = ["solve"]

_TRADE_OFF = 10.0  # the default C is this divided by the number of triplets, as for `soft_margin`
_SAMPLE_PER_COORDINATE, _LEAST_SAMPLE = 300, 5_000
_NUMBERS = 5  # of a checkpoint: passes, and the four of `Progress`
_BLOCK = 10_000  # points that are checked at once
_CITATION = (
    "Shen, Welsh, Wang (2008), PSDBoost: Matrix-Generation Linear Programming for Positive Semidefinite "
    "Matrices Learning, NIPS 21"
)


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
    size = options.sample or max(_SAMPLE_PER_COORDINATE * d, _LEAST_SAMPLE)
    largest = _largest_margin(points)
    sources = () if options.resume is None else triplets.sources()
    problem_name = f"soft margin, C = {price:g}"
    checkpoint = Checkpoint.of(options.resume, m, problem_name, np.eye(d) / d, sources, _NUMBERS)
    with closing(Crew(options.executor)) as crew, checkpoint.held():
        chunks = tuple(triplets.chunks())
        problem = MarginProblem(chunks, points, price, size, largest, crew, options.seed)
        best, stop = largest_margin(problem, options.tol, options.max_passes, checkpoint)
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
    problem: MarginProblem, best: Center, stop: StopReason, options: Options, seconds: float
) -> Solution:
    certificate = problem.certificate(best)
    values, bounds = np.array([*problem.rounds, (best.value, problem.bound)]).T
    gaps = np.array([bracket(*pair).gap for pair in zip(values.tolist(), bounds.tolist(), strict=True)])
    return Solution(
        status=certificate.status(options.tol, stop).value,
        stop_reason=options.sentence(stop),
        value=best.value,
        X=best.root @ best.root.T,
        u={"rho": best.level},
        duals=None,
        dual_value=problem.bound,
        gap=certificate.gap,
        primal_residual=0.0,
        dual_residual=0.0,
        error=certificate.error,
        iterations=problem.passes,
        timings={"total": seconds},
        solver="triplet chunks",
        history={"iteration": np.arange(1.0, len(values) + 1), "value": values, "bound": bounds, "gap": gaps},
        citation=_CITATION,
    )
