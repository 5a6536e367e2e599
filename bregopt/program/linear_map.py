"""The linear map ``A``: row families at given indices of a stack of rows over one or more matrix blocks.

A problem on a large graph has a sparse cost and sparse rows, except one or two rows ``z'Xz`` with a full
vector. Its ``C - A*(y)`` is then ``S + U diag(w) U'``, without storage of order ``n^2``. A product with it
costs in proportion to its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, covers, span
from bregopt.linalg import dense, row_counts
from bregopt.program.rows import Coordinates, DenseRows, Products, Rows, Sum
from bregopt.program.rows.base import Matrix
from bregopt.records import PickledWithoutCache, cached_property, dataclass, kept, replace

if TYPE_CHECKING:
    from bregopt.program.program import Program

# Entries of all rows' matrices up to which one dense product is faster than the row families. The limit is
# `_TINY_OF_SMALL` up to the order `_SMALL` of a block, `_TINY` above.
_TINY, _TINY_OF_SMALL, _SMALL = 20_000, 120_000, 20
_LISTED = 1_000_000  # terms of a family up to which its rows on the diagonal are looked for
_MOST_TERMS = 50_000_000  # stored numbers, above which the representation is not made
_ROUND_OFF = 1e-14  # fraction of a row's largest term: tolerated difference from w z z'
_FULL = 0.1  # fraction of nonzeros in a vector, above which its square is not listed by terms
_CHUNK = 512  # terms at a time, whose rows of factors stay in the cache
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
    def count(self) -> int:
        """The number of terms of all rows."""
        return self.rows.count()

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
        read = np.zeros(self.m, dtype=bool)
        for term in own:
            read[term.at] = True
        at, place = read.nonzero()[0], np.cumsum(read) - 1
        half = np.zeros((len(at), n, n))
        for term in own:
            if isinstance(term.rows, DenseRows):
                half[place[term.at]] += term.rows.stack
                continue
            t = term.rows.coordinates()
            row = place[term.at][t.row]
            half += np.bincount((row * n + t.i) * n + t.j, t.value, half.size).reshape(half.shape)
        return Term(block, at, DenseRows((half + half.transpose(0, 2, 1)) / 2))

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
            own = (place[term.at] >= 0).nonzero()[0]
            if len(own):
                terms.append(Term(term.block, place[term.at[own]], term.rows.slice(own)))
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

    @cached_property
    def disjoint(self) -> bool:
        """Whether no two coefficients are on one entry, as for known entries: the rows are orthogonal."""
        if sum(term.count for term in self.terms) > sum(n * (n + 1) // 2 for n in self.orders):
            return False
        for b, n in enumerate(self.orders):
            entries = [term.rows.coordinates() for term in self.terms_of(b)]
            places = [np.minimum(t.i, t.j) * n + np.maximum(t.i, t.j) for t in entries]
            if places and len(np.unique(np.concatenate(places))) < sum(map(len, places)):
                return False
        return True

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
                single = (row_counts(factors.U) * row_counts(factors.W) == 1).nonzero()[0]
                rows, at = rows.slice(single), at[single]
            elif rows.count() > _LISTED:
                continue
            t = rows.coordinates()
            spoiled = np.zeros(rows.m, dtype=bool)
            spoiled[t.row[t.i != t.j]] = True
            own = ~spoiled[t.row]
            places.append(at[t.row[own]] * n + t.i[own])
            weights.append(t.value[own])
        place, weight = np.concatenate(places), np.concatenate(weights)
        if not np.logical_and.reduce(place[1:] > place[:-1]):
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


def _by_block(terms: Sequence[Term], count: int) -> tuple[tuple[Term, ...], ...]:
    """Return the terms in each block."""
    lists: list[list[Term]] = [[] for _ in range(count)]
    for term in terms:
        lists[term.block].append(term)
    return tuple(map(tuple, lists))


# --- A sparse part plus one of low rank ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SparsePlusLowRank:
    """The symmetric matrix ``S + U diag(w) U'``.

    Parameters
    ----------
    S : csr_array of shape (n, n), symmetric
    U : array of shape (n, q)
    w : array of shape (q,)
    """

    S: Any
    U: Array
    w: Array

    @property
    def n(self) -> int:
        """The order."""
        return int(self.S.shape[0])

    def __matmul__(self, V: Array) -> Array:
        product: Array = self.S @ V
        if len(self.w):
            product += self.U @ (self.w * (self.U.T @ V).T).T
        return product

    def __sub__(self, other: SparsePlusLowRank) -> SparsePlusLowRank:
        S = sp.csr_array(self.S - other.S) if other.S.nnz else self.S
        if not len(self.w):
            return SparsePlusLowRank(S, other.U, -other.w)
        return SparsePlusLowRank(S, np.hstack([self.U, other.U]), np.concatenate([self.w, -other.w]))

    def diagonal(self) -> Array:
        """Return the diagonal, shape ``(n,)``."""
        diagonal: Array = self.S.diagonal() + self.U**2 @ self.w
        return diagonal

    def dense(self) -> Array:
        """Return the ``n x n`` array."""
        dense: Array = self.S.toarray() + (self.U * self.w) @ self.U.T
        return dense

    def scaled(self, d: Array) -> SparsePlusLowRank:
        """Return ``diag(d)`` times the matrix times ``diag(d)``."""
        S = self.S.tocoo()
        terms = sp.csr_array((S.data * d[S.row] * d[S.col], (S.row, S.col)), S.shape)
        return SparsePlusLowRank(terms, self.U * d[:, None], self.w)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape."""
        return self.n, self.n

    def norm(self) -> float:
        """Return the Frobenius norm."""
        across = (self.U.T @ self.U) * self.w
        mixed = float(self.w @ np.einsum("nq,nq->q", self.U, self.S @ self.U))
        square = float(np.sum(self.S.data**2)) + 2 * mixed + float(np.sum(across * across.T))
        return float(np.sqrt(max(square, 0.0)))

    def ends(self) -> tuple[float, float]:
        """Return an interval that contains every eigenvalue (Gershgorin's discs plus the vectors' terms)."""
        center = self.S.diagonal()
        radius = np.asarray(abs(self.S).sum(axis=1)).ravel() - np.abs(center)
        most = self.w * np.einsum("nq,nq->q", self.U, self.U)
        lower = float((center - radius).min()) + float(most[most < 0].sum())
        return lower, float((center + radius).max()) + float(most[most > 0].sum())


@dataclass(frozen=True, eq=False)
class SparseLowRankRows:
    """Rows ``<A_k, X>`` of one block: sparse terms plus squares of full vectors.

    Parameters
    ----------
    m, n : int
        The number of rows and the order of the block.
    terms : Coordinates
        Row ``terms.row`` has the term ``value X[i, j]``.
    Z : array of shape (q, n)
        Row ``at[l]`` has the term ``weight[l] z_l'X z_l``.
    at : int array of shape (q,)
    weight : array of shape (q,)
    """

    m: int
    n: int
    terms: Coordinates
    Z: Array
    at: IntArray
    weight: Array

    def apply(self, R: Array, V: Array | None = None) -> Array:
        """Return ``<A_k, (R V' + V R') / 2>``, ``V = R`` where none is given; shape ``(m,)``."""
        V, t = R if V is None else V, self.terms
        entry = np.empty(len(t.row))
        for start in range(0, len(entry), _CHUNK):
            i, j, own = t.i[start : start + _CHUNK], t.j[start : start + _CHUNK], slice(start, start + _CHUNK)
            entry[own] = np.einsum("kr,kr->k", R[i], V[j])
            if V is not R:
                entry[own] += np.einsum("kr,kr->k", V[i], R[j])
                entry[own] /= 2
        activity = np.bincount(t.row, t.value * entry, self.m).astype(float)
        ZV = self.Z @ V
        form = self.weight * np.einsum("kr,kr->k", ZV if V is R else self.Z @ R, ZV)
        return activity + np.bincount(self.at, form, self.m)

    def adjoint(self, y: Array) -> SparsePlusLowRank:
        """Return ``sum_k y_k A_k``."""
        t, (pattern, place) = self.terms, self._pattern
        half = t.value * y[t.row] / 2
        data = np.bincount(place, np.concatenate([half, half]), pattern.nnz)
        S = sp.csr_array((data, pattern.indices, pattern.indptr), pattern.shape)
        w = self.weight * y[self.at]
        if w.all():
            return SparsePlusLowRank(S, self.Z.T, w)
        return SparsePlusLowRank(S, self.Z[w != 0].T, w[w != 0])

    @cached_property
    def _pattern(self) -> tuple[sp.csr_array, IntArray]:
        """The entries of all sparse terms, and the place among them of each term and of its mirror image."""
        t, n = self.terms, self.n
        i, j = np.concatenate([t.i, t.j]).astype(np.int64), np.concatenate([t.j, t.i])
        entries, place = np.unique(i * n + j, return_inverse=True)
        ends = np.searchsorted(entries, n * np.arange(n + 1, dtype=np.int64))
        return sp.csr_array((np.zeros(len(entries)), entries % n, ends), (n, n)), place.ravel()

    @cached_property
    def vertex_terms(self) -> tuple[Any, IntArray, IntArray]:
        """The matrix whose product with ``R`` has rows ``(A_k R)_i`` by sparse terms, in the order of ``i``.

        Also the ``k`` of each of its rows, and the first one of each ``i`` and the end.
        """
        t, m = self.terms, max(self.m, 1)
        i, j = np.concatenate([t.i, t.j]).astype(np.int64), np.concatenate([t.j, t.i])
        pairs, place = np.unique(i * m + np.tile(t.row, 2), return_inverse=True)
        P = sp.csr_array((np.tile(t.value / 2, 2), (place.ravel(), j)), (len(pairs), self.n))
        return P, pairs % m, np.searchsorted(pairs, m * np.arange(self.n + 1, dtype=np.int64))

    def scaled(self, d: Array) -> SparseLowRankRows:
        """Return the rows ``<diag(d) A_k diag(d), X>``."""
        t = self.terms
        return replace(self, terms=replace(t, value=t.value * d[t.i] * d[t.j]), Z=self.Z * d)

    def slice(self, rows: IntArray) -> SparseLowRankRows:
        """Return the given rows, each at most once."""
        place = np.full(self.m, -1)
        place[rows] = np.arange(len(rows))
        t, own, full = self.terms, place[self.terms.row] >= 0, place[self.at] >= 0
        terms = Coordinates(place[t.row[own]], t.i[own], t.j[own], t.value[own])
        return SparseLowRankRows(
            len(rows), self.n, terms, self.Z[full], place[self.at[full]], self.weight[full]
        )


@dataclass(frozen=True, eq=False)
class SparseLowRankProgram:
    """The cost and the rows of a program in one block whose terms are few."""

    cost: SparsePlusLowRank
    rows: SparseLowRankRows

    def slack(self, y: Array) -> SparsePlusLowRank:
        """Return ``C - A*(y)``."""
        return self.cost - self.rows.adjoint(y)


@kept
def sparse_plus_low_rank(program: Program) -> tuple[SparseLowRankProgram | None, ...]:
    """Return cost and rows of each block by their terms, None where there are too many."""
    found: list[SparseLowRankProgram | None] = []
    for b, block in enumerate(program.blocks):
        own, m, n = list(program.A.terms_of(b)), program.m, block.n
        cost = [] if block.cost is None else [Term(0, np.zeros(1, dtype=np.intp), block.cost)]
        few = sum(stored_terms(term.rows) for term in [*own, *cost]) <= _MOST_TERMS
        C = _listed(1, n, cost).adjoint(np.ones(1)) if few else None
        found.append(None if C is None else SparseLowRankProgram(C, _listed(m, n, own)))
    return tuple(found)


def stored_terms(rows: Rows) -> int:
    """Return how many numbers a family takes in this representation."""
    if isinstance(rows, Sum):
        return sum(map(stored_terms, rows.parts))
    return rows.count() if _full_squares(rows) is None else rows.m * rows.n


def _full_squares(rows: Rows) -> Products | None:
    """Return the rows as products if they are squares of vectors with few zeros, None otherwise."""
    forms = rows.products()
    if forms is None or forms.U is not forms.W:
        return None
    stored = forms.U.nnz if sp.issparse(forms.U) else np.count_nonzero(forms.U)
    return forms if stored > _FULL * rows.m * rows.n else None


def _as_square(n: int, i: IntArray, j: IntArray, value: Array) -> tuple[Array, float] | None:
    """Return ``z`` and ``w`` if the terms are those of ``w z'Xz``, such as ``e'Xe`` listed in a file."""
    S = sp.csr_array(
        (np.concatenate([value, value]) / 2, (np.concatenate([i, j]), np.concatenate([j, i]))), (n, n)
    )
    diagonal = S.diagonal()
    p = int(np.argmax(np.abs(diagonal)))
    if diagonal[p] == 0:
        return None
    z, w = S[[p]].toarray().ravel() / diagonal[p], float(diagonal[p])
    terms = S.tocoo()
    exact = (
        np.abs(terms.data - w * z[terms.row] * z[terms.col]).max() <= _ROUND_OFF * np.abs(terms.data).max()
    )
    return (z, w) if exact and np.count_nonzero(terms.data) == np.count_nonzero(z) ** 2 else None


def _apart(term: Term) -> list[Term]:
    """Return the parts of a sum, or the family itself."""
    return [replace(term, rows=part) for part in term.rows.parts] if isinstance(term.rows, Sum) else [term]


def _listed(m: int, n: int, placed: list[Term]) -> SparseLowRankRows:
    """Return `m` rows from placed families."""
    columns: list[tuple[IntArray, IntArray, IntArray, Array]] = []
    vectors, at, weight = [np.zeros((0, n))], [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
    for term in (each for whole in placed for each in _apart(whole)):
        rows = term.rows
        squares = _full_squares(rows)
        if squares is not None:
            vectors.append(dense(squares.U))
            at.append(term.at)
            weight.append(squares.weight)
        else:
            t = rows.coordinates()
            listed, counts = np.ones(len(t.row), dtype=bool), np.bincount(t.row, minlength=rows.m)
            order, ends = np.argsort(t.row, kind="stable"), np.cumsum(counts)
            for k in (counts > _FULL * n**2 / 2).nonzero()[0]:
                own = order[ends[k] - counts[k] : ends[k]]
                square = _as_square(n, t.i[own], t.j[own], t.value[own])
                if square is not None:
                    listed[own] = False
                    vectors.append(square[0][None])
                    at.append(term.at[[k]])
                    weight.append(np.array([square[1]]))
            columns.append((term.at[t.row[listed]], t.i[listed], t.j[listed], t.value[listed]))
    none = np.zeros(0, dtype=np.intp)
    fields = (
        np.concatenate(column) for column in zip((none, none, none, np.zeros(0)), *columns, strict=True)
    )
    return SparseLowRankRows(
        m, n, Coordinates(*fields), np.vstack(vectors), np.concatenate(at), np.concatenate(weight)
    )
