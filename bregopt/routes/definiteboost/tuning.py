"""The numerical constants of DefiniteBoost."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.tuning import Tuning

__all__ = ["DefiniteBoostTuning"]


@dataclass(frozen=True, kw_only=True)
class DefiniteBoostTuning(Tuning):
    """Constants of DefiniteBoost, besides those of every method."""
