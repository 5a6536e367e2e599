"""Matrix Winnow on pairs of points, which are similar or dissimilar."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online.side_constraints import Declarations
from bregopt.online.winnow_learner import MatrixWinnow

__all__ = ["PairWinnow"]


class PairWinnow(MatrixWinnow):
    """Learns which pairs of points are similar: 1, or dissimilar: -1.

    Similar points differ only in directions orthogonal to a hidden subspace of low rank. A pair with the
    difference ``z`` is the instance ``z z'`` of :class:`MatrixWinnow`, and similar if ``z' W z < theta``. A
    difference longer than `radius` is shortened to this length first.

    Parameters
    ----------
    rank, eta, theta, w0, normalize, constraints, loss_limit, floor
        As for :class:`MatrixWinnow`.
    radius : float, above 0
        The unit of length, in units of the data. Pairs that are closer than ``radius / sqrt(2)`` in the
        subspace are no examples of dissimilar pairs without noise.

    Attributes
    ----------
    W_, eta_, theta_, w0_, floor_, trace_, mistakes_, steps_, classes_
        As for :class:`MatrixWinnow`.

    Notes
    -----
    Examples are pairs of points, shape ``(T, 2, d)``, and labels 1 and -1. In :meth:`mistake_bound`, ``tr(P
    X_t)`` is the squared length in the subspace of a shortened difference over ``radius ** 2``. It is 0 for
    similar pairs and at least 1/2 for dissimilar pairs, except for the hinge loss.

    References
    ----------
    Warmuth (2007), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import PairWinnow
    >>> pairs = np.random.default_rng(0).integers(2, size=(200, 2, 5))
    >>> similar = np.where(pairs[:, 0, 1] == pairs[:, 1, 1], 1, -1)  # only the second feature matters
    >>> learner = PairWinnow(radius=1.4).fit(pairs, similar)
    """

    def __init__(
        self,
        rank: int = 1,
        eta: float | None = None,
        theta: float | None = None,
        w0: float | None = None,
        normalize: bool = False,
        constraints: Declarations = (),
        loss_limit: float = 0.0,
        floor: float = 0.0,
        radius: float = 1.0,
    ) -> None:
        super().__init__(rank, eta, theta, w0, normalize, constraints, loss_limit, floor)
        self.radius = radius

    def decision_function(self, X: ArrayLike) -> Array:
        """Return ``theta - z_t' W z_t`` for each pair, shape ``(T,)``; positive for similar pairs."""
        return -super().decision_function(X)

    def _labels(self, X: Array) -> Array:
        return -super()._labels(X)

    def _instances(self, X: Any) -> Array:
        """Return the differences of pairs, at most of length one in units of the radius."""
        radius = positive_number(self.radius, "radius")
        pairs = finite_array(X, "X")
        if pairs.ndim != 3 or pairs.shape[1] != 2:
            raise ValueError(f"X has shape {pairs.shape}; expected (T, 2, d), pairs of points")
        z = pairs[:, 0] - pairs[:, 1]
        longer = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), radius)
        return super()._instances(z / longer)

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        differences, labels = super()._examples(X, y)
        return differences, -labels  # the subspace is close to the differences of dissimilar pairs
