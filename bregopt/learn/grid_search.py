"""Cross-validation over a grid of parameters, whose fits are problems for :func:`bregopt.solve_many`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn import model_selection
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import BaseCrossValidator, ParameterGrid, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, indexable

from bregopt import solve_many
from bregopt.arrays import Array
from bregopt.errors import warn_caller
from bregopt.executors import check_executor
from bregopt.learn.base import Fitting, OfProblem


class GridSearchCV(model_selection.GridSearchCV):
    """Cross-validation over a grid of parameters, whose problems are solved together, on any executor.

    It takes the place of :class:`sklearn.model_selection.GridSearchCV`, with the same results on the same
    folds. All problems of metric and kernel learners go to :func:`bregopt.solve_many` at once. Other steps of
    a pipeline, scores, and estimators without such a learner are computed in this process.

    Parameters
    ----------
    estimator : estimator
        A learner, or a pipeline with one.
    param_grid : dict or list of dict
        Values of each parameter, such as ``{"logdetmetriclearner__gamma": [0.1, 1.0]}``.
    scoring : str or callable, optional
        One score; by default the estimator's own.
    refit : bool
        Whether to fit the best parameters to all data.
    cv : int, cross-validator or iterable, optional
        As in scikit-learn; 5 folds by default, stratified for classifiers.
    error_score : float or "raise"
        Score of a fold whose fit or score fails, with a warning; "raise" raises its error.
    return_train_score : bool
    executor : concurrent.futures.Executor, optional
        As for :func:`bregopt.solve_many`; None solves in this process.

    Attributes
    ----------
    cv_results_ : dict
        The columns of scikit-learn's. A fit's time includes that of its solve.
    best_index_ : int
    best_params_ : dict
    best_score_ : float
    best_estimator_ : estimator
        Unless `refit` is False.
    refit_time_ : float
    scorer_ : callable
    n_splits_ : int
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    bregopt.solve_many : Executors, and what happens when a worker dies.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from bregopt.learn import GridSearchCV, LogDetMetricLearner
    >>> model = make_pipeline(LogDetMetricLearner(), KNeighborsClassifier(4))
    >>> search = GridSearchCV(model, {"logdetmetriclearner__gamma": [0.1, 1.0]}, cv=3)
    >>> search.fit(*load_iris(return_X_y=True)).best_score_ > 0.9
    True
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        param_grid: Mapping[str, Sequence[object]] | Sequence[Mapping[str, Sequence[object]]],
        *,
        scoring: str | Callable[..., float] | None = None,
        refit: bool = True,
        cv: int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] | None = None,
        error_score: float | str = np.nan,
        return_train_score: bool = False,
        executor: Executor | None = None,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            refit=refit,
            cv=cv,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.executor = executor

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, groups: ArrayLike | None = None) -> Self:
        """Fit every candidate to every fold, and the best one to all data.

        Parameters
        ----------
        X : array_like or DataFrame of shape (n, n_features)
        y : array_like of shape (n,), optional
        groups : array_like of shape (n,), optional
            For cross-validators that keep groups together.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter is bad. Where all fits fail, the error of the first one is raised, whatever it is.
        """
        if not isinstance(self.refit, bool):
            raise TypeError(f"refit is {self.refit!r}; expected True or False")
        check_executor(self.executor)
        X, y, groups = indexable(X, y, groups)
        self.scorer_, self.multimetric_ = check_scoring(self.estimator, self.scoring), False
        splits = list(check_cv(self.cv, y, classifier=is_classifier(self.estimator)).split(X, y, groups))
        candidates, self.n_splits_ = list(ParameterGrid(self.param_grid)), len(splits)
        cells = [_Cell(self._made(own), X, y, *split) for own, split in product(candidates, splits)]
        _solve(cells, self.executor)
        for cell in cells:
            cell.score(self.scorer_, self.return_train_score)
        self._tell(cells)
        self.cv_results_ = self._results(candidates, cells)
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = self.cv_results_["mean_test_score"][self.best_index_]
        if self.refit:
            began = time.perf_counter()
            self.best_estimator_ = self._made(self.best_params_).fit(X, y)
            self.refit_time_ = time.perf_counter() - began
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    def _made(self, parameters: dict[str, Any]) -> Any:
        """Return an estimator with some parameters, which may be estimators themselves."""
        return clone(self.estimator).set_params(**clone(parameters, safe=False))

    def _tell(self, cells: list[_Cell]) -> None:
        """Warn of errors; raise the first one if asked to, or if there is no other outcome."""
        errors = [cell.error for cell in cells if cell.error is not None]
        if self.error_score == "raise" and errors:
            raise errors[0]
        if len(errors) == len(cells):
            errors[0].add_note(f"All {len(cells)} fits of the search failed, the first with this error.")
            raise errors[0]
        if errors:
            said = f"{len(errors)} of {len(cells)} fits failed, the first with {errors[0]!r}"
            warn_caller(f"{said}; their score is error_score={self.error_score}", FitFailedWarning)

    def _results(self, candidates: list[dict[str, Any]], cells: list[_Cell]) -> dict[str, Any]:
        """Return the table of times and scores, in scikit-learn's form."""
        shape = len(candidates), self.n_splits_
        results: dict[str, Any] = {}

        def add(name: str, values: list[float], by_split: bool) -> Array:
            table = np.array(values, dtype=float).reshape(shape)
            if by_split:
                results.update({f"split{k}_{name}": table[:, k] for k in range(self.n_splits_)})
            results[f"mean_{name}"], results[f"std_{name}"] = table.mean(axis=1), table.std(axis=1)
            return results[f"mean_{name}"]

        add("fit_time", [cell.fit_time for cell in cells], False)
        add("score_time", [cell.score_time for cell in cells], False)
        for name in dict.fromkeys(name for own in candidates for name in own):
            column: Any = np.ma.MaskedArray(np.empty(len(candidates), dtype=object), mask=True)
            for k, own in enumerate(candidates):
                if name in own:
                    column[k] = own[name]
            results[f"param_{name}"] = column
        results["params"] = candidates
        means = add("test_score", self._scores(cells, "test_score"), True)
        worst = np.where(np.isnan(means), -np.inf, means)
        results["rank_test_score"] = rankdata(-worst, method="min").astype(np.int32)
        if self.return_train_score:
            add("train_score", self._scores(cells, "train_score"), True)
        return results

    def _scores(self, cells: list[_Cell], name: str) -> list[float]:
        return [self.error_score if cell.error else getattr(cell, name) for cell in cells]


class _Cell:
    """One candidate on one fold: its fit, up to the next problem to solve, its scores, and its error.

    Attributes
    ----------
    asked : tuple (Problem, dict) or None
        The problem that the fit waits for, with the options of its solve.
    """

    def __init__(self, estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, train: Any, test: Any) -> None:
        self._estimator = estimator
        self._train, self._test = _part(X, y, train), _part(X, y, test)
        self.fit_time = self.score_time = 0.0
        self.test_score = self.train_score = np.nan
        self.error: Exception | None = None
        self._fitting = _fitting(estimator, *self._train)
        self._go_on(lambda: next(self._fitting))

    def answer(self, outcome: Any) -> None:
        """Go on with the fit, with the solution of its problem or the error that took its place."""
        if isinstance(outcome, Exception):
            self._go_on(lambda: self._fitting.throw(outcome))
        else:
            self.fit_time += outcome.timings["total"]
            self._go_on(lambda: self._fitting.send(outcome))

    def _go_on(self, step: Callable[[], Any]) -> None:
        began = time.perf_counter()
        self.asked: Any = None
        try:
            self.asked = step()
        except StopIteration:
            pass
        except Exception as error:
            self.error = error
        self.fit_time += time.perf_counter() - began

    def score(self, scorer: Any, on_train: bool) -> None:
        """Compute the scores of a fit that has not failed."""
        if self.error is not None:
            return
        began = time.perf_counter()
        try:
            self.test_score = _score(scorer, self._estimator, *self._test)
            self.score_time = time.perf_counter() - began
            if on_train:
                self.train_score = _score(scorer, self._estimator, *self._train)
        except Exception as error:
            self.error = error


def _part(X: Any, y: Any, rows: Any) -> tuple[Any, Any]:
    """Return some rows of the data."""
    return _safe_indexing(X, rows), None if y is None else _safe_indexing(y, rows)


def _score(scorer: Any, estimator: Any, X: Any, y: Any) -> float:
    found = scorer(estimator, X) if y is None else scorer(estimator, X, y)
    return float(found)


def _solve(cells: list[_Cell], executor: Executor | None) -> None:
    """Solve the problems of all fits, those with the same options together, until no fit waits for one."""
    while waiting := [cell for cell in cells if cell.asked is not None]:
        options = waiting[0].asked[1]
        together = [cell for cell in waiting if cell.asked[1] == options]
        given = {name: value for name, value in options.items() if name != "progress"}
        try:
            problems = [cell.asked[0] for cell in together]
            outcomes: list[Any] = solve_many(problems, executor, progress=False, **given)
        except (TypeError, ValueError) as error:  # a bad option
            outcomes = [error] * len(together)
        for cell, outcome in zip(together, outcomes, strict=True):
            if isinstance(outcome, CancelledError):
                raise KeyboardInterrupt
            cell.answer(outcome)


def _fitting(estimator: Any, X: Any, y: Any) -> Fitting:
    """Fit an estimator by the solution of the problem that is yielded, if it has a learner with one."""
    if isinstance(estimator, OfProblem):
        yield from estimator._fitting(X, y)
    elif (at := _place(estimator)) is not None:
        learner = estimator.steps[at][1]
        points = estimator[:at].fit_transform(X, y) if at else X
        yield from _fitting(learner, points, y)
        if at + 1 < len(estimator.steps):
            estimator[at + 1 :].fit(learner.transform(points), y)
    else:
        estimator.fit(X, y)


def _place(estimator: Any) -> int | None:
    """Return the place of the first learner with a problem in a pipeline, None if there is none."""
    if not isinstance(estimator, Pipeline):
        return None
    has_one = (isinstance(step, OfProblem) or _place(step) is not None for _, step in estimator.steps)
    return next((k for k, own in enumerate(has_one) if own), None)
