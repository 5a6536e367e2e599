"""Bounds that are theorems: every rounding of the proof is bounded, so that no optimum lies outside them."""

from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data, data_of
from bregopt.rigorous.implied import Implied, implied_bounds
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.proof import Candidate, Proven, best_lower, best_upper
from bregopt.rigorous.ranges import OnRanges, on_ranges
from bregopt.rigorous.side import Side
from bregopt.rigorous.upper import Point, feasible_near, upper_bound

__all__ = [
    "Ball",
    "Candidate",
    "Data",
    "Implied",
    "OnRanges",
    "Point",
    "Proven",
    "Side",
    "best_lower",
    "best_upper",
    "data_of",
    "feasible_near",
    "implied_bounds",
    "lower_bound",
    "on_ranges",
    "upper_bound",
]
