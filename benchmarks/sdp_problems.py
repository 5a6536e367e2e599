"""The semidefinite programs of ``semidefinite.py``: SDPLIB's, and those generated from seeds."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sdp import SDP, write_sdp

import bregopt as bo

Array = Any

# Optimal values, in the sense of the file (maximize <F0, X>); with more digits than SDPLIB prints if known.
LIBRARY: dict[str, dict[str, float]] = {
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
    "theta": {
        "theta1": 23.0,
        "theta2": 32.87917,
        "theta3": 42.16698,
        "theta4": 50.32122,
        "theta5": 57.23231,
        "thetaG11": 400.0,
    },
    "control": {
        "control1": 17.78463,
        "control3": 13.63327,
        "control4": 19.79423,
        "control5": 16.8836,
        "control7": 20.6251,
    },
    "truss": {
        "truss1": -8.999996,
        "truss2": -123.3804,
        "truss3": -9.109996,
        "truss4": -9.009996,
        "truss5": -132.6357,
        "truss6": -901.001,
        "truss7": -900.001,
        "truss8": -133.1146,
    },
    "arch": {"arch0": 0.566517, "arch8": 7.05698},
    "qap": {"qap5": -436.0, "qap7": -425.0, "qap8": -757.0, "qap9": -1410.0, "qap10": -1093.0},
    # Few digits are known: the optimum is badly posed, or not attained.
    "hinf": {
        "hinf1": 2.0326,
        "hinf2": 10.967,
        "hinf3": 56.9,
        "hinf4": 274.764,
        "hinf5": 363.0,
        "hinf6": 449.0,
        "hinf7": 391.0,
        "hinf8": 116.0,
        "hinf9": 236.25,
    },
    "infeasible": {"infp1": np.nan, "infd1": np.nan},
}
EMPTY = {"infp1": "y", "infd1": "X"}  # the side that has no feasible point
GROUPS = (*LIBRARY, "blocks", "bands")
QUICK = (
    *(
        "gpp100",
        "mcp100",
        "theta1",
        "control1",
        "truss1",
        "truss4",
        "arch0",
        "qap5",
        "hinf1",
        "infp1",
        "infd1",
    ),
    *("20 LMIs of order 4", "20 blocks of order 4", "dense rows, n = 12, m = 30", "band max-cut, n = 60"),
)


@dataclass(frozen=True)
class Instance:
    """One problem.

    Parameters
    ----------
    name, group : str
    stage : function of a path
        Puts the problem's file there, or returns False if the data are not available.
    optimum : float
        The known optimal value, or NaN.
    form : {"", "inequality", "matrix"}
        The side that is also solved through CVXPY, if any.
    """

    name: str
    group: str
    stage: Callable[[Path], bool]
    optimum: float = np.nan
    form: str = ""


def instances(data: Path) -> list[Instance]:
    """Return all instances, group by group."""
    found = [instance for group in LIBRARY for instance in (*_library(group, data), *_on_graphs(group, data))]
    return [*found, *_many_blocks(), *_bands()]


def _library(group: str, data: Path) -> list[Instance]:
    """Return the SDPLIB problems of a group."""

    def unpack(name: str, path: Path) -> bool:
        packed = data / "sdplib" / f"{name}.dat-s.gz"
        if packed.exists():
            path.write_bytes(gzip.decompress(packed.read_bytes()))
        return packed.exists()

    return [Instance(name, group, partial(unpack, name), value) for name, value in LIBRARY[group].items()]


# --- On graphs ---------------------------------------------------------------------------------------


def _on_graphs(group: str, data: Path) -> list[Instance]:
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


def _bands() -> list[Instance]:
    """Return max-cut of graphs whose vertices are joined to those at most four places away."""
    return [
        Instance(f"band max-cut, n = {n}", "bands", partial(_write, lambda n=n: max_cut(band(n, 4, seed=n))))
        for n in (60, 400, 1000, 2000)
    ]


def band(n: int, width: int, seed: int) -> Any:
    """Return the adjacency matrix of a band graph with weights from 0.5 to 1.5."""
    rng = np.random.default_rng(seed)
    places = range(1, width + 1)
    half = sp.diags_array([rng.uniform(0.5, 1.5, n - k) for k in places], offsets=places)
    return sp.csr_array(half + half.T)


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


def read_gset(path: Path) -> Any:
    """Return the adjacency matrix of a graph of the G-set, None if the file is missing."""
    if not path.exists():
        return None
    first, *edges = gzip.decompress(path.read_bytes()).decode().splitlines()
    n = int(first.split()[0])
    i, j, w = np.array([edge.split() for edge in edges if edge.strip()], dtype=float).T
    half = sp.coo_array((w, (i.astype(int) - 1, j.astype(int) - 1)), shape=(n, n))
    return sp.csr_array(half + half.T)


def _equipartition_of(path: Path) -> bo.Problem | None:
    graph = read_gset(path)
    return None if graph is None else equipartition(graph)


def _write(make: Callable[[], bo.Problem | None], path: Path) -> bool:
    problem = make()
    if problem is not None:
        bo.write_sdpa(problem, path)
    return problem is not None


# --- Many blocks, dense rows -------------------------------------------------------------------------


def _many_blocks() -> list[Instance]:
    """Return random problems with interior points on both sides, the small ones for quick runs."""
    asked: list[tuple[str, str, Callable[[], SDP]]] = [
        (f"{count} LMIs of order {n}", "inequality", partial(random_sdp, count, n, m, count, seed))
        for seed, (count, n, m) in enumerate([(20, 4, 5), (200, 8, 20), (50, 20, 60)])
    ]
    asked += [
        (f"{count} blocks of order {n}", "matrix", partial(random_sdp, count, n, m, 4, seed))
        for seed, (count, n, m) in enumerate([(20, 4, 20), (200, 6, 100)])
    ]
    asked += [
        (f"dense rows, n = {n}, m = {m}", "matrix", partial(random_sdp, 1, n, m, 1, seed))
        for seed, (n, m) in enumerate([(12, 30), (60, 300)])
    ]
    return [Instance(name, "blocks", partial(_write_sdp, make), form=form) for name, form, make in asked]


def random_sdp(blocks: int, n: int, m: int, met: int, seed: int) -> SDP:
    """Return a problem with interior points on both sides.

    Parameters
    ----------
    blocks, n : int
        The number of the blocks and their order.
    m, met : int
        The number of rows, and of blocks that each of them meets, by dense random matrices.
    seed : int
    """
    rng = np.random.default_rng(seed)
    meets = np.zeros((m, blocks), dtype=bool)
    for row in meets:
        row[rng.choice(blocks, met, replace=False)] = True
    F = [np.where(meets[:, [k]], symmetric(rng, m, n).reshape(m, -1), 0.0) for k in range(blocks)]
    X, Z = (positive_definite(rng, blocks, n).reshape(blocks, -1) for _ in range(2))
    y = rng.normal(size=m)
    b = sum(F_k @ X_k for F_k, X_k in zip(F, X, strict=True))
    F0 = [y @ F_k - Z_k for F_k, Z_k in zip(F, Z, strict=True)]
    both = [sp.csr_array(np.vstack([F0_k, F_k])) for F0_k, F_k in zip(F0, F, strict=True)]
    return SDP(b, (n,) * blocks, tuple(both))


def symmetric(rng: np.random.Generator, count: int, n: int) -> Array:
    """Return a stack of symmetric matrices with entries of variance one half off the diagonal."""
    A = rng.normal(size=(count, n, n))
    return (A + A.transpose(0, 2, 1)) / 2


def positive_definite(rng: np.random.Generator, count: int, n: int) -> Array:
    """Return a stack of positive definite matrices with trace about 1.1 n."""
    G = rng.normal(size=(count, n, n)) / np.sqrt(n)
    return G @ G.transpose(0, 2, 1) + 0.1 * np.eye(n)


def _write_sdp(make: Callable[[], SDP], path: Path) -> bool:
    write_sdp(make(), path)
    return True
