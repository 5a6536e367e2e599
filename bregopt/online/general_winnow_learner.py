"""General Matrix Winnow as an estimator, for rectangular instances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online import general_winnow
from bregopt.online.instances import total_loss
from bregopt.online.learner import ROUND_OFF, ConservativeLearner, checked_rank, number

__all__ = ["GeneralMatrixWinnow"]


class GeneralMatrixWinnow(ConservativeLearner):
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

    def mistake_bound(self, rank: int | None = None, loss: float = 0.0) -> float:
        """Return a bound on the mistakes, or infinity if the parameters prove none.

        Parameters
        ----------
        rank : int, optional
            Rank of the matrix ``P``, as above, that labels the stream: ``tr(P X_t')`` is at least 1/2 for the
            label 1, and 0 or less for the label -1. The parameter `rank` by default.
        loss : float
            Total hinge loss of ``P``: the sum of ``max(1/2 - tr(P X_t'), 0)`` over the labels 1, and of
            ``max(tr(P X_t'), 0)`` over the labels -1. Zero if ``P`` gives all labels.
        """
        hinge = total_loss(loss, "loss")
        if not self.normalize:
            return math.inf
        r, order = checked_rank(self.rank if rank is None else rank), sum(self.R_.shape)
        return general_winnow.mistake_bound(order, r, self.eta_, self.theta_, order * self.w0_, hinge)

    def _instances(self, X: Any) -> Array:
        checked = finite_array(X, "X", ndim=3)
        if checked.size == 0:
            raise ValueError(f"X is empty, of shape {checked.shape}; expected (T, m, n)")
        if hasattr(self, "state_") and checked.shape[1:] != self.R_.shape:
            raise ValueError(f"X has instances of shape {checked.shape[1:]}; expected {self.R_.shape}")
        if not _within_unit_ball(checked):
            largest = np.linalg.norm(checked, 2, axis=(1, 2))
            k = int(np.argmax(largest > 1 + ROUND_OFF))
            raise ValueError(f"X[{k}] has the singular value {largest[k]:g}; expected all in [0, 1]")
        return checked

    def _begin(self, X: Array) -> None:
        m, n = X.shape[1:]
        rank = checked_rank(self.rank)
        eta = general_winnow.best_rate(rank) if self.eta is None else positive_number(self.eta, "eta")
        w0 = rank / (m + n) if self.w0 is None else positive_number(self.w0, "w0")
        theta = number(self.theta, "theta", general_winnow.threshold(eta, rank, (m + n) * w0))
        self.eta_, self.theta_, self.w0_ = eta, theta, w0
        self.state_ = general_winnow.init(m, n)
        self._start(n)

    def _scores(self, X: Array) -> Array:
        scores: Array = np.tensordot(X, self.R_, axes=2)
        return scores

    def _score(self, x: Array) -> float:
        return float(np.vdot(self.state_.R, x))

    def _learn(self, x: Array, y: float) -> None:
        self.state_ = general_winnow.update(self.state_, x, y, self.eta_, self.w0_, self.normalize)


def _within_unit_ball(X: Array) -> bool:
    """Whether no singular value exceeds 1, by Cholesky factorizations: a tenth of the time of an update."""
    short = X if X.shape[1] <= X.shape[2] else X.swapaxes(1, 2)
    room = (1 + ROUND_OFF) ** 2 * np.eye(short.shape[1]) - short @ short.swapaxes(1, 2)
    try:
        np.linalg.cholesky(room)
    except np.linalg.LinAlgError:
        return bool((np.linalg.norm(X, 2, axis=(1, 2)) <= 1 + ROUND_OFF).all())
    return True
