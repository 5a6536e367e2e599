"""Divergences ``tr phi(X) - tr phi(X0) - <phi'(X0), X - X0>`` of a scalar function ``phi``."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import Array
from bregopt.divergences.base import UNITS, Divergence, error_of_slope
from bregopt.divergences.spectrum import CappedSpectrum, DifferenceSpectrum, divided_differences
from bregopt.records import cached_property, dataclass

__all__ = ["TraceDivergence", "TraceSpectrum"]

_CLOSE = 1e-5  # relative distance of two arguments up to which a mean slope is their divided difference


class TraceDivergence(Divergence):
    """The Bregman divergence of ``tr phi(X)``, with ``phi`` applied to the eigenvalues.

    A subclass defines four functions of arrays of numbers. The divergence and all that Newton's method on
    the dual needs follow from them. A singular ``X0`` is allowed where ``phi'`` is finite at zero.
    """

    takes_cap: ClassVar[bool] = True

    def __init__(self, X0: Array) -> None:
        x0, Q = np.linalg.eigh(X0)
        slope = self.slope(x0)
        if not np.isfinite(slope).all() or not np.isfinite(self.function(x0)).all():
            raise np.linalg.LinAlgError(f"X0 is outside the domain of {self.phrase()}")
        self.slope_X0: Array = (Q * slope) @ Q.T
        self.constant = float(x0 @ slope - self.function(x0).sum())
        self.typical_derivative = float(np.mean(1 / self.curvature(np.maximum(x0, 0.0))))
        twice: Array = 2 * np.maximum(x0, 0.0)
        self._unit = float(np.sum(self.function(twice)) - twice @ slope) + self.constant
        self._error_of_slope = error_of_slope(x0, Q, self.slope)
        size: Array = (Q * np.abs(x0)) @ Q.T  # the derivative of the constant is X0 phi''(X0)
        self._error_of_constant = float(np.vdot(self._error_of_slope, size)) + UNITS * abs(self.constant)

    @abstractmethod
    def function(self, x: Array) -> Array:
        """Return ``phi(x)``, infinite outside its domain."""
        ...

    @abstractmethod
    def slope(self, x: Array) -> Array:
        """Return ``phi'(x)``."""
        ...

    @abstractmethod
    def curvature(self, x: Array) -> Array:
        """Return ``phi''(x)``, for ``x >= 0``."""
        ...

    @abstractmethod
    def conjugate_slope(self, theta: Array) -> Array:
        """Return the ``x >= 0`` that maximizes ``theta x - phi(x)``; infinite where there is none."""
        ...

    @property
    def unit(self) -> float:
        return self._unit  # D(2 X0, X0), for psd X0

    def value(self, X: Array) -> float:
        eigenvalues: Any = np.linalg.eigvalsh(X)
        own = float(self.function(eigenvalues).sum())
        return own - float(np.vdot(self.slope_X0, X)) + self.constant if math.isfinite(own) else math.inf

    def evaluation_error(self, X: Array) -> float:
        if not np.isfinite(X).all():
            return math.inf
        x: Any = np.linalg.eigvalsh(X)
        reach = UNITS * float(np.abs(x).max())
        own = reach * float(np.abs(self.slope(np.maximum(x, reach))).sum())
        error = own + float(np.vdot(self._error_of_slope, X)) + self._error_of_constant
        return error if math.isfinite(error) else math.inf

    def gradient(self, X: Array) -> Array:
        eigenvalues, Q = np.linalg.eigh(X)
        gradient: Array = (Q * self.slope(eigenvalues)) @ Q.T - self.slope_X0
        return gradient

    def anchor_derivative(self, S: Array) -> Array:
        theta, Q = np.linalg.eigh(self.slope_X0)
        x = self.conjugate_slope(theta)
        slopes = divided_differences(x, theta, self.curvature(x), _CLOSE)
        derivative: Array = Q @ (slopes * (Q.T @ S @ Q)) @ Q.T
        return derivative

    def dual_term(self, W: Array, mu: float, X: Array, cap: float | None = None) -> float:
        spectrum = self.spectrum(W, mu, cap)
        return -math.inf if spectrum is None else spectrum.term

    def spectrum(
        self, W: Array, mu: float, cap: float | None = None
    ) -> TraceSpectrum | CappedSpectrum | None:
        theta, V = np.linalg.eigh(self.slope_X0 - W / mu)
        below = theta if cap is None else np.minimum(theta, self.slope(np.array([cap])))
        x = self.conjugate_slope(below)
        if not np.isfinite(x).all():
            return None
        spectrum = TraceSpectrum(below, V, mu, x, self)
        return spectrum if cap is None else CappedSpectrum(theta, spectrum, mu * cap)


@dataclass(frozen=True, eq=False)
class TraceSpectrum(DifferenceSpectrum):
    """``X = V diag(x) V'`` with ``x`` the conjugate's slope at ``theta``.

    Parameters
    ----------
    theta, x : array of shape (n,), ascending
    V : array of shape (n, n)
    mu : float
    divergence : TraceDivergence
    """

    theta: Array
    V: Array
    mu: float
    x: Array
    divergence: TraceDivergence

    @cached_property
    def differences(self) -> Array:
        slope = np.where(self.x > 0, 1 / self.divergence.curvature(self.x), 0.0)
        return divided_differences(self.theta, self.x, slope, _CLOSE) / self.mu

    @property
    def bends(self) -> tuple[float, ...]:
        end = float(self.divergence.slope(np.zeros(1))[0])
        return (end,) if math.isfinite(end) else ()

    @property
    def X(self) -> Array:
        half = self.V * np.sqrt(self.x)
        X: Array = half @ half.T
        return X

    @property
    def term(self) -> float:
        least = float(self.divergence.function(self.x).sum() - self.theta @ self.x)
        return self.mu * (least + self.divergence.constant)

    @property
    def typical_derivative(self) -> float:
        return self.divergence.typical_derivative / self.mu
