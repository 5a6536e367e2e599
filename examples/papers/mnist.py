"""MNIST with 10,000 and 100,000 pairs (Kulis et al. 2009, §7.2): error, time and memory.

    OPENBLAS_NUM_THREADS=1 python examples/papers/mnist.py --data FOLDER

Data: {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz of MNIST (LeCun, Cortes, Burges).

A shear by whole pixels deskews the images, which are then reduced to their first 100 principal components.
Pairs are drawn from all 60,000 training images. Bounds are percentiles of squared distances. The price gamma
is the one with the fewest errors on the last 10,000 training images, with pairs drawn from the others. The
error is that of the nearest neighbor among all training images.
"""

import resource
import time
from typing import NamedTuple

import numpy as np
from common import COLORS, arguments, mnist, new_axes, print_table, save
from sklearn.neighbors import KNeighborsClassifier

from bregopt.learn import LogDetMetricLearner, VonNeumannMetricLearner

LEARNERS = {"LogDet": LogDetMetricLearner, "von Neumann": VonNeumannMetricLearner}


class Size(NamedTuple):
    """How much is run."""

    images: int  # for training
    held_out: int  # the last of them, for which gamma is chosen
    tested: int
    counts: tuple[int, ...]  # of pairs
    total_prices: tuple[int, ...]  # gamma times the number of pairs


FULL = Size(60_000, 10_000, 10_000, (10_000, 100_000), (10, 100, 1000, 10_000))
QUICK = Size(3000, 500, 2000, (500,), (10, 1000))
EUCLIDEAN = 2.35  # the paper's error in per cent, and below errors and minutes to learn
PAPER = {
    ("LogDet", 10_000): (2.29, 4.8),
    ("LogDet", 100_000): (2.18, 11.3),
    ("von Neumann", 10_000): (2.30, 7.7),
    ("von Neumann", 100_000): (2.17, 71.4),
}


def main():
    """Learn the metrics, print the table and save the plot."""
    options = arguments(__doc__)
    size = QUICK if options.quick else FULL
    (train, digit), (test, test_digit) = (mnist(options.data, part) for part in ("train", "t10k"))
    points, test_points = components(deskewed(train[: size.images]), deskewed(test[: size.tested]))
    digit, test_digit = digit[: size.images], test_digit[: size.tested]
    del train, test
    euclidean = error(points, digit, test_points, test_digit)
    rows, found = [["Euclidean", "", "", euclidean, "", "", "", f"{EUCLIDEAN} %"]], {}
    for name, cls in LEARNERS.items():
        for count in size.counts:
            gamma = chosen(cls, points, digit, count, size)
            start = time.perf_counter()
            learner = cls(gamma, n_pairs=count, tol=1e-4).fit(points, digit)
            seconds = time.perf_counter() - start
            wrong = error(learner.transform(points), digit, learner.transform(test_points), test_digit)
            found[name, count] = wrong, seconds
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            cells = [name, f"{count:,}", gamma, wrong, f"{seconds:.1f} s", f"{learner.gap_:.0e}"]
            paper = "{} %, {} min".format(*PAPER[name, count]) if (name, count) in PAPER else ""
            rows.append([*cells, f"{memory:.2f} GB", paper])
            print(rows[-1], flush=True)
    heading = ("metric", "pairs", "gamma", "1-NN error, %", "time to learn", "certified gap", "peak memory")
    print_table([*heading, "paper"], rows)
    save(drawn(euclidean, found, size.counts), options.output / "mnist.png")


def chosen(cls, points, digit, count, size):
    """Return the price with the fewest errors on the held-out images, of metrics learned from the others."""
    fit, held, tried = slice(None, -size.held_out), slice(-size.held_out, None), {}
    for gamma in np.array(size.total_prices) / count:
        learner = cls(gamma, n_pairs=count, tol=1e-4).fit(points[fit], digit[fit])
        mapped = learner.transform(points)
        tried[float(gamma)] = error(mapped[fit], digit[fit], mapped[held], digit[held])
    print(f"{cls.__name__}, {count:,} pairs, held-out errors by gamma: {tried}", flush=True)
    return min(tried, key=tried.get)


def drawn(euclidean, found, counts):
    """Return the figure: errors and times to learn, the paper's beside ours."""
    figure, (left, right) = new_axes(2)
    at = np.arange(len(counts))
    for k, name in enumerate(LEARNERS):
        place, color = at + 0.2 * (k - 0.5), COLORS[name]
        known = [(x, *PAPER[name, c]) for x, c in zip(place, counts, strict=True) if (name, c) in PAPER]
        for ax, column, unit in ((left, 0, 1), (right, 1, 60)):
            ax.plot(place, [found[name, c][column] for c in counts], "o", ms=8, color=color, label=name)
            theirs = [unit * row[column + 1] for row in known]
            ax.plot(
                [row[0] for row in known], theirs, "D", ms=7, mec=color, mfc="white", label=f"{name}, paper"
            )
    left.axhline(euclidean, color=COLORS["start"], lw=1, label="Euclidean")
    left.axhline(EUCLIDEAN, color=COLORS["start"], lw=1, ls="--", label="Euclidean, paper")
    left.set(title="error on the test images, %")
    right.set(title="seconds to learn", yscale="log")
    for ax in (left, right):
        ax.set(xticks=at, xticklabels=[f"{count:,} pairs" for count in counts], xlim=(-0.5, len(at) - 0.5))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def deskewed(images):
    """Return images sheared, row by row and by whole pixels, until their second moments stand upright."""
    row, column = np.mgrid[:28, :28]
    out = np.empty((len(images), 784), dtype=np.float32)
    for start in range(0, len(images), 5000):
        part = images[start : start + 5000] / np.float32(255)
        mass = part.sum(axis=(1, 2))
        y = (part * row).sum(axis=(1, 2)) / mass
        x = (part * column).sum(axis=(1, 2)) / mass
        down, across = row - y[:, None, None], column - x[:, None, None]
        slope = (part * down * across).sum(axis=(1, 2)) / (part * down**2).sum(axis=(1, 2))
        source = column + np.rint(slope[:, None, None] * down).astype(int)
        inside = (source >= 0) & (source < 28)
        moved = np.take_along_axis(part, np.clip(source, 0, 27), axis=2) * inside
        out[start : start + 5000] = moved.reshape(-1, 784)
    return out


def components(train, test, count=100):
    """Return both sets in the first principal components of the training set."""
    mean = train.mean(axis=0)
    train -= mean
    _, V = np.linalg.eigh(train.T @ train)
    leading = V[:, : -count - 1 : -1]
    return (train @ leading).astype(float), ((test - mean) @ leading).astype(float)


def error(points, digit, test_points, test_digit):
    """Return the error of the nearest neighbor in per cent."""
    nearest = KNeighborsClassifier(1, algorithm="brute").fit(points, digit)
    return round(100 * (1 - nearest.score(test_points, test_digit)), 2)


if __name__ == "__main__":
    main()
