"""Semidefinite programs in SDPA's sparse form, and the programs that solve them, each in its own process.

    maximize  <F0, X>  subject to  <F_i, X> = b_i,  X psd      (its dual:)
    minimize  b'y      subject to  Z = sum_i y_i F_i - F0  psd

Run as a script, this file is the process of a conic solver (SCS, Clarabel) on a .dat-s file.
"""

from __future__ import annotations

import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

Array = Any
TOL = 1e-7  # of gap and residuals, for every solver
_MEMORY = 6 * 2**30  # memory limit of a conic solver's process in bytes
_PATIENCE = 4  # limit of wall seconds over that of CPU seconds, for a busy machine

_PLAIN = str.maketrans("{}(),", "     ")


@dataclass(frozen=True)
class SDP:
    """The data of one problem; a diagonal block is the vector of its diagonal.

    Parameters
    ----------
    b : array of shape (m,)
    orders : tuple of int
        Orders of the blocks; negative for diagonal ones, as in the files.
    F : tuple of csr_array of shape (m + 1, size of the block)
        Row `i` holds the block of ``F_i``, row 0 that of ``F0``.
    """

    b: Array
    orders: tuple[int, ...]
    F: tuple[Any, ...]

    @property
    def m(self) -> int:
        """The number of rows."""
        return len(self.b)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each block as an array."""
        return [(n, n) if n > 0 else (-n,) for n in self.orders]

    def apply(self, X: Sequence[Array]) -> Array:
        """Return ``<F_i, X>`` for i = 0 .. m."""
        return sum(F @ X_b.ravel() for F, X_b in zip(self.F, X, strict=True))

    def combine(self, y: Array) -> list[Array]:
        """Return ``sum_i y_i F_i``, i = 0 .. m, by blocks."""
        return [(F.T @ y).reshape(shape) for F, shape in zip(self.F, self.shapes, strict=True)]

    def slack(self, y: Array) -> list[Array]:
        """Return ``sum_i y_i F_i - F0`` for y of shape (m,)."""
        return self.combine(np.concatenate([[-1.0], y]))


@dataclass(frozen=True)
class Point:
    """The point that a solver returns."""

    X: Sequence[Array]
    y: Array
    Z: Sequence[Array]


@dataclass(frozen=True)
class Run:
    """One solver on one instance: its status, its times in seconds, its answer if there is one."""

    solver: str
    says: str
    wall: float = np.nan
    cpu: float = np.nan
    reading: float = np.nan
    point: Point | None = None


# ---------------------------------------------------------------------------------------------- certificates


def objectives(sdp: SDP, point: Point) -> tuple[float, float]:
    """Return ``<F0, X>`` and ``b'y``."""
    return float(sdp.apply(point.X)[0]), float(sdp.b @ point.y)


def dimacs(sdp: SDP, point: Point) -> Array:
    """Return the six DIMACS error measures of an answer, recomputed from the data."""
    primal, dual = objectives(sdp, point)
    size_b = 1 + np.abs(sdp.b).max()
    size_c = 1 + max(np.abs(F[[0]].data).max(initial=0.0) for F in sdp.F)
    slack = sdp.slack(point.y)
    off = np.sqrt(sum(((S - Z) ** 2).sum() for S, Z in zip(slack, point.Z, strict=True)))
    inner = sum(float((X * Z).sum()) for X, Z in zip(point.X, point.Z, strict=True))
    size = 1 + abs(primal) + abs(dual)
    return np.array(
        [
            np.linalg.norm(sdp.apply(point.X)[1:] - sdp.b) / size_b,
            max(0.0, -least_eigenvalue(point.X)) / size_b,
            off / size_c,
            max(0.0, -least_eigenvalue(point.Z)) / size_c,
            (dual - primal) / size,
            inner / size,
        ]
    )


def least_eigenvalue(blocks: Sequence[Array]) -> float:
    """Return the least eigenvalue of a block matrix."""
    return float(min(np.linalg.eigvalsh(B)[0] if B.ndim == 2 else B.min() for B in blocks))


def proof(sdp: SDP, point: Point, side: str) -> float:
    """Return the error of a point as a proof that one side has no feasible point; 0 is a proof.

    There is no y if ``X psd``, ``<F_i, X> = 0``, ``<F0, X> = 1``; no X if ``sum y_i F_i psd``, ``b'y = -1``.
    """
    if side == "y":
        values = sdp.apply(point.X)
        scale, off = values[0], max(np.linalg.norm(values[1:]), -least_eigenvalue(point.X))
    else:
        ray = sdp.combine(np.concatenate([[0.0], point.y]))
        scale, off = -sdp.b @ point.y, -least_eigenvalue(ray)
    return max(off, 0.0) / scale if scale > 0 else np.inf


# ------------------------------------------------------------------------------------------------------ files


def read_sdp(path: Path) -> SDP:
    """Read a file in SDPA's sparse format, without bregopt, whose answers are judged by the result."""
    lines = path.read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line[:1] not in ('"', "*"))
    m = int(re.findall(r"\d+", lines[start])[0])
    orders = tuple(int(n) for n in re.findall(r"-?\d+", lines[start + 2]))
    numbers = np.fromstring(" ".join(lines[start + 3 :]).translate(_PLAIN), sep=" ")
    return sdp_of(numbers[:m], orders, numbers[m:].reshape(-1, 5))


def sdp_of(b: Array, orders: tuple[int, ...], entries: Array) -> SDP:
    """Return a problem from the entries (matrix, block, i, j, value) of upper triangles, counted from 1."""
    F = []
    for k, n in enumerate(orders):
        mine = entries[entries[:, 1] == k + 1]
        i, j = (mine[:, c].astype(int) - 1 for c in (2, 3))
        twice = i != j
        matrix = np.concatenate([mine[:, 0], mine[twice, 0]]).astype(int)
        place = np.concatenate([i * n + j, (j * n + i)[twice]]) if n > 0 else i
        value = np.concatenate([mine[:, 4], mine[twice, 4]])
        F.append(sp.csr_array((value, (matrix, place)), shape=(len(b) + 1, n * n if n > 0 else -n)))
    return SDP(np.asarray(b, dtype=float), orders, tuple(F))


def read_sparse_solution(sdp: SDP, path: Path) -> Point:
    """Read the solution of CSDP or DSDP: y on one line, then the entries of Z (matrix 1) and X (matrix 2)."""
    first, _, rest = path.read_text().partition("\n")
    entries = np.fromstring(rest, sep=" ").reshape(-1, 5)
    entries[:, 0] -= 1
    both = sdp_of(np.zeros(1), sdp.orders, entries)
    Z, X = both.combine(np.array([1.0, 0.0])), both.combine(np.array([0.0, 1.0]))
    return Point(X, np.fromstring(first, sep=" "), Z)


def read_sdpa_solution(sdp: SDP, path: Path) -> Point:
    """Read the solution of SDPA, whose xVec, xMat and yMat are y, Z and X."""
    parts = re.split(r"xVec =|xMat =|yMat =|main loop time", path.read_text())
    y, Z, X = (np.fromstring(part.translate(_PLAIN), sep=" ") for part in parts[-4:-1])
    return Point(_blocks(sdp, X), y, _blocks(sdp, Z))


def _blocks(sdp: SDP, numbers: Array) -> list[Array]:
    ends = np.cumsum([np.prod(shape) for shape in sdp.shapes])
    return [part.reshape(s) for part, s in zip(np.split(numbers, ends[:-1]), sdp.shapes, strict=True)]


# -------------------------------------------------------------------------------------------------- processes


@dataclass(frozen=True)
class Peer:
    """A program that is called on a file.

    Parameters
    ----------
    name, program : str
    command : function of (problem, solution or None) to list of str
        The arguments after the program's name; the solution is written only if a file for it is given.
    says : str
        A regular expression with a group: the status in the program's output.
    reading : str
        The same for the seconds of reading the file; empty if the program does not print them.
    parse : function of (SDP, solution file) to Point
    """

    name: str
    program: str
    command: Callable[[Path, Path | None], list[str]]
    says: str
    reading: str
    parse: Callable[[SDP, Path], Point]

    def missing(self) -> str:
        """Return the reason why the program cannot be called, empty if it can."""
        return "" if shutil.which(self.program) else f"skipped: no program {self.program!r} on the path"

    def run(self, sdp: SDP, path: Path, repeats: int, cap: float, environment: dict[str, str]) -> Run:
        """Return medians of timed calls without a solution file, and the solution of one more call."""
        reason = self.missing()
        if reason:
            return Run(self.name, reason)
        samples, text = [], ""
        while len(samples) < repeats and (not samples or samples[-1][0] < 5):
            called = _call([self.program, *self.command(path, None)], path.parent, cap, environment)
            if called is None:
                return Run(self.name, f"stopped at {cap:g} s")
            text = called[2]
            samples.append((called[0], called[1], float(_found(self.reading, text) or "nan")))
        solution = path.with_suffix(".solution")
        solution.unlink(missing_ok=True)
        _call([self.program, *self.command(path, solution)], path.parent, 3 * cap, environment)
        point = self.parse(sdp, solution) if solution.exists() else None
        return Run(self.name, _found(self.says, text) or "failed", *np.median(samples, axis=0), point)


def _call(
    command: list[str], folder: Path, cap: float, environment: dict[str, str]
) -> tuple[float, float, str] | None:
    """Return wall seconds, CPU seconds and the output; None above `cap` CPU seconds."""
    limit = math.ceil(cap)
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            timeout=_PATIENCE * cap,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return None
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout + done.stderr


def _found(pattern: str, text: str) -> str:
    """Return the text that the group of a pattern matched last."""
    matches = re.findall(pattern, text) if pattern else []
    return matches[-1].strip() if matches else ""


_CSDP_PARAMETERS = f"""axtol={TOL}
atytol={TOL}
objtol={TOL}
pinftol=1.0e8
dinftol=1.0e8
maxiter=100
minstepfrac=0.90
maxstepfrac=0.97
minstepp=1.0e-8
minstepd=1.0e-8
usexzgap=1
tweakgap=0
affine=0
printlevel=1
perturbobj=1
fastmode=0
"""


def _csdp(problem: Path, solution: Path | None) -> list[str]:
    (problem.parent / "param.csdp").write_text(_CSDP_PARAMETERS)  # read from the working folder
    return [str(problem), *([] if solution is None else [str(solution)])]


def _sdpa(problem: Path, solution: Path | None) -> list[str]:
    printed = "NOPRINT" if solution is None else "%+.16e"
    values = ["100", TOL, 1e2, 2.0, -1e5, 1e5, 0.1, 0.2, 0.9, TOL, printed, printed, printed, "%+.16e"]
    parameters = problem.parent / "param.sdpa"
    # A word must follow each value: otherwise SDPA reads the next line as that word.
    parameters.write_text("".join(f"{value} .\n" for value in values))
    output = os.devnull if solution is None else str(solution)
    return ["-ds", str(problem), "-o", output, "-p", str(parameters), "-numThreads", "1"]


def _dsdp(problem: Path, solution: Path | None) -> list[str]:
    return [str(problem), "-gaptol", str(TOL), *([] if solution is None else ["-save", str(solution)])]


_CSDP_SAYS = r"((?:Success|Partial Success|Failure)[^\n]*)"
_SDPA_SAYS, _SDPA_READING = r"phase.value\s*=\s*(\w+)", r"file\s+read time = (\S+)"
_DSDP_SAYS = r"DSDP ((?:Primal|Dual) Unbounded[^\n]*|Converged|Terminated[^\n]*)"
_DSDP_READING = r"Read Data File into Buffer:\s+(\S+)"

PROGRAMS = [
    Peer("CSDP", "csdp", _csdp, _CSDP_SAYS, "", read_sparse_solution),
    Peer("SDPA", "sdpa", _sdpa, _SDPA_SAYS, _SDPA_READING, read_sdpa_solution),
    Peer("DSDP", "dsdp5", _dsdp, _DSDP_SAYS, _DSDP_READING, read_sparse_solution),
]


def blas_of(program: str, environment: dict[str, str]) -> str:
    """Return the file of the BLAS that the loader finds for a program; empty if unknown."""
    found = shutil.which(program)
    if found is None or shutil.which("ldd") is None:
        return ""
    text = subprocess.run(["ldd", found], env=environment, capture_output=True, text=True, check=False).stdout
    file = _found(r"libopenblas\S* => (\S+)", text) or _found(r"libblas\S* => (\S+)", text)
    return Path(file).resolve().name if file else ""


# ---------------------------------------------------------------------------------------------- conic solvers


@dataclass(frozen=True)
class Conic:
    """A conic solver on the dual side: minimize b'y with ``sum_i y_i F_i - F0`` in the cone.

    It runs in its own process with a memory limit. Its time excludes imports and reading.
    """

    name: str

    def run(self, sdp: SDP, path: Path, repeats: int, cap: float, environment: dict[str, str]) -> Run:
        """Solve once, as these runs are long."""
        del repeats
        answer = path.with_suffix(".npz")
        answer.unlink(missing_ok=True)
        command = [sys.executable, __file__, self.name, str(path), str(answer), str(cap)]
        called = _call(command, path.parent, cap + 30, environment)
        if called is None:
            return Run(self.name, f"stopped at {cap + 30:g} s")
        if not answer.exists():
            return Run(self.name, _why_no_answer(called[2]))
        with np.load(answer) as data:
            X, Z = (_blocks(sdp, data[key]) for key in "XZ")
            return Run(self.name, str(data["says"]), *data["times"], np.nan, Point(X, data["y"], Z))


def _why_no_answer(text: str) -> str:
    if "absent" in text:
        return "skipped: not installed"
    return f"out of memory ({_MEMORY / 2**30:g} GiB)" if "memory" in text.lower() else "failed"


CONIC = [Conic("SCS"), Conic("Clarabel")]


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


def _solve_scs(sdp: SDP, cap: float) -> tuple[str, Array, Array, Array]:
    import scs

    # SCS stacks lower triangles by columns: of a symmetric matrix, upper ones by rows.
    A, c, layout = _cone_rows(sdp, upper=False)
    cone = {"l": sum(-n for n in sdp.orders if n < 0), "s": [n for n in sdp.orders if n > 0]}
    options = {"eps_abs": TOL, "eps_rel": TOL, "time_limit_secs": cap, "verbose": False, "max_iters": 10**7}
    found = scs.SCS({"A": A, "b": c, "c": sdp.b}, cone, **options).solve()
    Z, X = (_unstacked(sdp, found[key], layout) for key in "sy")
    return found["info"]["status"], X, found["x"], Z


def _solve_clarabel(sdp: SDP, cap: float) -> tuple[str, Array, Array, Array]:
    import clarabel

    A, c, layout = _cone_rows(sdp, upper=True)
    cones = [clarabel.NonnegativeConeT(-n) for n in sdp.orders if n < 0]
    cones += [clarabel.PSDTriangleConeT(n) for n in sdp.orders if n > 0]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, cap, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOL
    zero = sp.csc_array((sdp.m, sdp.m))
    found = clarabel.DefaultSolver(zero, sdp.b, A, c, cones, settings).solve()
    Z, X = (_unstacked(sdp, np.asarray(vector), layout) for vector in (found.s, found.z))
    return str(found.status), X, np.asarray(found.x), Z


def _conic_process(name: str, problem: str, answer: str, cap: str) -> None:
    """Solve a file by a conic solver within the memory limit, and save the answer with its times."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sdp = read_sdp(Path(problem))
    solve = {"SCS": _solve_scs, "Clarabel": _solve_clarabel}[name]
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        says, X, y, Z = solve(sdp, float(cap))
    except ImportError:
        print("absent")
        return
    times = [time.perf_counter() - begin, time.process_time() - cpu]
    np.savez(answer, says=says, X=X, y=y, Z=Z, times=times)


if __name__ == "__main__":
    _conic_process(*sys.argv[1:])
