"""Reports: text, tables, a workbook, or a page of HTML; the report of a panel; and ``bregopt repair``.

A report says what changed and shows the proof. That of a panel adds up the changes of all dates: the dates
that moved most, the pairs that moved most often, and the eigenvalues along time.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bregopt.arrays import Array, Frame, IntArray, is_one_of
from bregopt.display import Axes, escaped, html_table, plot_panel, table_lines
from bregopt.divergences import DIVERGENCES
from bregopt.errors import require
from bregopt.files import replacing
from bregopt.io.matrices import SUFFIXES, csv_text, read_matrix
from bregopt.io.matrices import Table as MatrixTable
from bregopt.records import cached_property, dataclass, replace

if TYPE_CHECKING:
    from bregopt.problems.solutions import Solutions

Table = tuple[str, Sequence[str], list[tuple[str, ...]], int]  # caption, titles, cells, columns of text

_TASK = "Find the nearest correlation matrix, and report the changes."
_REPORTS = (".html", ".xlsx", ".txt")
_SHOWN = 10  # rows of a table in print
_SHOWN_ON_PAGE = 50  # rows of a table in HTML
_DPI = 110
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # beginnings of cells that a spreadsheet would run
_MOVED = 0.01  # change of a correlation from which a pair counts as moved
_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1.2rem 0 }
caption { font-weight: 600; padding: .3rem 0 }
td, th { padding: .15rem .9rem .15rem 0; border-bottom: 1px solid #ddd }
td { font-variant-numeric: tabular-nums }
img { max-width: 100% }"""


class Report(ABC):
    """The base of reports: facts and tables, and the forms in which they leave the session."""

    _tables: ClassVar[tuple[str, ...]]
    _matrices: ClassVar[tuple[str, ...]] = ()  # tables with labels of their rows

    @property
    @abstractmethod
    def title(self) -> str:
        """What the report is of."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, str]:
        """The numbers for the whole, as text by name."""

    @abstractmethod
    def tables(self, shown: int) -> list[Table]:
        """Return the tables with at most `shown` rows each."""

    @abstractmethod
    def _columns(self, table: str) -> Any:
        """Return the columns of a table, or a matrix with its labels."""

    @abstractmethod
    def _drawn(self) -> NDArray[np.object_]:
        """Draw what belongs to the page; return the axes."""

    def to_frame(self, table: str = "pairs") -> Frame:
        """Return one table as a DataFrame.

        Parameters
        ----------
        table : str
            A name of ``report.names``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        ValueError
            If there is no such table.
        """
        if not is_one_of(table, self.names):
            raise ValueError(f"table is {table!r}; expected one of {', '.join(self.names)}")
        pandas = require("pandas", "pandas")
        if table not in self._matrices:
            return pandas.DataFrame(self._columns(table))
        matrix, labels = self._columns(table)
        return pandas.DataFrame(matrix, index=list(labels), columns=list(labels))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables."""
        return self._tables

    def to_excel(self, path: str | PathLike[str]) -> None:
        """Write all tables to a workbook, one sheet each; it needs openpyxl (``bregopt[excel]``).

        Labels are text, also those that look like formulas.

        Raises
        ------
        ValueError
            If a label has control characters, which no workbook holds.
        """
        pandas = require("pandas", "excel")
        require("openpyxl", "excel")
        frames = {table: self.to_frame(table) for table in self.names}
        for frame in frames.values():
            for cell in itertools.chain(frame.to_numpy(dtype=object).ravel(), frame.columns):
                if isinstance(cell, str) and any(ord(c) < 32 and c not in "\t\n\r" for c in cell):
                    raise ValueError(f"the label {cell!r} has control characters; a workbook holds none")
        packed = io.BytesIO()  # after an error in the middle of writing, openpyxl leaves an archive open
        with pandas.ExcelWriter(packed, engine="openpyxl") as book:
            for table, frame in frames.items():
                frame.to_excel(book, sheet_name=table, index=table in self._matrices)
                for cell in itertools.chain(*book.sheets[table].iter_rows()):
                    cell.data_type = "s" if cell.data_type == "f" else cell.data_type
        with replacing(path) as file:
            file.write(packed.getvalue())

    def to_csv(self, path: str | PathLike[str], table: str | None = None) -> None:
        """Write one table to a CSV file.

        A spreadsheet that opens the file runs none of the labels: one that begins like a formula (with
        ``=``, ``+``, ``-`` or ``@``) gets an apostrophe in front.

        Parameters
        ----------
        path : path
        table : str, optional
            A name of ``report.names``; by default the repaired matrix, of a panel the dates.

        Raises
        ------
        ImportError, ValueError
            As :meth:`to_frame`.
        """
        first = next(name for name in (*self._matrices, *self.names) if name in self.names)
        name = first if table is None else table
        frame = self.to_frame(name)
        index = name in self._matrices
        frame = frame.map(_text) if hasattr(frame, "map") else frame.applymap(_text)
        frame.columns = [_text(label) for label in frame.columns]
        frame.index = [_text(label) for label in frame.index]
        with replacing(path) as file:
            file.write(frame.to_csv(index=index, lineterminator="\n").encode("utf-8"))

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write a page that stands alone, with the plot if matplotlib is installed."""
        page = (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>{escaped(self.title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
            f"{_embedded(self._drawn)}\n{self.html(_SHOWN_ON_PAGE)}\n</body>\n</html>\n"
        )
        with replacing(path) as file:
            file.write(page.encode("utf-8"))

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        lines = [self.title, *(f"  {name:<{width}}  {text}" for name, text in self.facts.items())]
        for heading, titles, cells, left in self.tables(_SHOWN):
            lines += ["", heading, *table_lines(titles, cells, left)]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html(_SHOWN)

    def html(self, shown: int) -> str:
        """Return the tables as HTML with at most `shown` rows each."""
        parts = [html_table((), list(self.facts.items()), 2, self.title)]
        parts += [
            html_table(titles, cells, left, heading) for heading, titles, cells, left in self.tables(shown)
        ]
        return "\n".join(parts)


def caption(noun: str, shown: int, count: int, by: str = "the size of their change") -> str:
    """Return the caption of a table that shows some of its rows."""
    some = f"all {count} {noun}" if shown == count else f"{shown} of {count} {noun}"
    return f"{some}, by {by}"


def _text(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULAS) else cell


def _embedded(draw: Callable[[], NDArray[np.object_]]) -> str:
    """Return a plot as an image inside the page."""
    if find_spec("matplotlib") is None:
        return "<p>For the plot: pip install 'bregopt[plot]'</p>"
    pyplot = require("matplotlib.pyplot", "plot")
    with pyplot.rc_context({"interactive": False}):
        figure = draw()[0].figure
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=_DPI)
        pyplot.close(figure)
    image = base64.b64encode(data.getvalue()).decode("ascii")
    return f'<img alt="what changed" src="data:image/png;base64,{image}">'


@dataclass(frozen=True, eq=False, repr=False)
class PanelReport(Report):
    """What changed in a panel: the dates that moved most, and the pairs that moved most often.

    Attributes
    ----------
    keys : sequence of length B
        The dates.
    labels : sequence of length n
        All labels, or the numbers of the rows.
    distance, largest : array of shape (B,)
        The Frobenius norm of the change of each matrix, and the largest change of a correlation. Unknown
        entries do not count. NaN without an answer.
    before, after : array of shape (B,)
        The smallest eigenvalue before, with unknown entries as after, and after.
    unknown, left_out : int array of shape (B,)
        The numbers of unknown pairs, and of rows without data.
    dates, moved : int array of shape (n, n)
        The number of dates on which each pair is known, and those on which its correlation changed by more
        than 0.01.
    mean : array of shape (n, n)
        The mean change of the correlation of each pair in magnitude; NaN for one that is never known.
    """

    _tables = ("dates", "pairs", "rows")

    keys: Sequence[Hashable]
    labels: Sequence[Hashable]
    distance: Array
    largest: Array
    before: Array
    after: Array
    unknown: IntArray
    left_out: IntArray
    dates: IntArray
    moved: IntArray
    mean: Array
    _most: Array
    _when: IntArray
    _present: IntArray
    _solutions: Solutions

    @classmethod
    def of(cls, solutions: Solutions) -> PanelReport:
        """Return the report of the answers to a stack."""
        matrices = solutions._problem.matrices
        labels = list(matrices.all_labels)
        place, n, B = {label: k for k, label in enumerate(labels)}, len(labels), len(solutions)
        distance, largest, before, after = (np.full(B, np.nan) for _ in range(4))
        unknown, left_out = np.zeros(B, dtype=np.intp), np.zeros(B, dtype=np.intp)
        dates, moved, when = (np.zeros((n, n), dtype=np.intp) for _ in range(3))
        total, most, present = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n, dtype=np.intp)
        for k, X in enumerate(solutions._matrices):
            left_out[k] = len(matrices.absent(k))
            if X is None:
                continue
            answer, given = np.asarray(X), np.asarray(matrices.one(k), dtype=np.float64)
            own = matrices.labels(k)
            there = matrices.present.get(k)
            rows = np.arange(len(given)) if there is None else np.flatnonzero(there)
            rows = rows if own is None else np.array([place[label] for label in own], dtype=np.intp)
            present[rows] += 1
            known = np.isfinite(given)
            change = np.where(known, answer - np.where(known, given, 0.0), 0.0)
            scale = np.sqrt(np.maximum(answer.diagonal(), np.abs(np.nan_to_num(given.diagonal()))))
            scale = np.where(scale > 0, scale, 1.0)
            part = np.abs(change) / np.outer(scale, scale)
            at = np.ix_(rows, rows)
            larger = part > most[at]
            dates[at] += known
            moved[at] += part > _MOVED
            total[at] += part
            most[at] = np.maximum(most[at], part)
            when[at] = np.where(larger, k, when[at])
            distance[k] = np.linalg.norm(change)
            largest[k] = np.triu(part, 1).max(initial=0.0)
            unknown[k] = int((~known).sum() - (~known.diagonal()).sum()) // 2
            before[k] = np.linalg.eigvalsh(np.where(known, given, answer))[0]
            after[k] = np.linalg.eigvalsh(answer)[0]
        mean = np.divide(total, dates, out=np.full((n, n), np.nan), where=dates > 0)
        sums = (dates, moved, mean, most, when, present)
        along = (distance, largest, before, after, unknown, left_out)
        return cls(solutions.keys, labels, *along, *sums, solutions)

    def plot(self, ax: Sequence[Axes] | None = None) -> NDArray[np.object_]:
        """Draw distances and smallest eigenvalues along the dates, and the mean change of each pair.

        Parameters
        ----------
        ax : sequence of three matplotlib axes, optional
            The default is a new figure.

        Returns
        -------
        array of three matplotlib axes

        Raises
        ------
        ImportError
            If matplotlib is not installed; the message names the extra.
        """
        return plot_panel(self.keys, self.distance, self.before, self.after, self.mean, self.labels, ax)

    _drawn = plot

    @property
    def title(self) -> str:
        """What the report is of."""
        return f"{len(self.keys)} matrices of {len(self.labels)} labels, repaired: {self._solutions.statuses}"

    @cached_property
    def facts(self) -> dict[str, str]:
        """The numbers for the whole panel, as text by name."""
        solutions, solved = self._solutions, np.isfinite(self.distance)
        facts = {}
        if solved.any():
            worst = int(np.nanargmax(self.distance))
            facts["change"] = (
                f"median {np.median(self.distance[solved]):.4g} in the Frobenius norm, largest "
                f"{self.distance[worst]:.4g} at {self.keys[worst]}"
            )
            count = int((self.before[solved] < 0).sum())
            facts["eigenvalues"] = (
                f"smallest before {np.nanmin(self.before):.4g}, below zero in {count} matrices; "
                f"smallest after {np.nanmin(self.after):.4g}"
            )
        if self.unknown.any():
            facts["unknown"] = f"{self.unknown.sum()} pairs on {(self.unknown > 0).sum()} dates"
        if self.left_out.any():
            facts["left out"] = (
                f"{self.left_out.sum()} rows without data on {(self.left_out > 0).sum()} dates"
            )
        gaps = solutions.gap[np.isfinite(solutions.gap)]
        if len(gaps):
            facts["optimum"] = f"certified gap median {np.median(gaps):.1e}, largest {gaps.max():.1e}"
        if solutions.errors:
            facts["errors"] = solutions._first_error
        return facts | {"effort": f"{solutions.timings['total']:.3g} s"}

    def tables(self, shown: int) -> list[Table]:
        """Return captions, titles, cells and the number of columns of text of the tables."""
        order = np.argsort(-np.nan_to_num(self.distance, nan=-1.0), kind="stable")[:shown]
        status = self._solutions.status
        of_dates: list[tuple[str, ...]] = [
            (
                str(self.keys[k]),
                str(status[k]),
                *(_shown(each[k]) for each in (self.distance, self.largest, self.before, self.after)),
                str(self.unknown[k]),
                str(self.left_out[k]),
            )
            for k in order
        ]
        pairs = self._pairs(shown)
        of_pairs: list[tuple[str, ...]] = [
            (str(row), str(column), str(known), str(moved), f"{mean:.4f}", f"{most:.4f}", str(when))
            for row, column, known, moved, mean, most, when in zip(*pairs.values(), strict=True)
        ]
        count = int((np.triu(self.dates, 1) > 0).sum())
        titles = ("date", "status", "distance", "largest", "smallest before", "after", "unknown", "left out")
        return [
            (caption("dates", len(order), len(self.keys)), titles, of_dates, 2),
            (caption("pairs", len(of_pairs), count, "how often they moved"), tuple(pairs), of_pairs, 2),
        ]

    def _columns(self, table: str) -> Any:
        if table == "pairs":
            return self._pairs(None)
        if table == "rows":
            moved = np.where(np.isfinite(self.mean), self.mean, 0.0)
            np.fill_diagonal(moved, 0.0)
            missing = len(self.keys) - self._present
            return {
                "row": list(self.labels),
                "dates": self._present,
                "dates without data": missing,
                "sum of mean |changes|": moved.sum(axis=1),
            }
        return {
            "date": list(self.keys),
            "status": self._solutions.status,
            "distance": self.distance,
            "largest change of a correlation": self.largest,
            "smallest eigenvalue before": self.before,
            "smallest eigenvalue after": self.after,
            "unknown pairs": self.unknown,
            "rows left out": self.left_out,
        }

    def _pairs(self, shown: int | None) -> dict[str, list[Any]]:
        """Return the pairs that are known on some dates, those that moved most often first."""
        i, j = np.nonzero(np.triu(self.dates, 1))
        order = np.lexsort((-self.mean[i, j], -self.moved[i, j]))[:shown]
        i, j = i[order], j[order]
        return {
            "row": [self.labels[a] for a in i.tolist()],
            "column": [self.labels[b] for b in j.tolist()],
            "dates": self.dates[i, j].tolist(),
            "moved": self.moved[i, j].tolist(),
            "mean": self.mean[i, j].tolist(),
            "largest": self._most[i, j].tolist(),
            "on": [self.keys[k] for k in self._when[i, j].tolist()],
        }


def _shown(value: float) -> str:
    """Return a number as text; NaN is not known."""
    return "-" if np.isnan(value) else f"{value:.4g}"


# --- The command `bregopt repair` -------------------------------------------------------------------------


def add_repair(
    commands: Any,
    settings: argparse.ArgumentParser,
    given: Callable[[argparse.Namespace], dict[str, Any]],
    exit_status: Callable[[str], int],
    solve: Callable[..., Any],
) -> None:
    """Add the command to the parser of the command line.

    `settings` has the options of every route, `given` returns those that were given, and `solve` is
    :func:`bregopt.nearest_correlation`.
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
    parser.set_defaults(run=lambda options: _run(options, given(options), exit_status, solve))


def _run(
    options: argparse.Namespace,
    settings: dict[str, Any],
    exit_status: Callable[[str], int],
    solve: Callable[..., Any],
) -> int:
    table = read_matrix(options.file, options.key)
    if table.index is not None and table.columns is not None and table.index != table.columns:
        raise ValueError(f"{options.file}: the labels of the rows and columns differ; expected the same")
    solution: Any = solve(
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


def _write(options: argparse.Namespace, table: MatrixTable, solution: Any) -> None:
    labels = table.columns if table.index is None else table.index
    report = replace(solution, _request=replace(solution._asked, labels=labels)).report()
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
