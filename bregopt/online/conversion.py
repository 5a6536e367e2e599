"""From an on-line learner to a batch classifier: a random hypothesis, or the vote of all (Warmuth 2007, §5).

On ``T`` examples a learner has ``T + 1`` hypotheses ``h_0, ..., h_T``, of which it changes few. Let the
examples and the one to predict be drawn independently from one distribution.

*Random.* ``h_(t-1)`` does not depend on example ``t``, so it errs on a new example as often as in trial ``t``
of a stream of ``T + 1`` examples. A hypothesis drawn uniformly therefore errs with the probability ``E[M] /
(T + 1)``, where ``M`` counts the mistakes on such a stream.

*Vote.* Where a majority errs, a random hypothesis errs with probability 1/2 or more. So the vote errs at most
twice as often (Freund and Schapire 1999).

*From the mistakes that were made.* Given the past, the probability that ``h_(t-1)`` errs, less whether it
does, has mean zero and lies in an interval of length one. By the inequality of Hoeffding and Azuma, the sum
of these probabilities over the ``T`` trials exceeds the mistakes by ``sqrt(T log(1/delta) / 2)`` with
probability `delta` at most. The last hypothesis adds at most one (Cesa-Bianchi, Conconi, Gentile 2004).
"""

from __future__ import annotations

import copy
import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from bregopt.arrays import Array, RandomState, finite_array, is_one_of
from bregopt.clock import threads_for
from bregopt.errors import did_you_mean
from bregopt.online.learner import ConservativeLearner, total_loss

__all__ = ["OnlineToBatch"]

_KINDS = ("random", "vote")


class OnlineToBatch(ClassifierMixin, BaseEstimator):
    """A batch classifier from one pass of an on-line learner, with a bound on its expected error.

    Parameters
    ----------
    learner : MatrixWinnow, PairWinnow, KernelWinnow or GeneralMatrixWinnow
        It is cloned, and not changed.
    hypothesis : {"vote", "random"}
        What predicts: the majority of the learner's hypotheses, each with the number of trials that it
        survived as its weight; or one hypothesis, drawn with these weights.
    random_state : int, Generator or SeedSequence
        Seed of the draw, for "random".

    Attributes
    ----------
    learner_ : the learner after its pass
    hypotheses_ : list
        The learner before its first mistake and after each.
    survivals_ : int array
        The number of examples before which each of them was current, the end of the pass included. The sum is
        ``T + 1`` for ``T`` examples.
    drawn_ : int
        The index of the drawn hypothesis, for "random".
    classes_ : array
        -1 and 1.

    Notes
    -----
    The hypotheses take memory in the number of mistakes, and so does the time of a vote.

    References
    ----------
    Warmuth (2007), §5, for the idea; ``bregopt.online.conversion`` derives the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import MatrixWinnow, OnlineToBatch
    >>> x = np.eye(4)[np.random.default_rng(0).integers(4, size=1000)]
    >>> batch = OnlineToBatch(MatrixWinnow()).fit(x, np.where(x[:, 2] == 1, 1, -1))
    >>> batch.score(np.eye(4), [-1, -1, 1, -1]), round(batch.expected_error_bound(), 3)
    (1.0, 0.02)
    """

    def __init__(
        self, learner: ConservativeLearner, hypothesis: str = "vote", random_state: RandomState = 0
    ) -> None:
        self.learner, self.hypothesis, self.random_state = learner, hypothesis, random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from the examples in one pass, in their order.

        Raises
        ------
        TypeError, ValueError
            If parameters or examples are bad.
        """
        if not is_one_of(self.hypothesis, _KINDS):
            raise ValueError(f"hypothesis is {self.hypothesis!r}{did_you_mean(str(self.hypothesis), _KINDS)}")
        if not isinstance(self.learner, ConservativeLearner):
            raise TypeError(f"learner is {self.learner!r}; expected a Winnow, such as MatrixWinnow()")
        learner = clone(self.learner)
        instances, labels = learner._examples(X, y)
        with threads_for(max(instances.shape[1:])):
            learner._begin(instances)
            learner.steps_ = 0
            hypotheses, survivals = [copy.copy(learner)], [1]
            for instance, label in zip(instances, labels, strict=True):
                learner._step(instance, float(label))
                learner.steps_ += 1
                if learner.mistakes_ == len(hypotheses):
                    hypotheses.append(copy.copy(learner))
                    survivals.append(0)
                survivals[-1] += 1
        self.learner_, self.hypotheses_, self.survivals_ = learner, hypotheses, np.array(survivals)
        self.classes_, self.n_features_in_ = learner.classes_, learner.n_features_in_
        if self.hypothesis == "random":
            rng = np.random.default_rng(self.random_state)
            self.drawn_ = int(rng.choice(len(hypotheses), p=self.survivals_ / self.survivals_.sum()))
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the mean vote of the hypotheses, or the drawn one's label: -1 to 1, shape ``(T,)``."""
        check_is_fitted(self)
        checked = self.learner_._instances(X)
        with threads_for(max(checked.shape[1:])):
            if self.hypothesis == "random":
                return self.hypotheses_[self.drawn_]._labels(checked)
            votes = np.zeros(len(checked))
            for hypothesis, weight in zip(self.hypotheses_, self.survivals_, strict=True):
                votes += weight * hypothesis._labels(checked)
        return votes / self.survivals_.sum()

    def predict(self, X: ArrayLike) -> Array:
        """Return 1 or -1 for each instance, shape ``(T,)``; 1 where the votes are equal."""
        return np.where(self.decision_function(X) >= 0, 1.0, -1.0)

    def expected_error_bound(self, mistakes: float | None = None) -> float:
        """Return a bound on the probability of an error, over samples of ``T`` examples and a new one.

        Parameters
        ----------
        mistakes : float, optional
            Bound on the expected mistakes on ``T + 1`` examples of the distribution. The default is the
            learner's ``mistake_bound()``, for a distribution that a projection labels without loss.

        Returns
        -------
        float
            ``mistakes / (T + 1)``, twice that for "vote"; at most 1.
        """
        check_is_fitted(self)
        bound = self.learner_.mistake_bound() if mistakes is None else total_loss(mistakes, "mistakes")
        return self._error(bound)

    def error_bound(self, delta: float = 0.05) -> float:
        """Return a bound on the probability of an error at a new example, from the mistakes on this sample.

        It holds with probability ``1 - delta`` over samples, for any distribution. For "random" the
        probability of an error is over the draw, too.

        Parameters
        ----------
        delta : float, above 0 and below 1

        Returns
        -------
        float
            ``(M + 1 + sqrt(T log(1/delta) / 2)) / (T + 1)`` after ``M`` mistakes on ``T`` examples, twice
            that for "vote"; at most 1.
        """
        check_is_fitted(self)
        level = float(finite_array(delta, "delta", ndim=0))
        if not 0 < level < 1:
            raise ValueError(f"delta is {level:g}; expected a number above 0 and below 1")
        T = self.learner_.steps_
        return self._error(self.learner_.mistakes_ + 1 + math.sqrt(T * math.log(1 / level) / 2))

    def _error(self, mistakes: float) -> float:
        share = mistakes / (self.learner_.steps_ + 1)
        return min(1.0, 2 * share if self.hypothesis == "vote" else share)
