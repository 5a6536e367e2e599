"""The command line, ``bregopt`` or ``python -m bregopt``: solve, repair, check, explain, verify and more."""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager, nullcontext, redirect_stdout
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import bregopt as bo
from bregopt.arrays import memory
from bregopt.clock import limited
from bregopt.files import is_standard
from bregopt.io.answers import PARTS, WRITERS, write_answer
from bregopt.io.spec import (
    ACCEPTED,
    DIVERGENCES,
    PROBLEMS,
    Spec,
    is_sdpa,
    problem_of_file,
    problem_of_matrix,
    states_problem,
)
from bregopt.many import Batch, Outcome
from bregopt.problems.reports import add_repair
from bregopt.records import field_names
from bregopt.rigorous.file import schema
from bregopt.routes.base import Settings

_SOLVED, _BAD_INPUT, _NO_ANSWER, _NOT_SOLVED, _INTERRUPTED, _BROKEN_PIPE = 0, 2, 3, 4, 130, 141
_EXIT_STATUS = """\
exit status:
  0  solved: the certificate meets the tolerance (check: the routes agree)
  2  bad input, or too little memory: the message says which
  3  infeasible or unbounded, proven
  4  not solved to the tolerance; the best answer is written (check: the routes disagree, or some route
     decides nothing, or only one takes the problem)
"""
# The exit status of many problems is the first of these that any of them has.
_ORDER = (_INTERRUPTED, _BAD_INPUT, _NOT_SOLVED, _NO_ANSWER, _SOLVED)
_ERRORS = {CancelledError: _INTERRUPTED, bo.InfeasibleRowError: _NO_ANSWER, bo.SolverError: _NOT_SOLVED}
_STATUS = {"optimal": _SOLVED, "infeasible": _NO_ANSWER, "unbounded": _NO_ANSWER}
_PIPE = re.compile(r"-\.[a-z]", re.IGNORECASE)
_COMMON = field_names(Settings)


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
    words = sys.argv[1:] if arguments is None else arguments
    # Argparse would read a pipe such as -.csv as an option.
    options = _parser().parse_args([f"./{word}" if _PIPE.match(word) else word for word in words])
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

    solve = _command(commands, "solve", "Solve a problem and write the answer.", source, settings)
    solve.add_argument("--solver", metavar="NAME", help="route to use (auto)")
    solve.add_argument(
        "--output",
        type=_output_path,
        action="append",
        default=[],
        metavar="PATH",
        help="file for the answer: .npz (X or its factor, u, duals), .json (status, value, gap, ...) or .csv "
        "(X); - writes the .json, and -.csv the .csv, to standard output, and no report; may be repeated",
    )
    solve.add_argument(
        "--with",
        dest="parts",
        type=_parts,
        default=(),
        metavar="PARTS",
        help=f"arrays that the .json also has: {','.join(PARTS)}, or some of them",
    )
    solve.set_defaults(run=_solve)

    many = _command(commands, "solve-many", "Solve many problems in several processes.", settings)
    many.add_argument("files", nargs="+", type=Path, metavar="FILE", help="specs (.toml), SDPA or CBF files")
    many.add_argument("--jobs", type=_jobs, default=1, metavar="N", help="number of processes (1)")
    many.add_argument("--solver", metavar="NAME", help="route to use (auto)")
    many.add_argument("--output", type=_folder, metavar="DIR", help="folder for NAME.json and NAME.npz")
    many.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="folder that keeps the answers, so that the same command solves the rest after an interruption",
    )
    many.add_argument("--quiet", action="store_true", help="print no progress bar")
    many.set_defaults(run=_solve_many)
    add_repair(
        commands, settings, _settings, lambda status: _STATUS.get(status, _NOT_SOLVED), bo.nearest_correlation
    )

    check = _command(commands, "check", "Solve by several routes and compare.", source, settings)
    check.add_argument(
        "--solver",
        action="append",
        metavar="NAME",
        help="route to compare; give at least two, or none for all that take the problem",
    )
    check.set_defaults(run=_check)

    explain = _command(commands, "explain", "Say which routes take a problem, and why.", source)
    explain.add_argument("--solver", metavar="NAME", help="route to use (auto)")
    explain.set_defaults(run=_explain)

    verify = _command(commands, "verify", "Prove the bounds in a file again, without a solver.")
    verify.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="file written by sol.verify().certificate.save or cut.certificate.save",
    )
    verify.add_argument(
        "--problem",
        type=Path,
        metavar="SPEC",
        help="spec, SDPA or CBF file that states the problem; of FILE only points and multipliers are used",
    )
    _add_parameters(verify)
    verify.set_defaults(run=_verify)

    demo = _command(commands, "demo", "Solve, check and draw four real problems.")
    demo.add_argument(
        "--output",
        type=Path,
        default=Path("bregopt-demo"),
        metavar="DIR",
        help="folder for the plots (bregopt-demo)",
    )
    demo.add_argument("--quiet", action="store_true", help="print no progress")
    demo.set_defaults(run=_demo)
    about = _command(commands, "about", "Print versions, BLAS, threads, cores and memory, for reports.")
    about.set_defaults(run=_about)
    return parser


def _command(commands: Any, name: str, task: str, *parents: argparse.ArgumentParser) -> Any:
    """Add a command with its task, for the list of commands and the command's own help."""
    return commands.add_parser(name, parents=parents, help=task, description=task)


def _source_parser() -> argparse.ArgumentParser:
    """Return the arguments of every command that takes a problem."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help=f"{ACCEPTED}; - reads a spec or, with --problem, a .csv from standard input",
    )
    _add_parameters(parser)
    matrix = parser.add_argument_group("if FILE is a matrix")
    matrix.add_argument("--problem", choices=PROBLEMS, help="problem to solve (required)")
    matrix.add_argument("--divergence", choices=tuple(DIVERGENCES), help="measure of nearness (frobenius)")
    matrix.add_argument("--key", help="array of an .npz file")
    return parser


def _add_parameters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="parameters",
        type=_parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a parameter of the spec: a number or a list; may be repeated",
    )


def _settings_parser() -> argparse.ArgumentParser:
    """Return the options of every route; the spec's value applies if an option is not given."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    settings = parser.add_argument_group("settings, which replace those of a spec")
    settings.add_argument("--tol", type=float, help="largest relative gap and residuals of an optimal answer")
    settings.add_argument("--max-iter", type=int, metavar="N", help="limit on steps, rounds or cycles")
    settings.add_argument("--time-limit", type=float, metavar="S", help="limit in seconds")
    settings.add_argument("--proven", action="store_true", help="prove the optimum with all rounding")
    settings.add_argument("--verbose", action="store_true", help="print the progress")
    return parser


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    for part in parts:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(PARTS)}")
    return parts


def _parameter(text: str) -> tuple[str, Any]:
    """Return a name and a value, written as in TOML."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        found = f"{text!r} is no NAME=VALUE with a number or a list of numbers"
        raise argparse.ArgumentTypeError(found) from None


def _output_path(text: str) -> Path:
    path = Path(text)
    if is_standard(path) and path.suffix.lower() in ("", ".json", ".csv"):
        return path
    if path.suffix.lower() not in WRITERS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text!r} is not there")
    _check_writable(path)
    return path


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive integer")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"the folder {text!r} is not there")
    return Path(text)


def _check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before any work."""
    try:
        if path.exists() and not path.is_file():
            raise argparse.ArgumentTypeError(f"{str(path)!r} cannot be written: it is no file")
        for place in (path.parent, path):
            if place.exists() and not os.access(place, os.W_OK):
                raise argparse.ArgumentTypeError(f"{str(path)!r} cannot be written: {place} is read-only")
    except OSError as error:  # such as a name that is too long
        raise argparse.ArgumentTypeError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _solve(options: argparse.Namespace) -> int:
    spec = _load(options)
    _check_outputs(options, spec.problem)
    settings = {**spec.options, **_settings(options)}
    piped = any(map(is_standard, options.output))
    with redirect_stdout(sys.stderr) if piped else nullcontext():
        solution = spec.problem.solve(options.solver or spec.solver, **settings)
    report = _in_sdpa_terms(spec.problem, solution) if is_sdpa(options.file) else ""
    if not piped:
        sys.stdout.write(f"{spec.title}\n{solution!r}\n{report}")
    for path in options.output:
        if path.suffix.lower() == ".csv" and solution.X is None:
            _say(f"warning: there is no X to write to {path}")
        else:
            write_answer(path, spec, solution, options.parts)
    return _STATUS.get(solution.status, _NOT_SOLVED)


def _solve_many(options: argparse.Namespace) -> int:
    if options.output is not None:
        _check_distinct([path.stem for path in options.files])
    shown = not options.quiet and find_spec("tqdm") is not None
    answers: dict[int, Outcome] = {}
    with _pool(options.jobs) as executor:
        batch = Batch(
            options.files, executor, None, False, options.resume, options.solver, _settings(options)
        )
        stored = set(batch.stored)
        if stored:
            _say(f"{len(stored)} of {len(options.files)} answers are in {options.resume}, the rest is solved")
        with limited(None, batch=True):
            for k, answer in batch.pairs(shown):
                answers[k] = answer
                if options.output is not None and isinstance(answer, bo.Solution):
                    _write_both(options.output, options.files[k], answer)
    width = max(len(str(path)) for path in options.files)
    for k, path in enumerate(options.files):
        skipped = "  from --resume" if k in stored else ""
        sys.stdout.write(f"{path!s:<{width}}  {_line(path, answers[k])}{skipped}\n")
    statuses = [*map(_exit_status, answers.values())]
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
    if not isinstance(answer, bo.Solution):
        return f"{type(answer).__name__}: {str(answer).removeprefix(f'{path.absolute()}: ')}"
    certificate = "" if answer.X is None else f"  gap {answer.gap:.1e}"
    return f"{answer.status}  value {answer.value:.8g}{certificate}  {answer.timings['total']:.3f} s"


def _write_both(folder: Path, path: Path, answer: bo.Solution) -> None:
    spec = problem_of_file(path, {})
    for kind in (".json", ".npz"):
        write_answer(folder / f"{path.stem}{kind}", spec, answer)


def _exit_status(answer: Outcome) -> int:
    if isinstance(answer, bo.Solution):
        return _STATUS.get(answer.status, _NOT_SOLVED)
    return next((status for kind, status in _ERRORS.items() if isinstance(answer, kind)), _BAD_INPUT)


def _check_distinct(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"argument --output: two specs are called {name}, and so would their answers be; "
                "expected different names"
            )


def _verify(options: argparse.Namespace) -> int:
    from bregopt.problems.cuts.branch_and_bound import certificate as of_cut  # for commands to start at once

    fields = schema.Fields.of_file(options.file, schema.FORMAT, schema.OLDER_FORMAT, of_cut.FORMAT)
    if fields.format == of_cut.FORMAT:
        return _verify_cut(of_cut.CutCertificate.of_fields(fields), options)
    certificate = bo.BoundCertificate.of_fields(fields)
    if options.problem is None:
        certificate.check()
        of = f"{options.file} itself; --problem SPEC proves it for the problem that you state"
    else:
        if not states_problem(options.problem):
            raise ValueError(f"argument --problem: {options.problem} is no spec (.toml), SDPA or CBF file")
        spec = problem_of_file(options.problem, dict(options.parameters))
        certificate = bo.verify(spec.problem, certificate).certificate or certificate
        of = f"{options.problem}; only points and multipliers are those of {options.file}"
    given = "".join(f"  given      {text}\n" for text in certificate.given)
    sys.stdout.write(
        f"proven again: {certificate.proven}\n{given}  problem    {certificate.problem}\n  stated by  {of}\n"
    )
    return _SOLVED


def _verify_cut(certificate: Any, options: argparse.Namespace) -> int:
    if options.problem is not None:
        raise ValueError("argument --problem: FILE is of a cut; compare its graph by certificate.of_graph")
    certificate.check()
    sys.stdout.write(f"proven again: {certificate.proven}\n  problem    {certificate.problem}\n")
    return _SOLVED


def _check(options: argparse.Namespace) -> int:
    if options.solver is not None and len(set(options.solver)) < 2:
        raise ValueError(
            f"argument --solver: check compares routes, but {options.solver[0]} is the only one; "
            "name at least two, or none for all that take the problem"
        )
    spec = _load(options)
    # The spec's options for its own route do not apply to the others.
    common = {name: value for name, value in spec.options.items() if name in _COMMON}
    used = {**common, **_settings(options)}
    report = bo.cross_check(spec.problem, options.solver, **used)
    sys.stdout.write(f"{spec.title}\n{report}\n")
    if not all(row.agrees for row in report.rows):
        kind = "disagreement" if report.verdict == "disagree" else "undecided"
        path = f"{options.file.name.partition('.')[0]}-{kind}.toml"
        spec.problem.to_spec(path)
        words = [f"--solver {row.solver}" for row in report.rows]
        words += [f"--{name.replace('_', '-')} {value}" for name, value in used.items() if name != "verbose"]
        _say(f"the instance is in {path}; to see it again: bregopt check {path} {' '.join(words)}")
    return _SOLVED if report.ok else _NOT_SOLVED


def _explain(options: argparse.Namespace) -> int:
    spec = _load(options)
    spec.explain(**({} if options.solver is None else {"solver": options.solver}))
    return _SOLVED


def _demo(options: argparse.Namespace) -> int:
    from bregopt.demo import main as run

    return run(options.output, verbose=not options.quiet)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name in _COMMON}


def _load(options: argparse.Namespace) -> Spec:
    """Return the problem of FILE; ``-`` is a matrix if --problem is given, and otherwise a spec."""
    path = options.file
    if path == Path("-"):
        path = Path("-.toml" if options.problem is None else "-.csv")
    if path.suffix.lower() != ".toml" and options.parameters:
        raise ValueError(f"argument --set is for a spec; {path} has no parameters")
    if not states_problem(path):
        divergence = options.divergence or "frobenius"
        return problem_of_matrix(path, options.key, options.problem, divergence)
    for name in ("problem", "divergence", "key"):
        if getattr(options, name) is not None:
            raise ValueError(f"argument --{name} is for a matrix; {path} says itself what to solve")
    return problem_of_file(path, dict(options.parameters))


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


def _check_outputs(options: argparse.Namespace, problem: bo.Problem) -> None:
    if options.parts and not any(path.suffix.lower() in ("", ".json") for path in options.output):
        raise ValueError("argument --with is for a report; expected --output with a .json or -")
    for path in options.output:
        if path.suffix.lower() != ".csv":
            continue
        if len(problem.matrices) > 1:
            n = len(problem.matrices)
            raise ValueError(f"argument --output: {path} holds one matrix, the problem has {n}; use .npz")
        if any(X.is_hermitian for X in problem.matrices):
            X = problem.matrices[0].name
            raise ValueError(f"argument --output: {path} holds real numbers, {X} is Hermitian; use .npz")


def _about(options: argparse.Namespace) -> int:
    """Print what a report of an error or of a slow solve needs to know of the machine."""
    from threadpoolctl import threadpool_info

    required, optional = _packages()
    facts = {"bregopt": bo.__version__, "Python": f"{platform.python_version()}, {platform.platform()}"}
    facts |= {name: _version(name) or "not installed" for name in required}
    extras = [f"{name} {found}" for name in optional if (found := _version(name)) is not None]
    facts["extras"] = ", ".join(extras) or "none"
    for own in threadpool_info():
        built = f"{own.get('version') or 'unknown version'}, {own.get('architecture') or 'unknown kernels'}"
        place = Path(own["filepath"]).parent.name  # NumPy and SciPy may have a BLAS each
        facts[f"{own['internal_api']} in {place}"] = f"{built}, {own['num_threads']} threads"
    limits = {name: os.environ[name] for name in sorted(os.environ) if name.endswith("_NUM_THREADS")}
    facts["limits"] = ", ".join(f"{name}={value}" for name, value in limits.items()) or "none"
    usable = getattr(os, "sched_getaffinity", None)
    facts["cores"] = f"{os.cpu_count()}" + ("" if usable is None else f", {len(usable(0))} usable")
    size = memory()
    facts["memory"] = "unknown" if size is None else f"{size / 1e9:.1f} GB"
    width = max(map(len, facts))
    sys.stdout.write("".join(f"{name:<{width}}  {value}\n" for name, value in facts.items()))
    return _SOLVED


def _packages() -> tuple[list[str], list[str]]:
    """Return the names of the packages that bregopt requires, and of those of its extras."""
    try:
        stated = metadata.requires("bregopt") or []
    except metadata.PackageNotFoundError:  # a folder on the path
        stated = []
    required: dict[str, None] = dict.fromkeys(("numpy", "scipy", "cvxpy", "highspy", "threadpoolctl"))
    optional: dict[str, None] = {}
    for line in stated:
        name = re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0]
        if name != "bregopt":
            (optional if "extra ==" in line else required)[name] = None
    return list(required), list(optional)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
