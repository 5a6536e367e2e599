"""The data of one block's objective: ``X0`` as a matrix or by its factor, or the matrix of linear costs."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, finite_array
from bregopt.presolve.range_space import RANK_TOL, range_space
from bregopt.program import LowRank, Program
from bregopt.program.program import divergence_of
from bregopt.records import dataclass
from bregopt.routes.derivatives.changes import Adjoint
from bregopt.routes.ipm.schur.gram import RowAction

__all__ = ["Anchor", "Moved", "anchors_of"]


@dataclass(frozen=True, eq=False)
class Moved:
    """The effect of a change of the data: on the slope of the block, and on the rows' right-hand sides."""

    slope: Array
    rows: Array | None = None


class Anchor(Protocol):
    """The data of one block, and its matrix in the coordinates of the reduced program."""

    def inside(self, G: Any) -> Array:
        """Return a cotangent of the matrix in the coordinates of the program."""
        ...

    def gradient(self, at: Any, found: Adjoint, G: Any) -> Array:
        """Return the gradient in the data; `G` is the cotangent of the matrix."""
        ...

    def moved(self, at: Any, change: Any) -> Moved:
        """Return the effect of a change of the data."""
        ...

    def lifted(self, M: Array) -> Array:
        """Return the matrix of the user that has the coordinates `M`."""
        ...

    def outside(self, dX: Array, at: Any, change: Any) -> Array:
        """Return the change of the matrix from that in the coordinates of the program."""
        ...


@dataclass(frozen=True, eq=False)
class _Dense:
    """A dense ``X0``, or the costs ``C`` of a linear objective."""

    b: int
    n: int

    def inside(self, G: Any) -> Array:
        return symmetric_part(G, self.n, "G")

    def gradient(self, at: Any, found: Adjoint, G: Any) -> Array:
        nearness = at.program.blocks[self.b].nearness
        slope = found.X[self.b]
        if nearness is None:
            return slope if at.program.maximize else -slope
        return _symmetric(nearness.mu * divergence_of(nearness).anchor_derivative(slope))

    def moved(self, at: Any, change: Any) -> Moved:
        change = symmetric_part(change, self.n, "the change of the data")
        nearness = at.program.blocks[self.b].nearness
        if nearness is None:
            return Moved(-change if at.program.maximize else change)
        return Moved(-_symmetric(nearness.mu * divergence_of(nearness).anchor_derivative(change)))

    def lifted(self, M: Array) -> Array:
        return M

    def outside(self, dX: Array, at: Any, change: Any) -> Array:
        return dX


@dataclass(frozen=True, eq=False)
class _Factor:
    """``X0 = F F'``: ``X = V M V'`` with orthonormal ``V`` of the range of ``F``, which moves with ``F``.

    To first order ``dV = (I - V V') dF inv(V'F)``, and the ``X0`` of the reduced program is
    ``(V'F) (V'F)'``.
    """

    b: int
    F: Array
    V: Array
    whole: Program

    @property
    def _inner(self) -> Array:
        return self.V.T @ self.F

    def _action(self) -> RowAction:
        return RowAction(self.whole.A.of_block(self.b))

    def _slack(self, y: Array) -> Any:
        """Return ``A*(y) - C`` of the whole program, sparse where its rows are."""
        block, found = self.whole.blocks[self.b], self._action().adjoint(y)
        return found if block.cost is None else (found.toarray() if sp.issparse(found) else found) - block.C

    def inside(self, G: Any) -> Array:
        product = _times(G, self.V)
        return _symmetric(self.V.T @ product)

    def gradient(self, at: Any, found: Adjoint, G: Any) -> Array:
        nearness = at.program.blocks[self.b].nearness
        assert nearness is not None
        V, M, slope = self.V, at.X[self.b], found.X[self.b]
        pulled = -(self._action().adjoint(found.rows) @ V)
        if G is not None:
            pulled = pulled + _times(G, V)
        of_V = 2 * (pulled @ M + self._slack(at.y) @ V @ slope)
        of_V -= V @ (V.T @ of_V)
        of_X0 = _symmetric(nearness.mu * divergence_of(nearness).anchor_derivative(slope))
        gradient: Array = np.linalg.solve(self._inner, of_V.T).T + 2 * V @ (of_X0 @ self._inner)
        return gradient

    def moved(self, at: Any, change: Any) -> Moved:
        dF, dV = self._changes(change)
        nearness = at.program.blocks[self.b].nearness
        assert nearness is not None
        V, M = self.V, at.X[self.b]
        half = V.T @ dF @ self._inner.T
        slope = -_symmetric(nearness.mu * divergence_of(nearness).anchor_derivative(half + half.T))
        half = V.T @ (self._slack(at.y) @ dV)
        rows = -2 * self._action().apply_product(dV @ M, V)
        return Moved(slope - (half + half.T), rows)

    def lifted(self, M: Array) -> Array:
        return self.V @ M @ self.V.T

    def outside(self, dX: Array, at: Any, change: Any) -> Array:
        V, M = self.V, at.X[self.b]
        half = V @ dX / 2
        if change is not None:
            half = half + self._changes(change)[1] @ M
        return half @ V.T + V @ half.T

    def _changes(self, change: Any) -> tuple[Array, Array]:
        dF = finite_array(change, "the change of the factor", 2)
        if dF.shape != self.F.shape:
            raise ValueError(f"the change of the factor has shape {dF.shape}; expected {self.F.shape}")
        outside = dF - self.V @ (self.V.T @ dF)
        return dF, np.asarray(np.linalg.solve(self._inner.T, outside.T).T, dtype=float)


def anchors_of(program: Program) -> tuple[Program, tuple[Anchor, ...]]:
    """Return the program with low-rank blocks on the ranges of their ``X0``, and the data of each block.

    Raises
    ------
    ValueError
        If the factor of a low-rank ``X0`` has dependent columns: its range may then grow.
    """
    reduced, anchors = program, list[Anchor]()
    for b, block in enumerate(program.blocks):
        X0 = None if block.nearness is None else block.nearness.X0
        if not isinstance(X0, LowRank) or block.nearness is None:
            anchors.append(_Dense(b, block.n))
            continue
        space = range_space(X0, block.nearness.kind, RANK_TOL, orthonormal=True)
        if space.V.shape[1] < X0.rank:
            raise ValueError(
                f"the factor of X0 of {block.name} has {X0.rank} columns and rank {space.V.shape[1]}; the "
                "answer has a derivative in a factor with independent columns only"
            )
        M0 = space.V.T @ X0.factor
        reduced = reduced.restrict(b, space.V, M0 @ M0.T)
        anchors.append(_Factor(b, X0.factor, space.V, program))
    return reduced, tuple(anchors)


def symmetric_part(S: Any, n: int, name: str) -> Array:
    """Return ``(S + S') / 2`` of a finite matrix of order `n`.

    Raises
    ------
    TypeError, ValueError
        If it is no such matrix.
    """
    array = finite_array(S, name, 2)
    if array.shape != (n, n):
        raise ValueError(f"{name} has shape {array.shape}; expected {(n, n)}")
    return _symmetric(array)


def _symmetric(S: Array) -> Array:
    return (S + S.T) / 2


def _times(G: Any, V: Array) -> Array:
    """Return the symmetric part of `G`, dense, sparse or LowRank, times `V`."""
    n = V.shape[0]
    if not isinstance(G, LowRank) and not sp.issparse(G):
        G = finite_array(G, "G", 2)
    if G.shape != (n, n):
        raise ValueError(f"G has shape {G.shape}; expected {(n, n)}")
    if isinstance(G, LowRank):
        return G @ V
    return (G @ V + G.T @ V) / 2
