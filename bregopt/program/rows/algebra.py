"""Sums, combinations, products and stacks of row families, in the most structured family that fits.

The rows of ``X @ v`` and of ``M @ X @ M.T`` are entries of a product ``L X R'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask, check_memory
from bregopt.linalg import absolute_product, dense, row_counts
from bregopt.program.rows.base import (
    Coordinates,
    DenseRows,
    LowRank,
    Matrix,
    Products,
    RankOneTerms,
    Rows,
    SparseRows,
    WeightedRows,
    joined_terms,
    stacked,
    storage,
)
from bregopt.program.rows.low_rank import Distances, Entries, RankOne, RankOnePairs, RankTwo, row_dots
from bregopt.records import cached_property, dataclass, replace

# Rows with more than `_FEW_TERMS` terms and this fraction of nonzeros are stored dense, as a term takes four
# times an entry's memory.
_DENSE_SHARE, _FEW_TERMS = 0.25, 100_000
_LARGEST_SUMMED = 2_000  # order above which a sum of sparse terms and squares is not stored dense
_ENTRY = 24  # bytes of an entry of dense rows, with copies
_SPARSE_SHARE = 0.2  # fraction of nonzeros up to which a factor is stored in CSR form


def add_rows(a: Rows, b: Rows) -> Rows:
    """Return the rows ``A_k + B_k`` of two families with equally many rows."""
    first, second = _quadratic_forms(a), _quadratic_forms(b)
    if first is not None and second is not None and _opposite(first.weight, second.weight):
        return _comparison(first, second)
    if isinstance(a, Entries) and isinstance(b, Entries) and _same_places(a, b):
        return replace(a, weight=a.weight + b.weight)
    if isinstance(a, DenseRows) or isinstance(b, DenseRows):
        return DenseRows(dense_stack(a) + dense_stack(b))
    apart = _sum_of_squares(a, b)
    if apart is not None:
        return apart
    if _are_many(a.count() + b.count(), a.m, a.n):
        return DenseRows(dense_stack(a) + dense_stack(b))
    return SparseRows.of(a.m, a.n, Coordinates.concatenated([a.coordinates(), b.coordinates()]))


# Pays on: communities of 5,000 vertices.
@dataclass(frozen=True, eq=False)
class Sum(Rows):
    """One row that is the sum of sparse terms and of squares ``w z'X z`` of long vectors, kept apart.

    Large matrices of few terms have it (:mod:`bregopt.program.linear_map`).

    Parameters
    ----------
    terms : Rows
        One row.
    squares : tuple of RankOne
        Of one row each.
    """

    terms: Rows
    squares: tuple[RankOne, ...]
    m: ClassVar[int] = 1

    @property
    def n(self) -> int:
        return self.terms.n

    @property
    def parts(self) -> tuple[Rows, ...]:
        """The terms and the squares."""
        return self.terms, *self.squares

    def apply(self, X: Matrix) -> Array:
        return sum((part.apply(X) for part in self.parts), np.zeros(1))

    def adjoint(self, y: Array) -> Array:
        return sum((part.adjoint(y) for part in self.parts), np.zeros((self.n, self.n)))

    def slice(self, rows: IntArray) -> Sum:
        assert len(rows) == 1
        return self

    def scale(self, weight: Array) -> Sum:
        return Sum(self.terms.scale(weight), tuple(square.scale(weight) for square in self.squares))

    def norms(self) -> Array:
        square = self.terms.norms() ** 2
        for k, own in enumerate(self.squares):
            weight, z = own.weight, LowRank(dense(own.Z).reshape(-1, 1))
            square += 2 * weight * self.terms.apply(z) + weight * own.apply(z)
            square += sum((2 * weight * other.apply(z) for other in self.squares[:k]), np.zeros(1))
        return np.sqrt(np.maximum(square, 0.0))

    def magnitude(self, s: Array) -> Array:
        return sum((part.magnitude(s) for part in self.parts), np.zeros(1))

    def entries(self, i: IntArray, j: IntArray) -> Array:
        """Return the entries at some places of the symmetric matrix."""
        t = self.terms.coordinates()
        half = (
            np.concatenate([t.value, t.value]) / 2,
            (np.concatenate([t.i, t.j]), np.concatenate([t.j, t.i])),
        )
        S: Array = np.asarray(sp.csr_array(half, (self.n, self.n))[i, j])
        vectors = ((float(own.weight[0]), dense(own.Z).ravel()) for own in self.squares)
        return S + sum((w * z[i] * z[j] for w, z in vectors), np.zeros(len(i)))

    def coordinates(self) -> Coordinates:
        return Coordinates.concatenated(part.coordinates() for part in self.parts)

    def count(self) -> int:
        return sum(part.count() for part in self.parts)


def _sum_of_squares(a: Rows, b: Rows) -> Sum | None:
    """Return the sum of two single rows of large order if it is one of sparse terms and squares."""
    if a.m != 1 or a.n <= _LARGEST_SUMMED or a.count() + b.count() <= _DENSE_SHARE * a.n**2:
        return None
    parts = [part for rows in (a, b) for part in (rows.parts if isinstance(rows, Sum) else (rows,))]
    squares = tuple(part for part in parts if isinstance(part, RankOne))
    terms = [part for part in parts if not isinstance(part, RankOne)]
    if not squares or any(isinstance(part, DenseRows) for part in terms):
        return None
    none = np.zeros(0, dtype=np.intp)
    total: Rows = SparseRows.of(1, a.n, Coordinates(none, none, none, np.zeros(0)))
    for part in terms:
        total = add_rows(total, part)
    return None if isinstance(total, DenseRows | Sum) else Sum(total, squares)


def combine_rows(S: Any, rows: Rows) -> Rows:
    """Return the rows ``sum_k S[l, k] A_k`` for a sparse matrix `S` of shape ``(new m, m)``."""
    S = sp.csr_array(S)
    m, n = S.shape[0], rows.n
    if isinstance(rows, DenseRows):
        return DenseRows((S @ rows.stack.reshape(rows.m, -1)).reshape(m, n, n))
    if S.nnz == m and (np.diff(S.indptr) == 1).all():
        return rows.slice(S.indices.astype(np.intp)).scale(S.data)
    if isinstance(rows, Bilinear) and rows.count() > _DENSE_SHARE * m * n * n:
        check_memory(_ENTRY * m * n * n, f"a combination of products, {m} rows of order {n},")
        return DenseRows(np.array([rows.adjoint(S[[k]].toarray()[0]) for k in range(m)]))
    t = rows.coordinates()
    by_row = sp.csc_array(S)
    count = np.diff(by_row.indptr)[t.row]
    term = np.repeat(np.arange(len(t.row)), count)
    step = np.arange(len(term)) - np.repeat(np.cumsum(count) - count, count)
    at = by_row.indptr[t.row[term]] + step
    spread = Coordinates(
        by_row.indices[at].astype(np.intp), t.i[term], t.j[term], t.value[term] * by_row.data[at]
    )
    return SparseRows.of(m, n, spread)


def stacked_rows(m: int, n: int, parts: Sequence[tuple[int, Rows]]) -> Rows:
    """Return `m` rows in which each family starts at the given row; the other rows are zero."""
    alike = len({(type(rows), storage(rows)) for _, rows in parts}) == 1
    if alike and sum(rows.m for _, rows in parts) == m:
        (_, first), *others = parts
        return first.followed_by([rows for _, rows in others]) if others else first
    if _are_many(sum(rows.count() for _, rows in parts), m, n):
        stack = np.zeros((m, n, n))
        for start, rows in parts:
            stack[start : start + rows.m] = dense_stack(rows)
        return DenseRows(stack)
    return SparseRows.of(m, n, joined_terms(parts))


def _are_many(terms: int, m: int, n: int) -> bool:
    """Whether rows are stored dense: they have many terms, also relative to their entries."""
    many = terms > max(_FEW_TERMS, _DENSE_SHARE * m * n * n)
    if many:
        check_memory(_ENTRY * m * n * n, f"a sum or stack of {m} rows with a matrix of order {n} each")
    return many


def _same_places(a: Entries, b: Entries) -> bool:
    return (np.array_equal(a.i, b.i) and np.array_equal(a.j, b.j)) or (
        np.array_equal(a.i, b.j) and np.array_equal(a.j, b.i)
    )


def _quadratic_forms(rows: Rows) -> RankOne | None:
    """Return the rows as ``w z'X z`` where their class has that form, None otherwise."""
    if isinstance(rows, RankOne):
        return rows
    if isinstance(rows, Distances):
        each = np.arange(rows.m)
        one = np.ones(rows.m)
        index = (np.concatenate([each, each]), np.concatenate([rows.i, rows.j]))
        Z = sp.csr_array((np.concatenate([one, -one]), index), (rows.m, rows.n))
        return RankOne(Z, rows.weight)
    return None


def _opposite(a: Array, b: Array) -> bool:
    return bool(((a > 0) & (b < 0)).all() or ((a < 0) & (b > 0)).all())


def _comparison(a: RankOne, b: RankOne) -> RankTwo:
    """Return ``|a| z1'X z1 - |b| z2'X z2`` as products, with the sign of the first in the weight."""
    if sp.issparse(a.Z) != sp.issparse(b.Z):
        a, b = replace(a, Z=dense(a.Z)), replace(b, Z=dense(b.Z))
    first, second = _row_scaled(a.Z, np.sqrt(np.abs(a.weight))), _row_scaled(b.Z, np.sqrt(np.abs(b.weight)))
    return RankTwo(first - second, first + second, np.sign(a.weight))


def _row_scaled(Z: Any, weight: Array) -> Any:
    return sp.csr_array(sp.diags_array(weight) @ Z) if sp.issparse(Z) else weight[:, None] * Z


def dense_stack(rows: Rows) -> Array:
    """Return the matrices ``A_k`` of a family as one array of shape ``(m, n, n)``."""
    if isinstance(rows, DenseRows):
        return rows.stack
    if isinstance(rows, RankOnePairs):
        first, second = map(dense_stack, rows.parts)
        return first + second
    forms = rows.products()
    if forms is not None:
        half = (forms.weight[:, None] * dense(forms.U))[:, :, None] * dense(forms.W)[:, None, :]
        half += half.transpose(0, 2, 1).copy()
        half /= 2
        return half
    t = rows.coordinates()
    flat = np.bincount((t.row * rows.n + t.i) * rows.n + t.j, weights=t.value, minlength=rows.m * rows.n**2)
    stack = flat.reshape(rows.m, rows.n, rows.n)
    symmetric: Array = (stack + stack.transpose(0, 2, 1)) / 2
    return symmetric


def upper_triangles(rows: Rows) -> Array:
    """Return the entries on and above the diagonals of the ``A_k``, those above it twice.

    Returns
    -------
    array of shape (n (n + 1) / 2, m)
        Row by row of the matrices.
    """
    if isinstance(rows, RankOnePairs):
        first, second = map(upper_triangles, rows.parts)
        return first + second
    forms, n = rows.products(), rows.n
    i, j = np.triu_indices(n)
    if forms is None:
        return np.where(i == j, 1.0, 2.0)[:, None] * dense_stack(rows)[:, i, j].T
    U, W = dense(forms.U).T * forms.weight, np.ascontiguousarray(dense(forms.W).T)
    start = 0
    triangles = np.empty((len(i), rows.m))
    for a in range(n):
        part = triangles[start : start + n - a]
        np.multiply(U[a:], W[a], out=part)
        part += W[a:] * U[a]
        part[0] *= 0.5
        start += n - a
    return triangles


# --- Entries of products ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bilinear(WeightedRows):
    """Rows ``weight_k l'X r`` with ``l`` the row ``i_k`` of `L` and ``r`` the row ``j_k`` of `R`.

    `L` and `R`, of shapes ``(p, n)`` and ``(q, n)``, are dense or CSR, and shared by all rows. So the ``p q``
    entries of ``L X R'`` take the memory of `L` and `R`, and their values that of two matrix products.
    """

    rank: ClassVar[int | None] = 2
    few_terms: ClassVar[bool] = False
    by_row: ClassVar[tuple[str, ...]] = ("i", "j", "weight")

    L: Any
    R: Any
    i: IntArray
    j: IntArray
    weight: Array

    @property
    def n(self) -> int:
        return int(self.L.shape[1])

    def apply(self, X: Matrix) -> Array:
        if isinstance(X, LowRank):
            return self.weight * np.einsum(
                "kr,kr->k", (self.L @ X.factor)[self.i], (self.R @ X.factor)[self.j]
            )
        product = self.R @ np.asarray(self.L @ X).T  # the transpose of L X R', as R may be sparse
        return self.weight * product[self.j, self.i]

    def adjoint(self, y: Array) -> Array:
        S = sp.csr_array((self.weight * y, (self.i, self.j)), (self.L.shape[0], self.R.shape[0]))
        half = dense(self.L.T @ (S @ self.R))
        symmetric: Array = (half + half.T) / 2
        return symmetric

    def restrict(self, V: Array) -> Bilinear:
        L = self.L @ V
        return replace(self, L=L, R=L if self.R is self.L else self.R @ V)

    def followed_by(self, others: Sequence[Any]) -> Bilinear:
        families = (self, *others)
        left = np.cumsum([0, *(f.L.shape[0] for f in families)])
        right = np.cumsum([0, *(f.R.shape[0] for f in families)])
        i = np.concatenate([f.i + start for f, start in zip(families, left, strict=False)])
        j = np.concatenate([f.j + start for f, start in zip(families, right, strict=False)])
        L = stacked([f.L for f in families])
        R = L if all(f.L is f.R for f in families) else stacked([f.R for f in families])
        return Bilinear(L, R, i, j, np.concatenate([f.weight for f in families]))

    def norms(self) -> Array:
        ll, rr = row_dots(self.L, self.L)[self.i], row_dots(self.R, self.R)[self.j]
        lr = dense(self.L @ self.R.T)[self.i, self.j]
        return np.abs(self.weight) * np.sqrt((ll * rr + lr**2) / 2)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * absolute_product(self.L, s)[self.i] * absolute_product(self.R, s)[self.j]

    def factor(self, k: int) -> tuple[Array, Array]:
        return self.slice(np.array([k])).expanded.factor(0)

    def rank_one_terms(self) -> RankOneTerms:
        return self.expanded.rank_one_terms()

    def coordinates(self) -> Coordinates:
        return self.expanded.coordinates()

    def count(self) -> int:
        left, right = row_counts(self.L), row_counts(self.R)
        return int(left[self.i] @ right[self.j])

    def products(self) -> Products:
        return self.expanded.products()

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.where(self.i == self.j, np.sign(self.weight), 0.0) if self.L is self.R else np.zeros(self.m)

    @cached_property
    def expanded(self) -> RankTwo:
        """The rows with vectors of their own, both dense or both in CSR form."""
        nonzeros = int(row_counts(self.L)[self.i].sum() + row_counts(self.R)[self.j].sum())
        sparse = nonzeros <= _SPARSE_SHARE * 2 * self.m * self.n
        L, R = (sp.csr_array(F) if sparse else dense(F) for F in (self.L, self.R))
        return RankTwo(L[self.i], R[self.j], self.weight)


def multiplied_rows(
    rows: Rows, shape: tuple[int, int], left: Any = None, right: Any = None
) -> Bilinear | None:
    """Return the rows of ``left @ E @ right``, with `rows` those of a matrix `E`, as entries of a product.

    Parameters
    ----------
    rows : Rows
        Of the entries of `E`, row by row.
    shape : (int, int)
        The shape of `E`.
    left, right : matrix, dense or sparse, optional
        None for the identity.

    Returns
    -------
    Bilinear or None
        None if `E` is no product ``L X R'``.
    """
    found = _product_of(rows, shape)
    if found is None:
        return None
    L, R = found
    L = _lean(L if left is None else left @ L)
    R = _lean(R if right is None else right.T @ R)
    p, q = L.shape[0], R.shape[0]
    i, j = (index.ravel() for index in np.indices((p, q)))
    return Bilinear(L, L if _equal(L, R) else R, i, j, np.ones(p * q))


def _product_of(rows: Rows, shape: tuple[int, int]) -> tuple[Any, Any] | None:
    """Return the factors ``L`` and ``R`` of a matrix ``L X R'`` that is given row by row, None for others."""
    if not isinstance(rows, Entries | Bilinear) or (rows.weight != rows.weight[0]).any():
        return None
    L: Any = sp.csr_array(sp.eye_array(rows.n)) if isinstance(rows, Entries) else rows.L
    R: Any = L if isinstance(rows, Entries) else rows.R
    for first, second, F, G in ((rows.i, rows.j, L, R), (rows.j, rows.i, R, L)):
        i, j = first.reshape(shape), second.reshape(shape)
        if (i == i[:, :1]).all() and (j == j[:1]).all():
            return _taken(F, i[:, 0]) * rows.weight[0], _taken(G, j[0])
    return None


def _taken(F: Any, rows: IntArray) -> Any:
    """Return some rows of a matrix, the matrix itself where they are all."""
    return F if np.array_equal(rows, np.arange(F.shape[0])) else F[rows]


def _lean(F: Any) -> Any:
    """Return a matrix in CSR form if few of its entries are nonzero, dense otherwise."""
    if not sp.issparse(F):
        return F
    return sp.csr_array(F) if F.nnz <= _SPARSE_SHARE * np.prod(F.shape) else F.toarray()


def _equal(L: Any, R: Any) -> bool:
    if L.shape != R.shape or sp.issparse(L) != sp.issparse(R):
        return False
    return (L != R).nnz == 0 if sp.issparse(L) else bool((L == R).all())
