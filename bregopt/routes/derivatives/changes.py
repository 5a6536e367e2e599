"""The terms of derivatives: changes, gradients, distances from points without a derivative, and constants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.records import dataclass

__all__ = ["Adjoint", "Change", "Congruence", "Differentiability"]

# Numerical constants of derivatives; all are relative.
SMALLEST_MARGIN = 1e-8  # below it an answer counts as a point without a derivative
SMALL_MARGIN = 1e-5  # below it a warning is given
RESIDUAL = 1e-10  # of the optimality conditions at which Newton's method ends
LARGEST_RESIDUAL = 1e-7  # at which the answer can still be differentiated
STEPS = 8  # of Newton's method; two or three are usual
ROUNDS = 5  # trials for the set of acting rows
CG_TOL = 1e-11  # residual of the equation of a derivative
CG_STEPS = 2_000
SINGULAR = 1e-13  # reciprocal condition number at which a system counts as singular
NULL = 1e-10  # eigenvalue of a singular system that counts as zero
CONSISTENT = 1e-7  # residual of a singular system that has a solution
LARGEST_CHANGE = 0.05  # of an answer by its refinement, relative


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
        Violation of the optimality conditions after Newton's method; infinite where they do not determine
        the entries without weight.
    """

    eigenvalue: float
    multiplier: float
    slack: float
    residual: float

    @property
    def margin(self) -> float:
        """The smallest of the three distances."""
        return min(self.eigenvalue, self.multiplier, self.slack)


@dataclass(frozen=True, eq=False)
class Congruence:
    """``X`` near ``A`` by way of ``Y = S (X - t I) S`` near ``S (A - t I) S``.

    Parameters
    ----------
    s : array of shape (n,)
        The diagonal of ``S``, above zero.
    first : int
        The first of consecutive rows of the problem that keep entries of ``X`` at those of ``A``.
    i, j : int array of shape (k,)
        These entries.
    """

    s: Array
    first: int
    i: IntArray
    j: IntArray

    @property
    def rows(self) -> slice:
        """The rows of these entries."""
        return slice(self.first, self.first + len(self.i))

    def cotangent(self, G: Array) -> Array:
        """Return the cotangent of ``Y`` of one of ``X``."""
        return G / np.outer(self.s, self.s)

    def tangent(self, dY: Array) -> Array:
        """Return the change of ``X`` of one of ``Y``."""
        return dY / np.outer(self.s, self.s)

    def gradient(self, of_start: Array, of_rows: Array) -> Array:
        """Return the gradient in ``A`` of those in the start and in the right-hand sides of all rows."""
        gradient = of_start * np.outer(self.s, self.s)
        half = of_rows[self.rows] / 2
        np.add.at(gradient, (self.i, self.j), half)
        np.add.at(gradient, (self.j, self.i), half)
        return gradient

    def change(self, dA: Array, m: int) -> tuple[Array, Array]:
        """Return the changes of the start and of the right-hand sides of `m` rows."""
        rows = np.zeros(m)
        rows[self.rows] = (dA[self.i, self.j] + dA[self.j, self.i]) / 2
        return dA * np.outer(self.s, self.s), rows
