"""Arguments of ready-made problems: their own, and the options that they pass to a solver.

The stacked method solves many small nearness problems at once: what it takes, and its settings, are here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from bregopt.divergences.stacks import STACKED
from bregopt.errors import did_you_mean, is_one_of
from bregopt.program.entry_stack import EntryStack
from bregopt.routes.options import option_names, own_settings
from bregopt.routes.registry import load, route

__all__ = ["METHOD", "PANEL", "check_arguments", "has_method", "stack_answer", "stack_settings"]

PANEL = ("executor", "progress", "warm_start")  # options of a stack
_OF_SOLVE = ("solver", "warm_start")  # arguments of Problem.solve that are no options of a solver
METHOD = "bregman"
_OF_STACKS = frozenset({"solver", "tol", "max_iter", "time_limit", "seed", "rank_tol"})  # that it has too


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


def has_method(divergence: str, options: Mapping[str, Any]) -> bool:
    """Whether the stacked method takes the divergence and the options."""
    known = options.keys() <= _OF_STACKS and is_one_of(options.get("solver", "auto"), ("auto", METHOD))
    return known and divergence in STACKED and hasattr(load(METHOD), "solve_stack")


def stack_settings(options: Mapping[str, Any]) -> Any:
    """Return the settings of the stacked method."""
    own = {name: value for name, value in options.items() if name != "solver"}
    if not own:
        return load(METHOD).Settings()
    return own_settings(load(METHOD), own)


def stack_answer(stack: EntryStack, settings: Any, start: Any = None) -> Any:
    """Return the answers of the stacked method; None if LAPACK fails for a problem, as others follow."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # multipliers may diverge
            return route(METHOD).solve_stack(stack, settings, start)
    except np.linalg.LinAlgError:
        return None
