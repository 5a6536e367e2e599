"""General Matrix Winnow: rectangular instances with singular values in [0, 1] (Warmuth 2007, Algorithm 2).

It is the symmetric algorithm on the instances ``[[0, X'], [X, 0]]`` of order ``N = m + n``, which keep ``log
W`` of the form ``[[0, S'], [S, 0]]``. The algorithm needs only the singular values of the ``m x n`` matrix
``S``: the off-diagonal block of ``W`` is a multiple of ``sinh(S)``, and ``tr W`` is the same multiple of
``2 sum cosh(s_i) + |m - n|``.

The instances have eigenvalues in [-1, 1], so Theorem 2 of the symmetric case does not apply. With
``exp(a X) <= cosh(a) I + sinh(a) X`` in place of its Lemma 1, an update scaled to the trace ``tau`` reduces
the divergence to a target ``P = sum u_i v_i'`` of rank ``r`` with orthonormal ``u_i`` and ``v_i``
(``tr PX' >= 1/2`` or ``= 0``) by at least

    y = -1:  -r log(cosh eta - sinh(eta) theta / tau),
    y = +1:  eta/2 - r log(cosh eta + sinh(eta) theta / tau),

and it starts at ``r log(N/r)``. As in the symmetric case ``eta`` times the hinge loss is lost, which is
``max(1/2 - tr PX', 0)`` for the label 1, and ``max(tr PX', 0)`` for the label -1. The best parameters give a
bound that grows with ``r^2``; none is known without scaling.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online.learner import ROUND_OFF, ConservativeLearner, checked_rank, number, total_loss


class GeneralWinnowState(NamedTuple):
    """The sum ``S`` of the updates, and the parameter ``R`` that predicts, both of shape ``(m, n)``."""

    S: Array
    R: Array


def best_rate(rank: int) -> float:
    """Return the rate with the least bound: ``tanh eta = (1 + tanh(eta / 4r)) / 4r``."""
    eta = 0.0
    for _ in range(200):  # a contraction: its slope is at most 1/(4r)^2 / (1 - tanh^2)
        eta = math.atanh((1 + math.tanh(eta / (4 * rank))) / (4 * rank))
    return eta


def threshold(eta: float, rank: int, trace: float) -> float:
    """Return the threshold for which both kinds of mistakes make the same progress."""
    return trace * math.tanh(eta / (4 * rank)) / math.tanh(eta)


def init(m: int, n: int) -> GeneralWinnowState:
    """Return the initial state, a multiple of the identity of order ``m + n``: ``S = R = 0``."""
    return GeneralWinnowState(np.zeros((m, n)), np.zeros((m, n)))


def update(
    state: GeneralWinnowState, X: Array, y: float, eta: float, w0: float, normalize: bool = True
) -> GeneralWinnowState:
    """Learn from a mistake: ``R = 2 w0 sinh(arcsinh(R / 2 w0) + eta y X)``, scaled to a constant ``tr W``.

    With ``w0 = 1/2`` and without `normalize` it is Algorithm 2 (whose printed update lacks the label).

    Raises
    ------
    OverflowError
        Without `normalize`, if the parameter is too large for numbers.
    """
    S = state.S + eta * y * X
    U, s, Vt = np.linalg.svd(S, full_matrices=False)
    top = float(s[0]) if normalize else 0.0
    if s[0] - top > 700:
        raise OverflowError(f"sinh({s[0]:g}) overflows; lower eta")
    sinh, cosh = (np.exp(s - top) - np.exp(-s - top)) / 2, (np.exp(s - top) + np.exp(-s - top)) / 2
    order, square = sum(S.shape), abs(S.shape[0] - S.shape[1])
    scale = order / (2 * float(cosh.sum()) + square * math.exp(-top)) if normalize else 1.0
    return GeneralWinnowState(S, (U * (2 * w0 * scale * sinh)) @ Vt)


def mistake_bound(order: int, rank: int, eta: float, theta: float, trace: float, loss: float = 0.0) -> float:
    """Return a bound on the mistakes of the scaled algorithm, for a target of some rank.

    Parameters
    ----------
    order : int
        ``m + n``.
    rank : int
    eta, theta : float
    trace : float
        The trace to which ``W`` is scaled.
    loss : float
        Total hinge loss of the target.
    """
    inside = math.cosh(eta) - math.sinh(eta) * theta / trace
    negative = -rank * math.log(inside) if inside > 0 else math.inf
    positive = eta / 2 - rank * math.log(math.cosh(eta) + math.sinh(eta) * theta / trace)
    progress = min(negative, positive)
    return (rank * math.log(order / rank) + eta * loss) / progress if progress > 0 else math.inf


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
        return mistake_bound(order, r, self.eta_, self.theta_, order * self.w0_, hinge)

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
        eta = best_rate(rank) if self.eta is None else positive_number(self.eta, "eta")
        w0 = rank / (m + n) if self.w0 is None else positive_number(self.w0, "w0")
        theta = number(self.theta, "theta", threshold(eta, rank, (m + n) * w0))
        self.eta_, self.theta_, self.w0_ = eta, theta, w0
        self.state_ = init(m, n)
        self._start(n)

    def _scores(self, X: Array) -> Array:
        scores: Array = np.tensordot(X, self.R_, axes=2)
        return scores

    def _score(self, x: Array) -> float:
        return float(np.vdot(self.state_.R, x))

    def _learn(self, x: Array, y: float) -> None:
        self.state_ = update(self.state_, x, y, self.eta_, self.w0_, self.normalize)


def _within_unit_ball(X: Array) -> bool:
    """Whether no singular value exceeds 1, by Cholesky factorizations: a tenth of the time of an update."""
    short = X if X.shape[1] <= X.shape[2] else X.swapaxes(1, 2)
    room = (1 + ROUND_OFF) ** 2 * np.eye(short.shape[1]) - short @ short.swapaxes(1, 2)
    try:
        np.linalg.cholesky(room)
    except np.linalg.LinAlgError:
        return bool((np.linalg.norm(X, 2, axis=(1, 2)) <= 1 + ROUND_OFF).all())
    return True
