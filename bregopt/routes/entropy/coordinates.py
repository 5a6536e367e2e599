"""Real coordinates of the points of a program: vectors of its matrices, then its ordinary variables.

The real form ``[Re X, -Im X; Im X, Re X]`` of a Hermitian matrix of order ``n`` has the ``n^2`` coordinates of
that matrix, where all data have the form too; they are recognized by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.modeling.complex_expressions import embedded
from bregopt.program import LinearMap, Program
from bregopt.program.convex_functions import hmat, hvec_length
from bregopt.records import dataclass

__all__ = ["Coordinates", "Matrices"]

_ROUND_OFF = 1e-14  # of the squared norm of a row: it has the form of a Hermitian matrix up to this


@dataclass(frozen=True, eq=False)
class Matrices:
    """The coordinates of one block.

    Parameters
    ----------
    n : int
        The order of the symmetric or Hermitian matrix.
    hermitian : bool
    place : slice
    """

    n: int
    hermitian: bool
    place: slice

    def matrix(self, x: Array) -> Any:
        """Return the symmetric or Hermitian matrix of a point, or of several, shape ``(..., width)``."""
        return hmat(x[..., self.place], self.n, self.hermitian)

    def block(self, x: Array) -> Array:
        """Return the block of the program."""
        X = self.matrix(x)
        whole: Array = embedded(X) if self.hermitian else X
        return whole


class Coordinates:
    """The coordinates of the points of a program.

    Attributes
    ----------
    blocks : list of Matrices
    variables : slice
    width : int
    """

    def __init__(self, program: Program) -> None:
        self._maps: list[Any] = []
        self.blocks: list[Matrices] = []
        start = 0
        for b, block in enumerate(program.blocks):
            hermitian = _is_hermitian(program, b)
            n = block.n // 2 if hermitian else block.n
            self._maps.append(_entries(n, hermitian))
            end = start + hvec_length(n, hermitian)
            self.blocks.append(Matrices(n, hermitian, slice(start, end)))
            start = end
        self.variables = slice(start, start + program.k)
        self.width = start + program.k

    def rows(self, A: LinearMap, B: Any) -> Any:
        """Return rows as a sparse matrix of shape ``(m, width)``."""
        parts = [_table(A, b) @ R for b, R in enumerate(self._maps)]
        return sp.csr_array(sp.hstack([*parts, sp.csr_array(B)], format="csr"))

    def cost(self, program: Program) -> Array:
        """Return the linear objective."""
        parts = [np.ravel(block.C) @ R for block, R in zip(program.blocks, self._maps, strict=True)]
        return np.concatenate([*parts, program.c])

    def point(self, x: Array) -> tuple[list[Array], Array]:
        """Return the blocks and the variables of a point."""
        return [own.block(x) for own in self.blocks], x[self.variables]


def _entries(n: int, hermitian: bool) -> Any:
    """Return the entries of a block as a linear map of its coordinates, shape ``(order^2, length)``."""
    i, j = np.triu_indices(n)
    k, half = np.arange(len(i)), np.where(i == j, 1.0, np.sqrt(0.5))
    if not hermitian:
        rows = np.concatenate([i * n + j, (j * n + i)[i != j]])
        columns, values = np.concatenate([k, k[i != j]]), np.concatenate([half, half[i != j]])
        return sp.csr_array((values, (rows, columns)), (n * n, len(i)))
    strict = np.flatnonzero(i != j)
    a, b, root = i[strict], j[strict], half[strict]
    imaginary = len(i) + np.arange(len(strict))
    order = 2 * n
    entries: list[tuple[IntArray, IntArray, IntArray, Array]] = []
    for shift in (0, n):
        entries.append((i + shift, j + shift, k, half))
        entries.append((b + shift, a + shift, k[strict], root))
    # The imaginary part of the entry (a, b) is at (n + a, b), and minus it at (n + b, a); the transposes.
    for row, column, sign in ((n + a, b, 1.0), (n + b, a, -1.0)):
        entries.append((row, column, imaginary, sign * root))
        entries.append((column, row, imaginary, sign * root))
    row, column, number, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    return sp.csr_array((value, (row * order + column, number)), (order**2, n * n))


def _table(A: LinearMap, b: int) -> Any:
    """Return the matrices of the rows in one block as vectors, sparse of shape ``(m, n^2)``."""
    n = A.orders[b]
    parts = []
    for term in A.terms_of(b):
        t = term.rows.coordinates()
        parts.append((term.at[t.row], t.i * n + t.j, t.value))
    if not parts:
        return sp.csr_array((A.m, n * n))
    row, place, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sp.csr_array((value, (row, place)), (A.m, n * n))


def _is_hermitian(program: Program, b: int) -> bool:
    """Whether the cost and all rows of a block have the real form of Hermitian matrices."""
    n = program.blocks[b].n
    if n % 2:
        return False
    R = _entries(n // 2, True)
    turn = np.arange(n * n).reshape(n, n).T.ravel()
    cost = sp.csr_array(program.blocks[b].C.reshape(1, -1))
    tables = [cost, _table(program.A, b), *(_table(term.A, b) for term in program.terms)]
    return any(table.nnz for table in tables) and all(_within(table, turn, R) for table in tables)


def _within(table: Any, turn: IntArray, R: Any) -> bool:
    symmetric = (table + table[:, turn]) / 2
    whole, own = symmetric.multiply(symmetric).sum(axis=1), (symmetric @ R).power(2).sum(axis=1) / 2
    return bool((whole - own <= _ROUND_OFF * whole).all())


def widths(parts: Sequence[int]) -> list[slice]:
    """Return the slices of parts of given lengths."""
    ends = np.cumsum([0, *parts])
    return [slice(int(a), int(b)) for a, b in zip(ends[:-1], ends[1:], strict=True)]
