"""Arguments of ready-made problems: their own, and the options that they pass to a solver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bregopt.errors import did_you_mean
from bregopt.routes.options import option_names

__all__ = ["PANEL", "check_arguments"]

PANEL = ("executor", "progress", "warm_start")  # options of a stack
_OF_SOLVE = ("solver", "warm_start")  # arguments of Problem.solve that are no options of a solver


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
