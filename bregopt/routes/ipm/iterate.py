"""The iterate of the primal-dual method, and a step from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.linalg import inverse_of
from bregopt.program import Face
from bregopt.routes.ipm.bound_state import BoundState, BoundStep

__all__ = ["Direction", "Iterate", "Pair"]


@dataclass(frozen=True, eq=False)
class Pair:
    """The matrices ``X`` and ``Z`` of one block.

    Parameters
    ----------
    X, Z : array of shape (n, n)
        Positive definite on the face.
    X_root, Z_root : array of shape (order, order)
        Lower Cholesky factors of ``X`` and ``Z`` on the face.
    residual : array of shape (n, n), optional
        ``C - A*(y) - Z``; None for zero.
    face : Face
    """

    X: Array
    Z: Array
    X_root: Array
    Z_root: Array
    residual: Array | None
    face: Face

    @property
    def order(self) -> int:
        """The order of the matrices on the face."""
        return len(self.X_root)

    @property
    def product(self) -> float:
        """``<X, Z>``."""
        return float(np.vdot(self.X, self.Z))

    @property
    def weight(self) -> float:
        """The mean eigenvalue of ``X Z``."""
        return self.product / max(self.order, 1)

    @cached_property
    def K(self) -> Array:
        """The inverse of ``Z``, on the face."""
        if self.face.order == 0:
            return np.zeros_like(self.Z)
        return self.face.lift(inverse_of(self.Z_root))


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point of the method.

    Parameters
    ----------
    pairs : tuple of Pair
    u, z : array of shape (k,)
        Variables, and the multipliers of their box.
    y, activity : array of shape (m,)
    bounds : BoundState
        Of the rows and, after them, of the box.
    dual_residual : float
        The norm of ``C - A*(y) - Z``, largest over the blocks; zero if it is round-off.
    """

    pairs: tuple[Pair, ...]
    u: Array
    z: Array
    y: Array
    activity: Array
    bounds: BoundState
    dual_residual: float

    def complementarity(self, blocks: Iterable[int]) -> float:
        """Return the complementarity of rows and box, plus ``<X, Z>`` of the given blocks."""
        return sum(self.pairs[b].product for b in blocks) + self.bounds.complementarity()

    def complementarity_after(
        self, step: Direction, primal: float, dual: float, blocks: Iterable[int]
    ) -> float:
        """Return the complementarity after a step of these lengths."""
        total = self.bounds.complementarity_after(step.bounds, primal, dual)
        for b in blocks:
            pair, dX, dZ = self.pairs[b], step.X[b], step.Z[b]
            value = pair.product + primal * float(np.vdot(dX, pair.Z))
            total += value + dual * (_inner(pair.X, dZ) + primal * _inner(dX, dZ))
        return total

    @cached_property
    def bounded_values(self) -> Array:
        """The bounded quantities: activities, then variables."""
        return np.concatenate([self.activity, self.u])

    def order(self, blocks: Iterable[int]) -> int:
        """Return the number of terms in the complementarity."""
        return sum(self.pairs[b].order for b in blocks) + self.bounds.products


@dataclass(frozen=True, eq=False)
class Direction:
    """A Newton step."""

    X: tuple[Array, ...]
    Z: tuple[Any, ...]
    u: Array
    bounds: BoundStep


def _inner(X: Array, S: Any) -> float:
    """Return ``<X, S>`` with a matrix that may be sparse."""
    return float(np.vdot(X, S)) if isinstance(S, np.ndarray) else float(S.multiply(X).sum())
