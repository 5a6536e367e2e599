"""Products of matrices with a matrix of rows: the rows of ``M @ X @ M.T`` from those of ``X``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import IntArray
from bregopt.program.rows.base import Rows
from bregopt.program.rows.bilinear import Bilinear
from bregopt.program.rows.entries import Entries

__all__ = ["multiplied_rows"]

_SPARSE_SHARE = 0.25  # fraction of nonzeros up to which a factor is stored in CSR form


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
