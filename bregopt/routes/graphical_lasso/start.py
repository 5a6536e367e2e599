"""Where the methods start on one connected part.

They start from the regression of each variable on all others with a penalty. The solution of sparse inverse
covariance estimation with the covariance ``W`` of the model has the columns ``X_ij = -b_ij X_jj``, where
``b_j`` minimizes ``b' W b / 2 - b' S_j + sum_i P_ij |b_i|`` over ``b_jj = 0``, and ``W b_j`` is the column
``j`` of ``W`` (Friedman, Hastie, Tibshirani 2008, Sparse Inverse Covariance Estimation with the Graphical
Lasso, Biostatistics 9, sect. 2). They minimize and replace one column after the other. Here a few gradient
steps reduce all columns at the same time, with one product of matrices a step, and then all are replaced. The
first ``W`` is ``S`` with its entries shrunk by the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array
from bregopt.clock import affords
from bregopt.linalg import inverse_of, root_of, symmetrize
from bregopt.routes.graphical_lasso.problem import LassoData, LassoPoint, clipped
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["first_point", "neighborhood_estimate", "symmetric"]

_LARGEST_CORRELATION = 0.999  # beyond it the approximation of the start nears a division by zero
# Factors of the entries off the diagonal of an estimate. It is reduced until it is definite by a margin: the
# inverse of a nearly singular matrix has large entries, and so many more that may be free.
_FACTORS, _MARGIN = (1.0, 0.97, 0.9, 0.8), 0.97
_LEAST_VARIANCE = 1e-2  # of what a regression leaves, so that its inverse stays moderate
_LEAST_CURVATURE: Any = np.float32(1e-4)  # along a step, relative to its square; below it the length is one
_LONGEST = 8  # factor of the number of steps of a sweep, up to which it may double
_SPARSE_ORDER, _SPARSE_DENSITY = 250, 0.1  # from and up to which a sparse product is worth its conversion
_TINY: Any = np.finfo(np.float32).tiny


def first_point(data: LassoData, X: Array | None, tuning: LassoTuning) -> LassoPoint:
    """Return a start without a bound: a given matrix, an estimate by regressions or for trees, the identity.

    The diagonal of ``S`` and penalty is one. Where the graph of ``|S_ij| > P_ij`` has no cycle, the estimate
    for trees is the solution (Fattahi, Sojoudi 2019, Graphical Lasso and Thresholding, JMLR 20, thm. 1).
    """
    nothing = -data.clip(data.S)
    for candidate in _candidates(data, X, tuning):
        root = root_of(candidate)
        value = math.inf if root is None else data.value(candidate, root)
        if root is not None and value < data.n:  # the value of the identity
            return LassoPoint(candidate, value, nothing, -math.inf)
    return LassoPoint(np.eye(data.n), float(data.n), nothing, -math.inf)


# Pays on: 300 variables.
def _candidates(data: LassoData, X: Array | None, tuning: LassoTuning) -> Iterator[Array]:
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
        estimate = _definite(neighborhood_estimate(data, tuning))
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


def neighborhood_estimate(data: LassoData, tuning: LassoTuning) -> Array:
    """Return a symmetric matrix near the solution, mostly positive definite.

    Parameters
    ----------
    data : LassoData
        The diagonal of ``S`` and penalty is one.
    tuning : LassoTuning
    """
    kind: Any = np.float32 if data.n >= tuning.single_order else np.float64
    S, reach = data.S.astype(kind), data.penalty.astype(kind)
    W = S - clipped(S, reach)
    np.fill_diagonal(W, 1)
    np.fill_diagonal(S, 0)
    np.fill_diagonal(reach, np.inf)
    B, residual = np.zeros_like(S), -S  # a regression is a row; the gradient of its quadratic part
    lengths, change, steps = np.ones((data.n, 1), kind), math.inf, tuning.sweep_steps
    for sweep in range(tuning.sweeps):
        if sweep:
            if not affords(data.n):
                break
            last, before = change, W
            W = S + clipped(symmetrize(residual + S) - S, reach)
            np.fill_diagonal(W, 1)
            residual = _product(B, W) - S
            change = float(np.linalg.norm(W - before)) / math.sqrt(data.n)
            if change > last:  # the regressions lag behind their covariance
                steps *= 2
            if steps > _LONGEST * tuning.sweep_steps:
                break
        lengths = _descended(B, residual, lengths, W, reach, steps)
        if change <= tuning.settled:
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
        change = _product(E, W)
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


def _product(E: Any, S: Any) -> Any:
    """Return ``E S``, by a sparse product where `E` is large and has few entries."""
    sparse = len(E) >= _SPARSE_ORDER and np.count_nonzero(E) < _SPARSE_DENSITY * E.size
    return sp.csr_array(E) @ S if sparse else E @ S
