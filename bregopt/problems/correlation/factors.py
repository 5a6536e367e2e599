"""The nearest correlation matrix with factor structure: a few common factors, and a variance of each row."""

from __future__ import annotations

import importlib
import time
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import (
    Array,
    ArrayOrFrame,
    ArrayOrSeries,
    finite_array,
    positive_integer,
    symmetric_matrix,
)
from bregopt.errors import ConvergenceWarning, DataWarning, warn_caller
from bregopt.io.pandas_labels import Labels, aligned, labels_of
from bregopt.linalg import turned
from bregopt.problems.correlation.descent import Descent, distance, proven_fields
from bregopt.problems.correlation.factor_bounds import factor_bound
from bregopt.problems.correlation.factor_descent import descend_in_balls, leading_eigenvectors
from bregopt.problems.nearest_arguments import covariance_message
from bregopt.program import LowRank, StopReason
from bregopt.records import dataclass
from bregopt.routes.base import Seed, Settings
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["FactorModel", "factor_correlation"]

_MAX_ITER = 1_000
_CITATION = "Borsdorf, Higham, Raydan (2010), Computing a nearest correlation matrix with factor structure"


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
    (:mod:`bregopt.problems.correlation.factor_bounds`): blocks off the diagonal have rank `k` at most, and so
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
    t = _variance_floor(min_specific_variance)
    w = _row_weights(aligned(weights, labels, "weights"), n)
    message = covariance_message(target.diagonal(), labels)
    if message is not None:
        warn_caller(message, DataWarning)
    with clock.limited(settings.time_limit), threads_for(n):
        descent, fields = _solved(target, k, t, w, starts, settings)
    L = _principal(descent.R / np.sqrt(w)[:, None])
    v = np.maximum(1 - np.einsum("ij,ij->i", L, L), t)
    X = L @ L.T
    np.fill_diagonal(X, 1.0)
    timings = {"total": time.perf_counter() - begin}
    model = FactorModel(
        **fields,
        **_labeled(X, L, v, labels),
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
    leading = leading_eigenvectors(B, k)
    first = leading.rows(k)
    leading = leading.less_diagonal(B.diagonal())
    np.fill_diagonal(B, 0.0)
    radius = s * np.sqrt(1 - t)
    rng = np.random.default_rng(settings.seed)
    best: Descent | None = None
    for start in range(starts):
        R = first if start == 0 else radius[:, None] * rng.normal(size=first.shape) / np.sqrt(2 * k)
        found = descend_in_balls(B, R, radius, leading, settings.tol, settings.max_iter or _MAX_ITER)
        if best is None or min(found.values) < min(best.values):
            best = found
        if clock.remaining() <= 0:
            break
    assert best is not None
    value = distance(B, best.R)
    bound = factor_bound(B, best.R, w, t, value)
    return best, proven_fields(best, value + constant, bound + constant, unit, constant, settings.tol)


def _principal(L: Array) -> Array:
    """Return the loadings with orthogonal columns, the longest first, the largest entry of each above 0."""
    L = turned(L)
    largest = L[np.abs(L).argmax(axis=0), np.arange(L.shape[1])]
    return L * np.where(largest < 0, -1.0, 1.0)


def _labeled(X: Array, L: Array, v: Array, labels: Labels) -> dict[str, Any]:
    """Return matrix, loadings and specific variances, as pandas objects if there are labels."""
    if labels is None:
        return {"X": X, "loadings": L, "specific_variances": v}
    pandas = importlib.import_module("pandas")
    return {
        "X": pandas.DataFrame(X, index=labels, columns=labels),
        "loadings": pandas.DataFrame(L, index=labels),
        "specific_variances": pandas.Series(v, index=labels),
    }


def _variance_floor(value: Any) -> float:
    t = float(finite_array(value, "min_specific_variance", ndim=0))
    if not 0 <= t < 1:
        raise ValueError(f"min_specific_variance is {t:g}; expected a number from 0 and below 1")
    return t


def _row_weights(value: Any, n: int) -> Array:
    if value is None:
        return np.ones(n)
    weights = finite_array(value, "weights", ndim=1)
    if weights.shape != (n,):
        raise ValueError(f"weights has shape {weights.shape}; expected {(n,)}, one weight for each row")
    if (weights <= 0).any():
        raise ValueError(f"weights has the value {weights.min():g}; expected numbers above 0")
    return weights
