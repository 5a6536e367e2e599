"""Metric learning on five UCI sets: errors of 4 neighbors (Kulis et al. 2009, §7.2, Figure 5).

    OPENBLAS_NUM_THREADS=1 python examples/papers/uci_metrics.py --data FOLDER

Data: wine.data, ionosphere.data, balance-scale.data, iris.data, soybean-small.data (UCI, CC BY 4.0). The
paper does not name its five sets; these are those of Davis et al. (2007). It shows bars without numbers.

Errors are by two-fold cross-validation. There are 40 c^2 pairs for c classes, and the bounds are the 5th and
95th percentile of squared distances. Two-fold cross-validation on the training half chooses gamma from 0.01,
0.1, 1, 10. LMNN is that of metric-learn, if it is installed; the script corrects the name of one argument of
scikit-learn.
"""

import warnings
from typing import NamedTuple

import numpy as np
from common import arguments, labeled, mean_sd, new_axes, print_table, save
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bregopt as bo
from bregopt.learn import LogDetMetricLearner, VonNeumannMetricLearner

SETS = {
    "wine": 0,
    "ionosphere": -1,
    "balance-scale": 0,
    "iris": -1,
    "soybean-small": -1,
}  # column of the class
PRICES = [0.01, 0.1, 1.0, 10.0]
_CONVERGED: list[bool] = []  # of the fits with the chosen prices
COLORS = {"Euclidean": "#555555", "LMNN": "#009E73", "LogDet": "#0072B2", "von Neumann": "#D55E00"}


class Size(NamedTuple):
    """How much is run: the sets, two-fold runs, and those of LMNN, which is slow."""

    sets: tuple[str, ...]
    runs: int
    slow_runs: int


FULL = Size(tuple(SETS), 10, 5)
QUICK = Size(("iris",), 1, 1)


def main():
    """Run all sets and learners, print the table and save the plot."""
    options = arguments(__doc__)
    size = QUICK if options.quick else FULL
    learners = {
        "Euclidean": None,
        "LMNN": mended_lmnn(),
        "LogDet": LogDetMetricLearner(tol=1e-4),
        "von Neumann": VonNeumannMetricLearner(tol=1e-4),
    }
    learners = {
        name: learner for name, learner in learners.items() if learner is not None or name == "Euclidean"
    }
    errors = {}
    for scaled in (False, True):
        rows = []
        for name in size.sets:
            X, y = labeled(options.data / f"{name}.data", SETS[name])
            X = X[:, X.std(axis=0) > 0]
            for learner in learners:
                runs = size.slow_runs if learner == "LMNN" else size.runs
                found = [two_fold(learners[learner], X, y, scaled, seed) for seed in range(runs)]
                errors[name, learner, scaled] = np.array(found)
            cells = [mean_sd(errors[name, learner, scaled]) for learner in learners]
            gains = [gain(errors, name, learner, scaled) for learner in ("LogDet", "von Neumann")]
            rows.append([name, *cells, *gains])
        print(f"\n{'Standardized' if scaled else 'Raw'} features, error in per cent:\n")
        print_table(["set", *learners, "LogDet - Euclidean", "von Neumann - Euclidean"], rows)
    print(f"\nOf {len(_CONVERGED)} fits with the chosen price, {sum(_CONVERGED)} converged (tol 1e-4).")
    draw(errors, size.sets, learners, options.output / "uci_metrics.png")


def two_fold(learner, X, y, scaled, seed):
    """Return the error of 4 neighbors after learning on the other half."""
    wrong = 0
    for train, test in StratifiedKFold(2, shuffle=True, random_state=seed).split(X, y):
        scaler, own = StandardScaler() if scaled else None, None if learner is None else clone(learner)
        model = make_pipeline(scaler, own, KNeighborsClassifier(4))
        price = f"{type(learner).__name__.lower()}__gamma"
        learned = price in model.get_params()
        if learned:
            model = GridSearchCV(model, {price: PRICES}, cv=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)  # of prices that are not chosen
            model.fit(X[train], y[train])
        if learned:
            _CONVERGED.append(model.best_estimator_[1].converged_)
        wrong += np.sum(model.predict(X[test]) != y[test])
    return wrong / len(y)


def gain(errors, name, learner, scaled):
    """Return the difference of errors on the same splits, and its standard error."""
    difference = 100 * (errors[name, learner, scaled] - errors[name, "Euclidean", scaled])
    return f"{difference.mean():+.1f} ± {difference.std() / np.sqrt(len(difference)):.1f}"


def mended_lmnn():
    """Return metric-learn's LMNN, mended for recent scikit-learn, or None where it is not installed."""
    try:
        import metric_learn
    except ImportError:
        return None
    from sklearn.utils import check_array, check_X_y

    for check in (check_X_y, check_array):

        def renamed(*args, _check=check, force_all_finite=True, **settings):
            return _check(*args, ensure_all_finite=force_all_finite, **settings)

        setattr(metric_learn._util, check.__name__, renamed)
    return metric_learn.LMNN(max_iter=200, random_state=0)


def draw(errors, sets, learners, path):
    """Draw the errors as bars, raw on the left and standardized on the right."""
    figure, axes = new_axes(2, width=5.2)
    for ax, scaled in zip(axes, (False, True), strict=True):
        for k, learner in enumerate(learners):
            found = [100 * errors[name, learner, scaled] for name in sets]
            place = np.arange(len(sets)) + 0.2 * (k - (len(learners) - 1) / 2)
            spread = [part.std() for part in found]
            ax.bar(
                place,
                [part.mean() for part in found],
                0.19,
                yerr=spread,
                color=COLORS[learner],
                label=learner,
            )
        ax.set_xticks(range(len(sets)), sets, rotation=15)
        ax.set_title("standardized" if scaled else "raw")
        ax.grid(axis="x", alpha=0)
    for ax in axes:
        ax.set_ylim(bottom=0)
    axes[0].set_ylabel("4-NN error, %")
    axes[1].legend(frameon=False)
    save(figure, path)


if __name__ == "__main__":
    main()
