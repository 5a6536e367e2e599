"""Steps from a sample's own problem, with the gradient of all rows (DANE, Shamir, Srebro, Zhang 2014)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from bregopt.arrays import Array
from bregopt.chunks.objective import Objective, Point
from bregopt.chunks.passes import ExecutorPasses
from bregopt.chunks.sample import drawn, passes_of_sample
from bregopt.routes.quasi_newton import curve_of, descent_along, line_search, quasi_newton

__all__ = ["minimized", "sample_objective", "sampled_newton"]

_ACCURACY = 1e-2  # gap of the sample's problem relative to that of the whole
_FIRST_GAP, _LEAST_GAP = 1e-4, 1e-11
_STEPS = 300  # of the sample's problem
_SLOW = 0.5  # factor of the error of a pass: L-BFGS on all rows takes no more than 20 passes to 1e-6 at that

_log = logging.getLogger(__name__)


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
