"""The base class of the learners with a loss: what they add up, and what their bounds need of it."""

from __future__ import annotations

import math
from typing import Any

from sklearn.base import RegressorMixin

from bregopt.arrays import Array
from bregopt.errors import is_one_of
from bregopt.online.instances import labels, signs
from bregopt.online.learner import OnlineLearner
from bregopt.online.losses import Loss, find_loss
from bregopt.online.regret import convex_bound, implicit_bound

__all__ = ["LossLearner"]


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
        (:mod:`bregopt.online.regret`).
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
            return implicit_bound(divergence, loss, self.rates_, self.steepness_)
        return convex_bound(divergence, loss, self.rates_, self.excess_)
