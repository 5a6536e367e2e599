"""Best cuts, proven: instances of the BiqMac library and generated graphs, beside BiqBin and HiGHS.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/exact_cuts.py [--only g05_60.0] [--limit S]
        [--data FOLDER]

Instances are read from the folder `biqmac` of the data folder, if it is there: ``NAME.gz`` in the rudy
format, and ``optimal.txt`` with the optima; and one of SDPLIB from `sdplib`. A time is the CPU time of one
call, which finds the cut itself. "check" is that of ``certificate.check()``. BiqBin's times are those of its
serial C program on another machine, some twice as fast, which was given the optimum. HiGHS solves the linear
program of the last round once more, from nothing. The table goes to benchmarks/results/exact_cuts.md.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial import Delaunay

import bregopt as bo
from bregopt.problems.cuts.branch_and_bound.leaves import Cycles, Form, Node
from bregopt.problems.cuts.branch_and_bound.odd_cycles import Model

_ROOT = Path(__file__).resolve().parents[1]
_BIQBIN = {  # CPU seconds and nodes
    "g05_60.0": "0.5 / 1",
    "pm1s_80.0": "0.3 / 1",
    "pm1s_100.0": "1.6 / 1",
    "w01_100.0": "1.3 / 1",
    "pm1d_80.0": "6.4 / 5",
    "g05_80.0": "7.9 / 7",
    "t2g10_5555": "2.1 / 1",
}
_LIBRARY = [
    *(f"g05_60.{k}" for k in range(5)),
    "pm1s_80.0",
    "pm1s_100.0",
    "w01_100.0",
    "pm1d_80.0",
    "g05_80.0",
    "g05_100.0",
    "t2g10_5555",
    "t2g15_5555",
    "t2g20_5555",
    "t3g5_5555",
    "t3g6_5555",
]


def library(folder: Path) -> Iterator[tuple[str, Callable[[], Any], float | None]]:
    """Yield name, graph and optimum of the instances that are there."""
    if not (folder / "optimal.txt").exists():
        return
    words = (folder / "optimal.txt").read_text().split()
    optima = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    for name in _LIBRARY:
        if (folder / f"{name}.gz").exists():
            yield name, lambda name=name: read_rudy(folder / f"{name}.gz"), optima.get(name)


def equipartition(folder: Path) -> Iterator[tuple[str, Callable[[], Any], None]]:
    """Yield the graph of an SDPLIB problem, whose costs are its Laplacian, if it is there."""
    path = folder / "gpp124-1.dat-s.gz"
    if path.exists():
        costs = bo.read_sdpa(path).program().blocks[0].C
        yield (
            "bisection, gpp124-1",
            lambda: sp.csr_array(np.triu(costs, 1) + np.triu(costs, 1).T != 0) * 1.0,
            None,
        )


def read_rudy(path: Path) -> Any:
    """Return the adjacency matrix in a file: the numbers of vertices and edges, then ends and weights."""
    words = gzip.decompress(path.read_bytes()).decode().split()
    edges = np.array(words[2:], dtype=float).reshape(-1, 3)
    i, j = edges[:, :2].astype(int).T - 1
    half = sp.csr_array((edges[:, 2], (i, j)), (int(words[0]), int(words[0])))
    return sp.csr_array(half + half.T)


def torus(side: int, dimensions: int, weights: Callable[[int], Any]) -> Any:
    """Return a periodic grid with the weights that a function draws."""
    at = np.arange(side**dimensions).reshape((side,) * dimensions)
    ends = [(at.ravel(), np.roll(at, 1, axis).ravel()) for axis in range(dimensions)]
    i, j = (np.concatenate(part) for part in zip(*ends, strict=True))
    half = sp.csr_array((weights(len(i)), (i, j)), (at.size, at.size))
    return sp.csr_array(half + half.T)


def mesh(n: int) -> Any:
    """Return a triangulation of random points, with weights 1 and -1."""
    rng = np.random.default_rng(0)
    corners = Delaunay(rng.random((n, 2))).simplices
    pairs = np.unique(
        np.sort(np.concatenate([corners[:, [a, b]] for a, b in ((0, 1), (1, 2), (0, 2))])), axis=0
    )
    half = sp.csr_array((rng.choice([-1.0, 1.0], len(pairs)), pairs.T), (n, n))
    return sp.csr_array(half + half.T)


def random_graph(n: int, density: float) -> Any:
    """Return a random graph with weights of one."""
    half = sp.csr_array(np.triu(np.random.default_rng(0).random((n, n)) < density, 1), dtype=float)
    return sp.csr_array(half + half.T)


def generated() -> Iterator[tuple[str, Callable[[], Any], None]]:
    """Yield names and graphs."""
    rng = np.random.default_rng(0)
    yield "torus 20 x 20, weights 1 and -1", lambda: torus(20, 2, lambda m: rng.choice([-1.0, 1.0], m)), None
    yield "torus 30 x 30, Gaussian", lambda: torus(30, 2, lambda m: rng.normal(size=m)), None
    yield "torus 5 x 5 x 5, weights 1 and -1", lambda: torus(5, 3, lambda m: rng.choice([-1.0, 1.0], m)), None
    yield "Delaunay, 500 vertices", lambda: mesh(500), None
    yield "bisection, 40 vertices, density .15", lambda: random_graph(40, 0.15), None
    yield "bisection, 60 vertices, density .1", lambda: random_graph(60, 0.1), None
    yield "3 parts, 18 vertices, density .4", lambda: random_graph(18, 0.4), None
    yield "3 parts, 24 vertices, density .4", lambda: random_graph(24, 0.4), None
    yield "4 parts, 20 vertices, density .4", lambda: random_graph(20, 0.4), None


def lines(runs: list[tuple[str, Callable[[], Any], float | None]], limit: float) -> Iterator[str]:
    """Yield the lines of the table."""
    yield _row(
        "graph", "n", "edges", "cut", "bound", "nodes", "CPU s", "check s", "kB", "BiqBin s / nodes", "LP s"
    )
    yield "|" + "---|" * 11
    for name, make, optimum in runs:
        W = make()
        solve: Any = bo.min_balanced_cut if name.startswith("bisection") else bo.max_cut
        if name[0].isdecimal():
            solve = partial(bo.partition, k=int(name[0]))
        begin = time.process_time()
        found = solve(W, exact=True, time_limit=limit)
        seconds = time.process_time() - begin
        begin = time.process_time()
        found.certificate.check()
        check = time.process_time() - begin
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cut.npz"
            found.certificate.save(file)
            size = file.stat().st_size / 1e3
        assert optimum is None or (found.cut <= optimum <= found.bound)
        proven = "proven" if found.optimal else f"{found.bound:.10g}"
        cells = [
            W.shape[0],
            W.nnz // 2,
            f"{found.cut:.10g}",
            proven,
            found.nodes,
            f"{seconds:.2f}",
            f"{check:.3f}",
        ]
        yield _row(name, *cells, f"{size:.0f}", _BIQBIN.get(name, ""), _program_alone(found))
    yield "\nOne run, one BLAS thread. BiqBin ran on another machine, and was given the optimum."


def _program_alone(found: bo.Cut) -> str:
    """Return the CPU time in which HiGHS solves the final linear program of a tree of one node."""
    certificate = found.certificate
    if certificate is None or len(certificate.trees) != 1 or len(certificate.trees[0]) != 1:
        return ""
    (leaf,) = certificate.trees[0]
    if not isinstance(leaf.rows, Cycles):
        return ""
    form = Form.of(certificate.task.reduction().pieces[0])
    begin = time.process_time()
    A, constant, _ = form.fold(Node((), leaf.rows))
    model = Model(A.T @ form.weights.mid)
    R = leaf.rows.matrix(len(form.i))
    model.add(sp.csr_array(R @ A), leaf.rows.constants - R @ constant)
    model.solve()
    return f"{time.process_time() - begin:.2f}"


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Measure the rows of the table, print it and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=_ROOT.parent / "shared" / "data")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--limit", type=float, default=600.0, metavar="S")
    arguments = parser.parse_args()
    data = arguments.data
    runs = [*library(data / "biqmac"), *equipartition(data / "sdplib"), *generated()]
    runs = [run for run in runs if not arguments.only or run[0] in arguments.only]
    shown = []
    for line in lines(runs, arguments.limit):
        shown.append(line)
        print(line, flush=True)
    if not arguments.only:
        (_ROOT / "benchmarks" / "results" / "exact_cuts.md").write_text("\n".join(shown) + "\n")


if __name__ == "__main__":
    main()
