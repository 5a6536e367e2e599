"""Burg gradient, exponentiated gradient and gradient descent under noise (Jain et al. 2007, Figures 1-4).

    python examples/papers/jain_noise.py [--quick] [--folder DIR]

    y_t = u'x_t (1 + v z_t),   z_t uniform on [-1/2, 1/2],

with x_t on the unit sphere in 100 dimensions, and u the absolute values of a point there, which positive
weights can reach. Each method has the learning rate that is best for it on another stream of the same kind.
"""

import argparse
from pathlib import Path

import numpy as np
from common import print_table
from matplotlib.figure import Figure

from bregopt.online import burg, gradient

LEVELS = (0.0, 0.1, 0.2, 0.3)
# Rates that are tried.
RATES = {
    "Burg": np.geomspace(3, 3000, 8),
    "EG": np.geomspace(0.3, 100, 8),
    "gradient descent": np.geomspace(0.02, 0.9, 8),
}


def main(folder, quick=False):
    """Run the methods, print their total losses and draw the curves into a folder."""
    n, trials = (10, 100) if quick else (100, 10_000)
    figure = Figure((9, 2.8), layout="constrained")
    rows = []
    for panel, level in zip(figure.subplots(1, 4), LEVELS, strict=True):
        cells = []
        for name, rates in RATES.items():
            pilot = stream(n, trials, level, seed=1)
            rate = min(rates, key=lambda rate, name=name, pilot=pilot: run(name, rate, *pilot)[0][-1])
            losses, away = run(name, rate, *stream(n, trials, level, seed=2))
            panel.semilogx(np.arange(1, trials + 1), losses, label=name)
            cells.append(f"{losses[-1]:.3f} ({away:.3f})")
        panel.set(title=f"noise {level:.0%}", xlabel="trials")
        rows.append([f"{level:.0%}", *cells])
        if level == 0:
            panel.set_ylabel("total loss")
            panel.legend(frameon=False)
    figure.savefig(folder / "jain_noise.png", dpi=110)
    print("Total loss, and in brackets the distance from u at the end.\n")
    print_table(["noise", *RATES], rows)


def stream(n, trials, level, seed):
    """Return weights, instances and labels."""
    rng = np.random.default_rng(seed)
    u = np.abs(rng.normal(size=n))
    X = rng.normal(size=(trials, n))
    u, X = u / np.linalg.norm(u), X / np.linalg.norm(X, axis=1, keepdims=True)
    return u, X, (X @ u) * (1 + level * rng.uniform(-0.5, 0.5, trials))


def run(name, rate, u, X, y):
    """Return the total loss after each trial, and how far the last weights are from `u`."""
    w = np.full(len(u), u.mean())  # EG keeps its sum and is told it, so all of them are
    losses = np.zeros(len(y))
    for t, (x, label) in enumerate(zip(X, y, strict=True)):
        losses[t] = (w @ x - label) ** 2
        if name == "Burg":
            w = burg.update(w, x, label, min(rate, burg.largest_rate(w, x, label)))
        elif name == "EG":
            w = gradient.exponentiated_gradient(w, x, label, rate)
        else:
            w = gradient.gradient_descent(w, x, label, rate)
    return np.cumsum(losses), float(np.linalg.norm(w - u))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("."))
    given = parser.parse_args()
    main(given.folder, given.quick)
