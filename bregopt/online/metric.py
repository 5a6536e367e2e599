"""Online metric learning with the LogDet divergence (Jain, Kulis, Dhillon 2007, §4)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array
from bregopt.online import matrix_burg
from bregopt.online.instances import vectors
from bregopt.online.losses import Loss
from bregopt.online.matrix_burg_learner import MatrixBurgGradient

__all__ = ["OnlineLogDetMetric"]


class OnlineLogDetMetric(MatrixBurgGradient):
    """Learns a Mahalanobis metric ``(a - b)'A (a - b)`` from pairs of points and their target distances.

    Parameters
    ----------
    eta : float, above 0
        Learning rate, reduced for a pair if necessary; see :class:`MatrixBurgGradient`.
    ceiling : float or None
        Strict upper bound on the eigenvalues of ``A``; None, the default, for no bound.
    W1 : array_like of shape (d, d), optional
        The initial metric; the Euclidean one by default.
    loss, update, rates
        As for :class:`MatrixBurgGradient`.

    Attributes
    ----------
    W_ : array of shape (d, d)
        The matrix ``A`` of the metric.
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total loss and the number of pairs.

    References
    ----------
    Jain, Kulis, Dhillon (2007), §4.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import OnlineLogDetMetric
    >>> pairs = np.random.default_rng(0).normal(size=(2000, 2, 2))
    >>> distances = (pairs[:, 0, 0] - pairs[:, 1, 0]) ** 2 / 4  # only the first coordinate matters
    >>> metric = OnlineLogDetMetric().fit(pairs, distances)
    >>> bool(abs(metric.W_ - [[0.25, 0], [0, 0]]).max() < 0.02)
    True
    """

    def __init__(
        self,
        eta: float = 0.25,
        ceiling: float | None = None,
        W1: ArrayLike | None = None,
        loss: str | Loss = "square",
        update: str = "explicit",
        rates: str = "adaptive",
    ) -> None:
        super().__init__(eta, ceiling, W1, loss, update, rates)

    def transform(self, X: ArrayLike) -> Array:
        """Return points in coordinates in which the metric is Euclidean, shape ``(m, d)``."""
        points = finite_array(X, "X", ndim=2)
        d = self.n_features_in_
        if points.shape[1] != d:
            raise ValueError(f"X has {points.shape[1]} features; expected {d}")
        transformed: Array = points @ self.state_.F
        return transformed

    def _instances(self, X: Any) -> Array:
        """Return the differences of pairs of points, given in shape ``(T, 2, d)``."""
        pairs = finite_array(X, "X")
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(f"X has shape {pairs.shape}; expected (T, 2, d), pairs of points")
        return vectors(pairs[:, 0] - pairs[:, 1], self._order)

    def _first(self, n: int) -> matrix_burg.MatrixBurgState:
        if self.W1 is None and self.ceiling is None:
            return matrix_burg.init(np.eye(n), None)
        return super()._first(n)
