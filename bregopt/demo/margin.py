"""A soft-margin metric on wine (scikit-learn) with triplets, as in PSDBoost (Shen et al. 2008, §6).

Each training point gives one triplet: its nearest neighbor of the same class should be closer than its
nearest neighbor of another class, by as large a margin as the hinge losses allow (eq. 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bregopt as bo
from bregopt.arrays import Array, IntArray
from bregopt.demo.report import Case, Line, compared
from bregopt.errors import require

__all__ = ["run"]

SEED = 0
TRADE_OFF = 10.0  # C = TRADE_OFF / number of triplets; the problem is bounded from 1 on


def run(verbose: bool) -> Case:
    """Learn the metric on half of the wines and count 1-NN errors on the other half."""
    points, label, train, test = load_wine()
    near, far = differences(points[train], label[train])
    problem = declare(near, far)
    line = compared("margin metric", problem, verbose, tol=1e-6)
    metric = np.asarray(line.solution.X)
    before = _error(points, label, train, test, np.eye(points.shape[1]))
    after = _error(points, label, train, test, metric)
    findings = [
        f"margin {line.solution.u['rho']:.4f} over {len(near)} triplets, metric of rank {line.solution.rank}",
        f"1-NN error on the held-out half {before:.1%} before, {after:.1%} after",
    ]
    return Case("margin_metric", [line], findings, lambda figure: _draw(figure, line))


def declare(near: Array, far: Array) -> bo.Problem:
    """Return eq. 3: maximize the margin less C times the hinge losses, over metrics of trace one."""
    R, D = near.shape
    X, rho, xi = bo.PSD(D, name="X"), bo.Variable(name="rho"), bo.Variable(R, nonneg=True, name="xi")
    return bo.Problem(
        bo.Maximize(rho - TRADE_OFF / R * bo.sum(xi)),
        [bo.quad_form(far, X) - bo.quad_form(near, X) >= rho - xi, bo.trace(X) == 1],
    )


def load_wine() -> tuple[Array, IntArray, IntArray, IntArray]:
    """Return standardized points, labels, and the two halves of a seeded split."""
    data = require("sklearn.datasets", "learn").load_wine()
    points = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    order = np.random.default_rng(SEED).permutation(len(points))
    half = len(points) // 2
    return points, data.target, order[:half], order[half:]


def differences(points: Array, label: IntArray) -> tuple[Array, Array]:
    """Return the differences to the nearest point of the same and of another class, each ``(R, D)``."""
    square = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(square, np.inf)
    same = label[:, None] == label
    nearest_same = np.where(same, square, np.inf).argmin(axis=1)
    nearest_other = np.where(same, np.inf, square).argmin(axis=1)
    return points - points[nearest_same], points - points[nearest_other]


def _error(points: Array, label: IntArray, train: IntArray, test: IntArray, metric: Array) -> float:
    eigenvalues, Q = np.linalg.eigh(metric)
    mapped = points @ (Q * np.sqrt(np.maximum(eigenvalues, 0)))
    knn = require("sklearn.neighbors", "learn").KNeighborsClassifier(1).fit(mapped[train], label[train])
    return 1 - float(knn.score(mapped[test], label[test]))


def _draw(figure: Any, line: Line) -> None:
    figure.set_size_inches(8, 3.6)
    ax, gap = figure.subplots(1, 2)
    history = line.solution.history
    ax.plot(history["iteration"], history["primal"], label="objective")
    ax.plot(history["iteration"], history["dual"], label="proven bound")
    ax.set(title="objective and bound", xlabel="iteration", ylim=_focus(history))
    ax.legend(frameon=False)
    line.solution.plot(gap)


def _focus(history: dict[str, Array]) -> tuple[float, float]:
    """Return limits of the plot without the first iterations, whose values are far from the optimum."""
    later = slice(len(history["primal"]) // 5, None)
    values = np.concatenate([history["primal"][later], history["dual"][later]])
    spread = float(np.ptp(values)) or 1.0
    return float(values.min() - 0.1 * spread), float(values.max() + 0.1 * spread)
