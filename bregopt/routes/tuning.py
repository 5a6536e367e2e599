"""The numerical constants of the methods: where they stand, and what all methods share.

Each method gathers the constants that change its steps in one frozen dataclass of its package; others stand
at the head of the chapter that uses them. The option ``tuning`` of a route takes another instance. The status
of an answer comes from its certificate and never depends on these constants: a bad choice costs time, or an
answer. ``benchmarks/tuning.py`` measures the effect of each.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from bregopt.records import dataclass, field_names

__all__ = ["Tuning", "WorkingSetTuning"]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Constants of the termination monitor, which every method has.

    Parameters
    ----------
    farkas_residual : float
        Relative primal residual below which multipliers are tested for a Farkas vector only at steps whose
        number is a power of two. A test costs an eigenvalue.
    farkas_step : int
        First step at which multipliers are tested for a Farkas vector; earlier ones rarely point anywhere.
    progress_ratio : float
        Ratio of the error to that at the last progress that counts as progress.
    near_steps : int
    """

    farkas_residual: float = 1e-3
    farkas_step: int = 3
    progress_ratio: float = 0.9

    def __post_init__(self) -> None:
        for name in field_names(type(self)):
            _check(name, getattr(self, name), getattr(type(self), name))


@dataclass(frozen=True, kw_only=True)
class WorkingSetTuning(Tuning):
    """Constants of the working set (:mod:`bregopt.routes.working_set`), besides those of every method.

    Parameters
    ----------
    joining_share : float
        Fraction of the violated rows that joins the working set at once, the most violated first.
    joining_growth : float
        Least number of rows that join at once, relative to the working set; at least the order of ``X``.
    first_tol : float
        Tolerance of the first rounds.
    rounds : int
        Limit on the number of rounds.
    """

    joining_share: float = 0.1
    joining_growth: float = 0.5
    first_tol: float = 1e-2
    rounds: int = 60


def _check(name: str, value: Any, default: Any) -> None:
    """Refuse a value that is not of the kind of the default, or not positive and finite."""
    if isinstance(default, Tuning):
        if not isinstance(value, type(default)):
            raise TypeError(f"{name} is {value!r}; expected a {type(default).__name__}")
        return
    if isinstance(default, tuple):
        if not isinstance(value, tuple) or not value:
            raise TypeError(f"{name} is {value!r}; expected a tuple of numbers")
        for own in value:
            _check(name, own, default[0])
        return
    whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise TypeError(f"{name} is {value!r}; expected {'an integer' if whole else 'a number'}")
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{name} is {value!r}; expected a positive number")
