"""Sparse inverse covariance estimation: connected parts, a method on each, and one certificate.

On a part a step of descent ends where the estimate of its gap has fallen by a factor, and is certified then.
Splitting replaces descent where that is slow. It is the alternating direction method of multipliers, for
rough answers. Each iteration takes one eigendecomposition, whatever the condition of the problem, where the
quadratic model of Newton's method takes many products. The scaled multiplier is in the box by construction,
so it is a dual point (Boyd, Parikh, Chu, Peleato, Eckstein 2011, Distributed Optimization and Statistical
Learning via the Alternating Direction Method of Multipliers, sections 3.4.1, 3.4.3, 6.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bregopt import clock
from bregopt.arrays import EPS, Array, IntArray
from bregopt.certify import Certificate
from bregopt.clock import CutShort, affords, checkpoint
from bregopt.linalg import inverse_of, root_of, symmetrize
from bregopt.program import StopReason
from bregopt.records import dataclass, replace
from bregopt.routes.graphical_lasso.descent import SINGLE_ORDER, Descent
from bregopt.routes.graphical_lasso.problem import (
    LassoData,
    LassoPoint,
    certify_lasso,
    clipped,
    lasso_certificate,
    square_of,
)
from bregopt.routes.progress import Progress, reason

Restated = Callable[..., Certificate]  # of the arguments of `lasso_certificate`
_SHARE = 0.9  # of the tolerance: the certificate in the units of the data rounds differently
_REPEATS = 3  # the parts together may miss a tolerance that each of them meets
_LARGEST_CORRELATION = 0.999  # beyond it the approximation of the start nears a division by zero
# Factors of the entries off the diagonal of an estimate. It is reduced until it is definite by a margin: the
# inverse of a nearly singular matrix has large entries, and so many more that may be free.
_FACTORS, _MARGIN = (1.0, 0.97, 0.9, 0.8), 0.97
_LEAST_VARIANCE = 1e-2  # of what a regression leaves, so that its inverse stays moderate
_LEAST_CURVATURE: Any = np.float32(1e-4)  # along a step, relative to its square; below it the length is one
_LONGEST = 8  # factor of the number of steps of a sweep, up to which it may double
_TINY: Any = np.finfo(np.float32).tiny
Watch = Callable[[LassoPoint], StopReason | None]
# Limit on steps, each with a certificate, where the option `max_iter` gives none.
_STEPS = 200
# Limit on the times that the regressions of the start are taken, each time with the covariance of the
# last ones.
_SWEEPS = 20
# Gradient steps of the regressions each time, at first: they double where the covariance changes more
# than before. With 1 the time is a tenth longer, with 3 a thirtieth.
_SWEEP_STEPS = 2
# Change of the covariance, in units of its diagonal, with which the start is near enough. With 0.05 the
# time is a twentieth longer, with 0.01 a fiftieth.
_SETTLED = 0.02
# Limit on Newton steps before a certificate.
_NEWTON_STEPS = 30
# Factor by which the estimate of the gap falls before a certificate, which costs up to a Newton step.
_STEP_FACTOR = 1e5
# Ratio of the estimate to that at the last progress that counts as progress.
_IDLE_RATIO = 0.5
# Newton steps without progress after which splitting takes over.
_IDLE_ROUNDS = 4
# Relative gap down to which all of the descent, and splitting, are in single precision.
_SINGLE_GAP = 1e-5
# Iterations of splitting between two certificates.
_SPLITTING_STEPS = 3
# Of splitting. With 1.8 it takes about 0.6 of the iterations that it takes with 1.
_RELAXATION = 1.8
# Ratio of the relative residuals of splitting from which the weight of its quadratic term changes.
_BALANCE = 2.0
# Factor by which splitting then reduces the gap, before the descent takes over again. Its power grows by
# one each time.
_HANDOVER_FACTOR = 30.0
# Steps without any reduction of the gap after which the method has stalled.
_IDLE_STEPS = 30


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


# Pays on: 10 groups of 20 variables.
def solve_lasso(
    data: LassoData,
    tol: float,
    limit: int | None,
    progress: Progress,
    start: Array | None = None,
    restated: Restated = lasso_certificate,
) -> LassoAnswer:
    """Solve a problem; see :mod:`bregopt.routes.graphical_lasso.problem`.

    Parameters
    ----------
    data : LassoData
    tol : float
        Relative gap.
    limit : int or None
        Largest number of steps of a part.
    progress : Progress
    start : array of shape (n, n), optional
        Positive definite: the answer for a similar problem.
    restated : callable
        Returns the certificate of an order and two values, in other units than those of `data`.
    """
    direction = _falling_direction(data)
    if direction is not None:
        return _unbounded(data, direction)
    parts = connected_parts(data)
    units = 1 / np.sqrt(data.S.diagonal() + data.penalty.diagonal())
    solver = _Parts(data, parts, units, start, limit or _STEPS, progress, restated)
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
        progress: Progress,
        restated: Restated,
    ) -> None:
        self._data, self._n, self._units, self._limit = data, data.n, units, limit
        self._progress, self._restated = progress, restated
        self._parts = [_part(data, rows, units, start) for rows in parts if len(rows) > 1]
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

        part.at, stop = solve_part(part.data, part.at, target, self._limit, watch)
        return stop

    def _total(self, of: Callable[[LassoPoint], float]) -> float:
        """Return the sum of values or bounds over all rows, in the units of the data."""
        alone = self._n - sum(part.data.n for part in self._parts)
        return math.fsum(of(part.at) for part in self._parts) + alone + self._constant


def _part(data: LassoData, rows: IntArray, units: Array, start: Array | None) -> _Part:
    """Return a part in its own units."""
    block, own = data.block(rows), units[rows]
    square = np.outer(own, own)
    scaled = LassoData(block.S * square, block.penalty * square)
    first = None if start is None else start[square_of(rows, data.n)] / square
    return _Part(rows, scaled, square, first_point(scaled, first))


def _falling_direction(data: LassoData) -> Array | None:
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
    _, label = connected_components(sp.csr_array(edges), directed=False)
    order = np.argsort(label, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(label))[:-1])
    return sorted(parts, key=len, reverse=True)


def solve_part(
    data: LassoData, at: LassoPoint, target: float, limit: int, watch: Watch
) -> tuple[LassoPoint, StopReason]:
    """Reduce the distance of value and bound to at most `target`.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    at : LassoPoint
    target : float
    limit : int
        Largest number of steps.
    watch : callable
        Called after each step; a reason ends the work.

    Returns
    -------
    (LassoPoint, StopReason)
        UNBOUNDED if ``X`` is a direction along which the objective falls without end.
    """
    method, idle = _Methods(data, target, at), 0
    try:
        for _ in range(limit):
            if at.error <= target:
                return at, StopReason.CONVERGED
            checkpoint(data.n)
            before = at.error
            at = method.step(at)
            if data.linear_part(at.X) <= 0:
                return at, StopReason.UNBOUNDED
            idle = 0 if at.error < before else idle + 1
            stop = StopReason.STALLED if idle > _IDLE_STEPS else watch(at)
            if stop is not None:
                return at, stop
    except CutShort as cut:
        return at, reason(cut)
    return at, StopReason.CONVERGED if at.error <= target else StopReason.MAX_ITER


class _Methods:
    """Descent in single precision as long as that is enough, descent in double precision, and splitting."""

    def __init__(self, data: LassoData, target: float, at: LassoPoint) -> None:
        self._data, self._target = data, target
        self._least_single = math.inf  # gap from which single precision is enough
        if data.n >= SINGLE_ORDER:
            self._least_single = _SINGLE_GAP * max(abs(at.value), data.n)
        self._descent: Descent | None = None
        self._splitting, self._handover = _Splitting(data), math.inf
        self._splits, self._factor = False, _HANDOVER_FACTOR
        self._trust = 1.0  # in the estimate of the gap

    # Pays on: breast cancer, penalty 0.01.
    def step(self, at: LassoPoint) -> LassoPoint:
        """Return the point after one step, certified."""
        if at.error > self._handover:
            if not self._splits:
                self._splitting.start(at, self._handover >= self._least_single)
                self._splits, self._descent = True, None
            return self._splitting.advance(at)
        self._splits = False
        before = min(at.error, self._data.n)
        goal = max(self._target, before / _STEP_FACTOR)
        single = before > self._least_single
        if single:
            goal = max(goal, self._least_single)
        if self._descent is None or self._descent.single > single:
            self._descent = Descent(self._data, at, single)
        descent = self._descent
        reached, idle = self._descended(descent, self._trust * goal)
        at = descent.proven(self._data, at)
        if reached and at.error > goal:
            self._trust /= 2
        if descent.stuck and single:
            self._least_single, self._descent = math.inf, None
        elif idle and at.error > self._target:
            self._handover = max(self._target, min(before, at.error) / self._factor)
            self._factor *= _HANDOVER_FACTOR
        return at

    def _descended(self, descent: Descent, goal: float) -> tuple[bool, bool]:
        """Return whether rounds reached the goal, and whether they ended as the estimate fell no more."""
        best, idle = math.inf, 0
        for _ in range(_NEWTON_STEPS):
            if descent.round(goal) or descent.stuck:
                return not descent.stuck, False
            estimate = descent.estimate
            idle = 0 if estimate <= _IDLE_RATIO * best else idle + 1
            best = min(best, estimate) if idle else estimate
            if idle >= _IDLE_ROUNDS:
                return False, True
        return False, False


class _Splitting:
    """The method; it keeps the weight ``rho`` of its quadratic term from run to run.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    """

    def __init__(self, data: LassoData) -> None:
        self._data = data
        self._rho = 1.0

    def start(self, at: LassoPoint, single: bool) -> None:
        """Begin at a point, in single or in double precision."""
        kind: Any = np.float32 if single else np.float64
        self._number = kind
        self._S, self._penalty = self._data.S.astype(kind), self._data.penalty.astype(kind)
        self._Z, self._V = at.X.astype(kind), (at.U / self._rho).astype(kind)
        if np.count_nonzero(at.X) == self._data.n:  # the multipliers of a diagonal matrix lead astray
            self._V = np.zeros_like(self._Z)

    def advance(self, at: LassoPoint) -> LassoPoint:
        """Return the point after some iterations: the better of old and new, primal and dual apart."""
        for _ in range(_SPLITTING_STEPS):
            self._iterate()
        data = self._data
        U = data.clip(symmetric(self._number(self._rho) * self._V))
        bound = data.bound(U)
        if bound > at.bound:
            at = replace(at, U=U, bound=bound)
        X = symmetric(self._Z)
        root = root_of(X)
        value = math.inf if root is None else data.value(X, root)
        return at if root is None or value >= at.value else replace(at, X=X, value=value)

    def _iterate(self) -> None:
        rho, before, ratio = self._number(self._rho), self._Z, _BALANCE
        eigenvalues, Q = np.linalg.eigh(before - self._V - self._S / rho)
        positive = (eigenvalues + np.sqrt(eigenvalues**2 + 4 / rho)) / 2
        T = (Q * positive) @ Q.T
        relax = self._number(_RELAXATION)
        A, reach = relax * T + (1 - relax) * before + self._V, self._penalty / rho
        self._V = clipped(A, reach)
        self._Z = A - self._V
        primal = _norm(T - self._Z) / max(_norm(T), _norm(self._Z))
        multiplier = _norm(self._V)
        dual = _norm(self._Z - before) / multiplier if multiplier else math.inf
        if primal > ratio * dual:
            self._rho *= 2
            self._V = self._V / 2
        elif dual > ratio * primal:
            self._rho /= 2
            self._V = self._V * 2


def _norm(M: Any) -> float:
    return float(np.linalg.norm(M))


# --- The start --------------------------------------------------------------------------------------
#
# The regression of each variable on all others with a penalty. The solution of sparse inverse covariance
# estimation with the covariance ``W`` of the model has the columns ``X_ij = -b_ij X_jj``, where ``b_j``
# minimizes ``b' W b / 2 - b' S_j + sum_i P_ij |b_i|`` over ``b_jj = 0``, and ``W b_j`` is the column ``j`` of
# ``W`` (Friedman, Hastie, Tibshirani 2008, Sparse Inverse Covariance Estimation with the Graphical Lasso,
# Biostatistics 9, sect. 2). They minimize and replace one column after the other. Here a few gradient steps
# reduce all columns at the same time, with one product of matrices a step, and then all are replaced. The
# first ``W`` is ``S`` with its entries shrunk by the penalty.


def first_point(data: LassoData, X: Array | None) -> LassoPoint:
    """Return a start without a bound: a given matrix, an estimate by regressions or for trees, the identity.

    The diagonal of ``S`` and penalty is one. Where the graph of ``|S_ij| > P_ij`` has no cycle, the estimate
    for trees is the solution (Fattahi, Sojoudi 2019, Graphical Lasso and Thresholding, JMLR 20, thm. 1).
    """
    nothing = -data.clip(data.S)
    for candidate in _candidates(data, X):
        root = root_of(candidate)
        value = math.inf if root is None else data.value(candidate, root)
        if root is not None and value < data.n:  # the value of the identity
            return LassoPoint(candidate, value, nothing, -math.inf)
    return LassoPoint(np.eye(data.n), float(data.n), nothing, -math.inf)


# Pays on: 300 variables.
def _candidates(data: LassoData, X: Array | None) -> Iterator[Array]:
    """Yield starts, the best ones first."""
    if X is not None:
        yield X
    if not data.penalty.any():  # the inverse is the solution
        full = root_of(data.S)
        if full is not None:
            yield inverse_of(full)
    R = data.S - data.clip(data.S)
    np.fill_diagonal(R, 0.0)
    if np.count_nonzero(R != 0) >= 2 * data.n:  # it has a cycle
        estimate = _definite(neighborhood_estimate(data))
        if estimate is not None:
            yield estimate.astype(np.float64)
    if np.abs(R).max(initial=0.0) < _LARGEST_CORRELATION:
        near = -R / (1 - R * R)
        np.fill_diagonal(near, 1 - (R * near).sum(axis=0))
        yield near


def _definite(X: Array) -> Array | None:
    """Return a matrix whose entries off the diagonal are reduced until it is definite by a margin."""
    for factor in _FACTORS:
        further = factor / _MARGIN * X
        np.fill_diagonal(further, X.diagonal())
        if root_of(further) is not None:
            reduced = factor * X
            np.fill_diagonal(reduced, X.diagonal())
            return reduced
    return None


def symmetric(M: Any) -> Array:
    """Return the symmetric part in double precision."""
    double: Array = M.astype(np.float64)
    return (double + double.T) / 2


def neighborhood_estimate(data: LassoData) -> Array:
    """Return a symmetric matrix near the solution, mostly positive definite.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    """
    kind: Any = np.float32 if data.n >= SINGLE_ORDER else np.float64
    S, reach = data.S.astype(kind), data.penalty.astype(kind)
    W = S - clipped(S, reach)
    np.fill_diagonal(W, 1)
    np.fill_diagonal(S, 0)
    np.fill_diagonal(reach, np.inf)
    B, residual = np.zeros_like(S), -S  # a regression is a row; the gradient of its quadratic part
    lengths, change, steps = np.ones((data.n, 1), kind), math.inf, _SWEEP_STEPS
    for sweep in range(_SWEEPS):
        if sweep:
            if not affords(data.n):
                break
            last, before = change, W
            W = S + clipped(symmetrize(residual + S) - S, reach)
            np.fill_diagonal(W, 1)
            residual = B @ W - S
            change = float(np.linalg.norm(W - before)) / math.sqrt(data.n)
            if change > last:  # the regressions lag behind their covariance
                steps *= 2
            if steps > _LONGEST * _SWEEP_STEPS:
                break
        lengths = _descended(B, residual, lengths, W, reach, steps)
        if change <= _SETTLED:
            break
    residual += S
    explained = np.einsum("ij,ij->i", B, residual)
    precision = 1 / np.maximum(1 - explained, _LEAST_VARIANCE)
    B *= -precision[:, None]
    X: Array = symmetrize(B)
    np.fill_diagonal(X, precision)
    return X


def _descended(B: Any, residual: Any, lengths: Any, W: Any, reach: Any, steps: int) -> Any:
    """Take proximal gradient steps in place, and return the lengths of the next ones, one for each row."""
    for step in range(steps):
        E = B - lengths * residual
        E -= clipped(E, lengths * reach)
        E -= B
        change = E @ W
        size, curvature = np.einsum("ij,ij->i", E, E), np.einsum("ij,ij->i", E, change)
        concave = curvature < 0
        if concave.any():  # `W` may be indefinite; a regression without a minimum stays where it is
            E[concave] = change[concave] = 0
        B += E
        residual += change
        steep = curvature > np.maximum(_LEAST_CURVATURE * size, _TINY)
        if step % 2:  # the two lengths of Barzilai and Borwein, in turns
            ratio = size, curvature
        else:
            ratio = curvature, np.einsum("ij,ij->i", change, change)
        lengths = np.divide(*ratio, out=np.ones_like(size), where=steep)[:, None]
    return lengths
