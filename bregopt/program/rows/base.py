"""What a row family is: ``m`` rows ``<A_k, X>`` of one symmetric matrix, held as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from bregopt.arrays import EPS, Array, IntArray
from bregopt.program.lowrank import Matrix

__all__ = ["Coordinates", "Pieces", "Rows", "eigen_factor", "symmetric_scatter"]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Rows as a list of terms: row ``row[k]`` holds ``value[k] * X[i[k], j[k]]``."""

    row: IntArray
    i: IntArray
    j: IntArray
    value: Array


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows as sums of few rank-one pieces: row ``row[r]`` holds ``weight[r] u_r u_r'``.

    The ``u`` are the rows of `U`, dense or CSR of shape ``(pieces, n)``.
    """

    U: Any
    row: IntArray
    weight: Array


@runtime_checkable
class Rows(Protocol):
    """A family of `m` linear rows ``<A_k, X>`` over symmetric matrices of order `n`."""

    @property
    def m(self) -> int:
        """The number of rows."""
        ...

    @property
    def n(self) -> int:
        """The order of ``X``."""
        ...

    def apply(self, X: Matrix) -> Array:
        """Return ``<A_k, X>`` for every row, shape ``(m,)``."""
        ...

    def adjoint(self, y: Array) -> Array:
        """Return ``sum_k y_k A_k``, a symmetric array of shape ``(n, n)``."""
        ...

    def restrict(self, V: Array) -> Rows:
        """Return the rows ``V' A_k V``: the same rows for ``X = V M V'``; `V` has shape ``(n, r)``."""
        ...

    def slice(self, rows: IntArray) -> Self:
        """Return the rows of the given numbers; a number may repeat."""
        ...

    def scale(self, weight: Array) -> Self:
        """Return the rows ``weight[k] * A_k``."""
        ...

    def norms(self) -> Array:
        """Return the Frobenius norms of the ``A_k``, shape ``(m,)``."""
        ...

    def magnitude(self, s: Array) -> Array:
        """Return ``sum_ij |A_ij| s_i s_j``: the most a row can be on psd matrices of diagonal ``s^2``."""
        ...

    def factor(self, k: int) -> tuple[Array, Array]:
        """Return ``(U, d)`` with ``A_k = U diag(d) U'``, `U` of shape ``(n, rank)`` of full column rank."""
        ...

    def pieces(self) -> Pieces | None:
        """Return the rows in rank-one pieces, None where they may need many."""
        ...

    def coordinates(self) -> Coordinates:
        """Return the rows term by term."""
        ...

    def count(self) -> int:
        """Return about how many terms :meth:`coordinates` would list, without listing them."""
        ...


def symmetric_scatter(n: int, i: IntArray, j: IntArray, value: Array) -> Array:
    """Return ``sum_k value_k (e_i e_j' + e_j e_i') / 2``, shape ``(n, n)``."""
    if 8 * len(value) > n * n:
        dense = np.bincount(i * n + j, weights=value, minlength=n * n).reshape(n, n)
        return (dense + dense.T) / 2
    sparse = np.zeros(n * n)
    np.add.at(sparse, i * n + j, value / 2)
    np.add.at(sparse, j * n + i, value / 2)
    return sparse.reshape(n, n)


def eigen_factor(A: Array) -> tuple[Array, Array]:
    """Return ``(U, d)`` with ``A = U diag(d) U'``, dropping the null space of the symmetric `A`."""
    d, U = np.linalg.eigh(A)
    keep = np.abs(d) > 8 * len(d) * EPS * np.abs(d).max(initial=0.0)
    return U[:, keep], d[keep]
