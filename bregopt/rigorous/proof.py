"""The search for points that prove both bounds: the answer, and mixtures of it with more interior points.

Round-off leaves an answer slightly outside the cone as often as inside. A mixture with a point well inside is
inside, and the bound loses only its share of the difference. Every trial is proven from the data; the search
itself needs no proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array
from bregopt.rigorous.data import Data
from bregopt.rigorous.implied import Implied
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.side import Side
from bregopt.rigorous.upper import Point, feasible_near, upper_bound

__all__ = ["Candidate", "Proven", "best_lower", "best_upper"]

_SHARES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 0.3, 1.0)  # of the interior point in a mixture
_REFINEMENTS = 2  # of the share that first succeeds
_ENOUGH = 1e-7  # distance from the value of the answer, relative to it; no nearer bound is sought


class Candidate(NamedTuple):
    """An approximate answer.

    Parameters
    ----------
    X : tuple of array or None
        Symmetric matrices, None where there are none.
    u : array of shape (k,)
    y : array of shape (m,) or None
    value : float
        The objective; NaN where it is not known.
    error : float
        Its distance from the optimum, as far as floating point tells.
    """

    X: tuple[Array, ...] | None
    u: Array
    y: Array | None
    value: float = math.nan
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class Proven:
    """A bound with the point that proves it: multipliers for a lower one, matrices for an upper one."""

    side: Side
    y: Array | None = None
    point: Point | None = None


def best_lower(data: Data, answer: Candidate, interior: Iterable[Candidate], implied: Implied) -> Proven:
    """Return the best lower bound of the multipliers of an answer, mixed with more interior ones."""
    if answer.y is None:
        return Proven(Side(-math.inf, "the answer has no multipliers"))

    def proven(y: Array) -> Proven:
        return Proven(lower_bound(data, y, implied, answer.X), y=y)

    def mixed(share: float, z: Array) -> Proven:
        assert answer.y is not None
        return proven((1 - share) * answer.y + share * z)

    best = proven(answer.y)
    if _is_near(best, answer):
        return best
    for other in interior:
        found = None if other.y is None else _least_mixture(partial(mixed, z=other.y))
        if found is not None and found.side.value > best.side.value:
            best = found
        if _is_near(best, answer):
            break
    return best


def best_upper(data: Data, answer: Candidate, interior: Iterable[Candidate]) -> Proven:
    """Return the best upper bound of the matrices of an answer, mixed with more interior ones."""
    if answer.X is None:
        return Proven(Side(math.inf, "the answer has no matrix"))

    def proven(X: Sequence[Array], u: Array) -> Proven:
        point, reason = feasible_near(data, X, u)
        if point is None:
            return Proven(Side(math.inf, reason))
        return Proven(upper_bound(data, point), point=point)

    def mixed(share: float, Z: Sequence[Array], v: Array) -> Proven:
        assert answer.X is not None
        X = [(1 - share) * A + share * B for A, B in zip(answer.X, Z, strict=True)]
        return proven(X, (1 - share) * answer.u + share * v)

    best = proven(answer.X, answer.u)
    if _is_near(best, answer):
        return best
    for other in _with_identity(data, answer, interior):
        assert other.X is not None
        found = _least_mixture(partial(mixed, Z=other.X, v=other.u))
        if found is not None and found.side.value < best.side.value:
            best = found
        if _is_near(best, answer):
            break
    return best


def _is_near(found: Proven, answer: Candidate) -> bool:
    """Whether a bound is so near the value of the answer that no nearer one is sought."""
    if math.isnan(answer.value):
        return math.isfinite(found.side.value)
    near = max(_ENOUGH * abs(answer.value), 2 * answer.error)
    return abs(found.side.value - answer.value) <= near


def _least_mixture(trial: Callable[[float], Proven]) -> Proven | None:
    """Return the proof by the smallest share of the interior point that succeeds, None where none does."""
    if math.isinf(trial(_SHARES[-1]).side.value) and math.isinf(trial(_SHARES[-2]).side.value):
        return None
    last = 0.0
    for share in _SHARES:
        found = trial(share)
        if math.isinf(found.side.value):
            last = share
            continue
        for _ in range(_REFINEMENTS if last else 0):
            smaller = math.sqrt(last * share)
            better = trial(smaller)
            if math.isinf(better.side.value):
                last = smaller
            else:
                found, share = better, smaller
        return found
    return None


def _with_identity(data: Data, answer: Candidate, interior: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield multiples of the identity near the rows, then the other interior points."""
    assert answer.X is not None
    eyes = tuple(max(float(np.trace(X)), 0.0) / len(X) * np.eye(len(X)) for X in answer.X)
    point, _ = feasible_near(data, eyes, answer.u)
    if point is not None:
        yield Candidate(point.X, point.u, None)
    for other in interior:
        if other.X is not None:
            yield other
