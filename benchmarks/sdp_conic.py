"""Solvers that read no files, on semidefinite programs: SCS and Clarabel, directly and through CVXPY.

Each runs in its own process with limits on memory and CPU time, and is timed inside. Run as a script, this
file is that process: ``python sdp_conic.py SOLVER FORM problem.dat-s answer.npz cap repeats``.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sdp import SDP, Point, read_sdp, split
from sdp_cvxpy import HOWS, model_of
from sdp_peers import TOL, Run, called

Array = Any
_MEMORY = 6 * 2**30  # memory limit of a process in bytes
_START = 30  # CPU seconds beyond the cap for a process to load, build its data and save its answer
_LONG = 5.0  # seconds: a run that takes as long is not repeated


@dataclass(frozen=True)
class Conic:
    """A solver in its own process; times are without imports, reading and building its data.

    The conic form is the dual side, minimize b'y with ``sum_i y_i F_i - F0`` in the cone. Through CVXPY,
    whose compilation is timed, it is the side that the instance asks for.
    """

    name: str

    def run(
        self, sdp: SDP, path: Path, form: str, repeats: int, cap: float, environment: dict[str, str]
    ) -> Run:
        """Return medians of timed solves, and the last answer."""
        answer = path.with_suffix(".npz")
        answer.unlink(missing_ok=True)
        words = [self.name, form, str(path), str(answer), str(cap), str(repeats)]
        limit = cap + _LONG * repeats + _START
        done = called([sys.executable, __file__, *words], path.parent, limit, environment)
        if done is None:
            return Run(self.name, f"stopped at {limit:g} s")
        if not answer.exists():
            return Run(self.name, _why_no_answer(done[2]))
        with np.load(answer) as data:
            says, times = str(data["says"]), data["times"]
            if not len(data["X"]):
                return Run(self.name, says, *times)
            X, Z = (split(sdp, data[key]) for key in "XZ")
            return Run(self.name, says, *times, np.nan, Point(X, data["y"], Z))


def _why_no_answer(text: str) -> str:
    if "ModuleNotFoundError" in text:
        return "skipped: not installed"
    if "memory" in text.lower():
        return f"out of memory ({_MEMORY / 2**30:g} GiB)"
    return f"failed: {(text.strip().splitlines() or ['no output'])[-1][:80]}"


DIRECT = [Conic("SCS"), Conic("Clarabel")]
HOOKS = [Conic(name) for name in HOWS]

Answer = tuple[str, Array, Array, Array]  # what the solver says, X and Z by blocks in one vector, y


def _cone_rows(sdp: SDP, upper: bool) -> tuple[Any, Array, list[tuple[Array, int, Array]]]:
    """Return A, c of ``c - A y in K``: diagonal blocks first, then triangles of the others column by column.

    Also return, for every block in the cone's order, its number, the places in the block and their scales.
    """
    order = sorted(range(len(sdp.orders)), key=lambda k: sdp.orders[k] > 0)
    parts, layout = [], []
    for k in order:
        n = sdp.orders[k]
        if n < 0:
            place, scale = np.arange(-n), np.ones(-n)
        else:
            i, j = np.tril_indices(n) if upper else np.triu_indices(n)
            place, scale = i * n + j, np.where(i == j, 1.0, np.sqrt(2.0))
        parts.append(sp.diags_array(scale) @ sdp.F[k].T.tocsr()[place])
        layout.append((place, k, scale))
    stacked = sp.csc_array(sp.vstack(parts))
    return -stacked[:, 1:], -stacked[:, [0]].toarray().ravel(), layout


def _unstacked(sdp: SDP, vector: Array, layout: list[tuple[Array, int, Array]]) -> Array:
    """Return the blocks of a vector in the cone, one after another and row by row."""
    blocks: list[Array] = [np.empty(0)] * len(sdp.orders)
    at = 0
    for place, k, scale in layout:
        part = vector[at : at + len(place)] / scale
        at += len(place)
        shape = sdp.shapes[k]
        block = np.zeros(int(np.prod(shape)))
        block[place] = part
        if len(shape) == 2:
            lower = block.reshape(shape)
            block = (lower + lower.T - np.diag(np.diag(lower))).ravel()
        blocks[k] = block
    return np.concatenate(blocks)


def _scs(sdp: SDP, cap: float) -> Callable[[], Answer]:
    import scs

    # SCS stacks lower triangles by columns: of a symmetric matrix, upper ones by rows.
    A, c, layout = _cone_rows(sdp, upper=False)
    cone = {"l": sum(-n for n in sdp.orders if n < 0), "s": [n for n in sdp.orders if n > 0]}
    options = {"eps_abs": TOL, "eps_rel": TOL, "time_limit_secs": cap, "verbose": False, "max_iters": 10**7}

    def solve() -> Answer:
        found = scs.SCS({"A": A, "b": c, "c": sdp.b}, cone, **options).solve()
        Z, X = (_unstacked(sdp, found[key], layout) for key in "sy")
        return found["info"]["status"], X, Z, found["x"]

    return solve


def _clarabel(sdp: SDP, cap: float) -> Callable[[], Answer]:
    import clarabel

    A, c, layout = _cone_rows(sdp, upper=True)
    cones = [clarabel.NonnegativeConeT(-n) for n in sdp.orders if n < 0]
    cones += [clarabel.PSDTriangleConeT(n) for n in sdp.orders if n > 0]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, cap, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOL
    zero = sp.csc_array((sdp.m, sdp.m))

    def solve() -> Answer:
        found = clarabel.DefaultSolver(zero, sdp.b, A, c, cones, settings).solve()
        Z, X = (_unstacked(sdp, np.asarray(vector), layout) for vector in (found.s, found.z))
        return str(found.status), X, Z, np.asarray(found.x)

    return solve


def _prepared(name: str, form: str, sdp: SDP, cap: float) -> Callable[[], Callable[[], Answer]]:
    """Return a function that makes a fresh problem, and returns the function to time."""
    if name in HOWS:
        return lambda: model_of(sdp, form, name, cap)
    return lambda: {"SCS": _scs, "Clarabel": _clarabel}[name](sdp, cap)


def _process(name: str, form: str, problem: str, answer: str, cap: str, repeats: str) -> None:
    """Solve a file within the memory limit, and save the answer with its median times."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    warnings.simplefilter("ignore")
    prepared = _prepared(name, form, read_sdp(Path(problem)), float(cap))
    samples: list[tuple[float, float]] = []
    while len(samples) < int(repeats) and (not samples or samples[-1][0] < _LONG):
        solve = prepared()
        begin, cpu = time.perf_counter(), time.process_time()
        says, X, Z, y = solve()
        samples.append((time.perf_counter() - begin, time.process_time() - cpu))
    np.savez(answer, says=says, X=X, y=y, Z=Z, times=np.median(samples, axis=0))


if __name__ == "__main__":
    _process(*sys.argv[1:])
