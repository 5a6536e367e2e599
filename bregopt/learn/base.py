"""Base classes of the estimators: the attributes of a solved problem, and linear maps from metrics."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from bregopt import Problem, RowChunks, Solution, soft
from bregopt.arrays import LARGEST_COLUMN_SPREAD, Array, IntArray, positive_number, unlike_sizes
from bregopt.clock import threads_for
from bregopt.display import Axes, plot_points
from bregopt.errors import DataWarning, warn_caller
from bregopt.linalg import root_of
from bregopt.modeling.constraints import Constraint

# The fit of a learner: it yields a problem with the options of its solve, and is sent the solution.
Fitting = Generator[tuple[Problem, dict[str, Any]], Solution, None]

_ROUND_OFF = 1e-10  # of covariances, relative to the largest
_ASKED: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": 2}


class Solved(BaseEstimator):
    """An estimator that solves a problem to fit, and keeps the certified solution."""

    tol: float
    max_iter: int | None
    solver_options: Mapping[str, object] | None

    def _options(self) -> dict[str, Any]:
        """Return the options for :meth:`bregopt.Problem.solve`."""
        further = {} if self.solver_options is None else self.solver_options
        if not isinstance(further, Mapping):
            raise TypeError(f"solver_options is {further!r}; expected a dict, such as {{'time_limit': 60}}")
        return {"tol": self.tol, "max_iter": self.max_iter, **further}

    def _solution_of_rows(
        self, rows: Any, told: bool, points: Array | None, start: Any, divergence: str
    ) -> Solution:
        """Return the answer of pairs in chunks, of given points or of those of a ``LowRank`` start."""
        name = type(self).__name__
        if not isinstance(rows, RowChunks):
            raise TypeError(f"rows is a {type(rows).__name__}; expected a RowChunks")
        if told:
            raise TypeError(f"{name}.fit got other constraints beside rows=; expected one of both")
        if rows.dimension is not None:
            own = "points of their own" if rows.pairs else "vectors"
            raise ValueError(f"rows have {own}; expected pairs of rows of X")
        options = self._options()
        limit = options.pop("max_iter")
        passes = {} if limit is None else {"max_passes": limit}
        chunks = rows if points is None else rows.with_points(points)
        return chunks.solve(start, divergence, **passes, **options)

    def _keep(self, solution: Solution, advice: str) -> Any:
        """Keep the solution, and return its matrix; without one, raise a ValueError with advice."""
        if solution.X is None:
            raise ValueError(f"{type(self).__name__}: {solution.status}. {solution.stop_reason} {advice}")
        self.solution_ = solution
        self.n_iter_ = solution.iterations
        self.gap_ = solution.gap
        self.converged_ = solution.status == "optimal"
        return solution.X


class OfProblem(Solved, ABC):
    """An estimator whose fit to points and labels solves a :class:`bregopt.Problem`."""

    @abstractmethod
    def _fitting(self, X: Any, y: Any) -> Fitting:
        """Fit by the solution of the problem that is yielded."""

    def _run(self, fitting: Fitting) -> Self:
        """Solve the problem of a fit."""
        solution: Any = None  # starts the generator
        with suppress(StopIteration):
            while True:
                problem, options = fitting.send(solution)
                solution = problem.solve(**options)
        return self


class Drawn:
    """A transformer that draws points before and after its map."""

    def plot(
        self, X: ArrayLike, y: ArrayLike | None = None, ax: Sequence[Axes] | None = None
    ) -> NDArray[np.object_]:
        """Draw points before and after the map, each in the two directions in which they differ most.

        Parameters
        ----------
        X : array_like of shape (n, n_features)
        y : array_like of shape (n,), optional
            Classes, which are drawn in colors of their own.
        ax : sequence of two matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        array of two matplotlib axes

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        after = self.transform(X)  # type: ignore[attr-defined]
        return plot_points(np.asarray(X, dtype=np.float64), after, y, ax)


class LinearMetric(Drawn, ClassNamePrefixFeaturesOutMixin, TransformerMixin, Solved):
    """A learned metric ``A = L'L``: ``components_`` holds ``L``, of shape (n_components, n_features)."""

    components_: Array

    def transform(self, X: ArrayLike) -> Array:
        """Map points such that their Euclidean distances are the learned ones.

        Parameters
        ----------
        X : array_like of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_components)
        """
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        return points @ self.components_.T

    def get_mahalanobis_matrix(self) -> Array:
        """Return the learned ``A``, of shape (n_features, n_features): ``d(x, z)^2 = (x - z)' A (x - z)``."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def pair_distance(self, pairs: ArrayLike) -> Array:
        """Return the learned distance of the two points of each pair.

        Parameters
        ----------
        pairs : array_like of shape (k, 2, n_features)

        Returns
        -------
        array of shape (k,)
            Distances, not squared.
        """
        check_is_fitted(self)
        points = check_array(pairs, dtype=np.float64, allow_nd=True, ensure_2d=False, input_name="pairs")
        D = self.components_.shape[1]
        if points.ndim != 3 or points.shape[1:] != (2, D):
            raise ValueError(f"pairs has shape {points.shape}; expected (k, 2, {D}): two points a pair")
        return np.linalg.norm((points[:, 0] - points[:, 1]) @ self.components_.T, axis=1)

    def score_pairs(self, pairs: ArrayLike) -> Array:
        """Return minus the learned distance of the two points of each pair, so that larger is nearer.

        Parameters
        ----------
        pairs : array_like of shape (k, 2, n_features)

        Returns
        -------
        array of shape (k,)
        """
        return -self.pair_distance(pairs)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def validated(estimator: Any, X: Any, y: Any, told: bool, otherwise: str) -> tuple[Array, Any]:
    """Return checked points, and labels if there are any; without given constraints labels are required.

    Parameters
    ----------
    estimator : BaseEstimator
        Its ``n_features_in_`` and ``feature_names_in_`` are set.
    X : array_like of shape (n, n_features)
    y : array_like of shape (n,), optional
    told : bool
        Whether the user gave the constraints.
    otherwise : str
        The arguments for the constraints, for messages.
    """
    if y is not None:
        points, labels = validate_data(estimator, X, y, **_ASKED)
        return points, labels
    if not told:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None; pass labels, "
            f"or {otherwise}"
        )
    if not _plain(X):
        return validate_data(estimator, X, **_ASKED), None
    # scikit-learn's check of such an array takes longer than a small problem takes to solve.
    estimator.n_features_in_ = X.shape[1]
    vars(estimator).pop("feature_names_in_", None)
    return X, None


def warn_of_units(estimator: Any, points: Array, remedy: str = "") -> None:
    """Warn where features have ranges so unlike that a few of them decide which points are near.

    Parameters
    ----------
    estimator : BaseEstimator
        It knows the names of features, if they have some.
    points : array of shape (n, n_features)
    remedy : str
        What else helps than standard features.
    """
    names = getattr(estimator, "feature_names_in_", None)
    found = unlike_sizes(np.ptp(points, axis=0), names, LARGEST_COLUMN_SPREAD)
    if found is not None and not _uncorrelated(points):  # principal components have one unit
        warn_caller(
            f"features have ranges {found}, of which a few decide which points are near for "
            f"{type(estimator).__name__}. Standardize them, as make_pipeline(StandardScaler(), ...) does"
            f"{remedy}",
            DataWarning,
        )


def _uncorrelated(points: Array) -> bool:
    """Whether the covariances of features are zero up to round-off."""
    covariance = np.atleast_2d(np.cov(points.T))
    off = np.abs(covariance - np.diag(covariance.diagonal())).max()
    return bool(off <= _ROUND_OFF * covariance.diagonal().max())


def _plain(X: Any) -> bool:
    """Whether `X` is an array of finite numbers with two rows or more that needs no conversion."""
    if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2:
        return False
    return len(X) > 1 and X.shape[1] > 0 and bool(np.isfinite(X).all())


def softened(row: Constraint, gamma: Any, scale: float = 1.0) -> Constraint:
    """Return the row as a soft row with penalty weight `gamma`, or the row itself if `gamma` is None."""
    return row if gamma is None else soft(row, scale * positive_number(gamma, "gamma"))


def forget(estimator: Any, *names: str) -> None:
    """Delete attributes of an earlier fit, if there are any."""
    for name in names:
        vars(estimator).pop(name, None)


def map_of(A: Array) -> Array:
    """Return ``L`` with ``A = L'L``: upper triangular, or symmetric if `A` is not positive definite."""
    root = root_of(A)
    return psd_root(A) if root is None else root.T


def psd_root(A: Array) -> Array:
    """Return the symmetric positive semidefinite root of a matrix; negative eigenvalues count as zero."""
    with threads_for(len(A)):
        eigenvalues, V = np.linalg.eigh(A)
        return (V * np.sqrt(np.maximum(eigenvalues, 0.0))) @ V.T


def labeled_features(matrix: Array | IntArray, X: Any) -> Any:
    """Return a matrix with the columns of `X` as labels if `X` is a pandas DataFrame."""
    pandas = sys.modules.get("pandas")  # if pandas is not imported, nothing is a DataFrame
    if pandas is None or not isinstance(X, pandas.DataFrame):
        return matrix
    return pandas.DataFrame(matrix, index=X.columns, columns=X.columns)
