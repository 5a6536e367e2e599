"""The registry of routes: built-in ones, plug-ins from entry points, and registered classes.

Built-in routes are named by module and loaded on first use. Plug-ins come from the entry-point group
``bregopt.solvers`` or :func:`register_solver`. The order of the names is the order of registration, and the
reference comes last.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

from bregopt.errors import PluginWarning, did_you_mean, warn_caller
from bregopt.routes.base import Settings, Solver

__all__ = ["load", "load_all", "register_solver", "resolve", "route", "route_names", "solvers"]

_REFERENCE = "cvxpy"
# A new built-in route needs one line here and its package.
_BUILT_IN = {
    "bregman": "bregopt.routes.projection:Bregman",
    "path": "bregopt.routes.ipm.path_route:Path",
    "psdboost": "bregopt.routes.matrix_generation:PSDBoost",
    "lowrank": "bregopt.routes.burer_monteiro:LowRankRoute",
    "definiteboost": "bregopt.routes.definiteboost:DefiniteBoost",
    _REFERENCE: "bregopt.routes.reference:Reference",
}
_ENTRY_POINTS = "bregopt.solvers"
_REQUIRED = ("name", "summary", "citation", "capabilities", "Settings", "refusal", "choice", "solve")

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
    names = [name for name in _BUILT_IN if name != _REFERENCE]
    names += [name for name in _registered if name not in _BUILT_IN]
    return [*names, _REFERENCE]


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
