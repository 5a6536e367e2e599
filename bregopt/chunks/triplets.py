"""Triplets of points, held in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from os import PathLike
from typing import Any

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.chunks.sources import Source, SourceLike, source_of
from bregopt.records import dataclass
from bregopt.routes.progress import Watcher
from bregopt.routes.solution import Solution

__all__ = ["TripletChunk", "TripletChunks"]

_MANY_POINTS = 3  # points for each index of a triplet, from which only those of the chunk are read


class TripletChunks:
    """Triplets ``(i, j, k)`` of points, of which `i` should be nearer to `j` than to `k`, in chunks.

    Each argument is an array, the path of an npy file, or a memory map of one. Workers read files themselves,
    chunk by chunk in every pass.

    Parameters
    ----------
    triplets : array_like of int, shape (m, 3)
        Three different points each.
    points : array_like of float, shape (n, d), optional
        :class:`bregopt.learn.SoftMarginMetricLearner` takes triplets without points and gives them its own.
    chunk : int, default 500000
        Triplets of a chunk, which is one task of an executor.

    Raises
    ------
    TypeError, ValueError
        If types or shapes are bad. Values are checked when they are read, by :meth:`solve`.

    Examples
    --------
    >>> import numpy as np
    >>> import bregopt as bo
    >>> points = np.array([[0.0, 0.0], [3.0, 0.2], [0.1, 1.0]])
    >>> sol = bo.TripletChunks([[0, 1, 2]], points).solve()
    >>> print(sol.status, sol.u["rho"] > 0)
    optimal True
    """

    def __init__(
        self, triplets: SourceLike, points: SourceLike | None = None, *, chunk: int = 500_000
    ) -> None:
        self._triplets = source_of(triplets, "triplets")
        array = self._triplets.read()
        if array.dtype.kind not in "iu":
            raise TypeError(f"triplets has dtype {array.dtype}; expected integers, the numbers of points")
        if array.ndim != 2 or array.shape[1] != 3:
            raise ValueError(f"triplets has shape {array.shape}; expected (m, 3)")
        self._points = None if points is None else _points(points)
        if not isinstance(chunk, int | np.integer) or isinstance(chunk, bool):
            raise TypeError(f"chunk is {chunk!r}; expected an integer")
        if chunk < 1:
            raise ValueError(f"chunk is {chunk}; expected at least 1 triplet")
        self._size = int(chunk)
        self.m = len(self._triplets)

    def __len__(self) -> int:
        return self.m

    def __repr__(self) -> str:
        return f"TripletChunks(m={self.m}, {math.ceil(self.m / self._size)} chunks)"

    def of(self, points: SourceLike) -> TripletChunks:
        """Return the same triplets of given points.

        Raises
        ------
        TypeError, ValueError
            If these triplets have points already, or the points are bad.
        """
        if self._points is not None:
            raise TypeError("triplets have points of their own; expected TripletChunks(triplets) without")
        return TripletChunks(self._triplets.data, points, chunk=self._size)

    def solve(
        self,
        C: float | None = None,
        *,
        executor: Executor | None = None,
        sample: int | None = None,
        seed: int = 0,
        tol: float = 1e-6,
        max_passes: int = 100,
        resume: str | PathLike[str] | None = None,
        time_limit: float | None = None,
        verbose: bool = False,
        progress: bool = False,
        callback: Watcher | None = None,
    ) -> Solution:
        """Learn the metric of trace one with the largest soft margin: the problem of `soft_margin`.

        Solves, over metrics ``X``, margins ``rho`` and slacks ``xi >= 0``,

            maximize    rho - C sum_r xi_r
            subject to  d(i, k)^2 - d(i, j)^2 >= rho - xi_r  for each triplet,  tr X = 1,

        by rounds of two passes over the chunks. Each ends with a model that has the triplets near the margin,
        or a sample of them, and in which all others are linear. Few rounds are needed: from one to the next,
        the gap falls by a factor of about 30. Multipliers of the last models bound the optimum.

        Parameters
        ----------
        C : float, optional
            Penalty weight of a slack, at least ``1 / m``; by default ``10 / m``.
        executor : concurrent.futures.Executor, optional
            Runs the chunks. Sums are taken in the order of the chunks, so the answer does not depend on it,
            bit for bit, on machines of one kind. Arrays in memory are sent to other processes in each pass;
            files are not. Models are solved in this process.
        sample : int, optional
            Triplets of a model, which are held in memory with their points; by default 300 for each
            coordinate, at least 5,000. It is doubled after a model whose answer is no better than the last.
        seed : int
            Of the sample.
        tol : float
            Relative duality gap.
        max_passes : int
        resume : path, optional
            File of a checkpoint, written after each round that improves the matrix. If it exists the solve
            goes on from there.
        time_limit, verbose, progress, callback
            As for :meth:`bregopt.RowChunks.solve`, for each round.

        Returns
        -------
        Solution
            ``X`` is the metric, of shape ``(d, d)``; ``u["rho"]`` is the margin. `iterations` counts the
            passes; `duals` is None. Value and bound are computed from sums over the triplets, with round-off
            of about 1e-13 of their largest terms.

        Raises
        ------
        TypeError, ValueError
            If an argument, a triplet or a point is bad, or the checkpoint is of another problem, or
            ``C m < 1``, which makes the problem unbounded.

        Warns
        -----
        ConvergenceWarning
            If the gap is above `tol`.

        References
        ----------
        Shen, Welsh, Wang (2008), PSDBoost, eq. 3.
        """
        from bregopt.chunks.largest_margin import solve
        from bregopt.chunks.solve import Options  # modules that only a solve needs

        watched = (time_limit, verbose, progress, callback)
        return solve(self, C, Options(executor, sample, seed, tol, max_passes, resume, *watched))

    def points(self) -> Array:
        """Return the points.

        Raises
        ------
        TypeError
            If there are none.
        """
        if self._points is None:
            raise TypeError("triplets have no points; expected TripletChunks(triplets, points)")
        return self._points.read()

    def sources(self) -> tuple[Source | None, ...]:
        """Return the data: triplets and points."""
        return self._triplets, self._points

    def chunks(self) -> Iterator[TripletChunk]:
        """Yield the chunks, of triplets with points."""
        assert self._points is not None
        for start in range(0, self.m, self._size):
            part = self._triplets.part(start, min(start + self._size, self.m))
            yield TripletChunk(part, self._points, start)


def _points(value: Any) -> Source:
    points = source_of(value, "points")
    if points.read().ndim != 2:
        raise ValueError(f"points has shape {points.read().shape}; expected (n, d)")
    return points


@dataclass(frozen=True, eq=False)
class TripletChunk:
    """Consecutive triplets of points, from number `start` on."""

    triplets: Source
    points: Source
    start: int

    def read(self) -> tuple[IntArray, Any]:
        """Return triplets, shape (m, 3), and the points that they index.

        Raises
        ------
        ValueError
            If a triplet has an index out of range, or a point twice.
        """
        T, points = np.array(self.triplets.read(), dtype=np.intp), self.points.read()
        self._check(((T >= 0) & (T < len(points))).all(axis=1), T, f"points 0 to {len(points) - 1}")
        different = (T[:, 0] != T[:, 1]) & (T[:, 0] != T[:, 2]) & (T[:, 1] != T[:, 2])
        self._check(different, T, "three different points")
        if len(points) > _MANY_POINTS * T.size:
            used, T = np.unique(T, return_inverse=True)
            points, T = points[used], T.reshape(-1, 3)
        return T, points

    def _check(self, good: Any, T: IntArray, expected: str) -> None:
        if not good.all():
            k = int(np.argmin(good))
            raise ValueError(f"triplet {self.start + k} is {T[k].tolist()}; expected {expected}")
