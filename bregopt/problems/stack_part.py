"""One part of a stack: slices that fit the cache, then single solves of the problems left."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, Array, IntArray, Mask
from bregopt.clock import CutShort, Ending
from bregopt.divergences.stacks import STACKED
from bregopt.errors import SolverError
from bregopt.io.stacks import Group
from bregopt.problems.arguments import has_method, stack_answer, stack_settings
from bregopt.problems.solutions import ERROR
from bregopt.problems.stack_record import Record, Warnings
from bregopt.program.entry_stack import EntryStack
from bregopt.records import dataclass, replace
from bregopt.routes.solution import Solution, Status
from bregopt.threads import threads_for

__all__ = [
    "Part",
    "Slice",
    "StackedProblem",
    "solve_part",
    "width_of",
]

# Entries of the matrices of a slice. Its arrays of 400 KB stay in the cache (benchmarks/many_stacks.py).
_SLICE = 50_000
_ROUND_OFF = 1e-10  # asymmetry, as a fraction of the largest entry, up to which entries are averaged


@dataclass(frozen=True, eq=False)
class Slice:
    """Problems of one order, and the way back from their answers.

    Parameters
    ----------
    stack : EntryStack
    places : int array of shape (b,)
        Places of its problems in the slice. Those with bad arguments are left out.
    restored : callable
        Takes the indices of some problems, their matrices and their multipliers; returns the matrices and
        the duals of the user's problems.
    """

    stack: EntryStack
    places: IntArray
    restored: Callable[[IntArray, Array, Array], tuple[Array, Sequence[Any]]]


@dataclass(frozen=True, eq=False)
class StackedProblem(ABC):
    """One problem for each matrix of a stack; it pickles, for other processes.

    Parameters
    ----------
    single : callable
        The function that solves one of them.
    matrices : MatrixStack
    divergence : str
    options : dict
        Of :meth:`bregopt.Problem.solve`.
    """

    single: Callable[..., Any]
    matrices: Any
    divergence: str
    options: Mapping[str, Any]

    def part(self, a: int, b: int) -> Self:
        """Return the problems in the positions from `a` to ``b - 1``."""
        return replace(self, matrices=self.matrices.part(a, b))

    @abstractmethod
    def slice(self, A: Array, positions: IntArray, notes: Warnings) -> Slice | None:
        """Return problems of one order and the same labels; None if there is no stacked method for them."""

    def finished(self, solution: Solution, k: int) -> Solution:
        """Return the answer to the problem in position `k` as its single solve would return it."""
        return solution

    @abstractmethod
    def alone(self, k: int, start: Solution | None) -> Solution:
        """Solve the problem in position `k`, from the answer to another one if there is a `start`."""


@dataclass(frozen=True, eq=False)
class Part:
    """The answers of a part, its warnings, and why it ended early."""

    record: Record
    notes: Warnings
    ending: Ending | None


def width_of(order: int) -> int:
    """Return the number of problems of a slice."""
    return max(1, _SLICE // max(order, 1) ** 2)


def solve_part(problem: StackedProblem, seconds: float | None, chain: bool) -> Part:
    """Solve the problems of a part.

    Parameters
    ----------
    problem : StackedProblem
    seconds : float or None
        Limit on the time.
    chain : bool
        Start each problem from the answer to the one before.
    """
    record, notes = Record.empty(len(problem.matrices.keys)), Warnings()
    with clock.limited(seconds):
        try:
            if has_method(problem.divergence, problem.options):
                _solve_slices(problem, chain, record, notes)
            _solve_singly(problem, chain, record, notes)
        except CutShort as cut:
            return Part(record, notes, cut.ending)
    return Part(record, notes, None)


def _solve_slices(problem: StackedProblem, chain: bool, record: Record, notes: Warnings) -> None:
    """Solve the problems of orders for which the stacked method pays."""
    settings = stack_settings(problem.options)
    starts = _Starts(problem.matrices.order) if chain else None
    for group in problem.matrices.groups:
        n = group.values.shape[1]
        if not 0 < n <= STACKED[problem.divergence].largest_order:
            continue
        with threads_for(n):
            for own in _slices(group, chain):
                clock.checkpoint()
                begin = time.perf_counter()
                regular, A = _symmetric(group.values[own])
                at = group.positions[own][regular]
                part = problem.slice(A, at, notes) if len(at) else None
                if part is None:
                    continue
                chains = np.flatnonzero(regular)[part.places]
                start = None if starts is None else starts.of(chains, part.stack, group)
                answer = stack_answer(part.stack, settings, start)
                if answer is None or len(answer.solved) == 0:
                    continue
                if starts is not None:
                    starts.put(chains[answer.solved], part.stack, group, answer.y)
                X, duals = part.restored(answer.solved, answer.X, answer.y)
                each = (time.perf_counter() - begin) / len(at)
                record.store(at[part.places[answer.solved]], answer, X, duals, each, settings.tol)


def _slices(group: Group, chain: bool) -> Iterator[IntArray]:
    """Yield places in the group: those next to each other, or one of each chain."""
    count, width = len(group.positions), width_of(group.values.shape[1])
    length = -(-count // width)
    for k in range(length):
        yield np.arange(k, count, length) if chain else np.arange(k * width, min(count, (k + 1) * width))


class _Starts:
    """The multipliers of the last answer of each chain, between all labels of the stack."""

    def __init__(self, order: int) -> None:
        self._order = order
        self._last: dict[int, Array] = {}

    def of(self, chains: IntArray, stack: EntryStack, group: Group) -> Array | None:
        """Return the multipliers from which chains continue, shape (b, m); None if there are none yet."""
        if not self._last:
            return None
        newest = next(reversed(self._last.values()))
        rows = self._rows(group, stack.n)
        i, j = rows[stack.i], rows[stack.j]
        return np.stack([self._last.get(k, newest)[i, j] for k in chains.tolist()])

    def put(self, chains: IntArray, stack: EntryStack, group: Group, y: Array) -> None:
        """Keep the multipliers of answers."""
        rows = self._rows(group, stack.n)
        i, j = rows[stack.i], rows[stack.j]
        for k, own in zip(chains.tolist(), y, strict=True):
            whole = np.zeros((self._order, self._order))
            whole[i, j] = whole[j, i] = own
            self._last[k] = whole

    def _rows(self, group: Group, n: int) -> IntArray:
        return np.arange(n) if group.rows is None else group.rows


def _symmetric(A: Array) -> tuple[Mask, Array]:
    """Return the mask of finite and symmetric matrices of a usual magnitude, and these in a new array.

    The others are solved singly, which gives their errors and warnings.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(A).max(axis=(1, 2))
        skew = np.abs(A - np.swapaxes(A, 1, 2)).max(axis=(1, 2))
        regular = (largest <= LARGEST) & ((largest >= SMALLEST) | (largest == 0))
        regular &= skew <= _ROUND_OFF * largest
    own = A[regular]
    return regular, own if not skew[regular].any() else (own + np.swapaxes(own, 1, 2)) / 2


def _solve_singly(problem: StackedProblem, chain: bool, record: Record, notes: Warnings) -> None:
    """Solve the problems that have no answer yet, one by one; record errors as values."""
    start: Solution | None = None
    for k in record.open:
        clock.checkpoint()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                solution = _alone(problem, k, start)
                record.put(k, solution)
                start = solution if chain and solution.status == Status.OPTIMAL else None
            except (TypeError, ValueError, SolverError) as error:
                record.status[k], record.errors[k] = ERROR, error
        for warning in caught:
            notes.add(k, str(warning.message), warning.category)


def _alone(problem: StackedProblem, k: int, start: Solution | None) -> Solution:
    """Return the answer to one problem, from a cold start where that of another problem does not fit."""
    if start is not None:
        with suppress(ValueError):
            return problem.alone(k, start)
    return problem.alone(k, None)
