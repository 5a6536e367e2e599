"""Divergences ``tr phi(X) - tr phi(X0) - <phi'(X0), X - X0>`` of a scalar function ``phi``, also with bounds.

The bounds are on the condition of ``X``: ``t I <= X <= kappa t I`` for some ``t`` from a floor. These ``X``
are a closed convex set that depends on eigenvalues alone. For eigenvalues ``theta`` of ``phi'(X0) - W / mu``
the minimizer has the eigenvalues ``clip(f(theta), t, kappa t)``, with ``f`` the inverse of ``phi'``. Its
``t`` is the root of the increasing function

    h(t) = sum over low i of (phi'(t) - theta_i) + kappa sum over high i of (phi'(kappa t) - theta_i),

the floor where that is larger. An eigenvalue is low if ``theta_i < phi'(t)``, high if
``theta_i > phi'(kappa t)``. Between two points where one becomes low or high, the root has a closed form.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import EPS, Array, Mask
from bregopt.divergences.base import UNITS, Divergence, error_of_slope
from bregopt.divergences.spectrum import CappedSpectrum, Product, Spectrum, divided_differences
from bregopt.records import cached_property, dataclass

_CLOSE = 1e-5  # relative distance of two arguments up to which a mean slope is their divided difference
_LARGEST_EXPONENT = 700.0  # of finite doubles
_ROUND_OFF = 4 * EPS  # times the order and the largest eigenvalue: round-off of eigenvalues


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
class TraceSpectrum(Spectrum):
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
        """The divided differences of ``x`` in ``theta``, divided by ``mu``."""
        slope = np.where(self._free, 1 / self.divergence.curvature(np.maximum(self.x, EPS)), 0.0)
        return divided_differences(self.theta, self.x, slope, _CLOSE) / self.mu

    @property
    def _free(self) -> Mask:
        """Mask of the eigenvalues that move with ``theta``."""
        return self.x > 0

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


# --- Matrices of bounded condition --------------------------------------------------------------------------


class Conditioned(TraceDivergence):
    """A divergence that is infinite where ``X`` has an eigenvalue below `floor` or a larger `condition`.

    Parameters
    ----------
    X0 : array of shape (n, n)
    condition : float, from 1
        Upper bound ``kappa`` on the condition number; infinite for none.
    floor : float, from 0
        Lower bound on the eigenvalues.
    """

    infinite_outside_cone: ClassVar[bool] = True
    takes_cap: ClassVar[bool] = False

    def __init__(self, X0: Array, condition: float = math.inf, floor: float = 0.0) -> None:
        for name, value, least in (("condition", condition, 1), ("floor", floor, 0)):
            if not isinstance(value, Real) or not value >= least:
                raise ValueError(f"{name} is {value!r}; expected a number from {least}")
        self.condition, self.floor = float(condition), float(floor)
        super().__init__(X0)

    @classmethod
    def phrase(cls) -> str:
        return f"the {cls.name.replace('conditioned_', '')} divergence with bounds on the eigenvalues"

    @abstractmethod
    def level(self, low: int, high: int, total: float) -> float:
        """Return the root ``t`` of ``h`` for `low` and `high` eigenvalues, infinite where there is none.

        The `total` is the sum of the low ``theta`` plus ``kappa`` times that of the high ones.
        """
        ...

    def value(self, X: Array) -> float:
        eigenvalues = np.linalg.eigvalsh(X)
        noise = _ROUND_OFF * len(X) * float(eigenvalues[-1])
        least = max(self.floor, float(eigenvalues[-1]) / self.condition)
        return math.inf if eigenvalues[0] < least - noise else super().value(X)

    def spectrum(self, W: Array, mu: float, cap: float | None = None) -> Any:
        """Return the minimizer of ``<W, X> + mu D(X, X0)``, None where there is none."""
        theta, V = np.linalg.eigh(self.slope_X0 - W / mu)
        t = self._level_of(theta)
        top = t * self.condition if math.isfinite(self.condition) else math.inf
        x = np.clip(self.conjugate_slope(theta), t, top)
        if not np.isfinite(x).all():
            return None
        moves = t > self.floor and math.isfinite(self.condition)
        return ConditionedSpectrum(theta, V, mu, x, self, t, self.condition, moves)

    def _level_of(self, theta: Array) -> float:
        """Return the level ``t`` for ascending eigenvalues."""
        kappa = self.condition
        if math.isinf(kappa):
            return self.floor
        ends = self.conjugate_slope(theta)
        if 0 < ends[0] and ends[-1] < kappa * ends[0]:
            # No eigenvalue is low or high at any t of an interval. At its ends round-off would make one so.
            return max(self.floor, float(ends[-1] / kappa + ends[0]) / 2)
        # Where one more eigenvalue is low, or one less is high, in ascending order of t.
        ends = np.sort(np.concatenate([ends, ends / kappa]))
        ends = ends[np.isfinite(ends) & (ends > 0)]
        sums = np.concatenate([[0.0], np.cumsum(theta)])
        trials = np.concatenate([[0.0], ends, [math.inf]])
        below, above = 0, len(trials) - 1
        while above - below > 1:
            middle = (below + above) // 2
            t = float(trials[middle])
            rises = self._excess(theta, sums, t) >= 0
            below, above = (below, middle) if rises else (middle, above)
        a, b = float(trials[below]), float(trials[above])
        inside = (a + b) / 2 if math.isfinite(b) else 2 * a + 1.0
        low, high = self._counts(theta, inside)
        total = float(sums[low] + kappa * (sums[-1] - sums[len(theta) - high]))
        return max(self.floor, float(np.clip(self.level(low, high, total), a, b)))

    def _counts(self, theta: Array, t: float) -> tuple[int, int]:
        """Return the numbers of low and of high eigenvalues."""
        ends = self.slope(np.array([t, self.condition * t]))
        return int(np.searchsorted(theta, ends[0])), len(theta) - int(
            np.searchsorted(theta, ends[1], side="right")
        )

    def _excess(self, theta: Array, sums: Array, t: float) -> float:
        """Return ``h(t)``."""
        low, high = self._counts(theta, t)
        first, second = self.slope(np.array([t, self.condition * t])).tolist()
        of_low = low * first - sums[low] if low else 0.0
        of_high = high * second - (sums[-1] - sums[len(theta) - high]) if high else 0.0
        return float(of_low + self.condition * of_high)


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


class _Frobenius(Conditioned):
    """``||X - X0||_F^2``, generated by ``x^2``."""

    name: ClassVar[str] = "conditioned_frobenius"
    degree: ClassVar[int | None] = 2

    def anchor_derivative(self, S: Array) -> Array:
        return 2 * S

    def function(self, x: Array) -> Array:
        return x**2

    def slope(self, x: Array) -> Array:
        return 2 * x

    def curvature(self, x: Array) -> Array:
        return np.full_like(x, 2.0)

    def conjugate_slope(self, theta: Array) -> Array:
        return np.maximum(theta / 2, 0.0)

    def level(self, low: int, high: int, total: float) -> float:
        return total / (2 * (low + self.condition**2 * high)) if low + high else math.inf


class _VonNeumann(Conditioned):
    """The von Neumann divergence, generated by ``x log x - x``."""

    name: ClassVar[str] = "conditioned_von_neumann"
    definite_start: ClassVar[bool] = True
    degree: ClassVar[int | None] = 1

    def function(self, x: Array) -> Array:
        return np.where(x > 0, x * np.log(np.maximum(x, 1e-300)) - x, np.where(x < 0, np.inf, 0.0))

    def slope(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(x)

    def curvature(self, x: Array) -> Array:
        return 1 / np.maximum(x, EPS)

    def conjugate_slope(self, theta: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(theta)

    def level(self, low: int, high: int, total: float) -> float:
        weight = low + self.condition * high
        if not weight:
            return math.inf
        exponent = (total - self.condition * high * math.log(self.condition)) / weight
        return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


class _LogDet(Conditioned):
    """The LogDet divergence, generated by ``-log x``."""

    name: ClassVar[str] = "conditioned_logdet"
    definite_start: ClassVar[bool] = True
    degree: ClassVar[int | None] = 0

    def function(self, x: Array) -> Array:
        return np.where(x > 0, -np.log(np.maximum(x, 1e-300)), np.inf)

    def slope(self, x: Array) -> Array:
        with np.errstate(divide="ignore"):
            return -1 / x

    def curvature(self, x: Array) -> Array:
        return np.maximum(x, EPS) ** -2.0

    def conjugate_slope(self, theta: Array) -> Array:
        return np.where(theta < 0, -1 / np.where(theta < 0, theta, -1.0), np.inf)

    def level(self, low: int, high: int, total: float) -> float:
        return -(low + high) / total if total < 0 else math.inf


CONDITIONED: dict[str, type[Divergence]] = {
    "frobenius": _Frobenius,
    "von_neumann": _VonNeumann,
    "logdet": _LogDet,
}


def conditioned(cls: type[Divergence], parameters: Mapping[str, Any]) -> type[Divergence]:
    """Return the class with bounds on the eigenvalues if the parameters are such bounds, `cls` otherwise."""
    return CONDITIONED[cls.name] if {"condition", "floor"} & parameters.keys() else cls
