"""A kernel of 52 proteins from distances alone (Kulis et al. 2009, §7.1, Figure 2).

    OPENBLAS_NUM_THREADS=1 python examples/papers/gyrb.py [--quick] [--output DIR]

The paper's kernel of gyrB proteins is not public. The script uses a kernel of 52 points in three clusters.
Pairs are drawn at random from all points. The distances of the target are upper bounds for pairs of one
class, and lower bounds for pairs of different classes. The kernel starts from I/d, and its trace stays one,
as DefiniteBoost requires. The accuracy is that of 5 neighbors, two-fold; only the pairs tell about the test
half. An incomplete Cholesky factorization maps a kernel to points.

Cycles are those to a certified gap of 1e-3, of the first draw.
"""

import warnings
from typing import NamedTuple

import numpy as np
from common import COLORS, arguments, clustering_nmi, factor, mean_sd, new_axes, print_table, proteins, save
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import bregopt as bo

DIVERGENCES = {"LogDet": bo.logdet_div, "von Neumann": bo.von_neumann_div}
METHODS = {
    "LogDet": ("LogDet", {"solver": "bregman", "method": "cyclic"}),
    "von Neumann": ("von Neumann", {"solver": "bregman", "method": "cyclic"}),
    "DefiniteBoost": ("von Neumann", {"solver": "definiteboost", "order": "cyclic"}),
}
SPLITS = 10


class Size(NamedTuple):
    """How much is run."""

    draws: int  # of pairs
    counts: tuple[int, ...]  # of pairs
    cycles: int  # at most


FULL = Size(5, (25, 50, 100, 200, 400, 1000), 1000)
QUICK = Size(1, (25, 100), 100)


def main():
    """Run both experiments, print their tables and save the plot."""
    options = arguments(__doc__, data=False)
    size = QUICK if options.quick else FULL
    target, label = proteins()
    figure, (left, right) = new_axes(2)
    own = accuracy(target, label), clustering_nmi(factor(target), label)
    rows = [["target", "", mean_sd([own[0]]), mean_sd([own[1]], 1, 3)]]
    for name in DIVERGENCES:
        found = np.array(
            [
                [learned(target, label, name, count, seed) for seed in range(size.draws)]
                for count in size.counts
            ]
        )
        for count, (hit, nmi) in zip(size.counts, found.transpose(0, 2, 1), strict=True):
            rows.append([name, count, mean_sd(hit), mean_sd(nmi, 1, 3)])
        hit = 100 * found[:, :, 0]
        left.errorbar(
            size.counts, hit.mean(axis=1), hit.std(axis=1), fmt="o-", color=COLORS[name], label=name
        )
    print_table(["kernel", "pairs", f"accuracy, % ({size.draws} draws)", "NMI"], rows)
    print("\nPaper: the target has 94.8 %, and both learned kernels more with enough pairs.\n")
    rows = []
    for count in size.counts:
        problem = {name: declared(target, label, name, count, 0) for name in DIVERGENCES}
        taken = [cycles(problem[name], options, size.cycles) for name, options in METHODS.values()]
        rows.append([count, *(n or f"more than {size.cycles}" for n in taken)])
    print_table(["pairs", *(f"{name}, cycles" for name in METHODS)], rows)
    print("\nPaper: 11 for von Neumann and 3,220 for DefiniteBoost with 100 pairs; at most 600 with 1,000.")
    for k, name in enumerate(METHODS, start=1):
        known = [(row[0], row[k]) for row in rows if isinstance(row[k], int)]
        right.loglog(*zip(*known, strict=True), "o-", color=COLORS.get(name, "#009E73"), label=name)
    left.axhline(100 * own[0], color=COLORS["start"], lw=1, label="target")
    left.set(xlabel="pairs", xscale="log", ylabel="5-NN accuracy, %")
    right.set(xlabel="pairs", ylabel="cycles to a gap of 1e-3")
    for ax in (left, right):
        ax.legend(frameon=False)
    save(figure, options.output / "gyrb.png")


def declared(target, label, divergence, count, seed):
    """Return the problem of the kernel nearest to I/d with some distances of the target as bounds."""
    d = len(target)
    i, j = np.triu_indices(d, 1)
    drawn = np.random.default_rng(seed).permutation(len(i))[:count]
    i, j = i[drawn], j[drawn]
    distance = target[i, i] + target[j, j] - 2 * target[i, j]
    same = label[i] == label[j]
    K = bo.PSD(d, name="K")
    rows = [
        bo.sq_distance(K, i[same], j[same]) <= distance[same],
        bo.sq_distance(K, i[~same], j[~same]) >= distance[~same],
        bo.trace(K) == 1,
    ]
    return bo.Problem(bo.Minimize(DIVERGENCES[divergence](K, np.eye(d) / d)), rows)


def learned(target, label, divergence, count, seed):
    """Return the accuracy of the learned kernel, and the NMI of its kernel k-means."""
    K = declared(target, label, divergence, count, seed).solve(tol=1e-4).X
    return accuracy(K, label), clustering_nmi(factor(K), label)


def accuracy(K, label):
    """Return the accuracy of 5 neighbors in a kernel, the mean of two-fold splits."""
    points, scores = factor(K), []
    for seed in range(SPLITS):
        for train, test in StratifiedKFold(2, shuffle=True, random_state=seed).split(points, label):
            nearest = KNeighborsClassifier(5).fit(points[train], label[train])
            scores.append(nearest.score(points[test], label[test]))
    return np.mean(scores)


def cycles(problem, options, most):
    """Return the cycles to a certified gap of 1e-3, or None if they are more than `most`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        sol = problem.solve(tol=1e-3, max_iter=most, **options)
    return sol.iterations if sol.status == "optimal" else None


if __name__ == "__main__":
    main()
