"""The base classes of the learners, and the checks of examples: no trial before all of the input is checked.

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

Conservative learners (Littlestone 1988) have labels 1 and -1, and update only after mistakes. They convert to
batch classifiers (Warmuth 2007, §5). On ``T`` examples a learner has ``T + 1`` hypotheses ``h_0, ..., h_T``,
of which it changes few. Let the examples and the one to predict be drawn independently from one distribution.

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
from abc import ABC, abstractmethod
from inspect import signature
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpstrf
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from bregopt.arrays import EPS, Array, RandomState, finite_array, is_one_of, rectangular
from bregopt.clock import threads_for
from bregopt.errors import did_you_mean
from bregopt.online.losses import Loss, find_loss

_KINDS = ("random", "vote")  # of hypotheses
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
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            if isinstance(parameter.default, bool) and not isinstance(value, bool | np.bool_):
                raise TypeError(f"{name} is {value!r}; expected True or False")
        with threads_for(max(instances.shape[1:])):
            if not begun:
                self._begin(instances)
                self.steps_ = 0
            for instance, label in zip(instances, labels, strict=True):
                self._step(instance, float(label))
                self.steps_ += 1
        return self

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
        """Return the bound for implicit updates with a smooth loss, else the one for convex losses.

        Parameters
        ----------
        divergence, loss : float
            ``D(U, W1)`` of the comparator, and its loss on the same trials.
        """
        smallest, largest = self.rates_
        if self._implicit and self.loss_function_.smoothness < math.inf:
            return (1 + self.steepness_) * ((largest * loss + divergence) / smallest)
        return (largest * loss + divergence + self.excess_) / smallest


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


def checked_rank(value: Any, name: str = "rank") -> int:
    """Return a rank after checking that it is an integer above 0."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} is {value!r}; expected an integer above 0")
    return int(value)


def number(value: Any, name: str, default: float) -> float:
    """Return a finite number, or the default for None."""
    return default if value is None else float(finite_array(value, name, ndim=0))


_ROUND_OFF = 1e-10  # round-off of users' eigenvalues, relative to the largest


def _finite_stack(value: Any, name: str, ndim: tuple[int, ...], expected: str) -> Array:
    """Return a new non-empty array of finite real or complex numbers; the messages name it.

    Raises
    ------
    TypeError, ValueError
        If there are no entries, anything but numbers, NaN or Inf, or a number of dimensions not in `ndim`.
    """
    raw = rectangular(value, name)
    if raw.dtype.kind == "c":
        array: Any = finite_array(raw.real, name) + 1j * finite_array(raw.imag, name)
    else:
        array = finite_array(raw, name)
    if array.ndim not in ndim:
        raise ValueError(f"{name} has shape {array.shape}; expected {expected}")
    if array.size == 0:
        raise ValueError(f"{name} is empty, of shape {array.shape}; expected {expected}")
    return array


def hermitian(X: Array) -> Array:
    """Return the Hermitian part of a matrix or of each of a stack; for real matrices the symmetric part."""
    part: Array = (X + X.conj().swapaxes(-1, -2)) / 2
    return part


def instances(value: Any, order: int | None) -> Array:
    """Return instances as vectors ``x`` for ``x x'``, shape ``(T, n)``, or Hermitian matrices, ``(T, n, n)``.

    Only the Hermitian part of a matrix is kept: the rest has inner product zero with a Hermitian ``W``.
    """
    expected = "(T, n) for vectors or (T, n, n) for matrices"
    X = _finite_stack(value, "X", (2, 3), expected)
    if X.ndim == 3 and X.shape[1] != X.shape[2]:
        raise ValueError(f"X has shape {X.shape}; expected {expected}")
    _same_order(X.shape[1], order)
    return X if X.ndim == 2 else hermitian(X)


def _same_order(found: int, order: int | None) -> None:
    if order is not None and found != order:
        raise ValueError(f"X has instances of order {found}; expected {order}, as before")


def vectors(value: Any, order: int | None) -> Array:
    """Return real vectors, shape ``(T, n)``."""
    X = finite_array(value, "X", ndim=2)
    if X.size == 0:
        raise ValueError(f"X is empty, of shape {X.shape}; expected (T, n)")
    _same_order(X.shape[1], order)
    return X


def differences(value: Any) -> Array:
    """Return the differences of pairs of points, given in shape ``(T, 2, d)``."""
    pairs = finite_array(value, "X")
    if pairs.ndim != 3 or pairs.shape[1] != 2:
        raise ValueError(f"X has shape {pairs.shape}; expected (T, 2, d), pairs of points")
    return pairs[:, 0] - pairs[:, 1]


def factors(value: Any, order: int | None) -> Array:
    """Return instances ``X = Z Z'`` as the vectors ``Z``, shape ``(T, n)``, or factors, ``(T, n, k)``.

    Matrices, shape ``(T, n, n)``, are factored in ``O(n^2 k)`` each, with ``k`` the largest rank.

    Raises
    ------
    TypeError, ValueError
        If the shape is wrong, an entry is NaN or Inf, or a matrix is not positive semidefinite.
    """
    expected = "(T, n) for vectors, (T, n, k) with k < n for factors, or (T, n, n) for matrices"
    X = finite_array(value, "X")
    if X.ndim not in (2, 3) or (X.ndim == 3 and X.shape[2] > X.shape[1]):
        raise ValueError(f"X has shape {X.shape}; expected {expected}")
    if X.size == 0:
        raise ValueError(f"X is empty, of shape {X.shape}; expected {expected}")
    _same_order(X.shape[1], order)
    return _factored(X) if X.ndim == 3 and X.shape[1] == X.shape[2] else X


def _factored(X: Array) -> Array:
    """Return `Z` of shape ``(T, n, k)`` with ``X_t = Z_t Z_t'``, by Cholesky's factorization with pivots."""
    n = X.shape[1]
    Z, largest = np.zeros_like(X), 1
    for t, matrix in enumerate(X):
        lower, pivots, rank, _ = dpstrf(matrix, tol=n * EPS * np.abs(matrix).max(), lower=1)
        Z[t, pivots - 1, :rank] = np.tril(lower)[:, :rank]
        largest = max(largest, rank)
    Z = Z[:, :, :largest].copy()
    missed = np.abs(X - Z @ Z.swapaxes(1, 2)).max(axis=(1, 2)) > _ROUND_OFF * np.abs(X).max(axis=(1, 2))
    if missed.any():
        t = int(np.flatnonzero(missed)[0])
        raise ValueError(
            f"X[{t}] is not symmetric positive semidefinite; expected such a matrix, or a factor Z of Z Z' "
            "with fewer columns than rows"
        )
    return Z


def labels(value: Any, count: int) -> Array:
    """Return `count` checked real labels, one for each instance."""
    y = finite_array(value, "y", ndim=1)
    if len(y) != count:
        raise ValueError(f"y has {len(y)} labels for {count} instances; expected one for each")
    return y


def signs(value: Any, count: int) -> Array:
    """Return `count` checked labels, each 1 or -1, one for each instance."""
    y = labels(value, count)
    other = np.flatnonzero(np.abs(y) != 1)
    if len(other):
        raise ValueError(f"y[{other[0]}] is {y[other[0]]:g}; expected 1 or -1")
    return y


def activities(W: Array, X: Array) -> Array:
    """Return ``tr(W X_t)`` for a Hermitian ``W`` and each instance, shape ``(T,)``."""
    if X.ndim == 2:
        forms: Array = (X.conj() * (X @ W.T)).sum(axis=1).real
        return forms
    traces: Array = (X.reshape(len(X), -1) @ W.conj().ravel()).real
    return traces


def spectrum_ends(X: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest eigenvalue of each instance, two arrays of shape ``(T,)``."""
    if X.ndim == 2:
        square: Array = (np.abs(X) ** 2).sum(axis=1)
        return (square if X.shape[1] == 1 else np.zeros(len(X))), square
    with threads_for(X.shape[1]):
        eigenvalues = np.linalg.eigvalsh(X).astype(np.float64)
    return eigenvalues[:, 0], eigenvalues[:, -1]


def positive_definite(value: Any, name: str, n: int, singular: bool = False) -> Array:
    """Return a Hermitian positive definite matrix of order `n`, or one that may be `singular`.

    Raises
    ------
    TypeError, ValueError
        If the shape is wrong, an entry is NaN or Inf, the matrix is not Hermitian, or an eigenvalue is not
        positive.
    """
    W = _finite_stack(value, name, (2,), f"({n}, {n})")
    if W.shape != (n, n):
        raise ValueError(f"{name} has shape {W.shape}; expected ({n}, {n})")
    if np.abs(W - W.conj().T).max() > _ROUND_OFF * np.abs(W).max():
        raise ValueError(f"{name} is not symmetric (Hermitian); expected a symmetric matrix")
    eigenvalues = np.linalg.eigvalsh(hermitian(W))
    least = -_ROUND_OFF * abs(eigenvalues[-1]) if singular else 0.0
    if eigenvalues[0] < least or (eigenvalues[0] == 0 and not singular):
        kind = "semidefinite" if singular else "definite"
        raise ValueError(f"{name} has the eigenvalue {eigenvalues[0]:g}; expected a positive {kind} matrix")
    return hermitian(W)


def total_loss(value: Any, name: str) -> float:
    """Return a total loss that the user states, after checking that it is a number from 0 on."""
    loss = float(finite_array(value, name, ndim=0))
    if loss < 0:
        raise ValueError(f"{name} is {loss:g}; expected a number that is not negative")
    return loss
