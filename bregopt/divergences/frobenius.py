"""The squared Frobenius distance, plain and with elementwise weights; no half in front."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences.spectrum import PositiveSpectrum

__all__ = ["Frobenius", "WeightedFrobenius", "psd_part"]


def psd_part(Y: Array) -> Array:
    """Return the nearest positive semidefinite matrix to the symmetric `Y`."""
    eigenvalues, Q = np.linalg.eigh(Y)
    positive = eigenvalues > 0
    Q = Q[:, positive]
    X: Array = (Q * eigenvalues[positive]) @ Q.T
    return X


class Frobenius:
    """``||X - X0||_F^2`` from a symmetric `X0` of shape ``(n, n)``, which need not be psd."""

    name: ClassVar[str] = "frobenius"
    infinite_outside_cone: ClassVar[bool] = False

    def __init__(self, X0: Array) -> None:
        self.X0 = X0
        self.square = float(np.vdot(X0, X0))

    @property
    def unit(self) -> float:
        return self.square

    def value(self, X: Array) -> float:
        return float(np.linalg.norm(X - self.X0) ** 2)

    def gradient(self, X: Array) -> Array:
        return 2 * (X - self.X0)

    def minimiser(self, W: Array, mu: float) -> Array | None:
        return psd_part(self.X0 - W / (2 * mu))

    def spectrum(self, W: Array, mu: float) -> PositiveSpectrum:
        """Return the minimiser of ``<W, X> + mu D(X, X0)``."""
        theta, V = np.linalg.eigh(self.X0 - W / (2 * mu))
        return PositiveSpectrum(theta, V, mu, self.square)

    def dual_term(self, W: Array, mu: float, X: Array) -> float:
        eigenvalues = np.linalg.eigvalsh(self.X0 - W / (2 * mu))
        return mu * (self.square - float(np.sum(np.maximum(eigenvalues, 0.0) ** 2)))


class WeightedFrobenius:
    """``||H o (X - X0)||_F^2`` with positive elementwise weights `H` of shape ``(n, n)``."""

    name: ClassVar[str] = "weighted_frobenius"
    infinite_outside_cone: ClassVar[bool] = False

    def __init__(self, X0: Array, H: Array) -> None:
        self.X0, self.H = X0, H

    @property
    def unit(self) -> float:
        return float(np.linalg.norm(self.H * self.X0) ** 2)

    def value(self, X: Array) -> float:
        return float(np.linalg.norm(self.H * (X - self.X0)) ** 2)

    def gradient(self, X: Array) -> Array:
        return 2 * self.H**2 * (X - self.X0)

    def dual_term(self, W: Array, mu: float, X: Array) -> float:
        # For any psd S, dropping <S, X> >= 0 leaves an unconstrained quadratic; the best S is the
        # gradient at the optimum, so the bound is tight there and valid everywhere.
        S = psd_part(W + mu * self.gradient(X))
        rest = W - S
        if not np.isfinite(rest).all():
            return -math.inf
        return float(np.vdot(rest, self.X0) - np.sum((rest / self.H) ** 2) / (4 * mu))
