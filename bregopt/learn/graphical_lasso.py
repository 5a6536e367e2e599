"""Sparse inverse covariances as estimators with scikit-learn's interface.

The weight of the penalty is given, or chosen by cross-validation or a criterion. Stability selection keeps
the edges that most halves of the data have.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import EmpiricalCovariance, empirical_covariance, log_likelihood
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted, validate_data

from bregopt import covariance_selection, graphical_lasso, graphical_lasso_path
from bregopt.arrays import (
    SMALLEST,
    Array,
    IntArray,
    RandomState,
    finite_array,
    index_array,
    is_one_of,
    positive_integer,
    rectangular,
    symmetric_matrix,
)
from bregopt.display import Axes, plot_scores
from bregopt.errors import DataWarning, warn_caller
from bregopt.executors import Crew, check_executor
from bregopt.learn.base import Solved, labeled_features
from bregopt.learn.pairs import generator

_ADVICE = "Raise alpha, or drop features that are constant or combinations of others."
_LEAST_ALPHA = 1e-2  # of a number of weights, relative to the largest one
_EXTENSIONS = 2  # decades beyond the end of a grid
_CRITERIA = ("cv", "bic", "ebic")
_OF_PROBLEM = ("weights", "pattern", "penalize_diagonal", "standardize")


class SparsePrecision(Solved, EmpiricalCovariance):
    """The part that both estimators share: their data, and the attributes of a fit."""

    alpha_: float
    assume_centered: bool
    weights: ArrayLike | None
    pattern: ArrayLike | None
    penalize_diagonal: bool
    standardize: bool

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
        for name in ("assume_centered", "standardize"):
            flag = getattr(self, name)
            if not isinstance(flag, bool | np.bool_):
                raise TypeError(f"{name} is {flag!r}; expected True or False")
        points: Array = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.location_ = np.zeros(points.shape[1]) if self.assume_centered else points.mean(axis=0)
        return points

    def _asked(self) -> dict[str, Any]:
        """Return the arguments of :func:`bregopt.graphical_lasso` besides the matrix and `alpha`."""
        own = {name: getattr(self, name) for name in _OF_PROBLEM}
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
    weights, pattern, penalize_diagonal, standardize
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
        standardize: bool = False,
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
        self.standardize = standardize
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


class GraphicalLassoCV(SparsePrecision):
    """Sparse inverse covariance whose weight of the penalty is chosen by the data.

    Parameters
    ----------
    alphas : int or array_like of shape (k,)
        Weights of the penalty, or their number: see :func:`bregopt.graphical_lasso_path`. If the best of a
        number of weights is at an end, the grid goes on beyond it, by up to two decades.
    criterion : {"cv", "bic", "ebic"}
        "cv" is the mean log-likelihood of samples left out. The (extended) Bayesian information criterion
        takes one path, and no cross-validation.
    ebic_gamma : float, from 0 to 1
        Of the extended criterion.
    cv : int, splitter or iterable, optional
        As in scikit-learn; 5 folds by default.
    weights, pattern, penalize_diagonal, standardize, assume_centered, tol, max_iter, solver_options
        As for :class:`GraphicalLasso`.

    Attributes
    ----------
    alpha_ : float
        The chosen weight of the penalty.
    alphas_ : array of shape (k,)
        All weights, in decreasing order.
    cv_results_ : dict from str to array of shape (k,)
        "alphas", "mean_test_score" and "std_test_score", and "split0_test_score" and so on; for a criterion
        "alphas" and "mean_test_score", which is minus the criterion.
    precision_, covariance_, location_, solution_
        As for :class:`GraphicalLasso`, of the fit to all samples.
    n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.learn import GraphicalLassoCV
    >>> points = np.random.default_rng(0).normal(size=(60, 4))
    >>> GraphicalLassoCV(alphas=[0.5, 0.1, 0.02]).fit(points).alpha_
    0.5
    """

    def __init__(
        self,
        alphas: int | ArrayLike = 20,
        *,
        criterion: str = "cv",
        ebic_gamma: float = 0.5,
        cv: Any = None,
        weights: ArrayLike | None = None,
        pattern: ArrayLike | None = None,
        penalize_diagonal: bool = False,
        standardize: bool = False,
        assume_centered: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
    ) -> None:
        self.alphas = alphas
        self.criterion = criterion
        self.ebic_gamma = ebic_gamma
        self.cv = cv
        self.weights = weights
        self.pattern = pattern
        self.penalize_diagonal = penalize_diagonal
        self.standardize = standardize
        self.assume_centered = assume_centered
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, executor: Executor | None = None) -> Self:
        """Choose the weight of the penalty and estimate the sparse inverse covariance.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
        y : None
            Ignored.
        executor : concurrent.futures.Executor, optional
            Runs the paths of the folds; None runs them in this thread.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, or the likelihood is unbounded.

        Warns
        -----
        DataWarning
            If the best weight is still the first or the last one, so that one beyond it may be better.
        """
        check_executor(executor)
        if not is_one_of(self.criterion, _CRITERIA):
            raise ValueError(f"criterion is {self.criterion!r}; expected one of {_CRITERIA}")
        points = self._samples(X)
        S = empirical_covariance(points, assume_centered=self.assume_centered)
        self.alphas_ = self._decreasing(X, S)
        folds: list[Any] = []  # drawn once for all weights
        if self.criterion == "cv":
            given = check_cv(self.cv, y, classifier=False).split(points, y)
            folds = [_rows_of(fold, len(points)) for fold in given]
        scores = self._scores(self.alphas_, X, S, points, folds, executor)
        best = int(np.nanargmax(scores.mean(axis=0)))
        for _ in range(_EXTENSIONS if rectangular(self.alphas, "alphas").ndim == 0 else 0):
            beyond = self._beyond(best)
            if len(beyond) == 0:
                break
            more = self._scores(beyond, X, S, points, folds, executor)
            parts = [(self.alphas_, scores), (beyond, more)]
            parts = parts if beyond[0] < self.alphas_[0] else parts[::-1]
            self.alphas_ = np.concatenate([alphas for alphas, _ in parts])
            scores = np.concatenate([own for _, own in parts], axis=1)
            best = int(np.nanargmax(scores.mean(axis=0)))
        self.cv_results_ = {"alphas": self.alphas_, "mean_test_score": scores.mean(axis=0)}
        if self.criterion == "cv":
            self.cv_results_["std_test_score"] = scores.std(axis=0)
            self.cv_results_ |= {f"split{k}_test_score": own for k, own in enumerate(scores)}
        self._fit_alpha(X, S, self.alphas_[best])
        self._warn_of_end(best)
        return self

    def _scores(
        self, alphas: Array, X: Any, S: Array, points: Array, folds: list[Any], executor: Any
    ) -> Array:
        """Return the scores of weights: one row for each fold, or minus the criterion in one row."""
        if self.criterion == "cv":
            crew = Crew(executor)
            try:
                shared = points, alphas, self.assume_centered, self._asked_of_path(points.shape[1])
                return np.array(list(crew.map(_fold_scores, folds, *shared)))
            finally:
                crew.close()
        gamma = 0.0 if self.criterion == "bic" else self.ebic_gamma
        return -self._path_of(X, S, alphas).ebic(len(points), gamma)[None]

    def _beyond(self, best: int) -> Array:
        """Return a decade of weights beyond the end at which the best one is; none if that is no end.

        The first one has a diagonal answer, which larger weights have too if they leave the diagonal alone.
        """
        alphas = self.alphas_
        if len(alphas) == 1 or 0 < best < len(alphas) - 1 or (best == 0 and not self.penalize_diagonal):
            return np.zeros(0)
        ratio = alphas[1] / alphas[0]
        steps = np.arange(1, max(int(np.ceil(np.log(0.1) / np.log(ratio))), 1) + 1)
        return (alphas[0] / ratio**steps)[::-1] if best == 0 else alphas[-1] * ratio**steps

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the scores against `alpha`, with the chosen one; returns the matplotlib axes."""
        check_is_fitted(self)
        results = self.cv_results_
        label = "log-likelihood" if self.criterion == "cv" else f"minus {self.criterion.upper()}"
        deviation = results.get("std_test_score")
        return plot_scores(results["alphas"], results["mean_test_score"], deviation, self.alpha_, label, ax)

    def plot_path(self, X: ArrayLike, ax: Axes | None = None) -> Axes:
        """Draw the partial correlations of samples against `alpha`; returns the matplotlib axes."""
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        S = empirical_covariance(points, assume_centered=self.assume_centered)
        return self._path_of(X, S, self.alphas_).plot(ax)

    def _decreasing(self, X: Any, S: Array) -> Array:
        """Return the weights in decreasing order; a number asks for the range of the whole sample."""
        if rectangular(self.alphas, "alphas").ndim > 0:
            return np.sort(finite_array(self.alphas, "alphas", ndim=1))[::-1]
        count = positive_integer(self.alphas, "alphas", ", the number of weights, or a list of weights")
        # Without covariances all weights give the same answer.
        largest = 1.0 if self.standardize else float(S.diagonal().max())
        if largest < SMALLEST:
            raise ValueError(
                f"X has variances of at most {largest:g}; expected {SMALLEST:g} or more: scale X"
            )
        if np.count_nonzero(S) > np.count_nonzero(S.diagonal()):
            largest = self._path_of(X, S, 1).alphas[0]
        return np.geomspace(largest, _LEAST_ALPHA * largest, count)

    def _asked_of_path(self, n: int) -> dict[str, Any]:
        """Return the arguments of a path; with explicit weights only the last fit warns of raw units."""
        asked = self._asked()
        return asked if asked["weights"] is not None else {**asked, "weights": np.ones((n, n))}

    def _warn_of_end(self, best: int) -> None:
        """Warn if a weight beyond the first or the last one may be better than the best."""
        if len(self.alphas_) == 1:
            return
        answer: Any = self.solution_
        # Beyond a diagonal answer, larger weights give the same one; there is no weight below 0.
        larger = best == 0 and (answer.n_edges > 0 or self.penalize_diagonal)
        smaller = best == len(self.alphas_) - 1 and self.alpha_ > 0
        if larger or smaller:
            which, beyond = ("largest", 10 * self.alpha_) if larger else ("smallest", self.alpha_ / 10)
            warn_caller(
                f"the best alpha, {self.alpha_:.3g}, is the {which} of the grid, and one beyond it may be "
                f"better: pass alphas that reach {beyond:.3g}",
                DataWarning,
            )

    def _path_of(self, X: Any, S: Array, alphas: Any) -> Any:
        path = graphical_lasso_path(labeled_features(S, X), alphas, **self._asked_of_path(len(S)))
        order = np.argsort(-path.alphas, kind="stable")
        return type(path)(path.alphas[order], [path[k] for k in order])


class StabilitySelection(SparsePrecision):
    """The edges of a sparse inverse covariance that most halves of the data have.

    Each of `n_pairs` random splits gives two halves of the samples, and each half a graph. An edge is kept if
    at least a share `threshold` of the halves has it; the precision matrix is then that of largest
    likelihood for the graph of the edges that are kept.

    Parameters
    ----------
    alpha : float, optional
        Weight of the penalty. By default that of the least extended criterion (EBIC) on all samples.
    threshold : float, above 0.5 and up to 1
        Share of the halves.
    n_pairs : int
        Number of random splits.
    random_state : int, Generator, RandomState or None
        Of the splits.
    weights, pattern, penalize_diagonal, standardize, assume_centered, tol, max_iter, solver_options
        As for :class:`GraphicalLasso`; `standardize` is True by default, each half by its own deviations.

    Attributes
    ----------
    counts_ : int array or DataFrame of shape (n_features, n_features)
        The number of halves, of ``2 * n_pairs``, in which each pair has an edge.
    edges_ : list of pairs
        Names or indices of the pairs that are kept, the most frequent first.
    expected_false_ : float
        Bound on the expected number of edges that are kept by chance (Meinshausen and Bühlmann 2010,
        Theorem 1): ``q^2 / ((2 threshold - 1) p)`` with ``p`` pairs, of which a half selects ``q`` in the
        mean. It supposes that the edges by chance are exchangeable.
    alpha_ : float
    precision_, covariance_, location_, solution_
        As for :class:`GraphicalLasso`; the answer is that of :func:`bregopt.covariance_selection`.
    n_iter_, gap_, converged_, n_features_in_, feature_names_in_
        As for :class:`LogDetMetricLearner`.

    References
    ----------
    Meinshausen, Bühlmann (2010), Stability selection, J. R. Stat. Soc. B 72; Shah, Samworth (2013), Variable
    selection with error control: another look at stability selection, J. R. Stat. Soc. B 75.

    Examples
    --------
    >>> import numpy as np
    >>> from bregopt.learn import StabilitySelection
    >>> points = np.random.default_rng(0).normal(size=(200, 4))
    >>> points[:, 1] += points[:, 0]
    >>> StabilitySelection(alpha=0.25, n_pairs=10).fit(points).edges_
    [(0, 1)]
    """

    def __init__(
        self,
        alpha: float | None = None,
        *,
        threshold: float = 0.9,
        n_pairs: int = 25,
        random_state: RandomState = 0,
        weights: ArrayLike | None = None,
        pattern: ArrayLike | None = None,
        penalize_diagonal: bool = False,
        standardize: bool = True,
        assume_centered: bool = False,
        tol: float = 1e-4,
        max_iter: int | None = None,
        solver_options: Mapping[str, object] | None = None,
    ) -> None:
        self.alpha = alpha
        self.threshold = threshold
        self.n_pairs = n_pairs
        self.random_state = random_state
        self.weights = weights
        self.pattern = pattern
        self.penalize_diagonal = penalize_diagonal
        self.standardize = standardize
        self.assume_centered = assume_centered
        self.tol = tol
        self.max_iter = max_iter
        self.solver_options = solver_options

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, executor: Executor | None = None) -> Self:
        """Count the edges of halves of the samples, and estimate the precision matrix of the frequent ones.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
        y : None
            Ignored.
        executor : concurrent.futures.Executor, optional
            Solves the halves; None solves them in this thread.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If input or parameters are bad, or the likelihood of a half is unbounded.
        """
        check_executor(executor)
        threshold = float(finite_array(self.threshold, "threshold", ndim=0))
        if not 0.5 < threshold <= 1:
            raise ValueError(f"threshold is {threshold:g}; expected a number above 0.5 and up to 1")
        pairs = positive_integer(self.n_pairs, "n_pairs")
        points = self._samples(X)
        if len(points) < 4:
            raise ValueError(f"X has {len(points)} samples; expected 4 or more: a half has two at least")
        S = empirical_covariance(points, assume_centered=self.assume_centered)
        asked = self._asked()
        if self.alpha is None:
            path = graphical_lasso_path(S, **asked)
            self.alpha_ = path.best("ebic", n_samples=len(points)).alpha
        else:
            self.alpha_ = float(finite_array(self.alpha, "alpha", ndim=0))
        rng, half = generator(self.random_state), len(points) // 2
        orders = [rng.permutation(len(points)) for _ in range(pairs)]
        halves = [rows for order in orders for rows in (order[:half], order[half : 2 * half])]
        crew = Crew(executor)
        try:
            shared = points, self.alpha_, self.assume_centered, asked
            graphs = list(crew.map(_graph_of_half, halves, *shared))
        finally:
            crew.close()
        counts: IntArray = np.asarray(np.sum(graphs, axis=0, dtype=np.intp))
        self._keep_frequent(X, S, counts, threshold, len(halves))
        return self

    def _keep_frequent(self, X: Any, S: Array, counts: IntArray, threshold: float, halves: int) -> None:
        """Keep the frequent edges, and the precision matrix of their graph."""
        n = len(S)
        i, j = np.nonzero(np.triu(counts >= threshold * halves - 1e-9, 1))
        order = np.argsort(-counts[i, j], kind="stable")
        i, j = i[order], j[order]
        names = getattr(self, "feature_names_in_", None)
        self.counts_ = labeled_features(counts, X)
        pairs = list(zip(i.tolist(), j.tolist(), strict=True))
        self.edges_ = pairs if names is None else [(names[a], names[b]) for a, b in pairs]
        selected = float(np.triu(counts, 1).sum()) / halves
        possible = max(n * (n - 1) // 2, 1)
        self.expected_false_ = selected**2 / ((2 * threshold - 1) * possible)
        edges = np.stack([i, j], axis=1)
        solution = covariance_selection(labeled_features(S, X), edges, tol=self.tol)
        self.precision_ = self._keep(solution, "Raise alpha or threshold: its graph has cliques as large.")
        self.covariance_ = solution.covariance

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the graph of the edges that are kept; returns the matplotlib axes."""
        check_is_fitted(self)
        answer: Any = self.solution_
        return answer.plot(ax)


def _graph_of_half(
    rows: IntArray, points: Array, alpha: float, centered: bool, asked: dict[str, Any]
) -> Array:
    """Return the mask of the edges that half of the samples gives."""
    S = empirical_covariance(points[rows], assume_centered=centered)
    solution = graphical_lasso(S, alpha, **asked)
    if solution.X is None:
        raise ValueError(f"half of the samples: {solution.status}. {solution.stop_reason} {_ADVICE}")
    mask = np.asarray(solution.X) != 0
    np.fill_diagonal(mask, False)
    return mask


def _rows_of(fold: Any, m: int) -> tuple[IntArray, ...]:
    """Return the training rows and the test rows of a fold, which may be the user's own."""
    if not isinstance(fold, tuple | list) or len(fold) != 2:
        raise TypeError(f"cv has the fold {fold!r}; expected pairs (rows to train, rows to test)")
    masks = (rectangular(rows, "a fold of cv") for rows in fold)
    rows = (np.flatnonzero(mask) if mask.shape == (m,) and mask.dtype == bool else mask for mask in masks)
    return tuple(index_array(own, "a fold of cv", m) for own in rows)


def _fold_scores(
    fold: tuple[IntArray, ...], points: Array, alphas: Array, centered: bool, asked: dict[str, Any]
) -> Array:
    """Return the log-likelihood of the samples that one fold leaves out, for each weight."""
    train, test = (empirical_covariance(points[rows], assume_centered=centered) for rows in fold)
    path = graphical_lasso_path(train, alphas, **asked)
    return np.array([np.nan if s.X is None else log_likelihood(test, s.X) for s in path])
