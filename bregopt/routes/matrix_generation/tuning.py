"""The numerical constants of matrix generation."""

from __future__ import annotations

from dataclasses import dataclass

from bregopt.routes.ipm.tuning import InteriorPointTuning
from bregopt.routes.tuning import Tuning

__all__ = ["MatrixGenerationTuning"]


@dataclass(frozen=True, kw_only=True)
class MatrixGenerationTuning(Tuning):
    """Constants of matrix generation, besides those of every method.

    Parameters
    ----------
    interior : InteriorPointTuning
        Constants of the interior-point method that solves its masters.
    """

    interior: InteriorPointTuning = InteriorPointTuning()
