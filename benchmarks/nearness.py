"""Matrix nearness beside its peers: time to an equal certified gap, one BLAS thread, medians.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/nearness.py [--quick]

Every answer, ours and theirs, is certified by the same code; the table shows the gap that was reached. Times
include building the model. The table goes to benchmarks/results/nearness.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import bregopt as bo
from bregopt.program import certify

Array = Any
Make = Callable[[], bo.Problem]
_REPEATS = 3
_PATIENCE = 120.0  # seconds that a run of QICS may take
_ATOMS = {"logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div, "frobenius": bo.frobenius_div}


def start_matrix(n: int, rng: np.random.Generator) -> Array:
    """Return a random positive definite matrix with a diagonal from 0.25 to 4."""
    G = rng.normal(size=(n, 2 * n))
    S = G @ G.T / (2 * n)
    d = np.sqrt(rng.uniform(0.25, 4, n) / np.diag(S))
    return d[:, None] * S * d


def uniform_matrix(n: int, rng: np.random.Generator) -> Array:
    """Return a symmetric matrix with unit diagonal and entries uniform in [-1, 1]."""
    R = rng.uniform(-1, 1, size=(n, n))
    R = (R + R.T) / 2
    np.fill_diagonal(R, 1)
    return R


def correlation_problem(divergence: str, X0: Array) -> Make:
    """Return the model of the nearest matrix with a unit diagonal."""

    def make() -> bo.Problem:
        X = bo.PSD(len(X0))
        return bo.Problem(bo.Minimize(_ATOMS[divergence](X, X0)), [bo.diag(X) == 1])

    return make


def distance_problem(divergence: str, n: int, m: int, soft: bool) -> Make:
    """Return the model of `m` random distances, hard or soft, each at most 0.8 to 1.2 times what it was."""
    rng = np.random.default_rng(n)
    X0 = start_matrix(n, rng)
    i, j = _pairs(n, m, rng)
    b = (X0[i, i] + X0[j, j] - 2 * X0[i, j]) * rng.uniform(0.8, 1.2, m)

    def make() -> bo.Problem:
        X = bo.PSD(n)
        rows = bo.sq_distance(X, i, j) <= b
        return bo.Problem(
            bo.Minimize(_ATOMS[divergence](X, X0)), [bo.soft(rows, gamma=1.0) if soft else rows]
        )

    return make


def low_rank_problem(divergence: str, n: int, r: int, m: int) -> Make:
    """Return the model of soft distances on a low-rank kernel, as in Kulis et al. 2009, §7.2."""
    rng = np.random.default_rng(0)
    G = rng.normal(size=(n, r))
    i, j = _pairs(n, m, rng)
    label = rng.integers(0, 10, n)
    d, same = ((G[i] - G[j]) ** 2).sum(axis=1), label[i] == label[j]
    low, high = np.percentile(d, 5), np.percentile(d, 95)

    def make() -> bo.Problem:
        K = bo.PSD(n)
        near = bo.soft(bo.sq_distance(K, i[same], j[same]) <= low, gamma=1.0)
        far = bo.soft(bo.sq_distance(K, i[~same], j[~same]) >= high, gamma=1.0)
        return bo.Problem(bo.Minimize(_ATOMS[divergence](K, bo.LowRank(G))), [near, far])

    return make


def _pairs(n: int, m: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return `m` random pairs of different indices."""
    i = rng.integers(0, n, m)
    return i, (i + rng.integers(1, n, m)) % n


def timed(run: Callable[[], Any], repeats: int = _REPEATS) -> tuple[float, Any]:
    """Return the median time of a run and its last result."""
    times, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - begin)
        if times[-1] > 5:
            break
    return statistics.median(times), result


def eigh_time(n: int) -> float:
    """Return the time of one full eigendecomposition of order `n`."""
    A = uniform_matrix(n, np.random.default_rng(0))
    return timed(lambda: np.linalg.eigh(A))[0]


class Table:
    """Lines of the report."""

    def __init__(self) -> None:
        self.lines = ["| instance | solver | seconds | certified gap | steps | in eigh | beside ours |"]
        self.lines.append("|---|---|--:|--:|--:|--:|--:|")
        self._ours = float("nan")

    def add(
        self, instance: str, solver: str, seconds: float, gap: float, steps: Any, unit: float, ours: bool
    ) -> None:
        """Print and keep a line; `unit` is the time that "in eigh" counts in."""
        if ours:
            self._ours = seconds
        beside = "" if ours else f"{seconds / self._ours:.3g}x"
        cells = (instance, solver, f"{seconds:.3g}", f"{gap:.0e}", steps, f"{seconds / unit:.1f}", beside)
        line = f"| {' | '.join(map(str, cells))} |"
        self.lines.append(line)
        print(line, flush=True)


def ours(table: Table, name: str, make: Make, unit: float, **options: Any) -> None:
    """Time our own route, modelling included."""
    seconds, sol = timed(lambda: make().solve(solver="bregman", **options))
    label = f"bregopt {options.get('method', 'newton')}"
    table.add(name, label, seconds, sol.gap, sol.iterations, unit, "method" not in options)


def by_cvxpy(table: Table, name: str, make: Make, unit: float, backend: str) -> None:
    """Time a hand-written CVXPY model of a LogDet or Frobenius correlation problem."""
    problem = make()
    program = problem.program()
    block = program.blocks[0]
    X0, n = np.asarray(block.nearness.X0), block.n

    def run() -> Any:
        X = cp.Variable((n, n), PSD=True)
        if block.nearness.divergence == "frobenius":
            objective = cp.sum_squares(X - X0)
        else:
            objective = cp.trace(np.linalg.inv(X0) @ X) - cp.log_det(X)
        model = cp.Problem(cp.Minimize(objective), [cp.diag(X) == 1])
        options = {"eps": 1e-6, "max_iters": 20_000} if backend == "SCS" else {}
        model.solve(solver=backend, **options)
        return X.value, -model.constraints[0].dual_value

    seconds, (value, y) = timed(run, repeats=1)
    table.add(name, f"CVXPY+{backend}", seconds, _gap(program, value, y), "", unit, False)


def by_qics(table: Table, name: str, make: Make, unit: float) -> None:
    """Time QICS on a LogDet or von Neumann correlation problem, without the compilation of its kernels."""
    import numba

    numba.set_num_threads(1)  # its loops are parallel besides BLAS
    program = make().program()
    divergence, X0 = program.blocks[0].nearness.divergence, np.asarray(program.blocks[0].nearness.X0)
    _solved_by_qics(divergence, start_matrix(5, np.random.default_rng(0)))
    seconds, (value, y) = timed(lambda: _solved_by_qics(divergence, X0))
    table.add(name, "QICS", seconds, _gap(program, value, y), "", unit, False)


def _solved_by_qics(divergence: str, X0: Array) -> tuple[Array, Array]:
    """Return answer and multipliers of: minimise t + <C, X> over (t, U, X) in a cone of QICS, U constant.

    von Neumann: t >= tr X log X with ``U = 1``. LogDet: t >= tr U (log U - log X) with ``U = I``, which is
    -log det X; of the cones of QICS that can say so it is the fastest.
    """
    import qics
    from qics.vectorize import eye, mat_to_vec

    n = len(X0)
    if divergence == "von_neumann":
        w, Q = np.linalg.eigh(X0)
        C = -(Q * np.log(w)) @ Q.T - np.eye(n)
        cone, constant, of_U = qics.cones.QuantEntr(n), np.ones((1, 1)), np.ones((1, 1))
    else:
        C = np.linalg.inv(X0)
        cone, constant = qics.cones.QuantRelEntr(n), mat_to_vec(np.eye(n), compact=True)
        of_U = eye(n)
    diagonal = sp.csr_array((np.ones(n), (range(n), range(0, n * n, n + 1))), shape=(n, n * n))
    A = sp.block_diag([np.zeros((0, 1)), of_U, diagonal], format="csr")
    b = np.vstack([constant, np.ones((n, 1))])
    c = np.vstack([[[1.0]], np.zeros((of_U.shape[1], 1)), mat_to_vec(C)])
    model = qics.Model(c, sp.csr_array(A), b, cones=[cone])
    info = qics.Solver(model, verbose=0, max_time=_PATIENCE).solve()
    return info["s_opt"][0][-1], -info["y_opt"].ravel()[-n:]


def _gap(program: Any, X: Array, y: Array) -> float:
    """Return the certified gap of a peer's answer, made psd with a unit diagonal first."""
    w, Q = np.linalg.eigh((X + X.T) / 2)
    X = (Q * np.maximum(w, 1e-14)) @ Q.T
    d = 1 / np.sqrt(np.diag(X))
    X = d[:, None] * X * d
    return certify(program, ((X + X.T) / 2,), np.zeros(0), y).gap


def higham(A: Array, tol: float = 1e-8, depth: int = 2, limit: int = 2000) -> tuple[Array, int]:
    """Return the nearest correlation matrix by alternating projections with Anderson acceleration.

    Higham (2002) with Dykstra's correction; Higham and Strabic (2016) for the acceleration of the map.
    """
    n = len(A)

    def psd(S: Array) -> Array:
        w, Q = np.linalg.eigh(S)
        return (Q * np.maximum(w, 0)) @ Q.T

    def step(z: Array) -> Array:
        Y, S = z[: n * n].reshape(n, n), z[n * n :].reshape(n, n)
        R = Y - S
        X = psd(R)
        S = X - R
        Y = X.copy()
        np.fill_diagonal(Y, 1)
        return np.concatenate([Y.ravel(), S.ravel()])

    z = np.concatenate([A.ravel(), np.zeros(n * n)])
    values: list[Array] = []
    residuals: list[Array] = []
    for k in range(limit):
        g = step(z)
        f = g - z
        values.append(g)
        residuals.append(f)
        if np.linalg.norm(f) <= tol * np.linalg.norm(g):
            return psd(g[: n * n].reshape(n, n)), k + 1
        values, residuals = values[-depth - 1 :], residuals[-depth - 1 :]
        z = g
        if len(values) > 1:
            dF = np.column_stack([b - a for a, b in itertools.pairwise(residuals)])
            dG = np.column_stack([b - a for a, b in itertools.pairwise(values)])
            weight, *_ = np.linalg.lstsq(dF, f, rcond=None)
            z = g - dG @ weight
    return psd(z[: n * n].reshape(n, n)), limit


def correlation(table: Table, divergence: str, sizes: list[int], peers: dict[str, int]) -> None:
    """Nearest correlation matrices of growing order."""
    for n in sizes:
        rng = np.random.default_rng(n)
        X0 = uniform_matrix(n, rng) if divergence == "frobenius" else start_matrix(n, rng)
        make = correlation_problem(divergence, X0)
        unit, name = eigh_time(n), f"correlation, {divergence}, n = {n}"
        ours(table, name, make, unit, tol=1e-8)
        if n <= peers.get("cyclic", 0):
            ours(table, name, make, unit, tol=1e-8, method="cyclic", max_iter=2000)
        for backend in ("SCS", "CLARABEL"):
            if n <= peers.get(backend, 0):
                by_cvxpy(table, name, make, unit, backend)
        if n <= peers.get("QICS", 0):
            by_qics(table, name, make, unit)
        if n <= peers.get("higham", 0):
            seconds, (value, steps) = timed(lambda X0=X0: higham(X0))
            table.add(name, "Higham with Anderson", seconds, _own_gap(make(), value), steps, unit, False)
        if n <= peers.get("statsmodels", 0):
            from statsmodels.stats.correlation_tools import corr_nearest

            seconds, value = timed(lambda X0=X0: corr_nearest(X0), repeats=1)
            table.add(name, "statsmodels corr_nearest", seconds, _own_gap(make(), value), "", unit, False)


def _own_gap(problem: bo.Problem, X: Array) -> float:
    """Return the gap of a peer that gives no multipliers, by the best ones."""
    problem.solve(tol=1e-10)
    return _gap(problem.program(), X, -np.asarray(problem.constraints[0].dual_value))


def variants(table: Table, n: int) -> None:
    """Frobenius with fixed entries, bounds, a least eigenvalue, and weights."""
    rng = np.random.default_rng(n)
    A, unit = uniform_matrix(n, rng), eigh_time(n)
    H = rng.uniform(0.1, 1, size=(n, n))
    fixed = np.column_stack([np.zeros(20, dtype=int), np.arange(1, 21)])
    calm = A * 0.3 + 0.7 * np.eye(n)
    cases: dict[str, Callable[[], bo.Solution]] = {
        "plain": lambda: bo.nearest_correlation(A, tol=1e-8),
        "20 fixed entries": lambda: bo.nearest_correlation(calm, fixed=fixed, tol=1e-8),
        "all entries in [-0.2, 0.2]": lambda: bo.nearest_correlation(A, lower=-0.2, upper=0.2, tol=1e-8),
        "least eigenvalue 0.01": lambda: bo.nearest_correlation(A, min_eigenvalue=0.01, tol=1e-8),
        "weights 0.1 to 1 of entries": lambda: bo.nearest_correlation(A, weights=(H + H.T) / 2, tol=1e-8),
    }
    for k, (case, run) in enumerate(cases.items()):
        seconds, sol = timed(run)
        name = f"correlation, frobenius, n = {n}, {case}"
        table.add(name, "bregopt newton", seconds, sol.gap, sol.iterations, unit, k == 0)


def distances(table: Table, n: int) -> None:
    """LogDet with 5 n distances, hard and soft."""
    unit = eigh_time(n)
    for soft in (False, True):
        make = distance_problem("logdet", n, 5 * n, soft)
        name = f"{5 * n} distances, {'soft' if soft else 'hard'}, logdet, n = {n}"
        ours(table, name, make, unit, tol=1e-8)
        ours(table, name, make, unit, tol=1e-8, method="cyclic", max_iter=500)
        seconds, sol = timed(
            lambda make=make: make().solve(solver="cvxpy", backend="SCS", tol=1e-6), repeats=1
        )
        table.add(name, "CVXPY+SCS", seconds, sol.gap, "", unit, False)


def low_rank(table: Table, n: int, r: int, m: int, tol: float, reference: bool) -> None:
    """Soft distances on a low-rank kernel; the unit is one product V M."""
    V, M = np.random.default_rng(0).normal(size=(m, r)), np.eye(r)
    unit, _ = timed(lambda: V @ M)
    for divergence in ("logdet", "von_neumann"):
        make = low_rank_problem(divergence, n, r, m)
        name = f"low rank, {divergence}, n = {n}, r = {r}, m = {m} (unit: V M)"
        ours(table, name, make, unit, tol=tol)
        if reference and divergence == "logdet":
            run = lambda make=make: make().solve(solver="cvxpy", backend="CLARABEL", tol=1e-8)  # noqa: E731
            seconds, sol = timed(run, repeats=1)
            table.add(name, "CVXPY+CLARABEL, reduced", seconds, sol.gap, "", unit, False)


def main() -> None:
    """Run all instances and save the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small instances only")
    quick = parser.parse_args().quick
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    warnings.simplefilter("ignore")
    table = Table()
    print("\n".join(table.lines))
    has_qics = importlib.util.find_spec("qics") is not None
    if not has_qics:
        print("QICS is not installed (pip install qics): its lines are left out")
    large = [] if quick else [500, 1000, 2000]
    peers = {"cyclic": 100, "SCS": 100, "CLARABEL": 50, "QICS": 50 * has_qics}
    correlation(table, "logdet", [50, 100, *large], peers)
    correlation(table, "von_neumann", [20, 50, 100, *large[:2]], {"cyclic": 50, "QICS": 100 * has_qics})
    peers = {"cyclic": 200, "SCS": 200, "CLARABEL": 50, "higham": 500, "statsmodels": 100}
    correlation(table, "frobenius", [50, 100, 200, *large], peers)
    variants(table, 100 if quick else 500)
    distances(table, 50 if quick else 100)
    low_rank(table, 1000, 20, 5000, 1e-8, reference=True)
    if not quick:
        low_rank(table, 60_000, 100, 100_000, 1e-4, reference=False)
    target = Path(__file__).parent / "results" / "nearness.md"
    if not quick:
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(table.lines) + "\n")


if __name__ == "__main__":
    main()
