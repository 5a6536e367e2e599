"""The work of a task: it solves a few problems one after the other, in any process or thread."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from bregopt import clock
from bregopt.arrays import Array
from bregopt.io.command_line import problem_of_file
from bregopt.modeling.problem import Problem
from bregopt.records import dataclass
from bregopt.routes.solution import Solution
from bregopt.threads import threads_for

__all__ = ["Found", "Item", "Outcome", "Unit", "solve_task"]

Outcome = Solution | Exception


@dataclass(frozen=True, eq=False)
class Item:
    """One problem, and how to solve it.

    Parameters
    ----------
    index : int
        Its place among all problems.
    problem : Problem or Path
        The path is that of a spec, or of an SDPA or CBF file.
    values : tuple of array
        One for each parameter of the problem; None where it has no value.
    solver : str, solver class or None
        None means the spec's route, or "auto".
    options : dict
        Of the route.
    """

    index: int
    problem: Problem | Path
    values: tuple[Array | None, ...]
    solver: Any
    options: Mapping[str, Any]


Unit = Sequence[Item]  # problems of which each starts from the answer to the one before


@dataclass(frozen=True, eq=False)
class Found:
    """The outcome of each problem of a task, with its index, and the seconds that all took."""

    outcomes: list[tuple[int, Outcome]]
    seconds: float


def solve_task(payload: bytes) -> Found:
    """Solve the problems of a task.

    BLAS has one thread, so the digits of an answer are the same in every process and thread.

    Parameters
    ----------
    payload : bytes
        A pickled list of units. Parameters are set in this copy of the problems, not in the user's.
    """
    begin = time.perf_counter()
    with clock.limited(None), threads_for(0):
        found = [outcome for unit in pickle.loads(payload) for outcome in _solve_unit(unit)]
    return Found(found, time.perf_counter() - begin)


def _solve_unit(unit: Unit) -> list[tuple[int, Outcome]]:
    found: list[tuple[int, Outcome]] = []
    start: Solution | None = None
    for item in unit:
        outcome = _outcome(item, start)
        start = outcome._raw if isinstance(outcome, Solution) else None
        found.append((item.index, outcome))
    return found


def _outcome(item: Item, start: Solution | None) -> Outcome:
    if clock.remaining() <= 0:  # Ctrl-C, as there is no limit
        return CancelledError("interrupted before this problem was solved")
    try:
        return _solution(item, start)
    except Exception as error:
        return error


def _solution(item: Item, start: Solution | None) -> Solution:
    if isinstance(item.problem, Path):
        spec = problem_of_file(item.problem, {})
        problem, solver = spec.problem, spec.solver
        options: Mapping[str, Any] = {**spec.options, **item.options}
    else:
        problem, solver, options = item.problem, "auto", item.options
    for p, value in zip(problem.parameters, item.values, strict=False):
        if value is None:
            raise ValueError(f"parameter {p.name} has no value; set .value, or give one beside the problem")
        p.value = value
    return problem._solve(item.solver or solver, start, False, options)
