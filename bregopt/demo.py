"""The demo: four real problems, solved, certified, drawn and checked against CVXPY.

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

import bregopt as bo
from bregopt.arrays import Array, IntArray
from bregopt.display import plot_points, table_lines
from bregopt.errors import require
from bregopt.files import replacing
from bregopt.records import dataclass

_SEED = 0
_RANK, _PAIRS = 16, 300  # of the kernel
# Of the kernels: the weights of the penalties of relaxed bounds.
_DIVERGENCES = (("LogDet", "logdet", 1.0), ("von Neumann", "von_neumann", 10.0))
_TITLES = (
    *("problem", "route", "value", "certified gap", "CVXPY's value", "its gap", "agree"),
    *("seconds", "CVXPY"),
)


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
    _say("\n" + "\n".join([*table_lines(_TITLES, [line.cells for line in lines], 2), ""]))
    _say(
        "Every answer agrees with CVXPY within the certified errors."
        if agreed
        else "NOT every answer agrees."
    )
    _say("Try next: bregopt repair YOUR.csv, for the nearest correlation matrix and a report of the changes.")
    return 0 if agreed else 4


def _saved(case: Case, output: Path) -> Path:
    path = output / f"{case.name}.png"
    figure = np.ravel(case.draw())[0].figure
    with replacing(path) as file:
        figure.savefig(file, dpi=130, format="png")
    return path


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Line:
    """One solved problem beside its reference: their values differ by at most the sum of their errors."""

    problem: str
    solution: bo.Solution
    reference: bo.Solution

    @property
    def agrees(self) -> bool:
        """Whether the certified intervals of both answers overlap."""
        a, b = self.solution, self.reference
        return abs(a.value - b.value) <= a.error + b.error

    @property
    def cells(self) -> tuple[str, ...]:
        """The line in the summary."""
        found, reference = self.solution, self.reference
        values = [text for own in (found, reference) for text in (f"{own.value:.7g}", f"{own.gap:.1e}")]
        seconds = [f"{own.timings['total']:.2f}" for own in (found, reference)]
        return (self.problem, found.solver, *values, "yes" if self.agrees else "NO", *seconds)


@dataclass(frozen=True)
class Case:
    """A finished case: its lines, its findings, and what draws it and returns the axes."""

    name: str
    lines: Sequence[Line]
    findings: Sequence[str]
    draw: Callable[[], Any]


def compared(
    name: str, solve: Callable[..., Any], verbose: bool, reference_tol: float = 1e-6, **options: Any
) -> Line:
    """Return the answers of the automatic route and of the reference.

    Parameters
    ----------
    name : str
        The name of the problem in the table.
    solve : callable
        Takes options of solvers and returns the answer.
    verbose : bool
        Print the progress of the automatic route.
    reference_tol : float
        Relative tolerance of the reference.
    **options
        Options of the automatic route.
    """
    return Line(name, solve(verbose=verbose, **options), solve(solver="cvxpy", tol=reference_tol))


def correlation_case(verbose: bool) -> Case:
    """Repair the broken correlation matrix in the Frobenius norm."""
    names, A = broken_correlation()
    line = compared("nearest correlation", partial(bo.nearest_correlation, A), verbose, tol=1e-8)
    found: Any = line.solution
    before, after = np.linalg.eigvalsh(A)[0], np.linalg.eigvalsh(found.X)[0]
    change = np.abs(found.X - A)
    i, j = (int(k) for k in np.unravel_index(int(change.argmax()), change.shape))
    findings = [
        f"smallest eigenvalue {before:.4f} before, {after:.1e} after; rank {found.rank} of {len(A)}",
        f"largest change {change.max():.3f}: {names[i]} and {names[j]} {A[i, j]:.3f} -> {found.X[i, j]:.3f}",
    ]
    return Case("nearest_correlation", [line], findings, found.plot)


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


def kernel_case(verbose: bool) -> Case:
    """Learn the kernel in both divergences; rows are soft because 300 pairs in rank 16 may be infeasible."""
    factor, label, train, test = load_digits()
    i, j = labeled_pairs(train).T
    same = label[i] == label[j]
    near, far = np.stack([i[same], j[same]], axis=1), np.stack([i[~same], j[~same]], axis=1)
    lines, findings = [], [f"before: {_quality(factor, label, train, test)}"]
    for name, divergence, gamma in _DIVERGENCES:
        solve = partial(bo.learn_kernel, bo.LowRank(factor), near, far, divergence=divergence, gamma=gamma)
        line = compared(f"kernel, {name}", solve, verbose, tol=1e-5, reference_tol=1e-5)
        lines.append(line)
        findings.append(f"{name}: {_quality(_factor(line), label, train, test)}")
    return Case("kernel_learning", lines, findings, partial(plot_points, factor, _factor(lines[0]), label))


def load_digits() -> tuple[Array, IntArray, IntArray, IntArray]:
    """Return the digits 3, 8, 9 in their leading principal directions, labels, and two halves.

    The points are the rows of a factor of their kernel, at mean squared length one.
    """
    data = require("sklearn.datasets", "learn").load_digits()
    kept = np.isin(data.target, (3, 8, 9))
    points = data.data[kept] - data.data[kept].mean(axis=0)
    U, s, _ = np.linalg.svd(points, full_matrices=False)
    G = U[:, :_RANK] * s[:_RANK]
    G /= np.sqrt((G**2).sum(axis=1).mean())
    return G, data.target[kept], *_halves(len(G))


def _halves(n: int) -> tuple[IntArray, IntArray]:
    """Return the indices of the two halves of a seeded split."""
    order = np.random.default_rng(_SEED).permutation(n)
    return order[: n // 2], order[n // 2 :]


def labeled_pairs(train: IntArray) -> IntArray:
    """Return distinct random pairs of training points, shape ``(_PAIRS, 2)``."""
    rng = np.random.default_rng(_SEED + 1)
    drawn = np.sort(rng.choice(train, size=(4 * _PAIRS, 2)), axis=1)
    distinct = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    return rng.permutation(distinct)[:_PAIRS]


def _quality(factor: Array, label: IntArray, train: IntArray, test: IntArray) -> str:
    """Return the 5-NN accuracy on the held-out half and the NMI of k-means, here kernel k-means."""
    cluster, metrics = require("sklearn.cluster", "learn"), require("sklearn.metrics", "learn")
    found = cluster.KMeans(3, n_init=10, random_state=_SEED).fit_predict(factor)
    nmi = metrics.normalized_mutual_info_score(label, found)
    return f"5-NN accuracy {_accuracy(factor, label, train, test, 5):.1%}, clustering NMI {nmi:.3f}"


def _accuracy(points: Array, label: IntArray, train: IntArray, test: IntArray, neighbors: int) -> float:
    """Return the share of held-out points that nearest neighbors classify."""
    knn = require("sklearn.neighbors", "learn").KNeighborsClassifier(neighbors)
    return float(knn.fit(points[train], label[train]).score(points[test], label[test]))


def _factor(line: Line) -> Array:
    """Return the factor of an answer of low rank."""
    X = line.solution.X
    assert isinstance(X, bo.LowRank)
    return X.factor


def margin_case(verbose: bool) -> Case:
    """Learn the metric on half of the wines and count 1-NN errors on the other half."""
    data = require("sklearn.datasets", "learn").load_wine()
    points, label = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0), data.target
    train, test = _halves(len(points))
    near, far = differences(points[train], label[train])
    line = compared("margin metric", partial(bo.soft_margin, (far, near)), verbose, tol=1e-6)
    eigenvalues, Q = np.linalg.eigh(np.asarray(line.solution.X))
    mapped = points @ (Q * np.sqrt(np.maximum(eigenvalues, 0)))
    before, after = (1 - _accuracy(own, label, train, test, 1) for own in (points, mapped))
    findings = [
        f"margin {line.solution.u['rho']:.4f} over {len(near)} triplets, metric of rank {line.solution.rank}",
        f"1-NN error on the held-out half {before:.1%} before, {after:.1%} after",
    ]
    return Case("margin_metric", [line], findings, partial(plot_points, points, mapped, label))


def differences(points: Array, label: IntArray) -> tuple[Array, Array]:
    """Return the differences to the nearest point of the same and of another class, each ``(R, D)``."""
    square = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(square, np.inf)
    same = label[:, None] == label
    nearest_same = np.where(same, square, np.inf).argmin(axis=1)
    nearest_other = np.where(same, np.inf, square).argmin(axis=1)
    return points - points[nearest_same], points - points[nearest_other]


def cut_case(verbose: bool) -> Case:
    """Cut the club in two halves and compare with the split that happened."""
    networkx = require("networkx", "graph")
    graph = networkx.karate_club_graph()
    cut = bo.min_balanced_cut(graph, verbose=verbose)
    reference = relaxation(networkx.laplacian_matrix(graph, weight=None)).solve(solver="cvxpy")
    known = np.array([1 if graph.nodes[v]["club"] == "Mr. Hi" else -1 for v in graph])
    differ = int(min(np.sum(cut.partition != known), np.sum(cut.partition != -known)))
    proof = ": no halves cut fewer" if cut.optimal else ""
    crossing = sum(known[i] != known[j] for i, j in graph.edges())
    findings = [
        f"cut of {cut.cut:g} edges, proven at least {cut.bound:.2f}{proof}",
        f"the split that happened crosses {crossing} edges and differs in {differ} of {len(known)} members",
    ]
    return Case("balanced_cut", [Line("balanced cut", cut, reference)], findings, cut.plot)


def relaxation(L: Any) -> bo.Problem:
    """Return the semidefinite relaxation, min <L, X> / 4 with unit diagonal and e'Xe = 0.

    The variable is ``Y`` in ``X = V Y V'`` with a basis ``V`` of the vectors orthogonal to ``e``. The problem
    in ``X`` has no interior: general solvers miss its optimum by more than they report.
    """
    V = np.asarray(scipy.linalg.null_space(np.ones((1, L.shape[0]))))
    Y = bo.PSD(V.shape[1], name="Y")
    return bo.Problem(bo.Minimize(bo.inner(V.T @ (L / 4) @ V, Y)), [bo.quad_form(V, Y) == 1])


_CASES = (
    ("Nearest correlation matrix: ten price series with gaps", correlation_case),
    ("Kernel learning: digits 3, 8, 9, rank 16, 300 pairs", kernel_case),
    ("Soft-margin metric: wine, one triplet a point", margin_case),
    ("Minimum balanced cut: Zachary's karate club", cut_case),
)
