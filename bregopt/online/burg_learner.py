"""The Burg gradient: a learner of positive weights, and the base of the one of a matrix."""

from __future__ import annotations

import math
from abc import abstractmethod
from types import ModuleType
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.errors import is_one_of
from bregopt.online import burg
from bregopt.online.instances import total_loss, vectors
from bregopt.online.learner import LossLearner
from bregopt.online.losses import Loss

__all__ = ["BurgGradient", "BurgLearner"]


class BurgLearner(LossLearner):
    """The base class of the Burg gradients: a rate for each trial, and the bound for these rates."""

    _updates: ClassVar[ModuleType]
    eta: float
    rates: str

    def predict(self, X: ArrayLike) -> Array:
        """Return the prediction for each instance, shape ``(T,)``."""
        predictions: Array = self._updates.predict(self.state_, self._instances(X))
        return predictions

    def _bound(self, divergence: float, loss: float) -> float:
        loss = total_loss(loss, "loss")
        if self._implicit or self._smoothness == math.inf:
            return self._general_bound(divergence, loss)
        return burg.loss_bound(divergence, loss, *self.rates_)

    @abstractmethod
    def _instances(self, X: Any) -> Array:
        """Return checked instances."""

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        checked = self._instances(X)
        return checked, self._labels(y, len(checked))

    @property
    def _order(self) -> int | None:
        return getattr(self, "n_features_in_", None)

    @abstractmethod
    def _first(self, n: int) -> Any:
        """Return the state before the first trial."""

    def _begin(self, X: Array) -> None:
        if not is_one_of(self.rates, ("adaptive", "decreasing")):
            raise ValueError(f"rates is {self.rates!r}; expected 'adaptive' or 'decreasing'")
        eta, state = positive_number(self.eta, "eta"), self._first(X.shape[1])
        self._begin_losses((eta, 0.0))
        self.state_, self.eta_, self.n_features_in_ = state, eta, X.shape[1]
        # What limits a rate besides the domain.
        limited = self.rates == "adaptive" and not self._implicit
        self._smoothness = self.loss_function_.smoothness if limited else math.inf
        self._decreasing = self.rates == "decreasing"

    def _step(self, x: Array, y: float) -> None:
        seen = self._updates.trial(self.state_, x)
        value, slope = self._evaluated(seen.prediction, y)
        eta = self.rates_[0] if self._decreasing else self.eta_
        if self._implicit:
            step, eta = burg.implicit(seen, y, eta, self.loss_function_)
        else:
            eta = min(eta, burg.rate_limit(seen, slope, self._smoothness))
            step = eta * slope
        self.state_ = self._updates.move(self.state_, seen, step)
        self._record(value, slope, eta, seen.square)


class BurgGradient(BurgLearner):
    """Burg gradient: learns positive weights ``w`` from ``y_t = w'x_t``, with the Burg entropy as divergence.

    Parameters
    ----------
    eta : float, above 0
        Learning rate. It is reduced for a trial if necessary, such that ``w`` stays positive and the bound
        holds.
    w1 : array_like of shape (n,), optional
        Initial weights, positive; ``1/n`` by default.
    loss : str or Loss
        The loss of a prediction: ``"square"``, ``"huber"``, ``"absolute"`` or ``"hinge"`` (labels 1 and -1,
        the loss is ``max(0, 1 - y w'x)``), or a :class:`Loss` such as ``huber(0.1)``.
    update : {"explicit", "implicit"}
        Whether the gradient is the one before or after the update (Tsuda et al. 2005, eq. 3.3).
    rates : {"adaptive", "decreasing"}
        See :class:`MatrixBurgGradient`.

    Attributes
    ----------
    w_ : array of shape (n,)
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total loss and the number of trials.

    References
    ----------
    Jain, Kulis, Dhillon (2007), Algorithm 1, Theorem 1; ``bregopt.online.burg`` derives rates and bound.
    """

    _updates: ClassVar[ModuleType] = burg

    def __init__(
        self,
        eta: float = 0.25,
        w1: ArrayLike | None = None,
        loss: str | Loss = "square",
        update: str = "explicit",
        rates: str = "adaptive",
    ) -> None:
        self.eta, self.w1, self.loss, self.update, self.rates = eta, w1, loss, update, rates

    @property
    def w_(self) -> Array:
        """What was learned."""
        w: Array = self.state_
        return w

    def loss_bound(self, u: ArrayLike, loss: float = 0.0) -> float:
        """Return a proven bound on `loss_`, in terms of a comparator.

        Parameters
        ----------
        u : array_like of shape (n,)
            Nonnegative weights; the bound is infinite if one is zero.
        loss : float
            Their total loss on the same trials, or a bound on it.
        """
        u = finite_array(u, "u", ndim=1)
        if len(u) != len(self.w_) or u.min() < 0:
            raise ValueError(f"u is {u}; expected {len(self.w_)} weights that are not negative")
        return self._bound(burg.divergence(u, self._first(len(u))), loss)

    def _instances(self, X: Any) -> Array:
        return vectors(X, self._order)

    def _first(self, n: int) -> Array:
        if self.w1 is None:
            return burg.init(n)
        w1 = finite_array(self.w1, "w1", ndim=1)
        if len(w1) != n or w1.min() <= 0:
            raise ValueError(f"w1 is {w1}; expected {n} weights above 0")
        return w1
