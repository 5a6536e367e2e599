"""Symmetric Matrix Winnow: labels by closeness to a hidden subspace (Warmuth 2007, Algorithm 1).

A mistake moves ``log W`` by ``eta y X``. With ``D`` the von Neumann divergence and any positive definite
``V``, the inequalities of Golden and Thompson and of Lemma 1 give the progress (§5)

    D(V, W) - D(V, W') >= eta y tr VX - (exp(eta y) - 1) tr WX.

A target ``U`` with ``0 <= U <= I``, such as a projection, has the hinge loss ``max(1/2 - tr UX, 0)`` for the
label 1, and ``tr UX`` for the label -1. Let ``V = (1 - d) U + d I``, with ``d`` the `outside` of
:func:`mistake_bound`, and ``tr X <= c``. Then ``tr UX <= tr VX <= tr UX + d c``, and the progress is at least

    y = -1:  (1 - exp(-eta)) theta - eta d c,   less eta times the hinge loss,
    y = +1:  eta/2 - (exp(eta) - 1) theta,      less eta times the hinge loss.

With ``g`` the smaller one and ``H`` the total hinge loss, the sum over the ``M`` mistakes is ``g M - eta H``,
at most ``D(V, W1)``. Theorem 2 is ``H = 0`` and ``d = 0``.

*Shifting targets.* With a `floor`, the eigenvalues of ``W`` are kept in ``[floor, 1]``. This is the Bregman
projection on a convex set that contains ``V`` if ``floor <= d``, so no progress is lost. All eigenvalues of
``-log W`` are then in ``[0, log(1/floor)]``. If the target changes to ``U'`` with the same eigenvalues, the
divergence changes by ``tr (V' - V)(-log W)``, at most ``(1 - d) log(1/floor)`` times half the trace norm of
``U' - U``. The sum ``S`` of these halves, times that factor, is added to ``D(V, W1)``.

*A constant trace.* An update scaled to the trace ``tau`` reduces ``D(U, W)``, with ``r = tr U``, by at least

    y = -1:  -r log(1 - (1 - exp(-eta)) theta / tau),
    y = +1:  eta/2 - r log(1 + (exp(eta) - 1) theta / tau),

less the hinge loss as above, which for ``tau = r`` is at least as much as without scaling.

The matrix of the estimator may have linear side constraints, met by Bregman projections (§5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import kl_div, lambertw, xlogy

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.errors import SolverError
from bregopt.modeling.atoms import trace
from bregopt.modeling.convex.expression import Minimize
from bregopt.modeling.objectives import von_neumann_div
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.online import meg
from bregopt.online.learner import (
    ROUND_OFF,
    ConservativeLearner,
    activities,
    checked_rank,
    differences,
    hermitian,
    instances,
    number,
    positive_definite,
    spectrum_ends,
    total_loss,
)
from bregopt.online.meg import MEGState, add_instance, exponential

# Where eta / (2 + 2 exp(eta)) is largest: 1.28.
ETA = float(1 + lambertw(math.exp(-1)).real)
_TOL = 1e-10  # tolerance of the projections
# Each function takes the matrix variable and returns a constraint or a list of them.
Declarations = Callable[[PSD], object] | Sequence[Callable[[PSD], object]]


def threshold(eta: float, charge: float = 0.0) -> float:
    """Return the threshold for which both kinds of mistakes make the same progress; 0.19 at ``ETA``.

    `charge` is ``d c`` of the module's derivation.
    """
    return eta * (1 + 2 * charge) / (2 * (math.exp(eta) - math.exp(-eta)))


def best_rate(distance: float, loss: float, charge: float = 0.0) -> float:
    """Return the rate with the least bound, for the threshold that :func:`threshold` gives it.

    The bound is ``(distance / eta + loss) (1 + exp(eta)) / (1/2 - charge exp(eta))``. Where no rate has the
    least bound, or none has a bound, ``ETA`` is returned.
    """
    if distance <= 0 or charge >= 0.5 or (loss == 0 and charge == 0):
        return ETA

    def slope(eta: float) -> float:  # eta times the derivative of the bound's logarithm; it increases
        grown = math.exp(eta)
        growth = grown / (1 + grown) + charge * grown / (0.5 - charge * grown)
        return eta * growth - 1 / (1 + eta * loss / distance)

    largest = math.log(0.5 / charge) * (1 - 1e-9) if charge > 0 else 2.0
    return float(brentq(slope, 0.0, min(largest, 2.0), xtol=1e-300, maxiter=2000))


def init(n: int, w0: float) -> MEGState:
    """Return the initial state ``w0 I``."""
    return MEGState(math.log(w0) * np.eye(n), w0 * np.eye(n))


def update(
    state: MEGState, x: Array, y: float, eta: float, trace: float | None = None, floor: float = 0.0
) -> MEGState:
    """Learn from a mistake: ``W = exp(log W + eta y X)``, eq. 1.

    It is scaled to a trace if one is given. With a floor above 0 its eigenvalues are kept in ``[floor, 1]``.
    """
    G = add_instance(state.G, eta * y, x)
    if floor == 0:
        return MEGState(G, exponential(G, trace))
    logarithms, V = np.linalg.eigh(G)
    logarithms = np.clip(logarithms, math.log(floor), 0.0)
    G, W = (hermitian((V * eigenvalues) @ V.conj().T) for eigenvalues in (logarithms, np.exp(logarithms)))
    return MEGState(G, W)


def hinge_loss(U: Array, X: Array, y: Array) -> float:
    """Return the total hinge loss of a target on instances and labels.

    It is the sum of ``max(1/2 - tr(U X_t), 0)`` over the labels 1, and of ``tr(U X_t)`` over the labels -1.
    """
    traces = activities(U, X)
    return float(np.maximum(np.where(y > 0, 0.5 - traces, traces), 0.0).sum())


def divergence(n: int, u: Array, w0: float, outside: float = 0.0) -> float:
    """Return ``D((1 - outside) U + outside I, w0 I)``, with `u` the eigenvalues of ``U`` except for zeros."""
    inside = (1 - outside) * u + outside
    return float(kl_div(inside, w0).sum()) + (n - len(u)) * float(kl_div(outside, w0))


def mistake_bound(
    n: int,
    rank: int | Array,
    eta: float,
    theta: float,
    w0: float,
    normalize: bool,
    *,
    loss: float = 0.0,
    shift: float = 0.0,
    floor: float = 0.0,
    outside: float | None = None,
    trace: float = 1.0,
) -> float:
    """Return a bound on the mistakes, or infinity if the parameters prove none; the module derives it.

    With the parameters of Theorem 2 and without loss it is ``7.18 r log(n/r)``.

    Parameters
    ----------
    n : int
    rank : int or array
        The rank of a projection, or the eigenvalues of another target, except for zeros.
    eta, theta, w0 : float
    normalize : bool
        Whether ``W`` is scaled to the trace ``n w0``; then `shift`, `floor` and `outside` are zero.
    loss : float
        Total hinge loss of the targets.
    shift : float
        Sum of half the trace norms of the changes of the target.
    floor : float
        Least eigenvalue of ``W``; zero for no floor and no cap.
    outside : float, optional
        ``d``, at least `floor`, which is the default.
    trace : float
        Bound ``c`` on the traces of the instances.
    """
    u = rank if isinstance(rank, np.ndarray) else np.ones(rank)
    if normalize:
        size, tau = float(u.sum()), n * w0
        distance = float(xlogy(u, u).sum() - xlogy(size, size / n))
        inside = 1 - (1 - math.exp(-eta)) * theta / tau
        negative = -size * math.log(inside) if inside > 0 else math.inf
        positive = eta / 2 - size * math.log1p((math.exp(eta) - 1) * theta / tau)
    else:
        d = floor if outside is None else outside
        distance = divergence(n, u, w0, d)
        distance += (1 - d) * shift * math.log(1 / floor) if floor > 0 else 0.0
        negative = (1 - math.exp(-eta)) * theta - eta * d * trace
        positive = eta / 2 - (math.exp(eta) - 1) * theta
    progress = min(negative, positive)
    if progress <= 0 or (shift > 0 and floor == 0):
        return math.inf
    return (distance + eta * loss) / progress


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
        if self.normalize and _functions(self.constraints) and not math.isclose(n * self.w0_, size):
            return math.inf  # W is projected on its trace, which the target does not have
        if self.normalize and moved > 0:
            return math.inf
        return mistake_bound(
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
        given, floor = _functions(self.constraints), float(finite_array(self.floor, "floor", ndim=0))
        if not 0 <= floor < 1:
            raise ValueError(f"floor is {floor:g}; expected a number from 0 on and below 1")
        if floor > 0 and (self.normalize or given):
            raise ValueError(f"floor is {floor:g} with normalize or constraints; expected it without them")
        trace = 1.0 if X.ndim == 2 else float(n)
        w0 = rank / n + floor * (1 - rank / n) if self.w0 is None else positive_number(self.w0, "w0")
        distance = divergence(n, np.ones(rank), w0, floor)
        best = best_rate(distance, total_loss(self.loss_limit, "loss_limit"), floor * trace)
        eta = best if self.eta is None else positive_number(self.eta, "eta")
        theta = number(self.theta, "theta", threshold(eta, floor * trace))
        self.eta_, self.theta_, self.w0_, self.floor_, self.trace_ = eta, theta, w0, floor, trace
        self.state_ = init(n, w0)
        self._start(n)

    def _scores(self, X: Array) -> Array:
        return activities(self.W_, X)

    def _score(self, x: Array) -> float:
        W = self.state_.W
        return float((np.vdot(x, W @ x) if x.ndim == 1 else np.vdot(W, x)).real)

    def _learn(self, x: Array, y: float) -> None:
        kept = self.n_features_in_ * self.w0_ if self.normalize else None
        self.state_ = update(self.state_, x, y, self.eta_, kept, self.floor_)
        if self.constraints:
            W = PSD(len(self.state_.W), name="W")
            rows = [f(W) for f in _functions(self.constraints)]
            rows += [] if kept is None else [trace(W) == kept]
            sol = Problem(Minimize(von_neumann_div(W, self.state_.W)), rows).solve(solver="bregman", tol=_TOL)
            if sol.status != "optimal":
                raise SolverError(f"no projection on the side constraints: {sol.status}. {sol.stop_reason}")
            self.state_ = meg.init(sol.X)
        if x.ndim == 2:
            self.trace_ = float(len(x))


def _functions(constraints: Any) -> list[Callable[[PSD], Any]]:
    """Return side constraints as a list of functions of a matrix variable."""
    given = [constraints] if callable(constraints) else constraints
    if isinstance(given, str) or not hasattr(given, "__iter__") or not all(callable(f) for f in given):
        raise TypeError(f"constraints is {constraints!r}; expected functions of the matrix variable")
    return list(given)


class PairWinnow(MatrixWinnow):
    """Learns which pairs of points are similar: 1, or dissimilar: -1.

    Similar points differ only in directions orthogonal to a hidden subspace of low rank. A pair with the
    difference ``z`` is the instance ``z z'`` of :class:`MatrixWinnow`, and similar if ``z' W z < theta``. A
    difference longer than `radius` is shortened to this length first.

    Parameters
    ----------
    rank, eta, theta, w0, normalize, constraints, loss_limit, floor
        As for :class:`MatrixWinnow`.
    radius : float, above 0
        The unit of length, in units of the data. Pairs that are closer than ``radius / sqrt(2)`` in the
        subspace are no examples of dissimilar pairs without noise.

    Attributes
    ----------
    W_, eta_, theta_, w0_, floor_, trace_, mistakes_, steps_, classes_
        As for :class:`MatrixWinnow`.

    Notes
    -----
    Examples are pairs of points, shape ``(T, 2, d)``, and labels 1 and -1. In :meth:`mistake_bound`, ``tr(P
    X_t)`` is the squared length in the subspace of a shortened difference over ``radius ** 2``. It is 0 for
    similar pairs and at least 1/2 for dissimilar pairs, except for the hinge loss.

    References
    ----------
    Warmuth (2007), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import PairWinnow
    >>> pairs = np.random.default_rng(0).integers(2, size=(200, 2, 5))
    >>> similar = np.where(pairs[:, 0, 1] == pairs[:, 1, 1], 1, -1)  # only the second feature matters
    >>> learner = PairWinnow(radius=1.4).fit(pairs, similar)
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
        radius: float = 1.0,
    ) -> None:
        super().__init__(rank, eta, theta, w0, normalize, constraints, loss_limit, floor)
        self.radius = radius

    def decision_function(self, X: ArrayLike) -> Array:
        """Return ``theta - z_t' W z_t`` for each pair, shape ``(T,)``; positive for similar pairs."""
        return -super().decision_function(X)

    def _labels(self, X: Array) -> Array:
        return -super()._labels(X)

    def _instances(self, X: Any) -> Array:
        """Return the differences of pairs, at most of length one in units of the radius."""
        radius = positive_number(self.radius, "radius")
        z = differences(X)
        longer = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), radius)
        return super()._instances(z / longer)

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        differences, labels = super()._examples(X, y)
        return differences, -labels  # the subspace is close to the differences of dissimilar pairs
