"""The iterate of the primal-dual method, and a step from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bregopt.arrays import Array
from bregopt.cache import cached_property
from bregopt.routes.ipm.bound_state import BoundState, BoundStep
from bregopt.routes.ipm.cones import Cone
from bregopt.routes.ipm.second_order import SecondOrderState, SecondOrderStep

__all__ = ["Direction", "Iterate", "Pair"]


@dataclass(frozen=True, eq=False)
class Pair:
    """The matrices ``X`` and ``Z`` of one block, or of a stack of blocks.

    Parameters
    ----------
    X, Z : array of shape (n, n) or (B, n, n)
        In the interior of the cone.
    X_root, Z_root : array
        Roots in the sense of the cone: the lower Cholesky factor of a block on its face, the inverse factors
        of a stack.
    residual : array of the shape of Z, optional
        ``C - A*(y) - Z``; None for zero.
    cone : Cone
    """

    X: Array
    Z: Array
    X_root: Array
    Z_root: Array
    residual: Array | None
    cone: Cone

    @property
    def order(self) -> int:
        """The sum of the orders of the matrices on their faces."""
        return self.cone.order

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
        """The inverse of ``Z`` in the cone."""
        return self.cone.inverse(self.Z_root)

    @property
    def traces(self) -> Array:
        """The trace of each ``X``."""
        return self.cone.traces(self.X)

    def step_lengths(self, dX: Array, dZ: Any, tol: float) -> tuple[float, float]:
        """Return about the largest step lengths in the cone, up to a relative `tol`."""
        primal = self.cone.primal_length(self.X, self.X_root, dX, tol)
        return primal, self.cone.dual_length(self.Z, self.Z_root, self.K, dZ, tol)


@dataclass(frozen=True, eq=False)
class Iterate:
    """A point of the method.

    Parameters
    ----------
    pairs : tuple of Pair
        One for each group of blocks.
    u, z : array of shape (k,)
        Variables, and the multipliers of their box and of their second-order cones.
    y, activity : array of shape (m,)
    bounds : BoundState
        Of the rows and, after them, of the box.
    second_order : SecondOrderState
        Of the variables in second-order cones.
    dual_residual : float
        The norm of ``C - A*(y) - Z``, largest over the pairs; zero if it is round-off.
    """

    pairs: tuple[Pair, ...]
    u: Array
    z: Array
    y: Array
    activity: Array
    bounds: BoundState
    second_order: SecondOrderState
    dual_residual: float

    def complementarity(self, pairs: Iterable[int]) -> float:
        """Return the complementarity of rows and variables, plus ``<X, Z>`` of the given pairs."""
        of_variables = self.bounds.complementarity() + self.second_order.complementarity()
        return sum(self.pairs[b].product for b in pairs) + of_variables

    def complementarity_after(
        self, step: Direction, primal: float, dual: float, pairs: Iterable[int]
    ) -> float:
        """Return the complementarity after a step of these lengths."""
        total = self.bounds.complementarity_after(step.bounds, primal, dual)
        total += self.second_order.complementarity_after(step.second_order, primal, dual)
        for b in pairs:
            pair, dX, dZ = self.pairs[b], step.X[b], step.Z[b]
            value = pair.product + primal * float(np.vdot(dX, pair.Z))
            total += value + dual * (_inner(pair.X, dZ) + primal * _inner(dX, dZ))
        return total

    @cached_property
    def bounded_values(self) -> Array:
        """The bounded quantities: activities, then variables."""
        return np.concatenate([self.activity, self.u])

    def order(self, pairs: Iterable[int]) -> int:
        """Return the number of terms in the complementarity."""
        of_variables = self.bounds.products + self.second_order.products
        return sum(self.pairs[b].order for b in pairs) + of_variables


@dataclass(frozen=True, eq=False)
class Direction:
    """A Newton step; `X` and `Z` have one array for each group of blocks."""

    X: tuple[Array, ...]
    Z: tuple[Any, ...]
    u: Array
    bounds: BoundStep
    second_order: SecondOrderStep


def _inner(X: Array, S: Any) -> float:
    """Return ``<X, S>`` with a matrix that may be sparse."""
    return float(np.vdot(X, S)) if isinstance(S, np.ndarray) else float(S.multiply(X).sum())
