"""The nearest correlation matrix as an estimator, for use with covariance estimators."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from bregopt import nearest_correlation, pairwise_correlation
from bregopt.arrays import Array, BoundsLike, is_one_of, symmetric_matrix
from bregopt.learn.base import Solved, labeled_features
from bregopt.linalg import inverse_of, log_det, root_of


class NearestCorrelation(Solved):
    """A valid correlation matrix from data with gaps, or from the covariance of another estimator.

    Pairwise-complete correlations use, for each pair of features, the samples that have both. They need not
    form a positive semidefinite matrix; nor do estimates that were adjusted entry by entry. This estimator
    returns the nearest correlation matrix.

    Parameters
    ----------
    estimator : "pairwise", "precomputed" or an estimator with ``covariance_``
        Source of the correlations: pairwise-complete ones of the data, in which NaN marks a gap; a
        covariance or correlation matrix given as `X`; or an estimator such as those of
        :mod:`sklearn.covariance`, of which a copy is fitted.
    divergence : {"frobenius", "logdet", "von_neumann"}
        LogDet and von Neumann need correlations that are positive definite.
    fixed, lower, upper, max_condition, max_rank, groups
        As for :func:`bregopt.nearest_correlation`; a pair of features that share fewer than two samples is
        an unknown entry there.
    min_eigenvalue : float, from 0 and below 1
        Lower bound on the eigenvalues, so that the matrix can be inverted; Frobenius only.
    weights : "counts" or array_like of shape (n_features,) or (n_features, n_features), optional
        "counts" weights each pairwise-complete correlation by its number of samples, so that correlations of
        few samples change most. For arrays see :func:`bregopt.nearest_correlation`.
    tol : float
        Largest certified relative gap and residual of a fit that counts as converged.
    max_iter : int, optional
        None leaves the limit to the route.
    solver_options : dict, optional
        Further options of :func:`bregopt.nearest_correlation`, such as ``{"time_limit": 1.0}``.

    Attributes
    ----------
    correlation_ : array or DataFrame of shape (n_features, n_features)
        The nearest correlation matrix; a DataFrame if `X` is one.
    covariance_ : array or DataFrame of shape (n_features, n_features)
        The same matrix scaled to the estimated variances.
    raw_correlation_ : array of shape (n_features, n_features)
        The given or estimated correlations.
    location_ : array of shape (n_features,)
        The means; zero for "precomputed".
    estimator_ : estimator
        The fitted copy, if there is one.
    solution_ : bregopt.CorrelationSolution
        Its ``report()`` says what changed.
    n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    Examples
    --------
    >>> from bregopt.learn import NearestCorrelation
    >>> A = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    >>> NearestCorrelation("precomputed").fit(A).correlation_[0].round(4).tolist()
    [1.0, 0.7607, 0.1573]
    """

    def __init__(
        self,
        estimator: str | BaseEstimator = "pairwise",
        *,
        divergence: str = "frobenius",
        fixed: ArrayLike | None = None,
        lower: BoundsLike | None = None,
        upper: BoundsLike | None = None,
        min_eigenvalue: float = 0.0,
        max_condition: float | None = None,
        max_rank: int | None = None,
        groups: ArrayLike | Mapping[Any, Any] | None = None,
        weights: str | ArrayLike | None = None,
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
    ) -> None:
        self.estimator = estimator
        self.divergence = divergence
        self.fixed = fixed
        self.lower = lower
        self.upper = upper
        self.min_eigenvalue = min_eigenvalue
        self.max_condition = max_condition
        self.max_rank = max_rank
        self.groups = groups
        self.weights = weights
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Estimate the correlations and take the nearest correlation matrix.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
            Samples; or, for "precomputed", a symmetric matrix.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, or a feature is constant or has fewer than two samples.
        """
        points = validate_data(
            self,
            X,
            dtype=np.float64,
            ensure_all_finite="allow-nan" if self._takes_gaps() else True,
            ensure_min_samples=2 if self._takes_gaps() else 1,
        )
        variances, raw, of_counts = self._estimated(points)
        solution: Any = nearest_correlation(
            labeled_features(raw, X),
            divergence=self.divergence,
            fixed=self.fixed,
            lower=self.lower,
            upper=self.upper,
            min_eigenvalue=self.min_eigenvalue,
            max_condition=self.max_condition,
            max_rank=self.max_rank,
            groups=self.groups,
            missing="unknown" if self._takes_gaps() else "error",
            weights=self._weights(of_counts),
            **self._options(),
        )
        nearest = np.asarray(self._keep(solution, "Loosen the bounds."))
        scale = np.sqrt(variances)
        self.location_ = self._location(points)
        self.raw_correlation_ = raw
        self.correlation_ = labeled_features(nearest, X)
        self.covariance_ = labeled_features(nearest * np.outer(scale, scale), X)
        return self

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean log-likelihood of samples under the normal distribution of the fit.

        Of a sample with gaps it is the likelihood of the features that it has. With it,
        :class:`sklearn.model_selection.GridSearchCV` chooses `min_eigenvalue` or other parameters.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
            Samples; for "precomputed" another covariance or correlation matrix, of which it is the expected
            log-likelihood.
        y : None
            Ignored.

        Returns
        -------
        float
            Minus infinity if the covariance is singular: fit with `min_eigenvalue`.
        """
        check_is_fitted(self)
        gaps = self._takes_gaps()
        points = validate_data(
            self, X, dtype=np.float64, ensure_all_finite="allow-nan" if gaps else True, reset=False
        )
        covariance = np.asarray(self.covariance_)
        if is_one_of(self.estimator, ("precomputed",)):
            variances, C = _standardized(symmetric_matrix(points, "X"), _names(self))
            scale = np.sqrt(variances)
            return _expected(C * np.outer(scale, scale), covariance)
        points = points - self.location_
        total, seen = 0.0, np.isfinite(points)
        for pattern in np.unique(seen, axis=0):
            rows = (seen == pattern).all(axis=1)
            own = points[np.ix_(rows, pattern)]
            if pattern.any():
                total += len(own) * _expected(own.T @ own / len(own), covariance[np.ix_(pattern, pattern)])
        return total / len(points)

    def _takes_gaps(self) -> bool:
        return isinstance(self.estimator, str) and self.estimator == "pairwise"

    def _estimated(self, points: Array) -> tuple[Array, Array, Array | None]:
        """Return variances, correlations, and the weights of these if they are pairwise complete."""
        if self._takes_gaps():
            raw, weights = pairwise_correlation(points)
            return np.nanvar(points, axis=0), raw, weights
        if not is_one_of(self.estimator, ("precomputed",)) and not hasattr(self.estimator, "fit"):
            raise ValueError(
                f"estimator is {self.estimator!r}; expected 'pairwise', 'precomputed' or an estimator"
            )
        if isinstance(self.estimator, str):
            return *_standardized(symmetric_matrix(points, "X"), _names(self)), None
        self.estimator_ = clone(self.estimator).fit(points)
        covariance = symmetric_matrix(self.estimator_.covariance_, "covariance_ of the estimator")
        return *_standardized(covariance, _names(self)), None

    def _location(self, points: Array) -> Array:
        """Return the means of the samples, zero for a given matrix."""
        if is_one_of(self.estimator, ("precomputed",)):
            return np.zeros(points.shape[1])
        own = getattr(getattr(self, "estimator_", None), "location_", None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a feature without samples has none
            mean: Array = np.nanmean(points, axis=0) if own is None else np.asarray(own)
        return mean

    def _weights(self, of_counts: Array | None) -> Any:
        if not isinstance(self.weights, str):
            return self.weights
        if self.weights != "counts" or of_counts is None:
            raise ValueError(
                f"weights is {self.weights!r} for estimator={self.estimator!r}; expected an array, None, or "
                "'counts' for estimator='pairwise'"
            )
        return of_counts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps()
        return tags


def _expected(S: Array, covariance: Array) -> float:
    """Return the expected log-likelihood of samples with second moments ``S`` under a centered normal law."""
    root = root_of(covariance)
    if root is None or not np.isfinite(root).all():
        return -np.inf
    explained = float(np.vdot(inverse_of(root), S))
    return -0.5 * (explained + log_det(root) + len(S) * float(np.log(2 * np.pi)))


def _standardized(covariance: Array, names: Any) -> tuple[Array, Array]:
    """Return the variances and the correlations of a covariance."""
    variances = covariance.diagonal().copy()
    if (variances <= 0).any():
        k = int(np.argmin(variances))
        raise ValueError(f"feature {names[k]!r} has variance {variances[k]:g}; expected variances above 0")
    scale = np.sqrt(variances)
    return variances, covariance / np.outer(scale, scale)


def _names(estimator: Any) -> Any:
    return getattr(estimator, "feature_names_in_", range(estimator.n_features_in_))
