"""Burg gradient, exponentiated gradient and gradient descent under noise (Jain et al. 2007, Figures 1-4).

    python examples/papers/jain_noise.py [--quick] [--folder DIR]

    y_t = u'x_t (1 + v z_t),   z_t uniform on [-1/2, 1/2],

with u and x_t on the unit sphere in 100 dimensions. One u is as drawn, as in the paper; the other has
absolute values, which positive weights can reach. All methods start at equal weights: 1/N each, which uses
nothing of u, or the mean of abs(u), which uses its sum. Each method has the learning rate that is best for it
on another stream of the same kind. The Burg gradient runs with the rates of this package, and with those of
the paper, which only decrease.
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
    "Burg, decreasing": np.geomspace(3, 3000, 8),
    "EG": np.geomspace(0.3, 100, 8),
    "gradient descent": np.geomspace(0.02, 0.9, 8),
}


def main(folder, quick=False):
    """Run the methods, print their total losses and draw the curves into a folder."""
    size = (10, 100) if quick else (100, 10_000)
    figure = Figure((9, 3.1), layout="constrained")
    told = []
    for panel, level in zip(figure.subplots(1, 4), LEVELS, strict=True):
        results = {name: tuned(name, *size, level) for name in RATES}
        for name, (losses, _) in results.items():
            panel.semilogx(np.arange(1, len(losses) + 1), losses, label=name)
        panel.set(title=f"noise {level:.0%}", xlabel="trials")
        told.append(row(level, results))
        if level == 0:
            panel.set_ylabel("total loss")
            figure.legend(loc="outside lower center", ncols=len(RATES), frameon=False)
    figure.savefig(folder / "jain_noise.png", dpi=110)
    print("Total loss from 1/N, and in brackets the distance from u at the end.\n")
    print_table(["noise", *RATES], table(size, start="1/N"))
    print("\nThe same from the mean of abs(u).\n")
    print_table(["noise", *RATES], told)
    print("\nThe same from the mean of abs(u), for u with its signs.\n")
    print_table(["noise", *RATES], table(size, signs=True))


def table(size, **options):
    """Return the rows of a table."""
    return [row(level, {name: tuned(name, *size, level, **options) for name in RATES}) for level in LEVELS]


def row(level, results):
    """Return a row of a table."""
    return [f"{level:.0%}", *(f"{losses[-1]:.3f} ({away:.3f})" for losses, away in results.values())]


def tuned(name, n, trials, level, signs=False, start="mean"):
    """Return the total losses with the rate that is best on another stream, and the distance at the end."""
    pilot = stream(n, trials, level, signs, seed=1)
    rate = min(RATES[name], key=lambda rate: run(name, rate, *pilot, start)[0][-1])
    return run(name, rate, *stream(n, trials, level, signs, seed=2), start)


def stream(n, trials, level, signs, seed):
    """Return weights, instances and labels."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    u = u if signs else np.abs(u)
    X = rng.normal(size=(trials, n))
    u, X = u / np.linalg.norm(u), X / np.linalg.norm(X, axis=1, keepdims=True)
    return u, X, (X @ u) * (1 + level * rng.uniform(-0.5, 0.5, trials))


def run(name, rate, u, X, y, start):
    """Return the total loss after each trial, and how far the last weights are from `u`."""
    # EG keeps the sum of its weights: from 1/N it represents no u of another sum.
    w = np.full(len(u), 1 / len(u) if start == "1/N" else np.abs(u).mean())
    losses = np.zeros(len(y))
    for t, (x, label) in enumerate(zip(X, y, strict=True)):
        losses[t] = (w @ x - label) ** 2
        if name == "Burg":
            w = burg.update(w, x, label, min(rate, burg.largest_rate(w, x, label)))
        elif name == "Burg, decreasing":
            seen = burg.trial(w, x)
            slope = 2 * (seen.prediction - label)
            rate = min(rate, burg.rate_limit(seen, slope))
            w = burg.move(w, seen, rate * slope)
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
