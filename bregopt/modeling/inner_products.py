"""Inner products of matrix variables and expressions with matrices, parameters and expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from bregopt.arrays import (
    Array,
    IntArray,
    MatrixLike,
    finite_array,
    rectangular,
    symmetric_matrix,
    symmetrized,
)
from bregopt.modeling.expressions import Expression, Operand, as_expression
from bregopt.modeling.hermitian import HermitianPSD, half_embedded
from bregopt.modeling.products import product
from bregopt.modeling.psd import PSD
from bregopt.program.rows import Coordinates, DenseRows, SparseRows

__all__ = ["inner"]

# A stack of matrices with at most this fraction of nonzeros is stored by its terms.
_SPARSE_SHARE = 0.2


def inner(A: Operand | MatrixLike | Sequence[MatrixLike], X: Operand) -> Expression:
    """Return ``<A, X>``, the sum of the products of the entries: ``tr(A X)`` for a symmetric ``X``.

    Parameters
    ----------
    A : array_like or sparse of shape (n, n), a list of those, or array_like of shape (m, n, n); or Parameter
        Symmetric if `X` is a variable, Hermitian if that is Hermitian.
    X : PSD, or any expression of the shape of `A`

    Returns
    -------
    Expression
        A scalar for one matrix, shape ``(m,)`` for several.

    Raises
    ------
    TypeError, ValueError
        If `A` is not of the shape of `X`, not finite real numbers, has no matrix, or is not symmetric for a
        variable `X`.
    """
    if isinstance(A, Operand):
        return _inner_of_expressions(A.expression(), as_expression(X, "X of inner"))
    if not isinstance(X, PSD | HermitianPSD):
        return _inner_of_expression(A, as_expression(X, "X of inner"))
    block: Any = X
    n = block.n
    single, stack = _matrices(A)
    if not stack:
        raise ValueError(f"A of inner is {A!r}; expected a matrix or matrices of order {n}")
    names = ["A of inner"] if single else [f"A[{k}] of inner" for k in range(len(stack))]
    if isinstance(X, HermitianPSD):
        block, stack = X.block, [half_embedded(a, name, n) for a, name in zip(stack, names, strict=True)]
    if all(sp.issparse(matrix) for matrix in stack):
        rows: SparseRows | DenseRows = _sparse_rows(stack, block.n, names)
    else:
        dense = np.array([symmetric_matrix(a, name, block.n) for a, name in zip(stack, names, strict=True)])
        rows = DenseRows(dense)
        if np.count_nonzero(dense) <= _SPARSE_SHARE * dense.size:
            rows = SparseRows.of(rows.m, block.n, rows.coordinates())
    return Expression(
        () if single else (rows.m,), np.zeros(rows.m), {block: rows}, label=f"inner(A, {block.name})"
    )


def _inner_of_expressions(A: Expression, e: Expression) -> Expression:
    if A.shape != e.shape:
        raise ValueError(f"A of inner has shape {A.shape}; expected {e.shape}")
    return replace(product(A, e).summed(), label=f"inner({A.label}, {e.label})")


def _inner_of_expression(A: Any, e: Expression) -> Expression:
    if len(e.shape) != 2:
        raise ValueError(f"X of inner has shape {e.shape}; expected a matrix")
    single, stack = _matrices(A)
    flat = [finite_array(a, "A of inner", ndim=2) for a in stack]
    for matrix in flat:
        if matrix.shape != e.shape:
            raise ValueError(f"A of inner has shape {matrix.shape}; expected {e.shape}")
    if not flat:
        raise ValueError(f"A of inner is {A!r}; expected a matrix or matrices of shape {e.shape}")
    S = sp.csr_array(np.array([matrix.ravel() for matrix in flat]))
    return e.combined(S, () if single else (len(flat),), f"inner(A, {e.label})")


def _matrices(A: Any) -> tuple[bool, list[Any]]:
    """Return whether `A` of inner is one matrix, and the list of matrices, empty for a scalar."""
    if sp.issparse(A):
        return True, [A]
    if isinstance(A, list | tuple):
        rows = len(A) > 0 and not sp.issparse(A[0]) and rectangular(A[0], "A[0] of inner").ndim == 1
        return (True, [A]) if rows else (False, list(A))
    stack = rectangular(A, "A of inner")
    if stack.ndim == 2:
        return True, [A]
    return False, list(stack) if stack.ndim else []


def _sparse_rows(stack: list[Any], n: int, names: list[str]) -> SparseRows:
    parts: list[tuple[IntArray, IntArray, IntArray, Array]] = []
    for k, (matrix, name) in enumerate(zip(stack, names, strict=True)):
        if matrix.shape != (n, n):
            raise ValueError(f"{name} has shape {matrix.shape}; expected {n} x {n}")
        finite_array(sp.coo_array(matrix).data, name)
        A = sp.coo_array(symmetrized(sp.csr_array(matrix, dtype=float), name))
        i, j = (np.asarray(index, dtype=np.intp) for index in A.coords)
        parts.append((np.full(A.nnz, k, dtype=np.intp), i, j, A.data))
    fields = (np.concatenate(column) for column in zip(*parts, strict=True))
    return SparseRows.of(len(stack), n, Coordinates(*fields))
