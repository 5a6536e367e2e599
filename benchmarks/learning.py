"""Metric learning: time of bregopt and metric-learn's ITML to an objective, of bregopt on MNIST, one thread.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/learning.py --data FOLDER [--quick]

Both solve the same problem, with the same pairs and bounds,

    minimize  D(A, I) + gamma sum_r d(b_r, b0_r)  over  A and b,   z_r' A z_r <= b_r  or  >= b_r,

with the LogDet divergence (Kulis et al. 2009, eq. 22; Davis et al. 2007). The same code evaluates all
objectives. There are three comparisons. In the first, our fit has its default tol of 1e-6, and metric-learn's
loop runs until its objective is as low. In the others both run until their objective is within 1e-6, or 1e-9,
of the least one. Ours has the largest sufficient tol of 1e-3, 1e-4, ... The loop starts anew with 2, 3, 4, 6,
8, 11, 16, ... cycles until they suffice; bisection then finds the least number to a tenth. Only the run with
this number is timed, in turns with ours. The table ends with the point at which the loop's default rule
(tol 1e-3, 1,000 cycles) stops.

metric-learn 0.7.0 cannot fit with scikit-learn 1.8 and later: its calls of check_X_y and check_array pass
force_all_finite, now called ensure_all_finite. `mended_metric_learn` corrects the two lines. The benchmark
passes bounds on squared distances: the default bounds of metric-learn are percentiles of distances, which it
compares with squared ones.

The folder has ionosphere.data (UCI) and MNIST (LeCun, Cortes, Burges); a missing set is skipped. The table of
a full run goes to benchmarks/results/learning.md.
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine

from bregopt.learn import LogDetMetricLearner, VonNeumannMetricLearner, pairs_from_labels, percentile_bounds

GAMMA = 1.0
LEVELS = (1e-6, 1e-9)  # distances from the least objective, relative to it
EXACT = 1e-11
TURNS, LONG = 9, 1.0  # number of measurements, and seconds above which one run of the loop is enough
BISECTIONS = 2
MOST_CYCLES = 2**17
PAPERS = Path(__file__).resolve().parents[1] / "examples" / "papers"
HEADING = (
    "data",
    "pairs",
    "least objective",
    *("as it comes: steps", "above the least", "s", "metric-learn, cycles", "s", "times ours"),
    *("to 1e-6: steps", "s", "cycles", "s", "times ours"),
    *("to 1e-9: steps", "s", "cycles", "s", "times ours"),
    "its default rule: above the least",
    "s",
)


def main():
    """Run the benchmark and save the table."""
    options = arguments()
    lines = [__doc__.splitlines()[2].strip(), "", conditions(), "", *table(HEADING)]
    print("\n".join(lines))
    for name, load in sets(options.data, options.quick):
        lines.append(row(compared(name, *load(), options.repeat, options.cap)))
        print(lines[-1], flush=True)
    if not options.quick and (options.data / "train-images-idx3-ubyte.gz").exists():
        heading = (
            "MNIST, 100 components",
            "pairs",
            "gamma",
            "s",
            "steps",
            "gap",
            "1-NN error, %",
            "peak memory",
        )
        lines += ["", *table(heading)]
        print("\n".join(lines[-3:]))
        for learner in ("LogDet", "von Neumann"):
            lines.append(row(in_process(options.data, learner)))
            print(lines[-1], flush=True)
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n")


# ------ the three sets


def sets(data, quick):
    """Yield names and functions that return points and classes."""
    kinds = [("wine", partial(load_wine, return_X_y=True))]
    if not quick:
        if (data / "ionosphere.data").exists():
            kinds.append(("ionosphere", partial(ionosphere, data)))
        kinds.append(("breast cancer", partial(load_breast_cancer, return_X_y=True)))
    for name, load in kinds:
        yield f"{name}, raw", load
        yield f"{name}, standardized", partial(standardized, load)


def ionosphere(data):
    """Return UCI's ionosphere."""
    rows = [line.split(",") for line in (data / "ionosphere.data").read_text().split()]
    return np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] for row in rows])


def standardized(load):
    """Return a set with mean 0 and deviation 1 in every feature that varies."""
    points, label = load()
    deviation = points.std(axis=0)
    return (points - points.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0), label


def compared(name, points, label, repeat, cap):
    """Return the cells of one set: our fit, and metric-learn's to the same objective."""
    near, far = pairs_from_labels(label)
    apart = np.any(points[near[:, 0]] != points[near[:, 1]], axis=1)
    near = near[apart]  # metric-learn divides by the distance of equal points
    u, l = percentile_bounds(points)  # noqa: E741
    objective = partial(itml_objective, points, near, far, u, l)

    exact = LogDetMetricLearner(GAMMA, upper=u, lower=l, tol=EXACT).fit(points, similar=near, dissimilar=far)
    least = objective(exact.get_mahalanobis_matrix())

    def above(metric):
        return objective(metric) / least - 1

    pairs = points[np.concatenate([near, far])]
    signs = np.repeat([1, -1], [len(near), len(far)])
    itml = partial(timed_itml, mended_metric_learn(), pairs, signs, (u, l))
    own = partial(LogDetMetricLearner, GAMMA, upper=u, lower=l)
    fit = partial(fitted, points, near, far)
    reached = max(above(fit(own()).get_mahalanobis_matrix()), EXACT)
    runs = itml_runs(itml, above, min(reached, LEVELS[-1]), cap)
    cells = [name, len(near) + len(far), f"{least:.9g}"]
    for level in (None, *LEVELS):
        learner = own() if level is None else enough(own, fit, above, level)
        cycles, met = first_cycles(itml, above, reached if level is None else level, runs)
        seconds, theirs, ratio = in_turns(
            partial(fit, learner), partial(itml, max_iter=cycles, tol=1e-300), repeat
        )
        cells += [fit(learner).n_iter_, *([f"{reached:.0e}"] if level is None else []), f"{seconds:.4f}"]
        cells += [f"{cycles:,}" if met else f"{cycles:,} (not yet)", f"{theirs:.3f}"]
        cells += [f"{'' if met else 'over '}{ratio:.1f}"]
    metric, default = itml()
    return [*cells, f"{above(metric):.0e}", f"{default:.3f}"]


def fitted(points, near, far, learner):
    """Return our fitted learner."""
    return learner.fit(points, similar=near, dissimilar=far)


def enough(own, fit, above, level):
    """Return our learner with the largest tol that brings its objective within a level of the least."""
    for digits in range(3, 12):
        learner = own(tol=10.0**-digits)
        if above(fit(learner).get_mahalanobis_matrix()) <= level:
            break
    return learner


def in_turns(ours, theirs, repeat):
    """Return median seconds of ours and of theirs, and the median ratio."""
    measured = []
    while not measured or (len(measured) < TURNS and measured[-1][1] < LONG):
        seconds = []
        for _ in range(repeat):
            start = time.process_time()
            ours()
            seconds.append(time.process_time() - start)
        measured.append((statistics.median(seconds), theirs()[1]))
    own, other = (statistics.median(column) for column in zip(*measured, strict=True))
    return own, other, statistics.median(b / a for a, b in measured)


def itml_runs(itml, above, level, cap):
    """Return increasing numbers of cycles, and the distance from the least objective after each."""
    runs, half, seconds = [], 2, 0.0
    while not runs or (runs[-1][1] > level and runs[-1][0] < MOST_CYCLES and seconds < cap):
        cycles = round(2 ** (half / 2))
        metric, seconds = itml(max_iter=cycles, tol=1e-300)
        runs.append((cycles, above(metric)))
        half += 1
    return runs


def first_cycles(itml, above, level, runs):
    """Return the least sufficient number of cycles, to a tenth, and whether there is one."""
    first = next((k for k, (_, left) in enumerate(runs) if left <= level), None)
    if first is None:
        return runs[-1][0], False
    low, high = runs[max(first - 1, 0)][0], runs[first][0]
    for _ in range(BISECTIONS):
        middle = round((low * high) ** 0.5)
        if above(itml(max_iter=middle, tol=1e-300)[0]) <= level:
            high = middle
        else:
            low = middle
    return high, True


def itml_objective(points, near, far, u, l, A):  # noqa: E741
    """Return the objective at a metric, minimized over the relaxed bounds."""
    value = np.trace(A) - np.linalg.slogdet(A)[1] - len(A)
    for pairs, bound, sign in ((near, u, 1), (far, l, -1)):
        difference = points[pairs[:, 0]] - points[pairs[:, 1]]
        ratio = np.einsum("ri,ij,rj->r", difference, A, difference) / bound
        wrong = sign * (ratio - 1) > 0
        value += GAMMA * np.sum(ratio[wrong] - np.log(ratio[wrong]) - 1)
    return value


def timed_itml(learner, pairs, signs, bounds, **settings):
    """Return the metric of metric-learn's ITML and the seconds that its fit took."""
    itml = learner(gamma=GAMMA, prior="identity", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        itml.fit(pairs, signs, bounds=bounds)
        seconds = time.process_time() - start
    return itml.get_mahalanobis_matrix(), seconds


def mended_metric_learn():
    """Return metric-learn's ITML, with the name of one argument of scikit-learn corrected in two places."""
    import metric_learn._util as util
    from sklearn.utils import check_array, check_X_y

    def renamed(check):
        def mended(*args, force_all_finite=True, **settings):
            return check(*args, ensure_all_finite=force_all_finite, **settings)

        return mended

    util.check_X_y = renamed(check_X_y)
    util.check_array = renamed(check_array)
    from metric_learn import ITML

    return ITML


# ------ MNIST


def in_process(data, learner):
    """Return the cells of a run on MNIST in a new process, so that its memory can be measured."""
    command = [sys.executable, __file__, "--data", str(data), "--mnist", learner]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return printed.strip().split("\t")


def mnist_cells(data, name):
    """Learn from 100,000 pairs of 60,000 images and return the cells of the table."""
    sys.path.insert(0, str(PAPERS))
    from common import mnist
    from mnist import components, deskewed, error

    train, digit = mnist(data, "train")
    test, test_digit = mnist(data, "t10k")
    points, test_points = components(deskewed(train), deskewed(test))
    cls, gamma = LogDetMetricLearner if name == "LogDet" else VonNeumannMetricLearner, 0.01
    learner = cls(gamma, n_pairs=100_000, tol=1e-4)
    start = time.process_time()
    learner.fit(points, digit)
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    found = error(learner.transform(points), digit, learner.transform(test_points), test_digit)
    cells = [name, "100,000", gamma, f"{seconds:.1f}", learner.n_iter_, f"{learner.gap_:.0e}", found]
    return [*cells, f"{memory:.2f} GB"]


# ------ the table


def table(heading):
    """Return the first two lines of a table."""
    return [row(heading), "|" + "---|" * len(heading)]


def row(cells):
    """Return one line of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def conditions():
    """Return the versions and the settings of the run."""
    import metric_learn
    import sklearn

    return (
        f"gamma {GAMMA:g}; Python {platform.python_version()}, numpy {np.__version__}, scikit-learn "
        f"{sklearn.__version__}, metric-learn {metric_learn.__version__} with two lines mended; "
        "one thread, seconds of the processor, ours medians."
    )


def arguments():
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with ionosphere.data and MNIST")
    parser.add_argument("--repeat", type=int, default=15, help="fits of ours of which the median is taken")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds after which its cycles grow no more")
    parser.add_argument("--quick", action="store_true", help="wine only")
    parser.add_argument("--mnist", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="where the table goes; for a full run the results folder")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 first")
    if options.output is None and not options.quick:
        options.output = Path(__file__).parent / "results" / "learning.md"
    if options.mnist:
        print(*mnist_cells(options.data, options.mnist), sep="\t")
        sys.exit()
    return options


if __name__ == "__main__":
    main()
