"""Families of problems whose optimum is known by construction, attained or not; a chapter for each kind."""

from __future__ import annotations

import numpy as np

from families.case import Case
from families.conditions import divergence_cases, log_det_cases, mirrored_cases, spectral_cases
from families.correlations import correlation_cases, free_entry_cases
from families.linear import complementary_cases, cut_cases, feasibility_cases, game_cases
from families.nearness import nearness_cases
from families.no_interior import hard_cases, ill_posed_cases

__all__ = ["FAMILIES", "Case", "cases"]

FAMILIES = (
    complementary_cases,
    feasibility_cases,
    cut_cases,
    game_cases,
    nearness_cases,
    hard_cases,
    ill_posed_cases,
    mirrored_cases,
    spectral_cases,
    divergence_cases,
    log_det_cases,
    correlation_cases,
    free_entry_cases,
)


def cases(seed: int = 0, count: int = 20) -> list[Case]:
    """Return all families, with this many draws of each kind."""
    found: list[Case] = []
    for k, family in enumerate(FAMILIES):
        found += family(np.random.default_rng([seed, k]), count)
    return found
