"""Mahalanobis metrics from pairs, by divergences, and from triplets, with the largest soft margin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from bregopt import (
    PSD,
    LowRank,
    Minimize,
    Problem,
    RowChunks,
    TripletChunks,
    logdet_div,
    quad_form,
    soft_margin,
    von_neumann_div,
)
from bregopt.arrays import Array, IntArray, RandomState, check_pair_bounds, finite_array, symmetric_matrix
from bregopt.clock import threads_for
from bregopt.errors import did_you_mean
from bregopt.learn.base import (
    Fitting,
    LinearMetric,
    OfProblem,
    forget,
    map_of,
    psd_root,
    softened,
    validated,
    warn_of_units,
)
from bregopt.learn.pairs import (
    distinct_classes,
    index_rows,
    pairs_from_labels,
    percentile_bounds,
    triplets_from_labels,
)
from bregopt.modeling.constraints import Constraint
from bregopt.modeling.expressions import Expression

_PRIORS = ("identity", "covariance")
_DIVERGENCES = {"logdet": logdet_div, "von_neumann": von_neumann_div}
_RANK_TOL = 1e-9  # eigenvalues below this fraction of the largest give no component


def _named_after(cls: type, method: Callable[..., Any]) -> FunctionType:
    """Return a copy of a method with the qualified name of another class."""
    original: Any = method
    copy = FunctionType(original.__code__, original.__globals__, method.__name__, original.__defaults__)
    copy.__kwdefaults__, copy.__doc__ = original.__kwdefaults__, method.__doc__
    copy.__annotations__, copy.__module__ = original.__annotations__, method.__module__
    copy.__qualname__ = f"{cls.__name__}.{method.__name__}"
    return copy


class _PairMetricLearner(LinearMetric, OfProblem):
    """A metric nearest to a prior metric under bounds on pairs."""

    _divergence: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        """Copy methods to the subclass, so that Python's messages about arguments name the subclass."""
        super().__init_subclass__(**options)
        for method in (_PairMetricLearner.__init__, _PairMetricLearner.fit):
            if getattr(cls, method.__name__) is method:
                setattr(cls, method.__name__, _named_after(cls, method))

    def __init__(
        self,
        gamma: float | None = 1.0,
        *,
        prior: str | ArrayLike = "identity",
        upper: ArrayLike | None = None,
        lower: ArrayLike | None = None,
        percentiles: tuple[float, float] = (5, 95),
        n_pairs: int | str = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.gamma = gamma
        self.prior = prior
        self.upper = upper
        self.lower = lower
        self.percentiles = percentiles
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
        rows: RowChunks | None = None,
    ) -> Self:
        """Learn the metric from labels, or from pairs.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
        y : array_like of shape (n,), optional
            Classes, from which `n_pairs` pairs are drawn if none are given.
        similar, dissimilar : int array_like of shape (k, 2), optional
            Pairs of rows of `X` with squared distance at most `upper`, or at least `lower`; some of each.
        rows : RowChunks, optional
            Pairs of rows of `X` with their bounds and weights, for pairs that do not fit in memory. They take
            the place of `gamma`, `upper`, `lower`, `percentiles` and `n_pairs`. `solver_options` are then
            those of :meth:`bregopt.RowChunks.solve`, and `max_iter` is the limit on passes.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, there is one class, only similar or only dissimilar pairs, a
            dissimilar pair of equal points, or an upper bound above the lower one, or if no metric meets hard
            bounds.

        Warns
        -----
        DataWarning
            If ranges of features differ by a factor above 1,000, and the prior is the identity.
        """
        if rows is not None:
            return self._fit_rows(X, y, similar is not None or dissimilar is not None, rows)
        return self._run(self._fitting(X, y, similar, dissimilar))

    def _fitting(self, X: Any, y: Any, similar: Any = None, dissimilar: Any = None) -> Fitting:
        """Learn the metric by the solution of the problem that is yielded."""
        told = similar is not None or dissimilar is not None
        points, labels = validated(self, X, y, told, "similar= and dissimilar= pairs")
        if told:
            near = index_rows(similar, "similar", len(points), 2)
            far = index_rows(dissimilar, "dissimilar", len(points), 2)
        else:
            distinct_classes(labels)
            near, far = pairs_from_labels(labels, self.n_pairs, self.random_state)
        prior = self._prior(points)
        self.bounds_ = self._bounds(points, prior)
        check_pair_bounds(*self.bounds_)
        A = PSD(points.shape[1], name="A")
        constraints = self._rows(A, points, near, far, self._scale(prior))
        objective = Minimize(_DIVERGENCES[self._divergence](A, prior))
        solution = yield Problem(objective, constraints), self._options()
        metric = self._keep(solution, "Give gamma to relax the bounds.")
        self.n_pairs_ = len(near), len(far)
        self.components_ = map_of(metric)

    def _fit_rows(self, X: Any, y: Any, told: bool, rows: RowChunks) -> Self:
        """Learn the metric from pairs in chunks."""
        points, _ = validated(self, X, y, True, "rows=")
        forget(self, "bounds_", "n_pairs_")
        solution = self._solution_of_rows(rows, told, points, self._prior(points), self._divergence)
        self.components_ = map_of(self._keep(solution, "Give the rows a finite gamma to relax the bounds."))
        return self

    def _rows(self, A: PSD, points: Array, near: IntArray, far: IntArray, scale: float) -> list[Constraint]:
        """Return the rows that bound similar pairs and dissimilar pairs, if there are any."""
        upper, lower = self.bounds_
        near_by, far_off = (points[pairs[:, 0]] - points[pairs[:, 1]] for pairs in (near, far))
        apart = near_by.any(axis=1)  # equal points have distance zero under any metric
        together = np.flatnonzero(~far_off.any(axis=1))
        if len(together):
            i, j = far[together[0]]
            raise ValueError(
                f"the dissimilar points {i} and {j} are equal, and no metric moves them apart: drop one, or "
                "correct its label"
            )
        for name, pairs in (("similar", near), ("dissimilar", far)):
            if len(pairs) == 0:
                raise ValueError(
                    f"there is no {name} pair; expected some of both kinds: give {name}=, or a larger n_pairs"
                )
        rows = []
        if apart.any():
            forms = _relative(A, near_by[apart], _of_pairs(upper, "upper", len(near))[apart])
            rows.append(softened(forms <= 1.0, self.gamma, scale))
        forms = _relative(A, far_off, _of_pairs(lower, "lower", len(far)))
        return [*rows, softened(forms >= 1.0, self.gamma, scale)]

    def _bounds(self, points: Array, prior: Array) -> tuple[Any, Any]:
        """Return the bounds; those not given are percentiles of the prior's squared distances."""
        if self.upper is not None and self.lower is not None:
            return self.upper, self.lower
        upper, lower = percentile_bounds(points @ psd_root(prior), self.percentiles, self.random_state)
        return upper if self.upper is None else self.upper, lower if self.lower is None else self.lower

    def _scale(self, prior: Array) -> float:
        """Return the divergence's scale: one for LogDet, the prior's mean eigenvalue for von Neumann."""
        return 1.0 if self._divergence == "logdet" else float(np.mean(prior.diagonal()))

    def _prior(self, points: Array) -> Array:
        """Return the prior metric."""
        D = points.shape[1]
        if not isinstance(self.prior, str):
            given = symmetric_matrix(self.prior, "prior", D)
            smallest = np.linalg.eigvalsh(given)[0]
            if smallest <= 0:
                raise ValueError(
                    f"prior has the eigenvalue {smallest:.3g}; expected a positive definite matrix"
                )
            return given
        if self.prior not in _PRIORS:
            raise ValueError(f"prior is {self.prior!r}{did_you_mean(self.prior, _PRIORS)}")
        if self.prior == "identity":
            warn_of_units(self, points, ", or pass prior='covariance'")
            return np.eye(D)
        covariance = np.atleast_2d(np.cov(points.T))
        rank = np.linalg.matrix_rank(covariance, hermitian=True)
        if rank < D:
            raise ValueError(
                f"prior='covariance' inverts the covariance of X, whose rank is {rank} for {D} features: "
                "drop features that depend on others, or take prior='identity'"
            )
        inverse = np.linalg.inv(covariance)
        return (inverse + inverse.T) / 2


class LogDetMetricLearner(_PairMetricLearner):
    """The Mahalanobis metric nearest to a prior one, in LogDet divergence, under bounds on pairs (ITML).

    Minimizes ``D(A, A0)``, plus `gamma` times the divergence of relaxed bounds, subject to
    ``(x - z)' A (x - z) <= upper`` for similar and ``>= lower`` for dissimilar pairs.

    Parameters
    ----------
    gamma : float, optional
        Penalty weight of relaxed bounds; larger is harder. None keeps the bounds hard, which is infeasible
        for many pairs.
    prior : {"identity", "covariance"} or array_like of shape (n_features, n_features)
        ``A0``: the identity, the inverse covariance of the data, or a positive definite matrix.
    upper, lower : float or array_like, optional
        Bounds on the squared distances of similar and of dissimilar pairs, above 0, the upper no larger than
        the lower; an array gives one for each pair.
    percentiles : pair of float
        Bounds that are not given are these percentiles of the squared distances under the prior.
    n_pairs : int, "auto" or "all"
        Number of pairs drawn from labels; see :func:`bregopt.learn.pairs_from_labels`.
    tol : float
        Largest certified relative gap and residual of a fit that counts as converged.
    max_iter : int, optional
        Limit on Newton steps; None leaves the limit to the route.
    solver_options : dict, optional
        Further options of :meth:`bregopt.Problem.solve`, such as ``{"time_limit": 60}``.
    random_state : int, Generator, RandomState or None
        Seed of the draw of pairs.

    Attributes
    ----------
    components_ : array of shape (n_features, n_features)
        ``L`` with ``A = L'L``: upper triangular as in metric-learn, or symmetric if ``A`` is singular.
    bounds_ : tuple
        The values of `upper` and `lower` in the fit, unless it was from `rows`.
    n_pairs_ : tuple of int
        Numbers of similar and of dissimilar pairs, unless the fit was from `rows`.
    solution_ : bregopt.Solution
        Its ``X`` is the metric. Its ``duals``, one for each pair of unequal points, belong to rows on squared
        distances over their bounds.
    n_iter_ : int
    gap_ : float
        Certified relative duality gap.
    converged_ : bool
        Whether the certificate meets `tol`; if not, :meth:`fit` gave a :class:`bregopt.ConvergenceWarning`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §6.1, §6.2.1 and §7.2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregopt.learn import LogDetMetricLearner
    >>> learner = LogDetMetricLearner().fit(*load_iris(return_X_y=True))
    >>> learner.converged_, learner.components_.shape
    (True, (4, 4))
    """

    _divergence = "logdet"


class VonNeumannMetricLearner(_PairMetricLearner):
    """The Mahalanobis metric nearest to a prior one, in von Neumann divergence, under bounds on pairs.

    As :class:`LogDetMetricLearner`, with ``tr(A log A - A log A0 - A + A0)``. The penalty of a relaxed bound
    ``b`` is ``gamma D(b / b0, 1)`` times the mean eigenvalue of ``A0``, so that `gamma` does not depend on
    the units of the data.

    Parameters
    ----------
    gamma, prior, upper, lower, percentiles, n_pairs, tol, max_iter, solver_options, random_state
        As for :class:`LogDetMetricLearner`.

    Attributes
    ----------
    components_, bounds_, n_pairs_, solution_, n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    References
    ----------
    Kulis, Sustik, Dhillon (2009), §6.1, §6.2.1 and §7.2.
    """

    _divergence = "von_neumann"


def _relative(A: PSD, differences: Array, bounds: Array) -> Expression:
    """Return the squared distances of pairs over their bounds, from the differences of their points.

    The penalty of a relaxed bound is then ``D(b / b0, 1)`` (Kulis et al. 2009, end of §6.2.1), so that
    `gamma` does not depend on the units of the data. For LogDet this is ``D(b, b0)``.
    """
    return quad_form(differences / np.sqrt(bounds)[:, None], A)


def _of_pairs(value: Any, name: str, count: int) -> Array:
    """Return the bounds as an array with one bound for each pair."""
    bounds = finite_array(value, name, ndim=(0, 1))
    if bounds.ndim and len(bounds) != count:
        raise ValueError(f"{name} has {len(bounds)} values for {count} pairs; expected one for each")
    if (bounds <= 0).any():
        raise ValueError(f"{name} has the value {bounds.min():g}; expected squared distances above 0")
    return bounds if bounds.ndim else np.full(count, bounds)


class SoftMarginMetricLearner(LinearMetric):
    """The metric of trace one with the largest soft margin between far and near points.

    Maximizes ``rho - C sum_r xi_r`` subject to ``d(i, k)^2 - d(i, j)^2 >= rho - xi_r`` for each triplet
    ``(i, j, k)``. :meth:`transform` has as many components as the metric has rank.

    Parameters
    ----------
    C : float, optional
        Penalty weight of a slack, at least ``1 / R`` for ``R`` triplets: below that the problem is unbounded.
        The default is ``10 / R``.
    n_targets, n_impostors : int
        For triplets from labels: the numbers of nearest points of the same and of other classes; see
        :func:`bregopt.learn.triplets_from_labels`.
    n_triplets : int, optional
        Number of triplets to draw; all by default.
    tol : float
        Largest certified relative gap and residual of a fit that counts as converged.
    max_iter : int, optional
        None leaves the limit to the route. For triplets in chunks it limits the passes.
    solver_options : dict, optional
        Further options of :meth:`bregopt.Problem.solve`, such as ``{"solver": "psdboost"}``.
    random_state : int, Generator, RandomState or None
        Seed of the draw of triplets.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
    margin_ : float
        ``rho``.
    triplets_ : int array of shape (R, 3) or TripletChunks
    solution_, n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    References
    ----------
    Shen, Welsh, Wang (2008), eq. 3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bregopt.learn import SoftMarginMetricLearner
    >>> learner = SoftMarginMetricLearner().fit(*load_iris(return_X_y=True))
    >>> round(float(learner.get_mahalanobis_matrix().trace()), 6)
    1.0
    """

    def __init__(
        self,
        C: float | None = None,
        *,
        n_targets: int = 1,
        n_impostors: int = 1,
        n_triplets: int | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.C = C
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.n_triplets = n_triplets
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, triplets: ArrayLike | TripletChunks | None = None
    ) -> Self:
        """Learn the metric from labels, or from triplets.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
        y : array_like of shape (n,), optional
            Classes, from which triplets are made if none are given.
        triplets : int array_like of shape (R, 3) or TripletChunks, optional
            Rows ``(i, j, k)`` of `X`: `i` should be nearer to `j` than to `k`. Those in chunks are solved by
            :meth:`bregopt.TripletChunks.solve`, whose options are then those of `solver_options`.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, or ``C R < 1``, which makes the problem unbounded.

        Warns
        -----
        DataWarning
            If ranges of features differ by a factor above 1,000.
        """
        points, labels = validated(self, X, y, triplets is not None, "triplets=")
        warn_of_units(self, points)
        if isinstance(triplets, TripletChunks):
            self.triplets_ = triplets
            options = self._options()
            limit = options.pop("max_iter")
            passes = {} if limit is None else {"max_passes": limit}
            solution = triplets.of(points).solve(self.C, **passes, **options)
        else:
            chosen = self._triplets(points, labels, triplets)
            self.triplets_, (i, j, k) = chosen, chosen.T
            solution = soft_margin((points[i] - points[k], points[i] - points[j]), self.C, **self._options())
        self.components_ = _components(self._keep(solution, ""))
        self.margin_ = float(solution.u["rho"])
        return self

    def _triplets(self, points: Any, labels: Any, triplets: Any) -> Any:
        """Return the triplets given, or those from labels."""
        if triplets is not None:
            return index_rows(triplets, "triplets", len(points), 3)
        return triplets_from_labels(
            points, labels, self.n_targets, self.n_impostors, self.n_triplets, self.random_state
        )


def _components(X: Any) -> Any:
    """Return ``L`` with ``X = L'L`` and as many rows as ``X`` has rank, the longest first."""
    with threads_for(X.shape[0]):
        if isinstance(X, LowRank):
            _, s, Vt = np.linalg.svd(X.factor.T, full_matrices=False)
            eigenvalues, V = s**2, Vt.T
        else:
            eigenvalues, V = np.linalg.eigh(X)
            eigenvalues, V = eigenvalues[::-1], V[:, ::-1]
    kept = eigenvalues > _RANK_TOL * eigenvalues[0]
    return (V[:, kept] * np.sqrt(eigenvalues[kept])).T
