"""The command line: ``bregopt solve | check | explain | demo``, also as ``python -m bregopt``."""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import bregopt as bo
from bregopt.arrays import symmetric_matrix
from bregopt.io.answers import WRITERS
from bregopt.io.matrices import SUFFIXES, Table, read_matrix
from bregopt.io.sdpa_reader import SUFFIXES as SDPA_SUFFIXES
from bregopt.io.spec import Spec, load_spec, self_contained, spec_text
from bregopt.routes.base import Settings

__all__ = ["main"]

_SOLVED, _BAD_INPUT, _NO_ANSWER, _NOT_SOLVED, _INTERRUPTED, _BROKEN_PIPE = 0, 2, 3, 4, 130, 141
_EXIT_STATUS = """\
exit status:
  0  solved: the certificate meets the tolerance (check: the routes agree)
  2  bad input, or a problem too large for the memory of this machine: the message says which
  3  infeasible or unbounded, proven
  4  not solved to the tolerance; the best answer is written (check: the routes disagree, or one alone
     takes the problem)
"""
_DIVERGENCES: dict[str, Callable[..., Any]] = {
    "frobenius": bo.frobenius_div,
    "logdet": bo.logdet_div,
    "von_neumann": bo.von_neumann_div,
}
_STATUS = {"optimal": _SOLVED, "infeasible": _NO_ANSWER, "unbounded": _NO_ANSWER}
_COMMON = tuple(f.name for f in dataclasses.fields(Settings))
_NEAREST_PSD, _NEAREST_CORRELATION = "nearest-psd", "nearest-correlation"
_ACCEPTED = f"a spec (.toml), an SDPA file ({', '.join(SDPA_SUFFIXES)}) or a matrix ({', '.join(SUFFIXES)})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The arguments after the name of the program; by default those of the process.

    Returns
    -------
    int
        0 solved, 2 bad input or too little memory, 3 infeasible or unbounded, 4 not solved to tolerance,
        130 interrupted.

    Raises
    ------
    SystemExit
        By argparse: after ``--help`` and ``--version`` (status 0), and for bad arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    try:
        with _warnings_on_one_line(), _any_character():
            status: int = options.run(options)
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader of our output has closed the pipe: buffered output must not be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        status, message = _INTERRUPTED, "interrupted"
    except bo.InfeasibleRowError as error:
        status, message = _NO_ANSWER, f"infeasible: {error}"
    except bo.SolverError as error:
        status, message = _NOT_SOLVED, f"not solved: {error}"
    except (ValueError, TypeError, OSError, ImportError) as error:
        status, message = _BAD_INPUT, f"error: {error}"
    except MemoryError as error:
        status, message = _BAD_INPUT, f"error: this machine has too little memory for the problem ({error})"
    _say(message)
    return status


def _say(message: str) -> None:
    sys.stderr.write(f"bregopt: {message}\n")


@contextmanager
def _any_character() -> Iterator[None]:
    """Print a character that the terminal cannot show as an escape, as Python does for messages."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        yield
        return
    stdout, errors = sys.stdout, sys.stdout.errors
    stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        stdout.reconfigure(errors=errors)


@contextmanager
def _warnings_on_one_line() -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", bo.ConvergenceWarning)
        warnings.simplefilter("always", bo.DataWarning)
        warnings.simplefilter("always", bo.PluginWarning)
        warnings.showwarning = show
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bregopt",
        description="Solve convex problems over positive semidefinite matrices, with a certificate.",
        epilog=_EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bregopt {bo.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    source, settings = _source_parser(), _settings_parser()

    solve = commands.add_parser("solve", parents=[source, settings], help="solve a problem, write its answer")
    solve.add_argument("--solver", metavar="NAME", help="a route, or auto")
    solve.add_argument(
        "--output",
        type=_output_path,
        action="append",
        default=[],
        metavar="PATH",
        help=".npz (X or factor, u, duals), .json (status, value, gap, ...) or .csv (X); may be repeated",
    )
    solve.set_defaults(run=_solve)

    check = commands.add_parser("check", parents=[source, settings], help="solve by several routes, compare")
    check.add_argument("--solver", action="append", metavar="NAME", help="a route; repeat, for at least two")
    check.set_defaults(run=_check)

    explain = commands.add_parser("explain", parents=[source], help="which routes take a problem, and why")
    explain.add_argument("--solver", metavar="NAME", help="a route, or auto")
    explain.set_defaults(run=_explain)

    demo = commands.add_parser("demo", help="four real problems: solved, certified, cross-checked, drawn")
    demo.add_argument("--output", type=Path, default=Path("bregopt-demo"), metavar="DIR", help="of the plots")
    demo.add_argument("--quiet", action="store_true", help="no tables of the progress")
    demo.set_defaults(run=_demo)
    return parser


def _source_parser() -> argparse.ArgumentParser:
    """Return the arguments of every command that takes a problem."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("file", type=Path, metavar="FILE", help=_ACCEPTED)
    matrix = parser.add_argument_group("where FILE is a matrix")
    matrix.add_argument("--problem", choices=(_NEAREST_CORRELATION, _NEAREST_PSD), help="what to find")
    matrix.add_argument("--divergence", choices=tuple(_DIVERGENCES), help="what near means (frobenius)")
    matrix.add_argument("--key", help="which array of an .npz file")
    return parser


def _settings_parser() -> argparse.ArgumentParser:
    """Return the options of every route; the spec's value applies if an option is not given."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    settings = parser.add_argument_group("in place of what the spec says")
    settings.add_argument("--tol", type=float, help="largest relative gap and residual of an optimal answer")
    settings.add_argument("--max-iter", type=int, metavar="N", help="cycles, rounds or steps")
    settings.add_argument("--time-limit", type=float, metavar="S", help="seconds")
    settings.add_argument("--verbose", action="store_true", help="print the progress")
    return parser


def _output_path(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in WRITERS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text!r} is not there")
    _check_writable(path)
    return path


def _check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any work; change nothing."""
    try:
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _solve(options: argparse.Namespace) -> int:
    spec = _load(options)
    _check_outputs(options.output, spec.problem)
    settings = {**spec.options, **_settings(options)}
    solution = spec.problem.solve(options.solver or spec.solver, **settings)
    report = _in_sdpa_terms(spec.problem, solution) if _is_sdpa(options.file) else ""
    sys.stdout.write(f"{spec.title}\n{solution!r}\n{report}")
    for path in options.output:
        kind = path.suffix.lower()
        if kind == ".csv" and solution.X is None:
            _say(f"warning: there is no X to write to {path}")
        else:
            WRITERS[kind](path, spec, solution)
    return _STATUS.get(solution.status, _NOT_SOLVED)


def _check(options: argparse.Namespace) -> int:
    if options.solver is not None and len(set(options.solver)) < 2:
        raise ValueError(
            f"argument --solver: check compares routes, but {options.solver[0]} is the only one; "
            "name at least two, or none for all that take the problem"
        )
    spec = _load(options)
    # The spec's options for its own route do not apply to the others.
    common = {name: value for name, value in spec.options.items() if name in _COMMON}
    report = bo.cross_check(spec.problem, options.solver, **{**common, **_settings(options)})
    sys.stdout.write(f"{spec.title}\n{report}\n")
    if not all(row.agrees for row in report.rows):
        path = _write_instance(options)
        words = [f"--solver {row.solver}" for row in report.rows]
        words += [
            f"--{name.replace('_', '-')} {value}"
            for name, value in _settings(options).items()
            if name != "verbose"
        ]
        _say(f"the instance is in {path}; to see it again: bregopt check {path} {' '.join(words)}")
    return _SOLVED if report.ok else _NOT_SOLVED


def _write_instance(options: argparse.Namespace) -> Path:
    """Write the problem on which routes disagree to a new file in the working folder."""
    given = options.file
    if _is_sdpa(given):
        path = Path(f"{given.name.lower().partition('.dat-s')[0]}-disagreement.dat-s")
        bo.write_sdpa(bo.read_sdpa(given), path)
        return path
    path = Path(f"{given.stem}-disagreement.toml")
    text = self_contained(given) if given.suffix.lower() == ".toml" else _matrix_spec(options)
    path.write_text(text, encoding="utf-8")
    return path


def _matrix_spec(options: argparse.Namespace) -> str:
    values = read_matrix(options.file, options.key).values
    divergence = options.divergence or "frobenius"
    rows = ["diag(X) == 1"] if options.problem == _NEAREST_CORRELATION else []
    return spec_text(
        {
            "title": f"{options.problem} of {options.file.name}, {divergence}",
            "data": {"A": (values.toarray() if sp.issparse(values) else values).tolist()},
            "variables": {"X": {"psd": values.shape[0]}},
            "problem": {"minimize": f"{divergence}_div(X, A)", "subject_to": rows},
        }
    )


def _explain(options: argparse.Namespace) -> int:
    spec = _load(options)
    spec.problem.explain(options.solver or spec.solver)
    return _SOLVED


def _demo(options: argparse.Namespace) -> int:
    from bregopt.demo import main as run

    return run(options.output, verbose=not options.quiet)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name in _COMMON}


def _load(options: argparse.Namespace) -> Spec:
    """Return the problem of FILE."""
    path = options.file
    if path.suffix.lower() == ".toml" or _is_sdpa(path):
        for name in ("problem", "divergence", "key"):
            if getattr(options, name) is not None:
                raise ValueError(f"argument --{name} is for a matrix; {path} says itself what to solve")
        return _from_sdpa(path) if _is_sdpa(path) else load_spec(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: files of type {path.suffix!r} are not read; expected {_ACCEPTED}")
    table = read_matrix(path, options.key)
    return _from_matrix(path, table, options.problem, options.divergence or "frobenius")


def _is_sdpa(path: Path) -> bool:
    return path.name.lower().endswith(SDPA_SUFFIXES)


def _from_sdpa(path: Path) -> Spec:
    problem = bo.read_sdpa(path)
    program = problem.program()
    orders = [block.n for block in program.blocks]
    matrices = f"{len(orders)} matrices of order up to" if len(orders) > 1 else "1 matrix of order"
    sizes = f"{program.m} equalities, {matrices} {max(orders)}, {program.k} nonnegative numbers"
    return Spec(f"{path.name}: {sizes}", problem)


def _in_sdpa_terms(problem: bo.Problem, solution: bo.Solution) -> str:
    """Return SDPA's two objectives and the DIMACS errors, nothing if there is no answer."""
    if solution.X is None or solution.duals is None:
        return ""
    primal = float(np.dot(problem.program().bounds.lo, solution.duals[0]))
    errors = " ".join(f"{error:.1e}" for error in bo.dimacs_errors(problem, solution))
    return (
        f"  SDPA       primal objective {primal:.8g}   dual objective {solution.value:.8g}\n"
        f"  DIMACS     {errors}\n"
    )


def _from_matrix(path: Path, table: Table, problem: str | None, divergence: str) -> Spec:
    if problem is None:
        choices = f"--problem {_NEAREST_CORRELATION} or --problem {_NEAREST_PSD}"
        raise ValueError(f"{path} is a matrix: say what to find, {choices}")
    if table.index is not None and table.columns is not None and table.index != table.columns:
        raise ValueError(f"{path}: the labels of the rows and of the columns differ; expected the same")
    A = symmetric_matrix(table.values, str(path))
    X = bo.PSD(len(A), name="X")
    rows = [bo.diag(X) == 1] if problem == _NEAREST_CORRELATION else []
    objective = bo.Minimize(_DIVERGENCES[divergence](X, A))
    return Spec(f"{problem} of {path.name}, {divergence}", bo.Problem(objective, rows), labeled=table)


def _check_outputs(paths: Sequence[Path], problem: bo.Problem) -> None:
    for path in paths:
        if path.suffix.lower() == ".csv" and len(problem.matrices) > 1:
            n = len(problem.matrices)
            raise ValueError(f"argument --output: {path} holds one matrix, the problem has {n}; use .npz")
