"""Nearest matrices of a stack: slices that fit the cache, then single solves of the problems left."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt import clock
from bregopt.arrays import LARGEST, SMALLEST, Array, IntArray, Mask
from bregopt.clock import CutShort
from bregopt.divergences.stacks import STACKED
from bregopt.errors import ConvergenceWarning, DataWarning, SolverError
from bregopt.io.matrix_stacks import MatrixStack
from bregopt.problems.solutions import ERROR, Solutions
from bregopt.problems.stack_warnings import Warnings
from bregopt.program import StopReason
from bregopt.program.entry_stack import EntryStack
from bregopt.program.lowrank import LowRank
from bregopt.routes.options import check_options, own_options, own_settings, time_limit
from bregopt.routes.progress import reason
from bregopt.routes.registry import load, route
from bregopt.routes.solution import Solution, Status
from bregopt.threads import threads_for

__all__ = ["Slice", "SliceMaker", "solve_stack"]

# Entries of the matrices of a slice. Its arrays of 400 KB stay in the cache (benchmarks/many_stacks.py).
_SLICE = 50_000
_ROUND_OFF = 1e-10  # asymmetry, as a fraction of the largest entry, up to which entries are averaged
_METHOD = "bregman"
_OPTIONS = frozenset({"solver", "tol", "max_iter", "time_limit", "seed", "rank_tol"})  # that it has too
_NUMBERS = ("value", "dual_value", "gap", "primal_residual", "dual_residual", "error")


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


SliceMaker = Callable[[Array, IntArray, Warnings], Slice]


@dataclass(frozen=True, eq=False)
class _Record:
    """The answers so far, an element for each problem; its status is None before."""

    status: Any
    numbers: dict[str, Array]
    iterations: IntArray
    X: list[Any]
    duals: list[Any]
    single: dict[int, Solution]
    errors: dict[Hashable, Exception]

    @classmethod
    def empty(cls, count: int) -> _Record:
        numbers = {name: np.full(count, np.nan) for name in _NUMBERS}
        status = np.full(count, None, dtype=object)
        none: list[Any] = [None] * count
        return cls(status, numbers, np.zeros(count, dtype=np.intp), none, none.copy(), {}, {})

    def put(self, k: int, solution: Solution) -> None:
        """Record the answer of a single solve."""
        self.single[k], self.status[k], self.iterations[k] = solution, solution.status, solution.iterations
        for name, values in self.numbers.items():
            values[k] = getattr(solution, name)
        X = solution.X
        self.X[k] = X if X is None or isinstance(X, LowRank) else np.asarray(X)


def solve_stack(
    matrices: MatrixStack,
    divergence: str,
    make: SliceMaker | None,
    single: Callable[[int], Solution],
    options: dict[str, Any],
) -> Solutions:
    """Return the answers to a stack of problems.

    Parameters
    ----------
    matrices : MatrixStack
    divergence : str
    make : callable or None
        Makes a slice from symmetric matrices of shape ``(b, n, n)`` and their positions. None if there is no
        stacked method for the problems.
    single : callable
        Solves the problem in one position.
    options : dict
        Options of :meth:`bregopt.Problem.solve`.

    Raises
    ------
    TypeError, ValueError
        If an option, or an argument that all problems share, is bad.
    """
    begin = time.perf_counter()
    if "warm_start" in options:
        raise TypeError(
            "a stack of matrices has no option 'warm_start'; solve one matrix to start from another"
        )
    own = {name: value for name, value in options.items() if name != "solver"}
    check_options(options.get("solver", "auto"), own)
    record, notes = _Record.empty(len(matrices.keys)), Warnings(matrices.keys)
    with clock.limited(time_limit(options)):
        try:
            if make is not None and _has_method(divergence, options):
                _solve_slices(matrices, divergence, make, options, record, notes)
            _solve_singly(matrices, single, record, notes)
            stop = StopReason.STALLED
        except CutShort as cut:
            stop = reason(cut)
    for k in np.flatnonzero([status is None for status in record.status]).tolist():
        record.status[k] = Status.USER_LIMIT.value
        notes.add(k, f"it has no answer. {stop.value}", ConvergenceWarning)
    X = matrices.collected(record.X)
    if isinstance(X, np.ndarray):  # one copy of the matrices is enough
        record.X[:] = [None if own is None else X[k] for k, own in enumerate(record.X)]
    solutions = Solutions(
        keys=matrices.keys,
        X=X,
        status=record.status.astype(str),
        **record.numbers,
        iterations=record.iterations,
        errors=record.errors,
        timings={"total": time.perf_counter() - begin},
        _matrices=record.X,
        _labels=[matrices.labels(k) for k in range(len(matrices.keys))],
        _duals=record.duals,
        _single=record.single,
        _stop=stop.value,
        _citation=load(_METHOD).citation,
    )
    notes.give()
    return solutions


def _has_method(divergence: str, options: dict[str, Any]) -> bool:
    """Whether the stacked method takes this divergence and these options."""
    known = options.keys() <= _OPTIONS and options.get("solver", "auto") in ("auto", _METHOD)
    return known and divergence in STACKED and hasattr(load(_METHOD), "solve_stack")


def _solve_slices(
    matrices: MatrixStack,
    divergence: str,
    make: SliceMaker,
    options: dict[str, Any],
    record: _Record,
    notes: Warnings,
) -> None:
    """Solve the problems of orders for which the stacked method pays."""
    solver = {name: value for name, value in options.items() if name != "solver"}
    settings, method = own_settings(load(_METHOD), own_options(_METHOD, solver)), route(_METHOD)
    for positions, A in matrices.groups:
        n = A.shape[1]
        if not 0 < n <= STACKED[divergence].largest_order:
            continue
        width = max(1, _SLICE // n**2)
        with threads_for(n):
            for a in range(0, len(A), width):
                clock.checkpoint()
                regular, own = _symmetric(A[a : a + width])
                at = positions[a : a + width][regular]
                if len(at):
                    _solve_slice(
                        own, at, make, lambda stack: method.solve_stack(stack, settings), record, notes
                    )


def _solve_slice(
    A: Array,
    positions: IntArray,
    make: SliceMaker,
    solve: Callable[[EntryStack], Any],
    record: _Record,
    notes: Warnings,
) -> None:
    """Solve the problems of one slice; none of them if LAPACK fails for one, as single solves follow."""
    try:
        part = make(A, positions, notes)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # multipliers may diverge
            answer = solve(part.stack)
    except np.linalg.LinAlgError:
        return
    _store(record, part, positions, answer)


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


def _store(record: _Record, part: Slice, positions: IntArray, answer: Any) -> None:
    """Record the answers of a slice."""
    if len(answer.solved) == 0:
        return
    X, duals = part.restored(answer.solved, answer.X, answer.y)
    at, certificate = positions[part.places[answer.solved]], answer.certificate
    found = {
        "value": certificate.primal,
        "dual_value": certificate.dual,
        "gap": certificate.gap,
        "primal_residual": certificate.primal_residual,
        "dual_residual": 0.0,
        "error": certificate.error,
    }
    for name, values in found.items():
        record.numbers[name][at] = values
    record.status[at], record.iterations[at] = Status.OPTIMAL.value, answer.iterations
    for k, own, dual in zip(at.tolist(), X, duals, strict=True):
        record.X[k], record.duals[k] = own, dual


def _solve_singly(
    matrices: MatrixStack, single: Callable[[int], Solution], record: _Record, notes: Warnings
) -> None:
    """Solve the problems that have no answer yet, one by one; record errors as values."""
    for k in np.flatnonzero([status is None for status in record.status]).tolist():
        clock.checkpoint()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                record.put(k, single(k))
            except (TypeError, ValueError, SolverError) as error:
                record.status[k], record.errors[matrices.keys[k]] = ERROR, error
                notes.add(k, f"it is refused: {error}", DataWarning)
        for warning in caught:
            notes.add(k, str(warning.message), warning.category)
