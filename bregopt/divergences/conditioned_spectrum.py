"""Minimizers with clipped eigenvalues, ``t <= x <= kappa t``, and their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bregopt.arrays import EPS, Array, Mask
from bregopt.cache import cached_property
from bregopt.divergences.spectrum import Product
from bregopt.divergences.trace_function import TraceSpectrum
from bregopt.records import dataclass

__all__ = ["ConditionedSpectrum"]

_CLOSE = 1e-8  # relative distance of two arguments up to which a mean slope is their divided difference


@dataclass(frozen=True, eq=False)
class ConditionedSpectrum(TraceSpectrum):
    """``X = V diag(x) V'`` with ``x = clip(f(theta), t, kappa t)``, and ``t`` moving with ``theta``.

    Parameters
    ----------
    t, condition : float
        The level, and ``kappa``.
    moves : bool
        Whether ``t`` moves with ``theta``, as it is above the floor.
    """

    t: float
    condition: float
    moves: bool

    @property
    def bends(self) -> tuple[float, ...]:
        kappa, ends = self.condition, [self.t]
        if math.isfinite(kappa):
            ends = [self.t, kappa * self.t]
            if self._free.all() and self.moves:  # any t between these two would do
                ends = [float(self.x[-1]) / kappa, kappa * float(self.x[0])]
        return tuple(self.divergence.slope(np.array(ends)).tolist())

    @cached_property
    def _free(self) -> Mask:
        free: Mask = self.divergence.conjugate_slope(self.theta) == self.x
        return free

    @cached_property
    def differences(self) -> Array:
        """The divided differences of ``clip(f(.), t, kappa t)`` at a fixed ``t``, divided by ``mu``."""
        theta, x = self.theta, self.x
        gap = theta[:, None] - theta
        close = np.abs(gap) <= _CLOSE * (np.abs(theta[:, None]) + np.abs(theta))
        difference = (x[:, None] - x) / np.where(close, 1.0, gap)
        slope = np.where(self._free, 1 / self.divergence.curvature(np.maximum(x, EPS)), 0.0)
        return np.where(close, (slope[:, None] + slope) / 2, difference) / self.mu

    @cached_property
    def _move(self) -> Array:
        """The derivative of ``x`` in ``t`` over the root of its cost; zero where ``t`` is the floor."""
        if not self.moves:
            return np.zeros_like(self.x)
        low = ~self._free & (self.x <= self.t)
        move = np.where(self._free, 0.0, np.where(low, 1.0, self.condition))
        cost = float(np.sum(move**2 * self.divergence.curvature(self.x)))
        return move / math.sqrt(cost * self.mu) if cost > 0 else move

    @cached_property
    def _moved(self) -> Array:
        """The derivative of ``X`` in ``t``, divided likewise."""
        moved: Array = (self.V * self._move) @ self.V.T
        return moved

    def derivative(self, S: Any) -> Product:
        fixed = super().derivative(S)
        if not self._move.any():
            return fixed
        rate = float((S.multiply(self._moved)).sum() if hasattr(S, "multiply") else np.vdot(S, self._moved))
        return Product(fixed.share, fixed.L, fixed.R, rate * self._moved)

    def curvature(self, Q: Array) -> Array:
        return super().curvature(Q) + (Q**2 @ self._move) ** 2

    def entry_curvature(self) -> Array:
        own = self._moved
        return super().entry_curvature() + own.diagonal()[:, None] * own.diagonal()
