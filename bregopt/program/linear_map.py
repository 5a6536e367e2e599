"""The linear map ``A``: row families at given indices of a stack of rows over one or more matrix blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, covers, span
from bregopt.program.lowrank import Matrix
from bregopt.program.rows import DenseRows, Rows
from bregopt.records import PickledWithoutCache, cached_property, dataclass, replace

__all__ = ["LinearMap", "Term"]

# Entries of all rows' matrices up to which one dense product is faster than the row families. The limit is
# `_TINY_OF_SMALL` up to the order `_SMALL` of a block, `_TINY` above.
_TINY, _TINY_OF_SMALL, _SMALL = 20_000, 120_000, 20
_LISTED = 1_000_000  # terms of a family up to which its rows on the diagonal are looked for
_NO_INDEX = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Term(PickledWithoutCache):
    """A family of rows of the block number ``block``, at the indices ``at`` of the stack."""

    block: int
    at: IntArray
    rows: Rows

    @cached_property
    def norms(self) -> Array:
        """The Frobenius norms of the rows in the block."""
        return self.rows.norms()

    @cached_property
    def place(self) -> IntArray | slice:
        """The indices in the stack: a slice, which gives a view, where they are consecutive."""
        return span(self.at)


@dataclass(frozen=True, eq=False)
class LinearMap(PickledWithoutCache):
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
        factors = self._factors
        if len(factors) == 1 and covers(factors[0].place, self.m):  # each row once, in their order
            return factors[0].rows.apply(X[factors[0].block])
        activity = np.zeros(self.m)
        for term in factors:
            activity[term.place] += term.rows.apply(X[term.block])
        return activity

    def adjoint(self, y: Array, block: int = 0) -> Array:
        """Return the part of ``A*(y) = sum_k y_k A_k`` in one block."""
        total = None
        for term in self._factors_by_block[block]:
            own = term.rows.adjoint(y[term.place])
            total = own if total is None else np.add(total, own, out=total)
        return np.zeros((self.orders[block],) * 2) if total is None else total

    @cached_property
    def _factors(self) -> tuple[Term, ...]:
        """The terms used in products: one dense term for all those of a block where that is faster."""
        terms: list[Term] = []
        for block, n in enumerate(self.orders):
            own = self.terms_of(block)
            tiny = sum(len(term.at) for term in own) * n**2 <= (_TINY_OF_SMALL if n <= _SMALL else _TINY)
            terms += [self._table(block)] if tiny and own else own
        return tuple(terms)

    @cached_property
    def _factors_by_block(self) -> tuple[tuple[Term, ...], ...]:
        return _by_block(self._factors, len(self.orders))

    def terms_of(self, block: int) -> tuple[Term, ...]:
        """Return the terms in one block."""
        return self._terms_by_block[block]

    @cached_property
    def _terms_by_block(self) -> tuple[tuple[Term, ...], ...]:
        return _by_block(self.terms, len(self.orders))

    def _table(self, block: int) -> Term:
        """Return all rows in one block as dense ones."""
        n, own = self.orders[block], self.terms_of(block)
        at = np.unique(np.concatenate([term.at for term in own]))
        half = np.zeros(len(at) * n**2)
        for term in own:
            t = term.rows.coordinates()
            row = np.searchsorted(at, term.at)[t.row]
            half += np.bincount((row * n + t.i) * n + t.j, t.value, len(half))
        stack = half.reshape(len(at), n, n)
        return Term(block, at, DenseRows((stack + stack.transpose(0, 2, 1)) / 2))

    def restrict(self, block: int, V: Array) -> LinearMap:
        """Return the map for ``X_block = V M V'``."""
        orders = tuple(V.shape[1] if b == block else n for b, n in enumerate(self.orders))
        terms = tuple(
            replace(term, rows=term.rows.restrict(V)) if term.block == block else term for term in self.terms
        )
        return LinearMap(self.m, orders, terms)

    def slice(self, rows: IntArray) -> LinearMap:
        """Return the map of the given rows, each at most once."""
        if covers(span(rows), self.m):
            return self
        place = np.full(self.m, -1)
        place[rows] = np.arange(len(rows))
        terms = []
        for term in self.terms:
            kept = np.flatnonzero(place[term.at] >= 0)
            if len(kept):
                terms.append(Term(term.block, place[term.at[kept]], term.rows.slice(kept)))
        return LinearMap(len(rows), self.orders, tuple(terms))

    def of_block(self, block: int) -> LinearMap:
        """Return the part of the map in one block, a map of that block alone."""
        if len(self.orders) == 1:
            return self
        own = tuple(replace(term, block=0) for term in self.terms_of(block))
        return LinearMap(self.m, (self.orders[block],), own)

    @cached_property
    def in_one_block(self) -> Mask:
        """Mask of the rows that depend on exactly one matrix."""
        count = np.zeros(self.m)
        for term in self.terms:
            count[term.place] += 1
        mask: Mask = count == 1
        return mask

    @cached_property
    def definite_signs(self) -> Array:
        """1 for rows that are never negative on psd matrices, -1 for never positive ones, 0 for others.

        Zero also stands for rows whose sign is not known, and for rows without a matrix.
        """
        least, largest = np.full(self.m, np.inf), np.full(self.m, -np.inf)
        for term in self.terms:
            sign = term.rows.definite_signs()
            least[term.place] = np.minimum(least[term.place], sign)
            largest[term.place] = np.maximum(largest[term.place], sign)
        return np.where(least == largest, least, 0.0)

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """What methods know of the rows alone; programs with other bounds and costs share it."""
        return {}

    def on_diagonal(self, block: int) -> tuple[IntArray, IntArray, Array]:
        """Return row, ``i`` and weight of the ``X_ii`` in the rows whose entries in a block are diagonal.

        The terms of an entry are added. Rows of rank one are among them if their vector has one entry, and
        others unless they have very many terms.
        """
        if block not in self._on_diagonal:
            self._on_diagonal[block] = self._diagonal_entries(block)
        return self._on_diagonal[block]

    @cached_property
    def _on_diagonal(self) -> dict[int, tuple[IntArray, IntArray, Array]]:
        return {}

    def _diagonal_entries(self, block: int) -> tuple[IntArray, IntArray, Array]:
        n, places, weights = self.orders[block], [_NO_INDEX], [np.zeros(0)]
        for term in self.terms_of(block):
            rows, at = term.rows, term.at
            factors = None if rows.few_terms else rows.products()
            if factors is not None:
                single = np.flatnonzero(_counts(factors.U) * _counts(factors.W) == 1)
                rows, at = rows.slice(single), at[single]
            elif rows.count() > _LISTED:
                continue
            t = rows.coordinates()
            spoiled = np.zeros(rows.m, dtype=bool)
            spoiled[t.row[t.i != t.j]] = True
            kept = ~spoiled[t.row]
            places.append(at[t.row[kept]] * n + t.i[kept])
            weights.append(t.value[kept])
        place, weight = np.concatenate(places), np.concatenate(weights)
        if not (place[1:] > place[:-1]).all():
            place, inverse = np.unique(place, return_inverse=True)
            weight = np.asarray(np.bincount(inverse, weight), dtype=float)
        return place // n, place % n, weight

    def norms(self) -> Array:
        """Return the Frobenius norm of each row over all blocks, as a read-only array."""
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
        """Return ``(U, d)`` with ``A_k = U diag(d) U'`` for every row; empty for rows without the block."""
        n = self.orders[block]
        factors = [(np.zeros((n, 0)), np.zeros(0))] * self.m
        for term in self.terms_of(block):
            for local, k in enumerate(term.at):
                factors[k] = term.rows.factor(local)
        return factors


def _counts(U: Any) -> IntArray:
    """Return the number of entries in each row of a dense or CSR array."""
    counts: IntArray = np.diff(U.indptr) if sp.issparse(U) else np.count_nonzero(U, axis=1)
    return counts


def _by_block(terms: Sequence[Term], count: int) -> tuple[tuple[Term, ...], ...]:
    """Return the terms in each block."""
    lists: list[list[Term]] = [[] for _ in range(count)]
    for term in terms:
        lists[term.block].append(term)
    return tuple(map(tuple, lists))
