"""Rows that are entries of a product ``L X R'``: the rows of ``X @ v`` and of ``M @ X @ M.T``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import Array, IntArray, Mask
from bregopt.linalg import dense
from bregopt.program.lowrank import LowRank, Matrix
from bregopt.program.rows.base import Coordinates, Products, RankOneTerms, RowFamily, Rows
from bregopt.program.rows.entries import Entries
from bregopt.program.rows.low_rank import RankTwo, row_dots
from bregopt.records import cached_property, dataclass, replace

__all__ = ["Bilinear", "multiplied_rows"]

_SPARSE_SHARE = 0.2  # fraction of nonzeros up to which a factor is stored in CSR form


@dataclass(frozen=True, eq=False)
class Bilinear(RowFamily):
    """Rows ``weight_k l'X r`` with ``l`` the row ``i_k`` of `L` and ``r`` the row ``j_k`` of `R`.

    `L` and `R`, of shapes ``(p, n)`` and ``(q, n)``, are dense or CSR, and shared by all rows. So the ``p q``
    entries of ``L X R'`` take the memory of `L` and `R`, and their values that of two matrix products.
    """

    rank: ClassVar[int | None] = 2
    few_terms: ClassVar[bool] = False

    L: Any
    R: Any
    i: IntArray
    j: IntArray
    weight: Array

    @property
    def m(self) -> int:
        return len(self.i)

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
        half = self.L.T @ (S @ self.R)
        half = half.toarray() if sp.issparse(half) else np.asarray(half)
        symmetric: Array = (half + half.T) / 2
        return symmetric

    def restrict(self, V: Array) -> Bilinear:
        L = self.L @ V
        return replace(self, L=L, R=L if self.R is self.L else self.R @ V)

    def slice(self, rows: IntArray) -> Bilinear:
        return replace(self, i=self.i[rows], j=self.j[rows], weight=self.weight[rows])

    def scale(self, weight: Array) -> Bilinear:
        return replace(self, weight=self.weight * weight)

    def norms(self) -> Array:
        ll, rr = row_dots(self.L, self.L)[self.i], row_dots(self.R, self.R)[self.j]
        across = self.L @ self.R.T
        lr = (across.toarray() if sp.issparse(across) else across)[self.i, self.j]
        return np.abs(self.weight) * np.sqrt((ll * rr + lr**2) / 2)

    def magnitude(self, s: Array) -> Array:
        return np.abs(self.weight) * (abs(self.L) @ s)[self.i] * (abs(self.R) @ s)[self.j]

    def factor(self, k: int) -> tuple[Array, Array]:
        return self.slice(np.array([k])).expanded.factor(0)

    def rank_one_terms(self) -> RankOneTerms:
        return self.expanded.rank_one_terms()

    def coordinates(self) -> Coordinates:
        return self.expanded.coordinates()

    def count(self) -> int:
        left, right = _nonzeros(self.L), _nonzeros(self.R)
        return int(left[self.i] @ right[self.j])

    def products(self) -> Products:
        return self.expanded.products()

    def definite_signs(self, asked: Mask | None = None) -> Array:
        return np.where(self.i == self.j, np.sign(self.weight), 0.0) if self.L is self.R else np.zeros(self.m)

    @cached_property
    def expanded(self) -> RankTwo:
        """The rows with vectors of their own, both dense or both in CSR form."""
        nonzeros = int(_nonzeros(self.L)[self.i].sum() + _nonzeros(self.R)[self.j].sum())
        sparse = nonzeros <= _SPARSE_SHARE * 2 * self.m * self.n
        L, R = (sp.csr_array(F) if sparse else dense(F) for F in (self.L, self.R))
        return RankTwo(L[self.i], R[self.j], self.weight)


def _nonzeros(F: Any) -> IntArray:
    """Return the number of nonzeros in each row."""
    count = np.diff(F.indptr) if sp.issparse(F) else np.count_nonzero(F, axis=1)
    return count.astype(np.intp)


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
