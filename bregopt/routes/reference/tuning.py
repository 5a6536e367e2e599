"""The numerical constants of the reference."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.tuning import Tuning

__all__ = ["ReferenceTuning"]


@dataclass(frozen=True, kw_only=True)
class ReferenceTuning(Tuning):
    """Constants of the reference, besides those of every method."""
