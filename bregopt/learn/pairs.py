"""Pairs and triplets of points, drawn from labels or given, and a classifier of pairs: similar or dissimilar.

All draws are seeded and stored as index arrays; no matrix of all pairs of points is formed. Bounds on squared
distances are percentiles of all distances, or a share of each pair's own.

DefiniteBoost learns a metric and its threshold together. ``W`` is positive semidefinite of trace one and
order ``d + 1``. Its leading block ``A`` is the metric, and its last diagonal entry ``s`` the threshold. The
margin of a pair with the difference ``z``, ``|z| <= 1``, and the label ``y`` is ``y (s - z'Az)``. It is at
least ``m`` if ``tr W C <= 0``, with

    C = m I - y (e e' - z z'),   e the last unit vector.

These are the constraints of Tsuda et al. (2005), eq. 4.1 and §5.2, for similar and for dissimilar pairs. They
contradict each other on most data, so they are relaxed at a price:

    minimize  D(W, I/n) + gamma sum_k max(tr W C_k, 0),   n = d + 1,
    maximize  log n - log tr exp(-sum_k alpha_k C_k)      over 0 <= alpha_k <= gamma,

the second being the dual. DefiniteBoost (Algorithm 2) changes one ``alpha_k`` at a time, by the step that
minimizes an upper bound on the trace (Appendix E), here at most to the ends 0 and ``gamma``. The bound is
convex in the step, so a shorter one raises the dual, too.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from bregopt.arrays import Array, IntArray, RandomState, finite_array, positive_number, rectangular
from bregopt.clock import threads_for
from bregopt.errors import ConvergenceWarning, deprecated, warn_caller
from bregopt.learn.base import LinearMetric, map_of, warn_of_units

_PAIRS_FOR_PERCENTILES = 100_000  # size of the sample; of fewer pairs all are used


def pairs_from_labels(
    y: ArrayLike, n_pairs: int | str = "auto", random_state: RandomState = 0
) -> tuple[IntArray, IntArray]:
    """Draw pairs of points, and separate pairs of one class from pairs of two.

    Parameters
    ----------
    y : array_like of shape (n,)
        Classes.
    n_pairs : int, "auto" or "all"
        Number of pairs, drawn uniformly from all pairs without repetition; "auto" draws ``40 c^2`` for ``c``
        classes. If there are no more pairs than that, all are returned.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    similar, dissimilar : int arrays of shape (k, 2)
        Pairs ``i < j`` of one class and of two.

    Raises
    ------
    TypeError, ValueError
        If the labels are no classes, there are fewer than two points, or `n_pairs` is bad.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §7.2.

    Examples
    --------
    >>> from bregopt.learn import pairs_from_labels
    >>> similar, dissimilar = pairs_from_labels(["a", "a", "b"], n_pairs="all")
    >>> similar.tolist(), dissimilar.tolist()
    ([[0, 1]], [[0, 2], [1, 2]])
    """
    labels = _labels(y)
    count = _count(n_pairs, 40 * len(np.unique(labels)) ** 2)
    pairs = random_pairs(len(labels), count, generator(random_state))
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    return pairs[same], pairs[~same]


def triplets_from_labels(
    X: ArrayLike,
    y: ArrayLike,
    n_targets: int = 1,
    n_impostors: int = 1,
    n_triplets: int | None = None,
    random_state: RandomState = 0,
) -> IntArray:
    """Return triplets ``(i, j, k)``: `j` is near `i` and of its class, `k` is near `i` and of another.

    Parameters
    ----------
    X : array_like of shape (n, D)
    y : array_like of shape (n,)
        Classes.
    n_targets, n_impostors : int
        Numbers of nearest points of the same and of other classes; each target is combined with each
        impostor. If there are fewer such points, all of them are used.
    n_triplets : int, optional
        Number of triplets to draw; all by default.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    int array of shape (R, 3)

    Raises
    ------
    TypeError, ValueError
        If there is only one class, no class has two points, or points of different classes are equal, so
        that no metric separates them.

    References
    ----------
    Shen, Welsh, Wang (2008), §6.

    Examples
    --------
    >>> from bregopt.learn import triplets_from_labels
    >>> triplets_from_labels([[0.0], [1.0], [3.0]], ["a", "a", "b"]).tolist()
    [[0, 1, 2], [1, 0, 2]]
    """
    points = check_array(X, dtype=np.float64, input_name="X")
    labels = _labels(y)
    if len(labels) != len(points):
        raise ValueError(f"y has {len(labels)} labels for {len(points)} points; expected one for each")
    targets, impostors = _whole(n_targets, "n_targets"), _whole(n_impostors, "n_impostors")
    parts = [
        _triplets_of(points, np.flatnonzero(labels == c), np.flatnonzero(labels != c), targets, impostors)
        for c in distinct_classes(labels)
    ]
    triplets = np.concatenate(parts)
    if len(triplets) == 0:
        raise ValueError("y has no class of two points or more; expected one to make triplets of")
    triplets = triplets[np.lexsort(triplets.T[::-1])]
    if n_triplets is not None and _whole(n_triplets, "n_triplets") < len(triplets):
        chosen = generator(random_state).choice(len(triplets), n_triplets, replace=False)
        triplets = triplets[np.sort(chosen)]
    return triplets


def index_rows(value: Any, name: str, n: int, *accepted: int, distinct: bool = True) -> IntArray:
    """Return rows of indices with one of the accepted widths; None and [] give no rows.

    With `distinct`, the first two indices of a row must differ.
    """
    raw = rectangular([] if value is None else value, name)
    if raw.size == 0:
        return np.zeros((0, accepted[0]), dtype=np.intp)
    if raw.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {raw.dtype}; expected integers, which are rows of X")
    if raw.ndim != 2 or raw.shape[1] not in accepted:
        expected = " or ".join(f"(k, {width})" for width in accepted)
        raise ValueError(f"{name} has shape {raw.shape}; expected {expected}")
    if raw.min() < 0 or raw.max() >= n:
        wrong = raw[(raw < 0) | (raw >= n)][0]
        raise ValueError(f"{name} has index {wrong}; expected 0 to {n - 1} for {n} points")
    same = np.flatnonzero(raw[:, 0] == raw[:, 1])
    if distinct and len(same):
        raise ValueError(f"{name} pairs point {raw[same[0], 0]} with itself at row {same[0]}")
    return raw.astype(np.intp)


def generator(random_state: Any) -> np.random.Generator:
    """Return numpy's generator for a scikit-learn `random_state`; a Generator is returned as it is."""
    return np.random.default_rng(legacy_generator(random_state).randint(2**31 - 1))


def legacy_generator(random_state: Any) -> np.random.RandomState:
    """Return a RandomState for scikit-learn; for a numpy Generator it uses the Generator's stream."""
    if isinstance(random_state, np.random.Generator):
        return np.random.RandomState(random_state.bit_generator)
    try:
        state: np.random.RandomState = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state is {random_state!r}: {error}") from None
    return state


def random_pairs(n: int, count: float, rng: np.random.Generator) -> IntArray:
    """Return `count` pairs ``i < j`` of `n` points, drawn without repetition; all if there are no more."""
    if n < 2:
        raise ValueError(f"found {n} sample(s), n_samples = {n}; expected at least 2 to make pairs of")
    total = n * (n - 1) // 2
    k = np.arange(total) if count >= total else np.sort(rng.choice(total, int(count), replace=False))
    # Pairs are counted column by column of the upper triangle: column j begins at j (j - 1) / 2.
    j = np.floor((1 + np.sqrt(1 + 8.0 * k)) / 2).astype(np.intp)
    j -= k < j * (j - 1) // 2  # the root may have been rounded up
    return np.column_stack([k - j * (j - 1) // 2, j])


def _triplets_of(points: Array, own: IntArray, others: IntArray, targets: int, impostors: int) -> IntArray:
    """Return the triplets of the points of one class."""
    t, s = min(targets, len(own) - 1), min(impostors, len(others))
    if t == 0:
        return np.zeros((0, 3), dtype=np.intp)
    near = NearestNeighbors(n_neighbors=t).fit(points[own]).kneighbors(return_distance=False)
    apart, far = NearestNeighbors(n_neighbors=s).fit(points[others]).kneighbors(points[own])
    if (apart == 0).any():
        row, column = np.argwhere(apart == 0)[0]
        raise ValueError(
            f"points {own[row]} and {others[far[row, column]]} are equal but of different classes, and no "
            "metric tells them apart: drop one, or correct its label"
        )
    j = np.repeat(own[near], s, axis=1)
    k = np.tile(others[far], t)
    i = np.broadcast_to(own[:, None], j.shape)
    return np.column_stack([i.ravel(), j.ravel(), k.ravel()])


def _labels(y: Any) -> Any:
    labels = column_or_1d(y)
    check_classification_targets(labels)
    return labels


def distinct_classes(labels: Any) -> Any:
    """Return the distinct labels, after checking that there are several."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"y has 1 class, {str(classes[0])!r}; expected at least two")
    return classes


def _count(n_pairs: Any, automatic: int) -> float:
    if isinstance(n_pairs, str):
        if n_pairs not in ("auto", "all"):
            raise ValueError(f"n_pairs is {n_pairs!r}; expected a number, 'auto' or 'all'")
        return automatic if n_pairs == "auto" else np.inf
    return _whole(n_pairs, "n_pairs")


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    if value < 1:
        raise ValueError(f"{name} is {value}; expected at least 1")
    return int(value)


def percentile_bounds(
    X: ArrayLike, percentiles: tuple[float, float] = (5, 95), random_state: RandomState = 0
) -> tuple[float, float]:
    """Return bounds for similar and dissimilar pairs: two percentiles of the squared distances of `X`.

    Parameters
    ----------
    X : array_like of shape (n, D)
    percentiles : pair of float, from 0 to 100
    random_state : int, Generator, RandomState or None
        Seed of the sample of 100,000 pairs that is used if there are more pairs.

    Returns
    -------
    upper, lower : float
        Bounds on squared distances, as learners take them.

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two points, the percentiles are bad, or so many points are equal that a bound
        is 0.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §7.2.

    Examples
    --------
    >>> from bregopt.learn import percentile_bounds
    >>> percentile_bounds([[0.0], [1.0], [3.0]], (0, 100))
    (1.0, 9.0)
    """
    points = check_array(X, dtype=np.float64, ensure_min_samples=2, input_name="X")
    ranks = finite_array(percentiles, "percentiles", ndim=1)
    if ranks.shape != (2,) or not 0 <= ranks[0] <= ranks[1] <= 100:
        raise ValueError(f"percentiles is {percentiles!r}; expected two numbers, 0 <= first <= second <= 100")
    pairs = random_pairs(len(points), _PAIRS_FOR_PERCENTILES, generator(random_state))
    upper, lower = (float(b) for b in np.percentile(sq_distances(points, pairs), ranks))
    if upper <= 0:
        raise ValueError(
            f"percentile {ranks[0]:g} of the squared distances is 0, as many points are equal: drop "
            "duplicates, or give bounds or larger percentiles"
        )
    return upper, lower


def idealized_bounds(
    X: ArrayLike, similar: ArrayLike, dissimilar: ArrayLike, shrink: float = 0.25
) -> tuple[Array, Array]:
    """Return bounds that decrease or increase the squared distance of each pair by a share of itself.

    Parameters
    ----------
    X : array_like of shape (n, D)
    similar, dissimilar : int array_like of shape (k, 2)
        Rows of `X`; one of the two may be empty.
    shrink : float, above 0 and below 1

    Returns
    -------
    upper, lower : arrays
        ``(1 - shrink) b`` for similar, ``(1 + shrink) b`` for dissimilar pairs of squared distance ``b``.

    Raises
    ------
    TypeError, ValueError
        If pairs or `shrink` are bad, or the points of a pair are equal, so that their distance is zero.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §7.1.
    """
    points = check_array(X, dtype=np.float64, input_name="X")
    step = float(finite_array(shrink, "shrink", ndim=0))
    if not 0 < step < 1:
        raise ValueError(f"shrink is {step:g}; expected a number above 0 and below 1")
    bounds = []
    for name, given, factor in (("similar", similar, 1 - step), ("dissimilar", dissimilar, 1 + step)):
        pairs = index_rows(given, name, len(points), 2)
        distance = sq_distances(points, pairs)
        if (distance == 0).any():
            i, j = pairs[np.flatnonzero(distance == 0)[0]]
            raise ValueError(f"{name} has the pair {i}, {j} of equal points: no metric moves them apart")
        bounds.append(factor * distance)
    return bounds[0], bounds[1]


@deprecated("bregopt.learn.idealized_bounds", since="0.2.0")
def idealised_bounds(
    X: ArrayLike, similar: ArrayLike, dissimilar: ArrayLike, shrink: float = 0.25
) -> tuple[Array, Array]:
    """Return the bounds of :func:`idealized_bounds`, whose old name this is."""
    return idealized_bounds(X, similar, dissimilar, shrink)


def sq_distances(points: Array, pairs: IntArray) -> Array:
    """Return the squared Euclidean distances of pairs of rows."""
    difference = points[pairs[:, 0]] - points[pairs[:, 1]]
    return np.einsum("kd,kd->k", difference, difference)


# --- The classifier -------------------------------------------------------------------------------------


class PairDefiniteBoost(ClassifierMixin, LinearMetric):
    """Classifies pairs of points as similar, 1, or dissimilar, -1, by a metric that DefiniteBoost learns.

    A pair is similar if its learned distance is at most 1. The metric and the threshold are the positive
    semidefinite matrix of trace one that is nearest to a multiple of the identity in the von Neumann
    divergence, with pairs on the right side of the threshold by a margin, or at a price.

    Parameters
    ----------
    gamma : float, above 0
        Penalty weight of a margin that is not reached, for each pair. Margins are hard where it is larger
        than all multipliers.
    margin : float, above 0
        The margin asked for, relative to the threshold at the start, ``1 / (d + 1)``; less than ``d + 1``.
    tol : float
        Largest certified relative gap of a fit that counts as converged.
    max_iter : int
        Limit on steps, each on one pair.

    Attributes
    ----------
    components_ : array of shape (n_features, n_features)
        ``L`` with the metric ``A = L'L``.
    dual_coef_ : array of shape (k,)
        The multipliers of the pairs, 0 to `gamma`. Only pairs with nonzero ones determine the metric.
    n_iter_ : int
    gap_ : float
        Certified relative duality gap.
    converged_ : bool
        Whether the gap is at most `tol`; if not, :meth:`fit` gave a :class:`bregopt.ConvergenceWarning`.
    classes_ : array
        -1 and 1.
    n_features_in_ : int

    Notes
    -----
    Pairs have shape ``(k, 2, d)``, as in metric-learn. Features should be of similar size.

    References
    ----------
    Tsuda, Rätsch, Warmuth (2005), Algorithm 2 and §5.2, of which :mod:`bregopt.learn.pairs` derives
    this form with a price.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.learn import PairDefiniteBoost
    >>> pairs = np.random.default_rng(0).integers(2, size=(300, 2, 5))
    >>> similar = np.where(pairs[:, 0, 1] == pairs[:, 1, 1], 1, -1)  # only the second feature matters
    >>> PairDefiniteBoost().fit(pairs[:200], similar[:200]).score(pairs[200:], similar[200:])
    1.0
    """

    def __init__(
        self, gamma: float = 1.0, *, margin: float = 0.3, tol: float = 1e-2, max_iter: int = 10_000
    ) -> None:
        self.gamma = gamma
        self.margin = margin
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, pairs: ArrayLike, y: ArrayLike) -> Self:
        """Learn the metric from pairs.

        Parameters
        ----------
        pairs : array_like of shape (k, 2, d)
        y : array_like of shape (k,)
            1 for similar, -1 for dissimilar pairs; some of each.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, there is one label only, or a dissimilar pair of equal points.

        Warns
        -----
        DataWarning
            If ranges of features differ by a factor above 1,000.
        """
        differences = _differences(pairs)
        labels = _signs(y, differences)
        warn_of_units(self, differences)
        d = differences.shape[1]
        margin = positive_number(self.margin, "margin") / (d + 1)
        if margin >= 1:
            raise ValueError(f"margin is {self.margin:g}; expected less than {d + 1}, with {d} features")
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter!r}; expected an integer above 0")
        gamma, tol = positive_number(self.gamma, "gamma"), positive_number(self.tol, "tol")
        unit = float(np.linalg.norm(differences, axis=1).max())
        found = boost(differences / unit, labels, margin, gamma, tol, int(self.max_iter))
        self.components_ = map_of(found.W[:d, :d] / (unit**2 * found.W[d, d]))
        self.dual_coef_, self.n_iter_, self.gap_ = found.alpha, found.iterations, found.gap
        self.converged_ = found.gap <= tol
        self.classes_, self.n_features_in_ = np.array([-1, 1]), d
        if not self.converged_:
            warn_caller(
                f"PairDefiniteBoost stopped after {found.iterations} steps at a relative gap of "
                f"{found.gap:.1e}, above tol={tol:g}; raise max_iter or tol, or lower gamma",
                ConvergenceWarning,
            )
        return self

    def decision_function(self, pairs: ArrayLike) -> Array:
        """Return one minus the squared distance of each pair, shape ``(k,)``; 0 or more for similar pairs."""
        return 1 - self.pair_distance(pairs) ** 2

    def predict(self, pairs: ArrayLike) -> NDArray[Any]:
        """Return 1 for similar pairs, -1 for dissimilar ones, shape ``(k,)``."""
        check_is_fitted(self)
        return np.where(self.decision_function(pairs) >= 0, 1, -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


def _differences(pairs: Any) -> Array:
    """Return the differences of the two points of each pair."""
    points: Array = check_array(pairs, dtype=np.float64, allow_nd=True, ensure_2d=False, input_name="pairs")
    if points.ndim != 3 or points.shape[1] != 2:
        raise ValueError(f"pairs has shape {points.shape}; expected (k, 2, d): two points a pair")
    return points[:, 0] - points[:, 1]


def _signs(y: Any, differences: Array) -> Array:
    """Return the checked labels of pairs."""
    labels = finite_array(y, "y", ndim=1)
    if len(labels) != len(differences):
        raise ValueError(f"y has {len(labels)} labels for {len(differences)} pairs; expected one for each")
    other = np.flatnonzero(np.abs(labels) != 1)
    if len(other):
        raise ValueError(f"y[{other[0]}] is {labels[other[0]]:g}; expected 1 or -1")
    if abs(labels.sum()) == len(labels):
        raise ValueError(f"y has 1 class, {labels[0]:g}; expected similar and dissimilar pairs, 1 and -1")
    equal = np.flatnonzero((labels < 0) & ~differences.any(axis=1))
    if len(equal):
        raise ValueError(
            f"the points of pair {equal[0]} are equal but dissimilar, and no metric moves them apart: drop "
            "it, or correct its label"
        )
    return labels


class Boosted(NamedTuple):
    """What DefiniteBoost found, with its certificate."""

    W: Array  # (n, n)
    alpha: Array  # (k,), the multipliers
    gap: float  # of the primal and the dual value, relative to the primal one
    iterations: int


def boost(Z: Array, y: Array, margin: float, gamma: float, tol: float, max_iter: int) -> Boosted:
    """Return the metric and the threshold of pairs.

    Parameters
    ----------
    Z : array of shape (k, d)
        Differences of pairs, at most of length one.
    y : array of shape (k,)
        1 for similar, -1 for dissimilar pairs.
    margin : float
        ``m``, above 0 and below 1.
    gamma : float
        The price.
    tol : float
        Relative gap at which to stop.
    max_iter : int
        Limit on steps.
    """
    d = Z.shape[1]
    n = d + 1
    squares = (Z**2).sum(axis=1)  # bounds on the eigenvalues of each C, below 0 and above
    lower = np.where(y > 0, margin - 1, np.minimum(margin - squares, -margin))
    upper = np.where(y > 0, margin + squares, margin + 1)
    alpha, G, W, log_trace = np.zeros(len(Z)), np.zeros((n, n)), np.eye(n) / n, math.log(n)
    iterations = 0
    with threads_for(n):
        while True:
            violation = margin - y * (W[d, d] - ((Z @ W[:d, :d]) * Z).sum(axis=1))
            # D(W, I/n) is log n - log_trace + tr WG, and the dual value log n - log_trace.
            excess = float(np.vdot(W, G)) + gamma * float(np.maximum(violation, 0).sum())
            gap = excess / max(excess + math.log(n) - log_trace, np.finfo(float).tiny)
            step = np.log((1 - violation / lower) / (1 - violation / upper)) / (upper - lower)
            step = np.clip(alpha + step, 0, gamma) - alpha
            k = int(np.argmax(step * violation))
            if gap <= tol or iterations == max_iter or step[k] == 0:
                return Boosted(W, alpha, gap, iterations)
            alpha[k] += step[k]
            G[:d, :d] -= step[k] * y[k] * np.outer(Z[k], Z[k])
            G[d, d] += step[k] * y[k]
            G -= step[k] * margin * np.eye(n)
            eigenvalues, V = np.linalg.eigh(G)
            log_trace = float(eigenvalues[-1] + np.log(np.exp(eigenvalues - eigenvalues[-1]).sum()))
            W = (V * np.exp(eigenvalues - log_trace)) @ V.T
            iterations += 1
