"""The von Neumann divergence ``tr(X log X - X log X0 - X + X0)`` (Kulis et al. 2009, eq. 1)."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cython_lapack

from bregopt.arrays import EPS, TINY, Array
from bregopt.divergences.base import LEAST_LOGARITHM, UNITS, Completed, Divergence, error_of_slope
from bregopt.divergences.rows import IDENTITY, LOG, ActivityScale, Penalty
from bregopt.divergences.spectrum import CappedSpectrum, ExponentialSpectrum, exp_divided_differences
from bregopt.divergences.trace_function import conditioned

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
        logs = np.log(np.maximum(eigenvalues, TINY))  # on the boundary a slope is infinite
        gradient: Array = (Q * logs) @ Q.T - self.log_X0
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

    def restricted(self, V: Array) -> tuple[Array, float]:
        theta, Q = np.linalg.eigh(V.T @ self.log_X0 @ V)
        M0 = (Q * np.exp(theta)) @ Q.T
        return (M0 + M0.T) / 2, self.trace - float(np.exp(theta).sum())

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


def rank_one_spectrum(theta: Array, w: Array, alpha: float) -> tuple[Array, Array]:
    """Return the eigenvalues of ``diag(theta) + alpha w w'`` with ``w'q`` not zero, and ``(w'q)^2`` for each.

    The eigenvalues are the roots of the secular equation ``1 + alpha sum_j w_j^2 / (theta_j - x) = 0``.
    LAPACK's ``dlaed4`` finds them one by one and returns the differences ``theta_j - x`` to full relative
    precision. The weights follow from them (Golub 1973). Eigenvalues whose vectors ``q`` are orthogonal to
    `w` are left out: they do not change and have weight zero.

    Parameters
    ----------
    theta : array of shape (r,), ascending
    w : array of shape (r,)
    alpha : float
    """
    if alpha < 0:
        roots, weight = rank_one_spectrum(-theta[::-1], w[::-1], -alpha)
        return -roots[::-1], weight[::-1]
    pole, square = _merged_poles(theta, w)
    total = float(square.sum())
    if alpha * total <= 4 * EPS * np.abs(pole).max(initial=1e-300) or len(pole) == 0:
        return pole + alpha * square, square
    difference = _secular_differences(pole, np.sqrt(square / total), alpha * total)
    weight = 1 / (alpha**2 * (square / difference**2).sum(axis=1))
    return pole - np.diagonal(difference), weight


def _merged_poles(theta: Array, w: Array) -> tuple[Array, Array]:
    """Return the distinct poles of nonzero weight; poles closer than round-off count as one."""
    square = w * w
    total = square.sum()
    seen = square > (EPS**2) * total
    theta, square = theta[seen], square[seen]
    if len(theta) < 2:
        return theta, square
    apart = np.diff(theta) > 8 * EPS * np.abs(theta).max()
    if apart.all():
        return theta, square
    group = np.concatenate([[0], np.cumsum(apart)])
    return theta[np.concatenate([[True], apart])], np.bincount(group, weights=square).astype(float)


def _secular_differences(pole: Array, unit: Array, rho: float) -> Array:
    """Return the matrix ``pole_j - x_i`` over the roots ``x_i`` of ``diag(pole) + rho unit unit'``."""
    count = len(pole)
    if count == 1:
        return np.array([[-rho]])
    if count == 2:  # here dlaed4 would return eigenvectors instead of differences
        return _two_pole_differences(pole, unit, rho)
    dlaed4 = _dlaed4()
    pole, unit = np.ascontiguousarray(pole), np.ascontiguousarray(unit)
    difference = np.empty((count, count))
    n, i, info = ctypes.c_int(count), ctypes.c_int(), ctypes.c_int()
    strength, root = ctypes.c_double(rho), ctypes.c_double()
    at, stride = difference.ctypes.data, difference.strides[0]
    by = ctypes.byref
    d, z = ctypes.c_void_p(pole.ctypes.data), ctypes.c_void_p(unit.ctypes.data)
    for k in range(count):
        i.value = k + 1
        dlaed4(by(n), by(i), d, z, ctypes.c_void_p(at + k * stride), by(strength), by(root), by(info))
        if info.value:
            difference[k] = pole - np.linalg.eigvalsh(np.diag(pole) + rho * np.outer(unit, unit))[k]
    return difference


def _two_pole_differences(pole: Array, unit: Array, rho: float) -> Array:
    """Return the differences for two poles from the quadratic, without cancellation."""
    gap = pole[1] - pole[0]
    first, second = rho * unit**2
    half = (first + second - gap) / 2
    radius = np.hypot(half, np.sqrt(second * gap))
    # The upper root is `beyond` above the upper pole; the lower one `above` its own pole, `below` the upper.
    beyond = half + radius if half > 0 else second * gap / (radius - half)
    below = second * gap / (radius + half) if half > 0 else radius - half
    above = first * gap / (half + gap + radius)
    return np.array([[-above, below], [-(gap + beyond), -beyond]])


@cache
def _dlaed4() -> Any:
    """Return LAPACK's dlaed4 as scipy exports it for Cython, callable through ctypes."""
    capsule = cython_lapack.__pyx_capi__["dlaed4"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 8)(pointer(capsule, name(capsule)))
