"""The registry of routes, built-in ones, plug-ins from entry points and registered classes; their options.

Built-in routes are named by module and loaded on first use. Plug-ins come from the entry-point group
``bregopt.solvers`` or :func:`register_solver`. The order of the names is the order of registration, and the
reference comes last.

A certificate judges the point of a route, so that a wrong answer has no good status. What a certificate
takes for granted is that the program is still the user's: while a route, divergence or row family of others
runs, the arrays of the program are read-only, and afterwards they are compared with copies. Programs that use
nothing but this package are not copied.

The dataclasses `Settings` of the routes define the options, check them and hold their defaults. The types for
editors and type checkers repeat their names, and a test compares the two. A plug-in's own options are not in
them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.metadata import entry_points
from numbers import Real
from os import PathLike
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from bregopt.arrays import LARGEST, is_one_of
from bregopt.errors import PluginWarning, SolverError, did_you_mean, warn_caller
from bregopt.program import Answer, LowRank, Program, Start, StopReason
from bregopt.program.stacks import STACKED, EntryStack
from bregopt.records import field_names
from bregopt.routes.base import Seed, Settings, Solver, Tuning, make_settings
from bregopt.routes.progress import Progress, Watcher
from bregopt.routes.solution import Solution

REFERENCE = "cvxpy"
# A new built-in route needs one line here and its package.
_BUILT_IN = {
    "bregman": "bregopt.routes.projection:Bregman",
    "path": "bregopt.routes.ipm.path_route:Path",
    "lagrangian": "bregopt.routes.augmented_lagrangian:Lagrangian",
    "entropy": "bregopt.routes.entropy:Entropy",
    "psdboost": "bregopt.routes.matrix_generation:PSDBoost",
    "lowrank": "bregopt.routes.burer_monteiro:LowRankRoute",
    "definiteboost": "bregopt.routes.definiteboost:DefiniteBoost",
    REFERENCE: "bregopt.routes.reference:Reference",
}
STACKS = "bregman"  # the route with a method for many small nearness problems at once
_OF_STACKS = frozenset({"solver", "tol", "max_iter", "time_limit", "seed", "rank_tol"})  # its options there
PANEL = ("executor", "progress", "resume", "warm_start")  # options of functions of a stack
_OF_SOLVE = ("solver", "warm_start")  # arguments of Problem.solve that are no options of a solver
_ENTRY_POINTS = "bregopt.solvers"
_REQUIRED = ("name", "summary", "citation", "capabilities", "Settings", "refusal", "choice", "solve")

Guard = Callable[..., AbstractContextManager[None]]
_NOTHING: AbstractContextManager[None] = nullcontext()
_OPAQUE = (str, bytes, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_registered: dict[str, type[Solver]] = {}
_loaded_plugins = False


def register_solver(cls: type[Solver]) -> type[Solver]:
    """Add a route; also usable as a class decorator.

    Parameters
    ----------
    cls : class
        With the attributes and methods of :class:`bregopt.routes.base.Solver`. A class with the name of a
        registered one replaces it.

    Raises
    ------
    TypeError
        If a required attribute or method is missing.
    """
    _registered[cls.name] = _solver_class(cls, "cls")
    return cls


def solvers() -> dict[str, str]:
    """Return the registered routes: name and one-line summary, in routing order."""
    return {name: cls.summary for name, cls in load_all().items()}


def route(solver: Any) -> Any:
    """Return an instance of the named route, for methods beyond the interface of every route."""
    return resolve(solver)[1]()


def route_names() -> list[str]:
    """Return the names of all routes in routing order: built-in ones, plug-ins, the reference."""
    _load_plugins()
    names = [name for name in _BUILT_IN if name != REFERENCE]
    names += [name for name in _registered if name not in _BUILT_IN]
    return [*names, REFERENCE]


def load(name: str) -> type[Solver]:
    """Return the class of a registered name; a built-in one is imported on first use."""
    if name not in _registered:
        module, attribute = _BUILT_IN[name].split(":")
        register_solver(getattr(importlib.import_module(module), attribute))
    return _registered[name]


def load_all() -> dict[str, type[Solver]]:
    """Return every route, loaded."""
    return {name: load(name) for name in route_names()}


def resolve(solver: Any) -> tuple[str, type[Solver]]:
    """Return the name and the class of a route, given by either; raise if there is no such route."""
    if isinstance(solver, type):
        cls = _solver_class(solver, "solver")
        return cls.name, cls
    if not isinstance(solver, str):
        raise TypeError(f"solver is {solver!r}; expected the name of a solver or a solver class")
    known = route_names()
    if solver not in known:
        backend = solver if solver.isupper() else "NAME"  # CVXPY writes the names of its solvers in capitals
        of_cvxpy = f" For a solver of CVXPY, pass solver='cvxpy', backend={backend!r}."
        raise ValueError(f"unknown solver {solver!r}{did_you_mean(solver, ['auto', *known])}{of_cvxpy}")
    return solver, load(solver)


def _solver_class(given: Any, argument: str) -> type[Solver]:
    """Return a solver class, after checking that it is one."""
    cls: type[Solver] = given
    missing = [name for name in _REQUIRED if not hasattr(cls, name)]
    if missing or not isinstance(given, type):
        raise TypeError(
            f"{argument} is {cls!r}, not a solver class: it lacks {', '.join(missing) or 'being a class'}"
        )
    if not issubclass(cls.Settings, Settings):
        raise TypeError(f"{cls.__name__}.Settings does not derive from bregopt.routes.base.Settings")
    return cls


def _load_plugins() -> None:
    global _loaded_plugins
    if _loaded_plugins:
        return
    _loaded_plugins = True
    for point in entry_points(group=_ENTRY_POINTS):
        try:
            register_solver(point.load())
        except Exception as error:  # a plug-in may fail in any way; the others must still load
            warn_caller(
                f"plug-in {point.name!r} ({point.value}) could not be loaded and is skipped: {error!r}",
                PluginWarning,
            )


def is_foreign(solver: Any, program: Program | None = None) -> bool:
    """Whether a route, or a divergence or row family of a program, is of another package."""
    kinds: list[Any] = [solver if isinstance(solver, type) else type(solver)]
    if program is not None:
        for term in program.A.terms:
            kinds.append(type(term.rows))
        for block in program.blocks:
            if block.cost is not None:
                kinds.append(type(block.cost))
            if block.nearness is not None:
                kinds.append(block.nearness.kind)
    return {kind.__module__.partition(".")[0] for kind in kinds} != {"bregopt"}


def guard(solver: Solver, program: Program) -> Guard:
    """Return :func:`unchanged`, or a context that does nothing where all code is of this package."""
    return unchanged if is_foreign(solver, program) else _trusted


def _trusted(solver: Solver, *objects: Any) -> AbstractContextManager[None]:
    return _NOTHING


@contextmanager
def unchanged(solver: Solver, *objects: Any) -> Iterator[None]:
    """Keep the arrays of a program, and of other objects, as they are while code of others runs.

    Raises
    ------
    SolverError
        If they were changed all the same; they have their former values then.
    """
    kept = _Kept(objects)
    try:
        yield
    except BaseException:
        kept.restore()
        raise
    if kept.restore():
        raise SolverError(
            f"{solver.name}: a route, divergence or row family of another package changed the data of the "
            "problem in place; they are restored. Routes work on copies, such as program.bounds.lo.copy()"
        )


class _Kept:
    """Arrays and attributes of objects as they were; the arrays are read-only until :meth:`restore`."""

    def __init__(self, roots: tuple[Any, ...]) -> None:
        self._arrays: dict[int, tuple[Any, Any, bool]] = {}
        self._attributes: dict[int, tuple[Any, dict[str, Any]]] = {}
        waiting, seen = list(roots), set()
        while waiting:
            part = waiting.pop()
            if id(part) in seen or isinstance(part, _OPAQUE):
                continue
            seen.add(id(part))
            if isinstance(part, np.ndarray):
                self._arrays[id(part)] = part, part.copy(), part.flags.writeable
            elif isinstance(part, tuple | list | dict):
                waiting += part.values() if isinstance(part, dict) else part
            else:
                if hasattr(part, "__dict__"):
                    self._attributes[id(part)] = part, dict(vars(part))
                    waiting += vars(part).values()
                slots = (name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ()))
                waiting += [getattr(part, name, None) for name in slots]
        for array, _, _ in self._arrays.values():
            array.flags.writeable = False

    def restore(self) -> bool:
        """Return everything to its former state, without cached values; say whether something differed."""
        differs = False
        for part, former in self._attributes.values():
            now = vars(part)
            differs |= any(name not in now or now[name] is not value for name, value in former.items())
            for name in [name for name in now if name not in former]:
                del now[name]
            now.update(former)
        # A view is writeable only if its base is.
        for array, former, writeable in sorted(
            self._arrays.values(), key=lambda kept: kept[0].base is not None
        ):
            same = array.shape == former.shape and array.tobytes() == former.tobytes()
            if not same:
                base = array if array.base is None else array.base
                if isinstance(base, np.ndarray):
                    base.flags.writeable = True
                array.flags.writeable = True
                array[...] = former
                differs = True
            if writeable:
                array.flags.writeable = True
        return differs


def answer_of(
    solver: Solver, program: Program, settings: Settings, start: Start | None, progress: Progress
) -> Answer:
    """Return the answer of a route; that of another package is checked by type, shape and finiteness.

    Raises
    ------
    SolverError
        If it is no answer to the program; the message names the field.
    """
    answer: Any = solver.solve(program, settings, start, progress)
    if is_foreign(solver):
        _check(solver.name, program, answer)
    return answer


def failure(solver: type[Solver], error: Exception) -> SolverError:
    """Return the error for arithmetic that failed in a route."""
    if is_foreign(solver):
        return SolverError(f"{solver.name}, a route of another package, failed: {error!r}")
    advice = "take units in which the numbers of the problem are nearer to one"
    return SolverError(f"{solver.name} left the range of doubles ({error}); {advice}")


def _check(name: str, program: Program, answer: Any) -> None:
    if not isinstance(answer, Answer):
        raise SolverError(f"{name} returned {type(answer).__name__}; expected a bregopt.program.Answer")
    orders = [block.n for block in program.blocks]
    if not isinstance(answer.X, tuple | list) or len(answer.X) != len(orders):
        raise SolverError(f"{name}: X of its answer is {_shown(answer.X)}; expected {len(orders)} matrices")
    for b, (X, n) in enumerate(zip(answer.X, orders, strict=True)):
        factor = isinstance(X, LowRank)
        array = X.factor if factor else X
        _check_array(name, f"X[{b}]", array, (n, array.shape[1] if factor else n))
    _check_array(name, "u", answer.u, (program.k,))
    _check_array(name, "y", answer.y, (program.m,))
    if answer.y_on_faces is not None:
        _check_array(name, "y_on_faces", answer.y_on_faces, (program.m,))
    if not isinstance(answer.stop, StopReason):
        raise SolverError(f"{name}: stop of its answer is {_shown(answer.stop)}; expected a StopReason")
    if isinstance(answer.iterations, bool) or not isinstance(answer.iterations, int | np.integer):
        raise SolverError(f"{name}: iterations of its answer is {_shown(answer.iterations)}; expected an int")
    for field in ("detail", "citation"):
        if not isinstance(getattr(answer, field), str):
            raise SolverError(f"{name}: {field} of its answer is no text")
    if answer.inner is not None:
        _check(f"{name}, inner", program, answer.inner)


def _check_array(name: str, field: str, array: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
        raise SolverError(f"{name}: {field} of its answer is {_shown(array)}; expected an array of doubles")
    if array.shape != shape:
        raise SolverError(f"{name}: {field} of its answer has shape {array.shape}; expected {shape}")
    if not np.isfinite(array).all():
        raise SolverError(f"{name}: {field} of its answer has NaN or Inf; expected finite numbers")


def _shown(value: Any) -> str:
    return " ".join(repr(value).split())[:80]


# --- Options --------------------------------------------------------------------------------------------


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


def check_arguments(
    function: Callable[..., Any], options: Mapping[str, Any], others: Collection[str] = ()
) -> None:
    """Refuse an option that neither a ready-made function nor its solver knows, before any work.

    Parameters
    ----------
    function : callable
    options : dict
    others : collection of str
        Options besides those of the solver.

    Raises
    ------
    TypeError
        If an option is unknown; the message suggests the closest argument or option.
    """
    solver = options.get("solver", "auto")
    asked = options.keys() - _OF_SOLVE
    if not asked:
        return
    known = option_names(solver) | set(others)
    for name in sorted(asked - known):
        own = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        chosen = "" if solver == "auto" else f" with solver={solver!r}"
        hint = did_you_mean(name, {*own, *_OF_SOLVE, *known})
        raise TypeError(f"{function.__name__} has no option {name!r}{chosen}{hint}")


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
    known = not isinstance(limit, bool | None) and isinstance(limit, Real)
    return float(limit) if known and 0 < limit < LARGEST else None


# --- Stacks of problems ---------------------------------------------------------------------------------


def takes_stacks(divergence: str, options: Mapping[str, Any]) -> bool:
    """Whether the stacked method takes the divergence and the options."""
    known = options.keys() <= _OF_STACKS and is_one_of(options.get("solver", "auto"), ("auto", STACKS))
    return known and divergence in STACKED and hasattr(load(STACKS), "solve_stack")


def stack_settings(options: Mapping[str, Any]) -> Any:
    """Return the settings of the stacked method."""
    own = {name: value for name, value in options.items() if name != "solver"}
    return own_settings(load(STACKS), own)


def stack_answer(stack: EntryStack, settings: Any, start: Any = None) -> Any:
    """Return the answers of the stacked method; None if LAPACK fails for a problem, as others follow."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # multipliers may diverge
            method: Any = load(STACKS)()
            return method.solve_stack(stack, settings, start)
    except np.linalg.LinAlgError:
        return None


# --- Types ----------------------------------------------------------------------------------------------

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
