"""Rows ``z_k' X z_k`` with bounds, and triplets of points, held in chunks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, IntArray, is_one_of, positive_integer, rectangular
from bregopt.chunks.chunk import Batch, Chunk
from bregopt.chunks.sources import (
    ParquetColumns,
    Source,
    SourceLike,
    is_dask,
    parquet_columns,
    source,
    source_of,
)
from bregopt.errors import did_you_mean
from bregopt.program import LowRank
from bregopt.records import dataclass
from bregopt.routes.progress import Watcher
from bregopt.routes.solution import Solution

_SENSES = {"<=": -1, ">=": 1}
_PENALTIES = ("divergence", "hinge")
_MANY_POINTS = 3  # points for each index of a triplet, from which only those of the chunk are read


class RowChunks:
    """Rows ``z_k' X z_k <= bound_k`` or ``>= bound_k`` of one matrix, in memory or in files, in chunks.

    A soft row beyond its bound pays ``gamma_k d(a_k, bound_k)``, with ``a_k`` its value and ``d`` the
    divergence of the problem for numbers, or ``gamma_k |a_k - bound_k|`` with the hinge, as with
    :func:`bregopt.soft`. Each argument is an array, the path of an npy file, a memory map of one, or a Dask
    array. Workers read files, and compute Dask's chunks, themselves in every pass.

    Parameters
    ----------
    rows : array_like of float, shape (m, d), or of int, shape (m, 2)
        The vectors ``z_k``, or pairs ``(i, j)`` of points, for which ``z_k`` is the difference of the points.
    bound : float or array_like of shape (m,)
        Above 0.
    sense : {"<=", ">="} or array_like of int, shape (m,)
        In an array, -1 is "<=" and 1 is ">=".
    gamma : float or array_like of shape (m,)
        Weights of the penalties, above 0; ``np.inf`` for hard rows.
    points : array_like of shape (n, d), optional
        The points of pairs. By default they are the rows of the factor of a ``LowRank`` ``X0``; the value of
        a row is then the squared distance ``X_ii + X_jj - 2 X_ij``.
    penalty : {"divergence", "hinge"}
        Of the soft rows.
    chunk : int, default 50000
        Rows of a chunk, which is one task of an executor.

    Raises
    ------
    TypeError, ValueError
        If types or shapes are bad. Values are checked when they are read, by :meth:`solve`.

    Examples
    --------
    >>> import numpy as np
    >>> import bregopt as bo
    >>> rows = bo.RowChunks(np.eye(2), [2.0, 2.0], ">=", gamma=1.0)
    >>> sol = rows.solve(np.eye(2))
    >>> sol.status, np.round(np.diag(sol.X), 4).tolist()
    ('optimal', [1.3333, 1.3333])
    """

    def __init__(
        self,
        rows: SourceLike,
        bound: SourceLike,
        sense: str | SourceLike,
        gamma: SourceLike,
        *,
        points: SourceLike | None = None,
        penalty: str = "divergence",
        chunk: int = 50_000,
    ) -> None:
        if not is_one_of(penalty, _PENALTIES):
            raise ValueError(f"penalty is {penalty!r}{did_you_mean(str(penalty), _PENALTIES)}")
        self.hinge = penalty == "hinge"
        self._rows = source_of(rows, "rows")
        shape, dtype = self._rows.shape, self._rows.dtype
        self.m = len(self._rows)
        self.pairs = dtype.kind in "iu"
        if len(shape) != 2 or (self.pairs and shape[1] != 2):
            expected = "(m, 2), pairs of points" if self.pairs else "(m, d)"
            raise ValueError(f"rows has shape {shape} and dtype {dtype}; expected {expected}")
        if points is not None and not self.pairs:
            raise TypeError(f"points is given, but rows has dtype {dtype}; expected pairs of integers")
        self._points = None if points is None else _points_of(points)
        if isinstance(sense, str) and not sense.endswith(".npy"):
            if sense not in _SENSES:
                raise ValueError(f"sense is {sense!r}; expected '<=', '>=' or an array of -1 and 1")
            sense = _SENSES[sense]
        self._columns = {
            name: self._column(value, name)
            for name, value in (("bound", bound), ("sense", sense), ("gamma", gamma))
        }
        self._size = positive_integer(chunk, "chunk")

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str],
        *,
        points: SourceLike | None = None,
        penalty: str = "divergence",
        chunk: int = 50_000,
    ) -> RowChunks:
        """Return the rows of a Parquet file.

        A chunk reads the row groups that have its rows. One of up to 256 MB is kept until another is read.

        Parameters
        ----------
        path : str or path
            A file with the columns ``i`` and ``j`` of integers, or ``z_0``, ``z_1``, ... of the coordinates,
            and ``bound``, ``sense`` (-1 and 1) and ``gamma``. It has no others.
        points, penalty, chunk
            As for the class.

        Raises
        ------
        ImportError
            Without pyarrow, which ``pip install 'bregopt[parquet]'`` installs.
        TypeError, ValueError
            If it is no such file, or the arguments are bad.
        """
        columns: dict[str, Any] = parquet_columns(path)
        if columns["rows"].names == ("i", "j") and columns["rows"].dtype.kind not in "iu":
            raise TypeError(f"columns i and j of {path} have type {columns['rows'].dtype}; expected integers")
        return cls(**columns, points=points, penalty=penalty, chunk=chunk)

    def __len__(self) -> int:
        return self.m

    def __repr__(self) -> str:
        return f"RowChunks(m={self.m}, {math.ceil(self.m / self._size)} chunks)"

    @property
    def dimension(self) -> int | None:
        """The length of ``z_k``; None for pairs without points."""
        source = self._points if self.pairs else self._rows
        return None if source is None else source.shape[1]

    def sources(self, points: Array | None = None) -> tuple[Source | float | None, ...]:
        """Return the data without the weights: rows, points, bounds and senses."""
        own = self._points if points is None else source(points)
        return (self._rows, own, self._columns["bound"], self._columns["sense"])

    def chunks(self, points: Array | None = None) -> Iterator[Chunk]:
        """Yield the chunks; `points` are those of pairs that have none of their own."""
        own = self._points if points is None else source(points)
        whole = Chunk(self._rows, own, range(self.m), **self._columns)
        for start in range(0, self.m, self._size):
            yield whole.part(start, min(start + self._size, self.m))

    def with_points(self, points: SourceLike) -> RowChunks:
        """Return the same pairs, of the given points.

        Parameters
        ----------
        points : array_like of shape (n, d)

        Raises
        ------
        TypeError, ValueError
            If the rows are vectors, or pairs that have points already, or if `points` is bad.
        """
        if not self.pairs or self._points is not None:
            own = "are vectors" if not self.pairs else "have points of their own"
            raise ValueError(f"the rows {own}; expected pairs of integers without points")
        rows = copy(self)
        rows._points = _points_of(points)
        return rows

    def batches(self) -> Iterator[Batch]:
        """Yield the rows as plain arrays, chunk by chunk: for on-line learners and programs of your own.

        Yields
        ------
        Batch
            Its arrays are new.

        Raises
        ------
        TypeError, ValueError
            If the rows are pairs without points, or a row is bad.

        Examples
        --------
        >>> import numpy as np
        >>> import bregopt as bo
        >>> rows = bo.RowChunks([[0, 1], [0, 2]], 1.0, "<=", 1.0, points=np.eye(3), chunk=1)
        >>> [batch.vectors.tolist() for batch in rows.batches()]
        [[[1.0, -1.0, 0.0]], [[1.0, 0.0, -1.0]]]
        """
        if self.dimension is None:
            raise TypeError("the rows are pairs without points; give RowChunks(points=)")
        return (chunk.batch() for chunk in self.chunks())

    def first_hard_row(self) -> int | None:
        """Return the number of the first row with an infinite `gamma`; None if all rows are soft."""
        return next((k for chunk in self.chunks() if (k := chunk.first_hard_row()) is not None), None)

    def solve(
        self,
        X0: ArrayLike | LowRank,
        divergence: str = "logdet",
        *,
        executor: Executor | None = None,
        sample: int | Literal["auto"] | None = "auto",
        seed: int = 0,
        tol: float = 1e-6,
        max_passes: int = 200,
        resume: str | os.PathLike[str] | None = None,
        time_limit: float | None = None,
        verbose: bool = False,
        progress: bool = False,
        callback: Watcher | None = None,
    ) -> Solution:
        """Minimize ``D(X, X0)`` plus the penalties of soft rows, subject to the hard rows.

        Every pass over the chunks gives objective, gradient, and a bound on the optimum by Lagrange's dual.
        Multipliers of soft rows never leave their chunk. L-BFGS with a preconditioner from second moments of
        the rows takes 10 to 50 passes. With `sample`, each step solves the problem of a sample of the rows
        with the gradient of all, which takes about 5 passes where the sample has many rows beyond their
        bounds. With hard rows, each pass finds those that are broken the most, and with the hinge those that
        are nearest to their bounds. They are kept in memory while they act, and a route of this package
        solves their problem.

        Parameters
        ----------
        X0 : array_like of shape (d, d), or LowRank
            Positive definite. For pairs without points it is a ``LowRank`` matrix whose factor has the points
            as rows, and the answer is one with the same range.
        divergence : {"logdet", "von_neumann"}
        executor : concurrent.futures.Executor, optional
            Runs the chunks. Sums are taken in the order of the chunks, so the answer does not depend on it,
            bit for bit, on machines of one kind. Arrays in memory are sent to other processes in each pass;
            files are not.
        sample : int, "auto" or None
            Rows of the sample, about; they are held in memory. "auto" is a twentieth, at most 200,000, of
            200,000 soft rows or more, and otherwise None, no sample. They are drawn in proportion to their
            weights, the same share of each sense in each chunk. Where steps gain too little, as the sample
            does not represent the rows, all rows give the curvature. Hard rows and hinges have no sample.
        seed : int
            Of the sample.
        tol : float
            Relative duality gap, and violation of hard rows relative to their bounds.
        max_passes : int
            It is checked after each step, which may take several passes.
        resume : path, optional
            File of a checkpoint, written after each pass. If it exists the solve goes on from there, with the
            best matrix so far.
        time_limit : float, optional
            Seconds, after which the best matrix so far is returned. It is looked at after each chunk, and
            Ctrl-C too.
        verbose : bool
            Print a line for each pass.
        progress : bool
            Show a bar of the digits of the gap (needs tqdm).
        callback : callable, optional
            Called with a :class:`~bregopt.routes.progress.Step` after each pass; True ends the solve.

        Returns
        -------
        Solution
            `iterations` counts the passes; `duals` is None, as the multipliers stay with the rows. If the
            hard rows are infeasible, `stop_reason` has the numbers of rows that contradict each other. If the
            time ends within the first pass, `X` is the start, `value` is NaN and `gap` infinite.

        Raises
        ------
        TypeError, ValueError
            If an argument or a row is bad, or the checkpoint is of another problem.
        InfeasibleRowError
            If the vector of a hard row ``>= bound`` is zero.

        Warns
        -----
        ConvergenceWarning
            If the gap or a violation is above `tol`.

        References
        ----------
        Kulis, Sustik, Dhillon (2009), eq. 22; for samples: Shamir, Srebro, Zhang (2014),
        Communication-Efficient Distributed Optimization using an Approximate Newton-type Method, ICML; for
        hard rows beside soft ones: Lu, Freund, Nesterov (2018), Relatively Smooth Convex Optimization by
        First-Order Methods, and Applications, SIAM J. Optim. 28.
        """
        from bregopt.chunks.solve import Options, solve  # it reads this module's chunks

        watched = (time_limit, verbose, progress, callback)
        return solve(self, X0, divergence, Options(executor, sample, seed, tol, max_passes, resume, *watched))

    def _column(self, value: Any, name: str) -> Source | float:
        """Return a number for all rows, or one a row."""
        stored = isinstance(value, str | os.PathLike | ParquetColumns) or is_dask(value)
        if not stored and (number := rectangular(value, name)).ndim == 0:
            if number.dtype.kind not in "iuf":
                raise TypeError(
                    f"{name} is {value!r}; expected a number, an array or the path of an npy file"
                )
            return float(number)
        column = source_of(value, name)
        shape = column.shape
        if shape != (self.m,):
            raise ValueError(f"{name} has shape {shape}; expected ({self.m},), one value a row")
        return column


def _points_of(value: Any) -> Source:
    points = source_of(value, "points")
    if len(points.shape) != 2:
        raise ValueError(f"points has shape {points.shape}; expected (n, d)")
    return points


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
        self._points = None if points is None else _points_of(points)
        self._size = positive_integer(chunk, "chunk")
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
        resume: str | os.PathLike[str] | None = None,
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
            File of a checkpoint, written after each round. If it exists the solve goes on from there, by the
            same rounds.
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
