"""Matrix exponentiated gradient: a learner of real labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, positive_number
from bregopt.online import meg
from bregopt.online.entropy import relative_entropy
from bregopt.online.instances import instances, positive_definite, spectrum_ends, total_loss
from bregopt.online.learner import LossLearner
from bregopt.online.losses import Loss, find_loss

__all__ = ["MEG"]

_SLACK = 1 + 1e-9  # factor of the bounds on instances and comparators, for round-off


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
        return meg.predict(self.state_, instances(X, len(self.W_)))

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
        return meg.loss_bound(distance, loss, self.eta_, float(self.r), smoothness)

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
        return meg.learning_rate(positive_number(self.r, "r"), farthest, limit, loss.smoothness)

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
        self.eta_, self.state_, self.n_features_in_ = eta, meg.init(W1), X.shape[1]

    def _step(self, x: Array, y: float) -> None:
        value, slope = self._evaluated(float(meg.predict(self.state_, x[None])[0]), y)
        if self._implicit:
            self.state_ = meg.implicit_update(
                self.state_, x, y, self.eta_, self.normalize, self.loss_function_
            )
        else:
            self.state_ = meg.move(self.state_, x, self.eta_ * slope, self.normalize)
        curvature = 0.0 if self.r is None else float(self.r) ** 2 / 8
        self._record(value, slope, self.eta_, curvature)
