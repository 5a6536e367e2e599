"""The runs of all solvers on one semidefinite program, their error measures, and the lines of the table."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sdp import SDP, Point, dimacs, objectives, proof, read_sdp
from sdp_conic import DIRECT, HOOKS
from sdp_peers import PROGRAMS, TOL, Run
from sdp_problems import EMPTY, Instance
from sdp_targets import FEASIBLE, OURS, Result, best_of

import bregopt as bo

Array = Any


@dataclass(frozen=True)
class Settings:
    """How to run: repeats, seconds allowed, our route, the solvers besides, the environment of programs."""

    repeats: int
    cap: float
    route: str
    solvers: Sequence[str]
    environment: dict[str, str]


# --- Runs --------------------------------------------------------------------------------------------


def ours(sdp: SDP, path: Path, settings: Settings) -> Run:
    """Time our own route. Compiling and solving are timed, reading the file is not."""
    name = f"{OURS} {settings.route}"
    if settings.route not in bo.solvers():
        return Run(name, "absent")
    samples: list[tuple[float, float]] = []
    while len(samples) < settings.repeats and (not samples or samples[-1][0] < 5):
        problem = bo.read_sdpa(path)
        begin, cpu = time.perf_counter(), time.process_time()
        try:
            solution = problem.solve(solver=settings.route, tol=TOL, time_limit=settings.cap)
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


def runs_of(instance: Instance, sdp: SDP, path: Path, settings: Settings) -> list[Run]:
    """Return the runs of all solvers on one problem, ours first."""
    limits = (settings.repeats, settings.cap, settings.environment)
    conic = [*(HOOKS if instance.form else ()), *DIRECT]
    wanted = (OURS, *settings.solvers)
    return [
        ours(sdp, path, settings),
        *(peer.run(sdp, path, *limits) for peer in PROGRAMS if peer.name in wanted),
        *(c.run(sdp, path, instance.form, *limits) for c in conic if c.name.startswith(wanted)),
    ]


# --- Table -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A run and the error measures of its answer; `emptiness` is the error of a proof of infeasibility."""

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
        if instance.name in EMPTY:
            worth = proof(sdp, run.point, EMPTY[instance.name])
            return cls(run, nothing, np.full(6, np.nan), np.nan, worth)
        values = objectives(sdp, run.point)
        off = abs(values[0] - instance.optimum) / (1 + abs(instance.optimum))
        return cls(run, values, dimacs(sdp, run.point), off, np.nan)

    def result(self) -> Result:
        """Return what targets judge.

        The answer counts by its first five errors, or by the error of a proof of infeasibility. The sixth
        error is the fifth plus y'(A(X) - b), which is large for any X if y grows along a face.
        """
        worst = np.abs(self.errors[:5]).max() if np.isnan(self.emptiness) else self.emptiness
        largest = float(np.abs(self.errors).max())
        solving = self.run.cpu - self.run.reading
        seconds = solving if solving > 0 else self.run.cpu
        return Result(self.run.solver, self.run.says, seconds, self.run.cpu, largest, bool(worst <= FEASIBLE))

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


_HEAD = [
    "| instance | solver | says | wall s | CPU s | of it reading | <F0, X> | b'y | DIMACS errors 1 to 6 "
    "| off the known optimum | beside ours |",
    "|---|---|---|--:|--:|--:|--:|--:|---|--:|--:|",
]


def solve_table(instances: list[Instance], settings: Settings) -> tuple[list[str], dict[str, list[Result]]]:
    """Solve each instance by every solver; return (and print as they come) the lines, and the results."""
    lines, results = list(_HEAD), {}
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as folder:
        for instance in instances:
            path = Path(folder) / "problem.dat-s"
            if not instance.stage(path):
                added = [f"| {instance.name} | skipped: its file is not in the data folder |" + " |" * 9]
            else:
                sdp = read_sdp(path)
                measured = [Measured.of(instance, sdp, run) for run in runs_of(instance, sdp, path, settings)]
                results[instance.name] = [m.result() for m in measured]
                added = rows_of(instance.name, measured)
            lines += added
            print("\n".join(added), flush=True)
    return lines, results


def rows_of(name: str, measured: list[Measured]) -> list[str]:
    """Return the table's rows of one instance."""
    results = [m.result() for m in measured]
    cells = zip(measured, beside(results), strict=True)
    return [f"| {name} | {' | '.join([*m.cells(), ratio])} |" for m, ratio in cells]


def beside(results: list[Result]) -> list[str]:
    """Return the time of each peer over that of our first run, and of the best peer over each run of ours."""
    best, cells = best_of(results), []
    for result in results:
        if not result.ours:
            cells.append(_ratio(result, results[0]))
        elif best is None:
            cells.append("no peer is feasible")
        else:
            cells.append(f"best: {best.solver} {_ratio(best, result)}".strip())
    return cells


def _ratio(peer: Result, mine: Result) -> str:
    ratio = peer.seconds / mine.seconds
    return "" if np.isnan(ratio) else f"{ratio:.2g}x"
