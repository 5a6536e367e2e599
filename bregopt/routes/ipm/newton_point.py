"""What a Newton step starts from, what it is asked for, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from bregopt.arrays import Array

__all__ = ["RightHandSide", "ScalingPoint", "Solve", "Step", "System"]


class ScalingPoint(NamedTuple):
    """Where a step starts from.

    Parameters
    ----------
    X, K : tuple of arrays of shape (n_b, n_b)
        Positive definite, or so on a face.
    root : array of shape (order, order)
        Lower Cholesky factor of the first ``X``, on its face.
    D : array of shape (m,)
        Infinite where a row asks for nothing.
    D_u : array of shape (k,)
        Infinite where a variable is free.
    """

    X: tuple[Array, ...]
    K: tuple[Array, ...]
    root: Array
    D: Array
    D_u: Array


class RightHandSide(NamedTuple):
    """Right-hand sides: of ``dX = w K - X + sym(K (A*(dy) X + R))`` and of the rows and variables.

    `R` holds that of each block, None for zero.
    """

    weight: float
    R: tuple[Any, ...]
    r: Array
    r_u: Array
    q: Array


class Step(NamedTuple):
    """What solves the system: symmetric ``dX``, ``du``, ``dy``, and `adjoint`, ``A*(dy)`` in each block."""

    X: tuple[Array, ...]
    u: Array
    y: Array
    adjoint: tuple[Any, ...]


Solve = Callable[[RightHandSide], Step]


class System(Protocol):
    """Newton's system for one problem.

    Attributes
    ----------
    direct : bool
        Whether it is factorized, not left to conjugate gradients.
    """

    @property
    def direct(self) -> bool: ...

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        """Return what solves the system for any right-hand sides."""
        ...
