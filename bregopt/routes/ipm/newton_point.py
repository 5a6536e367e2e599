"""The scaling point, the right-hand side and the solution of a Newton system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from bregopt.arrays import Array
from bregopt.program import NO_CONES, SecondOrderCones

__all__ = ["RightHandSide", "ScalingPoint", "Solve", "Step", "System"]


class ScalingPoint(NamedTuple):
    """The point at which Newton's system is formed.

    Matrices are in one array for each group of blocks: of shape ``(n, n)`` for a block, ``(B, n, n)`` for a
    stack (:mod:`bregopt.routes.ipm.groups`).

    Parameters
    ----------
    X, K : tuple of arrays
        Positive definite, possibly on a face.
    roots : tuple of arrays
        Roots of ``X`` (:class:`~bregopt.routes.ipm.cones.Cone`): the lower Cholesky factor of a block on its
        face, the inverse factors of a stack.
    D : array of shape (m,)
        Infinite for a row without finite bounds.
    D_u : array of shape (k,)
        Infinite for a free variable.
    cones : SecondOrderCones
        Of the variables.
    p_u : array of shape (cones.size,) or None
        ``D_u`` of the system is ``diag(D_u)`` plus ``p p'`` for the part ``p`` of each cone; None without
        cones.
    """

    X: tuple[Array, ...]
    K: tuple[Array, ...]
    roots: tuple[Array, ...]
    D: Array
    D_u: Array
    cones: SecondOrderCones = NO_CONES
    p_u: Array | None = None


class RightHandSide(NamedTuple):
    """Right-hand sides: of ``dX = w K - X + sym(K (A*(dy) X + R))`` and of the rows and variables.

    `weights` and `R` have one element for each group of blocks; in `R` None stands for zero.
    """

    weights: tuple[float, ...]
    R: tuple[Any, ...]
    r: Array
    r_u: Array
    q: Array


class Step(NamedTuple):
    """The solution of the system: symmetric ``dX``, ``du``, ``dy``, and ``A*(dy)`` (`adjoint`).

    `X` and `adjoint` have one array for each group of blocks.
    """

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
        Whether the system is factorized; otherwise conjugate gradients solve it.
    """

    @property
    def direct(self) -> bool: ...

    def factor(self, scaling_point: ScalingPoint) -> Solve:
        """Return the solver of the system for any right-hand side."""
        ...
