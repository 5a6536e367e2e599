"""Learners of real labels under the square loss by the Burg gradients: of weights, and of a matrix."""

from __future__ import annotations

from abc import abstractmethod
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online import burg, matrix_burg
from bregopt.online.instances import labels, positive_definite, total_loss
from bregopt.online.learner import OnlineLearner

__all__ = ["BurgGradient", "BurgLearner", "MatrixBurgGradient"]


class BurgLearner(RegressorMixin, OnlineLearner):
    """The base class of the Burg gradients: a rate for each trial, and the bound for these rates.

    Attributes
    ----------
    eta_ : float
        The maximal rate; a trial may need a smaller one.
    rates_ : (float, float)
        The smallest and the largest learning rate of the trials so far.
    loss_ : float
        Total square loss of the predictions so far, each before its label was known.
    """

    _updates: ClassVar[ModuleType]
    eta: float

    def predict(self, X: Any) -> Array:
        """Return the prediction for each instance, shape ``(T,)``."""
        predictions: Array = self._updates.predict(self.state_, self._vectors(X))
        return predictions

    def _bound(self, divergence: float, loss: float) -> float:
        return burg.loss_bound(divergence, total_loss(loss, "loss"), *self.rates_)

    def _vectors(self, X: Any) -> Array:
        vectors = finite_array(X, "X", ndim=2)
        if vectors.size == 0:
            raise ValueError(f"X is empty, of shape {vectors.shape}; expected (T, n)")
        if hasattr(self, "state_") and vectors.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {vectors.shape[1]} features; expected {self.n_features_in_}, as before")
        return vectors

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        vectors = self._vectors(X)
        return vectors, labels(y, len(vectors))

    @abstractmethod
    def _first(self, n: int) -> Any:
        """Return the state before the first trial."""

    def _begin(self, X: Array) -> None:
        eta, state = positive_number(self.eta, "eta"), self._first(X.shape[1])
        self.rates_, self.eta_ = (eta, 0.0), eta
        self.state_, self.loss_, self.n_features_in_ = state, 0.0, X.shape[1]

    def _step(self, x: Array, y: float) -> None:
        eta = min(self.eta_, self._updates.largest_rate(self.state_, x, y))
        error = float(self._updates.predict(self.state_, x[None])[0]) - y
        self.state_ = self._updates.update(self.state_, x, y, eta)
        self.loss_ += error**2
        self.rates_ = min(self.rates_[0], eta), max(self.rates_[1], eta)


class BurgGradient(BurgLearner):
    """Burg gradient: learns positive weights ``w`` from ``y_t = w'x_t``, with the Burg entropy as divergence.

    Parameters
    ----------
    eta : float, above 0
        Learning rate. It is reduced for a trial if necessary, such that ``w`` stays positive and the bound
        holds.
    w1 : array_like of shape (n,), optional
        Initial weights, positive; ``1/n`` by default.

    Attributes
    ----------
    w_ : array of shape (n,)
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total square loss and the number of
        trials.

    References
    ----------
    Jain, Kulis, Dhillon (2007), Algorithm 1, Theorem 1; ``bregopt.online.burg`` derives rates and bound.
    """

    _updates: ClassVar[ModuleType] = burg

    def __init__(self, eta: float = 0.25, w1: Any = None) -> None:
        self.eta, self.w1 = eta, w1

    @property
    def w_(self) -> Array:
        """What was learned."""
        w: Array = self.state_
        return w

    def loss_bound(self, u: Any, loss: float = 0.0) -> float:
        """Return a proven bound on `loss_`, in terms of a comparator.

        Parameters
        ----------
        u : array_like of shape (n,)
            Nonnegative weights; the bound is infinite if one is zero.
        loss : float
            Their total square loss on the same trials, or a bound on it.
        """
        u = finite_array(u, "u", ndim=1)
        if len(u) != len(self.w_) or u.min() < 0:
            raise ValueError(f"u is {u}; expected {len(self.w_)} weights that are not negative")
        return self._bound(burg.divergence(u, self._first(len(u))), loss)

    def _first(self, n: int) -> Array:
        if self.w1 is None:
            return burg.init(n)
        w1 = finite_array(self.w1, "w1", ndim=1)
        if len(w1) != n or w1.min() <= 0:
            raise ValueError(f"w1 is {w1}; expected {n} weights above 0")
        return w1


class MatrixBurgGradient(BurgLearner):
    """Matrix Burg gradient: learns ``0 < W < c I`` from ``y_t = z_t'W z_t``, with the LogDet divergence.

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

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total square loss and the number of
        trials.

    Notes
    -----
    A trial costs ``O(n^2)``: it updates factors of ``W`` and of ``inv(inv(W) - I/c)``, and inverts nothing.

    References
    ----------
    Jain, Kulis, Dhillon (2007), Algorithm 2, Lemma 2, Theorem 2; ``bregopt.online.burg`` derives rates and
    bound.
    """

    _updates: ClassVar[ModuleType] = matrix_burg

    def __init__(self, eta: float = 0.25, ceiling: float | None = 1.0, W1: Any = None) -> None:
        self.eta, self.ceiling, self.W1 = eta, ceiling, W1

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def loss_bound(self, U: Any, loss: float = 0.0) -> float:
        """Return a proven bound on `loss_`, in terms of a comparator.

        Parameters
        ----------
        U : array_like of shape (n, n)
            Symmetric positive semidefinite; the bound is infinite if it is singular.
        loss : float
            Its total square loss on the same trials, or a bound on it.
        """
        n = self.n_features_in_
        U = positive_definite(finite_array(U, "U"), "U", n, singular=True)
        return self._bound(matrix_burg.divergence(U, self._first(n).W), loss)

    def _first(self, n: int) -> matrix_burg.MatrixBurgState:
        ceiling = None if self.ceiling is None else positive_number(self.ceiling, "ceiling")
        if self.W1 is None:
            level = 1 / n if ceiling is None or ceiling > 1 / n else ceiling / 2
            return matrix_burg.init(level * np.eye(n), ceiling)
        W1 = positive_definite(finite_array(self.W1, "W1"), "W1", n)
        return matrix_burg.init(W1, ceiling)
