"""Grids of cross-validation whose problems go to `bo.solve_many`, against scikit-learn's GridSearchCV."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.datasets import load_iris
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bregopt as bo
from bregopt.learn import (
    GridSearchCV,
    KernelLearner,
    LogDetMetricLearner,
    SoftMarginMetricLearner,
    VonNeumannMetricLearner,
)

X, Y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(size=X.shape)
FOLDS = StratifiedKFold(3, shuffle=True, random_state=1)
MODEL = make_pipeline(StandardScaler(), LogDetMetricLearner(), KNeighborsClassifier(4))
GRID = {"logdetmetriclearner__gamma": [0.01, 1.0], "kneighborsclassifier__n_neighbors": [2, 4]}


def same_tables(found, expected):
    """Whether two tables of results agree, except for times."""
    names = [name for name in expected if "time" not in name]
    assert [name for name in found if "time" not in name] == names
    for name in names:
        if name == "params" or name.startswith("param_"):
            assert list(found[name]) == list(expected[name])
        else:
            np.testing.assert_allclose(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (MODEL, GRID),
        (
            make_pipeline(VonNeumannMetricLearner(), KNeighborsClassifier(4)),
            [
                {"vonneumannmetriclearner__gamma": [0.1, 1.0]},
                {"vonneumannmetriclearner": [LogDetMetricLearner(), "passthrough"]},
            ],
        ),
        (
            make_pipeline(make_pipeline(KernelLearner(kernel="rbf", n_components=20)), LogisticRegression()),
            {"pipeline__kernellearner__divergence": ["logdet", "von_neumann"]},
        ),
        (
            make_pipeline(SoftMarginMetricLearner(), KNeighborsClassifier(4)),
            {"softmarginmetriclearner__C": [0.1]},
        ),
        (KNeighborsClassifier(), {"n_neighbors": [2, 4, 6]}),
    ],
)
def test_the_results_are_those_of_scikit_learn(model, grid):
    options = {"cv": FOLDS, "return_train_score": True}
    theirs = model_selection.GridSearchCV(model, grid, **options).fit(X, Y)
    ours = GridSearchCV(model, grid, **options).fit(X, Y)
    same_tables(ours.cv_results_, theirs.cv_results_)
    assert (ours.best_index_, ours.best_params_) == (theirs.best_index_, theirs.best_params_)
    assert ours.best_score_ == theirs.best_score_ == pytest.approx(max(ours.cv_results_["mean_test_score"]))
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X, Y) == theirs.score(X, Y)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)


def searched(n_pairs, gamma):
    pipeline = make_pipeline(LogDetMetricLearner(n_pairs=n_pairs), LogisticRegression())
    return GridSearchCV(pipeline, {"logdetmetriclearner__gamma": gamma}, cv=2)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([searched(20, [1.0])])
def test_it_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([searched(60, [0.1, 1.0])])
def test_a_search_over_a_grid_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


def metrics(search):
    """Return the learned metric of the best estimator."""
    return search.best_estimator_[1].components_


def test_the_results_do_not_depend_on_the_executor(processes):
    here = GridSearchCV(MODEL, GRID, cv=FOLDS).fit(X, Y)
    with ThreadPoolExecutor(2) as threads:
        for executor in (threads, processes):
            there = GridSearchCV(MODEL, GRID, cv=FOLDS, executor=executor).fit(X, Y)
            same_tables(there.cv_results_, here.cv_results_)
            np.testing.assert_array_equal(metrics(there), metrics(here))


def test_the_problems_are_solved_together(monkeypatch):
    calls = []

    def counted(problems, *arguments, **options):
        calls.append((len(problems), options["tol"]))
        return bo.solve_many(problems, *arguments, **options)

    monkeypatch.setattr("bregopt.learn.grid_search.solve_many", counted)
    grid = {"logdetmetriclearner__gamma": [0.1, 1.0], "logdetmetriclearner__tol": [1e-6, 1e-4]}
    GridSearchCV(MODEL, grid, cv=FOLDS).fit(X, Y)
    assert calls == [(6, 1e-6), (6, 1e-4)]


def test_a_generator_draws_the_same_pairs_as_in_scikit_learn():
    model = make_pipeline(LogDetMetricLearner(random_state=np.random.RandomState(3)), KNeighborsClassifier(4))
    grid = {"logdetmetriclearner__gamma": [0.1, 1.0]}
    theirs = model_selection.GridSearchCV(model, grid, cv=FOLDS).fit(X, Y)
    same_tables(GridSearchCV(model, grid, cv=FOLDS).fit(X, Y).cv_results_, theirs.cv_results_)


def test_errors_of_a_cell_are_scores():
    grid = {"logdetmetriclearner__gamma": [-1.0, 1.0]}
    with pytest.warns(FitFailedWarning, match="3 of 6 fits failed, the first with ValueError.*gamma"):
        search = GridSearchCV(MODEL, grid, cv=FOLDS).fit(X, Y)
    assert np.isnan(search.cv_results_["mean_test_score"][0])
    assert search.best_index_ == 1
    assert list(search.cv_results_["rank_test_score"]) == [2, 1]
    with pytest.warns(FitFailedWarning, match="error_score=0"):
        search = GridSearchCV(MODEL, grid, cv=FOLDS, error_score=0.0).fit(X, Y)
    assert search.cv_results_["mean_test_score"][0] == 0
    with pytest.raises(ValueError, match="gamma is -1"):
        GridSearchCV(MODEL, grid, cv=FOLDS, error_score="raise").fit(X, Y)
    with pytest.raises(ValueError, match="gamma is -1") as found:
        GridSearchCV(MODEL, {"logdetmetriclearner__gamma": [-1.0]}, cv=FOLDS).fit(X, Y)
    assert found.value.__notes__ == ["All 3 fits of the search failed, the first with this error."]


def test_problems_without_a_solution_and_bad_options_are_errors_of_cells():
    grid = {"logdetmetriclearner__gamma": [None, 1.0]}  # hard bounds, which no metric meets
    with pytest.warns(FitFailedWarning, match="infeasible"):
        search = GridSearchCV(MODEL, grid, cv=FOLDS).fit(X, Y)
    assert search.best_params_ == {"logdetmetriclearner__gamma": 1.0}
    grid = {"logdetmetriclearner__solver_options": [{"metod": "cyclic"}, None]}
    with pytest.warns(FitFailedWarning, match="metod"):
        search = GridSearchCV(MODEL, grid, cv=FOLDS).fit(X, Y)
    assert search.best_index_ == 1


def test_scores_that_fail_are_errors_of_cells():
    def score(estimator, X, y):
        raise RuntimeError("no score")

    with pytest.raises(RuntimeError, match="no score"):
        GridSearchCV(MODEL, {"logdetmetriclearner__gamma": [0.1, 1.0]}, cv=FOLDS, scoring=score).fit(X, Y)


def test_groups_scoring_and_no_refit():
    groups = np.arange(len(X)) % 7
    grid = {"logdetmetriclearner__gamma": [0.1, 1.0]}
    options = {"cv": GroupKFold(3), "scoring": "neg_log_loss", "refit": False}
    theirs = model_selection.GridSearchCV(MODEL, grid, **options).fit(X, Y, groups=groups)
    ours = GridSearchCV(MODEL, grid, **options).fit(X, Y, groups=groups)
    same_tables(ours.cv_results_, theirs.cv_results_)
    assert not hasattr(ours, "best_estimator_")


def test_frames_keep_the_names_of_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    search = GridSearchCV(MODEL, {"logdetmetriclearner__gamma": [1.0]}, cv=FOLDS).fit(frame, Y)
    assert list(search.feature_names_in_) == list("abcd")
    assert search.n_features_in_ == 4


def test_bad_arguments():
    grid = {"logdetmetriclearner__gamma": [1.0]}
    with pytest.raises(TypeError, match="executor is 2; expected"):
        GridSearchCV(MODEL, grid, executor=2).fit(X, Y)
    with pytest.raises(TypeError, match="refit is 'accuracy'; expected True or False"):
        GridSearchCV(MODEL, grid, refit="accuracy").fit(X, Y)
    with pytest.raises(ValueError, match="Invalid parameter"):
        GridSearchCV(MODEL, {"nothing": [1.0]}).fit(X, Y)
    with pytest.raises(TypeError, match="score"):
        GridSearchCV(LogDetMetricLearner(), {"gamma": [1.0]}).fit(X, Y)
