"""The way from the answer of a ready-made problem to that of the problem that was solved, and back."""

from __future__ import annotations

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.records import dataclass

__all__ = ["Congruence"]


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
