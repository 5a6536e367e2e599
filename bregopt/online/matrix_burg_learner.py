"""The matrix Burg gradient: a learner of a positive definite matrix."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online import matrix_burg
from bregopt.online.burg_learner import BurgLearner
from bregopt.online.instances import factors, positive_definite
from bregopt.online.losses import Loss

__all__ = ["MatrixBurgGradient"]


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
