"""Nearest correlation and psd matrices of a stack, as problems of the stacked method.

An argument of :func:`bregopt.nearest_correlation` is shared by the matrices, or there is one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from bregopt.arrays import (
    LARGEST_SPREAD,
    SMALLEST,
    Array,
    IntArray,
    Mask,
    finite_array,
    is_mapping,
    positive_integer,
    rectangular,
)
from bregopt.divergences import Divergence, LogDet
from bregopt.errors import DataWarning, warn_caller
from bregopt.io.matrices import Labels, aligned, is_pandas, is_stack, labels_of
from bregopt.io.stacks import present_stack, read_stack
from bregopt.linalg import is_definite
from bregopt.problems.arguments import (
    bounded_entries,
    divergence_class,
    entry_bounds,
    fixed_pairs,
    largest_change,
    row_and_entry_weights,
)
from bregopt.problems.correlation.answer import CorrelationSolution, reportable, with_rows_left_out
from bregopt.problems.correlation.covariance import (
    covariance_task,
    measured_units,
    units_message,
)
from bregopt.problems.correlation.nearest import CorrelationRows
from bregopt.problems.correlation.request import (
    by_pairs,
    check_missing,
    condition_bound,
    diagonal_message,
    divergence_or_norm,
    least_eigenvalue,
    left_out_message,
    of_present,
    read_request,
)
from bregopt.problems.nearest_psd import warn_of_units
from bregopt.problems.solutions import Solutions, Warnings
from bregopt.problems.stacks import Slice, StackedProblem, solve_stack
from bregopt.program.stacks import STACKED, EntryStack
from bregopt.records import dataclass, replace
from bregopt.routes.derivatives.stacks import Congruence
from bregopt.routes.solution import Solution

_SHARED = ("groups", "missing", "max_rank", "suggest")  # arguments that no matrix has for itself
_CHECKS: Mapping[str, Callable[[Any], Any]] = {  # of shared values; they need no matrix
    "min_eigenvalue": least_eigenvalue,
    "max_condition": condition_bound,
    "max_rank": lambda value: positive_integer(value, "max_rank"),
}
_MOST_FIXED = 5_000  # fixed entries beyond which a stack takes no less time than a loop
_KEYS_SHOWN = 3  # in messages


def nearest_correlations(
    single: Callable[..., Any],
    A: Any,
    divergence: str,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Solutions:
    """Return the nearest correlation matrices; `given` are shared arguments, or one for each matrix."""
    divergence_or_norm(divergence)  # it refuses an unknown one
    check_missing(given["missing"])
    matrices = present_stack(read_stack(A, "A"))
    arguments = {name: _argument(name, value, matrices) for name, value in given.items()}
    for name, check in _CHECKS.items():
        if arguments[name].shared is not None:
            check(arguments[name].shared)
    return solve_stack(_Correlations(single, matrices, divergence, options, arguments))


def nearest_of_rows(
    single: Callable[..., Any],
    A: Any,
    rows: Mask,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    name: str = "A",
) -> CorrelationSolution:
    """Return the answer for the rows of one matrix that hold data; the other rows of ``X`` are NaN.

    The arguments of `single` in `given` are restricted to these rows, as those of a stack are.
    """
    matrices = present_stack(read_stack({0: A}, name))
    own = {key: _of_present(value, key, matrices, 0) for key, value in given.items()}
    solution: CorrelationSolution = single(matrices.one(0), **own, **options)
    labels = labels_of(A, name)
    names = np.flatnonzero(~rows).tolist() if labels is None else labels[~rows].tolist()
    return with_rows_left_out(solution, rows, names, labels, name)


def nearest_covariances(
    single: Callable[..., Any], S: Any, given: Mapping[str, Any], options: Mapping[str, Any]
) -> Solutions:
    """Return the nearest covariance matrices; all of them measure covariances, or all correlations.

    The matrices share the arguments in `given`.
    """
    divergence = given["divergence"]
    kind, condition = divergence_or_norm(divergence), condition_bound(given["max_condition"])
    floor = float(finite_array(given["min_eigenvalue"], "min_eigenvalue", ndim=0))
    matrices = present_stack(read_stack(S, "S"))
    ratio = max((_spread(group.values) for group in matrices.groups), default=1.0)
    measured = measured_units(given["units"], ratio, kind, floor, condition)
    own = {**given, "units": measured}
    arguments = {name: _Argument(name, matrices, own[name]) for name in own if name != "divergence"}
    problem = _Covariances(single, matrices, divergence, options, arguments)
    solutions = solve_stack(problem)
    if given["units"] == "auto" and kind is not LogDet and ratio > LARGEST_SPREAD:
        problem.warn_of_units(solutions, measured)
    return solutions


def _spread(values: Array) -> float:
    """Return the largest ratio of standard deviations in one of some matrices; one where there is none."""
    variances = values.diagonal(axis1=1, axis2=2)
    usual = np.isfinite(variances).all(axis=1) & (variances > 0).all(axis=1)
    if variances.shape[1] == 0 or not usual.any():
        return 1.0
    own = np.sqrt(variances[usual])
    return float((own.max(axis=1) / own.min(axis=1)).max())


@dataclass(frozen=True, eq=False)
class _Argument:
    """One argument of a stack: a value that all matrices share, or one for each.

    Parameters
    ----------
    name : str
    matrices : MatrixStack
        Those of `A`.
    shared : object
        The value that all matrices share.
    own : MatrixStack, array or None
        Values of the matrices; None if they share one.
    places : list of int
        The places of the matrices among those.
    """

    name: str
    matrices: Any
    shared: Any = None
    own: Any = None
    places: Sequence[int] = ()

    def of(self, k: int) -> Any:
        """Return the value for the matrix in position `k`, of the rows that are present there."""
        if self.own is None:
            value = self.shared
        else:
            place = self.places[k]
            value = self.own[place] if isinstance(self.own, np.ndarray) else self.own.one(place)
        return _of_present(value, self.name, self.matrices, k)

    def part(self, matrices: Any, a: int, b: int) -> _Argument:
        """Return the argument of the matrices in the positions from `a` to ``b - 1``."""
        if self.own is None:
            return replace(self, matrices=matrices)
        places = self.places[a:b]
        if isinstance(self.own, np.ndarray):
            return replace(self, matrices=matrices, own=self.own[places], places=range(b - a))
        first, last = min(places), max(places) + 1
        return replace(
            self,
            matrices=matrices,
            own=self.own.part(first, last),
            places=[place - first for place in places],
        )

    def read(
        self, positions: IntArray, labels: Sequence[Labels], reader: Callable[[Any], Any]
    ) -> tuple[list[Any], Mask]:
        """Return the values as `reader` makes them, one if it is shared, and a mask of the refused ones.

        The matrices in these positions have the same labels. A refused value is None. Of the first accepted
        one there is a copy in its place, such that arrays of the values can be stacked.

        Raises
        ------
        TypeError, ValueError
            If the shared value is bad.
        """
        if self.own is None:
            shared = self.of(int(positions[0]))
            own = labels_of(shared, self.name)
            other = [own is not None and each is not None and not own.equals(each) for each in labels]
            return [reader(shared)], np.array(other, dtype=bool)
        values: list[Any] = []
        for k, each in zip(positions, labels, strict=True):
            try:
                values.append(reader(aligned(self.of(int(k)), each, self.name)))
            except (TypeError, ValueError):
                values.append(None)
        refused = np.array([value is None for value in values])
        usual = next((value for value in values if value is not None), reader(None))
        return [usual if value is None else value for value in values], refused


def _argument(name: str, value: Any, matrices: Any) -> _Argument:
    """Return an argument, with a value for each matrix or for all.

    A dict, a frame with an index of two levels and an array of shape ``(B, n, n)`` have one for each. So
    have an array of shape ``(B,)`` and a Series, where no matrix has a vector. Bounds by pairs and groups are
    shared.

    Raises
    ------
    ValueError
        If it is of other matrices than those of the stack.
    """
    of_pairs = by_pairs(value) and not value.keys() <= set(matrices.keys)
    if name in _SHARED or of_pairs or value is None or isinstance(value, str):
        return _Argument(name, matrices, value)
    if is_stack(value):
        stack = read_stack(value, name, real=False)
        return _Argument(name, matrices, own=stack, places=_places(stack.keys, matrices.keys, name))
    if name not in ("weights", "fixed") and rectangular(value, name).ndim == 1:
        series = is_pandas(value, "Series")
        places = _places(tuple(value.index) if series else range(len(value)), matrices.keys, name, series)
        return _Argument(name, matrices, own=np.asarray(value), places=places)
    return _Argument(name, matrices, value)


def _stacks(divergence: str, arguments: Mapping[str, _Argument]) -> bool:
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
    kind, matrices = divergence_class(divergence), read_stack(A, "A")
    solutions = solve_stack(_Semidefinite(single, matrices, divergence, options, constraints))
    if kind.quadratic and any(_spread(group.values) > LARGEST_SPREAD for group in matrices.groups):
        warn_of_units(
            (matrices.one(k), X, matrices.labels(k), f" in matrix {key!r}")
            for k, (key, X) in enumerate(zip(solutions.keys, solutions._matrices, strict=True))
            if X is not None
        )
    return solutions


@dataclass(frozen=True, eq=False)
class _Repairs(StackedProblem):
    """Nearest correlation or covariance matrices; rows without data are left out."""

    arguments: Mapping[str, _Argument]
    name: ClassVar[str]  # of the matrices

    def part(self, a: int, b: int) -> Self:
        part = super().part(a, b)
        own = {name: each.part(part.matrices, a, b) for name, each in self.arguments.items()}
        return replace(part, arguments=own)

    def remark(self, notes: Warnings) -> None:
        for k, rows in self.matrices.present.items():
            if rows.any():
                notes.add(k, left_out_message(self.matrices.absent(k), self.name), DataWarning)

    def settings(self) -> dict[str, Any]:
        given = {name: (each.shared, each.own) for name, each in self.arguments.items()}
        return {**super().settings(), **given}

    def alone(self, k: int, start: Solution | None) -> Solution:
        own, options = self.given(k), self.options
        if start is not None and own["max_rank"] is None:
            options = {**options, "warm_start": start}
        solution: CorrelationSolution = self.single(self.matrices.one(k), self.divergence, **own, **options)
        return replace(solution, left_out=tuple(self.matrices.absent(k)))

    def given(self, k: int) -> dict[str, Any]:
        """Return the arguments of the matrix in position `k`."""
        own = {name: each.of(k) for name, each in self.arguments.items()}
        own["min_eigenvalue"] = 0.0 if own["min_eigenvalue"] is None else own["min_eigenvalue"]
        return own


@dataclass(frozen=True, eq=False)
class _Correlations(_Repairs):
    """Nearest correlation matrices."""

    name: ClassVar[str] = "A"

    def slice(self, A: Array, positions: IntArray, notes: Warnings) -> Slice | None:
        """Return the problems in terms of ``Y = S (X - t I) S``, as in the single solve."""
        if not _stacks(self.divergence, self.arguments):
            return None
        kind = divergence_class(self.divergence)
        labels = [self.matrices.labels(k) for k in positions.tolist()]
        rows = _stack_rows(A, positions, labels, kind, self.arguments)
        many = int(rows.fixed.any(axis=0).sum()) > _MOST_FIXED
        places = np.flatnonzero(~rows.refused & (not many))
        places = places[_accepted(A[places], kind)]
        rows = rows[places]
        if kind.quadratic:
            for k, own in zip(positions[places], A[places], strict=True):
                message = diagonal_message(own, labels[0])
                if message is not None:
                    notes.add(int(k), message, DataWarning)

        def restored(solved: IntArray, Y: Array, y: Array) -> tuple[Array, Sequence[Any]]:
            own = rows[solved]
            return own.restored(Y), own.duals(y)

        return Slice(rows.problem(A[places], kind.name), places, restored)

    def finished(self, solution: Solution, k: int) -> Solution:
        if solution.X is None:
            return reportable(solution)
        request = read_request(self.matrices.one(k), self.divergence, self.given(k))
        restated = Congruence(request.s, request.n, request.fixed.i, request.fixed.j)
        solution = replace(solution, _units=request.units, _restated=restated)
        return replace(reportable(solution, request=request), left_out=tuple(self.matrices.absent(k)))


@dataclass(frozen=True, eq=False)
class _Covariances(_Repairs):
    """Nearest covariance matrices with the variances of the given ones."""

    name: ClassVar[str] = "S"

    def slice(self, A: Array, positions: IntArray, notes: Warnings) -> Slice | None:
        own = self.given(int(positions[0]))
        of_one = ("fixed", "lower", "upper", "weights", "max_condition")
        kind = divergence_or_norm(self.divergence)
        if kind is None or any(own[name] is not None for name in of_one):
            return None
        floor, n = float(own["min_eigenvalue"]), A.shape[1]
        if floor < 0 or (floor > 0 and not kind.quadratic):
            return None
        variances = A.diagonal(axis1=1, axis2=2)
        places = np.flatnonzero((variances > max(floor, SMALLEST)).all(axis=1))
        variances, S = variances[places], A[places]
        scale = np.sqrt(variances)
        C = S / (scale[:, :, None] * scale[:, None, :])
        C[:, np.arange(n), np.arange(n)] = 1.0
        definite = _accepted(C, kind)
        places, variances, scale, C = places[definite], variances[definite], scale[definite], C[definite]
        s = scale if own["units"] == "covariance" else np.ones(scale.shape)
        rows = replace(CorrelationRows.of_diagonals(len(C), n), t=floor / variances, s=s)

        def restored(solved: IntArray, Y: Array, y: Array) -> tuple[Array, Sequence[Any]]:
            part, d, k = rows[solved], scale[solved], np.arange(n)
            correlations = part.restored(Y)
            X = correlations * d[:, :, None] * d[:, None, :]
            X[:, k, k] = np.where(correlations[:, k, k] == 1, variances[solved], X[:, k, k])
            duals = [(dual / v,) for (dual,), v in zip(part.duals(y), variances[solved], strict=True)]
            return X, duals

        return Slice(rows.problem(C, kind.name), places, restored, variances.max(axis=1, initial=0.0))

    def finished(self, solution: Solution, k: int) -> Solution:
        if solution.X is None:
            return reportable(solution)
        task = covariance_task(self.matrices.one(k), {**self.given(k), "divergence": self.divergence})
        answer = replace(reportable(solution, request=task.request), **task.restated(solution))
        return replace(answer, left_out=tuple(self.matrices.absent(k)))

    def alone(self, k: int, start: Solution | None) -> Solution:
        return super().alone(k, None)

    def warn_of_units(self, solutions: Solutions, measured: str) -> None:
        """Warn of unlike units, with the largest change of a correlation in all answers."""
        worst, at = (0.0, 0, 0), 0
        for k, X in enumerate(solutions._matrices):
            if X is not None:
                S = np.asarray(self.matrices.one(k), dtype=np.float64)
                change = largest_change(S, X, np.sqrt(S.diagonal()))
                worst, at = max((worst, at), (change, k))
        scale = np.sqrt(np.asarray(self.matrices.one(at), dtype=np.float64).diagonal())
        labels = self.matrices.labels(at)
        warn_caller(units_message(scale, labels, measured, worst, solutions.keys[at]), DataWarning)


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

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "constraints": self.constraints}

    def alone(self, k: int, start: Solution | None) -> Solution:
        options = self.options if start is None else {**self.options, "warm_start": start}
        solution: Solution = self.single(self.matrices.one(k), self.constraints, self.divergence, **options)
        return solution


def _accepted(A: Array, kind: type[Divergence]) -> IntArray:
    """Return the indices of the matrices that the divergence takes."""
    if not kind.definite_start:
        return np.arange(len(A))
    return np.flatnonzero([is_definite(own) for own in A])


def _of_present(value: Any, name: str, matrices: Any, k: int) -> Any:
    """Return the part of a value for the rows of one matrix.

    A frame or Series of more labels, bounds by pairs and groups by labels are restricted to the labels of the
    matrix. An array for all rows of a stack is restricted to those that are not missing.
    """
    if value is None:
        return None
    labels, present = matrices.labels(k), matrices.present.get(k)
    own = labels_of(value, name)
    if own is not None and labels is not None:
        if len(own) == len(labels) or not labels.isin(own).all():
            return value  # other labels are refused later
        return value.loc[labels] if is_pandas(value, "Series") else value.loc[labels, labels]
    if is_mapping(value):
        return _by_label(value, name, matrices, labels, present)
    if name == "fixed" and labels is not None and rectangular(value, name).dtype.kind in "OUS":
        named, absent = rectangular(value, name), set(matrices.all_labels) - set(labels)
        if named.ndim == 0:
            return value  # one name is refused later
        known = [label not in absent for label in named.ravel().tolist()]  # other names are refused later
        there = np.array(known, dtype=bool).reshape(named.shape)
        return named[there if named.ndim == 1 else there.all(axis=1)]
    if present is None or rectangular(value, name).ndim == 0:
        return value
    array, rows = np.asarray(value), np.flatnonzero(present)
    if name == "fixed" and array.dtype.kind in "iu":
        if (array >= len(present)).any() or (array < -len(present)).any():
            return value  # other numbers are refused later
        there = present[array]
        return (np.cumsum(present) - 1)[array[there if array.ndim == 1 else there.all(axis=1)]]
    if set(array.shape) != {len(present)}:
        return value  # its shape is refused later
    return array[rows] if array.ndim == 1 else array[np.ix_(rows, rows)]


def _by_label(
    value: Mapping[Any, Any], name: str, matrices: Any, labels: Labels, present: Mask | None
) -> Mapping[Any, Any]:
    """Return the bounds by pairs, or the groups, of the labels of one matrix."""
    everything = matrices.all_labels
    if labels is not None:
        own = set(labels)
        places = {label: label if label in own else None for label in everything}
    elif present is not None:
        places = dict.fromkeys(range(len(present)))
        places |= {int(k): new for new, k in enumerate(np.flatnonzero(present))}
    else:
        return value
    if name != "groups":
        return of_present(value, places)
    new = {places.get(label, label): group for label, group in value.items()}
    return {label: group for label, group in new.items() if label is not None}


def _places(found: Sequence[Hashable], keys: Sequence[Hashable], name: str, named: bool = True) -> list[int]:
    """Return the places of the keys among those found; positions if those found have no names."""
    named = named and not isinstance(found, range)
    at = {key: k for k, key in enumerate(found)} if named else {key: k for k, key in enumerate(keys)}
    lacking, spare = [key for key in keys if key not in at], len(found) - len(keys)
    if lacking or spare:
        absent = f"; it lacks {', '.join(map(repr, lacking[:_KEYS_SHOWN]))}" if lacking else ""
        raise ValueError(f"{name} has values for {len(found)} matrices, A has {len(keys)}{absent}")
    return [at[key] for key in keys]


def _stack_rows(
    A: Array,
    positions: IntArray,
    labels: Sequence[Labels],
    kind: type[Divergence],
    arguments: Mapping[str, _Argument],
) -> CorrelationRows:
    """Return the rows for matrices of one order, an array of shape ``(b, n, n)``.

    Raises
    ------
    TypeError, ValueError
        If a shared argument is bad.
    """
    n, b = A.shape[1], len(A)

    def row_weights(value: Any) -> Array:
        """Return the roots of the weights of rows, zero if the weights are those of entries."""
        s, H = row_and_entry_weights(value, n, kind)
        return s if H is None else np.zeros(n)

    def fixed_mask(value: Any) -> Mask:
        mask = np.zeros((n, n), dtype=bool)
        mask[fixed_pairs(value, n, labels[0])] = True
        return mask

    readers: dict[str, Callable[[Any], Any]] = {
        "min_eigenvalue": lambda value: np.array(least_eigenvalue(0.0 if value is None else value)),
        "weights": row_weights,
        "fixed": fixed_mask,
        "lower": lambda value: np.broadcast_to(entry_bounds(value, -1.0, "lower", n), (n, n)),
        "upper": lambda value: np.broadcast_to(entry_bounds(value, 1.0, "upper", n), (n, n)),
    }
    if all(arguments[name].own is None for name in ("min_eigenvalue", "fixed", "lower", "upper")):
        # Bounds that cross, or that no entry can reach, are refused.
        lower, upper, fixed = (arguments[name].of(int(positions[0])) for name in ("lower", "upper", "fixed"))
        least = least_eigenvalue(arguments["min_eigenvalue"].shared)
        bounded_entries(lower, upper, fixed_pairs(fixed, n, labels[0]), n, 1 - least)
    refused, read = np.zeros(b, dtype=bool), {}
    for name, reader in readers.items():
        values, bad = arguments[name].read(positions, labels, reader)
        read[name], refused = np.stack(values), refused | bad
    t, s = np.broadcast_to(read["min_eigenvalue"], b), np.broadcast_to(read["weights"], (b, n))
    limit = 1 - t[:, None]
    above = np.triu(np.ones((n, n), dtype=bool), 1)
    lower, upper, mask = read["lower"], read["upper"], read["fixed"] & above
    acting = ((lower > -limit[:, :, None]) | (upper < limit[:, :, None])) & above & ~mask
    i, j = np.nonzero(mask.any(axis=0) | acting.any(axis=0))
    lo, hi = (np.broadcast_to(end[:, i, j], (b, len(i))) for end in (lower, upper))
    fixed, bounded = (np.broadcast_to(which[:, i, j], (b, len(i))) for which in (mask, acting))
    own = A[:, i, j]
    wrong = (fixed & ~(np.abs(own) <= limit)) | (bounded & ((lo > hi) | (lo > limit) | (hi < -limit)))
    lo = np.where(fixed, own, np.where(bounded, lo, -np.inf))
    hi = np.where(fixed, own, np.where(bounded, hi, np.inf))
    refused |= wrong.any(axis=1) | (s == 0).any(axis=1)
    floors = np.broadcast_to(t[:, None], (b, n))
    return CorrelationRows(floors, s, i, j, lo, hi, fixed, bounded, refused)
