"""The nearest request that works, for one that no correlation matrix meets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, Frame, IntArray
from bregopt.errors import UnsupportedProblemError, require
from bregopt.io.pandas_labels import Labels
from bregopt.modeling.atoms import diag, trace
from bregopt.modeling.bounds import between, soft
from bregopt.modeling.objectives import Minimize
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.correlation.request import Request
from bregopt.program.lowrank import LowRank
from bregopt.records import dataclass
from bregopt.routes.solution import Solution
from bregopt.tables import html_table, table_lines

__all__ = ["Suggestion", "check_suggestible", "obstacle", "suggestion"]

# Distance from the floor of the eigenvalues of a matrix that meets the suggested request, relative to
# 1 - floor. With an interior the request is solved as fast as others.
_MARGIN = 1e-4
_TOL = 1e-8  # of the least change
_SHOWN = 12  # changes in print
_TITLES = ("row", "column", "argument", "asked", "suggested")


@dataclass(frozen=True, eq=False)
class Suggestion:
    """The nearest request that works.

    Attributes
    ----------
    arguments : dict
        Arguments of :func:`bregopt.nearest_correlation`, with other values of the fixed entries in ``A`` and
        other bounds: ``bo.nearest_correlation(**suggestion.arguments)``.
    solution : Solution
        The answer to that request.
    total : float
        The sum of the magnitudes of the changes.
    least : float
        A proven lower bound on this sum, for all requests that a matrix meets whose eigenvalues are above
        `min_eigenvalue` by a margin of 1e-4 ``(1 - min_eigenvalue)``.
    """

    arguments: dict[str, Any]
    solution: Solution
    total: float
    least: float
    _changes: list[tuple[Hashable, Hashable, str, float, float]]

    def to_frame(self) -> Frame:
        """Return the changes as a DataFrame: row, column, argument, asked, suggested; the largest first."""
        return require("pandas", "pandas").DataFrame(self._changes, columns=list(_TITLES))

    def __str__(self) -> str:
        cells = self._cells(_SHOWN)
        more = len(self._changes) - len(cells)
        lines = table_lines(_TITLES, cells, left=3)
        return "\n".join([self._title, *lines, *([f"and {more} more"] if more > 0 else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(_TITLES, self._cells(len(self._changes)), left=3, caption=self._title)

    @property
    def _title(self) -> str:
        count, noun = len(self._changes), "change" if len(self._changes) == 1 else "changes"
        return (
            f"{count} {noun}, {self.total:.4g} in total, for a request that works; at least {self.least:.4g} "
            "is needed"
        )

    def _cells(self, shown: int) -> list[tuple[str, ...]]:
        return [
            (str(row), str(column), name, f"{asked:.4f}", f"{value:.4f}")
            for row, column, name, asked, value in self._changes[:shown]
        ]


def obstacle(request: Request) -> str | None:
    """Return the name of an argument beside which no suggestion is known; None without any."""
    found = {
        "groups": request.groups is not None,
        "max_condition": request.condition is not None,
        "a LowRank A": isinstance(request.A, LowRank),
    }
    return next((name for name, given in found.items() if given), None)


def check_suggestible(request: Request) -> None:
    """Refuse ``suggest=True`` beside arguments for which no suggestion is known."""
    name = obstacle(request)
    if name is not None:
        raise UnsupportedProblemError(
            f"suggest=True does not go with {name}: suggestions change single fixed entries and bounds; "
            f"leave out suggest or {name}"
        )


def suggestion(request: Request, given: Mapping[str, Any], solve: Callable[..., Any]) -> Suggestion | None:
    """Return the nearest request that works; None if it is this one, or not found in the time left.

    It minimizes the sum of ``|X_ij - a_ij|`` over fixed entries and of the distances to the bounds over
    bounded ones. Such a sum changes few entries.

    Parameters
    ----------
    request : Request
    given : mapping
        The arguments of the user.
    solve : callable
        :func:`bregopt.nearest_correlation`.
    """
    rows = (request.fixed, request.bounded)
    if not any(len(own.i) for own in rows):
        return None
    touched = np.unique(np.concatenate([part for own in rows for part in (own.i, own.j)]))
    floor = float(request.t) + _MARGIN * (1 - float(request.t))
    Y = PSD(len(touched), name="X")
    constraints = [diag(Y) == 1 - floor]
    for own in rows:
        if len(own.i):
            entries = Y[np.searchsorted(touched, own.i), np.searchsorted(touched, own.j)]
            constraints.append(soft(between(entries, own.lo, own.hi), 1.0))
    nearest = Problem(Minimize(trace(Y)), constraints).solve(tol=_TOL)
    if nearest.X is None:
        return None
    return _of_matrix(
        request, np.asarray(nearest.X), touched, nearest.dual_value - nearest.X.trace(), given, solve
    )


def _of_matrix(
    request: Request,
    Y: Array,
    touched: IntArray,
    least: float,
    given: Mapping[str, Any],
    solve: Callable[..., Any],
) -> Suggestion | None:
    """Return the request that a matrix `Y` of the touched rows meets."""
    n, fixed, bounded = request.n, request.fixed, request.bounded
    A, lower, upper = np.array(request.A, dtype=float), np.full((n, n), -1.0), np.ones((n, n))
    _put(lower, bounded.i, bounded.j, bounded.lo)
    _put(upper, bounded.i, bounded.j, bounded.hi)
    changes = list[tuple[int, int, str, float, float]]()
    changed = _MARGIN / (10 * n)  # smaller violations are within the margin, as the sum of n of them
    for name, own, ends, side in (
        ("fixed", fixed, A, 0.0),
        ("lower", bounded, lower, -1.0),
        ("upper", bounded, upper, 1.0),
    ):
        x = Y[np.searchsorted(touched, own.i), np.searchsorted(touched, own.j)]
        asked = ends[own.i, own.j]
        moved = np.abs(x - asked) > changed if side == 0 else side * (x - asked) > changed
        for a, b, old, new in zip(own.i[moved], own.j[moved], asked[moved], x[moved], strict=True):
            changes.append((int(a), int(b), name, float(old), float(new)))
        _put(ends, own.i[moved], own.j[moved], x[moved])
    if not changes:
        return None
    changes.sort(key=lambda change: -round(abs(change[4] - change[3]) / changed))  # not by round-off
    labels = range(n) if request.labels is None else request.labels
    named = [(labels[a], labels[b], name, old, new) for a, b, name, old, new in changes]
    arguments = {**given, "divergence": request.divergence, "suggest": False}
    arguments["A"] = _framed(
        np.where(request.unknown, np.nan, A) if request.unknown is not None else A, request.labels
    )
    if len(bounded.i):
        arguments |= {"lower": _framed(lower, request.labels), "upper": _framed(upper, request.labels)}
    total = float(sum(abs(new - old) for *_, old, new in changes))
    return Suggestion(arguments, solve(**arguments), total, max(least, 0.0), named)


def _put(matrix: Array, i: IntArray, j: IntArray, values: Array) -> None:
    matrix[i, j] = matrix[j, i] = values


def _framed(matrix: Array, labels: Labels) -> Any:
    if labels is None:
        return matrix
    return importlib.import_module("pandas").DataFrame(matrix, labels, labels)
