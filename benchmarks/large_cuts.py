"""Cuts of large graphs: bounds by the route `lowrank` beside DSDP and SDPA, cuts and parts beside METIS.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/large_cuts.py
        [bounds|cuts|parts|fast|triangles] [--only G1 3elt] [--data FOLDER]

Instances are SDPLIB's, the G-set and Walshaw's meshes, if the data folder has them, and generated graphs. A
time is that of one run, from the declared problem to the certified answer. The peers (Debian: dsdp, sdpa) get
files of the same problem; the errors of their answers are computed from the data. The tables go to
benchmarks/results: large_cuts.md, and large_cuts_cuts.md and so on. METIS and KaHIP are asked if pymetis and
kahip are installed.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from cut_tables import cut_lines, fast_lines, mesh_graphs, part_lines, triangle_lines
from sdp import dimacs, read_sdp
from sdp_peers import PROGRAMS
from sdp_problems import laplacian, max_cut, read_gset

import bregopt as bo

_ROOT = Path(__file__).resolve().parents[1]
_PEERS = [peer for peer in PROGRAMS if peer.name in ("DSDP", "SDPA")]
_PEER_ORDER, _CAP = 500, 120.0  # largest order of the peers' problems, and their time limit in seconds


@dataclass(frozen=True)
class Instance:
    """One problem: its source, and the requested gap."""

    name: str
    problem: Callable[[], bo.Problem]
    tol: float


def balanced(graph: Any) -> bo.Problem:
    """Return  min <L, X>, diag(X) = e, e'Xe = 0."""
    X = bo.PSD(graph.shape[0], name="X")
    balance = bo.quad_form(np.ones(X.n), X) == 0
    return bo.Problem(bo.Minimize(bo.inner(laplacian(graph), X)), [bo.diag(X) == 1, balance])


def random_graph(n: int, m: int, seed: int = 0) -> Any:
    """Return a graph of `m` random edges without loops and parallel edges."""
    i, j = np.random.default_rng(seed).integers(0, n, (2, m))
    half = sp.csr_array((np.ones((i != j).sum()), (i[i != j], j[i != j])), (n, n))
    graph = sp.csr_array(half + half.T)
    graph.data[:] = 1.0
    return graph


def graph_with_hubs(n: int, degree: int, seed: int = 0) -> Any:
    """Return a weighted graph by preferential attachment (Barabasi and Albert 1999)."""
    rng = np.random.default_rng(seed)
    ends, rows, columns = list(range(degree)), [], []
    for vertex in range(degree, n):
        chosen: set[int] = set()
        while len(chosen) < degree:
            chosen.add(ends[rng.integers(len(ends))])
        rows += [vertex] * degree
        columns += sorted(chosen)
        ends += [vertex] * degree + sorted(chosen)
    half = sp.csr_array((rng.uniform(0.1, 1.0, len(rows)), (rows, columns)), (n, n))
    return sp.csr_array(half + half.T)


def square_grid(side: int) -> Any:
    """Return the graph of a square grid."""
    at = np.arange(side**2).reshape(side, side)
    i = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    j = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    half = sp.csr_array((np.ones(len(i)), (i, j)), (side**2, side**2))
    return sp.csr_array(half + half.T)


def read_mesh(path: Path) -> Any:
    """Return a graph in the format of Chaco and Metis, without weights."""
    with gzip.open(path, "rt") as lines:
        n = int(lines.readline().split()[0])
        near = [np.array(line.split(), dtype=int) - 1 for line in lines][:n]
    start = np.cumsum([0, *map(len, near)])
    return sp.csr_array((np.ones(start[-1]), np.concatenate(near), start), (n, n))


def instances(data: Path) -> list[Instance]:
    """Return the problems whose data are available, and the generated ones."""
    found = []
    sizes = ("100", "124-1", "124-2", "124-3", "124-4", "250-1")
    for name in [f"{kind}{size}" for kind in ("gpp", "mcp") for size in sizes]:
        path = data / "sdplib" / f"{name}.dat-s.gz"
        if path.exists():
            found.append(Instance(name, lambda path=path: bo.read_sdpa(path), 1e-6))
    sparse = random_graph(500, 650)
    found.append(Instance("max-cut, random n = 500", lambda: max_cut(sparse), 1e-6))
    found.append(Instance("balanced, random n = 500", lambda: balanced(sparse), 1e-6))
    for name in ("G1", "G14", "G43", "G51", "G11"):
        path = data / "graphs" / f"{name}.txt.gz"
        if path.exists():
            found.append(Instance(name, lambda path=path: max_cut(read_gset(path)), 1e-5))
    for name in ("add20", "data", "3elt"):
        path = data / "graphs" / f"{name}.graph.gz"
        if path.exists():
            found.append(Instance(name, lambda path=path: balanced(read_mesh(path)), 1e-4))
    found += [
        Instance("max-cut, random n = 5,000", lambda: max_cut(random_graph(5_000, 20_000)), 1e-4),
        Instance("max-cut, sparse n = 5,000", lambda: max_cut(random_graph(5_000, 12_500)), 2e-5),
        Instance("balanced, random n = 5,000", lambda: balanced(random_graph(5_000, 20_000)), 1e-4),
        Instance("balanced, hubs n = 5,000", lambda: balanced(graph_with_hubs(5_000, 4)), 3e-4),
        Instance("balanced, hubs n = 5,000", lambda: balanced(graph_with_hubs(5_000, 4)), 1e-4),
        Instance("balanced, grid n = 19,600", lambda: balanced(square_grid(140)), 1e-3),
    ]
    for kind, problem, n, tol in (
        ("max-cut", max_cut, 20_000, 1e-2),
        ("max-cut", max_cut, 20_000, 1e-4),
        ("balanced", balanced, 20_000, 1e-2),
        ("max-cut", max_cut, 100_000, 1e-2),
        ("max-cut", max_cut, 100_000, 1e-3),
    ):
        name = f"{kind}, random n = {n:,}"
        found.append(Instance(name, lambda make=problem, n=n: make(random_graph(n, 5 * n)), tol))
    return found


def measured(instance: Instance) -> str:
    """Return the line of the table of one instance."""
    problem = instance.problem()
    n = problem.program().blocks[0].n
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bo.ConvergenceWarning)
        sol = problem.solve(solver="lowrank", tol=instance.tol)
    seconds = time.perf_counter() - begin
    peers = [_beside(peer, problem) if n <= _PEER_ORDER else "" for peer in _PEERS]
    cells = [
        instance.name,
        f"{n:,}",
        f"{instance.tol:.0e}",
        f"{seconds:.2f}",
        f"{sol.value:.9g}",
        f"{sol.dual_value:.9g}",
        f"{sol.gap:.1e}",
        f"{sol.primal_residual:.0e}",
        str(sol.rank),
        *peers,
    ]
    return f"| {' | '.join(cells)} |"


def _beside(peer: Any, problem: bo.Problem) -> str:
    """Return a peer's seconds, and the largest of its error measures if it is above 1e-5."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.dat-s"
        bo.write_sdpa(problem, path)
        sdp = read_sdp(path)
        run = peer.run(sdp, path, 1, _CAP, dict(os.environ))
        if run.point is None:
            return run.says
        error = float(np.abs(dimacs(sdp, run.point)).max())
        return f"{run.wall:.2f}" + (f" ({error:.0e})" if error > 1e-5 else "")


def bound_lines(chosen: list[Instance]) -> Iterator[str]:
    """Yield the lines of the table of bounds."""
    titles = ["instance", "n", "asked", "seconds", "value", "bound", "gap", "residual", "rank"]
    titles += [peer.name for peer in _PEERS]
    yield f"| {' | '.join(titles)} |"
    yield "|" + "---|" * len(titles)
    for instance in chosen:
        yield measured(instance)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    yield f"\nOne run, one BLAS thread. Largest memory of the process: {memory:.2f} GB."


def graphs(data: Path) -> dict[str, Callable[[], Any]]:
    """Return the graphs of the tables of cuts and parts."""
    return {
        "random 500": lambda: random_graph(500, 2_000),
        "hubs 500": lambda: graph_with_hubs(500, 4),
        **mesh_graphs(data, read_mesh),
        "random 5,000": lambda: random_graph(5_000, 20_000),
        "hubs 5,000": lambda: graph_with_hubs(5_000, 4),
    }


_SMALL: dict[str, Callable[[], Any]] = {
    "random 1,000": lambda: random_graph(1_000, 4_000),
    "hubs 1,000": lambda: graph_with_hubs(1_000, 4),
    "grid 32 x 32": lambda: square_grid(32),
}
_PARTS: list[tuple[str, int, str | bool]] = [
    ("random 500", 4, "sdp"),
    ("3elt", 8, "sdp"),
    ("random 5,000", 8, "sdp"),
    ("hubs 5,000", 8, "sdp"),
]


def with_triangles(data: Path) -> list[tuple[str, Callable[[], Any]]]:
    """Return the problems of the table of triangle inequalities, as functions of `bound=`."""

    def parts(graph: Any, k: int) -> Any:
        return lambda bound: bo.partition(graph, k, bound=bound)

    def halves(graph: Any) -> Any:
        return lambda bound: bo.min_balanced_cut(graph, bound=bound)

    def largest(graph: Any) -> Any:
        return lambda bound: bo.max_cut(graph, bound=bound)

    found: list[tuple[str, Callable[[], Any]]] = [
        ("max-cut, random", lambda: largest(random_graph(200, 800))),
        ("balanced, hubs", lambda: halves(graph_with_hubs(200, 4))),
        ("balanced, hubs", lambda: halves(graph_with_hubs(500, 4))),
    ]
    for k in (3, 4):
        found.append((f"karate, k = {k}", lambda k=k: parts(nx.karate_club_graph(), k)))
    books = data / "graphs" / "polbooks.gml"
    if books.exists():
        for k in (3, 4):
            found.append((f"polbooks, k = {k}", lambda k=k: parts(nx.read_gml(books), k)))
    return found


def main() -> None:
    """Measure the rows of a table, print it and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "table", nargs="?", choices=["bounds", "cuts", "parts", "fast", "triangles"], default="bounds"
    )
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared" / "data")
    parser.add_argument("--only", nargs="+")
    arguments = parser.parse_args()

    def wanted(name: str) -> bool:
        return not arguments.only or name in arguments.only

    known = graphs(arguments.data)
    tables = {
        "bounds": lambda: bound_lines([i for i in instances(arguments.data) if wanted(i.name)]),
        "cuts": lambda: cut_lines({name: make for name, make in known.items() if wanted(name)}),
        "parts": lambda: part_lines(known, [run for run in _PARTS if run[0] in known and wanted(run[0])]),
        "fast": lambda: fast_lines({name: make for name, make in (_SMALL | known).items() if wanted(name)}),
        "triangles": lambda: triangle_lines(
            [run for run in with_triangles(arguments.data) if wanted(run[0])]
        ),
    }
    lines = []
    for line in tables[arguments.table]():
        lines.append(line)
        print(line, flush=True)
    if not arguments.only:
        name = "large_cuts" if arguments.table == "bounds" else f"large_cuts_{arguments.table}"
        (_ROOT / "benchmarks" / "results" / f"{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
