"""Options of routes: which route has which, their types and checks, and the settings that they make.

The dataclasses `Settings` of the routes define the options, check them and hold their defaults. The types for
editors and type checkers repeat their names, and a test compares the two. A plug-in's own options are not in
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from functools import cache
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypedDict

from numpy.typing import ArrayLike

from bregopt.arrays import LARGEST
from bregopt.errors import did_you_mean, is_one_of
from bregopt.program import LowRank
from bregopt.records import field_names
from bregopt.routes.base import Seed, Settings, Solver, Tuning, make_settings
from bregopt.routes.progress import Watcher
from bregopt.routes.registry import load_all, resolve
from bregopt.routes.solution import Solution

__all__ = [
    "CutOptions",
    "KernelOptions",
    "MethodOptions",
    "RouteOptions",
    "SeededOptions",
    "SolveOptions",
    "SolverLike",
    "StackOptions",
    "check_options",
    "has_option",
    "option_names",
    "own_options",
    "own_settings",
    "settings",
    "time_limit",
    "tuning",
]


def tuning(solver: str) -> Tuning:
    """Return the numerical constants of a route, each documented in its class.

    The option ``tuning`` takes another instance, such as ``dataclasses.replace(bo.tuning("path"), ...)``.
    The certificate of an answer, and so its status, does not depend on them.

    Parameters
    ----------
    solver : str
        The name of a route.

    Returns
    -------
    bregopt.routes.base.Tuning
        A frozen dataclass.

    Raises
    ------
    TypeError, ValueError
        If there is no such route.
    """
    return settings(solver, {}).tuning


def settings(solver: Any, options: Mapping[str, Any]) -> Settings:
    """Return the settings of a route; an unknown option raises a TypeError."""
    return make_settings(resolve(solver)[1], options)


def check_options(solver: Any, options: Mapping[str, Any]) -> None:
    """Refuse an unknown solver, an option that it (with "auto": every route) lacks, or a bad value.

    Routing skips the routes that lack one of the options.
    """
    if not is_one_of(solver, ("auto",)):
        make_settings(resolve(solver)[1], options)
        return
    if options.keys() <= set(field_names(Settings)):
        if options:
            Settings(**options)
        return
    known = option_names(solver)
    for name in options:
        if name not in known:
            raise TypeError(f"no solver has an option {name!r}{did_you_mean(name, known)}")
    for cls in load_all().values():
        own_settings(cls, options)


def option_names(solver: Any) -> set[str]:
    """Return the names of the options of a route; with "auto" those of all routes."""
    classes = load_all().values() if is_one_of(solver, ("auto",)) else [resolve(solver)[1]]
    return {name for cls in classes for name in field_names(cls.Settings)}


def own_options(solver: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a route has."""
    cls = resolve(solver)[1]
    return {name: value for name, value in options.items() if has_option(cls, name, value)}


def own_settings(cls: type[Solver], options: Mapping[str, Any]) -> Settings:
    """Return the settings of a route from those of the options that it has."""
    return cls.Settings(**own_options(cls, options)) if options else _defaults(cls)


@cache
def _defaults(cls: type[Solver]) -> Settings:
    """Return the settings without options, made once: they are immutable."""
    return cls.Settings()


def has_option(cls: type[Solver], name: str, value: Any) -> bool:
    """Whether a route has an option; constants belong to one method and select its route."""
    if name not in field_names(cls.Settings):
        return False
    return name != "tuning" or not isinstance(value, Tuning) or isinstance(value, type(cls.Settings.tuning))


def time_limit(options: Mapping[str, Any]) -> float | None:
    """Return the time limit among the options in seconds, None if there is none or an invalid one.

    The clock starts with it before a route is chosen; the route then refuses an invalid one.
    """
    limit: Any = options.get("time_limit")
    known = isinstance(limit, Real) and not isinstance(limit, bool)
    return float(limit) if known and 0 < limit < LARGEST else None


SolverLike = str | type[Solver]  # the name of a route, "auto", or a class


class MethodOptions(TypedDict, total=False):
    """Options of every route, then of one route each; without the seed and the progress bar."""

    tol: float
    tol_X: float | None
    max_iter: int | None
    time_limit: float | None
    proven: bool
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
    projections: bool  # "entropy"
    central: bool  # "entropy"


class SeededOptions(MethodOptions, total=False):
    """Options of functions with a progress bar of their own."""

    seed: Seed


class CutOptions(MethodOptions, total=False):
    """Options of the relaxation of a cut, whose function has the seed."""

    progress: bool
    rounds: int | None  # of the search
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
    sample: int | Literal["auto"] | None
    max_passes: int
    resume: str | PathLike[str] | None


class StackOptions(RouteOptions, total=False):
    """Arguments of functions that also solve stacks of problems."""

    solver: SolverLike
    warm_start: bool | Solution | Literal["chain"]
    executor: Executor | None
    resume: str | PathLike[str] | None
