"""The Schur matrix of a stack of blocks of equal order, arrays of shape ``(B, n, n)``.

It is ``H_kl = sum_b <A_kb, sym(X_b A_lb K_b)>``, by the cheaper of two formulas
(Fujisawa, Kojima and Nakata 1997):

- rows with few terms: products of entries of ``X`` and ``K`` on the distinct places of the terms, and from
  these the pairs of terms in one block;
- rows with many terms: ``tr(A_k X A_l K)``, as inner products of the ``A_k X`` and the ``(A_l K)'``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from bregopt.arrays import Array, IntArray
from bregopt.clock import checkpoint
from bregopt.program import LinearMap
from bregopt.records import cached_property, dataclass

__all__ = ["ProductSchur", "SchurValues", "StackRows", "StackTerms", "TermSchur"]

# Numbers that the formula for the Schur matrix of a stack may store (0.4 GB).
_STACK_NUMBERS = 5e7
# Products of entries of a stack that are computed at a time (2 MB).
_STACK_CHUNK = 250_000

# Approximate nanoseconds of a product of two distinct entries of a block in a stack.
_PLACE_COST = 10.0
# Approximate nanoseconds of adding a number to the Schur matrix at a place that varies.
_PAIR_COST = 6.0
# Approximate nanoseconds of one multiplication inside small matrix products.
_FLOP_COST = 0.12


class StackRows:
    """The rows of a stack: their part of the Schur matrix.

    Parameters
    ----------
    terms : StackTerms
    """

    def __init__(self, terms: StackTerms) -> None:
        self._terms = terms

    @staticmethod
    def fits(terms: StackTerms) -> bool:
        """Whether the arrays of the cheaper formula of the Schur matrix fit the memory for stacks."""
        return _formula(terms).numbers(terms) <= _STACK_NUMBERS

    @cached_property
    def formula(self) -> _StackSchur:
        """The cheaper formula of the Schur matrix."""
        return _formula(self._terms)(self._terms)

    def schur(self, X: Array, K: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return ``<A_k, sym(X A_l K)>``, summed over the blocks, for all rows or for some."""
        H = self.formula.assemble(X, K)
        return H if rows is None or len(rows) == len(H) else H[np.ix_(rows, rows)]

    def magnitudes(self, X: Array) -> Array:
        """Return the largest ``sum_ij |A_ij| s_i s_j`` of each row in a block, with ``s^2 = diag(X)``."""
        t = self._terms
        s = np.sqrt(np.maximum(np.einsum("bii->bi", X), 0.0))
        largest = np.zeros(t.m)
        if len(t.first):
            sums = np.add.reduceat(np.abs(t.value) * s[t.block, t.i] * s[t.block, t.j], t.first)
            np.maximum.at(largest, t.row[t.first], sums)
        return largest


def _formula(terms: StackTerms) -> type[TermSchur] | type[ProductSchur]:
    """Return the cheaper formula of the Schur matrix."""
    by_terms = TermSchur.cost(terms) <= ProductSchur.cost(terms)
    return TermSchur if by_terms else ProductSchur


@dataclass(frozen=True, eq=False)
class StackTerms:
    """The terms of all rows in a stack: row ``row[k]`` has ``value[k] * X[block[k], i[k], j[k]]``.

    Parameters
    ----------
    m, count, n : int
        Number of rows, of blocks, and the order of the blocks.
    row, block, i, j : int arrays
        Sorted by block, then by row; ``i <= j``.
    value : array
    """

    m: int
    count: int
    n: int
    row: IntArray
    block: IntArray
    i: IntArray
    j: IntArray
    value: Array

    @classmethod
    def of(cls, A: LinearMap, blocks: Sequence[int]) -> StackTerms:
        """Return the terms in some blocks of equal order."""
        found = [
            (b, term.at, term.rows.coordinates()) for b, own in enumerate(blocks) for term in A.terms_of(own)
        ]
        none = np.zeros(0, dtype=np.intp)
        row = np.concatenate([none, *(at[t.row] for _, at, t in found)])
        block = np.concatenate([none, *(np.full(len(t.row), b) for b, _, t in found)])
        i = np.concatenate([none, *(np.minimum(t.i, t.j) for _, _, t in found)])
        j = np.concatenate([none, *(np.maximum(t.i, t.j) for _, _, t in found)])
        value = np.concatenate([np.zeros(0), *(t.value for _, _, t in found)])
        k = np.lexsort((row, block))
        return cls(A.m, len(blocks), A.orders[blocks[0]], row[k], block[k], i[k], j[k], value[k])

    @cached_property
    def first(self) -> IntArray:
        """The first term of each row in each block that it meets."""
        return np.flatnonzero(np.diff(self.block * self.m + self.row, prepend=-1))

    @cached_property
    def rows_per_block(self) -> IntArray:
        """The number of rows that meet each block."""
        return np.bincount(self.block[self.first], minlength=self.count)

    @cached_property
    def terms_per_block(self) -> IntArray:
        """The number of terms in each block."""
        return np.bincount(self.block, minlength=self.count)

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """The distinct entries ``i * n + j`` of all terms, and the number of each term's entry among them."""
        places, place = np.unique(self.i * self.n + self.j, return_inverse=True)
        return places, place.ravel()


class SchurValues(Protocol):
    """A Schur matrix as numbers at places."""

    @property
    def target(self) -> IntArray:
        """Places ``k * m + l`` in the matrix, each possibly several times."""
        ...

    def values(self, X: Array, K: Array) -> Array:
        """Return numbers at these places: the Schur matrix is their sum plus its transpose."""
        ...


class _StackSchur(SchurValues, Protocol):
    """A formula for the Schur matrix of a stack."""

    def assemble(self, X: Array, K: Array) -> Array:
        """Return the Schur matrix, shape ``(m, m)``."""
        ...


class TermSchur:
    """The Schur matrix from pairs of terms."""

    def __init__(self, terms: StackTerms) -> None:
        t = terms
        self._m = t.m
        places, place = t.places
        self._i, self._j = np.divmod(places, t.n)
        d = len(places)
        # Each pair of terms of one block once, the pair of a term with itself by half.
        first, second = _pairs(t.terms_per_block)
        self._source = (t.block[first] * d + place[first]) * d + place[second]
        self.target = t.row[first] * t.m + t.row[second]
        self._weight = t.value[first] * t.value[second]
        self._weight[first == second] /= 2
        self._chunk = max(1, _STACK_CHUNK // max(d * d, 1))

    @staticmethod
    def cost(terms: StackTerms) -> float:
        """Return the approximate nanoseconds of the formula."""
        places, pairs = len(terms.places[0]), float((terms.terms_per_block.astype(float) ** 2).sum()) / 2
        return _PLACE_COST * terms.count * places**2 + _PAIR_COST * pairs

    @staticmethod
    def numbers(terms: StackTerms) -> float:
        """Return how many numbers the formula stores."""
        places = len(terms.places[0])
        return terms.count * places**2 + 3 * float((terms.terms_per_block.astype(float) ** 2).sum()) / 2

    def values(self, X: Array, K: Array) -> Array:
        d = len(self._i)
        products = np.empty((len(X), d, d))
        for b in range(0, len(X), self._chunk):
            checkpoint()
            own = slice(b, b + self._chunk)
            products[own] = self._place_products(X[own], K[own])
        values = products.ravel().take(self._source)
        values *= self._weight
        return values

    def assemble(self, X: Array, K: Array) -> Array:
        H = np.bincount(self.target, self.values(X, K), self._m**2).astype(float, copy=False)
        H = H.reshape(self._m, self._m)
        return H + H.T

    def _place_products(self, X: Array, K: Array) -> Array:
        """Return ``<E_p, sym(X E_q K)>`` for the places ``E = (e_i e_j' + e_j e_i') / 2``."""
        i, j = self._i, self._j
        Xi, Xj, Ki, Kj = X.take(i, 1), X.take(j, 1), K.take(i, 1), K.take(j, 1)
        total: Array = Xi.take(i, 2) * Kj.take(j, 2)
        total += Xj.take(j, 2) * Ki.take(i, 2)
        mixed = Xi.take(j, 2) * Kj.take(i, 2)
        total += mixed
        total += mixed.swapaxes(1, 2)
        total /= 4
        return total


class ProductSchur:
    """The Schur matrix from products with dense rows, in groups of blocks that meet about as many rows."""

    def __init__(self, terms: StackTerms) -> None:
        self._m = terms.m
        self._groups = [_DenseRows(terms, blocks) for blocks in _similar(terms.rows_per_block)]

    @staticmethod
    def cost(terms: StackTerms) -> float:
        """Return the approximate nanoseconds of the formula."""
        rows, n = terms.rows_per_block.astype(float), terms.n
        flops = 2 * rows * n**3 + rows**2 * n**2
        return float((_FLOP_COST * flops + _PAIR_COST * rows**2).sum())

    @staticmethod
    def numbers(terms: StackTerms) -> float:
        """Return how many numbers the formula stores."""
        rows = terms.rows_per_block.astype(float)
        return float((4 * rows * terms.n**2 + 2 * rows**2).sum())

    @cached_property
    def target(self) -> IntArray:
        return np.concatenate([np.zeros(0, dtype=np.intp), *(group.target.ravel() for group in self._groups)])

    def values(self, X: Array, K: Array) -> Array:
        return np.concatenate([np.zeros(0), *(group.products(X, K).ravel() / 2 for group in self._groups)])

    def assemble(self, X: Array, K: Array) -> Array:
        H = np.zeros((self._m, self._m))
        for group in self._groups:
            checkpoint()
            group.add(H, X, K)
        return H


class _DenseRows:
    """The rows of some blocks as dense matrices, an array of shape ``(blocks, rows, n, n)``."""

    def __init__(self, terms: StackTerms, blocks: IntArray) -> None:
        t, n = terms, terms.n
        position = np.full(t.count, -1)
        position[blocks] = np.arange(len(blocks))
        own = np.flatnonzero(position[t.block] >= 0)
        block, row = position[t.block[own]], t.row[own]
        change = np.diff(block * t.m + row, prepend=-1) != 0
        number = np.cumsum(change) - 1  # of the row among the rows of all these blocks
        starts = number[np.flatnonzero(np.diff(block, prepend=-1))]
        local = number - starts[block]
        width = int(local.max()) + 1
        # A block with fewer rows has rows of zeros, which count as its row 0.
        self._rows = np.zeros((len(blocks), width), dtype=np.intp)
        self._rows[block, local] = row
        A = np.zeros((len(blocks), width, n, n))
        for i, j in ((t.i, t.j), (t.j, t.i)):
            np.add.at(A, (block, local, i[own], j[own]), t.value[own] / 2)
        self._A, self._blocks, self._n, self._m = A, blocks, n, t.m
        self._same = bool((self._rows == self._rows[0]).all()) and width == len(np.unique(self._rows[0]))

    @cached_property
    def target(self) -> IntArray:
        """The places in the Schur matrix, shape ``(blocks, rows, rows)``."""
        return self._rows[:, :, None] * self._m + self._rows[:, None, :]

    def products(self, X: Array, K: Array) -> Array:
        """Return ``tr(A_k X A_l K)`` for the pairs of rows of each block, shape ``(blocks, rows, rows)``."""
        count, width = self._rows.shape
        n = self._n
        tall = self._A.reshape(count, width * n, n)
        left = (tall @ X[self._blocks]).reshape(count, width, n * n)
        right = (tall @ K[self._blocks]).reshape(count, width, n, n).swapaxes(2, 3)
        products: Array = left @ right.reshape(count, width, n * n).swapaxes(1, 2)
        return products

    def add(self, H: Array, X: Array, K: Array) -> None:
        """Add the part of these blocks to the Schur matrix."""
        G = self.products(X, K)
        if self._same:
            H[self._rows[0][:, None], self._rows[0]] += np.add.reduce(G)
            return
        H += np.bincount(self.target.ravel(), G.ravel(), self._m**2).reshape(self._m, self._m)


def _similar(counts: IntArray) -> Iterator[IntArray]:
    """Yield groups of blocks whose counts differ by a factor of at most two; not those without rows."""
    size = np.frexp(counts)[1]
    for power in np.unique(size[counts > 0]):
        yield np.flatnonzero((size == power) & (counts > 0))


def _pairs(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return all pairs ``first <= second`` of items in one group, for consecutive groups of these sizes."""
    ends = np.repeat(np.cumsum(counts), counts)
    items = np.arange(len(ends))
    partners = ends - items
    first = np.repeat(items, partners)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(partners) - partners, partners)
    return first, first + offset
