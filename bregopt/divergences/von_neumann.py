"""The von Neumann divergence ``tr(X log X - X log X0 - X + X0)`` (Kulis et al. 2009, eq. 1)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import EPS, TINY, Array
from bregopt.divergences.base import Completed, Divergence
from bregopt.divergences.capped_spectrum import CappedSpectrum
from bregopt.divergences.conditioned import conditioned
from bregopt.divergences.projection import IDENTITY, LOG, ActivityScale
from bregopt.divergences.round_off import LEAST_LOGARITHM, UNITS, error_of_slope
from bregopt.divergences.scalar import Penalty
from bregopt.divergences.spectral import exp_divided_differences, rank_one_spectrum
from bregopt.divergences.spectrum import ExponentialSpectrum

__all__ = ["VonNeumann", "VonNeumannLine", "VonNeumannPoint"]

_CONDITION = 1e10  # limit on the condition number of X0 in `completed`; the rest of <W, X> stays linear


class VonNeumann(Divergence):
    """Von Neumann divergence from a positive definite `X0` of shape ``(n, n)``."""

    name: ClassVar[str] = "von_neumann"
    infinite_outside_cone: ClassVar[bool] = True
    definite_start: ClassVar[bool] = True
    keeps_range: ClassVar[bool] = True
    essentially_smooth: ClassVar[bool] = True
    degree: ClassVar[int | None] = 1
    exponential: ClassVar[bool] = True
    takes_cap: ClassVar[bool] = True
    penalty: ClassVar[Penalty | None] = Penalty.VON_NEUMANN
    cvxpy_order: ClassVar[int] = 12  # it takes 2(n - 1) cones
    cvxpy_cones: ClassVar[int] = 1

    @classmethod
    def variant(cls, **parameters: Any) -> type[Divergence]:
        return conditioned(cls, parameters)

    def __init__(self, X0: Array) -> None:
        eigenvalues, Q = np.linalg.eigh(X0)
        if eigenvalues[0] <= 0:
            raise np.linalg.LinAlgError("X0 is not positive definite")
        self.log_X0: Array = (Q * np.log(eigenvalues)) @ Q.T
        self.trace = float(eigenvalues.sum())
        self._error = error_of_slope(eigenvalues, Q, np.log)

    @property
    def unit(self) -> float:
        return self.trace

    def value(self, X: Array) -> float:
        eigenvalues = np.linalg.eigvalsh(X)
        if eigenvalues[0] < -1e-10 * max(eigenvalues[-1], 0.0):
            return math.inf
        positive = eigenvalues[eigenvalues > 0]
        entropy = float(positive @ np.log(positive))
        return entropy - float(np.vdot(X, self.log_X0)) - float(eigenvalues.sum()) + self.trace

    def evaluation_error(self, X: Array) -> float:
        size = float(np.linalg.norm(X))
        entropy = len(X) * EPS * size * (abs(math.log(max(size, TINY))) + LEAST_LOGARITHM)
        error = entropy + float(np.vdot(self._error, X)) + UNITS * self.trace
        return error if math.isfinite(error) else math.inf

    def gradient(self, X: Array) -> Array:
        eigenvalues, Q = np.linalg.eigh(X)
        gradient: Array = (Q * np.log(eigenvalues)) @ Q.T - self.log_X0
        return gradient

    def anchor_derivative(self, S: Array) -> Array:
        theta, Q = np.linalg.eigh(self.log_X0)
        top = float(theta[-1])
        slopes = exp_divided_differences(theta - top) * np.exp(top)
        derivative: Array = Q @ ((Q.T @ S @ Q) / slopes) @ Q.T
        return derivative

    def minimizer(self, W: Array, mu: float) -> Array | None:
        theta, Q = self.exponent(W, mu)
        if theta[-1] > 700:
            return None
        X: Array = (Q * np.exp(theta)) @ Q.T
        return X

    def dual_term(self, W: Array, mu: float, X: Array, cap: float | None = None) -> float:
        spectrum = self.spectrum(W, mu, cap)
        return -math.inf if spectrum is None else spectrum.term

    def spectrum(
        self, W: Array, mu: float, cap: float | None = None
    ) -> ExponentialSpectrum | CappedSpectrum | None:
        """Return the minimizer of ``<W, X> + mu D(X, X0)``, with eigenvalues up to `cap`.

        Without a cap it is None where it overflows.
        """
        theta, V = self.exponent(W, mu)
        if cap is None:
            return None if theta[-1] > 700 else ExponentialSpectrum(theta, V, mu, self.trace)
        below = ExponentialSpectrum(np.minimum(theta, math.log(cap)), V, mu, self.trace)
        return CappedSpectrum(theta, below, mu * cap)

    def point(self, mu: float) -> VonNeumannPoint:
        return VonNeumannPoint(self, mu)

    def cvxpy_expression(self, cp: Any, X: Any) -> Any:
        n = len(self.log_X0)
        # CVXPY 1.6 cannot canonicalize the spectrum of a matrix of order one: it has no second eigenvalue.
        entropy = cp.von_neumann_entr(X) if n > 1 else cp.entr(X[0, 0])
        return -entropy - cp.vdot(self.log_X0 + np.eye(n), X) + self.trace

    @classmethod
    def completed(cls, mu: float, W: Array, factor: float) -> Completed:
        """Return ``mu tr(factor X log(factor X)) + <W, X>`` by ``mu' D(X, exp(-W'/mu' - I))``.

        The logarithm of ``X0`` is clipped where ``X0`` would be ill conditioned or overflow.
        """
        # tr(aX log aX) = a tr(X log X) + a log a tr X
        mu, W = mu * factor, W + mu * factor * np.log(factor) * np.eye(len(W))
        eigenvalues, Q = np.linalg.eigh(W)
        wanted = -eigenvalues / mu - 1
        top = np.clip(wanted.max(), -100.0, 100.0)
        logs = np.clip(wanted, top - np.log(_CONDITION), top)
        X0 = (Q * np.exp(logs)) @ Q.T
        left = (Q * (mu * (logs - wanted))) @ Q.T
        return Completed(mu, X0, left, -mu * float(np.exp(logs).sum()))

    def exponent(self, W: Array, mu: float) -> tuple[Array, Array]:
        """Return eigenvalues and eigenvectors of ``log X0 - W / mu``, the logarithm of the minimizer."""
        theta, Q = np.linalg.eigh(self.log_X0 - W / mu)
        return theta, Q


class VonNeumannLine:
    """Activity ``tr(A exp(log X + alpha A))`` along the row ``A``, in the eigenvectors of ``log X``.

    A rank-one row is evaluated by the secular equation, in ``O(r^2)``; other rows by an
    eigendecomposition. Exponents are shifted by the largest one.
    """

    __slots__ = ("activity", "d", "scale", "theta", "w")

    def __init__(self, theta: Array, w: Array, d: Array) -> None:
        self.theta, self.w, self.d = theta, w, d
        self.activity = float(np.exp(theta) @ (w**2 @ d))
        self.scale: ActivityScale = LOG if d.min() > 0 else IDENTITY

    @property
    def harmonic(self) -> bool:
        return False

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, math.inf

    @property
    def reach(self) -> tuple[float, float]:
        return (0.0 if self.d.min() > 0 else -math.inf), (0.0 if self.d.max() < 0 else math.inf)

    def evaluate(self, alpha: float) -> tuple[float, float]:
        theta, squares = self._spectrum(alpha)
        top = theta[-1]
        shifted = theta - top
        a = float(np.exp(shifted) @ np.diagonal(squares))
        slope = float(np.vdot(exp_divided_differences(shifted), squares * squares))
        if self.scale is LOG:
            return math.log(a) + top, slope / a
        if top > 350:
            return math.copysign(math.inf, a), math.inf
        return a * math.exp(top), slope * math.exp(top)

    def _spectrum(self, alpha: float) -> tuple[Array, Array]:
        """Return the eigenvalues of ``Theta + alpha A`` and ``A`` in their eigenvectors (up to signs)."""
        if len(self.d) == 1:
            theta, weight = rank_one_spectrum(self.theta, self.w[:, 0], alpha * self.d[0])
            root = np.sqrt(weight)
            return theta, self.d[0] * np.outer(root, root)
        A = (self.w * self.d) @ self.w.T
        theta, Q = np.linalg.eigh(np.diag(self.theta) + alpha * A)
        return theta, Q.T @ A @ Q


class VonNeumannPoint:
    """A positive definite matrix stored as ``V exp(diag(theta)) V'`` (Kulis et al. 2009, Algorithm 3)."""

    def __init__(self, divergence: VonNeumann, mu: float) -> None:
        self._divergence, self._mu = divergence, mu
        self.theta: Array = np.empty(0)
        self.V: Array = np.empty((0, 0))

    @property
    def X(self) -> Array:
        """The matrix itself."""
        X: Array = (self.V * np.exp(self.theta)) @ self.V.T
        return X

    def reset(self, W: Array) -> None:
        self.theta, self.V = self._divergence.exponent(W, self._mu)

    def line(self, U: Array, d: Array) -> VonNeumannLine:
        return VonNeumannLine(self.theta, self.V.T @ U, d)

    def move(self, line: Any, alpha: float) -> None:
        self.theta, Q = np.linalg.eigh(np.diag(self.theta) + (line.w * (alpha * line.d)) @ line.w.T)
        self.V = self.V @ Q
