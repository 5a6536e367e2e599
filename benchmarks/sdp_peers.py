"""The programs that solve semidefinite programs from SDPA's files: CSDP, SDPA and DSDP."""

from __future__ import annotations

import math
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sdp import SDP, Point, numbers_of, sdp_of, split

TOL = 1e-7  # of gap and residuals, for every solver
_PATIENCE = 4  # limit of wall seconds over that of CPU seconds, for a busy machine


@dataclass(frozen=True)
class Run:
    """One solver on one instance: its status, its times in seconds, its answer if there is one."""

    solver: str
    says: str
    wall: float = np.nan
    cpu: float = np.nan
    reading: float = np.nan
    point: Point | None = None


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
    y, Z, X = (numbers_of(part) for part in parts[-4:-1])
    return Point(split(sdp, X), y, split(sdp, Z))


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
            done = called([self.program, *self.command(path, None)], path.parent, cap, environment)
            if done is None:
                return Run(self.name, f"stopped at {cap:g} s")
            text = done[2]
            # Programs print wall seconds of reading, which a busy machine prolongs.
            share = min(1.0, done[1] / done[0])
            samples.append((done[0], done[1], share * float(_found(self.reading, text) or "nan")))
        solution = path.with_suffix(".solution")
        solution.unlink(missing_ok=True)
        called([self.program, *self.command(path, solution)], path.parent, 3 * cap, environment)
        point = self.parse(sdp, solution) if solution.exists() else None
        return Run(self.name, _found(self.says, text) or "failed", *np.median(samples, axis=0), point)


def called(
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
    """Return the BLAS that a program calls: the file that the loader finds, or what is built in."""
    found = shutil.which(program)
    if found is None or shutil.which("ldd") is None:
        return "unknown"
    text = subprocess.run(["ldd", found], env=environment, capture_output=True, text=True, check=False).stdout
    file = _found(r"libopenblas\S* => (\S+)", text) or _found(r"libblas\S* => (\S+)", text)
    if file:
        name = Path(file).resolve().name
        return name if "openblas" in name else f"reference BLAS ({name})"
    return "OpenBLAS, built in" if b"OpenBLAS" in Path(found).read_bytes() else "unknown, built in"
