"""Learners of real labels under the square loss: MEG and the Burg gradients."""

from __future__ import annotations

import math
from abc import abstractmethod
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online import burg, matrix_burg, meg
from bregopt.online.entropy import relative_entropy
from bregopt.online.instances import instances, labels, positive_definite, spectrum_ends
from bregopt.online.learner import OnlineLearner

__all__ = ["MEG", "BurgGradient", "BurgLearner", "MatrixBurgGradient"]

_SLACK = 1 + 1e-9  # factor of the bounds on instances and comparators, for round-off


class MEG(RegressorMixin, OnlineLearner):
    """Matrix exponentiated gradient: learns a positive definite ``W`` from ``y_t = tr(W X_t)``.

    Parameters
    ----------
    eta : float, optional
        Learning rate. By default the best one by Lemma 3.2, from `r` and `loss_limit`.
    r : float or None
        Bound on the range (largest minus smallest) of the eigenvalues of the instances, which they must meet;
        ``|x|^2`` for a vector. None means no bound, and requires `eta`.
    loss_limit : float
        Bound on the total loss of a comparator, if one is known; zero if some ``U`` is expected to fit.
    normalize : bool
        Whether ``W`` keeps trace one (eq. 3.5); otherwise it is only positive definite (eq. 3.4).
    W1 : array_like of shape (n, n), optional
        Initial matrix, positive definite; ``I/n`` by default.

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_ : float
    loss_ : float
        Total square loss of the predictions so far, each before its label was known.
    steps_ : int

    Notes
    -----
    Instances are matrices, shape ``(T, n, n)``, replaced by their symmetric (if complex, Hermitian) parts, or
    vectors ``x`` for ``x x'``, shape ``(T, n)``: with vectors, a trial costs ``O(n^2)`` and one
    eigendecomposition.

    References
    ----------
    Tsuda, Rätsch, Warmuth (2005), Algorithm 1, eq. 3.4, 3.5, §3.2, Lemma 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import MEG
    >>> U, x = np.diag([0.9, 0.1]), np.random.default_rng(0).normal(size=(500, 2))
    >>> x /= np.linalg.norm(x, axis=1, keepdims=True)
    >>> learner = MEG().fit(x, np.einsum("ti,ij,tj->t", x, U, x))
    >>> bool(learner.loss_ <= learner.loss_bound(U)) and np.round(learner.W_, 3).tolist()
    [[0.9, 0.0], [0.0, 0.1]]
    """

    def __init__(
        self,
        eta: float | None = None,
        r: float | None = 1.0,
        loss_limit: float = 0.0,
        normalize: bool = True,
        W1: Any = None,
    ) -> None:
        self.eta, self.r, self.loss_limit, self.normalize, self.W1 = eta, r, loss_limit, normalize, W1

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def predict(self, X: Any) -> Array:
        """Return ``tr(W X_t)`` for each instance, shape ``(T,)``."""
        return meg.predict(self.state_, instances(X, len(self.W_)))

    def loss_bound(self, U: Any, loss: float = 0.0) -> float:
        """Return the bound of Lemma 3.2 on `loss_`, in terms of a comparator.

        Parameters
        ----------
        U : array_like of shape (n, n)
            The comparator, positive semidefinite of trace one.
        loss : float
            Its total square loss on the same trials, or a bound on it.

        Returns
        -------
        float
            Infinite if ``eta > 2 / r**2``.

        Raises
        ------
        TypeError, ValueError
            If the comparator is bad, or the Lemma does not apply because `r` or `normalize` is not set.
        """
        if not self.normalize or self.r is None:
            raise ValueError("loss_bound needs normalize=True and a bound r on the instances' eigenvalues")
        U = positive_definite(U, "U", len(self.W_), singular=True)
        trace = float(np.trace(U).real)
        if abs(trace - 1) > _SLACK - 1:
            raise ValueError(f"U has trace {trace:g}; expected a comparator of trace one")
        return meg.loss_bound(
            relative_entropy(U, self._start(len(U))), _loss(loss, "loss"), self.eta_, float(self.r)
        )

    def _start(self, n: int) -> Array:
        if self.W1 is None:
            return np.eye(n) / n
        W1 = positive_definite(self.W1, "W1", n)
        trace = float(np.trace(W1).real)
        if self.normalize and abs(trace - 1) > _SLACK - 1:
            raise ValueError(f"W1 has trace {trace:g}; expected one, or normalize=False")
        return W1

    def _rate(self, W1: Array) -> float:
        limit = _loss(self.loss_limit, "loss_limit")
        if self.eta is not None:
            return positive_number(self.eta, "eta")
        if self.r is None:
            raise ValueError("eta and r are both None; expected a learning rate, or what to choose it by")
        # The farthest comparator of trace one projects on the eigenvector of the smallest eigenvalue.
        farthest = -math.log(float(np.linalg.eigvalsh(W1)[0]))
        return meg.learning_rate(positive_number(self.r, "r"), farthest, limit)

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        checked = instances(X, len(self.W_) if hasattr(self, "state_") else None)
        if self.r is not None:
            least, largest = spectrum_ends(checked)
            wide = np.flatnonzero(largest - least > _SLACK * positive_number(self.r, "r"))
            if len(wide):
                t, r = wide[0], f"r = {self.r:g}"
                raise ValueError(
                    f"X[{t}] has eigenvalues of range {largest[t] - least[t]:g}; expected at most {r}"
                )
        return checked, labels(y, len(checked))

    def _begin(self, X: Array) -> None:
        W1 = self._start(X.shape[1])
        self.eta_ = self._rate(W1)
        self.state_, self.loss_, self.n_features_in_ = meg.init(W1), 0.0, X.shape[1]

    def _step(self, x: Array, y: float) -> None:
        error = float(meg.predict(self.state_, x[None])[0]) - y
        self.state_ = meg.update(self.state_, x, y, self.eta_, self.normalize)
        self.loss_ += error**2


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
        return burg.loss_bound(divergence, _loss(loss, "loss"), *self.rates_)

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

    def _first(self, n: int) -> matrix_burg.State:
        ceiling = None if self.ceiling is None else positive_number(self.ceiling, "ceiling")
        if self.W1 is None:
            level = 1 / n if ceiling is None or ceiling > 1 / n else ceiling / 2
            return matrix_burg.init(level * np.eye(n), ceiling)
        W1 = positive_definite(finite_array(self.W1, "W1"), "W1", n)
        return matrix_burg.init(W1, ceiling)


def _loss(value: Any, name: str) -> float:
    loss = float(finite_array(value, name, ndim=0))
    if loss < 0:
        raise ValueError(f"{name} is {loss:g}; expected a number that is not negative")
    return loss
