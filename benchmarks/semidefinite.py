"""Semidefinite programs by bregopt and its peers: median times and error measures, with one BLAS thread.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/semidefinite.py [--only gpp maxcut] [--quick]

CSDP, SDPA and DSDP are called as programs (Debian: coinor-csdp, sdpa, dsdp), SCS and Clarabel on conic data
built directly. The same code computes the errors of all answers from the data. The tables of a full run go to
benchmarks/results/semidefinite.md.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sdp_peers import (
    CONIC,
    PROGRAMS,
    SDP,
    TOL,
    Point,
    Run,
    blas_of,
    dimacs,
    objectives,
    proof,
    read_sdp,
)

import bregopt as bo

Array = Any
_ROOT = Path(__file__).resolve().parents[1]
_OURS = "bregopt"
_FEASIBLE = 1e-5  # the largest error measure of an answer that counts as the best
_SEEDS = 20  # number of seeds of Kernighan-Lin

# Optimal values, in the sense of the file (maximize <F0, X>); with more digits than SDPLIB prints if known.
_LIBRARY: dict[str, dict[str, float]] = {
    "gpp": {
        "gpp100": -44.943551,
        "gpp124-1": -7.3430762,
        "gpp124-2": -46.8623,
        "gpp124-3": -153.014,
        "gpp124-4": -418.99,
        "gpp250-1": -15.444917,
    },
    "maxcut": {
        "mcp100": 226.1574,
        "mcp124-1": 141.9905,
        "mcp124-2": 269.8802,
        "mcp124-3": 467.7501,
        "mcp124-4": 864.4119,
        "mcp250-1": 317.26434,
        "maxG11": 629.1648,
    },
    "other": {
        "theta1": 23.0,
        "theta2": 32.87917,
        "control1": 17.78463,
        "truss1": -8.999996,
        "truss2": -123.3804,
        "truss3": -9.109996,
        "truss4": -9.009996,
        "arch0": 0.566517,
    },
    "infeasible": {"infp1": np.nan, "infd1": np.nan},
}
_EMPTY = {"infp1": "y", "infd1": "X"}  # the side that has no feasible point
_QUICK = ("gpp100", "mcp100", "theta1", "control1", "truss1", "infp1", "infd1")
_GROUPS = (*_LIBRARY, "cuts", "small")
_SMALL = ((5, 60), (10, 60), (10, 100), (10, 300), (10, 1000), (20, 1000), (60, 1000))  # order, rows


@dataclass(frozen=True)
class Instance:
    """One problem: ``stage`` puts its file at a path, or returns False if the data are not available."""

    name: str
    group: str
    stage: Callable[[Path], bool]
    optimum: float = np.nan


def library(group: str, data: Path) -> list[Instance]:
    """Return the SDPLIB problems of a group."""

    def unpack(name: str, path: Path) -> bool:
        packed = data / "sdplib" / f"{name}.dat-s.gz"
        if packed.exists():
            path.write_bytes(gzip.decompress(packed.read_bytes()))
        return packed.exists()

    return [Instance(name, group, partial(unpack, name), value) for name, value in _LIBRARY[group].items()]


def generated(group: str, data: Path) -> list[Instance]:
    """Return the problems on graphs whose SDPLIB files are not at hand."""
    # As dense as SDPLIB's gpp250-1 and mcp250-1: 2.6 neighbors a vertex.
    graph = nx.to_scipy_sparse_array(nx.gnp_random_graph(500, 2.6 / 499, seed=500), dtype=float)
    gset = data / "graphs" / "G11.txt.gz"
    made: dict[str, list[tuple[str, Callable[[], bo.Problem | None], float]]] = {
        "maxcut": [("max-cut, random n = 500", lambda: max_cut(graph), np.nan)],
        "gpp": [
            ("equipartition, random n = 500", lambda: equipartition(-graph), np.nan),
            ("equipartition of G11", lambda: _equipartition_of(gset), 629.15528),
        ],
    }
    return [Instance(name, group, partial(_write, make), value) for name, make, value in made.get(group, [])]


def max_cut(graph: Any) -> bo.Problem:
    """Return  max <L, X> / 4, diag(X) = e  as SDPLIB's mcp files state it."""
    X = bo.PSD(graph.shape[0])
    return bo.Problem(bo.Maximize(bo.inner(laplacian(graph) / 4, X)), [bo.diag(X) == 1])


def equipartition(graph: Any) -> bo.Problem:
    """Return  max <L, X> / 4, e'Xe = 0, diag(X) = e  as SDPLIB's gpp files state it (with -L)."""
    X = bo.PSD(graph.shape[0])
    balance = bo.quad_form(np.ones(X.n), X) == 0
    return bo.Problem(bo.Maximize(bo.inner(laplacian(graph) / 4, X)), [balance, bo.diag(X) == 1])


def laplacian(graph: Any) -> Any:
    """Return the Laplacian of an adjacency matrix."""
    return sp.csr_array(sp.diags_array(np.asarray(graph.sum(axis=1)).ravel()) - graph)


def _write(make: Callable[[], bo.Problem | None], path: Path) -> bool:
    problem = make()
    if problem is not None:
        bo.write_sdpa(problem, path)
    return problem is not None


def _equipartition_of(path: Path) -> bo.Problem | None:
    graph = read_gset(path)
    return None if graph is None else equipartition(graph)


def read_gset(path: Path) -> Any:
    """Return the adjacency matrix of a graph of the G-set, None if the file is missing."""
    if not path.exists():
        return None
    first, *edges = gzip.decompress(path.read_bytes()).decode().splitlines()
    n = int(first.split()[0])
    i, j, w = np.array([edge.split() for edge in edges if edge.strip()], dtype=float).T
    half = sp.coo_array((w, (i.astype(int) - 1, j.astype(int) - 1)), shape=(n, n))
    return sp.csr_array(half + half.T)


# ------------------------------------------------------------------------------------------------------- ours


def ours(sdp: SDP, path: Path, route: str, repeats: int, cap: float) -> Run:
    """Time our own route. Compiling and solving are timed, reading the file is not."""
    name = f"{_OURS} {route}"
    if route not in bo.solvers():
        return Run(name, "absent")
    samples: list[tuple[float, float]] = []
    while len(samples) < repeats and (not samples or samples[-1][0] < 5):
        problem = bo.read_sdpa(path)
        begin, cpu = time.perf_counter(), time.process_time()
        try:
            solution = problem.solve(solver=route, tol=TOL, time_limit=cap)
        except Exception as error:  # a failure is a line of the table
            return Run(name, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        samples.append((time.perf_counter() - begin, time.process_time() - cpu))
    return Run(name, solution.status, *np.median(samples, axis=0), point=_our_point(sdp, problem))


def _our_point(sdp: SDP, problem: bo.Problem) -> Point | None:
    """Return our answer in the file's terms; for an infeasible problem, the proof if there is one."""
    y = problem.constraints[0].dual_value
    if y is None:
        return None
    # The names of variables contain the numbers of their blocks.
    blocks = sorted((*problem.matrices, *problem.variables), key=lambda block: int(block.name[1:]))
    X = [
        np.zeros(shape) if block.value is None else np.asarray(block.value).reshape(shape)
        for block, shape in zip(blocks, sdp.shapes, strict=True)
    ]
    return Point(X, y, sdp.slack(y))


# ------------------------------------------------------------------------------------------------------ table


@dataclass(frozen=True)
class Settings:
    """How to run: repeats, seconds allowed, our route, the environment of other programs."""

    repeats: int
    cap: float
    route: str
    solvers: Sequence[str]
    environment: dict[str, str]


def runs_of(sdp: SDP, path: Path, settings: Settings) -> list[Run]:
    """Return the runs of all solvers on one problem, ours first."""
    runs = [ours(sdp, path, settings.route, settings.repeats, settings.cap)]
    for peer in (*PROGRAMS, *CONIC):
        if peer.name in settings.solvers:
            runs.append(peer.run(sdp, path, settings.repeats, settings.cap, settings.environment))
    return runs


def solve_table(instances: list[Instance], settings: Settings) -> list[str]:
    """Solve each instance by every solver; return (and print as they come) the lines of the table."""
    lines = [
        "| instance | solver | says | wall s | CPU s | of it reading | <F0, X> | b'y | DIMACS errors 1 to 6 "
        "| off the known optimum | beside ours |",
        "|---|---|---|--:|--:|--:|--:|--:|---|--:|--:|",
    ]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as folder:
        for instance in instances:
            path = Path(folder) / "problem.dat-s"
            if not instance.stage(path):
                added = [f"| {instance.name} | skipped: its file is not in the data folder |" + " |" * 9]
            else:
                sdp = read_sdp(path)
                added = rows_of(instance, sdp, runs_of(sdp, path, settings))
            lines += added
            print("\n".join(added), flush=True)
    return lines


def rows_of(instance: Instance, sdp: SDP, runs: list[Run]) -> list[str]:
    """Return the table's rows of one instance; the first run is ours."""
    mine, *peers = [Measured.of(instance, sdp, run) for run in runs]
    ratios = [best_beside(mine, peers), *(_ratio(peer, mine) for peer in peers)]
    return [
        f"| {instance.name} | {' | '.join([*m.cells(), ratio])} |"
        for m, ratio in zip((mine, *peers), ratios, strict=True)
    ]


@dataclass(frozen=True)
class Measured:
    """A run and the error measures of its answer."""

    run: Run
    values: tuple[float, float]
    errors: Array
    off: float
    emptiness: float

    @classmethod
    def of(cls, instance: Instance, sdp: SDP, run: Run) -> Measured:
        """Return the measures of a run's answer."""
        nothing = (np.nan, np.nan)
        if run.point is None:
            return cls(run, nothing, np.full(6, np.nan), np.nan, np.nan)
        if instance.name in _EMPTY:
            worth = proof(sdp, run.point, _EMPTY[instance.name])
            return cls(run, nothing, np.full(6, np.nan), np.nan, worth)
        values = objectives(sdp, run.point)
        off = abs(values[0] - instance.optimum) / (1 + abs(instance.optimum))
        return cls(run, values, dimacs(sdp, run.point), off, np.nan)

    @property
    def feasible(self) -> bool:
        """Whether the first five errors, or the error of a proof of infeasibility, are small.

        The sixth error is the fifth plus y'(A(X) - b), which is large for any X if y grows along a face.
        """
        worst = np.abs(self.errors[:5]).max() if np.isnan(self.emptiness) else self.emptiness
        return bool(worst <= _FEASIBLE)

    @property
    def seconds(self) -> float:
        """CPU seconds, without those of reading the file if the program prints them."""
        solving = self.run.cpu - self.run.reading
        return solving if solving > 0 else self.run.cpu

    def cells(self) -> list[str]:
        """Return the cells of the table's row."""
        run = self.run
        errors = " ".join(f"{e:.0e}" if abs(e) > 1e-16 else "0" for e in self.errors if not np.isnan(e))
        if not np.isnan(self.emptiness):
            errors = f"proof lacks {self.emptiness:.0e}"
        numbers = [_number(v, "#.3g") for v in (run.wall, run.cpu, run.reading)]
        values = [_number(v, ".8g") for v in self.values]
        return [run.solver, run.says, *numbers, *values, errors, _number(self.off, ".0e")]


def _number(value: float, form: str) -> str:
    return "" if np.isnan(value) else format(value, form)


def best_beside(mine: Measured, peers: list[Measured]) -> str:
    """Return the ratio of the time of the best feasible peer to ours, and its name."""
    feasible = [peer for peer in peers if peer.feasible]
    if not feasible:
        return "no peer is feasible"
    best = min(feasible, key=lambda peer: peer.seconds)
    return f"best: {best.run.solver} {_ratio(best, mine)}".strip()


def _ratio(peer: Measured, mine: Measured) -> str:
    ratio = peer.seconds / mine.seconds
    return "" if np.isnan(ratio) else f"{ratio:.2g}x"


# ------------------------------------------------------------------------------------------------------- cuts


def graphs(data: Path, quick: bool) -> dict[str, Any]:
    """Return the graphs to cut by name; a missing file gives None."""
    books = data / "graphs" / "polbooks.gml"
    found: dict[str, Any] = {
        "karate": nx.Graph(nx.karate_club_graph().edges()),
        "polbooks": nx.Graph(nx.read_gml(books, label="id")) if books.exists() else None,
    }
    for name in () if quick else ("G14", "G51"):
        adjacency = read_gset(data / "graphs" / f"{name}.txt.gz")
        found[name] = None if adjacency is None else nx.from_scipy_sparse_array(adjacency)
    return found


def cut_table(data: Path, cap: float, quick: bool) -> list[str]:
    """Return (and print) the bound and the rounded cut of each graph beside other heuristics."""
    lines = [
        "| graph | vertices | edges | proven bound | our cut | s | gap "
        f"| Kernighan-Lin, best of {_SEEDS} | s | METIS | s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    print("\n".join(lines))
    for name, graph in graphs(data, quick).items():
        if graph is None:
            line = f"| {name} | skipped: its file is not in the data folder |" + " |" * 9
        else:
            line = _cut_line(name, graph, cap)
        lines.append(line)
        print(line, flush=True)
    return lines


def _cut_line(name: str, graph: Any, cap: float) -> str:
    seconds, cut = _timed(lambda: bo.min_balanced_cut(graph, time_limit=cap))
    lin_seconds, lin = _timed(lambda: min(_kernighan_lin(graph, seed) for seed in range(_SEEDS)))
    metis_seconds, metis = _timed(lambda: _metis(graph))
    cells = [name, len(graph), graph.number_of_edges(), f"{cut.bound:.6g}", f"{cut.cut:g}"]
    cells += [f"{seconds:.3g}", f"{cut.gap:.0e}", lin, f"{lin_seconds:.3g}", metis, f"{metis_seconds:.3g}"]
    return f"| {' | '.join(map(str, cells))} |"


def _kernighan_lin(graph: Any, seed: int) -> int:
    sides = nx.community.kernighan_lin_bisection(graph, max_iter=50, weight=None, seed=seed)
    return int(nx.cut_size(graph, *sides))


def _metis(graph: Any) -> str:
    """Return METIS's cut at equal balance, or the reason why there is none."""
    if importlib.util.find_spec("pymetis") is None:
        return "skipped: no pymetis"
    import pymetis

    number = {v: k for k, v in enumerate(graph)}
    neighbors = [[number[w] for w in graph[v]] for v in graph]
    options = pymetis.Options(ufactor=1)
    cut, side = pymetis.part_graph(2, adjacency=neighbors, recursive=True, options=options)
    difference = abs(len(side) - 2 * sum(side))
    return str(cut) if difference <= len(side) % 2 else f"{cut} (sides differ by {difference})"


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


# ------------------------------------------------------------------------------------------------------ small


def small_table(repeats: int) -> list[str]:
    """Return (and print) the time of a step on small margin problems, from a cold and from a warm start."""
    lines = [
        "| order | hinge rows | steps | ms a step | ms in all | warm: steps | ms in all |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    print("\n".join(lines))
    for order, rows in _SMALL:
        problem, asked = margin(order, rows)
        cold = [_stepped(problem, False) for _ in range(10 * repeats)]
        warm = []
        for k in range(10 * repeats):
            asked.value = 0.01 * np.random.default_rng(k).normal(size=rows)
            warm.append(_stepped(problem, True))
        (steps, step, total), (again, _, warmed) = np.median(cold, axis=0), np.median(warm, axis=0)
        cells = [order, rows, f"{steps:.0f}", f"{step:.3g}", f"{total:.3g}", f"{again:.0f}", f"{warmed:.3g}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        print(lines[-1], flush=True)
    return lines


def margin(order: int, rows: int) -> tuple[bo.Problem, bo.Parameter]:
    """Return  max rho - sum hinges of <A_r, X> - rho >= asked_r, tr X <= 1,  the small master of psdboost."""
    far, near = np.random.default_rng(0).normal(size=(2, rows, order))
    X, rho, asked = bo.PSD(order), bo.Variable(), bo.Parameter(rows)
    asked.value = np.zeros(rows)
    body = bo.quad_form(1.3 * far, X) - bo.quad_form(near, X)
    rows_ = bo.soft(body - rho >= asked, gamma=10 / rows)
    return bo.Problem(bo.Maximize(rho), [bo.trace(X) <= 1, rows_]), asked


def _stepped(problem: bo.Problem, warm: bool) -> tuple[float, float, float]:
    """Return the steps of a solve, the milliseconds of a step, and those of the whole solve."""
    begin = time.perf_counter()
    solution = problem.solve(solver="path", tol=TOL, warm_start=warm)
    total, clock = time.perf_counter() - begin, solution.history["seconds"]
    steps = max(solution.iterations, 1)
    return solution.iterations, 1e3 * float(clock[-1] - clock[0]) / steps, 1e3 * total


# ------------------------------------------------------------------------------------------------------- main


_PREAMBLE = """# Semidefinite programs beside their peers

maximize <F0, X> subject to <F_i, X> = b_i, X psd; its dual minimizes b'y with Z = sum y_i F_i - F0 psd.
One BLAS thread; medians of up to {repeats} runs, one where a run takes 5 s or more; stopped at {cap:g} s
of CPU; every solver is asked for {tol:g}.

The DIMACS errors are recomputed from the data and each solver's X, y, Z: rows of X, cone of X, rows of Z,
cone of Z, gap by the objectives, gap by <X, Z>. Times of CSDP, SDPA and DSDP include starting and reading
the file, not writing the answer; those of the others none of these. The last column is the CPU time over
ours, without the reading where the program tells it (SDPA, DSDP), and in our rows that of the fastest peer
whose first five errors are at most {feasible:g}. Below 0.05 s times mean little. Clarabel decomposes sparse
cones, its default.

BLAS of the programs: {blas}.
"""


def preamble(settings: Settings) -> list[str]:
    """Return the text above the tables."""
    files = [f"{peer.name} {blas_of(peer.program, settings.environment) or 'built in'}" for peer in PROGRAMS]
    text = _PREAMBLE.format(
        repeats=settings.repeats, cap=settings.cap, tol=TOL, feasible=_FEASIBLE, blas=", ".join(files)
    )
    return [*text.splitlines(), ""]


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    names = [peer.name for peer in (*PROGRAMS, *CONIC)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help=f"groups ({', '.join(_GROUPS)}) or instances"
    )
    parser.add_argument("--solvers", nargs="+", choices=names, default=names, help="peers to run")
    parser.add_argument("--route", default="path", help="our route")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median is taken")
    parser.add_argument("--cap", type=float, default=60.0, help="CPU seconds allowed for one solve")
    parser.add_argument("--quick", action="store_true", help="small instances only")
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared" / "data", help="data folder")
    parser.add_argument(
        "--blas", type=Path, help="folder of the libblas.so.3 and liblapack.so.3 of the programs"
    )
    parser.add_argument("--output", type=Path, help="where the tables go; for a full run the results folder")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 first")
    if not options.quick and not options.only and options.output is None:
        options.output = Path(__file__).parent / "results" / "semidefinite.md"
    return options


def main() -> None:
    """Run the chosen instances and save the tables."""
    options = arguments()
    warnings.simplefilter("ignore")
    environment = dict(os.environ)
    if options.blas is not None:
        environment["LD_LIBRARY_PATH"] = str(options.blas.resolve())
    settings = Settings(options.repeat, options.cap, options.route, options.solvers, environment)
    instances = [i for g in _LIBRARY for i in (*library(g, options.data), *generated(g, options.data))]
    wanted = options.only or _GROUPS
    chosen = [
        i for i in instances if {i.name, i.group} & set(wanted) and (not options.quick or i.name in _QUICK)
    ]
    lines = preamble(settings)
    print("\n".join(lines))
    if chosen:
        lines += solve_table(chosen, settings)
    if "cuts" in wanted:
        lines += ["", *cut_table(options.data, options.cap, options.quick)]
    if "small" in wanted:
        lines += ["", *small_table(settings.repeats)]
    if options.output is not None:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
