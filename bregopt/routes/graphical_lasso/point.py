"""A primal and a dual point of one connected part, and where the methods start."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.certify.graphical_lasso import LassoData
from bregopt.linalg import inverse_of, root_of

__all__ = ["LassoPoint", "first_point", "symmetric", "with_dual"]

_LARGEST_CORRELATION = 0.999  # beyond it the approximation of the start nears a division by zero


@dataclass(frozen=True, eq=False)
class LassoPoint:
    """A primal and a dual point, with their values.

    Parameters
    ----------
    X, root : array of shape (n, n)
        Positive definite, and its Cholesky factor.
    value : float
        Objective at ``X``.
    U : array of shape (n, n)
        Point of the box with the best bound so far.
    bound : float
        ``-inf`` if none was found.
    """

    X: Array
    root: Array
    value: float
    U: Array
    bound: float

    @property
    def error(self) -> float:
        """The distance of value and bound."""
        return self.value - self.bound


def first_point(data: LassoData, X: Array | None) -> LassoPoint:
    """Return the best start: the identity, the approximation for sparse graphs, or a given matrix.

    The diagonal of ``S`` and penalty is one. Where the graph of ``|S_ij| > P_ij`` has no cycle, the
    approximation is the solution (Fattahi, Sojoudi 2019, Graphical Lasso and Thresholding, JMLR 20, thm. 1).
    """
    R = data.S - data.clip(data.S)
    np.fill_diagonal(R, 0.0)
    candidates = [np.eye(data.n)] if X is None else [np.eye(data.n), X]
    if np.abs(R).max(initial=0.0) < _LARGEST_CORRELATION:
        near = -R / (1 - R * R)
        np.fill_diagonal(near, 1 - (R * near).sum(axis=0))
        candidates.append(near)
    if not data.penalty.any():  # the inverse is the solution
        full = root_of(data.S)
        candidates += [] if full is None else [inverse_of(full)]
    best: LassoPoint | None = None
    for candidate in candidates:
        root = root_of(candidate)
        value = math.inf if root is None else data.value(candidate, root)
        if root is not None and (best is None or value < best.value):
            best = LassoPoint(candidate, root, value, -data.clip(data.S), -math.inf)
    assert best is not None
    return with_dual(data, best, inverse_of(best.root))


def with_dual(data: LassoData, at: LassoPoint, W: Array) -> LassoPoint:
    """Return the point with the dual point of an approximate inverse, if its bound is better."""
    U = data.clip(W - data.S)
    bound = data.bound(U)
    return replace(at, U=U, bound=bound) if bound > at.bound else at


def symmetric(M: Any) -> Array:
    """Return the symmetric part in double precision."""
    double: Array = M.astype(np.float64)
    return (double + double.T) / 2
