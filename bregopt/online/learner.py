"""The base classes of the learners: trials in order, and no change before all of the input is checked.

Learners with a loss have bounds on their total loss, from one inequality for each trial.

A trial has the instance ``X`` and the convex loss ``l >= 0``. Before the update the learner predicts ``p``, a
comparator ``U`` predicts ``u``, and ``g = l'(p)``. The *progress* is ``D(U, W) - D(U, W+)``. For some ``C``,

    explicit update:  progress >= eta g (p - u) - eta^2 g^2 C,
    implicit update:  progress  = eta g+ (p+ - u) + D(W+, W),    D(W+, W) >= (p - p+)^2 / 4C,

where ``p+`` and ``g+`` are the prediction and the derivative after the update. The second line is the
three-point identity of Bregman divergences. For the von Neumann divergence at trace one and eigenvalues of
range ``r``, ``C = r^2 / 8``: by the inequalities of Golden and Thompson and of Hoeffding, and by Pinsker's.
For the Burg divergences :mod:`bregopt.online.burg` derives ``C``. Then, with no more than convexity,

    eta (l(p) - l(u)) <= progress + eta^2 g^2 C    for both updates,

the implicit one because ``l(p) - l(p+) <= g (p - p+)``. If ``l'`` has the Lipschitz constant ``beta``, then
``l(u) >= l(p) + g (u - p) + (l'(u) - g)^2 / 2 beta`` and ``l'^2 <= 2 beta l``, from which

    explicit update:  (1 - s) eta l(p) <= eta l(u) / (1 + s - q) + progress    for 0 <= s <= q < 1 + s,
    implicit update:  eta l(p) / (1 + q) <= eta l(u) + progress,    q = 2 beta eta C.

The last line needs ``sqrt(l(p)) <= sqrt(l(p+)) + sqrt(beta / 2) |p - p+|``, which holds for these losses.
With ``s = 0`` and the square loss (``beta = 2``) the line before is Lemma 3.1 of Tsuda et al. (2005). Sums
over the trials bound the total loss.

Conservative learners (Littlestone 1988) have labels 1 and -1, and update only after mistakes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from inspect import signature
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone

from bregopt.arrays import Array, finite_array
from bregopt.errors import is_one_of
from bregopt.online.instances import labels, signs
from bregopt.online.losses import Loss, find_loss
from bregopt.threads import threads_for

__all__ = ["ROUND_OFF", "ConservativeLearner", "LossLearner", "OnlineLearner", "checked_rank", "number"]

ROUND_OFF = 1e-9  # absolute round-off of eigenvalues and singular values in [0, 1]


class OnlineLearner(BaseEstimator, ABC):
    """A learner that processes examples in order.

    Attributes
    ----------
    steps_ : int
        Number of trials so far.
    """

    steps_: int

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None) -> Self:
        """Learn from further examples in order, one trial each.

        Returns
        -------
        the learner itself

        Raises
        ------
        TypeError, ValueError
            If parameters or examples are bad; nothing is learned then.
        """
        begun = hasattr(self, "steps_")
        instances, labels = self._examples(X, y)
        self._check_switches()
        with threads_for(max(instances.shape[1:])):
            if not begun:
                self._begin(instances)
                self.steps_ = 0
            for instance, label in zip(instances, labels, strict=True):
                self._step(instance, float(label))
                self.steps_ += 1
        return self

    def _check_switches(self) -> None:
        """Refuse an array or a number for a parameter that is True or False."""
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            if isinstance(parameter.default, bool) and not isinstance(value, bool | np.bool_):
                raise TypeError(f"{name} is {value!r}; expected True or False")

    def fit(self, X: ArrayLike, y: ArrayLike | None) -> Self:
        """Reset the learner, and learn from the examples once; see :meth:`partial_fit`."""
        learned = vars(clone(self).partial_fit(X, y))
        # Attributes that are not learned stay: scikit-learn's pipelines set some before they call this.
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = {**kept, **learned}
        return self

    @abstractmethod
    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Return checked instances and labels."""

    @abstractmethod
    def _begin(self, X: Array) -> None:
        """Set the state before the first trial, after checking the parameters."""

    @abstractmethod
    def _step(self, x: Array, y: float) -> None:
        """Learn from one trial."""


class LossLearner(RegressorMixin, OnlineLearner):
    """A learner of real predictions under a loss, by explicit or implicit updates.

    Attributes
    ----------
    loss_function_ : Loss
    loss_ : float
        Total loss of the predictions so far, each before its label was known.
    rates_ : (float, float)
        The smallest and the largest learning rate of the trials so far.
    excess_, steepness_ : float
        The sum of ``eta^2 g^2 C`` and the largest ``2 beta eta C`` of the trials so far
        (:mod:`bregopt.online.learner`).
    """

    loss: str | Loss
    update: str

    def _labels(self, y: Any, count: int) -> Array:
        return signs(y, count) if find_loss(self.loss).signed else labels(y, count)

    def _begin_losses(self, rates: tuple[float, float]) -> None:
        if not is_one_of(self.update, ("explicit", "implicit")):
            raise ValueError(f"update is {self.update!r}; expected 'explicit' or 'implicit'")
        self.loss_function_, self._implicit = find_loss(self.loss), self.update == "implicit"
        self.loss_, self.rates_, self.excess_, self.steepness_ = 0.0, rates, 0.0, 0.0

    def _evaluated(self, prediction: float, y: float) -> tuple[float, float]:
        """Return value and derivative of the loss."""
        value = float(self.loss_function_.value(prediction, y))
        slope = float(self.loss_function_.derivative(prediction, y))
        if not 0 <= value < math.inf or not math.isfinite(slope):
            raise ValueError(
                f"loss has the value {value:g} and the derivative {slope:g} at the prediction {prediction:g} "
                f"for the label {y:g}; expected finite numbers, and a value that is not negative"
            )
        return value, slope

    def _record(self, value: float, slope: float, eta: float, curvature: float) -> None:
        self.loss_ += value
        smallest, largest = self.rates_
        self.rates_ = min(smallest, eta), max(largest, eta)
        step = eta * slope
        self.excess_ += step * step * curvature  # infinite where a power would raise an error
        if self.loss_function_.smoothness < math.inf:
            steepness = 2 * self.loss_function_.smoothness * eta * curvature
            self.steepness_ = max(self.steepness_, steepness)

    def _general_bound(self, divergence: float, loss: float) -> float:
        """Return the bound for implicit updates with a smooth loss, else the one for convex losses."""
        if self._implicit and self.loss_function_.smoothness < math.inf:
            return _implicit_bound(divergence, loss, self.rates_, self.steepness_)
        return _convex_bound(divergence, loss, self.rates_, self.excess_)


def _convex_bound(divergence: float, loss: float, rates: tuple[float, float], excess: float) -> float:
    """Return the bound for convex losses, ``(largest loss + divergence + excess) / smallest``.

    Parameters
    ----------
    divergence, loss : float
        ``D(U, W1)`` of the comparator, and its loss on the same trials.
    rates : (float, float)
        The smallest and the largest rate of the trials.
    excess : float
        The sum of ``eta^2 g^2 C``.
    """
    smallest, largest = rates
    return (largest * loss + divergence + excess) / smallest


def _implicit_bound(divergence: float, loss: float, rates: tuple[float, float], steepness: float) -> float:
    """Return the bound for implicit updates with a smooth loss, for any rates.

    Parameters
    ----------
    divergence, loss, rates
        As for :func:`_convex_bound`.
    steepness : float
        The largest ``q = 2 beta eta C`` of the trials.
    """
    return (1 + steepness) * _convex_bound(divergence, loss, rates, excess=0.0)


class ConservativeLearner(ClassifierMixin, OnlineLearner):
    """A learner that predicts 1 where a score is at least ``theta_``, and learns from mistakes only.

    The state of the learner is replaced by an update, never modified, so a shallow copy of the learner is the
    hypothesis of that trial.
    """

    theta_: float
    mistakes_: int

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the score less the threshold for each instance, shape ``(T,)``."""
        return self._scores(self._instances(X)) - self.theta_

    def predict(self, X: ArrayLike) -> Array:
        """Return 1 or -1 for each instance, shape ``(T,)``."""
        return self._labels(self._instances(X))

    def _labels(self, X: Array) -> Array:
        """Return the predictions for checked instances."""
        return np.where(self._scores(X) >= self.theta_, 1.0, -1.0)

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        checked = self._instances(X)
        return checked, signs(y, len(checked))

    def _start(self, n_features: int) -> None:
        self.mistakes_ = 0
        self.classes_, self.n_features_in_ = np.array([-1.0, 1.0]), n_features

    def _step(self, x: Array, y: float) -> None:
        if (self._score(x) >= self.theta_) != (y > 0):
            self._learn(x, y)
            self.mistakes_ += 1

    @abstractmethod
    def _instances(self, X: Any) -> Array:
        """Return checked instances."""

    @abstractmethod
    def _scores(self, X: Array) -> Array:
        """Return the scores of checked instances, shape ``(T,)``."""

    @abstractmethod
    def _score(self, x: Array) -> float:
        """Return the score of one checked instance."""

    @abstractmethod
    def _learn(self, x: Array, y: float) -> None:
        """Replace the state after a mistake."""


def checked_rank(value: Any, name: str = "rank") -> int:
    """Return a rank after checking that it is an integer above 0."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} is {value!r}; expected an integer above 0")
    return int(value)


def number(value: Any, name: str, default: float) -> float:
    """Return a finite number, or the default for None."""
    return default if value is None else float(finite_array(value, name, ndim=0))
