"""Solves many problems on an executor."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError, Executor
from contextlib import closing
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack

import scipy.sparse as sp
from numpy.typing import ArrayLike

from bregopt import clock
from bregopt.arrays import Array
from bregopt.bars import items_bar
from bregopt.errors import ConvergenceWarning, did_you_mean, is_one_of, warn_caller
from bregopt.executors import check_executor
from bregopt.many.schedule import outcomes
from bregopt.many.worker import Item, Outcome, Unit
from bregopt.modeling.problem import Problem
from bregopt.modeling.variables import Parameter
from bregopt.routes.options import check_options
from bregopt.routes.solution import Solution, Status
from bregopt.routes.solve_options import SeededOptions, SolverLike

__all__ = ["solve_many"]

_CHAIN = 32  # problems of a chain
_FINAL = (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
ProblemLike = (
    Problem | str | PathLike[str] | tuple[Problem | str | PathLike[str], Mapping[Parameter, ArrayLike]]
)


def solve_many(
    problems: Iterable[ProblemLike],
    executor: Executor | None = None,
    progress: bool = True,
    chunk: int | None = None,
    *,
    warm_start: Literal[False, "chain"] = False,
    solver: SolverLike | None = None,
    **options: Unpack[SeededOptions],
) -> list[Outcome]:
    """Solve many problems, on any executor of ``concurrent.futures``.

    The answers do not depend on the executor and the sizes of its tasks, bit for bit, unless a time limit
    ends a solve. The problems do not change; the answers are in the solutions only.

    Parameters
    ----------
    problems : iterable
        Each is a :class:`Problem`, the path of a spec, SDPA or CBF file, or a pair of a problem and a dict
        from its parameters, or their names, to values. A problem of many pairs is sent once for each task.
    executor : concurrent.futures.Executor, optional
        A pool of threads or processes, loky, ``mpi4py.futures.MPIPoolExecutor`` or Dask's
        ``client.get_executor()``. It is not shut down. None solves in this thread.
    progress : bool
        Show a bar of the problems, if tqdm is installed.
    chunk : int, optional
        Number of problems in a task; by default as many as take 0.2 s, by the measured cost of a problem.
        With ``warm_start="chain"`` it is the number of problems in a chain, 32 by default.
    warm_start : False or "chain"
        "chain" starts each problem from the answer to the one before, for data that change little from one
        to the next. Every `chunk` problems a new chain begins, with a cold start.
    solver : str or solver class, optional
        As in :meth:`Problem.solve`. None means the solver of a spec, and "auto" for problems.
    **options
        As in :meth:`Problem.solve`, such as ``tol``; they replace those of specs. ``time_limit`` is for each
        problem.

    Returns
    -------
    list of Solution or Exception
        In the order of the problems. Where a problem could not be solved, the exception takes the place of
        the solution: bad data, a route that failed, a worker that died twice, or
        ``concurrent.futures.CancelledError`` after Ctrl-C.

    Raises
    ------
    TypeError, ValueError
        If an element of `problems` is of another kind, a parameter is not one of its problem, or an argument
        or option is bad.

    Warns
    -----
    ConvergenceWarning
        Once, if the certificates of some answers do not meet the tolerance.

    Notes
    -----
    If a worker dies, the problems of its task are solved once more, one at a time. A broken process pool is
    replaced by a new one. BLAS has one thread in each worker. The first Ctrl-C ends the work, and the answers
    that are there are returned.

    Examples
    --------
    >>> import bregopt as bo
    >>> X, p = bo.PSD(2), bo.Parameter()
    >>> prob = bo.Problem(bo.Minimize(bo.trace(X)), [X[0, 1] == p])
    >>> [round(sol.value, 4) for sol in bo.solve_many([(prob, {p: v}) for v in (1, 2)], progress=False)]
    [2.0, 4.0]
    """
    _check(executor, progress, chunk, warm_start)
    check_options("auto" if solver is None else solver, options)
    items = _items(problems, solver, options)
    length = (chunk or _CHAIN) if warm_start else 1
    units: list[Unit] = [items[k : k + length] for k in range(0, len(items), length)]
    found: dict[int, Outcome] = {}
    shown = progress and find_spec("tqdm") is not None
    ending = outcomes(units, executor, 1 if warm_start else chunk)
    with clock.limited(None), closing(ending):
        for _ in items_bar(range(len(items)), "problems", shown):
            one = next(ending, None)
            if one is None:  # Ctrl-C
                break
            found[one[0]] = one[1]
    answers = [found.get(k, CancelledError("interrupted before it was solved")) for k in range(len(items))]
    _warn(answers)
    return answers


def _check(executor: Any, progress: Any, chunk: Any, warm_start: Any) -> None:
    check_executor(executor)
    if not isinstance(progress, bool):
        raise TypeError(f"progress is {progress!r}; expected True or False")
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int)):
        raise TypeError(f"chunk is {chunk!r}; expected a positive integer, or None")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}; expected a positive integer")
    if warm_start is not False and not is_one_of(warm_start, ("chain",)):
        raise ValueError(f'warm_start is {warm_start!r}; expected False or "chain"')


def _items(problems: Any, solver: Any, options: Mapping[str, Any]) -> list[Item]:
    single = isinstance(problems, Problem | str | os.PathLike | Mapping) or sp.issparse(problems)
    if single or not isinstance(problems, Iterable):
        raise TypeError(f"problems is {problems!r}; expected a list of problems, paths or pairs")
    pairs = [_problem_and_values(given, f"problems[{k}]") for k, given in enumerate(problems)]
    # One copy of each problem, so that it is one object in the pickle of a task.
    sent = {id(problem): _unsolved(problem) for problem, _ in pairs}
    return [Item(k, sent[id(problem)], values, solver, options) for k, (problem, values) in enumerate(pairs)]


def _problem_and_values(given: Any, name: str) -> tuple[Problem | Path, tuple[Array | None, ...]]:
    if isinstance(given, str | Path):
        return Path(given).absolute(), ()
    problem, values = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(problem, Problem) or not isinstance(values, Mapping):
        if hasattr(given, "shape"):  # an array or a frame, not printed whole
            raise TypeError(
                f"{name} is {type(given).__name__} of shape {given.shape}; expected a bo.Problem. For "
                "nearest correlation matrices pass all matrices to bo.nearest_correlation at once"
            )
        raise TypeError(
            f"{name} is {given!r}; expected a bo.Problem, the path of a spec, or a pair "
            "(problem, {parameter: value})"
        )
    own = {_key(p, problem, name): value for p, value in values.items()}
    return problem, tuple(own.get(p, p.value) for p in problem.parameters)


def _key(key: Any, problem: Problem, name: str) -> Parameter:
    """Return the parameter of a problem that a key means: the object itself, or its name."""
    for p in problem.parameters:
        if key is p or (isinstance(key, str) and key == p.name):
            return p
    if isinstance(key, Parameter):
        raise ValueError(f"{name} has a value for {key.name}, a parameter of another problem")
    hint = did_you_mean(str(key), [p.name for p in problem.parameters])
    raise ValueError(f"{name} has a value for {key!r}, which is no parameter of its problem{hint}")


def _unsolved(problem: Problem | Path) -> Problem | Path:
    """Return a problem without its last answer, which workers do not need."""
    twin = copy.copy(problem)
    if isinstance(twin, Problem):
        twin.solution = twin._raw = None
    return twin


def _warn(answers: list[Outcome]) -> None:
    statuses = {k: answer.status for k, answer in enumerate(answers) if isinstance(answer, Solution)}
    short = [k for k, status in statuses.items() if status not in _FINAL]
    if short:
        warn_caller(
            f"{len(short)} of {len(answers)} answers do not meet the tolerance, the first for "
            f"problems[{short[0]}]; see their status and stop_reason",
            ConvergenceWarning,
        )
