"""The registry of routes, and the choice of a route for a problem.

Built-in routes are named by module and loaded on first use. Plug-ins come from the entry-point group
``bregopt.solvers`` or :func:`register_solver`. Automatic routing uses the first route, in order of
registration, that takes the problem; the reference comes last. There are two exceptions. If most rows can be
inactive, and they are very many or the matrix is large, ``psdboost`` comes before ``path`` at tolerances of
1e-6 and above. If the matrix is large and there are few more rows than fix its diagonal, ``lowrank`` comes
before ``path``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from numbers import Real
from typing import Any

from numpy.linalg import LinAlgError

from bregopt import clock
from bregopt.arrays import LARGEST
from bregopt.errors import PluginWarning, SolverError, UnsupportedProblemError, did_you_mean, warn_caller
from bregopt.presolve.range_space import on_range_spaces
from bregopt.program import Program
from bregopt.routes import driver
from bregopt.routes.base import Settings, Solver, make_settings
from bregopt.routes.solution import Solution
from bregopt.routes.tuning import Tuning
from bregopt.routes.working_set import can_be_inactive, newton_flops
from bregopt.threads import threads_for

__all__ = [
    "Route",
    "check_options",
    "choose",
    "explain",
    "option_names",
    "own_options",
    "register_solver",
    "route",
    "routes",
    "settings",
    "solve",
    "solvers",
    "takes",
    "time_limit",
    "translate",
    "tuning",
]

_REFERENCE = "cvxpy"
# A new built-in route needs one line here and its package.
_BUILT_IN = {
    "bregman": "bregopt.routes.projection:Bregman",
    "path": "bregopt.routes.ipm:Path",
    "psdboost": "bregopt.routes.matrix_generation:PSDBoost",
    "lowrank": "bregopt.routes.burer_monteiro:LowRankRoute",
    "definiteboost": "bregopt.routes.definiteboost:DefiniteBoost",
    _REFERENCE: "bregopt.routes.reference:Reference",
}
_ENTRY_POINTS = "bregopt.solvers"
_REQUIRED = ("name", "summary", "citation", "capabilities", "Settings", "refusal", "choice", "solve")

# Operations of a Newton step, and order, above which generating matrices is faster (benchmarks/margins.py).
_HARD_WORK, _LARGE_ORDER = 1e11, 500
_NEAR_ONE = "take units in which the numbers of the problem are nearer to one"
_COARSE = 1e-6  # the smallest tolerance that matrix generation reaches in reasonable time
_FEW_MORE = 10  # more rows than the order, at most, for the low-rank route on a large matrix

_registered: dict[str, type[Solver]] = {}
_loaded_plugins = False


@dataclass(frozen=True)
class Route:
    """One line of an explanation: a route, its refusal (None if it takes the problem), its choice."""

    solver: str
    refusal: str | None
    choice: str
    chosen: bool


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
    return {name: cls.summary for name, cls in _all().items()}


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
    bregopt.routes.tuning.Tuning
        A frozen dataclass.
    """
    return settings(solver, {}).tuning


def routes(program: Program, solver: Any = "auto", **options: Any) -> list[Route]:
    """Return the verdict of each registered route on a program, and the route that would be used."""
    names = _in_order(program, options) if solver == "auto" else _names()
    considered = {name: _load(name) for name in names}
    if solver != "auto":
        considered |= [_named(solver)]
    chosen = False
    found = []
    for name, cls in considered.items():
        refusal = _refusal(cls, program, options)
        takes = refusal is None and not chosen and (solver == "auto" or name == _named(solver)[0])
        choice = "" if refusal else cls().choice(program, _own_settings(cls, options))
        found.append(Route(name, refusal, choice, takes))
        chosen = chosen or takes
    return found


def explain(program: Program, solver: Any = "auto", **options: Any) -> str:
    """Return, as text, each registered route's verdict on a program, and the chosen one's reductions."""
    check_options(solver, options)
    lines = []
    for route in routes(program, solver, **options):
        mark = "->" if route.chosen else "  "
        verdict = f"no: {route.refusal}" if route.refusal else f"takes it{_suffix(route.choice)}"
        lines.append(f"{mark} {route.solver:<14} {verdict}")
        if route.chosen:
            cls = _named(solver if isinstance(solver, type) else route.solver)[1]
            done = driver.reductions_of(cls, program, _own_settings(cls, options))
            lines += [f"{'':17} after: {summary}" for summary in done]
    return "\n".join(lines)


def solve(
    program: Program, solver: Any = "auto", start: Solution | None = None, warn: bool = True, **options: Any
) -> Solution:
    """Choose a route for a program, solve it and certify the answer; see :meth:`bregopt.Problem.solve`.

    A caller that reports the status itself sets `warn` to False.
    """
    with clock.limited(time_limit(options)), threads_for(_order(program)):
        cls = choose(program, solver, options)
        try:
            return driver.run(cls(), program, cls.Settings(**options), start, warn)
        except (ArithmeticError, LinAlgError) as error:
            raise SolverError(f"{cls.name} left the range of doubles ({error}); {_NEAR_ONE}") from error


def time_limit(options: Mapping[str, Any]) -> float | None:
    """Return the time limit among the options in seconds, None if there is none or an invalid one.

    The clock starts with it before a route is chosen; the route then refuses an invalid one.
    """
    limit: Any = options.get("time_limit")
    known = isinstance(limit, Real) and not isinstance(limit, bool)
    return float(limit) if known and 0 < limit < LARGEST else None


def translate(program: Program, solver: str) -> Any:
    """Return the program in the form of the named route (for the reference a ``cvxpy.Problem``)."""
    return route(solver).translate(on_range_spaces(program, Settings().rank_tol)[0])


def route(solver: Any) -> Any:
    """Return an instance of the named route, for methods beyond the interface of every route."""
    return _named(solver)[1]()


def check_options(solver: Any, options: dict[str, Any]) -> None:
    """Refuse an unknown solver, an option that it (with "auto": every route) lacks, or a bad value.

    Routing skips the routes that lack one of the options.
    """
    if solver != "auto":
        make_settings(_named(solver)[1], options)
        return
    if options.keys() <= Settings.__dataclass_fields__.keys():
        Settings(**options)
        return
    known = option_names(solver)
    for name in options:
        if name not in known:
            raise TypeError(f"no solver has an option {name!r}{did_you_mean(name, known)}")
    for cls in _all().values():
        _own_settings(cls, options)


def option_names(solver: Any) -> set[str]:
    """Return the names of the options of a route; with "auto" those of all routes."""
    classes = _all().values() if solver == "auto" else [_named(solver)[1]]
    return {name for cls in classes for name in cls.Settings.__dataclass_fields__}


def settings(solver: Any, options: dict[str, Any]) -> Settings:
    """Return the settings of a route; an unknown option raises a TypeError."""
    return make_settings(_named(solver)[1], options)


def own_options(solver: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that a route has."""
    cls = _named(solver)[1]
    return {name: value for name, value in options.items() if _has(cls, name, value)}


def takes(program: Program, solver: str, options: dict[str, Any]) -> bool:
    """Whether a route takes a program, under options that it has."""
    return _refusal(_named(solver)[1], program, options) is None


def choose(program: Program, solver: Any, options: dict[str, Any]) -> type[Solver]:
    """Return the route that :func:`solve` uses.

    Raises
    ------
    UnsupportedProblemError
        The named route, or every route, does not take the program; the message says why.
    TypeError, ValueError
        Unknown solver or option, or a bad value of one.
    """
    check_options(solver, options)
    if solver != "auto":
        name, cls = _named(solver)
        refusal = _refusal(cls, program, options)
        if refusal is None:
            return cls
        others = [r.solver for r in routes(program) if r.refusal is None]
        raise UnsupportedProblemError(
            f"solver {name!r} does not take this problem: {refusal}. "
            + (f"These do: {', '.join(others)}." if others else "No registered solver does.")
        )
    refusals = {}
    for name in _in_order(program, options):
        cls = _load(name)
        refusals[name] = _refusal(cls, program, options)
        if refusals[name] is None:
            return cls
    reasons = "; ".join(f"{name}: {refusal}" for name, refusal in refusals.items())
    raise UnsupportedProblemError(f"no registered solver takes this problem ({reasons})")


def _refusal(cls: type[Solver], program: Program, options: dict[str, Any]) -> str | None:
    for name, value in options.items():
        if not _has(cls, name, value):
            kind = f" of type {type(value).__name__}" if name == "tuning" else ""
            return f"it has no option {name!r}{kind}"
    settings = _own_settings(cls, options)
    program = settings.completed(program)
    reason = cls.capabilities.refusal(program)
    return reason if reason is not None else cls().refusal(program, settings)


def _has(cls: type[Solver], name: str, value: Any) -> bool:
    """Whether a route has an option; constants belong to one method and select its route."""
    field = cls.Settings.__dataclass_fields__.get(name)
    if name != "tuning" or field is None or not isinstance(value, Tuning):
        return field is not None
    return isinstance(value, type(field.default))


def _own_settings(cls: type[Solver], options: dict[str, Any]) -> Settings:
    return cls.Settings(**own_options(cls, options))


def _named(solver: Any) -> tuple[str, type[Solver]]:
    if isinstance(solver, type):
        cls = _solver_class(solver, "solver")
        return cls.name, cls
    if not isinstance(solver, str):
        raise TypeError(f"solver is {solver!r}; expected the name of a solver or a solver class")
    known = _names()
    if solver not in known:
        # CVXPY writes the names of its solvers in capitals.
        of_cvxpy = f" CVXPY's run by solver='cvxpy', backend={solver!r}." if solver.isupper() else ""
        raise ValueError(f"unknown solver {solver!r}{did_you_mean(solver, ['auto', *known])}{of_cvxpy}")
    return solver, _load(solver)


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


def _names() -> list[str]:
    """Return the names of all routes in routing order: built-in ones, plug-ins, the reference."""
    _load_plugins()
    names = [name for name in _BUILT_IN if name != _REFERENCE]
    names += [name for name in _registered if name not in _BUILT_IN]
    return [*names, _REFERENCE]


def _all() -> dict[str, type[Solver]]:
    """Return every route, loaded."""
    return {name: _load(name) for name in _names()}


def _in_order(program: Program, options: dict[str, Any]) -> list[str]:
    """Return the names of all routes in the order for a program and the tolerance asked for."""
    order = _order(program)
    large = order > _LARGE_ORDER
    hard = large or newton_flops(program) > _HARD_WORK
    coarse = options.get("tol", Settings().tol) >= _COARSE
    if hard and coarse and int(can_be_inactive(program.bounds).sum()) > program.m / 2:
        return _earlier("psdboost", _names())
    if large and program.m <= order + _FEW_MORE:
        return _earlier("lowrank", _names())
    return _names()


def _order(program: Program) -> int:
    """Return the largest order of a matrix of the program."""
    return max((block.n for block in program.blocks), default=0)


def _earlier(name: str, names: list[str]) -> list[str]:
    """Return the names with one of them moved right before ``path``."""
    others = [other for other in names if other != name]
    place = others.index("path")
    return [*others[:place], name, *others[place:]]


def _load(name: str) -> type[Solver]:
    if name not in _registered:
        module, attribute = _BUILT_IN[name].split(":")
        register_solver(getattr(importlib.import_module(module), attribute))
    return _registered[name]


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


def _suffix(choice: str) -> str:
    return f": {choice}" if choice else ""
