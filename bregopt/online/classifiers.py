"""Learners of labels 1 and -1: Matrix Winnow, symmetric and general."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.errors import SolverError
from bregopt.modeling.atoms import trace
from bregopt.modeling.objectives import Minimize, von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.online import general_winnow, meg, winnow
from bregopt.online.instances import activities, instances, signs, spectrum_ends
from bregopt.online.learner import OnlineLearner

__all__ = ["GeneralMatrixWinnow", "MatrixWinnow"]

_ROUND_OFF = 1e-9  # absolute round-off of eigenvalues in [0, 1]
_TOL = 1e-10  # tolerance of projections on side constraints


class MatrixWinnow(ClassifierMixin, OnlineLearner):
    """Symmetric Matrix Winnow: learns which instances are close to a hidden subspace of low rank.

    Predicts 1 if ``tr(W X) >= theta``, and updates ``W`` only after mistakes.

    Parameters
    ----------
    rank : int
        Dimension of the subspace, or a guess.
    eta, theta, w0 : float, optional
        Learning rate, threshold, and the multiple of the identity at which ``W`` starts. By default those of
        Theorem 2, 1.28, 0.19 and ``rank / n``.
    normalize : bool
        Whether the trace of ``W`` stays at ``n w0``.
    constraints : callable, or sequence of callables
        Side constraints that the subspace is known to satisfy: functions of a matrix variable that return
        constraints, such as ``lambda W: bo.diag(W) <= 1``. After each mistake the route `bregman` projects
        ``W`` on them. Only named functions can be pickled.

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_, theta_, w0_ : float
    mistakes_ : int
    steps_ : int
    classes_ : array
        -1 and 1.

    Notes
    -----
    Instances are symmetric (or Hermitian) matrices with eigenvalues in [0, 1], shape ``(T, n, n)``, or
    vectors ``x`` of at most unit length for ``x x'``, shape ``(T, n)``.

    References
    ----------
    Warmuth (2007), Algorithm 1, Theorem 2 with ``w0 = r/n``, which the bound needs.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import MatrixWinnow
    >>> x = np.eye(4)[np.random.default_rng(0).integers(4, size=100)]
    >>> learner = MatrixWinnow(rank=1).fit(x, np.where(x[:, 2] == 1, 1, -1))
    >>> learner.mistakes_ <= learner.mistake_bound(), learner.score(np.eye(4), [-1, -1, 1, -1])
    (True, 1.0)
    """

    def __init__(
        self,
        rank: int = 1,
        eta: float | None = None,
        theta: float | None = None,
        w0: float | None = None,
        normalize: bool = False,
        constraints: Any = (),
    ) -> None:
        self.rank, self.eta, self.theta, self.w0 = rank, eta, theta, w0
        self.normalize, self.constraints = normalize, constraints

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def decision_function(self, X: Any) -> Array:
        """Return ``tr(W X_t) - theta`` for each instance, shape ``(T,)``."""
        return activities(self.W_, self._instances(X)) - self.theta_

    def predict(self, X: Any) -> Array:
        """Return 1 or -1 for each instance, shape ``(T,)``."""
        return winnow.predict(self.state_, self._instances(X), self.theta_)

    def mistake_bound(self, rank: int | None = None) -> float:
        """Return a bound on the mistakes on any stream that a projection ``P`` of rank `rank` labels.

        ``tr(P X_t)`` is at least 1/2 for the label 1, and 0 for the label -1; ``P`` satisfies the side
        constraints. The bound is infinite if the parameters prove none.
        """
        r, n = _rank(self.rank if rank is None else rank, "rank"), len(self.W_)
        if self.normalize and _functions(self.constraints) and not math.isclose(n * self.w0_, r):
            return math.inf  # W is projected on its trace, which P does not have
        return winnow.mistake_bound(n, r, self.eta_, self.theta_, self.w0_, self.normalize)

    def _instances(self, X: Any) -> Array:
        checked = instances(X, len(self.W_) if hasattr(self, "state_") else None)
        least, largest = spectrum_ends(checked)
        outside = np.flatnonzero((least < -_ROUND_OFF) | (largest > 1 + _ROUND_OFF))
        if len(outside):
            t = outside[0]
            raise ValueError(
                f"X[{t}] has eigenvalues from {least[t]:g} to {largest[t]:g}; expected all in [0, 1]"
            )
        return checked

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        checked = self._instances(X)
        return checked, signs(y, len(checked))

    def _begin(self, X: Array) -> None:
        n, rank = X.shape[1], _rank(self.rank, "rank")
        _functions(self.constraints)
        eta = winnow.ETA if self.eta is None else positive_number(self.eta, "eta")
        theta = _number(self.theta, "theta", winnow.threshold(eta))
        w0 = rank / n if self.w0 is None else positive_number(self.w0, "w0")
        self.eta_, self.theta_, self.w0_ = eta, theta, w0
        self.state_, self.mistakes_ = winnow.init(n, w0), 0
        self.classes_, self.n_features_in_ = np.array([-1.0, 1.0]), n

    def _step(self, x: Array, y: float) -> None:
        if float(winnow.predict(self.state_, x[None], self.theta_)[0]) == y:
            return
        kept = len(self.W_) * self.w0_ if self.normalize else None
        state = winnow.update(self.state_, x, y, self.eta_, kept)
        functions = _functions(self.constraints)
        self.state_ = _projected(state, functions, kept) if functions else state
        self.mistakes_ += 1


class GeneralMatrixWinnow(ClassifierMixin, OnlineLearner):
    """General Matrix Winnow: learns which rectangular instances are close to a hidden matrix of low rank.

    Predicts 1 if ``tr(R X') >= theta``, and updates ``R`` only after mistakes.

    Parameters
    ----------
    rank : int
        Rank of the hidden matrix ``sum u_i v_i'``, whose singular values are one; or a guess.
    eta, theta, w0 : float, optional
        Learning rate, threshold, and the multiple of the identity of order ``m + n`` at which the symmetric
        matrix that contains ``R`` starts. By default those with the best bound, with ``w0 = rank / (m + n)``.
    normalize : bool
        Whether the trace of that symmetric matrix is constant; otherwise no bound is known.

    Attributes
    ----------
    R_ : array of shape (m, n)
    eta_, theta_, w0_ : float
    mistakes_ : int
    steps_ : int
    classes_ : array
        -1 and 1.

    Notes
    -----
    Instances have shape ``(T, m, n)`` and singular values in [0, 1]. ``R`` starts at zero, which prefers no
    direction; the paper's multiple of an ``m x n`` identity is not a symmetric positive definite matrix.

    References
    ----------
    Warmuth (2007), §6, Algorithm 2 with the label in its update; ``bregopt.online.general_winnow`` derives
    the bound.
    """

    def __init__(
        self,
        rank: int = 1,
        eta: float | None = None,
        theta: float | None = None,
        w0: float | None = None,
        normalize: bool = True,
    ) -> None:
        self.rank, self.eta, self.theta, self.w0, self.normalize = rank, eta, theta, w0, normalize

    @property
    def R_(self) -> Array:
        """What was learned."""
        R: Array = self.state_.R
        return R

    def decision_function(self, X: Any) -> Array:
        """Return ``tr(R X_t') - theta`` for each instance, shape ``(T,)``."""
        scores: Array = np.tensordot(self._instances(X), self.R_, axes=2) - self.theta_
        return scores

    def predict(self, X: Any) -> Array:
        """Return 1 or -1 for each instance, shape ``(T,)``."""
        return general_winnow.predict(self.state_, self._instances(X), self.theta_)

    def mistake_bound(self, rank: int | None = None) -> float:
        """Return a bound on the mistakes on any stream that a matrix ``P`` as above of rank `rank` labels.

        ``tr(P X_t')`` is at least 1/2 for the label 1, and 0 for the label -1. The bound is infinite if the
        parameters prove none.
        """
        if not self.normalize:
            return math.inf
        r, order = _rank(self.rank if rank is None else rank, "rank"), sum(self.R_.shape)
        return general_winnow.mistake_bound(order, r, self.eta_, self.theta_, order * self.w0_)

    def _instances(self, X: Any) -> Array:
        checked = finite_array(X, "X", ndim=3)
        if checked.size == 0:
            raise ValueError(f"X is empty, of shape {checked.shape}; expected (T, m, n)")
        if hasattr(self, "state_") and checked.shape[1:] != self.R_.shape:
            raise ValueError(f"X has instances of shape {checked.shape[1:]}; expected {self.R_.shape}")
        largest = np.linalg.norm(checked, 2, axis=(1, 2))
        outside = np.flatnonzero(largest > 1 + _ROUND_OFF)
        if len(outside):
            raise ValueError(
                f"X[{outside[0]}] has the singular value {largest[outside[0]]:g}; expected all in [0, 1]"
            )
        return checked

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        checked = self._instances(X)
        return checked, signs(y, len(checked))

    def _begin(self, X: Array) -> None:
        m, n = X.shape[1:]
        rank = _rank(self.rank, "rank")
        eta = general_winnow.best_rate(rank) if self.eta is None else positive_number(self.eta, "eta")
        w0 = rank / (m + n) if self.w0 is None else positive_number(self.w0, "w0")
        theta = _number(self.theta, "theta", general_winnow.threshold(eta, rank, (m + n) * w0))
        self.eta_, self.theta_, self.w0_ = eta, theta, w0
        self.state_, self.mistakes_ = general_winnow.init(m, n), 0
        self.classes_, self.n_features_in_ = np.array([-1.0, 1.0]), n

    def _step(self, x: Array, y: float) -> None:
        if float(general_winnow.predict(self.state_, x[None], self.theta_)[0]) != y:
            self.state_ = general_winnow.update(self.state_, x, y, self.eta_, self.w0_, self.normalize)
            self.mistakes_ += 1


def _rank(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} is {value!r}; expected an integer above 0")
    return int(value)


def _number(value: Any, name: str, default: float) -> float:
    return default if value is None else float(finite_array(value, name, ndim=0))


def _functions(constraints: Any) -> list[Callable[[PSD], Any]]:
    given = [constraints] if callable(constraints) else constraints
    if isinstance(given, str) or not hasattr(given, "__iter__") or not all(callable(f) for f in given):
        raise TypeError(f"constraints is {constraints!r}; expected functions of the matrix variable")
    return list(given)


def _projected(
    state: meg.MEGState, functions: list[Callable[[PSD], Any]], kept: float | None
) -> meg.MEGState:
    """Return the Bregman projection on the side constraints, and on the trace `kept` if it is given."""
    W = PSD(len(state.W), name="W")
    rows = [f(W) for f in functions] + ([] if kept is None else [trace(W) == kept])
    sol = Problem(Minimize(von_neumann_div(W, state.W)), rows).solve(solver="bregman", tol=_TOL)
    if sol.status != "optimal":
        raise SolverError(f"no projection on the side constraints: {sol.status}. {sol.stop_reason}")
    return meg.init(sol.X)
