"""The numerical constants of the interior-point method."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.tuning import WorkingSetTuning

__all__ = ["InteriorPointTuning"]


@dataclass(frozen=True, kw_only=True)
class InteriorPointTuning(WorkingSetTuning):
    """Constants of the interior-point method, besides those of the working set."""
