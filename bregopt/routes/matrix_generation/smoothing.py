"""Dual smoothing: the priced multipliers are between the best so far and the master's (Wentges 1997)."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array
from bregopt.program import LowRank, Program

__all__ = ["Smoothing"]

_FIRST, _MOST = 0.8, 0.98
_UP, _DOWN = 0.1, 0.1


class Smoothing:
    """The weight of the best multipliers so far in the priced ones.

    The automatic rule is that of Pessoa, Sadykov, Uchoa and Vanderbeck (2018): if the bound increases from
    the priced multipliers towards the master's, the weight was too large.

    Parameters
    ----------
    weight : float in [0, 1) or "auto"
    """

    def __init__(self, weight: float | str) -> None:
        self._automatic = isinstance(weight, str)
        self.weight = _FIRST if isinstance(weight, str) else float(weight)

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
            self.weight = max(self.weight - _DOWN, 0.0)
        else:
            self.weight = min(self.weight + _UP * (1 - self.weight), _MOST)
