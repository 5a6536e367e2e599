"""Sparse inverse covariance estimation: connected parts, descent on each, and one certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bregopt import clock
from bregopt.arrays import EPS, Array, IntArray, Mask
from bregopt.certify import Certificate
from bregopt.certify.graphical_lasso import LassoData, certify_lasso, lasso_certificate, square_of
from bregopt.program import StopReason
from bregopt.routes.graphical_lasso.part import solve_part
from bregopt.routes.graphical_lasso.point import LassoPoint, first_point
from bregopt.routes.graphical_lasso.tuning import LassoTuning
from bregopt.routes.progress import Progress

__all__ = ["LassoAnswer", "connected_parts", "falling_direction", "solve_lasso"]

Restated = Callable[..., Certificate]  # of the arguments of `lasso_certificate`

_SHARE = 0.9  # of the tolerance: the certificate in the units of the data rounds differently
_REPEATS = 3  # the parts together may miss a tolerance that each of them meets
_ROUNDS = 12  # enough for most graphs of data: six edges lead from the first vertex to the others


@dataclass(frozen=True, eq=False)
class LassoAnswer:
    """The answer and its certificate.

    Parameters
    ----------
    X, U : array of shape (n, n)
        Primal and dual point. For an unbounded problem ``X`` is the direction.
    certificate : Certificate
    stop : StopReason
    iterations : int
        Steps with a certificate, summed over the parts.
    parts : list of int arrays
        Rows of each connected part, the largest first.
    """

    X: Array
    U: Array
    certificate: Certificate
    stop: StopReason
    iterations: int
    parts: list[IntArray]


@dataclass(eq=False)
class _Part:
    """A connected part with more than one row, in units in which the diagonal of ``inv(X)`` is one."""

    rows: IntArray
    data: LassoData
    units: Array
    at: LassoPoint


def solve_lasso(
    data: LassoData,
    tol: float,
    limit: int | None,
    tuning: LassoTuning,
    progress: Progress,
    start: Array | None = None,
    restated: Restated = lasso_certificate,
) -> LassoAnswer:
    """Solve a problem; see :mod:`bregopt.certify.graphical_lasso`.

    Parameters
    ----------
    data : LassoData
    tol : float
        Relative gap.
    limit : int or None
        Largest number of steps of a part.
    tuning : LassoTuning
    progress : Progress
    start : array of shape (n, n), optional
        Positive definite: the answer for a similar problem.
    restated : callable
        Returns the certificate of an order and two values, in other units than those of `data`.
    """
    direction = falling_direction(data)
    if direction is not None:
        return _unbounded(data, direction)
    parts = connected_parts(data)
    units = 1 / np.sqrt(data.S.diagonal() + data.penalty.diagonal())
    solver = _Parts(data, parts, units, start, limit or tuning.steps, tuning, progress, restated)
    certificate = lasso_certificate(data.n, math.inf, -math.inf)
    stop, share = StopReason.CONVERGED, _SHARE
    for _ in range(_REPEATS):
        stop = solver.run(share * tol)
        if stop is StopReason.UNBOUNDED:
            return _unbounded(data, solver.direction)
        X, U = solver.assembled()
        with clock.finishing():
            proven = certify_lasso(data, X, U, parts)
            certificate = restated(data.n, proven.primal, proven.dual, proven.evaluation_error)
        if stop is not StopReason.CONVERGED or certificate.meets(tol):
            break
        share *= min(0.5, _SHARE * tol / certificate.gap)
    if not solver.steps:
        progress.record(0, certificate)
    return LassoAnswer(X, U, certificate, stop, solver.steps, parts)


class _Parts:
    """The parts of a problem, with the progress of the whole."""

    def __init__(
        self,
        data: LassoData,
        parts: Sequence[IntArray],
        units: Array,
        start: Array | None,
        limit: int,
        tuning: LassoTuning,
        progress: Progress,
        restated: Restated,
    ) -> None:
        self._data, self._n, self._units, self._limit = data, data.n, units, limit
        self._tuning, self._progress, self._restated = tuning, progress, restated
        self._parts = [_part(data, rows, units, start, tuning) for rows in parts if len(rows) > 1]
        self._constant = -2 * float(np.log(units).sum())  # of the objective, by the change of units
        self.steps = 0
        self.direction = np.zeros((self._n, self._n))

    def run(self, tol: float) -> StopReason:
        """Solve each part to a relative gap, from its last point."""
        for part in self._parts:
            stop = self._solved(part, tol)
            if stop is not StopReason.CONVERGED:
                if stop is StopReason.UNBOUNDED:
                    self.direction[square_of(part.rows, self._n)] = part.at.X * part.units
                return stop
        return StopReason.CONVERGED

    def assembled(self) -> tuple[Array, Array]:
        """Return ``X`` and ``U`` in the units of the data."""
        data = self._data
        X, U = np.diag(self._units**2), -data.clip(data.S)
        np.fill_diagonal(U, data.penalty.diagonal())
        for part in self._parts:
            square = square_of(part.rows, self._n)
            X[square] = part.at.X * part.units + 0.0  # no negative zeros
            U[square] = part.at.U / part.units
        return X, data.clip(U)

    def _solved(self, part: _Part, tol: float) -> StopReason:
        size = max(abs(self._total(lambda at: at.value)), 1e-2 * self._n)
        target = tol * size * part.data.n / self._n

        def watch(at: LassoPoint) -> StopReason | None:
            part.at = at
            self.steps += 1
            primal, dual = self._total(lambda p: p.value), self._total(lambda p: p.bound)
            self._progress.record(self.steps, self._restated(self._n, primal, dual))
            return self._progress.stop()

        part.at, stop = solve_part(part.data, part.at, target, self._limit, self._tuning, watch)
        return stop

    def _total(self, of: Callable[[LassoPoint], float]) -> float:
        """Return the sum of values or bounds over all rows, in the units of the data."""
        alone = self._n - sum(part.data.n for part in self._parts)
        return math.fsum(of(part.at) for part in self._parts) + alone + self._constant


def _part(data: LassoData, rows: IntArray, units: Array, start: Array | None, tuning: LassoTuning) -> _Part:
    """Return a part in its own units."""
    block, own = data.block(rows), units[rows]
    square = np.outer(own, own)
    scaled = LassoData(block.S * square, block.penalty * square)
    first = None if start is None else start[square_of(rows, data.n)] / square
    return _Part(rows, scaled, square, first_point(scaled, first, tuning))


def falling_direction(data: LassoData) -> Array | None:
    """Return a psd matrix along which the objective falls without end, None if none is seen.

    The linear part of the objective does not grow along it, up to round-off, and ``-logdet`` falls. Such
    directions are entries of the diagonal, and squares of eigenvectors of ``S``.
    """
    diagonal = data.S.diagonal() + data.penalty.diagonal()
    k = int(np.argmin(diagonal))
    if diagonal[k] <= 0:
        R = np.zeros((data.n, data.n))
        R[k, k] = 1.0
        return R
    free = data.penalty == 0
    np.fill_diagonal(free, False)
    if not free.any():
        return None
    units = 1 / np.sqrt(diagonal)
    eigenvalues, V = np.linalg.eigh(data.S * np.outer(units, units))
    noise = data.n * EPS * max(float(eigenvalues[-1]), 1.0)
    if eigenvalues[0] > noise:
        return None
    v = units * V[:, 0]
    R = np.outer(v, v)
    return R if data.linear_part(R) <= noise else None


def _unbounded(data: LassoData, direction: Array) -> LassoAnswer:
    nothing = lasso_certificate(data.n, -math.inf, -math.inf)
    return LassoAnswer(direction, np.zeros_like(direction), nothing, StopReason.UNBOUNDED, 0, [])


def connected_parts(data: LassoData) -> list[IntArray]:
    """Return the rows of each connected component of the graph with edges ``|S_ij| > P_ij``, largest first.

    The solution is zero between components (Witten, Friedman, Simon 2011, New Insights and Faster
    Computations for the Graphical Lasso, J. Comput. Graph. Stat. 20; Mazumder, Hastie 2012, Exact Covariance
    Thresholding into Connected Components for Large-Scale Graphical Lasso, JMLR 13).
    """
    edges = np.abs(data.S) > data.penalty
    np.fill_diagonal(edges, False)
    joined: Mask = np.any(edges, axis=0)
    parts = _searched(edges, joined)
    if parts is not None:
        return [*sorted(parts, key=len, reverse=True), *np.flatnonzero(~joined)[:, None]]
    _, label = connected_components(sp.csr_array(edges), directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(label))[:-1])
    return sorted(parts, key=len, reverse=True)


def _searched(edges: Mask, joined: Mask) -> list[IntArray] | None:
    """Return the components of the vertices with edges by a search with dense arrays, None if that is long.

    Where a few rounds from a few vertices reach all, it takes a tenth of the time of a sparse matrix.
    """
    parts: list[IntArray] = []
    left, reached = joined, np.zeros_like(joined)
    for _ in range(_ROUNDS):
        if not left.any():
            return parts
        if not reached.any():
            reached[np.argmax(left)] = True
        further = edges[reached].any(axis=0) | reached
        if np.array_equal(further, reached) or np.array_equal(further, left):
            parts.append(np.flatnonzero(further))
            left, further = left & ~further, np.zeros_like(left)
        reached = further
    return None
