"""Bounds that are theorems: every rounding of the proof is bounded, so that no optimum lies outside them."""

from bregopt.rigorous.ball import Ball
from bregopt.rigorous.data import Data
from bregopt.rigorous.implied import Implied, implied_bounds
from bregopt.rigorous.listing import data_of
from bregopt.rigorous.lower import lower_bound
from bregopt.rigorous.proof import Candidate, Proven, best_lower, best_upper
from bregopt.rigorous.reduction import Reduced, reduced
from bregopt.rigorous.side import Side
from bregopt.rigorous.upper import Point, feasible_near, upper_bound

__all__ = [
    "Ball",
    "Candidate",
    "Data",
    "Implied",
    "Point",
    "Proven",
    "Reduced",
    "Side",
    "best_lower",
    "best_upper",
    "data_of",
    "feasible_near",
    "implied_bounds",
    "lower_bound",
    "reduced",
    "upper_bound",
]
