"""Dual smoothing: the priced multipliers are between the best so far and the master's (Wentges 1997)."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array
from bregopt.program import LowRank, Program
from bregopt.routes.matrix_generation.tuning import MatrixGenerationTuning

__all__ = ["Smoothing"]


class Smoothing:
    """The weight of the best multipliers so far in the priced ones.

    The automatic rule is that of Pessoa, Sadykov, Uchoa and Vanderbeck (2018): if the bound increases from
    the priced multipliers towards the master's, the weight was too large.

    Parameters
    ----------
    weight : float in [0, 1) or "auto"
    tuning : MatrixGenerationTuning
    """

    def __init__(self, weight: float | str, tuning: MatrixGenerationTuning) -> None:
        self._automatic, self._tuning = isinstance(weight, str), tuning
        self.weight = tuning.first_smoothing if isinstance(weight, str) else float(weight)

    def between(self, best: Array, own: Array) -> Array:
        """Return the multipliers to price."""
        return self.weight * best + (1 - self.weight) * own

    def learn(self, program: Program, X: LowRank, u: Array, priced: Array, best: Array, own: Array) -> None:
        """Adapt the weight to the slope of the bound at the priced multipliers.

        Parameters
        ----------
        program : Program
        X : LowRank
            The best matrix for the priced multipliers.
        u : array of shape (k,)
        priced, best, own : array of shape (m,)
            Multipliers.
        """
        if not self._automatic:
            return
        bounds = program.bounds
        acting = np.where(priced > 0, bounds.lo, bounds.hi)
        acting = np.where(np.isfinite(acting), acting, np.where(np.isfinite(bounds.lo), bounds.lo, bounds.hi))
        rise = float((acting - program.activity((X,), u)) @ (own - best))
        if rise > 0:
            self.weight = max(self.weight - self._tuning.smoothing_decrease, 0.0)
        else:
            larger = self.weight + self._tuning.smoothing_increase * (1 - self.weight)
            self.weight = min(larger, self._tuning.largest_smoothing)
