"""Minimizers as spectral functions ``X = V f(theta) V'``, their derivatives, and the same below a cap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.linalg import symmetrize
from bregopt.records import cached_property, dataclass, replace


@dataclass(frozen=True, eq=False)
class Product:
    """The symmetric matrix ``share S + (L R' + R L') / 2 + M``, for the direction ``S`` it was made from."""

    share: float
    L: Array
    R: Array
    M: Array | None = None

    def unsymmetric(self, S: Array) -> Array:
        """Return ``share S + L R' + M``, whose symmetric part is the matrix."""
        F: Array = self.L @ self.R.T
        if self.share:
            F += self.share * S
        if self.M is not None:
            F += self.M
        return F

    def matrix(self, S: Array) -> Array:
        """Return the matrix."""
        return symmetrize(self.unsymmetric(S))


class DifferenceSpectrum(ABC):
    """The derivative of ``V f(theta) V'`` by the divided differences of ``f`` (Daletskii and Krein).

    Attributes
    ----------
    V : array of shape (n, n)
        The eigenvectors, in the columns; for LogDet, their images under the factor of ``X0``.
    """

    V: Array

    @property
    @abstractmethod
    def typical_derivative(self) -> float:
        """Typical magnitude of the derivative of an entry of the minimizer in the same entry of ``W``.

        It bounds curvatures from below; zero where no minimizer is singular.
        """

    @property
    @abstractmethod
    def differences(self) -> Array:
        """The divided differences of ``f``, divided by ``mu``, shape ``(n, n)``."""

    @property
    def bends(self) -> tuple[float, ...]:
        """The arguments at which ``f`` has no derivative."""
        return ()

    def derivative(self, S: Any) -> Product:
        """Return the directional derivative of the minimizer as ``W`` changes by ``-S``, dense or sparse."""
        inside = self.differences * (self.V.T @ (S @ self.V))
        return Product(0.0, self.V @ inside, self.V)

    def curvature(self, Q: Array) -> Array:
        """Return ``<zz', derivative(zz')>`` for each row ``q = z'V`` of `Q`."""
        square = Q**2
        curvature: Array = np.einsum("ri,ri->r", square @ self.differences, square)
        return curvature

    def entry_curvature(self) -> Array:
        """Return ``sum_ab F_ab V_ia^2 V_jb^2`` for all entries, with ``F`` the divided differences of ``f``.

        On the diagonal it is the curvature along ``e_i e_i'``, elsewhere about twice that along an entry.
        """
        square = self.V**2
        return square @ self.differences @ square.T


class Spectrum(DifferenceSpectrum):
    """The minimizer ``V f(theta) V'`` of ``<W, X> + mu D(X, X0)``, for one ``W``.

    Attributes
    ----------
    theta : array of shape (n,), ascending
        The eigenvalues that ``f`` maps to those of the minimizer.
    """

    theta: Array

    @property
    @abstractmethod
    def X(self) -> Array:
        """The minimizer itself, shape ``(n, n)``."""

    @property
    @abstractmethod
    def term(self) -> float:
        """The minimum."""


def divided_differences(x: Array, f: Array, slope: Array, close: float) -> Array:
    """Return ``(f(a) - f(b)) / (a - b)`` for all pairs of `x`, shape ``(n, n)``.

    At a relative distance of up to `close` the mean of the slopes is more accurate, and is returned.
    """
    gap = x[:, None] - x
    near = np.abs(gap) <= close * (np.abs(x[:, None]) + np.abs(x))
    difference = (f[:, None] - f) / np.where(near, 1.0, gap)
    return np.where(near, (slope[:, None] + slope) / 2, difference)


def exp_divided_differences(theta: Array) -> Array:
    """Return ``(e^a - e^b)/(a - b)`` for all pairs of `theta`, stable where ``a`` and ``b`` are close.

    To avoid overflow, shift `theta` to be at most zero. Of a stack of shape ``(..., n)`` the pairs of each.
    """
    left, right = theta[..., :, None], theta[..., None, :]
    gap = np.abs(left - right)
    top = np.exp(np.maximum(left, right))
    close = gap < 1e-8
    return top * np.where(close, 1 - gap / 2, -np.expm1(-gap) / np.where(close, 1.0, gap))


@dataclass(frozen=True, eq=False)
class ExponentialSpectrum(Spectrum):
    """``X = exp(V diag(theta) V')``, of von Neumann's divergence (Kulis et al. 2009, §3).

    Parameters
    ----------
    theta : array of shape (n,), ascending
    V : array of shape (n, n)
    mu : float
    trace : float
        Of ``X0``.
    """

    theta: Array
    V: Array
    mu: float
    trace: float

    @cached_property
    def differences(self) -> Array:
        """The divided differences of the exponential, divided by ``mu``."""
        top = float(self.theta[-1])
        return np.exp(top) / self.mu * exp_divided_differences(self.theta - top)

    @property
    def X(self) -> Array:
        half = self.V * np.exp(self.theta / 2)
        X: Array = half @ half.T
        return X

    @property
    def term(self) -> float:
        return self.mu * (self.trace - float(np.exp(self.theta).sum()))

    @property
    def typical_derivative(self) -> float:
        return self.trace / len(self.theta) / self.mu


@dataclass(frozen=True, eq=False)
class PositiveSpectrum(Spectrum):
    """``X = (V diag(theta) V')_+``, of the squared Frobenius distance.

    The generalized derivative (Qi and Sun 2006) needs products with the eigenvectors of the smaller sign
    group only: the derivatives of the positive and the negative part add up to the direction.

    Parameters
    ----------
    theta : array of shape (n,), ascending
    V : array of shape (n, n)
    mu : float
    linear : float
        The minimum less the part of the negative eigenvalues: ``<X0 - W / (4 mu), W>`` over all psd matrices.
    """

    theta: Array
    V: Array
    mu: float
    linear: float

    @property
    def bends(self) -> tuple[float, ...]:
        return (0.0,)

    @cached_property
    def negative(self) -> int:
        """The number of eigenvalues that are not positive."""
        return int(np.searchsorted(self.theta, 0.0, side="right"))

    @property
    def X(self) -> Array:
        half = self.V[:, self.negative :] * np.sqrt(self.theta[self.negative :])
        X: Array = half @ half.T
        return X

    @property
    def term(self) -> float:
        negative = self.theta[: self.negative]
        return self.mu * float(negative @ negative) + self.linear

    def shifted(self, s: float) -> PositiveSpectrum:
        """Return the minimizer as ``W`` grows by ``2 mu s I``: the eigenvectors stay."""
        linear = self.linear + self.mu * s * (2 * float(self.theta.sum()) - len(self.theta) * s)
        return replace(self, theta=self.theta - s, linear=linear)

    @property
    def typical_derivative(self) -> float:
        return 1 / (2 * self.mu)

    def derivative(self, S: Any) -> Product:
        k, n = self.negative, len(self.theta)
        positive_small = n - k <= k or n < len(self.V)  # on a face they add up to less
        few, many = (slice(k, n), slice(0, k)) if positive_small else (slice(0, k), slice(k, n))
        P, N = self.V[:, few], self.V[:, many]
        a, b = np.abs(self.theta[few]), np.abs(self.theta[many])
        half = S @ P
        mixed = (N.T @ half) * (a / np.maximum(a + b[:, None], TINY))
        L = P @ (P.T @ half) + 2 * (N @ mixed)
        sign = 1.0 if positive_small else -1.0
        return Product((1 - sign) / 2 / (2 * self.mu), sign / (2 * self.mu) * L, P)

    def curvature(self, Q: Array) -> Array:
        n, p = Q[:, : self.negative] ** 2, Q[:, self.negative :] ** 2
        return (p.sum(axis=1) ** 2 + 2 * np.einsum("ri,ri->r", p @ self._mixed, n)) / (2 * self.mu)

    def entry_curvature(self) -> Array:
        n, p = self.V[:, : self.negative] ** 2, self.V[:, self.negative :] ** 2
        half, total = p @ self._mixed @ n.T, p.sum(axis=1)
        return (np.outer(total, total) + half + half.T) / (2 * self.mu)

    @property
    def differences(self) -> Array:
        """The divided differences of the positive part, divided by ``2 mu``, shape ``(n, n)``."""
        k = self.negative
        differences = np.zeros((len(self.theta), len(self.theta)))
        differences[k:, k:] = 1.0
        differences[k:, :k], differences[:k, k:] = self._mixed, self._mixed.T
        return differences / (2 * self.mu)

    @cached_property
    def _mixed(self) -> Array:
        """The divided differences of a positive and a negative eigenvalue."""
        positive, negative = self.theta[self.negative :], -self.theta[: self.negative]
        gap = positive[:, None] + negative
        return positive[:, None] / np.maximum(gap, TINY)


@dataclass(frozen=True, eq=False)
class CappedSpectrum(Spectrum):
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
    below: Spectrum
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
