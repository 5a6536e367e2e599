"""The squared Frobenius distance, plain and with elementwise weights, without a factor 1/2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from bregopt.arrays import EPS, Array, Mask, symmetric_matrix
from bregopt.divergences.base import ROOT_UNITS, Divergence, error_of_square
from bregopt.divergences.rows import Penalty
from bregopt.divergences.spectrum import CappedSpectrum, PositiveSpectrum
from bregopt.divergences.trace_function import conditioned
from bregopt.linalg import root_of
from bregopt.records import cached_property, dataclass

_ROUND_OFF = 1e-14  # fraction of the norm: tolerated negative eigenvalue of a multiplier
_SHRINKINGS = 3  # times that a multiplier is scaled down, each after the effect of the one before


def psd_part(Y: Array, cap: float = math.inf) -> Array:
    """Return the nearest matrix to the symmetric `Y` with eigenvalues from zero to `cap`."""
    eigenvalues, Q = np.linalg.eigh(Y)
    positive = eigenvalues > 0
    Q = Q[:, positive]
    X: Array = (Q * np.minimum(eigenvalues[positive], cap)) @ Q.T
    return X


class Frobenius(Divergence):
    """``||X - X0||_F^2`` from a symmetric `X0` of shape ``(n, n)``, which need not be psd."""

    name: ClassVar[str] = "frobenius"
    degree: ClassVar[int | None] = 2
    quadratic: ClassVar[bool] = True
    takes_cap: ClassVar[bool] = True
    resolution: ClassVar[float] = EPS
    penalty: ClassVar[Penalty | None] = Penalty.SQUARE
    cvxpy_order: ClassVar[int] = 50

    @classmethod
    def variant(cls, **parameters: Any) -> type[Divergence]:
        return WeightedFrobenius if "weights" in parameters else conditioned(cls, parameters)

    def __init__(self, X0: Array) -> None:
        self.X0 = X0
        self.square = float(np.vdot(X0, X0))

    @property
    def unit(self) -> float:
        return self.square

    def value(self, X: Array) -> float:
        return float(np.linalg.norm(X - self.X0) ** 2)

    def evaluation_error(self, X: Array) -> float:
        return error_of_square(X, self.X0)

    def gradient(self, X: Array) -> Array:
        return 2 * (X - self.X0)

    def anchor_derivative(self, S: Array) -> Array:
        return 2 * S

    def minimizer(self, W: Array, mu: float) -> Array | None:
        return psd_part(self.X0 - W / (2 * mu))

    def spectrum(self, W: Array, mu: float, cap: float | None = None) -> PositiveSpectrum | CappedSpectrum:
        """Return the minimizer of ``<W, X> + mu D(X, X0)``, with eigenvalues up to `cap`."""
        theta, V = np.linalg.eigh(self.X0 - W / (2 * mu))
        linear = self._linear_part(W, mu)
        if cap is None:
            return PositiveSpectrum(theta, V, mu, linear)
        beyond = theta[theta > cap]
        linear += mu * float(((beyond - cap) * (beyond + cap)).sum())
        below = PositiveSpectrum(np.minimum(theta, cap), V, mu, linear)
        return CappedSpectrum(theta, below, 2 * mu * cap)

    def dual_term(self, W: Array, mu: float, X: Array, cap: float | None = None) -> float:
        eigenvalues = np.linalg.eigvalsh(self.X0 - W / (2 * mu))
        cut = eigenvalues - np.clip(eigenvalues, 0.0, cap)
        return mu * float(cut @ cut) + self._linear_part(W, mu)

    def restricted(self, V: Array) -> tuple[Array, float]:
        M0 = V.T @ self.X0 @ V
        return (M0 + M0.T) / 2, float(np.linalg.norm(self.X0 - V @ M0 @ V.T) ** 2)

    def cvxpy_expression(self, cp: Any, X: Any) -> Any:
        return cp.sum_squares(X - self.X0)

    def _linear_part(self, W: Array, mu: float) -> float:
        """Return ``<W, X> + mu D(X, X0) - mu ||X - Y||^2``, with ``Y = X0 - W / (2 mu)``.

        It vanishes with ``W``, whereas a difference of ``||X0||^2`` and ``||X||^2`` leaves their round-off.
        """
        return float(np.vdot(self.X0 - W / (4 * mu), W))


class WeightedFrobenius(Divergence):
    """``||H o (X - X0)||_F^2`` with nonnegative elementwise `weights` ``H`` of shape ``(n, n)``.

    A weight of zero marks an unknown entry: it does not enter the distance.
    """

    name: ClassVar[str] = "weighted_frobenius"
    degree: ClassVar[int | None] = 2
    quadratic: ClassVar[bool] = True
    weights: ClassVar[bool] = True
    takes_multiplier: ClassVar[bool] = True
    resolution: ClassVar[float] = EPS
    penalty: ClassVar[Penalty | None] = Penalty.SQUARE
    cvxpy_order: ClassVar[int] = 50

    @classmethod
    def checked(cls, X0: Array, **parameters: Any) -> tuple[Array, Mapping[str, Any]]:
        H = symmetric_matrix(cls(X0, **parameters).H, "weights of frobenius_div", len(X0))
        if (H < 0).any():
            raise ValueError(f"weights of frobenius_div has the value {H.min():g}; expected numbers from 0")
        if not H.any():
            raise ValueError(
                "weights of frobenius_div are all 0, so that no entry counts; expected one above 0"
            )
        return np.where(H > 0, X0, 0.0), {"weights": H}

    @classmethod
    def phrase(cls) -> str:
        return "elementwise weights"

    def __init__(self, X0: Array, weights: Array) -> None:
        self.X0, self.H = X0, weights

    @property
    def unit(self) -> float:
        return float(np.linalg.norm(self.H * self.X0) ** 2)

    def value(self, X: Array) -> float:
        return float(np.linalg.norm(self.H * (X - self.X0)) ** 2)

    def evaluation_error(self, X: Array) -> float:
        return error_of_square(self.H * X, self.H * self.X0)

    def gradient(self, X: Array) -> Array:
        return 2 * self.H**2 * (X - self.X0)

    def anchor_derivative(self, S: Array) -> Array:
        return 2 * self.H**2 * S

    def dual_term(
        self, W: Array, mu: float, X: Array, S: Array | None = None, largest: Array | None = None
    ) -> float:
        """Return a lower bound on ``<W, .> + mu D(., X0)`` over psd matrices.

        For any psd ``S``, dropping ``<S, X> >= 0`` leaves a minimum for each entry. The multiplier of
        ``X psd`` at the optimum makes the bound tight.

        Parameters
        ----------
        W, X : array of shape (n, n)
        mu : float
        S : array of shape (n, n), optional
            It is made psd; the default is the psd part of the gradient at `X`.
        largest : array of shape (n,), optional
            Upper bounds on the diagonal of the matrices; infinite where there is none.
        """
        S = psd_part(W + mu * self.gradient(X)) if S is None else _made_psd(S)
        largest = np.full(len(X), np.inf) if largest is None else largest
        reach = np.where(np.isinf(largest), np.maximum(X.diagonal(), 0.0), largest)
        bound = _ByEntry(mu * self.H**2, self.X0, np.where(reach > 0, reach, 1.0), largest)
        open_ended = (self.H.diagonal() == 0) & np.isinf(largest)
        if open_ended.any():  # there W - S, less the part moved to the diagonal, must not be negative
            for _ in range(_SHRINKINGS):
                S = _below(S, W.diagonal() - bound.moved(W - S).sum(axis=1), open_ended)
        return bound.least(W - S)

    def cvxpy_expression(self, cp: Any, X: Any) -> Any:
        return cp.sum_squares(cp.multiply(self.H, X - self.X0))


def _made_psd(S: Array) -> Array:
    """Return `S` with round-off added to its diagonal if that makes it psd, its psd part otherwise.

    The bound loses the inner product of what is added with ``X``. The backward error of Cholesky's
    factorization is relative to the diagonal, so this share of it is tried first: half for the round-off of
    `S`, half for that error.
    """
    diagonal = np.diag(S.diagonal())
    if root_of(S + ROOT_UNITS * diagonal) is not None:
        return S + 2 * ROOT_UNITS * diagonal
    lifted = S + _ROUND_OFF * np.linalg.norm(S) * np.eye(len(S))
    return psd_part(S) if root_of(lifted) is None else lifted


def _below(S: Array, most: Array, where: Mask) -> Array:
    """Return psd `S` scaled such that its diagonal is at most `most`, or zero, at the indices `where`."""
    diagonal = S.diagonal()
    too_large = where & (diagonal > np.maximum(most, 0.0))
    if not too_large.any():
        return S
    ratio = np.divide(np.maximum(most, 0.0), diagonal, out=np.ones(len(S)), where=too_large)
    factor = np.where(too_large, np.sqrt(ratio * (1 - 4 * EPS)), 1.0)
    return factor[:, None] * S * factor


@dataclass(frozen=True, eq=False)
class _ByEntry:
    """A lower bound on ``<R, X> + <curvature o (X - X0), X - X0>`` over psd ``X``: a minimum for each entry.

    Off the diagonal, an entry's minimizer may be beyond ``e = sqrt(reach_i reach_j)``. The part of its slope
    that causes this is moved to the diagonal, as ``2 |X_ij| <= X_ii e / reach_i + X_jj e / reach_j``.
    """

    curvature: Array
    X0: Array
    reach: Array
    largest: Array

    @cached_property
    def _end(self) -> Array:
        root = np.sqrt(self.reach)
        return np.outer(root, root)

    def moved(self, R: Array) -> Array:
        """Return the slope that each entry moves to the diagonal, by rows."""
        return np.abs(self._split(R)[1]) * self._end / self.reach[:, None]

    def least(self, R: Array) -> float:
        """Return the bound, ``-inf`` where the minimum over the diagonal is not finite."""
        at, excess = self._split(R)
        slope = R.diagonal() - self.moved(R).sum(axis=1)
        own, center = self.curvature.diagonal(), self.X0.diagonal()
        beyond = np.where(slope < 0, np.inf, 0.0)
        free = center - np.divide(slope, 2 * own, out=np.zeros_like(slope), where=own > 0)
        diagonal = np.clip(np.where(own > 0, free, beyond), 0.0, self.largest)
        if not np.isfinite(diagonal).all():
            return -math.inf
        terms = self.curvature * (at - self.X0) ** 2 + (R - excess) * at
        np.fill_diagonal(terms, own * (diagonal - center) ** 2 + slope * diagonal)
        total = float(terms.sum())
        return total if math.isfinite(total) else -math.inf

    def _split(self, R: Array) -> tuple[Array, Array]:
        """Return each entry's minimizer, and the part of its slope that is moved to the diagonal."""
        known, end = self.curvature > 0, self._end
        free = self.X0 - np.divide(R, 2 * self.curvature, out=np.zeros_like(R), where=known)
        at = np.where(known, np.clip(free, -end, end), 0.0)
        excess = np.where(np.abs(free) > end, R + 2 * self.curvature * (at - self.X0), 0.0)
        excess = np.where(known, excess, R)
        np.fill_diagonal(excess, 0.0)
        return at, excess
