"""The linear map ``A``: row families placed in a stack of rows over one or more matrix blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.program.lowrank import Matrix
from bregopt.program.rows import Rows

__all__ = ["LinearMap", "Term"]


@dataclass(frozen=True, eq=False)
class Term:
    """A family that stands in rows ``at`` of the stack and reads the block number ``block``."""

    block: int
    at: IntArray
    rows: Rows

    @cached_property
    def norms(self) -> Array:
        """The Frobenius norms of the rows in the block."""
        return self.rows.norms()


@dataclass(frozen=True, eq=False)
class LinearMap:
    """``A(X)_k = sum over blocks <A_k, X_block>``; a row meets each block in at most one term.

    Parameters
    ----------
    m : int
        Number of rows.
    orders : tuple of int
        Order of each block.
    terms : tuple of Term
    """

    m: int
    orders: tuple[int, ...]
    terms: tuple[Term, ...]

    def apply(self, X: Sequence[Matrix]) -> Array:
        """Return ``A(X)``, shape ``(m,)``."""
        activity = np.zeros(self.m)
        for term in self.terms:
            activity[term.at] += term.rows.apply(X[term.block])
        return activity

    def adjoint(self, y: Array, block: int = 0) -> Array:
        """Return the part of ``A*(y) = sum_k y_k A_k`` in one block."""
        total = np.zeros((self.orders[block],) * 2)
        for term in self.terms:
            if term.block == block:
                total += term.rows.adjoint(y[term.at])
        return total

    def restrict(self, block: int, V: Array) -> LinearMap:
        """Return the map for ``X_block = V M V'``."""
        orders = tuple(V.shape[1] if b == block else n for b, n in enumerate(self.orders))
        terms = tuple(
            replace(term, rows=term.rows.restrict(V)) if term.block == block else term for term in self.terms
        )
        return LinearMap(self.m, orders, terms)

    def slice(self, rows: IntArray) -> LinearMap:
        """Return the map of the given rows, each at most once."""
        place = np.full(self.m, -1)
        place[rows] = np.arange(len(rows))
        terms = []
        for term in self.terms:
            kept = np.flatnonzero(place[term.at] >= 0)
            if len(kept):
                terms.append(Term(term.block, place[term.at[kept]], term.rows.slice(kept)))
        return LinearMap(len(rows), self.orders, tuple(terms))

    def norms(self) -> Array:
        """Return the Frobenius norm of each row over all blocks; computed once, not to be written to."""
        return self._norms

    @cached_property
    def _norms(self) -> Array:
        square = np.zeros(self.m)
        for term in self.terms:
            square[term.at] += term.norms**2
        norms = np.sqrt(square)
        norms.setflags(write=False)
        return norms

    def factors(self, block: int = 0) -> list[tuple[Array, Array]]:
        """Return ``(U, d)`` with ``A_k = U diag(d) U'`` for every row, empty where it skips the block."""
        n = self.orders[block]
        factors = [(np.zeros((n, 0)), np.zeros(0))] * self.m
        for term in self.terms:
            if term.block == block:
                for local, k in enumerate(term.at):
                    factors[k] = term.rows.factor(local)
        return factors
