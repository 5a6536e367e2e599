"""On-line principal component analysis with capped eigenvalues (Warmuth and Kuzmin 2008).

A subspace of dimension ``k`` compresses an instance ``x`` to its projection, at the loss ``x'Rx`` with ``R``
the projection on the complement, of rank ``m = n - k``. The learner's ``W`` is a mixture of such ``R / m``: a
psd matrix of trace one below ``I / m``. Its expected loss is ``m x'Wx``. A trial moves it to the nearest such
matrix, in relative entropy ``D``, from ``exp(log W - eta x x')``. Let ``U = R / m`` and ``|x| <= 1``. Then

    D(U, W) - D(U, W+) >= (1 - exp(-eta)) x'Wx - eta x'Ux,

by ``tr exp(A + B) <= tr exp(A) exp(B)``, ``exp(-eta x x') <= I - (1 - exp(-eta)) x x'`` and the generalized
theorem of Pythagoras. The sum over all trials bounds the loss, as ``D(U, I/n) = log(n/m)``.

For a comparator that shifts, ``W`` is mixed with a ``share`` ``a`` of ``I/n`` after each trial (Herbster and
Warmuth 1998). The logarithm is operator monotone, so that this adds at most ``-log(1 - a)`` to ``D(U, W)``,
and makes it at most ``log(n/m) - log a`` for every other ``U``.
"""

from __future__ import annotations

import math
import sys
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bregopt.arrays import Array, Mask, RandomState, finite_array, positive_number
from bregopt.online.learner import OnlineLearner, total_loss
from bregopt.online.meg import add_instance

_ROUND_OFF = 1e-14  # probability that is left over by the decomposition into corners
_SLACK = 1 + 1e-9  # factor of the bound on norms, for round-off


class PCAState(NamedTuple):
    """The state between trials, ``log W = V diag(theta) V'`` with ascending ``theta``."""

    theta: Array
    V: Array


def init(n: int) -> PCAState:
    """Return the state of ``W = I/n``."""
    return PCAState(np.full(n, -math.log(n)), np.eye(n))


def matrix(state: PCAState) -> Array:
    """Return ``W``."""
    half = state.V * np.exp(state.theta / 2)
    W: Array = half @ half.T
    return W


def expected_loss(state: PCAState, X: Array, m: int) -> Array:
    """Return the expected loss ``m x'Wx`` on each instance, for `X` of shape ``(T, n)``; shape ``(T,)``."""
    losses: Array = m * ((X @ state.V) ** 2 @ np.exp(state.theta))
    return losses


def update(state: PCAState, x: Array, eta: float, m: int, share: float = 0.0) -> PCAState:
    """Learn from one instance of shape ``(n,)``, by one eigendecomposition."""
    n = len(x)
    theta, V = np.linalg.eigh(add_instance((state.V * state.theta) @ state.V.T, -eta, x))
    theta = capped(theta, m)
    if share:
        theta = np.logaddexp(theta + math.log1p(-share), math.log(share / n))
    return PCAState(theta, V)


def capped(theta: Array, m: int) -> Array:
    """Return the logarithm of the nearest ``w`` to ``exp(theta)`` with ``sum w = 1`` and ``w <= 1/m``.

    The largest elements become ``1/m``, and the others keep their ratios: as few are capped as leave no other
    one above ``1/m``. The logarithms never overflow.

    Parameters
    ----------
    theta : array of shape (n,), ascending
    m : int, below n
    """
    largest = theta[::-1]
    rest = np.logaddexp.accumulate(theta)[::-1]  # log of the sum of each element and the smaller ones
    shift = np.log1p(-np.arange(m) / m) - rest[:m]
    fits = largest[:m] + shift <= -math.log(m)
    fits[-1] = True  # a single cap's mass is left
    count = int(np.argmax(fits))
    kept = np.where(np.arange(len(theta)) < count, -math.log(m), largest + shift[count])
    return np.minimum(kept, -math.log(m))[::-1]


def corners(w: Array, m: int) -> tuple[Array, Mask]:
    """Return `w` as a mixture of at most ``n`` corners: vectors with `m` elements ``1/m``, the others zero.

    Each corner takes the largest elements of what is left, with the largest probability that leaves a
    nonnegative multiple of a capped vector (Warmuth and Kuzmin 2008, Algorithm 2).

    Parameters
    ----------
    w : array of shape (n,)
        Nonnegative, of sum one and at most ``1/m``.
    m : int

    Returns
    -------
    probability : array of shape (q,)
    members : bool array of shape (q, n)
        The nonzero elements of each corner.
    """
    n, left = len(w), w.copy()
    probability: list[float] = []
    members: list[Mask] = []
    while (total := 1.0 - math.fsum(probability)) > _ROUND_OFF and len(probability) < n:
        order = np.argsort(-left, kind="stable")
        inside, outside = left[order[:m]], left[order[m:]]
        p = min(m * float(inside[-1]), total - m * float(outside[0]))
        if p <= 0 or len(probability) == n - 1:
            p = total
        member = np.zeros(n, dtype=bool)
        member[order[:m]] = True
        left = np.maximum(left - p / m * member, 0.0)
        probability.append(p)
        members.append(member)
    return np.array(probability) / math.fsum(probability), np.array(members)


def distance(n: int, m: int, shifts: float = 0.0, share: float = 0.0, trials: int = 0) -> float:
    """Return the ``D`` of the bound: how far comparators are from the start, and from each other.

    It is ``m log(n/m)`` for one subspace and no share, and in general ``m`` times ``(shifts + 1) log(n/m) -
    shifts log(share) - trials log(1 - share)``; infinite for shifts without a share.

    Parameters
    ----------
    n, m : int
        Dimension of the instances, and of the complement of the subspace.
    shifts : float
        How often the subspace changes.
    share : float
        Weight of ``I/n`` after each trial.
    trials : int
        Number of trials.
    """
    if shifts and not share:
        return math.inf
    moves = shifts * math.log(1 / share) if shifts else 0.0
    return m * ((shifts + 1) * math.log(n / m) + moves - trials * math.log1p(-share))


def learning_rate(distance: float, loss: float) -> float:
    """Return a rate for comparators whose loss is at most `loss` above 0, on instances of norm at most one.

    It is ``log(1 + sqrt(2 D / loss))``, for which the bound is at most ``loss + sqrt(2 D loss) + D`` (Freund
    and Schapire 1997, Lemma 4).
    """
    return math.log1p(math.sqrt(2 * distance / loss))


def loss_bound(distance: float, loss: float, eta: float) -> float:
    """Return ``(eta loss + D) / (1 - exp(-eta))``, which bounds the loss on instances of norm at most one.

    Parameters
    ----------
    distance : float
        ``D``, of :func:`distance`.
    loss : float
        Of the comparators, on the same trials.
    eta : float
    """
    return (eta * loss + distance) / -math.expm1(-eta)


class OnlinePCA(TransformerMixin, OnlineLearner):
    """On-line PCA: follows the subspace of a dimension that compresses a stream of vectors best.

    Before each trial it predicts a mixture of subspaces through the origin. Its loss is the expected square
    of the distance of the instance from the subspace. Instances are not centered.

    Parameters
    ----------
    n_components : int
        Dimension of the subspace, below that of the instances.
    eta : float, optional
        Learning rate. By default it is chosen by `loss_limit`, `horizon` and `share`.
    loss_limit : float, above 0, optional
        A bound on the total loss of the best subspace, if one is known. By default it is that on the mean
        loss of all subspaces, ``horizon radius^2 (n - n_components) / n``.
    horizon : int, optional
        Number of trials; by default that of the first call.
    radius : float or None
        Bound on the norms of the instances, which they must meet. None means no bound, and requires `eta`.
    share : float, from 0 and below 1
        Weight of ``I/n`` in ``W`` after each trial, for streams whose best subspace changes: about the
        number of changes divided by the number of trials.
    randomized : bool
        Whether a subspace is drawn from the mixture in each trial, and its loss counted.
    random_state : int, Generator, RandomState or None
        Seed of the draws.

    Attributes
    ----------
    W_ : array of shape (n, n)
        The mixture of the complements' projections, divided by their rank: of trace one, with eigenvalues up
        to ``1 / (n - n_components)``.
    components_ : array of shape (n_components, n)
        The eigenvectors of the smallest eigenvalues of ``W``, as rows.
    eta_ : float
    loss_ : float
        Total expected loss of the predictions so far, each before its instance was known.
    drawn_loss_ : float
        Total loss of the subspaces that were drawn, with `randomized`.
    steps_ : int

    Notes
    -----
    A trial takes one eigendecomposition, which gives the update and its projection on ``W <= I / (n - k)``.

    References
    ----------
    Warmuth, Kuzmin (2008), Randomized Online PCA Algorithms with Regret Bounds that are Logarithmic in the
    Dimension, JMLR 9; Herbster, Warmuth (1998), Tracking the Best Expert, Machine Learning 32, for `share`.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.online import OnlinePCA
    >>> x = np.random.default_rng(0).normal(size=(500, 4)) * [1, 1, 0.1, 0.1]
    >>> x /= np.linalg.norm(x, axis=1).max()
    >>> learner = OnlinePCA(n_components=2).fit(x)
    >>> best = float(np.linalg.eigvalsh(x.T @ x)[:2].sum())
    >>> learner.loss_ <= learner.loss_bound(best), np.abs(learner.components_[:, 2:]).max() < 0.1
    (True, True)
    """

    def __init__(
        self,
        n_components: int = 1,
        eta: float | None = None,
        loss_limit: float | None = None,
        horizon: int | None = None,
        radius: float | None = 1.0,
        share: float = 0.0,
        randomized: bool = False,
        random_state: RandomState = 0,
    ) -> None:
        self.n_components, self.eta, self.loss_limit, self.horizon = n_components, eta, loss_limit, horizon
        self.radius, self.share = radius, share
        self.randomized, self.random_state = randomized, random_state

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from further instances, shape ``(T, n)``, in order, one trial each; `y` is ignored.

        Raises
        ------
        TypeError, ValueError
            If parameters or instances are bad; nothing is learned then.
        """
        return super().partial_fit(X, y)

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Reset the learner, and learn from the instances once; see :meth:`partial_fit`."""
        return super().fit(X, y)

    @property
    def W_(self) -> Array:
        """What was learned."""
        return matrix(self.state_)

    @property
    def components_(self) -> Array:
        """An orthonormal basis of the subspace, in the rows; the most certain direction first."""
        V: Array = self.state_.V
        return V[:, : self.n_components].T

    def transform(self, X: ArrayLike) -> Array:
        """Return the coordinates of instances in the subspace, shape ``(T, n_components)``."""
        check_is_fitted(self, "state_")
        coordinates: Array = self._vectors(X) @ self.components_.T
        return coordinates

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return the points of the subspace with the given coordinates, shape ``(T, n)``."""
        check_is_fitted(self, "state_")
        coordinates = finite_array(X, "X", ndim=2)
        k = len(self.components_)
        if coordinates.shape[1] != k:
            raise ValueError(
                f"X has {coordinates.shape[1]} coordinates; expected {k}, one for each component"
            )
        points: Array = coordinates @ self.components_
        return points

    def draw(self, random_state: RandomState = 0) -> Array:
        """Return an orthonormal basis of a subspace drawn from the mixture, shape ``(n_components, n)``.

        The projection on its complement has the expectation ``(n - n_components) W``.
        """
        check_is_fitted(self, "state_")
        return self._drawn(_generator(random_state))

    def loss_bound(self, loss: float = 0.0, shifts: int = 0) -> float:
        """Return a proven bound on `loss_`, in terms of a subspace of the same dimension.

        With `randomized` it also bounds the expectation of `drawn_loss_`.

        Parameters
        ----------
        loss : float
            Total loss of the subspace on the same trials, or a bound on it.
        shifts : int
            How often the subspace changes; with any, the bound is infinite unless there is a `share`.

        Raises
        ------
        ValueError
            If `radius` is None: without a bound on the norms there is none on the loss.
        """
        if self.radius is None:
            raise ValueError("loss_bound needs a bound on the norms; expected radius to be a number")
        n, square = self.n_features_in_, float(self.radius) ** 2
        changes = _count(shifts, "shifts", 0)
        way = distance(n, n - self.n_components, changes, self.share, self.steps_)
        return square * loss_bound(way, total_loss(loss, "loss") / square, self.eta_ * square)

    def regret_bound(self, loss: float, shifts: int = 0) -> float:
        """Return a proven bound on `loss_` minus the loss of the subspace; see :meth:`loss_bound`."""
        return self.loss_bound(loss, shifts) - float(loss)

    def _vectors(self, X: Any) -> Array:
        first = not hasattr(self, "state_")
        return finite_array(validate_data(self, X, dtype=np.float64, reset=first), "X")

    def _examples(self, X: Any, y: Any) -> tuple[Array, Array]:
        vectors = self._vectors(X)
        if self.radius is not None:
            norms = np.linalg.norm(vectors, axis=1)
            long = np.flatnonzero(norms > _SLACK * positive_number(self.radius, "radius"))
            if len(long):
                t = long[0]
                raise ValueError(
                    f"X[{t}] has the norm {norms[t]:g}; expected at most radius = {self.radius:g}. Scale the "
                    "instances, or set radius"
                )
        return vectors, np.zeros(len(vectors))

    def _begin(self, X: Array) -> None:
        trials, n = X.shape
        k = _count(self.n_components, "n_components", 1)
        if k >= n:
            raise ValueError(f"n_components is {k}, but X has {n} feature(s); expected fewer components")
        share = float(finite_array(self.share, "share", ndim=0))
        if not 0 <= share < 1:
            raise ValueError(f"share is {share:g}; expected a number from 0 and below 1")
        rng = _generator(self.random_state)
        self.eta_ = self._rate(n, n - k, trials)
        self.state_, self._rng = init(n), rng
        self.loss_ = self.drawn_loss_ = 0.0

    def _rate(self, n: int, m: int, trials: int) -> float:
        if self.eta is not None:
            return positive_number(self.eta, "eta")
        if self.radius is None:
            raise ValueError(
                "eta and radius are both None; expected a learning rate, or what to choose it by"
            )
        square = float(self.radius) ** 2
        horizon = trials if self.horizon is None else _count(self.horizon, "horizon", 1)
        limit = horizon * m / n
        if self.loss_limit is not None:
            limit = positive_number(self.loss_limit, "loss_limit") / square
        way = distance(n, m, self.share * horizon, self.share, horizon)
        return learning_rate(way, limit) / square

    def _step(self, x: Array, y: float) -> None:
        m = self.n_features_in_ - self.n_components
        self.loss_ += float(expected_loss(self.state_, x[None], m)[0])
        if self.randomized:
            inside = self._drawn(self._rng) @ x
            self.drawn_loss_ += max(float(x @ x - inside @ inside), 0.0)
        self.state_ = update(self.state_, x, self.eta_, m, self.share)

    def _drawn(self, rng: Any) -> Array:
        n = self.n_features_in_
        probability, members = corners(np.exp(self.state_.theta), n - self.n_components)
        complement = members[rng.choice(len(probability), p=probability)]
        basis: Array = self.state_.V[:, ~complement].T
        return basis


def _generator(random_state: Any) -> np.random.Generator:
    """Return numpy's generator for a scikit-learn `random_state`; a Generator is returned as it is."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))


def _count(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    if value < least:
        raise ValueError(f"{name} is {value}; expected at least {least}")
    if int(value) > sys.maxsize:  # beyond floats at last
        raise ValueError(f"{name} is above {sys.maxsize}; expected at least {least} and at most that")
    return int(value)
