"""Where projections without corrections stop (Kulis et al. 2009, Appendix B, Figure 6).

    python examples/papers/corrections.py [--quick] [--output DIR]

The script finds the point of the simplex nearest to (0.1, 0.1, 0.8) in relative entropy, under two
inequalities. One projection on each satisfies both, but the multiplier of the first is then too large.
Corrections reduce it. The picture shows the point after each cycle through both.
"""

import warnings

import numpy as np
from common import arguments, new_axes, print_table, save

import bregopt as bo

START = np.array([0.1, 0.1, 0.8])
ROWS = np.array([[0.0912, 0.9385, -0.4377], [0.6020, 0.6020, -0.4377]])
BOUNDS = np.array([0.0238, 0.2554])
METHODS = {"without": (False, "#D55E00", 5), "with": (True, "#0072B2", 1.5)}  # color and width of the line
CORNERS = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])


def main():
    """Run both methods, print where they end and draw their cycles in the simplex."""
    options = arguments(__doc__, data=False)
    figure, (ax,) = new_axes(1, width=4.8, height=4.2)
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color="#555555", lw=1)
    for row, bound, shade in zip(ROWS, BOUNDS, ("#009E73", "#CC79A7"), strict=True):
        ax.plot(*(edge(row, bound) @ CORNERS).T, color=shade, lw=1, ls="--")
    rows = []
    for name, (corrections, color, width) in METHODS.items():
        steps = path(corrections, 3 if options.quick else 10)
        ax.plot(
            *(steps @ CORNERS).T, "o-", ms=3 * width**0.5, lw=width, color=color, label=f"{name} corrections"
        )
        end = steps[-1]
        entropy = float(end @ np.log(end / START))
        rows.append([name, *(f"{x:.3f}" for x in end), f"{entropy:.3f}"])
    print_table(["corrections", "x_1", "x_2", "x_3", "relative entropy"], rows)
    ax.set(aspect="equal")
    ax.axis("off")
    ax.legend(frameon=False, loc="upper left")
    save(figure, options.output / "corrections.png")


def path(corrections, most):
    """Return the start and the point after each cycle, shape (cycles + 1, 3)."""
    X = bo.PSD(3, name="X")
    rows = [ROWS @ bo.diag(X) >= BOUNDS, bo.trace(X) == 1]
    problem = bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.diag(START))), rows)
    settings = {"solver": "definiteboost", "step": "exact", "order": "cyclic", "corrections": corrections}
    points = [START]
    for count in range(1, most + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bo.ConvergenceWarning)
            points.append(np.diag(problem.solve(max_iter=count, **settings).X))
    return np.array(points)


def edge(row, bound):
    """Return the two points where a row's line leaves the simplex."""
    found = []
    for a, b in ((0, 1), (1, 2), (2, 0)):
        t = (bound - row[a]) / (row[b] - row[a]) if row[a] != row[b] else np.inf
        if 0 <= t <= 1:
            found.append((1 - t) * np.eye(3)[a] + t * np.eye(3)[b])
    return np.array(found)


if __name__ == "__main__":
    main()
