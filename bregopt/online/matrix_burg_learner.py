"""The matrix Burg gradient: a learner of a positive definite matrix, or of a metric."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online import matrix_burg
from bregopt.online.burg_learner import BurgLearner
from bregopt.online.instances import factors, positive_definite, vectors
from bregopt.online.losses import Loss

__all__ = ["MatrixBurgGradient", "OnlineLogDetMetric"]


class MatrixBurgGradient(BurgLearner):
    """Matrix Burg gradient: learns ``0 < W < c I`` from ``y_t = tr(W X_t)``, with the LogDet divergence.

    Parameters
    ----------
    eta : float, above 0
        Learning rate. It is reduced for a trial if necessary, such that ``W`` stays positive definite and
        below the ceiling, and the bound holds.
    ceiling : float or None
        Strict upper bound on the eigenvalues of ``W``; None for no bound.
    W1 : array_like of shape (n, n), optional
        Initial matrix, positive definite and below the ceiling; ``I/n`` by default (half
        of it if `ceiling` is not above ``1/n``).
    loss, update
        As for :class:`BurgGradient`.
    rates : {"adaptive", "decreasing"}
        How the rate of a trial is reduced: ``"adaptive"`` as the bound for smooth losses requires, from `eta`
        in each trial; ``"decreasing"`` only for too low predictions, to half the limit of the domain, and for
        all later trials too (the paper's rule). No bound is known before the trials then, and `loss_bound`
        has a sum over the trials.

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total loss and the number of trials.

    Notes
    -----
    Instances are vectors ``z`` for ``z z'``, shape ``(T, n)``; factors ``Z`` for ``Z Z'``, shape
    ``(T, n, k)`` with ``k < n``; or symmetric positive semidefinite matrices of any rank, shape
    ``(T, n, n)``. A trial costs ``O(n^2 k)``, where ``k`` is the largest rank: it updates factors of ``W``
    and of ``inv(inv(W) - I/c)``, and inverts nothing.

    References
    ----------
    Jain, Kulis, Dhillon (2007), Algorithm 2, Lemma 2, Theorem 2; ``bregopt.online.burg`` derives rates and
    bound.
    """

    _updates: ClassVar[ModuleType] = matrix_burg

    def __init__(
        self,
        eta: float = 0.25,
        ceiling: float | None = 1.0,
        W1: ArrayLike | None = None,
        loss: str | Loss = "square",
        update: str = "explicit",
        rates: str = "adaptive",
    ) -> None:
        self.eta, self.ceiling, self.W1 = eta, ceiling, W1
        self.loss, self.update, self.rates = loss, update, rates

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def loss_bound(self, U: ArrayLike, loss: float = 0.0) -> float:
        """Return a proven bound on `loss_`, in terms of a comparator.

        Parameters
        ----------
        U : array_like of shape (n, n)
            Symmetric positive semidefinite; the bound is infinite if it is singular.
        loss : float
            Its total loss on the same trials, or a bound on it.
        """
        n = self.n_features_in_
        U = positive_definite(finite_array(U, "U"), "U", n, singular=True)
        return self._bound(matrix_burg.divergence(U, self._first(n).W), loss)

    def _instances(self, X: Any) -> Array:
        return factors(X, self._order)

    def _first(self, n: int) -> matrix_burg.MatrixBurgState:
        ceiling = None if self.ceiling is None else positive_number(self.ceiling, "ceiling")
        if self.W1 is None:
            level = 1 / n if ceiling is None or ceiling > 1 / n else ceiling / 2
            return matrix_burg.init(level * np.eye(n), ceiling)
        W1 = positive_definite(finite_array(self.W1, "W1"), "W1", n)
        return matrix_burg.init(W1, ceiling)


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
