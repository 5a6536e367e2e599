"""The derivative of one block's matrix in the slope of its objective, at an optimal point.

As the slope of a block changes by ``E`` and the multipliers by ``dy``, its matrix changes by

    dX = P'[A*(dy) - E]  (+ V S V' on a face),

with a self-adjoint, positive semidefinite map ``P'``. For a divergence with a spectrum ``P'`` is given by the
divided differences of its function (Daletskii and Krein); for LogDet it is ``X . X / mu``. Where the
objective is linear the matrix is determined on its range by the rows alone: ``S`` is an unknown, and the
slope must stay zero there (:mod:`bregopt.routes.derivatives.complementary`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from bregopt.arrays import TINY, Array
from bregopt.cache import cached_property
from bregopt.divergences import Spectrum
from bregopt.divergences.spectrum import DifferenceSpectrum, PositiveSpectrum
from bregopt.linalg import dense
from bregopt.program import Block, LinearMap, Program
from bregopt.program.anchor import divergence_of
from bregopt.program.rows.algebra import dense_stack, upper_triangles
from bregopt.routes.ipm.row_action import RowAction
from bregopt.routes.projection.block_dual import RowCurvature
from bregopt.routes.projection.tuning import ProjectionTuning

__all__ = ["BarrierPoint", "BlockPoint", "BlockRows", "SpectralPoint", "columns_of", "dual_point"]

_TUNING = ProjectionTuning()
_AT_ONCE = 20_000  # entries of small matrices, which are formed in a few calls


class BlockRows:
    """The rows of one block that act.

    Parameters
    ----------
    A : LinearMap
        Of this block alone.
    """

    def __init__(self, A: LinearMap) -> None:
        self.A, self.action = A, RowAction(A, _TUNING.interior)

    @cached_property
    def curvature(self) -> RowCurvature:
        """The diagonal of ``A P' A*``, as a function of a spectrum."""
        return RowCurvature(self.A, _TUNING)


class BlockPoint(Protocol):
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
    """

    X: Array
    margin: float
    residual: Array | None
    face: Array | None

    def derivative(self, S: Array) -> Array:
        """Return ``P'[S]`` for a symmetric `S`."""
        ...

    def image(self, S: Array) -> Array:
        """Return ``A(P'[S])``."""
        ...

    def product(self, v: Array) -> Array:
        """Return ``A(P'[A*(v)])``."""
        ...

    def curvature(self) -> Array:
        """Return the approximate diagonal of that map, above zero."""
        ...

    def gram(self) -> Array:
        """Return that map as a matrix, shape ``(m, m)``."""
        ...


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


class SpectralPoint:
    """The minimizer of a divergence, by its spectrum."""

    residual: Array | None = None
    face: Array | None = None

    def __init__(self, spectrum: Spectrum, block: Block, rows: BlockRows) -> None:
        self.X, self._spectrum, self._rows = spectrum.X, spectrum, rows
        self.margin = _distance(spectrum, block)

    def derivative(self, S: Array) -> Array:
        """Return ``P'[S]``."""
        moved = self._spectrum.derivative(S)
        half = moved.L @ moved.R.T
        derivative: Array = (half + half.T) / 2
        if moved.share:
            derivative += moved.share * S
        return derivative if moved.M is None else derivative + moved.M

    def image(self, S: Any) -> Array:
        """Return ``A(P'[S])`` for a dense or sparse `S`."""
        moved = self._spectrum.derivative(S)
        activity = self._rows.action.apply_product(moved.L, moved.R)
        if moved.share:
            activity += moved.share * self._rows.action.apply(dense(S))
        return activity if moved.M is None else activity + self._rows.action.apply(moved.M)

    def product(self, v: Array) -> Array:
        """Return ``A(P'[A*(v)])``."""
        return self.image(self._rows.action.adjoint(v))

    def curvature(self) -> Array:
        """Return the approximate diagonal of :meth:`gram`."""
        return self._rows.curvature(self._spectrum)

    def gram(self) -> Array:
        """Return ``A P' A*``, shape ``(m, m)``."""
        spectrum, A = self._spectrum, self._rows.A
        own = getattr(type(spectrum), "derivative", None)
        if own not in (DifferenceSpectrum.derivative, PositiveSpectrum.derivative):
            return columns_of(self.product, A.m)
        differences: Array = spectrum.differences  # type: ignore[attr-defined]
        n = len(differences)
        if A.m * n**2 <= _AT_ONCE:
            products = np.zeros((A.m, n, n))
            for term in A.terms:
                products[term.at] += dense_stack(term.rows.restrict(spectrum.V))
            flat = products.reshape(A.m, -1)
            return np.asarray((flat * differences.ravel()) @ flat.T)
        i, j = np.triu_indices(n)
        inside = np.zeros((A.m, len(i)))
        for term in A.terms:
            inside[term.at] += upper_triangles(term.rows.restrict(spectrum.V)).T
        weighted = inside * (differences[i, j] * np.where(i == j, 1.0, 0.5))
        return weighted @ inside.T


class BarrierPoint:
    """The minimizer of a LogDet divergence: ``P'[S] = X S X / mu``."""

    residual: Array | None = None
    face: Array | None = None
    margin = np.inf

    def __init__(self, X: Array, mu: float, rows: BlockRows) -> None:
        self.X, self._mu, self._rows = (X + X.T) / 2, mu, rows

    def derivative(self, S: Array) -> Array:
        """Return ``X S X / mu``."""
        derivative: Array = self.X @ S @ self.X
        return (derivative + derivative.T) / (2 * self._mu)

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
        return self._gram

    @cached_property
    def _gram(self) -> Array:
        return self._rows.action.schur(self.X, self.X) / self._mu


def columns_of(map_: Callable[[Array], Array], m: int) -> Array:
    """Return a linear map of vectors of `m` elements as a matrix."""
    return np.array([map_(unit) for unit in np.eye(m)]).reshape(m, -1)


def _distance(spectrum: Any, block: Block) -> float:
    """Return the relative distance of eigenvalues from a bend of the function of the spectrum."""
    assert block.nearness is not None
    kind, theta = block.nearness.kind, spectrum.theta
    below = getattr(spectrum, "below", spectrum)  # without the cap
    bends = [float(bend) for bend in getattr(below, "bends", ())]
    if block.cap is not None:
        bends.append(np.log(block.cap) if kind.exponential else block.cap)
    size = max(float(np.abs(theta).max()), TINY)
    return min((float(np.abs(theta - bend).min()) / size for bend in bends), default=np.inf)
