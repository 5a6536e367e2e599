"""Large matrices of few terms: a sparse part plus a low-rank part, without storage of order ``n^2``.

A problem on a large graph has a sparse cost and sparse rows, except one or two rows ``z'Xz`` with a full
vector. Its ``C - A*(y)`` is then ``S + U diag(w) U'``. A product with it costs in proportion to its terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray
from bregopt.program.linear_map import Term
from bregopt.program.program import Program
from bregopt.program.rows import Coordinates, Products, Rows, Sum
from bregopt.records import cached_property, dataclass, replace

__all__ = [
    "SparseLowRankProgram",
    "SparseLowRankRows",
    "SparsePlusLowRank",
    "sparse_plus_low_rank",
    "stored_terms",
]

_MOST_TERMS = 50_000_000  # stored numbers, above which the representation is not made
_ROUND_OFF = 1e-14  # fraction of a row's largest term: tolerated difference from w z z'
_FULL = 0.1  # fraction of nonzeros in a vector, above which its square is not listed by terms
_CHUNK = 512  # terms at a time, whose rows of factors stay in the cache


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
            product += (self.U * self.w) @ (self.U.T @ V)
        return product

    def __sub__(self, other: SparsePlusLowRank) -> SparsePlusLowRank:
        U, w = np.hstack([self.U, other.U]), np.concatenate([self.w, -other.w])
        acting = w != 0
        S = sp.csr_array(self.S - other.S) if other.S.nnz else self.S
        return SparsePlusLowRank(S, U[:, acting], w[acting])

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
        form = self.weight * np.einsum("kr,kr->k", self.Z @ R, self.Z @ V)
        return activity + np.bincount(self.at, form, self.m)

    def adjoint(self, y: Array) -> SparsePlusLowRank:
        """Return ``sum_k y_k A_k``."""
        t, (pattern, place) = self.terms, self._pattern
        half = t.value * y[t.row] / 2
        data = np.bincount(place, np.concatenate([half, half]), pattern.nnz)
        S = sp.csr_array((data, pattern.indices, pattern.indptr), pattern.shape)
        w = self.weight * y[self.at]
        return SparsePlusLowRank(S, self.Z[w != 0].T, w[w != 0])

    @cached_property
    def _pattern(self) -> tuple[sp.csr_array, IntArray]:
        """The entries of all sparse terms, and the place among them of each term and of its mirror image."""
        t, n = self.terms, self.n
        i, j = np.concatenate([t.i, t.j]).astype(np.int64), np.concatenate([t.j, t.i])
        entries, place = np.unique(i * n + j, return_inverse=True)
        ends = np.searchsorted(entries, n * np.arange(n + 1, dtype=np.int64))
        return sp.csr_array((np.zeros(len(entries)), entries % n, ends), (n, n)), place.ravel()

    def slice(self, rows: IntArray) -> SparseLowRankRows:
        """Return the given rows, each at most once."""
        place = np.full(self.m, -1)
        place[rows] = np.arange(len(rows))
        t, kept, full = self.terms, place[self.terms.row] >= 0, place[self.at] >= 0
        terms = Coordinates(place[t.row[kept]], t.i[kept], t.j[kept], t.value[kept])
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


def sparse_plus_low_rank(program: Program, b: int = 0) -> SparseLowRankProgram | None:
    """Return the cost and the rows of one block by their terms, None where there are too many."""
    block = program.blocks[b]
    own = list(program.A.terms_of(b))
    cost = [] if block.cost is None else [Term(0, np.zeros(1, dtype=np.intp), block.cost)]
    if sum(stored_terms(term.rows) for term in [*own, *cost]) > _MOST_TERMS:
        return None
    return SparseLowRankProgram(
        _listed(1, block.n, cost).adjoint(np.ones(1)), _listed(program.m, block.n, own)
    )


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
            vectors.append(squares.U.toarray() if sp.issparse(squares.U) else squares.U)
            at.append(term.at)
            weight.append(squares.weight)
        else:
            t = rows.coordinates()
            listed = np.ones(len(t.row), dtype=bool)
            for k in np.flatnonzero(np.bincount(t.row, minlength=rows.m) > _FULL * n**2 / 2):
                own = t.row == k
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
