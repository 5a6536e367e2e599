"""The minimizer of a linear function and the LogDet divergence, as a function of a spectrum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.cache import cached_property
from bregopt.divergences.spectrum import DifferenceSpectrum
from bregopt.records import dataclass

__all__ = ["ReciprocalSpectrum", "reciprocal_spectrum"]


@dataclass(frozen=True, eq=False)
class ReciprocalSpectrum(DifferenceSpectrum):
    """``X = V diag(1 / theta) V'``, of the LogDet divergence.

    With ``X0 = L L'`` the minimizer of ``<W, X> + mu D(X, X0)`` is ``L inv(M) L'`` for
    ``M = I + L'W L / mu = Q diag(theta) Q'``, so that ``V = L Q``. As ``W`` changes by ``-S``, ``X``
    changes by ``X S X / mu``.

    Parameters
    ----------
    theta : array of shape (n,), ascending
        Positive.
    V : array of shape (n, n)
        Not orthogonal, unlike those of other divergences.
    mu : float
    """

    theta: Array
    V: Array
    mu: float

    @cached_property
    def differences(self) -> Array:
        """Minus the divided differences of the reciprocal, divided by ``mu``."""
        reciprocal = 1 / self.theta
        return np.outer(reciprocal, reciprocal / self.mu)

    @property
    def X(self) -> Array:
        half = self.V / np.sqrt(self.theta)
        X: Array = half @ half.T
        return X

    @property
    def term(self) -> float:
        return self.mu * float(np.log(self.theta).sum())

    @property
    def typical_derivative(self) -> float:
        return 0.0  # no point is singular, so no row lacks curvature

    def reach(self, S: Any) -> float:
        """Return the least step at which ``W`` changed by ``-S`` has no minimizer; infinite without one."""
        scaled = self.V / np.sqrt(self.theta)
        largest = float(np.linalg.eigvalsh(scaled.T @ (S @ scaled))[-1]) / self.mu
        return 1 / largest if largest > 0 else math.inf


def reciprocal_spectrum(L: Array, W: Array, mu: float) -> ReciprocalSpectrum | None:
    """Return the minimizer of ``<W, X> + mu D(X, L L')``, None where there is none."""
    half = L.T @ (W / mu) @ L
    theta, Q = np.linalg.eigh(np.eye(len(W)) + (half + half.T) / 2)
    return ReciprocalSpectrum(theta, L @ Q, mu) if theta[0] > 0 else None
