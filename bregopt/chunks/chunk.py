"""Chunks of rows, and the objective ``D(M, M0) + <cost, M>`` plus their penalties by one pass over them.

A chunk gives the sums that objective, gradient and certificate need, in the buffers of a worker. A pass runs
on an executor or in this process, whichever is faster.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.blas import dtrmm

from bregopt.arrays import Array
from bregopt.certify import Certificate, bracket
from bregopt.chunks.sources import Source, release_groups, source
from bregopt.clock import threads_for
from bregopt.divergences import Divergence
from bregopt.executors import Crew
from bregopt.linalg import is_definite
from bregopt.program import Bounds, Penalty
from bregopt.records import dataclass, replace
from bregopt.routes import quasi_newton

_BLOCK = 3_000  # rows; blocks of 1,000 take 1.3 times as long at d = 50, and 20,000 1.2 times
_kept = threading.local()  # the buffers of this worker, by name
HINGE_NOISE = 1e-9  # relative violation up to which a hinge counts as met: kept ones are met to round-off
_NONE = np.zeros((0, 0))
_TRIALS = 2  # passes of each kind that are timed


class Batch(NamedTuple):
    """The rows of a chunk as plain arrays.

    Parameters
    ----------
    vectors : array of shape (k, d)
        The vectors ``z_k``; for pairs, the differences of their points.
    bound, sense, gamma : array of shape (k,)
        As in :class:`bregopt.RowChunks`; `sense` is -1 for "<=" and 1 for ">=".
    """

    vectors: Array
    bound: Array
    sense: Array
    gamma: Array

    @property
    def pairs(self) -> Array:
        """Pairs of points with these differences, shape ``(k, 2, d)``; the second point is zero."""
        return np.stack([self.vectors, np.zeros_like(self.vectors)], axis=1)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows, with their numbers among all rows.

    Parameters
    ----------
    rows : Source
        Vectors, or pairs of `points`.
    points : Source or None
    numbers : range or array of int
    bound, sense, gamma : Source or float
    """

    rows: Source
    points: Source | None
    numbers: range | Array
    bound: Source | float
    sense: Source | float
    gamma: Source | float

    def part(self, start: int, stop: int) -> Chunk:
        """Return the rows from `start` to `stop`, relative to this chunk."""
        columns = (
            column.part(start, stop) if isinstance(column, Source) else column
            for column in (self.bound, self.sense, self.gamma)
        )
        return Chunk(self.rows.part(start, stop), self.points, self.numbers[start:stop], *columns)

    def take(self, chosen: Any) -> Chunk:
        """Return some rows, in memory, by their places in this chunk."""
        columns = (
            source(column.read()[chosen]) if isinstance(column, Source) else column
            for column in (self.bound, self.sense, self.gamma)
        )
        return Chunk(source(self.rows.read()[chosen]), self.points, np.array(self.numbers)[chosen], *columns)

    def blocks(self) -> Iterator[Chunk]:
        """Yield parts whose vectors fit in a processor's cache; files are opened once for all of them."""
        points = None if self.points is None else source(self.points.read())
        columns = (
            source(column.read()) if isinstance(column, Source) else column
            for column in (self.bound, self.sense, self.gamma)
        )
        whole = Chunk(source(self.rows.read()), points, self.numbers, *columns)
        for start in range(0, len(self.rows), _BLOCK):
            yield whole.part(start, min(start + _BLOCK, len(self.rows)))

    def vectors(self) -> Array:
        """Return the vectors ``z_k``, shape ``(k, d)``, in this worker's buffer.

        Raises
        ------
        ValueError
            If a pair has no such point.
        """
        rows = self.rows.read()
        if self.points is None:
            Z = _buffer("vectors", rows.shape)
            np.copyto(Z, rows)
            return Z
        points = self.points.read()
        outside = ((rows < 0) | (rows >= len(points))).any(axis=1)
        if outside.any():
            k = int(np.argmax(outside))
            raise ValueError(
                f"row {self.numbers[k]} is the pair {rows[k].tolist()}; "
                f"expected points 0 to {len(points) - 1}"
            )
        Z, other = (_buffer(name, (len(rows), points.shape[1])) for name in ("vectors", "products"))
        if points.dtype == Z.dtype:
            np.take(points, rows[:, 0], axis=0, out=Z, mode="clip")  # other modes buffer the output
            np.take(points, rows[:, 1], axis=0, out=other, mode="clip")
        else:
            Z[:], other[:] = points[rows[:, 0]], points[rows[:, 1]]
        Z -= other
        return Z

    def bounds(self, penalty: Penalty) -> Bounds:
        """Return the bounds with a penalty; rows of infinite weight are hard.

        Raises
        ------
        ValueError
            If a bound is not positive and finite, a weight not positive, or a sense neither -1 nor 1.
        """
        bound, sense, gamma = (self._column(name) for name in ("bound", "sense", "gamma"))
        self.check((bound > 0) & (bound < np.inf), bound, "bound", "a number above 0")
        self.check(gamma > 0, gamma, "gamma", "a number above 0, or np.inf for a hard row")
        self.check(np.abs(sense) == 1, sense, "sense", '-1 ("<=") or 1 (">=")')
        lower = sense > 0
        lo, hi = np.where(lower, bound, -np.inf), np.where(lower, np.inf, bound)
        return Bounds(lo, hi, np.where(gamma < np.inf, int(penalty), int(Penalty.HARD)), gamma)

    def batch(self) -> Batch:
        """Return the rows as plain arrays.

        Raises
        ------
        ValueError
            If a row is bad.
        """
        Z, bounds = self.vectors().copy(), self.bounds(Penalty.HINGE)
        sizes = np.abs(Z).sum(axis=1)
        self.check(np.isfinite(sizes), sizes, "the vector", "finite coordinates")
        lower = np.isfinite(bounds.lo)
        return Batch(Z, np.where(lower, bounds.lo, bounds.hi), np.where(lower, 1.0, -1.0), bounds.gamma)

    def first_hard_row(self) -> int | None:
        """Return the number of the first row of infinite weight, None if there is none."""
        if not isinstance(self.gamma, Source):
            return int(self.numbers[0]) if self.gamma == np.inf else None
        hard = np.flatnonzero(np.isposinf(self._column("gamma")))
        return int(self.numbers[hard[0]]) if len(hard) else None

    def _column(self, name: str) -> Array:
        value = getattr(self, name)
        if isinstance(value, Source):
            return np.asarray(value.read(), dtype=np.float64)
        return np.full(len(self.rows), value)

    def check(self, good: Any, values: Array, name: str, expected: str) -> None:
        """Raise a ValueError for the first row that is not good."""
        if not good.all():
            k = int(np.argmin(good))
            raise ValueError(f"{name} of row {self.numbers[k]} is {values[k]:g}; expected {expected}")


def release_buffers() -> None:
    """Drop the buffers and row groups of this thread."""
    vars(_kept).clear()
    release_groups()


def _buffer(name: str, shape: tuple[int, ...]) -> Array:
    """Return an array that this worker keeps from chunk to chunk; fresh memory costs as much as products."""
    size = int(np.prod(shape))
    held: Array | None = getattr(_kept, name, None)
    if held is None or held.size < size:
        held = np.empty(size)
        setattr(_kept, name, held)
    return held[:size].reshape(shape)


class Sums(NamedTuple):
    """Sums over rows at a matrix, with multipliers ``y_k = -penalty_k'(a_k)``.

    Parameters
    ----------
    penalty, conjugate : float
        Of the penalties, and of the rows' terms in the dual function.
    gradient : array of shape (d, d)
        The sum of ``-y_k z_k z_k'``.
    curvature : array of shape (d, d)
        The sum of ``w_k z_k z_k'``, with ``w_k`` the second derivative of the penalty. Empty, and `weight`
        zero, where it was not asked for.
    weight : float
        The sum of ``w_k``.
    """

    penalty: float
    conjugate: float
    gradient: Array
    curvature: Array
    weight: float

    def plus(self, other: Sums) -> Sums:
        """Return the sums over the rows of both."""
        return Sums(*map(operator.add, self, other))


def sums_of(chunk: Chunk, root: Array, penalty: Penalty, curvature: bool) -> Sums:
    """Return the sums over a chunk at the matrix ``root root'``, in one BLAS thread.

    Parameters
    ----------
    chunk : Chunk
    root : array of shape (d, d), lower triangular, stored by columns
    penalty : Penalty
    curvature : bool
        Whether to sum second derivatives, too.

    Raises
    ------
    ValueError
        If a row is bad.
    """
    with threads_for(1):
        return reduce(Sums.plus, (block_sums(block, root, penalty, curvature) for block in chunk.blocks()))


def block_sums(block: Chunk, root: Array, penalty: Penalty, curvature: bool) -> Sums:
    """Return the sums over the soft rows of one block."""
    Z, bounds = block.vectors(), block.bounds(penalty)
    R = _buffer("products", Z.shape)
    np.copyto(R, Z)
    dtrmm(1.0, root, R.T, lower=1, trans_a=1, overwrite_b=1)  # R = Z root, in half of the flops
    a = np.einsum("ij,ij->i", R, R)
    block.check(np.isfinite(a), a, "the value", "finite vectors")
    paid = bounds.penalty(a)
    y = _hinge_response(bounds, a) if penalty is Penalty.HINGE else bounds.response(a)
    inside = (paid < np.inf) & np.isfinite(y)
    block.check(inside, a, "the value", "one above 0: its vector is zero, so drop the row")
    first = float(paid.sum()), float(bounds.conjugate(y).sum()), _weighted_moment(Z, -y)
    if not curvature:
        return Sums(*first, _NONE, 0.0)
    if penalty is Penalty.HINGE:
        return Sums(*first, np.zeros_like(first[2]), 0.0)
    _, D = bounds.meet(a, y, np.where(bounds.hard, 0.0, bounds.side(a, y)))
    w = 1 / D
    return Sums(*first, _weighted_moment(Z, w), float(w.sum()))


def _hinge_response(bounds: Bounds, a: Array) -> Array:
    """Return the multipliers of hinges, zero at the kink up to `HINGE_NOISE`; of hard rows zero."""
    up, down = a < bounds.lo * (1 - HINGE_NOISE), a > bounds.hi * (1 + HINGE_NOISE)
    side = np.where(up, 1.0, 0.0) - down
    return np.where(bounds.hard, 0.0, side * np.where(bounds.hard, 0.0, bounds.gamma))


def _weighted_moment(Z: Array, weights: Array) -> Array:
    """Return the sum of ``weights_k z_k z_k'``, by symmetric products of the rows of each sign."""
    moment = np.zeros((Z.shape[1], Z.shape[1]))
    for sign in (-1, 1):
        rows = np.flatnonzero(sign * weights > 0)
        scaled = _buffer("products", (len(rows), Z.shape[1]))
        np.take(Z, rows, axis=0, out=scaled, mode="clip")  # other modes _buffer the output
        scaled *= np.sqrt(sign * weights[rows])[:, None]
        moment += sign * (scaled.T @ scaled)  # NumPy takes a product with its own transpose as symmetric
    return moment


@dataclass(frozen=True, eq=False)
class Point(quasi_newton.Point):
    """A point of L-BFGS, with what its pass proves.

    Parameters
    ----------
    bound : float
        The lower bound on the minimum that the multipliers of this pass prove.
    penalty_gradient : array of shape (r, r)
        The gradient of the penalties.
    """

    bound: float
    penalty_gradient: Array


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
        return Point(M, root, own + sums.penalty, gradient, H, sums.weight, bound, G)

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
