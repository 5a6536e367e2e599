"""The LogDet divergence ``tr(X inv(X0)) - logdet(X inv(X0)) - n`` (Kulis et al. 2009, eq. 2)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.linalg import LinAlgError, cholesky
from scipy.linalg import blas, lapack

from bregopt.arrays import Array
from bregopt.divergences.base import Completed, Divergence, error_of_inverse, error_of_log_det
from bregopt.divergences.rows import IDENTITY, RECIPROCAL, ActivityScale, Penalty
from bregopt.divergences.spectrum import Spectrum
from bregopt.divergences.trace_function import conditioned
from bregopt.linalg import inverse_of, log_det, root_of, symmetrize
from bregopt.records import cached_property, dataclass

_CONDITION = 1e10  # limit on the condition number of X0 in `completed`; the rest of <W, X> stays linear


class LogDet(Divergence):
    """LogDet divergence from a positive definite `X0` of shape ``(n, n)``.

    Everything is computed in the coordinates of the Cholesky factor ``X0 = L L'``. There it is the
    divergence from the identity, so an ill-conditioned `X0` costs no precision.
    """

    name: ClassVar[str] = "logdet"
    infinite_outside_cone: ClassVar[bool] = True
    definite_start: ClassVar[bool] = True
    keeps_range: ClassVar[bool] = True
    finite_on_boundary: ClassVar[bool] = False
    essentially_smooth: ClassVar[bool] = True
    congruence_invariant: ClassVar[bool] = True
    degree: ClassVar[int | None] = 0
    barrier: ClassVar[bool] = True
    takes_cap: ClassVar[bool] = True
    penalty: ClassVar[Penalty | None] = Penalty.LOGDET
    cvxpy_order: ClassVar[int] = 20  # it takes a cone of order 2n

    @classmethod
    def variant(cls, **parameters: Any) -> type[Divergence]:
        return conditioned(cls, parameters)

    def __init__(self, X0: Array) -> None:
        root = root_of(X0)
        if root is None:
            raise LinAlgError("X0 is not positive definite")
        self.L = root

    @property
    def unit(self) -> float:
        return 1.0

    @cached_property
    def inverse(self) -> Array:
        """The inverse of ``X0``."""
        return inverse_of(self.L)

    def value(self, X: Array) -> float:
        root = root_of(X)
        if root is None:
            return math.inf
        ratio, _ = lapack.dtrtrs(self.L, root, lower=1)
        return float(np.vdot(ratio, ratio)) - log_det(ratio) - len(X)

    def evaluation_error(self, X: Array) -> float:
        root = root_of(X)
        if root is None:
            return math.inf
        of_inverse, of_log_det = self.errors_of_start
        of_X = error_of_log_det(inverse_of(root), X.diagonal())
        error = float(np.vdot(of_inverse, X)) + of_log_det + float(of_X)
        return error if math.isfinite(error) else math.inf

    @cached_property
    def errors_of_start(self) -> tuple[Array, float]:
        """Bounds on the round-off of the inverse of ``X0``, in the order of psd matrices, and its log-det."""
        diagonal = (self.L**2).sum(axis=1)
        of_log_det = float(error_of_log_det(self.inverse, diagonal))
        return error_of_inverse(self.inverse, diagonal), of_log_det

    def gradient(self, X: Array) -> Array:
        return self.inverse - np.linalg.inv(X)

    def anchor_derivative(self, S: Array) -> Array:
        return self.inverse @ S @ self.inverse

    def minimizer(self, W: Array, mu: float) -> Array | None:
        root = self._dual_root(W, mu)
        if root is None:
            return None
        half, _ = lapack.dtrtrs(root, self.L.T, lower=1)
        X: Array = half.T @ half
        return X

    def dual_term(self, W: Array, mu: float, X: Array, cap: float | None = None) -> float:
        if cap is not None:
            z = np.linalg.eigvalsh(self.inverse + W / mu)
            x = 1 / np.maximum(z, 1 / cap)
            return mu * (float(z @ x - np.log(x).sum()) + log_det(self.L) - len(z))
        root = self._dual_root(W, mu)
        return -math.inf if root is None else mu * log_det(root)

    def recession(self) -> Array:
        return self.inverse

    def spectrum(self, W: Array, mu: float) -> ReciprocalSpectrum | None:
        return reciprocal_spectrum(self.L, W, mu)

    def point(self, mu: float) -> LogDetPoint:
        return LogDetPoint(self, mu)

    def cvxpy_expression(self, cp: Any, X: Any) -> Any:
        constant = log_det(self.L) - len(self.L)
        return cp.vdot((self.inverse + self.inverse.T) / 2, X) - cp.log_det(X) + constant

    @classmethod
    def completed(cls, mu: float, W: Array, factor: float) -> Completed:
        """Return ``-mu logdet(factor X) + <W, X>`` by ``mu D(X, mu inv(W))``; by ``mu D(X, I)`` otherwise.

        The former needs a positive definite ``W`` of condition number below 1e10.
        """
        n, (eigenvalues, Q) = len(W), np.linalg.eigh(W)
        if eigenvalues[0] * _CONDITION <= max(eigenvalues[-1], 0.0):
            eigenvalues = np.full(n, mu)
        X0 = symmetrize((Q * (mu / eigenvalues)) @ Q.T)
        left = W - (Q * eigenvalues) @ Q.T
        constant = -mu * (float(np.log(mu / eigenvalues).sum()) - n)
        return Completed(mu, X0, left, constant - mu * n * np.log(factor))

    def _dual_root(self, W: Array, mu: float) -> Array | None:
        """Return the Cholesky factor of ``I + L' W L / mu``, None where that is not positive definite."""
        Z = np.eye(len(W)) + self.L.T @ (W / mu) @ self.L
        return root_of((Z + Z.T) / 2)


@dataclass(frozen=True, eq=False)
class ReciprocalSpectrum(Spectrum):
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


class LogDetLine:
    """Activity along the row ``A = U diag(d) U'``: the sum of ``x / (1 - alpha x)`` over the eigenvalues
    ``x`` of ``X A``, by Sherman, Morrison and Woodbury (Kulis et al. 2009, eq. 19, for rank one).
    """  # noqa: D205

    __slots__ = ("K", "XU", "activity", "d", "eigenvalues", "harmonic", "scale")

    def __init__(self, X: Array, U: Array, d: Array) -> None:
        self.XU = X @ U
        self.d = d
        self.K = U.T @ self.XU
        if len(d) == 1:
            self.eigenvalues = [float(d[0] * self.K[0, 0])]
        else:
            root = cholesky(self.K)
            self.eigenvalues = np.linalg.eigvalsh(root.T @ (d[:, None] * root)).tolist()
        self.activity = math.fsum(self.eigenvalues)
        positive = self.eigenvalues[0] > 0
        self.scale: ActivityScale = RECIPROCAL if positive else IDENTITY
        self.harmonic = positive and len(d) == 1

    @property
    def domain(self) -> tuple[float, float]:
        least, largest = self.eigenvalues[0], self.eigenvalues[-1]
        return (1 / least if least < 0 else -math.inf), (1 / largest if largest > 0 else math.inf)

    @property
    def reach(self) -> tuple[float, float]:
        return (
            0.0 if self.eigenvalues[0] > 0 else -math.inf,
            0.0 if self.eigenvalues[-1] < 0 else math.inf,
        )

    def evaluate(self, alpha: float) -> tuple[float, float]:
        moved = [x / (1 - alpha * x) for x in self.eigenvalues]
        a = math.fsum(moved)
        slope = math.fsum([x * x for x in moved])
        return (-1 / a, slope / a**2) if self.scale is RECIPROCAL else (a, slope)


class LogDetPoint:
    """A positive definite matrix under rank-one updates (Kulis et al. 2009, eq. 21)."""

    def __init__(self, divergence: LogDet, mu: float) -> None:
        self._divergence, self._mu = divergence, mu
        self.X: Array = np.empty((0, 0))

    def reset(self, W: Array) -> None:
        X = self._divergence.minimizer(W, self._mu)
        if X is None:
            raise LinAlgError("the multipliers left the domain of the LogDet dual")
        self.X = np.asfortranarray(X)

    def line(self, U: Array, d: Array) -> LogDetLine:
        return LogDetLine(self.X, U, d)

    def move(self, line: Any, alpha: float) -> None:
        if len(line.d) == 1:
            growth, Xu = alpha * line.d[0] / (1 - alpha * line.activity), line.XU[:, 0]
            self.X = blas.dger(growth, Xu, Xu, 1, 1, self.X, 1, 1, 1)  # in place
            return
        core = np.linalg.solve(
            np.eye(len(line.d)) - alpha * line.d[:, None] * line.K, np.diag(alpha * line.d)
        )
        self.X += line.XU @ ((core + core.T) / 2) @ line.XU.T
