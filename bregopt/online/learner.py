"""The base class of the learners: trials in order, and no change before all of the input is checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from bregopt.arrays import Array
from bregopt.threads import threads_for

__all__ = ["OnlineLearner"]


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
