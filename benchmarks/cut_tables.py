"""Tables of `large_cuts.py`: cuts beside METIS, KaHIP and networkx, parts, and triangle inequalities."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import bregopt as bo

_SEEDS = 5
_METIS_RUNS, _KAHIP_RUNS = 20, 3
_SECONDS = 120.0  # for all runs of KaHIP on one graph

Graphs = dict[str, Callable[[], Any]]


def cut_lines(graphs: Graphs) -> Iterator[str]:
    """Yield the lines of the table of cuts in two equal sides, by the search alone."""
    yield _row("graph", "n", "edges", "cuts of 5 seeds", "CPU s", "METIS", "KaHIP", "networkx")
    yield "|" + "---|" * 8
    for name, make in graphs.items():
        graph = make()
        found, seconds = [], 0.0
        for seed in range(_SEEDS):
            begin = time.process_time()
            found.append(bo.min_balanced_cut(graph, seed=seed, bound=False).cut)
            seconds += (time.process_time() - begin) / _SEEDS
        ends = f"{min(found):.5g} to {max(found):.5g}"
        peers = [_weight(peer(graph, 2)) for peer in (metis, kahip, kernighan_lin)]
        yield _row(name, f"{graph.shape[0]:,}", f"{graph.nnz // 2:,}", ends, f"{seconds:.1f}", *peers)
    yield f"\nBalanced cuts at exact sizes with bound=False, beside the best of {_METIS_RUNS} runs of METIS"
    yield f"and of {_KAHIP_RUNS} of KaHIP (eco) that have these sizes."


def part_lines(graphs: Graphs, runs: list[tuple[str, int, str | bool]]) -> Iterator[str]:
    """Yield the lines of the table of partitions; a run is a graph, its number of parts and a bound."""
    yield _row("graph", "k", "bound=", "cuts of 5 seeds", "proven", "optimal", "CPU s", "METIS", "KaHIP")
    yield "|" + "---|" * 9
    for name, k, bound in runs:
        graph = graphs[name]()
        begin = time.process_time()
        found = bo.partition(graph, k, bound=bound)
        seconds = time.process_time() - begin
        cuts = [found.cut, *(bo.partition(graph, k, bound=False, seed=s).cut for s in range(1, _SEEDS))]
        ends = f"{min(cuts):.5g} to {max(cuts):.5g}"
        cells = [name, k, bound, ends, f"{found.bound:.5g}", found.optimal, f"{seconds:.1f}"]
        yield _row(*cells, _weight(metis(graph, k)), _weight(kahip(graph, k)))
    yield "\nParts whose sizes differ by one at most; the first seed with the bound, the others without."


def fast_lines(graphs: Graphs) -> Iterator[str]:
    """Yield the lines of the table of searches without rounds, each beside one run of METIS."""
    yield _row("graph", "n", "k", "cut", "CPU ms", "METIS: cut", "CPU ms", "ratio")
    yield "|" + "---|" * 8
    try:
        import pymetis
    except ImportError:
        yield "\nMETIS is not installed: `pip install pymetis`."
        return

    for name, make in graphs.items():
        graph = make()
        adjacency = pymetis.CSRAdjacency(np.array(graph.indptr), np.array(graph.indices))
        weights = _whole(graph)
        for k in (2, 8):
            cuts: tuple[list[float], list[float]] = ([], [])
            times: tuple[list[float], list[float]] = ([], [])
            for seed in range(_SEEDS):
                begin = time.process_time()
                cuts[0].append(bo.partition(graph, k, bound=False, rounds=0, seed=seed).cut)
                between = time.process_time()
                options = pymetis.Options(seed=seed)
                _, part = pymetis.part_graph(k, adjacency=adjacency, eweights=weights, options=options)
                end = time.process_time()
                cuts[1].append(_between(graph, np.array(part)))
                times[0].append(1e3 * (between - begin))
                times[1].append(1e3 * (end - between))
            (ours, theirs), (own, peer) = np.median(cuts, axis=1), np.median(times, axis=1)
            cells = [name, f"{graph.shape[0]:,}", k, f"{ours:.5g}", f"{own:.0f}", f"{theirs:.5g}"]
            yield _row(*cells, f"{peer:.1f}", f"{own / peer:.1f}")
    yield f"\n`rounds=0, bound=False`; medians of {_SEEDS} seeds, our parts of equal sizes, those of METIS"
    yield "within 3 %."


def triangle_lines(runs: list[tuple[str, Callable[[], Any]]]) -> Iterator[str]:
    """Yield the lines of the table of bounds with and without triangle inequalities.

    A run is a name and a function that returns a function of `bound=`, which solves.
    """
    yield _row("problem", "n", "cut", "SDP bound", "CPU s", "with triangles", "optimal", "CPU s")
    yield "|" + "---|" * 8
    for name, make in runs:
        solve, answers = make(), []
        for bound in ("sdp", "triangles"):
            begin = time.process_time()
            found = solve(bound)
            answers.append((found, time.process_time() - begin))
        (plain, first), (sharp, second) = answers
        cells = [f"{plain.bound:.5g}", f"{first:.2f}", f"{sharp.bound:.5g}", sharp.optimal, f"{second:.2f}"]
        yield _row(name, len(sharp.assignments), f"{sharp.cut:.5g}", *cells)
    yield "\nOne run, one BLAS thread; the time is that of the cut and the bound."


def metis(graph: Any, k: int) -> float | None:
    """Return the least weight between k parts of exact sizes that METIS finds."""
    try:
        import pymetis
    except ImportError:
        return None
    found = []
    for seed in range(_METIS_RUNS):
        _, part = pymetis.part_graph(
            k,
            xadj=graph.indptr.tolist(),
            adjncy=graph.indices.tolist(),
            eweights=_whole(graph),
            options=pymetis.Options(seed=seed, ufactor=1),
        )
        found.append(_cut(graph, np.array(part), k))
    return min(found)


def kahip(graph: Any, k: int) -> float | None:
    """Return the least weight between k parts of exact sizes that KaHIP finds, NaN if it takes too long."""
    if find_spec("kahip") is None:
        return None
    context = get_context("spawn")
    here, there = context.Pipe()
    run = context.Process(target=_kahip, args=(graph, k, there))
    run.start()
    parts = here.recv() if here.poll(_SECONDS) else []
    run.terminate()
    return min((_cut(graph, part, k) for part in parts), default=np.nan)


def _kahip(graph: Any, k: int, connection: Any) -> None:
    """Send the partitions of several runs of KaHIP, which has no limit of time."""
    import kahip as peer

    ones, eco = [1] * graph.shape[0], 1
    starts, ends, weights = graph.indptr.tolist(), graph.indices.tolist(), _whole(graph)
    runs = [peer.kaffpa(ones, starts, weights, ends, k, 0.0, True, seed, eco) for seed in range(_KAHIP_RUNS)]
    connection.send([np.array(part) for _, part in runs])


def kernighan_lin(graph: Any, k: int) -> float | None:
    """Return the weight between two halves that networkx finds."""
    try:
        import networkx
    except ImportError:
        return None
    sides = networkx.community.kernighan_lin_bisection(networkx.from_scipy_sparse_array(graph), seed=0)
    part = np.zeros(graph.shape[0], dtype=int)
    part[list(sides[1])] = 1
    return _cut(graph, part, k)


def mesh_graphs(data: Path, read: Callable[[Path], Any]) -> Graphs:
    """Return the readers of the meshes and circuits in a folder."""
    paths = {name: data / "graphs" / f"{name}.graph.gz" for name in ("3elt", "data", "add20")}
    return {name: lambda path=path: read(path) for name, path in paths.items() if path.exists()}


def _whole(graph: Any) -> list[int]:
    """Return weights as integers, which METIS and KaHIP expect."""
    weights = graph.data
    scale = 1 if (weights == np.round(weights)).all() else 1_000
    whole: list[int] = np.round(scale * weights).astype(int).tolist()
    return whole


def _cut(graph: Any, part: Any, k: int) -> float:
    """Return the weight between parts, infinite if their sizes differ by more than one."""
    sizes = np.bincount(part, minlength=k)
    return _between(graph, part) if sizes.max() - sizes.min() <= 1 else np.inf


def _between(graph: Any, part: Any) -> float:
    edges = graph.tocoo()
    return float(edges.data[part[edges.row] != part[edges.col]].sum() / 2)


def _weight(weight: float | None) -> str:
    if weight is None:
        return ""
    if np.isnan(weight):
        return f"over {_SECONDS:.0f} s"
    return f"{weight:.5g}" if np.isfinite(weight) else "other sizes"


def _row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"
