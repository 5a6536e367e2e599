"""Theta numbers of graphs with many edges: ``bo.lovasz_theta`` beside `path`, SCS and CSDP.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/theta.py [--only NAME ...] [--cap 30]

Vertices of the Hamming graphs are words of bits, with an edge between two that differ in the given numbers of
bits; the other graphs are random. Each solve has a process of its own, which is stopped when its time is up;
seconds are of the processor. SCS gets the problem from CVXPY, CSDP from a file. All are asked for 1e-6. A
cell has the seconds and the distance between value and bound, relative to the bound. For SCS it is our bound.
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
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from sdp_peers import PROGRAMS, called

import bregopt as bo

_RESULTS = Path(__file__).parent / "results" / "theta.md"
_TOL = 1e-6
_OURS = 10  # times the seconds of others, for a bound to compare with
_WAYS = ("lovasz_theta", "path", "SCS")


def hamming(bits: int, *distances: int) -> nx.Graph:
    """Return the graph of all words, with edges between those at the distances."""
    words = np.arange(2**bits)
    ones = np.array([word.bit_count() for word in words.tolist()])
    return nx.from_edgelist(np.argwhere(np.triu(np.isin(ones[words[:, None] ^ words], distances))).tolist())


def gnp(n: int, p: float) -> nx.Graph:
    """Return a random graph of the seed zero."""
    return nx.gnp_random_graph(n, p, seed=0)


GRAPHS: dict[str, Callable[[], Any]] = {
    "Hamming, 9 bits, 8": partial(hamming, 9, 8),
    "Hamming, 8 bits, 3 and 4": partial(hamming, 8, 3, 4),
    "Hamming, 10 bits, 2": partial(hamming, 10, 2),
    "G(300, 4,374 edges)": partial(nx.gnm_random_graph, 300, 4374, seed=0),
    "G(300, .8)": partial(gnp, 300, 0.8),
    "G(500, .1)": partial(gnp, 500, 0.1),
    "G(500, .5)": partial(gnp, 500, 0.5),
    "G(1000, .0075)": partial(gnp, 1000, 0.0075),
    "G(1000, .2)": partial(gnp, 1000, 0.2),
}


def language(m: Any, graph: nx.Graph) -> Any:
    """Return the problem with a row for each edge, in bregopt's language or CVXPY."""
    n, (i, j) = len(graph), np.array(graph.edges).T
    X = m.PSD(n) if m is bo else m.Variable((n, n), PSD=True)
    return m.Problem(m.Maximize(m.sum(X)), [m.trace(X) == 1, X[i, j] == 0])


def solved(name: str, way: str) -> dict[str, Any]:
    """Return the seconds, status, value and bound of a solve in this process."""
    warnings.simplefilter("ignore")
    graph, bound = GRAPHS[name](), np.nan
    begin = time.process_time()
    if way == "SCS":
        import cvxpy as cp

        made = language(cp, graph)
        made.solve("SCS", eps_abs=_TOL, eps_rel=_TOL, max_iters=10**7)
        value, status = made.value, made.status
    else:
        sol = (
            bo.lovasz_theta(graph, tol=_TOL)
            if way == "lovasz_theta"
            else language(bo, graph).solve(solver=way, tol=_TOL)
        )
        value, bound, status = sol.value, sol.dual_value, sol.status
    seconds = time.process_time() - begin
    return {"seconds": seconds, "status": status, "value": float(value), "bound": float(bound)}


def by_csdp(name: str, cap: float) -> dict[str, Any]:
    """Return the seconds, status and values of CSDP on the file that bregopt writes."""
    csdp = PROGRAMS[0]
    if csdp.missing():
        return {"status": "not installed"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.dat-s"
        bo.write_sdpa(language(bo, GRAPHS[name]()), path)
        done = called([csdp.program, *csdp.command(path, None)], Path(folder), cap, dict(os.environ))
    if done is None:
        return {"status": f"stopped at {cap:g} s"}
    said = [line.partition(":")[2] for line in done[2].splitlines() if "objective value" in line]
    if "Success: SDP solved" not in done[2] or len(said) != 2:
        return {"status": "too large" if "too large" in done[2] else done[2].strip().splitlines()[-1]}
    first, second = (abs(float(text)) for text in said)
    return {"seconds": done[1], "status": "optimal", "value": first, "bound": second}


def in_process(name: str, way: str, cap: float) -> dict[str, Any]:
    """Return what a process of its own answers."""
    call = [sys.executable, __file__, "--process", json.dumps([name, way])]
    done = called(call, Path.cwd(), cap, dict(os.environ))
    if done is None:
        return {"status": f"stopped at {cap:g} s"}
    last = (done[2].splitlines() or [""])[-1]
    found: dict[str, Any] = json.loads(last) if last.startswith("{") else {"status": "too large"}
    return found


def line_of(name: str, cap: float) -> str:
    """Return the line of a graph."""
    graph = GRAPHS[name]()
    runs = [in_process(name, way, cap if way != _WAYS[0] else _OURS * cap) for way in _WAYS]
    runs.append(by_csdp(name, cap))
    first = runs[0]
    known = f"{first['bound']:.6f}" if "bound" in first else ""
    cells = [_cell(run, first.get("bound", np.nan)) for run in runs]
    return f"| {name} | {len(graph):,} | {len(graph.edges) + 1:,} | {known} | {' | '.join(cells)} |"


def _cell(run: dict[str, Any], bound: float) -> str:
    """Return seconds, error and status of a run; where it has no bound of its own, from that of another."""
    words = [f"{run['seconds']:.3g}"] if "seconds" in run else []
    if "value" in run:
        own = run["bound"] if np.isfinite(run["bound"]) else bound
        words += [f"({abs(own - run['value']) / abs(own):.0e})"] if np.isfinite(own) else []
    return " ".join(words if run["status"] == "optimal" else [*words, run["status"]])


def main() -> None:
    """Run the chosen graphs, print the table, and save it if it is whole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(GRAPHS), metavar="NAME", help="names of graphs")
    parser.add_argument("--cap", type=float, default=30.0, help="seconds allowed for others")
    options = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        parser.error("set OPENBLAS_NUM_THREADS=1 first")
    lines = [f"| graph | vertices | rows | bound | {' | '.join([*_WAYS, 'CSDP'])} |"]
    lines.append("|---|--:|--:|--:|" + "--:|" * (len(_WAYS) + 1))
    print("\n".join(lines))
    for name in options.only:
        lines.append(line_of(name, options.cap))
        print(lines[-1], flush=True)
    if options.only == list(GRAPHS):
        _RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        print(json.dumps(solved(*json.loads(sys.argv[2]))))
    else:
        main()
