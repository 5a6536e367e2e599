"""Small problems: milliseconds and Python calls of bregopt, Clarabel, SCS and Newton's method by hand.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/small.py [--data FOLDER]

A time is the median CPU time over the rounds, in which all solvers of a problem take turns; each has solved
it three times before. "Clarabel" and "SCS" get CVXPY's matrices, without CVXPY's time. "By hand" is Newton's
method on the dual in a page of NumPy, without a certificate. Calls are those of Python functions in one more
solve: they are free of noise. The table of a full run goes to benchmarks/results/small.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cvxpy as cp
import networkx as nx
import numpy as np
from nearness_peers import qi_sun
from nearness_problems import uniform_matrix

import bregopt as bo

HEAD = (
    "| problem | bregopt, ms | Python calls | Clarabel | SCS | by hand | CVXPY with Clarabel |\n"
    "|:--|--:|--:|--:|--:|--:|--:|"
)
RESULTS = Path(__file__).parent / "results" / "small.md"
Array = np.ndarray
Run = Callable[[], Any]


class Case(NamedTuple):
    """A problem: bregopt's solve, and those of peers by the titles of the table."""

    name: str
    own: Run
    peers: dict[str, Run]


# --- Semidefinite programs ----------------------------------------------------------------------------


def symmetric(n: int, rng: np.random.Generator) -> Array:
    """Return a random symmetric matrix."""
    A = rng.normal(size=(n, n))
    return A + A.T


def spherical(C: Array) -> bo.Problem:
    """Return ``min <C, X>`` over correlation matrices."""
    X = bo.PSD(len(C))
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == 1])


def random_sdp(n: int, m: int, rng: np.random.Generator) -> bo.Problem:
    """Return a program of random equalities with an interior on both sides."""
    A = np.array([symmetric(n, rng) for _ in range(m)])
    C = np.eye(n) + np.einsum("kij,k->ij", A, rng.normal(size=m)) / m
    X = bo.PSD(n)
    return bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.inner(A, X) == np.trace(A, axis1=1, axis2=2)])


def conic(problem: cp.Problem, solver: str) -> Run:
    """Return a call of Clarabel or SCS on the matrices that CVXPY compiles."""
    data, _, _ = problem.get_problem_data(solver)
    A, b, c, dims = data["A"], data["b"], data["c"], data["dims"]
    if solver == cp.CLARABEL:
        import clarabel
        import scipy.sparse as sp
        from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones

        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        P = sp.csc_matrix((len(c), len(c)))
        return lambda: clarabel.DefaultSolver(P, c, A, b, dims_to_solver_cones(dims), settings).solve()
    import scs
    from cvxpy.reductions.solvers.conic_solvers.scs_conif import dims_to_solver_dict

    given = {"A": A, "b": b, "c": c}
    options = {"verbose": False, "eps_abs": 1e-6, "eps_rel": 1e-6, "max_iters": 20_000}
    return lambda: scs.SCS(given, dims_to_solver_dict(dims), **options).solve()


def linear_peers(make: Callable[[], bo.Problem]) -> dict[str, Run]:
    """Return the peers of a linear problem."""
    compiled = make().to_cvxpy()
    return {
        "Clarabel": conic(compiled, cp.CLARABEL),
        "SCS": conic(compiled, cp.SCS),
        "CVXPY with Clarabel": lambda: make().to_cvxpy().solve(solver=cp.CLARABEL),
    }


def semidefinite(data: Path | None) -> Iterator[Case]:
    """Yield semidefinite programs, by the language, by both of CVXPY's hooks, and from files."""
    import bregopt.cvxpy as hook

    rng = np.random.default_rng(8)
    for n in (5, 12):
        C = symmetric(n, rng)
        name = f"SDP, n = {n}"
        yield Case(
            f"{name}, language", lambda C=C: spherical(C).solve(), linear_peers(lambda C=C: spherical(C))
        )
        for way, options in (
            ('solver="BREGOPT"', {"solver": hook.BREGOPT}),
            ('method="bregopt"', {"method": "bregopt"}),
        ):
            yield Case(
                f"{name}, {way}",
                lambda C=C, options=options: stated_in_cvxpy(C).solve(**options),
                {"CVXPY with Clarabel": lambda C=C: stated_in_cvxpy(C).solve(solver=cp.CLARABEL)},
            )
    yield from parametric(rng, hook.BREGOPT)
    for n, m in ((20, 50), (50, 100)):
        problem = random_sdp(n, m, rng)
        peers = linear_peers(lambda problem=problem: problem)
        yield Case(f"SDP, n = {n}, {m} rows", problem.solve, {k: peers[k] for k in ("Clarabel", "SCS")})
    for name in ("truss1", "control1", "hinf4", "hinf9") if data else ():
        problem = bo.read_sdpa(data / "sdplib" / f"{name}.dat-s.gz")
        yield Case(f"SDPLIB {name}", problem.solve, {"Clarabel": conic(problem.to_cvxpy(), cp.CLARABEL)})


def stated_in_cvxpy(C: Array) -> cp.Problem:
    """Return :func:`spherical` as a user of CVXPY writes it."""
    X = cp.Variable(C.shape, PSD=True)
    return cp.Problem(cp.Minimize(cp.trace(C @ X)), [cp.diag(X) == 1])


def parametric(rng: np.random.Generator, solver: Any) -> Iterator[Case]:
    """Yield re-solves of one problem with other values of a parameter, by the language and by CVXPY."""
    C, values = symmetric(8, rng), 1 + 0.1 * rng.random((100, 8))
    X, b = bo.PSD(8), bo.Parameter(8, value=np.ones(8))
    problem = bo.Problem(bo.Minimize(bo.inner(C, X)), [bo.diag(X) == b])
    peers, theirs = {}, {}
    for name, options in (("Clarabel", {"solver": cp.CLARABEL}), ("BREGOPT", {"solver": solver})):
        Y, right = cp.Variable((8, 8), PSD=True), cp.Parameter(8)
        stated = cp.Problem(cp.Minimize(cp.trace(C @ Y)), [cp.diag(Y) == right])
        theirs[name] = _again(stated, right, values, options)
    peers["CVXPY with Clarabel"] = theirs["Clarabel"]
    yield Case("re-solve with a Parameter, n = 8, language", _again(problem, b, values, {}), peers)
    yield Case('re-solve with a Parameter, n = 8, solver="BREGOPT"', theirs["BREGOPT"], peers)


def _again(problem: Any, parameter: Any, values: Array, options: dict[str, Any]) -> Run:
    turn = iter(range(10**9))

    def run() -> None:
        parameter.value = values[next(turn) % len(values)]
        problem.solve(**options)

    return run


# --- Nearness -----------------------------------------------------------------------------------------


def nearness(data: Path | None) -> Iterator[Case]:
    """Yield nearest matrices with unit diagonal, beside Newton's method on the dual by hand."""
    rng = np.random.default_rng(0)
    for n in (5, 30, 100):
        A = uniform_matrix(n, rng)
        peers = {"by hand": lambda A=A: qi_sun(A)}
        yield Case(f"nearest_correlation, n = {n}", lambda A=A: bo.nearest_correlation(A), peers)
    A = uniform_matrix(5, rng)
    yield Case("Frobenius, n = 5, language", lambda: stated("frobenius", A), {"by hand": lambda: qi_sun(A)})
    n = 5
    B = rng.normal(size=(n, 2 * n))
    X0 = B @ B.T / (2 * n)
    for name, hand in (("logdet", logdet_newton), ("von_neumann", von_neumann_newton)):
        peers = {"by hand": lambda hand=hand: hand(X0)}
        function = lambda name=name: bo.nearest_psd(X0, lambda X: bo.diag(X) == 1, divergence=name)  # noqa: E731
        yield Case(f"{name}, n = {n}, function", function, peers)
        yield Case(f"{name}, n = {n}, language", lambda name=name: stated(name, X0), peers)


def stated(divergence: str, X0: Array) -> bo.Solution:
    """Return the nearest matrix with unit diagonal, declared in the language."""
    X = bo.PSD(len(X0))
    distance = {"frobenius": bo.frobenius_div, "logdet": bo.logdet_div, "von_neumann": bo.von_neumann_div}
    return bo.Problem(bo.Minimize(distance[divergence](X, X0)), [bo.diag(X) == 1]).solve()


def logdet_newton(X0: Array) -> Array:
    """Return the nearest matrix with unit diagonal in the LogDet divergence, ``inv(inv(X0) + Diag y)``."""
    start = np.linalg.inv(X0)

    def at(y: Array) -> tuple[float, Array] | None:
        M = start + np.diag(y)
        try:
            L = np.linalg.cholesky(M)
        except np.linalg.LinAlgError:
            return None
        return float(y.sum() - 2 * np.log(L.diagonal()).sum()), np.linalg.inv(M)

    return _newton(at, lambda X: X * X, len(X0))


def von_neumann_newton(X0: Array) -> Array:
    """Return the nearest matrix with unit diagonal in von Neumann's divergence, ``exp(log X0 - Diag y)``."""
    w0, V0 = np.linalg.eigh(X0)
    start = (V0 * np.log(w0)) @ V0.T
    spectrum: dict[str, Array] = {}

    def at(y: Array) -> tuple[float, Array]:
        w, V = np.linalg.eigh(start - np.diag(y))
        spectrum.update(w=w, V=V)
        return float(np.exp(w).sum() + y.sum()), (V * np.exp(w)) @ V.T

    def hessian(X: Array) -> Array:
        w, V = spectrum["w"], spectrum["V"]
        gap = np.subtract.outer(w, w)
        near = np.abs(gap) < 1e-8
        slopes = np.subtract.outer(np.exp(w), np.exp(w)) / np.where(near, 1.0, gap)
        slopes = np.where(near, np.exp(w)[:, None], slopes)
        P = (V[:, :, None] * V[:, None, :]).reshape(len(w), -1)
        return (P * slopes.ravel()) @ P.T

    return _newton(at, hessian, len(X0))


def _newton(at: Callable[[Array], Any], hessian: Callable[[Array], Array], n: int) -> Array:
    """Return the ``X`` at the minimum of a convex function of ``y`` with the gradient ``1 - diag(X)``."""
    y = np.zeros(n)
    value, X = at(y)
    for _ in range(50):
        slope = 1 - X.diagonal()
        if np.abs(slope).max() <= 1e-10:
            break
        step, length = -np.linalg.solve(hessian(X), slope), 1.0
        while (found := at(y + length * step)) is None or found[0] > value + 1e-4 * length * (
            slope @ step
        ) + 1e-13:
            length /= 2
        y, (value, X) = y + length * step, found
    return X


# --- Problems by name ---------------------------------------------------------------------------------


def by_name(data: Path | None) -> Iterator[Case]:
    """Yield calls of bregopt's problems by name."""
    rng = np.random.default_rng(3)
    near = rng.normal(size=(60, 5))
    far = near + 0.5 * rng.normal(size=near.shape) + 0.3
    yield Case("soft_margin, 60 comparisons in 5 dimensions", lambda: bo.soft_margin((far, near)), {})
    W = np.triu(rng.integers(0, 5, (8, 8)), 1).astype(float)
    yield Case("max_cut, n = 8", lambda: bo.max_cut(W + W.T), {})
    graph = nx.to_numpy_array(nx.grid_2d_graph(3, 3))
    yield Case("partition, n = 9", lambda: bo.partition(graph, 3), {})


# --- Measuring ----------------------------------------------------------------------------------------


def calls_of(run: Run) -> int:
    """Return the number of Python functions that a call enters."""
    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def line(case: Case, rounds: int) -> str:
    """Return the table's line of a problem."""
    runs = {"bregopt": case.own, **case.peers}
    for run in runs.values():
        for _ in range(3):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            seconds[name].append(time.process_time() - begin)
    middle = {name: 1e3 * statistics.median(found) for name, found in seconds.items()}
    columns = [title.strip() for title in HEAD.splitlines()[0].strip("|").split("|")][3:]
    cells = [f"{middle[title]:.3g}" if title in middle else "" for title in columns]
    return (
        "| " + " | ".join([case.name, f"{middle['bregopt']:.3g}", f"{calls_of(case.own):,}", *cells]) + " |"
    )


GROUPS = {"semidefinite": semidefinite, "nearness": nearness, "by_name": by_name}


def main() -> None:
    """Print the table, and save that of a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=list(GROUPS), help="one group of problems")
    parser.add_argument(
        "--data", type=Path, help="the folder with sdplib, whose files are left out without it"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [HEAD]
    print(HEAD)
    for name, cases in GROUPS.items():
        if options.only in (None, name):
            for case in cases(options.data):
                lines.append(line(case, options.rounds))
                print(lines[-1], flush=True)
    if options.only is None and options.data is not None and options.rounds >= 15:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
