"""Rows of low rank: entries and distances by their places, forms ``w z'X z`` and products ``w u'X v``.

At the places ``i`` and ``j`` an entry is ``w X[i, j]``, a squared distance
``w (X[i, i] + X[j, j] - 2 X[i, j])``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.linalg import absolute_product, csr_of, row_counts
from bregopt.program.rows.base import (
    Coordinates,
    LowRank,
    Matrix,
    Products,
    RankOneTerms,
    WeightedRows,
    eigen_factor,
    symmetric_scatter,
)
from bregopt.records import dataclass, replace

_dots = getattr(np, "vecdot", partial(np.einsum, "kn,kn->k"))  # NumPy has vecdot since 2.0
# Rows that enter a product at once, so that they stay in a processor's cache, where their vectors are so long
# that symmetric products save more than the copies of rows cost: a third at order 50, slower at order 20.
_BLOCK, _LONG = 3_000, 32
_PRODUCT = 2_000_000  # most entries of a product of sparse rows
_LARGEST_TABLE = 1_000_000  # most entries of dense rows that are formed to list few of them
_FEW = 0.5  # fraction of nonzero weights, below which only those rows enter a product


# --- Rows of places -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Places(WeightedRows):
    """Rows that places ``i``, ``j`` and a weight each determine; three arrays of length `m`."""

    few_terms: ClassVar[bool] = True
    by_row: ClassVar[tuple[str, ...]] = ("i", "j", "weight")

    n: int
    i: IntArray
    j: IntArray
    weight: Array


@dataclass(frozen=True, eq=False)
class Entries(_Places):
    """Rows ``w X[i, j]``, that is ``A = w (e_i e_j' + e_j e_i') / 2``."""

    rank: ClassVar[int | None] = 2
    single: ClassVar[bool] = True

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            return self.weight * np.einsum("kr,kr->k", X.factor[self.i], X.factor[self.j])
        return self.weight * X[self.i, self.j]

    def adjoint(self, y: Array) -> Array:
        return symmetric_scatter(self.n, self.i, self.j, self.weight * y)

    def restrict(self, V: Array) -> RankOne | RankTwo:
        if np.array_equal(self.i, self.j):
            return RankOne(V[self.i], self.weight)
        return RankTwo(V[self.i], V[self.j], self.weight)

    def norms(self) -> Array:
        return np.abs(self.weight) * np.where(self.i == self.j, 1.0, np.sqrt(0.5))

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * s[self.i] * s[self.j]

    def factor(self, k: int) -> tuple[Array, Array]:
        i, j, w = self.i[k], self.j[k], self.weight[k]
        if i == j:
            U = np.zeros((self.n, 1))
            U[i] = 1.0
            return U, np.array([w])
        U = np.zeros((self.n, 2))
        U[i] = 1.0
        U[j] = 1.0, -1.0
        return U, np.array([w / 4, -w / 4])

    def rank_one_terms(self) -> RankOneTerms:
        # e_i e_j' + e_j e_i' = ((e_i + e_j)(e_i + e_j)' - (e_i - e_j)(e_i - e_j)') / 2; one term if i = j
        diagonal, off = np.flatnonzero(self.i == self.j), np.flatnonzero(self.i != self.j)
        one, two = len(diagonal), len(off)
        ends = np.column_stack([self.i[off], self.j[off]]).ravel()
        value = np.concatenate([np.ones(one + 2 * two), np.tile([1.0, -1.0], two)])
        start = np.concatenate([np.arange(one), one + 2 * np.arange(2 * two + 1)])
        U = sp.csr_array(
            (value, np.concatenate([self.i[diagonal], ends, ends]), start), (one + 2 * two, self.n)
        )
        weight = np.concatenate([self.weight[diagonal], self.weight[off] / 4, -self.weight[off] / 4])
        return RankOneTerms(U, np.concatenate([diagonal, off, off]), weight)

    def coordinates(self) -> Coordinates:
        return Coordinates(np.arange(len(self.i)), self.i, self.j, self.weight)

    def count(self) -> int:
        return len(self.i)

    def nonzero(self) -> IntArray:
        return self.weight.nonzero()[0]

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.where(self.i == self.j, np.sign(self.weight), 0.0)


@dataclass(frozen=True, eq=False)
class Distances(_Places):
    """Rows with ``A = w (e_i - e_j)(e_i - e_j)'``, ``i != j``."""

    rank: ClassVar[int | None] = 1

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            difference = X.factor[self.i] - X.factor[self.j]
            return self.weight * np.einsum("kr,kr->k", difference, difference)
        diagonal = X.diagonal()
        return self.weight * (diagonal[self.i] + diagonal[self.j] - 2 * X[self.i, self.j])

    def adjoint(self, y: Array) -> Array:
        terms = self.coordinates()
        return symmetric_scatter(self.n, terms.i, terms.j, terms.value * y[terms.row])

    def restrict(self, V: Array) -> RankOne:
        return RankOne(V[self.i] - V[self.j], self.weight)

    def norms(self) -> Array:
        return 2 * np.abs(self.weight)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * (s[self.i] + s[self.j]) ** 2

    def factor(self, k: int) -> tuple[Array, Array]:
        z = np.zeros((self.n, 1))
        z[self.i[k]] = 1.0
        z[self.j[k]] = -1.0
        return z, self.weight[k : k + 1]

    def rank_one_terms(self) -> RankOneTerms:
        row = np.arange(self.m)
        at, index = np.concatenate([row, row]), np.concatenate([self.i, self.j])
        value = np.concatenate([np.ones(self.m), -np.ones(self.m)])
        return RankOneTerms(csr_of(value, at, index, (self.m, self.n)), row, self.weight)

    def coordinates(self) -> Coordinates:
        row = np.tile(np.arange(self.m), 3)
        i = np.concatenate([self.i, self.j, self.i])
        j = np.concatenate([self.i, self.j, self.j])
        return Coordinates(row, i, j, np.concatenate([self.weight, self.weight, -2 * self.weight]))

    def count(self) -> int:
        return 3 * self.m

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.sign(self.weight)


# --- Rows of vectors ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RankOne(WeightedRows):
    """Rows with ``A = w z z'``; the ``z`` are the rows of `Z`, dense or CSR of shape ``(m, n)``."""

    rank: ClassVar[int | None] = 1
    few_terms: ClassVar[bool] = False
    by_row: ClassVar[tuple[str, ...]] = ("Z", "weight")

    Z: Any
    weight: Array

    @property
    def n(self) -> int:
        return int(self.Z.shape[1])

    def apply(self, X: Matrix) -> Array:
        return self.weight * paired(self.Z, self.Z, X)

    def adjoint(self, y: Array) -> Array:
        return products(self.Z, self.Z, self.weight * y)

    def restrict(self, V: Array) -> RankOne:
        return replace(self, Z=self.Z @ V)

    def norms(self) -> Array:
        return np.abs(self.weight) * row_dots(self.Z, self.Z)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * absolute_product(self.Z, s) ** 2

    def factor(self, k: int) -> tuple[Array, Array]:
        z = dense_row(self.Z, k)
        return (z[:, None], self.weight[k : k + 1]) if z.any() else (np.zeros((self.n, 0)), np.zeros(0))

    def rank_one_terms(self) -> RankOneTerms:
        return RankOneTerms(self.Z, np.arange(self.m), self.weight)

    def coordinates(self) -> Coordinates:
        return outer_coordinates(self.Z, self.Z, self.weight)

    def count(self) -> int:
        return outer_count(self.Z, self.Z)

    def products(self) -> Products:
        return Products(self.Z, self.Z, self.weight)

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.sign(self.weight)


def row_dots(U: Any, W: Any) -> Array:
    """Return ``u_k' w_k`` for the rows of two matrices, dense or CSR."""
    if isinstance(U, np.ndarray):
        return _dots(U, W)
    return np.asarray(U.multiply(W).sum(axis=1), dtype=float).ravel()


def paired(U: Any, W: Any, X: Matrix) -> Array:
    """Return ``u_k' X w_k`` for the rows of two matrices, dense or CSR."""
    right, values = X.factor if isinstance(X, LowRank) else X, []
    for rows in _spans(U, right.shape[1]):
        u = U[rows]
        w = u if U is W else W[rows]
        product = u @ right
        values.append(_dots(product, w @ right) if isinstance(X, LowRank) else row_dots(w, product))
    return np.concatenate(values)


def _spans(U: Any, columns: int) -> list[slice]:
    """Return the rows in blocks whose products have few entries for the cache, or for memory if sparse."""
    m = int(U.shape[0])
    at_once = _BLOCK if _has_blocks(U) else m
    if sp.issparse(U):
        at_once = max(_PRODUCT // max(columns, 1), 1)
    return [slice(start, start + at_once) for start in range(0, max(m, 1), max(at_once, 1))]


def products(U: Any, W: Any, weight: Array) -> Array:
    """Return ``sum_k weight_k (u_k w_k' + w_k u_k') / 2`` as a dense symmetric array."""
    if np.count_nonzero(weight) < _FEW * len(weight):
        acting, same = np.flatnonzero(weight), U is W
        U, weight = U[acting], weight[acting]
        W = U if same else W[acting]
    if U is W and _has_blocks(U):
        return _moment(U, weight)
    if isinstance(U, np.ndarray):
        half = U.T @ (weight[:, None] * W)
    else:
        half = (U.T @ sp.diags_array(weight) @ W).toarray()
    symmetric: Array = (half + half.T) / 2
    return symmetric


def _has_blocks(U: Any) -> bool:
    return isinstance(U, np.ndarray) and len(U) > _BLOCK and U.shape[1] >= _LONG


def _blocks(U: Array) -> Iterator[Array]:
    return (U[start : start + _BLOCK] for start in range(0, len(U), _BLOCK))


def _moment(Z: Array, weight: Array) -> Array:
    """Return ``sum_k weight_k z_k z_k'``, by symmetric products of the rows of each sign."""
    total, root = np.zeros((Z.shape[1],) * 2), np.sqrt(np.abs(weight))
    for start, block in zip(range(0, len(Z), _BLOCK), _blocks(Z), strict=True):
        own = weight[start : start + _BLOCK]
        for sign in (-1, 1):
            rows = np.flatnonzero(sign * own > 0)
            scaled = block[rows] * root[start + rows, None]
            total += sign * (scaled.T @ scaled)  # NumPy takes a product with its own transpose as symmetric
    return total


def dense_row(U: Any, k: int) -> Array:
    """Return row `k` of a matrix, dense or CSR, as a new dense vector."""
    if not sp.issparse(U):
        return np.array(U[k])
    row = np.zeros(U.shape[1])
    span = slice(U.indptr[k], U.indptr[k + 1])
    row[U.indices[span]] = U.data[span]
    return row


def outer_coordinates(U: Any, W: Any, weight: Array) -> Coordinates:
    """Return the terms of ``weight_k u_k' X w_k``, one for each pair of nonzeros."""
    if not (sp.issparse(U) or sp.issparse(W)):
        entries = U.shape[0] * U.shape[1] ** 2
        if entries <= _LARGEST_TABLE or 4 * outer_count(U, W) > entries:
            value = (weight[:, None] * U)[:, :, None] * W[:, None, :]
            row, i, j = np.nonzero(value)
            return Coordinates(row, i, j, value[row, i, j])
        U, W = sp.csr_array(U), sp.csr_array(W)
    count_u, count_w = np.diff(U.indptr), np.diff(W.indptr)
    pairs = count_u * count_w
    row = np.repeat(np.arange(U.shape[0]), pairs)
    step = np.arange(len(row)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    a = U.indptr[row] + step // np.maximum(count_w[row], 1)
    b = W.indptr[row] + step % np.maximum(count_w[row], 1)
    i, j = U.indices[a].astype(np.intp), W.indices[b].astype(np.intp)
    return Coordinates(row, i, j, weight[row] * U.data[a] * W.data[b])


def outer_count(U: Any, W: Any) -> int:
    """Return how many terms the rows ``u_k'X w_k`` have."""
    return int(row_counts(U) @ row_counts(W))


@dataclass(frozen=True, eq=False)
class _TwoVectors(WeightedRows):
    """Rows of two vectors ``u`` and ``w``; `U` and `W` are dense or CSR of shape ``(m, n)``."""

    rank: ClassVar[int | None] = 2
    few_terms: ClassVar[bool] = False
    by_row: ClassVar[tuple[str, ...]] = ("U", "W", "weight")

    U: Any
    W: Any
    weight: Array

    @property
    def n(self) -> int:
        return int(self.U.shape[1])

    def restrict(self, V: Array) -> Self:
        return replace(self, U=self.U @ V, W=self.W @ V)


@dataclass(frozen=True, eq=False)
class RankOnePairs(_TwoVectors):
    """Rows with ``A = weight (u u' + w w')``: the real form of ``z*X z``."""

    @property
    def parts(self) -> tuple[RankOne, RankOne]:
        """The families of the two forms."""
        return RankOne(self.U, self.weight), RankOne(self.W, self.weight)

    def apply(self, X: Matrix) -> Array:
        return self.weight * (paired(self.U, self.U, X) + paired(self.W, self.W, X))

    def adjoint(self, y: Array) -> Array:
        weight = self.weight * y
        return products(self.U, self.U, weight) + products(self.W, self.W, weight)

    def norms(self) -> Array:
        uu, ww, uw = row_dots(self.U, self.U), row_dots(self.W, self.W), row_dots(self.U, self.W)
        return np.abs(self.weight) * np.sqrt(uu**2 + ww**2 + 2 * uw**2)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * (absolute_product(self.U, s) ** 2 + absolute_product(self.W, s) ** 2)

    def factor(self, k: int) -> tuple[Array, Array]:
        basis, R = np.linalg.qr(np.column_stack([dense_row(self.U, k), dense_row(self.W, k)]))
        small, d = eigen_factor(self.weight[k] * R @ R.T)
        return basis @ small, d

    def rank_one_terms(self) -> RankOneTerms:
        stack = [self.U, self.W]
        U = sp.vstack(stack, format="csr") if sp.issparse(self.U) else np.vstack(stack)
        return RankOneTerms(U, np.tile(np.arange(self.m), 2), np.tile(self.weight, 2))

    def coordinates(self) -> Coordinates:
        return Coordinates.concatenated(outer_coordinates(F, F, self.weight) for F in (self.U, self.W))

    def count(self) -> int:
        return outer_count(self.U, self.U) + outer_count(self.W, self.W)

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.sign(self.weight)


@dataclass(frozen=True, eq=False)
class RankTwo(_TwoVectors):
    """Rows with ``A = weight (u w' + w u') / 2``.

    A comparison ``z1'X z1 - z2'X z2`` is such a product, with ``u = z1 - z2`` and ``w = z1 + z2``.
    """

    def apply(self, X: Matrix) -> Array:
        return self.weight * paired(self.U, self.W, X)

    def adjoint(self, y: Array) -> Array:
        return products(self.U, self.W, self.weight * y)

    def norms(self) -> Array:
        uu, ww, uw = row_dots(self.U, self.U), row_dots(self.W, self.W), row_dots(self.U, self.W)
        return np.abs(self.weight) * np.sqrt((uu * ww + uw**2) / 2)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * absolute_product(self.U, s) * absolute_product(self.W, s)

    def factor(self, k: int) -> tuple[Array, Array]:
        u, w = dense_row(self.U, k), dense_row(self.W, k)
        length = np.linalg.norm(u), np.linalg.norm(w)
        if min(length) == 0.0:
            return np.zeros((self.n, 0)), np.zeros(0)
        # Scaled to one length, u + w and u - w are the two eigenvectors of u w' + w u'.
        u, w = u / length[0], w / length[1]
        U = np.column_stack([u + w, u - w])
        keep = np.linalg.norm(U, axis=0) > 1e-12
        d = self.weight[k] * length[0] * length[1] / 4 * np.array([1.0, -1.0])
        return U[:, keep], d[keep]

    def rank_one_terms(self) -> RankOneTerms:
        # u w' + w u' = ((u + w)(u + w)' - (u - w)(u - w)') / 2
        stack = [self.U + self.W, self.U - self.W]
        U = sp.vstack(stack, format="csr") if sp.issparse(self.U) else np.vstack(stack)
        return RankOneTerms(U, np.tile(np.arange(self.m), 2), np.concatenate([self.weight, -self.weight]) / 4)

    def coordinates(self) -> Coordinates:
        return outer_coordinates(self.U, self.W, self.weight)

    def count(self) -> int:
        return outer_count(self.U, self.W)

    def products(self) -> Products:
        return Products(self.U, self.W, self.weight)
