"""Nearest correlation matrix: monthly prices of ten stocks and indices, with gaps (shipped with matplotlib).

Each pairwise correlation uses the months that two series share. Their matrix has negative eigenvalues, and a
risk model with it has portfolios of negative variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bregopt as bo
from bregopt.arrays import Array
from bregopt.demo.report import Case, compared
from bregopt.errors import require

__all__ = ["run"]


def run(verbose: bool) -> Case:
    """Repair the broken correlation matrix in the Frobenius norm."""
    names, A = broken_correlation()
    n = len(A)
    X = bo.PSD(n, name="X")
    problem = bo.Problem(bo.Minimize(bo.frobenius_div(X, A)), [bo.diag(X) == 1])
    line = compared("nearest correlation", problem, verbose, tol=1e-8)
    repaired = np.asarray(line.solution.X)
    before, after = np.linalg.eigvalsh(A)[0], np.linalg.eigvalsh(repaired)[0]
    change = np.abs(repaired - A)
    i, j = (int(k) for k in np.unravel_index(int(change.argmax()), change.shape))
    findings = [
        f"smallest eigenvalue {before:.4f} before, {after:.1e} after; rank {line.solution.rank} of {n}",
        f"largest change {change.max():.3f}: {names[i]} and {names[j]} {A[i, j]:.3f} -> {repaired[i, j]:.3f}",
    ]
    return Case(
        "nearest_correlation",
        [line],
        findings,
        lambda figure: _draw(figure, names, A, repaired),
    )


def broken_correlation() -> tuple[list[str], Array]:
    """Return names and pairwise-complete correlations of the logarithms of the prices."""
    with require("matplotlib.cbook", "plot").get_sample_data("Stocks.csv") as file:
        table = np.genfromtxt(file, delimiter=",", skip_header=1, names=True, dtype=None, encoding="utf-8")
    names = list(table.dtype.names or ())[1:]
    prices = np.log(np.column_stack([table[name] for name in names]))
    n = len(names)
    A = np.eye(n)
    for i in range(n):
        for j in range(i):
            both = np.isfinite(prices[:, i]) & np.isfinite(prices[:, j])
            A[i, j] = A[j, i] = np.corrcoef(prices[both, i], prices[both, j])[0, 1]
    return names, A


def _draw(figure: Any, names: list[str], A: Array, repaired: Array) -> None:
    figure.set_size_inches(11, 3.6)
    axes = figure.subplots(1, 3, width_ratios=[1, 1, 1.1])
    for ax, matrix, title in zip(
        axes, (A, repaired), ("pairwise correlations", "nearest correlation"), strict=False
    ):
        image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        ax.set_yticks(range(len(names)), names, fontsize=7)
        ax.set_title(title)
    figure.colorbar(image, ax=axes[:2], shrink=0.85)
    k = np.arange(1, len(names) + 1)
    axes[2].axhline(0, color="0.6", lw=0.8)
    axes[2].plot(k, np.linalg.eigvalsh(A), "o", color="tab:red", label="before")
    axes[2].plot(k, np.linalg.eigvalsh(repaired), "x", color="tab:blue", label="after")
    axes[2].set_yscale("symlog", linthresh=0.01)
    axes[2].set(title="eigenvalues", xlabel="number", xticks=k)
    axes[2].legend(frameon=False)
