"""The types of the options of a solve, for editors and type checkers.

The dataclasses `Settings` of the routes define the options, check them and hold their defaults. These types
repeat their names, and a test compares the two. A plug-in's own options are not in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from os import PathLike
from typing import Any, Literal, TypedDict

from numpy.typing import ArrayLike

from bregopt.program import LowRank
from bregopt.routes.base import Seed, Solver
from bregopt.routes.progress import Watcher
from bregopt.routes.solution import Solution
from bregopt.routes.tuning import Tuning

__all__ = [
    "CutOptions",
    "KernelOptions",
    "MethodOptions",
    "RouteOptions",
    "SeededOptions",
    "SolveOptions",
    "SolverLike",
    "StackOptions",
]

SolverLike = str | type[Solver]  # the name of a route, "auto", or a class


class MethodOptions(TypedDict, total=False):
    """Options of every route, then of one route each; without the seed and the progress bar."""

    tol: float
    tol_X: float | None
    max_iter: int | None
    time_limit: float | None
    verbose: bool
    callback: Watcher | None
    rank_tol: float
    tuning: Tuning

    method: str  # "bregman"
    master: str  # "psdboost", to trace_bound
    cuts_per_round: int | None
    smoothing: float | str
    trace_bound: float | None
    rank: int | None  # "lowrank", to factor
    factor: LowRank | ArrayLike | None
    step: str  # "definiteboost", to corrections
    order: str
    corrections: bool
    backend: str | None  # "cvxpy", to backend_options
    backend_options: Mapping[str, Any] | None


class SeededOptions(MethodOptions, total=False):
    """Options of functions with a progress bar of their own."""

    seed: Seed


class CutOptions(MethodOptions, total=False):
    """Options of the relaxation of a cut, whose function has the seed."""

    progress: bool
    solver: SolverLike


class RouteOptions(SeededOptions, total=False):
    """All options of the routes, for :meth:`bregopt.Problem.solve`."""

    progress: bool


class SolveOptions(RouteOptions, total=False):
    """Arguments of :meth:`bregopt.Problem.solve`, for functions that pass them on."""

    solver: SolverLike
    warm_start: bool | Solution


class KernelOptions(SolveOptions, total=False):
    """Arguments of functions that also take rows in chunks, with those of :meth:`bregopt.RowChunks.solve`."""

    executor: Executor | None
    sample: int | None
    max_passes: int
    resume: str | PathLike[str] | None


class StackOptions(RouteOptions, total=False):
    """Arguments of functions that also solve stacks of problems."""

    solver: SolverLike
    warm_start: bool | Solution | Literal["chain"]
    executor: Executor | None
