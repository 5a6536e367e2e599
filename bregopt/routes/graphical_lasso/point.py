"""A primal and a dual point of one connected part, and where the methods start."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.graphical_lasso import LassoData
from bregopt.linalg import inverse_of, root_of
from bregopt.routes.graphical_lasso.neighborhoods import neighborhood_estimate
from bregopt.routes.graphical_lasso.tuning import LassoTuning

__all__ = ["LassoPoint", "ascended", "first_point", "symmetric", "with_dual"]

_LARGEST_CORRELATION = 0.999  # beyond it the approximation of the start nears a division by zero
# Factors of the entries off the diagonal of an estimate. It is reduced until it is definite by a margin: the
# inverse of a nearly singular matrix has large entries, and so many more that may be free.
_FACTORS, _MARGIN = (1.0, 0.97, 0.9, 0.8), 0.97


@dataclass(frozen=True, eq=False)
class LassoPoint:
    """A primal and a dual point, with their values.

    Parameters
    ----------
    X : array of shape (n, n)
        Positive definite.
    value : float
        Objective at ``X``.
    U : array of shape (n, n)
        Point of the box with the best bound so far.
    bound : float
        ``-inf`` if none was found.
    """

    X: Array
    value: float
    U: Array
    bound: float

    @property
    def error(self) -> float:
        """The distance of value and bound."""
        return self.value - self.bound


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


def ascended(X: Array, gradient: Array) -> Array:
    """Return a step of ascent on the dual from ``inv(X) - S``, which is the negative `gradient`.

    There the bound ``logdet(S + U)`` has the gradient ``X`` and the Hessian ``-X E X``, and the step divides
    by its diagonal. The gap that a clipped inverse proves is of first order in the errors of its entries,
    that with the step is of second order.
    """
    scale = 1 / X.diagonal()
    step: Array = X * scale * scale[:, None]
    step -= gradient
    return step


def with_dual(data: LassoData, at: LassoPoint, U: Array) -> LassoPoint:
    """Return the point with the nearest dual point of the box, if its bound is better."""
    U = data.clip(U)
    bound = data.bound(U)
    return replace(at, U=U, bound=bound) if bound > at.bound else at


def symmetric(M: Any) -> Array:
    """Return the symmetric part in double precision."""
    double: Array = M.astype(np.float64)
    return (double + double.T) / 2
