"""Matrices of large orders from some of their entries, by the route `lowrank`.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/large_completions.py [--only NAME ...]

The nuclear norm of the matrix is the optimum where its entries determine it. The table has the processor's
seconds with the compilation, the distance of the value and of the proven bound from the optimum, relative to
it, and the rank. Other methods hold all n^2 entries; benchmarks/relaxations.py has a smaller completion
beside SCS and CSDP. The table of a full run goes to benchmarks/results/large_completions.md.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np

import bregopt as bo

_RESULTS = Path(__file__).parent / "results" / "large_completions.md"


def completion(n: int, rank: int, count: int) -> tuple[bo.Problem, float]:
    """Return the least nuclear norm with `count` entries of an n x n matrix, and the matrix's own norm."""
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(n, rank)), rng.normal(size=(n, rank))
    i, j = np.divmod(np.unique(rng.integers(0, n * n, count)), n)
    X = bo.PSD(2 * n)
    norm = np.linalg.svd(np.linalg.qr(A)[1] @ np.linalg.qr(B)[1].T, compute_uv=False).sum()
    rows = X[i, n + j] == np.einsum("kr,kr->k", A[i], B[j])
    return bo.Problem(bo.Minimize(bo.trace(X) / 2), [rows]), float(norm)


CASES = {
    "completion 500 x 500, rank 3": (lambda: completion(500, 3, 30_000), 1e-6),
    "completion 2,500 x 2,500, rank 3": (lambda: completion(2_500, 3, 100_000), 1e-6),
    "completion 2,500 x 2,500, rank 10": (lambda: completion(2_500, 10, 500_000), 1e-6),
    "completion 10,000 x 10,000, rank 3": (lambda: completion(10_000, 3, 500_000), 1e-4),
    "completion 25,000 x 25,000, rank 3": (lambda: completion(25_000, 3, 2_500_000), 1e-4),
}


def line(name: str) -> str:
    """Return the line of a case."""
    make, tol = CASES[name]
    begin = time.process_time()
    problem, optimum = make()
    sol = problem.solve(tol=tol)
    seconds, program = time.process_time() - begin, problem.program()
    above, below = (abs(value - optimum) / optimum for value in (sol.value, sol.dual_value))
    size = f"{name} | {program.blocks[0].n:,} | {program.m:,} | {tol:.0e} | {sol.solver}"
    return f"| {size} | {sol.status} | {seconds:.3g} | {above:.0e} | {below:.0e} | {sol.rank} |"


def main() -> None:
    """Run the chosen cases, print the table, and save it if it is whole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(CASES), metavar="NAME", help="names of cases")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore", bo.ConvergenceWarning)
    lines = ["| problem | order | rows | tol | route | status | CPU s | value off by | bound off by | rank |"]
    lines.append("|---|--:|--:|--:|---|---|--:|--:|--:|--:|")
    print("\n".join(lines))
    for name in options.only:
        lines.append(line(name))
        print(lines[-1], flush=True)
    if options.only == list(CASES):
        _RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
