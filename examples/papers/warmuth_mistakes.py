"""Mistakes of Symmetric Matrix Winnow against 7.18 r ln(n/r) of Theorem 2 (Warmuth 2007).

    python examples/papers/warmuth_mistakes.py [--quick] [--folder DIR]

A hidden subspace of rank r labels unit vectors: 1 if at least half of their squared length is in it, -1 if
none is. The random stream has vectors as drawn. The hard stream has, of each 30 vectors drawn, one that the
learner gets wrong, if there is one.
"""

import argparse
from pathlib import Path

import numpy as np
from common import print_table
from matplotlib.figure import Figure

from bregopt.online import MatrixWinnow

CANDIDATES = 30


def main(folder, quick=False):
    """Count mistakes over n and r, print the table and draw it into a folder."""
    orders, ranks, trials = ((8, 16), (1, 2), 60) if quick else ((8, 16, 32, 64), (1, 2, 4), 600)
    figure = Figure((8, 3), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    rows = []
    for r, color in zip(ranks, ("C0", "C1", "C2"), strict=False):
        bounds, found = [], []
        for n in orders:
            seeds = range(1 if quick else 5)
            found.append(
                [np.mean([mistakes(n, r, trials, hard, s) for s in seeds]) for hard in (False, True)]
            )
            bounds.append(7.18 * r * np.log(n / r))
            rows.append([n, r, *(f"{count:.1f}" for count in (*found[-1], bounds[-1]))])
        for panel, counts in zip(axes, np.array(found).T, strict=True):
            panel.semilogx(orders, counts, "o-", color=color, label=f"r = {r}")
            panel.semilogx(orders, bounds, "--", color=color)
    for panel, name in zip(axes, ("random stream", "hard stream"), strict=True):
        panel.set(title=name, xlabel="n", xticks=orders, xticklabels=orders)
        panel.minorticks_off()
    axes[0].set_ylabel("mistakes; bound dashed")
    axes[0].legend(frameon=False)
    figure.savefig(folder / "warmuth_mistakes.png", dpi=110)
    print_table(["n", "r", "random", "hard", "bound"], rows)


def mistakes(n, r, trials, hard, seed):
    """Return the mistakes on one stream."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    learner = MatrixWinnow(rank=r)
    learner.partial_fit(*labeled(rng, Q, r, 1))
    for _ in range(trials - 1):
        x, y = labeled(rng, Q, r, CANDIDATES if hard else 1)
        wrong = np.flatnonzero(learner.predict(x) != y)
        pick = wrong[:1] if len(wrong) else [0]
        learner.partial_fit(x[pick], y[pick])
    assert learner.mistakes_ <= learner.mistake_bound()
    return learner.mistakes_


def labeled(rng, Q, r, count):
    """Return unit vectors and their labels, both kinds as often."""
    coordinates = rng.normal(size=(count, len(Q)))
    inside, outside = coordinates[:, :r].copy(), coordinates[:, r:].copy()
    y = rng.choice([-1.0, 1.0], count)
    share = np.where(y > 0, rng.uniform(0.5, 1, count), 0.0)
    inside *= np.sqrt(share / (inside**2).sum(axis=1))[:, None]
    outside *= np.sqrt((1 - share) / (outside**2).sum(axis=1))[:, None]
    return np.hstack([inside, outside]) @ Q.T * (1 - 1e-12), y


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("."))
    given = parser.parse_args()
    main(given.folder, given.quick)
