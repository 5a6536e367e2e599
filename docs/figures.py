"""Draw the figures of the site: ``python docs/figures.py``.

The curves are drawn from what benchmarks/curves.py measured.
"""

import csv
import warnings
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import matplotlib.cbook
import networkx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import LogLocator
from PIL import Image
from scipy.io import mmread
from sklearn.datasets import load_breast_cancer, load_iris

import bregopt as bo

MEASURED = Path(__file__).parents[1] / "benchmarks" / "results" / "curves.csv"
# Of the palette of Okabe and Ito, told apart by all eyes.
COLORS = {"logdet": "#0072B2", "von_neumann": "#D55E00", "frobenius": "#009E73"}
STYLES = {
    "newton": {"ls": "-", "lw": 1.8, "marker": "o", "ms": 4},
    "cyclic": {"ls": (0, (3, 1.5)), "lw": 1.2, "marker": "o", "ms": 4, "mfc": "white"},
}
NAMES = {"logdet": "LogDet", "von_neumann": "von Neumann", "frobenius": "Frobenius"}
CLUB = Path(__file__).parents[1] / "examples" / "specs" / "karate_laplacian.mtx"
SHOWN = (10, 0.3, 0.03, 1e-4)  # weights at which the vertices of the club are drawn
GIVEN_UP = 200  # rounds of the method as published
SIDES, CROSSING, ROUTE = {1: "#0072B2", -1: "#009E73"}, "#D55E00", "#882255"


def main(folder=Path(__file__).parent / "figures"):
    """Draw all figures into a folder."""
    folder.mkdir(exist_ok=True)
    for name, draw in (
        ("correlation", draw_correlation),
        ("convergence", draw_convergence),
        ("curves_orders", draw_orders),
        ("curves_rows", draw_rows),
        ("central_path", draw_central_path),
        ("generation", draw_generation),
        ("ellipsoids_and_designs", draw_ellipsoids_and_designs),
        ("precision_graph", draw_precision_graph),
        ("spin_glass", draw_spin_glass),
    ):
        figure = Figure(layout="constrained")
        draw(figure)
        drawn = BytesIO()
        figure.savefig(drawn, dpi=144)
        # 256 colors are enough, and a third of the bytes.
        Image.open(drawn).convert("RGB").quantize(256).save(folder / f"{name}.png", optimize=True)


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
    for method, color in (("cyclic", "tab:orange"), ("newton", "tab:blue")):
        history = problem.solve(method=method, tol=1e-6).history
        worst = np.maximum(history["gap"], history["primal_residual"])
        left.loglog(history["iteration"] + 1, worst, ".-", ms=4, color=color, label=method)
    left.set(title="bregman: gap or residual, the larger", xlabel="cycles or steps, plus one")
    left.legend(frameon=False)
    history = margin_problem().solve(solver="psdboost").history
    right.plot(history["iteration"], history["primal"], label="value")
    right.plot(history["iteration"], history["dual"], label="best proven bound")
    end = history["primal"][-1]
    right.set(title="psdboost: the bound closes in", xlabel="round", ylim=(0.8 * end, 1.6 * end))
    right.legend(frameon=False)


def draw_precision_graph(figure):
    """Graph of partial correlations of the breast cancer data, as on the page."""
    cancer = load_breast_cancer(as_frame=True)
    graph = bo.graphical_lasso(cancer.data.corr(), 0.2, tol=1e-8).to_networkx()
    figure.set_size_inches(7.5, 4.8)
    ax = figure.subplots()
    place = networkx.kamada_kawai_layout(graph, weight=None)
    weights = np.array([weight for _, _, weight in graph.edges(data="weight")])
    colors = np.where(weights > 0, SIDES[1], CROSSING)
    networkx.draw_networkx_edges(graph, place, ax=ax, width=8 * np.abs(weights), edge_color=colors)
    networkx.draw_networkx_nodes(graph, place, ax=ax, node_size=60, node_color="0.3")
    networkx.draw_networkx_labels(graph, place, ax=ax, font_size=6, verticalalignment="bottom")
    ax.margins(0.1)
    ax.set_axis_off()


def draw_spin_glass(figure):
    """Draw the ground state of a planar spin glass: the largest cut of the negative couplings, proven."""
    side = 16
    grid = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(side, side))
    couplings = np.random.default_rng(3).choice([-1.0, 1.0], grid.number_of_edges())
    for (a, b), coupling in zip(grid.edges, couplings, strict=True):
        grid.edges[a, b]["weight"] = -coupling
    found = bo.max_cut(grid, weights="weight", exact=True)
    figure.set_size_inches(5.6, 5.8)
    ax = figure.subplots()
    spots = np.array([divmod(v, side) for v in grid])
    s = found.partition
    for (a, b), coupling in zip(grid.edges, couplings, strict=True):
        frustrated = coupling * s[a] * s[b] < 0
        ax.plot(
            *spots[[a, b]].T, color=CROSSING if frustrated else "0.8", lw=2.2 if frustrated else 0.9, zorder=1
        )
    for spin, color in SIDES.items():
        ax.scatter(*spots[s == spin].T, s=46, color=color, zorder=2)
    energy = -couplings.sum() - 2 * found.cut
    ax.set(title=f"energy {energy:.0f}, proven least; {found.nodes} node", aspect="equal")
    ax.set_axis_off()


def draw_orders(figure):
    """Time and steps of nearest correlation matrices, against order and condition number."""
    draw_curves(figure, {"n": "order n", "condition": "condition number of X0, n = 100"})


def draw_rows(figure):
    """Time and steps of distance rows, against their number and the rank."""
    labels = {
        "m hard": "hard rows m, n = 100",
        "m soft": "soft rows m, n = 100",
        "r": "rank r, n = 1000, 5000 soft rows",
    }
    draw_curves(figure, labels)


def draw_curves(figure, labels):
    """Time above, steps below, a column for each axis; a cross ends a curve that gave up."""
    figure.set_size_inches(9, 5)
    panels = figure.subplots(2, len(labels), sharex="col", sharey="row")
    for (axis, label), (above, below) in zip(labels.items(), panels.T, strict=True):
        for (divergence, method), (value, seconds, steps, solved) in measured(axis).items():
            color = COLORS[divergence]
            above.loglog(value, seconds, markevery=solved.tolist(), color=color, **STYLES[method])
            # Crosses may coincide: that of LogDet is the larger, below the other.
            size = 10 if divergence == "logdet" else 6
            above.plot(value[~solved], seconds[~solved], "x", color=color, ms=size, mew=2)
            drawn = solved & (steps > 0)  # where the start is the answer there is no step to draw
            below.loglog(value[drawn], steps[drawn], color=color, **STYLES[method])
        below.set_xticks(sorted({x for value, *_ in measured(axis).values() for x in value}))
        below.set_xlabel(label)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("steps or cycles")
    for ax in panels.flat:
        plain(ax)
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        for side in (ax.xaxis, ax.yaxis):
            side.set_major_formatter(lambda x, _: f"{x:g}" if x < 1e4 else f"$10^{{{np.log10(x):.0f}}}$")
    keys = [Line2D([], [], color=COLORS[key], lw=5, label=name) for key, name in NAMES.items()]
    keys += [Line2D([], [], color="0.3", label=method, **style) for method, style in STYLES.items()]
    keys.append(Line2D([], [], color="0.3", ls="", marker="x", ms=6, mew=2, label="not in 30 s"))
    figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), frameon=False)


def measured(axis):
    """Return of each curve along an axis: values, seconds, steps, and where it was solved."""
    curves = defaultdict(list)
    with MEASURED.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["axis"] == axis:
                curves[line["divergence"], line["method"]].append(line)
    return {
        curve: (
            *(np.array([float(line[key]) for line in lines]) for key in ("value", "seconds", "steps")),
            np.array([line["status"] == "optimal" for line in lines]),
        )
        for curve, lines in curves.items()
    }


def draw_central_path(figure):
    """Draw the karate club along the central path of its balanced cut: vertices, value and bound, gap."""
    figure.set_size_inches(9, 5.4)
    L = mmread(CLUB).toarray()
    found = bo.min_balanced_cut(np.diag(L.diagonal()) - L)
    L = L / 4  # <L, X> in edges cut
    mu = np.geomspace(SHOWN[0], SHOWN[-1], 51)
    X, bound = zip(*(central_point(L, weight) for weight in mu), strict=True)
    value, trail = np.array([np.vdot(L, X_mu) for X_mu in X]), vertex_vectors(found.X, X)
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.35])
    for ax, weight in zip(above.subplots(1, len(SHOWN)), SHOWN, strict=True):
        until = int(np.abs(np.log(mu / weight)).argmin()) + 1
        draw_vertices(ax, L, found.partition * found.partition[0], trail[:until])
        ax.set_title(f"$\\mu$ = {weight:g}", fontsize=11)
    left, right = below.subplots(1, 2)
    draw_values(left, mu, value, np.array(bound), found)
    draw_gap(right, mu, value - bound, found)


def draw_vertices(ax, L, side, trail):
    """Draw the graph with its vertices where a trail, of shape (points, n, 2), ends."""
    place = trail[-1]
    ax.add_patch(Circle((0, 0), 1, fc="none", ec="0.8", lw=0.8))
    for i, j in zip(*np.nonzero(np.triu(L, 1)), strict=True):
        crosses = side[i] != side[j]
        ax.plot(*place[[i, j]].T, color=CROSSING if crosses else "0.85", lw=0.9 if crosses else 0.5)
    for i, sign in enumerate(side):
        ax.plot(*trail[:, i].T, color=SIDES[sign], lw=0.7, alpha=0.5)
    ax.scatter(*place.T, c=[SIDES[sign] for sign in side], s=20, ec="white", lw=0.6, zorder=3)
    ax.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal")
    ax.set_axis_off()


def draw_values(ax, mu, value, bound, found):
    """Draw objective and bound of the nearness problems, and of the iterates of the route `path`."""
    ax.fill_between(mu, bound, value, color="0.94")
    ax.semilogx(mu, value, color="0.25")
    ax.semilogx(mu, bound, color="0.25")
    ax.axhline(found.cut, color=CROSSING, lw=1, ls="--")
    for key in ("primal", "dual"):
        ax.plot(found.history["mu"], found.history[key], "o", mfc="white", color=ROUTE, ms=5)
    ax.text(6, 34, "value", color="0.25", va="top")
    ax.text(0.9, -2, "proven bound", color="0.25", va="top")
    ax.text(10, found.cut + 0.7, f"a cut of {found.cut:g}", color=CROSSING)
    ax.set_title("value and bound, in edges cut", fontsize=11)
    ax.set(xlabel="weight $\\mu$", xlim=(14, 1e-3), ylim=(-6, 43))
    plain(ax)


def draw_gap(ax, mu, gap, found):
    """Draw the gap against the weight; on a face of order r it is r times as large."""
    history = found.history
    ax.loglog(mu, gap, color="0.25", label="LogDet nearness at $\\mu$")
    ax.loglog(
        history["mu"],
        history["primal"] - history["dual"],
        "o",
        mfc="white",
        color=ROUTE,
        ms=5,
        label="steps of the route path",
    )
    ax.set_title("their difference is 33 $\\mu$", fontsize=11)
    ax.set(xlabel="weight $\\mu$", xlim=(40, 3e-8))
    ax.legend(frameon=False, loc="lower left")
    plain(ax)


def plain(ax):
    """Take away what is no data."""
    ax.minorticks_off()
    ax.grid(color="0.93", lw=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("0.6")
    ax.tick_params(color="0.6", labelsize=8)


def central_point(L, mu):
    """Return X and the bound that it proves, of the nearest correlation matrix to mu times L's inverse."""
    eigenvalues, U = np.linalg.eigh(L)
    X = bo.PSD(len(L))
    start = bo.LowRank(U[:, 1:] * np.sqrt(mu / eigenvalues[1:]))
    sol = bo.Problem(bo.Minimize(bo.logdet_div(X, start)), [bo.diag(X) == 1]).solve(method="newton", tol=1e-8)
    return sol.X.dense(), -mu * sol.duals[0].sum()


def vertex_vectors(X, along):
    """Return vectors whose products are the matrices along a path, seen in the plane of X; (points, n, 2)."""
    _, U = np.linalg.eigh(X)
    plane = U[:, [-1, -2]]
    plane = plane * np.sign(plane[np.abs(plane).argmax(axis=0), [0, 1]])
    trail = []
    for M in along:
        eigenvalues, V = np.linalg.eigh(M)
        trail.append(V * np.sqrt(np.maximum(eigenvalues, 0)) @ (V.T @ plane))
    return np.array(trail)


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


def draw_generation(figure):
    """Value and bound of `psdboost` with either master, against rounds; gap against seconds."""
    figure.set_size_inches(9, 3.4)
    problem = margin_problem(count=200, order=14)
    masters = {
        'master="psd"': ({"master": "psd"}, COLORS["logdet"]),
        'master="lp"': ({"master": "lp"}, COLORS["frobenius"]),
        "Algorithm 1 as published": (
            {"master": "lp", "cuts_per_round": 1, "smoothing": 0, "max_iter": GIVEN_UP},
            COLORS["von_neumann"],
        ),
    }
    left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
    best = -np.inf
    for name, (options, color) in masters.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            history = problem.solve(solver="psdboost", tol=1e-6, **options).history
        rounds, best = history["iteration"], max(best, history["primal"][-1])
        left.semilogx(rounds, history["primal"], color=color, lw=1.5)
        left.semilogx(rounds, history["dual"], color=color, lw=1.5, ls=(0, (3, 1.5)))
        right.loglog(history["seconds"], history["gap"], color=color, lw=1.5, label=name)
    room = 1.5 * abs(best)
    left.set(title="value, and above it the proven bound", xlabel="round", ylim=(best - room, best + room))
    right.set(title="certified gap", xlabel="seconds", ylim=(1e-7, 3))
    right.legend(frameon=False, fontsize=9, loc="lower left")
    for ax in (left, right):
        plain(ax)


def draw_ellipsoids_and_designs(figure):
    """Draw the smallest ellipse around irises, the largest one in a polygon, and a cubic D-optimal design."""
    figure.set_size_inches(9.6, 3.1)
    around, inside, cubic = figure.subplots(1, 3)
    sepals = load_iris(as_frame=True).data.iloc[:50, :2]
    bo.min_volume_ellipsoid(sepals).plot(ax=around)
    around.set_title("smallest around points")
    t = np.array([0.0, 0.9, 1.5, 2.6, 3.4, 4.4, 5.3])
    A, b = np.column_stack([np.cos(t), np.sin(t)]), np.array([1.0, 1.3, 1.1, 1.2, 0.9, 1.3, 1.0])
    bo.max_volume_inscribed_ellipsoid(A, b).plot(ax=inside)
    inside.set_title("largest in a polygon")
    inside.set_aspect("equal")
    x = np.linspace(-1, 1, 201)
    bo.d_optimal(np.vander(x, 4)).plot(x, ax=cubic)
    cubic.set(title="D-optimal for a cubic", xlabel="x")


def draw_logo(path):
    """Draw correlation matrices with one entry given, and a matrix outside beside the nearest of them."""
    A = np.array([[1, 0.95, -0.85], [0.95, 1, 0.4], [-0.85, 0.4, 1]])
    X = bo.nearest_correlation(A, fixed=[[1, 2]], tol=1e-8).X
    angle = np.linspace(0, 2 * np.pi, 200)
    # det X >= 0 is an ellipse in the other two entries.
    u, v = np.sqrt(1 + A[1, 2]) * np.cos(angle), np.sqrt(1 - A[1, 2]) * np.sin(angle)
    figure = Figure(figsize=(2, 2))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.fill((u + v) / np.sqrt(2), (u - v) / np.sqrt(2), color=COLORS["logdet"], lw=0)
    ax.plot([A[0, 1], X[0, 1]], [A[0, 2], X[0, 2]], color=COLORS["von_neumann"], lw=7, solid_capstyle="round")
    ax.plot(A[0, 1], A[0, 2], "o", color=COLORS["von_neumann"], ms=22)
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
    ax.axis("off")
    figure.savefig(path, transparent=True)


def margin_problem(count=80, order=12):
    """Return the soft-margin metric of PSDBoost, eq. 3, on seeded noise with one telling direction."""
    rng = np.random.default_rng(0)
    far, near = rng.normal(size=(count, order)) + np.eye(order)[0], rng.normal(size=(count, order))
    X, rho, xi = bo.PSD(order), bo.Variable(name="rho"), bo.Variable(count, nonneg=True, name="xi")
    margins = bo.quad_form(far, X) - bo.quad_form(near, X)
    return bo.Problem(bo.Maximize(rho - 4 / count * bo.sum(xi)), [margins >= rho - xi, bo.trace(X) == 1])


if __name__ == "__main__":
    main()
