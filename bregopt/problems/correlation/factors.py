"""The nearest correlation matrix with factor structure: a few common factors, and a variance of each row.

Lower bounds on the distance of a matrix from those with ``k`` factors, which no loadings can beat, decide the
status. The distance is ``||off(B - M M')||_F^2`` for `M` of shape ``(n, k)`` with ``||m_i||^2 <= c_i``.
Entries of the diagonal do not count, which is why the best approximation of rank `k` alone proves nothing.
Two bounds prove something:

- For disjoint sets ``I`` and ``J`` the block of ``M M'`` has rank `k` at most. Its distance from ``B_IJ`` is
  at least the sum of the squared singular values of ``B_IJ`` from the ``k + 1``-st on (Eckart and Young). A
  large matrix is split in halves, these again. A small one is divided into 16 groups, the columns of a
  Hadamard matrix. Each of its 15 rows with both signs splits the groups into two sets. Two columns differ in
  exactly 8 rows, as they are orthogonal, so the sum over the 15 splits counts each pair of different groups 8
  times. An average over many splits of the whole keeps more than the one split and those of its halves.
- On ``[0, c]``, ``z^2 <= c z``. With ``Z = M M'`` the distance is therefore at least
  ``||off(B)||^2 + ||Z||^2 - 2 <off(B) + Diag(c) / 2, Z>``. Its minimum over psd ``Z`` of rank `k` is
  ``||off(B)||^2`` minus the sum of the `k` largest squared positive eigenvalues of ``off(B) + Diag(c) / 2``.

The distance of the nearest correlation matrix of any structure is a third bound, for an indefinite matrix.

Round-off of the eigenvalues is subtracted from the first two: those that LAPACK computes are exact for a
matrix whose distance is at most a modest multiple of the unit round-off times the order, relative to the
norm.

A row that is at its radius, with a multiplier, moves in the tangent plane of its sphere. On these planes the
Hessian of the Lagrangian of ``||off(B - R R')||_F^2`` is, with ``q_i = ||r_i||^2`` and multipliers ``mu``,

    H D = 4 (D R'R + R (D'R + R'D) - (off(B) + Diag(q)) D - 2 Diag(<r_i, d_i>) R) + Diag(mu) D.

Conjugate gradients solve ``H D = -G`` to a residual that decreases with the gradient (Dembo and Steihaug
1983). At an optimum the columns of ``R`` are, after a rotation, eigenvectors of ``off(B) + Diag(q)``, of the
largest eigenvalues ``g_i``. For a direction orthogonal to ``R``, column i of ``H D`` is then
``4 (g_i I - off(B) - Diag(q)) d_i``, and the preconditioner is the multiple of ``g_i``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import hadamard
from scipy.sparse.linalg import ArpackError, eigsh

from bregopt import clock
from bregopt.arrays import (
    EPS,
    TINY,
    Array,
    ArrayOrFrame,
    ArrayOrSeries,
    IntArray,
    Mask,
    positive_integer,
    symmetric_matrix,
)
from bregopt.clock import CutShort, checkpoint, threads_for
from bregopt.display import Axes, plot_loadings
from bregopt.errors import ConvergenceWarning, DataWarning, warn_caller
from bregopt.io.matrices import aligned, framed, is_pandas, labels_of
from bregopt.linalg import conjugate_gradients, root_of, turned
from bregopt.problems.arguments import row_weights
from bregopt.problems.correlation.nearest import nearest_correlation
from bregopt.problems.correlation.rank import (
    ROUND_OFF,
    Descent,
    Objective,
    distance,
    proven_fields,
    top_squares,
)
from bregopt.problems.correlation.request import diagonal_message, least_eigenvalue
from bregopt.program import LowRank, StopReason
from bregopt.records import dataclass
from bregopt.routes.base import Seed, Settings
from bregopt.routes.progress import reason
from bregopt.routes.solution import Solution

_WEAK = 0.8  # fraction of the distance below which the third bound is computed for any order
_CHEAP = 50  # order up to which it always is
_LEAST_WEIGHT = 1e-12  # least weight relative to the largest, for which it is

_LIKELY = 0.9  # fraction of the distance from which on the second bound, if possible, is mostly the best

_GROUPS = 16  # a power of two
_SIDES = hadamard(_GROUPS)[1:] < 0  # the side of each group in each split, shape (15, 16)
_SMALL = 150  # order up to which a matrix is divided into groups

_MAX_ITER = 1_000
_ROUND_OFF = 1e-14  # of values, relative to ``||off(B)||^2``
_DECREASE = 1e-4  # fraction of the decrease to first order that a step must attain
_CUT = 0.25  # factor of a step that does not decrease the objective enough
_NEWTON_TRIALS, _GRADIENT_TRIALS = 4, 16  # lengths of each step
_PRODUCTS = 100  # limit on the products with the Hessian in a step
_FORCING = 0.1  # largest relative residual of the equation
_LEAST = 0.01  # of the preconditioner's eigenvalues, relative to the largest
_NEAR = 1e-3  # share of a squared radius that a row may lack to count as at its radius, at most
_DENSE = 20  # order for each eigenvector up to which all take no longer than Lanczos's method
_ACCURATE = 1e-3  # relative residual of the eigenvectors
_CITATION = "Borsdorf, Higham, Raydan (2010), Computing a nearest correlation matrix with factor structure"


def factor_bound(B: Array, R: Array, w: Array, t: float, value: float) -> float:
    """Return the best of the bounds on ``||off(B - M M')||_F^2`` that there is time for.

    Parameters
    ----------
    B : array of shape (n, n)
        ``W^1/2 A W^1/2`` with a zero diagonal.
    R : array of shape (n, k)
        A local optimum.
    w : array of shape (n,)
        The diagonal of ``W``.
    t : float
        ``||m_i||^2 <= (1 - t) w_i``.
    value : float
        The distance of ``R R'``.
    """
    bound = 0.0
    with clock.finishing(), suppress(CutShort):
        c, k, Q = w * (1 - t), R.shape[1], np.linalg.qr(R)[0]
        ritz = np.maximum(np.linalg.eigvalsh(Q.T @ (B @ Q + c[:, None] * Q / 2)), 0.0)
        possible = float(np.vdot(B, B) - ritz @ ritz)  # eigenvalues are no smaller than Ritz values
        if possible > _LIKELY * value:
            bound = eigenvalue_bound(B, k, c)
            checkpoint(len(B))
        bound = bisection_bound(B, k, R=R, least=bound)
        if bound < possible <= _LIKELY * value:
            checkpoint(len(B))
            bound = max(bound, eigenvalue_bound(B, k, c))
        if bound < _WEAK * value or len(B) <= _CHEAP:
            bound = max(bound, _convex_bound(B, w, t))
    return bound


def bisection_bound(B: Array, k: int, seed: int = 0, R: Array | None = None, least: float = 0.0) -> float:
    """Return the bound by blocks of rank `k`, zero where no block has more than `k` rows; or `least`.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric; the diagonal is not used.
    k : int
    seed : int
        Seed of the random order in which rows are divided: an order of the user's, such as one by time,
        would leave little in the blocks.
    R : array of shape (n, k), optional
        A local optimum. Each block of ``R R'`` has rank `k`, so that its distance is at least that of the
        best one; the sum of these distances tells early that the bound is not above `least`.
    least : float
    """
    order = np.random.default_rng(seed).permutation(len(B))
    bound, possible = 0.0, np.inf if R is None else distance(B, R)
    for weight, I, J in _blocks(order, k):  # noqa: E741
        checkpoint()
        block = B[I[:, None], J]
        tail = _tail(block, k)
        bound += weight * tail
        if R is not None:
            possible -= weight * (float(np.square(block - R[I] @ R[J].T).sum()) - tail)
            if possible <= least:
                break
    return max(bound, least)


def eigenvalue_bound(B: Array, k: int, c: Array) -> float:
    """Return the bound by the eigenvalues of ``off(B) + Diag(c) / 2``; zero if it is not above that.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    k : int
    c : array of shape (n,)
        The largest squared lengths of the rows.
    """
    square = float(np.einsum("ij,ij->i", B, B).sum())  # by rows: less round-off
    shifted = B.copy()
    shifted[np.diag_indices(len(B))] = c / 2
    eigenvalues = np.asarray(np.linalg.eigvalsh(shifted), dtype=np.float64)
    size = len(B) * float(np.linalg.norm(shifted))
    return max(0.0, square * (1 - len(B) * EPS) - top_squares(eigenvalues, k, size))


def _convex_bound(B: Array, w: Array, t: float) -> float:
    """Return the bound by the nearest correlation matrix with eigenvalues from `t` on, zero if it is `A`."""
    shifted = B.copy()
    np.fill_diagonal(shifted, w * (1 - t))
    if w.min() < _LEAST_WEIGHT * w.max() or root_of(shifted) is not None:
        return 0.0
    s = np.sqrt(w)
    A = B / np.outer(s, s)
    np.fill_diagonal(A, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its bound is proven all the same
        warnings.simplefilter("ignore", DataWarning)  # its caller has warned of the data
        nearest: Any = nearest_correlation(A, min_eigenvalue=t, weights=w / w.max())
    return float(nearest.dual_value) * w.max() ** 2


def _blocks(order: IntArray, k: int, whole: bool = True) -> Iterator[tuple[float, IntArray, IntArray]]:
    """Yield blocks of the rows and columns in `order`, and the weight of each in the bound.

    Pairs inside a group are few but for the `whole` matrix.
    """
    n = len(order)
    if n < 2 * k + 2:  # no split has more than k rows on both sides
        return
    if n > _SMALL:
        halves = order[::2], order[1::2]
        yield 2.0, *halves
        for half in halves:
            yield from _blocks(half, k, whole=False)
        return
    groups = np.arange(n) % _GROUPS
    for side in _SIDES:
        of_group = side[groups]
        yield 2 / (_GROUPS // 2), order[of_group], order[~of_group]
    for g in range(_GROUPS if whole else 0):
        yield from _blocks(order[g::_GROUPS], k, whole=False)


def _tail(block: Array, k: int) -> float:
    """Return a lower bound on the sum of the squared singular values of a block but for the `k` largest."""
    block = block if block.shape[0] <= block.shape[1] else block.T
    left = len(block) - k
    if left <= 0:
        return 0.0
    eigenvalues = np.linalg.eigvalsh(block @ block.T)
    error = ROUND_OFF * sum(block.shape) * float(np.vdot(block, block))
    return max(float(eigenvalues[:left].sum()) - left * error, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class FactorModel(Solution):
    """A correlation matrix ``X = L L' + Diag(v)`` with few factors, and a bound on how near any such one is.

    The attributes of :class:`~bregopt.Solution` have these meanings: ``value`` is the squared distance of
    ``X``, ``dual_value`` is the proven bound, ``gap`` is their relative difference. ``status`` is "optimal"
    only if they agree, and "locally_optimal" at other local optima. ``duals`` is empty.

    Attributes
    ----------
    loadings : array or DataFrame of shape (n, k)
        ``L``, with orthogonal columns, the longest first; the entry of a column that is largest in magnitude
        is positive.
    specific_variances : array or Series of shape (n,)
        ``v = 1 - diag(L L')``, at least `min_specific_variance`.
    """

    loadings: ArrayOrFrame = field(kw_only=True)
    specific_variances: ArrayOrSeries = field(kw_only=True)

    def plot_loadings(self, ax: Sequence[Axes] | None = None) -> NDArray[np.object_]:
        """Draw the loadings, and the shares of each row's variance.

        Parameters
        ----------
        ax : sequence of two matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        array of two matplotlib axes

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message names the extra.
        """
        L: Any = self.loadings
        labels = list(L.index) if is_pandas(L, "DataFrame") else None
        return plot_loadings(np.asarray(L), np.asarray(self.specific_variances), labels, ax)


def factor_correlation(
    A: ArrayLike,
    k: int,
    min_specific_variance: float = 0.0,
    weights: ArrayLike | None = None,
    *,
    starts: int = 1,
    tol: float = Settings.tol,
    max_iter: int | None = None,
    time_limit: float | None = None,
    seed: Seed = 0,
) -> FactorModel:
    """Return a correlation matrix with `k` factors near `A`, and a bound on the distance of every such one.

    The matrix is ``X = L L' + Diag(v)`` with the loadings ``L`` of shape ``(n, k)`` and the specific
    variances ``v = 1 - diag(L L')``. It minimizes ``||X - A||_F^2`` to a local optimum.

    Parameters
    ----------
    A : array_like or DataFrame of shape (n, n)
        Symmetric; it need not be positive semidefinite.
    k : int, from 1 to n - 1
        The number of factors.
    min_specific_variance : float, from 0 and below 1
        Lower bound on ``v``, and so on the eigenvalues of ``X``.
    weights : array_like or Series of shape (n,), optional
        Above 0: ``||W^1/2 (X - A) W^1/2||_F^2`` with ``W`` their diagonal matrix is minimized.
    starts : int, at least 1
        The first start is the `k` leading eigenvectors of `A`, the others are random. The best local optimum
        is returned.
    tol : float
        Largest relative gap of an "optimal" answer, and largest projected gradient of a local optimum,
        relative to ``4 ||A||``.
    max_iter : int, optional
        Steps of each descent, 1000 by default.
    time_limit : float, optional
        In seconds.
    seed : int, numpy.random.Generator or SeedSequence
        Of the random starts.

    Returns
    -------
    FactorModel
        ``X``, ``loadings`` and ``specific_variances`` carry the labels of a DataFrame.

    Raises
    ------
    TypeError, ValueError
        If the input is bad; the message names the argument.

    Warns
    -----
    ConvergenceWarning
        If the descent ends before a local optimum.
    DataWarning
        If `A` looks like a covariance, or is asymmetric by more than the round-off of doubles.

    Notes
    -----
    The descent is Newton's method on loadings with rows in a ball. Conjugate gradients solve its equation,
    with leading eigenvectors of `A` as the preconditioner. The bound is the larger of two
    (:mod:`bregopt.problems.correlation.factors`): blocks off the diagonal have rank `k` at most, and so
    has ``L L'``. Where `A` is indefinite, a third is the distance of the nearest correlation matrix of any
    structure, for orders up to 50 and where the others prove little.

    References
    ----------
    Borsdorf, Higham, Raydan (2010), Computing a nearest correlation matrix with factor structure, SIAM J.
    Matrix Anal. Appl. 31.

    Examples
    --------
    >>> import bregopt as bo
    >>> A = [[1, 0.56, 0.4], [0.56, 1, 0.35], [0.4, 0.35, 1]]
    >>> bo.factor_correlation(A, 1).loadings.round(4).tolist()
    [[0.8], [0.7], [0.5]]
    """
    begin = time.perf_counter()
    settings = Settings(tol=tol, max_iter=max_iter, time_limit=time_limit, seed=seed)
    labels = labels_of(A, "A")
    if isinstance(A, LowRank):
        raise TypeError("A is LowRank; expected an array or DataFrame: pass A.dense()")
    target = symmetric_matrix(A, "A")
    n = len(target)
    k, starts = positive_integer(k, "k"), positive_integer(starts, "starts")
    if k >= n:
        raise ValueError(f"k is {k}; expected at most {n - 1}: n - 1 factors give every correlation matrix")
    t = least_eigenvalue(min_specific_variance, "min_specific_variance")
    w = row_weights(aligned(weights, labels, "weights"), n)
    message = diagonal_message(target, labels)
    if message is not None:
        warn_caller(message, DataWarning)
    with clock.limited(settings.time_limit), threads_for(n):
        descent, fields = _solved(target, k, t, w, starts, settings)
    L = turned(descent.R / np.sqrt(w)[:, None])
    L *= np.where(L[np.abs(L).argmax(axis=0), np.arange(k)] < 0, -1.0, 1.0)
    v = np.maximum(1 - np.einsum("ij,ij->i", L, L), t)
    X = L @ L.T
    np.fill_diagonal(X, 1.0)
    timings = {"total": time.perf_counter() - begin}
    model = FactorModel(
        **fields,
        X=framed(X, labels, labels),
        loadings=framed(L, labels),
        specific_variances=framed(v, labels),
        u={},
        duals=(),
        timings=timings,
        solver="factors",
        citation=_CITATION,
    )
    if descent.stop is not StopReason.CONVERGED and model.status != "optimal":
        warn_caller(f"factors: {model.status}. {model.stop_reason}", ConvergenceWarning)
    return model


def _solved(
    B: Array, k: int, t: float, w: Array, starts: int, settings: Settings
) -> tuple[Descent, dict[str, Any]]:
    """Return the best descent in terms of ``W^1/2 L``, and the fields that say how good its answer is.

    `B`, the matrix of the user, is overwritten by ``W^1/2 B W^1/2`` without its diagonal.
    """
    s, diagonal = np.sqrt(w), w * (B.diagonal() - 1)
    B *= s[:, None]
    B *= s
    unit, constant = float(np.vdot(B, B)), float(diagonal @ diagonal)
    first = leading_part(B, k)
    np.fill_diagonal(B, 0.0)
    radius = s * np.sqrt(1 - t)
    rng = np.random.default_rng(settings.seed)
    best: Descent | None = None
    for start in range(starts):
        R = first if start == 0 else radius[:, None] * rng.normal(size=first.shape) / np.sqrt(2 * k)
        found = descend_in_balls(B, R, radius, settings.tol, settings.max_iter or _MAX_ITER)
        if best is None or min(found.values) < min(best.values):
            best = found
        if clock.remaining() <= 0:
            break
    assert best is not None
    value = distance(B, best.R)
    bound = factor_bound(B, best.R, w, t, value)
    return best, proven_fields(best, value + constant, bound + constant, unit, constant, settings.tol)


# --- Descents -----------------------------------------------------------------------------------------------


def descend_in_balls(B: Array, R: Array, radius: Array, tol: float, max_iter: int) -> Descent:
    """Minimize ``||off(B - R R')||_F^2`` from `R` to a local optimum, with rows no longer than their radius.

    Parameters
    ----------
    B : array of shape (n, n)
        Symmetric, with a zero diagonal.
    R : array of shape (n, k)
    radius : array of shape (n,)
    tol : float
        Largest relative residual.
    max_iter : int

    References
    ----------
    Bertsekas (1982), Projected Newton methods for optimization problems with simple constraints; Dembo,
    Steihaug (1983), Truncated-Newton algorithms for large-scale unconstrained optimization.
    """
    objective = Objective(B)
    size = 4 * max(np.sqrt(objective.square), TINY)
    at = _BallPoint(objective, _projected(_best_multiple(objective, R), radius), radius)
    values, stop = [at.value], StopReason.MAX_ITER
    unit = 1 / max(4 * float(np.linalg.norm(at.gram)), size / len(B), TINY)
    residual = _residual(at, unit) / size
    best = at
    try:
        while residual > tol and len(values) <= max_iter:
            checkpoint()
            newton = _newton_step(objective, at, residual), _NEWTON_TRIALS
            new = _stepped(objective, at, (newton, (-unit * at.gradient, _GRADIENT_TRIALS)))
            if new is None:
                stop = StopReason.STALLED
                break
            at = new
            values.append(at.value)
            if at.value < best.value:
                best = at
            residual = _residual(at, unit) / size
    except CutShort as cut:
        stop = reason(cut)
    return Descent(best.R, values, residual, StopReason.CONVERGED if residual <= tol else stop)


def _best_multiple(objective: Objective, R: Array) -> Array:
    """Return the multiple of `R` of smallest objective; `R` itself if that is zero, a stationary point."""
    if objective.square == 0:
        return 0 * R
    square = np.square(R.T @ R).sum() - np.square(np.square(R).sum(axis=1)).sum()
    share = float(np.vdot(R, objective.B @ R)) / max(float(square), TINY)
    return R * np.sqrt(share) if share > 0 else R


def _projected(R: Array, radius: Array) -> Array:
    """Return the nearest matrix whose rows are no longer than their radius."""
    length = np.sqrt(np.einsum("ij,ij->i", R, R))
    return R * (radius / np.maximum(length, radius))[:, None]


def _stepped(objective: Objective, at: _BallPoint, steps: Iterable[tuple[Array, int]]) -> _BallPoint | None:
    """Return the first point along projected steps that decreases enough, None if round-off prevents it.

    `steps` are directions, and how many lengths of each to try.
    """
    largest = at.value + _ROUND_OFF * objective.square
    for D, trials in steps:
        length = 1.0
        for _ in range(trials):
            new = _BallPoint(objective, _projected(at.R + length * D, at.radius), at.radius)
            slope = float(np.vdot(at.gradient, new.R - at.R))
            if slope < 0 and new.value <= largest + _DECREASE * slope:
                return new
            length *= _CUT
    return None


def _residual(at: _BallPoint, unit: float) -> float:
    """Return the norm of the projected gradient: of the change in a step, divided by the step."""
    changed = _projected(at.R - unit * at.gradient, at.radius) - at.R
    return float(np.linalg.norm(changed)) / unit


class _BallPoint:
    """A factor with rows in balls, the objective there and its gradient."""

    def __init__(self, objective: Objective, R: Array, radius: Array) -> None:
        self.R, self.radius = R, radius
        self.value, self.gradient, self.gram = objective.at(R)
        self.q = np.einsum("ij,ij->i", R, R)

    def active(self, near: float) -> tuple[Mask, Array]:
        """Return the mask of rows that are at their radius and would leave the ball, and all multipliers."""
        inward = np.einsum("ij,ij->i", self.R, self.gradient)
        square = self.radius**2
        active = (self.q >= (1 - min(near, _NEAR)) * square) & (inward < 0)
        return active, np.where(active, -inward / square, 0.0)


def _newton_step(objective: Objective, at: _BallPoint, residual: float) -> Array:
    """Return an approximate solution of Newton's equation; a direction of descent.

    Parameters
    ----------
    objective : Objective
    at : _BallPoint
    residual : float
        The relative residual of the optimality conditions.
    """
    B = objective.B
    g, W = np.linalg.eigh(at.gram)
    R = at.R @ W  # its columns are orthogonal, and ``R'R = Diag(g)``
    active, multipliers = at.active(residual)
    some = bool(active.any())
    normal = np.where(active, 1 / np.maximum(at.q, TINY), 0.0)
    own = g + (multipliers / 4 - at.q)[:, None]

    def tangent(D: Array) -> Array:
        return D - (normal * np.einsum("ij,ij->i", R, D))[:, None] * R if some else D

    def hessian(D: Array) -> Array:
        """Return a quarter of the product."""
        cross = R.T @ D
        HD = own * D - B @ D
        HD += R @ (cross + cross.T)
        HD -= (2 * np.einsum("ij,ij->i", R, D))[:, None] * R
        return tangent(HD)

    inverse = 1 / np.maximum(g, max(_LEAST * float(g[-1]), TINY))
    forcing = min(_FORCING, np.sqrt(residual))
    right = -tangent(at.gradient @ W) / 4
    D, flat = conjugate_gradients(hessian, right, lambda D: tangent(inverse * D), forcing, _PRODUCTS)
    return np.asarray((D if flat is None or D.any() else flat) @ W.T)  # before a negative curvature


def leading_part(B: Array, k: int) -> Array:
    """Return the ``R`` of `k` columns with ``R R'`` nearest to `B`, approximately for a large matrix."""
    n = len(B)
    theta, U = np.zeros(0), B
    if n > _DENSE * k:
        start = np.random.default_rng(0).normal(size=n)
        with suppress(ArpackError):  # of a matrix that has few different eigenvalues
            theta, U = eigsh(B, k=k, which="LA", v0=start, tol=_ACCURATE)
    if not len(theta):
        theta, U = np.linalg.eigh(B)
    return np.asarray(U[:, -k:] * np.sqrt(np.maximum(theta[-k:], 0.0)))
