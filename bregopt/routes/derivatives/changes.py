"""Changes of a program and of its answer, gradients, and distances from points without a derivative."""

from __future__ import annotations

from typing import NamedTuple

from bregopt.arrays import Array
from bregopt.records import dataclass

__all__ = ["Adjoint", "Change", "Differentiability"]


@dataclass(frozen=True, eq=False)
class Change:
    """A change of the optimality conditions, or of the answer.

    Parameters
    ----------
    X : tuple of arrays of shape (n_b, n_b) or None
        Of the slopes, or of the matrices; None for zero.
    rows : array of shape (m,)
        Of the right-hand sides, or of the multipliers.
    u : array of shape (k,)
        Of the costs, or of the variables.
    paid : array of shape (m,)
        Of the multipliers of hinges that are paid; not used in an answer.
    """

    X: tuple[Array | None, ...]
    rows: Array
    u: Array
    paid: Array


@dataclass(frozen=True, eq=False)
class Adjoint:
    """The gradient of a function of the answer, in the terms of :class:`Change`.

    Parameters
    ----------
    X : tuple of arrays of shape (n_b, n_b)
        Minus the gradient in the slopes.
    rows, u, paid : array
        The gradients in the others.
    """

    X: tuple[Array, ...]
    rows: Array
    u: Array
    paid: Array


class Differentiability(NamedTuple):
    """How far an answer is from one without a derivative; all numbers are relative.

    Parameters
    ----------
    eigenvalue : float
        The smallest magnitude of an eigenvalue of ``X - Z``, with ``Z`` the multiplier of ``X psd``, relative
        to the largest; for linear objectives, of an eigenvalue of ``X`` or ``Z`` that is not zero. Infinite
        for LogDet and von Neumann, which are smooth everywhere.
    multiplier : float
        The smallest multiplier of an inequality that acts; infinite without one.
    slack : float
        The smallest slack of an inequality that does not act; infinite without one.
    residual : float
        Violation of the optimality conditions after Newton's method.
    """

    eigenvalue: float
    multiplier: float
    slack: float
    residual: float

    @property
    def margin(self) -> float:
        """The smallest of the three distances."""
        return min(self.eigenvalue, self.multiplier, self.slack)
