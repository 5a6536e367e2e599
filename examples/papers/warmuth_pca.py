"""On-line PCA beside batch PCA on three streams (Warmuth and Kuzmin 2008).

    python examples/papers/warmuth_pca.py [--quick] [--folder DIR]

One stream is near one plane, and one is near three planes in turns. The third is adversarial: each vector is
the coordinate vector that batch PCA of the past has seen most often among those that it compresses to zero.
"""

import argparse
from pathlib import Path

import numpy as np
from common import print_table
from matplotlib.figure import Figure

from bregopt.online import OnlinePCA

N, K = 20, 2
SHIFTS = 2


def main(folder, quick=False):
    """Run the learners, print their losses and draw these over time into a folder."""
    trials = 90 if quick else 3_000
    figure = Figure((9, 3), layout="constrained")
    axes = figure.subplots(1, 3)
    rows = []
    for panel, (name, X) in zip(axes, streams(trials, np.random.default_rng(0)).items(), strict=True):
        best = [loss_of_batch(X), sum(map(loss_of_batch, np.split(X, SHIFTS + 1)))]
        shares = (0, SHIFTS / trials)
        learners = [
            OnlinePCA(K, loss_limit=loss, horizon=trials, share=share)
            for loss, share in zip(best, shares, strict=True)
        ]
        curves = [np.cumsum(losses_of_leader(X)), *(curve(learner, X) for learner in learners)]
        bounds = [
            learner.loss_bound(loss, s) for learner, loss, s in zip(learners, best, (0, SHIFTS), strict=True)
        ]
        for line, label in zip(curves, ("leader", "OnlinePCA", "with a share"), strict=True):
            panel.plot(line, label=label)
        panel.plot(np.cumsum(losses_of_best(X)), "k--", label="best subspace")
        panel.set(title=name, xlabel="trials")
        numbers = [best[0], best[1], *(line[-1] for line in curves[:2]), bounds[0], curves[2][-1], bounds[1]]
        rows.append([name, *(f"{number:.1f}" for number in numbers)])
    axes[0].set_ylabel("total compression loss")
    axes[2].legend(frameon=False)
    figure.savefig(folder / "warmuth_pca.png", dpi=110)
    heading = [
        "stream",
        "best plane",
        "best of each third",
        "leader",
        "OnlinePCA",
        "bound",
        "with a share",
        "bound",
    ]
    print_table(heading, rows)


def streams(trials, rng):
    """Return the streams by name, vectors of at most unit length."""
    planes = [np.linalg.qr(rng.normal(size=(N, N)))[0] for _ in range(SHIFTS + 1)]
    parts = np.split(rng.normal(size=(trials, N)) * np.r_[np.ones(K), np.full(N - K, 0.1)], SHIFTS + 1)
    return {
        "one plane": _unit(np.concatenate([part @ planes[0].T for part in parts])),
        "three planes": _unit(np.concatenate([part @ Q.T for part, Q in zip(parts, planes, strict=True)])),
        "hostile": _hostile(trials),
    }


def losses_of_leader(X):
    """Return the losses of batch PCA of the instances before each."""
    covariance, losses = np.zeros((N, N)), []
    for x in X:
        complement = np.linalg.eigh(covariance)[1][:, : N - K]
        losses.append(float(np.sum((complement.T @ x) ** 2)))
        covariance += np.outer(x, x)
    return np.array(losses)


def losses_of_best(X):
    """Return the losses of the best subspace in hindsight."""
    return np.sum((X @ np.linalg.eigh(X.T @ X)[1][:, : N - K]) ** 2, axis=1)


def loss_of_batch(X):
    """Return the total loss of the best subspace in hindsight."""
    return float(losses_of_best(X).sum())


def curve(learner, X):
    """Return the total loss after each trial."""
    total = []
    for x in X:
        total.append(learner.partial_fit(x[None]).loss_)
    return np.array(total)


def _unit(X):
    return X / np.linalg.norm(X, axis=1).max()


def _hostile(trials):
    counts, picks = np.zeros(N), []
    for _ in range(trials):
        dropped = np.linalg.eigh(np.diag(counts))[1][:, : N - K]
        lost = np.sum(dropped**2, axis=1)
        pick = int(np.argmax(np.where(lost > 0.5, counts, -1.0)))
        counts[pick] += 1
        picks.append(pick)
    return np.eye(N)[picks]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("."))
    given = parser.parse_args()
    main(given.folder, given.quick)
