"""Figures 2 and 3 of Tsuda, Rätsch and Warmuth (2005): a kernel learned from distances.

    python examples/papers/tsuda_kernels.py [--quick] [--folder DIR]

The 52 x 52 kernel of proteins of three species of bacteria is not public. The script uses a kernel of 52
points in three clusters. Online, MEG sees the squared distance of one random pair at a time; the plot shows
its loss and the bound of Lemma 3.2. By projection, DefiniteBoost finds the kernel nearest to I/d in which all
pairs are near that are near in the target. Both kernels predict the labels of half of the points from the
nearest points of the other half.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from common import print_table, proteins
from matplotlib.figure import Figure

import bregopt as bo
from bregopt.online import MEG

D, SPLITS = 52, 10


def main(folder, quick=False):
    """Run both experiments, print their tables and draw the figures into a folder."""
    target, label = proteins()
    online(target, label, 500 if quick else 100_000, folder)
    projected(target, label, 12 if quick else 400, folder)


def error(K, label):
    """Return the error of the nearest neighbor in a kernel, the mean of ten splits in halves."""
    norms = np.diag(K)
    distance = norms[:, None] + norms - 2 * K
    missed = []
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(D)
        train, test = order[: D // 2], order[D // 2 :]
        nearest = train[np.argmin(distance[np.ix_(test, train)], axis=1)]
        missed.append(np.mean(label[nearest] != label[test]))
    return float(np.mean(missed))


def online(target, label, trials, folder):
    """Figure 2: the loss of MEG and its bound, and the error of what it has learned."""
    rng = np.random.default_rng(1)
    learner, at, losses, errors = MEG(), [], [], []
    marks = np.unique(np.geomspace(10, trials, 25).astype(int))
    for count in np.diff(marks, prepend=0):
        i = rng.integers(D, size=count)
        j = (i + rng.integers(1, D, size=count)) % D
        x = (np.eye(D)[i] - np.eye(D)[j]) / np.sqrt(2)  # x x' is the paper's X_t
        learner.partial_fit(x, np.einsum("ti,ij,tj->t", x, target, x))
        at.append(learner.steps_)
        losses.append(learner.loss_)
        errors.append(error(learner.W_, label))
    bound, best = learner.loss_bound(target), error(target, label)
    print(f"MEG, eta = {learner.eta_:g}; the error of the target is {best:.3f}.\n")
    rows = [
        [f"{t:,}", f"{loss:.3f}", f"{bound:.3f}", f"{bound / loss:.1f}", f"{missed:.3f}"]
        for t, loss, missed in zip(at, losses, errors, strict=True)
    ]
    print_table(["trials", "loss of MEG", "bound", "bound / loss", "error of 1-NN"], rows[::4])
    figure = Figure((8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogx(at, losses, label="MEG")
    left.axhline(bound, ls="--", color="C1", label="bound of Lemma 3.2")
    left.set(xlabel="trials", ylabel="total loss", ylim=(0, None))
    left.legend(frameon=False)
    right.semilogx(at, errors, label="learned kernel")
    right.axhline(best, ls="--", color="C1", label="target")
    right.set(xlabel="trials", ylabel="error of the nearest neighbor", ylim=(0, None))
    right.legend(frameon=False)
    figure.savefig(folder / "tsuda_figure2.png", dpi=110)


def projected(target, label, steps, folder):
    """Figure 3: the dual of DefiniteBoost, and the error of what it has found."""
    i, j = np.triu_indices(D, 1)
    distance = target[i, i] + target[j, j] - 2 * target[i, j]
    gamma = np.quantile(distance, 0.3)
    near = distance <= gamma
    X = bo.PSD(D, name="X")
    rows = [bo.sq_distance(X, i[near], j[near]) <= gamma, bo.trace(X) == 1]
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(D) / D)), rows)
    figure = Figure((8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    optimum = problem.solve(solver="bregman").value
    print(f"\nDefiniteBoost on {near.sum()} similar pairs; the optimum is {optimum:.3f}.\n")
    rows = []
    for step in ("approximate", "exact"):
        options = {"solver": "definiteboost", "step": step, "corrections": False}
        sol = cut_short(problem, **options, max_iter=steps)
        left.semilogx(np.maximum(sol.history["iteration"], 1), sol.history["dual"], label=f"{step} steps")
        at = np.unique(np.geomspace(1, sol.iterations, 12).astype(int))
        errors = []
        for count in at:
            early = cut_short(problem, **options, max_iter=int(count))
            errors.append(error(early.X, label))
            if count in at[::4] or count == at[-1]:
                violation = early.history["violation"][-1]
                rows.append([step, count, f"{early.dual_value:.3f}", f"{violation:.0e}", f"{errors[-1]:.3f}"])
        right.semilogx(at, errors, label=f"{step} steps")
    left.axhline(optimum, ls="--", color="0.5", label="optimum")
    right.axhline(error(target, label), ls="--", color="0.5", label="target")
    left.set(xlabel="steps", ylabel="dual objective")
    right.set(xlabel="steps", ylabel="error of the nearest neighbor", ylim=(0, None))
    left.legend(frameon=False)
    right.legend(frameon=False, loc="upper right")
    figure.savefig(folder / "tsuda_figure3.png", dpi=110)
    print_table(["steps by", "steps", "dual", "largest violation", "error of 1-NN"], rows)


def cut_short(problem, **options):
    """Solve, without a word where the steps do not suffice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        return problem.solve(**options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("."))
    given = parser.parse_args()
    main(given.folder, given.quick)
