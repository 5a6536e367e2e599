"""Balanced cuts of graphs: our proven bounds and rounded cuts beside Kernighan-Lin and METIS."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
from sdp_problems import read_gset

import bregopt as bo

_SEEDS = 20  # number of seeds of Kernighan-Lin


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
