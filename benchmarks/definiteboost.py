"""Cycles of DefiniteBoost and of exact projection, in the manner of Kulis et al. (2009), §7.1.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/definiteboost.py [--quick]

A kernel of order 52 is learned from distances alone, starting at I/52. The distances in a target of trace one
are upper bounds for random pairs of one cluster, and lower bounds for pairs of two clusters. All methods
solve this von Neumann problem with tr X = 1 to the same certificate, with dual corrections. "As printed" is
the step of eq. 4.6, which holds only for a symmetric spectrum, from -L to L; L is the larger end. A cycle is
as many steps as there are rows. The bound is that of Corollary 4.2 on the number of steps, for the violation
at the step where the certificate met 1e-2. The table of a full run goes to
benchmarks/results/definiteboost.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import bregopt as bo
from bregopt.routes.definiteboost.boost import Boost

ROOT = Path(__file__).parent
D, SPECIES = 52, 3
EXACT = "exact projection (bregman, cyclic)"
AS_PRINTED = "DefiniteBoost, steps (4.6) as printed, cyclic"
METHODS = {
    EXACT: {"solver": "bregman", "method": "cyclic"},
    "DefiniteBoost, exact steps, cyclic": {"solver": "definiteboost", "step": "exact", "order": "cyclic"},
    "DefiniteBoost, approximate steps, cyclic": {"solver": "definiteboost", "order": "cyclic"},
    AS_PRINTED: {"solver": "definiteboost", "order": "cyclic"},
    "DefiniteBoost, exact steps, most violated": {"solver": "definiteboost", "step": "exact"},
    "DefiniteBoost, approximate steps, most violated": {"solver": "definiteboost"},
}
HEAD = (
    "| rows | method | cycles to 1e-2 | to 1e-4 | to 1e-6 | seconds | steps to 1e-2 | bound "
    "| X from Newton's |\n|--:|---|--:|--:|--:|--:|--:|--:|--:|\n"
)


def main() -> None:
    """Measure and print the table, and save it unless the run is quick."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    table = HEAD
    for rows in (20,) if quick else (20, 50, 100):
        problem = kernel_problem(rows)
        reference = problem.solve(solver="bregman", method="newton", tol=1e-9).X
        for name, options in METHODS.items():
            line = measured(problem, rows, name, options, reference)
            print(line, flush=True)
            table += line + "\n"
    if not quick:
        (ROOT / "results" / "definiteboost.md").write_text(table)


def kernel_problem(rows: int, seed: int = 0) -> bo.Problem:
    """Return the problem with a number of random pairs."""
    rng = np.random.default_rng(seed)
    label = np.arange(D) % SPECIES
    points = rng.normal(size=(SPECIES, 8))[label] + 0.8 * rng.normal(size=(D, 8))
    K = points @ points.T
    K /= np.trace(K)
    i, j = np.triu_indices(D, 1)
    chosen = rng.permutation(len(i))[:rows]
    i, j = i[chosen], j[chosen]
    distance, same = K[i, i] + K[j, j] - 2 * K[i, j], label[i] == label[j]
    X = bo.PSD(D, name="X")
    near = bo.sq_distance(X, i[same], j[same]) <= distance[same]
    far = bo.sq_distance(X, i[~same], j[~same]) >= distance[~same]
    return bo.Problem(bo.Minimize(bo.von_neumann_div(X, np.eye(D) / D)), [near, far, bo.trace(X) == 1])


def step_as_printed(boost: Boost, k: int, r: float) -> float:
    """Return the step of eq. 4.6 as printed, for which the ends of the spectrum must be -L and L."""
    b = boost._mean(k) - r
    L = float(max(abs(boost.least[k] - b), abs(boost.largest[k] - b)))
    return float(np.log((1 + r / L) / (1 - r / L)) / (2 * L))


def measured(problem: bo.Problem, rows: int, name: str, options: Any, reference: Any) -> str:
    """Return one line of the table."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        steps = {"_approximate_step": step_as_printed} if name == AS_PRINTED else {}
        with patch.multiple(Boost, **steps) if steps else nullcontext():
            sol = problem.solve(**options, tol=1e-6, time_limit=60.0)
    seconds = time.perf_counter() - begin
    history = sol.history
    worst = np.maximum(history["gap"], history["primal_residual"])
    cycle = history["iteration"] if "cyclic" in name else history["iteration"] / rows
    reached = [cycle[np.argmax(worst <= tol)] if worst.min() <= tol else np.inf for tol in (1e-2, 1e-4, 1e-6)]
    cells = [f"{cycles:.3g}" if np.isfinite(cycles) else f"over {cycle[-1]:.3g}" for cycles in reached]
    steps, bound = ("", "")
    if name not in (EXACT, AS_PRINTED) and worst.min() <= 1e-2:
        at = np.argmax(worst <= 1e-2)
        steps, bound = f"{history['steps'][at]:.0f}", f"{history['iteration_bound'][at]:.0e}"
    distance = np.abs(np.asarray(sol.X) - reference).max()
    return f"| {rows} | {name} | {' | '.join(cells)} | {seconds:.2g} | {steps} | {bound} | {distance:.0e} |"


if __name__ == "__main__":
    main()
