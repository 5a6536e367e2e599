"""Low-rank kernels learned from constraints on some points, and their values at new points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.kernel_approximation import Nystroem
from sklearn.utils.validation import check_is_fitted, validate_data

from bregopt import PSD, LowRank, Minimize, Problem, RowChunks, logdet_div, soft, sq_distance, von_neumann_div
from bregopt.arrays import (
    Array,
    IntArray,
    RandomState,
    finite_array,
    is_one_of,
    positive_integer,
    positive_number,
)
from bregopt.clock import threads_for
from bregopt.errors import did_you_mean
from bregopt.learn.base import Drawn, Fitting, OfProblem, psd_root, softened, validated, warn_of_units
from bregopt.learn.pairs import (
    distinct_classes,
    idealized_bounds,
    index_rows,
    legacy_generator,
    pairs_from_labels,
    sq_distances,
)
from bregopt.modeling.constraints import Constraint
from bregopt.records import dataclass

_DIVERGENCES = {"logdet": logdet_div, "von_neumann": von_neumann_div}
_RANK_TOL = 1e-10  # singular values of the features below this fraction of the largest count as zero
_UNLABELED = -1
_KNOWLEDGE = ("similar=", "dissimilar=", "distances=", "similarities=", "comparisons=", "rows=")

# Pairs of points, and lower and upper bounds, each None if there are none.
BoundedPairs = tuple[ArrayLike, ArrayLike | None, ArrayLike | None]


class KernelLearner(Drawn, ClassNamePrefixFeaturesOutMixin, TransformerMixin, OfProblem):
    """The low-rank kernel nearest to a given one that satisfies constraints on some of the points.

    :meth:`fit` gets all points, with or without constraints (transductive learning). With features ``G0``,
    ``K0 = G0 G0'``, the learned kernel is ``K = G0 B B' G0'``. :meth:`transform` maps old and new points to
    ``g B``, whose inner products are the learned kernel. No ``n x n`` matrix is formed.

    Parameters
    ----------
    gamma : float, optional
        Penalty weight of relaxed bounds, relative to the bounds; for von Neumann in units of the mean
        eigenvalue of ``K0``. None keeps all bounds hard, which is infeasible for many constraints in a low
        rank.
    divergence : {"logdet", "von_neumann"}
    kernel : str or callable
        "linear" uses the columns of `X` as the features ``G0``. Any other kernel of
        :func:`sklearn.metrics.pairwise.pairwise_kernels` is approximated by its Nyström features.
    n_components : int
        Number of Nyström features; at most the number of points is used.
    kernel_params : dict, optional
        Parameters of the kernel, such as ``{"gamma": 0.1}``.
    shrink : float, above 0 and below 1
        The squared distance decreases by this share for similar pairs and increases for dissimilar ones.
    n_pairs : int, "auto" or "all"
        Number of pairs drawn from labels; see :func:`bregopt.learn.pairs_from_labels`.
    tol : float
        Largest certified relative gap and residual of a fit that counts as converged.
    max_iter : int, optional
        None leaves the limit to the route.
    solver_options : dict, optional
        Further options of :meth:`bregopt.Problem.solve`, such as ``{"method": "cyclic"}``.
    random_state : int, Generator, RandomState or None
        Seed of the draws of pairs and landmarks.

    Attributes
    ----------
    solution_ : bregopt.Solution
        Its ``X`` is the learned kernel of the points, a :class:`bregopt.LowRank`.
    n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    Notes
    -----
    Directions orthogonal to the features of all training points are not changed.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §6.1, §6.2 and §7.1.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.learn import KernelLearner
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> learner = KernelLearner(gamma=None).fit(X, similar=[[0, 1]])
    >>> learner.transform(X)[1].round(3).tolist()  # of squared distance 0.75
    [0.866, 0.0]
    """

    def __init__(
        self,
        gamma: float | None = 1.0,
        *,
        divergence: str = "logdet",
        kernel: str | Callable[..., float] = "linear",
        n_components: int = 100,
        kernel_params: Mapping[str, object] | None = None,
        shrink: float = 0.25,
        n_pairs: int | str = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.gamma = gamma
        self.divergence = divergence
        self.kernel = kernel
        self.n_components = n_components
        self.kernel_params = kernel_params
        self.shrink = shrink
        self.n_pairs = n_pairs
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        similar: ArrayLike | None = None,
        dissimilar: ArrayLike | None = None,
        distances: BoundedPairs | None = None,
        similarities: BoundedPairs | None = None,
        comparisons: ArrayLike | None = None,
        rows: RowChunks | None = None,
    ) -> Self:
        """Learn the kernel from labels, or from constraints on pairs.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
            All points.
        y : array_like of shape (n,), optional
            Classes, -1 for points without one; pairs are drawn from them if no constraints are given.
        similar, dissimilar : int array_like of shape (k, 2), optional
            Pairs of rows of `X` whose squared distance decreases, or increases, by the share `shrink`.
        distances, similarities : tuple (pairs, lower, upper), optional
            Bounds on the squared distances, or on the kernel's entries; None for no bound. Bounds on
            distances must be above 0.
        comparisons : int array_like of shape (k, 3) or (k, 4), optional
            ``(i, j, k)``: `i` is nearer to `j` than to `k`; ``(i, j, k, l)``: `i` is nearer to `j` than `k`
            to `l`.
        rows : RowChunks, optional
            Pairs of rows of `X` with their bounds and weights, for pairs that do not fit in memory. They take
            the place of all other constraints, of `gamma`, `shrink` and `n_pairs`. `solver_options` are then
            those of :meth:`bregopt.RowChunks.solve`, and `max_iter` is the limit on passes.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, the points of a pair are equal, or no kernel meets hard bounds.

        Warns
        -----
        DataWarning
            If ranges of features differ by a factor above 1,000, and the kernel is not linear.
        """
        knowledge = similar, dissimilar, distances, similarities, comparisons
        if rows is not None:
            return self._fit_rows(X, y, any(part is not None for part in knowledge), rows)
        return self._run(self._fitting(X, y, *knowledge))

    def _fitting(
        self,
        X: Any,
        y: Any,
        similar: Any = None,
        dissimilar: Any = None,
        distances: Any = None,
        similarities: Any = None,
        comparisons: Any = None,
    ) -> Fitting:
        """Learn the kernel by the solution of the problem that is yielded."""
        told = any(part is not None for part in (similar, dissimilar, distances, similarities, comparisons))
        points, labels = validated(self, X, y, told, f"one of {', '.join(_KNOWLEDGE)}")
        G0 = self._fit_features(points)
        if not told:
            known = np.flatnonzero(np.asarray(labels) != _UNLABELED)
            if len(known) < 2:
                raise ValueError(f"y has {len(known)} labels, n_samples = {len(labels)}; expected at least 2")
            distinct_classes(labels[known])
            similar, dissimilar = pairs_from_labels(labels[known], self.n_pairs, self.random_state)
            similar, dissimilar = known[similar], known[dissimilar]
        K = PSD(len(G0), name="K")
        rows = _KernelRows(K, G0, self.gamma, self._scale(G0))
        constraints = [
            *rows.idealized(similar, dissimilar, self.shrink),
            *rows.distances(distances),
            *rows.similarities(similarities),
            *rows.comparisons(comparisons),
        ]
        solution = yield Problem(Minimize(self._atom()(K, LowRank(G0))), constraints), self._options()
        self._learn(G0, self._keep(solution, "Give gamma to relax the bounds."))

    def _fit_rows(self, X: Any, y: Any, told: bool, rows: RowChunks) -> Self:
        """Learn the kernel from pairs in chunks."""
        points, _ = validated(self, X, y, True, "rows=")
        G0 = self._fit_features(points)
        self._atom()
        solution = self._solution_of_rows(rows, told, None, LowRank(G0), self.divergence)
        self._learn(G0, self._keep(solution, "Give the rows a finite gamma to relax the bounds."))
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Map points, old or new, such that their inner products are the learned kernel.

        Parameters
        ----------
        X : array_like of shape (n, n_features)

        Returns
        -------
        array of shape (n, r)
            ``r`` is the number of features, or of Nyström features.
        """
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        G = points if self._nystroem is None else self._nystroem.transform(points)
        return G + (G @ self._basis) @ self._change @ self._basis.T

    def _learn(self, G0: Array, learned: LowRank) -> None:
        """Keep the map from the features to those of the learned kernel."""
        self._basis, self._change = _map_of(G0, learned.factor)
        self._n_features_out = G0.shape[1]

    def _atom(self) -> Any:
        if not is_one_of(self.divergence, _DIVERGENCES):
            hint = did_you_mean(str(self.divergence), _DIVERGENCES)
            raise ValueError(f"divergence is {self.divergence!r}{hint}")
        return _DIVERGENCES[self.divergence]

    def _scale(self, G0: Array) -> float:
        """Return the divergence's scale: one for LogDet, the kernel's mean eigenvalue for von Neumann."""
        return 1.0 if is_one_of(self.divergence, ("logdet",)) else float(np.vdot(G0, G0)) / min(G0.shape)

    def _fit_features(self, points: Array) -> Array:
        """Return ``G0``, the features of the points for the given kernel."""
        if isinstance(self.kernel, str) and self.kernel == "linear":
            self._nystroem = None
            return points  # which may be the root of a kernel, whose columns have any size
        warn_of_units(self, points)
        self._nystroem = Nystroem(
            self.kernel,
            kernel_params=self.kernel_params,
            n_components=min(positive_integer(self.n_components, "n_components"), len(points)),
            random_state=legacy_generator(self.random_state),
        )
        return self._nystroem.fit_transform(points)


def _map_of(G0: Array, F: Array) -> tuple[Array, Array]:
    """Return ``W`` and ``C`` with ``G0 B B' G0' = F F'`` for ``B = I + W C W'``, which is symmetric.

    ``W`` spans the rows of ``G0 = U S W'``. The learned kernel is ``U M U'``. On the range of ``W``, ``B`` is
    the root of ``inv(S) M inv(S)``; on its orthogonal complement, ``B`` is the identity.
    """
    with threads_for(G0.shape[1]):
        U, s, Wt = np.linalg.svd(G0, full_matrices=False)
        kept = s > _RANK_TOL * s[0]
        H = (U[:, kept].T @ F) / s[kept, None]
    return Wt[kept].T, psd_root(H @ H.T) - np.eye(int(kept.sum()))


@dataclass(frozen=True, eq=False)
class _KernelRows:
    """The constraints on a kernel `K` near ``G0 G0'``, soft with weight `gamma` unless that is None.

    Squared distances are taken relative to their bounds, with the scalar divergence as penalty. All other
    rows have a hinge penalty, relative to the mean squared distance, or norm, of their points. The penalty
    weight is `gamma` times the scale of the divergence, so that it does not depend on the units of the data.
    """

    K: PSD
    G0: Array
    gamma: float | None
    scale: float

    def idealized(self, similar: Any, dissimilar: Any, shrink: float) -> Iterator[Constraint]:
        """Yield rows that change squared distances by the share `shrink`: similar pairs down, others up."""
        near = index_rows(similar, "similar", self.K.n, 2)
        far = index_rows(dissimilar, "dissimilar", self.K.n, 2)
        near = near[sq_distances(self.G0, near) > 0]  # equal points stay equal in any kernel of this range
        upper, lower = idealized_bounds(self.G0, near, far, shrink)
        if len(near):
            yield softened(sq_distance(self.K, *near.T) / upper <= 1, self.gamma, self.scale)
        if len(far):
            yield softened(sq_distance(self.K, *far.T) / lower >= 1, self.gamma, self.scale)

    def distances(self, given: Any) -> Iterator[Constraint]:
        """Yield bounds on squared distances from ``(pairs, lower, upper)``."""
        if given is None:
            return
        pairs, lower, upper = _bounded(given, "distances", self.K.n, distinct=True)
        for end in (lower, upper):
            if end is not None and (end <= 0).any():
                raise ValueError(f"distances has the bound {end.min():g}; expected squared distances above 0")
        body = sq_distance(self.K, *pairs.T)
        if lower is not None:
            yield softened(body / lower >= 1, self.gamma, self.scale)
        if upper is not None:
            yield softened(body / upper <= 1, self.gamma, self.scale)

    def similarities(self, given: Any) -> Iterator[Constraint]:
        """Yield bounds on entries of the kernel from ``(pairs, lower, upper)``."""
        if given is None:
            return
        pairs, lower, upper = _bounded(given, "similarities", self.K.n, distinct=False)
        scale = float(np.mean(np.square(self.G0[pairs]).sum(axis=-1)))
        body = self.K[pairs[:, 0], pairs[:, 1]]
        if lower is not None:
            yield self._hinged(body >= lower, scale)
        if upper is not None:
            yield self._hinged(body <= upper, scale)

    def comparisons(self, given: Any) -> Iterator[Constraint]:
        """Yield rows that compare two squared distances."""
        rows = index_rows(given, "comparisons", self.K.n, 3, 4)
        if len(rows) == 0:
            return
        near, far = rows[:, :2], rows[:, [0, 2]] if rows.shape[1] == 3 else rows[:, 2:]
        same = np.flatnonzero(far[:, 0] == far[:, 1])
        if len(same):
            raise ValueError(f"comparisons pairs point {far[same[0], 0]} with itself at row {same[0]}")
        scale = float(np.mean(sq_distances(self.G0, np.concatenate([near, far]))))
        yield self._hinged(sq_distance(self.K, *near.T) <= sq_distance(self.K, *far.T), scale)

    def _hinged(self, row: Constraint, scale: float) -> Constraint:
        if self.gamma is None:
            return row
        price = self.scale * positive_number(self.gamma, "gamma")
        return soft(row, price / (scale or 1.0), penalty="hinge")


def _bounded(given: Any, name: str, n: int, distinct: bool) -> tuple[IntArray, Array | None, Array | None]:
    """Return pairs, their lower bounds and their upper bounds; None for no bounds."""
    if not isinstance(given, tuple) or len(given) != 3:
        raise TypeError(f"{name} is {type(given).__name__}; expected a tuple (pairs, lower, upper)")
    pairs = index_rows(given[0], f"{name}[0]", n, 2, distinct=distinct)
    if len(pairs) == 0 or (given[1] is None and given[2] is None):
        raise ValueError(f"{name} has {len(pairs)} pairs, or no bound; expected both")
    ends: list[Array | None] = []
    for place in (1, 2):
        end = None if given[place] is None else finite_array(given[place], f"{name}[{place}]", ndim=(0, 1))
        if end is not None and end.ndim and len(end) != len(pairs):
            raise ValueError(
                f"{name}[{place}] has {len(end)} values for {len(pairs)} pairs; expected one for each"
            )
        ends.append(None if end is None else np.broadcast_to(end, len(pairs)))
    if ends[0] is not None and ends[1] is not None and (ends[0] > ends[1]).any():
        k = int(np.flatnonzero(ends[0] > ends[1])[0])
        raise ValueError(
            f"{name} has the lower bound {ends[0][k]:g} above the upper one {ends[1][k]:g} at pair {k}; "
            "expected a tuple (pairs, lower, upper)"
        )
    return pairs, ends[0], ends[1]
