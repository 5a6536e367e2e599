"""Requests that no correlation matrix meets: the reason, and the nearest request that works.

The reason is a fixed block, or three entries. A block is a set of indices whose entries are all given, found
in the pattern of given entries.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from bregopt.arrays import Array, Frame, IntArray, Mask
from bregopt.display import html_table, table_lines
from bregopt.errors import UnsupportedProblemError, require
from bregopt.io.matrices import Labels
from bregopt.modeling.atoms import diag, trace
from bregopt.modeling.convex.expression import Minimize
from bregopt.modeling.expressions import between, soft
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import PSD
from bregopt.problems.correlation.request import Request
from bregopt.program.rows.base import LowRank
from bregopt.records import dataclass, replace
from bregopt.routes.solution import Solution

_ROUND_OFF = 1e-10  # absolute round-off of the eigenvalues of blocks with unit diagonal
_LARGEST_BLOCKS = 5_000  # number of indices with fixed entries among which a block is searched for
_LARGEST_TRIPLES = 500  # the same for three entries, whose number is its cube
_WITHOUT_ANSWER = ("infeasible", "infeasible_inaccurate", "inaccurate", "user_limit")
_SHOWN = 6  # number of indices of a block in messages

# Distance from the floor of the eigenvalues of a matrix that meets the suggested request, relative to
# 1 - floor. With an interior the request is solved as fast as others.
_MARGIN = 1e-4
_TOL = 1e-8  # of the least change
_CHANGES_SHOWN = 12  # changes in print
_TITLES = ("row", "column", "argument", "asked", "suggested")


def explained(solution: Solution, request: Request) -> Solution:
    """Return an answer; its reason names a fixed block or three entries that prove that no X exists.

    They are looked for where the problem is infeasible, or where a solver ends without finding out.
    """
    if solution.status not in _WITHOUT_ANSWER:
        return solution
    reason = _block_reason(request) or _triple_reason(request)
    if reason is None:
        return solution
    return replace(solution, stop_reason=reason)


def _block_reason(request: Request) -> str | None:
    """Return the reason that a block of fixed entries has an eigenvalue below the floor."""
    kept, labels, t = request.fixed, request.labels, request.floor
    touched, at = np.unique(np.concatenate([kept.i, kept.j]), return_inverse=True)
    if not 0 < len(touched) <= _LARGEST_BLOCKS:
        return None
    i, j = at.reshape(2, -1)
    unit = np.ones(len(touched)) if request.scale is None else request.scale[touched]
    C, mask = np.diag(unit**2), np.zeros((len(touched),) * 2, dtype=bool)
    C[i, j] = C[j, i] = kept.lo * unit[i] * unit[j]
    mask[i, j] = mask[j, i] = True
    block, least = least_block(mask, C)
    if least > t - _ROUND_OFF * float(unit.max() ** 2):
        return None
    block = touched[block]
    names = [_name(labels, k) for k in block[:_SHOWN]]
    diagonal = "a unit diagonal" if request.scale is None else "the variances"
    more = f" and {len(block) - _SHOWN} more" if len(block) > _SHOWN else ""
    return (
        f"No X meets the hard rows: fixed keeps all entries of {', '.join(names)}{more}, and with {diagonal} "
        f"this block has the eigenvalue {least:.3g}, below {t:g}. Fix fewer of its entries."
    )


@dataclass(frozen=True)
class Triple:
    """Two entries that force a third one beyond its upper bound.

    Parameters
    ----------
    i, j, k : int
        The entries are ``(i, k)``, ``(k, j)`` and, the third one, ``(i, j)``.
    least : float
        The value that entry ``(i, j)`` has at least.
    from_below : bool
        Whether the two entries force it by their lower bounds; otherwise by their upper ones.
    """

    i: int
    j: int
    k: int
    least: float
    from_below: bool


def impossible_triple(lower: Array, upper: Array) -> Triple | None:
    """Return the three entries of a correlation matrix that are furthest from possible; None without any.

    Entries are cosines of angles, and the angles of three vectors meet the inequalities of triangles and add
    up to at most ``2 pi``. For three entries no other condition is needed.

    Parameters
    ----------
    lower, upper : array of shape (n, n), symmetric, from -1 to 1
    """
    least, largest = np.arccos(np.clip(upper, -1, 1)), np.arccos(np.clip(lower, -1, 1))
    np.fill_diagonal(least, 0.0)
    np.fill_diagonal(largest, np.inf)
    found, excess = None, np.sqrt(_ROUND_OFF)
    for k in range(len(lower)):
        below = least - (largest[:, [k]] + largest[[k], :])
        around = least + (least[:, [k]] + least[[k], :]) - 2 * np.pi
        around[k] = around[:, k] = -np.inf
        np.fill_diagonal(around, -np.inf)
        for from_below, own in ((True, below), (False, around)):
            if own.max() > excess:
                i, j = (int(a) for a in np.unravel_index(int(own.argmax()), own.shape))
                ends = largest if from_below else least
                found = Triple(i, j, k, float(np.cos(ends[i, k] + ends[k, j])), from_below)
                excess = float(own.max())
    return found


def _triple_reason(request: Request) -> str | None:
    """Return the reason that three entries contradict each other."""
    rows = (request.fixed, request.bounded)
    touched = np.unique(np.concatenate([part for own in rows for part in (own.i, own.j)]))
    if not 3 <= len(touched) <= _LARGEST_TRIPLES:
        return None
    # (X - Diag(t)) / (1 - t) is a correlation matrix, too.
    root = np.sqrt(np.broadcast_to(1 - request.t, request.n))[touched]
    size = np.outer(root, root)
    lower, upper = -size, size.copy()
    for own in rows:
        i, j = np.searchsorted(touched, own.i), np.searchsorted(touched, own.j)
        lower[i, j] = lower[j, i] = np.maximum(own.lo, lower[i, j])
        upper[i, j] = upper[j, i] = np.minimum(own.hi, upper[i, j])
    triple = impossible_triple(lower / size, upper / size)
    if triple is None:
        return None
    unit = 1.0 if request.scale is None else np.outer(request.scale, request.scale)[np.ix_(touched, touched)]
    return _text(triple, touched, lower * unit, upper * unit, size * unit, request)


def _text(
    triple: Triple, touched: IntArray, lower: Array, upper: Array, size: Array, request: Request
) -> str:
    i, j, k = triple.i, triple.j, triple.k
    word, ends = ("at least", lower) if triple.from_below else ("at most", upper)

    def pair(a: int, b: int) -> str:
        first, second = sorted((int(touched[a]), int(touched[b])))
        return f"({_name(request.labels, first)}, {_name(request.labels, second)})"

    def entry(a: int, b: int) -> str:
        fixed = lower[a, b] == upper[a, b]
        return f"{pair(a, b)} {'fixed at' if fixed else word} {ends[a, b]:.4g}"

    floor = f" with min_eigenvalue {request.floor:g}" if request.floor else ""
    side = "it is fixed at" if lower[i, j] == upper[i, j] else "its upper bound is"
    return (
        f"No X meets the hard rows: entries {entry(i, k)} and {entry(k, j)} force entry {pair(i, j)} to be "
        f"at least {size[i, j] * triple.least:.4g}{floor}, but {side} {upper[i, j]:.4g}. Loosen one of "
        "these."
    )


def _name(labels: Any, k: int) -> str:
    return str(k if labels is None else labels[k])


def least_block(pattern: Mask, values: Array) -> tuple[IntArray, float]:
    """Return the given block with the least smallest eigenvalue, and this eigenvalue; infinity without any.

    Parameters
    ----------
    pattern : boolean array of shape (n, n), symmetric
        Mask of the given entries off the diagonal.
    values : array of shape (n, n), symmetric
        Valid on the diagonal and at the given entries.
    """
    blocks = list(cliques(pattern))
    least = [float(np.linalg.eigvalsh(values[np.ix_(block, block)])[0]) for block in blocks]
    return min(zip(blocks, least, strict=True), key=lambda pair: pair[1], default=(np.arange(0), np.inf))


def cliques(pattern: Mask) -> Iterator[IntArray]:
    """Yield sets of indices whose entries are all given.

    Vertices whose neighbors are all adjacent to each other are removed one by one (Fulkerson and Gross 1965,
    Incidence matrices and interval graphs). This finds every maximal block of a chordal pattern, such as
    diagonal blocks and bands. In other patterns it stops at the first cycles without chord.
    """
    near = pattern | np.eye(len(pattern), dtype=bool)
    left = np.ones(len(pattern), dtype=bool)
    found = True
    while found:
        found = False
        for i in np.flatnonzero(left):
            clique = np.flatnonzero(near[i] & left)
            if left[i] and near[np.ix_(clique, clique)].all():
                found = True
                yield clique
                left[clique] = near[np.ix_(clique, left)].sum(axis=1) > len(clique)


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
        cells = self._cells(_CHANGES_SHOWN)
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
    bounded ones. Such a sum changes few entries. `given` are the user's arguments of the function `solve`.
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
