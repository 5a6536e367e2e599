"""Kernel learning on the digits 3, 8 and 9 (scikit-learn), as in Kulis et al. 2009, §7.1.

A linear kernel of rank 16 is changed as little as possible such that the squared distances of 300 random
pairs of labeled points decrease (same digit) or increase (different digits) by a quarter. The pairs are drawn
from one half of the points; accuracy is measured on the other half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import orthogonal_procrustes

import bregopt as bo
from bregopt.arrays import Array, IntArray
from bregopt.demo.report import Case, Line, compared
from bregopt.errors import require
from bregopt.records import dataclass

__all__ = ["run"]

RANK, PAIRS, SEED = 16, 300, 0
SHRINK = 0.25  # relative change of the squared distances
GAMMA = {"LogDet": 1.0, "von Neumann": 10.0}  # weights of the penalties of relaxed bounds


@dataclass(frozen=True, eq=False)
class Digits:
    """The points as a factor of their kernel, their labels, and the indices of the two halves."""

    factor: Array
    label: IntArray
    train: IntArray
    test: IntArray


def run(verbose: bool) -> Case:
    """Learn the kernel in both divergences; rows are soft because 300 pairs in rank 16 may be infeasible."""
    digits = load_digits()
    pairs = labeled_pairs(digits)
    lines, findings = [], [f"before: {_quality(digits.factor, digits)}"]
    for name, divergence in (("LogDet", bo.logdet_div), ("von Neumann", bo.von_neumann_div)):
        problem = declare(digits, pairs, divergence, GAMMA[name])
        line = compared(f"kernel, {name}", problem, verbose, tol=1e-5, reference_tol=1e-5)
        lines.append(line)
        findings.append(f"{name}: {_quality(_factor(line), digits)}")
    return Case("kernel_learning", lines, findings, lambda figure: _draw(figure, digits, lines))


def declare(digits: Digits, pairs: IntArray, divergence: Any, gamma: float) -> bo.Problem:
    """Return the kernel-learning problem over the range of the linear kernel."""
    G = digits.factor
    i, j = pairs
    b = ((G[i] - G[j]) ** 2).sum(axis=1)
    same = digits.label[i] == digits.label[j]
    X = bo.PSD(len(G), name="K")
    near = bo.sq_distance(X, i[same], j[same]) <= (1 - SHRINK) * b[same]
    far = bo.sq_distance(X, i[~same], j[~same]) >= (1 + SHRINK) * b[~same]
    start = bo.LowRank(G)
    return bo.Problem(bo.Minimize(divergence(X, start)), [bo.soft(near, gamma), bo.soft(far, gamma)])


def load_digits() -> Digits:
    """Return the digits 3, 8, 9 in their leading principal directions, at mean squared length one."""
    data = require("sklearn.datasets", "learn").load_digits()
    kept = np.isin(data.target, (3, 8, 9))
    points = data.data[kept] - data.data[kept].mean(axis=0)
    U, s, _ = np.linalg.svd(points, full_matrices=False)
    G = U[:, :RANK] * s[:RANK]
    G /= np.sqrt((G**2).sum(axis=1).mean())
    order = np.random.default_rng(SEED).permutation(len(G))
    half = len(G) // 2
    return Digits(G, data.target[kept], order[:half], order[half:])


def labeled_pairs(digits: Digits) -> IntArray:
    """Return distinct random pairs of training points, shape ``(2, PAIRS)``."""
    rng = np.random.default_rng(SEED + 1)
    drawn = np.sort(rng.choice(digits.train, size=(4 * PAIRS, 2)), axis=1)
    distinct = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    return rng.permutation(distinct)[:PAIRS].T


def _quality(factor: Array, digits: Digits) -> str:
    """Return the 5-NN accuracy on the held-out half and the NMI of k-means, here kernel k-means."""
    neighbors, cluster = require("sklearn.neighbors", "learn"), require("sklearn.cluster", "learn")
    metrics = require("sklearn.metrics", "learn")
    knn = neighbors.KNeighborsClassifier(5).fit(factor[digits.train], digits.label[digits.train])
    accuracy = knn.score(factor[digits.test], digits.label[digits.test])
    found = cluster.KMeans(3, n_init=10, random_state=SEED).fit_predict(factor)
    nmi = metrics.normalized_mutual_info_score(digits.label, found)
    return f"5-NN accuracy {accuracy:.1%}, clustering NMI {nmi:.3f}"


def _plane(factor: Array) -> Array:
    """Return the points in their two leading principal directions."""
    U, s, _ = np.linalg.svd(factor - factor.mean(axis=0), full_matrices=False)
    return U[:, :2] * s[:2]


def _factor(line: Line) -> Array:
    """Return the factor of an answer of low rank."""
    X = line.solution.X
    assert isinstance(X, bo.LowRank)
    return X.factor


def _draw(figure: Any, digits: Digits, lines: list[Line]) -> None:
    figure.set_size_inches(11, 3.8)
    figure.suptitle("digits in the two leading directions of their kernel")
    axes = figure.subplots(1, 3)
    shown = [("before", digits.factor), *((line.problem, _factor(line)) for line in lines)]
    for ax, (title, factor) in zip(axes, shown, strict=True):
        plane = _plane(factor)
        turn, _ = orthogonal_procrustes(plane, _plane(digits.factor))
        plane = plane @ turn
        for digit in np.unique(digits.label):
            ax.plot(*plane[digits.label == digit].T, ".", ms=4, label=str(digit))
        ax.set(title=title, xticks=[], yticks=[])
    axes[0].legend(frameon=False, title="digit")
