"""Steps from a sample's own problem, with the gradient of all rows (DANE, Shamir, Srebro, Zhang 2014)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from bregopt.arrays import Array
from bregopt.chunks.chunk import sample_of
from bregopt.chunks.objective import Objective, Point, mapped
from bregopt.chunks.quasi_newton import curve_of, descent_along, line_search, quasi_newton

__all__ = ["minimized", "sample_objective", "sampled_newton"]

_ACCURACY = 1e-2  # gap of the sample's problem relative to that of the whole
_FIRST_GAP, _LEAST_GAP = 1e-4, 1e-11
_STEPS = 300  # of the sample's problem


def sample_objective(objective: Objective, share: float, seed: int) -> Objective:
    """Return the objective of a random share of each chunk, in memory; weights sum to those of the whole."""
    chunks = mapped(objective.executor, sample_of, objective.chunks, share, seed, objective.penalty)
    return replace(objective, chunks=tuple(chunks), executor=None, passes=[])


def sampled_newton(objective: Objective, sample: Objective, point: Point) -> Iterator[Point]:
    """Yield better points until the objective no longer decreases.

    Each minimizes the sample's objective plus a linear cost, with which both gradients agree at the last one.
    """
    while True:
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


def minimized(objective: Objective, root: Array, gap: float = _FIRST_GAP) -> Array:
    """Return the factor of a minimizer up to a certified gap, from the start ``root root'``."""
    point = objective.at(root, curvature=True)
    assert point is not None
    for better in islice(quasi_newton(objective, point), _STEPS):
        point = better
        if objective.gap(point.value) <= max(gap, _LEAST_GAP):
            break
    return point.root
