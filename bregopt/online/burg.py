"""The Burg gradient for positive weights (Jain, Kulis, Dhillon 2007, §2).

The rates and the bound differ from the paper's. With the derivative ``g`` of the loss at ``w'x``, which is
``2 (w'x - y)`` for the square loss, and ``z = eta g w x``, entry by entry, an update reduces the divergence
to any ``u > 0`` by

    D(u, w) - D(u, w+) = sum log(1 + z) - eta g u'x >= eta g (w'x - u'x) - eta^2 g^2 sum (w x)^2,

since ``log(1 + z) >= z - z^2`` for ``z >= -1/2``. (The ``z - z^2 / 2`` of the paper's Lemma 1 is too large
for ``z < 0``.) An implicit update with ``z >= -1/2`` meets the other inequality of
:mod:`bregopt.online.learner`, with the same ``C = sum (w x)^2``: with ``t = z / (1 + z) >= -1``, ``D(w+, w)``
is ``sum -log(1 - t) - t``, at least ``sum t^2 / 4``, and ``w'x - w+'x`` is ``sum w x t``.

For an explicit update and a loss whose derivative has the Lipschitz constant ``beta`` (2 for the square
loss), the rates satisfy ``q = 2 beta eta C <= 1``, so that

    (1 - s) eta l(w'x) <= eta l(u'x) / s + D(u, w) - D(u, w+)    for every s between 0 and 1.

The sum over all trials bounds the loss for any rates. So a rate may increase again after a trial with a small
one; in the paper rates only decrease.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, is_one_of, positive_number
from bregopt.online.learner import LossLearner, total_loss, vectors
from bregopt.online.losses import SQUARE, Loss, implicit_step


class Trial(NamedTuple):
    """An instance in the current state; shared with :mod:`bregopt.online.matrix_burg`.

    Attributes
    ----------
    prediction, square : float
        The prediction before the update, which is ``sum shares``, and ``C = sum shares^2``.
    lowest, highest : float
        A step ``b`` stays in the domain if ``1 + b lowest`` and ``1 + b highest`` are positive.
    shares : array or float
        ``w x``, or the eigenvalues of ``Z'WZ``. After a step ``b`` the prediction is
        ``sum shares / (1 + b shares)``.
    factors : tuple
        What a step of a matrix needs.
    """

    prediction: float
    square: float
    lowest: float
    highest: float
    shares: Any
    factors: tuple[tuple[Array, Any], ...] = ()


def init(n: int) -> Array:
    """Return the initial weights, ``1/n`` each."""
    return np.full(n, 1 / n)


def predict(w: Array, X: Array) -> Array:
    """Return ``w'x_t`` for instances of shape ``(T, n)``; shape ``(T,)``."""
    predictions: Array = X @ w
    return predictions


def trial(w: Array, x: Array) -> Trial:
    """Return one instance in the state `w`."""
    shares = w * x
    # In short arrays the places of the extremes are found faster than their values.
    lowest, highest = float(shares[shares.argmin()]), float(shares[shares.argmax()])
    return Trial(float(shares.sum()), float(shares @ shares), lowest, highest, shares)


def move(w: Array, seen: Trial, step: float) -> Array:
    """Return ``w+`` with ``1/w+ = 1/w + step x``."""
    moved: Array = w / (1 + step * seen.shares)
    return moved


def rate_limit(seen: Trial, slope: float, smoothness: float = math.inf) -> float:
    """Return the largest rate with ``z >= -1/2`` and, for a smooth loss, ``2 smoothness eta C <= 1``.

    Parameters
    ----------
    seen : Trial
    slope : float
        The derivative of the loss.
    smoothness : float
        A Lipschitz constant of it; infinite for no second condition.
    """
    fall = -slope * (seen.highest if slope < 0 else seen.lowest)
    positive = 1 / (2 * fall) if fall > 0 else math.inf
    if seen.square == 0 or smoothness == math.inf:
        return positive
    return min(1 / (2 * smoothness * seen.square), positive)


def largest_rate(w: Array, x: Array, y: float, loss: Loss = SQUARE) -> float:
    """Return the largest rate for which `w` stays positive (``z >= -1/2``) and the bound holds."""
    seen = trial(w, x)
    return rate_limit(seen, loss.derivative(seen.prediction, y), loss.smoothness)


def update(w: Array, x: Array, y: float, eta: float, loss: Loss = SQUARE) -> Array:
    """Learn from one instance: ``1/w+ = 1/w + eta l'(w'x) x``, Algorithm 1.

    Raises
    ------
    ValueError
        If a weight would not stay positive; this does not happen up to :func:`largest_rate`.
    """
    seen = trial(w, x)
    step = eta * loss.derivative(seen.prediction, y)
    if min(step * seen.lowest, step * seen.highest) <= -1:
        raise ValueError(f"eta is {eta:g}, with which a weight would not stay positive")
    return move(w, seen, step)


def implicit(seen: Trial, y: float, eta: float, loss: Loss = SQUARE) -> tuple[float, float]:
    """Return the step of the implicit update, with ``z >= -1/2``, and the rate of which it is the step.

    The step is ``eta g`` with ``g`` a subgradient at the prediction after it (Tsuda et al. 2005, eq. 3.3).
    The rate is less than `eta` if ``z`` would be less than ``-1/2``.
    """

    def prediction(step: float) -> float:
        return float(np.sum(seen.shares / (1 + step * seen.shares)))

    slope = loss.derivative(seen.prediction, y)
    farthest = min(eta, rate_limit(seen, slope)) * slope
    step = implicit_step(loss, y, eta, prediction, farthest)
    reached = loss.derivative(prediction(step), y) if step == farthest else 0.0
    return step, min(eta, step / reached) if reached * step > 0 else eta


def divergence(u: Array, w: Array) -> float:
    """Return ``sum u/w - log(u/w) - 1``, the relative Burg entropy; infinite where a `u` is zero."""
    ratio = u / w
    if ratio.min() <= 0:
        return math.inf
    return float((ratio - np.log(ratio) - 1).sum())


def loss_bound(divergence: float, loss: float, smallest: float, largest: float) -> float:
    """Return a bound on the learner's loss, in terms of a comparator's; for vectors and matrices.

    It is the sum of the inequality above over all trials, divided by the smallest rate, with the best ``s``.

    Parameters
    ----------
    divergence, loss : float
        ``D(u, w1)`` of the comparator, and its loss on the same trials.
    smallest, largest : float
        The smallest and the largest rate of the trials.
    """
    progress, share = divergence / smallest, largest / smallest * loss
    if share == 0 or not math.isfinite(progress):
        return progress
    s = math.sqrt(share) / (math.sqrt(share) + math.sqrt(share + progress))
    return (share / s + progress) / (1 - s)


class BurgLearner(LossLearner):
    """The base class of the Burg gradients: a rate for each trial, and the bound for these rates."""

    _predicted: ClassVar[Callable[..., Array]]
    _trial: ClassVar[Callable[..., Trial]]
    _move: ClassVar[Callable[..., Any]]
    eta: float
    rates: str

    def predict(self, X: ArrayLike) -> Array:
        """Return the prediction for each instance, shape ``(T,)``."""
        predictions: Array = self._predicted(self.state_, self._instances(X))
        return predictions

    def _bound(self, divergence: float, loss: float) -> float:
        loss = total_loss(loss, "loss")
        if self._implicit or self._smoothness == math.inf:
            return self._general_bound(divergence, loss)
        return loss_bound(divergence, loss, *self.rates_)

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
        seen = self._trial(self.state_, x)
        value, slope = self._evaluated(seen.prediction, y)
        eta = self.rates_[0] if self._decreasing else self.eta_
        if self._implicit:
            step, eta = implicit(seen, y, eta, self.loss_function_)
        else:
            eta = min(eta, rate_limit(seen, slope, self._smoothness))
            step = eta * slope
        self.state_ = self._move(self.state_, seen, step)
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

    _predicted, _trial, _move = staticmethod(predict), staticmethod(trial), staticmethod(move)

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
        return self._bound(divergence(u, self._first(len(u))), loss)

    def _instances(self, X: Any) -> Array:
        return vectors(X, self._order)

    def _first(self, n: int) -> Array:
        if self.w1 is None:
            return init(n)
        w1 = finite_array(self.w1, "w1", ndim=1)
        if len(w1) != n or w1.min() <= 0:
            raise ValueError(f"w1 is {w1}; expected {n} weights above 0")
        return w1
