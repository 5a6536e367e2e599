"""Packages that solve semidefinite programs through CVXPY: their own tests, by both hooks and by Clarabel.

    OPENBLAS_NUM_THREADS=1 python benchmarks/packages.py [--only SOURCE ...] [--pepit FOLDER]

The tests of toqito and QuTiP are in their packages, PEPit's in its source distribution (`pip download
--no-deps --no-binary :all: pepit`); FOLDER is its unpacked `tests`. CVXPY's acceptance problems and the
textbook problems at order 12 need no package. Whatever solver a test asks for, each program with psd cones is
solved by Clarabel and by both hooks at 1e-8, each with its own compilation; the test sees the answer of
`solver="BREGOPT"`.

Only answers that a route of ours made count; others are handed on to Clarabel or to CVXPY's own choice. To
decide is to say optimal, infeasible or unbounded. An answer of ours fails if it is an error; if Clarabel
decides otherwise, and our certificate confirms that at 1e-8 or leaves our value an error above 1e-5; if its
value is off by more than both tolerances, from Clarabel's or, where it is, from an interval that
`verify()` proves to contain the optimum; or if it takes ten times Clarabel's time and more than a second.
Times are CPU time of one solve. A full run, with FOLDER, is saved as benchmarks/results/packages.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import platform
import re
import signal
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.tests import solver_test_helpers as helpers
from textbook_problems import PROBLEMS

import bregopt as bo
from bregopt.cvxpy import BREGOPT
from bregopt.cvxpy.conic_solver import _conic, _extended, _quadratic
from bregopt.cvxpy.outcomes import certified

RESULTS = Path(__file__).parent / "results" / "packages.md"
CLARABEL, METHOD, SOLVER = "Clarabel", 'method="bregopt"', 'solver="BREGOPT"'
WAYS: dict[str, dict[str, Any]] = {
    CLARABEL: {"solver": cp.CLARABEL},
    METHOD: {"method": "bregopt", "tol": 1e-8},
    SOLVER: {"solver": BREGOPT},
}
MODULES = {"toqito": "toqito", "pepit": "PEPit", "qutip": "qutip"}
HANDED = ("CLARABEL", "SCS", "")
FAILURES = ("error", "status", "value", "slow")
DEFINITE = (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED)
PROVABLE = ("Solved", "PrimalInfeasible", "DualInfeasible")  # how Clarabel says it
LIMIT, OVER = 60, "a minute"
OFF = 1e-5  # of the larger of value and 1, beside the certified error: Clarabel's answers are not certified
SLOW, LONG = 10.0, 1.0
ORDER = 12
LARGEST = 48  # order of a psd cone; above it Clarabel takes minutes and gigabytes, and stops at no limit


class TimeOverError(Exception):
    """The limit is over."""


def stop(number: int, frame: FrameType | None) -> None:
    """Raise the exception of the limit."""
    raise TimeOverError


@dataclass
class Answer:
    """What one way answers: `route` is empty for Clarabel, and names the solver of an answer handed on.

    `interval` is proven to contain the optimum; Clarabel's has it where values differ.
    """

    status: str
    value: float
    seconds: float
    route: str = ""
    reason: str = ""
    error: float = np.nan
    proven: bool = False
    interval: tuple[float, float] = (-np.inf, np.inf)


Solves = list[tuple[str, dict[str, Answer]]]


@dataclass
class Recorder:
    """Solves each program of others by all ways, and hands the last answer to who asked."""

    place: str = ""
    solves: Solves = field(default_factory=list)
    original: Callable[..., Any] = cp.Problem.solve
    nested: bool = False
    large: int = 0

    def solve(self, problem: cp.Problem, *arguments: Any, **options: Any) -> Any:
        """Solve a problem by all ways; return what the last one does."""
        if self.nested:
            return self.original(problem, *arguments, **options)
        self.nested = True
        try:
            orders = () if options.get("gp") else psd_orders(problem)
            if max(orders, default=0) > LARGEST:
                self.large += 1
                raise cp.SolverError("left out, as it is large")
            if orders:
                answers = {name: answered(problem, WAYS[name]) for name in WAYS}
                if any(answer.status != answers[CLARABEL].status for answer in answers.values()):
                    answers[CLARABEL].proven = is_proven(problem)
                if any(differs(answers[CLARABEL], answer) for answer in answers.values()):
                    answers[CLARABEL].interval = proven_interval(problem)
                self.solves.append((self.place, answers))
                return self.original(problem, solver=BREGOPT)
            return self.original(problem, *arguments, **options)
        finally:
            self.nested = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the place of `cvxpy.Problem.solve`; a random generator without a seed gets one."""

        def solve(problem: cp.Problem, *arguments: Any, **options: Any) -> Any:
            return self.solve(problem, *arguments, **options)

        generator = np.random.default_rng
        with (
            mock.patch.object(cp.Problem, "solve", solve),
            mock.patch.object(
                np.random, "default_rng", lambda seed=None: generator(0 if seed is None else seed)
            ),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield


def psd_orders(problem: cp.Problem) -> list[int]:
    """Return the orders of the psd cones of a program in conic form; of no others than CVXPY accepts."""
    if not problem.variables() or problem.is_mixed_integer() or not problem.is_dcp():
        return []
    orders = [(2 if X.is_complex() else 1) * X.shape[0] for X in problem.variables() if X.ndim == 2]
    if max(orders, default=0) > LARGEST:  # its compilation alone may take minutes
        return orders
    data, _, _ = cp.Problem(problem.objective, problem.constraints).get_problem_data(BREGOPT)
    return list(data["dims"].psd)


def answered(problem: cp.Problem, options: dict[str, Any]) -> Answer:
    """Return the answer of one way to a copy of the problem, so that no way finds another's compilation."""
    fresh = cp.Problem(problem.objective, problem.constraints)
    begin = time.process_time()
    signal.alarm(LIMIT)
    try:
        fresh.solve(**options)
    except TimeOverError:
        return Answer(OVER, np.nan, LIMIT)
    except cp.SolverError:
        return Answer("no answer", np.nan, time.process_time() - begin)
    except Exception as error:  # a traceback is what the table counts
        return Answer(f"error {error!r}", np.nan, time.process_time() - begin)
    finally:
        signal.alarm(0)
    seconds = time.process_time() - begin
    value = float(np.nan if fresh.value is None else fresh.value)
    name, stats = fresh.solver_stats.solver_name, fresh.solver_stats.extra_stats
    if name == BREGOPT.name():
        error = stats.get("error", np.nan)
        reason = stats.get("reason") or stats.get("not_read", "")
        return Answer(fresh.status, value, seconds, str(stats["route"]), reason, error)
    if name.startswith("bregopt"):
        return Answer(fresh.status, value, seconds, stats.solver, "", stats.error)
    return Answer(fresh.status, value, seconds, name)


def is_proven(problem: cp.Problem) -> bool:
    """Whether our certificate confirms at 1e-8 what Clarabel says."""
    data, chain, _ = cp.Problem(problem.objective, problem.constraints).get_problem_data(cp.CLARABEL)
    found = chain.solver.solve_via_data(data, False, False, {})
    answer = SimpleNamespace(status=str(found.status), x=np.array(found.x), z=np.array(found.z))
    conic = _conic(data)
    quadratic = _quadratic(conic, data)
    x, z = (answer.x, answer.z) if quadratic is None else _extended(quadratic, answer)
    conic = conic if quadratic is None else quadratic.conic
    return answer.status in PROVABLE and certified(conic, answer.status, x, z, 1e-8)[0] == answer.status


def proven_interval(problem: cp.Problem) -> tuple[float, float]:
    """Return bounds on the optimum that hold in spite of all rounding errors; infinite without a proof."""
    try:
        proof = bo.from_cvxpy(problem).solve(tol=1e-8, time_limit=LIMIT).verify()
    except (bo.SolverError, ValueError):
        return -np.inf, np.inf
    return proof.lower, proof.upper


class Plugin:
    """Tells the recorder which test runs, and makes its random numbers the same in each run."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin a test."""
        self.recorder.place = item.nodeid
        np.random.seed(0)  # noqa: NPY002 (the tests draw from it)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count its outcome."""
        if report.when == "call":
            self.outcomes[report.outcome] += 1
            if report.failed:
                print("failed:", report.nodeid, str(report.longrepr).splitlines()[-2:], flush=True)


def packaged(recorder: Recorder, *words: str) -> str:
    """Run tests of a package by pytest; return how many passed and failed."""
    plugin = Plugin(recorder)
    pytest.main(
        [
            "-p",
            "no:cacheprovider",
            "-p",
            "no:terminal",
            "--continue-on-collection-errors",
            "-c",
            os.devnull,  # our own settings need the plugin that is left out
            "--rootdir",
            os.sep,
            *words,
        ],
        [plugin],
    )
    return f"{plugin.outcomes['passed']} tests passed, {plugin.outcomes['failed']} failed"


def acceptance(recorder: Recorder, folder: str | None) -> str:
    """Run CVXPY's acceptance problems."""
    suites = [suite for name, suite in vars(helpers).items() if name.startswith("StandardTest")]
    outcomes: Counter[bool] = Counter()
    for suite in suites:
        for name in (name for name in dir(suite) if name.startswith("test_")):
            recorder.place, before = name, len(recorder.solves)
            try:
                getattr(suite, name)(solver="CLARABEL")
                passed = True
            except Exception:  # integers, or a solver that is not installed
                passed = False
            if len(recorder.solves) > before:
                outcomes[passed] += 1
                if not passed:
                    print("failed:", name)
    return f"{outcomes[True]} tests passed, {outcomes[False]} failed"


def textbook(recorder: Recorder, folder: str | None) -> str:
    """Solve the textbook problems."""
    for name, make in PROBLEMS.items():
        recorder.place = name
        make(ORDER, np.random.default_rng(1)).solve()
    return f"{len(PROBLEMS)} problems"


def toqito(recorder: Recorder, folder: str | None) -> str:
    """Run all tests of toqito."""
    return packaged(recorder, "--pyargs", "toqito")


def qutip(recorder: Recorder, folder: str | None) -> str:
    """Run the tests of QuTiP's diamond norm, its one semidefinite program."""
    return packaged(recorder, "--pyargs", "qutip.tests.core.test_metrics", "-k", "dnorm")


def pepit(recorder: Recorder, folder: str | None) -> str:
    """Run the tests of PEPit, worst cases of optimization methods."""
    return packaged(recorder, folder) if folder else "its tests were not given"


SOURCES = {
    "textbook": textbook,
    "CVXPY": acceptance,
    "QuTiP": qutip,
    "PEPit": pepit,
    "toqito": toqito,
}


def failures(theirs: Answer, ours: Answer) -> list[str]:
    """Return what is wrong with an answer of ours, beside Clarabel's."""
    if ours.status.startswith("error"):
        return ["error"]
    found = []
    coarse = not ours.error <= OFF * max(abs(ours.value), 1.0)
    if theirs.status in DEFINITE and ours.status != theirs.status and (theirs.proven or coarse):
        found.append("status")
    if ours.status == theirs.status == cp.OPTIMAL and differs(theirs, ours):
        found.append("value")
    if ours.seconds > max(SLOW * theirs.seconds, LONG) or (ours.status == OVER != theirs.status):
        found.append("slow")
    return found


def differs(theirs: Answer, ours: Answer) -> bool:
    """Whether our value is off by more than both tolerances and our certified error.

    Where an interval is proven that is as narrow as the tolerance, it is off from that, else from Clarabel's.
    """
    lower, upper = theirs.interval
    allowed = OFF * max(abs(theirs.value), abs(ours.value), 1.0)
    if not upper - lower <= allowed:
        lower = upper = theirs.value
    off = max(lower - ours.value, ours.value - upper)
    return off > allowed + np.nan_to_num(ours.error, posinf=0.0)


def is_ours(answer: Answer) -> bool:
    """Whether one of our routes made an answer, or should have: an error or a minute without one is ours."""
    return answer.status.startswith(("error", OVER)) or answer.route.upper() not in HANDED


def row(source: str, way: str, solves: list[dict[str, Answer]]) -> str:
    """Return the line of a source and a hook."""
    ours = [(answers[CLARABEL], answers[way]) for answers in solves if is_ours(answers[way])]
    counts = Counter(kind for pair in ours for kind in failures(*pair))
    theirs = sum(b.status in DEFINITE for b, _ in ours)
    mine = sum(a.status in DEFINITE for _, a in ours)
    ratio = f"{statistics.median(a.seconds / b.seconds for b, a in ours):.1f}" if ours else ""
    total = [sum(answer.seconds for answer in side) for side in zip(*ours, strict=True)] or [0.0, 0.0]
    failed = [counts[kind] for kind in FAILURES]
    cells = [source, f"`{way}`", len(solves), len(ours), theirs, mine, *failed, ratio]
    return f"| {' | '.join(map(str, cells))} | {total[0]:.1f} | {total[1]:.1f} |"


def handed_on(source: str, way: str, solves: list[dict[str, Answer]]) -> list[str]:
    """Return a line for each reason why answers were handed on."""
    others = (answers[way] for answers in solves if not is_ours(answers[way]))
    reasons = Counter(brief(answer.reason or answer.status) for answer in others)
    return [f"| {source} | `{way}` | {count} | {reason} |" for reason, count in reasons.most_common()]


def brief(reason: str) -> str:
    """Return the first sentence of a reason, without numbers."""
    return re.sub(r"[-+]?\d[\d.e+-]*", "#", re.split(r"[:.;] ", reason)[0]).replace("|", "\\|")


def listed(place: str, way: str, theirs: Answer, ours: Answer) -> list[str]:
    """Return the line of an answer of ours that fails."""
    kinds = failures(theirs, ours) if is_ours(ours) else []
    words = [f"{b.status} {b.value:.9g} in {b.seconds:.2f} s" for b in (theirs, ours)]
    cells = [place, f"`{way}`", ", ".join(kinds), *words]
    return [f"| {' | '.join(cells)} |".replace("[", "\\[")] if kinds else []


HEAD = [
    f"| source | way | SDPs | ours | Clarabel decides | we decide | {' | '.join(FAILURES)} | time ratio |"
    " Clarabel, s | ours, s |",
    "|:--|:--|" + "--:|" * (7 + len(FAILURES)),
]


def main() -> None:
    """Run the sources, print the tables, and save them if all were run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--pepit", help="folder of PEPit's tests")
    chosen = parser.parse_args()
    signal.signal(signal.SIGALRM, stop)
    ran: dict[str, Recorder] = {}
    outcomes = []
    for source in chosen.only:
        ran[source] = Recorder()
        with ran[source].listening():
            outcomes.append(f"- {source}: {SOURCES[source](ran[source], chosen.pepit)}")
        if ran[source].large:
            outcomes[-1] += f"; left out, above order {LARGEST}: {ran[source].large}"
    text = report({source: recorder.solves for source, recorder in ran.items()}, outcomes)
    print(text)
    if chosen.only == list(SOURCES) and chosen.pepit:
        RESULTS.write_text(text, encoding="utf-8")


def report(solves: dict[str, Solves], outcomes: list[str]) -> str:
    """Return the tables: a line for each source and hook, what was handed on, and each failure."""
    lines, reasons, failed = list(HEAD), [], []
    for (source, found), way in itertools.product(solves.items(), (METHOD, SOLVER)):
        lines.append(row(source, way, [answers for _, answers in found]))
        reasons += handed_on(source, way, [answers for _, answers in found])
        for place, answers in found:
            failed += listed(place.split("/")[-1], way, answers[CLARABEL], answers[way])
    packages = [name for name, module in MODULES.items() if importlib.util.find_spec(module)]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("cvxpy", "clarabel", *packages))
    text = [
        __doc__.splitlines()[0],
        "",
        f"Python {platform.python_version()}, {versions}; one thread. `python benchmarks/packages.py`",
        "",
        *lines,
        "",
        *outcomes,
        "",
        "Handed on, or solved by no route:",
        "",
        "| source | way | SDPs | reason |",
        "|:--|:--|--:|:--|",
        *reasons,
        "",
        f"Failures of ours: {len(failed)}.",
        "",
        *(["| test | way | what | Clarabel | ours |", "|:--|:--|:--|:--|:--|", *failed] if failed else []),
    ]
    return "\n".join(text).rstrip() + "\n"


if __name__ == "__main__":
    main()
