"""The matrix exponentiated gradient, explicit and implicit (Tsuda, Rätsch, Warmuth 2005, §3).

Its divergence is von Neumann's, and its updates are exponentials with a given trace. Pure
functions on arrays come first, then the learner of real labels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, positive_number
from bregopt.online.learner import (
    LossLearner,
    activities,
    hermitian,
    instances,
    positive_definite,
    spectrum_ends,
    total_loss,
)
from bregopt.online.losses import SQUARE, Loss, find_loss, implicit_step

_ROUND_OFF = 1e-12  # absolute round-off of eta r^2 / 2, which is one at the largest rate
_LARGEST = 700.0  # an exponent for which exp is still finite
_SLACK = 1 + 1e-9  # factor of the bounds on instances and comparators, for round-off


class MEGState(NamedTuple):
    """The state between trials: ``W``, and ``G`` such that ``W`` is ``exp(G)`` or a multiple of it."""

    G: Array
    W: Array


def init(W1: Array) -> MEGState:
    """Return the state of a Hermitian positive definite matrix."""
    return MEGState(logarithm(W1), W1)


def predict(state: MEGState, X: Array) -> Array:
    """Return ``tr(W X_t)`` for instances of shape ``(T, n, n)``, or vectors, ``(T, n)``; shape ``(T,)``."""
    return activities(state.W, X)


def move(state: MEGState, x: Array, step: float, normalize: bool = True) -> MEGState:
    """Return the state of ``G - step X``: ``W`` is ``exp(G) / tr exp(G)``, without `normalize` ``exp(G)``."""
    G = add_instance(state.G, -step, x)
    return MEGState(G, exponential(G, 1.0 if normalize else None))


def update(
    state: MEGState, x: Array, y: float, eta: float, normalize: bool = True, loss: Loss = SQUARE
) -> MEGState:
    """Learn from one instance, a Hermitian matrix or the vector ``x`` of ``x x*``.

    ``G -= eta l'(tr(W X)) X`` and ``W = exp(G) / tr exp(G)``: eq. 3.5 in the form of §3.2, which needs no
    logarithm of ``W``. Without `normalize`, ``W = exp(G)``, eq. 3.4.
    """
    slope = loss.derivative(float(predict(state, x[None])[0]), y)
    return move(state, x, eta * slope, normalize)


def implicit_update(
    state: MEGState, x: Array, y: float, eta: float, normalize: bool = True, loss: Loss = SQUARE
) -> MEGState:
    """Learn from one instance with a subgradient at the new ``W``, eq. 3.3.

    It is the ``W`` that minimizes ``D(W, W_t) + eta l(tr(W X))``. The prediction decreases with the step, so
    an equation in one number defines it; each of its evaluations costs an eigendecomposition.
    """

    def predicted(step: float) -> float:
        return float(predict(move(state, x, step, normalize), x[None])[0])

    slope = loss.derivative(float(predict(state, x[None])[0]), y)
    return move(state, x, implicit_step(loss, y, eta, predicted, eta * slope), normalize)


def learning_rate(r: float, divergence: float, loss: float = 0.0, smoothness: float = 2.0) -> float:
    """Return the rate that minimizes the bound of Lemma 3.2, of explicit updates with a smooth loss.

    Parameters
    ----------
    r : float
        Bound on the range of the eigenvalues of the instances.
    divergence : float
        Bound on ``D(U, W1)`` of the comparator.
    loss : float
        Bound on its loss; zero if it fits exactly.
    smoothness : float
        A Lipschitz constant of the loss's derivative, 2 for the square loss.
    """
    r *= math.sqrt(smoothness / 2)
    if loss == 0:
        return 2 / r**2
    if divergence == 0:  # of order one there is nothing to learn
        return 1 / r**2
    c = r * math.sqrt(2 * divergence / loss)
    return 2 * c / (r**2 * (2 + c))


def loss_bound(divergence: float, loss: float, eta: float, r: float, smoothness: float = 2.0) -> float:
    """Return the bound of Lemma 3.2, ``loss / (1 - eta r^2 / 2) + divergence / eta``, on the learner's loss.

    It is eq. 3.7 with ``c`` written in terms of ``eta = 2c / (r^2 (2 + c))``. For a loss of another
    smoothness ``beta`` than that of the square, 2, it has ``beta r^2 / 2`` in place of ``r^2``.

    Parameters
    ----------
    divergence, loss : float
        ``D(U, W1)`` of the comparator ``U`` of trace one, and its loss on the same trials.
    eta : float
        The learner's rate; for ``eta > 4 / (beta r^2)`` there is no bound, and infinity is returned.
    r : float
        Bound on the range of the eigenvalues of the instances.
    smoothness : float
        A Lipschitz constant ``beta`` of the loss's derivative.
    """
    slack = 1 - eta * smoothness * r**2 / 4
    if slack < -_ROUND_OFF or (slack <= _ROUND_OFF and loss > 0):
        return math.inf
    return (loss / slack if loss else 0.0) + divergence / eta


def exponential(G: Array, trace: float | None = None) -> Array:
    """Return ``exp(G)`` of a Hermitian ``G``, scaled to a trace if one is given.

    With a trace ``G`` may be of any size: the largest eigenvalue is subtracted before exponentials are taken
    (Tsuda et al. 2005, §3.2).

    Raises
    ------
    OverflowError
        Without a trace, if the exponential is too large for a number.
    """
    theta, V = np.linalg.eigh(G)
    if trace is None and theta[-1] > _LARGEST:
        raise OverflowError(f"the exponential of the eigenvalue {theta[-1]:g} overflows; lower eta")
    if trace is None:
        roots = np.exp(theta / 2)
    else:
        roots = np.exp((theta - theta[-1]) / 2)
        roots *= np.sqrt(trace / (roots @ roots))
    half = V * roots
    W: Array = half @ half.conj().T
    return hermitian(W) if np.iscomplexobj(W) else W  # a real product with its transpose is symmetric


def logarithm(W: Array) -> Array:
    """Return the logarithm of a Hermitian positive definite matrix."""
    w, V = np.linalg.eigh(W)
    return hermitian((V * np.log(w)) @ V.conj().T)


def add_instance(G: Array, step: float, x: Array) -> Array:
    """Return ``G + step X`` for an instance ``X``, or ``G + step x x'`` for a vector ``x``."""
    X = np.multiply.outer(x, x.conj()) if x.ndim == 1 else x
    sum_: Array = G + step * X
    return sum_


def relative_entropy(U: Array, W: Array) -> float:
    """Return ``tr(U log U - U log W - U + W)``; ``U`` may be singular, ``W`` is positive definite."""
    u = np.linalg.eigvalsh(U)
    positive = u[u > 0]
    cross = float(np.vdot(logarithm(W), U).real)
    return float(positive @ np.log(positive)) - cross - float(np.trace(U).real) + float(np.trace(W).real)


class MEG(LossLearner):
    """Matrix exponentiated gradient: learns a positive definite ``W`` from ``y_t = tr(W X_t)``.

    Parameters
    ----------
    eta : float, optional
        Learning rate. By default the best one by Lemma 3.2, from `r` and `loss_limit`; a loss that is not
        smooth requires `eta`.
    r : float or None
        Bound on the range (largest minus smallest) of the eigenvalues of the instances, which they must meet;
        ``|x|^2`` for a vector. None means no bound, and requires `eta`.
    loss_limit : float
        Bound on the total loss of a comparator, if one is known; zero if some ``U`` is expected to fit.
    normalize : bool
        Whether ``W`` keeps trace one (eq. 3.5); otherwise it is only positive definite (eq. 3.4).
    W1 : array_like of shape (n, n), optional
        Initial matrix, Hermitian and positive definite; ``I/n`` by default.
    loss : str or Loss
        The loss of a prediction: ``"square"``, ``"huber"``, ``"absolute"`` or ``"hinge"`` (labels 1 and -1,
        the loss is ``max(0, 1 - y tr(W X))``), or a :class:`Loss` such as ``huber(0.1)``.
    update : {"explicit", "implicit"}
        Whether the gradient is the one before or after the update (eq. 3.3).

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_ : float
    loss_ : float
        Total loss of the predictions so far, each before its label was known.
    steps_ : int

    Notes
    -----
    Instances are matrices, shape ``(T, n, n)``, replaced by their symmetric (if complex, Hermitian) parts, or
    vectors ``x`` for ``x x*``, shape ``(T, n)``: with vectors, a trial costs ``O(n^2)`` and one
    eigendecomposition. An implicit update takes some 10 eigendecompositions.

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
        W1: ArrayLike | None = None,
        loss: str | Loss = "square",
        update: str = "explicit",
    ) -> None:
        self.eta, self.r, self.loss_limit, self.normalize, self.W1 = eta, r, loss_limit, normalize, W1
        self.loss, self.update = loss, update

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def predict(self, X: ArrayLike) -> Array:
        """Return ``tr(W X_t)`` for each instance, shape ``(T,)``."""
        return predict(self.state_, instances(X, len(self.W_)))

    def loss_bound(self, U: ArrayLike, loss: float = 0.0) -> float:
        """Return a proven bound on `loss_`, in terms of a comparator: Lemma 3.2 for smooth losses.

        Parameters
        ----------
        U : array_like of shape (n, n)
            The comparator, Hermitian positive semidefinite of trace one.
        loss : float
            Its total loss on the same trials, or a bound on it.

        Returns
        -------
        float
            For explicit updates with a smooth loss, infinite if ``eta > 4 / (beta r^2)`` with ``beta`` the
            loss's smoothness, 2 for the square and Huber's loss.

        Raises
        ------
        TypeError, ValueError
            If the comparator is bad, or no bound is known because `r` or `normalize` is not set.

        Notes
        -----
        ``bregopt.online.learner`` derives the bounds of the other losses, and of implicit updates. The bound
        of a loss that is not smooth has a sum over the trials so far.
        """
        if not self.normalize or self.r is None:
            raise ValueError("loss_bound needs normalize=True and a bound r on the instances' eigenvalues")
        U = positive_definite(U, "U", len(self.W_), singular=True)
        trace = float(np.trace(U).real)
        if abs(trace - 1) > _SLACK - 1:
            raise ValueError(f"U has trace {trace:g}; expected a comparator of trace one")
        distance, loss = relative_entropy(U, self._start(len(U))), total_loss(loss, "loss")
        smoothness = self.loss_function_.smoothness
        if self._implicit or smoothness == math.inf:
            return self._general_bound(distance, loss)
        return loss_bound(distance, loss, self.eta_, float(self.r), smoothness)

    def _start(self, n: int) -> Array:
        if self.W1 is None:
            return np.eye(n) / n
        W1 = positive_definite(self.W1, "W1", n)
        trace = float(np.trace(W1).real)
        if self.normalize and abs(trace - 1) > _SLACK - 1:
            raise ValueError(f"W1 has trace {trace:g}; expected one, or normalize=False")
        return W1

    def _rate(self, W1: Array, loss: Loss) -> float:
        limit = total_loss(self.loss_limit, "loss_limit")
        if self.eta is not None:
            return positive_number(self.eta, "eta")
        if self.r is None:
            raise ValueError("eta and r are both None; expected a learning rate, or what to choose it by")
        if loss.smoothness == math.inf:
            raise ValueError(
                "eta is None; expected a learning rate, as the loss is not smooth: for T trials with "
                "|l'| <= g, the best one by the bound is sqrt(8 log(n) / T) / (g r)"
            )
        # The farthest comparator of trace one projects on the eigenvector of the smallest eigenvalue.
        farthest = -math.log(float(np.linalg.eigvalsh(W1)[0]))
        return learning_rate(positive_number(self.r, "r"), farthest, limit, loss.smoothness)

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
        return checked, self._labels(y, len(checked))

    def _begin(self, X: Array) -> None:
        W1, loss = self._start(X.shape[1]), find_loss(self.loss)
        eta = self._rate(W1, loss)
        self._begin_losses((eta, 0.0))
        self.eta_, self.state_, self.n_features_in_ = eta, init(W1), X.shape[1]

    def _step(self, x: Array, y: float) -> None:
        value, slope = self._evaluated(float(predict(self.state_, x[None])[0]), y)
        if self._implicit:
            self.state_ = implicit_update(self.state_, x, y, self.eta_, self.normalize, self.loss_function_)
        else:
            self.state_ = move(self.state_, x, self.eta_ * slope, self.normalize)
        curvature = 0.0 if self.r is None else float(self.r) ** 2 / 8
        self._record(value, slope, self.eta_, curvature)
