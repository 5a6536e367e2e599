"""The numerical constants of the low-rank method."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.tuning import Tuning

__all__ = ["BurerMonteiroTuning"]


@dataclass(frozen=True, kw_only=True)
class BurerMonteiroTuning(Tuning):
    """Constants of the low-rank method, besides those of every method."""
