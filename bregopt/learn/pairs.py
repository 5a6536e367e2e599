"""Classifiers of pairs of points: similar or dissimilar.

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
from sklearn.utils.validation import check_array, check_is_fitted

from bregopt.arrays import Array, finite_array, positive_number
from bregopt.clock import threads_for
from bregopt.errors import ConvergenceWarning, warn_caller
from bregopt.learn.base import LinearMetric, map_of, warn_of_units

__all__ = ["Boosted", "PairDefiniteBoost", "boost"]


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
        labels = _labels(y, differences)
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


def _labels(y: Any, differences: Array) -> Array:
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
