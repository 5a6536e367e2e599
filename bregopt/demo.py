"""The demo: four real problems, declared, routed, solved, certified and checked against CVXPY.

- Nearest correlation matrix: monthly prices of ten stocks and indices, with gaps (shipped with matplotlib).
  Each pairwise correlation uses the months that two series share. Their matrix has negative eigenvalues, and
  a risk model with it has portfolios of negative variance.
- Kernel learning on the digits 3, 8 and 9 (scikit-learn), as in Kulis et al. 2009, §7.1. A linear kernel of
  rank 16 is changed as little as possible such that the squared distances of 300 random pairs of labeled
  points decrease (same digit) or increase (different digits) by a quarter. The pairs are drawn from one half
  of the points; accuracy is measured on the other half.
- A soft-margin metric on wine (scikit-learn) with triplets, as in PSDBoost (Shen et al. 2008, §6). Each
  training point gives one triplet: its nearest neighbor of the same class should be closer than its nearest
  neighbor of another class, by as large a margin as the hinge losses allow (eq. 3).
- Minimum balanced cut of Zachary's karate club (networkx), with a proof of how good it is. The club split in
  two, and the sides are known. The semidefinite relaxation (Kulis et al. 2009, §6.4) gives a lower bound on
  every balanced cut; rounding gives a cut.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

import bregopt as bo
from bregopt.arrays import Array, IntArray
from bregopt.errors import require
from bregopt.files import replacing
from bregopt.records import dataclass
from bregopt.tables import table_lines

__all__ = ["main"]

_SEED = 0
_RANK, _PAIRS = 16, 300  # of the kernel
_SHRINK = 0.25  # relative change of the squared distances
_GAMMA = {"LogDet": 1.0, "von Neumann": 10.0}  # weights of the penalties of relaxed bounds
_TRADE_OFF = 10.0  # times one over the number of triplets: C; the problem is bounded from 1 on


def main(output: Path, verbose: bool = True) -> int:
    """Run all cases, save their pictures and print the summary.

    Parameters
    ----------
    output : Path
        Folder for the pictures; created if it does not exist.
    verbose : bool
        Print the progress table of each solve.

    Returns
    -------
    int
        The exit status: 0 if all answers agree with the reference, else 4.
    """
    matplotlib: Any = require("matplotlib", "all")
    matplotlib.use("Agg")
    output.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    for number, (title, run) in enumerate(_CASES, start=1):
        _say(f"\n[{number}/{len(_CASES)}] {title}\n")
        case = run(verbose)
        for finding in case.findings:
            _say(f"  {finding}")
        _say(f"  picture: {_saved(case, output)}")
        lines.extend(case.lines)
    agreed = all(line.agrees for line in lines)
    _say(f"\n{summary_table(lines)}\n")
    _say(
        "Every answer agrees with CVXPY within the certified errors."
        if agreed
        else "NOT every answer agrees."
    )
    _say("Try next: bregopt repair YOUR.csv, for the nearest correlation matrix and a report of the changes.")
    return 0 if agreed else 4


def _saved(case: Case, output: Path) -> Path:
    figure_class: Any = require("matplotlib.figure", "plot").Figure
    figure = figure_class(layout="constrained")
    case.draw(figure)
    path = output / f"{case.name}.png"
    with replacing(path) as file:
        figure.savefig(file, dpi=130, format="png")
    return path


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Line:
    """One solved problem beside its reference."""

    problem: str
    solution: bo.Solution
    reference: bo.Solution
    agrees: bool


@dataclass(frozen=True)
class Case:
    """A finished case: its lines, its findings, and its picture."""

    name: str
    lines: Sequence[Line]
    findings: Sequence[str]
    draw: Callable[[Any], None]  # takes an empty matplotlib figure


def compared(
    name: str, problem: bo.Problem, verbose: bool, reference_tol: float = 1e-6, **options: Any
) -> Line:
    """Return the answers of the automatic route and of the reference, and whether they agree.

    Parameters
    ----------
    name : str
        The name of the problem in the table.
    problem : bregopt.Problem
    verbose : bool
        Print the progress of the automatic route.
    reference_tol : float
        Relative tolerance of the reference.
    **options
        Options of the automatic route.
    """
    solution = problem.solve(verbose=verbose, **options)
    reference = problem.solve(solver="cvxpy", tol=reference_tol)
    problem.solution = solution
    return Line(name, solution, reference, agree(solution, reference))


def agree(a: bo.Solution, b: bo.Solution) -> bool:
    """Whether the values of two answers differ by at most the sum of their certified errors."""
    return abs(a.value - b.value) <= a.error + b.error


def summary_table(lines: Sequence[Line]) -> str:
    """Return the table of all lines, one a problem."""
    titles = (
        "problem",
        "route",
        "value",
        "certified gap",
        "CVXPY's value",
        "its gap",
        "agree",
        "seconds",
        "CVXPY",
    )
    rows = [
        (
            line.problem,
            line.solution.solver,
            f"{line.solution.value:.7g}",
            f"{line.solution.gap:.1e}",
            f"{line.reference.value:.7g}",
            f"{line.reference.gap:.1e}",
            "yes" if line.agrees else "NO",
            f"{line.solution.timings['total']:.2f}",
            f"{line.reference.timings['total']:.2f}",
        )
        for line in lines
    ]
    return "\n".join(table_lines(titles, rows, 2))


def correlation_case(verbose: bool) -> Case:
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
        lambda figure: _draw_correlation(figure, names, A, repaired),
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


def _draw_correlation(figure: Any, names: list[str], A: Array, repaired: Array) -> None:
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


@dataclass(frozen=True, eq=False)
class Digits:
    """The points as a factor of their kernel, their labels, and the indices of the two halves."""

    factor: Array
    label: IntArray
    train: IntArray
    test: IntArray


def kernel_case(verbose: bool) -> Case:
    """Learn the kernel in both divergences; rows are soft because 300 pairs in rank 16 may be infeasible."""
    digits = load_digits()
    pairs = labeled_pairs(digits)
    lines, findings = [], [f"before: {_quality(digits.factor, digits)}"]
    for name, divergence in (("LogDet", bo.logdet_div), ("von Neumann", bo.von_neumann_div)):
        problem = kernel_problem(digits, pairs, divergence, _GAMMA[name])
        line = compared(f"kernel, {name}", problem, verbose, tol=1e-5, reference_tol=1e-5)
        lines.append(line)
        findings.append(f"{name}: {_quality(_factor(line), digits)}")
    return Case("kernel_learning", lines, findings, lambda figure: _draw_kernel(figure, digits, lines))


def kernel_problem(digits: Digits, pairs: IntArray, divergence: Any, gamma: float) -> bo.Problem:
    """Return the kernel-learning problem over the range of the linear kernel."""
    G = digits.factor
    i, j = pairs
    b = ((G[i] - G[j]) ** 2).sum(axis=1)
    same = digits.label[i] == digits.label[j]
    X = bo.PSD(len(G), name="K")
    near = bo.sq_distance(X, i[same], j[same]) <= (1 - _SHRINK) * b[same]
    far = bo.sq_distance(X, i[~same], j[~same]) >= (1 + _SHRINK) * b[~same]
    start = bo.LowRank(G)
    return bo.Problem(bo.Minimize(divergence(X, start)), [bo.soft(near, gamma), bo.soft(far, gamma)])


def load_digits() -> Digits:
    """Return the digits 3, 8, 9 in their leading principal directions, at mean squared length one."""
    data = require("sklearn.datasets", "learn").load_digits()
    kept = np.isin(data.target, (3, 8, 9))
    points = data.data[kept] - data.data[kept].mean(axis=0)
    U, s, _ = np.linalg.svd(points, full_matrices=False)
    G = U[:, :_RANK] * s[:_RANK]
    G /= np.sqrt((G**2).sum(axis=1).mean())
    order = np.random.default_rng(_SEED).permutation(len(G))
    half = len(G) // 2
    return Digits(G, data.target[kept], order[:half], order[half:])


def labeled_pairs(digits: Digits) -> IntArray:
    """Return distinct random pairs of training points, shape ``(2, _PAIRS)``."""
    rng = np.random.default_rng(_SEED + 1)
    drawn = np.sort(rng.choice(digits.train, size=(4 * _PAIRS, 2)), axis=1)
    distinct = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    return rng.permutation(distinct)[:_PAIRS].T


def _quality(factor: Array, digits: Digits) -> str:
    """Return the 5-NN accuracy on the held-out half and the NMI of k-means, here kernel k-means."""
    neighbors, cluster = require("sklearn.neighbors", "learn"), require("sklearn.cluster", "learn")
    metrics = require("sklearn.metrics", "learn")
    knn = neighbors.KNeighborsClassifier(5).fit(factor[digits.train], digits.label[digits.train])
    accuracy = knn.score(factor[digits.test], digits.label[digits.test])
    found = cluster.KMeans(3, n_init=10, random_state=_SEED).fit_predict(factor)
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


def _draw_kernel(figure: Any, digits: Digits, lines: list[Line]) -> None:
    figure.set_size_inches(11, 3.8)
    figure.suptitle("digits in the two leading directions of their kernel")
    axes = figure.subplots(1, 3)
    shown = [("before", digits.factor), *((line.problem, _factor(line)) for line in lines)]
    for ax, (title, factor) in zip(axes, shown, strict=True):
        plane = _plane(factor)
        turn, _ = scipy.linalg.orthogonal_procrustes(plane, _plane(digits.factor))
        plane = plane @ turn
        for digit in np.unique(digits.label):
            ax.plot(*plane[digits.label == digit].T, ".", ms=4, label=str(digit))
        ax.set(title=title, xticks=[], yticks=[])
    axes[0].legend(frameon=False, title="digit")


def margin_case(verbose: bool) -> Case:
    """Learn the metric on half of the wines and count 1-NN errors on the other half."""
    points, label, train, test = load_wine()
    near, far = differences(points[train], label[train])
    problem = margin_problem(near, far)
    line = compared("margin metric", problem, verbose, tol=1e-6)
    metric = np.asarray(line.solution.X)
    before = _error(points, label, train, test, np.eye(points.shape[1]))
    after = _error(points, label, train, test, metric)
    findings = [
        f"margin {line.solution.u['rho']:.4f} over {len(near)} triplets, metric of rank {line.solution.rank}",
        f"1-NN error on the held-out half {before:.1%} before, {after:.1%} after",
    ]
    return Case("margin_metric", [line], findings, lambda figure: _draw_margin(figure, line))


def margin_problem(near: Array, far: Array) -> bo.Problem:
    """Return eq. 3: maximize the margin less C times the hinge losses, over metrics of trace one."""
    R, D = near.shape
    X, rho, xi = bo.PSD(D, name="X"), bo.Variable(name="rho"), bo.Variable(R, nonneg=True, name="xi")
    return bo.Problem(
        bo.Maximize(rho - _TRADE_OFF / R * bo.sum(xi)),
        [bo.quad_form(far, X) - bo.quad_form(near, X) >= rho - xi, bo.trace(X) == 1],
    )


def load_wine() -> tuple[Array, IntArray, IntArray, IntArray]:
    """Return standardized points, labels, and the two halves of a seeded split."""
    data = require("sklearn.datasets", "learn").load_wine()
    points = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    order = np.random.default_rng(_SEED).permutation(len(points))
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


def _draw_margin(figure: Any, line: Line) -> None:
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


def cut_case(verbose: bool) -> Case:
    """Cut the club in two halves and compare with the split that happened."""
    networkx = require("networkx", "graph")
    graph = networkx.karate_club_graph()
    cut = bo.min_balanced_cut(graph, verbose=verbose)
    reference = relaxation(networkx.laplacian_matrix(graph, weight=None)).solve(solver="cvxpy")
    line = Line("balanced cut", cut, reference, agree(cut, reference))
    known = np.array([1 if graph.nodes[v]["club"] == "Mr. Hi" else -1 for v in graph])
    differ = int(min(np.sum(cut.partition != known), np.sum(cut.partition != -known)))
    proof = ": no halves cut fewer" if cut.optimal else ""
    crossing = sum(known[i] != known[j] for i, j in graph.edges())
    findings = [
        f"cut of {cut.cut:g} edges, proven at least {cut.bound:.2f}{proof}",
        f"the split that happened crosses {crossing} edges and differs in {differ} of {len(known)} members",
    ]
    return Case(
        "balanced_cut",
        [line],
        findings,
        lambda figure: _draw_cut(figure, networkx, graph, cut.partition, known),
    )


def relaxation(L: Any) -> bo.Problem:
    """Return the semidefinite relaxation, min <L, X> / 4 with unit diagonal and e'Xe = 0.

    The variable is ``Y`` in ``X = V Y V'`` with a basis ``V`` of the vectors orthogonal to ``e``. The problem
    in ``X`` has no interior: general solvers miss its optimum by more than they report.
    """
    V = np.asarray(scipy.linalg.null_space(np.ones((1, L.shape[0]))))
    Y = bo.PSD(V.shape[1], name="Y")
    return bo.Problem(bo.Minimize(bo.inner(V.T @ (L / 4) @ V, Y)), [bo.quad_form(V, Y) == 1])


def _draw_cut(figure: Any, networkx: Any, graph: Any, partition: Any, known: Any) -> None:
    figure.set_size_inches(10, 4.2)
    place = networkx.spring_layout(graph, seed=3)
    for ax, side, title in zip(
        figure.subplots(1, 2),
        (partition, known),
        ("minimum balanced cut", "the split that happened"),
        strict=True,
    ):
        crossing = [side[i] != side[j] for i, j in graph.edges()]
        networkx.draw_networkx_edges(
            graph,
            place,
            ax=ax,
            edge_color=["tab:orange" if c else "0.75" for c in crossing],
            width=[1.8 if c else 0.7 for c in crossing],
        )
        colors = ["tab:blue" if s > 0 else "tab:green" for s in side * side[0]]
        networkx.draw_networkx_nodes(graph, place, ax=ax, node_color=colors, node_size=90)
        networkx.draw_networkx_labels(graph, place, ax=ax, font_size=6, font_color="white")
        ax.set_title(f"{title}: {sum(crossing)} edges cut")
        ax.set_axis_off()


_CASES = (
    ("Nearest correlation matrix: ten price series with gaps", correlation_case),
    ("Kernel learning: digits 3, 8, 9, rank 16, 300 pairs", kernel_case),
    ("Soft-margin metric: wine, one triplet a point", margin_case),
    ("Minimum balanced cut: Zachary's karate club", cut_case),
)
