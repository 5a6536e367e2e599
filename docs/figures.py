"""Draw the two figures of the site: ``python docs/figures.py``."""

from pathlib import Path

import matplotlib.cbook
import numpy as np
from matplotlib.figure import Figure

import bregopt as bo


def main(folder=Path(__file__).parent / "figures"):
    """Draw both figures into a folder."""
    folder.mkdir(exist_ok=True)
    for name, draw in (("correlation", draw_correlation), ("convergence", draw_convergence)):
        figure = Figure(layout="constrained")
        draw(figure)
        figure.savefig(folder / f"{name}.png", dpi=90)


def draw_correlation(figure):
    """Pairwise correlations of ten price series with gaps, and the nearest correlation matrix."""
    names, A = stock_correlations()
    X = bo.nearest_correlation(A, tol=1e-8).X
    figure.set_size_inches(9, 3.2)
    before, after, spectrum = figure.subplots(1, 3, width_ratios=[1, 1, 1.15])
    for ax, matrix, title in ((before, A, "pairwise"), (after, X, "nearest correlation matrix")):
        image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
        ax.set(title=title, yticks=[])
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    figure.colorbar(image, ax=[before, after], shrink=0.8)
    number = np.arange(1, len(A) + 1)
    spectrum.axhline(0, color="0.7", lw=0.8)
    spectrum.plot(number, np.linalg.eigvalsh(A), "o", color="tab:red", label="pairwise")
    spectrum.plot(number, np.linalg.eigvalsh(X), "x", color="tab:blue", label="nearest")
    spectrum.set_yscale("symlog", linthresh=0.1)
    spectrum.set(title="eigenvalues", xticks=number)
    spectrum.legend(frameon=False)


def draw_convergence(figure):
    """Certified gaps of the two methods of `bregman`; value and bound of `psdboost`."""
    figure.set_size_inches(9, 3.2)
    left, right = figure.subplots(1, 2)
    problem = smooth_covariance_problem()
    for method, colour in (("cyclic", "tab:orange"), ("newton", "tab:blue")):
        history = problem.solve(method=method, tol=1e-6).history
        worst = np.maximum(history["gap"], history["primal_residual"])
        left.loglog(history["iteration"] + 1, worst, ".-", ms=4, color=colour, label=method)
    left.set(title="bregman: gap or residual, the larger", xlabel="cycles or steps, plus one")
    left.legend(frameon=False)
    history = margin_problem().solve(solver="psdboost").history
    right.plot(history["iteration"], history["primal"], label="value")
    right.plot(history["iteration"], history["dual"], label="best proven bound")
    end = history["primal"][-1]
    right.set(title="psdboost: the bound closes in", xlabel="round", ylim=(0.8 * end, 1.6 * end))
    right.legend(frameon=False)


def stock_correlations():
    """Return names and correlations of log prices, each over the months that two series share."""
    with matplotlib.cbook.get_sample_data("Stocks.csv") as file:
        table = np.genfromtxt(file, delimiter=",", skip_header=1, names=True, dtype=None, encoding="utf-8")
    names = list(table.dtype.names)[1:]
    prices = np.log(np.column_stack([table[name] for name in names]))
    A = np.eye(len(names))
    for i in range(len(names)):
        for j in range(i):
            both = np.isfinite(prices[:, i]) & np.isfinite(prices[:, j])
            A[i, j] = A[j, i] = np.corrcoef(prices[both, i], prices[both, j])[0, 1]
    return names, A


def smooth_covariance_problem():
    """Return LogDet nearness of a smooth covariance, with a condition number of 1e4, to a unit diagonal."""
    order = np.arange(40)
    scale = np.sqrt(1 + order % 7)
    correlation = np.exp(-((order[:, None] - order) ** 2) / 8) + 1e-3 * np.eye(40)
    X = bo.PSD(40, name="X")
    start = scale[:, None] * correlation * scale
    return bo.Problem(bo.Minimize(bo.logdet_div(X, start)), [bo.diag(X) == 1])


def margin_problem():
    """Return the soft-margin metric of PSDBoost, eq. 3, on seeded noise with one telling direction."""
    rng = np.random.default_rng(0)
    far, near = rng.normal(size=(80, 12)) + np.eye(12)[0], rng.normal(size=(80, 12))
    X, rho, xi = bo.PSD(12), bo.Variable(name="rho"), bo.Variable(80, nonneg=True, name="xi")
    margins = bo.quad_form(far, X) - bo.quad_form(near, X)
    return bo.Problem(bo.Maximize(rho - 0.05 * bo.sum(xi)), [margins >= rho - xi, bo.trace(X) == 1])


if __name__ == "__main__":
    main()
