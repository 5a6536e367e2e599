"""Spectral functions over matrices below a cap, ``0 <= X <= c I``: eigenvalues are clipped."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bregopt.arrays import Array
from bregopt.cache import cached_property
from bregopt.divergences.spectrum import DifferenceSpectrum, Spectrum
from bregopt.records import dataclass

__all__ = ["CappedSpectrum"]


class _Differentiable(Spectrum, Protocol):
    """A spectrum with the divided differences of its function."""

    @property
    def differences(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class CappedSpectrum(DifferenceSpectrum):
    """The minimizer over ``0 <= X <= c I``: ``X = V f(min(theta, tau)) V'`` with ``f(tau) = c``.

    The divided differences of the composition are products of those of ``f`` and of ``min(., tau)``. At
    ``tau`` they give a generalized derivative.

    Parameters
    ----------
    theta : array of shape (n,), ascending
    below : Spectrum
        That of ``min(theta, tau)``, with divided differences.
    price : float
        The decrease of the minimum for each unit of an eigenvalue above ``tau``: ``c`` times the derivative
        of a diagonal entry of ``W`` in ``theta``.
    """

    theta: Array
    below: _Differentiable
    price: float

    @property
    def V(self) -> Array:  # type: ignore[override]
        return self.below.V

    @property
    def X(self) -> Array:
        return self.below.X

    @property
    def term(self) -> float:
        return self.below.term - self.price * float((self.theta - self.below.theta).sum())

    @property
    def typical_derivative(self) -> float:
        return self.below.typical_derivative

    @cached_property
    def differences(self) -> Array:
        """The divided differences of the capped function, divided by ``mu``."""
        free = self.theta == self.below.theta
        gap, moved = (np.abs(a[:, None] - a) for a in (self.theta, self.below.theta))
        ratio = np.divide(moved, gap, out=np.zeros_like(gap), where=gap > 0)
        return self.below.differences * np.where(free[:, None] & free, 1.0, ratio)
