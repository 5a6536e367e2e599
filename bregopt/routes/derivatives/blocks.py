"""The derivative of one block's matrix in the slope of its objective, at an optimal point.

As the slope of a block changes by ``E`` and the multipliers by ``dy``, its matrix changes by

    dX = P'[A*(dy) - E]  (+ V S V' on a face),

with a self-adjoint, positive semidefinite map ``P'``. For a divergence with a spectrum ``P'`` is given by the
divided differences of its function (Daletskii and Krein); for LogDet it is ``X . X / mu``. Where the
objective is linear the matrix is determined on its range by the rows alone: ``S`` is an unknown, and the
slope must stay zero there.

Linear objectives and elementwise weights have a multiplier ``Z`` of ``X psd`` of their own. With
``X = V_P diag(x) V_P'`` and ``Z = V_N diag(z) V_N'`` strictly complementary, ``V = (V_P, V_N)`` orthogonal,
the derivative of ``X Z = 0`` is ``x_i dZ_ij + z_j dX_ij = 0`` between the two groups, ``dZ = 0`` within the
first and ``dX = 0`` within the second (Alizadeh, Haeberly, Overton 1997, Complementarity and nondegeneracy in
semidefinite programming).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from bregopt.arrays import TINY, Array, IntArray
from bregopt.certify.weights import LARGEST_ORDER, curvature_of
from bregopt.divergences import Spectrum
from bregopt.linalg import conjugate_gradients, factorized, is_definite
from bregopt.program import Block, LinearMap, Program
from bregopt.program.program import divergence_of
from bregopt.records import cached_property, dataclass
from bregopt.routes.ipm.block_rows import (
    GivenDifferences,
    RowAction,
    RowCurvature,
    derivative_activity,
    dual_hessian,
    has_gram,
)

# Numerical constants of derivatives; all are relative.
CG_TOL, CG_STEPS = 1e-11, 2_000  # residual of the equation of a derivative, and steps to it
SINGULAR = 1e-13  # reciprocal condition number at which a system counts as singular
NULL = 1e-10  # eigenvalue of a singular system that counts as zero
_INNER_TOL = 0.01 * CG_TOL
_LARGEST_TEST = 2_000  # entries without weight of a test whether they are unique


class BlockRows:
    """The rows of one block that act.

    Parameters
    ----------
    A : LinearMap
        Of this block alone.
    """

    def __init__(self, A: LinearMap) -> None:
        self.A, self.action = A, RowAction(A)

    @cached_property
    def curvature(self) -> RowCurvature:
        """The diagonal of ``A P' A*``, as a function of a spectrum."""
        return RowCurvature(self.A)


class BlockPoint(ABC):
    """One block at a point, with the rows that act on it.

    Attributes
    ----------
    X : array of shape (n, n)
    margin : float
        Distance of an eigenvalue of ``X - Z`` from zero, relative to the largest; ``Z`` is the multiplier of
        ``X psd``. Infinite where zero eigenvalues do no harm.
    residual : array of shape (n, n), or None
        The slope of the Lagrangian; None where it is zero by construction.
    face : array of shape (n, r), or None
        The ``V`` of ``V S V'``; None without such a term.
    Z : array of shape (n, n), or None
        The multiplier of ``X psd``; None where it is a function of the others.
    """

    X: Array
    margin: float
    residual: Array | None = None
    face: Array | None = None
    Z: Array | None = None
    _rows: BlockRows

    @property
    def is_unique(self) -> bool:
        """Whether the objective determines the matrix on its range; a linear one leaves that to the rows."""
        return True

    @abstractmethod
    def derivative(self, S: Array) -> Array:
        """Return ``P'[S]`` for a symmetric `S`."""

    @abstractmethod
    def gram(self) -> Array:
        """Return ``A P' A*``, shape ``(m, m)``."""

    def image(self, S: Array) -> Array:
        """Return ``A(P'[S])``."""
        return self._rows.A.apply((self.derivative(S),))

    def product(self, v: Array) -> Array:
        """Return ``A(P'[A*(v)])``."""
        return self.image(self._rows.A.adjoint(v))

    def curvature(self) -> Array:
        """Return the approximate diagonal of :meth:`gram`, above zero."""
        return np.maximum(self.gram().diagonal(), TINY)


def dual_point(program: Program, b: int, rows: BlockRows, y: Array) -> BlockPoint | None:
    """Return the point of a block whose matrix is a function of the multipliers, None outside the domain.

    Parameters
    ----------
    program : Program
    b : int
    rows : BlockRows
        The rows of this block that act.
    y : array of shape (program.m,)
    """
    block = program.blocks[b]
    assert block.nearness is not None
    divergence, mu = divergence_of(block.nearness), block.nearness.mu
    W = block.C - program.A.adjoint(y, b)
    if divergence.barrier and block.cap is None:
        X = divergence.minimizer(W, mu)  # type: ignore[attr-defined]
        return None if X is None else BarrierPoint(X, mu, rows)
    cap = {} if block.cap is None else {"cap": block.cap}
    spectrum = divergence.spectrum(W, mu, **cap)
    return None if spectrum is None else SpectralPoint(spectrum, block, rows)


class SpectralPoint(BlockPoint):
    """The minimizer of a divergence, by its spectrum."""

    def __init__(self, spectrum: Spectrum, block: Block, rows: BlockRows) -> None:
        self.X, self._spectrum, self._rows = spectrum.X, spectrum, rows
        assert block.nearness is not None
        kind, theta = block.nearness.kind, spectrum.theta
        below = getattr(spectrum, "below", spectrum)  # without the cap
        bends = [float(bend) for bend in getattr(below, "bends", ())]
        if block.cap is not None:
            bends.append(np.log(block.cap) if kind.exponential else block.cap)
        size = max(float(np.abs(theta).max()), TINY)
        self.margin = min((float(np.abs(theta - bend).min()) / size for bend in bends), default=np.inf)

    def derivative(self, S: Array) -> Array:
        """Return ``P'[S]``."""
        return self._spectrum.derivative(S).matrix(S)

    def image(self, S: Any) -> Array:
        return derivative_activity(self._rows.action, self._spectrum, S)

    def product(self, v: Array) -> Array:
        return self.image(self._rows.action.adjoint(v))

    def curvature(self) -> Array:
        return self._rows.curvature(self._spectrum)

    def gram(self) -> Array:
        A = self._rows.A
        return dual_hessian(A, self._spectrum) if has_gram(self._spectrum) else _columns_of(self.product, A.m)


class BarrierPoint(BlockPoint):
    """The minimizer of a LogDet divergence: ``P'[S] = X S X / mu``."""

    margin = np.inf

    def __init__(self, X: Array, mu: float, rows: BlockRows) -> None:
        self.X, self._mu, self._rows = (X + X.T) / 2, mu, rows

    def derivative(self, S: Array) -> Array:
        """Return ``X S X / mu``."""
        derivative: Array = self.X @ S @ self.X
        return (derivative + derivative.T) / (2 * self._mu)

    def gram(self) -> Array:
        return self._gram

    @cached_property
    def _gram(self) -> Array:
        return self._rows.action.schur(self.X, self.X) / self._mu


def _columns_of(map_: Callable[[Array], Array], m: int) -> Array:
    """Return a linear map of vectors of `m` elements as a matrix."""
    return np.array([map_(unit) for unit in np.eye(m)]).reshape(m, -1)


@dataclass(frozen=True, eq=False)
class Pair:
    """Nearly complementary ``X`` and ``Z``, and magnitudes that make them comparable."""

    X: Array
    Z: Array
    size: float
    price: float


def complementary_point(
    block: Block, rows: BlockRows, pair: Pair, W: Array, least: bool
) -> LinearPoint | WeightedPoint:
    """Return the complementary point nearest to a pair.

    Parameters
    ----------
    block : Block
    rows : BlockRows
        The rows of this block that act.
    pair : Pair
    W : array of shape (n, n)
        ``C - A*(y)`` of all rows.
    least : bool
        Whether entries without weight may be any that the others allow: their changes are nearly the least.
    """
    theta, V = np.linalg.eigh(pair.X / pair.size - pair.Z / pair.price)
    split = _Split(theta, V, pair.size, pair.price)
    if block.nearness is None:
        return LinearPoint(split, rows, W)
    return WeightedPoint(split, block, rows, W, least)


class _Split:
    """The eigenvectors of ``X`` and of ``Z``, the positive eigenvalues of each, and both matrices."""

    def __init__(self, theta: Array, V: Array, size: float, price: float) -> None:
        k = int(np.searchsorted(theta, 0.0, side="right"))
        self.V, self.k = V, k
        self.N, self.P = V[:, :k], V[:, k:]
        self.x, self.z = size * theta[k:], -price * theta[:k]
        self.X, self.Z = (self.P * self.x) @ self.P.T, (self.N * self.z) @ self.N.T
        ends = [float(v.min() / max(v.max(), TINY)) for v in (self.x, self.z) if len(v)]
        self.margin = min(ends, default=np.inf)


class LinearPoint(BlockPoint):
    """A matrix in a linear objective: ``P'[S] = X S Z+ + Z+ S X``, and an unknown part on the range of X."""

    def __init__(self, split: _Split, rows: BlockRows, W: Array) -> None:
        self.X, self.margin = split.X, split.margin
        self.Z = split.Z
        self.face = split.P if len(split.x) else None
        self.residual = W - split.Z
        self._rows = rows
        self._inverse = (split.N / split.z) @ split.N.T  # of Z, on its range

    def derivative(self, S: Array) -> Array:
        """Return ``X S Z+ + Z+ S X``."""
        half: Array = self.X @ S @ self._inverse
        return half + half.T

    def gram(self) -> Array:
        half = self._rows.action.schur(self.X, self._inverse)
        return half + half.T


class WeightedPoint(BlockPoint):
    """A matrix in a sum of weighted squares: ``P'`` solves an equation of the order of the matrix."""

    def __init__(self, split: _Split, block: Block, rows: BlockRows, W: Array, least: bool) -> None:
        assert block.nearness is not None
        divergence, mu = divergence_of(block.nearness), block.nearness.mu
        self.X, self.margin = split.X, split.margin
        self.Z = split.Z
        self.residual = W + mu * divergence.gradient(split.X) - split.Z
        self._rows, self._V, self._k, self._least = rows, split.V, split.k, least
        self._is_slow = False
        k = split.k
        self._squares = mu * divergence.anchor_derivative(np.ones_like(split.X))  # 2 mu H o H
        self._ratio = np.zeros_like(split.X)  # of the eigenvalues of Z and X, between the groups
        self._ratio[:k, k:] = split.z[:, None] / split.x
        self._ratio[k:, :k] = self._ratio[:k, k:].T
        self._tangent = np.ones(split.X.shape, dtype=bool)
        self._tangent[:k, :k] = False
        V2 = split.V**2
        self._diagonal = np.maximum(V2.T @ self._squares @ V2 + self._ratio, TINY)

    @cached_property
    def is_unique(self) -> bool:
        """Whether no matrix on the range of ``X`` has entries without weight alone; true if not tested.

        The projection ``Q M Q`` on the range maps these entries to themselves. Its norm is one if there is
        such a matrix, and less otherwise.
        """
        i, j = np.nonzero(np.triu(self._squares == 0))
        if not 0 < len(i) <= _LARGEST_TEST:
            return True
        P = self._V[:, self._k :]
        Q = P @ P.T
        share = np.where(i == j, np.sqrt(0.5), 1.0)
        M = Q[np.ix_(i, i)] * Q[np.ix_(j, j)] + Q[np.ix_(i, j)] * Q[np.ix_(j, i)]
        return is_definite((1 - NULL) * np.eye(len(i)) - M * np.outer(share, share))

    def derivative(self, S: Array) -> Array:
        """Return ``P'[S]``, solved in the coordinates of the eigenvectors."""
        V = self._V
        x = self._solved(np.where(self._tangent, V.T @ S @ V, 0.0))
        derivative: Array = V @ x @ V.T
        return (derivative + derivative.T) / 2

    def curvature(self) -> Array:
        """Return the approximate diagonal of :meth:`gram`."""
        differences = np.where(self._tangent, 1 / self._diagonal, 0.0)
        return self._rows.curvature(GivenDifferences(self._V, differences))

    def gram(self) -> Array:
        """Return ``A P' A*``, shape ``(m, m)``."""
        return _columns_of(self.product, self._rows.A.m)

    def _solved(self, right: Array) -> Array:
        """Return the matrix ``T`` of the tangent space with ``K(T) = right``.

        Conjugate gradients with as many steps as the order has solve it where weights are alike, in less time
        than a factorization takes, which has a row for each entry.
        """
        n, x = len(self._V), None
        if not self._is_slow:
            x = self._by_gradients(right, n if n <= LARGEST_ORDER else CG_STEPS)
            self._is_slow = x is None
        if x is None and self._formed is not None:
            i, j, scale, root = self._formed
            t, _ = lapack.dpotrs(root, scale * right[i, j], lower=1)
            x = np.zeros_like(right)
            x[i, j] = x[j, i] = scale * t / np.where(i == j, 1.0, 2.0)
        x = self._by_gradients(right, CG_STEPS) if x is None else x
        if x is None:
            raise ValueError(
                "the answer is not unique: entries of weight 0 may change at no cost, so it has no "
                "derivative; expected a weight above 0, or a bound that acts, for each"
            )
        return x

    @cached_property
    def _formed(self) -> tuple[IntArray, IntArray, Array, Array] | None:
        """The places on and above the diagonal, their norms, and the Cholesky factor; None where large."""
        if len(self._V) > LARGEST_ORDER:
            return None
        i, j = np.nonzero(np.triu(self._tangent))
        K, scale = curvature_of(self._V, self._squares, self._ratio, i, j)
        scale *= np.where(i == j, 1.0, np.sqrt(2.0))
        root, definite = factorized(K)
        definite &= root.diagonal().min() > np.sqrt(SINGULAR)
        if not definite and self._least:
            root, definite = factorized(K + NULL * np.eye(len(K)))
        return (i, j, scale, root) if definite else None

    def _by_gradients(self, right: Array, limit: int) -> Array | None:
        """Return that matrix by conjugate gradients scaled with the diagonal; None where it is not unique.

        Also None where `limit` is below that of all systems, and does not suffice.
        """
        products = 0

        def product(p: Array) -> Array:
            nonlocal products
            products += 1
            V = self._V
            # The curvature of the squares, and that of the cone.
            inside = V.T @ (self._squares * (V @ p @ V.T)) @ V
            return np.where(self._tangent, inside + self._ratio * p, 0.0)

        x, flat = conjugate_gradients(
            product, right, lambda r: r / self._diagonal, _INNER_TOL, limit, flat=0.0
        )
        return x if flat is None and (products < limit or limit == CG_STEPS) else None
