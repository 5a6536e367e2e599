"""Learners of labels 1 and -1 that update only after mistakes: conservative ones (Littlestone 1988)."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin

from bregopt.arrays import Array, finite_array
from bregopt.online.instances import signs
from bregopt.online.learner import OnlineLearner

__all__ = ["ROUND_OFF", "ConservativeLearner", "checked_rank", "number"]

ROUND_OFF = 1e-9  # absolute round-off of eigenvalues and singular values in [0, 1]


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
