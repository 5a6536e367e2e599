"""Sparse inverse covariances as an estimator with scikit-learn's interface."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import EmpiricalCovariance, empirical_covariance
from sklearn.utils.validation import validate_data

from bregopt import graphical_lasso
from bregopt.arrays import Array, symmetric_matrix
from bregopt.errors import is_one_of
from bregopt.learn.base import Solved, labeled_features

__all__ = ["GraphicalLasso"]

_ADVICE = "Raise alpha, or drop features that are constant or combinations of others."


class SparsePrecision(Solved, EmpiricalCovariance):
    """The part that both estimators share: their data, and the attributes of a fit."""

    alpha_: float
    assume_centered: bool
    weights: ArrayLike | None
    pattern: ArrayLike | None
    penalize_diagonal: bool

    def get_precision(self) -> Array:
        """Return the precision matrix as an array of shape (n_features, n_features)."""
        return np.asarray(self.precision_)

    def error_norm(
        self, comp_cov: ArrayLike, norm: str = "frobenius", scaling: bool = True, squared: bool = True
    ) -> float:
        """Return the distance to another covariance; see :class:`sklearn.covariance.EmpiricalCovariance`."""
        plain = copy.copy(self)
        plain.covariance_ = np.asarray(self.covariance_)
        return float(EmpiricalCovariance.error_norm(plain, comp_cov, norm, scaling, squared))

    def to_networkx(self) -> Any:
        """Return the graph of conditional dependence, with partial correlations as weights.

        Returns
        -------
        networkx.Graph
            Its nodes are the names of the features, if these have names, or their indices.
        """
        answer: Any = self.solution_
        return answer.to_networkx()

    def _samples(self, X: Any) -> Array:
        """Return checked samples, and set the location."""
        if not isinstance(self.assume_centered, bool | np.bool_):
            raise TypeError(f"assume_centered is {self.assume_centered!r}; expected True or False")
        points: Array = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.location_ = np.zeros(points.shape[1]) if self.assume_centered else points.mean(axis=0)
        return points

    def _asked(self) -> dict[str, Any]:
        """Return the arguments of :func:`bregopt.graphical_lasso` besides the matrix and `alpha`."""
        own = {name: getattr(self, name) for name in ("weights", "pattern", "penalize_diagonal")}
        return {**own, **self._options()}

    def _fit_alpha(self, X: Any, S: Array, alpha: Any, start: Any = None) -> None:
        """Solve for one weight of the penalty and keep the answer."""
        solution = graphical_lasso(labeled_features(S, X), alpha, warm_start=start, **self._asked())
        self.precision_ = self._keep(solution, _ADVICE)
        self.covariance_ = solution.covariance
        self.alpha_ = float(alpha)


class GraphicalLasso(SparsePrecision):
    """Sparse inverse covariance by maximum likelihood with a penalty on absolute values.

    Parameters
    ----------
    alpha : float, from 0
        Weight of the penalty.
    weights, pattern, penalize_diagonal
        As for :func:`bregopt.graphical_lasso`.
    covariance : {None, "precomputed"}
        "precomputed" takes a covariance matrix as `X`.
    assume_centered : bool
        Whether the data have mean zero already.
    tol : float
        Largest certified relative gap of a fit that counts as converged.
    max_iter : int, optional
        None leaves the limit to the method.
    solver_options : dict, optional
        Further options of :func:`bregopt.graphical_lasso`, such as ``{"time_limit": 1.0}``.

    Attributes
    ----------
    precision_, covariance_ : array or DataFrame of shape (n_features, n_features)
        The sparse inverse covariance and its inverse; DataFrames if `X` is one.
    location_ : array of shape (n_features,)
        The mean.
    alpha_ : float
        The weight of the penalty.
    solution_ : bregopt.GraphicalLassoSolution
        The answer with its certificate.
    n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    See Also
    --------
    sklearn.covariance.GraphicalLasso : the same problem by coordinate descent.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.learn import GraphicalLasso
    >>> S = [[1.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 1.0]]
    >>> GraphicalLasso(alpha=0.2, covariance="precomputed").fit(S).precision_[0].round(4).tolist()
    [1.1905, -0.4762, 0.0]
    """

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        weights: ArrayLike | None = None,
        pattern: ArrayLike | None = None,
        penalize_diagonal: bool = False,
        covariance: str | None = None,
        assume_centered: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
    ) -> None:
        self.alpha = alpha
        self.weights = weights
        self.pattern = pattern
        self.penalize_diagonal = penalize_diagonal
        self.covariance = covariance
        self.assume_centered = assume_centered
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Estimate the sparse inverse covariance.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
            Samples; or, for "precomputed", a covariance matrix.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, or the likelihood is unbounded.
        """
        if self.covariance is not None and not is_one_of(self.covariance, ("precomputed",)):
            raise ValueError(f"covariance is {self.covariance!r}; expected None or 'precomputed'")
        if self.covariance is None:
            S = empirical_covariance(self._samples(X), assume_centered=self.assume_centered)
        else:
            S = symmetric_matrix(validate_data(self, X, dtype=np.float64), "X")
            self.location_ = np.zeros(len(S))
        self._fit_alpha(X, S, self.alpha)
        return self
