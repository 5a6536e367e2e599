"""The method that solves many small nearness problems at once: what it takes, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bregopt.divergences.stacks import STACKED
from bregopt.errors import is_one_of
from bregopt.routes.options import own_options, own_settings
from bregopt.routes.registry import load

__all__ = ["METHOD", "has_method", "stack_settings"]

METHOD = "bregman"
_OPTIONS = frozenset({"solver", "tol", "max_iter", "time_limit", "seed", "rank_tol"})  # that it has too


def has_method(divergence: str, options: Mapping[str, Any]) -> bool:
    """Whether the stacked method takes the divergence and the options."""
    known = options.keys() <= _OPTIONS and is_one_of(options.get("solver", "auto"), ("auto", METHOD))
    return known and divergence in STACKED and hasattr(load(METHOD), "solve_stack")


def stack_settings(options: Mapping[str, Any]) -> Any:
    """Return the settings of the stacked method."""
    own = {name: value for name, value in options.items() if name != "solver"}
    return own_settings(load(METHOD), own_options(METHOD, own))
