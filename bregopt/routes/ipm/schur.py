"""The Schur matrix of Newton's system: ``H_kl = <A_k, sym(P A_l Q)>`` for all pairs of rows of a block.

No ``A_k`` is multiplied out if its structure allows a cheaper formula (Fujisawa, Kojima and Nakata 1997; for
rank-one terms the Hadamard product of the max-cut literature):

- rank-one terms ``w u u'``: a Hadamard product of two congruences, ``(U P U') o (U Q U')``;
- terms ``v X_ij``: products of entries of ``P`` and ``Q``;
- dense rows, with many terms: ``P A_l Q`` through the support of ``A_l``, to which all rows are applied.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, covers, span
from bregopt.clock import checkpoint
from bregopt.linalg import root_of
from bregopt.program import LinearMap
from bregopt.program.rows import Coordinates, Rows
from bregopt.routes.ipm.tuning import InteriorPointTuning

__all__ = ["Gram"]


class Gram:
    """Assembles the Schur matrix of one block.

    Parameters
    ----------
    A : LinearMap
    tuning : InteriorPointTuning
    block : int
    """

    def __init__(self, A: LinearMap, tuning: InteriorPointTuning, block: int = 0) -> None:
        self._tuning = tuning
        self._A, self._block, self._m, self._n = A, block, A.m, A.orders[block]
        self._parts = A.terms_of(block)
        low_rank = [t for t in self._parts if t.rows.rank is not None and not t.rows.single]
        self._rank_one = _RankOneRows.of([(t.at, t.rows) for t in low_rank], self._n)
        others = [(t.at, t.rows) for t in self._parts if t not in low_rank]
        sparse_rows, self._dense_rows = _split_by_cost(others, self._n, tuning)
        self._terms = _Terms.of(sparse_rows, A.m, tuning.chunk_products)
        self._sparse = np.ones(A.m, dtype=bool)
        self._sparse[[k for k, _ in self._dense_rows]] = False

    def assemble(self, P: Array, Q: Array, rows: IntArray | None = None, root: Array | None = None) -> Array:
        """Return the Schur matrix of all rows, or of some in ascending order.

        `root` is the Cholesky factor of `P`, if known.
        """
        if rows is not None and len(rows) == self._m:
            rows = None
        p = self._rank_one
        if p is not None and self._terms is None and p.one_per_row(self._m) and not self._dense_rows:
            return p.products(P, Q, slice(None) if rows is None else rows, root)
        if rows is None:
            return self._all(P, Q)
        if len(rows) < self._tuning.slice_fraction * self._m:
            return Gram(self._A.slice(rows), self._tuning, self._block).assemble(P, Q)
        return self._all(P, Q)[np.ix_(rows, rows)]

    def _all(self, P: Array, Q: Array) -> Array:
        p, t = self._rank_one, self._terms
        if p is None and t is not None and t.single_diagonal(self._m) and not self._dense_rows:
            return t.diagonal_products(P, Q)
        H = np.zeros((self._m, self._m))
        if p is not None:
            p.add(H, P, Q, t)
        if t is not None:
            t.add(H, P, Q)
        for k, row in self._dense_rows:
            checkpoint()
            column = self._apply(row.between(P, Q))
            H[:, k] += column
            H[k, self._sparse] += column[self._sparse]
        return H

    def _apply(self, S: Array) -> Array:
        activity = np.zeros(self._m)
        for term in self._parts:
            activity[term.at] += term.rows.apply(S)
        return activity


class _RankOneRows:
    """Rows ``sum w u u'``, in layers with at most one rank-one term of each row."""

    def __init__(self, layers: list[_Layer]) -> None:
        self._layers = layers

    @classmethod
    def of(cls, families: list[tuple[IntArray, Rows]], n: int) -> _RankOneRows | None:
        layers = []
        for at, rows in families:
            p = rows.rank_one_terms()
            if p is None:
                continue
            if covers(span(p.row), rows.m):  # one each
                layers.append(_Layer(at, p.U, p.weight))
                continue
            order = np.argsort(p.row, kind="stable")
            first = np.searchsorted(p.row[order], p.row[order])
            layer_of = np.empty(len(order), dtype=np.intp)
            layer_of[order] = np.arange(len(order)) - first
            for k in range(int(layer_of.max(initial=-1)) + 1):
                own = np.flatnonzero(layer_of == k)
                layers.append(_Layer(at[p.row[own]], p.U[own], p.weight[own]))
        return cls(layers) if layers else None

    def one_per_row(self, m: int) -> bool:
        """Whether each row has exactly one rank-one term, in order."""
        return len(self._layers) == 1 and covers(self._layers[0].place, m)

    def products(self, P: Array, Q: Array, rows: IntArray | slice, root: Array | None) -> Array:
        """Return the products of the rank-one terms of some rows if all are :meth:`one_per_row`."""
        (layer,) = self._layers
        U, weight = layer.U[rows], layer.weight[rows]
        W = _congruence(U, P, root)
        W *= W if P is Q else _congruence(U, Q)
        if not layer.unweighted:
            W *= np.multiply.outer(weight, weight)
        return W

    def add(self, H: Array, P: Array, Q: Array, terms: _Terms | None) -> None:
        """Add the products of rank-one terms with each other and with terms."""
        halves = [(layer.U @ P, layer.weighted @ Q) for layer in self._layers]
        for k, (one, (left, right)) in enumerate(zip(self._layers, halves, strict=True)):
            for other in self._layers[k:]:
                checkpoint()
                W = _times(other.U, left)
                checkpoint()
                W *= _times(other.weighted, right)
                checkpoint()
                H[_block(one.place, other.place)] += W
                if other is not one:
                    H[_block(other.place, one.place)] += W.T
            if terms is not None:
                mixed_products = terms.summed(left, right)
                H[one.place] += mixed_products
                H[:, one.place] += mixed_products.T


class _Layer:
    """Rank-one terms of different rows: the ``u`` in the rows of `U`, and their weights."""

    def __init__(self, at: IntArray, U: Any, weight: Array) -> None:
        self.place, self.U, self.weight = span(at), U, weight
        self.unweighted = bool((weight == 1).all())

    @cached_property
    def weighted(self) -> Any:
        """The ``w u``."""
        if sp.issparse(self.U):
            return sp.csr_array(sp.diags_array(self.weight) @ self.U)
        return self.weight[:, None] * self.U


def _block(rows: IntArray | slice, columns: IntArray | slice) -> Any:
    """Return the index of a block of a matrix; slices give a view."""
    if isinstance(rows, slice) or isinstance(columns, slice):
        return rows, columns
    return np.ix_(rows, columns)


class _Terms:
    """Rows ``sum v X_ij``, term by term."""

    def __init__(self, at: IntArray, t: Coordinates, m: int, chunk: int) -> None:
        self._row, self._t = at, t
        self._m, self._chunk = m, chunk
        self._diagonal = bool((t.i == t.j).all())

    @cached_property
    def _sum(self) -> Any:
        """The map from the terms to the rows."""
        return sp.csr_array(
            (self._t.value, (self._row, np.arange(len(self._row)))), (self._m, len(self._row))
        )

    @classmethod
    def of(cls, families: list[tuple[IntArray, Coordinates]], m: int, chunk: int) -> _Terms | None:
        if not sum(len(t.row) for _, t in families):
            return None
        row = np.concatenate([at[t.row] for at, t in families])
        fields = (np.concatenate([getattr(t, f) for _, t in families]) for f in ("row", "i", "j", "value"))
        return cls(row, Coordinates(*fields), m, chunk)

    def single_diagonal(self, m: int) -> bool:
        """Whether the rows are single diagonal entries, in order."""
        return self._diagonal and len(self._row) == m and bool((self._row == np.arange(m)).all())

    def diagonal_products(self, P: Array, Q: Array) -> Array:
        """Return the matrix where :meth:`single_diagonal` holds."""
        i, value = self._t.i, self._t.value
        all_entries = len(i) == len(P) and bool((i == np.arange(len(P))).all())
        H: Array = P * Q if all_entries else P[np.ix_(i, i)] * Q[np.ix_(i, i)]
        return H if (value == 1).all() else value[:, None] * H * value

    def add(self, H: Array, P: Array, Q: Array) -> None:
        """Add the products of terms with terms."""
        S, N = self._sum, len(self._row)
        count = max(1, N * N // self._chunk)
        for chunk in np.array_split(np.arange(N), count):
            checkpoint()
            own = S if count == 1 else S[:, chunk]  # a slice costs more than the products of small blocks
            H += own @ (S @ self._products(P, Q, chunk).T).T

    def summed(self, left: Array, right: Array) -> Array:
        """Return products of rank-one terms and rows of terms, from ``U P`` and ``U Q``; shape ``(k, m)``."""
        i, j = self._t.i, self._t.j
        products = left[:, i] * right[:, j]
        if not self._diagonal:
            products = (products + left[:, j] * right[:, i]) / 2
        summed: Array = (self._sum @ products.T).T
        return summed

    def _products(self, P: Array, Q: Array, chunk: IntArray) -> Array:
        i, j, p, q = self._t.i[chunk, None], self._t.j[chunk, None], self._t.i, self._t.j
        if self._diagonal:
            return P[i, p] * Q[i, p]
        total: Array = P[j, p] * Q[i, q]
        total += P[j, q] * Q[i, p]
        total += P[i, p] * Q[j, q]
        total += P[i, q] * Q[j, p]
        total /= 4
        return total


class _DenseRow:
    """A row with many terms, on its support."""

    def __init__(self, t: Coordinates) -> None:
        self._support, local = np.unique(np.concatenate([t.i, t.j]), return_inverse=True)
        i, j = np.split(local.ravel(), 2)
        c = len(self._support)
        half = np.bincount(i * c + j, weights=t.value, minlength=c * c).reshape(c, c)
        self._A = (half + half.T) / 2

    def between(self, P: Array, Q: Array) -> Array:
        """Return ``sym(P A Q)``."""
        half = P[:, self._support] @ self._A @ Q[self._support]
        symmetric: Array = (half + half.T) / 2
        return symmetric


def _split_by_cost(
    families: list[tuple[IntArray, Rows]], n: int, tuning: InteriorPointTuning
) -> tuple[list[tuple[IntArray, Coordinates]], list[tuple[int, _DenseRow]]]:
    """Return the terms of rows with few, and the rows for which a matrix product costs less."""
    total = sum(rows.count() for _, rows in families)
    sparse_rows: list[tuple[IntArray, Coordinates]] = []
    dense_rows: list[tuple[int, _DenseRow]] = []
    for at, rows in families:
        t = rows.coordinates()
        count = np.bincount(t.row, minlength=rows.m)
        support = np.minimum(2 * count, n)
        cost = tuning.call_cost + tuning.flop_cost * 2 * n * support * (n + support) + total
        many = count * total * tuning.term_cost > cost
        kept = ~many[t.row]
        sparse_rows.append((at, Coordinates(t.row[kept], t.i[kept], t.j[kept], t.value[kept])))
        order = np.argsort(t.row, kind="stable")
        stops = np.searchsorted(t.row[order], np.arange(rows.m + 1))
        for k in np.flatnonzero(many):
            checkpoint()
            own = order[stops[k] : stops[k + 1]]
            dense_rows.append(
                (int(at[k]), _DenseRow(Coordinates(t.row[own], t.i[own], t.j[own], t.value[own])))
            )
    return sparse_rows, dense_rows


def _congruence(U: Any, P: Array, root: Array | None = None) -> Array:
    """Return ``U P U'``, by the Cholesky factor of `P` if that costs less."""
    if isinstance(U, np.ndarray) and len(P) <= len(U):
        root = root_of(P) if root is None else root
        if root is not None:
            half = U @ root
            product: Array = half @ half.T  # a matrix and its own transpose: half the cost
            return product
    return _times(U, U @ P)


def _times(U: Any, half: Array) -> Array:
    """Return ``half U'``."""
    product: Array = (U @ half.T).T if sp.issparse(U) else half @ U.T
    return product
