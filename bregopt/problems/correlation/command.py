"""The command ``bregopt repair``: a correlation matrix in a file, its nearest valid one, and a report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.divergences import DIVERGENCES
from bregopt.files import replacing
from bregopt.io.matrices import SUFFIXES, Table, csv_text, read_matrix
from bregopt.problems.correlation.answer import CorrelationSolution
from bregopt.problems.correlation.nearest import nearest_correlation
from bregopt.records import replace

__all__ = ["add_repair"]

_TASK = "Find the nearest correlation matrix, and report the changes."
_REPORTS = (".html", ".xlsx", ".txt")


def add_repair(
    commands: Any,
    settings: argparse.ArgumentParser,
    given: Callable[[argparse.Namespace], dict[str, Any]],
    exit_status: Callable[[str], int],
) -> None:
    """Add the command to the parser of the command line.

    Parameters
    ----------
    commands : the subparsers
    settings : ArgumentParser
        The options of every route.
    given : callable
        Returns those that were given.
    exit_status : callable
        Returns that of a status.
    """
    parser = commands.add_parser("repair", parents=[settings], help=_TASK, description=_TASK)
    parser.add_argument("file", type=Path, metavar="FILE", help=f"a matrix ({', '.join(SUFFIXES)})")
    parser.add_argument("--key", help="array of an .npz file")
    parser.add_argument(
        "--divergence",
        choices=tuple(DIVERGENCES),
        default="frobenius",
        help="measure of nearness (frobenius)",
    )
    parser.add_argument(
        "--min-eigenvalue", type=float, default=0.0, metavar="T", help="lower bound on the eigenvalues (0)"
    )
    parser.add_argument("--lower", type=float, metavar="L", help="lower bound on the entries (-1)")
    parser.add_argument("--upper", type=float, metavar="U", help="upper bound on the entries (1)")
    parser.add_argument("--output", type=_path(".csv"), metavar="PATH", help=".csv file for the matrix")
    parser.add_argument(
        "--report",
        type=_path(*_REPORTS),
        metavar="PATH",
        help=".html, .xlsx or .txt file for the report of changes and proofs, which is printed without it",
    )
    parser.set_defaults(run=lambda options: _run(options, given(options), exit_status))


def _run(options: argparse.Namespace, settings: dict[str, Any], exit_status: Callable[[str], int]) -> int:
    table = read_matrix(options.file, options.key)
    if table.index is not None and table.columns is not None and table.index != table.columns:
        raise ValueError(f"{options.file}: the labels of the rows and columns differ; expected the same")
    solution: Any = nearest_correlation(
        table.values.toarray() if sp.issparse(table.values) else table.values,
        options.divergence,
        lower=options.lower,
        upper=options.upper,
        min_eigenvalue=options.min_eigenvalue,
        **settings,
    )
    if solution.X is None:
        sys.stdout.write(f"{solution!r}\n")
        return exit_status(solution.status)
    _write(options, table, solution)
    return exit_status(solution.status)


def _write(options: argparse.Namespace, table: Table, solution: CorrelationSolution) -> None:
    labels = table.columns if table.index is None else table.index
    assert solution._asked is not None
    report = replace(solution, _asked=replace(solution._asked, labels=labels)).report()
    kind = "" if options.report is None else options.report.suffix.lower()
    if kind == ".html":
        report.to_html(options.report)
    elif kind == ".xlsx":
        report.to_excel(options.report)
    elif kind == ".txt":
        with replacing(options.report) as file:
            file.write(f"{report}\n".encode())
    else:
        sys.stdout.write(f"{report}\n")
    if options.output is not None:
        X = csv_text(np.asarray(solution.X), table.index, table.columns)
        with replacing(options.output) as file:
            file.write(X.encode("utf-8"))
    if kind:
        lines = (f"  {name}: {text}\n" for name, text in report.facts.items())
        sys.stdout.write("".join([f"{report.title}\n", *lines]))


def _path(*kinds: str) -> Callable[[str], Path]:
    """Return the reader of a path that ends in one of these."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() not in kinds:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(kinds)}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"the folder of {text!r} is not there")
        return path

    return read
