"""Nearest correlation and psd matrices of a stack, as problems of the stacked method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from bregopt.arrays import Array, IntArray, positive_integer
from bregopt.divergences import Divergence
from bregopt.divergences.stacks import STACKED
from bregopt.errors import DataWarning
from bregopt.io.stacks import present_stack, read_stack
from bregopt.linalg import is_definite
from bregopt.problems.correlation.answer import Asked, reportable
from bregopt.problems.correlation.request import (
    by_pairs,
    check_missing,
    condition_bound,
    divergence_or_norm,
    read_request,
)
from bregopt.problems.correlation.solve import units_of
from bregopt.problems.nearest_arguments import covariance_message, least_eigenvalue
from bregopt.problems.objective import divergence_class
from bregopt.problems.solutions import Solutions
from bregopt.problems.stack_arguments import Argument, argument, stack_rows
from bregopt.problems.stack_part import Slice, StackedProblem
from bregopt.problems.stack_record import Warnings
from bregopt.problems.stacks import solve_stack
from bregopt.program.entry_stack import EntryStack
from bregopt.records import dataclass, replace
from bregopt.routes.derivatives.restated import Congruence
from bregopt.routes.solution import Solution

__all__ = ["nearest_correlations", "nearest_psds"]

_SHARED = ("groups", "missing", "max_rank", "suggest")  # arguments that no matrix has for itself
_CHECKS: Mapping[str, Callable[[Any], Any]] = {  # of shared values; they need no matrix
    "min_eigenvalue": least_eigenvalue,
    "max_condition": condition_bound,
    "max_rank": lambda value: positive_integer(value, "max_rank"),
}
_MOST_FIXED = 5_000  # fixed entries beyond which a stack takes no less time than a loop


def nearest_correlations(
    single: Callable[..., Any],
    A: Any,
    divergence: str,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Solutions:
    """Return the nearest correlation matrices.

    Parameters
    ----------
    single : callable
        :func:`bregopt.nearest_correlation`.
    A : stack of matrices
    divergence : str
    given : mapping
        Its arguments that may be shared or one for each matrix.
    options : dict
    """
    divergence_or_norm(divergence)  # it refuses an unknown one
    check_missing(given["missing"])
    matrices = present_stack(read_stack(A, "A"))
    arguments = {name: _argument(name, value, matrices) for name, value in given.items()}
    for name, check in _CHECKS.items():
        if arguments[name].shared is not None:
            check(arguments[name].shared)
    return solve_stack(_Correlations(single, matrices, divergence, options, arguments))


def _argument(name: str, value: Any, matrices: Any) -> Argument:
    """Return an argument; bounds by pairs and groups are shared by all matrices."""
    if name in _SHARED or (by_pairs(value) and not value.keys() <= set(matrices.keys)):
        return Argument(name, matrices, value)
    return argument(value, name, matrices, name not in ("weights", "fixed"))


def _stacks(divergence: str, arguments: Mapping[str, Argument]) -> bool:
    """Whether the stacked method has the problem: a divergence, with bounds on entries only."""
    kind, floor = divergence_or_norm(divergence), arguments["min_eigenvalue"]
    if kind is None:
        return False
    ends = [arguments[name].shared for name in ("lower", "upper")]
    of_one = [arguments[name] for name in ("max_condition", "groups", "max_rank")]
    plain = all(each.own is None and each.shared is None for each in of_one)
    shifts = kind.quadratic or (floor.own is None and not np.any(floor.shared))
    return plain and shifts and not any(map(by_pairs, ends))


def nearest_psds(
    single: Callable[..., Any],
    A: Any,
    constraints: Sequence[Any],
    divergence: str,
    options: Mapping[str, Any],
) -> Solutions:
    """Return the nearest positive semidefinite matrices; with constraints they are solved one by one."""
    divergence_class(divergence)
    return solve_stack(_Semidefinite(single, read_stack(A, "A"), divergence, options, constraints))


@dataclass(frozen=True, eq=False)
class _Correlations(StackedProblem):
    """Nearest correlation matrices."""

    arguments: Mapping[str, Argument]

    def part(self, a: int, b: int) -> Self:
        part = super().part(a, b)
        own = {name: each.part(part.matrices, a, b) for name, each in self.arguments.items()}
        return replace(part, arguments=own)

    def slice(self, A: Array, positions: IntArray, notes: Warnings) -> Slice | None:
        if not _stacks(self.divergence, self.arguments):
            return None
        kind = divergence_class(self.divergence)
        return _correlations(A, positions, self.matrices, kind, self.arguments, notes)

    def finished(self, solution: Solution, k: int) -> Solution:
        if solution.X is None:
            return reportable(solution, None)
        own = self._arguments_of(k)
        request = read_request(self.matrices.one(k), self.divergence, own)
        restated = Congruence(request.s, request.n, request.fixed.i, request.fixed.j)
        solution = replace(solution, _units=units_of(request), _restated=restated)
        return reportable(solution, Asked.of(request), request=request)

    def alone(self, k: int, start: Solution | None) -> Solution:
        own, options = self._arguments_of(k), self.options
        if start is not None and own["max_rank"] is None:
            options = {**options, "warm_start": start}
        solution: Solution = self.single(self.matrices.one(k), self.divergence, **own, **options)
        return solution

    def _arguments_of(self, k: int) -> dict[str, Any]:
        own = {name: each.of(k) for name, each in self.arguments.items()}
        own["min_eigenvalue"] = 0.0 if own["min_eigenvalue"] is None else own["min_eigenvalue"]
        return own


@dataclass(frozen=True, eq=False)
class _Semidefinite(StackedProblem):
    """Nearest positive semidefinite matrices."""

    constraints: Sequence[Any]

    def slice(self, A: Array, positions: IntArray, notes: Warnings) -> Slice | None:
        if self.constraints:
            return None
        places = _accepted(A, divergence_class(self.divergence))
        none, bounds = np.zeros(0, dtype=np.intp), np.zeros((len(places), 0))
        stack = EntryStack(STACKED[self.divergence](A[places]), none, none, bounds, bounds)
        return Slice(stack, places, lambda solved, X, y: (X, [()] * len(solved)))

    def alone(self, k: int, start: Solution | None) -> Solution:
        options = self.options if start is None else {**self.options, "warm_start": start}
        solution: Solution = self.single(self.matrices.one(k), self.constraints, self.divergence, **options)
        return solution


def _accepted(A: Array, kind: type[Divergence]) -> IntArray:
    """Return the indices of the matrices that the divergence takes."""
    if not kind.definite_start:
        return np.arange(len(A))
    return np.flatnonzero([is_definite(own) for own in A])


def _correlations(
    A: Array,
    positions: IntArray,
    matrices: Any,
    kind: type[Divergence],
    arguments: Mapping[str, Argument],
    notes: Warnings,
) -> Slice:
    """Return the problems in terms of ``Y = S (X - t I) S``, as in the single solve."""
    labels = [matrices.labels(k) for k in positions.tolist()]
    rows = stack_rows(A, positions, labels, kind, arguments)
    many = int(rows.fixed.any(axis=0).sum()) > _MOST_FIXED
    places = np.flatnonzero(~rows.refused & (not many))
    places = places[_accepted(A[places], kind)]
    rows = rows[places]
    if kind.quadratic:
        for k, diagonal in zip(positions[places], A[places].diagonal(axis1=1, axis2=2), strict=True):
            message = covariance_message(diagonal, labels[0])
            if message is not None:
                notes.add(int(k), message, DataWarning)

    def restored(solved: IntArray, Y: Array, y: Array) -> tuple[Array, Sequence[Any]]:
        own = rows[solved]
        return own.restored(Y), own.duals(y)

    return Slice(rows.problem(A[places], kind.name), places, restored)
