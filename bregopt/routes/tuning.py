"""The numerical constants of the methods: where they stand, and what all methods share.

Each method gathers its constants in one frozen dataclass, in the file ``tuning.py`` of its package. The
option ``tuning`` of a route takes another instance. The status of an answer comes from its certificate and
never depends on these constants: a bad choice costs time, or an answer. ``benchmarks/tuning.py`` measures
the effect of each.
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
    farkas_margin : float
        Relative decrease of the multipliers of definite rows before a second test. It moves ``A*(y)`` away
        from the boundary of the cone by more than round-off.
    stall_change : float
        Relative change of the objective that counts as none.
    progress_ratio : float
        Ratio of the error to that at the last progress that counts as progress.
    fall_back_steps : int
        Steps without progress after which a method falls back to its slower form, and after which a method
        stops whose best iterate meets the whole tolerance.
    fall_back_error : float
        Largest error of the best iterate at which a method falls back. Far from the solution a gap may stand
        still although the iterates move on, and no digits are lost yet: 3,000 comparisons in 20 dimensions
        take 15 s instead of 0.4 s in the slower form from the start.
    near_error : float
        Error of the best iterate below which `near_ratio` counts as progress, and a method that counts steps
        without progress waits for `near_steps` steps only: what is left there is round-off. Far from the
        solution progress may resume after many steps.
    near_steps : int
    near_ratio : float
        At 0.5 SDPLIB's hinf1 ends with half a digit less; at 0.9 its quadratic assignments take a tenth more
        steps and gain nothing.
    divergence_ratio : float
        Ratio of the error to that of the best iterate above which a method is stopped.
    """

    farkas_residual: float = 1e-3
    farkas_step: int = 3
    farkas_margin: float = 1e-6
    stall_change: float = 1e-8
    progress_ratio: float = 0.9
    fall_back_steps: int = 4
    fall_back_error: float = 1e-2
    near_error: float = 1e-4
    near_steps: int = 6
    near_ratio: float = 0.8
    divergence_ratio: float = 1e3

    def __post_init__(self) -> None:
        for name in field_names(type(self)):
            _check(name, getattr(self, name), getattr(type(self), name))


@dataclass(frozen=True, kw_only=True)
class WorkingSetTuning(Tuning):
    """Constants of the working set (:mod:`bregopt.routes.working_set`), besides those of every method.

    Parameters
    ----------
    row_violation : float
        Largest violation of a fixed row at the end, relative to its size, as a fraction of the tolerance.
    certificate_share : float
        Fraction of the tolerance that the certificate of all rows has to meet.
    joining_share : float
        Fraction of the violated rows that joins the working set at once, the most violated first.
    joining_growth : float
        Least number of rows that join at once, relative to the working set; at least the order of ``X``.
    first_tol : float
        Tolerance of the first rounds.
    tol_decrease : float
        Tolerance of the next round, relative to the gap of the last.
    least_tol : float
        Least tolerance of a round, relative to the tolerance asked for.
    leaving_gap : float
        Largest gap at which rows leave the working set. Before that multipliers are too inaccurate.
    leaving_distance : float
        Distance of a multiplier from an end of its range below which its row leaves the working set, relative
        to the price of its hinge or, for a hard row, to the largest multiplier.
    rounds : int
        Limit on the number of rounds.
    """

    row_violation: float = 0.1
    certificate_share: float = 0.5
    joining_share: float = 0.1
    joining_growth: float = 0.5
    first_tol: float = 1e-2
    tol_decrease: float = 0.02
    least_tol: float = 1e-3
    leaving_gap: float = 0.1
    leaving_distance: float = 1e-3
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
