"""The numerical constants of the projection methods."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.tuning import WorkingSetTuning

__all__ = ["ProjectionTuning"]


@dataclass(frozen=True, kw_only=True)
class ProjectionTuning(WorkingSetTuning):
    """Constants of the projection methods, besides those of the working set.

    Parameters
    ----------
    interior : InteriorPointTuning
        Constants of the interior-point method for LogDet.
    """

    interior: InteriorPointTuning = InteriorPointTuning()
