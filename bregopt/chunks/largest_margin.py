"""The largest soft margin over triplets in chunks.

    maximize  f(X, rho) = rho - C sum_k max(rho - <A_k, X>, 0)   over  X psd of trace one

Each round passes over the triplets twice. The first pass counts the margins below many levels, which gives
the best ``rho`` for ``X``. The second sums the matrices of the triplets below it, and takes those in a band
around it, or a sample of them. A model with these, in which all others are linear, fits in memory, and its
maximizer is the next ``X``. As the band gets narrower the sample becomes all of it. Multipliers of the model
are then multipliers of the problem, and bound its optimum:

    minimize  lambda_max(sum_k y_k A_k)   over  0 <= y_k <= C,  sum_k y_k = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.certify import Certificate, bracket
from bregopt.certify.constants import NEGLIGIBLE_OBJECTIVE
from bregopt.chunks.checkpoint import Checkpoint
from bregopt.chunks.margin_model import EQUAL, Model, Optimum, model_of
from bregopt.chunks.triplet_chunk import Levels, Split, TripletChunk, levels_of, split_of
from bregopt.executors import Crew
from bregopt.program import StopReason, scale_of

__all__ = ["Center", "MarginProblem", "largest_margin"]

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


class Progress(NamedTuple):
    """What a round leaves to the next one, beside its matrix.

    Parameters
    ----------
    level : float
        ``rho``.
    width : float
        Half the width of the next band.
    change : float
        Of the margins in the last round, root mean square; nan before the first one.
    gain : float
        Of the objective in the last round, relative.
    """

    level: float = 0.0
    width: float = math.inf
    change: float = math.nan
    gain: float = math.inf


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
        total = self._split(np.eye(d), math.inf, (math.inf, math.inf), 1).moment / m
        eigenvalues, V = np.linalg.eigh(total)
        self.offer(float(eigenvalues[-1]))
        return V[:, -1:]

    def center(self, root: Array, level: float) -> Center:
        """Return the best of the levels around a given one, by one pass."""
        steps = self.largest * np.geomspace(_LEAST_LEVEL, 2.0, _LEVELS)
        levels = np.concatenate([level - steps[::-1], [level], level + steps])
        self.passes += 1
        found = reduce(Levels.plus, self.crew.map(levels_of, self.chunks, root, levels))
        values = levels - self.C * (levels * found.counts - found.totals)
        best = int(np.argmax(values))
        self.rounds.append((float(values[best]), self.bound))
        return Center(root, float(levels[best]), float(values[best]), levels, found.counts)

    def model(self, at: Center, width: float) -> tuple[Model, Optimum, bool]:
        """Return the model with the triplets whose margins are within `width` of the level, by one pass.

        With it come its start, and whether it has all of these triplets.
        """
        lo, hi = self._band(at, width)
        stride = max(1, math.ceil((at.counts[hi] - at.counts[lo]) / self.sample))
        band = float(at.levels[lo]), float(at.levels[hi])
        split = self._split(at.root, at.level, band, stride)
        if self.C * split.number >= 1:  # equal multipliers below the level
            self.offer(float(np.linalg.eigvalsh(split.moment)[-1]) / split.number)
        model = model_of(split, self.points, self.C, stride)
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
        seed = self.seed + self.passes
        self.passes += 1
        return reduce(Split.plus, self.crew.map(split_of, self.chunks, *shared, seed))

    def offer(self, bound: float) -> None:
        """Keep a bound on the optimum if it is the least."""
        self.bound = min(self.bound, bound)

    def certificate(self, at: Center) -> Certificate:
        """Return the certificate of a center; its value is the level less the cost of the margins below."""
        return bracket(at.value, self.bound, terms=max(abs(at.level), abs(at.level - at.value)))


def largest_margin(
    problem: MarginProblem, tol: float, max_passes: int, checkpoint: Checkpoint
) -> tuple[Center, StopReason]:
    """Return the best matrix found, and why it is the last.

    The band of a model is as wide as the margins at its center are expected to be wrong, by the changes of
    the last two models. Where a model has no better maximizer the band was too narrow, or the sample too
    small, and both grow.
    """
    d = problem.points.shape[1]
    root, (level, width, change, gain) = problem.first_root(), Progress()
    resumed = checkpoint.load()
    if resumed is not None:
        root, (passes, level, width, change, gain) = resumed.root, resumed.numbers
        problem.passes += int(passes)
        problem.rounds.extend((value, math.inf) for value in resumed.values)
    best, failures = problem.center(root, level), 0
    while not problem.certificate(best).meets(tol):
        if problem.passes + 2 > max_passes:
            return best, StopReason.MAX_ITER
        if failures == _FAILURES:
            return best, StopReason.STALLED
        model, start, exact = problem.model(best, width)
        new = None
        if model.bounded:
            model_tol = max(_TOL_SHARE * tol, min(_LARGEST_TOL, _TOL_PER_GAIN * gain))
            found = model.solve(model_tol, start if best.root.shape[1] < d else None)
            if exact:
                problem.offer(model.bound(found.multipliers))
            new = problem.center(found.root, found.level)
        if new is None or new.value <= best.value:
            width, gain, failures = _WIDENING * width, 0.0, failures + 1
            problem.sample *= _GROWTH
            continue
        moved = model.margins(new.root) - new.level - (model.margins(best.root) - best.level)
        last, change = change, float(np.sqrt(np.mean(moved**2)))
        contraction = _CONTRACTION if math.isnan(last) else change / last
        width = change * min(max(_BAND * contraction, _NARROWEST), _WIDEST)
        gain = (new.value - best.value) / max(abs(new.value), NEGLIGIBLE_OBJECTIVE * problem.unit)
        best, failures = new, 0
        values = [value for value, _ in problem.rounds]
        progress = Progress(best.level, width, change, gain)
        checkpoint.record(-best.value, best.root, values, (problem.passes, *progress))
    return best, StopReason.CONVERGED
