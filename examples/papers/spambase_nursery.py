"""Spambase and Nursery: low-rank kernels of thousands of points from pairs (Kulis et al. 2009, §7.1).

    OPENBLAS_NUM_THREADS=1 python examples/papers/spambase_nursery.py --data FOLDER

Data: spambase.data, nursery.data (UCI, CC BY 4.0). The kernels have rank 57 and 8. A full kernel of Nursery
would take 1.3 GB, the factor takes 0.8 MB. Features are standardized; otherwise the capital-run columns of
Spambase dominate its kernel. Nursery's nominal attributes are numbered in UCI's order, as the paper does not
say how it codes them. Two of its 12,960 points have a class of their own (recommend).

Pairs are drawn from all points. Their squared distances decrease or increase by a quarter. The bounds are
soft with gamma = 1, as in the paper. Clusters are those of kernel k-means, the best objective of ten starts.
A better objective need not have a better NMI. The paper shows curves only.
"""

import time
from typing import NamedTuple

import numpy as np
from common import COLORS, arguments, clustering_nmi, labeled, mean_sd, new_axes, print_table, save
from sklearn.preprocessing import StandardScaler

from bregopt.learn import KernelLearner

DIVERGENCES = {"LogDet": "logdet", "von Neumann": "von_neumann"}
MOST_CYCLED = 500  # pairs
NURSERY = (
    "usual pretentious great_pret",
    "proper less_proper improper critical very_crit",
    "complete completed incomplete foster",
    "1 2 3 more",
    "convenient less_conv critical",
    "convenient inconv",
    "nonprob slightly_prob problematic",
    "recommended priority not_recom",
)


class Size(NamedTuple):
    """How much is run."""

    points: int | None  # a random sample of so many, or all
    draws: int  # of pairs
    counts: tuple[int, ...]  # of pairs


FULL = Size(None, 10, (50, 100, 200, 500, 1000))
QUICK = Size(500, 1, (50, 100))


def main():
    """Run both sets, print their tables and save the plot."""
    options = arguments(__doc__)
    size = QUICK if options.quick else FULL
    figure, axes = new_axes(4, width=3.6)
    sets = {"Spambase": labeled(options.data / "spambase.data"), "Nursery": nursery(options.data)}
    for ax, right, (name, (X, y)) in zip(axes[:2], axes[2:], sets.items(), strict=True):
        chosen = np.random.default_rng(0).permutation(len(X))[: size.points]
        X, y = StandardScaler().fit_transform(X[chosen]), y[chosen]
        before = clustering_nmi(X, y)
        print(f"\n{name}: {len(X):,} points, rank {X.shape[1]}, NMI of the linear kernel {before:.3f}\n")
        rows = []
        for divergence, kind in DIVERGENCES.items():
            found = np.array(
                [[learned(X, y, kind, count, seed) for seed in range(size.draws)] for count in size.counts]
            )
            taken = {count: cycles(X, y, kind, count) for count in size.counts if count <= MOST_CYCLED}
            for count, runs in zip(size.counts, found, strict=True):
                nmi, steps, seconds = runs.T
                cells = [divergence, count, mean_sd(nmi, 1, 3), taken.get(count, "")]
                rows.append([*cells, f"{np.median(steps):.0f}", f"{np.median(seconds):.2f}"])
            line = {"color": COLORS[divergence], "label": divergence}
            nmi = found[:, :, 0]
            ax.errorbar(size.counts, nmi.mean(axis=1), nmi.std(axis=1), fmt="o-", **line)
            right.plot(taken.keys(), taken.values(), "o-", **line)
        heading = ["divergence", "pairs", f"NMI ({size.draws} draws)", "cycles (first draw)"]
        print_table([*heading, "Newton steps", "seconds"], rows)
        ax.axhline(before, color=COLORS["start"], lw=1, label="linear kernel")
        ax.set(title=f"{name}: NMI of kernel k-means", xscale="log")
        right.set(title=f"{name}: cycles to a gap of 1e-3", xscale="log", ylim=(0, None))
    for ax in axes:
        ax.set(xlabel="pairs", xticks=size.counts, xticklabels=size.counts)
        ax.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    print("\nPaper: curves; von Neumann takes 29 cycles on Spambase with 500 pairs, LogDet many more.")
    save(figure, options.output / "spambase_nursery.png")


def learned(X, y, divergence, count, seed):
    """Return the NMI after learning from pairs, the Newton steps and the seconds that it took."""
    start = time.perf_counter()
    learner = KernelLearner(1.0, divergence=divergence, n_pairs=count, tol=1e-3, random_state=seed).fit(X, y)
    seconds = time.perf_counter() - start
    return clustering_nmi(learner.transform(X), y), learner.n_iter_, seconds


def cycles(X, y, divergence, count):
    """Return how many cycles of projections reach a certified gap of 1e-3."""
    settings = {"tol": 1e-3, "solver_options": {"method": "cyclic"}}
    return KernelLearner(1.0, divergence=divergence, n_pairs=count, **settings).fit(X, y).n_iter_


def nursery(data):
    """Return Nursery with its values numbered."""
    places = [{value: k for k, value in enumerate(values.split())} for values in NURSERY]
    rows = [line.strip().split(",") for line in (data / "nursery.data").read_text().split()]
    X = [[place[value] for place, value in zip(places, row[:-1], strict=True)] for row in rows]
    return np.array(X, dtype=float), np.array([row[-1] for row in rows])


if __name__ == "__main__":
    main()
