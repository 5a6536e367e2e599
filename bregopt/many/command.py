"""The command ``bregopt solve-many``: many specs, in several processes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bregopt.errors import InfeasibleRowError, SolverError
from bregopt.io.command_line import problem_of_file, write_answer
from bregopt.many.solve import solve_many
from bregopt.many.worker import Outcome
from bregopt.routes.solution import Solution, Status

__all__ = ["add_solve_many"]

_TASK = "Solve many problems in several processes."
_WRITTEN = (".json", ".npz")  # of each answer
# The exit status is the first of these that any outcome has; they are those of `bregopt.cli`.
_INTERRUPTED, _BAD_INPUT, _NOT_SOLVED, _NO_ANSWER, _SOLVED = _ORDER = (130, 2, 4, 3, 0)
_STATUSES = {Status.OPTIMAL: _SOLVED, Status.INFEASIBLE: _NO_ANSWER, Status.UNBOUNDED: _NO_ANSWER}
_ERRORS = {CancelledError: _INTERRUPTED, InfeasibleRowError: _NO_ANSWER, SolverError: _NOT_SOLVED}


def add_solve_many(
    commands: Any, settings: argparse.ArgumentParser, given: Callable[[argparse.Namespace], dict[str, Any]]
) -> None:
    """Add the command to the parser of the command line.

    Parameters
    ----------
    commands : the subparsers
    settings : ArgumentParser
        The options of every route.
    given : callable
        Returns those that were given.
    """
    parser = commands.add_parser("solve-many", parents=[settings], help=_TASK, description=_TASK)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="specs (.toml), SDPA or CBF files"
    )
    parser.add_argument("--jobs", type=_jobs, default=1, metavar="N", help="number of processes (1)")
    parser.add_argument("--solver", metavar="NAME", help="route to use (auto)")
    parser.add_argument("--output", type=_folder, metavar="DIR", help="folder for NAME.json and NAME.npz")
    parser.add_argument("--quiet", action="store_true", help="print no progress bar")
    parser.set_defaults(run=lambda options: _run(options, given(options)))


def _run(options: argparse.Namespace, settings: dict[str, Any]) -> int:
    if options.output is not None:
        _check_distinct([path.stem for path in options.files])
    with _pool(options.jobs) as executor:
        answers = solve_many(options.files, executor, not options.quiet, solver=options.solver, **settings)
    width = max(len(str(path)) for path in options.files)
    for path, answer in zip(options.files, answers, strict=True):
        sys.stdout.write(f"{path!s:<{width}}  {_line(path, answer)}\n")
        if options.output is not None and isinstance(answer, Solution):
            _write(options.output, path, answer)
    statuses = [*map(_exit_status, answers)]
    sys.stdout.write(f"{statuses.count(_SOLVED)} of {len(statuses)} solved\n")
    return min(statuses, key=_ORDER.index)


@contextmanager
def _pool(jobs: int) -> Iterator[Executor | None]:
    if jobs == 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor  # imported only here, for commands to start at once
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # the same on every system
        yield pool


def _line(path: Path, answer: Outcome) -> str:
    if not isinstance(answer, Solution):
        return f"{type(answer).__name__}: {str(answer).removeprefix(f'{path.absolute()}: ')}"
    certificate = "" if answer.X is None else f"  gap {answer.gap:.1e}"
    return f"{answer.status}  value {answer.value:.8g}{certificate}  {answer.timings['total']:.3f} s"


def _write(folder: Path, path: Path, answer: Solution) -> None:
    spec = problem_of_file(path, {})
    for kind in _WRITTEN:
        write_answer(folder / f"{path.stem}{kind}", spec, answer)


def _exit_status(answer: Outcome) -> int:
    if isinstance(answer, Solution):
        return _STATUSES.get(Status(answer.status), _NOT_SOLVED)
    return next((status for kind, status in _ERRORS.items() if isinstance(answer, kind)), _BAD_INPUT)


def _check_distinct(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"argument --output: two specs are called {name}, and so would their answers be; "
                "expected different names"
            )


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive integer")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"the folder {text!r} is not there")
    return Path(text)
