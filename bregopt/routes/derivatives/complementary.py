"""Blocks with a multiplier of ``X psd`` of their own: linear objectives, and elementwise weights.

With ``X = V_P diag(x) V_P'`` and ``Z = V_N diag(z) V_N'`` strictly complementary, ``V = (V_P, V_N)``
orthogonal, the derivative of ``X Z = 0`` is ``x_i dZ_ij + z_j dX_ij = 0`` between the two groups, ``dZ = 0``
within the first and ``dX = 0`` within the second (Alizadeh, Haeberly, Overton 1997, Complementarity and
nondegeneracy in semidefinite programming).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.divergences.spectrum import DifferenceSpectrum
from bregopt.program import Block
from bregopt.program.anchor import divergence_of
from bregopt.routes.derivatives.blocks import BlockRows, columns_of
from bregopt.routes.derivatives.tuning import CG_STEPS, CG_TOL

__all__ = ["Pair", "complementary_point"]

_INNER_TOL = 0.01 * CG_TOL


@dataclass(frozen=True, eq=False)
class Pair:
    """Nearly complementary ``X`` and ``Z``, and magnitudes that make them comparable."""

    X: Array
    Z: Array
    size: float
    price: float


def complementary_point(block: Block, rows: BlockRows, pair: Pair, W: Array) -> LinearPoint | WeightedPoint:
    """Return the complementary point nearest to a pair.

    Parameters
    ----------
    block : Block
    rows : BlockRows
        The rows of this block that act.
    pair : Pair
    W : array of shape (n, n)
        ``C - A*(y)`` of all rows.
    """
    theta, V = np.linalg.eigh(pair.X / pair.size - pair.Z / pair.price)
    split = _Split(theta, V, pair.size, pair.price)
    return LinearPoint(split, rows, W) if block.nearness is None else WeightedPoint(split, block, rows, W)


class _Split:
    """The eigenvectors of ``X`` and of ``Z``, the positive eigenvalues of each, and both matrices."""

    def __init__(self, theta: Array, V: Array, size: float, price: float) -> None:
        k = int(np.searchsorted(theta, 0.0, side="right"))
        self.V, self.k = V, k
        self.N, self.P = V[:, :k], V[:, k:]
        self.x, self.z = size * theta[k:], -price * theta[:k]
        self.X, self.Z = (self.P * self.x) @ self.P.T, (self.N * self.z) @ self.N.T
        self.margin = self._margin()

    def _margin(self) -> float:
        """Return the smallest eigenvalue relative to the largest one of its own matrix."""
        ends = [float(v.min() / max(v.max(), TINY)) for v in (self.x, self.z) if len(v)]
        return min(ends, default=np.inf)


class LinearPoint:
    """A matrix in a linear objective: ``P'[S] = X S Z+ + Z+ S X``, and an unknown part on the range of X."""

    def __init__(self, split: _Split, rows: BlockRows, W: Array) -> None:
        self.X, self.margin = split.X, split.margin
        self.face: Array | None = split.P if len(split.x) else None
        self.residual: Array | None = W - split.Z
        self._rows = rows
        self._inverse = (split.N / split.z) @ split.N.T  # of Z, on its range

    def derivative(self, S: Array) -> Array:
        """Return ``X S Z+ + Z+ S X``."""
        half: Array = self.X @ S @ self._inverse
        return half + half.T

    def image(self, S: Array) -> Array:
        """Return ``A(P'[S])``."""
        return self._rows.A.apply((self.derivative(S),))

    def product(self, v: Array) -> Array:
        """Return ``A(P'[A*(v)])``."""
        return self.image(self._rows.A.adjoint(v))

    def curvature(self) -> Array:
        """Return the diagonal of :meth:`gram`."""
        return np.maximum(self.gram().diagonal(), TINY)

    def gram(self) -> Array:
        """Return ``A P' A*``, shape ``(m, m)``."""
        half = self._rows.action.schur(self.X, self._inverse)
        return half + half.T


class WeightedPoint:
    """A matrix in a sum of weighted squares: ``P'`` solves an equation of the order of the matrix."""

    face: Array | None = None

    def __init__(self, split: _Split, block: Block, rows: BlockRows, W: Array) -> None:
        assert block.nearness is not None
        divergence, mu = divergence_of(block.nearness), block.nearness.mu
        self.X, self.margin = split.X, split.margin
        self.residual: Array | None = W + mu * divergence.gradient(split.X) - split.Z
        self._rows, self._V, k = rows, split.V, split.k
        self._squares = mu * divergence.anchor_derivative(np.ones_like(split.X))  # 2 mu H o H
        self._ratio = np.zeros_like(split.X)  # of the eigenvalues of Z and X, between the groups
        self._ratio[:k, k:] = split.z[:, None] / split.x
        self._ratio[k:, :k] = self._ratio[:k, k:].T
        self._tangent = np.ones(split.X.shape, dtype=bool)
        self._tangent[:k, :k] = False
        V2 = split.V**2
        self._diagonal = np.maximum(V2.T @ self._squares @ V2 + self._ratio, TINY)

    def derivative(self, S: Array) -> Array:
        """Return ``P'[S]``, by conjugate gradients in the coordinates of the eigenvectors."""
        V = self._V
        x = self._solved(np.where(self._tangent, V.T @ S @ V, 0.0))
        derivative: Array = V @ x @ V.T
        return (derivative + derivative.T) / 2

    def image(self, S: Array) -> Array:
        """Return ``A(P'[S])``."""
        return self._rows.A.apply((self.derivative(S),))

    def product(self, v: Array) -> Array:
        """Return ``A(P'[A*(v)])``."""
        return self.image(self._rows.A.adjoint(v))

    def curvature(self) -> Array:
        """Return the approximate diagonal of :meth:`gram`."""
        differences = np.where(self._tangent, 1 / self._diagonal, 0.0)
        return self._rows.curvature(_Approximate(self._V, differences))

    def gram(self) -> Array:
        """Return ``A P' A*``, shape ``(m, m)``."""
        return columns_of(self.product, self._rows.A.m)

    def _solved(self, right: Array) -> Array:
        """Return the matrix ``T`` of the tangent space with ``K(T) = right``."""
        x, r = np.zeros_like(right), right
        s = r / self._diagonal
        p, rs = s, float(np.vdot(r, s))
        enough = _INNER_TOL**2 * rs
        for _ in range(CG_STEPS):
            if rs <= enough:
                break
            Kp = self._stiffness(p)
            curvature = float(np.vdot(p, Kp))
            if curvature <= 0:
                raise ValueError(
                    "the answer is not unique: entries of weight 0 may change at no cost, so it has no "
                    "derivative; expected a weight above 0, or a bound that acts, for each"
                )
            alpha = rs / curvature
            x, r = x + alpha * p, r - alpha * Kp
            s = r / self._diagonal
            rs, before = float(np.vdot(r, s)), rs
            p = s + (rs / before) * p
        return x

    def _stiffness(self, T: Array) -> Array:
        """Return ``K(T)``: the curvature of the squares, and that of the cone."""
        V = self._V
        inside = V.T @ (self._squares * (V @ T @ V.T)) @ V
        return np.where(self._tangent, inside + self._ratio * T, 0.0)


@dataclass(frozen=True, eq=False)
class _Approximate(DifferenceSpectrum):
    """Divided differences that approximate ``P'``, for the diagonal of the equations."""

    V: Array
    given: Array

    @property
    def typical_derivative(self) -> float:
        return 0.0

    @property
    def differences(self) -> Array:
        return self.given
