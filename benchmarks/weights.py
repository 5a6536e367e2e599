"""Nearest correlation matrices with entrywise weights, by bregopt, SCS and Clarabel, to a gap of 1e-6.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/weights.py [--quick]

Times are in units of one ``numpy.linalg.eigh`` of the order, see nearness.py. The same code certifies all
answers, with the multipliers of the rows and of ``X psd`` that the solver returns. The table of a full run
goes to benchmarks/results/weights.md.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from nearness import Table, eigh_unit
from nearness_peers import Entrant, Verdict
from nearness_problems import Array, uniform_matrix

import bregopt as bo
from bregopt.certify import PrimalDualPoint, certify

_ORDERS = (10, 20, 50, 120, 200, 500)
_QUICK = (10, 20, 50)
_TOL = 1e-6
# The largest order at which a peer is run, and its tolerance.
_PEERS: dict[str, tuple[int, dict[str, Any]]] = {
    "SCS": (120, {"eps": 1e-7, "max_iters": 20_000}),
    "CLARABEL": (50, {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8}),
}


def _symmetric(upper: Array) -> Array:
    H = np.triu(upper, 1)
    return H + H.T + np.eye(len(H))


def _block(n: int, weight: float) -> Array:
    H = np.ones((n, n))
    H[: n // 6, : n // 6] = weight
    return H


PATTERNS: dict[str, Callable[[int, np.random.Generator], Array]] = {
    "uniform in [0.1, 1]": lambda n, rng: _symmetric(rng.uniform(0.1, 1, (n, n))),
    "a block of 10": lambda n, rng: _block(n, 10.0),
    "1 or 10": lambda n, rng: _symmetric(rng.choice([1.0, 10.0], (n, n))),
    "30 % zeros": lambda n, rng: _symmetric(rng.choice([0.0, 1.0], (n, n), p=[0.3, 0.7])),
    "a block of 100": lambda n, rng: _block(n, 100.0),
    "1 or 100": lambda n, rng: _symmetric(rng.choice([1.0, 100.0], (n, n))),
}


def _ours(A: Array, H: Array) -> Entrant:
    def run() -> bo.Solution:
        return bo.nearest_correlation(A, weights=H, tol=_TOL)

    return Entrant("bregopt", run, lambda sol: Verdict(sol.gap, sol.primal_residual, sol.iterations))


def _peer(A: Array, H: Array, backend: str, options: dict[str, Any]) -> Entrant:
    n = len(A)
    X = bo.PSD(n)
    program = bo.Problem(bo.Minimize(bo.frobenius_div(X, A, weights=H)), [bo.diag(X) == 1]).program()

    def run() -> tuple[Array, Array, int]:
        K = cp.Variable((n, n), symmetric=True)
        psd = K >> 0
        problem = cp.Problem(cp.Minimize(cp.sum_squares(cp.multiply(H, K - A))), [cp.diag(K) == 1, psd])
        problem.solve(solver=backend, **options)
        return K.value, psd.dual_value, problem.solver_stats.num_iters

    def judge(answer: tuple[Array, Array, int]) -> Verdict:
        K, S, steps = answer
        eigenvalues, V = np.linalg.eigh((K + K.T) / 2)
        K = (V * np.maximum(eigenvalues, 0)) @ V.T
        K /= np.sqrt(np.outer(K.diagonal(), K.diagonal()))
        S = (S + S.T) / 2
        y = (2 * H**2 * (K - A) - S).diagonal()
        certificate = certify(PrimalDualPoint(program, (K,), np.zeros(0), y, S=(S,)))
        return Verdict(certificate.gap, certificate.primal_residual, steps)

    return Entrant(f"CVXPY+{backend}", run, judge)


def weights(table: Table, orders: tuple[int, ...]) -> None:
    """Solve with every pattern of weights at growing orders."""
    for n in orders:
        for pattern, draw in PATTERNS.items():
            rng = np.random.default_rng(n)
            A, H = uniform_matrix(n, rng), draw(n, rng)
            peers = [
                _peer(A, H, name, options) for name, (largest, options) in _PEERS.items() if n <= largest
            ]
            table.contest(f"weights {pattern}, n = {n}", eigh_unit(n), _ours(A, H), *peers)


def main() -> None:
    """Run all patterns; save the table of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small orders only")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore")
    table = Table()
    weights(table, _QUICK if options.quick else _ORDERS)
    if not options.quick:
        target = Path(__file__).parent / "results" / "weights.md"
        target.write_text("\n".join(table.lines) + "\n")


if __name__ == "__main__":
    main()
