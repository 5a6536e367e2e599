"""Many soft rows in memory: `bo.Problem` with L-BFGS over the rows first, and with Newton's method alone.

    OPENBLAS_NUM_THREADS=1 python benchmarks/soft_rows.py [--quick]

The problems are pairs of 5,000 clustered points, as in many_rows.py, at a tolerance of 1e-6. "auto" begins
with L-BFGS where its rule holds, and ``method="newton"`` does not. CPU seconds are the least of two runs in
turns, with the declaration of the problem; one run from a million numbers of the rows on. The table goes to
benchmarks/results/soft_rows.md.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import many_rows
import numpy as np

import bregopt as bo

RESULT = Path(__file__).parent / "results" / "soft_rows.md"
POINTS = 5_000
SIZES = ((1_000, 10), (3_200, 16), (10_000, 20), (30_000, 5), (10_000, 50), (30_000, 50), (30_000, 100))
DIVERGENCES = {"LogDet": bo.logdet_div, "von Neumann": bo.von_neumann_div}
GAMMAS = (0.01, 1.0, 10.0, 100.0)
SLOW = 1e9  # operations m r^2 gamma of LogDet above which Newton's method alone takes minutes


def blocks(m, r):
    """Return points, pairs, bounds and senses."""
    rng = np.random.default_rng(0)
    many_rows.POINTS = POINTS
    points, label = many_rows.clustered(r, rng)
    pairs, bounds, senses = zip(*many_rows.blocks_of_pairs(points, label, m, rng), strict=True)
    return points, np.concatenate(pairs), np.concatenate(bounds), np.concatenate(senses)


def solved(name, gamma, data, method):
    """Return the solution and its CPU seconds."""
    points, pairs, bound, sense = data
    begin = time.process_time()
    X, near = bo.PSD(len(points), name="X"), sense < 0
    d = bo.sq_distance(X, *pairs.T)
    rows = [bo.soft(d[near] <= bound[near], gamma), bo.soft(d[~near] >= bound[~near], gamma)]
    sol = bo.Problem(bo.Minimize(DIVERGENCES[name](X, bo.LowRank(points))), rows).solve(method=method)
    return sol, time.process_time() - begin


def line(m, r, name, gamma, data):
    """Return a line of the table."""
    least, found = {}, {}
    for _ in range(1 if m * r >= 1e6 else 2):
        for method in ("auto", "newton"):
            found[method], seconds = solved(name, gamma, data, method)
            least[method] = min(seconds, least.get(method, np.inf))
    ours, newton = found["auto"], found["newton"]
    assert abs(ours.value - newton.value) <= ours.error + newton.error
    cells = " | ".join(
        f"{sol.iterations} | {sol.gap:.0e} | {least[method]:.3f}" for method, sol in found.items()
    )
    return f"| {m:,} | {r} | {name} | {gamma:g} | {cells} | {least['auto'] / least['newton']:.2f} |"


def main():
    """Measure, print and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest problems only, and no table saved")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        f"Pairs of {POINTS:,} clustered points, tol 1e-6; one process, other processes beside it "
        f"(load {os.getloadavg()[0]:.0f})",
        "",
        "| rows | r | divergence | gamma | auto: steps | gap | CPU s | Newton: steps | gap | CPU s | ratio |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for m, r in SIZES[: 2 if options.quick else None]:
        data = blocks(m, r)
        solved("LogDet", 0.01, data, "auto")
        for name in DIVERGENCES:
            for gamma in GAMMAS:
                if name == "LogDet" and m * r**2 * gamma > SLOW:
                    continue
                lines.append(line(m, r, name, gamma, data))
                print(lines[-1], flush=True)
    if not options.quick:
        RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
