"""Relaxations that people write: bregopt's language and hooks for CVXPY beside SCS and CSDP.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/relaxations.py [--only NAME ...] [--cap 30]

Each problem is written once, for both languages. Each solve has a process of its own, and its seconds are of
the processor, with the compilation by the language or CVXPY; those of CSDP are with reading its file. A cell
has the seconds and the error: the distance from the most precise value that is proven, relative to it. A word
after it is a status other than "optimal". The table of a full run goes to benchmarks/results/relaxations.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
from sdp_peers import PROGRAMS, called

import bregopt as bo

_RESULTS = Path(__file__).parent / "results" / "relaxations.md"
_TOLERANCES = (1e-4, 1e-6)
_WAYS = ("language", 'method="bregopt"', 'solver="BREGOPT"', "SCS")
PROBLEMS: dict[str, Callable[[Any], Any]] = {}


def problem(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Register a problem under the name of its function."""
    PROBLEMS[make.__name__.replace("_", " ")] = make
    return make


def cvxpy() -> Any:
    """Return the names of bregopt's language that this page uses, in CVXPY."""
    import cvxpy as cp

    cones: list[Any] = []

    def psd(n: int, hermitian: bool = False) -> Any:
        X = cp.Variable((n, n), hermitian=True) if hermitian else cp.Variable((n, n), PSD=True)
        cones.extend([X >> 0] if hermitian else [])
        return X

    def quad_form(a: Any, X: Any) -> Any:
        forms = cp.sum(cp.multiply(a.conj() @ X, a), axis=1)
        return cp.real(forms) if X.is_complex() else forms

    return SimpleNamespace(
        PSD=psd,
        Variable=cp.Variable,
        Problem=lambda objective, rows: cp.Problem(objective, [*rows, *cones]),
        Minimize=cp.Minimize,
        Maximize=cp.Maximize,
        trace=lambda X: cp.real(cp.trace(X)) if X.is_complex() else cp.trace(X),
        diag=cp.diag,
        sum=cp.sum,
        norm_nuc=cp.normNuc,
        inner=lambda C, X: cp.sum(cp.multiply(C, X)),
        quad_form=quad_form,
    )


# --------------------------------------------------------------------------------------------------- problems


@problem
def k_means(m: Any, n: int = 100) -> Any:
    """Peng and Wei 2007: five clusters of 100 points that overlap."""
    k, rng = 5, np.random.default_rng(0)
    points = rng.normal(size=(k, 4))[rng.integers(k, size=n)] + 0.5 * rng.normal(size=(n, 4))
    D = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    X = m.PSD(n)
    return m.Problem(m.Minimize(m.inner(D / 2, X)), [X @ np.ones(n) == 1, m.trace(X) == k, X >= 0])


@problem
def quadratic_assignment(m: Any, n: int = 7) -> Any:
    """Facilities at random places, flows of integers; the least permutation attains the bound."""
    rng = np.random.default_rng(1)
    flow, at = rng.integers(0, 6, (n, n)), rng.integers(0, 6, (n, 2))
    return _assignment(m, flow, at)


@problem
def assignment_on_a_grid(m: Any, rows: int = 3, columns: int = 3) -> Any:
    """Facilities on a grid; no permutation attains the bound."""
    at = np.stack(np.meshgrid(np.arange(rows), np.arange(columns)), axis=-1).reshape(-1, 2)
    n = len(at)
    return _assignment(m, np.random.default_rng(1).integers(0, 6, (n, n)), at)


def _assignment(m: Any, flow: Any, at: Any) -> Any:
    """Povh and Rendl 2009: distances in the plane, the upper triangle of flows."""
    n = len(at)
    distance = np.abs(at[:, None] - at[None]).sum(axis=2)
    Y, eye = m.PSD(n * n), np.eye(n)
    rows = [sum(Y[i * n : (i + 1) * n, i * n : (i + 1) * n] for i in range(n)) == eye]
    for i in range(n):
        for j in range(i + 1):
            rows.append(m.trace(Y[i * n : (i + 1) * n, j * n : (j + 1) * n]) == float(i == j))
    flow = np.triu(flow, 1) + np.triu(flow, 1).T
    return m.Problem(m.Minimize(m.inner(np.kron(flow, distance), Y)), [*rows, m.sum(Y) == n * n, Y >= 0])


def lifted_assignment(m: Any, n: int, seed: int) -> Any:
    """Zhao, Karisch, Rendl and Wolkowicz 1998: random integers; many entries are zero."""
    rng, N = np.random.default_rng(seed), n * n
    A, B = (M + M.T for M in rng.integers(0, 9, (2, n, n)))
    X = m.PSD(N + 1)
    lines = [*np.arange(1, N + 1).reshape(n, n), *np.arange(1, N + 1).reshape(n, n).T]
    rows = [X[0, 0] == 1, X >= 0, *(X[k, k] == X[0, k] for k in range(1, N + 1))]
    rows += [sum(X[k, j] for j in line) == X[0, k] for line in lines for k in range(1, N + 1)]
    rows += [sum(X[0, j] for j in line) == 1 for line in lines]
    return m.Problem(m.Minimize(m.inner(np.kron(A, B), X[1:, 1:])), rows)


@problem
def stable_set(m: Any) -> Any:
    """Schrijver 1979: the theta number with X >= 0 of a random graph of 120 vertices."""
    i, j = np.array(nx.gnp_random_graph(120, 0.25, seed=0).edges).T
    X = m.PSD(120)
    return m.Problem(m.Maximize(m.sum(X)), [m.trace(X) == 1, X[i, j] == 0, X >= 0])


@problem
def max_3_cut(m: Any) -> Any:
    """Frieze and Jerrum 1997: a random graph of 100 vertices in three parts."""
    n = 100
    A = nx.to_numpy_array(nx.gnp_random_graph(n, 0.2, seed=1))
    X = m.PSD(n)
    return m.Problem(m.Maximize((A.sum() - m.inner(A, X)) / 3), [m.diag(X) == 1, X >= -0.5])


@problem
def matrix_completion(m: Any, n: int = 60) -> Any:
    """Candes and Recht 2009: half of the entries of 60 x 60, of rank three."""
    rng = np.random.default_rng(2)
    M = rng.normal(size=(n, 3)) @ rng.normal(size=(3, n))
    F, (i, j) = m.Variable((n, n)), np.nonzero(rng.random((n, n)) < 0.5)
    return m.Problem(m.Minimize(m.norm_nuc(F)), [F[i, j] == M[i, j]])


@problem
def large_completion(m: Any, n: int = 300) -> Any:
    """Fazel, Hindi and Boyd 2001: 12,000 entries of a matrix of 300 x 300 of rank three, by a psd matrix."""
    rng = np.random.default_rng(6)
    A, B = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
    i, j = np.divmod(np.sort(rng.choice(n * n, 40 * n, replace=False)), n)
    X = m.PSD(2 * n)
    return m.Problem(m.Minimize(m.trace(X) / 2), [X[i, n + j] == (A[i] * B[j]).sum(axis=1)])


@problem
def sensor_network(m: Any) -> Any:
    """Biswas and Ye 2004: 60 sensors, four anchors, distances that are off by five percent."""
    n, rng = 60, np.random.default_rng(3)
    x, anchors = rng.random((n, 2)), np.array([[0.2, 0.2], [0.2, 0.8], [0.8, 0.2], [0.8, 0.8]])
    Z, off = m.PSD(n + 2), []
    for i in range(n):
        for e, d in [
            *(
                (np.concatenate([-a, np.eye(n)[i]]), x[i] - a)
                for a in anchors
                if np.linalg.norm(x[i] - a) < 0.4
            ),
            *(
                (np.concatenate([np.zeros(2), np.eye(n)[i] - np.eye(n)[j]]), x[i] - x[j])
                for j in range(i)
                if np.linalg.norm(x[i] - x[j]) < 0.25
            ),
        ]:
            off.append((e, float(d @ d) * (1 + 0.05 * rng.normal())))
    E, d = np.array([e for e, _ in off]), np.array([d for _, d in off])
    longer, shorter = m.Variable(len(d), nonneg=True), m.Variable(len(d), nonneg=True)
    rows = [m.quad_form(E, Z) - d == longer - shorter, Z[:2, :2] == np.eye(2)]
    return m.Problem(m.Minimize(m.sum(longer) + m.sum(shorter)), rows)


@problem
def phase_retrieval(m: Any) -> Any:
    """Candes, Strohmer and Voroninski 2013: a complex signal of length 30 from 180 magnitudes."""
    n, rng = 30, np.random.default_rng(4)
    a = rng.normal(size=(6 * n, n)) + 1j * rng.normal(size=(6 * n, n))
    x = rng.normal(size=n) + 1j * rng.normal(size=n)
    X = m.PSD(n, hermitian=True)
    return m.Problem(m.Minimize(m.trace(X)), [m.quad_form(a, X) == np.abs(a.conj() @ x) ** 2])


# ----------------------------------------------------------------------------------------------------- solves


def solved(name: str, way: str, tol: float) -> dict[str, Any]:
    """Return seconds, status and value of a solve in this process, and a bound on the value's error."""
    warnings.simplefilter("ignore")
    begin, error = time.process_time(), np.inf
    if way == "language":
        sol = PROBLEMS[name](bo).solve(tol=tol)
        value, status, error = sol.value, sol.status, sol.error
    else:
        import bregopt.cvxpy  # noqa: F401 - the hooks

        made = PROBLEMS[name](cvxpy())
        if way == "SCS":
            made.solve("SCS", eps_abs=tol, eps_rel=tol, max_iters=10**7)
        else:
            made.solve(**{"method": "bregopt"} if "method" in way else {"solver": "BREGOPT"}, tol=tol)
        value, status = made.value, made.status
    seconds = time.process_time() - begin
    return {"seconds": seconds, "status": status, "value": float(value), "error": float(error)}


def by_csdp(problem: bo.Problem, cap: float) -> dict[str, Any]:
    """Return seconds and status of CSDP on the file that bregopt writes."""
    csdp = PROGRAMS[0]
    if csdp.missing():
        return {"status": "not installed"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.dat-s"
        bo.write_sdpa(problem, path)
        done = called([csdp.program, *csdp.command(path, None)], Path(folder), cap, dict(os.environ))
    if done is None:
        return {"status": f"stopped at {cap:g} s"}
    said = "optimal" if "Success: SDP solved" in done[2] else done[2].strip().splitlines()[-1]
    return {"seconds": done[1], "status": said}


def in_process(name: str, way: str, tol: float, cap: float) -> dict[str, Any]:
    """Return what a process of its own answers."""
    call = [sys.executable, __file__, "--process", json.dumps([name, way, tol])]
    done = called(call, Path.cwd(), cap, dict(os.environ))
    if done is None:
        return {"status": f"stopped at {cap:g} s"}
    found: dict[str, Any] = json.loads(done[2].splitlines()[-1])
    return found


def rows_of(name: str, cap: float) -> list[str]:
    """Return the lines of a problem, one for each tolerance."""
    program = PROBLEMS[name](bo).program()
    runs = {(way, tol): in_process(name, way, tol, cap) for tol in _TOLERANCES for way in _WAYS}
    peer = by_csdp(PROBLEMS[name](bo), cap)
    proven = [run for run in runs.values() if np.isfinite(run.get("error", np.inf))]
    best = min(proven, key=lambda run: float(run["error"]))["value"] if proven else np.nan
    size = f"{name} | {', '.join(str(block.n) for block in program.blocks)} | {program.m:,}"
    lines = []
    for tol in _TOLERANCES:
        cells = [_cell(runs[way, tol], best) for way in _WAYS]
        cells.append(_cell(peer, np.nan) if tol == _TOLERANCES[-1] else "")
        lines.append(f"| {size} | {tol:.0e} | {' | '.join(cells)} |")
    return lines


def _cell(run: dict[str, Any], best: float) -> str:
    """Return seconds, error and status of a run."""
    words = [f"{run['seconds']:.3g}"] if "seconds" in run else []
    if np.isfinite(run.get("value", np.nan)) and np.isfinite(best):
        words.append(f"({abs(run['value'] - best) / abs(best):.0e})")
    return " ".join(words if run["status"] == "optimal" else [*words, run["status"]])


def main() -> None:
    """Run the chosen problems, print the table, and save it if it is whole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(PROBLEMS), metavar="NAME", help="names of problems")
    parser.add_argument("--cap", type=float, default=30.0, help="seconds allowed for one solve")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    lines = [f"| problem | order | rows | tol | {' | '.join([*_WAYS, 'CSDP'])} |"]
    lines.append("|---|--:|--:|--:|" + "--:|" * (len(_WAYS) + 1))
    print("\n".join(lines))
    for name in options.only:
        lines += rows_of(name, options.cap)
        print("\n".join(lines[-len(_TOLERANCES) :]), flush=True)
    if options.only == list(PROBLEMS):
        _RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        print(json.dumps(solved(*json.loads(sys.argv[2]))))
    else:
        main()
