"""The objective ``D(M, M0) + <cost, M>`` plus the penalties of rows in chunks, by one pass over them.

A pass runs on an executor or in this process, whichever is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import reduce
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.certify import Certificate, bracket
from bregopt.chunks.chunk import Chunk, Sums, sums_of
from bregopt.divergences import Divergence
from bregopt.executors import Crew
from bregopt.linalg import is_definite
from bregopt.program import Penalty
from bregopt.records import dataclass, replace

__all__ = ["ExecutorPasses", "FasterPasses", "Objective", "Passes", "Point", "triangular"]

_TRIALS = 2  # passes of each kind that are timed


@dataclass(frozen=True, eq=False)
class Point:
    """A positive definite matrix and the results of a pass there.

    Parameters
    ----------
    M, root : array of shape (r, r)
        ``M = root root'``.
    value, bound : float
        The objective, and the lower bound on its minimum that the multipliers of this pass prove.
    gradient, penalty_gradient : array of shape (r, r)
        Of the objective and of the penalties.
    curvature : array of shape (r, r)
    weight : float
        Of :class:`~bregopt.chunks.chunk.Sums`.
    """

    M: Array
    root: Array
    value: float
    bound: float
    gradient: Array
    penalty_gradient: Array
    curvature: Array
    weight: float


@dataclass(frozen=True, eq=False)
class Objective:
    """A divergence, a linear cost and the penalties of rows at ``T M T'``.

    Parameters
    ----------
    divergence : Divergence
        Anchored at `M0`.
    M0 : array of shape (r, r)
    penalty : Penalty
    rows : Passes
    T : array of shape (d, r)
    cost : array of shape (r, r)
    passes : list of (float, float)
        Value and bound of every pass so far.
    record : callable, optional
        Called after each pass with its value, the factor of its matrix, and the values of all passes.
    """

    divergence: Divergence
    M0: Array
    penalty: Penalty
    rows: Passes
    T: Array
    cost: Array
    passes: list[tuple[float, float]] = field(default_factory=list)
    record: Callable[[float, Array, list[float]], None] | None = None

    def with_cost(self, cost: Array) -> Objective:
        """Return the objective with another linear cost."""
        return replace(self, cost=cost, passes=[])

    def at(self, root: Array, curvature: bool) -> Point | None:
        """Return the point at ``M = root root'`` after one pass, with the sums of curvature or without.

        Without a pass it is None where `M` is singular in floating point.
        """
        M = root @ root.T
        if not np.isfinite(M).all() or not is_definite(M):
            return None
        found = self.rows.map(sums_of, triangular(self.T @ root), self.penalty, curvature)
        sums = reduce(Sums.plus, found)  # in the order of the chunks, whatever the executor
        G = self.inward(sums.gradient)
        H = self.inward(sums.curvature) if curvature else sums.curvature
        own = self.divergence.value(M) + float(np.vdot(self.cost, M))
        bound = sums.conjugate + self.divergence.dual_term(G + self.cost, 1.0, M)
        gradient = self.divergence.gradient(M) + G + self.cost
        self.passes.append((own + sums.penalty, bound))
        if self.record is not None:
            self.record(own + sums.penalty, root, self.values)
        return Point(M, root, own + sums.penalty, bound, gradient, G, H, sums.weight)

    @property
    def exponential(self) -> bool:
        """Whether the divergence is von Neumann's."""
        return self.divergence.exponential

    @property
    def values(self) -> list[float]:
        """The values of all passes."""
        return [value for value, _ in self.passes]

    @property
    def best_bound(self) -> float:
        """The largest bound of all passes."""
        return max(bound for _, bound in self.passes)

    def gap(self, value: float) -> float:
        """Return the certified relative gap of a value."""
        return self.relative_gap(value, self.best_bound)

    def certificate(
        self, value: float, bound: float, loss: float = 0.0, violation: float = 0.0
    ) -> Certificate:
        """Return the certificate of a value and a bound.

        `loss` is the cost of violations, of hard rows at their multipliers.
        """
        resolution = self.divergence.resolution * self.divergence.unit
        return bracket(value, bound, resolution=resolution, loss=loss, primal_residual=violation)

    def relative_gap(self, value: float, bound: float, loss: float = 0.0) -> float:
        """Return the relative gap of a value and a bound."""
        return self.certificate(value, bound, loss).gap

    def inward(self, moment: Array) -> Array:
        """Return ``T' moment T``, made exactly symmetric."""
        G = self.T.T @ moment @ self.T
        symmetric: Array = (G + G.T) / 2
        return symmetric


def triangular(root: Array) -> Array:
    """Return the square lower triangular ``L`` with ``L L' = root root'``, stored by columns."""
    R: Any = np.linalg.qr(root.T, mode="r")
    L = np.zeros((len(root), len(root)), order="F")
    L[:, : len(R)] = R.T
    return L


class Passes(Protocol):
    """Passes over rows."""

    def map(self, function: Callable[..., Any], *shared: Any) -> Iterable[Any]:
        """Return the results of a function of each chunk and of shared arguments, in the order of the chunks.

        Sums in that order have the same digits on every executor.
        """
        ...


@dataclass(frozen=True, eq=False)
class ExecutorPasses:
    """Passes over chunks by the workers of an executor."""

    crew: Crew
    chunks: tuple[Chunk, ...]

    def map(self, function: Callable[..., Any], *shared: Any) -> Iterator[Any]:
        """Yield the results of a function of each chunk."""
        return self.crew.map(function, self.chunks, *shared)


class FasterPasses:
    """The faster of several kinds of passes over the same rows; the first passes time each kind in turns."""

    def __init__(self, kinds: tuple[Passes, ...]) -> None:
        self._kinds = kinds
        self._seconds: list[list[float]] = [[] for _ in kinds]

    def map(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """Return the results of a function of each chunk."""
        counts = [len(spent) for spent in self._seconds]
        if min(counts) == _TRIALS:
            return list(
                self._kinds[int(np.argmin([min(spent) for spent in self._seconds]))].map(function, *shared)
            )
        kind = int(np.argmin(counts))
        begin = time.perf_counter()
        found = list(self._kinds[kind].map(function, *shared))
        self._seconds[kind].append(time.perf_counter() - begin)
        return found
