"""Arguments of ready-made problems: their own, the divergence, and the options that they pass to a solver.

The stacked method solves many small nearness problems at once: what it takes, and its settings, are here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from bregopt.divergences import DIVERGENCES, Divergence
from bregopt.divergences.stacks import STACKED
from bregopt.errors import did_you_mean, is_one_of
from bregopt.linalg import is_definite
from bregopt.modeling.convex.expression import CurvedExpression
from bregopt.modeling.objectives import bregman_div
from bregopt.modeling.variables import PSD
from bregopt.program.entry_stack import EntryStack
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.routes.options import option_names, own_settings
from bregopt.routes.registry import load

__all__ = [
    "METHOD",
    "PANEL",
    "check_arguments",
    "check_definite",
    "citation_of",
    "divergence_class",
    "has_method",
    "nearness",
    "stack_answer",
    "stack_settings",
]

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
    return own_settings(load(METHOD), own)


def citation_of(divergence: str) -> str:
    """Return the reference of the stacked method for a divergence."""
    method: Any = load(METHOD)
    citation: str = method.citation_of(divergence)
    return citation


def stack_answer(stack: EntryStack, settings: Any, start: Any = None) -> Any:
    """Return the answers of the stacked method; None if LAPACK fails for a problem, as others follow."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # multipliers may diverge
            method: Any = load(METHOD)()
            return method.solve_stack(stack, settings, start)
    except np.linalg.LinAlgError:
        return None


def divergence_class(divergence: Any, norms: Iterable[str] = ()) -> type[Divergence]:
    """Return the class of a divergence by the name that a user gives; messages also name the `norms`."""
    if not is_one_of(divergence, DIVERGENCES):
        known = (*DIVERGENCES, *norms)
        raise ValueError(f"divergence is {divergence!r}{did_you_mean(str(divergence), known)}")
    return DIVERGENCES[divergence]


def nearness(divergence: str, X: PSD, X0: Matrix, name: str, **parameters: Any) -> CurvedExpression:
    """Return the divergence of `X` from `X0`; messages call `X0` by the `name` of the user's argument."""
    kind = divergence_class(divergence)
    if isinstance(X0, LowRank):
        if not kind.keeps_range:
            refused = f"whose range {kind.__name__} does not keep"
            raise TypeError(f"{name} is LowRank, {refused}: pass {name}.dense()")
    elif kind.definite_start:
        check_definite(X0, name, divergence)
    return bregman_div(X, X0, divergence, **parameters)


def check_definite(X0: Any, name: str, divergence: str) -> None:
    """Refuse a matrix that is not positive definite."""
    if not is_definite(X0):
        eigenvalues = np.linalg.eigvalsh(X0)
        raise ValueError(
            f"{name} is not positive definite (eigenvalues from {eigenvalues[0]:.3g} to "
            f"{eigenvalues[-1]:.3g}), which "
            f"divergence={divergence!r} needs: use divergence='frobenius', add a multiple of the identity, "
            "or, where it is singular, pass bo.LowRank(factor)"
        )
