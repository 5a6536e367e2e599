"""The Burg gradient for positive definite matrices (Jain, Kulis, Dhillon 2007, §3).

Instances are ``X = Z Z'`` of any rank ``k``, which the paper leaves open (§6). The analysis for vectors
(:mod:`bregopt.online.burg`) applies, with the LogDet divergence and the eigenvalues ``m`` of ``Z'WZ`` in
place of ``w x``:

    D(U, W) - D(U, W+) = sum log(1 + b m) - b tr(UX),    b = eta l'(p),  p = tr(WX) = sum m.

``W`` is stored as ``F F'``, so that it is positive definite by construction. An update is one product with
``I - V diag(c) V'``, the inverse square root of ``I + b F'XF``, in ``O(n^2 k)``. If ``W`` must stay below
``c I``, the matrix ``inv(inv(W) - I/c) = H H'`` is stored in the same way: it limits the growth of ``W``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online.burg import BurgLearner, Trial, rate_limit
from bregopt.online.learner import differences, factors, positive_definite, vectors
from bregopt.online.losses import SQUARE, Loss


class MatrixBurgState(NamedTuple):
    """Factors of ``W = F F'`` and of ``inv(inv(W) - I/c) = H H'``; H is None if there is no ceiling ``c``."""

    F: Array
    H: Array | None

    @property
    def W(self) -> Array:
        """The matrix ``F F'``."""
        W: Array = self.F @ self.F.T
        return W


def init(W1: Array, ceiling: float | None = 1.0) -> MatrixBurgState:
    """Return the state of a symmetric positive definite matrix below ``ceiling I``."""
    w, V = np.linalg.eigh(W1)
    F = V * np.sqrt(w)
    if ceiling is None:
        return MatrixBurgState(F, None)
    if w[-1] >= ceiling:
        raise ValueError(f"W1 has the eigenvalue {w[-1]:g}; expected less than ceiling = {ceiling:g}")
    return MatrixBurgState(F, V * np.sqrt(w / (1 - w / ceiling)))


def predict(state: MatrixBurgState, Z: Array) -> Array:
    """Return ``tr(W X_t)`` for ``X_t = Z_t Z_t'``, the `Z` of shape ``(T, n)`` or ``(T, n, k)``."""
    if Z.ndim == 2:
        forms: Array = ((Z @ state.F) ** 2).sum(axis=1)
        return forms
    traces: Array = ((Z.swapaxes(1, 2) @ state.F) ** 2).sum(axis=(1, 2))
    return traces


def trial(state: MatrixBurgState, Z: Array) -> Trial:
    """Return one instance ``Z Z'``, ``Z`` of shape ``(n,)`` or ``(n, k)``, in the current state."""
    factors = tuple(_eigen(F, Z) for F in state if F is not None)
    shares = factors[0][1]
    # With a ceiling the last factor is H's, with the larger eigenvalues but for round-off.
    if Z.ndim == 1:
        return Trial(shares, shares**2, shares, max(shares, factors[-1][1]), shares, factors)
    lowest, highest = float(shares[0]), max(float(shares[-1]), float(factors[-1][1][-1]))
    return Trial(float(shares.sum()), float(shares @ shares), lowest, highest, shares, factors)


def _eigen(F: Array, Z: Array) -> tuple[Array, Any]:
    """Return ``V`` and ``m`` with ``F'ZZ'F = V V'`` and ``V'V = diag(m)``; ``m`` is a number for a vector."""
    V = Z.T @ F
    if V.ndim == 1:
        return V, float(V @ V)
    m, Q = np.linalg.eigh(V @ V.T)
    return V.T @ Q, np.maximum(m, 0.0)


def move(state: MatrixBurgState, seen: Trial, step: float) -> MatrixBurgState:
    """Return the state of ``W+`` with ``inv(W+) = inv(W) + step Z Z'``."""
    H = None if state.H is None else _moved(state.H, *seen.factors[1], step)
    return MatrixBurgState(_moved(state.F, *seen.factors[0], step), H)


def _moved(F: Array, V: Array, m: Any, step: float) -> Array:
    """Return ``F (I + step V V')^(-1/2)``, where ``V'V = diag(m)``."""
    root = (1 + step * m) ** 0.5
    left = F @ V * (step / (root * (1 + root)))
    moved: Array = F - (np.multiply.outer(left, V) if V.ndim == 1 else left @ V.T)
    return moved


def largest_rate(state: MatrixBurgState, Z: Array, y: float, loss: Loss = SQUARE) -> float:
    """Return the largest rate for which the bound holds and ``W`` stays definite and below its ceiling.

    It is at most half of the limit of the ceiling, as in Algorithm 2: ``inv(W+) - I/c``, which is
    ``inv(H H') + b Z Z'``, is positive definite if and only if the eigenvalues of ``b Z'HH'Z`` are above -1.
    """
    seen = trial(state, Z)
    return rate_limit(seen, loss.derivative(seen.prediction, y), loss.smoothness)


def update(state: MatrixBurgState, Z: Array, y: float, eta: float, loss: Loss = SQUARE) -> MatrixBurgState:
    """Learn from one instance: ``inv(W+) = inv(W) + eta l'(tr(WX)) X``, Algorithm 2.

    Raises
    ------
    ValueError
        If the matrix would not stay positive definite, or below its ceiling; this does not happen up to
        :func:`largest_rate`.
    """
    seen = trial(state, Z)
    step = eta * loss.derivative(seen.prediction, y)
    if min(step * seen.lowest, step * seen.highest) <= -1:
        raise ValueError(f"eta is {eta:g}, with which the matrix would not stay in its domain")
    return move(state, seen, step)


def divergence(U: Array, W: Array) -> float:
    """Return ``tr(U inv(W)) - log det(U inv(W)) - n``; infinite if `U` is singular."""
    ratio = np.linalg.solve(W, U)
    sign, logdet = np.linalg.slogdet(ratio)
    return float(np.trace(ratio)) - float(logdet) - len(W) if sign > 0 else math.inf


class MatrixBurgGradient(BurgLearner):
    """Matrix Burg gradient: learns ``0 < W < c I`` from ``y_t = tr(W X_t)``, with the LogDet divergence.

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
    loss, update
        As for :class:`BurgGradient`.
    rates : {"adaptive", "decreasing"}
        How the rate of a trial is reduced: ``"adaptive"`` as the bound for smooth losses requires, from `eta`
        in each trial; ``"decreasing"`` only for too low predictions, to half the limit of the domain, and for
        all later trials too (the paper's rule). No bound is known before the trials then, and `loss_bound`
        has a sum over the trials.

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total loss and the number of trials.

    Notes
    -----
    Instances are vectors ``z`` for ``z z'``, shape ``(T, n)``; factors ``Z`` for ``Z Z'``, shape
    ``(T, n, k)`` with ``k < n``; or symmetric positive semidefinite matrices of any rank, shape
    ``(T, n, n)``. A trial costs ``O(n^2 k)``, where ``k`` is the largest rank: it updates factors of ``W``
    and of ``inv(inv(W) - I/c)``, and inverts nothing.

    References
    ----------
    Jain, Kulis, Dhillon (2007), Algorithm 2, Lemma 2, Theorem 2; ``bregopt.online.burg`` derives rates and
    bound.
    """

    _predicted, _trial, _move = staticmethod(predict), staticmethod(trial), staticmethod(move)

    def __init__(
        self,
        eta: float = 0.25,
        ceiling: float | None = 1.0,
        W1: ArrayLike | None = None,
        loss: str | Loss = "square",
        update: str = "explicit",
        rates: str = "adaptive",
    ) -> None:
        self.eta, self.ceiling, self.W1 = eta, ceiling, W1
        self.loss, self.update, self.rates = loss, update, rates

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def loss_bound(self, U: ArrayLike, loss: float = 0.0) -> float:
        """Return a proven bound on `loss_`, in terms of a comparator.

        Parameters
        ----------
        U : array_like of shape (n, n)
            Symmetric positive semidefinite; the bound is infinite if it is singular.
        loss : float
            Its total loss on the same trials, or a bound on it.
        """
        n = self.n_features_in_
        U = positive_definite(finite_array(U, "U"), "U", n, singular=True)
        return self._bound(divergence(U, self._first(n).W), loss)

    def _instances(self, X: Any) -> Array:
        return factors(X, self._order)

    def _first(self, n: int) -> MatrixBurgState:
        ceiling = None if self.ceiling is None else positive_number(self.ceiling, "ceiling")
        if self.W1 is None:
            level = 1 / n if ceiling is None or ceiling > 1 / n else ceiling / 2
            return init(level * np.eye(n), ceiling)
        W1 = positive_definite(finite_array(self.W1, "W1"), "W1", n)
        return init(W1, ceiling)


class OnlineLogDetMetric(MatrixBurgGradient):
    """Learns a Mahalanobis metric ``(a - b)'A (a - b)`` from pairs of points and their target distances.

    Parameters
    ----------
    eta : float, above 0
        Learning rate, reduced for a pair if necessary; see :class:`MatrixBurgGradient`.
    ceiling : float or None
        Strict upper bound on the eigenvalues of ``A``; None, the default, for no bound.
    W1 : array_like of shape (d, d), optional
        The initial metric; the Euclidean one by default.
    loss, update, rates
        As for :class:`MatrixBurgGradient`.

    Attributes
    ----------
    W_ : array of shape (d, d)
        The matrix ``A`` of the metric.
    eta_, rates_, loss_, steps_
        The maximal rate, the smallest and the largest rate so far, the total loss and the number of pairs.

    References
    ----------
    Jain, Kulis, Dhillon (2007), §4.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import OnlineLogDetMetric
    >>> pairs = np.random.default_rng(0).normal(size=(2000, 2, 2))
    >>> distances = (pairs[:, 0, 0] - pairs[:, 1, 0]) ** 2 / 4  # only the first coordinate matters
    >>> metric = OnlineLogDetMetric().fit(pairs, distances)
    >>> bool(abs(metric.W_ - [[0.25, 0], [0, 0]]).max() < 0.02)
    True
    """

    def __init__(
        self,
        eta: float = 0.25,
        ceiling: float | None = None,
        W1: ArrayLike | None = None,
        loss: str | Loss = "square",
        update: str = "explicit",
        rates: str = "adaptive",
    ) -> None:
        super().__init__(eta, ceiling, W1, loss, update, rates)

    def transform(self, X: ArrayLike) -> Array:
        """Return points in coordinates in which the metric is Euclidean, shape ``(m, d)``."""
        points = finite_array(X, "X", ndim=2)
        d = self.n_features_in_
        if points.shape[1] != d:
            raise ValueError(f"X has {points.shape[1]} features; expected {d}")
        transformed: Array = points @ self.state_.F
        return transformed

    def _instances(self, X: Any) -> Array:
        """Return the differences of pairs of points, given in shape ``(T, 2, d)``."""
        return vectors(differences(X), self._order)

    def _first(self, n: int) -> MatrixBurgState:
        if self.W1 is None and self.ceiling is None:
            return init(np.eye(n), None)
        return super()._first(n)
