"""Matrix Winnow on feature vectors ``phi(x)`` that are known by a kernel only (Warmuth 2007, §1).

``log W`` is ``log(w0) I`` plus a sum of ``eta y phi(x) phi(x)'`` over the mistakes. So ``W`` is ``w0 I`` on
the orthogonal complement of the span of their features, which suggests an orthonormal basis of that span. The
Cholesky factor ``L`` of the mistakes' Gram matrix gives one: a point ``x`` with the kernel values ``k`` has
the coordinates ``q = inv(L) k``, and

    phi(x)' W phi(x) = w0 (k(x, x) - q'q) + q' W_S q,

with ``W_S`` the matrix in these coordinates, which the update of `winnow` changes. Memory and time depend on
the dimension of the span, at most the number of mistakes, and not on the dimension of the features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bregopt.arrays import Array, finite_array, is_one_of, positive_number
from bregopt.errors import did_you_mean
from bregopt.online import meg, winnow
from bregopt.online.learner import ROUND_OFF, ConservativeLearner, checked_rank, number, total_loss

# A squared distance from the span below this fraction of the squared norm is zero. The condition number of L
# is then at most about 1e5, and coordinates have ten digits.
_RANK_TOL = 1e-10
_INDEFINITE = 1e-6  # a squared distance below minus this is no round-off
_KERNELS = ("linear", "rbf")
_BLOCK = 64  # rows at a time for k(x, x), whose blocks of the Gram matrix have the square of it in entries
# Where, with the best rate, the bound is least: 20.1 for each dimension of the subspace.
_W0 = 0.0846


class KernelWinnowState(NamedTuple):
    """The state between trials, for a span of dimension ``m``."""

    points: Array  # (m, d), whose features span
    inverse: Array  # (m, m), inv(L)
    G: Array  # (m, m), log W in the coordinates q
    W: Array  # (m, m)


def init(d: int) -> KernelWinnowState:
    """Return the initial state ``w0 I``, whose span has dimension zero, for points of `d` features."""
    empty = np.zeros((0, 0))
    return KernelWinnowState(np.zeros((0, d)), empty, empty, empty)


def traces(state: KernelWinnowState, rows: Array, squares: Array, w0: float) -> Array:
    """Return ``phi(x)' W phi(x)`` for points, shape ``(T,)``.

    Parameters
    ----------
    state : KernelWinnowState
    rows : array of shape (T, m)
        Kernel values with the points of the state.
    squares : array of shape (T,)
        ``k(x, x)``.
    w0 : float
    """
    q = rows @ state.inverse.T
    rest = np.maximum(squares - (q**2).sum(axis=1), 0.0)
    forms: Array = w0 * rest + ((q @ state.W) * q).sum(axis=1)
    return forms


def update(
    state: KernelWinnowState,
    x: Array,
    row: Array,
    square: float,
    y: float,
    eta: float,
    w0: float,
    floor: float = 0.0,
) -> KernelWinnowState:
    """Learn from a mistake at the point `x`, whose kernel values with the state's points are `row`.

    ``log W`` moves by ``eta y phi(x) phi(x)'``. With a floor above 0 the eigenvalues in the span are kept in
    ``[floor, 1]``.

    Raises
    ------
    ValueError
        If the values are those of no positive semidefinite kernel.
    """
    q = state.inverse @ row
    rest = square - float(q @ q)
    if rest < -_INDEFINITE * max(square, 1.0):
        raise ValueError(
            f"the kernel is not positive semidefinite: the squared distance of {x} from the span of the "
            f"{len(q)} points before is {rest:.2g}"
        )
    if rest > _RANK_TOL * square:
        # The same W, with one more dimension in the span.
        distance = math.sqrt(rest)
        inverse = _bordered(state.inverse, 1 / distance)
        inverse[-1, :-1] = -(q @ state.inverse) / distance
        G, W = _bordered(state.G, math.log(w0)), _bordered(state.W, w0)
        state, q = KernelWinnowState(np.vstack([state.points, x]), inverse, G, W), np.append(q, distance)
    if len(q) == 0:  # the features are zero
        return state
    moved = winnow.update(meg.MEGState(state.G, state.W), q, y, eta, floor=floor)
    return KernelWinnowState(state.points, state.inverse, moved.G, moved.W)


def _bordered(A: Array, corner: float) -> Array:
    """Return the block diagonal matrix of a matrix and a number."""
    m = len(A)
    bordered = np.zeros((m + 1, m + 1))
    bordered[:m, :m] = A
    bordered[m, m] = corner
    return bordered


class KernelWinnow(ConservativeLearner):
    """Matrix Winnow on features ``phi(x)`` of a kernel: learns which are close to a hidden subspace.

    Predicts 1 if ``phi(x)' W phi(x) >= theta``. Its bound does not depend on the dimension of the features,
    which may be infinite: without loss, 20.1 times `rank`. A trial takes as many kernel values as ``W`` has
    dimensions that differ from its start, at most one for each mistake.

    Parameters
    ----------
    rank : int
        Dimension of the subspace, or a guess.
    kernel : {"rbf", "linear"} or callable
        A positive semidefinite kernel with ``k(x, x) <= 1``: ``exp(-gamma |x - z|^2)``, ``x'z``, or a
        function of two arrays of shapes ``(k, d)`` and ``(l, d)`` that returns the matrix of its values.
    gamma : float, above 0
        For "rbf".
    eta, theta, w0 : float, optional
        Learning rate, threshold, and the multiple of the identity at which ``W`` starts. By default those
        with the least bound, 0.78, 0.26 and 0.0846, adapted to `loss_limit` and `floor` where these are not
        0.
    loss_limit : float
        As for :class:`MatrixWinnow`.
    floor : float
        For subspaces that shift: after a mistake the eigenvalues of ``W`` are kept in ``[floor, 1]``; 0 for
        no floor and no cap. It is at most `w0`, and the default of `w0` if it is above 0.

    Attributes
    ----------
    points_ : array of shape (m, d)
        Points with mistakes, whose features are linearly independent.
    W_ : array of shape (m, m)
        ``W`` in an orthonormal basis of the span of their features.
    eta_, theta_, w0_, floor_, gamma_ : float
    mistakes_ : int
    steps_ : int
    classes_ : array
        -1 and 1.

    References
    ----------
    Warmuth (2007), Algorithm 1, which §1 says can be kernelized; ``bregopt.online.kernel_winnow`` derives the
    kernel form, and ``bregopt.online.winnow`` the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import KernelWinnow
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = np.where((x**2).sum(axis=1) < 0.3, 1, -1)  # inside a circle
    >>> learner = KernelWinnow(loss_limit=20).fit(x, y)
    >>> learner.predict([[0.0, 0.0], [2.0, 1.0]])
    array([ 1., -1.])
    """

    def __init__(
        self,
        rank: int = 1,
        kernel: str | Callable[..., float] = "rbf",
        gamma: float = 1.0,
        eta: float | None = None,
        theta: float | None = None,
        w0: float | None = None,
        loss_limit: float = 0.0,
        floor: float = 0.0,
    ) -> None:
        self.rank, self.kernel, self.gamma = rank, kernel, gamma
        self.eta, self.theta, self.w0 = eta, theta, w0
        self.loss_limit, self.floor = loss_limit, floor

    @property
    def points_(self) -> Array:
        """The points whose features span."""
        points: Array = self.state_.points
        return points

    @property
    def W_(self) -> Array:
        """What was learned, in the span."""
        W: Array = self.state_.W
        return W

    def mistake_bound(self, rank: int | None = None, loss: float = 0.0, shift: float = 0.0) -> float:
        """Return a bound on the mistakes on any stream, or infinity if the parameters prove none.

        Parameters
        ----------
        rank, loss, shift
            As for :meth:`MatrixWinnow.mistake_bound`, with a projection ``P`` of the space of the features.
        """
        r = checked_rank(self.rank if rank is None else rank)
        # Outside of the subspace the comparator is the start, so only the dimensions inside count.
        return winnow.mistake_bound(
            r,
            r,
            self.eta_,
            self.theta_,
            self.w0_,
            False,
            loss=total_loss(loss, "loss"),
            shift=total_loss(shift, "shift"),
            floor=self.floor_,
            outside=self.w0_,
        )

    def _instances(self, X: Any) -> Array:
        points = finite_array(X, "X", ndim=2)
        if points.size == 0:
            raise ValueError(f"X is empty, of shape {points.shape}; expected (T, d)")
        if hasattr(self, "state_") and points.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {points.shape[1]} features; expected {self.n_features_in_}")
        squares = self._squares(points)
        outside = np.flatnonzero((squares < -ROUND_OFF) | (squares > 1 + ROUND_OFF))
        if len(outside):
            t = outside[0]
            raise ValueError(f"X[{t}] has k(x, x) = {squares[t]:g}; expected 0 to 1: scale the kernel")
        return points

    def _begin(self, X: Array) -> None:
        rank, floor = checked_rank(self.rank), float(finite_array(self.floor, "floor", ndim=0))
        w0 = (floor if floor > 0 else _W0) if self.w0 is None else positive_number(self.w0, "w0")
        if not 0 <= floor <= min(w0, 1.0):
            raise ValueError(f"floor is {floor:g}; expected a number from 0 to w0 = {w0:g}, at most 1")
        self.gamma_ = positive_number(self.gamma, "gamma")
        distance = winnow.divergence(rank, np.ones(rank), w0)
        best = winnow.best_rate(distance, total_loss(self.loss_limit, "loss_limit"), w0)
        eta = best if self.eta is None else positive_number(self.eta, "eta")
        theta = number(self.theta, "theta", winnow.threshold(eta, w0))
        self.eta_, self.theta_, self.w0_, self.floor_ = eta, theta, w0, floor
        self.state_ = init(X.shape[1])
        self._start(X.shape[1])

    def _scores(self, X: Array) -> Array:
        return traces(self.state_, self._values(X, self.points_), self._squares(X), self.w0_)

    def _score(self, x: Array) -> float:
        return float(self._scores(x[None])[0])

    def _learn(self, x: Array, y: float) -> None:
        row, square = self._values(x[None], self.points_)[0], float(self._squares(x[None])[0])
        self.state_ = update(self.state_, x, row, square, y, self.eta_, self.w0_, self.floor_)

    def _squares(self, X: Array) -> Array:
        """Return ``k(x, x)`` for each point."""
        if is_one_of(self.kernel, ("rbf",)):
            return np.ones(len(X))
        blocks = (X[start : start + _BLOCK] for start in range(0, len(X), _BLOCK))
        return np.concatenate([self._values(block, block).diagonal() for block in blocks])

    def _values(self, X: Array, Z: Array) -> Array:
        """Return the kernel's values, shape ``(len(X), len(Z))``."""
        if isinstance(self.kernel, str) and self.kernel == "linear":
            return X @ Z.T
        if isinstance(self.kernel, str) and self.kernel == "rbf":
            return np.exp(-self.gamma_ * _squared_distances(X, Z))
        if not callable(self.kernel):
            raise ValueError(f"kernel is {self.kernel!r}{did_you_mean(str(self.kernel), _KERNELS)}")
        given = finite_array(self.kernel(X, Z) if len(Z) else np.zeros((len(X), 0)), "the kernel's value")
        if given.shape != (len(X), len(Z)):
            raise ValueError(f"the kernel's value has shape {given.shape}; expected {(len(X), len(Z))}")
        return given


def _squared_distances(X: Array, Z: Array) -> Array:
    """Return the squared Euclidean distances of the rows of two arrays, shape ``(len(X), len(Z))``."""
    if len(X) == 1:
        return ((Z - X) ** 2).sum(axis=1)[None]
    squared: Array = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1) - 2 * X @ Z.T
    return np.maximum(squared, 0.0)
