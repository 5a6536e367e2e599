"""Symmetric Matrix Winnow as an estimator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.online import winnow
from bregopt.online.conservative import ROUND_OFF, ConservativeLearner, checked_rank, number
from bregopt.online.instances import activities, instances, positive_definite, spectrum_ends, total_loss
from bregopt.online.side_constraints import Declarations, functions, projected

__all__ = ["MatrixWinnow"]


class MatrixWinnow(ConservativeLearner):
    """Symmetric Matrix Winnow: learns which instances are close to a hidden subspace of low rank.

    Predicts 1 if ``tr(W X) >= theta``, and updates ``W`` only after mistakes.

    Parameters
    ----------
    rank : int
        Dimension of the subspace, or a guess.
    eta, theta, w0 : float, optional
        Learning rate, threshold, and the multiple of the identity at which ``W`` starts. By default those of
        Theorem 2, 1.28, 0.19 and ``rank / n``, adapted to `loss_limit` and `floor` where these are not 0.
    normalize : bool
        Whether the trace of ``W`` stays at ``n w0``.
    constraints : callable, or sequence of callables
        Side constraints that the subspace is known to satisfy: functions of a matrix variable that return
        constraints, such as ``lambda W: bo.diag(W) <= 1``. After each mistake the route `bregman` projects
        ``W`` on them. Only named functions can be pickled.
    loss_limit : float
        For noisy labels: a bound on the total hinge loss of the best subspace, for the default rate. See
        :meth:`mistake_bound`.
    floor : float
        For subspaces that shift: after a mistake the eigenvalues of ``W`` are kept in ``[floor, 1]``. It is
        at least 0, which is no floor and no cap, and below 1. A bound needs less than ``exp(-eta) / 2`` for
        vectors, and a share ``1/n`` of this for matrices. Neither `normalize` nor `constraints` go with it.

    Attributes
    ----------
    W_ : array of shape (n, n)
    eta_, theta_, w0_, floor_ : float
    trace_ : float
        Bound on the traces of the instances: 1 if all are vectors, otherwise n.
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
    Warmuth (2007), Algorithm 1, Theorem 2 with ``w0 = r/n``, which the bound needs. For noisy labels and
    shifting subspaces, of which §5 says only that the results for disjunctions carry over,
    ``bregopt.online.winnow`` derives the bounds.

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
        constraints: Declarations = (),
        loss_limit: float = 0.0,
        floor: float = 0.0,
    ) -> None:
        self.rank, self.eta, self.theta, self.w0 = rank, eta, theta, w0
        self.normalize, self.constraints = normalize, constraints
        self.loss_limit, self.floor = loss_limit, floor

    @property
    def W_(self) -> Array:
        """What was learned."""
        W: Array = self.state_.W
        return W

    def mistake_bound(
        self, rank: int | None = None, loss: float = 0.0, shift: float = 0.0, U: ArrayLike | None = None
    ) -> float:
        """Return a bound on the mistakes on any stream, or infinity if the parameters prove none.

        Parameters
        ----------
        rank : int, optional
            Rank of a projection ``P`` that satisfies the side constraints; the parameter `rank` by default.
        loss : float
            Total hinge loss of ``P``: the sum of ``max(1/2 - tr(P X_t), 0)`` over the labels 1, and of
            ``tr(P X_t)`` over the labels -1. Zero if ``P`` gives all labels.
        shift : float
            For a sequence of projections: the sum of half the trace norms of their differences. One dimension
            that is replaced by an orthogonal one counts as one. The bound is infinite without a `floor`.
        U : array_like of shape (n, n), optional
            A positive semidefinite matrix in place of ``P``, with eigenvalues up to 1 if there is a `floor`.

        Raises
        ------
        TypeError, ValueError
            If an argument is bad, or `U` is given together with `rank` or `shift`.
        """
        hinge, moved, n = total_loss(loss, "loss"), total_loss(shift, "shift"), len(self.W_)
        if U is not None and (rank is not None or moved > 0):
            raise ValueError("U is given with rank or shift; expected a matrix alone, or a rank")
        target = checked_rank(self.rank if rank is None else rank) if U is None else self._spectrum(U)
        size = target if isinstance(target, int) else float(target.sum())
        if self.normalize and functions(self.constraints) and not math.isclose(n * self.w0_, size):
            return math.inf  # W is projected on its trace, which the target does not have
        if self.normalize and moved > 0:
            return math.inf
        return winnow.mistake_bound(
            n,
            target,
            self.eta_,
            self.theta_,
            self.w0_,
            self.normalize,
            loss=hinge,
            shift=moved,
            floor=self.floor_,
            trace=self.trace_,
        )

    def _spectrum(self, U: Any) -> Array:
        """Return the positive eigenvalues of a target."""
        u = np.linalg.eigvalsh(positive_definite(U, "U", len(self.W_), singular=True)).astype(np.float64)
        if self.floor_ > 0 and u[-1] > 1 + ROUND_OFF:
            raise ValueError(f"U has the eigenvalue {u[-1]:g}; expected at most 1, as there is a floor")
        return u[u > 0]

    def _instances(self, X: Any) -> Array:
        checked = instances(X, len(self.W_) if hasattr(self, "state_") else None)
        least, largest = spectrum_ends(checked)
        outside = np.flatnonzero((least < -ROUND_OFF) | (largest > 1 + ROUND_OFF))
        if len(outside):
            t = outside[0]
            raise ValueError(
                f"X[{t}] has eigenvalues from {least[t]:g} to {largest[t]:g}; expected all in [0, 1]"
            )
        return checked

    def _begin(self, X: Array) -> None:
        n, rank = X.shape[1], checked_rank(self.rank)
        if rank > n:
            raise ValueError(f"rank is {rank}; expected at most {n}, the order of the instances")
        floor, trace = self._checked_floor(), 1.0 if X.ndim == 2 else float(n)
        w0 = rank / n + floor * (1 - rank / n) if self.w0 is None else positive_number(self.w0, "w0")
        distance = winnow.divergence(n, np.ones(rank), w0, floor)
        best = winnow.best_rate(distance, total_loss(self.loss_limit, "loss_limit"), floor * trace)
        eta = best if self.eta is None else positive_number(self.eta, "eta")
        theta = number(self.theta, "theta", winnow.threshold(eta, floor * trace))
        self.eta_, self.theta_, self.w0_, self.floor_, self.trace_ = eta, theta, w0, floor, trace
        self.state_ = winnow.init(n, w0)
        self._start(n)

    def _checked_floor(self) -> float:
        constrained = bool(functions(self.constraints))
        floor = float(finite_array(self.floor, "floor", ndim=0))
        if not 0 <= floor < 1:
            raise ValueError(f"floor is {floor:g}; expected a number from 0 on and below 1")
        if floor > 0 and (self.normalize or constrained):
            raise ValueError(f"floor is {floor:g} with normalize or constraints; expected it without them")
        return floor

    def _scores(self, X: Array) -> Array:
        return activities(self.W_, X)

    def _score(self, x: Array) -> float:
        W = self.state_.W
        return float((np.vdot(x, W @ x) if x.ndim == 1 else np.vdot(W, x)).real)

    def _learn(self, x: Array, y: float) -> None:
        kept = self.n_features_in_ * self.w0_ if self.normalize else None
        self.state_ = winnow.update(self.state_, x, y, self.eta_, kept, self.floor_)
        if self.constraints:
            self.state_ = projected(self.state_, functions(self.constraints), kept)
        if x.ndim == 2:
            self.trace_ = float(len(x))
